//! A classic group while it has members: who they are, what phase it is in, who is parked.
//!
//! Soft state: it dies with the process, except for what the last GroupMetadata record says. Here are its operations
//! on itself; decisions, records and replies are in the files beside this one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::group::memory::{self, GroupMemory, Tally};
use crate::group::operate::Clearing;
use crate::group::operator::MemberRef;
use crate::group::record::{ClassicMemberValue, ConsumerMemberValue, GroupMemberValue, GroupValue};
use crate::group::request::{ErrorCode, JoinedMember, Protocol, RequestId};
use crate::group::subscription;
use crate::group::timers::Timer;
use crate::group::types::{Client, InstanceId, MemberId, Millis, TopicName};

/// Recorded instead of the leader of a generation in which members lack something by an operator's order, or which has
/// yet to be assigned after one: whoever loads the record knows nothing of the order, and has the group gather anew.
pub(in crate::group) const BY_ORDER: &str = "";

/// Where a group stands. Kafka's Dead does not exist here: a group that is gone is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::group) enum Phase {
    /// No members; perhaps ids that were handed out.
    Empty,
    /// Collects joins.
    PreparingRebalance,
    /// Joins are answered; waits for the leader's SyncGroup.
    CompletingRebalance,
    /// Every member can have its assignment.
    Stable,
}

impl Phase {
    /// Kafka's text for it.
    pub(in crate::group) const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
        }
    }
}

/// The rest of an initial rebalance delay.
#[derive(Clone, Copy, Debug)]
pub(super) struct InitialDelay {
    /// How long the running wait is.
    pub(super) delay_ms: i64,
    /// How much longer the group may be kept waiting after it.
    pub(super) remaining_ms: i64,
}

/// A member.
#[derive(Debug, Default)]
pub(in crate::group) struct Member {
    pub(super) instance_id: Option<InstanceId>,
    pub(super) client: Client,
    pub(super) session_timeout_ms: i32,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) protocols: Vec<Protocol>,
    pub(super) assignment: Bytes,
    /// The JoinGroup that waits for the join phase to end.
    pub(super) join: Option<RequestId>,
    /// The SyncGroup that waits for the leader's.
    pub(super) sync: Option<RequestId>,
    /// Has not synced in this generation. [`Group::owe_syncs`] and [`Group::has_synced`] keep count.
    pub(super) owes_sync: bool,
    /// Its first join has not been answered: even a parked join does not keep it past the new-member limit.
    pub(super) is_new: bool,
    /// When its session ends. A heartbeat only moves this.
    pub(super) session_deadline: Millis,
    /// When its session timer will look; `None` if it is not armed.
    pub(super) session_armed: Option<Millis>,
}

impl Member {
    /// Its metadata for a protocol; empty if it does not list it.
    fn metadata(&self, protocol: &str) -> Bytes {
        self.protocols
            .iter()
            .find(|p| &*p.name == protocol)
            .map_or_else(Bytes::new, |p| p.metadata.clone())
    }
}

/// A classic group with members, or with ids handed out.
#[derive(Debug)]
pub(in crate::group) struct Group {
    pub(super) phase: Phase,
    /// Set while the group gathers after having been Empty.
    pub(super) initial: Option<InitialDelay>,
    /// Another member came during the running initial delay.
    pub(super) new_member_added: bool,
    pub(super) generation: i32,
    pub(super) protocol_type: Arc<str>,
    pub(super) protocol: Option<Arc<str>>,
    pub(super) leader: Option<MemberId>,
    pub(super) state_timestamp: Millis,
    members: BTreeMap<MemberId, Member>,
    statics: BTreeMap<InstanceId, MemberId>,
    /// Ids that were handed out and not used yet: until when they are good.
    pub(super) pending: BTreeMap<MemberId, Millis>,
    /// Those of them that the join phase waits for.
    pub(super) awaited: BTreeSet<MemberId>,
    /// For each protocol, how many members list it.
    supported: BTreeMap<Arc<str>, usize>,
    awaiting_join: usize,
    owing_sync: usize,
    /// Topics of the running generation's members; `None` if some metadata could not be read.
    subscribed: Option<BTreeSet<TopicName>>,
    /// How far it has come in taking what members must not own.
    pub(in crate::group) clearing: Clearing,
    /// Members of this generation lack what an operator's order withholds.
    pub(in crate::group) is_partial: bool,
    /// What the members weigh.
    weight: usize,
    tally: Tally,
}

impl Group {
    /// A group without members that continues from what is recorded of it.
    pub(super) fn empty(recorded: Option<&GroupValue>) -> Self {
        Self {
            phase: Phase::Empty,
            initial: None,
            new_member_added: false,
            generation: recorded.map_or(0, |value| value.generation),
            protocol_type: recorded
                .map_or_else(|| Arc::from(""), |value| value.protocol_type.clone()),
            protocol: None,
            leader: None,
            state_timestamp: recorded.map_or(Millis(-1), |value| value.current_state_timestamp),
            members: BTreeMap::new(),
            statics: BTreeMap::new(),
            pending: BTreeMap::new(),
            awaited: BTreeSet::new(),
            supported: BTreeMap::new(),
            awaiting_join: 0,
            owing_sync: 0,
            subscribed: None,
            clearing: Clearing::default(),
            is_partial: false,
            weight: 0,
            tally: Tally::default(),
        }
    }

    /// Counts what it takes of the memory.
    pub(super) fn count(&mut self, memory: &Arc<GroupMemory>) {
        let pending = self.pending.len() * memory::PENDING;
        self.tally.set(memory, self.weight + pending);
    }

    /// What a member weighs, by its id or that of its instance.
    pub(in crate::group) fn weight_of(
        &self,
        member_id: &str,
        instance_id: Option<&InstanceId>,
    ) -> usize {
        let of_instance = || self.statics.get(instance_id?).map(|id| &**id);
        let found = |id: &str| Some(weight(self.members.get(id)?));
        found(member_id)
            .or_else(|| found(of_instance()?))
            .unwrap_or(0)
    }

    /// A group as recorded: Stable, every member able to follow the recorded protocol only.
    pub(super) fn loaded(value: &GroupValue) -> Self {
        let mut group = Self::empty(Some(value));
        for member in &value.members {
            let protocol = value.protocol.clone().unwrap_or_else(|| Arc::from(""));
            let rebalance_timeout_ms = if member.rebalance_timeout_ms > 0 {
                member.rebalance_timeout_ms
            } else {
                member.session_timeout_ms
            };
            group.insert(
                member.member_id.clone(),
                Member {
                    instance_id: member.group_instance_id.clone(),
                    client: member.client.clone(),
                    session_timeout_ms: member.session_timeout_ms,
                    rebalance_timeout_ms,
                    protocols: vec![Protocol {
                        name: protocol,
                        metadata: member.subscription.clone(),
                    }],
                    assignment: member.assignment.clone(),
                    ..Member::default()
                },
            );
        }
        group.protocol_type = value.protocol_type.clone();
        group.protocol = value.protocol.clone();
        if value.leader.as_deref().is_some_and(|id| id != BY_ORDER) {
            group.leader = value.leader.clone();
        }
        group.phase = Phase::Stable;
        group.compute_subscribed();
        group
    }

    /// A group that was a consumer group: Stable, of consumers, without members so far.
    pub(in crate::group) fn settled(generation: i32, now: Millis) -> Self {
        let mut group = Self::empty(None);
        group.phase = Phase::Stable;
        group.generation = generation;
        group.protocol_type = Arc::from("consumer");
        group.state_timestamp = now;
        group
    }

    /// Adds a member of that consumer group, with what it has.
    pub(in crate::group) fn admit_settled(
        &mut self,
        member_id: &MemberId,
        told: &ConsumerMemberValue,
        classic: &ClassicMemberValue,
        assignment: Bytes,
    ) {
        self.insert(
            member_id.clone(),
            Member {
                instance_id: told.instance_id.clone(),
                client: told.client.clone(),
                session_timeout_ms: classic.session_timeout_ms,
                rebalance_timeout_ms: told.rebalance_timeout_ms,
                protocols: classic.protocols.clone(),
                assignment,
                ..Member::default()
            },
        );
    }

    /// All members of that consumer group are here: they choose their protocol.
    pub(in crate::group) fn choose_protocol(&mut self) {
        self.protocol = self.vote();
        self.compute_subscribed();
    }

    /// What a record says of the group as it is now.
    pub(in crate::group) fn value(&self) -> GroupValue {
        let protocol = self.protocol.as_deref().unwrap_or("");
        GroupValue {
            protocol_type: self.protocol_type.clone(),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: if self.is_partial {
                Some(BY_ORDER.into())
            } else {
                self.leader.clone()
            },
            current_state_timestamp: self.state_timestamp,
            members: self
                .members
                .iter()
                .map(|(member_id, member)| GroupMemberValue {
                    member_id: member_id.clone(),
                    group_instance_id: member.instance_id.clone(),
                    client: member.client.clone(),
                    rebalance_timeout_ms: member.rebalance_timeout_ms,
                    session_timeout_ms: member.session_timeout_ms,
                    subscription: member.metadata(protocol),
                    assignment: member.assignment.clone(),
                })
                .collect(),
        }
    }

    pub(in crate::group) fn phase(&self) -> Phase {
        self.phase
    }

    pub(in crate::group) fn protocol_type(&self) -> &Arc<str> {
        &self.protocol_type
    }

    pub(in crate::group) fn protocol(&self) -> Option<&Arc<str>> {
        self.protocol.as_ref()
    }

    pub(in crate::group) fn generation(&self) -> i32 {
        self.generation
    }

    pub(in crate::group) fn members(&self) -> impl ExactSizeIterator<Item = (&MemberId, &Member)> {
        self.members.iter()
    }

    /// Whether a timer of this group is armed for something.
    pub(in crate::group) fn awaits(&self, timer: &Timer) -> bool {
        match timer {
            Timer::Session(_, member_id) => self.members.contains_key(member_id),
            Timer::PendingMember(_, member_id) => self.pending.contains_key(member_id),
            Timer::Join(_) => self.phase == Phase::PreparingRebalance,
            Timer::Sync(_) => !self.all_synced(),
            _ => false,
        }
    }

    /// The ids that were handed out and not used yet.
    pub(in crate::group) fn pending_ids(&self) -> Vec<MemberId> {
        self.pending.keys().cloned().collect()
    }

    pub(in crate::group) fn member_count(&self) -> usize {
        self.members.len()
    }

    /// Nobody is here and no id is handed out: what is recorded says it all.
    pub(super) fn is_vacant(&self) -> bool {
        self.phase == Phase::Empty && self.members.is_empty() && self.pending.is_empty()
    }

    pub(in crate::group) fn has(&self, member_id: &str) -> bool {
        self.members.contains_key(member_id)
    }

    pub(in crate::group) fn member(&self, member_id: &str) -> Option<&Member> {
        self.members.get(member_id)
    }

    pub(super) fn member_mut(&mut self, member_id: &str) -> Option<&mut Member> {
        self.members.get_mut(member_id)
    }

    pub(super) fn members_mut(&mut self) -> impl Iterator<Item = (&MemberId, &mut Member)> {
        self.members.iter_mut()
    }

    pub(in crate::group) fn member_ids(&self) -> Vec<MemberId> {
        self.members.keys().cloned().collect()
    }

    pub(super) fn static_member(&self, instance_id: &str) -> Option<&MemberId> {
        self.statics.get(instance_id)
    }

    pub(in crate::group) fn is_leader(&self, member_id: &str) -> bool {
        self.leader.as_deref() == Some(member_id)
    }

    /// Adds a member; the first one of a leaderless group leads it and brings its protocol type.
    pub(super) fn insert(&mut self, member_id: MemberId, member: Member) {
        if self.leader.is_none() {
            self.leader = Some(member_id.clone());
        }
        if let Some(instance_id) = &member.instance_id {
            self.statics.insert(instance_id.clone(), member_id.clone());
        }
        self.count_protocols(&member.protocols, true);
        self.weight += weight(&member);
        self.awaiting_join += usize::from(member.join.is_some());
        self.members.insert(member_id, member);
    }

    /// Takes a member out; leadership passes to another one.
    pub(super) fn remove(&mut self, member_id: &str) -> Option<Member> {
        let member = self.members.remove(member_id)?;
        self.weight -= weight(&member);
        self.awaiting_join -= usize::from(member.join.is_some());
        self.owing_sync -= usize::from(member.owes_sync);
        self.count_protocols(&member.protocols, false);
        if let Some(instance_id) = &member.instance_id {
            self.statics.remove(instance_id);
        }
        if self.is_leader(member_id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// Gives a static member its next id; leadership goes along.
    pub(super) fn replace(&mut self, old: &str, new: MemberId) {
        let was_leader = self.is_leader(old);
        let Some(member) = self.members.remove(old) else {
            return;
        };
        if let Some(instance_id) = &member.instance_id {
            self.statics.insert(instance_id.clone(), new.clone());
        }
        if was_leader {
            self.leader = Some(new.clone());
        }
        self.members.insert(new, member);
    }

    /// Parks a JoinGroup, or takes the parked one out; returns the one that was there.
    pub(super) fn park_join(
        &mut self,
        member_id: &str,
        join: Option<RequestId>,
    ) -> Option<RequestId> {
        let member = self.members.get_mut(member_id)?;
        let before = std::mem::replace(&mut member.join, join);
        self.awaiting_join -= usize::from(before.is_some());
        self.awaiting_join += usize::from(join.is_some());
        before
    }

    /// Takes new protocols and timeouts for a member.
    pub(super) fn update(
        &mut self,
        member_id: &str,
        protocols: Vec<Protocol>,
        session_timeout_ms: i32,
        rebalance_timeout_ms: i32,
    ) {
        let Some(member) = self.members.get_mut(member_id) else {
            return;
        };
        member.session_timeout_ms = session_timeout_ms;
        member.rebalance_timeout_ms = rebalance_timeout_ms;
        let before = std::mem::replace(&mut member.protocols, protocols);
        self.weight += memory::protocols(&member.protocols);
        self.weight -= memory::protocols(&before);
        self.count_protocols(&before, false);
        let now = std::mem::take(
            &mut self
                .members
                .get_mut(member_id)
                .expect("found above")
                .protocols,
        );
        self.count_protocols(&now, true);
        self.members
            .get_mut(member_id)
            .expect("found above")
            .protocols = now;
    }

    fn count_protocols(&mut self, protocols: &[Protocol], more: bool) {
        for protocol in protocols {
            if more {
                *self.supported.entry(protocol.name.clone()).or_insert(0) += 1;
            } else if let Some(count) = self.supported.get_mut(&protocol.name) {
                *count -= 1;
                if *count == 0 {
                    self.supported.remove(&protocol.name);
                }
            }
        }
    }

    pub(super) fn awaiting_join(&self) -> usize {
        self.awaiting_join
    }

    /// Whether the join phase has nobody left to wait for.
    pub(super) fn all_joined(&self) -> bool {
        self.awaiting_join == self.members.len() && self.awaited.is_empty()
    }

    /// From now on every member owes a SyncGroup, or none does.
    pub(super) fn owe_syncs(&mut self, owe: bool) {
        for member in self.members.values_mut() {
            member.owes_sync = owe;
        }
        self.owing_sync = if owe { self.members.len() } else { 0 };
    }

    /// A member has sent its SyncGroup.
    pub(super) fn has_synced(&mut self, member_id: &str) {
        if let Some(member) = self.members.get_mut(member_id) {
            self.owing_sync -= usize::from(std::mem::take(&mut member.owes_sync));
        }
    }

    /// Whether everybody has sent its SyncGroup.
    pub(super) fn all_synced(&self) -> bool {
        self.owing_sync == 0
    }

    /// Those who have not sent their SyncGroup.
    pub(super) fn silent_members(&self) -> Vec<MemberId> {
        let silent = self.members.iter().filter(|(_, member)| member.owes_sync);
        silent.map(|(member_id, _)| member_id.clone()).collect()
    }

    /// The group's rebalance timeout: its members' longest.
    pub(super) fn rebalance_timeout_ms(&self) -> i64 {
        self.members
            .values()
            .map(|m| i64::from(m.rebalance_timeout_ms))
            .max()
            .unwrap_or(0)
    }

    /// The topics that members subscribe to, as far as they are known.
    pub(in crate::group) fn subscribed(&self) -> impl Iterator<Item = &TopicName> {
        self.subscribed.iter().flatten()
    }

    /// The member, as journals and answers name it.
    pub(in crate::group) fn member_ref(&self, member_id: &MemberId) -> MemberRef {
        let member = self.members.get(member_id);
        MemberRef {
            member_id: member_id.clone(),
            instance_id: member.and_then(|member| member.instance_id.clone()),
            client_id: member.map_or_else(Arc::default, |member| member.client.id.clone()),
            client_host: member.map_or_else(Arc::default, |member| member.client.host.clone()),
        }
    }

    /// Whether somebody with these protocols fits in. An empty group takes anybody who offers something.
    pub(super) fn fits(&self, protocol_type: &str, protocols: &[Protocol]) -> bool {
        if self.phase == Phase::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        *self.protocol_type == *protocol_type && protocols.iter().any(|p| self.supports(&p.name))
    }

    /// Whether every member lists the protocol.
    fn supports(&self, protocol: &str) -> bool {
        self.supported.get(protocol).copied().unwrap_or(0) == self.members.len()
    }

    /// The protocol that the members choose: each votes for the first of its list that all support.
    pub(super) fn vote(&self) -> Option<Arc<str>> {
        let mut votes: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for member in self.members.values() {
            let choice = member.protocols.iter().find(|p| self.supports(&p.name));
            if let Some(protocol) = choice {
                *votes.entry(&protocol.name).or_insert(0) += 1;
            }
        }
        // Ties are unspecified in Kafka; here the last name in order wins.
        votes
            .into_iter()
            .max_by_key(|(_, count)| *count)
            .map(|(name, _)| name.clone())
    }

    /// Makes a member that joined the leader, if the present one did not; tells whether there is such a member.
    pub(super) fn elect_joined_leader(&mut self) -> bool {
        let leader_joined = self
            .leader
            .as_deref()
            .and_then(|leader| self.members.get(leader))
            .is_some_and(|member| member.join.is_some());
        if !leader_joined {
            let joined = self.members.iter().find(|(_, m)| m.join.is_some());
            let Some((member_id, _)) = joined else {
                return false;
            };
            self.leader = Some(member_id.clone());
        }
        true
    }

    /// Makes another member that joined the leader, if there is one that may; the present one may not.
    pub(super) fn pass_leadership(&mut self, may_lead: impl Fn(&str) -> bool) {
        let mut others = self.members.iter();
        if let Some((member_id, _)) = others.find(|(id, m)| m.join.is_some() && may_lead(id)) {
            self.leader = Some(member_id.clone());
        }
    }

    /// The metadata of everybody who takes part, for the leader.
    pub(super) fn joined_members(&self, takes_part: impl Fn(&str) -> bool) -> Vec<JoinedMember> {
        let protocol = self.protocol.as_deref().unwrap_or("");
        self.members
            .iter()
            .filter(|(member_id, _)| takes_part(member_id))
            .map(|(member_id, member)| JoinedMember {
                member_id: member_id.clone(),
                group_instance_id: member.instance_id.clone(),
                metadata: member.metadata(protocol),
            })
            .collect()
    }

    /// Whether the sender of a request is who it says (25 and 82 of semantics 2.12).
    pub(in crate::group) fn check_member(
        &self,
        member_id: &str,
        instance_id: Option<&InstanceId>,
    ) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.statics.get(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(holder) if **holder != *member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.has(member_id) {
            Ok(())
        } else {
            Err(ErrorCode::UnknownMemberId)
        }
    }

    /// Reads anew what the members of this generation subscribe to.
    pub(super) fn compute_subscribed(&mut self) {
        self.subscribed = None;
        if &*self.protocol_type != "consumer" {
            return;
        }
        let protocol = self.protocol.as_deref().unwrap_or("");
        let mut all = BTreeSet::new();
        for member in self.members.values() {
            let Some(topics) = subscription::subscribed_topics(&member.metadata(protocol)) else {
                return;
            };
            all.extend(topics);
        }
        self.subscribed = Some(all);
    }

    /// Whether some member subscribes to the topic. Kafka holds a consumer group whose metadata it cannot read for
    /// subscribed to everything, and one of another type to nothing.
    pub(in crate::group) fn subscribes(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => &*self.protocol_type == "consumer",
        }
    }

    /// Whether it is known what the members subscribe to.
    pub(in crate::group) fn subscriptions_known(&self) -> bool {
        self.subscribed.is_some()
    }
}

/// What a member takes in memory, about.
fn weight(member: &Member) -> usize {
    memory::member(&member.client, member.instance_id.as_ref())
        + memory::protocols(&member.protocols)
}

impl Member {
    pub(in crate::group) fn instance_id(&self) -> Option<&InstanceId> {
        self.instance_id.as_ref()
    }

    pub(in crate::group) fn client(&self) -> &Client {
        &self.client
    }

    pub(in crate::group) fn protocols(&self) -> &[Protocol] {
        &self.protocols
    }

    pub(in crate::group) fn session_timeout_ms(&self) -> i32 {
        self.session_timeout_ms
    }

    pub(in crate::group) fn rebalance_timeout_ms(&self) -> i32 {
        self.rebalance_timeout_ms
    }

    pub(in crate::group) fn assignment(&self) -> &Bytes {
        &self.assignment
    }

    /// When it was last heard of.
    pub(in crate::group) fn seen_at(&self) -> Millis {
        let timeout_ms = if self.is_new {
            super::NEW_MEMBER_JOIN_TIMEOUT_MS
        } else {
            self.session_timeout_ms.into()
        };
        Millis(self.session_deadline.0.saturating_sub(timeout_ms))
    }

    /// Whether its JoinGroup waits for the join phase to end.
    pub(in crate::group) fn has_joined(&self) -> bool {
        self.join.is_some()
    }

    pub(in crate::group) fn metadata_for(&self, protocol: &str) -> Bytes {
        self.metadata(protocol)
    }
}
