//! C25–C38: committing and fetching offsets, over the wire.

use kafka_protocol::messages::offset_commit_request::OffsetCommitRequestTopic;
use kafka_protocol::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, GroupId, HeartbeatRequest, LeaveGroupRequest,
    SyncGroupRequest, TopicName,
};

use super::group::{codes, fetch_request, fetched};
use super::words::codes::*;
use super::words::{ErrorCode, Outcome, code, s};

#[tokio::test]
async fn c25_each_phase_of_a_rebalance_has_its_answer_to_commits() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group();
    let [a, b] = group.stable(["a", "b"]).await;
    let n = a.as_it_is();
    assert_eq!(a.commit(&topic, 0, 1).await, NONE);

    let c = group.member("c").await;
    let c_joins = c.joining();
    group.until("PreparingRebalance").await;
    assert_eq!(a.commit(&topic, 0, 2).await, NONE);
    assert_eq!(group.committed(&topic, 0).await, 2);

    assert_eq!(group.leave(&[(&b.id(), None)]).await.error(), NONE);
    assert_eq!(a.join().await.error(), NONE);
    assert_eq!(c_joins.reply().await.error(), NONE);
    assert_eq!(group.state().await, "CompletingRebalance");
    assert_eq!(n.commit(&topic, 0, 3).await, ILLEGAL_GENERATION);
    assert_eq!(a.commit(&topic, 0, 4).await, REBALANCE_IN_PROGRESS);
    assert_eq!(group.committed(&topic, 0).await, 2);

    group.sync(&[&a, &c]).await;
    let b = b.of_generation(a.generation());
    assert_eq!(b.commit(&topic, 0, 5).await, UNKNOWN_MEMBER_ID);
    assert_eq!(group.committed(&topic, 0).await, 2);
    assert_eq!(a.commit(&topic, 0, 6).await, NONE);
    assert_eq!(group.committed(&topic, 0).await, 6);
}

#[tokio::test]
async fn c25_commits_keep_the_session_while_joins_are_collected() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group();
    let a = group.member("a").await.session_ms(1_500);
    a.settle().await;
    let b = group.member("b").await;
    let b_joins = b.joining();
    group.until("PreparingRebalance").await;
    let mut sessions = std::pin::pin!(async {
        world.session_passes(1_500).await;
        world.session_passes(1_500).await;
    });
    loop {
        tokio::select! {
            biased;
            () = &mut sessions => break,
            outcome = a.commit(&topic, 0, 1) => assert_eq!(outcome, NONE),
        }
    }
    assert_eq!(a.join().await.error(), NONE);
    assert_eq!(b_joins.reply().await.error(), NONE);
}

#[tokio::test]
async fn c26_assign_mode_commits_are_refused_next_to_a_member() {
    let world = world!();
    let topic = world.topic(2).await;
    let group = world.group();
    assert_eq!(group.commit(&topic, 0, 7).await, NONE);
    let a = group.member("a").await;
    a.settle().await;
    for offset in 0..10 {
        let refused = group
            .commit_all(&[(&topic, 0, offset), (&topic, 1, offset)])
            .await;
        assert_eq!(refused, [UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID]);
    }
    assert_eq!(group.committed_all().await, [(topic.clone(), 0, 7)]);
    assert_eq!(a.heartbeat().await, NONE);
    group.leave(&[(&a.id(), None)]).await;
    assert_eq!(group.commit(&topic, 0, 8).await, NONE);
    assert_eq!(group.committed(&topic, 0).await, 8);
}

#[tokio::test]
async fn c27_an_instance_id_does_not_hinder_assign_mode_commits() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group();
    let commit = |member_id: &str, offset| {
        group
            .commit_request(&[(&topic, 0, offset)])
            .with_member_id(s(member_id))
            .with_group_instance_id(Some(s("i1")))
    };
    assert_eq!(codes(&group.send(9, &commit("", 1)).await.unwrap()), [NONE]);
    assert_eq!(
        codes(&group.send(9, &commit("stale", 2)).await.unwrap()),
        [NONE]
    );
    assert_eq!(group.committed(&topic, 0).await, 2);

    let a = group.member("a").await;
    a.settle().await;
    assert_eq!(
        codes(&group.send(9, &commit("", 3)).await.unwrap()),
        [UNKNOWN_MEMBER_ID]
    );
    group.leave(&[(&a.id(), None)]).await;

    let i1 = group.static_member("i1").await;
    i1.settle().await;
    let refused = codes(&group.send(9, &commit("stale", 4)).await.unwrap());
    assert_eq!(refused, [FENCED_INSTANCE_ID]);
    assert_eq!(group.committed(&topic, 0).await, 2);
}

#[tokio::test]
async fn c28_only_a_commit_without_generation_creates_a_group() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group();
    let zombie = group.member("zombie").await.known_as("m").of_generation(5);
    let commit = zombie.commit_request(&[(&topic, 0, 1)]);
    assert_eq!(
        codes(&group.send(8, &commit).await.unwrap()),
        [ILLEGAL_GENERATION]
    );
    assert_eq!(
        codes(&group.send(9, &commit).await.unwrap()),
        [GROUP_ID_NOT_FOUND]
    );
    assert!(world.group_ids().await.is_empty());
    assert_eq!(group.state().await, "Dead");

    assert_eq!(group.commit(&topic, 0, 2).await, NONE);
    assert_eq!(world.group_ids().await, [group.id()]);
    let described = group.describe().await;
    assert_eq!(described.group_state.as_str(), "Empty");
    assert_eq!(described.protocol_type.as_str(), "");
    assert_eq!(group.committed_all().await, [(topic.clone(), 0, 2)]);
}

#[tokio::test]
async fn c29_the_empty_group_id_holds_offsets_and_nothing_else() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group_named("");
    assert_eq!(group.commit(&topic, 0, 5).await, NONE);
    assert_eq!(group.committed(&topic, 0).await, 5);
    assert_eq!(group.state().await, "Empty");

    let member = group.member("a").await;
    assert_eq!(member.join().await.error(), INVALID_GROUP_ID);
    let sync = SyncGroupRequest::default()
        .with_protocol_type(Some(s("consumer")))
        .with_protocol_name(Some(s("range")));
    assert_eq!(
        group.send(5, &sync).await.unwrap().error(),
        INVALID_GROUP_ID
    );
    let heartbeat = group.send(4, &HeartbeatRequest::default()).await.unwrap();
    assert_eq!(code(heartbeat.error_code), INVALID_GROUP_ID);
    let leave = group.send(5, &LeaveGroupRequest::default()).await.unwrap();
    assert_eq!(leave.error(), INVALID_GROUP_ID);

    assert_eq!(group.delete().await, NONE);
    assert_eq!(group.committed(&topic, 0).await, -1);
    let describe = DescribeGroupsRequest::default().with_groups(vec![GroupId(s(""))]);
    let described = &group.send(5, &describe).await.unwrap().groups[0];
    assert_eq!(
        (described.error_code, described.group_state.as_str()),
        (0, "Dead")
    );
    let delete = DeleteGroupsRequest::default().with_groups_names(vec![GroupId(s(""))]);
    let deleted = &group.send(2, &delete).await.unwrap().results[0];
    assert_eq!(code(deleted.error_code), GROUP_ID_NOT_FOUND);
}

#[tokio::test]
async fn c30_an_offset_reset_of_an_active_group_is_refused_visibly() {
    let world = world!();
    let topic = world.topic(3).await;
    let group = world.group();
    let a = group.member("a").await;
    a.settle().await;
    assert_eq!(a.commit(&topic, 0, 100).await, NONE);
    let reset = [(&*topic, 0, 0), (&*topic, 1, 0), (&*topic, 2, 0)];
    assert_eq!(group.commit_all(&reset).await, [UNKNOWN_MEMBER_ID; 3]);
    assert_eq!(group.committed_all().await, [(topic.clone(), 0, 100)]);
    assert_eq!(group.state().await, "Stable");
    group.leave(&[(&a.id(), None)]).await;
    assert_eq!(group.commit_all(&reset).await, [NONE; 3]);
    assert_eq!(group.committed(&topic, 0).await, 0);
}

#[tokio::test]
async fn c31_one_oversized_metadata_string_refuses_its_partition_only() {
    let world = world!();
    let topic = world.topic(3).await;
    let group = world.group();
    let all = |offset| {
        [
            (&*topic, 0, offset),
            (&*topic, 1, offset),
            (&*topic, 2, offset),
        ]
    };
    assert_eq!(group.commit_all(&all(5)).await, [NONE; 3]);
    let mut commit = group.commit_request(&all(9));
    commit.topics[0].partitions[1].committed_metadata = Some(s(&"x".repeat(4097)));
    commit.topics[0].partitions[2].committed_metadata = Some(s("x"));
    let reply = group.send(9, &commit).await.unwrap();
    let mut outcomes: Vec<_> = reply.topics[0]
        .partitions
        .iter()
        .map(|p| (p.partition_index, code(p.error_code)))
        .collect();
    outcomes.sort();
    assert_eq!(
        outcomes,
        [(0, NONE), (1, OFFSET_METADATA_TOO_LARGE), (2, NONE)]
    );

    let topics = [(&*topic, &[0, 1, 2][..])];
    let stable = fetch_request(9, &[(group.id(), Some(&topics))]).with_require_stable(true);
    let groups = fetched(9, group.send(9, &stable).await.unwrap());
    let offsets: Vec<_> = groups[0]
        .partitions
        .iter()
        .map(|p| (p.1, p.2, p.5))
        .collect();
    assert_eq!(offsets, [(0, 9, NONE), (1, 5, NONE), (2, 9, NONE)]);
}

#[tokio::test]
async fn c32_a_commit_with_nothing_in_it_is_answered_with_nothing() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group();
    let member = group.member("a").await;
    member.settle().await;
    let no_partitions = OffsetCommitRequestTopic::default().with_name(TopicName(s(&topic)));
    for commit in [member.commit_request(&[]), group.commit_request(&[])] {
        let reply = group.send(9, &commit).await.unwrap();
        assert!(reply.topics.is_empty());
        let reply = group
            .send(9, &commit.with_topics(vec![no_partitions.clone()]))
            .await
            .unwrap();
        assert!(codes(&reply).is_empty());
    }
    assert!(group.committed_all().await.is_empty());
    assert_eq!(member.heartbeat().await, NONE);
    // Nor does it create a group.
    let other = world.group();
    assert!(other.commit_all(&[]).await.is_empty());
    assert_eq!(world.group_ids().await, [group.id()]);
}

#[tokio::test]
async fn c33_commits_for_what_does_not_exist_are_refused_alone() {
    let world = world!();
    let topic = world.topic(3).await;
    let commits = [(&*topic, 0, 1), (&*topic, 7, 1), ("no-such-topic", 0, 1)];
    let outcomes = [NONE, UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_OR_PARTITION];
    let assign_mode = world.group();
    let group = world.group();
    let member = group.member("a").await;
    member.settle().await;
    let as_member = member.commit_request(&commits);
    let as_nobody = assign_mode.commit_request(&commits);
    for (group, commit) in [(&group, as_member), (&assign_mode, as_nobody)] {
        let reply = group.send(9, &commit).await.unwrap();
        let mut answered = Vec::new();
        for topic in &reply.topics {
            let each = topic.partitions.iter();
            answered.extend(each.map(|p| {
                (
                    topic.name.to_string(),
                    p.partition_index,
                    code(p.error_code),
                )
            }));
        }
        let mut wanted: Vec<_> = commits
            .iter()
            .zip(outcomes)
            .map(|((topic, partition, _), outcome)| ((*topic).to_owned(), *partition, outcome))
            .collect();
        answered.sort();
        wanted.sort();
        assert_eq!(answered, wanted);
        assert_eq!(group.committed_all().await, [(topic.clone(), 0, 1)]);
    }
}

#[tokio::test]
async fn c34_leader_epochs_come_out_as_they_went_in() {
    let mut world = world!(durable);
    let topic = world.topic(3).await;
    let id = {
        let group = world.group();
        let mut commit = group.commit_request(&[(&topic, 0, 10), (&topic, 1, 20)]);
        commit.topics[0].partitions[0].committed_leader_epoch = 7;
        assert_eq!(codes(&group.send(6, &commit).await.unwrap()), [NONE, NONE]);
        let old = group.commit_request(&[(&topic, 2, 30)]);
        assert_eq!(codes(&group.send(2, &old).await.unwrap()), [NONE]);
        group.id().to_owned()
    };
    for round in 0..2 {
        let group = world.group_named(&id);
        for version in 5..=9 {
            let named = [(&*topic, &[0, 1, 2][..])];
            for topics in [Some(&named[..]), None] {
                let fetched = group.fetch_as(version, topics).await;
                let mut epochs: Vec<_> =
                    fetched.partitions.iter().map(|p| (p.1, p.2, p.3)).collect();
                epochs.sort_unstable();
                assert_eq!(
                    epochs,
                    [(0, 10, 7), (1, 20, -1), (2, 30, -1)],
                    "{version} {round}"
                );
            }
        }
        drop(group);
        if round == 0 {
            world.restart().await;
        }
    }
}

#[tokio::test]
async fn c35_no_committed_offset_has_one_shape() {
    let world = world!();
    let topic = world.topic(2).await;
    let group = world.group();
    assert_eq!(group.commit(&topic, 0, 1).await, NONE);
    let none = |topic: &str| (topic.to_owned(), 1, -1, -1, Some(String::new()), NONE);
    let topics = [(&*topic, &[1][..]), ("no-such-topic", &[1])];
    for group in [&group, &world.group()] {
        for version in 1..=9 {
            let fetched = group.fetch_as(version, Some(&topics)).await;
            assert_eq!(fetched.error, NONE);
            assert_eq!(fetched.partitions, [none(&topic), none("no-such-topic")]);
        }
    }
}

#[tokio::test]
async fn c36_all_offsets_of_a_group_are_those_it_has() {
    let world = world!();
    let topic = world.topic(5).await;
    let known = world.group();
    let commits = [(&*topic, 0, 1), (&*topic, 2, 2), (&*topic, 4, 3)];
    assert_eq!(known.commit_all(&commits).await, [NONE; 3]);
    let unknown = world.group();
    for version in 2..=9 {
        let mut all: Vec<_> = known
            .fetch_as(version, None)
            .await
            .partitions
            .into_iter()
            .map(|p| (p.1, p.2))
            .collect();
        all.sort_unstable();
        assert_eq!(all, [(0, 1), (2, 2), (4, 3)]);
        let nothing = unknown.fetch_as(version, None).await;
        assert_eq!((nothing.error, nothing.partitions.len()), (NONE, 0));
    }
}

#[tokio::test]
async fn c36_each_group_of_a_request_has_its_own_answer() {
    let world = world!();
    let topic = world.topic(1).await;
    let known = world.group();
    assert_eq!(known.commit(&topic, 0, 5).await, NONE);
    let unknown = world.group();
    let topics = [(&*topic, &[0][..])];
    let asked = [known.id(), unknown.id(), known.id()];
    for version in 8..=9 {
        let request = fetch_request(version, &asked.map(|id| (id, Some(&topics[..]))));
        let reply = known.send(version, &request).await.unwrap();
        let ids: Vec<_> = reply
            .groups
            .iter()
            .map(|group| group.group_id.to_string())
            .collect();
        assert_eq!(ids, asked);
        let groups = fetched(version, reply);
        let outcomes: Vec<(ErrorCode, i64)> = groups
            .iter()
            .map(|group| (group.error, group.partitions[0].2))
            .collect();
        assert_eq!(outcomes, [(NONE, 5), (NONE, -1), (NONE, 5)]);
    }
    // A member id that a classic group does not check harms nobody either.
    let mut request = fetch_request(9, &asked.map(|id| (id, Some(&topics[..]))));
    request.groups[1].member_id = Some(s("nobody"));
    request.groups[1].member_epoch = 3;
    let groups = fetched(9, known.send(9, &request).await.unwrap());
    assert_eq!((groups[0].error, groups[2].error), (NONE, NONE));
    assert_eq!(groups[2].partitions[0].2, 5);
}

#[tokio::test]
async fn c38_a_new_owner_reads_what_the_old_owner_committed() {
    let world = world!();
    let topic = world.topic(3).await;
    let group = world.group();
    let mut members = group.stable(["a", "b", "c"]).await;
    let mut offset = 0;
    for round in 0..10 {
        // Each owns the partition of its index, and commits synchronously after each record.
        for _ in 0..10 {
            offset += 1;
            for (partition, member) in (0..).zip(&members) {
                assert_eq!(member.commit(&topic, partition, offset).await, NONE);
            }
        }
        // One stops, one starts; every partition gets another owner, which fetches right after its SyncGroup.
        let gone = members[0].id();
        assert_eq!(group.leave(&[(&gone, None)]).await.error(), NONE);
        let started = group.member(&format!("started-{round}")).await;
        let [_, b, c] = members;
        let starts = started.joining();
        group.until_members(3).await;
        let (b_join, c_join) = tokio::join!(b.join(), c.join());
        assert_eq!((b_join.error(), c_join.error()), (NONE, NONE));
        assert_eq!(starts.reply().await.error(), NONE);
        group.sync(&[&b, &c, &started]).await;
        members = [b, c, started];
        for (partition, member) in (0..).zip(&members) {
            let topics = [(&*topic, &[partition][..])];
            let request =
                fetch_request(9, &[(group.id(), Some(&topics))]).with_require_stable(true);
            let groups = fetched(9, member.send(9, &request).await.unwrap());
            assert_eq!(groups[0].partitions[0].2, offset);
        }
    }
}
