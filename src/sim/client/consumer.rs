//! A consumer of the classic protocol: eager or cooperative, dynamic or static, and all the ways in which its process
//! may fail it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::assignor::{self, Partition};
use super::process::{Process, Turn};
use super::{Asked, Commit, Hands, fetch, named};
use crate::group::request::{
    ErrorCode, Heartbeat, Join, JoinReply, Leave, LeavingMember, Protocol, Reply, Request, Sync,
    SyncReply,
};
use crate::group::subscription::{Assignment, Subscription};
use crate::group::types::{Client, GroupId, InstanceId, MemberId, Topic, TopicId, TopicName};

/// How a consumer is.
#[derive(Clone, Debug)]
pub(in crate::sim) struct Habits {
    pub(in crate::sim) group_id: GroupId,
    pub(in crate::sim) instance_id: Option<InstanceId>,
    pub(in crate::sim) topics: Vec<TopicName>,
    /// In order of preference.
    pub(in crate::sim) protocols: Vec<&'static str>,
    pub(in crate::sim) session_timeout_ms: i32,
    pub(in crate::sim) rebalance_timeout_ms: i32,
    /// Learns its id before it joins (JoinGroup 4 and later).
    pub(in crate::sim) two_steps: bool,
    /// Understands that an assignment can be skipped (JoinGroup 9).
    pub(in crate::sim) skips: bool,
    /// How long it takes to give partitions back, or to share them out.
    pub(in crate::sim) work_ms_max: i64,
    /// Of a thousand looks around, so many end in a mishap.
    pub(in crate::sim) mishaps_per_mille: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Must join.
    Unjoined,
    Joining,
    Syncing,
    Stable,
    /// Was told that it can never be a member.
    GaveUp,
}

/// The consumer.
#[derive(Debug)]
pub(in crate::sim) struct Consumer {
    habits: Habits,
    client: Client,
    process: Process,
    stage: Stage,
    member_id: MemberId,
    generation: i32,
    leads: bool,
    owned: BTreeSet<Partition>,
    /// The topics' ids when it asked for its assignment.
    asked: BTreeMap<TopicName, TopicId>,
    /// The topics' ids when it was assigned.
    ids: BTreeMap<TopicName, TopicId>,
    /// Topics that were made anew while its assignment was on its way.
    uncertain: BTreeSet<TopicName>,
    /// What the leader believed when it assigned.
    counts: BTreeMap<TopicName, Topic>,
    /// It shares out what its group reads, and hands that in at this moment.
    shares_out: Option<(i64, JoinReply)>,
    /// It gives back what it has, and joins at this moment.
    rejoin_at: Option<i64>,
    retry_at: i64,
    heartbeat_at: i64,
    commit_at: i64,
    refresh_at: i64,
    heartbeating: bool,
    committing: bool,
    /// Has looked at everything anew since the faults ended.
    calmed: bool,
}

impl Consumer {
    pub(in crate::sim) fn new(name: &str, habits: Habits) -> Self {
        Self {
            habits,
            client: named(name),
            process: Process::new(),
            stage: Stage::Unjoined,
            member_id: "".into(),
            generation: -1,
            leads: false,
            owned: BTreeSet::new(),
            asked: BTreeMap::new(),
            ids: BTreeMap::new(),
            uncertain: BTreeSet::new(),
            counts: BTreeMap::new(),
            shares_out: None,
            rejoin_at: None,
            retry_at: 0,
            heartbeat_at: 0,
            commit_at: 0,
            refresh_at: 0,
            heartbeating: false,
            committing: false,
            calmed: false,
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

    pub(in crate::sim) fn generation(&self) -> i32 {
        self.generation
    }

    /// What it owns, of topics that it knew when it was assigned.
    pub(in crate::sim) fn owned(&self) -> impl Iterator<Item = (TopicId, i32)> {
        let known = self.owned.iter();
        known.filter_map(|(name, index)| Some((*self.ids.get(name)?, *index)))
    }

    /// What it was given for certain. An assignment names topics: of one that was made anew while the assignment was
    /// on its way, nobody can tell which of the two it is about.
    pub(in crate::sim) fn holds(&self) -> impl Iterator<Item = (TopicId, i32)> {
        let certain = self
            .owned
            .iter()
            .filter(|(name, _)| !self.uncertain.contains(name));
        certain.filter_map(|(name, index)| Some((*self.ids.get(name)?, *index)))
    }

    pub(in crate::sim) fn topics(&self) -> &[TopicName] {
        &self.habits.topics
    }

    /// Whether it keeps its partitions while the group rebalances.
    pub(in crate::sim) fn is_cooperative(&self) -> bool {
        self.habits.protocols == ["cooperative-sticky"]
    }

    pub(in crate::sim) fn is_static(&self) -> bool {
        self.habits.instance_id.is_some()
    }

    /// Whether it is a member that works, as far as it knows.
    pub(in crate::sim) fn is_stable(&self) -> bool {
        self.stage == Stage::Stable
    }

    /// Whether it will never be a member.
    pub(in crate::sim) fn gave_up(&self) -> bool {
        self.stage == Stage::GaveUp
    }

    pub(super) fn patience_ms(&self) -> i64 {
        match self.stage {
            Stage::Joining => i64::from(self.habits.rebalance_timeout_ms.max(0)) + 5_000,
            _ => 5_000,
        }
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
            Turn::Starts => return self.join(h),
            Turn::Runs => {}
        }
        match self.stage {
            Stage::Unjoined if h.now >= self.retry_at => self.join(h),
            Stage::Unjoined => h.wake_by(self.retry_at),
            Stage::Stable => self.work(h),
            Stage::Syncing => self.hand_in(h),
            Stage::Joining | Stage::GaveUp => h.wake_in(5_000),
        }
    }

    /// The process fails its owner.
    fn mishap(&mut self, h: &mut Hands<'_>) {
        let ms = h.rng.between(0, 30_000);
        let session_ms = i64::from(self.habits.session_timeout_ms);
        match h.rng.below(8) {
            0 | 1 => {
                h.trace
                    .tell(|| format!("{}  dies for {ms} ms", self.client.id));
                self.die(ms, h);
            }
            2 if self.stage == Stage::Stable => {
                h.trace
                    .tell(|| format!("{}  leaves for {ms} ms", self.client.id));
                self.leave(h);
                self.die(ms, h);
                h.hang_up = false;
            }
            3 | 4 => {
                let ms = h.rng.between(0, session_ms * 2);
                h.trace
                    .tell(|| format!("{}  hangs for {ms} ms", self.client.id));
                self.process.hang(ms, h);
            }
            5 => h.hang_up = true,
            6 if self.stage == Stage::Stable => {
                // It wants other topics now.
                let all: Vec<TopicName> = h.topics.iter().map(|(name, _)| name.clone()).collect();
                if !all.is_empty() {
                    let count = 1 + h.rng.index(all.len());
                    let mut topics = all;
                    h.rng.shuffle(&mut topics);
                    topics.truncate(count);
                    self.habits.topics = topics;
                    self.rejoin(h);
                }
            }
            _ if self.stage == Stage::Stable => self.rejoin(h),
            _ => {}
        }
    }

    fn die(&mut self, ms: i64, h: &mut Hands<'_>) {
        self.stage = Stage::Unjoined;
        self.forget();
        self.process.die(ms, h);
    }

    /// Its membership is over.
    fn forget(&mut self) {
        self.member_id = "".into();
        self.generation = -1;
        self.leads = false;
        self.owned.clear();
        self.heartbeating = false;
        self.committing = false;
    }

    fn join(&mut self, h: &mut Hands<'_>) {
        let subscription = Subscription {
            version: 3,
            topics: self.habits.topics.clone(),
            user_data: None,
            owned: assignor::by_topic(self.owned.iter().cloned()),
            generation: self.generation,
            rack_id: None,
        }
        .to_bytes();
        let protocols = self.habits.protocols.iter().map(|name| Protocol {
            name: Arc::from(*name),
            metadata: subscription.clone(),
        });
        self.stage = Stage::Joining;
        self.rejoin_at = None;
        self.shares_out = None;
        h.trace.tell(|| {
            format!(
                "{}  joins {} as {:?}",
                self.client.id, self.habits.group_id, self.member_id
            )
        });
        h.send(Request::Join(Join {
            group_id: self.habits.group_id.clone(),
            client: self.client.clone(),
            session_timeout_ms: self.habits.session_timeout_ms,
            rebalance_timeout_ms: self.habits.rebalance_timeout_ms,
            member_id: self.member_id.clone(),
            group_instance_id: self.habits.instance_id.clone(),
            protocol_type: "consumer".into(),
            protocols: protocols.collect(),
            reason: None,
            member_id_required: self.habits.two_steps,
            skip_assignment: self.habits.skips,
        }));
        h.wake_in(self.patience_ms());
    }

    fn rejoin(&mut self, h: &mut Hands<'_>) {
        if !self.is_cooperative() && !self.owned.is_empty() {
            // What is being worked on is committed before it is given back.
            if h.rng.chance(500) {
                self.commit(h);
            }
            self.owned.clear();
        }
        self.join(h);
    }

    /// The partitions are somebody else's by now.
    fn lose(&mut self, error: ErrorCode, h: &mut Hands<'_>) {
        self.owned.clear();
        self.generation = -1;
        self.leads = false;
        if error == ErrorCode::UnknownMemberId {
            self.member_id = "".into();
        }
        self.join(h);
    }

    fn retry(&mut self, h: &mut Hands<'_>) {
        self.stage = Stage::Unjoined;
        self.retry_at = h.now + h.rng.between(50, 500);
        h.wake_by(self.retry_at);
    }

    /// A stable member beats, commits and looks at its topics.
    fn work(&mut self, h: &mut Hands<'_>) {
        if h.calm && !std::mem::replace(&mut self.calmed, true) {
            // A static leader that came back before KIP-814 does not know that it leads.
            return self.rejoin(h);
        }
        if self.rejoin_at.is_some_and(|at| h.now >= at || h.calm) {
            return self.rejoin(h);
        }
        if h.now >= self.refresh_at {
            self.refresh_at = h.now + 3_000;
            if self.leads && self.counts != self.count_partitions(h) {
                return self.rejoin(h);
            }
        }
        if h.now >= self.heartbeat_at {
            self.heartbeat_at = h.now + self.heartbeat_ms();
            if !self.heartbeating {
                self.heartbeating = true;
                h.send(Request::Heartbeat(Heartbeat {
                    group_id: self.habits.group_id.clone(),
                    generation: self.generation,
                    member_id: self.member_id.clone(),
                    group_instance_id: self.habits.instance_id.clone(),
                }));
            }
        }
        if h.now >= self.commit_at {
            self.commit_at = h.now + h.rng.between(200, 5_000);
            if !self.committing && !self.owned.is_empty() {
                self.committing = true;
                self.commit(h);
            }
        }
        let next = self.heartbeat_at.min(self.commit_at).min(self.refresh_at);
        h.wake_by(self.rejoin_at.map_or(next, |at| next.min(at)));
    }

    /// Often enough to hear of a rebalance before the shortest rebalance timeout is over.
    fn heartbeat_ms(&self) -> i64 {
        (i64::from(self.habits.session_timeout_ms) / 3).min(2_500)
    }

    fn count_partitions(&self, h: &Hands<'_>) -> BTreeMap<TopicName, Topic> {
        let known = h.topics.iter();
        known
            .map(|(name, topic)| (name.clone(), topic.clone()))
            .collect()
    }

    fn commit(&self, h: &mut Hands<'_>) {
        let mut partitions: Vec<Partition> = self.owned.iter().cloned().collect();
        h.rng.shuffle(&mut partitions);
        partitions.truncate(1 + h.rng.index(3));
        let request = Commit {
            group_id: &self.habits.group_id,
            client: &self.client,
            member_id: self.member_id.clone(),
            generation: self.generation,
            instance_id: self.habits.instance_id.clone(),
        }
        .of(&partitions, h);
        h.send(request);
    }

    fn leave(&self, h: &mut Hands<'_>) {
        h.send(Request::Leave(Leave {
            group_id: self.habits.group_id.clone(),
            members: vec![LeavingMember {
                member_id: self.member_id.clone(),
                group_instance_id: self.habits.instance_id.clone(),
                reason: None,
            }],
        }));
    }

    /// A reply has come; a frozen process reads it later.
    pub(super) fn hear(&mut self, reply: Reply, h: &mut Hands<'_>) {
        if let Some(reply) = self.process.hear(reply, h) {
            self.read(reply, h);
        }
    }

    fn read(&mut self, reply: Reply, h: &mut Hands<'_>) {
        match reply {
            Reply::Join(reply) if self.stage == Stage::Joining => self.joined(reply, h),
            Reply::Sync(reply) if self.stage == Stage::Syncing => self.synced(&reply, h),
            Reply::Heartbeat(error) => {
                self.heartbeating = false;
                if self.stage == Stage::Stable {
                    self.told(error, h);
                }
            }
            Reply::OffsetCommit(reply) => {
                self.committing = false;
                let first = reply
                    .topics
                    .first()
                    .and_then(|topic| topic.partitions.first());
                let error = first.map_or(ErrorCode::None, |(_, error)| *error);
                let serious = matches!(
                    error,
                    ErrorCode::UnknownMemberId
                        | ErrorCode::IllegalGeneration
                        | ErrorCode::FencedInstanceId
                );
                if self.stage == Stage::Stable && serious {
                    self.told(error, h);
                }
            }
            _ => {}
        }
    }

    /// What becomes of a member that is told this.
    fn told(&mut self, error: ErrorCode, h: &mut Hands<'_>) {
        match error {
            ErrorCode::None => {}
            // What it has in hand is done first; meanwhile it beats and commits.
            ErrorCode::RebalanceInProgress if self.rejoin_at.is_some() => {}
            ErrorCode::RebalanceInProgress if !h.calm && self.habits.work_ms_max > 0 => {
                let at = h.now + h.rng.between(0, self.habits.work_ms_max);
                self.rejoin_at = Some(at);
                h.wake_by(at);
            }
            ErrorCode::RebalanceInProgress => self.rejoin(h),
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => self.lose(error, h),
            ErrorCode::FencedInstanceId => {
                // Another process has its name; an operator starts this one again some day.
                let ms = h.rng.between(1_000, 60_000);
                self.die(ms, h);
            }
            _ => {}
        }
    }

    fn joined(&mut self, reply: JoinReply, h: &mut Hands<'_>) {
        match reply.error {
            ErrorCode::None => {
                self.member_id = reply.member_id.clone();
                self.generation = reply.generation;
                self.leads = reply.leader == reply.member_id;
                h.gossip.hear(
                    &self.habits.group_id,
                    &self.member_id,
                    self.generation,
                    self.habits.instance_id.as_ref(),
                );
                h.trace.tell(|| {
                    format!(
                        "{}  is {} in generation {}{}",
                        self.client.id,
                        self.member_id,
                        self.generation,
                        if self.leads { ", leading" } else { "" }
                    )
                });
                self.stage = Stage::Syncing;
                if !h.calm && h.rng.chance(self.habits.mishaps_per_mille) {
                    // It dies between its join and its sync.
                    let ms = h.rng.between(0, 30_000);
                    return self.die(ms, h);
                }
                if self.leads && !h.calm && self.habits.work_ms_max > 0 {
                    let at = h.now + h.rng.between(0, self.habits.work_ms_max.min(4_000));
                    h.wake_by(at);
                    self.shares_out = Some((at, reply));
                    return;
                }
                self.sync(&reply, h);
            }
            ErrorCode::MemberIdRequired => {
                self.member_id = reply.member_id;
                h.gossip
                    .hear(&self.habits.group_id, &self.member_id, 0, None);
                self.join(h);
            }
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => self.lose(reply.error, h),
            ErrorCode::FencedInstanceId => self.told(reply.error, h),
            ErrorCode::GroupMaxSizeReached | ErrorCode::InconsistentGroupProtocol => {
                self.forget();
                if h.calm {
                    self.stage = Stage::GaveUp;
                } else {
                    self.retry(h);
                }
            }
            _ => self.retry(h),
        }
    }

    /// The leader has shared out, or waits with everybody else.
    fn hand_in(&mut self, h: &mut Hands<'_>) {
        match self.shares_out.take() {
            Some((at, reply)) if h.now >= at || h.calm => self.sync(&reply, h),
            Some((at, reply)) => {
                h.wake_by(at);
                self.shares_out = Some((at, reply));
            }
            None => h.wake_in(5_000),
        }
    }

    fn sync(&mut self, reply: &JoinReply, h: &mut Hands<'_>) {
        let cooperative = reply.protocol_name.as_deref() == Some("cooperative-sticky");
        let assignments = if self.leads && !reply.skip_assignment && !reply.members.is_empty() {
            self.counts = self.count_partitions(h);
            assignor::assign(&reply.members, h.topics, cooperative)
        } else {
            Vec::new()
        };
        if self.leads && reply.skip_assignment {
            // It does not know what was assigned to whom: it looks at its topics anew.
            self.counts.clear();
        }
        self.asked = known_ids(h);
        h.send(Request::Sync(Sync {
            group_id: self.habits.group_id.clone(),
            generation: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.habits.instance_id.clone(),
            // Older versions of JoinGroup do not tell what the client knows anyway.
            protocol_type: Some("consumer".into()),
            protocol_name: reply.protocol_name.clone(),
            protocol_required: self.habits.skips,
            assignments,
        }));
        h.wake_in(self.patience_ms());
    }

    fn synced(&mut self, reply: &SyncReply, h: &mut Hands<'_>) {
        match reply.error {
            ErrorCode::None => {
                let assigned = Assignment::parse(&reply.assignment)
                    .map(|assignment| assignor::flat(&assignment.partitions))
                    .unwrap_or_default();
                h.trace.tell(|| {
                    let held: Vec<_> = assigned.iter().map(|(t, p)| format!("{t}-{p}")).collect();
                    format!("{}  holds {}", self.client.id, held.join(" "))
                });
                let revokes = self.is_cooperative() && !self.owned.is_subset(&assigned);
                let added: Vec<Partition> = assigned.difference(&self.owned).cloned().collect();
                self.owned = assigned;
                self.ids = known_ids(h);
                let given = self.owned.iter().map(|(name, _)| name);
                let other = |name: &&TopicName| self.asked.get(*name) != self.ids.get(*name);
                self.uncertain = given.filter(other).cloned().collect();
                self.stage = Stage::Stable;
                self.heartbeating = false;
                self.committing = false;
                self.heartbeat_at = h.now + self.heartbeat_ms();
                self.commit_at = h.now + h.rng.between(0, 2_000);
                self.refresh_at = h.now + h.rng.between(0, 3_000);
                if revokes {
                    return self.rejoin(h);
                }
                if !added.is_empty() {
                    h.send(fetch(&self.habits.group_id, &self.client, &added));
                }
                h.wake_by(self.commit_at.min(self.refresh_at));
            }
            ErrorCode::RebalanceInProgress => self.rejoin(h),
            ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration => self.lose(reply.error, h),
            ErrorCode::FencedInstanceId => self.told(reply.error, h),
            _ => self.retry(h),
        }
    }

    /// The connection is gone and a request with it.
    pub(super) fn lost(&mut self, asked: Asked, h: &mut Hands<'_>) {
        match asked {
            Asked::Join | Asked::Sync if matches!(self.stage, Stage::Joining | Stage::Syncing) => {
                self.retry(h);
            }
            Asked::Heartbeat => self.heartbeating = false,
            Asked::Commit => self.committing = false,
            _ => {}
        }
    }
}

/// The ids that topics have now.
fn known_ids(h: &Hands<'_>) -> BTreeMap<TopicName, TopicId> {
    let topics = h.topics.iter();
    topics
        .map(|(name, topic)| (name.clone(), topic.id))
        .collect()
}
