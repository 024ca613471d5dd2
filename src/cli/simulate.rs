//! `convoke simulate`: worlds of the simulation, one after the other or on all cores.

use std::io::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use clap::Args;

use super::Error;
use crate::sim::{Fault, Options, Outcome, run};

/// How often a long run tells how far it is.
const PROGRESS_LINES: u64 = 20;

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
    /// Groups with consumers. [default: by the seed]
    #[arg(long, value_name = "COUNT")]
    groups: Option<u64>,
    /// Consumers of each group. [default: by the seed]
    #[arg(long, value_name = "COUNT")]
    consumers: Option<u64>,
    /// What may go wrong: crashes, disk, network, clock, mishaps, strangers. [default: all]
    #[arg(long, value_name = "KIND,...", value_delimiter = ',', value_parser = fault, conflicts_with = "no_faults")]
    faults: Option<Vec<Fault>>,
    /// Nothing goes wrong.
    #[arg(long)]
    no_faults: bool,
    /// Tell what happens, a line for each event.
    #[arg(long)]
    trace: bool,
}

fn fault(name: &str) -> Result<Fault, String> {
    let known = Fault::ALL.into_iter().find(|fault| fault.name() == name);
    known.ok_or_else(|| {
        let names = Fault::ALL.map(Fault::name).join(", ");
        format!("there are: {names}")
    })
}

impl Simulate {
    fn options(&self, seed: u64) -> Options {
        let mut options = Options::new(seed);
        options.steps = self.steps;
        options.trace = self.trace;
        options.groups = self.groups;
        options.consumers = self.consumers;
        if let Some(faults) = &self.faults {
            options.faults = faults.iter().copied().collect();
        }
        if self.no_faults {
            options.faults.clear();
        }
        options
    }

    /// Lives through the worlds and tells how they end.
    pub(super) fn run(&self) -> Result<(), Error> {
        let (next, done, failed) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let cores = if self.trace { 1 } else { cores };
        thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    loop {
                        let begun = next.fetch_add(1, Ordering::Relaxed);
                        if begun >= self.seeds {
                            break;
                        }
                        let seed = self.seed.wrapping_add(begun);
                        let outcome = run(&self.options(seed));
                        failed.fetch_add(u64::from(outcome.failure.is_some()), Ordering::Relaxed);
                        self.tell(seed, &outcome);
                        self.tell_progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                    }
                });
            }
        });
        let failed = failed.into_inner();
        if self.seeds > 1 {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(
                out,
                "{} seeds of {} steps, {failed} failed",
                self.seeds, self.steps
            );
        }
        match failed {
            0 => Ok(()),
            failed => Err(Error::Simulated {
                failed,
                seeds: self.seeds,
            }),
        }
    }

    fn tell_progress(&self, done: u64) {
        let every = (self.seeds / PROGRESS_LINES).max(100);
        if done.is_multiple_of(every) && done < self.seeds {
            let _ = writeln!(std::io::stderr(), "{done} of {} seeds", self.seeds);
        }
    }

    /// A reader that is gone does not end the run.
    fn tell(&self, seed: u64, outcome: &Outcome) {
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
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        simulate: Simulate,
    }

    #[test]
    fn the_command_that_is_told_gives_the_same_world() {
        let plain = Options::new(7);
        let odd = Options {
            steps: 12,
            groups: Some(3),
            consumers: Some(5),
            faults: [Fault::Disk, Fault::Clock].into(),
            ..Options::new(u64::MAX)
        };
        let fair = Options {
            faults: [].into(),
            ..Options::new(0)
        };
        for options in [plain, odd, fair] {
            let command = options.command();
            let words = command.strip_prefix("convoke ").unwrap().split(' ');
            let parsed = Command::try_parse_from(words).unwrap().simulate;
            assert_eq!(parsed.options(parsed.seed), options, "{command}");
        }
    }
}
