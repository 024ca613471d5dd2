//! CreateTopics, CreatePartitions, DeleteTopics, DeleteRecords, DescribeLogDirs, InitProducerId, and the answers of a
//! broker without ACLs, reassignments or transactions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_partitions_response::CreatePartitionsTopicResult;
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use kafka_protocol::messages::create_topics_response::CreatableTopicResult;
use kafka_protocol::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use kafka_protocol::messages::delete_topics_response::DeletableTopicResult;
use kafka_protocol::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use kafka_protocol::messages::describe_producers_request::TopicRequest;
use kafka_protocol::messages::describe_producers_response::{
    PartitionResponse, ProducerState, TopicResponse,
};
use kafka_protocol::messages::{
    BrokerId, CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest,
    CreateTopicsResponse, DeleteRecordsRequest, DeleteRecordsResponse, DeleteTopicsRequest,
    DeleteTopicsResponse, DescribeAclsRequest, DescribeAclsResponse, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeProducersRequest, DescribeProducersResponse,
    InitProducerIdRequest, InitProducerIdResponse, ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse, ListTransactionsRequest, ListTransactionsResponse,
    ProducerId, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use super::changes::{Move, NewTopic, Outcome, PARTITIONS_MAX};
use super::producers::Producer;
use super::topics::{Refusal, Topic};
use super::{Broker, Shared};

/// The states a transaction can be in, as ListTransactions filters name them.
const TRANSACTION_STATES: [&str; 8] = [
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
];

impl Broker {
    /// CreateTopics 2–7. The topics exist, durably, when this answers.
    pub async fn create_topics(&self, request: CreateTopicsRequest) -> CreateTopicsResponse {
        let twice = named_twice(request.topics.iter().map(|topic| &topic.name));
        let mut results: Vec<CreatableTopicResult> = twice
            .iter()
            .map(|name| refused_topic((*name).clone(), &duplicate()))
            .collect();
        let mut wanted = Vec::new();
        let mut partitions_left = PARTITIONS_MAX;
        for topic in request
            .topics
            .iter()
            .filter(|topic| !twice.contains(&topic.name))
        {
            match self.shared.plan(topic, &mut partitions_left) {
                Err(refusal) => results.push(refused_topic(topic.name.clone(), &refusal)),
                Ok(new) if request.validate_only => {
                    results.push(self.shared.created(
                        topic.name.clone(),
                        new.partitions,
                        &new.configs,
                    ));
                }
                Ok(new) => wanted.push(new),
            }
        }
        if !wanted.is_empty() {
            let names: Vec<String> = wanted.iter().map(|new| new.name.clone()).collect();
            let shared = self.shared.clone();
            let made = self
                .change(move || shared.create_topics(wanted))
                .await
                .unwrap_or_else(|| {
                    names
                        .into_iter()
                        .map(|name| (name, Err(ResponseError::UnknownServerError.into())))
                        .collect()
                });
            for (name, made) in made {
                results.push(match made {
                    Ok(topic) => self
                        .shared
                        .created(
                            topic.wire_name(),
                            topic.summary.partitions,
                            &topic.overrides,
                        )
                        .with_topic_id(topic.id()),
                    Err(refusal) => refused_topic(TopicName(StrBytes::from_string(name)), &refusal),
                });
            }
        }
        CreateTopicsResponse::default().with_topics(results)
    }

    /// CreatePartitions 0–3.
    pub async fn create_partitions(
        &self,
        request: CreatePartitionsRequest,
    ) -> CreatePartitionsResponse {
        let twice = named_twice(request.topics.iter().map(|topic| &topic.name));
        let result = |name: &TopicName, outcome: Outcome| {
            let refusal = outcome.err();
            CreatePartitionsTopicResult::default()
                .with_name(name.clone())
                .with_error_code(refusal.as_ref().map_or(0, |refusal| refusal.code))
                .with_error_message(refusal.and_then(|refusal| refusal.text()))
        };
        let mut results: Vec<_> = twice
            .iter()
            .map(|name| result(name, Err(duplicate())))
            .collect();
        let mut left = PARTITIONS_MAX;
        for topic in request
            .topics
            .iter()
            .filter(|topic| !twice.contains(&topic.name))
        {
            let mut outcome = self.shared.check_growth(topic, &mut left);
            if outcome.is_ok() && !request.validate_only {
                let (shared, name, count) =
                    (self.shared.clone(), topic.name.to_string(), topic.count);
                let grown = self.change(move || shared.grow(&name, count)).await;
                outcome = grown.unwrap_or_else(|| Err(ResponseError::UnknownServerError.into()));
            }
            results.push(result(&topic.name, outcome));
        }
        CreatePartitionsResponse::default().with_results(results)
    }

    /// DeleteTopics 1–6, by name or (version 6) by id.
    pub async fn delete_topics(
        &self,
        request: DeleteTopicsRequest,
        version: i16,
    ) -> DeleteTopicsResponse {
        if !self.shared.options.delete_topics {
            return deletion_disabled(request, version);
        }
        let mut results = Vec::new();
        let mut names: Vec<Arc<str>> = Vec::new();
        {
            let topics = self.shared.topics();
            let mut asked: Vec<(Option<TopicName>, Option<Arc<Topic>>, uuid::Uuid)> = Vec::new();
            if version < 6 {
                asked.extend(request.topic_names.into_iter().map(|name| {
                    let topic = topics.get(&name).cloned();
                    (Some(name), topic, uuid::Uuid::nil())
                }));
            } else {
                for state in request.topics {
                    let refuse = |why| Refusal::new(ResponseError::InvalidRequest, why);
                    match state.name {
                        Some(name) if !state.topic_id.is_nil() => {
                            let refusal =
                                refuse("You may not specify both topic name and topic id.");
                            results.push(deleted(Some(name), state.topic_id, Some(&refusal)));
                        }
                        Some(name) => asked.push((
                            Some(name.clone()),
                            topics.get(&name).cloned(),
                            uuid::Uuid::nil(),
                        )),
                        None if state.topic_id.is_nil() => {
                            let refusal = refuse("Neither topic name nor id were specified.");
                            results.push(deleted(None, state.topic_id, Some(&refusal)));
                        }
                        None => asked.push((
                            None,
                            topics.by_id(state.topic_id).cloned(),
                            state.topic_id,
                        )),
                    }
                }
            }
            let mut mentions: HashMap<String, usize> = HashMap::new();
            let mention =
                |name: &Option<TopicName>, topic: &Option<Arc<Topic>>, id: uuid::Uuid| match (
                    topic, name,
                ) {
                    (Some(topic), _) => topic.name().to_owned(),
                    (None, Some(name)) => name.to_string(),
                    (None, None) => id.to_string(),
                };
            for (name, topic, id) in &asked {
                *mentions.entry(mention(name, topic, *id)).or_default() += 1;
            }
            for (name, topic, id) in asked {
                let times = mentions
                    .get_mut(&mention(&name, &topic, id))
                    .map_or(0, std::mem::take);
                match (times, topic) {
                    (0, _) => {}
                    (1, Some(topic)) => names.push(Arc::clone(&topic.summary.name)),
                    (1, None) if name.is_some() => {
                        results.push(deleted(
                            name,
                            id,
                            Some(&ResponseError::UnknownTopicOrPartition.into()),
                        ));
                    }
                    (1, None) => results.push(deleted(
                        None,
                        id,
                        Some(&ResponseError::UnknownTopicId.into()),
                    )),
                    (_, _) => results.push(deleted(name, id, Some(&duplicate()))),
                }
            }
        }
        if !names.is_empty() {
            let ids: Vec<uuid::Uuid> = {
                let topics = self.shared.topics();
                names
                    .iter()
                    .map(|name| {
                        topics
                            .get(name)
                            .map_or(uuid::Uuid::nil(), |topic| topic.id())
                    })
                    .collect()
            };
            let (shared, asked) = (self.shared.clone(), names.clone());
            let outcomes = self
                .change(move || shared.delete_topics(&asked))
                .await
                .unwrap_or_else(|| {
                    names
                        .iter()
                        .map(|_| Err(ResponseError::UnknownServerError.into()))
                        .collect()
                });
            for ((name, id), outcome) in names.iter().zip(ids).zip(outcomes) {
                let name = TopicName(StrBytes::from_string(name.to_string()));
                results.push(deleted(Some(name), id, outcome.err().as_ref()));
            }
        }
        DeleteTopicsResponse::default().with_responses(results)
    }

    /// DeleteRecords 0–2: moves the start of partitions, durably and with one sync for all; −1 means up to the end.
    pub async fn delete_records(&self, request: DeleteRecordsRequest) -> DeleteRecordsResponse {
        let mut moves = Vec::new();
        for topic in &request.topics {
            let found = self.shared.topics().get(&topic.name).cloned();
            for partition in &topic.partitions {
                let (partition, offset) = (partition.partition_index, partition.offset);
                moves.push(Move {
                    topic: found.clone(),
                    partition,
                    offset,
                });
            }
        }
        let count = moves.len();
        let shared = self.shared.clone();
        let moved = self.change(move || shared.delete_records(&moves)).await;
        let moved =
            moved.unwrap_or_else(|| vec![Err(ResponseError::UnknownServerError.code()); count]);
        let mut moved = moved.into_iter();
        let mut results = Vec::with_capacity(request.topics.len());
        for topic in request.topics {
            let partitions = topic
                .partitions
                .iter()
                .zip(&mut moved)
                .map(|(partition, moved)| {
                    DeleteRecordsPartitionResult::default()
                        .with_partition_index(partition.partition_index)
                        .with_low_watermark(moved.unwrap_or(-1))
                        .with_error_code(moved.err().unwrap_or(0))
                });
            let partitions = partitions.collect();
            results.push(
                DeleteRecordsTopicResult::default()
                    .with_name(topic.name)
                    .with_partitions(partitions),
            );
        }
        DeleteRecordsResponse::default().with_topics(results)
    }

    /// DescribeLogDirs 1–4: the one folder, with the bytes each partition takes.
    pub fn describe_log_dirs(&self, request: &DescribeLogDirsRequest) -> DescribeLogDirsResponse {
        let all = self.shared.topics();
        let describe = |topic: &Topic, wanted: Option<&HashSet<i32>>| {
            let all = topic.partitions.iter().zip(0..);
            let partitions =
                all.filter(|(_, index)| wanted.is_none_or(|wanted| wanted.contains(index)));
            let partitions = partitions.map(|(partition, index)| {
                let size = i64::try_from(partition.size_bytes()).unwrap_or(i64::MAX);
                DescribeLogDirsPartition::default()
                    .with_partition_index(index)
                    .with_partition_size(size)
            });
            DescribeLogDirsTopic::default()
                .with_name(topic.wire_name())
                .with_partitions(partitions.collect())
        };
        let topics = match &request.topics {
            None => all.iter().map(|topic| describe(topic, None)).collect(),
            Some(asked) => {
                // Named twice is described once: what is asked for is a set.
                let mut wanted: HashMap<&TopicName, HashSet<i32>> = HashMap::new();
                for topic in asked {
                    wanted
                        .entry(&topic.topic)
                        .or_default()
                        .extend(&topic.partitions);
                }
                let found = wanted
                    .iter()
                    .filter_map(|(name, wanted)| Some(describe(all.get(name)?, Some(wanted))));
                found.filter(|topic| !topic.partitions.is_empty()).collect()
            }
        };
        let (name, total, usable) = self.shared.disk();
        let result = DescribeLogDirsResult::default()
            .with_log_dir(StrBytes::from_string(name))
            .with_topics(topics)
            .with_total_bytes(total)
            .with_usable_bytes(usable);
        DescribeLogDirsResponse::default().with_results(vec![result])
    }

    /// InitProducerId 0–5 for idempotent producers. Transactions are not offered: a transactional id is refused for
    /// good, so that no client tries again and again.
    pub async fn init_producer_id(&self, request: InitProducerIdRequest) -> InitProducerIdResponse {
        let refuse = |code| {
            InitProducerIdResponse::default()
                .with_error_code(code)
                .with_producer_id(ProducerId(-1))
                .with_producer_epoch(-1)
        };
        match request.transactional_id {
            Some(id) if id.is_empty() => return refuse(ResponseError::InvalidRequest.code()),
            Some(_) => return refuse(ResponseError::TransactionalIdAuthorizationFailed.code()),
            None => {}
        }
        match self.new_producer_id().await {
            Ok(id) => InitProducerIdResponse::default()
                .with_producer_id(ProducerId(id))
                .with_producer_epoch(0),
            Err(refusal) => refuse(refusal.code),
        }
    }

    /// DescribeProducers 0: the idempotent producers a partition knows.
    pub fn describe_producers(
        &self,
        request: &DescribeProducersRequest,
    ) -> DescribeProducersResponse {
        let map = self.shared.topics();
        let state = |(id, producer): (i64, Producer)| {
            ProducerState::default()
                .with_producer_id(ProducerId(id))
                .with_producer_epoch(producer.epoch.into())
                .with_last_sequence(
                    producer
                        .batches
                        .back()
                        .map_or(-1, |batch| batch.last_sequence),
                )
                .with_last_timestamp(producer.batches.back().map_or(-1, |batch| batch.timestamp))
                .with_coordinator_epoch(-1)
                .with_current_txn_start_offset(-1)
        };
        let mut seen = HashSet::new();
        let topic = |topic: &TopicRequest| {
            let found = map.get(&topic.name);
            let first = topic
                .partition_indexes
                .iter()
                .filter(|index| seen.insert((topic.name.clone(), **index)));
            let partition = |index: &i32| {
                let response = PartitionResponse::default()
                    .with_partition_index(*index)
                    .with_error_message(None);
                match found.and_then(|found| found.partition(*index)) {
                    Some(partition) => response.with_active_producers(
                        partition.producers().into_iter().map(state).collect(),
                    ),
                    None => response.with_error_code(ResponseError::UnknownTopicOrPartition.code()),
                }
            };
            let partitions = first.map(partition).collect();
            TopicResponse::default()
                .with_name(topic.name.clone())
                .with_partitions(partitions)
        };
        DescribeProducersResponse::default().with_topics(request.topics.iter().map(topic).collect())
    }

    /// ListPartitionReassignments 0: none, ever.
    pub fn list_partition_reassignments(
        &self,
        _: &ListPartitionReassignmentsRequest,
    ) -> ListPartitionReassignmentsResponse {
        ListPartitionReassignmentsResponse::default().with_error_message(None)
    }

    /// ListTransactions 0–2: none; states that do not exist are told, as Kafka does.
    pub fn list_transactions(&self, request: &ListTransactionsRequest) -> ListTransactionsResponse {
        let unknown = request
            .state_filters
            .iter()
            .filter(|state| !TRANSACTION_STATES.contains(&&***state));
        ListTransactionsResponse::default().with_unknown_state_filters(unknown.cloned().collect())
    }

    /// DescribeAcls 1–3: SECURITY_DISABLED, as Kafka without an authoriser.
    pub fn describe_acls(&self, _: &DescribeAclsRequest) -> DescribeAclsResponse {
        DescribeAclsResponse::default()
            .with_error_code(ResponseError::SecurityDisabled.code())
            .with_error_message(Some(StrBytes::from_static_str(
                "No Authorizer is configured on the broker",
            )))
    }
}

impl Shared {
    /// Checks one topic of CreateTopics and says what would be made.
    fn plan(&self, topic: &CreatableTopic, partitions_left: &mut i64) -> Result<NewTopic, Refusal> {
        self.check_new(&topic.name)?;
        let mut configs = BTreeMap::new();
        for config in &topic.configs {
            let Some(value) = &config.value else {
                let message = format!(
                    "Null value not supported for topic configs: {}",
                    &*config.name
                );
                return Err(Refusal::new(ResponseError::InvalidConfig, message));
            };
            if configs
                .insert(config.name.to_string(), value.to_string())
                .is_some()
            {
                return Err(Refusal::new(
                    ResponseError::InvalidRequest,
                    "Error due to duplicate config keys",
                ));
            }
        }
        self.check_topic_configs(&configs)?;
        let partitions = if topic.assignments.is_empty() {
            let count = match topic.num_partitions {
                -1 => self.options.num_partitions,
                ..=0 => {
                    return Err(Refusal::new(
                        ResponseError::InvalidPartitions,
                        "Number of partitions was set to an invalid non-positive value.",
                    ));
                }
                count => count,
            };
            match topic.replication_factor {
                -1 | 1 => {}
                ..=0 => {
                    return Err(Refusal::new(
                        ResponseError::InvalidReplicationFactor,
                        "Replication factor must be larger than 0, or -1 to use the default value.",
                    ));
                }
                more => {
                    let message = format!(
                        "Unable to replicate the partition {more} time(s): The target replication factor of {more} \
                         cannot be reached because only 1 broker(s) are registered."
                    );
                    return Err(Refusal::new(
                        ResponseError::InvalidReplicationFactor,
                        message,
                    ));
                }
            }
            count
        } else {
            self.check_manual(topic)?
        };
        *partitions_left -= i64::from(partitions);
        if *partitions_left < 0 {
            return Err(Refusal::new(
                ResponseError::PolicyViolation,
                "Excessively large number of partitions per request.",
            ));
        }
        Ok(NewTopic {
            name: topic.name.to_string(),
            partitions,
            configs,
        })
    }

    /// Checks a manual assignment and gives the number of partitions.
    fn check_manual(&self, topic: &CreatableTopic) -> Result<i32, Refusal> {
        for (set, what) in [
            (topic.replication_factor != -1, "replication factor"),
            (topic.num_partitions != -1, "numPartitions"),
        ] {
            if set {
                let message = format!(
                    "A manual partition assignment was specified, but {what} was not set to -1."
                );
                return Err(Refusal::new(ResponseError::InvalidRequest, message));
            }
        }
        let mut indexes = BTreeSet::new();
        for CreatableReplicaAssignment {
            partition_index,
            broker_ids,
            ..
        } in &topic.assignments
        {
            self.check_replicas(broker_ids)?;
            if !indexes.insert(*partition_index) {
                let message = format!(
                    "Found multiple manual partition assignments for partition {partition_index}"
                );
                return Err(Refusal::new(
                    ResponseError::InvalidReplicaAssignment,
                    message,
                ));
            }
        }
        if !indexes
            .iter()
            .copied()
            .eq(0..topic.assignments.len() as i32)
        {
            return Err(Refusal::new(
                ResponseError::InvalidReplicaAssignment,
                "partitions should be a consecutive 0-based integer sequence",
            ));
        }
        Ok(topic.assignments.len() as i32)
    }

    fn check_replicas(&self, brokers: &[BrokerId]) -> Result<(), Refusal> {
        let refuse = |message: String| {
            Err(Refusal::new(
                ResponseError::InvalidReplicaAssignment,
                message,
            ))
        };
        let own = self.options.node_id;
        match brokers {
            [] => {
                refuse("The manual partition assignment includes an empty replica list.".to_owned())
            }
            [only] if only.0 == own => Ok(()),
            _ => match brokers.iter().find(|broker| broker.0 != own) {
                Some(other) => refuse(format!(
                    "The manual partition assignment includes broker {}, but no such broker is registered.",
                    other.0
                )),
                None => refuse(format!(
                    "The manual partition assignment includes the broker {own} more than once."
                )),
            },
        }
    }

    /// Checks one topic of CreatePartitions.
    fn check_growth(&self, topic: &CreatePartitionsTopic, partitions_left: &mut i64) -> Outcome {
        let present = {
            let topics = self.topics();
            let found = topics
                .get(&topic.name)
                .ok_or(ResponseError::UnknownTopicOrPartition)?;
            if found.summary.internal {
                let message = format!(
                    "The number of partitions of '{}' is fixed by offsets.topic.num.partitions.",
                    found.name()
                );
                return Err(Refusal::new(ResponseError::InvalidPartitions, message));
            }
            found.summary.partitions
        };
        let name = &*topic.name;
        if topic.count == present {
            return Err(Refusal::new(
                ResponseError::InvalidPartitions,
                format!("Topic already has {present} partition(s)."),
            ));
        }
        if topic.count < present {
            let message = format!(
                "The topic {} currently has {present} partition(s); {} would not be an increase.",
                &**name, topic.count
            );
            return Err(Refusal::new(ResponseError::InvalidPartitions, message));
        }
        let more = i64::from(topic.count) - i64::from(present);
        if let Some(assignments) = &topic.assignments {
            if assignments.len() as i64 != more {
                let message = format!(
                    "Attempted to add {more} additional partition(s), but only {} assignment(s) were specified.",
                    assignments.len()
                );
                return Err(Refusal::new(
                    ResponseError::InvalidReplicaAssignment,
                    message,
                ));
            }
            for assignment in assignments {
                self.check_replicas(&assignment.broker_ids)?;
            }
        }
        *partitions_left -= more;
        if *partitions_left < 0 {
            return Err(Refusal::new(
                ResponseError::PolicyViolation,
                "Excessively large number of additional partitions per request.",
            ));
        }
        Ok(())
    }

    fn created(
        &self,
        name: TopicName,
        partitions: i32,
        configs: &BTreeMap<String, String>,
    ) -> CreatableTopicResult {
        CreatableTopicResult::default()
            .with_name(name)
            .with_error_message(None)
            .with_num_partitions(partitions)
            .with_replication_factor(1)
            .with_configs(Some(self.created_configs(configs)))
    }
}

fn refused_topic(name: TopicName, refusal: &Refusal) -> CreatableTopicResult {
    CreatableTopicResult::default()
        .with_name(name)
        .with_error_code(refusal.code)
        .with_error_message(refusal.text())
}

fn deleted(
    name: Option<TopicName>,
    id: uuid::Uuid,
    refusal: Option<&Refusal>,
) -> DeletableTopicResult {
    DeletableTopicResult::default()
        .with_name(name)
        .with_topic_id(id)
        .with_error_code(refusal.map_or(0, |refusal| refusal.code))
        .with_error_message(refusal.and_then(Refusal::text))
}

/// `delete.topic.enable=false`: every topic is refused, in words that old clients know.
fn deletion_disabled(request: DeleteTopicsRequest, version: i16) -> DeleteTopicsResponse {
    let error = match version {
        ..3 => ResponseError::InvalidRequest,
        3.. => ResponseError::TopicDeletionDisabled,
    };
    let refusal = Refusal::new(error, "Topic deletion is disabled.");
    let names = request.topic_names.into_iter();
    let named = names.map(|name| (Some(name), uuid::Uuid::nil()));
    let states = request
        .topics
        .into_iter()
        .map(|state| (state.name, state.topic_id));
    let results = named
        .chain(states)
        .map(|(name, id)| deleted(name, id, Some(&refusal)));
    DeleteTopicsResponse::default().with_responses(results.collect())
}

fn duplicate() -> Refusal {
    Refusal::new(ResponseError::InvalidRequest, "Duplicate topic name.")
}

/// The names that occur more than once, each once.
fn named_twice<'a>(names: impl Iterator<Item = &'a TopicName>) -> BTreeSet<&'a TopicName> {
    let mut seen = BTreeSet::new();
    names.filter(|name| !seen.insert(*name)).collect()
}
