//! The map of topics: what is looked up by every request, the rules of names, and the image and delta given to
//! others. How a change is made durable and announced is `changes`.

use std::collections::BTreeMap;
use std::sync::Arc;

use hashbrown::HashMap;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::TopicName;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::OFFSETS_TOPIC;
use super::config_keys::TopicConfig;
use super::partition::Partition;

/// The longest topic name Kafka takes.
const NAME_BYTES_MAX: usize = 249;

/// What others need to know of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicSummary {
    /// The name.
    pub name: Arc<str>,
    /// The id; a topic created again has another.
    pub id: Uuid,
    /// How many partitions it has, numbered from 0.
    pub partitions: i32,
    /// Whether ordinary clients must not write to it.
    pub internal: bool,
}

/// All topics at one moment, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopicsImage {
    topics: BTreeMap<Arc<str>, TopicSummary>,
}

impl TopicsImage {
    /// The topic of that name.
    pub fn get(&self, name: &str) -> Option<&TopicSummary> {
        self.topics.get(name)
    }

    /// All topics, in order of name.
    pub fn iter(&self) -> impl Iterator<Item = &TopicSummary> {
        self.topics.values()
    }

    /// How many topics there are.
    pub fn len(&self) -> usize {
        self.topics.len()
    }

    /// Whether there is no topic.
    pub fn is_empty(&self) -> bool {
        self.topics.is_empty()
    }

    pub(super) fn put(&mut self, topic: TopicSummary) {
        self.topics.insert(Arc::clone(&topic.name), topic);
    }

    pub(super) fn remove(&mut self, name: &str) {
        self.topics.remove(name);
    }
}

/// Topics that appeared, grew or went. It is told before the reply of the call that changed them, and before any
/// other client can see a new topic.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TopicsChange {
    /// New topics.
    pub created: Vec<TopicSummary>,
    /// Topics with more partitions than before.
    pub grown: Vec<TopicSummary>,
    /// Topics that are gone.
    pub deleted: Vec<TopicSummary>,
    /// All topics after the change. Cheap to take; dropping it soon spares the next change a copy.
    pub image: Arc<TopicsImage>,
}

/// A topic as requests find it. Never changed: a change puts another in its place.
#[derive(Debug)]
pub(super) struct Topic {
    pub(super) summary: TopicSummary,
    pub(super) overrides: BTreeMap<String, String>,
    pub(super) config: TopicConfig,
    pub(super) partitions: Vec<Arc<Partition>>,
    wire_name: TopicName,
}

impl Topic {
    pub(super) fn new(
        summary: TopicSummary,
        overrides: BTreeMap<String, String>,
        defaults: &BTreeMap<String, String>,
        partitions: Vec<Arc<Partition>>,
    ) -> Self {
        let config = TopicConfig::new(&overrides, defaults);
        let wire_name = TopicName(StrBytes::from_string(summary.name.to_string()));
        Self {
            summary,
            overrides,
            config,
            partitions,
            wire_name,
        }
    }

    /// The name as responses carry it, without a copy.
    pub(super) fn wire_name(&self) -> TopicName {
        self.wire_name.clone()
    }

    pub(super) fn id(&self) -> Uuid {
        self.summary.id
    }

    pub(super) fn name(&self) -> &str {
        &self.summary.name
    }

    pub(super) fn partition(&self, index: i32) -> Option<&Arc<Partition>> {
        self.partitions.get(usize::try_from(index).ok()?)
    }
}

/// All topics, by name and by id.
#[derive(Debug, Default)]
pub(super) struct Topics {
    by_name: BTreeMap<Arc<str>, Arc<Topic>>,
    by_id: HashMap<Uuid, Arc<Topic>>,
    /// Names with `.` or `_`, with both written as `_`: Kafka's metrics cannot tell such names apart.
    folded: HashMap<String, Arc<str>>,
}

impl Topics {
    pub(super) fn get(&self, name: &str) -> Option<&Arc<Topic>> {
        self.by_name.get(name)
    }

    pub(super) fn by_id(&self, id: Uuid) -> Option<&Arc<Topic>> {
        self.by_id.get(&id)
    }

    /// All topics, in order of name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Topic>> {
        self.by_name.values()
    }

    pub(super) fn put(&mut self, topic: Arc<Topic>) {
        let name = Arc::clone(&topic.summary.name);
        if let Some(folded) = fold(&name) {
            self.folded.insert(folded, Arc::clone(&name));
        }
        self.by_id.insert(topic.id(), Arc::clone(&topic));
        self.by_name.insert(name, topic);
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<Arc<Topic>> {
        let topic = self.by_name.remove(name)?;
        self.by_id.remove(&topic.id());
        if let Some(folded) = fold(name) {
            self.folded.remove(&folded);
        }
        Some(topic)
    }

    /// The topic whose name differs from `name` only in `.` and `_`.
    pub(super) fn colliding(&self, name: &str) -> Option<&str> {
        let other = self.folded.get(&fold(name)?)?;
        (&**other != name).then_some(other)
    }
}

fn fold(name: &str) -> Option<String> {
    name.contains(['.', '_']).then(|| name.replace('.', "_"))
}

/// A refusal of an admin request: Kafka's code and sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) code: i16,
    pub(super) message: Option<String>,
}

impl Refusal {
    pub(super) fn new(error: ResponseError, message: impl Into<String>) -> Self {
        Self {
            code: error.code(),
            message: Some(message.into()),
        }
    }

    /// The message as responses carry it.
    pub(super) fn text(&self) -> Option<StrBytes> {
        self.message.clone().map(StrBytes::from_string)
    }
}

impl From<ResponseError> for Refusal {
    /// With the sentence Kafka uses where there is nothing particular to say.
    fn from(error: ResponseError) -> Self {
        let message = match error {
            ResponseError::UnknownTopicOrPartition => {
                "This server does not host this topic-partition.".to_owned()
            }
            ResponseError::UnknownTopicId => "This server does not host this topic ID.".to_owned(),
            other => other.to_string(),
        };
        Self {
            code: error.code(),
            message: Some(message),
        }
    }
}

/// Checks a topic name by Kafka's rules.
///
/// # Errors
/// INVALID_TOPIC_EXCEPTION with Kafka's sentence.
pub(super) fn check_name(name: &str) -> Result<(), Refusal> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let why = match name {
        "" => "the empty string is not allowed".to_owned(),
        "." | ".." => format!("'{name}' is not allowed"),
        _ if name.len() > NAME_BYTES_MAX && name.chars().all(allowed) => {
            format!("the length of '{name}' is longer than the max allowed length {NAME_BYTES_MAX}")
        }
        _ if !name.chars().all(allowed) => {
            let shown: String = name.chars().take(NAME_BYTES_MAX).collect();
            format!(
                "'{shown}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
            )
        }
        _ => return Ok(()),
    };
    Err(Refusal::new(
        ResponseError::InvalidTopicException,
        format!("Topic name is invalid: {why}"),
    ))
}

/// Topics Kafka keeps for itself. Only the first exists here; the others cannot be created by clients.
pub(super) fn is_reserved(name: &str) -> bool {
    matches!(
        name,
        OFFSETS_TOPIC | "__transaction_state" | "__share_group_state" | "__cluster_metadata"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rules() {
        for good in ["a", "a.b-c_D9", &"x".repeat(249)] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", ".", "..", "a b", "ü", &"x".repeat(250)] {
            assert_eq!(check_name(bad).unwrap_err().code, 17, "{bad}");
        }
    }

    #[test]
    fn names_that_differ_in_dots_and_underscores_collide_until_the_first_is_gone() {
        let mut topics = Topics::default();
        let summary = TopicSummary {
            name: "a.b".into(),
            id: Uuid::from_u128(1),
            partitions: 0,
            internal: false,
        };
        topics.put(Arc::new(Topic::new(
            summary,
            BTreeMap::new(),
            &BTreeMap::new(),
            Vec::new(),
        )));
        assert_eq!(topics.colliding("a_b"), Some("a.b"));
        assert_eq!(topics.colliding("a.b"), None);
        assert_eq!(topics.colliding("ab"), None);
        topics.remove("a.b");
        assert_eq!(topics.colliding("a_b"), None);
    }
}
