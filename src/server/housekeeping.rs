//! What has to be done now and then: gauges brought up to date, histograms emptied.

use std::sync::Arc;
use std::time::Duration;

use super::House;
use super::observer::count;
use super::store::Store;
use crate::group::{Cause, Census, Stats};

const PACE: Duration = Duration::from_secs(1);
/// Counting walks all groups, so it is done less often.
const ROUNDS_PER_COUNT: u64 = 5;

/// Runs until the server ends.
pub(crate) async fn run(house: Arc<House>, store: Store) {
    let mut ticks = tokio::time::interval(PACE);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut round = 0_u64;
    loop {
        ticks.tick().await;
        gauges(&house, &store);
        if round.is_multiple_of(ROUNDS_PER_COUNT) {
            count_groups(&house).await;
        }
        round += 1;
        house.metrics.upkeep();
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
    let topics = house.route.broker.topics();
    metrics.topics.set(topics.len() as f64);
    let partitions: i64 = topics.iter().map(|topic| i64::from(topic.partitions)).sum();
    metrics.partitions.set(partitions as f64);
    if let Some(log) = store.log() {
        let stats = log.stats();
        metrics
            .log_bytes
            .set((stats.segment_bytes + stats.snapshot_bytes) as f64);
        metrics.log_segments.set(stats.segment_count as f64);
    }
}

async fn count_groups(house: &House) {
    let mut census = Census::default();
    let mut done = Stats::default();
    for (stats, shard) in count(house).await {
        census.add(&shard);
        done.offset_commits += stats.offset_commits;
        done.offset_expirations += stats.offset_expirations;
        done.offset_deletions += stats.offset_deletions;
        done.classic_completed_rebalances += stats.classic_completed_rebalances;
        done.consumer_rebalances += stats.consumer_rebalances;
        for (sum, one) in done.rebalances.iter_mut().zip(stats.rebalances) {
            *sum += one;
        }
    }
    let metrics = &house.metrics;
    metrics.offset_count.set(census.offsets as f64);
    metrics.member_count.set(census.members as f64);
    metrics
        .group_count
        .get(&["classic"])
        .set(census.classic.iter().sum::<u64>() as f64);
    metrics
        .group_count
        .get(&["consumer"])
        .set(census.consumer.iter().sum::<u64>() as f64);
    for (state, count) in Census::CLASSIC_STATES.into_iter().zip(census.classic) {
        metrics.classic_group_count.get(&[state]).set(count as f64);
    }
    for (state, count) in Census::CONSUMER_STATES.into_iter().zip(census.consumer) {
        metrics.consumer_group_count.get(&[state]).set(count as f64);
    }
    // A shard that was loaded anew begins at 0 again; `absolute` never goes back.
    metrics.offset_commits.absolute(done.offset_commits);
    metrics.offset_expirations.absolute(done.offset_expirations);
    metrics.offset_deletions.absolute(done.offset_deletions);
    metrics
        .classic_completed_rebalances
        .absolute(done.classic_completed_rebalances);
    metrics
        .consumer_group_rebalances
        .absolute(done.consumer_rebalances);
    for (cause, count) in Cause::ALL.into_iter().zip(done.rebalances) {
        metrics.rebalances.get(&[cause.name()]).absolute(count);
    }
}
