//! How much memory groups take, about, and what a request may add to it.
//!
//! Counted is what clients put in: members with their metadata and assignments, ids that were handed out, subscriptions,
//! committed offsets with their notes, group ids. Weights stand for the maps and timers around them. What a request asks
//! for beyond the limit is refused before it changes anything; whoever stays within what it has goes on.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::Coordinator;
use super::record::{ConsumerMemberValue, GroupValue, OffsetValue};
use super::request::{ConsumerHeartbeat, ErrorCode, Join, OffsetCommit, Protocol, Request, Sync};
use super::types::{Client, InstanceId, TopicRef};

/// A group without its id.
pub(super) const GROUP: usize = 400;
/// A member, of either protocol, without what it brought.
const MEMBER: usize = 700;
/// A member id that was handed out.
pub(super) const PENDING: usize = 300;
/// A member in the record of its group.
const RECORDED_MEMBER: usize = 150;
/// A protocol of a member.
const PROTOCOL: usize = 64;
/// A topic that a member names.
const NAME: usize = 80;
/// A committed offset, with who committed it and who fetched it.
const OFFSET: usize = 200;

/// Bytes that groups keep in memory, of all coordinators that share this.
#[derive(Debug, Default)]
pub struct GroupMemory(AtomicUsize);

impl GroupMemory {
    /// Bytes in use, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// A part of the memory in use; given back when dropped.
#[derive(Debug, Default)]
pub(super) struct Tally {
    memory: Arc<GroupMemory>,
    bytes: usize,
}

impl Tally {
    /// Counts as so many bytes of this memory from now on.
    pub(super) fn set(&mut self, memory: &Arc<GroupMemory>, bytes: usize) {
        if !Arc::ptr_eq(memory, &self.memory) {
            self.change(0);
            self.memory = memory.clone();
        }
        self.change(bytes);
    }

    fn change(&mut self, bytes: usize) {
        let total = &self.memory.0;
        if bytes > self.bytes {
            total.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            total.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        self.change(0);
    }
}

/// What a classic member's protocols weigh.
pub(super) fn protocols(protocols: &[Protocol]) -> usize {
    let each = protocols.iter();
    each.map(|protocol| PROTOCOL + protocol.name.len() + protocol.metadata.len())
        .sum()
}

/// What the record of a classic group weighs beside the live group, which shares the members' metadata with it.
pub(super) fn classic(value: &GroupValue) -> usize {
    let each = value.members.iter();
    each.map(|member| RECORDED_MEMBER + member.assignment.len())
        .sum()
}

/// What a classic member weighs without its protocols. Its id is made of its name.
pub(super) fn member(client: &Client, instance_id: Option<&InstanceId>) -> usize {
    MEMBER + 2 * client.id.len() + 2 * instance_id.map_or(0, |instance_id| instance_id.len())
}

/// What a member of a consumer group weighs with all that it told of itself.
pub(super) fn told(member_id: &str, value: &ConsumerMemberValue) -> usize {
    MEMBER
        + member_id.len()
        + subscription(
            &value.subscribed_topic_names,
            value.subscribed_topic_regex.as_deref(),
        )
        + value
            .classic
            .as_ref()
            .map_or(0, |classic| protocols(&classic.protocols))
}

/// What a member of a consumer group subscribes to weighs.
fn subscription<N: AsRef<str>>(names: &[N], pattern: Option<&str>) -> usize {
    let names = names.iter().map(|name| NAME + name.as_ref().len());
    names.sum::<usize>() + pattern.map_or(0, |pattern| NAME + pattern.len())
}

/// What a committed offset weighs.
pub(super) fn offset(value: &OffsetValue) -> usize {
    OFFSET + value.metadata.len()
}

impl Coordinator {
    /// Why a request cannot be taken: it wants more memory than is left. The code is the one that clients of the API
    /// understand best.
    pub(super) fn no_memory_for(&self, request: &Request) -> Option<ErrorCode> {
        let limit = self.config.memory_bytes_max;
        let left = limit.saturating_sub(self.config.memory.bytes());
        // Nearly always there is plenty, and nothing has to be looked up.
        if asked(request) <= left || self.growth(request) <= left {
            return None;
        }
        match request {
            // Fatal to the client, with a text that names the reason.
            Request::Join(_) | Request::ConsumerHeartbeat(_) => {
                Some(ErrorCode::GroupMaxSizeReached)
            }
            Request::OffsetCommit(_) => Some(ErrorCode::InvalidCommitOffsetSize),
            // The leader tries again, and there may be room by then.
            _ => Some(ErrorCode::CoordinatorNotAvailable),
        }
    }

    /// What a request may add.
    fn growth(&self, request: &Request) -> usize {
        let has = match request {
            Request::Join(join) => self.group_weight(&join.group_id) + self.member_weight(join),
            Request::Sync(sync) => self.assigned(sync),
            Request::ConsumerHeartbeat(beat) => {
                let group = self.state.consumer(&beat.group_id);
                let member = group.and_then(|group| group.member(&beat.member_id));
                let member = member.map_or(0, |member| told(&beat.member_id, member.told()));
                self.group_weight(&beat.group_id) + member
            }
            Request::OffsetCommit(commit) => {
                self.group_weight(&commit.group_id) + self.committed(commit)
            }
            _ => 0,
        };
        asked(request).saturating_sub(has)
    }

    /// What the group weighs already, without what is in it.
    fn group_weight(&self, group_id: &str) -> usize {
        match self.exists(group_id) {
            true => GROUP + group_id.len(),
            false => 0,
        }
    }

    /// What the member that joins weighs already.
    fn member_weight(&self, join: &Join) -> usize {
        if let Some(group) = self.state.consumer(&join.group_id) {
            let member = group.member(&join.member_id);
            return member.map_or(0, |member| told(&join.member_id, member.told()));
        }
        let Some(group) = self.classic.get(&*join.group_id) else {
            return 0;
        };
        group.weight_of(&join.member_id, join.group_instance_id.as_ref())
    }

    /// What the members' assignments weigh already.
    fn assigned(&self, sync: &Sync) -> usize {
        let recorded = self.state.group(&sync.group_id);
        let value = recorded.and_then(|entry| entry.classic.as_deref());
        value.map_or(0, classic)
    }

    /// What the offsets of a commit weigh already.
    fn committed(&self, commit: &OffsetCommit) -> usize {
        let Some(entry) = self.state.group(&commit.group_id) else {
            return 0;
        };
        let mut bytes = 0;
        for topic in &commit.topics {
            let name = match &topic.topic {
                TopicRef::Name(name) => Some(name),
                TopicRef::Id(id) => self.topics.name_of(*id),
            };
            let Some((_, offsets)) = name.and_then(|name| entry.offsets.topic(name)) else {
                continue;
            };
            let known = topic.partitions.iter();
            bytes += known
                .filter_map(|partition| offsets.get(&partition.index))
                .map(|slot| offset(slot))
                .sum::<usize>();
        }
        bytes
    }
}

/// What a request brings to be kept.
fn asked(request: &Request) -> usize {
    match request {
        Request::Join(join) => {
            let instance_id = join.group_instance_id.as_ref();
            GROUP
                + join.group_id.len()
                + member(&join.client, instance_id)
                + protocols(&join.protocols)
        }
        Request::Sync(sync) => {
            let each = sync.assignments.iter();
            each.map(|(_, assignment)| RECORDED_MEMBER + assignment.len())
                .sum()
        }
        Request::ConsumerHeartbeat(beat) => subscribed(beat),
        Request::OffsetCommit(commit) => {
            let partitions = commit.topics.iter().flat_map(|topic| &topic.partitions);
            let offsets = partitions.map(|partition| OFFSET + partition.metadata.len());
            GROUP + commit.group_id.len() + offsets.sum::<usize>()
        }
        _ => 0,
    }
}

fn subscribed(beat: &ConsumerHeartbeat) -> usize {
    let names = beat.subscribed_topic_names.as_deref().unwrap_or_default();
    let member = if beat.member_epoch == 0 {
        MEMBER + beat.member_id.len()
    } else {
        0
    };
    GROUP
        + beat.group_id.len()
        + member
        + subscription(names, beat.subscribed_topic_regex.as_deref())
}
