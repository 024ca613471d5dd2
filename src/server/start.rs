//! The order in which a server comes up: settings, data folder, sockets, topics, shards, clients.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use super::budget::{self, Budget};
use super::chronicle::Chronicle;
use super::clock::Clock;
use super::descriptors::Descriptors;
use super::gate::Gate;
use super::housekeeping::Housekeeper;
use super::knobs;
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
use crate::broker::{self, Broker};
use crate::config::Config;
use crate::group::GroupConfig;
use crate::log::Identity;
use crate::log::fs::Fs;

/// Differs from call to call and from start to start, so that no member id is handed out twice.
pub(crate) fn seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Starts a server whose group log lies in this file system.
pub(crate) async fn start(config: Config, fs: Arc<dyn Fs>) -> Result<Server, Error> {
    config.check()?;
    let endpoints = config.endpoints()?;
    let clock = Arc::new(Clock::start());
    let metrics = Arc::new(Metrics::new());
    let shard_count = u16::try_from(config.offsets_topic_num_partitions).unwrap_or(50);
    let opening = Opening::open(&config, fs, shard_count, &metrics).await?;
    let backlog = u32::try_from(config.socket_listen_backlog_size).unwrap_or(128);
    let listening = listen::bind_all(&endpoints, backlog).await?;

    let (mailboxes, mail): (Vec<_>, Vec<_>) = (0..shard_count).map(|_| Mailbox::new()).unzip();
    let mailboxes: Arc<[Mailbox]> = mailboxes.into();
    let announcer = Arc::new(Announcer::new(mailboxes.clone()));
    let descriptors = Descriptors::of_process(broker::BrokerOptions::default().open_files_max);
    let broker = open_broker(&config, &opening, &clock, &announcer, &descriptors).await?;
    announcer.begin(&broker.topics());
    for (group_id, configs) in broker.group_configs() {
        announcer.configure(&group_id, knobs::overrides(&configs));
    }

    let readiness = Arc::new(Readiness::new(shard_count));
    let (chronicle, chronicler) = chronicle(&config, &opening).unzip();
    let group_config = knobs::group(&config);
    let mut shards = Vec::with_capacity(mail.len());
    let mut waiting = Vec::with_capacity(mail.len());
    for (partition, mail) in (0..shard_count).zip(mail) {
        let (sender, loaded) = oneshot::channel();
        waiting.push(Waiting { partition, sender });
        let setup = Setup {
            partition,
            config: group_config.clone(),
            topics: announcer.newest(),
            patience_ms: i64::from(config.offsets_commit_timeout_ms),
            clock: clock.clone(),
            readiness: readiness.clone(),
            metrics: metrics.clone(),
            chronicle: chronicle.clone(),
        };
        shards.push(tokio::spawn(Shard::new(setup, mail, loaded).run()));
    }
    drop(chronicle);
    let identity = opening.identity().clone();
    let store = Store::default();
    let gate = Gate::new(
        clock.clone(),
        knobs::patience(&config),
        knobs::limits(&config, &descriptors),
    );
    let house = house(
        &config,
        &identity,
        gate,
        mailboxes,
        broker,
        &metrics,
        &readiness,
        &group_config,
    );
    let log_watch = load::begin(
        opening,
        waiting,
        group_config,
        announcer.newest(),
        &house,
        &store,
        chronicler.is_some(),
    );
    let addresses = listening.iter().map(address).collect();
    let housekeeper = Housekeeper::new(house.clone(), store.clone());
    let stop_accepting = watch::Sender::new(false);
    let mut tasks = vec![
        log_watch,
        tokio::spawn(house.gate.clone().watch()),
        tokio::spawn(housekeeper.clone().run()),
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
        housekeeper,
        addresses,
        grace: Duration::from_millis(u64::try_from(config.shutdown_grace_ms).unwrap_or(0)),
        stop_accepting,
        tasks,
        shards,
        store,
        chronicle: chronicler,
    })
}

/// The journal on disk, if there is to be one.
fn chronicle(config: &Config, opening: &Opening) -> Option<(Chronicle, JoinHandle<()>)> {
    let wanted = config.journal_enable && config.journal_durable;
    let folder = opening.folder().filter(|_| wanted)?;
    let bytes_max = u64::try_from(config.journal_file_max_bytes).unwrap_or(u64::MAX);
    Some(Chronicle::open(folder, bytes_max))
}

#[expect(
    clippy::too_many_arguments,
    reason = "what all connections share, put together once"
)]
fn house(
    config: &Config,
    identity: &Identity,
    gate: Arc<Gate>,
    shards: Arc<[Mailbox]>,
    broker: Broker,
    metrics: &Arc<Metrics>,
    readiness: &Arc<Readiness>,
    groups: &GroupConfig,
) -> Arc<House> {
    // Negative: no limit.
    let limit = |bytes: i64| usize::try_from(bytes).unwrap_or(usize::MAX);
    let requests = limit(config.queued_max_request_bytes);
    let replies = limit(config.queued_max_reply_bytes);
    let replies = Budget::new(replies, budget::FREE_REPLY_BYTES);
    Arc::new(House {
        gate,
        budget: Budget::new(requests, budget::FREE_BYTES),
        replies: replies.clone(),
        group_memory: groups.memory.clone(),
        group_caps: groups.caps.clone(),
        route: Arc::new(Route {
            shards,
            broker,
            cluster_id: identity.cluster_id.as_str().into(),
            node_id: identity.node_id,
            replies,
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
    descriptors: &Descriptors,
) -> Result<Broker, Error> {
    let told = clock.clone();
    let mut options = knobs::broker(
        config,
        opening.identity(),
        opening.topics_dir(),
        Arc::new(move || told.now().0),
    );
    options.open_files_max = descriptors.topic_files;
    let (announcer, configurer) = (announcer.clone(), announcer.clone());
    let opened = tokio::task::spawn_blocking(move || {
        Broker::open(
            options,
            Box::new(move |change: broker::TopicsChange| announcer.announce(&change)),
            Box::new(move |change: broker::GroupConfigsChange| {
                configurer.configure(&change.group, knobs::overrides(&change.configs));
            }),
        )
    });
    match opened.await {
        Ok(broker) => Ok(broker?),
        Err(panicked) => Err(Error::Ended(panicked.to_string())),
    }
}
