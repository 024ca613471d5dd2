//! The image of topics in the core's words, kept from what the data plane announces.

use std::sync::{Arc, Mutex, PoisonError};

use super::shard::{Letter, Mailbox};
use crate::broker::{self, TopicSummary};
use crate::group::GroupOverrides;
use crate::group::types::{Topic, TopicId, Topics, TopicsChange, partition_for};

/// Holds the newest image and passes changes on to every shard.
#[derive(Debug)]
pub(crate) struct Announcer {
    shards: Arc<[Mailbox]>,
    newest: Mutex<Arc<Topics>>,
}

impl Announcer {
    pub(crate) fn new(shards: Arc<[Mailbox]>) -> Self {
        Self {
            shards,
            newest: Mutex::default(),
        }
    }

    /// The newest image.
    pub(crate) fn newest(&self) -> Arc<Topics> {
        self.newest
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Begins with what there is.
    pub(crate) fn begin(&self, image: &broker::TopicsImage) {
        let mut topics = Topics::default();
        for summary in image.iter() {
            topics.insert(summary.name.clone(), topic(summary));
        }
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(topics);
    }

    /// Tells the group's shard what the group sets for itself.
    pub(crate) fn configure(&self, group_id: &str, overrides: GroupOverrides) {
        let shard = &self.shards[shard_of(group_id, self.shards.len())];
        shard.send(Letter::Configure(group_id.into(), overrides));
    }

    /// Puts a change into every mailbox. Whoever hears of it by a later reply finds the shards informed.
    pub(crate) fn announce(&self, change: &broker::TopicsChange) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut topics = (**newest).clone();
        for gone in &change.deleted {
            topics.remove(&gone.name);
        }
        for summary in change.created.iter().chain(&change.grown) {
            topics.insert(summary.name.clone(), topic(summary));
        }
        *newest = Arc::new(topics);
        let change = Arc::new(TopicsChange {
            topics: newest.clone(),
            created: change
                .created
                .iter()
                .map(|summary| summary.name.clone())
                .collect(),
            grown: change
                .grown
                .iter()
                .map(|summary| summary.name.clone())
                .collect(),
            deleted: change
                .deleted
                .iter()
                .map(|summary| (summary.name.clone(), TopicId(summary.id.into_bytes())))
                .collect(),
        });
        // Under the lock, so that every shard hears of changes in the same order.
        for shard in self.shards.iter() {
            shard.send(Letter::Topics(change.clone()));
        }
    }
}

/// Which of so many shards a group belongs to.
pub(crate) fn shard_of(group_id: &str, shards: usize) -> usize {
    // There are at most 10,000 shards, and the hash is below their number.
    let count = i32::try_from(shards).unwrap_or(i32::MAX);
    usize::try_from(partition_for(group_id, count)).unwrap_or(0)
}

fn topic(summary: &TopicSummary) -> Topic {
    Topic {
        id: TopicId(summary.id.into_bytes()),
        partitions: summary.partitions,
    }
}
