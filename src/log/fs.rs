//! The narrow door to the file system: what the log and the topic data ask of a disk, and the real disk behind it.
//! Tests put [`FaultFs`](super::fault_fs::FaultFs) there instead. Nothing here knows frames or segments.

use std::any::Any;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// An existing file, to read.
    Read,
    /// An existing file, to read and write.
    Write,
    /// A new file, to read and write; an existing one is an error.
    Create,
}

/// The exclusive hold on a lock file, given up when dropped.
pub struct Lock(#[expect(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>);

impl Lock {
    pub(super) fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lock")
    }
}

/// A number nobody can guess, from the system's randomness.
pub(super) fn salt() -> u64 {
    RandomState::new().hash_one(0x0063_6f6e_766f_6b65_u64)
}

/// A file system. All paths are given whole; every call blocks.
pub trait Fs: Send + Sync + fmt::Debug + 'static {
    /// What tells the frames of a file from stale ones that lay in its place before: another number for every file.
    fn salt(&self) -> u64 {
        salt()
    }
    /// Creates a folder and those above it; one that exists is fine.
    ///
    /// # Errors
    /// Whatever the system says.
    fn create_dirs(&self, dir: &Path) -> io::Result<()>;
    /// Opens or creates a file.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyExists` (for [`Open::Create`]), or whatever the system says.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn FsFile>>;
    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// `NotFound`, or whatever the system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<String>>;
    /// Renames a file, replacing one in the way. Durable after [`Fs::sync_dir`] of the folder.
    ///
    /// # Errors
    /// Whatever the system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes a folder with everything in it.
    ///
    /// # Errors
    /// Whatever the system says.
    fn remove_dir_all(&self, dir: &Path) -> io::Result<()>;
    /// Makes the names in a folder durable: creations, renames, removals.
    ///
    /// # Errors
    /// Whatever the system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// The folder itself, opened: whoever must not fail for want of a descriptor syncs this instead of calling
    /// [`Fs::sync_dir`]. `None` where that needs no descriptor.
    ///
    /// # Errors
    /// Whatever the system says.
    fn hold_dir(&self, dir: &Path) -> io::Result<Option<File>> {
        let _ = dir;
        Ok(None)
    }
    /// Takes an exclusive lock on a file, created if absent, without waiting. `None`: another holds it.
    ///
    /// # Errors
    /// Whatever the system says.
    fn try_lock(&self, path: &Path) -> io::Result<Option<Lock>>;
}

/// An open file. Writes and reads name their place, so one handle serves many threads.
pub trait FsFile: Send + Sync + fmt::Debug + 'static {
    /// The length in bytes, preallocated bytes included.
    ///
    /// # Errors
    /// Whatever the system says.
    fn size(&self) -> io::Result<u64>;
    /// Reads until `buffer` is full or the file ends; gives the number of bytes read.
    ///
    /// # Errors
    /// Whatever the system says.
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads up to `bytes` bytes; fewer only where the file ends.
    ///
    /// # Errors
    /// Whatever the system says.
    fn read(&self, bytes: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut buffer = vec![0; bytes];
        let read = self.read_at(&mut buffer, offset)?;
        buffer.truncate(read);
        Ok(buffer)
    }
    /// Writes all `parts`, one behind the other, in as few system calls as it takes.
    ///
    /// # Errors
    /// `StorageFull` or whatever the system says; part of the bytes may then be there.
    fn write_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()>;
    /// Takes room for `size` bytes from the disk, so that a write below it cannot fail for lack of room.
    /// New bytes read as zero.
    ///
    /// # Errors
    /// `StorageFull` or whatever the system says.
    fn preallocate(&self, size: u64) -> io::Result<()>;
    /// Cuts or extends the file.
    ///
    /// # Errors
    /// Whatever the system says.
    fn truncate(&self, size: u64) -> io::Result<()>;
    /// Makes the written bytes durable (`fdatasync`).
    ///
    /// # Errors
    /// Whatever the system says; what was written since the last good sync may be lost for good.
    fn sync_data(&self) -> io::Result<()>;
    /// Makes bytes and length durable (`fsync`).
    ///
    /// # Errors
    /// As [`FsFile::sync_data`].
    fn sync_all(&self) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealFs;

impl RealFs {
    /// The disk as the rooms take it.
    pub fn shared() -> Arc<dyn Fs> {
        Arc::new(Self)
    }
}

impl Fs for RealFs {
    fn create_dirs(&self, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)
    }

    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn FsFile>> {
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(how != Open::Read)
            .create_new(how == Open::Create);
        Ok(Arc::new(RealFile(options.open(path)?)))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(dir)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_dir_all(&self, dir: &Path) -> io::Result<()> {
        fs::remove_dir_all(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn hold_dir(&self, dir: &Path) -> io::Result<Option<File>> {
        File::open(dir).map(Some)
    }

    fn try_lock(&self, path: &Path) -> io::Result<Option<Lock>> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Lock::new(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }
}

#[derive(Debug)]
struct RealFile(File);

impl FsFile for RealFile {
    fn size(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            match self.0.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    // Into memory that nobody has cleared first: that costs as much as the reading.
    fn read(&self, bytes: usize, offset: u64) -> io::Result<Vec<u8>> {
        let mut buffer = Vec::with_capacity(bytes);
        while buffer.len() < bytes {
            let at = offset + buffer.len() as u64;
            match rustix::io::pread(&self.0, rustix::buffer::spare_capacity(&mut buffer), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // The capacity may be larger than what was asked for.
        buffer.truncate(bytes);
        Ok(buffer)
    }

    fn write_at(&self, parts: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut slices: Vec<IoSlice<'_>> = parts
            .iter()
            .filter(|part| !part.is_empty())
            .map(|part| IoSlice::new(part))
            .collect();
        let mut slices = &mut slices[..];
        let mut offset = offset;
        while !slices.is_empty() {
            match write_some(&self.0, slices, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    offset += count as u64;
                    IoSlice::advance_slices(&mut slices, count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn preallocate(&self, size: u64) -> io::Result<()> {
        match rustix::fs::fallocate(&self.0, rustix::fs::FallocateFlags::empty(), 0, size) {
            Ok(()) => Ok(()),
            // A file system without fallocate: the room is taken by writing zeros behind what is there.
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => {
                let zeros = vec![0; 1 << 20];
                let mut at = self.size()?;
                while at < size {
                    let count = (size - at).min(zeros.len() as u64);
                    self.0.write_all_at(&zeros[..count as usize], at)?;
                    at += count;
                }
                Ok(())
            }
            Err(errno) => Err(errno.into()),
        }
    }

    fn truncate(&self, size: u64) -> io::Result<()> {
        self.0.set_len(size)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn sync_all(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// The most slices one `pwritev` takes on every system we know.
#[cfg(target_os = "linux")]
const SLICES_MAX: usize = 1024;

#[cfg(target_os = "linux")]
fn write_some(file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    Ok(rustix::io::pwritev(
        file,
        &slices[..slices.len().min(SLICES_MAX)],
        offset,
    )?)
}

#[cfg(not(target_os = "linux"))]
fn write_some(file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
    file.write_at(&slices[0], offset)
}
