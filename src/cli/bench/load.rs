//! The engine: many lanes that each ask one thing after another, as fast as answers come or by a clock, what they
//! measure, and the line that tells how far it is.
//!
//! By a clock (an open loop) a latency counts from the moment at which the request was due, so that a server that
//! stalls is not spared by a client that waits for it.
#![expect(
    clippy::disallowed_methods,
    reason = "latencies are what is measured here"
)]

use std::collections::BTreeMap;
use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::cluster::Lane;
use super::{Error, text};
use crate::client::{self, Client};

/// Histograms that the lanes of a phase share: one each would be much memory, one for all much waiting.
const STRIPES: usize = 8;
/// Three digits are kept of a latency.
const DIGITS: u8 = 3;
/// The pacer never sleeps for less: the kernel's own slack is about this.
const PACE_STEP: Duration = Duration::from_micros(50);
/// How often progress is told: to a person, and to a file.
const TELL_PERSON: Duration = Duration::from_millis(500);
const TELL_FILE: Duration = Duration::from_secs(5);

/// Why a request did not go well.
#[derive(Debug)]
pub(super) enum Trouble {
    /// The server answered with an error code. Counted.
    Refused(i16),
    /// The answer is not one to this request. Ends the phase.
    Wrong(String),
    /// No answer. Ends the phase.
    Broken(client::Error),
}

impl From<client::Error> for Trouble {
    fn from(error: client::Error) -> Self {
        Self::Broken(error)
    }
}

/// What a lane does.
pub(super) trait Work: Send + 'static {
    /// One request and a look at its answer.
    fn once(&mut self, client: &Client) -> impl Future<Output = Result<(), Trouble>> + Send;
}

/// How long, and how fast.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub name: &'static str,
    pub warmup: Duration,
    pub measured: Duration,
    /// Requests a second of an open loop.
    pub rate: Option<u32>,
    /// What an answer may take.
    pub patience: Duration,
    pub quiet: bool,
}

/// What a phase has measured.
#[derive(Debug)]
pub(super) struct Measured {
    /// Nanoseconds.
    pub latency: Histogram<u64>,
    /// Good answers within the measured time.
    pub answered: u64,
    pub seconds: f64,
    pub errors: BTreeMap<String, u64>,
    /// Requests that were due but never sent. They are in `latency` with the time until the end.
    pub unsent: u64,
}

impl Measured {
    pub(super) fn new() -> Self {
        Self {
            latency: histogram(),
            answered: 0,
            seconds: 0.0,
            errors: BTreeMap::new(),
            unsent: 0,
        }
    }

    /// Of something that is done once in a while.
    pub(super) fn record(&mut self, took: Duration) {
        self.latency.saturating_record(nanos(took));
        self.answered += 1;
    }
}

fn histogram() -> Histogram<u64> {
    Histogram::new(DIGITS).expect("three digits are within what it can do")
}

fn nanos(took: Duration) -> u64 {
    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
}

/// What the lanes of a phase have in common.
#[derive(Debug)]
struct Tally {
    stripes: Vec<Mutex<Stripe>>,
    answered: AtomicU64,
}

#[derive(Debug)]
struct Stripe {
    latency: Histogram<u64>,
    errors: BTreeMap<i16, u64>,
}

impl Tally {
    fn new() -> Arc<Self> {
        let stripe = || {
            Mutex::new(Stripe {
                latency: histogram(),
                errors: BTreeMap::new(),
            })
        };
        Arc::new(Self {
            stripes: (0..STRIPES).map(|_| stripe()).collect(),
            answered: AtomicU64::new(0),
        })
    }

    fn with(&self, lane: usize, change: impl FnOnce(&mut Stripe)) {
        let stripe = &self.stripes[lane % STRIPES];
        change(&mut stripe.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Hands out the moments at which requests of an open loop are due.
#[derive(Debug)]
struct Pace {
    begin: Instant,
    rate: u32,
    due: Semaphore,
    taken: AtomicU64,
}

impl Pace {
    /// A thread of its own releases what is due: the runtime's timers are too coarse.
    fn start(begin: Instant, end: Instant, rate: u32, lanes: usize) -> Result<Arc<Self>, Error> {
        let pace = Arc::new(Self {
            begin,
            rate,
            due: Semaphore::new(0),
            taken: AtomicU64::new(0),
        });
        let weak = Arc::downgrade(&pace);
        thread::Builder::new()
            .name("pacer".to_owned())
            .spawn(move || Self::release(&weak, end, lanes))
            .map_err(Error::System)?;
        Ok(pace)
    }

    /// Until the end, or until nobody waits any more.
    fn release(pace: &Weak<Self>, end: Instant, lanes: usize) {
        let mut released = 0;
        while let Some(pace) = pace.upgrade() {
            let now = Instant::now();
            if now >= end {
                // Each lane wakes once more, to see that it is over.
                pace.due.add_permits(lanes);
                return;
            }
            let due = pace.count(now);
            pace.due
                .add_permits(usize::try_from(due - released).unwrap_or(0));
            released = due;
            let next = pace.when(due);
            drop(pace);
            thread::park_timeout(next.saturating_duration_since(now).max(PACE_STEP));
        }
    }

    /// How many are due by now.
    fn count(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.begin);
        let due = since.as_nanos() * u128::from(self.rate) / 1_000_000_000;
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    fn when(&self, slot: u64) -> Instant {
        let nanos = u128::from(slot) * 1_000_000_000 / u128::from(self.rate);
        self.begin + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The span of a phase.
#[derive(Clone, Copy, Debug)]
struct Span {
    measure: Instant,
    end: Instant,
}

/// Lets the lanes work. Gives back what they measured and the lanes themselves, to be checked.
pub(super) async fn run<W: Work>(
    lanes: Vec<Lane<W>>,
    plan: &Plan,
) -> Result<(Measured, Vec<Lane<W>>), Error> {
    let begin = Instant::now();
    let measure = begin + plan.warmup;
    let span = Span {
        measure,
        end: measure + plan.measured,
    };
    let pace = match plan.rate {
        Some(rate) => Some(Pace::start(begin, span.end, rate, lanes.len())?),
        None => None,
    };
    let tally = Tally::new();
    let progress = Progress::start(plan, &tally, span);
    let mut running = JoinSet::new();
    for (number, lane) in lanes.into_iter().enumerate() {
        let (tally, pace) = (Arc::clone(&tally), pace.clone());
        running.spawn(lane_of(number, lane, tally, pace, span));
    }
    let ended = async {
        let mut lanes = Vec::new();
        while let Some(lane) = running.join_next().await {
            let lane = lane.map_err(|e| Error::Wrong(format!("a lane of the load ended: {e}")))?;
            lanes.push(lane.map_err(|trouble| trouble.of(plan.name))?);
        }
        Ok(lanes)
    };
    let lanes = tokio::time::timeout(plan.warmup + plan.measured + plan.patience, ended)
        .await
        .unwrap_or(Err(Error::Silent {
            what: plan.name,
            seconds: plan.patience.as_secs(),
        }));
    progress.end();
    let lanes = lanes?;
    Ok((measured(&tally, pace.as_deref(), plan, span), lanes))
}

impl Trouble {
    pub(super) fn of(self, what: &'static str) -> Error {
        match self {
            Self::Refused(code) => Error::refused(what, code),
            Self::Wrong(why) => Error::Wrong(why),
            Self::Broken(source) => Error::Broken { what, source },
        }
    }
}

async fn lane_of<W: Work>(
    number: usize,
    mut lane: Lane<W>,
    tally: Arc<Tally>,
    pace: Option<Arc<Pace>>,
    span: Span,
) -> Result<Lane<W>, Trouble> {
    let mut turn = 0;
    loop {
        let due = match &pace {
            None => Instant::now(),
            Some(pace) => {
                if let Ok(permit) = pace.due.acquire().await {
                    permit.forget();
                }
                if Instant::now() >= span.end {
                    break;
                }
                pace.when(pace.taken.fetch_add(1, Ordering::Relaxed))
            }
        };
        if due >= span.end {
            break;
        }
        let at = turn % lane.items.len();
        turn += 1;
        let outcome = lane.items[at].once(&lane.client).await;
        let done = Instant::now();
        let counts = due >= span.measure;
        match outcome {
            Ok(()) => {
                if (span.measure..span.end).contains(&done) {
                    tally.answered.fetch_add(1, Ordering::Relaxed);
                }
                if counts {
                    let took = nanos(done.saturating_duration_since(due));
                    tally.with(number, |stripe| stripe.latency.saturating_record(took));
                }
            }
            Err(Trouble::Refused(code)) => tally.with(number, |stripe| {
                *stripe.errors.entry(code).or_default() += 1;
            }),
            Err(trouble) => return Err(trouble),
        }
    }
    Ok(lane)
}

fn measured(tally: &Tally, pace: Option<&Pace>, plan: &Plan, span: Span) -> Measured {
    let mut all = Measured::new();
    all.answered = tally.answered.load(Ordering::Relaxed);
    all.seconds = plan.measured.as_secs_f64();
    for number in 0..STRIPES {
        tally.with(number, |stripe| {
            // Histograms of the same digits that may grow always add up.
            let _ = all.latency.add(&stripe.latency);
            for (code, count) in &stripe.errors {
                *all.errors.entry(text(*code)).or_default() += count;
            }
        });
    }
    if let Some(pace) = pace {
        for slot in pace.taken.load(Ordering::Relaxed)..pace.count(span.end) {
            let due = pace.when(slot);
            if due >= span.measure {
                let waited = span.end.saturating_duration_since(due);
                all.latency.saturating_record(nanos(waited));
                all.unsent += 1;
            }
        }
    }
    all
}

/// Tells on stderr how far a phase is.
#[derive(Debug)]
struct Progress {
    task: Option<tokio::task::AbortHandle>,
    person: bool,
}

impl Progress {
    fn start(plan: &Plan, tally: &Arc<Tally>, span: Span) -> Self {
        let person = std::io::stderr().is_terminal();
        if plan.quiet {
            return Self { task: None, person };
        }
        let (plan, tally) = (plan.clone(), Arc::clone(tally));
        let task = tokio::spawn(async move {
            let every = if person { TELL_PERSON } else { TELL_FILE };
            loop {
                tokio::time::sleep(every).await;
                let line = line(&plan, &tally, span);
                let end = if person { "\r" } else { "\n" };
                // Nobody has to listen.
                let _ = write!(std::io::stderr(), "{line}{end}");
            }
        });
        Self {
            task: Some(task.abort_handle()),
            person,
        }
    }

    fn end(self) {
        if let Some(task) = self.task {
            task.abort();
            if self.person {
                let _ = write!(std::io::stderr(), "{:78}\r", "");
            }
        }
    }
}

fn line(plan: &Plan, tally: &Tally, span: Span) -> String {
    let now = Instant::now();
    if now < span.measure {
        return format!("{:20} warming up{:40}", plan.name, "");
    }
    let since = (now - span.measure).min(plan.measured).as_secs_f64();
    let answered = tally.answered.load(Ordering::Relaxed);
    format!(
        "{:20} {since:5.0} of {} s {:>12.0} a second{:20}",
        plan.name,
        plan.measured.as_secs(),
        answered as f64 / since.max(0.001),
        ""
    )
}
