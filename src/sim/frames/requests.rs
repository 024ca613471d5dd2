//! Requests as a client writes them: which versions can say something, what the chosen one leaves out, and its bytes.

use std::ops::RangeInclusive;

use crate::group::request::{FetchTopic, OffsetCommit, Request};
use crate::group::types::TopicRef;
use crate::wire::bytes::Writer;

const ANY: i16 = i16::MAX;

/// The API's key and the versions that can say it.
pub(super) fn versions(request: &Request) -> (i16, RangeInclusive<i16>) {
    match request {
        Request::OffsetCommit(request) => (8, commit_versions(request)),
        Request::OffsetFetch(request) => {
            let by_id = request.by_topic_id;
            let low = match request.topics {
                _ if by_id => 10,
                _ if request.member_id.is_some() => 9,
                _ if request.require_stable => 7,
                None => 2,
                Some(_) => 1,
            };
            (9, low..=if by_id { ANY } else { 9 })
        }
        Request::Join(request) => {
            let is_static = request.group_instance_id.is_some();
            let range = match (request.skip_assignment, request.member_id_required) {
                (true, _) => 9..=ANY,
                (false, _) if is_static => 5..=8,
                (false, true) => 4..=8,
                (false, false) => 0..=3,
            };
            (11, range)
        }
        Request::Heartbeat(request) => {
            let is_static = request.group_instance_id.is_some();
            (12, if is_static { 3 } else { 0 }..=ANY)
        }
        Request::Leave(request) => {
            let batch = request.members.len() != 1
                || request
                    .members
                    .iter()
                    .any(|m| m.group_instance_id.is_some());
            (13, if batch { 3 } else { 0 }..=ANY)
        }
        Request::Sync(request) if request.protocol_required => (14, 5..=ANY),
        Request::Sync(request) => {
            let is_static = request.group_instance_id.is_some();
            (14, if is_static { 3 } else { 0 }..=4)
        }
        Request::Describe(request) if request.unknown_is_error => (15, 6..=ANY),
        Request::Describe(_) => (15, 0..=5),
        Request::List(request) => {
            let low = match (request.types.is_empty(), request.states.is_empty()) {
                (false, _) => 5,
                (true, false) => 4,
                (true, true) => 0,
            };
            (16, low..=ANY)
        }
        Request::Delete { .. } => (42, 0..=ANY),
        Request::OffsetDelete(_) => (47, 0..=ANY),
        Request::ConsumerHeartbeat(request) if request.member_id_from_client => (68, 1..=ANY),
        Request::ConsumerHeartbeat(_) => (68, 0..=0),
        Request::ConsumerDescribe { .. } => (69, 0..=ANY),
        Request::Inspect(_) => unreachable!("operators do not come over the wire"),
        Request::Operate(_) => unreachable!("operators do not come over the wire"),
    }
}

fn commit_versions(request: &OffsetCommit) -> RangeInclusive<i16> {
    let by_id = request
        .topics
        .iter()
        .any(|topic| matches!(topic.topic, TopicRef::Id(_)));
    if by_id {
        10..=ANY
    } else if request.consumer_errors {
        9..=9
    } else if request.group_instance_id.is_some() {
        7..=8
    } else if request.retention_time_ms.is_some() {
        2..=4
    } else {
        2..=8
    }
}

/// Leaves out what the version has no room for, and says what it says by itself.
pub(super) fn simplify(request: &mut Request, version: i16) {
    match request {
        Request::Join(request) => {
            if version < 1 {
                request.rebalance_timeout_ms = request.session_timeout_ms;
            }
            if version < 8 {
                request.reason = None;
            }
            request.member_id_required = version >= 4;
            request.skip_assignment = version >= 9;
        }
        Request::Sync(request) if version < 5 => {
            request.protocol_type = None;
            request.protocol_name = None;
        }
        Request::Leave(request) if version < 5 => {
            for member in &mut request.members {
                member.reason = None;
            }
        }
        Request::OffsetCommit(request) => {
            if version > 4 {
                request.retention_time_ms = None;
            }
            request.consumer_errors = version >= 9;
            if version < 6 {
                let topics = request.topics.iter_mut();
                for partition in topics.flat_map(|topic| &mut topic.partitions) {
                    partition.leader_epoch = -1;
                }
            }
        }
        _ => {}
    }
}

/// Writes the body.
pub(super) fn write(w: &mut Writer, version: i16, request: &Request) {
    match request {
        Request::OffsetCommit(request) => write_commit(w, version, request),
        Request::OffsetFetch(request) if version >= 8 => {
            w.items(std::slice::from_ref(request), |w, request| {
                w.string(&request.group_id);
                if version >= 9 {
                    w.nullable_string(request.member_id.as_deref());
                    w.i32(request.member_epoch);
                }
                write_topics(w, request.topics.as_deref());
                w.tags();
            });
            w.bool(request.require_stable);
        }
        Request::OffsetFetch(request) => {
            w.string(&request.group_id);
            write_topics(w, request.topics.as_deref());
            if version >= 7 {
                w.bool(request.require_stable);
            }
        }
        Request::Join(request) => {
            w.string(&request.group_id);
            w.i32(request.session_timeout_ms);
            if version >= 1 {
                w.i32(request.rebalance_timeout_ms);
            }
            w.string(&request.member_id);
            if version >= 5 {
                w.nullable_string(request.group_instance_id.as_deref());
            }
            w.string(&request.protocol_type);
            w.items(&request.protocols, |w, protocol| {
                w.string(&protocol.name);
                w.bytes(&protocol.metadata);
                w.tags();
            });
            if version >= 8 {
                w.nullable_string(request.reason.as_deref());
            }
        }
        Request::Heartbeat(request) => {
            w.string(&request.group_id);
            w.i32(request.generation);
            w.string(&request.member_id);
            if version >= 3 {
                w.nullable_string(request.group_instance_id.as_deref());
            }
        }
        Request::Leave(request) => {
            w.string(&request.group_id);
            if version >= 3 {
                w.items(&request.members, |w, member| {
                    w.string(&member.member_id);
                    w.nullable_string(member.group_instance_id.as_deref());
                    if version >= 5 {
                        w.nullable_string(member.reason.as_deref());
                    }
                    w.tags();
                });
            } else {
                request.members.iter().for_each(|m| w.string(&m.member_id));
            }
        }
        Request::Sync(request) => {
            w.string(&request.group_id);
            w.i32(request.generation);
            w.string(&request.member_id);
            if version >= 3 {
                w.nullable_string(request.group_instance_id.as_deref());
            }
            if version >= 5 {
                w.nullable_string(request.protocol_type.as_deref());
                w.nullable_string(request.protocol_name.as_deref());
            }
            w.items(&request.assignments, |w, (member_id, assignment)| {
                w.string(member_id);
                w.bytes(assignment);
                w.tags();
            });
        }
        Request::Describe(request) => {
            w.items(&[&request.group_id], |w, group_id| w.string(group_id));
            if version >= 3 {
                w.bool(false);
            }
        }
        Request::List(request) => {
            if version >= 4 {
                w.items(&request.states, |w, state| w.string(state));
            }
            if version >= 5 {
                w.items(&request.types, |w, kind| w.string(kind));
            }
        }
        Request::Delete { group_id } => w.items(&[group_id], |w, group_id| w.string(group_id)),
        Request::OffsetDelete(request) => {
            w.string(&request.group_id);
            w.items(&request.topics, |w, (topic, partitions)| {
                w.string(topic);
                w.items(partitions, |w, index| w.i32(*index));
            });
        }
        Request::ConsumerHeartbeat(_) => write_heartbeat(w, version, request),
        Request::ConsumerDescribe { group_id } => {
            w.items(&[group_id], |w, group_id| w.string(group_id));
            w.bool(false);
        }
        Request::Inspect(_) => unreachable!("operators do not come over the wire"),
        Request::Operate(_) => unreachable!("operators do not come over the wire"),
    }
    w.tags();
}

fn write_commit(w: &mut Writer, version: i16, request: &OffsetCommit) {
    w.string(&request.group_id);
    w.i32(request.generation_or_epoch);
    w.string(&request.member_id);
    if version >= 7 {
        w.nullable_string(request.group_instance_id.as_deref());
    }
    if version <= 4 {
        w.i64(request.retention_time_ms.unwrap_or(-1));
    }
    w.items(&request.topics, |w, topic| {
        write_topic(w, &topic.topic);
        w.items(&topic.partitions, |w, partition| {
            w.i32(partition.index);
            w.i64(partition.offset);
            if version >= 6 {
                w.i32(partition.leader_epoch);
            }
            let note = &*partition.metadata;
            w.nullable_string(Some(note).filter(|note| !note.is_empty()));
            w.tags();
        });
        w.tags();
    });
}

fn write_topic(w: &mut Writer, topic: &TopicRef) {
    match topic {
        TopicRef::Id(id) => w.topic_id(*id),
        TopicRef::Name(name) => w.string(name),
    }
}

fn write_topics(w: &mut Writer, topics: Option<&[FetchTopic]>) {
    w.nullable_items(topics, |w, topic| {
        write_topic(w, &topic.topic);
        w.items(&topic.partitions, |w, index| w.i32(*index));
        w.tags();
    });
}

fn write_heartbeat(w: &mut Writer, version: i16, request: &Request) {
    let Request::ConsumerHeartbeat(request) = request else {
        return w.fail("no heartbeat");
    };
    w.string(&request.group_id);
    w.string(&request.member_id);
    w.i32(request.member_epoch);
    w.nullable_string(request.instance_id.as_deref());
    w.nullable_string(request.rack_id.as_deref());
    w.i32(request.rebalance_timeout_ms);
    let names = request.subscribed_topic_names.as_deref();
    w.nullable_items(names, |w, name| w.string(name));
    if version >= 1 {
        w.nullable_string(request.subscribed_topic_regex.as_deref());
    }
    w.nullable_string(request.server_assignor.as_deref());
    let owned = request.topic_partitions.as_deref();
    w.nullable_items(owned, |w, (topic_id, partitions)| {
        w.topic_id(*topic_id);
        w.items(partitions, |w, index| w.i32(*index));
        w.tags();
    });
}
