//! What the members of a group must not own for now by an operator's order, and how it is kept from them.
//!
//! Members of the new protocol get targets without it. Classic members get assignments without it: what a leader's
//! assignor hands out is stripped on its way. A member that owned some of it when it joined (a cooperative one) gives it
//! up when it sees the stripped assignment, and the group gathers again, until nobody claims any of it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use super::bans::{Ban, Late};
use super::fence::Fences;
use super::operation::Operation;
use crate::group::classic::{self, Phase};
use crate::group::consumer::LEAVE_FOR_A_WHILE;
use crate::group::operator::MemberRef;
use crate::group::reconcile::without_epochs;
use crate::group::record::AssignedPartitions;
use crate::group::state::ConsumerMember;
use crate::group::subscription::{self, Assignment, NamePartitions, Subscription};
use crate::group::types::{GroupId, MemberId, TopicId, TopicName};
use crate::group::{Actions, Coordinator};

/// How often a classic group gathers in vain before whoever still claims what it must not own has to go.
const ROUNDS_MAX: u8 = 5;

/// Partitions by topic.
pub(super) type Partitions = BTreeMap<TopicName, BTreeSet<i32>>;

/// The orders about one group. Soft state.
#[derive(Debug, Default)]
pub(in crate::group) struct Orders {
    pub(super) operation: Option<Operation>,
    /// Partitions whose offsets are about to be moved: nobody may own them until they have been.
    pub(super) held: Partitions,
    /// Members that own nothing for as long as they are here.
    pub(super) benched: BTreeSet<MemberId>,
    pub(super) bans: Vec<Ban>,
    /// Refusals of those that are kept out, which have not been said yet.
    pub(super) late: Vec<Late>,
    pub(super) fences: Fences,
    /// The group has been paused, or is so no longer, and its members have not been told.
    pub(super) pause_changed: bool,
}

impl Orders {
    pub(super) fn is_idle(&self) -> bool {
        self.operation.is_none()
            && self.held.is_empty()
            && self.benched.is_empty()
            && self.bans.is_empty()
            && self.late.is_empty()
            && self.fences.is_empty()
            && !self.pause_changed
    }

    /// Whether its timer is armed for something.
    pub(in crate::group) fn awaits(&self) -> bool {
        self.operation.is_some() || self.pause_changed
    }

    /// Whether the timer of its refusals is armed for something.
    pub(in crate::group) fn awaits_refusals(&self) -> bool {
        !self.late.is_empty()
    }
}

/// How far a classic group has come in taking from its members what they must not own.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::group) struct Clearing {
    /// Everybody joined this generation without any of it.
    pub(in crate::group) is_clear: bool,
    /// Somebody had some of it: when everybody has seen its assignment, the group gathers again.
    pub(in crate::group) again: bool,
    rounds: u8,
}

/// What one member must not own.
#[derive(Debug)]
pub(in crate::group) struct Withheld<'a> {
    everything: bool,
    held: Option<&'a Partitions>,
}

impl Withheld<'_> {
    pub(in crate::group) fn is_nothing(&self) -> bool {
        !self.everything && self.held.is_none()
    }

    /// All of it.
    pub(in crate::group) fn is_everything(&self) -> bool {
        self.everything
    }

    pub(in crate::group) fn takes(&self, topic: &str, partition: i32) -> bool {
        self.everything
            || self
                .held
                .and_then(|held| held.get(topic))
                .is_some_and(|partitions| partitions.contains(&partition))
    }

    fn takes_any(&self, partitions: &NamePartitions) -> bool {
        partitions
            .iter()
            .any(|(topic, of_it)| of_it.iter().any(|index| self.takes(topic, *index)))
    }

    /// A classic assignment without it. Bytes that cannot be read give nothing.
    fn strip(&self, given: Bytes, metadata: &Bytes) -> Bytes {
        if self.is_nothing() {
            return given;
        }
        let parsed = Assignment::parse(&given).filter(|_| !self.everything);
        if parsed
            .as_ref()
            .is_some_and(|parsed| !self.takes_any(&parsed.partitions))
        {
            return given;
        }
        let version =
            subscription::version_of(&given).or_else(|| subscription::version_of(metadata));
        let mut left = parsed.unwrap_or_else(|| Assignment {
            version: version.unwrap_or(0).clamp(0, subscription::LATEST_VERSION),
            partitions: Vec::new(),
            user_data: None,
        });
        for (topic, partitions) in &mut left.partitions {
            partitions.retain(|index| !self.takes(topic, *index));
        }
        left.partitions.retain(|(_, of_it)| !of_it.is_empty());
        left.to_bytes()
    }
}

impl Coordinator {
    /// Whether the group's members own nothing by order.
    pub(in crate::group) fn is_paused(&self, group_id: &str) -> bool {
        self.overrides.get(group_id).is_some_and(|own| own.paused)
    }

    /// What a member must not own.
    pub(in crate::group) fn withheld(&self, group_id: &str, member_id: &str) -> Withheld<'_> {
        let orders = self.orders.get(group_id);
        let is_benched = orders.is_some_and(|orders| orders.benched.contains(member_id));
        Withheld {
            everything: is_benched || self.is_paused(group_id),
            held: orders
                .map(|orders| &orders.held)
                .filter(|held| !held.is_empty()),
        }
    }

    /// Whether there is anything that some member must not own.
    pub(in crate::group) fn withholds(&self, group_id: &str) -> bool {
        self.is_paused(group_id)
            || self
                .orders
                .get(group_id)
                .is_some_and(|orders| !orders.held.is_empty() || !orders.benched.is_empty())
    }

    /// Whether a member is here to own nothing.
    pub(in crate::group) fn is_benched(&self, group_id: &str, member_id: &str) -> bool {
        self.orders
            .get(group_id)
            .is_some_and(|orders| orders.benched.contains(member_id))
    }

    /// The member is no longer here.
    pub(in crate::group) fn member_is_gone(
        &mut self,
        group_id: &str,
        member: impl FnOnce() -> MemberRef,
    ) {
        let Some(orders) = self.orders.get_mut(group_id) else {
            return;
        };
        let member = member();
        orders.benched.remove(&member.member_id);
        if let Some(operation) = &mut orders.operation {
            operation.lost(member);
        }
    }

    /// Orders that order nothing are forgotten.
    pub(super) fn tidy_orders(&mut self, group_id: &str) {
        if self.orders.get(group_id).is_some_and(Orders::is_idle) {
            self.orders.remove(group_id);
        }
    }

    /// Who of a classic group has, or may have, what it must not own: what members said when they joined, and what
    /// absent ones were assigned.
    fn claimants(&self, group_id: &str, group: &classic::Group) -> Vec<MemberId> {
        if !self.withholds(group_id) || &**group.protocol_type() != "consumer" {
            return Vec::new();
        }
        let protocol = group.protocol().map_or("", |name| &**name);
        let claims = |(member_id, member): &(&MemberId, &classic::Member)| {
            let withheld = self.withheld(group_id, member_id);
            let told = Subscription::parse(&member.metadata_for(protocol));
            let owned = told.is_some_and(|told| withheld.takes_any(&told.owned));
            let assigned = (!member.has_joined())
                .then(|| Assignment::parse(member.assignment()))
                .flatten();
            owned || assigned.is_some_and(|given| withheld.takes_any(&given.partitions))
        };
        let claimants = group.members().filter(claims);
        claimants.map(|(member_id, _)| member_id.clone()).collect()
    }

    /// Members that keep what they were told to give up, again and again.
    pub(in crate::group) fn stubborn_members(
        &self,
        group_id: &str,
        group: &classic::Group,
    ) -> Vec<MemberId> {
        if group.clearing.rounds < ROUNDS_MAX {
            return Vec::new();
        }
        self.claimants(group_id, group)
    }

    /// Everybody has joined: does anybody have what it must not own?
    pub(in crate::group) fn look_at_claims(&self, group_id: &str, group: &mut classic::Group) {
        let is_clear = self.claimants(group_id, group).is_empty();
        let rounds = group.clearing.rounds;
        group.clearing = Clearing {
            is_clear,
            again: !is_clear,
            rounds: if is_clear {
                0
            } else {
                rounds.saturating_add(1)
            },
        };
    }

    /// Whether a settled classic group has nothing that it must not have, as it is.
    pub(super) fn is_settled_without(&self, group_id: &str, group: &classic::Group) -> bool {
        group.phase() == Phase::Stable && self.claimants(group_id, group).is_empty() && {
            let mut members = group.members();
            members.all(|(member_id, member)| {
                let withheld = self.withheld(group_id, member_id);
                let given = Assignment::parse(member.assignment());
                given.is_none_or(|given| !withheld.takes_any(&given.partitions))
            })
        }
    }

    /// What a leader gave to a member, without what the member must not own.
    pub(in crate::group) fn stripped(
        &self,
        group_id: &str,
        member_id: &str,
        given: Bytes,
        metadata: impl FnOnce() -> Bytes,
    ) -> Bytes {
        let withheld = self.withheld(group_id, member_id);
        if withheld.is_nothing() {
            return given;
        }
        withheld.strip(given, &metadata())
    }

    /// Whether a member of a consumer group has what it must not own. One that has left for a while runs nowhere.
    pub(super) fn still_holds(
        &self,
        group_id: &str,
        member_id: &str,
        member: &ConsumerMember,
    ) -> bool {
        let withheld = self.withheld(group_id, member_id);
        let current = member.current();
        let lists = [&current.assigned, &current.pending_revocation];
        // What a classic member said it owns when it joined, it gives up when it sees its assignment, and joins again.
        let classic = member.told().classic.as_ref();
        let first = classic.and_then(|classic| classic.protocols.first());
        let claims = first
            .and_then(|first| Subscription::parse(&first.metadata))
            .is_some_and(|told| withheld.takes_any(&told.owned));
        if claims {
            return true;
        }
        current.member_epoch != LEAVE_FOR_A_WHILE
            && lists.into_iter().flatten().any(|topic| {
                let mut partitions = topic.partitions.iter();
                let name = self.topics.name_of(topic.topic_id);
                partitions.any(|(index, _)| match name {
                    Some(name) => withheld.takes(name, *index),
                    None => withheld.is_everything(),
                })
            })
    }

    /// Whether a member's target lists what it must not own.
    pub(super) fn is_still_to_have(
        &self,
        group_id: &str,
        member_id: &str,
        member: &ConsumerMember,
    ) -> bool {
        let withheld = self.withheld(group_id, member_id);
        let target = member.target().iter();
        target.into_iter().any(|(topic, of_it)| {
            let name = self.topics.name_of(*topic);
            name.is_some_and(|name| of_it.iter().any(|index| withheld.takes(name, *index)))
        })
    }

    /// Takes what is withheld from members that have left for a while: they confirm nothing, and come back without it.
    pub(super) fn strip_absent(&mut self, group_id: &GroupId, actions: &mut Actions) {
        let Some(group) = self.state.consumer(group_id) else {
            return;
        };
        let mut stripped = Vec::new();
        for (member_id, member) in group.members() {
            let current = member.current();
            if current.member_epoch != LEAVE_FOR_A_WHILE || current.assigned.is_empty() {
                continue;
            }
            let withheld = self.withheld(group_id, member_id);
            let takes = |topic: TopicId, index: i32| match self.topics.name_of(topic) {
                Some(name) => withheld.takes(name, index),
                None => withheld.is_everything(),
            };
            let mut value = current.clone();
            for AssignedPartitions {
                topic_id,
                partitions,
            } in &mut value.assigned
            {
                partitions.retain(|(index, _)| !takes(*topic_id, *index));
            }
            value.assigned.retain(|topic| !topic.partitions.is_empty());
            if value != *current {
                stripped.push((member_id.clone(), value));
            }
        }
        for (member_id, value) in stripped {
            self.emit_current(group_id, &member_id, value, actions);
        }
    }

    /// Who owns what, including what has been asked back and not been confirmed.
    pub(super) fn owned(&self, group_id: &str) -> Vec<(MemberRef, NamePartitions)> {
        if let Some(group) = self.state.consumer(group_id) {
            let members = group.members().map(|(member_id, member)| {
                let current = member.current();
                let held = [&current.assigned[..], &current.pending_revocation].concat();
                (
                    member.member_ref(member_id),
                    self.named(without_epochs(&held)),
                )
            });
            return members.collect();
        }
        let Some(group) = self.classic.get(group_id) else {
            return Vec::new();
        };
        let members = group.members().map(|(member_id, member)| {
            let given = Assignment::parse(member.assignment())
                .filter(|_| &**group.protocol_type() == "consumer");
            (
                group.member_ref(member_id),
                given.map_or_else(Vec::new, |given| given.partitions),
            )
        });
        members.collect()
    }
}
