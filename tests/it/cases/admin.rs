//! C52–C61: finding the coordinator, listing, describing and deleting, over the wire.

use std::collections::BTreeSet;

use kafka_protocol::messages::describe_groups_request::DescribeGroupsRequest;
use kafka_protocol::messages::{
    DeleteGroupsRequest, FindCoordinatorRequest, GroupId, ListGroupsRequest,
};
use tokio::task::JoinSet;

use super::group::{codes, commit_request, fetch_request, fetched};
use super::words::codes::*;
use super::words::{Outcome, code, s};
use super::world::within;

#[tokio::test]
async fn c52_two_listeners_lead_to_one_coordinator() {
    let world = world!("listeners" = "ONE://127.0.0.1:0,TWO://127.0.0.1:0");
    let group = world.group();
    let [one, two] = world.listeners();
    let one = world.connect_at(&one).await;
    let two = world.connect_at(&two).await;
    let key = FindCoordinatorRequest::default().with_coordinator_keys(vec![s(group.id())]);
    let node =
        |reply: kafka_protocol::messages::FindCoordinatorResponse| reply.coordinators[0].node_id;
    assert_eq!(
        node(one.send(&key).await.unwrap()),
        node(two.send(&key).await.unwrap())
    );

    let a = group.member("a").await.on(one);
    let b = group.member("b").await.on(two);
    group.settle(&[&a, &b]).await;
    assert_eq!((a.heartbeat().await, b.heartbeat().await), (NONE, NONE));
    let topic = world.topic(2).await;
    assert_eq!(a.commit(&topic, 0, 1).await, NONE);
    assert_eq!(b.commit(&topic, 1, 2).await, NONE);
}

#[tokio::test]
async fn c52_a_second_server_on_one_data_folder_is_refused() {
    let world = world!(durable);
    if world.is_ours() {
        let refused = world.another_on_the_same_folder().await;
        assert!(refused.contains("use"), "{refused}");
        assert_eq!(world.group().find().await, NONE);
    }
}

#[tokio::test]
async fn c53_a_fresh_server_is_available_from_the_first_request() {
    let mut world = world!(durable);
    for _ in 0..2 {
        let group = world.group();
        assert_eq!(group.find().await, NONE);
        let topic = world.topic(1).await;
        let a = group.member("a").await;
        a.settle().await;
        assert_eq!(a.commit(&topic, 0, 1).await, NONE);
        drop(group);
        world.restart().await;
    }
}

#[tokio::test]
async fn c54_find_coordinator_answers_each_key_in_its_order() {
    let world = world!();
    let client = world.connect().await;
    let bootstrap = world.bootstrap();
    let thousand: Vec<_> = (0..1000).map(|i| format!("key-{i}")).collect();
    let batches: Vec<Vec<&str>> = vec![
        vec![],
        vec!["one"],
        vec!["twice", "", "twice"],
        thousand.iter().map(|key| &**key).collect(),
    ];
    for version in [0, 4, 1, 5, 2, 6, 3] {
        if version < 4 {
            let key = FindCoordinatorRequest::default().with_key(s("one"));
            let reply = client.send_as(version, &key).await.unwrap();
            assert_eq!(code(reply.error_code), NONE);
            assert_eq!(format!("{}:{}", reply.host, reply.port), bootstrap);
            assert!(reply.node_id.0 >= 0);
            continue;
        }
        for batch in &batches {
            let keys = batch.iter().map(|key| s(key)).collect();
            let request = FindCoordinatorRequest::default().with_coordinator_keys(keys);
            let reply = client.send_as(version, &request).await.unwrap();
            let answered: Vec<_> = reply.coordinators.iter().map(|c| c.key.as_str()).collect();
            assert_eq!(answered, *batch);
            for each in &reply.coordinators {
                assert_eq!(code(each.error_code), NONE);
                assert_eq!(format!("{}:{}", each.host, each.port), bootstrap);
            }
        }
    }
}

#[tokio::test]
async fn c55_each_state_of_a_rebalance_can_be_described() {
    let world = world!();
    let group = world.group();
    let check = async |state: &str, protocol: &str, members: usize| {
        for version in 0..=6 {
            let described = group.describe_as(version).await;
            assert_eq!(code(described.error_code), NONE);
            assert_eq!(described.group_state.as_str(), state);
            assert_eq!(described.protocol_type.as_str(), "consumer");
            assert_eq!(described.protocol_data.as_str(), protocol);
            assert_eq!(described.members.len(), members);
            for member in &described.members {
                assert_eq!(member.member_metadata.is_empty(), state != "Stable");
                assert!(member.client_host.starts_with('/'));
                assert!(["a", "b"].contains(&member.client_id.as_str()));
            }
        }
    };
    let [a] = group.stable(["a"]).await;
    check("Stable", "range", 1).await;
    let b = group.member("b").await;
    let b_joins = b.joining();
    group.until("PreparingRebalance").await;
    check("PreparingRebalance", "", 2).await;
    a.join().await;
    b_joins.reply().await;
    check("CompletingRebalance", "", 2).await;
    // One member without partitions.
    assert_eq!(a.assign(&[(a.id(), a.share())]).await.error(), NONE);
    assert!(b.sync().await.assignment.is_empty());
    check("Stable", "range", 2).await;
    let described = group.describe().await;
    let assigned = |id: String| {
        let member = described
            .members
            .iter()
            .find(|m| m.member_id.as_str() == id);
        member.unwrap().member_assignment.clone()
    };
    assert_eq!((assigned(a.id()), assigned(b.id())), (a.share(), "".into()));
    group.leave(&[(&a.id(), None), (&b.id(), None)]).await;
    check("Empty", "", 0).await;
}

#[tokio::test]
async fn c56_an_unknown_group_is_dead_and_since_version_6_an_error() {
    let world = world!();
    let known = world.group();
    let [_a] = known.stable(["a"]).await;
    let ids = [world.name("group"), known.id().to_owned()];
    for version in 0..=6 {
        let request = DescribeGroupsRequest::default()
            .with_groups(ids.iter().map(|id| GroupId(s(id))).collect());
        let reply = known.send(version, &request).await.unwrap();
        let [unknown, known] = &reply.groups[..] else {
            panic!("{:?}", reply.groups)
        };
        assert_eq!(
            (unknown.group_state.as_str(), unknown.members.len()),
            ("Dead", 0)
        );
        let wanted = if version < 6 {
            NONE
        } else {
            GROUP_ID_NOT_FOUND
        };
        assert_eq!(code(unknown.error_code), wanted);
        assert_eq!(unknown.error_message.is_some(), version >= 6);
        assert_eq!(
            (code(known.error_code), known.group_state.as_str()),
            (NONE, "Stable")
        );
    }
}

#[tokio::test]
async fn c57_groups_without_members_are_listed_with_their_type() {
    let mut world = world!(durable);
    let topic = world.topic(1).await;
    let mut wanted = {
        let simple = world.group();
        assert_eq!(simple.commit(&topic, 0, 1).await, NONE);
        let left = world.group();
        let a = left.member("a").await;
        a.settle().await;
        assert_eq!(a.commit(&topic, 0, 1).await, NONE);
        left.leave(&[(&a.id(), None)]).await;
        [
            (simple.id().to_owned(), ""),
            (left.id().to_owned(), "consumer"),
        ]
    };
    wanted.sort();
    for round in 0..2 {
        for version in 0..=5 {
            let groups = world.list_as(version).await;
            let listed: Vec<_> = groups
                .iter()
                .map(|g| (g.group_id.to_string(), g.protocol_type.as_str()))
                .collect();
            assert_eq!(listed, wanted);
            let state = if version < 4 { "" } else { "Empty" };
            assert!(groups.iter().all(|g| g.group_state.as_str() == state));
            let group_type = if version < 5 { "" } else { "classic" };
            assert!(groups.iter().all(|g| g.group_type.as_str() == group_type));
        }
        if round == 0 {
            world.restart().await;
        }
    }
}

#[tokio::test]
async fn c58_an_empty_server_lists_no_groups_in_every_version() {
    let world = world!();
    for version in 0..=5 {
        assert!(world.list_as(version).await.is_empty());
    }
    if world.is_ours() {
        let reply = world
            .connect()
            .await
            .send(&ListGroupsRequest::default())
            .await
            .unwrap();
        assert!(reply.groups.is_empty());
    }
}

/// Commits to this many groups without members; gives their ids.
async fn many_groups(world: &super::world::World, topic: &str, count: usize) -> Vec<String> {
    let client = world.connect().await;
    let ids: Vec<_> = (0..count).map(|_| world.name("group")).collect();
    let mut commits = JoinSet::new();
    for id in &ids {
        let offsets: Vec<_> = (0..10).map(|partition| (topic, partition, 7)).collect();
        let (client, commit) = (client.clone(), commit_request(id, &offsets));
        commits.spawn(async move { client.send_as(9, &commit).await });
    }
    within("commits", async {
        while let Some(reply) = commits.join_next().await {
            assert_eq!(codes(&reply.unwrap().unwrap()), [NONE; 10]);
        }
    })
    .await;
    ids
}

#[tokio::test]
async fn c58_many_groups_are_listed_completely() {
    let world = world!();
    let topic = world.topic(10).await;
    let ids: BTreeSet<_> = many_groups(&world, &topic, 1000)
        .await
        .into_iter()
        .collect();
    for version in 0..=5 {
        let groups = world.list_as(version).await;
        assert_eq!(groups.len(), ids.len());
        assert!(
            groups
                .iter()
                .all(|group| ids.contains(group.group_id.as_str()))
        );
    }
}

#[tokio::test]
async fn c59_offsets_of_subscribed_topics_cannot_be_deleted() {
    let world = world!();
    let (t1, t2) = (world.topic(1).await, world.topic(2).await);
    let group = world.group();
    let a = group.member("a").await.subscribed(&[&t1]);
    a.settle().await;
    assert_eq!(a.commit(&t1, 0, 1).await, NONE);
    assert_eq!(a.commit(&t2, 0, 2).await, NONE);
    let asked = [(&*t1, &[0][..]), (&t2, &[0, 1]), ("no-such-topic", &[0])];
    let outcomes = async || {
        let reply = group.delete_offsets(&asked).await;
        assert_eq!(reply.error(), NONE);
        let mut outcomes = Vec::new();
        for (topic, partitions) in asked {
            for partition in partitions {
                let answer = reply.topics.iter().find(|t| *t.name == *topic).unwrap();
                let each = answer
                    .partitions
                    .iter()
                    .find(|p| p.partition_index == *partition);
                outcomes.push(code(each.unwrap().error_code));
            }
        }
        outcomes
    };
    let wanted = [
        GROUP_SUBSCRIBED_TO_TOPIC,
        NONE,
        NONE,
        UNKNOWN_TOPIC_OR_PARTITION,
    ];
    assert_eq!(outcomes().await, wanted);
    assert_eq!(group.committed_all().await, [(t1.clone(), 0, 1)]);

    group.leave(&[(&a.id(), None)]).await;
    assert_eq!(
        outcomes().await,
        [NONE, NONE, NONE, UNKNOWN_TOPIC_OR_PARTITION]
    );
    assert!(group.committed_all().await.is_empty());
}

#[tokio::test]
async fn c59_other_groups_refuse_to_delete_offsets_as_a_whole() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group();
    let worker = group
        .member("w")
        .await
        .follows("connect", &[("default", b"")]);
    worker.settle().await;
    let none = world.group();
    let nothing: [(&str, &[i32]); 0] = [];
    for topics in [
        &[(topic.as_str(), &[0][..])][..],
        &[("nowhere", &[0])],
        &nothing,
    ] {
        let reply = group.delete_offsets(topics).await;
        assert_eq!((reply.error(), reply.topics.len()), (NON_EMPTY_GROUP, 0));
        let reply = none.delete_offsets(topics).await;
        assert_eq!((reply.error(), reply.topics.len()), (GROUP_ID_NOT_FOUND, 0));
    }
}

#[tokio::test]
async fn c60_only_groups_without_members_can_be_deleted() {
    let world = world!();
    let topic = world.topic(1).await;
    let live = world.group();
    let [a] = live.stable(["a"]).await;
    let with_offsets = world.group();
    assert_eq!(with_offsets.commit(&topic, 0, 1).await, NONE);
    let without_offsets = world.group();
    let gone = without_offsets.member("gone").await;
    gone.settle().await;
    without_offsets.leave(&[(&gone.id(), None)]).await;
    let reserved = world.group();
    let pending = reserved.member("pending").await;
    pending.knock().await;
    let unknown = world.group();

    let groups = [&live, &with_offsets, &without_offsets, &reserved, &unknown];
    let request = DeleteGroupsRequest::default()
        .with_groups_names(groups.iter().map(|group| GroupId(s(group.id()))).collect());
    let reply = live.send(2, &request).await.unwrap();
    let outcomes = groups.map(|group| {
        let result = reply
            .results
            .iter()
            .find(|r| r.group_id.as_str() == group.id());
        code(result.unwrap().error_code)
    });
    assert_eq!(
        outcomes,
        [NON_EMPTY_GROUP, NONE, NONE, NONE, GROUP_ID_NOT_FOUND]
    );
    assert_eq!(world.group_ids().await, [live.id()]);
    assert_eq!(a.heartbeat().await, NONE);
    assert_eq!(pending.join_once().await.error(), UNKNOWN_MEMBER_ID);
    assert_eq!(with_offsets.committed(&topic, 0).await, -1);
}

#[tokio::test]
async fn c60_deleting_the_last_offset_of_an_empty_group_is_safe() {
    let world = world!();
    let topic = world.topic(2).await;
    let group = world.group();
    assert_eq!(
        group.commit_all(&[(&topic, 0, 1), (&topic, 1, 2)]).await,
        [NONE, NONE]
    );
    assert_eq!(group.delete_offsets(&[(&topic, &[0])]).await.error(), NONE);
    assert_eq!(world.group_ids().await, [group.id()]);
    assert_eq!(group.delete_offsets(&[(&topic, &[1])]).await.error(), NONE);
    assert!(group.committed_all().await.is_empty());
    assert!(["Empty", "Dead"].contains(&&*group.state().await));
}

#[tokio::test]
async fn c61_a_console_sweeps_many_groups_while_others_live() {
    let world = world!();
    let topic = world.topic(10).await;
    let ids = many_groups(&world, &topic, 1000).await;
    let live = world.group();
    let [a] = live.stable(["a"]).await;
    let client = world.connect().await;
    let partitions: Vec<_> = (0..10).collect();
    let topics = [(&*topic, &partitions[..])];
    let sweep = async {
        assert_eq!(world.list_as(4).await.len(), ids.len() + 1);
        for batch in ids.chunks(100) {
            let names = batch.iter().map(|id| GroupId(s(id))).collect();
            let describe = DescribeGroupsRequest::default().with_groups(names);
            let reply = client.send_as(5, &describe).await.unwrap();
            assert!(
                reply
                    .groups
                    .iter()
                    .all(|group| group.group_state.as_str() == "Empty")
            );
            assert_eq!(reply.groups.len(), batch.len());

            let groups: Vec<_> = batch.iter().map(|id| (&**id, Some(&topics[..]))).collect();
            let reply = client.send_as(8, &fetch_request(8, &groups)).await.unwrap();
            for group in fetched(8, reply) {
                assert!(group.partitions.iter().all(|p| (p.2, p.5) == (7, NONE)));
                assert_eq!((group.error, group.partitions.len()), (NONE, 10));
            }
        }
        let keys = ids.iter().map(|id| s(id)).collect();
        let find = FindCoordinatorRequest::default().with_coordinator_keys(keys);
        let reply = client.send_as(4, &find).await.unwrap();
        assert!(reply.coordinators.iter().all(|each| each.error_code == 0));
        assert_eq!(reply.coordinators.len(), ids.len());
    };
    let mut sweep = std::pin::pin!(within("the sweep", sweep));
    loop {
        tokio::select! {
            biased;
            () = &mut sweep => break,
            beat = a.heartbeat() => assert_eq!(beat, NONE),
        }
    }
}
