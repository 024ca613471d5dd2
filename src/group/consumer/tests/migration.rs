//! Groups with members of both protocols, and groups that go from one to the other.

use super::world::*;
use crate::group::request::*;
use crate::group::subscription::Assignment;
use crate::group::types::*;

#[test]
fn a_classic_join_under_an_id_that_does_not_hold_the_instance_is_fenced() {
    let mut world = World::new(config(), &[("t", 2)]);
    world.beat(ConsumerHeartbeat {
        instance_id: Some("i".into()),
        ..joining("a", &["t"])
    });
    let records = world.records.len();
    let mut other = classic_join("x", &["t"]);
    other.group_instance_id = Some("i".into());
    assert_eq!(world.join(other).error, ErrorCode::FencedInstanceId);
    assert_eq!(world.records.len(), records);
}

#[test]
fn whoever_is_named_twice_leaves_once_and_strangers_change_nothing() {
    let mut world = World::new(config(), &[("t", 4)]);
    world.beat(joining("a", &["t"]));
    let b = world.join(classic_join("", &["t"])).member_id;
    let before = world.describe().group_epoch;
    let leave = |world: &mut World, ids: &[&str]| -> Vec<ErrorCode> {
        let members = ids.iter().map(|id| LeavingMember {
            member_id: (*id).into(),
            group_instance_id: None,
            reason: None,
        });
        let request = Leave {
            group_id: "g".into(),
            members: members.collect(),
        };
        match world.ask(Request::Leave(request)) {
            Reply::Leave(reply) => reply.members.iter().map(|member| member.error).collect(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(leave(&mut world, &["x"]), [ErrorCode::UnknownMemberId]);
    assert_eq!(world.describe().group_epoch, before);
    assert_eq!(
        leave(&mut world, &[&b, &b, "x"]),
        [ErrorCode::None, ErrorCode::None, ErrorCode::UnknownMemberId]
    );
    let described = world.describe();
    assert_eq!(
        (described.members.len(), described.group_epoch),
        (1, before + 1)
    );
}

/// A classic member with all of topic `t`, as leader of its group. Returns its id.
fn classic_leader(world: &mut World) -> MemberId {
    let leader = world.join(classic_join("", &["t"])).member_id;
    let assignment = Assignment {
        version: 1,
        partitions: vec![("t".into(), vec![0, 1])],
        user_data: None,
    };
    let assignments = vec![(leader.clone(), assignment.to_bytes())];
    world.sync(classic_sync(&leader, 1, assignments));
    leader
}

#[test]
fn a_group_that_turns_classic_with_partitions_in_no_hand_gathers_after_a_crash_too() {
    let mut world = World::new(config(), &[("t", 2)]);
    let a = classic_leader(&mut world);
    world.beat(joining("b", &["t"]));
    world.beat(beating("b", -1));
    world.restart();
    let generation = 2;
    assert_eq!(
        world.heartbeat(&a, generation),
        ErrorCode::RebalanceInProgress
    );
    let again = world.join(classic_join(&a, &["t"]));
    assert_eq!((again.generation, again.leader), (generation + 1, a));
}

#[test]
fn a_group_that_turns_classic_as_a_whole_goes_on_after_a_crash() {
    let mut world = World::new(config(), &[("t", 2)]);
    world.beat(ConsumerHeartbeat {
        instance_id: Some("i".into()),
        ..joining("a", &["t"])
    });
    let mut join = classic_join("", &["t"]);
    join.group_instance_id = Some("i".into());
    let b = world.join(join);
    world.restart();
    assert_eq!(world.heartbeat(&b.member_id, b.generation), ErrorCode::None);
}
