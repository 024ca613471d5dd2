//! The facts: what the records say, and nothing else. `State::apply` is their only way to change, live and at
//! recovery alike; it takes any record in any order of keys and never fails.

mod consumer;
mod offsets;

use std::sync::Arc;

use hashbrown::HashMap;

pub(super) use consumer::{ConsumerGroup, FIRST_EPOCH, Member as ConsumerMember};
pub(super) use offsets::{Offsets, Touch, Touches, Touching};

use super::memory;
use super::record::{GroupValue, Record};
use super::types::{GroupId, Millis};

/// Everything durable about one group.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Entry {
    /// The classic group as of its last record.
    pub(super) classic: Option<Arc<GroupValue>>,
    /// The consumer group.
    pub(super) consumer: Option<Box<ConsumerGroup>>,
    /// Its committed offsets.
    pub(super) offsets: Offsets,
}

impl Entry {
    fn is_vacant(&self) -> bool {
        self.classic.is_none() && self.consumer.is_none() && self.offsets.is_empty()
    }
}

/// The fold of all records.
#[derive(Debug, Default)]
pub(super) struct State {
    groups: HashMap<GroupId, Entry>,
    newest: Millis,
    offset_count: u64,
    bytes: usize,
    /// Who makes the commits that come in now; `None` where nobody asks. Not a fact.
    pub(super) touching: Option<Touching>,
    /// The offset that the last commit replaced. Not a fact.
    replaced: Option<i64>,
    /// Some offset was moved by an operator, once. Not a fact: spares looking for those that are fenced.
    has_moved: bool,
}

/// The newest moment does not count: a snapshot knows nothing of groups that are gone, and so of no moment of theirs.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.groups == other.groups && self.offset_count == other.offset_count
    }
}

/// The end of the year 9999. A stamp behind it is none, whoever wrote it: were the clock raised to it, timers that are
/// armed for later would be due at once, for ever.
const LAST_STAMP: Millis = Millis(253_402_300_799_999);

/// A stamp as a moment that the clock may be raised to; the beginning of time where it cannot be one.
fn moment(stamp: Millis) -> Millis {
    if stamp > LAST_STAMP {
        Millis::default()
    } else {
        stamp
    }
}

impl State {
    /// The facts about a group; `None` if it does not exist.
    pub(super) fn group(&self, group_id: &str) -> Option<&Entry> {
        self.groups.get(group_id)
    }

    /// The consumer group of this id; `None` if there is none, or one of another type.
    pub(super) fn consumer(&self, group_id: &str) -> Option<&ConsumerGroup> {
        self.groups.get(group_id)?.consumer.as_deref()
    }

    /// The ids of all groups, in order: what is written while walking them must not hang on the order of a hash.
    pub(super) fn group_ids(&self) -> Vec<GroupId> {
        let mut ids: Vec<_> = self.groups.keys().cloned().collect();
        ids.sort_unstable();
        ids
    }

    /// All groups, in no order.
    pub(super) fn groups(&self) -> impl Iterator<Item = (&GroupId, &Entry)> {
        self.groups.iter()
    }

    /// How many groups there are.
    pub(super) fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// The newest moment that any record carries.
    pub(super) fn newest(&self) -> Millis {
        self.newest
    }

    /// How many offsets are committed.
    pub(super) fn offset_count(&self) -> u64 {
        self.offset_count
    }

    /// What it takes in memory, about.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The offset that the last commit replaced, if there was one.
    pub(super) fn replaced(&self) -> Option<i64> {
        self.replaced
    }

    /// Whether some offset may say that it was moved.
    pub(super) fn has_moved(&self) -> bool {
        self.has_moved
    }

    /// The offsets of a group, for taking down who touched them.
    pub(super) fn offsets_mut(&mut self, group_id: &str) -> Option<&mut Offsets> {
        self.groups
            .get_mut(group_id)
            .map(|entry| &mut entry.offsets)
    }

    /// Takes out who touched which offset.
    pub(super) fn take_touches(&mut self) -> Touches {
        let mut touches = Touches::new();
        for (group_id, entry) in &mut self.groups {
            entry.offsets.take_touches(group_id, &mut touches);
        }
        touches
    }

    /// Puts it back.
    pub(super) fn put_touches(&mut self, touches: Touches) {
        for (group_id, topic, partition, at, touch) in touches {
            if let Some(offsets) = self.offsets_mut(&group_id) {
                offsets.put_touch(&topic, partition, at, touch);
            }
        }
    }

    /// Takes a record in.
    pub(super) fn apply(&mut self, record: &Record) {
        let before = self.groups.len();
        self.take_in(record);
        let weight = memory::GROUP + record.group_id().len();
        match self.groups.len().cmp(&before) {
            std::cmp::Ordering::Greater => self.bytes += weight,
            std::cmp::Ordering::Less => self.bytes -= weight,
            std::cmp::Ordering::Equal => {}
        }
    }

    fn take_in(&mut self, record: &Record) {
        match record {
            Record::OffsetCommit {
                group_id,
                topic,
                partition,
                value,
            } => match value {
                Some(value) => {
                    self.newest = self.newest.max(moment(value.commit_timestamp));
                    let entry = self.groups.entry(group_id.clone()).or_default();
                    self.bytes += memory::offset(value);
                    self.has_moved |= value.moved.is_some();
                    let touching = self.touching.as_ref();
                    let offsets = &mut entry.offsets;
                    let before = offsets.put(topic, *partition, value.clone(), touching);
                    self.replaced = before.as_ref().map(|before| before.offset);
                    match before {
                        Some(before) => self.bytes -= memory::offset(&before),
                        None => self.offset_count += 1,
                    }
                }
                None => {
                    let Some(entry) = self.groups.get_mut(&**group_id) else {
                        return;
                    };
                    if let Some(before) = entry.offsets.remove(topic, *partition) {
                        self.bytes -= memory::offset(&before);
                        self.offset_count -= 1;
                    }
                    self.drop_if_vacant(group_id);
                }
            },
            Record::GroupMetadata { group_id, value } => match value {
                Some(value) => {
                    self.newest = self.newest.max(moment(value.current_state_timestamp));
                    let entry = self.groups.entry(group_id.clone()).or_default();
                    self.bytes += memory::classic(value);
                    if let Some(before) = entry.classic.replace(value.clone()) {
                        self.bytes -= memory::classic(&before);
                    }
                }
                None => {
                    let Some(entry) = self.groups.get_mut(&**group_id) else {
                        return;
                    };
                    if let Some(before) = entry.classic.take() {
                        self.bytes -= memory::classic(&before);
                    }
                    self.drop_if_vacant(group_id);
                }
            },
            Record::ConsumerGroupMetadata { group_id, value } => {
                self.change(group_id, value.is_some(), |group| group.set_value(*value));
            }
            Record::ConsumerGroupMemberMetadata {
                group_id,
                member_id,
                value,
            } => self.change(group_id, value.is_some(), |group| {
                group.set_told(member_id, value.as_ref());
            }),
            Record::ConsumerGroupTargetAssignmentMetadata { group_id, value } => {
                self.change(group_id, value.is_some(), |group| {
                    group.set_target_metadata(*value);
                });
            }
            Record::ConsumerGroupTargetAssignmentMember {
                group_id,
                member_id,
                value,
            } => self.change(group_id, value.is_some(), |group| {
                group.set_target(member_id, value.as_ref());
            }),
            Record::ConsumerGroupCurrentMemberAssignment {
                group_id,
                member_id,
                value,
            } => self.change(group_id, value.is_some(), |group| {
                group.set_current(member_id, value.as_ref());
            }),
            Record::ConsumerGroupRegularExpression {
                group_id,
                regex,
                value,
            } => self.change(group_id, value.is_some(), |group| {
                group.set_regex(regex, value.as_ref());
            }),
        }
    }

    /// Changes a consumer group, which is made if there is something to keep, and dropped when nothing is left.
    fn change(&mut self, group_id: &GroupId, make: bool, change: impl FnOnce(&mut ConsumerGroup)) {
        if make && !self.groups.contains_key(group_id) {
            self.groups.insert(group_id.clone(), Entry::default());
        }
        let Some(entry) = self.groups.get_mut(group_id) else {
            return;
        };
        if make && entry.consumer.is_none() {
            entry.consumer = Some(Box::default());
        }
        let Some(group) = &mut entry.consumer else {
            return;
        };
        let before = group.bytes();
        change(group);
        self.bytes += group.bytes();
        self.bytes -= before;
        self.newest = self.newest.max(group.newest());
        if group.is_vacant() {
            entry.consumer = None;
            self.drop_if_vacant(group_id);
        }
    }

    fn drop_if_vacant(&mut self, group_id: &str) {
        if self.groups.get(group_id).is_some_and(Entry::is_vacant) {
            self.groups.remove(group_id);
        }
    }

    /// The whole state as records, group by group in order of their ids.
    pub(super) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.group_ids().into_iter().flat_map(|group_id| {
            let entry = &self.groups[&group_id];
            let classic = entry
                .classic
                .iter()
                .map(|value| Record::GroupMetadata {
                    group_id: group_id.clone(),
                    value: Some(value.clone()),
                })
                .collect::<Vec<_>>();
            let offsets = entry.offsets.iter().map({
                let group_id = group_id.clone();
                move |(topic, partition, value)| Record::OffsetCommit {
                    group_id: group_id.clone(),
                    topic: topic.clone(),
                    partition,
                    value: Some((**value).clone()),
                }
            });
            let consumer = entry
                .consumer
                .iter()
                .flat_map(|group| group.records(&group_id));
            let groups: Vec<_> = classic.into_iter().chain(consumer).collect();
            groups.into_iter().chain(offsets)
        })
    }
}
