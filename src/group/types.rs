//! The small words of the core: ids, time, and the image of topics.
//!
//! Ids are reference-counted strings that own their bytes, so that nothing kept in state pins a request frame.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A group id. The empty string is legal for offsets and deletion (legacy simple consumers), nowhere else.
pub type GroupId = Arc<str>;
/// A member id; the empty string stands for "none yet", as on the wire.
pub type MemberId = Arc<str>;
/// A group instance id: the name of a static member (KIP-345).
pub type InstanceId = Arc<str>;
/// A topic name.
pub type TopicName = Arc<str>;

/// Unix milliseconds that never go back: the wall clock at start plus monotonic time since.
///
/// One clock for sessions, commit stamps and retention.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub i64);

impl Millis {
    /// The moment `ms` milliseconds later; negative spans count as none, and the far future saturates.
    #[must_use]
    pub fn plus(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms.max(0)))
    }

    /// Milliseconds from `earlier` to this moment, never negative.
    #[must_use]
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0).max(0)
    }
}

/// A topic's id: 16 bytes, all zero for "none".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// The id that means "no id".
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is [`TopicId::ZERO`].
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Self::ZERO
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for byte in self.0 {
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

/// How a request names a topic: by name, or by id in the versions that say so (OffsetCommit and OffsetFetch 10).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicRef {
    /// By name.
    Name(TopicName),
    /// By id.
    Id(TopicId),
}

/// One topic as the groups see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its id; never zero where the data plane knows ids.
    pub id: TopicId,
    /// How many partitions it has, 0 or more.
    pub partitions: i32,
}

/// An image of all topics at one moment. Shards share it; a change makes a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Topics {
    by_name: BTreeMap<TopicName, Topic>,
    by_id: BTreeMap<TopicId, TopicName>,
}

impl Topics {
    /// Adds or replaces a topic.
    pub fn insert(&mut self, name: TopicName, topic: Topic) {
        if let Some(old) = self.by_name.get(&name) {
            self.by_id.remove(&old.id);
        }
        if !topic.id.is_zero() {
            self.by_id.insert(topic.id, name.clone());
        }
        self.by_name.insert(name, topic);
    }

    /// Removes a topic by name.
    pub fn remove(&mut self, name: &str) {
        if let Some(old) = self.by_name.remove(name) {
            self.by_id.remove(&old.id);
        }
    }

    /// The topic of this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Topic> {
        self.by_name.get(name)
    }

    /// The topic of this name, with the shared spelling of the name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<(&TopicName, &Topic)> {
        self.by_name.get_key_value(name)
    }

    /// The name that an id stands for.
    #[must_use]
    pub fn name_of(&self, id: TopicId) -> Option<&TopicName> {
        self.by_id.get(&id)
    }

    /// All topics, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&TopicName, &Topic)> {
        self.by_name.iter()
    }

    /// How many topics there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }
}

/// What changed among the topics, and how they all are after it.
#[derive(Clone, Debug, Default)]
pub struct TopicsChange {
    /// All topics after the change.
    pub topics: Arc<Topics>,
    /// Names that are new. A topic made again under an old name is in `deleted` and here.
    pub created: Vec<TopicName>,
    /// Names that have more partitions than before.
    pub grown: Vec<TopicName>,
    /// Topics that are gone, with the id they had.
    pub deleted: Vec<(TopicName, TopicId)>,
}

/// Who sent a request: the client id of its header and the address it came from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Client {
    /// The client id; empty if the header had none.
    pub id: Arc<str>,
    /// The address in the text form Kafka describes members with: `/127.0.0.1`.
    pub host: Arc<str>,
}

/// The offsets partition a group belongs to: Kafka's `abs(hashCode(group)) mod count`, over UTF-16 units.
///
/// `count` must be positive.
#[must_use]
pub fn partition_for(group_id: &str, count: i32) -> i32 {
    let mut hash: i32 = 0;
    for unit in group_id.encode_utf16() {
        hash = hash.wrapping_mul(31).wrapping_add(i32::from(unit));
    }
    // Java's Math.abs leaves i32::MIN negative; Kafka maps it to 0.
    hash.checked_abs().unwrap_or(0) % count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_for_is_javas_string_hash() {
        assert_eq!(partition_for("", 50), 0);
        // "a".hashCode() = 97; "console-consumer".hashCode() = -937706126 is not needed: small ones do.
        assert_eq!(partition_for("a", 50), 47);
        assert_eq!(partition_for("ab", 50), (97 * 31 + 98) % 50);
        // "polygenelubricants".hashCode() = i32::MIN.
        assert_eq!(partition_for("polygenelubricants", 50), 0);
    }

    #[test]
    fn a_topic_made_again_answers_only_to_its_new_id() {
        let mut topics = Topics::default();
        topics.insert(
            "t".into(),
            Topic {
                id: TopicId([1; 16]),
                partitions: 1,
            },
        );
        topics.insert(
            "t".into(),
            Topic {
                id: TopicId([2; 16]),
                partitions: 1,
            },
        );
        assert!(topics.name_of(TopicId([1; 16])).is_none());
        assert_eq!(topics.name_of(TopicId([2; 16])).map(|n| &**n), Some("t"));
        topics.remove("t");
        assert!(topics.name_of(TopicId([2; 16])).is_none() && topics.is_empty());
    }
}
