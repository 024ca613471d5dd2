//! After offsets were moved: no commit of the time before may win (KIP-1251 goes by the epoch at which a member was given
//! a partition; here that epoch must not be older than the move).
//!
//! A member commits for a moved partition only if it was given it anew. Old generations and epochs are refused anyway;
//! the fence is for members that go on to the new epoch without the partition, and whose application commits what it had
//! read before. It stands for as long as members, those that left before the move too, may still work on that. The moved
//! offset itself says so in the log, and so do those that are committed after it, so that a restart does not open it; only
//! an offset that was forgotten has no such mark.

use super::orders::Partitions;
use crate::group::Coordinator;
use crate::group::reconcile::epoch_of;
use crate::group::record::Moved;
use crate::group::request::{ErrorCode, OffsetCommit};
use crate::group::subscription::Assignment;
use crate::group::types::{GroupId, Millis, TopicId, TopicName};

/// For how long a member that was gone when offsets were moved may still work on what it had read: the interval within
/// which clients must poll again, as Kafka's have it by default (`max.poll.interval.ms`).
const ABSENT_MS: i64 = 300_000;

/// The partitions that were moved by one reset.
#[derive(Debug)]
struct Fence {
    partitions: Partitions,
    moved: Moved,
}

/// The fences of a group, oldest first.
#[derive(Debug, Default)]
pub(super) struct Fences(Vec<Fence>);

impl Fences {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, partitions: Partitions, moved: Moved) {
        // What was moved before is fenced by the newer move.
        for fence in &mut self.0 {
            for (topic, moved) in &partitions {
                if let Some(of_it) = fence.partitions.get_mut(topic) {
                    of_it.retain(|index| !moved.contains(index));
                }
            }
            fence.partitions.retain(|_, of_it| !of_it.is_empty());
        }
        self.0.push(Fence { partitions, moved });
        self.0.retain(|fence| !fence.partitions.is_empty());
    }

    /// What a member must show to commit for a partition.
    fn of(&self, now: Millis, topic: &str, partition: i32) -> Option<&Moved> {
        let stands = |fence: &&Fence| {
            let of_it = fence.partitions.get(topic);
            fence.moved.until > now && of_it.is_some_and(|of_it| of_it.contains(&partition))
        };
        self.0.iter().find(stands).map(|fence| &fence.moved)
    }
}

impl Coordinator {
    /// What members of a group must show if its offsets are moved now.
    pub(super) fn moved(&self, now: Millis, group_id: &str) -> Moved {
        let patience_ms = self.patience_ms(group_id);
        let absent_ms = if self.has_members(group_id) {
            0
        } else {
            ABSENT_MS
        };
        Moved {
            since: self.number_of(group_id),
            until: now.plus(patience_ms.max(absent_ms)),
        }
    }

    /// The epoch of a group, or its generation.
    fn number_of(&self, group_id: &str) -> i32 {
        if let Some(group) = self.classic.get(group_id) {
            return group.generation();
        }
        let Some(entry) = self.state.group(group_id) else {
            return 0;
        };
        let classic = entry.classic.as_ref().map(|value| value.generation);
        let consumer = entry.consumer.as_ref().map(|group| group.epoch());
        consumer.or(classic).unwrap_or(0)
    }

    /// Nobody may commit for partitions whose offsets have just been moved but who has them anew.
    pub(super) fn put_fence(&mut self, group_id: &GroupId, partitions: Partitions, moved: Moved) {
        let orders = self.orders.entry(group_id.clone()).or_default();
        orders.fences.add(partitions, moved);
        self.tidy_orders(group_id);
    }

    /// What a new commit for a partition has to carry on: the fence stands beyond the first one after the move.
    pub(in crate::group) fn still_moved(
        &self,
        now: Millis,
        group_id: &str,
        topic: &str,
        partition: i32,
    ) -> Option<Box<Moved>> {
        let orders = self.orders.get(group_id)?;
        let moved = orders.fences.of(now, topic, partition)?;
        Some(Box::new(moved.clone()))
    }

    /// The fences of moves that are recorded stand again.
    pub(in crate::group) fn load_fences(&mut self, now: Millis) {
        if !self.state.has_moved() {
            return;
        }
        for group_id in self.state.group_ids() {
            let Some(entry) = self.state.group(&group_id) else {
                continue;
            };
            let mut fences: Vec<(Moved, Partitions)> = Vec::new();
            for (topic, partition, value) in entry.offsets.iter() {
                let Some(moved) = value.moved.as_deref().filter(|moved| moved.until > now) else {
                    continue;
                };
                let place = fences.iter().position(|(other, _)| other == moved);
                let place = place.unwrap_or_else(|| {
                    fences.push((moved.clone(), Partitions::new()));
                    fences.len() - 1
                });
                let of_topic = fences[place].1.entry(topic.clone()).or_default();
                of_topic.insert(partition);
            }
            for (moved, partitions) in fences {
                self.put_fence(&group_id, partitions, moved);
            }
        }
    }

    /// Why one partition of an otherwise good commit is refused, if it is.
    pub(in crate::group) fn fenced(
        &self,
        now: Millis,
        request: &OffsetCommit,
        (topic, topic_id): (&TopicName, TopicId),
        partition: i32,
    ) -> Option<ErrorCode> {
        let orders = self.orders.get(&*request.group_id)?;
        let held = orders.held.get(topic);
        let is_held = held.is_some_and(|of_it| of_it.contains(&partition));
        let moved = orders.fences.of(now, topic, partition);
        let since = moved.map(|moved| moved.since);
        if !is_held && since.is_none() {
            return None;
        }
        if let Some(group) = self.state.consumer(&request.group_id) {
            let member = group.member(&request.member_id)?;
            let current = member.current();
            let lists = [&current.assigned, &current.pending_revocation];
            let mut had = lists
                .into_iter()
                .filter_map(|list| epoch_of(list, topic_id, partition));
            // Where the epochs have begun anew, an old one says nothing.
            let since = since.filter(|since| *since <= group.epoch());
            let since = since.unwrap_or(i32::MIN);
            // What a static member has kept while it was away, it has since epoch 0.
            let is_anew =
                |had: i32| (had == 0 || had >= since) && request.generation_or_epoch >= since;
            return if had.any(is_anew) {
                None
            } else if member.told().classic.is_some() {
                Some(ErrorCode::RebalanceInProgress)
            } else {
                Some(ErrorCode::StaleMemberEpoch)
            };
        }
        // While offsets of a classic group are about to be moved, its members may commit: the move comes last.
        since?;
        let group = self.classic.get(&*request.group_id)?;
        if &**group.protocol_type() != "consumer" {
            return None;
        }
        let member = group.member(&request.member_id)?;
        let given = Assignment::parse(member.assignment());
        let has = given.is_some_and(|given| {
            let mut topics = given.partitions.iter();
            topics.any(|(name, of_it)| name == topic && of_it.contains(&partition))
        });
        (!has).then_some(ErrorCode::RebalanceInProgress)
    }

    /// The group is gone, and what was moved in it.
    pub(in crate::group) fn forget_fences(&mut self, group_id: &str) {
        if let Some(orders) = self.orders.get_mut(group_id) {
            orders.fences = Fences::default();
            self.tidy_orders(group_id);
        }
    }

    /// The group's epochs begin anew: whoever has a partition has it since the move.
    pub(in crate::group) fn renumber_fences(&mut self, group_id: &str) {
        if let Some(orders) = self.orders.get_mut(group_id) {
            for fence in &mut orders.fences.0 {
                fence.moved.since = 0;
            }
        }
    }

    /// Fences that no longer stand are forgotten.
    pub(super) fn drop_old_fences(&mut self, now: Millis, group_id: &str) {
        if let Some(orders) = self.orders.get_mut(group_id) {
            orders.fences.0.retain(|fence| fence.moved.until > now);
        }
    }

    /// As [`Self::drop_old_fences`], for every group.
    pub(in crate::group) fn drop_all_old_fences(&mut self, now: Millis) {
        self.orders.retain(|_, orders| {
            orders.fences.0.retain(|fence| fence.moved.until > now);
            !orders.is_idle()
        });
    }
}
