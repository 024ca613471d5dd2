//! Power cuts: at every moment, during recovery, in the middle of a batch.

use std::path::Path;

use convoke::log::LogOptions;
use convoke::log::fault_fs::{FaultFs, Survive};
use convoke::log::fs::{Fs, Open};

use super::{
    DIR, all, check, frame, open, open_with, payload, place, run, runtime, small, state_after,
    wait_for,
};

#[test]
fn every_power_cut_recovers_what_was_acknowledged() {
    cut_everywhere(180, small(), 5);
}

/// Segments are reused long after they were dropped, and several are dropped at once.
#[test]
fn every_power_cut_recovers_what_was_acknowledged_with_few_snapshots() {
    cut_everywhere(
        240,
        LogOptions {
            snapshot_bytes_min: 12 << 10,
            ..small()
        },
        1,
    );
}

fn cut_everywhere(appends: u64, options: LogOptions, snapshots_min: u64) {
    let fs = FaultFs::recording();
    let (log, mut state) = open_with(&fs, options.clone()).unwrap();
    run(&fs, &log, &mut state, 1..=appends);
    assert!(
        log.stats().snapshot_count >= snapshots_min,
        "{:?}",
        log.stats()
    );
    log.close().unwrap();
    for cut in 0..=fs.op_count() {
        let acknowledged = fs.marks(cut).last().copied().unwrap_or(0);
        let seeds = (0..3).map(|seed| Survive::Some(seed + 10 * cut as u64));
        for survive in seeds.chain([Survive::Nothing, Survive::Everything]) {
            let case = || format!("cut after {cut}, {survive:?}:\n{}", fs.describe(cut));
            let after = fs.after_cut(cut, survive);
            let (log, mut state) = open_with(&after, options.clone())
                .unwrap_or_else(|error| panic!("{error}; {}", case()));
            let n = check(&state, acknowledged, appends, case);
            // Life goes on, and nothing that was given up comes back.
            run(&after, &log, &mut state, n + 1..=n + 4);
            drop(log);
            let (_, again) = open_with(&after, options.clone())
                .unwrap_or_else(|error| panic!("reopened: {error}; {}", case()));
            assert_eq!(again, state, "reopened; {}", case());
        }
    }
}

#[test]
fn a_cut_during_recovery_from_a_cut_loses_nothing() {
    const APPENDS: u64 = 60;
    let fs = FaultFs::recording();
    let (log, mut state) = open(&fs).unwrap();
    run(&fs, &log, &mut state, 1..=APPENDS);
    drop(log);
    for cut in (0..=fs.op_count()).step_by(7) {
        let acknowledged = fs.marks(cut).last().copied().unwrap_or(0);
        let once = fs.after_cut(cut, Survive::Some(cut as u64));
        let begun = once.op_count();
        let (log, mut state) = open(&once).unwrap();
        let n = check(&state, acknowledged, APPENDS, || {
            format!("first cut after {cut}")
        });
        run(&once, &log, &mut state, n + 1..=n + 3);
        drop(log);
        for again in (begun..=once.op_count()).step_by(2) {
            let acknowledged = once.marks(again).last().copied().unwrap_or(acknowledged);
            let case = || format!("cut after {cut}, then {again}:\n{}", once.describe(again));
            let twice = once.after_cut(again, Survive::Some(again as u64));
            let (_, state) = open(&twice).unwrap_or_else(|error| panic!("{error}; {}", case()));
            check(&state, acknowledged, n + 3, case);
        }
    }
}

/// Cuts the power in the middle of a batch, so that its first frame is torn and later ones are whole; then writes a
/// frame of the same length in its place. The later ones must not turn up behind it.
#[test]
fn whole_frames_behind_a_torn_one_never_come_back() {
    let mut torn = 0;
    for seed in 0..300 {
        let fs = FaultFs::recording();
        let options = LogOptions {
            segment_bytes_min: 16 << 10,
            ..LogOptions::default()
        };
        let (log, _) = open_with(&fs, options).unwrap();
        let mut shard = all(&log);
        runtime().block_on(async {
            let first = shard.append(0, frame(0, 1, 40)).unwrap();
            wait_for(&mut shard, first).await.unwrap();
            // The next frame goes to the disk alone and is held there; those behind it make one batch.
            fs.hold_syncs(true);
            shard.append(0, frame(0, 2, 40)).unwrap();
            fs.wait_for_held_sync();
            for n in 3..9 {
                shard.append(0, frame(0, n, 600)).unwrap();
            }
            fs.hold_syncs(false);
            while shard.changed().await.unwrap() < first {}
        });
        log.close().unwrap();
        // Behind the batch's write, before its sync.
        let cut = fs.op_count()
            - fs.describe(fs.op_count())
                .lines()
                .rev()
                .position(|op| op.contains("3792 bytes"))
                .unwrap();
        let after = fs.after_cut(cut, Survive::Some(seed));
        let (log, state) = open(&after).unwrap();
        let last = state[&(0, 0)];
        assert!(last >= 2, "what was synced came back");
        torn += u32::from(last < 8);
        let mut shard = all(&log);
        runtime().block_on(async {
            let position = shard.append(0, frame(0, 100, 600)).unwrap();
            wait_for(&mut shard, position).await.unwrap();
        });
        let cut = after.op_count();
        drop(log);
        let (_, state) = open(&after.after_cut(cut, Survive::Nothing)).unwrap();
        assert_eq!(
            state[&(0, 0)],
            100,
            "seed {seed}: a frame that was given up came back"
        );
    }
    assert!(torn > 100, "the cuts tear batches: {torn}");
}

#[test]
fn a_segment_that_a_crash_left_empty_and_short_gives_its_place_to_the_next() {
    let name = Path::new(DIR).join("group/00000000000000000001.seg");
    let other = FaultFs::new();
    let (log, mut state) = open(&other).unwrap();
    run(&other, &log, &mut state, 1..=1);
    drop(log);
    let header = other.bytes(&name).unwrap()[..64].to_vec();

    // The crash came when the segment had its name and no frame; the frame that follows is longer than the file.
    let fs = FaultFs::new();
    drop(open(&fs).unwrap());
    assert_eq!(fs.bytes(&name), None);
    let file = fs.shared().open(&name, Open::Create).unwrap();
    file.write_at(&[&header], 0).unwrap();
    drop(file);
    for n in 1..=3 {
        let (log, state) = open(&fs).unwrap();
        assert_eq!(state, state_after(n - 1));
        let mut shard = all(&log);
        shard.reserve(payload(n).len() as u64).unwrap();
        let position = shard.append(place(n).0, payload(n)).unwrap();
        runtime().block_on(wait_for(&mut shard, position)).unwrap();
    }
    assert_eq!(open(&fs).unwrap().1, state_after(3));
}

#[test]
fn the_record_of_a_disk_says_what_was_done_to_it() {
    let fs = FaultFs::recording();
    let dir = Path::new("/here");
    fs.create_dirs(dir).unwrap();
    let file = fs.open(&dir.join("file"), Open::Create).unwrap();
    file.write_at(&[b"abc"], 4).unwrap();
    fs.mark(7);
    assert_eq!(format!("{fs:?}"), "FaultFs", "not its whole record");
    assert_eq!(
        fs.describe(fs.op_count()),
        "CreateDirs(\"/here\")\nCreate(\"/here/file\", 0)\nWrite(0, at 4, 3 bytes)\nMark(7)\n"
    );
}
