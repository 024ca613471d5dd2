//! Group requests and replies, version by version: what a version *means* becomes a field with a
//! name on the way in, and is undone on the way out.
//!
//! Each reader is called after the guard. Whatever the core may keep is copied out of the frame.

use std::sync::Arc;

use super::Call;
use super::bytes::{Read, Reader, Writer};
use super::guard::{Flaw, NAME_BYTES_MAX};
use crate::group::request::{
    ConsumerDescribeReply, ConsumerHeartbeat, ConsumerHeartbeatReply, Describe, DescribeReply,
    DescribedPartitions, ErrorCode, Heartbeat, Join, JoinReply, Leave, LeaveReply, LeavingMember,
    List, ListReply, Protocol, Reply, Request, Sync, SyncReply,
};
use crate::group::types::{Client, GroupId};

/// "Not asked for", where a reply tells what the client may do.
const NO_OPERATIONS: i32 = i32::MIN;

/// JoinGroup: 1 rebalance timeout; 4 member id required (KIP-394); 5 instance id (KIP-345); 6
/// flexible; 7 protocol type in the reply; 8 reason (KIP-800); 9 skip assignment (KIP-814).
pub(super) fn join(r: &mut Reader<'_>, version: i16, client: &Client) -> Read<Call> {
    let group_id = r.string()?;
    let session_timeout_ms = r.i32()?;
    let rebalance_timeout_ms = if version >= 1 {
        r.i32()?
    } else {
        session_timeout_ms
    };
    let member_id = r.string()?;
    let group_instance_id = if version >= 5 {
        r.nullable_string()?
    } else {
        None
    };
    if let Some(bytes) = group_instance_id.as_ref().map(|id: &Arc<str>| id.len())
        && bytes > NAME_BYTES_MAX
    {
        return r.refuse(Flaw::StringTooLong { bytes });
    }
    let protocol_type = r.string()?;
    let protocols = r.items(3, |r| {
        let (name, metadata) = (r.string()?, r.bytes()?);
        r.tags()?;
        Ok(Protocol { name, metadata })
    })?;
    let reason = if version >= 8 {
        r.nullable_string()?
    } else {
        None
    };
    Ok(Call::Group(Request::Join(Join {
        group_id,
        client: client.clone(),
        session_timeout_ms,
        rebalance_timeout_ms,
        member_id,
        group_instance_id,
        protocol_type,
        protocols,
        reason,
        member_id_required: version >= 4,
        skip_assignment: version >= 9,
    })))
}

/// JoinGroup: 2 throttle time. Before 7 the protocol's name cannot be null, since 7 it cannot be empty.
fn write_join(w: &mut Writer, version: i16, reply: &JoinReply) {
    if version >= 2 {
        w.i32(0);
    }
    w.i16(reply.error.code());
    w.i32(reply.generation);
    let protocol = reply.protocol_name.as_deref();
    if version >= 7 {
        w.nullable_string(reply.protocol_type.as_deref());
        w.nullable_string(protocol.filter(|name| !name.is_empty()));
    } else {
        w.string(protocol.unwrap_or_default());
    }
    w.string(&reply.leader);
    if version >= 9 {
        w.bool(reply.skip_assignment);
    }
    w.string(&reply.member_id);
    w.items(&reply.members, |w, member| {
        w.string(&member.member_id);
        if version >= 5 {
            w.nullable_string(member.group_instance_id.as_deref());
        }
        w.bytes(&member.metadata);
        w.tags();
    });
    w.tags();
}

/// SyncGroup: 3 instance id; 4 flexible; 5 protocol type and name, which must be there.
pub(super) fn sync(r: &mut Reader<'_>, version: i16) -> Read<Call> {
    let group_id = r.string()?;
    let generation = r.i32()?;
    let member_id = r.string()?;
    let group_instance_id = if version >= 3 {
        r.nullable_string()?
    } else {
        None
    };
    let (protocol_type, protocol_name) = if version >= 5 {
        (r.nullable_string()?, r.nullable_string()?)
    } else {
        (None, None)
    };
    let assignments = r.items(3, |r| {
        let (member_id, assignment) = (r.string()?, r.bytes()?);
        r.tags()?;
        Ok((member_id, assignment))
    })?;
    Ok(Call::Group(Request::Sync(Sync {
        group_id,
        generation,
        member_id,
        group_instance_id,
        protocol_type,
        protocol_name,
        protocol_required: version >= 5,
        assignments,
    })))
}

/// SyncGroup: 1 throttle time; 5 protocol type and name.
fn write_sync(w: &mut Writer, version: i16, reply: &SyncReply) {
    if version >= 1 {
        w.i32(0);
    }
    w.i16(reply.error.code());
    if version >= 5 {
        w.nullable_string(reply.protocol_type.as_deref());
        w.nullable_string(reply.protocol_name.as_deref());
    }
    w.bytes(&reply.assignment);
    w.tags();
}

/// Heartbeat: 3 instance id; 4 flexible.
pub(super) fn heartbeat(r: &mut Reader<'_>, version: i16) -> Read<Call> {
    let group_id = r.string()?;
    let generation = r.i32()?;
    let member_id = r.string()?;
    let group_instance_id = if version >= 3 {
        r.nullable_string()?
    } else {
        None
    };
    let heartbeat = Heartbeat {
        group_id,
        generation,
        member_id,
        group_instance_id,
    };
    Ok(Call::Group(Request::Heartbeat(heartbeat)))
}

/// Heartbeat: 1 throttle time.
fn write_heartbeat(w: &mut Writer, version: i16, error: ErrorCode) {
    if version >= 1 {
        w.i32(0);
    }
    w.i16(error.code());
    w.tags();
}

/// LeaveGroup: 3 a batch of members with instance ids; 4 flexible; 5 reason (KIP-800).
pub(super) fn leave(r: &mut Reader<'_>, version: i16) -> Read<Call> {
    let group_id = r.string()?;
    let members = if version >= 3 {
        r.items(3, |r| {
            let member_id = r.string()?;
            let group_instance_id = r.nullable_string()?;
            let reason = if version >= 5 {
                r.nullable_string()?
            } else {
                None
            };
            r.tags()?;
            Ok(LeavingMember {
                member_id,
                group_instance_id,
                reason,
            })
        })?
    } else {
        vec![LeavingMember {
            member_id: r.string()?,
            group_instance_id: None,
            reason: None,
        }]
    };
    Ok(Call::Group(Request::Leave(Leave { group_id, members })))
}

/// LeaveGroup: 1 throttle time; 3 an entry per member. Before, the one member's error is the reply's.
fn write_leave(w: &mut Writer, version: i16, reply: &LeaveReply) {
    if version >= 1 {
        w.i32(0);
    }
    let mut error = reply.error;
    if version < 3 && error == ErrorCode::None {
        error = reply.members.first().map_or(error, |member| member.error);
    }
    w.i16(error.code());
    if version >= 3 {
        w.items(&reply.members, |w, member| {
            w.string(&member.member_id);
            w.nullable_string(member.group_instance_id.as_deref());
            w.i16(member.error.code());
            w.tags();
        });
    }
    w.tags();
}

/// ListGroups: 3 flexible; 4 states (KIP-518); 5 types (KIP-848).
pub(super) fn list(r: &mut Reader<'_>, version: i16) -> Read<Call> {
    let states = if version >= 4 {
        r.items(1, Reader::string)?
    } else {
        Vec::new()
    };
    let types = if version >= 5 {
        r.items(1, Reader::string)?
    } else {
        Vec::new()
    };
    Ok(Call::Group(Request::List(List { states, types })))
}

/// ListGroups: 1 throttle time; 4 state; 5 type.
fn write_list(w: &mut Writer, version: i16, reply: &ListReply) {
    if version >= 1 {
        w.i32(0);
    }
    w.i16(reply.error.code());
    w.items(&reply.groups, |w, group| {
        w.string(&group.group_id);
        w.string(&group.protocol_type);
        if version >= 4 {
            w.string(group.state);
        }
        if version >= 5 {
            w.string(group.group_type);
        }
        w.tags();
    });
    w.tags();
}

/// DescribeGroups: 3 authorised operations; 5 flexible; 6 an unknown group is an error.
pub(super) fn describe(r: &mut Reader<'_>, version: i16) -> Read<Call> {
    let unknown_is_error = version >= 6;
    let groups = r.items(1, |r| {
        Ok(Describe {
            group_id: r.string()?,
            unknown_is_error,
        })
    })?;
    let include_authorized_operations = version >= 3 && r.bool()?;
    Ok(Call::DescribeGroups {
        groups,
        include_authorized_operations,
    })
}

/// DescribeGroups: 1 throttle time; 3 authorised operations; 4 instance ids; 6 a message.
pub(super) fn write_describe(
    w: &mut Writer,
    version: i16,
    groups: &[DescribeReply],
    authorized_operations: Option<i32>,
) {
    if version >= 1 {
        w.i32(0);
    }
    w.items(groups, |w, group| {
        w.i16(group.error.code());
        if version >= 6 {
            w.nullable_string(group.message.as_deref());
        }
        w.string(&group.group_id);
        w.string(group.state);
        w.string(&group.protocol_type);
        w.string(&group.protocol);
        w.items(&group.members, |w, member| {
            w.string(&member.member_id);
            if version >= 4 {
                w.nullable_string(member.group_instance_id.as_deref());
            }
            w.string(&member.client.id);
            w.string(&member.client.host);
            w.bytes(&member.metadata);
            w.bytes(&member.assignment);
            w.tags();
        });
        if version >= 3 {
            w.i32(operations(group.error, authorized_operations));
        }
        w.tags();
    });
    w.tags();
}

fn operations(error: ErrorCode, authorized: Option<i32>) -> i32 {
    authorized
        .filter(|_| error == ErrorCode::None)
        .unwrap_or(NO_OPERATIONS)
}

/// DeleteGroups: 2 flexible.
pub(super) fn delete(r: &mut Reader<'_>) -> Read<Call> {
    Ok(Call::DeleteGroups(r.items(1, Reader::string)?))
}

/// DeleteGroups: 3 a message, which only Kafka's plug-ins fill.
pub(super) fn write_delete(w: &mut Writer, version: i16, groups: &[(GroupId, ErrorCode)]) {
    w.i32(0);
    w.items(groups, |w, (group_id, error)| {
        w.string(group_id);
        w.i16(error.code());
        if version >= 3 {
            w.nullable_string(None);
        }
        w.tags();
    });
    w.tags();
}

/// ConsumerGroupHeartbeat: 1 regular expressions, and the client chooses its member id.
pub(super) fn consumer_heartbeat(r: &mut Reader<'_>, version: i16, client: &Client) -> Read<Call> {
    let heartbeat = ConsumerHeartbeat {
        group_id: r.string()?,
        client: client.clone(),
        member_id: r.string()?,
        member_epoch: r.i32()?,
        instance_id: r.nullable_string()?,
        rack_id: r.nullable_string()?,
        rebalance_timeout_ms: r.i32()?,
        subscribed_topic_names: r.nullable_array(1, Reader::string)?,
        subscribed_topic_regex: if version >= 1 {
            r.nullable_string()?
        } else {
            None
        },
        server_assignor: r.nullable_string()?,
        topic_partitions: r.nullable_array(18, |r| {
            let (topic_id, partitions) = (r.topic_id()?, r.items(4, Reader::i32)?);
            r.tags()?;
            Ok((topic_id, partitions))
        })?,
        member_id_from_client: version >= 1,
    };
    Ok(Call::Group(Request::ConsumerHeartbeat(heartbeat)))
}

fn write_consumer_heartbeat(w: &mut Writer, reply: &ConsumerHeartbeatReply) {
    w.i32(0);
    w.i16(reply.error.code());
    w.nullable_string(reply.message.as_deref());
    w.nullable_string(reply.member_id.as_deref());
    w.i32(reply.member_epoch);
    w.i32(reply.heartbeat_interval_ms);
    match &reply.assignment {
        None => w.i8(-1),
        Some(topics) => {
            w.i8(1);
            w.items(topics, |w, (topic_id, partitions)| {
                w.topic_id(*topic_id);
                w.items(partitions, |w, partition| w.i32(*partition));
                w.tags();
            });
            w.tags();
        }
    }
    w.tags();
}

/// ConsumerGroupDescribe.
pub(super) fn consumer_describe(r: &mut Reader<'_>) -> Read<Call> {
    let group_ids = r.items(1, Reader::string)?;
    let include_authorized_operations = r.bool()?;
    Ok(Call::ConsumerGroupDescribe {
        group_ids,
        include_authorized_operations,
    })
}

/// ConsumerGroupDescribe: 1 member type.
pub(super) fn write_consumer_describe(
    w: &mut Writer,
    version: i16,
    groups: &[ConsumerDescribeReply],
    authorized_operations: Option<i32>,
) {
    w.i32(0);
    w.items(groups, |w, group| {
        w.i16(group.error.code());
        w.nullable_string(group.message.as_deref());
        w.string(&group.group_id);
        w.string(group.state);
        w.i32(group.group_epoch);
        w.i32(group.assignment_epoch);
        w.string(&group.assignor_name);
        w.items(&group.members, |w, member| {
            w.string(&member.member_id);
            w.nullable_string(member.instance_id.as_deref());
            w.nullable_string(member.rack_id.as_deref());
            w.i32(member.member_epoch);
            w.string(&member.client.id);
            w.string(&member.client.host);
            w.items(&member.subscribed_topic_names, |w, name| w.string(name));
            w.nullable_string(Some(&member.subscribed_topic_regex));
            write_assignment(w, &member.assignment);
            write_assignment(w, &member.target_assignment);
            if version >= 1 {
                w.i8(i8::from(!member.is_classic));
            }
            w.tags();
        });
        w.i32(operations(group.error, authorized_operations));
        w.tags();
    });
    w.tags();
}

fn write_assignment(w: &mut Writer, topics: &[DescribedPartitions]) {
    w.items(topics, |w, topic| {
        w.topic_id(topic.topic_id);
        w.string(&topic.topic_name);
        w.items(&topic.partitions, |w, partition| w.i32(*partition));
        w.tags();
    });
    w.tags();
}

/// Writes the reply to a request about one group, or to ListGroups.
pub(super) fn write(w: &mut Writer, version: i16, reply: &Reply) {
    match reply {
        Reply::Join(reply) => write_join(w, version, reply),
        Reply::Sync(reply) => write_sync(w, version, reply),
        Reply::Heartbeat(error) => write_heartbeat(w, version, *error),
        Reply::Leave(reply) => write_leave(w, version, reply),
        Reply::List(reply) => write_list(w, version, reply),
        Reply::OffsetCommit(reply) => super::offsets::write_commit(w, version, reply),
        Reply::OffsetDelete(reply) => super::offsets::write_delete(w, reply),
        Reply::ConsumerHeartbeat(reply) => write_consumer_heartbeat(w, reply),
        Reply::OffsetFetch(reply) => {
            super::offsets::write_fetch(w, version, std::slice::from_ref(reply), None);
        }
        Reply::Describe(reply) => write_describe(w, version, std::slice::from_ref(reply), None),
        Reply::Delete { group_id, error } => {
            write_delete(w, version, &[(group_id.clone(), *error)]);
        }
        Reply::ConsumerDescribe(reply) => {
            write_consumer_describe(w, version, std::slice::from_ref(reply), None);
        }
        // No call on the wire asks for these.
        Reply::Inspected(_) | Reply::Previewed(_) => {}
        Reply::Operated(_) => {}
    }
}
