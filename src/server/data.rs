//! From a call to the data plane to its answer: one line per API. What they do is `broker`'s affair.

use super::budget::Loan;
use super::route::{Door, Outcome};
use crate::broker::{Broker, Produced};
use crate::wire::Reply;
use crate::wire::data::Call;

/// Answers a call to the data plane. `loan`: where what a Fetch has read is held.
pub(crate) async fn answer(
    broker: &Broker,
    door: &Door,
    version: i16,
    client_id: &str,
    call: Call,
    mut loan: Loan,
) -> Outcome {
    let _ = client_id;
    let listener = &door.listener;
    let reply = match call {
        Call::Produce(request) => match broker.produce(request, version).await {
            Produced::Reply(reply) => reply.into(),
            Produced::Silent => return Outcome::Silence,
            Produced::Close => {
                return Outcome::Close(
                    "records sent with acks=0 were refused; closing is the only way to say so",
                );
            }
        },
        Call::Fetch(request) => {
            let fetched = broker.fetch_within(request, version, &mut loan).await;
            return Outcome::Fetched(fetched.into(), loan);
        }
        Call::ListOffsets(request) => broker.list_offsets(request, version).await.into(),
        Call::Metadata(request) => broker.metadata(request, version, listener).await.into(),
        Call::CreateTopics(request) => broker.create_topics(request).await.into(),
        Call::DeleteTopics(request) => broker.delete_topics(request, version).await.into(),
        Call::DeleteRecords(request) => broker.delete_records(request).await.into(),
        Call::InitProducerId(request) => broker.init_producer_id(request).await.into(),
        Call::OffsetForLeaderEpoch(request) => broker.offset_for_leader_epoch(request).into(),
        Call::DescribeAcls(request) => broker.describe_acls(&request).into(),
        Call::DescribeConfigs(request) => broker.describe_configs(&request, version).into(),
        Call::AlterConfigs(request) => broker.alter_configs(request).await.into(),
        Call::DescribeLogDirs(request) => broker.describe_log_dirs(&request).into(),
        Call::CreatePartitions(request) => broker.create_partitions(request).await.into(),
        Call::IncrementalAlterConfigs(request) => {
            broker.incremental_alter_configs(request).await.into()
        }
        Call::ListPartitionReassignments(request) => {
            broker.list_partition_reassignments(&request).into()
        }
        Call::DescribeCluster(request) => broker.describe_cluster(&request, listener).into(),
        Call::ListTransactions(request) => broker.list_transactions(&request).into(),
        Call::ListConfigResources(request) => {
            broker.list_config_resources(&request, version).into()
        }
        Call::DescribeTopicPartitions(request) => broker.describe_topic_partitions(&request).into(),
    };
    Outcome::Reply(Reply::Data(reply))
}
