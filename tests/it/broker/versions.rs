//! Every answer can be written in every version that is offered.

use std::ops::RangeInclusive;

use bytes::BytesMut;
use kafka_protocol::protocol::Encodable;

use super::*;

async fn each<R: Encodable>(versions: RangeInclusive<i16>, mut answer: impl AsyncFnMut(i16) -> R) {
    for version in versions {
        let answer = answer(version).await;
        answer
            .encode(&mut BytesMut::new(), version)
            .unwrap_or_else(|error| {
                panic!("{} {version}: {error}", std::any::type_name::<R>());
            });
    }
}

#[test]
fn answers_can_be_written_in_every_version() {
    run(async {
        let world = memory();
        world.create("t", 1, &[]).await;
        world.fill("t", 0, &[NOW_MS]).await;
        let id = world.broker.topics().get("t").unwrap().id;
        let broker = &world.broker;
        let listener = Listener {
            host: text("h"),
            port: 1,
        };

        each(0..=13, async |version| {
            let name = |name| MetadataRequestTopic::default().with_name(Some(topic_name(name)));
            let topics = vec![name("t"), name("b d")];
            broker
                .metadata(
                    MetadataRequest::default().with_topics(Some(topics)),
                    version,
                    &listener,
                )
                .await
        })
        .await;
        each(3..=13, async |version| {
            let mut request = produce_request("t", 0, batch(&[NOW_MS], 1), 1);
            request
                .topic_data
                .push(produce_request("u", 0, Vec::new(), 1).topic_data.remove(0));
            if version >= 13 {
                for topic in &mut request.topic_data {
                    (topic.name, topic.topic_id) = (topic_name(""), id);
                }
            }
            match broker.produce(request, version).await {
                Produced::Reply(answer) => answer,
                other => panic!("{other:?}"),
            }
        })
        .await;
        each(4..=18, async |version| {
            let mut request = fetch_request("t", &[(0, 0), (0, 99), (9, 0)]);
            request.topics[0].partitions[0].last_fetched_epoch = 0;
            if version >= 13 {
                (request.topics[0].topic, request.topics[0].topic_id) = (topic_name(""), id);
            }
            broker.fetch(request, version).await
        })
        .await;
        each(1..=10, async |version| {
            let partition = |timestamp| ListOffsetsPartition::default().with_timestamp(timestamp);
            let topic = |name: &str, timestamp| {
                let partitions = vec![partition(timestamp)];
                ListOffsetsTopic::default()
                    .with_name(topic_name(name))
                    .with_partitions(partitions)
            };
            let topics = vec![topic("t", -1), topic("u", 0)];
            broker
                .list_offsets(ListOffsetsRequest::default().with_topics(topics), version)
                .await
        })
        .await;
        each(2..=7, async |version| {
            let topics = vec![creatable(&format!("c{version}")), creatable("b d")];
            broker
                .create_topics(CreateTopicsRequest::default().with_topics(topics))
                .await
        })
        .await;
        each(1..=6, async |version| {
            let names = vec![topic_name(&format!("c{version}")), topic_name("nope")];
            let state =
                |name: &TopicName| DeleteTopicState::default().with_name(Some(name.clone()));
            let request = match version {
                6 => DeleteTopicsRequest::default().with_topics(names.iter().map(state).collect()),
                _ => DeleteTopicsRequest::default().with_topic_names(names),
            };
            broker.delete_topics(request, version).await
        })
        .await;
        each(1..=4, async |version| {
            let resource = DescribeConfigsResource::default()
                .with_resource_type(2)
                .with_resource_name(text("t"));
            let request = DescribeConfigsRequest::default()
                .with_resources(vec![resource])
                .with_include_synonyms(true)
                .with_include_documentation(true);
            broker.describe_configs(&request, version)
        })
        .await;
        each(0..=5, async |_| {
            broker
                .init_producer_id(InitProducerIdRequest::default().with_transactional_id(None))
                .await
        })
        .await;
        each(0..=2, async |_| {
            broker.describe_cluster(&DescribeClusterRequest::default(), &listener)
        })
        .await;
        each(2..=4, async |_| {
            let partition = OffsetForLeaderPartition::default();
            let topic = OffsetForLeaderTopic::default()
                .with_topic(topic_name("t"))
                .with_partitions(vec![partition]);
            broker.offset_for_leader_epoch(
                OffsetForLeaderEpochRequest::default().with_topics(vec![topic]),
            )
        })
        .await;
        each(1..=4, async |_| {
            broker.describe_log_dirs(&DescribeLogDirsRequest::default().with_topics(None))
        })
        .await;
        each(0..=2, async |_| {
            let partition = DeleteRecordsPartition::default().with_offset(-1);
            let topic = DeleteRecordsTopic::default()
                .with_name(topic_name("t"))
                .with_partitions(vec![partition]);
            broker
                .delete_records(DeleteRecordsRequest::default().with_topics(vec![topic]))
                .await
        })
        .await;
    });
}
