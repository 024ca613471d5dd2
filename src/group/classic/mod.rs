//! Classic groups: what is decided on JoinGroup, SyncGroup, Heartbeat, LeaveGroup and their timers (semantics 2).
//!
//! ```text
//!            a member is added               everybody joined, or time is up
//!   Empty ───────────────────▶ PreparingRebalance ─────────────────▶ CompletingRebalance
//!     ▲                          ▲        │   ▲                        │          │
//!     └──────────────────────────┼────────┘   └────────────────────────┤          │ the leader synced
//!            nobody is left      │              a member came, left,   │          ▼
//!                                └─────────────────────────────────────┴─────── Stable
//!                                               changed, or did not sync
//! ```
//!
//! A group is kept here while it has members or has handed out member ids; an Empty one is just its record. Three
//! moments are recorded: the group is made, a generation gets its assignment (or a static member its next id), the
//! last member is gone.
//!
//! Sessions are lazy: a heartbeat only moves the member's deadline. The timer looks at the deadline when it fires, and
//! is armed again if the member has been seen since.

mod group;
mod join;
mod rebalance;

pub(super) use group::{BY_ORDER, Group, Member, Phase};

use super::journal::Triggers;
use super::operator::{MemberRef, Trigger};
use super::request::{
    ErrorCode, Heartbeat, Leave, LeaveReply, LeavingMember, LeftMember, Reply, RequestId,
};
use super::stats::Cause;
use super::timers::{Timer, Timers};
use super::types::{GroupId, MemberId, Millis};
use super::{Actions, Coordinator};

/// How long a member whose first join is parked is kept (KAFKA-7610). Not a setting in Kafka either.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i64 = 300_000;

impl Coordinator {
    /// Heartbeat.
    pub(super) fn heartbeat(
        &mut self,
        now: Millis,
        id: RequestId,
        request: &Heartbeat,
        actions: &mut Actions,
    ) {
        let error = self
            .check_heartbeat(now, request)
            .err()
            .unwrap_or(ErrorCode::None);
        actions.reply(id, &request.group_id, Reply::Heartbeat(error));
    }

    fn check_heartbeat(&mut self, now: Millis, request: &Heartbeat) -> Result<(), ErrorCode> {
        if request.group_id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        if self.state.consumer(&request.group_id).is_some() {
            return self.classic_heartbeat(now, request);
        }
        let group = self
            .classic
            .get_mut(&*request.group_id)
            .ok_or(ErrorCode::UnknownMemberId)?;
        group.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation != group.generation {
            return Err(ErrorCode::IllegalGeneration);
        }
        let preparing = group.phase == Phase::PreparingRebalance;
        let member = group
            .member_mut(&request.member_id)
            .ok_or(ErrorCode::UnknownMemberId)?;
        let deadline = now.plus(member.session_timeout_ms.into());
        let (group_id, member_id) = (&request.group_id, &request.member_id);
        arm_session_at(&mut self.timers, deadline, group_id, member_id, member);
        if preparing {
            Err(ErrorCode::RebalanceInProgress)
        } else {
            Ok(())
        }
    }

    /// LeaveGroup.
    pub(super) fn leave(
        &mut self,
        now: Millis,
        id: RequestId,
        request: Leave,
        actions: &mut Actions,
    ) {
        let group_id = request.group_id.clone();
        if group_id.is_empty() {
            let refusal = LeaveReply {
                error: ErrorCode::InvalidGroupId,
                members: Vec::new(),
            };
            return actions.reply(id, &group_id, Reply::Leave(refusal));
        }
        let mut members = Vec::with_capacity(request.members.len());
        let mut why = Vec::new();
        if self.state.consumer(&group_id).is_some() {
            let outcomes = self.consumer_leave_batch(now, &request, actions);
            let pairs = request.members.into_iter().zip(outcomes);
            members.extend(pairs.map(|(leaving, error)| left(leaving, error)));
        } else if let Some(mut group) = self.classic.remove(&*group_id) {
            for leaving in request.members {
                let outcome = self.leave_one(&group_id, &mut group, &leaving, actions);
                let error = outcome.as_ref().err().copied();
                why.extend(outcome.ok().map(|member| Trigger {
                    member,
                    ..Trigger::new(Cause::MemberLeft).detail(leaving.reason.clone())
                }));
                members.push(left(leaving, error.unwrap_or(ErrorCode::None)));
            }
            if !why.is_empty() && group.phase != Phase::Empty {
                let why = Triggers::of(why, Cause::MemberLeft);
                self.rebalance(now, &group_id, &mut group, why, actions);
            }
            self.keep(group_id.clone(), group);
        } else {
            members.extend(
                request
                    .members
                    .into_iter()
                    .map(|leaving| left(leaving, ErrorCode::UnknownMemberId)),
            );
        }
        let reply = LeaveReply {
            error: ErrorCode::None,
            members,
        };
        actions.reply(id, &group_id, Reply::Leave(reply));
    }

    fn leave_one(
        &mut self,
        group_id: &GroupId,
        group: &mut Group,
        leaving: &LeavingMember,
        actions: &mut Actions,
    ) -> Result<Option<MemberRef>, ErrorCode> {
        let instance_id = leaving.group_instance_id.as_ref();
        let member_id = if leaving.member_id.is_empty() {
            let holder = instance_id.and_then(|instance_id| group.static_member(instance_id));
            holder.cloned().ok_or(ErrorCode::UnknownMemberId)?
        } else if group.pending.contains_key(&leaving.member_id) {
            self.forget_pending(group_id, group, &leaving.member_id);
            return Ok(None);
        } else {
            group.check_member(&leaving.member_id, instance_id)?;
            leaving.member_id.clone()
        };
        let member = group.member_ref(&member_id);
        self.expel(group_id, group, &member_id, actions);
        Ok(Some(member))
    }

    /// Takes a member out of a group and answers what it has parked. The caller goes on to rebalance.
    pub(super) fn expel(
        &mut self,
        group_id: &GroupId,
        group: &mut Group,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        if !self.orders.is_empty() {
            self.member_is_gone(group_id, || group.member_ref(member_id));
        }
        let Some(member) = group.remove(member_id) else {
            return;
        };
        self.timers
            .cancel(&Timer::Session(group_id.clone(), member_id.clone()));
        if let Some(join) = member.join {
            join::refuse(
                join,
                group_id,
                ErrorCode::UnknownMemberId,
                "".into(),
                actions,
            );
        }
        if let Some(sync) = member.sync {
            // Kafka leaves this one without an answer for ever.
            rebalance::refuse_sync(sync, group_id, ErrorCode::UnknownMemberId, actions);
        }
    }

    /// Takes back an id that was handed out.
    pub(super) fn forget_pending(
        &mut self,
        group_id: &GroupId,
        group: &mut Group,
        member_id: &MemberId,
    ) {
        if group.pending.remove(member_id).is_some() {
            group.awaited.remove(member_id);
            self.timers
                .cancel(&Timer::PendingMember(group_id.clone(), member_id.clone()));
        }
    }

    /// Puts a group back after a step; one without members and handed-out ids is left to its record.
    pub(super) fn keep(&mut self, group_id: GroupId, mut group: Box<Group>) {
        if !group.is_vacant() {
            group.count(&self.config.memory);
            self.classic.insert(group_id, group);
        }
    }

    /// The member was seen: its session starts again.
    pub(super) fn arm_session(&mut self, now: Millis, group_id: &GroupId, member_id: &MemberId) {
        let group = self.classic.get_mut(&**group_id);
        if let Some(member) = group.and_then(|group| group.member_mut(member_id)) {
            let deadline = now.plus(member.session_timeout_ms.into());
            arm_session_at(&mut self.timers, deadline, group_id, member_id, member);
        }
    }

    /// As [`Self::arm_session`], for a group in hand.
    pub(super) fn arm_session_in(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        member_id: &MemberId,
    ) {
        if let Some(member) = group.member_mut(member_id) {
            let deadline = now.plus(member.session_timeout_ms.into());
            arm_session_at(&mut self.timers, deadline, group_id, member_id, member);
        }
    }

    /// A session timer fired.
    pub(super) fn session_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        let Some(mut group) = self.classic.remove(&**group_id) else {
            return;
        };
        if let Some(member) = group.member_mut(member_id) {
            member.session_armed = None;
            let parked = member.join.is_some() || member.sync.is_some();
            if member.session_deadline > now {
                let deadline = member.session_deadline;
                arm_session_at(&mut self.timers, deadline, group_id, member_id, member);
            } else if !parked || member.is_new {
                let why = Trigger::new(Cause::SessionExpired).by(group.member_ref(member_id));
                self.expel(group_id, &mut group, member_id, actions);
                self.rebalance(now, group_id, &mut group, why, actions);
            }
        }
        self.keep(group_id.clone(), group);
    }

    /// A handed-out member id was not used in time: it is waited for no longer, and in the end it is good no longer.
    pub(super) fn pending_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        let Some(mut group) = self.classic.remove(&**group_id) else {
            return;
        };
        if let Some(good_until) = group.pending.get(member_id).copied() {
            group.awaited.remove(member_id);
            if good_until > now {
                self.timers.arm(
                    Timer::PendingMember(group_id.clone(), member_id.clone()),
                    good_until,
                );
            } else {
                group.pending.remove(member_id);
            }
            self.complete_join_if_all_joined(now, group_id, &mut group, actions);
        }
        self.keep(group_id.clone(), group);
    }

    /// Makes the groups of the records live again: Stable, with full sessions. A group that is over the limit gathers
    /// anew, so that the limit can take effect.
    pub(super) fn load_classic(&mut self, now: Millis, actions: &mut Actions) {
        for group_id in self.state.group_ids() {
            let recorded = self
                .state
                .group(&group_id)
                .and_then(|entry| entry.classic.clone());
            let Some(value) = recorded.filter(|value| !value.members.is_empty()) else {
                continue;
            };
            let mut group = Box::new(Group::loaded(&value));
            for member_id in group.member_ids() {
                self.arm_session_in(now, &group_id, &mut group, &member_id);
            }
            if group.member_count() > self.config.max_size {
                self.rebalance(now, &group_id, &mut group, Cause::GroupOverMaxSize, actions);
            } else if value.leader.is_none() {
                // It turned classic and was about to gather.
                self.rebalance(now, &group_id, &mut group, Cause::Migration, actions);
            } else if value.leader.as_deref() == Some(BY_ORDER) {
                self.rebalance(now, &group_id, &mut group, Cause::Operator, actions);
            }
            self.keep(group_id, group);
        }
    }
}

/// The member's session ends then. Its timer is moved only if it would look too late.
fn arm_session_at(
    timers: &mut Timers,
    deadline: Millis,
    group_id: &GroupId,
    member_id: &MemberId,
    member: &mut Member,
) {
    member.session_deadline = deadline;
    if member.session_armed.is_none_or(|armed| deadline < armed) {
        member.session_armed = Some(deadline);
        timers.arm(
            Timer::Session(group_id.clone(), member_id.clone()),
            deadline,
        );
    }
}

fn left(leaving: LeavingMember, error: ErrorCode) -> LeftMember {
    LeftMember {
        member_id: leaving.member_id,
        group_instance_id: leaving.group_instance_id,
        error,
    }
}

/// Tells everybody who is parked that there is nothing to wait for any more, and why.
pub(super) fn dismiss(
    group_id: &GroupId,
    group: &mut Group,
    error: ErrorCode,
    actions: &mut Actions,
) {
    for member_id in group.member_ids() {
        if let Some(join) = group.park_join(&member_id, None) {
            join::refuse(join, group_id, error, member_id.clone(), actions);
        }
        if let Some(sync) = group
            .member_mut(&member_id)
            .and_then(|member| member.sync.take())
        {
            rebalance::refuse_sync(sync, group_id, error, actions);
        }
    }
}
