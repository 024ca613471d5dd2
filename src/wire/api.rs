//! The table: every API we speak, its versions, its shape and who answers it.
//!
//! The decoder, the guard, ApiVersions, the documentation and the labels of metrics read it; nothing
//! else knows a version range. Decoding itself is done in the parent and its sisters.

use super::guard::Shape;
use super::shapes;

/// Who answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// The shard that owns the group, or all of them.
    Shard,
    /// The data plane: topics, records, configurations.
    DataPlane,
    /// The connection's own house: what needs no state but the server's identity.
    Here,
}

/// One row of the table.
#[derive(Debug)]
pub struct Api {
    /// Kafka's number of the API.
    pub key: i16,
    /// Kafka's name of the API, without `Request`. The label of its metrics.
    pub name: &'static str,
    /// Lowest version in ApiVersions.
    pub min: i16,
    /// Highest version in ApiVersions.
    pub max: i16,
    /// First version with compact lengths and tagged fields; [`NEVER`] for none.
    pub flexible_from: i16,
    /// First version whose body is read; versions from `min` up to it close the connection.
    pub decode_from: i16,
    /// Who answers.
    pub answers: Answers,
    /// Whether clients are told of it. A row that is not advertised is an unknown API.
    pub advertised: bool,
    pub(super) shape: Shape,
}

/// No version is flexible.
pub const NEVER: i16 = i16::MAX;

impl Api {
    /// Whether this version has compact lengths and tagged fields.
    #[must_use]
    pub const fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// Whether this version may be asked for.
    #[must_use]
    pub const fn supports(&self, version: i16) -> bool {
        self.min <= version && version <= self.max
    }

    /// The header version of replies. ApiVersions stays at 0, so that a client which does not know us
    /// yet can read it.
    #[must_use]
    pub const fn reply_header_version(&self, version: i16) -> i16 {
        if self.key != API_VERSIONS && self.is_flexible(version) {
            1
        } else {
            0
        }
    }
}

const fn row(
    key: i16,
    name: &'static str,
    (min, max): (i16, i16),
    flexible_from: i16,
    answers: Answers,
    shape: Shape,
) -> Api {
    Api {
        key,
        name,
        min,
        max,
        flexible_from,
        decode_from: min,
        answers,
        advertised: true,
        shape,
    }
}

use Answers::{DataPlane, Here, Shard};

/// The key of ApiVersions.
pub const API_VERSIONS: i16 = 18;
/// The key of ConsumerGroupHeartbeat.
pub const CONSUMER_GROUP_HEARTBEAT: i16 = 68;

/// The table, ascending by key.
pub static APIS: &[Api] = &[
    // librdkafka takes "Produce starts at 0" for "this broker has message format v2", and fetches
    // nothing otherwise. Kafka 4 closes on versions 0 to 2 all the same.
    Api {
        decode_from: 3,
        ..row(0, "Produce", (0, 13), 9, DataPlane, shapes::PRODUCE)
    },
    row(1, "Fetch", (4, 18), 12, DataPlane, shapes::FETCH),
    row(
        2,
        "ListOffsets",
        (1, 11),
        6,
        DataPlane,
        shapes::LIST_OFFSETS,
    ),
    row(3, "Metadata", (0, 13), 9, DataPlane, shapes::METADATA),
    row(8, "OffsetCommit", (2, 10), 8, Shard, shapes::OFFSET_COMMIT),
    row(9, "OffsetFetch", (1, 10), 6, Shard, shapes::OFFSET_FETCH),
    row(
        10,
        "FindCoordinator",
        (0, 6),
        3,
        Here,
        shapes::FIND_COORDINATOR,
    ),
    row(11, "JoinGroup", (0, 9), 6, Shard, shapes::JOIN_GROUP),
    row(12, "Heartbeat", (0, 4), 4, Shard, shapes::HEARTBEAT),
    row(13, "LeaveGroup", (0, 5), 4, Shard, shapes::LEAVE_GROUP),
    row(14, "SyncGroup", (0, 5), 4, Shard, shapes::SYNC_GROUP),
    row(
        15,
        "DescribeGroups",
        (0, 6),
        5,
        Shard,
        shapes::DESCRIBE_GROUPS,
    ),
    row(16, "ListGroups", (0, 5), 3, Shard, shapes::LIST_GROUPS),
    row(
        API_VERSIONS,
        "ApiVersions",
        (0, 5),
        3,
        Here,
        shapes::API_VERSIONS,
    ),
    row(
        19,
        "CreateTopics",
        (2, 7),
        5,
        DataPlane,
        shapes::CREATE_TOPICS,
    ),
    row(
        20,
        "DeleteTopics",
        (1, 6),
        4,
        DataPlane,
        shapes::DELETE_TOPICS,
    ),
    row(
        21,
        "DeleteRecords",
        (0, 2),
        2,
        DataPlane,
        shapes::DELETE_RECORDS,
    ),
    row(
        22,
        "InitProducerId",
        (0, 5),
        2,
        DataPlane,
        shapes::INIT_PRODUCER_ID,
    ),
    row(
        23,
        "OffsetForLeaderEpoch",
        (2, 4),
        4,
        DataPlane,
        shapes::OFFSET_FOR_LEADER_EPOCH,
    ),
    row(
        29,
        "DescribeAcls",
        (1, 3),
        2,
        DataPlane,
        shapes::DESCRIBE_ACLS,
    ),
    row(
        32,
        "DescribeConfigs",
        (1, 4),
        4,
        DataPlane,
        shapes::DESCRIBE_CONFIGS,
    ),
    row(
        33,
        "AlterConfigs",
        (0, 2),
        2,
        DataPlane,
        shapes::ALTER_CONFIGS,
    ),
    row(
        35,
        "DescribeLogDirs",
        (1, 5),
        2,
        DataPlane,
        shapes::DESCRIBE_LOG_DIRS,
    ),
    row(
        37,
        "CreatePartitions",
        (0, 3),
        2,
        DataPlane,
        shapes::CREATE_PARTITIONS,
    ),
    row(42, "DeleteGroups", (0, 3), 2, Shard, shapes::DELETE_GROUPS),
    row(
        44,
        "IncrementalAlterConfigs",
        (0, 1),
        1,
        DataPlane,
        shapes::INCREMENTAL_ALTER_CONFIGS,
    ),
    row(
        46,
        "ListPartitionReassignments",
        (0, 0),
        0,
        DataPlane,
        shapes::LIST_PARTITION_REASSIGNMENTS,
    ),
    row(
        47,
        "OffsetDelete",
        (0, 0),
        NEVER,
        Shard,
        shapes::OFFSET_DELETE,
    ),
    row(
        60,
        "DescribeCluster",
        (0, 2),
        0,
        DataPlane,
        shapes::DESCRIBE_CLUSTER,
    ),
    row(
        66,
        "ListTransactions",
        (0, 2),
        0,
        DataPlane,
        shapes::LIST_TRANSACTIONS,
    ),
    Api {
        advertised: true,
        ..row(
            CONSUMER_GROUP_HEARTBEAT,
            "ConsumerGroupHeartbeat",
            (0, 1),
            0,
            Shard,
            shapes::CONSUMER_GROUP_HEARTBEAT,
        )
    },
    Api {
        advertised: true,
        ..row(
            69,
            "ConsumerGroupDescribe",
            (0, 1),
            0,
            Shard,
            shapes::CONSUMER_GROUP_DESCRIBE,
        )
    },
    row(
        74,
        "ListConfigResources",
        (0, 1),
        0,
        DataPlane,
        shapes::LIST_CONFIG_RESOURCES,
    ),
    row(
        75,
        "DescribeTopicPartitions",
        (0, 0),
        0,
        DataPlane,
        shapes::DESCRIBE_TOPIC_PARTITIONS,
    ),
];

/// The row of an API that is advertised.
#[must_use]
pub fn by_key(key: i16) -> Option<&'static Api> {
    by_key_or_hidden(key).filter(|api| api.advertised)
}

pub(super) fn by_key_or_hidden(key: i16) -> Option<&'static Api> {
    let index = APIS.binary_search_by_key(&key, |api| api.key).ok()?;
    APIS.get(index)
}

/// A feature (KIP-584) as ApiVersions tells it. Clients do not need them; admin tools show them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Kafka's name.
    pub name: &'static str,
    /// Lowest level we could run at.
    pub min: i16,
    /// Highest level we could run at.
    pub max: i16,
    /// The level we run at.
    pub finalized: i16,
}

/// The features of what is advertised.
pub fn features() -> impl Iterator<Item = Feature> {
    let consumer = by_key(CONSUMER_GROUP_HEARTBEAT);
    consumer
        .map(|_| Feature {
            name: "group.version",
            min: 0,
            max: 1,
            finalized: 1,
        })
        .into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_ascend_and_ranges_hold() {
        assert!(APIS.windows(2).all(|pair| pair[0].key < pair[1].key));
        for api in APIS {
            assert!(
                api.min <= api.decode_from && api.decode_from <= api.max,
                "{}",
                api.name
            );
            assert!(
                api.shape.windows(2).all(|pair| pair[0].0 < pair[1].0),
                "{}",
                api.name
            );
            assert!(api.shape[0].0 <= api.decode_from, "{}", api.name);
        }
    }
}
