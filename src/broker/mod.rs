//! The standalone data plane: topics, metadata, configs, produce, fetch and list offsets of a one-node cluster.
//!
//! Requests come in as kafka-protocol's structs and answers leave as such; decoding, encoding and the layouts of
//! versions are `wire`'s. Groups and committed offsets live elsewhere: this room only tells, before it answers,
//! which topics appeared, grew or went, and which group configs changed.

mod admin;
mod changes;
mod config_keys;
mod configs;
mod journal;
mod metadata;
mod partition;
mod topics;

use std::collections::BTreeMap;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use kafka_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceRequest, ProduceResponse,
};
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use changes::PARTITIONS_MAX;
use journal::Journal;
use partition::Partition;
use topics::{Refusal, Topic, Topics};

pub use config_keys::{ConfigKind, TopicConfigKey, topic_config_keys};
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
    /// How many files of topic data are kept open at most.
    pub open_files_max: usize,
    /// Unix milliseconds now; never goes back.
    pub clock: Clock,
}

/// Tells unix milliseconds.
pub type Clock = Arc<dyn Fn() -> i64 + Send + Sync>;

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
            open_files_max: 512,
            clock: Arc::new(|| 0),
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
}

/// What becomes of a produce request.
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
    topics: RwLock<Topics>,
    groups: RwLock<BTreeMap<String, BTreeMap<String, String>>>,
    changing: Mutex<Changing>,
    /// The producer ids reserved and not yet given: the next one and the end.
    producer_ids: tokio::sync::Mutex<std::ops::Range<i64>>,
    on_topics: OnTopics,
    on_group_configs: OnGroupConfigs,
}

/// What a change holds: one at a time.
struct Changing {
    journal: Journal,
    image: Arc<TopicsImage>,
    producer_ids_next: i64,
}

/// How many producer ids one write to the journal reserves.
const PRODUCER_IDS: i64 = 1000;

impl Broker {
    /// Opens the data plane: reads what is there and cuts what a crash left half written. Blocks.
    ///
    /// # Errors
    /// See [`Error`]: each says what to do.
    pub fn open(
        options: BrokerOptions,
        on_topics: OnTopics,
        on_group_configs: OnGroupConfigs,
    ) -> Result<Self, Error> {
        if !(1..=PARTITIONS_MAX).contains(&i64::from(options.num_partitions)) {
            return Err(Error::Options(format!(
                "num.partitions={} must be within 1 to {PARTITIONS_MAX}",
                options.num_partitions
            )));
        }
        let shared = Shared {
            topics: RwLock::default(),
            groups: RwLock::default(),
            changing: Mutex::new(Changing {
                journal: Journal::default(),
                image: Arc::default(),
                producer_ids_next: 0,
            }),
            producer_ids: tokio::sync::Mutex::new(0..0),
            on_topics,
            on_group_configs,
            options,
        };
        shared.found_offsets_topic();
        Ok(Self {
            shared: Arc::new(shared),
        })
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

    /// Makes everything durable and marks the folder as left in order, so that the next open need not check it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn close(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Produce 3–13.
    pub async fn produce(&self, request: ProduceRequest, version: i16) -> Produced {
        let _ = (request, version);
        Produced::Close
    }

    /// Fetch 4–18. Waits up to the request's `max_wait_ms` for its `min_bytes`.
    pub async fn fetch(&self, request: FetchRequest, version: i16) -> FetchResponse {
        let _ = (request, version);
        FetchResponse::default()
    }

    /// ListOffsets 1–11.
    pub async fn list_offsets(
        &self,
        request: ListOffsetsRequest,
        version: i16,
    ) -> ListOffsetsResponse {
        let _ = (request, version);
        ListOffsetsResponse::default()
    }

    /// OffsetForLeaderEpoch 2–4.
    pub fn offset_for_leader_epoch(
        &self,
        request: OffsetForLeaderEpochRequest,
    ) -> OffsetForLeaderEpochResponse {
        let _ = request;
        OffsetForLeaderEpochResponse::default()
    }

    /// Runs a change where it may block; it ends even if the caller goes away. `None`: it panicked.
    async fn change<R: Send + 'static>(
        &self,
        change: impl FnOnce() -> R + Send + 'static,
    ) -> Option<R> {
        tokio::task::spawn_blocking(change).await.ok()
    }

    async fn new_producer_id(&self) -> Result<i64, Refusal> {
        let mut reserved = self.shared.producer_ids.lock().await;
        if let Some(id) = reserved.next() {
            return Ok(id);
        }
        let shared = self.shared.clone();
        let reserve = move || shared.next_producer_ids(PRODUCER_IDS);
        let first = self.change(reserve).await.unwrap_or_else(|| {
            Err(kafka_protocol::error::ResponseError::UnknownServerError.into())
        })?;
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
        Arc::new(Partition::new(topic, index))
    }

    /// The group log's stand-in exists from the start, so that patterns match it.
    fn found_offsets_topic(&self) {
        let summary = TopicSummary {
            name: OFFSETS_TOPIC.into(),
            id: random_id(),
            partitions: self.options.offsets_topic_partitions,
            internal: true,
        };
        let topic = Arc::new(self.new_topic(summary.clone(), BTreeMap::new()));
        let mut changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut changing.image).put(summary);
        self.topics_mut().put(topic);
    }

    /// Lets go of a deleted topic's files.
    fn forget(&self, topic: &Topic) {
        let _ = topic;
    }

    /// Moves the start of a partition and gives it back, or the error code.
    fn delete_records(&self, topic: &Topic, partition: i32, offset: i64) -> Result<i64, i16> {
        let _ = (topic, partition, offset);
        Ok(0)
    }

    /// The folder's name, the bytes of its disk and those still free; −1 where nobody can tell.
    fn disk(&self) -> (String, i64, i64) {
        match &self.options.storage {
            Storage::Memory => ("memory".to_owned(), -1, -1),
            Storage::Dir(dir) => (dir.display().to_string(), -1, -1),
        }
    }
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
