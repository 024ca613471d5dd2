//! Replies as a client reads them, and what a version keeps from it.

use std::sync::Arc;

use crate::group::request::{
    ConsumerDescribeReply, ConsumerDescribedMember, ConsumerHeartbeatReply, DescribeReply,
    DescribedMember, DescribedPartitions, ErrorCode, FetchedPartition, FetchedTopic, JoinReply,
    JoinedMember, LeaveReply, LeftMember, ListReply, ListedGroup, OffsetCommitReply,
    OffsetDeleteReply, OffsetFetchReply, Reply, SyncReply, TopicErrors,
};
use crate::group::types::{Client, TopicRef};
use crate::wire::Flaw;
use crate::wire::api::Api;
use crate::wire::bytes::{Read, Reader};

/// The texts that a server tells states and types with.
const TEXTS: [&str; 10] = [
    "",
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Stable",
    "Dead",
    "Assigning",
    "Reconciling",
    "classic",
    "consumer",
];

/// Leaves out what the version has no room for.
pub(super) fn simplify(reply: &mut Reply, version: i16) {
    match reply {
        Reply::Join(reply) => {
            reply.protocol_name.take_if(|name| name.is_empty());
            if version < 5 {
                for member in &mut reply.members {
                    member.group_instance_id = None;
                }
            }
            if version < 7 {
                reply.protocol_type = None;
            }
            if version < 9 {
                reply.skip_assignment = false;
            }
        }
        Reply::Sync(reply) if version < 5 => {
            reply.protocol_type = None;
            reply.protocol_name = None;
        }
        Reply::Leave(reply) if version < 3 => {
            let first = reply.members.first();
            if reply.error == ErrorCode::None {
                reply.error = first.map_or(ErrorCode::None, |member| member.error);
            }
            reply.members.clear();
        }
        Reply::List(reply) => {
            for group in &mut reply.groups {
                if version < 4 {
                    group.state = "";
                }
                if version < 5 {
                    group.group_type = "";
                }
            }
        }
        Reply::Describe(reply) => {
            if version < 6 {
                reply.message = None;
            }
            if version < 4 {
                for member in &mut reply.members {
                    member.group_instance_id = None;
                }
            }
        }
        Reply::OffsetFetch(reply) => {
            if version < 8 {
                reply.group_id = Arc::default();
            }
            if version < 5 {
                let topics = reply.topics.iter_mut();
                for partition in topics.flat_map(|topic| &mut topic.partitions) {
                    partition.leader_epoch = -1;
                }
            }
        }
        Reply::ConsumerDescribe(reply) if version < 1 => {
            for member in &mut reply.members {
                member.is_classic = false;
            }
        }
        _ => {}
    }
}

/// Reads a whole frame, its size in front.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(
    frame: &[u8],
    api: &Api,
    version: i16,
    correlation_id: i32,
) -> Result<Reply, String> {
    read_body(frame, api, version, correlation_id, |r| {
        read_reply(r, api.key, version)
    })?
}

/// Reads a whole frame, and with `body` what stands behind the time for which the client is held back.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read_body<T>(
    frame: &[u8],
    api: &Api,
    version: i16,
    correlation_id: i32,
    body: impl FnOnce(&mut Reader<'_>) -> Read<T>,
) -> Result<T, String> {
    let mut r = Reader::new(frame, false);
    let read = read_head(&mut r, api, version, correlation_id)
        .map_err(|refusal| refusal.to_string())?
        .map(|()| body(&mut r).and_then(|read| r.tags().map(|()| read)))?
        .map_err(|refusal| refusal.to_string())?;
    match r.left() {
        0 => Ok(read),
        left => Err(format!("{left} bytes are left over")),
    }
}

/// A code that the core does not know is no failure to read, but wrong all the same.
type Found<T> = Result<T, String>;

fn read_head(r: &mut Reader<'_>, api: &Api, version: i16, correlation_id: i32) -> Read<Found<()>> {
    let size = r.i32()?;
    if usize::try_from(size).ok() != Some(r.left()) {
        return Ok(Err(format!("a frame of {} bytes says {size}", r.left())));
    }
    let told = r.i32()?;
    if told != correlation_id {
        return Ok(Err(format!("{told} is answered, not {correlation_id}")));
    }
    r.set_flexible(api.is_flexible(version));
    if api.reply_header_version(version) == 1 {
        r.tags()?;
    }
    let throttled = match api.key {
        11 => version >= 2,
        8 | 9 => version >= 3,
        12..=16 | 20 => version >= 1,
        47 => false,
        _ => true,
    };
    if throttled {
        r.i32()?;
    }
    Ok(Ok(()))
}

fn read_reply(r: &mut Reader<'_>, key: i16, version: i16) -> Read<Found<Reply>> {
    let reply = match key {
        8 => commit(r, version)?,
        9 => fetch(r, version)?,
        11 => join(r, version)?,
        12 => Reply::Heartbeat(error(r)?),
        13 => leave(r, version)?,
        14 => sync(r, version)?,
        15 => describe(r, version)?,
        16 => list(r, version)?,
        42 => delete(r, version)?,
        47 => delete_offsets(r)?,
        68 => consumer_heartbeat(r)?,
        69 => consumer_describe(r, version)?,
        key => return Ok(Err(format!("API {key} is none of a group"))),
    };
    Ok(Ok(reply))
}

/// A code that nobody knows is read as the one that stands for all that cannot be.
fn error(r: &mut Reader<'_>) -> Read<ErrorCode> {
    Ok(ErrorCode::from_code(r.i16()?).unwrap_or(ErrorCode::UnknownServerError))
}

fn text(r: &mut Reader<'_>) -> Read<&'static str> {
    let read = r.string()?;
    Ok(TEXTS
        .into_iter()
        .find(|text| **text == *read)
        .unwrap_or("a text that nobody knows"))
}

fn message(r: &mut Reader<'_>) -> Read<Option<String>> {
    Ok(r.nullable_string()?.map(|text| text.to_string()))
}

/// The one answer to a request about one group.
fn single<T>(r: &Reader<'_>, mut groups: Vec<T>) -> Read<T> {
    match (groups.pop(), groups.is_empty()) {
        (Some(reply), true) => Ok(reply),
        _ => r.refuse(Flaw::Null),
    }
}

/// What the client may do, for which it has not asked.
fn operations(r: &mut Reader<'_>) -> Read<()> {
    r.i32().map(drop)
}

fn topic(r: &mut Reader<'_>, by_id: bool) -> Read<TopicRef> {
    if by_id {
        r.topic_id().map(TopicRef::Id)
    } else {
        r.string().map(TopicRef::Name)
    }
}

fn commit(r: &mut Reader<'_>, version: i16) -> Read<Reply> {
    let topics = r.items(1, |r| {
        let topic = topic(r, version >= 10)?;
        let partitions = r.items(6, |r| {
            let outcome = (r.i32()?, error(r)?);
            r.tags()?;
            Ok(outcome)
        })?;
        r.tags()?;
        Ok(TopicErrors { topic, partitions })
    })?;
    Ok(Reply::OffsetCommit(OffsetCommitReply { topics }))
}

fn delete_offsets(r: &mut Reader<'_>) -> Read<Reply> {
    let error_code = error(r)?;
    r.i32()?;
    let topics = r.items(1, |r| {
        Ok(TopicErrors {
            topic: topic(r, false)?,
            partitions: r.items(6, |r| Ok((r.i32()?, error(r)?)))?,
        })
    })?;
    Ok(Reply::OffsetDelete(OffsetDeleteReply {
        error: error_code,
        topics,
    }))
}

fn fetch(r: &mut Reader<'_>, version: i16) -> Read<Reply> {
    let group = |r: &mut Reader<'_>, group_id: Arc<str>| {
        let topics = r.items(1, |r| {
            let topic = topic(r, version >= 10)?;
            let partitions = r.items(14, |r| {
                let partition = FetchedPartition {
                    index: r.i32()?,
                    offset: r.i64()?,
                    leader_epoch: if version >= 5 { r.i32()? } else { -1 },
                    metadata: r.nullable_string()?.unwrap_or_default(),
                    error: error(r)?,
                };
                r.tags()?;
                Ok(partition)
            })?;
            r.tags()?;
            Ok(FetchedTopic { topic, partitions })
        })?;
        let error = if version >= 2 {
            error(r)?
        } else {
            ErrorCode::None
        };
        Ok(OffsetFetchReply {
            group_id,
            error,
            topics,
        })
    };
    if version < 8 {
        return group(r, Arc::default()).map(Reply::OffsetFetch);
    }
    let groups = r.items(1, |r| {
        let group_id = r.string()?;
        let reply = group(r, group_id)?;
        r.tags()?;
        Ok(reply)
    })?;
    single(r, groups).map(Reply::OffsetFetch)
}

fn join(r: &mut Reader<'_>, version: i16) -> Read<Reply> {
    let error = error(r)?;
    let generation = r.i32()?;
    let protocol_type = if version >= 7 {
        r.nullable_string()?
    } else {
        None
    };
    let mut protocol_name = r.nullable_string()?;
    if version < 7 {
        protocol_name.take_if(|name| name.is_empty());
    }
    let leader = r.string()?;
    let skip_assignment = version >= 9 && r.bool()?;
    let member_id = r.string()?;
    let members = r.items(1, |r| {
        let member = JoinedMember {
            member_id: r.string()?,
            group_instance_id: if version >= 5 {
                r.nullable_string()?
            } else {
                None
            },
            metadata: r.bytes()?,
        };
        r.tags()?;
        Ok(member)
    })?;
    Ok(Reply::Join(JoinReply {
        error,
        generation,
        protocol_type,
        protocol_name,
        leader,
        skip_assignment,
        member_id,
        members,
    }))
}

fn sync(r: &mut Reader<'_>, version: i16) -> Read<Reply> {
    let error = error(r)?;
    let (protocol_type, protocol_name) = if version >= 5 {
        (r.nullable_string()?, r.nullable_string()?)
    } else {
        (None, None)
    };
    Ok(Reply::Sync(SyncReply {
        error,
        protocol_type,
        protocol_name,
        assignment: r.bytes()?,
    }))
}

fn leave(r: &mut Reader<'_>, version: i16) -> Read<Reply> {
    let group_error = error(r)?;
    let members = if version >= 3 {
        r.items(1, |r| {
            let member = LeftMember {
                member_id: r.string()?,
                group_instance_id: r.nullable_string()?,
                error: error(r)?,
            };
            r.tags()?;
            Ok(member)
        })?
    } else {
        Vec::new()
    };
    Ok(Reply::Leave(LeaveReply {
        error: group_error,
        members,
    }))
}

fn list(r: &mut Reader<'_>, version: i16) -> Read<Reply> {
    let error = error(r)?;
    let groups = r.items(1, |r| {
        let group = ListedGroup {
            group_id: r.string()?,
            protocol_type: r.string()?,
            state: if version >= 4 { text(r)? } else { "" },
            group_type: if version >= 5 { text(r)? } else { "" },
        };
        r.tags()?;
        Ok(group)
    })?;
    Ok(Reply::List(ListReply { error, groups }))
}

fn describe(r: &mut Reader<'_>, version: i16) -> Read<Reply> {
    let groups = r.items(1, |r| {
        let error = error(r)?;
        let message = if version >= 6 { message(r)? } else { None };
        let reply = DescribeReply {
            error,
            message,
            group_id: r.string()?,
            state: text(r)?,
            protocol_type: r.string()?,
            protocol: r.string()?,
            members: r.items(1, |r| described(r, version))?,
        };
        if version >= 3 {
            operations(r)?;
        }
        r.tags()?;
        Ok(reply)
    })?;
    single(r, groups).map(Reply::Describe)
}

fn described(r: &mut Reader<'_>, version: i16) -> Read<DescribedMember> {
    let member = DescribedMember {
        member_id: r.string()?,
        group_instance_id: if version >= 4 {
            r.nullable_string()?
        } else {
            None
        },
        client: Client {
            id: r.string()?,
            host: r.string()?,
        },
        metadata: r.bytes()?,
        assignment: r.bytes()?,
    };
    r.tags()?;
    Ok(member)
}

fn delete(r: &mut Reader<'_>, version: i16) -> Read<Reply> {
    let groups = r.items(1, |r| {
        let outcome = (r.string()?, error(r)?);
        if version >= 3 {
            message(r)?;
        }
        r.tags()?;
        Ok(outcome)
    })?;
    let (group_id, error) = single(r, groups)?;
    Ok(Reply::Delete { group_id, error })
}

fn consumer_heartbeat(r: &mut Reader<'_>) -> Read<Reply> {
    let reply = ConsumerHeartbeatReply {
        error: error(r)?,
        message: message(r)?,
        member_id: r.nullable_string()?,
        member_epoch: r.i32()?,
        heartbeat_interval_ms: r.i32()?,
        assignment: if r.i8()? < 0 {
            None
        } else {
            let topics = r.items(1, |r| {
                let topic = (r.topic_id()?, r.items(4, Reader::i32)?);
                r.tags()?;
                Ok(topic)
            })?;
            r.tags()?;
            Some(topics)
        },
    };
    Ok(Reply::ConsumerHeartbeat(reply))
}

fn consumer_describe(r: &mut Reader<'_>, version: i16) -> Read<Reply> {
    let groups = r.items(1, |r| {
        let reply = ConsumerDescribeReply {
            error: error(r)?,
            message: message(r)?,
            group_id: r.string()?,
            state: text(r)?,
            group_epoch: r.i32()?,
            assignment_epoch: r.i32()?,
            assignor_name: r.string()?,
            members: r.items(1, |r| consumer_described(r, version))?,
        };
        operations(r)?;
        r.tags()?;
        Ok(reply)
    })?;
    single(r, groups).map(Reply::ConsumerDescribe)
}

fn consumer_described(r: &mut Reader<'_>, version: i16) -> Read<ConsumerDescribedMember> {
    let mut member = ConsumerDescribedMember {
        member_id: r.string()?,
        instance_id: r.nullable_string()?,
        rack_id: r.nullable_string()?,
        member_epoch: r.i32()?,
        client: Client {
            id: r.string()?,
            host: r.string()?,
        },
        subscribed_topic_names: r.items(1, Reader::string)?,
        subscribed_topic_regex: r.nullable_string()?.unwrap_or_default(),
        assignment: partitions(r)?,
        target_assignment: partitions(r)?,
        is_classic: false,
    };
    if version >= 1 {
        member.is_classic = r.i8()? == 0;
    }
    r.tags()?;
    Ok(member)
}

fn partitions(r: &mut Reader<'_>) -> Read<Vec<DescribedPartitions>> {
    let topics = r.items(1, |r| {
        let topic = DescribedPartitions {
            topic_id: r.topic_id()?,
            topic_name: r.string()?,
            partitions: r.items(4, Reader::i32)?,
        };
        r.tags()?;
        Ok(topic)
    })?;
    r.tags()?;
    Ok(topics)
}
