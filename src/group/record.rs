//! Each durable fact and its tombstone, in the vocabulary of Kafka's `__consumer_offsets`.
//!
//! A record is a key and a value; the value `None` is a tombstone. The bytes are `wire::records`' affair.

use std::sync::Arc;

use bytes::Bytes;

use super::request::{IdPartitions, Protocol};
use super::types::{Client, GroupId, InstanceId, MemberId, Millis, TopicId, TopicName};

/// One durable fact about one group.
#[derive(Clone, Debug, PartialEq)]
pub enum Record {
    /// A committed offset (type 1; type 0 reads as this too).
    OffsetCommit {
        /// The group.
        group_id: GroupId,
        /// The topic.
        topic: TopicName,
        /// The partition.
        partition: i32,
        /// `None`: the offset is gone.
        value: Option<OffsetValue>,
    },
    /// A classic group as of its last synced generation (type 2).
    GroupMetadata {
        /// The group.
        group_id: GroupId,
        /// `None`: the group is gone.
        value: Option<Arc<GroupValue>>,
    },
    /// A consumer group's epoch (type 3).
    ConsumerGroupMetadata {
        /// The group.
        group_id: GroupId,
        /// `None`: the group is gone.
        value: Option<ConsumerGroupValue>,
    },
    /// What a member told of itself (type 5).
    ConsumerGroupMemberMetadata {
        /// The group.
        group_id: GroupId,
        /// The member.
        member_id: MemberId,
        /// `None`: the member is gone.
        value: Option<Arc<ConsumerMemberValue>>,
    },
    /// The target assignment's epoch (type 6).
    ConsumerGroupTargetAssignmentMetadata {
        /// The group.
        group_id: GroupId,
        /// `None`: there is no target.
        value: Option<TargetMetadataValue>,
    },
    /// One member's target (type 7).
    ConsumerGroupTargetAssignmentMember {
        /// The group.
        group_id: GroupId,
        /// The member.
        member_id: MemberId,
        /// `None`: the member has no target.
        value: Option<IdPartitions>,
    },
    /// What a member has and gives back (type 8).
    ConsumerGroupCurrentMemberAssignment {
        /// The group.
        group_id: GroupId,
        /// The member.
        member_id: MemberId,
        /// `None`: the member is gone.
        value: Option<CurrentAssignmentValue>,
    },
    /// The topics that a regular expression matches (type 16).
    ConsumerGroupRegularExpression {
        /// The group.
        group_id: GroupId,
        /// The pattern.
        regex: Arc<str>,
        /// `None`: nobody subscribes to it any more.
        value: Option<RegexValue>,
    },
}

impl Record {
    /// The group it is about.
    #[must_use]
    pub fn group_id(&self) -> &GroupId {
        match self {
            Self::OffsetCommit { group_id, .. }
            | Self::GroupMetadata { group_id, .. }
            | Self::ConsumerGroupMetadata { group_id, .. }
            | Self::ConsumerGroupMemberMetadata { group_id, .. }
            | Self::ConsumerGroupTargetAssignmentMetadata { group_id, .. }
            | Self::ConsumerGroupTargetAssignmentMember { group_id, .. }
            | Self::ConsumerGroupCurrentMemberAssignment { group_id, .. }
            | Self::ConsumerGroupRegularExpression { group_id, .. } => group_id,
        }
    }
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetValue {
    /// The offset, as the client gave it.
    pub offset: i64,
    /// −1 for none.
    pub leader_epoch: i32,
    /// The client's note.
    pub metadata: Arc<str>,
    /// When it was committed, by the server's clock.
    pub commit_timestamp: Millis,
    /// Only from OffsetCommit 2–4 with a retention time. Such a value keeps neither leader epoch nor topic id: Kafka
    /// writes it in version 1 of the schema, which has no room for them.
    pub expire_timestamp: Option<Millis>,
    /// The topic's id at the time; zero if it was not known.
    pub topic_id: TopicId,
    /// It was moved by an operator not long ago. Kafka knows nothing of this field, and skips it.
    pub moved: Option<Box<Moved>>,
}

/// What a member must show before it may commit after a move.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Since this generation or epoch, or a later one, it must have the partition.
    pub since: i32,
    /// Until then. Later than that nobody works any more on what was read before the move.
    pub until: Millis,
}

/// A classic group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupValue {
    /// Empty for a group that never had members.
    pub protocol_type: Arc<str>,
    /// The generation.
    pub generation: i32,
    /// The chosen protocol.
    pub protocol: Option<Arc<str>>,
    /// The leader. `None` and the empty id: the group is about to gather, without one since it turned classic, with the
    /// empty id by an operator's order.
    pub leader: Option<MemberId>,
    /// When the group came into its state; −1 if not known (older schemas).
    pub current_state_timestamp: Millis,
    /// Its members.
    pub members: Vec<GroupMemberValue>,
}

/// A classic member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupMemberValue {
    /// The member.
    pub member_id: MemberId,
    /// Set for static members.
    pub group_instance_id: Option<InstanceId>,
    /// Who it is.
    pub client: Client,
    /// −1 in the oldest schema: the session timeout counts.
    pub rebalance_timeout_ms: i32,
    /// Its session timeout.
    pub session_timeout_ms: i32,
    /// Its metadata for the chosen protocol.
    pub subscription: Bytes,
    /// Its assignment.
    pub assignment: Bytes,
}

/// A consumer group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConsumerGroupValue {
    /// The group epoch.
    pub epoch: i32,
    /// Hash over the subscribed topics' metadata; 0 for "not computed".
    pub metadata_hash: i64,
}

/// What a member of a consumer group told of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerMemberValue {
    /// Set for static members.
    pub instance_id: Option<InstanceId>,
    /// The client's rack.
    pub rack_id: Option<Arc<str>>,
    /// Who it is.
    pub client: Client,
    /// Names it subscribes to, sorted.
    pub subscribed_topic_names: Vec<TopicName>,
    /// The pattern it subscribes to.
    pub subscribed_topic_regex: Option<Arc<str>>,
    /// Milliseconds it may take to revoke.
    pub rebalance_timeout_ms: i32,
    /// The assignor it prefers.
    pub server_assignor: Option<Arc<str>>,
    /// Set while it speaks the classic protocol.
    pub classic: Option<ClassicMemberValue>,
}

/// The classic side of a member that speaks the classic protocol in a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassicMemberValue {
    /// Its session timeout.
    pub session_timeout_ms: i32,
    /// Its protocols.
    pub protocols: Vec<Protocol>,
}

/// The target assignment's epoch and age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetMetadataValue {
    /// The group epoch it was computed for.
    pub assignment_epoch: i32,
    /// When it was computed; 0 for "the next one need not wait".
    pub assignment_timestamp: Millis,
}

/// Where a member stands on the way to its target (Kafka's byte in brackets).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberState {
    /// At its target (0).
    Stable,
    /// Asked to give partitions back, not yet confirmed (1).
    UnrevokedPartitions,
    /// Waits for partitions that others still hold (2).
    UnreleasedPartitions,
    /// Written by a newer version (any other byte).
    Unknown,
}

/// Partitions of one topic with the epoch at which each was assigned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedPartitions {
    /// The topic.
    pub topic_id: TopicId,
    /// Partition and the member epoch at which it was assigned, ascending by partition.
    pub partitions: Vec<(i32, i32)>,
}

/// What a member has and gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CurrentAssignmentValue {
    /// The member epoch.
    pub member_epoch: i32,
    /// The member epoch before.
    pub previous_member_epoch: i32,
    /// Where it stands.
    pub state: MemberState,
    /// What it has.
    pub assigned: Vec<AssignedPartitions>,
    /// What it has been asked to give back.
    pub pending_revocation: Vec<AssignedPartitions>,
}

/// The topics that a regular expression matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegexValue {
    /// Names, sorted.
    pub topics: Vec<TopicName>,
    /// The version of the topics image that was matched.
    pub version: i64,
    /// When.
    pub timestamp: Millis,
}
