//! The shell over real sockets: frames, order of replies, limits, stopping and coming back.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use convoke::BlockingServer;
use convoke::config::Config;
use convoke::server::{Builder, Server};

const HEARTBEAT: i16 = 12;
const JOIN: i16 = 11;
const SYNC: i16 = 14;
const DESCRIBE: i16 = 15;
const COMMIT: i16 = 8;
const FETCH_OFFSETS: i16 = 9;
const API_VERSIONS: i16 = 18;
const METADATA: i16 = 3;

/// Longer than anything here takes; what takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn memory(change: impl FnOnce(&mut Config)) -> BlockingServer {
    Server::builder()
        .memory()
        .with(change)
        .start_blocking()
        .unwrap()
}

/// Bytes of a request body or of a reply, in the oldest layouts: no tags, no compact lengths.
#[derive(Default)]
struct Words(Vec<u8>);

impl Words {
    fn i16(mut self, value: i16) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn i32(mut self, value: i32) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn i64(mut self, value: i64) -> Self {
        self.0.extend(value.to_be_bytes());
        self
    }
    fn text(mut self, text: &str) -> Self {
        self.0
            .extend(i16::try_from(text.len()).unwrap().to_be_bytes());
        self.0.extend(text.as_bytes());
        self
    }
    fn bytes(mut self, bytes: &[u8]) -> Self {
        self.0
            .extend(i32::try_from(bytes.len()).unwrap().to_be_bytes());
        self.0.extend(bytes);
        self
    }
}

/// A reply behind its correlation id.
struct Reply {
    correlation: i32,
    body: Vec<u8>,
    at: usize,
}

impl Reply {
    fn take(&mut self, bytes: usize) -> &[u8] {
        self.at += bytes;
        &self.body[self.at - bytes..self.at]
    }
    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap())
    }
    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }
    fn i64(&mut self) -> i64 {
        i64::from_be_bytes(self.take(8).try_into().unwrap())
    }
    fn text(&mut self) -> String {
        let bytes = usize::try_from(self.i16()).unwrap();
        String::from_utf8(self.take(bytes).to_vec()).unwrap()
    }
    fn bytes(&mut self) -> Vec<u8> {
        let bytes = usize::try_from(self.i32()).unwrap();
        self.take(bytes).to_vec()
    }
}

/// A connection that says exactly what the test wants.
struct Wire {
    socket: TcpStream,
    correlation: i32,
}

impl Wire {
    fn to(server: &BlockingServer) -> Self {
        let socket = TcpStream::connect(server.bootstrap()).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Self {
            socket,
            correlation: 0,
        }
    }

    fn frame(&mut self, key: i16, version: i16, body: Words) -> Vec<u8> {
        self.correlation += 1;
        let words = Words::default()
            .i16(key)
            .i16(version)
            .i32(self.correlation)
            .text("test");
        let mut frame = words.0;
        frame.extend(body.0);
        Words::default().bytes(&frame).0
    }

    fn send(&mut self, key: i16, version: i16, body: Words) {
        let frame = self.frame(key, version, body);
        self.socket.write_all(&frame).unwrap();
    }

    fn receive(&mut self) -> Reply {
        let mut length = [0; 4];
        self.socket.read_exact(&mut length).unwrap();
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        self.socket.read_exact(&mut body).unwrap();
        let mut reply = Reply {
            correlation: 0,
            body,
            at: 0,
        };
        reply.correlation = reply.i32();
        reply
    }

    fn ask(&mut self, key: i16, version: i16, body: Words) -> Reply {
        self.send(key, version, body);
        self.receive()
    }

    /// Whether the server closes without another word.
    fn ends(mut self) -> bool {
        let mut rest = Vec::new();
        match self.socket.read_to_end(&mut rest) {
            Ok(_) => rest.is_empty(),
            // Bytes of ours that it never read.
            Err(error) => error.kind() == ErrorKind::ConnectionReset,
        }
    }

    fn has_nothing(&self) -> bool {
        self.socket.set_nonblocking(true).unwrap();
        let peeked = self.socket.peek(&mut [0]);
        self.socket.set_nonblocking(false).unwrap();
        matches!(peeked, Err(error) if error.kind() == ErrorKind::WouldBlock)
    }

    fn is_served(&mut self) -> bool {
        self.ask(API_VERSIONS, 0, Words::default()).i16() == 0
    }

    fn heartbeat(&mut self, group: &str, generation: i32, member: &str) -> i16 {
        self.ask(
            HEARTBEAT,
            0,
            Words::default().text(group).i32(generation).text(member),
        )
        .i16()
    }
}

/// JoinGroup, version 0: admitted at once, without the handshake of later versions.
fn join(group: &str, member: &str, metadata: &[u8]) -> Words {
    let words = Words::default()
        .text(group)
        .i32(30_000)
        .text(member)
        .text("consumer");
    words.i32(1).text("range").bytes(metadata)
}

struct Joined {
    error: i16,
    generation: i32,
    member: String,
    members: Vec<(String, Vec<u8>)>,
}

fn joined(mut reply: Reply) -> Joined {
    let (error, generation) = (reply.i16(), reply.i32());
    let _ = (reply.text(), reply.text());
    let member = reply.text();
    let count = reply.i32();
    let members = (0..count).map(|_| (reply.text(), reply.bytes())).collect();
    Joined {
        error,
        generation,
        member,
        members,
    }
}

/// A group with one synced member, whose id is returned.
fn lone_member(wire: &mut Wire, group: &str) -> String {
    let Joined {
        error,
        generation,
        member,
        ..
    } = joined(wire.ask(JOIN, 0, join(group, "", b"m")));
    assert_eq!((error, generation), (0, 1));
    let sync = Words::default().text(group).i32(1).text(&member);
    let mut synced = wire.ask(SYNC, 0, sync.i32(1).text(&member).bytes(b"mine"));
    assert_eq!((synced.i16(), synced.bytes()), (0, b"mine".to_vec()));
    member
}

/// A second member whose JoinGroup is parked, because the first has not rejoined.
fn parked_join(server: &BlockingServer, first: &mut Wire, group: &str) -> (Wire, String) {
    let leader = lone_member(first, group);
    let mut second = Wire::to(server);
    second.send(JOIN, 0, join(group, "", b"n"));
    while first.heartbeat(group, 1, &leader) != 27 {}
    (second, leader)
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = memory(|_| {});
    let mut wire = Wire::to(&server);
    let mut all = Vec::new();
    for _ in 0..500 {
        all.extend(wire.frame(API_VERSIONS, 0, Words::default()));
        all.extend(wire.frame(HEARTBEAT, 0, Words::default().text("g").i32(1).text("m")));
    }
    wire.socket.write_all(&all).unwrap();
    for correlation in 1..=1000 {
        let mut reply = wire.receive();
        assert_eq!(reply.correlation, correlation);
        assert_eq!(reply.i16(), if correlation % 2 == 1 { 0 } else { 25 });
    }
}

#[test]
fn pipelined_commits_share_their_wait_and_keep_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_disk(folder.path()).start_blocking().unwrap();
    let mut wire = Wire::to(&server);
    wire.ask(METADATA, 0, Words::default().i32(1).text("topic"));
    let before = wire.correlation;
    let mut all = Vec::new();
    for n in 0..300 {
        all.extend(wire.frame(COMMIT, 2, commit(&format!("g{}", n % 7), n)));
        if n % 100 == 99 {
            all.extend(wire.frame(API_VERSIONS, 0, Words::default()));
        }
    }
    wire.socket.write_all(&all).unwrap();
    for n in 1..=303 {
        let reply = wire.receive();
        assert_eq!(reply.correlation, before + n);
        if n % 101 != 0 {
            assert_eq!(commit_error(reply), 0);
        }
    }
    for n in 293..300 {
        assert_eq!(committed(&mut wire, &format!("g{}", n % 7)), (n, 0));
    }
}

#[test]
fn commits_in_front_of_a_broken_one_are_answered() {
    let server = memory(|_| {});
    let mut wire = Wire::to(&server);
    wire.ask(METADATA, 0, Words::default().i32(1).text("topic"));
    let mut all = wire.frame(COMMIT, 2, commit("g", 1));
    all.extend(wire.frame(COMMIT, 2, commit("g", 2)));
    all.extend(wire.frame(COMMIT, 2, Words::default().text("g")));
    all.extend(wire.frame(COMMIT, 2, commit("g", 3)));
    wire.socket.write_all(&all).unwrap();
    assert_eq!(commit_error(wire.receive()), 0);
    assert_eq!(commit_error(wire.receive()), 0);
    assert!(wire.ends());
    assert_eq!(committed(&mut Wire::to(&server), "g"), (2, 0));
}

#[test]
fn nothing_overtakes_a_parked_join() {
    let server = memory(|_| {});
    let mut first = Wire::to(&server);
    let (mut second, leader) = parked_join(&server, &mut first, "g");
    second.send(API_VERSIONS, 0, Words::default());
    assert!(first.is_served() && second.has_nothing());
    let again = joined(first.ask(JOIN, 0, join("g", &leader, b"m")));
    assert_eq!(
        (again.error, again.generation, again.members.len()),
        (0, 2, 2)
    );
    let reply = second.receive();
    assert_eq!(reply.correlation, 1);
    assert_eq!(joined(reply).generation, 2);
    assert_eq!(second.receive().correlation, 2);
}

#[test]
fn a_parked_request_is_not_idle() {
    let server = memory(|config| config.connections_max_idle_ms = 400);
    let mut first = Wire::to(&server);
    let (mut second, leader) = parked_join(&server, &mut first, "g");
    // Connected after the join was parked, and gone before it is answered.
    assert!(Wire::to(&server).ends());
    assert!(second.has_nothing());
    let mut first = Wire::to(&server);
    assert_eq!(
        joined(first.ask(JOIN, 0, join("g", &leader, b"m"))).error,
        0
    );
    assert_eq!(joined(second.receive()).generation, 2);
}

#[test]
fn a_client_that_leaves_while_its_request_is_parked_leaves_no_connection_behind() {
    let server = memory(|_| {});
    let mut first = Wire::to(&server);
    let (second, leader) = parked_join(&server, &mut first, "g");
    assert_eq!(server.observer().connections(), 2);
    drop(second);
    while server.observer().connections() != 1 {
        assert_eq!(
            first.heartbeat("g", 1, &leader),
            27,
            "the member itself stays"
        );
    }
}

/// JoinGroup sent again on another connection: Kafka never answers the first one.
#[test]
fn a_superseded_join_leaves_its_connection_mute_until_the_client_goes() {
    let server = memory(|_| {});
    let mut first = Wire::to(&server);
    let (mut second, leader) = parked_join(&server, &mut first, "g");
    assert_eq!(
        joined(first.ask(JOIN, 0, join("g", &leader, b"m"))).error,
        0
    );
    let follower = joined(second.receive()).member;
    let sync = Words::default().text("g").i32(2).text(&leader).i32(1);
    assert_eq!(first.ask(SYNC, 0, sync.text(&leader).bytes(b"x")).i16(), 0);

    // The leader starts a rebalance, which waits for the follower.
    first.send(JOIN, 0, join("g", &leader, b"m"));
    while second.heartbeat("g", 2, &follower) != 27 {}
    let mut again = Wire::to(&server);
    // Two in one write: the first is answered when the second has reached its shard.
    let mut both = again.frame(API_VERSIONS, 0, Words::default());
    both.extend(again.frame(JOIN, 0, join("g", &leader, b"m")));
    again.socket.write_all(&both).unwrap();
    assert_eq!(again.receive().correlation, 1);
    let mut other = Wire::to(&server);
    assert_eq!(
        joined(second.ask(JOIN, 0, join("g", &follower, b"n"))).error,
        0
    );
    assert_eq!(joined(again.receive()).generation, 3);
    first.send(API_VERSIONS, 0, Words::default());
    assert!(other.is_served() && first.has_nothing());
    drop(first);
    while server.observer().connections() != 3 {
        assert!(other.is_served());
    }
}

#[test]
fn a_request_in_many_pieces_and_a_large_one_arrive_whole() {
    let server = memory(|_| {});
    let mut wire = Wire::to(&server);
    let metadata: Vec<u8> = (0..3_000_000_u32).map(|i| i as u8).collect();
    let alone = joined(wire.ask(JOIN, 0, join("large", "", &metadata)));
    assert_eq!(alone.members, [(alone.member, metadata)]);
    for byte in wire.frame(API_VERSIONS, 0, Words::default()) {
        wire.socket.write_all(&[byte]).unwrap();
    }
    assert_eq!(wire.receive().correlation, 2);
}

#[test]
fn frames_out_of_bounds_and_strangers_close_the_connection() {
    let server = memory(|config| {
        config.socket_request_max_bytes = 1 << 20;
        config.queued_max_request_bytes = 1 << 20;
    });
    let mut other = Wire::to(&server);
    let length = |length: i32| length.to_be_bytes().to_vec();
    let unknown_api = vec![0, 0, 0, 10, 3, 0xe7, 0, 0, 0, 0, 0, 1, 0xff, 0xff];
    let old_version = vec![0, 0, 0, 10, 0, 11, 0xff, 0xff, 0, 0, 0, 1, 0xff, 0xff];
    for bytes in [
        length(0),
        length(-1),
        length(i32::MIN),
        length((1 << 20) + 1),
        [length(3), vec![0; 3]].concat(),
        unknown_api,
        old_version,
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        vec![0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3],
    ] {
        let mut wire = Wire::to(&server);
        wire.socket.write_all(&bytes).unwrap();
        assert!(wire.ends(), "{bytes:?}");
        assert!(other.is_served());
    }
}

#[test]
fn an_unknown_version_of_api_versions_is_answered_in_version_0() {
    let server = memory(|_| {});
    let mut wire = Wire::to(&server);
    // The header of a flexible version ends with its tags: none.
    let mut reply = wire.ask(API_VERSIONS, 99, Words(vec![0]));
    assert_eq!((reply.i16(), reply.i32()), (35, 1));
    assert_eq!((reply.i16(), reply.i16(), reply.i16()), (18, 0, 5));
}

#[test]
fn a_slow_sender_is_cut() {
    let server = memory(|config| config.request_receive_timeout_ms = 200);
    let mut idle = Wire::to(&server);
    let mut slow = Wire::to(&server);
    // A byte now and then does not help.
    slow.socket.write_all(&[0, 0, 0x10, 0]).unwrap();
    let mut feeder = slow.socket.try_clone().unwrap();
    std::thread::spawn(move || {
        while feeder.write_all(&[0]).is_ok() {
            std::thread::park_timeout(Duration::from_millis(20));
        }
    });
    assert!(slow.ends());
    assert!(idle.is_served(), "who has begun nothing is not slow");
}

#[test]
fn a_slow_reader_is_cut() {
    let server = memory(|config| config.response_send_timeout_ms = 200);
    let mut slow = Wire::to(&server);
    let mut asked = 0;
    // Never reads, so that at some point nothing more can be sent to it.
    loop {
        let frame = slow.frame(API_VERSIONS, 0, Words::default());
        if slow.socket.write_all(&frame.repeat(1000)).is_err() {
            break;
        }
        asked += 1;
        assert!(asked < 100_000, "the server takes requests for ever");
    }
    assert!(Wire::to(&server).is_served());
}

#[test]
fn replies_that_nobody_takes_hold_up_large_ones_for_a_while_and_small_ones_never() {
    let server = memory(|config| {
        config.queued_max_reply_bytes = 65_536;
        config.response_send_timeout_ms = 500;
    });
    let mut wire = Wire::to(&server);
    // More than the system takes for somebody who does not read.
    let metadata = vec![7; 16 << 20];
    let leader = joined(wire.ask(JOIN, 0, join("large", "", &metadata))).member;
    let sync = Words::default().text("large").i32(1).text(&leader);
    let mut synced = wire.ask(SYNC, 0, sync.i32(1).text(&leader).bytes(b"mine"));
    assert_eq!(synced.i16(), 0);
    let describe = || Words::default().i32(1).text("large");
    let mut greedy: Vec<_> = (0..4).map(|_| Wire::to(&server)).collect();
    for wire in &mut greedy {
        wire.send(DESCRIBE, 0, describe());
    }
    assert_eq!(wire.heartbeat("large", 1, &leader), 0);
    let mut described = Wire::to(&server).ask(DESCRIBE, 0, describe());
    assert_eq!((described.i32(), described.i16()), (1, 0));
    assert!(described.body.len() > metadata.len());
}

#[test]
fn beyond_the_memory_of_groups_joins_are_refused_and_members_go_on() {
    let server = memory(|config| config.group_memory_max_bytes = 65_536);
    let mut wire = Wire::to(&server);
    let member = lone_member(&mut wire, "small");
    let refused = joined(wire.ask(JOIN, 0, join("large", "", &[7; 80_000])));
    assert_eq!((refused.error, refused.members.len()), (81, 0));
    assert_eq!(wire.heartbeat("small", 1, &member), 0);
    let other = joined(wire.ask(JOIN, 0, join("other", "", b"m")));
    assert_eq!((other.error, other.generation), (0, 1));
}

#[test]
fn connections_are_limited_in_total_and_by_address() {
    let servers = [
        memory(|config| config.max_connections = 2),
        memory(|config| config.max_connections_per_ip = 2),
    ];
    for server in servers {
        let (mut first, mut second) = (Wire::to(&server), Wire::to(&server));
        assert!(first.is_served() && second.is_served());
        assert!(Wire::to(&server).ends());
        first.socket.shutdown(Shutdown::Both).unwrap();
        while server.observer().connections() != 1 {
            assert!(second.is_served());
        }
        assert!(Wire::to(&server).is_served());
    }
}

#[test]
fn stopping_answers_who_is_parked() {
    let server = memory(|_| {});
    let mut first = Wire::to(&server);
    let (mut second, _) = parked_join(&server, &mut first, "g");
    server.stop().unwrap();
    assert_eq!(joined(second.receive()).error, 16, "NOT_COORDINATOR");
    assert!(second.ends() && first.ends());
}

#[test]
fn two_servers_in_one_process_do_not_mix() {
    let (one, two) = (memory(|_| {}), memory(|_| {}));
    assert_ne!(one.bootstrap(), two.bootstrap());
    let mut wire = Wire::to(&one);
    let member = lone_member(&mut wire, "g");
    assert_eq!(wire.heartbeat("g", 1, &member), 0);
    assert_eq!(Wire::to(&two).heartbeat("g", 1, &member), 25);
}

#[test]
fn ipv6_clients_are_served() {
    let server = memory(|config| config.listeners[0].address.host = "::1".to_owned());
    assert!(
        server.bootstrap().starts_with("[::1]:"),
        "{}",
        server.bootstrap()
    );
    assert!(Wire::to(&server).is_served());
}

fn on_disk(folder: &std::path::Path) -> Builder {
    let any_port = Config::memory().listeners;
    Server::builder().data(folder).with(|config| {
        config.listeners = any_port;
        config.group_initial_rebalance_delay_ms = 0;
    })
}

/// An assign-mode commit to partition 0 of "topic".
fn commit(group: &str, offset: i64) -> Words {
    let commit = Words::default().text(group).i32(-1).text("").i64(-1);
    let commit = commit.i32(1).text("topic").i32(1).i32(0);
    commit.i64(offset).text("")
}

fn commit_error(mut reply: Reply) -> i16 {
    assert_eq!(
        (reply.i32(), reply.text(), reply.i32(), reply.i32()),
        (1, "topic".into(), 1, 0)
    );
    reply.i16()
}

fn committed(wire: &mut Wire, group: &str) -> (i64, i16) {
    let body = Words::default()
        .text(group)
        .i32(1)
        .text("topic")
        .i32(1)
        .i32(0);
    let mut reply = wire.ask(FETCH_OFFSETS, 1, body);
    assert_eq!(
        (reply.i32(), reply.text(), reply.i32(), reply.i32()),
        (1, "topic".into(), 1, 0)
    );
    let offset = reply.i64();
    let _ = reply.text();
    (offset, reply.i16())
}

#[test]
fn a_restart_keeps_offsets_members_and_their_generation() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_disk(folder.path()).start_blocking().unwrap();
    let mut wire = Wire::to(&server);
    let topic = Words::default().i32(1).text("topic");
    wire.ask(METADATA, 0, topic);
    let reply = wire.ask(COMMIT, 2, commit("simple", 42));
    assert_eq!(commit_error(reply), 0);
    let member = lone_member(&mut wire, "g");
    server.stop().unwrap();

    let server = on_disk(folder.path()).start_blocking().unwrap();
    let mut wire = Wire::to(&server);
    assert_eq!(committed(&mut wire, "simple"), (42, 0));
    assert_eq!(wire.heartbeat("g", 1, &member), 0);
    assert_eq!(wire.heartbeat("g", 0, &member), 22);
}

#[test]
fn a_durable_journal_is_read_again_at_start() {
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let start = || {
        let durable = on_disk(folder.path()).with(|config| config.journal_durable = true);
        durable.start_blocking().unwrap()
    };
    let told = |server: &BlockingServer| {
        let inspected = runtime.block_on(server.observer().inspect("g".into()));
        inspected.unwrap().rebalances
    };
    let server = start();
    let member = lone_member(&mut Wire::to(&server), "g");
    let before = told(&server);
    assert_eq!(before.len(), 1);
    assert!(before[0].why.contains(&member), "{before:?}");
    server.stop().unwrap();
    assert_eq!(told(&start()), before);
}

#[test]
fn a_data_folder_serves_one_server_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let server = on_disk(folder.path()).start_blocking().unwrap();
    let refused = on_disk(folder.path()).start_blocking().unwrap_err();
    assert!(refused.to_string().contains("in use"), "{refused}");
    drop(server);
    drop(on_disk(folder.path()).start_blocking().unwrap());
}

#[test]
fn a_server_that_is_stopped_or_dropped_leaves_no_task_behind() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        for stop in [true, false] {
            let server = Server::builder().memory().start().await.unwrap();
            server.ready().await;
            if stop {
                server.stop().await.unwrap();
            } else {
                drop(server);
            }
            // The upkeep of the data plane notices at its next round.
            let gone = async {
                while tokio::runtime::Handle::current()
                    .metrics()
                    .num_alive_tasks()
                    > 0
                {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            };
            tokio::time::timeout(PATIENCE, gone).await.expect("all end");
        }
    });
}
