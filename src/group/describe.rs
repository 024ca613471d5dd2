//! What there is: ListGroups and DescribeGroups. Reads only (semantics 6).

use std::sync::Arc;

use bytes::Bytes;

use super::classic::{Group, Phase};
use super::request::{
    Describe, DescribeReply, DescribedMember, ErrorCode, List, ListReply, ListedGroup, Reply,
    RequestId,
};
use super::stats::Census;
use super::types::GroupId;
use super::{Actions, After, Answer, Coordinator};

impl Coordinator {
    /// ListGroups: this shard's part.
    pub(super) fn list(&self, id: RequestId, request: &List, actions: &mut Actions) {
        let mut groups: Vec<ListedGroup> = self
            .state
            .groups()
            .map(|(group_id, entry)| {
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
            (None, Some(entry)) => DescribeReply {
                state: Phase::Empty.name(),
                protocol_type: entry
                    .classic
                    .as_ref()
                    .map_or_else(|| Arc::from(""), |value| value.protocol_type.clone()),
                ..described(group_id)
            },
            (None, None) if request.unknown_is_error => DescribeReply {
                error: ErrorCode::GroupIdNotFound,
                message: Some(format!("Group {group_id} not found.")),
                ..described(group_id)
            },
            (None, None) => described(group_id),
        };
        actions.reply(id, group_id, Reply::Describe(reply));
    }

    /// Counts groups by type and state, members and offsets. Walks every group: not for every second.
    #[must_use]
    pub fn census(&self) -> Census {
        let mut census = Census {
            offsets: self.state.offset_count(),
            ..Census::default()
        };
        for (group_id, _) in self.state.groups() {
            let live = self.classic.get(&**group_id);
            census.classic[live.map_or(Phase::Empty, |group| group.phase()) as usize] += 1;
            census.members += live.map_or(0, |group| group.member_count() as u64);
        }
        census
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
