//! A consumer of the consumer protocol (KIP-848): it heartbeats, gives back what it is told to, and says so; and all the
//! ways in which its process may fail it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::pattern;
use super::process::{Process, Turn};
use super::{Asked, Commit, Hands, fetch, named};
use crate::group::request::{
    ConsumerHeartbeat, ConsumerHeartbeatReply, ErrorCode, IdPartitions, Reply, Request,
};
use crate::group::types::{Client, GroupId, InstanceId, MemberId, TopicId, TopicName, Topics};

/// One partition of a topic under an id.
pub(in crate::sim) type IdPartition = (TopicId, i32);

/// How a consumer is.
#[derive(Clone, Debug)]
pub(in crate::sim) struct ModernHabits {
    pub(in crate::sim) group_id: GroupId,
    pub(in crate::sim) instance_id: Option<InstanceId>,
    pub(in crate::sim) topics: Vec<TopicName>,
    pub(in crate::sim) regex: Option<&'static str>,
    pub(in crate::sim) assignor: Option<&'static str>,
    pub(in crate::sim) rebalance_timeout_ms: i32,
    /// How long it takes to give partitions back.
    pub(in crate::sim) revocation_ms_max: i64,
    /// It chooses its member id itself, and may subscribe to patterns (ConsumerGroupHeartbeat 1 and later).
    pub(in crate::sim) names_itself: bool,
    pub(in crate::sim) mishaps_per_mille: u64,
}

/// The consumer.
#[derive(Debug)]
pub(in crate::sim) struct Modern {
    habits: ModernHabits,
    client: Client,
    process: Process,
    gave_up: bool,
    lives: u64,
    member_id: MemberId,
    epoch: i32,
    owned: BTreeSet<IdPartition>,
    target: BTreeSet<IdPartition>,
    /// What it owns has changed since the server was told.
    reports: bool,
    /// Tells everything with the next heartbeat.
    tells: bool,
    reconcile_at: Option<i64>,
    heartbeat_at: i64,
    interval_ms: i64,
    commit_at: i64,
    beating: bool,
    committing: bool,
}

pub(super) fn flat(list: &[(TopicId, Vec<i32>)]) -> BTreeSet<IdPartition> {
    list.iter()
        .flat_map(|(id, partitions)| partitions.iter().map(|index| (*id, *index)))
        .collect()
}

fn by_topic(partitions: &BTreeSet<IdPartition>) -> IdPartitions {
    let mut topics: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for (id, index) in partitions {
        topics.entry(*id).or_default().push(*index);
    }
    topics.into_iter().collect()
}

impl Modern {
    pub(in crate::sim) fn new(name: &str, habits: ModernHabits) -> Self {
        Self {
            habits,
            client: named(name),
            process: Process::new(),
            gave_up: false,
            lives: 0,
            member_id: "".into(),
            epoch: 0,
            owned: BTreeSet::new(),
            target: BTreeSet::new(),
            reports: false,
            tells: true,
            reconcile_at: None,
            heartbeat_at: 0,
            interval_ms: 2_000,
            commit_at: 0,
            beating: false,
            committing: false,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.client.id
    }

    pub(in crate::sim) fn group_id(&self) -> &GroupId {
        &self.habits.group_id
    }

    pub(in crate::sim) fn member_id(&self) -> &MemberId {
        &self.member_id
    }

    pub(in crate::sim) fn epoch(&self) -> i32 {
        self.epoch
    }

    pub(in crate::sim) fn owned(&self) -> &BTreeSet<IdPartition> {
        &self.owned
    }

    /// Whether it has what it was told to have, and nothing is under way.
    pub(in crate::sim) fn is_stable(&self) -> bool {
        !self.process.is_away()
            && self.epoch > 0
            && self.reconcile_at.is_none()
            && self.owned == self.target
    }

    pub(in crate::sim) fn gave_up(&self) -> bool {
        self.gave_up
    }

    /// Whether it subscribes to a topic.
    pub(in crate::sim) fn wants(&self, topic: &TopicName) -> bool {
        let matches = |regex| pattern::matches(regex, topic);
        self.habits.topics.contains(topic) || self.habits.regex.is_some_and(matches)
    }

    pub(super) fn wake(&mut self, h: &mut Hands<'_>) {
        if self.process.hangs(h) {
            return;
        }
        while let Some(reply) = self.process.unread() {
            self.read(reply, h);
        }
        let mishaps = self.habits.mishaps_per_mille;
        if !h.calm && h.rng.chance(mishaps) {
            self.mishap(h);
        }
        match self.process.turn(h) {
            Turn::Away => return,
            Turn::Starts => {
                self.lives += 1;
                self.member_id = if self.habits.names_itself {
                    Arc::from(format!("{}-{}", self.client.id, self.lives))
                } else {
                    Arc::from("")
                };
                self.start_over();
            }
            Turn::Runs => {}
        }
        if !self.gave_up {
            self.work(h);
        }
    }

    fn mishap(&mut self, h: &mut Hands<'_>) {
        let ms = h.rng.between(0, 30_000);
        match h.rng.below(8) {
            0 | 1 => {
                h.trace
                    .tell(|| format!("{}  dies for {ms} ms", self.client.id));
                self.die(ms, h);
            }
            2 if self.epoch > 0 => {
                let epoch = if self.habits.instance_id.is_some() && h.rng.chance(700) {
                    -2
                } else {
                    -1
                };
                h.trace
                    .tell(|| format!("{}  leaves with {epoch}", self.client.id));
                self.epoch = epoch;
                self.beat(h);
                self.die(ms, h);
                // Without a name of its own it could not tell a late answer from one to its next life.
                h.hang_up = !self.habits.names_itself;
            }
            3 | 4 => {
                let ms = h.rng.between(0, 16_000);
                h.trace
                    .tell(|| format!("{}  hangs for {ms} ms", self.client.id));
                self.process.hang(ms, h);
            }
            5 => h.hang_up = true,
            6 => {
                let mut topics: Vec<TopicName> =
                    h.topics.iter().map(|(name, _)| name.clone()).collect();
                h.rng.shuffle(&mut topics);
                topics.truncate(h.rng.index(topics.len() + 1));
                self.habits.topics = topics;
                self.tells = true;
            }
            7 if self.habits.names_itself => {
                self.habits.regex = *h.rng.pick(&[None, Some("t.*"), Some("t[01]"), Some("t2")]);
                self.tells = true;
            }
            _ => {}
        }
    }

    fn die(&mut self, ms: i64, h: &mut Hands<'_>) {
        self.start_over();
        self.process.die(ms, h);
    }

    /// It owns nothing and joins anew.
    fn start_over(&mut self) {
        self.epoch = 0;
        self.owned.clear();
        self.target.clear();
        self.reconcile_at = None;
        self.tells = true;
        self.heartbeat_at = 0;
        self.beating = false;
        self.committing = false;
    }

    fn work(&mut self, h: &mut Hands<'_>) {
        if self.reconcile_at.is_some_and(|at| h.now >= at) {
            self.reconcile_at = None;
            self.owned = self.target.clone();
            self.reports = true;
            self.heartbeat_at = h.now;
        }
        if !self.beating && h.now >= self.heartbeat_at {
            self.beat(h);
        }
        if self.epoch > 0 && h.now >= self.commit_at {
            self.commit_at = h.now + h.rng.between(200, 5_000);
            if !self.committing && !self.owned.is_empty() {
                self.commit(h);
            }
        }
        h.wake_by(self.heartbeat_at.max(h.now + 1));
        if let Some(at) = self.reconcile_at {
            h.wake_by(at);
        }
        if self.epoch > 0 {
            h.wake_by(self.commit_at);
        }
    }

    fn beat(&mut self, h: &mut Hands<'_>) {
        let joins = self.epoch == 0;
        let tells = joins || self.tells;
        let reports = tells || self.reports;
        self.beating = true;
        self.heartbeat_at = h.now + self.interval_ms;
        h.send(Request::ConsumerHeartbeat(ConsumerHeartbeat {
            group_id: self.habits.group_id.clone(),
            client: self.client.clone(),
            member_id: self.member_id.clone(),
            member_epoch: self.epoch,
            instance_id: self.habits.instance_id.clone(),
            rack_id: None,
            rebalance_timeout_ms: if tells {
                self.habits.rebalance_timeout_ms
            } else {
                -1
            },
            subscribed_topic_names: tells.then(|| self.habits.topics.clone()),
            subscribed_topic_regex: (tells && self.habits.names_itself)
                .then(|| Arc::from(self.habits.regex.unwrap_or(""))),
            server_assignor: self.habits.assignor.filter(|_| tells).map(Arc::from),
            topic_partitions: reports.then(|| {
                if joins {
                    Vec::new()
                } else {
                    by_topic(&self.owned)
                }
            }),
            member_id_from_client: self.habits.names_itself,
        }));
        self.tells = false;
        self.reports = false;
    }

    fn commit(&mut self, h: &mut Hands<'_>) {
        let names: Vec<(TopicName, i32)> = self
            .owned
            .iter()
            .filter_map(|(id, index)| Some((h.topics.name_of(*id)?.clone(), *index)))
            .take(3)
            .collect();
        if names.is_empty() {
            return;
        }
        self.committing = true;
        let request = Commit {
            group_id: &self.habits.group_id,
            client: &self.client,
            member_id: self.member_id.clone(),
            generation: self.epoch,
            instance_id: self.habits.instance_id.clone(),
        }
        .of(&names, h);
        let request = match request {
            Request::OffsetCommit(mut request) => {
                // Older versions cannot be spoken by its members.
                request.consumer_errors = true;
                request.retention_time_ms = None;
                Request::OffsetCommit(request)
            }
            other => other,
        };
        h.send(request);
    }

    /// It reads where those before it have come to, as a member of its epoch.
    fn fetch_added(&self, h: &mut Hands<'_>) {
        let added = self.target.difference(&self.owned);
        let names: Vec<(TopicName, i32)> = added
            .filter_map(|(id, index)| Some((h.topics.name_of(*id)?.clone(), *index)))
            .collect();
        if let Request::OffsetFetch(mut request) =
            fetch(&self.habits.group_id, &self.client, &names)
        {
            request.member_id = Some(self.member_id.clone());
            request.member_epoch = self.epoch;
            h.send(Request::OffsetFetch(request));
        }
    }

    pub(super) fn hear(&mut self, reply: Reply, h: &mut Hands<'_>) {
        if let Some(reply) = self.process.hear(reply, h) {
            self.read(reply, h);
        }
    }

    fn read(&mut self, reply: Reply, h: &mut Hands<'_>) {
        match reply {
            Reply::ConsumerHeartbeat(reply) if !self.gave_up => {
                self.beating = false;
                self.told(&reply, h);
            }
            Reply::OffsetCommit(_) => self.committing = false,
            _ => {}
        }
    }

    fn told(&mut self, reply: &ConsumerHeartbeatReply, h: &mut Hands<'_>) {
        if self.member_id.is_empty()
            && let Some(member_id) = &reply.member_id
        {
            self.member_id = member_id.clone();
        }
        match reply.error {
            ErrorCode::None if reply.member_id.as_ref() == Some(&self.member_id) => {
                if reply.member_epoch < 0 {
                    return;
                }
                self.epoch = reply.member_epoch;
                self.interval_ms = i64::from(reply.heartbeat_interval_ms).max(100);
                h.gossip.hear(
                    &self.habits.group_id,
                    &self.member_id,
                    self.epoch,
                    self.habits.instance_id.as_ref(),
                );
                if let Some(assignment) = &reply.assignment {
                    self.assigned(flat(assignment), h);
                }
                self.heartbeat_at = self.heartbeat_at.min(h.now + self.interval_ms);
                h.wake_by(self.heartbeat_at);
            }
            // Meant for an earlier life.
            ErrorCode::None => {}
            ErrorCode::FencedMemberEpoch
            | ErrorCode::UnknownMemberId
            | ErrorCode::GroupIdNotFound => {
                h.trace
                    .tell(|| format!("{}  is fenced: {}", self.client.id, reply.error.name()));
                self.start_over();
                self.retry(100, h);
            }
            ErrorCode::FencedInstanceId => {
                let ms = h.rng.between(1_000, 60_000);
                self.die(ms, h);
            }
            ErrorCode::GroupMaxSizeReached if h.calm => {
                self.start_over();
                self.gave_up = true;
            }
            _ => {
                self.tells = true;
                self.retry(1_000, h);
            }
        }
    }

    fn retry(&mut self, ms: i64, h: &mut Hands<'_>) {
        self.heartbeat_at = h.now + h.rng.between(ms / 2, ms);
        h.wake_by(self.heartbeat_at);
    }

    fn assigned(&mut self, assignment: BTreeSet<IdPartition>, h: &mut Hands<'_>) {
        h.trace.tell(|| {
            let held: Vec<String> = assignment
                .iter()
                .map(|(id, p)| format!("{:02x}-{p}", id.0[15]))
                .collect();
            format!(
                "{}  shall hold {} in epoch {}",
                self.client.id,
                held.join(" "),
                self.epoch
            )
        });
        self.target = assignment;
        if self.owned.is_subset(&self.target) {
            if self.owned != self.target {
                self.fetch_added(h);
                self.owned = self.target.clone();
                self.reports = true;
                self.heartbeat_at = h.now;
            }
        } else if self.reconcile_at.is_none() {
            let ms = if h.calm {
                1
            } else {
                h.rng.between(0, self.habits.revocation_ms_max)
            };
            self.reconcile_at = Some(h.now + ms);
            h.wake_in(ms);
        }
    }

    pub(super) fn lost(&mut self, asked: Asked, h: &mut Hands<'_>) {
        match asked {
            Asked::ConsumerHeartbeat => {
                self.beating = false;
                // Who does not know what was heard says everything again.
                self.tells = true;
                if !self.process.is_away() && !self.gave_up {
                    self.retry(300, h);
                }
            }
            Asked::Commit => self.committing = false,
            _ => {}
        }
    }
}

/// The partitions that a subscription asks for.
pub(in crate::sim) fn wanted(consumer: &Modern, topics: &Topics) -> BTreeSet<IdPartition> {
    topics
        .iter()
        .filter(|(name, _)| consumer.wants(name))
        .flat_map(|(_, topic)| (0..topic.partitions).map(|index| (topic.id, index)))
        .collect()
}
