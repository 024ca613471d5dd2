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

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use hashbrown::HashMap;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

use super::budget::Charge;
use super::clock::Clock;
use super::hop::ReplyTo;
use super::ledger::{Ledger, Snapshot};
use super::readiness::Readiness;
use super::refusal::{Parkable, refuse, revoke};
use crate::group::request::{ErrorCode, Reply, Request, RequestId};
use crate::group::types::{GroupId, Millis, Topics, TopicsChange};
use crate::group::{Actions, After, Census, Coordinator, GroupConfig, Stats};
use crate::log;

/// How much is taken from the mailbox at once.
const BATCH: usize = 256;
/// Room that is made sure of before a request that may write, besides what its own frame suggests.
const ROOM_BYTES: u64 = 1 << 20;
/// How long work that found the disk full waits before it tries again.
const FULL_DISK_PAUSE_MS: i64 = 1000;

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
    /// Say what has been done and what there is.
    Count(oneshot::Sender<(Stats, Census)>),
    /// Answer who is parked, let the rest become durable, say so, and take nothing more.
    Stop(oneshot::Sender<()>),
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
    pub(crate) config: GroupConfig,
    pub(crate) topics: Arc<Topics>,
    pub(crate) seed: u64,
    pub(crate) ledger: Ledger,
    pub(crate) clock: Arc<Clock>,
    pub(crate) readiness: Arc<Readiness>,
}

#[derive(Debug)]
enum Life {
    /// The coordinator is being read from the log; it comes by this way.
    Loading(oneshot::Receiver<Result<Box<Coordinator>, log::Error>>),
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
    until: u64,
    to: ReplyTo,
    reply: Reply,
}

/// Something in the batch could not be kept.
#[derive(Debug)]
enum Trouble {
    /// The log took nothing; it may later.
    Refused(log::Error),
    /// The log takes nothing ever again.
    Dead(log::Error),
    /// The coordinator panicked.
    Panicked,
}

/// One shard. Made by [`Shard::new`], driven by [`Shard::run`].
#[derive(Debug)]
pub(crate) struct Shard {
    setup: Setup,
    life: Life,
    mail: mpsc::UnboundedReceiver<Letter>,
    actions: Actions,
    /// Parked requests.
    waiting: HashMap<RequestId, Waiting>,
    next_id: u64,
    /// Replies of the batch at hand, in order.
    outgoing: Vec<(ReplyTo, Reply, After)>,
    /// Replies that wait for the log, in order of position.
    held: VecDeque<Held>,
    /// Where each group's newest record lies that is not durable yet.
    dirty: HashMap<GroupId, u64>,
    /// The same by position, to clear `dirty` by.
    unconfirmed: VecDeque<(u64, Vec<GroupId>)>,
    /// The position behind which the whole shard is durable.
    newest: u64,
    /// Changes that found the disk full.
    postponed: VecDeque<Arc<TopicsChange>>,
    /// No timers before this moment: the disk was full.
    not_before: Option<Millis>,
    /// Whether the log has room for what the batch may write.
    reserved: bool,
    stopping: Option<oneshot::Sender<()>>,
    snapshot: Option<oneshot::Receiver<()>>,
}

impl Shard {
    /// A shard that begins to load at once.
    pub(crate) fn new(setup: Setup, mail: mpsc::UnboundedReceiver<Letter>) -> Self {
        Self {
            life: Life::Stopped,
            mail,
            actions: Actions::default(),
            waiting: HashMap::new(),
            next_id: 0,
            outgoing: Vec::new(),
            held: VecDeque::new(),
            dirty: HashMap::new(),
            unconfirmed: VecDeque::new(),
            newest: 0,
            postponed: VecDeque::new(),
            not_before: None,
            reserved: false,
            stopping: None,
            snapshot: None,
            setup,
        }
    }

    /// Serves until the mailbox is dropped or a stop has been confirmed.
    pub(crate) async fn run(mut self) {
        self.load();
        let mut letters = Vec::with_capacity(BATCH);
        let timer = tokio::time::sleep(std::time::Duration::MAX);
        tokio::pin!(timer);
        let mut armed = None;
        loop {
            self.arm(timer.as_mut(), &mut armed);
            let waits_for_log = self.waits_for_log();
            tokio::select! {
                count = self.mail.recv_many(&mut letters, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    self.batch(&mut letters);
                }
                durable = self.setup.ledger.durable_past(waits_for_log.unwrap_or(0)),
                    if waits_for_log.is_some() => match durable {
                    Ok(position) => self.release(position),
                    Err(error) => self.trouble(Trouble::Dead(error)),
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
            }
            if self.stopping.is_some() && self.waits_for_log().is_none() {
                if let Some(stopped) = self.stopping.take() {
                    let _ = stopped.send(());
                }
                return;
            }
        }
    }

    /// The oldest position that somebody waits for.
    fn waits_for_log(&self) -> Option<u64> {
        self.unconfirmed.front().map(|(position, _)| *position)
    }

    /// Points the timer at the coordinator's next deadline.
    fn arm(&self, timer: Pin<&mut Sleep>, armed: &mut Option<Millis>) {
        let next = match &self.life {
            Life::Serving(coordinator) => {
                let mut next = coordinator.poll_timeout();
                if !self.postponed.is_empty() {
                    next = Some(next.map_or(Millis(0), |n| n.min(Millis(0))));
                }
                next.map(|deadline| self.not_before.map_or(deadline, |at| at.max(deadline)))
            }
            _ => None,
        };
        if next == *armed {
            return;
        }
        *armed = next;
        if let Some(deadline) = next {
            timer.reset(self.setup.clock.instant_of(deadline).into());
        }
    }

    fn batch(&mut self, letters: &mut Vec<Letter>) {
        let now = self.setup.clock.now();
        let mut letters = letters.drain(..);
        loop {
            // A panic ends the step, not the batch: the letters behind it are told that the shard is being loaded.
            let step = catch_unwind(AssertUnwindSafe(|| {
                for letter in letters.by_ref() {
                    self.open(now, letter);
                }
            }));
            match step {
                Ok(()) => break,
                Err(_) => self.trouble(Trouble::Panicked),
            }
        }
        self.finish();
    }

    fn open(&mut self, now: Millis, letter: Letter) {
        match letter {
            Letter::Ask {
                request,
                to,
                charge,
            } => {
                self.ask(now, request, to, charge.as_ref());
                drop(charge);
            }
            Letter::Topics(change) => {
                self.setup.topics = change.topics.clone();
                self.topics(now, change);
            }
            Letter::Count(to) => {
                if let Life::Serving(coordinator) = &self.life {
                    let _ = to.send((coordinator.stats().clone(), coordinator.census()));
                }
            }
            Letter::Stop(stopped) => {
                if let Life::Serving(mut coordinator) =
                    std::mem::replace(&mut self.life, Life::Stopped)
                {
                    coordinator.close(&mut self.actions);
                    self.collect();
                }
                self.stopping = Some(stopped);
            }
        }
    }

    fn ask(&mut self, now: Millis, request: Request, to: ReplyTo, charge: Option<&Charge>) {
        let refused = match &self.life {
            Life::Serving(_) => None,
            Life::Loading(_) => Some(ErrorCode::CoordinatorLoadInProgress),
            Life::Closed | Life::Stopped => Some(ErrorCode::CoordinatorNotAvailable),
        };
        let refused = refused.or_else(|| {
            let full = request.may_write() && !self.reserve(charge.map_or(0, Charge::bytes));
            full.then_some(ErrorCode::CoordinatorNotAvailable)
        });
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
        let mine = self
            .actions
            .replies
            .iter()
            .position(|answer| answer.id == id);
        if let Some(mine) = mine {
            let answer = self.actions.replies.swap_remove(mine);
            self.outgoing.push((to, answer.reply, answer.after));
        } else {
            self.waiting.insert(id, Waiting { to, parkable });
        }
        self.collect();
    }

    fn topics(&mut self, now: Millis, change: Arc<TopicsChange>) {
        if !matches!(self.life, Life::Serving(_)) {
            // A coordinator that is being loaded begins with the newest image; what was deleted meanwhile comes after.
            self.postponed.push_back(change);
            return;
        }
        if !self.postponed.is_empty() || !self.reserve(0) {
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
        // What is due may write; without room it waits, and so do the members' sessions.
        if !self.reserve(0) {
            self.not_before = Some(now.plus(FULL_DISK_PAUSE_MS));
            return self.finish();
        }
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
        self.finish();
    }

    /// Makes sure, once per batch, that the log has room.
    fn reserve(&mut self, request_bytes: usize) -> bool {
        let large = request_bytes as u64 * 2 > ROOM_BYTES;
        if self.reserved && !large {
            return true;
        }
        match self
            .setup
            .ledger
            .reserve(ROOM_BYTES + request_bytes as u64 * 2)
        {
            Ok(()) => {
                self.reserved = true;
                true
            }
            Err(log::Error::NoRoom { .. }) => false,
            Err(error) => {
                self.setup.readiness.fail(&error);
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
    fn finish(&mut self) {
        self.reserved = false;
        if !self.actions.records.is_empty()
            && let Err(trouble) = self.append()
        {
            return self.trouble(trouble);
        }
        for (to, reply, after) in self.outgoing.drain(..) {
            let until = match &after {
                After::Group(group_id) if !self.dirty.is_empty() => {
                    self.dirty.get(group_id).copied()
                }
                After::Group(_) => None,
                After::Shard => self.unconfirmed.back().map(|(position, _)| *position),
            };
            match until {
                None => to.send(reply),
                Some(until) => self.held.push_back(Held { until, to, reply }),
            }
        }
        self.release(self.setup.ledger.durable());
    }

    fn append(&mut self) -> Result<(), Trouble> {
        let position = self
            .setup
            .ledger
            .append(&self.actions.records)
            .map_err(|error| {
                if self.setup.ledger.is_dead() {
                    Trouble::Dead(error)
                } else {
                    Trouble::Refused(error)
                }
            })?;
        let mut groups: Vec<GroupId> = Vec::new();
        for record in self.actions.records.drain(..) {
            let group_id = record.group_id();
            if groups.last() != Some(group_id) {
                self.dirty.insert(group_id.clone(), position);
                groups.push(group_id.clone());
            }
        }
        self.newest = position;
        self.unconfirmed.push_back((position, groups));
        if self.snapshot.is_none() && self.setup.ledger.wants_snapshot() {
            self.take_snapshot();
        }
        Ok(())
    }

    /// Lets go what waited for positions below `durable`.
    fn release(&mut self, durable: u64) {
        while self
            .unconfirmed
            .front()
            .is_some_and(|(position, _)| *position < durable)
        {
            let Some((position, groups)) = self.unconfirmed.pop_front() else {
                break;
            };
            for group_id in groups {
                // A later record keeps the group dirty.
                if self.dirty.get(&group_id) == Some(&position) {
                    self.dirty.remove(&group_id);
                }
            }
        }
        // A reply may wait for an older position than the one before it: all that are due leave, in order.
        let mut waiting = VecDeque::new();
        if self.held.front().is_some_and(|held| held.until < durable) {
            for held in self.held.drain(..) {
                if held.until < durable {
                    held.to.send(held.reply);
                } else {
                    waiting.push_back(held);
                }
            }
            self.held = waiting;
        }
    }

    /// Drops the coordinator, tells everybody who waits, and begins to load again.
    fn trouble(&mut self, trouble: Trouble) {
        let error = match &trouble {
            Trouble::Refused(error) => {
                tracing::error!(
                    shard = self.setup.ledger.partition(),
                    %error,
                    "the group log took nothing; the shard is loaded again"
                );
                ErrorCode::CoordinatorNotAvailable
            }
            Trouble::Dead(error) => {
                self.setup.readiness.fail(error);
                ErrorCode::CoordinatorNotAvailable
            }
            Trouble::Panicked => {
                self.setup.readiness.panicked();
                tracing::error!(
                    shard = self.setup.ledger.partition(),
                    "a coordinator panicked; the shard is loaded again"
                );
                ErrorCode::NotCoordinator
            }
        };
        self.actions.clear();
        for (to, reply, _) in self.outgoing.drain(..) {
            to.send(revoke(reply, error));
        }
        for (_, waiting) in self.waiting.drain() {
            if let Some(reply) = waiting.parkable.refuse(error) {
                waiting.to.send(reply);
            }
        }
        if let Trouble::Dead(_) = trouble {
            for held in self.held.drain(..) {
                held.to.send(revoke(held.reply, error));
            }
            self.unconfirmed.clear();
            self.dirty.clear();
            self.life = Life::Closed;
        } else {
            // What was appended before stays true, and its replies leave when it is durable.
            self.load();
        }
    }

    fn load(&mut self) {
        let mut coordinator = Coordinator::new(
            self.setup.config.clone(),
            self.setup.topics.clone(),
            self.setup.seed.wrapping_add(self.next_id),
        );
        let ledger = self.setup.ledger.clone();
        let readiness = self.setup.readiness.clone();
        let (sender, receiver) = oneshot::channel();
        readiness.loading(ledger.partition());
        tokio::task::spawn_blocking(move || {
            // A panic drops the sender, which is how the shard learns of it.
            let read = ledger.load(|record| coordinator.apply(record));
            let _ = sender.send(read.map(|()| Box::new(coordinator)));
        });
        self.life = Life::Loading(receiver);
    }

    fn loaded(
        &mut self,
        loaded: Result<Result<Box<Coordinator>, log::Error>, oneshot::error::RecvError>,
    ) {
        let partition = self.setup.ledger.partition();
        let mut coordinator = match loaded {
            Ok(Ok(coordinator)) => coordinator,
            Ok(Err(error)) => {
                tracing::error!(shard = partition, %error, "a shard cannot be loaded");
                self.setup.readiness.closed(partition, error.to_string());
                self.setup.readiness.fail(&error);
                self.life = Life::Closed;
                return;
            }
            Err(_) => return self.close("the coordinator panicked while it was loaded"),
        };
        self.setup.clock.raise(coordinator.newest_timestamp());
        let now = self.setup.clock.now();
        let step = catch_unwind(AssertUnwindSafe(|| {
            coordinator.loaded(now, &mut self.actions);
            coordinator
        }));
        let Ok(coordinator) = step else {
            self.actions.clear();
            return self.close("the coordinator panicked while it was loaded");
        };
        self.life = Life::Serving(coordinator);
        self.setup.readiness.serving(partition);
        self.collect();
        self.finish();
    }

    fn close(&mut self, why: &str) {
        let partition = self.setup.ledger.partition();
        tracing::error!(
            shard = partition,
            "{why}; the shard stays closed until the next start"
        );
        self.setup.readiness.closed(partition, why.to_owned());
        self.life = Life::Closed;
    }

    /// Writes the whole state beside the log, so that old segments can go. Encoding happens elsewhere.
    fn take_snapshot(&mut self) {
        let Life::Serving(coordinator) = &self.life else {
            return;
        };
        let snapshot = Snapshot {
            // Everything up to the newest record is in the state already.
            covers: self.newest,
            records: coordinator.snapshot().collect(),
        };
        let ledger = self.setup.ledger.clone();
        let (sender, receiver) = oneshot::channel();
        self.snapshot = Some(receiver);
        tokio::task::spawn_blocking(move || {
            if let Err(error) = ledger.write_snapshot(snapshot) {
                tracing::warn!(shard = ledger.partition(), %error, "no snapshot; the log stays longer");
            }
            let _ = sender.send(());
        });
    }
}

async fn loading(
    life: &mut Life,
) -> Result<Result<Box<Coordinator>, log::Error>, oneshot::error::RecvError> {
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
