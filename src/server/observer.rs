//! Looking into a running server, for metrics, health and administration.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::House;
use super::metrics::Metrics;
use super::readiness::Report;
use super::shard::{Letter, Mailbox};
use crate::broker::Broker;
use crate::group::{Census, Stats};

/// Looks into a running server. Cheap to clone; outlives the server harmlessly.
#[derive(Clone, Debug)]
pub struct Observer {
    pub(super) house: Arc<House>,
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
        count(&self.house).await
    }
}

pub(super) async fn count(house: &House) -> Vec<(Stats, Census)> {
    let ask = |shard: &Mailbox| {
        let (sender, receiver) = oneshot::channel();
        shard.send(Letter::Count(sender));
        receiver
    };
    let asked: Vec<_> = house.route.shards.iter().map(ask).collect();
    let mut counts = Vec::with_capacity(asked.len());
    for shard in asked {
        if let Ok(count) = shard.await {
            counts.push(count);
        }
    }
    counts
}
