//! Every version of every group reply, byte for byte as Kafka writes it.

use kafka_protocol::messages::describe_log_dirs_response as log_dirs;
use kafka_protocol::messages::{DescribeLogDirsResponse, TopicName};
use kafka_protocol::protocol::StrBytes;

use super::*;
use crate::group::request::Reply;
use crate::group::request::*;
use crate::group::types::{TopicId, TopicRef};
use crate::wire::Reply as Answer;

const ID: TopicId = TopicId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]);

fn each(name: &str, key: i16, reply: impl Fn(i16) -> Answer) {
    let api = api::by_key_or_hidden(key).unwrap();
    let mut seen = 0;
    for (_, version, bytes) in
        frames(include_str!("../../../tests/frames/replies.txt")).filter(|frame| frame.0 == name)
    {
        let mut header = header_of(api, version);
        header.asked = Some(Arc::new([FetchTopic {
            topic: topic(0),
            partitions: vec![0, 1],
        }]));
        let reply = reply(version);
        let frame = encode(&header, &reply).unwrap();
        // What the budget of replies reckons with is not far below what is written.
        assert!(
            reply_bytes(&header, &reply) + 256 >= frame.len(),
            "{name} {version}"
        );
        let size = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
        assert_eq!(size, frame.len() - 4, "{name} {version}");
        assert_eq!(&frame[4..], &bytes[..], "{name} {version}");
        seen += 1;
    }
    assert_eq!(
        seen,
        api.max - api.min + 1,
        "{name}: a frame for each version"
    );
}

fn group(reply: Reply) -> Answer {
    Answer::Group(reply)
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
    each("join", 11, |version| {
        group(Reply::Join(JoinReply {
            error: ErrorCode::None,
            generation: 3,
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            leader: "m".into(),
            skip_assignment: version >= 9,
            member_id: "m".into(),
            members: vec![JoinedMember {
                member_id: "m".into(),
                group_instance_id: Some("i".into()),
                metadata: Bytes::from_static(&[1, 2]),
            }],
        }))
    });
    each("join-refused", 11, |_| {
        group(Reply::Join(JoinReply::refused(
            ErrorCode::UnknownMemberId,
            "m".into(),
        )))
    });
    // An empty name is null since version 7.
    each("join-refused", 11, |_| {
        let refused = JoinReply::refused(ErrorCode::UnknownMemberId, "m".into());
        group(Reply::Join(JoinReply {
            protocol_name: Some("".into()),
            ..refused
        }))
    });
}

#[test]
fn sync_heartbeat_and_leave() {
    each("sync", 14, |_| {
        group(Reply::Sync(SyncReply {
            error: ErrorCode::None,
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignment: Bytes::from_static(&[9]),
        }))
    });
    each("heartbeat", 12, |_| {
        group(Reply::Heartbeat(ErrorCode::RebalanceInProgress))
    });
    each("leave", 13, |_| {
        group(Reply::Leave(LeaveReply {
            error: ErrorCode::None,
            members: vec![LeftMember {
                member_id: "m".into(),
                group_instance_id: Some("i".into()),
                error: ErrorCode::UnknownMemberId,
            }],
        }))
    });
}

#[test]
fn offsets() {
    each("commit", 8, |version| {
        let partitions = vec![(2, ErrorCode::OffsetMetadataTooLarge)];
        let topics = vec![TopicErrors {
            topic: topic(version),
            partitions,
        }];
        group(Reply::OffsetCommit(OffsetCommitReply { topics }))
    });
    each("fetch", 9, |version| {
        let partition = FetchedPartition {
            index: 2,
            offset: 42,
            leader_epoch: 5,
            metadata: "x".into(),
            error: ErrorCode::UnstableOffsetCommit,
        };
        let topics = vec![FetchedTopic {
            topic: topic(version),
            partitions: vec![partition],
        }];
        let (group_id, error) = ("g".into(), ErrorCode::None);
        Answer::OffsetFetch(vec![OffsetFetchReply {
            group_id,
            error,
            topics,
        }])
    });
    each("fetch-refused", 9, |_| {
        let (group_id, error) = ("g".into(), ErrorCode::CoordinatorLoadInProgress);
        let topics = Vec::new();
        Answer::OffsetFetch(vec![OffsetFetchReply {
            group_id,
            error,
            topics,
        }])
    });
    each("offset-delete", 47, |_| {
        let partitions = vec![(4, ErrorCode::GroupSubscribedToTopic)];
        let topics = vec![TopicErrors {
            topic: topic(0),
            partitions,
        }];
        group(Reply::OffsetDelete(OffsetDeleteReply {
            error: ErrorCode::None,
            topics,
        }))
    });
}

#[test]
fn find_coordinator() {
    each("find", 10, |_| {
        let found = Coordinator {
            key: "g".into(),
            error: 0,
            message: None,
            node_id: 1,
            host: "h".into(),
            port: 9092,
        };
        let refused = Coordinator::refused("h".into(), 42, "no");
        Answer::FindCoordinator(vec![found, refused])
    });
}

#[test]
fn describe_list_and_delete() {
    each("describe", 15, |version| {
        let member = DescribedMember {
            member_id: "m".into(),
            group_instance_id: Some("i".into()),
            client: Client {
                id: "c".into(),
                host: "/h".into(),
            },
            metadata: Bytes::from_static(&[1]),
            assignment: Bytes::from_static(&[2]),
        };
        let stable = DescribeReply {
            group_id: "g".into(),
            error: ErrorCode::None,
            message: None,
            state: "Stable",
            protocol_type: "consumer".into(),
            protocol: "range".into(),
            members: vec![member],
        };
        let dead = DescribeReply {
            group_id: "h".into(),
            error: ErrorCode::GroupIdNotFound,
            message: Some("no".into()),
            state: "Dead",
            protocol_type: "".into(),
            protocol: "".into(),
            members: Vec::new(),
        };
        let authorized_operations = since(version, 3, 3400);
        Answer::DescribeGroups {
            groups: vec![stable, dead],
            authorized_operations,
        }
    });
    each("list", 16, |_| {
        let listed = ListedGroup {
            group_id: "g".into(),
            protocol_type: "consumer".into(),
            state: "Stable",
            group_type: "classic",
        };
        let error = ErrorCode::CoordinatorLoadInProgress;
        group(Reply::List(ListReply {
            error,
            groups: vec![listed],
        }))
    });
    each("delete", 42, |_| {
        Answer::DeleteGroups(vec![("g".into(), ErrorCode::NonEmptyGroup)])
    });
}

#[test]
fn consumer_groups() {
    each("consumer-heartbeat", 68, |_| {
        group(Reply::ConsumerHeartbeat(ConsumerHeartbeatReply {
            error: ErrorCode::None,
            message: None,
            member_id: Some("m".into()),
            member_epoch: 3,
            heartbeat_interval_ms: 5000,
            assignment: Some(vec![(ID, vec![0, 1])]),
        }))
    });
    each("consumer-heartbeat-refused", 68, |_| {
        let refused = ConsumerHeartbeatReply::refused(ErrorCode::InvalidRequest, "no");
        group(Reply::ConsumerHeartbeat(refused))
    });
    each("consumer-describe", 69, |_| {
        let assignment = vec![DescribedPartitions {
            topic_id: ID,
            topic_name: "t".into(),
            partitions: vec![0],
        }];
        let member = ConsumerDescribedMember {
            member_id: "m".into(),
            instance_id: Some("i".into()),
            rack_id: None,
            member_epoch: 3,
            client: Client {
                id: "c".into(),
                host: "/h".into(),
            },
            subscribed_topic_names: vec!["t".into()],
            subscribed_topic_regex: "".into(),
            assignment: assignment.clone(),
            target_assignment: assignment,
            is_classic: true,
        };
        let described = ConsumerDescribeReply {
            group_id: "g".into(),
            error: ErrorCode::None,
            message: None,
            state: "Stable",
            group_epoch: 3,
            assignment_epoch: 2,
            assignor_name: "uniform".into(),
            members: vec![member],
        };
        Answer::ConsumerGroupDescribe {
            groups: vec![described],
            authorized_operations: Some(3400),
        }
    });
}

#[test]
fn api_versions_refusals() {
    each("api-versions-refused", 18, |_| {
        Answer::ApiVersions(ApiVersions {
            error: INVALID_REQUEST,
        })
    });
}

#[test]
fn log_dirs_5() {
    let partition = log_dirs::DescribeLogDirsPartition::default()
        .with_partition_index(1)
        .with_partition_size(77);
    let topic = log_dirs::DescribeLogDirsTopic::default()
        .with_name(TopicName(StrBytes::from_static_str("t")))
        .with_partitions(vec![partition]);
    let folder = log_dirs::DescribeLogDirsResult::default()
        .with_log_dir(StrBytes::from_static_str("/d"))
        .with_topics(vec![topic])
        .with_total_bytes(100)
        .with_usable_bytes(50);
    let reply = DescribeLogDirsResponse::default()
        .with_error_code(1)
        .with_results(vec![folder]);
    let (_, version, bytes) = frames(include_str!("../../../tests/frames/replies.txt"))
        .find(|frame| frame.0 == "log-dirs")
        .unwrap();
    let header = header_of(api::by_key(35).unwrap(), version);
    let frame = encode(&header, &Answer::Data(reply.into())).unwrap();
    assert_eq!(&frame[4..], &bytes[..]);
}

#[test]
fn api_versions_lists_what_is_advertised() {
    let api = api::by_key(18).unwrap();
    for version in 0..=5 {
        let reply = Answer::ApiVersions(ApiVersions { error: 0 });
        let frame = encode(&header_of(api, version), &reply).unwrap();
        let mut r = Reader::new(&frame[8..], api.is_flexible(version));
        assert_eq!(r.i16().unwrap(), 0);
        let listed = r
            .items(6, |r| {
                let row = (r.i16()?, r.i16()?, r.i16()?);
                r.tags()?;
                Ok(row)
            })
            .unwrap();
        let advertised: Vec<_> = api::APIS
            .iter()
            .filter(|api| api.advertised)
            .map(|api| (api.key, api.min, api.max))
            .collect();
        assert_eq!(listed, advertised, "version {version}");
        if version >= 1 {
            assert_eq!(r.i32().unwrap(), 0);
        }
        r.tags().unwrap();
        assert_eq!(r.left(), 0, "version {version}");
    }
}
