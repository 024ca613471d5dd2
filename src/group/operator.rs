//! What operators ask of a group and what they are told: the part of the dialogue that never comes over Kafka's wire,
//! in words. HTTP and the command line speak it; the simulation does too.

use std::sync::Arc;

use super::stats::Cause;
use super::types::{GroupId, InstanceId, MemberId, Millis, TopicName};

/// An action on one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operate {
    /// The group.
    pub group_id: GroupId,
    /// Who asks, for the audit trail: a principal or an address.
    pub operator: Arc<str>,
    /// What to do.
    pub action: Action,
    /// Tell what would be done, and do nothing.
    pub dry_run: bool,
    /// A dry run of what is about to be done: a setting will do it, and the journal is to know whose doing it is.
    pub announces: bool,
}

impl Operate {
    /// Whether it may make a group that is not there: a restore, or a clone.
    #[must_use]
    pub fn makes_group(&self) -> bool {
        matches!(&self.action, Action::Reset(moves) if moves.iter().all(|m| matches!(m.to, Aim::Exact { .. })))
    }
}

/// What can be done to a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Moves committed offsets, whether or not members run. Members that own the partitions give them up first, and
    /// go on from the new offsets. Answered when it is done.
    Reset(Vec<Move>),
    /// Removes members, and keeps them out for a while.
    Kick {
        /// Which.
        members: Vec<Who>,
        /// How long they are refused, in milliseconds; 0 for not at all.
        ban_ms: i64,
    },
    /// Assigns a member nothing, and lets it go when it has given up all it had.
    Drain {
        /// Which.
        member: Who,
    },
    /// Members stay and own nothing, until [`Action::Resume`].
    Pause,
    /// Ends a pause.
    Resume,
    /// Assigns anew.
    Rebalance,
    /// Forgets the group and its offsets. Refused while it has members.
    Delete,
    /// Sets what stands over the server's settings for this group; `None` puts the server's back.
    Configure(Vec<(Setting, Option<i64>)>),
}

impl Action {
    /// The word for it.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Reset(_) => "reset",
            Self::Kick { .. } => "kick",
            Self::Drain { .. } => "drain",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Rebalance => "rebalance",
            Self::Delete => "delete",
            Self::Configure(_) => "configure",
        }
    }
}

/// A member, by whatever an operator knows of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Who {
    /// By member id.
    Member(MemberId),
    /// By group instance id.
    Instance(InstanceId),
    /// Every member of this client id.
    Client(Arc<str>),
}

/// A committed offset that is to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// Where to.
    pub to: Aim,
}

/// Where an offset is to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Aim {
    /// To this very offset.
    Exact {
        /// The offset, 0 or more.
        offset: i64,
        /// The leader epoch that goes with it; -1 for none.
        leader_epoch: i32,
        /// The note that goes with it.
        metadata: Arc<str>,
    },
    /// By so much from what is committed when the members have let go, but not out of bounds.
    Shift {
        /// By how much; negative goes back.
        by: i64,
        /// The least offset there is.
        low: i64,
        /// The end.
        high: i64,
    },
    /// Nowhere: the group has no offset there any more, and members begin as `auto.offset.reset` says.
    Forget,
}

/// What one group may set for itself by an operator, besides what Kafka's GROUP configs know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// How long offsets are kept without members, in milliseconds; -1 for ever (`convoke.offsets.retention.ms`).
    OffsetsRetentionMs,
    /// The most members (`convoke.group.max.members`).
    MembersMax,
    /// The most partitions with a committed offset (`convoke.group.max.offsets`).
    OffsetsMax,
}

/// How an action ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operated {
    /// The offsets that were moved or, in a dry run, would be.
    pub offsets: Vec<OffsetChange>,
    /// The members that were concerned.
    pub members: Vec<MemberChange>,
    /// What an operator should know besides, in sentences: who had to be removed because it did not let go in time.
    pub notes: Vec<String>,
    /// How long it took, in milliseconds.
    pub took_ms: i64,
}

/// An offset before and after.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetChange {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// What was committed; `None` for nothing.
    pub from: Option<i64>,
    /// What is committed now.
    pub to: Option<i64>,
    /// Who owned the partition.
    pub held_by: Option<MemberId>,
}

/// A member and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberChange {
    /// The member.
    pub member: MemberRef,
    /// What happens to it, as a word: `removed`, `drained`, `revokes`, `fenced`.
    pub change: &'static str,
    /// Partitions that it gives up.
    pub gives_up: Vec<(TopicName, i32)>,
}

/// Why an action was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotDone {
    /// Whose fault it is.
    pub kind: NotDoneKind,
    /// What is wrong and what to do, in sentences.
    pub message: String,
}

impl NotDone {
    /// There is no such group.
    #[must_use]
    pub fn no_group(group_id: &str) -> Self {
        Self {
            kind: NotDoneKind::NotFound,
            message: format!("There is no group {group_id}."),
        }
    }

    /// The shard cannot take it now.
    #[must_use]
    pub fn unavailable(why: &str) -> Self {
        Self {
            kind: NotDoneKind::Unavailable,
            message: format!("{why} Try again."),
        }
    }

    /// Nothing can be recorded now.
    #[must_use]
    pub fn full() -> Self {
        Self {
            kind: NotDoneKind::Full,
            message: "The group log has no room, so nothing was done. Free some of its disk and try again.".to_owned(),
        }
    }

    /// The group is not in a state in which this can be right.
    #[must_use]
    pub fn conflict(message: impl Into<String>) -> Self {
        Self {
            kind: NotDoneKind::Conflict,
            message: message.into(),
        }
    }

    /// What was asked makes no sense.
    #[must_use]
    pub fn invalid(message: impl Into<String>) -> Self {
        Self {
            kind: NotDoneKind::Invalid,
            message: message.into(),
        }
    }
}

/// Whose fault it is that an action was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotDoneKind {
    /// There is no such group or member.
    NotFound,
    /// The group is not in a state in which this can be right.
    Conflict,
    /// What was asked makes no sense.
    Invalid,
    /// A limit is reached.
    Limit,
    /// Not now: still loading, or stopping. Try again.
    Unavailable,
    /// The log has no room.
    Full,
}

/// A member, as journals and answers name it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRef {
    /// Its member id.
    pub member_id: MemberId,
    /// Its group instance id, if it is static.
    pub instance_id: Option<InstanceId>,
    /// Its client id.
    pub client_id: Arc<str>,
    /// Its address as Kafka describes it: `/127.0.0.1`.
    pub client_host: Arc<str>,
}

/// What is asked about groups, without changing any.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inspect {
    /// Everything about one group.
    Group(GroupId),
    /// Which partitions would move if something changed.
    Preview {
        /// The group.
        group_id: GroupId,
        /// What would change.
        change: Supposition,
    },
}

impl Inspect {
    /// The group that is asked about.
    #[must_use]
    pub fn group_id(&self) -> &GroupId {
        match self {
            Self::Group(group_id) | Self::Preview { group_id, .. } => group_id,
        }
    }
}

/// What would be different in a preview.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Supposition {
    /// So many members more, subscribed as the first member is.
    pub members_added: u32,
    /// These were gone.
    pub members_removed: Vec<Who>,
    /// Topics with so many partitions: new, or grown.
    pub topics: Vec<(TopicName, i32)>,
    /// This assignor were used: `uniform` or `range`; `None` for the group's own.
    pub assignor: Option<Arc<str>>,
}

/// Partitions by topic.
pub type TopicPartitions = Vec<(TopicName, Vec<i32>)>;

/// What a preview found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Previewed {
    /// The assignor that was asked.
    pub assignor: Arc<str>,
    /// How many partitions would stay where they are.
    pub stayed_count: usize,
    /// What would move.
    pub moves: Vec<PartitionMove>,
    /// What each member would own. Members that were supposed are called `new-1` and so on.
    pub members: Vec<(MemberRef, TopicPartitions)>,
}

/// A partition that went, or would go, from one member to another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionMove {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// Who had it; `None` for nobody.
    pub from: Option<MemberId>,
    /// Who has it now; `None` for nobody.
    pub to: Option<MemberId>,
}

/// One group in a list of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The group.
    pub group_id: GroupId,
    /// `classic`, `consumer`, or `simple` for a group that only commits.
    pub kind: &'static str,
    /// Its state, as Kafka names it.
    pub state: &'static str,
    /// The generation of a classic group, the epoch of a consumer group.
    pub epoch: i32,
    /// How many members it has.
    pub member_count: usize,
    /// How many partitions have a committed offset.
    pub offset_count: usize,
    /// Rebalances that the journal knows of.
    pub rebalance_count: u64,
    /// When the last one began.
    pub rebalanced_at: Option<Millis>,
    /// Whether it rebalances over and over.
    pub is_stormy: bool,
    /// Whether an operator has paused it.
    pub is_paused: bool,
    /// Two assign-mode clients commit to one partition.
    pub has_conflict: bool,
}

/// Everything about one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspected {
    /// As in the list of all.
    pub summary: Summary,
    /// The protocol of a classic group, the assignor of a consumer group.
    pub assignor: Arc<str>,
    /// Its members.
    pub members: Vec<InspectedMember>,
    /// Its committed offsets and who touched them last, by topic and partition.
    pub commits: Vec<Commit>,
    /// Partitions to which two assign-mode clients commit, each with both of them.
    pub conflicts: Vec<(TopicName, i32, Vec<Toucher>)>,
    /// Partitions of topics that somebody subscribes to, or commits to, which nobody consumes.
    pub gaps: Vec<(TopicName, i32)>,
    /// Its rebalances, newest first; as many as the journal keeps.
    pub rebalances: Vec<Rebalance>,
    /// What is wrong with how often it rebalances, in a sentence.
    pub storm: Option<String>,
    /// Members that come and go over and over, each with how often.
    pub flapping: Vec<(MemberRef, u32)>,
    /// Offset changes by operators, and those that went back, newest first.
    pub audit: Vec<AuditEntry>,
    /// What the group sets for itself.
    pub settings: Vec<(Setting, i64)>,
    /// Members that are kept out, each with until when.
    pub banned: Vec<(Who, Millis)>,
    /// The operation that runs, in a sentence.
    pub operation: Option<String>,
}

/// One member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedMember {
    /// Who it is.
    pub member: MemberRef,
    /// Its state, in a word: of consumer groups as Kafka names it, else `joined`, `joining` or `pending`.
    pub state: &'static str,
    /// Its member epoch; of a classic member the generation.
    pub epoch: i32,
    /// Whether it speaks the classic protocol.
    pub is_classic: bool,
    /// Whether it is the leader of a classic group.
    pub is_leader: bool,
    /// The topics it subscribes to, as far as they are known.
    pub subscribed: Vec<TopicName>,
    /// The regular expression it subscribes to, if any.
    pub subscribed_regex: Option<Arc<str>>,
    /// What it owns, including what it has been told to give up and has not yet.
    pub owned: Vec<(TopicName, Vec<i32>)>,
    /// What it is to own.
    pub target: Vec<(TopicName, Vec<i32>)>,
    /// When it was last heard of.
    pub seen_at: Option<Millis>,
    /// Its session timeout in milliseconds.
    pub session_timeout_ms: i64,
}

/// A committed offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// The offset.
    pub offset: i64,
    /// The leader epoch that came with it; -1 for none.
    pub leader_epoch: i32,
    /// The note that came with it.
    pub metadata: Arc<str>,
    /// When it was committed.
    pub committed_at: Millis,
    /// Who committed it; `None` if that was before the server started.
    pub committed_by: Option<Toucher>,
    /// Who last fetched it, and when.
    pub fetched_by: Option<(Toucher, Millis)>,
    /// Who consumes the partition: a member by id.
    pub owner: Option<MemberId>,
}

/// Who committed or fetched an offset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Toucher {
    /// The client id.
    pub client_id: Arc<str>,
    /// The address.
    pub client_host: Arc<str>,
    /// The principal; `User:ANONYMOUS` where nobody logs in.
    pub principal: Arc<str>,
    /// The member; `None` in assign mode.
    pub member_id: Option<MemberId>,
}

/// One rebalance: a generation of a classic group, a group epoch of a consumer group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebalance {
    /// Counts the group's rebalances since it was first seen, from 1.
    pub number: u64,
    /// The generation or epoch before.
    pub from_epoch: i32,
    /// The generation or epoch after; the same as before while it is not known.
    pub to_epoch: i32,
    /// What began it, then what else came to it before it ended.
    pub triggers: Vec<Trigger>,
    /// When it began.
    pub began_at: Millis,
    /// When everyone had its assignment; `None` while it runs.
    pub ended_at: Option<Millis>,
    /// How it ended, in a word: `running`, `completed`, `superseded` by the next one, `emptied`.
    pub outcome: &'static str,
    /// Its parts in order, each with its length in milliseconds: of classic groups `join`, `sync`; of consumer groups
    /// `assign`, `revoke`, `take`.
    pub phases: Vec<(&'static str, i64)>,
    /// Who came last: everyone else waited for it.
    pub waited_for: Option<MemberRef>,
    /// What moved; at most as many as the journal keeps.
    pub moves: Vec<PartitionMove>,
    /// How many partitions moved.
    pub moved_count: usize,
    /// How many stayed.
    pub stayed_count: usize,
    /// Why, in one sentence.
    pub why: String,
}

/// What began a rebalance, or came to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The kind.
    pub cause: Cause,
    /// Whose doing it was.
    pub member: Option<MemberRef>,
    /// The reason a member gave (KIP-800), the topics that changed, or the operator and what it asked.
    pub detail: Option<Arc<str>>,
    /// When.
    pub at: Millis,
}

/// An offset change that an operator made or that went back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// When.
    pub at: Millis,
    /// The topic.
    pub topic: TopicName,
    /// The partition.
    pub partition: i32,
    /// The offset before; `None` for none.
    pub from: Option<i64>,
    /// The offset after; `None` for none.
    pub to: Option<i64>,
    /// Who: an operator, or a client.
    pub who: Arc<str>,
    /// How: `reset`, `restore`, `delete`, `commit went back`, `expired`.
    pub how: &'static str,
}
