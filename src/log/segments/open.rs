//! Opening a folder of segments: reading every frame, and deciding whether the end was torn by a crash or is damaged.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{
    Cut, MAGIC, Opened, SPARE_PREFIX, SUFFIX, Segment, SegmentOptions, Segments, Spare, Visit,
};
use crate::log::error::Error;
use crate::log::frame::{
    BadHeader, Behind, FILE_HEADER_BYTES, FORMAT, FileHeader, Frame, FrameReader, Kind, look_behind,
};
use crate::log::fs::{Fs, Open};

impl Segments {
    /// Opens the folder, creating it if absent, and shows every frame to `visit`, in order.
    ///
    /// # Errors
    /// [`Error::Damaged`], [`Error::Newer`], [`Error::Io`]; [`Error::Stopped`] if `visit` breaks.
    pub fn open(
        fs: Arc<dyn Fs>,
        dir: &Path,
        options: SegmentOptions,
        visit: &mut dyn FnMut(Visit<'_>) -> ControlFlow<()>,
    ) -> Result<(Self, Opened), Error> {
        if fs.list(dir).is_err() {
            fs.create_dirs(dir)
                .map_err(|e| Error::room("create", dir, 0, e))?;
            if let Some(parent) = dir.parent() {
                fs.sync_dir(parent)
                    .map_err(|e| Error::io("sync", parent, e))?;
            }
        }
        let mut this = Self {
            fs,
            dir: dir.to_owned(),
            options,
            segments: Vec::new(),
            active: None,
            next_lsn: options.first_lsn,
            floor: options.first_lsn,
            dir_dirty: false,
            scratch: Vec::new(),
            broken: None,
        };
        let (files, spares) = this.list()?;
        let cut = this.load(&files, visit)?;
        Ok((this, Opened { cut, spares }))
    }

    /// The folder's segments, and its spare files opened (or removed, where nothing is kept for reuse).
    fn list(&self) -> Result<(Vec<(u64, PathBuf)>, Vec<Spare>), Error> {
        let names = self
            .fs
            .list(&self.dir)
            .map_err(|e| Error::io("list", &self.dir, e))?;
        let mut files = Vec::new();
        let mut spares = Vec::new();
        for name in names {
            let path = self.dir.join(&name);
            if let Some(base) = name.strip_suffix(SUFFIX).and_then(|base| base.parse().ok()) {
                files.push((base, path));
            } else if name.starts_with(SPARE_PREFIX) {
                let file = self
                    .fs
                    .open(&path, Open::Write)
                    .map_err(|e| Error::io("open", &path, e))?;
                let bytes = file.size().map_err(|e| Error::io("measure", &path, e))?;
                spares.push(Spare { path, file, bytes });
            }
        }
        files.sort_unstable();
        Ok((files, spares))
    }

    fn load(
        &mut self,
        files: &[(u64, PathBuf)],
        visit: &mut dyn FnMut(Visit<'_>) -> ControlFlow<()>,
    ) -> Result<Option<Cut>, Error> {
        let mut sizes = Vec::with_capacity(files.len());
        for (_, path) in files {
            let file = self
                .fs
                .open(path, Open::Read)
                .map_err(|e| Error::io("open", path, e))?;
            sizes.push(file.size().map_err(|e| Error::io("measure", path, e))?);
        }
        let bytes_total = sizes.iter().sum();
        let mut bytes_before = 0;
        for (index, (base, path)) in files.iter().enumerate() {
            if index == 0 {
                self.next_lsn = *base;
                self.floor = *base;
            }
            let whole = self.load_segment(*base, path, &mut |frame, at| {
                visit(Visit {
                    frame,
                    bytes_done: bytes_before + at,
                    bytes_total,
                })
            })?;
            bytes_before += sizes[index];
            let followed = files
                .get(index + 1)
                .is_some_and(|(base, _)| *base == self.next_lsn);
            if !(whole && followed) {
                return self.settle(files, index, whole);
            }
        }
        Ok(None)
    }

    /// Reads one segment up to the last good frame. `false`: not even its header is good.
    fn load_segment(
        &mut self,
        base: u64,
        path: &Path,
        visit: &mut dyn FnMut(&Frame, u64) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let file = self
            .fs
            .open(path, Open::Write)
            .map_err(|e| Error::io("open", path, e))?;
        let io = |e| Error::io("read", path, e);
        let file_bytes = file.size().map_err(io)?;
        let header = match FileHeader::read(&*file, MAGIC).map_err(io)? {
            Ok(header) if header.base == base => header,
            Err(BadHeader::Newer(found)) => {
                return Err(Error::Newer {
                    path: path.to_owned(),
                    found,
                    known: FORMAT,
                });
            }
            Ok(_) | Err(BadHeader::Damaged) => return Ok(false),
        };
        let mut segment = Segment {
            base,
            end: base,
            seed: header.seed(),
            path: path.to_owned(),
            bytes: FILE_HEADER_BYTES,
            file_bytes,
            index: Vec::new(),
            dirty: true,
        };
        let mut reader =
            FrameReader::new(file.clone(), segment.seed, FILE_HEADER_BYTES, file_bytes);
        while let Some(frame) = reader.next().map_err(io)? {
            if frame.lsn != segment.end || frame.kind == Kind::End {
                break;
            }
            self.floor = self.floor.max(frame.floor);
            if frame.kind == Kind::Data {
                segment.note(frame.lsn, segment.bytes, self.options.index_every_bytes);
                if visit(&frame, reader.at()).is_break() {
                    return Err(Error::Stopped);
                }
            }
            segment.end = frame.next_lsn();
            segment.bytes = reader.at();
        }
        self.next_lsn = segment.end;
        self.segments.push(segment);
        self.active = Some(file);
        Ok(true)
    }

    /// The good frames end in file `index`: decides whether a crash tore them off there, and cuts what it left behind.
    /// `whole`: the file's own header is good.
    fn settle(
        &mut self,
        files: &[(u64, PathBuf)],
        index: usize,
        whole: bool,
    ) -> Result<Option<Cut>, Error> {
        let (_, path) = &files[index];
        let lsn = self.next_lsn;
        let at = if whole {
            self.segments.last().map_or(0, |segment| segment.bytes)
        } else {
            0
        };
        let last = index + 1 == files.len();
        if self.options.durable && !whole {
            return Err(Error::damaged(
                path,
                0,
                "its header does not read back as it was written",
            ));
        }
        if self.options.durable && !last {
            return Err(Error::damaged(
                path,
                at,
                format!("position {lsn} is missing, yet there are later files"),
            ));
        }
        let mut behind = Behind::default();
        let mut bytes = 0;
        for (later, (_, path)) in files.iter().enumerate().skip(index) {
            let io = |e| Error::io("read", path, e);
            let file = self.fs.open(path, Open::Read).map_err(io)?;
            let size = file.size().map_err(io)?;
            let from = if later == index {
                at.max(FILE_HEADER_BYTES)
            } else {
                FILE_HEADER_BYTES
            };
            bytes += size.saturating_sub(if later == index { at } else { 0 });
            if let Ok(header) = FileHeader::read(&*file, MAGIC).map_err(io)? {
                let here = look_behind(&file, header.seed(), from, size, lsn).map_err(io)?;
                behind.frames |= here.frames;
                behind.synced |= here.synced;
            }
        }
        if behind.synced {
            return Err(Error::damaged(
                path,
                at,
                format!("position {lsn} does not read back as it was written, yet later ones do"),
            ));
        }
        let cut = if self.options.durable {
            self.cut_durable(behind.frames)?
        } else {
            self.cut_lazy(files, index, whole)?
        };
        Ok(cut.then(|| Cut {
            path: path.clone(),
            offset: at,
            lsn,
            bytes,
        }))
    }

    /// The group log's file keeps its length, so that its room stays taken. Only whole frames behind the end are wiped:
    /// they could be mistaken for the successors of what is written next.
    fn cut_durable(&mut self, frames_behind: bool) -> Result<bool, Error> {
        let Some((segment, file)) = self.segments.last_mut().zip(self.active.as_ref()) else {
            return Ok(false);
        };
        if frames_behind {
            file.truncate(segment.bytes)
                .map_err(|e| Error::io("cut", &segment.path, e))?;
            // Best effort: without the room, the next segment begins earlier.
            let _ = file.preallocate(segment.file_bytes);
            segment.file_bytes = file
                .size()
                .map_err(|e| Error::io("measure", &segment.path, e))?;
        }
        // What was read may stand in the page cache only; it is about to be shown to clients.
        file.sync_all()
            .map_err(|e| Error::io("sync", &segment.path, e))?;
        for segment in &mut self.segments {
            segment.dirty = false;
        }
        self.floor = self.next_lsn;
        Ok(frames_behind)
    }

    fn cut_lazy(
        &mut self,
        files: &[(u64, PathBuf)],
        index: usize,
        whole: bool,
    ) -> Result<bool, Error> {
        let mut cut = false;
        for (_, path) in files[index + usize::from(whole)..].iter().rev() {
            self.fs
                .remove(path)
                .map_err(|e| Error::io("remove", path, e))?;
            self.dir_dirty = true;
            cut = true;
        }
        if let Some((segment, file)) = self.segments.last_mut().zip(self.active.as_ref())
            && segment.file_bytes > segment.bytes
        {
            file.truncate(segment.bytes)
                .map_err(|e| Error::io("cut", &segment.path, e))?;
            segment.file_bytes = segment.bytes;
            cut = true;
        }
        for segment in &mut self.segments {
            segment.dirty = segment.end > self.floor;
        }
        Ok(cut)
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
        fs: &Arc<dyn Fs>,
        dir: &Path,
        end: u64,
        visit: &mut dyn FnMut(&Frame) -> ControlFlow<()>,
    ) -> Result<(), Error> {
        let mut next = None;
        for (base, path) in segment_files(&**fs, dir)? {
            let io = |e| Error::io("read", &path, e);
            let damaged =
                |at| Error::damaged(&path, at, "a frame does not read back as it was written");
            let mut lsn = next.unwrap_or(base);
            if lsn >= end {
                break;
            }
            let file = fs.open(&path, Open::Read).map_err(io)?;
            let size = file.size().map_err(io)?;
            let header = FileHeader::read(&*file, MAGIC)
                .map_err(io)?
                .map_err(|_| damaged(0))?;
            if header.base != lsn {
                return Err(damaged(0));
            }
            let mut reader = FrameReader::new(file, header.seed(), FILE_HEADER_BYTES, size);
            while lsn < end {
                let frame = reader.next().map_err(io)?.filter(|frame| frame.lsn == lsn);
                let Some(frame) = frame else { break };
                lsn = frame.next_lsn();
                if frame.kind == Kind::Data && visit(&frame).is_break() {
                    return Err(Error::Stopped);
                }
            }
            next = Some(lsn);
        }
        if next.is_some_and(|next| next < end) {
            return Err(Error::damaged(
                dir,
                0,
                format!("frames below position {end} do not read back as they were written"),
            ));
        }
        Ok(())
    }
}

/// The folder's segments, by first position.
fn segment_files(fs: &dyn Fs, dir: &Path) -> Result<Vec<(u64, PathBuf)>, Error> {
    let names = fs.list(dir).map_err(|e| Error::io("list", dir, e))?;
    let base = |name: &str| name.strip_suffix(SUFFIX).and_then(|base| base.parse().ok());
    let mut files: Vec<_> = names
        .iter()
        .filter_map(|name| Some((base(name)?, dir.join(name))))
        .collect();
    files.sort_unstable();
    Ok(files)
}
