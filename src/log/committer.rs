//! The thread that writes: everything queued in one write, one sync for all of it, then each shard that had a frame in
//! it learns its new durable position. While a sync runs the next batch gathers; that is the whole group commit.
//!
//! In the interval mode nobody waits for a sync, so a thread of its own makes it, and writing goes on.
#![expect(
    clippy::disallowed_methods,
    reason = "measures syncs and paces the interval mode"
)]

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::error::Error;
use super::group::{Position, SyncMode, SyncSample};
use super::queue::{Disk, Queue, Queued};
use super::segments::{NewFrame, Segments};

/// Files kept for reuse: overwriting one in place spares the file system's journal.
pub(super) const SPARES_MAX: usize = 2;

/// What the committer finds when it looks.
pub(super) enum Work {
    Frames(Vec<Queued>),
    Sync,
    /// The sync in the background has ended.
    Synced,
    Drop,
    Close,
}

pub(super) struct Committer {
    disk: Arc<Disk>,
    segments: Segments,
    /// The last batch's memory, for the next.
    spent: Vec<Queued>,
    /// Written and not synced: frames, bytes.
    unsynced: (u64, u64),
    /// When the interval mode syncs next.
    sync_at: Option<Instant>,
    /// Whether syncs that nobody waits for may run beside the writing.
    has_threads: bool,
    background: Option<Background>,
}

/// A sync that runs beside the writing.
struct Background {
    /// Positions below were written when it began.
    lsn: u64,
    /// What it makes durable: frames, bytes.
    unsynced: (u64, u64),
    thread: JoinHandle<(Result<(), Error>, Duration)>,
}

impl Committer {
    pub(super) fn new(disk: Arc<Disk>, segments: Segments) -> Self {
        let committer = Self {
            disk,
            segments,
            spent: Vec::new(),
            unsynced: (0, 0),
            sync_at: None,
            has_threads: false,
            background: None,
        };
        committer.count();
        committer
    }

    /// Starts the thread.
    pub(super) fn start(mut self) -> std::io::Result<JoinHandle<()>> {
        self.has_threads = true;
        thread::Builder::new()
            .name("convoke-log".into())
            .spawn(move || self.run())
    }

    fn run(mut self) {
        // A panic would leave everyone waiting.
        let guard = FailOnPanic(self.disk.clone());
        if let Err(error) = self.work() {
            tracing::error!(%error, "the log failed");
            self.disk.fail(&error);
        }
        drop(guard);
    }

    fn work(&mut self) -> Result<(), Error> {
        self.disk.stock_up();
        loop {
            let work = self.next();
            let closes = matches!(work, Work::Close);
            self.step(work)?;
            if closes {
                return Ok(());
            }
        }
    }

    /// Does a piece of work.
    pub(super) fn step(&mut self, work: Work) -> Result<(), Error> {
        match work {
            Work::Frames(frames) => {
                self.commit(frames)?;
                self.disk.stock_up();
                Ok(())
            }
            Work::Sync => self.sync_beside(),
            Work::Synced => self.end_background(),
            Work::Drop => self.drop_segments(),
            Work::Close => self.close(),
        }
    }

    /// Takes a piece of work, if there is one.
    pub(super) fn look(&mut self, queue: &mut Queue) -> Option<Work> {
        if !queue.frames.is_empty() {
            let spent = std::mem::take(&mut self.spent);
            return Some(Work::Frames(std::mem::replace(&mut queue.frames, spent)));
        }
        if std::mem::take(&mut queue.sync_ended) {
            return Some(Work::Synced);
        }
        if queue.sync_wanted_lsn > queue.synced_lsn && self.background.is_none() {
            return Some(Work::Sync);
        }
        if queue.drop_wanted {
            queue.drop_wanted = false;
            return Some(Work::Drop);
        }
        queue.closing.then_some(Work::Close)
    }

    /// Sleeps until there is work.
    fn next(&mut self) -> Work {
        let disk = self.disk.clone();
        let mut queue = disk.lock();
        loop {
            if let Some(work) = self.look(&mut queue) {
                return work;
            }
            // One at a time: the next begins when the last has ended.
            let sync_at = self.sync_at.filter(|_| self.background.is_none());
            let left = sync_at.map(|at| at.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Work::Sync;
            }
            queue.committer_waits = true;
            queue = match left {
                Some(left) => {
                    disk.work
                        .wait_timeout(queue, left)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0
                }
                None => disk
                    .work
                    .wait(queue)
                    .unwrap_or_else(PoisonError::into_inner),
            };
            queue.committer_waits = false;
        }
    }

    fn commit(&mut self, mut frames: Vec<Queued>) -> Result<(), Error> {
        let mut rest = &mut frames[..];
        while !rest.is_empty() {
            if let Some(spare) = rest[0].begin_in.take() {
                // So that a segment is whole on the disk before the next has a frame.
                self.sync()?;
                self.segments.begin_segment(spare)?;
                self.count();
                self.ask_for_snapshots();
            }
            let count = 1 + rest[1..]
                .iter()
                .take_while(|frame| frame.begin_in.is_none())
                .count();
            let (now, later) = rest.split_at_mut(count);
            self.write(now)?;
            rest = later;
        }
        match self.disk.options.sync {
            SyncMode::Always => self.sync()?,
            SyncMode::Interval(every) => {
                self.sync_at.get_or_insert_with(|| Instant::now() + every);
                if self.sync_at.is_some_and(|at| at <= Instant::now()) {
                    self.sync_beside()?;
                }
            }
            SyncMode::Never => {}
        }
        self.publish(&frames);
        frames.clear();
        frames.shrink_to(4096);
        self.spent = frames;
        Ok(())
    }

    fn write(&mut self, frames: &[Queued]) -> Result<(), Error> {
        let frames: Vec<NewFrame<'_>> = frames
            .iter()
            .map(|frame| NewFrame {
                partition: frame.partition,
                payload: &frame.payload,
            })
            .collect();
        self.segments.write(&frames)?;
        let bytes = frames.iter().map(NewFrame::bytes).sum::<u64>();
        self.unsynced.0 += frames.len() as u64;
        self.unsynced.1 += bytes;
        self.disk
            .counters
            .frame_count
            .fetch_add(frames.len() as u64, Ordering::Relaxed);
        self.disk
            .counters
            .frame_bytes
            .fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Syncs what is written, and comes back when that is done.
    fn sync(&mut self) -> Result<(), Error> {
        self.end_background()?;
        self.sync_at = None;
        let unsynced = std::mem::take(&mut self.unsynced);
        if unsynced.0 > 0 {
            let start = Instant::now();
            self.segments.sync()?;
            self.report_sync(unsynced, start.elapsed());
        }
        self.publish_synced(self.segments.next_lsn());
        Ok(())
    }

    /// Syncs what is written: beside the writing where no reply waits for it.
    fn sync_beside(&mut self) -> Result<(), Error> {
        if self.background.is_some() {
            return Ok(());
        }
        let is_awaited = matches!(self.disk.options.sync, SyncMode::Always);
        if is_awaited || !self.has_threads || self.unsynced.0 == 0 {
            return self.sync();
        }
        let Some(sync) = self.segments.begin_sync() else {
            return self.sync();
        };
        let (lsn, disk) = (self.segments.next_lsn(), self.disk.clone());
        let thread = thread::Builder::new()
            .name("convoke-log-sync".into())
            .spawn(move || {
                let start = Instant::now();
                let done = sync.run();
                let took = start.elapsed();
                let mut queue = disk.lock();
                queue.sync_ended = true;
                disk.poke(&mut queue);
                (done, took)
            });
        let Ok(thread) = thread else {
            // No thread to be had: then writing waits.
            return self.sync();
        };
        self.sync_at = None;
        self.background = Some(Background {
            lsn,
            unsynced: std::mem::take(&mut self.unsynced),
            thread,
        });
        Ok(())
    }

    /// Waits for the sync in the background, if there is one, and takes in what it did.
    fn end_background(&mut self) -> Result<(), Error> {
        let Some(background) = self.background.take() else {
            return Ok(());
        };
        let Ok((done, took)) = background.thread.join() else {
            return Err(Error::Failed {
                reason: "the thread that syncs it panicked".into(),
            });
        };
        self.disk.lock().sync_ended = false;
        done?;
        self.segments.end_sync(background.lsn);
        self.report_sync(background.unsynced, took);
        self.publish_synced(background.lsn);
        Ok(())
    }

    fn report_sync(&self, (frames, bytes): (u64, u64), took: Duration) {
        self.disk
            .counters
            .sync_count
            .fetch_add(1, Ordering::Relaxed);
        if let Some(on_sync) = &self.disk.options.on_sync {
            on_sync(SyncSample {
                took,
                frames,
                bytes,
            });
        }
    }

    fn publish_synced(&self, lsn: u64) {
        let mut queue = self.disk.lock();
        queue.synced_lsn = lsn;
        if queue.progress_waits > 0 {
            self.disk.progress.notify_all();
        }
    }

    /// Tells every shard with a frame in the batch, and only those.
    fn publish(&self, frames: &[Queued]) {
        let written = self.segments.next_lsn();
        self.disk.lock().written_lsn = written;
        for frame in frames {
            if frame.shard.told.swap(written, Ordering::Relaxed) != written {
                frame.shard.durable.send_replace(Position(written - 1));
            }
        }
    }

    /// A partition that seldom writes must not keep old segments for ever.
    fn ask_for_snapshots(&self) {
        let Some(oldest_end) = self.segments.oldest_end() else {
            return;
        };
        let segment_bytes = self.disk.spare_bytes();
        let mut queue = self.disk.lock();
        let most = 2 * queue.snapshot_bytes() + self.disk.options.segments_kept * segment_bytes;
        if self.segments.file_bytes() <= most {
            return;
        }
        for book in &mut queue.partitions {
            book.pins |= book.first.is_some_and(|first| first < oldest_end);
        }
        let shards = queue.shards.clone();
        drop(queue);
        for shard in shards {
            shard.wake();
        }
    }

    /// Drops the segments that snapshots have made needless.
    fn drop_segments(&mut self) -> Result<(), Error> {
        let Ok(_files) = self.disk.files.try_lock() else {
            // Someone reads them. The next snapshot comes by here again.
            return Ok(());
        };
        let needed = self.disk.lock().needed_lsn().min(self.segments.next_lsn());
        while let Some(oldest) = self.segments.oldest_below(needed) {
            let wanted = self.disk.lock().room.spares.len() < SPARES_MAX;
            if wanted && self.fits_reuse(oldest) {
                let number = self.disk.next_spare_number();
                match self.segments.recycle_oldest(number) {
                    Ok(Some(spare)) => self.disk.lock().room.spares.push(spare),
                    Ok(None) => self.segments.remove_oldest()?,
                    // A rename may need room that removing does not.
                    Err(error) if error.is_full() => self.segments.remove_oldest()?,
                    Err(error) => return Err(error),
                }
            } else {
                self.segments.remove_oldest()?;
            }
        }
        self.count();
        Ok(())
    }

    /// Neither a dwarf from the log's first days nor the giant that one long frame needed.
    fn fits_reuse(&self, file_bytes: u64) -> bool {
        let size = self.disk.spare_bytes();
        (size / 2..=2 * size).contains(&file_bytes)
    }

    fn count(&self) {
        let counters = &self.disk.counters;
        counters
            .segment_count
            .store(self.segments.count() as u64, Ordering::Relaxed);
        counters
            .segment_bytes
            .store(self.segments.file_bytes(), Ordering::Relaxed);
    }

    fn close(&mut self) -> Result<(), Error> {
        self.sync()?;
        self.segments.seal()
    }
}

struct FailOnPanic(Arc<Disk>);

impl Drop for FailOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.fail(&Error::Failed {
                reason: "the thread that writes it panicked".into(),
            });
        }
    }
}
