//! The committed offsets of one group.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

use crate::group::operator::Toucher;
use crate::group::record::OffsetValue;
use crate::group::types::{GroupId, Millis, TopicName};

/// Most commits carry no note; they share this one.
static NO_METADATA: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// Committed offsets by topic and partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::group) struct Offsets(BTreeMap<TopicName, BTreeMap<i32, Slot>>);

/// A committed offset, and who touched it last. The former is the fact.
#[derive(Clone, Debug)]
pub(in crate::group) struct Slot {
    value: OffsetValue,
    touch: Touch,
}

impl PartialEq for Slot {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl Deref for Slot {
    type Target = OffsetValue;

    fn deref(&self) -> &OffsetValue {
        &self.value
    }
}

/// Who touched an offset last. Kept beside the facts because it comes and goes with them; no record tells of it.
#[derive(Clone, Debug, Default)]
pub(in crate::group) struct Touch {
    pub(in crate::group) committed_by: Option<Arc<Toucher>>,
    pub(in crate::group) fetched_by: Option<Box<(Arc<Toucher>, Millis)>>,
    /// An assign-mode client that committed shortly before another one did, and when.
    pub(in crate::group) rival: Option<Box<(Arc<Toucher>, Millis)>>,
}

/// Who makes the commits that come in now.
#[derive(Clone, Debug)]
pub(in crate::group) struct Touching {
    pub(in crate::group) by: Arc<Toucher>,
    /// For how long two assign-mode clients are rivals.
    pub(in crate::group) window_ms: i64,
}

/// Touches of all offsets, on their way to another coordinator: where, when it was committed, and by whom.
pub(in crate::group) type Touches = Vec<(GroupId, TopicName, i32, Millis, Touch)>;

impl Slot {
    pub(in crate::group) fn touch(&self) -> &Touch {
        &self.touch
    }

    fn put(&mut self, value: OffsetValue, touching: Option<&Touching>) -> OffsetValue {
        let before = std::mem::replace(&mut self.value, value);
        let Some(Touching { by, window_ms }) = touching else {
            self.touch.committed_by = None;
            return before;
        };
        match &self.touch.committed_by {
            Some(same) if Arc::ptr_eq(same, by) => {}
            other => {
                if let Some(other) = other
                    && (&other.member_id, &by.member_id) == (&None, &None)
                {
                    let at = before.commit_timestamp;
                    let recent = self.value.commit_timestamp.since(at) <= *window_ms;
                    self.touch.rival = recent.then(|| Box::new((other.clone(), at)));
                }
                self.touch.committed_by = Some(by.clone());
            }
        }
        before
    }
}

impl Offsets {
    /// Sets an offset; gives the one before.
    pub(super) fn put(
        &mut self,
        topic: &TopicName,
        partition: i32,
        mut value: OffsetValue,
        touching: Option<&Touching>,
    ) -> Option<OffsetValue> {
        if value.metadata.is_empty() {
            value.metadata = NO_METADATA.clone();
        }
        // Not `entry`: it would want the name by value for each commit.
        if !self.0.contains_key(topic) {
            self.0.insert(topic.clone(), BTreeMap::new());
        }
        let of_topic = self.0.get_mut(topic).expect("inserted above");
        if let Some(slot) = of_topic.get_mut(&partition) {
            return Some(slot.put(value, touching));
        }
        let touch = Touch {
            committed_by: touching.map(|touching| touching.by.clone()),
            ..Touch::default()
        };
        of_topic.insert(partition, Slot { value, touch });
        None
    }

    /// Removes an offset; gives the one that was there.
    pub(super) fn remove(&mut self, topic: &str, partition: i32) -> Option<OffsetValue> {
        let partitions = self.0.get_mut(topic)?;
        let removed = partitions.remove(&partition);
        if partitions.is_empty() {
            self.0.remove(topic);
        }
        removed.map(|slot| slot.value)
    }

    /// Somebody has fetched these offsets; those that are not there do not count.
    pub(in crate::group) fn fetched(
        &mut self,
        topic: &str,
        partitions: Option<&[i32]>,
        by: &Arc<Toucher>,
        now: Millis,
    ) {
        let Some(of_topic) = self.0.get_mut(topic) else {
            return;
        };
        let take = |slot: &mut Slot| match &mut slot.touch.fetched_by {
            Some(fetched) => **fetched = (by.clone(), now),
            none => *none = Some(Box::new((by.clone(), now))),
        };
        match partitions {
            Some(partitions) => {
                for partition in partitions {
                    if let Some(slot) = of_topic.get_mut(partition) {
                        take(slot);
                    }
                }
            }
            None => of_topic.values_mut().for_each(take),
        }
    }

    /// Takes out who touched what.
    pub(super) fn take_touches(&mut self, group_id: &GroupId, touches: &mut Touches) {
        for (topic, partitions) in &mut self.0 {
            for (partition, slot) in partitions {
                let touch = std::mem::take(&mut slot.touch);
                if touch.committed_by.is_some() || touch.fetched_by.is_some() {
                    let at = slot.value.commit_timestamp;
                    touches.push((group_id.clone(), topic.clone(), *partition, at, touch));
                }
            }
        }
    }

    /// Puts back who touched an offset that was committed at this moment.
    pub(super) fn put_touch(&mut self, topic: &str, partition: i32, at: Millis, touch: Touch) {
        let of_topic = self.0.get_mut(topic);
        let Some(slot) = of_topic.and_then(|of_topic| of_topic.get_mut(&partition)) else {
            return;
        };
        // That commit may not have become durable.
        let is_it = slot.value.commit_timestamp == at;
        slot.touch = Touch {
            committed_by: touch.committed_by.filter(|_| is_it),
            rival: touch.rival.filter(|_| is_it),
            fetched_by: touch.fetched_by,
        };
    }

    /// The offset of a partition.
    pub(in crate::group) fn get(&self, topic: &str, partition: i32) -> Option<&Slot> {
        self.0.get(topic)?.get(&partition)
    }

    /// The offsets of one topic.
    pub(in crate::group) fn topic(
        &self,
        topic: &str,
    ) -> Option<(&TopicName, &BTreeMap<i32, Slot>)> {
        self.0.get_key_value(topic)
    }

    /// The offsets by topic.
    pub(in crate::group) fn topics(
        &self,
    ) -> impl Iterator<Item = (&TopicName, &BTreeMap<i32, Slot>)> {
        self.0.iter()
    }

    /// Every offset, in order.
    pub(in crate::group) fn iter(&self) -> impl Iterator<Item = (&TopicName, i32, &Slot)> {
        self.0.iter().flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |(partition, slot)| (topic, *partition, slot))
        })
    }

    /// Whether there are none.
    pub(in crate::group) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
