//! Fetch with its wait. Every answer is sessionless (session id 0): each request names all its partitions.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use kafka_protocol::error::ResponseError;
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::{
    EpochEndOffset, FetchableTopicResponse, PartitionData,
};
use kafka_protocol::messages::{FetchRequest, FetchResponse};

use super::partition::{Batches, Partition, Watcher};
use super::topics::Topic;
use super::{Bounds, Broker, LEADER_EPOCH};

/// The first version with fetch sessions, and the one that names topics by id.
const SESSIONS_VERSION: i16 = 7;
const IDS_VERSION: i16 = 13;
const FINAL_EPOCH: i32 = -1;
const INITIAL_EPOCH: i32 = 0;
/// The longest wait anybody is granted; a longer one is asked for again by the client.
const WAIT_MS_MAX: u64 = i32::MAX as u64;

/// What one pass over the partitions came to.
struct Pass {
    topics: Vec<FetchableTopicResponse>,
    bytes: usize,
    /// An error or a hint that must not wait.
    urgent: bool,
    /// The partitions read to their end, and where that was.
    at_end: Vec<(Arc<Partition>, i64)>,
}

/// What is left of a response's room.
struct Room {
    bytes: usize,
    /// Nothing is in the response yet: one batch goes in whatever its size.
    empty: bool,
}

/// Lends the memory that answers to Fetch take: all of them together have a limit.
pub trait Lender: Send {
    /// Whether a batch beyond what was lent has to wait.
    fn is_short(&self) -> bool;

    /// Waits until one batch may be read, whatever its size.
    fn ready(&mut self) -> impl Future<Output = ()> + Send;

    /// How many of the wanted bytes may be read now. They count as held from here on.
    fn lend(&mut self, wanted_bytes: usize) -> usize;

    /// Of what was lent, so much was used; it may be more.
    fn keep(&mut self, lent_bytes: usize, used_bytes: usize);
}

/// Lends whatever is asked for.
#[derive(Debug)]
struct NoLimit;

impl Lender for NoLimit {
    fn is_short(&self) -> bool {
        false
    }

    async fn ready(&mut self) {}

    fn lend(&mut self, wanted_bytes: usize) -> usize {
        wanted_bytes
    }

    fn keep(&mut self, _: usize, _: usize) {}
}

impl Broker {
    /// Fetch 4–18. Waits up to the request's `max_wait_ms` for its `min_bytes`.
    pub async fn fetch(&self, request: FetchRequest, version: i16) -> FetchResponse {
        self.fetch_within(request, version, &mut NoLimit).await
    }

    /// As [`Self::fetch`], in borrowed memory: what is kept of it in the end are the answer's batches.
    pub async fn fetch_within(
        &self,
        request: FetchRequest,
        version: i16,
        lender: &mut impl Lender,
    ) -> FetchResponse {
        if version >= SESSIONS_VERSION
            && !matches!(request.session_epoch, FINAL_EPOCH | INITIAL_EPOCH)
        {
            // Nobody was ever given a session.
            return FetchResponse::default()
                .with_error_code(ResponseError::FetchSessionIdNotFound.code());
        }
        let wait = Duration::from_millis(
            u64::try_from(request.max_wait_ms)
                .unwrap_or(0)
                .min(WAIT_MS_MAX),
        );
        let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0);
        let deadline = tokio::time::sleep(wait);
        tokio::pin!(deadline);
        let mut may_wait = !wait.is_zero();
        loop {
            let mut pass = self.read_all(&request, version, lender).await;
            if pass.urgent || pass.bytes >= min_bytes || !may_wait || request.topics.is_empty() {
                let fetched = &self.shared.counted.fetched_bytes;
                fetched.fetch_add(pass.bytes as u64, Ordering::Relaxed);
                return FetchResponse::default().with_responses(pass.topics);
            }
            // It is read again after the wait; until then nobody holds it.
            pass.topics.clear();
            lender.keep(pass.bytes, 0);
            let missing = i64::try_from(min_bytes - pass.bytes).unwrap_or(i64::MAX);
            let watch = Watch::new(missing, pass.at_end);
            if watch.outdated {
                continue;
            }
            tokio::select! {
                () = watch.watcher.wait() => {}
                () = &mut deadline => may_wait = false,
            }
        }
    }

    async fn read_all(
        &self,
        request: &FetchRequest,
        version: i16,
        lender: &mut impl Lender,
    ) -> Pass {
        let max_bytes = usize::try_from(request.max_bytes)
            .unwrap_or(0)
            .min(self.shared.options.fetch_bytes_max);
        let mut room = Room {
            bytes: max_bytes,
            empty: true,
        };
        let mut pass = Pass {
            topics: Vec::with_capacity(request.topics.len()),
            bytes: 0,
            urgent: false,
            at_end: Vec::new(),
        };
        let committed_only = request.isolation_level == 1;
        for asked in &request.topics {
            let found = self.find(asked, version);
            let mut partitions = Vec::with_capacity(asked.partitions.len());
            for partition in &asked.partitions {
                let found = found.as_deref().map_err(|error| *error).and_then(|topic| {
                    topic
                        .partition(partition.partition)
                        .ok_or(ResponseError::UnknownTopicOrPartition)
                });
                let data = match found {
                    Ok(found) => {
                        let read =
                            read_one(found, partition, version, &mut room, &mut pass, lender);
                        match read.await {
                            Ok(data) => {
                                data.with_aborted_transactions(committed_only.then(Vec::new))
                            }
                            Err(error) => refused(error).with_aborted_transactions(None),
                        }
                    }
                    Err(error) => refused(error),
                };
                pass.urgent |= data.error_code != 0;
                partitions.push(data.with_partition_index(partition.partition));
            }
            pass.topics.push(
                FetchableTopicResponse::default()
                    .with_topic(asked.topic.clone())
                    .with_topic_id(asked.topic_id)
                    .with_partitions(partitions),
            );
        }
        pass
    }

    fn find(&self, asked: &FetchTopic, version: i16) -> Result<Arc<Topic>, ResponseError> {
        let topics = self.shared.topics();
        match version >= IDS_VERSION {
            true => topics
                .by_id(asked.topic_id)
                .cloned()
                .ok_or(ResponseError::UnknownTopicId),
            false => topics
                .get(&asked.topic)
                .cloned()
                .ok_or(ResponseError::UnknownTopicOrPartition),
        }
    }
}

async fn read_one(
    partition: &Arc<Partition>,
    asked: &FetchPartition,
    version: i16,
    room: &mut Room,
    pass: &mut Pass,
    lender: &mut impl Lender,
) -> Result<PartitionData, ResponseError> {
    check_epoch(asked.current_leader_epoch)?;
    if version >= 12 && asked.last_fetched_epoch >= 0 {
        if asked.last_fetched_epoch > LEADER_EPOCH {
            return Err(ResponseError::OffsetOutOfRange);
        }
        let bounds = partition.bounds();
        if bounds.end < asked.fetch_offset {
            // The end was lost in a crash: the consumer learns where its history still agrees with ours.
            pass.urgent = true;
            let end = EpochEndOffset::default()
                .with_epoch(LEADER_EPOCH)
                .with_end_offset(bounds.end);
            return Ok(data(bounds).with_diverging_epoch(end));
        }
    }
    let wanted = usize::try_from(asked.partition_max_bytes)
        .unwrap_or(0)
        .min(room.bytes);
    let offset = asked.fetch_offset;
    let at_least_one = room.empty && !lender.is_short();
    let mut batches = read_lent(partition, offset, wanted, at_least_one, lender).await?;
    if room.empty && !at_least_one && batches.bytes.is_empty() && !batches.at_end {
        lender.ready().await;
        batches = read_lent(partition, offset, wanted, true, lender).await?;
    }
    let Batches {
        bounds,
        bytes,
        at_end,
    } = batches;
    room.bytes = room.bytes.saturating_sub(bytes.len());
    room.empty &= bytes.is_empty();
    pass.bytes += bytes.len();
    match at_end {
        true => pass.at_end.push((Arc::clone(partition), bounds.end)),
        // There is more than fits, or more in the next segment: whatever is in the response may leave.
        false => pass.urgent = true,
    }
    Ok(data(bounds).with_records(Some(bytes)))
}

/// Reads batches into borrowed memory.
async fn read_lent(
    partition: &Arc<Partition>,
    offset: i64,
    wanted: usize,
    at_least_one: bool,
    lender: &mut impl Lender,
) -> Result<Batches, ResponseError> {
    let lent = lender.lend(wanted);
    let read = match partition.is_cold(offset) {
        // From the disk, maybe: not on a thread that serves others.
        true => {
            let partition = Arc::clone(partition);
            let read =
                tokio::task::spawn_blocking(move || partition.read(offset, lent, at_least_one));
            read.await.unwrap_or(Err(ResponseError::UnknownServerError))
        }
        false => partition.read(offset, lent, at_least_one),
    };
    lender.keep(lent, read.as_ref().map_or(0, |read| read.bytes.len()));
    read
}

/// A leader epoch the client knows against ours, which never changes; −1 is none.
pub(super) fn check_epoch(epoch: i32) -> Result<(), ResponseError> {
    match epoch {
        ..0 => Ok(()),
        LEADER_EPOCH => Ok(()),
        _ => Err(ResponseError::UnknownLeaderEpoch),
    }
}

fn data(bounds: Bounds) -> PartitionData {
    PartitionData::default()
        .with_high_watermark(bounds.end)
        .with_last_stable_offset(bounds.last_stable)
        .with_log_start_offset(bounds.log_start)
}

fn refused(error: ResponseError) -> PartitionData {
    PartitionData::default()
        .with_error_code(error.code())
        .with_high_watermark(-1)
}

/// A watcher in every partition it waits for; it leaves them when dropped.
struct Watch {
    watcher: Arc<Watcher>,
    partitions: Vec<(Arc<Partition>, i64)>,
    /// Something happened since the pass: look again instead of waiting.
    outdated: bool,
}

impl Watch {
    fn new(missing: i64, partitions: Vec<(Arc<Partition>, i64)>) -> Self {
        let watcher = Watcher::new(missing);
        let outdated = partitions
            .iter()
            .any(|(partition, end)| partition.watch(&watcher, *end));
        Self {
            watcher,
            partitions,
            outdated,
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        for (partition, _) in &self.partitions {
            partition.unwatch(&self.watcher);
        }
    }
}
