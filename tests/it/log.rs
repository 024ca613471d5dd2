//! The storage room against a disk that fails: power cuts at every moment, torn writes, failed syncs, full disks,
//! flipped bits. What was acknowledged must come back, and nothing behind a gap.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use convoke::log::fault_fs::FaultFs;
use convoke::log::fs::Fs;
use convoke::log::{
    Error, Folder, FolderOptions, GroupLog, LogOptions, Position, Recovered, Recovery, ShardLog,
};
use tokio::runtime::Runtime;

mod cuts;
mod faults;
mod places;

const DIR: &str = "/data/convoke";
const PARTITIONS: u16 = 3;
const KEYS: u64 = 5;

fn folder(fs: &FaultFs) -> Result<Arc<Folder>, Error> {
    folder_of(fs.shared(), Path::new(DIR))
}

fn folder_of(fs: Arc<dyn Fs>, dir: &Path) -> Result<Arc<Folder>, Error> {
    Ok(Arc::new(Folder::open(
        fs,
        dir,
        FolderOptions {
            partition_count: PARTITIONS,
            node_id: 1,
        },
    )?))
}

/// Small, so that segments roll and snapshots are wanted every few appends.
fn small() -> LogOptions {
    LogOptions {
        segment_bytes: 4 << 10,
        segment_bytes_min: 1 << 10,
        snapshot_bytes_min: 1 << 10,
        ..LogOptions::default()
    }
}

/// The model: the last append of each key of each partition, by its number.
type State = BTreeMap<(u16, u64), u64>;

/// The n-th append sets one key of one partition; its length varies, some are longer than a segment.
fn place(n: u64) -> (u16, u64) {
    // Partition 2 seldom writes, so it pins old segments.
    let partition = if n.is_multiple_of(40) {
        2
    } else {
        (n % 2) as u16
    };
    (partition, n / 2 % KEYS)
}

fn payload(n: u64) -> Bytes {
    let len = match n % 61 {
        60 => 9000,
        rest => 16 + (rest * 37 % 200) as usize,
    };
    frame(place(n).1, n, len)
}

fn frame(key: u64, n: u64, len: usize) -> Bytes {
    let mut bytes = vec![n as u8; len];
    bytes[..8].copy_from_slice(&key.to_le_bytes());
    bytes[8..16].copy_from_slice(&n.to_le_bytes());
    bytes.into()
}

fn apply(state: &mut State, recovered: &Recovered) {
    let number = |at: usize| u64::from_le_bytes(recovered.payload[at..at + 8].try_into().unwrap());
    let (key, n) = (number(0), number(8));
    assert!(
        recovered.payload[16..].iter().all(|&byte| byte == n as u8),
        "a payload of {n} came back changed"
    );
    state.insert((recovered.partition, key), n);
}

/// The state after appends `1..=n`.
fn state_after(n: u64) -> State {
    (1..=n).map(|n| (place(n), n)).collect()
}

fn open_with(fs: &FaultFs, options: LogOptions) -> Result<(GroupLog, State), Error> {
    open_in(fs.shared(), Path::new(DIR), options)
}

fn open_in(fs: Arc<dyn Fs>, dir: &Path, options: LogOptions) -> Result<(GroupLog, State), Error> {
    let mut state = State::new();
    let recovery = Recovery::open(folder_of(fs, dir)?, options)?;
    let log = recovery.run(
        &mut |recovered| {
            apply(&mut state, &recovered);
            ControlFlow::Continue(())
        },
        &mut |_| (),
    )?;
    Ok((log, state))
}

fn open(fs: &FaultFs) -> Result<(GroupLog, State), Error> {
    open_with(fs, small())
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}

async fn wait_for(shard: &mut ShardLog, position: Position) -> Result<(), Error> {
    while shard.durable() < position {
        shard.changed().await?;
    }
    Ok(())
}

fn all(log: &GroupLog) -> ShardLog {
    log.shard(0..PARTITIONS)
}

/// Appends `numbers`, some at a time, waits for each lot and marks it; takes the snapshots that are wanted.
fn run(fs: &FaultFs, log: &GroupLog, state: &mut State, numbers: std::ops::RangeInclusive<u64>) {
    let mut shard = all(log);
    runtime().block_on(async {
        let last = *numbers.end();
        for n in numbers {
            shard.reserve(payload(n).len() as u64).unwrap();
            let position = shard.append(place(n).0, payload(n)).unwrap();
            state.insert(place(n), n);
            if n.is_multiple_of(3) || n == last {
                wait_for(&mut shard, position).await.unwrap();
                fs.mark(n);
            }
            snapshot(&mut shard, state, log).await;
        }
    });
}

/// Takes a wanted snapshot, and waits until it is there: otherwise the run is over before the first one is.
async fn snapshot(shard: &mut ShardLog, state: &State, log: &GroupLog) {
    let Some(partition) = shard.wants_snapshot() else {
        return;
    };
    let before = log.stats();
    let mut snapshot = shard.snapshot(partition);
    for (&(_, key), &n) in state.range((partition, 0)..=(partition, KEYS)) {
        snapshot.push(frame(key, n, 50));
    }
    snapshot.finish();
    while log.stats().snapshot_count + log.stats().snapshot_failed_count
        == before.snapshot_count + before.snapshot_failed_count
    {
        shard.changed().await.unwrap();
    }
}

/// The recovered state is that after some number of appends, no fewer than were acknowledged.
fn check(state: &State, acknowledged: u64, appended: u64, case: impl Fn() -> String) -> u64 {
    let n = state.values().copied().max().unwrap_or(0);
    assert!(
        n >= acknowledged,
        "{acknowledged} was acknowledged, {n} came back; {}",
        case()
    );
    assert!(n <= appended, "{n} was never appended; {}", case());
    assert_eq!(
        *state,
        state_after(n),
        "not the state after {n} appends; {}",
        case()
    );
    n
}
