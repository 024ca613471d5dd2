//! Groups that change between the classic and the consumer protocol, with members in them and while they run
//! (semantics 3.12).
//!
//! Upward: a member of the new protocol joins a classic group. Everybody in it becomes a member that speaks the classic
//! protocol in a consumer group, keeps what it has, and learns at its next heartbeat to rejoin. Downward: the last
//! member of the new protocol goes, and the others are a classic group again. Both are one batch of records.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::classic::{self, Phase};
use super::consumer::{Refusal, assignment_of, ids_of};
use super::journal::{Lost, Triggers};
use super::operator::Trigger;
use super::reconcile::{tidy_ids, with_epoch};
use super::record::{
    ClassicMemberValue, ConsumerGroupValue, ConsumerMemberValue, CurrentAssignmentValue,
    MemberState, Record,
};
use super::request::{ConsumerHeartbeat, ErrorCode, IdPartitions};
use super::stats::Cause;
use super::subscription::{Assignment, Subscription};
use super::timers::Timer;
use super::types::{GroupId, MemberId, Millis};
use super::{Actions, Coordinator};

/// Which groups may change their protocol while they have members (`group.consumer.migration.policy`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    /// From the classic to the consumer protocol.
    pub upgrade: bool,
    /// From the consumer to the classic protocol.
    pub downgrade: bool,
}

/// What stands where a consumer group is to be.
#[derive(Debug)]
pub(super) enum Takeover {
    /// Nothing, or a consumer group.
    None,
    /// A classic group without members.
    Empty,
    /// A classic group with members.
    Members(Upgrade),
}

/// A classic group as a consumer group.
#[derive(Debug)]
pub(super) struct Upgrade {
    epoch: i32,
    members: Vec<(MemberId, Arc<ConsumerMemberValue>, IdPartitions)>,
}

impl Coordinator {
    /// What a consumer that joins would have to take over.
    pub(super) fn plan_takeover(&self, request: &ConsumerHeartbeat) -> Result<Takeover, Refusal> {
        let group_id = &request.group_id;
        match self.classic.get(&**group_id) {
            Some(group) if group.phase() != Phase::Empty => self
                .plan_upgrade(group, request)
                .map(Takeover::Members)
                .map_err(|(error, why)| {
                    (
                        error,
                        format!("Group {group_id} cannot go over to the consumer protocol: {why}."),
                    )
                }),
            Some(_) => Ok(Takeover::Empty),
            None => {
                let entry = self.state.group(group_id);
                let recorded = entry.is_some_and(|entry| entry.classic.is_some());
                Ok(if recorded {
                    Takeover::Empty
                } else {
                    Takeover::None
                })
            }
        }
    }

    fn plan_upgrade(
        &self,
        group: &classic::Group,
        request: &ConsumerHeartbeat,
    ) -> Result<Upgrade, Refusal> {
        let refused = |why: &str| (ErrorCode::GroupIdNotFound, why.to_owned());
        if !self.config.migration.upgrade {
            return Err(refused("online upgrade is disabled"));
        }
        if &**group.protocol_type() != "consumer" {
            return Err(refused("its members are no consumers"));
        }
        if group.member_count() > self.config.consumer_max_size {
            return Err(refused("it is larger than group.consumer.max.size"));
        }
        let joiner = &request.member_id;
        let is_back = group.members().find(|(id, _)| *id == joiner);
        if is_back.is_some_and(|(_, m)| {
            request.instance_id.is_some() && m.instance_id() != request.instance_id.as_ref()
        }) {
            let why = format!("member {joiner} has another group instance id");
            return Err((ErrorCode::InvalidRequest, why));
        }
        let returns = request.instance_id.as_ref().is_some_and(|instance_id| {
            group
                .members()
                .any(|(_, m)| m.instance_id() == Some(instance_id))
        });
        let limit = self.members_max(&request.group_id, self.config.consumer_max_size);
        if is_back.is_none() && !returns && group.member_count() >= limit {
            return Err((ErrorCode::GroupMaxSizeReached, "it is full".to_owned()));
        }
        let mut held = BTreeSet::new();
        let mut members = Vec::with_capacity(group.member_count());
        for (member_id, member) in group.members() {
            let unreadable = || refused(&format!("the bytes of member {member_id} cannot be read"));
            let metadata = group
                .protocol()
                .and_then(|name| member.protocols().iter().find(|p| p.name == *name))
                .or_else(|| member.protocols().first())
                .ok_or_else(unreadable)?;
            let told = Subscription::parse(&metadata.metadata).ok_or_else(unreadable)?;
            let mut assigned = Vec::new();
            // Empty for whoever has never synced: it owns nothing.
            if !member.assignment().is_empty() {
                let assignment = Assignment::parse(member.assignment()).ok_or_else(unreadable)?;
                if assignment.has_user_data() {
                    return Err(refused("a custom assignor put data into the assignments"));
                }
                assigned = ids_of(&assignment.partitions, &self.topics);
                tidy_ids(&mut assigned);
            }
            // Whatever a client's assignor did: here no partition has two owners.
            for (topic, partitions) in &mut assigned {
                partitions.retain(|partition| held.insert((*topic, *partition)));
            }
            assigned.retain(|(_, partitions)| !partitions.is_empty());
            let mut names = told.topics;
            names.sort_unstable();
            names.dedup();
            let value = ConsumerMemberValue {
                instance_id: member.instance_id().cloned(),
                rack_id: told.rack_id,
                client: member.client().clone(),
                subscribed_topic_names: names,
                subscribed_topic_regex: None,
                rebalance_timeout_ms: member.rebalance_timeout_ms(),
                server_assignor: None,
                classic: Some(ClassicMemberValue {
                    session_timeout_ms: member.session_timeout_ms(),
                    protocols: member.protocols().to_vec(),
                }),
            };
            members.push((member_id.clone(), value.into(), assigned));
        }
        Ok(Upgrade {
            epoch: group.generation().max(1),
            members,
        })
    }

    /// Makes room for a consumer group.
    pub(super) fn take_over(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        takeover: Takeover,
        actions: &mut Actions,
    ) {
        if matches!(takeover, Takeover::None) {
            return;
        }
        self.journal.ends(now, group_id, "superseded");
        if let Some(mut group) = self.classic.remove(&**group_id) {
            self.timers.cancel(&Timer::Join(group_id.clone()));
            self.timers.cancel(&Timer::Sync(group_id.clone()));
            for member_id in group.pending_ids() {
                self.forget_pending(group_id, &mut group, &member_id);
            }
            for (member_id, _) in group.members() {
                self.timers
                    .cancel(&Timer::Session(group_id.clone(), member_id.clone()));
            }
            classic::dismiss(
                group_id,
                &mut group,
                ErrorCode::RebalanceInProgress,
                actions,
            );
        }
        if self
            .state
            .group(group_id)
            .is_some_and(|entry| entry.classic.is_some())
        {
            let tombstone = Record::GroupMetadata {
                group_id: group_id.clone(),
                value: None,
            };
            self.emit(tombstone, actions);
        }
        if let Takeover::Members(upgrade) = takeover {
            self.upgrade(now, group_id, upgrade, actions);
        }
    }

    fn upgrade(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        upgrade: Upgrade,
        actions: &mut Actions,
    ) {
        let Upgrade { epoch, members } = upgrade;
        let value = ConsumerGroupValue {
            epoch,
            metadata_hash: 0,
        };
        self.emit(
            Record::ConsumerGroupMetadata {
                group_id: group_id.clone(),
                value: Some(value),
            },
            actions,
        );
        for (member_id, value, assigned) in members {
            let current = CurrentAssignmentValue {
                member_epoch: epoch,
                previous_member_epoch: epoch,
                state: MemberState::Stable,
                assigned: with_epoch(&assigned, epoch),
                pending_revocation: Vec::new(),
            };
            self.emit(
                Record::ConsumerGroupMemberMetadata {
                    group_id: group_id.clone(),
                    member_id: member_id.clone(),
                    value: Some(value),
                },
                actions,
            );
            if !assigned.is_empty() {
                self.emit(
                    Record::ConsumerGroupTargetAssignmentMember {
                        group_id: group_id.clone(),
                        member_id: member_id.clone(),
                        value: Some(assigned),
                    },
                    actions,
                );
            }
            self.emit_current(group_id, &member_id, current, actions);
            self.arm_consumer_session(now, group_id, &member_id);
        }
        self.emit_target_metadata(group_id, epoch, Millis(0), actions);
        if self.holds_its_topics(group_id) {
            let metadata_hash = self.metadata_hash(group_id);
            self.emit(
                Record::ConsumerGroupMetadata {
                    group_id: group_id.clone(),
                    value: Some(ConsumerGroupValue {
                        epoch,
                        metadata_hash,
                    }),
                },
                actions,
            );
        } else {
            // Not everybody has synced, or what the leader assigned is older than the topics are.
            self.set_stale(group_id, true);
        }
        let to = Some("to the consumer protocol".into());
        let trigger = Trigger::new(Cause::Migration).detail(to);
        self.owe_epoch(group_id, Trigger { at: now, ..trigger });
    }

    /// Whether only members that speak the classic protocol are left, and the group may follow them.
    pub(super) fn may_downgrade(&self, group_id: &str) -> bool {
        let count = |group: &super::state::ConsumerGroup| {
            let (all, classic) = (group.member_count(), group.classic_count());
            all > 0 && all == classic && all <= self.config.max_size
        };
        self.config.migration.downgrade && self.state.consumer(group_id).is_some_and(count)
    }

    /// Makes a classic group of a consumer group whose members all speak the classic protocol: Stable, with the group
    /// epoch as generation, everybody with what it has.
    ///
    /// With a cause to gather the group begins a rebalance at once: what somebody had is in nobody's hands, and without
    /// a leader nobody would notice. The record names no leader then, so that a group that is loaded from it gathers too.
    pub(super) fn downgrade(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        gather: Option<Triggers>,
        mut lost: Vec<Lost>,
        actions: &mut Actions,
    ) {
        lost.extend(self.journal.take_lost(group_id));
        self.journal.ends(now, group_id, "superseded");
        let Some(group) = self.state.consumer(group_id) else {
            return;
        };
        let mut settled = classic::Group::settled(group.epoch(), now);
        for (member_id, member) in group.members() {
            let told = member.told();
            let Some(classic) = &told.classic else {
                continue;
            };
            settled.admit_settled(
                member_id,
                told,
                classic,
                assignment_of(member, &self.topics).to_bytes(),
            );
        }
        settled.choose_protocol();
        let tombstones = group.tombstones(group_id);
        self.forget_live(group_id);
        for tombstone in tombstones {
            self.emit(tombstone, actions);
        }
        let mut value = settled.value();
        if gather.is_some() {
            value.leader = None;
        }
        self.emit(
            Record::GroupMetadata {
                group_id: group_id.clone(),
                value: Some(value.into()),
            },
            actions,
        );
        for member_id in settled.member_ids() {
            self.arm_session_in(now, group_id, &mut settled, &member_id);
        }
        if let Some(why) = gather {
            let to = Some("to the classic protocol".into());
            let migration = Trigger::new(Cause::Migration).detail(to);
            let why = if why.cause() == Cause::Migration {
                migration.into()
            } else {
                why.and(migration)
            };
            self.rebalance(now, group_id, &mut settled, why, actions);
            self.journal.lost(group_id, lost);
        }
        self.keep(group_id.clone(), Box::new(settled));
    }

    /// Whether the members hold every partition that the group subscribes to.
    pub(super) fn holds_its_topics(&self, group_id: &str) -> bool {
        let Some(group) = self.state.consumer(group_id) else {
            return true;
        };
        let topics = group.names().filter_map(|name| self.topics.get(name));
        let wanted: usize = topics
            .map(|topic| usize::try_from(topic.partitions).unwrap_or(0))
            .sum();
        let held: usize = group
            .members()
            .flat_map(|(_, member)| &member.current().assigned)
            .filter(|topic| self.topics.name_of(topic.topic_id).is_some())
            .map(|topic| topic.partitions.len())
            .sum();
        held >= wanted
    }

    /// Removes a consumer group without members, so that a classic one can be made in its place. Its offsets stay.
    pub(super) fn give_up_empty(&mut self, group_id: &GroupId, actions: &mut Actions) {
        self.renumber_fences(group_id);
        self.forget_live(group_id);
        let group = self.state.consumer(group_id);
        for tombstone in group
            .map(|group| group.tombstones(group_id))
            .unwrap_or_default()
        {
            self.emit(tombstone, actions);
        }
    }
}
