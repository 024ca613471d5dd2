//! The book of one group: the rebalance that runs, those that are over, members that come and go, and the audit trail.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::{JournalConfig, Lost, Moves, Shelf, words};
use crate::group::operator::{AuditEntry, MemberRef, Rebalance, Trigger};
use crate::group::record::MemberState;
use crate::group::state::ConsumerGroup;
use crate::group::stats::Cause;
use crate::group::types::{MemberId, Millis};

/// A book without its entries.
pub(super) const BOOK_BYTES: usize = 600;
/// An audit entry.
pub(super) const AUDIT_BYTES: usize = 160;
/// The least that an entry takes.
pub(super) const ENTRY_BYTES_MIN: usize = AUDIT_BYTES;
/// An entry for a rebalance without what follows.
const ENTRY_BYTES: usize = 400;
/// What began it, or came to it.
const TRIGGER_BYTES: usize = 160;
/// A partition that moved.
const MOVE_BYTES: usize = 64;

/// The most triggers of one rebalance that are kept; the others are counted.
const TRIGGERS_MAX: usize = 32;
/// The most members whose coming and going is followed.
const COMERS_MAX: usize = 32;
/// So many returns within the window, for each process that a name stands for, and the member flaps.
const RETURNS_MIN: usize = 3;
/// The most returns that are remembered of one member.
const RETURNS_MAX: usize = 64;

/// What is known of one group.
#[derive(Debug, Default)]
pub(super) struct Book {
    /// Of the newest rebalance.
    pub(super) number: u64,
    pub(super) running: Option<Box<Running>>,
    /// Oldest first.
    pub(super) done: VecDeque<Arc<Rebalance>>,
    /// When the last rebalances began, as many as make a storm.
    begun: VecDeque<(Millis, Cause)>,
    comers: Vec<Comer>,
    /// Who acted on the group last, and how.
    pub(super) operator: Option<(Arc<str>, Arc<str>)>,
    /// Oldest first.
    pub(super) audit: VecDeque<AuditEntry>,
    /// Of the next entry.
    pub(super) audit_number: u64,
}

/// A member that comes and goes, or several of one name.
#[derive(Debug)]
struct Comer {
    member: MemberRef,
    present: usize,
    /// The most that were present at once.
    peak: usize,
    /// Went and did not come back yet.
    gone: usize,
    returns: VecDeque<Millis>,
    seen_at: Millis,
}

/// Whether two are the same for somebody who looks from outside.
fn same(a: &MemberRef, b: &MemberRef) -> bool {
    match (&a.instance_id, &b.instance_id) {
        (None, None) => a.client_id == b.client_id && a.client_host == b.client_host,
        (a, b) => a == b,
    }
}

impl Book {
    pub(super) fn newest(&self) -> Option<&Rebalance> {
        let running = self.running.as_ref().map(|running| &running.entry);
        running.or_else(|| self.done.back().map(|entry| &**entry))
    }

    pub(super) fn began_at(&self) -> Option<Millis> {
        self.newest().map(|entry| entry.began_at)
    }

    pub(super) fn begun(&mut self, now: Millis, cause: Cause, config: &JournalConfig) {
        while self.begun.len() >= config.storm_rebalances.max(1) {
            self.begun.pop_front();
        }
        self.begun.push_back((now, cause));
    }

    /// The causes of the rebalances that make a storm; `None` if there is none.
    pub(super) fn storm(&self, now: Millis, config: &JournalConfig) -> Option<Vec<Cause>> {
        let full = self.begun.len() >= config.storm_rebalances.max(1);
        let (since, _) = *self.begun.front().filter(|_| full)?;
        let stormy = now.since(since) <= config.storm_window_ms;
        stormy.then(|| self.begun.iter().map(|(_, cause)| *cause).collect())
    }

    pub(super) fn comes_or_goes(&mut self, now: Millis, trigger: &Trigger, config: &JournalConfig) {
        let Some(member) = &trigger.member else {
            return;
        };
        let comes = match trigger.cause {
            Cause::MemberJoined => true,
            Cause::MemberLeft
            | Cause::SessionExpired
            | Cause::RebalanceTimeout
            | Cause::SyncTimeout => false,
            _ => return,
        };
        let comer = self.comer(member);
        if now.since(comer.seen_at) > config.storm_window_ms {
            comer.returns.clear();
            (comer.gone, comer.peak) = (0, comer.present);
        }
        comer.seen_at = now;
        comer.member = member.clone();
        if comes {
            comer.present += 1;
            comer.peak = comer.peak.max(comer.present);
            if comer.gone > 0 {
                comer.gone -= 1;
                comer.returns.push_back(now);
                if comer.returns.len() > RETURNS_MAX {
                    comer.returns.pop_front();
                }
            }
        } else {
            comer.present = comer.present.saturating_sub(1);
            comer.gone += 1;
        }
    }

    fn comer(&mut self, member: &MemberRef) -> &mut Comer {
        let known = self.comers.iter().position(|c| same(&c.member, member));
        let place = known.unwrap_or_else(|| {
            if self.comers.len() >= COMERS_MAX {
                let oldest = self.comers.iter().enumerate();
                let oldest = oldest.min_by_key(|(_, comer)| comer.seen_at);
                let place = oldest.map_or(0, |(place, _)| place);
                self.comers.remove(place);
            }
            self.comers.push(Comer {
                member: member.clone(),
                present: 0,
                peak: 0,
                gone: 0,
                returns: VecDeque::new(),
                seen_at: Millis::default(),
            });
            self.comers.len() - 1
        });
        &mut self.comers[place]
    }

    /// Members that came back over and over, each with how often.
    pub(super) fn flapping(&self, now: Millis, config: &JournalConfig) -> Vec<(MemberRef, u32)> {
        let mut flapping = Vec::new();
        for comer in &self.comers {
            let within = |at: &&Millis| now.since(**at) <= config.storm_window_ms;
            let returns = comer.returns.iter().filter(within).count() / comer.peak.max(1);
            if returns >= RETURNS_MIN {
                flapping.push((comer.member.clone(), u32::try_from(returns).unwrap_or(0)));
            }
        }
        flapping.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.member_id.cmp(&b.0.member_id)));
        flapping
    }

    /// Keeps an entry; gives its bytes.
    pub(super) fn keep(&mut self, rebalance: Arc<Rebalance>) -> usize {
        let bytes = weigh(&rebalance);
        self.done.push_back(rebalance);
        bytes
    }

    /// Drops the oldest entry; gives its bytes.
    pub(super) fn drop_oldest(&mut self) -> usize {
        self.done.pop_front().map_or(0, |entry| weigh(&entry))
    }

    fn first_audit(&self) -> u64 {
        self.audit_number - self.audit.len() as u64
    }

    /// Whether it still has the entry.
    pub(super) fn holds(&self, shelf: Shelf, number: u64) -> bool {
        match shelf {
            Shelf::Rebalances => self.done.front().is_some_and(|e| e.number <= number),
            Shelf::Audit => self.first_audit() <= number,
        }
    }

    /// Drops the entry if it is the oldest; gives its bytes.
    pub(super) fn drop_numbered(&mut self, shelf: Shelf, number: u64) -> usize {
        match shelf {
            Shelf::Rebalances if self.done.front().is_some_and(|e| e.number == number) => {
                self.drop_oldest()
            }
            Shelf::Audit if self.first_audit() == number && self.audit.pop_front().is_some() => {
                AUDIT_BYTES
            }
            _ => 0,
        }
    }

    /// Bytes that it takes, about.
    pub(super) fn bytes(&self) -> usize {
        let done = self.done.iter().map(|entry| weigh(entry)).sum::<usize>();
        BOOK_BYTES + done + AUDIT_BYTES * self.audit.len()
    }

    /// The rebalances, newest first.
    pub(super) fn rebalances(&self, now: Millis) -> Vec<Rebalance> {
        let running = self.running.iter().map(|running| running.so_far(now));
        let done = self.done.iter().rev().map(|entry| (**entry).clone());
        running.chain(done).collect()
    }
}

fn weigh(entry: &Rebalance) -> usize {
    ENTRY_BYTES
        + entry.why.len()
        + TRIGGER_BYTES * entry.triggers.len()
        + MOVE_BYTES * entry.moves.len()
}

/// A rebalance that is under way.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) entry: Rebalance,
    pub(super) kind: &'static str,
    /// Triggers that were not kept.
    more: usize,
    /// Whether it is known who is to have what.
    knows_moves: bool,
    /// Who came last in this phase.
    pub(super) last_comer: Option<MemberRef>,
    /// How long whoever `waited_for` names was waited for.
    waited_ms: i64,
    phase_at: Millis,
    /// Of a consumer group: when its target was computed, and when a member last let go.
    pub(super) targeted_at: Option<Millis>,
    pub(super) let_go_at: Option<Millis>,
    /// Of a consumer group: who is not at its target.
    pub(super) waiting: BTreeSet<MemberId>,
    /// What members had that are gone.
    pub(super) lost: Vec<Lost>,
}

impl Running {
    pub(super) fn new(number: u64, kind: &'static str, now: Millis, epochs: (i32, i32)) -> Self {
        Self {
            entry: Rebalance {
                number,
                from_epoch: epochs.0,
                to_epoch: epochs.1,
                triggers: Vec::new(),
                began_at: now,
                ended_at: None,
                outcome: "running",
                phases: Vec::new(),
                waited_for: None,
                moves: Vec::new(),
                moved_count: 0,
                stayed_count: 0,
                why: String::new(),
            },
            kind,
            more: 0,
            knows_moves: false,
            last_comer: None,
            waited_ms: 0,
            phase_at: now,
            targeted_at: None,
            let_go_at: None,
            waiting: BTreeSet::new(),
            lost: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, trigger: Trigger) {
        if self.entry.triggers.len() < TRIGGERS_MAX {
            self.entry.triggers.push(trigger);
        } else {
            self.more += 1;
        }
    }

    pub(super) fn moves(&mut self, moves: Moves) {
        self.entry.moves = moves.moves;
        self.entry.moved_count = moves.moved_count;
        self.entry.stayed_count = moves.stayed_count;
        self.knows_moves = true;
    }

    pub(super) fn close_phase(&mut self, name: &'static str, now: Millis) {
        let took_ms = now.since(self.phase_at);
        self.entry.phases.push((name, took_ms));
        self.phase_at = now;
        if let Some(comer) = self.last_comer.take()
            && took_ms >= self.waited_ms
        {
            self.entry.waited_for = Some(comer);
            self.waited_ms = took_ms;
        }
    }

    fn close_phases(&mut self, now: Millis) {
        if self.kind == "classic" {
            let name = if self.entry.phases.is_empty() {
                "join"
            } else {
                "sync"
            };
            return self.close_phase(name, now);
        }
        let Some(targeted_at) = self.targeted_at else {
            return self.close_phase("assign", now);
        };
        let let_go_at = self.let_go_at.unwrap_or(targeted_at).max(targeted_at);
        self.entry
            .phases
            .push(("revoke", let_go_at.since(targeted_at)));
        self.phase_at = let_go_at;
        self.close_phase("take", now);
        self.waited_ms = now.since(targeted_at);
    }

    pub(super) fn finish(mut self: Box<Self>, now: Millis, outcome: &'static str) -> Rebalance {
        self.close_phases(now);
        self.entry.ended_at = Some(now);
        self.entry.outcome = outcome;
        self.entry.why = self.why(now);
        self.entry
    }

    /// How it stands.
    fn so_far(&self, now: Millis) -> Rebalance {
        Rebalance {
            why: self.why(now),
            ..self.entry.clone()
        }
    }

    fn why(&self, now: Millis) -> String {
        words::why(
            &self.entry,
            now,
            &words::Besides {
                more: self.more,
                knows_moves: self.knows_moves,
                waited_ms: self.waited_ms,
                waiting: self.waiting.len(),
            },
        )
    }

    /// Goes on after the group was loaded again, from where the facts stand; tells whether it does.
    pub(super) fn resume(&mut self, group: &ConsumerGroup) -> bool {
        if self.kind != "consumer" || self.entry.to_epoch != group.epoch() || group.is_empty() {
            return false;
        }
        if group.awaits_target() {
            self.phase_at = self.entry.began_at;
            self.entry.phases.clear();
            (self.targeted_at, self.let_go_at) = (None, None);
            self.waiting.clear();
            return true;
        }
        let epoch = group.assignment_epoch();
        let settled = |member: &crate::group::state::ConsumerMember| {
            let current = member.current();
            current.member_epoch == epoch && current.state == MemberState::Stable
        };
        let waiting = group.members().filter(|(_, member)| !settled(member));
        self.waiting = waiting.map(|(member_id, _)| member_id.clone()).collect();
        self.targeted_at.is_some() && !self.waiting.is_empty()
    }
}
