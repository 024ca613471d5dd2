//! The order of effects, by hand. What chance finds in it, the simulation finds.

use super::*;
use crate::group::GroupConfig;
use crate::group::request::{CommitPartition, CommitTopic, List, OffsetCommit};
use crate::group::types::{Client, Topic, TopicId, TopicRef};

/// A log that counts, and a letterbox.
#[derive(Default)]
struct Room {
    appended: u64,
    durable: u64,
    refuses: bool,
    away: bool,
    sent: Vec<(&'static str, bool)>,
}

impl Shell for Room {
    type To = &'static str;
    type Position = u64;
    type Error = ();

    fn now(&self) -> Millis {
        Millis(1_000)
    }
    fn raise_clock(&mut self, _: Millis) {}
    fn reserve(&mut self, _: u64) -> bool {
        true
    }
    fn append(&mut self, _: &[Record], _: Millis) -> Result<(u64, u64), ()> {
        if self.refuses {
            return Err(());
        }
        self.appended += 1;
        Ok((self.appended, 1))
    }
    fn durable(&self) -> Option<u64> {
        Some(self.durable).filter(|_| !self.away)
    }
    fn wants_snapshot(&self) -> bool {
        false
    }
    fn snapshot(&mut self, _: Vec<Record>, _: Millis) {}
    fn send(&mut self, to: &'static str, reply: Reply) {
        let good = match &reply {
            Reply::OffsetCommit(reply) => reply.topics[0].partitions[0].1 == ErrorCode::None,
            Reply::List(reply) => reply.error == ErrorCode::None,
            _ => false,
        };
        self.sent.push((to, good));
    }
    fn supersede(&mut self, _: &'static str) {}
}

struct World {
    desk: Desk<&'static str, u64>,
    room: Room,
}

impl World {
    fn new() -> Self {
        let mut topics = Topics::default();
        let id = TopicId([1; 16]);
        topics.insert("t".into(), Topic { id, partitions: 1 });
        let options = Options {
            patience_ms: 500,
            room_bytes: 64,
        };
        let mut this = Self {
            desk: Desk::new(options, Arc::new(topics)),
            room: Room::default(),
        };
        this.load();
        this
    }

    fn load(&mut self) {
        let topics = self.desk.known_topics().clone();
        let coordinator = Coordinator::new(GroupConfig::default(), topics, 1);
        self.room.away = false;
        self.desk.loaded(&mut self.room, Box::new(coordinator));
        self.desk.finish(&mut self.room, Millis(1_000)).unwrap();
    }

    fn ask(&mut self, to: &'static str, request: Request) {
        self.desk.ask(&mut self.room, Millis(1_000), request, to, 0);
    }

    fn finish(&mut self) -> Result<(), ()> {
        self.desk.finish(&mut self.room, Millis(1_000))
    }

    fn sent(&mut self) -> Vec<(&'static str, bool)> {
        std::mem::take(&mut self.room.sent)
    }
}

fn commit(group_id: &str) -> Request {
    let partition = CommitPartition {
        index: 0,
        offset: 1,
        leader_epoch: -1,
        metadata: "".into(),
    };
    Request::OffsetCommit(OffsetCommit {
        group_id: group_id.into(),
        client: Client::default(),
        member_id: "".into(),
        generation_or_epoch: -1,
        group_instance_id: None,
        retention_time_ms: None,
        consumer_errors: true,
        topics: vec![CommitTopic {
            topic: TopicRef::Name("t".into()),
            partitions: vec![partition],
        }],
    })
}

fn list() -> Request {
    Request::List(List::default())
}

#[test]
fn a_reply_waits_for_the_records_of_its_group_and_a_list_for_all() {
    let mut world = World::new();
    world.ask("commit", commit("g"));
    world.ask("list", list());
    world.finish().unwrap();
    assert!(world.sent().is_empty());
    world.room.durable = 1;
    world.desk.confirm(&mut world.room, 1);
    assert_eq!(world.sent(), [("commit", true), ("list", true)]);
}

#[test]
fn what_was_appended_before_the_log_refused_is_confirmed_after_loading() {
    let mut world = World::new();
    world.ask("kept", commit("g"));
    world.finish().unwrap();
    world.room.refuses = true;
    world.ask("refused", commit("h"));
    world.finish().unwrap_err();
    world.desk.trouble(&mut world.room, Trouble::Full);
    world.room.away = true;
    assert_eq!(world.sent(), [("refused", false)]);
    world.ask("early", commit("g"));
    assert_eq!(world.sent(), [("early", false)]);
    (world.room.refuses, world.room.durable) = (false, 1);
    world.load();
    assert_eq!(world.sent(), [("kept", true)]);
}

#[test]
fn after_the_end_of_the_log_nobody_is_told_that_all_is_well() {
    let mut world = World::new();
    world.ask("held", commit("g"));
    world.finish().unwrap();
    world.desk.trouble(&mut world.room, Trouble::Final);
    world.ask("late", list());
    world.desk.confirm(&mut world.room, 1);
    assert_eq!(world.sent(), [("held", false), ("late", false)]);
}

#[test]
fn who_has_waited_too_long_is_told_to_ask_again() {
    let mut world = World::new();
    world.ask("held", commit("g"));
    world.finish().unwrap();
    assert_eq!(world.desk.next_due(), Some(Millis(1_500)));
    world.desk.timeout(&mut world.room, Millis(1_500));
    assert_eq!(world.sent(), [("held", false)]);
}
