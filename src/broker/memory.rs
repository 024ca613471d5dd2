//! A file system in memory, for a broker that keeps nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use hashbrown::HashSet;

use crate::log::fs::{Fs, FsFile, Lock, Open};

/// Files that are gone when the last handle is.
#[derive(Debug, Default)]
pub(super) struct MemoryFs {
    tree: Mutex<Tree>,
}

#[derive(Debug, Default)]
struct Tree {
    files: BTreeMap<PathBuf, Arc<MemoryFile>>,
    dirs: BTreeSet<PathBuf>,
}

#[derive(Debug, Default)]
struct MemoryFile(RwLock<Vec<u8>>);

impl MemoryFs {
    fn tree(&self) -> MutexGuard<'_, Tree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn not_found() -> io::Error {
    io::ErrorKind::NotFound.into()
}

impl Fs for MemoryFs {
    fn create_dirs(&self, dir: &Path) -> io::Result<()> {
        let mut tree = self.tree();
        for dir in dir.ancestors() {
            tree.dirs.insert(dir.to_owned());
        }
        Ok(())
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn FsFile>> {
        let mut tree = self.tree();
        match (tree.files.get(path), how) {
            (Some(_), Open::Create) => Err(io::ErrorKind::AlreadyExists.into()),
            (Some(file), _) => Ok(Arc::clone(file) as Arc<dyn FsFile>),
            (None, Open::Create) if path.parent().is_some_and(|dir| tree.dirs.contains(dir)) => {
                let file = Arc::new(MemoryFile::default());
                tree.files.insert(path.to_owned(), Arc::clone(&file));
                Ok(file)
            }
            (None, _) => Err(not_found()),
        }
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let tree = self.tree();
        if !tree.dirs.contains(dir) {
            return Err(not_found());
        }
        let inside = |path: &PathBuf| {
            let name = path.strip_prefix(dir).ok()?.iter().next()?;
            Some(name.to_string_lossy().into_owned())
        };
        let below = |path: &&PathBuf| path.starts_with(dir);
        let files = tree
            .files
            .range(dir.to_owned()..)
            .map(|(path, _)| path)
            .take_while(below)
            .filter_map(inside);
        let dirs = tree
            .dirs
            .range(dir.to_owned()..)
            .take_while(below)
            .filter_map(inside);
        let names: BTreeSet<String> = files.chain(dirs).collect();
        Ok(names.into_iter().collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut tree = self.tree();
        let file = tree.files.remove(from).ok_or_else(not_found)?;
        tree.files.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.tree()
            .files
            .remove(path)
            .map(drop)
            .ok_or_else(not_found)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut tree = self.tree();
        if !tree.dirs.contains(dir) {
            return Err(not_found());
        }
        let files: HashSet<PathBuf> = tree
            .files
            .keys()
            .filter(|path| path.starts_with(dir))
            .cloned()
            .collect();
        tree.files.retain(|path, _| !files.contains(path));
        tree.dirs.retain(|path| !path.starts_with(dir));
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn try_lock(&self, _: &Path) -> io::Result<Option<Lock>> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl MemoryFile {
    fn bytes_mut(&self) -> std::sync::RwLockWriteGuard<'_, Vec<u8>> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FsFile for MemoryFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.read().unwrap_or_else(PoisonError::into_inner).len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let count = buffer.len().min(bytes.len() - from);
        buffer[..count].copy_from_slice(&bytes[from..from + count]);
        Ok(count)
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut bytes = self.bytes_mut();
        let mut at = usize::try_from(offset).map_err(|_| io::ErrorKind::FileTooLarge)?;
        for part in parts {
            let end = at
                .checked_add(part.len())
                .ok_or(io::ErrorKind::FileTooLarge)?;
            if bytes.len() < end {
                bytes.resize(end, 0);
            }
            bytes[at..end].copy_from_slice(part);
            at = end;
        }
        Ok(())
    }

    fn preallocate(&self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        let size = usize::try_from(size).map_err(|_| io::ErrorKind::FileTooLarge)?;
        self.bytes_mut().resize(size, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn sync_all(&self) -> io::Result<()> {
        Ok(())
    }
}
