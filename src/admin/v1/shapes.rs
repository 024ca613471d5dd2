//! What the API answers, as JSON: the core's words with names for machines. Times are unix milliseconds and end in
//! `_at_ms`.

use serde::Serialize;
use utoipa::ToSchema;

use crate::admin::lag::{CommitLag, GroupLag};
use crate::group;
use crate::group::operator::{self, Setting, Who};
use crate::group::types::{Millis, TopicName};

fn texts(names: &[std::sync::Arc<str>]) -> Vec<String> {
    names.iter().map(|name| name.to_string()).collect()
}

fn text(name: &std::sync::Arc<str>) -> String {
    name.to_string()
}

fn maybe(name: Option<&std::sync::Arc<str>>) -> Option<String> {
    name.map(text)
}

fn ms(at: Option<Millis>) -> Option<i64> {
    at.map(|at| at.0)
}

/// Partitions of one topic.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopicPartitions {
    /// The topic.
    pub(crate) topic: String,
    /// Its partitions.
    pub(crate) partitions: Vec<i32>,
}

fn topics(owned: &[(TopicName, Vec<i32>)]) -> Vec<TopicPartitions> {
    let shape = |(topic, partitions): &(TopicName, Vec<i32>)| TopicPartitions {
        topic: text(topic),
        partitions: partitions.clone(),
    };
    owned.iter().map(shape).collect()
}

/// Gathers single partitions by topic, in the order in which topics come.
fn gathered(partitions: &[(TopicName, i32)]) -> Vec<TopicPartitions> {
    let mut topics: Vec<TopicPartitions> = Vec::new();
    for (topic, partition) in partitions {
        match topics.last_mut() {
            Some(last) if last.topic == **topic => last.partitions.push(*partition),
            _ => topics.push(TopicPartitions {
                topic: text(topic),
                partitions: vec![*partition],
            }),
        }
    }
    topics
}

/// How far a group is behind.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
pub(crate) struct Lag {
    /// Records behind, over all partitions.
    pub(crate) records: i64,
    /// How old the oldest record is that has not been consumed, in milliseconds. `null` while it is not known.
    pub(crate) ms: Option<i64>,
}

impl From<&GroupLag> for Lag {
    fn from(lag: &GroupLag) -> Self {
        Self {
            records: lag.records,
            ms: lag.ms,
        }
    }
}

/// One group in a list of all.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "group_id": "orders", "kind": "consumer", "state": "Stable", "epoch": 7, "member_count": 3, "offset_count": 12,
    "rebalance_count": 5, "rebalanced_at_ms": 1_790_000_000_000_i64, "is_stormy": false, "is_paused": false,
    "has_conflict": false, "lag": {"records": 120, "ms": 850}
}))]
pub(crate) struct Summary {
    /// The group.
    pub(crate) group_id: String,
    /// `classic`, `consumer`, or `simple` for a group that only commits.
    pub(crate) kind: &'static str,
    /// Its state, as Kafka names it.
    pub(crate) state: &'static str,
    /// The generation of a classic group, the epoch of a consumer group.
    pub(crate) epoch: i32,
    /// How many members it has.
    pub(crate) member_count: usize,
    /// How many partitions have a committed offset.
    pub(crate) offset_count: usize,
    /// Rebalances that the journal knows of.
    pub(crate) rebalance_count: u64,
    /// When the last one began.
    pub(crate) rebalanced_at_ms: Option<i64>,
    /// Whether it rebalances over and over.
    pub(crate) is_stormy: bool,
    /// Whether an operator has paused it.
    pub(crate) is_paused: bool,
    /// Two assign-mode clients commit to one partition.
    pub(crate) has_conflict: bool,
    /// How far it is behind; `null` if it has committed nothing.
    pub(crate) lag: Option<Lag>,
}

impl Summary {
    pub(crate) fn new(summary: &operator::Summary, lag: Option<Lag>) -> Self {
        Self {
            group_id: text(&summary.group_id),
            kind: summary.kind,
            state: summary.state,
            epoch: summary.epoch,
            member_count: summary.member_count,
            offset_count: summary.offset_count,
            rebalance_count: summary.rebalance_count,
            rebalanced_at_ms: ms(summary.rebalanced_at),
            is_stormy: summary.is_stormy,
            is_paused: summary.is_paused,
            has_conflict: summary.has_conflict,
            lag,
        }
    }
}

/// A page of groups, by id.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GroupList {
    /// The groups of this page.
    pub(crate) groups: Vec<Summary>,
    /// What to give as `after` for the next page; `null` on the last.
    pub(crate) next: Option<String>,
    /// How many there are on all pages.
    pub(crate) counts: Counts,
}

/// What a list counts, on all its pages.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Counts {
    /// Groups.
    pub(crate) groups: usize,
    /// Their members.
    pub(crate) members: usize,
    /// Groups that rebalance over and over.
    pub(crate) stormy: usize,
}

/// A member, as journals and answers name it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemberRef {
    /// Its member id.
    pub(crate) member_id: String,
    /// Its group instance id, if it is static.
    pub(crate) instance_id: Option<String>,
    /// Its client id.
    pub(crate) client_id: String,
    /// Its address as Kafka describes it: `/127.0.0.1`.
    pub(crate) client_host: String,
}

impl From<&operator::MemberRef> for MemberRef {
    fn from(member: &operator::MemberRef) -> Self {
        Self {
            member_id: text(&member.member_id),
            instance_id: maybe(member.instance_id.as_ref()),
            client_id: text(&member.client_id),
            client_host: text(&member.client_host),
        }
    }
}

/// One member of a group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Member {
    /// Who it is.
    member: MemberRef,
    /// Its state, in a word: of consumer groups as Kafka names it, else `joined`, `joining` or `pending`.
    state: &'static str,
    /// Its member epoch; of a classic member the generation.
    epoch: i32,
    /// Whether it speaks the classic protocol.
    is_classic: bool,
    /// Whether it is the leader of a classic group.
    is_leader: bool,
    /// The topics it subscribes to, as far as they are known.
    subscribed: Vec<String>,
    /// The regular expression it subscribes to, if any.
    subscribed_regex: Option<String>,
    /// What it owns, including what it has been told to give up and has not yet.
    owned: Vec<TopicPartitions>,
    /// What it is to own.
    target: Vec<TopicPartitions>,
    /// When it was last heard of.
    seen_at_ms: Option<i64>,
    /// Its session timeout in milliseconds.
    session_timeout_ms: i64,
}

impl From<&operator::InspectedMember> for Member {
    fn from(member: &operator::InspectedMember) -> Self {
        Self {
            member: (&member.member).into(),
            state: member.state,
            epoch: member.epoch,
            is_classic: member.is_classic,
            is_leader: member.is_leader,
            subscribed: texts(&member.subscribed),
            subscribed_regex: maybe(member.subscribed_regex.as_ref()),
            owned: topics(&member.owned),
            target: topics(&member.target),
            seen_at_ms: ms(member.seen_at),
            session_timeout_ms: member.session_timeout_ms,
        }
    }
}

/// Who committed or fetched an offset.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Toucher {
    /// The client id.
    client_id: String,
    /// The address.
    client_host: String,
    /// The principal; `User:ANONYMOUS` where nobody logs in.
    principal: String,
    /// The member; `null` in assign mode.
    member_id: Option<String>,
}

impl From<&operator::Toucher> for Toucher {
    fn from(toucher: &operator::Toucher) -> Self {
        Self {
            client_id: text(&toucher.client_id),
            client_host: text(&toucher.client_host),
            principal: text(&toucher.principal),
            member_id: maybe(toucher.member_id.as_ref()),
        }
    }
}

/// A committed offset, and who touched it last.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "topic": "orders", "partition": 0, "offset": 100, "leader_epoch": 0, "metadata": "",
    "committed_at_ms": 1_790_000_000_000_i64,
    "committed_by": {"client_id": "billing-1", "client_host": "/10.0.0.7", "principal": "User:ANONYMOUS", "member_id": "billing-1-5f2c"},
    "fetched_by": null, "fetched_at_ms": null, "owner": "billing-1-5f2c",
    "end_offset": 220, "lag_records": 120, "lag_ms": 850
}))]
pub(crate) struct Commit {
    /// The topic.
    topic: String,
    /// The partition.
    partition: i32,
    /// The offset.
    offset: i64,
    /// The leader epoch that came with it; -1 for none.
    leader_epoch: i32,
    /// The note that came with it.
    metadata: String,
    /// When it was committed.
    committed_at_ms: i64,
    /// Who committed it; `null` if that was before the server started.
    committed_by: Option<Toucher>,
    /// Who last fetched it.
    fetched_by: Option<Toucher>,
    /// When it was last fetched.
    fetched_at_ms: Option<i64>,
    /// Who consumes the partition: a member by id.
    owner: Option<String>,
    /// The end of the partition, read after the offset; `null` if there is no such partition any more.
    end_offset: Option<i64>,
    /// Records behind.
    lag_records: Option<i64>,
    /// How old the first record is that has not been consumed, in milliseconds; 0 at the end.
    lag_ms: Option<i64>,
}

impl Commit {
    pub(crate) fn new(commit: &operator::Commit, lag: &CommitLag) -> Self {
        Self {
            topic: text(&commit.topic),
            partition: commit.partition,
            offset: commit.offset,
            leader_epoch: commit.leader_epoch,
            metadata: text(&commit.metadata),
            committed_at_ms: commit.committed_at.0,
            committed_by: commit.committed_by.as_ref().map(Toucher::from),
            fetched_by: commit.fetched_by.as_ref().map(|(who, _)| who.into()),
            fetched_at_ms: commit.fetched_by.as_ref().map(|(_, at)| at.0),
            owner: maybe(commit.owner.as_ref()),
            end_offset: lag.end_offset,
            lag_records: lag.records,
            lag_ms: lag.ms,
        }
    }
}

/// A partition to which two assign-mode clients commit.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Conflict {
    /// The topic.
    topic: String,
    /// The partition.
    partition: i32,
    /// Both of them.
    clients: Vec<Toucher>,
}

/// A partition that went, or would go, from one member to another.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PartitionMove {
    /// The topic.
    topic: String,
    /// The partition.
    partition: i32,
    /// Who had it; `null` for nobody.
    from: Option<String>,
    /// Who has it now; `null` for nobody.
    to: Option<String>,
}

impl From<&operator::PartitionMove> for PartitionMove {
    fn from(moved: &operator::PartitionMove) -> Self {
        Self {
            topic: text(&moved.topic),
            partition: moved.partition,
            from: maybe(moved.from.as_ref()),
            to: maybe(moved.to.as_ref()),
        }
    }
}

/// What began a rebalance, or came to it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Trigger {
    /// The kind, as in the metric `convoke_rebalances_total`.
    cause: &'static str,
    /// Whose doing it was.
    member: Option<MemberRef>,
    /// The reason a member gave (KIP-800), the topics that changed, or the operator and what it asked.
    detail: Option<String>,
    /// When.
    at_ms: i64,
}

/// A part of a rebalance.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Phase {
    /// Its name: of classic groups `join`, `sync`; of consumer groups `assign`, `revoke`, `take`.
    phase: &'static str,
    /// Its length in milliseconds.
    took_ms: i64,
}

/// One rebalance: a generation of a classic group, a group epoch of a consumer group.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "number": 5, "from_epoch": 6, "to_epoch": 7,
    "triggers": [{"cause": "member_left", "member": {"member_id": "billing-2-9d1e", "instance_id": null, "client_id": "billing-2", "client_host": "/10.0.0.8"}, "detail": "the consumer is being closed", "at_ms": 1_790_000_000_000_i64}],
    "began_at_ms": 1_790_000_000_000_i64, "ended_at_ms": 1_790_000_000_140_i64, "outcome": "completed",
    "phases": [{"phase": "join", "took_ms": 120}, {"phase": "sync", "took_ms": 20}], "waited_for": null,
    "moves": [{"topic": "orders", "partition": 1, "from": "billing-2-9d1e", "to": "billing-1-5f2c"}],
    "moved_count": 1, "stayed_count": 1,
    "why": "billing-2 left: the consumer is being closed."
}))]
pub(crate) struct Rebalance {
    /// Counts the group's rebalances since it was first seen, from 1.
    number: u64,
    /// The generation or epoch before.
    from_epoch: i32,
    /// The generation or epoch after; the same as before while it is not known.
    to_epoch: i32,
    /// What began it, then what else came to it before it ended.
    triggers: Vec<Trigger>,
    /// When it began.
    began_at_ms: i64,
    /// When everyone had its assignment; `null` while it runs.
    ended_at_ms: Option<i64>,
    /// How it ended, in a word: `running`, `completed`, `superseded` by the next one, `emptied`.
    outcome: &'static str,
    /// Its parts in order.
    phases: Vec<Phase>,
    /// Who came last: everyone else waited for it.
    waited_for: Option<MemberRef>,
    /// What moved; at most as many as the journal keeps.
    moves: Vec<PartitionMove>,
    /// How many partitions moved.
    moved_count: usize,
    /// How many stayed.
    stayed_count: usize,
    /// Why, in one sentence.
    why: String,
}

impl From<&operator::Rebalance> for Rebalance {
    fn from(rebalance: &operator::Rebalance) -> Self {
        let trigger = |trigger: &operator::Trigger| Trigger {
            cause: trigger.cause.name(),
            member: trigger.member.as_ref().map(MemberRef::from),
            detail: maybe(trigger.detail.as_ref()),
            at_ms: trigger.at.0,
        };
        let phase = |(phase, took_ms): &(&'static str, i64)| Phase {
            phase,
            took_ms: *took_ms,
        };
        Self {
            number: rebalance.number,
            from_epoch: rebalance.from_epoch,
            to_epoch: rebalance.to_epoch,
            triggers: rebalance.triggers.iter().map(trigger).collect(),
            began_at_ms: rebalance.began_at.0,
            ended_at_ms: ms(rebalance.ended_at),
            outcome: rebalance.outcome,
            phases: rebalance.phases.iter().map(phase).collect(),
            waited_for: rebalance.waited_for.as_ref().map(MemberRef::from),
            moves: rebalance.moves.iter().map(PartitionMove::from).collect(),
            moved_count: rebalance.moved_count,
            stayed_count: rebalance.stayed_count,
            why: rebalance.why.clone(),
        }
    }
}

/// A member that comes and goes over and over.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Flapping {
    /// The member.
    member: MemberRef,
    /// How often.
    count: u32,
}

/// An offset change that an operator made or that went back.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "at_ms": 1_790_000_000_000_i64, "topic": "orders", "partition": 0, "from": 100, "to": 0, "who": "http:127.0.0.1", "how": "reset"
}))]
pub(crate) struct AuditEntry {
    /// When.
    at_ms: i64,
    /// The topic.
    topic: String,
    /// The partition.
    partition: i32,
    /// The offset before; `null` for none.
    from: Option<i64>,
    /// The offset after; `null` for none.
    to: Option<i64>,
    /// Who: an operator, or a client.
    who: String,
    /// How: `reset`, `restore`, `delete`, `commit went back`, `expired`.
    how: &'static str,
}

impl From<&operator::AuditEntry> for AuditEntry {
    fn from(entry: &operator::AuditEntry) -> Self {
        Self {
            at_ms: entry.at.0,
            topic: text(&entry.topic),
            partition: entry.partition,
            from: entry.from,
            to: entry.to,
            who: text(&entry.who),
            how: entry.how,
        }
    }
}

/// What a group sets for itself; `null` where the server's setting holds.
#[derive(Debug, Default, Serialize, ToSchema)]
#[schema(example = json!({"offsets_retention_ms": -1, "members_max": 20, "offsets_max": null}))]
pub(crate) struct Settings {
    /// How long offsets are kept without members, in milliseconds; -1 for ever.
    offsets_retention_ms: Option<i64>,
    /// The most members.
    members_max: Option<i64>,
    /// The most partitions with a committed offset.
    offsets_max: Option<i64>,
}

impl Settings {
    pub(crate) fn new(settings: &[(Setting, i64)]) -> Self {
        let mut shape = Self::default();
        for (setting, value) in settings {
            let field = match setting {
                Setting::OffsetsRetentionMs => &mut shape.offsets_retention_ms,
                Setting::MembersMax => &mut shape.members_max,
                Setting::OffsetsMax => &mut shape.offsets_max,
            };
            *field = Some(*value);
        }
        shape
    }
}

/// Who is kept out, and until when.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Banned {
    /// The member id, if it is one.
    member_id: Option<String>,
    /// The group instance id, if it is one.
    instance_id: Option<String>,
    /// The client id, if it is one.
    client_id: Option<String>,
    /// Until when.
    until_ms: i64,
}

impl Banned {
    fn new((who, until): &(Who, Millis)) -> Self {
        let mut banned = Self {
            member_id: None,
            instance_id: None,
            client_id: None,
            until_ms: until.0,
        };
        match who {
            Who::Member(id) => banned.member_id = Some(text(id)),
            Who::Instance(id) => banned.instance_id = Some(text(id)),
            Who::Client(id) => banned.client_id = Some(text(id)),
        }
        banned
    }
}

/// Everything about one group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Inspected {
    /// As in the list of all.
    summary: Summary,
    /// The protocol of a classic group, the assignor of a consumer group.
    assignor: String,
    /// Its members.
    members: Vec<Member>,
    /// Its committed offsets and who touched them last, by topic and partition.
    commits: Vec<Commit>,
    /// Partitions to which two assign-mode clients commit.
    conflicts: Vec<Conflict>,
    /// Partitions of topics that somebody subscribes to, or commits to, which nobody consumes.
    gaps: Vec<TopicPartitions>,
    /// Its rebalances, newest first; as many as the journal keeps.
    rebalances: Vec<Rebalance>,
    /// What is wrong with how often it rebalances, in a sentence.
    storm: Option<String>,
    /// Members that come and go over and over.
    flapping: Vec<Flapping>,
    /// Offset changes by operators, and those that went back, newest first.
    audit: Vec<AuditEntry>,
    /// What the group sets for itself.
    settings: Settings,
    /// Members that are kept out.
    banned: Vec<Banned>,
    /// The operation that runs, in a sentence.
    operation: Option<String>,
}

impl Inspected {
    /// With the lag of each commit, in their order.
    pub(crate) fn new(inspected: &operator::Inspected, lags: &[CommitLag]) -> Self {
        let conflict =
            |(topic, partition, clients): &(TopicName, i32, Vec<operator::Toucher>)| Conflict {
                topic: text(topic),
                partition: *partition,
                clients: clients.iter().map(Toucher::from).collect(),
            };
        let flapping = |(member, count): &(operator::MemberRef, u32)| Flapping {
            member: member.into(),
            count: *count,
        };
        let lag = GroupLag::sum(lags).as_ref().map(Lag::from);
        Self {
            summary: Summary::new(&inspected.summary, lag),
            assignor: text(&inspected.assignor),
            members: inspected.members.iter().map(Member::from).collect(),
            commits: commits(inspected, lags),
            conflicts: inspected.conflicts.iter().map(conflict).collect(),
            gaps: gathered(&inspected.gaps),
            rebalances: rebalances(inspected),
            storm: inspected.storm.clone(),
            flapping: inspected.flapping.iter().map(flapping).collect(),
            audit: audit(inspected),
            settings: Settings::new(&inspected.settings),
            banned: inspected.banned.iter().map(Banned::new).collect(),
            operation: inspected.operation.clone(),
        }
    }
}

pub(crate) fn commits(inspected: &operator::Inspected, lags: &[CommitLag]) -> Vec<Commit> {
    let commits = inspected.commits.iter().zip(lags);
    commits
        .map(|(commit, lag)| Commit::new(commit, lag))
        .collect()
}

pub(crate) fn rebalances(inspected: &operator::Inspected) -> Vec<Rebalance> {
    inspected.rebalances.iter().map(Rebalance::from).collect()
}

pub(crate) fn audit(inspected: &operator::Inspected) -> Vec<AuditEntry> {
    inspected.audit.iter().map(AuditEntry::from).collect()
}

/// The rebalances of a group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Rebalances {
    /// Newest first; as many as the journal keeps.
    pub(crate) rebalances: Vec<Rebalance>,
    /// What is wrong with how often it rebalances, in a sentence.
    pub(crate) storm: Option<String>,
}

/// The committed offsets of a group and who touched them last.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Commits {
    /// By topic and partition.
    pub(crate) commits: Vec<Commit>,
}

/// Offset changes by operators, and those that went back.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Audit {
    /// Newest first.
    pub(crate) audit: Vec<AuditEntry>,
}

/// An offset before and after.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct OffsetChange {
    /// The topic.
    topic: String,
    /// The partition.
    partition: i32,
    /// What was committed; `null` for nothing.
    from: Option<i64>,
    /// What is committed now; `null` for nothing.
    to: Option<i64>,
    /// Who owned the partition: a member by id.
    held_by: Option<String>,
}

/// A member and what became of it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MemberChange {
    /// The member.
    member: MemberRef,
    /// What happens to it, as a word: `removed`, `drained`, `revokes`, `fenced`.
    change: &'static str,
    /// Partitions that it gives up.
    gives_up: Vec<TopicPartitions>,
}

/// How an action ended.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "dry_run": false,
    "offsets": [{"topic": "orders", "partition": 0, "from": 100, "to": 0, "held_by": "billing-1-5f2c"}],
    "members": [{"member": {"member_id": "billing-1-5f2c", "instance_id": null, "client_id": "billing-1", "client_host": "/10.0.0.7"}, "change": "revokes", "gives_up": [{"topic": "orders", "partitions": [0]}]}],
    "notes": [], "took_ms": 230
}))]
pub(crate) struct Operated {
    /// Whether this is only what would be done.
    dry_run: bool,
    /// The offsets that were moved or, in a dry run, would be.
    offsets: Vec<OffsetChange>,
    /// The members that were concerned.
    members: Vec<MemberChange>,
    /// What an operator should know besides, in sentences.
    notes: Vec<String>,
    /// How long it took, in milliseconds.
    took_ms: i64,
}

impl Operated {
    /// With notes of the one who asked in front.
    pub(crate) fn new(operated: &operator::Operated, dry_run: bool, notes: Vec<String>) -> Self {
        let offset = |change: &operator::OffsetChange| OffsetChange {
            topic: text(&change.topic),
            partition: change.partition,
            from: change.from,
            to: change.to,
            held_by: maybe(change.held_by.as_ref()),
        };
        let member = |change: &operator::MemberChange| MemberChange {
            member: (&change.member).into(),
            change: change.change,
            gives_up: gathered(&change.gives_up),
        };
        Self {
            dry_run,
            offsets: operated.offsets.iter().map(offset).collect(),
            members: operated.members.iter().map(member).collect(),
            notes: [notes, operated.notes.clone()].concat(),
            took_ms: operated.took_ms,
        }
    }
}

/// A member and what it would own.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PreviewedMember {
    /// The member. One that is supposed is called `new-1` and so on.
    member: MemberRef,
    /// What it would own.
    owned: Vec<TopicPartitions>,
}

/// What a preview found.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Previewed {
    /// The assignor that was asked.
    assignor: String,
    /// How many partitions would stay where they are.
    stayed_count: usize,
    /// What would move.
    moves: Vec<PartitionMove>,
    /// What each member would own.
    members: Vec<PreviewedMember>,
}

impl From<&operator::Previewed> for Previewed {
    fn from(previewed: &operator::Previewed) -> Self {
        let member =
            |(member, owned): &(operator::MemberRef, Vec<(TopicName, Vec<i32>)>)| PreviewedMember {
                member: member.into(),
                owned: topics(owned),
            };
        Self {
            assignor: text(&previewed.assignor),
            stayed_count: previewed.stayed_count,
            moves: previewed.moves.iter().map(PartitionMove::from).collect(),
            members: previewed.members.iter().map(member).collect(),
        }
    }
}

/// How many groups there may be; `null` for no limit.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"groups_max": 1000, "prefixes": [{"prefix": "test-", "groups_max": 50}]}))]
pub(crate) struct Caps {
    /// The most groups there may be.
    groups_max: Option<usize>,
    /// The most groups whose ids begin with a prefix.
    prefixes: Vec<PrefixCap>,
}

/// How many groups there may be whose ids begin alike.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PrefixCap {
    /// How their ids begin.
    prefix: String,
    /// The most of them.
    groups_max: usize,
}

impl From<&group::Caps> for Caps {
    fn from(caps: &group::Caps) -> Self {
        let prefix = |(prefix, groups_max): &(std::sync::Arc<str>, usize)| PrefixCap {
            prefix: text(prefix),
            groups_max: *groups_max,
        };
        Self {
            groups_max: caps.groups_max,
            prefixes: caps.prefixes.iter().map(prefix).collect(),
        }
    }
}

/// How far each group is behind.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LagList {
    /// Every group that has committed anything, by id.
    pub(crate) groups: Vec<LagRow>,
}

/// How far one group is behind.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({"group_id": "orders", "records": 120, "ms": 850, "partitions": 12}))]
pub(crate) struct LagRow {
    /// The group.
    pub(crate) group_id: String,
    /// Records behind, over all partitions.
    pub(crate) records: i64,
    /// How old the oldest record is that has not been consumed, in milliseconds. `null` while it is not known.
    pub(crate) ms: Option<i64>,
    /// Partitions with a committed offset.
    pub(crate) partitions: usize,
}

/// A page of topics, by name.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopicList {
    /// The topics of this page.
    pub(crate) topics: Vec<Topic>,
    /// What to give as `after` for the next page; `null` on the last.
    pub(crate) next: Option<String>,
}

/// A topic.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "topic": "orders", "topic_id": "0190a3c5-6f0e-7c3a-9d53-6a1f6d0f7e11", "is_internal": false,
    "partitions": [{"partition": 0, "start_offset": 0, "end_offset": 220}],
    "groups": [{"group_id": "billing"}]
}))]
pub(crate) struct Topic {
    /// Its name.
    pub(crate) topic: String,
    /// Its id.
    pub(crate) topic_id: String,
    /// Whether ordinary clients must not write to it.
    pub(crate) is_internal: bool,
    /// Its partitions.
    pub(crate) partitions: Vec<Partition>,
    /// Groups that have committed offsets of it.
    pub(crate) groups: Vec<TopicGroup>,
}

/// A partition and how far it reaches.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Partition {
    /// Its number.
    pub(crate) partition: i32,
    /// The first offset that can be read.
    pub(crate) start_offset: i64,
    /// The offset behind the last record.
    pub(crate) end_offset: i64,
}

/// A group that has committed offsets of a topic.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopicGroup {
    /// The group.
    pub(crate) group_id: String,
}
