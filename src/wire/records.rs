//! [`Record`] and the bytes of `__consumer_offsets`, in Kafka's own schemas.
//!
//! One atomic batch of records is one record batch of Kafka's format v2, uncompressed, with its own
//! CRC32C; the log keeps it as the payload of one frame. Keys begin with the record's type, values
//! with the version of their schema. Written are the versions Kafka 4.4 writes; read are all it reads.
//! Any bytes may come in: nothing here panics, and no count is believed before it is held against the
//! bytes that are there. What a record means is not known here.

use std::sync::Arc;

use ::bytes::{BufMut, Bytes, BytesMut};

use super::bytes::{Read, Reader, Tagged, Writer};
use super::guard::{Flaw, Refusal};
use crate::group::record::{
    AssignedPartitions, ClassicMemberValue, ConsumerGroupValue, ConsumerMemberValue,
    CurrentAssignmentValue, GroupMemberValue, GroupValue, MemberState, Moved, OffsetValue, Record,
    RegexValue, TargetMetadataValue,
};
use crate::group::request::{IdPartitions, Protocol};
use crate::group::types::{Client, Millis, TopicId};

/// Bytes of a batch before its first record.
const BATCH_HEADER_BYTES: usize = 61;
/// Where the checksum of a batch stands; it covers everything behind it.
const CRC_AT: usize = 17;
/// The format of the batch.
const MAGIC: i8 = 2;

/// Why a batch cannot be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BatchError {
    /// A record has no bytes in Kafka's schema.
    #[error("a record of group {group_id} cannot be written: {reason}")]
    Unwritable {
        /// The group it is about.
        group_id: Arc<str>,
        /// What does not fit.
        reason: &'static str,
    },
    /// Not one batch of format v2, uncompressed and without transaction.
    #[error("not a record batch of ours: {reason}")]
    NotABatch {
        /// What is missing.
        reason: &'static str,
    },
    /// The checksum does not match the bytes.
    #[error("checksum {found:#010x} where the bytes give {computed:#010x}")]
    Checksum {
        /// What stands there.
        found: u32,
        /// What should.
        computed: u32,
    },
    /// The bytes do not have the shape of their schema.
    #[error("record {index} of the batch, type {kind}: {refusal}")]
    Malformed {
        /// Position in the batch, from 0.
        index: u32,
        /// Record type; −1 if it could not be read.
        kind: i16,
        /// What is wrong, and where.
        refusal: Refusal,
    },
    /// A known record type in a version that a newer server wrote.
    #[error(
        "record {index} of the batch: type {kind} in version {version}, which this version of \
         Convoke does not know; it was written by a newer one"
    )]
    UnknownVersion {
        /// Position in the batch, from 0.
        index: u32,
        /// Record type.
        kind: i16,
        /// Version of its value.
        version: i16,
    },
}

/// A batch as read.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    /// The position that was given when it was written.
    pub base_offset: i64,
    /// When it was written.
    pub timestamp: Millis,
    /// Its records, in order.
    pub records: Vec<Record>,
    /// Records of types that this version does not know, and left out. Worth a warning.
    pub skipped_count: u32,
}

/// Writes records as one batch.
///
/// # Errors
/// [`BatchError::Unwritable`] for a string of more than 32,767 bytes, or a batch of over 2 GiB.
pub fn encode_batch(
    records: &[Record],
    base_offset: i64,
    timestamp: Millis,
) -> Result<Bytes, BatchError> {
    let mut out = BytesMut::with_capacity(BATCH_HEADER_BYTES + 96 * records.len());
    let first = records
        .first()
        .map(|record| record.group_id().clone())
        .unwrap_or_default();
    let too_large = || BatchError::Unwritable {
        group_id: first.clone(),
        reason: "a batch of more than 2 GiB",
    };
    let count = i32::try_from(records.len()).map_err(|_| too_large())?;
    out.put_i64(base_offset);
    out.put_i32(0); // length, below
    out.put_i32(-1); // partition leader epoch
    out.put_i8(MAGIC);
    out.put_u32(0); // checksum, below
    out.put_i16(0); // attributes: no compression, no transaction, create time
    out.put_i32(count - 1); // last offset delta
    out.put_i64(timestamp.0);
    out.put_i64(timestamp.0);
    out.put_i64(-1); // producer id
    out.put_i16(-1); // producer epoch
    out.put_i32(-1); // base sequence
    out.put_i32(count);
    let mut scratch = Writer::new(256, false);
    for (delta, record) in (0..count).zip(records) {
        write_record(&mut out, &mut scratch, delta, record)?;
    }
    let length = i32::try_from(out.len() - 12).map_err(|_| too_large())?;
    (&mut out[8..12]).put_i32(length);
    let crc = crc32c::crc32c(&out[CRC_AT + 4..]);
    (&mut out[CRC_AT..CRC_AT + 4]).put_u32(crc);
    Ok(out.freeze())
}

fn write_record(
    out: &mut BytesMut,
    scratch: &mut Writer,
    delta: i32,
    record: &Record,
) -> Result<(), BatchError> {
    scratch.clear();
    write_key(scratch, record);
    let key_bytes = scratch.len();
    let has_value = write_value(scratch, record);
    let written = scratch.outcome().map_err(|reason| BatchError::Unwritable {
        group_id: record.group_id().clone(),
        reason,
    })?;
    let (key, value) = written.split_at(key_bytes);
    let value_length = if has_value { value.len() as i64 } else { -1 };
    let (delta, key_length) = (i64::from(delta), key.len() as i64);
    let bytes = 2 // attributes, timestamp delta
        + varlong_bytes(delta)
        + varlong_bytes(key_length)
        + key.len()
        + varlong_bytes(value_length)
        + value.len()
        + 1; // headers
    put_varlong(out, bytes as i64);
    out.put_i8(0);
    put_varlong(out, 0);
    put_varlong(out, delta);
    put_varlong(out, key_length);
    out.put_slice(key);
    put_varlong(out, value_length);
    out.put_slice(value);
    put_varlong(out, 0);
    Ok(())
}

fn put_varlong(out: &mut BytesMut, value: i64) {
    let mut value = ((value << 1) ^ (value >> 63)) as u64;
    while value >= 0x80 {
        out.put_u8((value & 0x7f) as u8 | 0x80);
        value >>= 7;
    }
    out.put_u8(value as u8);
}

fn varlong_bytes(value: i64) -> usize {
    let value = ((value << 1) ^ (value >> 63)) as u64;
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// Reads one batch.
///
/// # Errors
/// Whatever is wrong with the bytes. A record of an unknown type is no error, see
/// [`Batch::skipped_count`]; a known type in an unknown version is.
pub fn decode_batch(bytes: &[u8]) -> Result<Batch, BatchError> {
    let Some((header, mut reader)) = bytes
        .split_at_checked(BATCH_HEADER_BYTES)
        .map(|(header, records)| (Reader::new(header, false), Reader::new(records, false)))
    else {
        return Err(BatchError::NotABatch {
            reason: "shorter than a batch header",
        });
    };
    let header = batch_header(header).map_err(|_| BatchError::NotABatch {
        reason: "shorter than a batch header",
    })?;
    if header.magic != MAGIC {
        return Err(BatchError::NotABatch {
            reason: "another format than v2",
        });
    }
    if header.length != bytes.len() as i64 - 12 {
        return Err(BatchError::NotABatch {
            reason: "its length is not that of the bytes",
        });
    }
    let computed = crc32c::crc32c(&bytes[CRC_AT + 4..]);
    if header.crc != computed {
        return Err(BatchError::Checksum {
            found: header.crc,
            computed,
        });
    }
    if header.attributes != 0 {
        return Err(BatchError::NotABatch {
            reason: "compressed, transactional or a marker",
        });
    }
    // A record takes at least seven bytes.
    let possible = u32::try_from(reader.left() / 7).unwrap_or(u32::MAX);
    let count = u32::try_from(header.count)
        .ok()
        .filter(|count| *count <= possible);
    let Some(count) = count else {
        return Err(BatchError::NotABatch {
            reason: "more records than its bytes can hold",
        });
    };
    let mut batch = Batch {
        base_offset: header.base_offset,
        timestamp: Millis(header.timestamp_ms),
        records: Vec::with_capacity(count as usize),
        skipped_count: 0,
    };
    for index in 0..count {
        match read_record(&mut reader, index)? {
            Some(record) => batch.records.push(record),
            None => batch.skipped_count += 1,
        }
    }
    Ok(batch)
}

struct BatchHeader {
    base_offset: i64,
    length: i64,
    magic: i8,
    crc: u32,
    attributes: i16,
    timestamp_ms: i64,
    count: i32,
}

fn batch_header(mut r: Reader<'_>) -> Read<BatchHeader> {
    let base_offset = r.i64()?;
    let length = i64::from(r.i32()?);
    r.take(4)?; // partition leader epoch
    let magic = r.i8()?;
    let crc = r.u32()?;
    let attributes = r.i16()?;
    r.take(4)?; // last offset delta
    let timestamp_ms = r.i64()?;
    r.take(8 + 8 + 2 + 4)?; // max timestamp, producer id, producer epoch, base sequence
    let count = r.i32()?;
    Ok(BatchHeader {
        base_offset,
        length,
        magic,
        crc,
        attributes,
        timestamp_ms,
        count,
    })
}

/// One record; `None` for a type we do not know or that is no longer used.
fn read_record(r: &mut Reader<'_>, index: u32) -> Result<Option<Record>, BatchError> {
    let mut kind = -1;
    match read_fields(r, &mut kind) {
        Ok(Parsed::Record(record)) => Ok(Some(record)),
        Ok(Parsed::UnknownType) => Ok(None),
        Ok(Parsed::UnknownVersion(version)) => Err(BatchError::UnknownVersion {
            index,
            kind,
            version,
        }),
        Err(refusal) => Err(BatchError::Malformed {
            index,
            kind,
            refusal,
        }),
    }
}

enum Parsed {
    Record(Record),
    UnknownType,
    UnknownVersion(i16),
}

fn read_fields(r: &mut Reader<'_>, kind: &mut i16) -> Read<Parsed> {
    let bytes = length(r)?.map_or_else(|| r.refuse(Flaw::Null), Ok)?;
    let mut record = Reader::new(r.take(bytes)?, false);
    record.i8()?; // attributes
    record.varlong()?; // timestamp delta
    record.varlong()?; // offset delta
    let key = match length(&mut record)? {
        Some(n) => record.take(n)?,
        None => return record.refuse(Flaw::Null),
    };
    let value = length(&mut record)?.map(|n| record.take(n)).transpose()?;
    read_key_and_value(key, value, kind)
}

/// The length of a key, value or record; `None` for a negative one.
fn length(r: &mut Reader<'_>) -> Read<Option<usize>> {
    let length = r.varlong()?;
    if length < 0 {
        return Ok(None);
    }
    let left = r.left();
    match usize::try_from(length).ok().filter(|n| *n <= left) {
        Some(n) => Ok(Some(n)),
        None => r.refuse(Flaw::CutShort {
            needed: length as u64,
            left,
        }),
    }
}

/// Highest value version of each type we know.
fn newest(kind: i16) -> Option<i16> {
    match kind {
        1 | 2 => Some(4),
        0 | 3 | 4 | 5 | 6 | 7 | 8 | 16 => Some(0),
        _ => None,
    }
}

/// The first version with compact lengths and tagged fields.
fn flexible_from(kind: i16) -> i16 {
    match kind {
        0 => i16::MAX,
        1 | 2 => 4,
        _ => 0,
    }
}

fn read_key_and_value(key: &[u8], value: Option<&[u8]>, kind: &mut i16) -> Read<Parsed> {
    let mut k = Reader::new(key, false);
    *kind = k.i16()?;
    let Some(newest) = newest(*kind) else {
        return Ok(Parsed::UnknownType);
    };
    let mut value = value.map(|value| Reader::new(value, false));
    let version = value.as_mut().map_or(Ok(0), Reader::i16)?;
    if !(0..=newest).contains(&version) {
        return Ok(Parsed::UnknownVersion(version));
    }
    if let Some(value) = &mut value {
        value.set_flexible(version >= flexible_from(*kind));
    }
    let group_id = k.string()?;
    let record = match *kind {
        0 | 1 => Record::OffsetCommit {
            group_id,
            topic: k.string()?,
            partition: k.i32()?,
            value: value
                .map(|mut v| offset_value(&mut v, version))
                .transpose()?,
        },
        2 => Record::GroupMetadata {
            group_id,
            value: value
                .map(|mut v| group_value(&mut v, version).map(Arc::new))
                .transpose()?,
        },
        3 => Record::ConsumerGroupMetadata {
            group_id,
            value: value
                .map(|mut v| consumer_group_value(&mut v))
                .transpose()?,
        },
        5 => Record::ConsumerGroupMemberMetadata {
            group_id,
            member_id: k.string()?,
            value: value
                .map(|mut v| consumer_member_value(&mut v).map(Arc::new))
                .transpose()?,
        },
        6 => Record::ConsumerGroupTargetAssignmentMetadata {
            group_id,
            value: value
                .map(|mut v| target_metadata_value(&mut v))
                .transpose()?,
        },
        7 => Record::ConsumerGroupTargetAssignmentMember {
            group_id,
            member_id: k.string()?,
            value: value.map(|mut v| target_value(&mut v)).transpose()?,
        },
        8 => Record::ConsumerGroupCurrentMemberAssignment {
            group_id,
            member_id: k.string()?,
            value: value.map(|mut v| current_value(&mut v)).transpose()?,
        },
        16 => Record::ConsumerGroupRegularExpression {
            group_id,
            regex: k.string()?,
            value: value.map(|mut v| regex_value(&mut v)).transpose()?,
        },
        // Type 4 (partition metadata) is obsolete since Kafka 4.1: a hash in type 3 took its place.
        _ => return Ok(Parsed::UnknownType),
    };
    Ok(Parsed::Record(record))
}

fn write_key(w: &mut Writer, record: &Record) {
    let kind = match record {
        Record::OffsetCommit { .. } => 1,
        Record::GroupMetadata { .. } => 2,
        Record::ConsumerGroupMetadata { .. } => 3,
        Record::ConsumerGroupMemberMetadata { .. } => 5,
        Record::ConsumerGroupTargetAssignmentMetadata { .. } => 6,
        Record::ConsumerGroupTargetAssignmentMember { .. } => 7,
        Record::ConsumerGroupCurrentMemberAssignment { .. } => 8,
        Record::ConsumerGroupRegularExpression { .. } => 16,
    };
    w.set_flexible(false);
    w.i16(kind);
    w.string(record.group_id());
    match record {
        Record::OffsetCommit {
            topic, partition, ..
        } => {
            w.string(topic);
            w.i32(*partition);
        }
        Record::ConsumerGroupMemberMetadata { member_id, .. }
        | Record::ConsumerGroupTargetAssignmentMember { member_id, .. }
        | Record::ConsumerGroupCurrentMemberAssignment { member_id, .. } => w.string(member_id),
        Record::ConsumerGroupRegularExpression { regex, .. } => w.string(regex),
        Record::GroupMetadata { .. }
        | Record::ConsumerGroupMetadata { .. }
        | Record::ConsumerGroupTargetAssignmentMetadata { .. } => {}
    }
}

/// Writes the value with its version in front; `false` for a tombstone.
fn write_value(w: &mut Writer, record: &Record) -> bool {
    let value = |w: &mut Writer, version: i16, flexible: bool| {
        w.set_flexible(flexible);
        w.i16(version);
    };
    match record {
        Record::OffsetCommit { value: Some(v), .. } => {
            // Kafka has the expiry of old clients in version 1 only.
            let version = if v.expire_timestamp.is_some() { 1 } else { 4 };
            value(w, version, version == 4);
            write_offset_value(w, v);
        }
        Record::GroupMetadata { value: Some(v), .. } => {
            value(w, 3, false);
            write_group_value(w, v);
        }
        Record::ConsumerGroupMetadata { value: Some(v), .. } => {
            value(w, 0, true);
            w.i32(v.epoch);
            let hash = |w: &mut Writer| w.i64(v.metadata_hash);
            write_tag_unless(w, v.metadata_hash == 0, &hash);
        }
        Record::ConsumerGroupMemberMetadata { value: Some(v), .. } => {
            value(w, 0, true);
            write_consumer_member_value(w, v);
        }
        Record::ConsumerGroupTargetAssignmentMetadata { value: Some(v), .. } => {
            value(w, 0, true);
            w.i32(v.assignment_epoch);
            let timestamp = |w: &mut Writer| w.i64(v.assignment_timestamp.0);
            write_tag_unless(w, v.assignment_timestamp.0 == 0, &timestamp);
        }
        Record::ConsumerGroupTargetAssignmentMember { value: Some(v), .. } => {
            value(w, 0, true);
            w.items(v, |w, (topic_id, partitions)| {
                w.topic_id(*topic_id);
                w.items(partitions, |w, partition| w.i32(*partition));
                w.tags();
            });
            w.tags();
        }
        Record::ConsumerGroupCurrentMemberAssignment { value: Some(v), .. } => {
            value(w, 0, true);
            w.i32(v.member_epoch);
            w.i32(v.previous_member_epoch);
            w.i8(state_byte(v.state));
            write_assigned(w, &v.assigned);
            write_assigned(w, &v.pending_revocation);
            w.tags();
        }
        Record::ConsumerGroupRegularExpression { value: Some(v), .. } => {
            value(w, 0, true);
            w.items(&v.topics, |w, topic| w.string(topic));
            w.i64(v.version);
            w.i64(v.timestamp.0);
            w.tags();
        }
        _ => return false,
    }
    true
}

/// The only tagged field of a value, left out when it has its default.
fn write_tag_unless(w: &mut Writer, is_default: bool, field: &dyn Fn(&mut Writer)) {
    if is_default {
        w.tags()
    } else {
        w.tagged(&[(0, field)])
    }
}

/// The tagged field in which an offset says that an operator moved it. Kafka numbers its own fields from 0, one by one.
const MOVED_TAG: u32 = 10_000;

/// Offset commits: 1 had an expiry; 3 leader epoch; 4 flexible, topic id.
fn offset_value(r: &mut Reader<'_>, version: i16) -> Read<OffsetValue> {
    let offset = r.i64()?;
    let leader_epoch = if version >= 3 { r.i32()? } else { -1 };
    let metadata = r.string()?;
    let commit_timestamp = Millis(r.i64()?);
    let expire = if version == 1 { r.i64()? } else { -1 };
    let (mut topic_id, mut moved) = (TopicId::ZERO, None);
    r.known_tags(|r, tag| {
        match tag {
            0 => topic_id = r.topic_id()?,
            MOVED_TAG => {
                moved = Some(Box::new(Moved {
                    since: r.i32()?,
                    until: Millis(r.i64()?),
                }));
            }
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    let expire_timestamp = (expire != -1).then_some(Millis(expire));
    let value = OffsetValue {
        offset,
        leader_epoch,
        metadata,
        commit_timestamp,
        expire_timestamp,
        topic_id,
        moved,
    };
    Ok(value)
}

fn write_offset_value(w: &mut Writer, value: &OffsetValue) {
    w.i64(value.offset);
    if let Some(expire) = value.expire_timestamp {
        w.string(&value.metadata);
        w.i64(value.commit_timestamp.0);
        w.i64(expire.0);
    } else {
        w.i32(value.leader_epoch);
        w.string(&value.metadata);
        w.i64(value.commit_timestamp.0);
        let topic_id = |w: &mut Writer| w.topic_id(value.topic_id);
        let Some(moved) = &value.moved else {
            return write_tag_unless(w, value.topic_id.is_zero(), &topic_id);
        };
        let moved = |w: &mut Writer| {
            w.i32(moved.since);
            w.i64(moved.until.0);
        };
        let tags: [Tagged<'_>; 2] = [(0, &topic_id), (MOVED_TAG, &moved)];
        w.tagged(&tags[usize::from(value.topic_id.is_zero())..]);
    }
}

/// Classic groups: 1 rebalance timeout; 2 time of the state; 3 instance id; 4 flexible.
fn group_value(r: &mut Reader<'_>, version: i16) -> Read<GroupValue> {
    let protocol_type = r.string()?;
    let generation = r.i32()?;
    let protocol = r.nullable_string()?;
    let leader = r.nullable_string()?;
    let current_state_timestamp = Millis(if version >= 2 { r.i64()? } else { -1 });
    let members = r.items(9, |r| {
        let member_id = r.string()?;
        let group_instance_id = if version >= 3 {
            r.nullable_string()?
        } else {
            None
        };
        let client = Client {
            id: r.string()?,
            host: r.string()?,
        };
        let rebalance_timeout_ms = if version >= 1 { r.i32()? } else { -1 };
        let session_timeout_ms = r.i32()?;
        let (subscription, assignment) = (r.bytes()?, r.bytes()?);
        r.tags()?;
        Ok(GroupMemberValue {
            member_id,
            group_instance_id,
            client,
            rebalance_timeout_ms,
            session_timeout_ms,
            subscription,
            assignment,
        })
    })?;
    r.tags()?;
    let value = GroupValue {
        protocol_type,
        generation,
        protocol,
        leader,
        current_state_timestamp,
        members,
    };
    Ok(value)
}

fn write_group_value(w: &mut Writer, value: &GroupValue) {
    w.string(&value.protocol_type);
    w.i32(value.generation);
    w.nullable_string(value.protocol.as_deref());
    w.nullable_string(value.leader.as_deref());
    w.i64(value.current_state_timestamp.0);
    w.items(&value.members, |w, member| {
        w.string(&member.member_id);
        w.nullable_string(member.group_instance_id.as_deref());
        w.string(&member.client.id);
        w.string(&member.client.host);
        w.i32(member.rebalance_timeout_ms);
        w.i32(member.session_timeout_ms);
        w.bytes(&member.subscription);
        w.bytes(&member.assignment);
    });
}

fn consumer_group_value(r: &mut Reader<'_>) -> Read<ConsumerGroupValue> {
    let epoch = r.i32()?;
    let metadata_hash = tagged_i64(r)?;
    Ok(ConsumerGroupValue {
        epoch,
        metadata_hash,
    })
}

/// Tagged fields of which tag 0 is an int64 that defaults to 0.
fn tagged_i64(r: &mut Reader<'_>) -> Read<i64> {
    let mut value = 0;
    r.known_tags(|r, tag| {
        let known = tag == 0;
        if known {
            value = r.i64()?;
        }
        Ok(known)
    })?;
    Ok(value)
}

fn consumer_member_value(r: &mut Reader<'_>) -> Read<ConsumerMemberValue> {
    let mut value = ConsumerMemberValue {
        instance_id: r.nullable_string()?,
        rack_id: r.nullable_string()?,
        client: Client {
            id: r.string()?,
            host: r.string()?,
        },
        subscribed_topic_names: r.items(1, Reader::string)?,
        subscribed_topic_regex: r.nullable_string()?,
        rebalance_timeout_ms: r.i32()?,
        server_assignor: r.nullable_string()?,
        classic: None,
    };
    r.known_tags(|r, tag| {
        let known = tag == 0;
        if known && r.i8()? >= 0 {
            value.classic = Some(classic_member_value(r)?);
        }
        Ok(known)
    })?;
    Ok(value)
}

fn classic_member_value(r: &mut Reader<'_>) -> Read<ClassicMemberValue> {
    let session_timeout_ms = r.i32()?;
    let protocols = r.items(3, |r| {
        let (name, metadata) = (r.string()?, r.bytes()?);
        r.tags()?;
        Ok(Protocol { name, metadata })
    })?;
    r.tags()?;
    Ok(ClassicMemberValue {
        session_timeout_ms,
        protocols,
    })
}

fn write_consumer_member_value(w: &mut Writer, value: &ConsumerMemberValue) {
    w.nullable_string(value.instance_id.as_deref());
    w.nullable_string(value.rack_id.as_deref());
    w.string(&value.client.id);
    w.string(&value.client.host);
    w.items(&value.subscribed_topic_names, |w, name| w.string(name));
    w.nullable_string(value.subscribed_topic_regex.as_deref());
    w.i32(value.rebalance_timeout_ms);
    w.nullable_string(value.server_assignor.as_deref());
    let Some(classic) = &value.classic else {
        return w.tags();
    };
    let field = |w: &mut Writer| {
        w.i8(1); // not null
        w.i32(classic.session_timeout_ms);
        w.items(&classic.protocols, |w, protocol| {
            w.string(&protocol.name);
            w.bytes(&protocol.metadata);
            w.tags();
        });
        w.tags();
    };
    w.tagged(&[(0, &field)]);
}

fn target_metadata_value(r: &mut Reader<'_>) -> Read<TargetMetadataValue> {
    let assignment_epoch = r.i32()?;
    let assignment_timestamp = Millis(tagged_i64(r)?);
    Ok(TargetMetadataValue {
        assignment_epoch,
        assignment_timestamp,
    })
}

fn target_value(r: &mut Reader<'_>) -> Read<IdPartitions> {
    let topics = r.items(18, |r| {
        let (topic_id, partitions) = (r.topic_id()?, r.items(4, Reader::i32)?);
        r.tags()?;
        Ok((topic_id, partitions))
    })?;
    r.tags()?;
    Ok(topics)
}

fn current_value(r: &mut Reader<'_>) -> Read<CurrentAssignmentValue> {
    let member_epoch = r.i32()?;
    let value = CurrentAssignmentValue {
        member_epoch,
        previous_member_epoch: r.i32()?,
        state: state_of(r.i8()?),
        assigned: assigned(r, member_epoch)?,
        pending_revocation: assigned(r, member_epoch)?,
    };
    r.tags()?;
    Ok(value)
}

/// Partitions with their epochs. Records from before 4.4 lack the epochs: the member's counts then.
fn assigned(r: &mut Reader<'_>, member_epoch: i32) -> Read<Vec<AssignedPartitions>> {
    r.items(18, |r| {
        let (topic_id, indexes) = (r.topic_id()?, r.items(4, Reader::i32)?);
        let mut epochs = Vec::new();
        r.known_tags(|r, tag| {
            let known = tag == 0;
            if known {
                epochs = r.nullable_array(4, Reader::i32)?.unwrap_or_default();
            }
            Ok(known)
        })?;
        let missing = std::iter::repeat(member_epoch.max(0));
        let mut partitions: Vec<(i32, i32)> = indexes
            .into_iter()
            .zip(epochs.into_iter().chain(missing))
            .collect();
        partitions.sort_unstable();
        Ok(AssignedPartitions {
            topic_id,
            partitions,
        })
    })
}

fn write_assigned(w: &mut Writer, topics: &[AssignedPartitions]) {
    w.items(topics, |w, topic| {
        w.topic_id(topic.topic_id);
        w.items(&topic.partitions, |w, (partition, _)| w.i32(*partition));
        let epochs = |w: &mut Writer| {
            w.items(&topic.partitions, |w, (_, epoch)| w.i32(*epoch));
        };
        w.tagged(&[(0, &epochs)]);
    });
}

fn state_byte(state: MemberState) -> i8 {
    match state {
        MemberState::Stable => 0,
        MemberState::UnrevokedPartitions => 1,
        MemberState::UnreleasedPartitions => 2,
        MemberState::Unknown => 127,
    }
}

fn state_of(byte: i8) -> MemberState {
    match byte {
        0 => MemberState::Stable,
        1 => MemberState::UnrevokedPartitions,
        2 => MemberState::UnreleasedPartitions,
        _ => MemberState::Unknown,
    }
}

fn regex_value(r: &mut Reader<'_>) -> Read<RegexValue> {
    let (topics, version) = (r.items(1, Reader::string)?, r.i64()?);
    let timestamp = Millis(r.i64()?);
    r.tags()?;
    Ok(RegexValue {
        topics,
        version,
        timestamp,
    })
}

#[cfg(test)]
mod tests;
