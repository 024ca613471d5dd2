//! Where a partition's files are, and the handles kept open: a bounded number for all partitions together, so that a
//! broker with many partitions does not run out of them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use uuid::Uuid;

use crate::log::fs::{Fs, FsFile, Open};

/// Which partition (by a number drawn at open) and which segment.
pub(super) type FileKey = (u64, i64);

/// The files of the data plane.
#[derive(Debug)]
pub(super) struct Files {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    open_max: usize,
    open: Mutex<Handles>,
    next_key: AtomicU64,
}

#[derive(Debug, Default)]
struct Handles {
    handles: HashMap<FileKey, (Arc<dyn FsFile>, u64)>,
    uses: u64,
}

impl Files {
    pub(super) fn new(fs: Arc<dyn Fs>, dir: PathBuf, open_max: usize) -> Self {
        Self {
            fs,
            dir,
            open_max: open_max.max(8),
            open: Mutex::default(),
            next_key: AtomicU64::new(0),
        }
    }

    pub(super) fn fs(&self) -> &dyn Fs {
        &*self.fs
    }

    /// The folder that holds a folder per topic.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn topic_dir(&self, topic: Uuid) -> PathBuf {
        self.dir.join(topic.to_string())
    }

    /// A number for one partition's handles.
    pub(super) fn draw_key(&self) -> u64 {
        self.next_key.fetch_add(1, Ordering::Relaxed)
    }

    /// The handle of an existing file.
    pub(super) fn get(
        &self,
        key: FileKey,
        path: impl FnOnce() -> PathBuf,
    ) -> io::Result<Arc<dyn FsFile>> {
        {
            let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
            open.uses += 1;
            let now = open.uses;
            if let Some((handle, used)) = open.handles.get_mut(&key) {
                *used = now;
                return Ok(Arc::clone(handle));
            }
        }
        let handle = self.fs.open(&path(), Open::Write)?;
        self.keep(key, &handle);
        Ok(handle)
    }

    /// Creates a file and keeps its handle. A file left there by an attempt that failed is taken over, empty.
    pub(super) fn create(&self, key: FileKey, path: &Path) -> io::Result<()> {
        let handle = match self.fs.open(path, Open::Create) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let handle = self.fs.open(path, Open::Write)?;
                handle.truncate(0)?;
                handle
            }
            other => other?,
        };
        self.keep(key, &handle);
        Ok(())
    }

    /// Lets a handle go.
    pub(super) fn forget(&self, key: FileKey) {
        self.open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .handles
            .remove(&key);
    }

    fn keep(&self, key: FileKey, handle: &Arc<dyn FsFile>) {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        if open.handles.len() >= self.open_max {
            // Half go at once, the longest unused, so that the search is rare.
            let mut uses: Vec<u64> = open.handles.values().map(|(_, used)| *used).collect();
            let middle = uses.len() / 2;
            let (_, limit, _) = uses.select_nth_unstable(middle);
            let limit = *limit;
            open.handles.retain(|_, (_, used)| *used > limit);
        }
        open.uses += 1;
        let now = open.uses;
        open.handles.insert(key, (Arc::clone(handle), now));
    }

    #[cfg(test)]
    pub(super) fn open_count(&self) -> usize {
        self.open.lock().unwrap().handles.len()
    }
}
