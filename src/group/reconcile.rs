//! One member of a consumer group on its way to its target, as one pure function: revoke, wait, then assign (KIP-848).
//!
//! Also the small set arithmetic on partitions that it needs, and the book of who holds what. Lists of partitions are
//! sorted by topic and partition throughout; `tidy` makes them so where they come from outside.

use std::collections::BTreeMap;

use super::record::{AssignedPartitions, CurrentAssignmentValue, MemberState};
use super::request::IdPartitions;
use super::types::{MemberId, TopicId};

/// A member's situation at one heartbeat.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    /// What it has and gives back now.
    pub(super) current: &'a CurrentAssignmentValue,
    /// The epoch of the target assignment.
    pub(super) target_epoch: i32,
    /// Its part of the target.
    pub(super) target: &'a [(TopicId, Vec<i32>)],
    /// What it says it owns; `None` if it does not say.
    pub(super) owned: Option<&'a [(TopicId, Vec<i32>)]>,
    /// Whether it has just changed its subscription.
    pub(super) subscription_changed: bool,
}

/// What comes of a [`Step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Everything stays.
    Unchanged,
    /// The member moves on. What it may no longer have is free for others once this is recorded.
    Next(CurrentAssignmentValue),
    /// A state of a later version, of which nothing is known: the member must start anew (FENCED_MEMBER_EPOCH).
    Fence,
}

impl Step<'_> {
    /// Takes the step.
    ///
    /// `is_subscribed` tells whether the member subscribes to a topic now; `held_by_other`, whether another member has
    /// the partition or has not confirmed that it gave it back.
    pub(super) fn take(
        self,
        is_subscribed: impl Fn(TopicId) -> bool,
        held_by_other: impl Fn(TopicId, i32) -> bool,
    ) -> Outcome {
        let next = match self.current.state {
            MemberState::Stable if self.current.member_epoch == self.target_epoch => {
                if !self.subscription_changed {
                    return Outcome::Unchanged;
                }
                self.drop_unsubscribed(&is_subscribed)
            }
            MemberState::Stable | MemberState::UnreleasedPartitions => {
                self.advance(is_subscribed, held_by_other)
            }
            // What it has given back is free, whatever it must give back next.
            MemberState::UnrevokedPartitions
                if !self.owns_any(&self.current.pending_revocation) =>
            {
                self.advance(is_subscribed, held_by_other)
            }
            MemberState::UnrevokedPartitions if self.subscription_changed => {
                self.drop_unsubscribed(&is_subscribed)
            }
            MemberState::UnrevokedPartitions => return Outcome::Unchanged,
            MemberState::Unknown => {
                if self.owned.is_none_or(|owned| !owned.is_empty()) {
                    return Outcome::Fence;
                }
                self.advance(is_subscribed, held_by_other)
            }
        };
        if next == *self.current {
            Outcome::Unchanged
        } else {
            Outcome::Next(next)
        }
    }

    /// Takes away what the member no longer subscribes to, before any new target says so. The epoch stays.
    fn drop_unsubscribed(self, is_subscribed: impl Fn(TopicId) -> bool) -> CurrentAssignmentValue {
        let (kept, dropped) = split(&self.current.assigned, |topic, _| is_subscribed(topic));
        if dropped.is_empty() {
            return self.current.clone();
        }
        let pending = union(&self.current.pending_revocation, &dropped);
        let mut next = self.current.clone();
        next.assigned = kept;
        if self.owns_any(&pending) {
            next.state = MemberState::UnrevokedPartitions;
            next.pending_revocation = pending;
        } else {
            next.pending_revocation = Vec::new();
        }
        next
    }

    /// One step towards the target: give back what it does not list, or take what is free of it.
    fn advance(
        self,
        is_subscribed: impl Fn(TopicId) -> bool,
        held_by_other: impl Fn(TopicId, i32) -> bool,
    ) -> CurrentAssignmentValue {
        let current = self.current;
        let wanted = |topic| is_subscribed(topic);

        // kept = assigned ∩ target;  revoke = assigned − target
        let (kept, revoke) = split(&current.assigned, |topic, partition| {
            wanted(topic) && contains(self.target, topic, partition)
        });
        if !revoke.is_empty() && self.owns_any(&revoke) {
            return CurrentAssignmentValue {
                state: MemberState::UnrevokedPartitions,
                assigned: kept,
                pending_revocation: revoke,
                ..current.clone()
            };
        }

        // add = target − kept, without what others still hold;  unreleased = the rest of it
        let mut unreleased = false;
        let mut add = Vec::new();
        for (topic, partitions) in self.target.iter().filter(|(topic, _)| wanted(*topic)) {
            let here = of_topic(&kept, *topic);
            let mut free = Vec::new();
            for &partition in partitions {
                if here.binary_search_by_key(&partition, |(p, _)| *p).is_ok() {
                    continue;
                }
                if held_by_other(*topic, partition) {
                    unreleased = true;
                } else {
                    free.push((partition, self.target_epoch));
                }
            }
            if !free.is_empty() {
                add.push(AssignedPartitions {
                    topic_id: *topic,
                    partitions: free,
                });
            }
        }

        // assigned := kept ∪ add;  pending revocation := ∅;  epoch := target epoch
        let moved = current.member_epoch != self.target_epoch;
        CurrentAssignmentValue {
            member_epoch: self.target_epoch,
            // An epoch that merely stays does not shift: a member that lost an answer may still come with the one
            // before (Kafka forgets it here and fences such a member).
            previous_member_epoch: if moved {
                current.member_epoch
            } else {
                current.previous_member_epoch
            },
            state: if unreleased {
                MemberState::UnreleasedPartitions
            } else {
                MemberState::Stable
            },
            assigned: union(&kept, &add),
            pending_revocation: Vec::new(),
        }
    }

    /// owned ∩ partitions ≠ ∅, or the member does not say what it owns.
    fn owns_any(self, partitions: &[AssignedPartitions]) -> bool {
        self.owned.is_none_or(|owned| {
            owned.iter().any(|(topic, owned)| {
                let ours = of_topic(partitions, *topic);
                owned
                    .iter()
                    .any(|partition| ours.binary_search_by_key(partition, |(p, _)| *p).is_ok())
            })
        })
    }
}

/// Whether two lists name the same partitions, whatever their epochs.
pub(super) fn same_partitions(a: &[AssignedPartitions], b: &[AssignedPartitions]) -> bool {
    pairs(a)
        .map(|(topic, partition, _)| (topic, partition))
        .eq(pairs(b).map(|(topic, partition, _)| (topic, partition)))
}

/// Whether every partition of `owned` is in `assigned`.
pub(super) fn is_subset(owned: &[(TopicId, Vec<i32>)], assigned: &[AssignedPartitions]) -> bool {
    owned.iter().all(|(topic, partitions)| {
        let ours = of_topic(assigned, *topic);
        partitions
            .iter()
            .all(|partition| ours.binary_search_by_key(partition, |(p, _)| *p).is_ok())
    })
}

/// The epoch at which a partition was assigned; `None` if it is not in the list.
pub(super) fn epoch_of(list: &[AssignedPartitions], topic: TopicId, partition: i32) -> Option<i32> {
    let partitions = of_topic(list, topic);
    let place = partitions
        .binary_search_by_key(&partition, |(p, _)| *p)
        .ok()?;
    Some(partitions[place].1)
}

/// The list without its epochs.
pub(super) fn without_epochs(list: &[AssignedPartitions]) -> IdPartitions {
    list.iter()
        .map(|topic| {
            let partitions = topic.partitions.iter().map(|(partition, _)| *partition);
            (topic.topic_id, partitions.collect())
        })
        .collect()
}

/// The list with one epoch for all.
pub(super) fn with_epoch(list: &[(TopicId, Vec<i32>)], epoch: i32) -> Vec<AssignedPartitions> {
    list.iter()
        .map(|(topic_id, partitions)| AssignedPartitions {
            topic_id: *topic_id,
            partitions: partitions
                .iter()
                .map(|partition| (*partition, epoch))
                .collect(),
        })
        .collect()
}

/// Puts a list that came from outside into order: each topic once, each partition once.
pub(super) fn tidy(list: &mut Vec<AssignedPartitions>) {
    let is_tidy = list.is_sorted_by(|a, b| a.topic_id < b.topic_id)
        && list
            .iter()
            .all(|t| !t.partitions.is_empty() && t.partitions.is_sorted_by(|a, b| a.0 < b.0));
    if !is_tidy {
        let mut sorted: BTreeMap<TopicId, BTreeMap<i32, i32>> = BTreeMap::new();
        for (topic, partition, epoch) in pairs(list) {
            sorted.entry(topic).or_default().insert(partition, epoch);
        }
        *list = sorted
            .into_iter()
            .map(|(topic_id, partitions)| AssignedPartitions {
                topic_id,
                partitions: partitions.into_iter().collect(),
            })
            .collect();
    }
}

/// As [`tidy`], for a list without epochs.
pub(super) fn tidy_ids(list: &mut IdPartitions) {
    let is_tidy = list.is_sorted_by(|a, b| a.0 < b.0)
        && list
            .iter()
            .all(|(_, p)| !p.is_empty() && p.is_sorted_by(|a, b| a < b));
    if !is_tidy {
        let mut with_epochs = with_epoch(list, 0);
        tidy(&mut with_epochs);
        *list = without_epochs(&with_epochs);
    }
}

fn pairs(list: &[AssignedPartitions]) -> impl Iterator<Item = (TopicId, i32, i32)> {
    list.iter().flat_map(|topic| {
        let id = topic.topic_id;
        topic
            .partitions
            .iter()
            .map(move |(partition, epoch)| (id, *partition, *epoch))
    })
}

fn of_topic(list: &[AssignedPartitions], topic: TopicId) -> &[(i32, i32)] {
    list.binary_search_by_key(&topic, |t| t.topic_id)
        .map_or(&[], |place| &list[place].partitions)
}

fn contains(list: &[(TopicId, Vec<i32>)], topic: TopicId, partition: i32) -> bool {
    list.binary_search_by_key(&topic, |(id, _)| *id)
        .is_ok_and(|place| list[place].1.binary_search(&partition).is_ok())
}

/// Those that `stay`, and the others.
fn split(
    list: &[AssignedPartitions],
    stay: impl Fn(TopicId, i32) -> bool,
) -> (Vec<AssignedPartitions>, Vec<AssignedPartitions>) {
    let mut parts = (Vec::new(), Vec::new());
    for AssignedPartitions {
        topic_id,
        partitions,
    } in list
    {
        let (kept, rest): (Vec<_>, Vec<_>) = partitions
            .iter()
            .copied()
            .partition(|(partition, _)| stay(*topic_id, *partition));
        for (part, partitions) in [(&mut parts.0, kept), (&mut parts.1, rest)] {
            if !partitions.is_empty() {
                part.push(AssignedPartitions {
                    topic_id: *topic_id,
                    partitions,
                });
            }
        }
    }
    parts
}

/// a ∪ b; where both have a partition, the epoch is b's.
fn union(a: &[AssignedPartitions], b: &[AssignedPartitions]) -> Vec<AssignedPartitions> {
    let mut all = [a, b].concat();
    tidy(&mut all);
    all
}

/// Who holds each partition: has it, or has not confirmed that it gave it back.
///
/// Kafka keeps the holder's epoch. The holder itself says more: a record that comes late can release only what its own
/// member had.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Holders(BTreeMap<TopicId, BTreeMap<i32, MemberId>>);

impl Holders {
    /// A member's value changes: what it had before is released, what it has now is held.
    pub(super) fn change(
        &mut self,
        member_id: &MemberId,
        before: Option<&CurrentAssignmentValue>,
        after: Option<&CurrentAssignmentValue>,
    ) {
        for (topic, partition) in before.into_iter().flat_map(held) {
            let Some(partitions) = self.0.get_mut(&topic) else {
                continue;
            };
            if partitions.get(&partition) == Some(member_id) {
                partitions.remove(&partition);
                if partitions.is_empty() {
                    self.0.remove(&topic);
                }
            }
        }
        for (topic, partition) in after.into_iter().flat_map(held) {
            self.0
                .entry(topic)
                .or_default()
                .insert(partition, member_id.clone());
        }
    }

    /// Whether somebody other than `member_id` holds the partition.
    pub(super) fn held_by_other(&self, member_id: &str, topic: TopicId, partition: i32) -> bool {
        self.0
            .get(&topic)
            .and_then(|partitions| partitions.get(&partition))
            .is_some_and(|holder| **holder != *member_id)
    }
}

/// What a member holds: assigned ∪ pending revocation.
fn held(value: &CurrentAssignmentValue) -> impl Iterator<Item = (TopicId, i32)> {
    let (assigned, pending) = (pairs(&value.assigned), pairs(&value.pending_revocation));
    assigned
        .chain(pending)
        .map(|(topic, partition, _)| (topic, partition))
}

#[cfg(test)]
mod tests;
