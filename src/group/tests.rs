//! The core as a dialogue: whole stories over virtual time. Every record also goes through a second coordinator, and
//! both must know the same facts after each step.

use std::sync::Arc;

use bytes::Bytes;

use super::request::*;
use super::types::*;
use super::*;

mod memory;

struct World {
    live: Coordinator,
    replayed: Coordinator,
    now: Millis,
    next: u64,
    replies: Vec<(u64, Reply)>,
    records: usize,
}

impl World {
    fn new(config: GroupConfig) -> Self {
        let mut topics = Topics::default();
        topics.insert(
            "t".into(),
            Topic {
                id: TopicId([1; 16]),
                partitions: 3,
            },
        );
        topics.insert(
            "u".into(),
            Topic {
                id: TopicId([2; 16]),
                partitions: 1,
            },
        );
        let topics = Arc::new(topics);
        let mut live = Coordinator::new(config.clone(), topics.clone(), 1);
        let mut actions = Actions::default();
        live.loaded(Millis(1_000_000), &mut actions);
        let apart = GroupConfig {
            memory: Arc::default(),
            caps: Arc::default(),
            ..config
        };
        Self {
            live,
            replayed: Coordinator::new(apart, topics, 1),
            now: Millis(1_000_000),
            next: 0,
            replies: Vec::new(),
            records: 0,
        }
    }

    fn take(&mut self, actions: Actions) {
        self.records += actions.records.len();
        for record in &actions.records {
            self.replayed.apply(record);
        }
        assert!(
            self.live.same_facts(&self.replayed),
            "live and replayed facts differ"
        );
        assert_eq!(self.live.state.bytes(), self.replayed.state.bytes());
        self.replies.extend(
            actions
                .replies
                .into_iter()
                .map(|answer| (answer.id.0, answer.reply)),
        );
    }

    fn send(&mut self, request: Request) -> u64 {
        self.next += 1;
        let mut actions = Actions::default();
        self.live
            .handle(self.now, RequestId(self.next), request, &mut actions);
        self.take(actions);
        self.next
    }

    fn answer(&mut self, id: u64) -> Option<Reply> {
        let place = self.replies.iter().position(|(asked, _)| *asked == id)?;
        Some(self.replies.remove(place).1)
    }

    fn ask(&mut self, request: Request) -> Reply {
        let id = self.send(request);
        self.answer(id).expect("answered at once")
    }

    fn advance(&mut self, ms: i64) {
        let end = self.now.plus(ms);
        while let Some(due) = self.live.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let mut actions = Actions::default();
            self.live.handle_timeout(self.now, &mut actions);
            self.take(actions);
        }
        self.now = end;
    }

    fn restart(&mut self) {
        let mut again = Coordinator::new(self.live.config.clone(), self.live.topics.clone(), 2);
        for record in self.live.snapshot() {
            again.apply(&record);
        }
        assert!(again.same_facts(&self.live), "a snapshot tells everything");
        let mut actions = Actions::default();
        again.loaded(self.now, &mut actions);
        self.live = again;
        self.take(actions);
    }
}

fn no_delay() -> GroupConfig {
    GroupConfig {
        initial_rebalance_delay_ms: 0,
        ..GroupConfig::default()
    }
}

fn join(member_id: &str) -> Join {
    Join {
        group_id: "g".into(),
        client: Client {
            id: "c".into(),
            host: "/127.0.0.1".into(),
        },
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 30_000,
        member_id: member_id.into(),
        group_instance_id: None,
        protocol_type: "consumer".into(),
        protocols: vec![Protocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"m"),
        }],
        reason: None,
        member_id_required: false,
        skip_assignment: true,
    }
}

fn sync(member_id: &str, generation: i32, assignments: &[(&str, &'static str)]) -> Request {
    Request::Sync(Sync {
        group_id: "g".into(),
        generation,
        member_id: member_id.into(),
        group_instance_id: None,
        protocol_type: None,
        protocol_name: None,
        protocol_required: false,
        assignments: assignments
            .iter()
            .map(|(member_id, bytes)| ((*member_id).into(), Bytes::from_static(bytes.as_bytes())))
            .collect(),
    })
}

fn heartbeat(member_id: &str, generation: i32) -> Request {
    Request::Heartbeat(Heartbeat {
        group_id: "g".into(),
        generation,
        member_id: member_id.into(),
        group_instance_id: None,
    })
}

fn commit(member_id: &str, generation: i32, offset: i64) -> Request {
    Request::OffsetCommit(OffsetCommit {
        group_id: "g".into(),
        client: Client::default(),
        member_id: member_id.into(),
        generation_or_epoch: generation,
        group_instance_id: None,
        retention_time_ms: None,
        consumer_errors: true,
        topics: vec![CommitTopic {
            topic: TopicRef::Name("t".into()),
            partitions: vec![CommitPartition {
                index: 0,
                offset,
                leader_epoch: -1,
                metadata: "".into(),
            }],
        }],
    })
}

fn joined(reply: Reply) -> JoinReply {
    let Reply::Join(reply) = reply else {
        panic!("{reply:?}")
    };
    reply
}

fn commit_error(reply: Reply) -> ErrorCode {
    let Reply::OffsetCommit(reply) = reply else {
        panic!("{reply:?}")
    };
    reply.topics[0].partitions[0].1
}

fn committed(world: &mut World) -> i64 {
    let reply = world.ask(Request::OffsetFetch(OffsetFetch {
        group_id: "g".into(),
        client: Client::default(),
        member_id: None,
        member_epoch: -1,
        topics: Some(vec![FetchTopic {
            topic: TopicRef::Name("t".into()),
            partitions: vec![0],
        }]),
        by_topic_id: false,
        require_stable: true,
    }));
    let Reply::OffsetFetch(reply) = reply else {
        panic!("{reply:?}")
    };
    reply.topics[0].partitions[0].offset
}

/// Two members, a leading, Stable in generation 2.
fn two(world: &mut World) -> (String, String) {
    let a = joined(world.ask(Request::Join(join(""))));
    let b = world.send(Request::Join(join("")));
    assert_eq!(world.answer(b), None, "b waits for a");
    let a = joined(world.ask(Request::Join(join(&a.member_id))));
    let b = joined(world.answer(b).expect("everybody is here"));
    assert_eq!(
        (a.generation, b.generation, &a.leader),
        (2, 2, &a.member_id)
    );
    assert_eq!((a.members.len(), b.members.len()), (2, 0));
    let waits = world.send(sync(&b.member_id, 2, &[]));
    assert_eq!(
        world.answer(waits),
        None,
        "b waits for the leader's assignment"
    );
    world.ask(sync(
        &a.member_id,
        2,
        &[(&a.member_id, "A"), (&b.member_id, "B")],
    ));
    let Some(Reply::Sync(reply)) = world.answer(waits) else {
        panic!("b has its part")
    };
    assert_eq!(&reply.assignment[..], b"B");
    (a.member_id.to_string(), b.member_id.to_string())
}

#[test]
fn a_group_forms_revokes_before_it_assigns_and_empties() {
    let mut world = World::new(no_delay());
    let (a, b) = two(&mut world);
    assert_eq!(
        world.ask(heartbeat(&a, 2)),
        Reply::Heartbeat(ErrorCode::None)
    );
    assert_eq!(
        world.ask(heartbeat(&b, 1)),
        Reply::Heartbeat(ErrorCode::IllegalGeneration)
    );
    let leave = Request::Leave(Leave {
        group_id: "g".into(),
        members: vec![LeavingMember {
            member_id: b.as_str().into(),
            group_instance_id: None,
            reason: None,
        }],
    });
    world.ask(leave);
    assert_eq!(
        world.ask(heartbeat(&a, 2)),
        Reply::Heartbeat(ErrorCode::RebalanceInProgress)
    );
    let again = joined(world.ask(Request::Join(join(&a))));
    assert_eq!(again.generation, 3);
    world.advance(60_000);
    assert_eq!(
        world.live.census().classic,
        [1, 0, 0, 0],
        "a never synced and was let go"
    );
}

#[test]
fn leadership_stays_with_its_member_when_another_leaves() {
    let mut world = World::new(no_delay());
    // Ids begin with the client's name: the leader's is the last in order.
    let of = |client_id: &str, member_id: &str| {
        let mut request = join(member_id);
        request.client.id = client_id.into();
        Request::Join(request)
    };
    let z = joined(world.ask(of("z", ""))).member_id;
    let (a, b) = (world.send(of("a", "")), world.send(of("b", "")));
    assert_eq!(joined(world.ask(of("z", &z))).leader, z);
    let [a, b] = [a, b].map(|id| joined(world.answer(id).expect("all are here")).member_id);
    world.ask(Request::Leave(Leave {
        group_id: "g".into(),
        members: vec![LeavingMember {
            member_id: b,
            group_instance_id: None,
            reason: None,
        }],
    }));
    let again = world.send(of("a", &a));
    assert_eq!(joined(world.ask(of("z", &z))).leader, z);
    assert_eq!(
        joined(world.answer(again).expect("both are here")).leader,
        z
    );
}

#[test]
fn a_protocol_that_a_join_repeats_counts_once() {
    let mut world = World::new(no_delay());
    let mut twice = join("");
    twice.protocols.extend(join("").protocols);
    let reply = joined(world.ask(Request::Join(twice)));
    assert_eq!(reply.protocol_name.as_deref(), Some("range"));
}

#[test]
fn a_refusal_writes_nothing() {
    let mut world = World::new(no_delay());
    let (a, _) = two(&mut world);
    let before = world.records;
    for (request, error) in [
        (commit(&a, 1, 5), ErrorCode::IllegalGeneration),
        (commit("nobody", 2, 5), ErrorCode::UnknownMemberId),
        (commit("", -1, 5), ErrorCode::UnknownMemberId),
    ] {
        assert_eq!(commit_error(world.ask(request)), error);
    }
    assert_eq!((world.records, committed(&mut world)), (before, -1));
}

#[test]
fn members_of_a_synced_generation_survive_a_restart() {
    let mut world = World::new(no_delay());
    let (a, b) = two(&mut world);
    assert_eq!(commit_error(world.ask(commit(&a, 2, 42))), ErrorCode::None);
    world.restart();
    assert_eq!(
        world.ask(heartbeat(&a, 2)),
        Reply::Heartbeat(ErrorCode::None)
    );
    assert_eq!(commit_error(world.ask(commit(&b, 2, 43))), ErrorCode::None);
    assert_eq!(committed(&mut world), 43);
    world.advance(10_001);
    assert_eq!(
        world.live.census().members,
        0,
        "sessions count from the restart"
    );
}

#[test]
fn a_heartbeat_moves_the_session_without_touching_the_timers() {
    let mut world = World::new(no_delay());
    let (a, b) = two(&mut world);
    for _ in 0..10 {
        world.advance(9_000);
        assert_eq!(
            world.ask(heartbeat(&a, 2)),
            Reply::Heartbeat(ErrorCode::None)
        );
        assert_eq!(
            world.ask(heartbeat(&b, 2)),
            Reply::Heartbeat(ErrorCode::None)
        );
    }
    world.advance(5_000);
    world.ask(heartbeat(&b, 2));
    world.advance(6_000);
    assert_eq!(
        world.ask(heartbeat(&a, 2)),
        Reply::Heartbeat(ErrorCode::UnknownMemberId)
    );
    assert_eq!(
        world.ask(heartbeat(&b, 2)),
        Reply::Heartbeat(ErrorCode::RebalanceInProgress)
    );
}

#[test]
fn the_initial_delay_is_extended_while_members_come() {
    let mut world = World::new(GroupConfig::default());
    let first = world.send(Request::Join(join("")));
    world.advance(2_000);
    let second = world.send(Request::Join(join("")));
    world.advance(1_500);
    assert_eq!(
        world.answer(first),
        None,
        "a second one came: the delay runs again"
    );
    world.advance(3_000);
    let (first, second) = (world.answer(first), world.answer(second));
    let (first, second) = (joined(first.expect("over")), joined(second.expect("over")));
    assert_eq!(
        (first.generation, second.generation, first.members.len()),
        (1, 1, 2)
    );
}

#[test]
fn a_static_member_comes_back_without_a_rebalance_and_fences_its_old_self() {
    let mut world = World::new(no_delay());
    let fixed = |member_id: &str| Join {
        group_instance_id: Some("i1".into()),
        ..join(member_id)
    };
    let old = joined(world.ask(Request::Join(fixed("")))).member_id;
    world.ask(sync(&old, 1, &[(&old, "A")]));
    let back = joined(world.ask(Request::Join(fixed(""))));
    assert_eq!(
        (back.generation, back.skip_assignment, &back.leader),
        (1, true, &back.member_id)
    );
    assert_ne!(back.member_id, old);
    world.restart();
    let as_i1 = |member_id: &str| {
        Request::Heartbeat(Heartbeat {
            group_id: "g".into(),
            generation: 1,
            member_id: member_id.into(),
            group_instance_id: Some("i1".into()),
        })
    };
    assert_eq!(
        world.ask(as_i1(&old)),
        Reply::Heartbeat(ErrorCode::FencedInstanceId)
    );
    assert_eq!(
        world.ask(as_i1(&back.member_id)),
        Reply::Heartbeat(ErrorCode::None)
    );
}

#[test]
fn offsets_expire_after_the_group_is_empty_and_never_before() {
    let mut world = World::new(GroupConfig {
        offsets_retention_ms: 3_600_000,
        ..no_delay()
    });
    let a = joined(world.ask(Request::Join(join("")))).member_id;
    world.ask(sync(&a, 1, &[(&a, "A")]));
    assert_eq!(commit_error(world.ask(commit(&a, 1, 7))), ErrorCode::None);
    for _ in 0..1_000 {
        world.advance(9_000);
        world.ask(heartbeat(&a, 1));
    }
    assert_eq!(committed(&mut world), 7, "a quiet member keeps its offsets");
    world.advance(20_000);
    world.advance(3_500_000);
    assert_eq!(committed(&mut world), 7);
    world.advance(1_200_000);
    assert_eq!(committed(&mut world), -1);
    assert_eq!(
        world.live.census(),
        Census::default(),
        "the group is gone with them"
    );
}

#[test]
fn a_deleted_topic_takes_its_offsets_along() {
    let mut world = World::new(no_delay());
    assert_eq!(commit_error(world.ask(commit("", -1, 9))), ErrorCode::None);
    let mut topics = (*world.live.topics).clone();
    topics.remove("t");
    topics.insert(
        "t".into(),
        Topic {
            id: TopicId([3; 16]),
            partitions: 3,
        },
    );
    let change = TopicsChange {
        topics: Arc::new(topics),
        created: vec!["t".into()],
        grown: Vec::new(),
        deleted: vec![("t".into(), TopicId([1; 16]))],
    };
    let mut actions = Actions::default();
    world.live.handle_topics(world.now, change, &mut actions);
    world.take(actions);
    assert_eq!(committed(&mut world), -1);
}

#[test]
fn a_join_sent_again_supersedes_the_parked_one() {
    let mut world = World::new(no_delay());
    let a = joined(world.ask(Request::Join(join("")))).member_id;
    let b = world.send(Request::Join(Join {
        member_id_required: true,
        ..join("")
    }));
    let b = joined(world.answer(b).expect("an id")).member_id;
    let first = world.send(Request::Join(join(&b)));
    let mut actions = Actions::default();
    world.next += 1;
    let second = world.next;
    world.live.handle(
        world.now,
        RequestId(second),
        Request::Join(join(&b)),
        &mut actions,
    );
    assert_eq!(actions.superseded, [RequestId(first)]);
    world.take(actions);
    world.send(Request::Join(join(&a)));
    assert_eq!(
        joined(world.answer(second).expect("answered")).generation,
        2
    );
    assert_eq!(world.answer(first), None);
}

#[test]
fn a_group_whose_last_member_leaves_is_empty_at_once_although_an_id_was_handed_out() {
    let mut world = World::new(no_delay());
    let a = joined(world.ask(Request::Join(join("")))).member_id;
    world.ask(sync(&a, 1, &[(&a, "A")]));
    let b = joined(world.ask(Request::Join(Join {
        member_id_required: true,
        ..join("")
    })));
    assert_eq!(b.error, ErrorCode::MemberIdRequired);
    world.ask(Request::Leave(Leave {
        group_id: "g".into(),
        members: vec![LeavingMember {
            member_id: a,
            group_instance_id: None,
            reason: None,
        }],
    }));
    // No timer has had its turn since: whoever comes next belongs to the generation after the one that nobody is in.
    let c = joined(world.ask(Request::Join(join(""))));
    assert_eq!((c.error, c.generation), (ErrorCode::None, 3));
    let b_joins = world.send(Request::Join(join(&b.member_id)));
    world.ask(Request::Join(join(&c.member_id)));
    let b = joined(world.answer(b_joins).expect("the id is still good"));
    assert_eq!((b.error, b.generation), (ErrorCode::None, 4));
}

#[test]
fn a_group_of_offsets_outlives_its_last_offset_until_the_next_look() {
    let mut world = World::new(no_delay());
    assert_eq!(commit_error(world.ask(commit("", -1, 9))), ErrorCode::None);
    let delete = Request::OffsetDelete(OffsetDelete {
        group_id: "g".into(),
        topics: vec![("t".into(), vec![0])],
    });
    for _ in 0..2 {
        let Reply::OffsetDelete(reply) = world.ask(delete.clone()) else {
            panic!("its reply")
        };
        assert_eq!(reply.error, ErrorCode::None);
    }
    world.advance(600_000);
    assert_eq!(world.live.census(), Census::default());
}

#[test]
fn only_an_offset_that_was_there_counts_as_deleted() {
    let mut world = World::new(no_delay());
    assert_eq!(commit_error(world.ask(commit("", -1, 9))), ErrorCode::None);
    let reply = world.ask(Request::OffsetDelete(OffsetDelete {
        group_id: "g".into(),
        topics: vec![("t".into(), vec![0, 1, 2])],
    }));
    let Reply::OffsetDelete(reply) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(
        reply.topics[0].partitions,
        [0, 1, 2].map(|index| (index, ErrorCode::None)),
    );
    assert_eq!(world.live.stats().offset_deletions, 1);
}

#[test]
fn a_static_member_that_joins_again_while_the_group_gathers_is_kept_by_its_parked_join() {
    let mut world = World::new(no_delay());
    let (a, b) = two(&mut world);
    let with_instance = || {
        Request::Join(Join {
            group_instance_id: Some("i1".into()),
            ..join("")
        })
    };
    let first = world.send(with_instance());
    let again = world.send(with_instance());
    assert_eq!(
        joined(world.answer(first).expect("fenced")).error,
        ErrorCode::FencedInstanceId
    );
    // The others are there and do not rejoin, for longer than its session.
    for _ in 0..5 {
        world.advance(5_000);
        for other in [&a, &b] {
            assert_eq!(
                world.ask(heartbeat(other, 2)),
                Reply::Heartbeat(ErrorCode::RebalanceInProgress)
            );
        }
    }
    assert_eq!(world.answer(again), None, "its join is still parked");
    world.advance(10_000);
    let reply = joined(world.answer(again).expect("the others are out"));
    assert_eq!((reply.error, reply.generation), (ErrorCode::None, 3));
}

#[test]
fn a_group_that_is_not_there_is_not_found_in_words_too() {
    let mut world = World::new(no_delay());
    assert_eq!(commit_error(world.ask(commit("", -1, 9))), ErrorCode::None);
    for (group_id, words) in [
        ("g", "Group g is not a consumer group."),
        ("h", "Group h not found."),
    ] {
        let group_id = group_id.into();
        let Reply::ConsumerDescribe(reply) = world.ask(Request::ConsumerDescribe { group_id })
        else {
            panic!("its reply")
        };
        assert_eq!(reply.error, ErrorCode::GroupIdNotFound);
        assert_eq!(reply.message.as_deref(), Some(words));
    }
}

#[test]
fn a_stamp_that_is_no_time_does_not_move_the_clock() {
    let offset = |commit_timestamp| record::OffsetValue {
        offset: 1,
        leader_epoch: -1,
        metadata: "".into(),
        commit_timestamp,
        expire_timestamp: None,
        topic_id: TopicId::ZERO,
        moved: None,
    };
    let group_id: GroupId = "g".into();
    let mut loaded = Coordinator::new(no_delay(), Arc::default(), 1);
    for (partition, stamp) in [
        (0, Millis(5_000)),
        (1, Millis(i64::MAX)),
        (2, Millis(i64::MAX - 9)),
    ] {
        loaded.apply(&Record::OffsetCommit {
            group_id: group_id.clone(),
            topic: "t".into(),
            partition,
            value: Some(offset(stamp)),
        });
        loaded.apply(&Record::ConsumerGroupRegularExpression {
            group_id: group_id.clone(),
            regex: partition.to_string().into(),
            value: Some(record::RegexValue {
                topics: Vec::new(),
                version: 1,
                timestamp: stamp,
            }),
        });
    }
    assert_eq!(loaded.newest_timestamp(), Millis(5_000));
    // With the clock at the end of time the next look would be due as soon as one was done.
    let mut actions = Actions::default();
    loaded.loaded(loaded.newest_timestamp(), &mut actions);
    let due = loaded.poll_timeout().expect("offsets are looked through");
    loaded.handle_timeout(due, &mut actions);
    assert!(loaded.poll_timeout().is_some_and(|next| next > due));
}
