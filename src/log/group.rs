//! The group log: one for all partitions of the process. Shards append frames and learn when they are durable; a single
//! thread writes and syncs for all of them. What lies behind the doors is in `queue` (what waits to be written, and
//! the room for it), `committer`, `snapshot` and `recovery`.

use std::fmt;
use std::future::{Future, pending};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::watch;

use super::error::Error;
use super::frame::frame_bytes;
use super::queue::{Disk, ShardEntry};
use super::recovery;
use super::segments::check_size;
use super::snapshot::SnapshotWriter;

/// A place in the group log: everything up to and including one append. Positions of all partitions are one sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub(super) u64);

impl Position {
    /// Before the first append.
    pub const ZERO: Self = Self(0);

    /// Counts appends since the first log of the folder.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When appends count as durable (`convoke.log.sync`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// After a sync that began when they were written.
    #[default]
    Always,
    /// Once written; synced this long after. A power cut may lose that much, a killed process nothing.
    Interval(Duration),
    /// Once written. For tests.
    Never,
}

/// One sync, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncSample {
    /// How long the disk took.
    pub took: Duration,
    /// How many frames it covered.
    pub frames: u64,
    /// How many bytes it covered.
    pub bytes: u64,
}

/// Called by the committer after each sync; must not block.
pub type OnSync = Arc<dyn Fn(SyncSample) + Send + Sync>;

/// How the group log is kept.
#[derive(Clone)]
pub struct LogOptions {
    /// When appends count as durable.
    pub sync: SyncMode,
    /// The size of a segment. Those of a log with a small state are smaller, so that it takes little disk.
    pub segment_bytes: u64,
    /// The size of the smallest segments.
    pub segment_bytes_min: u64,
    /// A partition asks for a snapshot when its log outgrows twice its last snapshot, and this.
    pub snapshot_bytes_min: u64,
    /// A log longer than twice the snapshots and this many segments makes the owners of its oldest part take snapshots.
    /// Fewer keep the folder smaller, and make many small snapshots, each with syncs of its own beside the commits'.
    pub segments_kept: u64,
    /// How long a full disk is left alone before it is asked for room again.
    pub retry: Duration,
    /// Hears of every sync.
    pub on_sync: Option<OnSync>,
}

impl Default for LogOptions {
    fn default() -> Self {
        Self {
            sync: SyncMode::Always,
            segment_bytes: 64 << 20,
            segment_bytes_min: 4 << 20,
            snapshot_bytes_min: 1 << 20,
            segments_kept: 16,
            retry: Duration::from_millis(250),
            on_sync: None,
        }
    }
}

impl fmt::Debug for LogOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogOptions")
            .field("sync", &self.sync)
            .field("segment_bytes", &self.segment_bytes)
            .field("segment_bytes_min", &self.segment_bytes_min)
            .field("snapshot_bytes_min", &self.snapshot_bytes_min)
            .field("segments_kept", &self.segments_kept)
            .field("retry", &self.retry)
            .finish_non_exhaustive()
    }
}

/// Counters since the log was opened, and sizes now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Syncs of the log.
    pub sync_count: u64,
    /// Frames written.
    pub frame_count: u64,
    /// Bytes written, frame headers included.
    pub frame_bytes: u64,
    /// Segments now.
    pub segment_count: u64,
    /// Bytes the segments take now, preallocated ones included.
    pub segment_bytes: u64,
    /// Snapshots finished.
    pub snapshot_count: u64,
    /// Snapshots given up: no room, or a failure of the disk.
    pub snapshot_failed_count: u64,
    /// Bytes of all current snapshots.
    pub snapshot_bytes: u64,
}

/// The group log of the process. Dropping it writes and syncs what was appended, then closes.
pub struct GroupLog {
    store: Store,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

/// Where the frames go.
#[derive(Clone)]
enum Store {
    Disk(Arc<Disk>),
    /// Nowhere: durable at once, gone with the process. Holds the last position.
    Memory(Arc<AtomicU64>),
}

impl fmt::Debug for GroupLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GroupLog")
            .field("stats", &self.stats())
            .finish_non_exhaustive()
    }
}

impl GroupLog {
    /// A log that keeps nothing: appends are durable at once, and there is nothing to recover.
    pub fn memory() -> Self {
        Self {
            store: Store::Memory(Arc::default()),
            threads: Mutex::default(),
        }
    }

    pub(super) fn disk(disk: Arc<Disk>, threads: Vec<JoinHandle<()>>) -> Self {
        Self {
            store: Store::Disk(disk),
            threads: Mutex::new(threads),
        }
    }

    /// A shard's own end of the log, for the partitions it owns. Each partition has one owner at a time.
    pub fn shard(&self, partitions: impl IntoIterator<Item = u16>) -> ShardLog {
        let store = match &self.store {
            Store::Disk(disk) => {
                let (entry, durable) = disk.add_shard(partitions.into_iter().collect());
                ShardStore::Disk {
                    disk: disk.clone(),
                    entry,
                    durable,
                    reserved: 0,
                }
            }
            Store::Memory(last) => ShardStore::Memory {
                last: last.clone(),
                durable: Position::ZERO,
                seen: Position::ZERO,
            },
        };
        ShardLog { store }
    }

    /// Waits for the first failed write or sync. The process must then stop: what clients were told may not be on the
    /// disk, and a second sync proves nothing.
    pub fn failed(&self) -> impl Future<Output = Error> + Send + use<> {
        let failed = match &self.store {
            Store::Disk(disk) => Some(disk.failed.subscribe()),
            Store::Memory(_) => None,
        };
        async move {
            let Some(mut failed) = failed else {
                return pending().await;
            };
            let reason = match failed.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone(),
                Err(_) => None,
            };
            match reason {
                Some(reason) => Error::Failed { reason },
                None => pending().await,
            }
        }
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        match &self.store {
            Store::Disk(disk) => disk.stats(),
            Store::Memory(last) => Stats {
                frame_count: last.load(Ordering::Relaxed),
                ..Stats::default()
            },
        }
    }

    /// Writes and syncs what was appended, marks a clean stop, and ends the threads. Later appends are refused.
    ///
    /// # Errors
    /// [`Error::Failed`] if the log had failed or fails now.
    pub fn close(&self) -> Result<(), Error> {
        let Store::Disk(disk) = &self.store else {
            return Ok(());
        };
        disk.close();
        for thread in self
            .threads
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .drain(..)
        {
            // A panic in there has been noted as a failure.
            let _ = thread.join();
        }
        // Another may open the folder now.
        drop(
            disk.folder
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
        disk.check()
    }
}

impl Drop for GroupLog {
    fn drop(&mut self) {
        // Who wants to know calls close.
        let _ = self.close();
    }
}

/// One frame of a partition, as recovered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Whose frame it is.
    pub partition: u16,
    /// The caller's bytes, from a snapshot or an append.
    pub payload: Bytes,
}

/// A shard's end of the group log.
#[derive(Debug)]
pub struct ShardLog {
    store: ShardStore,
}

enum ShardStore {
    Disk {
        disk: Arc<Disk>,
        entry: Arc<ShardEntry>,
        durable: watch::Receiver<Position>,
        /// Bytes of frames that may still be appended without asking.
        reserved: u64,
    },
    Memory {
        last: Arc<AtomicU64>,
        durable: Position,
        seen: Position,
    },
}

impl fmt::Debug for ShardStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disk { .. } => "Disk",
            Self::Memory { .. } => "Memory",
        })
    }
}

impl ShardLog {
    /// Makes sure that one frame with a payload of up to `payload_bytes` can be appended, whatever other shards do.
    /// Holds until the next append; asking again without one costs nothing. Ask before the core decides.
    ///
    /// # Errors
    /// [`Error::NoRoom`]: the disk is full; try again later, the log looks for room by itself.
    /// [`Error::TooLarge`], [`Error::Failed`], [`Error::Closed`], [`Error::Io`].
    pub fn reserve(&mut self, payload_bytes: u64) -> Result<(), Error> {
        check_size(payload_bytes)?;
        match &mut self.store {
            ShardStore::Disk { disk, reserved, .. } => {
                disk.reserve(reserved, frame_bytes(payload_bytes))
            }
            ShardStore::Memory { .. } => Ok(()),
        }
    }

    /// Appends one frame: all of it is recovered, or none. Does not wait.
    ///
    /// # Errors
    /// [`Error::NoRoom`] only beyond what was reserved; [`Error::TooLarge`], [`Error::Failed`], [`Error::Closed`].
    /// The frame is then not in the log, and the state that holds it must be dropped.
    pub fn append(&mut self, partition: u16, payload: Bytes) -> Result<Position, Error> {
        check_size(payload.len() as u64)?;
        match &mut self.store {
            ShardStore::Disk {
                disk,
                entry,
                reserved,
                ..
            } => disk.append(entry, reserved, partition, payload),
            ShardStore::Memory { last, durable, .. } => {
                *durable = Position(last.fetch_add(1, Ordering::Relaxed) + 1);
                Ok(*durable)
            }
        }
    }

    /// Every append of this shard up to here is durable.
    pub fn durable(&self) -> Position {
        match &self.store {
            ShardStore::Disk { durable, .. } => *durable.borrow(),
            ShardStore::Memory { durable, .. } => *durable,
        }
    }

    /// Waits until [`ShardLog::durable`] has moved since the last call, or a snapshot is wanted. Dropping the wait
    /// loses nothing.
    ///
    /// # Errors
    /// [`Error::Failed`]: nothing more will become durable.
    pub async fn changed(&mut self) -> Result<Position, Error> {
        match &mut self.store {
            ShardStore::Disk { disk, durable, .. } => {
                disk.check()?;
                durable.changed().await.map_err(|_| Error::Closed)?;
                disk.check()?;
                Ok(*durable.borrow_and_update())
            }
            ShardStore::Memory { durable, seen, .. } => {
                if seen == durable {
                    return pending().await;
                }
                *seen = *durable;
                Ok(*durable)
            }
        }
    }

    /// A partition of this shard whose log has grown so long that a snapshot would shorten it. Cheap; ask after each
    /// batch of requests and after [`ShardLog::changed`].
    pub fn wants_snapshot(&self) -> Option<u16> {
        match &self.store {
            ShardStore::Disk { disk, entry, .. } => disk.wants_snapshot(entry),
            ShardStore::Memory { .. } => None,
        }
    }

    /// Begins a snapshot of a partition. Push frames that rebuild its whole state as it is now, then finish. It may
    /// be pushed in slices between other work: what is appended meanwhile is replayed on top, so pushing a newer
    /// state of some key does no harm.
    pub fn snapshot(&mut self, partition: u16) -> SnapshotWriter {
        match &self.store {
            ShardStore::Disk { disk, .. } => disk.begin_snapshot(partition),
            ShardStore::Memory { .. } => SnapshotWriter::nowhere(),
        }
    }

    /// Reads a partition's state again, as recovery would, everything this shard appended included. Blocks.
    ///
    /// # Errors
    /// As recovery; [`Error::Closed`] for a log in memory, which keeps nothing.
    pub fn reload(
        &mut self,
        partition: u16,
        sink: &mut dyn FnMut(Recovered) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        match &self.store {
            ShardStore::Disk { disk, .. } => recovery::reload(disk, partition, sink),
            ShardStore::Memory { .. } => Err(Error::Closed),
        }
    }
}

impl Drop for ShardLog {
    fn drop(&mut self) {
        if let ShardStore::Disk {
            disk,
            entry,
            reserved,
            ..
        } = &mut self.store
        {
            disk.remove_shard(entry, *reserved);
        }
    }
}
