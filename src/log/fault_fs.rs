//! A disk in memory that fails on demand: it records what was done to it, and can be had as it would be after a power
//! cut at any moment of that record. For tests and simulation; the same seed gives the same disk.
//!
//! What a cut may leave: everything that was synced; of what was not, any part. Writes survive whole, in part, sector by
//! sector, or not at all, in any combination; names survive up to some moment after the last sync of their folder.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::fs::{Fs, FsFile, Lock, Open};

/// Bytes that a disk writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// What a power cut leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survive {
    /// Nothing.
    Nothing,
    /// Everything.
    Everything,
    /// Some of it, drawn with this seed.
    Some(u64),
}

/// The disk. Clones are the same disk.
#[derive(Clone, Default)]
pub struct FaultFs {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    disk: Mutex<Disk>,
    changed: Condvar,
}

#[derive(Default)]
struct Disk {
    names: BTreeMap<PathBuf, u64>,
    dirs: BTreeSet<PathBuf>,
    files: BTreeMap<u64, Vec<u8>>,
    /// Open handles of each file; one without a name goes with the last.
    handles: BTreeMap<u64, usize>,
    file_next: u64,
    locks: BTreeSet<PathBuf>,
    record: Option<Vec<Op>>,
    /// What everything may take together.
    capacity: Option<u64>,
    /// Syncs until one fails; later ones fail too.
    syncs_left: Option<u64>,
    writes_left: Option<u64>,
    hold_syncs: bool,
    held_count: usize,
    sync_count: u64,
    /// Drawn so far: a disk after a cut goes on from there.
    salts: u64,
}

/// What was done to the disk.
#[derive(Clone, Debug)]
enum Op {
    Create(PathBuf, u64),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
    SyncDir(PathBuf),
    CreateDirs(PathBuf),
    RemoveDirAll(PathBuf),
    Write(u64, u64, Vec<u8>),
    Resize(u64, u64),
    Sync(u64),
    FailedSync(u64),
    Mark(u64),
}

impl fmt::Debug for FaultFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FaultFs")
    }
}

impl FaultFs {
    /// An empty disk that records nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty disk that records everything, for [`FaultFs::after_cut`].
    pub fn recording() -> Self {
        let this = Self::default();
        this.lock().record = Some(Vec::new());
        this
    }

    /// The disk as the rooms take it.
    pub fn shared(&self) -> Arc<dyn Fs> {
        Arc::new(self.clone())
    }

    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.shared
            .disk
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// How many operations are in the record.
    pub fn op_count(&self) -> usize {
        self.lock().record.as_ref().map_or(0, Vec::len)
    }

    /// Notes a value in the record, for instance what has just been acknowledged.
    pub fn mark(&self, value: u64) {
        self.lock().note(Op::Mark(value));
    }

    /// The marks among the first `op_count` operations.
    pub fn marks(&self, op_count: usize) -> Vec<u64> {
        let disk = self.lock();
        let ops = disk.record.iter().flatten().take(op_count);
        ops.filter_map(|op| {
            if let Op::Mark(value) = op {
                Some(*value)
            } else {
                None
            }
        })
        .collect()
    }

    /// The record's first operations, one a line, for a failing test's message.
    pub fn describe(&self, op_count: usize) -> String {
        let disk = self.lock();
        let line = |op: &Op| match op {
            Op::Write(file, at, bytes) => {
                format!("Write({file}, at {at}, {} bytes)\n", bytes.len())
            }
            op => format!("{op:?}\n"),
        };
        disk.record
            .iter()
            .flatten()
            .take(op_count)
            .map(line)
            .collect()
    }

    /// The disk after a power cut behind the first `op_count` operations of the record. It has no faults, and records.
    pub fn after_cut(&self, op_count: usize, survive: Survive) -> Self {
        let ops: Vec<Op> = self
            .lock()
            .record
            .iter()
            .flatten()
            .take(op_count)
            .cloned()
            .collect();
        let after = Self::recording();
        let mut disk = Platter::default().play(ops).cut(survive);
        disk.salts = self.lock().salts;
        *after.lock() = disk;
        after
    }

    /// Everything together may take this much from now on; `None` lifts the limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.lock().capacity = bytes;
    }

    /// Bytes taken now.
    pub fn used_bytes(&self) -> u64 {
        self.lock().used_bytes()
    }

    /// Lets this many more syncs succeed; `None` heals the disk.
    pub fn fail_syncs_after(&self, count: Option<u64>) {
        self.lock().syncs_left = count;
    }

    /// Lets this many more writes succeed; `None` heals the disk.
    pub fn fail_writes_after(&self, count: Option<u64>) {
        self.lock().writes_left = count;
    }

    /// While held, syncs of files do not return.
    pub fn hold_syncs(&self, hold: bool) {
        self.lock().hold_syncs = hold;
        self.shared.changed.notify_all();
    }

    /// Waits until some sync is held.
    pub fn wait_for_held_sync(&self) {
        let mut disk = self.lock();
        while disk.held_count == 0 {
            disk = self
                .shared
                .changed
                .wait(disk)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Syncs of files so far.
    pub fn sync_count(&self) -> u64 {
        self.lock().sync_count
    }

    /// Flips the bits of `mask` in one byte. Gives whether the byte is there.
    pub fn flip(&self, path: &Path, at: u64, mask: u8) -> bool {
        let mut disk = self.lock();
        let Some(&file) = disk.names.get(path) else {
            return false;
        };
        match disk
            .files
            .get_mut(&file)
            .and_then(|bytes| bytes.get_mut(at as usize))
        {
            Some(byte) => {
                *byte ^= mask;
                true
            }
            None => false,
        }
    }

    /// A file's bytes.
    pub fn bytes(&self, path: &Path) -> Option<Vec<u8>> {
        let disk = self.lock();
        disk.files.get(disk.names.get(path)?).cloned()
    }
}

impl Disk {
    fn note(&mut self, op: Op) {
        if let Some(record) = &mut self.record {
            record.push(op);
        }
    }

    fn used_bytes(&self) -> u64 {
        self.files.values().map(|bytes| bytes.len() as u64).sum()
    }

    /// How far a file may grow.
    fn size_max(&self, size: u64) -> u64 {
        self.capacity.map_or(u64::MAX, |capacity| {
            size + capacity.saturating_sub(self.used_bytes())
        })
    }

    fn forget_if_gone(&mut self, file: u64) {
        let open = self.handles.get(&file).is_some_and(|&count| count > 0);
        if !open && !self.names.values().any(|&other| other == file) {
            self.files.remove(&file);
            self.handles.remove(&file);
        }
    }

    fn file(&mut self, file: u64) -> &mut Vec<u8> {
        self.files.entry(file).or_default()
    }
}

fn count_down(left: &mut Option<u64>) -> io::Result<()> {
    match left {
        Some(0) => Err(io::Error::other("injected failure of the disk")),
        Some(left) => {
            *left -= 1;
            Ok(())
        }
        None => Ok(()),
    }
}

fn put(bytes: &mut Vec<u8>, at: u64, part: &[u8]) {
    let (from, to) = (at as usize, at as usize + part.len());
    if bytes.len() < to {
        bytes.resize(to, 0);
    }
    bytes[from..to].copy_from_slice(part);
}

impl Fs for FaultFs {
    fn salt(&self) -> u64 {
        let mut disk = self.lock();
        disk.salts += 1;
        disk.salts
    }

    fn create_dirs(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        disk.note(Op::CreateDirs(dir.to_owned()));
        disk.dirs.extend(dir.ancestors().map(Path::to_owned));
        Ok(())
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn FsFile>> {
        let mut disk = self.lock();
        let file = match (disk.names.get(path), how) {
            (Some(_), Open::Create) => return Err(io::ErrorKind::AlreadyExists.into()),
            (Some(&file), _) => file,
            (None, Open::Create) if path.parent().is_some_and(|dir| disk.dirs.contains(dir)) => {
                let file = disk.file_next;
                disk.file_next += 1;
                disk.names.insert(path.to_owned(), file);
                disk.files.insert(file, Vec::new());
                disk.note(Op::Create(path.to_owned(), file));
                file
            }
            (None, _) => return Err(io::ErrorKind::NotFound.into()),
        };
        *disk.handles.entry(file).or_default() += 1;
        Ok(Arc::new(FaultFile {
            fs: self.clone(),
            file,
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let disk = self.lock();
        if !disk.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let all = disk
            .names
            .keys()
            .chain(&disk.dirs)
            .filter(|path| path.parent() == Some(dir));
        let mut names: Vec<String> = all
            .filter_map(|path| Some(path.file_name()?.to_string_lossy().into_owned()))
            .collect();
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        disk.note(Op::Rename(from.to_owned(), to.to_owned()));
        let file = disk.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        if let Some(gone) = disk.names.insert(to.to_owned(), file) {
            disk.forget_if_gone(gone);
        }
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        let file = disk.names.remove(path).ok_or(io::ErrorKind::NotFound)?;
        disk.note(Op::Remove(path.to_owned()));
        disk.forget_if_gone(file);
        Ok(())
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        disk.note(Op::RemoveDirAll(dir.to_owned()));
        disk.dirs.retain(|path| !path.starts_with(dir));
        let inside = disk.names.iter().filter(|(path, _)| path.starts_with(dir));
        let gone: Vec<u64> = inside.map(|(_, &file)| file).collect();
        disk.names.retain(|path, _| !path.starts_with(dir));
        for file in gone {
            disk.forget_if_gone(file);
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut disk = self.lock();
        count_down(&mut disk.syncs_left)?;
        disk.note(Op::SyncDir(dir.to_owned()));
        Ok(())
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        let taken = self.lock().locks.insert(path.to_owned());
        Ok(taken.then(|| {
            Lock::new(FaultLock {
                fs: self.clone(),
                path: path.to_owned(),
            })
        }))
    }
}

struct FaultLock {
    fs: FaultFs,
    path: PathBuf,
}

impl Drop for FaultLock {
    fn drop(&mut self) {
        self.fs.lock().locks.remove(&self.path);
    }
}

#[derive(Debug)]
struct FaultFile {
    fs: FaultFs,
    file: u64,
}

impl Drop for FaultFile {
    fn drop(&mut self) {
        let mut disk = self.fs.lock();
        if let Some(count) = disk.handles.get_mut(&self.file) {
            *count -= 1;
        }
        disk.forget_if_gone(self.file);
    }
}

impl FsFile for FaultFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.fs.lock().file(self.file).len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut disk = self.fs.lock();
        let bytes = disk.file(self.file);
        let from = bytes.len().min(offset as usize);
        let count = buffer.len().min(bytes.len() - from);
        buffer[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut disk = self.fs.lock();
        count_down(&mut disk.writes_left)?;
        let mut bytes = parts.concat();
        let size = disk.file(self.file).len() as u64;
        let fits = disk.size_max(size).saturating_sub(offset);
        let full = bytes.len() as u64 > fits;
        if full {
            bytes.truncate(fits as usize);
        }
        put(disk.file(self.file), offset, &bytes);
        disk.note(Op::Write(self.file, offset, bytes));
        if full {
            Err(io::ErrorKind::StorageFull.into())
        } else {
            Ok(())
        }
    }

    fn preallocate(&self, size: u64) -> io::Result<()> {
        let mut disk = self.fs.lock();
        let old = disk.file(self.file).len() as u64;
        if size > disk.size_max(old) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        disk.file(self.file).resize(size.max(old) as usize, 0);
        disk.note(Op::Resize(self.file, size.max(old)));
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let mut disk = self.fs.lock();
        disk.file(self.file).resize(size as usize, 0);
        disk.note(Op::Resize(self.file, size));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut disk = self.fs.lock();
        disk.held_count += 1;
        self.fs.shared.changed.notify_all();
        while disk.hold_syncs {
            disk = self
                .fs
                .shared
                .changed
                .wait(disk)
                .unwrap_or_else(PoisonError::into_inner);
        }
        disk.held_count -= 1;
        if let Err(error) = count_down(&mut disk.syncs_left) {
            disk.note(Op::FailedSync(self.file));
            return Err(error);
        }
        disk.sync_count += 1;
        disk.note(Op::Sync(self.file));
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// What is on the disk for certain, and what is on its way there.
#[derive(Default)]
struct Platter {
    names: BTreeMap<PathBuf, u64>,
    dirs: BTreeSet<PathBuf>,
    files: BTreeMap<u64, Vec<u8>>,
    names_pending: Vec<Op>,
    files_pending: BTreeMap<u64, Vec<Op>>,
    file_next: u64,
}

impl Platter {
    fn play(mut self, ops: Vec<Op>) -> Self {
        for op in ops {
            match op {
                Op::CreateDirs(dir) => self.dirs.extend(dir.ancestors().map(Path::to_owned)),
                Op::Create(_, file) => {
                    self.file_next = self.file_next.max(file + 1);
                    self.names_pending.push(op);
                }
                Op::Rename(..) | Op::Remove(_) | Op::RemoveDirAll(_) => self.names_pending.push(op),
                Op::SyncDir(dir) => {
                    let (now, later) = self
                        .names_pending
                        .into_iter()
                        .partition(|op| op.is_in(&dir));
                    self.names_pending = later;
                    let now: Vec<Op> = now;
                    now.into_iter()
                        .for_each(|op| name(&mut self.names, &mut self.dirs, op));
                }
                Op::Write(file, ..) | Op::Resize(file, _) => {
                    self.files_pending.entry(file).or_default().push(op)
                }
                Op::Sync(file) => {
                    let pending = self.files_pending.remove(&file).unwrap_or_default();
                    let bytes = self.files.entry(file).or_default();
                    pending.into_iter().for_each(|op| write(bytes, op));
                }
                // The system may have dropped these, and a later sync does not bring them back.
                Op::FailedSync(file) => drop(self.files_pending.remove(&file)),
                Op::Mark(_) => {}
            }
        }
        self
    }

    fn cut(mut self, survive: Survive) -> Disk {
        let mut random = Random::new(survive);
        let count = random.below(self.names_pending.len() as u64 + 1) as usize;
        for op in self.names_pending.drain(..count) {
            name(&mut self.names, &mut self.dirs, op);
        }
        for (file, pending) in self.files_pending {
            let bytes = self.files.entry(file).or_default();
            for op in pending {
                random.write(bytes, op);
            }
        }
        // A name whose file was never synced stands for an empty file.
        for &file in self.names.values() {
            self.files.entry(file).or_default();
        }
        self.files
            .retain(|file, _| self.names.values().any(|other| other == file));
        Disk {
            names: self.names,
            dirs: self.dirs,
            files: self.files,
            file_next: self.file_next,
            record: Some(Vec::new()),
            ..Disk::default()
        }
        .with_record()
    }
}

impl Disk {
    /// A record that begins with what is there, so that a disk after a cut can be cut again.
    fn with_record(mut self) -> Self {
        let mut ops: Vec<Op> = self.dirs.iter().cloned().map(Op::CreateDirs).collect();
        ops.extend(
            self.names
                .iter()
                .map(|(path, &file)| Op::Create(path.clone(), file)),
        );
        ops.extend(self.dirs.iter().cloned().map(Op::SyncDir));
        for (&file, bytes) in &self.files {
            ops.extend([Op::Write(file, 0, bytes.clone()), Op::Sync(file)]);
        }
        self.record = Some(ops);
        self
    }
}

impl Op {
    fn is_in(&self, dir: &Path) -> bool {
        match self {
            Self::Create(path, _)
            | Self::Remove(path)
            | Self::Rename(path, _)
            | Self::RemoveDirAll(path) => path.parent() == Some(dir),
            _ => false,
        }
    }
}

fn name(names: &mut BTreeMap<PathBuf, u64>, dirs: &mut BTreeSet<PathBuf>, op: Op) {
    match op {
        Op::Create(path, file) => drop(names.insert(path, file)),
        Op::Remove(path) => drop(names.remove(&path)),
        Op::RemoveDirAll(dir) => {
            dirs.retain(|path| !path.starts_with(&dir));
            names.retain(|path, _| !path.starts_with(&dir));
        }
        Op::Rename(from, to) => {
            if let Some(file) = names.remove(&from) {
                names.insert(to, file);
            }
        }
        _ => {}
    }
}

fn write(bytes: &mut Vec<u8>, op: Op) {
    match op {
        Op::Write(_, at, part) => put(bytes, at, &part),
        Op::Resize(_, size) => bytes.resize(size as usize, 0),
        _ => {}
    }
}

/// Draws what survives (SplitMix64).
struct Random {
    survive: Survive,
    state: u64,
}

impl Random {
    fn new(survive: Survive) -> Self {
        let state = if let Survive::Some(seed) = survive {
            seed
        } else {
            0
        };
        Self { survive, state }
    }

    /// A number below `end`; the first or the last where nothing is drawn.
    fn below(&mut self, end: u64) -> u64 {
        match self.survive {
            Survive::Nothing => 0,
            Survive::Everything => end - 1,
            Survive::Some(_) => {
                self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
                let mut z = self.state;
                z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
                z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
                (z ^ (z >> 31)) % end
            }
        }
    }

    /// Applies an operation that was not synced: not at all, up to some byte, by sectors, or whole.
    fn write(&mut self, bytes: &mut Vec<u8>, op: Op) {
        let fate = self.below(4);
        match op {
            Op::Write(_, at, part) if fate == 1 => {
                let count = self.below(part.len() as u64 + 1) as usize;
                put(bytes, at, &part[..count]);
            }
            Op::Write(_, at, part) if fate == 2 => self.write_sectors(bytes, at, &part),
            op if fate > 1 => write(bytes, op),
            _ => {}
        }
    }

    fn write_sectors(&mut self, bytes: &mut Vec<u8>, at: u64, part: &[u8]) {
        let mut done = 0;
        while done < part.len() as u64 {
            let sector_end = ((at + done) / SECTOR_BYTES + 1) * SECTOR_BYTES - at;
            let to = sector_end.min(part.len() as u64);
            if self.below(2) == 1 {
                put(bytes, at + done, &part[done as usize..to as usize]);
            }
            done = to;
        }
    }
}
