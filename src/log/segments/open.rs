//! Opening a folder of segments: reading every frame, and deciding whether the end was torn by a crash or is damaged.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    Cut, MAGIC, NUMBER_MAX, Opened, SPARE_PREFIX, SUFFIX, Segment, Segments, Spare, Visit,
};
use crate::log::error::Error;
use crate::log::frame::{
    BadHeader, FILE_HEADER_BYTES, FORMAT, FileHeader, Frame, FrameReader, Kind, look_behind,
};
use crate::log::fs::{Fs, FsFile, Open};

/// The position of the very first frame.
const FIRST_LSN: u64 = 1;

impl Segments {
    /// Opens the folder and shows every frame to `visit`, in order.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Newer`], [`Error::Io`]; [`Error::Stopped`] if `visit` breaks.
    pub(in crate::log) fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        visit: &mut dyn FnMut(Visit<'_>) -> ControlFlow<()>,
    ) -> Result<(Self, Opened), Error> {
        let files = segment_files(&*fs, dir)?;
        let spares = spare_files(&*fs, dir)?;
        let first = files.first().map_or(FIRST_LSN, |(base, _)| *base);
        let held_dir = fs.hold_dir(dir).map_err(|e| Error::io("open", dir, e))?;
        let mut this = Self {
            fs,
            held_dir,
            dir: dir.to_owned(),
            segments: Vec::new(),
            active: None,
            next_lsn: first,
            floor: first,
            scratch: Vec::new(),
        };
        let mut bytes_before = 0;
        for (base, path) in &files {
            if *base > NUMBER_MAX {
                return Err(Error::damaged(
                    path,
                    0,
                    "its name is a position that no log reaches",
                ));
            }
            if *base != this.next_lsn {
                let what = format!(
                    "position {} does not read back as it was written, yet later ones do",
                    this.next_lsn
                );
                let at = this
                    .segments
                    .last()
                    .map(|segment| (&segment.path, segment.bytes));
                let (path, offset) = at.unwrap_or((path, 0));
                return Err(Error::damaged(path, offset, what));
            }
            bytes_before += this.load(*base, path, &mut |frame, at| {
                visit(Visit {
                    frame,
                    bytes_done: bytes_before + at,
                })
            })?;
        }
        let cut = this.settle()?;
        Ok((this, Opened { cut, spares }))
    }

    /// Reads one segment up to the last good frame. Gives the file's length.
    fn load(
        &mut self,
        base: u64,
        path: &Path,
        visit: &mut dyn FnMut(&Frame, u64) -> ControlFlow<()>,
    ) -> Result<u64, Error> {
        let io = |e| Error::io("read", path, e);
        let file = self.fs.open(path, Open::Write).map_err(io)?;
        let file_bytes = file.size().map_err(io)?;
        let seed = read_header(&*file, path, base)?.seed();
        let mut segment = Segment {
            end: base,
            seed,
            path: path.to_owned(),
            bytes: FILE_HEADER_BYTES,
            file_bytes,
        };
        let mut reader = FrameReader::new(file.clone(), seed, FILE_HEADER_BYTES, file_bytes);
        while let Some(frame) = reader
            .next()
            .map_err(io)?
            .filter(|frame| frame.lsn == segment.end)
        {
            if frame.kind == Kind::Data {
                if visit(&frame, reader.at()).is_break() {
                    return Err(Error::Stopped);
                }
                segment.end += 1;
            }
            segment.bytes = reader.at();
        }
        self.next_lsn = segment.end;
        self.segments.push(segment);
        self.active = Some(file);
        Ok(file_bytes)
    }

    /// The good frames end here: decides whether a crash tore off what is behind, and wipes it.
    ///
    /// The file keeps its length, so that its room stays taken. Only whole frames are wiped: they could be mistaken
    /// for the successors of what is written next.
    fn settle(&mut self) -> Result<Option<Cut>, Error> {
        let Some((segment, file)) = self.segments.last_mut().zip(self.active.as_ref()) else {
            return Ok(None);
        };
        let path = segment.path.clone();
        let io = |action| {
            let path = &path;
            move |e| Error::io(action, path, e)
        };
        let behind = look_behind(
            file,
            segment.seed,
            segment.bytes,
            segment.file_bytes,
            self.next_lsn,
        );
        let behind = behind.map_err(io("read"))?;
        if behind.synced {
            let what = format!(
                "position {} does not read back as it was written, yet later ones do",
                self.next_lsn
            );
            return Err(Error::damaged(&segment.path, segment.bytes, what));
        }
        if behind.frames {
            file.truncate(segment.bytes).map_err(io("cut"))?;
            // Best effort: without the room, the next segment begins earlier.
            let _ = file.preallocate(segment.file_bytes);
            segment.file_bytes = file.size().map_err(io("measure"))?;
        }
        // What was read may stand in the page cache only; it is about to be shown to clients.
        file.sync_all().map_err(io("sync"))?;
        self.floor = self.next_lsn;
        Ok(behind.frames.then(|| Cut {
            path: segment.path.clone(),
            offset: segment.bytes,
        }))
    }

    /// Bytes that [`Segments::open`] will pass.
    pub(in crate::log) fn measure(fs: &dyn Fs, dir: &Path) -> Result<u64, Error> {
        let mut bytes = 0;
        for (_, path) in segment_files(fs, dir)? {
            let size = fs.open(&path, Open::Read).and_then(|file| file.size());
            bytes += size.map_err(|e| Error::io("measure", &path, e))?;
        }
        Ok(bytes)
    }

    /// Shows the frames below `end` of a folder that is open elsewhere.
    pub(in crate::log) fn scan(
        fs: &dyn Fs,
        dir: &Path,
        end: u64,
        visit: &mut dyn FnMut(&Frame) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let files = segment_files(fs, dir)?;
        let mut lsn = files.first().map_or(end, |(base, _)| *base);
        for (base, path) in files {
            if lsn >= end {
                break;
            }
            let io = |e| Error::io("read", &path, e);
            let file = fs.open(&path, Open::Read).map_err(io)?;
            let size = file.size().map_err(io)?;
            let seed = read_header(&*file, &path, base)?.seed();
            let mut reader = FrameReader::new(file, seed, FILE_HEADER_BYTES, size);
            while lsn < end {
                let Some(frame) = reader.next().map_err(io)?.filter(|frame| frame.lsn == lsn)
                else {
                    break;
                };
                if frame.kind == Kind::Data {
                    if visit(&frame).is_break() {
                        return Err(Error::Stopped);
                    }
                    lsn += 1;
                }
            }
        }
        if lsn < end {
            return Err(Error::damaged(
                dir,
                0,
                format!("position {lsn} does not read back as it was written"),
            ));
        }
        Ok(())
    }
}

/// The header of a segment that has its name, and so had its header synced.
fn read_header(file: &dyn FsFile, path: &Path, base: u64) -> Result<FileHeader, Error> {
    match FileHeader::read(file, MAGIC).map_err(|e| Error::io("read", path, e))? {
        Ok(header) if header.base == base => Ok(header),
        Err(BadHeader::Newer(found)) => Err(Error::Newer {
            path: path.to_owned(),
            found,
            known: FORMAT,
        }),
        Ok(_) | Err(BadHeader::Damaged) => Err(Error::damaged(
            path,
            0,
            "its header does not read back as it was written",
        )),
    }
}

type Numbered = Vec<(u64, PathBuf)>;

/// The folder's segments, by first position.
fn segment_files(fs: &dyn Fs, dir: &Path) -> Result<Numbered, Error> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let base = |name: &str| name.strip_suffix(SUFFIX).and_then(|base| base.parse().ok());
    let mut files: Numbered = names
        .iter()
        .filter_map(|name| Some((base(name)?, dir.join(name))))
        .collect();
    files.sort_unstable();
    Ok(files)
}

fn spare_files(fs: &dyn Fs, dir: &Path) -> Result<Vec<Spare>, Error> {
    let mut spares = Vec::new();
    for name in fs.list(dir).map_err(|e| Error::io("list", dir, e))? {
        if name.starts_with(SPARE_PREFIX) {
            let path = dir.join(name);
            let file = fs
                .open(&path, Open::Write)
                .map_err(|e| Error::io("open", &path, e))?;
            let bytes = file.size().map_err(|e| Error::io("measure", &path, e))?;
            let spare = Spare { path, file, bytes };
            // Of another name it is somebody else's, and in nobody's way.
            if spare.number().is_some() {
                spares.push(spare);
            }
        }
    }
    Ok(spares)
}
