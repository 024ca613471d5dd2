//! The whole dialogue with the core, in words: requests in, replies out, and the error codes between.
//!
//! No version numbers: what a version *means* is a field with a name, filled in by `wire`. Field names are Kafka's.

use std::sync::Arc;

use bytes::Bytes;

use super::operator::{Inspect, Inspected, NotDone, Operate, Operated, Previewed};
use super::types::{Client, GroupId, InstanceId, MemberId, TopicId, TopicName, TopicRef};

/// Names one request that waits for its reply. Unique among the requests a coordinator has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

macro_rules! error_codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $text:literal;)*) => {
        /// A Kafka error code that the core answers with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ErrorCode { $($(#[$doc])* $name = $code,)* }

        impl ErrorCode {
            /// The number on the wire.
            #[must_use]
            pub const fn code(self) -> i16 { self as i16 }

            /// Kafka's name of the code.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// The code with this number, if the core knows it.
            #[must_use]
            pub const fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }
        }
    };
}

error_codes! {
    /// Something that cannot be happened.
    UnknownServerError = -1, "UNKNOWN_SERVER_ERROR";
    /// Success.
    None = 0, "NONE";
    /// The topic or partition does not exist.
    UnknownTopicOrPartition = 3, "UNKNOWN_TOPIC_OR_PARTITION";
    /// The metadata string of a commit is longer than `offset.metadata.max.bytes`.
    OffsetMetadataTooLarge = 12, "OFFSET_METADATA_TOO_LARGE";
    /// The group's shard is still being loaded; retriable.
    CoordinatorLoadInProgress = 14, "COORDINATOR_LOAD_IN_PROGRESS";
    /// The coordinator cannot take this now (full disk, shutting down); retriable.
    CoordinatorNotAvailable = 15, "COORDINATOR_NOT_AVAILABLE";
    /// This coordinator does not own the group; retriable after rediscovery.
    NotCoordinator = 16, "NOT_COORDINATOR";
    /// Not the group's generation.
    IllegalGeneration = 22, "ILLEGAL_GENERATION";
    /// Protocol type or protocols do not fit the group's.
    InconsistentGroupProtocol = 23, "INCONSISTENT_GROUP_PROTOCOL";
    /// The group id is not valid here.
    InvalidGroupId = 24, "INVALID_GROUP_ID";
    /// Not a member of the group.
    UnknownMemberId = 25, "UNKNOWN_MEMBER_ID";
    /// The session timeout is outside the allowed range.
    InvalidSessionTimeout = 26, "INVALID_SESSION_TIMEOUT";
    /// The group is rebalancing: rejoin.
    RebalanceInProgress = 27, "REBALANCE_IN_PROGRESS";
    /// The commit is more than can be kept.
    InvalidCommitOffsetSize = 28, "INVALID_COMMIT_OFFSET_SIZE";
    /// The principal may not use the topic.
    TopicAuthorizationFailed = 29, "TOPIC_AUTHORIZATION_FAILED";
    /// The principal may not use the group.
    GroupAuthorizationFailed = 30, "GROUP_AUTHORIZATION_FAILED";
    /// The version does not fit the group's protocol.
    UnsupportedVersion = 35, "UNSUPPORTED_VERSION";
    /// A field has a value that it must not have.
    InvalidRequest = 42, "INVALID_REQUEST";
    /// The group has members.
    NonEmptyGroup = 68, "NON_EMPTY_GROUP";
    /// There is no such group.
    GroupIdNotFound = 69, "GROUP_ID_NOT_FOUND";
    /// Join again with the member id of this answer (KIP-394).
    MemberIdRequired = 79, "MEMBER_ID_REQUIRED";
    /// The group is full.
    GroupMaxSizeReached = 81, "GROUP_MAX_SIZE_REACHED";
    /// Another member holds this group instance id now (KIP-345).
    FencedInstanceId = 82, "FENCED_INSTANCE_ID";
    /// A member subscribes to the topic.
    GroupSubscribedToTopic = 86, "GROUP_SUBSCRIBED_TO_TOPIC";
    /// A transaction on this offset is still open.
    UnstableOffsetCommit = 88, "UNSTABLE_OFFSET_COMMIT";
    /// No topic has this id.
    UnknownTopicId = 100, "UNKNOWN_TOPIC_ID";
    /// The member epoch is not the member's.
    FencedMemberEpoch = 110, "FENCED_MEMBER_EPOCH";
    /// The group instance id is still in use.
    UnreleasedInstanceId = 111, "UNRELEASED_INSTANCE_ID";
    /// The server has no such assignor.
    UnsupportedAssignor = 112, "UNSUPPORTED_ASSIGNOR";
    /// The commit's member epoch is not valid for this partition.
    StaleMemberEpoch = 113, "STALE_MEMBER_EPOCH";
    /// The regular expression does not compile.
    InvalidRegularExpression = 128, "INVALID_REGULAR_EXPRESSION";
}

/// Everything that may be asked of a coordinator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// JoinGroup.
    Join(Join),
    /// SyncGroup.
    Sync(Sync),
    /// Heartbeat.
    Heartbeat(Heartbeat),
    /// LeaveGroup.
    Leave(Leave),
    /// OffsetCommit.
    OffsetCommit(OffsetCommit),
    /// OffsetFetch of one group.
    OffsetFetch(OffsetFetch),
    /// OffsetDelete.
    OffsetDelete(OffsetDelete),
    /// ListGroups.
    List(List),
    /// DescribeGroups of one group.
    Describe(Describe),
    /// DeleteGroups of one group.
    Delete {
        /// The group to delete.
        group_id: GroupId,
    },
    /// ConsumerGroupHeartbeat (KIP-848).
    ConsumerHeartbeat(ConsumerHeartbeat),
    /// ConsumerGroupDescribe of one group.
    ConsumerDescribe {
        /// The group to describe.
        group_id: GroupId,
    },
    /// An operator's question, which never comes over Kafka's wire.
    Inspect(Inspect),
    /// An operator's action on one group, which never comes over Kafka's wire.
    Operate(Operate),
}

impl Request {
    /// The group that is asked for; `None` for ListGroups, which asks every shard.
    #[must_use]
    pub fn group_id(&self) -> Option<&GroupId> {
        match self {
            Self::Join(r) => Some(&r.group_id),
            Self::Sync(r) => Some(&r.group_id),
            Self::Heartbeat(r) => Some(&r.group_id),
            Self::Leave(r) => Some(&r.group_id),
            Self::OffsetCommit(r) => Some(&r.group_id),
            Self::OffsetFetch(r) => Some(&r.group_id),
            Self::OffsetDelete(r) => Some(&r.group_id),
            Self::Describe(r) => Some(&r.group_id),
            Self::ConsumerHeartbeat(r) => Some(&r.group_id),
            Self::Delete { group_id } | Self::ConsumerDescribe { group_id } => Some(group_id),
            Self::Inspect(inspect) => Some(inspect.group_id()),
            Self::Operate(operate) => Some(&operate.group_id),
            Self::List(_) => None,
        }
    }

    /// Whether handling it may write records. The shell reserves room in the log before it hands such a request in.
    #[must_use]
    pub fn may_write(&self) -> bool {
        !matches!(
            self,
            Self::Heartbeat(_)
                | Self::OffsetFetch(_)
                | Self::List(_)
                | Self::Describe(_)
                | Self::ConsumerDescribe { .. }
                | Self::Inspect(_)
        )
    }
}

/// One protocol that a classic member can follow, in order of preference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Protocol {
    /// The protocol's name, such as `range`.
    pub name: Arc<str>,
    /// Opaque bytes for the group's leader.
    pub metadata: Bytes,
}

/// JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Join {
    /// The group.
    pub group_id: GroupId,
    /// Who asks.
    pub client: Client,
    /// Milliseconds without a heartbeat after which the member is gone.
    pub session_timeout_ms: i32,
    /// Milliseconds a member may take to rejoin. Version 0 has no such field: the session timeout stands here.
    pub rebalance_timeout_ms: i32,
    /// Empty on the first join.
    pub member_id: MemberId,
    /// Set for static members.
    pub group_instance_id: Option<InstanceId>,
    /// `consumer`, `connect`, ….
    pub protocol_type: Arc<str>,
    /// In order of preference.
    pub protocols: Vec<Protocol>,
    /// Why the member joins (KIP-800).
    pub reason: Option<Arc<str>>,
    /// Since version 4: a dynamic member must learn its id first (KIP-394).
    pub member_id_required: bool,
    /// Since version 9: the reply can tell a leader to skip the assignment (KIP-814).
    pub skip_assignment: bool,
}

/// SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sync {
    /// The group.
    pub group_id: GroupId,
    /// The generation that was joined.
    pub generation: i32,
    /// The member.
    pub member_id: MemberId,
    /// Set for static members.
    pub group_instance_id: Option<InstanceId>,
    /// The protocol type, where the version has it.
    pub protocol_type: Option<Arc<str>>,
    /// The protocol, where the version has it.
    pub protocol_name: Option<Arc<str>>,
    /// Since version 5: type and name must be there.
    pub protocol_required: bool,
    /// From the leader: an assignment for each member.
    pub assignments: Vec<(MemberId, Bytes)>,
}

/// Heartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heartbeat {
    /// The group.
    pub group_id: GroupId,
    /// The member's generation.
    pub generation: i32,
    /// The member.
    pub member_id: MemberId,
    /// Set for static members.
    pub group_instance_id: Option<InstanceId>,
}

/// LeaveGroup: a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leave {
    /// The group.
    pub group_id: GroupId,
    /// Who leaves.
    pub members: Vec<LeavingMember>,
}

/// One entry of a LeaveGroup request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavingMember {
    /// Empty: whoever holds the instance id.
    pub member_id: MemberId,
    /// Set for static members.
    pub group_instance_id: Option<InstanceId>,
    /// Why (KIP-800).
    pub reason: Option<Arc<str>>,
}

/// OffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// The group.
    pub group_id: GroupId,
    /// Who commits, for the books.
    pub client: Client,
    /// Empty in assign mode.
    pub member_id: MemberId,
    /// Generation or member epoch; negative in assign mode.
    pub generation_or_epoch: i32,
    /// Set for static members.
    pub group_instance_id: Option<InstanceId>,
    /// Versions 2–4: milliseconds to keep these offsets; `None` for the group's retention.
    pub retention_time_ms: Option<i64>,
    /// Since version 9: the client understands GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH.
    pub consumer_errors: bool,
    /// What to commit, in request order.
    pub topics: Vec<CommitTopic>,
}

/// One topic of an OffsetCommit request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitTopic {
    /// The topic.
    pub topic: TopicRef,
    /// Its partitions, in request order.
    pub partitions: Vec<CommitPartition>,
}

/// One partition of an OffsetCommit request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitPartition {
    /// The partition.
    pub index: i32,
    /// Stored as it is, negative ones too.
    pub offset: i64,
    /// −1 for none.
    pub leader_epoch: i32,
    /// The client's note; absent counts as empty.
    pub metadata: Arc<str>,
}

/// OffsetFetch of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetch {
    /// The group.
    pub group_id: GroupId,
    /// Who asks, for the books.
    pub client: Client,
    /// Since version 9: a member that wants its fetch fenced. `None` for null.
    pub member_id: Option<MemberId>,
    /// −1 for none.
    pub member_epoch: i32,
    /// `None`: all topics with offsets.
    pub topics: Option<Vec<FetchTopic>>,
    /// Version 10: topics of the reply are named by id.
    pub by_topic_id: bool,
    /// Answer UNSTABLE_OFFSET_COMMIT where a transaction is open.
    pub require_stable: bool,
}

/// One topic of an OffsetFetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchTopic {
    /// The topic.
    pub topic: TopicRef,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

/// OffsetDelete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetDelete {
    /// The group.
    pub group_id: GroupId,
    /// Topics and partitions, in request order.
    pub topics: Vec<(TopicName, Vec<i32>)>,
}

/// ListGroups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List {
    /// Only groups in these states; empty for all. Compared trimmed and without regard to case.
    pub states: Vec<Arc<str>>,
    /// Only groups of these types; empty for all. Compared without regard to case.
    pub types: Vec<Arc<str>>,
}

/// DescribeGroups of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Describe {
    /// The group.
    pub group_id: GroupId,
    /// Since version 6 an unknown group is GROUP_ID_NOT_FOUND; before, a Dead group without error.
    pub unknown_is_error: bool,
}

/// Partitions by topic id.
pub type IdPartitions = Vec<(TopicId, Vec<i32>)>;

/// ConsumerGroupHeartbeat (KIP-848). `None` and −1 mean "as before".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerHeartbeat {
    /// The group.
    pub group_id: GroupId,
    /// Who asks.
    pub client: Client,
    /// Chosen by the client since version 1; may be empty on a first heartbeat of version 0.
    pub member_id: MemberId,
    /// 0 joins, −1 leaves, −2 leaves for a while (static members).
    pub member_epoch: i32,
    /// Set for static members.
    pub instance_id: Option<InstanceId>,
    /// The client's rack.
    pub rack_id: Option<Arc<str>>,
    /// Milliseconds a member may take to revoke; −1 for "as before".
    pub rebalance_timeout_ms: i32,
    /// Names; an empty list subscribes to nothing.
    pub subscribed_topic_names: Option<Vec<TopicName>>,
    /// A regular expression; empty removes it.
    pub subscribed_topic_regex: Option<Arc<str>>,
    /// The server assignor the member prefers.
    pub server_assignor: Option<Arc<str>>,
    /// What the member owns now.
    pub topic_partitions: Option<IdPartitions>,
    /// Since version 1 the member id must come from the client.
    pub member_id_from_client: bool,
}

/// What a coordinator answers.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// To JoinGroup.
    Join(JoinReply),
    /// To SyncGroup.
    Sync(SyncReply),
    /// To Heartbeat.
    Heartbeat(ErrorCode),
    /// To LeaveGroup.
    Leave(LeaveReply),
    /// To OffsetCommit.
    OffsetCommit(OffsetCommitReply),
    /// To OffsetFetch of one group.
    OffsetFetch(OffsetFetchReply),
    /// To OffsetDelete.
    OffsetDelete(OffsetDeleteReply),
    /// To ListGroups: this shard's part.
    List(ListReply),
    /// To DescribeGroups of one group.
    Describe(DescribeReply),
    /// To DeleteGroups of one group.
    Delete {
        /// The group.
        group_id: GroupId,
        /// The outcome.
        error: ErrorCode,
    },
    /// To ConsumerGroupHeartbeat.
    ConsumerHeartbeat(ConsumerHeartbeatReply),
    /// To ConsumerGroupDescribe of one group.
    ConsumerDescribe(ConsumerDescribeReply),
    /// To [`Inspect::Group`].
    Inspected(Result<Box<Inspected>, NotDone>),
    /// To [`Inspect::Preview`].
    Previewed(Result<Box<Previewed>, NotDone>),
    /// To [`Request::Operate`].
    Operated(Result<Operated, NotDone>),
}

/// Answer to JoinGroup.
#[derive(Clone, Debug, PartialEq)]
pub struct JoinReply {
    /// The outcome.
    pub error: ErrorCode,
    /// −1 on error.
    pub generation: i32,
    /// `None` on error.
    pub protocol_type: Option<Arc<str>>,
    /// The chosen protocol.
    pub protocol_name: Option<Arc<str>>,
    /// The leader's member id; empty on error and for members of a consumer group.
    pub leader: MemberId,
    /// The leader need not assign (KIP-814).
    pub skip_assignment: bool,
    /// The member's id.
    pub member_id: MemberId,
    /// For the leader: everybody.
    pub members: Vec<JoinedMember>,
}

impl JoinReply {
    /// A refusal.
    #[must_use]
    pub fn refused(error: ErrorCode, member_id: MemberId) -> Self {
        Self {
            error,
            generation: -1,
            protocol_type: None,
            protocol_name: None,
            leader: Arc::from(""),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

/// One member in the leader's JoinGroup answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinedMember {
    /// The member.
    pub member_id: MemberId,
    /// Set for static members.
    pub group_instance_id: Option<InstanceId>,
    /// Its metadata for the chosen protocol.
    pub metadata: Bytes,
}

/// Answer to SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncReply {
    /// The outcome.
    pub error: ErrorCode,
    /// `None` on error.
    pub protocol_type: Option<Arc<str>>,
    /// `None` on error.
    pub protocol_name: Option<Arc<str>>,
    /// Empty on error.
    pub assignment: Bytes,
}

impl SyncReply {
    /// A refusal.
    #[must_use]
    pub fn refused(error: ErrorCode) -> Self {
        Self {
            error,
            protocol_type: None,
            protocol_name: None,
            assignment: Bytes::new(),
        }
    }
}

/// Answer to LeaveGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveReply {
    /// Trouble with the group as a whole.
    pub error: ErrorCode,
    /// For each entry, in order: its ids as requested, and the outcome.
    pub members: Vec<LeftMember>,
}

/// Outcome of one LeaveGroup entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftMember {
    /// As requested.
    pub member_id: MemberId,
    /// As requested.
    pub group_instance_id: Option<InstanceId>,
    /// The outcome.
    pub error: ErrorCode,
}

/// Answer to OffsetCommit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommitReply {
    /// Per topic and partition, in the order Kafka answers.
    pub topics: Vec<TopicErrors>,
}

/// Errors of a topic's partitions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicErrors {
    /// The topic as requested.
    pub topic: TopicRef,
    /// Partition and outcome.
    pub partitions: Vec<(i32, ErrorCode)>,
}

/// Answer to OffsetFetch of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetFetchReply {
    /// The group.
    pub group_id: GroupId,
    /// Trouble with the group as a whole; then there are no topics.
    pub error: ErrorCode,
    /// As requested, or all.
    pub topics: Vec<FetchedTopic>,
}

/// One topic of an OffsetFetch answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedTopic {
    /// The topic, named as the request wants it.
    pub topic: TopicRef,
    /// Its partitions.
    pub partitions: Vec<FetchedPartition>,
}

/// One partition of an OffsetFetch answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedPartition {
    /// The partition.
    pub index: i32,
    /// −1 for none.
    pub offset: i64,
    /// −1 for none.
    pub leader_epoch: i32,
    /// Empty for none.
    pub metadata: Arc<str>,
    /// The outcome.
    pub error: ErrorCode,
}

/// Answer to OffsetDelete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetDeleteReply {
    /// Trouble with the group as a whole; then there are no topics.
    pub error: ErrorCode,
    /// Per topic and partition.
    pub topics: Vec<TopicErrors>,
}

/// A shard's part of the answer to ListGroups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListReply {
    /// The outcome.
    pub error: ErrorCode,
    /// The groups that pass the filters.
    pub groups: Vec<ListedGroup>,
}

/// One group of a ListGroups answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// The group.
    pub group_id: GroupId,
    /// Empty for groups that never had members.
    pub protocol_type: Arc<str>,
    /// Kafka's state text.
    pub state: &'static str,
    /// `classic` or `consumer`.
    pub group_type: &'static str,
}

/// Answer to DescribeGroups for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeReply {
    /// The group.
    pub group_id: GroupId,
    /// The outcome.
    pub error: ErrorCode,
    /// What is wrong, in words.
    pub message: Option<String>,
    /// Kafka's state text.
    pub state: &'static str,
    /// Empty for groups that never had members.
    pub protocol_type: Arc<str>,
    /// The chosen protocol; empty unless Stable.
    pub protocol: Arc<str>,
    /// The members.
    pub members: Vec<DescribedMember>,
}

/// One member of a DescribeGroups answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedMember {
    /// The member.
    pub member_id: MemberId,
    /// Set for static members.
    pub group_instance_id: Option<InstanceId>,
    /// Who it is.
    pub client: Client,
    /// Its metadata; empty unless the group is Stable.
    pub metadata: Bytes,
    /// Its assignment.
    pub assignment: Bytes,
}

/// Answer to ConsumerGroupHeartbeat.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerHeartbeatReply {
    /// The outcome.
    pub error: ErrorCode,
    /// What is wrong, in words.
    pub message: Option<String>,
    /// `None` on error.
    pub member_id: Option<MemberId>,
    /// 0 on error.
    pub member_epoch: i32,
    /// 0 on error and on leaving.
    pub heartbeat_interval_ms: i32,
    /// `None`: keep what you have.
    pub assignment: Option<IdPartitions>,
}

impl ConsumerHeartbeatReply {
    /// A refusal.
    #[must_use]
    pub fn refused(error: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            error,
            message: Some(message.into()),
            member_id: None,
            member_epoch: 0,
            heartbeat_interval_ms: 0,
            assignment: None,
        }
    }
}

/// Answer to ConsumerGroupDescribe for one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerDescribeReply {
    /// The group.
    pub group_id: GroupId,
    /// The outcome.
    pub error: ErrorCode,
    /// What is wrong, in words.
    pub message: Option<String>,
    /// Kafka's state text; empty on error.
    pub state: &'static str,
    /// The group epoch.
    pub group_epoch: i32,
    /// The epoch of the target assignment.
    pub assignment_epoch: i32,
    /// The assignor in use.
    pub assignor_name: Arc<str>,
    /// The members.
    pub members: Vec<ConsumerDescribedMember>,
}

/// Partitions of one topic in a ConsumerGroupDescribe answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedPartitions {
    /// The topic's id.
    pub topic_id: TopicId,
    /// The topic's name.
    pub topic_name: TopicName,
    /// Its partitions.
    pub partitions: Vec<i32>,
}

/// One member of a ConsumerGroupDescribe answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerDescribedMember {
    /// The member.
    pub member_id: MemberId,
    /// Set for static members.
    pub instance_id: Option<InstanceId>,
    /// The client's rack.
    pub rack_id: Option<Arc<str>>,
    /// The member epoch.
    pub member_epoch: i32,
    /// Who it is.
    pub client: Client,
    /// Names it subscribes to.
    pub subscribed_topic_names: Vec<TopicName>,
    /// Its regular expression; empty for none.
    pub subscribed_topic_regex: Arc<str>,
    /// What it may still hold.
    pub assignment: Vec<DescribedPartitions>,
    /// What it shall hold.
    pub target_assignment: Vec<DescribedPartitions>,
    /// Whether it speaks the classic protocol.
    pub is_classic: bool,
}
