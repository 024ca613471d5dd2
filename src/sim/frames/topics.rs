//! Changes of topics as a client writes them, and what it reads in answer: by its own hand, while the server has
//! kafka-protocol's.

use std::ops::RangeInclusive;
use std::sync::Arc;

use kafka_protocol::messages::{self, BrokerId};

use crate::group::types::{TopicId, TopicName, TopicRef};
use crate::wire::bytes::{Read, Reader, Writer};
use crate::wire::data;

const CREATE_TOPICS: i16 = 19;
const DELETE_TOPICS: i16 = 20;
const CREATE_PARTITIONS: i16 = 37;
const ANY: i16 = i16::MAX;
/// How long the server may take, as it is told.
const TIMEOUT_MS: i32 = 30_000;

/// A topic that somebody wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sim) struct Wanted {
    pub(in crate::sim) name: TopicName,
    /// −1 is as many as the server makes by itself.
    pub(in crate::sim) partitions: i32,
    pub(in crate::sim) replicas: i16,
    /// Brokers, named for each partition: then the numbers above are −1.
    pub(in crate::sim) placed: Vec<i32>,
    pub(in crate::sim) configs: Vec<(Arc<str>, Option<Arc<str>>)>,
}

/// Something that an administrator wants done to topics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sim) enum TopicAsk {
    /// To make topics, or only to see whether they could be made.
    Create(Vec<Wanted>, bool),
    /// To give topics more partitions, so many in all.
    Grow(Vec<(TopicName, i32)>, bool),
    Delete(Vec<TopicRef>),
}

impl TopicAsk {
    /// The API's key.
    pub(in crate::sim) const fn key(&self) -> i16 {
        match self {
            Self::Create(..) => CREATE_TOPICS,
            Self::Grow(..) => CREATE_PARTITIONS,
            Self::Delete(_) => DELETE_TOPICS,
        }
    }

    /// What the server has read, in these words; `None` if it is something else.
    pub(in crate::sim) fn of(call: &data::Call, version: i16) -> Option<Self> {
        Some(match call {
            data::Call::CreateTopics(request) => {
                let wanted = |topic: &messages::create_topics_request::CreatableTopic| Wanted {
                    name: text(&topic.name),
                    partitions: topic.num_partitions,
                    replicas: topic.replication_factor,
                    placed: placed(topic),
                    configs: topic
                        .configs
                        .iter()
                        .map(|config| (text(&config.name), config.value.as_ref().map(|v| text(v))))
                        .collect(),
                };
                let topics = request.topics.iter().map(wanted).collect();
                Self::Create(topics, request.validate_only)
            }
            data::Call::CreatePartitions(request) => {
                let topics = request.topics.iter();
                let topics = topics.map(|topic| (text(&topic.name), topic.count));
                Self::Grow(topics.collect(), request.validate_only)
            }
            data::Call::DeleteTopics(request) if version < 6 => {
                let names = request.topic_names.iter();
                Self::Delete(names.map(|name| TopicRef::Name(text(name))).collect())
            }
            data::Call::DeleteTopics(request) => {
                let states = request.topics.iter().map(|state| match &state.name {
                    Some(name) => TopicRef::Name(text(name)),
                    None => TopicRef::Id(TopicId(state.topic_id.into_bytes())),
                });
                Self::Delete(states.collect())
            }
            _ => return None,
        })
    }
}

/// Whom each partition is given to, if they are in order and each has one.
fn placed(topic: &messages::create_topics_request::CreatableTopic) -> Vec<i32> {
    let in_order = topic.assignments.iter().zip(0..);
    in_order
        .map(|(partition, index)| match partition.broker_ids[..] {
            [BrokerId(broker)] if partition.partition_index == index => broker,
            _ => i32::MIN,
        })
        .collect()
}

fn text(text: &str) -> Arc<str> {
    Arc::from(text)
}

/// What a client is told of one topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sim) struct TopicAnswer {
    pub(in crate::sim) name: Option<TopicName>,
    /// Zero where it is not told.
    pub(in crate::sim) id: TopicId,
    pub(in crate::sim) code: i16,
    message: Option<Arc<str>>,
    /// −1 where it is not told.
    pub(in crate::sim) partitions: i32,
    /// How many configs are shown; −1 where none are.
    configs: i32,
}

impl TopicAnswer {
    fn told(
        name: Option<&str>,
        id: [u8; 16],
        code: i16,
        message: Option<&str>,
        (partitions, configs): (i32, i32),
    ) -> Self {
        Self {
            name: name.map(text),
            id: TopicId(id),
            code,
            message: message.map(text),
            partitions,
            configs,
        }
    }

    /// What the server has written, in these words.
    pub(in crate::sim) fn all_of(reply: &data::Reply) -> Option<Vec<Self>> {
        let count = |configs: Option<usize>| configs.map_or(-1, |count| count as i32);
        Some(match reply {
            data::Reply::CreateTopics(reply) => {
                let told = reply.topics.iter().map(|topic| {
                    let (id, configs) = (topic.topic_id.into_bytes(), &topic.configs);
                    let message = topic.error_message.as_deref();
                    let configs = count(configs.as_ref().map(Vec::len));
                    let counts = (topic.num_partitions, configs);
                    Self::told(Some(&topic.name), id, topic.error_code, message, counts)
                });
                told.collect()
            }
            data::Reply::CreatePartitions(reply) => {
                let told = reply.results.iter().map(|topic| {
                    let message = topic.error_message.as_deref();
                    Self::told(
                        Some(&topic.name),
                        [0; 16],
                        topic.error_code,
                        message,
                        (-1, -1),
                    )
                });
                told.collect()
            }
            data::Reply::DeleteTopics(reply) => {
                let told = reply.responses.iter().map(|topic| {
                    let name = topic.name.as_ref().map(|name| &***name);
                    let (id, message) = (topic.topic_id.into_bytes(), &topic.error_message);
                    Self::told(name, id, topic.error_code, message.as_deref(), (-1, -1))
                });
                told.collect()
            }
            _ => return None,
        })
    }

    /// Leaves out what the version has no room for.
    fn simplify(&mut self, key: i16, version: i16) {
        let (ids, messages) = match key {
            CREATE_TOPICS => (7, 1),
            DELETE_TOPICS => (6, 5),
            _ => (ANY, 0),
        };
        if version < ids {
            self.id = TopicId([0; 16]);
        }
        if version < messages {
            self.message = None;
        }
        if key == CREATE_TOPICS && version < 5 {
            (self.partitions, self.configs) = (-1, -1);
        }
    }
}

/// What is left of answers in a version.
pub(super) fn simplify(answers: &mut [TopicAnswer], key: i16, version: i16) {
    for answer in answers {
        answer.simplify(key, version);
    }
}

/// The versions that can say it.
pub(super) fn versions(ask: &TopicAsk) -> RangeInclusive<i16> {
    let by_id = |topic: &TopicRef| matches!(topic, TopicRef::Id(_));
    // Before version 4 a client must say numbers itself.
    let by_default = |topic: &Wanted| topic.placed.is_empty() && topic.partitions < 0;
    let low = match ask {
        TopicAsk::Delete(topics) if topics.iter().any(by_id) => 6,
        TopicAsk::Create(topics, _) if topics.iter().any(by_default) => 4,
        _ => 0,
    };
    low..=ANY
}

/// Writes the body.
pub(super) fn write(w: &mut Writer, version: i16, ask: &TopicAsk) {
    match ask {
        TopicAsk::Create(topics, only_check) => {
            w.items(topics, write_wanted);
            w.i32(TIMEOUT_MS);
            w.bool(*only_check);
        }
        TopicAsk::Grow(topics, only_check) => {
            w.items(topics, |w, (name, count)| {
                w.string(name);
                w.i32(*count);
                w.nullable_items(None::<&[()]>, |_, ()| {});
                w.tags();
            });
            w.i32(TIMEOUT_MS);
            w.bool(*only_check);
        }
        TopicAsk::Delete(topics) => {
            w.items(topics, |w, topic| match topic {
                TopicRef::Name(name) if version < 6 => w.string(name),
                TopicRef::Name(name) => {
                    w.nullable_string(Some(name));
                    w.topic_id(TopicId([0; 16]));
                    w.tags();
                }
                TopicRef::Id(id) => {
                    w.nullable_string(None);
                    w.topic_id(*id);
                    w.tags();
                }
            });
            w.i32(TIMEOUT_MS);
        }
    }
    w.tags();
}

fn write_wanted(w: &mut Writer, topic: &Wanted) {
    w.string(&topic.name);
    w.i32(topic.partitions);
    w.i16(topic.replicas);
    let placed: Vec<(i32, i32)> = (0..).zip(topic.placed.iter().copied()).collect();
    w.items(&placed, |w, (index, broker)| {
        w.i32(*index);
        w.items(&[*broker], |w, broker| w.i32(*broker));
        w.tags();
    });
    w.items(&topic.configs, |w, (name, value)| {
        w.string(name);
        w.nullable_string(value.as_deref());
        w.tags();
    });
    w.tags();
}

/// Reads the body, behind the time for which the client is held back.
pub(super) fn read(r: &mut Reader<'_>, key: i16, version: i16) -> Read<Vec<TopicAnswer>> {
    r.items(1, |r| {
        let name = r.nullable_string()?;
        let no_id = TopicId([0; 16]);
        let (mut id, mut message, mut partitions, mut configs) = (no_id, None, -1, -1);
        let code;
        match key {
            CREATE_TOPICS => {
                if version >= 7 {
                    id = r.topic_id()?;
                }
                code = r.i16()?;
                message = r.nullable_string()?;
                if version >= 5 {
                    partitions = r.i32()?;
                    r.i16()?;
                    configs = read_configs(r)?;
                }
            }
            DELETE_TOPICS => {
                if version >= 6 {
                    id = r.topic_id()?;
                }
                code = r.i16()?;
                if version >= 5 {
                    message = r.nullable_string()?;
                }
            }
            _ => {
                code = r.i16()?;
                message = r.nullable_string()?;
            }
        }
        r.tags()?;
        Ok(TopicAnswer {
            name,
            id,
            code,
            message,
            partitions,
            configs,
        })
    })
}

/// How many configs are shown.
fn read_configs(r: &mut Reader<'_>) -> Read<i32> {
    let configs = r.nullable_array(1, |r| {
        r.string()?;
        r.nullable_string()?;
        r.bool()?;
        r.i8()?;
        r.bool()?;
        r.tags()
    })?;
    Ok(configs.map_or(-1, |configs| configs.len() as i32))
}
