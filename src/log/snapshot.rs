//! Snapshots: a partition's whole state as frames in a file of its own, so that the segments behind it can go. One
//! thread writes them all, in slices, to a temporary file that gets its name when it is whole and synced.
//!
//! `PPPPP-LLLLLLLLLLLLLLLLLLLL.snap` is partition P as of position L: frames after L are replayed on top.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, mpsc};
use std::thread;

use bytes::Bytes;

use super::error::Error;
use super::frame::{
    BadHeader, FILE_HEADER_BYTES, FORMAT, FileHeader, FrameHeader, FrameReader, Kind, frame_bytes,
};
use super::fs::{Fs, FsFile, Open};
use super::queue::Disk;
use super::segments::check_size;

const MAGIC: [u8; 8] = *b"CVKSNAPS";
const SUFFIX: &str = ".snap";
const TEMPORARY: &str = ".tmp";
/// What is gathered before it is written.
const WRITE_BYTES: usize = 256 << 10;
/// What is written before it is synced: one great sync at the end would hold up the log's own.
const SYNC_BYTES: u64 = 4 << 20;

/// Takes a partition's state, frame by frame. Dropped before [`SnapshotWriter::finish`], it leaves no trace.
#[derive(Debug)]
pub struct SnapshotWriter {
    job: Option<(mpsc::Sender<Message>, u64)>,
    backlog: Arc<AtomicUsize>,
}

/// From the shards to the thread.
#[derive(Debug)]
pub(super) enum Message {
    Begin {
        job: u64,
        partition: u16,
        as_of: u64,
        backlog: Arc<AtomicUsize>,
    },
    Push {
        job: u64,
        payload: Bytes,
    },
    Finish {
        job: u64,
    },
    Abandon {
        job: u64,
    },
    Stop,
}

impl SnapshotWriter {
    /// A writer that writes nothing.
    pub(super) fn nowhere() -> Self {
        Self {
            job: None,
            backlog: Arc::default(),
        }
    }

    pub(super) fn begin(
        sender: Option<mpsc::Sender<Message>>,
        job: u64,
        partition: u16,
        as_of: u64,
    ) -> Self {
        let backlog = Arc::default();
        let Some(sender) = sender else {
            return Self { job: None, backlog };
        };
        // Without the thread the log is closed, and nobody waits for a snapshot.
        let _ = sender.send(Message::Begin {
            job,
            partition,
            as_of,
            backlog: Arc::clone(&backlog),
        });
        Self {
            job: Some((sender, job)),
            backlog,
        }
    }

    /// Adds a frame. Never blocks; see [`SnapshotWriter::backlog_bytes`].
    pub fn push(&mut self, payload: Bytes) {
        if let Some((sender, job)) = &self.job {
            self.backlog.fetch_add(payload.len(), Ordering::Relaxed);
            let _ = sender.send(Message::Push { job: *job, payload });
        }
    }

    /// Bytes pushed and not yet written. Who has a large state to push does so in slices, and waits with the next
    /// while this is more than some megabytes.
    pub fn backlog_bytes(&self) -> usize {
        self.backlog.load(Ordering::Relaxed)
    }

    /// The state is complete. The snapshot counts once it is on the disk; until then the log keeps what it replaces.
    pub fn finish(mut self) {
        if let Some((sender, job)) = self.job.take() {
            let _ = sender.send(Message::Finish { job });
        }
    }
}

impl Drop for SnapshotWriter {
    fn drop(&mut self) {
        if let Some((sender, job)) = self.job.take() {
            let _ = sender.send(Message::Abandon { job });
        }
    }
}

/// Who writes snapshots, all of them.
pub(super) struct Scribe {
    disk: Arc<Disk>,
    jobs: BTreeMap<u64, Job>,
}

impl Scribe {
    pub(super) fn new(disk: Arc<Disk>) -> Self {
        Self {
            disk,
            jobs: BTreeMap::new(),
        }
    }

    /// Starts the thread.
    pub(super) fn start(
        mut self,
        messages: mpsc::Receiver<Message>,
    ) -> io::Result<thread::JoinHandle<()>> {
        thread::Builder::new()
            .name("convoke-snapshot".into())
            .spawn(move || {
                for message in messages {
                    if matches!(message, Message::Stop) {
                        break;
                    }
                    self.take(message);
                }
                for job in self.jobs.into_values() {
                    job.end(None);
                }
            })
    }

    /// Does what a shard asks for.
    pub(super) fn take(&mut self, message: Message) {
        match message {
            Message::Begin {
                job,
                partition,
                as_of,
                backlog,
            } => {
                let begun = Job::begin(self.disk.clone(), job, partition, as_of, backlog);
                self.jobs.insert(job, begun);
            }
            Message::Push { job, payload } => {
                if let Some(job) = self.jobs.get_mut(&job) {
                    job.push(&payload);
                }
            }
            Message::Finish { job } => {
                if let Some(job) = self.jobs.remove(&job) {
                    job.finish();
                }
            }
            Message::Abandon { job } => {
                if let Some(job) = self.jobs.remove(&job) {
                    job.end(None);
                }
            }
            Message::Stop => {}
        }
    }
}

/// A snapshot being written.
struct Job {
    disk: Arc<Disk>,
    partition: u16,
    as_of: u64,
    backlog: Arc<AtomicUsize>,
    path: PathBuf,
    /// `Err` from the first failure on: the rest is dropped as it comes.
    file: Result<Arc<dyn FsFile>, Error>,
    seed: u32,
    count: u64,
    /// Gathered, not yet written.
    buffer: Vec<u8>,
    written: u64,
    synced: u64,
}

impl Job {
    fn begin(
        disk: Arc<Disk>,
        number: u64,
        partition: u16,
        as_of: u64,
        backlog: Arc<AtomicUsize>,
    ) -> Self {
        let path = disk.dir.join(format!("{number}{SUFFIX}{TEMPORARY}"));
        let file = disk
            .fs
            .open(&path, Open::Create)
            .map_err(|e| Error::room("create", &path, 0, e));
        let header = FileHeader {
            magic: MAGIC,
            base: as_of,
            salt: disk.fs.salt(),
        };
        let buffer = header.encode().to_vec();
        Self {
            disk,
            partition,
            as_of,
            backlog,
            path,
            file,
            seed: header.seed(),
            count: 0,
            buffer,
            written: 0,
            synced: 0,
        }
    }

    fn push(&mut self, payload: &[u8]) {
        self.backlog.fetch_sub(payload.len(), Ordering::Relaxed);
        if let Err(error) = check_size(payload.len() as u64) {
            self.file = Err(error);
        }
        self.frame(Kind::Data, payload);
        if self.buffer.len() >= WRITE_BYTES {
            self.write();
        }
    }

    fn frame(&mut self, kind: Kind, payload: &[u8]) {
        if self.file.is_err() {
            return;
        }
        let header = FrameHeader {
            payload_bytes: payload.len() as u32,
            lsn: self.count,
            floor: 0,
            partition: self.partition,
            kind,
        };
        let end = self.buffer.len() + frame_bytes(payload.len() as u64) as usize;
        self.buffer
            .extend_from_slice(&header.encode(self.seed, payload));
        self.buffer.extend_from_slice(payload);
        self.buffer.resize(end, 0);
        self.count += 1;
    }

    fn write(&mut self) {
        if let Ok(file) = &self.file {
            let bytes = self.buffer.len() as u64;
            let mut done = file
                .write_at(&[&self.buffer], self.written)
                .map_err(|e| Error::room("write", &self.path, bytes, e));
            self.written += bytes;
            if done.is_ok() && self.written - self.synced >= SYNC_BYTES {
                self.synced = self.written;
                done = file
                    .sync_data()
                    .map_err(|e| Error::io("sync", &self.path, e));
            }
            if let Err(error) = done {
                self.file = Err(error);
            }
        }
        self.buffer.clear();
    }

    fn finish(mut self) {
        self.frame(Kind::End, &[]);
        self.write();
        let done = self.publish();
        if let Err(error) = &done {
            tracing::warn!(%error, partition = self.partition, "a snapshot was given up; it is tried again later");
        }
        self.end(done.ok());
    }

    /// Gives the file its name; the snapshots it replaces go.
    fn publish(&self) -> Result<(u64, u64), Error> {
        let file = self.file.as_ref().map_err(Clone::clone)?;
        file.sync_all()
            .map_err(|e| Error::io("sync", &self.path, e))?;
        // The state may hold what was appended since the snapshot began: that must not be lost while this stays.
        self.disk.wait_synced()?;
        let dir = &self.disk.dir;
        let name = snapshot_path(dir, self.partition, self.as_of);
        self.disk
            .fs
            .rename(&self.path, &name)
            .map_err(|e| Error::room("rename", &self.path, 0, e))?;
        self.disk
            .fs
            .sync_dir(dir)
            .map_err(|e| Error::io("sync", dir, e))?;
        let _files = self
            .disk
            .files
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for snapshot in list(&*self.disk.fs, dir)?
            .into_iter()
            .filter(|other| other.partition == self.partition)
        {
            if snapshot.as_of < self.as_of {
                self.disk
                    .fs
                    .remove(&snapshot.path)
                    .map_err(|e| Error::io("remove", &snapshot.path, e))?;
            }
        }
        Ok((self.as_of, self.written))
    }

    fn end(self, done: Option<(u64, u64)>) {
        let counters = &self.disk.counters;
        match done {
            Some(_) => counters.snapshot_count.fetch_add(1, Ordering::Relaxed),
            None => counters
                .snapshot_failed_count
                .fetch_add(1, Ordering::Relaxed),
        };
        if done.is_none() {
            drop(self.file);
            // What stays is removed when the folder is opened.
            let _ = self.disk.fs.remove(&self.path);
        }
        self.disk.end_snapshot(self.partition, done);
    }
}

fn snapshot_path(dir: &Path, partition: u16, as_of: u64) -> PathBuf {
    dir.join(format!("{partition:05}-{as_of:020}{SUFFIX}"))
}

/// A snapshot on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SnapshotFile {
    pub(super) partition: u16,
    pub(super) as_of: u64,
    pub(super) path: PathBuf,
}

/// The snapshots in a folder, by partition, older ones first.
pub(super) fn list(fs: &dyn Fs, dir: &Path) -> Result<Vec<SnapshotFile>, Error> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let parse = |name: String| {
        let (partition, as_of) = name.strip_suffix(SUFFIX)?.split_once('-')?;
        Some(SnapshotFile {
            partition: partition.parse().ok()?,
            as_of: as_of.parse().ok()?,
            path: dir.join(&name),
        })
    };
    Ok(names.into_iter().filter_map(parse).collect())
}

/// Removes what snapshots that were never finished left behind.
pub(super) fn sweep(fs: &dyn Fs, dir: &Path) -> Result<(), Error> {
    for name in fs.list(dir).map_err(|e| Error::io("list", dir, e))? {
        if name.ends_with(TEMPORARY) {
            let path = dir.join(name);
            fs.remove(&path)
                .map_err(|e| Error::io("remove", &path, e))?;
        }
    }
    Ok(())
}

impl SnapshotFile {
    /// Shows every frame, with the bytes of the file passed so far.
    pub(super) fn read(
        &self,
        fs: &dyn Fs,
        sink: &mut dyn FnMut(Bytes, u64) -> ControlFlow<()>,
    ) -> Result<u64, Error> {
        let io = |e| Error::io("read", &self.path, e);
        let file = fs.open(&self.path, Open::Read).map_err(io)?;
        let bytes = file.size().map_err(io)?;
        let damaged = |at| {
            Error::damaged(
                &self.path,
                at,
                "the snapshot does not read back as it was written",
            )
        };
        let header = match FileHeader::read(&*file, MAGIC).map_err(io)? {
            Ok(header) if header.base == self.as_of => header,
            Err(BadHeader::Newer(found)) => {
                return Err(Error::Newer {
                    path: self.path.clone(),
                    found,
                    known: FORMAT,
                });
            }
            Ok(_) | Err(BadHeader::Damaged) => return Err(damaged(0)),
        };
        let mut reader = FrameReader::new(file, header.seed(), FILE_HEADER_BYTES, bytes);
        let mut count = 0;
        loop {
            let at = reader.at();
            let frame = reader
                .next()
                .map_err(io)?
                .filter(|frame| frame.lsn == count && frame.partition == self.partition);
            let frame = frame.ok_or_else(|| damaged(at))?;
            match frame.kind {
                Kind::Data if sink(frame.payload, reader.at()).is_continue() => count += 1,
                Kind::Data => return Err(Error::Stopped),
                Kind::End => return Ok(bytes),
                Kind::Seal => return Err(damaged(at)),
            }
        }
    }

    pub(super) fn size(&self, fs: &dyn Fs) -> Result<u64, Error> {
        let size = fs.open(&self.path, Open::Read).and_then(|file| file.size());
        size.map_err(|e| Error::io("measure", &self.path, e))
    }
}
