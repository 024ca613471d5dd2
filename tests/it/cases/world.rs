//! The server that a case runs against: one of ours inside the test, or the one that `CONVOKE_TEST_BOOTSTRAP` names.
//!
//! With that variable set, every case that the named server can play runs against it; so real Kafka judges the cases.
//! The server must have the settings of [`PLAIN`], and those of `CONVOKE_TEST_SETTINGS` (`key=value,…`) if that is
//! set: then only the cases that ask for exactly these run. `CONVOKE_TEST_RESTART` is a command that kills and
//! restarts it, for the cases that need that (run with `--test-threads=1`).

use std::fmt::Debug;
use std::future::Future;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use convoke::Server;
use convoke::client::{Client, Options};
use convoke::config::{Config, Loader};
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::list_groups_response::ListedGroup;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreateTopicsRequest, DeleteTopicsRequest, ListGroupsRequest, MetadataRequest, TopicName,
};
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use uuid::Uuid;

use super::disk::{Disk, Switched};
use super::group::Group;
use super::words::{ErrorCode, Outcome, s};

/// What every server of these tests is set to, beyond its defaults.
pub(crate) const PLAIN: [(&str, &str); 4] = [
    ("group.initial.rebalance.delay.ms", "0"),
    ("group.min.session.timeout.ms", "10"),
    ("group.consumer.assignment.interval.ms", "0"),
    ("group.consumer.min.assignment.interval.ms", "0"),
];

/// Longer than anything here takes; what takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits for what must come.
pub(crate) async fn within<F: Future>(what: impl Debug, event: F) -> F::Output {
    match tokio::time::timeout(PATIENCE, event).await {
        Ok(output) => output,
        Err(_) => panic!("{what:?}: nothing came within {PATIENCE:?}"),
    }
}

/// A server, and the names a test uses on it.
pub(crate) struct World {
    host: Host,
    run: String,
    count: AtomicU32,
}

/// Who runs the server.
enum Host {
    /// Somebody else, at this address.
    Other(String),
    /// This test. `None` only while it is down.
    Here {
        server: Option<Server>,
        config: Box<Config>,
        disk: Arc<Disk>,
        /// Where its data lies, if it keeps any; removed in the end.
        folder: Option<TempDir>,
    },
}

impl World {
    /// A server with these settings that forgets everything when it ends. `None`: the named server cannot be used.
    pub(crate) async fn start(settings: &[(&str, &str)]) -> Option<Self> {
        if let Ok(bootstrap) = std::env::var("CONVOKE_TEST_BOOTSTRAP") {
            return Self::of_another(bootstrap, settings).await;
        }
        let memory = [("convoke.storage", "memory"), ("convoke.log.sync", "none")];
        Some(Self::here(&[&memory, settings].concat(), None).await)
    }

    /// A server with these settings that can be killed and started again on what it stored.
    pub(crate) async fn durable(settings: &[(&str, &str)]) -> Option<Self> {
        if let Ok(bootstrap) = std::env::var("CONVOKE_TEST_BOOTSTRAP") {
            std::env::var_os("CONVOKE_TEST_RESTART")?;
            return Self::of_another(bootstrap, settings).await;
        }
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let data = data.to_str().unwrap().to_owned();
        let settings = [&[("convoke.data.dir", &*data)], settings].concat();
        Some(Self::here(&settings, Some(folder)).await)
    }

    async fn of_another(bootstrap: String, settings: &[(&str, &str)]) -> Option<Self> {
        let has = std::env::var("CONVOKE_TEST_SETTINGS").unwrap_or_default();
        let wants: Vec<_> = settings
            .iter()
            .map(|(key, value)| format!("{key}={value}"))
            .collect();
        if has != wants.join(",") {
            return None;
        }
        let world = Self::at(Host::Other(bootstrap));
        world.available().await;
        Some(world)
    }

    async fn here(settings: &[(&str, &str)], folder: Option<TempDir>) -> Self {
        let mut loader = Loader::new();
        let own = [
            ("listeners", "PLAINTEXT://127.0.0.1:0"),
            ("convoke.http.listen", "off"),
        ];
        for (key, value) in own.iter().chain(&PLAIN).chain(settings) {
            loader.set(&format!("{key}={value}")).unwrap();
        }
        let config = loader.finish().unwrap().0;
        let disk = Arc::new(Disk::default());
        let server = start(&config, &disk).await.unwrap();
        server.ready().await;
        Self::at(Host::Here {
            server: Some(server),
            config: Box::new(config),
            disk,
            folder,
        })
    }

    fn at(host: Host) -> Self {
        static RUN: AtomicU32 = AtomicU32::new(0);
        let start = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis();
        let run = format!("{start:x}-{}", RUN.fetch_add(1, Ordering::Relaxed));
        Self {
            host,
            run,
            count: AtomicU32::new(0),
        }
    }

    /// A server of ours that runs as a process at this address.
    pub(crate) fn at_address(bootstrap: &str) -> Self {
        Self::at(Host::Other(bootstrap.to_owned()))
    }

    /// Whether the server is ours: some outcomes are better than Kafka's.
    pub(crate) fn is_ours(&self) -> bool {
        matches!(self.host, Host::Here { .. })
    }

    /// Where it listens.
    pub(crate) fn bootstrap(&self) -> String {
        match &self.host {
            Host::Other(bootstrap) => bootstrap.clone(),
            Host::Here { server, .. } => server.as_ref().unwrap().bootstrap(),
        }
    }

    /// Where its two listeners listen.
    pub(crate) fn listeners(&self) -> [String; 2] {
        match &self.host {
            Host::Other(bootstrap) => [bootstrap.clone(), bootstrap.clone()],
            Host::Here { server, .. } => {
                let addresses = server.as_ref().unwrap().addresses();
                [
                    addresses[0].advertised.clone(),
                    addresses[1].advertised.clone(),
                ]
            }
        }
    }

    /// Tries to start a second server of ours on the same data; gives the reason why it cannot.
    pub(crate) async fn another_on_the_same_folder(&self) -> String {
        match &self.host {
            Host::Other(_) => panic!("not ours"),
            Host::Here { config, disk, .. } => start(config, disk).await.err().unwrap().to_string(),
        }
    }

    /// Kills it and starts it again on what it stored.
    pub(crate) async fn restart(&mut self) {
        self.begin_restart().await;
        self.available().await;
    }

    /// Kills it and starts it again; does not wait until it has read what it stored.
    pub(crate) async fn begin_restart(&mut self) {
        match &mut self.host {
            Host::Other(_) => {
                let command = std::env::var("CONVOKE_TEST_RESTART").unwrap();
                let status = Command::new("sh").args(["-c", &command]).status().unwrap();
                assert!(status.success(), "{command}");
            }
            Host::Here {
                server,
                config,
                disk,
                ..
            } => {
                drop(server.take());
                *server = Some(start_again(config, disk).await);
            }
        }
    }

    /// The disk under a server of ours.
    pub(crate) fn disk(&self) -> Arc<Disk> {
        match &self.host {
            Host::Other(_) => panic!("not ours"),
            Host::Here { disk, .. } => disk.clone(),
        }
    }

    /// The data folder of a server of ours.
    pub(crate) fn folder(&self) -> &Path {
        match &self.host {
            Host::Here {
                folder: Some(folder),
                ..
            } => folder.path(),
            _ => panic!("not ours, or in memory"),
        }
    }

    /// Stops it in good order and starts it again on what it stored.
    pub(crate) async fn stop_and_start(&mut self) {
        if let Host::Here {
            server,
            config,
            disk,
            ..
        } = &mut self.host
        {
            server.take().unwrap().stop().await.unwrap();
            *server = Some(start_again(config, disk).await);
        }
        self.available().await;
    }

    /// Waits until every group can be used: nothing is being loaded.
    pub(crate) async fn available(&self) {
        let group = self.group();
        within("a coordinator", async {
            while group.find().await != ErrorCode::None
                || group
                    .send(4, &ListGroupsRequest::default())
                    .await
                    .unwrap()
                    .error()
                    != ErrorCode::None
                || group.fetch_as(9, None).await.error != ErrorCode::None
            {}
        })
        .await;
    }

    /// A new connection.
    pub(crate) async fn connect(&self) -> Client {
        self.connect_as("cases").await
    }

    /// A new connection to one of [`listeners`](Self::listeners).
    pub(crate) async fn connect_at(&self, address: &str) -> Client {
        within("a connection", Client::connect(address))
            .await
            .unwrap()
    }

    /// A new connection of this client.
    pub(crate) async fn connect_as(&self, client_id: &str) -> Client {
        let options = Options {
            client_id: client_id.to_owned(),
            ..Options::default()
        };
        within(
            "a connection",
            Client::connect_with(self.bootstrap(), options),
        )
        .await
        .unwrap()
    }

    /// Waits until a silent member with this session timeout has been evicted: that much time has passed.
    pub(crate) async fn session_passes(&self, session_timeout_ms: i32) {
        let group = self.group();
        let witness = group.member("witness").await.session_ms(session_timeout_ms);
        witness.settle().await;
        group.until("Empty").await;
    }

    /// Opens a connection and waits until the server closes it for being idle.
    pub(crate) async fn idle_connection_closes(&self) {
        let mut stream = TcpStream::connect(self.bootstrap()).await.unwrap();
        let read = within("an idle connection to close", stream.read(&mut [0])).await;
        assert_eq!(read.unwrap(), 0);
    }

    /// A name that nobody has used.
    pub(crate) fn name(&self, kind: &str) -> String {
        format!(
            "{kind}-{}-{}",
            self.run,
            self.count.fetch_add(1, Ordering::Relaxed)
        )
    }

    /// A group that does not exist yet.
    pub(crate) fn group(&self) -> Group<'_> {
        Group::new(self, self.name("group"))
    }

    /// The group of this id.
    pub(crate) fn group_named(&self, id: &str) -> Group<'_> {
        Group::new(self, id.to_owned())
    }

    /// A new topic.
    pub(crate) async fn topic(&self, partitions: i32) -> String {
        let name = self.name("topic");
        self.create_topic(&name, partitions).await;
        name
    }

    /// Creates a topic; gives its id.
    pub(crate) async fn create_topic(&self, name: &str, partitions: i32) -> Uuid {
        let topic = CreatableTopic::default()
            .with_name(TopicName(s(name)))
            .with_num_partitions(partitions)
            .with_replication_factor(1);
        let request = CreateTopicsRequest::default()
            .with_timeout_ms(30_000)
            .with_topics(vec![topic]);
        let client = self.connect().await;
        let reply = within("a topic", client.send(&request)).await.unwrap();
        let created = &reply.topics[0];
        assert_eq!(created.error_code, 0, "{:?}", created.error_message);
        self.until_topic(name, true).await;
        created.topic_id
    }

    /// Waits until the topic is known, or is not: Kafka answers before its broker has heard of it.
    async fn until_topic(&self, name: &str, is_there: bool) {
        let topic = MetadataRequestTopic::default().with_name(Some(TopicName(s(name))));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(false);
        let client = self.connect().await;
        within(name, async {
            while (client.send(&request).await.unwrap().topics[0].error_code == 0) != is_there {}
        })
        .await;
    }

    /// Deletes a topic.
    pub(crate) async fn delete_topic(&self, name: &str) {
        let topic = DeleteTopicState::default().with_name(Some(TopicName(s(name))));
        let request = DeleteTopicsRequest::default()
            .with_timeout_ms(30_000)
            .with_topics(vec![topic]);
        let reply = within("a deletion", self.connect().await.send(&request))
            .await
            .unwrap();
        assert_eq!(reply.responses[0].error_code, 0);
        self.until_topic(name, false).await;
    }

    /// ListGroups in this version: the groups of this test, by id.
    pub(crate) async fn list_as(&self, version: i16) -> Vec<ListedGroup> {
        let request = ListGroupsRequest::default();
        let client = self.connect().await;
        let reply = within("a list", client.send_as(version, &request))
            .await
            .unwrap();
        assert_eq!(reply.error(), ErrorCode::None);
        let mut groups = reply.groups;
        groups.retain(|group| group.group_id.contains(&self.run));
        groups.sort_by(|a, b| a.group_id.cmp(&b.group_id));
        groups
    }

    /// The ids of this test's groups.
    pub(crate) async fn group_ids(&self) -> Vec<String> {
        let groups = self.list_as(5).await;
        groups
            .iter()
            .map(|group| group.group_id.to_string())
            .collect()
    }
}

async fn start(config: &Config, disk: &Arc<Disk>) -> Result<Server, convoke::server::Error> {
    let builder = Server::builder().config(config.clone());
    let disk = Arc::new(Switched(disk.clone()));
    within("a server", builder.file_system(disk).start()).await
}

/// Starts on a folder that the killed server may still be letting go of.
async fn start_again(config: &Config, disk: &Arc<Disk>) -> Server {
    within("the data folder", async {
        loop {
            match start(config, disk).await {
                Ok(server) => return server,
                Err(convoke::server::Error::Log(_)) => tokio::task::yield_now().await,
                Err(e) => panic!("{e}"),
            }
        }
    })
    .await
}
