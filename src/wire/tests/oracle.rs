//! kafka-protocol as a second opinion: what it writes we read, and what we walk it reads.

use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, HeaderVersion, Message, Request};

use super::*;

/// Bodies made from our shapes: kafka-protocol reads them whole, and writes them back as they were.
fn check<T: Request + PartialEq + std::fmt::Debug>() {
    let api = api::by_key_or_hidden(T::KEY).unwrap();
    for version in api.decode_from..=api.max {
        let flexible = api.is_flexible(version);
        assert_eq!(
            T::header_version(version),
            if flexible { 2 } else { 1 },
            "{}",
            api.name
        );
        let reply_header = <T::Response as HeaderVersion>::header_version(version);
        assert_eq!(
            reply_header,
            api.reply_header_version(version),
            "{}",
            api.name
        );
        if version > T::VERSIONS.max {
            continue;
        }
        let program = guard::program(api.shape, version);
        for seed in 0..40 {
            let made = Maker::body(program, seed, seed == 0);
            let walked = guard::walk(program, &made.out, guard::ELEMENTS_MAX).unwrap();
            let plain = guard::Walked {
                elements: walked.elements,
                bytes: made.out.len(),
                odd: false,
            };
            assert_eq!(walked, plain, "{} {version}", api.name);
            let canonical = guard::canonical(program, &made.out, guard::ELEMENTS_MAX).unwrap();
            assert_eq!(canonical, made.out, "{} {version}", api.name);

            let mut left = Bytes::from(made.out.clone());
            let theirs = T::decode(&mut left, version)
                .unwrap_or_else(|e| panic!("{} {version} seed {seed}: {e}", api.name));
            assert_eq!(left.len(), 0, "{} {version}: bytes left over", api.name);
            let mut again = BytesMut::new();
            theirs.encode(&mut again, version).unwrap();
            if made.known_tags {
                // Defaults in tagged fields are left out when written.
                let reread = T::decode(&mut again.freeze(), version).unwrap();
                assert_eq!(reread, theirs, "{} {version}", api.name);
            } else {
                assert_eq!(again, made.out, "{} {version} seed {seed}", api.name);
            }
            assert!(
                decode_body(api, version, made.out).is_ok(),
                "{} {version}",
                api.name
            );
        }
    }
}

macro_rules! checks {
    ($($request:ident)*) => {
        #[test]
        fn shapes_are_those_of_kafka_protocol() {
            let keys = [$($request::KEY,)*];
            for api in api::APIS {
                assert!(keys.contains(&api.key), "{} is not checked", api.name);
            }
            $(check::<$request>();)*
        }
    };
}

checks! {
    ProduceRequest FetchRequest ListOffsetsRequest MetadataRequest OffsetCommitRequest
    OffsetFetchRequest FindCoordinatorRequest JoinGroupRequest HeartbeatRequest LeaveGroupRequest
    SyncGroupRequest DescribeGroupsRequest ListGroupsRequest ApiVersionsRequest CreateTopicsRequest
    DeleteTopicsRequest DeleteRecordsRequest InitProducerIdRequest OffsetForLeaderEpochRequest
    DescribeAclsRequest DescribeConfigsRequest AlterConfigsRequest DescribeLogDirsRequest
    CreatePartitionsRequest DeleteGroupsRequest IncrementalAlterConfigsRequest
    ListPartitionReassignmentsRequest OffsetDeleteRequest DescribeClusterRequest
    ListTransactionsRequest ConsumerGroupHeartbeatRequest ConsumerGroupDescribeRequest
    ListConfigResourcesRequest DescribeTopicPartitionsRequest
}

#[test]
fn data_plane_replies_are_read_back() {
    fn check<T>(key: i16, reply: T)
    where
        T: Into<data::Reply> + Decodable + Message + Clone + PartialEq + std::fmt::Debug,
    {
        let api = api::by_key(key).unwrap();
        for version in api.decode_from..=api.max.min(T::VERSIONS.max) {
            let frame =
                encode(&header_of(api, version), &Reply::Data(reply.clone().into())).unwrap();
            let size = u32::from_be_bytes(frame[..4].try_into().unwrap()) as usize;
            assert_eq!(size, frame.len() - 4);
            assert_eq!(frame[4..8], [0, 0, 0, 7]);
            let header_bytes = 8 + usize::try_from(api.reply_header_version(version)).unwrap();
            let mut body = frame.freeze().slice(header_bytes..);
            assert_eq!(
                T::decode(&mut body, version).unwrap(),
                reply,
                "{} {version}",
                api.name
            );
            assert!(body.is_empty());
        }
    }
    check(
        3,
        MetadataResponse::default().with_topics(vec![Default::default()]),
    );
    check(1, FetchResponse::default());
    check(2, ListOffsetsResponse::default());
    check(60, DescribeClusterResponse::default());
    check(75, DescribeTopicPartitionsResponse::default());
    check(19, CreateTopicsResponse::default());
    check(32, DescribeConfigsResponse::default());
}
