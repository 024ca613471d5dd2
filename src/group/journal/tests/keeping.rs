//! How the journal is kept: bounds, storms, switching it off, and its way to the next coordinator.

use super::*;
use crate::group::operator::AuditEntry;
use crate::group::{Actions, Coordinator, JournalConfig, Noted};

fn with(journal: JournalConfig) -> World {
    let config = GroupConfig {
        journal,
        ..config()
    };
    World::new(config, &[("t", 3)])
}

/// The leader rejoins over and over.
fn rounds(world: &mut World, count: usize) -> MemberId {
    let a = one(world);
    for _ in 0..count {
        let generation = world.join(classic_join(&a, &["t"])).generation;
        hand_out(world, generation, &a, &[(&a, "t", &[0, 1, 2])]);
    }
    a
}

/// Drops the coordinator and loads another, as a desk does when the log took nothing.
fn reload(world: &mut World) {
    let journal = world.live.take_journal();
    let topics = std::sync::Arc::new(world.topics.clone());
    let mut again = Coordinator::new(world.live.config.clone(), topics, 7);
    for record in world.live.snapshot() {
        again.apply(&record);
    }
    again.adopt_journal(world.now, journal);
    again.loaded(world.now, &mut Actions::default());
    world.live = again;
}

#[test]
fn a_group_keeps_its_newest_rebalances_and_counts_all() {
    let mut world = with(JournalConfig {
        rebalances_max: 3,
        ..JournalConfig::default()
    });
    rounds(&mut world, 9);
    let inspected = inspect(&mut world);
    let numbers: Vec<_> = inspected
        .rebalances
        .iter()
        .map(|entry| entry.number)
        .collect();
    assert_eq!(numbers, [10, 9, 8]);
    assert_eq!(inspected.summary.rebalance_count, 10);
}

#[test]
fn bytes_are_bounded_and_the_oldest_go_first() {
    let bytes_max = 20_000;
    let mut world = with(JournalConfig {
        bytes_max,
        rebalances_max: 1_000,
        audit_max: 1_000,
        ..JournalConfig::default()
    });
    rounds(&mut world, 200);
    for offset in (0..200).rev() {
        let entry = AuditEntry {
            at: world.now,
            topic: "t".into(),
            partition: 0,
            from: Some(offset + 1),
            to: Some(offset),
            who: "x".into(),
            how: "reset",
        };
        world.live.audit(&"g".into(), entry);
    }
    assert!(world.live.journal.bytes() <= bytes_max);
    let inspected = inspect(&mut world);
    let kept = inspected.rebalances.len() + inspected.audit.len();
    assert!((50..200).contains(&kept), "{kept}");
    assert_eq!(inspected.audit[0].to, Some(0));
}

#[test]
fn whatever_is_forgotten_leaves_no_weight_behind() {
    let mut world = world();
    let a = rounds(&mut world, 5);
    leave(&mut world, &a, None);
    assert!(world.live.journal.bytes() > 0);
    let group_id = "g".into();
    world.ask(Request::Delete { group_id });
    assert_eq!(world.live.journal.bytes(), 0);
}

#[test]
fn a_group_that_rebalances_over_and_over_is_stormy_for_a_while() {
    let mut world = world();
    rounds(&mut world, 8);
    assert!(!inspect(&mut world).summary.is_stormy);
    rounds_more(&mut world);
    let inspected = inspect(&mut world);
    assert!(inspected.summary.is_stormy);
    let told = inspected.storm.expect("a sentence");
    assert!(
        told.starts_with("10 rebalances within 10 min, 9 of them by leader rejoined."),
        "{told}"
    );
    let later = world.now.plus(600_001);
    assert!(!world.live.summaries(later)[0].is_stormy);
}

fn rounds_more(world: &mut World) {
    let a = inspect(world).members[0].member.member_id.clone();
    let generation = world.join(classic_join(&a, &["t"])).generation;
    hand_out(world, generation, &a, &[(&a, "t", &[0, 1, 2])]);
}

#[test]
fn a_member_that_comes_and_goes_flaps_and_one_restart_of_many_does_not() {
    let mut world = world();
    let a = one(&mut world);
    let mut b = MemberId::from("");
    for round in 0..4 {
        let join = Join {
            client: Client {
                id: "flapper".into(),
                host: "/h".into(),
            },
            ..classic_join("", &["t"])
        };
        let id = joins(&mut world, join);
        world.join(classic_join(&a, &["t"]));
        b = told(&mut world, id).member_id;
        assert_eq!(inspect(&mut world).flapping.is_empty(), round < 3);
        leave(&mut world, &b, Some("consumer poll timeout has expired."));
        world.join(classic_join(&a, &["t"]));
    }
    let inspected = inspect(&mut world);
    let [(member, 3)] = &inspected.flapping[..] else {
        panic!("{:?}", inspected.flapping)
    };
    assert_eq!((&*member.client_id, &member.member_id), ("flapper", &b));
    assert!(inspected.storm.is_some());
}

#[test]
fn switched_off_it_keeps_nothing_and_the_counters_go_on() {
    let mut world = with(JournalConfig {
        enable: false,
        ..JournalConfig::default()
    });
    rounds(&mut world, 3);
    let inspected = inspect(&mut world);
    assert_eq!(
        (inspected.rebalances.len(), world.live.journal.bytes()),
        (0, 0)
    );
    let rejoined = world.live.stats().rebalances[Cause::LeaderRejoined as usize];
    assert_eq!(rejoined, 3);
}

#[test]
fn the_journal_outlives_its_coordinator_and_says_what_was_cut_short() {
    let mut world = world();
    let a = rounds(&mut world, 1);
    world.ask(Request::OffsetCommit(OffsetCommit {
        group_id: "g".into(),
        client: Client {
            id: "x".into(),
            host: "/h".into(),
        },
        member_id: a,
        generation_or_epoch: 2,
        group_instance_id: None,
        retention_time_ms: None,
        consumer_errors: true,
        topics: vec![CommitTopic {
            topic: TopicRef::Name("t".into()),
            partitions: vec![CommitPartition {
                index: 0,
                offset: 1,
                leader_epoch: -1,
                metadata: "".into(),
            }],
        }],
    }));
    joins(&mut world, classic_join("", &["t"]));
    reload(&mut world);
    let inspected = inspect(&mut world);
    let told: Vec<_> = inspected
        .rebalances
        .iter()
        .map(|e| (e.number, e.outcome))
        .collect();
    assert_eq!(
        told,
        [(3, "interrupted"), (2, "completed"), (1, "completed")]
    );
    let by = inspected.commits[0].committed_by.as_ref();
    assert_eq!(by.map(|by| &*by.client_id), Some("x"));
    rounds_more(&mut world);
    assert_eq!(newest(&mut world).number, 4);
}

#[test]
fn what_is_finished_is_told_once_and_can_be_remembered() {
    let mut world = with(JournalConfig {
        tell: true,
        ..JournalConfig::default()
    });
    rounds(&mut world, 2);
    let noted = world.live.take_noted();
    assert_eq!(noted.len(), 3);
    assert_eq!(world.live.take_noted(), []);
    let before = inspect(&mut world).rebalances;
    let mut again = with(JournalConfig {
        tell: true,
        ..JournalConfig::default()
    });
    for entry in noted {
        let Noted::Rebalance {
            kind: "classic", ..
        } = &entry
        else {
            panic!("{entry:?}")
        };
        again.live.remember(entry);
    }
    assert_eq!(again.live.take_noted(), []);
    let a = one(&mut again);
    let after = inspect(&mut again).rebalances;
    assert_eq!(after[1..], before[..]);
    assert_eq!((after[0].number, first(&after[0]).0), (4, &*a));
}

#[test]
fn a_group_whose_first_members_are_still_joining_is_there() {
    let mut world = World::new(config(), &[("t", 3)]);
    let a = world.join(classic_join("", &["t"])).member_id;
    let inspected = inspect(&mut world);
    assert_eq!(inspected.summary.state, "CompletingRebalance");
    assert_eq!(inspected.members[0].member.member_id, a);
    assert_eq!(inspected.rebalances[0].outcome, "running");
    let all = world.live.summaries(world.now);
    assert_eq!(all, [inspected.summary]);
}
