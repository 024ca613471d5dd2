//! The data plane of the simulated server: the broker that ships, on the simulated disk, on no thread of its own. It
//! tells of no topic's records; what it is here for is what changes topics.

use std::future::Future;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use kafka_protocol::messages;
use kafka_protocol::messages::create_topics_request::CreatableTopic;
use kafka_protocol::protocol::StrBytes;
use uuid::Uuid;

use crate::broker::{Broker, BrokerOptions, Storage, TopicsChange, TopicsImage};
use crate::group::types::TopicName;
use crate::log::fs::Fs;
use crate::wire::data;

/// The open data plane.
#[derive(Debug)]
pub(super) struct Plane {
    broker: Broker,
    /// What was announced and has not been taken.
    told: Arc<Mutex<Vec<TopicsChange>>>,
}

impl Plane {
    /// Opens it as a process does that starts, in this folder. `ids`: counts the ids of topics, over all lives of the
    /// server.
    ///
    /// # Errors
    /// A sentence: what is on the disk is not what was written there, and no crash explains it.
    pub(super) fn open(
        fs: Arc<dyn Fs>,
        dir: PathBuf,
        ids: &Arc<AtomicU64>,
    ) -> Result<Self, String> {
        let ids = ids.clone();
        let options = BrokerOptions {
            storage: Storage::Fs(fs, dir),
            offsets_topic_partitions: 1,
            topic_ids: Arc::new(move || {
                let number = ids.fetch_add(1, Ordering::Relaxed) + 1;
                Uuid::from_u128(number.into())
            }),
            in_place: true,
            ..BrokerOptions::default()
        };
        let told = Arc::<Mutex<Vec<TopicsChange>>>::default();
        let tell = told.clone();
        let on_topics = move |change| {
            let mut told = tell.lock().unwrap_or_else(PoisonError::into_inner);
            told.push(change);
        };
        let broker = Broker::open(options, Box::new(on_topics), Box::new(|_| ()));
        let broker = broker.map_err(|e| format!("the topics cannot be opened: {e}"))?;
        Ok(Self { broker, told })
    }

    /// All topics now.
    pub(super) fn topics(&self) -> Arc<TopicsImage> {
        self.broker.topics()
    }

    /// Answers a call, as `server::data` has it; what it announced meanwhile comes with the answer.
    ///
    /// # Errors
    /// A sentence, if it cannot be answered at once.
    pub(super) fn answer(
        &self,
        call: data::Call,
        version: i16,
    ) -> Result<(data::Reply, Vec<TopicsChange>), String> {
        let broker = &self.broker;
        let reply = match call {
            data::Call::CreateTopics(request) => at_once(broker.create_topics(request))?.into(),
            data::Call::CreatePartitions(request) => {
                at_once(broker.create_partitions(request))?.into()
            }
            data::Call::DeleteTopics(request) => {
                at_once(broker.delete_topics(request, version))?.into()
            }
            other => return Err(format!("nobody asks for this: {other:?}")),
        };
        Ok((reply, self.announced()))
    }

    /// Makes topics that are there before anybody asks.
    ///
    /// # Errors
    /// A sentence, if one cannot be made.
    pub(super) fn provide(&self, topics: &[(TopicName, i32)]) -> Result<(), String> {
        let topics = topics.iter().map(|(name, partitions)| {
            let name = messages::TopicName(StrBytes::from_string(name.to_string()));
            CreatableTopic::default()
                .with_name(name)
                .with_num_partitions(*partitions)
                .with_replication_factor(1)
        });
        let request = messages::CreateTopicsRequest::default().with_topics(topics.collect());
        let reply = at_once(self.broker.create_topics(request))?;
        self.announced();
        match reply.topics.iter().find(|topic| topic.error_code != 0) {
            Some(refused) => Err(format!("a topic cannot be made: {refused:?}")),
            None => Ok(()),
        }
    }

    fn announced(&self) -> Vec<TopicsChange> {
        std::mem::take(&mut *self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends in good order.
    ///
    /// # Errors
    /// A sentence, if that takes a runtime; a disk that refuses is no error here.
    pub(super) fn close(&self) -> Result<(), String> {
        at_once(self.broker.close()).map(drop)
    }
}

/// What needs no waiting.
fn at_once<T>(work: impl Future<Output = T>) -> Result<T, String> {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Ok(done),
        Poll::Pending => Err("the data plane waits for something".to_owned()),
    }
}
