//! A real disk that stalls, fills up or fails when a test says so. It goes under a server of ours.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use convoke::log::fs::{Fs, FsFile, Lock, Open, RealFs};

/// The machine's disk, with switches.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    reads: Gate,
    syncs: Gate,
    full: AtomicBool,
}

/// A place where threads may be made to wait.
#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self) {
        let closed = self.closed.lock().unwrap();
        drop(self.opened.wait_while(closed, |closed| *closed).unwrap());
    }

    fn set(&self, closed: bool) {
        *self.closed.lock().unwrap() = closed;
        self.opened.notify_all();
    }
}

/// Something is held up until this is dropped.
pub(crate) struct Held(Arc<Disk>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.reads.set(false);
        self.0.syncs.set(false);
    }
}

impl Disk {
    /// Reading of what was stored stalls. (Files at the top of the data folder say who the server is; they do not.)
    pub(crate) fn hold_reads(self: &Arc<Self>) -> Held {
        self.reads.set(true);
        Held(self.clone())
    }

    /// Syncs stall.
    pub(crate) fn hold_syncs(self: &Arc<Self>) -> Held {
        self.syncs.set(true);
        Held(self.clone())
    }

    /// There is no room for more bytes, or there is again.
    pub(crate) fn set_full(&self, full: bool) {
        self.full.store(full, Ordering::Relaxed);
    }

    fn room(&self) -> io::Result<()> {
        match self.full.load(Ordering::Relaxed) {
            true => Err(ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

/// A disk as the server takes it.
#[derive(Debug)]
pub(crate) struct Switched(pub(crate) Arc<Disk>);

#[derive(Debug)]
struct SwitchedFile {
    disk: Arc<Disk>,
    file: Arc<dyn FsFile>,
    stalls: bool,
}

impl Fs for Switched {
    fn create_dirs(&self, dir: &Path) -> io::Result<()> {
        RealFs.create_dirs(dir)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn FsFile>> {
        let depth = |path: &Path| path.parent().is_some_and(|dir| dir.ends_with("data"));
        Ok(Arc::new(SwitchedFile {
            disk: self.0.clone(),
            file: RealFs.open(path, how)?,
            stalls: !depth(path),
        }))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        RealFs.list(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        RealFs.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        RealFs.remove(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        RealFs.remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        RealFs.sync_dir(dir)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        RealFs.try_lock(path)
    }
}

impl FsFile for SwitchedFile {
    fn size(&self) -> io::Result<u64> {
        self.file.size()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        if self.stalls {
            self.disk.reads.pass();
        }
        self.file.read_at(buffer, offset)
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        let end = offset + parts.iter().map(|part| part.len() as u64).sum::<u64>();
        if end > self.file.size()? {
            self.disk.room()?;
        }
        self.file.write_at(parts, offset)
    }

    fn preallocate(&self, size: u64) -> io::Result<()> {
        self.disk.room()?;
        self.file.preallocate(size)
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.file.truncate(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.syncs.pass();
        self.file.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.disk.syncs.pass();
        self.file.sync_all()
    }
}
