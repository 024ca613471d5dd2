//! Every version of every data plane API that is advertised gets an answer that its layout can hold, with a topic that
//! has records and with one that does not exist.

use std::time::{Duration, SystemTime};

use bytes::{Bytes, BytesMut};
use convoke::Server;
use convoke::client::Client;
use kafka_protocol::indexmap::IndexMap;
use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::incremental_alter_configs_request as incremental;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Request, StrBytes};
use kafka_protocol::records::{
    Compression, NO_PARTITION_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Record,
    RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use uuid::Uuid;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);
const TOPIC: &str = "versions";
const ABSENT: &str = "not-there";

fn s(text: &'static str) -> StrBytes {
    StrBytes::from_static_str(text)
}

fn name(text: &'static str) -> TopicName {
    TopicName(s(text))
}

fn one_record() -> Bytes {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
    let record = Record {
        transactional: false,
        control: false,
        delete_horizon: false,
        partition_leader_epoch: NO_PARTITION_LEADER_EPOCH,
        producer_id: NO_PRODUCER_ID,
        producer_epoch: NO_PRODUCER_EPOCH,
        timestamp_type: TimestampType::Creation,
        offset: 0,
        sequence: NO_SEQUENCE,
        timestamp: i64::try_from(now).unwrap(),
        key: None,
        value: Some(Bytes::from_static(b"value")),
        headers: IndexMap::default(),
    };
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut bytes = BytesMut::new();
    RecordBatchEncoder::encode(&mut bytes, [&record], &options).unwrap();
    bytes.freeze()
}

struct Every {
    bootstrap: String,
    topic_id: Uuid,
    wrong: Vec<String>,
}

impl Every {
    /// Asks in every version that both the server and kafka-protocol have.
    async fn ask<R: Request>(&mut self, what: &str, request: impl Fn(&Self, i16) -> R) {
        let offered = Client::connect(&self.bootstrap)
            .await
            .unwrap()
            .offered(R::KEY);
        let Some((min, max)) = offered else {
            self.wrong.push(format!("{what} is not offered"));
            return;
        };
        for version in min.max(R::VERSIONS.min)..=max.min(R::VERSIONS.max) {
            if R::KEY == ProduceRequest::KEY && version < 3 {
                continue;
            }
            let client = Client::connect(&self.bootstrap).await.unwrap();
            let request = request(self, version);
            let reply = tokio::time::timeout(PATIENCE, client.send_as(version, &request)).await;
            match reply {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => self
                    .wrong
                    .push(format!("{what} version {version}: {error}")),
                Err(_) => self
                    .wrong
                    .push(format!("{what} version {version}: no answer")),
            }
        }
    }
}

/// A topic by id where the version has no name, by name where it has no id.
macro_rules! by_name_or_id {
    ($every:ident, $topic:expr, $text:expr, $name:ident, $id:ident, $by_id:expr) => {
        if $by_id {
            $topic.$id(if $text == TOPIC {
                $every.topic_id
            } else {
                Uuid::from_u128(7)
            })
        } else {
            $topic.$name(name($text))
        }
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_version_of_the_data_plane_is_answered() {
    let server = Server::builder().memory().start().await.unwrap();
    server.ready().await;
    let client = Client::connect(&server.bootstrap()).await.unwrap();
    let topic = CreatableTopic::default()
        .with_name(name(TOPIC))
        .with_num_partitions(2)
        .with_replication_factor(1);
    let created = client
        .send(&CreateTopicsRequest::default().with_topics(vec![topic]))
        .await
        .unwrap();
    assert_eq!(created.topics[0].error_code, 0);
    let mut every = Every {
        bootstrap: server.bootstrap(),
        topic_id: created.topics[0].topic_id,
        wrong: Vec::new(),
    };

    for text in [TOPIC, ABSENT] {
        every
            .ask("Produce", |every, version| {
                let partition = PartitionProduceData::default()
                    .with_index(0)
                    .with_records(Some(one_record()));
                let topic = TopicProduceData::default().with_partition_data(vec![partition]);
                let topic =
                    by_name_or_id!(every, topic, text, with_name, with_topic_id, version >= 13);
                ProduceRequest::default()
                    .with_acks(1)
                    .with_timeout_ms(1000)
                    .with_topic_data(vec![topic])
            })
            .await;
        every
            .ask("Fetch", |every, version| {
                let partition = FetchPartition::default()
                    .with_partition(0)
                    .with_partition_max_bytes(1 << 20);
                let topic = FetchTopic::default().with_partitions(vec![partition]);
                let topic =
                    by_name_or_id!(every, topic, text, with_topic, with_topic_id, version >= 13);
                FetchRequest::default()
                    .with_max_wait_ms(10)
                    .with_min_bytes(1)
                    .with_max_bytes(1 << 20)
                    .with_isolation_level(1)
                    .with_topics(vec![topic])
            })
            .await;
        for timestamp in [-1, -2, 0] {
            every
                .ask("ListOffsets", |_, _| {
                    let partition = ListOffsetsPartition::default()
                        .with_partition_index(0)
                        .with_timestamp(timestamp);
                    let topic = ListOffsetsTopic::default()
                        .with_name(name(text))
                        .with_partitions(vec![partition]);
                    ListOffsetsRequest::default()
                        .with_replica_id(BrokerId(-1))
                        .with_topics(vec![topic])
                })
                .await;
        }
        every
            .ask("Metadata", |_, version| {
                let topic = MetadataRequestTopic::default().with_name(Some(name(text)));
                MetadataRequest::default()
                    .with_topics(Some(vec![topic]))
                    .with_allow_auto_topic_creation(version < 4)
                    .with_include_topic_authorized_operations(version >= 8)
            })
            .await;
        every
            .ask("OffsetForLeaderEpoch", |_, _| {
                let partition = OffsetForLeaderPartition::default().with_partition(0);
                let topic = OffsetForLeaderTopic::default()
                    .with_topic(name(text))
                    .with_partitions(vec![partition]);
                OffsetForLeaderEpochRequest::default().with_topics(vec![topic])
            })
            .await;
        every
            .ask("DeleteRecords", |_, _| {
                let partition = DeleteRecordsPartition::default()
                    .with_partition_index(0)
                    .with_offset(0);
                let topic = DeleteRecordsTopic::default()
                    .with_name(name(text))
                    .with_partitions(vec![partition]);
                DeleteRecordsRequest::default()
                    .with_topics(vec![topic])
                    .with_timeout_ms(1000)
            })
            .await;
        for resource_type in [2, 4, 32] {
            every
                .ask("DescribeConfigs", |_, version| {
                    let resource = DescribeConfigsResource::default()
                        .with_resource_type(resource_type)
                        .with_resource_name(if resource_type == 4 { s("1") } else { s(text) })
                        .with_configuration_keys(None);
                    DescribeConfigsRequest::default()
                        .with_resources(vec![resource])
                        .with_include_synonyms(true)
                        .with_include_documentation(version >= 3)
                })
                .await;
        }
        every
            .ask("AlterConfigs", |_, _| {
                let config = AlterableConfig::default()
                    .with_name(s("retention.ms"))
                    .with_value(Some(s("100000")));
                let resource = AlterConfigsResource::default()
                    .with_resource_type(2)
                    .with_resource_name(s(text))
                    .with_configs(vec![config]);
                AlterConfigsRequest::default().with_resources(vec![resource])
            })
            .await;
        every
            .ask("IncrementalAlterConfigs", |_, _| {
                let config = incremental::AlterableConfig::default()
                    .with_name(s("retention.ms"))
                    .with_value(Some(s("200000")));
                let resource = incremental::AlterConfigsResource::default()
                    .with_resource_type(2)
                    .with_resource_name(s(text))
                    .with_configs(vec![config]);
                IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
            })
            .await;
        every
            .ask("CreatePartitions", |_, _| {
                let topic = CreatePartitionsTopic::default()
                    .with_name(name(text))
                    .with_count(3);
                CreatePartitionsRequest::default()
                    .with_topics(vec![topic])
                    .with_timeout_ms(1000)
            })
            .await;
        every
            .ask("DescribeTopicPartitions", |_, _| {
                let topic = TopicRequest::default().with_name(name(text));
                DescribeTopicPartitionsRequest::default()
                    .with_topics(vec![topic])
                    .with_response_partition_limit(10)
            })
            .await;
    }
    every
        .ask("Metadata of all", |_, version| {
            let all = if version == 0 { Some(Vec::new()) } else { None };
            MetadataRequest::default().with_topics(all)
        })
        .await;
    every
        .ask("CreateTopics", |_, _| {
            let config = CreatableTopicConfig::default()
                .with_name(s("retention.ms"))
                .with_value(Some(s("1000")));
            let topic = CreatableTopic::default()
                .with_name(name("made"))
                .with_num_partitions(1)
                .with_replication_factor(1)
                .with_configs(vec![config]);
            CreateTopicsRequest::default()
                .with_topics(vec![topic])
                .with_timeout_ms(1000)
        })
        .await;
    every
        .ask("InitProducerId", |_, _| {
            InitProducerIdRequest::default().with_transactional_id(None)
        })
        .await;
    every
        .ask("InitProducerId with a transactional id", |_, _| {
            InitProducerIdRequest::default()
                .with_transactional_id(Some(TransactionalId(s("t"))))
                .with_transaction_timeout_ms(1000)
        })
        .await;
    every
        .ask("DescribeLogDirs", |_, _| {
            DescribeLogDirsRequest::default().with_topics(None)
        })
        .await;
    every
        .ask("DescribeAcls", |_, version| {
            DescribeAclsRequest::default()
                .with_resource_type_filter(2)
                .with_pattern_type_filter(if version >= 1 { 3 } else { 0 })
                .with_operation(1)
                .with_permission_type(1)
        })
        .await;
    every
        .ask("ListPartitionReassignments", |_, _| {
            ListPartitionReassignmentsRequest::default().with_topics(None)
        })
        .await;
    every
        .ask("DescribeCluster", |_, _| DescribeClusterRequest::default())
        .await;
    every
        .ask("ListTransactions", |_, _| {
            ListTransactionsRequest::default()
        })
        .await;
    every
        .ask("ListConfigResources", |_, _| {
            ListConfigResourcesRequest::default()
        })
        .await;
    every
        .ask("DeleteTopics", |_, version| {
            let request = DeleteTopicsRequest::default().with_timeout_ms(1000);
            if version >= 6 {
                let topic = DeleteTopicState::default().with_name(Some(name("made")));
                request.with_topics(vec![topic])
            } else {
                request.with_topic_names(vec![name("made")])
            }
        })
        .await;
    assert!(every.wrong.is_empty(), "{}", every.wrong.join("\n"));
    server.stop().await.unwrap();
}
