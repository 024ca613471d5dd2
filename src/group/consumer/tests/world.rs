//! One coordinator, the clients around it, and time.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::group::request::*;
use crate::group::subscription::Subscription;
use crate::group::types::*;
use crate::group::*;

pub(in crate::group) const START: Millis = Millis(1_000_000);

pub(in crate::group) struct World {
    pub(in crate::group) live: Coordinator,
    replayed: Coordinator,
    pub(in crate::group) now: Millis,
    next: u64,
    replies: BTreeMap<u64, Reply>,
    /// Requests that will never be answered.
    pub(in crate::group) superseded: Vec<u64>,
    pub(in crate::group) topics: Topics,
    topics_made: u8,
    pub(in crate::group) records: Vec<Record>,
}

pub(in crate::group) fn config() -> GroupConfig {
    GroupConfig {
        initial_rebalance_delay_ms: 0,
        heartbeat_hint: false,
        ..GroupConfig::default()
    }
}

pub(in crate::group) fn client() -> Client {
    Client {
        id: "c".into(),
        host: "/127.0.0.1".into(),
    }
}

/// A first heartbeat.
pub(in crate::group) fn joining(member_id: &str, names: &[&str]) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        group_id: "g".into(),
        client: client(),
        member_id: member_id.into(),
        member_epoch: 0,
        instance_id: None,
        rack_id: None,
        rebalance_timeout_ms: 10_000,
        subscribed_topic_names: Some(names.iter().map(|name| TopicName::from(*name)).collect()),
        subscribed_topic_regex: None,
        server_assignor: None,
        topic_partitions: Some(Vec::new()),
        member_id_from_client: true,
    }
}

/// A later heartbeat that says nothing new.
pub(in crate::group) fn beating(member_id: &str, epoch: i32) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        member_epoch: epoch,
        rebalance_timeout_ms: -1,
        subscribed_topic_names: None,
        topic_partitions: None,
        ..joining(member_id, &[])
    }
}

/// A classic consumer's JoinGroup.
pub(in crate::group) fn classic_join(member_id: &str, names: &[&str]) -> Join {
    let subscription = Subscription {
        version: 3,
        topics: names.iter().map(|name| TopicName::from(*name)).collect(),
        user_data: None,
        owned: Vec::new(),
        generation: -1,
        rack_id: None,
    };
    Join {
        group_id: "g".into(),
        client: client(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        member_id: member_id.into(),
        group_instance_id: None,
        protocol_type: "consumer".into(),
        protocols: vec![Protocol {
            name: "range".into(),
            metadata: subscription.to_bytes(),
        }],
        reason: None,
        member_id_required: false,
        skip_assignment: true,
    }
}

pub(in crate::group) fn classic_sync(
    member_id: &str,
    generation: i32,
    assignments: Vec<(MemberId, Bytes)>,
) -> Sync {
    Sync {
        group_id: "g".into(),
        generation,
        member_id: member_id.into(),
        group_instance_id: None,
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        protocol_required: true,
        assignments,
    }
}

pub(in crate::group) fn classic_heartbeat(member_id: &str, generation: i32) -> Heartbeat {
    Heartbeat {
        group_id: "g".into(),
        generation,
        member_id: member_id.into(),
        group_instance_id: None,
    }
}

impl World {
    pub(in crate::group) fn new(config: GroupConfig, topics: &[(&str, i32)]) -> Self {
        let mut world = Self {
            live: Coordinator::new(config.clone(), Arc::default(), 1),
            replayed: Coordinator::new(config, Arc::default(), 1),
            now: START,
            next: 0,
            replies: BTreeMap::new(),
            superseded: Vec::new(),
            topics: Topics::default(),
            topics_made: 0,
            records: Vec::new(),
        };
        let mut actions = Actions::default();
        world.live.loaded(START, &mut actions);
        world.take(actions);
        for (name, partitions) in topics {
            world.create(name, *partitions);
        }
        world
    }

    fn take(&mut self, actions: Actions) {
        for record in &actions.records {
            self.replayed.apply(record);
        }
        assert!(
            self.live.same_facts(&self.replayed),
            "live and replayed facts differ"
        );
        self.records.extend(actions.records);
        for answer in actions.replies {
            let twice = self.replies.insert(answer.id.0, answer.reply);
            assert!(twice.is_none(), "one answer to each request");
        }
        self.superseded
            .extend(actions.superseded.iter().map(|id| id.0));
    }

    pub(in crate::group) fn send(&mut self, request: Request) -> u64 {
        self.next += 1;
        let mut actions = Actions::default();
        self.live
            .handle(self.now, RequestId(self.next), request, &mut actions);
        self.take(actions);
        self.next
    }

    pub(in crate::group) fn answer(&mut self, id: u64) -> Option<Reply> {
        self.replies.remove(&id)
    }

    pub(in crate::group) fn ask(&mut self, request: Request) -> Reply {
        let id = self.send(request);
        self.answer(id).expect("answered at once")
    }

    pub(in crate::group) fn beat(&mut self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply {
        match self.ask(Request::ConsumerHeartbeat(request)) {
            Reply::ConsumerHeartbeat(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    /// The error of a refused heartbeat; it must have written nothing.
    pub(in crate::group) fn refusal(&mut self, request: ConsumerHeartbeat) -> ErrorCode {
        let before = self.records.len();
        let reply = self.beat(request);
        assert_ne!(reply.error, ErrorCode::None, "{reply:?}");
        assert_eq!(self.records.len(), before, "a refusal writes nothing");
        reply.error
    }

    pub(in crate::group) fn describe(&mut self) -> ConsumerDescribeReply {
        match self.ask(Request::ConsumerDescribe {
            group_id: "g".into(),
        }) {
            Reply::ConsumerDescribe(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::group) fn join(&mut self, request: Join) -> JoinReply {
        match self.ask(Request::Join(request)) {
            Reply::Join(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::group) fn sync(&mut self, request: Sync) -> SyncReply {
        match self.ask(Request::Sync(request)) {
            Reply::Sync(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::group) fn heartbeat(&mut self, member_id: &str, generation: i32) -> ErrorCode {
        match self.ask(Request::Heartbeat(classic_heartbeat(member_id, generation))) {
            Reply::Heartbeat(error) => error,
            other => panic!("{other:?}"),
        }
    }

    pub(in crate::group) fn advance(&mut self, ms: i64) {
        let end = self.now.plus(ms);
        while let Some(due) = self.live.poll_timeout().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            let mut actions = Actions::default();
            self.live.handle_timeout(self.now, &mut actions);
            self.take(actions);
        }
        self.now = end;
    }

    fn tell_topics(&mut self, change: impl FnOnce(&mut TopicsChange)) {
        let mut topics = TopicsChange {
            topics: Arc::new(self.topics.clone()),
            ..TopicsChange::default()
        };
        change(&mut topics);
        let mut actions = Actions::default();
        self.live.handle_topics(self.now, topics, &mut actions);
        self.take(actions);
    }

    /// Makes a topic, always with a new id.
    pub(in crate::group) fn create(&mut self, name: &str, partitions: i32) -> TopicId {
        self.topics_made += 1;
        let id = TopicId([self.topics_made; 16]);
        self.topics.insert(name.into(), Topic { id, partitions });
        self.tell_topics(|change| change.created.push(name.into()));
        id
    }

    pub(in crate::group) fn grow(&mut self, name: &str, partitions: i32) {
        let Some(id) = self.topics.get(name).map(|topic| topic.id) else {
            return;
        };
        self.topics.insert(name.into(), Topic { id, partitions });
        self.tell_topics(|change| change.grown.push(name.into()));
    }

    pub(in crate::group) fn delete(&mut self, name: &str) {
        let Some(id) = self.topics.get(name).map(|topic| topic.id) else {
            return;
        };
        self.topics.remove(name);
        self.tell_topics(|change| change.deleted.push((name.into(), id)));
    }

    /// The process dies and comes back with what was recorded.
    pub(in crate::group) fn restart(&mut self) {
        let config = self.live.config.clone();
        let mut again = Coordinator::new(config, Arc::new(self.topics.clone()), self.next);
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

/// Partitions of one topic.
pub(in crate::group) fn of(topic: TopicId, partitions: &[i32]) -> IdPartitions {
    vec![(topic, partitions.to_vec())]
}

pub(in crate::group) fn count(assignment: &Option<IdPartitions>) -> Option<usize> {
    assignment
        .as_ref()
        .map(|all| all.iter().map(|(_, partitions)| partitions.len()).sum())
}
