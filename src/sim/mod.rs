//! The proof that ships: one seed, one world. The coordinator that ships runs under a glass dome with its own clock,
//! network, disk and clients, while `check` holds it to the rules. Nothing here reads a clock or draws a random number
//! of the system: a seed gives the same world, byte for byte, in every build.
//!
//! A world lives through a number of steps with faults. Then the faults end, and every group must become stable with
//! all partitions owned, within bounded simulated time.

mod check;
mod client;
mod disk;
mod frames;
mod net;
mod operated;
mod pattern;
mod plane;
mod rng;
mod server;
mod trace;
#[doc(hidden)]
pub mod workbench;
mod world;

use std::collections::BTreeSet;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// One kind of what may go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Fault {
    /// The server dies at any moment and starts again.
    Crashes,
    /// Appends fail, the disk is full or slow.
    Disk,
    /// Messages are much delayed, connections cut.
    Network,
    /// The wall clock jumps while the server is down.
    Clock,
    /// Consumers die, hang, leave, are slow, and change their minds.
    Mishaps,
    /// Others are about: committers, operators, and those who abandon ids or say what is not so.
    Strangers,
    /// Operators act on groups that run: reset, pause, drain, kick.
    Operators,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Crashes,
        Self::Disk,
        Self::Network,
        Self::Clock,
        Self::Mishaps,
        Self::Strangers,
        Self::Operators,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Crashes => "crashes",
            Self::Disk => "disk",
            Self::Network => "network",
            Self::Clock => "clock",
            Self::Mishaps => "mishaps",
            Self::Strangers => "strangers",
            Self::Operators => "operators",
        }
    }
}

/// What to simulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// How many events happen before the faults end.
    pub steps: u64,
    /// Whether to keep the story.
    pub trace: bool,
    /// How many groups have consumers; by the seed if not given.
    pub groups: Option<u64>,
    /// How many consumers each group has; by the seed if not given.
    pub consumers: Option<u64>,
    /// What may go wrong.
    pub faults: BTreeSet<Fault>,
}

impl Options {
    /// Everything as the seed has it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            steps: 300,
            trace: false,
            groups: None,
            consumers: None,
            faults: Fault::ALL.into(),
        }
    }

    /// The arguments of `convoke` that repeat this world.
    #[must_use]
    pub fn command(&self) -> String {
        let mut command = format!(
            "convoke simulate --seed {} --steps {}",
            self.seed, self.steps
        );
        if let Some(groups) = self.groups {
            command.push_str(&format!(" --groups {groups}"));
        }
        if let Some(consumers) = self.consumers {
            command.push_str(&format!(" --consumers {consumers}"));
        }
        if self.faults.is_empty() {
            command.push_str(" --no-faults");
        } else if self.faults.len() < Fault::ALL.len() {
            let names: Vec<_> = self.faults.iter().map(|fault| fault.name()).collect();
            command.push_str(&format!(" --faults {}", names.join(",")));
        }
        command
    }
}

/// How a world ended.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// Hash over everything that happened.
    pub trace_hash: u64,
    /// How much time passed inside, in milliseconds.
    pub simulated_ms: i64,
    /// What happened, a line each, if it was asked for.
    pub story: Vec<String>,
    /// What did not hold.
    pub failure: Option<Failure>,
}

/// Something that must hold does not.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failure {
    /// The world in which it happened.
    pub options: Options,
    /// After how many events.
    pub step: u64,
    /// What, in words.
    pub text: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "seed {} fails at step {}: {}\nrepeat it with: {} --trace",
            self.options.seed,
            self.step,
            self.text,
            self.options.command()
        )
    }
}

/// Lives through one world.
#[must_use]
pub fn run(options: &Options) -> Outcome {
    let mut world = world::World::new(options);
    // A panic of the core is a finding like any other.
    let lived = catch_unwind(AssertUnwindSafe(|| {
        world.live()?;
        // A life of its own, beside the world: what operators do changes what the judge of worlds expects.
        if options.faults.contains(&Fault::Operators) {
            let lived = operated::live(options.seed, options.steps / 2);
            return lived.map_err(|text| format!("under an operator's hands: {text}"));
        }
        Ok(())
    }));
    let verdict = lived.unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no message");
        Err(format!("panic: {text}"))
    });
    let step = world.step_count();
    let (trace_hash, simulated_ms, story) = world.end();
    Outcome {
        trace_hash,
        simulated_ms,
        story,
        failure: verdict.err().map(|text| Failure {
            options: options.clone(),
            step,
            text,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_changes_nothing() {
        let told = Options {
            trace: true,
            ..Options::new(3)
        };
        let outcome = run(&told);
        assert_eq!(outcome.trace_hash, run(&Options::new(3)).trace_hash);
        assert!(!outcome.story.is_empty());
    }

    #[test]
    fn any_fault_alone_leaves_a_world_that_ends_well() {
        for fault in Fault::ALL.map(Some).into_iter().chain([None]) {
            for seed in 0..10 {
                let options = Options {
                    faults: fault.into_iter().collect(),
                    ..Options::new(seed)
                };
                if let Some(failure) = run(&options).failure {
                    panic!("{failure}");
                }
            }
        }
    }
}
