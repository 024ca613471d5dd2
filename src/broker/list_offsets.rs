//! ListOffsets and OffsetForLeaderEpoch: which offset stands for a time or an end.

use std::sync::Arc;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;
use kafka_protocol::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use kafka_protocol::messages::{
    ListOffsetsRequest, ListOffsetsResponse, OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
};

use tokio::sync::Semaphore;

use super::fetch::check_epoch;
use super::partition::Partition;
use super::records::{self, Budget, Stamp};
use super::{Broker, LEADER_EPOCH};

/// Kafka's special timestamps.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;

/// The first version whose answers carry a leader epoch.
const EPOCH_VERSION: i16 = 4;

/// An answer: timestamp, offset, leader epoch.
type Found = (i64, i64, i32);
/// There is no such record, or no such storage.
const NOTHING: Found = (-1, -1, -1);

impl Broker {
    /// ListOffsets 1–11. By time, the answer is the very record, not its batch.
    pub async fn list_offsets(
        &self,
        request: ListOffsetsRequest,
        version: i16,
    ) -> ListOffsetsResponse {
        let mut mentions: HashMap<(&str, i32), usize> = HashMap::new();
        for topic in &request.topics {
            for partition in &topic.partitions {
                *mentions
                    .entry((&topic.name, partition.partition_index))
                    .or_default() += 1;
            }
        }
        let mut topics: Vec<ListOffsetsTopicResponse> = Vec::with_capacity(request.topics.len());
        let mut places: HashMap<&str, usize> = HashMap::new();
        for topic in &request.topics {
            let found = self.shared.topics().get(&topic.name).cloned();
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in &topic.partitions {
                let partition = found
                    .as_ref()
                    .and_then(|topic| topic.partition(asked.partition_index));
                let times = mentions
                    .get_mut(&(&**topic.name, asked.partition_index))
                    .map_or(0, std::mem::take);
                let outcome = match (times, partition) {
                    // Named before: one answer stands for all mentions.
                    (0, _) => continue,
                    (2.., _) => Err(ResponseError::InvalidRequest),
                    (1, _) if !is_served(asked.timestamp, version) => {
                        Err(ResponseError::UnsupportedVersion)
                    }
                    (1, None) => Err(ResponseError::UnknownTopicOrPartition),
                    (1, Some(partition)) => offset_of(partition, asked).await,
                };
                let (timestamp, offset, mut epoch) = outcome.unwrap_or(NOTHING);
                if version < EPOCH_VERSION {
                    epoch = -1;
                }
                partitions.push(
                    ListOffsetsPartitionResponse::default()
                        .with_partition_index(asked.partition_index)
                        .with_error_code(outcome.err().map_or(0, |error| error.code()))
                        .with_timestamp(timestamp)
                        .with_offset(offset)
                        .with_leader_epoch(epoch),
                );
            }
            // A topic that is named twice is answered once.
            match places.entry(&topic.name) {
                Entry::Occupied(place) => topics[*place.get()].partitions.extend(partitions),
                Entry::Vacant(place) => {
                    place.insert(topics.len());
                    topics.push(
                        ListOffsetsTopicResponse::default()
                            .with_name(topic.name.clone())
                            .with_partitions(partitions),
                    );
                }
            }
        }
        ListOffsetsResponse::default().with_topics(topics)
    }

    /// OffsetForLeaderEpoch 2–4.
    pub fn offset_for_leader_epoch(
        &self,
        request: OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse {
        let map = self.shared.topics();
        let mut topics = Vec::with_capacity(request.topics.len());
        for topic in &request.topics {
            let found = map.get(&topic.topic);
            let mut partitions = Vec::with_capacity(topic.partitions.len());
            for asked in &topic.partitions {
                let answer = EpochEndOffset::default()
                    .with_partition(asked.partition)
                    .with_leader_epoch(-1)
                    .with_end_offset(-1);
                let partition = found.and_then(|topic| topic.partition(asked.partition));
                partitions.push(match (partition, check_epoch(asked.current_leader_epoch)) {
                    (None, _) => {
                        answer.with_error_code(ResponseError::UnknownTopicOrPartition.code())
                    }
                    (_, Err(error)) => answer.with_error_code(error.code()),
                    (Some(partition), Ok(())) if asked.leader_epoch == LEADER_EPOCH => answer
                        .with_leader_epoch(LEADER_EPOCH)
                        .with_end_offset(partition.bounds().end),
                    // An epoch that never was has no end.
                    (Some(_), Ok(())) => answer,
                });
            }
            topics.push(
                OffsetForLeaderTopicResult::default()
                    .with_topic(topic.topic.clone())
                    .with_partitions(partitions),
            );
        }
        OffsetForLeaderEpochResponse::default().with_topics(topics)
    }
}

/// Opening batches takes threads, and memory for what they unfold into: not for everybody at once.
pub(super) static SEARCHES: Semaphore = Semaphore::const_new(4);

/// Whether a timestamp means something in this version.
fn is_served(timestamp: i64, version: i16) -> bool {
    match timestamp {
        LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        EARLIEST_PENDING_UPLOAD => version >= 11,
        _ => timestamp >= 0,
    }
}

pub(super) async fn offset_of(
    partition: &Arc<Partition>,
    asked: &ListOffsetsPartition,
) -> Result<Found, ResponseError> {
    check_epoch(asked.current_leader_epoch)?;
    let timestamp = asked.timestamp;
    match timestamp {
        LATEST => Ok((-1, partition.bounds().last_stable, LEADER_EPOCH)),
        EARLIEST | EARLIEST_LOCAL => Ok((-1, partition.bounds().log_start, LEADER_EPOCH)),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => Ok(NOTHING),
        _ => {
            let partition = Arc::clone(partition);
            let search = move || match timestamp {
                MAX_TIMESTAMP => newest(&partition),
                _ => first_from(&partition, timestamp),
            };
            // Never closed, so that a turn always comes.
            let _turn = SEARCHES.acquire().await;
            let found = tokio::task::spawn_blocking(search)
                .await
                .unwrap_or(Err(ResponseError::UnknownServerError))?;
            Ok(found.map_or(NOTHING, |stamp| {
                (stamp.timestamp, stamp.offset, LEADER_EPOCH)
            }))
        }
    }
}

/// The first record with the largest timestamp. Blocks.
fn newest(partition: &Partition) -> Result<Option<Stamp>, ResponseError> {
    match partition.max_timestamp().map_err(unreadable)? {
        ..0 => Ok(None),
        max => first_from(partition, max),
    }
}

/// The first record at or behind the start whose timestamp is at least `timestamp`. Blocks.
fn first_from(partition: &Partition, timestamp: i64) -> Result<Option<Stamp>, ResponseError> {
    let start = partition.bounds().log_start;
    let mut after = None;
    let mut budget = Budget::default();
    while let Some((header, batch)) = partition
        .batch_at_time(timestamp, after)
        .map_err(unreadable)?
    {
        let wanted = |stamp: Stamp| stamp.timestamp >= timestamp && stamp.offset >= start;
        match records::find(&header, &batch, &mut budget, wanted) {
            Ok(Some(stamp)) => return Ok(Some(stamp)),
            // The batch promised a timestamp it does not have, or has it before the start only.
            Ok(None) => after = Some(header.last_offset().saturating_add(1)),
            Err(error) => {
                tracing::debug!(offset = header.base_offset, %error, "a batch cannot be opened");
                return Err(ResponseError::CorruptMessage);
            }
        }
    }
    Ok(None)
}

fn unreadable(error: std::io::Error) -> ResponseError {
    tracing::error!(%error, "cannot read a segment; the client is told to try again");
    ResponseError::KafkaStorageError
}
