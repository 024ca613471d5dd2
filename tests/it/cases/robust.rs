//! C72–C78: hostile and strange bytes, versions, floods, over the wire.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsResponse, DeleteGroupsRequest, DescribeGroupsRequest,
    FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, LeaveGroupRequest,
    ListGroupsRequest, ListOffsetsRequest, MetadataRequest, OffsetCommitRequest,
    OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest,
};
use kafka_protocol::protocol::{Decodable, Request};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::group::{codes, fetch_request, fetched};
use super::words::codes::*;
use super::words::{Outcome, code, subscribes};
use super::world::{World, within};

/// A frame: length, header of version 1 without client id, body.
fn frame(key: i16, version: i16, body: &[u8]) -> Vec<u8> {
    let mut frame = BytesMut::new();
    frame.put_i32(i32::try_from(10 + body.len()).unwrap());
    frame.put_i16(key);
    frame.put_i16(version);
    frame.put_i32(1);
    frame.put_i16(-1);
    frame.put_slice(body);
    frame.to_vec()
}

/// Sends bytes and gives back what comes: a frame, or nothing if the server closes the connection.
async fn answer(stream: &mut TcpStream, bytes: &[u8]) -> Option<Vec<u8>> {
    // A server may close before it has read everything.
    let _ = stream.write_all(bytes).await;
    let reply = async {
        let len = stream.read_i32().await.ok()?;
        let mut reply = vec![0; usize::try_from(len).unwrap()];
        stream.read_exact(&mut reply).await.ok()?;
        Some(reply)
    };
    within("an answer or the end", reply).await
}

async fn plain(world: &World) -> TcpStream {
    TcpStream::connect(world.bootstrap()).await.unwrap()
}

#[tokio::test]
async fn c72_huge_counts_in_small_frames_cost_one_connection() {
    let world = world!();
    let group = world.group();
    let [a] = group.stable(["a"]).await;
    let count = |count: i32| count.to_be_bytes().to_vec();
    let text = |text: &str| {
        [
            &u16::try_from(text.len()).unwrap().to_be_bytes(),
            text.as_bytes(),
        ]
        .concat()
    };
    for huge in [i32::MAX, -2, 0x00ff_ffff] {
        let bodies: [(i16, i16, Vec<u8>); 8] = [
            (3, 1, count(huge)),
            (9, 1, [text("g"), count(huge)].concat()),
            (9, 1, [text("g"), count(1), text("t"), count(huge)].concat()),
            (
                8,
                2,
                [text("g"), count(-1), text(""), vec![255; 8], count(huge)].concat(),
            ),
            (
                8,
                2,
                [
                    text("g"),
                    count(-1),
                    text(""),
                    vec![255; 8],
                    count(1),
                    text("t"),
                    count(huge),
                ]
                .concat(),
            ),
            (
                11,
                0,
                [
                    text("g"),
                    count(10_000),
                    text(""),
                    text("consumer"),
                    count(huge),
                ]
                .concat(),
            ),
            (15, 0, count(huge)),
            (42, 0, count(huge)),
        ];
        for (key, version, body) in bodies {
            let reply = answer(&mut plain(&world).await, &frame(key, version, &body)).await;
            assert!(reply.is_none() || huge == -2, "{key} {huge} {reply:?}");
        }
    }
    // Compact counts of 2^32 - 1 in flexible versions, after an empty section of tagged header fields.
    for (key, version) in [(3, 9), (9, 8), (15, 5), (42, 2)] {
        let body = [0, 255, 255, 255, 255, 15];
        let reply = answer(&mut plain(&world).await, &frame(key, version, &body)).await;
        assert!(reply.is_none(), "{key} {reply:?}");
    }
    assert_eq!(a.heartbeat().await, NONE);
}

#[tokio::test]
async fn c73_what_is_not_kafka_is_cut_off() {
    let world = world!();
    let group = world.group();
    let [a] = group.stable(["a"]).await;
    let hello = [&[22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3][..], &[7; 60]].concat();
    let strangers: [&[u8]; 5] = [
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        &hello,
        &[255, 255, 255, 255],
        &[0, 0, 0, 0],
        &[0, 0, 0, 3, 1, 2, 3],
    ];
    for round in 0..20 {
        let mut open = Vec::new();
        for stranger in strangers {
            let mut stream = plain(&world).await;
            assert_eq!(
                answer(&mut stream, stranger).await,
                None,
                "{stranger:?} {round}"
            );
            open.push(stream);
        }
    }
    assert_eq!(a.heartbeat().await, NONE);
}

#[tokio::test]
async fn c73_slow_senders_are_cut_off() {
    let world = world!("convoke.request.receive.timeout.ms" = "200");
    let mut stream = plain(&world).await;
    // The start of a request whose rest never comes: the server ends it, not we.
    assert_eq!(answer(&mut stream, &[0, 0, 0, 20, 0]).await, None);
    assert_eq!(world.group().find().await, NONE);
}

#[tokio::test]
async fn c74_a_newer_api_versions_is_answered_in_version_0() {
    let world = world!();
    let mut stream = plain(&world).await;
    for version in [6, 99, i16::MAX, -1] {
        let reply = answer(
            &mut stream,
            &frame(18, version, b"\0\xff\xff: what this means is unknown"),
        )
        .await;
        let reply = reply.unwrap();
        assert_eq!(reply[..4], 1_i32.to_be_bytes());
        let versions = ApiVersionsResponse::decode(&mut &reply[4..], 0).unwrap();
        assert_eq!(code(versions.error_code), UNSUPPORTED_VERSION);
        let own = versions
            .api_keys
            .iter()
            .find(|api| api.api_key == 18)
            .unwrap();
        assert_eq!((own.min_version, own.max_version), (0, 5));
    }
    // The connection is as good as new.
    for version in 0..=2 {
        let reply = answer(&mut stream, &frame(18, version, b"")).await.unwrap();
        let versions = ApiVersionsResponse::decode(&mut &reply[4..], version).unwrap();
        assert_eq!(code(versions.error_code), NONE);
    }
    let named = b"\0\x05test\x021\0";
    for version in 3..=4 {
        let reply = answer(&mut stream, &frame(18, version, named))
            .await
            .unwrap();
        let versions = ApiVersionsResponse::decode(&mut &reply[4..], version).unwrap();
        assert_eq!(code(versions.error_code), NONE);
    }
    let metadata = answer(&mut stream, &frame(3, 1, &[0, 0, 0, 0])).await;
    assert!(metadata.is_some());
}

#[tokio::test]
async fn c75_broken_subscriptions_are_passed_on_and_break_nothing() {
    let world = world!();
    let topic = world.topic(1).await;
    let broken: [&[u8]; 7] = [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\0\0\0",
        b"\x7f\xff\0\0\0\x01\0\x01t",
        b"\0\0\x7f\xff\xff\xff",
        b"\0\0\0\0\0\x01\xff\xfe",
    ];
    for metadata in broken {
        let group = world.group();
        let healthy = group.member("healthy").await.subscribed(&[&topic]);
        let odd = group
            .member("odd")
            .await
            .follows("consumer", &[("range", metadata)]);
        group.join_all(&[&healthy, &odd]).await;
        group.sync(&[&healthy, &odd]).await;
        let described = group.describe().await;
        let bytes = |id: String| {
            let member = described
                .members
                .iter()
                .find(|m| m.member_id.as_str() == id);
            member.unwrap().member_metadata.clone()
        };
        assert_eq!(bytes(odd.id()), metadata);
        assert_eq!(bytes(healthy.id()), subscribes(&[&topic]));
        assert_eq!(healthy.commit(&topic, 0, 1).await, NONE);
        let deleted = group.delete_offsets(&[(&topic, &[0])]).await;
        assert_eq!(deleted.error(), NONE);
        assert_eq!(
            code(deleted.topics[0].partitions[0].error_code),
            GROUP_SUBSCRIBED_TO_TOPIC
        );
        assert_eq!(
            (healthy.heartbeat().await, odd.heartbeat().await),
            (NONE, NONE)
        );
    }
}

#[tokio::test]
async fn c76_a_flood_of_connections_is_refused_and_evicts_nobody() {
    let world = world!("max.connections.per.ip" = "20");
    let group = world.group();
    let members = group.stable(["a", "b", "c"]).await;
    let mut flood = Vec::new();
    for _ in 0..200 {
        flood.push(plain(&world).await);
        for member in &members {
            assert_eq!(member.heartbeat().await, NONE);
        }
    }
    let mut refused = 0;
    for stream in &mut flood {
        // Those that are let in are silent; those that are not are closed.
        let end = tokio::time::timeout(Duration::from_millis(1), stream.read(&mut [0])).await;
        refused += usize::from(end.is_ok());
    }
    assert!(refused >= 180, "{refused}");
    drop(flood);
    within("room for others", async {
        while answer(&mut plain(&world).await, &frame(18, 0, b""))
            .await
            .is_none()
        {}
    })
    .await;
}

/// Sends an empty request in every version that the server offers and kafka-protocol can write.
async fn every_version<R: Request + Default>(world: &World) {
    let client = world.connect().await;
    let (min, max) = client.offered(R::KEY).unwrap();
    for version in min.max(R::VERSIONS.min)..=max.min(R::VERSIONS.max) {
        let reply = within(version, client.send_as(version, &R::default())).await;
        assert!(
            reply.is_ok(),
            "{:?} {version}: {:?}",
            ApiKey::try_from(R::KEY),
            reply.err()
        );
    }
}

#[tokio::test]
async fn c78_every_advertised_version_of_a_group_call_is_answered() {
    let world = world!();
    every_version::<JoinGroupRequest>(&world).await;
    every_version::<SyncGroupRequest>(&world).await;
    every_version::<HeartbeatRequest>(&world).await;
    every_version::<LeaveGroupRequest>(&world).await;
    every_version::<OffsetCommitRequest>(&world).await;
    every_version::<OffsetFetchRequest>(&world).await;
    every_version::<OffsetDeleteRequest>(&world).await;
    every_version::<FindCoordinatorRequest>(&world).await;
    every_version::<ListGroupsRequest>(&world).await;
    every_version::<DescribeGroupsRequest>(&world).await;
    every_version::<DeleteGroupsRequest>(&world).await;
    every_version::<MetadataRequest>(&world).await;
    every_version::<ListOffsetsRequest>(&world).await;
}

#[tokio::test]
async fn c78_old_clients_find_the_versions_they_need() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group();
    let client = world.connect().await;
    for (key, oldest) in [
        (8, 2),
        (9, 1),
        (10, 0),
        (11, 0),
        (12, 0),
        (13, 0),
        (14, 0),
        (15, 0),
        (16, 0),
    ] {
        let (min, _) = client.offered(key).unwrap();
        assert!(min <= oldest, "API {key} starts at {min}");
    }
    // A whole life in the oldest versions.
    let a = group.member("a").await.join_version(0);
    assert_eq!(a.join().await.error(), NONE);
    let mut sync = a.sync_request(&[(a.id(), a.share())]);
    (sync.protocol_type, sync.protocol_name) = (None, None);
    assert_eq!(a.send(0, &sync).await.unwrap().assignment, a.share());
    assert_eq!(a.heartbeat().await, NONE);
    assert_eq!(
        codes(
            &a.send(2, &a.commit_request(&[(&topic, 0, 3)]))
                .await
                .unwrap()
        ),
        [NONE]
    );
    let fetch = fetch_request(1, &[(group.id(), Some(&[(&topic, &[0])]))]);
    assert_eq!(
        fetched(1, a.send(1, &fetch).await.unwrap())[0].partitions[0].2,
        3
    );
    // Assign mode.
    let other = world.group();
    let commit = other.commit_request(&[(&topic, 0, 4)]);
    assert_eq!(codes(&other.send(2, &commit).await.unwrap()), [NONE]);
}
