//! Members as clients play them: what they own, where they are, what they do when they are told something.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::bench::{Bench, commit};
use crate::group::request::{
    ConsumerHeartbeat, ErrorCode, FetchTopic, Heartbeat, Join, JoinReply, Leave, LeavingMember,
    OffsetFetch, Protocol, Reply, Request, Sync,
};
use crate::group::subscription::{Assignment, Subscription};
use crate::group::types::{Client, InstanceId, MemberId, Millis, TopicId, TopicRef};

pub(super) const PARTITIONS: i32 = 4;
const T: TopicId = TopicId([1; 16]);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Speaks {
    Eager,
    Cooperative,
    Consumer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Out,
    Joining(u64),
    Syncing(u64),
    In,
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) speaks: Speaks,
    pub(super) instance_id: Option<InstanceId>,
    pub(super) member_id: MemberId,
    pub(super) epoch: i32,
    at: At,
    /// Partitions with the position, once it has been fetched.
    pub(super) owned: BTreeMap<i32, Option<i64>>,
    /// What the application has read of partitions that are no longer its own.
    pub(super) old: BTreeMap<i32, (i64, Millis)>,
    now: Millis,
}

impl Member {
    pub(super) fn new(name: &'static str, speaks: Speaks) -> Self {
        Self {
            name,
            speaks,
            instance_id: None,
            member_id: if speaks == Speaks::Consumer {
                name.into()
            } else {
                "".into()
            },
            epoch: 0,
            at: At::Out,
            owned: BTreeMap::new(),
            old: BTreeMap::new(),
            now: Millis::default(),
        }
    }

    pub(super) fn fixed(name: &'static str, speaks: Speaks) -> Self {
        Self {
            instance_id: Some(format!("i-{name}").into()),
            ..Self::new(name, speaks)
        }
    }

    pub(super) fn is_settled(&self) -> bool {
        self.at == At::In
    }

    pub(super) fn partitions(&self) -> Vec<i32> {
        self.owned.keys().copied().collect()
    }

    /// The process is gone without a word; another one may take its name.
    pub(super) fn die(&mut self) {
        let again = Self::new(self.name, self.speaks);
        let instance_id = self.instance_id.take();
        *self = Self {
            instance_id,
            member_id: if self.speaks == Speaks::Consumer {
                format!("{}+", self.member_id).into()
            } else {
                again.member_id.clone()
            },
            ..again
        };
    }

    /// The server that was asked is gone: nobody answers any more.
    pub(super) fn hang_up(&mut self) {
        if matches!(self.at, At::Joining(_) | At::Syncing(_)) {
            self.at = At::Out;
        }
    }

    fn lose_all(&mut self) {
        for (partition, position) in std::mem::take(&mut self.owned) {
            self.old
                .extend(position.map(|position| (partition, (position, self.now))));
        }
    }

    fn client(&self) -> Client {
        Client {
            id: self.name.into(),
            host: "/h".into(),
        }
    }

    /// One thing that a client does when its turn comes.
    pub(super) fn turn(&mut self, world: &mut Bench) {
        self.now = world.now;
        if self.speaks == Speaks::Consumer {
            return self.beat_new(world);
        }
        match self.at {
            At::Out => self.join(world),
            At::Joining(id) => {
                if let Some(Reply::Join(reply)) = world.answer(id) {
                    self.joined(world, reply);
                }
            }
            At::Syncing(id) => {
                if let Some(Reply::Sync(reply)) = world.answer(id) {
                    self.synced(world, reply.error, &reply.assignment);
                }
            }
            At::In => {
                let beat = Request::Heartbeat(Heartbeat {
                    group_id: "g".into(),
                    generation: self.epoch,
                    member_id: self.member_id.clone(),
                    group_instance_id: self.instance_id.clone(),
                });
                match world.ask(beat) {
                    Reply::Heartbeat(ErrorCode::None) => self.fetch(world),
                    Reply::Heartbeat(error) => self.told(world, error),
                    other => unreachable!("{other:?}"),
                }
            }
        }
    }

    fn told(&mut self, world: &mut Bench, error: ErrorCode) {
        match error {
            ErrorCode::RebalanceInProgress => self.join(world),
            ErrorCode::IllegalGeneration => {
                self.lose_all();
                self.epoch = 0;
                self.at = At::Out;
            }
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => {
                self.lose_all();
                self.member_id = "".into();
                self.epoch = 0;
                self.at = At::Out;
            }
            _ => self.at = if self.epoch > 0 { At::In } else { At::Out },
        }
    }

    fn join(&mut self, world: &mut Bench) {
        let owned: Vec<(Arc<str>, Vec<i32>)> = match self.speaks {
            Speaks::Cooperative if !self.owned.is_empty() => vec![("t".into(), self.partitions())],
            _ => Vec::new(),
        };
        if self.speaks == Speaks::Eager {
            // As Java does: commit, then give up everything, then join.
            self.commit_all(world);
            self.lose_all();
        }
        let told = Subscription {
            version: 1,
            topics: vec!["t".into()],
            user_data: None,
            owned,
            generation: self.epoch,
            rack_id: None,
        };
        let name = match self.speaks {
            Speaks::Cooperative => "cooperative-sticky",
            _ => "range",
        };
        let id = world.send(Request::Join(Join {
            group_id: "g".into(),
            client: self.client(),
            session_timeout_ms: 10_000,
            rebalance_timeout_ms: 20_000,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: "consumer".into(),
            protocols: vec![Protocol {
                name: name.into(),
                metadata: told.to_bytes(),
            }],
            reason: None,
            member_id_required: false,
            skip_assignment: true,
        }));
        self.at = At::Joining(id);
    }

    fn joined(&mut self, world: &mut Bench, reply: JoinReply) {
        if reply.error != ErrorCode::None {
            if reply.error == ErrorCode::RebalanceInProgress {
                self.at = At::Out;
                return;
            }
            return self.told(world, reply.error);
        }
        self.member_id = reply.member_id.clone();
        self.epoch = reply.generation;
        let assignments = if reply.skip_assignment {
            Vec::new()
        } else {
            assign(&reply, self.speaks)
        };
        let id = world.send(Request::Sync(Sync {
            group_id: "g".into(),
            generation: self.epoch,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: Some("consumer".into()),
            protocol_name: reply.protocol_name,
            protocol_required: true,
            assignments,
        }));
        self.at = At::Syncing(id);
    }

    fn synced(&mut self, world: &mut Bench, error: ErrorCode, assignment: &Bytes) {
        if error != ErrorCode::None {
            if error == ErrorCode::RebalanceInProgress {
                return self.join(world);
            }
            return self.told(world, error);
        }
        self.at = At::In;
        let given = Assignment::parse(assignment).unwrap_or_else(|| Assignment {
            version: 0,
            partitions: Vec::new(),
            user_data: None,
        });
        let given: Vec<i32> = given.partitions.into_iter().flat_map(|(_, p)| p).collect();
        let revoked = self.give_up(world, &given);
        for partition in given {
            self.owned.entry(partition).or_insert(None);
        }
        if revoked && self.speaks == Speaks::Cooperative {
            self.join(world);
        }
    }

    /// Gives up what is not listed, and commits it before.
    fn give_up(&mut self, world: &mut Bench, kept: &[i32]) -> bool {
        let gone: Vec<i32> = self
            .owned
            .keys()
            .filter(|p| !kept.contains(p))
            .copied()
            .collect();
        for partition in &gone {
            if let Some(position) = self.owned.remove(partition).flatten() {
                world.ask(commit(&self.member_id, self.epoch, *partition, position));
                self.old.insert(*partition, (position, self.now));
            }
        }
        !gone.is_empty()
    }

    /// Learns where to begin.
    fn fetch(&mut self, world: &mut Bench) {
        let wanted: Vec<i32> = self
            .owned
            .iter()
            .filter(|(_, at)| at.is_none())
            .map(|(p, _)| *p)
            .collect();
        for partition in wanted {
            let is_new = self.speaks == Speaks::Consumer;
            let fetch = Request::OffsetFetch(OffsetFetch {
                group_id: "g".into(),
                client: Default::default(),
                member_id: is_new.then(|| self.member_id.clone()),
                member_epoch: if is_new { self.epoch } else { -1 },
                topics: Some(vec![FetchTopic {
                    topic: TopicRef::Name("t".into()),
                    partitions: vec![partition],
                }]),
                by_topic_id: false,
                require_stable: true,
            });
            let Reply::OffsetFetch(reply) = world.ask(fetch) else {
                unreachable!("offsets");
            };
            if reply.error == ErrorCode::None {
                let at = reply.topics[0].partitions[0].offset.max(0);
                self.owned.insert(partition, Some(at));
                self.old.remove(&partition);
            }
        }
    }

    /// Reads some records of each partition.
    pub(super) fn read(&mut self) {
        for position in self.owned.values_mut().flatten() {
            *position += 1;
        }
    }

    pub(super) fn commit_all(&self, world: &mut Bench) {
        if matches!(self.at, At::Joining(_) | At::Syncing(_)) {
            return;
        }
        for (partition, position) in self.owned.clone() {
            if let Some(position) = position {
                world.ask(commit(&self.member_id, self.epoch, partition, position));
            }
        }
    }

    /// The application commits what it has read before a rebalance.
    pub(super) fn commit_old(&self, world: &mut Bench) {
        if self.at != At::In {
            return;
        }
        for (partition, (position, since)) in self.old.clone() {
            // What takes longer than its rebalance timeout has been thrown out.
            let in_time = world.now.since(since) < 20_000;
            if in_time && !self.owned.contains_key(&partition) {
                world.ask(commit(&self.member_id, self.epoch, partition, position));
            }
        }
    }

    pub(super) fn leave(&mut self, world: &mut Bench) {
        if self.speaks == Speaks::Consumer {
            if self.epoch > 0 {
                let epoch = if self.instance_id.is_some() { -2 } else { -1 };
                self.commit_all(world);
                let id = self.send_beat(world, epoch);
                world.answer(id);
                self.lose_all();
                self.old.clear();
                self.epoch = 0;
                self.at = At::Out;
            }
            return;
        }
        if self.at == At::In {
            self.commit_all(world);
            world.ask(Request::Leave(Leave {
                group_id: "g".into(),
                members: vec![LeavingMember {
                    member_id: self.member_id.clone(),
                    group_instance_id: self.instance_id.clone(),
                    reason: None,
                }],
            }));
            self.die();
        }
    }

    fn send_beat(&self, world: &mut Bench, epoch: i32) -> u64 {
        let owned = match epoch {
            0 => Vec::new(),
            _ if self.owned.is_empty() => Vec::new(),
            _ => vec![(T, self.partitions())],
        };
        let beat = Request::ConsumerHeartbeat(ConsumerHeartbeat {
            group_id: "g".into(),
            client: self.client(),
            member_id: self.member_id.clone(),
            member_epoch: epoch,
            instance_id: self.instance_id.clone(),
            rack_id: None,
            rebalance_timeout_ms: 20_000,
            subscribed_topic_names: Some(vec!["t".into()]),
            subscribed_topic_regex: None,
            server_assignor: None,
            topic_partitions: Some(owned),
            member_id_from_client: true,
        });
        world.send(beat)
    }

    fn beat_new(&mut self, world: &mut Bench) {
        let id = match self.at {
            At::Joining(id) => id,
            _ => self.send_beat(world, self.epoch),
        };
        let Some(Reply::ConsumerHeartbeat(reply)) = world.answer(id) else {
            // Who is kept out is told late.
            self.at = At::Joining(id);
            return;
        };
        if self.epoch == 0 {
            self.at = At::Out;
        }
        match reply.error {
            ErrorCode::None => {
                self.epoch = reply.member_epoch;
                self.at = At::In;
                if let Some(assignment) = reply.assignment {
                    let given: Vec<i32> = assignment.into_iter().flat_map(|(_, p)| p).collect();
                    self.give_up(world, &given);
                    for partition in given {
                        self.owned.entry(partition).or_insert(None);
                    }
                }
                self.fetch(world);
            }
            ErrorCode::UnknownMemberId
            | ErrorCode::FencedMemberEpoch
            | ErrorCode::GroupIdNotFound => {
                self.lose_all();
                self.epoch = 0;
                self.at = At::Out;
            }
            _ => {}
        }
    }
}

/// As a leader assigns: evenly; a cooperative one gives nobody what somebody else still owns.
fn assign(reply: &JoinReply, speaks: Speaks) -> Vec<(MemberId, Bytes)> {
    let members = &reply.members;
    if members.is_empty() {
        return Vec::new();
    }
    let owned: Vec<Vec<i32>> = members
        .iter()
        .map(|member| {
            let told = Subscription::parse(&member.metadata).expect("our own metadata");
            told.owned.into_iter().flat_map(|(_, p)| p).collect()
        })
        .collect();
    let most = (PARTITIONS as usize).div_ceil(members.len());
    let mut given: Vec<Vec<i32>> = owned
        .iter()
        .map(|owned| owned.iter().take(most).copied().collect())
        .collect();
    if speaks == Speaks::Eager {
        given.iter_mut().for_each(Vec::clear);
    }
    for partition in 0..PARTITIONS {
        if given.iter().any(|of_it| of_it.contains(&partition)) {
            continue;
        }
        if speaks == Speaks::Cooperative && owned.iter().any(|of_it| of_it.contains(&partition)) {
            continue;
        }
        let least = (0..given.len()).min_by_key(|place| given[*place].len());
        given[least.expect("there are members")].push(partition);
    }
    members
        .iter()
        .zip(given)
        .map(|(member, partitions)| {
            let assignment = Assignment {
                version: 1,
                partitions: vec![("t".into(), partitions)],
                user_data: None,
            };
            (member.member_id.clone(), assignment.to_bytes())
        })
        .collect()
}
