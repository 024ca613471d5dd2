//! What must hold after every step, told a second time and in plainer words than the core's: from requests, replies and
//! time alone. The core is asked only what any client may ask: who is in a group, and which offsets are committed.

mod classic;
mod consumer;
mod journal;
mod offsets;
mod topics;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::classic::{Group, Phase, Seen};
use self::offsets::Offsets;
use self::topics::TopicRules;
use super::pattern;
use super::rng::Rng;
use crate::group::record::Record;
use crate::group::request::{
    ConsumerDescribeReply, Describe, DescribeReply, ErrorCode, List, OffsetFetch, OffsetFetchReply,
    Reply, Request, RequestId,
};
use crate::group::types::{Client, GroupId, MemberId, Millis, TopicName, Topics, TopicsChange};
use crate::group::{Actions, After, Answer, Coordinator, GroupConfig};
use crate::wire::records::decode_batch;

/// `Err` says in words what does not hold.
pub(super) type Verdict = Result<(), String>;

/// Questions of our own carry this id.
const OURS: RequestId = RequestId(u64::MAX);

/// Why the coordinator was called.
#[derive(Clone, Copy, Debug)]
pub(super) enum Cause<'a> {
    Request(RequestId, &'a Request),
    Timeout,
    Topics(&'a TopicsChange),
    Loaded,
}

/// A fact as it must be found again after a crash.
#[derive(Clone, Debug)]
enum Fact {
    Group(GroupId, Option<Box<Group>>),
    /// A consumer group's epoch.
    Consumer(GroupId, Option<i32>),
    Offset(GroupId, offsets::Key, Option<offsets::Value>),
}

/// The judge of one world.
#[derive(Debug)]
pub(super) struct Check {
    config: GroupConfig,
    topics: Arc<Topics>,
    /// The newest moment at which this coordinator was called.
    clock: Millis,
    groups: BTreeMap<GroupId, Group>,
    consumers: BTreeMap<GroupId, consumer::Group>,
    /// Groups that go from one protocol to the other: of those only the consumer side is followed in full.
    mixed: BTreeSet<GroupId>,
    /// The newest generation and the members of a mixed group while it is a classic one.
    mixed_generations: BTreeMap<GroupId, (i32, BTreeSet<MemberId>)>,
    /// Offsets of consumer groups that expire in the running call.
    expiring: Vec<(GroupId, TopicName)>,
    offsets: Offsets,
    /// What was recorded, with its position in the log.
    journal: Vec<(u64, Fact)>,
    /// Requests that were handed in and are not answered.
    open: BTreeMap<RequestId, (std::mem::Discriminant<Request>, GroupId)>,
    /// For answered requests: the position that must be durable before the reply leaves.
    needs: BTreeMap<RequestId, u64>,
    /// Where each group's newest record lies.
    newest: BTreeMap<GroupId, u64>,
    /// Up to where clients have been told what was recorded.
    told: u64,
    /// What the coordinator's own journal said.
    journals: journal::Journals,
    /// Knows only what the bytes of the log say.
    shadow: Coordinator,
    pub(super) topic_rules: TopicRules,
}

impl Check {
    pub(super) fn new(config: GroupConfig, topics: Arc<Topics>, mixed: BTreeSet<GroupId>) -> Self {
        Self {
            mixed,
            mixed_generations: BTreeMap::new(),
            expiring: Vec::new(),
            consumers: BTreeMap::new(),
            shadow: Coordinator::new(config.clone(), topics.clone(), 0),
            config,
            topics,
            clock: Millis::default(),
            groups: BTreeMap::new(),
            offsets: Offsets::default(),
            journal: Vec::new(),
            open: BTreeMap::new(),
            needs: BTreeMap::new(),
            newest: BTreeMap::new(),
            told: 0,
            topic_rules: TopicRules::default(),
            journals: journal::Journals::default(),
        }
    }

    /// The coordinator is gone: whoever was parked is told by the shell, or never.
    pub(super) fn unloaded(&mut self) {
        self.journals.lose();
        self.open.clear();
    }

    /// The process is gone, and with it every reply that waited.
    pub(super) fn died(&mut self) {
        self.unloaded();
        self.needs.clear();
    }

    /// The log was read up to `last`, and `coordinator` holds what it says.
    pub(super) fn recovered(
        &mut self,
        now: Millis,
        last: u64,
        coordinator: &mut Coordinator,
        topics: &Arc<Topics>,
    ) -> Verdict {
        if self.told > last {
            return Err(format!(
                "clients were told of what stood at {} in the log, which now ends at {last}",
                self.told
            ));
        }
        self.topics = topics.clone();
        self.clock = now;
        self.journal.retain(|(position, _)| *position <= last);
        self.newest.clear();
        self.groups.clear();
        self.consumers.clear();
        self.mixed_generations.clear();
        self.offsets = Offsets::default();
        self.shadow = Coordinator::new(self.config.clone(), topics.clone(), 0);
        let records: Vec<_> = coordinator.snapshot().collect();
        for record in &records {
            self.shadow.apply(record);
            if let Record::GroupMetadata {
                group_id,
                value: Some(value),
            } = record
                && self.mixed.contains(group_id)
            {
                let found = (value.generation, BTreeSet::new());
                self.mixed_generations.insert(group_id.clone(), found);
            }
        }
        for (position, fact) in &self.journal {
            match fact {
                Fact::Group(group_id, Some(group)) => {
                    self.newest.insert(group_id.clone(), *position);
                    self.groups.insert(group_id.clone(), (**group).clone());
                }
                Fact::Group(group_id, None) => {
                    self.newest.insert(group_id.clone(), *position);
                    self.groups.remove(group_id);
                }
                Fact::Consumer(group_id, epoch) => {
                    self.newest.insert(group_id.clone(), *position);
                    match epoch {
                        Some(epoch) => {
                            let group = consumer::Group::at(*epoch);
                            self.consumers.insert(group_id.clone(), group);
                        }
                        None => drop(self.consumers.remove(group_id)),
                    }
                }
                Fact::Offset(group_id, key, value) => {
                    self.newest.insert(group_id.clone(), *position);
                    self.offsets.set(group_id, key, value.clone());
                }
            }
        }
        for group_id in self.offsets.groups() {
            // Made by a commit, a group has no record of its own.
            if !self.consumers.contains_key(group_id) {
                self.groups.entry(group_id.clone()).or_default();
            }
        }
        for group in self.groups.values_mut() {
            group.reload(now);
        }
        if self.offsets.newest() > now {
            return Err(format!("it is {now:?}, but an offset was committed later"));
        }
        if !self.shadow.same_facts(coordinator) {
            return Err("a snapshot does not tell everything".to_owned());
        }
        self.compare_offsets(coordinator)
    }

    /// A batch was appended: the facts must be what its bytes say.
    pub(super) fn appended(&mut self, bytes: &[u8], coordinator: &Coordinator) -> Verdict {
        let batch = decode_batch(bytes).map_err(|e| e.to_string())?;
        for record in &batch.records {
            self.shadow.apply(record);
        }
        if self.shadow.same_facts(coordinator) {
            Ok(())
        } else {
            Err("live facts and replayed facts differ".to_owned())
        }
    }

    /// A reply leaves.
    pub(super) fn leaves(&mut self, id: RequestId, durable: u64) -> Verdict {
        let needed = self.needs.remove(&id).unwrap_or(0);
        self.told = self.told.max(needed);
        if needed > durable {
            return Err(format!(
                "a reply leaves that tells of {needed}, but the log is durable up to {durable} only"
            ));
        }
        Ok(())
    }

    /// Takes in what a call of the coordinator did.
    pub(super) fn observe(
        &mut self,
        now: Millis,
        coordinator: &mut Coordinator,
        cause: Cause<'_>,
        actions: &Actions,
        position: u64,
    ) -> Verdict {
        if now < self.clock {
            return Err(format!(
                "the clock goes from {:?} back to {now:?}",
                self.clock
            ));
        }
        self.clock = now;
        let mut touched: BTreeSet<GroupId> = BTreeSet::new();
        match cause {
            Cause::Request(id, request) => {
                let group_id = request.group_id().cloned().unwrap_or_default();
                let kind = std::mem::discriminant(request);
                self.open.insert(id, (kind, group_id.clone()));
                touched.insert(group_id);
            }
            Cause::Topics(change) => {
                self.topics = change.topics.clone();
                if !change.deleted.is_empty() {
                    self.journals.topics_went();
                }
            }
            Cause::Timeout => {
                touched.extend(self.groups.keys().cloned());
                touched.extend(self.consumers.keys().cloned());
            }
            Cause::Loaded => {
                touched.extend(self.groups.keys().cloned());
                touched.extend(list(coordinator));
            }
        }
        if let Some(timer) = coordinator.stray_timer() {
            return Err(format!("a timer is armed for what is gone: {timer}"));
        }
        self.take_replies(actions)?;
        self.take_records(now, cause, actions, position, &mut touched)?;
        for group_id in touched {
            self.advance(now, coordinator, &group_id, cause, actions, position)
                .and_then(|()| {
                    let adds_up = !self.mixed.contains(&group_id);
                    let journals = &mut self.journals;
                    journals.read(now, coordinator, &group_id, adds_up)
                })
                .map_err(|text| format!("group {group_id}: {text}"))?;
        }
        // Of groups that went together with their offsets.
        self.expiring.clear();
        for answer in &actions.replies {
            let needed = match &answer.after {
                After::Shard => self.newest.values().max().copied(),
                After::Group(group_id) => self.newest.get(group_id).copied(),
            };
            self.needs.insert(answer.id, needed.unwrap_or(0));
        }
        Ok(())
    }

    /// Every request is answered at most once, and with what was asked for.
    fn take_replies(&mut self, actions: &Actions) -> Verdict {
        for answer in &actions.replies {
            let Some((kind, group_id)) = self.open.remove(&answer.id) else {
                return Err(format!(
                    "{:?} is answered, but nobody waits for it: {:?}",
                    answer.id, answer.reply
                ));
            };
            if !answers(kind, &answer.reply) {
                return Err(format!(
                    "{:?} is no answer to {:?}",
                    answer.reply, answer.id
                ));
            }
            if let After::Group(after) = &answer.after
                && *after != group_id
            {
                return Err(format!(
                    "a reply about {group_id} waits for records of {after}"
                ));
            }
        }
        for id in &actions.superseded {
            if self.open.remove(id).is_none() {
                return Err(format!("{id:?} is superseded, but nobody waits for it"));
            }
        }
        Ok(())
    }

    fn take_records(
        &mut self,
        now: Millis,
        cause: Cause<'_>,
        actions: &Actions,
        position: u64,
        touched: &mut BTreeSet<GroupId>,
    ) -> Verdict {
        let before = self.journal.len();
        match cause {
            Cause::Request(_, Request::OffsetCommit(request)) => {
                self.commit(now, request, actions, position)?;
            }
            Cause::Request(_, Request::OffsetFetch(request)) => self.fetch(request, actions)?,
            Cause::Request(_, Request::OffsetDelete(request)) => {
                self.delete_offsets(request, actions, position)?;
            }
            Cause::Request(_, Request::Delete { group_id }) => {
                let deleted = actions.replies.iter().any(|answer| {
                    matches!(&answer.reply, Reply::Delete { error, .. } if *error == ErrorCode::None)
                });
                if deleted {
                    for key in self.offsets.keys(group_id) {
                        self.record_offset(group_id, key, None, position);
                    }
                }
            }
            Cause::Topics(change) => {
                for (topic, topic_id) in &change.deleted {
                    for (group_id, key) in self.offsets.of_topic(topic, *topic_id) {
                        self.record_offset(&group_id, key, None, position);
                    }
                }
            }
            Cause::Timeout => self.expire(now, actions, position)?,
            _ => {}
        }
        self.compare_records(actions, before)?;
        for record in &actions.records {
            touched.insert(record.group_id().clone());
            self.newest.insert(record.group_id().clone(), position);
        }
        Ok(())
    }

    /// The offsets that were recorded must be those that should have been.
    fn compare_records(&self, actions: &Actions, before: usize) -> Verdict {
        let mut expected: BTreeMap<_, _> = BTreeMap::new();
        for (_, fact) in &self.journal[before..] {
            if let Fact::Offset(group_id, key, value) = fact {
                expected.insert((group_id.clone(), key.clone()), value.clone());
            }
        }
        let mut found: BTreeMap<_, _> = BTreeMap::new();
        for record in &actions.records {
            if let Record::OffsetCommit {
                group_id,
                topic,
                partition,
                value,
            } = record
            {
                let key = (topic.clone(), *partition);
                found.insert((group_id.clone(), key), value.clone());
            }
        }
        if expected == found {
            Ok(())
        } else {
            Err(format!(
                "these offsets should be recorded: {expected:?}; these are: {found:?}"
            ))
        }
    }

    fn record_offset(
        &mut self,
        group_id: &GroupId,
        key: offsets::Key,
        value: Option<offsets::Value>,
        position: u64,
    ) {
        self.offsets.set(group_id, &key, value.clone());
        self.journal
            .push((position, Fact::Offset(group_id.clone(), key, value)));
    }

    fn advance(
        &mut self,
        now: Millis,
        coordinator: &mut Coordinator,
        group_id: &GroupId,
        cause: Cause<'_>,
        actions: &Actions,
        position: u64,
    ) -> Verdict {
        let consumer = consumer_describe(coordinator, group_id);
        if consumer.error == ErrorCode::None {
            return self.advance_consumer(now, group_id, cause, actions, position, &consumer);
        }
        if let Some(group) = self.consumers.remove(group_id) {
            self.journal
                .push((position, Fact::Consumer(group_id.clone(), None)));
            let lively = !group.members.is_empty() && !self.mixed.contains(group_id);
            if lively && !matches!(cause, Cause::Timeout) {
                return Err("a consumer group with members has vanished".to_owned());
            }
        }
        let after = describe(now, coordinator, group_id);
        if self.mixed.contains(group_id) {
            return self.advance_mixed(group_id, actions, &after);
        }
        let recorded = actions
            .records
            .iter()
            .rev()
            .find_map(|record| match record {
                Record::GroupMetadata {
                    group_id: of,
                    value,
                } if of == group_id => Some(value),
                _ => None,
            });
        let deleted = matches!(recorded, Some(None));
        if after.error == ErrorCode::GroupIdNotFound {
            let group = self.groups.remove(group_id);
            if group.is_some() {
                self.journal
                    .push((position, Fact::Group(group_id.clone(), None)));
            }
            let emptied = became_empty(&actions.records, group_id);
            if group.is_some_and(|group| !group.members.is_empty()) && !emptied {
                return Err("a group with members has vanished".to_owned());
            }
            if !self.offsets.is_empty(group_id) {
                return Err("a group with offsets has vanished".to_owned());
            }
            return self.check_stranger(cause, actions);
        }
        if let Cause::Request(_, Request::Delete { .. }) = cause
            && actions.replies.iter().any(|answer| {
                matches!(&answer.reply, Reply::Delete { error, .. } if *error == ErrorCode::None)
            })
        {
            return Err("the group was deleted, but it is still there".to_owned());
        }
        if deleted {
            return Err("the group is still there, but its record is gone".to_owned());
        }
        if !self.groups.contains_key(group_id) {
            self.check_stranger(cause, actions)?;
        }
        let replies: Vec<&Answer> = actions
            .replies
            .iter()
            .filter(|answer| matches!(&answer.after, After::Group(of) if of == group_id))
            .collect();
        let request = match cause {
            Cause::Request(id, request) => Some((id, request)),
            _ => None,
        };
        let group = self.groups.entry(group_id.clone()).or_default();
        if group.members.is_empty()
            && group.phase == Phase::Empty
            && group.generation == 0
            && let Some(Some(value)) = recorded
        {
            group.emptied = value.current_state_timestamp;
        }
        if matches!(cause, Cause::Loaded) && group.phase != Phase::Empty {
            group.reload(now);
        }
        let seen = Seen {
            now,
            request,
            timeout: matches!(cause, Cause::Timeout),
            loaded: matches!(cause, Cause::Loaded),
            replies: &replies,
            superseded: &actions.superseded,
            recorded: recorded.and_then(|value| value.as_ref().map(|value| value.generation)),
            after: &after,
            config: &self.config,
        };
        group.advance(&seen)?;
        if let Some(generation) = seen.recorded {
            let fact = Fact::Group(group_id.clone(), Some(Box::new(group.durable(generation))));
            self.journal.push((position, fact));
        }
        Ok(())
    }

    fn advance_consumer(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        cause: Cause<'_>,
        actions: &Actions,
        position: u64,
        after: &ConsumerDescribeReply,
    ) -> Verdict {
        self.mixed_generations.remove(group_id);
        if let Some(group) = self.groups.remove(group_id) {
            self.journal
                .push((position, Fact::Group(group_id.clone(), None)));
            if !group.members.is_empty() && !self.mixed.contains(group_id) {
                return Err("a classic group with members became a consumer group".to_owned());
            }
        }
        for (_, topic) in self.expiring.extract_if(.., |(of, _)| of == group_id) {
            // A pattern stands for topics that exist; a name stands for itself.
            let exists = self.topics.get(&topic).is_some();
            let used = after.members.iter().any(|member| {
                let regex = &member.subscribed_topic_regex;
                member.subscribed_topic_names.contains(&topic)
                    || exists && pattern::matches(regex, &topic)
            });
            if used {
                return Err(format!(
                    "an offset of {topic} expires, but the group uses it"
                ));
            }
        }
        let (request, own_reply) = match cause {
            Cause::Request(id, request) => {
                let own = actions.replies.iter().find(|answer| answer.id == id);
                (Some(request), own.map(|answer| &answer.reply))
            }
            _ => (None, None),
        };
        let anew = matches!(cause, Cause::Loaded) || !self.consumers.contains_key(group_id);
        let group = self.consumers.entry(group_id.clone()).or_default();
        group.advance(&consumer::Seen {
            now,
            request,
            own_reply,
            timeout: matches!(cause, Cause::Timeout),
            anew,
            after,
            config: &self.config,
        })?;
        if actions
            .records
            .iter()
            .any(|record| record.group_id() == group_id)
        {
            let fact = Fact::Consumer(group_id.clone(), Some(after.group_epoch));
            self.journal.push((position, fact));
        }
        Ok(())
    }

    /// A mixed group while it is a classic one: its generations go forward, and that is all that is asked.
    fn advance_mixed(
        &mut self,
        group_id: &GroupId,
        actions: &Actions,
        after: &DescribeReply,
    ) -> Verdict {
        if after.error != ErrorCode::None {
            self.groups.remove(group_id);
            self.mixed_generations.remove(group_id);
            return Ok(());
        }
        let recorded = actions.records.iter().filter_map(|record| match record {
            Record::GroupMetadata {
                group_id: of,
                value: Some(value),
            } if of == group_id => Some(value.generation),
            _ => None,
        });
        let of_it = actions
            .replies
            .iter()
            .filter(|answer| matches!(&answer.after, After::Group(of) if of == group_id));
        let joined = of_it.filter_map(|answer| match &answer.reply {
            Reply::Join(reply) if reply.error == ErrorCode::None => Some(reply.generation),
            _ => None,
        });
        let newest = recorded.chain(joined).max();
        let members = after.members.iter().map(|member| member.member_id.clone());
        let standing = self
            .mixed_generations
            .entry(group_id.clone())
            .or_insert((-1, BTreeSet::new()));
        standing.0 = standing.0.max(newest.unwrap_or(-1));
        standing.1 = members.collect();
        // An entry says that the group exists.
        self.groups.entry(group_id.clone()).or_default();
        Ok(())
    }

    /// What a request about a group that does not exist must be told.
    fn check_stranger(&self, cause: Cause<'_>, actions: &Actions) -> Verdict {
        let Cause::Request(id, request) = cause else {
            return Ok(());
        };
        let reply = actions.replies.iter().find(|answer| answer.id == id);
        let told = match (request, reply.map(|answer| &answer.reply)) {
            (Request::Heartbeat(_), Some(Reply::Heartbeat(error))) => *error,
            (Request::Sync(_), Some(Reply::Sync(reply))) => reply.error,
            _ => return Ok(()),
        };
        if told == ErrorCode::None {
            return Err("a group that does not exist took a member's word".to_owned());
        }
        Ok(())
    }

    /// The dear check: the log, replayed by any order of keys, tells the same facts.
    pub(super) fn replay(
        &self,
        records: &[Record],
        coordinator: &mut Coordinator,
        rng: &mut Rng,
    ) -> Verdict {
        let mut last: BTreeMap<Vec<u8>, &Record> = BTreeMap::new();
        for record in records {
            last.insert(key_of(record), record);
        }
        let mut compacted: Vec<_> = last.into_values().collect();
        rng.shuffle(&mut compacted);
        let mut replayed = Coordinator::new(self.config.clone(), self.topics.clone(), 0);
        for record in compacted {
            replayed.apply(record);
        }
        if !replayed.same_facts(coordinator) {
            return Err(
                "a compacted log, read in another order of keys, tells other facts".to_owned(),
            );
        }
        self.compare_offsets(coordinator)
    }

    fn compare_offsets(&self, coordinator: &mut Coordinator) -> Verdict {
        let groups: BTreeSet<&GroupId> = self.offsets.groups().chain(self.groups.keys()).collect();
        for group_id in groups {
            let reply = fetch_all(coordinator, group_id);
            self.offsets.compare(group_id, &reply)?;
        }
        Ok(())
    }

    /// The generation of a group and whether somebody is one of its members.
    pub(super) fn standing(&self, group_id: &str, member_id: &str) -> Option<i32> {
        if let Some(group) = self.consumers.get(group_id) {
            return group.members.get(member_id).map(|member| member.epoch);
        }
        if let Some((generation, members)) = self.mixed_generations.get(group_id) {
            return members.contains(member_id).then_some(*generation);
        }
        let group = self.groups.get(group_id)?;
        group
            .members
            .contains_key::<MemberId>(&member_id.into())
            .then_some(group.generation)
    }

    /// Whether a group goes from one protocol to the other.
    pub(super) fn is_mixed(&self, group_id: &str) -> bool {
        self.mixed.contains(group_id)
    }

    /// Whether nothing is going on in a group.
    pub(super) fn is_settled(&self, group_id: &str) -> bool {
        if let Some(group) = self.consumers.get(group_id) {
            return group.is_stable;
        }
        self.groups
            .get(group_id)
            .is_none_or(|group| matches!(group.phase, Phase::Empty | Phase::Stable))
    }

    /// How many members a group has.
    pub(super) fn member_count(&self, group_id: &str) -> usize {
        if let Some(group) = self.consumers.get(group_id) {
            return group.members.len();
        }
        if let Some((_, members)) = self.mixed_generations.get(group_id) {
            return members.len();
        }
        self.groups
            .get(group_id)
            .map_or(0, |group| group.members.len())
    }

    /// The requests that nobody has answered.
    pub(super) fn open_count(&self) -> usize {
        self.open.len()
    }
}

fn answers(kind: std::mem::Discriminant<Request>, reply: &Reply) -> bool {
    let of = |request: &Request| std::mem::discriminant(request) == kind;
    let group_id: GroupId = "".into();
    match reply {
        Reply::List(_) => of(&Request::List(List::default())),
        Reply::Delete { .. } => of(&Request::Delete { group_id }),
        Reply::ConsumerDescribe(_) => of(&Request::ConsumerDescribe { group_id }),
        Reply::Describe(_) => of(&Request::Describe(Describe {
            group_id,
            unknown_is_error: true,
        })),
        // The rest is held apart by the client, which knows what it asked.
        _ => true,
    }
}

fn describe(now: Millis, coordinator: &mut Coordinator, group_id: &GroupId) -> DescribeReply {
    let mut actions = Actions::default();
    let request = Request::Describe(Describe {
        group_id: group_id.clone(),
        unknown_is_error: true,
    });
    coordinator.handle(now, OURS, request, &mut actions);
    match actions.replies.pop().map(|answer| answer.reply) {
        Some(Reply::Describe(reply)) => reply,
        other => unreachable!("a description, not {other:?}"),
    }
}

fn consumer_describe(coordinator: &mut Coordinator, group_id: &GroupId) -> ConsumerDescribeReply {
    let mut actions = Actions::default();
    let request = Request::ConsumerDescribe {
        group_id: group_id.clone(),
    };
    coordinator.handle(Millis(0), OURS, request, &mut actions);
    match actions.replies.pop().map(|answer| answer.reply) {
        Some(Reply::ConsumerDescribe(reply)) => reply,
        other => unreachable!("a description, not {other:?}"),
    }
}

/// Every group there is.
fn list(coordinator: &mut Coordinator) -> Vec<GroupId> {
    let mut actions = Actions::default();
    let request = Request::List(List::default());
    coordinator.handle(Millis(0), OURS, request, &mut actions);
    match actions.replies.pop().map(|answer| answer.reply) {
        Some(Reply::List(reply)) => reply
            .groups
            .into_iter()
            .map(|group| group.group_id)
            .collect(),
        other => unreachable!("a list, not {other:?}"),
    }
}

fn fetch_all(coordinator: &mut Coordinator, group_id: &GroupId) -> OffsetFetchReply {
    let mut actions = Actions::default();
    let request = Request::OffsetFetch(OffsetFetch {
        group_id: group_id.clone(),
        client: Client::default(),
        member_id: None,
        member_epoch: -1,
        topics: None,
        by_topic_id: false,
        require_stable: false,
    });
    coordinator.handle(Millis(0), OURS, request, &mut actions);
    match actions.replies.pop().map(|answer| answer.reply) {
        Some(Reply::OffsetFetch(reply)) => reply,
        other => unreachable!("offsets, not {other:?}"),
    }
}

/// Whether a group lost its last member in a call.
fn became_empty(records: &[Record], of: &GroupId) -> bool {
    records.iter().any(|record| {
        matches!(record, Record::GroupMetadata { group_id, value: Some(value) }
            if group_id == of && value.members.is_empty())
    })
}

/// The bytes by which compaction tells records apart.
fn key_of(record: &Record) -> Vec<u8> {
    let (kind, parts): (u8, Vec<&[u8]>) = match record {
        Record::OffsetCommit {
            topic, partition, ..
        } => {
            let mut key = vec![1];
            for part in [record.group_id().as_bytes(), topic.as_bytes()] {
                key.extend_from_slice(&(part.len() as u32).to_be_bytes());
                key.extend_from_slice(part);
            }
            key.extend_from_slice(&partition.to_be_bytes());
            return key;
        }
        Record::GroupMetadata { .. } => (2, vec![]),
        Record::ConsumerGroupMetadata { .. } => (3, vec![]),
        Record::ConsumerGroupMemberMetadata { member_id, .. } => (5, vec![member_id.as_bytes()]),
        Record::ConsumerGroupTargetAssignmentMetadata { .. } => (6, vec![]),
        Record::ConsumerGroupTargetAssignmentMember { member_id, .. } => {
            (7, vec![member_id.as_bytes()])
        }
        Record::ConsumerGroupCurrentMemberAssignment { member_id, .. } => {
            (8, vec![member_id.as_bytes()])
        }
        Record::ConsumerGroupRegularExpression { regex, .. } => (16, vec![regex.as_bytes()]),
    };
    let mut key = vec![kind];
    for part in [record.group_id().as_bytes()].into_iter().chain(parts) {
        key.extend_from_slice(&(part.len() as u32).to_be_bytes());
        key.extend_from_slice(part);
    }
    key
}
