//! Step two of a heartbeat, and what timers and topics do to a group: its epoch rises, a new target is computed
//! (semantics 3.3, steps 6 and 7).

use std::collections::BTreeMap;

use crate::group::assign::{AssignMember, AssignTopic, Assignor, Input, check};
use crate::group::journal::{Side, Triggers, diff};
use crate::group::operator::Trigger;
use crate::group::record::{ConsumerGroupValue, Record, TargetMetadataValue};
use crate::group::request::IdPartitions;
use crate::group::state::{ConsumerGroup, ConsumerMember};
use crate::group::stats::Cause;
use crate::group::timers::Timer;
use crate::group::types::{GroupId, MemberId, Millis, Topic, TopicName, Topics, TopicsChange};
use crate::group::{Actions, Coordinator};

/// How long the group waits for more of the same when a target is owed and nobody's heartbeat asks for it: members that
/// leave together, or one that leaves for another to come, are one change.
const SETTLE_MS: i64 = 250;
/// The same for patterns, when topics come and go.
const PATTERNS_SETTLE_MS: i64 = 500;
/// The most that is remembered for one rise of an epoch.
const OWED_MAX: usize = 16;

impl Coordinator {
    /// The group epoch rises by one.
    pub(in crate::group) fn raise_epoch(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        why: impl Into<Triggers>,
        actions: &mut Actions,
    ) {
        let metadata_hash = self.metadata_hash(group_id);
        self.raise_epoch_to(now, group_id, metadata_hash, why.into(), actions);
    }

    fn raise_epoch_to(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        metadata_hash: i64,
        mut why: Triggers,
        actions: &mut Actions,
    ) {
        let Some(group) = self.state.consumer(group_id) else {
            return;
        };
        let (before, epoch) = (group.epoch(), group.epoch().wrapping_add(1).max(1));
        let value = ConsumerGroupValue {
            epoch,
            metadata_hash,
        };
        self.emit(
            Record::ConsumerGroupMetadata {
                group_id: group_id.clone(),
                value: Some(value),
            },
            actions,
        );
        if let Some(live) = self.consumer.get_mut(&**group_id) {
            (live.stale, live.hold_until) = (false, Millis::default());
            why = why.after(std::mem::take(&mut live.owed));
        }
        let cause = why.cause();
        self.stats.began(cause);
        self.journal.rises(now, group_id, (before, epoch), why);
        if !matches!(
            cause,
            Cause::MemberLeft | Cause::SessionExpired | Cause::RebalanceTimeout
        ) {
            self.stats.consumer_rebalances += 1;
        }
    }

    pub(in crate::group) fn set_stale(&mut self, group_id: &GroupId, stale: bool) {
        if let Some(live) = self.consumer.get_mut(&**group_id) {
            live.stale = stale;
        }
    }

    /// If a subscribed topic has changed since the hash was computed: the group epoch rises if the hash differs now.
    pub(super) fn refresh_metadata(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        if !self
            .consumer
            .get(&**group_id)
            .is_some_and(|live| live.stale)
        {
            return;
        }
        self.set_stale(group_id, false);
        let hash = self.metadata_hash(group_id);
        let group = self.state.consumer(group_id);
        if group.is_some_and(|group| group.metadata_hash() != hash) {
            let why = self.topics_owed(group_id);
            self.raise_epoch_to(now, group_id, hash, why, actions);
        } else if let Some(live) = self.consumer.get_mut(&**group_id) {
            // It went and came back.
            live.owed.retain(|trigger| trigger.member.is_some());
        }
    }

    /// What the epoch rises for if nobody has said anything: topics.
    pub(super) fn topics_owed(&mut self, group_id: &GroupId) -> Triggers {
        let live = self.consumer.get_mut(&**group_id);
        let owed = live.map(|live| std::mem::take(&mut live.owed));
        Triggers::of(owed.unwrap_or_default(), Cause::TopicsChanged)
    }

    /// Something has happened that the epoch is going to rise for.
    pub(in crate::group) fn owe_epoch(&mut self, group_id: &GroupId, trigger: Trigger) {
        let live = self.consumer.entry(group_id.clone()).or_default();
        if live.owed.len() < OWED_MAX {
            live.owed.push(trigger);
        }
    }

    /// A hash over the subscribed topics that exist: id, name, partition count. 0 if there are none.
    ///
    /// The number itself is our own (FNV-1a over 64 bits); only its changes mean anything.
    pub(in crate::group) fn metadata_hash(&self, group_id: &str) -> i64 {
        let Some(group) = self.state.consumer(group_id) else {
            return 0;
        };
        let topics = subscribed(group, &self.topics);
        if topics.is_empty() {
            return 0;
        }
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        let mut add = |bytes: &[u8]| {
            for byte in bytes {
                hash = (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3);
            }
        };
        for (name, topic) in topics {
            add(name.as_bytes());
            add(&topic.id.0);
            add(&topic.partitions.to_be_bytes());
        }
        hash as i64
    }

    /// From when on the group may have a new target.
    pub(super) fn assign_due(&self, group_id: &str, group: &ConsumerGroup) -> Millis {
        let due = match group.assignment_timestamp() {
            Millis(0) => Millis(0),
            since => since.plus(self.assignment_interval_ms(group_id)),
        };
        self.consumer
            .get(group_id)
            .map_or(due, |live| due.max(live.hold_until))
    }

    /// Computes the target if one is owed and the interval has passed; otherwise a timer will.
    pub(super) fn assign_if_due(&mut self, now: Millis, group_id: &GroupId, actions: &mut Actions) {
        let Some(group) = self
            .state
            .consumer(group_id)
            .filter(|group| group.awaits_target())
        else {
            return;
        };
        let due = self.assign_due(group_id, group);
        if due > now {
            self.timers.arm(Timer::Assign(group_id.clone()), due);
        } else {
            self.assign_target(now, group_id, actions);
        }
    }

    /// A target may be owed: a timer sees to it, soon but not before the interval has passed.
    pub(super) fn arm_assign(&mut self, now: Millis, group_id: &GroupId) {
        let Some(group) = self.state.consumer(group_id) else {
            return;
        };
        let stale = self
            .consumer
            .get(&**group_id)
            .is_some_and(|live| live.stale);
        if stale || group.awaits_target() {
            let due = self.assign_due(group_id, group).max(now.plus(SETTLE_MS));
            self.timers.arm(Timer::Assign(group_id.clone()), due);
        }
    }

    /// The timer of [`Self::arm_assign`] fired.
    pub(in crate::group) fn assign_timer_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        self.refresh_metadata(now, group_id, actions);
        self.assign_if_due(now, group_id, actions);
    }

    /// Computes the target, whether or not the interval has passed.
    pub(in crate::group) fn assign_target(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        self.timers.cancel(&Timer::Assign(group_id.clone()));
        let Some(group) = self.state.consumer(group_id) else {
            return;
        };
        let assignment_epoch = group.epoch();
        let Ok(changed) = self.new_targets(group_id, group) else {
            // An embedder's assignor failed. The group goes on with its last target and asks again after the interval.
            self.stats.assignor_failures += 1;
            let again = now.plus(self.assignment_interval_ms(group_id).max(SETTLE_MS));
            return self.timers.arm(Timer::Assign(group_id.clone()), again);
        };
        self.tell_targets(now, group_id, &changed);
        for (member_id, target) in changed {
            self.emit(
                Record::ConsumerGroupTargetAssignmentMember {
                    group_id: group_id.clone(),
                    member_id,
                    value: Some(target).filter(|target| !target.is_empty()),
                },
                actions,
            );
        }
        self.emit_target_metadata(group_id, assignment_epoch, now, actions);
    }

    /// The targets that differ from the last. What operators withhold from members is left out of them.
    fn new_targets(
        &self,
        group_id: &str,
        group: &ConsumerGroup,
    ) -> Result<Vec<(MemberId, IdPartitions)>, String> {
        let assignor = self.assignor(group);
        if !self.withholds(group_id) {
            return new_targets(group, &self.topics, assignor, |_| true);
        }
        if self.is_paused(group_id) {
            let idle = group.members().filter(|(_, m)| !m.target().is_empty());
            return Ok(idle.map(|(id, _)| (id.clone(), Vec::new())).collect());
        }
        let takes_part = |member_id: &str| !self.is_benched(group_id, member_id);
        let mut targets: BTreeMap<MemberId, IdPartitions> =
            all_targets(group, &self.topics, assignor, takes_part)?
                .into_iter()
                .collect();
        let mut changed = Vec::new();
        for (member_id, member) in group.members() {
            let withheld = self.withheld(group_id, member_id);
            let mut target = targets.remove(member_id).unwrap_or_default();
            for (topic, partitions) in &mut target {
                let name = self.topics.name_of(*topic);
                partitions.retain(|p| !name.is_some_and(|name| withheld.takes(name, *p)));
            }
            target.retain(|(_, partitions)| !partitions.is_empty());
            if *member.target() != target {
                changed.push((member_id.clone(), target));
            }
        }
        Ok(changed)
    }

    /// Tells the journal what the new targets change.
    fn tell_targets(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        changed: &[(MemberId, IdPartitions)],
    ) {
        let mut before = self.journal.take_lost(group_id);
        let Some(group) = self
            .state
            .consumer(group_id)
            .filter(|_| self.journal.is_on())
        else {
            return;
        };
        let mut after = Vec::new();
        let count = |target: &IdPartitions| target.iter().map(|(_, p)| p.len()).sum::<usize>();
        let mut total = group
            .members()
            .map(|(_, member)| count(member.target()))
            .sum::<usize>();
        for (member_id, target) in changed {
            let Some(member) = group.member(member_id) else {
                continue;
            };
            let side = |partitions: &IdPartitions| Side {
                member_id: member_id.clone(),
                instance_id: member.told().instance_id.clone(),
                partitions: self.named_with_gone(partitions.clone()),
            };
            total = total + count(target) - count(member.target());
            before.push(side(member.target()));
            after.push(side(target));
        }
        let mut moves = diff(&before, &after, self.journal.config().moves_max);
        moves.stayed_count = total.saturating_sub(moves.gained_count);
        let waiting = group.member_ids().into_iter();
        self.journal.targets(now, group_id, moves, waiting);
    }

    pub(in crate::group) fn emit_target_metadata(
        &mut self,
        group_id: &GroupId,
        assignment_epoch: i32,
        assignment_timestamp: Millis,
        actions: &mut Actions,
    ) {
        self.emit(
            Record::ConsumerGroupTargetAssignmentMetadata {
                group_id: group_id.clone(),
                value: Some(TargetMetadataValue {
                    assignment_epoch,
                    assignment_timestamp,
                }),
            },
            actions,
        );
    }

    /// The assignor in use: the one that most members name, or else the first configured.
    pub(in crate::group) fn assignor(&self, group: &ConsumerGroup) -> &dyn Assignor {
        &*self.config.assignors[self.assignor_place(Some(group))]
    }

    /// Its place among the configured ones, of which Coordinator::new sees to it that there is one.
    pub(in crate::group) fn assignor_place(&self, group: Option<&ConsumerGroup>) -> usize {
        let assignors = &self.config.assignors;
        group
            .and_then(ConsumerGroup::preferred_assignor)
            .and_then(|name| assignors.iter().position(|a| *a.name() == **name))
            .unwrap_or(0)
    }

    /// Nobody is left: the empty target is the target of this epoch, and whoever comes next need not wait.
    pub(super) fn settle_empty(&mut self, now: Millis, group_id: &GroupId, actions: &mut Actions) {
        let before = self.journal.take_lost(group_id);
        let moves = diff(&before, &[], self.journal.config().moves_max);
        self.journal.assigned(group_id, moves);
        self.journal.ends(now, group_id, "emptied");
        self.forget_live(group_id);
        if let Some(epoch) = self.state.consumer(group_id).map(ConsumerGroup::epoch) {
            self.emit_target_metadata(group_id, epoch, Millis(0), actions);
        }
    }

    /// Topics came, grew or went: groups that subscribe to them look again, with or without anybody's heartbeat.
    pub(in crate::group) fn consumer_topics_changed(&mut self, now: Millis, change: &TopicsChange) {
        for group_id in self.patterns.topics_changed(change) {
            let timer = Timer::Resolve(group_id);
            if !self.timers.is_armed(&timer) {
                self.timers.arm(timer, now.plus(PATTERNS_SETTLE_MS));
            }
        }
        let deleted = change.deleted.iter().map(|(name, _)| name);
        let created = change
            .created
            .iter()
            .map(|name| (Cause::TopicCreated, name));
        let grown = change.grown.iter().map(|name| (Cause::TopicGrown, name));
        let names: Vec<(Cause, &TopicName)> = deleted
            .map(|name| (Cause::TopicDeleted, name))
            .chain(created)
            .chain(grown)
            .collect();
        let mut group_ids: Vec<_> = self.consumer.keys().cloned().collect();
        group_ids.sort_unstable();
        for group_id in group_ids {
            let group = self.state.consumer(&group_id);
            let concerns = |(_, name): &&(Cause, &TopicName)| {
                group.is_some_and(|group| group.subscribes(name))
            };
            let its: Vec<_> = names.iter().filter(concerns).collect();
            if its.is_empty() {
                continue;
            }
            for (cause, name) in its {
                let trigger = Trigger::new(*cause).detail(Some((*name).clone()));
                self.owe_epoch(&group_id, Trigger { at: now, ..trigger });
            }
            self.set_stale(&group_id, true);
            self.arm_assign(now, &group_id);
        }
    }
}

/// The topics that exist and somebody subscribes to, by name.
fn subscribed<'a>(group: &ConsumerGroup, topics: &'a Topics) -> BTreeMap<&'a TopicName, &'a Topic> {
    let resolved = group.regexes().flat_map(|(_, regex)| &regex.topics);
    group
        .names()
        .chain(resolved)
        .filter_map(|name| topics.entry(name))
        .collect()
}

/// Runs the assignor; returns the targets that differ from the last.
fn new_targets(
    group: &ConsumerGroup,
    topics: &Topics,
    assignor: &dyn Assignor,
    takes_part: impl Fn(&str) -> bool,
) -> Result<Vec<(MemberId, IdPartitions)>, String> {
    let mut targets = all_targets(group, topics, assignor, takes_part)?;
    targets.retain(|(member_id, target)| {
        group
            .member(member_id)
            .is_some_and(|member| member.target() != target)
    });
    Ok(targets)
}

/// Runs the assignor; returns the target of everybody who takes part.
fn all_targets(
    group: &ConsumerGroup,
    topics: &Topics,
    assignor: &dyn Assignor,
    takes_part: impl Fn(&str) -> bool,
) -> Result<Vec<(MemberId, IdPartitions)>, String> {
    let by_name = subscribed(group, topics);
    let mut assign_topics: Vec<AssignTopic> = by_name
        .values()
        .map(|topic| AssignTopic {
            id: topic.id,
            partitions: topic.partitions.max(0).unsigned_abs(),
        })
        .collect();
    assign_topics.sort_unstable_by_key(|topic| topic.id);
    let place = |name: &TopicName| -> Option<u32> {
        let id = by_name.get(name)?.id;
        let place = assign_topics
            .binary_search_by_key(&id, |topic| topic.id)
            .ok()?;
        u32::try_from(place).ok()
    };

    // Members that subscribe to the same share one list; most groups have one or two.
    let here = group
        .members()
        .filter(|(member_id, _)| takes_part(member_id));
    let members: Vec<(&MemberId, &ConsumerMember)> = here.collect();
    let mut lists: Vec<Vec<u32>> = Vec::new();
    let mut known: BTreeMap<(&[TopicName], Option<&str>), usize> = BTreeMap::new();
    let mut last = None;
    let mut list_of = Vec::with_capacity(members.len());
    for (_, member) in &members {
        let told = member.told();
        let key = (
            &told.subscribed_topic_names[..],
            told.subscribed_topic_regex.as_deref(),
        );
        let list = match last {
            Some((same, list)) if same == key => list,
            _ => *known.entry(key).or_insert_with(|| {
                let resolved = key.1.and_then(|pattern| group.resolved(pattern));
                let names = key
                    .0
                    .iter()
                    .chain(resolved.iter().flat_map(|regex| &regex.topics));
                let mut list: Vec<u32> = names.filter_map(place).collect();
                list.sort_unstable();
                list.dedup();
                lists.push(list);
                lists.len() - 1
            }),
        };
        last = Some((key, list));
        list_of.push(list);
    }

    let assign_members: Vec<AssignMember<'_>> = members
        .iter()
        .zip(&list_of)
        .map(|((member_id, member), list)| AssignMember {
            member_id,
            instance_id: member.told().instance_id.as_deref(),
            rack_id: member.told().rack_id.as_deref(),
            subscribed: &lists[*list],
            target: member.target(),
            assigned: &member.current().assigned,
        })
        .collect();
    let input = Input {
        topics: &assign_topics,
        members: &assign_members,
    };
    let targets = assignor.assign(&input)?;
    check(&input, &targets)?;
    let each = members.iter().zip(targets);
    Ok(each
        .map(|((member_id, _), target)| ((*member_id).clone(), target))
        .collect())
}
