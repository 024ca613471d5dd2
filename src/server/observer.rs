//! Looking into a running server, for metrics, health and administration.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::House;
use super::housekeeping::Housekeeper;
use super::metrics::Metrics;
use super::readiness::Report;
use super::shard::{Count, Letter, Mailbox};
use crate::broker::Broker;
use crate::group::{Census, Stats};

/// Looks into a running server. Cheap to clone; outlives the server harmlessly.
#[derive(Clone, Debug)]
pub struct Observer {
    pub(super) house: Arc<House>,
    pub(super) housekeeper: Arc<Housekeeper>,
}

impl Observer {
    /// How far the server has come, and what is wrong with it.
    #[must_use]
    pub fn readiness(&self) -> Report {
        self.house.readiness.report()
    }

    /// Waits until the server cannot go on, and says why.
    pub async fn failed(&self) -> String {
        self.house.readiness.failed().await
    }

    /// The server's metrics.
    #[must_use]
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.house.metrics
    }

    /// The metrics as text for Prometheus, counted at this moment. To be awaited inside a tokio runtime.
    pub async fn scrape(&self) -> String {
        self.housekeeper.refresh().await;
        self.house.metrics.render()
    }

    /// Whether the server has begun to stop.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.house.gate.is_stopping()
    }

    /// Connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.house.gate.count()
    }

    /// The data plane.
    #[must_use]
    pub fn broker(&self) -> &Broker {
        &self.house.route.broker
    }

    /// What each shard has done and holds. Shards that are not serving are left out. Walks all groups: for a scrape,
    /// not for a loop.
    pub async fn count(&self) -> Vec<(Stats, Census)> {
        let counts = count(&self.house).await;
        let pair = |(_, count): (usize, Count)| (count.stats, count.census);
        counts.into_iter().map(pair).collect()
    }
}

/// The counts of the shards that serve, with their places.
pub(super) async fn count(house: &House) -> Vec<(usize, Count)> {
    let since_us = house.metrics.now_us();
    let ask = |shard: &Mailbox| {
        let (to, receiver) = oneshot::channel();
        shard.send(Letter::Count { since_us, to });
        receiver
    };
    let asked: Vec<_> = house.route.shards.iter().map(ask).collect();
    let mut counts = Vec::with_capacity(asked.len());
    for (place, shard) in asked.into_iter().enumerate() {
        if let Ok(count) = shard.await {
            counts.push((place, count));
        }
    }
    counts
}
