//! Produce batches into the data plane, and back out of Fetch and ListOffsets, against a model that is a list of bytes.
//!
//! Holds: what was accepted comes back byte for byte, with the offsets that the answer told and nothing else changed
//! than what the broker owns (offset, leader epoch, and the stamp where the topic says so); what was refused changes
//! nothing; a batch sent again is not stored twice; the ends, and the first record of a time, are where the model has
//! them; records that were deleted or retired are gone and no others; a clean restart changes nothing; no question
//! takes memory without bound.
//!
//! Input: operations, a byte that says which and bytes for what it needs.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use arbitrary::{Result, Unstructured};
use bytes::{Bytes, BytesMut};
use convoke::broker::{Broker, BrokerOptions, Produced, Storage};
use convoke::log::fault_fs::FaultFs;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteRecordsRequest, FetchRequest, ListOffsetsRequest, ProduceRequest,
    TopicName,
};
use kafka_protocol::protocol::StrBytes;

use crate::batches::{self, HEADER_BYTES, Shape, i32_at, i64_at};
use crate::{clockwork, memory};

const START_MS: i64 = 1_700_000_000_000;
const OPERATIONS_MAX: usize = 128;
/// What a question about a time may take, whatever is stored: a decompressor's window and its blocks.
const LIST_BYTES_MAX: usize = 24 << 20;
/// What any other operation may take beside the bytes that are there.
const OTHER_BYTES_MAX: usize = 4 << 20;
const OUT_OF_RANGE: i16 = 1;
const CORRUPT_MESSAGE: i16 = 2;

/// Each topic has one partition. Small segments, so that they roll.
const TOPICS: [(&str, &[(&str, &str)]); 4] = [
    ("plain", &[]),
    (
        "rolling",
        &[("internal.segment.bytes", "600"), ("flush.messages", "3")],
    ),
    (
        "stamped",
        &[
            ("message.timestamp.type", "LogAppendTime"),
            ("segment.ms", "1000"),
        ],
    ),
    (
        "narrow",
        &[
            ("max.message.bytes", "300"),
            ("internal.segment.bytes", "300"),
            ("retention.ms", "5000"),
        ],
    ),
];

/// A batch as it must be stored.
struct Stored {
    base: i64,
    bytes: Bytes,
    /// Offset and timestamp of each record, where the bytes are known to be well-formed.
    stamps: Option<Vec<(i64, i64)>>,
}

impl Stored {
    fn end(&self) -> i64 {
        self.base + i64::from(i32_at(&self.bytes, 23)) + 1
    }
}

#[derive(Default)]
struct Model {
    batches: Vec<Stored>,
    start: i64,
    end: i64,
}

struct Driver {
    disk: FaultFs,
    broker: Broker,
    now_ms: Arc<AtomicI64>,
    models: Vec<Model>,
}

fn name(name: &str) -> TopicName {
    TopicName(StrBytes::from_string(name.to_owned()))
}

fn open(disk: &FaultFs, now_ms: &Arc<AtomicI64>) -> Broker {
    let clock = now_ms.clone();
    let options = BrokerOptions {
        storage: Storage::Fs(disk.shared(), PathBuf::from("/topics")),
        clock: Arc::new(move || clock.load(Relaxed)),
        open_files_max: 8,
        // by hand
        retention_check_interval_ms: u64::MAX >> 2,
        ..BrokerOptions::default()
    };
    Broker::open(options, Box::new(|_| ()), Box::new(|_| ())).expect("its own data can be opened")
}

impl Driver {
    async fn new() -> Self {
        let disk = FaultFs::new();
        disk.shared()
            .create_dirs(&PathBuf::from("/topics"))
            .expect("there is room");
        let now_ms = Arc::new(AtomicI64::new(START_MS));
        let broker = open(&disk, &now_ms);
        let creatable = |(topic, configs): &(&str, &[(&str, &str)])| {
            let config = |(key, value): &(&str, &str)| {
                CreatableTopicConfig::default()
                    .with_name(StrBytes::from_string((*key).to_owned()))
                    .with_value(Some(StrBytes::from_string((*value).to_owned())))
            };
            CreatableTopic::default()
                .with_name(name(topic))
                .with_num_partitions(1)
                .with_replication_factor(1)
                .with_configs(configs.iter().map(config).collect())
        };
        let request =
            CreateTopicsRequest::default().with_topics(TOPICS.iter().map(creatable).collect());
        let created = broker.create_topics(request).await;
        assert!(
            created.topics.iter().all(|topic| topic.error_code == 0),
            "{created:?}"
        );
        Self {
            disk,
            broker,
            now_ms,
            models: TOPICS.iter().map(|_| Model::default()).collect(),
        }
    }

    /// A batch and, if it is well-formed, the timestamps of its records.
    fn batch(&self, u: &mut Unstructured<'_>) -> Result<(Vec<u8>, Option<Vec<i64>>)> {
        let kind: u8 = u.arbitrary()?;
        if kind >= 0xe0 {
            // any bytes, with a right length and checksum or without
            let length = usize::from(u.arbitrary::<u16>()? & 0x3ff).min(u.len());
            let mut bytes = u.bytes(length)?.to_vec();
            if kind & 1 == 0 && bytes.len() >= HEADER_BYTES {
                batches::mend(&mut bytes);
            }
            return Ok((bytes, None));
        }
        let count = usize::from(kind & 7) + 1;
        let mut timestamps = Vec::with_capacity(count);
        for _ in 0..count {
            let step: u8 = u.arbitrary()?;
            let now_ms = self.now_ms.load(Relaxed);
            timestamps
                .push(now_ms + i64::from(step.cast_signed()) * if step & 1 == 0 { 1 } else { 10 });
        }
        let who: u8 = u.arbitrary()?;
        let producer = match who {
            0..0xa0 => (-1, -1, -1),
            _ => (
                i64::from(who & 1) + 4,
                i16::from(who >> 1 & 1),
                i32::from(u.arbitrary::<u8>()? & 15),
            ),
        };
        let shape = Shape {
            timestamps: &timestamps,
            producer,
            value_bytes: usize::from(kind >> 3 & 3) * 40,
        };
        let mut bytes = shape.bytes();
        if kind < 0xa0 {
            return Ok((bytes, Some(timestamps)));
        }
        // one spot is different, or the records are something else
        let spot = usize::from(u.arbitrary::<u16>()?) % bytes.len();
        let byte: u8 = u.arbitrary()?;
        if kind < 0xc0 {
            bytes[spot] = byte;
        } else {
            let length = usize::from(u.arbitrary::<u16>()? & 0x3ff).min(u.len());
            bytes.truncate(HEADER_BYTES);
            bytes.extend_from_slice(u.bytes(length)?);
            bytes[22] = byte & 0x0f;
        }
        if spot & 7 != 0 {
            batches::mend(&mut bytes);
        }
        Ok((bytes, None))
    }

    async fn produce(&mut self, u: &mut Unstructured<'_>, topic: usize) -> Result<()> {
        let (mut sent, timestamps) = self.batch(u)?;
        let flags: u8 = u.arbitrary()?;
        if flags & 0xe0 == 0xe0 {
            sent.extend_from_slice(u.bytes(usize::from(flags & 7).min(u.len()))?);
        }
        let acks = match flags & 0x18 {
            0x18 => 0,
            _ => -1,
        };
        let partition = PartitionProduceData::default()
            .with_index(0)
            .with_records(Some(Bytes::from(sent.clone())));
        let data = TopicProduceData::default()
            .with_name(name(TOPICS[topic].0))
            .with_partition_data(vec![partition]);
        let request = ProduceRequest::default()
            .with_acks(acks)
            .with_topic_data(vec![data]);
        let answer = self
            .broker
            .produce(request, [9, 12, 3, 6][usize::from(flags & 3)])
            .await;
        let bounds = self
            .broker
            .bounds(TOPICS[topic].0, 0)
            .expect("there is such a partition");
        let end = self.models[topic].end;
        let (error, base) = match &answer {
            Produced::Reply(reply) => {
                let partition = &reply.responses[0].partition_responses[0];
                (partition.error_code, partition.base_offset)
            }
            Produced::Silent if bounds.end > end => (0, end),
            // sent again, and nobody is told where it is
            Produced::Silent => return Ok(()),
            Produced::Close => (-1, -1),
        };
        if error != 0 {
            assert!(timestamps.is_none() || bounds.end == end);
            assert_eq!(bounds.end, end, "a refused batch moved the end");
            assert_eq!((base, acks == 0), (-1, matches!(answer, Produced::Close)));
            return Ok(());
        }
        let bytes = i32_at(&sent, 8) as usize + 12;
        let mut stored = BytesMut::from(&sent[..bytes]);
        let append_time = topic == 2;
        stored[..8].copy_from_slice(&base.to_be_bytes());
        stored[12..16].copy_from_slice(&0i32.to_be_bytes());
        stored[22] = stored[22] & !8 | if append_time { 8 } else { 0 };
        if append_time {
            stored[35..43].copy_from_slice(&self.now_ms.load(Relaxed).to_be_bytes());
        }
        let crc = crc32c::crc32c(&stored[21..]);
        stored[17..21].copy_from_slice(&crc.to_be_bytes());
        let model = &mut self.models[topic];
        if base < end {
            let found = model.batches.iter().find(|batch| batch.base == base);
            // its first copy may be gone by now, but never be another producer's
            let same = found.is_none_or(|found| found.bytes[43..57] == stored[43..57]);
            assert!(
                same && i64_at(&stored, 43) >= 0,
                "offset {base} is another batch's"
            );
            assert_eq!(bounds.end, end, "a batch was stored twice");
            return Ok(());
        }
        assert_eq!(base, end, "offsets have a gap");
        let stamp_of = |ms: &i64| match append_time {
            true => i64_at(&stored, 35),
            false => *ms,
        };
        let stamps =
            timestamps.map(|timestamps| (base..).zip(timestamps.iter().map(stamp_of)).collect());
        let batch = Stored {
            base,
            bytes: stored.freeze(),
            stamps,
        };
        model.end = batch.end();
        assert_eq!(bounds.end, model.end);
        model.batches.push(batch);
        Ok(())
    }

    async fn fetch(&self, u: &mut Unstructured<'_>, topic: usize) -> Result<()> {
        let model = &self.models[topic];
        let offset = self.offset(u, topic)?;
        let limit: u8 = u.arbitrary()?;
        let max_bytes = [0, 1, 60, 100, 200, 500, 1 << 20, i32::MAX][usize::from(limit & 7)];
        let partition = FetchPartition::default()
            .with_partition(0)
            .with_fetch_offset(offset)
            .with_current_leader_epoch(-1)
            .with_last_fetched_epoch(-1)
            .with_partition_max_bytes(max_bytes);
        let asked = FetchTopic::default()
            .with_topic(name(TOPICS[topic].0))
            .with_partitions(vec![partition]);
        let request = FetchRequest::default()
            .with_max_bytes(1 << 20)
            .with_min_bytes(i32::from(limit >> 3 & 1))
            .with_max_wait_ms(i32::from(limit >> 4) * 10)
            .with_session_epoch(-1)
            .with_topics(vec![asked]);
        let answer = self.broker.fetch(request, 12).await;
        let data = &answer.responses[0].partitions[0];
        let inside = (model.start..=model.end).contains(&offset);
        assert_eq!(
            data.error_code,
            if inside { 0 } else { OUT_OF_RANGE },
            "offset {offset}"
        );
        if !inside {
            return Ok(());
        }
        assert_eq!(
            (data.high_watermark, data.log_start_offset),
            (model.end, model.start)
        );
        let got = data.records.clone().unwrap_or_default();
        let from = model.batches.partition_point(|batch| batch.end() <= offset);
        let mut left = &got[..];
        for batch in &model.batches[from..] {
            if left.is_empty() {
                break;
            }
            let Some(rest) = left.strip_prefix(&batch.bytes[..]) else {
                panic!("offset {} comes back changed", batch.base);
            };
            left = rest;
        }
        assert!(left.is_empty(), "bytes come back that nobody sent");
        assert!(
            from == model.batches.len() || !got.is_empty(),
            "nothing comes back of offset {offset}"
        );
        Ok(())
    }

    /// An offset: mostly near something.
    fn offset(&self, u: &mut Unstructured<'_>, topic: usize) -> Result<i64> {
        let model = &self.models[topic];
        let n: u8 = u.arbitrary()?;
        Ok(match n {
            0xff => i64::MAX,
            0xfe => i64::MIN,
            0xe0.. => model.end + i64::from(n & 3) - 1,
            0xc0.. => model.start + i64::from(n & 3) - 1,
            _ => i64::from(n),
        })
    }

    async fn list(&self, u: &mut Unstructured<'_>, topic: usize) -> Result<()> {
        let model = &self.models[topic];
        let n: u8 = u.arbitrary()?;
        let timestamp = match n {
            0..0x10 => -1,
            0x10..0x20 => -2,
            0x20..0x40 => -3,
            0x40 => -4,
            0x41 => i64::MAX,
            0x42 => 0,
            0x43 => -100,
            _ => self.now_ms.load(Relaxed) + (i64::from(n) - 0xc0) * 20,
        };
        let partition = ListOffsetsPartition::default()
            .with_timestamp(timestamp)
            .with_current_leader_epoch(-1);
        let asked = ListOffsetsTopic::default()
            .with_name(name(TOPICS[topic].0))
            .with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default().with_topics(vec![asked]);
        let watch = memory::watch();
        let answer = self.broker.list_offsets(request, 10).await;
        watch.check("a question about a time", LIST_BYTES_MAX);
        let found = &answer.topics[0].partitions[0];
        match timestamp {
            -1 => assert_eq!((found.error_code, found.offset), (0, model.end)),
            -2 | -4 => assert_eq!((found.error_code, found.offset), (0, model.start)),
            -100 => assert_ne!(found.error_code, 0),
            _ if found.error_code != 0 => {
                assert_eq!(found.error_code, CORRUPT_MESSAGE);
                let all_known = model.batches.iter().all(|batch| batch.stamps.is_some());
                assert!(!all_known, "a good batch cannot be opened");
            }
            _ => self.compare_time(model, timestamp, found.offset, found.timestamp),
        }
        Ok(())
    }

    fn compare_time(&self, model: &Model, timestamp: i64, offset: i64, stamp: i64) {
        let mut known = Vec::new();
        for batch in &model.batches {
            match &batch.stamps {
                Some(stamps) => known.extend(stamps.iter().filter(|(at, _)| *at >= model.start)),
                None => return,
            }
        }
        let wanted = match timestamp {
            -3 => {
                // the largest of whole batches, though records in front of the start are not answered
                let all = model
                    .batches
                    .iter()
                    .flat_map(|batch| batch.stamps.iter().flatten());
                match all.map(|(_, ms)| *ms).max() {
                    Some(largest) => largest,
                    None => i64::MAX,
                }
            }
            _ => timestamp,
        };
        let first = known.into_iter().find(|(_, ms)| *ms >= wanted);
        let expected = first.unwrap_or((-1, -1));
        assert_eq!((offset, stamp), expected, "the first record of {timestamp}");
    }

    async fn delete(&mut self, u: &mut Unstructured<'_>, topic: usize) -> Result<()> {
        let offset = match self.offset(u, topic)? {
            i64::MIN => -1,
            offset => offset,
        };
        let partition = DeleteRecordsPartition::default().with_offset(offset);
        let asked = DeleteRecordsTopic::default()
            .with_name(name(TOPICS[topic].0))
            .with_partitions(vec![partition]);
        let request = DeleteRecordsRequest::default().with_topics(vec![asked]);
        let answer = self.broker.delete_records(request).await;
        let answer = &answer.topics[0].partitions[0];
        let model = &mut self.models[topic];
        let to = if offset == -1 { model.end } else { offset };
        if (0..=model.end).contains(&to) {
            model.start = model.start.max(to);
            assert_eq!((answer.error_code, answer.low_watermark), (0, model.start));
        } else {
            assert_ne!(answer.error_code, 0, "records up to {to} cannot be deleted");
        }
        Ok(())
    }

    /// What may be gone after retention or a deletion is only what lies before the start.
    fn look(&mut self) {
        for ((topic, _), model) in TOPICS.iter().zip(&mut self.models) {
            let bounds = self
                .broker
                .bounds(topic, 0)
                .expect("there is such a partition");
            assert_eq!((bounds.end, bounds.last_stable), (model.end, model.end));
            assert!(bounds.log_start >= model.start && bounds.log_start <= model.end);
            if bounds.log_start > model.start {
                let at_batch = model
                    .batches
                    .iter()
                    .any(|batch| batch.base == bounds.log_start);
                assert!(
                    at_batch || bounds.log_start == model.end,
                    "half a batch was retired"
                );
                model.start = bounds.log_start;
            }
            model.batches.retain(|batch| batch.end() > model.start);
        }
    }

    async fn operation(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let n: u8 = u.arbitrary()?;
        let topic = usize::from(n >> 6);
        match n & 15 {
            0..=6 => self.produce(u, topic).await?,
            7 | 8 => self.fetch(u, topic).await?,
            9 | 10 => self.list(u, topic).await?,
            11 => self.delete(u, topic).await?,
            12 | 13 => {
                let ms = [1, 100, 1_500, 6_000][usize::from(n >> 4 & 3)];
                self.now_ms.fetch_add(ms, Relaxed);
            }
            14 => self.broker.retain().await,
            _ => {
                self.broker
                    .close()
                    .await
                    .expect("a good disk takes everything");
                let again = open(&self.disk, &self.now_ms);
                self.broker = again;
            }
        }
        self.look();
        Ok(())
    }
}

/// One input.
///
/// # Panics
/// That is how the target fails.
pub fn run(data: &[u8]) {
    clockwork::run(async {
        let mut u = Unstructured::new(data);
        let mut driver = Driver::new().await;
        for _ in 0..OPERATIONS_MAX {
            if u.is_empty() {
                break;
            }
            let stored: usize = driver
                .models
                .iter()
                .flat_map(|m| &m.batches)
                .map(|b| b.bytes.len())
                .sum();
            let allowance_bytes = LIST_BYTES_MAX.max(OTHER_BYTES_MAX + 64 * (stored + data.len()));
            let before = memory::watch();
            let done = driver.operation(&mut u).await;
            before.check("an operation", allowance_bytes);
            if done.is_err() {
                break;
            }
        }
        for topic in 0..TOPICS.len() {
            let (from, end) = (driver.models[topic].start, driver.models[topic].end);
            for offset in [from, (from + end) / 2, end] {
                let ask = [offset.clamp(0, 0xbf) as u8, 0x06];
                driver
                    .fetch(&mut Unstructured::new(&ask), topic)
                    .await
                    .expect("it has its bytes");
            }
        }
    });
}
