//! What Kafka forgives, we forgive.

use super::*;

fn frame(key: i16, version: i16, body: &[u8]) -> Bytes {
    let mut w = Writer::new(64, false);
    w.i16(key);
    w.i16(version);
    w.i32(7);
    w.string("cid");
    if api::by_key(key).is_some_and(|api| api.is_flexible(version)) {
        w.raw(&[0]);
    }
    w.raw(body);
    w.finish().unwrap().freeze()
}

fn call(key: i16, version: i16, body: &[u8]) -> Result<Call, Error> {
    decode(frame(key, version, body), &mut peer()).map(|(_, call)| call)
}

fn heartbeat(version: i16, body: &[u8]) -> request::Heartbeat {
    match call(12, version, body) {
        Ok(Call::Group(request::Request::Heartbeat(heartbeat))) => heartbeat,
        other => panic!("{other:?}"),
    }
}

const HEARTBEAT_4: &[u8] = b"\x02g\0\0\0\x01\x02m\0\0";

#[test]
fn a_client_id_of_negative_length_is_null_and_null_is_empty() {
    for length in [-1i16, -2, i16::MIN] {
        let mut bytes = vec![0, 12, 0, 0, 0, 0, 0, 77];
        bytes.extend(length.to_be_bytes());
        bytes.extend(b"\0\x01g\0\0\0\x01\0\x01m");
        let (header, _) = decode(Bytes::from(bytes), &mut peer()).unwrap();
        assert_eq!((header.correlation_id, &*header.client.id), (77, ""));
    }
}

#[test]
fn a_client_id_beyond_the_frame_closes() {
    let bytes = b"\0\x0c\0\0\0\0\0\x4d\x7f\xffabc";
    let refused = decode(Bytes::from_static(bytes), &mut peer());
    assert!(
        matches!(refused, Err(Error::Header { frame_bytes: 13 })),
        "{refused:?}"
    );
}

#[test]
fn the_peer_keeps_the_client_id() {
    let mut peer = peer();
    let (first, _) = decode(frame(12, 4, HEARTBEAT_4), &mut peer).unwrap();
    let (second, _) = decode(frame(12, 4, HEARTBEAT_4), &mut peer).unwrap();
    assert!(Arc::ptr_eq(&first.client.id, &second.client.id));
    assert_eq!(&*peer.client().id, "cid");
}

#[test]
fn unknown_tags_are_skipped_in_header_and_body_even_twice() {
    let body = b"\x02g\0\0\0\x01\x02m\0\x02\x32\x01\x01\x32\x01\x02";
    assert_eq!(&*heartbeat(4, body).member_id, "m");
    let mut bytes = b"\0\x0c\0\x04\0\0\0\x07\0\x01A\x02\x63\x03abc\x63\x00".to_vec();
    bytes.extend(HEARTBEAT_4);
    assert!(decode(Bytes::from(bytes), &mut peer()).is_ok());
    // Metadata 12, kafka-protocol's: the same.
    let body = b"\x01\x01\x01\x02\x32\x01\x01\x32\x01\x02";
    assert!(matches!(
        call(3, 12, body),
        Ok(Call::Data(data::Call::Metadata(_)))
    ));
}

#[test]
fn trailing_bytes_are_ignored() {
    assert_eq!(
        &*heartbeat(4, &[HEARTBEAT_4, &[1, 2, 3]].concat()).group_id,
        "g"
    );
    assert!(call(3, 12, b"\x01\x01\x01\0trailing").is_ok());
}

#[test]
fn negative_lengths_are_null_where_null_is_allowed() {
    for length in [-1i16, -2, i16::MIN] {
        let body = [&b"\0\x01g\0\0\0\x01\0\x01m"[..], &length.to_be_bytes()].concat();
        assert_eq!(heartbeat(3, &body).group_instance_id, None);
        let body = [&length.to_be_bytes()[..], b"\0\0\0\x01\0\x01m"].concat();
        assert!(matches!(call(12, 0, &body), Err(Error::Malformed { .. })));
    }
    for count in [-1i32, -5, i32::MIN] {
        // Metadata 1: null is all topics. kafka-protocol knows −1 only.
        let Ok(Call::Data(data::Call::Metadata(all))) = call(3, 1, &count.to_be_bytes()) else {
            panic!("{count}");
        };
        assert_eq!(all.topics, None);
        // OffsetFetch 2: null is all topics; version 1 has none.
        let body = [&b"\0\x01g"[..], &count.to_be_bytes()].concat();
        let Ok(Call::OffsetFetch(groups)) = call(9, 2, &body) else {
            panic!("{count}")
        };
        assert!(groups[0].topics.is_none());
        assert!(call(9, 1, &body).is_err());
    }
}

#[test]
fn a_huge_varint_is_a_negative_length() {
    // Metadata 12: topics null by way of 2^32 − 1, which kafka-protocol would reserve room for.
    let body = b"\xff\xff\xff\xff\x0f\x01\x01\0";
    let Ok(Call::Data(data::Call::Metadata(all))) = call(3, 12, body) else {
        panic!("refused")
    };
    assert_eq!(all.topics, None);
    // A varint of six bytes is none.
    let body = b"\xff\xff\xff\xff\xff\x01\x01\x01\0";
    let refused = call(3, 12, body);
    assert!(
        matches!(
            refused,
            Err(Error::Malformed {
                refusal: Refusal {
                    why: Flaw::Varint,
                    ..
                },
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn any_byte_but_zero_is_true() {
    let Ok(Call::DescribeGroups {
        include_authorized_operations,
        ..
    }) = call(15, 3, b"\0\0\0\x01\0\x01g\x07")
    else {
        panic!("refused");
    };
    assert!(include_authorized_operations);
    let Ok(Call::Data(data::Call::Metadata(metadata))) = call(3, 4, b"\0\0\0\0\xfe") else {
        panic!("refused");
    };
    assert!(metadata.allow_auto_topic_creation);
}

#[test]
fn invalid_utf8_is_replaced() {
    assert_eq!(
        &*heartbeat(0, b"\0\x02g\xff\0\0\0\x01\0\x01m").group_id,
        "g\u{fffd}"
    );
    assert_eq!(
        &*heartbeat(0, b"\0\x01g\0\0\0\x01\0\x03a\0b").member_id,
        "a\0b"
    );
    for (version, body) in [
        (1, &b"\0\0\0\x01\0\x03t\xc3\x28"[..]),
        (9, b"\x02\x04t\xc3\x28\0\x01\0\0\0"),
    ] {
        let Ok(Call::Data(data::Call::Metadata(metadata))) = call(3, version, body) else {
            panic!("version {version} refused");
        };
        let topics = metadata.topics.unwrap();
        assert_eq!(topics[0].name.as_ref().unwrap().as_str(), "t\u{fffd}(");
    }
}

#[test]
fn a_struct_is_present_unless_its_byte_is_negative() {
    // DescribeTopicPartitions: no topics, limit 5, a cursor at topic "t".
    for (byte, present) in [
        (0u8, true),
        (1, true),
        (2, true),
        (0x7f, true),
        (0x80, false),
        (0xff, false),
    ] {
        let mut body = vec![1, 0, 0, 0, 5, byte];
        if present {
            body.extend(b"\x02t\0\0\0\x03\0");
        }
        body.push(0);
        let Ok(Call::Data(data::Call::DescribeTopicPartitions(request))) = call(75, 0, &body)
        else {
            panic!("{byte} refused");
        };
        assert_eq!(
            request.cursor.map(|cursor| cursor.partition_index),
            present.then_some(3)
        );
    }
}

#[test]
fn a_tag_of_another_version_closes() {
    // Fetch 13 knows tag 1 (replica state) only from 15 on.
    let body = |tag: u8| {
        let mut body = vec![0; 4 + 4 + 4 + 4 + 1 + 4 + 4];
        body.extend([1, 1, 1, 1, tag, 1, 0]);
        body
    };
    assert!(call(1, 13, &body(50)).is_ok());
    let refused = call(1, 13, &body(1));
    assert!(
        matches!(
            refused,
            Err(Error::Malformed {
                refusal: Refusal {
                    why: Flaw::Tag { tag: 1 },
                    ..
                },
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn strings_end_at_kafkas_limit_in_both_encodings() {
    let long = "x".repeat(32_767);
    let classic = [&b"\x7f\xff"[..], long.as_bytes(), b"\0\0\0\x01\0\x01m"].concat();
    assert_eq!(&*heartbeat(0, &classic).group_id, &*long);
    let compact = [&b"\x80\x80\x02"[..], long.as_bytes(), &HEARTBEAT_4[2..]].concat();
    assert_eq!(&*heartbeat(4, &compact).group_id, &*long);
    let beyond = [&b"\x81\x80\x02x"[..], long.as_bytes(), &HEARTBEAT_4[2..]].concat();
    assert!(matches!(
        call(12, 4, &beyond),
        Err(Error::Malformed {
            refusal: Refusal {
                why: Flaw::StringTooLong { .. },
                ..
            },
            ..
        })
    ));
}

#[test]
fn unknown_apis_and_versions_close() {
    assert!(matches!(
        call(999, 0, &[]),
        Err(Error::UnknownApi { api_key: 999, .. })
    ));
    assert!(matches!(
        call(52, 0, &[0; 20]),
        Err(Error::UnknownApi { .. })
    ));
    assert!(matches!(
        call(12, 5, HEARTBEAT_4),
        Err(Error::UnsupportedVersion { .. })
    ));
    assert!(matches!(
        call(11, -1, &[]),
        Err(Error::UnsupportedVersion { .. })
    ));
    assert!(matches!(
        call(8, 1, &[]),
        Err(Error::UnsupportedVersion {
            min: 2,
            max: 10,
            ..
        })
    ));
    // Advertised for librdkafka's sake, and closed on.
    assert!(matches!(
        call(0, 2, &[0; 20]),
        Err(Error::UnsupportedVersion { min: 3, .. })
    ));
}

#[test]
fn hidden_rows_are_unknown_and_not_listed() {
    let hidden = api::APIS.iter().filter(|api| !api.advertised);
    for api in hidden {
        assert!(matches!(
            call(api.key, 0, &[0; 8]),
            Err(Error::UnknownApi { .. })
        ));
    }
}

fn hello(version: i16, body: &[u8]) -> (Header, Hello) {
    match decode(frame(18, version, body), &mut peer()) {
        Ok((header, Call::ApiVersions(hello))) => (header, hello),
        other => panic!("{other:?}"),
    }
}

#[test]
fn api_versions_of_an_unknown_version_is_answered_as_version_0() {
    for version in [6, 32767, -1, i16::MIN] {
        let (header, hello) = hello(version, b"whatever");
        let reply = Reply::ApiVersions(hello.answer("c", 1));
        let bytes = encode(&header, &reply).unwrap();
        assert_eq!(
            &bytes[8..],
            b"\0\x23\0\0\0\x01\0\x12\0\0\0\x05",
            "version {version}"
        );
    }
}

#[test]
fn api_versions_refuses_odd_software_names() {
    let answer = |name: &str, version: &str| {
        let mut body = Writer::new(64, true);
        body.string(name);
        body.string(version);
        body.tags();
        hello(3, &body.finish().unwrap()).1.answer("c", 1).error
    };
    assert_eq!(answer("soft-ware.x", "1.2.3"), 0);
    assert_eq!(answer("a", "1"), 0);
    for bad in ["", "a b", "-a", "a-", ".", "é", "a_b"] {
        assert_eq!(answer(bad, "1"), INVALID_REQUEST, "{bad:?}");
        assert_eq!(answer("a", bad), INVALID_REQUEST, "{bad:?}");
    }
}

#[test]
fn api_versions_5_checks_cluster_and_node_together() {
    let answer = |cluster: Option<&str>, node: i32| {
        let mut body = Writer::new(64, true);
        body.string("s");
        body.string("1");
        body.nullable_string(cluster);
        body.i32(node);
        body.tags();
        hello(5, &body.finish().unwrap()).1.answer("c", 1).error
    };
    assert_eq!(answer(None, -1), 0);
    assert_eq!(answer(Some("c"), 1), 0);
    assert_eq!(answer(Some("c"), 2), REBOOTSTRAP_REQUIRED);
    assert_eq!(answer(Some("other"), 1), REBOOTSTRAP_REQUIRED);
    assert_eq!(answer(Some("c"), -1), INVALID_REQUEST);
    assert_eq!(answer(None, 1), INVALID_REQUEST);
}

#[test]
fn a_reply_that_its_version_cannot_hold_is_an_error_and_no_bytes() {
    let header = header_of(api::by_key(11).unwrap(), 3);
    let refused =
        request::JoinReply::refused(ErrorCode::UnknownMemberId, "x".repeat(40_000).into());
    let reply = Reply::Group(request::Reply::Join(refused));
    assert!(matches!(
        encode(&header, &reply),
        Err(Error::Unwritable { .. })
    ));
}

#[test]
fn names_leave_room_for_the_member_id_made_of_them() {
    let long = "é".repeat(16_383);
    let body = HEARTBEAT_4;
    let mut bytes = b"\0\x0c\0\x04\0\0\0\x07".to_vec();
    bytes.extend((long.len() as u16).to_be_bytes());
    bytes.extend(long.as_bytes());
    bytes.push(0);
    bytes.extend(body);
    let (header, _) = decode(Bytes::from(bytes), &mut peer()).unwrap();
    assert_eq!(header.client.id.len(), guard::NAME_BYTES_MAX);

    let join = |instance_id: &str| {
        let mut w = Writer::new(64, false);
        w.string("g");
        w.i32(1);
        w.i32(1);
        w.string("");
        w.string(instance_id);
        w.string("consumer");
        w.items(&[0; 0], |_, _| {});
        call(11, 5, &w.finish().unwrap())
    };
    assert!(join(&"i".repeat(guard::NAME_BYTES_MAX)).is_ok());
    assert!(join(&"i".repeat(guard::NAME_BYTES_MAX + 1)).is_err());
}
