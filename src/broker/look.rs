//! What operators look up: the time of a record, the record of a time. Never asked by clients, who have ListOffsets.

use std::sync::Arc;

use kafka_protocol::messages::list_offsets_request::ListOffsetsPartition;

use super::Broker;
use super::batch::Header;
use super::list_offsets::{SEARCHES, offset_of};
use super::partition::Partition;
use super::records::{self, Budget};

impl Broker {
    /// Unix milliseconds now, by the clock that records are stamped with.
    #[must_use]
    pub fn now_ms(&self) -> i64 {
        (self.shared.options.clock)()
    }

    /// The time of the first record at or behind each offset, in unix milliseconds, in the order of what was asked.
    /// `None` where there is no such record, or none that tells a time. Opens one batch for each, and not without end:
    /// the answer stops early when enough has been opened, and whoever wants the rest asks again.
    pub async fn times_of(&self, places: Vec<(Arc<str>, i32, i64)>) -> Vec<Option<i64>> {
        if places.is_empty() {
            return Vec::new();
        }
        let broker = self.clone();
        let look = move || {
            let mut budget = Budget::default();
            let mut times = Vec::with_capacity(places.len());
            for (topic, partition, offset) in &places {
                if budget.is_spent() {
                    break;
                }
                let topic = broker.shared.topics().get(topic).cloned();
                let partition = topic.as_ref().and_then(|topic| topic.partition(*partition));
                times
                    .push(partition.and_then(|partition| time_of(partition, *offset, &mut budget)));
            }
            times
        };
        // Never closed, so that a turn always comes.
        let _turn = SEARCHES.acquire().await;
        tokio::task::spawn_blocking(look).await.unwrap_or_default()
    }

    /// The offset of the first record of this time or later; the end if all are older. `None` if there is no such
    /// partition.
    ///
    /// # Errors
    /// Why it cannot be told now, in words.
    pub async fn offset_from(
        &self,
        topic: &str,
        partition: i32,
        time_ms: i64,
    ) -> Result<Option<i64>, String> {
        let topic = self.shared.topics().get(topic).cloned();
        let Some(partition) = topic.as_ref().and_then(|topic| topic.partition(partition)) else {
            return Ok(None);
        };
        let asked = ListOffsetsPartition::default().with_timestamp(time_ms.max(0));
        match offset_of(partition, &asked).await {
            Ok((_, -1, _)) => Ok(Some(partition.bounds().end)),
            Ok((_, offset, _)) => Ok(Some(offset)),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Blocks.
fn time_of(partition: &Partition, offset: i64, budget: &mut Budget) -> Option<i64> {
    let bounds = partition.bounds();
    let offset = offset.max(bounds.log_start);
    if offset >= bounds.end {
        return None;
    }
    let batches = partition.read(offset, 0, true).ok()?;
    let header = Header::read(&batches.bytes).ok()?;
    let time = if header.is_append_time() {
        header.max_timestamp
    } else {
        let batch = batches.bytes.get(..header.bytes)?;
        records::find(&header, batch, budget, |stamp| stamp.offset >= offset)
            .ok()??
            .timestamp
    };
    // -1 stands for none, and a client can write anything.
    (time >= 0).then_some(time)
}
