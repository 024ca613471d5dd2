//! Sequences of valid-looking requests over a few connections into a whole server in memory, sockets and all, on a clock
//! that only the input moves.
//!
//! Holds: no connection that speaks well is closed; every request is answered, in order, in the layout of the version
//! asked for to the last byte, and none is left waiting once time has passed (but those whose member asked again
//! elsewhere); a generation has one leader, who alone is told the members; followers get the bytes that the leader
//! sent; what was committed is fetched; what was produced comes back byte for byte; bytes that make no sense cost
//! nobody but who sent them; the server stops in good order.
//!
//! Input: operations, a byte that says which and bytes for what it needs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use arbitrary::{Result, Unstructured};
use bytes::{Buf, BufMut, Bytes, BytesMut};
use convoke::Server;
use convoke::group::subscription::{Assignment, Subscription};
use convoke::wire::api::{APIS, by_key};
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic,
};
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::{Decodable, Encodable, Request, StrBytes};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use uuid::Uuid;

use crate::batches::Shape;
use crate::clockwork;

const OPERATIONS_MAX: usize = 96;
const CONNECTIONS: usize = 4;
/// The first for classic members, the second for consumers of the new protocol, the third for both.
const GROUPS: [&str; 3] = ["c", "k", "m"];
const TOPICS: [&str; 2] = ["t0", "t1"];
const START_MS: i64 = 1_700_000_000_000;
/// So many turns let every task of the server that can do something do it.
const TURNS: usize = 48;

/// What is made of an answer.
enum Answer {
    Join(JoinGroupResponse),
    Sync(SyncGroupResponse),
    Commit(OffsetCommitResponse),
    Offsets(OffsetFetchResponse),
    Modern(ConsumerGroupHeartbeatResponse),
    Produced(ProduceResponse),
    Fetched(FetchResponse),
    Topics(CreateTopicsResponse),
    Deleted(DeleteTopicsResponse),
    GroupsDeleted(DeleteGroupsResponse),
    Metadata(MetadataResponse),
    Other,
}

type Read = Box<dyn Fn(&mut Bytes, i16) -> Answer>;

/// A request that waits for its answer.
struct Asked {
    correlation_id: i32,
    version: i16,
    header_version: i16,
    read: Read,
    group: usize,
    member: String,
    /// The partition, for what is about one.
    place: (usize, i32),
    offset: i64,
    bytes: Bytes,
    /// JoinGroup and SyncGroup may be parked.
    parkable: bool,
}

#[derive(Default)]
struct Note {
    group: usize,
    member: String,
    place: (usize, i32),
    offset: i64,
    bytes: Bytes,
    parkable: bool,
}

struct Connection {
    stream: TcpStream,
    input: BytesMut,
    waiting: VecDeque<Asked>,
    closed: bool,
}

#[derive(Default)]
struct Group {
    ids: Vec<String>,
    generations: BTreeMap<String, i32>,
    leaders: BTreeMap<i32, String>,
    /// What leaders sent for a member in a generation.
    sent: BTreeMap<(i32, String), BTreeSet<Bytes>>,
    told: BTreeMap<String, Vec<TopicPartitions>>,
    join_count: u64,
}

struct Hall {
    address: String,
    connections: Vec<Connection>,
    correlation_id: i32,
    groups: Vec<Group>,
    committed: BTreeMap<(usize, usize, i32), i64>,
    /// Batches as they must come back.
    produced: BTreeMap<(usize, i32), Vec<Bytes>>,
    partitions: BTreeMap<usize, i32>,
    topic_ids: BTreeMap<usize, Uuid>,
    /// Groups and members of requests that may be parked, in the order they were sent: for who was superseded.
    parked: Vec<(usize, i32)>,
    passed_ms: u64,
}

fn text(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

fn topic_name(topic: usize) -> TopicName {
    TopicName(text(TOPICS[topic]))
}

fn reader<R: Request>(wrap: fn(R::Response) -> Answer) -> Read
where
    R::Response: 'static,
{
    Box::new(move |bytes, version| {
        let answer = R::Response::decode(bytes, version);
        wrap(answer.unwrap_or_else(|e| {
            panic!(
                "an answer to {} version {version} cannot be read: {e}",
                R::KEY
            )
        }))
    })
}

fn frame<R: Request>(request: &R, version: i16, correlation_id: i32) -> BytesMut {
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation_id)
        .with_client_id(Some(text("fuzz")));
    let mut bytes = BytesMut::new();
    bytes.put_i32(0);
    header
        .encode(&mut bytes, R::header_version(version))
        .expect("a header can be written");
    request
        .encode(&mut bytes, version)
        .expect("the version has the fields");
    let length = bytes.len() as i32 - 4;
    bytes[..4].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// A version that both sides know.
fn version_of<R: Request>(u: &mut Unstructured<'_>, least: i16) -> Result<i16> {
    let api = by_key(R::KEY).expect("it is served");
    let least = least.max(api.decode_from).max(R::VERSIONS.min);
    let most = api.max.min(R::VERSIONS.max);
    Ok(least + i16::from(u.arbitrary::<u8>()?) % (most - least + 1))
}

impl Hall {
    async fn new(address: String) -> Self {
        let mut hall = Self {
            address,
            connections: Vec::new(),
            correlation_id: 0,
            groups: GROUPS.iter().map(|_| Group::default()).collect(),
            committed: BTreeMap::new(),
            produced: BTreeMap::new(),
            partitions: BTreeMap::new(),
            topic_ids: BTreeMap::new(),
            parked: Vec::new(),
            passed_ms: 0,
        };
        for _ in 0..CONNECTIONS {
            let connection = hall.connect().await;
            hall.connections.push(connection);
        }
        for topic in 0..TOPICS.len() {
            hall.create(topic, topic as i32 + 2).await;
        }
        hall
    }

    async fn connect(&self) -> Connection {
        let stream = TcpStream::connect(&self.address)
            .await
            .expect("the server listens");
        stream.set_nodelay(true).expect("it is a socket");
        Connection {
            stream,
            input: BytesMut::new(),
            waiting: VecDeque::new(),
            closed: false,
        }
    }

    async fn send<R: Request>(
        &mut self,
        on: usize,
        request: &R,
        version: i16,
        wrap: fn(R::Response) -> Answer,
        note: Note,
    ) where
        R::Response: 'static,
    {
        if self.connections[on].closed {
            self.connections[on] = self.connect().await;
        }
        self.correlation_id += 1;
        let frame = frame(request, version, self.correlation_id);
        let api = by_key(R::KEY).expect("it is served");
        if note.parkable {
            self.parked.push((note.group, self.correlation_id));
        }
        let asked = Asked {
            correlation_id: self.correlation_id,
            version,
            header_version: api.reply_header_version(version),
            read: reader::<R>(wrap),
            group: note.group,
            member: note.member,
            place: note.place,
            offset: note.offset,
            bytes: note.bytes,
            parkable: note.parkable,
        };
        let connection = &mut self.connections[on];
        connection.waiting.push_back(asked);
        // A failure shows when the answer is missed.
        let _ = connection.stream.write_all(&frame).await;
        self.settle().await;
    }

    /// Asks on a connection where nothing is parked, and waits for the answer.
    async fn ask<R: Request>(
        &mut self,
        request: &R,
        version: i16,
        wrap: fn(R::Response) -> Answer,
        note: Note,
    ) where
        R::Response: 'static,
    {
        let free = self
            .connections
            .iter()
            .position(|one| one.waiting.is_empty());
        let on = match free {
            Some(on) => on,
            None => {
                let connection = self.connect().await;
                self.connections.push(connection);
                self.connections.len() - 1
            }
        };
        self.send(on, request, version, wrap, note).await;
        while !self.connections[on].waiting.is_empty() {
            self.connections[on]
                .stream
                .readable()
                .await
                .expect("it is a socket");
            self.settle().await;
        }
    }

    /// Lets everybody do what can be done, and takes in what was answered.
    async fn settle(&mut self) {
        loop {
            for _ in 0..TURNS {
                tokio::task::yield_now().await;
            }
            let mut any = false;
            for on in 0..self.connections.len() {
                any |= self.take_in(on);
            }
            if !any {
                return;
            }
        }
    }

    fn take_in(&mut self, on: usize) -> bool {
        let mut any = false;
        loop {
            let connection = &mut self.connections[on];
            match connection.stream.try_read_buf(&mut connection.input) {
                Ok(0) => {
                    assert!(
                        connection.waiting.is_empty(),
                        "a connection that spoke well was closed"
                    );
                    connection.closed = true;
                    break;
                }
                Ok(_) => any = true,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    assert!(
                        connection.waiting.is_empty(),
                        "a connection failed: {error}"
                    );
                    connection.closed = true;
                    break;
                }
            }
        }
        while let Some(asked) = self.next_answer(on) {
            any = true;
            let (asked, answer) = asked;
            self.hear(asked, answer);
        }
        any
    }

    fn next_answer(&mut self, on: usize) -> Option<(Asked, Answer)> {
        let connection = &mut self.connections[on];
        let length = connection.input.first_chunk::<4>().copied()?;
        let length = i32::from_be_bytes(length) as usize;
        if connection.input.len() < 4 + length {
            return None;
        }
        connection.input.advance(4);
        let mut bytes = connection.input.split_to(length).freeze();
        let asked = connection
            .waiting
            .pop_front()
            .expect("an answer that nobody asked for");
        let header = ResponseHeader::decode(&mut bytes, asked.header_version).expect("a header");
        assert_eq!(
            header.correlation_id, asked.correlation_id,
            "answers come in order"
        );
        let answer = (asked.read)(&mut bytes, asked.version);
        assert!(
            !bytes.has_remaining(),
            "an answer has {} bytes too many",
            bytes.remaining()
        );
        Some((asked, answer))
    }

    fn hear(&mut self, asked: Asked, answer: Answer) {
        let group = &mut self.groups[asked.group];
        match answer {
            Answer::Join(reply) => {
                let id = reply.member_id.to_string();
                if !id.is_empty() && !group.ids.contains(&id) {
                    group.ids.push(id.clone());
                }
                if reply.error_code == 0 {
                    let generation = reply.generation_id;
                    assert!(generation > 0);
                    let leader = reply.leader.to_string();
                    if asked.group == 0 {
                        let known = group
                            .leaders
                            .entry(generation)
                            .or_insert_with(|| leader.clone());
                        // a static leader that comes back leads on under its new id
                        let back = known.starts_with('i') && known.get(..2) == leader.get(..2);
                        assert!(
                            *known == leader || back,
                            "generation {generation} has two leaders: {known} and {leader}"
                        );
                        *known = leader.clone();
                        assert!(
                            reply.members.is_empty() || id == leader,
                            "a follower is told the members"
                        );
                    }
                    group.generations.insert(id, generation);
                }
            }
            Answer::Sync(reply) if reply.error_code == 0 && asked.group == 0 => {
                let key = (asked.offset as i32, asked.member);
                let sent = group.sent.get(&key);
                assert!(
                    reply.assignment.is_empty()
                        || sent.is_some_and(|sent| sent.contains(&reply.assignment)),
                    "{key:?} gets bytes that no leader sent"
                );
            }
            Answer::Modern(reply) => {
                if reply.error_code == 0 {
                    let id = reply.member_id.map_or(asked.member, |id| id.to_string());
                    if let Some(assignment) = reply.assignment {
                        let told = assignment.topic_partitions.into_iter().map(|topic| {
                            TopicPartitions::default()
                                .with_topic_id(topic.topic_id)
                                .with_partitions(topic.partitions)
                        });
                        group.told.insert(id.clone(), told.collect());
                    }
                    if !group.ids.contains(&id) {
                        group.ids.push(id.clone());
                    }
                    group.generations.insert(id, reply.member_epoch);
                }
            }
            Answer::Commit(reply) => {
                let partition = reply
                    .topics
                    .first()
                    .and_then(|topic| topic.partitions.first());
                if partition.is_some_and(|partition| partition.error_code == 0) {
                    let (topic, partition) = asked.place;
                    self.committed
                        .insert((asked.group, topic, partition), asked.offset);
                }
            }
            Answer::Offsets(reply) => self.compare_offsets(&asked, &reply),
            Answer::Produced(reply) => {
                let partition = &reply.responses[0].partition_responses[0];
                if partition.error_code == 0 {
                    let mut stored = BytesMut::from(&asked.bytes[..]);
                    stored[..8].copy_from_slice(&partition.base_offset.to_be_bytes());
                    stored[12..16].copy_from_slice(&0i32.to_be_bytes());
                    self.produced
                        .entry(asked.place)
                        .or_default()
                        .push(stored.freeze());
                } else {
                    let exists = self
                        .partitions
                        .get(&asked.place.0)
                        .is_some_and(|n| asked.place.1 < *n);
                    assert!(!exists, "a good batch was refused: {partition:?}");
                }
            }
            Answer::Fetched(reply) => {
                let partition = &reply.responses[0].partitions[0];
                if partition.error_code == 0 {
                    let got = partition.records.clone().unwrap_or_default();
                    let all: Vec<u8> = self
                        .produced
                        .get(&asked.place)
                        .into_iter()
                        .flatten()
                        .flatten()
                        .copied()
                        .collect();
                    assert_eq!(got, all, "what comes back is not what was produced");
                }
            }
            Answer::Topics(reply) => {
                for topic in reply.topics.iter().filter(|topic| topic.error_code == 0) {
                    self.topic_ids.insert(asked.place.0, topic.topic_id);
                    self.partitions.insert(asked.place.0, asked.place.1);
                }
            }
            Answer::Deleted(reply) => {
                if reply.responses.iter().any(|topic| topic.error_code == 0) {
                    let topic = asked.place.0;
                    self.topic_ids.remove(&topic);
                    self.partitions.remove(&topic);
                    self.committed.retain(|(_, of, _), _| *of != topic);
                    self.produced.retain(|(of, _), _| *of != topic);
                }
            }
            Answer::GroupsDeleted(reply) => {
                if reply.results.iter().any(|group| group.error_code == 0) {
                    self.committed.retain(|(of, ..), _| *of != asked.group);
                    self.groups[asked.group] = Group::default();
                }
            }
            Answer::Metadata(reply) => {
                for (topic, id) in &self.topic_ids {
                    let listed = reply
                        .topics
                        .iter()
                        .find(|listed| listed.name == Some(topic_name(*topic)));
                    let Some(listed) = listed else { continue };
                    assert_eq!(listed.error_code, 0);
                    assert_eq!(listed.partitions.len() as i32, self.partitions[topic]);
                    assert!(listed.topic_id.is_nil() || listed.topic_id == *id);
                }
            }
            Answer::Sync(_) | Answer::Other => {}
        }
    }

    fn compare_offsets(&self, asked: &Asked, reply: &OffsetFetchResponse) {
        let old = reply.topics.iter().flat_map(|topic| {
            topic.partitions.iter().map(|p| {
                (
                    topic.name.clone(),
                    p.partition_index,
                    p.committed_offset,
                    p.error_code,
                )
            })
        });
        let new = reply
            .groups
            .iter()
            .flat_map(|group| &group.topics)
            .flat_map(|topic| {
                topic.partitions.iter().map(|p| {
                    (
                        topic.name.clone(),
                        p.partition_index,
                        p.committed_offset,
                        p.error_code,
                    )
                })
            });
        for (name, partition, offset, error) in old.chain(new) {
            if error != 0 {
                continue;
            }
            let topic = TOPICS
                .iter()
                .position(|known| **known == **name)
                .expect("it was asked for");
            let known = self
                .committed
                .get(&(asked.group, topic, partition))
                .copied();
            assert_eq!(
                offset,
                known.unwrap_or(-1),
                "{}: {}-{partition}",
                GROUPS[asked.group],
                &**name
            );
        }
    }

    async fn create(&mut self, topic: usize, partitions: i32) {
        let creatable = CreatableTopic::default()
            .with_name(topic_name(topic))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default().with_topics(vec![creatable]);
        let note = Note {
            place: (topic, partitions),
            ..Note::default()
        };
        self.ask(&request, 7, Answer::Topics, note).await;
    }

    fn member(&self, u: &mut Unstructured<'_>, group: usize) -> Result<String> {
        let n: u8 = u.arbitrary()?;
        let ids = &self.groups[group].ids;
        Ok(match n {
            0xf8.. => "stranger".to_owned(),
            0xf0.. => String::new(),
            _ if ids.is_empty() => String::new(),
            _ => ids[usize::from(n) % ids.len()].clone(),
        })
    }

    fn generation(&self, u: &mut Unstructured<'_>, group: usize, member: &str) -> Result<i32> {
        let n: u8 = u.arbitrary()?;
        let own = self.groups[group]
            .generations
            .get(member)
            .copied()
            .unwrap_or(-1);
        Ok(match n {
            0..0xd0 => own,
            0xd0..0xe0 => -1,
            _ => own.saturating_add(i32::from(n & 3) - 1),
        })
    }

    fn instance(u: &mut Unstructured<'_>) -> Result<Option<StrBytes>> {
        let n: u8 = u.arbitrary()?;
        Ok((n >= 0xc0).then(|| text(["i0", "i1"][usize::from(n & 1)])))
    }

    async fn join(&mut self, u: &mut Unstructured<'_>, on: usize, group: usize) -> Result<()> {
        let member = self.member(u, group)?;
        let instance = Self::instance(u)?;
        let version = version_of::<JoinGroupRequest>(u, if instance.is_some() { 5 } else { 0 })?;
        let subscription = Subscription {
            version: 1,
            topics: vec!["t0".into(), "t1".into()],
            user_data: None,
            owned: Vec::new(),
            generation: -1,
            rack_id: None,
        };
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(text("range"))
            .with_metadata(subscription.to_bytes());
        let mut request = JoinGroupRequest::default()
            .with_group_id(GroupId(text(GROUPS[group])))
            .with_session_timeout_ms(10_000)
            .with_member_id(text(&member))
            .with_group_instance_id(instance)
            .with_protocol_type(text("consumer"))
            .with_protocols(vec![protocol]);
        if version >= 1 {
            request = request.with_rebalance_timeout_ms(20_000);
        }
        self.groups[group].join_count += 1;
        let note = Note {
            group,
            member,
            parkable: true,
            ..Note::default()
        };
        self.send(on, &request, version, Answer::Join, note).await;
        Ok(())
    }

    async fn sync(&mut self, u: &mut Unstructured<'_>, on: usize, group: usize) -> Result<()> {
        let member = self.member(u, group)?;
        let generation = self.generation(u, group, &member)?;
        let version = version_of::<SyncGroupRequest>(u, 0)?;
        let partition: u8 = u.arbitrary()?;
        let mut assignments = Vec::new();
        for id in self.groups[group].ids.clone() {
            let assignment = Assignment {
                version: 0,
                partitions: vec![("t0".into(), vec![i32::from(partition) % 3])],
                user_data: Some(Bytes::from(id.clone())),
            };
            let bytes = assignment.to_bytes();
            let sent = self.groups[group]
                .sent
                .entry((generation, id.clone()))
                .or_default();
            sent.insert(bytes.clone());
            assignments.push(
                SyncGroupRequestAssignment::default()
                    .with_member_id(text(&id))
                    .with_assignment(bytes),
            );
        }
        let mut request = SyncGroupRequest::default()
            .with_group_id(GroupId(text(GROUPS[group])))
            .with_generation_id(generation)
            .with_member_id(text(&member))
            .with_assignments(assignments);
        if version >= 5 {
            request = request
                .with_protocol_type(Some(text("consumer")))
                .with_protocol_name(Some(text("range")));
        }
        let note = Note {
            group,
            member,
            offset: generation.into(),
            parkable: true,
            ..Note::default()
        };
        self.send(on, &request, version, Answer::Sync, note).await;
        Ok(())
    }

    async fn heartbeat(&mut self, u: &mut Unstructured<'_>, on: usize, group: usize) -> Result<()> {
        let member = self.member(u, group)?;
        let request = HeartbeatRequest::default()
            .with_group_id(GroupId(text(GROUPS[group])))
            .with_generation_id(self.generation(u, group, &member)?)
            .with_member_id(text(&member));
        let version = version_of::<HeartbeatRequest>(u, 0)?;
        // may stand in line behind what is parked
        self.send(on, &request, version, |_| Answer::Other, Note::default())
            .await;
        Ok(())
    }

    async fn leave(&mut self, u: &mut Unstructured<'_>, group: usize) -> Result<()> {
        let member = text(&self.member(u, group)?);
        let version = version_of::<LeaveGroupRequest>(u, 0)?;
        let request = LeaveGroupRequest::default().with_group_id(GroupId(text(GROUPS[group])));
        let request = match version {
            0..3 => request.with_member_id(member),
            _ => request.with_members(vec![MemberIdentity::default().with_member_id(member)]),
        };
        self.ask(&request, version, |_| Answer::Other, Note::default())
            .await;
        Ok(())
    }

    async fn commit(
        &mut self,
        u: &mut Unstructured<'_>,
        group: usize,
        place: (usize, i32),
    ) -> Result<()> {
        let member = self.member(u, group)?;
        let generation = self.generation(u, group, &member)?;
        let offset = i64::from(u.arbitrary::<u8>()?);
        let version = version_of::<OffsetCommitRequest>(u, 0)?;
        let partition = OffsetCommitRequestPartition::default()
            .with_partition_index(place.1)
            .with_committed_offset(offset)
            .with_committed_metadata(Some(text("note")));
        let topic = OffsetCommitRequestTopic::default().with_partitions(vec![partition]);
        let topic = match version {
            10.. => topic.with_topic_id(self.topic_ids.get(&place.0).copied().unwrap_or_default()),
            _ => topic.with_name(topic_name(place.0)),
        };
        let mut request = OffsetCommitRequest::default()
            .with_group_id(GroupId(text(GROUPS[group])))
            .with_generation_id_or_member_epoch(generation)
            .with_member_id(text(&member))
            .with_topics(vec![topic]);
        if (2..=4).contains(&version) {
            request = request.with_retention_time_ms(-1);
        }
        let note = Note {
            group,
            member,
            place,
            offset,
            ..Note::default()
        };
        self.ask(&request, version, Answer::Commit, note).await;
        Ok(())
    }

    async fn offsets(
        &mut self,
        u: &mut Unstructured<'_>,
        group: usize,
        place: (usize, i32),
    ) -> Result<()> {
        let version = version_of::<OffsetFetchRequest>(u, 1)?.min(9);
        let group_id = GroupId(text(GROUPS[group]));
        let topic = OffsetFetchRequestTopic::default()
            .with_name(topic_name(place.0))
            .with_partition_indexes(vec![place.1]);
        let request = match version {
            0..8 => OffsetFetchRequest::default()
                .with_group_id(group_id)
                .with_topics((version < 2 || place.1 < 2).then(|| vec![topic])),
            _ => {
                let all = OffsetFetchRequestGroup::default()
                    .with_group_id(group_id)
                    .with_topics(None);
                OffsetFetchRequest::default().with_groups(vec![all])
            }
        };
        let note = Note {
            group,
            place,
            ..Note::default()
        };
        self.ask(&request, version, Answer::Offsets, note).await;
        Ok(())
    }

    async fn modern(&mut self, u: &mut Unstructured<'_>, group: usize) -> Result<()> {
        let who: u8 = u.arbitrary()?;
        let member = match who {
            0xe0.. => self.member(u, group)?,
            _ => format!("n{}", who & 3),
        };
        let known = self.groups[group].generations.get(&member).copied();
        let epoch: u8 = u.arbitrary()?;
        let epoch = match epoch {
            0..0xc0 => known.unwrap_or(0).max(0),
            0xc0..0xd0 => 0,
            0xd0..0xe0 => -1,
            _ => known.unwrap_or(0) + i32::from(epoch & 3) - 1,
        };
        let joins = epoch == 0;
        let names = TOPICS.iter().map(|topic| TopicName(text(topic))).collect();
        let told = self.groups[group].told.get(&member).cloned();
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(text(GROUPS[group])))
            .with_member_id(text(&member))
            .with_member_epoch(epoch)
            .with_rebalance_timeout_ms(if joins { 10_000 } else { -1 })
            .with_subscribed_topic_names(joins.then_some(names))
            .with_topic_partitions(if joins { Some(Vec::new()) } else { told });
        let version = version_of::<ConsumerGroupHeartbeatRequest>(u, 0)?;
        let note = Note {
            group,
            member,
            ..Note::default()
        };
        self.ask(&request, version, Answer::Modern, note).await;
        Ok(())
    }

    async fn look(
        &mut self,
        u: &mut Unstructured<'_>,
        group: usize,
        place: (usize, i32),
    ) -> Result<()> {
        let id = GroupId(text(GROUPS[group]));
        let note = Note {
            group,
            place,
            ..Note::default()
        };
        let other = Note::default();
        match u.arbitrary::<u8>()? % 10 {
            0 => {
                let request = DescribeGroupsRequest::default().with_groups(vec![id]);
                let version = version_of::<DescribeGroupsRequest>(u, 0)?;
                self.ask(&request, version, |_| Answer::Other, other).await;
            }
            1 => {
                let version = version_of::<ListGroupsRequest>(u, 0)?;
                self.ask(
                    &ListGroupsRequest::default(),
                    version,
                    |_| Answer::Other,
                    other,
                )
                .await;
            }
            2 => {
                let request = DeleteGroupsRequest::default().with_groups_names(vec![id]);
                let version = version_of::<DeleteGroupsRequest>(u, 0)?;
                self.ask(&request, version, Answer::GroupsDeleted, note)
                    .await;
            }
            3 => {
                let request = ConsumerGroupDescribeRequest::default().with_group_ids(vec![id]);
                let version = version_of::<ConsumerGroupDescribeRequest>(u, 0)?;
                self.ask(&request, version, |_| Answer::Other, other).await;
            }
            4 => {
                let version = version_of::<MetadataRequest>(u, 1)?;
                let request = MetadataRequest::default().with_topics(None);
                self.ask(&request, version, Answer::Metadata, other).await;
            }
            5 => {
                let version = version_of::<ApiVersionsRequest>(u, 0)?.min(4);
                let request = match version {
                    0..3 => ApiVersionsRequest::default(),
                    _ => ApiVersionsRequest::default()
                        .with_client_software_name(text("fuzz"))
                        .with_client_software_version(text("1")),
                };
                self.ask(&request, version, |_| Answer::Other, other).await;
            }
            6 => {
                let version = version_of::<FindCoordinatorRequest>(u, 0)?;
                let request = match version {
                    0..4 => FindCoordinatorRequest::default().with_key(text(GROUPS[group])),
                    _ => FindCoordinatorRequest::default()
                        .with_coordinator_keys(vec![text(GROUPS[group])]),
                };
                self.ask(&request, version, |_| Answer::Other, other).await;
            }
            7 => {
                let partition = ListOffsetsPartition::default()
                    .with_partition_index(place.1)
                    .with_current_leader_epoch(-1)
                    .with_timestamp(-1);
                let topic = ListOffsetsTopic::default()
                    .with_name(topic_name(place.0))
                    .with_partitions(vec![partition]);
                let version = version_of::<ListOffsetsRequest>(u, 1)?;
                let request = ListOffsetsRequest::default().with_topics(vec![topic]);
                self.ask(&request, version, |_| Answer::Other, other).await;
            }
            8 => {
                let version = version_of::<DescribeClusterRequest>(u, 0)?;
                self.ask(
                    &DescribeClusterRequest::default(),
                    version,
                    |_| Answer::Other,
                    other,
                )
                .await;
            }
            _ => {
                let version = version_of::<InitProducerIdRequest>(u, 0)?;
                let request = InitProducerIdRequest::default().with_transactional_id(None);
                self.ask(&request, version, |_| Answer::Other, other).await;
            }
        }
        Ok(())
    }

    async fn produce(&mut self, u: &mut Unstructured<'_>, place: (usize, i32)) -> Result<()> {
        let value: u8 = u.arbitrary()?;
        let now_ms = START_MS + i64::from(value);
        let shape = Shape {
            timestamps: &[now_ms, now_ms][..1 + usize::from(value & 1)],
            producer: (-1, -1, -1),
            value_bytes: usize::from(value),
        };
        let bytes = Bytes::from(shape.bytes());
        let partition = PartitionProduceData::default()
            .with_index(place.1)
            .with_records(Some(bytes.clone()));
        let version = version_of::<ProduceRequest>(u, 3)?;
        let topic = TopicProduceData::default().with_partition_data(vec![partition]);
        let topic = match version {
            13.. => topic.with_topic_id(self.topic_ids.get(&place.0).copied().unwrap_or_default()),
            _ => topic.with_name(topic_name(place.0)),
        };
        let request = ProduceRequest::default()
            .with_acks(-1)
            .with_timeout_ms(1_000)
            .with_topic_data(vec![topic]);
        let note = Note {
            place,
            bytes,
            ..Note::default()
        };
        self.ask(&request, version, Answer::Produced, note).await;
        Ok(())
    }

    async fn fetch(&mut self, u: &mut Unstructured<'_>, place: (usize, i32)) -> Result<()> {
        let version = version_of::<FetchRequest>(u, 4)?;
        let partition = FetchPartition::default()
            .with_partition(place.1)
            .with_partition_max_bytes(1 << 20);
        let topic = FetchTopic::default().with_partitions(vec![partition]);
        let topic = match version {
            13.. => topic.with_topic_id(self.topic_ids.get(&place.0).copied().unwrap_or_default()),
            _ => topic.with_topic(topic_name(place.0)),
        };
        let request = FetchRequest::default()
            .with_max_bytes(1 << 20)
            .with_topics(vec![topic]);
        let note = Note {
            place,
            ..Note::default()
        };
        self.ask(&request, version, Answer::Fetched, note).await;
        Ok(())
    }

    async fn change_topics(&mut self, u: &mut Unstructured<'_>, topic: usize) -> Result<()> {
        let n: u8 = u.arbitrary()?;
        match (self.partitions.get(&topic).copied(), n & 1) {
            (None, _) => self.create(topic, i32::from(n >> 1 & 3) + 1).await,
            (Some(_), 0) => {
                let name = DeleteTopicState::default().with_name(Some(topic_name(topic)));
                let request = DeleteTopicsRequest::default().with_topics(vec![name]);
                let note = Note {
                    place: (topic, 0),
                    ..Note::default()
                };
                self.ask(&request, 6, Answer::Deleted, note).await;
            }
            (Some(count), _) if count < 6 => {
                let grown = CreatePartitionsTopic::default()
                    .with_name(topic_name(topic))
                    .with_count(count + 1)
                    .with_assignments(None);
                let request = CreatePartitionsRequest::default().with_topics(vec![grown]);
                self.ask(&request, 3, |_| Answer::Other, Note::default())
                    .await;
                self.partitions.insert(topic, count + 1);
            }
            _ => {}
        }
        Ok(())
    }

    /// Bytes of any kind on a connection of their own.
    async fn rubbish(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let row: u8 = u.arbitrary()?;
        let length = usize::from(u.arbitrary::<u8>()?).min(u.len());
        let body = u.bytes(length)?;
        let api = &APIS[usize::from(row) % APIS.len()];
        // what is legal may change the world behind the model's back
        const LOOKS: [i16; 14] = [1, 2, 3, 9, 10, 15, 16, 18, 23, 29, 32, 35, 60, 75];
        let key = if LOOKS.contains(&api.key) {
            api.key
        } else {
            18
        };
        let api = by_key(key).expect("it is served");
        let mut frame = BytesMut::new();
        frame.put_i32(0);
        frame.put_i16(key);
        frame.put_i16(api.min + i16::from(row) % (api.max - api.min + 1));
        frame.put_slice(body);
        let length = frame.len() as i32 - 4;
        frame[..4].copy_from_slice(&length.to_be_bytes());
        let mut connection = self.connect().await;
        let _ = connection.stream.write_all(&frame).await;
        self.settle().await;
        Ok(())
    }

    async fn pass(&mut self, ms: u64) {
        let mut left = ms;
        while left > 0 {
            let step = left.min(1_000);
            tokio::time::advance(Duration::from_millis(step)).await;
            self.settle().await;
            left -= step;
        }
        self.passed_ms += ms;
        // groups may have gone and begun anew
        if self.passed_ms > 500_000 {
            self.groups[0].leaders.clear();
        }
    }

    async fn operation(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let n: u8 = u.arbitrary()?;
        let where_to: u8 = u.arbitrary()?;
        let on = usize::from(where_to & 3) % CONNECTIONS;
        let group = usize::from(where_to >> 2 & 3) % GROUPS.len();
        let classic = if group == 1 { 0 } else { group };
        let modern = if group == 0 { 1 } else { group };
        let place = (usize::from(where_to >> 4 & 1), i32::from(where_to >> 5));
        match n % 18 {
            0..=2 => self.join(u, on, classic).await,
            3 | 4 => self.sync(u, on, classic).await,
            5 => self.heartbeat(u, on, classic).await,
            6 => self.leave(u, classic).await,
            7 => self.commit(u, group, place).await,
            8 => self.offsets(u, group, place).await,
            9 | 10 => self.modern(u, modern).await,
            11 => self.look(u, group, place).await,
            12 => self.produce(u, place).await,
            13 => self.fetch(u, place).await,
            14 => self.change_topics(u, place.0).await,
            15 => {
                self.pass([10, 1_000, 5_000, 25_000][usize::from(where_to & 3)])
                    .await;
                Ok(())
            }
            16 => {
                let fresh = self.connect().await;
                self.connections[on] = fresh;
                self.settle().await;
                Ok(())
            }
            _ => self.rubbish(u).await,
        }
    }

    /// Nobody waits for ever.
    async fn end(&mut self) {
        for _ in 0..40 {
            if self.connections.iter().all(|one| one.waiting.is_empty()) {
                return;
            }
            tokio::time::advance(Duration::from_secs(10)).await;
            self.settle().await;
        }
        for connection in &self.connections {
            let Some(first) = connection.waiting.front() else {
                continue;
            };
            let later =
                |(group, id): &(usize, i32)| *group == first.group && *id > first.correlation_id;
            assert!(
                first.parkable && self.parked.iter().any(later),
                "request {} of {:?} is never answered",
                first.correlation_id,
                first.member
            );
        }
    }
}

async fn play(data: &[u8]) {
    // as long as this waits, the clock moves by hand only
    let (release, held) = std::sync::mpsc::channel::<()>();
    let brake = tokio::task::spawn_blocking(move || held.recv().is_err());
    let server = Server::builder()
        .memory()
        .with(|config| {
            config.offsets_topic_num_partitions = 2;
            config.group_min_session_timeout_ms = 10;
        })
        .start()
        .await
        .expect("a server in memory starts");
    server.ready().await;
    let mut hall = Hall::new(server.bootstrap()).await;
    let mut u = Unstructured::new(data);
    for _ in 0..OPERATIONS_MAX {
        if u.is_empty() || hall.operation(&mut u).await.is_err() {
            break;
        }
    }
    hall.end().await;
    tokio::select! {
        biased;
        why = server.failed() => panic!("the server cannot go on: {why}"),
        () = std::future::ready(()) => {}
    }
    drop(hall);
    drop(release);
    assert!(brake.await.is_ok_and(|let_go| let_go));
    server.stop().await.expect("it stops in good order");
}

/// One input.
///
/// # Panics
/// That is how the target fails.
pub fn run(data: &[u8]) {
    clockwork::run(play(data));
}
