//! What is committed must be what is fetched; what is deleted or over must be gone, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use super::classic::Phase;
use super::{Check, Verdict, became_empty};
use crate::group::Actions;
use crate::group::record::{OffsetValue, Record};
use crate::group::request::{
    ErrorCode, OffsetCommit, OffsetDelete, OffsetFetch, OffsetFetchReply, Reply, TopicErrors,
};
use crate::group::types::{GroupId, Millis, TopicId, TopicName, TopicRef};

/// A topic and a partition.
pub(super) type Key = (TopicName, i32);
/// A committed offset.
pub(super) type Value = OffsetValue;

/// The offsets that must be there.
#[derive(Debug, Default)]
pub(super) struct Offsets(BTreeMap<GroupId, BTreeMap<Key, Value>>);

impl Offsets {
    pub(super) fn set(&mut self, group_id: &GroupId, key: &Key, value: Option<Value>) {
        let group = self.0.entry(group_id.clone()).or_default();
        match value {
            Some(value) => group.insert(key.clone(), value),
            None => group.remove(key),
        };
        if group.is_empty() {
            self.0.remove(group_id);
        }
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = &GroupId> {
        self.0.keys()
    }

    /// When the newest of them was committed.
    pub(super) fn newest(&self) -> Millis {
        let values = self.0.values().flat_map(BTreeMap::values);
        let newest = values.map(|value| value.commit_timestamp).max();
        newest.unwrap_or_default()
    }

    pub(super) fn is_empty(&self, group_id: &str) -> bool {
        !self.0.contains_key(group_id)
    }

    pub(super) fn keys(&self, group_id: &str) -> Vec<Key> {
        self.0
            .get(group_id)
            .map(|group| group.keys().cloned().collect())
            .unwrap_or_default()
    }

    fn get(&self, group_id: &str, key: &Key) -> Option<&Value> {
        self.0.get(group_id)?.get(key)
    }

    /// Offsets of a topic as it was under this id.
    pub(super) fn of_topic(&self, topic: &str, topic_id: TopicId) -> Vec<(GroupId, Key)> {
        let mut found = Vec::new();
        for (group_id, group) in &self.0 {
            for (key, value) in group {
                let of_it = value.topic_id == topic_id || value.topic_id.is_zero();
                if *key.0 == *topic && of_it {
                    found.push((group_id.clone(), key.clone()));
                }
            }
        }
        found
    }

    /// Whether a fetch of all offsets tells these.
    pub(super) fn compare(&self, group_id: &GroupId, reply: &OffsetFetchReply) -> Verdict {
        let mut fetched = BTreeMap::new();
        for topic in &reply.topics {
            let TopicRef::Name(name) = &topic.topic else {
                return Err("a topic is named by an id nobody asked for".to_owned());
            };
            for partition in &topic.partitions {
                let value = (
                    partition.offset,
                    partition.leader_epoch,
                    &*partition.metadata,
                );
                fetched.insert((name, partition.index), value);
            }
        }
        let expected: BTreeMap<_, _> = self
            .0
            .get(group_id)
            .into_iter()
            .flatten()
            .map(|((name, index), value)| {
                let value = (value.offset, value.leader_epoch, &*value.metadata);
                ((name, *index), value)
            })
            .collect();
        if fetched == expected {
            Ok(())
        } else {
            Err(format!(
                "group {group_id} has the offsets {fetched:?}, but should have {expected:?}"
            ))
        }
    }
}

/// The outcomes of a reply, by topic and partition; the last one counts where a partition is named twice.
fn outcomes(topics: &[TopicErrors]) -> Vec<(&TopicRef, i32, ErrorCode)> {
    topics
        .iter()
        .flat_map(|topic| {
            topic
                .partitions
                .iter()
                .map(|(index, error)| (&topic.topic, *index, *error))
        })
        .collect()
}

impl Check {
    pub(super) fn commit(
        &mut self,
        now: Millis,
        request: &OffsetCommit,
        actions: &Actions,
        position: u64,
    ) -> Verdict {
        let Some(Reply::OffsetCommit(reply)) = actions.replies.first().map(|a| &a.reply) else {
            return Err("a commit is not answered at once".to_owned());
        };
        let group = self.groups.get(&request.group_id);
        let generation = request.generation_or_epoch;
        let modern = self.consumers.get(&request.group_id);
        let followed = modern.is_some() || self.mixed.contains(&request.group_id);
        let allowed = match group {
            _ if followed => modern
                .and_then(|group| group.commit(request))
                .unwrap_or_else(|| self.told(&reply.topics)),
            Some(group) if group.members.is_empty() && generation >= 0 => {
                ErrorCode::UnknownMemberId
            }
            Some(group) => group.commit(request),
            None if generation < 0 => ErrorCode::None,
            None if request.consumer_errors => ErrorCode::GroupIdNotFound,
            None => ErrorCode::IllegalGeneration,
        };
        let mut expected = Vec::new();
        let mut stored = Vec::new();
        let mut any_known = false;
        for asked in &request.topics {
            let found = match &asked.topic {
                TopicRef::Name(name) => self.topics.entry(name),
                TopicRef::Id(id) => self.topics.name_of(*id).and_then(|n| self.topics.entry(n)),
            };
            for partition in &asked.partitions {
                let index = partition.index;
                let known = found.filter(|(_, topic)| (0..topic.partitions).contains(&index));
                let error = match (known, &asked.topic) {
                    (None, TopicRef::Id(_)) if found.is_none() => ErrorCode::UnknownTopicId,
                    (None, _) => ErrorCode::UnknownTopicOrPartition,
                    (Some((name, topic)), _) => {
                        any_known = true;
                        let units = partition.metadata.encode_utf16().count();
                        if allowed != ErrorCode::None {
                            allowed
                        } else if units > self.config.offset_metadata_max_units {
                            ErrorCode::OffsetMetadataTooLarge
                        } else {
                            let expire = request
                                .retention_time_ms
                                .filter(|ms| *ms >= 0)
                                .map(|ms| now.plus(ms));
                            let value = OffsetValue {
                                offset: partition.offset,
                                leader_epoch: if expire.is_some() {
                                    -1
                                } else {
                                    partition.leader_epoch
                                },
                                metadata: partition.metadata.clone(),
                                commit_timestamp: now,
                                expire_timestamp: expire,
                                topic_id: if expire.is_some() {
                                    TopicId::ZERO
                                } else {
                                    topic.id
                                },
                                moved: None,
                            };
                            stored.push(((name.clone(), index), value));
                            ErrorCode::None
                        }
                    }
                };
                expected.push((&asked.topic, index, error));
            }
        }
        let mut given = outcomes(&reply.topics);
        given.sort_unstable();
        expected.sort_unstable();
        if given != expected {
            return Err(format!(
                "a commit of {} in generation {generation} must be told {expected:?}, but is told {given:?}",
                request.member_id
            ));
        }
        for (key, value) in stored {
            self.record_offset(&request.group_id, key, Some(value), position);
        }
        if any_known
            && allowed == ErrorCode::None
            && !followed
            && let Some(group) = self.groups.get_mut(&request.group_id)
        {
            group.committed(request, now);
        }
        Ok(())
    }

    /// Whoever fetches is told what is committed; only who says that he is a member may be refused.
    pub(super) fn fetch(&self, request: &OffsetFetch, actions: &Actions) -> Verdict {
        let Some(Reply::OffsetFetch(reply)) = actions.replies.first().map(|a| &a.reply) else {
            return Err("a fetch is not answered at once".to_owned());
        };
        if reply.error != ErrorCode::None {
            if request.member_id.is_some() || request.member_epoch >= 0 {
                return Ok(());
            }
            return Err(format!("a fetch is told {}", reply.error.name()));
        }
        if let Some(asked) = &request.topics {
            let asked: usize = asked.iter().map(|topic| topic.partitions.len()).sum();
            let told: usize = reply.topics.iter().map(|t| t.partitions.len()).sum();
            if asked != told {
                return Err(format!("{asked} offsets are asked for, {told} are told"));
            }
        }
        for topic in &reply.topics {
            let name = match &topic.topic {
                TopicRef::Name(name) => Some(name),
                TopicRef::Id(id) => self.topics.name_of(*id),
            };
            let id = name.and_then(|name| self.topics.get(name)).map(|t| t.id);
            for told in &topic.partitions {
                let value = name.and_then(|name| {
                    let key = (name.clone(), told.index);
                    self.offsets.get(&request.group_id, &key)
                });
                // What was committed of a topic that is another by now is told only to who asks for everything.
                let value = value.filter(|value| {
                    let is_it = id.is_none_or(|id| id == value.topic_id);
                    request.topics.is_none() || value.topic_id.is_zero() || is_it
                });
                let expected = value.map_or((-1, -1, ""), |value| {
                    (value.offset, value.leader_epoch, &*value.metadata)
                });
                let given = (told.offset, told.leader_epoch, &*told.metadata);
                let error = match name {
                    Some(_) => ErrorCode::None,
                    None => ErrorCode::UnknownTopicId,
                };
                if given != expected || told.error != error {
                    return Err(format!(
                        "{:?}-{} has {expected:?}, but {told:?} is told",
                        topic.topic, told.index
                    ));
                }
            }
        }
        Ok(())
    }

    /// What a commit was told about those of its partitions that exist.
    fn told(&self, topics: &[TopicErrors]) -> ErrorCode {
        let exists = |topic: &TopicRef, index: i32| {
            let found = match topic {
                TopicRef::Name(name) => self.topics.get(name),
                TopicRef::Id(id) => self.topics.name_of(*id).and_then(|n| self.topics.get(n)),
            };
            found.is_some_and(|topic| (0..topic.partitions).contains(&index))
        };
        outcomes(topics)
            .into_iter()
            .filter(|(topic, index, _)| exists(topic, *index))
            .map(|(_, _, error)| error)
            .find(|error| *error != ErrorCode::OffsetMetadataTooLarge)
            .unwrap_or(ErrorCode::None)
    }

    pub(super) fn delete_offsets(
        &mut self,
        request: &OffsetDelete,
        actions: &Actions,
        position: u64,
    ) -> Verdict {
        let Some(Reply::OffsetDelete(reply)) = actions.replies.first().map(|a| &a.reply) else {
            return Err("a deletion of offsets is not answered at once".to_owned());
        };
        let gone: BTreeSet<Key> = outcomes(&reply.topics)
            .into_iter()
            .filter(|(_, _, error)| *error == ErrorCode::None)
            .filter_map(|(topic, index, _)| match topic {
                TopicRef::Name(name) => Some((name.clone(), index)),
                TopicRef::Id(_) => None,
            })
            .collect();
        for key in gone {
            if self.offsets.get(&request.group_id, &key).is_some() {
                self.record_offset(&request.group_id, key, None, position);
            }
        }
        Ok(())
    }

    /// Time may take offsets, but only those whose time is over and that nobody uses.
    pub(super) fn expire(&mut self, now: Millis, actions: &Actions, position: u64) -> Verdict {
        for record in &actions.records {
            let Record::OffsetCommit {
                group_id,
                topic,
                partition,
                value: None,
            } = record
            else {
                continue;
            };
            let key = (topic.clone(), *partition);
            let Some(value) = self.offsets.get(group_id, &key) else {
                return Err(format!(
                    "{topic}-{partition} of {group_id} expires, but is not there"
                ));
            };
            let mut since = value.commit_timestamp;
            if became_empty(&actions.records, group_id) {
                since = now;
            } else if self.consumers.contains_key(group_id) {
                self.expiring.push((group_id.clone(), topic.clone()));
            } else if self.mixed.contains(group_id) {
                // How it stands is not followed closely enough to tell.
            } else if let Some(group) = self.groups.get(group_id) {
                match group.phase {
                    Phase::Empty if !group.protocol_type.is_empty() => {
                        since = since.max(group.emptied);
                    }
                    Phase::Empty => {}
                    Phase::Stable if !group.subscribed.contains(topic) => {}
                    _ => {
                        return Err(format!(
                            "{topic}-{partition} of {group_id} expires, but the group uses it"
                        ));
                    }
                }
            }
            let over = match value.expire_timestamp {
                Some(expire) => now >= expire,
                None => now.since(since) >= self.config.offsets_retention_ms,
            };
            if !over {
                return Err(format!(
                    "{topic}-{partition} of {group_id} expires at {now:?}, but is of {since:?}"
                ));
            }
            self.record_offset(group_id, key, None, position);
        }
        Ok(())
    }
}
