//! The core and the codec alone, without sockets or disk: `cargo bench --bench core`.
//!
//! Requests are frames as clients send them, made with kafka-protocol; each is decoded, handed to a coordinator, and its
//! answer encoded, and the three are timed apart. No test asserts any of it.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(
    clippy::unwrap_used,
    reason = "a benchmark that cannot run should say why"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use convoke::group::request::{Reply, Request, RequestId};
use convoke::group::types::{Millis, Topic, TopicId, Topics};
use convoke::group::{Actions, Coordinator, GroupConfig};
use convoke::wire::{self, Call, Header, Peer};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    GroupId, HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest, RequestHeader,
    SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::{Encodable, Request as Message, StrBytes};

const NOW: Millis = Millis(1_000_000);
/// Versions that every client of the last years speaks.
const JOIN: i16 = 9;
const SYNC: i16 = 5;
const HEARTBEAT: i16 = 4;
const COMMIT: i16 = 9;

fn text(text: impl Into<String>) -> StrBytes {
    StrBytes::from_string(text.into())
}

fn group(number: usize) -> GroupId {
    GroupId(text(format!("group-{number}")))
}

fn frame<M: Message>(version: i16, message: &M) -> Bytes {
    let mut bytes = BytesMut::new();
    RequestHeader::default()
        .with_request_api_key(M::KEY)
        .with_request_api_version(version)
        .with_correlation_id(7)
        .with_client_id(Some(text("bench")))
        .encode(&mut bytes, M::header_version(version))
        .unwrap();
    message.encode(&mut bytes, version).unwrap();
    bytes.freeze()
}

/// A coordinator and who speaks to it.
struct World {
    coordinator: Coordinator,
    peer: Peer,
    actions: Actions,
    next: u64,
}

impl World {
    fn new() -> Self {
        let mut topics = Topics::default();
        let topic = Topic {
            id: TopicId([1; 16]),
            partitions: 1_000,
        };
        topics.insert("topic".into(), topic);
        let config = GroupConfig {
            initial_rebalance_delay_ms: 0,
            ..GroupConfig::default()
        };
        let mut actions = Actions::default();
        let mut coordinator = Coordinator::new(config, Arc::new(topics), 1);
        coordinator.loaded(NOW, &mut actions);
        Self {
            coordinator,
            peer: Peer::new("/127.0.0.1"),
            actions: Actions::default(),
            next: 0,
        }
    }

    fn decode(&mut self, frame: Bytes) -> (Header, Request) {
        match wire::decode(frame, &mut self.peer).unwrap() {
            (header, Call::Group(request)) => (header, request),
            other => panic!("not about a group: {other:?}"),
        }
    }

    fn handle(&mut self, request: Request) -> u64 {
        self.next += 1;
        let id = RequestId(self.next);
        self.coordinator.handle(NOW, id, request, &mut self.actions);
        self.next
    }

    fn ask(&mut self, frame: Bytes) -> u64 {
        let (_, request) = self.decode(frame);
        self.handle(request)
    }

    /// What was answered to this request, if anything.
    fn answer(&self, asked: u64) -> Option<&Reply> {
        let mut answers = self.actions.replies.iter();
        answers
            .find(|answer| answer.id.0 == asked)
            .map(|answer| &answer.reply)
    }

    /// The member id that a join was given.
    fn joined(&self, asked: u64) -> Arc<str> {
        match self.answer(asked) {
            Some(Reply::Join(joined)) => joined.member_id.clone(),
            other => panic!("a join is answered with {other:?}"),
        }
    }
}

fn join(group: &GroupId, member_id: &str, change: u32) -> Bytes {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(text("range"))
        .with_metadata(Bytes::copy_from_slice(
            &[
                &[0, 0, 0, 0, 0, 1, 0, 5][..],
                b"topic",
                &[0, 0, 0, 4],
                &change.to_be_bytes(),
            ]
            .concat(),
        ));
    let request = JoinGroupRequest::default()
        .with_group_id(group.clone())
        .with_session_timeout_ms(300_000)
        .with_rebalance_timeout_ms(60_000)
        .with_member_id(text(member_id))
        .with_protocol_type(text("consumer"))
        .with_protocols(vec![protocol]);
    // Version 3 gives an id at once; later ones want a second request with it.
    frame(if member_id.is_empty() { 3 } else { JOIN }, &request)
}

fn sync(group: &GroupId, member_id: &str, generation: i32, everybody: &[Arc<str>]) -> Bytes {
    let one = |id: &Arc<str>| {
        SyncGroupRequestAssignment::default()
            .with_member_id(text(&**id))
            .with_assignment(Bytes::from_static(&[7; 40]))
    };
    let request = SyncGroupRequest::default()
        .with_group_id(group.clone())
        .with_generation_id(generation)
        .with_member_id(text(member_id))
        .with_protocol_type(Some(text("consumer")))
        .with_protocol_name(Some(text("range")))
        .with_assignments(everybody.iter().map(one).collect());
    frame(SYNC, &request)
}

/// A group whose members are all there and synchronised.
struct Group {
    name: GroupId,
    members: Vec<Arc<str>>,
    generation: i32,
}

impl Group {
    fn gather(world: &mut World, name: GroupId, count: usize) -> Self {
        // The first is a group by itself; the others then wait until it has come again.
        let first = world.ask(join(&name, "", 0));
        let first = world.joined(first);
        world.actions.clear();
        let waiting: Vec<_> = (1..count).map(|_| world.ask(join(&name, "", 0))).collect();
        if count > 1 {
            world.ask(join(&name, &first, 1));
        }
        let others = waiting.into_iter().map(|asked| world.joined(asked));
        let members = std::iter::once(first).chain(others).collect();
        world.actions.clear();
        let mut group = Self {
            name,
            members,
            generation: 0,
        };
        group.rebalance(world, u32::MAX);
        group
    }

    /// Everybody joins with a changed subscription and synchronises. Gives the time from the first request on.
    fn rebalance(&mut self, world: &mut World, change: u32) -> Duration {
        let joins: Vec<_> = self
            .members
            .iter()
            .map(|member| join(&self.name, member, change))
            .collect();
        let begun = Instant::now();
        let first = world.next + 1;
        for frame in joins {
            world.ask(frame);
        }
        let Some(Reply::Join(joined)) = world.answer(first) else {
            panic!("the join phase does not end");
        };
        let (leader, generation) = (joined.leader.clone(), joined.generation);
        world.actions.clear();
        self.generation = generation;
        for member in &self.members {
            let everybody = if *member == leader {
                &self.members[..]
            } else {
                &[]
            };
            world.ask(sync(&self.name, member, generation, everybody));
        }
        let answered = world.actions.replies.len();
        assert_eq!(answered, self.members.len(), "everybody is synchronised");
        let took = begun.elapsed();
        world.actions.clear();
        took
    }
}

fn tell(what: &str, took: Duration, count: usize) {
    let nanos = took.as_secs_f64() * 1e9 / count as f64;
    println!("{what:<60}{nanos:>14.0} ns");
}

/// The same requests over and over: decoded, handled, their answers encoded.
fn cycle(what: &str, world: &mut World, frames: &[Bytes], rounds: usize) {
    let (mut decode, mut handle, mut encode) = <(Duration, Duration, Duration)>::default();
    for _ in 0..rounds {
        let begun = Instant::now();
        let calls: Vec<_> = frames.iter().map(|f| world.decode(f.clone())).collect();
        decode += begun.elapsed();
        let (headers, requests): (Vec<_>, Vec<_>) = calls.into_iter().unzip();
        let begun = Instant::now();
        for request in requests {
            world.handle(request);
        }
        handle += begun.elapsed();
        let replies: Vec<_> = world.actions.replies.drain(..).collect();
        world.actions.clear();
        assert_eq!(replies.len(), frames.len(), "every request is answered");
        let replies: Vec<_> = replies
            .into_iter()
            .map(|answer| wire::Reply::Group(answer.reply))
            .collect();
        let begun = Instant::now();
        for (header, reply) in headers.iter().zip(&replies) {
            black_box(wire::encode(header, reply).unwrap());
        }
        encode += begun.elapsed();
    }
    let count = rounds * frames.len();
    tell(&format!("{what}: frame to words"), decode, count);
    tell(&format!("{what}: Coordinator::handle"), handle, count);
    tell(&format!("{what}: words to frame"), encode, count);
}

fn heartbeats(groups: usize, rounds: usize) {
    let mut world = World::new();
    let frames: Vec<_> = (0..groups)
        .map(|number| {
            let gathered = Group::gather(&mut world, group(number), 1);
            let request = HeartbeatRequest::default()
                .with_group_id(gathered.name)
                .with_generation_id(gathered.generation)
                .with_member_id(text(&*gathered.members[0]));
            frame(HEARTBEAT, &request)
        })
        .collect();
    cycle(
        &format!("heartbeat, {groups} groups"),
        &mut world,
        &frames,
        rounds,
    );
}

fn commits(groups: usize, partitions: i32, rounds: usize) {
    let mut world = World::new();
    let one = |index| {
        OffsetCommitRequestPartition::default()
            .with_partition_index(index)
            .with_committed_offset(1_000_000)
            .with_committed_metadata(Some(StrBytes::default()))
    };
    let topic = OffsetCommitRequestTopic::default()
        .with_name(TopicName(text("topic")))
        .with_partitions((0..partitions).map(one).collect());
    let frames: Vec<_> = (0..groups)
        .map(|number| {
            let request = OffsetCommitRequest::default()
                .with_group_id(group(number))
                .with_topics(vec![topic.clone()]);
            frame(COMMIT, &request)
        })
        .collect();
    cycle(
        &format!("commit of {partitions}, {groups} groups"),
        &mut world,
        &frames,
        rounds,
    );
}

fn rebalances(members: usize, rounds: u32) {
    let mut world = World::new();
    let mut gathered = Group::gather(&mut world, group(0), members);
    let took = (0..rounds)
        .map(|round| gathered.rebalance(&mut world, round))
        .sum();
    tell(
        &format!("join and sync of {members}, each member, with the codec"),
        took,
        members * rounds as usize,
    );
}

fn main() {
    // Under `cargo test` this only shows that it runs.
    if !std::env::args().any(|arg| arg == "--bench") {
        heartbeats(2, 1);
        commits(2, 10, 1);
        rebalances(3, 1);
        return;
    }
    for groups in [10, 1_000, 10_000] {
        heartbeats(groups, 2_000_000 / groups);
    }
    for partitions in [1, 10, 100] {
        commits(1_000, partitions, 200);
    }
    for members in [10, 100, 1_000] {
        rebalances(members, u32::try_from(10_000 / members).unwrap());
    }
}
