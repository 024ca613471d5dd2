//! Looking into a running server, for metrics, health and administration.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::House;
use super::housekeeping::Housekeeper;
use super::knobs;
use super::metrics::Metrics;
use super::readiness::Report;
use super::shard::{Count, Letter, Mailbox};
use crate::broker::Broker;
use crate::desk::hop::Gather;
use crate::group::operator::{
    Action, Inspect, Inspected, NotDone, Operate, Operated, Previewed, Summary, Supposition,
};
use crate::group::request::{Reply, Request};
use crate::group::types::GroupId;
use crate::group::{Caps, Census, Committed, Stats};

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

    /// All groups in short, by id. Those of shards that are not serving are left out: [`readiness`](Self::readiness)
    /// tells whether there are such.
    pub async fn summaries(&self) -> Vec<Summary> {
        let ask = |shard: &Mailbox| {
            let (to, receiver) = oneshot::channel();
            shard.send(Letter::Summaries(to));
            receiver
        };
        let asked: Vec<_> = self.house.route.shards.iter().map(ask).collect();
        let mut all = Vec::new();
        for shard in asked {
            all.extend(shard.await.unwrap_or_default());
        }
        all.sort_unstable_by(|a, b| a.group_id.cmp(&b.group_id));
        all
    }

    /// Everything about one group.
    ///
    /// # Errors
    /// There is no such group, or its shard cannot be asked now.
    pub async fn inspect(&self, group_id: GroupId) -> Result<Box<Inspected>, NotDone> {
        match self.ask(Request::Inspect(Inspect::Group(group_id))).await? {
            Reply::Inspected(inspected) => inspected,
            _ => Err(lost()),
        }
    }

    /// Which partitions of a group would move if something changed.
    ///
    /// # Errors
    /// There is no such group, it makes no sense, or the shard cannot be asked now.
    pub async fn preview(
        &self,
        group_id: GroupId,
        change: Supposition,
    ) -> Result<Box<Previewed>, NotDone> {
        let inspect = Inspect::Preview { group_id, change };
        match self.ask(Request::Inspect(inspect)).await? {
            Reply::Previewed(previewed) => previewed,
            _ => Err(lost()),
        }
    }

    /// Acts on a group. Answered when it is done, which may take as long as members may take to let go of partitions;
    /// whoever drops the future does not end the action.
    ///
    /// What a group sets for itself, and that it is paused, outlives the server; nothing else does.
    ///
    /// # Errors
    /// Why it was not done.
    pub async fn operate(&self, operate: Operate) -> Result<Operated, NotDone> {
        let configs = configs_of(&operate.action);
        if !configs.is_empty() && !operate.dry_run {
            let check = Operate {
                dry_run: true,
                announces: true,
                ..operate.clone()
            };
            self.ask_to_operate(check).await?;
            let broker = &self.house.route.broker;
            let stored = broker.set_group_configs(&operate.group_id, configs).await;
            stored.map_err(|why| {
                NotDone::unavailable(&format!("The setting could not be stored: {why}."))
            })?;
        }
        self.ask_to_operate(operate).await
    }

    /// How many groups there may be.
    #[must_use]
    pub fn caps(&self) -> Caps {
        self.house.group_caps.caps()
    }

    /// Allows so many groups from now on, until the server ends: then `convoke.groups.max` and
    /// `convoke.groups.prefix.max` hold again. Groups that there are stay.
    pub async fn set_caps(&self, caps: Caps) {
        self.house.group_caps.set(caps);
        let ask = |shard: &Mailbox| {
            let (to, receiver) = oneshot::channel();
            shard.send(Letter::CountGroups(to));
            receiver
        };
        let asked: Vec<_> = self.house.route.shards.iter().map(ask).collect();
        for shard in asked {
            // A shard that has ended has no groups.
            let _ = shard.await;
        }
    }

    async fn ask_to_operate(&self, operate: Operate) -> Result<Operated, NotDone> {
        match self.ask(Request::Operate(operate)).await? {
            Reply::Operated(outcome) => outcome,
            _ => Err(lost()),
        }
    }

    /// Asks a coordinator as a connection would.
    async fn ask(&self, request: Request) -> Result<Reply, NotDone> {
        let gather = Gather::new(1);
        self.house.route.ask(request, gather.part(0), None);
        let mut parts = gather.all().await.ok_or_else(lost)?;
        parts.pop().ok_or_else(lost)
    }
}

fn lost() -> NotDone {
    NotDone::unavailable("The coordinator let the request fall.")
}

/// The GROUP configs that an action sets.
fn configs_of(action: &Action) -> Vec<(String, Option<String>)> {
    match action {
        Action::Configure(settings) => settings
            .iter()
            .map(|(setting, value)| {
                (
                    setting.key().to_owned(),
                    value.map(|value| value.to_string()),
                )
            })
            .collect(),
        Action::Pause => vec![(knobs::PAUSED.to_owned(), Some("true".to_owned()))],
        Action::Resume => vec![(knobs::PAUSED.to_owned(), None)],
        _ => Vec::new(),
    }
}

impl Observer {
    /// Calls `each` with what the groups of one shard have committed, shard by shard, so that what is gathered need not
    /// all be in memory at once. Shards that are not serving are left out.
    pub async fn each_committed(&self, mut each: impl FnMut(Vec<Committed>)) {
        for shard in self.house.route.shards.iter() {
            let (to, receiver) = oneshot::channel();
            shard.send(Letter::Committed(to));
            if let Ok(committed) = receiver.await {
                each(committed);
            }
        }
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
