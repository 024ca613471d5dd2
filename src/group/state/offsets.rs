//! The committed offsets of one group.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use crate::group::record::OffsetValue;
use crate::group::types::TopicName;

/// Most commits carry no note; they share this one.
static NO_METADATA: LazyLock<Arc<str>> = LazyLock::new(|| Arc::from(""));

/// Committed offsets by topic and partition.
#[derive(Clone, Debug, Default, PartialEq)]
pub(in crate::group) struct Offsets(BTreeMap<TopicName, BTreeMap<i32, OffsetValue>>);

impl Offsets {
    /// Sets an offset; gives the one before.
    pub(super) fn put(
        &mut self,
        topic: &TopicName,
        partition: i32,
        mut value: OffsetValue,
    ) -> Option<OffsetValue> {
        if value.metadata.is_empty() {
            value.metadata = NO_METADATA.clone();
        }
        // Not `entry`: it would want the name by value for each commit.
        if !self.0.contains_key(topic) {
            self.0.insert(topic.clone(), BTreeMap::new());
        }
        self.0
            .get_mut(topic)
            .expect("inserted above")
            .insert(partition, value)
    }

    /// Removes an offset; gives the one that was there.
    pub(super) fn remove(&mut self, topic: &str, partition: i32) -> Option<OffsetValue> {
        let partitions = self.0.get_mut(topic)?;
        let removed = partitions.remove(&partition);
        if partitions.is_empty() {
            self.0.remove(topic);
        }
        removed
    }

    /// The offset of a partition.
    pub(in crate::group) fn get(&self, topic: &str, partition: i32) -> Option<&OffsetValue> {
        self.0.get(topic)?.get(&partition)
    }

    /// The offsets of one topic.
    pub(in crate::group) fn topic(
        &self,
        topic: &str,
    ) -> Option<(&TopicName, &BTreeMap<i32, OffsetValue>)> {
        self.0.get_key_value(topic)
    }

    /// The offsets by topic.
    pub(in crate::group) fn topics(
        &self,
    ) -> impl Iterator<Item = (&TopicName, &BTreeMap<i32, OffsetValue>)> {
        self.0.iter()
    }

    /// Every offset, in order.
    pub(in crate::group) fn iter(&self) -> impl Iterator<Item = (&TopicName, i32, &OffsetValue)> {
        self.0.iter().flat_map(|(topic, partitions)| {
            partitions
                .iter()
                .map(move |(partition, value)| (topic, *partition, value))
        })
    }

    /// Whether there are none.
    pub(in crate::group) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
