//! An operator: looks at groups, deletes what is not used, resets offsets, and changes topics under everybody's feet.

use std::sync::Arc;

use super::{Commit, Hands, TopicAsk, named};
use crate::group::request::{
    Describe, Leave, LeavingMember, List, OffsetDelete, OffsetFetch, Request,
};
use crate::group::types::{Client, GroupId, TopicName};

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
        let request = match h.rng.below(14) {
            0 => Request::List(List::default()),
            1 | 2 => Request::Describe(Describe {
                group_id,
                unknown_is_error: h.rng.chance(500),
            }),
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
            10 => Request::Leave(Leave {
                group_id,
                members: vec![LeavingMember {
                    member_id: "".into(),
                    group_instance_id: Some(Arc::from(*h.rng.pick(&["i0", "i1"]))),
                    reason: Some("by order".into()),
                }],
            }),
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
