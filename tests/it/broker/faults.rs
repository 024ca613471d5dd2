//! A disk that fails: power cuts at every moment, full disks, failed syncs.

use convoke::log::fault_fs::{FaultFs, Survive};
use convoke::log::fs::Fs as _;

use super::*;

const DIR: &str = "/data";

fn on(fs: &FaultFs) -> Result<World, Error> {
    let now_ms = Arc::new(AtomicI64::new(NOW_MS));
    try_open(
        options(Storage::Fs(fs.shared(), DIR.into()), &now_ms),
        now_ms,
    )
}

/// What a run acknowledged, in order; the position is the mark in the record of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Acknowledged {
    Created,
    Configured,
    Deleted,
    Started,
    Grown,
    End,
}

use Acknowledged::{Configured, Created, Deleted, End, Grown, Started};

async fn recorded_run(fs: &FaultFs) {
    let world = on(fs).unwrap();
    let mark = |what: Acknowledged| fs.mark(what as u64);
    world.create("gone", 1, &[]).await;
    world
        .create(
            "t",
            2,
            &[("internal.segment.bytes", "700"), ("flush.messages", "4")],
        )
        .await;
    mark(Created);
    world.fill("gone", 0, &[NOW_MS]).await;
    for sequence in 0..8 {
        let sent = batch_by(&[NOW_MS + i64::from(sequence)], 100, (3, 0, sequence));
        assert_eq!(world.produce("t", 1, sent).await.error_code, 0);
    }
    assert_eq!(world.alter(2, "t", "retention.ms", 0, Some("77")).await, 0);
    mark(Configured);
    let delete = DeleteTopicsRequest::default().with_topic_names(vec![topic_name("gone")]);
    world.broker.delete_topics(delete, 5).await;
    mark(Deleted);
    let partition = DeleteRecordsPartition::default()
        .with_partition_index(1)
        .with_offset(2);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![partition]);
    world
        .broker
        .delete_records(DeleteRecordsRequest::default().with_topics(vec![topic]))
        .await;
    mark(Started);
    let topic = CreatePartitionsTopic::default()
        .with_name(topic_name("t"))
        .with_count(3)
        .with_assignments(None);
    world
        .broker
        .create_partitions(CreatePartitionsRequest::default().with_topics(vec![topic]))
        .await;
    mark(Grown);
    world.broker.close().await.unwrap();
    mark(End);
}

#[test]
fn after_a_power_cut_at_any_moment_what_was_acknowledged_holds() {
    let fs = FaultFs::recording();
    run(recorded_run(&fs));
    for ops in 0..=fs.op_count() {
        let acknowledged = fs.marks(ops);
        let is = |what: Acknowledged| acknowledged.contains(&(what as u64));
        for survive in [
            Survive::Nothing,
            Survive::Everything,
            Survive::Some(1),
            Survive::Some(2),
        ] {
            let context = || format!("{survive:?} after\n{}", fs.describe(ops));
            run(async {
                let world = on(&fs.after_cut(ops, survive))
                    .unwrap_or_else(|error| panic!("{error} {}", context()));
                let topics = world.broker.topics();
                assert!(!is(Created) || topics.get("t").is_some(), "{}", context());
                assert!(
                    !is(Deleted) || topics.get("gone").is_none(),
                    "{}",
                    context()
                );
                assert!(
                    !is(Grown) || topics.get("t").unwrap().partitions == 3,
                    "{}",
                    context()
                );
                if is(Configured) {
                    assert_eq!(
                        world.configs_of(2, "t").await["retention.ms"].0,
                        "77",
                        "{}",
                        context()
                    );
                }
                if topics.get("t").is_none() {
                    return;
                }
                let (start, end) = world.bounds("t", 1);
                assert!(!is(Started) || start >= 2, "{}", context());
                // Every fourth record was synced before its reply; a clean stop syncs the rest.
                let kept = if is(End) || is(Configured) { 8 } else { 0 };
                assert!((kept..=8).contains(&end), "{start}..{end} {}", context());
                // What is there can be read to its end, and the producer goes on from there.
                let mut at = start;
                while at < end {
                    let data = world.fetch_one(fetch_request("t", &[(1, at)]), 11).await;
                    let mut records = &data.records.unwrap()[..];
                    while !records.is_empty() {
                        let length =
                            u32::from_be_bytes(records[8..12].try_into().unwrap()) as usize;
                        let (batch, rest) = records.split_at(12 + length);
                        assert_eq!(crc32c::crc32c(&batch[21..]).to_be_bytes(), batch[17..21]);
                        assert_eq!(batch[..8], at.to_be_bytes(), "{}", context());
                        at += 1;
                        records = rest;
                    }
                }
                if end > 0 {
                    let next = batch_by(&[NOW_MS], 100, (3, 0, end as i32));
                    assert_eq!(
                        world.produce("t", 1, next).await.base_offset,
                        end,
                        "{}",
                        context()
                    );
                }
            });
        }
    }
}

#[test]
fn a_full_disk_refuses_and_everything_goes_on_when_there_is_room_again() {
    run(async {
        let fs = FaultFs::new();
        let world = on(&fs).unwrap();
        world.create("t", 1, &[]).await;
        world.fill("t", 0, &[NOW_MS]).await;
        fs.set_capacity(Some(fs.used_bytes() + 40));
        assert_eq!(
            world.produce("t", 0, batch(&[NOW_MS], 10)).await.error_code,
            56
        );
        assert_eq!(world.refusal(creatable("u")).await, 56);
        assert_eq!(world.metadata(&["u"], 9, true).await[0].0, 56);
        assert_eq!(world.told.lock().unwrap().len(), 1);
        assert_eq!(world.bounds("t", 0), (0, 1));
        let data = world.fetch_one(fetch_request("t", &[(0, 0)]), 11).await;
        assert!(!data.records.unwrap().is_empty());
        fs.set_capacity(None);
        assert_eq!(world.fill("t", 0, &[NOW_MS]).await, 1);
        assert_eq!(world.refusal(creatable("u")).await, 0);
        drop(world);
        let world = on(&fs).unwrap();
        assert_eq!(
            (world.bounds("t", 0), world.broker.topics().len()),
            ((0, 2), 3)
        );
    });
}

#[test]
fn after_a_failed_sync_nothing_is_taken_until_a_restart() {
    run(async {
        let fs = FaultFs::new();
        let world = on(&fs).unwrap();
        world.create("t", 1, &[("flush.messages", "1")]).await;
        world.create("u", 1, &[]).await;
        let before = fs.sync_count();
        world.fill("t", 0, &[NOW_MS]).await;
        assert!(fs.sync_count() > before);
        let before = fs.sync_count();
        world.fill("u", 0, &[NOW_MS]).await;
        assert_eq!(fs.sync_count(), before);
        fs.fail_syncs_after(Some(0));
        assert_eq!(
            world.produce("t", 0, batch(&[NOW_MS], 10)).await.error_code,
            56
        );
        assert_eq!(world.refusal(creatable("v")).await, 56);
        fs.fail_syncs_after(None);
        assert_eq!(
            world.produce("t", 0, batch(&[NOW_MS], 10)).await.error_code,
            56
        );
        assert_eq!(world.refusal(creatable("v")).await, 56);
        // Other partitions and all reads go on.
        assert_eq!(world.fill("u", 0, &[NOW_MS]).await, 1);
        assert!(
            !world
                .fetch_one(fetch_request("t", &[(0, 0)]), 11)
                .await
                .records
                .unwrap()
                .is_empty()
        );
        drop(world);
        let world = on(&fs).unwrap();
        assert_eq!(world.refusal(creatable("v")).await, 0);
        assert_eq!(
            world.produce("t", 0, batch(&[NOW_MS], 10)).await.error_code,
            0
        );
    });
}

#[test]
fn a_flipped_bit_in_what_was_synced_names_the_file() {
    run(async {
        let fs = FaultFs::new();
        let world = on(&fs).unwrap();
        let id = world.create("t", 1, &[]).await;
        drop(world);
        let journal = Path::new(DIR).join("topics.journal");
        assert!(fs.flip(&journal, 20, 4));
        let error = on(&fs).err().unwrap().to_string();
        assert!(
            error.contains("topics.journal") && error.contains("backup"),
            "{error}"
        );
        assert!(fs.flip(&journal, 20, 4));
        let world = on(&fs).unwrap();
        world.fill("t", 0, &[NOW_MS]).await;
        world.broker.close().await.unwrap();
        drop(world);
        // The bytes of batches are checked by their readers; what the broker needs itself is the length.
        let segment = Path::new(DIR).join(format!("{id}/0/00000000000000000000.log"));
        let file = fs.open(&segment, convoke::log::fs::Open::Write).unwrap();
        file.truncate(10).unwrap();
        let error = on(&fs).err().unwrap().to_string();
        assert!(
            error.contains("00000000000000000000.log") && error.contains("shorter"),
            "{error}"
        );
    });
}

#[test]
fn records_of_many_partitions_are_deleted_with_one_sync() {
    run(async {
        let fs = FaultFs::new();
        let world = on(&fs).unwrap();
        world.create("t", 3, &[]).await;
        for partition in 0..3 {
            world.fill("t", partition, &[NOW_MS, NOW_MS]).await;
        }
        let partition = |index: i32, offset| {
            DeleteRecordsPartition::default()
                .with_partition_index(index)
                .with_offset(offset)
        };
        let asked = vec![
            partition(0, 1),
            partition(1, -1),
            partition(9, 0),
            partition(2, 7),
        ];
        let topic = DeleteRecordsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(asked);
        let before = fs.sync_count();
        let answer = world
            .broker
            .delete_records(DeleteRecordsRequest::default().with_topics(vec![topic]))
            .await;
        assert_eq!(fs.sync_count(), before + 1);
        let answers = answer.topics[0].partitions.iter();
        let answers: Vec<_> = answers
            .map(|p| (p.partition_index, p.error_code, p.low_watermark))
            .collect();
        assert_eq!(answers, [(0, 0, 1), (1, 0, 2), (9, 3, -1), (2, 1, -1)]);
        drop(world);
        let world = on(&fs).unwrap();
        assert_eq!(
            [0, 1, 2].map(|partition| world.bounds("t", partition).0),
            [1, 2, 0]
        );
    });
}
