//! What stays after a restart, and what the disk holds.

use super::*;

#[test]
fn everything_is_there_after_a_restart() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let (id, offsets_id) = {
            let world = on_disk(dir.path());
            let id = world.create("t", 2, &[("retention.ms", "-1")]).await;
            world.create("gone", 1, &[]).await;
            world.fill("gone", 0, &[NOW_MS]).await;
            for _ in 0..5 {
                world.fill("t", 1, &[NOW_MS, NOW_MS]).await;
            }
            let partition = DeleteRecordsPartition::default()
                .with_partition_index(1)
                .with_offset(3);
            let topic = DeleteRecordsTopic::default()
                .with_name(topic_name("t"))
                .with_partitions(vec![partition]);
            world
                .broker
                .delete_records(DeleteRecordsRequest::default().with_topics(vec![topic]))
                .await;
            let delete = DeleteTopicsRequest::default().with_topic_names(vec![topic_name("gone")]);
            world.broker.delete_topics(delete, 5).await;
            (id, world.broker.topics().get(OFFSETS_TOPIC).unwrap().id)
        };
        // Deleted files are gone, and those of a topic nobody knows go when the folder is opened.
        let topics = dir.path();
        let folders = || {
            let entries = std::fs::read_dir(topics).unwrap();
            entries
                .filter(|entry| entry.as_ref().unwrap().path().is_dir())
                .count()
        };
        assert_eq!(folders(), 1);
        std::fs::create_dir(topics.join(Uuid::from_u128(5).to_string())).unwrap();
        let world = on_disk(dir.path());
        assert_eq!(folders(), 1);
        assert_eq!(world.broker.topics().get("t").unwrap().id, id);
        assert_eq!(
            world.broker.topics().get(OFFSETS_TOPIC).unwrap().id,
            offsets_id
        );
        assert_eq!(world.broker.topics().len(), 2);
        assert_eq!(
            (world.bounds("t", 0), world.bounds("t", 1)),
            ((0, 0), (3, 10))
        );
        assert_eq!(world.configs_of(2, "t").await["retention.ms"].0, "-1");
        world.broker.close().await.unwrap();
        drop(world);
        let world = on_disk(dir.path());
        assert_eq!(world.fill("t", 1, &[NOW_MS]).await, 10);
        let now_ms = Arc::new(AtomicI64::new(NOW_MS));
        let other = BrokerOptions {
            offsets_topic_partitions: 7,
            ..options(Storage::Dir(dir.path().to_owned()), &now_ms)
        };
        assert!(matches!(
            try_open(other, now_ms),
            Err(Error::OffsetsPartitions {
                stored: 50,
                asked: 7
            })
        ));
    });
}

#[test]
fn disk_use_is_bounded_by_retention() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let world = on_disk(dir.path());
        world
            .create(
                "size",
                1,
                &[
                    ("internal.segment.bytes", "50000"),
                    ("retention.bytes", "200000"),
                ],
            )
            .await;
        world
            .create(
                "time",
                1,
                &[
                    ("internal.segment.bytes", "50000"),
                    ("retention.ms", "10000"),
                ],
            )
            .await;
        let mut most = 0;
        for _ in 0..400 {
            let now_ms = world.now_ms.fetch_add(100, Ordering::Relaxed) + 100;
            for topic in ["size", "time"] {
                assert_eq!(
                    world
                        .produce(topic, 0, batch(&[now_ms], 5000))
                        .await
                        .error_code,
                    0
                );
            }
            world.broker.retain().await;
            most = most.max(folder_bytes(dir.path()));
        }
        // 2 MB were written to each; by size 200 kB stay, by time 100 batches, and one segment more.
        assert!(most < 900_000, "{most}");
        assert_eq!(world.bounds("time", 0).1, 400);
        let dirs = world
            .broker
            .describe_log_dirs(&DescribeLogDirsRequest::default().with_topics(None));
        let sizes: i64 = dirs.results[0]
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|p| p.partition_size)
            .sum();
        assert!((200_000..900_000).contains(&sizes), "{sizes}");
        assert!(
            dirs.results[0].total_bytes > dirs.results[0].usable_bytes
                && dirs.results[0].usable_bytes > 0
        );
    });
}

fn folder_bytes(dir: &Path) -> u64 {
    let size = |entry: std::io::Result<std::fs::DirEntry>| {
        let entry = entry.unwrap();
        match entry.file_type().unwrap().is_dir() {
            true => folder_bytes(&entry.path()),
            // An index is renamed into place meanwhile.
            false => entry.metadata().map_or(0, |metadata| metadata.len()),
        }
    };
    std::fs::read_dir(dir).unwrap().map(size).sum()
}

#[test]
fn two_thousand_partitions_take_no_room_and_open_again() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        {
            let world = on_disk(dir.path());
            world.create("many", 2000, &[]).await;
            assert!(folder_bytes(dir.path()) < 10_000);
            for partition in (0..2000).step_by(20) {
                world.fill("many", partition, &[NOW_MS]).await;
            }
        }
        let world = on_disk(dir.path());
        assert_eq!(
            (world.bounds("many", 20), world.bounds("many", 21)),
            ((0, 1), (0, 0))
        );
    });
}
