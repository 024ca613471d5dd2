//! How topics and configs change: check against the map, write the journal, tell the groups, show the clients.
//! One change at a time; lookups go on meanwhile. Everything here blocks and runs on a blocking thread.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use hashbrown::HashSet;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::TopicName;

use super::journal::{Entry, TOPIC_PARTITIONS_MAX};
use super::partition::Partition;
use super::topics::{Refusal, Topic, TopicSummary, TopicsChange, check_name, is_reserved};
use super::{Changing, GroupConfigsChange, Shared};

/// Kafka's limit on partitions made by one request.
pub(super) const PARTITIONS_MAX: i64 = 10_000;

/// A topic to be created.
#[derive(Debug)]
pub(super) struct NewTopic {
    pub(super) name: String,
    /// −1 takes `num.partitions`.
    pub(super) partitions: i32,
    pub(super) configs: BTreeMap<String, String>,
}

impl NewTopic {
    /// A topic that somebody asked for without having created it.
    pub(super) fn auto(name: &TopicName) -> Self {
        Self {
            name: name.to_string(),
            partitions: -1,
            configs: BTreeMap::new(),
        }
    }
}

/// What a change to the configs of one resource came to.
pub(super) type Outcome = Result<(), Refusal>;

impl Shared {
    fn changing(&self) -> std::sync::MutexGuard<'_, Changing> {
        // A panic in a change leaves the journal and the map as they were: each is replaced in one step.
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks whether a topic may be created.
    pub(super) fn check_new(&self, name: &str) -> Result<(), Refusal> {
        check_name(name)?;
        let topics = self.topics();
        if topics.get(name).is_some() {
            return Err(Refusal::new(
                ResponseError::TopicAlreadyExists,
                format!("Topic '{name}' already exists."),
            ));
        }
        if is_reserved(name) {
            return Err(Refusal::new(
                ResponseError::InvalidTopicException,
                format!("Topic '{name}' is reserved; clients cannot create it."),
            ));
        }
        if let Some(other) = topics.colliding(name) {
            let message = format!("Topic '{name}' collides with existing topic: {other}");
            return Err(Refusal::new(ResponseError::InvalidTopicException, message));
        }
        Ok(())
    }

    /// Creates topics whose partitions and configs were checked. Each gets its own answer, in order.
    pub(super) fn create_topics(
        &self,
        wanted: Vec<NewTopic>,
    ) -> Vec<(String, Result<Arc<Topic>, Refusal>)> {
        let mut changing = self.changing();
        let mut topics: Vec<(String, Result<Arc<Topic>, Refusal>)> = Vec::new();
        let mut entries = Vec::new();
        let mut names = HashSet::new();
        for new in wanted {
            let check = self.check_new(&new.name).and_then(|()| {
                match names.insert(new.name.replace('.', "_")) {
                    true => Ok(()),
                    false => Err(Refusal::new(
                        ResponseError::InvalidTopicException,
                        format!(
                            "Topic '{}' collides with another topic of the request.",
                            new.name
                        ),
                    )),
                }
            });
            let made = check.map(|()| {
                let partitions = if new.partitions < 0 {
                    self.options.num_partitions
                } else {
                    new.partitions
                };
                let summary = TopicSummary {
                    name: new.name.as_str().into(),
                    id: (self.options.topic_ids)(),
                    partitions,
                    internal: false,
                };
                entries.push(Entry::topic(&summary, &new.configs));
                Arc::new(self.new_topic(summary, new.configs))
            });
            topics.push((new.name, made));
        }
        if let Err(refusal) = changing.journal.write(&entries) {
            return topics
                .into_iter()
                .map(|(name, made)| (name, made.and_then(|_| Err(refusal.clone()))))
                .collect();
        }
        let created: Vec<Arc<Topic>> = topics
            .iter()
            .filter_map(|(_, made)| made.as_ref().ok().cloned())
            .collect();
        if !created.is_empty() {
            let summaries: Vec<TopicSummary> =
                created.iter().map(|topic| topic.summary.clone()).collect();
            self.announce(&mut changing, summaries, Vec::new(), Vec::new());
            let mut map = self.topics_mut();
            created.into_iter().for_each(|topic| map.put(topic));
        }
        topics
    }

    /// Deletes topics by name. Each gets its own answer, in order; files go after the reply.
    pub(super) fn delete_topics(&self, names: &[Arc<str>]) -> Vec<Outcome> {
        let mut changing = self.changing();
        let mut gone: Vec<Arc<Topic>> = Vec::new();
        let check = |name: &Arc<str>| -> Outcome {
            let topic = self
                .topics()
                .get(name)
                .cloned()
                .ok_or(ResponseError::UnknownTopicOrPartition)?;
            if topic.summary.internal {
                let message = format!("Topic '{name}' is the group log and cannot be deleted.");
                return Err(Refusal::new(ResponseError::InvalidTopicException, message));
            }
            gone.push(topic);
            Ok(())
        };
        let outcomes: Vec<Outcome> = names.iter().map(check).collect();
        let entries: Vec<Entry> = gone
            .iter()
            .map(|topic| Entry::Deleted { id: topic.id() })
            .collect();
        if let Err(refusal) = changing.journal.write(&entries) {
            return outcomes
                .into_iter()
                .map(|outcome| outcome.and_then(|()| Err(refusal.clone())))
                .collect();
        }
        if !gone.is_empty() {
            {
                let mut map = self.topics_mut();
                for topic in &gone {
                    map.remove(topic.name());
                }
            }
            self.announce(
                &mut changing,
                Vec::new(),
                Vec::new(),
                gone.iter().map(|t| t.summary.clone()).collect(),
            );
            for topic in gone {
                self.forget(&topic);
            }
        }
        outcomes
    }

    /// Gives a topic more partitions.
    pub(super) fn grow(&self, name: &str, count: i32) -> Outcome {
        let mut changing = self.changing();
        let topic = self
            .topics()
            .get(name)
            .cloned()
            .ok_or(ResponseError::UnknownTopicOrPartition)?;
        // Somebody else may have grown it since it was checked.
        if count <= topic.summary.partitions {
            let message = format!(
                "The topic {name} currently has {} partition(s); {count} would not be an increase.",
                topic.summary.partitions
            );
            return Err(Refusal::new(ResponseError::InvalidPartitions, message));
        }
        if count > TOPIC_PARTITIONS_MAX {
            let message = format!("A topic has at most {TOPIC_PARTITIONS_MAX} partitions.");
            return Err(Refusal::new(ResponseError::InvalidPartitions, message));
        }
        changing.journal.write(&[Entry::Partitions {
            id: topic.id(),
            count,
        }])?;
        let summary = TopicSummary {
            partitions: count,
            ..topic.summary.clone()
        };
        let grown = Arc::new(self.replaced(&topic, summary.clone(), topic.overrides.clone()));
        self.announce(&mut changing, Vec::new(), vec![summary], Vec::new());
        self.topics_mut().put(grown);
        Ok(())
    }

    /// Puts the configs of a topic in the place of those it has: `edit` gets the present ones and says what they become.
    pub(super) fn configure_topic(
        &self,
        name: &str,
        edit: impl FnOnce(&BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal>,
        only_check: bool,
    ) -> Outcome {
        let mut changing = self.changing();
        let topic = self.topics().get(name).cloned().ok_or_else(|| {
            Refusal::new(
                ResponseError::UnknownTopicOrPartition,
                format!("The topic '{name}' does not exist."),
            )
        })?;
        let configs = edit(&topic.overrides)?;
        if only_check || configs == topic.overrides {
            return Ok(());
        }
        changing.journal.write(&[Entry::TopicConfigs {
            id: topic.id(),
            configs: configs.clone(),
        }])?;
        let changed = self.replaced(&topic, topic.summary.clone(), configs);
        self.topics_mut().put(Arc::new(changed));
        Ok(())
    }

    /// As [`Self::configure_topic`], for a group, which need not exist.
    pub(super) fn configure_group(
        &self,
        group: &str,
        edit: impl FnOnce(&BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Refusal>,
        only_check: bool,
    ) -> Outcome {
        let mut changing = self.changing();
        let present = self.groups().get(group).cloned().unwrap_or_default();
        let configs = edit(&present)?;
        if only_check || configs == present {
            return Ok(());
        }
        changing.journal.write(&[Entry::GroupConfigs {
            group: group.to_owned(),
            configs: configs.clone(),
        }])?;
        {
            let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
            match configs.is_empty() {
                true => groups.remove(group),
                false => groups.insert(group.to_owned(), configs.clone()),
            };
        }
        (self.on_group_configs)(GroupConfigsChange {
            group: group.to_owned(),
            configs,
        });
        Ok(())
    }

    /// Tells others, with the image brought up to date.
    fn announce(
        &self,
        changing: &mut Changing,
        created: Vec<TopicSummary>,
        grown: Vec<TopicSummary>,
        deleted: Vec<TopicSummary>,
    ) {
        let image = Arc::make_mut(&mut changing.image);
        for topic in &deleted {
            image.remove(&topic.name);
        }
        for topic in created.iter().chain(&grown) {
            image.put(topic.clone());
        }
        let image = Arc::clone(&changing.image);
        (self.on_topics)(TopicsChange {
            created,
            grown,
            deleted,
            image,
        });
    }

    /// A topic with partitions that hold nothing yet.
    pub(super) fn new_topic(
        &self,
        summary: TopicSummary,
        configs: BTreeMap<String, String>,
    ) -> Topic {
        let partitions = (0..summary.partitions)
            .map(|index| self.new_partition(summary.id, index))
            .collect();
        Topic::new(summary, configs, &self.options.topic_defaults, partitions)
    }

    /// The same topic with another summary or other configs; the partitions it has stay.
    fn replaced(
        &self,
        topic: &Topic,
        summary: TopicSummary,
        configs: BTreeMap<String, String>,
    ) -> Topic {
        let mut partitions = topic.partitions.clone();
        let present = topic.summary.partitions;
        partitions.extend(
            (present..summary.partitions).map(|index| self.new_partition(summary.id, index)),
        );
        Topic::new(summary, configs, &self.options.topic_defaults, partitions)
    }

    /// Reserves producer ids and gives the first of the block.
    pub(super) fn next_producer_ids(&self, count: i64) -> Result<i64, Refusal> {
        let mut changing = self.changing();
        let first = changing.producer_ids_next;
        let next = first
            .checked_add(count)
            .ok_or(ResponseError::UnknownServerError)?;
        changing.journal.write(&[Entry::ProducerIds { next }])?;
        changing.producer_ids_next = next;
        Ok(first)
    }

    /// Moves the starts of partitions, durably. Each gets its own answer, in order: the start, or an error code.
    pub(super) fn delete_records(&self, moves: &[Move]) -> Vec<Result<i64, i16>> {
        let mut entries = Vec::new();
        let checked: Vec<_> = moves
            .iter()
            .map(|asked| asked.check(&mut entries))
            .collect();
        let written = self
            .changing()
            .journal
            .write(&entries)
            .map_err(|refusal| refusal.code);
        let apply = |checked: Result<(&Arc<Partition>, i64), ResponseError>| {
            let (partition, start) = checked.map_err(|error| error.code())?;
            written.map(|()| partition.set_start(start))
        };
        checked.into_iter().map(apply).collect()
    }
}

/// A partition whose start is to be moved.
pub(super) struct Move {
    /// The topic, if there is one of the name that was asked for.
    pub(super) topic: Option<Arc<Topic>>,
    pub(super) partition: i32,
    /// −1 is the end.
    pub(super) offset: i64,
}

impl Move {
    /// The partition and its new start; a start that moves is added to `entries`.
    fn check(&self, entries: &mut Vec<Entry>) -> Result<(&Arc<Partition>, i64), ResponseError> {
        let topic = self
            .topic
            .as_ref()
            .ok_or(ResponseError::UnknownTopicOrPartition)?;
        if topic.summary.internal {
            return Err(ResponseError::InvalidTopicException);
        }
        let partition = topic
            .partition(self.partition)
            .ok_or(ResponseError::UnknownTopicOrPartition)?;
        let offset = partition.check_start(self.offset)?;
        if offset > partition.bounds().log_start {
            entries.push(Entry::Start {
                id: topic.id(),
                partition: self.partition,
                offset,
            });
        }
        Ok((partition, offset))
    }
}
