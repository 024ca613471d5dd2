//! The core: a coordinator as a state machine. Pure: no sockets, no clock, no randomness of the system, no waiting.
//!
//! [`Coordinator`] is the door. What it knows for good is in `state`, and only records change that; what it hopes for
//! (who has joined, who is parked) is in `classic` and dies with the process; `timers` tell when to look again.

mod actions;
pub mod assign;
mod classic;
mod describe;
mod ids;
mod offsets;
pub mod pattern;
mod reconcile;
pub mod record;
pub(crate) mod refusal;
pub mod request;
mod state;
pub mod stats;
pub mod subscription;
mod timers;
pub mod types;

use std::ops::RangeInclusive;
use std::sync::Arc;

use hashbrown::HashMap;

pub use actions::{Actions, After, Answer};
pub use stats::{Cause, Census, Stats};

use ids::Ids;
use record::Record;
use request::{
    ConsumerDescribeReply, ConsumerHeartbeatReply, ErrorCode, Reply, Request, RequestId,
};
use state::State;
use timers::{Timer, Timers};
use types::{GroupId, Millis, Topics, TopicsChange};

/// The few settings the core needs. The defaults are Kafka 4.4's.
#[derive(Clone, Debug)]
pub struct GroupConfig {
    /// Accepted session timeouts of classic members, in milliseconds
    /// (`group.min.session.timeout.ms`, `group.max.session.timeout.ms`).
    pub session_timeout_ms: RangeInclusive<i32>,
    /// How long an Empty group gathers members (`group.initial.rebalance.delay.ms`).
    pub initial_rebalance_delay_ms: i64,
    /// The most members of a classic group (`group.max.size`).
    pub max_size: usize,
    /// The longest note of a commit, in UTF-16 units (`offset.metadata.max.bytes`).
    pub offset_metadata_max_units: usize,
    /// How long offsets of a group without members are kept (`offsets.retention.minutes`).
    pub offsets_retention_ms: i64,
    /// How often offsets are looked through (`offsets.retention.check.interval.ms`).
    pub offsets_retention_check_interval_ms: i64,
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            session_timeout_ms: 6_000..=1_800_000,
            initial_rebalance_delay_ms: 3_000,
            max_size: i32::MAX as usize,
            offset_metadata_max_units: 4_096,
            offsets_retention_ms: 10_080 * 60_000,
            offsets_retention_check_interval_ms: 600_000,
        }
    }
}

/// One offsets partition's worth of groups and offsets, as a state machine without IO.
///
/// Entries from the world: [`handle`](Self::handle) for a request, [`handle_timeout`](Self::handle_timeout) for time,
/// [`handle_topics`](Self::handle_topics) for topics. Each may add to the [`Actions`] it is given, and every reply
/// comes that way, in the same call or a later one. Afterwards ask [`poll_timeout`](Self::poll_timeout) when to call
/// again. Recovery is [`apply`](Self::apply) for every record of the log, then [`loaded`](Self::loaded) once.
///
/// `now` must never go back; calls at the same moment may come in any order.
///
/// If the records of a call cannot be made durable, drop the coordinator, load it again from the log and answer those
/// who wait with a retriable error: nothing is ever rolled back.
#[derive(Debug)]
pub struct Coordinator {
    config: GroupConfig,
    topics: Arc<Topics>,
    state: State,
    /// Classic groups that have members or have handed out ids.
    classic: HashMap<GroupId, Box<classic::Group>>,
    timers: Timers,
    ids: Ids,
    stats: Stats,
}

impl Coordinator {
    /// A coordinator without groups. `seed` decides the member ids it makes.
    #[must_use]
    pub fn new(config: GroupConfig, topics: Arc<Topics>, seed: u64) -> Self {
        Self {
            config,
            topics,
            state: State::default(),
            classic: HashMap::new(),
            timers: Timers::default(),
            ids: Ids::new(seed),
            stats: Stats::default(),
        }
    }

    /// Takes in a record of the log. For recovery only, before [`loaded`](Self::loaded).
    pub fn apply(&mut self, record: &Record) {
        self.state.apply(record);
    }

    /// Ends recovery: groups with members are Stable again with full sessions, and time begins to count.
    pub fn loaded(&mut self, now: Millis, actions: &mut Actions) {
        self.load_classic(now, actions);
        let first_check = now.plus(self.config.offsets_retention_check_interval_ms.max(1));
        self.timers.arm(Timer::OffsetExpiry, first_check);
    }

    /// The newest moment that any record carries; the clock must not start before it.
    #[must_use]
    pub fn newest_timestamp(&self) -> Millis {
        self.state.newest()
    }

    /// One request. `id` names who waits for the reply.
    pub fn handle(&mut self, now: Millis, id: RequestId, request: Request, actions: &mut Actions) {
        match request {
            Request::Join(request) => self.join(now, id, request, actions),
            Request::Sync(request) => self.sync(now, id, request, actions),
            Request::Heartbeat(request) => self.heartbeat(now, id, &request, actions),
            Request::Leave(request) => self.leave(now, id, request, actions),
            Request::OffsetCommit(request) => self.offset_commit(now, id, request, actions),
            Request::OffsetFetch(request) => self.offset_fetch(id, &request, actions),
            Request::OffsetDelete(request) => self.offset_delete(id, &request, actions),
            Request::List(request) => self.list(id, &request, actions),
            Request::Describe(request) => self.describe(id, &request, actions),
            Request::Delete { group_id } => self.delete_group(id, &group_id, actions),
            Request::ConsumerHeartbeat(request) => {
                let refusal = ConsumerHeartbeatReply::refused(
                    ErrorCode::UnsupportedVersion,
                    "The consumer group protocol is not enabled.",
                );
                actions.reply(id, &request.group_id, Reply::ConsumerHeartbeat(refusal));
            }
            Request::ConsumerDescribe { group_id } => {
                let reply = ConsumerDescribeReply {
                    group_id: group_id.clone(),
                    error: ErrorCode::GroupIdNotFound,
                    message: Some(format!("Group {group_id} is not a consumer group.")),
                    state: "",
                    group_epoch: 0,
                    assignment_epoch: 0,
                    assignor_name: Arc::from(""),
                    members: Vec::new(),
                };
                actions.reply(id, &group_id, Reply::ConsumerDescribe(reply));
            }
        }
    }

    /// Whatever is due. Safe to call early or twice.
    pub fn handle_timeout(&mut self, now: Millis, actions: &mut Actions) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Session(group_id, member_id) => {
                    self.session_due(now, &group_id, &member_id, actions);
                }
                Timer::PendingMember(group_id, member_id) => {
                    self.pending_due(now, &group_id, &member_id, actions);
                }
                Timer::Join(group_id) => self.join_due(now, &group_id, actions),
                Timer::Sync(group_id) => self.sync_due(now, &group_id, actions),
                Timer::OffsetExpiry => self.expire_offsets(now, actions),
            }
        }
    }

    /// Topics came, grew or went. The offsets of those that went go too.
    pub fn handle_topics(&mut self, _now: Millis, change: TopicsChange, actions: &mut Actions) {
        self.topics = change.topics;
        for (topic, topic_id) in &change.deleted {
            self.forget_topic(topic, *topic_id, actions);
        }
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next, if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Millis> {
        self.timers.next()
    }

    /// Answers everybody who is parked: this coordinator stops.
    pub fn close(&mut self, actions: &mut Actions) {
        let mut group_ids: Vec<_> = self.classic.keys().cloned().collect();
        group_ids.sort_unstable();
        for group_id in group_ids {
            if let Some(mut group) = self.classic.remove(&group_id) {
                classic::dismiss(&group_id, &mut group, actions);
            }
        }
    }

    /// The whole state as records: a snapshot for the log.
    pub fn snapshot(&self) -> impl Iterator<Item = Record> + '_ {
        self.state.records()
    }

    /// What it has done so far.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Whether the durable facts of two coordinators are the same: live and replayed ones must be.
    #[must_use]
    pub fn same_facts(&self, other: &Self) -> bool {
        self.state == other.state
    }

    /// Whether there is such a group.
    fn exists(&self, group_id: &str) -> bool {
        self.classic.contains_key(group_id) || self.state.group(group_id).is_some()
    }

    /// Makes a fact: the only way state changes outside recovery.
    fn emit(&mut self, record: Record, actions: &mut Actions) {
        self.state.apply(&record);
        actions.records.push(record);
    }
}

#[cfg(test)]
mod tests;
