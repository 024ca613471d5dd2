//! Consumer groups: what is decided on ConsumerGroupHeartbeat and by their timers (KIP-848, semantics 3).
//!
//! A heartbeat goes three steps, and so does a classic member's join into such a group:
//! 1. `member`: who is it, and what does it tell that is new; a news of weight raises the group epoch;
//! 2. `target`: if the group epoch is ahead of the target's and the interval has passed, compute a new target;
//! 3. `reconcile`: one step of this member towards its target.
//!
//! Between heartbeats the target is computed by a timer, where Kafka waits for somebody's next heartbeat. Everything
//! that must outlive the process is in records; here are only deadlines.
//!
//! Sessions are lazy as those of classic members: a heartbeat moves the deadline, the timer looks at it.

mod classic;
mod member;
mod patterns;
mod target;
#[cfg(test)]
pub(super) mod tests;

use std::sync::Arc;

use hashbrown::HashMap;

pub(super) use classic::{assignment_of, ids_of};
pub(super) use member::{Who, Word};
pub(super) use patterns::Patterns;

use super::journal::{Lost, Triggers};
use super::operator::{Setting, Trigger};
use super::reconcile::without_epochs;
use super::record::{CurrentAssignmentValue, MemberState, Record};
use super::request::{
    ConsumerHeartbeat, ConsumerHeartbeatReply, ErrorCode, OffsetFetch, Reply, RequestId,
};
use super::state::{ConsumerGroup, ConsumerMember};
use super::stats::Cause;
use super::timers::Timer;
use super::types::{GroupId, MemberId, Millis};
use super::upgrade::Takeover;
use super::{Actions, Coordinator};

/// The member epoch of somebody who leaves.
pub(super) const LEAVE: i32 = -1;
/// The member epoch of a static member that leaves for a while.
pub(super) const LEAVE_FOR_A_WHILE: i32 = -2;
/// The shortest heartbeat interval that is hinted.
const HINT_MS_MIN: i64 = 100;
/// The same for a member that waits for others to let go: by then those have heard of it.
const HINT_MS_MIN_WAITING: i64 = 500;
/// How long what was let go rests before a member that comes when it is told may have it. Some clients confirm before
/// the application knows (platformatic-kafka 1.35); at Kafka's pace that never shows.
const REST_MS: i64 = 150;

/// A refusal: the code and what is wrong, in words.
pub(super) type Refusal = (ErrorCode, String);

/// Settings of one group that stand over the coordinator's. Values outside the bounds count as the nearest bound.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupOverrides {
    /// `consumer.session.timeout.ms`.
    pub session_timeout_ms: Option<i32>,
    /// `consumer.heartbeat.interval.ms`.
    pub heartbeat_interval_ms: Option<i32>,
    /// `consumer.assignment.interval.ms`.
    pub assignment_interval_ms: Option<i32>,
    /// `convoke.offsets.retention.ms`; -1 for ever.
    pub offsets_retention_ms: Option<i64>,
    /// `convoke.group.max.members`.
    pub members_max: Option<i64>,
    /// `convoke.group.max.offsets`.
    pub offsets_max: Option<i64>,
    /// `convoke.group.paused`: members stay, and own nothing.
    pub paused: bool,
}

impl GroupOverrides {
    /// What an operator may set by its name.
    #[must_use]
    pub fn get(&self, setting: Setting) -> Option<i64> {
        match setting {
            Setting::OffsetsRetentionMs => self.offsets_retention_ms,
            Setting::MembersMax => self.members_max,
            Setting::OffsetsMax => self.offsets_max,
        }
    }

    /// Sets it; `None` puts the server's value back.
    pub fn set(&mut self, setting: Setting, value: Option<i64>) {
        match setting {
            Setting::OffsetsRetentionMs => self.offsets_retention_ms = value,
            Setting::MembersMax => self.members_max = value,
            Setting::OffsetsMax => self.offsets_max = value,
        }
    }
}

/// The soft state of a consumer group with members.
#[derive(Debug, Default)]
pub(super) struct Live {
    sessions: HashMap<MemberId, Session>,
    /// A subscribed topic has changed since the metadata hash was computed.
    stale: bool,
    /// What has happened that the epoch is to rise for, as far as that is known.
    owed: Vec<Trigger>,
    /// No target is computed before, unless there is other news: a static member has left and may be back at once.
    hold_until: Millis,
    /// When a member last confirmed that it has given something back.
    let_go_at: Millis,
}

impl Live {
    /// When a member's session ends.
    pub(super) fn deadline(&self, member_id: &str) -> Option<Millis> {
        self.sessions.get(member_id).map(|session| session.deadline)
    }

    /// Whether a timer of this group is armed for something.
    pub(super) fn awaits(&self, timer: &Timer) -> bool {
        match timer {
            Timer::Session(_, member_id) | Timer::MemberSync(_, member_id) => {
                self.sessions.contains_key(member_id)
            }
            Timer::Revocation(_, member_id) => {
                let session = self.sessions.get(member_id);
                session.is_some_and(|session| session.revokes_in.is_some())
            }
            Timer::MemberJoin(_, member_id) => {
                let session = self.sessions.get(member_id);
                session.is_some_and(|session| session.owes_join)
            }
            Timer::Assign(_) | Timer::Resolve(_) => true,
            _ => false,
        }
    }
}

/// The soft state of a member.
#[derive(Debug, Default)]
struct Session {
    /// When its session ends. A heartbeat only moves this.
    deadline: Millis,
    /// When its session timer will look; `None` if it is not armed.
    armed: Option<Millis>,
    /// The epoch in which it must revoke before its revocation timer.
    revokes_in: Option<i32>,
    /// A classic member was told to rejoin and has not yet.
    owes_join: bool,
    /// When it was told to come again.
    due: Millis,
}

impl Coordinator {
    /// ConsumerGroupHeartbeat.
    pub(super) fn consumer_heartbeat(
        &mut self,
        now: Millis,
        id: RequestId,
        request: ConsumerHeartbeat,
        actions: &mut Actions,
    ) {
        let group_id = request.group_id.clone();
        let written = actions.records.len();
        let outcome = self
            .check_fields(&request)
            .and_then(|()| match request.member_epoch {
                LEAVE | LEAVE_FOR_A_WHILE => self.consumer_leave(now, &request, actions),
                _ => self.consumer_beat(now, request, actions),
            });
        let reply = outcome.unwrap_or_else(|(error, message)| {
            assert_eq!(
                actions.records.len(),
                written,
                "a refusal writes nothing: {message}"
            );
            ConsumerHeartbeatReply::refused(error, message)
        });
        let is_kept_out = reply.error == ErrorCode::CoordinatorLoadInProgress;
        let reply = Reply::ConsumerHeartbeat(reply);
        if is_kept_out {
            return self.refuse_late(now, id, &group_id, reply);
        }
        actions.reply(id, &group_id, reply);
    }

    fn consumer_beat(
        &mut self,
        now: Millis,
        mut request: ConsumerHeartbeat,
        actions: &mut Actions,
    ) -> Result<ConsumerHeartbeatReply, Refusal> {
        let group_id = request.group_id.clone();
        let joins = request.member_epoch == 0;
        let takeover = match self.state.consumer(&group_id) {
            Some(_) => Takeover::None,
            None if joins => self.plan_takeover(&request)?,
            None => return Err(no_consumer_group(&group_id, self.exists(&group_id))),
        };
        if request.member_id.is_empty() {
            request.member_id = self.ids.consumer();
        }
        let who = self.find_sender(&request)?;
        self.check_ban(now, &who, &request)?;
        self.check_size(&who, &group_id)?;
        self.check_epoch(&who, &request)?;
        self.check_pattern(&request)?;

        // From here on nothing is refused.
        self.take_over(now, &group_id, takeover, actions);
        // A member of a classic group just taken over is known by now.
        let who = self.find_sender(&request).unwrap_or(who);
        let is_full = joins
            || (request.rebalance_timeout_ms != -1
                && (request.subscribed_topic_names.is_some()
                    || request.subscribed_topic_regex.is_some())
                && request.topic_partitions.is_some());
        let told = self.told(&who, &request);
        let member_id = who.member_id().clone();
        let word = Word {
            who,
            told,
            owned: request.topic_partitions,
        };
        let assigned_anew = self.take_word(now, &group_id, word, actions);
        self.arm_consumer_session(now, &group_id, &member_id);

        let heartbeat_interval_ms = self.next_heartbeat_ms(now, &group_id, &member_id);
        self.session(&group_id, &member_id).due = now.plus(heartbeat_interval_ms.into());
        let current = self.consumer_member(&group_id, &member_id).current();
        let assignment = (is_full || assigned_anew).then(|| without_epochs(&current.assigned));
        Ok(ConsumerHeartbeatReply {
            error: ErrorCode::None,
            message: None,
            member_epoch: current.member_epoch,
            heartbeat_interval_ms,
            member_id: Some(member_id),
            assignment,
        })
    }

    fn consumer_leave(
        &mut self,
        now: Millis,
        request: &ConsumerHeartbeat,
        actions: &mut Actions,
    ) -> Result<ConsumerHeartbeatReply, Refusal> {
        let group_id = &request.group_id;
        if self.state.consumer(group_id).is_none() {
            return Err(no_consumer_group(group_id, self.exists(group_id)));
        }
        let member_id = self.find_sender(request)?.member_id().clone();
        if request.member_epoch == LEAVE_FOR_A_WHILE {
            self.leave_for_a_while(group_id, &member_id, actions);
        } else {
            let leaving = std::slice::from_ref(&member_id);
            self.remove_members(now, group_id, leaving, Cause::MemberLeft, None, actions);
        }
        Ok(ConsumerHeartbeatReply {
            error: ErrorCode::None,
            message: None,
            member_id: Some(member_id),
            member_epoch: request.member_epoch,
            heartbeat_interval_ms: 0,
            assignment: None,
        })
    }

    /// A static member goes and means to come back: what it has stays its own until its session ends.
    fn leave_for_a_while(
        &mut self,
        group_id: &GroupId,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        let mut value = self.consumer_member(group_id, member_id).current().clone();
        value.previous_member_epoch = value.member_epoch;
        value.member_epoch = LEAVE_FOR_A_WHILE;
        value.pending_revocation = Vec::new();
        value.state = MemberState::Stable;
        for topic in &mut value.assigned {
            topic
                .partitions
                .iter_mut()
                .for_each(|(_, epoch)| *epoch = 0);
        }
        self.emit_current(group_id, member_id, value, actions);
        self.disarm_revocation(group_id, member_id);
    }

    /// Members are gone, by their own word or not: of all or of each alike it may be known why. The group goes over to the classic protocol if nobody else is left
    /// to speak the new one; otherwise its epoch rises and a timer sees to the rest.
    pub(super) fn remove_members(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_ids: &[MemberId],
        cause: Cause,
        detail: Option<Arc<str>>,
        actions: &mut Actions,
    ) {
        let group = self.state.consumer(group_id);
        let is_static = |id: &MemberId| group.is_some_and(|g| g.is_static(id));
        let static_left = cause == Cause::MemberLeft && member_ids.iter().any(is_static);
        let (why, lost) = self.departures(group_id, member_ids, cause, detail.as_ref());
        for member_id in member_ids {
            self.drop_member(group_id, member_id, actions);
        }
        self.drop_unused_patterns(group_id, actions);
        if self.may_downgrade(group_id) {
            return self.downgrade(now, group_id, Some(why), lost, actions);
        }
        self.raise_epoch(now, group_id, why, actions);
        self.journal.lost(group_id, lost);
        if self
            .state
            .consumer(group_id)
            .is_some_and(ConsumerGroup::is_empty)
        {
            self.settle_empty(now, group_id, actions);
        } else {
            if static_left {
                // Some clients say so on every restart (platformatic-kafka 1.35). As late as Kafka, which waits for the
                // next heartbeat of anybody, is early enough.
                let interval_ms = self.heartbeat_interval_ms(group_id);
                let live = self.consumer.entry(group_id.clone()).or_default();
                live.hold_until = now.plus(interval_ms.into());
            }
            self.arm_assign(now, group_id);
        }
    }

    /// Members that are about to be dropped: what the journal is told of them, and what they were to have.
    fn departures(
        &self,
        group_id: &GroupId,
        member_ids: &[MemberId],
        cause: Cause,
        detail: Option<&Arc<str>>,
    ) -> (Triggers, Vec<Lost>) {
        let (mut why, mut lost) = (Vec::new(), Vec::new());
        let group = self.state.consumer(group_id);
        for member_id in member_ids {
            let Some(member) = group.and_then(|group| group.member(member_id)) else {
                continue;
            };
            let trigger = Trigger::new(cause).by(member.member_ref(member_id));
            why.push(trigger.detail(detail.cloned()));
            if self.journal.is_on() {
                lost.push(Lost {
                    member_id: member_id.clone(),
                    instance_id: member.told().instance_id.clone(),
                    partitions: self.named_with_gone(member.target().clone()),
                });
            }
        }
        (Triggers::of(why, cause), lost)
    }

    /// Removes a member's records, session and timers.
    fn drop_member(&mut self, group_id: &GroupId, member_id: &MemberId, actions: &mut Actions) {
        if !self.orders.is_empty()
            && let Some(member) = self
                .state
                .consumer(group_id)
                .and_then(|group| group.member(member_id))
        {
            let member = member.member_ref(member_id);
            self.member_is_gone(group_id, || member);
        }
        if let Some(group) = self.state.consumer(group_id) {
            for tombstone in group.member_tombstones(group_id, member_id) {
                self.emit(tombstone, actions);
            }
        }
        self.forget_session(group_id, member_id);
    }

    fn forget_session(&mut self, group_id: &GroupId, member_id: &MemberId) {
        let live = self.consumer.get_mut(&**group_id);
        if live.is_some_and(|live| live.sessions.remove(member_id).is_some()) {
            let (group_id, member_id) = (|| group_id.clone(), || member_id.clone());
            self.timers.cancel(&Timer::Session(group_id(), member_id()));
            self.timers
                .cancel(&Timer::Revocation(group_id(), member_id()));
            self.timers
                .cancel(&Timer::MemberJoin(group_id(), member_id()));
            self.timers
                .cancel(&Timer::MemberSync(group_id(), member_id()));
        }
    }

    /// Forgets the soft state of a group that has no members any more, or is no consumer group.
    pub(super) fn forget_live(&mut self, group_id: &GroupId) {
        let Some(live) = self.consumer.get(&**group_id) else {
            return;
        };
        let mut member_ids: Vec<_> = live.sessions.keys().cloned().collect();
        member_ids.sort_unstable();
        for member_id in member_ids {
            self.forget_session(group_id, &member_id);
        }
        self.consumer.remove(&**group_id);
        self.timers.cancel(&Timer::Assign(group_id.clone()));
        self.timers.cancel(&Timer::Resolve(group_id.clone()));
        self.patterns.detach_group(group_id);
    }

    pub(super) fn emit_current(
        &mut self,
        group_id: &GroupId,
        member_id: &MemberId,
        value: CurrentAssignmentValue,
        actions: &mut Actions,
    ) {
        self.emit(
            Record::ConsumerGroupCurrentMemberAssignment {
                group_id: group_id.clone(),
                member_id: member_id.clone(),
                value: Some(value),
            },
            actions,
        );
    }

    /// A member that is known to be there.
    fn consumer_member(&self, group_id: &GroupId, member_id: &MemberId) -> &ConsumerMember {
        self.state
            .consumer(group_id)
            .and_then(|group| group.member(member_id))
            .expect("its record was read or written in this call")
    }

    fn session(&mut self, group_id: &GroupId, member_id: &MemberId) -> &mut Session {
        let live = self.consumer.entry(group_id.clone()).or_default();
        live.sessions.entry(member_id.clone()).or_default()
    }

    /// The member was seen: its session starts again.
    pub(super) fn arm_consumer_session(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_id: &MemberId,
    ) {
        let told = self.consumer_member(group_id, member_id).told();
        let timeout_ms = match &told.classic {
            Some(classic) => classic.session_timeout_ms,
            None => self.session_timeout_ms(group_id),
        };
        self.arm_consumer_session_at(now.plus(timeout_ms.into()), group_id, member_id);
    }

    fn arm_consumer_session_at(
        &mut self,
        deadline: Millis,
        group_id: &GroupId,
        member_id: &MemberId,
    ) {
        let session = self.session(group_id, member_id);
        session.deadline = deadline;
        if session.armed.is_none_or(|armed| deadline < armed) {
            session.armed = Some(deadline);
            self.timers.arm(
                Timer::Session(group_id.clone(), member_id.clone()),
                deadline,
            );
        }
    }

    /// A session timer fired.
    pub(super) fn consumer_session_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        let live = self.consumer.get_mut(&**group_id);
        let Some(session) = live.and_then(|live| live.sessions.get_mut(member_id)) else {
            return;
        };
        session.armed = None;
        let deadline = session.deadline;
        if deadline > now {
            self.arm_consumer_session_at(deadline, group_id, member_id);
        } else {
            let gone = std::slice::from_ref(member_id);
            self.remove_members(now, group_id, gone, Cause::SessionExpired, None, actions);
        }
    }

    /// After each change of what a member has: it must give back in time, or has done so.
    fn watch_revocation(&mut self, now: Millis, group_id: &GroupId, member_id: &MemberId) {
        let member = self.consumer_member(group_id, member_id);
        if member.current().state != MemberState::UnrevokedPartitions {
            return self.disarm_revocation(group_id, member_id);
        }
        let epoch = member.current().member_epoch;
        let deadline = now.plus(member.told().rebalance_timeout_ms.into());
        self.session(group_id, member_id).revokes_in = Some(epoch);
        self.timers.arm(
            Timer::Revocation(group_id.clone(), member_id.clone()),
            deadline,
        );
    }

    fn disarm_revocation(&mut self, group_id: &GroupId, member_id: &MemberId) {
        if self
            .session(group_id, member_id)
            .revokes_in
            .take()
            .is_some()
        {
            self.timers
                .cancel(&Timer::Revocation(group_id.clone(), member_id.clone()));
        }
    }

    /// The time to revoke is over.
    pub(super) fn revocation_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        let Some(member) = self
            .state
            .consumer(group_id)
            .and_then(|g| g.member(member_id))
        else {
            return;
        };
        let (state, epoch) = (member.current().state, member.current().member_epoch);
        let revokes_in = self.session(group_id, member_id).revokes_in.take();
        if state == MemberState::UnrevokedPartitions && revokes_in == Some(epoch) {
            let gone = std::slice::from_ref(member_id);
            self.remove_members(now, group_id, gone, Cause::RebalanceTimeout, None, actions);
        }
    }

    /// Arms what must be armed for the groups of the records: full sessions, revocations that were under way, targets
    /// that are owed. Topics may have changed meanwhile, so hashes and patterns are looked at again.
    pub(super) fn load_consumer(&mut self, now: Millis) {
        for group_id in self.state.group_ids() {
            let Some(group) = self
                .state
                .consumer(&group_id)
                .filter(|group| !group.is_empty())
            else {
                continue;
            };
            let patterns: Vec<_> = group.patterns().cloned().collect();
            for member_id in group.member_ids() {
                self.arm_consumer_session(now, &group_id, &member_id);
                self.watch_revocation(now, &group_id, &member_id);
            }
            if !self.target_is_whole(&group_id) {
                // An operator's action, which died with the process, withheld something from the members.
                self.must_tell_members(&group_id);
            }
            self.consumer.entry(group_id.clone()).or_default().stale = true;
            self.arm_assign(now, &group_id);
            if !patterns.is_empty() {
                for pattern in &patterns {
                    self.patterns.attach(pattern, &group_id, &self.topics);
                }
                self.timers.arm(Timer::Resolve(group_id), now);
            }
        }
    }

    /// Sets what stands over the coordinator's settings for one group, which need not exist.
    pub fn configure_group(&mut self, group_id: &GroupId, overrides: GroupOverrides) {
        let was_paused = self.is_paused(group_id);
        self.set_overrides(group_id, overrides);
        if was_paused != overrides.paused {
            let action = if overrides.paused { "pause" } else { "resume" };
            let announced = self.journal.operator(group_id);
            if announced.is_none_or(|(_, last)| **last != *action) && self.exists(group_id) {
                // Nobody has said that it was coming: it came by Kafka's own tools.
                let who = Arc::from("GROUP config");
                let what = format!("convoke.group.paused={}", overrides.paused);
                self.journal.operated(group_id, &who, &what);
            }
            self.must_tell_members(group_id);
        }
    }

    pub(super) fn set_overrides(&mut self, group_id: &GroupId, overrides: GroupOverrides) {
        if overrides == GroupOverrides::default() {
            self.overrides.remove(&**group_id);
        } else {
            self.overrides.insert(group_id.clone(), overrides);
        }
    }

    pub(super) fn overridden(&self, group_id: &str) -> GroupOverrides {
        self.overrides.get(group_id).copied().unwrap_or_default()
    }

    pub(super) fn session_timeout_ms(&self, group_id: &str) -> i32 {
        self.config
            .consumer_session_timeout_ms
            .of(self.overridden(group_id).session_timeout_ms)
    }

    fn heartbeat_interval_ms(&self, group_id: &str) -> i32 {
        let asked = self.overridden(group_id).heartbeat_interval_ms;
        self.config.consumer_heartbeat_interval_ms.of(asked)
    }

    fn assignment_interval_ms(&self, group_id: &str) -> i64 {
        let asked = self.overridden(group_id).assignment_interval_ms;
        self.config.consumer_assignment_interval_ms.of(asked).into()
    }

    /// When the member shall come again: sooner than usual while something is about to happen that concerns it, and for
    /// a while after each change. Changes come in crowds (a deployment, an autoscaler), and a member hears of one only
    /// when it comes: so it is asked to come after a quarter of the time that has passed since the last.
    fn next_heartbeat_ms(&self, now: Millis, group_id: &GroupId, member_id: &MemberId) -> i32 {
        let usual_ms = self.heartbeat_interval_ms(group_id);
        let Some(group) = self
            .state
            .consumer(group_id)
            .filter(|_| self.config.heartbeat_hint)
        else {
            return usual_ms;
        };
        let member = self.consumer_member(group_id, member_id);
        let pattern = &member.told().subscribed_topic_regex;
        let soon_ms = if group.awaits_target() {
            self.assign_due(group_id, group).since(now)
        } else if pattern
            .as_ref()
            .is_some_and(|pattern| group.resolved(pattern).is_none())
        {
            0
        } else {
            now.since(group.assignment_timestamp()) / 4
        };
        // Ten thousand members need not all come ten times a second.
        let rests = self.rests(now, group_id);
        let least_ms = match member.current().state {
            MemberState::UnreleasedPartitions if rests => REST_MS,
            MemberState::UnreleasedPartitions => HINT_MS_MIN_WAITING,
            _ => HINT_MS_MIN.max(group.member_count() as i64 / 10),
        };
        i32::try_from(soon_ms.max(least_ms))
            .unwrap_or(usual_ms)
            .min(usual_ms)
    }

    fn rests(&self, now: Millis, group_id: &str) -> bool {
        self.consumer
            .get(group_id)
            .is_some_and(|live| now.since(live.let_go_at) < REST_MS)
    }

    /// Whether the member waits, comes when it was told, and what it waits for has only just been let go.
    fn must_wait_on(&self, now: Millis, group_id: &str, member_id: &str) -> bool {
        let member = self
            .state
            .consumer(group_id)
            .and_then(|group| group.member(member_id));
        let session = self
            .consumer
            .get(group_id)
            .and_then(|live| live.sessions.get(member_id));
        self.config.heartbeat_hint
            && self.rests(now, group_id)
            && session.is_some_and(|session| session.due <= now)
            && member.is_some_and(|m| m.current().state == MemberState::UnreleasedPartitions)
    }

    /// Whether an OffsetFetch that names a member may have its answer (semantics 3.13).
    pub(super) fn check_consumer_fetch(
        group: &ConsumerGroup,
        request: &OffsetFetch,
    ) -> Result<(), ErrorCode> {
        let Some(member_id) = &request.member_id else {
            // Kafka fails so on an epoch without a member.
            return if request.member_epoch < 0 {
                Ok(())
            } else {
                Err(ErrorCode::UnknownServerError)
            };
        };
        let member = group.member(member_id).ok_or(ErrorCode::UnknownMemberId)?;
        if request.member_epoch == member.current().member_epoch {
            Ok(())
        } else {
            Err(stale(member))
        }
    }
}

/// What a member hears whose epoch is not its own.
pub(super) fn stale(member: &ConsumerMember) -> ErrorCode {
    if member.told().classic.is_some() {
        ErrorCode::IllegalGeneration
    } else {
        ErrorCode::StaleMemberEpoch
    }
}

/// Refuses what only a consumer group can answer. The stock tools show the message as it is.
pub(super) fn no_consumer_group(group_id: &str, exists: bool) -> Refusal {
    let message = if exists {
        format!("Group {group_id} is not a consumer group.")
    } else {
        format!("Group {group_id} not found.")
    };
    (ErrorCode::GroupIdNotFound, message)
}
