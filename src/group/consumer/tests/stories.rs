//! Whole stories of consumer groups, one behaviour each.

use super::world::*;
use crate::group::request::*;
use crate::group::subscription::Assignment;
use crate::group::types::*;
use crate::group::*;

/// A joins topic `t` (4 partitions, id 1) alone; everything is at epoch 2.
fn one_member() -> World {
    let mut world = World::new(config(), &[("t", 4), ("u", 1)]);
    let reply = world.beat(joining("a", &["t"]));
    assert_eq!((reply.error, reply.member_epoch), (ErrorCode::None, 2));
    assert_eq!(count(&reply.assignment), Some(4));
    world
}

const T: TopicId = TopicId([1; 16]);
const U: TopicId = TopicId([2; 16]);

#[test]
fn a_partition_changes_hands_only_after_its_owner_let_go() {
    let mut world = one_member();
    let b = world.beat(joining("b", &["t"]));
    assert_eq!(
        (b.member_epoch, count(&b.assignment)),
        (2, Some(0)),
        "the interval has not passed"
    );
    world.advance(1_100);
    let a = world.beat(beating("a", 2));
    assert_eq!((a.member_epoch, count(&a.assignment)), (2, Some(2)));
    let b = world.beat(beating("b", 2));
    assert_eq!((b.member_epoch, b.assignment), (3, None));
    // Still the same answer while A has not let go.
    assert_eq!(world.beat(beating("a", 2)).assignment, None);
    assert_eq!(world.beat(beating("b", 3)).assignment, None);
    let kept = ConsumerHeartbeat {
        topic_partitions: a.assignment,
        ..beating("a", 2)
    };
    let a = world.beat(kept);
    assert_eq!((a.member_epoch, a.assignment), (3, None));
    let b = world.beat(beating("b", 3));
    assert_eq!((b.member_epoch, count(&b.assignment)), (3, Some(2)));
    assert_eq!(world.describe().state, "Stable");
}

#[test]
fn the_target_is_computed_by_a_timer_when_nobody_asks() {
    let mut world = one_member();
    world.beat(joining("b", &["t"]));
    assert_eq!(world.describe().assignment_epoch, 2);
    world.advance(999);
    assert_eq!(world.describe().assignment_epoch, 2);
    world.advance(1);
    let described = world.describe();
    assert_eq!(
        (described.state, described.assignment_epoch),
        ("Reconciling", 3)
    );
}

#[test]
fn members_that_leave_together_are_one_change() {
    let mut world = one_member();
    world.beat(joining("b", &["t"]));
    world.beat(joining("c", &["t"]));
    world.advance(5_000);
    let before = world.describe().assignment_epoch;
    for member in ["b", "c"] {
        world.beat(beating(member, -1));
        world.advance(20);
    }
    assert_eq!(
        world.describe().assignment_epoch,
        before,
        "waits a moment for more"
    );
    world.advance(250);
    let described = world.describe();
    assert_eq!(described.assignment_epoch, described.group_epoch);
}

#[test]
fn a_lost_answer_may_be_asked_for_again() {
    let mut world = one_member();
    world.advance(2_000);
    let b = world.beat(joining("b", &["t"]));
    assert_eq!(b.member_epoch, 3);
    let retry = ConsumerHeartbeat {
        topic_partitions: Some(Vec::new()),
        ..beating("b", 0)
    };
    let again = world.beat(ConsumerHeartbeat {
        rebalance_timeout_ms: 10_000,
        subscribed_topic_names: Some(vec!["t".into()]),
        ..retry
    });
    assert_eq!((again.member_epoch, count(&again.assignment)), (3, Some(0)));

    let a = world.beat(beating("a", 2));
    let kept = |epoch| ConsumerHeartbeat {
        topic_partitions: a.assignment.clone(),
        ..beating("a", epoch)
    };
    assert_eq!(world.beat(kept(2)).member_epoch, 3);
    // The answer got lost: A comes with the epoch before, and owns nothing beyond what it was assigned.
    assert_eq!(world.beat(kept(2)).member_epoch, 3);
    assert_eq!(
        world.refusal(beating("a", 2)),
        ErrorCode::FencedMemberEpoch,
        "it must say what it owns"
    );
    let too_much = ConsumerHeartbeat {
        topic_partitions: Some(of(T, &[0, 1, 2, 3])),
        ..beating("a", 2)
    };
    assert_eq!(world.refusal(too_much), ErrorCode::FencedMemberEpoch);
    assert_eq!(world.refusal(kept(1)), ErrorCode::FencedMemberEpoch);
    assert_eq!(world.refusal(kept(4)), ErrorCode::FencedMemberEpoch);
}

#[test]
fn a_first_heartbeat_that_is_refused_makes_no_group() {
    let mut world = World::new(config(), &[("t", 1)]);
    let good = joining("a", &["t"]);
    let broken: Vec<(ConsumerHeartbeat, ErrorCode)> = vec![
        (
            ConsumerHeartbeat {
                topic_partitions: None,
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                topic_partitions: Some(of(T, &[0])),
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                rebalance_timeout_ms: -1,
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                subscribed_topic_names: None,
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                instance_id: Some(" ".into()),
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                rack_id: Some("".into()),
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                member_id: "".into(),
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                group_id: "".into(),
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                member_epoch: -3,
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                member_epoch: -2,
                ..good.clone()
            },
            ErrorCode::InvalidRequest,
        ),
        (
            ConsumerHeartbeat {
                server_assignor: Some("none".into()),
                ..good.clone()
            },
            ErrorCode::UnsupportedAssignor,
        ),
        (
            ConsumerHeartbeat {
                subscribed_topic_regex: Some("(".into()),
                ..good.clone()
            },
            ErrorCode::InvalidRegularExpression,
        ),
        (
            ConsumerHeartbeat {
                member_epoch: 3,
                ..good.clone()
            },
            ErrorCode::GroupIdNotFound,
        ),
        (
            ConsumerHeartbeat {
                member_epoch: -1,
                ..good.clone()
            },
            ErrorCode::GroupIdNotFound,
        ),
    ];
    for (request, error) in broken {
        assert_eq!(world.refusal(request.clone()), error, "{request:?}");
    }
    assert!(world.records.is_empty());
    assert_eq!(world.beat(good).member_epoch, 2, "the correct one joins");
}

#[test]
fn a_silent_member_is_gone_after_its_session() {
    let mut world = one_member();
    world.advance(44_999);
    assert_eq!(world.beat(beating("a", 2)).error, ErrorCode::None);
    world.advance(45_000);
    let described = world.describe();
    assert_eq!(
        (
            described.state,
            described.group_epoch,
            described.assignment_epoch
        ),
        ("Empty", 3, 3)
    );
    assert_eq!(world.refusal(beating("a", 2)), ErrorCode::UnknownMemberId);
    assert_eq!(
        world.beat(joining("a", &["t"])).member_epoch,
        4,
        "epochs go on, and nobody waits"
    );
}

#[test]
fn whoever_does_not_revoke_in_time_is_fenced() {
    let mut world = one_member();
    world.advance(2_000);
    world.beat(joining("b", &["t"]));
    world.beat(beating("a", 2));
    world.advance(9_999);
    world.beat(beating("a", 2));
    world.beat(beating("b", 3));
    world.advance(1);
    assert_eq!(world.refusal(beating("a", 2)), ErrorCode::UnknownMemberId);
    world.advance(250);
    assert_eq!(count(&world.beat(beating("b", 3)).assignment), Some(4));
}

#[test]
fn a_static_member_comes_back_to_what_it_had() {
    let mut world = World::new(config(), &[("t", 4)]);
    let with = |request: ConsumerHeartbeat| ConsumerHeartbeat {
        instance_id: Some("i".into()),
        ..request
    };
    world.beat(with(joining("a", &["t"])));
    assert_eq!(
        world.refusal(with(joining("b", &["t"]))),
        ErrorCode::UnreleasedInstanceId
    );
    let again = world.beat(with(joining("a", &["t"])));
    assert_eq!(
        (again.error, count(&again.assignment)),
        (ErrorCode::None, Some(4)),
        "its own answer got lost"
    );
    assert_eq!(world.beat(with(beating("a", -2))).member_epoch, -2);
    assert_eq!(world.describe().state, "Reconciling");
    let b = world.beat(with(joining("b", &["t"])));
    assert_eq!((b.member_epoch, count(&b.assignment)), (2, Some(4)));
    let described = world.describe();
    assert_eq!(
        (
            described.state,
            described.group_epoch,
            described.members.len()
        ),
        ("Stable", 2, 1)
    );
    assert_eq!(
        world.refusal(with(beating("a", 2))),
        ErrorCode::FencedInstanceId
    );
    assert_eq!(world.refusal(beating("a", 2)), ErrorCode::UnknownMemberId);
    world.beat(with(beating("b", -2)));
    world.advance(45_001);
    assert_eq!(
        world.describe().state,
        "Empty",
        "leaving for a while does not extend the session"
    );
}

#[test]
fn a_static_member_that_left_for_good_may_yet_come_back_to_what_it_had() {
    let mut world = World::new(config(), &[("t", 4)]);
    let with = |instance: &str, request: ConsumerHeartbeat| ConsumerHeartbeat {
        instance_id: Some(instance.into()),
        ..request
    };
    world.beat(with("i", joining("a", &["t"])));
    world.advance(2_000);
    world.beat(with("j", joining("b", &["t"])));
    let a = world.beat(with("i", beating("a", 2)));
    let kept = ConsumerHeartbeat {
        topic_partitions: a.assignment.clone(),
        ..beating("a", 2)
    };
    world.beat(with("i", kept));
    let b = world.beat(with("j", beating("b", 3)));
    world.advance(10_000);
    world.beat(with("i", beating("a", -1)));
    world.advance(4_000);
    assert_eq!(
        world.beat(with("j", beating("b", 3))).assignment,
        None,
        "B goes on undisturbed"
    );
    let again = world.beat(with("i", joining("a2", &["t"])));
    assert_eq!(again.assignment, a.assignment);
    let described = world.describe();
    let of_b = described
        .members
        .iter()
        .find(|m| &*m.member_id == "b")
        .unwrap();
    assert_eq!(
        of_b.target_assignment[0].partitions,
        b.assignment.unwrap()[0].1
    );

    world.beat(with("i", beating("a2", -1)));
    world.advance(5_000);
    let described = world.describe();
    assert_eq!(
        described.assignment_epoch, described.group_epoch,
        "it did not come back"
    );
}

#[test]
fn a_member_cannot_take_another_instance_id() {
    let mut world = one_member();
    let other = ConsumerHeartbeat {
        instance_id: Some("i".into()),
        ..joining("a", &["t"])
    };
    assert_eq!(world.refusal(other), ErrorCode::InvalidRequest);
}

#[test]
fn topics_that_change_are_followed_without_a_heartbeat() {
    let mut world = World::new(config(), &[]);
    let a = world.beat(joining("a", &["late"]));
    assert_eq!((a.member_epoch, count(&a.assignment)), (2, Some(0)));
    world.advance(5_000);
    world.beat(beating("a", 2));
    let id = world.create("late", 1);
    world.advance(250);
    assert_eq!(world.describe().assignment_epoch, 3);
    let a = world.beat(beating("a", 2));
    assert_eq!((a.member_epoch, a.assignment), (3, Some(of(id, &[0]))));
    world.advance(5_000);
    world.grow("late", 3);
    let a = world.beat(beating("a", 3));
    assert_eq!(
        (a.member_epoch, a.assignment),
        (4, Some(of(id, &[0, 1, 2]))),
        "a heartbeat asks at once"
    );
    world.advance(5_000);
    world.delete("late");
    let a = world.beat(beating("a", 4));
    assert_eq!((a.member_epoch, count(&a.assignment)), (4, Some(0)));
    let none = ConsumerHeartbeat {
        topic_partitions: Some(Vec::new()),
        ..beating("a", 4)
    };
    assert_eq!(world.beat(none).member_epoch, 5);
}

#[test]
fn a_topic_made_again_is_another_topic() {
    let mut world = one_member();
    world.advance(2_000);
    world.delete("t");
    let id = world.create("t", 2);
    world.advance(1_100);
    let a = world.beat(beating("a", 2));
    assert_eq!(
        count(&a.assignment),
        Some(0),
        "the old one's partitions are given back first"
    );
    let none = ConsumerHeartbeat {
        topic_partitions: Some(Vec::new()),
        ..beating("a", 2)
    };
    assert_eq!(world.beat(none).assignment, Some(of(id, &[0, 1])));
}

#[test]
fn patterns_follow_topics_and_bursts_are_one_change() {
    let mut world = World::new(config(), &[("a1", 1), ("a2", 1), ("b1", 1)]);
    let pattern = |text: &str, request: ConsumerHeartbeat| ConsumerHeartbeat {
        subscribed_topic_regex: Some(text.into()),
        subscribed_topic_names: None,
        ..request
    };
    let a = world.beat(pattern("a.*", joining("a", &[])));
    assert_eq!(
        (a.member_epoch, count(&a.assignment)),
        (1, Some(0)),
        "resolved after the answer"
    );
    world.advance(0);
    let a = world.beat(beating("a", 1));
    assert_eq!((a.member_epoch, count(&a.assignment)), (2, Some(2)));
    world.advance(2_000);
    let before = world.describe().group_epoch;
    for i in 3..100 {
        world.create(&format!("a{i}"), 1);
        world.advance(10);
    }
    world.delete("a1");
    world.advance(1_600);
    let raised = world.describe().group_epoch - before;
    assert!(
        (1..=4).contains(&raised),
        "a hundred changes are few epochs: {raised}"
    );
    let a = world.beat(beating("a", 2));
    assert_eq!(count(&a.assignment), Some(1), "a1 goes first");
    let kept = ConsumerHeartbeat {
        topic_partitions: a.assignment,
        ..beating("a", 2)
    };
    assert_eq!(count(&world.beat(kept).assignment), Some(98));
    // To names, to both, to another pattern.
    world.advance(2_000);
    let epoch = world.describe().members[0].member_epoch;
    let request = ConsumerHeartbeat {
        subscribed_topic_names: Some(vec!["b1".into()]),
        topic_partitions: Some(Vec::new()),
        ..pattern("", beating("a", epoch))
    };
    let request = ConsumerHeartbeat {
        subscribed_topic_names: Some(vec!["b1".into()]),
        ..request
    };
    let a = world.beat(request);
    assert_eq!(count(&a.assignment), Some(1));
    let described = world.describe();
    assert_eq!(&*described.members[0].subscribed_topic_regex, "");
}

#[test]
fn a_pattern_is_resolved_again_after_a_restart() {
    let mut world = World::new(config(), &[("a1", 1)]);
    let request = ConsumerHeartbeat {
        subscribed_topic_regex: Some("a.*".into()),
        ..joining("a", &[])
    };
    world.beat(request);
    world.advance(2_000);
    world.beat(beating("a", 1));
    // A topic made while the coordinator was away.
    world.topics.insert(
        "a2".into(),
        Topic {
            id: TopicId([9; 16]),
            partitions: 1,
        },
    );
    world.restart();
    world.advance(2_000);
    let a = world.beat(beating("a", 2));
    assert_eq!(count(&a.assignment), Some(2));
}

#[test]
fn what_a_member_lets_go_of_for_a_pattern_without_matches_goes_to_others() {
    let mut world = World::new(config(), &[("t", 2)]);
    let with_pattern = |text: &str, request: ConsumerHeartbeat| ConsumerHeartbeat {
        subscribed_topic_regex: Some(text.into()),
        ..request
    };
    let epoch_of = |world: &mut World, member_id: &str| {
        let described = world.describe();
        let members = described.members.iter();
        let mut of_it = members.filter(|member| &*member.member_id == member_id);
        of_it.next().unwrap().member_epoch
    };
    for member_id in ["a", "b"] {
        world.beat(with_pattern("t.*", joining(member_id, &[])));
    }
    world.advance(2_000);
    for member_id in ["a", "b"] {
        let reply = world.beat(beating(member_id, 1));
        assert_eq!(count(&reply.assignment), Some(1));
    }
    let epoch = epoch_of(&mut world, "b");
    world.beat(with_pattern("z.*", beating("b", epoch)));
    let gave_back = ConsumerHeartbeat {
        topic_partitions: Some(Vec::new()),
        ..beating("b", epoch)
    };
    world.beat(gave_back);
    world.advance(2_000);
    let epoch = epoch_of(&mut world, "a");
    assert_eq!(count(&world.beat(beating("a", epoch)).assignment), Some(2));
}

#[test]
fn a_restart_goes_on_in_the_middle_of_a_revocation() {
    let mut world = one_member();
    world.advance(2_000);
    world.beat(joining("b", &["t"]));
    let a = world.beat(beating("a", 2));
    world.restart();
    assert_eq!(world.beat(beating("a", 2)).assignment, None);
    assert_eq!(world.beat(beating("b", 3)).assignment, None);
    let kept = ConsumerHeartbeat {
        topic_partitions: a.assignment,
        ..beating("a", 2)
    };
    assert_eq!(world.beat(kept).member_epoch, 3);
    assert_eq!(count(&world.beat(beating("b", 3)).assignment), Some(2));
    world.restart();
    world.advance(1_000);
    assert_eq!(
        world.describe().group_epoch,
        3,
        "nothing has changed, so nothing rises"
    );
}

#[test]
fn a_commit_is_fenced_by_the_epoch_of_each_partition() {
    let mut world = one_member();
    world.advance(2_000);
    world.beat(joining("b", &["t"]));
    let a = world.beat(beating("a", 2));
    let kept = a.assignment.clone().unwrap()[0].1.clone();
    let revoked = (0..4).find(|p| !kept.contains(p)).unwrap();
    let commit = |epoch: i32, member: &str, partition: i32| {
        Request::OffsetCommit(OffsetCommit {
            group_id: "g".into(),
            client: client(),
            member_id: member.into(),
            generation_or_epoch: epoch,
            group_instance_id: None,
            retention_time_ms: None,
            consumer_errors: true,
            topics: vec![CommitTopic {
                topic: TopicRef::Name("t".into()),
                partitions: vec![CommitPartition {
                    index: partition,
                    offset: 1,
                    leader_epoch: -1,
                    metadata: "".into(),
                }],
            }],
        })
    };
    let outcome = |world: &mut World, request| match world.ask(request) {
        Reply::OffsetCommit(reply) => reply.topics[0].partitions[0].1,
        other => panic!("{other:?}"),
    };
    assert_eq!(
        outcome(&mut world, commit(2, "a", revoked)),
        ErrorCode::None,
        "not yet given back"
    );
    world.beat(ConsumerHeartbeat {
        topic_partitions: a.assignment,
        ..beating("a", 2)
    });
    assert_eq!(
        outcome(&mut world, commit(2, "a", kept[0])),
        ErrorCode::None,
        "kept since epoch 2"
    );
    assert_eq!(
        outcome(&mut world, commit(2, "a", revoked)),
        ErrorCode::StaleMemberEpoch
    );
    assert_eq!(
        outcome(&mut world, commit(4, "a", kept[0])),
        ErrorCode::StaleMemberEpoch
    );
    assert_eq!(
        outcome(&mut world, commit(3, "a", revoked)),
        ErrorCode::None,
        "the epoch is right: no more is asked"
    );
    world.beat(beating("b", 3));
    assert_eq!(
        outcome(&mut world, commit(2, "b", revoked)),
        ErrorCode::StaleMemberEpoch,
        "had since epoch 3"
    );
    assert_eq!(
        outcome(&mut world, commit(-1, "", revoked)),
        ErrorCode::UnknownMemberId
    );
}

#[test]
fn a_classic_group_goes_over_with_its_members() {
    let mut world = World::new(config(), &[("t", 4), ("u", 1)]);
    let a = world.join(classic_join("", &["t"]));
    let assignment = Assignment {
        version: 1,
        partitions: vec![("t".into(), vec![0, 1, 2, 3])],
        user_data: None,
    };
    world.sync(classic_sync(
        &a.member_id,
        1,
        vec![(a.member_id.clone(), assignment.to_bytes())],
    ));
    let b = world.beat(joining("b", &["t"]));
    assert_eq!((b.member_epoch, count(&b.assignment)), (2, Some(0)));
    assert_eq!(
        world.heartbeat(&a.member_id, 1),
        ErrorCode::RebalanceInProgress
    );
    // Eager: it comes with nothing and gets its part at once.
    let again = world.join(classic_join(&a.member_id, &["t"]));
    assert_eq!(
        (again.error, again.generation, &*again.leader),
        (ErrorCode::None, 2, "")
    );
    let synced = world.sync(classic_sync(&a.member_id, 2, Vec::new()));
    let part = Assignment::parse(&synced.assignment).unwrap();
    assert_eq!(part.partitions[0].1.len(), 2);
    assert_eq!(world.heartbeat(&a.member_id, 2), ErrorCode::None);
    assert_eq!(count(&world.beat(beating("b", 2)).assignment), Some(2));
    assert_eq!(world.describe().state, "Stable");

    // And back: the last member of the new protocol goes.
    world.beat(beating("b", -1));
    assert_eq!(world.describe().error, ErrorCode::GroupIdNotFound);
    assert_eq!(
        world.heartbeat(&a.member_id, 2),
        ErrorCode::RebalanceInProgress
    );
    let again = world.join(classic_join(&a.member_id, &["t"]));
    assert_eq!((again.generation, &again.leader), (3, &a.member_id));
}

#[test]
fn a_classic_group_that_cannot_go_over_stays_as_it_is() {
    let mut world = World::new(config(), &[("t", 1)]);
    let mut other = classic_join("", &["t"]);
    other.protocol_type = "connect".into();
    let a = world.join(other);
    assert_eq!(
        world.refusal(joining("b", &["t"])),
        ErrorCode::GroupIdNotFound
    );
    assert_eq!(world.heartbeat(&a.member_id, 1), ErrorCode::None);

    let mut world = World::new(config(), &[("t", 1)]);
    let mut junk = classic_join("", &["t"]);
    junk.protocols[0].metadata = "junk".into();
    let a = world.join(junk);
    assert_eq!(
        world.refusal(joining("b", &["t"])),
        ErrorCode::GroupIdNotFound
    );
    assert_eq!(world.heartbeat(&a.member_id, 1), ErrorCode::None);

    let mut closed = config();
    closed.migration.upgrade = false;
    let mut world = World::new(closed, &[("t", 1)]);
    let a = world.join(classic_join("", &["t"]));
    assert_eq!(
        world.refusal(joining("b", &["t"])),
        ErrorCode::GroupIdNotFound
    );
    assert_eq!(world.heartbeat(&a.member_id, 1), ErrorCode::None);
}

#[test]
fn whoever_has_not_synced_goes_over_with_nothing() {
    let mut world = World::new(config(), &[("t", 2)]);
    let a = world.join(classic_join("", &["t"]));
    let b = world.beat(joining("b", &["t"]));
    assert_eq!(b.error, ErrorCode::None);
    assert_eq!(count(&b.assignment), Some(1));
    assert_eq!(
        world.heartbeat(&a.member_id, 1),
        ErrorCode::RebalanceInProgress
    );
}

#[test]
fn a_classic_member_that_does_not_rejoin_in_time_is_out() {
    let mut world = one_member();
    let b = world.join(classic_join("", &["t"]));
    world.sync(classic_sync(&b.member_id, b.generation, Vec::new()));
    world.advance(1_100);
    assert_eq!(
        world.heartbeat(&b.member_id, 2),
        ErrorCode::RebalanceInProgress
    );
    world.advance(9_000);
    assert_eq!(
        world.heartbeat(&b.member_id, 2),
        ErrorCode::RebalanceInProgress
    );
    world.advance(1_001);
    assert_eq!(world.heartbeat(&b.member_id, 2), ErrorCode::UnknownMemberId);
}

#[test]
fn a_classic_static_member_takes_over_from_a_consumer() {
    let mut world = World::new(config(), &[("t", 2)]);
    let request = ConsumerHeartbeat {
        instance_id: Some("i".into()),
        ..joining("a", &["t"])
    };
    world.beat(request);
    let mut join = classic_join("", &["t"]);
    join.group_instance_id = Some("i".into());
    let b = world.join(join);
    assert_eq!(
        (b.error, b.generation, &*b.leader),
        (ErrorCode::None, 2, "")
    );
    assert_eq!(
        world.describe().error,
        ErrorCode::GroupIdNotFound,
        "it is a classic group now"
    );
    let mut sync = classic_sync(&b.member_id, 2, Vec::new());
    sync.group_instance_id = Some("i".into());
    let synced = world.sync(sync);
    assert_eq!(
        Assignment::parse(&synced.assignment).unwrap().partitions,
        [("t".into(), vec![0, 1])]
    );
    assert_eq!(world.heartbeat(&b.member_id, 2), ErrorCode::None);
}

#[test]
fn settings_of_one_group_stand_over_the_rest_within_bounds() {
    let mut world = World::new(config(), &[("t", 1)]);
    world.live.configure_group(
        &"g".into(),
        GroupOverrides {
            session_timeout_ms: Some(1),
            heartbeat_interval_ms: Some(7_000),
            assignment_interval_ms: Some(0),
            ..GroupOverrides::default()
        },
    );
    assert_eq!(
        world.beat(joining("a", &["t"])).heartbeat_interval_ms,
        7_000
    );
    assert_eq!(
        world.beat(joining("b", &["t"])).member_epoch,
        3,
        "no interval, no wait"
    );
    world.advance(44_999);
    assert_eq!(
        world.beat(beating("a", 2)).error,
        ErrorCode::None,
        "45 s is the least"
    );
}

#[test]
fn after_a_change_members_come_sooner_for_a_while() {
    let mut hints = config();
    hints.heartbeat_hint = true;
    let mut world = World::new(hints, &[("t", 4)]);
    assert_eq!(world.beat(joining("a", &["t"])).heartbeat_interval_ms, 100);
    let b = world.beat(joining("b", &["t"]));
    assert_eq!(
        b.heartbeat_interval_ms, 1_000,
        "the target will be there then"
    );
    world.advance(1_000);
    let b = world.beat(beating("b", 2));
    assert_eq!(
        (b.member_epoch, b.heartbeat_interval_ms),
        (3, 500),
        "it waits for A"
    );
    let a = world.beat(beating("a", 2));
    world.beat(ConsumerHeartbeat {
        topic_partitions: a.assignment,
        ..beating("a", 2)
    });
    // What A let go rests a moment, for whoever comes when it is told.
    world.advance(100);
    let b = world.beat(beating("b", 3));
    assert_eq!(count(&b.assignment), Some(2), "it came sooner than told");
    // Quarter by quarter back to the usual, in twenty seconds and some twenty heartbeats.
    let (mut heartbeats, since) = (0, world.now);
    loop {
        let next_ms = world.beat(beating("b", 3)).heartbeat_interval_ms;
        if next_ms == 5_000 {
            break;
        }
        heartbeats += 1;
        world.advance(next_ms.into());
        world.beat(beating("a", 3));
    }
    assert!(
        (20_000..26_000).contains(&world.now.since(since)) && heartbeats < 25,
        "{heartbeats}"
    );
}

#[test]
fn what_was_let_go_rests_a_moment_before_a_member_that_comes_when_told_has_it() {
    let mut hints = config();
    hints.heartbeat_hint = true;
    let mut world = World::new(hints, &[("t", 4)]);
    world.beat(joining("a", &["t"]));
    world.advance(2_000);
    let b = world.beat(joining("b", &["t"]));
    assert_eq!(
        (b.member_epoch, b.heartbeat_interval_ms),
        (3, 500),
        "it waits for A"
    );
    let a = world.beat(beating("a", 2));
    world.advance(450);
    world.beat(ConsumerHeartbeat {
        topic_partitions: a.assignment,
        ..beating("a", 2)
    });
    world.advance(50);
    let b = world.beat(beating("b", 3));
    assert_eq!((b.assignment, b.heartbeat_interval_ms), (None, 150));
    world.advance(150);
    assert_eq!(count(&world.beat(beating("b", 3)).assignment), Some(2));
}

#[test]
fn an_assignor_that_fails_leaves_the_last_target() {
    #[derive(Debug)]
    struct Broken;
    impl Assignor for Broken {
        fn name(&self) -> &str {
            "broken"
        }
        fn assign(&self, input: &assign::Input<'_>) -> Result<Vec<IdPartitions>, String> {
            // The same partition for everybody.
            Ok(input.members.iter().map(|_| of(T, &[0])).collect())
        }
    }
    let mut own = config();
    own.assignors = vec![Arc::new(Broken)];
    let mut world = World::new(own, &[("t", 2)]);
    assert_eq!(count(&world.beat(joining("a", &["t"])).assignment), Some(1));
    world.advance(2_000);
    let b = world.beat(joining("b", &["t"]));
    assert_eq!((b.error, count(&b.assignment)), (ErrorCode::None, Some(0)));
    assert_eq!(world.live.stats().assignor_failures, 1);
    world.advance(1_000);
    assert_eq!(
        world.live.stats().assignor_failures,
        2,
        "it is asked again after the interval"
    );
}

#[test]
fn without_an_assignor_in_the_settings_there_is_the_uniform_one() {
    let mut none = config();
    none.assignors.clear();
    let mut world = World::new(none, &[("t", 4)]);
    assert_eq!(count(&world.beat(joining("a", &["t"])).assignment), Some(4));
    assert_eq!(&*world.describe().assignor_name, "uniform");
}

#[test]
fn a_member_that_leaves_takes_all_its_records_along() {
    let mut world = one_member();
    world.beat(joining("b", &["t"]));
    world.beat(beating("a", -1));
    let of_a = world.live.snapshot().filter(|record| match record {
        Record::ConsumerGroupMemberMetadata { member_id, .. }
        | Record::ConsumerGroupTargetAssignmentMember { member_id, .. }
        | Record::ConsumerGroupCurrentMemberAssignment { member_id, .. } => &**member_id == "a",
        _ => false,
    });
    assert_eq!(of_a.count(), 0);
}

#[test]
fn an_emptied_group_can_be_deleted_and_joined_classically() {
    let mut world = one_member();
    let delete = Request::Delete {
        group_id: "g".into(),
    };
    let error = |world: &mut World| match world.ask(delete.clone()) {
        Reply::Delete { error, .. } => error,
        other => panic!("{other:?}"),
    };
    assert_eq!(error(&mut world), ErrorCode::NonEmptyGroup);
    world.beat(beating("a", -1));
    let join = world.join(classic_join("ghost", &["t"]));
    assert_eq!(join.error, ErrorCode::UnknownMemberId);
    assert_eq!(world.describe().state, "Empty");
    let join = world.join(classic_join("", &["t"]));
    assert_eq!((join.error, join.generation), (ErrorCode::None, 1));
    let mut world = one_member();
    world.beat(beating("a", -1));
    assert_eq!(error(&mut world), ErrorCode::None);
    assert_eq!(world.live.snapshot().count(), 0, "nothing is left of it");
    let _ = U;
}
