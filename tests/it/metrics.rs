//! What `/metrics` shows moves with what clients do.

use bytes::{Bytes, BytesMut};
use convoke::Server;
use convoke::client::Client;
use convoke::config::Config;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, FetchRequest, GroupId, HeartbeatRequest,
    OffsetCommitRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};

fn topic() -> TopicName {
    TopicName(StrBytes::from_static_str("t"))
}

fn batch(count: i64) -> Bytes {
    let records: Vec<_> = (0..count)
        .map(|offset| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            timestamp_type: TimestampType::Creation,
            offset,
            // The encoder makes one batch of records whose sequences follow each other.
            sequence: i32::try_from(offset).unwrap() - 1,
            timestamp: 0,
            key: None,
            value: Some(Bytes::from_static(b"v")),
            headers: Default::default(),
        })
        .collect();
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut bytes = BytesMut::new();
    RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();
    bytes.freeze()
}

async fn create(client: &Client) {
    let wanted = CreatableTopic::default()
        .with_name(topic())
        .with_num_partitions(2)
        .with_replication_factor(1);
    let request = CreateTopicsRequest::default()
        .with_topics(vec![wanted])
        .with_timeout_ms(30_000);
    assert_eq!(client.send(&request).await.unwrap().topics[0].error_code, 0);
}

async fn produce(client: &Client, records: Bytes) {
    let partition = PartitionProduceData::default()
        .with_index(1)
        .with_records(Some(records));
    let data = TopicProduceData::default()
        .with_name(topic())
        .with_partition_data(vec![partition]);
    let request = ProduceRequest::default()
        .with_acks(-1)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![data]);
    let reply = client.send_as(9, &request).await.unwrap();
    assert_eq!(reply.responses[0].partition_responses[0].error_code, 0);
}

async fn fetch(client: &Client) {
    let partition = FetchPartition::default()
        .with_partition(1)
        .with_partition_max_bytes(1 << 20);
    let asked = FetchTopic::default()
        .with_topic(topic())
        .with_partitions(vec![partition]);
    let request = FetchRequest::default()
        .with_max_wait_ms(30_000)
        .with_min_bytes(1)
        .with_max_bytes(1 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![asked]);
    let reply = client.send_as(12, &request).await.unwrap();
    assert_eq!(reply.responses[0].partitions[0].error_code, 0);
}

async fn commit(client: &Client) {
    let partitions = (0..2).map(|index| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(index)
            .with_committed_offset(7)
    });
    let committed = OffsetCommitRequestTopic::default()
        .with_name(topic())
        .with_partitions(partitions.collect());
    let request = OffsetCommitRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_generation_id_or_member_epoch(-1)
        .with_topics(vec![committed]);
    let reply = client.send_as(8, &request).await.unwrap();
    assert!(
        reply.topics[0]
            .partitions
            .iter()
            .all(|partition| partition.error_code == 0)
    );
}

#[tokio::test]
async fn metrics_show_what_clients_did() {
    let server = Server::builder().memory().start().await.unwrap();
    server.ready().await;
    let client = Client::connect(server.bootstrap()).await.unwrap();
    create(&client).await;
    let records = batch(3);
    produce(&client, records.clone()).await;
    fetch(&client).await;
    commit(&client).await;
    let stranger = HeartbeatRequest::default()
        .with_group_id(GroupId(StrBytes::from_static_str("g")))
        .with_member_id(StrBytes::from_static_str("nobody"));
    assert_eq!(client.send(&stranger).await.unwrap().error_code, 25);

    let text = server.observer().scrape().await;
    let bytes = records.len();
    for line in [
        "convoke_ready 1",
        "convoke_connections 1",
        "convoke_connections_accepted_total 1",
        r#"convoke_shards{state="active"} 50"#,
        // The topic, and the group log's stand-in.
        "convoke_topics 2",
        "convoke_partitions 52",
        "convoke_produced_records_total 3",
        &format!("convoke_produced_bytes_total {bytes}"),
        &format!("convoke_fetched_bytes_total {bytes}"),
        "convoke_offset_commits_total 2",
        "convoke_offset_count 2",
        r#"convoke_group_count{protocol="classic"} 1"#,
        r#"convoke_requests_total{api="OffsetCommit",version="8"} 1"#,
        r#"convoke_request_errors_total{api="Heartbeat",error="UNKNOWN_MEMBER_ID"} 1"#,
        r#"convoke_request_seconds_count{api="Fetch"} 1"#,
        "convoke_shard_load_seconds_count 50",
    ] {
        assert!(
            text.contains(&format!("{line}\n")),
            "{line} is not in\n{text}"
        );
    }
    for moved in [
        "convoke_received_bytes_total",
        "convoke_sent_bytes_total",
        "convoke_topic_data_bytes",
    ] {
        assert!(
            !text.contains(&format!("{moved} 0\n")),
            "{moved} has not moved:\n{text}"
        );
    }
    server.stop().await.unwrap();
}

#[tokio::test]
async fn topics_stay_where_deletion_is_disabled() {
    let keep = |config: &mut Config| config.delete_topic_enable = false;
    let server = Server::builder().memory().with(keep).start().await.unwrap();
    let client = Client::connect(server.bootstrap()).await.unwrap();
    create(&client).await;
    let named = DeleteTopicsRequest::default().with_topic_names(vec![topic()]);
    for (version, error_code) in [(2, 42), (3, 73)] {
        let reply = client.send_as(version, &named).await.unwrap();
        assert_eq!(reply.responses[0].error_code, error_code);
    }
    let state = DeleteTopicState::default().with_name(Some(topic()));
    let request = DeleteTopicsRequest::default().with_topics(vec![state]);
    let reply = client.send_as(6, &request).await.unwrap();
    assert_eq!(reply.responses[0].error_code, 73);
    assert_eq!(reply.responses[0].name, Some(topic()));
    server.stop().await.unwrap();
}
