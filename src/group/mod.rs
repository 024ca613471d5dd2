//! The core: a coordinator as a state machine. Pure: no sockets, no clock, no randomness of the system, no waiting.
//!
//! [`Coordinator`] is the door. What it knows for good is in `state`, and only records change that; what it hopes for
//! (who has joined, who is parked) is in `classic` and dies with the process; `timers` tell when to look again.

mod actions;
pub mod assign;
mod classic;
mod consumer;
mod describe;
mod ids;
mod journal;
mod memory;
mod offsets;
mod operate;
pub mod operator;
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
mod upgrade;

use std::ops::RangeInclusive;
use std::sync::Arc;

use hashbrown::HashMap;

pub use actions::{Actions, After, Answer};
pub use consumer::GroupOverrides;
pub use describe::Committed;
pub use journal::{Journal, JournalConfig, Noted};
pub use memory::GroupMemory;
pub use operate::{Caps, GroupCaps};
pub use stats::{Cause, Census, Stats};
pub use upgrade::Migration;

use assign::{Assignor, Range, Uniform};
use ids::Ids;
use journal::touch::Touchers;
use memory::Tally;
use operate::{Counted, Orders};
use record::Record;
use request::{ErrorCode, Request, RequestId};
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
    /// How long a join phase waits for a member that was told its id and has not joined with it; no longer than its
    /// session timeout (`convoke.group.member.id.wait.ms`).
    pub member_id_wait_ms: i64,
    /// The most members of a classic group (`group.max.size`).
    pub max_size: usize,
    /// The longest note of a commit, in UTF-16 units (`offset.metadata.max.bytes`).
    pub offset_metadata_max_units: usize,
    /// How long offsets of a group without members are kept (`offsets.retention.minutes`).
    pub offsets_retention_ms: i64,
    /// How often offsets are looked through (`offsets.retention.check.interval.ms`).
    pub offsets_retention_check_interval_ms: i64,
    /// Session timeout of members of consumer groups (`group.consumer.session.timeout.ms` and its bounds).
    pub consumer_session_timeout_ms: Bounded,
    /// How often they are told to come (`group.consumer.heartbeat.interval.ms` and its bounds).
    pub consumer_heartbeat_interval_ms: Bounded,
    /// The least time between two targets of a group (`group.consumer.assignment.interval.ms` and its bounds).
    pub consumer_assignment_interval_ms: Bounded,
    /// The most members of a consumer group (`group.consumer.max.size`).
    pub consumer_max_size: usize,
    /// What members may choose from, the default first (`group.consumer.assignors`). Empty counts as `uniform` alone.
    pub assignors: Vec<Arc<dyn Assignor>>,
    /// Which groups may change their protocol while they have members (`group.consumer.migration.policy`).
    pub migration: Migration,
    /// Whether members whom a pending change concerns are told to come sooner
    /// (`convoke.consumer.heartbeat.hint.enable`).
    pub heartbeat_hint: bool,
    /// The most that all groups may keep in memory, in bytes (`convoke.group.memory.max.bytes`).
    pub memory_bytes_max: usize,
    /// How the journal is kept.
    pub journal: JournalConfig,
    /// Where that is counted. Coordinators whose settings were cloned from the same share it.
    pub memory: Arc<GroupMemory>,
    /// How many groups there may be, and are; shared as `memory` is.
    pub caps: Arc<GroupCaps>,
}

/// A setting in milliseconds that a group may have its own value of, within bounds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bounded {
    /// Where the group sets nothing.
    pub default: i32,
    /// What a group may set. Values outside, from before the bounds were drawn tighter, count as the nearest bound.
    pub bounds: RangeInclusive<i32>,
}

impl Bounded {
    fn of(&self, own: Option<i32>) -> i32 {
        own.map_or(self.default, |own| {
            own.min(*self.bounds.end()).max(*self.bounds.start())
        })
    }
}

impl Default for GroupConfig {
    fn default() -> Self {
        Self {
            session_timeout_ms: 6_000..=1_800_000,
            initial_rebalance_delay_ms: 3_000,
            member_id_wait_ms: 5_000,
            max_size: i32::MAX as usize,
            offset_metadata_max_units: 4_096,
            offsets_retention_ms: 10_080 * 60_000,
            offsets_retention_check_interval_ms: 600_000,
            consumer_session_timeout_ms: Bounded {
                default: 45_000,
                bounds: 45_000..=60_000,
            },
            consumer_heartbeat_interval_ms: Bounded {
                default: 5_000,
                bounds: 5_000..=15_000,
            },
            consumer_assignment_interval_ms: Bounded {
                default: 1_000,
                bounds: 0..=15_000,
            },
            consumer_max_size: i32::MAX as usize,
            assignors: vec![Arc::new(Uniform), Arc::new(Range)],
            migration: Migration {
                upgrade: true,
                downgrade: true,
            },
            heartbeat_hint: true,
            memory_bytes_max: usize::MAX,
            journal: JournalConfig::default(),
            memory: Arc::default(),
            caps: Arc::default(),
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
    /// Consumer groups that have members.
    consumer: HashMap<GroupId, consumer::Live>,
    /// What single groups set for themselves.
    overrides: HashMap<GroupId, GroupOverrides>,
    /// Offsets that expire within a day, when they were last looked through.
    offsets_expiring: u64,
    /// What operators have ordered.
    orders: HashMap<GroupId, Orders>,
    patterns: consumer::Patterns,
    /// Counts the images of topics since the start.
    topics_version: i64,
    timers: Timers,
    ids: Ids,
    stats: Stats,
    /// Why groups rebalanced.
    journal: Journal,
    /// Who touches offsets.
    touchers: Touchers,
    /// What `state` takes of the memory.
    tally: Tally,
    /// Its groups, as the caps count them.
    counted: Counted,
}

impl Coordinator {
    /// A coordinator without groups. `seed` decides the member ids it makes.
    #[must_use]
    pub fn new(mut config: GroupConfig, topics: Arc<Topics>, seed: u64) -> Self {
        if config.assignors.is_empty() {
            config.assignors.push(Arc::new(Uniform));
        }
        let counted = Counted::of(&config.caps);
        Self {
            journal: Journal::new(config.journal),
            touchers: Touchers::default(),
            config,
            topics,
            state: State::default(),
            classic: HashMap::new(),
            consumer: HashMap::new(),
            overrides: HashMap::new(),
            offsets_expiring: 0,
            orders: HashMap::new(),
            patterns: consumer::Patterns::default(),
            topics_version: 0,
            timers: Timers::default(),
            ids: Ids::new(seed),
            stats: Stats::default(),
            tally: Tally::default(),
            counted,
        }
    }

    /// Takes in a record of the log. For recovery only, before [`loaded`](Self::loaded).
    pub fn apply(&mut self, record: &Record) {
        self.take_in(record);
    }

    /// Ends recovery: groups with members are Stable again with full sessions, and time begins to count.
    pub fn loaded(&mut self, now: Millis, actions: &mut Actions) {
        self.load_classic(now, actions);
        self.load_consumer(now);
        self.load_fences(now);
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
        if let Some(error) = self.no_memory_for(&request) {
            let reply = refusal::refuse(&request, error);
            if let Some(group_id) = request.group_id() {
                actions.reply(id, group_id, reply);
            }
            return;
        }
        if let Err(refused) = self.reserve_group(&request) {
            if let Some(group_id) = request.group_id() {
                actions.reply(id, group_id, refused);
            }
            return;
        }
        let group_id = self.under_orders(&request);
        match request {
            Request::Join(request) => self.join(now, id, request, actions),
            Request::Sync(request) => self.sync(now, id, request, actions),
            Request::Heartbeat(request) => self.heartbeat(now, id, &request, actions),
            Request::Leave(request) => self.leave(now, id, request, actions),
            Request::OffsetCommit(request) => self.offset_commit(now, id, request, actions),
            Request::OffsetFetch(request) => self.offset_fetch(now, id, &request, actions),
            Request::OffsetDelete(request) => self.offset_delete(now, id, &request, actions),
            Request::List(request) => self.list(id, &request, actions),
            Request::Describe(request) => self.describe(id, &request, actions),
            Request::Delete { group_id } => self.delete_group(id, &group_id, actions),
            Request::ConsumerHeartbeat(request) => {
                self.consumer_heartbeat(now, id, request, actions);
            }
            Request::ConsumerDescribe { group_id } => self.consumer_describe(id, group_id, actions),
            Request::Inspect(inspect) => self.inspect(now, id, &inspect, actions),
            Request::Operate(request) => self.operate(now, id, request, actions),
        }
        if let Some(group_id) = group_id {
            self.progress(now, &group_id, actions);
        }
        self.settle_group();
    }

    /// Whatever is due. Safe to call early or twice.
    pub fn handle_timeout(&mut self, now: Millis, actions: &mut Actions) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Session(group_id, member_id) if self.consumer.contains_key(&group_id) => {
                    self.consumer_session_due(now, &group_id, &member_id, actions);
                }
                Timer::Session(group_id, member_id) => {
                    self.session_due(now, &group_id, &member_id, actions);
                }
                Timer::PendingMember(group_id, member_id) => {
                    self.pending_due(now, &group_id, &member_id, actions);
                }
                Timer::Join(group_id) => self.join_due(now, &group_id, actions),
                Timer::Sync(group_id) => self.sync_due(now, &group_id, actions),
                Timer::Revocation(group_id, member_id) => {
                    self.revocation_due(now, &group_id, &member_id, actions);
                }
                Timer::MemberJoin(group_id, member_id) | Timer::MemberSync(group_id, member_id) => {
                    self.classic_member_due(now, &group_id, &member_id, actions);
                }
                Timer::Assign(group_id) => self.assign_timer_due(now, &group_id, actions),
                Timer::Resolve(group_id) => self.resolve_due(now, &group_id, actions),
                Timer::Operation(group_id) => self.operation_due(now, &group_id, actions),
                Timer::Refusal(group_id) => self.refusals_due(now, &group_id, actions),
                Timer::OffsetExpiry => self.expire_offsets(now, actions),
            }
        }
        self.progress_all(now, actions);
    }

    /// Topics came, grew or went. The offsets of those that went go too.
    pub fn handle_topics(&mut self, now: Millis, change: TopicsChange, actions: &mut Actions) {
        self.topics = change.topics.clone();
        self.topics_version += 1;
        self.journal.topics_changed(now, &change);
        self.consumer_topics_changed(now, &change);
        for (topic, topic_id) in &change.deleted {
            self.forget_topic(topic, *topic_id, actions);
        }
        self.progress_all(now, actions);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout) next, if nothing else happens.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Millis> {
        self.timers.next()
    }

    /// A timer that is armed for what is not there any more, if there is one: nobody would cancel it. For simulation.
    #[doc(hidden)]
    #[must_use]
    pub fn stray_timer(&self) -> Option<String> {
        let stray = self.timers.iter().find(|timer| {
            let group_id = match timer {
                Timer::Session(group_id, _)
                | Timer::PendingMember(group_id, _)
                | Timer::Join(group_id)
                | Timer::Sync(group_id)
                | Timer::Revocation(group_id, _)
                | Timer::MemberJoin(group_id, _)
                | Timer::MemberSync(group_id, _)
                | Timer::Assign(group_id)
                | Timer::Resolve(group_id) => group_id,
                Timer::Operation(group_id) => {
                    let orders = self.orders.get(&**group_id);
                    return !orders.is_some_and(Orders::awaits);
                }
                Timer::Refusal(group_id) => {
                    let orders = self.orders.get(&**group_id);
                    return !orders.is_some_and(Orders::awaits_refusals);
                }
                Timer::OffsetExpiry => return false,
            };
            let consumer = self.consumer.get(&**group_id);
            let classic = self.classic.get(&**group_id);
            !consumer.is_some_and(|live| live.awaits(timer))
                && !classic.is_some_and(|group| group.awaits(timer))
        });
        stray.map(|timer| format!("{timer:?}"))
    }

    /// Answers everybody who is parked: this coordinator stops.
    pub fn close(&mut self, actions: &mut Actions) {
        self.dismiss_operators(actions);
        let mut group_ids: Vec<_> = self.classic.keys().cloned().collect();
        group_ids.sort_unstable();
        for group_id in group_ids {
            if let Some(mut group) = self.classic.remove(&group_id) {
                classic::dismiss(&group_id, &mut group, ErrorCode::NotCoordinator, actions);
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
        self.take_in(&record);
        actions.records.push(record);
    }

    fn take_in(&mut self, record: &Record) {
        let before = self.state.group_count();
        self.state.apply(record);
        self.tally.set(&self.config.memory, self.state.bytes());
        if self.state.group_count() != before {
            self.groups_changed(record.group_id(), before);
        }
    }
}

#[cfg(test)]
mod tests;
