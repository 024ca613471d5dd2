//! Frames of any bytes, one after another over virtual time, to the decoder and on to a coordinator.
//!
//! Holds: nothing panics; no frame takes far more memory than it has bytes; every answer can be written in the version
//! that was asked; what the log keeps is what it gives back; a coordinator that is made from its records knows the same
//! facts as the one that lived.
//!
//! Input: for each frame a byte, two bytes of length, the frame. The byte's low bits move the clock; its high bit says
//! that the frame begins with a row of the table of APIs and a version, one byte each, instead of a header, so that
//! every body of every version is a few bytes away. A member id of one character stands for an id that the coordinator
//! made, so that flows of several steps can be found.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use convoke::group::request::{self, Request, RequestId};
use convoke::group::types::{MemberId, Millis, Topic, TopicId, Topics};
use convoke::group::{Actions, Coordinator, GroupConfig};
use convoke::wire::api::APIS;
use convoke::wire::records::{decode_batch, encode_batch};
use convoke::wire::{self, Call, Header, Peer, Reply};

use crate::memory;

const START: Millis = Millis(1_700_000_000_000);
/// Memory that a frame may take while it is decoded: so much for each of its bytes, and so much in any case. The
/// dearest element that we know is an empty struct of kafka-protocol: four bytes of frame, some hundred of memory, twice
/// that while an array grows.
const BYTES_PER_BYTE: usize = 128;
const BYTES_ALWAYS: usize = 4 << 10;

struct World {
    now: Millis,
    live: Coordinator,
    replayed: Coordinator,
    peer: Peer,
    asked: BTreeMap<u64, Header>,
    ids: Vec<MemberId>,
    count: u64,
}

fn coordinator() -> Coordinator {
    let mut topics = Topics::default();
    for (name, partitions) in [("a", 1), ("b", 3)] {
        let id = TopicId([name.as_bytes()[0]; 16]);
        topics.insert(name.into(), Topic { id, partitions });
    }
    let config = GroupConfig {
        initial_rebalance_delay_ms: 0,
        session_timeout_ms: 10..=60_000,
        max_size: 5,
        ..GroupConfig::default()
    };
    Coordinator::new(config, Arc::new(topics), 7)
}

/// The frame that a row of the table, a version and a body stand for.
fn headed(bytes: &[u8]) -> Bytes {
    let [row, version, body @ ..] = bytes else {
        return Bytes::copy_from_slice(bytes);
    };
    let api = &APIS[usize::from(*row) % APIS.len()];
    let version = api.min + i16::from(*version) % (api.max - api.min + 1);
    let mut frame = BytesMut::with_capacity(body.len() + 12);
    frame.put_i16(api.key);
    frame.put_i16(version);
    frame.put_i32(1);
    frame.put_slice(b"\0\x01c");
    if api.is_flexible(version) {
        frame.put_u8(0);
    }
    frame.put_slice(body);
    frame.freeze()
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            now: START,
            live: coordinator(),
            replayed: coordinator(),
            peer: Peer::new("/127.0.0.1"),
            asked: BTreeMap::new(),
            ids: Vec::new(),
            count: 0,
        };
        let mut actions = Actions::default();
        world.live.loaded(START, &mut actions);
        world.settle(actions);
        world
    }

    /// The `n`th id that was given out, for a member id of one character.
    fn named(&self, id: &mut MemberId) {
        if let [n] = id.as_bytes()
            && let Some(known) = self.ids.get(usize::from(*n) % (self.ids.len().max(1)))
        {
            *id = known.clone();
        }
    }

    fn frame(&mut self, frame: Bytes) {
        let allowance_bytes = BYTES_ALWAYS + frame.len() * BYTES_PER_BYTE;
        let watch = memory::watch();
        let decoded = wire::decode(frame, &mut self.peer);
        watch.check("decoding a frame", allowance_bytes);
        let Ok((header, call)) = decoded else {
            return;
        };
        match call {
            Call::ApiVersions(hello) => {
                let answer = hello.answer("fuzz", 1);
                wire::encode(&header, &Reply::ApiVersions(answer))
                    .expect("an answer can be written");
            }
            Call::Group(request) => self.ask(&header, request),
            Call::OffsetFetch(groups) => {
                for fetch in groups.into_iter().take(4) {
                    self.ask(&header, Request::OffsetFetch(fetch));
                }
            }
            Call::DescribeGroups { groups, .. } => {
                for describe in groups.into_iter().take(4) {
                    self.ask(&header, Request::Describe(describe));
                }
            }
            Call::DeleteGroups(groups) => {
                for group_id in groups.into_iter().take(4) {
                    self.ask(&header, Request::Delete { group_id });
                }
            }
            Call::ConsumerGroupDescribe { group_ids, .. } => {
                for group_id in group_ids.into_iter().take(4) {
                    self.ask(&header, Request::ConsumerDescribe { group_id });
                }
            }
            Call::FindCoordinator(_) | Call::Data(_) => {}
        }
    }

    fn ask(&mut self, header: &Header, mut request: Request) {
        match &mut request {
            Request::Join(r) => self.named(&mut r.member_id),
            Request::Sync(r) => self.named(&mut r.member_id),
            Request::Heartbeat(r) => self.named(&mut r.member_id),
            Request::OffsetCommit(r) => self.named(&mut r.member_id),
            Request::Leave(r) => r
                .members
                .iter_mut()
                .for_each(|m| self.named(&mut m.member_id)),
            _ => {}
        }
        self.count += 1;
        self.asked.insert(self.count, header.clone());
        let mut actions = Actions::default();
        self.live
            .handle(self.now, RequestId(self.count), request, &mut actions);
        self.settle(actions);
    }

    fn pass(&mut self, ms: i64) {
        self.now = self.now.plus(ms);
        let mut actions = Actions::default();
        self.live.handle_timeout(self.now, &mut actions);
        self.settle(actions);
        if let Some(next) = self.live.poll_timeout() {
            assert!(next > self.now, "a timer that is due was left behind");
        }
    }

    fn settle(&mut self, actions: Actions) {
        for record in &actions.records {
            self.replayed.apply(record);
        }
        // names longer than a record can hold are refused as a whole
        if let Ok(bytes) = encode_batch(&actions.records, 0, self.now) {
            let read = decode_batch(&bytes).expect("what was written can be read");
            assert_eq!(read.records, actions.records);
        }
        for id in actions.superseded {
            self.asked.remove(&id.0);
        }
        for answer in actions.replies {
            let header = self
                .asked
                .remove(&answer.id.0)
                .expect("one answer for each request");
            self.answered(&header, answer.reply);
        }
    }

    fn answered(&mut self, header: &Header, reply: request::Reply) {
        use request::Reply as Core;
        if let Core::Join(join) = &reply
            && !self.ids.contains(&join.member_id)
        {
            self.ids.push(join.member_id.clone());
        }
        let reply = match reply {
            Core::OffsetFetch(one) => Reply::OffsetFetch(vec![one]),
            Core::Describe(one) => Reply::DescribeGroups {
                groups: vec![one],
                authorized_operations: None,
            },
            Core::Delete { group_id, error } => Reply::DeleteGroups(vec![(group_id, error)]),
            Core::ConsumerDescribe(one) => Reply::ConsumerGroupDescribe {
                groups: vec![one],
                authorized_operations: None,
            },
            other => Reply::Group(other),
        };
        wire::encode(header, &reply)
            .expect("an answer can be written in the version that was asked");
    }
}

/// One input.
///
/// # Panics
/// That is how the target fails.
pub fn run(data: &[u8]) {
    let mut world = World::new();
    let mut rest = data;
    while let [step, high, low, tail @ ..] = rest {
        world.pass([0, 0, 1, 40, 3_000, 10_000, 60_000, 700_000][usize::from(step & 7)]);
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (frame, next) = tail.split_at(length);
        world.frame(match step & 0x80 {
            0 => Bytes::copy_from_slice(frame),
            _ => headed(frame),
        });
        rest = next;
    }
    assert!(
        world.live.same_facts(&world.replayed),
        "live and replayed facts differ"
    );
    let mut snapshot = coordinator();
    for record in world.live.snapshot() {
        snapshot.apply(&record);
    }
    assert!(
        world.live.same_facts(&snapshot),
        "a snapshot leaves something out"
    );
}
