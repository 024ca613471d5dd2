//! The data plane's requests and replies, in kafka-protocol's structs.
//!
//! The guard has walked the body before it comes here. Where Kafka reads something that
//! kafka-protocol does not, the body is written anew in the form it wants. Strings and records are
//! views into the frame: whoever keeps one must copy it.

use ::bytes::{Buf, Bytes};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::{self, DescribeLogDirsResponse, FetchResponse};
use kafka_protocol::protocol::{Decodable, Encodable};

use super::Error;
use super::api::Api;
use super::bytes::Writer;
use super::guard::{self, Op};

macro_rules! calls {
    ($($key:literal $name:ident $request:ident $response:ident $newest:literal;)*) => {
        /// A request to the data plane.
        #[derive(Debug, Clone)]
        pub enum Call {
            $(#[doc = concat!(stringify!($name), ".")] $name(messages::$request),)*
        }

        /// An answer of the data plane.
        #[derive(Debug, Clone)]
        pub enum Reply {
            $(#[doc = concat!("To ", stringify!($name), ".")] $name(messages::$response),)*
        }

        $(impl From<messages::$response> for Reply {
            fn from(reply: messages::$response) -> Self {
                Self::$name(reply)
            }
        })*

        /// Reads a body that the guard has passed.
        pub(super) fn decode(
            api: &'static Api,
            version: i16,
            body: Bytes,
            odd: bool,
            program: &[Op],
        ) -> Result<Call, Error> {
            let body = Body { api, version, bytes: body, odd, program };
            match api.key {
                $($key => body.read($newest).map(Call::$name),)*
                _ => Err(body.unreadable("no codec for this row of the table".to_owned())),
            }
        }

        /// How many bytes a reply takes; 0 for one that cannot be written.
        pub(super) fn bytes(api: &Api, version: i16, reply: &Reply) -> usize {
            match (api.key, reply) {
                $(($key, Reply::$name(reply)) => {
                    reply.compute_size(version.min($newest)).unwrap_or(0)
                })*
                _ => 0,
            }
        }

        /// Writes a reply.
        pub(super) fn write(
            w: &mut Writer,
            api: &Api,
            version: i16,
            reply: &Reply,
        ) -> Result<(), String> {
            match (api.key, reply) {
                (35, Reply::DescribeLogDirs(reply)) if version >= 5 => {
                    write_log_dirs(w, reply);
                    Ok(())
                }
                $(($key, Reply::$name(reply)) => theirs(w, reply, version.min($newest)),)*
                _ => Err("the reply belongs to another API".to_owned()),
            }
        }
    };
}

// Key, name, structs, and the newest version kafka-protocol knows. Newer versions of the table have
// the same layout (ListOffsets 11) or are written below (DescribeLogDirs 5).
calls! {
    0 Produce ProduceRequest ProduceResponse 13;
    1 Fetch FetchRequest FetchResponse 18;
    2 ListOffsets ListOffsetsRequest ListOffsetsResponse 10;
    3 Metadata MetadataRequest MetadataResponse 13;
    19 CreateTopics CreateTopicsRequest CreateTopicsResponse 7;
    20 DeleteTopics DeleteTopicsRequest DeleteTopicsResponse 6;
    21 DeleteRecords DeleteRecordsRequest DeleteRecordsResponse 2;
    22 InitProducerId InitProducerIdRequest InitProducerIdResponse 5;
    23 OffsetForLeaderEpoch OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse 4;
    29 DescribeAcls DescribeAclsRequest DescribeAclsResponse 3;
    32 DescribeConfigs DescribeConfigsRequest DescribeConfigsResponse 4;
    33 AlterConfigs AlterConfigsRequest AlterConfigsResponse 2;
    35 DescribeLogDirs DescribeLogDirsRequest DescribeLogDirsResponse 4;
    37 CreatePartitions CreatePartitionsRequest CreatePartitionsResponse 3;
    44 IncrementalAlterConfigs IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse 1;
    46 ListPartitionReassignments ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse 0;
    60 DescribeCluster DescribeClusterRequest DescribeClusterResponse 2;
    66 ListTransactions ListTransactionsRequest ListTransactionsResponse 2;
    74 ListConfigResources ListConfigResourcesRequest ListConfigResourcesResponse 1;
    75 DescribeTopicPartitions DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse 0;
}

struct Body<'a> {
    api: &'static Api,
    version: i16,
    bytes: Bytes,
    odd: bool,
    program: &'a [Op],
}

impl Body<'_> {
    fn read<T: Decodable>(&self, newest: i16) -> Result<T, Error> {
        let version = self.version.min(newest);
        if !self.odd
            && let Ok(request) = T::decode(&mut self.bytes.clone(), version)
        {
            return Ok(request);
        }
        let mut plain = self.canonical()?;
        T::decode(&mut plain, version).map_err(|e| self.unreadable(format!("{e:#}")))
    }

    fn canonical(&self) -> Result<Bytes, Error> {
        match guard::canonical(self.program, self.bytes.chunk(), guard::ELEMENTS_MAX) {
            Ok(plain) => Ok(plain.into()),
            Err(refusal) => Err(Error::Malformed {
                api: self.api.name,
                api_version: self.version,
                refusal,
            }),
        }
    }

    fn unreadable(&self, reason: String) -> Error {
        Error::Unreadable {
            api: self.api.name,
            api_version: self.version,
            reason,
        }
    }
}

fn theirs<T: Encodable>(w: &mut Writer, reply: &T, version: i16) -> Result<(), String> {
    // Replies to Fetch are large: room once instead of doubling.
    let bytes = reply.compute_size(version).map_err(|e| format!("{e:#}"))?;
    let out = w.written();
    out.reserve(bytes);
    reply.encode(out, version).map_err(|e| format!("{e:#}"))
}

/// Where batches belong that have been left out of what was written, in order.
pub(super) type Gaps = Vec<(usize, Bytes)>;

/// Writes all of an answer to Fetch but its batches: those are large, and need not be copied to be sent.
pub(super) fn write_fetch(
    w: &mut Writer,
    reply: &FetchResponse,
    version: i16,
) -> Result<Gaps, String> {
    let mut gaps = Gaps::new();
    w.i32(reply.throttle_time_ms);
    if version >= 7 {
        w.i16(reply.error_code);
        w.i32(reply.session_id);
    }
    let mut failed = None;
    w.items(&reply.responses, |w, topic| {
        if version >= 13 {
            w.raw(topic.topic_id.as_bytes());
        } else {
            w.string(&topic.topic);
        }
        w.items(&topic.partitions, |w, partition| {
            match write_partition(w, partition, version) {
                Ok(gap) => gaps.extend(gap),
                Err(why) => failed = Some(why),
            }
        });
        w.tags();
    });
    w.tags();
    failed.map_or(Ok(gaps), Err)
}

/// One partition; gives the place of its batches, if it has any.
fn write_partition(
    w: &mut Writer,
    partition: &PartitionData,
    version: i16,
) -> Result<Option<(usize, Bytes)>, String> {
    let Some(records) = partition.records.as_ref().filter(|r| !r.is_empty()) else {
        theirs(w, partition, version)?;
        return Ok(None);
    };
    // kafka-protocol writes what is around them. Behind the batches come only tagged fields: they are as long as what
    // the partition is longer with them, and their count.
    let hollow = partition.clone().with_records(Some(Bytes::new()));
    let size = |partition: &PartitionData| {
        let size = partition.compute_size(version);
        size.map_err(|e| format!("{e:#}"))
    };
    let behind = if version >= 12 {
        let bare = hollow
            .clone()
            .with_diverging_epoch(Default::default())
            .with_current_leader(Default::default())
            .with_snapshot_id(Default::default())
            .with_unknown_tagged_fields(Default::default());
        1 + size(&hollow)? - size(&bare)?
    } else {
        0
    };
    theirs(w, &hollow, version)?;
    let out = w.written();
    let tail = out.split_off(out.len() - behind);
    let length_bytes = if version >= 12 { 1 } else { 4 };
    out.truncate(out.len() - length_bytes);
    w.length(records.len());
    let gap = (w.len(), records.clone());
    w.raw(&tail);
    Ok(Some(gap))
}

/// DescribeLogDirs 5: each folder also says whether it is cordoned (KIP-1066); ours never is.
fn write_log_dirs(w: &mut Writer, reply: &DescribeLogDirsResponse) {
    w.i32(reply.throttle_time_ms);
    w.i16(reply.error_code);
    w.items(&reply.results, |w, folder| {
        w.i16(folder.error_code);
        w.string(&folder.log_dir);
        w.items(&folder.topics, |w, topic| {
            w.string(&topic.name.0);
            w.items(&topic.partitions, |w, partition| {
                w.i32(partition.partition_index);
                w.i64(partition.partition_size);
                w.i64(partition.offset_lag);
                w.bool(partition.is_future_key);
                w.tags();
            });
            w.tags();
        });
        w.i64(folder.total_bytes);
        w.i64(folder.usable_bytes);
        w.bool(false);
        w.tags();
    });
    w.tags();
}
