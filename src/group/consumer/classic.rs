//! Members of a consumer group that speak the classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup on such
//! a group (semantics 3.11).
//!
//! Their join is a heartbeat of the new protocol in other words: same three steps, the member epoch as generation. They
//! learn that something has changed by REBALANCE_IN_PROGRESS, and must then rejoin in time.

use std::sync::Arc;

use super::{Who, Word};
use crate::group::record::{ClassicMemberValue, ConsumerMemberValue, MemberState};
use crate::group::request::{
    ErrorCode, Heartbeat, IdPartitions, Join, JoinReply, Leave, LeavingMember, Protocol, Reply,
    RequestId, Sync, SyncReply,
};
use crate::group::state::{ConsumerGroup, ConsumerMember};
use crate::group::stats::Cause;
use crate::group::subscription::{self, Assignment, NamePartitions, Subscription};
use crate::group::timers::Timer;
use crate::group::types::{GroupId, InstanceId, MemberId, Millis, Topics};
use crate::group::{Actions, Coordinator};

/// The protocol type of everybody in a consumer group.
const PROTOCOL_TYPE: &str = "consumer";

impl Coordinator {
    /// JoinGroup on a consumer group with members; what can be wrong with any join has been looked at.
    pub(in crate::group) fn consumer_join(
        &mut self,
        now: Millis,
        id: RequestId,
        request: Join,
        actions: &mut Actions,
    ) {
        let group_id = request.group_id.clone();
        let reply = match self.admit_classic(now, request, actions) {
            Ok(reply) => reply,
            Err((error, member_id)) => JoinReply::refused(error, member_id),
        };
        actions.reply(id, &group_id, Reply::Join(reply));
    }

    fn admit_classic(
        &mut self,
        now: Millis,
        request: Join,
        actions: &mut Actions,
    ) -> Result<JoinReply, (ErrorCode, MemberId)> {
        let group_id = request.group_id.clone();
        let refused = |error: ErrorCode| (error, MemberId::from(""));
        let inconsistent = || refused(ErrorCode::InconsistentGroupProtocol);
        let group = self.state.consumer(&group_id).ok_or_else(inconsistent)?;
        if !(self.config.migration.upgrade || self.config.migration.downgrade) {
            return Err(inconsistent());
        }
        let holder = request
            .group_instance_id
            .as_ref()
            .and_then(|i| group.static_member(i));
        let is_known = holder.is_some() || group.member(&request.member_id).is_some();
        let limit = self.members_max(&group_id, self.config.consumer_max_size);
        if !is_known && group.member_count() >= limit {
            return Err(refused(ErrorCode::GroupMaxSizeReached));
        }
        if &*request.protocol_type != PROTOCOL_TYPE || !fits(group, &request.protocols) {
            return Err(inconsistent());
        }
        if request.member_id.is_empty()
            && request.group_instance_id.is_none()
            && request.member_id_required
        {
            // KIP-394, but the id is not kept: whoever comes with an id is welcome here.
            return Err((ErrorCode::MemberIdRequired, self.ids.consumer()));
        }
        let who = self.find_joiner(&request).map_err(refused)?;
        let first = request.protocols.first().ok_or_else(inconsistent)?;
        let subscription = Subscription::parse(&first.metadata).ok_or_else(inconsistent)?;
        let protocol_name = first.name.clone();
        // Somebody who was a member, has been removed, and has not heard of it: what it owns is others' by now, or may
        // have been moved. It has to begin anew (Kafka takes it in, and it reads on from where it was).
        let is_stale = matches!(who, Who::New(_)) && !request.member_id.is_empty();
        if is_stale && !subscription.owned.is_empty() {
            return Err((ErrorCode::UnknownMemberId, request.member_id));
        }

        let told = self.told_by_classic(&who, &request, &subscription);
        let owned = ids_of(&subscription.owned, &self.topics);
        let member_id = who.member_id().clone();
        // Under its old id or a new one: with a static member the instance decides.
        let replaces_consumer = request.group_instance_id.is_some()
            && !matches!(&who, Who::New(_))
            && self
                .told_before(&group_id, &who)
                .is_some_and(|told| told.classic.is_none());
        let word = Word {
            who,
            told,
            owned: Some(owned),
        };
        self.take_word(now, &group_id, word, actions);

        let generation = self
            .consumer_member(&group_id, &member_id)
            .current()
            .member_epoch;
        if replaces_consumer && self.may_downgrade(&group_id) {
            let is_whole = self.holds_its_topics(&group_id);
            let gather = (!is_whole).then_some(Cause::Migration.into());
            self.downgrade(now, &group_id, gather, Vec::new(), actions);
        } else {
            self.arm_consumer_session(now, &group_id, &member_id);
            self.session(&group_id, &member_id).owes_join = false;
            self.timers
                .cancel(&Timer::MemberJoin(group_id.clone(), member_id.clone()));
            let deadline = now.plus(request.rebalance_timeout_ms.into());
            self.timers
                .arm(Timer::MemberSync(group_id, member_id.clone()), deadline);
        }
        Ok(JoinReply {
            error: ErrorCode::None,
            generation,
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: Some(protocol_name),
            leader: "".into(),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        })
    }

    fn find_joiner(&mut self, request: &Join) -> Result<Who, ErrorCode> {
        let is_new = request.member_id.is_empty();
        let member_id = if is_new {
            self.ids.consumer()
        } else {
            request.member_id.clone()
        };
        let group = self.state.consumer(&request.group_id);
        let Some(instance_id) = &request.group_instance_id else {
            let is_member = group.is_some_and(|group| group.member(&member_id).is_some());
            return Ok(if is_member {
                Who::Known(member_id)
            } else {
                Who::New(member_id)
            });
        };
        match group.and_then(|group| group.static_member(instance_id)) {
            None if is_new => Ok(Who::New(member_id)),
            None => Err(ErrorCode::UnknownMemberId),
            Some(holder) if is_new => Ok(Who::Replaces {
                old: holder.clone(),
                new: member_id,
            }),
            Some(holder) if *holder == member_id => Ok(Who::Known(member_id)),
            Some(_) => Err(ErrorCode::FencedInstanceId),
        }
    }

    fn told_by_classic(
        &self,
        who: &Who,
        request: &Join,
        subscription: &Subscription,
    ) -> ConsumerMemberValue {
        let before = self.told_before(&request.group_id, who);
        let before = before.as_deref();
        ConsumerMemberValue {
            instance_id: request
                .group_instance_id
                .clone()
                .or_else(|| before?.instance_id.clone()),
            rack_id: subscription
                .rack_id
                .clone()
                .or_else(|| before?.rack_id.clone()),
            client: request.client.clone(),
            subscribed_topic_names: self.names(&request.group_id, &subscription.topics),
            subscribed_topic_regex: None,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            server_assignor: before.and_then(|before| before.server_assignor.clone()),
            classic: Some(ClassicMemberValue {
                session_timeout_ms: request.session_timeout_ms,
                protocols: request.protocols.clone(),
            }),
        }
    }

    /// SyncGroup on a consumer group.
    pub(in crate::group) fn consumer_sync(
        &mut self,
        now: Millis,
        id: RequestId,
        request: &Sync,
        actions: &mut Actions,
    ) {
        let reply = self.synced(now, request).unwrap_or_else(SyncReply::refused);
        actions.reply(id, &request.group_id, Reply::Sync(reply));
    }

    fn synced(&mut self, now: Millis, request: &Sync) -> Result<SyncReply, ErrorCode> {
        if request.protocol_required
            && (request.protocol_type.is_none() || request.protocol_name.is_none())
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        let (group_id, member_id) = (&request.group_id, &request.member_id);
        let instance_id = request.group_instance_id.as_ref();
        let (group, member) = self.classic_member(group_id, member_id, instance_id)?;
        let current = member.current();
        if request.generation != current.member_epoch {
            return Err(ErrorCode::IllegalGeneration);
        }
        let first = first_protocol(member).ok_or(ErrorCode::InconsistentGroupProtocol)?;
        let type_differs = request
            .protocol_type
            .as_deref()
            .is_some_and(|t| t != PROTOCOL_TYPE);
        let name_differs = request
            .protocol_name
            .as_ref()
            .is_some_and(|name| *name != first.name);
        if type_differs || name_differs {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        if current.member_epoch < group.assignment_epoch()
            && current.state != MemberState::UnrevokedPartitions
        {
            self.owe_join(now, group_id, member_id);
            return Err(ErrorCode::RebalanceInProgress);
        }
        let assignment = assignment_of(member, &self.topics).to_bytes();
        self.timers
            .cancel(&Timer::MemberSync(group_id.clone(), member_id.clone()));
        self.arm_consumer_session(now, group_id, member_id);
        Ok(SyncReply {
            error: ErrorCode::None,
            protocol_type: request.protocol_type.clone(),
            protocol_name: request.protocol_name.clone(),
            assignment,
        })
    }

    /// Heartbeat on a consumer group.
    pub(in crate::group) fn classic_heartbeat(
        &mut self,
        now: Millis,
        request: &Heartbeat,
    ) -> Result<(), ErrorCode> {
        let (group_id, member_id) = (&request.group_id, &request.member_id);
        let instance_id = request.group_instance_id.as_ref();
        let (group, member) = self.classic_member(group_id, member_id, instance_id)?;
        let current = member.current();
        if request.generation != current.member_epoch {
            return Err(ErrorCode::IllegalGeneration);
        }
        let must_rejoin = match current.state {
            _ if current.member_epoch < group.assignment_epoch() => true,
            MemberState::UnrevokedPartitions => true,
            MemberState::UnreleasedPartitions => {
                member.target().iter().all(|(topic, partitions)| {
                    partitions
                        .iter()
                        .all(|p| !group.held_by_other(member_id, *topic, *p))
                })
            }
            MemberState::Stable | MemberState::Unknown => false,
        };
        self.arm_consumer_session(now, group_id, member_id);
        if must_rejoin {
            self.owe_join(now, group_id, member_id);
            return Err(ErrorCode::RebalanceInProgress);
        }
        Ok(())
    }

    /// A member that speaks the classic protocol, and is who it says.
    fn classic_member(
        &self,
        group_id: &GroupId,
        member_id: &MemberId,
        instance_id: Option<&InstanceId>,
    ) -> Result<(&ConsumerGroup, &ConsumerMember), ErrorCode> {
        let group = self
            .state
            .consumer(group_id)
            .ok_or(ErrorCode::UnknownMemberId)?;
        if let Some(instance_id) = instance_id {
            match group.static_member(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(holder) if holder != member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        let member = group
            .member(member_id)
            .filter(|member| member.told().classic.is_some());
        Ok((group, member.ok_or(ErrorCode::UnknownMemberId)?))
    }

    /// The member was told to rejoin: from the first time on, its rebalance timeout runs.
    fn owe_join(&mut self, now: Millis, group_id: &GroupId, member_id: &MemberId) {
        let told = self.consumer_member(group_id, member_id).told();
        let deadline = now.plus(told.rebalance_timeout_ms.into());
        let session = self.session(group_id, member_id);
        if !std::mem::replace(&mut session.owes_join, true) {
            self.timers.arm(
                Timer::MemberJoin(group_id.clone(), member_id.clone()),
                deadline,
            );
        }
    }

    /// A member that speaks the classic protocol has not rejoined, or not synced, in time.
    pub(in crate::group) fn classic_member_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        if self.classic_member(group_id, member_id, None).is_ok() {
            let gone = std::slice::from_ref(member_id);
            self.remove_members(now, group_id, gone, Cause::RebalanceTimeout, None, actions);
        }
    }

    /// LeaveGroup on a consumer group, for members of either protocol. Returns the outcome of each entry.
    pub(in crate::group) fn consumer_leave_batch(
        &mut self,
        now: Millis,
        request: &Leave,
        actions: &mut Actions,
    ) -> Vec<ErrorCode> {
        let Some(group) = self.state.consumer(&request.group_id) else {
            return vec![ErrorCode::UnknownMemberId; request.members.len()];
        };
        let mut gone: Vec<MemberId> = Vec::new();
        let outcomes = request
            .members
            .iter()
            .map(|leaving| match find_leaver(group, leaving) {
                Ok(member_id) => {
                    gone.push(member_id);
                    ErrorCode::None
                }
                Err(error) => error,
            });
        let outcomes = outcomes.collect();
        // Whoever is named twice leaves once; both entries succeed.
        gone.sort_unstable();
        gone.dedup();
        if !gone.is_empty() {
            let reason = request
                .members
                .iter()
                .find_map(|leaving| leaving.reason.clone());
            let cause = Cause::MemberLeft;
            self.remove_members(now, &request.group_id, &gone, cause, reason, actions);
        }
        outcomes
    }
}

fn find_leaver(group: &ConsumerGroup, leaving: &LeavingMember) -> Result<MemberId, ErrorCode> {
    if let Some(instance_id) = &leaving.group_instance_id {
        let holder = group
            .static_member(instance_id)
            .ok_or(ErrorCode::UnknownMemberId)?;
        if !leaving.member_id.is_empty() && *holder != leaving.member_id {
            return Err(ErrorCode::FencedInstanceId);
        }
        return Ok(holder.clone());
    }
    match group.member(&leaving.member_id) {
        Some(_) => Ok(leaving.member_id.clone()),
        None => Err(ErrorCode::UnknownMemberId),
    }
}

/// Whether some protocol of the newcomer is one that all classic members have.
fn fits(group: &ConsumerGroup, protocols: &[Protocol]) -> bool {
    let lists = |member: &ConsumerMember, name: &Arc<str>| {
        let classic = member.told().classic.as_ref();
        classic.is_none_or(|classic| classic.protocols.iter().any(|p| p.name == *name))
    };
    protocols
        .iter()
        .any(|p| group.members().all(|(_, member)| lists(member, &p.name)))
}

/// The first protocol of a classic member's list: the only one that counts here.
pub(in crate::group) fn first_protocol(member: &ConsumerMember) -> Option<&Protocol> {
    member.told().classic.as_ref()?.protocols.first()
}

/// What a classic member is told it has, in the version that its subscription is in.
pub(in crate::group) fn assignment_of(member: &ConsumerMember, topics: &Topics) -> Assignment {
    let version = first_protocol(member).and_then(|p| subscription::version_of(&p.metadata));
    let mut partitions: NamePartitions = member
        .current()
        .assigned
        .iter()
        .filter_map(|topic| {
            let name = topics.name_of(topic.topic_id)?;
            let partitions = topic.partitions.iter().map(|(partition, _)| *partition);
            Some((name.clone(), partitions.collect()))
        })
        .collect();
    partitions.sort_unstable();
    Assignment {
        version: version.unwrap_or(0).clamp(0, subscription::LATEST_VERSION),
        partitions,
        user_data: None,
    }
}

/// Partitions by name as partitions by id; topics that are not there do not count.
pub(in crate::group) fn ids_of(partitions: &NamePartitions, topics: &Topics) -> IdPartitions {
    let known = partitions.iter().filter_map(|(name, partitions)| {
        let topic = topics.get(name).filter(|topic| !topic.id.is_zero())?;
        Some((topic.id, partitions.clone()))
    });
    known.collect()
}
