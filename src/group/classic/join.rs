//! JoinGroup: who may come in, and as whom (semantics 2.4, 2.7).

use std::collections::BTreeSet;

use super::NEW_MEMBER_JOIN_TIMEOUT_MS;
use super::group::{Group, Member, Phase};
use crate::group::operator::Trigger;
use crate::group::record::Record;
use crate::group::request::{ErrorCode, Join, JoinReply, JoinedMember, Protocol, Reply, RequestId};
use crate::group::stats::Cause;
use crate::group::subscription::{Assignment, subscribed_topics};
use crate::group::timers::Timer;
use crate::group::types::{GroupId, InstanceId, MemberId, Millis, TopicName};
use crate::group::{Actions, Coordinator};

/// The most topics that are named in a sentence.
const NAMES_MAX: usize = 8;

/// Answers a JoinGroup with an error.
pub(super) fn refuse(
    id: RequestId,
    group_id: &GroupId,
    error: ErrorCode,
    member_id: MemberId,
    actions: &mut Actions,
) {
    actions.reply(
        id,
        group_id,
        Reply::Join(JoinReply::refused(error, member_id)),
    );
}

impl Coordinator {
    /// JoinGroup.
    pub(in crate::group) fn join(
        &mut self,
        now: Millis,
        id: RequestId,
        mut request: Join,
        actions: &mut Actions,
    ) {
        let group_id = request.group_id.clone();
        let error = if group_id.is_empty() {
            Some(ErrorCode::InvalidGroupId)
        } else if !self
            .config
            .session_timeout_ms
            .contains(&request.session_timeout_ms)
        {
            Some(ErrorCode::InvalidSessionTimeout)
        } else if !request.member_id.is_empty() && !self.exists(&group_id) {
            Some(ErrorCode::UnknownMemberId)
        } else {
            None
        };
        if let Some(error) = error {
            return refuse(id, &group_id, error, request.member_id, actions);
        }
        if request.rebalance_timeout_ms <= 0 {
            // Kafka lets such a member's rebalances end at once, which throws everybody else out (kafka4beam/brod#465).
            request.rebalance_timeout_ms = request.session_timeout_ms;
        }
        drop_repeated_names(&mut request.protocols);
        if self.keeps_out(now, &request) {
            let error = ErrorCode::CoordinatorLoadInProgress;
            let reply = Reply::Join(JoinReply::refused(error, request.member_id));
            return self.refuse_late(now, id, &group_id, reply);
        }
        if let Some(consumer) = self.state.consumer(&group_id) {
            if !consumer.is_empty() {
                return self.consumer_join(now, id, request, actions);
            }
            if !request.member_id.is_empty() {
                return refuse(
                    id,
                    &group_id,
                    ErrorCode::UnknownMemberId,
                    request.member_id,
                    actions,
                );
            }
            self.give_up_empty(&group_id, actions);
        }

        let mut group = self
            .classic
            .remove(&*group_id)
            .unwrap_or_else(|| self.found(&group_id, actions));
        if let Err((error, member_id)) =
            self.admit(now, id, &group_id, &mut group, request, actions)
        {
            refuse(id, &group_id, error, member_id, actions);
        }
        self.keep(group_id, group);
    }

    /// Whether an operator keeps the newcomer out.
    fn keeps_out(&mut self, now: Millis, request: &Join) -> bool {
        if self.orders.is_empty() {
            return false;
        }
        let (group_id, member_id) = (&request.group_id, &request.member_id);
        let consumer = self.state.consumer(group_id);
        let is_member = consumer.is_some_and(|group| group.member(member_id).is_some())
            || self
                .classic
                .get(&**group_id)
                .is_some_and(|group| group.has(member_id));
        let instance_id = request.group_instance_id.as_ref();
        !is_member
            && self
                .banned_until(now, group_id, member_id, instance_id, &request.client)
                .is_some()
    }

    /// The members that a leader is to assign to. Those that are to own nothing are left out as soon as they do.
    pub(super) fn joined_members(&self, group_id: &str, group: &Group) -> Vec<JoinedMember> {
        let leaves_out = group.clearing.is_clear;
        group.joined_members(|member_id| !leaves_out || !self.is_benched(group_id, member_id))
    }

    /// An Empty group to join: made, and recorded, if there was none. Kafka records it even if the join then fails.
    pub(in crate::group) fn found(
        &mut self,
        group_id: &GroupId,
        actions: &mut Actions,
    ) -> Box<Group> {
        let entry = self.state.group(group_id);
        let group = Group::empty(entry.and_then(|entry| entry.classic.as_deref()));
        if entry.is_none() {
            let value = Some(group.value().into());
            self.emit(
                Record::GroupMetadata {
                    group_id: group_id.clone(),
                    value,
                },
                actions,
            );
        }
        Box::new(group)
    }

    fn admit(
        &mut self,
        now: Millis,
        id: RequestId,
        group_id: &GroupId,
        group: &mut Group,
        request: Join,
        actions: &mut Actions,
    ) -> Result<(), (ErrorCode, MemberId)> {
        let member_id = request.member_id.clone();
        if !self.has_room_for(group_id, group, &member_id) {
            self.turn_away(now, group_id, group, &member_id, actions);
            return Err((ErrorCode::GroupMaxSizeReached, "".into()));
        }
        if !group.fits(&request.protocol_type, &request.protocols) {
            return Err((ErrorCode::InconsistentGroupProtocol, member_id));
        }
        if member_id.is_empty() {
            return self.join_new(now, id, group_id, group, request, actions);
        }
        if group.pending.contains_key(&member_id) {
            if request.group_instance_id.is_some() {
                // Ids are handed out to dynamic members only; Kafka fails with this code too.
                return Err((ErrorCode::UnknownServerError, "".into()));
            }
            self.forget_pending(group_id, group, &member_id);
            self.add_member(now, id, group_id, group, member_id, request, actions);
            return Ok(());
        }
        group
            .check_member(&member_id, request.group_instance_id.as_ref())
            .map_err(|error| (error, member_id))?;
        self.rejoin(now, id, group_id, group, request, actions);
        Ok(())
    }

    fn has_room_for(&self, group_id: &str, group: &Group, member_id: &str) -> bool {
        let limit = self.members_max(group_id, self.config.max_size);
        match group.phase {
            Phase::Empty => true,
            Phase::PreparingRebalance => {
                group.awaiting_join() < limit
                    || group
                        .member(member_id)
                        .is_some_and(|member| member.join.is_some())
            }
            Phase::CompletingRebalance | Phase::Stable => {
                group.member_count() < limit || group.has(member_id)
            }
        }
    }

    /// The group is full: whoever was turned away is waited for no longer.
    fn turn_away(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        group: &mut Group,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        self.forget_pending(group_id, group, member_id);
        self.expel(group_id, group, member_id, actions);
        self.complete_join_if_all_joined(now, group_id, group, actions);
    }

    /// A join without a member id.
    fn join_new(
        &mut self,
        now: Millis,
        id: RequestId,
        group_id: &GroupId,
        group: &mut Group,
        request: Join,
        actions: &mut Actions,
    ) -> Result<(), (ErrorCode, MemberId)> {
        if let Some(instance_id) = request.group_instance_id.clone() {
            match group.static_member(&instance_id).cloned() {
                Some(old) => {
                    self.replace_static(
                        now,
                        id,
                        group_id,
                        group,
                        (old, instance_id),
                        request,
                        actions,
                    );
                }
                None => {
                    let member_id = self.ids.classic(&instance_id);
                    self.add_member(now, id, group_id, group, member_id, request, actions);
                }
            }
            return Ok(());
        }
        let member_id = self.ids.classic(&request.client.id);
        if request.member_id_required {
            // KIP-394: a dynamic member must first learn its id, so that a lost answer leaves no ghost behind.
            let good_until = now.plus(request.session_timeout_ms.into());
            let awaited_until = now.plus(self.config.member_id_wait_ms).min(good_until);
            group.pending.insert(member_id.clone(), good_until);
            group.awaited.insert(member_id.clone());
            self.timers.arm(
                Timer::PendingMember(group_id.clone(), member_id.clone()),
                awaited_until,
            );
            return Err((ErrorCode::MemberIdRequired, member_id));
        }
        self.add_member(now, id, group_id, group, member_id, request, actions);
        Ok(())
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one step of a join: who, where, what"
    )]
    fn add_member(
        &mut self,
        now: Millis,
        id: RequestId,
        group_id: &GroupId,
        group: &mut Group,
        member_id: MemberId,
        request: Join,
        actions: &mut Actions,
    ) {
        if group.member_count() == 0 {
            group.protocol_type = request.protocol_type;
        }
        if group.initial.is_some() {
            group.new_member_added = true;
        }
        let deadline = now.plus(NEW_MEMBER_JOIN_TIMEOUT_MS);
        let reason = request.reason;
        group.insert(
            member_id.clone(),
            Member {
                instance_id: request.group_instance_id,
                client: request.client,
                session_timeout_ms: request.session_timeout_ms,
                rebalance_timeout_ms: request.rebalance_timeout_ms,
                protocols: request.protocols,
                join: Some(id),
                is_new: true,
                session_deadline: deadline,
                session_armed: Some(deadline),
                ..Member::default()
            },
        );
        let member = group.member_ref(&member_id);
        self.journal.comes(group_id, || member.clone());
        let why = Trigger::new(Cause::MemberJoined).by(member).detail(reason);
        self.timers
            .arm(Timer::Session(group_id.clone(), member_id), deadline);
        self.rebalance(now, group_id, group, why, actions);
    }

    /// A join by a member of the group.
    fn rejoin(
        &mut self,
        now: Millis,
        id: RequestId,
        group_id: &GroupId,
        group: &mut Group,
        request: Join,
        actions: &mut Actions,
    ) {
        let member_id = &request.member_id;
        let unchanged = group
            .member(member_id)
            .is_some_and(|member| member.protocols == request.protocols);
        let leads_stable = group.phase == Phase::Stable && group.is_leader(member_id);
        let settled = matches!(group.phase, Phase::CompletingRebalance | Phase::Stable);
        if settled && unchanged && !leads_stable {
            return self.join_as_before(id, group_id, group, member_id, actions);
        }
        let why = self.why_rejoined(now, group_id, group, &request, settled);
        self.journal.comes(group_id, || group.member_ref(member_id));
        self.park(id, group, request, actions);
        match why {
            Some(why) => self.rebalance(now, group_id, group, why, actions),
            // It does as it was told.
            None => self.complete_join_if_all_joined(now, group_id, group, actions),
        }
    }

    /// What makes a member rejoin that has news or leads the group; `None` for one that was called.
    ///
    /// Its own protocol hides it, but for what it says of topics. Members of a cooperative group bring news with every
    /// join: what they own.
    fn why_rejoined(
        &self,
        now: Millis,
        group_id: &GroupId,
        group: &Group,
        request: &Join,
        settled: bool,
    ) -> Option<Trigger> {
        let member_id = &request.member_id;
        let trigger = |cause: Cause| Trigger::new(cause).by(group.member_ref(member_id));
        let since = self
            .journal
            .began_at(group_id)
            .unwrap_or(group.state_timestamp);
        let named = |name: &str| request.protocols.iter().find(|p| *p.name == *name);
        let before = group.protocol.as_deref().and_then(|protocol| {
            let metadata = group.member(member_id)?.metadata_for(protocol);
            Some((subscribed_topics(&metadata)?, named(protocol)?))
        });
        let is_consumer = &*group.protocol_type == "consumer";
        let Some((before, protocol)) = before.filter(|_| is_consumer) else {
            let cause = if group.is_leader(member_id) && group.phase == Phase::Stable {
                Cause::LeaderRejoined
            } else {
                Cause::SubscriptionChanged
            };
            return settled.then(|| trigger(cause).detail(request.reason.clone()));
        };
        let after = subscribed_topics(&protocol.metadata).unwrap_or_default();
        if before != after {
            let (cause, names) = self.became(since, before.symmetric_difference(&after), &before);
            let detail = match cause {
                Some(_) => names,
                None => signed(&before, &after),
            };
            let cause = cause.unwrap_or(Cause::SubscriptionChanged);
            return Some(trigger(cause).detail(Some(detail.into())));
        }
        if !settled {
            return None;
        }
        let (cause, names) = self.became(since, after.iter(), &BTreeSet::new());
        if let Some(cause) = cause {
            return Some(trigger(cause).detail(Some(names.into())));
        }
        let leads = group.is_leader(member_id) && group.phase == Phase::Stable;
        let told = request.reason.as_deref().unwrap_or_default();
        let may_be_topics = told.is_empty() || told.contains("metadata") || told.contains("topic");
        let cause = if told.contains("revoke") || self.has_unassigned(group, &after) {
            Cause::PartitionsRevoked
        } else if may_be_topics
            && let Some((cause, names)) = self.journal.topics_behind(now, group_id)
        {
            // Others have noticed before it did, and the group has rebalanced for it already.
            return Some(trigger(cause).detail(names));
        } else if leads {
            Cause::LeaderRejoined
        } else {
            Cause::SubscriptionChanged
        };
        Some(trigger(cause).detail(request.reason.clone()))
    }

    /// What has become of these topics since then, if something has: a cause, and their names. Where they are the
    /// difference of two subscriptions, all of them must have changed, and topics of `before` can only have gone.
    fn became<'a>(
        &self,
        since: Millis,
        topics: impl Iterator<Item = &'a TopicName>,
        before: &BTreeSet<TopicName>,
    ) -> (Option<Cause>, String) {
        let mut found: Vec<(Cause, &TopicName)> = Vec::new();
        let mut own = false;
        for topic in topics {
            let gone = before.contains(topic);
            let changes = self.journal.topics_since(since);
            let fits = |cause: Cause| !gone || cause == Cause::TopicDeleted;
            let of_it = changes.filter(|(cause, name)| *name == topic && fits(*cause));
            let last = of_it.map(|(cause, _)| (cause, topic)).last();
            own |= last.is_none();
            found.extend(last);
        }
        if own && !before.is_empty() {
            return (None, String::new());
        }
        let cause = found.first().map(|(cause, _)| *cause);
        let names = found.iter().filter(|(of, _)| Some(*of) == cause);
        let names: Vec<&str> = names.map(|(_, name)| &***name).take(NAMES_MAX).collect();
        (cause, names.join(", "))
    }

    /// Whether partitions of these topics are in nobody's hands: then a cooperative rebalance is half done.
    fn has_unassigned(&self, group: &Group, topics: &BTreeSet<TopicName>) -> bool {
        let wanted = topics.iter().filter_map(|name| self.topics.get(name));
        let wanted: i64 = wanted.map(|topic| i64::from(topic.partitions)).sum();
        let mut held = 0;
        for (_, member) in group.members() {
            let assignment = Assignment::parse(member.assignment());
            let of_it = assignment.into_iter().flat_map(|a| a.partitions);
            held += of_it
                .filter(|(name, _)| topics.contains(name))
                .map(|(_, partitions)| partitions.len() as i64)
                .sum::<i64>();
        }
        held < wanted
    }

    /// Nothing has changed for this member: the running generation is the answer.
    fn join_as_before(
        &self,
        id: RequestId,
        group_id: &GroupId,
        group: &Group,
        member_id: &MemberId,
        actions: &mut Actions,
    ) {
        let leads = group.is_leader(member_id) && group.phase == Phase::CompletingRebalance;
        let members = if leads {
            self.joined_members(group_id, group)
        } else {
            Vec::new()
        };
        let reply = JoinReply {
            members,
            ..joined(group, member_id.clone())
        };
        actions.reply(id, group_id, Reply::Join(reply));
    }

    /// Takes a member's new word and parks its join. A join parked before stays without an answer, as in Kafka.
    fn park(&self, id: RequestId, group: &mut Group, request: Join, actions: &mut Actions) {
        group.update(
            &request.member_id,
            request.protocols,
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
        );
        actions
            .superseded
            .extend(group.park_join(&request.member_id, Some(id)));
    }

    /// A static member is back without its member id: it gets a new one, and the old one is fenced (KIP-345).
    #[expect(
        clippy::too_many_arguments,
        reason = "one step of a join: who, where, what"
    )]
    fn replace_static(
        &mut self,
        now: Millis,
        id: RequestId,
        group_id: &GroupId,
        group: &mut Group,
        (old, instance_id): (MemberId, InstanceId),
        mut request: Join,
        actions: &mut Actions,
    ) {
        let new = self.ids.classic(&instance_id);
        let old_leader = group.leader.clone();
        if let Some(join) = group.park_join(&old, None) {
            refuse(
                join,
                group_id,
                ErrorCode::FencedInstanceId,
                old.clone(),
                actions,
            );
        }
        if let Some(sync) = group.member_mut(&old).and_then(|member| member.sync.take()) {
            super::rebalance::refuse_sync(sync, group_id, ErrorCode::FencedInstanceId, actions);
        }
        self.timers
            .cancel(&Timer::Session(group_id.clone(), old.clone()));
        group.replace(&old, new.clone());
        if let Some(member) = group.member_mut(&new) {
            member.session_armed = None;
            // Its parked join keeps it from now on, as that of any member that has been here before.
            member.is_new = false;
        }
        request.member_id = new.clone();
        let skip_assignment = request.skip_assignment;
        group.update(
            &new,
            std::mem::take(&mut request.protocols),
            request.session_timeout_ms,
            request.rebalance_timeout_ms,
        );
        self.arm_session_in(now, group_id, group, &new);

        if group.phase == Phase::Stable && group.vote() == group.protocol {
            // The same protocol would be chosen: the member takes its old place and nobody else notices.
            let value = Some(group.value().into());
            self.emit(
                Record::GroupMetadata {
                    group_id: group_id.clone(),
                    value,
                },
                actions,
            );
            let leads = group.is_leader(&new);
            let reply = if skip_assignment {
                let members = if leads {
                    self.joined_members(group_id, group)
                } else {
                    Vec::new()
                };
                JoinReply {
                    skip_assignment: leads,
                    members,
                    ..joined(group, new)
                }
            } else {
                // Before KIP-814 a leader could not be told to skip: it is shown its own old id and believes to follow.
                JoinReply {
                    leader: old_leader.unwrap_or_else(|| "".into()),
                    ..joined(group, new)
                }
            };
            return actions.reply(id, group_id, Reply::Join(reply));
        }
        group.park_join(&new, Some(id));
        let member = group.member_ref(&new);
        self.journal.comes(group_id, || member.clone());
        let why = Trigger::new(Cause::StaticMemberReplaced).by(member);
        self.rebalance(now, group_id, group, why, actions);
    }
}

/// How two subscriptions differ: `+new, -old`.
fn signed(before: &BTreeSet<TopicName>, after: &BTreeSet<TopicName>) -> String {
    let more = after.difference(before).map(|name| format!("+{name}"));
    let less = before.difference(after).map(|name| format!("-{name}"));
    let differ: Vec<String> = more.chain(less).take(NAMES_MAX).collect();
    differ.join(", ")
}

/// The answer to a member of the running generation, without the members.
pub(super) fn joined(group: &Group, member_id: MemberId) -> JoinReply {
    JoinReply {
        error: ErrorCode::None,
        generation: group.generation,
        protocol_type: Some(group.protocol_type.clone()),
        protocol_name: group.protocol.clone(),
        leader: group.leader.clone().unwrap_or_else(|| "".into()),
        skip_assignment: false,
        member_id,
        members: Vec::new(),
    }
}

/// A protocol counts once, however often a member lists it: Kafka never answers a join that repeats a name.
fn drop_repeated_names(protocols: &mut Vec<Protocol>) {
    if protocols.len() > 1 {
        let mut seen = BTreeSet::new();
        protocols.retain(|protocol| seen.insert(protocol.name.clone()));
    }
}
