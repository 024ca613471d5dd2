//! The task that owns one coordinator and its part of the group log.
//!
//! It takes what is queued, hands each request in, appends what the whole batch wants recorded as one frame, and lets
//! replies go when what they could have seen is durable. If the log refuses, or the coordinator panics, the coordinator
//! is dropped and loaded again: nothing is rolled back.
//!
//! ```text
//!              loaded                    append failed, panic
//!   Loading ------------> Serving ---------------------------> Loading
//!      | panic while loading, unreadable log      | stop
//!      v                                          v
//!   Closed (said in /healthz)                  Stopped
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

use super::budget::Charge;
use super::clock::Clock;
use super::hop::ReplyTo;
use super::ledger::{self, Ledger};
use super::metrics::Metrics;
use super::readiness::Readiness;
use crate::group::refusal::{Parkable, refuse, revoke};
use crate::group::request::{ErrorCode, Reply, Request, RequestId};
use crate::group::types::{GroupId, Millis, Topics, TopicsChange};
use crate::group::{Actions, After, Census, Coordinator, GroupConfig, GroupOverrides, Stats};
use crate::log::Position;

/// How much is taken from the mailbox at once.
const BATCH: usize = 256;
/// Room that is made sure of before a request that may write, besides what its own frame suggests.
const ROOM_BYTES: u64 = 64 << 10;
/// How long work that found the disk full waits before it tries again.
const FULL_DISK_PAUSE_MS: i64 = 500;

/// What a shard is asked to do.
#[derive(Debug)]
pub(crate) enum Letter {
    /// Answer a request.
    Ask {
        /// The request.
        request: Request,
        /// Who waits.
        to: ReplyTo,
        /// Its bytes, given back when it has been handed in.
        charge: Option<Charge>,
    },
    /// Topics appeared, grew or went.
    Topics(Arc<TopicsChange>),
    /// From now on this stands over the settings for one group.
    Configure(GroupId, GroupOverrides),
    /// Say what has been done and what there is.
    Count {
        /// When the letter was sent, by the metrics' clock: how long it waited stands for all letters.
        since_us: u64,
        /// Who asks.
        to: oneshot::Sender<Count>,
    },
    /// Answer who is parked, let the rest become durable, say so, and take nothing more.
    Stop(oneshot::Sender<()>),
    /// Panic inside the core.
    #[cfg(test)]
    Panic,
}

/// What a shard has done and holds.
#[derive(Debug)]
pub(crate) struct Count {
    pub(crate) stats: Stats,
    pub(crate) census: Census,
    /// Letters that wait in its mailbox.
    pub(crate) queued: usize,
}

/// Where a shard is written to.
#[derive(Clone, Debug)]
pub(crate) struct Mailbox(mpsc::UnboundedSender<Letter>);

impl Mailbox {
    /// A mailbox and the end that its shard reads.
    ///
    /// Unbounded, because its senders are bounded: a connection has one request in service, and a request that is split
    /// sends its parts in portions.
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Letter>) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    /// Puts a letter in. If the shard has ended, dropping the letter tells whoever waits.
    pub(crate) fn send(&self, letter: Letter) {
        let _ = self.0.send(letter);
    }
}

/// What a shard is given.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) partition: u16,
    pub(crate) config: GroupConfig,
    pub(crate) topics: Arc<Topics>,
    /// `offsets.commit.timeout.ms`.
    pub(crate) patience_ms: i64,
    pub(crate) clock: Arc<Clock>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) metrics: Arc<Metrics>,
}

/// What comes of loading: the coordinator with its ledger, or why there is none.
pub(crate) type Loaded = Result<(Box<Coordinator>, Ledger), ledger::Error>;

#[derive(Debug)]
enum Life {
    /// The coordinator is being read from the log; it comes by this way.
    Loading(oneshot::Receiver<Loaded>),
    Serving(Box<Coordinator>),
    /// Nothing can be served until an operator acts.
    Closed,
    Stopped,
}

#[derive(Debug)]
struct Waiting {
    to: ReplyTo,
    parkable: Parkable,
}

#[derive(Debug)]
struct Held {
    /// Leaves when the log is durable up to here.
    until: Position,
    since: Millis,
    to: ReplyTo,
    reply: Reply,
}

/// Something in the batch could not be kept.
#[derive(Debug)]
enum Trouble {
    /// The log did not take it.
    Ledger(ledger::Error),
    /// The coordinator panicked.
    Panicked,
}

/// One shard. Made by [`Shard::new`], driven by [`Shard::run`].
#[derive(Debug)]
pub(crate) struct Shard {
    setup: Setup,
    life: Life,
    /// Since when the coordinator has been loading, by the metrics' clock.
    loading_since_us: u64,
    /// Away while the coordinator is being loaded.
    ledger: Option<Ledger>,
    mail: mpsc::UnboundedReceiver<Letter>,
    actions: Actions,
    /// Parked requests.
    waiting: HashMap<RequestId, Waiting>,
    next_id: u64,
    /// Replies of the batch at hand, in order.
    outgoing: Vec<(ReplyTo, Reply, After)>,
    /// Replies that wait for the log, in the order in which they were given.
    held: VecDeque<Held>,
    /// Where each group's newest record lies that is not durable yet.
    dirty: HashMap<GroupId, Position>,
    /// The same by position, to clear `dirty` by.
    unconfirmed: VecDeque<(Position, Vec<GroupId>)>,
    /// Changes that found the disk full, or no coordinator.
    postponed: VecDeque<Arc<TopicsChange>>,
    /// What single groups set for themselves; a coordinator that is loaded again must hear of it again.
    overrides: BTreeMap<GroupId, GroupOverrides>,
    /// No timers before this moment: the disk was full.
    not_before: Option<Millis>,
    /// The most bytes that a batch has taken: room is made sure of accordingly.
    largest_bytes: u64,
    /// Whether the log has room for what the batch may write.
    reserved: bool,
    stopping: Option<oneshot::Sender<()>>,
    snapshot: Option<oneshot::Receiver<()>>,
}

impl Shard {
    /// A shard whose coordinator comes by `loaded`. Until then it tells everybody to try again.
    pub(crate) fn new(
        setup: Setup,
        mail: mpsc::UnboundedReceiver<Letter>,
        loaded: oneshot::Receiver<Loaded>,
    ) -> Self {
        Self {
            loading_since_us: setup.metrics.now_us(),
            setup,
            life: Life::Loading(loaded),
            ledger: None,
            mail,
            actions: Actions::default(),
            waiting: HashMap::new(),
            next_id: 0,
            outgoing: Vec::new(),
            held: VecDeque::new(),
            dirty: HashMap::new(),
            unconfirmed: VecDeque::new(),
            postponed: VecDeque::new(),
            overrides: BTreeMap::new(),
            not_before: None,
            largest_bytes: 0,
            reserved: false,
            stopping: None,
            snapshot: None,
        }
    }

    /// Serves until the mailbox is dropped or a stop has been confirmed.
    pub(crate) async fn run(mut self) {
        let mut letters = Vec::with_capacity(BATCH);
        let timer = tokio::time::sleep(Duration::MAX);
        tokio::pin!(timer);
        let mut armed = None;
        loop {
            self.arm(timer.as_mut(), &mut armed);
            tokio::select! {
                // What is durable and what is due go first: a flood of requests must not hold them up.
                biased;
                durable = changed(&mut self.ledger), if self.ledger.is_some() => match durable {
                    Ok(durable) => {
                        self.release(durable);
                        self.take_snapshot();
                    }
                    Err(error) => self.trouble(Trouble::Ledger(error)),
                },
                () = &mut timer, if armed.is_some() => {
                    armed = None;
                    self.timeout();
                }
                loaded = loading(&mut self.life), if matches!(self.life, Life::Loading(_)) => {
                    self.loaded(loaded);
                }
                () = finished(&mut self.snapshot), if self.snapshot.is_some() => {
                    self.snapshot = None;
                }
                count = self.mail.recv_many(&mut letters, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    self.batch(&mut letters);
                }
            }
            if self.stopping.is_some() && self.unconfirmed.is_empty() {
                if let Some(stopped) = self.stopping.take() {
                    let _ = stopped.send(());
                }
                return;
            }
        }
    }

    /// Points the timer at the next moment at which something is due.
    fn arm(&self, timer: Pin<&mut Sleep>, armed: &mut Option<Millis>) {
        let due = match &self.life {
            Life::Serving(coordinator) => {
                let due = coordinator.poll_timeout();
                let due = if self.postponed.is_empty() {
                    due
                } else {
                    Some(Millis(0))
                };
                due.map(|due| self.not_before.map_or(due, |pause| pause.max(due)))
            }
            _ => None,
        };
        let overdue = self
            .held
            .front()
            .map(|held| held.since.plus(self.setup.patience_ms));
        let next = due.into_iter().chain(overdue).min();
        if next == *armed {
            return;
        }
        *armed = next;
        if let Some(deadline) = next {
            timer.reset(self.setup.clock.instant_of(deadline).into());
        }
    }

    fn batch(&mut self, letters: &mut Vec<Letter>) {
        let started_us = self.setup.metrics.now_us();
        self.setup
            .metrics
            .event_batch_size
            .record(letters.len() as f64);
        let now = self.setup.clock.now();
        let mut letters = letters.drain(..);
        // A panic ends the step, not the batch: the letters behind it are told that the shard is being loaded.
        while catch_unwind(AssertUnwindSafe(|| {
            for letter in letters.by_ref() {
                self.open(now, letter);
            }
        }))
        .is_err()
        {
            self.trouble(Trouble::Panicked);
        }
        self.finish(now);
        let took_us = self.setup.metrics.now_us().saturating_sub(started_us);
        self.setup
            .metrics
            .event_processing_seconds
            .record(Duration::from_micros(took_us));
    }

    fn open(&mut self, now: Millis, letter: Letter) {
        match letter {
            Letter::Ask {
                request,
                to,
                charge,
            } => {
                self.ask(now, request, to, charge.as_ref().map_or(0, Charge::bytes));
            }
            Letter::Topics(change) => {
                self.setup.topics = change.topics.clone();
                self.topics(now, change);
            }
            Letter::Configure(group_id, overrides) => {
                if let Life::Serving(coordinator) = &mut self.life {
                    coordinator.configure_group(&group_id, overrides);
                }
                self.overrides.insert(group_id, overrides);
            }
            Letter::Count { since_us, to } => {
                let metrics = &self.setup.metrics;
                let waited_us = metrics.now_us().saturating_sub(since_us);
                let waited = &metrics.event_queue_seconds;
                waited.record(Duration::from_micros(waited_us));
                if let Life::Serving(coordinator) = &self.life {
                    let _ = to.send(Count {
                        stats: *coordinator.stats(),
                        census: coordinator.census(),
                        queued: self.mail.len(),
                    });
                }
            }
            Letter::Stop(stopped) => {
                let life = std::mem::replace(&mut self.life, Life::Stopped);
                if let Life::Serving(mut coordinator) = life {
                    coordinator.close(&mut self.actions);
                    self.collect();
                }
                self.stopping = Some(stopped);
            }
            #[cfg(test)]
            Letter::Panic => panic!("a test wants it"),
        }
    }

    fn ask(&mut self, now: Millis, request: Request, to: ReplyTo, request_bytes: usize) {
        let mut refused = match &self.life {
            Life::Serving(_) => None,
            Life::Loading(_) => Some(ErrorCode::CoordinatorLoadInProgress),
            Life::Closed | Life::Stopped => Some(ErrorCode::CoordinatorNotAvailable),
        };
        if refused.is_none() && request.may_write() && !self.reserve(request_bytes as u64) {
            refused = Some(ErrorCode::CoordinatorNotAvailable);
        }
        if let Some(error) = refused {
            return to.send(refuse(&request, error));
        }
        let Life::Serving(coordinator) = &mut self.life else {
            return;
        };
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let parkable = Parkable::of(&request);
        coordinator.handle(now, id, request, &mut self.actions);
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
        self.collect();
    }

    fn topics(&mut self, now: Millis, change: Arc<TopicsChange>) {
        let ready = matches!(self.life, Life::Serving(_)) && self.postponed.is_empty();
        if !ready || !self.reserve(0) {
            self.postponed.push_back(change);
            return;
        }
        if let Life::Serving(coordinator) = &mut self.life {
            coordinator.handle_topics(now, (*change).clone(), &mut self.actions);
            self.collect();
        }
    }

    fn timeout(&mut self) {
        let now = self.setup.clock.now();
        self.give_up_waiting(now);
        // What is due may write; without room it waits, and so do the members' sessions.
        if !matches!(self.life, Life::Serving(_)) {
            return;
        }
        if self.reserve(0) {
            self.not_before = None;
            let step = catch_unwind(AssertUnwindSafe(|| {
                let Life::Serving(coordinator) = &mut self.life else {
                    return;
                };
                while let Some(change) = self.postponed.pop_front() {
                    coordinator.handle_topics(now, (*change).clone(), &mut self.actions);
                }
                coordinator.handle_timeout(now, &mut self.actions);
                self.collect();
            }));
            if step.is_err() {
                self.trouble(Trouble::Panicked);
            }
        } else {
            self.not_before = Some(now.plus(FULL_DISK_PAUSE_MS));
        }
        self.finish(now);
    }

    /// Tells whoever has waited for the disk too long to ask again. The record may well become durable later.
    fn give_up_waiting(&mut self, now: Millis) {
        while let Some(held) = self.held.front()
            && now.since(held.since) >= self.setup.patience_ms
        {
            let Some(held) = self.held.pop_front() else {
                break;
            };
            held.to
                .send(revoke(held.reply, ErrorCode::CoordinatorNotAvailable));
        }
    }

    /// Makes sure, once per batch, that the log has room.
    fn reserve(&mut self, request_bytes: u64) -> bool {
        let large = request_bytes > ROOM_BYTES / 4;
        if self.reserved && !large {
            return true;
        }
        let Some(ledger) = &mut self.ledger else {
            return false;
        };
        let bytes = ROOM_BYTES.max(self.largest_bytes) + request_bytes.saturating_mul(2);
        match ledger.reserve(bytes) {
            Ok(()) => {
                self.reserved = true;
                true
            }
            Err(error) => {
                if error.is_final() {
                    self.setup.readiness.fail(&error);
                }
                false
            }
        }
    }

    /// Pairs replies of parked requests with who waits for them.
    fn collect(&mut self) {
        for id in self.actions.superseded.drain(..) {
            if let Some(waiting) = self.waiting.remove(&id) {
                waiting.to.supersede();
            }
        }
        for answer in self.actions.replies.drain(..) {
            if let Some(waiting) = self.waiting.remove(&answer.id) {
                self.outgoing.push((waiting.to, answer.reply, answer.after));
            }
        }
    }

    /// Appends what the batch recorded, and lets its replies go or holds them until that is durable.
    fn finish(&mut self, now: Millis) {
        self.reserved = false;
        if !self.actions.records.is_empty()
            && let Err(error) = self.append(now)
        {
            return self.trouble(Trouble::Ledger(error));
        }
        for (to, reply, after) in self.outgoing.drain(..) {
            let until = match &after {
                After::Group(_) if self.dirty.is_empty() => None,
                After::Group(group_id) => self.dirty.get(group_id).copied(),
                After::Shard => self.unconfirmed.back().map(|(position, _)| *position),
            };
            match until {
                None => to.send(reply),
                Some(until) => self.held.push_back(Held {
                    until,
                    since: now,
                    to,
                    reply,
                }),
            }
        }
        if !self.unconfirmed.is_empty()
            && let Some(ledger) = &self.ledger
        {
            self.release(ledger.durable());
        }
        self.take_snapshot();
    }

    fn append(&mut self, now: Millis) -> Result<(), ledger::Error> {
        let Some(ledger) = &mut self.ledger else {
            return Ok(());
        };
        let started_us = self.setup.metrics.now_us();
        let (position, bytes) = ledger.append(&self.actions.records, now)?;
        let took_us = self.setup.metrics.now_us().saturating_sub(started_us);
        self.setup
            .metrics
            .log_append_seconds
            .record(Duration::from_micros(took_us));
        self.largest_bytes = self.largest_bytes.max(bytes);
        let mut groups: Vec<GroupId> = Vec::new();
        for record in self.actions.records.drain(..) {
            let group_id = record.group_id();
            if groups.last() != Some(group_id) {
                self.dirty.insert(group_id.clone(), position);
                groups.push(group_id.clone());
            }
        }
        self.unconfirmed.push_back((position, groups));
        Ok(())
    }

    /// Lets go what waited for positions up to `durable`.
    fn release(&mut self, durable: Position) {
        let mut moved = false;
        while self
            .unconfirmed
            .front()
            .is_some_and(|(position, _)| *position <= durable)
        {
            let Some((position, groups)) = self.unconfirmed.pop_front() else {
                break;
            };
            moved = true;
            for group_id in groups {
                // A later record keeps the group dirty.
                if self.dirty.get(&group_id) == Some(&position) {
                    self.dirty.remove(&group_id);
                }
            }
        }
        if !moved {
            return;
        }
        let now = self.setup.clock.now();
        // A reply may wait for an older position than the one before it: all that are due leave, in order.
        for held in std::mem::take(&mut self.held) {
            if held.until <= durable {
                let waited_ms = u64::try_from(now.since(held.since)).unwrap_or(0);
                let purgatory = &self.setup.metrics.event_purgatory_seconds;
                purgatory.record(Duration::from_millis(waited_ms));
                held.to.send(held.reply);
            } else {
                self.held.push_back(held);
            }
        }
    }

    /// Drops the coordinator, tells everybody who waits, and begins to load again.
    fn trouble(&mut self, trouble: Trouble) {
        let shard = self.setup.partition;
        let (code, is_final) = match &trouble {
            Trouble::Ledger(error) if error.is_final() => {
                self.setup.readiness.fail(error);
                (ErrorCode::CoordinatorNotAvailable, true)
            }
            Trouble::Ledger(error) => {
                tracing::error!(shard, %error, "the group log took nothing; the shard is loaded again");
                let full = error.is_full();
                let code = if full {
                    ErrorCode::CoordinatorNotAvailable
                } else {
                    ErrorCode::UnknownServerError
                };
                (code, false)
            }
            Trouble::Panicked => {
                self.setup.readiness.panicked();
                tracing::error!(shard, "a coordinator panicked; the shard is loaded again");
                (ErrorCode::NotCoordinator, false)
            }
        };
        self.actions.clear();
        for (to, reply, _) in self.outgoing.drain(..) {
            to.send(revoke(reply, code));
        }
        for (_, waiting) in self.waiting.drain() {
            if let Some(reply) = waiting.parkable.refuse(code) {
                waiting.to.send(reply);
            }
        }
        if is_final {
            for held in self.held.drain(..) {
                held.to.send(revoke(held.reply, code));
            }
            self.unconfirmed.clear();
            self.dirty.clear();
            self.ledger = None;
            self.life = Life::Closed;
        } else {
            // What was appended before stays true, and its replies leave when it is durable.
            self.load_again();
        }
    }

    fn load_again(&mut self) {
        let shard = self.setup.partition;
        let Some(mut ledger) = self.ledger.take() else {
            return;
        };
        let mut coordinator = Coordinator::new(
            self.setup.config.clone(),
            self.setup.topics.clone(),
            super::start::seed(),
        );
        let (sender, receiver) = oneshot::channel();
        self.setup.readiness.loading(shard);
        self.loading_since_us = self.setup.metrics.now_us();
        tokio::task::spawn_blocking(move || {
            let read = catch_unwind(AssertUnwindSafe(|| {
                ledger.reload(|record| coordinator.apply(record))
            }));
            let loaded = match read {
                Ok(Ok(())) => Ok((Box::new(coordinator), ledger)),
                Ok(Err(error)) => Err(error),
                Err(_) => Err(ledger::Error::Panicked),
            };
            let _ = sender.send(loaded);
        });
        self.life = Life::Loading(receiver);
    }

    fn loaded(&mut self, loaded: Result<Loaded, oneshot::error::RecvError>) {
        let (mut coordinator, ledger) = match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => return self.close(&error),
            // Whoever loads has ended: so does the server.
            Err(_) => {
                self.life = Life::Closed;
                return;
            }
        };
        self.setup.clock.raise(coordinator.newest_timestamp());
        let now = self.setup.clock.now();
        self.ledger = Some(ledger);
        let step = catch_unwind(AssertUnwindSafe(|| {
            for (group_id, overrides) in &self.overrides {
                coordinator.configure_group(group_id, *overrides);
            }
            coordinator.loaded(now, &mut self.actions);
            coordinator
        }));
        let Ok(coordinator) = step else {
            self.actions.clear();
            return self.close(&ledger::Error::Panicked);
        };
        self.life = Life::Serving(coordinator);
        self.setup.readiness.serving(self.setup.partition);
        let metrics = &self.setup.metrics;
        let took_us = metrics.now_us().saturating_sub(self.loading_since_us);
        let load = &metrics.shard_load_seconds;
        load.record(Duration::from_micros(took_us));
        self.collect();
        self.finish(now);
        if !self.postponed.is_empty() {
            // Topics that came while it was loaded: nobody may be answered without them.
            self.timeout();
        }
    }

    fn close(&mut self, why: &ledger::Error) {
        let shard = self.setup.partition;
        tracing::error!(shard, "{why}; the shard stays closed until the next start");
        self.setup.readiness.closed(shard, why.to_string());
        self.life = Life::Closed;
    }

    /// Writes the whole state beside the log, if the log has grown long, so that old segments can go.
    fn take_snapshot(&mut self) {
        let Life::Serving(coordinator) = &self.life else {
            return;
        };
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        if self.snapshot.is_some() || !ledger.wants_snapshot() {
            return;
        }
        // One moment's state; encoding and writing it happens between other work.
        let records = coordinator.snapshot().collect();
        let (writer, now) = (ledger.snapshot(), self.setup.clock.now());
        let (sender, receiver) = oneshot::channel();
        self.snapshot = Some(receiver);
        let shard = self.setup.partition;
        tokio::spawn(async move {
            if let Err(error) = ledger::write_snapshot(writer, records, now).await {
                tracing::warn!(shard, %error, "no snapshot; the log stays long");
            }
            let _ = sender.send(());
        });
    }
}

async fn changed(ledger: &mut Option<Ledger>) -> Result<Position, ledger::Error> {
    match ledger {
        Some(ledger) => ledger.changed().await,
        None => std::future::pending().await,
    }
}

async fn loading(life: &mut Life) -> Result<Loaded, oneshot::error::RecvError> {
    match life {
        Life::Loading(receiver) => receiver.await,
        _ => std::future::pending().await,
    }
}

async fn finished(snapshot: &mut Option<oneshot::Receiver<()>>) {
    match snapshot {
        // An error means that the writer panicked; it is over either way.
        Some(receiver) => drop(receiver.await),
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
