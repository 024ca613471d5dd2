//! Groups of the consumer protocol, and those that change between the protocols.

use super::*;
use crate::group::GroupOverrides;
use crate::group::consumer::tests::world::{beating, joining, of};
use crate::group::operator::{Action, Operate};

/// Beats with what it is told, until nothing changes any more.
fn settle(world: &mut World, members: &[&str]) {
    for _ in 0..8 {
        for member_id in members {
            let described = world.describe();
            let Some(member) = described
                .members
                .iter()
                .find(|m| *m.member_id == **member_id)
            else {
                continue;
            };
            let mine: Vec<_> = member
                .assignment
                .iter()
                .map(|topic| (topic.topic_id, topic.partitions.clone()))
                .collect();
            let epoch = member.member_epoch;
            let told = world.beat(ConsumerHeartbeat {
                topic_partitions: Some(mine),
                ..beating(member_id, epoch)
            });
            if let Some(assignment) = told.assignment {
                world.beat(ConsumerHeartbeat {
                    topic_partitions: Some(assignment),
                    ..beating(member_id, told.member_epoch)
                });
            }
        }
        world.advance(1_000);
    }
}

/// `a` and `b`, Stable.
fn pair(world: &mut World) {
    world.beat(joining("a", &["t"]));
    settle(world, &["a"]);
    world.beat(joining("b", &["t"]));
    settle(world, &["a", "b"]);
}

#[test]
fn a_member_joins_and_partitions_move_to_it() {
    let mut world = world();
    pair(&mut world);
    let inspected = inspect(&mut world);
    assert_eq!(inspected.summary.state, "Stable");
    let entry = &inspected.rebalances[0];
    assert_eq!(causes(entry), [Cause::MemberJoined]);
    assert_eq!(first(entry), ("b", ""));
    assert_eq!(entry.outcome, "completed");
    assert_eq!(entry.to_epoch, inspected.summary.epoch);
    assert_eq!(entry.from_epoch, entry.to_epoch - 1);
    let names: Vec<_> = entry.phases.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["assign", "revoke", "take"]);
    let took: i64 = entry.phases.iter().map(|(_, ms)| ms).sum();
    assert_eq!(Some(entry.began_at.plus(took)), entry.ended_at);
    assert_eq!((entry.moved_count, entry.stayed_count), (1, 2));
    assert_eq!((moves(entry)[0].1, moves(entry)[0].2), ("a", "b"));
    assert_eq!(entry.waited_for.as_ref().map(|m| &*m.member_id), Some("b"));
    assert_eq!(moves(&inspected.rebalances[1]).len(), 3);
}

#[test]
fn a_member_leaves_and_its_partitions_go_to_the_other() {
    let mut world = world();
    pair(&mut world);
    world.beat(beating("b", -1));
    settle(&mut world, &["a"]);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::MemberLeft]);
    assert_eq!(first(&entry), ("b", ""));
    assert_eq!(entry.outcome, "completed");
    assert_eq!((moves(&entry)[0].1, moves(&entry)[0].2), ("b", "a"));
}

#[test]
fn the_last_member_leaves() {
    let mut world = world();
    world.beat(joining("a", &["t"]));
    settle(&mut world, &["a"]);
    world.beat(beating("a", -1));
    let entry = newest(&mut world);
    assert_eq!((entry.outcome, entry.moved_count), ("emptied", 3));
}

#[test]
fn a_session_expires() {
    let mut world = world();
    pair(&mut world);
    for _ in 0..6 {
        world.advance(8_000);
        let epoch = world.describe().group_epoch;
        world.beat(beating("a", epoch));
    }
    settle(&mut world, &["a"]);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::SessionExpired]);
    assert_eq!(first(&entry), ("b", ""));
}

#[test]
fn a_member_that_does_not_revoke_in_time_is_told() {
    let mut world = world();
    world.beat(joining("a", &["t"]));
    settle(&mut world, &["a"]);
    world.beat(joining("b", &["t"]));
    world.advance(1_000);
    let id = world.topics.get("t").expect("made above").id;
    let epoch = world.describe().members[0].member_epoch;
    for _ in 0..12 {
        let owned = Some(of(id, &[0, 1, 2]));
        world.send(Request::ConsumerHeartbeat(ConsumerHeartbeat {
            topic_partitions: owned,
            ..beating("a", epoch)
        }));
        let epoch = world.describe().group_epoch;
        world.send(Request::ConsumerHeartbeat(beating("b", epoch)));
        world.advance(1_000);
    }
    settle(&mut world, &["b"]);
    let rebalances = inspect(&mut world).rebalances;
    assert_eq!(causes(&rebalances[0]), [Cause::RebalanceTimeout]);
    assert_eq!(first(&rebalances[0]), ("a", ""));
    assert_eq!(rebalances[1].outcome, "superseded");
}

#[test]
fn a_subscription_changes() {
    let mut world = world();
    pair(&mut world);
    let epoch = world.describe().group_epoch;
    world.beat(ConsumerHeartbeat {
        subscribed_topic_names: Some(vec!["t".into(), "u".into()]),
        ..beating("b", epoch)
    });
    settle(&mut world, &["a", "b"]);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::SubscriptionChanged]);
    assert_eq!(first(&entry), ("b", "+u"));
}

#[test]
fn a_pause_by_a_setting_is_told_as_the_doing_of_whoever_announced_it() {
    let mut world = world();
    pair(&mut world);
    let set = |world: &mut World, paused: bool| {
        let overrides = GroupOverrides {
            paused,
            ..GroupOverrides::default()
        };
        world.live.configure_group(&"g".into(), overrides);
        world.advance(1_000);
        settle(world, &["a", "b"]);
        newest(world).triggers[0].detail.clone()
    };
    let announce = |world: &mut World, action: Action| {
        world.send(Request::Operate(Operate {
            group_id: "g".into(),
            operator: "http:1".into(),
            action,
            dry_run: true,
            announces: true,
        }));
    };
    announce(&mut world, Action::Pause);
    assert_eq!(set(&mut world, true).as_deref(), Some("http:1: pause"));
    announce(&mut world, Action::Resume);
    assert_eq!(set(&mut world, false).as_deref(), Some("http:1: resume"));
    let by_tools = "GROUP config: convoke.group.paused=true";
    assert_eq!(set(&mut world, true).as_deref(), Some(by_tools));
    let by_tools = "GROUP config: convoke.group.paused=false";
    assert_eq!(set(&mut world, false).as_deref(), Some(by_tools));
    assert_eq!(
        set(&mut world, true).as_deref().map(|d| &d[..5]),
        Some("GROUP")
    );
}

#[test]
fn topics_that_grow_and_go_and_come_are_told_by_name() {
    let mut world = world();
    pair(&mut world);
    world.grow("t", 5);
    world.advance(2_000);
    settle(&mut world, &["a", "b"]);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::TopicGrown]);
    assert_eq!(first(&entry), ("", "t"));
    assert_eq!(moves(&entry).len(), 2);
    world.delete("t");
    world.advance(2_000);
    settle(&mut world, &["a", "b"]);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::TopicDeleted]);
    let given_up = moves(&entry);
    assert_eq!((given_up.len(), entry.moved_count), (5, 5));
    assert!(
        given_up
            .iter()
            .all(|(_, from, to)| !from.is_empty() && to.is_empty())
    );
    world.create("t", 2);
    world.advance(2_000);
    settle(&mut world, &["a", "b"]);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::TopicCreated]);
    assert_eq!(
        entry.why.split(": ").next(),
        Some("A subscribed topic was created")
    );
}

#[test]
fn a_rebalance_for_a_topic_counts_from_when_the_topic_changed() {
    let mut world = world();
    pair(&mut world);
    world.beat(ConsumerHeartbeat {
        subscribed_topic_regex: Some("v.*".into()),
        ..joining("c", &[])
    });
    settle(&mut world, &["a", "b", "c"]);
    world.advance(2_000);
    // Neither by a name nor by a pattern does anybody's heartbeat ask for a target: a timer does, later.
    type Change = fn(&mut World);
    let grows: Change = |world| world.grow("t", 5);
    let comes: Change = |world| {
        world.create("v1", 1);
    };
    for (cause, change) in [(Cause::TopicGrown, grows), (Cause::TopicCreated, comes)] {
        let at = world.now;
        change(&mut world);
        world.advance(2_000);
        settle(&mut world, &["a", "b", "c"]);
        let entry = newest(&mut world);
        // And not the member whose pattern had matched nothing.
        assert_eq!(causes(&entry), [cause]);
        assert_eq!((entry.outcome, entry.began_at), ("completed", at));
        assert_eq!(entry.triggers[0].at, at);
        let took: i64 = entry.phases.iter().map(|(_, ms)| ms).sum();
        assert_eq!(Some(at.plus(took)), entry.ended_at);
    }
}

#[test]
fn a_member_with_a_pattern_is_told_when_it_is_resolved_and_topics_that_match_by_name() {
    let mut world = world();
    world.beat(ConsumerHeartbeat {
        subscribed_topic_regex: Some("[tv]".into()),
        ..joining("a", &[])
    });
    world.advance(1_000);
    settle(&mut world, &["a"]);
    let entry = newest(&mut world);
    assert_eq!(
        (causes(&entry), first(&entry)),
        (vec![Cause::MemberJoined], ("a", ""))
    );
    world.create("v", 1);
    world.advance(2_000);
    settle(&mut world, &["a"]);
    let entry = newest(&mut world);
    assert_eq!(
        (causes(&entry), first(&entry)),
        (vec![Cause::TopicCreated], ("", "v"))
    );
    world.delete("v");
    world.advance(3_000);
    settle(&mut world, &["a"]);
    let entry = newest(&mut world);
    assert_eq!(
        (causes(&entry), first(&entry)),
        (vec![Cause::TopicDeleted], ("", "v"))
    );
    assert_eq!(moves(&entry), [(0, "a", "")]);
    assert_eq!(entry.number, 3, "one rebalance each");
}

#[test]
fn a_static_member_that_comes_back_with_another_subscription_is_told() {
    let mut world = world();
    let fixed = |member_id: &str, names: &[&str]| ConsumerHeartbeat {
        instance_id: Some("i".into()),
        ..joining(member_id, names)
    };
    world.beat(fixed("a", &["t"]));
    settle(&mut world, &["a"]);
    world.beat(ConsumerHeartbeat {
        instance_id: Some("i".into()),
        ..beating("a", -2)
    });
    world.beat(fixed("b", &["u"]));
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::StaticMemberReplaced]);
    assert_eq!(first(&entry), ("b", "+u, -t"));
}

#[test]
fn two_that_join_within_one_interval_are_one_rebalance() {
    let mut world = world();
    world.beat(joining("a", &["t"]));
    settle(&mut world, &["a"]);
    world.beat(joining("b", &["t"]));
    world.advance(100);
    world.beat(joining("c", &["t"]));
    world.beat(joining("d", &["t"]));
    world.advance(1_000);
    settle(&mut world, &["a", "b", "c", "d"]);
    let rebalances = inspect(&mut world).rebalances;
    let entry = rebalances.iter().find(|entry| entry.triggers.len() == 2);
    let entry = entry.unwrap_or_else(|| panic!("{rebalances:?}"));
    assert_eq!(causes(entry), [Cause::MemberJoined, Cause::MemberJoined]);
    assert_eq!(entry.to_epoch, entry.from_epoch + 2);
}

#[test]
fn a_group_that_changes_its_protocol_and_back_is_told() {
    let mut world = world();
    let a = one(&mut world);
    world.beat(joining("new", &["t"]));
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::Migration, Cause::MemberJoined]);
    assert_eq!(
        entry.triggers[1].member.as_ref().map(|m| &*m.member_id),
        Some("new")
    );
    world.advance(1_000);
    world.join(classic_join(&a, &["t"]));
    settle(&mut world, &["new"]);
    world.beat(beating("new", -1));
    let entry = newest(&mut world);
    assert_eq!(inspect(&mut world).summary.kind, "classic");
    assert_eq!(causes(&entry), [Cause::MemberLeft, Cause::Migration]);
    assert_eq!(first(&entry), ("new", ""));
}
