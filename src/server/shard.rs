//! The task that owns one coordinator and its part of the group log.
//!
//! What it decides is decided at the [desk](crate::desk), at which the simulation works too. Here are the mailbox, the
//! timer, the way to the log, and what happens when a coordinator panics.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

use super::budget::Charge;
use super::chronicle::Chronicle;
use super::clock::Clock;
use super::ledger::{self, Ledger};
use super::metrics::Metrics;
use super::readiness::Readiness;
use crate::desk::hop::ReplyTo;
use crate::desk::{self, Desk, Shell, Trouble};
use crate::group::operator::Summary;
use crate::group::record::Record;
use crate::group::request::{Reply, Request};
use crate::group::types::{GroupId, Millis, Topics, TopicsChange};
use crate::group::{Census, Committed, Coordinator, GroupConfig, GroupOverrides, Stats};
use crate::log::Position;

/// How much is taken from the mailbox at once.
const BATCH: usize = 256;
/// Room that is made sure of before a request that may write, besides what its own frame suggests.
const ROOM_BYTES: u64 = 64 << 10;

/// What a shard is asked to do.
#[derive(Debug)]
pub(crate) enum Letter {
    /// Answer a request.
    Ask {
        /// The request.
        request: Request,
        /// Who waits.
        to: ReplyTo,
        /// Its bytes, given back when it has been answered; a JoinGroup's when it has been handed in.
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
    /// Say of each group what stands in a list of all.
    Summaries(oneshot::Sender<Vec<Summary>>),
    /// Say what every group has committed.
    Committed(oneshot::Sender<Vec<Committed>>),
    /// Count groups anew, because the caps have changed; say so.
    CountGroups(oneshot::Sender<()>),
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
    /// Where the journal is written to, if it is.
    pub(crate) chronicle: Option<Chronicle>,
}

/// What comes of loading: the coordinator with its ledger, or why there is none.
pub(crate) type Loaded = Result<(Box<Coordinator>, Ledger), ledger::Error>;

/// Who waits for a reply.
#[derive(Debug)]
struct Waiter {
    to: ReplyTo,
    /// What the request brought may wait to be written for as long as the reply does.
    _charge: Option<Charge>,
}

/// What surrounds the desk: the log, the clock and the figures.
#[derive(Debug)]
struct Hall {
    setup: Setup,
    /// Away while the coordinator is being loaded.
    ledger: Option<Ledger>,
    snapshot: Option<oneshot::Receiver<()>>,
}

impl Shell for Hall {
    type To = Waiter;
    type Position = Position;
    type Error = ledger::Error;

    fn now(&self) -> Millis {
        self.setup.clock.now()
    }

    fn raise_clock(&mut self, stored: Millis) {
        self.setup.clock.raise(stored);
    }

    fn reserve(&mut self, bytes: u64) -> bool {
        let Some(ledger) = &mut self.ledger else {
            return false;
        };
        match ledger.reserve(bytes) {
            Ok(()) => true,
            Err(error) => {
                if error.is_final() {
                    self.setup.readiness.fail(&error);
                }
                false
            }
        }
    }

    fn append(
        &mut self,
        records: &[Record],
        now: Millis,
    ) -> Result<(Position, u64), ledger::Error> {
        let Some(ledger) = &mut self.ledger else {
            return Err(ledger::Error::Away);
        };
        let metrics = &self.setup.metrics;
        let started_us = metrics.now_us();
        let appended = ledger.append(records, now)?;
        let took_us = metrics.now_us().saturating_sub(started_us);
        metrics
            .log_append_seconds
            .record(Duration::from_micros(took_us));
        Ok(appended)
    }

    fn durable(&self) -> Option<Position> {
        self.ledger.as_ref().map(Ledger::durable)
    }

    fn wants_snapshot(&self) -> bool {
        self.ledger.as_ref().is_some_and(Ledger::wants_snapshot)
    }

    fn snapshot(&mut self, records: Vec<Record>, now: Millis) {
        let (sender, receiver) = oneshot::channel();
        self.snapshot = Some(receiver);
        let Some(ledger) = &mut self.ledger else {
            return;
        };
        let (writer, shard) = (ledger.snapshot(), self.setup.partition);
        tokio::spawn(async move {
            if let Err(error) = ledger::write_snapshot(writer, records, now).await {
                tracing::warn!(shard, %error, "no snapshot; the log stays long");
            }
            let _ = sender.send(());
        });
    }

    fn send(&mut self, waiter: Waiter, reply: Reply) {
        waiter.to.send(reply);
    }

    fn supersede(&mut self, waiter: Waiter) {
        waiter.to.supersede();
    }

    fn held(&mut self, waited_ms: i64) {
        let waited_ms = u64::try_from(waited_ms).unwrap_or(0);
        let purgatory = &self.setup.metrics.event_purgatory_seconds;
        purgatory.record(Duration::from_millis(waited_ms));
    }
}

/// One shard. Made by [`Shard::new`], driven by [`Shard::run`].
#[derive(Debug)]
pub(crate) struct Shard {
    desk: Desk<Waiter, Position>,
    hall: Hall,
    /// The coordinator is being read from the log; it comes by this way.
    loading: Option<oneshot::Receiver<Loaded>>,
    /// Since when, by the metrics' clock.
    loading_since_us: u64,
    mail: mpsc::UnboundedReceiver<Letter>,
    stopping: Option<oneshot::Sender<()>>,
}

impl Shard {
    /// A shard whose coordinator comes by `loaded`. Until then it tells everybody to try again.
    pub(crate) fn new(
        setup: Setup,
        mail: mpsc::UnboundedReceiver<Letter>,
        loaded: oneshot::Receiver<Loaded>,
    ) -> Self {
        let options = desk::Options {
            patience_ms: setup.patience_ms,
            room_bytes: ROOM_BYTES,
        };
        Self {
            desk: Desk::new(options, setup.topics.clone()),
            loading_since_us: setup.metrics.now_us(),
            hall: Hall {
                setup,
                ledger: None,
                snapshot: None,
            },
            loading: Some(loaded),
            mail,
            stopping: None,
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
                durable = changed(&mut self.hall.ledger), if self.hall.ledger.is_some() => match durable {
                    Ok(durable) => self.desk.confirm(&mut self.hall, durable),
                    Err(error) => self.refused(&error),
                },
                () = &mut timer, if armed.is_some() => {
                    armed = None;
                    self.timeout();
                }
                loaded = arrival(&mut self.loading), if self.loading.is_some() => {
                    self.loading = None;
                    self.loaded(loaded);
                }
                () = finished(&mut self.hall.snapshot), if self.hall.snapshot.is_some() => {
                    self.hall.snapshot = None;
                    self.desk.snapshot_ended();
                }
                count = self.mail.recv_many(&mut letters, BATCH) => {
                    if count == 0 {
                        return;
                    }
                    self.batch(&mut letters);
                }
            }
            if self.stopping.is_some() && self.desk.is_settled() {
                if let Some(stopped) = self.stopping.take() {
                    let _ = stopped.send(());
                }
                return;
            }
        }
    }

    /// Points the timer at the next moment at which something is due.
    fn arm(&self, timer: Pin<&mut Sleep>, armed: &mut Option<Millis>) {
        let next = self.desk.next_due();
        if next == *armed {
            return;
        }
        *armed = next;
        if let Some(deadline) = next {
            timer.reset(self.hall.setup.clock.instant_of(deadline));
        }
    }

    fn batch(&mut self, letters: &mut Vec<Letter>) {
        let metrics = self.hall.setup.metrics.clone();
        let started_us = metrics.now_us();
        metrics.event_batch_size.record(letters.len() as f64);
        let now = self.hall.now();
        let mut letters = letters.drain(..);
        // A panic ends the step, not the batch: the letters behind it are told that the shard is being loaded.
        while catch_unwind(AssertUnwindSafe(|| {
            for letter in letters.by_ref() {
                self.open(now, letter);
            }
        }))
        .is_err()
        {
            self.panicked();
        }
        self.finish(now);
        let took_us = metrics.now_us().saturating_sub(started_us);
        metrics
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
                let request_bytes = charge.as_ref().map_or(0, Charge::bytes) as u64;
                // What a JoinGroup brings is the group's memory from now on, and its reply may take minutes.
                let charge = charge.filter(|_| !matches!(request, Request::Join(_)));
                let waiter = Waiter {
                    to,
                    _charge: charge,
                };
                self.desk
                    .ask(&mut self.hall, now, request, waiter, request_bytes);
            }
            Letter::Topics(change) => self.desk.topics(&mut self.hall, now, change),
            Letter::Configure(group_id, overrides) => self.desk.configure(group_id, overrides),
            Letter::Count { since_us, to } => {
                let metrics = &self.hall.setup.metrics;
                let waited_us = metrics.now_us().saturating_sub(since_us);
                let waited = &metrics.event_queue_seconds;
                waited.record(Duration::from_micros(waited_us));
                if let Some(coordinator) = self.desk.coordinator() {
                    let _ = to.send(Count {
                        stats: *coordinator.stats(),
                        census: coordinator.census(),
                        queued: self.mail.len(),
                    });
                }
            }
            Letter::Summaries(to) => {
                if let Some(coordinator) = self.desk.coordinator() {
                    let _ = to.send(coordinator.summaries(now));
                }
            }
            Letter::Committed(to) => {
                if let Some(coordinator) = self.desk.coordinator() {
                    let _ = to.send(coordinator.all_committed());
                }
            }
            Letter::CountGroups(done) => {
                if let Some(coordinator) = self.desk.coordinator() {
                    coordinator.count_groups();
                }
                let _ = done.send(());
            }
            Letter::Stop(stopped) => {
                self.desk.stop(&mut self.hall);
                self.stopping = Some(stopped);
            }
            #[cfg(test)]
            Letter::Panic => panic!("a test wants it"),
        }
    }

    fn timeout(&mut self) {
        let now = self.hall.now();
        let step = catch_unwind(AssertUnwindSafe(|| self.desk.timeout(&mut self.hall, now)));
        if step.is_err() {
            self.panicked();
        }
        self.finish(now);
    }

    fn finish(&mut self, now: Millis) {
        self.tell_journal();
        if let Err(error) = self.desk.finish(&mut self.hall, now) {
            self.refused(&error);
        }
    }

    /// Passes on what the journal has finished.
    fn tell_journal(&mut self) {
        let Some(coordinator) = self.desk.coordinator() else {
            return;
        };
        let noted = coordinator.take_noted();
        if noted.is_empty() {
            return;
        }
        let Setup {
            metrics, chronicle, ..
        } = &self.hall.setup;
        for noted in &noted {
            metrics.noted(noted);
        }
        if let Some(chronicle) = chronicle {
            let count = noted.len() as u64;
            if !chronicle.put(noted) {
                metrics.journal_dropped.increment(count);
            }
        }
    }

    fn panicked(&mut self) {
        self.hall.setup.readiness.panicked();
        let shard = self.hall.setup.partition;
        tracing::error!(shard, "a coordinator panicked; the shard is loaded again");
        self.desk.trouble(&mut self.hall, Trouble::Panicked);
        self.load_again();
    }

    /// The log did not take what was recorded.
    fn refused(&mut self, error: &ledger::Error) {
        if error.is_final() {
            self.hall.setup.readiness.fail(error);
            self.desk.trouble(&mut self.hall, Trouble::Final);
            self.hall.ledger = None;
            return;
        }
        let shard = self.hall.setup.partition;
        tracing::error!(shard, %error, "the group log took nothing; the shard is loaded again");
        let trouble = if error.is_full() {
            Trouble::Full
        } else {
            Trouble::Refused
        };
        self.desk.trouble(&mut self.hall, trouble);
        self.load_again();
    }

    fn load_again(&mut self) {
        if !self.desk.is_loading() {
            return;
        }
        let Some(mut ledger) = self.hall.ledger.take() else {
            return;
        };
        let setup = &self.hall.setup;
        let mut coordinator = Coordinator::new(
            setup.config.clone(),
            self.desk.known_topics().clone(),
            super::start::seed(),
        );
        let (sender, receiver) = oneshot::channel();
        setup.readiness.loading(setup.partition);
        self.loading_since_us = setup.metrics.now_us();
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
        self.loading = Some(receiver);
    }

    fn loaded(&mut self, loaded: Result<Loaded, oneshot::error::RecvError>) {
        let (coordinator, ledger) = match loaded {
            Ok(Ok(loaded)) => loaded,
            Ok(Err(error)) => return self.close(&error),
            // Whoever loads has ended: so does the server.
            Err(_) => return self.desk.close(),
        };
        self.hall.ledger = Some(ledger);
        if !self.desk.is_loading() {
            // It was stopped meanwhile; replies may still wait for the log.
            let now = self.hall.now();
            return self.finish(now);
        }
        let step = catch_unwind(AssertUnwindSafe(|| {
            self.desk.loaded(&mut self.hall, coordinator);
        }));
        if step.is_err() {
            return self.close(&ledger::Error::Panicked);
        }
        let setup = &self.hall.setup;
        setup.readiness.serving(setup.partition);
        let took_us = setup.metrics.now_us().saturating_sub(self.loading_since_us);
        let load = &setup.metrics.shard_load_seconds;
        load.record(Duration::from_micros(took_us));
        let now = self.hall.now();
        self.finish(now);
    }

    fn close(&mut self, why: &ledger::Error) {
        let shard = self.hall.setup.partition;
        tracing::error!(shard, "{why}; the shard stays closed until the next start");
        self.hall.setup.readiness.closed(shard, why.to_string());
        self.desk.close();
    }
}

async fn changed(ledger: &mut Option<Ledger>) -> Result<Position, ledger::Error> {
    match ledger {
        Some(ledger) => ledger.changed().await,
        None => std::future::pending().await,
    }
}

async fn arrival(
    loading: &mut Option<oneshot::Receiver<Loaded>>,
) -> Result<Loaded, oneshot::error::RecvError> {
    match loading {
        Some(receiver) => receiver.await,
        None => std::future::pending().await,
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
