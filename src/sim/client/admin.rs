//! An operator: looks at groups, deletes what is not used, resets offsets, and changes topics under everybody's feet.

use std::sync::Arc;

use super::{Commit, Hands, named};
use crate::group::request::{
    Describe, Leave, LeavingMember, List, OffsetDelete, OffsetFetch, Request,
};
use crate::group::types::{Client, GroupId, InstanceId, TopicId, TopicName, TopicRef};
use crate::sim::frames::{TopicAnswer, TopicAsk, Wanted};

/// More partitions than this are wanted of no topic.
const PARTITIONS_MAX: i32 = 8;
/// A name that no topic can have, and one that only the server may have.
const ODD_NAMES: [&str; 3] = ["t 0", "", "__consumer_offsets"];

/// The operator.
#[derive(Debug)]
pub(in crate::sim) struct Admin {
    client: Client,
    groups: Vec<GroupId>,
    topics: Vec<TopicName>,
    /// Ids of topics that it was told of.
    ids: Vec<TopicId>,
}

impl Admin {
    pub(in crate::sim) fn new(name: &str, groups: Vec<GroupId>, topics: Vec<TopicName>) -> Self {
        Self {
            client: named(name),
            groups,
            topics,
            ids: Vec::new(),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.client.id
    }

    /// What became of topics.
    pub(super) fn hear(&mut self, answers: &[TopicAnswer]) {
        let ids = answers.iter().map(|answer| answer.id);
        self.ids.extend(ids.filter(|id| !id.is_zero()));
        let old = self.ids.len().saturating_sub(4);
        self.ids.drain(..old);
    }

    pub(super) fn wake(&self, h: &mut Hands<'_>) {
        if h.calm {
            return;
        }
        let group_id = h.rng.pick(&self.groups).clone();
        let topic = h.rng.pick(&self.topics).clone();
        if let Some(request) = self.make(group_id, topic, h) {
            h.send(request);
        }
        let ms = h.rng.between(100, 8_000);
        h.wake_in(ms);
    }

    fn make(&self, group_id: GroupId, topic: TopicName, h: &mut Hands<'_>) -> Option<Request> {
        let request = match h.rng.below(15) {
            0 => Request::List(List {
                states: some(&["Stable", "empty", "Dead"], h),
                types: some(&["classic", "Consumer", "none"], h),
            }),
            1 | 2 => Request::Describe(Describe {
                group_id,
                unknown_is_error: h.rng.chance(500),
            }),
            14 => Request::ConsumerDescribe { group_id },
            3 | 4 => Request::Delete { group_id },
            5 | 6 => Request::OffsetDelete(OffsetDelete {
                group_id,
                topics: vec![(topic, vec![0, h.rng.between(-1, 5) as i32])],
            }),
            7 => Request::OffsetFetch(OffsetFetch {
                group_id,
                client: self.client.clone(),
                member_id: None,
                member_epoch: -1,
                topics: None,
                by_topic_id: h.rng.chance(500),
                require_stable: h.rng.chance(500),
            }),
            8 | 9 => Commit {
                group_id: &group_id,
                client: &self.client,
                member_id: "".into(),
                generation: -1,
                instance_id: None,
            }
            .of(&[(topic, 0)], h),
            10 => Request::Leave(remove(group_id, Arc::from(*h.rng.pick(&["i0", "i1"])))),
            11 => {
                self.create(topic, h);
                return None;
            }
            12 => {
                self.grow(topic, h);
                return None;
            }
            _ => {
                if h.rng.chance(300) {
                    self.delete(topic, h);
                }
                return None;
            }
        };
        Some(request)
    }

    /// Another topic than those that are usually asked for, or one of these once more.
    fn another(&self, h: &mut Hands<'_>) -> TopicName {
        if h.rng.chance(500) {
            Arc::from(*h.rng.pick(&ODD_NAMES))
        } else {
            h.rng.pick(&self.topics).clone()
        }
    }

    /// Makes a topic, or makes one with a new id in its place.
    fn create(&self, topic: TopicName, h: &mut Hands<'_>) {
        if h.topics.get(&topic).is_some() && h.rng.chance(900) {
            let old = self.reference(topic.clone(), h);
            h.change_topics(TopicAsk::Delete(vec![old]));
        }
        let mut wanted = vec![want(topic, h.rng.between(1, 5) as i32)];
        if h.rng.chance(200) {
            let mut other = want(self.another(h), h.rng.between(-1, 5) as i32);
            spoil(&mut other, h);
            wanted.push(other);
            h.rng.shuffle(&mut wanted);
        }
        let only_check = h.rng.chance(100);
        h.change_topics(TopicAsk::Create(wanted, only_check));
    }

    fn grow(&self, topic: TopicName, h: &mut Hands<'_>) {
        let mut grow = |topic: TopicName| {
            let more = h.rng.between(1, 3) as i32;
            let present = h.topics.get(&topic).map_or(0, |topic| topic.partitions);
            (topic, (present + more).min(PARTITIONS_MAX))
        };
        let mut wanted = vec![grow(topic)];
        if h.rng.chance(200) {
            let other = self.another(h);
            wanted.push((other, h.rng.between(0, 6) as i32));
        }
        let only_check = h.rng.chance(100);
        h.change_topics(TopicAsk::Grow(wanted, only_check));
    }

    fn delete(&self, topic: TopicName, h: &mut Hands<'_>) {
        let mut unwanted = vec![self.reference(topic, h)];
        if h.rng.chance(200) {
            let other = self.another(h);
            unwanted.push(self.reference(other, h));
        }
        h.change_topics(TopicAsk::Delete(unwanted));
    }

    /// A topic by its name, or by its id, or by an id that it may have had.
    fn reference(&self, topic: TopicName, h: &mut Hands<'_>) -> TopicRef {
        let id = h.topics.get(&topic).map(|topic| topic.id);
        match (h.rng.below(10), id) {
            (0..3, Some(id)) => TopicRef::Id(id),
            (3, _) if !self.ids.is_empty() => TopicRef::Id(*h.rng.pick(&self.ids)),
            _ => TopicRef::Name(topic),
        }
    }
}

/// A topic as most want it.
pub(in crate::sim) fn want(name: TopicName, partitions: i32) -> Wanted {
    Wanted {
        name,
        partitions,
        replicas: 1,
        placed: Vec::new(),
        configs: Vec::new(),
    }
}

/// Wants what not everybody gets.
fn spoil(wanted: &mut Wanted, h: &mut Hands<'_>) {
    let config = |name: &str, value: Option<&str>| (Arc::from(name), value.map(Arc::from));
    match h.rng.below(8) {
        0 => wanted.replicas = h.rng.between(-1, 3) as i16,
        1 | 2 => {
            let count = h.rng.between(1, 3);
            (wanted.partitions, wanted.replicas) = (-1, -1);
            wanted.placed = (0..count).map(|_| *h.rng.pick(&[1, 1, 1, 2])).collect();
        }
        3 | 4 => wanted.configs.push(config("retention.ms", Some("60000"))),
        5 => wanted.configs.push(config("retention.ms", None)),
        6 => wanted.configs.push(config("no.such.thing", Some("1"))),
        _ => {}
    }
}

/// Some of the words that a filter may have; mostly none.
fn some(words: &[&str], h: &mut Hands<'_>) -> Vec<Arc<str>> {
    let count = h.rng.index(3).saturating_sub(1);
    (0..count).map(|_| Arc::from(*h.rng.pick(words))).collect()
}

/// As the admin client removes a static member: by its name alone.
fn remove(group_id: GroupId, instance_id: InstanceId) -> Leave {
    Leave {
        group_id,
        members: vec![LeavingMember {
            member_id: "".into(),
            group_instance_id: Some(instance_id),
            reason: Some("by order".into()),
        }],
    }
}

/// Takes members out of their groups, at any moment: between a follower's sync and the leader's, too.
#[derive(Debug)]
pub(in crate::sim) struct Operator {
    client: Client,
}

impl Operator {
    pub(in crate::sim) fn new(name: &str) -> Self {
        Self {
            client: named(name),
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.client.id
    }

    pub(super) fn wake(&self, h: &mut Hands<'_>) {
        if h.calm {
            return;
        }
        let heard = &h.gossip.heard;
        // Of those heard of lately.
        let back = 1 + h.rng.index(heard.len().min(4));
        if let Some((group_id, member_id, _, instance_id)) = heard.iter().nth_back(back - 1) {
            let mut leave = match instance_id {
                Some(instance_id) => remove(group_id.clone(), instance_id.clone()),
                // Without a name, by its id: as one who removes all members.
                None => Leave {
                    group_id: group_id.clone(),
                    members: vec![LeavingMember {
                        member_id: member_id.clone(),
                        group_instance_id: None,
                        reason: None,
                    }],
                },
            };
            for (of, _, _, instance_id) in heard {
                if of == group_id && instance_id.is_some() && h.rng.chance(100) {
                    leave.members.push(LeavingMember {
                        member_id: "".into(),
                        group_instance_id: instance_id.clone(),
                        reason: None,
                    });
                }
            }
            h.send(Request::Leave(leave));
        }
        let ms = h.rng.between(1_000, 20_000);
        h.wake_in(ms);
    }
}
