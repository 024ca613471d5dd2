use proptest::prelude::*;

use super::*;

const GOLDEN: &str = include_str!("../../../tests/frames/records.txt");

fn unhex(text: &str) -> Vec<u8> {
    let digit = |c: u8| char::from(c).to_digit(16).unwrap() as u8;
    text.as_bytes()
        .chunks(2)
        .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
        .collect()
}

/// Name, key and value of each golden record.
fn golden() -> impl Iterator<Item = (&'static str, Vec<u8>, Option<Vec<u8>>)> {
    GOLDEN
        .lines()
        .filter(|line| !line.starts_with('#') && !line.starts_with("batch"))
        .map(|line| {
            let [name, key, value] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
            (name, unhex(key), (value != "-").then(|| unhex(value)))
        })
}

fn read(key: &[u8], value: Option<&[u8]>) -> Parsed {
    read_key_and_value(key, value, &mut 0).unwrap()
}

fn golden_record(wanted: &str) -> Record {
    let (_, key, value) = golden().find(|(name, ..)| *name == wanted).unwrap();
    match read(&key, value.as_deref()) {
        Parsed::Record(record) => record,
        _ => panic!("{wanted} is no record"),
    }
}

fn offset(value: OffsetValue) -> Record {
    let (group_id, topic) = (Arc::from("g"), Arc::from("t"));
    Record::OffsetCommit {
        group_id,
        topic,
        partition: 7,
        value: Some(value),
    }
}

fn kafkas_offset() -> OffsetValue {
    OffsetValue {
        offset: 42,
        leader_epoch: -1,
        metadata: "mé".into(),
        commit_timestamp: Millis(1000),
        expire_timestamp: None,
        topic_id: TopicId::ZERO,
        moved: None,
    }
}

const ID: TopicId = TopicId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

#[test]
fn every_version_of_an_offset_is_read() {
    let plain = kafkas_offset();
    assert_eq!(golden_record("offset-v0"), offset(plain.clone()));
    assert_eq!(golden_record("offset-v2"), offset(plain.clone()));
    let expiring = OffsetValue {
        expire_timestamp: Some(Millis(2000)),
        ..plain.clone()
    };
    assert_eq!(golden_record("offset-v1"), offset(expiring));
    let with_epoch = OffsetValue {
        leader_epoch: 5,
        ..plain.clone()
    };
    assert_eq!(golden_record("offset-v3"), offset(with_epoch.clone()));
    assert_eq!(
        golden_record("offset-v4"),
        offset(OffsetValue {
            topic_id: ID,
            ..with_epoch
        })
    );
    let legacy = OffsetValue {
        metadata: "m".into(),
        ..plain
    };
    assert_eq!(golden_record("legacy-offset-v0"), offset(legacy));
}

#[test]
fn an_offset_carries_that_it_was_moved() {
    for topic_id in [TopicId::ZERO, ID] {
        let moved = offset(OffsetValue {
            topic_id,
            moved: Some(Box::new(Moved {
                since: 7,
                until: Millis(9_000),
            })),
            ..kafkas_offset()
        });
        let bytes = encode_batch(std::slice::from_ref(&moved), 0, Millis(1)).unwrap();
        assert_eq!(decode_batch(&bytes).unwrap().records, [moved]);
    }
}

#[test]
fn every_version_of_a_classic_group_is_read() {
    for version in 0..=4 {
        let Record::GroupMetadata {
            value: Some(group), ..
        } = golden_record(&format!("group-v{version}"))
        else {
            panic!("version {version} is no group");
        };
        let member = GroupMemberValue {
            member_id: "m-1".into(),
            group_instance_id: (version >= 3).then(|| "i1".into()),
            client: Client {
                id: "c".into(),
                host: "/127.0.0.1".into(),
            },
            rebalance_timeout_ms: if version >= 1 { 60000 } else { -1 },
            session_timeout_ms: 10000,
            subscription: Bytes::from_static(&[1, 2]),
            assignment: Bytes::from_static(&[3]),
        };
        let wanted = GroupValue {
            protocol_type: "consumer".into(),
            generation: 3,
            protocol: Some("range".into()),
            leader: Some("m-1".into()),
            current_state_timestamp: Millis(if version >= 2 { 1234 } else { -1 }),
            members: vec![member],
        };
        assert_eq!(*group, wanted, "version {version}");
    }
}

#[test]
fn what_kafka_writes_we_write_byte_for_byte() {
    // Written in one version only, whichever was read.
    let rewritten = [
        "offset-v0",
        "offset-v2",
        "offset-v3",
        "legacy-offset-v0",
        "group-v0",
        "group-v1",
        "group-v2",
        "group-v4",
        "current-no-epochs",
    ];
    for (name, key, value) in golden() {
        let Parsed::Record(record) = read(&key, value.as_deref()) else {
            continue;
        };
        let mut w = Writer::new(64, false);
        write_key(&mut w, &record);
        let key_bytes = w.len();
        let has_value = write_value(&mut w, &record);
        let (got_key, got_value) = w.outcome().unwrap().split_at(key_bytes);
        assert_eq!(has_value, value.is_some(), "{name}");
        if rewritten.contains(&name) {
            let Parsed::Record(again) = read(got_key, Some(got_value)) else {
                panic!("{name}")
            };
            assert_eq!(again, record, "{name}");
        } else {
            assert_eq!(got_key, key, "{name}");
            assert_eq!(got_value, value.unwrap_or_default(), "{name}");
        }
    }
}

#[test]
fn a_batch_is_kafkas_batch() {
    let line = GOLDEN
        .lines()
        .find(|line| line.starts_with("batch"))
        .unwrap();
    let bytes = unhex(line.split(' ').nth(1).unwrap());
    let batch = decode_batch(&bytes).unwrap();
    assert_eq!(
        (batch.base_offset, batch.timestamp, batch.records.len()),
        (17, Millis(5000), 2)
    );
    let again = encode_batch(&batch.records, batch.base_offset, batch.timestamp).unwrap();
    assert_eq!(&again[..], &bytes[..]);
}

#[test]
fn epochs_that_are_missing_are_the_members() {
    let Record::ConsumerGroupCurrentMemberAssignment {
        value: Some(value), ..
    } = golden_record("current-no-epochs")
    else {
        panic!("no assignment");
    };
    let pending = AssignedPartitions {
        topic_id: ID,
        partitions: vec![(5, 4)],
    };
    assert_eq!(value.pending_revocation, vec![pending]);
    assert_eq!(value.state, MemberState::UnreleasedPartitions);
}

#[test]
fn unknown_types_are_skipped_and_counted() {
    assert!(matches!(
        read(&[0, 11, 0, 1, b'g'], Some(&[0, 0])),
        Parsed::UnknownType
    ));
    let records = [offset(kafkas_offset())];
    let mut bytes = encode_batch(&records, 0, Millis(1)).unwrap().to_vec();
    // The type of the first key: header, length, attributes, timestamp, delta, key length.
    let kind_at = BATCH_HEADER_BYTES + 1 + 4;
    assert_eq!(bytes[kind_at..kind_at + 2], [0, 1]);
    bytes[kind_at + 1] = 99;
    reseal(&mut bytes);
    let batch = decode_batch(&bytes).unwrap();
    assert_eq!((batch.records.len(), batch.skipped_count), (0, 1));
}

#[test]
fn a_newer_version_of_a_known_type_is_an_error_that_names_it() {
    let mut kind = 0;
    let parsed = read_key_and_value(&[0, 3, 0, 1, b'g'], Some(&[0, 1]), &mut kind).unwrap();
    assert!(matches!(parsed, Parsed::UnknownVersion(1)));
    let error = BatchError::UnknownVersion {
        index: 4,
        kind,
        version: 1,
    };
    assert!(error.to_string().contains("type 3 in version 1"));
}

#[test]
fn a_flipped_bit_is_noticed() {
    let bytes = encode_batch(&[offset(kafkas_offset())], 3, Millis(1)).unwrap();
    for at in CRC_AT..bytes.len() {
        let mut bytes = bytes.to_vec();
        bytes[at] ^= 1;
        assert!(
            matches!(decode_batch(&bytes), Err(BatchError::Checksum { .. })),
            "byte {at}"
        );
    }
}

#[test]
fn a_batch_cut_anywhere_is_refused() {
    let bytes = encode_batch(&[offset(kafkas_offset())], 3, Millis(1)).unwrap();
    for at in 0..bytes.len() {
        assert!(
            matches!(
                decode_batch(&bytes[..at]),
                Err(BatchError::NotABatch { .. })
            ),
            "{at}"
        );
    }
}

#[test]
fn an_overlong_string_cannot_be_written() {
    let record = Record::GroupMetadata {
        group_id: "x".repeat(40_000).into(),
        value: None,
    };
    assert!(matches!(
        encode_batch(&[record], 0, Millis(0)),
        Err(BatchError::Unwritable { reason, .. }) if reason.contains("32,767")
    ));
}

#[test]
fn varlong_sizes_are_what_is_written() {
    for value in [
        0,
        -1,
        1,
        63,
        64,
        -64,
        -65,
        8191,
        8192,
        i64::from(i32::MAX),
        i64::MAX,
        i64::MIN,
    ] {
        let mut out = BytesMut::new();
        put_varlong(&mut out, value);
        assert_eq!(out.len(), varlong_bytes(value), "{value}");
        assert_eq!(Reader::new(&out, false).varlong().unwrap(), value);
    }
}

/// Makes length and checksum right again.
fn reseal(bytes: &mut [u8]) {
    let length = i32::try_from(bytes.len()).unwrap() - 12;
    bytes[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c::crc32c(&bytes[CRC_AT + 4..]);
    bytes[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_bytes_behind_a_right_checksum_are_read_or_refused(
        pick in any::<prop::sample::Index>(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        count in prop_oneof![Just(1i32), any::<i32>()],
    ) {
        let all: Vec<_> = golden().collect();
        let (_, key, value) = pick.get(&all);
        let Parsed::Record(record) = read(key, value.as_deref()) else { return Ok(()) };
        let mut bytes = encode_batch(&[record], 0, Millis(0)).unwrap().to_vec();
        bytes[57..61].copy_from_slice(&count.to_be_bytes());
        for (at, byte) in damage {
            let at = BATCH_HEADER_BYTES + at.index(bytes.len() - BATCH_HEADER_BYTES);
            bytes[at] = byte;
        }
        reseal(&mut bytes);
        let _ = decode_batch(&bytes);
    }
}
