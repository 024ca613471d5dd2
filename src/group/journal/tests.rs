//! The journal, told as stories: what is done to a group, and what its book says of it then.

mod commits;
mod consumer;
mod keeping;

use bytes::Bytes;

use crate::group::consumer::tests::world::{World, classic_join, classic_sync, config};
use crate::group::operator::{Inspect, Inspected, PartitionMove, Rebalance};
use crate::group::request::*;
use crate::group::subscription::{Assignment, Subscription};
use crate::group::types::*;
use crate::group::{Cause, GroupConfig};

fn inspect(world: &mut World) -> Inspected {
    match world.ask(Request::Inspect(Inspect::Group("g".into()))) {
        Reply::Inspected(inspected) => *inspected.expect("there is such a group"),
        other => panic!("{other:?}"),
    }
}

/// The newest entry.
fn newest(world: &mut World) -> Rebalance {
    let mut rebalances = inspect(world).rebalances;
    assert!(!rebalances.is_empty(), "the journal says nothing");
    rebalances.remove(0)
}

fn causes(rebalance: &Rebalance) -> Vec<Cause> {
    rebalance.triggers.iter().map(|t| t.cause).collect()
}

/// Whose doing it was, and what else is known.
fn first(rebalance: &Rebalance) -> (&str, &str) {
    let trigger = &rebalance.triggers[0];
    let member = trigger
        .member
        .as_ref()
        .map_or("", |member| &member.member_id);
    (member, trigger.detail.as_deref().unwrap_or(""))
}

fn moves(rebalance: &Rebalance) -> Vec<(i32, &str, &str)> {
    let name = |id: &Option<MemberId>| match id {
        Some(id) => id.to_string().leak(),
        None => "",
    };
    let each = rebalance.moves.iter();
    each.map(
        |PartitionMove {
             partition,
             from,
             to,
             ..
         }| (*partition, name(from), name(to)),
    )
    .collect()
}

fn given(parts: &[(&str, &str, &[i32])]) -> Vec<(MemberId, Bytes)> {
    let each = parts.iter().map(|(member_id, topic, partitions)| {
        let assignment = Assignment {
            version: 0,
            partitions: vec![((*topic).into(), partitions.to_vec())],
            user_data: None,
        };
        (MemberId::from(*member_id), assignment.to_bytes())
    });
    each.collect()
}

/// Everybody syncs, the leader last, and gives each its part.
fn hand_out(world: &mut World, generation: i32, leader: &str, parts: &[(&str, &str, &[i32])]) {
    for (member_id, ..) in parts.iter().filter(|(id, ..)| *id != leader) {
        world.send(Request::Sync(classic_sync(
            member_id,
            generation,
            Vec::new(),
        )));
    }
    world.sync(classic_sync(leader, generation, given(parts)));
}

fn joins(world: &mut World, request: Join) -> u64 {
    world.send(Request::Join(request))
}

fn told(world: &mut World, id: u64) -> JoinReply {
    match world.answer(id) {
        Some(Reply::Join(reply)) => reply,
        other => panic!("{other:?}"),
    }
}

/// One member with all of `t`, in generation 1.
fn one(world: &mut World) -> MemberId {
    let a = world.join(classic_join("", &["t"])).member_id;
    hand_out(world, 1, &a, &[(&a, "t", &[0, 1, 2])]);
    a
}

/// Two members of generation 2; `a` leads and has 0 and 1, `b` has 2.
fn two(world: &mut World) -> (MemberId, MemberId) {
    let a = one(world);
    let b = joins(world, classic_join("", &["t"]));
    world.join(classic_join(&a, &["t"]));
    let b = told(world, b).member_id;
    hand_out(world, 2, &a, &[(&a, "t", &[0, 1]), (&b, "t", &[2])]);
    (a, b)
}

/// The one that is left rejoins, and gets all.
fn alone(world: &mut World, a: &MemberId, generation: i32) {
    assert_eq!(world.join(classic_join(a, &["t"])).generation, generation);
    hand_out(world, generation, a, &[(a, "t", &[0, 1, 2])]);
}

fn leave(world: &mut World, member_id: &MemberId, reason: Option<&str>) {
    world.ask(Request::Leave(Leave {
        group_id: "g".into(),
        members: vec![LeavingMember {
            member_id: member_id.clone(),
            group_instance_id: None,
            reason: reason.map(Into::into),
        }],
    }));
}

fn world() -> World {
    World::new(config(), &[("t", 3), ("u", 1)])
}

#[test]
fn a_member_joins_and_everyone_waits_for_another() {
    let mut world = world();
    let a = one(&mut world);
    let b = joins(&mut world, classic_join("", &["t"]));
    world.advance(1_700);
    world.join(classic_join(&a, &["t"]));
    let b = told(&mut world, b).member_id;
    world.advance(30);
    hand_out(&mut world, 2, &a, &[(&a, "t", &[0, 1]), (&b, "t", &[2])]);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::MemberJoined]);
    assert_eq!(first(&entry), (&*b, ""));
    assert_eq!((entry.number, entry.from_epoch, entry.to_epoch), (2, 1, 2));
    assert_eq!(entry.phases, [("join", 1_700), ("sync", 30)]);
    assert_eq!(entry.outcome, "completed");
    assert_eq!(entry.ended_at, Some(world.now));
    assert_eq!(
        entry.waited_for.map(|member| member.member_id),
        Some(a.clone())
    );
    assert_eq!((entry.moved_count, entry.stayed_count), (1, 2));
    assert_eq!(
        entry.why,
        format!(
            "Member {b} (client c at /127.0.0.1) joined: 1 of 3 partitions moved; everyone waited 1.7 s for {a} (client \
             c at /127.0.0.1)."
        )
    );
    let entry = newest(&mut world);
    assert_eq!(moves(&entry), [(2, &*a, &*b)]);
}

#[test]
fn a_member_leaves_with_its_reason() {
    let mut world = world();
    let (a, b) = two(&mut world);
    leave(&mut world, &b, Some("the consumer is being closed"));
    alone(&mut world, &a, 3);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::MemberLeft]);
    assert_eq!(first(&entry), (&*b, "the consumer is being closed"));
    assert_eq!(moves(&entry), [(2, &*b, &*a)]);
}

#[test]
fn a_session_expires() {
    let mut world = world();
    let (a, b) = two(&mut world);
    world.advance(8_000);
    world.heartbeat(&a, 2);
    world.advance(2_000);
    alone(&mut world, &a, 3);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::SessionExpired]);
    assert_eq!(first(&entry), (&*b, ""));
}

#[test]
fn a_member_that_does_not_rejoin_in_time_is_told_beside_what_began_it() {
    let mut world = world();
    let (a, b) = two(&mut world);
    let c = joins(&mut world, classic_join("", &["t"]));
    let a_again = joins(&mut world, classic_join(&a, &["t"]));
    for _ in 0..4 {
        world.advance(2_500);
        world.send(Request::Heartbeat(Heartbeat {
            group_id: "g".into(),
            generation: 2,
            member_id: b.clone(),
            group_instance_id: None,
        }));
    }
    let c = told(&mut world, c).member_id;
    assert_eq!(told(&mut world, a_again).generation, 3);
    hand_out(&mut world, 3, &a, &[(&a, "t", &[0, 1]), (&c, "t", &[2])]);
    let entry = newest(&mut world);
    assert_eq!(
        causes(&entry),
        [Cause::MemberJoined, Cause::RebalanceTimeout]
    );
    let late = entry.triggers[1]
        .member
        .as_ref()
        .map(|member| &member.member_id);
    assert_eq!(late, Some(&b));
    assert_eq!(
        entry.waited_for.as_ref().map(|member| &member.member_id),
        Some(&b)
    );
    assert_eq!(moves(&entry), [(2, &*b, &*c)]);
}

#[test]
fn a_member_that_does_not_sync_in_time_begins_the_next() {
    let mut world = world();
    let a = one(&mut world);
    let b = joins(&mut world, classic_join("", &["t"]));
    world.join(classic_join(&a, &["t"]));
    let b = told(&mut world, b).member_id;
    world.sync(classic_sync(
        &a,
        2,
        given(&[(&a, "t", &[0, 1]), (&b, "t", &[2])]),
    ));
    for _ in 0..4 {
        world.advance(2_500);
        for member_id in [&a, &b] {
            world.heartbeat(member_id, 2);
        }
    }
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::SyncTimeout]);
    assert_eq!(first(&entry), (&*b, ""));
    assert_eq!(inspect(&mut world).rebalances[1].outcome, "superseded");
}

#[test]
fn a_subscription_changes() {
    let mut world = world();
    let (a, b) = two(&mut world);
    let again = joins(&mut world, classic_join(&b, &["t", "u"]));
    world.join(classic_join(&a, &["t"]));
    told(&mut world, again);
    hand_out(&mut world, 3, &a, &[(&a, "t", &[0, 1]), (&b, "t", &[2])]);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::SubscriptionChanged]);
    assert_eq!(first(&entry), (&*b, "+u"));
    assert_eq!((entry.moved_count, entry.stayed_count), (0, 3));
}

#[test]
fn a_leader_that_rejoins_after_a_topic_grew_was_made_to_by_the_topic() {
    let mut world = world();
    let a = one(&mut world);
    world.advance(1_000);
    world.grow("t", 4);
    world.advance(1_000);
    assert_eq!(world.join(classic_join(&a, &["t"])).generation, 2);
    hand_out(&mut world, 2, &a, &[(&a, "t", &[0, 1, 2, 3])]);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::TopicGrown]);
    assert_eq!(first(&entry), (&*a, "t"));
    assert_eq!(moves(&entry), [(3, "", &*a)]);
}

#[test]
fn a_member_that_notices_topics_later_than_the_leader_was_made_to_rejoin_by_them_too() {
    let mut world = world();
    let a = one(&mut world);
    world.advance(1_000);
    world.grow("t", 4);
    let metadata = |reason: &str| Join {
        reason: Some(reason.into()),
        ..classic_join(&a, &["t"])
    };
    let whole = [(&*a, "t", &[0, 1, 2, 3][..])];
    let steps = [
        (0, "cached metadata has changed", Cause::TopicGrown, "t"),
        (100, "cached metadata has changed", Cause::TopicGrown, "t"),
        (100, "", Cause::TopicGrown, "t"),
        (100, "enforced", Cause::LeaderRejoined, "enforced"),
        (100, "", Cause::LeaderRejoined, ""),
    ];
    for (later_ms, reason, cause, detail) in steps {
        world.advance(later_ms);
        let generation = world.join(metadata(reason)).generation;
        hand_out(&mut world, generation, &a, &whole);
        let entry = newest(&mut world);
        assert_eq!(
            (causes(&entry), first(&entry)),
            (vec![cause], (&*a, detail))
        );
    }
    // Long after, it must be something else.
    world.grow("t", 5);
    world.join(metadata(""));
    hand_out(&mut world, 7, &a, &[(&a, "t", &[0, 1, 2, 3, 4])]);
    for _ in 0..61 {
        world.advance(5_000);
        world.heartbeat(&a, 7);
    }
    world.join(metadata(""));
    assert_eq!(causes(&newest(&mut world)), [Cause::LeaderRejoined]);
}

#[test]
fn a_member_that_follows_a_pattern_itself_is_made_to_rejoin_by_topics() {
    let mut world = world();
    let a = one(&mut world);
    for (made, names, cause) in [
        (true, &["t", "v"][..], Cause::TopicCreated),
        (false, &["t"][..], Cause::TopicDeleted),
    ] {
        world.advance(1_000);
        match made {
            true => drop(world.create("v", 1)),
            false => world.delete("v"),
        }
        let generation = world.join(classic_join(&a, names)).generation;
        hand_out(&mut world, generation, &a, &[(&a, "t", &[0, 1, 2])]);
        let entry = newest(&mut world);
        assert_eq!((causes(&entry), first(&entry)), (vec![cause], (&*a, "v")));
    }
}

#[test]
fn a_leader_that_rejoins_for_reasons_of_its_own_may_say_them() {
    let mut world = world();
    let a = one(&mut world);
    let again = Join {
        reason: Some("rebalance enforced by user".into()),
        ..classic_join(&a, &["t"])
    };
    world.join(again);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::LeaderRejoined]);
    assert_eq!(first(&entry), (&*a, "rebalance enforced by user"));
    assert_eq!((entry.outcome, entry.ended_at), ("running", None));
    assert!(entry.why.contains("it runs since"), "{}", entry.why);
}

#[test]
fn the_second_step_of_a_cooperative_rebalance_is_told_as_that() {
    let mut world = world();
    let a = one(&mut world);
    let b = joins(&mut world, classic_join("", &["t"]));
    world.join(classic_join(&a, &["t"]));
    let b = told(&mut world, b).member_id;
    hand_out(&mut world, 2, &a, &[(&a, "t", &[0, 1]), (&b, "t", &[])]);
    let owning = Subscription {
        version: 3,
        topics: vec!["t".into()],
        user_data: None,
        owned: vec![("t".into(), vec![0, 1])],
        generation: 2,
        rack_id: None,
    };
    let mut again = classic_join(&a, &["t"]);
    again.protocols[0].metadata = owning.to_bytes();
    let a_again = joins(&mut world, again);
    world.join(classic_join(&b, &["t"]));
    told(&mut world, a_again);
    hand_out(&mut world, 3, &a, &[(&a, "t", &[0, 1]), (&b, "t", &[2])]);
    let rebalances = inspect(&mut world).rebalances;
    assert_eq!(causes(&rebalances[0]), [Cause::PartitionsRevoked]);
    assert_eq!(moves(&rebalances[0]), [(2, "", &*b)]);
    assert_eq!(moves(&rebalances[1]), [(2, &*a, "")]);
}

#[test]
fn a_static_member_that_comes_back_with_another_protocol_is_told_and_keeps_its_partitions() {
    let mut world = world();
    let fixed = |names: [&str; 2]| {
        let mut join = Join {
            group_instance_id: Some("i".into()),
            ..classic_join("", &["t"])
        };
        join.protocols.push(join.protocols[0].clone());
        for (protocol, name) in join.protocols.iter_mut().zip(names) {
            protocol.name = name.into();
        }
        join
    };
    let a = world.join(fixed(["range", "other"])).member_id;
    let sync = Sync {
        group_instance_id: Some("i".into()),
        ..classic_sync(&a, 1, given(&[(&a, "t", &[0, 1, 2])]))
    };
    world.sync(sync);
    let new = world.join(fixed(["other", "range"])).member_id;
    let sync = Sync {
        group_instance_id: Some("i".into()),
        protocol_name: Some("other".into()),
        ..classic_sync(&new, 2, given(&[(&new, "t", &[0, 1, 2])]))
    };
    world.sync(sync);
    let entry = newest(&mut world);
    assert_eq!(causes(&entry), [Cause::StaticMemberReplaced]);
    assert_eq!(first(&entry), (&*new, ""));
    assert_eq!((entry.moved_count, entry.stayed_count), (0, 3));
}

#[test]
fn a_group_larger_than_allowed_gathers_when_it_is_loaded() {
    let mut world = world();
    two(&mut world);
    world.live.config.max_size = 1;
    world.restart();
    assert_eq!(causes(&newest(&mut world)), [Cause::GroupOverMaxSize]);
}

#[test]
fn many_that_join_while_the_group_gathers_are_one_rebalance_that_nobody_is_blamed_for() {
    let config = GroupConfig {
        initial_rebalance_delay_ms: 3_000,
        ..config()
    };
    let mut world = World::new(config, &[("t", 3)]);
    let first = joins(&mut world, classic_join("", &["t"]));
    for _ in 0..40 {
        joins(&mut world, classic_join("", &["t"]));
    }
    world.advance(6_000);
    told(&mut world, first);
    let entry = newest(&mut world);
    assert_eq!((entry.number, entry.triggers.len()), (1, 32));
    assert_eq!((entry.phases.len(), entry.waited_for), (1, None));
    assert!(entry.why.contains("and 40 other things"), "{}", entry.why);
}

#[test]
fn the_last_member_leaves_and_gives_up_everything() {
    let mut world = world();
    let a = one(&mut world);
    leave(&mut world, &a, None);
    let entry = newest(&mut world);
    assert_eq!((entry.outcome, entry.to_epoch), ("emptied", 2));
    assert_eq!(moves(&entry), [(0, &*a, ""), (1, &*a, ""), (2, &*a, "")]);
    assert!(
        entry.why.ends_with("nobody is left in the group."),
        "{}",
        entry.why
    );
}
