//! Record batches of any bytes, as recovery may find them on a disk.
//!
//! Holds: nothing panics, no count is believed, and no batch takes far more memory than it has bytes; what is read and
//! written again reads the same; a coordinator can be made from any records, goes on from there, and its snapshot tells
//! all that it knows.

use std::sync::Arc;

use bytes::BytesMut;
use convoke::group::types::{Millis, Topic, TopicId, Topics};
use convoke::group::{Actions, Coordinator, GroupConfig};
use convoke::wire::records::{decode_batch, encode_batch};

use crate::memory;

/// Where a batch has its length, its checksum, and what the checksum covers.
const LENGTH: std::ops::Range<usize> = 8..12;
const CHECKSUM: std::ops::Range<usize> = 17..21;
/// Memory that a batch may take while it is read: so much for each of its bytes, and so much in any case. A record of
/// seven bytes is some hundred in memory.
const BYTES_PER_BYTE: usize = 64;
const BYTES_ALWAYS: usize = 4 << 10;

fn coordinator() -> Coordinator {
    let mut topics = Topics::default();
    for (name, partitions) in [("t", 2), ("a", 1)] {
        let id = TopicId([name.as_bytes()[0]; 16]);
        topics.insert(name.into(), Topic { id, partitions });
    }
    Coordinator::new(GroupConfig::default(), Arc::new(topics), 7)
}

/// One input.
///
/// # Panics
/// That is how the target fails.
pub fn run(data: &[u8]) {
    let _ = decode_batch(data);
    // the same with a right length and checksum, or hardly any input gets past them
    if data.len() < CHECKSUM.end {
        return;
    }
    let mut mended = BytesMut::from(data);
    mended[LENGTH].copy_from_slice(&((data.len() - LENGTH.end) as u32).to_be_bytes());
    let checksum = crc32c::crc32c(&mended[CHECKSUM.end..]);
    mended[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    let allowance_bytes = BYTES_ALWAYS + mended.len() * BYTES_PER_BYTE;
    let watch = memory::watch();
    let read = decode_batch(&mended);
    watch.check("reading a batch", allowance_bytes);
    let Ok(batch) = read else { return };
    if let Ok(again) = encode_batch(&batch.records, batch.base_offset, batch.timestamp) {
        let read = decode_batch(&again).expect("what was written can be read");
        assert_eq!(read.records, batch.records);
    }

    let mut live = coordinator();
    let mut replayed = coordinator();
    for record in &batch.records {
        live.apply(record);
        replayed.apply(record);
    }
    let now = live.newest_timestamp().max(Millis(0));
    let mut actions = Actions::default();
    live.loaded(now, &mut actions);
    for _ in 0..8 {
        let Some(next) = live.poll_timeout() else {
            break;
        };
        live.handle_timeout(next, &mut actions);
    }
    live.close(&mut actions);
    for record in &actions.records {
        replayed.apply(record);
    }
    assert!(live.same_facts(&replayed), "live and replayed facts differ");
    let mut snapshot = coordinator();
    for record in live.snapshot() {
        snapshot.apply(&record);
    }
    assert!(
        live.same_facts(&snapshot),
        "a snapshot leaves something out"
    );
}
