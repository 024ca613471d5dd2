//! Committed offsets: commit, fetch, delete, expiry, and what becomes of them when a topic goes (semantics 4).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::classic::Phase;
use super::consumer::stale;
use super::journal::touch::{Name, who};
use super::operator::{AuditEntry, Toucher};
use super::reconcile::epoch_of;
use super::record::{OffsetValue, Record};
use super::request::{
    CommitPartition, CommitTopic, ErrorCode, FetchTopic, FetchedPartition, FetchedTopic,
    OffsetCommit, OffsetCommitReply, OffsetDelete, OffsetDeleteReply, OffsetFetch,
    OffsetFetchReply, Reply, RequestId, TopicErrors,
};
use super::state::{ConsumerGroup, Entry, Offsets, Touching};
use super::timers::Timer;
use super::types::{GroupId, Millis, Topic, TopicName, TopicRef, Topics};
use super::{Actions, Coordinator};

/// How long before they expire offsets are counted as expiring.
const WARNING_MS: i64 = 86_400_000;

/// A topic of a commit that exists, with those of its partitions that exist.
struct Known<'a> {
    asked: &'a TopicRef,
    name: TopicName,
    topic: Topic,
    partitions: Vec<CommitPartition>,
}

/// Looks up a topic as a request names it.
fn find<'a>(topics: &'a Topics, topic: &TopicRef) -> Result<(&'a TopicName, &'a Topic), ErrorCode> {
    match topic {
        TopicRef::Name(name) => topics.entry(name).ok_or(ErrorCode::UnknownTopicOrPartition),
        TopicRef::Id(id) => topics
            .name_of(*id)
            .and_then(|name| topics.entry(name))
            .ok_or(ErrorCode::UnknownTopicId),
    }
}

/// Puts answers together the way Kafka does: in request order as long as nothing was refused at the door; with
/// refusals, these first and everything merged by topic.
#[derive(Default)]
struct Answers {
    refused: Vec<TopicErrors>,
    places: BTreeMap<TopicRef, usize>,
}

impl Answers {
    fn add(&mut self, topic: &TopicRef, partitions: impl IntoIterator<Item = (i32, ErrorCode)>) {
        let place = *self.places.entry(topic.clone()).or_insert_with(|| {
            self.refused.push(TopicErrors {
                topic: topic.clone(),
                partitions: Vec::new(),
            });
            self.refused.len() - 1
        });
        self.refused[place].partitions.extend(partitions);
    }

    fn merge(mut self, answered: Vec<TopicErrors>) -> Vec<TopicErrors> {
        if self.refused.is_empty() {
            return answered;
        }
        for topic in answered {
            self.add(&topic.topic, topic.partitions);
        }
        self.refused
    }
}

impl Coordinator {
    /// OffsetCommit.
    pub(super) fn offset_commit(
        &mut self,
        now: Millis,
        id: RequestId,
        request: OffsetCommit,
        actions: &mut Actions,
    ) {
        let topics = self.topics.clone();
        let mut answers = Answers::default();
        let known: Vec<_> = request
            .topics
            .iter()
            .filter_map(|topic| known_partitions(&topics, topic, &mut answers))
            .collect();
        let answered = if known.is_empty() {
            Vec::new()
        } else {
            match self.check_commit(now, &request, &known) {
                Ok(()) => self.store(now, &request, known, actions),
                Err(error) => known
                    .into_iter()
                    .map(|topic| all_refused(topic, error))
                    .collect(),
            }
        };
        let reply = OffsetCommitReply {
            topics: answers.merge(answered),
        };
        actions.reply(id, &request.group_id, Reply::OffsetCommit(reply));
    }

    /// Whether the sender may commit; its session goes on if so.
    fn check_commit(
        &mut self,
        now: Millis,
        request: &OffsetCommit,
        known: &[Known<'_>],
    ) -> Result<(), ErrorCode> {
        let group_id = &request.group_id;
        let generation = request.generation_or_epoch;
        if let Some(group) = self.state.consumer(group_id) {
            return self.check_consumer_commit(group, request, known);
        }
        let Some(group) = self.classic.get(&**group_id) else {
            return match (generation < 0, self.exists(group_id)) {
                // Nobody is here: assign mode, whatever the member id says.
                (true, _) => Ok(()),
                (false, true) => Err(ErrorCode::UnknownMemberId),
                (false, false) if request.consumer_errors => Err(ErrorCode::GroupIdNotFound),
                (false, false) => Err(ErrorCode::IllegalGeneration),
            };
        };
        let phase = group.phase();
        if generation < 0 {
            if phase == Phase::Empty {
                return Ok(());
            }
            if request.member_id.is_empty() && request.group_instance_id.is_none() {
                return Err(ErrorCode::UnknownMemberId);
            }
        }
        group.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if generation != group.generation() {
            return Err(ErrorCode::IllegalGeneration);
        }
        if phase == Phase::CompletingRebalance {
            return Err(ErrorCode::RebalanceInProgress);
        }
        self.arm_session(now, group_id, &request.member_id);
        Ok(())
    }

    /// As [`Self::check_commit`], for a consumer group. Of an older epoch, those partitions may still be committed that
    /// the member has had since then (KIP-1251). The session does not hear of it.
    fn check_consumer_commit(
        &self,
        group: &ConsumerGroup,
        request: &OffsetCommit,
        known: &[Known<'_>],
    ) -> Result<(), ErrorCode> {
        let epoch = request.generation_or_epoch;
        if epoch < 0 && group.is_empty() {
            return Ok(());
        }
        let member = group
            .member(&request.member_id)
            .ok_or(ErrorCode::UnknownMemberId)?;
        if member.told().classic.is_none() && !request.consumer_errors {
            return Err(ErrorCode::UnsupportedVersion);
        }
        let current = member.current();
        if epoch == current.member_epoch {
            return Ok(());
        }
        let has_since = |topic: &Topic, partition: &CommitPartition| {
            let lists = [&current.assigned, &current.pending_revocation];
            let mut since = lists
                .into_iter()
                .filter_map(|l| epoch_of(l, topic.id, partition.index));
            since.any(|since| since <= epoch)
                || too_long(&partition.metadata, self.config.offset_metadata_max_units)
        };
        let fresh = epoch < current.member_epoch
            && known
                .iter()
                .all(|k| k.partitions.iter().all(|p| has_since(&k.topic, p)));
        if fresh { Ok(()) } else { Err(stale(member)) }
    }

    fn store(
        &mut self,
        now: Millis,
        request: &OffsetCommit,
        known: Vec<Known<'_>>,
        actions: &mut Actions,
    ) -> Vec<TopicErrors> {
        let expire_timestamp = request
            .retention_time_ms
            .filter(|ms| *ms >= 0)
            .map(|retention_ms| now.plus(retention_ms));
        let mut left = self.offsets_left(&request.group_id);
        let by = self.committer(request, &known);
        self.state.touching = by.clone().map(|by| Touching {
            by,
            window_ms: self.journal.config().conflict_window_ms,
        });
        let mut answered = Vec::with_capacity(known.len());
        for Known {
            asked,
            name,
            topic,
            partitions,
        } in known
        {
            let mut outcomes = Vec::with_capacity(partitions.len());
            for partition in partitions {
                let index = partition.index;
                if too_long(&partition.metadata, self.config.offset_metadata_max_units) {
                    outcomes.push((index, ErrorCode::OffsetMetadataTooLarge));
                    continue;
                }
                if !self.orders.is_empty()
                    && let Some(error) = self.fenced(now, request, (&name, topic.id), index)
                {
                    outcomes.push((index, error));
                    continue;
                }
                if let Some(left) = &mut left {
                    let entry = self.state.group(&request.group_id);
                    let is_new = entry.is_none_or(|e| e.offsets.get(&name, index).is_none());
                    if is_new && *left == 0 {
                        outcomes.push((index, ErrorCode::InvalidCommitOffsetSize));
                        continue;
                    }
                    *left -= usize::from(is_new);
                }
                let offset = partition.offset;
                let moved = if self.orders.is_empty() {
                    None
                } else {
                    self.still_moved(now, &request.group_id, &name, index)
                };
                let value = OffsetValue {
                    offset,
                    leader_epoch: if expire_timestamp.is_some() {
                        -1
                    } else {
                        partition.leader_epoch
                    },
                    metadata: partition.metadata,
                    commit_timestamp: now,
                    expire_timestamp,
                    topic_id: if expire_timestamp.is_some() {
                        Default::default()
                    } else {
                        topic.id
                    },
                    moved,
                };
                self.emit(
                    Record::OffsetCommit {
                        group_id: request.group_id.clone(),
                        topic: name.clone(),
                        partition: index,
                        value: Some(value),
                    },
                    actions,
                );
                self.stats.offset_commits += 1;
                if let Some(before) = self.state.replaced()
                    && before > offset
                    && let Some(by) = &by
                {
                    let entry = AuditEntry {
                        at: now,
                        topic: name.clone(),
                        partition: index,
                        from: Some(before),
                        to: Some(offset),
                        who: who(by),
                        how: "commit went back",
                    };
                    self.journal.audit(&request.group_id, entry);
                }
                outcomes.push((index, ErrorCode::None));
            }
            answered.push(TopicErrors {
                topic: asked.clone(),
                partitions: outcomes,
            });
        }
        self.state.touching = None;
        answered
    }

    /// Who commits; `None` if nobody asks. Mostly it is whoever committed last, and nothing is looked up.
    fn committer(&mut self, request: &OffsetCommit, known: &[Known<'_>]) -> Option<Arc<Toucher>> {
        if !self.journal.is_on() {
            return None;
        }
        let name = Name {
            client: &request.client,
            member_id: (request.generation_or_epoch >= 0).then_some(&request.member_id),
        };
        let first = known.first().and_then(|known| {
            let offsets = &self.state.group(&request.group_id)?.offsets;
            let slot = offsets.get(&known.name, known.partitions.first()?.index)?;
            slot.touch().committed_by.as_ref()
        });
        match first {
            Some(same) if name.is(same) => Some(same.clone()),
            _ => Some(self.touchers.shared(name)),
        }
    }

    /// OffsetFetch of one group. A group that does not exist has no offsets; that is not an error.
    pub(super) fn offset_fetch(
        &mut self,
        now: Millis,
        id: RequestId,
        request: &OffsetFetch,
        actions: &mut Actions,
    ) {
        let consumer = self.state.consumer(&request.group_id);
        if let Some(Err(error)) = consumer.map(|group| Self::check_consumer_fetch(group, request)) {
            let reply = OffsetFetchReply {
                group_id: request.group_id.clone(),
                error,
                topics: Vec::new(),
            };
            return actions.reply(id, &request.group_id, Reply::OffsetFetch(reply));
        }
        let offsets = self
            .state
            .group(&request.group_id)
            .map(|entry| &entry.offsets);
        let topics = match &request.topics {
            Some(asked) => asked
                .iter()
                .map(|topic| self.fetch_topic(offsets, topic))
                .collect(),
            None => offsets.map_or_else(Vec::new, |offsets| {
                self.fetch_all(offsets, request.by_topic_id)
            }),
        };
        let reply = OffsetFetchReply {
            group_id: request.group_id.clone(),
            error: ErrorCode::None,
            topics,
        };
        actions.reply(id, &request.group_id, Reply::OffsetFetch(reply));
        self.take_down_fetch(now, request);
    }

    /// Takes down who fetched what.
    fn take_down_fetch(&mut self, now: Millis, request: &OffsetFetch) {
        if !self.journal.is_on() {
            return;
        }
        let Some(offsets) = self.state.offsets_mut(&request.group_id) else {
            return;
        };
        let by = self.touchers.shared(Name {
            client: &request.client,
            member_id: request.member_id.as_ref(),
        });
        let Some(asked) = &request.topics else {
            let names: Vec<_> = offsets.topics().map(|(name, _)| name.clone()).collect();
            for name in names {
                offsets.fetched(&name, None, &by, now);
            }
            return;
        };
        for topic in asked {
            let name = match &topic.topic {
                TopicRef::Name(name) => Some(name),
                TopicRef::Id(id) => self.topics.name_of(*id),
            };
            if let Some(name) = name {
                offsets.fetched(name, Some(&topic.partitions), &by, now);
            }
        }
    }

    fn fetch_topic(&self, offsets: Option<&Offsets>, asked: &FetchTopic) -> FetchedTopic {
        let (name, id, error) = match (&asked.topic, find(&self.topics, &asked.topic)) {
            (_, Ok((name, topic))) => (Some(name), topic.id, ErrorCode::None),
            // By name it is no error to ask for what is not there.
            (TopicRef::Name(name), Err(_)) => (Some(name), Default::default(), ErrorCode::None),
            (TopicRef::Id(_), Err(error)) => (None, Default::default(), error),
        };
        let stored = name
            .zip(offsets)
            .and_then(|(name, offsets)| offsets.topic(name));
        let partitions = asked.partitions.iter().map(|&index| {
            let value = stored.and_then(|(_, partitions)| partitions.get(&index));
            let value = value.map(|slot| &**slot);
            // An offset of a topic that was deleted and made again is nobody's.
            let value = value.filter(|v| v.topic_id.is_zero() || id.is_zero() || v.topic_id == id);
            fetched(index, value, error)
        });
        FetchedTopic {
            topic: asked.topic.clone(),
            partitions: partitions.collect(),
        }
    }

    fn fetch_all(&self, offsets: &Offsets, by_topic_id: bool) -> Vec<FetchedTopic> {
        let topics = offsets.topics().filter_map(|(name, partitions)| {
            let topic = if by_topic_id {
                TopicRef::Id(self.topics.get(name)?.id)
            } else {
                TopicRef::Name(name.clone())
            };
            let partitions = partitions
                .iter()
                .map(|(&index, value)| fetched(index, Some(value), ErrorCode::None))
                .collect();
            Some(FetchedTopic { topic, partitions })
        });
        topics.collect()
    }

    /// OffsetDelete.
    pub(super) fn offset_delete(
        &mut self,
        now: Millis,
        id: RequestId,
        request: &OffsetDelete,
        actions: &mut Actions,
    ) {
        let group_id = &request.group_id;
        let mut answers = Answers::default();
        let mut known = Vec::new();
        for (name, indexes) in &request.topics {
            let asked = TopicRef::Name(name.clone());
            let Ok((name, topic)) = find(&self.topics, &asked) else {
                let unknown = ErrorCode::UnknownTopicOrPartition;
                answers.add(&asked, indexes.iter().map(|index| (*index, unknown)));
                continue;
            };
            let mut here = Vec::new();
            for &index in indexes {
                if (0..topic.partitions).contains(&index) {
                    here.push(index);
                } else {
                    answers.add(&asked, [(index, ErrorCode::UnknownTopicOrPartition)]);
                }
            }
            if !here.is_empty() {
                known.push((name.clone(), here));
            }
        }
        let mut reply = OffsetDeleteReply {
            error: ErrorCode::None,
            topics: Vec::new(),
        };
        // The group comes first, even where there is nothing to delete.
        let answered = self
            .check_offset_delete(group_id)
            .map(|()| self.delete_offsets(now, group_id, known, actions));
        match answered {
            Ok(answered) => reply.topics = answers.merge(answered),
            Err(error) => reply.error = error,
        }
        actions.reply(id, group_id, Reply::OffsetDelete(reply));
    }

    fn check_offset_delete(&self, group_id: &str) -> Result<(), ErrorCode> {
        if group_id.is_empty() {
            return Err(ErrorCode::InvalidGroupId);
        }
        if !self.exists(group_id) {
            return Err(ErrorCode::GroupIdNotFound);
        }
        // Of a group whose type tells nothing about topics, nobody knows which offsets are in use.
        let in_use = self
            .classic
            .get(group_id)
            .is_some_and(|g| g.phase() != Phase::Empty && &**g.protocol_type() != "consumer");
        if in_use {
            Err(ErrorCode::NonEmptyGroup)
        } else {
            Ok(())
        }
    }

    fn delete_offsets(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        topics: Vec<(TopicName, Vec<i32>)>,
        actions: &mut Actions,
    ) -> Vec<TopicErrors> {
        let mut answered = Vec::with_capacity(topics.len());
        for (name, indexes) in topics {
            let subscribed = self.is_subscribed(group_id, &name);
            let mut outcomes = Vec::with_capacity(indexes.len());
            for index in indexes {
                if subscribed {
                    outcomes.push((index, ErrorCode::GroupSubscribedToTopic));
                    continue;
                }
                let before = self.committed_offset(group_id, &name, index);
                if self.forget_offset(group_id, &name, index, actions) {
                    self.stats.offset_deletions += 1;
                    let entry = AuditEntry {
                        at: now,
                        topic: name.clone(),
                        partition: index,
                        from: before,
                        to: None,
                        who: Arc::from("a Kafka client"),
                        how: "delete",
                    };
                    self.audit(group_id, entry);
                }
                outcomes.push((index, ErrorCode::None));
            }
            answered.push(TopicErrors {
                topic: TopicRef::Name(name),
                partitions: outcomes,
            });
        }
        self.keep_without_offsets(group_id, actions);
        answered
    }

    /// A group that only ever had offsets, and has lost the last one, stays until offsets are next looked through.
    pub(super) fn keep_without_offsets(&mut self, group_id: &GroupId, actions: &mut Actions) {
        if !self.exists(group_id) {
            self.found(group_id, actions);
        }
    }

    fn is_subscribed(&self, group_id: &str, topic: &str) -> bool {
        if let Some(group) = self.state.consumer(group_id) {
            return group.subscribes(topic);
        }
        self.classic
            .get(group_id)
            .is_some_and(|g| g.phase() != Phase::Empty && g.subscribes(topic))
    }

    /// The offset that is committed, if there is one.
    pub(super) fn committed_offset(
        &self,
        group_id: &str,
        topic: &str,
        partition: i32,
    ) -> Option<i64> {
        let offsets = &self.state.group(group_id)?.offsets;
        offsets.get(topic, partition).map(|slot| slot.offset)
    }

    /// Removes an offset; tells whether there was one.
    fn forget_offset(
        &mut self,
        group_id: &GroupId,
        topic: &TopicName,
        partition: i32,
        actions: &mut Actions,
    ) -> bool {
        let there = self
            .state
            .group(group_id)
            .is_some_and(|entry| entry.offsets.get(topic, partition).is_some());
        if there {
            let (group_id, topic) = (group_id.clone(), topic.clone());
            self.emit(
                Record::OffsetCommit {
                    group_id,
                    topic,
                    partition,
                    value: None,
                },
                actions,
            );
        }
        there
    }

    /// DeleteGroups of one group: its offsets go with it.
    pub(super) fn delete_group(
        &mut self,
        id: RequestId,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        let error = if !self.exists(group_id) {
            ErrorCode::GroupIdNotFound
        } else if self
            .classic
            .get(&**group_id)
            .is_some_and(|g| g.phase() != Phase::Empty)
            || self.state.consumer(group_id).is_some_and(|g| !g.is_empty())
        {
            ErrorCode::NonEmptyGroup
        } else {
            self.erase(group_id, actions);
            ErrorCode::None
        };
        let reply = Reply::Delete {
            group_id: group_id.clone(),
            error,
        };
        actions.reply(id, group_id, reply);
    }

    /// Removes an Empty group with everything that is recorded of it, and the ids it has handed out.
    pub(super) fn erase(&mut self, group_id: &GroupId, actions: &mut Actions) {
        if let Some(mut group) = self.classic.remove(&**group_id) {
            for member_id in group.pending_ids() {
                self.forget_pending(group_id, &mut group, &member_id);
            }
        }
        self.give_up_empty(group_id, actions);
        self.forget_fences(group_id);
        self.journal.forget(group_id);
        let Some(entry) = self.state.group(group_id) else {
            return;
        };
        let offsets: Vec<_> = entry
            .offsets
            .iter()
            .map(|(topic, partition, _)| (topic.clone(), partition))
            .collect();
        let recorded = entry.classic.is_some();
        for (topic, partition) in offsets {
            self.forget_offset(group_id, &topic, partition, actions);
        }
        if recorded {
            self.emit(
                Record::GroupMetadata {
                    group_id: group_id.clone(),
                    value: None,
                },
                actions,
            );
        }
    }

    /// The offsets of a topic that is gone go with it.
    pub(super) fn forget_topic(
        &mut self,
        topic: &TopicName,
        topic_id: super::types::TopicId,
        actions: &mut Actions,
    ) {
        for group_id in self.state.group_ids() {
            let partitions: Vec<i32> = self
                .state
                .group(&group_id)
                .and_then(|entry| entry.offsets.topic(topic))
                .map(|(_, partitions)| {
                    let of_it = partitions.iter().filter(|(_, value)| {
                        value.topic_id.is_zero() || topic_id.is_zero() || value.topic_id == topic_id
                    });
                    of_it.map(|(index, _)| *index).collect()
                })
                .unwrap_or_default();
            if partitions.is_empty() {
                continue;
            }
            for partition in partitions {
                self.forget_offset(&group_id, topic, partition, actions);
            }
            self.keep_without_offsets(&group_id, actions);
        }
    }

    /// Looks through all offsets for those whose time is over (KIP-211), and removes Empty groups without offsets.
    pub(super) fn expire_offsets(&mut self, now: Millis, actions: &mut Actions) {
        self.drop_all_old_fences(now);
        let soon = now.plus(WARNING_MS);
        let mut expiring = 0;
        for group_id in self.state.group_ids() {
            let Some(entry) = self.state.group(&group_id) else {
                continue;
            };
            let expired: Vec<(TopicName, i32)> = entry
                .offsets
                .iter()
                .filter(|(topic, _, value)| {
                    if !self.is_expired(soon, &group_id, entry, topic, value) {
                        return false;
                    }
                    expiring += 1;
                    self.is_expired(now, &group_id, entry, topic, value)
                })
                .map(|(topic, partition, _)| (topic.clone(), partition))
                .collect();
            expiring -= expired.len() as u64;
            for (topic, partition) in expired {
                let entry = AuditEntry {
                    at: now,
                    from: self.committed_offset(&group_id, &topic, partition),
                    topic: topic.clone(),
                    partition,
                    to: None,
                    who: Arc::from("retention"),
                    how: "expired",
                };
                self.forget_offset(&group_id, &topic, partition, actions);
                self.stats.offset_expirations += 1;
                self.audit(&group_id, entry);
            }
            let done = !self.classic.contains_key(&*group_id)
                && !self.consumer.contains_key(&*group_id)
                && self
                    .state
                    .group(&group_id)
                    .is_some_and(|entry| entry.offsets.is_empty());
            if done {
                self.erase(&group_id, actions);
            }
        }
        self.offsets_expiring = expiring;
        let (state, classic) = (&self.state, &self.classic);
        self.journal.retain(|group_id| {
            state.group(group_id).is_some() || classic.contains_key(&**group_id)
        });
        let next = now.plus(self.config.offsets_retention_check_interval_ms.max(1));
        self.timers.arm(Timer::OffsetExpiry, next);
    }

    /// Whether the time is over for which a group keeps what nobody uses.
    fn is_over(&self, now: Millis, group_id: &str, since: Millis) -> bool {
        self.retention_ms(group_id)
            .is_some_and(|retention_ms| now.since(since) >= retention_ms)
    }

    /// Whether members subscribe to a topic, also by a pattern that is not resolved yet: whoever has just come, or has
    /// changed its pattern, is about to ask where to go on.
    fn is_read(&self, group: &ConsumerGroup, topic: &str) -> bool {
        let matches = |pattern: &Arc<str>| self.patterns.matches(pattern, topic);
        group.subscribes(topic) || group.patterns().any(matches)
    }

    fn is_expired(
        &self,
        now: Millis,
        group_id: &str,
        entry: &Entry,
        topic: &str,
        value: &OffsetValue,
    ) -> bool {
        let committed = value.commit_timestamp;
        if let Some(group) = &entry.consumer {
            let over = match value.expire_timestamp {
                Some(expire) => now >= expire,
                None => self.is_over(now, group_id, committed),
            };
            return over && !self.is_read(group, topic);
        }
        let since = match self
            .classic
            .get(group_id)
            .filter(|g| g.phase() != Phase::Empty)
        {
            Some(group) => {
                let settled = group.phase() == Phase::Stable
                    && group.subscriptions_known()
                    && !group.subscribes(topic);
                if !settled {
                    return false;
                }
                committed
            }
            None => match &entry.classic {
                // Since the group became Empty, or since a commit after that: Kafka counts from the former alone and
                // so throws away what an assign-mode client committed a minute ago.
                Some(value) if !value.protocol_type.is_empty() => {
                    committed.max(value.current_state_timestamp)
                }
                _ => committed,
            },
        };
        match value.expire_timestamp {
            Some(expire) => now >= expire,
            None => self.is_over(now, group_id, since),
        }
    }
}

fn known_partitions<'a>(
    topics: &Topics,
    asked: &'a CommitTopic,
    answers: &mut Answers,
) -> Option<Known<'a>> {
    let (name, topic) = match find(topics, &asked.topic) {
        Ok(found) => found,
        Err(error) => {
            answers.add(
                &asked.topic,
                asked.partitions.iter().map(|p| (p.index, error)),
            );
            return None;
        }
    };
    let mut partitions = Vec::with_capacity(asked.partitions.len());
    for partition in &asked.partitions {
        if (0..topic.partitions).contains(&partition.index) {
            partitions.push(partition.clone());
        } else {
            answers.add(
                &asked.topic,
                [(partition.index, ErrorCode::UnknownTopicOrPartition)],
            );
        }
    }
    if partitions.is_empty() {
        return None;
    }
    Some(Known {
        asked: &asked.topic,
        name: name.clone(),
        topic: topic.clone(),
        partitions,
    })
}

fn all_refused(topic: Known<'_>, error: ErrorCode) -> TopicErrors {
    TopicErrors {
        topic: topic.asked.clone(),
        partitions: topic.partitions.iter().map(|p| (p.index, error)).collect(),
    }
}

/// Kafka counts the length of a commit's note in UTF-16 units.
fn too_long(metadata: &str, max_units: usize) -> bool {
    metadata.len() > max_units && metadata.encode_utf16().count() > max_units
}

fn fetched(index: i32, value: Option<&OffsetValue>, error: ErrorCode) -> FetchedPartition {
    value.map_or_else(
        || FetchedPartition {
            index,
            offset: -1,
            leader_epoch: -1,
            metadata: Arc::from(""),
            error,
        },
        |value| FetchedPartition {
            index,
            offset: value.offset,
            leader_epoch: value.leader_epoch,
            metadata: value.metadata.clone(),
            error,
        },
    )
}
