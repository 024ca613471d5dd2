//! The order in which a server comes up: settings, data folder, sockets, topics, shards, clients.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::budget::Budget;
use super::clock::Clock;
use super::gate::{Gate, Limits, Patience};
use super::housekeeping;
use super::listen::{self, Listening};
use super::load::{self, Waiting};
use super::metrics::Metrics;
use super::quiet::Quiet;
use super::readiness::Readiness;
use super::route::Route;
use super::shard::{Mailbox, Setup, Shard};
use super::store::{Opening, Store};
use super::topics::Announcer;
use super::{Address, Error, House, Server};
use crate::broker::{self, Broker, BrokerOptions};
use crate::config::Config;
use crate::group::GroupConfig;
use crate::log::Identity;

/// Differs from call to call and from start to start, so that no member id is handed out twice.
pub(crate) fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Starts a server.
pub(crate) async fn start(config: Config) -> Result<Server, Error> {
    config.check()?;
    let endpoints = config.endpoints()?;
    let clock = Arc::new(Clock::start());
    let metrics = Arc::new(Metrics::new());
    let shard_count = u16::try_from(config.offsets_topic_num_partitions).unwrap_or(50);
    let opening = Opening::open(&config, shard_count, &metrics).await?;
    let backlog = u32::try_from(config.socket_listen_backlog_size).unwrap_or(128);
    let listening = listen::bind_all(&endpoints, backlog).await?;

    let (mailboxes, mail): (Vec<_>, Vec<_>) = (0..shard_count).map(|_| Mailbox::new()).unzip();
    let mailboxes: Arc<[Mailbox]> = mailboxes.into();
    let announcer = Arc::new(Announcer::new(mailboxes.clone()));
    let broker = open_broker(&config, &opening, &clock, &announcer).await?;
    announcer.begin(&broker.topics());

    let readiness = Arc::new(Readiness::new(shard_count));
    let mut shards = Vec::with_capacity(mail.len());
    let mut waiting = Vec::with_capacity(mail.len());
    for (partition, mail) in (0..shard_count).zip(mail) {
        let (sender, loaded) = oneshot::channel();
        waiting.push(Waiting { partition, sender });
        let setup = Setup {
            partition,
            config: group_config(&config),
            topics: announcer.newest(),
            patience_ms: i64::from(config.offsets_commit_timeout_ms),
            clock: clock.clone(),
            readiness: readiness.clone(),
            metrics: metrics.clone(),
        };
        shards.push(tokio::spawn(Shard::new(setup, mail, loaded).run()));
    }
    let identity = opening.identity().clone();
    let store = Store::default();
    load::begin(
        opening,
        waiting,
        group_config(&config),
        announcer.newest(),
        &readiness,
        &store,
    );

    let gate = Gate::new(clock.clone(), patience(&config), limits(&config));
    let house = house(
        &config, &identity, gate, mailboxes, broker, &metrics, &readiness,
    );
    let addresses = listening.iter().map(address).collect();
    let stop_accepting = watch::Sender::new(false);
    let mut tasks = vec![
        tokio::spawn(house.gate.clone().watch()),
        tokio::spawn(housekeeping::run(house.clone(), store.clone())),
    ];
    let lines = Quiet::new(clock);
    for listening in listening {
        let stop = stop_accepting.subscribe();
        tasks.push(tokio::spawn(listen::accept(
            house.clone(),
            listening,
            lines.clone(),
            stop,
        )));
    }
    Ok(Server {
        house,
        addresses,
        grace: Duration::from_millis(u64::try_from(config.shutdown_grace_ms).unwrap_or(0)),
        stop_accepting,
        tasks,
        shards,
        store,
    })
}

fn house(
    config: &Config,
    identity: &Identity,
    gate: Arc<Gate>,
    shards: Arc<[Mailbox]>,
    broker: Broker,
    metrics: &Arc<Metrics>,
    readiness: &Arc<Readiness>,
) -> Arc<House> {
    // Negative: no limit.
    let budget = usize::try_from(config.queued_max_request_bytes).unwrap_or(usize::MAX);
    Arc::new(House {
        gate,
        budget: Budget::new(budget),
        route: Arc::new(Route {
            shards,
            broker,
            cluster_id: identity.cluster_id.as_str().into(),
            node_id: identity.node_id,
        }),
        metrics: metrics.clone(),
        readiness: readiness.clone(),
        frame_bytes_max: usize::try_from(config.socket_request_max_bytes).unwrap_or(usize::MAX),
    })
}

fn address(listening: &Listening) -> Address {
    let door = &listening.door;
    let advertised = if door.host.contains(':') {
        format!("[{}]:{}", door.host, door.port)
    } else {
        format!("{}:{}", door.host, door.port)
    };
    Address {
        listener: door.name.clone(),
        local: listening.local,
        advertised,
    }
}

async fn open_broker(
    config: &Config,
    opening: &Opening,
    clock: &Arc<Clock>,
    announcer: &Arc<Announcer>,
) -> Result<Broker, Error> {
    let told = clock.clone();
    let options = BrokerOptions {
        node_id: opening.identity().node_id,
        cluster_id: opening.identity().cluster_id.clone(),
        rack: config.broker_rack.clone(),
        offsets_topic_partitions: config.offsets_topic_num_partitions,
        num_partitions: config.num_partitions,
        auto_create_topics: config.auto_create_topics_enable,
        retention_check_interval_ms: u64::try_from(config.log_retention_check_interval_ms)
            .unwrap_or(300_000),
        producer_id_expiration_ms: i64::from(config.producer_id_expiration_ms),
        fetch_bytes_max: usize::try_from(config.fetch_max_bytes).unwrap_or(usize::MAX),
        clock: Arc::new(move || told.now().0),
        ..BrokerOptions::default()
    };
    let announcer = announcer.clone();
    let opened = tokio::task::spawn_blocking(move || {
        Broker::open(
            options,
            Box::new(move |change: broker::TopicsChange| announcer.announce(&change)),
            Box::new(|_change| {}),
        )
    });
    match opened.await {
        Ok(broker) => Ok(broker?),
        Err(panicked) => Err(Error::Ended(panicked.to_string())),
    }
}

fn group_config(config: &Config) -> GroupConfig {
    let size = |value: i32| usize::try_from(value).unwrap_or(usize::MAX);
    GroupConfig {
        session_timeout_ms: config.group_min_session_timeout_ms
            ..=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms: i64::from(config.group_initial_rebalance_delay_ms),
        max_size: size(config.group_max_size),
        offset_metadata_max_units: size(config.offset_metadata_max_bytes),
        offsets_retention_ms: i64::from(config.offsets_retention_minutes) * 60_000,
        offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms,
    }
}

fn patience(config: &Config) -> Patience {
    let ms = |value: i64| u64::try_from(value).unwrap_or(0);
    Patience {
        idle_ms: u64::try_from(config.connections_max_idle_ms).ok(),
        receive_ms: ms(config.request_receive_timeout_ms),
        send_ms: ms(config.response_send_timeout_ms),
    }
}

fn limits(config: &Config) -> Limits {
    let count = |value: i32| usize::try_from(value).unwrap_or(0);
    let overrides = config.max_connections_per_ip_overrides.iter();
    Limits {
        total: count(config.max_connections),
        per_ip: count(config.max_connections_per_ip),
        per_ip_overrides: overrides
            .filter_map(|(host, limit)| Some((host.parse::<IpAddr>().ok()?, count(*limit))))
            .collect(),
    }
}
