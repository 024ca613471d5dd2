//! After offsets were moved: no commit of the time before may win (KIP-1251 goes by the epoch at which a member was given
//! a partition; here that epoch must not be older than the move).
//!
//! A member commits for a moved partition only if it was given it anew. Old generations and epochs are refused anyway;
//! the fence is for members that go on to the new epoch without the partition, and whose application commits what it had
//! read before. It stands for as long as the members may still work on that, and dies with the process: after that the
//! ordinary rules hold.

use super::orders::Partitions;
use crate::group::Coordinator;
use crate::group::reconcile::epoch_of;
use crate::group::request::{ErrorCode, OffsetCommit};
use crate::group::subscription::Assignment;
use crate::group::types::{Millis, TopicId, TopicName};

/// The partitions that were moved by one reset.
#[derive(Debug)]
struct Fence {
    partitions: Partitions,
    /// Whoever has a partition since this epoch has it anew.
    since: i32,
    until: Millis,
}

/// The fences of a group, oldest first.
#[derive(Debug, Default)]
pub(super) struct Fences(Vec<Fence>);

impl Fences {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn add(&mut self, partitions: Partitions, since: i32, until: Millis) {
        // What was moved before is fenced by the newer move.
        for fence in &mut self.0 {
            for (topic, moved) in &partitions {
                if let Some(of_it) = fence.partitions.get_mut(topic) {
                    of_it.retain(|index| !moved.contains(index));
                }
            }
            fence.partitions.retain(|_, of_it| !of_it.is_empty());
        }
        self.0.push(Fence {
            partitions,
            since,
            until,
        });
        self.0.retain(|fence| !fence.partitions.is_empty());
    }

    /// Since which epoch a partition must be had.
    fn since(&self, now: Millis, topic: &str, partition: i32) -> Option<i32> {
        let stands = |fence: &&Fence| {
            let of_it = fence.partitions.get(topic);
            fence.until > now && of_it.is_some_and(|of_it| of_it.contains(&partition))
        };
        self.0.iter().find(stands).map(|fence| fence.since)
    }
}

impl Coordinator {
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
        let since = orders.fences.since(now, topic, partition);
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
        let member = group.members().find(|(id, _)| **id == request.member_id)?.1;
        let given = Assignment::parse(member.assignment());
        let has = given.is_some_and(|given| {
            let mut topics = given.partitions.iter();
            topics.any(|(name, of_it)| name == topic && of_it.contains(&partition))
        });
        (!has).then_some(ErrorCode::RebalanceInProgress)
    }

    /// The group begins anew, and so do its epochs.
    pub(in crate::group) fn forget_fences(&mut self, group_id: &str) {
        if let Some(orders) = self.orders.get_mut(group_id) {
            orders.fences = Fences::default();
            self.tidy_orders(group_id);
        }
    }

    /// Fences that no longer stand are forgotten.
    pub(super) fn drop_old_fences(&mut self, now: Millis, group_id: &str) {
        if let Some(orders) = self.orders.get_mut(group_id) {
            orders.fences.0.retain(|fence| fence.until > now);
        }
    }
}
