//! The log of the simulated server: the log that ships, its threads driven by hand, on a disk in memory that loses and
//! tears what was not synced.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::rng::Rng;
use crate::desk::Trouble;
use crate::group::record::Record;
use crate::group::types::Millis;
use crate::log::by_hand::ByHand;
use crate::log::fault_fs::{FaultFs, Survive};
use crate::log::fs::Fs;
use crate::log::{
    Error, Folder, FolderOptions, LogOptions, Recovered, Recovery, ShardLog, SnapshotWriter,
};
use crate::wire::records::{decode_batch, encode_batch};

/// Where the data folder is.
const FOLDER: &str = "/data";
/// Records of one slice of a snapshot.
const SNAPSHOT_SLICE: usize = 4;
/// The one partition.
const PARTITION: u16 = 0;

/// An open log.
#[derive(Debug)]
struct Open {
    hand: ByHand,
    shard: ShardLog,
    /// A snapshot that is being pushed: what is left of it.
    snapshot: Option<(SnapshotWriter, Vec<Bytes>)>,
}

/// The disk and what is on it. It outlives the server.
#[derive(Debug)]
pub(super) struct Disk {
    fs: FaultFs,
    options: LogOptions,
    /// The data folder, from a start on until its log is opened.
    folder: Option<Folder>,
    open: Option<Open>,
    crash_count: u64,
    /// What the log holds, oldest first, as of the last snapshot.
    records: Vec<Record>,
    full: bool,
    /// Since the process started, a sync may have failed.
    syncs_fail: bool,
    /// The next append fails.
    pub(super) fails_next: bool,
}

impl Disk {
    pub(super) fn new(segment_bytes: u64, snapshot_bytes_min: u64) -> Self {
        Self {
            fs: FaultFs::recording(),
            options: LogOptions {
                segment_bytes,
                segment_bytes_min: segment_bytes,
                snapshot_bytes_min,
                segments_kept: 4,
                // No clock has a say.
                retry: Duration::ZERO,
                ..LogOptions::default()
            },
            folder: None,
            open: None,
            crash_count: 0,
            records: Vec::new(),
            full: false,
            syncs_fail: false,
            fails_next: false,
        }
    }

    /// The file system, for what lies beside the log. A crash puts another in its place.
    pub(super) fn fs(&self) -> Arc<dyn Fs> {
        self.fs.shared()
    }

    /// Whether the disk may refuse a write, or has refused one that nobody gets over without a restart.
    pub(super) fn may_refuse(&self) -> bool {
        self.full || self.syncs_fail
    }

    /// Whether a process has opened the log.
    pub(super) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Opens the data folder as a process does that starts; gives where the topics are.
    ///
    /// # Errors
    /// A sentence, if it cannot be opened.
    pub(super) fn open_folder(&mut self) -> Result<PathBuf, String> {
        let options = FolderOptions {
            partition_count: 1,
            node_id: 1,
        };
        self.folder = None;
        let folder = Folder::open(self.fs.shared(), Path::new(FOLDER), options)
            .map_err(|e| format!("the data folder cannot be opened: {e}"))?;
        let topics = folder.topics_dir();
        self.folder = Some(folder);
        Ok(topics)
    }

    /// Reads the log as a process does that starts, and opens it.
    ///
    /// # Errors
    /// A sentence: what is on the disk is not what was written there, and no crash explains it.
    pub(super) fn start(&mut self, apply: &mut dyn FnMut(&Record)) -> Result<(), String> {
        self.open = None;
        let folder = self.folder.take().ok_or("no data folder is open")?;
        let opened = Recovery::open(Arc::new(folder), self.options.clone());
        let mut reader = Reader::new(apply);
        let run =
            opened.and_then(|recovery| recovery.run_by_hand(&mut |frame| reader.take(&frame)));
        self.records = reader.end()?;
        let hand = run.map_err(|e| format!("the log cannot be opened: {e}"))?;
        self.open = Some(Open {
            shard: hand.log().shard([PARTITION]),
            hand,
            snapshot: None,
        });
        Ok(())
    }

    /// Reads the open log again, for a coordinator in place of one that was dropped.
    ///
    /// # Errors
    /// [`Trouble::Final`]: the log failed meanwhile. A sentence: it does not hold what was written.
    pub(super) fn reload(
        &mut self,
        apply: &mut dyn FnMut(&Record),
    ) -> Result<Result<(), Trouble>, String> {
        let Some(open) = &mut self.open else {
            return Err("no log is open".to_owned());
        };
        // Reading waits for the committer.
        if open.hand.flush().is_err() {
            return Ok(Err(Trouble::Final));
        }
        let mut reader = Reader::new(apply);
        let read = open
            .shard
            .reload(PARTITION, &mut |frame| reader.take(&frame));
        self.records = reader.end()?;
        match read {
            Ok(()) => Ok(Ok(())),
            Err(Error::Failed { .. }) => Ok(Err(Trouble::Final)),
            Err(error) => Err(format!("the log cannot be read again: {error}")),
        }
    }

    /// Whether there is room for a batch.
    pub(super) fn reserve(&mut self, bytes: u64) -> bool {
        let open = self.open.as_mut();
        open.is_some_and(|open| open.shard.reserve(bytes).is_ok())
    }

    /// Appends one batch; gives its position and bytes.
    pub(super) fn append(
        &mut self,
        records: &[Record],
        now: Millis,
    ) -> Result<(u64, Bytes), Trouble> {
        if std::mem::take(&mut self.fails_next) {
            return Err(Trouble::Refused);
        }
        let open = self.open.as_mut().ok_or(Trouble::Refused)?;
        let bytes = encode_batch(records, 0, now).map_err(|_| Trouble::Refused)?;
        let position = open
            .shard
            .append(PARTITION, bytes.clone())
            .map_err(|error| trouble(&error))?;
        self.records.extend_from_slice(records);
        Ok((position.number(), bytes))
    }

    /// The committer begins something, if there is something; tells whether it did.
    pub(super) fn begin(&mut self) -> bool {
        self.open.as_mut().is_some_and(|open| open.hand.begin())
    }

    /// The committer ends what it began.
    pub(super) fn end(&mut self) -> Result<(), Trouble> {
        match &mut self.open {
            Some(open) => open.hand.end().map_err(|_| Trouble::Final),
            None => Ok(()),
        }
    }

    /// The committer does all there is to do.
    pub(super) fn flush(&mut self) -> Result<(), Trouble> {
        match &mut self.open {
            Some(open) => open.hand.flush().map_err(|_| Trouble::Final),
            None => Ok(()),
        }
    }

    /// Closes the log in good order.
    pub(super) fn close(&mut self) -> Result<(), Trouble> {
        if let Some(open) = &self.open {
            open.hand.log().close().map_err(|_| Trouble::Final)?;
        }
        self.flush()
    }

    pub(super) fn durable(&self) -> Option<u64> {
        Some(self.open.as_ref()?.shard.durable().number())
    }

    /// The position of the last append.
    pub(super) fn last(&self) -> u64 {
        self.open
            .as_ref()
            .map_or(0, |open| open.hand.last().number())
    }

    pub(super) fn crash_count(&self) -> u64 {
        self.crash_count
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Nothing more fits from now on, or everything does.
    pub(super) fn set_full(&mut self, full: bool) {
        self.full = full;
        self.fs.set_capacity(full.then(|| self.fs.used_bytes()));
    }

    /// From now on every sync fails.
    pub(super) fn fail_syncs(&mut self) {
        // A process that is about to start would not start at all.
        if self.open.is_some() {
            self.syncs_fail = true;
            self.fs.fail_syncs_after(Some(0));
        }
    }

    /// Nothing goes wrong any more.
    pub(super) fn heal(&mut self) {
        self.fails_next = false;
        self.fs.fail_syncs_after(None);
        self.set_full(false);
    }

    pub(super) fn wants_snapshot(&self) -> bool {
        let open = self.open.as_ref();
        open.is_some_and(|open| open.shard.wants_snapshot().is_some())
    }

    /// Begins a snapshot of the state as it is now.
    pub(super) fn begin_snapshot(&mut self, records: Vec<Record>, now: Millis) {
        if let Some(open) = &mut self.open {
            let slices = records.chunks(SNAPSHOT_SLICE).map(|slice| {
                encode_batch(slice, 0, now).expect("what came from a log can be written to one")
            });
            open.snapshot = Some((open.shard.snapshot(PARTITION), slices.collect()));
            self.records = records;
        }
    }

    /// Writes the snapshot that was begun.
    pub(super) fn write_snapshot(&mut self) -> Result<(), Trouble> {
        match &mut self.open {
            Some(open) => write_snapshot(open).map_err(|_| Trouble::Final),
            None => Ok(()),
        }
    }

    /// The server dies: of what was not synced, any part survives. What the log was about to do may have been begun, and
    /// so may what is done beside it with `beside`.
    pub(super) fn crash(&mut self, rng: &mut Rng, beside: impl FnOnce()) {
        self.crash_count += 1;
        self.fails_next = false;
        self.syncs_fail = false;
        self.folder = None;
        let before = self.fs.op_count();
        if let Some(mut open) = self.open.take() {
            let _ = match rng.below(8) {
                0 => Ok(()),
                1 => write_snapshot(&mut open),
                _ => open.hand.flush(),
            };
        }
        beside();
        let begun = self.fs.op_count() - before;
        let op_count = before + rng.index(begun + 1);
        let survive = match rng.below(4) {
            0 => Survive::Everything,
            1 => Survive::Nothing,
            _ => Survive::Some(rng.next()),
        };
        self.fs = self.fs.after_cut(op_count, survive);
        self.set_full(self.full);
    }

    /// What the log holds, oldest first: for replay in any order of keys.
    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }
}

fn write_snapshot(open: &mut Open) -> Result<(), Error> {
    if let Some((mut writer, slices)) = open.snapshot.take() {
        slices.into_iter().for_each(|slice| writer.push(slice));
        writer.finish();
    }
    open.hand.write_snapshots()
}

fn trouble(error: &Error) -> Trouble {
    match error {
        Error::NoRoom { .. } => Trouble::Full,
        Error::Failed { .. } | Error::Closed => Trouble::Final,
        _ => Trouble::Refused,
    }
}

/// Takes in what recovery shows.
struct Reader<'a> {
    apply: &'a mut dyn FnMut(&Record),
    records: Vec<Record>,
    bad: Option<String>,
}

impl<'a> Reader<'a> {
    fn new(apply: &'a mut dyn FnMut(&Record)) -> Self {
        Self {
            apply,
            records: Vec::new(),
            bad: None,
        }
    }

    fn take(&mut self, frame: &Recovered) -> ControlFlow<()> {
        match decode_batch(&frame.payload) {
            Ok(batch) => {
                batch.records.iter().for_each(&mut *self.apply);
                self.records.extend(batch.records);
                ControlFlow::Continue(())
            }
            Err(error) => {
                self.bad = Some(format!("a frame of the log is no batch: {error}"));
                ControlFlow::Break(())
            }
        }
    }

    fn end(self) -> Result<Vec<Record>, String> {
        match self.bad {
            Some(bad) => Err(bad),
            None => Ok(self.records),
        }
    }
}
