//! What there is: ListGroups and DescribeGroups. Reads only (semantics 6).

use std::sync::Arc;

use bytes::Bytes;

use super::classic::{Group, Phase};
use super::consumer::{Refusal, no_consumer_group};
use super::reconcile::without_epochs;
use super::request::{
    ConsumerDescribeReply, ConsumerDescribedMember, Describe, DescribeReply, DescribedMember,
    DescribedPartitions, ErrorCode, IdPartitions, List, ListReply, ListedGroup, Reply, RequestId,
};
use super::state::Entry;
use super::stats::Census;
use super::types::{GroupId, TopicName};
use super::{Actions, After, Answer, Coordinator};

impl Coordinator {
    /// ListGroups: this shard's part.
    pub(super) fn list(&self, id: RequestId, request: &List, actions: &mut Actions) {
        let mut groups: Vec<ListedGroup> = self
            .state
            .groups()
            .map(|(group_id, entry)| {
                if let Some(group) = &entry.consumer {
                    return ListedGroup {
                        group_id: group_id.clone(),
                        protocol_type: Arc::from("consumer"),
                        state: group.phase().name(),
                        group_type: "consumer",
                    };
                }
                let live = self.classic.get(&**group_id);
                let recorded = entry.classic.as_ref().map(|value| &value.protocol_type);
                ListedGroup {
                    group_id: group_id.clone(),
                    protocol_type: live
                        .map(|group| group.protocol_type())
                        .or(recorded)
                        .map_or_else(|| Arc::from(""), Arc::clone),
                    state: live.map_or(Phase::Empty, |group| group.phase()).name(),
                    group_type: "classic",
                }
            })
            .filter(|group| {
                let state_fits = request.states.is_empty()
                    || request
                        .states
                        .iter()
                        .any(|s| s.trim().eq_ignore_ascii_case(group.state));
                let type_fits = request.types.is_empty()
                    || request
                        .types
                        .iter()
                        .any(|t| t.eq_ignore_ascii_case(group.group_type));
                state_fits && type_fits
            })
            .collect();
        groups.sort_unstable_by(|a, b| a.group_id.cmp(&b.group_id));
        let reply = Reply::List(ListReply {
            error: ErrorCode::None,
            groups,
        });
        actions.replies.push(Answer {
            id,
            reply,
            after: After::Shard,
        });
    }

    /// DescribeGroups of one group.
    pub(super) fn describe(&self, id: RequestId, request: &Describe, actions: &mut Actions) {
        let group_id = &request.group_id;
        let reply = match (self.classic.get(&**group_id), self.state.group(group_id)) {
            (Some(group), _) => describe_live(group_id, group),
            (None, Some(entry)) if entry.consumer.is_none() => DescribeReply {
                state: Phase::Empty.name(),
                protocol_type: entry
                    .classic
                    .as_ref()
                    .map_or_else(|| Arc::from(""), |value| value.protocol_type.clone()),
                ..described(group_id)
            },
            (None, _) if request.unknown_is_error => DescribeReply {
                error: ErrorCode::GroupIdNotFound,
                message: Some(format!("Group {group_id} not found.")),
                ..described(group_id)
            },
            (None, _) => described(group_id),
        };
        actions.reply(id, group_id, Reply::Describe(reply));
    }

    /// ConsumerGroupDescribe of one group.
    pub(super) fn consumer_describe(
        &self,
        id: RequestId,
        group_id: GroupId,
        actions: &mut Actions,
    ) {
        let reply = self
            .described_consumer(&group_id)
            .unwrap_or_else(|(error, message)| ConsumerDescribeReply {
                group_id: group_id.clone(),
                error,
                message: Some(message).filter(|message| !message.is_empty()),
                state: "",
                group_epoch: 0,
                assignment_epoch: 0,
                assignor_name: Arc::from(""),
                members: Vec::new(),
            });
        actions.reply(id, &group_id, Reply::ConsumerDescribe(reply));
    }

    fn described_consumer(&self, group_id: &GroupId) -> Result<ConsumerDescribeReply, Refusal> {
        if group_id.is_empty() {
            return Err((ErrorCode::InvalidGroupId, String::new()));
        }
        let group = self
            .state
            .consumer(group_id)
            .ok_or_else(|| no_consumer_group(group_id, self.exists(group_id)))?;
        let members = group.members().map(|(member_id, member)| {
            let (told, current) = (member.told(), member.current());
            // What it may still hold: the assigned ones and those it has not confirmed to have given back.
            let held = [&current.assigned[..], &current.pending_revocation].concat();
            ConsumerDescribedMember {
                member_id: member_id.clone(),
                instance_id: told.instance_id.clone(),
                rack_id: told.rack_id.clone(),
                member_epoch: current.member_epoch,
                client: told.client.clone(),
                subscribed_topic_names: told.subscribed_topic_names.clone(),
                subscribed_topic_regex: told
                    .subscribed_topic_regex
                    .clone()
                    .unwrap_or_else(|| Arc::from("")),
                assignment: self.with_names(without_epochs(&held)),
                target_assignment: self.with_names(member.target().clone()),
                is_classic: told.classic.is_some(),
            }
        });
        Ok(ConsumerDescribeReply {
            group_id: group_id.clone(),
            error: ErrorCode::None,
            message: None,
            state: group.phase().name(),
            group_epoch: group.epoch(),
            assignment_epoch: group.assignment_epoch(),
            assignor_name: Arc::from(self.assignor(group).name()),
            members: members.collect(),
        })
    }

    /// Partitions by topic, once each, with its name; topics that are gone are left out.
    fn with_names(&self, mut partitions: IdPartitions) -> Vec<DescribedPartitions> {
        partitions.sort_unstable();
        let merged = partitions.chunk_by(|a, b| a.0 == b.0).filter_map(|topic| {
            let topic_name = self.topics.name_of(topic[0].0)?.clone();
            let mut partitions: Vec<i32> = topic.iter().flat_map(|(_, p)| p).copied().collect();
            partitions.sort_unstable();
            Some(DescribedPartitions {
                topic_id: topic[0].0,
                topic_name,
                partitions,
            })
        });
        merged.collect()
    }

    /// Counts groups by type and state, members and offsets. Walks every group: not for every second.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut census = Census {
            offsets: self.state.offset_count(),
            offsets_expiring: self.offsets_expiring,
            ..Census::default()
        };
        for (group_id, entry) in self.state.groups() {
            if let Some(group) = &entry.consumer {
                census.consumer[group.phase() as usize] += 1;
                census.members += group.member_count() as u64;
                continue;
            }
            let live = self.classic.get(&**group_id);
            census.classic[live.map_or(Phase::Empty, |group| group.phase()) as usize] += 1;
            census.members += live.map_or(0, |group| group.member_count() as u64);
        }
        census
    }
}

/// How far one group has committed: as much as lag needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// The group.
    pub group_id: GroupId,
    /// Partitions with their committed offsets, by topic. Never empty.
    pub offsets: Vec<(TopicName, Vec<(i32, i64)>)>,
}

impl Coordinator {
    /// How far every group that has committed anything has come. Walks them all: for lag, a few times in a second at
    /// most.
    #[must_use]
    pub fn all_committed(&self) -> Vec<Committed> {
        let groups = self.state.groups();
        let groups = groups.filter(|(_, entry)| !entry.offsets.is_empty());
        let offsets = |entry: &Entry| {
            let topics = entry.offsets.topics();
            topics
                .map(|(topic, partitions)| {
                    let partitions = partitions.iter();
                    let partitions =
                        partitions.map(|(partition, value)| (*partition, value.offset));
                    (topic.clone(), partitions.collect())
                })
                .collect()
        };
        groups
            .map(|(group_id, entry)| Committed {
                group_id: group_id.clone(),
                offsets: offsets(entry),
            })
            .collect()
    }
}

/// A group that is not there.
fn described(group_id: &GroupId) -> DescribeReply {
    DescribeReply {
        group_id: group_id.clone(),
        error: ErrorCode::None,
        message: None,
        state: "Dead",
        protocol_type: Arc::from(""),
        protocol: Arc::from(""),
        members: Vec::new(),
    }
}

fn describe_live(group_id: &GroupId, group: &Group) -> DescribeReply {
    // Metadata means something only for the protocol of a settled generation.
    let protocol = group.protocol().filter(|_| group.phase() == Phase::Stable);
    let members = group.members().map(|(member_id, member)| DescribedMember {
        member_id: member_id.clone(),
        group_instance_id: member.instance_id().cloned(),
        client: member.client().clone(),
        metadata: protocol.map_or_else(Bytes::new, |protocol| member.metadata_for(protocol)),
        assignment: member.assignment().clone(),
    });
    DescribeReply {
        state: group.phase().name(),
        protocol_type: group.protocol_type().clone(),
        protocol: protocol.map_or_else(|| Arc::from(""), Arc::clone),
        members: members.collect(),
        ..described(group_id)
    }
}
