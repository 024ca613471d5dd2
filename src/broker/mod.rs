//! The standalone data plane: topics, metadata, configs, produce, fetch and list offsets of a one-node cluster.
//!
//! Requests come in as kafka-protocol's structs and answers leave as such; decoding, encoding and the layouts of
//! versions are `wire`'s. Groups and committed offsets live elsewhere: this room only tells, before it answers,
//! which topics appeared, grew or went, and which group configs changed.
//!
//! With the feature `sim` alone there is what changes topics and tells of them, which needs no runtime; records are
//! neither taken nor given.

#![cfg_attr(
    not(feature = "server"),
    allow(
        dead_code,
        reason = "records have no use where nobody takes or gives them"
    )
)]

mod admin;
mod batch;
mod changes;
mod config_keys;
mod configs;
#[cfg(feature = "server")]
mod fetch;
mod files;
mod journal;
#[cfg(feature = "server")]
mod list_offsets;
#[cfg(feature = "server")]
mod look;
mod memory;
mod metadata;
mod partition;
#[cfg(feature = "server")]
mod produce;
mod producers;
#[cfg(feature = "server")]
mod records;
mod segment;
mod topics;
#[cfg(feature = "server")]
mod upkeep;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kafka_protocol::error::ResponseError;
#[cfg(feature = "server")]
use kafka_protocol::messages::ProduceResponse;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::log::fs::{Fs, RealFs};

use changes::PARTITIONS_MAX;
use files::Files;
use journal::{Entry, Journal, Known};
use memory::MemoryFs;
use partition::Partition;
use topics::{Refusal, Topic, Topics};

pub use config_keys::{ConfigKind, TopicConfigKey, topic_config_keys};
#[cfg(feature = "server")]
pub use fetch::Lender;
pub use topics::{TopicSummary, TopicsChange, TopicsImage};

/// The name of the topic that stands for the group log.
pub const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// Where the data plane keeps its files.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Storage {
    /// Nowhere: everything is gone when the broker is dropped.
    Memory,
    /// In this folder, which belongs to the broker alone.
    Dir(PathBuf),
    /// In this folder of another file system: how tests put faults in the way.
    Fs(Arc<dyn Fs>, PathBuf),
}

/// The address a client used, as it must be told to others: the advertised one of the listener in use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listener {
    /// Host name or address to dial.
    pub host: StrBytes,
    /// Port to dial.
    pub port: i32,
}

/// One of the broker's own settings, as DescribeConfigs shows it. They are read-only.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// Kafka's property name.
    pub name: String,
    /// The value in force; `None` is null.
    pub value: Option<String>,
    /// Whether the value is the built-in one.
    pub is_default: bool,
    /// The value's type.
    pub kind: ConfigKind,
    /// Whether the value must not be shown.
    pub sensitive: bool,
    /// What it does.
    pub doc: String,
}

/// A config that may be set per group (resource type GROUP).
#[derive(Clone, Debug)]
pub struct GroupConfigKey {
    /// The name, for example `consumer.session.timeout.ms`.
    pub name: String,
    /// The value's type; `Int` and `Long` are checked against the bounds.
    pub kind: ConfigKind,
    /// The value of a group without an override.
    pub default: String,
    /// The same where the broker's file sets nothing either.
    pub built_in: String,
    /// The smallest number allowed.
    pub min: i64,
    /// The largest number allowed.
    pub max: i64,
    /// The broker's setting behind the default, shown as a synonym.
    pub broker_key: Option<String>,
    /// Another group key whose value this one must exceed.
    pub exceeds: Option<String>,
    /// What it does.
    pub doc: String,
}

/// What the broker is told at start. Every field has a default that suits a test.
#[derive(Clone)]
pub struct BrokerOptions {
    /// Where the files are.
    pub storage: Storage,
    /// `node.id`.
    pub node_id: i32,
    /// The cluster's id, durable elsewhere.
    pub cluster_id: String,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// `offsets.topic.num.partitions`; fixed once the folder exists.
    pub offsets_topic_partitions: i32,
    /// `num.partitions`: of topics created without a number.
    pub num_partitions: i32,
    /// `auto.create.topics.enable`.
    pub auto_create_topics: bool,
    /// Topic configs whose default differs from Kafka's, by the *topic's* key: `log.retention.ms` of a configuration
    /// file is `retention.ms` here. See [`topic_config_keys`] for keys and their broker names.
    pub topic_defaults: BTreeMap<String, String>,
    /// What DescribeConfigs tells about the broker.
    pub broker_configs: Vec<BrokerConfig>,
    /// Which configs groups take.
    pub group_configs: Vec<GroupConfigKey>,
    /// `log.retention.check.interval.ms`.
    pub retention_check_interval_ms: u64,
    /// `producer.id.expiration.ms`: a producer silent for longer is forgotten.
    pub producer_id_expiration_ms: i64,
    /// `fetch.max.bytes`: no fetch response carries more, one batch excepted.
    pub fetch_bytes_max: usize,
    /// `delete.topic.enable`.
    pub delete_topics: bool,
    /// `max.request.partition.size.limit`: partitions in one DescribeTopicPartitions response.
    pub described_partitions_max: i32,
    /// How many files of topic data are kept open at most.
    pub open_files_max: usize,
    /// Unix milliseconds now; never goes back.
    pub clock: Clock,
    /// Where the ids of new topics come from: never nil, and no id twice.
    pub topic_ids: TopicIds,
    /// Everything is done where it is called, on no thread but the caller's, and nothing without being asked: for
    /// whoever has a clock and an order of his own, and needs no runtime. Produce, Fetch and ListOffsets need one all
    /// the same.
    pub in_place: bool,
}

/// Tells unix milliseconds.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

/// Gives another id at every call.
pub type TopicIds = Arc<dyn Fn() -> Uuid + Send + Sync>;

impl Default for BrokerOptions {
    fn default() -> Self {
        Self {
            storage: Storage::Memory,
            node_id: 1,
            cluster_id: "convoke".to_owned(),
            rack: None,
            offsets_topic_partitions: 50,
            num_partitions: 1,
            auto_create_topics: true,
            topic_defaults: BTreeMap::new(),
            broker_configs: Vec::new(),
            group_configs: Vec::new(),
            retention_check_interval_ms: 300_000,
            producer_id_expiration_ms: 86_400_000,
            fetch_bytes_max: 57_671_680,
            delete_topics: true,
            described_partitions_max: 2000,
            open_files_max: 512,
            clock: Arc::new(|| 0),
            topic_ids: Arc::new(random_id),
            in_place: false,
        }
    }
}

impl fmt::Debug for BrokerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerOptions")
            .field("storage", &self.storage)
            .field("node_id", &self.node_id)
            .field("cluster_id", &self.cluster_id)
            .finish_non_exhaustive()
    }
}

/// The group configs of one group, as they are after a change. Empty: all defaults again.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct GroupConfigsChange {
    /// The group, which need not exist.
    pub group: String,
    /// What is set for it, checked.
    pub configs: BTreeMap<String, String>,
}

/// Told of topics that changed, before the reply leaves. It must not call the broker.
pub type OnTopics = Box<dyn Fn(TopicsChange) + Send + Sync>;
/// Told of group configs that changed, before the reply leaves. It must not call the broker.
pub type OnGroupConfigs = Box<dyn Fn(GroupConfigsChange) + Send + Sync>;

/// Why the data plane could not be opened or closed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that cannot work.
    #[error("{0}")]
    Options(String),
    /// The system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Bytes that were on the disk are not what was written.
    #[error(
        "{} is damaged at byte {at}: {what}; restore the file from a backup, or move its folder away to go on without that data",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where the damage begins.
        at: u64,
        /// What was found.
        what: &'static str,
    },
    /// The files were written by a newer version.
    #[error("{} has format {found}, this version knows up to {known}; start the version that wrote it, or a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The folder was created with another number of partitions of the group log.
    #[error(
        "the data was created with offsets.topic.num.partitions={stored}, but {asked} is configured; set it to {stored}, or choose another folder"
    )]
    OffsetsPartitions {
        /// What the folder has.
        stored: i32,
        /// What was asked for.
        asked: i32,
    },
}

impl Error {
    fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source,
        }
    }

    fn damaged(path: &Path, at: u64, what: &'static str) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            at,
            what,
        }
    }
}

/// What becomes of a produce request.
#[cfg(feature = "server")]
#[derive(Clone, Debug, PartialEq)]
pub enum Produced {
    /// The answer.
    Reply(ProduceResponse),
    /// acks=0: the client expects no answer.
    Silent,
    /// acks=0 and something was refused: the connection closes, the only way to tell.
    Close,
}

/// How far a partition reaches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The first offset that can be read.
    pub log_start: i64,
    /// The offset behind the last record: the high watermark.
    pub end: i64,
    /// The end of what `read_committed` sees; equal to `end` without transactions.
    pub last_stable: i64,
}

/// What went through the data plane since it was opened. Only ever grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of batches that Produce appended.
    pub produced_bytes: u64,
    /// Records in them.
    pub produced_records: u64,
    /// Bytes of batches that Fetch handed out.
    pub fetched_bytes: u64,
}

#[derive(Default)]
struct Counted {
    produced_bytes: AtomicU64,
    produced_records: AtomicU64,
    fetched_bytes: AtomicU64,
}

/// The epoch of every partition's leader, who never changes.
const LEADER_EPOCH: i32 = 0;

/// The data plane. Cheap to clone; the files are let go when the last clone is dropped.
#[derive(Clone)]
pub struct Broker {
    shared: Arc<Shared>,
}

/// What all requests share.
struct Shared {
    options: BrokerOptions,
    files: Arc<Files>,
    topics: RwLock<Topics>,
    groups: RwLock<BTreeMap<String, BTreeMap<String, String>>>,
    changing: Mutex<Changing>,
    /// The producer ids reserved and not yet given: the next one and the end.
    producer_ids: tokio::sync::Mutex<std::ops::Range<i64>>,
    on_topics: OnTopics,
    on_group_configs: OnGroupConfigs,
    counted: Counted,
}

/// What a change holds: one at a time.
struct Changing {
    journal: Journal,
    image: Arc<TopicsImage>,
    producer_ids_next: i64,
}

/// How many threads open partitions at start: enough to keep a disk busy.
const LOADERS: usize = 4;

/// How many producer ids one write to the journal reserves.
const PRODUCER_IDS: i64 = 1000;

impl Broker {
    /// Opens the data plane: reads what is there and cuts what a crash left half written. Blocks. Called within a tokio
    /// runtime it also starts the upkeep there: retention, `flush.ms`, forgetting silent producers.
    ///
    /// # Errors
    /// See [`Error`]: each says what to do.
    pub fn open(
        options: BrokerOptions,
        on_topics: OnTopics,
        on_group_configs: OnGroupConfigs,
    ) -> Result<Self, Error> {
        check_options(&options)?;
        let (fs, dir) = match &options.storage {
            Storage::Memory => (
                Arc::new(MemoryFs::default()) as Arc<dyn Fs>,
                PathBuf::from("/"),
            ),
            Storage::Dir(dir) => (RealFs::shared(), dir.clone()),
            Storage::Fs(fs, dir) => (Arc::clone(fs), dir.clone()),
        };
        let mut journal = Journal::open(Arc::clone(&fs), &dir)?;
        let offsets = journal
            .facts()
            .topics
            .values()
            .find(|topic| topic.internal && topic.name == OFFSETS_TOPIC);
        match (
            offsets.map(|topic| topic.partitions),
            options.offsets_topic_partitions,
        ) {
            (Some(stored), asked) if stored != asked => {
                return Err(Error::OffsetsPartitions { stored, asked });
            }
            (Some(_), _) => {}
            // The group log's stand-in exists from the start, so that patterns match it.
            (None, partitions) => {
                let name = OFFSETS_TOPIC.into();
                let summary = TopicSummary {
                    name,
                    id: (options.topic_ids)(),
                    partitions,
                    internal: true,
                };
                journal
                    .write(&[Entry::topic(&summary, &BTreeMap::new())])
                    .map_err(|refusal| {
                        Error::io(
                            "write the topic journal in",
                            &dir,
                            io::Error::other(refusal.message.unwrap_or_default()),
                        )
                    })?;
            }
        }
        let known: Vec<(Uuid, Known)> = journal
            .facts()
            .topics
            .iter()
            .map(|(id, topic)| (*id, topic.clone()))
            .collect();
        let groups = journal.facts().groups.clone();
        let producer_ids_next = journal.facts().producer_ids_next;
        let shared = Shared {
            files: Arc::new(Files::new(fs, dir, options.open_files_max)),
            topics: RwLock::default(),
            groups: RwLock::new(groups),
            changing: Mutex::new(Changing {
                journal,
                image: Arc::default(),
                producer_ids_next,
            }),
            producer_ids: tokio::sync::Mutex::new(0..0),
            on_topics,
            on_group_configs,
            counted: Counted::default(),
            options,
        };
        shared.load(known)?;
        let shared = Arc::new(shared);
        #[cfg(feature = "server")]
        if !shared.options.in_place {
            upkeep::start(&shared);
        }
        Ok(Self { shared })
    }

    /// All topics now, the internal one included.
    pub fn topics(&self) -> Arc<TopicsImage> {
        Arc::clone(
            &self
                .shared
                .changing
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .image,
        )
    }

    /// What is set per group now.
    pub fn group_configs(&self) -> BTreeMap<String, BTreeMap<String, String>> {
        self.shared.groups().clone()
    }

    /// What went through since the start.
    pub fn traffic(&self) -> Traffic {
        let counted = &self.shared.counted;
        Traffic {
            produced_bytes: counted.produced_bytes.load(Ordering::Relaxed),
            produced_records: counted.produced_records.load(Ordering::Relaxed),
            fetched_bytes: counted.fetched_bytes.load(Ordering::Relaxed),
        }
    }

    /// Bytes that all topics take.
    pub fn data_bytes(&self) -> u64 {
        let topics = self.shared.topics();
        let partitions = topics.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|partition| partition.size_bytes()).sum()
    }

    /// How far a partition reaches; `None` if there is no such partition.
    pub fn bounds(&self, topic: &str, partition: i32) -> Option<Bounds> {
        Some(
            self.shared
                .topics()
                .get(topic)?
                .partition(partition)?
                .bounds(),
        )
    }

    /// Makes everything durable and notes how far each partition is, so that the next open reads little. Appends that come
    /// later are kept too, but the next open must read them.
    ///
    /// # Errors
    /// [`Error::Io`] with the first partition that failed; the others are tried all the same.
    pub async fn close(&self) -> Result<(), Error> {
        let shared = Arc::clone(&self.shared);
        self.change(move || shared.close()).await.unwrap_or(Ok(()))
    }

    /// Runs a change where it may block; it ends even if the caller goes away. `None`: it panicked.
    async fn change<R: Send + 'static>(
        &self,
        change: impl FnOnce() -> R + Send + 'static,
    ) -> Option<R> {
        #[cfg(feature = "server")]
        if !self.shared.options.in_place {
            return tokio::task::spawn_blocking(change).await.ok();
        }
        Some(change())
    }

    async fn new_producer_id(&self) -> Result<i64, Refusal> {
        let mut reserved = self.shared.producer_ids.lock().await;
        if let Some(id) = reserved.next() {
            return Ok(id);
        }
        let shared = self.shared.clone();
        let reserve = move || shared.next_producer_ids(PRODUCER_IDS);
        let first = self
            .change(reserve)
            .await
            .unwrap_or_else(|| Err(ResponseError::UnknownServerError.into()))?;
        *reserved = first + 1..first + PRODUCER_IDS;
        Ok(first)
    }
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn topics(&self) -> RwLockReadGuard<'_, Topics> {
        self.topics.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn topics_mut(&self) -> RwLockWriteGuard<'_, Topics> {
        self.topics.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn groups(&self) -> RwLockReadGuard<'_, BTreeMap<String, BTreeMap<String, String>>> {
        self.groups.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn new_partition(&self, topic: Uuid, index: i32) -> Arc<Partition> {
        Arc::new(Partition::new(Arc::clone(&self.files), topic, index))
    }

    /// Opens the partitions of all known topics, a few at a time, and removes what a deletion left behind.
    fn load(&self, known: Vec<(Uuid, Known)>) -> Result<(), Error> {
        self.sweep(&known)?;
        let now_ms = (self.options.clock)();
        let mut starts = BTreeMap::new();
        let mut topics = Vec::new();
        for (id, topic) in known {
            let Known {
                name,
                partitions,
                internal,
                configs,
                ..
            } = topic;
            let summary = TopicSummary {
                name: name.into(),
                id,
                partitions,
                internal,
            };
            starts.insert(id, topic.starts);
            topics.push(self.new_topic(summary, configs));
        }
        let all: Vec<(Uuid, i32, &Arc<Partition>)> = topics
            .iter()
            .filter(|topic| !topic.summary.internal)
            .flat_map(|topic| {
                topic
                    .partitions
                    .iter()
                    .zip(0..)
                    .map(|(partition, index)| (topic.id(), index, partition))
            })
            .collect();
        let next = AtomicUsize::new(0);
        let open_some = || {
            while let Some((id, index, partition)) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                let start = starts.get(id).and_then(|starts| starts.get(index)).copied();
                partition.load(start.unwrap_or(0), now_ms)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let loaders = if self.options.in_place { 1 } else { LOADERS };
            let helpers: Vec<_> = (1..loaders.min(all.len()))
                .map(|_| scope.spawn(open_some))
                .collect();
            let own = open_some();
            // A loader that panicked met a bug; the scope passes it on.
            helpers
                .into_iter()
                .filter_map(|helper| helper.join().ok())
                .fold(own, Result::and)
        })?;
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let image = Arc::make_mut(&mut changing.image);
        let mut map = self.topics_mut();
        for topic in topics {
            image.put(topic.summary.clone());
            map.put(Arc::new(topic));
        }
        Ok(())
    }

    /// Removes the folders of topics that are gone: a crash came between the deletion and this.
    fn sweep(&self, known: &[(Uuid, Known)]) -> Result<(), Error> {
        let dir = self.files.dir();
        let fs = self.files.fs();
        let names = fs.list(dir).map_err(|e| Error::io("list", dir, e))?;
        let known: hashbrown::HashSet<Uuid> = known.iter().map(|(id, _)| *id).collect();
        for name in names {
            if name.parse().is_ok_and(|id: Uuid| !known.contains(&id)) {
                let path = dir.join(&name);
                fs.remove_dir_all(&path)
                    .map_err(|e| Error::io("remove", &path, e))?;
            }
        }
        Ok(())
    }

    /// Lets go of a deleted topic's files.
    fn forget(&self, topic: &Topic) {
        topic
            .partitions
            .iter()
            .for_each(|partition| partition.delete());
        let dir = self.files.topic_dir(topic.id());
        match self.files.fs().remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(folder = %dir.display(), %error, "cannot remove a deleted topic's files; the next start tries again");
            }
            _ => {}
        }
    }

    fn close(&self) -> Result<(), Error> {
        let topics: Vec<Arc<Topic>> = self.topics().iter().cloned().collect();
        let mut first = Ok(());
        for topic in topics {
            for partition in &topic.partitions {
                if let Err(error) = partition.close() {
                    let failed = Err(Error::io("sync", &self.files.topic_dir(topic.id()), error));
                    first = first.and(failed);
                }
            }
        }
        first
    }

    /// The folder's name, the bytes of its disk and those still free; −1 where nobody can tell.
    fn disk(&self) -> (String, i64, i64) {
        let Storage::Dir(dir) = &self.options.storage else {
            return ("memory".to_owned(), -1, -1);
        };
        let name = dir.display().to_string();
        match rustix::fs::statvfs(dir) {
            Ok(stat) => {
                let bytes = |blocks: u64| {
                    i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX)
                };
                (name, bytes(stat.f_blocks), bytes(stat.f_bavail))
            }
            Err(_) => (name, -1, -1),
        }
    }
}

fn check_options(options: &BrokerOptions) -> Result<(), Error> {
    for (name, value) in [
        ("num.partitions", options.num_partitions),
        (
            "offsets.topic.num.partitions",
            options.offsets_topic_partitions,
        ),
    ] {
        if !(1..=PARTITIONS_MAX).contains(&i64::from(value)) {
            return Err(Error::Options(format!(
                "{name}={value} must be within 1 to {PARTITIONS_MAX}"
            )));
        }
    }
    for (name, value) in &options.topic_defaults {
        let key = config_keys::find(name)
            .ok_or_else(|| Error::Options(format!("{name} is no topic config")))?;
        key.check(value).map_err(Error::Options)?;
    }
    Ok(())
}

/// A version 4 UUID, never nil, whose base64 form does not begin with `-` (Kafka's tools would take it for an option).
fn random_id() -> Uuid {
    loop {
        // The standard library seeds each of these with randomness of the operating system.
        let word = || std::hash::RandomState::new().build_hasher().finish();
        let id = uuid::Builder::from_random_bytes(
            (u128::from(word()) << 64 | u128::from(word())).to_be_bytes(),
        )
        .into_uuid();
        if id.as_bytes()[0] >> 2 != 62 {
            return id;
        }
    }
}
