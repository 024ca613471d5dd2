//! The cluster under test: connections to the brokers that hold the groups, the topic of the run, and the list of
//! what was made, so that it can be removed again. What is measured stands in the files beside this one.
#![expect(clippy::disallowed_methods, reason = "a command knows what time it is")]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kafka_protocol::ResponseError;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::leave_group_request::MemberIdentity;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiVersionsRequest, ConsumerGroupHeartbeatRequest, CreateTopicsRequest, DeleteGroupsRequest,
    DeleteTopicsRequest, FindCoordinatorRequest, GroupId, LeaveGroupRequest, MetadataRequest,
    MetadataResponse, TopicName,
};
use kafka_protocol::protocol::{Request, StrBytes};
use tokio::task::JoinSet;

use super::report::ServerSummary;
use super::{Error, LOADING, text};
use crate::client::{self, Client};

/// How long to wait before the same is asked again.
const RETRY: Duration = Duration::from_millis(50);
/// Groups in one request, and requests in flight, while things are found and removed.
const BATCH: usize = 100;
/// From which version on each request has these words.
const AUTO_CREATION_WORD: i16 = 4;
const BATCHED_COORDINATORS: i16 = 4;
const BATCHED_LEAVE: i16 = 3;
const TOPIC_STATES: i16 = 6;
const DEFAULT_REPLICATION: i16 = 4;

/// How a member leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Classic,
    Consumer,
}

/// What a run has made and not yet removed.
#[derive(Debug, Default)]
struct Made {
    topic: Option<TopicName>,
    /// By group: where its coordinator is, and its members.
    groups: BTreeMap<String, (String, Vec<(Protocol, StrBytes)>)>,
}

/// The cluster, seen from one of its servers.
#[derive(Debug)]
pub(super) struct Cluster {
    bootstrap: String,
    client: Client,
    patience: Duration,
    made: Mutex<Made>,
}

/// Something that lies with the coordinator at this address.
#[derive(Debug)]
pub(super) struct Placed<T> {
    pub address: String,
    pub what: T,
}

/// A connection and what is asked over it, one request at a time.
#[derive(Debug)]
pub(super) struct Lane<T> {
    pub client: Client,
    pub items: Vec<T>,
}

/// How often the same is asked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retry {
    what: &'static str,
    until: Instant,
}

impl Retry {
    /// Whether this answer holds. If not, some time has passed and it may be asked again.
    pub(super) async fn settled(&self, code: i16) -> Result<bool, Error> {
        match code {
            0 => Ok(true),
            code if LOADING.contains(&code) && Instant::now() < self.until => {
                tokio::time::sleep(RETRY).await;
                Ok(false)
            }
            code => Err(Error::refused(self.what, code)),
        }
    }
}

impl Cluster {
    pub(super) async fn connect(bootstrap: &str, patience: Duration) -> Result<Self, Error> {
        let client = dial(bootstrap, patience)
            .await
            .map_err(|source| Error::Unreachable {
                address: bootstrap.to_owned(),
                source,
            })?;
        Ok(Self {
            bootstrap: bootstrap.to_owned(),
            client,
            patience,
            made: Mutex::default(),
        })
    }

    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// A new connection to a broker of the cluster.
    pub(super) async fn dial(&self, address: &str) -> Result<Client, Error> {
        let told = |source| {
            let address = address.to_owned();
            if address == self.bootstrap {
                Error::Unreachable { address, source }
            } else {
                Error::Advertised { address, source }
            }
        };
        dial(address, self.patience).await.map_err(told)
    }

    /// Waits for an answer, at most as long as is reasonable.
    pub(super) async fn answer<T>(
        &self,
        what: &'static str,
        asked: impl Future<Output = Result<T, client::Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(self.patience, asked).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(source)) => Err(Error::Broken { what, source }),
            Err(_) => Err(Error::Silent {
                what,
                seconds: self.patience.as_secs(),
            }),
        }
    }

    /// To ask again while the answer is one of [`LOADING`]: a cluster that has just met its first group is not ready.
    pub(super) fn retry(&self, what: &'static str) -> Retry {
        Retry {
            what,
            until: Instant::now() + self.patience,
        }
    }

    async fn metadata(&self, topic: Option<&TopicName>) -> Result<MetadataResponse, Error> {
        let wanted =
            topic.map(|name| vec![MetadataRequestTopic::default().with_name(Some(name.clone()))]);
        let version = self.version::<MetadataRequest>("Metadata")?;
        // Without a topic: none. The oldest version has no word for that and lists all.
        let request = MetadataRequest::default()
            .with_topics(Some(wanted.unwrap_or_default()))
            .with_allow_auto_topic_creation(version < AUTO_CREATION_WORD);
        self.answer("Metadata", self.client.send_as(version, &request))
            .await
    }

    fn version<R: Request>(&self, what: &'static str) -> Result<i16, Error> {
        self.client
            .version::<R>()
            .map_err(|source| Error::Broken { what, source })
    }

    /// What the server says of itself.
    pub(super) async fn summary(&self) -> Result<ServerSummary, Error> {
        let version = self.version::<ApiVersionsRequest>("ApiVersions")?;
        let request = if version >= 3 {
            ApiVersionsRequest::default()
                .with_client_software_name(StrBytes::from_static_str("convoke"))
                .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")))
        } else {
            ApiVersionsRequest::default()
        };
        let versions = self
            .answer("ApiVersions", self.client.send_as(version, &request))
            .await?;
        let metadata = self.metadata(None).await?;
        let features = versions.finalized_features.iter();
        Ok(ServerSummary {
            bootstrap: self.bootstrap.clone(),
            cluster_id: metadata.cluster_id.map(|id| id.to_string()),
            brokers: metadata.brokers.len(),
            features: features
                .map(|feature| (feature.name.to_string(), feature.max_version_level))
                .collect(),
            apis: self.client.apis().count(),
            used: BTreeMap::new(),
        })
    }

    /// The newest common version of an API, for the report.
    pub(super) fn used<R: Request>(&self) -> Option<i16> {
        self.client.version::<R>().ok()
    }

    /// Makes the topic of the run, or takes the one that is named. Gives the number of partitions.
    pub(super) async fn topic(
        &self,
        name: &TopicName,
        make: bool,
        partitions: i32,
    ) -> Result<i32, Error> {
        if make {
            self.create(name, partitions).await?;
        }
        let begun = Instant::now();
        loop {
            let metadata = self.metadata(Some(name)).await?;
            let found = metadata.topics.first();
            let code = found.map_or(UNKNOWN_TOPIC, |topic| topic.error_code);
            let led = found.map_or(0, |topic| {
                let led = topic.partitions.iter().filter(|p| *p.leader_id >= 0);
                i32::try_from(led.count()).unwrap_or(i32::MAX)
            });
            match code {
                0 if led >= partitions => return Ok(led),
                // A cluster takes a moment to lead what was just made; what exists has its partitions.
                0 | UNKNOWN_TOPIC | NO_LEADER if make && begun.elapsed() < self.patience => {
                    tokio::time::sleep(RETRY).await;
                }
                0 => {
                    return Err(Error::TooFewPartitions {
                        topic: name.to_string(),
                        has: led,
                        wanted: partitions,
                    });
                }
                code => {
                    return Err(Error::NoTopic {
                        topic: name.to_string(),
                        code: text(code),
                    });
                }
            }
        }
    }

    async fn create(&self, name: &TopicName, partitions: i32) -> Result<(), Error> {
        let version = self.version::<CreateTopicsRequest>("CreateTopics")?;
        let replication = if version >= DEFAULT_REPLICATION {
            -1
        } else {
            1
        };
        let topic = CreatableTopic::default()
            .with_name(name.clone())
            .with_num_partitions(partitions)
            .with_replication_factor(replication);
        let request = CreateTopicsRequest::default()
            .with_topics(vec![topic])
            .with_timeout_ms(30_000);
        let refused = |code: i16, message: Option<StrBytes>| Error::TopicRefused {
            topic: name.to_string(),
            code: text(code),
            message: message.map(|m| format!(" ({m})")).unwrap_or_default(),
            partitions,
        };
        // Only the controller makes topics where brokers do not pass it on.
        let controller = self.controller().await?;
        let sent = controller.send_as(version, &request);
        let answer = self.answer("CreateTopics", sent).await?;
        match answer.topics.into_iter().next() {
            Some(topic) if topic.error_code == 0 => {
                self.lock().topic = Some(name.clone());
                Ok(())
            }
            Some(topic) => Err(refused(topic.error_code, topic.error_message)),
            None => Err(refused(-1, None)),
        }
    }

    async fn controller(&self) -> Result<Client, Error> {
        let metadata = self.metadata(None).await?;
        let mut brokers = metadata.brokers.iter();
        match brokers.find(|broker| broker.node_id == metadata.controller_id) {
            Some(broker) => self.dial(&format!("{}:{}", broker.host, broker.port)).await,
            None => Ok(self.client.clone()),
        }
    }

    /// Where the coordinators of these groups are, in the order of the groups.
    pub(super) async fn place(&self, groups: Vec<GroupId>) -> Result<Vec<Placed<GroupId>>, Error> {
        let version = self.version::<FindCoordinatorRequest>("FindCoordinator")?;
        let mut placed = Vec::with_capacity(groups.len());
        let size = if version >= BATCHED_COORDINATORS {
            BATCH
        } else {
            1
        };
        for groups in groups.chunks(size) {
            let retry = self.retry("FindCoordinator");
            let addresses = loop {
                let (code, addresses) = self.coordinators(version, groups).await?;
                if retry.settled(code).await? {
                    break addresses;
                }
            };
            let pairs = groups.iter().cloned().zip(addresses);
            placed.extend(pairs.map(|(what, address)| Placed { address, what }));
        }
        let mut made = self.lock();
        for group in &placed {
            let entry = (group.address.clone(), Vec::new());
            made.groups.insert(group.what.to_string(), entry);
        }
        Ok(placed)
    }

    async fn coordinators(
        &self,
        version: i16,
        groups: &[GroupId],
    ) -> Result<(i16, Vec<String>), Error> {
        let mut request = FindCoordinatorRequest::default();
        if version >= BATCHED_COORDINATORS {
            request.coordinator_keys = groups.iter().map(|group| group.0.clone()).collect();
        } else if let Some(group) = groups.first() {
            request.key = group.0.clone();
        }
        let sent = self.client.send_as(version, &request);
        let answer = self.answer("FindCoordinator", sent).await?;
        if version < BATCHED_COORDINATORS {
            let address = format!("{}:{}", answer.host, answer.port);
            return Ok((answer.error_code, vec![address]));
        }
        let wrong = answer.coordinators.iter().find(|c| c.error_code != 0);
        let code = wrong.map_or(answer.error_code, |c| c.error_code);
        let mut found = BTreeMap::new();
        for c in answer.coordinators {
            found.insert(c.key.to_string(), format!("{}:{}", c.host, c.port));
        }
        let addresses: Option<Vec<_>> = groups.iter().map(|g| found.remove(g.as_str())).collect();
        match addresses {
            Some(addresses) => Ok((code, addresses)),
            None if code != 0 => Ok((code, Vec::new())),
            None => Err(Error::Wrong("FindCoordinator leaves out a group".into())),
        }
    }

    /// Opens the connections of a phase, shared out by how much lies with each broker, and deals what is asked among
    /// them: `depth` lanes each, and none without work.
    pub(super) async fn lanes<T>(
        &self,
        items: Vec<Placed<T>>,
        connections: usize,
        depth: usize,
    ) -> Result<Vec<Lane<T>>, Error> {
        let all = items.len().max(1);
        let mut by_address: BTreeMap<String, Vec<T>> = BTreeMap::new();
        for item in items {
            by_address.entry(item.address).or_default().push(item.what);
        }
        let mut lanes = Vec::new();
        for (address, items) in by_address {
            let share = (connections * items.len()).div_ceil(all).max(1);
            let share = share.min(items.len());
            let mut clients = Vec::with_capacity(share);
            for _ in 0..share {
                clients.push(self.dial(&address).await?);
            }
            let count = (share * depth).min(items.len());
            let first = lanes.len();
            lanes.extend((0..count).map(|lane| Lane {
                client: clients[lane % share].clone(),
                items: Vec::new(),
            }));
            for (at, item) in items.into_iter().enumerate() {
                lanes[first + at % count].items.push(item);
            }
        }
        Ok(lanes)
    }

    /// Remembers a member, so that it leaves whatever happens.
    pub(super) fn joined(&self, group: &GroupId, protocol: Protocol, member_id: &StrBytes) {
        if let Some((_, members)) = self.lock().groups.get_mut(group.as_str()) {
            members.push((protocol, member_id.clone()));
        }
    }

    pub(super) fn left(&self, group: &GroupId, member_id: &StrBytes) {
        if let Some((_, members)) = self.lock().groups.get_mut(group.as_str()) {
            members.retain(|(_, id)| id != member_id);
        }
    }

    /// Removes the groups that the run has made. What cannot be removed is told.
    pub(super) async fn remove_groups(&self) -> Vec<String> {
        let groups = std::mem::take(&mut self.lock().groups);
        let mut by_address: BTreeMap<String, Vec<(GroupId, Vec<_>)>> = BTreeMap::new();
        for (group, (address, members)) in groups {
            let group = GroupId(StrBytes::from_string(group));
            by_address
                .entry(address)
                .or_default()
                .push((group, members));
        }
        let mut notes = Vec::new();
        for (address, groups) in by_address {
            if let Err(error) = self.remove_groups_at(&address, &groups).await {
                notes.push(format!("groups at {address} may be left behind: {error}"));
            }
        }
        notes
    }

    async fn remove_groups_at(
        &self,
        address: &str,
        groups: &[(GroupId, Vec<(Protocol, StrBytes)>)],
    ) -> Result<(), Error> {
        let client = self.dial(address).await?;
        for some in groups.chunks(BATCH) {
            let mut leaving = JoinSet::new();
            for (group, members) in some {
                let (client, group, members) = (client.clone(), group.clone(), members.clone());
                leaving.spawn(async move { leave(&client, &group, &members).await });
            }
            while let Some(left) = leaving.join_next().await {
                let left = left.unwrap_or(Err(client::Error::Closed));
                self.answer("LeaveGroup", async { left }).await?;
            }
            let names = some.iter().map(|(group, _)| group.clone()).collect();
            let request = DeleteGroupsRequest::default().with_groups_names(names);
            let answer = self.answer("DeleteGroups", client.send(&request)).await?;
            let wrong = answer.results.iter().map(|result| result.error_code);
            if let Some(code) = wrong.into_iter().find(|code| ![0, NO_GROUP].contains(code)) {
                return Err(Error::refused("DeleteGroups", code));
            }
        }
        Ok(())
    }

    /// Removes the topic, if the run has made one.
    pub(super) async fn remove_topic(&self) -> Vec<String> {
        let Some(name) = self.lock().topic.take() else {
            return Vec::new();
        };
        match self.delete(&name).await {
            Ok(()) => Vec::new(),
            Err(error) => vec![format!("topic {} may be left behind: {error}", *name)],
        }
    }

    async fn delete(&self, name: &TopicName) -> Result<(), Error> {
        let version = self.version::<DeleteTopicsRequest>("DeleteTopics")?;
        let mut request = DeleteTopicsRequest::default().with_timeout_ms(30_000);
        if version >= TOPIC_STATES {
            request.topics = vec![DeleteTopicState::default().with_name(Some(name.clone()))];
        } else {
            request.topic_names = vec![name.clone()];
        }
        let controller = self.controller().await?;
        let sent = controller.send_as(version, &request);
        let answer = self.answer("DeleteTopics", sent).await?;
        match answer.responses.first().map_or(0, |r| r.error_code) {
            0 => Ok(()),
            code => Err(Error::refused("DeleteTopics", code)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Made> {
        // Nothing that holds the lock can panic half-way.
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const UNKNOWN_TOPIC: i16 = ResponseError::UnknownTopicOrPartition.code();
const NO_LEADER: i16 = ResponseError::LeaderNotAvailable.code();
const NO_GROUP: i16 = ResponseError::GroupIdNotFound.code();

async fn dial(address: &str, patience: Duration) -> Result<Client, client::Error> {
    let options = client::Options {
        client_id: "convoke-bench".to_owned(),
        ..client::Options::default()
    };
    let late = || std::io::Error::from(std::io::ErrorKind::TimedOut);
    match tokio::time::timeout(patience, Client::connect_with(address, options)).await {
        Ok(connected) => connected,
        Err(_) => Err(late().into()),
    }
}

/// All members of a group leave. Whether they were still there does not matter.
async fn leave(
    client: &Client,
    group: &GroupId,
    members: &[(Protocol, StrBytes)],
) -> Result<(), client::Error> {
    let version = client.version::<LeaveGroupRequest>();
    let mut classic = Vec::new();
    for (protocol, member_id) in members {
        if *protocol == Protocol::Consumer {
            let request = ConsumerGroupHeartbeatRequest::default()
                .with_group_id(group.clone())
                .with_member_id(member_id.clone())
                .with_member_epoch(-1);
            client.send(&request).await?;
        } else if matches!(version, Ok(version) if version < BATCHED_LEAVE) {
            let request = LeaveGroupRequest::default()
                .with_group_id(group.clone())
                .with_member_id(member_id.clone());
            client.send(&request).await?;
        } else {
            classic.push(MemberIdentity::default().with_member_id(member_id.clone()));
        }
    }
    if !classic.is_empty() {
        let request = LeaveGroupRequest::default()
            .with_group_id(group.clone())
            .with_members(classic);
        client.send(&request).await?;
    }
    Ok(())
}
