//! Offset requests and replies, version by version.
//!
//! Version 10 of OffsetCommit and OffsetFetch speaks topic ids instead of names; the core keeps them
//! apart as [`TopicRef`].

use super::Call;
use super::bytes::{Read, Reader, Writer};
use crate::group::request::{
    CommitPartition, CommitTopic, ErrorCode, FetchTopic, FetchedPartition, FetchedTopic,
    OffsetCommit, OffsetCommitReply, OffsetDelete, OffsetDeleteReply, OffsetFetch,
    OffsetFetchReply, Request,
};
use crate::group::types::{Client, TopicRef};

/// The first version of OffsetCommit and OffsetFetch that speaks topic ids.
const TOPIC_IDS: i16 = 10;

fn topic(r: &mut Reader<'_>, version: i16) -> Read<TopicRef> {
    if version >= TOPIC_IDS {
        r.topic_id().map(TopicRef::Id)
    } else {
        r.string().map(TopicRef::Name)
    }
}

fn write_topic(w: &mut Writer, version: i16, topic: &TopicRef) {
    match topic {
        TopicRef::Id(id) if version >= TOPIC_IDS => w.topic_id(*id),
        TopicRef::Name(name) if version < TOPIC_IDS => w.string(name),
        TopicRef::Id(_) => w.fail("a topic id in a version of topic names"),
        TopicRef::Name(_) => w.fail("a topic name in a version of topic ids"),
    }
}

/// OffsetCommit: 2 to 4 retention time; 6 leader epoch; 7 instance id; 8 flexible; 9 errors of
/// consumer groups; 10 topic ids.
pub(super) fn commit(r: &mut Reader<'_>, version: i16, client: &Client) -> Read<Call> {
    let group_id = r.string()?;
    let generation_or_epoch = r.i32()?;
    let member_id = r.string()?;
    let group_instance_id = if version >= 7 {
        r.nullable_string()?
    } else {
        None
    };
    let retention_time_ms = if version <= 4 {
        Some(r.i64()?).filter(|ms| *ms != -1)
    } else {
        None
    };
    let topics = r.items(if version >= 8 { 3 } else { 6 }, |r| {
        let topic = topic(r, version)?;
        let partitions = r.items(14, |r| {
            let (index, offset) = (r.i32()?, r.i64()?);
            let leader_epoch = if version >= 6 { r.i32()? } else { -1 };
            let metadata = r.nullable_string()?.unwrap_or_default();
            r.tags()?;
            Ok(CommitPartition {
                index,
                offset,
                leader_epoch,
                metadata,
            })
        })?;
        r.tags()?;
        Ok(CommitTopic { topic, partitions })
    })?;
    Ok(Call::Group(Request::OffsetCommit(OffsetCommit {
        group_id,
        client: client.clone(),
        member_id,
        generation_or_epoch,
        group_instance_id,
        retention_time_ms,
        consumer_errors: version >= 9,
        topics,
    })))
}

/// OffsetCommit: 3 throttle time; 10 topic ids.
pub(super) fn write_commit(w: &mut Writer, version: i16, reply: &OffsetCommitReply) {
    if version >= 3 {
        w.i32(0);
    }
    w.items(&reply.topics, |w, topic| {
        write_topic(w, version, &topic.topic);
        w.items(&topic.partitions, |w, (index, error)| {
            w.i32(*index);
            w.i16(error.code());
            w.tags();
        });
        w.tags();
    });
    w.tags();
}

/// OffsetFetch: 2 null for all topics; 6 flexible; 7 require stable; 8 several groups; 9 member id and
/// epoch; 10 topic ids.
pub(super) fn fetch(r: &mut Reader<'_>, version: i16, client: &Client) -> Read<Call> {
    let mut groups = if version >= 8 {
        r.items(3, |r| {
            let group_id = r.string()?;
            let (member_id, member_epoch) = if version >= 9 {
                (r.nullable_string()?, r.i32()?)
            } else {
                (None, -1)
            };
            let topics = fetch_topics(r, version)?;
            r.tags()?;
            let fetch = fetch_group(version, client, group_id, topics);
            Ok(OffsetFetch {
                member_id,
                member_epoch,
                ..fetch
            })
        })?
    } else {
        let (group_id, topics) = (r.string()?, fetch_topics(r, version)?);
        vec![fetch_group(version, client, group_id, topics)]
    };
    if version >= 7 && r.bool()? {
        groups
            .iter_mut()
            .for_each(|group| group.require_stable = true);
    }
    Ok(Call::OffsetFetch(groups))
}

fn fetch_group(
    version: i16,
    client: &Client,
    group_id: std::sync::Arc<str>,
    topics: Option<Vec<FetchTopic>>,
) -> OffsetFetch {
    let by_topic_id = version >= TOPIC_IDS;
    OffsetFetch {
        group_id,
        client: client.clone(),
        member_id: None,
        member_epoch: -1,
        topics,
        by_topic_id,
        require_stable: false,
    }
}

fn fetch_topics(r: &mut Reader<'_>, version: i16) -> Read<Option<Vec<FetchTopic>>> {
    r.nullable_array(if version >= 6 { 3 } else { 6 }, |r| {
        let topic = topic(r, version)?;
        let partitions = r.items(4, Reader::i32)?;
        r.tags()?;
        Ok(FetchTopic { topic, partitions })
    })
}

/// OffsetFetch: 2 an error of the whole group; 3 throttle time; 5 leader epoch; 8 an entry per group;
/// 10 topic ids. Version 1 has no place for an error of the whole group: every partition `asked` for
/// bears it.
pub(super) fn write_fetch(
    w: &mut Writer,
    version: i16,
    groups: &[OffsetFetchReply],
    asked: Option<&[FetchTopic]>,
) {
    if version >= 3 {
        w.i32(0);
    }
    if version >= 8 {
        w.items(groups, |w, group| {
            w.string(&group.group_id);
            write_fetched(w, version, &group.topics);
            w.i16(group.error.code());
            w.tags();
        });
    } else {
        let [group] = groups else {
            return w.fail("this version answers exactly one group");
        };
        if version >= 2 {
            write_fetched(w, version, &group.topics);
            w.i16(group.error.code());
        } else if group.error == ErrorCode::None {
            write_fetched(w, version, &group.topics);
        } else {
            write_fetched(
                w,
                version,
                &all_refused(asked.unwrap_or_default(), group.error),
            );
        }
    }
    w.tags();
}

fn write_fetched(w: &mut Writer, version: i16, topics: &[FetchedTopic]) {
    w.items(topics, |w, topic| {
        write_topic(w, version, &topic.topic);
        w.items(&topic.partitions, |w, partition| {
            w.i32(partition.index);
            w.i64(partition.offset);
            if version >= 5 {
                w.i32(partition.leader_epoch);
            }
            w.nullable_string(Some(&partition.metadata));
            w.i16(partition.error.code());
            w.tags();
        });
        w.tags();
    });
}

fn all_refused(asked: &[FetchTopic], error: ErrorCode) -> Vec<FetchedTopic> {
    let refused = |index: &i32| FetchedPartition {
        index: *index,
        offset: -1,
        leader_epoch: -1,
        metadata: std::sync::Arc::default(),
        error,
    };
    let topic = |asked: &FetchTopic| FetchedTopic {
        topic: asked.topic.clone(),
        partitions: asked.partitions.iter().map(refused).collect(),
    };
    asked.iter().map(topic).collect()
}

/// OffsetDelete.
pub(super) fn delete(r: &mut Reader<'_>) -> Read<Call> {
    let group_id = r.string()?;
    let topics = r.items(6, |r| Ok((r.string()?, r.items(4, Reader::i32)?)))?;
    Ok(Call::Group(Request::OffsetDelete(OffsetDelete {
        group_id,
        topics,
    })))
}

/// OffsetDelete. Its error comes before the throttle time.
pub(super) fn write_delete(w: &mut Writer, reply: &OffsetDeleteReply) {
    w.i16(reply.error.code());
    w.i32(0);
    w.items(&reply.topics, |w, topic| {
        write_topic(w, 0, &topic.topic);
        w.items(&topic.partitions, |w, (index, error)| {
            w.i32(*index);
            w.i16(error.code());
        });
    });
}
