//! The phases of a rebalance: gather joins, choose, wait for the leader's assignment, hand it out (semantics 2.5, 2.8).

use std::collections::BTreeMap;

use bytes::Bytes;

use super::group::{Group, InitialDelay, Phase};
use super::join::joined;
use crate::group::journal::{Side, Triggers, diff};
use crate::group::operator::Trigger;
use crate::group::record::Record;
use crate::group::request::{ErrorCode, JoinReply, Reply, RequestId, Sync, SyncReply};
use crate::group::stats::Cause;
use crate::group::subscription::Assignment;
use crate::group::timers::Timer;
use crate::group::types::{GroupId, InstanceId, MemberId, Millis};
use crate::group::{Actions, Coordinator};

/// Answers a SyncGroup with an error.
pub(super) fn refuse_sync(
    id: RequestId,
    group_id: &GroupId,
    error: ErrorCode,
    actions: &mut Actions,
) {
    actions.reply(id, group_id, Reply::Sync(SyncReply::refused(error)));
}

impl Coordinator {
    /// Members came, went or changed, for these reasons: gather anew, or go on gathering and see whether everybody is here.
    pub(in crate::group) fn rebalance(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        why: impl Into<Triggers>,
        actions: &mut Actions,
    ) {
        let why = why.into();
        match group.phase {
            Phase::PreparingRebalance => {
                self.journal.adds(now, group_id, why);
                self.complete_join_if_all_joined(now, group_id, group, actions);
            }
            Phase::Empty => self.prepare_initial(now, group_id, group, why, actions),
            Phase::CompletingRebalance | Phase::Stable => {
                self.prepare(now, group_id, group, why, actions);
            }
        }
    }

    fn prepare(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        why: Triggers,
        actions: &mut Actions,
    ) {
        group.owe_syncs(false);
        let unassigned = group.phase == Phase::CompletingRebalance;
        let mut interrupted = Vec::new();
        for (member_id, member) in group.members_mut() {
            if unassigned {
                member.assignment = Bytes::new();
            }
            if let Some(sync) = member.sync.take() {
                refuse_sync(sync, group_id, ErrorCode::RebalanceInProgress, actions);
                interrupted.push(member_id.clone());
            }
        }
        for member_id in &interrupted {
            self.arm_session_in(now, group_id, group, member_id);
        }
        self.timers.cancel(&Timer::Sync(group_id.clone()));
        self.begin(now, group_id, group, why);
        group.phase = Phase::PreparingRebalance;
        group.state_timestamp = now;
        // With nobody left there is nobody to wait with: ids that were handed out do not hold up an Empty group.
        if group.all_joined() || group.member_count() == 0 {
            self.complete_join(now, group_id, group, actions);
        } else {
            let deadline = now.plus(group.rebalance_timeout_ms());
            self.timers.arm(Timer::Join(group_id.clone()), deadline);
        }
    }

    fn begin(&mut self, now: Millis, group_id: &GroupId, group: &Group, why: Triggers) {
        self.stats.began(why.cause());
        let epochs = (group.generation, group.generation);
        self.journal.begins(now, group_id, "classic", epochs, why);
    }

    /// The first members of an Empty group: wait a little for more.
    fn prepare_initial(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        why: Triggers,
        actions: &mut Actions,
    ) {
        let delay_ms = self.config.initial_rebalance_delay_ms;
        let remaining_ms = (group.rebalance_timeout_ms() - delay_ms).max(0);
        self.begin(now, group_id, group, why);
        group.phase = Phase::PreparingRebalance;
        group.state_timestamp = now;
        group.new_member_added = false;
        group.initial = Some(InitialDelay {
            delay_ms,
            remaining_ms,
        });
        if delay_ms <= 0 {
            self.complete_join(now, group_id, group, actions);
        } else {
            self.timers
                .arm(Timer::Join(group_id.clone()), now.plus(delay_ms));
        }
    }

    /// Ends the join phase if nobody is waited for. The initial delay is waited out in any case.
    pub(super) fn complete_join_if_all_joined(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        actions: &mut Actions,
    ) {
        if group.phase == Phase::PreparingRebalance && group.initial.is_none() && group.all_joined()
        {
            self.complete_join(now, group_id, group, actions);
        }
    }

    /// The time to join is over.
    pub(in crate::group) fn join_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        let Some(mut group) = self.classic.remove(&**group_id) else {
            return;
        };
        match group.initial {
            Some(initial) if group.new_member_added && initial.remaining_ms > 0 => {
                let delay_ms = self
                    .config
                    .initial_rebalance_delay_ms
                    .min(initial.remaining_ms);
                let remaining_ms = (initial.remaining_ms - initial.delay_ms).max(0);
                group.new_member_added = false;
                group.initial = Some(InitialDelay {
                    delay_ms,
                    remaining_ms,
                });
                self.timers
                    .arm(Timer::Join(group_id.clone()), now.plus(delay_ms));
            }
            _ if group.phase == Phase::PreparingRebalance => {
                self.complete_join(now, group_id, &mut group, actions);
            }
            _ => {}
        }
        self.keep(group_id.clone(), group);
    }

    /// Ends the join phase: those who are here make the next generation.
    fn complete_join(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        actions: &mut Actions,
    ) {
        self.timers.cancel(&Timer::Join(group_id.clone()));
        for member_id in group.member_ids() {
            let gone = group
                .member(&member_id)
                .is_some_and(|member| member.join.is_none() && member.instance_id.is_none());
            if gone {
                let member = group.member_ref(&member_id);
                let why = Trigger::new(Cause::RebalanceTimeout).by(member.clone());
                self.journal.adds(now, group_id, why);
                self.journal.comes(group_id, || member);
                self.expel(group_id, group, &member_id, actions);
            }
        }
        for member_id in self.stubborn_members(group_id, group) {
            self.expel(group_id, group, &member_id, actions);
        }
        if group.member_count() > 0 && !group.elect_joined_leader() {
            // Only static members are left and none of them has joined: wait on, their sessions decide.
            let deadline = now.plus(group.rebalance_timeout_ms().max(1));
            self.timers.arm(Timer::Join(group_id.clone()), deadline);
            return;
        }
        let gathered = group.initial.take().is_some();
        group.new_member_added = false;
        group.generation = group.generation.wrapping_add(1).max(0);
        group.state_timestamp = now;
        self.journal
            .joined(now, group_id, group.generation, gathered);
        if group.member_count() == 0 {
            self.become_empty(now, group_id, group, actions);
        } else {
            group.protocol = group.vote();
            group.compute_subscribed();
            group.phase = Phase::CompletingRebalance;
            self.look_at_claims(group_id, group);
            if group
                .leader
                .as_ref()
                .is_some_and(|leader| self.is_benched(group_id, leader))
            {
                group.pass_leadership(|member_id| !self.is_benched(group_id, member_id));
            }
            self.answer_joins(now, group_id, group, actions);
        }
    }

    fn become_empty(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        actions: &mut Actions,
    ) {
        group.phase = Phase::Empty;
        group.protocol = None;
        group.leader = None;
        group.compute_subscribed();
        self.tell_moves(group_id, group);
        self.journal.ends(now, group_id, "emptied");
        let value = Some(group.value().into());
        self.emit(
            Record::GroupMetadata {
                group_id: group_id.clone(),
                value,
            },
            actions,
        );
    }

    /// Tells the journal how the assignments differ from those that are recorded.
    fn tell_moves(&mut self, group_id: &GroupId, group: &Group) {
        if !self.journal.is_on() || &*group.protocol_type != "consumer" {
            return;
        }
        let recorded = self.state.group(group_id);
        let recorded = recorded.and_then(|entry| entry.classic.clone());
        let mut before = self.journal.take_lost(group_id);
        for member in recorded.iter().flat_map(|value| &value.members) {
            before.extend(side(
                &member.member_id,
                member.group_instance_id.as_ref(),
                &member.assignment,
            ));
        }
        let after: Vec<_> = group
            .members()
            .filter_map(|(id, member)| side(id, member.instance_id(), member.assignment()))
            .collect();
        let moves = diff(&before, &after, self.journal.config().moves_max);
        self.journal.assigned(group_id, moves);
    }

    fn answer_joins(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        actions: &mut Actions,
    ) {
        let deadline = now.plus(group.rebalance_timeout_ms());
        self.timers.arm(Timer::Sync(group_id.clone()), deadline);
        group.owe_syncs(true);
        for member_id in group.member_ids() {
            if let Some(member) = group.member_mut(&member_id) {
                member.is_new = false;
            }
            if let Some(join) = group.park_join(&member_id, None) {
                let leads = group.is_leader(&member_id);
                let members = if leads {
                    self.joined_members(group_id, group)
                } else {
                    Vec::new()
                };
                let reply = JoinReply {
                    members,
                    ..joined(group, member_id.clone())
                };
                actions.reply(join, group_id, Reply::Join(reply));
            }
            self.arm_session_in(now, group_id, group, &member_id);
        }
    }

    /// SyncGroup.
    pub(in crate::group) fn sync(
        &mut self,
        now: Millis,
        id: RequestId,
        request: Sync,
        actions: &mut Actions,
    ) {
        let group_id = request.group_id.clone();
        if self.state.consumer(&group_id).is_some() {
            return self.consumer_sync(now, id, &request, actions);
        }
        if let Err(error) = self.check_sync(&request) {
            return refuse_sync(id, &group_id, error, actions);
        }
        let Some(mut group) = self.classic.remove(&*group_id) else {
            return;
        };
        match group.phase {
            Phase::Stable => {
                self.sync_again(now, id, &group_id, &mut group, &request.member_id, actions)
            }
            Phase::CompletingRebalance => {
                self.sync_in_turn(now, id, &group_id, &mut group, request, actions);
            }
            Phase::Empty | Phase::PreparingRebalance => {
                refuse_sync(id, &group_id, ErrorCode::RebalanceInProgress, actions);
            }
        }
        self.keep(group_id, group);
    }

    fn check_sync(&self, request: &Sync) -> Result<(), ErrorCode> {
        if request.protocol_required
            && (request.protocol_type.is_none() || request.protocol_name.is_none())
        {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        if request.group_id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        let group = self
            .classic
            .get(&*request.group_id)
            .ok_or(ErrorCode::UnknownMemberId)?;
        if group.phase == Phase::Empty {
            return Err(ErrorCode::UnknownMemberId);
        }
        group.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation != group.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let type_differs = request
            .protocol_type
            .as_ref()
            .is_some_and(|asked| *asked != group.protocol_type);
        let name_differs = match (&request.protocol_name, &group.protocol) {
            (Some(asked), Some(chosen)) => asked != chosen,
            _ => false,
        };
        if type_differs || name_differs {
            return Err(ErrorCode::InconsistentGroupProtocol);
        }
        Ok(())
    }

    /// The generation has its assignment: here is the member's part.
    fn sync_again(
        &mut self,
        now: Millis,
        id: RequestId,
        group_id: &GroupId,
        group: &mut Group,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        group.has_synced(member_id);
        self.journal.comes(group_id, || group.member_ref(member_id));
        let Some(member) = group.member(member_id) else {
            return;
        };
        let assignment = member.assignment.clone();
        actions.reply(id, group_id, Reply::Sync(synced(group, assignment)));
        self.stop_waiting_for_syncs(now, group_id, group, actions);
    }

    /// The generation waits for its leader: park, or be the leader.
    fn sync_in_turn(
        &mut self,
        now: Millis,
        id: RequestId,
        group_id: &GroupId,
        group: &mut Group,
        request: Sync,
        actions: &mut Actions,
    ) {
        group.has_synced(&request.member_id);
        let member_id = &request.member_id;
        self.journal.comes(group_id, || group.member_ref(member_id));
        let Some(member) = group.member_mut(&request.member_id) else {
            return;
        };
        actions.superseded.extend(member.sync.replace(id));
        if group.is_leader(&request.member_id) {
            self.assign(now, group_id, group, request.assignments, actions);
        }
    }

    /// Records the leader's assignment and hands it out.
    fn assign(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        assignments: Vec<(MemberId, Bytes)>,
        actions: &mut Actions,
    ) {
        let mut by_member: BTreeMap<MemberId, Bytes> = assignments.into_iter().collect();
        let strips = self.withholds(group_id) && &*group.protocol_type == "consumer";
        let protocol = group.protocol.clone();
        let mut is_partial = false;
        for (member_id, member) in group.members_mut() {
            let given = by_member.remove(member_id).unwrap_or_default();
            member.assignment = if strips {
                let name = protocol.as_deref().unwrap_or("");
                let whole = given.clone();
                let left = self.stripped(group_id, member_id, given, || member.metadata_for(name));
                is_partial |= left != whole;
                left
            } else {
                given
            };
        }
        group.is_partial = is_partial;
        group.phase = Phase::Stable;
        group.state_timestamp = now;
        self.stats.classic_completed_rebalances += 1;
        self.tell_moves(group_id, group);
        let value = Some(group.value().into());
        self.emit(
            Record::GroupMetadata {
                group_id: group_id.clone(),
                value,
            },
            actions,
        );
        for member_id in group.member_ids() {
            let Some(member) = group.member_mut(&member_id) else {
                continue;
            };
            let Some(sync) = member.sync.take() else {
                continue;
            };
            let assignment = member.assignment.clone();
            actions.reply(sync, group_id, Reply::Sync(synced(group, assignment)));
            self.arm_session_in(now, group_id, group, &member_id);
        }
        self.stop_waiting_for_syncs(now, group_id, group, actions);
    }

    /// If everybody has seen its assignment: nobody is waited for, and where some had what they must not own, and now
    /// know it, the group gathers again.
    fn stop_waiting_for_syncs(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        actions: &mut Actions,
    ) {
        if !group.all_synced() {
            return;
        }
        self.timers.cancel(&Timer::Sync(group_id.clone()));
        self.journal.ends(now, group_id, "completed");
        if std::mem::take(&mut group.clearing.again) {
            let why = self.journal.by_operator(group_id);
            self.rebalance(now, group_id, group, why, actions);
        }
    }

    /// The time to sync is over: whoever has not is out.
    pub(in crate::group) fn sync_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        let Some(mut group) = self.classic.remove(&**group_id) else {
            return;
        };
        let mut why = Vec::new();
        for member_id in group.silent_members() {
            why.push(Trigger::new(Cause::SyncTimeout).by(group.member_ref(&member_id)));
            self.expel(group_id, &mut group, &member_id, actions);
        }
        if !why.is_empty() {
            let why = Triggers::of(why, Cause::SyncTimeout);
            self.rebalance(now, group_id, &mut group, why, actions);
        }
        self.keep(group_id.clone(), group);
    }
}

/// What a member has, if its bytes say so.
fn side(member_id: &MemberId, instance_id: Option<&InstanceId>, bytes: &Bytes) -> Option<Side> {
    Some(Side {
        member_id: member_id.clone(),
        instance_id: instance_id.cloned(),
        partitions: Assignment::parse(bytes)?.partitions,
    })
}

fn synced(group: &Group, assignment: Bytes) -> SyncReply {
    SyncReply {
        error: ErrorCode::None,
        protocol_type: Some(group.protocol_type.clone()),
        protocol_name: group.protocol.clone(),
        assignment,
    }
}
