//! `convoke simulate`: worlds of the simulation, one after the other or on all cores.

use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
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
    /// What may go wrong: crashes, disk, network, clock, mishaps, strangers, operators. [default: all]
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
        self.live(run, &Mutex::new(std::io::stdout()))
    }

    /// As [`run`](Self::run), where `world` lives through one and `out` is told.
    fn live(
        &self,
        world: impl Fn(&Options) -> Outcome + Sync,
        out: &Mutex<impl Write + Send>,
    ) -> Result<(), Error> {
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
                        let outcome = world(&self.options(seed));
                        failed.fetch_add(u64::from(outcome.failure.is_some()), Ordering::Relaxed);
                        self.tell(seed, &outcome, &mut *lock(out));
                        self.tell_progress(done.fetch_add(1, Ordering::Relaxed) + 1);
                    }
                });
            }
        });
        let failed = failed.into_inner();
        if self.seeds > 1 {
            let _ = writeln!(
                lock(out),
                "{} seeds of {} steps, {failed} failed",
                self.seeds,
                self.steps
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
    fn tell(&self, seed: u64, outcome: &Outcome, out: &mut impl Write) {
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

fn lock<W>(out: &Mutex<W>) -> MutexGuard<'_, W> {
    out.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::sim::Failure;

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
    /// How the worlds end that the words ask for, of which the one with seed 6 fails, and what is told.
    fn lived(words: &str) -> (Result<(), Error>, String) {
        let simulate = Command::try_parse_from(words.split(' ')).unwrap().simulate;
        let world = |options: &Options| Outcome {
            trace_hash: options.seed,
            simulated_ms: 1_000,
            story: Vec::new(),
            failure: (options.seed == 6).then(|| Failure {
                options: options.clone(),
                step: 9,
                text: "a partition has two owners".to_owned(),
            }),
        };
        let out = Mutex::new(Vec::new());
        let done = simulate.live(world, &out);
        (done, String::from_utf8(out.into_inner().unwrap()).unwrap())
    }

    #[test]
    fn a_world_that_fails_is_exit_code_1_and_the_command_that_repeats_it() {
        let (done, told) = lived("simulate --seed 5 --seeds 3 --steps 40 --faults disk,clock");
        let error = done.unwrap_err();
        assert_eq!(error.exit_code(), 1);
        assert_eq!(error.to_string(), "1 of 3 worlds fail");
        assert_eq!(
            told,
            "seed 6 fails at step 9: a partition has two owners\n\
             repeat it with: convoke simulate --seed 6 --steps 40 --faults disk,clock --trace\n\
             seed 6: trace 0000000000000006, 1000 ms simulated\n\
             3 seeds of 40 steps, 1 failed\n"
        );
        // That command fails as well.
        let (done, again) = lived("simulate --seed 6 --steps 40 --faults disk,clock --trace");
        assert_eq!(done.unwrap_err().to_string(), "1 of 1 worlds fail");
        assert_eq!(
            again,
            told.split_inclusive('\n').take(3).collect::<String>()
        );
    }

    #[test]
    fn worlds_without_a_failure_are_exit_code_0() {
        let (done, told) = lived("simulate --seed 7 --seeds 3 --steps 40");
        assert!(done.is_ok());
        assert_eq!(told, "3 seeds of 40 steps, 0 failed\n");
    }
}
