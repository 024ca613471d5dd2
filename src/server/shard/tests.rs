//! A shard that loses its coordinator: what it tells, and what it still knows afterwards.

use std::ops::ControlFlow;

use super::*;
use crate::desk::hop::Gather;
use crate::group::request::{
    CommitPartition, CommitTopic, ErrorCode, FetchTopic, FetchedPartition, Join, OffsetCommit,
    OffsetFetch, Protocol,
};
use crate::group::types::{Client, Topic, TopicId, TopicRef};
use crate::log::fs::RealFs;
use crate::log::{Folder, FolderOptions, GroupLog, LogOptions, Recovery};

struct Desk {
    mailbox: Mailbox,
    loading: Option<(oneshot::Sender<Loaded>, Box<Coordinator>, Ledger)>,
    readiness: Arc<Readiness>,
    shard: Option<Shard>,
    _log: GroupLog,
    _folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = FolderOptions {
            partition_count: 1,
            node_id: 1,
        };
        let held = Folder::open(RealFs::shared(), folder.path(), options).unwrap();
        let recovery = Recovery::open(Arc::new(held), LogOptions::default()).unwrap();
        let log = recovery
            .run(&mut |_| ControlFlow::Continue(()), &mut |_| ())
            .unwrap();
        let mut topics = Topics::default();
        topics.insert(
            "t".into(),
            Topic {
                id: TopicId([1; 16]),
                partitions: 1,
            },
        );
        let topics = Arc::new(topics);
        let config = GroupConfig::default();
        let readiness = Arc::new(Readiness::new(1));
        let setup = Setup {
            partition: 0,
            config: config.clone(),
            topics: topics.clone(),
            patience_ms: 60_000,
            clock: Arc::new(Clock::start()),
            readiness: readiness.clone(),
            metrics: Arc::new(Metrics::new()),
            chronicle: None,
        };
        let (mailbox, mail) = Mailbox::new();
        let (loaded, receiver) = oneshot::channel();
        let coordinator = Box::new(Coordinator::new(config, topics, 1));
        let loading = Some((loaded, coordinator, Ledger::new(0, log.shard([0]))));
        let shard = Some(Shard::new(setup, mail, receiver));
        Self {
            mailbox,
            loading,
            readiness,
            shard,
            _log: log,
            _folder: folder,
        }
    }

    /// From here on letters are read.
    fn open(&mut self) {
        self.load();
        self.begin();
    }

    /// From here on letters are read, but nothing is loaded.
    fn begin(&mut self) {
        tokio::spawn(self.shard.take().unwrap().run());
    }

    fn load(&mut self) {
        let (loaded, coordinator, ledger) = self.loading.take().unwrap();
        loaded.send(Ok((coordinator, ledger))).unwrap();
    }

    fn post(&self, request: Request) -> Arc<Gather> {
        let gather = Gather::new(1);
        self.mailbox.send(Letter::Ask {
            request,
            to: gather.part(0),
            charge: None,
        });
        gather
    }

    async fn ask(&self, request: Request) -> Reply {
        answer(&self.post(request)).await
    }

    /// Asks until the shard is loaded.
    async fn committed(&self) -> Vec<FetchedPartition> {
        loop {
            match self.ask(fetch()).await {
                Reply::OffsetFetch(reply) if reply.error == ErrorCode::None => {
                    return reply.topics[0].partitions.clone();
                }
                Reply::OffsetFetch(reply) => {
                    assert_eq!(reply.error, ErrorCode::CoordinatorLoadInProgress);
                    tokio::task::yield_now().await;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn answer(gather: &Gather) -> Reply {
    gather.all().await.unwrap().pop().unwrap()
}

fn commit(offset: i64) -> Request {
    commit_to("t", offset)
}

fn commit_to(topic: &str, offset: i64) -> Request {
    let partition = CommitPartition {
        index: 0,
        offset,
        leader_epoch: -1,
        metadata: "".into(),
    };
    let topic = CommitTopic {
        topic: TopicRef::Name(topic.into()),
        partitions: vec![partition],
    };
    Request::OffsetCommit(OffsetCommit {
        group_id: "g".into(),
        client: Client::default(),
        member_id: "".into(),
        generation_or_epoch: -1,
        group_instance_id: None,
        retention_time_ms: None,
        consumer_errors: true,
        topics: vec![topic],
    })
}

fn commit_error(reply: &Reply) -> ErrorCode {
    match reply {
        Reply::OffsetCommit(reply) => reply.topics[0].partitions[0].1,
        other => panic!("{other:?}"),
    }
}

fn fetch() -> Request {
    let topic = FetchTopic {
        topic: TopicRef::Name("t".into()),
        partitions: vec![0],
    };
    Request::OffsetFetch(OffsetFetch {
        group_id: "g".into(),
        client: Client::default(),
        member_id: None,
        member_epoch: -1,
        topics: Some(vec![topic]),
        by_topic_id: false,
        require_stable: false,
    })
}

/// Parked for the initial rebalance delay.
fn join() -> Request {
    let range = Protocol {
        name: "range".into(),
        metadata: bytes::Bytes::from_static(b"m"),
    };
    Request::Join(Join {
        group_id: "joined".into(),
        client: Client::default(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        member_id: "".into(),
        group_instance_id: None,
        protocol_type: "consumer".into(),
        protocols: vec![range],
        reason: None,
        member_id_required: false,
        skip_assignment: false,
    })
}

#[tokio::test]
async fn after_a_panic_what_was_acknowledged_is_still_there() {
    let mut desk = Desk::new();
    desk.open();
    assert_eq!(commit_error(&desk.ask(commit(7)).await), ErrorCode::None);
    desk.mailbox.send(Letter::Panic);
    assert_eq!(desk.committed().await[0].offset, 7);
    assert_eq!(desk.readiness.report().panics, 1);
    assert!(desk.readiness.report().ready);
}

#[tokio::test]
async fn a_panic_tells_the_parked_to_find_their_coordinator_again() {
    let mut desk = Desk::new();
    desk.open();
    let parked = desk.post(join());
    desk.committed().await;
    desk.mailbox.send(Letter::Panic);
    match answer(&parked).await {
        Reply::Join(reply) => assert_eq!(reply.error, ErrorCode::NotCoordinator),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_panic_revokes_its_batch_and_no_more() {
    let mut desk = Desk::new();
    let before = desk.post(commit(1));
    desk.mailbox.send(Letter::Panic);
    let behind = desk.post(commit(2));
    desk.open();
    // All three came in one batch: the first was never appended, the last is told to come back.
    let error = commit_error(&answer(&before).await);
    assert!(
        matches!(
            error,
            ErrorCode::NotCoordinator | ErrorCode::CoordinatorLoadInProgress
        ),
        "{error:?}"
    );
    let error = commit_error(&answer(&behind).await);
    assert_eq!(error, ErrorCode::CoordinatorLoadInProgress);
    assert_eq!(desk.committed().await[0].offset, -1);
}

#[tokio::test]
async fn a_stopped_shard_answers_the_parked_and_takes_nothing_more() {
    let mut desk = Desk::new();
    desk.open();
    let parked = desk.post(join());
    desk.committed().await;
    let (sender, stopped) = oneshot::channel();
    desk.mailbox.send(Letter::Stop(sender));
    let late = desk.post(commit(3));
    match answer(&parked).await {
        Reply::Join(reply) => assert_eq!(reply.error, ErrorCode::NotCoordinator),
        other => panic!("{other:?}"),
    }
    stopped.await.unwrap();
    // Refused, or let fall with the shard.
    if let Some(mut replies) = late.all().await {
        let error = commit_error(&replies.pop().unwrap());
        assert_eq!(error, ErrorCode::CoordinatorNotAvailable);
    }
}

#[tokio::test]
async fn topics_that_came_while_it_was_loaded_are_known_to_the_first_request() {
    let mut desk = Desk::new();
    desk.begin();
    let mut topics = Topics::default();
    let id = TopicId([2; 16]);
    topics.insert("new".into(), Topic { id, partitions: 1 });
    let change = TopicsChange {
        topics: Arc::new(topics),
        created: vec!["new".into()],
        ..TopicsChange::default()
    };
    desk.mailbox.send(Letter::Topics(Arc::new(change)));
    let loading = commit_error(&desk.ask(commit_to("new", 1)).await);
    assert_eq!(loading, ErrorCode::CoordinatorLoadInProgress);
    desk.load();
    loop {
        match commit_error(&desk.ask(commit_to("new", 1)).await) {
            ErrorCode::CoordinatorLoadInProgress => tokio::task::yield_now().await,
            error => {
                assert_eq!(error, ErrorCode::None);
                return;
            }
        }
    }
}
