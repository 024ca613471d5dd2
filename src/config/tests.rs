use std::io::Write as _;

use super::*;

fn file(text: &str) -> Result<(Config, Vec<String>), Error> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    let mut loader = Loader::new();
    loader.file(file.path())?;
    loader.finish()
}

fn set(assignments: &[&str]) -> Result<(Config, Vec<String>), Error> {
    let mut loader = Loader::new();
    for assignment in assignments {
        loader.set(assignment)?;
    }
    loader.finish()
}

fn refusal(assignments: &[&str]) -> String {
    match set(assignments) {
        Ok(_) => panic!("{assignments:?} was accepted"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn the_defaults_and_the_throw_away_server_pass_their_own_checks() {
    Config::default().check().unwrap();
    Config::memory().check().unwrap();
}

#[test]
fn an_unknown_key_names_its_neighbour() {
    let text = refusal(&["group.initial.rebalance.delay=0"]);
    assert_eq!(
        text,
        "--set: unknown key group.initial.rebalance.delay; did you mean group.initial.rebalance.delay.ms?"
    );
    assert!(refusal(&["offset.retention.minutes=1"]).contains("offsets.retention.minutes?"));
    assert!(refusal(&["brokerid=1"]).contains("broker.id?"));
    assert!(refusal(&["qwertyuiop=1"]).contains("`convoke config` lists all keys"));
    assert!(refusal(&["nothing"]).contains("KEY=VALUE"));
}

#[test]
fn a_value_out_of_range_is_refused_with_the_range() {
    for (assignment, says) in [
        (
            "group.max.size=0",
            "--set: group.max.size=0 is not allowed; expected at least 1",
        ),
        ("offsets.topic.num.partitions=10001", "expected 1 to 10000"),
        (
            "group.max.size=many",
            "expected at least 1 (a whole number of 32 bits)",
        ),
        ("group.max.size=2147483648", "a whole number of 32 bits"),
        ("auto.create.topics.enable=yes", "expected true or false"),
        (
            "group.consumer.migration.policy=both",
            "expected one of disabled, upgrade, downgrade, bidirectional",
        ),
        (
            "group.consumer.assignors=sticky",
            "expected one or more of uniform, range",
        ),
        ("log.retention.ms=0", "expected -1, or at least 1"),
        (
            "convoke.log.sync=interval",
            "expected always, interval:MS (1 to 3600000) or none",
        ),
        ("compression.type=gzip", "expected one of producer"),
        ("listeners=PLAINTEXT://nowhere", "HOST:PORT"),
    ] {
        let text = refusal(&[assignment]);
        assert!(text.contains(says), "{assignment}: {text}");
        assert!(text.contains(assignment), "{assignment}: {text}");
    }
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    for (assignments, says) in [
        (
            &[
                "group.min.session.timeout.ms=10",
                "group.max.session.timeout.ms=9",
            ][..],
            "group.max.session.timeout.ms=9 is not allowed: it must be at least group.min.session.timeout.ms=10",
        ),
        (
            &["group.consumer.session.timeout.ms=6000"],
            "group.consumer.session.timeout.ms=6000 is not allowed: it must be at least group.consumer.min.session.timeout.ms=45000",
        ),
        (
            &["group.consumer.heartbeat.interval.ms=20000"],
            "it must be at least group.consumer.heartbeat.interval.ms=20000",
        ),
        (
            &[
                "group.consumer.max.heartbeat.interval.ms=50000",
                "group.consumer.heartbeat.interval.ms=45000",
            ],
            "it must be below group.consumer.session.timeout.ms=45000",
        ),
        (
            &["queued.max.request.bytes=2000"],
            "socket.request.max.bytes=104857600",
        ),
        (
            &["max.connections.per.ip=0"],
            "max.connections.per.ip.overrides",
        ),
    ] {
        let text = refusal(assignments);
        assert!(text.contains(says), "{assignments:?}: {text}");
    }
}

#[test]
fn a_program_that_sets_fields_is_held_to_the_same_rules() {
    let config = Config {
        group_max_size: 0,
        ..Config::memory()
    };
    let text = config.check().unwrap_err().to_string();
    assert_eq!(
        text,
        "Config: group.max.size=0 is not allowed; expected at least 1"
    );
}

#[test]
fn kafkas_own_file_for_one_node_is_taken_with_warnings() {
    let (config, warnings) = file(
        "process.roles=broker,controller\n\
         node.id=7\n\
         controller.quorum.bootstrap.servers=localhost:9093\n\
         listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n\
         inter.broker.listener.name=PLAINTEXT\n\
         advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL\n\
         num.network.threads=3\n\
         num.io.threads=8\n\
         socket.send.buffer.bytes=102400\n\
         socket.receive.buffer.bytes=102400\n\
         socket.request.max.bytes=104857600\n\
         log.dirs=/tmp/kraft-combined-logs\n\
         num.partitions=1\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         log.retention.hours=168\n\
         log.segment.bytes=1073741824\n\
         log.retention.check.interval.ms=300000\n",
    )
    .unwrap();
    assert_eq!(config.node_id, 7);
    assert_eq!(config.data_dir, Path::new("/tmp/kraft-combined-logs"));
    let endpoints = config.endpoints().unwrap();
    assert_eq!(endpoints.len(), 1);
    assert_eq!(endpoints[0].advertised.to_string(), "localhost:9092");
    assert_eq!(warnings.len(), 10, "{warnings:#?}");
    assert!(
        warnings
            .iter()
            .any(|text| text.contains("num.io.threads is not used: threads follow"))
    );
}

#[test]
fn keys_that_promise_what_is_not_kept_are_refused() {
    for (assignment, says) in [
        ("ssl.keystore.location=/x", "PLAINTEXT only"),
        (
            "sasl.enabled.mechanisms=PLAIN",
            "neither users nor permissions",
        ),
        ("authorizer.class.name=A", "neither users nor permissions"),
        ("zookeeper.connect=localhost:2181", "joins no cluster"),
        (
            "delegation.token.secret.key=x",
            "neither users nor permissions",
        ),
    ] {
        let text = refusal(&[assignment]);
        assert!(text.contains(says), "{assignment}: {text}");
    }
}

#[test]
fn other_names_lead_to_the_same_key() {
    assert_eq!(set(&["broker.id=3"]).unwrap().0.node_id, 3);
    assert_eq!(set(&["log.dir=/d"]).unwrap().0.data_dir, Path::new("/d"));
    assert!(refusal(&["log.dirs=/a,/b"]).contains("one folder"));
    let clash = file("broker.id=1\nnode.id=2\n").unwrap_err().to_string();
    assert!(
        clash.contains("line 2 gives it as node.id, and line 1 gives broker.id"),
        "{clash}"
    );
    assert!(file("broker.id=2\nnode.id=2\n").unwrap().1.is_empty());
}

#[test]
fn what_comes_later_holds() {
    let (config, warnings) = file("num.partitions=2\nnum.partitions=3\n").unwrap();
    assert_eq!(config.num_partitions, 3);
    assert!(
        warnings[0].contains("line 2: num.partitions was set on line 1 too"),
        "{warnings:?}"
    );
    let (config, warnings) = set(&["num.partitions=2", "num.partitions=4"]).unwrap();
    assert_eq!((config.num_partitions, warnings.len()), (4, 0));
}

#[test]
fn a_coarser_unit_that_is_not_used_is_told() {
    let (_, warnings) = set(&["log.retention.hours=1", "log.retention.ms=5"]).unwrap();
    assert_eq!(
        warnings,
        ["log.retention.hours is not used, because log.retention.ms is set"]
    );
}

#[test]
fn listeners_have_names_inside_and_outside_and_ipv6() {
    let (config, _) = set(&[
        "listeners=inside://0.0.0.0:9092,OUTSIDE://[::1]:0,PLAINTEXT://127.0.0.1:9094,PLAINTEXT://[::1]:9094",
        "advertised.listeners=INSIDE://convoke:9092,OUTSIDE://[fd00::5]:19092",
    ])
    .unwrap();
    let endpoints = config.endpoints().unwrap();
    assert_eq!(endpoints[0].name, "INSIDE");
    assert_eq!(endpoints[0].advertised.to_string(), "convoke:9092");
    assert_eq!(
        endpoints[1].bind,
        HostPort {
            host: "::1".into(),
            port: 0
        }
    );
    assert_eq!(endpoints[1].advertised.to_string(), "[fd00::5]:19092");
    assert_eq!(endpoints[3].advertised, endpoints[3].bind);
}

#[test]
fn listeners_that_cannot_work_are_refused() {
    for (assignments, says) in [
        (&["listeners="][..], "at least one listener"),
        (
            &["listeners=A://127.0.0.1:1,A://127.0.0.1:2"],
            "A is named twice",
        ),
        (
            &["listeners=A://127.0.0.1:1,B://127.0.0.1:1"],
            "the same address",
        ),
        (
            &["listeners=A://0.0.0.0:9092"],
            "add --advertise HOST:PORT or advertised.listeners=A://HOST:PORT",
        ),
        (
            &[
                "listeners=A://:9092",
                "advertised.listeners=A://0.0.0.0:9092",
            ],
            "cannot be dialled",
        ),
        (
            &["advertised.listeners=B://h:1"],
            "names no listener; the listeners are PLAINTEXT",
        ),
        (
            &["advertised.listeners=PLAINTEXT://h:1,PLAINTEXT://h:2"],
            "PLAINTEXT is named twice",
        ),
        (
            &["listeners=SSL://127.0.0.1:1"],
            "asks for SSL; this version speaks PLAINTEXT only",
        ),
        (
            &[
                "listeners=A://127.0.0.1:1",
                "listener.security.protocol.map=A:SASL_SSL",
            ],
            "asks for SASL_SSL",
        ),
        (&["listeners=A://::1:9092"], "brackets"),
        (&["listeners=A://[nonsense]:9092"], "brackets"),
        (&["listeners=A://h:65536"], "a port from 0 to 65535"),
        (&["listeners=A b://h:1"], "letters, digits"),
    ] {
        let text = refusal(assignments);
        assert!(text.contains(says), "{assignments:?}: {text}");
    }
}

#[test]
fn a_broken_line_is_told_with_its_number() {
    let text = file("a=1\nnum.partitions=\\u12\n").unwrap_err().to_string();
    assert!(
        text.contains(", line 1: unknown key a") || text.contains(", line 2: "),
        "{text}"
    );
    let mut loader = Loader::new();
    let text = loader
        .file(Path::new("/nowhere/at/all"))
        .unwrap_err()
        .to_string();
    assert!(
        text.starts_with("cannot read the configuration file /nowhere/at/all: "),
        "{text}"
    );
}

#[test]
fn the_printed_file_reads_back() {
    let (config, _) = set(&[
        "num.partitions=9",
        "listeners=A://[::1]:0",
        "broker.rack=r\\1",
    ])
    .unwrap();
    let (again, warnings) = file(&properties_file(&config)).unwrap();
    assert_eq!(again, config);
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(
        file(&properties_file(&Config::default())).unwrap().0,
        Config::default()
    );
}
