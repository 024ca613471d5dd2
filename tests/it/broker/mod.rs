//! The data plane as a whole, called through its door: no sockets, no groups. This file holds what the tests share.

mod configs;
mod data;
mod faults;
mod restart;
mod topics;
mod versions;

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use convoke::broker::{
    Bounds, Broker, BrokerOptions, ConfigKind, Error, GroupConfigKey, GroupConfigsChange, Listener,
    OFFSETS_TOPIC, Produced, Storage, TopicsChange,
};
use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsSynonym;
use kafka_protocol::messages::describe_log_dirs_request::DescribableLogDirTopic;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::incremental_alter_configs_request as incremental;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    AlterConfigsRequest, BrokerId, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest, DescribeTopicPartitionsRequest, FetchRequest,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, ListConfigResourcesRequest,
    ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest, ProduceRequest, TopicName,
    TransactionalId,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

const NOW_MS: i64 = 1_700_000_000_000;

/// A broker, its clock, and what it told.
struct World {
    broker: Broker,
    now_ms: Arc<AtomicI64>,
    told: Arc<Mutex<Vec<TopicsChange>>>,
    groups: Arc<Mutex<Vec<GroupConfigsChange>>>,
}

fn group_key(name: &str, default: i64, min: i64, max: i64) -> GroupConfigKey {
    GroupConfigKey {
        name: name.to_owned(),
        kind: ConfigKind::Int,
        default: default.to_string(),
        built_in: "45000".to_owned(),
        min,
        max,
        broker_key: Some(format!("group.{name}")),
        exceeds: (name == "consumer.session.timeout.ms")
            .then(|| "consumer.heartbeat.interval.ms".to_owned()),
        doc: "A time.".to_owned(),
    }
}

fn options(storage: Storage, now_ms: &Arc<AtomicI64>) -> BrokerOptions {
    let clock = Arc::clone(now_ms);
    BrokerOptions {
        storage,
        cluster_id: "c1".to_owned(),
        rack: Some("r1".to_owned()),
        num_partitions: 3,
        group_configs: vec![
            group_key("consumer.session.timeout.ms", 45_000, 45_000, 60_000),
            group_key("consumer.heartbeat.interval.ms", 5_000, 5_000, 50_000),
        ],
        clock: Arc::new(move || clock.load(Ordering::Relaxed)),
        ..BrokerOptions::default()
    }
}

fn try_open(options: BrokerOptions, now_ms: Arc<AtomicI64>) -> Result<World, Error> {
    let told = Arc::new(Mutex::new(Vec::new()));
    let groups = Arc::new(Mutex::new(Vec::new()));
    let (tell, tell_groups) = (Arc::clone(&told), Arc::clone(&groups));
    let broker = Broker::open(
        options,
        Box::new(move |change| tell.lock().unwrap().push(change)),
        Box::new(move |change| tell_groups.lock().unwrap().push(change)),
    )?;
    Ok(World {
        broker,
        now_ms,
        told,
        groups,
    })
}

fn open(storage: Storage) -> World {
    let now_ms = Arc::new(AtomicI64::new(NOW_MS));
    try_open(options(storage, &now_ms), now_ms).unwrap()
}

fn memory() -> World {
    open(Storage::Memory)
}

fn on_disk(dir: &Path) -> World {
    open(Storage::Dir(dir.to_owned()))
}

fn run<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test)
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic_name(name: &str) -> TopicName {
    TopicName(text(name))
}

/// An uncompressed batch of records with these timestamps, zero bytes as values.
fn batch(timestamps: &[i64], value_bytes: usize) -> Vec<u8> {
    batch_by(timestamps, value_bytes, (-1, -1, -1))
}

fn batch_by(timestamps: &[i64], value_bytes: usize, producer: (i64, i16, i32)) -> Vec<u8> {
    let mut out = vec![0; 61];
    out[16] = 2;
    out[23..27].copy_from_slice(&(timestamps.len() as i32 - 1).to_be_bytes());
    out[27..35].copy_from_slice(&timestamps[0].to_be_bytes());
    out[35..43].copy_from_slice(&timestamps.iter().max().unwrap().to_be_bytes());
    out[43..51].copy_from_slice(&producer.0.to_be_bytes());
    out[51..53].copy_from_slice(&producer.1.to_be_bytes());
    out[53..57].copy_from_slice(&producer.2.to_be_bytes());
    out[57..61].copy_from_slice(&(timestamps.len() as i32).to_be_bytes());
    for (index, timestamp) in timestamps.iter().enumerate() {
        let mut record = vec![0];
        for number in [
            timestamp - timestamps[0],
            index as i64,
            -1,
            value_bytes as i64,
        ] {
            varint(number, &mut record);
        }
        record.resize(record.len() + value_bytes, 0);
        record.push(0);
        varint(record.len() as i64, &mut out);
        out.extend(record);
    }
    seal(out)
}

fn varint(value: i64, out: &mut Vec<u8>) {
    let mut left = ((value << 1) ^ (value >> 63)) as u64;
    while left >= 0x80 {
        out.push(left as u8 | 0x80);
        left >>= 7;
    }
    out.push(left as u8);
}

/// Sets the length and the CRC.
fn seal(mut batch: Vec<u8>) -> Vec<u8> {
    let length = batch.len() as i32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// A batch with some bytes changed and the CRC made right again.
fn changed(at: usize, bytes: &[u8]) -> Vec<u8> {
    let mut batch = batch(&[NOW_MS], 1);
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    let crc = crc32c::crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch
}

impl World {
    async fn create(&self, name: &str, partitions: i32, configs: &[(&str, &str)]) -> Uuid {
        let topic = CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(partitions)
            .with_replication_factor(-1)
            .with_configs(
                configs
                    .iter()
                    .map(|(key, value)| config(key, Some(value)))
                    .collect(),
            );
        let response = self
            .broker
            .create_topics(CreateTopicsRequest::default().with_topics(vec![topic]))
            .await;
        assert_eq!(
            response.topics[0].error_code, 0,
            "{:?}",
            response.topics[0].error_message
        );
        response.topics[0].topic_id
    }

    /// The code CreateTopics answers for one topic.
    async fn refusal(&self, topic: CreatableTopic) -> i16 {
        let request = CreateTopicsRequest::default().with_topics(vec![topic]);
        let response = self.broker.create_topics(request).await;
        assert_eq!(
            response.topics[0].error_code == 0,
            response.topics[0].error_message.is_none()
        );
        response.topics[0].error_code
    }

    async fn produce(
        &self,
        topic: &str,
        partition: i32,
        records: Vec<u8>,
    ) -> PartitionProduceResponse {
        let request = produce_request(topic, partition, records, -1);
        match self.broker.produce(request, 9).await {
            Produced::Reply(mut response) => {
                response.responses.remove(0).partition_responses.remove(0)
            }
            other => panic!("{other:?}"),
        }
    }

    async fn fill(&self, topic: &str, partition: i32, timestamps: &[i64]) -> i64 {
        let response = self.produce(topic, partition, batch(timestamps, 10)).await;
        assert_eq!(response.error_code, 0, "{:?}", response.error_message);
        response.base_offset
    }

    async fn fetch_one(&self, request: FetchRequest, version: i16) -> PartitionData {
        let mut response = self.broker.fetch(request, version).await;
        assert_eq!(response.error_code, 0);
        response.responses.remove(0).partitions.remove(0)
    }

    async fn offset(&self, topic: &str, timestamp: i64, version: i16) -> (i16, i64, i64) {
        let partition = ListOffsetsPartition::default()
            .with_timestamp(timestamp)
            .with_current_leader_epoch(-1);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name(topic))
            .with_partitions(vec![partition]);
        let response = self
            .broker
            .list_offsets(
                ListOffsetsRequest::default().with_topics(vec![topic]),
                version,
            )
            .await;
        let found = &response.topics[0].partitions[0];
        (found.error_code, found.timestamp, found.offset)
    }

    async fn metadata(
        &self,
        names: &[&str],
        version: i16,
        create: bool,
    ) -> Vec<(i16, String, usize)> {
        let topics = names
            .iter()
            .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))));
        let request = MetadataRequest::default()
            .with_topics(Some(topics.collect()))
            .with_allow_auto_topic_creation(create);
        let response = self
            .broker
            .metadata(request, version, &Listener::default())
            .await;
        let tell = |topic: &kafka_protocol::messages::metadata_response::MetadataResponseTopic| {
            (
                topic.error_code,
                topic.name.as_ref().unwrap().to_string(),
                topic.partitions.len(),
            )
        };
        response.topics.iter().map(tell).collect()
    }

    async fn configs_of(&self, kind: i8, name: &str) -> BTreeMap<String, (String, i8)> {
        let resource = DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configuration_keys(None);
        let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
        let response = self.broker.describe_configs(&request, 4);
        let configs = response.results[0].configs.iter();
        configs
            .map(|c| {
                (
                    c.name.to_string(),
                    (
                        c.value.clone().unwrap_or_default().to_string(),
                        c.config_source,
                    ),
                )
            })
            .collect()
    }

    async fn alter(
        &self,
        kind: i8,
        name: &str,
        key: &str,
        operation: i8,
        value: Option<&str>,
    ) -> i16 {
        let config = incremental::AlterableConfig::default()
            .with_name(text(key))
            .with_config_operation(operation)
            .with_value(value.map(text));
        let resource = incremental::AlterConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(text(name))
            .with_configs(vec![config]);
        let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
        self.broker
            .incremental_alter_configs(request)
            .await
            .responses[0]
            .error_code
    }

    fn bounds(&self, topic: &str, partition: i32) -> (i64, i64) {
        let Bounds { log_start, end, .. } = self.broker.bounds(topic, partition).unwrap();
        (log_start, end)
    }
}

fn config(key: &str, value: Option<&str>) -> CreatableTopicConfig {
    CreatableTopicConfig::default()
        .with_name(text(key))
        .with_value(value.map(text))
}

fn creatable(name: &str) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(1)
        .with_replication_factor(1)
}

fn produce_request(topic: &str, partition: i32, records: Vec<u8>, acks: i16) -> ProduceRequest {
    let data = PartitionProduceData::default()
        .with_index(partition)
        .with_records(Some(Bytes::from(records)));
    let topic = TopicProduceData::default()
        .with_name(topic_name(topic))
        .with_partition_data(vec![data]);
    ProduceRequest::default()
        .with_acks(acks)
        .with_topic_data(vec![topic])
}

fn fetch_request(topic: &str, partitions: &[(i32, i64)]) -> FetchRequest {
    let partition = |(index, offset): &(i32, i64)| {
        FetchPartition::default()
            .with_partition(*index)
            .with_fetch_offset(*offset)
            .with_current_leader_epoch(-1)
            .with_last_fetched_epoch(-1)
            .with_partition_max_bytes(1 << 20)
    };
    let topic = FetchTopic::default()
        .with_topic(topic_name(topic))
        .with_partitions(partitions.iter().map(partition).collect());
    FetchRequest::default()
        .with_max_bytes(1 << 20)
        .with_min_bytes(1)
        .with_max_wait_ms(0)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}
