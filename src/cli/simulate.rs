//! `convoke simulate`: worlds of the simulation, one after the other or on all cores.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Args;

use super::Error;
use crate::sim::{Options, Outcome, run};

/// How often a long run tells how far it is, in seeds.
const PROGRESS_EVERY: u64 = 10_000;

/// Which worlds, and how they are.
#[derive(Debug, Args)]
pub(super) struct Simulate {
    /// The first seed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How many seeds, from the first on.
    #[arg(long, value_name = "M", default_value_t = 1)]
    seeds: u64,
    /// Events of each world before its faults end.
    #[arg(long, value_name = "K", default_value_t = 300)]
    steps: u64,
    /// Consumers of each group. [default: by the seed]
    #[arg(long, value_name = "COUNT")]
    consumers: Option<u64>,
    /// Nothing goes wrong.
    #[arg(long)]
    no_faults: bool,
    /// Tell what happens, a line for each event.
    #[arg(long)]
    trace: bool,
}

impl Simulate {
    fn options(&self, seed: u64) -> Options {
        let mut options = Options::new(seed);
        options.steps = self.steps;
        options.trace = self.trace;
        options.consumers = self.consumers;
        options.faults = !self.no_faults;
        options
    }

    /// Lives through the worlds and tells how they end.
    pub(super) fn run(&self) -> Result<(), Error> {
        let (next, failed) = (AtomicU64::new(0), AtomicU64::new(0));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let cores = if self.trace { 1 } else { cores };
        thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    loop {
                        let done = next.fetch_add(1, Ordering::Relaxed);
                        if done >= self.seeds {
                            break;
                        }
                        let seed = self.seed.wrapping_add(done);
                        let outcome = run(&self.options(seed));
                        failed.fetch_add(u64::from(outcome.failure.is_some()), Ordering::Relaxed);
                        self.tell(seed, done + 1, &outcome);
                    }
                });
            }
        });
        match failed.into_inner() {
            0 => Ok(()),
            failed => Err(Error::Simulated {
                failed,
                seeds: self.seeds,
            }),
        }
    }

    /// A reader that is gone does not end the run.
    fn tell(&self, seed: u64, done: u64, outcome: &Outcome) {
        let mut out = std::io::stdout().lock();
        for line in &outcome.story {
            let _ = writeln!(out, "{line}");
        }
        if let Some(failure) = &outcome.failure {
            let _ = writeln!(out, "{failure}");
        }
        if self.seeds == 1 || outcome.failure.is_some() {
            let _ = writeln!(
                out,
                "seed {seed}: trace {:016x}, {} ms simulated",
                outcome.trace_hash, outcome.simulated_ms
            );
        } else if done.is_multiple_of(PROGRESS_EVERY) {
            let _ = writeln!(out, "{done} of {} seeds", self.seeds);
        }
        if self.seeds > 1 && done == self.seeds {
            let _ = writeln!(out, "{done} seeds of {} steps", self.steps);
        }
    }
}
