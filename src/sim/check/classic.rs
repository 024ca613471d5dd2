//! What a classic group must do: a second, plainer telling of the rules, fed with requests and replies alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::Verdict;
use crate::group::request::{
    DescribeReply, ErrorCode, Heartbeat, Join, JoinReply, Leave, OffsetCommit, Reply, Request,
    RequestId, Sync,
};
use crate::group::subscription::subscribed_topics;
use crate::group::types::{InstanceId, MemberId, Millis, TopicName};
use crate::group::{Answer, GroupConfig};

/// How long a member whose first join is parked is kept.
const NEW_MEMBER_MS: i64 = 300_000;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Empty,
    Preparing,
    Completing,
    Stable,
}

impl Phase {
    pub(super) fn of(state: &str) -> Option<Self> {
        match state {
            "Empty" => Some(Self::Empty),
            "PreparingRebalance" => Some(Self::Preparing),
            "CompletingRebalance" => Some(Self::Completing),
            "Stable" => Some(Self::Stable),
            _ => None,
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) instance_id: Option<InstanceId>,
    session_ms: i64,
    rebalance_ms: i64,
    /// When it must be gone if it is not heard of.
    deadline: Millis,
    is_new: bool,
    join: Option<RequestId>,
    sync: Option<RequestId>,
    owes_sync: bool,
}

/// A classic group, as far as its clients can tell.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    pub(super) phase: Phase,
    pub(super) generation: i32,
    pub(super) protocol_type: Arc<str>,
    protocol: Option<Arc<str>>,
    leader: Option<MemberId>,
    pub(super) members: BTreeMap<MemberId, Member>,
    pending: BTreeMap<MemberId, Millis>,
    /// Those of the pending that may still hold up the join phase, and until when.
    awaited: BTreeMap<MemberId, Millis>,
    /// Before this moment nobody may be left out of the next generation.
    join_deadline: Option<Millis>,
    initial: bool,
    sync_deadline: Option<Millis>,
    /// What the leader of this generation handed in.
    assignment: BTreeMap<MemberId, Bytes>,
    pub(super) emptied: Millis,
    /// What the members of the running generation subscribe to.
    pub(super) subscribed: BTreeSet<TopicName>,
}

/// What one call did to one group.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) now: Millis,
    pub(super) request: Option<(RequestId, &'a Request)>,
    pub(super) timeout: bool,
    pub(super) loaded: bool,
    pub(super) replies: &'a [&'a Answer],
    pub(super) superseded: &'a [RequestId],
    /// The generation of a record written by the call.
    pub(super) recorded: Option<i32>,
    pub(super) after: &'a DescribeReply,
    pub(super) config: &'a GroupConfig,
}

impl Seen<'_> {
    fn own_reply(&self) -> Option<&Reply> {
        let (id, _) = self.request?;
        self.reply_to(id)
    }

    fn reply_to(&self, id: RequestId) -> Option<&Reply> {
        self.replies
            .iter()
            .find(|answer| answer.id == id)
            .map(|answer| &answer.reply)
    }

    fn joins(&self) -> impl Iterator<Item = &JoinReply> {
        self.replies
            .iter()
            .filter_map(|answer| match &answer.reply {
                Reply::Join(reply) if reply.error == ErrorCode::None => Some(reply),
                _ => None,
            })
    }
}

macro_rules! must {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}

impl Group {
    /// What a crash cannot take: a Stable generation whole, of any other the number alone.
    pub(super) fn durable(&self, recorded_generation: i32) -> Self {
        if self.phase == Phase::Stable {
            return self.clone();
        }
        Self {
            generation: recorded_generation,
            protocol_type: self.protocol_type.clone(),
            emptied: self.emptied,
            ..Self::default()
        }
    }

    /// The group as it must be after the server came up again.
    pub(super) fn reload(&mut self, now: Millis) {
        self.pending.clear();
        self.awaited.clear();
        self.initial = false;
        self.join_deadline = None;
        self.sync_deadline = None;
        self.phase = if self.members.is_empty() {
            Phase::Empty
        } else {
            Phase::Stable
        };
        for member in self.members.values_mut() {
            member.deadline = now.plus(member.session_ms);
            member.is_new = false;
            member.join = None;
            member.sync = None;
            member.owes_sync = false;
        }
    }

    fn rebalance_ms(&self) -> i64 {
        self.members
            .values()
            .map(|member| member.rebalance_ms)
            .max()
            .unwrap_or(0)
    }

    fn holder(&self, instance_id: &str) -> Option<&MemberId> {
        self.members
            .iter()
            .find(|(_, member)| member.instance_id.as_deref() == Some(instance_id))
            .map(|(member_id, _)| member_id)
    }

    /// Whether a sender is who it says.
    fn identity(&self, member_id: &str, instance_id: Option<&InstanceId>) -> Result<(), ErrorCode> {
        if let Some(instance_id) = instance_id {
            match self.holder(instance_id) {
                None => return Err(ErrorCode::UnknownMemberId),
                Some(holder) if **holder != *member_id => return Err(ErrorCode::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.members.contains_key(member_id) {
            Ok(())
        } else {
            Err(ErrorCode::UnknownMemberId)
        }
    }

    /// What a heartbeat must be told.
    pub(super) fn heartbeat(&self, request: &Heartbeat) -> ErrorCode {
        if request.group_id.is_empty() {
            ErrorCode::InvalidGroupId
        } else if let Err(error) =
            self.identity(&request.member_id, request.group_instance_id.as_ref())
        {
            error
        } else if request.generation != self.generation {
            ErrorCode::IllegalGeneration
        } else if self.phase == Phase::Preparing {
            ErrorCode::RebalanceInProgress
        } else {
            ErrorCode::None
        }
    }

    /// What a commit must be told.
    pub(super) fn commit(&self, request: &OffsetCommit) -> ErrorCode {
        let generation = request.generation_or_epoch;
        if generation < 0 && self.phase == Phase::Empty {
            return ErrorCode::None;
        }
        if generation < 0 && request.member_id.is_empty() && request.group_instance_id.is_none() {
            return ErrorCode::UnknownMemberId;
        }
        if let Err(error) = self.identity(&request.member_id, request.group_instance_id.as_ref()) {
            error
        } else if generation != self.generation {
            ErrorCode::IllegalGeneration
        } else if self.phase == Phase::Completing {
            ErrorCode::RebalanceInProgress
        } else {
            ErrorCode::None
        }
    }

    /// What a SyncGroup must be told; success may mean that it is parked.
    fn sync(&self, request: &Sync) -> ErrorCode {
        let no_protocol = request.protocol_type.is_none() || request.protocol_name.is_none();
        if request.protocol_required && no_protocol {
            ErrorCode::InconsistentGroupProtocol
        } else if request.group_id.is_empty() {
            ErrorCode::InvalidGroupId
        } else if self.phase == Phase::Empty {
            ErrorCode::UnknownMemberId
        } else if let Err(error) =
            self.identity(&request.member_id, request.group_instance_id.as_ref())
        {
            error
        } else if request.generation != self.generation {
            ErrorCode::IllegalGeneration
        } else if request
            .protocol_type
            .as_ref()
            .is_some_and(|asked| *asked != self.protocol_type)
            || matches!((&request.protocol_name, &self.protocol), (Some(asked), Some(chosen)) if asked != chosen)
        {
            ErrorCode::InconsistentGroupProtocol
        } else if self.phase == Phase::Preparing {
            ErrorCode::RebalanceInProgress
        } else {
            ErrorCode::None
        }
    }

    /// Takes in what a call did, and says whether it may.
    pub(super) fn advance(&mut self, seen: &Seen<'_>) -> Verdict {
        let now = seen.now;
        let before = self.phase;
        let after = Phase::of(seen.after.state)
            .ok_or_else(|| format!("state {} is none of a classic group", seen.after.state))?;
        if seen.timeout {
            self.pending.retain(|_, deadline| *deadline > now);
            self.awaited.retain(|_, deadline| *deadline > now);
        }
        let mut excused: BTreeSet<MemberId> = BTreeSet::new();
        let mut joiner = None;
        match seen.request {
            Some((id, Request::Join(request))) => {
                joiner = self.take_join(id, request, seen, &mut excused)?;
            }
            Some((_, Request::Leave(request))) => self.take_leave(request, seen, &mut excused)?,
            Some((id, Request::Sync(request))) => self.take_sync(id, request, seen)?,
            Some((_, Request::Heartbeat(request))) => {
                let expected = self.heartbeat(request);
                let given = seen.own_reply();
                must!(
                    given == Some(&Reply::Heartbeat(expected)),
                    "a heartbeat of {} in generation {} must be told {}, but is told {given:?}",
                    request.member_id,
                    request.generation,
                    expected.name()
                );
                if matches!(expected, ErrorCode::None | ErrorCode::RebalanceInProgress) {
                    self.heard_of(&request.member_id, now);
                }
            }
            _ => {}
        }
        for id in seen.superseded {
            for member in self.members.values_mut() {
                let is_new_join = seen
                    .request
                    .is_some_and(|(own, _)| member.join == Some(own));
                must!(
                    member.join != Some(*id) || is_new_join,
                    "request {id:?} is superseded, yet nothing took its place"
                );
                member.sync = member.sync.filter(|sync| sync != id);
            }
        }
        self.take_removals(seen, &excused)?;

        let highest = seen.joins().map(|reply| reply.generation).max();
        let generation = highest
            .max(seen.recorded)
            .unwrap_or(self.generation)
            .max(self.generation);
        let completed = generation > self.generation;
        if before != Phase::Preparing && (after == Phase::Preparing || completed) {
            self.begin_preparing(seen, before, joiner.as_ref())?;
        }
        if completed {
            self.complete(seen, generation, after)?;
        } else {
            self.take_single_joins(seen, joiner.as_ref())?;
        }
        if before == Phase::Completing && after == Phase::Stable {
            self.become_stable(seen)?;
        }
        self.phase = after;
        if after == Phase::Stable && (before != Phase::Stable || seen.loaded) {
            let members = seen.after.members.iter();
            let topics = members.filter_map(|member| subscribed_topics(&member.metadata));
            self.subscribed = topics.flatten().collect();
        }
        if seen.timeout {
            self.wait_on(seen);
        }
        self.check(seen)
    }

    fn heard_of(&mut self, member_id: &str, now: Millis) {
        if let Some(member) = self.members.get_mut(member_id) {
            member.deadline = now.plus(member.session_ms);
        }
    }

    /// An accepted commit counts as a sign of life.
    pub(super) fn committed(&mut self, request: &OffsetCommit, now: Millis) {
        self.heard_of(&request.member_id, now);
    }

    fn take_join(
        &mut self,
        id: RequestId,
        request: &Join,
        seen: &Seen<'_>,
        excused: &mut BTreeSet<MemberId>,
    ) -> Result<Option<MemberId>, String> {
        let own = match seen.own_reply() {
            Some(Reply::Join(reply)) => Some(reply),
            _ => None,
        };
        let error = own.map_or(ErrorCode::None, |reply| reply.error);
        match error {
            ErrorCode::None => {}
            ErrorCode::MemberIdRequired => {
                let member_id = own.map(|reply| reply.member_id.clone()).unwrap_or_default();
                must!(
                    request.member_id.is_empty() && request.group_instance_id.is_none(),
                    "an id was handed out to one who has one"
                );
                let deadline = seen.now.plus(request.session_timeout_ms.into());
                let wait_ms = seen.config.member_id_wait_ms;
                let awaited_until = seen.now.plus(wait_ms).min(deadline);
                self.awaited.insert(member_id.clone(), awaited_until);
                self.pending.insert(member_id, deadline);
                return Ok(None);
            }
            ErrorCode::GroupMaxSizeReached => {
                self.forget(&request.member_id);
                excused.insert(request.member_id.clone());
                return Ok(None);
            }
            ErrorCode::UnknownMemberId
                if self.members.contains_key(&request.member_id)
                    && request.group_instance_id.is_none() =>
            {
                return Err(format!(
                    "{} is a member, but is told that it is none",
                    request.member_id
                ));
            }
            _ => return Ok(None),
        }
        let added: Vec<_> = seen
            .after
            .members
            .iter()
            .filter(|member| !self.members.contains_key(&member.member_id))
            .collect();
        must!(added.len() <= 1, "one join added {} members", added.len());
        let session_ms = i64::from(request.session_timeout_ms);
        let rebalance_ms = if request.rebalance_timeout_ms > 0 {
            i64::from(request.rebalance_timeout_ms)
        } else {
            session_ms
        };
        let joiner = if let Some(new) = added.first() {
            let was_pending = self.forget(&new.member_id);
            must!(
                request.member_id.is_empty() || was_pending && request.member_id == new.member_id,
                "{} joined although nobody gave it that id",
                new.member_id
            );
            let old = request
                .group_instance_id
                .as_ref()
                .filter(|_| request.member_id.is_empty())
                .and_then(|instance_id| self.holder(instance_id).cloned());
            let mut member = Member {
                instance_id: request.group_instance_id.clone(),
                session_ms,
                rebalance_ms,
                deadline: seen.now.plus(NEW_MEMBER_MS),
                is_new: true,
                join: None,
                sync: None,
                owes_sync: false,
            };
            if let Some(old_id) = old {
                let old = self.members.remove(&old_id).expect("found above");
                for parked in [old.join, old.sync].into_iter().flatten() {
                    let told = match seen.reply_to(parked) {
                        Some(Reply::Join(reply)) => reply.error,
                        Some(Reply::Sync(reply)) => reply.error,
                        _ => ErrorCode::None,
                    };
                    must!(
                        told == ErrorCode::FencedInstanceId,
                        "{old_id} was replaced, but its parked request is told {}",
                        told.name()
                    );
                }
                member.is_new = false;
                member.deadline = seen.now.plus(session_ms);
                member.owes_sync = old.owes_sync;
                if let Some(bytes) = self.assignment.remove(&old_id) {
                    self.assignment.insert(new.member_id.clone(), bytes);
                }
                if self.leader.as_ref() == Some(&old_id) {
                    self.leader = Some(new.member_id.clone());
                }
            } else if self.members.is_empty() {
                self.protocol_type = request.protocol_type.clone();
            }
            self.members.insert(new.member_id.clone(), member);
            new.member_id.clone()
        } else {
            request.member_id.clone()
        };
        let as_before = own.is_some_and(|reply| reply.generation == self.generation);
        if let Some(member) = self.members.get_mut(&joiner)
            && !as_before
        {
            member.session_ms = session_ms;
            member.rebalance_ms = rebalance_ms;
            let parked = member.join.replace(id);
            must!(
                parked.is_none_or(|parked| seen.superseded.contains(&parked)),
                "two joins of {joiner} are parked"
            );
        }
        Ok(Some(joiner))
    }

    fn take_leave(
        &mut self,
        request: &Leave,
        seen: &Seen<'_>,
        excused: &mut BTreeSet<MemberId>,
    ) -> Verdict {
        let Some(Reply::Leave(reply)) = seen.own_reply() else {
            return Err("a LeaveGroup is not answered at once".to_owned());
        };
        if request.group_id.is_empty() {
            must!(
                reply.error == ErrorCode::InvalidGroupId && reply.members.is_empty(),
                "leaving the group without a name is told {reply:?}"
            );
            return Ok(());
        }
        must!(
            reply.members.len() == request.members.len(),
            "a LeaveGroup of {} members is answered for {}",
            request.members.len(),
            reply.members.len()
        );
        for (asked, outcome) in request.members.iter().zip(&reply.members) {
            let instance_id = asked.group_instance_id.as_ref();
            let holder = instance_id.and_then(|i| self.holder(i).cloned());
            let named = if asked.member_id.is_empty() {
                holder
            } else {
                Some(asked.member_id.clone())
            };
            let expected = match &named {
                None => ErrorCode::UnknownMemberId,
                Some(id) if self.pending.contains_key(id) => ErrorCode::None,
                Some(id) if excused.contains(id) => ErrorCode::UnknownMemberId,
                Some(id) => self
                    .identity(id, instance_id)
                    .err()
                    .unwrap_or(ErrorCode::None),
            };
            must!(
                outcome.error == expected,
                "leaving as {:?} must be told {}, but is told {}",
                asked,
                expected.name(),
                outcome.error.name()
            );
            if let (ErrorCode::None, Some(id)) = (expected, named)
                && !self.forget(&id)
            {
                excused.insert(id);
            }
        }
        Ok(())
    }

    fn take_sync(&mut self, id: RequestId, request: &Sync, seen: &Seen<'_>) -> Verdict {
        let expected = self.sync(request);
        let own = match seen.own_reply() {
            Some(Reply::Sync(reply)) => Some(reply),
            _ => None,
        };
        let member_id = &request.member_id;
        if expected != ErrorCode::None {
            must!(
                own.is_some_and(|reply| reply.error == expected),
                "a sync of {member_id} in generation {} must be told {}, but is told {own:?}",
                request.generation,
                expected.name()
            );
            return Ok(());
        }
        let is_leader = self.leader.as_ref() == Some(member_id);
        let member = self
            .members
            .get_mut(member_id)
            .expect("known, as it may sync");
        member.owes_sync = false;
        match self.phase {
            Phase::Stable => {
                let bytes = self.assignment.get(member_id).cloned().unwrap_or_default();
                must!(
                    own.is_some_and(
                        |reply| reply.error == ErrorCode::None && reply.assignment == bytes
                    ),
                    "{member_id} must be given its part of generation {}, but is told {own:?}",
                    self.generation
                );
            }
            _ => {
                let parked = member.sync.replace(id);
                must!(
                    parked.is_none_or(|parked| seen.superseded.contains(&parked)),
                    "two syncs of {member_id} are parked"
                );
                if is_leader {
                    let mut by_member: BTreeMap<_, _> =
                        request.assignments.iter().cloned().collect();
                    by_member.retain(|member_id, _| self.members.contains_key(member_id));
                    self.assignment = by_member;
                    must!(own.is_some(), "the leader {member_id} is not answered");
                } else {
                    must!(
                        own.is_none(),
                        "{member_id} does not lead, but is answered before the leader: {own:?}"
                    );
                }
            }
        }
        Ok(())
    }

    /// Nobody goes without a reason.
    fn take_removals(&mut self, seen: &Seen<'_>, excused: &BTreeSet<MemberId>) -> Verdict {
        let now = seen.now;
        let stay: BTreeSet<_> = seen.after.members.iter().map(|m| &m.member_id).collect();
        let gone: Vec<_> = self
            .members
            .keys()
            .filter(|member_id| !stay.contains(member_id))
            .cloned()
            .collect();
        for member_id in gone {
            let member = self.members.remove(&member_id).expect("listed above");
            self.assignment.remove(&member_id);
            let parked = member.join.is_some() || member.sync.is_some();
            let late = seen.timeout
                && (member.deadline <= now && (!parked || member.is_new)
                    || member.owes_sync && self.sync_deadline.is_some_and(|at| at <= now));
            let left_out = seen.timeout
                && self.phase == Phase::Preparing
                && member.join.is_none()
                && member.instance_id.is_none()
                && self.join_deadline.is_some_and(|at| at <= now);
            must!(
                excused.contains(&member_id) || late || left_out,
                "{member_id} was taken out of the group without a reason: {member:?} at {now:?}"
            );
            for id in [member.join, member.sync].into_iter().flatten() {
                must!(
                    seen.reply_to(id).is_some(),
                    "{member_id} is gone, but its request {id:?} stays parked"
                );
            }
            if self.leader.as_ref() == Some(&member_id) {
                self.leader = None;
            }
        }
        Ok(())
    }

    fn begin_preparing(
        &mut self,
        seen: &Seen<'_>,
        before: Phase,
        joiner: Option<&MemberId>,
    ) -> Verdict {
        let now = seen.now;
        for (member_id, member) in &mut self.members {
            member.owes_sync = false;
            if let Some(sync) = member.sync.take() {
                let told = seen.reply_to(sync);
                must!(
                    matches!(told, Some(Reply::Sync(reply)) if reply.error == ErrorCode::RebalanceInProgress),
                    "the group rebalances, but the parked sync of {member_id} is told {told:?}"
                );
                member.deadline = now.plus(member.session_ms);
            }
            must!(
                member.join.is_none() || joiner == Some(member_id),
                "a join of {member_id} was parked although nothing was to be waited for"
            );
        }
        self.phase = Phase::Preparing;
        self.sync_deadline = None;
        self.initial = before == Phase::Empty;
        let wait_ms = if self.initial {
            seen.config.initial_rebalance_delay_ms
        } else {
            self.rebalance_ms()
        };
        self.join_deadline = Some(now.plus(wait_ms));
        Ok(())
    }

    /// Whether this id was handed out and not used; it is not any more.
    fn forget(&mut self, member_id: &MemberId) -> bool {
        self.awaited.remove(member_id);
        self.pending.remove(member_id).is_some()
    }

    /// A join phase is over.
    fn complete(&mut self, seen: &Seen<'_>, generation: i32, after: Phase) -> Verdict {
        let now = seen.now;
        let all_here =
            self.members.values().all(|member| member.join.is_some()) && self.awaited.is_empty();
        let in_time = self.join_deadline.is_none_or(|at| at <= now);
        must!(
            in_time || !self.initial && all_here,
            "generation {generation} begins although somebody may still join: {:?}, handed out {:?}",
            self.members
                .iter()
                .filter(|(_, member)| member.join.is_none())
                .map(|(member_id, _)| member_id)
                .collect::<Vec<_>>(),
            self.awaited
        );
        must!(
            generation - self.generation <= 2,
            "generation {generation} follows {}",
            self.generation
        );
        self.generation = generation;
        self.initial = false;
        self.join_deadline = None;
        self.assignment.clear();
        self.sync_deadline = Some(now.plus(self.rebalance_ms()));
        for (member_id, member) in &mut self.members {
            if let Some(join) = member.join.take() {
                let told = seen.reply_to(join);
                must!(
                    matches!(told, Some(Reply::Join(reply)) if reply.error == ErrorCode::None
                        && reply.generation == generation && reply.member_id == *member_id),
                    "{member_id} joined generation {generation}, but is told {told:?}"
                );
            }
            member.is_new = false;
            member.deadline = now.plus(member.session_ms);
            member.owes_sync = true;
        }
        if self.members.is_empty() {
            must!(
                after == Phase::Empty,
                "a group without members is {after:?}"
            );
            self.leader = None;
            self.protocol = None;
            self.sync_deadline = None;
            self.emptied = now;
            return Ok(());
        }
        self.leader = None;
        self.protocol = None;
        for reply in seen.joins() {
            let leads = reply.leader == reply.member_id;
            must!(
                self.members.contains_key(&reply.leader),
                "{} shall lead generation {generation}, but is no member",
                reply.leader
            );
            must!(
                self.leader
                    .as_ref()
                    .is_none_or(|leader| *leader == reply.leader),
                "generation {generation} has two leaders: {:?} and {}",
                self.leader,
                reply.leader
            );
            must!(
                leads != reply.members.is_empty(),
                "{} is {}the leader of generation {generation}, but is given {} members",
                reply.member_id,
                if leads { "" } else { "not " },
                reply.members.len()
            );
            must!(
                !leads
                    || reply
                        .members
                        .iter()
                        .map(|m| &m.member_id)
                        .eq(self.members.keys()),
                "the leader of generation {generation} is told of other members than there are"
            );
            self.leader = Some(reply.leader.clone());
            self.protocol = reply.protocol_name.clone();
        }
        let leader_joined = self
            .leader
            .as_ref()
            .is_some_and(|leader| seen.joins().any(|reply| reply.member_id == *leader));
        must!(leader_joined, "nobody leads generation {generation}");
        Ok(())
    }

    /// Joins that are answered while no join phase ends.
    fn take_single_joins(&mut self, seen: &Seen<'_>, joiner: Option<&MemberId>) -> Verdict {
        for answer in seen.replies {
            let Reply::Join(reply) = &answer.reply else {
                continue;
            };
            for member in self.members.values_mut() {
                member.join = member.join.filter(|join| *join != answer.id);
            }
            if reply.error != ErrorCode::None {
                continue;
            }
            must!(
                joiner == Some(&reply.member_id) && reply.generation == self.generation,
                "no join phase has ended, but {} joins generation {}",
                reply.member_id,
                reply.generation
            );
            let Some((_, Request::Join(asked))) = seen.request else {
                return Err("a join is answered out of turn".to_owned());
            };
            // Before KIP-814 a static leader that is back is shown its own old id.
            let hidden = asked.member_id.is_empty() && !asked.skip_assignment;
            must!(
                hidden || self.leader.as_ref() == Some(&reply.leader),
                "generation {} is led by {:?}, but {} is told {}",
                self.generation,
                self.leader,
                reply.member_id,
                reply.leader
            );
            let leads = self.leader.as_ref() == Some(&reply.member_id);
            must!(
                leads || reply.members.is_empty() && !reply.skip_assignment,
                "{} does not lead, but is given members",
                reply.member_id
            );
        }
        Ok(())
    }

    fn become_stable(&mut self, seen: &Seen<'_>) -> Verdict {
        let by = match seen.request {
            Some((_, Request::Sync(request))) => &request.member_id,
            _ => return Err("a generation became Stable without a sync".to_owned()),
        };
        must!(
            self.leader.as_ref() == Some(by),
            "{by} assigned generation {}, but {:?} leads it",
            self.generation,
            self.leader
        );
        for (member_id, member) in &mut self.members {
            let Some(sync) = member.sync.take() else {
                continue;
            };
            let bytes = self.assignment.get(member_id).cloned().unwrap_or_default();
            let told = seen.reply_to(sync);
            must!(
                matches!(told, Some(Reply::Sync(reply)) if reply.error == ErrorCode::None && reply.assignment == bytes),
                "{member_id} must be given its part of generation {}, but is told {told:?}",
                self.generation
            );
            member.deadline = seen.now.plus(member.session_ms);
        }
        Ok(())
    }

    /// Only static members are left and none has joined: the group waits on.
    fn wait_on(&mut self, seen: &Seen<'_>) {
        let over = self.join_deadline.is_some_and(|at| at <= seen.now);
        if self.phase == Phase::Preparing && over {
            if self.initial {
                let wait_ms = seen.config.initial_rebalance_delay_ms.max(1);
                // How often it may be put off is not followed; that it ends is.
                self.join_deadline = Some(seen.now.plus(wait_ms.min(1)));
            } else if self
                .members
                .values()
                .all(|member| member.instance_id.is_some() && member.join.is_none())
            {
                self.join_deadline = Some(seen.now.plus(self.rebalance_ms().max(1)));
            }
        }
    }

    /// What must hold after every call.
    fn check(&self, seen: &Seen<'_>) -> Verdict {
        let now = seen.now;
        let there: BTreeSet<_> = seen.after.members.iter().map(|m| &m.member_id).collect();
        let known: BTreeSet<_> = self.members.keys().collect();
        must!(
            there == known,
            "the group must have the members {known:?}, but has {there:?}"
        );
        // A group that gathers its first members, or whose ids are under way, may lose all members and gathers on.
        let gathers = self.initial || !self.pending.is_empty();
        must!(
            (self.phase == Phase::Empty) == self.members.is_empty()
                || self.phase == Phase::Preparing && gathers,
            "a group with {} members is {:?}",
            self.members.len(),
            self.phase
        );
        let all_joined = self.members.values().all(|member| member.join.is_some());
        must!(
            self.phase != Phase::Preparing
                || self.initial
                || self.members.is_empty()
                || !all_joined
                || !self.awaited.is_empty(),
            "everybody has joined, and the join phase goes on"
        );
        if self.phase == Phase::Stable {
            for member in &seen.after.members {
                let bytes = self.assignment.get(&member.member_id);
                must!(
                    member.assignment == bytes.cloned().unwrap_or_default(),
                    "{} is described with another assignment than it was given",
                    member.member_id
                );
            }
        }
        if !seen.timeout {
            return Ok(());
        }
        for (member_id, member) in &self.members {
            let parked = member.join.is_some() || member.sync.is_some();
            must!(
                member.deadline > now || parked && !member.is_new,
                "the session of {member_id} ended at {:?}, but it is still a member at {now:?}",
                member.deadline
            );
            must!(
                !member.owes_sync
                    || self.phase == Phase::Preparing
                    || self.sync_deadline.is_none_or(|at| at > now),
                "{member_id} has not synced in time, but is still a member"
            );
        }
        must!(
            self.phase != Phase::Preparing || self.join_deadline.is_none_or(|at| at > now),
            "the join phase should have ended at {:?}; it is {now:?}",
            self.join_deadline
        );
        Ok(())
    }
}
