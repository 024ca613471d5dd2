//! Plain counters that the core fills and the shell reads.

/// Why a rebalance began, or a group epoch rose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cause {
    /// A member came.
    MemberJoined,
    /// A member left by its own word or an operator's.
    MemberLeft,
    /// A member was silent for longer than its session timeout.
    SessionExpired,
    /// A member did not rejoin, or did not revoke, in time.
    RebalanceTimeout,
    /// A member joined and did not sync in time.
    SyncTimeout,
    /// A member changed what it subscribes to or how it can be assigned.
    SubscriptionChanged,
    /// The leader asked for a new assignment.
    LeaderRejoined,
    /// A member of a cooperative classic group gave up what is to go to others, and rejoined: the second step.
    PartitionsRevoked,
    /// A static member came back in a way that needs a new assignment.
    StaticMemberReplaced,
    /// The group was larger than the limit when it was loaded.
    GroupOverMaxSize,
    /// A subscribed topic came, grew or went while nobody looked: the coordinator was being loaded.
    TopicsChanged,
    /// A subscribed topic was created.
    TopicCreated,
    /// A subscribed topic got more partitions.
    TopicGrown,
    /// A subscribed topic was deleted.
    TopicDeleted,
    /// The group went over to another protocol.
    Migration,
    /// An operator asked for it.
    Operator,
}

impl Cause {
    /// Every cause, in the order of the counters.
    pub const ALL: [Self; 16] = [
        Self::MemberJoined,
        Self::MemberLeft,
        Self::SessionExpired,
        Self::RebalanceTimeout,
        Self::SyncTimeout,
        Self::SubscriptionChanged,
        Self::LeaderRejoined,
        Self::PartitionsRevoked,
        Self::StaticMemberReplaced,
        Self::GroupOverMaxSize,
        Self::TopicsChanged,
        Self::TopicCreated,
        Self::TopicGrown,
        Self::TopicDeleted,
        Self::Migration,
        Self::Operator,
    ];

    /// The word for it in metrics and logs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MemberJoined => "member_joined",
            Self::MemberLeft => "member_left",
            Self::SessionExpired => "session_expired",
            Self::RebalanceTimeout => "rebalance_timeout",
            Self::SyncTimeout => "sync_timeout",
            Self::SubscriptionChanged => "subscription_changed",
            Self::LeaderRejoined => "leader_rejoined",
            Self::PartitionsRevoked => "partitions_revoked",
            Self::StaticMemberReplaced => "static_member_replaced",
            Self::GroupOverMaxSize => "group_over_max_size",
            Self::TopicsChanged => "topics_changed",
            Self::TopicCreated => "topic_created",
            Self::TopicGrown => "topic_grown",
            Self::TopicDeleted => "topic_deleted",
            Self::Migration => "migration",
            Self::Operator => "operator",
        }
    }
}

/// What a coordinator has done since it was made. Only ever grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Offsets committed, by partition.
    pub offset_commits: u64,
    /// Offsets that expired.
    pub offset_expirations: u64,
    /// Offsets deleted by OffsetDelete.
    pub offset_deletions: u64,
    /// Generations of classic groups that became Stable.
    pub classic_completed_rebalances: u64,
    /// Rises of consumer groups' epochs.
    pub consumer_rebalances: u64,
    /// Targets that an embedder's assignor did not compute, or computed wrongly.
    pub assignor_failures: u64,
    /// Rebalances begun, by [`Cause`] in the order of [`Cause::ALL`].
    pub rebalances: [u64; Cause::ALL.len()],
}

impl Stats {
    pub(super) fn began(&mut self, cause: Cause) {
        self.rebalances[cause as usize] += 1;
    }
}

/// How many there are of what, counted when asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Classic groups by state: Empty, PreparingRebalance, CompletingRebalance, Stable.
    pub classic: [u64; 4],
    /// Consumer groups by state: Empty, Assigning, Reconciling, Stable.
    pub consumer: [u64; 4],
    /// Members of all groups.
    pub members: u64,
    /// Committed offsets.
    pub offsets: u64,
    /// Committed offsets that expire within a day if nobody comes, as of when offsets were last looked through.
    pub offsets_expiring: u64,
}

impl Census {
    /// The state texts that `classic` counts, in its order.
    pub const CLASSIC_STATES: [&'static str; 4] = [
        "Empty",
        "PreparingRebalance",
        "CompletingRebalance",
        "Stable",
    ];
    /// The state texts that `consumer` counts, in its order.
    pub const CONSUMER_STATES: [&'static str; 4] = ["Empty", "Assigning", "Reconciling", "Stable"];

    /// Adds another coordinator's counts.
    pub fn add(&mut self, other: &Self) {
        for (mine, theirs) in self.classic.iter_mut().zip(other.classic) {
            *mine += theirs;
        }
        for (mine, theirs) in self.consumer.iter_mut().zip(other.consumer) {
            *mine += theirs;
        }
        self.members += other.members;
        self.offsets += other.offsets;
        self.offsets_expiring += other.offsets_expiring;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_stand_where_the_list_of_causes_says() {
        for (index, cause) in Cause::ALL.into_iter().enumerate() {
            assert_eq!(cause as usize, index, "{}", cause.name());
        }
    }
}
