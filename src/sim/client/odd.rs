//! Clients that are not members, or not quite: those who only commit, those who take an id and never come back, and
//! those who say what is not so.

use std::sync::Arc;

use bytes::Bytes;

use super::{Commit, Hands, fetch, named};
use crate::group::request::{
    ErrorCode, Heartbeat, Join, Leave, LeavingMember, Protocol, Reply, Request, Sync,
};
use crate::group::types::{Client, GroupId, MemberId, TopicName};

/// Commits without being a member, and reads back.
#[derive(Debug)]
pub(in crate::sim) struct Committer {
    pub(in crate::sim) group_id: GroupId,
    pub(in crate::sim) client: Client,
}

impl Committer {
    pub(in crate::sim) fn new(name: &str, group_id: GroupId) -> Self {
        Self {
            group_id,
            client: named(name),
        }
    }

    pub(super) fn wake(&self, h: &mut Hands<'_>) {
        let partitions: Vec<(TopicName, i32)> = h
            .topics
            .iter()
            .flat_map(|(name, topic)| (0..topic.partitions).map(|index| (name.clone(), index)))
            .collect();
        if partitions.is_empty() || h.calm {
            return h.wake_in(5_000);
        }
        let mut some = vec![h.rng.pick(&partitions).clone()];
        if h.rng.chance(300) {
            some.push((
                h.rng.pick(&partitions).0.clone(),
                h.rng.between(-1, 9) as i32,
            ));
        }
        if h.rng.chance(600) {
            let request = Commit {
                group_id: &self.group_id,
                client: &self.client,
                member_id: "".into(),
                generation: -1,
                instance_id: None,
            }
            .of(&some, h);
            h.send(request);
        } else {
            h.send(fetch(&self.group_id, &self.client, &some));
        }
        let ms = h.rng.between(100, 6_000);
        h.wake_in(ms);
    }

    pub(super) fn reply(&self, _reply: &Reply) {}
}

/// Learns its id and does not join, or joins and is never heard of again.
#[derive(Debug)]
pub(in crate::sim) struct Abandoner {
    group_id: GroupId,
    client: Client,
    protocols: Vec<Protocol>,
    session_timeout_ms: i32,
}

impl Abandoner {
    pub(in crate::sim) fn new(name: &str, group_id: GroupId, protocols: &[&str]) -> Self {
        let metadata = crate::group::subscription::Subscription {
            version: 0,
            topics: Vec::new(),
            user_data: None,
            owned: Vec::new(),
            generation: -1,
            rack_id: None,
        }
        .to_bytes();
        Self {
            group_id,
            client: named(name),
            protocols: protocols
                .iter()
                .map(|name| Protocol {
                    name: Arc::from(*name),
                    metadata: metadata.clone(),
                })
                .collect(),
            session_timeout_ms: 6_000,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.client.id
    }

    pub(super) fn wake(&self, h: &mut Hands<'_>) {
        if h.calm {
            return;
        }
        let two_steps = h.rng.chance(800);
        self.join("".into(), two_steps, h);
        let ms = h.rng.between(1_000, 20_000);
        h.wake_in(ms);
    }

    pub(super) fn reply(&self, reply: &Reply, h: &mut Hands<'_>) {
        if let Reply::Join(reply) = reply
            && reply.error == ErrorCode::MemberIdRequired
        {
            h.gossip.hear(&self.group_id, &reply.member_id, 0, None);
            if h.rng.chance(200) && !h.calm {
                self.join(reply.member_id.clone(), true, h);
            }
        }
    }

    fn join(&self, member_id: MemberId, two_steps: bool, h: &mut Hands<'_>) {
        let rebalance_timeout_ms = h.rng.between(-1, 10_000) as i32;
        h.send(Request::Join(Join {
            group_id: self.group_id.clone(),
            client: self.client.clone(),
            session_timeout_ms: self.session_timeout_ms,
            rebalance_timeout_ms,
            member_id,
            group_instance_id: None,
            protocol_type: "consumer".into(),
            protocols: self.protocols.clone(),
            reason: None,
            member_id_required: two_steps,
            skip_assignment: two_steps,
        }));
        if h.rng.chance(100) {
            h.hang_up = true;
        }
    }
}

/// Says what is not so: old generations, other members' ids, groups that do not exist.
#[derive(Debug)]
pub(in crate::sim) struct Confused {
    client: Client,
    groups: Vec<GroupId>,
}

impl Confused {
    pub(in crate::sim) fn new(name: &str, groups: Vec<GroupId>) -> Self {
        Self {
            client: named(name),
            groups,
        }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        &self.client.id
    }

    pub(super) fn wake(&self, h: &mut Hands<'_>) {
        if h.calm {
            return;
        }
        let request = self.make(h);
        h.send(request);
        let ms = h.rng.between(50, 4_000);
        h.wake_in(ms);
    }

    fn make(&self, h: &mut Hands<'_>) -> Request {
        let index = h.rng.index(h.gossip.heard.len());
        let heard = h.gossip.heard.get(index).cloned();
        let (mut group_id, mut member_id, mut generation, mut instance_id) =
            heard.unwrap_or_else(|| (h.rng.pick(&self.groups).clone(), "nobody".into(), 1, None));
        if h.rng.chance(150) && generation > 0 {
            // A sync that was under way for a generation or more.
            return Request::Sync(Sync {
                group_id,
                generation: generation - h.rng.between(1, 2) as i32,
                member_id,
                group_instance_id: instance_id,
                protocol_type: None,
                protocol_name: None,
                protocol_required: false,
                assignments: Vec::new(),
            });
        }
        // At least one thing is wrong, so that nobody's membership is stolen.
        let mut wrong = 1 + h.rng.below(15);
        if wrong & 8 != 0 {
            group_id = match h.rng.below(3) {
                0 => "".into(),
                1 => "no such group".into(),
                _ => h.rng.pick(&self.groups).clone(),
            };
            wrong |= 1;
        }
        if wrong & 1 != 0 {
            member_id = match h.rng.below(3) {
                0 => "".into(),
                _ => format!("{member_id}x").into(),
            };
        }
        if wrong & 2 != 0 {
            generation += h.rng.between(-3, 3) as i32;
        }
        if wrong & 4 != 0 {
            let names = ["i0", "i1", "nobody"];
            instance_id = h.rng.chance(700).then(|| Arc::from(*h.rng.pick(&names)));
        }
        let sure = wrong & 1 != 0;
        match h.rng.below(if sure { 6 } else { 2 }) {
            0 => Request::Heartbeat(Heartbeat {
                group_id,
                generation: generation - 1,
                member_id,
                group_instance_id: instance_id,
            }),
            1 => Commit {
                group_id: &group_id,
                client: &self.client,
                member_id,
                generation: generation - 1,
                instance_id,
            }
            .of(&[("t0".into(), 0)], h),
            2 => Request::Sync(Sync {
                group_id,
                generation,
                member_id: member_id.clone(),
                group_instance_id: instance_id,
                protocol_type: None,
                protocol_name: None,
                protocol_required: h.rng.chance(100),
                assignments: vec![(member_id, Bytes::from_static(b"mine"))],
            }),
            3 if !member_id.is_empty() => Request::Leave(Leave {
                group_id,
                members: vec![
                    LeavingMember {
                        member_id,
                        group_instance_id: instance_id,
                        reason: None,
                    };
                    1 + h.rng.index(2)
                ],
            }),
            _ => {
                let protocol_type = if h.rng.chance(800) {
                    "consumer"
                } else {
                    "connect"
                };
                let protocol = Protocol {
                    name: "range".into(),
                    metadata: Bytes::from_static(b"?"),
                };
                let count = h.rng.index(3);
                Request::Join(Join {
                    group_id,
                    client: self.client.clone(),
                    session_timeout_ms: h.rng.between(5_000, 7_000) as i32,
                    rebalance_timeout_ms: h.rng.between(0, 8_000) as i32,
                    member_id: if member_id.is_empty() {
                        "x".into()
                    } else {
                        member_id
                    },
                    group_instance_id: instance_id,
                    protocol_type: protocol_type.into(),
                    protocols: vec![protocol; count],
                    reason: None,
                    member_id_required: true,
                    skip_assignment: true,
                })
            }
        }
    }
}
