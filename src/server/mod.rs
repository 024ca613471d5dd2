//! The hall: sockets at the gate, routing in the middle, one desk per shard, and the clock on the wall.
//!
//! [`Server`] opens the data folder, loads the shards, listens, and stops in good order. What groups decide is `group`'s
//! affair, layouts are `wire`'s, files are `log`'s, topics and records are `broker`'s.

mod blocking;
mod budget;
mod builder;
mod chronicle;
mod clock;
mod connection;
mod data;
mod descriptors;
mod errors;
mod frames;
mod gate;
mod housekeeping;
mod knobs;
mod ledger;
mod listen;
mod load;
pub mod metrics;
mod observer;
mod quiet;
mod readiness;
mod route;
mod shard;
mod start;
mod store;
mod topics;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

pub use blocking::BlockingServer;
pub use builder::Builder;
pub use observer::Observer;
pub use readiness::{Readiness, Report};

use self::budget::Budget;
use self::gate::Gate;
use self::housekeeping::Housekeeper;
use self::metrics::Metrics;
use self::route::Route;
use self::shard::Letter;
use self::store::Store;
use crate::broker;
use crate::config;
use crate::group::{GroupCaps, GroupMemory};
use crate::log;

/// Why a server cannot start or stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The settings do not hold together.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// The data folder or the group log.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The topics and their data.
    #[error(transparent)]
    Broker(#[from] broker::Error),
    /// An address cannot be listened on.
    #[error("cannot listen on {address} for listener {listener}: {source}")]
    Listen {
        /// The listener's name.
        listener: String,
        /// Its address, as configured.
        address: String,
        /// What the system said.
        source: io::Error,
    },
    /// The system gave no threads.
    #[error("cannot start the server's threads: {0}")]
    Threads(io::Error),
    /// A part of the server ended before it was ready.
    #[error("the server ended while it started: {0}")]
    Ended(String),
}

/// What all connections share.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) gate: Arc<Gate>,
    /// `queued.max.request.bytes`.
    pub(crate) budget: Arc<Budget>,
    /// `convoke.queued.max.reply.bytes`.
    pub(crate) replies: Arc<Budget>,
    /// What groups keep, as `convoke.group.memory.max.bytes` limits it.
    pub(crate) group_memory: Arc<GroupMemory>,
    /// How many groups there may be.
    pub(crate) group_caps: Arc<GroupCaps>,
    pub(crate) route: Arc<Route>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) readiness: Arc<Readiness>,
    /// `socket.request.max.bytes`.
    pub(crate) frame_bytes_max: usize,
}

/// A listener that is bound.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Address {
    /// The listener's name, such as `PLAINTEXT`.
    pub listener: String,
    /// Where it listens; the port is the real one.
    pub local: SocketAddr,
    /// What clients are told to dial, as `host:port`.
    pub advertised: String,
}

/// A running server.
///
/// Dropping it closes its sockets and ends its tasks at once; [`Server::stop`] ends it in good order. A server in
/// memory leaves nothing behind either way.
///
/// ```
/// use std::io::{Read, Write};
///
/// // A server for this test alone: in memory, on a free port.
/// let server = convoke::Server::builder().memory().start_blocking()?;
/// let mut socket = std::net::TcpStream::connect(server.bootstrap())?;
///
/// // ApiVersions, version 0: length, key 18, version, correlation id 7, no client id.
/// socket.write_all(&[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 7, 255, 255])?;
/// let mut reply = [0; 10];
/// socket.read_exact(&mut reply)?;
/// assert_eq!(reply[4..8], [0, 0, 0, 7], "the reply carries our correlation id");
/// assert_eq!(reply[8..10], [0, 0], "and no error");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Server {
    house: Arc<House>,
    housekeeper: Arc<Housekeeper>,
    addresses: Vec<Address>,
    grace: Duration,
    stop_accepting: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
    shards: Vec<JoinHandle<()>>,
    store: Store,
    /// Writes the journal, if it is written.
    chronicle: Option<JoinHandle<()>>,
}

impl Server {
    /// A server with the default settings: see [`Builder`].
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Where clients of the first listener connect: `host:port`.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        self.addresses
            .first()
            .map(|address| address.advertised.clone())
            .unwrap_or_default()
    }

    /// Every listener, in the order of the settings.
    #[must_use]
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Who the server is: the cluster id that clients see. A data folder keeps it.
    #[must_use]
    pub fn cluster_id(&self) -> &str {
        &self.house.route.cluster_id
    }

    /// Looks into the running server; outlives it harmlessly.
    #[must_use]
    pub fn observer(&self) -> Observer {
        Observer {
            house: self.house.clone(),
            housekeeper: self.housekeeper.clone(),
        }
    }

    /// Waits until every shard is loaded. Clients may connect before; they are told to try again.
    pub async fn ready(&self) {
        self.house.readiness.ready().await;
    }

    /// Waits until the server cannot go on (a failed sync, damage found while loading), and says why. The program
    /// should then [`stop`](Self::stop) it and end.
    pub async fn failed(&self) -> String {
        self.house.readiness.failed().await
    }

    /// Stops in good order: accepts nobody, answers who is parked as Kafka does, makes everything durable.
    ///
    /// # Errors
    /// [`Error::Log`] or [`Error::Broker`] if the last writes fail.
    pub async fn stop(mut self) -> Result<(), Error> {
        self.stop_accepting.send_replace(true);
        self.house.gate.stop();
        let mut stopped = Vec::new();
        for shard in self.house.route.shards.iter() {
            let (sender, receiver) = oneshot::channel();
            shard.send(Letter::Stop(sender));
            stopped.push(receiver);
        }
        let leave = async {
            for shard in stopped {
                // A shard that has ended already has nothing to say.
                let _ = shard.await;
            }
            self.house.gate.empty().await;
        };
        if tokio::time::timeout(self.grace, leave).await.is_err() {
            tracing::warn!(
                connections = self.house.gate.count(),
                "cut the connections that did not take their replies within convoke.shutdown.grace.ms"
            );
        }
        self.house.gate.clear();
        for shard in self.shards.drain(..) {
            shard.abort();
            // It hands in nothing more.
            let _ = shard.await;
        }
        if let Some(chronicle) = self.chronicle.take() {
            let _ = chronicle.await;
        }
        let closed = self.house.route.broker.close().await;
        std::mem::take(&mut self.store).close().await?;
        Ok(closed?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop_accepting.send_replace(true);
        self.house.gate.stop();
        self.house.gate.clear();
        let others = self.shards.drain(..).chain(self.chronicle.take());
        for task in self.tasks.drain(..).chain(others) {
            task.abort();
        }
    }
}
