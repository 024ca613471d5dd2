//! The bytes of a frame and of the header that opens each file, and the reader that goes from frame to frame.
//!
//! ```text
//! file header, 64 bytes: magic 8 | format u32 | crc u32 of what follows | base u64 | salt u64 | zeros
//! frame, from a multiple of 8:
//!   crc u32 | payload length u32 | lsn u64 | floor u64 | partition u16 | kind u8 | zeros 5 | payload | zeros to 8
//! ```
//! Numbers are little-endian. The frame's CRC-32C starts from the file's salt and covers everything behind it, so
//! neither the stale frames of a reused file nor bytes that a client made look like a frame are ever taken for one.
//! `floor` says what was on the disk when the frame was written: all positions below it. A bad place at or above every
//! later floor is what a crash leaves behind; a bad place below some floor is damage.

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use super::fs::FsFile;

/// Bytes in front of a payload.
pub(super) const FRAME_HEADER_BYTES: u64 = 32;
/// Bytes in front of a file's first frame.
pub(super) const FILE_HEADER_BYTES: u64 = 64;
/// The longest payload of one frame.
pub(super) const PAYLOAD_BYTES_MAX: u64 = 1 << 30;
/// The format written into file headers, and the newest one read.
pub(super) const FORMAT: u32 = 1;

/// Where a frame's header says what it is for.
const KIND_AT: usize = 26;
/// Frames begin at multiples of this.
const ALIGN: u64 = 8;
/// How much a sequential pass reads at once.
const CHUNK_BYTES: u64 = 1 << 20;
/// A plausible distance between a bad place and a frame behind it, in positions.
const LSN_REACH: u64 = 1 << 40;

/// What a payload of this length takes in a file.
pub(super) const fn frame_bytes(payload_bytes: u64) -> u64 {
    FRAME_HEADER_BYTES + payload_bytes.next_multiple_of(ALIGN)
}

/// What a frame is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Carries a payload.
    Data,
    /// Carries only its floor: written at a clean stop.
    Seal,
    /// Closes a snapshot.
    End,
}

impl Kind {
    const fn code(self) -> u8 {
        match self {
            Self::Data => 1,
            Self::Seal => 2,
            Self::End => 3,
        }
    }

    const fn of(code: u8) -> Option<Self> {
        match code {
            1 => Some(Self::Data),
            2 => Some(Self::Seal),
            3 => Some(Self::End),
            _ => None,
        }
    }
}

/// One frame as read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// The position of the frame.
    pub(super) lsn: u64,
    /// The partition it belongs to.
    pub(super) partition: u16,
    /// The caller's bytes.
    pub(super) payload: Bytes,
    pub(super) floor: u64,
    pub(super) kind: Kind,
}

impl Frame {
    /// What the frame takes in its file.
    pub(super) fn bytes(&self) -> u64 {
        frame_bytes(self.payload.len() as u64)
    }
}

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct FrameHeader {
    pub(super) payload_bytes: u32,
    pub(super) lsn: u64,
    pub(super) floor: u64,
    pub(super) partition: u16,
    pub(super) kind: Kind,
}

impl FrameHeader {
    /// The header's bytes.
    pub(super) fn encode(&self, seed: u32, payload: &[u8]) -> [u8; FRAME_HEADER_BYTES as usize] {
        let mut bytes = [0; FRAME_HEADER_BYTES as usize];
        bytes[4..8].copy_from_slice(&self.payload_bytes.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.lsn.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.floor.to_le_bytes());
        bytes[24..26].copy_from_slice(&self.partition.to_le_bytes());
        bytes[KIND_AT] = self.kind.code();
        let crc = crc32c::crc32c_append(seed, &bytes[4..]);
        let crc = crc32c::crc32c_append(crc, payload);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The fields, if the bytes could be a frame at all, and the CRC they claim.
    fn decode(bytes: &[u8]) -> Option<(Self, u32)> {
        let kind = Kind::of(bytes[KIND_AT])?;
        if bytes[27..32] != [0; 5] {
            return None;
        }
        let header = Self {
            payload_bytes: u32_at(bytes, 4),
            lsn: u64_at(bytes, 8),
            floor: u64_at(bytes, 16),
            partition: u16::from_le_bytes([bytes[24], bytes[25]]),
            kind,
        };
        Some((header, u32_at(bytes, 0)))
    }
}

/// What opens a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileHeader {
    /// Segment or snapshot.
    pub(super) magic: [u8; 8],
    /// The position of a segment's first frame; the position a snapshot stands for.
    pub(super) base: u64,
    /// Drawn anew whenever a file is begun.
    pub(super) salt: u64,
}

/// A file header that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadHeader {
    /// Not what was written.
    Damaged,
    /// Written in this newer format.
    Newer(u32),
}

impl FileHeader {
    pub(super) fn encode(&self) -> [u8; FILE_HEADER_BYTES as usize] {
        let mut bytes = [0; FILE_HEADER_BYTES as usize];
        bytes[..8].copy_from_slice(&self.magic);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.salt.to_le_bytes());
        let crc = Self::sum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// The CRC of everything but the magic and the CRC itself.
    fn sum(bytes: &[u8; FILE_HEADER_BYTES as usize]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c(&bytes[8..12]), &bytes[16..])
    }

    /// Reads the header of an open file.
    pub(super) fn read(file: &dyn FsFile, magic: [u8; 8]) -> io::Result<Result<Self, BadHeader>> {
        let mut bytes = [0; FILE_HEADER_BYTES as usize];
        let count = file.read_at(&mut bytes, 0)?;
        if count < bytes.len() || bytes[..8] != magic {
            return Ok(Err(BadHeader::Damaged));
        }
        let format = u32_at(&bytes, 8);
        if Self::sum(&bytes) != u32_at(&bytes, 12) || format == 0 {
            return Ok(Err(BadHeader::Damaged));
        }
        if format > FORMAT {
            return Ok(Err(BadHeader::Newer(format)));
        }
        Ok(Ok(Self {
            magic,
            base: u64_at(&bytes, 16),
            salt: u64_at(&bytes, 24),
        }))
    }

    /// Where the frames' CRCs start from.
    pub(super) fn seed(&self) -> u32 {
        crc32c::crc32c(&self.salt.to_le_bytes())
    }
}

/// Reads frames one behind the other. Payloads are slices of the chunks read, so nothing is copied.
#[derive(Debug)]
pub(super) struct FrameReader {
    file: Arc<dyn FsFile>,
    seed: u32,
    at: u64,
    end: u64,
    chunk: Bytes,
    chunk_at: u64,
    chunk_bytes: u64,
}

impl FrameReader {
    pub(super) fn new(file: Arc<dyn FsFile>, seed: u32, at: u64, end: u64) -> Self {
        Self {
            file,
            seed,
            at,
            end,
            chunk: Bytes::new(),
            chunk_at: at,
            chunk_bytes: CHUNK_BYTES,
        }
    }

    /// Reads this much at once instead of a megabyte.
    pub(super) fn chunk_bytes(mut self, chunk_bytes: u64) -> Self {
        self.chunk_bytes = chunk_bytes;
        self
    }

    /// Where the next frame begins, or where no frame could be read.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The frame here, if there is a valid one; the reader then stands behind it.
    pub(super) fn next(&mut self) -> io::Result<Option<Frame>> {
        if !self.hold(FRAME_HEADER_BYTES)? {
            return Ok(None);
        }
        let Some((header, crc)) = FrameHeader::decode(self.slice(FRAME_HEADER_BYTES)) else {
            return Ok(None);
        };
        let bytes = FRAME_HEADER_BYTES + u64::from(header.payload_bytes);
        if u64::from(header.payload_bytes) > PAYLOAD_BYTES_MAX || !self.hold(bytes)? {
            return Ok(None);
        }
        if crc32c::crc32c_append(self.seed, &self.slice(bytes)[4..]) != crc {
            return Ok(None);
        }
        let start = (self.at - self.chunk_at) as usize;
        let payload = self
            .chunk
            .slice(start + FRAME_HEADER_BYTES as usize..start + bytes as usize);
        self.at += frame_bytes(u64::from(header.payload_bytes));
        Ok(Some(Frame {
            lsn: header.lsn,
            partition: header.partition,
            payload,
            floor: header.floor,
            kind: header.kind,
        }))
    }

    /// Makes `bytes` from here on present in the chunk, unless the file ends before.
    fn hold(&mut self, bytes: u64) -> io::Result<bool> {
        if self.at + bytes <= self.chunk_at + self.chunk.len() as u64 {
            return Ok(true);
        }
        if self.at + bytes > self.end {
            return Ok(false);
        }
        let count = bytes.max(self.chunk_bytes).min(self.end - self.at);
        let mut chunk = vec![0; count as usize];
        let read = self.file.read_at(&mut chunk, self.at)?;
        chunk.truncate(read);
        self.chunk = Bytes::from(chunk);
        self.chunk_at = self.at;
        Ok(read as u64 >= bytes)
    }

    fn slice(&self, bytes: u64) -> &[u8] {
        let start = (self.at - self.chunk_at) as usize;
        &self.chunk[start..start + bytes as usize]
    }
}

/// What lies behind a place where no frame could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Behind {
    /// Whole frames of this file that belong behind the place.
    pub(super) frames: bool,
    /// One of them was written after the place had been synced: the place is damaged, not torn.
    pub(super) synced: bool,
}

/// Looks behind `at` for frames that follow `lsn`.
pub(super) fn look_behind(
    file: &Arc<dyn FsFile>,
    seed: u32,
    at: u64,
    end: u64,
    lsn: u64,
) -> io::Result<Behind> {
    let mut behind = Behind::default();
    let mut at = at;
    let mut window = vec![0; CHUNK_BYTES as usize];
    while at + FRAME_HEADER_BYTES <= end {
        let count = file.read_at(&mut window, at)?;
        let window = &window[..count.min((end - at) as usize)];
        if (window.len() as u64) < FRAME_HEADER_BYTES {
            break;
        }
        let next = scan_window(file, seed, at, end, lsn, window, &mut behind)?;
        if behind.synced {
            break;
        }
        at = next;
    }
    Ok(behind)
}

/// Tries every aligned place of a window; gives where the next window begins.
fn scan_window(
    file: &Arc<dyn FsFile>,
    seed: u32,
    at: u64,
    end: u64,
    lsn: u64,
    window: &[u8],
    behind: &mut Behind,
) -> io::Result<u64> {
    let mut offset = 0;
    while offset + FRAME_HEADER_BYTES as usize <= window.len() {
        let here = at + offset as u64;
        offset += ALIGN as usize;
        // Most places are zeros, or the middle of a payload.
        if Kind::of(window[offset - ALIGN as usize + KIND_AT]).is_none() {
            continue;
        }
        let bytes = &window[offset - ALIGN as usize..][..FRAME_HEADER_BYTES as usize];
        let Some((header, _)) = FrameHeader::decode(bytes) else {
            continue;
        };
        if header.lsn < lsn
            || header.lsn - lsn > LSN_REACH
            || u64::from(header.payload_bytes) > end - here
        {
            continue;
        }
        let mut reader =
            FrameReader::new(file.clone(), seed, here, end).chunk_bytes(FRAME_HEADER_BYTES);
        if let Some(frame) = reader.next()? {
            behind.frames = true;
            behind.synced |= frame.floor > lsn;
            return Ok(reader.at());
        }
    }
    Ok(at + offset as u64)
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
