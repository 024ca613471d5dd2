//! Tests of one partition: reading, recovery, retention.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::super::Error;
use super::super::batch::tests::Batch;
use super::super::memory::MemoryFs;
use super::*;
use crate::log::fs::{Fs, Open};

const TOPIC: Uuid = Uuid::from_u128(9);
const NOW_MS: i64 = 1_000_000;

struct World {
    fs: Arc<MemoryFs>,
    config: TopicConfig,
}

impl World {
    fn new(configs: &[(&str, &str)]) -> Self {
        let own: BTreeMap<String, String> = configs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect();
        Self {
            fs: Arc::default(),
            config: TopicConfig::new(&own, &BTreeMap::new()),
        }
    }

    /// As after a restart, with the durable start offset given.
    fn open_from(&self, start: i64) -> Result<Partition, Error> {
        let files = Files::new(Arc::clone(&self.fs) as Arc<dyn Fs>, PathBuf::from("/"), 8);
        let partition = Partition::new(Arc::new(files), TOPIC, 0);
        partition.load(start, NOW_MS).map(|()| partition)
    }

    fn open(&self) -> Partition {
        self.open_from(0).unwrap()
    }

    fn append(&self, partition: &Partition, batch: &Batch) -> Result<i64, ResponseError> {
        let bytes = batch.bytes();
        let header = Header::read(&bytes).unwrap();
        let appended = partition.append(&header, &bytes, &self.config, NOW_MS)?;
        partition.work(appended.chores);
        Ok(appended.base_offset)
    }

    fn dir(&self) -> PathBuf {
        PathBuf::from(format!("/{TOPIC}/0"))
    }

    fn names(&self, suffix: &str) -> Vec<String> {
        let names = self.fs.list(&self.dir()).unwrap_or_default();
        names
            .into_iter()
            .filter(|name| name.ends_with(suffix))
            .collect()
    }

    fn file(&self, name: &str) -> Arc<dyn crate::log::fs::FsFile> {
        self.fs.open(&self.dir().join(name), Open::Write).unwrap()
    }
}

fn offsets(mut bytes: &[u8]) -> Vec<(i64, i64)> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let header = Header::read(bytes).unwrap();
        all.push((header.base_offset, header.last_offset()));
        bytes = &bytes[header.bytes..];
    }
    all
}

fn read(
    partition: &Partition,
    offset: i64,
    bytes_max: usize,
    at_least_one: bool,
) -> Vec<(i64, i64)> {
    offsets(
        &partition
            .read(offset, bytes_max, at_least_one)
            .unwrap()
            .bytes,
    )
}

#[test]
fn an_empty_partition_takes_no_file() {
    let world = World::new(&[]);
    let partition = world.open();
    assert_eq!(partition.bounds(), Bounds::default());
    assert!(read(&partition, 0, 1000, true).is_empty());
    assert_eq!(
        partition.read(1, 1000, true).unwrap_err(),
        ResponseError::OffsetOutOfRange
    );
    partition.close().unwrap();
    assert!(world.fs.list(&world.dir()).is_err());
}

#[test]
fn a_read_begins_with_the_batch_that_holds_the_offset_and_ends_with_a_whole_one() {
    let world = World::new(&[]);
    let partition = world.open();
    let batch = Batch::of(&[1, 2, 3], 100);
    let bytes = batch.bytes().len();
    for _ in 0..500 {
        world.append(&partition, &batch).unwrap();
    }
    assert_eq!(read(&partition, 0, 2 * bytes, false), [(0, 2), (3, 5)]);
    assert_eq!(read(&partition, 4, 2 * bytes, false), [(3, 5), (6, 8)]);
    assert_eq!(
        read(&partition, 1000, 2 * bytes + 1, false),
        [(999, 1001), (1002, 1004)]
    );
    assert_eq!(read(&partition, 1499, usize::MAX, false), [(1497, 1499)]);
    assert_eq!(read(&partition, 0, bytes - 1, false), []);
    assert_eq!(read(&partition, 0, bytes - 1, true), [(0, 2)]);
    assert_eq!(read(&partition, 0, 0, true), [(0, 2)]);
    assert_eq!(read(&partition, 0, 0, false), []);
    assert!(partition.read(1497, usize::MAX, false).unwrap().at_end);
    assert!(!partition.read(0, bytes, false).unwrap().at_end);
}

#[test]
fn batches_larger_than_what_is_read_at_once_are_found_and_read() {
    let world = World::new(&[]);
    let partition = world.open();
    let large = Batch::of(&[1], 300_000);
    for _ in 0..3 {
        world.append(&partition, &large).unwrap();
        world.append(&partition, &Batch::of(&[1], 1)).unwrap();
    }
    for offset in 0..6 {
        assert_eq!(read(&partition, offset, 10, true), [(offset, offset)]);
    }
    let small = Batch::of(&[1], 1).bytes().len();
    assert_eq!(read(&partition, 1, small, false), [(1, 1)]);
    assert_eq!(read(&partition, 2, small, false), []);
    assert_eq!(read(&partition, 2, large.bytes().len(), false), [(2, 2)]);
}

#[test]
fn everything_is_there_after_a_restart_with_and_without_a_clean_stop() {
    for clean in [true, false] {
        let world = World::new(&[("internal.segment.bytes", "20000")]);
        let partition = world.open();
        let mut sequence = 0;
        for _ in 0..100 {
            world
                .append(&partition, &Batch::of(&[5, 7], 400).by(3, 0, sequence))
                .unwrap();
            sequence += 2;
        }
        if clean {
            partition.close().unwrap();
        }
        let again = world.open();
        assert_eq!(again.bounds(), partition.bounds());
        assert_eq!(again.size_bytes(), partition.size_bytes());
        for offset in [0, 1, 77, 198, 199] {
            assert_eq!(
                read(&again, offset, 900, true),
                read(&partition, offset, 900, true),
                "{offset}"
            );
        }
        // The producer is known: the last batch again is a duplicate, the one behind the next is a gap.
        let repeated = world.append(&again, &Batch::of(&[5, 7], 400).by(3, 0, sequence - 2));
        assert_eq!(repeated, Ok(198));
        let gap = world.append(&again, &Batch::of(&[5, 7], 400).by(3, 0, sequence + 2));
        assert_eq!(gap, Err(ResponseError::OutOfOrderSequenceNumber));
        assert_eq!(
            world.append(&again, &Batch::of(&[5, 7], 400).by(3, 0, sequence)),
            Ok(200)
        );
        assert!(world.names(".log").len() > 3);
        // Every closed segment has its index, and after a clean stop the last one too.
        assert_eq!(
            world.names(".idx").len(),
            world.names(".log").len() - usize::from(!clean)
        );
    }
}

#[test]
fn the_producers_are_recovered_without_any_index() {
    let world = World::new(&[("internal.segment.bytes", "20000")]);
    let partition = world.open();
    for index in 0..100 {
        world
            .append(&partition, &Batch::of(&[5], 400).by(3, 0, index))
            .unwrap();
    }
    for name in world.names(".idx") {
        world.fs.remove(&world.dir().join(name)).unwrap();
    }
    assert_eq!(world.open().producers(), world.open().producers());
    assert_eq!(
        world.append(&world.open(), &Batch::of(&[5], 400).by(3, 0, 99)),
        Ok(99)
    );
    // One missing in the middle: the walk goes on from the one before it.
    let world = World::new(&[("internal.segment.bytes", "20000")]);
    let partition = world.open();
    for index in 0..30 {
        world
            .append(&partition, &Batch::of(&[5], 900).by(index, 0, 0))
            .unwrap();
    }
    let last = world.names(".idx").pop().unwrap();
    world.fs.remove(&world.dir().join(last)).unwrap();
    assert_eq!(world.open().producers().len(), 30);
}

#[test]
fn a_torn_end_is_cut_wherever_it_is_torn() {
    let whole = {
        let world = World::new(&[]);
        let partition = world.open();
        for _ in 0..3 {
            world.append(&partition, &Batch::of(&[1, 2], 10)).unwrap();
        }
        let file = world.file("00000000000000000000.log");
        let mut bytes = vec![0; file.size().unwrap() as usize];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let batch = whole.len() / 3;
    for cut in 0..whole.len() {
        for junk in [false, true] {
            let world = World::new(&[]);
            world.fs.create_dirs(&world.dir()).unwrap();
            let file = world
                .fs
                .open(&world.dir().join("00000000000000000000.log"), Open::Create)
                .unwrap();
            file.write_at(&[&whole[..cut]], 0).unwrap();
            if junk {
                file.write_at(&[&[0xff; 100]], cut as u64).unwrap();
            }
            let partition = world.open();
            assert_eq!(partition.bounds().end, (cut / batch) as i64 * 2);
            assert_eq!(
                world.append(&partition, &Batch::of(&[1, 2], 10)),
                Ok((cut / batch) as i64 * 2)
            );
            assert_eq!(world.open().bounds(), partition.bounds());
        }
    }
}

#[test]
fn damage_in_what_was_synced_refuses_and_loss_of_what_was_not_is_cut() {
    let fill = || {
        let world = World::new(&[("internal.segment.bytes", "20000")]);
        let partition = world.open();
        for _ in 0..200 {
            world.append(&partition, &Batch::of(&[5], 400)).unwrap();
        }
        world
    };
    let world = fill();
    let names = world.names(".log");
    world.file(&names[1]).truncate(1000).unwrap();
    assert!(matches!(world.open_from(0), Err(Error::Damaged { .. })));
    // A closed segment that was never synced lost its end: what follows is dropped with it.
    let world = fill();
    for name in world.names(".idx") {
        world.fs.remove(&world.dir().join(name)).unwrap();
    }
    world.file(&names[1]).truncate(1000).unwrap();
    let partition = world.open();
    assert_eq!(world.names(".log").len(), 2);
    let base = segment::base_of(&names[1]).unwrap();
    assert_eq!(partition.bounds().end, base + 2);
    // With a later one synced that is no crash but damage.
    let world = fill();
    world
        .fs
        .remove(&world.dir().join(names[1].replace("log", "idx")))
        .unwrap();
    world.file(&names[1]).truncate(1000).unwrap();
    assert!(matches!(world.open_from(0), Err(Error::Damaged { .. })));
}

#[test]
fn retention_by_size_and_time_drops_whole_segments_and_keeps_the_end() {
    let world = World::new(&[
        ("internal.segment.bytes", "10000"),
        ("retention.bytes", "30000"),
    ]);
    let partition = world.open();
    for _ in 0..1000 {
        world
            .append(&partition, &Batch::of(&[NOW_MS], 400))
            .unwrap();
        partition.retain(&world.config, NOW_MS, 0).unwrap();
        assert!(partition.size_bytes() <= 40_000);
    }
    assert_eq!(partition.bounds().end, 1000);
    let start = partition.bounds().log_start;
    assert!(start > 900);
    assert_eq!(
        partition.read(start - 1, 10, true).unwrap_err(),
        ResponseError::OffsetOutOfRange
    );
    assert_eq!(read(&partition, start, 1, true), [(start, start)]);
    assert_eq!(world.open().bounds(), partition.bounds());

    let later = TopicConfig {
        retention_ms: 100,
        ..world.config
    };
    assert_eq!(partition.retain(&later, NOW_MS + 100, 0).unwrap(), 0);
    assert!(partition.retain(&later, NOW_MS + 101, 0).unwrap() > 0);
    assert_eq!(
        partition.bounds(),
        Bounds {
            log_start: 1000,
            end: 1000,
            last_stable: 1000
        }
    );
    assert_eq!(world.names(".log"), ["00000000000000001000.log"]);
    assert!(world.names(".idx").is_empty());
    assert_eq!(world.open().bounds(), partition.bounds());
    assert_eq!(
        world.append(&world.open(), &Batch::of(&[NOW_MS], 1)),
        Ok(1000)
    );
}

#[test]
fn a_start_that_was_moved_holds_even_if_the_records_before_it_were_lost() {
    let world = World::new(&[("internal.segment.bytes", "10000")]);
    let partition = world.open();
    for _ in 0..100 {
        world
            .append(&partition, &Batch::of(&[NOW_MS], 400))
            .unwrap();
    }
    assert_eq!(
        partition.check_start(101),
        Err(ResponseError::OffsetOutOfRange)
    );
    assert_eq!(
        partition.check_start(-2),
        Err(ResponseError::OffsetOutOfRange)
    );
    assert_eq!(partition.check_start(-1), Ok(100));
    let before = world.names(".log").len();
    assert_eq!(partition.set_start(50), 50);
    assert!(world.names(".log").len() < before);
    assert_eq!(partition.check_start(10), Ok(50));
    let again = world.open_from(50).unwrap();
    assert_eq!(
        again.bounds(),
        Bounds {
            log_start: 50,
            end: 100,
            last_stable: 100
        }
    );
    // The page cache was lost, the start was not.
    let again = world.open_from(500).unwrap();
    assert_eq!(
        again.bounds(),
        Bounds {
            log_start: 500,
            end: 500,
            last_stable: 500
        }
    );
    assert_eq!(world.append(&again, &Batch::of(&[NOW_MS], 1)), Ok(500));
    assert_eq!(world.open_from(500).unwrap().bounds().end, 501);
}

#[test]
fn segments_close_by_the_records_own_time() {
    let world = World::new(&[("segment.ms", "1000")]);
    let partition = world.open();
    for timestamp in [5_000, 6_000, 6_001, 6_500, 7_002] {
        world
            .append(&partition, &Batch::of(&[timestamp], 1))
            .unwrap();
    }
    assert_eq!(world.names(".log").len(), 3);
}

#[test]
fn the_batch_for_a_time_is_found_across_segments_and_marks() {
    let world = World::new(&[("internal.segment.bytes", "200000")]);
    let partition = world.open();
    // Rising by ten, but every 50th is late.
    for index in 0..2000_i64 {
        let timestamp = if index % 50 == 49 {
            1
        } else {
            1000 + index * 10
        };
        world
            .append(&partition, &Batch::of(&[timestamp], 400))
            .unwrap();
    }
    for partition in [partition, world.open()] {
        partition.retain(&world.config, 0, 0).unwrap();
        for index in [0, 1, 48, 777, 1998] {
            for ahead in [0, 9] {
                let found = partition
                    .batch_at_time(1000 + index * 10 - ahead, None)
                    .unwrap()
                    .unwrap();
                assert_eq!(found.0.base_offset, index);
            }
        }
        assert_eq!(
            partition
                .batch_at_time(1000 + 49 * 10, None)
                .unwrap()
                .unwrap()
                .0
                .base_offset,
            50
        );
        assert!(partition.batch_at_time(1_000_000, None).unwrap().is_none());
        assert_eq!(partition.max_timestamp().unwrap(), 1000 + 1998 * 10);
        partition.set_start(1500);
        assert_eq!(
            partition
                .batch_at_time(0, None)
                .unwrap()
                .unwrap()
                .0
                .base_offset,
            1500
        );
        assert_eq!(partition.max_timestamp().unwrap(), 1000 + 1998 * 10);
        partition.set_start(1999);
        assert_eq!(partition.max_timestamp().unwrap(), 1);
    }
}

#[test]
fn many_partitions_keep_few_files_open() {
    let fs = Arc::new(MemoryFs::default());
    let files = Arc::new(Files::new(
        Arc::clone(&fs) as Arc<dyn Fs>,
        PathBuf::from("/"),
        10,
    ));
    let config = TopicConfig::new(&BTreeMap::new(), &BTreeMap::new());
    let partitions: Vec<Partition> = (0..100)
        .map(|index| Partition::new(Arc::clone(&files), TOPIC, index))
        .collect();
    let bytes = Batch::of(&[1], 10).bytes();
    let header = Header::read(&bytes).unwrap();
    for round in 0..3 {
        for partition in &partitions {
            let appended = partition.append(&header, &bytes, &config, NOW_MS).unwrap();
            assert_eq!(appended.base_offset, round);
        }
    }
    assert!(files.open_count() <= 10);
    assert_eq!(read(&partitions[0], 0, 1000, true).len(), 3);
}

#[test]
fn a_sync_is_due_by_count_or_by_the_age_of_the_oldest_record() {
    let world = World::new(&[("flush.ms", "100")]);
    let partition = world.open();
    assert!(!partition.flush_is_due(&world.config, NOW_MS + 1000));
    world.append(&partition, &Batch::of(&[1, 2], 1)).unwrap();
    assert!(!partition.flush_is_due(&world.config, NOW_MS + 99));
    assert!(partition.flush_is_due(&world.config, NOW_MS + 100));
    assert!(partition.flush());
    assert!(!partition.flush_is_due(&world.config, NOW_MS + 1000));
    let counted = World::new(&[("flush.messages", "3")]);
    let partition = counted.open();
    let bytes = Batch::of(&[1, 2], 1).bytes();
    let header = Header::read(&bytes).unwrap();
    let due = || {
        let appended = partition
            .append(&header, &bytes, &counted.config, NOW_MS)
            .unwrap();
        let due = appended.chores.flush;
        partition.work(appended.chores);
        due
    };
    assert_eq!([due(), due(), due(), due()], [false, true, false, true]);
}
