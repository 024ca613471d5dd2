//! Opening the group log: which snapshots count, and one pass over the segments for all partitions. Nothing can be
//! appended before it is done.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::{Arc, PoisonError, mpsc};

use super::by_hand::ByHand;
use super::committer::{Committer, SPARES_MAX};
use super::error::Error;
use super::folder::Folder;
use super::fs::Fs;
use super::group::{GroupLog, LogOptions, Recovered};
use super::queue::{Beginning, Disk, PartitionBook};
use super::segments::{Segments, Spare};
use super::snapshot::{self, Message, Scribe, SnapshotFile};

/// How far a recovery has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes read.
    pub bytes_done: u64,
    /// Bytes to read; an upper bound, since segments are not filled to the end.
    pub bytes_total: u64,
}

/// A log that has been read: its books, its files, and what shards ask of whoever writes snapshots.
type Read = (Arc<Disk>, Segments, mpsc::Receiver<Message>);

/// A group log that is held and not yet read.
#[derive(Debug)]
pub struct Recovery {
    folder: Arc<Folder>,
    options: LogOptions,
    /// The snapshot of each partition that has one, and its size.
    snapshots: Vec<(SnapshotFile, u64)>,
    /// Snapshots that newer ones have replaced.
    replaced: Vec<SnapshotFile>,
}

impl Recovery {
    /// Looks at the group log of a folder. Quick: reading is [`Recovery::run`].
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Newer`], [`Error::NoRoom`], [`Error::Io`].
    pub fn open(folder: Arc<Folder>, options: LogOptions) -> Result<Self, Error> {
        let dir = folder.group_dir();
        let fs = &**folder.fs();
        if fs.list(&dir).is_err() {
            fs.create_dirs(&dir)
                .map_err(|e| Error::room("create", &dir, 0, e))?;
            fs.sync_dir(folder.path())
                .map_err(|e| Error::io("sync", folder.path(), e))?;
        }
        snapshot::sweep(fs, &dir)?;
        let mut snapshots: Vec<(SnapshotFile, u64)> = Vec::new();
        let mut replaced = Vec::new();
        for file in snapshot::list(fs, &dir)? {
            if file.partition >= folder.partition_count() {
                return Err(Error::damaged(
                    &file.path,
                    0,
                    "a snapshot of a partition that the folder does not have",
                ));
            }
            let bytes = file.size(fs)?;
            // Older ones come first. A crash leaves two where the older was about to be removed; the newer has its
            // name only since it was whole and synced.
            match snapshots
                .last_mut()
                .filter(|(other, _)| other.partition == file.partition)
            {
                Some(other) => replaced.push(std::mem::replace(other, (file, bytes)).0),
                None => snapshots.push((file, bytes)),
            }
        }
        Ok(Self {
            folder,
            options,
            snapshots,
            replaced,
        })
    }

    /// Reads everything: for each partition its snapshot, then its frames in order, one pass for all. Blocks. Memory is
    /// bounded by the longest frame. `progress` is called every so often. Then the log is open.
    ///
    /// # Errors
    /// [`Error::Damaged`] where the disk does not hold what was written and no crash explains it; [`Error::Newer`],
    /// [`Error::Io`]; [`Error::Stopped`] if `sink` breaks.
    pub fn run(
        self,
        sink: &mut dyn FnMut(Recovered) -> ControlFlow<()>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<GroupLog, Error> {
        let dir = self.folder.group_dir();
        let (disk, segments, messages) = self.read(sink, progress)?;
        let thread = |e| Error::io("start a thread for", &dir, e);
        let snapshots = Scribe::new(disk.clone()).start(messages).map_err(thread)?;
        let committer = Committer::new(disk.clone(), segments)
            .start()
            .map_err(thread)?;
        Ok(GroupLog::disk(disk, vec![committer, snapshots]))
    }

    /// As [`run`](Self::run), but the log has no threads: whoever opens it says when they would do something.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    #[doc(hidden)]
    pub fn run_by_hand(
        self,
        sink: &mut dyn FnMut(Recovered) -> ControlFlow<()>,
    ) -> Result<ByHand, Error> {
        let (disk, segments, messages) = self.read(sink, &mut |_| ())?;
        Ok(ByHand::new(disk, segments, messages))
    }

    fn read(
        self,
        sink: &mut dyn FnMut(Recovered) -> ControlFlow<()>,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Read, Error> {
        let dir = self.folder.group_dir();
        let fs = self.folder.fs().clone();
        let mut books = vec![PartitionBook::default(); usize::from(self.folder.partition_count())];
        let mut meter = Meter::new(&*fs, &dir, &self.snapshots, progress)?;
        for (file, bytes) in &self.snapshots {
            let partition = file.partition;
            file.read(&*fs, &mut |payload, at| {
                meter.at(at);
                sink(Recovered { partition, payload })
            })?;
            meter.passed(*bytes);
            books[usize::from(partition)].snapshot = Some((file.as_of, *bytes));
        }
        let mut stray = None;
        let (segments, opened) = Segments::open(fs.clone(), &dir, &mut |visit| {
            meter.at(visit.bytes_done);
            let frame = visit.frame;
            let Some(book) = books.get_mut(usize::from(frame.partition)) else {
                stray = Some(frame.partition);
                return ControlFlow::Break(());
            };
            if book.snapshot.is_some_and(|(as_of, _)| frame.lsn <= as_of) {
                return ControlFlow::Continue(());
            }
            book.note(frame.lsn, frame.bytes());
            sink(Recovered {
                partition: frame.partition,
                payload: frame.payload.clone(),
            })
        })
        .map_err(|error| match stray {
            Some(partition) => Error::damaged(
                &dir,
                0,
                format!("frames of partition {partition}, which the folder does not have"),
            ),
            None => error,
        })?;
        if let Some((file, _)) = self
            .snapshots
            .iter()
            .find(|(file, _)| file.as_of >= segments.next_lsn())
        {
            let end = segments.next_lsn();
            let what = format!(
                "segments are missing: the log ends before position {end}, yet {} was taken later",
                file.path.display()
            );
            return Err(Error::damaged(&dir, 0, what));
        }
        if let Some(cut) = &opened.cut {
            tracing::warn!(file = %cut.path.display(), offset = cut.offset, "cut a torn end that was never acknowledged");
        }
        meter.done();
        self.begin(segments, opened.spares, books)
    }

    /// Sweeps up, and opens the books.
    fn begin(
        self,
        segments: Segments,
        mut spares: Vec<Spare>,
        books: Vec<PartitionBook>,
    ) -> Result<Read, Error> {
        let fs = self.folder.fs();
        let number = spares
            .iter()
            .filter_map(Spare::number)
            .max()
            .map_or(0, |last| last + 1);
        spares.sort_by_key(|spare| std::cmp::Reverse(spare.bytes));
        let least = self
            .options
            .segment_bytes_min
            .min(self.options.segment_bytes);
        // One whose making was interrupted is too short.
        let kept = spares
            .iter()
            .take(SPARES_MAX)
            .filter(|spare| spare.bytes >= least)
            .count();
        for spare in spares.drain(kept..) {
            fs.remove(&spare.path)
                .map_err(|e| Error::io("remove", &spare.path, e))?;
        }
        for file in &self.replaced {
            fs.remove(&file.path)
                .map_err(|e| Error::io("remove", &file.path, e))?;
        }
        let beginning = Beginning {
            next_lsn: segments.next_lsn(),
            left: segments.room(),
            spares,
            partitions: books,
        };
        let (sender, receiver) = mpsc::channel();
        let disk = Disk::new(self.folder, self.options, beginning, number, sender);
        Ok((Arc::new(disk), segments, receiver))
    }
}

/// Turns bytes passed into calls of `progress`, not too many.
struct Meter<'a> {
    progress: &'a mut dyn FnMut(Progress),
    before: u64,
    total: u64,
    told: u64,
}

impl<'a> Meter<'a> {
    const STEP_BYTES: u64 = 4 << 20;

    fn new(
        fs: &dyn Fs,
        dir: &Path,
        snapshots: &[(SnapshotFile, u64)],
        progress: &'a mut dyn FnMut(Progress),
    ) -> Result<Self, Error> {
        let snapshot_bytes: u64 = snapshots.iter().map(|(_, bytes)| bytes).sum();
        let mut this = Self {
            progress,
            before: 0,
            total: snapshot_bytes + Segments::measure(fs, dir)?,
            told: 0,
        };
        this.tell(0);
        Ok(this)
    }

    fn at(&mut self, bytes: u64) {
        if self.before + bytes >= self.told + Self::STEP_BYTES {
            self.tell(self.before + bytes);
        }
    }

    fn passed(&mut self, bytes: u64) {
        self.before += bytes;
    }

    fn done(&mut self) {
        self.tell(self.total);
    }

    fn tell(&mut self, bytes_done: u64) {
        self.told = bytes_done;
        (self.progress)(Progress {
            bytes_done: bytes_done.min(self.total),
            bytes_total: self.total,
        });
    }
}

/// Reads one partition of an open log again, everything appended so far included.
pub(super) fn reload(
    disk: &Arc<Disk>,
    partition: u16,
    sink: &mut dyn FnMut(Recovered) -> ControlFlow<()>,
) -> Result<(), Error> {
    disk.wait_synced()?;
    let end = disk.lock().synced_lsn;
    let _files = disk.files.lock().unwrap_or_else(PoisonError::into_inner);
    let snapshots = snapshot::list(&*disk.fs, &disk.dir)?;
    let newest = snapshots
        .into_iter()
        .rfind(|file| file.partition == partition);
    if let Some(file) = &newest {
        file.read(&*disk.fs, &mut |payload, _| {
            sink(Recovered { partition, payload })
        })?;
    }
    let as_of = newest.map_or(0, |file| file.as_of);
    Segments::scan(&*disk.fs, &disk.dir, end, &mut |frame| {
        if frame.partition != partition || frame.lsn <= as_of {
            return ControlFlow::Continue(());
        }
        sink(Recovered {
            partition,
            payload: frame.payload.clone(),
        })
    })
}
