//! The log of the model server: frames that are durable once synced, a snapshot, and all that can befall a disk.

use std::collections::VecDeque;

use bytes::Bytes;

use super::rng::Rng;
use crate::group::record::Record;
use crate::group::types::Millis;
use crate::wire::records::{decode_batch, encode_batch};

/// Bytes of a batch before its first record.
const HEADER_BYTES: usize = 61;

/// One atomic append.
#[derive(Clone, Debug)]
struct Frame {
    position: u64,
    bytes: Bytes,
}

/// Why an append took nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// The disk and what is on it. It outlives the server.
#[derive(Debug, Default)]
pub(super) struct Disk {
    /// The position it is of, and its records in slices.
    snapshot: Option<(u64, Vec<Bytes>)>,
    frames: VecDeque<Frame>,
    last: u64,
    durable: u64,
    /// Up to where the sync that runs now will make it durable.
    syncing: Option<u64>,
    crash_count: u64,
    /// No room.
    pub(super) full: bool,
    /// The next append fails.
    pub(super) fails_next: bool,
}

impl Disk {
    /// Appends one batch; gives its position and bytes.
    pub(super) fn append(
        &mut self,
        records: &[Record],
        now: Millis,
    ) -> Result<(u64, Bytes), Refused> {
        if std::mem::take(&mut self.fails_next) {
            return Err(Refused);
        }
        let position = self.last + 1;
        let bytes = encode_batch(records, position as i64, now).map_err(|_| Refused)?;
        self.last = position;
        self.frames.push_back(Frame {
            position,
            bytes: bytes.clone(),
        });
        Ok((position, bytes))
    }

    /// Begins a sync if there is something to sync and none runs; tells up to where.
    pub(super) fn begin_sync(&mut self) -> Option<u64> {
        if self.syncing.is_some() || self.durable == self.last {
            return None;
        }
        self.syncing = Some(self.last);
        self.syncing
    }

    /// The running sync ends.
    pub(super) fn end_sync(&mut self, covers: u64) {
        self.syncing = None;
        self.durable = self.durable.max(covers);
    }

    pub(super) fn durable(&self) -> u64 {
        self.durable
    }

    pub(super) fn crash_count(&self) -> u64 {
        self.crash_count
    }

    pub(super) fn last(&self) -> u64 {
        self.last
    }

    pub(super) fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// A snapshot is whole and synced: what it covers may go.
    pub(super) fn keep_snapshot(&mut self, position: u64, slices: Vec<Bytes>) {
        self.snapshot = Some((position, slices));
        while self
            .frames
            .front()
            .is_some_and(|frame| frame.position <= position)
        {
            self.frames.pop_front();
        }
    }

    /// The server dies. What was not synced is lost from some point on, and the frame at that point may be torn.
    pub(super) fn crash(&mut self, rng: &mut Rng) {
        self.crash_count += 1;
        self.syncing = None;
        self.fails_next = false;
        // A frame that an earlier crash has torn, and nobody has read since.
        self.frames.retain(|frame| frame.position <= self.last);
        let unsynced = self.last - self.durable;
        let survivors = self.durable + rng.below(unsynced + 1);
        let torn = self
            .frames
            .iter()
            .find(|frame| frame.position == survivors + 1)
            .filter(|_| rng.chance(500))
            .map(|frame| tear(&frame.bytes, rng));
        while self
            .frames
            .back()
            .is_some_and(|frame| frame.position > survivors)
        {
            self.frames.pop_back();
        }
        self.last = survivors;
        if let Some(bytes) = torn {
            self.frames.push_back(Frame {
                position: survivors + 1,
                bytes,
            });
        }
    }

    /// Reads everything back; a torn tail is cut. Tells up to which position there is something.
    ///
    /// # Errors
    /// A sentence, if the bytes do not read as what was written.
    pub(super) fn load(&mut self, apply: &mut dyn FnMut(&Record)) -> Result<u64, String> {
        let mut last = 0;
        if let Some((position, slices)) = &self.snapshot {
            for slice in slices {
                let batch = decode_batch(slice).map_err(|e| format!("the snapshot: {e}"))?;
                batch.records.iter().for_each(&mut *apply);
            }
            last = *position;
        }
        let mut whole = 0;
        for frame in &self.frames {
            match decode_batch(&frame.bytes) {
                Ok(batch) if batch.base_offset == frame.position as i64 => {
                    batch.records.iter().for_each(&mut *apply);
                }
                _ if frame.position > self.durable && whole + 1 == self.frames.len() => break,
                Ok(_) => return Err(format!("frame {} names another position", frame.position)),
                Err(e) => return Err(format!("frame {}: {e}", frame.position)),
            }
            last = frame.position;
            whole += 1;
        }
        self.frames.truncate(whole);
        self.last = last;
        Ok(last)
    }

    /// Everything read back counts as durable: recovery syncs before it serves.
    pub(super) fn settle(&mut self) {
        self.durable = self.last;
    }

    /// The records of the log, oldest first, without the snapshot's cut: for replay in any order of keys.
    pub(super) fn records(&self) -> Result<Vec<Record>, String> {
        let mut records = Vec::new();
        let slices = self.snapshot.iter().flat_map(|(_, slices)| slices);
        for bytes in slices.chain(self.frames.iter().map(|frame| &frame.bytes)) {
            let batch = decode_batch(bytes).map_err(|e| e.to_string())?;
            records.extend(batch.records);
        }
        Ok(records)
    }
}

/// What is left of a frame whose write was cut off: a part, a part and zeros, or a flipped bit.
fn tear(bytes: &Bytes, rng: &mut Rng) -> Bytes {
    let mut torn = bytes.to_vec();
    // Mostly among the records, where there is something to lose.
    let at = if torn.len() > HEADER_BYTES && rng.chance(800) {
        HEADER_BYTES + rng.index(torn.len() - HEADER_BYTES)
    } else {
        rng.index(torn.len())
    };
    match rng.below(3) {
        0 => torn.truncate(at),
        1 => {
            // Zeros may stand there already; then nothing is torn. The last byte of a batch is zero, so spoil one.
            torn[at..].fill(0);
            if torn == bytes[..] {
                torn.truncate(at);
            }
        }
        _ => torn[at] ^= 1 << rng.below(8),
    }
    Bytes::from(torn)
}
