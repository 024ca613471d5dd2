//! What the core wants done: records to append, replies to send, and in which order.

use super::record::Record;
use super::request::{Reply, RequestId};
use super::types::GroupId;

/// The outcome of one or more calls of [`Coordinator`](crate::group).
///
/// Contract, as in etcd raft's `Ready`: append all `records` as one atomic batch, in this order. No reply leaves
/// before the records that it could have seen are durable: see [`After`].
#[derive(Debug, Default)]
pub struct Actions {
    /// To append, in this order, as one batch.
    pub records: Vec<Record>,
    /// To send.
    pub replies: Vec<Answer>,
    /// Requests that will never be answered: their member asked again elsewhere, and Kafka stays mute on the old
    /// connection. The shell forgets them and serves nothing more on that connection.
    pub superseded: Vec<RequestId>,
}

/// One reply and what must be durable before it leaves.
#[derive(Debug)]
pub struct Answer {
    /// Who waits.
    pub id: RequestId,
    /// What to say.
    pub reply: Reply,
    /// What must be durable first.
    pub after: After,
}

/// What must be durable before a reply leaves: every record, of this batch or an earlier one, about the named group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum After {
    /// The records of this group. Other groups' records do not hold it up.
    Group(GroupId),
    /// All records of the shard so far (ListGroups).
    Shard,
}

impl Actions {
    /// Whether there is nothing to do.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty() && self.replies.is_empty() && self.superseded.is_empty()
    }

    /// Forgets everything, keeping the room.
    pub fn clear(&mut self) {
        self.records.clear();
        self.replies.clear();
        self.superseded.clear();
    }

    pub(crate) fn reply(&mut self, id: RequestId, group_id: &GroupId, reply: Reply) {
        self.replies.push(Answer {
            id,
            reply,
            after: After::Group(group_id.clone()),
        });
    }
}
