//! The core on a workbench: operations come from outside, one by one, and `check` holds each to the rules. For fuzzing,
//! and for tests that play one history. Worlds with clients, a network and chance are `world`'s.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use super::check::{Cause, Check};
use super::rng::Rng;
use crate::group::record::Record;
use crate::group::request::{Reply, Request, RequestId};
use crate::group::types::{GroupId, Millis, Topics, TopicsChange};
use crate::group::{Actions, After, Coordinator, GroupConfig};
use crate::wire::records::{decode_batch, encode_batch};

/// Records of one slice of a snapshot.
const SNAPSHOT_SLICE: usize = 4;
/// After so many records the log is replaced by a snapshot, so that reading it stays quick.
const RECORDS_MAX: usize = 400;

/// A log that does what it is told. What can befall the one that ships is `world`'s affair.
#[derive(Debug, Default)]
struct Log {
    snapshot: Vec<Bytes>,
    /// Behind the snapshot, oldest first.
    frames: Vec<Bytes>,
    last: u64,
    durable: u64,
    fails_next: bool,
}

impl Log {
    /// Appends one batch; gives its position and bytes, or nothing if it was not taken.
    fn append(&mut self, records: &[Record], now: Millis) -> Option<(u64, Bytes)> {
        if std::mem::take(&mut self.fails_next) {
            return None;
        }
        let bytes = encode_batch(records, 0, now).ok()?;
        self.last += 1;
        self.frames.push(bytes.clone());
        Some((self.last, bytes))
    }

    /// Of what is not durable, chance decides how much is left.
    fn crash(&mut self, chance: u64) {
        let kept = self.durable + chance % (self.last - self.durable + 1);
        for _ in kept..self.last {
            self.frames.pop();
        }
        self.last = kept;
        self.fails_next = false;
    }

    fn records(&self) -> Result<Vec<Record>, String> {
        let mut records = Vec::new();
        for bytes in self.snapshot.iter().chain(&self.frames) {
            records.extend(decode_batch(bytes).map_err(|e| e.to_string())?.records);
        }
        Ok(records)
    }
}

/// One coordinator, its log, and the judge. Every method fails with a sentence when something does not hold.
#[derive(Debug)]
pub struct Workbench {
    config: GroupConfig,
    seed: u64,
    topics: Arc<Topics>,
    now: Millis,
    coordinator: Coordinator,
    check: Check,
    log: Log,
    rng: Rng,
    next_id: u64,
    record_count: usize,
    dirty: BTreeMap<GroupId, u64>,
    held: Vec<(u64, RequestId)>,
}

impl Workbench {
    /// A coordinator that has just started with an empty log. `mixed`: the groups that both protocols will speak to; of
    /// those less is checked, of the others each protocol must leave the other's groups alone while they have members.
    ///
    /// # Errors
    /// Never in fact: an empty log reads.
    pub fn new(
        config: GroupConfig,
        topics: Arc<Topics>,
        mixed: BTreeSet<GroupId>,
        start: Millis,
    ) -> Result<Self, String> {
        let mut this = Self {
            seed: 7,
            now: start,
            coordinator: Coordinator::new(config.clone(), topics.clone(), 7),
            check: Check::new(config.clone(), topics.clone(), mixed),
            config,
            topics,
            log: Log::default(),
            rng: Rng::new(7),
            next_id: 0,
            record_count: 0,
            dirty: BTreeMap::new(),
            held: Vec::new(),
        };
        this.load()?;
        Ok(this)
    }

    /// The time in there.
    #[must_use]
    pub fn now(&self) -> Millis {
        self.now
    }

    /// All topics now.
    #[must_use]
    pub fn topics(&self) -> &Arc<Topics> {
        &self.topics
    }

    /// Hands a request in. Gives its id, and all replies that it brought about.
    ///
    /// # Errors
    /// What does not hold.
    pub fn ask(
        &mut self,
        request: Request,
    ) -> Result<(RequestId, Vec<(RequestId, Reply)>), String> {
        let id = RequestId(self.next_id);
        self.next_id += 1;
        let mut actions = Actions::default();
        let mut copy = request.clone();
        self.coordinator.handle(self.now, id, request, &mut actions);
        name_joiner(&mut copy, &actions);
        let replies = self.settle(Cause::Request(id, &copy), actions)?;
        Ok((id, replies))
    }

    /// Time passes, and the timers are looked at whenever one is due. With `stall` the server is busy all the while and
    /// looks at the end only.
    ///
    /// # Errors
    /// What does not hold.
    pub fn pass(&mut self, ms: i64, stall: bool) -> Result<Vec<(RequestId, Reply)>, String> {
        let until = self.now.plus(ms);
        let mut replies = Vec::new();
        loop {
            let due = self.coordinator.poll_timeout();
            let Some(due) = due.filter(|due| *due <= until) else {
                self.now = until;
                return Ok(replies);
            };
            self.now = if stall { until } else { self.now.max(due) };
            let mut actions = Actions::default();
            self.coordinator.handle_timeout(self.now, &mut actions);
            let next = self.coordinator.poll_timeout();
            if next.is_some_and(|next| next <= self.now) {
                return Err("a timer that is due was left behind".to_owned());
            }
            replies.extend(self.settle(Cause::Timeout, actions)?);
        }
    }

    /// Topics have changed.
    ///
    /// # Errors
    /// What does not hold.
    pub fn change_topics(
        &mut self,
        change: TopicsChange,
    ) -> Result<Vec<(RequestId, Reply)>, String> {
        self.topics = change.topics.clone();
        let mut actions = Actions::default();
        let copy = change.clone();
        self.coordinator
            .handle_topics(self.now, change, &mut actions);
        self.settle(Cause::Topics(&copy), actions)
    }

    /// What was appended becomes durable, and replies that waited for it leave.
    ///
    /// # Errors
    /// What does not hold.
    pub fn sync(&mut self) -> Result<(), String> {
        self.log.durable = self.log.last;
        let durable = self.log.durable;
        self.dirty.retain(|_, position| *position > durable);
        for (until, id) in std::mem::take(&mut self.held) {
            if until <= durable {
                self.check.leaves(id, durable)?;
            } else {
                self.held.push((until, id));
            }
        }
        Ok(())
    }

    /// The server dies and comes back; of what was not synced, chance decides what is left.
    ///
    /// # Errors
    /// What does not hold.
    pub fn crash(&mut self, chance: u64) -> Result<(), String> {
        self.log.crash(chance);
        self.check.died();
        self.load()
    }

    /// The next append fails.
    pub fn fail_append(&mut self) {
        self.log.fails_next = true;
    }

    /// The dear checks: the log in any order of keys tells the same facts, and a snapshot tells all of them.
    ///
    /// # Errors
    /// What does not hold.
    pub fn replay(&mut self) -> Result<(), String> {
        let records = self.log.records()?;
        self.check
            .replay(&records, &mut self.coordinator, &mut self.rng)?;
        let mut copy = Coordinator::new(self.config.clone(), self.topics.clone(), 0);
        for record in self.coordinator.snapshot() {
            copy.apply(&record);
        }
        if copy.same_facts(&self.coordinator) {
            Ok(())
        } else {
            Err("a snapshot does not tell everything".to_owned())
        }
    }

    fn load(&mut self) -> Result<(), String> {
        self.seed = self
            .seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(1);
        self.check.unloaded();
        self.held.clear();
        self.dirty.clear();
        let topics = self.topics.clone();
        let mut coordinator = Coordinator::new(self.config.clone(), topics, self.seed);
        for record in self.log.records()? {
            coordinator.apply(&record);
        }
        let last = self.log.last;
        self.log.durable = last;
        self.now = self.now.max(coordinator.newest_timestamp());
        self.check
            .recovered(self.now, last, &mut coordinator, &self.topics)?;
        self.coordinator = coordinator;
        let mut actions = Actions::default();
        self.coordinator.loaded(self.now, &mut actions);
        self.settle(Cause::Loaded, actions).map(drop)
    }

    /// Shows the judge what a call did, and appends what it recorded.
    fn settle(
        &mut self,
        cause: Cause<'_>,
        actions: Actions,
    ) -> Result<Vec<(RequestId, Reply)>, String> {
        let position = self.log.last + 1;
        self.check
            .observe(self.now, &mut self.coordinator, cause, &actions, position)?;
        if !actions.records.is_empty() {
            let Some((position, bytes)) = self.log.append(&actions.records, self.now) else {
                // Nothing is rolled back: the coordinator is loaded again, and nobody hears of what it did.
                self.load()?;
                return Ok(Vec::new());
            };
            self.check.appended(&bytes, &self.coordinator)?;
            self.record_count += actions.records.len();
            for record in &actions.records {
                self.dirty.insert(record.group_id().clone(), position);
            }
        }
        let mut replies = Vec::new();
        for answer in actions.replies {
            let until = match &answer.after {
                After::Group(group_id) => self.dirty.get(group_id).copied(),
                After::Shard => self.dirty.values().max().copied(),
            };
            match until {
                None => self.check.leaves(answer.id, self.log.durable)?,
                Some(until) => self.held.push((until, answer.id)),
            }
            replies.push((answer.id, answer.reply));
        }
        if self.record_count > RECORDS_MAX {
            self.record_count = 0;
            self.sync()?;
            self.snapshot()?;
        }
        Ok(replies)
    }

    fn snapshot(&mut self) -> Result<(), String> {
        let records: Vec<_> = self.coordinator.snapshot().collect();
        let mut slices = Vec::new();
        for slice in records.chunks(SNAPSHOT_SLICE) {
            let bytes = encode_batch(slice, 0, self.now)
                .map_err(|e| format!("what came from a log cannot be written to one: {e}"))?;
            slices.push(bytes);
        }
        self.log.snapshot = slices;
        self.log.frames.clear();
        Ok(())
    }
}

/// A member of version 0 may leave its id to the coordinator: the judge is shown the one it was given.
fn name_joiner(request: &mut Request, actions: &Actions) {
    if let Request::ConsumerHeartbeat(heartbeat) = request
        && heartbeat.member_id.is_empty()
        && let Some(Reply::ConsumerHeartbeat(reply)) = actions.replies.first().map(|a| &a.reply)
        && let Some(member_id) = &reply.member_id
    {
        heartbeat.member_id = member_id.clone();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::request::{ConsumerHeartbeat, OffsetCommit};
    use crate::group::types::Client;

    fn commit(group_id: &str) -> Request {
        Request::OffsetCommit(OffsetCommit {
            group_id: group_id.into(),
            client: Client::default(),
            member_id: "".into(),
            generation_or_epoch: -1,
            group_instance_id: None,
            retention_time_ms: None,
            consumer_errors: true,
            topics: Vec::new(),
        })
    }

    fn workbench() -> Workbench {
        let topics = Arc::default();
        Workbench::new(
            GroupConfig::default(),
            topics,
            BTreeSet::new(),
            Millis(1_000),
        )
        .unwrap()
    }

    #[test]
    fn an_answer_comes_with_the_id_of_its_request() {
        let mut bench = workbench();
        let (id, replies) = bench.ask(commit("g")).unwrap();
        assert_eq!(replies.len(), 1);
        assert_eq!(replies[0].0, id);
        bench.pass(1_000_000, false).unwrap();
        bench.replay().unwrap();
    }

    #[test]
    fn an_append_that_fails_takes_its_replies_along() {
        let mut bench = workbench();
        bench.fail_append();
        let join = ConsumerHeartbeat {
            group_id: "k".into(),
            client: Client::default(),
            member_id: "m".into(),
            member_epoch: 0,
            instance_id: None,
            rack_id: None,
            rebalance_timeout_ms: 5_000,
            subscribed_topic_names: Some(vec!["t".into()]),
            subscribed_topic_regex: None,
            server_assignor: None,
            topic_partitions: Some(Vec::new()),
            member_id_from_client: true,
        };
        let (_, replies) = bench.ask(Request::ConsumerHeartbeat(join.clone())).unwrap();
        assert!(replies.is_empty());
        let (_, replies) = bench.ask(Request::ConsumerHeartbeat(join)).unwrap();
        assert_eq!(replies.len(), 1);
        bench.sync().unwrap();
        bench.crash(3).unwrap();
        bench.replay().unwrap();
    }
}
