//! Many short worlds, and every one that ever failed. `convoke simulate` runs more.

use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use convoke::sim::{Failure, Options, run};

/// What the ordinary test run takes; `CONVOKE_SEEDS` takes more.
const SEEDS: u64 = 2_000;

fn run_all(worlds: &[Options]) -> Vec<Failure> {
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(options) = worlds.get(next.fetch_add(1, Ordering::Relaxed) as usize)
                {
                    if let Some(failure) = run(options).failure {
                        let mut failures = failures.lock().unwrap_or_else(PoisonError::into_inner);
                        failures.push(failure);
                    }
                }
            });
        }
    });
    failures.into_inner().unwrap()
}

fn assert_clean(worlds: &[Options]) {
    let failures = run_all(worlds);
    for failure in failures.iter().take(5) {
        eprintln!("{failure}\n");
    }
    assert!(
        failures.is_empty(),
        "{} of {} worlds fail",
        failures.len(),
        worlds.len()
    );
}

#[test]
fn many_worlds_hold() {
    let seeds = std::env::var("CONVOKE_SEEDS")
        .ok()
        .and_then(|seeds| seeds.parse().ok())
        .unwrap_or(SEEDS);
    let worlds: Vec<Options> = (0..seeds).map(Options::new).collect();
    assert_clean(&worlds);
}

#[test]
fn every_seed_that_ever_failed_holds() {
    let worlds: Vec<Options> = include_str!("../seeds.txt")
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split_whitespace();
            let mut number = || words.next().unwrap().parse().unwrap();
            let mut options = Options::new(number());
            options.steps = number();
            options
        })
        .collect();
    assert!(!worlds.is_empty());
    assert_clean(&worlds);
}

#[test]
fn a_seed_gives_the_same_world_again() {
    for seed in 100..130 {
        let options = Options::new(seed);
        let (one, two) = (run(&options), run(&options));
        assert_eq!(one.trace_hash, two.trace_hash, "seed {seed}");
        assert_eq!(one.simulated_ms, two.simulated_ms, "seed {seed}");
    }
}

/// The table is the same for a debug and a release build, on every machine.
#[test]
fn a_seed_gives_the_same_world_in_every_build() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/traces.txt");
    let written = std::fs::read_to_string(&path).expect("the table");
    let mut right = String::new();
    for line in written.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            [seed, steps, _] if !line.starts_with('#') => {
                let mut options = Options::new(seed.parse().unwrap());
                options.steps = steps.parse().unwrap();
                let hash = run(&options).trace_hash;
                writeln!(right, "{seed} {steps} {hash:016x}").unwrap();
            }
            _ => writeln!(right, "{line}").unwrap(),
        }
    }
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, right).expect("write the table");
    } else {
        assert!(
            written == right,
            "if the simulation or what the core says and records was changed on purpose, run \
             UPDATE=1 cargo test --test it sim::a_seed\n{right}"
        );
    }
}
