//! What shards and the committer share: frames that wait to be written, the room they are promised, and the books on
//! each partition's log and snapshot. One lock, held for moments; no file is touched under it.
#![expect(
    clippy::disallowed_methods,
    reason = "retries of a full disk are paced by the real clock"
)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Instant;

use bytes::Bytes;
use tokio::sync::watch;

use super::error::Error;
use super::folder::Folder;
use super::frame::{FILE_HEADER_BYTES, frame_bytes};
use super::fs::Fs;
use super::group::{LogOptions, Position, Stats};
use super::segments::Spare;
use super::snapshot::{Message, SnapshotWriter};

/// A shard asks for this much at once, so that most reservations touch no lock.
const RESERVE_BYTES: u64 = 64 << 10;
/// A failed snapshot is left alone for this many times as long as a full disk: it costs more to try.
const SNAPSHOT_RETRIES: u32 = 20;

/// A group log on a disk.
pub(super) struct Disk {
    pub(super) fs: Arc<dyn Fs>,
    pub(super) dir: PathBuf,
    pub(super) options: LogOptions,
    /// Held as long as the log is open.
    pub(super) folder: Mutex<Option<Arc<Folder>>>,
    queue: Mutex<Queue>,
    /// The committer waits here for work.
    pub(super) work: Condvar,
    /// Others wait here for the committer.
    pub(super) progress: Condvar,
    pub(super) failed: watch::Sender<Option<Arc<str>>>,
    pub(super) counters: Counters,
    /// One at a time asks the disk for room. Holds when to try next.
    full_until: Mutex<Option<Instant>>,
    spare_number: AtomicU64,
    /// Held while files of the log are read again, so that none is dropped meanwhile.
    pub(super) files: Mutex<()>,
    snapshots: Mutex<Option<mpsc::Sender<Message>>>,
    pub(super) snapshot_number: AtomicU64,
}

#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) sync_count: AtomicU64,
    pub(super) frame_count: AtomicU64,
    pub(super) frame_bytes: AtomicU64,
    pub(super) segment_count: AtomicU64,
    pub(super) segment_bytes: AtomicU64,
    pub(super) snapshot_count: AtomicU64,
    pub(super) snapshot_failed_count: AtomicU64,
}

/// What lies under the lock.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) frames: Vec<Queued>,
    pub(super) next_lsn: u64,
    pub(super) room: Room,
    pub(super) shards: Vec<Arc<ShardEntry>>,
    pub(super) partitions: Vec<PartitionBook>,
    /// Positions below are written.
    pub(super) written_lsn: u64,
    /// Positions below are on the disk.
    pub(super) synced_lsn: u64,
    /// A snapshot waits for positions below this to be synced.
    pub(super) sync_wanted_lsn: u64,
    /// The sync beside the writing has ended.
    pub(super) sync_ended: bool,
    /// A snapshot was finished: segments may be dropped.
    pub(super) drop_wanted: bool,
    pub(super) closing: bool,
    pub(super) failed: Option<Arc<str>>,
    /// The committer sleeps on `work`.
    pub(super) committer_waits: bool,
    /// How many wait on `progress`: waking nobody costs a system call.
    pub(super) progress_waits: usize,
}

/// A frame that waits to be written.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) shard: Arc<ShardEntry>,
    pub(super) partition: u16,
    pub(super) payload: Bytes,
    /// A new segment begins with this frame, in this file.
    pub(super) begin_in: Option<Spare>,
}

/// The committer's side of a shard.
#[derive(Debug)]
pub(super) struct ShardEntry {
    pub(super) durable: watch::Sender<Position>,
    /// The batch it was told of last.
    pub(super) told: AtomicU64,
    /// Looking at the books is worth while.
    pub(super) look: AtomicBool,
    partitions: Vec<u16>,
}

impl ShardEntry {
    /// Makes the shard look at its books.
    pub(super) fn wake(&self) {
        self.look.store(true, Ordering::Release);
        self.durable.send_modify(|_| ());
    }
}

/// What is known of one partition's log and snapshot.
#[derive(Clone, Debug, Default)]
pub(super) struct PartitionBook {
    /// The first position that no snapshot covers.
    pub(super) first: Option<u64>,
    /// Bytes of frames that no snapshot covers.
    pub(super) log_bytes: u64,
    /// The last snapshot: what it covers and its size.
    pub(super) snapshot: Option<(u64, u64)>,
    /// A snapshot is being made: the same books from its position on.
    pub(super) running: Option<Running>,
    /// Its log keeps old segments alive.
    pub(super) pins: bool,
    pub(super) retry_at: Option<Instant>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Running {
    first: Option<u64>,
    log_bytes: u64,
}

impl PartitionBook {
    pub(super) fn note(&mut self, lsn: u64, bytes: u64) {
        self.first.get_or_insert(lsn);
        self.log_bytes += bytes;
        if let Some(running) = &mut self.running {
            running.first.get_or_insert(lsn);
            running.log_bytes += bytes;
        }
    }

    fn wants_snapshot(&self, bytes_min: u64) -> bool {
        let snapshot_bytes = self.snapshot.map_or(0, |(_, bytes)| bytes);
        self.first.is_some()
            && (self.pins || self.log_bytes > bytes_min.max(snapshot_bytes.saturating_mul(2)))
    }
}

/// The room that frames are promised: what is left of the segment being written, and files that wait to become one.
/// The promise rests on one of them that could hold everything promised, wherever the frames before end up.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Bytes left in the last segment, behind everything queued.
    pub(super) left: u64,
    pub(super) spares: Vec<Spare>,
    promised: u64,
}

impl Room {
    fn promise(&mut self, bytes: u64) -> bool {
        let total = self.promised + bytes;
        let fits = self.left >= total || self.spares.iter().any(|spare| spare.room() >= total);
        if fits {
            self.promised = total;
        }
        fits
    }

    /// Takes promised bytes; gives the file of a new segment where one must begin.
    fn take(&mut self, bytes: u64) -> Option<Spare> {
        self.promised -= bytes;
        if bytes <= self.left {
            self.left -= bytes;
            return None;
        }
        // The largest: the promise rests on it.
        let largest = (0..self.spares.len()).max_by_key(|&index| self.spares[index].room())?;
        let spare = self.spares.swap_remove(largest);
        self.left = spare.room() - bytes;
        Some(spare)
    }
}

/// What recovery found, to begin with.
#[derive(Debug)]
pub(super) struct Beginning {
    pub(super) next_lsn: u64,
    pub(super) left: u64,
    pub(super) spares: Vec<Spare>,
    pub(super) partitions: Vec<PartitionBook>,
}

impl Disk {
    pub(super) fn new(
        folder: Arc<Folder>,
        options: LogOptions,
        beginning: Beginning,
        spare_number: u64,
        snapshots: mpsc::Sender<Message>,
    ) -> Self {
        Self {
            fs: folder.fs().clone(),
            dir: folder.group_dir(),
            options,
            folder: Mutex::new(Some(folder)),
            queue: Mutex::new(Queue {
                frames: Vec::new(),
                next_lsn: beginning.next_lsn,
                room: Room {
                    left: beginning.left,
                    spares: beginning.spares,
                    promised: 0,
                },
                shards: Vec::new(),
                partitions: beginning.partitions,
                written_lsn: beginning.next_lsn,
                synced_lsn: beginning.next_lsn,
                sync_wanted_lsn: 0,
                sync_ended: false,
                drop_wanted: true,
                closing: false,
                failed: None,
                committer_waits: false,
                progress_waits: 0,
            }),
            work: Condvar::new(),
            progress: Condvar::new(),
            failed: watch::Sender::new(None),
            counters: Counters::default(),
            full_until: Mutex::new(None),
            spare_number: AtomicU64::new(spare_number),
            files: Mutex::new(()),
            snapshots: Mutex::new(Some(snapshots)),
            snapshot_number: AtomicU64::new(0),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the committer, if it sleeps.
    pub(super) fn poke(&self, queue: &mut Queue) {
        if queue.committer_waits {
            queue.committer_waits = false;
            self.work.notify_one();
        }
    }

    pub(super) fn add_shard(
        &self,
        partitions: Vec<u16>,
    ) -> (Arc<ShardEntry>, watch::Receiver<Position>) {
        let mut queue = self.lock();
        let (durable, receiver) = watch::channel(Position(queue.written_lsn - 1));
        let entry = Arc::new(ShardEntry {
            durable,
            told: AtomicU64::new(0),
            look: AtomicBool::new(true),
            partitions,
        });
        queue.shards.push(entry.clone());
        (entry, receiver)
    }

    pub(super) fn remove_shard(&self, entry: &Arc<ShardEntry>, reserved: u64) {
        let mut queue = self.lock();
        queue.room.promised -= reserved;
        queue.shards.retain(|other| !Arc::ptr_eq(other, entry));
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        match &*self.failed.borrow() {
            Some(reason) => Err(Error::Failed {
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Notes the first failure and tells everyone.
    pub(super) fn fail(&self, error: &Error) {
        let reason: Arc<str> = error.to_string().into();
        let shards = {
            let mut queue = self.lock();
            queue.failed.get_or_insert_with(|| reason.clone());
            queue.frames.clear();
            queue.shards.clone()
        };
        self.failed.send_if_modified(|failed| {
            let first = failed.is_none();
            failed.get_or_insert(reason);
            first
        });
        self.progress.notify_all();
        for shard in shards {
            shard.wake();
        }
    }

    pub(super) fn close(&self) {
        let mut queue = self.lock();
        queue.closing = true;
        self.poke(&mut queue);
        drop(queue);
        if let Some(snapshots) = self
            .snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
        {
            let _ = snapshots.send(Message::Stop);
        }
    }

    pub(super) fn reserve(&self, reserved: &mut u64, bytes: u64) -> Result<(), Error> {
        if *reserved >= bytes {
            return Ok(());
        }
        let mut queue = self.lock();
        queue.check()?;
        for want in [bytes.max(RESERVE_BYTES), bytes] {
            if queue.room.promise(want - *reserved) {
                *reserved = want;
                return Ok(());
            }
        }
        drop(queue);
        self.make_room(bytes - *reserved)?;
        *reserved = bytes;
        Ok(())
    }

    pub(super) fn append(
        &self,
        shard: &Arc<ShardEntry>,
        reserved: &mut u64,
        partition: u16,
        payload: Bytes,
    ) -> Result<Position, Error> {
        let bytes = frame_bytes(payload.len() as u64);
        self.reserve(reserved, bytes)?;
        let mut queue = self.lock();
        queue.check()?;
        *reserved -= bytes;
        let begin_in = queue.room.take(bytes);
        let lsn = queue.next_lsn;
        queue.next_lsn += 1;
        queue.frames.push(Queued {
            shard: shard.clone(),
            partition,
            payload,
            begin_in,
        });
        if let Some(book) = queue.partitions.get_mut(usize::from(partition)) {
            book.note(lsn, bytes);
            if book.wants_snapshot(self.options.snapshot_bytes_min) {
                shard.look.store(true, Ordering::Release);
            }
        }
        self.poke(&mut queue);
        Ok(Position(lsn))
    }

    /// Asks the disk for room and promises `bytes` of it. One at a time, and not too often while the disk is full.
    fn make_room(&self, bytes: u64) -> Result<(), Error> {
        let mut full_until = self
            .full_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        loop {
            let needed = {
                let mut queue = self.lock();
                queue.check()?;
                // Another may have made room meanwhile; or the promises have grown, and it takes a larger file.
                if queue.room.promise(bytes) {
                    return Ok(());
                }
                FILE_HEADER_BYTES + queue.room.promised + bytes
            };
            let spare = self.create_spare(&mut full_until, needed.max(self.spare_bytes()))?;
            self.lock().room.spares.push(spare);
        }
    }

    /// Keeps one file in reserve. Failing to is no failure yet.
    pub(super) fn stock_up(&self) {
        let mut full_until = self
            .full_until
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if self.lock().room.spares.is_empty()
            && let Ok(spare) = self.create_spare(&mut full_until, self.spare_bytes())
        {
            self.lock().room.spares.push(spare);
        }
    }

    /// The size of the next segment: in proportion to the state it serves, so that a small state keeps a small folder
    /// however often it is written.
    pub(super) fn spare_bytes(&self) -> u64 {
        let most = self.options.segment_bytes;
        (self.lock().snapshot_bytes() / 2).clamp(self.options.segment_bytes_min.min(most), most)
    }

    /// Takes room from the disk, which is left alone for a while after it had none.
    fn create_spare(&self, full_until: &mut Option<Instant>, bytes: u64) -> Result<Spare, Error> {
        if full_until.is_some_and(|until| Instant::now() < until) {
            return Err(self.no_room(bytes));
        }
        let spare = Spare::create(&*self.fs, &self.dir, self.next_spare_number(), bytes);
        match &spare {
            Ok(_) if full_until.take().is_some() => tracing::info!("the group log has room again"),
            Ok(_) => {}
            Err(error) => {
                if full_until.is_none() {
                    tracing::warn!(%error, "the group log cannot take room in advance; trying again");
                }
                *full_until = Some(Instant::now() + self.options.retry);
            }
        }
        spare
    }

    fn no_room(&self, bytes: u64) -> Error {
        Error::NoRoom {
            path: self.dir.clone(),
            bytes,
        }
    }

    pub(super) fn next_spare_number(&self) -> u64 {
        self.spare_number.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn wants_snapshot(&self, shard: &ShardEntry) -> Option<u16> {
        if !shard.look.load(Ordering::Acquire) {
            return None;
        }
        let queue = self.lock();
        let book = |partition: u16| queue.partitions.get(usize::from(partition));
        let mine = || {
            shard
                .partitions
                .iter()
                .filter_map(|&partition| Some((partition, book(partition)?)))
        };
        if mine().any(|(_, book)| book.running.is_some()) {
            // The end of it makes the shard look again.
            shard.look.store(false, Ordering::Release);
            return None;
        }
        let mut wanted = mine()
            .filter(|(_, book)| book.wants_snapshot(self.options.snapshot_bytes_min))
            .peekable();
        if wanted.peek().is_none() {
            shard.look.store(false, Ordering::Release);
            return None;
        }
        let now = Instant::now();
        wanted
            .find(|(_, book)| book.retry_at.is_none_or(|at| at <= now))
            .map(|(partition, _)| partition)
    }

    pub(super) fn begin_snapshot(&self, partition: u16) -> SnapshotWriter {
        let mut queue = self.lock();
        let as_of = queue.next_lsn - 1;
        let Some(book) = queue.partitions.get_mut(usize::from(partition)) else {
            return SnapshotWriter::nowhere();
        };
        if book.running.is_some() {
            return SnapshotWriter::nowhere();
        }
        book.running = Some(Running::default());
        drop(queue);
        let number = self.snapshot_number.fetch_add(1, Ordering::Relaxed);
        let sender = self
            .snapshots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        SnapshotWriter::begin(sender, number, partition, as_of)
    }

    /// A snapshot ended: `Some` is what it covers and its size.
    pub(super) fn end_snapshot(&self, partition: u16, done: Option<(u64, u64)>) {
        let mut queue = self.lock();
        let Some(book) = queue.partitions.get_mut(usize::from(partition)) else {
            return;
        };
        let running = book.running.take().unwrap_or_default();
        match done {
            Some(snapshot) => {
                book.snapshot = Some(snapshot);
                book.first = running.first;
                book.log_bytes = running.log_bytes;
                book.pins = false;
                book.retry_at = None;
                queue.drop_wanted = true;
            }
            None => book.retry_at = Some(Instant::now() + self.options.retry * SNAPSHOT_RETRIES),
        }
        let owner = queue
            .shards
            .iter()
            .find(|shard| shard.partitions.contains(&partition))
            .cloned();
        self.poke(&mut queue);
        drop(queue);
        if let Some(owner) = owner {
            owner.wake();
        }
    }

    /// Waits until everything appended so far is on the disk.
    pub(super) fn wait_synced(&self) -> Result<(), Error> {
        let mut queue = self.lock();
        let lsn = queue.next_lsn;
        queue.sync_wanted_lsn = lsn;
        self.poke(&mut queue);
        queue.progress_waits += 1;
        while queue.synced_lsn < lsn && queue.failed.is_none() {
            queue = self
                .progress
                .wait(queue)
                .unwrap_or_else(PoisonError::into_inner);
        }
        queue.progress_waits -= 1;
        queue.check_failed()
    }

    pub(super) fn stats(&self) -> Stats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let counters = &self.counters;
        let snapshot_bytes = self.lock().snapshot_bytes();
        Stats {
            sync_count: get(&counters.sync_count),
            frame_count: get(&counters.frame_count),
            frame_bytes: get(&counters.frame_bytes),
            segment_count: get(&counters.segment_count),
            segment_bytes: get(&counters.segment_bytes),
            snapshot_count: get(&counters.snapshot_count),
            snapshot_failed_count: get(&counters.snapshot_failed_count),
            snapshot_bytes,
        }
    }
}

impl Queue {
    fn check(&self) -> Result<(), Error> {
        self.check_failed()?;
        if self.closing {
            Err(Error::Closed)
        } else {
            Ok(())
        }
    }

    fn check_failed(&self) -> Result<(), Error> {
        match &self.failed {
            Some(reason) => Err(Error::Failed {
                reason: reason.clone(),
            }),
            None => Ok(()),
        }
    }

    /// Bytes of all snapshots.
    pub(super) fn snapshot_bytes(&self) -> u64 {
        let snapshots = self.partitions.iter().filter_map(|book| book.snapshot);
        snapshots.map(|(_, bytes)| bytes).sum()
    }

    /// The lowest position that recovery still needs from the segments.
    pub(super) fn needed_lsn(&self) -> u64 {
        self.partitions
            .iter()
            .filter_map(|book| book.first)
            .min()
            .unwrap_or(self.next_lsn)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::log::fault_fs::FaultFs;

    proptest! {
        /// Shards promise themselves room and use it up in any order; new files come when a promise needs one.
        #[test]
        fn what_is_promised_fits(steps in proptest::collection::vec((0..4_usize, 1..3000_u64, any::<bool>()), 1..200)) {
            let fs = FaultFs::new();
            let dir = Path::new("/log");
            fs.create_dirs(dir).expect("in memory");
            let mut room = Room::default();
            let mut reserved = [0; 4];
            for (number, (shard, bytes, promise)) in steps.into_iter().enumerate() {
                if promise {
                    if !room.promise(bytes) {
                        let size = FILE_HEADER_BYTES + (room.promised + bytes).max(4000);
                        room.spares.push(Spare::create(&fs, dir, number as u64, size).expect("in memory"));
                        prop_assert!(room.promise(bytes));
                    }
                    reserved[shard] += bytes;
                } else if reserved[shard] > 0 {
                    let bytes = bytes.min(reserved[shard]);
                    reserved[shard] -= bytes;
                    let left = room.left;
                    let begun = room.take(bytes);
                    prop_assert!(begun.is_some() || bytes <= left);
                }
                prop_assert_eq!(room.promised, reserved.iter().sum::<u64>());
            }
        }
    }
}
