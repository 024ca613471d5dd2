//! Record batches of any bytes, as recovery may find them on a disk.
//!
//! Holds: nothing panics and no count is believed; what is read and written again reads the same; a coordinator can be
//! made from any records, and goes on from there.
#![no_main]

use std::sync::Arc;

use bytes::BytesMut;
use convoke::group::types::{Millis, Topics};
use convoke::group::{Actions, Coordinator, GroupConfig};
use convoke::wire::records::{decode_batch, encode_batch};
use libfuzzer_sys::fuzz_target;

/// Where a batch has its length, its checksum, and what the checksum covers.
const LENGTH: std::ops::Range<usize> = 8..12;
const CHECKSUM: std::ops::Range<usize> = 17..21;

fuzz_target!(|data: &[u8]| {
    let _ = decode_batch(data);
    // the same with a right length and checksum, or hardly any input gets past them
    if data.len() < CHECKSUM.end {
        return;
    }
    let mut mended = BytesMut::from(data);
    mended[LENGTH].copy_from_slice(&((data.len() - LENGTH.end) as u32).to_be_bytes());
    let checksum = crc32c(&mended[CHECKSUM.end..]);
    mended[CHECKSUM].copy_from_slice(&checksum.to_be_bytes());
    let Ok(batch) = decode_batch(&mended) else { return };
    let Ok(again) = encode_batch(&batch.records, batch.base_offset, batch.timestamp) else { return };
    let read = decode_batch(&again).expect("what was written can be read");
    assert_eq!(read.records, batch.records);

    let mut coordinator = Coordinator::new(GroupConfig::default(), Arc::new(Topics::default()), 7);
    for record in &batch.records {
        coordinator.apply(record);
    }
    let now = coordinator.newest_timestamp().max(Millis(0));
    let mut actions = Actions::default();
    coordinator.loaded(now, &mut actions);
    for _ in 0..8 {
        let Some(next) = coordinator.poll_timeout() else { break };
        coordinator.handle_timeout(next, &mut actions);
    }
});

/// CRC-32C, bit by bit: inputs are short.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0u32;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
        }
    }
    !crc
}
