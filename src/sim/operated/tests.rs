//! Actions on groups whose members run, story by story.

use super::bench::{Bench, commit, to};
use super::members::{Member, Speaks};
use crate::group::operator::{
    Action, Inspect, NotDone, NotDoneKind, Operated, Previewed, Setting, Supposition, Who,
};
use crate::group::request::{ErrorCode, Reply, Request};

impl Bench {
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

    fn preview(&mut self, change: &Supposition) -> Result<Box<Previewed>, NotDone> {
        let inspect = Inspect::Preview {
            group_id: "g".into(),
            change: change.clone(),
        };
        match self.ask(Request::Inspect(inspect)) {
            Reply::Previewed(previewed) => previewed,
            other => panic!("{other:?}"),
        }
    }

    fn error(&mut self, request: Request) -> ErrorCode {
        match self.ask(request) {
            Reply::OffsetCommit(reply) => reply.topics[0].partitions[0].1,
            other => panic!("{other:?}"),
        }
    }
}

fn kind(outcome: Result<Operated, NotDone>) -> NotDoneKind {
    outcome.unwrap_err().kind
}

const ALL: [Speaks; 3] = [Speaks::Eager, Speaks::Cooperative, Speaks::Consumer];

fn running(speaks: Speaks) -> (Bench, Vec<Member>) {
    let mut bench = Bench::new();
    let mut members = vec![Member::new("a", speaks), Member::new("b", speaks)];
    bench.run(&mut members, 30);
    assert_eq!(members[0].owned.len(), 2, "{speaks:?} {members:?}");
    for member in &mut members {
        (0..50).for_each(|_| member.read());
        member.commit_all(&mut bench);
    }
    (bench, members)
}

fn finish(bench: &mut Bench, members: &mut [Member], id: u64) -> Operated {
    for _ in 0..60 {
        if let Some(outcome) = bench.outcome(id) {
            return outcome.unwrap();
        }
        bench.run(members, 1);
    }
    panic!("no end");
}

#[test]
fn members_go_on_from_where_they_were_reset_to() {
    for speaks in ALL {
        let (mut bench, mut members) = running(speaks);
        let moves = (0..4).map(|p| to(p, 1_000)).collect();
        let dry = bench.dry(Action::Reset(moves)).unwrap();
        assert_eq!(dry.offsets.len(), 4);
        assert!(
            dry.offsets
                .iter()
                .all(|o| o.from == Some(50) && o.held_by.is_some())
        );
        assert_eq!(dry.members.len(), 2);
        let moves = (0..4).map(|p| to(p, 1_000)).collect();
        let id = bench.begin(Action::Reset(moves));
        let done = finish(&mut bench, &mut members, id);
        assert!(
            done.offsets.iter().all(|o| o.to == Some(1_000)),
            "{speaks:?}"
        );
        assert_eq!(done.members.len(), 2, "{speaks:?}");
        bench.run(&mut members, 30);
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
        let (mut bench, mut members) = running(speaks);
        let other = members[1].partitions();
        let mine = members[0].partitions()[0];
        let id = bench.begin(Action::Reset(vec![to(mine, 7)]));
        for _ in 0..60 {
            bench.run(&mut members, 1);
            let kept = other
                .iter()
                .filter(|p| members[1].owned.get(*p) == Some(&Some(50)));
            assert_eq!(kept.count(), 2, "{speaks:?}: they are never taken");
            if bench.outcome(id).is_some() {
                break;
            }
        }
        assert_eq!(bench.committed(mine), 7);
        assert_eq!(bench.committed(other[0]), 50);
    }
}

#[test]
fn what_was_read_before_is_not_committed_after() {
    for speaks in ALL {
        let (mut bench, mut members) = running(speaks);
        let id = bench.begin(Action::Reset((0..4).map(|p| to(p, 1_000)).collect()));
        while bench.outcome(id).is_none() {
            bench.run(&mut members, 1);
            for member in &mut members {
                member.commit_old(&mut bench);
            }
        }
        for _ in 0..5 {
            for member in &mut members {
                member.commit_old(&mut bench);
            }
            assert!((0..4).all(|p| bench.committed(p) >= 1_000), "{speaks:?}");
            bench.run(&mut members, 1);
        }
    }
}

#[test]
fn a_member_without_the_partition_may_not_commit_it_after_a_reset() {
    let (mut bench, mut members) = running(Speaks::Consumer);
    let id = bench.begin(Action::Reset(vec![to(0, 9)]));
    finish(&mut bench, &mut members, id);
    bench.run(&mut members, 5);
    let stranger = members.iter().find(|m| !m.owned.contains_key(&0)).unwrap();
    let refused = bench.error(commit(&stranger.member_id, stranger.epoch, 0, 1));
    assert_eq!(refused, ErrorCode::StaleMemberEpoch);
    let owner = members.iter().find(|m| m.owned.contains_key(&0)).unwrap();
    let taken = bench.error(commit(&owner.member_id, owner.epoch, 0, 10));
    assert_eq!(taken, ErrorCode::None);
}

#[test]
fn a_stuck_member_ends_by_its_timeouts_and_the_outcome_tells() {
    for speaks in ALL {
        let (mut bench, mut members) = running(speaks);
        let id = bench.begin(Action::Reset((0..4).map(|p| to(p, 1_000)).collect()));
        let done = finish(&mut bench, &mut members[..1], id);
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
    let (mut bench, _) = running(Speaks::Consumer);
    bench.begin(Action::Pause);
    for action in [
        Action::Rebalance,
        Action::Reset(vec![to(0, 1)]),
        Action::Delete,
    ] {
        assert_eq!(kind(bench.operate(action)), NotDoneKind::Conflict);
    }
    bench.operate(Action::Resume).unwrap();
}

#[test]
fn a_paused_group_owns_nothing_until_it_is_resumed() {
    for speaks in ALL {
        let (mut bench, mut members) = running(speaks);
        let id = bench.begin(Action::Pause);
        finish(&mut bench, &mut members, id);
        assert!(members.iter().all(|m| m.owned.is_empty()), "{speaks:?}");
        members.push(Member::new("new", speaks));
        bench.run(&mut members, 30);
        assert!(
            members.iter().all(|m| m.owned.is_empty() && m.is_settled()),
            "{speaks:?}"
        );
        bench.restart();
        members.iter_mut().for_each(Member::hang_up);
        bench.run(&mut members, 30);
        assert!(
            members.iter().all(|m| m.owned.is_empty()),
            "{speaks:?}: after a restart"
        );
        bench.operate(Action::Resume).unwrap();
        bench.run(&mut members, 30);
        let owned: usize = members.iter().map(|m| m.owned.len()).sum();
        assert_eq!(owned, 4, "{speaks:?}");
    }
}

#[test]
fn a_drained_member_stays_and_owns_nothing() {
    for speaks in ALL {
        let (mut bench, mut members) = running(speaks);
        let member = Who::Member(members[0].member_id.clone());
        let id = bench.begin(Action::Drain { member });
        let done = finish(&mut bench, &mut members, id);
        assert_eq!(done.members[0].change, "drained");
        bench.run(&mut members, 30);
        assert!(
            members[0].owned.is_empty() && members[0].is_settled(),
            "{speaks:?}"
        );
        assert_eq!(members[1].owned.len(), 4, "{speaks:?}");
        assert_eq!(bench.here().len(), 2);
        members[0].leave(&mut bench);
        bench.run(&mut members[1..], 5);
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
        let (mut bench, mut members) = running(speaks);
        let who = vec![Who::Client("a".into())];
        let done = bench
            .operate(Action::Kick {
                members: who,
                ban_ms: 60_000,
            })
            .unwrap();
        assert_eq!((done.members.len(), done.members[0].change), (1, "removed"));
        bench.run(&mut members, 40);
        assert!(members[0].owned.is_empty(), "{speaks:?}");
        assert_eq!(members[1].owned.len(), 4, "{speaks:?}");
        assert_eq!(bench.inspect().unwrap().banned.len(), 1);
        bench.run(&mut members, 60);
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
        let (mut bench, mut members) = running(speaks);
        let before = members[0].epoch;
        bench.operate(Action::Rebalance).unwrap();
        bench.run(&mut members, 10);
        assert!(members[0].epoch > before, "{speaks:?}");
        assert_eq!(members.iter().map(|m| m.owned.len()).sum::<usize>(), 4);
    }
}

#[test]
fn who_is_not_there_cannot_be_acted_on() {
    let (mut bench, _) = running(Speaks::Consumer);
    let nobody = || Who::Member("nobody".into());
    let kick = Action::Kick {
        members: vec![nobody()],
        ban_ms: 0,
    };
    assert_eq!(kind(bench.operate(kick)), NotDoneKind::NotFound);
    let drain = Action::Drain { member: nobody() };
    assert_eq!(kind(bench.operate(drain)), NotDoneKind::NotFound);
    assert_eq!(kind(bench.operate(Action::Delete)), NotDoneKind::Conflict);
}

#[test]
fn a_group_has_no_more_members_and_offsets_than_it_may() {
    for speaks in ALL {
        let (mut bench, mut members) = running(speaks);
        let limits = vec![
            (Setting::MembersMax, Some(2)),
            (Setting::OffsetsMax, Some(4)),
        ];
        bench.operate(Action::Configure(limits)).unwrap();
        members.push(Member::new("late", speaks));
        bench.run(&mut members, 10);
        assert!(!members[2].is_settled(), "{speaks:?}");
        assert_eq!(bench.here().len(), 2, "{speaks:?}");
    }
    let mut bench = Bench::new();
    let limit = vec![(Setting::OffsetsMax, Some(1))];
    bench.operate(Action::Configure(limit)).unwrap();
    assert_eq!(bench.error(commit("", -1, 0, 1)), ErrorCode::None);
    assert_eq!(bench.error(commit("", -1, 0, 2)), ErrorCode::None);
    let refused = bench.error(commit("", -1, 1, 1));
    assert_eq!(refused, ErrorCode::InvalidCommitOffsetSize);
}

#[test]
fn a_preview_tells_what_would_move_and_changes_nothing() {
    for speaks in ALL {
        let (mut bench, members) = running(speaks);
        let same = Supposition {
            assignor: Some("uniform".into()),
            ..Supposition::default()
        };
        let told = bench.preview(&same).unwrap();
        assert_eq!((told.stayed_count, told.moves.len()), (4, 0), "{speaks:?}");
        let fewer = Supposition {
            members_removed: vec![Who::Member(members[0].member_id.clone())],
            ..same.clone()
        };
        let told = bench.preview(&fewer).unwrap();
        assert_eq!((told.stayed_count, told.moves.len()), (2, 2), "{speaks:?}");
        let more = Supposition {
            members_added: 2,
            topics: vec![("t".into(), 8)],
            ..same
        };
        let told = bench.preview(&more).unwrap();
        assert_eq!(told.members.len(), 4);
        assert_eq!(told.stayed_count + told.moves.len(), 8, "{speaks:?}");
    }
    let (mut bench, _) = running(Speaks::Cooperative);
    let unknown = bench.preview(&Supposition::default());
    assert_eq!(unknown.unwrap_err().kind, NotDoneKind::Conflict);
}

#[test]
fn an_action_that_dies_with_the_process_leaves_nothing_behind() {
    for speaks in ALL {
        let (mut bench, mut members) = running(speaks);
        bench.begin(Action::Reset(vec![to(0, 7), to(1, 7)]));
        bench.run(&mut members[..1], 2);
        bench.restart();
        members.iter_mut().for_each(Member::hang_up);
        bench.run(&mut members, 60);
        assert_eq!((bench.committed(0), bench.committed(1)), (50, 50));
        let owned: usize = members.iter().map(|m| m.owned.len()).sum();
        assert_eq!(owned, 4, "{speaks:?}: nothing stays with nobody");
    }
}

#[test]
fn a_reset_that_was_acknowledged_outlives_the_process() {
    for speaks in ALL {
        let (mut bench, mut members) = running(speaks);
        let partition = members[0].partitions()[0];
        let id = bench.begin(Action::Reset(vec![to(partition, 7)]));
        // It is over as soon as everybody has let go, before a classic group is assigned anew.
        let epochs: Vec<_> = loop {
            let epochs = members.iter().map(|member| member.epoch).collect();
            if bench.outcome(id).is_some() {
                break epochs;
            }
            for member in &mut members {
                member.turn(&mut bench);
            }
            bench.advance(1_000);
        };
        bench.restart();
        members.iter_mut().for_each(Member::hang_up);
        for (member, epoch) in members.iter().zip(epochs) {
            for epoch in [epoch, member.epoch] {
                let old = commit(&member.member_id, epoch, partition, 50);
                assert_ne!(bench.error(old), ErrorCode::None, "{speaks:?} {epoch}");
            }
        }
        bench.run(&mut members, 15);
        assert_eq!(bench.committed(partition), 7);
        let owned: usize = members.iter().map(|m| m.owned.len()).sum();
        assert_eq!(owned, 4, "{speaks:?}: nothing stays with nobody");
        // The new owner commits; another one still must not, and that too outlives the process.
        let at_it = |member: &&Member| member.owned.contains_key(&partition);
        let owner = members.iter().find(at_it).expect("all are owned");
        let new = commit(&owner.member_id, owner.epoch, partition, 8);
        assert_eq!(bench.error(new), ErrorCode::None, "{speaks:?}");
        bench.restart();
        let other = members.iter().find(|member| !at_it(member)).expect("two");
        let old = commit(&other.member_id, other.epoch, partition, 50);
        assert_ne!(bench.error(old), ErrorCode::None, "{speaks:?}");
    }
}

#[test]
fn a_generation_that_lacks_something_by_order_is_not_taken_for_whole() {
    for speaks in ALL {
        let (mut bench, mut members) = running(speaks);
        let id = bench.begin(Action::Pause);
        finish(&mut bench, &mut members, id);
        bench.run(&mut members, 15);
        assert!(members.iter().all(|member| member.owned.is_empty()));
        // The process ends when the end of the pause is kept, and nobody has been told.
        bench.own.paused = false;
        bench.restart();
        members.iter_mut().for_each(Member::hang_up);
        bench.run(&mut members, 15);
        let owned: usize = members.iter().map(|member| member.owned.len()).sum();
        assert_eq!(owned, 4, "{speaks:?}: nothing stays with nobody");
    }
}

#[test]
fn lives_under_an_operators_hands_end_well() {
    let only = std::env::var("SEED")
        .ok()
        .and_then(|seed| seed.parse().ok());
    for seed in only.map_or(0..60, |seed: u64| seed..seed + 1) {
        if let Err(why) = super::live(seed, 150) {
            panic!("seed {seed}: {why}");
        }
    }
}
