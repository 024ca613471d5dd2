//! Which room answers a call: a shard, all shards, the data plane, or this one.
//!
//! A request that names many groups is split here, one word to each group's shard, and its parts are joined in the
//! order of the request.

use std::pin::Pin;
use std::sync::Arc;

use super::budget::{Budget, Charge, Loan};
use super::data;
use super::gate::Shared;
use super::shard::{Letter, Mailbox};
use super::topics::shard_of;
use crate::broker::{self, Broker};
use crate::desk::hop::{Gather, ReplyTo};
use crate::group::request::{self, ErrorCode, List, ListReply, Request};
use crate::group::types::GroupId;
use crate::wire::{self, Call, Coordinator, FindCoordinator};

/// Parts of one request that are out at the same time. Bounds what a request with a million groups holds.
const PARTS_AT_ONCE: usize = 1024;
/// Bits of what anybody may do with a group: READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS.
const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;
/// About how many bytes one reply about many groups may carry: a short request that names a large group very often must
/// not become a reply of many gigabytes.
const REPLY_BYTES_MAX: usize = 256 << 20;

/// A listener as clients see it.
#[derive(Debug)]
pub(crate) struct Door {
    /// Its name, such as `PLAINTEXT`.
    pub(crate) name: String,
    /// What clients are told to dial.
    pub(crate) host: Arc<str>,
    /// The port they are told to dial.
    pub(crate) port: i32,
    /// The same in the data plane's words.
    pub(crate) listener: broker::Listener,
}

/// How a request goes on after it was begun.
pub(crate) enum Step {
    /// The answer is there.
    Reply(wire::Reply),
    /// A shard answers into the connection's pigeonhole.
    Parked,
    /// The answer takes several steps.
    Later(Pin<Box<dyn Future<Output = Outcome> + Send>>),
}

/// How a request ends.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// With an answer.
    Reply(wire::Reply),
    /// With one whose batches are held already.
    Fetched(wire::data::Reply, Loan),
    /// Without one, as the client asked (acks=0).
    Silence,
    /// There is none to give, for this reason: the connection closes.
    Close(&'static str),
}

const LOST: Outcome = Outcome::Close("its request failed inside the coordinator");

/// Knows every room that answers.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) shards: Arc<[Mailbox]>,
    pub(crate) broker: Broker,
    pub(crate) cluster_id: Arc<str>,
    pub(crate) node_id: i32,
    /// For what Fetch reads.
    pub(crate) replies: Arc<Budget>,
}

impl Route {
    /// Sets a request going.
    pub(crate) fn begin(
        self: &Arc<Self>,
        door: &Arc<Door>,
        header: &wire::Header,
        call: Call,
        from: &Arc<Shared>,
        charge: Option<Charge>,
    ) -> Step {
        match call {
            Call::ApiVersions(hello) => {
                let reply = hello.answer(&self.cluster_id, self.node_id);
                Step::Reply(wire::Reply::ApiVersions(reply))
            }
            Call::FindCoordinator(find) => {
                Step::Reply(wire::Reply::FindCoordinator(self.find(door, header, &find)))
            }
            Call::Group(Request::List(list)) => self.list(list),
            Call::Group(request) => self.park(request, from, charge),
            Call::OffsetFetch(mut groups) if groups.len() == 1 => match groups.pop() {
                Some(fetch) => self.park(Request::OffsetFetch(fetch), from, charge),
                None => Step::Reply(wire::Reply::OffsetFetch(Vec::new())),
            },
            Call::OffsetFetch(groups) => self.fetch(groups),
            Call::DescribeGroups {
                groups,
                include_authorized_operations,
            } => self.describe(groups, include_authorized_operations),
            Call::DeleteGroups(groups) => self.delete(groups),
            Call::ConsumerGroupDescribe {
                group_ids,
                include_authorized_operations,
            } => self.consumer_describe(group_ids, include_authorized_operations),
            Call::Data(call) => {
                let (route, door) = (self.clone(), door.clone());
                let (version, client_id) = (header.api_version, header.client.id.clone());
                let loan = Loan::none(&self.replies);
                Step::Later(Box::pin(async move {
                    let outcome =
                        data::answer(&route.broker, &door, version, &client_id, call, loan).await;
                    drop(charge);
                    outcome
                }))
            }
        }
    }

    fn shard(&self, group_id: &str) -> &Mailbox {
        &self.shards[shard_of(group_id, self.shards.len())]
    }

    /// Sends a request to the shard of its group.
    pub(super) fn ask(&self, request: Request, to: ReplyTo, charge: Option<Charge>) {
        if let Some(group_id) = request.group_id() {
            self.shard(group_id).send(Letter::Ask {
                request,
                to,
                charge,
            });
        }
    }

    fn park(&self, request: Request, from: &Arc<Shared>, charge: Option<Charge>) -> Step {
        self.ask(request, ReplyTo::holder(from.clone()), charge);
        Step::Parked
    }

    /// Hands in commits together and gives their replies in order; `None` if one was lost.
    pub(crate) fn commit_all(
        &self,
        commits: Vec<(Request, Option<Charge>)>,
    ) -> impl Future<Output = Option<Vec<request::Reply>>> + Send + use<> {
        let gather = Gather::new(commits.len());
        for (index, (commit, charge)) in commits.into_iter().enumerate() {
            self.ask(commit, gather.part(index), charge);
        }
        async move { gather.all().await }
    }

    /// Asks about many groups and gives the parts in order; `None` if one was lost.
    async fn ask_all(&self, mut requests: Vec<Request>) -> Result<Vec<request::Reply>, Outcome> {
        let mut replies = Vec::new();
        let mut bytes = 0;
        while !requests.is_empty() {
            let rest = requests.split_off(requests.len().min(PARTS_AT_ONCE));
            let gather = Gather::new(requests.len());
            for (index, request) in requests.into_iter().enumerate() {
                self.ask(request, gather.part(index), None);
            }
            let parts = gather.all().await.ok_or(LOST)?;
            bytes += parts.iter().map(bytes_of).sum::<usize>();
            if bytes > REPLY_BYTES_MAX {
                return Err(Outcome::Close(
                    "its answer would be too large; ask for fewer groups at once",
                ));
            }
            replies.extend(parts);
            requests = rest;
        }
        Ok(replies)
    }

    fn list(self: &Arc<Self>, list: List) -> Step {
        let route = self.clone();
        Step::Later(Box::pin(async move {
            let gather = Gather::new(route.shards.len());
            for (index, shard) in route.shards.iter().enumerate() {
                let request = Request::List(list.clone());
                shard.send(Letter::Ask {
                    request,
                    to: gather.part(index),
                    charge: None,
                });
            }
            let Some(parts) = gather.all().await else {
                return LOST;
            };
            Outcome::Reply(wire::Reply::Group(request::Reply::List(join_lists(parts))))
        }))
    }

    fn fetch(self: &Arc<Self>, groups: Vec<request::OffsetFetch>) -> Step {
        let route = self.clone();
        Step::Later(Box::pin(async move {
            let requests = groups.into_iter().map(Request::OffsetFetch).collect();
            let parts = match route.ask_all(requests).await {
                Ok(parts) => parts,
                Err(outcome) => return outcome,
            };
            let fetched = parts.into_iter().filter_map(|part| match part {
                request::Reply::OffsetFetch(reply) => Some(reply),
                _ => None,
            });
            Outcome::Reply(wire::Reply::OffsetFetch(fetched.collect()))
        }))
    }

    fn describe(self: &Arc<Self>, groups: Vec<request::Describe>, operations: bool) -> Step {
        let route = self.clone();
        Step::Later(Box::pin(async move {
            let requests = groups.into_iter().map(Request::Describe).collect();
            let parts = match route.ask_all(requests).await {
                Ok(parts) => parts,
                Err(outcome) => return outcome,
            };
            let described = parts.into_iter().filter_map(|part| match part {
                request::Reply::Describe(reply) => Some(reply),
                _ => None,
            });
            Outcome::Reply(wire::Reply::DescribeGroups {
                groups: described.collect(),
                authorized_operations: operations.then_some(GROUP_OPERATIONS),
            })
        }))
    }

    fn consumer_describe(self: &Arc<Self>, group_ids: Vec<GroupId>, operations: bool) -> Step {
        let route = self.clone();
        Step::Later(Box::pin(async move {
            let requests = group_ids
                .into_iter()
                .map(|group_id| Request::ConsumerDescribe { group_id });
            let parts = match route.ask_all(requests.collect()).await {
                Ok(parts) => parts,
                Err(outcome) => return outcome,
            };
            let described = parts.into_iter().filter_map(|part| match part {
                request::Reply::ConsumerDescribe(reply) => Some(reply),
                _ => None,
            });
            Outcome::Reply(wire::Reply::ConsumerGroupDescribe {
                groups: described.collect(),
                authorized_operations: operations.then_some(GROUP_OPERATIONS),
            })
        }))
    }

    /// Kafka answers a group that is named twice once, at its first place.
    fn delete(self: &Arc<Self>, groups: Vec<GroupId>) -> Step {
        let route = self.clone();
        Step::Later(Box::pin(async move {
            let mut seen = hashbrown::HashSet::new();
            let once = groups
                .into_iter()
                .filter(|group_id| seen.insert(group_id.clone()));
            let requests = once.map(|group_id| Request::Delete { group_id }).collect();
            let parts = match route.ask_all(requests).await {
                Ok(parts) => parts,
                Err(outcome) => return outcome,
            };
            let deleted = parts.into_iter().filter_map(|part| match part {
                request::Reply::Delete { group_id, error } => Some((group_id, error)),
                _ => None,
            });
            Outcome::Reply(wire::Reply::DeleteGroups(deleted.collect()))
        }))
    }

    /// One node coordinates everything. A transactional producer finds it too, and is told at InitProducerId that there
    /// are no transactions: an error there ends it, whereas "no coordinator" would make it ask for ever.
    fn find(&self, door: &Door, header: &wire::Header, find: &FindCoordinator) -> Vec<Coordinator> {
        let found = |key: &Arc<str>| Coordinator {
            key: key.clone(),
            error: 0,
            message: None,
            node_id: self.node_id,
            host: door.host.clone(),
            port: door.port,
        };
        let refused = |key: &Arc<str>, why: &str| {
            Coordinator::refused(key.clone(), wire::INVALID_REQUEST, why)
        };
        let answer = |key: &Arc<str>| match find.key_type {
            0 | 1 => found(key),
            2 if header.api_version >= 6 && is_share_key(key) => found(key),
            // Kafka says nothing about share keys it does not take, once it answers by key.
            2 if header.api_version >= 4 => refused(key, ""),
            other => refused(key, &format!("{other} is no key type of this version")),
        };
        find.keys.iter().map(answer).collect()
    }
}

/// `group:topic id:partition`; the group may contain colons.
fn is_share_key(key: &str) -> bool {
    let mut parts = key.rsplitn(3, ':');
    let partition = parts.next().is_some_and(|p| p.parse::<i32>().is_ok());
    let topic = parts.next().is_some_and(|t| t.len() == 22);
    partition && topic && parts.next().is_some_and(|group| !group.is_empty())
}

fn join_lists(parts: Vec<request::Reply>) -> ListReply {
    let mut joined = ListReply {
        error: ErrorCode::None,
        groups: Vec::new(),
    };
    for part in parts {
        let request::Reply::List(mut part) = part else {
            continue;
        };
        if part.error != ErrorCode::None {
            return ListReply {
                error: part.error,
                groups: Vec::new(),
            };
        }
        joined.groups.append(&mut part.groups);
    }
    joined
}

/// About what a part takes in the reply, and at least what it takes in memory.
fn bytes_of(reply: &request::Reply) -> usize {
    const ENTRY: usize = 64;
    ENTRY
        + match reply {
            request::Reply::OffsetFetch(reply) => {
                let partitions = reply.topics.iter().flat_map(|topic| &topic.partitions);
                partitions
                    .map(|partition| ENTRY + partition.metadata.len())
                    .sum()
            }
            request::Reply::Describe(reply) => {
                let member = |member: &request::DescribedMember| {
                    4 * ENTRY + member.metadata.len() + member.assignment.len()
                };
                reply.members.iter().map(member).sum()
            }
            request::Reply::ConsumerDescribe(reply) => {
                let member = |member: &request::ConsumerDescribedMember| {
                    let both = member.assignment.iter().chain(&member.target_assignment);
                    let partitions = both.map(|topic| ENTRY + 4 * topic.partitions.len());
                    let names = ENTRY * member.subscribed_topic_names.len();
                    4 * ENTRY + names + partitions.sum::<usize>()
                };
                reply.members.iter().map(member).sum()
            }
            _ => 0,
        }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_keys_have_three_parts() {
        assert!(is_share_key("g:KD30t2oKQW6Q5nvtzB0Oeg:3"));
        assert!(is_share_key("a:b:KD30t2oKQW6Q5nvtzB0Oeg:3"));
        for bad in [
            "g",
            "g:3",
            "g:KD30t2oKQW6Q5nvtzB0Oeg:x",
            ":KD30t2oKQW6Q5nvtzB0Oeg:3",
        ] {
            assert!(!is_share_key(bad), "{bad}");
        }
    }
}
