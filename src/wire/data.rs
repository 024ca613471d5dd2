//! The data plane's requests and replies, in kafka-protocol's structs.
//!
//! The guard has walked the body before it comes here. Where Kafka reads something that
//! kafka-protocol does not, the body is written anew in the form it wants. Strings and records are
//! views into the frame: whoever keeps one must copy it.

use ::bytes::{Buf, Bytes};
use kafka_protocol::messages::{self, DescribeLogDirsResponse};
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
