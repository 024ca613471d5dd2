//! A segmented append-only file of checksummed frames: the group log and the topic data are both written in it.
//!
//! Each frame takes the positions `lsn .. lsn + span`, one behind the other without gaps; for topic data a position is
//! an offset. A folder holds one such file, as segments named by their first position. What a crash tore off the end is
//! cut when the folder is opened; anything else that does not read back as it was written refuses to open. Nothing here
//! decides when to sync, and nothing here knows what the payloads mean.
//!
//! ```
//! use std::ops::ControlFlow;
//! use convoke::log::fs::RealFs;
//! use convoke::log::segments::{NewFrame, SegmentOptions, Segments};
//!
//! let folder = tempfile::tempdir()?;
//! let options = SegmentOptions { segment_bytes: 1 << 20, ..SegmentOptions::lazy() };
//! let (mut data, _) = Segments::open(RealFs::shared(), folder.path(), options, &mut |_| ControlFlow::Continue(()))?;
//! data.append(&[NewFrame { span: 3, partition: 0, head: b"batch header", body: b" and records" }])?;
//! assert_eq!(data.next_lsn(), 3);
//!
//! // Reads need no lock: plan under it, read outside.
//! let plan = data.plan(1, 1 << 20).expect("position 1 is there");
//! let frames = plan.read()?;
//! assert_eq!(frames[0].payload, &b"batch header and records"[..]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::Error;
use super::frame::{FILE_HEADER_BYTES, FRAME_HEADER_BYTES, FileHeader, FrameHeader, Kind};
pub use super::frame::{Frame, PAYLOAD_BYTES_MAX, frame_bytes};
use super::fs::{Fs, FsFile, Open};

mod open;
mod read;

pub use read::ReadPlan;

const MAGIC: [u8; 8] = *b"CVKSEGMT";
const SUFFIX: &str = ".seg";
const SPARE_PREFIX: &str = "spare-";
/// Payloads up to this length are copied into one buffer; longer ones are handed to the system where they lie.
const COPY_BYTES_MAX: usize = 4096;
/// Zeros behind a payload.
const PADDING: [u8; 8] = [0; 8];

/// How a folder of segments is kept.
#[derive(Clone, Copy, Debug)]
pub struct SegmentOptions {
    /// A segment is closed before it grows beyond this; a longer frame gets a segment of its own.
    pub segment_bytes: u64,
    /// The first position of a folder without segments.
    pub first_lsn: u64,
    /// The distance between the places kept in memory for finding a position; `u64::MAX` keeps none but the first.
    pub index_every_bytes: u64,
    /// Whether segments are begun durably and kept for reuse: the group log's way. Otherwise a new segment is just
    /// created, as Kafka does with topic data.
    pub durable: bool,
}

impl SegmentOptions {
    /// For topic data: no sync that nobody asked for, nothing preallocated, positions from 0.
    pub const fn lazy() -> Self {
        Self {
            segment_bytes: 1 << 30,
            first_lsn: 0,
            index_every_bytes: 16 << 10,
            durable: false,
        }
    }

    /// For the group log.
    pub(super) const fn durable(segment_bytes: u64) -> Self {
        Self {
            segment_bytes,
            first_lsn: 1,
            index_every_bytes: u64::MAX,
            durable: true,
        }
    }
}

/// A frame to append. Its payload is `head` and `body`, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct NewFrame<'a> {
    /// How many positions it takes; for topic data the count of offsets.
    pub span: u32,
    /// Kept with the frame, for files that several partitions share; otherwise 0.
    pub partition: u16,
    /// The first bytes, for instance a header that was rewritten.
    pub head: &'a [u8],
    /// The rest.
    pub body: &'a [u8],
}

impl NewFrame<'_> {
    fn payload_bytes(&self) -> u64 {
        (self.head.len() + self.body.len()) as u64
    }

    /// What it takes in the file.
    pub fn bytes(&self) -> u64 {
        frame_bytes(self.payload_bytes())
    }
}

/// One segment as seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its first position.
    pub base: u64,
    /// The position behind its last frame.
    pub end: u64,
    /// Bytes in use.
    pub bytes: u64,
}

/// What was cut when the folder was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The file that ended in torn bytes.
    pub path: PathBuf,
    /// Where they began.
    pub offset: u64,
    /// The position that is free again.
    pub lsn: u64,
    /// How many bytes were dropped, later segments included.
    pub bytes: u64,
}

/// A frame on its way through [`Segments::open`].
#[derive(Clone, Copy, Debug)]
pub struct Visit<'a> {
    /// The frame.
    pub frame: &'a Frame,
    /// Bytes of the folder passed so far, this frame included.
    pub bytes_done: u64,
    /// Bytes of the folder.
    pub bytes_total: u64,
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
    base: u64,
    end: u64,
    seed: u32,
    path: PathBuf,
    /// Bytes in use.
    bytes: u64,
    /// The file's length.
    file_bytes: u64,
    /// (position, place) of some frames, rising; never empty once there is a frame.
    index: Vec<(u64, u64)>,
    /// Written since the last sync.
    dirty: bool,
}

impl Segment {
    fn note(&mut self, lsn: u64, at: u64, every_bytes: u64) {
        if self
            .index
            .last()
            .is_none_or(|&(_, last)| at.saturating_sub(last) >= every_bytes)
        {
            self.index.push((lsn, at));
        }
    }

    fn info(&self) -> SegmentInfo {
        SegmentInfo {
            base: self.base,
            end: self.end,
            bytes: self.bytes,
        }
    }
}

/// A folder of segments, open for appending. One writer; readers take a [`ReadPlan`].
#[derive(Debug)]
pub struct Segments {
    fs: Arc<dyn Fs>,
    dir: PathBuf,
    options: SegmentOptions,
    /// Rising by base; the last one is written.
    segments: Vec<Segment>,
    /// The last segment's file, once there is a segment.
    active: Option<Arc<dyn FsFile>>,
    next_lsn: u64,
    /// Positions below are on the disk.
    floor: u64,
    dir_dirty: bool,
    scratch: Vec<u8>,
    /// Set when a failed write could not be taken back.
    broken: Option<Error>,
}

/// What [`Segments::open`] found besides frames.
#[derive(Debug, Default)]
pub struct Opened {
    /// The torn end, if there was one.
    pub cut: Option<Cut>,
    /// Files for reuse.
    pub(super) spares: Vec<Spare>,
}

impl Segments {
    /// The first position that can be read; [`Segments::next_lsn`] if there is none.
    pub fn first_lsn(&self) -> u64 {
        self.segments
            .first()
            .map_or(self.next_lsn, |segment| segment.base)
    }

    /// The position of the next frame.
    pub fn next_lsn(&self) -> u64 {
        self.next_lsn
    }

    /// Bytes in use on the disk.
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Bytes taken from the disk, those not yet used included.
    pub(super) fn file_bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.file_bytes).sum()
    }

    /// The length of the last segment's file; 0 without segments.
    pub(super) fn active_file_bytes(&self) -> u64 {
        self.segments.last().map_or(0, |segment| segment.file_bytes)
    }

    /// Bytes left in the last segment's file.
    pub(super) fn room(&self) -> u64 {
        self.segments.last().map_or(0, |segment| {
            segment.file_bytes.saturating_sub(segment.bytes)
        })
    }

    /// The segments, oldest first; the last one is being written.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = SegmentInfo> + '_ {
        self.segments.iter().map(Segment::info)
    }

    /// Appends frames in order, beginning new segments where needed, and gives the position of the first.
    /// They are on the disk after [`Segments::sync`].
    ///
    /// # Errors
    /// [`Error::TooLarge`] with nothing written; [`Error::NoRoom`] and [`Error::Io`] with none of the frames that
    /// shared the failed write: what [`Segments::next_lsn`] says is there. A later append may succeed.
    pub fn append(&mut self, frames: &[NewFrame<'_>]) -> Result<u64, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        for frame in frames {
            check_size(frame.payload_bytes())?;
        }
        let first = self.next_lsn;
        let mut frames = frames;
        while let Some(next) = frames.first() {
            let mut used = self.segments.last().map(|segment| segment.bytes);
            if used.is_none_or(|used| {
                used > FILE_HEADER_BYTES && used + next.bytes() > self.options.segment_bytes
            }) {
                self.begin_segment()?;
                used = Some(FILE_HEADER_BYTES);
            }
            let mut end = used.unwrap_or(FILE_HEADER_BYTES) + next.bytes();
            let fit = 1 + frames[1..]
                .iter()
                .take_while(|frame| {
                    end += frame.bytes();
                    end <= self.options.segment_bytes
                })
                .count();
            self.write(&frames[..fit])?;
            frames = &frames[fit..];
        }
        Ok(first)
    }

    /// Begins a segment with the next position.
    fn begin_segment(&mut self) -> Result<(), Error> {
        let path = self.segment_path(self.next_lsn);
        let header = self.new_header();
        let file = self
            .fs
            .open(&path, Open::Create)
            .map_err(|e| Error::room("create", &path, FILE_HEADER_BYTES, e))?;
        if let Err(error) = file.write_at(&[&header.encode()], 0) {
            let _ = self.fs.remove(&path);
            return Err(Error::room("write", &path, FILE_HEADER_BYTES, error));
        }
        self.dir_dirty = true;
        self.push_segment(path, file, &header, FILE_HEADER_BYTES);
        Ok(())
    }

    /// Begins a segment with the next position in a spare file, durably: header, name, folder.
    /// Everything before must have been synced.
    pub(super) fn begin_segment_in(&mut self, spare: Spare) -> Result<(), Error> {
        let path = self.segment_path(self.next_lsn);
        let header = self.new_header();
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
        self.push_segment(path, spare.file, &header, spare.bytes);
        Ok(())
    }

    fn new_header(&self) -> FileHeader {
        FileHeader {
            magic: MAGIC,
            base: self.next_lsn,
            salt: salt(),
        }
    }

    fn segment_path(&self, base: u64) -> PathBuf {
        self.dir.join(format!("{base:020}{SUFFIX}"))
    }

    fn push_segment(
        &mut self,
        path: PathBuf,
        file: Arc<dyn FsFile>,
        header: &FileHeader,
        file_bytes: u64,
    ) {
        self.segments.push(Segment {
            base: header.base,
            end: header.base,
            seed: header.seed(),
            path,
            bytes: FILE_HEADER_BYTES,
            file_bytes,
            index: Vec::new(),
            dirty: true,
        });
        self.active = Some(file);
    }

    /// Writes frames into the last segment, in one system call.
    pub(super) fn write(&mut self, frames: &[NewFrame<'_>]) -> Result<(), Error> {
        let kind = Kind::Data;
        let Some((segment, file)) = self.segments.last_mut().zip(self.active.as_ref()) else {
            return Err(Error::Closed);
        };
        let mut large: Vec<(usize, usize)> = Vec::new();
        self.scratch.clear();
        let mut lsn = self.next_lsn;
        for (index, frame) in frames.iter().enumerate() {
            let header = FrameHeader {
                payload_bytes: frame.payload_bytes() as u32,
                lsn,
                floor: self.floor,
                span: frame.span,
                partition: frame.partition,
                kind,
            };
            self.scratch
                .extend_from_slice(&header.encode(segment.seed, frame.head, frame.body));
            if frame.payload_bytes() as usize <= COPY_BYTES_MAX {
                self.scratch.extend_from_slice(frame.head);
                self.scratch.extend_from_slice(frame.body);
            } else {
                large.push((self.scratch.len(), index));
            }
            let padding = frame.bytes() - FRAME_HEADER_BYTES - frame.payload_bytes();
            self.scratch.extend_from_slice(&PADDING[..padding as usize]);
            lsn += u64::from(frame.span);
        }
        let mut parts: Vec<&[u8]> = Vec::with_capacity(3 * large.len() + 1);
        let mut from = 0;
        for (to, index) in large {
            parts.extend([
                &self.scratch[from..to],
                frames[index].head,
                frames[index].body,
            ]);
            from = to;
        }
        parts.push(&self.scratch[from..]);
        if let Err(error) = file.write_at(&parts, segment.bytes) {
            let bytes = frames.iter().map(NewFrame::bytes).sum();
            let error = Error::room("write", &segment.path, bytes, error);
            // Whole frames that did get written must not be found behind what is written here next.
            if let Err(again) = file.truncate(segment.bytes) {
                self.broken = Some(Error::io("cut", &segment.path, again));
            }
            return Err(error);
        }
        let mut lsn = self.next_lsn;
        for frame in frames {
            segment.note(lsn, segment.bytes, self.options.index_every_bytes);
            segment.bytes += frame.bytes();
            lsn += u64::from(frame.span);
        }
        segment.end = lsn;
        segment.file_bytes = segment.file_bytes.max(segment.bytes);
        segment.dirty = true;
        self.next_lsn = lsn;
        // A burst must not keep its memory for ever.
        self.scratch.shrink_to(1 << 20);
        Ok(())
    }

    /// Makes everything appended durable.
    ///
    /// # Errors
    /// [`Error::Io`]; what was appended since the last good sync may be lost, and no later sync can tell.
    pub fn sync(&mut self) -> Result<(), Error> {
        let last = self.segments.len().saturating_sub(1);
        for (index, segment) in self.segments.iter_mut().enumerate() {
            if !segment.dirty {
                continue;
            }
            let io = |e| Error::io("sync", &segment.path, e);
            match &self.active {
                Some(file) if index == last => file.sync_data().map_err(io)?,
                _ => self
                    .fs
                    .open(&segment.path, Open::Write)
                    .and_then(|file| file.sync_data())
                    .map_err(io)?,
            }
            segment.dirty = false;
        }
        if self.dir_dirty {
            self.sync_dir()?;
            self.dir_dirty = false;
        }
        self.floor = self.next_lsn;
        Ok(())
    }

    /// Syncs, and leaves a mark that everything before it was durable: damage is then told from a torn end.
    /// Call it at a clean stop; without room for the mark only the sync is done.
    ///
    /// # Errors
    /// As [`Segments::sync`].
    pub fn seal(&mut self) -> Result<(), Error> {
        self.sync()?;
        let Some((segment, file)) = self.segments.last_mut().zip(self.active.as_ref()) else {
            return Ok(());
        };
        let header = FrameHeader {
            payload_bytes: 0,
            lsn: self.next_lsn,
            floor: self.floor,
            span: 0,
            partition: 0,
            kind: Kind::Seal,
        };
        if self.options.durable && segment.bytes + FRAME_HEADER_BYTES > segment.file_bytes {
            return Ok(());
        }
        match file.write_at(&[&header.encode(segment.seed, &[], &[])], segment.bytes) {
            Ok(()) => {
                segment.bytes += FRAME_HEADER_BYTES;
                segment.file_bytes = segment.file_bytes.max(segment.bytes);
                segment.dirty = true;
                self.sync()
            }
            Err(_) => file
                .truncate(segment.bytes)
                .map_err(|e| Error::io("cut", &segment.path, e)),
        }
    }

    /// Removes the segments that end at or below `lsn`, never the one being written. Gives how many went.
    ///
    /// # Errors
    /// [`Error::Io`]; the segments removed before it are gone.
    pub fn drop_below(&mut self, lsn: u64) -> Result<usize, Error> {
        let mut count = 0;
        while self.segments.len() > 1 && self.segments[0].end <= lsn {
            self.remove_oldest()?;
            count += 1;
        }
        Ok(count)
    }

    /// Removes every segment; the next frame gets `next_lsn`.
    ///
    /// # Errors
    /// [`Error::Io`]; the segments removed before it are gone.
    pub fn clear(&mut self, next_lsn: u64) -> Result<(), Error> {
        while !self.segments.is_empty() {
            self.remove_oldest()?;
        }
        self.active = None;
        self.next_lsn = next_lsn;
        self.floor = next_lsn;
        self.broken = None;
        Ok(())
    }

    /// Removes the oldest segment.
    pub(super) fn remove_oldest(&mut self) -> Result<(), Error> {
        let path = &self.segments[0].path;
        self.fs
            .remove(path)
            .map_err(|e| Error::io("remove", path, e))?;
        self.segments.remove(0);
        // One by one, oldest first: a crash must not leave a hole.
        self.sync_dir()
    }

    fn sync_dir(&self) -> Result<(), Error> {
        self.fs
            .sync_dir(&self.dir)
            .map_err(|e| Error::io("sync", &self.dir, e))
    }

    /// The file length of the oldest segment, if it ends at or below `lsn` and is not the one being written.
    pub(super) fn oldest_below(&self, lsn: u64) -> Option<u64> {
        let oldest = self
            .segments
            .first()
            .filter(|oldest| self.segments.len() > 1 && oldest.end <= lsn)?;
        Some(oldest.file_bytes)
    }

    /// Turns the oldest segment into a spare file.
    pub(super) fn recycle_oldest(&mut self, number: u64) -> Result<Spare, Error> {
        let from = &self.segments[0].path;
        let path = self.dir.join(format!("{SPARE_PREFIX}{number}"));
        let file = self
            .fs
            .open(from, Open::Write)
            .map_err(|e| Error::io("open", from, e))?;
        self.fs
            .rename(from, &path)
            .map_err(|e| Error::io("rename", from, e))?;
        let segment = self.segments.remove(0);
        self.sync_dir()?;
        Ok(Spare {
            path,
            file,
            bytes: segment.file_bytes,
        })
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

/// A number nobody can guess, from the system's randomness.
pub(super) fn salt() -> u64 {
    RandomState::new().hash_one(0x0063_6f6e_766f_6b65_u64)
}
