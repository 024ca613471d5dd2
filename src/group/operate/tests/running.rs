//! Actions on groups whose members run, story by story.

use super::clients::{Member, Speaks};
use super::{World, commit, kind, to};
use crate::group::GroupConfig;
use crate::group::operator::{Action, NotDoneKind, Operated, Setting, Supposition, Who};
use crate::group::request::{ErrorCode, Reply};
use crate::group::types::MemberId;

impl World {
    /// Who is in the group, each with its generation or epoch.
    pub(super) fn here(&self) -> Vec<(MemberId, i32)> {
        if let Some(group) = self.live.state.consumer("g") {
            let members = group.members();
            return members
                .map(|(id, member)| (id.clone(), member.current().member_epoch))
                .collect();
        }
        let Some(group) = self.live.classic.get("g") else {
            return Vec::new();
        };
        let members = group.members();
        members
            .map(|(id, _)| (id.clone(), group.generation()))
            .collect()
    }

    /// Lets members take turns for so many seconds.
    fn run(&mut self, members: &mut [Member], seconds: i64) {
        for _ in 0..seconds {
            for member in members.iter_mut() {
                member.turn(self);
                member.turn(self);
            }
            self.advance(1_000);
        }
    }

    fn error(&mut self, request: crate::group::request::Request) -> ErrorCode {
        match self.ask(request) {
            Reply::OffsetCommit(reply) => reply.topics[0].partitions[0].1,
            other => panic!("{other:?}"),
        }
    }
}

const ALL: [Speaks; 3] = [Speaks::Eager, Speaks::Cooperative, Speaks::Consumer];

fn running(speaks: Speaks) -> (World, Vec<Member>) {
    let mut world = World::new();
    let mut members = vec![Member::new("a", speaks), Member::new("b", speaks)];
    world.run(&mut members, 30);
    assert_eq!(members[0].owned.len(), 2, "{speaks:?} {members:?}");
    for member in &mut members {
        (0..50).for_each(|_| member.read());
        member.commit_all(&mut world);
    }
    (world, members)
}

fn finish(world: &mut World, members: &mut [Member], id: u64) -> Operated {
    for _ in 0..60 {
        if let Some(outcome) = world.outcome(id) {
            return outcome.unwrap();
        }
        world.run(members, 1);
    }
    panic!("no end");
}

#[test]
fn members_go_on_from_where_they_were_reset_to() {
    for speaks in ALL {
        let (mut world, mut members) = running(speaks);
        let moves = (0..4).map(|p| to(p, 1_000)).collect();
        let dry = world.dry(Action::Reset(moves)).unwrap();
        assert_eq!(dry.offsets.len(), 4);
        assert!(
            dry.offsets
                .iter()
                .all(|o| o.from == Some(50) && o.held_by.is_some())
        );
        assert_eq!(dry.members.len(), 2);
        let moves = (0..4).map(|p| to(p, 1_000)).collect();
        let id = world.begin(Action::Reset(moves));
        let done = finish(&mut world, &mut members, id);
        assert!(
            done.offsets.iter().all(|o| o.to == Some(1_000)),
            "{speaks:?}"
        );
        assert_eq!(done.members.len(), 2, "{speaks:?}");
        world.run(&mut members, 30);
        for member in &members {
            assert_eq!(member.owned.len(), 2, "{speaks:?} {members:?}");
            assert!(
                member.owned.values().all(|at| *at == Some(1_000)),
                "{speaks:?} {members:?}"
            );
        }
    }
}

#[test]
fn a_reset_of_some_partitions_leaves_the_others_alone() {
    for speaks in [Speaks::Cooperative, Speaks::Consumer] {
        let (mut world, mut members) = running(speaks);
        let other = members[1].partitions();
        let mine = members[0].partitions()[0];
        let id = world.begin(Action::Reset(vec![to(mine, 7)]));
        for _ in 0..60 {
            world.run(&mut members, 1);
            let kept = other
                .iter()
                .filter(|p| members[1].owned.get(*p) == Some(&Some(50)));
            assert_eq!(kept.count(), 2, "{speaks:?}: they are never taken");
            if world.outcome(id).is_some() {
                break;
            }
        }
        assert_eq!(world.committed("t", mine), 7);
        assert_eq!(world.committed("t", other[0]), 50);
    }
}

#[test]
fn what_was_read_before_is_not_committed_after() {
    for speaks in ALL {
        let (mut world, mut members) = running(speaks);
        let id = world.begin(Action::Reset((0..4).map(|p| to(p, 1_000)).collect()));
        while world.outcome(id).is_none() {
            world.run(&mut members, 1);
            for member in &mut members {
                member.commit_old(&mut world);
            }
        }
        for _ in 0..5 {
            for member in &mut members {
                member.commit_old(&mut world);
            }
            assert!(
                (0..4).all(|p| world.committed("t", p) >= 1_000),
                "{speaks:?}"
            );
            world.run(&mut members, 1);
        }
    }
}

#[test]
fn a_member_without_the_partition_may_not_commit_it_after_a_reset() {
    let (mut world, mut members) = running(Speaks::Consumer);
    let id = world.begin(Action::Reset(vec![to(0, 9)]));
    finish(&mut world, &mut members, id);
    world.run(&mut members, 5);
    let stranger = members.iter().find(|m| !m.owned.contains_key(&0)).unwrap();
    let refused = world.error(commit(&stranger.member_id, stranger.epoch, 0, 1));
    assert_eq!(refused, ErrorCode::StaleMemberEpoch);
    let owner = members.iter().find(|m| m.owned.contains_key(&0)).unwrap();
    let taken = world.error(commit(&owner.member_id, owner.epoch, 0, 10));
    assert_eq!(taken, ErrorCode::None);
}

#[test]
fn a_stuck_member_ends_by_its_timeouts_and_the_outcome_tells() {
    for speaks in ALL {
        let (mut world, mut members) = running(speaks);
        let id = world.begin(Action::Reset((0..4).map(|p| to(p, 1_000)).collect()));
        let done = finish(&mut world, &mut members[..1], id);
        assert_eq!(done.offsets.len(), 4, "{speaks:?}");
        assert!(
            done.notes.iter().any(|n| n.contains("removed")),
            "{speaks:?} {done:?}"
        );
        assert!(done.members.iter().any(|m| m.change == "removed"));
    }
}

#[test]
fn one_action_at_a_time() {
    let (mut world, _) = running(Speaks::Consumer);
    world.begin(Action::Pause);
    for action in [
        Action::Rebalance,
        Action::Reset(vec![to(0, 1)]),
        Action::Delete,
    ] {
        assert_eq!(kind(world.operate(action)), NotDoneKind::Conflict);
    }
    world.operate(Action::Resume).unwrap();
}

#[test]
fn a_paused_group_owns_nothing_until_it_is_resumed() {
    for speaks in ALL {
        let (mut world, mut members) = running(speaks);
        let id = world.begin(Action::Pause);
        finish(&mut world, &mut members, id);
        assert!(members.iter().all(|m| m.owned.is_empty()), "{speaks:?}");
        members.push(Member::new("new", speaks));
        world.run(&mut members, 30);
        assert!(
            members.iter().all(|m| m.owned.is_empty() && m.is_settled()),
            "{speaks:?}"
        );
        world.restart();
        members.iter_mut().for_each(Member::hang_up);
        world.run(&mut members, 30);
        assert!(
            members.iter().all(|m| m.owned.is_empty()),
            "{speaks:?}: after a restart"
        );
        world.operate(Action::Resume).unwrap();
        world.run(&mut members, 30);
        let owned: usize = members.iter().map(|m| m.owned.len()).sum();
        assert_eq!(owned, 4, "{speaks:?}");
    }
}

#[test]
fn a_drained_member_stays_and_owns_nothing() {
    for speaks in ALL {
        let (mut world, mut members) = running(speaks);
        let member = Who::Member(members[0].member_id.clone());
        let id = world.begin(Action::Drain { member });
        let done = finish(&mut world, &mut members, id);
        assert_eq!(done.members[0].change, "drained");
        world.run(&mut members, 30);
        assert!(
            members[0].owned.is_empty() && members[0].is_settled(),
            "{speaks:?}"
        );
        assert_eq!(members[1].owned.len(), 4, "{speaks:?}");
        assert_eq!(world.here().len(), 2);
        members[0].leave(&mut world);
        world.run(&mut members[1..], 5);
        assert_eq!(
            members[1].owned.len(),
            4,
            "{speaks:?}: nothing moves when it goes"
        );
    }
}

#[test]
fn a_kicked_member_is_kept_out_until_its_ban_ends() {
    for speaks in ALL {
        let (mut world, mut members) = running(speaks);
        let who = vec![Who::Client("a".into())];
        let done = world
            .operate(Action::Kick {
                members: who,
                ban_ms: 60_000,
            })
            .unwrap();
        assert_eq!((done.members.len(), done.members[0].change), (1, "removed"));
        world.run(&mut members, 40);
        assert!(members[0].owned.is_empty(), "{speaks:?}");
        assert_eq!(members[1].owned.len(), 4, "{speaks:?}");
        assert_eq!(world.live.banned(world.now, "g").len(), 1);
        world.run(&mut members, 60);
        assert_eq!(
            members[0].owned.len(),
            2,
            "{speaks:?}: it comes back by itself"
        );
    }
}

#[test]
fn a_rebalance_by_order_is_a_new_generation_or_epoch() {
    for speaks in ALL {
        let (mut world, mut members) = running(speaks);
        let before = members[0].epoch;
        world.operate(Action::Rebalance).unwrap();
        world.run(&mut members, 10);
        assert!(members[0].epoch > before, "{speaks:?}");
        assert_eq!(members.iter().map(|m| m.owned.len()).sum::<usize>(), 4);
    }
}

#[test]
fn who_is_not_there_cannot_be_acted_on() {
    let (mut world, _) = running(Speaks::Consumer);
    let nobody = || Who::Member("nobody".into());
    let kick = Action::Kick {
        members: vec![nobody()],
        ban_ms: 0,
    };
    assert_eq!(kind(world.operate(kick)), NotDoneKind::NotFound);
    let drain = Action::Drain { member: nobody() };
    assert_eq!(kind(world.operate(drain)), NotDoneKind::NotFound);
    assert_eq!(kind(world.operate(Action::Delete)), NotDoneKind::Conflict);
}

#[test]
fn a_group_has_no_more_members_and_offsets_than_it_may() {
    for speaks in ALL {
        let (mut world, mut members) = running(speaks);
        let limits = vec![
            (Setting::MembersMax, Some(2)),
            (Setting::OffsetsMax, Some(4)),
        ];
        world.operate(Action::Configure(limits)).unwrap();
        members.push(Member::new("late", speaks));
        world.run(&mut members, 10);
        assert!(!members[2].is_settled(), "{speaks:?}");
        assert_eq!(world.here().len(), 2, "{speaks:?}");
    }
    let mut world = World::new();
    let limit = vec![(Setting::OffsetsMax, Some(1))];
    world.operate(Action::Configure(limit)).unwrap();
    assert_eq!(world.error(commit("", -1, 0, 1)), ErrorCode::None);
    assert_eq!(world.error(commit("", -1, 0, 2)), ErrorCode::None);
    let refused = world.error(commit("", -1, 1, 1));
    assert_eq!(refused, ErrorCode::InvalidCommitOffsetSize);
}

#[test]
fn offsets_are_kept_for_as_long_as_the_group_says() {
    let config = GroupConfig {
        offsets_retention_ms: 3_600_000,
        ..GroupConfig::default()
    };
    for (own, is_kept) in [(None, false), (Some(-1), true), (Some(10_000), false)] {
        let mut world = World::with(config.clone());
        let limit = vec![(Setting::OffsetsRetentionMs, own)];
        world.operate(Action::Configure(limit)).unwrap();
        world.ask(commit("", -1, 0, 1));
        world.advance(1_200_000);
        let early = world.committed("t", 0) == 1;
        assert_eq!(early, own != Some(10_000));
        world.advance(3_600_000);
        assert_eq!(world.committed("t", 0) == 1, is_kept, "{own:?}");
    }
}

#[test]
fn a_preview_tells_what_would_move_and_changes_nothing() {
    for speaks in ALL {
        let (world, members) = running(speaks);
        let same = Supposition {
            assignor: Some("uniform".into()),
            ..Supposition::default()
        };
        let told = world.live.preview(&"g".into(), &same).unwrap();
        assert_eq!((told.stayed_count, told.moves.len()), (4, 0), "{speaks:?}");
        let fewer = Supposition {
            members_removed: vec![Who::Member(members[0].member_id.clone())],
            ..same.clone()
        };
        let told = world.live.preview(&"g".into(), &fewer).unwrap();
        assert_eq!((told.stayed_count, told.moves.len()), (2, 2), "{speaks:?}");
        let more = Supposition {
            members_added: 2,
            topics: vec![("t".into(), 8)],
            ..same
        };
        let told = world.live.preview(&"g".into(), &more).unwrap();
        assert_eq!(told.members.len(), 4);
        assert_eq!(told.stayed_count + told.moves.len(), 8, "{speaks:?}");
    }
    let (world, _) = running(Speaks::Cooperative);
    let unknown = world.live.preview(&"g".into(), &Supposition::default());
    assert_eq!(unknown.unwrap_err().kind, NotDoneKind::Conflict);
}
