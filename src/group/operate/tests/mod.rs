//! Operators' actions as facts.

use std::sync::Arc;

use crate::group::consumer::tests::world::{beating, classic_join, classic_sync, joining};
use crate::group::operator::Setting;
use crate::group::operator::{Action, Aim, Move, NotDone, NotDoneKind, Operate, Operated, Who};
use crate::group::request::{
    CommitPartition, CommitTopic, ErrorCode, FetchTopic, Join, OffsetCommit, OffsetFetch, Protocol,
    Reply, Request, RequestId, Sync,
};
use crate::group::subscription::{Assignment, Subscription};
use crate::group::types::{Client, Millis, Topic, TopicId, TopicRef, Topics};
use crate::group::{Actions, Caps, Coordinator, GroupCaps, GroupConfig};

pub(super) struct World {
    pub(super) live: Coordinator,
    replayed: Coordinator,
    pub(super) now: Millis,
    next: u64,
    replies: Vec<(u64, Reply)>,
}

impl World {
    pub(super) fn new() -> Self {
        Self::with(GroupConfig {
            initial_rebalance_delay_ms: 0,
            ..GroupConfig::default()
        })
    }

    pub(super) fn with(config: GroupConfig) -> Self {
        let mut topics = Topics::default();
        for (name, byte, partitions) in [("t", 1, 4), ("u", 2, 2)] {
            let id = TopicId([byte; 16]);
            topics.insert(name.into(), Topic { id, partitions });
        }
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
        }
    }

    fn take(&mut self, actions: Actions) {
        for record in &actions.records {
            self.replayed.apply(record);
        }
        assert!(self.live.same_facts(&self.replayed));
        assert_eq!(self.live.stray_timer(), None);
        let replies = actions.replies.into_iter();
        self.replies
            .extend(replies.map(|answer| (answer.id.0, answer.reply)));
    }

    pub(super) fn send(&mut self, request: Request) -> u64 {
        self.next += 1;
        let mut actions = Actions::default();
        let id = RequestId(self.next);
        self.live.handle(self.now, id, request, &mut actions);
        self.take(actions);
        self.next
    }

    pub(super) fn answer(&mut self, id: u64) -> Option<Reply> {
        let place = self.replies.iter().position(|(asked, _)| *asked == id)?;
        Some(self.replies.remove(place).1)
    }

    pub(super) fn ask(&mut self, request: Request) -> Reply {
        let id = self.send(request);
        self.answer(id).expect("answered at once")
    }

    pub(super) fn advance(&mut self, ms: i64) {
        let end = self.now.plus(ms);
        while let Some(due) = self.live.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let mut actions = Actions::default();
            self.live.handle_timeout(self.now, &mut actions);
            self.take(actions);
        }
        self.now = end;
    }

    pub(super) fn begin(&mut self, action: Action) -> u64 {
        self.send(Request::Operate(order(action)))
    }

    pub(super) fn outcome(&mut self, id: u64) -> Option<Result<Operated, NotDone>> {
        match self.answer(id)? {
            Reply::Operated(outcome) => Some(outcome),
            other => panic!("an outcome, not {other:?}"),
        }
    }

    pub(super) fn operate(&mut self, action: Action) -> Result<Operated, NotDone> {
        let id = self.begin(action);
        self.outcome(id).expect("done at once")
    }

    pub(super) fn dry(&mut self, action: Action) -> Result<Operated, NotDone> {
        let dry = Operate {
            dry_run: true,
            ..order(action)
        };
        let id = self.send(Request::Operate(dry));
        self.outcome(id).expect("a dry run is answered at once")
    }

    pub(super) fn committed(&mut self, topic: &str, partition: i32) -> i64 {
        let fetch = Request::OffsetFetch(OffsetFetch {
            group_id: "g".into(),
            client: Client::default(),
            member_id: None,
            member_epoch: -1,
            topics: Some(vec![FetchTopic {
                topic: TopicRef::Name(topic.into()),
                partitions: vec![partition],
            }]),
            by_topic_id: false,
            require_stable: false,
        });
        match self.ask(fetch) {
            Reply::OffsetFetch(reply) => reply.topics[0].partitions[0].offset,
            other => panic!("offsets, not {other:?}"),
        }
    }
}

fn order(action: Action) -> Operate {
    Operate {
        group_id: "g".into(),
        operator: "op".into(),
        action,
        dry_run: false,
        announces: false,
    }
}

pub(super) fn commit(member_id: &str, epoch: i32, partition: i32, offset: i64) -> Request {
    Request::OffsetCommit(OffsetCommit {
        group_id: "g".into(),
        client: Client::default(),
        member_id: member_id.into(),
        generation_or_epoch: epoch,
        group_instance_id: None,
        retention_time_ms: None,
        consumer_errors: true,
        topics: vec![CommitTopic {
            topic: TopicRef::Name("t".into()),
            partitions: vec![CommitPartition {
                index: partition,
                offset,
                leader_epoch: -1,
                metadata: "".into(),
            }],
        }],
    })
}

pub(super) fn to(partition: i32, offset: i64) -> Move {
    Move {
        topic: "t".into(),
        partition,
        to: Aim::Exact {
            offset,
            leader_epoch: -1,
            metadata: "".into(),
        },
    }
}

fn kind(outcome: Result<Operated, NotDone>) -> NotDoneKind {
    outcome.unwrap_err().kind
}

#[test]
fn offsets_of_a_group_without_members_move_at_once() {
    let mut world = World::new();
    world.ask(commit("", -1, 0, 100));
    world.ask(commit("", -1, 1, 100));
    let shift = |by| Move {
        to: Aim::Shift {
            by,
            low: 0,
            high: 150,
        },
        ..to(1, 0)
    };
    let moves = vec![to(0, 7), shift(200)];
    let told = world.dry(Action::Reset(moves.clone())).unwrap();
    assert_eq!(world.committed("t", 0), 100, "a dry run changes nothing");
    let done = world.operate(Action::Reset(moves)).unwrap();
    assert_eq!(told.offsets, done.offsets);
    assert_eq!((world.committed("t", 0), world.committed("t", 1)), (7, 150));
    let forget = Move {
        to: Aim::Forget,
        ..to(0, 0)
    };
    let done = world.operate(Action::Reset(vec![forget])).unwrap();
    assert_eq!((done.offsets[0].from, done.offsets[0].to), (Some(7), None));
    assert_eq!(world.committed("t", 0), -1);
}

#[test]
fn a_group_can_be_made_of_exact_offsets_alone() {
    let mut world = World::new();
    let forget = Move {
        to: Aim::Forget,
        ..to(0, 0)
    };
    let nobody = kind(world.operate(Action::Reset(vec![to(1, 1), forget])));
    assert_eq!(nobody, NotDoneKind::NotFound);
    world.operate(Action::Reset(vec![to(0, 5)])).unwrap();
    assert_eq!(world.committed("t", 0), 5);
}

#[test]
fn moves_that_make_no_sense_are_refused_and_write_nothing() {
    let mut world = World::new();
    world.ask(commit("", -1, 0, 100));
    let elsewhere = Move {
        topic: "nowhere".into(),
        ..to(0, 1)
    };
    let backwards = Move {
        to: Aim::Shift {
            by: 1,
            low: 5,
            high: 1,
        },
        ..to(0, 0)
    };
    for moves in [
        vec![],
        vec![to(0, -1)],
        vec![to(4, 1)],
        vec![to(0, 1), to(0, 2)],
        vec![elsewhere],
        vec![backwards],
    ] {
        let refused = world.operate(Action::Reset(moves.clone()));
        assert_eq!(kind(refused), NotDoneKind::Invalid, "{moves:?}");
    }
    assert_eq!(world.committed("t", 0), 100);
}

#[test]
fn a_group_is_deleted_with_its_offsets() {
    let mut world = World::new();
    assert_eq!(kind(world.operate(Action::Delete)), NotDoneKind::NotFound);
    world.ask(commit("", -1, 0, 100));
    assert_eq!(world.dry(Action::Delete).unwrap().offsets.len(), 1);
    assert_eq!(world.committed("t", 0), 100);
    let done = world.operate(Action::Delete).unwrap();
    assert_eq!(
        (done.offsets[0].from, done.offsets[0].to),
        (Some(100), None)
    );
    assert_eq!(world.committed("t", 0), -1);
}

#[test]
fn settings_are_checked_before_they_are_set() {
    let mut world = World::new();
    let set = |setting, value| Action::Configure(vec![(setting, value)]);
    let wrong = world.operate(set(Setting::MembersMax, Some(0)));
    assert_eq!(kind(wrong), NotDoneKind::Invalid);
    world
        .dry(set(Setting::OffsetsRetentionMs, Some(-1)))
        .unwrap();
    let own = |world: &World| world.live.overridden("g").get(Setting::OffsetsRetentionMs);
    assert_eq!(own(&world), None);
    world
        .operate(set(Setting::OffsetsRetentionMs, Some(-1)))
        .unwrap();
    assert_eq!(own(&world), Some(-1));
    world
        .operate(set(Setting::OffsetsRetentionMs, None))
        .unwrap();
    assert_eq!(own(&world), None);
}

#[test]
fn offsets_are_kept_for_as_long_as_the_group_says() {
    let config = GroupConfig {
        offsets_retention_ms: 3_600_000,
        ..GroupConfig::default()
    };
    for (own, is_kept) in [(None, false), (Some(-1), true), (Some(10_000), false)] {
        let mut world = World::with(config.clone());
        let limit = vec![(Setting::OffsetsRetentionMs, own)];
        world.operate(Action::Configure(limit)).unwrap();
        world.ask(commit("", -1, 0, 1));
        world.advance(1_200_000);
        let expiring = world.live.census().offsets_expiring;
        assert_eq!(expiring, u64::from(own.is_none()), "{own:?}");
        let early = world.committed("t", 0) == 1;
        assert_eq!(early, own != Some(10_000));
        world.advance(3_600_000);
        assert_eq!(world.committed("t", 0) == 1, is_kept, "{own:?}");
    }
}

fn commit_to(group_id: &str) -> Request {
    match commit("", -1, 0, 1) {
        Request::OffsetCommit(request) => Request::OffsetCommit(OffsetCommit {
            group_id: group_id.into(),
            ..request
        }),
        other => other,
    }
}

fn error_of(reply: Reply) -> ErrorCode {
    match reply {
        Reply::OffsetCommit(reply) => reply.topics[0].partitions[0].1,
        Reply::Join(reply) => reply.error,
        Reply::ConsumerHeartbeat(reply) => reply.error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn there_are_no_more_groups_than_there_may_be() {
    let caps = Arc::new(GroupCaps::new(Caps {
        groups_max: Some(3),
        prefixes: vec![("team-".into(), 1)],
    }));
    let config = GroupConfig {
        caps: caps.clone(),
        ..GroupConfig::default()
    };
    let (mut one, mut two) = (World::with(config.clone()), World::with(config));
    let full = ErrorCode::InvalidCommitOffsetSize;
    assert_eq!(error_of(one.ask(commit_to("team-a"))), ErrorCode::None);
    assert_eq!(
        error_of(two.ask(commit_to("team-b"))),
        full,
        "all share the caps"
    );
    assert_eq!(error_of(one.ask(commit_to("team-a"))), ErrorCode::None);
    assert_eq!(error_of(two.ask(commit_to("x"))), ErrorCode::None);
    assert_eq!(error_of(one.ask(commit_to("y"))), ErrorCode::None);
    assert_eq!(error_of(one.ask(commit_to("z"))), full);
    let restore = one.operate(Action::Reset(vec![to(0, 1)]));
    assert_eq!(kind(restore), NotDoneKind::Limit);
    assert_eq!(caps.groups(), 3);
    // A group that goes makes room, and a coordinator that goes takes its groups along.
    one.ask(Request::Delete {
        group_id: "y".into(),
    });
    assert_eq!(error_of(two.ask(commit_to("z"))), ErrorCode::None);
    drop(two);
    assert_eq!(caps.groups(), 1);
    // Other caps hold at once.
    caps.set(Caps {
        groups_max: None,
        prefixes: vec![("team-".into(), 2), ("t".into(), 2)],
    });
    one.live.count_groups();
    assert_eq!(error_of(one.ask(commit_to("team-c"))), ErrorCode::None);
    assert_eq!(error_of(one.ask(commit_to("t-d"))), full);
    assert_eq!(error_of(one.ask(commit_to("u"))), ErrorCode::None);
}

#[test]
fn a_refused_request_takes_no_place() {
    let caps = Arc::new(GroupCaps::new(Caps {
        groups_max: Some(1),
        prefixes: Vec::new(),
    }));
    let mut world = World::with(GroupConfig {
        caps: caps.clone(),
        ..GroupConfig::default()
    });
    assert_eq!(
        error_of(world.ask(commit("m", 3, 0, 1))),
        ErrorCode::GroupIdNotFound
    );
    assert_eq!(caps.groups(), 0);
    assert_eq!(error_of(world.ask(commit_to("x"))), ErrorCode::None);
    assert_eq!(caps.groups(), 1);
}

/// The offset of partition 0 is 5, and its one member is in a group of this protocol, with an assignment in which the
/// leader put bytes.
fn led_by(protocol: &str) -> World {
    let mut world = World::new();
    world.ask(commit("", -1, 0, 5));
    let told = Subscription {
        version: 3,
        topics: vec!["t".into()],
        user_data: Some("what it remembers".into()),
        owned: Vec::new(),
        generation: -1,
        rack_id: None,
    };
    let joined = world.ask(Request::Join(Join {
        protocols: vec![Protocol {
            name: protocol.into(),
            metadata: told.to_bytes(),
        }],
        ..classic_join("", &["t"])
    }));
    let Reply::Join(joined) = joined else {
        panic!("{joined:?}");
    };
    let given = Assignment {
        version: 0,
        partitions: vec![("t".into(), vec![0])],
        user_data: Some("what it remembers".into()),
    };
    let member_id = &joined.member_id;
    let sync = classic_sync(member_id, 1, vec![(member_id.clone(), given.to_bytes())]);
    world.ask(Request::Sync(Sync {
        protocol_name: Some(protocol.into()),
        ..sync
    }));
    world
}

#[test]
fn what_librdkafka_repeats_in_assignments_is_in_nobodys_way() {
    for protocol in ["cooperative-sticky", "sticky"] {
        let told = led_by(protocol).dry(Action::Reset(vec![to(0, 1)])).unwrap();
        assert_eq!(told.members.len(), 1, "{protocol}");
    }
    let streams = led_by("stream").dry(Action::Reset(vec![to(0, 1)]));
    assert_eq!(kind(streams), NotDoneKind::Conflict);
}

#[test]
fn who_is_kept_out_is_told_late_but_no_later_than_the_ban_ends() {
    let join = || Request::Join(classic_join("", &["t"]));
    let beat = || Request::ConsumerHeartbeat(joining("m", &["t"]));
    let error = |reply| match reply {
        Some(Reply::Join(reply)) => Some(reply.error),
        Some(Reply::ConsumerHeartbeat(reply)) => Some(reply.error),
        None => None,
        Some(other) => panic!("{other:?}"),
    };
    for ask in [&join as &dyn Fn() -> Request, &beat] {
        let mut world = World::new();
        world.send(ask());
        world.advance(0);
        let members = vec![Who::Client(classic_join("", &[]).client.id)];
        let ban_ms = 1_500;
        world.operate(Action::Kick { members, ban_ms }).unwrap();
        let first = world.send(ask());
        world.advance(999);
        assert_eq!(error(world.answer(first)), None);
        world.advance(1);
        let kept_out = Some(ErrorCode::CoordinatorLoadInProgress);
        assert_eq!(error(world.answer(first)), kept_out);
        let second = world.send(ask());
        world.advance(499);
        assert_eq!(error(world.answer(second)), None);
        world.advance(1);
        assert_eq!(error(world.answer(second)), kept_out);
        let third = world.send(ask());
        world.advance(0);
        assert_eq!(error(world.answer(third)), Some(ErrorCode::None));
        assert!(world.live.orders.is_empty());
    }
}

#[test]
fn who_is_kept_out_by_member_id_cannot_come_back_under_another() {
    let mut world = World::new();
    world.ask(Request::ConsumerHeartbeat(joining("m", &["t"])));
    world.ask(Request::ConsumerHeartbeat(joining("n", &["t"])));
    let members = vec![Who::Member("m".into())];
    let ban_ms = 1_500;
    let done = world.operate(Action::Kick { members, ban_ms }).unwrap();
    assert_eq!((done.members.len(), done.notes.len()), (1, 1));
    // As franz-go does.
    let other_id = world.send(Request::ConsumerHeartbeat(joining("o", &["t"])));
    let stays = world.ask(Request::ConsumerHeartbeat(beating("n", 2)));
    let Reply::ConsumerHeartbeat(stays) = stays else {
        panic!("{stays:?}");
    };
    assert_eq!(stays.error, ErrorCode::None);
    assert!(world.answer(other_id).is_none());
    world.advance(1_000);
    match world.answer(other_id) {
        Some(Reply::ConsumerHeartbeat(reply)) => {
            assert_eq!(reply.error, ErrorCode::CoordinatorLoadInProgress);
        }
        other => panic!("{other:?}"),
    }
}

/// A group with one member that has partition 0 of topic `t`, of which 5 is committed.
fn held() -> [World; 2] {
    let classic = led_by("range");
    let mut consumer = World::new();
    consumer.ask(commit("", -1, 0, 5));
    consumer.ask(Request::ConsumerHeartbeat(joining("m", &["t"])));
    consumer.advance(2_000);
    consumer.ask(Request::ConsumerHeartbeat(beating("m", 1)));
    [classic, consumer]
}

#[test]
fn an_action_that_takes_too_long_ends_and_says_for_whom_it_waited() {
    for mut world in held() {
        for (action, what) in [
            (Action::Reset(vec![to(0, 1)]), "No offset was moved."),
            (Action::Pause, "The group stays paused"),
        ] {
            let id = world.begin(action);
            assert!(world.outcome(id).is_none());
            // Nobody lets go, and nobody is removed: the deadline is there for what members' own timeouts do not end.
            let late = world.now.plus(31 * 60_000);
            let mut actions = Actions::default();
            world.live.operation_due(late, &"g".into(), &mut actions);
            world.take(actions);
            let why = world.outcome(id).expect("it is over").unwrap_err();
            assert_eq!(why.kind, NotDoneKind::Conflict);
            assert!(why.message.contains(what), "{}", why.message);
            assert!(why.message.contains("have not let go within 1860000 ms"));
            assert_eq!(world.committed("t", 0), 5);
        }
    }
}

#[test]
fn whoever_waits_for_an_action_is_told_that_the_server_stops() {
    for mut world in held() {
        let id = world.begin(Action::Pause);
        let mut actions = Actions::default();
        world.live.close(&mut actions);
        let mut told = actions.replies.into_iter();
        match told.find(|answer| answer.id.0 == id).expect("told").reply {
            Reply::Operated(outcome) => assert_eq!(kind(outcome), NotDoneKind::Unavailable),
            other => panic!("an outcome, not {other:?}"),
        }
    }
}

#[test]
fn members_of_whom_nobody_can_tell_what_they_own_are_left_alone() {
    let mut world = World::new();
    world.ask(commit("", -1, 0, 5));
    let join = Join {
        protocol_type: "connect".into(),
        ..classic_join("", &["t"])
    };
    world.ask(Request::Join(join));
    let why = world.dry(Action::Pause).unwrap_err();
    assert!(why.message.contains("of type connect"), "{}", why.message);
}
