//! An operator: looks at groups, deletes what is not used, resets offsets, and changes topics under everybody's feet.

use std::sync::Arc;

use super::{Commit, Hands, TopicAsk, named};
use crate::group::request::{
    Describe, Leave, LeavingMember, List, OffsetDelete, OffsetFetch, Request,
};
use crate::group::types::{Client, GroupId, InstanceId, TopicName};

/// The operator.
#[derive(Debug)]
pub(in crate::sim) struct Admin {
    client: Client,
    groups: Vec<GroupId>,
    topics: Vec<TopicName>,
}

impl Admin {
    pub(in crate::sim) fn new(name: &str, groups: Vec<GroupId>, topics: Vec<TopicName>) -> Self {
        Self {
            client: named(name),
            groups,
            topics,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.client.id
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
                let count = h.rng.between(1, 5) as i32;
                h.topic_asks.push(TopicAsk::Create(topic, count));
                return None;
            }
            12 => {
                let more = h.rng.between(1, 3) as i32;
                h.topic_asks.push(TopicAsk::Grow(topic, more));
                return None;
            }
            _ => {
                if h.rng.chance(300) {
                    h.topic_asks.push(TopicAsk::Delete(topic));
                }
                return None;
            }
        };
        Some(request)
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
