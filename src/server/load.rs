//! Reads the group log at start: one pass, all coordinators filled on the way.
#![expect(
    clippy::disallowed_methods,
    reason = "progress lines are paced by the real clock"
)]

use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::House;
use super::chronicle;
use super::ledger::{self, Ledger, apply_batch};
use super::shard::Loaded;
use super::start::seed;
use super::store::{Opening, Store};
use crate::group::types::Topics;
use crate::group::{Coordinator, GroupConfig};
use crate::log::{GroupLog, Recovered, Recovery};

/// How often a long recovery says how far it has come.
const PROGRESS_PACE: Duration = Duration::from_secs(2);

/// A shard that waits for its coordinator.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) partition: u16,
    pub(crate) sender: oneshot::Sender<Loaded>,
}

/// Begins to read; the shards get their coordinators when all is read. Gives the task that then waits for the log to fail,
/// which in most cases it never does: the server ends it.
pub(crate) fn begin(
    opening: Opening,
    waiting: Vec<Waiting>,
    config: GroupConfig,
    topics: Arc<Topics>,
    house: &Arc<House>,
    store: &Store,
    chronicled: bool,
) -> JoinHandle<()> {
    let (house, store) = (house.clone(), store.clone());
    let readiness = house.readiness.clone();
    let (opened, log) = oneshot::channel();
    let watch = tokio::spawn(async move {
        if let Ok(failed) = log.await {
            let error: crate::log::Error = failed.await;
            readiness.fail(&error);
        }
    });
    let fresh = move || Coordinator::new(config.clone(), topics.clone(), seed());
    tokio::task::spawn_blocking(move || {
        let coordinators = waiting.iter().map(|_| Some(fresh())).collect();
        let folder = opening.folder().filter(|_| chronicled);
        let folder = folder.map(Path::to_owned);
        let read = match opening {
            Opening::Memory(_) => Ok((GroupLog::memory(), coordinators)),
            Opening::Disk(_, recovery) => read(*recovery, coordinators, &house),
        };
        match read {
            Ok((log, mut coordinators)) => {
                if let Some(folder) = folder {
                    chronicle::read(&folder, &mut coordinators);
                }
                let log = store.put(log);
                // The server may be gone already.
                let _ = opened.send(log.failed());
                hand_out(log, waiting, coordinators);
            }
            // Somebody stopped the server before it was ready.
            Err(_) if house.gate.is_stopping() => {}
            // The shards stay closed; the server is about to stop.
            Err(error) => house.readiness.fail(&error),
        }
    });
    watch
}

type Coordinators = Vec<Option<Coordinator>>;

fn hand_out(log: &GroupLog, waiting: Vec<Waiting>, coordinators: Coordinators) {
    for (Waiting { partition, sender }, coordinator) in waiting.into_iter().zip(coordinators) {
        let loaded = match coordinator {
            Some(coordinator) => Ok((
                Box::new(coordinator),
                Ledger::new(partition, log.shard([partition])),
            )),
            None => Err(ledger::Error::Panicked),
        };
        // A shard that is gone needs nothing.
        let _ = sender.send(loaded);
    }
}

fn read(
    recovery: Recovery,
    mut coordinators: Coordinators,
    house: &House,
) -> Result<(GroupLog, Coordinators), ledger::Error> {
    let started = Instant::now();
    let mut trouble = None;
    let mut said = started;
    let log = recovery.run(
        &mut |recovered| match take(&recovered, &mut coordinators) {
            Ok(()) if house.gate.is_stopping() => ControlFlow::Break(()),
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => {
                trouble = Some(error);
                ControlFlow::Break(())
            }
        },
        &mut |progress| {
            house
                .readiness
                .progress(progress.bytes_done, progress.bytes_total);
            if said.elapsed() >= PROGRESS_PACE {
                said = Instant::now();
                tracing::info!(
                    read_bytes = progress.bytes_done,
                    total_bytes = progress.bytes_total,
                    "reading the group log"
                );
            }
        },
    );
    if let Some(trouble) = trouble {
        return Err(trouble);
    }
    let log = log?;
    tracing::info!(
        took_ms = started.elapsed().as_millis(),
        "read the group log"
    );
    Ok((log, coordinators))
}

/// A coordinator that panics over its records is given up; its shard stays closed, the others run.
fn take(recovered: &Recovered, coordinators: &mut Coordinators) -> Result<(), ledger::Error> {
    let place = usize::from(recovered.partition);
    let Some(coordinator) = coordinators.get_mut(place) else {
        return Ok(());
    };
    let Some(alive) = coordinator else {
        return Ok(());
    };
    let applied = catch_unwind(AssertUnwindSafe(|| {
        apply_batch(&recovered.payload, &mut |record| alive.apply(record))
    }));
    applied.unwrap_or_else(|_| {
        *coordinator = None;
        Ok(())
    })
}
