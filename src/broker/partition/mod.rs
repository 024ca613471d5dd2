//! One partition: append, read, bounds, and the segments that hold them. Batches stay opaque bytes. Everything here
//! blocks for no longer than a write to or a read from the page cache, unless its doc says so.

mod load;

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use tokio::sync::Notify;
use uuid::Uuid;

use super::Bounds;
use super::batch::{HEADER_BYTES, Header, NO_PRODUCER, stored_header};
use super::config_keys::TopicConfig;
use super::files::Files;
use super::producers::{Producer, Producers, Verdict};
use super::segment::{self, Segment, Walk};

/// A read reaches this far beyond what was asked for, to find its first batch behind a known place.
const REACH_BYTES: usize = 16 << 10;

/// One partition of a topic.
#[derive(Debug)]
pub(super) struct Partition {
    files: Arc<Files>,
    dir: PathBuf,
    key: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Rising by base; the last one is written. Empty until something was appended.
    segments: Vec<Segment>,
    log_start: i64,
    end: i64,
    producers: Producers,
    watchers: Vec<Arc<Watcher>>,
    /// Records since the last sync, and when the first of them came.
    unsynced: u64,
    unsynced_since_ms: i64,
    /// A segment was begun whose name may not be on the disk yet.
    unsynced_names: bool,
    deleted: bool,
    /// A write could not be taken back, or a sync failed: nothing more is appended until a restart.
    failed: bool,
}

/// Somebody who waits for bytes in one or more partitions.
#[derive(Debug)]
pub(super) struct Watcher {
    missing: AtomicI64,
    notify: Notify,
}

impl Watcher {
    pub(super) fn new(missing: i64) -> Arc<Self> {
        Arc::new(Self {
            missing: AtomicI64::new(missing),
            notify: Notify::new(),
        })
    }

    /// Waits until the bytes are there or something else happened that must be looked at.
    pub(super) async fn wait(&self) {
        self.notify.notified().await;
    }

    fn add(&self, bytes: i64) -> bool {
        let done = self.missing.fetch_sub(bytes, Ordering::AcqRel) <= bytes;
        if done {
            self.notify.notify_one();
        }
        done
    }
}

/// What an append came to.
#[derive(Debug, PartialEq)]
pub(super) struct Appended {
    pub(super) base_offset: i64,
    /// The broker's stamp, or −1 if the producer's stands. For a batch sent again its stamp, whose ever, as Kafka.
    pub(super) append_time_ms: i64,
    pub(super) log_start: i64,
    /// What is left to do on a blocking thread.
    pub(super) chores: Chores,
}

/// Work that an append leaves behind.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Chores {
    /// A segment that was closed, with the producers as they were at its end.
    sealed: Option<Box<(Segment, Producers)>>,
    /// `flush.messages` is reached.
    pub(super) flush: bool,
}

impl Chores {
    pub(super) fn is_empty(&self) -> bool {
        self.sealed.is_none() && !self.flush
    }
}

/// Whole batches that were read.
#[derive(Debug)]
pub(super) struct Batches {
    pub(super) bounds: Bounds,
    pub(super) bytes: Bytes,
    /// Nothing lay behind them.
    pub(super) at_end: bool,
}

/// Where to read: a segment's base, its bytes, a place at or before the wanted batch, and whether it is the last.
#[derive(Clone, Copy, Debug)]
struct Place {
    base: i64,
    end: u64,
    at: Option<u64>,
    last: bool,
}

impl Partition {
    /// A partition without data. Nothing is created on the disk before the first append.
    pub(super) fn new(files: Arc<Files>, topic: Uuid, index: i32) -> Self {
        let dir = files.topic_dir(topic).join(index.to_string());
        let key = files.draw_key();
        Self {
            files,
            dir,
            key,
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of the state is complete before anything that could panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it reaches.
    pub(super) fn bounds(&self) -> Bounds {
        let state = self.state();
        Bounds {
            log_start: state.log_start,
            end: state.end,
            last_stable: state.end,
        }
    }

    /// The bytes its batches take.
    pub(super) fn size_bytes(&self) -> u64 {
        self.state()
            .segments
            .iter()
            .map(|segment| segment.bytes)
            .sum()
    }

    /// The idempotent producers, in order of id.
    pub(super) fn producers(&self) -> Vec<(i64, Producer)> {
        self.state()
            .producers
            .sorted()
            .into_iter()
            .map(|(id, producer)| (id, producer.clone()))
            .collect()
    }

    /// Appends one whole batch whose header and CRC were checked.
    ///
    /// # Errors
    /// Kafka's error; nothing is changed.
    pub(super) fn append(
        &self,
        header: &Header,
        batch: &[u8],
        config: &TopicConfig,
        now_ms: i64,
    ) -> Result<Appended, ResponseError> {
        let stamp = config.append_time.then_some(now_ms);
        let mut head = stored_header(batch, 0, stamp);
        let mut header = *header;
        if stamp.is_some() {
            header.max_timestamp = now_ms;
        }
        let mut state = self.state();
        if state.deleted {
            return Err(ResponseError::UnknownTopicOrPartition);
        }
        if header.producer_id != NO_PRODUCER {
            match state.producers.judge(&header) {
                Verdict::Next => {}
                Verdict::Duplicate(found) => {
                    return Ok(Appended {
                        base_offset: found.base_offset,
                        append_time_ms: found.timestamp,
                        log_start: state.log_start,
                        chores: Chores::default(),
                    });
                }
                Verdict::Gap => return Err(ResponseError::OutOfOrderSequenceNumber),
                Verdict::Fenced => return Err(ResponseError::InvalidProducerEpoch),
            }
        }
        let base_offset = state.end;
        let next = base_offset.checked_add(i64::from(header.last_offset_delta) + 1);
        if state.failed || next.is_none() {
            return Err(ResponseError::KafkaStorageError);
        }
        let storage = |error: io::Error, what: &str| {
            tracing::error!(folder = %self.dir.display(), %error, "cannot {what}; the producer is told to try again");
            ResponseError::KafkaStorageError
        };
        let mut chores = Chores::default();
        if must_roll(&state, &header, config) {
            chores.sealed = self
                .roll(&mut state)
                .map_err(|error| storage(error, "begin a segment"))?;
        }
        header.base_offset = base_offset;
        head[..8].copy_from_slice(&base_offset.to_be_bytes());
        let (base, at) = state
            .segments
            .last()
            .map_or((0, 0), |segment| (segment.base, segment.bytes));
        let file = self
            .file(base)
            .map_err(|error| storage(error, "open the segment"))?;
        if let Err(error) = file.write_at(&[&head, &batch[HEADER_BYTES..]], at) {
            // What was written in part must not stand in front of the next batch.
            state.failed = file.truncate(at).is_err();
            return Err(storage(error, "append"));
        }
        let state = &mut *state;
        if let Some(segment) = state.segments.last_mut() {
            segment.note(&header);
            segment.written_ms = now_ms;
            state.end = segment.end;
        }
        if header.producer_id != NO_PRODUCER {
            state.producers.note(&header, base_offset, now_ms);
        }
        if state.unsynced == 0 {
            state.unsynced_since_ms = now_ms;
        }
        state.unsynced = state
            .unsynced
            .saturating_add(header.count.max(0).unsigned_abs().into());
        chores.flush = state.unsynced >= config.flush_messages;
        let bytes = i64::try_from(header.bytes).unwrap_or(i64::MAX);
        state.watchers.retain(|watcher| !watcher.add(bytes));
        Ok(Appended {
            base_offset,
            append_time_ms: stamp.unwrap_or(-1),
            log_start: state.log_start,
            chores,
        })
    }

    /// Begins a new segment at the end; gives the one it closes.
    fn roll(&self, state: &mut State) -> io::Result<Option<Box<(Segment, Producers)>>> {
        if state.segments.is_empty() {
            self.files.fs().create_dirs(&self.dir)?;
        }
        self.files.create(
            (self.key, state.end),
            &segment::log_path(&self.dir, state.end),
        )?;
        let sealed = state
            .segments
            .last()
            .map(|last| Box::new((last.clone(), state.producers.clone())));
        state.segments.push(Segment::new(state.end));
        state.unsynced_names = true;
        Ok(sealed)
    }

    /// Makes the names of new segments durable, and those of the folders above them.
    fn sync_names(&self) -> io::Result<()> {
        if !std::mem::take(&mut self.state().unsynced_names) {
            return Ok(());
        }
        // The partition's folder, the topic's and the one of all topics.
        let mut folders = self.dir.ancestors().take(3);
        let synced = folders.try_for_each(|folder| self.files.fs().sync_dir(folder));
        if synced.is_err() {
            self.state().unsynced_names = true;
        }
        synced
    }

    /// Does what an append left to do; `false` if a sync was asked for and failed. Blocks.
    pub(super) fn work(&self, chores: Chores) -> bool {
        if let Some(sealed) = chores.sealed {
            let (segment, producers) = *sealed;
            if let Err(error) = self.seal(&segment, &producers)
                && !self.state().deleted
            {
                tracing::warn!(folder = %self.dir.display(), %error, "cannot write a segment's index; the next start reads the segment instead");
            }
        }
        !chores.flush || self.flush()
    }

    /// Syncs a segment and writes the file beside it.
    fn seal(&self, segment: &Segment, producers: &Producers) -> io::Result<()> {
        self.file(segment.base)?.sync_data()?;
        self.sync_names()?;
        segment::write_index(self.files.fs(), &self.dir, segment, producers)?;
        let kept = {
            let mut state = self.state();
            let kept = state
                .segments
                .iter_mut()
                .find(|kept| kept.base == segment.base);
            kept.map(|kept| kept.indexed_bytes = segment.bytes)
                .is_some()
        };
        if !kept {
            // Retention or a deletion was faster.
            return self.remove_files(segment.base);
        }
        Ok(())
    }

    /// Syncs what was appended since the last sync; `false` if that failed, and then nothing more is appended. Blocks.
    pub(super) fn flush(&self) -> bool {
        let (base, records) = {
            let state = self.state();
            match state.segments.last() {
                Some(segment) if state.unsynced > 0 => (segment.base, state.unsynced),
                _ => return !state.failed,
            }
        };
        let synced = self.file(base).and_then(|file| file.sync_data());
        let synced = synced.and_then(|()| self.sync_names());
        let mut state = self.state();
        match synced {
            Ok(()) => {
                state.unsynced -= records.min(state.unsynced);
                true
            }
            Err(_) if state.deleted => true,
            Err(error) => {
                state.failed = true;
                tracing::error!(folder = %self.dir.display(), %error, "a sync failed: what was written since the last one may be lost; the partition takes nothing more until a restart");
                false
            }
        }
    }

    /// Whether the oldest unsynced record is as old as `flush.ms`.
    pub(super) fn flush_is_due(&self, config: &TopicConfig, now_ms: i64) -> bool {
        let state = self.state();
        state.unsynced > 0 && now_ms.saturating_sub(state.unsynced_since_ms) >= config.flush_ms
    }

    /// Makes everything durable and notes it, so that the next open reads little. Blocks.
    pub(super) fn close(&self) -> io::Result<()> {
        let (segment, producers) = {
            let state = self.state();
            match state.segments.last() {
                Some(last) if last.indexed_bytes != last.bytes && !state.deleted => {
                    (last.clone(), state.producers.clone())
                }
                _ => return Ok(()),
            }
        };
        self.seal(&segment, &producers)
    }

    /// Whether a read of `offset` may have to go to the disk: all but the last segment may have left the page cache.
    pub(super) fn is_cold(&self, offset: i64) -> bool {
        self.state()
            .segments
            .last()
            .is_some_and(|segment| offset < segment.base)
    }

    /// Reads whole batches from the one that holds `offset` on: at most `bytes_max`, but with `at_least_one` one batch
    /// whatever its size. Empty at the end.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR, UNKNOWN_TOPIC_OR_PARTITION once deleted.
    pub(super) fn read(
        &self,
        offset: i64,
        bytes_max: usize,
        at_least_one: bool,
    ) -> Result<Batches, ResponseError> {
        let (bounds, place) = {
            let state = self.state();
            if state.deleted {
                return Err(ResponseError::UnknownTopicOrPartition);
            }
            if offset < state.log_start || offset > state.end {
                return Err(ResponseError::OffsetOutOfRange);
            }
            let bounds = Bounds {
                log_start: state.log_start,
                end: state.end,
                last_stable: state.end,
            };
            let at_end = offset == state.end;
            if at_end || (bytes_max == 0 && !at_least_one) {
                return Ok(Batches {
                    bounds,
                    bytes: Bytes::new(),
                    at_end,
                });
            }
            let behind = state
                .segments
                .partition_point(|segment| segment.base <= offset);
            let Some(segment) = behind.checked_sub(1).map(|at| &state.segments[at]) else {
                return Err(ResponseError::OffsetOutOfRange);
            };
            let last = behind == state.segments.len();
            (
                bounds,
                Place {
                    base: segment.base,
                    end: segment.bytes,
                    at: segment.place_of(offset),
                    last,
                },
            )
        };
        let read = self.read_segment(place, offset, bytes_max, at_least_one);
        let (bytes, at_end) = read.map_err(|error| self.read_failed(&error))?;
        Ok(Batches {
            bounds,
            bytes,
            at_end,
        })
    }

    fn read_failed(&self, error: &io::Error) -> ResponseError {
        let state = self.state();
        match error.kind() {
            io::ErrorKind::NotFound if state.deleted => ResponseError::UnknownTopicOrPartition,
            // Retention was faster.
            io::ErrorKind::NotFound => ResponseError::OffsetOutOfRange,
            _ => {
                tracing::error!(folder = %self.dir.display(), %error, "cannot read; the consumer is told to try again");
                ResponseError::KafkaStorageError
            }
        }
    }

    fn read_segment(
        &self,
        place: Place,
        offset: i64,
        bytes_max: usize,
        at_least_one: bool,
    ) -> io::Result<(Bytes, bool)> {
        let Place { base, end, .. } = place;
        let file = self.file(base)?;
        let mut at = match place.at {
            Some(at) => at,
            None => self.load_marks(base, |segment| segment.place_of(offset))?,
        };
        let mut want = bytes_max.saturating_add(REACH_BYTES);
        loop {
            let left = usize::try_from(end.saturating_sub(at)).unwrap_or(usize::MAX);
            let buffer = file.read(want.min(left), at)?;
            let header_at = |from: usize| Header::read(buffer.get(from..).unwrap_or_default()).ok();
            let mut from = 0;
            let mut header = header_at(from);
            while let Some(before) = header.filter(|header| header.last_offset() < offset) {
                from = from.saturating_add(before.bytes);
                header = header_at(from);
            }
            let bad = |what: &str| {
                let place = at.saturating_add(from as u64);
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("{what} at byte {place} of segment {base}"),
                )
            };
            let Some(header) = header else {
                if from == 0 || from >= left {
                    return Err(bad("no batch"));
                }
                // What was stepped over reaches beyond what was read.
                at += from as u64;
                continue;
            };
            if header.bytes > bytes_max && !at_least_one {
                return Ok((Bytes::new(), false));
            }
            if header.bytes > left - from {
                return Err(bad("half a batch"));
            }
            if from + header.bytes > buffer.len() {
                if from == 0 && want >= header.bytes {
                    return Err(bad("a file too short"));
                }
                at += from as u64;
                want = header.bytes.max(bytes_max);
                continue;
            }
            let mut to = from + header.bytes;
            while let Some(next) = header_at(to)
                && to + next.bytes <= buffer.len().min(from.saturating_add(bytes_max))
            {
                to += next.bytes;
            }
            let at_end = place.last && at + to as u64 == end;
            return Ok((Bytes::from(buffer).slice(from..to), at_end));
        }
    }

    /// Reads a closed segment's marks, keeps them until the next round of retention, and looks something up in them.
    fn load_marks(&self, base: i64, look: impl FnOnce(&Segment) -> Option<u64>) -> io::Result<u64> {
        let loaded = match segment::read_index(self.files.fs(), &self.dir, base, true)? {
            Some(index) => index.segment,
            None => self.walk_marks(base)?,
        };
        let place = look(&loaded).unwrap_or(0);
        let mut state = self.state();
        if let Some(segment) = state
            .segments
            .iter_mut()
            .find(|segment| segment.base == base && segment.marks.is_none())
        {
            segment.marks = loaded.marks;
        }
        Ok(place)
    }

    fn walk_marks(&self, base: i64) -> io::Result<Segment> {
        let file = self.file(base)?;
        let mut segment = Segment::new(base);
        let mut walk = Walk::new(file.clone(), 0, file.size()?, false);
        while let Some(header) = walk.next()? {
            segment.note(&header);
        }
        Ok(segment)
    }

    fn file(&self, base: i64) -> io::Result<Arc<dyn crate::log::fs::FsFile>> {
        self.files
            .get((self.key, base), || segment::log_path(&self.dir, base))
    }

    fn remove_files(&self, base: i64) -> io::Result<()> {
        self.files.forget((self.key, base));
        segment::remove(self.files.fs(), &self.dir, base)
    }

    /// The first batch from `log_start` on that may hold a record of `timestamp` or later, behind `after` if given.
    /// Blocks.
    pub(super) fn batch_at_time(
        &self,
        timestamp: i64,
        after: Option<i64>,
    ) -> io::Result<Option<(Header, Bytes)>> {
        let (start, segments) = {
            let state = self.state();
            let from = after.map_or(state.log_start, |after| after.max(state.log_start));
            let late =
                |segment: &&Segment| segment.max_timestamp >= timestamp && segment.end > from;
            let places = state.segments.iter().filter(late);
            (
                from,
                places
                    .map(|s| {
                        (
                            s.base,
                            s.bytes,
                            s.place_of_time(timestamp),
                            s.place_of(from),
                        )
                    })
                    .collect::<Vec<_>>(),
            )
        };
        for (base, bytes, by_time, by_offset) in segments {
            let by_time = match by_time {
                Some(place) => place,
                None => self.load_marks(base, |segment| segment.place_of_time(timestamp))?,
            };
            let mut walk = Walk::new(
                self.file(base)?,
                by_time.max(by_offset.unwrap_or(0)),
                bytes,
                false,
            );
            loop {
                let at = walk.at();
                let Some(header) = walk.next()? else { break };
                if header.last_offset() >= start && header.max_timestamp >= timestamp {
                    return Ok(Some((header, self.batch(base, at, header.bytes)?)));
                }
            }
        }
        Ok(None)
    }

    /// The largest timestamp from `log_start` on; −1 without any. Blocks where a segment's start was deleted.
    pub(super) fn max_timestamp(&self) -> io::Result<i64> {
        let (start, segments) = {
            let state = self.state();
            let kept = state
                .segments
                .iter()
                .filter(|segment| segment.end > state.log_start);
            let place = |s: &Segment| {
                (
                    s.base,
                    s.bytes,
                    s.max_timestamp,
                    s.place_of(state.log_start),
                )
            };
            (state.log_start, kept.map(place).collect::<Vec<_>>())
        };
        let mut max = -1;
        for (base, bytes, max_timestamp, at) in segments {
            if base >= start {
                max = max.max(max_timestamp);
                continue;
            }
            let mut walk = Walk::new(self.file(base)?, at.unwrap_or(0), bytes, false);
            while let Some(header) = walk.next()? {
                if header.last_offset() >= start {
                    max = max.max(header.max_timestamp);
                }
            }
        }
        Ok(max)
    }

    fn batch(&self, base: i64, at: u64, bytes: usize) -> io::Result<Bytes> {
        let buffer = self.file(base)?.read(bytes, at)?;
        if buffer.len() < bytes {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(buffer.into())
    }

    /// Lets `watcher` know of bytes appended from now on. `true`: do not wait, the end is no longer `seen_end`.
    pub(super) fn watch(&self, watcher: &Arc<Watcher>, seen_end: i64) -> bool {
        let mut state = self.state();
        if state.deleted || state.end != seen_end {
            return true;
        }
        state.watchers.push(Arc::clone(watcher));
        false
    }

    /// Ends [`Self::watch`].
    pub(super) fn unwatch(&self, watcher: &Arc<Watcher>) {
        self.state()
            .watchers
            .retain(|other| !Arc::ptr_eq(other, watcher));
    }

    /// Moves the start to `offset` (−1: to the end) if it lies ahead; gives the start.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE.
    pub(super) fn check_start(&self, offset: i64) -> Result<i64, ResponseError> {
        let state = self.state();
        let wanted = if offset == -1 { state.end } else { offset };
        if wanted < 0 || wanted > state.end {
            return Err(ResponseError::OffsetOutOfRange);
        }
        Ok(wanted.max(state.log_start))
    }

    /// Moves the start to `offset`, which is durable, and drops segments that end before it. Blocks.
    pub(super) fn set_start(&self, offset: i64) -> i64 {
        let (start, gone) = {
            let mut state = self.state();
            state.log_start = state.log_start.max(offset.min(state.end));
            let start = state.log_start;
            let keep_from = state.segments.len().saturating_sub(1);
            let count = state.segments[..keep_from].partition_point(|segment| segment.end <= start);
            (
                start,
                state
                    .segments
                    .drain(..count)
                    .map(|segment| segment.base)
                    .collect::<Vec<_>>(),
            )
        };
        self.remove_all(&gone);
        start
    }

    /// Drops what `retention.ms` and `retention.bytes` no longer keep, forgets silent producers and the marks of closed
    /// segments. Gives the number of segments dropped. Blocks.
    pub(super) fn retain(
        &self,
        config: &TopicConfig,
        now_ms: i64,
        producers_before_ms: i64,
    ) -> io::Result<usize> {
        let (gone, sealed) = {
            let mut state = self.state();
            state.producers.expire(producers_before_ms);
            if state.deleted || state.segments.is_empty() {
                return Ok(0);
            }
            let count = if config.deletes {
                expired(&state, config, now_ms)
            } else {
                0
            };
            let mut sealed = None;
            if count == state.segments.len() {
                // Everything goes, and the end must not: a new segment keeps it.
                sealed = self.roll(&mut state)?;
            }
            let gone: Vec<i64> = state
                .segments
                .drain(..count)
                .map(|segment| segment.base)
                .collect();
            let first = state
                .segments
                .first()
                .map_or(state.end, |segment| segment.base);
            state.log_start = state.log_start.max(first);
            let closed = state.segments.len().saturating_sub(1);
            for segment in &mut state.segments[..closed] {
                if segment.indexed_bytes == segment.bytes {
                    segment.marks = None;
                }
            }
            (gone, sealed)
        };
        if sealed.is_some() {
            self.files.fs().sync_dir(&self.dir)?;
        }
        self.remove_all(&gone);
        Ok(gone.len())
    }

    fn remove_all(&self, bases: &[i64]) {
        for base in bases {
            if let Err(error) = self.remove_files(*base) {
                tracing::warn!(folder = %self.dir.display(), base, %error, "cannot remove an old segment; the next start tries again");
            }
        }
    }

    /// Marks it deleted, wakes whoever waits, and lets its handles go.
    pub(super) fn delete(&self) {
        let mut state = self.state();
        state.deleted = true;
        for watcher in state.watchers.drain(..) {
            watcher.notify.notify_one();
        }
        for segment in std::mem::take(&mut state.segments) {
            self.files.forget((self.key, segment.base));
        }
    }
}

fn must_roll(state: &State, header: &Header, config: &TopicConfig) -> bool {
    let Some(segment) = state.segments.last() else {
        return true;
    };
    if segment.bytes == 0 {
        return false;
    }
    let full = segment.bytes + header.bytes as u64 > config.segment_bytes;
    // By the records' own time, as Kafka: replayed old data ages as it did when it was new.
    let old = segment.first_timestamp >= 0
        && header.max_timestamp.saturating_sub(segment.first_timestamp) > config.segment_ms;
    full || old
}

/// How many segments, the oldest first, are no longer kept.
fn expired(state: &State, config: &TopicConfig, now_ms: i64) -> usize {
    let mut by_time = 0;
    if config.retention_ms >= 0 {
        let old = |segment: &&Segment| {
            // Records without a timestamp are as old as their last write.
            let newest = if segment.max_timestamp >= 0 {
                segment.max_timestamp
            } else {
                segment.written_ms
            };
            segment.bytes > 0 && now_ms.saturating_sub(newest) > config.retention_ms
        };
        by_time = state.segments.iter().take_while(old).count();
    }
    let mut by_size = 0;
    if config.retention_bytes >= 0 {
        let total: u64 = state.segments.iter().map(|segment| segment.bytes).sum();
        let mut excess = total.saturating_sub(config.retention_bytes.unsigned_abs());
        for segment in &state.segments {
            if segment.bytes == 0 || segment.bytes > excess {
                break;
            }
            excess -= segment.bytes;
            by_size += 1;
        }
    }
    let by_start = state
        .segments
        .iter()
        .take(state.segments.len().saturating_sub(1));
    let by_start = by_start
        .take_while(|segment| segment.end <= state.log_start)
        .count();
    by_time.max(by_size).max(by_start)
}

#[cfg(test)]
mod tests;
