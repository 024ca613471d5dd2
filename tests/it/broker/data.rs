//! Produce, fetch, list offsets.

use super::*;

#[test]
fn what_was_produced_is_fetched_as_it_was_sent() {
    run(async {
        let world = memory();
        let id = world.create("t", 1, &[]).await;
        let sent = batch(&[NOW_MS, NOW_MS + 1], 10);
        assert_eq!(world.produce("t", 0, sent.clone()).await.base_offset, 0);
        let second = world.produce("t", 0, sent.clone()).await;
        assert_eq!(
            (
                second.base_offset,
                second.log_append_time_ms,
                second.log_start_offset
            ),
            (2, -1, 0)
        );
        let data = world.fetch_one(fetch_request("t", &[(0, 0)]), 12).await;
        assert_eq!(
            (
                data.high_watermark,
                data.last_stable_offset,
                data.log_start_offset
            ),
            (4, 4, 0)
        );
        assert_eq!(
            (data.preferred_read_replica.0, &data.aborted_transactions),
            (-1, &None)
        );
        let records = data.records.unwrap();
        assert_eq!(records.len(), 2 * sent.len());
        // Only offset and leader epoch differ.
        assert_eq!(records[sent.len()..][16..], sent[16..]);
        assert_eq!(records[sent.len()..][..8], 2i64.to_be_bytes());

        let mut by_id = fetch_request("", &[(0, 3), (1, 0)]);
        by_id.topics[0].topic_id = id;
        by_id.isolation_level = 1;
        let answer = world.broker.fetch(by_id.clone(), 13).await;
        let partitions = &answer.responses[0].partitions;
        assert_eq!(partitions[0].records.as_ref().unwrap().len(), sent.len());
        assert_eq!(
            (
                partitions[1].error_code,
                partitions[0].aborted_transactions.as_deref()
            ),
            (3, Some(&[][..]))
        );
        by_id.topics[0].topic_id = Uuid::from_u128(1);
        assert_eq!(world.fetch_one(by_id, 18).await.error_code, 100);

        let produced = produce_request("", 0, sent, 1);
        let Produced::Reply(answer) = world.broker.produce(produced, 13).await else {
            panic!()
        };
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 100);
    });
}

#[test]
fn a_batch_that_is_not_right_is_refused_and_nothing_is_written() {
    run(async {
        let world = memory();
        world
            .create(
                "t",
                1,
                &[
                    ("max.message.bytes", "500"),
                    ("message.timestamp.before.max.ms", "1000"),
                ],
            )
            .await;
        world
            .create("s", 1, &[("message.timestamp.type", "LogAppendTime")])
            .await;
        let good = batch(&[NOW_MS], 1);
        let mut old = good.clone();
        old[16] = 1;
        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for (what, records, code) in [
            ("nothing", Vec::new(), 87),
            ("an old format", old, 87),
            ("a wrong checksum", flipped, 2),
            ("a header only in part", good[..50].to_vec(), 87),
            ("an unknown format", changed(16, &[3]), 2),
            ("half a batch", good[..good.len() - 1].to_vec(), 87),
            ("two batches", [good.clone(), good.clone()].concat(), 87),
            ("too many bytes", batch(&[NOW_MS], 500), 10),
            ("no records", changed(57, &0i32.to_be_bytes()), 87),
            (
                "offsets that do not match the count",
                changed(23, &1i32.to_be_bytes()),
                87,
            ),
            ("negative offsets", changed(23, &(-1i32).to_be_bytes()), 87),
            ("an offset", changed(0, &1i64.to_be_bytes()), 87),
            ("a control batch", changed(21, &0x20i16.to_be_bytes()), 87),
            ("an unknown codec", changed(21, &7i16.to_be_bytes()), 87),
            ("a transaction", changed(21, &0x10i16.to_be_bytes()), 53),
            (
                "a sequence without sense",
                batch_by(&[NOW_MS], 1, (5, 0, -1)),
                87,
            ),
            ("the future", batch(&[NOW_MS, NOW_MS + 3_600_001], 1), 32),
            ("the past", batch(&[NOW_MS - 1001], 1), 32),
        ] {
            assert_eq!(
                world.produce("t", 0, records).await.error_code,
                code,
                "{what}"
            );
        }
        assert_eq!(world.bounds("t", 0), (0, 0));
        assert_eq!(world.produce("t", 1, good.clone()).await.error_code, 3);
        assert_eq!(world.produce("u", 0, good.clone()).await.error_code, 3);
        assert_eq!(
            world
                .produce(OFFSETS_TOPIC, 0, good.clone())
                .await
                .error_code,
            17
        );
        // Zstandard came with version 7.
        let zstd = produce_request("t", 0, changed(21, &4i16.to_be_bytes()), 1);
        let Produced::Reply(answer) = world.broker.produce(zstd, 6).await else {
            panic!()
        };
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 76);

        let stamped = world.produce("s", 0, batch(&[1], 1)).await;
        assert_eq!(
            (stamped.error_code, stamped.log_append_time_ms),
            (0, NOW_MS)
        );
        assert_eq!(world.offset("s", NOW_MS, 7).await, (0, NOW_MS, 0));
        let data = world
            .fetch_one(fetch_request("s", &[(0, 0)]), 11)
            .await
            .records
            .unwrap();
        assert_eq!(crc32c::crc32c(&data[21..]).to_be_bytes(), data[17..21]);
        // A claim that the broker stamped it is taken out, and half a batch behind a whole one is left alone.
        let mut claimed = changed(21, &8i16.to_be_bytes());
        claimed.extend(&good[..30]);
        assert_eq!(world.produce("t", 0, claimed).await.error_code, 0);
        let data = world.fetch_one(fetch_request("t", &[(0, 0)]), 11).await;
        let data = data.records.unwrap();
        assert_eq!(data[16..], good[16..]);
    });
}

#[test]
fn acks_decide_whether_there_is_an_answer() {
    run(async {
        let world = memory();
        world.create("t", 1, &[]).await;
        let good = batch(&[NOW_MS], 1);
        assert_eq!(
            world
                .broker
                .produce(produce_request("t", 0, good.clone(), 0), 9)
                .await,
            Produced::Silent
        );
        assert_eq!(
            world
                .broker
                .produce(produce_request("u", 0, good.clone(), 0), 9)
                .await,
            Produced::Close
        );
        let Produced::Reply(answer) = world
            .broker
            .produce(produce_request("t", 0, good.clone(), 2), 9)
            .await
        else {
            panic!()
        };
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 21);
        let request = produce_request("t", 0, good, 1)
            .with_transactional_id(Some(TransactionalId(text("x"))));
        let Produced::Reply(answer) = world.broker.produce(request, 9).await else {
            panic!()
        };
        assert_eq!(answer.responses[0].partition_responses[0].error_code, 53);
        assert_eq!(world.bounds("t", 0), (0, 1));
    });
}

#[test]
fn idempotent_producers_get_ids_of_their_own_and_their_repeats_are_recognised() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let mut ids = std::collections::BTreeSet::new();
        {
            let world = on_disk(dir.path());
            world.create("t", 1, &[]).await;
            for _ in 0..3 {
                let response = world
                    .broker
                    .init_producer_id(InitProducerIdRequest::default().with_transactional_id(None))
                    .await;
                assert_eq!((response.error_code, response.producer_epoch), (0, 0));
                assert!(ids.insert(response.producer_id.0));
            }
            let transactional = InitProducerIdRequest::default()
                .with_transactional_id(Some(TransactionalId(text("x"))));
            assert_eq!(
                world
                    .broker
                    .init_producer_id(transactional)
                    .await
                    .error_code,
                53
            );
            assert_eq!(
                world
                    .produce("t", 0, batch_by(&[NOW_MS, NOW_MS], 1, (7, 1, 0)))
                    .await
                    .base_offset,
                0
            );
        }
        // After a kill: no id is given twice, and the producer is still known.
        let world = on_disk(dir.path());
        let response = world
            .broker
            .init_producer_id(InitProducerIdRequest::default().with_transactional_id(None))
            .await;
        assert!(ids.insert(response.producer_id.0));
        let again = world
            .produce("t", 0, batch_by(&[NOW_MS, NOW_MS], 1, (7, 1, 0)))
            .await;
        assert_eq!((again.error_code, again.base_offset), (0, 0));
        assert_eq!(
            world
                .produce("t", 0, batch_by(&[NOW_MS], 1, (7, 1, 3)))
                .await
                .error_code,
            45
        );
        assert_eq!(
            world
                .produce("t", 0, batch_by(&[NOW_MS], 1, (7, 0, 2)))
                .await
                .error_code,
            47
        );
        assert_eq!(
            world
                .produce("t", 0, batch_by(&[NOW_MS], 1, (7, 1, 2)))
                .await
                .base_offset,
            2
        );
        assert_eq!(world.bounds("t", 0), (0, 3));
        // Silent for a day: forgotten, so any sequence goes.
        world.now_ms.fetch_add(86_400_001, Ordering::Relaxed);
        world.broker.retain().await;
        let later = NOW_MS + 86_400_001;
        assert_eq!(
            world
                .produce("t", 0, batch_by(&[later], 1, (7, 0, 99)))
                .await
                .error_code,
            0
        );
    });
}

#[test]
fn a_fetch_waits_for_enough_bytes_and_is_woken_by_appends() {
    run(async {
        let world = Arc::new(memory());
        world.create("t", 2, &[]).await;
        let bytes = batch(&[NOW_MS], 10).len();
        let mut request = fetch_request("t", &[(0, 0), (1, 0)]);
        // Without appends this would wait for longer than any test runs.
        request.max_wait_ms = i32::MAX;
        request.min_bytes = 3 * bytes as i32;
        let waiting = tokio::spawn({
            let (world, request) = (Arc::clone(&world), request.clone());
            async move { world.broker.fetch(request, 11).await }
        });
        for partition in [0, 1, 1] {
            tokio::task::yield_now().await;
            assert!(!waiting.is_finished());
            world.fill("t", partition, &[NOW_MS]).await;
        }
        let response = waiting.await.unwrap();
        let lengths: Vec<usize> = response.responses[0]
            .partitions
            .iter()
            .map(|p| p.records.as_ref().unwrap().len())
            .collect();
        assert_eq!(lengths, [bytes, 2 * bytes]);
        // What is there need not be waited for, errors neither.
        assert_eq!(
            world.broker.fetch(request.clone(), 11).await.responses[0]
                .partitions
                .len(),
            2
        );
        request.topics[0].partitions[0].fetch_offset = 99;
        assert_eq!(world.fetch_one(request.clone(), 11).await.error_code, 1);
        // A topic that is deleted meanwhile ends the wait.
        request.topics[0].partitions.remove(0);
        request.topics[0].partitions[0].fetch_offset = 2;
        let waiting = tokio::spawn({
            let world = Arc::clone(&world);
            async move { world.fetch_one(request, 11).await.error_code }
        });
        tokio::task::yield_now().await;
        let delete = DeleteTopicsRequest::default().with_topic_names(vec![topic_name("t")]);
        world.broker.delete_topics(delete, 5).await;
        assert_eq!(waiting.await.unwrap(), 3);
    });
}

#[test]
fn a_fetch_ends_when_its_wait_is_over() {
    run(async {
        let world = memory();
        world.create("t", 1, &[]).await;
        let mut request = fetch_request("t", &[(0, 0)]);
        request.max_wait_ms = 1;
        let data = world.fetch_one(request, 11).await;
        assert_eq!(
            (
                data.error_code,
                data.high_watermark,
                data.records.unwrap().len()
            ),
            (0, 0, 0)
        );
    });
}

#[test]
fn a_fetch_response_stays_within_its_limits_but_for_its_first_batch() {
    run(async {
        let world = memory();
        world.create("t", 3, &[]).await;
        let bytes = batch(&[NOW_MS], 1000).len() as i32;
        for partition in [0, 1, 2] {
            for _ in 0..3 {
                world.produce("t", partition, batch(&[NOW_MS], 1000)).await;
            }
        }
        let lengths = |max_bytes, partition_max_bytes| {
            let mut request =
                fetch_request("t", &[(0, 0), (1, 1), (2, 3)]).with_max_bytes(max_bytes);
            for partition in &mut request.topics[0].partitions {
                partition.partition_max_bytes = partition_max_bytes;
            }
            let fetch = world.broker.fetch(request, 11);
            async move {
                let response = fetch.await;
                let length =
                    |data: &PartitionData| data.records.as_ref().unwrap().len() as i32 / bytes;
                response.responses[0]
                    .partitions
                    .iter()
                    .map(length)
                    .collect::<Vec<_>>()
            }
        };
        assert_eq!(lengths(i32::MAX, i32::MAX).await, [3, 2, 0]);
        assert_eq!(lengths(i32::MAX, 1).await, [1, 0, 0]);
        assert_eq!(lengths(i32::MAX, 2 * bytes).await, [2, 2, 0]);
        assert_eq!(lengths(0, i32::MAX).await, [1, 0, 0]);
        assert_eq!(lengths(4 * bytes + 1, i32::MAX).await, [3, 1, 0]);
    });
}

#[test]
fn fetch_sessions_are_never_given_and_epochs_are_checked() {
    run(async {
        let world = memory();
        world.create("t", 1, &[]).await;
        world.fill("t", 0, &[NOW_MS]).await;
        for (session, epoch, code) in [
            (0, 0, 0),
            (0, -1, 0),
            (5, -1, 0),
            (5, 0, 0),
            (5, 3, 70),
            (0, 1, 70),
        ] {
            let request = fetch_request("t", &[(0, 0)])
                .with_session_id(session)
                .with_session_epoch(epoch);
            let response = world.broker.fetch(request, 12).await;
            assert_eq!((response.error_code, response.session_id), (code, 0));
            assert_eq!(response.responses.is_empty(), code != 0);
        }
        let mut request = fetch_request("t", &[(0, 0)]);
        request.topics[0].partitions[0].current_leader_epoch = 1;
        assert_eq!(world.fetch_one(request.clone(), 12).await.error_code, 75);
        request.topics[0].partitions[0].current_leader_epoch = 0;
        request.topics[0].partitions[0].last_fetched_epoch = 0;
        assert_eq!(world.fetch_one(request.clone(), 12).await.error_code, 0);
        // Beyond the end with our epoch: what was there is lost.
        request.topics[0].partitions[0].fetch_offset = 9;
        let data = world.fetch_one(request, 12).await;
        assert_eq!(
            (
                data.error_code,
                data.diverging_epoch.epoch,
                data.diverging_epoch.end_offset
            ),
            (0, 0, 1)
        );
        let epochs = |epoch, current| {
            let partition = OffsetForLeaderPartition::default()
                .with_leader_epoch(epoch)
                .with_current_leader_epoch(current);
            let topic = OffsetForLeaderTopic::default()
                .with_topic(topic_name("t"))
                .with_partitions(vec![partition]);
            let answer = world.broker.offset_for_leader_epoch(
                OffsetForLeaderEpochRequest::default().with_topics(vec![topic]),
            );
            let end = &answer.topics[0].partitions[0];
            (end.error_code, end.leader_epoch, end.end_offset)
        };
        assert_eq!(epochs(0, -1), (0, 0, 1));
        assert_eq!(epochs(3, -1), (0, -1, -1));
        assert_eq!(epochs(0, 2), (75, -1, -1));
    });
}

#[test]
fn offsets_are_found_by_time_to_the_record() {
    run(async {
        let world = memory();
        world.create("t", 1, &[]).await;
        assert_eq!(world.offset("t", -3, 7).await, (0, -1, -1));
        assert_eq!(world.offset("t", 0, 1).await, (0, -1, -1));
        world
            .fill("t", 0, &[NOW_MS, NOW_MS + 20, NOW_MS + 10])
            .await;
        world.fill("t", 0, &[NOW_MS + 15, NOW_MS + 30]).await;
        for (timestamp, version, found) in [
            (-1, 1, (0, -1, 5)),
            (-2, 1, (0, -1, 0)),
            (-3, 7, (0, NOW_MS + 30, 4)),
            (-3, 6, (35, -1, -1)),
            (-4, 8, (0, -1, 0)),
            (-5, 9, (0, -1, -1)),
            (-6, 11, (0, -1, -1)),
            (-6, 10, (35, -1, -1)),
            (-7, 11, (35, -1, -1)),
            (0, 1, (0, NOW_MS, 0)),
            (NOW_MS + 1, 1, (0, NOW_MS + 20, 1)),
            (NOW_MS + 21, 1, (0, NOW_MS + 30, 4)),
            (NOW_MS + 31, 1, (0, -1, -1)),
        ] {
            assert_eq!(
                world.offset("t", timestamp, version).await,
                found,
                "{timestamp}"
            );
        }
        let delete = |offset| {
            let partition = DeleteRecordsPartition::default().with_offset(offset);
            let topic = DeleteRecordsTopic::default()
                .with_name(topic_name("t"))
                .with_partitions(vec![partition]);
            DeleteRecordsRequest::default().with_topics(vec![topic])
        };
        for (offset, code, low) in [(6, 1, -1), (-2, 1, -1), (2, 0, 2), (1, 0, 2)] {
            let answer = &world.broker.delete_records(delete(offset)).await.topics[0].partitions[0];
            assert_eq!((answer.error_code, answer.low_watermark), (code, low));
        }
        assert_eq!(world.offset("t", 0, 1).await, (0, NOW_MS + 10, 2));
        assert_eq!(world.offset("t", -2, 1).await, (0, -1, 2));
        world.broker.delete_records(delete(-1)).await;
        assert_eq!(world.bounds("t", 0), (5, 5));
        assert_eq!(world.offset("nowhere", -1, 1).await, (3, -1, -1));
        assert_eq!(
            world.offset("nowhere", -3, 6).await,
            (35, -1, -1),
            "what cannot be asked comes first"
        );
        let of = |partition| {
            ListOffsetsTopic::default()
                .with_name(topic_name("t"))
                .with_partitions(vec![
                    ListOffsetsPartition::default().with_partition_index(partition),
                ])
        };
        let request = ListOffsetsRequest::default().with_topics(vec![of(0), of(7)]);
        let answer = world.broker.list_offsets(request, 5).await;
        assert_eq!(
            (answer.topics.len(), answer.topics[0].partitions.len()),
            (1, 2)
        );
        let twice = ListOffsetsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(vec![ListOffsetsPartition::default(); 2]);
        let answer = world
            .broker
            .list_offsets(ListOffsetsRequest::default().with_topics(vec![twice]), 5)
            .await;
        assert!(
            answer.topics[0]
                .partitions
                .iter()
                .all(|partition| partition.error_code == 42)
        );
    });
}

#[test]
fn a_batch_that_promises_a_time_it_does_not_have_is_passed_over() {
    run(async {
        let world = memory();
        world.create("t", 1, &[]).await;
        let promising = changed(35, &(NOW_MS + 100).to_be_bytes());
        assert_eq!(world.produce("t", 0, promising.clone()).await.error_code, 0);
        assert_eq!(world.offset("t", NOW_MS + 1, 1).await, (0, -1, -1));
        world.fill("t", 0, &[NOW_MS + 50]).await;
        assert_eq!(world.offset("t", NOW_MS + 1, 1).await, (0, NOW_MS + 50, 1));
        // One question opens only so many of them.
        for _ in 0..1100 {
            world.produce("t", 0, promising.clone()).await;
        }
        assert_eq!(world.offset("t", NOW_MS + 60, 1).await.0, 2);
        assert_eq!(world.offset("t", NOW_MS, 1).await, (0, NOW_MS, 0));
    });
}
