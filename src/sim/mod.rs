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
mod pattern;
mod rng;
mod server;
mod trace;
mod world;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What to simulate.
#[derive(Clone, Debug)]
pub struct Options {
    /// Decides everything.
    pub seed: u64,
    /// How many events happen before the faults end.
    pub steps: u64,
    /// Whether to keep the story.
    pub trace: bool,
    /// How many consumers each group has; by the seed if not given.
    pub consumers: Option<u64>,
    /// Whether anything goes wrong.
    pub faults: bool,
}

impl Options {
    /// Everything as the seed has it.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            steps: 300,
            trace: false,
            consumers: None,
            faults: true,
        }
    }

    /// The arguments of `convoke` that repeat this world.
    #[must_use]
    pub fn command(&self) -> String {
        let mut command = format!(
            "convoke simulate --seed {} --steps {}",
            self.seed, self.steps
        );
        if let Some(consumers) = self.consumers {
            command.push_str(&format!(" --consumers {consumers}"));
        }
        if !self.faults {
            command.push_str(" --no-faults");
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
    let lived = catch_unwind(AssertUnwindSafe(|| world.live()));
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
    fn a_seed_gives_the_same_world_again() {
        for seed in 0..20 {
            let options = Options::new(seed);
            let (one, two) = (run(&options), run(&options));
            assert_eq!(one.trace_hash, two.trace_hash);
            assert_eq!(one.simulated_ms, two.simulated_ms);
        }
    }

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
}
