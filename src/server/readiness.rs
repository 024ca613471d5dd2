//! How far the server has come, and what is wrong with it: what `/readyz` and `/healthz` tell.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

/// What one shard is up to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ShardState {
    Loading,
    Serving,
    Closed(String),
}

/// The server's readiness at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Every shard serves.
    pub ready: bool,
    /// How many shards there are.
    pub shards: usize,
    /// How many of them are being loaded.
    pub loading: usize,
    /// Shards that stay closed until the next start, and why.
    pub closed: Vec<(u16, String)>,
    /// Bytes of the group log that have been read, and that are to be read. 0 of 0 before it is known.
    pub loaded_bytes: (u64, u64),
    /// Coordinators that panicked and were loaded again since the start.
    pub panics: u64,
    /// Why the server has failed as a whole. It is about to stop.
    pub failed: Option<String>,
}

/// Gathers what the shards say of themselves. Cheap to ask.
#[derive(Debug)]
pub struct Readiness {
    shards: Mutex<BTreeMap<u16, ShardState>>,
    ready: watch::Sender<bool>,
    failed: watch::Sender<Option<String>>,
    read_bytes: AtomicU64,
    all_bytes: AtomicU64,
    panics: AtomicU64,
}

impl Readiness {
    /// With `count` shards that are still to be loaded.
    pub(crate) fn new(count: u16) -> Self {
        Self {
            shards: Mutex::new(
                (0..count)
                    .map(|shard| (shard, ShardState::Loading))
                    .collect(),
            ),
            ready: watch::Sender::new(false),
            failed: watch::Sender::new(None),
            read_bytes: AtomicU64::new(0),
            all_bytes: AtomicU64::new(0),
            panics: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, ShardState>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, shard: u16, state: ShardState) {
        let mut shards = self.lock();
        shards.insert(shard, state);
        let ready = shards.values().all(|state| *state == ShardState::Serving);
        // Still under the lock: of two shards that come at once, the one that looked first must not speak last.
        self.ready
            .send_if_modified(|was| std::mem::replace(was, ready) != ready);
        drop(shards);
    }

    pub(crate) fn loading(&self, shard: u16) {
        self.set(shard, ShardState::Loading);
    }

    pub(crate) fn serving(&self, shard: u16) {
        self.set(shard, ShardState::Serving);
    }

    pub(crate) fn closed(&self, shard: u16, why: String) {
        self.set(shard, ShardState::Closed(why));
    }

    pub(crate) fn panicked(&self) {
        self.panics.fetch_add(1, Ordering::Relaxed);
    }

    /// How much of the log has been read.
    pub(crate) fn progress(&self, read_bytes: u64, all_bytes: u64) {
        self.read_bytes.store(read_bytes, Ordering::Relaxed);
        self.all_bytes.store(all_bytes, Ordering::Relaxed);
    }

    /// The server cannot go on. The first reason stays.
    pub(crate) fn fail(&self, why: &dyn std::error::Error) {
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            if first {
                tracing::error!("the server stops: {why}");
                *failed = Some(why.to_string());
            }
            first
        });
    }

    /// How things stand now.
    #[must_use]
    pub fn report(&self) -> Report {
        let shards = self.lock();
        let closed = shards.iter().filter_map(|(shard, state)| match state {
            ShardState::Closed(why) => Some((*shard, why.clone())),
            _ => None,
        });
        Report {
            ready: *self.ready.borrow(),
            shards: shards.len(),
            loading: shards
                .values()
                .filter(|state| **state == ShardState::Loading)
                .count(),
            closed: closed.collect(),
            loaded_bytes: (
                self.read_bytes.load(Ordering::Relaxed),
                self.all_bytes.load(Ordering::Relaxed),
            ),
            panics: self.panics.load(Ordering::Relaxed),
            failed: self.failed.borrow().clone(),
        }
    }

    /// Waits until every shard serves.
    pub async fn ready(&self) {
        // The sender lives as long as `self`, so waiting cannot fail.
        let _ = self.ready.subscribe().wait_for(|ready| *ready).await;
    }

    /// Waits until the server has failed as a whole, and says why.
    pub async fn failed(&self) -> String {
        match self.failed.subscribe().wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_come_at_once_make_a_ready_server() {
        for _ in 0..2_000 {
            let readiness = Readiness::new(2);
            std::thread::scope(|scope| {
                scope.spawn(|| readiness.serving(0));
                scope.spawn(|| readiness.serving(1));
            });
            assert!(readiness.report().ready);
        }
    }

    #[tokio::test]
    async fn a_closed_shard_is_named_and_the_first_failure_stays() {
        let readiness = Readiness::new(2);
        readiness.serving(0);
        assert!(!readiness.report().ready);
        readiness.serving(1);
        readiness.ready().await;
        readiness.closed(1, "why".to_owned());
        let report = readiness.report();
        assert!(!report.ready);
        assert_eq!(report.closed, [(1, "why".to_owned())]);
        readiness.fail(&std::io::Error::other("first"));
        readiness.fail(&std::io::Error::other("second"));
        assert_eq!(readiness.failed().await, "first");
    }
}
