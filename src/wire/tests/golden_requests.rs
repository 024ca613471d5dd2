//! Every version of every group request, as Kafka writes it, in the core's words.

use super::*;
use crate::group::request::*;
use crate::group::types::{TopicId, TopicRef};

const ID: TopicId = TopicId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

fn each(name: &str, expected: impl Fn(i16) -> Call) {
    let mut seen = 0;
    for (_, version, bytes) in
        frames(include_str!("../../../tests/frames/requests.txt")).filter(|frame| frame.0 == name)
    {
        let key = i16::from_be_bytes([bytes[0], bytes[1]]);
        let api = api::by_key_or_hidden(key).unwrap();
        let (header, body_at) = match decode(Bytes::from(bytes.clone()), &mut peer()) {
            Ok((header, call)) => {
                assert_eq!(
                    format!("{call:?}"),
                    format!("{:?}", expected(version)),
                    "{name} {version}"
                );
                (header, None)
            }
            Err(Error::UnknownApi { .. }) if !api.advertised => {
                // Header 2: key, version, correlation id, "cid", no tags.
                (header_of(api, version), Some(2 + 2 + 4 + 5 + 1))
            }
            Err(error) => panic!("{name} {version}: {error}"),
        };
        if let Some(at) = body_at {
            let call = decode_body(api, version, bytes[at..].to_vec()).unwrap();
            assert_eq!(
                format!("{call:?}"),
                format!("{:?}", expected(version)),
                "{name} {version}"
            );
        }
        assert_eq!((header.api_version, header.correlation_id), (version, 7));
        assert_eq!(&*header.client.id, "cid");
        seen += 1;
    }
    let max = api_max(name);
    assert!(seen > 0 && max >= seen - 1, "{name}: {seen} frames");
}

fn api_max(name: &str) -> i16 {
    let mut frames = frames(include_str!("../../../tests/frames/requests.txt"));
    let bytes = frames.find(|frame| frame.0 == name).unwrap().2;
    api::by_key_or_hidden(i16::from_be_bytes([bytes[0], bytes[1]]))
        .unwrap()
        .max
}

fn client() -> Client {
    Client {
        id: "cid".into(),
        host: "/127.0.0.1".into(),
    }
}

fn since<T>(version: i16, first: i16, value: T) -> Option<T> {
    (version >= first).then_some(value)
}

fn topic(version: i16) -> TopicRef {
    if version >= 10 {
        TopicRef::Id(ID)
    } else {
        TopicRef::Name("t".into())
    }
}

#[test]
fn join() {
    each("join", |version| {
        Call::Group(Request::Join(Join {
            group_id: "g".into(),
            client: client(),
            session_timeout_ms: 10000,
            rebalance_timeout_ms: if version >= 1 { 60000 } else { 10000 },
            member_id: "m".into(),
            group_instance_id: since(version, 5, "i".into()),
            protocol_type: "consumer".into(),
            protocols: vec![Protocol {
                name: "range".into(),
                metadata: Bytes::from_static(&[1, 2, 3]),
            }],
            reason: since(version, 8, "why".into()),
            member_id_required: version >= 4,
            skip_assignment: version >= 9,
        }))
    });
}

#[test]
fn sync() {
    each("sync", |version| {
        Call::Group(Request::Sync(Sync {
            group_id: "g".into(),
            generation: 3,
            member_id: "m".into(),
            group_instance_id: since(version, 3, "i".into()),
            protocol_type: since(version, 5, "consumer".into()),
            protocol_name: since(version, 5, "range".into()),
            protocol_required: version >= 5,
            assignments: vec![("m".into(), Bytes::from_static(&[9]))],
        }))
    });
}

#[test]
fn heartbeat() {
    each("heartbeat", |version| {
        Call::Group(Request::Heartbeat(Heartbeat {
            group_id: "g".into(),
            generation: 3,
            member_id: "m".into(),
            group_instance_id: since(version, 3, "i".into()),
        }))
    });
}

#[test]
fn leave() {
    each("leave", |version| {
        Call::Group(Request::Leave(Leave {
            group_id: "g".into(),
            members: vec![LeavingMember {
                member_id: "m".into(),
                group_instance_id: since(version, 3, "i".into()),
                reason: since(version, 5, "bye".into()),
            }],
        }))
    });
}

#[test]
fn commit() {
    each("commit", |version| {
        let partition = |index, offset, leader_epoch, metadata: &str| CommitPartition {
            index,
            offset,
            leader_epoch,
            metadata: metadata.into(),
        };
        Call::Group(Request::OffsetCommit(OffsetCommit {
            group_id: "g".into(),
            client: client(),
            member_id: "m".into(),
            generation_or_epoch: 3,
            group_instance_id: since(version, 7, "i".into()),
            retention_time_ms: (version <= 4).then_some(1000),
            consumer_errors: version >= 9,
            topics: vec![CommitTopic {
                topic: topic(version),
                partitions: vec![
                    partition(2, 42, if version >= 6 { 5 } else { -1 }, "x"),
                    partition(3, 43, -1, ""),
                ],
            }],
        }))
    });
}

#[test]
fn fetch() {
    each("fetch", |version| {
        let group = OffsetFetch {
            group_id: "g".into(),
            client: client(),
            member_id: since(version, 9, "m".into()),
            member_epoch: if version >= 9 { 4 } else { -1 },
            topics: Some(vec![FetchTopic {
                topic: topic(version),
                partitions: vec![0, 1],
            }]),
            by_topic_id: version >= 10,
            require_stable: version >= 7,
        };
        let all = OffsetFetch {
            group_id: "h".into(),
            client: client(),
            member_id: None,
            member_epoch: -1,
            topics: None,
            ..group
        };
        Call::OffsetFetch(if version >= 8 {
            vec![group, all]
        } else {
            vec![group]
        })
    });
}

#[test]
fn find_coordinator() {
    each("find", |version| {
        let keys = if version >= 4 {
            vec!["g".into(), "h".into()]
        } else {
            vec!["g".into()]
        };
        Call::FindCoordinator(FindCoordinator {
            key_type: i8::from(version >= 1),
            keys,
        })
    });
}

#[test]
fn describe_list_and_delete() {
    each("describe", |version| {
        let group = |id: &str| Describe {
            group_id: id.into(),
            unknown_is_error: version >= 6,
        };
        Call::DescribeGroups {
            groups: vec![group("g"), group("h")],
            include_authorized_operations: version >= 3,
        }
    });
    each("list", |version| {
        Call::Group(Request::List(List {
            states: since(version, 4, "Stable".into()).into_iter().collect(),
            types: since(version, 5, "classic".into()).into_iter().collect(),
        }))
    });
    each("delete", |_| {
        Call::DeleteGroups(vec!["g".into(), "h".into()])
    });
    each("offset-delete", |_| {
        let topics = vec![("t".into(), vec![4])];
        Call::Group(Request::OffsetDelete(OffsetDelete {
            group_id: "g".into(),
            topics,
        }))
    });
}

#[test]
fn api_versions() {
    each("api-versions", |version| {
        Call::ApiVersions(Hello {
            unsupported: false,
            software: since(version, 3, ("soft".into(), "1.2".into())),
            cluster_id: since(version, 5, "c1".into()),
            node_id: if version >= 5 { 1 } else { -1 },
        })
    });
}

#[test]
fn consumer_groups() {
    each("consumer-heartbeat", |version| {
        Call::Group(Request::ConsumerHeartbeat(ConsumerHeartbeat {
            group_id: "g".into(),
            client: client(),
            member_id: "m".into(),
            member_epoch: 2,
            instance_id: Some("i".into()),
            rack_id: Some("r".into()),
            rebalance_timeout_ms: 5000,
            subscribed_topic_names: Some(vec!["a".into(), "b".into()]),
            subscribed_topic_regex: since(version, 1, "x.*".into()),
            server_assignor: Some("uniform".into()),
            topic_partitions: Some(vec![(ID, vec![0, 1])]),
            member_id_from_client: version >= 1,
        }))
    });
    each("consumer-describe", |_| Call::ConsumerGroupDescribe {
        group_ids: vec!["g".into()],
        include_authorized_operations: true,
    });
}

#[test]
fn newer_than_kafka_protocol() {
    let mut frames = frames(include_str!("../../../tests/frames/requests.txt"));
    let bytes = frames.find(|frame| frame.0 == "list-offsets").unwrap().2;
    let (_, call) = decode(Bytes::from(bytes), &mut peer()).unwrap();
    let Call::Data(data::Call::ListOffsets(request)) = call else {
        panic!("{call:?}")
    };
    assert_eq!((request.isolation_level, request.timeout_ms), (1, 500));
    let partition = &request.topics[0].partitions[0];
    assert_eq!(
        (partition.partition_index, partition.current_leader_epoch),
        (1, 2)
    );
    assert_eq!(partition.timestamp, -6);
    let bytes = frames.find(|frame| frame.0 == "log-dirs").unwrap().2;
    let (_, call) = decode(Bytes::from(bytes), &mut peer()).unwrap();
    let Call::Data(data::Call::DescribeLogDirs(request)) = call else {
        panic!("{call:?}")
    };
    assert_eq!(request.topics, None);
}
