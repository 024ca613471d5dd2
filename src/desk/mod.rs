//! The desk: everything that is decided between a connection, a coordinator and the log, without touching any of them.
//! The server's shards and the simulation work at the same desk. Sockets, files, tasks and clocks are theirs, behind
//! [`Shell`].
//!
//! ```text
//!              loaded                    append failed, panic
//!   Loading ------------> Serving ---------------------------> Loading
//!      | panic while loading, unreadable log      | stop
//!      v                                          v
//!   Closed                                     Stopped
//! ```

pub mod hop;
#[cfg(feature = "sim")]
pub mod image;
pub mod line;
mod order;
pub mod time;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;

use self::order::Order;
use crate::group::operator::NotDone;
use crate::group::record::Record;
use crate::group::refusal::{Parkable, refuse, revoke};
use crate::group::request::{ErrorCode, Reply, Request, RequestId};
use crate::group::types::{GroupId, Millis, Topics, TopicsChange};
use crate::group::{Actions, After, Coordinator, GroupOverrides, Journal};

/// How long work that found the disk full waits before it tries again.
const FULL_DISK_PAUSE_MS: i64 = 500;

/// Why the coordinator was called; for [`Shell::took`].
#[derive(Debug)]
pub enum Called<'a> {
    /// With a request.
    Request(RequestId),
    /// Because topics changed.
    Topics(&'a TopicsChange),
    /// To look at its timers.
    Timeout,
    /// Because it has been loaded.
    Loaded,
}

/// What a desk stands in: a log, a clock, and the way back to whoever asked.
pub trait Shell {
    /// Who waits for a reply.
    type To;
    /// A place in the log.
    type Position: Copy + Ord;
    /// Why the log took nothing.
    type Error;

    /// What time it is. Never goes back.
    fn now(&self) -> Millis;
    /// Makes sure that it is never again earlier than this.
    fn raise_clock(&mut self, stored: Millis);
    /// Whether the log has room for a batch of this many bytes.
    fn reserve(&mut self, bytes: u64) -> bool;
    /// Appends records as one batch, which is read back whole or not at all; tells where it lies and its size in bytes.
    ///
    /// # Errors
    /// The log took nothing.
    fn append(
        &mut self,
        records: &[Record],
        now: Millis,
    ) -> Result<(Self::Position, u64), Self::Error>;
    /// Up to where the log is durable; `None` while it is away.
    fn durable(&self) -> Option<Self::Position>;
    /// Whether a snapshot would shorten the log.
    fn wants_snapshot(&self) -> bool;
    /// Begins to write a snapshot: the whole state as it is now. [`Desk::snapshot_ended`] must follow.
    fn snapshot(&mut self, records: Vec<Record>, now: Millis);
    /// Sends a reply.
    fn send(&mut self, to: Self::To, reply: Reply);
    /// There will never be a reply: the member asked again elsewhere.
    fn supersede(&mut self, to: Self::To);

    /// Sends a refusal in place of a reply that must not be told.
    fn revoke(&mut self, to: Self::To, reply: Reply, error: ErrorCode) {
        self.send(to, revoke(reply, error));
    }
    /// Hears how long the log kept a reply that is about to be sent.
    fn held(&mut self, _waited_ms: i64) {}
    /// Hears of a coordinator that has taken in what the log holds, before it begins to serve.
    fn loads(&mut self, _now: Millis, _coordinator: &mut Coordinator) {}
    /// Hears of a request that is about to be handed in.
    fn takes(&mut self, _id: RequestId, _to: &Self::To, _request: &Request) {}
    /// Hears what a call of the coordinator did.
    fn took(
        &mut self,
        _now: Millis,
        _coordinator: &mut Coordinator,
        _called: Called<'_>,
        _actions: &Actions,
    ) {
    }
    /// Hears that everything that the coordinator has done is in the log.
    fn appended(&mut self, _coordinator: &Coordinator) {}
}

/// Something in a batch could not be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The log has no room.
    Full,
    /// The log did not take it, for another reason.
    Refused,
    /// The log will never take anything again.
    Final,
    /// The coordinator panicked.
    Panicked,
}

impl Trouble {
    /// What whoever waits is told.
    fn code(self) -> ErrorCode {
        match self {
            Self::Full | Self::Final => ErrorCode::CoordinatorNotAvailable,
            Self::Refused => ErrorCode::UnknownServerError,
            Self::Panicked => ErrorCode::NotCoordinator,
        }
    }
}

/// How a desk is kept.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a reply waits for the log before its client is told to ask again (`offsets.commit.timeout.ms`).
    pub patience_ms: i64,
    /// Room that is made sure of before a request that may write, besides what its own frame suggests.
    pub room_bytes: u64,
}

#[derive(Debug)]
enum Life {
    Loading,
    Serving(Box<Coordinator>),
    /// Nothing can be served until an operator acts.
    Closed,
    Stopped,
}

#[derive(Debug)]
struct Waiting<T> {
    to: T,
    parkable: Parkable,
}

/// The desk of one coordinator. `T` is who waits for a reply, `P` a place in the log.
///
/// Call [`ask`](Self::ask), [`topics`](Self::topics), [`timeout`](Self::timeout) and the like as often as there is
/// something, then [`finish`](Self::finish): what was recorded in between is one batch of the log.
#[derive(Debug)]
pub struct Desk<T, P> {
    options: Options,
    life: Life,
    topics: Arc<Topics>,
    actions: Actions,
    /// What the batch at hand has recorded.
    records: Vec<Record>,
    /// Parked requests.
    waiting: HashMap<RequestId, Waiting<T>>,
    next_id: u64,
    /// Replies of the batch at hand, in order.
    outgoing: Vec<(T, Reply, After)>,
    order: Order<T, P>,
    /// Changes that found the disk full, or no coordinator.
    postponed: VecDeque<Arc<TopicsChange>>,
    /// What single groups set for themselves; a coordinator that is loaded again must hear of it again.
    overrides: BTreeMap<GroupId, GroupOverrides>,
    /// What the coordinator before had written down of its groups, while the next one is loaded.
    journal: Option<Journal>,
    /// No timers before this moment: the disk was full.
    not_before: Option<Millis>,
    /// The most bytes that a batch has taken: room is made sure of accordingly.
    largest_bytes: u64,
    /// Whether the log has room for what the batch may write.
    reserved: bool,
    snapshot_runs: bool,
}

impl<T, P: Copy + Ord> Desk<T, P> {
    /// A desk whose coordinator is still being loaded. Until then it tells everybody to try again.
    #[must_use]
    pub fn new(options: Options, topics: Arc<Topics>) -> Self {
        Self {
            options,
            life: Life::Loading,
            topics,
            actions: Actions::default(),
            records: Vec::new(),
            waiting: HashMap::new(),
            next_id: 0,
            outgoing: Vec::new(),
            order: Order::new(),
            postponed: VecDeque::new(),
            overrides: BTreeMap::new(),
            journal: None,
            not_before: None,
            largest_bytes: 0,
            reserved: false,
            snapshot_runs: false,
        }
    }

    /// The coordinator, while it serves.
    pub fn coordinator(&mut self) -> Option<&mut Coordinator> {
        match &mut self.life {
            Life::Serving(coordinator) => Some(coordinator),
            _ => None,
        }
    }

    /// Whether a coordinator is awaited.
    #[must_use]
    pub fn is_loading(&self) -> bool {
        matches!(self.life, Life::Loading)
    }

    /// Whether everything that was appended is durable.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.order.is_settled()
    }

    /// The topics it knows of: what a coordinator that is loaded must begin with.
    #[must_use]
    pub fn known_topics(&self) -> &Arc<Topics> {
        &self.topics
    }

    /// How many requests are parked.
    #[must_use]
    pub fn parked_count(&self) -> usize {
        self.waiting.len()
    }

    /// When to call [`timeout`](Self::timeout) next, if nothing else happens.
    #[must_use]
    pub fn next_due(&self) -> Option<Millis> {
        let due = match &self.life {
            Life::Serving(_) if !self.postponed.is_empty() => Some(Millis(0)),
            Life::Serving(coordinator) => coordinator.poll_timeout(),
            _ => None,
        };
        let due = due.map(|due| self.not_before.map_or(due, |pause| pause.max(due)));
        let overdue = self
            .order
            .oldest()
            .map(|since| since.plus(self.options.patience_ms));
        due.into_iter().chain(overdue).min()
    }

    /// Takes a request, whose frame had so many bytes.
    pub fn ask<S>(
        &mut self,
        shell: &mut S,
        now: Millis,
        request: Request,
        to: T,
        request_bytes: u64,
    ) where
        S: Shell<To = T, Position = P>,
    {
        let mut refused = match &self.life {
            Life::Serving(_) => None,
            Life::Loading => Some(ErrorCode::CoordinatorLoadInProgress),
            Life::Closed | Life::Stopped => Some(ErrorCode::CoordinatorNotAvailable),
        };
        if refused.is_none() && request.may_write() && !self.reserve(shell, request_bytes) {
            // An operator can make room, and so is told.
            if matches!(request, Request::Operate(_)) {
                return shell.send(to, Reply::Operated(Err(NotDone::full())));
            }
            refused = Some(ErrorCode::CoordinatorNotAvailable);
        }
        if let Some(error) = refused {
            return shell.send(to, refuse(&request, error));
        }
        let Life::Serving(coordinator) = &mut self.life else {
            return;
        };
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let parkable = Parkable::of(&request);
        shell.takes(id, &to, &request);
        coordinator.handle(now, id, request, &mut self.actions);
        shell.took(now, coordinator, Called::Request(id), &self.actions);
        // Nearly always the reply is there at once, and nothing needs to be remembered.
        if let Some(mine) = self
            .actions
            .replies
            .iter()
            .position(|answer| answer.id == id)
        {
            let answer = self.actions.replies.swap_remove(mine);
            self.outgoing.push((to, answer.reply, answer.after));
        } else {
            self.waiting.insert(id, Waiting { to, parkable });
        }
        self.collect(shell);
    }

    /// Takes a change of topics.
    pub fn topics<S>(&mut self, shell: &mut S, now: Millis, change: Arc<TopicsChange>)
    where
        S: Shell<To = T, Position = P>,
    {
        self.topics = change.topics.clone();
        self.postponed.push_back(change);
        self.hand_topics(shell, now);
    }

    /// Hands in the changes of topics that wait, if that can be done.
    fn hand_topics<S>(&mut self, shell: &mut S, now: Millis)
    where
        S: Shell<To = T, Position = P>,
    {
        while matches!(self.life, Life::Serving(_))
            && !self.postponed.is_empty()
            && self.reserve(shell, 0)
        {
            let (Some(change), Life::Serving(coordinator)) =
                (self.postponed.pop_front(), &mut self.life)
            else {
                return;
            };
            coordinator.handle_topics(now, (*change).clone(), &mut self.actions);
            shell.took(now, coordinator, Called::Topics(&change), &self.actions);
            self.collect(shell);
        }
    }

    /// From now on this stands over the settings for one group.
    pub fn configure(&mut self, group_id: GroupId, overrides: GroupOverrides) {
        if let Life::Serving(coordinator) = &mut self.life {
            coordinator.configure_group(&group_id, overrides);
        }
        self.overrides.insert(group_id, overrides);
    }

    /// Looks at what is due.
    pub fn timeout<S>(&mut self, shell: &mut S, now: Millis)
    where
        S: Shell<To = T, Position = P>,
    {
        // Whoever has waited for the disk too long is told to ask again. The record may well become durable later.
        while let Some((to, reply)) = self.order.overdue(now, self.options.patience_ms) {
            shell.revoke(to, reply, ErrorCode::CoordinatorNotAvailable);
        }
        if !matches!(self.life, Life::Serving(_)) {
            return;
        }
        // What is due may write; without room it waits, and so do the members' sessions.
        if !self.reserve(shell, 0) {
            self.not_before = Some(now.plus(FULL_DISK_PAUSE_MS));
            return;
        }
        self.not_before = None;
        self.hand_topics(shell, now);
        if let Life::Serving(coordinator) = &mut self.life {
            coordinator.handle_timeout(now, &mut self.actions);
            shell.took(now, coordinator, Called::Timeout, &self.actions);
            self.collect(shell);
        }
    }

    /// Makes sure, once per batch, that the log has room.
    fn reserve<S>(&mut self, shell: &mut S, request_bytes: u64) -> bool
    where
        S: Shell<To = T, Position = P>,
    {
        let large = request_bytes > self.options.room_bytes / 4;
        if self.reserved && !large {
            return true;
        }
        let bytes =
            self.options.room_bytes.max(self.largest_bytes) + request_bytes.saturating_mul(2);
        if !shell.reserve(bytes) {
            return false;
        }
        self.reserved = true;
        true
    }

    /// Takes what a call did, and pairs replies of parked requests with who waits for them.
    fn collect<S>(&mut self, shell: &mut S)
    where
        S: Shell<To = T, Position = P>,
    {
        self.records.append(&mut self.actions.records);
        for id in self.actions.superseded.drain(..) {
            if let Some(waiting) = self.waiting.remove(&id) {
                shell.supersede(waiting.to);
            }
        }
        for answer in self.actions.replies.drain(..) {
            if let Some(waiting) = self.waiting.remove(&answer.id) {
                self.outgoing.push((waiting.to, answer.reply, answer.after));
            }
        }
    }

    /// Ends a batch: appends what it recorded, and lets its replies go or holds them until that is durable.
    ///
    /// # Errors
    /// The log took nothing: [`trouble`](Self::trouble) must follow.
    pub fn finish<S>(&mut self, shell: &mut S, now: Millis) -> Result<(), S::Error>
    where
        S: Shell<To = T, Position = P>,
    {
        self.reserved = false;
        if !self.records.is_empty() {
            let (position, bytes) = shell.append(&self.records, now)?;
            self.largest_bytes = self.largest_bytes.max(bytes);
            self.order.appended(position, self.records.drain(..));
            if let Life::Serving(coordinator) = &self.life {
                shell.appended(coordinator);
            }
        }
        for (to, reply, after) in self.outgoing.drain(..) {
            if let Some((to, reply)) = self.order.pass(now, to, reply, &after) {
                shell.send(to, reply);
            }
        }
        if !self.order.is_settled()
            && let Some(durable) = shell.durable()
        {
            self.release(shell, durable);
        }
        self.take_snapshot(shell, now);
        Ok(())
    }

    /// The log is durable up to here, or wants a snapshot.
    pub fn confirm<S>(&mut self, shell: &mut S, durable: P)
    where
        S: Shell<To = T, Position = P>,
    {
        self.release(shell, durable);
        let now = shell.now();
        self.take_snapshot(shell, now);
    }

    fn release<S>(&mut self, shell: &mut S, durable: P)
    where
        S: Shell<To = T, Position = P>,
    {
        let now = shell.now();
        self.order.confirm(now, durable, |to, reply, waited_ms| {
            shell.held(waited_ms);
            shell.send(to, reply);
        });
    }

    /// Has the whole state written beside the log, if the log has grown long, so that old segments can go.
    fn take_snapshot<S>(&mut self, shell: &mut S, now: Millis)
    where
        S: Shell<To = T, Position = P>,
    {
        let Life::Serving(coordinator) = &self.life else {
            return;
        };
        if self.snapshot_runs || !shell.wants_snapshot() {
            return;
        }
        self.snapshot_runs = true;
        // One moment's state; encoding and writing it happens between other work.
        shell.snapshot(coordinator.snapshot().collect(), now);
    }

    /// A snapshot has been written, or not.
    pub fn snapshot_ended(&mut self) {
        self.snapshot_runs = false;
    }

    /// Drops the coordinator and tells everybody who waits. Unless it is the end, another must be loaded; what was
    /// appended before stays true, and its replies leave when it is durable.
    pub fn trouble<S>(&mut self, shell: &mut S, trouble: Trouble)
    where
        S: Shell<To = T, Position = P>,
    {
        let code = trouble.code();
        self.actions.clear();
        self.records.clear();
        for (to, reply, _) in self.outgoing.drain(..) {
            shell.revoke(to, reply, code);
        }
        let mut waiting: Vec<_> = self.waiting.drain().collect();
        waiting.sort_unstable_by_key(|(id, _)| *id);
        for (_, waiting) in waiting {
            if let Some(reply) = waiting.parkable.refuse(code) {
                shell.send(waiting.to, reply);
            }
        }
        if trouble == Trouble::Final {
            for (to, reply) in self.order.give_up() {
                shell.revoke(to, reply, code);
            }
            self.life = Life::Closed;
        } else if let Life::Serving(coordinator) = &mut self.life {
            self.journal = Some(coordinator.take_journal());
            self.life = Life::Loading;
        }
    }

    /// The coordinator has taken in everything the log holds: it serves from now on.
    pub fn loaded<S>(&mut self, shell: &mut S, mut coordinator: Box<Coordinator>)
    where
        S: Shell<To = T, Position = P>,
    {
        shell.raise_clock(coordinator.newest_timestamp());
        let now = shell.now();
        shell.loads(now, &mut coordinator);
        self.not_before = None;
        for (group_id, overrides) in &self.overrides {
            coordinator.configure_group(group_id, *overrides);
        }
        if let Some(journal) = self.journal.take() {
            coordinator.adopt_journal(now, journal);
        }
        coordinator.loaded(now, &mut self.actions);
        shell.took(now, &mut coordinator, Called::Loaded, &self.actions);
        self.life = Life::Serving(coordinator);
        self.collect(shell);
        // Topics that came while it was loaded: nobody may be answered without them.
        self.hand_topics(shell, now);
    }

    /// There is no coordinator, and none will come.
    pub fn close(&mut self) {
        self.actions.clear();
        self.records.clear();
        self.life = Life::Closed;
    }

    /// Answers who is parked, and takes nothing more.
    pub fn stop<S>(&mut self, shell: &mut S)
    where
        S: Shell<To = T, Position = P>,
    {
        let life = std::mem::replace(&mut self.life, Life::Stopped);
        if let Life::Serving(mut coordinator) = life {
            coordinator.close(&mut self.actions);
            self.collect(shell);
        }
    }
}

#[cfg(test)]
mod tests;
