//! The HTTP of operators against a live server: what it tells, what it does, whom it refuses.

use std::sync::{Arc, OnceLock};

use bytes::{Bytes, BytesMut};
use convoke::Server;
use convoke::admin::{self, Door, Looking, Sources, Standing, Token};
use convoke::client::Client;
use convoke::config::Storage;
use convoke::log::fault_fs::FaultFs;
use convoke::server::Builder;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::{
    CreateTopicsRequest, GroupId, OffsetCommitRequest, ProduceRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{
    Compression, Record, RecordBatchEncoder, RecordEncodeOptions, TimestampType,
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Records are stamped with this and the milliseconds after it.
const FIRST_MS: i64 = 1_700_000_000_000;

/// A server in memory with its HTTP.
struct World {
    server: Server,
    client: Client,
    http: String,
    _stop: oneshot::Sender<()>,
}

impl World {
    async fn new() -> Self {
        Self::behind(Door::default()).await
    }

    async fn behind(door: Door) -> Self {
        Self::of(Server::builder().memory(), door).await
    }

    async fn of(builder: Builder, door: Door) -> Self {
        let server = builder.start().await.unwrap();
        server.ready().await;
        let client = Client::connect(server.bootstrap()).await.unwrap();
        let looking: Looking = Arc::new(OnceLock::new());
        looking.set(server.observer()).unwrap();
        let sources = Sources {
            metrics: Arc::new(|| Box::pin(async { String::new() })),
            standing: Arc::new(Standing::default),
            looking,
            door,
            lag_groups_max: 100,
        };
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = socket.local_addr().unwrap().to_string();
        let (_stop, stopped) = oneshot::channel();
        tokio::spawn(admin::serve(socket, sources, async {
            let _ = stopped.await;
        }));
        Self {
            server,
            client,
            http,
            _stop,
        }
    }

    async fn topic(&self, name: &'static str, partitions: i32) {
        let topic = CreatableTopic::default()
            .with_name(TopicName(StrBytes::from_static_str(name)))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(30_000);
        let reply = self.client.send(&request).await.unwrap();
        assert_eq!(reply.topics[0].error_code, 0);
    }

    /// Appends records, the first stamped [`FIRST_MS`], each a millisecond after the one before.
    async fn produce(&self, topic: &'static str, partition: i32, count: i64) {
        let partition = PartitionProduceData::default()
            .with_index(partition)
            .with_records(Some(batch(count)));
        let data = TopicProduceData::default()
            .with_name(TopicName(StrBytes::from_static_str(topic)))
            .with_partition_data(vec![partition]);
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(30_000)
            .with_topic_data(vec![data]);
        let reply = self.client.send_as(9, &request).await.unwrap();
        assert_eq!(reply.responses[0].partition_responses[0].error_code, 0);
    }

    /// Commits as a client in assign mode does.
    async fn commit(&self, group: &str, topic: &'static str, partition: i32, offset: i64) {
        assert_eq!(
            self.try_commit(group, topic, partition, offset, "").await,
            0
        );
    }

    /// The same with a note; gives the error.
    async fn try_commit(
        &self,
        group: &str,
        topic: &'static str,
        partition: i32,
        offset: i64,
        note: &str,
    ) -> i16 {
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(partition)
            .with_committed_metadata(Some(StrBytes::from_string(note.to_owned())))
            .with_committed_offset(offset);
        let topic = OffsetCommitRequestTopic::default()
            .with_name(TopicName(StrBytes::from_static_str(topic)))
            .with_partitions(vec![partition]);
        let request = OffsetCommitRequest::default()
            .with_group_id(GroupId(StrBytes::from_string(group.to_owned())))
            .with_generation_id_or_member_epoch(-1)
            .with_topics(vec![topic]);
        let reply = self.client.send_as(8, &request).await.unwrap();
        reply.topics[0].partitions[0].error_code
    }

    /// Status and body.
    async fn exchange(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut socket = TcpStream::connect(&self.http).await.unwrap();
        let host = if headers.contains("host:") {
            String::new()
        } else {
            format!("host: {}\r\n", self.http)
        };
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{host}{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        // A refused body need not be taken.
        let _ = socket.write_all(request.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, body.to_owned())
    }

    async fn refused(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let (status, body) = self.exchange(method, path, headers, body).await;
        let problem: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}"));
        assert_eq!(problem["status"], status, "{problem}");
        assert!(problem["title"].is_string(), "{problem}");
        (status, problem["detail"].as_str().unwrap().to_owned())
    }

    async fn ask(&self, method: &str, path: &str, body: Value) -> Value {
        let headers = "content-type: application/json\r\n";
        let (status, text) = self
            .exchange(method, path, headers, &body.to_string())
            .await;
        assert_eq!(status, 200, "{method} {path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn get(&self, path: &str) -> Value {
        let (status, text) = self.exchange("GET", path, "", "").await;
        assert_eq!(status, 200, "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    async fn offset(&self, group: &str, partition: usize) -> i64 {
        let backup = self.get(&format!("/v1/groups/{group}/offsets")).await;
        backup["offsets"][partition]["offset"].as_i64().unwrap()
    }
}

fn batch(count: i64) -> Bytes {
    let records: Vec<_> = (0..count)
        .map(|offset| Record {
            transactional: false,
            control: false,
            delete_horizon: false,
            partition_leader_epoch: -1,
            producer_id: -1,
            producer_epoch: -1,
            timestamp_type: TimestampType::Creation,
            offset,
            sequence: i32::try_from(offset).unwrap() - 1,
            timestamp: FIRST_MS + offset,
            key: None,
            value: Some(Bytes::from_static(b"v")),
            headers: Default::default(),
        })
        .collect();
    let options = RecordEncodeOptions {
        version: 2,
        compression: Compression::None,
    };
    let mut bytes = BytesMut::new();
    RecordBatchEncoder::encode(&mut bytes, &records, &options).unwrap();
    bytes.freeze()
}

#[tokio::test]
async fn groups_come_in_pages_and_are_counted_over_all_of_them() {
    let world = World::new().await;
    world.topic("t", 1).await;
    for group in ["a", "b", "b/2", "c"] {
        world.commit(group, "t", 0, 0).await;
    }
    let page = world.get("/v1/groups?limit=2").await;
    assert_eq!(page["groups"][0]["group_id"], "a");
    assert_eq!(page["groups"][0]["kind"], "simple");
    assert_eq!(page["groups"][0]["lag"], json!({"records": 0, "ms": 0}));
    assert_eq!(page["next"], "b");
    assert_eq!(page["counts"]["groups"], 4);
    let page = world.get("/v1/groups?limit=2&after=b").await;
    assert_eq!(page["groups"][0]["group_id"], "b/2");
    assert_eq!(page["groups"][1]["group_id"], "c");
    assert_eq!(page["next"], Value::Null);
    let page = world.get("/v1/groups?prefix=b&kind=SIMPLE").await;
    assert_eq!(page["counts"]["groups"], 2);
    assert_eq!(
        world.get("/v1/groups?state=Stable").await["groups"],
        json!([])
    );
    // An id may hold anything.
    let group = world.get("/v1/groups/b%2F2").await;
    assert_eq!(group["summary"]["group_id"], "b/2");
}

#[tokio::test]
async fn lag_is_told_in_records_and_in_time_and_is_never_negative() {
    let world = World::new().await;
    world.topic("t", 3).await;
    world.produce("t", 0, 10).await;
    world.produce("t", 1, 5).await;
    world.commit("g", "t", 0, 4).await;
    world.commit("g", "t", 1, 5).await;
    // Beyond the end, as a client may commit.
    world.commit("g", "t", 2, 7).await;
    let commits = world.get("/v1/groups/g/commits").await;
    let commit = |at: usize| {
        let commit = &commits["commits"][at];
        let field = |name: &str| commit[name].as_i64().unwrap();
        (
            field("offset"),
            field("end_offset"),
            field("lag_records"),
            field("lag_ms"),
        )
    };
    let (offset, end, records, behind_ms) = commit(0);
    assert_eq!((offset, end, records), (4, 10, 6));
    // The record at offset 4 is the oldest that was not consumed.
    let now_ms = world.server.observer().broker().now_ms();
    let since = now_ms - (FIRST_MS + 4);
    assert!(
        behind_ms <= since && behind_ms > since - 60_000,
        "{behind_ms} of {since}"
    );
    assert_eq!(commit(1), (5, 5, 0, 0));
    assert_eq!(commit(2), (7, 0, 0, 0));

    let all = world.get("/v1/lag").await;
    let row = &all["groups"][0];
    assert_eq!(
        (&row["group_id"], &row["records"], &row["partitions"]),
        (&json!("g"), &json!(6), &json!(3))
    );
    assert!(row["ms"].as_i64().unwrap() >= behind_ms);

    let (_, metrics) = world.exchange("GET", "/metrics", "", "").await;
    assert!(
        metrics.contains("convoke_group_lag_records{group=\"g\"} 6\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("convoke_group_lag_left_out 0\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn topics_tell_how_far_they_reach_and_who_consumes_them() {
    let world = World::new().await;
    world.topic("t", 2).await;
    world.topic("u", 1).await;
    world.produce("t", 1, 5).await;
    world.commit("g", "t", 0, 0).await;
    let topic = world.get("/v1/topics/t").await;
    assert_eq!(
        topic["partitions"][1],
        json!({"partition": 1, "start_offset": 0, "end_offset": 5})
    );
    assert_eq!(topic["groups"], json!([{"group_id": "g"}]));
    let page = world.get("/v1/topics?prefix=t&limit=1").await;
    assert_eq!(page["topics"][0], topic);
    assert_eq!(page["next"], Value::Null);
    let (status, detail) = world.refused("GET", "/v1/topics/none", "", "").await;
    assert_eq!(status, 404);
    assert!(detail.contains("none"), "{detail}");
}

#[tokio::test]
async fn offsets_are_moved_in_every_way_there_is() {
    let world = World::new().await;
    world.topic("t", 2).await;
    world.produce("t", 0, 10).await;
    world.produce("t", 1, 10).await;
    world.commit("g", "t", 0, 5).await;
    world.commit("other", "t", 0, 3).await;
    let reset = |body: Value| world.ask("POST", "/v1/groups/g/reset", body);

    let told = reset(json!({"to": "earliest", "dry_run": true})).await;
    assert_eq!(told["dry_run"], true);
    assert_eq!(
        (&told["offsets"][0]["from"], &told["offsets"][0]["to"]),
        (&json!(5), &json!(0))
    );
    assert_eq!(world.offset("g", 0).await, 5, "a dry run moves nothing");

    for (to, wanted) in [
        (json!("earliest"), 0),
        (json!("latest"), 10),
        (json!({"shift": -3}), 7),
        (json!({"shift": -100}), 0),
        (json!({"shift": 100}), 10),
        (json!({"time_ms": FIRST_MS + 6}), 6),
        (json!({"time_ms": FIRST_MS + 600}), 10),
        (json!({"time_ms": 0}), 0),
        (json!({"offset": 4}), 4),
        (json!({"group": "other"}), 3),
        (
            json!({"offsets": [{"topic": "t", "partition": 0, "offset": 9}]}),
            9,
        ),
    ] {
        let done = reset(json!({"to": to})).await;
        assert_eq!(done["dry_run"], false);
        assert_eq!(world.offset("g", 0).await, wanted, "{to}");
    }
    // A partition without an offset gets one if it is named.
    reset(json!({"to": "latest", "topics": ["t"]})).await;
    assert_eq!(world.offset("g", 1).await, 10);
    reset(json!({"to": "earliest", "topics": [{"topic": "t", "partitions": [1]}]})).await;
    assert_eq!(
        (world.offset("g", 0).await, world.offset("g", 1).await),
        (10, 0)
    );

    let audit = world.get("/v1/groups/g/audit").await;
    let entries = audit["audit"].as_array().unwrap();
    assert!(
        entries.iter().any(|entry| entry["who"] == "http:127.0.0.1"),
        "{audit}"
    );
}

#[tokio::test]
async fn a_reset_that_cannot_be_meant_moves_nothing() {
    let world = World::new().await;
    world.topic("t", 1).await;
    world.produce("t", 0, 3).await;
    world.commit("g", "t", 0, 2).await;
    let json_kind = "content-type: application/json\r\n";
    for (group, body, wanted) in [
        ("g", json!({"to": {"offset": 4}}), 422),
        ("g", json!({"to": {"offset": -1}}), 422),
        ("g", json!({"to": {"time_ms": -1}}), 422),
        ("g", json!({"to": "latest", "topics": ["none"]}), 422),
        ("g", json!({"to": "latest", "topics": []}), 422),
        (
            "g",
            json!({"to": "latest", "topics": [{"topic": "t", "partitions": [1]}]}),
            422,
        ),
        (
            "g",
            json!({"to": {"offsets": [{"topic": "none", "partition": 0, "offset": 1}]}}),
            422,
        ),
        (
            "g",
            json!({"to": {"offsets": [{"topic": "t", "partition": 0, "offset": 1}, {"topic": "t", "partition": 0, "offset": 2}]}}),
            422,
        ),
        ("g", json!({"to": {"group": "none"}}), 404),
        ("none", json!({"to": "latest"}), 404),
        ("g", json!({"to": "nowhere"}), 422),
        ("g", json!({"to": "latest", "dryrun": true}), 422),
        ("g", json!({}), 422),
    ] {
        let path = format!("/v1/groups/{group}/reset");
        let (status, detail) = world
            .refused("POST", &path, json_kind, &body.to_string())
            .await;
        assert_eq!(status, wanted, "{body}: {detail}");
        assert!(detail.len() > 10, "{detail}");
    }
    assert_eq!(world.offset("g", 0).await, 2);
}

#[tokio::test]
async fn a_backup_restores_and_clones_a_group() {
    let world = World::new().await;
    world.topic("t", 2).await;
    world.produce("t", 0, 10).await;
    world.produce("t", 1, 10).await;
    world.commit("g", "t", 0, 5).await;
    world.commit("g", "t", 1, 6).await;
    let backup = world.get("/v1/groups/g/offsets").await;
    assert_eq!(backup["group"], "g");
    world
        .ask("POST", "/v1/groups/g/reset", json!({"to": "earliest"}))
        .await;
    let told = world
        .ask("PUT", "/v1/groups/g/offsets?dry_run=true", backup.clone())
        .await;
    assert_eq!(
        (&told["dry_run"], &told["offsets"][0]["to"]),
        (&json!(true), &json!(5))
    );
    assert_eq!(world.offset("g", 0).await, 0);
    world
        .ask("PUT", "/v1/groups/g/offsets", backup.clone())
        .await;
    assert_eq!(world.get("/v1/groups/g/offsets").await, backup);

    world
        .ask("POST", "/v1/groups/g/clone", json!({"to": "copy"}))
        .await;
    assert_eq!(
        world.get("/v1/groups/copy/offsets").await["offsets"],
        backup["offsets"]
    );
    let again = json!({"to": "copy"}).to_string();
    let (status, _) = world
        .refused(
            "POST",
            "/v1/groups/g/clone",
            "content-type: application/json\r\n",
            &again,
        )
        .await;
    assert_eq!(status, 409);

    // What is out of bounds by now goes to the nearest bound, and the operator hears of it.
    let old = json!({"offsets": [{"topic": "t", "partition": 0, "offset": 99}]});
    let done = world.ask("PUT", "/v1/groups/g/offsets", old).await;
    assert_eq!(done["notes"].as_array().unwrap().len(), 1, "{done}");
    assert_eq!(world.offset("g", 0).await, 10);
}

#[tokio::test]
async fn settings_stay_until_they_are_put_back_and_a_group_can_be_deleted() {
    let world = World::new().await;
    world.topic("t", 1).await;
    world.commit("g", "t", 0, 0).await;
    let path = "/v1/groups/g/settings";
    let none = json!({"offsets_retention_ms": null, "members_max": null, "offsets_max": null});
    assert_eq!(world.get(path).await, none);
    let would = world
        .ask(
            "PUT",
            "/v1/groups/g/settings?dry_run=true",
            json!({"members_max": 3}),
        )
        .await;
    assert_eq!(would["members_max"], 3);
    assert_eq!(world.get(path).await, none);

    let set = world
        .ask(
            "PUT",
            path,
            json!({"offsets_retention_ms": -1, "members_max": 3}),
        )
        .await;
    assert_eq!(
        set,
        json!({"offsets_retention_ms": -1, "members_max": 3, "offsets_max": null})
    );
    let set = world.ask("PUT", path, json!({"members_max": null})).await;
    assert_eq!(
        set,
        json!({"offsets_retention_ms": -1, "members_max": null, "offsets_max": null})
    );

    let told = world
        .ask("DELETE", "/v1/groups/g?dry_run=true", json!({}))
        .await;
    assert_eq!(told["dry_run"], true);
    assert_eq!(world.offset("g", 0).await, 0);
    world.ask("DELETE", "/v1/groups/g", json!({})).await;
    let (status, _) = world.refused("GET", "/v1/groups/g", "", "").await;
    assert_eq!(status, 404);
}

#[tokio::test]
async fn every_error_is_a_problem_document() {
    let world = World::new().await;
    let json_kind = "content-type: application/json\r\n";
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(300_000));
    for (method, path, headers, body, wanted) in [
        ("GET", "/v1/nothing", "", "", 404),
        ("GET", "/v1/groups/none", "", "", 404),
        ("GET", "/v1/groups/%ff", "", "", 400),
        ("GET", "/v1/groups?limit=0", "", "", 400),
        ("GET", "/v1/groups?limit=x", "", "", 400),
        ("GET", "/v1/groups?limt=1", "", "", 400),
        ("POST", "/v1/lag", json_kind, "{}", 405),
        ("POST", "/v1/groups/g/pause", "", "{}", 415),
        (
            "POST",
            "/v1/groups/g/pause",
            "content-type: text/plain\r\n",
            "{}",
            415,
        ),
        ("POST", "/v1/groups/g/pause", json_kind, "{", 400),
        ("POST", "/v1/groups/g/pause", json_kind, "[]", 422),
        ("POST", "/v1/groups/g/pause", json_kind, &large, 413),
        (
            "POST",
            "/v1/groups/g/kick",
            json_kind,
            "{\"members\": []}",
            422,
        ),
        ("DELETE", "/v1/groups/none", "", "", 404),
    ] {
        let (status, detail) = world.refused(method, path, headers, body).await;
        assert_eq!(status, wanted, "{method} {path} {detail}");
    }
}

#[tokio::test]
async fn other_sites_and_other_names_are_turned_away() {
    let world = World::new().await;
    world.topic("t", 1).await;
    world.commit("g", "t", 0, 0).await;
    let json_kind = "content-type: application/json\r\n";
    for (method, headers, wanted) in [
        ("GET", "host: evil.example\r\n".to_owned(), 421),
        ("POST", format!("{json_kind}host: evil.example\r\n"), 421),
        (
            "POST",
            format!("{json_kind}origin: http://evil.example\r\n"),
            403,
        ),
        (
            "POST",
            format!("{json_kind}sec-fetch-site: cross-site\r\n"),
            403,
        ),
        ("POST", format!("origin: http://{}\r\n", world.http), 415),
    ] {
        let path = if method == "GET" {
            "/v1/groups"
        } else {
            "/v1/groups/g/reset"
        };
        let body = if method == "GET" {
            ""
        } else {
            "{\"to\":\"latest\"}"
        };
        let (status, detail) = world.refused(method, path, &headers, body).await;
        assert_eq!(status, wanted, "{headers} {detail}");
    }
    // Its own page may.
    let own = format!(
        "{json_kind}origin: http://{}\r\nsec-fetch-site: same-origin\r\n",
        world.http
    );
    let (status, _) = world
        .exchange("POST", "/v1/groups/g/reset", &own, "{\"to\":\"latest\"}")
        .await;
    assert_eq!(status, 200);
    // Probes come by any name.
    let (status, _) = world
        .exchange("GET", "/healthz", "host: a-pod\r\n", "")
        .await;
    assert_eq!(status, 200);
}

#[tokio::test]
async fn with_a_token_only_who_shows_it_changes_anything() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "0123456789abcdef0123\n").unwrap();
    let token = Token::read(&file).unwrap();
    let world = World::behind(Door {
        token: Some(token),
        is_open: true,
        ..Door::default()
    })
    .await;
    world.topic("t", 1).await;
    world.commit("g", "t", 0, 0).await;
    assert_eq!(world.get("/v1/lag").await["groups"][0]["records"], 0);
    let json_kind = "content-type: application/json\r\n";
    let path = "/v1/groups/g/reset";
    let body = "{\"to\":\"latest\"}";
    let (status, _) = world.refused("POST", path, json_kind, body).await;
    assert_eq!(status, 401);
    let wrong = format!("{json_kind}authorization: Bearer 0123456789abcdef0124\r\n");
    assert_eq!(world.refused("POST", path, &wrong, body).await.0, 401);
    let right = format!("{json_kind}authorization: Bearer 0123456789abcdef0123\r\n");
    assert_eq!(world.exchange("POST", path, &right, body).await.0, 200);

    std::fs::write(&file, "short\n").unwrap();
    let refused = Token::read(&file).unwrap_err().to_string();
    assert!(refused.contains("openssl rand"), "{refused}");
}

#[tokio::test]
async fn whoever_listens_hears_which_groups_change() {
    let world = World::new().await;
    world.topic("t", 1).await;
    world.commit("still", "t", 0, 0).await;
    let mut socket = TcpStream::connect(&world.http).await.unwrap();
    let request = format!("GET /v1/events HTTP/1.1\r\nhost: {}\r\n\r\n", world.http);
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(socket).lines();
    let mut heard = async || loop {
        let line = lines.next_line().await.unwrap().unwrap();
        if let Some(data) = line.strip_prefix("data: ") {
            return serde_json::from_str::<Value>(data).unwrap()["groups"].clone();
        }
    };
    assert_eq!(heard().await, Value::Null, "at first, everything is new");
    world.commit("g", "t", 0, 0).await;
    assert_eq!(heard().await, json!(["g"]));
    world.ask("DELETE", "/v1/groups/g", json!({})).await;
    assert_eq!(heard().await, json!(["g"]));
}

#[tokio::test]
async fn a_full_disk_is_told_and_nothing_is_moved() {
    const COORDINATOR_NOT_AVAILABLE: i16 = 15;
    let (disk, folder) = (FaultFs::new(), tempfile::tempdir().unwrap());
    let builder = Server::builder().memory().with(|config| {
        config.storage = Storage::Disk;
        config.data_dir = folder.path().to_owned();
        config.offsets_topic_segment_bytes = 65_536;
    });
    let world = World::of(builder.file_system(disk.shared()), Door::default()).await;
    world.topic("t", 1).await;
    world.produce("t", 0, 9).await;
    world.commit("g", "t", 0, 5).await;
    disk.set_capacity(Some(disk.used_bytes()));
    // What has been reserved can still be written to; large notes first, so that it does not take long.
    for note in ["x".repeat(4000), String::new()] {
        while world.try_commit("filler", "t", 0, 0, &note).await != COORDINATOR_NOT_AVAILABLE {}
    }
    let json_kind = "content-type: application/json\r\n";
    let (status, detail) = world
        .refused(
            "POST",
            "/v1/groups/g/reset",
            json_kind,
            "{\"to\":\"latest\"}",
        )
        .await;
    assert_eq!(status, 507, "{detail}");
    assert_eq!(world.offset("g", 0).await, 5, "reads go on");
    disk.set_capacity(None);
    let path = "/v1/groups/g/reset";
    while world
        .exchange("POST", path, json_kind, "{\"to\":\"latest\"}")
        .await
        .0
        == 507
    {}
    assert_eq!(world.offset("g", 0).await, 9);
}

#[tokio::test]
async fn caps_hold_for_new_groups_until_they_are_taken_back() {
    const INVALID_COMMIT_OFFSET_SIZE: i16 = 28;
    let world = World::new().await;
    world.topic("t", 1).await;
    world.commit("test-1", "t", 0, 0).await;
    let none = json!({"groups_max": null, "prefixes": []});
    assert_eq!(world.get("/v1/caps").await, none);
    let caps = json!({"groups_max": 10, "prefixes": [{"prefix": "test-", "groups_max": 1}]});
    let would = world.ask("PUT", "/v1/caps?dry_run=true", caps.clone());
    assert_eq!(would.await, caps);
    assert_eq!(world.get("/v1/caps").await, none);
    assert_eq!(world.ask("PUT", "/v1/caps", caps.clone()).await, caps);
    let refused = world.try_commit("test-2", "t", 0, 0, "").await;
    assert_eq!(refused, INVALID_COMMIT_OFFSET_SIZE);
    world.commit("other", "t", 0, 0).await;
    let (code, table, _) = convoke(&world, &["groups", "caps", "--prefix", "test-=none"]).await;
    assert_eq!((code, table.contains("test-")), (0, false), "{table}");
    world.commit("test-2", "t", 0, 0).await;
    assert_eq!(world.ask("PUT", "/v1/caps", json!({})).await, none);
}

#[tokio::test]
async fn the_document_describes_the_api() {
    let world = World::new().await;
    let document = world.get("/openapi.json").await;
    assert_eq!(document["openapi"], "3.1.0");
    let paths = document["paths"].as_object().unwrap();
    assert!(paths.len() > 15, "{}", paths.len());
}

/// Exit code, stdout, stderr of the command.
async fn convoke(world: &World, args: &[&str]) -> (i32, String, String) {
    let http = format!("http://{}", world.http);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_convoke"));
    command.args(args).args(["--http", &http]);
    command.stdin(std::process::Stdio::null());
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap());
    let ended = ended.await.unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        ended.status.code().unwrap(),
        text(ended.stdout),
        text(ended.stderr),
    )
}

#[tokio::test]
async fn the_command_line_tells_and_acts() {
    let world = World::new().await;
    world.topic("t", 1).await;
    world.produce("t", 0, 10).await;
    world.commit("g", "t", 0, 4).await;

    let (code, table, _) = convoke(&world, &["groups", "list"]).await;
    assert_eq!(code, 0);
    assert!(table.starts_with("GROUP  KIND"), "{table}");
    assert!(table.contains("1 groups, 0 members"), "{table}");
    let (_, text, _) = convoke(&world, &["groups", "list", "--json"]).await;
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["groups"][0]["lag"]["records"], 6);
    for args in [
        &["groups", "describe", "g"][..],
        &["groups", "rebalances", "g"],
        &["groups", "commits", "g"],
        &["groups", "audit", "g"],
        &["groups", "lag"],
        &["groups", "lag", "g"],
        &["groups", "settings", "g"],
        &["topics", "list"],
        &["topics", "describe", "t"],
    ] {
        let (code, text, err) = convoke(&world, args).await;
        assert_eq!(code, 0, "{args:?} {err}");
        assert!(!text.is_empty(), "{args:?}");
    }

    let (_, told, _) = convoke(
        &world,
        &["groups", "reset", "g", "--shift-by", "-2", "--dry-run"],
    )
    .await;
    assert!(told.contains("this is a dry run"), "{told}");
    assert_eq!(world.offset("g", 0).await, 4);
    let (code, told, _) = convoke(&world, &["groups", "reset", "g", "--shift-by", "-2"]).await;
    assert_eq!((code, world.offset("g", 0).await), (0, 2), "{told}");
    let datetime = [
        "groups",
        "reset",
        "g",
        "--to-datetime",
        "2023-11-14T22:13:20.007Z",
        "--topic",
        "t:0",
    ];
    assert_eq!(convoke(&world, &datetime).await.0, 0);
    assert_eq!(world.offset("g", 0).await, 7);

    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("g.json");
    let file = file.to_str().unwrap();
    assert_eq!(
        convoke(&world, &["groups", "backup", "g", "--output", file])
            .await
            .0,
        0
    );
    assert_eq!(
        convoke(&world, &["groups", "reset", "g", "--to-latest"])
            .await
            .0,
        0
    );
    assert_eq!(
        convoke(&world, &["groups", "restore", "g", file]).await.0,
        0
    );
    assert_eq!(world.offset("g", 0).await, 7);
    assert_eq!(
        convoke(&world, &["groups", "clone", "g", "copy"]).await.0,
        0
    );
    assert_eq!(
        convoke(&world, &["groups", "reset", "copy", "--from-file", file])
            .await
            .0,
        0
    );
    let would = ["groups", "settings", "g", "--members-max", "3", "--dry-run"];
    let (_, told, _) = convoke(&world, &would).await;
    assert!(told.contains("members_max           3"), "{told}");
    let (_, are, _) = convoke(&world, &["groups", "settings", "g"]).await;
    assert!(are.contains("members_max           default"), "{are}");
    let (_, set, _) = convoke(&world, &["groups", "settings", "g", "--members-max", "3"]).await;
    assert!(set.contains("members_max           3"), "{set}");
    assert_eq!(convoke(&world, &["groups", "delete", "copy"]).await.0, 0);
}

#[tokio::test]
async fn the_command_line_says_by_its_exit_code_who_has_to_act() {
    let world = World::new().await;
    world.topic("t", 1).await;
    world.commit("g", "t", 0, 0).await;
    for (args, wanted) in [
        (&["groups", "describe", "none"][..], 3),
        (&["topics", "describe", "none"], 3),
        (&["groups", "reset", "g", "--to-offset", "9"], 2),
        (&["groups", "reset", "g"], 2),
        (&["groups", "reset", "g", "--to-latest", "--to-earliest"], 2),
        (&["groups", "reset", "g", "--from-file", "/nowhere"], 2),
        (&["groups", "drain", "g"], 2),
        (&["groups", "clone", "g", "g"], 4),
    ] {
        let (code, _, err) = convoke(&world, args).await;
        assert_eq!(code, wanted, "{args:?} {err}");
        assert!(err.starts_with("error: "), "{err}");
    }
    let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let http = nobody.local_addr().unwrap().to_string();
    drop(nobody);
    let (stop, _) = oneshot::channel();
    let gone = World {
        http,
        _stop: stop,
        ..world
    };
    let (code, _, err) = convoke(&gone, &["groups", "list"]).await;
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("is it running"), "{err}");
}

#[test]
fn completions_are_printed_for_a_shell() {
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_convoke"));
    let ended = command.args(["completions", "bash"]).output().unwrap();
    let text = String::from_utf8(ended.stdout).unwrap();
    assert!(ended.status.success());
    assert!(
        text.contains("convoke__subcmd__groups") || text.contains("convoke__groups"),
        "{text}"
    );
}
