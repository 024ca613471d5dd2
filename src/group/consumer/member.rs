//! Step one of a heartbeat: whether it can be taken, whose it is, what it tells, and what that changes (semantics
//! 3.2, 3.3, 3.7).

use std::sync::Arc;

use super::{LEAVE, LEAVE_FOR_A_WHILE, Refusal};
use crate::group::operator::{MemberRef, Trigger};
use crate::group::reconcile::{Outcome, Step, is_subset, same_partitions};
use crate::group::record::{
    ConsumerGroupValue, ConsumerMemberValue, CurrentAssignmentValue, MemberState, Record,
};
use crate::group::request::{ConsumerHeartbeat, ErrorCode, IdPartitions};
use crate::group::state::{ConsumerGroup, FIRST_EPOCH};
use crate::group::stats::Cause;
use crate::group::timers::Timer;
use crate::group::types::{GroupId, InstanceId, MemberId, Millis, TopicId, TopicName};
use crate::group::{Actions, Coordinator};

/// The most topics that are named in a sentence.
const NAMES_MAX: usize = 8;

/// Who speaks.
#[derive(Clone, Debug)]
pub(in crate::group) enum Who {
    /// A member of the group.
    Known(MemberId),
    /// Somebody new.
    New(MemberId),
    /// A static member that had left for a while, under its old id.
    Back(MemberId),
    /// A static member under a new id.
    Replaces {
        /// The id it had.
        old: MemberId,
        /// The id it has from now on.
        new: MemberId,
    },
}

impl Who {
    pub(in crate::group) fn member_id(&self) -> &MemberId {
        match self {
            Self::Known(id) | Self::New(id) | Self::Back(id) | Self::Replaces { new: id, .. } => id,
        }
    }
}

/// What a member says, whichever protocol it came by.
#[derive(Debug)]
pub(in crate::group) struct Word {
    pub(in crate::group) who: Who,
    /// All that it has told of itself, the news included.
    pub(in crate::group) told: ConsumerMemberValue,
    /// What it owns; `None` if it does not say.
    pub(in crate::group) owned: Option<IdPartitions>,
}

fn is_blank(text: &str) -> bool {
    text.trim().is_empty()
}

impl Coordinator {
    /// What can be wrong with a heartbeat whatever the group is like.
    pub(super) fn check_fields(&self, request: &ConsumerHeartbeat) -> Result<(), Refusal> {
        let epoch = request.member_epoch;
        let id_required = request.member_id_from_client || epoch > 0 || epoch == LEAVE;
        let blank = |text: &Option<Arc<str>>| text.as_deref().is_some_and(is_blank);
        let wrong = if id_required && is_blank(&request.member_id) {
            "MemberId can't be empty."
        } else if is_blank(&request.group_id) {
            "GroupId can't be empty."
        } else if blank(&request.instance_id) {
            "InstanceId can't be empty."
        } else if blank(&request.rack_id) {
            "RackId can't be empty."
        } else if epoch < LEAVE_FOR_A_WHILE {
            "MemberEpoch is invalid."
        } else if epoch == LEAVE_FOR_A_WHILE && request.instance_id.is_none() {
            "InstanceId can't be null when leaving for a while."
        } else if epoch != 0 {
            ""
        } else if request.rebalance_timeout_ms == -1 {
            "RebalanceTimeoutMs must be provided in first request."
        } else if request
            .topic_partitions
            .as_ref()
            .is_none_or(|owned| !owned.is_empty())
        {
            "TopicPartitions must be empty when (re-)joining."
        } else if request.subscribed_topic_names.is_none()
            && request.subscribed_topic_regex.is_none()
        {
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        } else {
            ""
        };
        if !wrong.is_empty() {
            return Err((ErrorCode::InvalidRequest, wrong.to_owned()));
        }
        match &request.server_assignor {
            Some(name) if !self.config.assignors.iter().any(|a| *a.name() == **name) => {
                let known: Vec<_> = self.config.assignors.iter().map(|a| a.name()).collect();
                let message = format!(
                    "ServerAssignor {name} is not supported; it is one of {}.",
                    known.join(", ")
                );
                Err((ErrorCode::UnsupportedAssignor, message))
            }
            _ => Ok(()),
        }
    }

    /// Whose heartbeat it is.
    pub(super) fn find_sender(&self, request: &ConsumerHeartbeat) -> Result<Who, Refusal> {
        let group = self.state.consumer(&request.group_id);
        let joins = request.member_epoch == 0;
        let member_id = &request.member_id;
        let is_member = group.is_some_and(|group| group.member(member_id).is_some());
        let unknown = |what: &str| {
            let message = format!("{what} is not a member of group {}.", request.group_id);
            (ErrorCode::UnknownMemberId, message)
        };
        let Some(instance_id) = &request.instance_id else {
            return match (is_member, joins) {
                (true, _) => Ok(Who::Known(member_id.clone())),
                (false, true) => Ok(Who::New(member_id.clone())),
                (false, false) => Err(unknown(&format!("Member {member_id}"))),
            };
        };
        let holder = group.and_then(|group| {
            let holder = group.static_member(instance_id)?;
            Some((holder, group.member(holder)?))
        });
        let Some((holder, value)) = holder else {
            return match (joins, is_member) {
                (true, true) => Err(other_instance(member_id, instance_id)),
                (true, false) => Ok(Who::New(member_id.clone())),
                (false, _) => Err(unknown(&format!("Instance {instance_id}"))),
            };
        };
        let is_back = value.current().member_epoch == LEAVE_FOR_A_WHILE;
        if holder == member_id {
            // Kafka refuses a join under the same id while the member is there; but that is just how a member comes
            // whose answer got lost.
            return Ok(if joins && is_back {
                Who::Back(member_id.clone())
            } else {
                Who::Known(member_id.clone())
            });
        }
        if !joins {
            let message = format!("Instance {instance_id} belongs to another member now.");
            return Err((ErrorCode::FencedInstanceId, message));
        }
        if !is_back && value.told().classic.is_none() {
            let message = format!("Instance {instance_id} is still in use by another member.");
            return Err((ErrorCode::UnreleasedInstanceId, message));
        }
        if is_member {
            return Err(other_instance(member_id, instance_id));
        }
        Ok(Who::Replaces {
            old: holder.clone(),
            new: member_id.clone(),
        })
    }

    /// Whether an operator keeps the newcomer out.
    pub(super) fn check_ban(
        &mut self,
        now: Millis,
        who: &Who,
        request: &ConsumerHeartbeat,
    ) -> Result<(), Refusal> {
        if !matches!(who, Who::New(_)) {
            return Ok(());
        }
        let (group_id, instance_id) = (&request.group_id, request.instance_id.as_ref());
        let member_id = who.member_id();
        let until = self.banned_until(now, group_id, member_id, instance_id, &request.client);
        let Some(until) = until else {
            return Ok(());
        };
        let message = format!(
            "An operator keeps the member out for another {} ms.",
            until.since(now)
        );
        Err((ErrorCode::CoordinatorLoadInProgress, message))
    }

    pub(super) fn check_size(&self, who: &Who, group_id: &GroupId) -> Result<(), Refusal> {
        let count = self
            .state
            .consumer(group_id)
            .map_or(0, ConsumerGroup::member_count);
        let limit = self.members_max(group_id, self.config.consumer_max_size);
        if matches!(who, Who::New(_)) && count >= limit {
            let message = format!("The group has its full {limit} members.");
            return Err((ErrorCode::GroupMaxSizeReached, message));
        }
        Ok(())
    }

    /// Whether the member may speak with this epoch.
    pub(super) fn check_epoch(
        &self,
        who: &Who,
        request: &ConsumerHeartbeat,
    ) -> Result<(), Refusal> {
        let group = self.state.consumer(&request.group_id);
        let Some(member) = group.and_then(|group| group.member(who.member_id())) else {
            return Ok(());
        };
        let current = member.current();
        let received = request.member_epoch;
        let owned = request.topic_partitions.as_deref();
        let fenced = |message: String| Err((ErrorCode::FencedMemberEpoch, message));
        if current.state == MemberState::Unknown && owned.is_none_or(|owned| !owned.is_empty()) {
            return fenced(
                "The member is in a state of a later version; it must rejoin.".to_owned(),
            );
        }
        if received == 0 || received == current.member_epoch {
            return Ok(());
        }
        // The answer that told of the new epoch got lost: so it was if nothing is owned that was not assigned.
        let retries = received == current.previous_member_epoch
            && received < current.member_epoch
            && owned.is_some_and(|owned| is_subset(owned, &current.assigned));
        if retries {
            return Ok(());
        }
        fenced(format!(
            "The member's epoch is {}, not {received}; it must rejoin.",
            current.member_epoch
        ))
    }

    /// Whether a pattern that the member brings compiles.
    pub(super) fn check_pattern(&mut self, request: &ConsumerHeartbeat) -> Result<(), Refusal> {
        match request.subscribed_topic_regex.as_deref() {
            None | Some("") => Ok(()),
            Some(pattern) => self.patterns.check(pattern, &self.topics).map_err(|error| {
                let message = format!("SubscribedTopicRegex {pattern} is not valid: {error}.");
                (ErrorCode::InvalidRegularExpression, message)
            }),
        }
    }

    /// What the member has told of itself, with this heartbeat's news.
    pub(super) fn told(&self, who: &Who, request: &ConsumerHeartbeat) -> ConsumerMemberValue {
        let before = self.told_before(&request.group_id, who);
        let before = before.as_deref();
        let names = request.subscribed_topic_names.as_ref();
        let regex = match request.subscribed_topic_regex.as_deref() {
            None => before.and_then(|before| before.subscribed_topic_regex.clone()),
            Some("") => None,
            Some(pattern) => Some(self.patterns.shared(pattern)),
        };
        ConsumerMemberValue {
            instance_id: request
                .instance_id
                .clone()
                .or_else(|| before?.instance_id.clone()),
            rack_id: request.rack_id.clone().or_else(|| before?.rack_id.clone()),
            client: request.client.clone(),
            subscribed_topic_names: match (names, before) {
                (Some(names), _) => self.names(&request.group_id, names),
                (None, Some(before)) => before.subscribed_topic_names.clone(),
                (None, None) => Vec::new(),
            },
            subscribed_topic_regex: regex,
            rebalance_timeout_ms: if request.rebalance_timeout_ms == -1 {
                before.map_or(-1, |before| before.rebalance_timeout_ms)
            } else {
                request.rebalance_timeout_ms
            },
            server_assignor: request
                .server_assignor
                .clone()
                .or_else(|| before?.server_assignor.clone()),
            classic: None,
        }
    }

    /// Names in order, each once, in the spelling that is in memory already.
    pub(super) fn names(&self, group_id: &str, names: &[TopicName]) -> Vec<TopicName> {
        let group = self.state.consumer(group_id);
        let shared = |name: &TopicName| {
            let here = group.and_then(|group| group.shared_name(name));
            here.or_else(|| self.topics.entry(name).map(|(name, _)| name))
                .unwrap_or(name)
                .clone()
        };
        let mut names: Vec<_> = names.iter().map(shared).collect();
        names.sort_unstable();
        names.dedup();
        names.shrink_to_fit();
        names
    }

    pub(super) fn told_before(
        &self,
        group_id: &str,
        who: &Who,
    ) -> Option<Arc<ConsumerMemberValue>> {
        let member_id = match who {
            Who::New(_) => return None,
            Who::Known(id) | Who::Back(id) | Who::Replaces { old: id, .. } => id,
        };
        let member = self.state.consumer(group_id)?.member(member_id)?;
        Some(member.told().clone())
    }

    /// All three steps for one member. Returns whether what it is assigned has changed.
    pub(in crate::group) fn take_word(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        word: Word,
        actions: &mut Actions,
    ) -> bool {
        let assignor = self.assignor_place(self.state.consumer(group_id));
        let before = self.told_before(group_id, &word.who);
        let (names_before, regex_before) = before.as_ref().map_or((&[][..], None), |before| {
            (
                &before.subscribed_topic_names[..],
                before.subscribed_topic_regex.as_ref(),
            )
        });
        let names_changed = *names_before != word.told.subscribed_topic_names;
        let regex_changed = regex_before != word.told.subscribed_topic_regex.as_ref();
        let cause = match &word.who {
            Who::New(_) => Cause::MemberJoined,
            Who::Back(_) | Who::Replaces { .. } => Cause::StaticMemberReplaced,
            Who::Known(_) => Cause::SubscriptionChanged,
        };
        let detail = changes(before.as_deref(), &word.told);
        let why = Trigger::new(cause).by(MemberRef {
            member_id: word.who.member_id().clone(),
            instance_id: word.told.instance_id.clone(),
            client_id: word.told.client.id.clone(),
            client_host: word.told.client.host.clone(),
        });
        let why = Trigger {
            at: now,
            ..why.detail(detail)
        };

        let member_id = word.who.member_id().clone();
        let news = before.as_deref() != Some(&word.told);
        let regex = word.told.subscribed_topic_regex.clone();
        self.make_room(group_id, &word.who, actions);
        if news || matches!(word.who, Who::Replaces { .. }) {
            self.emit(
                Record::ConsumerGroupMemberMetadata {
                    group_id: group_id.clone(),
                    member_id: member_id.clone(),
                    value: Some(word.told.into()),
                },
                actions,
            );
        }
        let resolved = self.follow_pattern(now, group_id, regex, regex_changed, actions);
        // A name for what is in use anyway changes nothing.
        let other_assignor = assignor != self.assignor_place(self.state.consumer(group_id));
        let weighs = names_changed || (regex_changed && resolved) || other_assignor;
        if weighs {
            self.raise_epoch(now, group_id, why, actions);
        } else {
            if regex_changed {
                // When its pattern is resolved.
                self.owe_epoch(group_id, why);
            }
            self.refresh_metadata(now, group_id, actions);
        }
        self.assign_if_due(now, group_id, actions);

        let changed = names_changed || regex_changed;
        self.reconcile(
            now,
            group_id,
            &member_id,
            word.owned.as_deref(),
            changed,
            actions,
        )
    }

    /// A group without a record gets one; a static member that comes back has what it had, with epoch 0.
    fn make_room(&mut self, group_id: &GroupId, who: &Who, actions: &mut Actions) {
        if self.state.consumer(group_id).is_none() {
            let value = ConsumerGroupValue {
                epoch: FIRST_EPOCH,
                metadata_hash: 0,
            };
            self.emit(
                Record::ConsumerGroupMetadata {
                    group_id: group_id.clone(),
                    value: Some(value),
                },
                actions,
            );
        }
        let old = match who {
            Who::Known(_) | Who::New(_) => return,
            Who::Back(old) | Who::Replaces { old, .. } => old,
        };
        let member = self.consumer_member(group_id, old);
        let target = member.target().clone();
        let value = CurrentAssignmentValue {
            member_epoch: 0,
            previous_member_epoch: 0,
            state: MemberState::Stable,
            assigned: member.current().assigned.clone(),
            pending_revocation: Vec::new(),
        };
        if let Who::Replaces { old, new } = who {
            self.journal.renames(group_id, old, new);
            self.drop_member(group_id, old, actions);
            if !target.is_empty() {
                self.emit(
                    Record::ConsumerGroupTargetAssignmentMember {
                        group_id: group_id.clone(),
                        member_id: new.clone(),
                        value: Some(target),
                    },
                    actions,
                );
            }
        }
        self.emit_current(group_id, who.member_id(), value, actions);
    }

    /// Sees to it that a pattern is resolved and an old one forgotten. Returns whether the member's is resolved.
    fn follow_pattern(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        pattern: Option<Arc<str>>,
        changed: bool,
        actions: &mut Actions,
    ) -> bool {
        if changed {
            self.drop_unused_patterns(group_id, actions);
        }
        let Some(pattern) = pattern else { return true };
        let resolved = self
            .state
            .consumer(group_id)
            .is_some_and(|group| group.resolved(&pattern).is_some());
        if changed {
            self.patterns.attach(&pattern, group_id, &self.topics);
        }
        if !resolved {
            self.timers.arm(Timer::Resolve(group_id.clone()), now);
        }
        resolved
    }

    /// Step three. Returns whether what the member is assigned has changed.
    fn reconcile(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_id: &MemberId,
        owned: Option<&[(TopicId, Vec<i32>)]>,
        subscription_changed: bool,
        actions: &mut Actions,
    ) -> bool {
        let Some(group) = self.state.consumer(group_id) else {
            return false;
        };
        if self.must_wait_on(now, group_id, member_id) && !subscription_changed {
            return false;
        }
        let member = self.consumer_member(group_id, member_id);
        let step = Step {
            current: member.current(),
            target_epoch: group.assignment_epoch(),
            target: member.target(),
            owned,
            subscription_changed,
        };
        let subscribes = |topic| {
            let name = self.topics.name_of(topic);
            name.is_some_and(|name| group.member_subscribes(member.told(), name))
        };
        let held = |topic, partition| group.held_by_other(member_id, topic, partition);
        let Outcome::Next(next) = step.take(subscribes, held) else {
            return false;
        };
        let assigned_anew = !same_partitions(&next.assigned, &member.current().assigned);
        let let_go =
            next.pending_revocation.is_empty() && !member.current().pending_revocation.is_empty();
        let settled = next.state == MemberState::Stable && next.member_epoch == step.target_epoch;
        let member = settled.then(|| member.member_ref(member_id));
        self.emit_current(group_id, member_id, next, actions);
        if let_go && let Some(live) = self.consumer.get_mut(&**group_id) {
            live.let_go_at = now;
            self.journal.lets_go(now, group_id);
        }
        if let Some(member) = member {
            self.journal.settles(now, group_id, member_id, || member);
        }
        self.watch_revocation(now, group_id, member_id);
        assigned_anew
    }
}

/// What a member that was there changes, in words; `None` for one that is new.
fn changes(before: Option<&ConsumerMemberValue>, told: &ConsumerMemberValue) -> Option<Arc<str>> {
    let before = before?;
    let (old, new) = (&before.subscribed_topic_names, &told.subscribed_topic_names);
    let more = new.iter().filter(|name| !old.contains(name));
    let less = old.iter().filter(|name| !new.contains(name));
    let mut words: Vec<String> = more.map(|name| format!("+{name}")).collect();
    words.extend(less.map(|name| format!("-{name}")));
    words.truncate(NAMES_MAX);
    if before.subscribed_topic_regex != told.subscribed_topic_regex {
        let pattern = told.subscribed_topic_regex.as_deref().unwrap_or("none");
        words.push(format!("pattern {pattern}"));
    }
    if before.server_assignor != told.server_assignor {
        let assignor = told.server_assignor.as_deref().unwrap_or("none");
        words.push(format!("assignor {assignor}"));
    }
    (!words.is_empty()).then(|| words.join(", ").into())
}

fn other_instance(member_id: &str, instance_id: &InstanceId) -> Refusal {
    let message =
        format!("Member {member_id} cannot become instance {instance_id} while it is a member.");
    (ErrorCode::InvalidRequest, message)
}
