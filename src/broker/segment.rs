//! One segment of a partition: a file of whole record batches as fetch sends them, what is known of it in memory, and
//! the small file beside it that spares reading it again.
//!
//! ```text
//! <base offset>.log   batches, one behind the other
//! <base offset>.idx   magic 8 | crc of the next 48 bytes u32 | crc of the rest u32
//!                     | bytes u64 | end i64 | first timestamp i64 | largest timestamp i64 | last write i64 | marks u32 | producers u32
//!                     | marks: offset i64, place u64, largest timestamp before i64
//!                     | producers: id i64, epoch i16, seen i64, batches u8, of each: sequences 2 × i32, offset i64, timestamp i64
//! ```
//! The `.idx` file is written behind a sync of the segment: what it covers is on the disk and need not be checked.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::batch::{self, HEADER_BYTES, Header, NO_TIMESTAMP};
use super::producers::{Appended, Producer, Producers};
use crate::log::fs::{Fs, FsFile, Open};

/// The distance between places kept in memory for finding an offset or a time.
const MARK_EVERY_BYTES: u64 = 16 << 10;
/// How much a pass over headers reads at once.
const WINDOW_BYTES: usize = 64 << 10;
/// A pass that checks every byte reads more.
const CHECK_WINDOW_BYTES: usize = 1 << 20;

const MAGIC: [u8; 8] = *b"CVKINDX1";
const HEAD_BYTES: usize = 64;

/// A known place in a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) offset: i64,
    pub(super) at: u64,
    /// The largest timestamp before this place.
    pub(super) max_before: i64,
}

/// What is known of a segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) base: i64,
    /// The offset behind its last record.
    pub(super) end: i64,
    pub(super) bytes: u64,
    /// The largest timestamp of its first batch.
    pub(super) first_timestamp: i64,
    pub(super) max_timestamp: i64,
    /// When something was last written to it, by the broker's clock.
    pub(super) written_ms: i64,
    /// Rising; `None` when they are only in the file beside it.
    pub(super) marks: Option<Vec<Mark>>,
    /// How many of its bytes the file beside it covers.
    pub(super) indexed_bytes: u64,
}

impl Segment {
    pub(super) fn new(base: i64) -> Self {
        Self {
            base,
            end: base,
            bytes: 0,
            first_timestamp: NO_TIMESTAMP,
            max_timestamp: NO_TIMESTAMP,
            written_ms: 0,
            marks: Some(Vec::new()),
            indexed_bytes: 0,
        }
    }

    /// Takes a batch that now ends the file.
    pub(super) fn note(&mut self, header: &Header) {
        let place = Mark {
            offset: header.base_offset,
            at: self.bytes,
            max_before: self.max_timestamp,
        };
        let marks = self.marks.get_or_insert_default();
        if marks
            .last()
            .is_none_or(|last| place.at - last.at >= MARK_EVERY_BYTES)
        {
            marks.push(place);
        }
        if self.bytes == 0 {
            self.first_timestamp = header.max_timestamp;
        }
        self.max_timestamp = self.max_timestamp.max(header.max_timestamp);
        self.bytes += header.bytes as u64;
        self.end = header.last_offset().saturating_add(1);
    }

    /// Whether marks rise, and lie within. Others were never written, whatever their checksum says.
    fn may_have(&self, marks: &[Mark]) -> bool {
        let rise = |pair: &[Mark]| pair[0].offset < pair[1].offset && pair[0].at < pair[1].at;
        let within = |mark: &Mark| {
            self.base <= mark.offset && mark.offset < self.end && mark.at < self.bytes
        };
        marks.windows(2).all(rise) && marks.iter().all(within)
    }

    /// A place at or before the batch with `offset`, if the marks are in memory.
    pub(super) fn place_of(&self, offset: i64) -> Option<u64> {
        let marks = self.marks.as_ref()?;
        let behind = marks.partition_point(|mark| mark.offset <= offset);
        Some(behind.checked_sub(1).map_or(0, |at| marks[at].at))
    }

    /// A place before which no batch has a timestamp of `timestamp` or later, if the marks are in memory.
    pub(super) fn place_of_time(&self, timestamp: i64) -> Option<u64> {
        let marks = self.marks.as_ref()?;
        let behind = marks.partition_point(|mark| mark.max_before < timestamp);
        Some(behind.checked_sub(1).map_or(0, |at| marks[at].at))
    }
}

pub(super) fn log_path(dir: &Path, base: i64) -> PathBuf {
    dir.join(format!("{base:020}.log"))
}

fn index_path(dir: &Path, base: i64) -> PathBuf {
    dir.join(format!("{base:020}.idx"))
}

/// The base offset in a segment's name.
pub(super) fn base_of(name: &str) -> Option<i64> {
    name.strip_suffix(".log")?
        .parse()
        .ok()
        .filter(|base| *base >= 0)
}

/// Whether a file is what a crash left of a segment that is gone, or of an index that was being written.
pub(super) fn is_left_over(name: &str, bases: &[i64]) -> bool {
    let index = name
        .strip_suffix(".idx")
        .and_then(|base| base.parse::<i64>().ok());
    name.ends_with(".tmp") || index.is_some_and(|base| bases.binary_search(&base).is_err())
}

/// Goes from batch to batch through a file, reading as little as it can.
pub(super) struct Walk {
    file: Arc<dyn FsFile>,
    at: u64,
    end: u64,
    window: Vec<u8>,
    window_at: u64,
    check: bool,
}

impl Walk {
    /// From `at` to `end`; with `check` every batch's CRC is computed.
    pub(super) fn new(file: Arc<dyn FsFile>, at: u64, end: u64, check: bool) -> Self {
        Self {
            file,
            at,
            end,
            window: Vec::new(),
            window_at: at,
            check,
        }
    }

    /// Where the next batch begins.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The next batch, if a whole one is there; the walk then stands behind it.
    pub(super) fn next(&mut self) -> io::Result<Option<Header>> {
        // A mark of an index may lie behind the end.
        let left = self.end.saturating_sub(self.at);
        if left < HEADER_BYTES as u64 || !self.hold(HEADER_BYTES)? {
            return Ok(None);
        }
        let Ok(header) = Header::read(self.held(HEADER_BYTES)) else {
            return Ok(None);
        };
        if header.bytes as u64 > left {
            return Ok(None);
        }
        if self.check
            && !(self.hold(header.bytes)? && batch::crc_matches(&header, self.held(header.bytes)))
        {
            return Ok(None);
        }
        self.at += header.bytes as u64;
        Ok(Some(header))
    }

    fn hold(&mut self, bytes: usize) -> io::Result<bool> {
        let there = (self.window_at + self.window.len() as u64).saturating_sub(self.at);
        if there >= bytes as u64 {
            return Ok(true);
        }
        let chunk = if self.check {
            CHECK_WINDOW_BYTES
        } else {
            WINDOW_BYTES
        };
        let left = usize::try_from(self.end - self.at).unwrap_or(usize::MAX);
        self.window.resize(bytes.max(chunk).min(left), 0);
        let read = self.file.read_at(&mut self.window, self.at)?;
        self.window.truncate(read);
        self.window_at = self.at;
        Ok(read >= bytes)
    }

    fn held(&self, bytes: usize) -> &[u8] {
        let from = (self.at - self.window_at) as usize;
        &self.window[from..from + bytes]
    }
}

/// What the file beside a segment says.
pub(super) struct Index {
    pub(super) segment: Segment,
    pub(super) producers: Producers,
}

/// Writes the file beside a segment. The segment must be on the disk as far as `segment` says.
pub(super) fn write_index(
    fs: &dyn Fs,
    dir: &Path,
    segment: &Segment,
    producers: &Producers,
) -> io::Result<()> {
    let marks = segment.marks.as_deref().unwrap_or_default();
    let producers = producers.sorted();
    let mut rest = Vec::with_capacity(marks.len() * 24 + producers.len() * 64);
    for mark in marks {
        rest.extend_from_slice(&mark.offset.to_le_bytes());
        rest.extend_from_slice(&mark.at.to_le_bytes());
        rest.extend_from_slice(&mark.max_before.to_le_bytes());
    }
    for (id, producer) in &producers {
        rest.extend_from_slice(&id.to_le_bytes());
        rest.extend_from_slice(&producer.epoch.to_le_bytes());
        rest.extend_from_slice(&producer.seen_ms.to_le_bytes());
        rest.push(producer.batches.len() as u8);
        for batch in &producer.batches {
            rest.extend_from_slice(&batch.first_sequence.to_le_bytes());
            rest.extend_from_slice(&batch.last_sequence.to_le_bytes());
            rest.extend_from_slice(&batch.base_offset.to_le_bytes());
            rest.extend_from_slice(&batch.timestamp.to_le_bytes());
        }
    }
    let mut head = [0; HEAD_BYTES];
    head[..8].copy_from_slice(&MAGIC);
    head[16..24].copy_from_slice(&segment.bytes.to_le_bytes());
    head[24..32].copy_from_slice(&segment.end.to_le_bytes());
    head[32..40].copy_from_slice(&segment.first_timestamp.to_le_bytes());
    head[40..48].copy_from_slice(&segment.max_timestamp.to_le_bytes());
    head[48..56].copy_from_slice(&segment.written_ms.to_le_bytes());
    head[56..60].copy_from_slice(&(marks.len() as u32).to_le_bytes());
    head[60..64].copy_from_slice(&(producers.len() as u32).to_le_bytes());
    let crc = crc32c::crc32c(&head[16..]);
    head[8..12].copy_from_slice(&crc.to_le_bytes());
    head[12..16].copy_from_slice(&crc32c::crc32c(&rest).to_le_bytes());
    let path = index_path(dir, segment.base);
    let temporary = path.with_extension("tmp");
    match fs.remove(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = fs.open(&temporary, Open::Create)?;
    file.write_at(&[&head, &rest], 0)?;
    fs.rename(&temporary, &path)
}

/// Reads the file beside a segment; `None` if there is none that can be used. Without `whole` the marks and the
/// producers stay on the disk.
pub(super) fn read_index(
    fs: &dyn Fs,
    dir: &Path,
    base: i64,
    whole: bool,
) -> io::Result<Option<Index>> {
    let file = match fs.open(&index_path(dir, base), Open::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let mut head = [0; HEAD_BYTES];
    if file.read_at(&mut head, 0)? < HEAD_BYTES || head[..8] != MAGIC {
        return Ok(None);
    }
    let mut words = Words(&head[8..]);
    let (crc, crc_rest) = (words.u32(), words.u32());
    if crc != Some(crc32c::crc32c(&head[16..])) {
        return Ok(None);
    }
    let read = |words: &mut Words<'_>| {
        let mut segment = Segment::new(base);
        segment.bytes = words.u64()?;
        segment.indexed_bytes = segment.bytes;
        segment.end = words.i64()?;
        segment.first_timestamp = words.i64()?;
        segment.max_timestamp = words.i64()?;
        segment.written_ms = words.i64()?;
        segment.marks = None;
        Some((segment, words.u32()?, words.u32()?))
    };
    let Some((mut segment, marks, producers)) = read(&mut words) else {
        return Ok(None);
    };
    if segment.end < base {
        return Ok(None);
    }
    if !whole {
        return Ok(Some(Index {
            segment,
            producers: Producers::default(),
        }));
    }
    let size = usize::try_from(file.size()?).unwrap_or(0);
    let mut rest = vec![0; size.saturating_sub(HEAD_BYTES)];
    let count = file.read_at(&mut rest, HEAD_BYTES as u64)?;
    rest.truncate(count);
    if crc_rest != Some(crc32c::crc32c(&rest)) {
        return Ok(None);
    }
    let mut words = Words(&rest);
    let Some(marks) = words.marks(marks).filter(|marks| segment.may_have(marks)) else {
        return Ok(None);
    };
    let Some(producers) = words.producers(producers) else {
        return Ok(None);
    };
    segment.marks = Some(marks);
    Ok(Some(Index { segment, producers }))
}

/// Removes a segment's files.
pub(super) fn remove(fs: &dyn Fs, dir: &Path, base: i64) -> io::Result<()> {
    for path in [index_path(dir, base), log_path(dir, base)] {
        match fs.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

/// Little-endian numbers, one behind the other.
struct Words<'a>(&'a [u8]);

impl Words<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn i16(&mut self) -> Option<i16> {
        self.take().map(i16::from_le_bytes)
    }

    fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn i64(&mut self) -> Option<i64> {
        self.take().map(i64::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn marks(&mut self, count: u32) -> Option<Vec<Mark>> {
        // The CRC matched: the count is what was written.
        let mark = |_| {
            Some(Mark {
                offset: self.i64()?,
                at: self.u64()?,
                max_before: self.i64()?,
            })
        };
        (0..count).map(mark).collect()
    }

    fn producers(&mut self, count: u32) -> Option<Producers> {
        let mut producers = Producers::default();
        for _ in 0..count {
            let (id, epoch, seen_ms, batches) = (self.i64()?, self.i16()?, self.i64()?, self.u8()?);
            let batch = |_| {
                Some(Appended {
                    first_sequence: self.i32()?,
                    last_sequence: self.i32()?,
                    base_offset: self.i64()?,
                    timestamp: self.i64()?,
                })
            };
            let batches = (0..batches).map(batch).collect::<Option<VecDeque<_>>>()?;
            producers.put(
                id,
                Producer {
                    epoch,
                    seen_ms,
                    batches,
                },
            );
        }
        Some(producers)
    }
}

#[cfg(test)]
mod tests {
    use super::super::memory::MemoryFs;
    use super::*;

    #[test]
    fn an_index_whose_marks_lead_astray_is_not_used() {
        let mark = |offset, at| Mark {
            offset,
            at,
            max_before: -1,
        };
        for (marks, used) in [
            (vec![mark(5, 0), mark(7, 80)], true),
            (vec![mark(5, 80), mark(7, 80)], false),
            (vec![mark(7, 0), mark(6, 80)], false),
            (vec![mark(4, 0)], false),
            (vec![mark(9, 0)], false),
            (vec![mark(5, 200)], false),
        ] {
            let fs = MemoryFs::default();
            fs.create_dirs(Path::new("/t")).unwrap();
            let segment = Segment {
                end: 9,
                bytes: 200,
                marks: Some(marks),
                ..Segment::new(5)
            };
            write_index(&fs, Path::new("/t"), &segment, &Producers::default()).unwrap();
            let index = read_index(&fs, Path::new("/t"), 5, true).unwrap();
            assert_eq!(index.is_some(), used, "{segment:?}");
        }
    }

    #[test]
    fn a_walk_from_behind_the_end_finds_nothing() {
        let fs = MemoryFs::default();
        fs.create_dirs(Path::new("/t")).unwrap();
        let file = fs.open(Path::new("/t/0.log"), Open::Create).unwrap();
        file.write_at(&[&[0; 200]], 0).unwrap();
        for check in [false, true] {
            let mut walk = Walk::new(file.clone(), 300, 200, check);
            assert!(walk.next().unwrap().is_none());
        }
    }
}
