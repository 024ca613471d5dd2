//! Metadata, DescribeCluster and DescribeTopicPartitions: which topics there are and where their partitions live,
//! which is always here. Metadata may create a topic that is asked for.

use hashbrown::HashSet;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::describe_topic_partitions_response::{
    Cursor, DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use kafka_protocol::messages::{
    BrokerId, DescribeClusterRequest, DescribeClusterResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, MetadataRequest, MetadataResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use super::changes::NewTopic;
use super::topics::{Topic, check_name};
use super::{Broker, LEADER_EPOCH, Listener};

/// Bits of the operations a client may perform where nothing is forbidden (semantics, appendix B).
const TOPIC_OPERATIONS: i32 = 3576;
const CLUSTER_OPERATIONS: i32 = 8096;
/// The bits of operations when they were not asked for.
const NOT_ASKED: i32 = i32::MIN;

impl Broker {
    /// Metadata 0–13. A missing topic is created when the request and `auto.create.topics.enable` allow it, and is
    /// then in the same answer: Kafka answers an error first and the topic to a later request.
    pub async fn metadata(
        &self,
        request: MetadataRequest,
        version: i16,
        listener: &Listener,
    ) -> MetadataResponse {
        let topics = match request.topics {
            Some(names) if !(version == 0 && names.is_empty()) => {
                let create = (request.allow_auto_topic_creation || version < 4)
                    && self.shared.options.auto_create_topics;
                self.asked_topics(
                    names,
                    version,
                    create,
                    request.include_topic_authorized_operations,
                )
                .await
            }
            _ => {
                let operations = operations(request.include_topic_authorized_operations);
                self.shared
                    .topics()
                    .iter()
                    .map(|topic| self.describe(topic, operations))
                    .collect()
            }
        };
        let options = &self.shared.options;
        let broker = MetadataResponseBroker::default()
            .with_node_id(BrokerId(options.node_id))
            .with_host(listener.host.clone())
            .with_port(listener.port)
            .with_rack(options.rack.clone().map(StrBytes::from_string));
        let cluster = if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            NOT_ASKED
        };
        MetadataResponse::default()
            .with_brokers(vec![broker])
            .with_cluster_id(Some(StrBytes::from_string(options.cluster_id.clone())))
            .with_controller_id(BrokerId(options.node_id))
            .with_topics(topics)
            .with_cluster_authorized_operations(cluster)
    }

    async fn asked_topics(
        &self,
        asked: Vec<MetadataRequestTopic>,
        version: i16,
        create: bool,
        with_operations: bool,
    ) -> Vec<MetadataResponseTopic> {
        // Versions 10 and 11 carry ids that Kafka does not look up yet: it refuses the whole request.
        if version < 12
            && asked
                .iter()
                .any(|topic| topic.name.is_none() || !topic.topic_id.is_nil())
        {
            let refuse = |topic: MetadataRequestTopic| {
                missing(
                    ResponseError::InvalidRequest,
                    topic.name.or_else(|| Some(TopicName::default())),
                    topic.topic_id,
                )
            };
            return asked.into_iter().map(refuse).collect();
        }
        let operations = operations(with_operations);
        if asked.iter().any(|topic| !topic.topic_id.is_nil()) {
            return self.topics_by_id(&asked, operations);
        }
        let mut seen = HashSet::new();
        let names: Vec<TopicName> = asked
            .into_iter()
            .filter_map(|topic| topic.name)
            .filter(|name| seen.insert(name.clone()))
            .collect();
        if create {
            let absent: Vec<NewTopic> = {
                let topics = self.shared.topics();
                names
                    .iter()
                    .filter(|name| topics.get(name).is_none())
                    .map(NewTopic::auto)
                    .collect()
            };
            if !absent.is_empty() {
                return self.with_created(names, absent, operations).await;
            }
        }
        let topics = self.shared.topics();
        let answer = |name: TopicName| match topics.get(&name) {
            Some(topic) => self.describe(topic, operations),
            None => {
                let error = match check_name(&name) {
                    Ok(()) => ResponseError::UnknownTopicOrPartition,
                    Err(_) => ResponseError::InvalidTopicException,
                };
                missing(error, Some(name), Uuid::nil()).with_topic_authorized_operations(operations)
            }
        };
        names.into_iter().map(answer).collect()
    }

    async fn with_created(
        &self,
        names: Vec<TopicName>,
        absent: Vec<NewTopic>,
        operations: i32,
    ) -> Vec<MetadataResponseTopic> {
        let shared = self.shared.clone();
        let refused = self.change(move || shared.create_topics(absent)).await;
        let refused: hashbrown::HashMap<String, i16> = refused
            .into_iter()
            .flatten()
            .filter_map(|(name, result)| Some((name, result.err()?.code)))
            .collect();
        let topics = self.shared.topics();
        let answer = |name: TopicName| match topics.get(&name) {
            Some(topic) => self.describe(topic, operations),
            None => {
                let code = refused.get(&**name).copied();
                let error = code
                    .and_then(ResponseError::try_from_code)
                    .unwrap_or(ResponseError::UnknownTopicOrPartition);
                missing(error, Some(name), Uuid::nil()).with_topic_authorized_operations(operations)
            }
        };
        names.into_iter().map(answer).collect()
    }

    fn topics_by_id(
        &self,
        asked: &[MetadataRequestTopic],
        operations: i32,
    ) -> Vec<MetadataResponseTopic> {
        let topics = self.shared.topics();
        let mut seen = HashSet::new();
        let ids = asked
            .iter()
            .map(|topic| topic.topic_id)
            .filter(|id| !id.is_nil() && seen.insert(*id));
        let answer = |id| match topics.by_id(id) {
            Some(topic) => self.describe(topic, operations),
            None => missing(ResponseError::UnknownTopicId, None, id),
        };
        ids.map(answer).collect()
    }

    fn describe(&self, topic: &Topic, operations: i32) -> MetadataResponseTopic {
        let node = BrokerId(self.shared.options.node_id);
        let partition = |index| {
            MetadataResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(node)
                .with_leader_epoch(LEADER_EPOCH)
                .with_replica_nodes(vec![node])
                .with_isr_nodes(vec![node])
        };
        MetadataResponseTopic::default()
            .with_name(Some(topic.wire_name()))
            .with_topic_id(topic.id())
            .with_is_internal(topic.summary.internal)
            .with_partitions((0..topic.summary.partitions).map(partition).collect())
            .with_topic_authorized_operations(operations)
    }

    /// DescribeCluster 0–2. Only brokers are known: a question for controllers is sent back as Kafka's brokers do.
    pub fn describe_cluster(
        &self,
        request: &DescribeClusterRequest,
        listener: &Listener,
    ) -> DescribeClusterResponse {
        let options = &self.shared.options;
        let response = DescribeClusterResponse::default().with_error_message(None);
        match request.endpoint_type {
            1 => {}
            2 => {
                return response
                    .with_error_code(ResponseError::MismatchedEndpointType.code())
                    .with_error_message(Some(StrBytes::from_static_str(
                        "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
                    )));
            }
            _ => {
                return response
                    .with_error_code(ResponseError::UnsupportedEndpointType.code())
                    .with_error_message(Some(StrBytes::from_static_str(
                        "Unsupported endpoint type",
                    )));
            }
        }
        let broker = DescribeClusterBroker::default()
            .with_broker_id(BrokerId(options.node_id))
            .with_host(listener.host.clone())
            .with_port(listener.port)
            .with_rack(options.rack.clone().map(StrBytes::from_string));
        let operations = if request.include_cluster_authorized_operations {
            CLUSTER_OPERATIONS
        } else {
            NOT_ASKED
        };
        response
            .with_endpoint_type(1)
            .with_cluster_id(StrBytes::from_string(options.cluster_id.clone()))
            .with_controller_id(BrokerId(options.node_id))
            .with_brokers(vec![broker])
            .with_cluster_authorized_operations(operations)
    }

    /// DescribeTopicPartitions 0: topics in order of name, at most 2,000 partitions a response, with a cursor for the
    /// rest. A negative partition in the cursor yields INVALID_REQUEST for every topic asked for.
    pub fn describe_topic_partitions(
        &self,
        request: &DescribeTopicPartitionsRequest,
    ) -> DescribeTopicPartitionsResponse {
        let topics = self.shared.topics();
        let mut names: Vec<&str> = if request.topics.is_empty() {
            topics.iter().map(|topic| topic.name()).collect()
        } else {
            request.topics.iter().map(|topic| &**topic.name).collect()
        };
        names.sort_unstable();
        names.dedup();
        let mut response = DescribeTopicPartitionsResponse::default().with_next_cursor(None);
        let mut first = 0;
        let cursor = request.cursor.as_ref();
        if let Some(cursor) = cursor {
            if cursor.partition_index < 0 {
                let refused = request.topics.iter().map(|topic| {
                    absent(&topic.name, ResponseError::InvalidRequest)
                        .with_topic_authorized_operations(NOT_ASKED)
                });
                return response.with_topics(refused.collect());
            }
            names.retain(|name| *name >= &**cursor.topic_name);
            first = cursor.partition_index;
        }
        let most = self.shared.options.described_partitions_max.max(1);
        let mut left = request.response_partition_limit.clamp(1, most);
        for name in names {
            let from = if cursor.is_some_and(|cursor| &**cursor.topic_name == name) {
                first
            } else {
                0
            };
            if left == 0 {
                let name = TopicName(StrBytes::from_string(name.to_owned()));
                response.next_cursor = Some(Cursor::default().with_topic_name(name));
                break;
            }
            let Some(topic) = topics.get(name) else {
                let error = match check_name(name) {
                    Ok(()) => ResponseError::UnknownTopicOrPartition,
                    Err(_) => ResponseError::InvalidTopicException,
                };
                response.topics.push(absent(name, error));
                continue;
            };
            let count = topic.summary.partitions;
            let end = count.min(from.saturating_add(left));
            response.topics.push(self.partitions_of(topic, from..end));
            left -= (end - from).max(0);
            if end < count {
                let cursor = Cursor::default()
                    .with_topic_name(topic.wire_name())
                    .with_partition_index(end);
                response.next_cursor = Some(cursor);
                break;
            }
        }
        response
    }

    fn partitions_of(
        &self,
        topic: &Topic,
        range: std::ops::Range<i32>,
    ) -> DescribeTopicPartitionsResponseTopic {
        let node = BrokerId(self.shared.options.node_id);
        let partition = |index| {
            DescribeTopicPartitionsResponsePartition::default()
                .with_partition_index(index)
                .with_leader_id(node)
                .with_leader_epoch(LEADER_EPOCH)
                .with_replica_nodes(vec![node])
                .with_isr_nodes(vec![node])
                .with_eligible_leader_replicas(Some(Vec::new()))
                .with_last_known_elr(Some(Vec::new()))
        };
        DescribeTopicPartitionsResponseTopic::default()
            .with_name(Some(topic.wire_name()))
            .with_topic_id(topic.id())
            .with_is_internal(topic.summary.internal)
            .with_partitions(range.map(partition).collect())
            .with_topic_authorized_operations(TOPIC_OPERATIONS)
    }
}

fn operations(asked: bool) -> i32 {
    if asked { TOPIC_OPERATIONS } else { NOT_ASKED }
}

fn missing(error: ResponseError, name: Option<TopicName>, id: Uuid) -> MetadataResponseTopic {
    MetadataResponseTopic::default()
        .with_error_code(error.code())
        .with_name(name)
        .with_topic_id(id)
        .with_topic_authorized_operations(NOT_ASKED)
}

fn absent(name: &str, error: ResponseError) -> DescribeTopicPartitionsResponseTopic {
    DescribeTopicPartitionsResponseTopic::default()
        .with_error_code(error.code())
        .with_name(Some(TopicName(StrBytes::from_string(name.to_owned()))))
        .with_topic_authorized_operations(TOPIC_OPERATIONS)
}
