//! The journal: why groups rebalanced, who commits, and what operators did. Soft state that follows the facts and never
//! changes them; no record hangs on it, and no decision.
//!
//! The rest of the core tells it what happens, by calls named after what happened: [`Journal::begins`],
//! [`Journal::joined`], [`Journal::targets`], …. It is bounded by entries per group and by bytes in all, and goes from
//! one coordinator to the next when one is loaded again.

mod book;
mod inspect;
mod moves;
mod reasons;
#[cfg(test)]
mod tests;
pub(super) mod touch;
mod words;

use std::collections::VecDeque;
use std::sync::Arc;

use hashbrown::HashMap;

use self::book::{Book, Running};
pub(super) use self::moves::{Lost, Moves, Side, diff};
pub(super) use self::reasons::Triggers;
use super::operator::{AuditEntry, MemberRef, Rebalance, Trigger};
use super::stats::Cause;
use super::types::{GroupId, MemberId, Millis, TopicId, TopicName, TopicsChange};
use super::{Coordinator, state};

/// How many changes of topics are remembered, to tell why a member that follows topics itself rejoins.
const RECENT_TOPICS_MAX: usize = 256;
/// How much later than others a member may notice what became of topics: `metadata.max.age.ms`, as clients have it.
const NOTICED_LATE_MS: i64 = 300_000;
/// How much is kept for a shell that does not come for it.
const OUTBOX_MAX: usize = 4_096;

/// How the journal is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalConfig {
    /// Whether it is kept at all, and with it who commits (`convoke.journal.enable`).
    pub enable: bool,
    /// The most rebalances of one group (`convoke.journal.rebalances.max`).
    pub rebalances_max: usize,
    /// The most partition moves of one rebalance that are kept one by one (`convoke.journal.moves.max`).
    pub moves_max: usize,
    /// The most audit entries of one group (`convoke.journal.audit.max`).
    pub audit_max: usize,
    /// The most bytes of one coordinator, about; the oldest entries go first.
    pub bytes_max: usize,
    /// So many rebalances within the window are a storm (`convoke.journal.storm.rebalances`).
    pub storm_rebalances: usize,
    /// The window of storms, and of members that come and go, in milliseconds (`convoke.journal.storm.window.ms`).
    pub storm_window_ms: i64,
    /// Within so many milliseconds, two assign-mode clients on one partition are a conflict
    /// (`convoke.journal.conflict.window.ms`).
    pub conflict_window_ms: i64,
    /// Whether somebody takes what is finished by [`Coordinator::take_noted`].
    pub tell: bool,
}

impl Default for JournalConfig {
    fn default() -> Self {
        Self {
            enable: true,
            rebalances_max: 50,
            moves_max: 200,
            audit_max: 100,
            bytes_max: 1 << 20,
            storm_rebalances: 10,
            storm_window_ms: 600_000,
            conflict_window_ms: 300_000,
            tell: false,
        }
    }
}

/// Something that is finished and will not change any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noted {
    /// A rebalance.
    Rebalance {
        /// The group.
        group_id: GroupId,
        /// `classic` or `consumer`.
        kind: &'static str,
        /// The entry.
        rebalance: Arc<Rebalance>,
    },
    /// A change of an offset.
    Audit {
        /// The group.
        group_id: GroupId,
        /// The entry.
        entry: AuditEntry,
    },
}

impl Noted {
    /// The group.
    #[must_use]
    pub fn group_id(&self) -> &GroupId {
        match self {
            Self::Rebalance { group_id, .. } | Self::Audit { group_id, .. } => group_id,
        }
    }
}

/// Which ring of a book an entry stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shelf {
    Rebalances,
    Audit,
}

/// The journal of one coordinator. See the module.
#[derive(Debug, Default)]
pub struct Journal {
    config: JournalConfig,
    books: HashMap<GroupId, Box<Book>>,
    /// What is finished, oldest first, with its number: what goes first when room is short.
    order: VecDeque<(GroupId, Shelf, u64)>,
    bytes: usize,
    /// What became of topics lately, oldest first.
    recent: VecDeque<(Millis, Cause, TopicName)>,
    /// Topics that were deleted lately, oldest first: what members had of them is told by name.
    gone: VecDeque<(TopicId, TopicName)>,
    outbox: Vec<Noted>,
    /// Who touched which offset, while the journal is between two coordinators.
    touches: state::Touches,
}

impl Journal {
    pub(super) fn new(config: JournalConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    pub(super) fn config(&self) -> &JournalConfig {
        &self.config
    }

    /// Whether it is kept.
    pub(super) fn is_on(&self) -> bool {
        self.config.enable
    }

    fn book(&mut self, group_id: &GroupId) -> &mut Book {
        let bytes = &mut self.bytes;
        self.books.entry(group_id.clone()).or_insert_with(|| {
            *bytes += book::BOOK_BYTES;
            Box::default()
        })
    }

    fn running(&mut self, group_id: &str) -> Option<&mut Running> {
        self.books.get_mut(group_id)?.running.as_deref_mut()
    }

    /// When the group's newest rebalance began.
    pub(super) fn began_at(&self, group_id: &str) -> Option<Millis> {
        self.books.get(group_id)?.began_at()
    }

    /// A rebalance begins; one that runs is over with it. It counts from what began it: a group may have waited a little
    /// for more of the same since.
    pub(super) fn begins(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        kind: &'static str,
        (from_epoch, to_epoch): (i32, i32),
        why: Triggers,
    ) {
        if !self.is_on() {
            return;
        }
        self.ends(now, group_id, "superseded");
        let config = self.config;
        let book = self.book(group_id);
        book.number += 1;
        book.begun(now, why.cause(), &config);
        let since = why.since().unwrap_or(now).min(now);
        let running = Running::new(book.number, kind, since, (from_epoch, to_epoch));
        book.running = Some(Box::new(running));
        self.adds(now, group_id, why);
    }

    /// Something came to the rebalance that runs.
    pub(super) fn adds(&mut self, now: Millis, group_id: &str, why: impl Into<Triggers>) {
        let config = self.config;
        let Some(book) = self.books.get_mut(group_id) else {
            return;
        };
        for mut trigger in why.into() {
            if trigger.at == Millis::default() {
                trigger.at = now;
            }
            book.comes_or_goes(now, &trigger, &config);
            if let Some(running) = &mut book.running {
                running.add(trigger);
            }
        }
    }

    /// A member of a classic group joined, or synced: nobody has waited for anybody longer than for this one.
    pub(super) fn comes(&mut self, group_id: &str, member: impl FnOnce() -> MemberRef) {
        if let Some(running) = self.running(group_id) {
            running.last_comer = Some(member());
        }
    }

    /// The join phase of a classic group is over. If it merely `gathered` for its initial delay, nobody was waited for.
    pub(super) fn joined(&mut self, now: Millis, group_id: &str, generation: i32, gathered: bool) {
        if let Some(running) = self.running(group_id) {
            if gathered {
                running.last_comer = None;
            }
            running.entry.to_epoch = generation;
            running.close_phase("join", now);
        }
    }

    /// The leader's assignment is there.
    pub(super) fn assigned(&mut self, group_id: &str, moves: Moves) {
        if let Some(running) = self.running(group_id) {
            running.moves(moves);
        }
    }

    /// The epoch of a consumer group rises. A rebalance whose target is not computed yet goes on with it.
    pub(super) fn rises(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        (from_epoch, to_epoch): (i32, i32),
        why: Triggers,
    ) {
        match self.running(group_id) {
            Some(running) if running.kind == "consumer" && running.targeted_at.is_none() => {
                running.entry.to_epoch = to_epoch;
                self.adds(now, group_id, why);
            }
            _ => self.begins(now, group_id, "consumer", (from_epoch, to_epoch), why),
        }
    }

    /// Members of a consumer group are gone, with what they were to have.
    pub(super) fn lost(&mut self, group_id: &str, lost: Vec<Lost>) {
        if let Some(running) = self.running(group_id) {
            running.lost.extend(lost);
        }
    }

    /// Takes what was lost in the rebalance that runs.
    pub(super) fn take_lost(&mut self, group_id: &str) -> Vec<Lost> {
        self.running(group_id)
            .map(|running| std::mem::take(&mut running.lost))
            .unwrap_or_default()
    }

    /// A consumer group has a new target, towards which these members have to go.
    pub(super) fn targets(
        &mut self,
        now: Millis,
        group_id: &str,
        moves: Moves,
        waiting: impl Iterator<Item = MemberId>,
    ) {
        if let Some(running) = self.running(group_id) {
            running.targeted_at = Some(now);
            running.close_phase("assign", now);
            running.moves(moves);
            running.waiting = waiting.collect();
        }
    }

    /// A member of a consumer group has let go of what is to move.
    pub(super) fn lets_go(&mut self, now: Millis, group_id: &str) {
        if let Some(running) = self.running(group_id) {
            running.let_go_at = Some(now);
        }
    }

    /// A member of a consumer group is at its target.
    pub(super) fn settles(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_id: &str,
        member: impl FnOnce() -> MemberRef,
    ) {
        let Some(running) = self.running(group_id) else {
            return;
        };
        if running.waiting.remove(member_id) && running.waiting.is_empty() {
            running.last_comer = Some(member());
            self.ends(now, group_id, "completed");
        }
    }

    /// A static member of a consumer group has another id from now on.
    pub(super) fn renames(&mut self, group_id: &str, old: &str, new: &MemberId) {
        if let Some(running) = self.running(group_id)
            && running.waiting.remove(old)
        {
            running.waiting.insert(new.clone());
        }
    }

    /// The rebalance that runs, if any, is over.
    pub(super) fn ends(&mut self, now: Millis, group_id: &GroupId, outcome: &'static str) {
        let book = self.books.get_mut(&**group_id);
        let Some(running) = book.and_then(|book| book.running.take()) else {
            return;
        };
        let kind = running.kind;
        let rebalance = Arc::new(running.finish(now, outcome));
        self.keep(group_id, rebalance.clone());
        self.note(Noted::Rebalance {
            group_id: group_id.clone(),
            kind,
            rebalance,
        });
        self.make_room();
    }

    fn keep(&mut self, group_id: &GroupId, rebalance: Arc<Rebalance>) {
        let max = self.config.rebalances_max;
        let number = rebalance.number;
        let Some(book) = self.books.get_mut(&**group_id).filter(|_| max > 0) else {
            return;
        };
        self.bytes += book.keep(rebalance);
        while book.done.len() > max {
            self.bytes -= book.drop_oldest();
        }
        self.order
            .push_back((group_id.clone(), Shelf::Rebalances, number));
    }

    /// An operator acts on the group: it counts as whoever does what follows for an operator's sake.
    pub(super) fn operated(&mut self, group_id: &GroupId, operator: &Arc<str>, action: &str) {
        if self.is_on() {
            let book = self.book(group_id);
            book.operator = Some((operator.clone(), action.into()));
        }
    }

    /// The operator that acted last, and how.
    pub(super) fn operator(&self, group_id: &str) -> Option<&(Arc<str>, Arc<str>)> {
        self.books.get(group_id)?.operator.as_ref()
    }

    /// A trigger for what an operator asked for.
    pub(super) fn by_operator(&self, group_id: &str) -> Trigger {
        match self.operator(group_id) {
            Some((operator, action)) => Trigger::operator(operator, action),
            None => Trigger::new(Cause::Operator),
        }
    }

    /// Writes down that an offset was changed by an operator, or went back.
    pub(super) fn audit(&mut self, group_id: &GroupId, entry: AuditEntry) {
        if !self.is_on() {
            return;
        }
        let max = self.config.audit_max;
        if max > 0 {
            let book = self.book(group_id);
            let number = book.audit_number;
            book.audit_number += 1;
            book.audit.push_back(entry.clone());
            let over = book.audit.len() > max;
            if over {
                book.audit.pop_front();
            } else {
                self.bytes += book::AUDIT_BYTES;
            }
            self.order
                .push_back((group_id.clone(), Shelf::Audit, number));
        }
        self.note(Noted::Audit {
            group_id: group_id.clone(),
            entry,
        });
        self.make_room();
    }

    /// The group is gone, and nobody can ask about it any more.
    pub(super) fn forget(&mut self, group_id: &str) {
        if let Some(book) = self.books.remove(group_id) {
            self.bytes -= book.bytes();
        }
    }

    /// Forgets groups that are gone.
    pub(super) fn retain(&mut self, exists: impl Fn(&GroupId) -> bool) {
        let bytes = &mut self.bytes;
        self.books.retain(|group_id, book| {
            let stays = exists(group_id);
            if !stays {
                *bytes -= book.bytes();
            }
            stays
        });
        self.drop_stale();
    }

    fn note(&mut self, noted: Noted) {
        if self.config.tell && self.outbox.len() < OUTBOX_MAX {
            self.outbox.push(noted);
        }
    }

    fn make_room(&mut self) {
        while self.bytes > self.config.bytes_max {
            let Some((group_id, shelf, number)) = self.order.pop_front() else {
                break;
            };
            if let Some(book) = self.books.get_mut(&*group_id) {
                self.bytes -= book.drop_numbered(shelf, number);
            }
        }
        let kept: usize = 2 * (self.bytes / book::ENTRY_BYTES_MIN) + 64;
        if self.order.len() > kept {
            self.drop_stale();
        }
    }

    /// Forgets the places of what its own group's bounds have thrown out.
    fn drop_stale(&mut self) {
        let books = &self.books;
        self.order.retain(|(group_id, shelf, number)| {
            let book = books.get(&**group_id);
            book.is_some_and(|book| book.holds(*shelf, *number))
        });
    }

    /// Topics came, grew or went.
    pub(super) fn topics_changed(&mut self, now: Millis, change: &TopicsChange) {
        for (name, id) in &change.deleted {
            if self.gone.len() == RECENT_TOPICS_MAX {
                self.gone.pop_front();
            }
            self.gone.push_back((*id, name.clone()));
        }
        let deleted = change.deleted.iter().map(|(name, _)| name);
        let kinds = [
            (Cause::TopicDeleted, deleted.collect::<Vec<_>>()),
            (Cause::TopicCreated, change.created.iter().collect()),
            (Cause::TopicGrown, change.grown.iter().collect()),
        ];
        for (cause, names) in kinds {
            for name in names {
                if self.recent.len() == RECENT_TOPICS_MAX {
                    self.recent.pop_front();
                }
                self.recent.push_back((now, cause, name.clone()));
            }
        }
    }

    /// The name of a topic that was deleted lately.
    pub(super) fn name_of_gone(&self, topic: TopicId) -> Option<&TopicName> {
        let found = self.gone.iter().rev().find(|(id, _)| *id == topic);
        found.map(|(_, name)| name)
    }

    /// What has become of topics after a moment, oldest first.
    pub(super) fn topics_since(
        &self,
        since: Millis,
    ) -> impl Iterator<Item = (Cause, &TopicName)> + '_ {
        let late = self.recent.iter().filter(move |(at, ..)| *at > since);
        late.map(|(_, cause, name)| (*cause, name))
    }

    /// When this last became of a topic; `None` if that is long ago.
    pub(super) fn topic_changed_at(&self, cause: Cause, topic: &str) -> Option<Millis> {
        let late = self.recent.iter().rev();
        let mut fits = late.filter(|(_, of, name)| *of == cause && **name == *topic);
        fits.next().map(|(at, ..)| *at)
    }

    /// What the group's newest rebalance began with, if that was a change of topics of not long ago.
    pub(super) fn topics_behind(
        &self,
        now: Millis,
        group_id: &str,
    ) -> Option<(Cause, Option<Arc<str>>)> {
        let first = self.books.get(group_id)?.newest()?.triggers.first()?;
        let cause = first.cause;
        let late =
            |(at, of, _): &(Millis, Cause, _)| *of == cause && now.since(*at) <= NOTICED_LATE_MS;
        let found = self.recent.iter().any(late);
        found.then(|| (cause, first.detail.clone()))
    }

    /// Bytes that it takes, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Coordinator {
    /// Takes the journal out of a coordinator that is dropped, for the next one.
    #[must_use]
    pub fn take_journal(&mut self) -> Journal {
        let config = self.journal.config;
        let mut journal = std::mem::replace(&mut self.journal, Journal::new(config));
        journal.touches = self.state.take_touches();
        journal
    }

    /// Goes on with the journal of the coordinator before: between the records and [`loaded`](Self::loaded). What ran is
    /// cut short, unless the facts say that it goes on.
    pub fn adopt_journal(&mut self, now: Millis, mut journal: Journal) {
        self.state.put_touches(std::mem::take(&mut journal.touches));
        let mut group_ids: Vec<GroupId> = journal.books.keys().cloned().collect();
        group_ids.sort_unstable();
        for group_id in group_ids {
            let goes_on = journal.running(&group_id).is_some_and(|running| {
                let group = self.state.consumer(&group_id);
                group.is_some_and(|group| running.resume(group))
            });
            if !goes_on {
                journal.ends(now, &group_id, "interrupted");
            }
        }
        self.journal = journal;
    }

    /// Bytes that the journal takes, about.
    #[must_use]
    pub fn journal_bytes(&self) -> usize {
        self.journal.bytes()
    }

    /// Takes what has been finished since the last time. Empty unless [`JournalConfig::tell`] is set.
    pub fn take_noted(&mut self) -> Vec<Noted> {
        std::mem::take(&mut self.journal.outbox)
    }

    /// Puts entries of an earlier life back, oldest first. Before anything happens.
    pub fn remember(&mut self, noted: Noted) {
        self.journal.remember(noted);
    }

    /// Writes down that an operator changed an offset.
    pub(super) fn audit(&mut self, group_id: &GroupId, entry: AuditEntry) {
        self.journal.audit(group_id, entry);
    }
}

impl Journal {
    fn remember(&mut self, noted: Noted) {
        if !self.is_on() {
            return;
        }
        let tell = std::mem::take(&mut self.config.tell);
        match noted {
            Noted::Rebalance {
                group_id,
                rebalance,
                ..
            } => {
                let book = self.book(&group_id);
                book.number = book.number.max(rebalance.number);
                self.keep(&group_id, rebalance);
            }
            Noted::Audit { group_id, entry } => self.audit(&group_id, entry),
        }
        self.config.tell = tell;
        self.make_room();
    }
}
