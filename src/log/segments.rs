//! A segmented append-only file of checksummed frames, preallocated and reused: what the group log is written in.
//!
//! Frames have positions 1, 2, 3, ... without gaps. A segment is named by its first position. What a crash tore off the
//! end is cut when the folder is opened; anything else that does not read back as it was written refuses to open.
//! Nothing here decides when to sync, and nothing here knows what the payloads mean.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::Error;
use super::frame::{
    FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FileHeader, Frame, FrameHeader, Kind, PAYLOAD_BYTES_MAX,
    frame_bytes,
};
use super::fs::{Fs, FsFile, Open};

mod open;

const MAGIC: [u8; 8] = *b"CVKSEGMT";
const SUFFIX: &str = ".seg";
const SPARE_PREFIX: &str = "spare-";
/// No position and no number of a spare file comes near this; a name that says more is not one that we gave.
const NUMBER_MAX: u64 = 1 << 62;
/// Payloads up to this length are copied into one buffer; longer ones are handed to the system where they lie.
const COPY_BYTES_MAX: usize = 4096;
/// Zeros behind a payload.
const PADDING: [u8; 8] = [0; 8];

/// A frame to write.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFrame<'a> {
    pub(super) partition: u16,
    pub(super) payload: &'a [u8],
}

impl NewFrame<'_> {
    /// What it takes in the file.
    pub(super) fn bytes(&self) -> u64 {
        frame_bytes(self.payload.len() as u64)
    }
}

/// What was cut when the folder was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    /// The file that ended in torn bytes.
    pub(super) path: PathBuf,
    /// Where they began.
    pub(super) offset: u64,
}

/// A frame on its way through [`Segments::open`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit<'a> {
    pub(super) frame: &'a Frame,
    /// Bytes of the folder passed so far, this frame included.
    pub(super) bytes_done: u64,
}

/// A preallocated file that waits to become a segment.
#[derive(Debug)]
pub(super) struct Spare {
    pub(super) path: PathBuf,
    pub(super) file: Arc<dyn FsFile>,
    /// Its length, header included.
    pub(super) bytes: u64,
}

impl Spare {
    /// Room for frames.
    pub(super) fn room(&self) -> u64 {
        self.bytes.saturating_sub(FILE_HEADER_BYTES)
    }

    /// The number in its name.
    pub(super) fn number(&self) -> Option<u64> {
        self.path
            .file_name()?
            .to_str()?
            .strip_prefix(SPARE_PREFIX)?
            .parse()
            .ok()
            .filter(|number| *number <= NUMBER_MAX)
    }

    /// Takes `bytes` from the disk for a future segment.
    pub(super) fn create(fs: &dyn Fs, dir: &Path, number: u64, bytes: u64) -> Result<Self, Error> {
        let path = dir.join(format!("{SPARE_PREFIX}{number}"));
        let file = fs
            .open(&path, Open::Create)
            .map_err(|e| Error::room("create", &path, bytes, e))?;
        if let Err(error) = file.preallocate(bytes) {
            drop(file);
            // A file that is too short is of no use, and the little it holds is wanted elsewhere.
            let _ = fs.remove(&path);
            return Err(Error::room("preallocate", dir, bytes, error));
        }
        Ok(Self { path, file, bytes })
    }
}

#[derive(Debug)]
struct Segment {
    /// The position behind its last frame.
    end: u64,
    seed: u32,
    path: PathBuf,
    /// Bytes in use.
    bytes: u64,
    /// The file's length.
    file_bytes: u64,
}

/// A folder of segments, open for appending.
#[derive(Debug)]
pub(super) struct Segments {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    /// Rising by base; the last one is written.
    segments: Vec<Segment>,
    /// The last segment's file, once there is a segment.
    active: Option<Arc<dyn FsFile>>,
    next_lsn: u64,
    /// Positions below are on the disk.
    floor: u64,
    scratch: Vec<u8>,
    /// The folder, open: a log must not fail because others have taken every descriptor.
    held_dir: Option<File>,
}

/// What [`Segments::open`] found besides frames.
#[derive(Debug, Default)]
pub(super) struct Opened {
    /// The torn end, if there was one.
    pub(super) cut: Option<Cut>,
    /// Files for reuse.
    pub(super) spares: Vec<Spare>,
}

/// A sync that another thread runs.
#[derive(Debug)]
pub(super) struct PendingSync {
    path: PathBuf,
    file: Arc<dyn FsFile>,
}

impl PendingSync {
    /// Makes everything durable that was written before it was made.
    ///
    /// # Errors
    /// As [`Segments::sync`].
    pub(super) fn run(&self) -> Result<(), Error> {
        self.file
            .sync_data()
            .map_err(|e| Error::io("sync", &self.path, e))
    }
}

impl Segments {
    /// The position of the next frame.
    pub(super) fn next_lsn(&self) -> u64 {
        self.next_lsn
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.segments.len()
    }

    /// Bytes taken from the disk, those not yet used included.
    pub(super) fn file_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.file_bytes).sum()
    }

    /// Bytes left in the last segment's file.
    pub(super) fn room(&self) -> u64 {
        self.segments.last().map_or(0, |segment| {
            segment.file_bytes.saturating_sub(segment.bytes)
        })
    }

    /// The position behind the oldest segment.
    pub(super) fn oldest_end(&self) -> Option<u64> {
        self.segments.first().map(|segment| segment.end)
    }

    /// Begins a segment with the next position in a spare file, durably: header, name, folder.
    /// Everything before must have been synced.
    pub(super) fn begin_segment(&mut self, spare: Spare) -> Result<(), Error> {
        let path = self.dir.join(format!("{:020}{SUFFIX}", self.next_lsn));
        let header = FileHeader {
            magic: MAGIC,
            base: self.next_lsn,
            salt: self.fs.salt(),
        };
        spare
            .file
            .write_at(&[&header.encode()], 0)
            .map_err(|e| Error::io("write", &spare.path, e))?;
        spare
            .file
            .sync_all()
            .map_err(|e| Error::io("sync", &spare.path, e))?;
        self.fs
            .rename(&spare.path, &path)
            .map_err(|e| Error::io("rename", &spare.path, e))?;
        self.sync_dir()?;
        // One that a crash left without a frame, and that has no room for the next: the new one has taken its name and
        // its place. Kept here it would be the oldest one day, and removed by that name.
        self.segments.pop_if(|last| last.path == path);
        self.segments.push(Segment {
            end: header.base,
            seed: header.seed(),
            path,
            bytes: FILE_HEADER_BYTES,
            file_bytes: spare.bytes,
        });
        self.active = Some(spare.file);
        Ok(())
    }

    /// Writes frames behind the last one, in one system call. The segment must have room for them.
    pub(super) fn write(&mut self, frames: &[NewFrame<'_>]) -> Result<(), Error> {
        let Some((segment, file)) = self.segments.last_mut().zip(self.active.as_ref()) else {
            return Err(Error::Closed);
        };
        let mut large: Vec<(usize, &[u8])> = Vec::new();
        self.scratch.clear();
        let mut lsn = self.next_lsn;
        let mut bytes = 0;
        for frame in frames {
            let header = FrameHeader {
                payload_bytes: frame.payload.len() as u32,
                lsn,
                floor: self.floor,
                partition: frame.partition,
                kind: Kind::Data,
            };
            self.scratch
                .extend_from_slice(&header.encode(segment.seed, frame.payload));
            if frame.payload.len() <= COPY_BYTES_MAX {
                self.scratch.extend_from_slice(frame.payload);
            } else {
                large.push((self.scratch.len(), frame.payload));
            }
            let padding = frame.bytes() - FRAME_HEADER_BYTES - frame.payload.len() as u64;
            self.scratch.extend_from_slice(&PADDING[..padding as usize]);
            lsn += 1;
            bytes += frame.bytes();
        }
        let mut parts: Vec<&[u8]> = Vec::with_capacity(2 * large.len() + 1);
        let mut from = 0;
        for (to, payload) in large {
            parts.extend([&self.scratch[from..to], payload]);
            from = to;
        }
        parts.push(&self.scratch[from..]);
        file.write_at(&parts, segment.bytes)
            .map_err(|e| Error::io("write", &segment.path, e))?;
        segment.bytes += bytes;
        segment.end = lsn;
        self.next_lsn = lsn;
        // A burst must not keep its memory for ever.
        self.scratch.shrink_to(1 << 20);
        Ok(())
    }

    /// Makes everything written durable.
    ///
    /// # Errors
    /// [`Error::Io`]: what was written since the last good sync may be lost, and no later sync can tell.
    pub(super) fn sync(&mut self) -> Result<(), Error> {
        if let Some((segment, file)) = self.segments.last().zip(self.active.as_ref()) {
            file.sync_data()
                .map_err(|e| Error::io("sync", &segment.path, e))?;
        }
        self.floor = self.next_lsn;
        Ok(())
    }

    /// A sync of everything written, for another thread to run; `None` if there is nothing to sync.
    /// [`Segments::end_sync`] must follow.
    pub(super) fn begin_sync(&self) -> Option<PendingSync> {
        let (segment, file) = self.segments.last().zip(self.active.as_ref())?;
        Some(PendingSync {
            path: segment.path.clone(),
            file: file.clone(),
        })
    }

    /// Everything below `lsn` has been synced.
    pub(super) fn end_sync(&mut self, lsn: u64) {
        self.floor = self.floor.max(lsn);
    }

    /// Syncs, and leaves a mark that everything before it was durable, if there is room: damage is then told from a
    /// torn end.
    pub(super) fn seal(&mut self) -> Result<(), Error> {
        self.sync()?;
        if self.room() < FRAME_HEADER_BYTES {
            return Ok(());
        }
        let Some((segment, file)) = self.segments.last_mut().zip(self.active.as_ref()) else {
            return Ok(());
        };
        let (lsn, floor) = (self.next_lsn, self.floor);
        let header = FrameHeader {
            payload_bytes: 0,
            lsn,
            floor,
            partition: 0,
            kind: Kind::Seal,
        };
        file.write_at(&[&header.encode(segment.seed, &[])], segment.bytes)
            .map_err(|e| Error::io("write", &segment.path, e))?;
        segment.bytes += FRAME_HEADER_BYTES;
        self.sync()
    }

    /// Removes the oldest segment. One by one, oldest first, each durably: a crash must not leave a hole.
    pub(super) fn remove_oldest(&mut self) -> Result<(), Error> {
        let path = &self.segments[0].path;
        self.fs
            .remove(path)
            .map_err(|e| Error::io("remove", path, e))?;
        self.segments.remove(0);
        self.sync_dir()
    }

    /// The file length of the oldest segment, if it ends at or below `lsn` and is not the one being written.
    pub(super) fn oldest_below(&self, lsn: u64) -> Option<u64> {
        let oldest = self
            .segments
            .first()
            .filter(|oldest| self.segments.len() > 1 && oldest.end <= lsn)?;
        Some(oldest.file_bytes)
    }

    /// Turns the oldest segment into a spare file; `None` if it cannot be opened for that, and nothing has changed.
    pub(super) fn recycle_oldest(&mut self, number: u64) -> Result<Option<Spare>, Error> {
        let from = &self.segments[0].path;
        let path = self.dir.join(format!("{SPARE_PREFIX}{number}"));
        let Ok(file) = self.fs.open(from, Open::Write) else {
            return Ok(None);
        };
        self.fs
            .rename(from, &path)
            .map_err(|e| Error::io("rename", from, e))?;
        let segment = self.segments.remove(0);
        // Before its bytes change: under the old name they would be damage.
        self.sync_dir()?;
        Ok(Some(Spare {
            path,
            file,
            bytes: segment.file_bytes,
        }))
    }

    fn sync_dir(&self) -> Result<(), Error> {
        let synced = match &self.held_dir {
            Some(dir) => dir.sync_all(),
            None => self.fs.sync_dir(&self.dir),
        };
        synced.map_err(|e| Error::io("sync", &self.dir, e))
    }
}

/// Refuses a payload that no frame can hold.
pub(super) fn check_size(bytes: u64) -> Result<(), Error> {
    if bytes > PAYLOAD_BYTES_MAX {
        return Err(Error::TooLarge {
            bytes,
            bytes_max: PAYLOAD_BYTES_MAX,
        });
    }
    Ok(())
}
