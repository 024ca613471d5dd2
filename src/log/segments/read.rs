//! Reading frames of an open folder, without holding up its writer.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use super::Segments;
use crate::log::error::Error;
use crate::log::frame::{Frame, FrameReader, Kind};
use crate::log::fs::{Fs, FsFile, Open};

impl Segments {
    /// What it takes to read from `lsn` on, up to about `bytes_max` of payload and never beyond one segment.
    /// `None` if `lsn` is not there. The plan stays good while segments are appended to or removed.
    pub fn plan(&self, lsn: u64, bytes_max: u64) -> Option<ReadPlan> {
        let index = self
            .segments
            .partition_point(|segment| segment.base <= lsn)
            .checked_sub(1)?;
        let segment = &self.segments[index];
        if lsn >= segment.end {
            return None;
        }
        let place = segment
            .index
            .partition_point(|&(at, _)| at <= lsn)
            .saturating_sub(1);
        let &(_, from) = segment.index.get(place)?;
        let file = match &self.active {
            Some(file) if index + 1 == self.segments.len() => Source::Open(file.clone()),
            _ => Source::Closed(self.fs.clone()),
        };
        Some(ReadPlan {
            path: segment.path.clone(),
            file,
            seed: segment.seed,
            place: from..segment.bytes,
            lsn,
            bytes_max,
        })
    }
}

#[derive(Clone, Debug)]
enum Source {
    Open(Arc<dyn FsFile>),
    Closed(Arc<dyn Fs>),
}

/// A read that was looked up and can be done without the [`Segments`].
#[derive(Clone, Debug)]
pub struct ReadPlan {
    path: PathBuf,
    file: Source,
    seed: u32,
    place: Range<u64>,
    lsn: u64,
    bytes_max: u64,
}

impl ReadPlan {
    /// The frames from the one that holds the wished position on; at least that one, then as many as stay within the
    /// wished bytes. Payloads share the memory of the read.
    ///
    /// # Errors
    /// [`Error::Damaged`] if a frame does not read back as it was written, [`Error::Io`]. `NotFound` in it means that
    /// the segment was removed meanwhile.
    pub fn read(&self) -> Result<Vec<Frame>, Error> {
        let io = |e| Error::io("read", &self.path, e);
        let file = match &self.file {
            Source::Open(file) => file.clone(),
            Source::Closed(fs) => fs.open(&self.path, Open::Read).map_err(io)?,
        };
        let chunk_bytes = self
            .bytes_max
            .saturating_add(16 << 10)
            .clamp(32 << 10, 1 << 20);
        let mut reader = FrameReader::new(file, self.seed, self.place.start, self.place.end)
            .chunk_bytes(chunk_bytes);
        let mut frames: Vec<Frame> = Vec::new();
        let mut bytes = 0;
        while reader.at() < self.place.end {
            let Some(frame) = reader.next().map_err(io)? else {
                return Err(Error::damaged(
                    &self.path,
                    reader.at(),
                    "a frame does not read back as it was written",
                ));
            };
            if frame.next_lsn() <= self.lsn || frame.kind != Kind::Data {
                continue;
            }
            bytes += frame.payload.len() as u64;
            if bytes > self.bytes_max && !frames.is_empty() {
                break;
            }
            frames.push(frame);
            if bytes >= self.bytes_max {
                break;
            }
        }
        Ok(frames)
    }
}
