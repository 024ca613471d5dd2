//! The facts about one consumer group (KIP-848): epochs, members, targets, what each member has, resolved patterns.
//!
//! Below the records' own facts stand indexes that follow from them; `set_*` keep both in step, so a reader never
//! searches all members.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::moment;
use crate::group::memory;
use crate::group::operator::MemberRef;
use crate::group::reconcile::{Holders, tidy, tidy_ids};
use crate::group::record::{
    ConsumerGroupValue, ConsumerMemberValue, CurrentAssignmentValue, MemberState, Record,
    RegexValue, TargetMetadataValue,
};
use crate::group::request::IdPartitions;
use crate::group::types::{GroupId, InstanceId, MemberId, Millis, TopicId, TopicName};

/// A group's epoch before anything has happened to it, and the epoch of its empty first target.
pub(in crate::group) const FIRST_EPOCH: i32 = 1;

/// Where a consumer group stands. Derived, never recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::group) enum ConsumerPhase {
    /// No members.
    Empty,
    /// The group epoch is ahead of the target's.
    Assigning,
    /// Some member is not at its target.
    Reconciling,
    /// Every member is at its target.
    Stable,
}

impl ConsumerPhase {
    /// Kafka's text for it.
    pub(in crate::group) const fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::Assigning => "Assigning",
            Self::Reconciling => "Reconciling",
            Self::Stable => "Stable",
        }
    }
}

/// A consumer group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::group) struct ConsumerGroup {
    value: Option<ConsumerGroupValue>,
    target: Option<TargetMetadataValue>,
    members: BTreeMap<MemberId, Member>,
    regexes: BTreeMap<Arc<str>, RegexValue>,
    // What follows from the above.
    holders: Holders,
    statics: BTreeMap<InstanceId, MemberId>,
    names: BTreeMap<TopicName, u32>,
    patterns: BTreeMap<Arc<str>, u32>,
    assignors: BTreeMap<Arc<str>, u32>,
    member_count: usize,
    classic_count: usize,
    bytes: usize,
}

/// What is recorded of a member. It is one as long as it is known what it told of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::group) struct Member {
    told: Option<Arc<ConsumerMemberValue>>,
    target: IdPartitions,
    current: Option<CurrentAssignmentValue>,
}

/// What a member has before anything is recorded of it.
static NOTHING: CurrentAssignmentValue = CurrentAssignmentValue {
    member_epoch: 0,
    previous_member_epoch: 0,
    state: MemberState::Stable,
    assigned: Vec::new(),
    pending_revocation: Vec::new(),
};

impl Member {
    /// What it told of itself.
    pub(in crate::group) fn told(&self) -> &Arc<ConsumerMemberValue> {
        self.told
            .as_ref()
            .expect("only members that told of themselves are handed out")
    }

    /// What it shall have.
    pub(in crate::group) fn target(&self) -> &IdPartitions {
        &self.target
    }

    /// What it has and gives back.
    pub(in crate::group) fn current(&self) -> &CurrentAssignmentValue {
        self.current.as_ref().unwrap_or(&NOTHING)
    }

    /// The member, as journals and answers name it.
    pub(in crate::group) fn member_ref(&self, member_id: &MemberId) -> MemberRef {
        let told = self.told();
        MemberRef {
            member_id: member_id.clone(),
            instance_id: told.instance_id.clone(),
            client_id: told.client.id.clone(),
            client_host: told.client.host.clone(),
        }
    }

    fn is_vacant(&self) -> bool {
        self.told.is_none() && self.target.is_empty() && self.current.is_none()
    }
}

impl ConsumerGroup {
    pub(in crate::group) fn epoch(&self) -> i32 {
        self.value.map_or(FIRST_EPOCH, |value| value.epoch)
    }

    pub(in crate::group) fn metadata_hash(&self) -> i64 {
        self.value.map_or(0, |value| value.metadata_hash)
    }

    pub(in crate::group) fn assignment_epoch(&self) -> i32 {
        self.target
            .map_or(FIRST_EPOCH, |target| target.assignment_epoch)
    }

    pub(in crate::group) fn assignment_timestamp(&self) -> Millis {
        self.target
            .map_or(Millis(0), |target| moment(target.assignment_timestamp))
    }

    /// Whether the group epoch is ahead of the target's.
    pub(in crate::group) fn awaits_target(&self) -> bool {
        self.assignment_epoch() < self.epoch()
    }

    pub(in crate::group) fn phase(&self) -> ConsumerPhase {
        let epoch = self.assignment_epoch();
        let settled = |member: &Member| {
            let current = member.current();
            current.state == MemberState::Stable && current.member_epoch == epoch
        };
        if self.member_count == 0 {
            ConsumerPhase::Empty
        } else if self.awaits_target() {
            ConsumerPhase::Assigning
        } else if self.members().all(|(_, member)| settled(member)) {
            ConsumerPhase::Stable
        } else {
            ConsumerPhase::Reconciling
        }
    }

    /// The members, by id.
    pub(in crate::group) fn members(&self) -> impl Iterator<Item = (&MemberId, &Member)> {
        self.members
            .iter()
            .filter(|(_, member)| member.told.is_some())
    }

    pub(in crate::group) fn member(&self, member_id: &str) -> Option<&Member> {
        self.members
            .get(member_id)
            .filter(|member| member.told.is_some())
    }

    pub(in crate::group) fn member_ids(&self) -> Vec<MemberId> {
        self.members()
            .map(|(member_id, _)| member_id.clone())
            .collect()
    }

    pub(in crate::group) fn member_count(&self) -> usize {
        self.member_count
    }

    pub(in crate::group) fn is_empty(&self) -> bool {
        self.member_count == 0
    }

    /// How many members speak the classic protocol.
    pub(in crate::group) fn classic_count(&self) -> usize {
        self.classic_count
    }

    /// Whether the member holds an instance id.
    pub(in crate::group) fn is_static(&self, member_id: &str) -> bool {
        self.member(member_id)
            .is_some_and(|member| member.told().instance_id.is_some())
    }

    /// Who holds the instance id.
    pub(in crate::group) fn static_member(&self, instance_id: &str) -> Option<&MemberId> {
        self.statics.get(instance_id)
    }

    /// Whether somebody other than `member_id` holds the partition.
    pub(in crate::group) fn held_by_other(
        &self,
        member_id: &str,
        topic: TopicId,
        partition: i32,
    ) -> bool {
        self.holders.held_by_other(member_id, topic, partition)
    }

    /// Whether some member subscribes to the topic, by name or by a pattern as it was resolved last.
    pub(in crate::group) fn subscribes(&self, topic: &str) -> bool {
        self.names.contains_key(topic)
            || self.regexes.values().any(|regex| resolved_to(regex, topic))
    }

    /// The names that members subscribe to.
    pub(in crate::group) fn names(&self) -> impl Iterator<Item = &TopicName> {
        self.names.keys()
    }

    /// The name as the group spells it already, so that equal names share their bytes.
    pub(in crate::group) fn shared_name(&self, name: &str) -> Option<&TopicName> {
        self.names.get_key_value(name).map(|(name, _)| name)
    }

    /// The patterns that members subscribe to.
    pub(in crate::group) fn patterns(&self) -> impl Iterator<Item = &Arc<str>> {
        self.patterns.keys()
    }

    pub(in crate::group) fn uses_pattern(&self, pattern: &str) -> bool {
        self.patterns.contains_key(pattern)
    }

    /// The topics that a pattern was resolved to.
    pub(in crate::group) fn resolved(&self, pattern: &str) -> Option<&RegexValue> {
        self.regexes.get(pattern)
    }

    /// All patterns that were resolved.
    pub(in crate::group) fn regexes(&self) -> impl Iterator<Item = (&Arc<str>, &RegexValue)> {
        self.regexes.iter()
    }

    /// Whether a member subscribes to a topic, by name or by its pattern as it was resolved last.
    pub(in crate::group) fn member_subscribes(
        &self,
        told: &ConsumerMemberValue,
        topic: &TopicName,
    ) -> bool {
        let pattern = told.subscribed_topic_regex.as_deref();
        told.subscribed_topic_names.binary_search(topic).is_ok()
            || pattern
                .and_then(|pattern| self.regexes.get(pattern))
                .is_some_and(|regex| resolved_to(regex, topic))
    }

    /// The assignor that most members name; the last by name where there are several, as it is with Kafka's two.
    pub(in crate::group) fn preferred_assignor(&self) -> Option<&Arc<str>> {
        self.assignors
            .iter()
            .max_by_key(|(_, votes)| **votes)
            .map(|(name, _)| name)
    }

    /// The newest moment that its records carry.
    pub(super) fn newest(&self) -> Millis {
        let resolved = self.regexes.values().map(|regex| moment(regex.timestamp));
        self.assignment_timestamp()
            .max(resolved.max().unwrap_or_default())
    }

    pub(super) fn is_vacant(&self) -> bool {
        self.value.is_none()
            && self.target.is_none()
            && self.members.is_empty()
            && self.regexes.is_empty()
    }

    /// What its members take in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn set_value(&mut self, value: Option<ConsumerGroupValue>) {
        self.value = value;
    }

    pub(super) fn set_target_metadata(&mut self, value: Option<TargetMetadataValue>) {
        self.target = value;
    }

    pub(super) fn set_regex(&mut self, pattern: &Arc<str>, value: Option<&RegexValue>) {
        match value {
            Some(value) => {
                let mut value = value.clone();
                value.topics.sort_unstable();
                self.regexes.insert(pattern.clone(), value);
            }
            None => {
                self.regexes.remove(pattern);
            }
        }
    }

    pub(super) fn set_told(
        &mut self,
        member_id: &MemberId,
        value: Option<&Arc<ConsumerMemberValue>>,
    ) {
        let member = self.members.entry(member_id.clone()).or_default();
        let before = std::mem::replace(&mut member.told, value.cloned());
        self.forget_if_vacant(member_id);
        if let Some(before) = before {
            self.member_count -= 1;
            self.bytes -= memory::told(member_id, &before);
            self.classic_count -= usize::from(before.classic.is_some());
            if let Some(instance_id) = &before.instance_id
                && self.statics.get(instance_id) == Some(member_id)
            {
                self.statics.remove(instance_id);
            }
            before
                .subscribed_topic_names
                .iter()
                .for_each(|name| discount(&mut self.names, name));
            let optional = [
                (&mut self.patterns, &before.subscribed_topic_regex),
                (&mut self.assignors, &before.server_assignor),
            ];
            for (counts, key) in optional {
                key.iter().for_each(|key| discount(counts, key));
            }
        }
        if let Some(after) = value {
            self.member_count += 1;
            self.bytes += memory::told(member_id, after);
            self.classic_count += usize::from(after.classic.is_some());
            if let Some(instance_id) = &after.instance_id {
                self.statics.insert(instance_id.clone(), member_id.clone());
            }
            after
                .subscribed_topic_names
                .iter()
                .for_each(|name| count(&mut self.names, name));
            after
                .subscribed_topic_regex
                .iter()
                .for_each(|p| count(&mut self.patterns, p));
            after
                .server_assignor
                .iter()
                .for_each(|a| count(&mut self.assignors, a));
        }
    }

    pub(super) fn set_target(&mut self, member_id: &MemberId, value: Option<&IdPartitions>) {
        let member = self.members.entry(member_id.clone()).or_default();
        member.target = value.cloned().unwrap_or_default();
        tidy_ids(&mut member.target);
        self.forget_if_vacant(member_id);
    }

    pub(super) fn set_current(
        &mut self,
        member_id: &MemberId,
        value: Option<&CurrentAssignmentValue>,
    ) {
        let mut value = value.cloned();
        if let Some(value) = &mut value {
            tidy(&mut value.assigned);
            tidy(&mut value.pending_revocation);
        }
        let member = self.members.entry(member_id.clone()).or_default();
        let before = std::mem::replace(&mut member.current, value);
        self.holders
            .change(member_id, before.as_ref(), member.current.as_ref());
        self.forget_if_vacant(member_id);
    }

    fn forget_if_vacant(&mut self, member_id: &str) {
        if self.members.get(member_id).is_some_and(Member::is_vacant) {
            self.members.remove(member_id);
        }
    }

    /// Everything about it as records.
    pub(super) fn records(&self, group_id: &GroupId) -> Vec<Record> {
        let group_id = || group_id.clone();
        let mut records = Vec::new();
        records.extend(self.value.map(|value| Record::ConsumerGroupMetadata {
            group_id: group_id(),
            value: Some(value),
        }));
        for (member_id, member) in &self.members {
            let member_id = || member_id.clone();
            records.extend(
                member
                    .told
                    .clone()
                    .map(|value| Record::ConsumerGroupMemberMetadata {
                        group_id: group_id(),
                        member_id: member_id(),
                        value: Some(value),
                    }),
            );
            if !member.target.is_empty() {
                records.push(Record::ConsumerGroupTargetAssignmentMember {
                    group_id: group_id(),
                    member_id: member_id(),
                    value: Some(member.target.clone()),
                });
            }
            records.extend(member.current.clone().map(|value| {
                Record::ConsumerGroupCurrentMemberAssignment {
                    group_id: group_id(),
                    member_id: member_id(),
                    value: Some(value),
                }
            }));
        }
        records.extend(
            self.target
                .map(|value| Record::ConsumerGroupTargetAssignmentMetadata {
                    group_id: group_id(),
                    value: Some(value),
                }),
        );
        records.extend(self.regexes.iter().map(|(regex, value)| {
            Record::ConsumerGroupRegularExpression {
                group_id: group_id(),
                regex: regex.clone(),
                value: Some(value.clone()),
            }
        }));
        records
    }

    /// The tombstones that remove all of it, in Kafka's order.
    pub(in crate::group) fn tombstones(&self, group_id: &GroupId) -> Vec<Record> {
        let group_id = || group_id.clone();
        let mut records = Vec::new();
        let ids = |has: fn(&Member) -> bool| {
            self.members
                .iter()
                .filter(move |(_, member)| has(member))
                .map(|(id, _)| id.clone())
        };
        records.extend(ids(|m| m.current.is_some()).map(|member_id| {
            Record::ConsumerGroupCurrentMemberAssignment {
                group_id: group_id(),
                member_id,
                value: None,
            }
        }));
        records.extend(ids(|m| !m.target.is_empty()).map(|member_id| {
            Record::ConsumerGroupTargetAssignmentMember {
                group_id: group_id(),
                member_id,
                value: None,
            }
        }));
        if self.target.is_some() {
            records.push(Record::ConsumerGroupTargetAssignmentMetadata {
                group_id: group_id(),
                value: None,
            });
        }
        records.extend(ids(|m| m.told.is_some()).map(|member_id| {
            Record::ConsumerGroupMemberMetadata {
                group_id: group_id(),
                member_id,
                value: None,
            }
        }));
        records.extend(
            self.regexes
                .keys()
                .map(|regex| Record::ConsumerGroupRegularExpression {
                    group_id: group_id(),
                    regex: regex.clone(),
                    value: None,
                }),
        );
        if self.value.is_some() {
            records.push(Record::ConsumerGroupMetadata {
                group_id: group_id(),
                value: None,
            });
        }
        records
    }

    /// The tombstones that remove one member, in Kafka's order.
    pub(in crate::group) fn member_tombstones(
        &self,
        group_id: &GroupId,
        member_id: &MemberId,
    ) -> Vec<Record> {
        let Some(member) = self.members.get(member_id) else {
            return Vec::new();
        };
        let (group_id, member_id) = (|| group_id.clone(), || member_id.clone());
        let mut records = Vec::with_capacity(3);
        if member.current.is_some() {
            records.push(Record::ConsumerGroupCurrentMemberAssignment {
                group_id: group_id(),
                member_id: member_id(),
                value: None,
            });
        }
        if !member.target.is_empty() {
            records.push(Record::ConsumerGroupTargetAssignmentMember {
                group_id: group_id(),
                member_id: member_id(),
                value: None,
            });
        }
        if member.told.is_some() {
            records.push(Record::ConsumerGroupMemberMetadata {
                group_id: group_id(),
                member_id: member_id(),
                value: None,
            });
        }
        records
    }
}

fn resolved_to(regex: &RegexValue, topic: &str) -> bool {
    regex
        .topics
        .binary_search_by(|name| (**name).cmp(topic))
        .is_ok()
}

fn count(counts: &mut BTreeMap<Arc<str>, u32>, key: &Arc<str>) {
    *counts.entry(key.clone()).or_insert(0) += 1;
}

fn discount(counts: &mut BTreeMap<Arc<str>, u32>, key: &Arc<str>) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}
