//! What a consumer group must do (KIP-848): nobody holds what another still holds, epochs go forward only, and members
//! come, stay and go for a reason.

use std::collections::{BTreeMap, BTreeSet};

use super::Verdict;
use crate::group::GroupConfig;
use crate::group::request::{
    ConsumerDescribeReply, ConsumerHeartbeat, ErrorCode, Leave, OffsetCommit, Reply, Request,
};
use crate::group::types::{InstanceId, MemberId, Millis, TopicId};

#[derive(Clone, Debug)]
pub(super) struct Member {
    instance_id: Option<InstanceId>,
    pub(super) epoch: i32,
    /// When it must be gone if it is not heard of; unknown for members of the classic protocol.
    deadline: Option<Millis>,
    rebalance_ms: i64,
    /// Since when it holds something that it shall give back.
    owes_since: Option<Millis>,
    /// What its last reply said that it shall hold.
    told: Option<BTreeSet<(TopicId, i32)>>,
    pub(super) is_classic: bool,
}

/// A consumer group, as any client can see it.
#[derive(Clone, Debug, Default)]
pub(super) struct Group {
    epoch: i32,
    pub(super) members: BTreeMap<MemberId, Member>,
    pub(super) is_stable: bool,
}

/// What one call did to one group.
#[derive(Debug)]
pub(super) struct Seen<'a> {
    pub(super) now: Millis,
    pub(super) request: Option<&'a Request>,
    pub(super) own_reply: Option<&'a Reply>,
    pub(super) timeout: bool,
    /// It was loaded, or came over from the classic protocol: every timer has begun anew.
    pub(super) anew: bool,
    pub(super) after: &'a ConsumerDescribeReply,
    pub(super) config: &'a GroupConfig,
}

macro_rules! must {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}

impl Group {
    /// A group as it is found again after a crash.
    pub(super) fn at(epoch: i32) -> Self {
        Self {
            epoch,
            ..Self::default()
        }
    }

    /// What a heartbeat with an epoch must be told, as far as that does not hang on what it owns.
    fn fences(&self, request: &ConsumerHeartbeat) -> bool {
        match self.members.get(&request.member_id) {
            None => true,
            Some(member) => request.member_epoch > member.epoch,
        }
    }

    /// What a commit must be told, where it is known without looking at each partition.
    pub(super) fn commit(&self, request: &OffsetCommit) -> Option<ErrorCode> {
        let epoch = request.generation_or_epoch;
        if epoch < 0 && self.members.is_empty() {
            return Some(ErrorCode::None);
        }
        let Some(member) = self.members.get(&request.member_id) else {
            return Some(ErrorCode::UnknownMemberId);
        };
        if member.is_classic {
            return None;
        }
        if !request.consumer_errors {
            return Some(ErrorCode::UnsupportedVersion);
        }
        match epoch.cmp(&member.epoch) {
            std::cmp::Ordering::Equal => Some(ErrorCode::None),
            std::cmp::Ordering::Greater => Some(ErrorCode::StaleMemberEpoch),
            std::cmp::Ordering::Less => None,
        }
    }

    /// Takes in what a call did, and says whether it may.
    pub(super) fn advance(&mut self, seen: &Seen<'_>) -> Verdict {
        let (now, after) = (seen.now, seen.after);
        must!(
            after.group_epoch >= self.epoch,
            "the group epoch went from {} back to {}",
            self.epoch,
            after.group_epoch
        );
        must!(
            after.assignment_epoch <= after.group_epoch,
            "the target is of epoch {}, the group of {}",
            after.assignment_epoch,
            after.group_epoch
        );
        self.epoch = after.group_epoch;
        self.is_stable = matches!(after.state, "Stable" | "Empty");
        let heartbeat = self.check_heartbeat(seen)?;
        let sender = sender(seen);
        self.check_removals(seen)?;
        let mut holders: BTreeMap<(TopicId, i32), &MemberId> = BTreeMap::new();
        for described in &after.members {
            let member_id = &described.member_id;
            must!(
                described.member_epoch <= after.assignment_epoch,
                "{member_id} is at epoch {}, the target at {}",
                described.member_epoch,
                after.assignment_epoch
            );
            let mut held = BTreeSet::new();
            for topic in &described.assignment {
                held.extend(
                    topic
                        .partitions
                        .iter()
                        .map(|index| (topic.topic_id, *index)),
                );
            }
            for partition in &held {
                if let Some(other) = holders.insert(*partition, member_id) {
                    return Err(format!(
                        "{partition:?} is in the hands of {other} and of {member_id}"
                    ));
                }
            }
            let mut target = BTreeSet::new();
            for topic in &described.target_assignment {
                target.extend(
                    topic
                        .partitions
                        .iter()
                        .map(|index| (topic.topic_id, *index)),
                );
            }
            let session_ms = i64::from(seen.config.consumer_session_timeout_ms.default);
            let is_new = !self.members.contains_key(member_id);
            let member = self
                .members
                .entry(member_id.clone())
                .or_insert_with(|| Member {
                    instance_id: described.instance_id.clone(),
                    epoch: i32::MIN,
                    deadline: None,
                    rebalance_ms: 0,
                    owes_since: None,
                    told: None,
                    is_classic: described.is_classic,
                });
            let heard = heartbeat.filter(|_| sender == Some(member_id));
            // Whoever joins, or goes for a while, may be given any epoch.
            let restarts = heard.is_some_and(|heartbeat| heartbeat.member_epoch <= 0);
            must!(
                described.member_epoch >= member.epoch || restarts,
                "the epoch of {member_id} went from {} back to {}",
                member.epoch,
                described.member_epoch
            );
            let epoch_before = std::mem::replace(&mut member.epoch, described.member_epoch);
            member.is_classic = described.is_classic;
            if let Some(heartbeat) = heard {
                if heartbeat.member_epoch >= 0 {
                    member.deadline = Some(now.plus(session_ms));
                }
                if heartbeat.rebalance_timeout_ms >= 0 {
                    member.rebalance_ms = heartbeat.rebalance_timeout_ms.into();
                }
            }
            if member.is_classic {
                member.deadline = None;
            } else if seen.anew || member.deadline.is_none() && is_new {
                member.deadline = Some(now.plus(session_ms));
            }
            // Once it is asked to give something back, it owes an answer in this epoch, whatever becomes of the target.
            // Topics that are gone are not described: that something of them is to be given back shows in the reply.
            let mut shrank = false;
            if heard.is_some()
                && let Some(Reply::ConsumerHeartbeat(reply)) = seen.own_reply
                && let Some(assignment) = &reply.assignment
            {
                let flat = assignment
                    .iter()
                    .flat_map(|(id, partitions)| partitions.iter().map(|index| (*id, *index)));
                let told: BTreeSet<_> = flat.collect();
                let before = member.told.replace(told.clone());
                // What it was told before a crash is not known any more.
                shrank = before.map_or(!is_new, |before| !before.is_subset(&told));
            }
            let asked = member
                .told
                .as_ref()
                .is_some_and(|told| !held.is_subset(told));
            let owes = asked || shrank || seen.anew || !held.is_subset(&target);
            if epoch_before != member.epoch || seen.anew {
                member.owes_since = None;
            }
            if owes && member.owes_since.is_none() {
                member.owes_since = Some(now);
            }
        }
        if seen.timeout {
            for (member_id, member) in &self.members {
                must!(
                    member.deadline.is_none_or(|deadline| deadline > now),
                    "the session of {member_id} ended at {:?}, but it is still a member at {now:?}",
                    member.deadline
                );
            }
        }
        Ok(())
    }

    /// Looks at the answer to a heartbeat; gives the heartbeat if it was taken.
    fn check_heartbeat<'a>(
        &self,
        seen: &Seen<'a>,
    ) -> Result<Option<&'a ConsumerHeartbeat>, String> {
        let Some(Request::ConsumerHeartbeat(request)) = seen.request else {
            return Ok(None);
        };
        let Some(Reply::ConsumerHeartbeat(reply)) = seen.own_reply else {
            return Err("a heartbeat is not answered at once".to_owned());
        };
        if reply.error != ErrorCode::None {
            return Ok(None);
        }
        must!(
            request.member_epoch <= 0 || !self.fences(request),
            "a heartbeat of {} in epoch {} is taken, but must be fenced",
            request.member_id,
            request.member_epoch
        );
        let after = seen
            .after
            .members
            .iter()
            .find(|member| Some(&member.member_id) == sender(seen));
        match after {
            None => must!(
                request.member_epoch == -1,
                "{} is told that all is well, but it is no member",
                request.member_id
            ),
            Some(after) => {
                must!(
                    request.member_epoch != -1,
                    "{} has left, but is still a member",
                    request.member_id
                );
                must!(
                    reply.member_epoch == after.member_epoch,
                    "{} is told epoch {}, but has {}",
                    request.member_id,
                    reply.member_epoch,
                    after.member_epoch
                );
                for (id, partitions) in reply.assignment.iter().flatten() {
                    let held = after.assignment.iter().find(|topic| topic.topic_id == *id);
                    // A topic that is gone is not described any more.
                    must!(
                        held.is_none_or(|held| partitions
                            .iter()
                            .all(|index| held.partitions.contains(index))),
                        "{} is told to hold {partitions:?} of {id:?}, but does not",
                        request.member_id
                    );
                }
            }
        }
        Ok(Some(request))
    }

    /// Nobody goes without a reason.
    fn check_removals(&mut self, seen: &Seen<'_>) -> Verdict {
        let stay: BTreeSet<_> = seen.after.members.iter().map(|m| &m.member_id).collect();
        let gone: Vec<MemberId> = self
            .members
            .keys()
            .filter(|member_id| !stay.contains(member_id))
            .cloned()
            .collect();
        for member_id in gone {
            let member = self.members.remove(&member_id).expect("listed above");
            let asked = match seen.request {
                Some(Request::ConsumerHeartbeat(request)) => {
                    request.member_id == member_id && request.member_epoch == -1
                        || request.member_epoch == 0
                            && request.instance_id.is_some()
                            && request.instance_id == member.instance_id
                }
                Some(Request::Join(request)) => {
                    request.group_instance_id.is_some()
                        && request.group_instance_id == member.instance_id
                }
                Some(Request::Leave(request)) => names(request, &member_id, &member),
                _ => false,
            };
            let silent = seen.timeout && member.deadline.is_none_or(|at| at <= seen.now);
            let slow = seen.timeout
                && member
                    .owes_since
                    .is_some_and(|since| since.plus(member.rebalance_ms) <= seen.now);
            must!(
                asked || silent || slow,
                "{member_id} was taken out of the group without a reason: {member:?} at {:?}",
                seen.now
            );
        }
        Ok(())
    }
}

/// Whose heartbeat it is. Before version 1 a member learns its id from the answer to its first.
fn sender<'a>(seen: &Seen<'a>) -> Option<&'a MemberId> {
    match (seen.request, seen.own_reply) {
        (Some(Request::ConsumerHeartbeat(request)), Some(Reply::ConsumerHeartbeat(reply)))
            if request.member_id.is_empty() =>
        {
            reply.member_id.as_ref()
        }
        (Some(Request::ConsumerHeartbeat(request)), _) => Some(&request.member_id),
        _ => None,
    }
}

fn names(request: &Leave, member_id: &MemberId, member: &Member) -> bool {
    request.members.iter().any(|leaving| {
        leaving.member_id == *member_id
            || leaving.member_id.is_empty()
                && leaving.group_instance_id.is_some()
                && leaving.group_instance_id == member.instance_id
    })
}
