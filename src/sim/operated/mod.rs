//! Lives of one group under an operator's hands, beside the worlds: members of every kind, resets, drains, pauses, kicks,
//! deaths and restarts, at any moment.
//!
//! Every reset moves to offsets of its own era, and members only read on from what was committed: so an offset tells what
//! it is based on, and an old one that wins is seen at once. An operator was told that a group is paused, or a member
//! drained: then it owns nothing. In the end everything must come to its end.

mod bench;
mod members;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use self::bench::{Bench, to};
use self::members::{Member, PARTITIONS, Speaks};
use super::rng::Rng;
use crate::group::operator::{Action, NotDoneKind, Operated, Setting, Who};
use crate::group::types::MemberId;

const ERA: i64 = 1_000_000;

/// `Err` says in words what does not hold.
type Verdict = Result<(), String>;

/// What an operator waits for.
#[derive(Debug)]
enum Order {
    Reset,
    Drain(MemberId),
    Pause,
}

#[derive(Debug)]
struct Life {
    bench: Bench,
    rng: Rng,
    members: Vec<Member>,
    era: i64,
    /// The era of each partition's committed offset, as operators were told.
    told: BTreeMap<i32, i64>,
    running: Option<(u64, Order)>,
    paused: bool,
    drained: Vec<MemberId>,
    /// The most members, if the group sets one.
    members_max: Option<usize>,
    mixed: bool,
}

/// Lives through one life: so many steps, then calm.
///
/// # Errors
/// What did not hold.
pub(super) fn live(seed: u64, steps: u64) -> Verdict {
    let mut life = Life::new(seed);
    for _ in 0..steps {
        life.step()?;
    }
    life.calm()
}

impl Life {
    fn new(seed: u64) -> Self {
        let kinds = [
            [Speaks::Eager; 3],
            [Speaks::Cooperative; 3],
            [Speaks::Consumer; 3],
            [Speaks::Cooperative, Speaks::Cooperative, Speaks::Consumer],
        ];
        let [a, b, c] = kinds[(seed % 4) as usize];
        let mixed = seed % 4 == 3;
        let third = if mixed {
            Member::new("c", c)
        } else {
            Member::fixed("c", c)
        };
        Self {
            bench: Bench::new(),
            rng: Rng::new(seed ^ 0x0be8_a7ed),
            members: vec![Member::new("a", a), Member::new("b", b), third],
            era: 0,
            told: BTreeMap::new(),
            running: None,
            paused: false,
            drained: Vec::new(),
            members_max: None,
            mixed,
        }
    }

    fn step(&mut self) -> Verdict {
        let place = self.rng.index(self.members.len());
        let member = &mut self.members[place];
        match self.rng.below(100) {
            0..60 => member.turn(&mut self.bench),
            60..70 => member.read(),
            70..80 => member.commit_all(&mut self.bench),
            80..84 => member.commit_old(&mut self.bench),
            84..86 if self.rng.chance(300) => member.leave(&mut self.bench),
            86 if self.rng.chance(200) => member.die(),
            87 if self.rng.chance(200) => self.restart(),
            88..92 => self.order()?,
            _ => {
                let ms = *self.rng.pick(&[10, 100, 1_000, 3_000]);
                self.bench.advance(ms);
            }
        }
        self.look()
    }

    fn restart(&mut self) {
        self.bench.restart();
        self.running = None;
        self.drained.clear();
        // That it is to be paused outlives the process; that everybody has let go must be told anew.
        self.paused = false;
        self.members.iter_mut().for_each(Member::hang_up);
    }

    fn order(&mut self) -> Verdict {
        let place = self.rng.index(self.members.len());
        let member_id = self.members[place].member_id.clone();
        match self.rng.below(11) {
            0..5 => {
                self.era += 1;
                let mut moves = Vec::new();
                for partition in 0..PARTITIONS {
                    if self.rng.chance(500) {
                        moves.push(to(partition, self.era * ERA));
                    }
                }
                return self.begin(Action::Reset(moves), Order::Reset);
            }
            5 => return self.begin(Action::Pause, Order::Pause),
            6 => {
                self.paused = false;
                let _ = self.bench.operate(Action::Resume);
            }
            7 => {
                let who = Who::Member(member_id.clone());
                return self.begin(Action::Drain { member: who }, Order::Drain(member_id));
            }
            8 => {
                let members = vec![Who::Member(member_id)];
                let ban_ms = self.rng.between(0, 1) * 3_000;
                let _ = self.bench.operate(Action::Kick { members, ban_ms });
            }
            9 => {
                let here = self.bench.here().len();
                let limit = self.rng.chance(500).then_some(here.max(1));
                self.limit(limit);
            }
            _ => {
                let _ = self.bench.operate(Action::Rebalance);
            }
        }
        Ok(())
    }

    fn limit(&mut self, limit: Option<usize>) {
        self.members_max = limit;
        self.bench.own.members_max = limit.map(|limit| limit as i64);
        let value = self.bench.own.members_max;
        let _ = self
            .bench
            .operate(Action::Configure(vec![(Setting::MembersMax, value)]));
    }

    fn begin(&mut self, action: Action, order: Order) -> Verdict {
        let id = self.bench.begin(action);
        if self.running.is_none() {
            self.running = Some((id, order));
            return Ok(());
        }
        match self.bench.outcome(id) {
            Some(Err(why)) if why.kind != NotDoneKind::Unavailable => Ok(()),
            other => Err(format!("two actions at once: {other:?}")),
        }
    }

    fn done(&mut self, order: Order, operated: &Operated) {
        match order {
            Order::Reset => {
                for change in &operated.offsets {
                    self.told
                        .insert(change.partition, change.to.unwrap_or(0) / ERA);
                }
            }
            Order::Pause => self.paused = true,
            Order::Drain(member_id) => self.drained.push(member_id),
        }
    }

    /// What must hold after every step.
    fn look(&mut self) -> Verdict {
        if let Some(wrong) = self.bench.wrong.take() {
            return Err(wrong);
        }
        if let Some((id, _)) = self.running
            && let Some(outcome) = self.bench.outcome(id)
            && let Some((_, order)) = self.running.take()
            && let Ok(operated) = outcome
        {
            self.done(order, &operated);
        }
        for partition in 0..PARTITIONS {
            let era = self.bench.committed(partition).max(0) / ERA;
            let told = self.told.get(&partition).copied().unwrap_or(0);
            if era != told {
                return Err(format!(
                    "the offset of partition {partition} is of era {era}, but operators were told of {told}"
                ));
            }
        }
        let here = self.bench.here();
        // A classic group counts who has joined, as Kafka does: absent members are there besides.
        let is_strict = self.members.iter().all(|m| m.speaks == Speaks::Consumer);
        if let Some(limit) = self.members_max
            && is_strict
            && here.len() > limit
        {
            return Err(format!("{} members, of whom {limit} may be", here.len()));
        }
        self.drained.retain(|id| here.iter().any(|(m, _)| m == id));
        self.look_at_hands(&here)
    }

    fn look_at_hands(&self, here: &[(MemberId, i32)]) -> Verdict {
        let mut owners = BTreeMap::new();
        for member in &self.members {
            // Whoever is no member, or of another generation, will hear of it.
            let current = (member.member_id.clone(), member.epoch);
            if !here.contains(&current) {
                continue;
            }
            let owned = member.partitions();
            let name = member.name;
            if self.paused && !owned.is_empty() {
                return Err(format!("{name} owns {owned:?} in a paused group"));
            }
            if self.drained.contains(&member.member_id) && !owned.is_empty() {
                return Err(format!("{name} was drained and owns {owned:?}"));
            }
            for partition in owned {
                // Whoever has not seen the last classic assignment keeps what it had when the group goes over to the
                // other protocol, as in Kafka.
                let other = owners.insert(partition, name).filter(|_| !self.mixed);
                if let Some(other) = other {
                    return Err(format!("{other} and {name} own partition {partition}"));
                }
            }
        }
        Ok(())
    }

    /// Nothing happens any more but members' turns: everything must come to its end.
    fn calm(&mut self) -> Verdict {
        self.limit(None);
        let mut well = 0;
        for _ in 0..400 {
            for place in 0..self.members.len() {
                self.members[place].turn(&mut self.bench);
                self.look()?;
            }
            self.bench.advance(1_000);
            self.look()?;
            let settled = self.running.is_none()
                && self.members.iter().all(Member::is_settled)
                && self.all_owned();
            well = if settled { well + 1 } else { 0 };
            if well == 10 {
                return Ok(());
            }
        }
        let group = self.bench.inspect();
        Err(format!(
            "not all is well in the end: {:?} {:?} {group:?}",
            self.running, self.members
        ))
    }

    fn all_owned(&self) -> bool {
        let owned: usize = self.members.iter().map(|member| member.owned.len()).sum();
        let is_drained = |member: &Member| self.drained.contains(&member.member_id);
        let idle = self.members.iter().all(is_drained);
        owned == PARTITIONS as usize || idle || self.bench.own.paused
    }
}
