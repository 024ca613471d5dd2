//! Opening a partition: what its files hold, and what a crash left half written.

use std::io;

use super::super::Error;
use super::super::batch::NO_PRODUCER;
use super::super::segment::{self, Segment, Walk};
use super::{Partition, State};

impl Partition {
    /// Opens what is there. `start` is the durable start offset. Blocks.
    ///
    /// # Errors
    /// [`Error::Damaged`] if bytes that were synced do not read back, [`Error::Io`].
    pub(in crate::broker) fn load(&self, start: i64, now_ms: i64) -> Result<(), Error> {
        let fs = self.files.fs();
        let names = match fs.list(&self.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(Error::io("list", &self.dir, error)),
        };
        let mut bases: Vec<i64> = names
            .iter()
            .filter_map(|name| segment::base_of(name))
            .collect();
        bases.sort_unstable();
        for name in names
            .iter()
            .filter(|name| segment::is_left_over(name, &bases))
        {
            let path = self.dir.join(name);
            fs.remove(&path)
                .map_err(|e| Error::io("remove", &path, e))?;
        }
        let mut state = self.state();
        self.load_segments(&mut state, &bases, now_ms)?;
        state.end = state.segments.last().map_or(0, |segment| segment.end);
        state.log_start = start.max(state.segments.first().map_or(0, |segment| segment.base));
        if state.log_start > state.end {
            // The end was lost with the page cache, the start was not: go on behind it.
            for segment in std::mem::take(&mut state.segments) {
                self.remove_files(segment.base)
                    .map_err(|e| Error::io("remove from", &self.dir, e))?;
            }
            state.end = state.log_start;
        }
        Ok(())
    }

    fn load_segments(&self, state: &mut State, bases: &[i64], now_ms: i64) -> Result<(), Error> {
        let fs = self.files.fs();
        let io = |e| Error::io("read", &self.dir, e);
        for (at, base) in bases.iter().enumerate() {
            let path = segment::log_path(&self.dir, *base);
            let file = self
                .files
                .get((self.key, *base), || path.clone())
                .map_err(|e| Error::io("open", &path, e))?;
            let size = file.size().map_err(|e| Error::io("measure", &path, e))?;
            let last = at + 1 == bases.len();
            let index = segment::read_index(fs, &self.dir, *base, false).map_err(io)?;
            let complete = index
                .as_ref()
                .is_some_and(|index| index.segment.bytes == size);
            // Only what is written to next needs its marks now; of the producers only the last word counts.
            let index = match index {
                Some(_) if last || !complete => {
                    segment::read_index(fs, &self.dir, *base, true).map_err(io)?
                }
                Some(index) => Some(index),
                None => None,
            };
            let mut segment = Segment::new(*base);
            match index {
                Some(index) if index.segment.bytes > size => {
                    return Err(Error::damaged(
                        &path,
                        size,
                        "the file is shorter than when it was synced",
                    ));
                }
                Some(index) => {
                    segment = index.segment;
                    if last || !complete {
                        state.producers = index.producers;
                    }
                }
                None if at > 0 => self.load_producers(state, bases[at - 1])?,
                None => {}
            }
            let mut walk = Walk::new(file.clone(), segment.bytes, size, true);
            while let Some(header) = walk.next().map_err(|e| Error::io("read", &path, e))? {
                if header.base_offset != segment.end || header.last_offset_delta < 0 {
                    break;
                }
                segment.note(&header);
                segment.written_ms = now_ms;
                if header.producer_id != NO_PRODUCER {
                    state.producers.note(
                        &header,
                        header.base_offset,
                        header.max_timestamp.clamp(0, now_ms),
                    );
                }
            }
            let (end, bytes) = (segment.end, segment.bytes);
            state.segments.push(segment);
            let whole = bytes == size && bases.get(at + 1).is_none_or(|next| *next == end);
            if !whole {
                return self.cut(state, &bases[at..], bytes);
            }
        }
        Ok(())
    }

    fn load_producers(&self, state: &mut State, base: i64) -> Result<(), Error> {
        // A segment without index behind one with: the producers of that one are where the walk goes on from.
        let before = state
            .segments
            .last()
            .is_some_and(|segment| segment.base == base && segment.marks.is_none());
        if before {
            let index = segment::read_index(self.files.fs(), &self.dir, base, true);
            if let Some(index) = index.map_err(|e| Error::io("read", &self.dir, e))? {
                state.producers = index.producers;
            }
        }
        Ok(())
    }

    /// The good batches of `bases[0]` end at `bytes`, and something follows that does not belong there. A crash leaves
    /// that behind where nothing was synced later; anywhere else it is damage.
    fn cut(&self, state: &State, bases: &[i64], bytes: u64) -> Result<(), Error> {
        let fs = self.files.fs();
        let path = segment::log_path(&self.dir, bases[0]);
        for later in &bases[1..] {
            if segment::read_index(fs, &self.dir, *later, false)
                .map_err(|e| Error::io("read", &self.dir, e))?
                .is_some()
            {
                return Err(Error::damaged(
                    &path,
                    bytes,
                    "a record batch does not read back, yet later ones were synced",
                ));
            }
        }
        let file = self
            .files
            .get((self.key, bases[0]), || path.clone())
            .map_err(|e| Error::io("open", &path, e))?;
        let size = file.size().map_err(|e| Error::io("measure", &path, e))?;
        tracing::warn!(
            file = %path.display(), bytes = size.saturating_sub(bytes), later_segments = bases.len() - 1,
            end_offset = state.segments.last().map_or(0, |segment| segment.end),
            "cut what a crash left half written"
        );
        file.truncate(bytes)
            .map_err(|e| Error::io("cut", &path, e))?;
        for later in &bases[1..] {
            self.remove_files(*later)
                .map_err(|e| Error::io("remove from", &self.dir, e))?;
        }
        Ok(())
    }
}
