//! How the leader of a classic group shares partitions out: eagerly, or cooperatively in two steps.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use crate::group::request::JoinedMember;
use crate::group::subscription::{Assignment, NamePartitions, Subscription};
use crate::group::types::{MemberId, TopicName, Topics};

/// One partition of one topic.
pub(super) type Partition = (TopicName, i32);

pub(super) fn by_topic(partitions: impl IntoIterator<Item = Partition>) -> NamePartitions {
    let mut topics: BTreeMap<TopicName, Vec<i32>> = BTreeMap::new();
    for (topic, index) in partitions {
        topics.entry(topic).or_default().push(index);
    }
    topics.into_iter().collect()
}

pub(super) fn flat(topics: &NamePartitions) -> BTreeSet<Partition> {
    topics
        .iter()
        .flat_map(|(topic, partitions)| partitions.iter().map(|index| (topic.clone(), *index)))
        .collect()
}

fn to_bytes(partitions: BTreeSet<Partition>) -> Bytes {
    Assignment {
        version: 1,
        partitions: by_topic(partitions),
        user_data: None,
    }
    .to_bytes()
}

/// An assignment for each member. A cooperative one gives nobody what another still holds.
pub(super) fn assign(
    members: &[JoinedMember],
    topics: &Topics,
    cooperative: bool,
) -> Vec<(MemberId, Bytes)> {
    let subscriptions: Vec<(&MemberId, Subscription)> = members
        .iter()
        .filter_map(|member| Some((&member.member_id, Subscription::parse(&member.metadata)?)))
        .collect();
    let held = if cooperative {
        held(&subscriptions)
    } else {
        BTreeMap::new()
    };
    let mut given: BTreeMap<&MemberId, BTreeSet<Partition>> = BTreeMap::new();
    for (member_id, _) in &subscriptions {
        given.insert(*member_id, BTreeSet::new());
    }
    let wanted: BTreeSet<&TopicName> = subscriptions.iter().flat_map(|(_, s)| &s.topics).collect();
    for topic in wanted {
        let count = topics.get(topic).map_or(0, |topic| topic.partitions);
        let takers: Vec<&MemberId> = subscriptions
            .iter()
            .filter(|(_, subscription)| subscription.topics.contains(topic))
            .map(|(member_id, _)| *member_id)
            .collect();
        share_out(topic, count, &takers, &held, &mut given);
    }
    given
        .into_iter()
        .map(|(member_id, partitions)| (member_id.clone(), to_bytes(partitions)))
        .collect()
}

/// Who holds what: of two who claim a partition, the one of the later generation.
fn held<'a>(
    subscriptions: &[(&'a MemberId, Subscription)],
) -> BTreeMap<Partition, (&'a MemberId, i32)> {
    let mut held: BTreeMap<Partition, (&MemberId, i32)> = BTreeMap::new();
    for (member_id, subscription) in subscriptions {
        for partition in flat(&subscription.owned) {
            let claim = (*member_id, subscription.generation);
            let holder = held.entry(partition).or_insert(claim);
            if holder.1 < claim.1 {
                *holder = claim;
            }
        }
    }
    held
}

fn share_out<'a>(
    topic: &TopicName,
    count: i32,
    takers: &[&'a MemberId],
    held: &BTreeMap<Partition, (&'a MemberId, i32)>,
    given: &mut BTreeMap<&'a MemberId, BTreeSet<Partition>>,
) {
    let most = (count as usize).div_ceil(takers.len().max(1));
    let mut counts: BTreeMap<&MemberId, usize> = takers.iter().map(|id| (*id, 0)).collect();
    let mut free = Vec::new();
    for index in 0..count {
        let partition = (topic.clone(), index);
        match held.get(&partition) {
            // The holder keeps it, or is asked to give it back, in which case nobody has it this time.
            Some((holder, _)) => {
                if let Some(mine) = counts.get_mut(holder).filter(|mine| **mine < most) {
                    *mine += 1;
                    given.entry(holder).or_default().insert(partition);
                }
            }
            None => free.push(partition),
        }
    }
    for partition in free {
        let taker = counts.iter().min_by_key(|(_, count)| **count);
        if let Some((taker, _)) = taker.map(|(taker, count)| (*taker, *count)) {
            *counts.entry(taker).or_default() += 1;
            given.entry(taker).or_default().insert(partition);
        }
    }
}
