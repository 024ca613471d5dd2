//! Frames of any bytes, one after another over virtual time, to the decoder and on to a coordinator.
//!
//! Holds: nothing panics; every answer can be written in the version that was asked; what the log keeps is what it
//! gives back; a coordinator that is made from its records knows the same facts as the one that lived.
//!
//! Input: for each frame a byte that moves the clock, two bytes of length, the frame. A member id of one character
//! stands for an id that the coordinator made, so that flows of several steps can be found.
#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use convoke::group::request::{self, Request, RequestId};
use convoke::group::types::{MemberId, Millis, Topic, TopicId, Topics};
use convoke::group::{Actions, Coordinator, GroupConfig};
use convoke::wire::records::{decode_batch, encode_batch};
use convoke::wire::{self, Call, Header, Peer, Reply};
use libfuzzer_sys::fuzz_target;

const START: Millis = Millis(1_700_000_000_000);

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

    fn frame(&mut self, bytes: &[u8]) {
        let Ok((header, call)) = wire::decode(Bytes::copy_from_slice(bytes), &mut self.peer) else {
            return;
        };
        match call {
            Call::ApiVersions(hello) => {
                let answer = hello.answer("fuzz", 1);
                wire::encode(&header, &Reply::ApiVersions(answer)).expect("an answer can be written");
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
            Request::Leave(r) => r.members.iter_mut().for_each(|m| self.named(&mut m.member_id)),
            _ => {}
        }
        self.count += 1;
        self.asked.insert(self.count, header.clone());
        let mut actions = Actions::default();
        self.live.handle(self.now, RequestId(self.count), request, &mut actions);
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
            let header = self.asked.remove(&answer.id.0).expect("one answer for each request");
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
        wire::encode(header, &reply).expect("an answer can be written in the version that was asked");
    }
}

fuzz_target!(|data: &[u8]| {
    let mut world = World::new();
    let mut rest = data;
    while let [step, high, low, tail @ ..] = rest {
        world.pass([0, 0, 1, 40, 3_000, 10_000, 60_000, 700_000][usize::from(step & 7)]);
        let length = usize::from(u16::from_be_bytes([*high, *low])).min(tail.len());
        let (frame, next) = tail.split_at(length);
        world.frame(frame);
        rest = next;
    }
    assert!(world.live.same_facts(&world.replayed), "live and replayed facts differ");
    let mut snapshot = coordinator();
    for record in world.live.snapshot() {
        snapshot.apply(&record);
    }
    assert!(world.live.same_facts(&snapshot), "a snapshot leaves something out");
});
