//! `convoke bench` against servers of our own. What it measures is nobody's business here; what it checks, leaves behind
//! and says when it cannot run is.

use std::process::{Command, Output};

use convoke::client::Client;
use convoke::{BlockingServer, Server};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::{
    CreateTopicsRequest, ListGroupsRequest, MetadataRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use serde_json::Value;

fn server() -> BlockingServer {
    Server::builder().memory().start_blocking().unwrap()
}

/// A short run with few of everything.
fn bench(bootstrap: &str, args: &[&str]) -> Output {
    let small = "--seconds 1 --warmup 0 --connections 2 --depth 2 --groups 3 --members 2 --rebalance-members 3 \
                 --partitions 4 --quiet --json";
    Command::new(env!("CARGO_BIN_EXE_convoke"))
        .args(["bench", "--bootstrap", bootstrap])
        .args(small.split_whitespace())
        .args(args)
        .output()
        .unwrap()
}

fn report(output: &Output) -> Value {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stderr}");
    assert_eq!(stderr, "");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refusal(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn with_client<T>(bootstrap: &str, ask: impl AsyncFnOnce(Client) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async { ask(Client::connect(bootstrap).await.unwrap()).await })
}

/// Groups and topics of the server.
fn left(bootstrap: &str) -> (usize, usize) {
    with_client(bootstrap, async |client| {
        let groups = client.send(&ListGroupsRequest::default()).await.unwrap();
        let all = MetadataRequest::default().with_topics(None);
        let metadata = client.send(&all).await.unwrap();
        let topics = metadata.topics.iter().filter(|topic| !topic.is_internal);
        (groups.groups.len(), topics.count())
    })
}

#[test]
fn a_run_measures_every_phase_and_leaves_nothing_behind() {
    let server = server();
    let report = report(&bench(&server.bootstrap(), &[]));
    assert_eq!(report["ok"], true, "{report:#}");
    let phases = report["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["name"].clone()).collect();
    let wanted = [
        "heartbeat",
        "consumer-heartbeat",
        "commit",
        "rebalance",
        "consumer-rebalance",
    ];
    assert_eq!(names, wanted);
    for phase in phases {
        assert!(phase["count"].as_u64().unwrap() > 0, "{phase:#}");
        assert!(phase["latency_us"]["p99_9"].is_number(), "{phase:#}");
        let checks = phase["checks"].as_array().unwrap();
        assert!(checks.len() >= 2, "{phase:#}");
        assert!(checks.iter().all(|check| check["ok"] == true), "{phase:#}");
    }
    assert!(report["server"]["used"]["OffsetCommit"].is_number());
    assert_eq!(left(&server.bootstrap()), (0, 0));
}

#[test]
fn an_open_loop_sends_what_is_due_and_a_table_tells_it() {
    let server = server();
    let args = ["--phases", "commit,heartbeat", "--rate", "100"];
    let report = report(&bench(&server.bootstrap(), &args));
    assert_eq!(report["phases"].as_array().unwrap().len(), 2);
    assert_eq!(report["phases"][0]["rate"], 100);
    let table = Command::new(env!("CARGO_BIN_EXE_convoke"))
        .args(["bench", "--bootstrap", &server.bootstrap()])
        .args("--phases commit --rate 100 --seconds 1 --warmup 0 --groups 2 --quiet".split(' '))
        .output()
        .unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    for part in [
        "open loop, 100 a second",
        "p99.9",
        "what was acknowledged last is what is fetched",
    ] {
        assert!(table.contains(part), "{table}");
    }
}

#[test]
fn a_topic_that_is_there_is_used_and_kept() {
    let server = server();
    let bootstrap = server.bootstrap();
    with_client(&bootstrap, async |client| {
        let topic = CreatableTopic::default()
            .with_name(TopicName(StrBytes::from_static_str("mine")))
            .with_num_partitions(4)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(30_000);
        client.send(&request).await.unwrap();
    });
    let args = ["--topic", "mine", "--phases", "commit"];
    report(&bench(&bootstrap, &args));
    assert_eq!(left(&bootstrap), (0, 1));
    let wide = ["--topic", "mine", "--phases", "commit", "--members", "9"];
    let text = refusal(&bench(&bootstrap, &wide));
    assert!(text.contains("topic mine has 4 partitions"), "{text}");
}

#[test]
fn what_cannot_be_used_is_named() {
    let text = refusal(&bench("127.0.0.1:1", &[]));
    assert!(
        text.starts_with("error: cannot use 127.0.0.1:1: "),
        "{text}"
    );
    let server = server();
    let text = refusal(&bench(&server.bootstrap(), &["--topic", "nowhere"]));
    assert!(
        text.contains("topic nowhere cannot be used: UNKNOWN_TOPIC_OR_PARTITION (3)"),
        "{text}"
    );
}
