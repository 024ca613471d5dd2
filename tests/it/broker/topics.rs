//! Metadata and the life of topics.

use super::*;

#[test]
fn metadata_creates_what_may_be_created_and_shows_it_at_once() {
    run(async {
        let world = memory();
        assert_eq!(
            world.metadata(&["t"], 9, false).await,
            [(3, "t".to_owned(), 0)]
        );
        assert!(world.told.lock().unwrap().is_empty());
        assert_eq!(
            world.metadata(&["t", "t", "b d", "x.y"], 9, true).await,
            [
                (0, "t".to_owned(), 3),
                (17, "b d".to_owned(), 0),
                (0, "x.y".to_owned(), 3)
            ]
        );
        // Below version 4 nobody can forbid it.
        assert_eq!(
            world.metadata(&["old", "x_y"], 3, false).await,
            [(0, "old".to_owned(), 3), (17, "x_y".to_owned(), 0)]
        );
        let told = world.told.lock().unwrap();
        let names = |change: &TopicsChange| {
            change
                .created
                .iter()
                .map(|t| t.name.to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            told.iter().map(names).collect::<Vec<_>>(),
            [vec!["t", "x.y"], vec!["old"]]
        );
        assert_eq!(told[1].image.len(), 4);
    });
}

#[test]
fn metadata_knows_all_topics_ids_and_the_internal_one() {
    run(async {
        let world = memory();
        let id = world.create("t", 2, &[]).await;
        let listener = Listener {
            host: text("example.org"),
            port: 1234,
        };
        let all = world
            .broker
            .metadata(MetadataRequest::default().with_topics(None), 13, &listener)
            .await;
        assert_eq!(all.topics.len(), 2);
        assert_eq!(
            (all.brokers[0].host.as_str(), all.brokers[0].port),
            ("example.org", 1234)
        );
        assert_eq!(
            (all.brokers[0].rack.as_deref(), all.cluster_id.as_deref()),
            (Some("r1"), Some("c1"))
        );
        assert_eq!(
            (all.controller_id.0, all.cluster_authorized_operations),
            (1, i32::MIN)
        );
        let internal = &all.topics[0];
        assert_eq!(
            (
                &**internal.name.as_ref().unwrap() as &str,
                internal.is_internal
            ),
            (OFFSETS_TOPIC, true)
        );
        assert_eq!(internal.partitions.len(), 50);
        let unknown = MetadataRequest::default()
            .with_topics(Some(vec![
                MetadataRequestTopic::default().with_name(Some(topic_name("nowhere"))),
            ]))
            .with_allow_auto_topic_creation(false)
            .with_include_topic_authorized_operations(true);
        let unknown = world.broker.metadata(unknown, 12, &listener).await;
        assert_eq!(unknown.topics[0].topic_authorized_operations, 3576);
        let topic = &all.topics[1];
        assert_eq!(
            (topic.topic_id, topic.topic_authorized_operations),
            (id, i32::MIN)
        );
        assert_eq!(topic.partitions[1].isr_nodes, [BrokerId(1)]);

        let by_id = |id| {
            MetadataRequestTopic::default()
                .with_name(None)
                .with_topic_id(id)
        };
        let ids = vec![by_id(id), by_id(Uuid::from_u128(5))];
        let request = MetadataRequest::default()
            .with_topics(Some(ids.clone()))
            .with_include_topic_authorized_operations(true);
        let found = world.broker.metadata(request, 12, &listener).await.topics;
        assert_eq!(
            (found[0].error_code, found[0].topic_authorized_operations),
            (0, 3576)
        );
        assert_eq!(
            (found[1].error_code, &found[1].name, found[1].topic_id),
            (100, &None, Uuid::from_u128(5))
        );
        let found = world
            .broker
            .metadata(
                MetadataRequest::default().with_topics(Some(ids)),
                10,
                &listener,
            )
            .await
            .topics;
        assert!(
            found
                .iter()
                .all(|topic| topic.error_code == 42 && topic.name.is_some())
        );

        let none = world
            .broker
            .metadata(MetadataRequest::default(), 1, &listener)
            .await;
        assert!(none.topics.is_empty());
        let all = world
            .broker
            .metadata(MetadataRequest::default(), 0, &listener)
            .await;
        assert_eq!(all.topics.len(), 2);
        let cluster = MetadataRequest::default().with_include_cluster_authorized_operations(true);
        assert_eq!(
            world
                .broker
                .metadata(cluster, 10, &listener)
                .await
                .cluster_authorized_operations,
            8096
        );

        let cluster = world
            .broker
            .describe_cluster(&DescribeClusterRequest::default(), &listener);
        assert_eq!(
            (
                cluster.error_code,
                cluster.brokers.len(),
                &*cluster.cluster_id
            ),
            (0, 1, "c1")
        );
        let controllers = DescribeClusterRequest::default().with_endpoint_type(2);
        assert_eq!(
            world
                .broker
                .describe_cluster(&controllers, &listener)
                .error_code,
            114
        );
    });
}

#[test]
fn a_topic_is_checked_as_kafka_does_before_it_is_created() {
    run(async {
        let world = memory();
        world.create("a.b", 1, &[]).await;
        let with =
            |key: &str, value: Option<&str>| creatable("x").with_configs(vec![config(key, value)]);
        let manual = |assignments: &[(i32, &[i32])]| {
            let assignment = |(index, brokers): &(i32, &[i32])| {
                CreatableReplicaAssignment::default()
                    .with_partition_index(*index)
                    .with_broker_ids(brokers.iter().map(|id| BrokerId(*id)).collect())
            };
            creatable("m")
                .with_num_partitions(-1)
                .with_replication_factor(-1)
                .with_assignments(assignments.iter().map(assignment).collect())
        };
        for (topic, code) in [
            (creatable("a.b"), 36),
            (creatable("a_b"), 17),
            (creatable("a b"), 17),
            (creatable(""), 17),
            (creatable(OFFSETS_TOPIC), 36),
            (creatable("__transaction_state"), 17),
            (creatable("x").with_replication_factor(3), 38),
            (creatable("x").with_replication_factor(0), 38),
            (creatable("x").with_num_partitions(0), 37),
            (
                creatable("x")
                    .with_num_partitions(0)
                    .with_replication_factor(3),
                37,
            ),
            (creatable("x").with_num_partitions(-2), 37),
            (creatable("x").with_num_partitions(10_001), 44),
            (with("foo", Some("1")), 40),
            (with("retention.ms", Some("soon")), 40),
            (with("retention.ms", None), 40),
            (with("segment.bytes", Some("100")), 40),
            (manual(&[(0, &[1]), (2, &[1])]), 39),
            (manual(&[(0, &[7])]), 39),
            (manual(&[(0, &[1, 1])]), 39),
            (manual(&[(0, &[])]), 39),
            (manual(&[(0, &[1]), (0, &[1])]), 39),
            (manual(&[(0, &[1])]).with_num_partitions(1), 42),
            (manual(&[(0, &[1]), (1, &[1])]), 0),
        ] {
            let shown = format!("{topic:?}");
            assert_eq!(world.refusal(topic).await, code, "{shown}");
        }
        let twice = CreateTopicsRequest::default().with_topics(vec![
            creatable("d"),
            creatable("d"),
            creatable("e.f"),
            creatable("e_f"),
        ]);
        let codes: Vec<i16> = world
            .broker
            .create_topics(twice)
            .await
            .topics
            .iter()
            .map(|t| t.error_code)
            .collect();
        assert_eq!(codes, [42, 0, 17]);
        let check = CreateTopicsRequest::default()
            .with_topics(vec![creatable("v")])
            .with_validate_only(true);
        let checked = world.broker.create_topics(check).await;
        assert_eq!(
            (
                checked.topics[0].error_code,
                checked.topics[0].num_partitions
            ),
            (0, 1)
        );
        assert!(checked.topics[0].configs.as_ref().unwrap().len() > 30);
        assert!(world.broker.topics().get("v").is_none());
    });
}

#[test]
fn topics_grow_and_go_and_others_are_told() {
    run(async {
        let world = memory();
        let id = world.create("t", 2, &[]).await;
        let grow = |name: &str, count| {
            let topic = CreatePartitionsTopic::default()
                .with_name(topic_name(name))
                .with_count(count)
                .with_assignments(None);
            CreatePartitionsRequest::default().with_topics(vec![topic])
        };
        for (name, count, code) in [
            ("t", 2, 37),
            ("t", 1, 37),
            ("u", 5, 3),
            ("t", 20_000, 44),
            (OFFSETS_TOPIC, 60, 37),
            ("t", 4, 0),
        ] {
            assert_eq!(
                world
                    .broker
                    .create_partitions(grow(name, count))
                    .await
                    .results[0]
                    .error_code,
                code
            );
        }
        assert_eq!(world.broker.topics().get("t").unwrap().partitions, 4);
        assert_eq!(world.fill("t", 3, &[NOW_MS]).await, 0);

        let delete = |name: Option<&str>, id| {
            DeleteTopicState::default()
                .with_name(name.map(topic_name))
                .with_topic_id(id)
        };
        let states = vec![
            delete(Some("nope"), Uuid::nil()),
            delete(None, Uuid::from_u128(3)),
            delete(None, Uuid::nil()),
            delete(Some("t"), id),
            delete(Some(OFFSETS_TOPIC), Uuid::nil()),
            delete(None, id),
        ];
        let mut gone = world
            .broker
            .delete_topics(DeleteTopicsRequest::default().with_topics(states), 6)
            .await
            .responses;
        gone.sort_by_key(|result| result.error_code);
        assert_eq!(
            gone.iter()
                .map(|result| result.error_code)
                .collect::<Vec<_>>(),
            [0, 3, 17, 42, 42, 100]
        );
        assert_eq!(
            (
                gone[0].name.as_ref().map(|name| name.as_str()),
                gone[0].topic_id
            ),
            (Some("t"), id)
        );
        assert!(world.broker.bounds("t", 0).is_none());
        let told = std::mem::take(&mut *world.told.lock().unwrap());
        assert_eq!(
            (told[1].grown[0].partitions, told[2].deleted[0].id),
            (4, id)
        );
        assert_eq!(told[2].image.len(), 1);
        let twice = DeleteTopicsRequest::default().with_topic_names(vec![
            topic_name("t"),
            topic_name("t"),
            topic_name("u"),
        ]);
        let codes: Vec<i16> = world
            .broker
            .delete_topics(twice, 5)
            .await
            .responses
            .iter()
            .map(|r| r.error_code)
            .collect();
        assert_eq!(codes, [42, 3]);
        // Created again it has another id and nothing in it.
        assert_ne!(world.create("t", 1, &[]).await, id);
        assert_eq!(world.bounds("t", 0), (0, 0));
    });
}

#[test]
fn topics_are_described_page_by_page() {
    run(async {
        let world = memory();
        world.create("a", 3, &[]).await;
        world.create("b", 2, &[]).await;
        let names =
            ["b", "a", "nope"].map(|name| TopicRequest::default().with_name(topic_name(name)));
        let mut request = DescribeTopicPartitionsRequest::default()
            .with_topics(names.to_vec())
            .with_response_partition_limit(2)
            .with_cursor(None);
        let mut seen = Vec::new();
        loop {
            let page = world.broker.describe_topic_partitions(&request);
            for topic in &page.topics {
                let indexes = topic
                    .partitions
                    .iter()
                    .map(|partition| partition.partition_index);
                seen.extend(indexes.map(|index| (topic.name.as_ref().unwrap().to_string(), index)));
            }
            let Some(next) = page.next_cursor else { break };
            let cursor = Cursor::default()
                .with_topic_name(next.topic_name)
                .with_partition_index(next.partition_index);
            request.cursor = Some(cursor);
        }
        let expected = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1)];
        assert_eq!(seen, expected.map(|(name, index)| (name.to_owned(), index)));

        let mut page = |from, index, limit| {
            let cursor = Cursor::default()
                .with_topic_name(topic_name(from))
                .with_partition_index(index);
            request.cursor = Some(cursor);
            request.response_partition_limit = limit;
            world.broker.describe_topic_partitions(&request)
        };
        let full = page("b", 0, 2);
        assert_eq!(
            &*full.next_cursor.unwrap().topic_name,
            "nope",
            "a full page ends before what does not exist, too"
        );
        let unknown = &page("nope", 0, 2).topics[0];
        assert_eq!(
            (unknown.error_code, unknown.topic_authorized_operations),
            (3, 3576)
        );
        let refused = page("a", -1, 2).topics;
        let codes = refused.iter().map(|topic| topic.error_code);
        assert_eq!(codes.collect::<Vec<_>>(), [42, 42, 42]);
        assert_eq!(&**refused[0].name.as_ref().unwrap() as &str, "b");
    });
}

#[test]
fn what_is_named_again_and_again_is_described_once() {
    run(async {
        let world = memory();
        world.create("t", 3, &[]).await;
        world.fill("t", 2, &[NOW_MS]).await;
        let topic = |partitions| {
            DescribableLogDirTopic::default()
                .with_topic(topic_name("t"))
                .with_partitions(partitions)
        };
        let asked = vec![topic(vec![2, 2, 9]), topic(vec![0, 2])];
        let request = DescribeLogDirsRequest::default().with_topics(Some(asked));
        let described = world
            .broker
            .describe_log_dirs(&request)
            .results
            .remove(0)
            .topics;
        assert_eq!(described.len(), 1);
        let sizes: Vec<i64> = described[0]
            .partitions
            .iter()
            .map(|partition| partition.partition_size)
            .collect();
        assert_eq!(sizes, [0, batch(&[NOW_MS], 10).len() as i64]);
        let resource = DescribeConfigsResource::default()
            .with_resource_type(2)
            .with_resource_name(text("t"));
        let request = DescribeConfigsRequest::default().with_resources(vec![resource; 20_001]);
        let results = world.broker.describe_configs(&request, 4).results;
        assert_eq!(
            (results[19_999].error_code, results[20_000].error_code),
            (0, 42)
        );
    });
}
