//! Cases about time and storage, played on the core alone: a [`Coordinator`] in virtual time.
//!
//! [`Stage`] stands for the shell around it. Every batch of records goes through the codec of the log into a second
//! coordinator, so that each case also shows that the stored facts are the live ones.

mod expiry;
mod histories;
mod members;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use convoke::group::record::Record;
use convoke::group::request::{
    CommitPartition, CommitTopic, Describe, DescribeReply, FetchTopic, Heartbeat, Join, JoinReply,
    Leave, LeavingMember, List, OffsetCommit, OffsetFetch, Protocol, Reply, Request, RequestId,
    Sync, SyncReply,
};
use convoke::group::types::{
    Client, GroupId, InstanceId, MemberId, Millis, Topic, TopicId, TopicRef, Topics, TopicsChange,
};
use convoke::group::{Actions, Coordinator, GroupConfig};
use convoke::wire::records::{decode_batch, encode_batch};

use super::words::codes::*;
use super::words::{ErrorCode, subscribes};

/// When every stage begins.
const START: Millis = Millis(1_700_000_000_000);

/// A coordinator, its clock and its log.
pub(crate) struct Stage {
    pub(crate) now: Millis,
    config: GroupConfig,
    topics: Arc<Topics>,
    live: Coordinator,
    /// What another coordinator makes of the log.
    replayed: Coordinator,
    log: Vec<Record>,
    next_id: u64,
    replies: BTreeMap<u64, Reply>,
}

impl Stage {
    /// A stage with Kafka's defaults except for the initial delay, which is 0; and topics t and u of 10 partitions.
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A stage with other settings.
    pub(crate) fn with(change: impl FnOnce(&mut GroupConfig)) -> Self {
        let mut config = GroupConfig {
            initial_rebalance_delay_ms: 0,
            ..GroupConfig::default()
        };
        change(&mut config);
        let mut topics = Topics::default();
        for (name, id) in [("t", 1), ("u", 2)] {
            let id = TopicId([id; 16]);
            topics.insert(name.into(), Topic { id, partitions: 10 });
        }
        let topics = Arc::new(topics);
        let mut stage = Self {
            now: START,
            live: Coordinator::new(config.clone(), topics.clone(), 1),
            replayed: Coordinator::new(config.clone(), topics.clone(), 1),
            config,
            topics,
            log: Vec::new(),
            next_id: 0,
            replies: BTreeMap::new(),
        };
        let mut actions = Actions::default();
        stage.live.loaded(START, &mut actions);
        stage.take(actions);
        stage
    }

    fn take(&mut self, actions: Actions) {
        if !actions.records.is_empty() {
            let bytes = encode_batch(&actions.records, self.log.len() as i64, self.now).unwrap();
            let batch = decode_batch(&bytes).unwrap();
            for record in &batch.records {
                self.replayed.apply(record);
            }
            self.log.extend(batch.records);
        }
        for answer in actions.replies {
            let first = self.replies.insert(answer.id.0, answer.reply);
            assert!(first.is_none(), "{:?} was answered twice", answer.id);
        }
    }

    /// Sends a request, whose reply may come now or later.
    pub(crate) fn send(&mut self, request: Request) -> Waits {
        self.next_id += 1;
        let mut actions = Actions::default();
        self.live
            .handle(self.now, RequestId(self.next_id), request, &mut actions);
        self.take(actions);
        Waits(self.next_id)
    }

    /// The reply to a request, if it has come.
    pub(crate) fn reply(&mut self, waits: Waits) -> Option<Reply> {
        self.replies.remove(&waits.0)
    }

    /// Sends a request that is answered at once.
    pub(crate) fn ask(&mut self, request: Request) -> Reply {
        let waits = self.send(request);
        self.reply(waits).expect("an answer at once")
    }

    /// Lets time pass, from deadline to deadline.
    pub(crate) fn advance(&mut self, ms: i64) {
        let end = self.now.plus(ms);
        loop {
            let next = self.live.poll_timeout().filter(|due| *due <= end);
            self.now = self.now.max(next.unwrap_or(end));
            let mut actions = Actions::default();
            self.live.handle_timeout(self.now, &mut actions);
            self.take(actions);
            if next.is_none() {
                return;
            }
        }
    }

    /// Live facts are the stored facts.
    pub(crate) fn check(&self) {
        assert!(
            self.live.same_facts(&self.replayed),
            "live and stored facts differ"
        );
    }

    /// Loses everything but the log, and starts again on it with these settings.
    pub(crate) fn crash_into(&mut self, change: impl FnOnce(&mut GroupConfig)) {
        self.check();
        change(&mut self.config);
        self.load(self.log.clone());
    }

    /// Loses everything but the log, and starts again on it.
    pub(crate) fn crash(&mut self) {
        self.crash_into(|_| {});
    }

    /// Loses everything but a snapshot, and starts again on that.
    pub(crate) fn crash_on_snapshot(&mut self) {
        let snapshot = self.live.snapshot().collect();
        self.load(snapshot);
        self.check();
    }

    fn load(&mut self, log: Vec<Record>) {
        let fresh = || Coordinator::new(self.config.clone(), self.topics.clone(), self.next_id + 2);
        (self.live, self.replayed) = (fresh(), fresh());
        for record in &log {
            self.live.apply(record);
            self.replayed.apply(record);
        }
        self.log = log;
        // As the shell's clock does: stored stamps are never in the future.
        self.now = self.now.max(self.live.newest_timestamp());
        let mut actions = Actions::default();
        self.live.loaded(self.now, &mut actions);
        self.take(actions);
    }

    /// Deletes a topic.
    pub(crate) fn delete_topic(&mut self, name: &str) {
        let mut topics = (*self.topics).clone();
        let id = topics.get(name).unwrap().id;
        topics.remove(name);
        self.topics = Arc::new(topics);
        let change = TopicsChange {
            topics: self.topics.clone(),
            deleted: vec![(name.into(), id)],
            ..TopicsChange::default()
        };
        let mut actions = Actions::default();
        self.live.handle_topics(self.now, change, &mut actions);
        self.take(actions);
    }

    /// Commits offsets of topic `topic`, partitions from 0 on.
    pub(crate) fn commit(&mut self, player: &Player, topic: &str, offsets: &[i64]) -> ErrorCode {
        let partition = |(index, offset): (i32, &i64)| CommitPartition {
            index,
            offset: *offset,
            leader_epoch: -1,
            metadata: "".into(),
        };
        let commit = OffsetCommit {
            group_id: player.group_id.clone(),
            client: Client::default(),
            member_id: player.member_id.clone(),
            generation_or_epoch: player.generation,
            group_instance_id: player.instance_id.clone(),
            retention_time_ms: None,
            consumer_errors: true,
            topics: vec![CommitTopic {
                topic: TopicRef::Name(topic.into()),
                partitions: (0..).zip(offsets).map(partition).collect(),
            }],
        };
        match self.ask(Request::OffsetCommit(commit)) {
            Reply::OffsetCommit(reply) => reply.topics[0].partitions[0].1,
            other => panic!("{other:?}"),
        }
    }

    /// The committed offset of a partition; −1 for none.
    pub(crate) fn committed(&mut self, group_id: &str, topic: &str, partition: i32) -> i64 {
        let fetch = OffsetFetch {
            group_id: group_id.into(),
            client: Client::default(),
            member_id: None,
            member_epoch: -1,
            topics: Some(vec![FetchTopic {
                topic: TopicRef::Name(topic.into()),
                partitions: vec![partition],
            }]),
            by_topic_id: false,
            require_stable: false,
        };
        match self.ask(Request::OffsetFetch(fetch)) {
            Reply::OffsetFetch(reply) => reply.topics[0].partitions[0].offset,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn describe(&mut self, group_id: &str) -> DescribeReply {
        let describe = Describe {
            group_id: group_id.into(),
            unknown_is_error: false,
        };
        match self.ask(Request::Describe(describe)) {
            Reply::Describe(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn member_count(&mut self, group_id: &str) -> usize {
        self.describe(group_id).members.len()
    }

    pub(crate) fn group_ids(&mut self) -> Vec<GroupId> {
        match self.ask(Request::List(List::default())) {
            Reply::List(reply) => reply
                .groups
                .into_iter()
                .map(|group| group.group_id)
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn delete_group(&mut self, group_id: &str) -> ErrorCode {
        let group_id = group_id.into();
        match self.ask(Request::Delete { group_id }) {
            Reply::Delete { error, .. } => error,
            other => panic!("{other:?}"),
        }
    }
}

/// A request whose reply may still come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits(u64);

/// A classic member, or somebody in assign mode while it has not joined.
#[derive(Clone, Debug)]
pub(crate) struct Player {
    pub(crate) group_id: GroupId,
    pub(crate) member_id: MemberId,
    pub(crate) instance_id: Option<InstanceId>,
    pub(crate) generation: i32,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    pub(crate) protocol_type: Arc<str>,
    pub(crate) metadata: Bytes,
    pub(crate) leads: bool,
}

impl Player {
    pub(crate) fn new(group_id: &str) -> Self {
        Self {
            group_id: group_id.into(),
            member_id: "".into(),
            instance_id: None,
            generation: -1,
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 60_000,
            protocol_type: "consumer".into(),
            metadata: subscribes(&["t"]),
            leads: false,
        }
    }

    pub(crate) fn of_instance(group_id: &str, instance_id: &str) -> Self {
        Self {
            instance_id: Some(instance_id.into()),
            ..Self::new(group_id)
        }
    }

    /// Sends a JoinGroup that needs no second step.
    pub(crate) fn join(&self, stage: &mut Stage) -> Waits {
        stage.send(self.joining(false))
    }

    /// Is told its id, the first of two steps to join (KIP-394).
    pub(crate) fn knock(&mut self, stage: &mut Stage) {
        match stage.ask(self.joining(true)) {
            Reply::Join(reply) => {
                assert_eq!(reply.error, MEMBER_ID_REQUIRED);
                self.member_id = reply.member_id;
            }
            other => panic!("{other:?}"),
        }
    }

    fn joining(&self, member_id_required: bool) -> Request {
        Request::Join(Join {
            group_id: self.group_id.clone(),
            client: Client::default(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms: self.rebalance_timeout_ms,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: self.protocol_type.clone(),
            protocols: vec![Protocol {
                name: "range".into(),
                metadata: self.metadata.clone(),
            }],
            reason: None,
            member_id_required,
            skip_assignment: true,
        })
    }

    /// Takes the reply to a JoinGroup, which must have come.
    pub(crate) fn joined(&mut self, stage: &mut Stage, waits: Waits) -> JoinReply {
        match stage.reply(waits).expect("the join phase is over") {
            Reply::Join(reply) => {
                if reply.error == NONE {
                    self.member_id = reply.member_id.clone();
                    self.generation = reply.generation;
                    self.leads = reply.leader == reply.member_id;
                }
                reply
            }
            other => panic!("{other:?}"),
        }
    }

    /// Sends a SyncGroup that assigns these shares.
    pub(crate) fn assign(&self, stage: &mut Stage, shares: Vec<(MemberId, Bytes)>) -> Waits {
        stage.send(Request::Sync(Sync {
            group_id: self.group_id.clone(),
            generation: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: None,
            protocol_name: None,
            protocol_required: false,
            assignments: shares,
        }))
    }

    /// Takes the reply to a SyncGroup, which must have come.
    pub(crate) fn synced(&self, stage: &mut Stage, waits: Waits) -> SyncReply {
        match stage.reply(waits).expect("the leader has assigned") {
            Reply::Sync(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn heartbeat(&self, stage: &mut Stage) -> ErrorCode {
        let heartbeat = Heartbeat {
            group_id: self.group_id.clone(),
            generation: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
        };
        match stage.ask(Request::Heartbeat(heartbeat)) {
            Reply::Heartbeat(error) => error,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn leave(&self, stage: &mut Stage) -> ErrorCode {
        let leave = Leave {
            group_id: self.group_id.clone(),
            members: vec![LeavingMember {
                member_id: self.member_id.clone(),
                group_instance_id: self.instance_id.clone(),
                reason: None,
            }],
        };
        match stage.ask(Request::Leave(leave)) {
            Reply::Leave(reply) => reply.members[0].error,
            other => panic!("{other:?}"),
        }
    }
}

/// Everybody joins (known members included), then everybody syncs. They are stable in one generation.
pub(crate) fn settle(stage: &mut Stage, players: &mut [Player]) {
    // Newcomers first: whoever is there already is told to rejoin by the first of them.
    let (mut joins, mut later) = (Vec::new(), Vec::new());
    for (index, player) in players.iter().enumerate() {
        match player.member_id.is_empty() || player.leads {
            true => joins.push((index, player.join(stage))),
            false => later.push(index),
        }
    }
    joins.extend(
        later
            .into_iter()
            .map(|index| (index, players[index].join(stage))),
    );
    // A group without delay answers the very first member alone; it joins again with the others.
    let first = joins[0];
    if joins.len() > 1 && stage.replies.contains_key(&first.1.0) {
        let alone = &mut players[first.0];
        alone.joined(stage, first.1);
        joins[0].1 = alone.join(stage);
    }
    for (index, waits) in joins {
        assert_eq!(players[index].joined(stage, waits).error, NONE);
    }
    sync_all(stage, players);
}

/// The leader assigns to each the bytes of its id; everybody syncs.
pub(crate) fn sync_all(stage: &mut Stage, players: &[Player]) {
    let leader = players
        .iter()
        .find(|player| player.leads)
        .expect("a leader");
    let share = |player: &Player| Bytes::copy_from_slice(player.member_id.as_bytes());
    let shares = players
        .iter()
        .map(|p| (p.member_id.clone(), share(p)))
        .collect();
    let waits = leader.assign(stage, shares);
    assert_eq!(leader.synced(stage, waits).error, NONE);
    for player in players {
        let waits = player.assign(stage, Vec::new());
        let reply = player.synced(stage, waits);
        assert_eq!((reply.error, reply.assignment), (NONE, share(player)));
    }
}
