//! A coordinator alone, and what is asked of it: no log, no network, no disk. What is recorded is kept at once.

use std::sync::Arc;

use crate::group::operator::{Action, Aim, Inspect, Inspected, Move, NotDone, Operate, Operated};
use crate::group::request::{
    CommitPartition, CommitTopic, FetchTopic, OffsetCommit, OffsetFetch, Reply, Request, RequestId,
};
use crate::group::types::{Client, MemberId, Millis, Topic, TopicId, TopicRef, Topics};
use crate::group::{Actions, Coordinator, GroupConfig, GroupOverrides};

#[derive(Debug)]
pub(super) struct Bench {
    pub(super) live: Coordinator,
    replayed: Coordinator,
    config: GroupConfig,
    topics: Arc<Topics>,
    /// What the shell keeps of the group's settings, and tells a coordinator that it loads.
    pub(super) own: GroupOverrides,
    pub(super) now: Millis,
    next: u64,
    replies: Vec<(u64, Reply)>,
    /// What must hold and did not, at first.
    pub(super) wrong: Option<String>,
}

impl Bench {
    pub(super) fn new() -> Self {
        let config = GroupConfig {
            initial_rebalance_delay_ms: 0,
            ..GroupConfig::default()
        };
        let mut topics = Topics::default();
        let id = TopicId([1; 16]);
        topics.insert("t".into(), Topic { id, partitions: 4 });
        let topics = Arc::new(topics);
        let mut live = Coordinator::new(config.clone(), topics.clone(), 1);
        let now = Millis(1_000_000);
        live.loaded(now, &mut Actions::default());
        Self {
            live,
            replayed: Coordinator::new(GroupConfig::default(), topics.clone(), 1),
            config,
            topics,
            own: GroupOverrides::default(),
            now,
            next: 0,
            replies: Vec::new(),
            wrong: None,
        }
    }

    fn take(&mut self, actions: Actions) {
        for record in &actions.records {
            self.replayed.apply(record);
        }
        if !self.live.same_facts(&self.replayed) {
            self.wrong = Some("live facts and replayed facts differ".to_owned());
        }
        if let Some(timer) = self.live.stray_timer() {
            self.wrong = Some(format!("a timer is armed for what is gone: {timer}"));
        }
        let replies = actions.replies.into_iter();
        self.replies
            .extend(replies.map(|answer| (answer.id.0, answer.reply)));
    }

    /// The process dies and comes back: it knows what is recorded, and the settings.
    pub(super) fn restart(&mut self) {
        let seed = self.next;
        let mut again = Coordinator::new(self.config.clone(), self.topics.clone(), seed);
        for record in self.live.snapshot() {
            again.apply(&record);
        }
        again.configure_group(&"g".into(), self.own);
        let mut actions = Actions::default();
        again.loaded(self.now, &mut actions);
        self.live = again;
        self.replies.clear();
        self.take(actions);
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
        self.answer(id)
            .expect("only joins, syncs and actions are parked")
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

    /// Begins an action, as the shell does: what outlives the process is kept first.
    pub(super) fn begin(&mut self, action: Action) -> u64 {
        let paused = match action {
            Action::Pause => Some(true),
            Action::Resume => Some(false),
            _ => None,
        };
        if let Some(paused) = paused
            && self.dry(action.clone()).is_ok()
        {
            self.own.paused = paused;
            self.live.configure_group(&"g".into(), self.own);
        }
        self.send(Request::Operate(order(action, false)))
    }

    pub(super) fn outcome(&mut self, id: u64) -> Option<Result<Operated, NotDone>> {
        match self.answer(id)? {
            Reply::Operated(outcome) => Some(outcome),
            other => unreachable!("an outcome, not {other:?}"),
        }
    }

    /// Does what is done at once.
    pub(super) fn operate(&mut self, action: Action) -> Result<Operated, NotDone> {
        let id = self.begin(action);
        self.outcome(id).expect("done at once")
    }

    pub(super) fn dry(&mut self, action: Action) -> Result<Operated, NotDone> {
        let id = self.send(Request::Operate(order(action, true)));
        self.outcome(id).expect("a dry run is answered at once")
    }

    pub(super) fn committed(&mut self, partition: i32) -> i64 {
        let fetch = Request::OffsetFetch(OffsetFetch {
            group_id: "g".into(),
            client: Default::default(),
            member_id: None,
            member_epoch: -1,
            topics: Some(vec![FetchTopic {
                topic: TopicRef::Name("t".into()),
                partitions: vec![partition],
            }]),
            by_topic_id: false,
            require_stable: false,
        });
        match self.ask(fetch) {
            Reply::OffsetFetch(reply) => reply.topics[0].partitions[0].offset,
            other => unreachable!("offsets, not {other:?}"),
        }
    }

    pub(super) fn inspect(&mut self) -> Option<Box<Inspected>> {
        match self.ask(Request::Inspect(Inspect::Group("g".into()))) {
            Reply::Inspected(inspected) => inspected.ok(),
            other => unreachable!("what there is, not {other:?}"),
        }
    }

    /// Who is in the group, each with its generation or epoch.
    pub(super) fn here(&mut self) -> Vec<(MemberId, i32)> {
        let members = self.inspect().map(|all| all.members).unwrap_or_default();
        let joined = members
            .into_iter()
            .filter(|member| member.state != "pending");
        joined
            .map(|member| (member.member.member_id, member.epoch))
            .collect()
    }
}

fn order(action: Action, dry_run: bool) -> Operate {
    Operate {
        group_id: "g".into(),
        operator: "operator".into(),
        action,
        dry_run,
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
