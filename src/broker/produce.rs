//! Produce and the checks of a batch: its header and CRC, never its records.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::produce_request::PartitionProduceData;
use kafka_protocol::messages::produce_response::{PartitionProduceResponse, TopicProduceResponse};
use kafka_protocol::messages::{ProduceRequest, ProduceResponse};
use kafka_protocol::protocol::StrBytes;

use super::batch::{self, Bad, Header, NO_PRODUCER, NO_TIMESTAMP};
use super::config_keys::TopicConfig;
use super::topics::{Refusal, Topic};
use super::{Broker, Produced};

/// The first version that takes zstd, and the one that names topics by id.
const ZSTD_VERSION: i16 = 7;
const IDS_VERSION: i16 = 13;
const ZSTD: i16 = 4;

/// What became of one partition's batch.
struct Stored {
    base_offset: i64,
    append_time_ms: i64,
    log_start: i64,
}

/// Why one partition's batch was not stored. Kafka tells the log start only once it has looked at the log.
#[derive(Clone)]
struct Refused {
    code: i16,
    message: Option<String>,
    log_start: i64,
}

impl From<ResponseError> for Refused {
    fn from(error: ResponseError) -> Self {
        Self {
            code: error.code(),
            message: None,
            log_start: -1,
        }
    }
}

impl From<Refusal> for Refused {
    fn from(Refusal { code, message }: Refusal) -> Self {
        Self {
            code,
            message,
            log_start: -1,
        }
    }
}

impl Broker {
    /// Produce 3–13. Batches are in the page cache when this answers, as with Kafka; they are synced as `flush.messages`
    /// and `flush.ms` say.
    pub async fn produce(&self, request: ProduceRequest, version: i16) -> Produced {
        let acks = request.acks;
        let refused_all = match acks {
            -1..=1 => None,
            _ => Some(Refused::from(ResponseError::InvalidRequiredAcks)),
        };
        let refused_all = refused_all.or_else(|| {
            // Transactions are not offered, so nobody can have been given this id.
            request
                .transactional_id
                .as_ref()
                .map(|_| ResponseError::TransactionalIdAuthorizationFailed.into())
        });
        let mut any_refused = false;
        let mut responses = Vec::with_capacity(request.topic_data.len());
        for data in request.topic_data {
            let found = {
                let topics = self.shared.topics();
                match version >= IDS_VERSION {
                    true => topics
                        .by_id(data.topic_id)
                        .cloned()
                        .ok_or(ResponseError::UnknownTopicId),
                    false => topics
                        .get(&data.name)
                        .cloned()
                        .ok_or(ResponseError::UnknownTopicOrPartition),
                }
            };
            let mut partitions = Vec::with_capacity(data.partition_data.len());
            for partition in data.partition_data {
                let index = partition.index;
                let stored = match (&refused_all, &found) {
                    (Some(refusal), _) => Err(refusal.clone()),
                    (None, Err(error)) => Err((*error).into()),
                    (None, Ok(topic)) => self.store(topic, partition, version).await,
                };
                any_refused |= stored.is_err();
                partitions.push(answer(index, stored));
            }
            responses.push(
                TopicProduceResponse::default()
                    .with_name(data.name)
                    .with_topic_id(data.topic_id)
                    .with_partition_responses(partitions),
            );
        }
        match acks {
            0 if any_refused => Produced::Close,
            0 => Produced::Silent,
            _ => Produced::Reply(ProduceResponse::default().with_responses(responses)),
        }
    }

    async fn store(
        &self,
        topic: &Topic,
        data: PartitionProduceData,
        version: i16,
    ) -> Result<Stored, Refused> {
        let partition = topic
            .partition(data.index)
            .ok_or(ResponseError::UnknownTopicOrPartition)?;
        if topic.summary.internal {
            return Err(ResponseError::InvalidTopicException.into());
        }
        let now_ms = (self.shared.options.clock)();
        let records = data.records.unwrap_or_default();
        let (header, batch) = check_frame(&records, &topic.config, version)?;
        let refused = |refusal: Refusal| Refused {
            log_start: partition.bounds().log_start,
            ..refusal.into()
        };
        check_fields(&header)
            .map_err(|message| refused(Refusal::new(ResponseError::InvalidRecord, message)))?;
        if header.is_transactional() {
            return Err(ResponseError::TransactionalIdAuthorizationFailed.into());
        }
        if !topic.config.append_time {
            check_time(&header, &topic.config, now_ms).map_err(refused)?;
        }
        let appended = partition.append(&header, batch, &topic.config, now_ms);
        let appended = appended.map_err(|error| {
            refused(Refusal {
                code: error.code(),
                message: None,
            })
        })?;
        let counted = &self.shared.counted;
        let bytes = batch.len() as u64;
        counted.produced_bytes.fetch_add(bytes, Ordering::Relaxed);
        let count = u64::try_from(header.count).unwrap_or(0);
        counted.produced_records.fetch_add(count, Ordering::Relaxed);
        if !appended.chores.is_empty() {
            let must_sync = appended.chores.flush;
            let (partition, chores) = (Arc::clone(partition), appended.chores);
            let work = tokio::task::spawn_blocking(move || partition.work(chores));
            // Closing a segment may end later; a sync that was promised may not.
            if must_sync && !work.await.unwrap_or(false) {
                return Err(ResponseError::KafkaStorageError.into());
            }
        }
        Ok(Stored {
            base_offset: appended.base_offset,
            append_time_ms: appended.append_time_ms,
            log_start: appended.log_start,
        })
    }
}

fn answer(index: i32, stored: Result<Stored, Refused>) -> PartitionProduceResponse {
    let response = PartitionProduceResponse::default().with_index(index);
    match stored {
        Ok(stored) => response
            .with_base_offset(stored.base_offset)
            .with_log_append_time_ms(stored.append_time_ms)
            .with_log_start_offset(stored.log_start)
            .with_error_message(None),
        Err(refusal) => response
            .with_error_code(refusal.code)
            .with_base_offset(-1)
            .with_log_append_time_ms(-1)
            .with_log_start_offset(refusal.log_start)
            .with_error_message(refusal.message.map(StrBytes::from_string)),
    }
}

/// Finds the one batch a partition's data must be, whole and with the right checksum. Half a batch behind it is left
/// alone, as Kafka does.
///
/// # Errors
/// Kafka's code, with its sentence where it has one.
fn check_frame<'a>(
    records: &'a Bytes,
    config: &TopicConfig,
    version: i16,
) -> Result<(Header, &'a [u8]), Refusal> {
    let invalid = |what: &str| {
        let message = format!("Produce requests with version {version} {what}");
        Err(Refusal::new(ResponseError::InvalidRecord, message))
    };
    let none = "must have at least one record batch per partition";
    let header = match Header::read(records) {
        Ok(header) => header,
        Err(Bad::Magic(0 | 1)) => {
            return invalid("are only allowed to contain record batches with magic version 2");
        }
        Err(Bad::Magic(magic)) => {
            let message = format!("Invalid magic found in record: {magic}");
            return Err(Refusal::new(ResponseError::CorruptMessage, message));
        }
        Err(Bad::Length) => {
            return Err(Refusal::new(
                ResponseError::CorruptMessage,
                "The record batch is shorter than its header.",
            ));
        }
        Err(Bad::Short) => return invalid(none),
    };
    let Some((batch, rest)) = records.split_at_checked(header.bytes) else {
        return invalid(none);
    };
    if Header::read(rest).is_ok_and(|next| next.bytes <= rest.len()) {
        return invalid("are only allowed to contain exactly one record batch per partition");
    }
    if header.codec() == ZSTD && version < ZSTD_VERSION {
        return Err(Refusal::new(
            ResponseError::UnsupportedCompressionType,
            format!(
                "Produce requests with version {version} are not allowed to use ZStandard compression"
            ),
        ));
    }
    if header.bytes > config.message_bytes_max {
        return Err(Refusal::new(
            ResponseError::MessageTooLarge,
            format!(
                "The record batch size is {} bytes which exceeds the maximum configured value of {}.",
                header.bytes, config.message_bytes_max
            ),
        ));
    }
    if header.bytes as u64 > config.segment_bytes {
        return Err(Refusal::new(
            ResponseError::RecordListTooLarge,
            format!(
                "Message batch size is {} bytes which exceeds the maximum configured segment size of {}.",
                header.bytes, config.segment_bytes
            ),
        ));
    }
    if !batch::crc_matches(&header, batch) {
        return Err(Refusal::new(
            ResponseError::CorruptMessage,
            "The record batch does not match its checksum.",
        ));
    }
    Ok((header, batch))
}

fn check_fields(header: &Header) -> Result<(), String> {
    if header.base_offset != 0 {
        return Err(format!(
            "The baseOffset of the record batch must be 0, not {}.",
            header.base_offset
        ));
    }
    if header.last_offset_delta < 0 {
        return Err(format!(
            "Batch has an invalid offset range of 0 to {}",
            header.last_offset_delta
        ));
    }
    if header.count <= 0 {
        return Err(format!(
            "Invalid reported count for record batch: {}",
            header.count
        ));
    }
    if i64::from(header.last_offset_delta) + 1 != i64::from(header.count) {
        return Err(format!(
            "Inconsistent batch offset range [0, {}] and count of records {}",
            header.last_offset_delta, header.count
        ));
    }
    if header.is_control() {
        return Err("Clients are not allowed to write control records".to_owned());
    }
    if header.codec() > ZSTD {
        return Err(format!("Unknown compression type id: {}", header.codec()));
    }
    if header.producer_id != NO_PRODUCER
        && (header.producer_id < 0 || header.base_sequence < 0 || header.producer_epoch < 0)
    {
        return Err(format!(
            "Invalid sequence number {} in record batch with producerId {}",
            header.base_sequence, header.producer_id
        ));
    }
    Ok(())
}

/// Kafka checks every record's time; the header has the first and the largest.
fn check_time(header: &Header, config: &TopicConfig, now_ms: i64) -> Result<(), Refusal> {
    for timestamp in [header.base_timestamp, header.max_timestamp] {
        let early = now_ms.saturating_sub(timestamp) > config.before_max_ms;
        let late = timestamp.saturating_sub(now_ms) > config.after_max_ms;
        if timestamp != NO_TIMESTAMP && (early || late) {
            let (from, to) = (
                now_ms.saturating_sub(config.before_max_ms),
                now_ms.saturating_add(config.after_max_ms),
            );
            let message = format!(
                "Timestamp {timestamp} of message is out of range. The timestamp should be within [{from}, {to}]"
            );
            return Err(Refusal::new(ResponseError::InvalidTimestamp, message));
        }
    }
    Ok(())
}
