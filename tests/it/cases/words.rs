//! Short words for long ones: strings, error codes, consumer subscriptions and assignments.

use bytes::Bytes;
pub(crate) use convoke::group::request::ErrorCode;
use convoke::group::subscription::Subscription;
use kafka_protocol::messages::{
    JoinGroupResponse, LeaveGroupResponse, ListGroupsResponse, OffsetDeleteResponse,
    SyncGroupResponse,
};
use kafka_protocol::protocol::StrBytes;

/// A string of the protocol.
pub(crate) fn s(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

/// Kafka's names of the codes that the cases know.
pub(crate) mod codes {
    use super::ErrorCode;

    macro_rules! names {
        ($($name:ident = $code:ident)*) => { $(pub(crate) const $name: ErrorCode = ErrorCode::$code;)* };
    }

    names! {
        NONE = None
        UNKNOWN_TOPIC_OR_PARTITION = UnknownTopicOrPartition
        OFFSET_METADATA_TOO_LARGE = OffsetMetadataTooLarge
        COORDINATOR_LOAD_IN_PROGRESS = CoordinatorLoadInProgress
        COORDINATOR_NOT_AVAILABLE = CoordinatorNotAvailable
        NOT_COORDINATOR = NotCoordinator
        ILLEGAL_GENERATION = IllegalGeneration
        INCONSISTENT_GROUP_PROTOCOL = InconsistentGroupProtocol
        INVALID_GROUP_ID = InvalidGroupId
        UNKNOWN_MEMBER_ID = UnknownMemberId
        REBALANCE_IN_PROGRESS = RebalanceInProgress
        UNSUPPORTED_VERSION = UnsupportedVersion
        NON_EMPTY_GROUP = NonEmptyGroup
        GROUP_ID_NOT_FOUND = GroupIdNotFound
        MEMBER_ID_REQUIRED = MemberIdRequired
        GROUP_MAX_SIZE_REACHED = GroupMaxSizeReached
        FENCED_INSTANCE_ID = FencedInstanceId
        INVALID_REQUEST = InvalidRequest
        STALE_MEMBER_EPOCH = StaleMemberEpoch
        UNRELEASED_INSTANCE_ID = UnreleasedInstanceId
        UNSUPPORTED_ASSIGNOR = UnsupportedAssignor
        INVALID_REGULAR_EXPRESSION = InvalidRegularExpression
        GROUP_SUBSCRIBED_TO_TOPIC = GroupSubscribedToTopic
    }
}

/// The name of an error code.
pub(crate) fn code(number: i16) -> ErrorCode {
    ErrorCode::from_code(number).unwrap_or_else(|| panic!("error code {number} was not expected"))
}

/// A reply with one error code at its top.
pub(crate) trait Outcome {
    fn error(&self) -> ErrorCode;
}

macro_rules! outcomes {
    ($($reply:ty),*) => { $(impl Outcome for $reply {
        fn error(&self) -> ErrorCode { code(self.error_code) }
    })* };
}

outcomes!(
    JoinGroupResponse,
    SyncGroupResponse,
    LeaveGroupResponse,
    ListGroupsResponse,
    OffsetDeleteResponse
);

/// The metadata of a consumer that subscribes to these topics, as stock clients write it.
pub(crate) fn subscribes(topics: &[&str]) -> Bytes {
    let subscription = Subscription {
        version: 1,
        topics: topics.iter().map(|topic| (*topic).into()).collect(),
        user_data: None,
        owned: Vec::new(),
        generation: -1,
        rack_id: None,
    };
    subscription.to_bytes()
}
