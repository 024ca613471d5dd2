//! Who commits and who fetches, conflicts, gaps, and the audit trail.

use super::*;
use crate::group::JournalConfig;

fn commit(client: &str, topic: &str, offsets: &[(i32, i64)]) -> OffsetCommit {
    let partition = |(index, offset): &(i32, i64)| CommitPartition {
        index: *index,
        offset: *offset,
        leader_epoch: -1,
        metadata: "".into(),
    };
    OffsetCommit {
        group_id: "g".into(),
        client: Client {
            id: client.into(),
            host: "/h".into(),
        },
        member_id: "".into(),
        generation_or_epoch: -1,
        group_instance_id: None,
        retention_time_ms: None,
        consumer_errors: true,
        topics: vec![CommitTopic {
            topic: TopicRef::Name(topic.into()),
            partitions: offsets.iter().map(partition).collect(),
        }],
    }
}

fn commits(world: &mut World, client: &str, offsets: &[(i32, i64)]) {
    world.ask(Request::OffsetCommit(commit(client, "t", offsets)));
}

fn fetch(world: &mut World, client: &str) {
    world.ask(Request::OffsetFetch(OffsetFetch {
        group_id: "g".into(),
        client: Client {
            id: client.into(),
            host: "/h".into(),
        },
        member_id: None,
        member_epoch: -1,
        topics: None,
        by_topic_id: false,
        require_stable: false,
    }));
}

#[test]
fn a_group_that_only_commits_is_simple_and_tells_who_does() {
    let mut world = world();
    commits(&mut world, "x", &[(0, 5), (1, 6)]);
    world.advance(10);
    fetch(&mut world, "y");
    let inspected = inspect(&mut world);
    assert_eq!(inspected.summary.kind, "simple");
    assert_eq!(inspected.gaps, [(TopicName::from("t"), 2)]);
    for commit in &inspected.commits {
        let by = commit.committed_by.as_ref().expect("somebody committed");
        assert_eq!((&*by.client_id, &*by.client_host), ("x", "/h"));
        assert_eq!((&*by.principal, &by.member_id), ("User:ANONYMOUS", &None));
        let (by, at) = commit.fetched_by.as_ref().expect("somebody fetched");
        assert_eq!((&*by.client_id, *at), ("y", world.now));
    }
}

#[test]
fn switched_off_nobody_takes_down_who_commits() {
    let journal = JournalConfig {
        enable: false,
        ..JournalConfig::default()
    };
    let config = GroupConfig {
        journal,
        ..config()
    };
    let mut world = World::new(config, &[("t", 3)]);
    commits(&mut world, "x", &[(0, 5)]);
    commits(&mut world, "y", &[(0, 4)]);
    fetch(&mut world, "y");
    let inspected = inspect(&mut world);
    let [commit] = &inspected.commits[..] else {
        panic!("{:?}", inspected.commits)
    };
    assert_eq!(commit.offset, 4);
    assert_eq!((&commit.committed_by, &commit.fetched_by), (&None, &None));
    assert_eq!((inspected.audit.len(), inspected.conflicts.len()), (0, 0));
    assert_eq!(world.live.journal.bytes(), 0);
}

#[test]
fn a_members_commit_names_the_member_and_its_partitions_their_owner() {
    let mut world = world();
    let (a, b) = two(&mut world);
    let request = OffsetCommit {
        member_id: b.clone(),
        generation_or_epoch: 2,
        ..commit("c", "t", &[(2, 9)])
    };
    world.ask(Request::OffsetCommit(request));
    let inspected = inspect(&mut world);
    let commit = &inspected.commits[0];
    let by = commit
        .committed_by
        .as_ref()
        .and_then(|by| by.member_id.clone());
    assert_eq!(
        (by, commit.owner.clone()),
        (Some(b.clone()), Some(b.clone()))
    );
    assert_eq!(inspected.gaps, []);
    let owned: Vec<_> = inspected
        .members
        .iter()
        .map(|m| (m.member.member_id.clone(), m.owned[0].1.len()))
        .collect();
    let mut expected = vec![(a, 2), (b, 1)];
    expected.sort();
    assert_eq!(owned, expected);
}

#[test]
fn two_assign_mode_clients_on_one_partition_are_a_conflict_for_a_while() {
    let mut world = world();
    commits(&mut world, "x", &[(0, 5), (1, 5)]);
    world.advance(1_000);
    commits(&mut world, "y", &[(0, 6)]);
    let inspected = inspect(&mut world);
    assert!(inspected.summary.has_conflict);
    let [(topic, 0, rivals)] = &inspected.conflicts[..] else {
        panic!("{:?}", inspected.conflicts)
    };
    let names: Vec<_> = rivals.iter().map(|rival| &*rival.client_id).collect();
    assert_eq!((&**topic, names), ("t", vec!["y", "x"]));
    world.advance(300_000);
    assert_eq!(inspect(&mut world).conflicts, []);
}

#[test]
fn a_client_that_takes_over_long_after_another_is_no_conflict() {
    let mut world = world();
    commits(&mut world, "x", &[(0, 5)]);
    world.advance(300_001);
    commits(&mut world, "y", &[(0, 6)]);
    assert_eq!(inspect(&mut world).conflicts, []);
}

#[test]
fn what_goes_back_and_what_is_deleted_is_audited() {
    let mut world = world();
    commits(&mut world, "x", &[(0, 5)]);
    commits(&mut world, "x", &[(0, 5)]);
    commits(&mut world, "x", &[(0, 3)]);
    world.ask(Request::OffsetDelete(OffsetDelete {
        group_id: "g".into(),
        topics: vec![("t".into(), vec![0])],
    }));
    let audit = inspect(&mut world).audit;
    let told: Vec<_> = audit
        .iter()
        .map(|e| (e.from, e.to, &*e.who, e.how))
        .collect();
    assert_eq!(
        told,
        [
            (Some(3), None, "a Kafka client", "delete"),
            (Some(5), Some(3), "client x at /h", "commit went back"),
        ]
    );
}

#[test]
fn partitions_that_members_do_not_own_are_gaps() {
    let mut world = world();
    let a = world.join(classic_join("", &["t", "u"])).member_id;
    hand_out(&mut world, 1, &a, &[(&a, "t", &[0, 2])]);
    let gaps = inspect(&mut world).gaps;
    assert_eq!(gaps, [(TopicName::from("t"), 1), (TopicName::from("u"), 0)]);
}
