//! The group log on this disk: `cargo bench --bench log [-- FOLDER]`.
//!
//! Commits per second of 1 and of 64 writers who each wait for their own, beside what the disk can sync alone; then how
//! fast a million frames are read back, and how large fifty overwrites of everything make the folder. No test asserts any of it.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot run should say why"
)]

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use convoke::log::fs::{Fs, Open, RealFs};
use convoke::log::{Folder, FolderOptions, GroupLog, LogOptions, Recovery, ShardLog, SyncMode};

const PARTITIONS: u16 = 50;
const FRAME_BYTES: usize = 100;
const RUN: Duration = Duration::from_secs(3);

fn main() {
    let root = std::env::args()
        .nth(1)
        .filter(|arg| !arg.starts_with('-'))
        .map_or_else(std::env::temp_dir, PathBuf::from);
    let root = tempfile::tempdir_in(root).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    println!(
        "{:<44}{:>12.0} syncs/s",
        "the disk alone: 4 KiB over old bytes, fdatasync",
        disk_alone(root.path())
    );
    for writers in [1, 64, 1024] {
        // The second run writes into segments that have been used before.
        for round in ["fresh", "again"] {
            runtime.block_on(commits(&root.path().join("commits"), writers, round));
        }
    }
    recovery(&root.path().join("recovery"), 1_000_000);
    runtime.block_on(overwrites(&root.path().join("overwrites"), 500_000, 10_000));
}

fn disk_alone(dir: &Path) -> f64 {
    let fs = RealFs;
    let path = dir.join("alone");
    let file = fs.open(&path, Open::Create).unwrap();
    let page = vec![7; 4096];
    let size = 8 << 20;
    file.preallocate(size).unwrap();
    (0..size / 4096).for_each(|page_number| file.write_at(&[&page], page_number * 4096).unwrap());
    file.sync_all().unwrap();
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < RUN {
        file.write_at(&[&page], count * 4096 % size).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    count as f64 / start.elapsed().as_secs_f64()
}

fn open(dir: &Path, options: LogOptions, count: &mut u64) -> GroupLog {
    let folder = FolderOptions {
        partition_count: PARTITIONS,
        node_id: 1,
    };
    let folder = Arc::new(Folder::open(RealFs::shared(), dir, folder).unwrap());
    let recovery = Recovery::open(folder, options).unwrap();
    let mut sink = |_| {
        *count += 1;
        ControlFlow::Continue(())
    };
    recovery.run(&mut sink, &mut |_| ()).unwrap()
}

async fn commit(shard: &mut ShardLog, partition: u16, payload: &Bytes) {
    shard.reserve(payload.len() as u64).unwrap();
    let position = shard.append(partition, payload.clone()).unwrap();
    while shard.durable() < position {
        shard.changed().await.unwrap();
    }
}

async fn commits(dir: &Path, writers: u16, round: &str) {
    let log = open(dir, LogOptions::default(), &mut 0);
    let before = log.stats();
    let payload = Bytes::from(vec![7; FRAME_BYTES]);
    let start = Instant::now();
    let tasks = (0..writers).map(|writer| {
        let partition = writer % PARTITIONS;
        let (mut shard, payload) = (log.shard([partition]), payload.clone());
        tokio::spawn(async move {
            let mut took = Vec::new();
            while start.elapsed() < RUN {
                let begun = Instant::now();
                commit(&mut shard, partition, &payload).await;
                took.push(begun.elapsed());
                if shard.wants_snapshot() == Some(partition) {
                    shard.snapshot(partition).finish();
                }
            }
            took
        })
    });
    let tasks: Vec<_> = tasks.collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.unwrap());
    }
    let seconds = start.elapsed().as_secs_f64();
    took.sort_unstable();
    let at = |share: f64| took[((took.len() - 1) as f64 * share) as usize].as_micros();
    let stats = log.stats();
    let syncs = stats.sync_count - before.sync_count;
    println!(
        "{:<44}{:>12.0} commits/s  p50 {} us  p99 {} us  p99.9 {} us  {:.0} syncs/s  {:.1} frames a sync",
        format!("{writers} writers, {round}"),
        took.len() as f64 / seconds,
        at(0.5),
        at(0.99),
        at(0.999),
        syncs as f64 / seconds,
        took.len() as f64 / syncs as f64,
    );
}

fn recovery(dir: &Path, frames: u64) {
    let options = LogOptions {
        sync: SyncMode::Never,
        snapshot_bytes_min: u64::MAX,
        ..LogOptions::default()
    };
    let log = open(dir, options.clone(), &mut 0);
    let mut shard = log.shard(0..PARTITIONS);
    let payload = Bytes::from(vec![7; FRAME_BYTES]);
    let start = Instant::now();
    for frame in 0..frames {
        shard
            .append((frame % u64::from(PARTITIONS)) as u16, payload.clone())
            .unwrap();
    }
    log.close().unwrap();
    println!(
        "{:<44}{:>12.2} s",
        format!("append {frames} frames, synced at the end"),
        start.elapsed().as_secs_f64()
    );
    drop((shard, log));
    let start = Instant::now();
    let mut count = 0;
    let log = open(dir, options, &mut count);
    println!(
        "{:<44}{:>12.2} s",
        format!("read {count} frames back"),
        start.elapsed().as_secs_f64()
    );
    drop(log);
}

async fn overwrites(dir: &Path, frames: u64, keys: u64) {
    let log = open(dir, LogOptions::default(), &mut 0);
    let mut shard = log.shard(0..PARTITIONS);
    let payload = Bytes::from(vec![7; FRAME_BYTES]);
    let (mut most, start) = (0, Instant::now());
    for frame in 0..frames {
        let partition = (frame % u64::from(PARTITIONS)) as u16;
        let position = shard.append(partition, payload.clone()).unwrap();
        if frame % 256 == 0 {
            while shard.durable() < position {
                shard.changed().await.unwrap();
            }
            if let Some(partition) = shard.wants_snapshot() {
                let mut snapshot = shard.snapshot(partition);
                (0..keys / u64::from(PARTITIONS)).for_each(|_| snapshot.push(payload.clone()));
                snapshot.finish();
            }
        }
        if frame % 10_000 == 0 {
            most = most.max(folder_bytes(&dir.join("group")));
        }
    }
    println!(
        "{:<44}{:>12.1} MB at most, {:.2} s, {:?}",
        format!("{frames} overwrites of {keys} keys"),
        most as f64 / 1e6,
        start.elapsed().as_secs_f64(),
        log.stats()
    );
}

fn folder_bytes(dir: &Path) -> u64 {
    let files = std::fs::read_dir(dir).unwrap();
    files
        .filter_map(|file| file.ok()?.metadata().ok())
        .map(|meta| meta.len())
        .sum()
}
