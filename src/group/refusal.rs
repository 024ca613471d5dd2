//! What a request is told when its shard cannot take it: Kafka's translation of storage and ownership failures.

use super::operator::{Inspect, NotDone};
use super::request::{
    ConsumerDescribeReply, ConsumerHeartbeatReply, DescribeReply, ErrorCode, JoinReply, LeaveReply,
    ListReply, OffsetCommitReply, OffsetDeleteReply, OffsetFetchReply, Reply, Request, SyncReply,
    TopicErrors,
};
use super::types::{GroupId, MemberId};

/// The answer to a request that was not handed to its coordinator.
pub(crate) fn refuse(request: &Request, error: ErrorCode) -> Reply {
    match request {
        Request::Join(join) => Reply::Join(JoinReply::refused(error, join.member_id.clone())),
        Request::Sync(_) => Reply::Sync(SyncReply::refused(error)),
        // A classic member must not lose its session over a shard that is being loaded.
        Request::Heartbeat(_) if error == ErrorCode::CoordinatorLoadInProgress => {
            Reply::Heartbeat(ErrorCode::None)
        }
        Request::Heartbeat(_) => Reply::Heartbeat(error),
        Request::Leave(_) => Reply::Leave(LeaveReply {
            error,
            members: Vec::new(),
        }),
        Request::OffsetCommit(commit) => Reply::OffsetCommit(OffsetCommitReply {
            topics: commit
                .topics
                .iter()
                .map(|topic| TopicErrors {
                    topic: topic.topic.clone(),
                    partitions: topic.partitions.iter().map(|p| (p.index, error)).collect(),
                })
                .collect(),
        }),
        Request::OffsetFetch(fetch) => {
            // The stable read goes by the write path, whose failure means "ask for the coordinator again".
            let unavailable = error == ErrorCode::CoordinatorNotAvailable && fetch.require_stable;
            let error = if unavailable {
                ErrorCode::NotCoordinator
            } else {
                error
            };
            Reply::OffsetFetch(OffsetFetchReply {
                group_id: fetch.group_id.clone(),
                error,
                topics: Vec::new(),
            })
        }
        Request::OffsetDelete(_) => Reply::OffsetDelete(OffsetDeleteReply {
            error,
            topics: Vec::new(),
        }),
        Request::List(_) => Reply::List(ListReply {
            error,
            groups: Vec::new(),
        }),
        Request::Describe(describe) => Reply::Describe(undescribed(&describe.group_id, error)),
        Request::Delete { group_id } => Reply::Delete {
            group_id: group_id.clone(),
            error,
        },
        Request::ConsumerHeartbeat(_) => {
            Reply::ConsumerHeartbeat(ConsumerHeartbeatReply::refused(error, why(error)))
        }
        Request::ConsumerDescribe { group_id } => {
            Reply::ConsumerDescribe(consumer_undescribed(group_id, error))
        }
        Request::Inspect(Inspect::Group(_)) => {
            Reply::Inspected(Err(NotDone::unavailable(why(error))))
        }
        Request::Inspect(Inspect::Preview { .. }) => {
            Reply::Previewed(Err(NotDone::unavailable(why(error))))
        }
        Request::Operate(_) => Reply::Operated(Err(NotDone::unavailable(why(error)))),
    }
}

/// Turns a reply whose records could not be kept into the refusal that its request gets instead.
pub(crate) fn revoke(reply: Reply, error: ErrorCode) -> Reply {
    match reply {
        Reply::Join(reply) => Reply::Join(JoinReply::refused(error, reply.member_id)),
        Reply::Sync(_) => Reply::Sync(SyncReply::refused(error)),
        Reply::Heartbeat(_) => Reply::Heartbeat(error),
        Reply::Leave(_) => Reply::Leave(LeaveReply {
            error,
            members: Vec::new(),
        }),
        Reply::OffsetCommit(mut reply) => {
            overwrite(&mut reply.topics, error);
            Reply::OffsetCommit(reply)
        }
        Reply::OffsetFetch(reply) => Reply::OffsetFetch(OffsetFetchReply {
            group_id: reply.group_id,
            error: ErrorCode::NotCoordinator,
            topics: Vec::new(),
        }),
        Reply::OffsetDelete(_) => Reply::OffsetDelete(OffsetDeleteReply {
            error,
            topics: Vec::new(),
        }),
        Reply::List(_) => Reply::List(ListReply {
            error,
            groups: Vec::new(),
        }),
        Reply::Describe(reply) => Reply::Describe(undescribed(&reply.group_id, error)),
        Reply::Delete { group_id, .. } => Reply::Delete { group_id, error },
        Reply::ConsumerHeartbeat(_) => {
            Reply::ConsumerHeartbeat(ConsumerHeartbeatReply::refused(error, why(error)))
        }
        Reply::ConsumerDescribe(reply) => {
            Reply::ConsumerDescribe(consumer_undescribed(&reply.group_id, error))
        }
        Reply::Inspected(_) => Reply::Inspected(Err(NotDone::unavailable(why(error)))),
        Reply::Previewed(_) => Reply::Previewed(Err(NotDone::unavailable(why(error)))),
        Reply::Operated(_) => Reply::Operated(Err(unconfirmed(error))),
    }
}

/// What the requests that a coordinator may park are told when it goes away.
#[derive(Debug)]
pub(crate) enum Parkable {
    /// JoinGroup, with the member id that is echoed.
    Join(MemberId),
    /// SyncGroup.
    Sync,
    /// An operator's action.
    Operate,
    /// Anything else: answered at once, or lost with a panic.
    Other,
}

impl Parkable {
    pub(crate) fn of(request: &Request) -> Self {
        match request {
            Request::Join(join) => Self::Join(join.member_id.clone()),
            Request::Sync(_) => Self::Sync,
            Request::Operate(_) => Self::Operate,
            _ => Self::Other,
        }
    }

    /// `None`: there is nothing to say; the connection closes.
    pub(crate) fn refuse(self, error: ErrorCode) -> Option<Reply> {
        match self {
            Self::Join(member_id) => Some(Reply::Join(JoinReply::refused(error, member_id))),
            Self::Sync => Some(Reply::Sync(SyncReply::refused(error))),
            Self::Operate => Some(Reply::Operated(Err(unconfirmed(error)))),
            Self::Other => None,
        }
    }
}

fn overwrite(topics: &mut [TopicErrors], error: ErrorCode) {
    for topic in topics {
        for (_, outcome) in &mut topic.partitions {
            // What was refused for its own sake stays so.
            if *outcome == ErrorCode::None {
                *outcome = error;
            }
        }
    }
}

fn undescribed(group_id: &GroupId, error: ErrorCode) -> DescribeReply {
    DescribeReply {
        group_id: group_id.clone(),
        error,
        message: Some(why(error).to_owned()),
        state: "",
        protocol_type: "".into(),
        protocol: "".into(),
        members: Vec::new(),
    }
}

fn consumer_undescribed(group_id: &GroupId, error: ErrorCode) -> ConsumerDescribeReply {
    ConsumerDescribeReply {
        group_id: group_id.clone(),
        error,
        message: Some(why(error).to_owned()),
        state: "",
        group_epoch: 0,
        assignment_epoch: 0,
        assignor_name: "".into(),
        members: Vec::new(),
    }
}

/// What an operator is told whose action was under way.
fn unconfirmed(error: ErrorCode) -> NotDone {
    NotDone::unavailable(&format!(
        "{} Whether the action was done is not known: look at the group.",
        why(error)
    ))
}

fn why(error: ErrorCode) -> &'static str {
    match error {
        ErrorCode::CoordinatorLoadInProgress => "The coordinator is loading the group.",
        ErrorCode::CoordinatorNotAvailable => "The coordinator cannot store changes now.",
        _ => "The coordinator had to start anew.",
    }
}

#[cfg(test)]
mod tests {
    use super::super::request::Heartbeat;
    use super::super::types::TopicRef;
    use super::*;

    #[test]
    fn a_heartbeat_is_fine_while_its_shard_is_loaded_and_refused_when_it_fails() {
        let beat = Request::Heartbeat(Heartbeat {
            group_id: "g".into(),
            generation: 1,
            member_id: "m".into(),
            group_instance_id: None,
        });
        let loading = refuse(&beat, ErrorCode::CoordinatorLoadInProgress);
        assert_eq!(loading, Reply::Heartbeat(ErrorCode::None));
        let failed = refuse(&beat, ErrorCode::NotCoordinator);
        assert_eq!(failed, Reply::Heartbeat(ErrorCode::NotCoordinator));
    }

    #[test]
    fn a_commit_that_is_revoked_keeps_the_errors_it_had() {
        let reply = Reply::OffsetCommit(OffsetCommitReply {
            topics: vec![TopicErrors {
                topic: TopicRef::Name("t".into()),
                partitions: vec![
                    (0, ErrorCode::None),
                    (1, ErrorCode::UnknownTopicOrPartition),
                ],
            }],
        });
        let Reply::OffsetCommit(revoked) = revoke(reply, ErrorCode::CoordinatorNotAvailable) else {
            panic!("a commit stays a commit")
        };
        assert_eq!(
            revoked.topics[0].partitions,
            [
                (0, ErrorCode::CoordinatorNotAvailable),
                (1, ErrorCode::UnknownTopicOrPartition)
            ]
        );
    }
}
