//! The model clients: what they are given to act with, and what they have in common.

mod admin;
mod assignor;
mod consumer;
mod modern;
mod odd;
mod process;

use std::sync::Arc;

use super::frames::{Answer, Ask, HOST, TopicAsk};
use super::net::Call;
use super::rng::Rng;
use super::trace::Trace;
use crate::group::request::{
    CommitPartition, CommitTopic, FetchTopic, OffsetCommit, OffsetFetch, Reply, Request,
};
use crate::group::types::{Client, GroupId, InstanceId, MemberId, TopicName, TopicRef, Topics};
use crate::wire::Header;

pub(super) use admin::{Admin, Operator, want};
pub(super) use consumer::{Consumer, Habits};
pub(super) use modern::{IdPartition, Modern, ModernHabits, wanted};
pub(super) use odd::{Abandoner, Committer, Confused};

/// What clients have heard of groups: the source of wrong ids and old generations.
#[derive(Debug, Default)]
pub(super) struct Gossip {
    heard: Vec<Heard>,
    /// Something has been heard since somebody looked.
    fresh: bool,
}

/// A group, a member, its generation or epoch, and its instance id.
type Heard = (GroupId, MemberId, i32, Option<InstanceId>);

impl Gossip {
    fn hear(
        &mut self,
        group_id: &GroupId,
        member_id: &MemberId,
        generation: i32,
        instance_id: Option<&InstanceId>,
    ) {
        if self.heard.len() == 64 {
            self.heard.remove(0);
        }
        self.fresh = true;
        let told = (
            group_id.clone(),
            member_id.clone(),
            generation,
            instance_id.cloned(),
        );
        self.heard.push(told);
    }

    /// Whether something has been heard since this was asked.
    pub(super) fn is_fresh(&mut self) -> bool {
        std::mem::take(&mut self.fresh)
    }
}

/// What a client acts with.
pub(super) struct Hands<'a> {
    pub(super) now: i64,
    pub(super) rng: &'a mut Rng,
    pub(super) trace: &'a mut Trace,
    pub(super) topics: &'a Arc<Topics>,
    pub(super) gossip: &'a mut Gossip,
    /// Counts commits, so that each is told apart.
    pub(super) stamp: &'a mut i64,
    /// Faults are over: everybody behaves, or is gone.
    pub(super) calm: bool,
    /// What to send.
    pub(super) sends: Vec<Ask>,
    /// When to look again.
    pub(super) wake_at: Option<i64>,
    /// Whether to give up the connection.
    pub(super) hang_up: bool,
}

impl Hands<'_> {
    fn send(&mut self, request: Request) {
        self.sends.push(Ask::Group(request));
    }

    /// Wants topics changed.
    pub(super) fn change_topics(&mut self, ask: TopicAsk) {
        self.sends.push(Ask::Topics(ask));
    }

    fn wake_in(&mut self, ms: i64) {
        let at = self.now + ms.max(1);
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }

    fn wake_by(&mut self, moment: i64) {
        self.wake_in(moment - self.now);
    }

    fn next_stamp(&mut self) -> i64 {
        *self.stamp += 1;
        *self.stamp
    }
}

/// One client.
#[derive(Debug)]
pub(super) enum Role {
    Consumer(Box<Consumer>),
    Modern(Box<Modern>),
    Committer(Committer),
    Abandoner(Abandoner),
    Confused(Confused),
    Admin(Admin),
    Operator(Operator),
}

impl Role {
    /// Time has come to look around.
    pub(super) fn wake(&mut self, h: &mut Hands<'_>) {
        match self {
            Self::Consumer(client) => client.wake(h),
            Self::Modern(client) => client.wake(h),
            Self::Committer(client) => client.wake(h),
            Self::Abandoner(client) => client.wake(h),
            Self::Confused(client) => client.wake(h),
            Self::Admin(client) => client.wake(h),
            Self::Operator(client) => client.wake(h),
        }
    }

    /// A reply has come.
    ///
    /// # Errors
    /// A sentence, if the client cannot have been told that.
    pub(super) fn reply(
        &mut self,
        asked: Asked,
        answer: Answer,
        h: &mut Hands<'_>,
    ) -> Result<(), String> {
        let reply = match answer {
            Answer::Group(reply) if asked == Asked::of_reply(&reply) => reply,
            Answer::Topics(answers) if asked == Asked::Topics => {
                if let Self::Admin(client) = self {
                    client.hear(&answers);
                }
                return Ok(());
            }
            other => return Err(format!("a client asked {asked:?} and is told {other:?}")),
        };
        match self {
            Self::Consumer(client) => client.hear(reply, h),
            Self::Modern(client) => client.hear(reply, h),
            Self::Committer(client) => client.reply(&reply),
            Self::Abandoner(client) => client.reply(&reply, h),
            Self::Confused(_) | Self::Admin(_) | Self::Operator(_) => {}
        }
        Ok(())
    }

    /// A request will not be answered: the connection is gone.
    pub(super) fn lost(&mut self, asked: Asked, h: &mut Hands<'_>) {
        match self {
            Self::Consumer(client) => client.lost(asked, h),
            Self::Modern(client) => client.lost(asked, h),
            _ => {}
        }
    }

    /// What it calls itself.
    pub(super) fn name(&self) -> &Arc<str> {
        match self {
            Self::Consumer(client) => client.name(),
            Self::Modern(client) => client.name(),
            Self::Committer(client) => &client.client.id,
            Self::Abandoner(client) => client.name(),
            Self::Confused(client) => client.name(),
            Self::Admin(client) => client.name(),
            Self::Operator(client) => client.name(),
        }
    }

    /// How long it waits for an answer.
    pub(super) fn patience_ms(&self) -> i64 {
        match self {
            Self::Consumer(client) => client.patience_ms(),
            _ => 10_000,
        }
    }
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Asked {
    Join,
    Sync,
    Heartbeat,
    Leave,
    Commit,
    Fetch,
    OffsetDelete,
    List,
    Describe,
    Delete,
    ConsumerHeartbeat,
    ConsumerDescribe,
    Inspect,
    Operate,
    Topics,
}

impl Asked {
    pub(super) fn of(ask: &Ask) -> Self {
        match ask {
            Ask::Group(request) => Self::of_request(request),
            Ask::Topics(_) => Self::Topics,
        }
    }

    fn of_request(request: &Request) -> Self {
        match request {
            Request::Join(_) => Self::Join,
            Request::Sync(_) => Self::Sync,
            Request::Heartbeat(_) => Self::Heartbeat,
            Request::Leave(_) => Self::Leave,
            Request::OffsetCommit(_) => Self::Commit,
            Request::OffsetFetch(_) => Self::Fetch,
            Request::OffsetDelete(_) => Self::OffsetDelete,
            Request::List(_) => Self::List,
            Request::Describe(_) => Self::Describe,
            Request::Delete { .. } => Self::Delete,
            Request::ConsumerHeartbeat(_) => Self::ConsumerHeartbeat,
            Request::ConsumerDescribe { .. } => Self::ConsumerDescribe,
            Request::Inspect(_) => Self::Inspect,
            Request::Operate(_) => Self::Operate,
        }
    }

    fn of_reply(reply: &Reply) -> Self {
        match reply {
            Reply::Join(_) => Self::Join,
            Reply::Sync(_) => Self::Sync,
            Reply::Heartbeat(_) => Self::Heartbeat,
            Reply::Leave(_) => Self::Leave,
            Reply::OffsetCommit(_) => Self::Commit,
            Reply::OffsetFetch(_) => Self::Fetch,
            Reply::OffsetDelete(_) => Self::OffsetDelete,
            Reply::List(_) => Self::List,
            Reply::Describe(_) => Self::Describe,
            Reply::Delete { .. } => Self::Delete,
            Reply::ConsumerHeartbeat(_) => Self::ConsumerHeartbeat,
            Reply::ConsumerDescribe(_) => Self::ConsumerDescribe,
            Reply::Inspected(_) | Reply::Previewed(_) => Self::Inspect,
            Reply::Operated(_) => Self::Operate,
        }
    }
}

/// A request that is not answered yet.
#[derive(Clone, Debug)]
pub(super) struct Outstanding {
    pub(super) call: Call,
    pub(super) asked: Asked,
    pub(super) header: Header,
    pub(super) since: i64,
}

fn named(id: &str) -> Client {
    Client {
        id: id.into(),
        host: HOST.into(),
    }
}

/// A commit of one offset for each of some partitions.
#[derive(Clone, Debug)]
struct Commit<'a> {
    group_id: &'a GroupId,
    client: &'a Client,
    member_id: MemberId,
    generation: i32,
    instance_id: Option<InstanceId>,
}

impl Commit<'_> {
    fn of(self, partitions: &[(TopicName, i32)], h: &mut Hands<'_>) -> Request {
        let known = |(topic, _): &(TopicName, i32)| h.topics.get(topic).is_some();
        let by_id = h.rng.chance(200) && partitions.iter().all(known);
        let retention = h.rng.chance(30).then_some(h.rng.between(0, 60_000));
        let topics = partitions
            .iter()
            .map(|(topic, index)| {
                let id = h.topics.get(topic).map(|topic| topic.id);
                let note = match h.rng.below(40) {
                    0 => "n".repeat(5_000),
                    1..10 => format!("note {index}"),
                    _ => String::new(),
                };
                CommitTopic {
                    topic: match id {
                        Some(id) if by_id => TopicRef::Id(id),
                        _ => TopicRef::Name(topic.clone()),
                    },
                    partitions: vec![CommitPartition {
                        index: *index,
                        offset: h.next_stamp(),
                        leader_epoch: h.rng.between(-1, 3) as i32,
                        metadata: note.into(),
                    }],
                }
            })
            .collect();
        Request::OffsetCommit(OffsetCommit {
            group_id: self.group_id.clone(),
            client: self.client.clone(),
            member_id: self.member_id,
            generation_or_epoch: self.generation,
            group_instance_id: self.instance_id,
            retention_time_ms: retention,
            consumer_errors: retention.is_none() && h.rng.chance(500),
            topics,
        })
    }
}

fn fetch(group_id: &GroupId, client: &Client, partitions: &[(TopicName, i32)]) -> Request {
    let topics = partitions.iter().map(|(topic, index)| FetchTopic {
        topic: TopicRef::Name(topic.clone()),
        partitions: vec![*index],
    });
    Request::OffsetFetch(OffsetFetch {
        group_id: group_id.clone(),
        client: client.clone(),
        member_id: None,
        member_epoch: -1,
        topics: Some(topics.collect()),
        by_topic_id: false,
        require_stable: true,
    })
}
