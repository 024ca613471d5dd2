//! The image of topics, and the way of every change to all shards.

use std::sync::{Arc, Mutex, PoisonError};

use super::shard::{Letter, Mailbox};
use crate::broker;
use crate::desk::image::Image;
use crate::group::GroupOverrides;
use crate::group::types::{Topics, partition_for};

/// Holds the newest image and passes changes on to every shard.
#[derive(Debug)]
pub(crate) struct Announcer {
    shards: Arc<[Mailbox]>,
    newest: Mutex<Image>,
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
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        newest.topics().clone()
    }

    /// Begins with what there is.
    pub(crate) fn begin(&self, image: &broker::TopicsImage) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Image::of(image);
    }

    /// Tells the group's shard what the group sets for itself.
    pub(crate) fn configure(&self, group_id: &str, overrides: GroupOverrides) {
        let shard = &self.shards[shard_of(group_id, self.shards.len())];
        shard.send(Letter::Configure(group_id.into(), overrides));
    }

    /// Puts a change into every mailbox. Whoever hears of it by a later reply finds the shards informed.
    pub(crate) fn announce(&self, change: &broker::TopicsChange) {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let change = Arc::new(newest.take(change));
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
