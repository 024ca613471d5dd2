//! Finds the error codes in a reply, for the metrics. Which codes mean what is not known here.

use kafka_protocol::messages;

use crate::group::request;
use crate::wire::{self, data};

/// Calls `see` with every error code of a reply that is not 0.
pub(super) fn each_error(reply: &wire::Reply, mut see: impl FnMut(i16)) {
    let mut see = |code: i16| {
        if code != 0 {
            see(code);
        }
    };
    match reply {
        wire::Reply::ApiVersions(reply) => see(reply.error),
        wire::Reply::FindCoordinator(keys) => keys.iter().for_each(|key| see(key.error)),
        wire::Reply::Group(reply) => in_group(reply, &mut see),
        wire::Reply::OffsetFetch(groups) => {
            groups
                .iter()
                .for_each(|group| in_offset_fetch(group, &mut see));
        }
        wire::Reply::DescribeGroups { groups, .. } => {
            groups.iter().for_each(|group| see(group.error.code()));
        }
        wire::Reply::DeleteGroups(groups) => {
            groups.iter().for_each(|(_, error)| see(error.code()));
        }
        wire::Reply::ConsumerGroupDescribe { groups, .. } => {
            groups.iter().for_each(|group| see(group.error.code()));
        }
        wire::Reply::Data(reply) => in_data(reply, &mut see),
    }
}

fn in_group(reply: &request::Reply, see: &mut impl FnMut(i16)) {
    use request::Reply;

    match reply {
        Reply::Join(reply) => see(reply.error.code()),
        Reply::Sync(reply) => see(reply.error.code()),
        Reply::Heartbeat(error) | Reply::Delete { error, .. } => see(error.code()),
        Reply::Leave(reply) => {
            see(reply.error.code());
            reply
                .members
                .iter()
                .for_each(|member| see(member.error.code()));
        }
        Reply::OffsetCommit(reply) => in_topics(&reply.topics, see),
        Reply::OffsetFetch(reply) => in_offset_fetch(reply, see),
        Reply::OffsetDelete(reply) => {
            see(reply.error.code());
            in_topics(&reply.topics, see);
        }
        Reply::List(reply) => see(reply.error.code()),
        Reply::Describe(reply) => see(reply.error.code()),
        Reply::ConsumerHeartbeat(reply) => see(reply.error.code()),
        Reply::ConsumerDescribe(reply) => see(reply.error.code()),
        // Never on the wire.
        Reply::Inspected(_) | Reply::Previewed(_) => {}
        Reply::Operated(_) => {}
    }
}

fn in_topics(topics: &[request::TopicErrors], see: &mut impl FnMut(i16)) {
    topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .for_each(|(_, error)| see(error.code()));
}

fn in_offset_fetch(reply: &request::OffsetFetchReply, see: &mut impl FnMut(i16)) {
    see(reply.error.code());
    let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
    partitions.for_each(|partition| see(partition.error.code()));
}

fn in_data(reply: &data::Reply, see: &mut impl FnMut(i16)) {
    use data::Reply;

    match reply {
        Reply::Produce(reply) => {
            let partitions = reply
                .responses
                .iter()
                .flat_map(|topic| &topic.partition_responses);
            partitions.for_each(|partition| see(partition.error_code));
        }
        Reply::Fetch(reply) => {
            see(reply.error_code);
            let partitions = reply.responses.iter().flat_map(|topic| &topic.partitions);
            partitions.for_each(|partition| see(partition.error_code));
        }
        Reply::ListOffsets(reply) => {
            let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.for_each(|partition| see(partition.error_code));
        }
        Reply::Metadata(reply) => in_metadata(reply, see),
        Reply::CreateTopics(reply) => reply.topics.iter().for_each(|topic| see(topic.error_code)),
        Reply::DeleteTopics(reply) => {
            reply
                .responses
                .iter()
                .for_each(|topic| see(topic.error_code));
        }
        Reply::DeleteRecords(reply) => {
            let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.for_each(|partition| see(partition.error_code));
        }
        Reply::InitProducerId(reply) => see(reply.error_code),
        Reply::OffsetForLeaderEpoch(reply) => {
            let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.for_each(|partition| see(partition.error_code));
        }
        Reply::DescribeAcls(reply) => see(reply.error_code),
        Reply::DescribeConfigs(reply) => {
            reply
                .results
                .iter()
                .for_each(|resource| see(resource.error_code));
        }
        Reply::AlterConfigs(reply) => {
            reply
                .responses
                .iter()
                .for_each(|resource| see(resource.error_code));
        }
        Reply::DescribeLogDirs(reply) => {
            see(reply.error_code);
            reply
                .results
                .iter()
                .for_each(|folder| see(folder.error_code));
        }
        Reply::CreatePartitions(reply) => {
            reply.results.iter().for_each(|topic| see(topic.error_code));
        }
        Reply::IncrementalAlterConfigs(reply) => {
            reply
                .responses
                .iter()
                .for_each(|resource| see(resource.error_code));
        }
        Reply::ListPartitionReassignments(reply) => see(reply.error_code),
        Reply::DescribeCluster(reply) => see(reply.error_code),
        Reply::ListTransactions(reply) => see(reply.error_code),
        Reply::ListConfigResources(reply) => see(reply.error_code),
        Reply::DescribeTopicPartitions(reply) => {
            reply.topics.iter().for_each(|topic| {
                see(topic.error_code);
                topic
                    .partitions
                    .iter()
                    .for_each(|partition| see(partition.error_code));
            });
        }
    }
}

fn in_metadata(reply: &messages::MetadataResponse, see: &mut impl FnMut(i16)) {
    see(reply.error_code);
    for topic in &reply.topics {
        see(topic.error_code);
        topic
            .partitions
            .iter()
            .for_each(|partition| see(partition.error_code));
    }
}
