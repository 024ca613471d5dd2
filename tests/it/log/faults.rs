//! Failing syncs, full disks, flipped bits, frames of every size, and who is told of what when.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use convoke::log::fault_fs::{FaultFs, Survive};
use convoke::log::fs::{Fs, Open};
use convoke::log::{Error, GroupLog, LogOptions, Position, Progress, Recovery, ShardLog, SyncMode};

use super::{
    DIR, KEYS, PARTITIONS, State, all, apply, folder, frame, open, open_with, payload, place, run,
    runtime, small, snapshot, state_after, wait_for,
};

fn group_file(fs: &FaultFs, suffix: &str) -> PathBuf {
    let dir = Path::new(DIR).join("group");
    let names = fs.list(&dir).unwrap();
    dir.join(names.iter().find(|name| name.ends_with(suffix)).unwrap())
}

/// Where a payload of `frame(key, n, ..)` lies in the file.
fn find(fs: &FaultFs, path: &Path, key: u64, n: u64) -> u64 {
    let wanted = [key.to_le_bytes(), n.to_le_bytes()].concat();
    fs.bytes(path)
        .unwrap()
        .windows(16)
        .position(|bytes| bytes == wanted)
        .unwrap() as u64
}

/// Appends to one key and waits until it is durable.
fn append(shard: &mut ShardLog, n: u64, len: usize) -> Result<(), Error> {
    let position = shard.append(0, frame(0, n, len))?;
    runtime().block_on(wait_for(shard, position))
}

#[test]
fn nothing_is_durable_before_its_sync_returns() {
    let fs = FaultFs::new();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    fs.hold_syncs(true);
    let first = shard.append(0, payload(2)).unwrap();
    fs.wait_for_held_sync();
    assert_eq!(shard.durable(), Position::ZERO);
    fs.hold_syncs(false);
    runtime().block_on(wait_for(&mut shard, first)).unwrap();
}

#[test]
fn what_gathers_during_a_sync_shares_the_next() {
    let fs = FaultFs::new();
    let (log, _) = open_with(&fs, LogOptions::default()).unwrap();
    let mut shard = all(&log);
    append(&mut shard, 1, 100).unwrap();
    let before = fs.sync_count();
    fs.hold_syncs(true);
    shard.append(0, payload(2)).unwrap();
    fs.wait_for_held_sync();
    let last = (3..=100)
        .map(|n| shard.append(0, payload(n)).unwrap())
        .last()
        .unwrap();
    fs.hold_syncs(false);
    runtime().block_on(wait_for(&mut shard, last)).unwrap();
    assert_eq!(fs.sync_count() - before, 2);
}

#[test]
fn a_shard_without_a_frame_in_the_batch_sleeps_on() {
    let fs = FaultFs::new();
    let (log, _) = open(&fs).unwrap();
    let (mut writes, mut sleeps) = (log.shard([0]), log.shard([1]));
    append(&mut writes, 1, 100).unwrap();
    let sleeping = runtime().block_on(async {
        tokio::time::timeout(Duration::ZERO, sleeps.changed())
            .await
            .is_err()
    });
    assert!(sleeping);
}

#[test]
fn a_failed_sync_ends_the_log_and_tells_everyone() {
    let fs = FaultFs::recording();
    let (log, mut state) = open(&fs).unwrap();
    run(&fs, &log, &mut state, 1..=6);
    let (mut shard, mut other) = (log.shard([0]), log.shard([1]));
    fs.fail_syncs_after(Some(0));
    shard.append(0, payload(8)).unwrap();
    runtime().block_on(async {
        let reason = log.failed().await.to_string();
        assert!(
            reason.contains("cannot sync") && reason.contains("injected"),
            "{reason}"
        );
        for error in [
            shard.changed().await.unwrap_err(),
            other.changed().await.unwrap_err(),
        ] {
            assert!(matches!(error, Error::Failed { .. }), "{error}");
        }
    });
    assert!(matches!(
        shard.append(0, payload(10)),
        Err(Error::Failed { .. })
    ));
    assert!(matches!(other.reserve(10), Err(Error::Failed { .. })));
    assert!(log.close().is_err());
    drop((log, shard, other));
    fs.fail_syncs_after(None);
    let (_, state) = open(&fs.after_cut(fs.op_count(), Survive::Everything)).unwrap();
    assert_eq!(state, state_after(6), "a failed sync acknowledges nothing");
}

#[test]
fn a_failed_write_ends_the_log() {
    let fs = FaultFs::new();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    append(&mut shard, 1, 100).unwrap();
    fs.fail_writes_after(Some(0));
    let error = append(&mut shard, 2, 100).unwrap_err();
    assert!(error.to_string().contains("cannot write"), "{error}");
}

#[test]
fn a_panic_of_the_thread_that_writes_is_a_failure_of_the_log() {
    let fs = FaultFs::new();
    let options = LogOptions {
        on_sync: Some(Arc::new(|sample| {
            assert_eq!(sample.frames, 0, "a faulty listener")
        })),
        ..small()
    };
    let (log, _) = open_with(&fs, options).unwrap();
    let mut shard = all(&log);
    shard.append(0, payload(2)).unwrap();
    let reason = runtime().block_on(log.failed()).to_string();
    assert!(reason.contains("panicked"), "{reason}");
    assert!(matches!(shard.reserve(10), Err(Error::Failed { .. })));
    assert!(matches!(log.close(), Err(Error::Failed { .. })));
}

/// Reserves and appends until the disk is full; gives the last number that was appended.
fn fill(shard: &mut ShardLog, from: u64) -> u64 {
    for n in from.. {
        match shard.reserve(200) {
            Ok(()) => append(shard, n, 200).unwrap(),
            Err(Error::NoRoom { .. }) => return n - 1,
            Err(error) => panic!("{error}"),
        }
    }
    unreachable!()
}

async fn until_room(shard: &mut ShardLog) {
    while let Err(error) = shard.reserve(200) {
        assert!(matches!(error, Error::NoRoom { .. }), "{error}");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn a_full_disk_is_no_failure_and_heals() {
    let fs = FaultFs::new();
    let options = LogOptions {
        retry: Duration::from_millis(1),
        snapshot_bytes_min: 1 << 30,
        ..small()
    };
    let (log, _) = open_with(&fs, options.clone()).unwrap();
    let mut shard = all(&log);
    append(&mut shard, 1, 200).unwrap();
    fs.set_capacity(Some(20 << 10));
    let last = fill(&mut shard, 2);
    assert!(last > 20, "{last}");
    // Again, for all the time it is full, and for what others had reserved nothing changes.
    assert!(matches!(shard.reserve(200), Err(Error::NoRoom { .. })));
    fs.set_capacity(None);
    runtime().block_on(until_room(&mut shard));
    append(&mut shard, last + 1, 200).unwrap();
    // And full at the start: what is there can be read.
    fs.set_capacity(Some(fs.used_bytes()));
    log.close().unwrap();
    drop((shard, log));
    let (log, state) = open_with(&fs, options).unwrap();
    assert_eq!(state[&(0, 0)], last + 1);
    let mut shard = all(&log);
    fill(&mut shard, last + 2);
    fs.set_capacity(None);
    runtime().block_on(until_room(&mut shard));
}

#[test]
fn what_was_reserved_can_be_appended_on_a_full_disk() {
    let fs = FaultFs::new();
    let options = LogOptions {
        retry: Duration::from_millis(1),
        snapshot_bytes_min: 1 << 30,
        ..small()
    };
    let (log, _) = open_with(&fs, options).unwrap();
    let (mut holds, mut fills) = (log.shard([0]), log.shard([1]));
    holds.reserve(3000).unwrap();
    fs.set_capacity(Some(fs.used_bytes()));
    fill(&mut fills, 1);
    append(&mut holds, 1, 3000).unwrap();
    // A shard that goes gives its room back.
    fs.set_capacity(None);
    runtime().block_on(until_room(&mut holds));
    drop(holds);
    fs.set_capacity(Some(fs.used_bytes()));
    fill(&mut fills, 1);
}

#[test]
fn a_snapshot_on_a_full_disk_is_put_off() {
    let fs = FaultFs::recording();
    let options = LogOptions {
        retry: Duration::from_millis(1),
        ..small()
    };
    let (log, _) = open_with(&fs, options.clone()).unwrap();
    let mut shard = all(&log);
    let mut state = State::new();
    for n in (2..80).step_by(2) {
        append_key(&mut shard, &mut state, n);
    }
    fs.set_capacity(Some(fs.used_bytes()));
    assert_eq!(shard.wants_snapshot(), Some(0));
    runtime().block_on(snapshot(&mut shard, &state, &log));
    assert_eq!(
        (
            log.stats().snapshot_count,
            log.stats().snapshot_failed_count
        ),
        (0, 1)
    );
    assert!(
        fs.list(&Path::new(DIR).join("group"))
            .unwrap()
            .iter()
            .all(|name| !name.ends_with(".tmp"))
    );
    fs.set_capacity(None);
    let segments = log.stats().segment_count;
    runtime().block_on(async {
        while log.stats().snapshot_count == 0 {
            snapshot(&mut shard, &state, &log).await;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        while log.stats().segment_count == segments {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    });
    drop((shard, log));
    assert_eq!(open_with(&fs, options).unwrap().1, state);
}

fn append_key(shard: &mut ShardLog, state: &mut State, n: u64) {
    let key = n % KEYS;
    let position = shard.append(0, frame(key, n, 200)).unwrap();
    runtime().block_on(wait_for(shard, position)).unwrap();
    state.insert((0, key), n);
}

#[test]
fn a_flipped_bit_in_the_middle_refuses_to_open() {
    for mask in [1, 0x80] {
        // In the payload, and in each field of the header in front of it.
        for back in [0, 1, 9, 17, 25, 29] {
            let fs = FaultFs::recording();
            let (log, _) = open(&fs).unwrap();
            let mut shard = all(&log);
            (1..=3).for_each(|n| append(&mut shard, n, 60).unwrap());
            let (path, cut) = (group_file(&fs, ".seg"), fs.op_count());
            let after = fs.after_cut(cut, Survive::Nothing);
            let at = find(&after, &path, 0, 2) - back;
            assert!(after.flip(&path, at, mask));
            let error = open(&after).map(|_| ()).unwrap_err();
            let Error::Damaged {
                path: place,
                offset,
                ..
            } = &error
            else {
                panic!("{error}")
            };
            assert_eq!(*place, path);
            assert!(at - *offset < 100, "the place is named: {offset} for {at}");
            assert!(
                error.to_string().contains("restore the data folder"),
                "{error}"
            );
        }
    }
}

#[test]
fn a_flipped_bit_in_the_last_batch_before_a_crash_is_a_torn_end() {
    let fs = FaultFs::recording();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    (1..=3).for_each(|n| append(&mut shard, n, 60).unwrap());
    let after = fs.after_cut(fs.op_count(), Survive::Nothing);
    let path = group_file(&after, ".seg");
    assert!(after.flip(&path, find(&after, &path, 0, 3), 1));
    let (_, state) = open(&after).unwrap();
    assert_eq!(state[&(0, 0)], 2);
}

#[test]
fn after_a_clean_stop_every_flipped_bit_is_damage() {
    let fs = FaultFs::new();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    (1..=3).for_each(|n| append(&mut shard, n, 60).unwrap());
    log.close().unwrap();
    let path = group_file(&fs, ".seg");
    assert!(fs.flip(&path, find(&fs, &path, 0, 3), 1));
    assert!(matches!(open(&fs), Err(Error::Damaged { .. })));
    assert!(
        fs.flip(&path, find(&fs, &path, 0, 2), 0),
        "nothing was touched by the refusal"
    );
}

#[test]
fn a_damaged_or_missing_file_refuses_to_open() {
    let fs = FaultFs::recording();
    let (log, mut state) = open(&fs).unwrap();
    run(&fs, &log, &mut state, 1..=120);
    let mut shard = all(&log);
    (121..200).for_each(|n| append(&mut shard, n, 200).unwrap());
    log.close().unwrap();
    let dir = Path::new(DIR).join("group");
    let names = fs.list(&dir).unwrap();
    let (segments, snapshots): (Vec<_>, Vec<_>) = names
        .iter()
        .filter(|name| !name.starts_with("spare"))
        .partition(|name| name.ends_with(".seg"));
    assert!(snapshots.len() > 1, "{names:?}");
    for name in segments.iter().chain(&snapshots) {
        for at in [20, 70, 130] {
            let fs = fs.after_cut(fs.op_count(), Survive::Nothing);
            assert!(fs.flip(&dir.join(name), at, 4));
            let error = open(&fs).map(|_| ()).unwrap_err().to_string();
            assert!(error.contains(name.as_str()), "{error}");
        }
    }
    assert!(segments.len() > 2, "{names:?}");
    let missing = segments[1];
    fs.remove(&dir.join(missing)).unwrap();
    assert!(
        matches!(open(&fs), Err(Error::Damaged { .. })),
        "{missing} is missing"
    );
}

/// Segments and snapshots of a later version: what follows their header is not for us to read or to mend.
#[test]
fn a_file_of_a_newer_format_refuses_to_open() {
    let written = FaultFs::recording();
    let (log, mut state) = open(&written).unwrap();
    run(&written, &log, &mut state, 1..=120);
    log.close().unwrap();
    for suffix in [".seg", ".snap"] {
        let fs = written.after_cut(written.op_count(), Survive::Everything);
        let path = group_file(&fs, suffix);
        let mut header = fs.bytes(&path).unwrap()[..64].to_vec();
        header[8..12].copy_from_slice(&9_u32.to_le_bytes());
        let sum = crc32c::crc32c_append(crc32c::crc32c(&header[8..12]), &header[16..]);
        header[12..16].copy_from_slice(&sum.to_le_bytes());
        let file = fs.open(&path, Open::Write).unwrap();
        file.write_at(&[&header], 0).unwrap();
        let error = open(&fs).map(|_| ()).unwrap_err();
        assert!(
            matches!(&error, Error::Newer { path: told, found: 9, .. } if *told == path),
            "{error}"
        );
    }
}

/// Whatever one byte changes into after a clean stop: it is noticed, or it was one that nobody reads.
#[test]
fn no_changed_byte_changes_what_comes_back() {
    let fs = FaultFs::recording();
    let (log, mut state) = open(&fs).unwrap();
    run(&fs, &log, &mut state, 1..=60);
    log.close().unwrap();
    let dir = Path::new(DIR).join("group");
    let cut = fs.op_count();
    let mut noticed = 0;
    for name in fs.list(&dir).unwrap() {
        let path = dir.join(&name);
        for at in (0..fs.bytes(&path).unwrap().len() as u64).step_by(37) {
            let changed = fs.after_cut(cut, Survive::Everything);
            assert!(changed.flip(&path, at, 1 << (at % 8)));
            match open(&changed) {
                Ok((_, again)) => assert_eq!(again, state, "{name} at {at}"),
                Err(Error::Damaged { .. }) => noticed += 1,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert!(noticed > 100, "{noticed}");
}

#[test]
fn a_frame_longer_than_a_segment_gets_its_own() {
    let fs = FaultFs::recording();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    for (n, len) in [(1, 50), (2, 300_000), (3, 50), (4, 40_000), (5, 5000)] {
        append(&mut shard, n, len).unwrap();
    }
    let before = fs.after_cut(fs.op_count(), Survive::Nothing);
    assert_eq!(open(&before).unwrap().1[&(0, 0)], 5);
    assert!(matches!(
        shard.reserve(1 << 31),
        Err(Error::TooLarge { .. })
    ));
}

#[test]
fn fifty_overwrites_of_everything_keep_the_folder_small() {
    const LIVE: u64 = 1000;
    let fs = FaultFs::new();
    let options = LogOptions {
        segment_bytes: 64 << 10,
        segment_bytes_min: 16 << 10,
        snapshot_bytes_min: 16 << 10,
        segments_kept: 4,
        ..LogOptions::default()
    };
    let (log, _) = open_with(&fs, options.clone()).unwrap();
    let mut shard = all(&log);
    let mut state = State::new();
    let mut most = 0;
    runtime().block_on(async {
        for n in 0..50 * LIVE {
            // Partition 1 writes once and then seldom: it must not pin the rest.
            let place = if n % 10_000 == 0 {
                (1, 0)
            } else {
                (0, n % LIVE)
            };
            let position = shard.append(place.0, frame(place.1, n, 100)).unwrap();
            state.insert(place, n);
            if n % 50 == 0 {
                wait_for(&mut shard, position).await.unwrap();
                while let Some(partition) = shard.wants_snapshot() {
                    let done = log.stats().snapshot_count;
                    let mut snapshot = shard.snapshot(partition);
                    for (&(_, key), &n) in state.range((partition, 0)..=(partition, LIVE)) {
                        snapshot.push(frame(key, n, 100));
                    }
                    snapshot.finish();
                    while log.stats().snapshot_count == done {
                        shard.changed().await.unwrap();
                    }
                }
                most = most.max(fs.used_bytes());
            }
        }
    });
    let live = LIVE * 136;
    // Twice the live state as log, once as snapshot and once more while it is replaced; segments round up.
    assert!(
        most < 4 * live + 6 * options.segment_bytes,
        "{most} bytes for {live} live ones: {:?}",
        log.stats()
    );
    drop((shard, log));
    assert_eq!(open_with(&fs, options).unwrap().1, state);
}

#[test]
fn a_snapshot_that_is_dropped_unfinished_leaves_nothing() {
    let fs = FaultFs::new();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    (1..=9).for_each(|n| append(&mut shard, n, 200).unwrap());
    let mut snapshot = shard.snapshot(0);
    snapshot.push(frame(0, 1, 100));
    drop(snapshot);
    runtime().block_on(async {
        while log.stats().snapshot_failed_count == 0 {
            shard.changed().await.unwrap();
        }
    });
    log.close().unwrap();
    assert!(
        fs.list(&Path::new(DIR).join("group"))
            .unwrap()
            .iter()
            .all(|name| !name.contains(".snap"))
    );
    drop((log, shard));
    assert_eq!(open(&fs).unwrap().1[&(0, 0)], 9);
}

#[test]
fn a_second_snapshot_at_a_time_and_one_of_no_partition_come_to_nothing() {
    let fs = FaultFs::new();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    append(&mut shard, 2, 100).unwrap();
    let mut first = shard.snapshot(0);
    for mut other in [shard.snapshot(0), shard.snapshot(PARTITIONS)] {
        other.push(frame(0, 4, 100));
        assert_eq!(other.backlog_bytes(), 0);
        other.finish();
    }
    first.push(frame(0, 2, 100));
    first.finish();
    runtime().block_on(async {
        while log.stats().snapshot_count == 0 {
            shard.changed().await.unwrap();
        }
    });
    drop((shard, log));
    assert_eq!(open(&fs).unwrap().1, State::from([((0, 0), 2)]));
}

#[test]
fn a_snapshot_may_be_pushed_while_the_partition_changes() {
    let fs = FaultFs::new();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    let mut state = State::new();
    (1..=20).for_each(|n| append_key(&mut shard, &mut state, n));
    let mut snapshot = shard.snapshot(0);
    let keys: Vec<u64> = state.keys().map(|&(_, key)| key).collect();
    let mut n = 20;
    for key in keys {
        snapshot.push(frame(key, state[&(0, key)], 100));
        // Enough for several segments.
        for _ in 0..20 {
            n += 1;
            append_key(&mut shard, &mut state, n);
        }
    }
    let before = log.stats().segment_count;
    snapshot.finish();
    runtime().block_on(async {
        while log.stats().snapshot_count == 0 {
            shard.changed().await.unwrap();
        }
    });
    log.close().unwrap();
    let after = log.stats().segment_count;
    assert!(
        4 < after && after < before,
        "the first segments went, not those since: {before}, {after}"
    );
    drop((log, shard));
    assert_eq!(open(&fs).unwrap().1, state);
}

#[test]
fn a_partition_can_be_read_again_while_the_log_is_open() {
    let fs = FaultFs::recording();
    let (log, mut state) = open(&fs).unwrap();
    run(&fs, &log, &mut state, 1..=100);
    let mut shard = all(&log);
    shard.append(place(101).0, payload(101)).unwrap();
    let mut again = State::new();
    for partition in 0..3 {
        let mut sink = |recovered| {
            apply(&mut again, &recovered);
            ControlFlow::Continue(())
        };
        shard.reload(partition, &mut sink).unwrap();
    }
    assert_eq!(again, state_after(101));
}

#[test]
fn reading_again_stops_with_its_reader_and_refuses_what_is_damaged() {
    let fs = FaultFs::new();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    append(&mut shard, 2, 100).unwrap();
    append(&mut shard, 4, 100).unwrap();
    let stopped = shard.reload(0, &mut |_| ControlFlow::Break(()));
    assert!(matches!(stopped, Err(Error::Stopped)));
    let segment = group_file(&fs, ".seg");
    fs.flip(&segment, find(&fs, &segment, 0, 4), 1);
    let mut seen = 0;
    let damaged = shard.reload(0, &mut |_| {
        seen += 1;
        ControlFlow::Continue(())
    });
    assert!(matches!(damaged, Err(Error::Damaged { .. })));
    assert_eq!(seen, 1);
}

#[test]
fn progress_rises_to_the_total() {
    let fs = FaultFs::recording();
    let (log, mut state) = open(&fs).unwrap();
    run(&fs, &log, &mut state, 1..=100);
    drop(log);
    let mut seen: Vec<Progress> = Vec::new();
    let recovery = Recovery::open(folder(&fs).unwrap(), small()).unwrap();
    recovery
        .run(&mut |_| ControlFlow::Continue(()), &mut |progress| {
            seen.push(progress)
        })
        .unwrap();
    assert!(seen.is_sorted_by_key(|progress| progress.bytes_done));
    let last = seen.last().unwrap();
    assert!(last.bytes_total > 0 && last.bytes_done == last.bytes_total);
}

#[test]
fn recovery_stops_when_its_reader_does() {
    let fs = FaultFs::recording();
    let (log, mut state) = open(&fs).unwrap();
    run(&fs, &log, &mut state, 1..=10);
    drop(log);
    let recovery = Recovery::open(folder(&fs).unwrap(), small()).unwrap();
    assert!(matches!(
        recovery.run(&mut |_| ControlFlow::Break(()), &mut |_| ()),
        Err(Error::Stopped)
    ));
    assert_eq!(open(&fs).unwrap().1, state, "and can begin again");
}

#[test]
fn other_sync_modes_do_not_wait_for_the_disk() {
    let samples: Arc<Mutex<Vec<u64>>> = Arc::default();
    let frames = Arc::new(AtomicU64::new(0));
    let (seen, all_frames) = (samples, frames.clone());
    for (sync, syncs) in [
        (SyncMode::Never, 0),
        (SyncMode::Interval(Duration::from_millis(1)), 10),
    ] {
        let fs = FaultFs::new();
        let (seen, all_frames) = (seen.clone(), all_frames.clone());
        let options = LogOptions {
            sync,
            on_sync: Some(Arc::new(move |sample| {
                seen.lock().unwrap().push(sample.frames);
                all_frames.fetch_add(sample.frames, Ordering::Relaxed);
            })),
            ..LogOptions::default()
        };
        let (log, _) = open_with(&fs, options).unwrap();
        let mut shard = all(&log);
        let before = frames.load(Ordering::Relaxed);
        append(&mut shard, 1, 100).unwrap();
        let quiet = fs.sync_count();
        (2..=10).for_each(|n| append(&mut shard, n, 100).unwrap());
        if sync == SyncMode::Never {
            assert_eq!(fs.sync_count(), quiet);
        } else {
            runtime().block_on(async {
                while frames.load(Ordering::Relaxed) < before + syncs {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        drop((shard, log));
        assert_eq!(open(&fs).unwrap().1[&(0, 0)], 10);
    }
}

#[test]
fn writing_goes_on_beside_a_sync_of_the_interval_mode() {
    let fs = FaultFs::new();
    let options = LogOptions {
        sync: SyncMode::Interval(Duration::from_millis(1)),
        ..LogOptions::default()
    };
    let (log, _) = open_with(&fs, options).unwrap();
    let mut shard = all(&log);
    append(&mut shard, 1, 100).unwrap();
    fs.hold_syncs(true);
    append(&mut shard, 2, 100).unwrap();
    fs.wait_for_held_sync();
    (3..=10).for_each(|n| append(&mut shard, n, 100).unwrap());
    let synced = fs.sync_count();
    fs.hold_syncs(false);
    drop((shard, log));
    assert!(fs.sync_count() > synced, "closing syncs the rest");
    assert_eq!(open(&fs).unwrap().1[&(0, 0)], 10);
}

#[test]
fn a_sync_that_fails_beside_the_writing_fails_the_log() {
    let fs = FaultFs::new();
    let options = LogOptions {
        sync: SyncMode::Interval(Duration::from_millis(1)),
        ..LogOptions::default()
    };
    let (log, _) = open_with(&fs, options).unwrap();
    let mut shard = all(&log);
    append(&mut shard, 1, 100).unwrap();
    fs.fail_syncs_after(Some(0));
    let _ = append(&mut shard, 2, 100);
    let error = runtime().block_on(log.failed());
    assert!(error.to_string().contains("sync"), "{error}");
    assert!(log.close().is_err());
}

#[test]
fn a_log_in_memory_is_durable_at_once() {
    let log = GroupLog::memory();
    let mut shard = log.shard([0]);
    shard.reserve(100).unwrap();
    let position = shard.append(0, Bytes::from_static(b"anything")).unwrap();
    assert_eq!(shard.durable(), position);
    assert_eq!(runtime().block_on(shard.changed()).unwrap(), position);
    assert_eq!(shard.wants_snapshot(), None);
    let mut snapshot = shard.snapshot(0);
    snapshot.push(payload(2));
    assert_eq!(snapshot.backlog_bytes(), 0);
    snapshot.finish();
    let nothing = shard.reload(0, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(nothing, Err(Error::Closed)), "it keeps nothing");
    log.close().unwrap();
}

/// They stand in the log of a server that fails, so they must not show what clients stored.
#[test]
fn handles_show_figures_and_no_payload() {
    let fs = FaultFs::new();
    let options = small();
    let shown = format!("{options:?}");
    assert!(
        shown.contains("sync: Always") && shown.contains("segment_bytes: 4096"),
        "{shown}"
    );
    let (log, _) = open_with(&fs, options.clone()).unwrap();
    let mut shard = all(&log);
    let secret = Bytes::from_static(b"0123456789abcdef secret");
    let position = shard.append(0, secret).unwrap();
    runtime().block_on(wait_for(&mut shard, position)).unwrap();
    assert_eq!(position.to_string(), position.number().to_string());
    let memory = GroupLog::memory();
    for (log, shard) in [(&log, &shard), (&memory, &all(&memory))] {
        let shown = format!("{log:?} {shard:?}");
        assert!(shown.contains("frame_count: "), "{shown}");
        assert!(!shown.contains("secret"), "{shown}");
    }
    drop((shard, log));
    let folder = folder(&fs).unwrap();
    let shown = format!("{folder:?}");
    assert!(
        shown.contains("node_id: 1") && shown.contains(DIR),
        "{shown}"
    );
    let recovery = Recovery::open(folder, options).unwrap();
    let by_hand = recovery.run_by_hand(&mut |_| ControlFlow::Continue(()));
    let shown = format!("{:?}", by_hand.unwrap());
    assert!(shown.contains("frame_count: 0"), "{shown}");
}

#[test]
fn a_closed_log_takes_nothing() {
    let fs = FaultFs::new();
    let (log, _) = open(&fs).unwrap();
    let mut shard = all(&log);
    shard.append(0, payload(2)).unwrap();
    drop(log);
    assert!(matches!(shard.append(0, payload(4)), Err(Error::Closed)));
    let (_, state) = open(&fs).unwrap();
    assert_eq!(state.len(), 1, "what was appended before was written");
}
