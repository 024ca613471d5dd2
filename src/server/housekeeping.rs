//! Keeps the metrics: histograms are emptied by the clock, gauges are brought up to date when somebody looks.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;

use super::House;
use super::observer::count;
use super::store::Store;
use crate::group::{Census, Stats};

const PACE: Duration = Duration::from_secs(1);
/// A scrape does not wait longer than this for shards; it shows older counts then.
const COUNT_PATIENCE: Duration = Duration::from_secs(5);

/// Keeps the metrics of one server.
#[derive(Debug)]
pub(crate) struct Housekeeper {
    house: Arc<House>,
    store: Store,
    /// What each shard had done when it was last asked. Held while counting, so that scrapes take turns.
    done: Mutex<Vec<Stats>>,
}

impl Housekeeper {
    pub(crate) fn new(house: Arc<House>, store: Store) -> Arc<Self> {
        let done = Mutex::default();
        Arc::new(Self { house, store, done })
    }

    /// Empties histograms until the server ends.
    pub(crate) async fn run(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(PACE);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.house.metrics.upkeep();
        }
    }

    /// Brings everything up to date that is not counted as it happens. Asks every shard.
    pub(crate) async fn refresh(&self) {
        gauges(&self.house, &self.store);
        let counting = async {
            let mut done = self.done.lock().await;
            count_groups(&self.house, &mut done).await;
        };
        // Shards that are late are counted by the next scrape.
        let _ = tokio::time::timeout(COUNT_PATIENCE, counting).await;
    }
}

fn gauges(house: &House, store: &Store) {
    let metrics = &house.metrics;
    let report = house.readiness.report();
    metrics.ready.set(if report.ready { 1.0 } else { 0.0 });
    let failed = report.closed.len();
    let active = report.shards - report.loading - failed;
    for (state, count) in [
        ("loading", report.loading),
        ("active", active),
        ("failed", failed),
    ] {
        metrics.shards.get(&[state]).set(count as f64);
    }
    metrics.connections.set(house.gate.count() as f64);
    metrics
        .request_bytes_in_flight
        .set(house.budget.used_bytes() as f64);
    metrics
        .reply_bytes_in_flight
        .set(house.replies.used_bytes() as f64);
    metrics
        .group_memory_bytes
        .set(house.group_memory.bytes() as f64);
    let topics = house.route.broker.topics();
    metrics.topics.set(topics.len() as f64);
    let partitions: i64 = topics.iter().map(|topic| i64::from(topic.partitions)).sum();
    metrics.partitions.set(partitions as f64);
    let data_bytes = house.route.broker.data_bytes();
    metrics.topic_data_bytes.set(data_bytes as f64);
    let traffic = house.route.broker.traffic();
    metrics.produced_bytes.absolute(traffic.produced_bytes);
    metrics.produced_records.absolute(traffic.produced_records);
    metrics.fetched_bytes.absolute(traffic.fetched_bytes);
    if let Some(log) = store.log() {
        let stats = log.stats();
        metrics
            .log_bytes
            .set((stats.segment_bytes + stats.snapshot_bytes) as f64);
        metrics.log_segments.set(stats.segment_count as f64);
    }
}

async fn count_groups(house: &House, done: &mut Vec<Stats>) {
    let metrics = &house.metrics;
    let mut census = Census::default();
    let mut queued = 0;
    done.resize(house.route.shards.len(), Stats::default());
    for (place, count) in count(house).await {
        census.add(&count.census);
        queued += count.queued;
        metrics.stats(&done[place], &count.stats);
        done[place] = count.stats;
    }
    metrics.census(&census);
    metrics.event_queue_size.set(queued as f64);
}
