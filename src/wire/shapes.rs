//! The shape of every request body, version by version, as flat programs for the guard.
//!
//! Made by `tests/tools/shapes.py` from the message schemas in the kafka-clients 4.4.0 jar and not
//! edited by hand. The layouts are facts taken from those schemas.

use super::guard::{Op::*, Shape};

/// Produce: versions 3 to 13.
pub(super) const PRODUCE: Shape = &[
    (
        3,
        &[StrN, Fix(6), Arr(6, 4), Str, Arr(8, 2), Fix(4), BytesN],
    ),
    (
        9,
        &[
            CStrN,
            Fix(6),
            CArr(3, 6),
            CStr,
            CArr(6, 3),
            Fix(4),
            CBytesN,
            Tags(0),
            Tags(0),
            Tags(0),
        ],
    ),
    (
        13,
        &[
            CStrN,
            Fix(6),
            CArr(18, 6),
            Fix(16),
            CArr(6, 3),
            Fix(4),
            CBytesN,
            Tags(0),
            Tags(0),
            Tags(0),
        ],
    ),
];

/// Fetch: versions 4 to 18.
pub(super) const FETCH: Shape = &[
    (4, &[Fix(17), Arr(6, 3), Str, Arr(16, 1), Fix(16)]),
    (5, &[Fix(17), Arr(6, 3), Str, Arr(24, 1), Fix(24)]),
    (
        7,
        &[
            Fix(25),
            Arr(6, 3),
            Str,
            Arr(24, 1),
            Fix(24),
            Arr(6, 2),
            Str,
            Fixes(4),
        ],
    ),
    (
        9,
        &[
            Fix(25),
            Arr(6, 3),
            Str,
            Arr(28, 1),
            Fix(28),
            Arr(6, 2),
            Str,
            Fixes(4),
        ],
    ),
    (
        11,
        &[
            Fix(25),
            Arr(6, 3),
            Str,
            Arr(28, 1),
            Fix(28),
            Arr(6, 2),
            Str,
            Fixes(4),
            Str,
        ],
    ),
    (
        12,
        &[
            Fix(25),
            CArr(3, 7),
            CStr,
            CArr(33, 4),
            Fix(32),
            Tags(2),
            NoTag(0),
            NoTag(1),
            Tags(0),
            CArr(3, 3),
            CStr,
            CFixes(4),
            Tags(0),
            CStr,
            Tags(3),
            Tag(0, 1),
            CStrN,
            NoTag(1),
        ],
    ),
    (
        13,
        &[
            Fix(25),
            CArr(18, 7),
            Fix(16),
            CArr(33, 4),
            Fix(32),
            Tags(2),
            NoTag(0),
            NoTag(1),
            Tags(0),
            CArr(18, 3),
            Fix(16),
            CFixes(4),
            Tags(0),
            CStr,
            Tags(3),
            Tag(0, 1),
            CStrN,
            NoTag(1),
        ],
    ),
    (
        15,
        &[
            Fix(21),
            CArr(18, 7),
            Fix(16),
            CArr(33, 4),
            Fix(32),
            Tags(2),
            NoTag(0),
            NoTag(1),
            Tags(0),
            CArr(18, 3),
            Fix(16),
            CFixes(4),
            Tags(0),
            CStr,
            Tags(5),
            Tag(0, 1),
            CStrN,
            Tag(1, 2),
            Fix(12),
            Tags(0),
        ],
    ),
    (
        17,
        &[
            Fix(21),
            CArr(18, 8),
            Fix(16),
            CArr(33, 5),
            Fix(32),
            Tags(3),
            Tag(0, 1),
            Fix(16),
            NoTag(1),
            Tags(0),
            CArr(18, 3),
            Fix(16),
            CFixes(4),
            Tags(0),
            CStr,
            Tags(5),
            Tag(0, 1),
            CStrN,
            Tag(1, 2),
            Fix(12),
            Tags(0),
        ],
    ),
    (
        18,
        &[
            Fix(21),
            CArr(18, 9),
            Fix(16),
            CArr(33, 6),
            Fix(32),
            Tags(4),
            Tag(0, 1),
            Fix(16),
            Tag(1, 1),
            Fix(8),
            Tags(0),
            CArr(18, 3),
            Fix(16),
            CFixes(4),
            Tags(0),
            CStr,
            Tags(5),
            Tag(0, 1),
            CStrN,
            Tag(1, 2),
            Fix(12),
            Tags(0),
        ],
    ),
];

/// ListOffsets: versions 1 to 11.
pub(super) const LIST_OFFSETS: Shape = &[
    (1, &[Fix(4), Arr(6, 3), Str, Arr(12, 1), Fix(12)]),
    (2, &[Fix(5), Arr(6, 3), Str, Arr(12, 1), Fix(12)]),
    (4, &[Fix(5), Arr(6, 3), Str, Arr(16, 1), Fix(16)]),
    (
        6,
        &[
            Fix(5),
            CArr(3, 5),
            CStr,
            CArr(17, 2),
            Fix(16),
            Tags(0),
            Tags(0),
            Tags(0),
        ],
    ),
    (
        10,
        &[
            Fix(5),
            CArr(3, 5),
            CStr,
            CArr(17, 2),
            Fix(16),
            Tags(0),
            Tags(0),
            Fix(4),
            Tags(0),
        ],
    ),
];

/// Metadata: versions 0 to 13.
pub(super) const METADATA: Shape = &[
    (0, &[Arr(2, 1), Str]),
    (1, &[ArrN(2, 1), Str]),
    (4, &[ArrN(2, 1), Str, Fix(1)]),
    (8, &[ArrN(2, 1), Str, Fix(3)]),
    (9, &[CArrN(2, 2), CStr, Tags(0), Fix(3), Tags(0)]),
    (
        10,
        &[CArrN(18, 3), Fix(16), CStrN, Tags(0), Fix(3), Tags(0)],
    ),
    (
        11,
        &[CArrN(18, 3), Fix(16), CStrN, Tags(0), Fix(2), Tags(0)],
    ),
];

/// OffsetCommit: versions 2 to 10.
pub(super) const OFFSET_COMMIT: Shape = &[
    (
        2,
        &[
            Str,
            Fix(4),
            Str,
            Fix(8),
            Arr(6, 4),
            Str,
            Arr(14, 2),
            Fix(12),
            StrN,
        ],
    ),
    (
        5,
        &[Str, Fix(4), Str, Arr(6, 4), Str, Arr(14, 2), Fix(12), StrN],
    ),
    (
        6,
        &[Str, Fix(4), Str, Arr(6, 4), Str, Arr(18, 2), Fix(16), StrN],
    ),
    (
        7,
        &[
            Str,
            Fix(4),
            Str,
            StrN,
            Arr(6, 4),
            Str,
            Arr(18, 2),
            Fix(16),
            StrN,
        ],
    ),
    (
        8,
        &[
            CStr,
            Fix(4),
            CStr,
            CStrN,
            CArr(3, 6),
            CStr,
            CArr(18, 3),
            Fix(16),
            CStrN,
            Tags(0),
            Tags(0),
            Tags(0),
        ],
    ),
    (
        10,
        &[
            CStr,
            Fix(4),
            CStr,
            CStrN,
            CArr(18, 6),
            Fix(16),
            CArr(18, 3),
            Fix(16),
            CStrN,
            Tags(0),
            Tags(0),
            Tags(0),
        ],
    ),
];

/// OffsetFetch: versions 1 to 10.
pub(super) const OFFSET_FETCH: Shape = &[
    (1, &[Str, Arr(6, 2), Str, Fixes(4)]),
    (2, &[Str, ArrN(6, 2), Str, Fixes(4)]),
    (6, &[CStr, CArrN(3, 3), CStr, CFixes(4), Tags(0), Tags(0)]),
    (
        7,
        &[CStr, CArrN(3, 3), CStr, CFixes(4), Tags(0), Fix(1), Tags(0)],
    ),
    (
        8,
        &[
            CArr(3, 6),
            CStr,
            CArrN(3, 3),
            CStr,
            CFixes(4),
            Tags(0),
            Tags(0),
            Fix(1),
            Tags(0),
        ],
    ),
    (
        9,
        &[
            CArr(8, 8),
            CStr,
            CStrN,
            Fix(4),
            CArrN(3, 3),
            CStr,
            CFixes(4),
            Tags(0),
            Tags(0),
            Fix(1),
            Tags(0),
        ],
    ),
    (
        10,
        &[
            CArr(8, 8),
            CStr,
            CStrN,
            Fix(4),
            CArrN(18, 3),
            Fix(16),
            CFixes(4),
            Tags(0),
            Tags(0),
            Fix(1),
            Tags(0),
        ],
    ),
];

/// FindCoordinator: versions 0 to 6.
pub(super) const FIND_COORDINATOR: Shape = &[
    (0, &[Str]),
    (1, &[Str, Fix(1)]),
    (3, &[CStr, Fix(1), Tags(0)]),
    (4, &[Fix(1), CArr(1, 1), CStr, Tags(0)]),
];

/// JoinGroup: versions 0 to 9.
pub(super) const JOIN_GROUP: Shape = &[
    (0, &[Str, Fix(4), Str, Str, Arr(6, 2), Str, Bytes]),
    (1, &[Str, Fix(8), Str, Str, Arr(6, 2), Str, Bytes]),
    (5, &[Str, Fix(8), Str, StrN, Str, Arr(6, 2), Str, Bytes]),
    (
        6,
        &[
            CStr,
            Fix(8),
            CStr,
            CStrN,
            CStr,
            CArr(3, 3),
            CStr,
            CBytes,
            Tags(0),
            Tags(0),
        ],
    ),
    (
        8,
        &[
            CStr,
            Fix(8),
            CStr,
            CStrN,
            CStr,
            CArr(3, 3),
            CStr,
            CBytes,
            Tags(0),
            CStrN,
            Tags(0),
        ],
    ),
];

/// Heartbeat: versions 0 to 4.
pub(super) const HEARTBEAT: Shape = &[
    (0, &[Str, Fix(4), Str]),
    (3, &[Str, Fix(4), Str, StrN]),
    (4, &[CStr, Fix(4), CStr, CStrN, Tags(0)]),
];

/// LeaveGroup: versions 0 to 5.
pub(super) const LEAVE_GROUP: Shape = &[
    (0, &[Str, Str]),
    (3, &[Str, Arr(4, 2), Str, StrN]),
    (4, &[CStr, CArr(3, 3), CStr, CStrN, Tags(0), Tags(0)]),
    (5, &[CStr, CArr(4, 4), CStr, CStrN, CStrN, Tags(0), Tags(0)]),
];

/// SyncGroup: versions 0 to 5.
pub(super) const SYNC_GROUP: Shape = &[
    (0, &[Str, Fix(4), Str, Arr(6, 2), Str, Bytes]),
    (3, &[Str, Fix(4), Str, StrN, Arr(6, 2), Str, Bytes]),
    (
        4,
        &[
            CStr,
            Fix(4),
            CStr,
            CStrN,
            CArr(3, 3),
            CStr,
            CBytes,
            Tags(0),
            Tags(0),
        ],
    ),
    (
        5,
        &[
            CStr,
            Fix(4),
            CStr,
            CStrN,
            CStrN,
            CStrN,
            CArr(3, 3),
            CStr,
            CBytes,
            Tags(0),
            Tags(0),
        ],
    ),
];

/// DescribeGroups: versions 0 to 6.
pub(super) const DESCRIBE_GROUPS: Shape = &[
    (0, &[Arr(2, 1), Str]),
    (3, &[Arr(2, 1), Str, Fix(1)]),
    (5, &[CArr(1, 1), CStr, Fix(1), Tags(0)]),
];

/// ListGroups: versions 0 to 5.
pub(super) const LIST_GROUPS: Shape = &[
    (0, &[]),
    (3, &[Tags(0)]),
    (4, &[CArr(1, 1), CStr, Tags(0)]),
    (5, &[CArr(1, 1), CStr, CArr(1, 1), CStr, Tags(0)]),
];

/// ApiVersions: versions 0 to 5.
pub(super) const API_VERSIONS: Shape = &[
    (0, &[]),
    (3, &[CStr, CStr, Tags(0)]),
    (5, &[CStr, CStr, CStrN, Fix(4), Tags(0)]),
];

/// CreateTopics: versions 2 to 7.
pub(super) const CREATE_TOPICS: Shape = &[
    (
        2,
        &[
            Arr(16, 8),
            Str,
            Fix(6),
            Arr(8, 2),
            Fix(4),
            Fixes(4),
            Arr(4, 2),
            Str,
            StrN,
            Fix(5),
        ],
    ),
    (
        5,
        &[
            CArr(10, 11),
            CStr,
            Fix(6),
            CArr(6, 3),
            Fix(4),
            CFixes(4),
            Tags(0),
            CArr(3, 3),
            CStr,
            CStrN,
            Tags(0),
            Tags(0),
            Fix(5),
            Tags(0),
        ],
    ),
];

/// DeleteTopics: versions 1 to 6.
pub(super) const DELETE_TOPICS: Shape = &[
    (1, &[Arr(2, 1), Str, Fix(4)]),
    (4, &[CArr(1, 1), CStr, Fix(4), Tags(0)]),
    (6, &[CArr(18, 3), CStrN, Fix(16), Tags(0), Fix(4), Tags(0)]),
];

/// DeleteRecords: versions 0 to 2.
pub(super) const DELETE_RECORDS: Shape = &[
    (0, &[Arr(6, 3), Str, Arr(12, 1), Fix(12), Fix(4)]),
    (
        2,
        &[
            CArr(3, 5),
            CStr,
            CArr(13, 2),
            Fix(12),
            Tags(0),
            Tags(0),
            Fix(4),
            Tags(0),
        ],
    ),
];

/// InitProducerId: versions 0 to 6.
pub(super) const INIT_PRODUCER_ID: Shape = &[
    (0, &[StrN, Fix(4)]),
    (2, &[CStrN, Fix(4), Tags(0)]),
    (3, &[CStrN, Fix(14), Tags(0)]),
    (6, &[CStrN, Fix(16), Tags(0)]),
];

/// OffsetForLeaderEpoch: versions 2 to 4.
pub(super) const OFFSET_FOR_LEADER_EPOCH: Shape = &[
    (2, &[Arr(6, 3), Str, Arr(12, 1), Fix(12)]),
    (3, &[Fix(4), Arr(6, 3), Str, Arr(12, 1), Fix(12)]),
    (
        4,
        &[
            Fix(4),
            CArr(3, 5),
            CStr,
            CArr(13, 2),
            Fix(12),
            Tags(0),
            Tags(0),
            Tags(0),
        ],
    ),
];

/// DescribeAcls: versions 1 to 3.
pub(super) const DESCRIBE_ACLS: Shape = &[
    (1, &[Fix(1), StrN, Fix(1), StrN, StrN, Fix(2)]),
    (2, &[Fix(1), CStrN, Fix(1), CStrN, CStrN, Fix(2), Tags(0)]),
];

/// DescribeConfigs: versions 1 to 4.
pub(super) const DESCRIBE_CONFIGS: Shape = &[
    (1, &[Arr(7, 4), Fix(1), Str, ArrN(2, 1), Str, Fix(1)]),
    (3, &[Arr(7, 4), Fix(1), Str, ArrN(2, 1), Str, Fix(2)]),
    (
        4,
        &[
            CArr(4, 5),
            Fix(1),
            CStr,
            CArrN(1, 1),
            CStr,
            Tags(0),
            Fix(2),
            Tags(0),
        ],
    ),
];

/// AlterConfigs: versions 0 to 2.
pub(super) const ALTER_CONFIGS: Shape = &[
    (0, &[Arr(7, 5), Fix(1), Str, Arr(4, 2), Str, StrN, Fix(1)]),
    (
        2,
        &[
            CArr(4, 7),
            Fix(1),
            CStr,
            CArr(3, 3),
            CStr,
            CStrN,
            Tags(0),
            Tags(0),
            Fix(1),
            Tags(0),
        ],
    ),
];

/// DescribeLogDirs: versions 1 to 5.
pub(super) const DESCRIBE_LOG_DIRS: Shape = &[
    (1, &[ArrN(6, 2), Str, Fixes(4)]),
    (2, &[CArrN(3, 3), CStr, CFixes(4), Tags(0), Tags(0)]),
];

/// CreatePartitions: versions 0 to 3.
pub(super) const CREATE_PARTITIONS: Shape = &[
    (0, &[Arr(10, 4), Str, Fix(4), ArrN(4, 1), Fixes(4), Fix(5)]),
    (
        2,
        &[
            CArr(7, 6),
            CStr,
            Fix(4),
            CArrN(2, 2),
            CFixes(4),
            Tags(0),
            Tags(0),
            Fix(5),
            Tags(0),
        ],
    ),
];

/// DeleteGroups: versions 0 to 3.
pub(super) const DELETE_GROUPS: Shape =
    &[(0, &[Arr(2, 1), Str]), (2, &[CArr(1, 1), CStr, Tags(0)])];

/// IncrementalAlterConfigs: versions 0 to 1.
pub(super) const INCREMENTAL_ALTER_CONFIGS: Shape = &[
    (
        0,
        &[Arr(7, 6), Fix(1), Str, Arr(5, 3), Str, Fix(1), StrN, Fix(1)],
    ),
    (
        1,
        &[
            CArr(4, 8),
            Fix(1),
            CStr,
            CArr(4, 4),
            CStr,
            Fix(1),
            CStrN,
            Tags(0),
            Tags(0),
            Fix(1),
            Tags(0),
        ],
    ),
];

/// ListPartitionReassignments: versions 0 to 0.
pub(super) const LIST_PARTITION_REASSIGNMENTS: Shape =
    &[(0, &[Fix(4), CArrN(3, 3), CStr, CFixes(4), Tags(0), Tags(0)])];

/// OffsetDelete: versions 0 to 0.
pub(super) const OFFSET_DELETE: Shape = &[(0, &[Str, Arr(6, 3), Str, Arr(4, 1), Fix(4)])];

/// DescribeCluster: versions 0 to 2.
pub(super) const DESCRIBE_CLUSTER: Shape = &[
    (0, &[Fix(1), Tags(0)]),
    (1, &[Fix(2), Tags(0)]),
    (2, &[Fix(3), Tags(0)]),
];

/// ListTransactions: versions 0 to 2.
pub(super) const LIST_TRANSACTIONS: Shape = &[
    (0, &[CArr(1, 1), CStr, CFixes(8), Tags(0)]),
    (1, &[CArr(1, 1), CStr, CFixes(8), Fix(8), Tags(0)]),
    (2, &[CArr(1, 1), CStr, CFixes(8), Fix(8), CStrN, Tags(0)]),
];

/// ConsumerGroupHeartbeat: versions 0 to 1.
pub(super) const CONSUMER_GROUP_HEARTBEAT: Shape = &[
    (
        0,
        &[
            CStr,
            CStr,
            Fix(4),
            CStrN,
            CStrN,
            Fix(4),
            CArrN(1, 1),
            CStr,
            CStrN,
            CArrN(18, 3),
            Fix(16),
            CFixes(4),
            Tags(0),
            Tags(0),
        ],
    ),
    (
        1,
        &[
            CStr,
            CStr,
            Fix(4),
            CStrN,
            CStrN,
            Fix(4),
            CArrN(1, 1),
            CStr,
            CStrN,
            CStrN,
            CArrN(18, 3),
            Fix(16),
            CFixes(4),
            Tags(0),
            Tags(0),
        ],
    ),
];

/// ConsumerGroupDescribe: versions 0 to 1.
pub(super) const CONSUMER_GROUP_DESCRIBE: Shape = &[(0, &[CArr(1, 1), CStr, Fix(1), Tags(0)])];

/// ListConfigResources: versions 0 to 1.
pub(super) const LIST_CONFIG_RESOURCES: Shape = &[(0, &[Tags(0)]), (1, &[CFixes(1), Tags(0)])];

/// DescribeTopicPartitions: versions 0 to 0.
pub(super) const DESCRIBE_TOPIC_PARTITIONS: Shape = &[(
    0,
    &[
        CArr(2, 2),
        CStr,
        Tags(0),
        Fix(4),
        Opt(3),
        CStr,
        Fix(4),
        Tags(0),
        Tags(0),
    ],
)];
