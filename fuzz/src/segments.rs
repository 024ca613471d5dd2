//! Any bytes as a data folder: the group log's segments and snapshots, and the topics' journal, batches and indexes.
//!
//! Holds: opening it ends with a log or with an error, never with a panic, and takes little more memory than the folder
//! has bytes; what was refused once is refused again in the same words, for it was left alone; what opens can be
//! appended to, and opened again it has everything it had, and what was appended.
//!
//! Input: files, each of them a byte for its name, a byte of flags, two bytes of length, its bytes. Flags say which
//! checksums are made right, so that hardly a byte is wasted on them.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use bytes::Bytes;
use convoke::broker::{Broker, BrokerOptions, Produced, Storage, TopicSummary};
use convoke::group::types::{Millis, Topics};
use convoke::group::{Actions, Coordinator, GroupConfig};
use convoke::log::fault_fs::FaultFs;
use convoke::log::fs::{Fs, Open};
use convoke::log::{Error, Folder, FolderOptions, LogOptions, Recovery, SyncMode};
use convoke::wire::records::decode_batch;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{FetchRequest, ListOffsetsRequest, ProduceRequest, TopicName};
use kafka_protocol::protocol::StrBytes;

use crate::batches::{self, Shape};
use crate::{clockwork, memory};

const START_MS: i64 = 1_700_000_000_000;
const DATA: &str = "/data";
/// The topic of the names below, and its id.
const TOPIC: &str = "/data/topics/00000000-0000-4000-8000-000000000001";
const FILES_MAX: usize = 16;
const PARTITIONS: u16 = 3;
/// Memory that opening may take beside the folder's own bytes: readers work in windows of a megabyte.
const WINDOWS_BYTES: usize = 12 << 20;
const BYTES_PER_BYTE: usize = 64;
/// The offsets that a log cannot go beyond, and what a client's batch is refused with in a topic of odd settings.
const STORAGE_ERROR: i16 = 56;
const REFUSALS: [i16; 5] = [10, 18, 32, 87, STORAGE_ERROR];

/// Names by number; later ones come from the input.
const NAMES: [&str; 14] = [
    "/data/convoke.meta",
    "/data/group/00000000000000000001.seg",
    "/data/group/00000000000000000003.seg",
    "/data/group/00000000000000000005.seg",
    "/data/group/00001-00000000000000000002.snap",
    "/data/group/00001-00000000000000000004.snap",
    "/data/group/00000-00000000000000000001.snap",
    "/data/group/spare-0",
    "/data/topics/topics.journal",
    "0/00000000000000000000.log",
    "0/00000000000000000000.idx",
    "0/00000000000000000003.log",
    "0/00000000000000000003.idx",
    "1/00000000000000000000.log",
];

fn path_of(number: u8) -> PathBuf {
    match NAMES.get(usize::from(number)) {
        Some(name) if name.starts_with('/') => PathBuf::from(name),
        Some(name) => Path::new(TOPIC).join(name),
        None if number & 1 == 0 => Path::new(DATA).join("group").join(odd_name(number)),
        None => Path::new(TOPIC).join("0").join(odd_name(number)),
    }
}

fn odd_name(number: u8) -> &'static str {
    const ODD: [&str; 8] = [
        "00000000000000000002.seg",
        "99999999999999999999.seg",
        "18446744073709551615.seg",
        "65535-18446744073709551615.snap",
        "7.snap.tmp",
        "09223372036854775807.log",
        "-1.log",
        "spare-18446744073709551615",
    ];
    ODD[usize::from(number >> 1) % ODD.len()]
}

/// Makes the checksums of a file right, as far as its name says where they are.
fn mend(path: &Path, bytes: &mut Vec<u8>) {
    let name = path
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default();
    match name.rsplit('.').next().unwrap_or_default() {
        "seg" | "snap" => mend_frames(path, name, bytes),
        "meta" => {
            let crc = crc32c::crc32c(bytes);
            bytes.extend_from_slice(format!("crc32c={crc:08x}\n").as_bytes());
        }
        "journal" => {
            let mut out = Vec::new();
            for line in bytes.split_inclusive(|byte| *byte == b'\n') {
                let json = line.strip_suffix(b"\n").unwrap_or(line);
                out.extend_from_slice(format!("{:08x} ", crc32c::crc32c(json)).as_bytes());
                out.extend_from_slice(line);
            }
            *bytes = out;
        }
        "log" => {
            let mut at = 0;
            while let Some(head) = bytes.get(at..at + batches::HEADER_BYTES) {
                let length = usize::try_from(batches::i32_at(head, 8)).unwrap_or(usize::MAX);
                let Some(batch) = bytes.get_mut(at..at.saturating_add(length).saturating_add(12))
                else {
                    break;
                };
                if batch.len() < batches::HEADER_BYTES {
                    break;
                }
                batches::mend(batch);
                at += batch.len();
            }
        }
        "idx" if bytes.len() >= 64 => {
            bytes[..8].copy_from_slice(b"CVKINDX1");
            let crc = crc32c::crc32c(&bytes[16..64]);
            let rest = crc32c::crc32c(&bytes[64..]);
            bytes[8..12].copy_from_slice(&crc.to_le_bytes());
            bytes[12..16].copy_from_slice(&rest.to_le_bytes());
        }
        _ => {}
    }
}

fn mend_frames(path: &Path, name: &str, bytes: &mut [u8]) {
    let snapshot = path
        .extension()
        .is_some_and(|extension| extension == "snap");
    let Some((head, mut rest)) = bytes.split_at_mut_checked(64) else {
        return;
    };
    head[..8].copy_from_slice(if snapshot { b"CVKSNAPS" } else { b"CVKSEGMT" });
    head[8..12].copy_from_slice(&1u32.to_le_bytes());
    let stem = name.split('.').next().unwrap_or_default();
    let base = stem
        .rsplit('-')
        .next()
        .and_then(|base| base.parse::<u64>().ok());
    head[16..24].copy_from_slice(&base.unwrap_or(1).to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&head[8..12]), &head[16..]);
    head[12..16].copy_from_slice(&crc.to_le_bytes());
    let seed = crc32c::crc32c(&head[24..32]);
    while rest.len() >= 32 {
        let length = u32::from_le_bytes(batches::at(rest, 4)) as usize;
        if length > rest.len() - 32 {
            return;
        }
        let crc = crc32c::crc32c_append(seed, &rest[4..32 + length]);
        rest[..4].copy_from_slice(&crc.to_le_bytes());
        let next = (32 + length.next_multiple_of(8)).min(rest.len());
        rest = &mut rest[next..];
    }
}

/// Puts the files of an input on a disk; gives how many bytes they take.
fn folder(data: &[u8]) -> (FaultFs, usize) {
    let disk = FaultFs::new();
    let fs = disk.shared();
    for dir in ["/data/group", TOPIC] {
        fs.create_dirs(&Path::new(dir).join("0"))
            .expect("there is room");
        fs.create_dirs(&Path::new(dir).join("1"))
            .expect("there is room");
    }
    let mut rest = data;
    let mut taken = 0;
    for _ in 0..FILES_MAX {
        let [number, flags, high, low, tail @ ..] = rest else {
            break;
        };
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (bytes, next) = tail.split_at(length);
        rest = next;
        let path = path_of(*number);
        let mut bytes = bytes.to_vec();
        if flags & 1 == 0 {
            mend(&path, &mut bytes);
        }
        if flags & 2 != 0 {
            // as preallocated files end
            bytes.resize(bytes.len() + 512, 0);
        }
        taken += bytes.len();
        if let Ok(file) = fs.open(&path, Open::Create) {
            file.write_at(&[&bytes], 0).expect("there is room");
        }
    }
    (disk, taken)
}

type Payloads = BTreeMap<u16, Vec<Bytes>>;

/// Opens the group log, appends to it, and closes it; gives what was in it before.
fn open_group(fs: &Arc<dyn Fs>, add: Option<&Bytes>) -> Result<Payloads, Error> {
    let options = FolderOptions {
        partition_count: PARTITIONS,
        node_id: 1,
    };
    let log_options = LogOptions {
        sync: SyncMode::Always,
        segment_bytes: 8 << 10,
        segment_bytes_min: 4 << 10,
        ..LogOptions::default()
    };
    let folder = Arc::new(Folder::open(fs.clone(), Path::new(DATA), options)?);
    let recovery = Recovery::open(folder, log_options)?;
    let mut found = Payloads::new();
    let log = recovery.run(
        &mut |recovered| {
            found
                .entry(recovered.partition)
                .or_default()
                .push(recovered.payload);
            ControlFlow::Continue(())
        },
        &mut |_| (),
    )?;
    if let Some(payload) = add {
        let mut shard = log.shard(0..PARTITIONS);
        for partition in 0..PARTITIONS {
            shard.reserve(payload.len() as u64).expect("there is room");
            shard
                .append(partition, payload.clone())
                .expect("the log takes a frame");
        }
    }
    log.close()?;
    Ok(found)
}

fn group_log(fs: &Arc<dyn Fs>, taken: usize) {
    let watch = memory::watch();
    let first = open_group(fs, None);
    watch.check(
        "opening the group log",
        WINDOWS_BYTES + taken * BYTES_PER_BYTE,
    );
    let mut found = match first {
        Ok(found) => found,
        Err(error) => {
            let again = open_group(fs, None).expect_err("what was refused is refused again");
            assert_eq!(error.to_string(), again.to_string());
            return;
        }
    };
    for payloads in found.values() {
        coordinate(payloads);
    }
    let payload = Bytes::from_static(b"one more frame");
    for _ in 0..2 {
        let again = open_group(fs, Some(&payload)).expect("what was opened can be opened again");
        assert_eq!(
            again, found,
            "a log that was opened again tells something else"
        );
        for partition in 0..PARTITIONS {
            found.entry(partition).or_default().push(payload.clone());
        }
    }
}

/// What the server does with the payloads.
fn coordinate(payloads: &[Bytes]) {
    let mut coordinator = Coordinator::new(GroupConfig::default(), Arc::new(Topics::default()), 7);
    for payload in payloads {
        let Ok(batch) = decode_batch(payload) else {
            return;
        };
        for record in &batch.records {
            coordinator.apply(record);
        }
    }
    let mut actions = Actions::default();
    let now = coordinator.newest_timestamp().max(Millis(START_MS));
    coordinator.loaded(now, &mut actions);
    if let Some(next) = coordinator.poll_timeout() {
        coordinator.handle_timeout(next, &mut actions);
    }
}

fn open_topics(fs: &Arc<dyn Fs>) -> Result<Broker, convoke::broker::Error> {
    let now_ms = AtomicI64::new(START_MS);
    let options = BrokerOptions {
        storage: Storage::Fs(fs.clone(), Path::new(DATA).join("topics")),
        offsets_topic_partitions: 3,
        open_files_max: 8,
        retention_check_interval_ms: u64::MAX >> 2,
        clock: Arc::new(move || now_ms.load(Relaxed)),
        ..BrokerOptions::default()
    };
    Broker::open(options, Box::new(|_| ()), Box::new(|_| ()))
}

/// A partition that there is.
struct Place {
    topic: TopicName,
    partition: i32,
}

impl Place {
    fn all(broker: &Broker) -> Vec<Self> {
        let topics = broker.topics();
        let own = topics.iter().filter(|topic| !topic.internal).take(3);
        own.flat_map(|topic: &TopicSummary| {
            let name = TopicName(StrBytes::from_string(topic.name.to_string()));
            (0..topic.partitions.min(3)).map(move |partition| Self {
                topic: name.clone(),
                partition,
            })
        })
        .collect()
    }

    async fn produce(&self, broker: &Broker) -> Option<i64> {
        let batch = Shape {
            timestamps: &[START_MS, START_MS],
            producer: (-1, -1, -1),
            value_bytes: 3,
        };
        let partition = PartitionProduceData::default()
            .with_index(self.partition)
            .with_records(Some(batch.bytes().into()));
        let data = TopicProduceData::default()
            .with_name(self.topic.clone())
            .with_partition_data(vec![partition]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_topic_data(vec![data]);
        let Produced::Reply(reply) = broker.produce(request, 9).await else {
            panic!("nobody asked for silence");
        };
        let answer = &reply.responses[0].partition_responses[0];
        if answer.error_code != 0 {
            assert!(REFUSALS.contains(&answer.error_code), "{answer:?}");
            return None;
        }
        Some(answer.base_offset)
    }

    async fn fetch(&self, broker: &Broker, offset: i64) -> Result<Bytes, i16> {
        let partition = FetchPartition::default()
            .with_partition(self.partition)
            .with_fetch_offset(offset)
            .with_current_leader_epoch(-1)
            .with_last_fetched_epoch(-1)
            .with_partition_max_bytes(300);
        let asked = FetchTopic::default()
            .with_topic(self.topic.clone())
            .with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_max_bytes(1 << 20)
            .with_min_bytes(1)
            .with_session_epoch(-1)
            .with_topics(vec![asked]);
        let answer = broker.fetch(request, 12).await;
        let data = &answer.responses[0].partitions[0];
        match data.error_code {
            0 => Ok(data.records.clone().unwrap_or_default()),
            error => Err(error),
        }
    }

    async fn list(&self, broker: &Broker, timestamp: i64) {
        let partition = ListOffsetsPartition::default()
            .with_partition_index(self.partition)
            .with_timestamp(timestamp)
            .with_current_leader_epoch(-1);
        let asked = ListOffsetsTopic::default()
            .with_name(self.topic.clone())
            .with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_topics(vec![asked]);
        broker.list_offsets(request, 10).await;
    }

    /// Reads everything, as a consumer does. An index with a right checksum is believed, so with a forged one offsets may
    /// go anywhere.
    async fn read(&self, broker: &Broker, forged: bool) {
        let bounds = broker
            .bounds(&self.topic, self.partition)
            .expect("it was listed");
        assert!(
            0 <= bounds.log_start && bounds.log_start <= bounds.end,
            "{bounds:?}"
        );
        let mut offset = bounds.log_start;
        for _ in 0..64 {
            let Ok(records) = self.fetch(broker, offset).await else {
                return;
            };
            if records.is_empty() {
                assert_eq!(offset, bounds.end, "a consumer waits for what is there");
                return;
            }
            let mut left = &records[..];
            while left.len() >= batches::HEADER_BYTES {
                let bytes = batches::i32_at(left, 8) as usize + 12;
                let next = batches::i64_at(left, 0)
                    .saturating_add(i64::from(batches::i32_at(left, 23)) + 1);
                if next <= offset && forged {
                    return;
                }
                assert!(
                    next > offset,
                    "a consumer at {offset} is sent back to {next}"
                );
                offset = next;
                left = &left[bytes..];
            }
        }
    }
}

async fn topics(fs: &Arc<dyn Fs>, taken: usize, forged: bool) {
    let watch = memory::watch();
    let first = open_topics(fs);
    watch.check("opening the topics", WINDOWS_BYTES + taken * BYTES_PER_BYTE);
    let broker = match first {
        Ok(broker) => broker,
        Err(error) => {
            let again = open_topics(fs)
                .err()
                .expect("what was refused is refused again");
            assert_eq!(error.to_string(), again.to_string());
            return;
        }
    };
    let mut appended = Vec::new();
    for place in Place::all(&broker) {
        place.read(&broker, forged).await;
        place.list(&broker, START_MS).await;
        place.list(&broker, -3).await;
        let offset = place.produce(&broker).await;
        if let Some(offset) = offset {
            match place.fetch(&broker, offset).await {
                Ok(bytes) => appended.push((place, offset, bytes)),
                Err(error) => assert!(forged, "what was appended cannot be read: {error}"),
            }
        }
    }
    let bounds = |broker: &Broker| -> Vec<_> {
        let all = Place::all(broker).into_iter();
        all.map(|place| broker.bounds(&place.topic, place.partition))
            .collect()
    };
    let before = bounds(&broker);
    broker.close().await.expect("a good disk takes everything");
    drop(broker);
    let broker = open_topics(fs)
        .unwrap_or_else(|error| panic!("what was opened can be opened again: {error}"));
    assert_eq!(bounds(&broker), before, "a restart moved the ends");
    for (place, offset, bytes) in appended {
        assert_eq!(
            place.fetch(&broker, offset).await,
            Ok(bytes),
            "what was appended is kept"
        );
        place.read(&broker, forged).await;
    }
    broker.retain().await;
}

/// One input.
///
/// # Panics
/// That is how the target fails.
pub fn run(data: &[u8]) {
    let (disk, taken) = folder(data);
    let fs = disk.shared();
    group_log(&fs, taken);
    let partitions = [0, 1].map(|n| fs.list(&Path::new(TOPIC).join(n.to_string())));
    let mut names = partitions.into_iter().flatten().flatten();
    let forged = names.any(|name| name.ends_with(".idx"));
    clockwork::run(topics(&fs, taken, forged));
}
