//! Bytes and words: a frame in, a header and a call out; a header and a reply in, a frame out.
//!
//! The only room that knows Kafka's layouts. [`decode`] reads the header, finds the row of the table
//! in [`api`], lets the guard walk the body, and then either builds the core's own words (groups and
//! offsets) or kafka-protocol's structs (the data plane). [`encode`] goes the other way. Neither
//! keeps anything, waits for anything or panics on any bytes. Who answers a call is the shell's
//! affair.

pub mod api;
pub(crate) mod bytes;
pub mod data;
mod groups;
mod guard;
mod offsets;
pub mod records;
mod shapes;

use std::sync::Arc;

use ::bytes::{Buf, BufMut, Bytes, BytesMut};

use self::api::Api;
use self::bytes::{Read, Reader, Writer};
pub use self::guard::{Flaw, Refusal};
use crate::group::request::{self, ErrorCode};
use crate::group::types::{Client, GroupId};

/// What a connection knows of who is at its other end; [`decode`] keeps the client id here, so that
/// it is copied once and not with every request.
#[derive(Debug, Clone)]
pub struct Peer {
    client: Client,
}

impl Peer {
    /// A peer at this address, in the text form Kafka describes members with: `/127.0.0.1`.
    #[must_use]
    pub fn new(host: impl Into<Arc<str>>) -> Self {
        Self {
            client: Client {
                id: Arc::default(),
                host: host.into(),
            },
        }
    }

    /// The address and the last client id.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }
}

/// The header of a request: what is needed to answer it.
#[derive(Debug, Clone)]
pub struct Header {
    /// The row of the API.
    pub api: &'static Api,
    /// The version asked in, and answered in.
    pub api_version: i16,
    /// Chosen by the client; comes back with the reply.
    pub correlation_id: i32,
    /// Client id (empty for null) and address.
    pub client: Client,
    /// Elements of arrays, and tagged fields, that the body unfolds into.
    pub elements: u32,
    /// What an OffsetFetch of version 1 asked for: its answer has no place for an error of the whole
    /// group, which is written to each of these instead.
    asked: Option<Arc<[request::FetchTopic]>>,
}

/// A request, in words.
#[derive(Debug, Clone)]
pub enum Call {
    /// ApiVersions: answer with [`Hello::answer`].
    ApiVersions(Hello),
    /// FindCoordinator: answer each key, in order, with [`Reply::FindCoordinator`].
    FindCoordinator(FindCoordinator),
    /// A request about one group, or ListGroups: answer with [`Reply::Group`]. The parts of ListGroups
    /// from all shards are put together into one.
    Group(request::Request),
    /// OffsetFetch: answer each group, in order, with [`Reply::OffsetFetch`].
    OffsetFetch(Vec<request::OffsetFetch>),
    /// DescribeGroups: answer each group, in order, with [`Reply::DescribeGroups`].
    DescribeGroups {
        /// The groups, one or more times each.
        groups: Vec<request::Describe>,
        /// The client wants to know what it may do with each group.
        include_authorized_operations: bool,
    },
    /// DeleteGroups: answer each group once with [`Reply::DeleteGroups`].
    DeleteGroups(Vec<GroupId>),
    /// ConsumerGroupDescribe: answer each group, in order, with [`Reply::ConsumerGroupDescribe`].
    ConsumerGroupDescribe {
        /// The groups.
        group_ids: Vec<GroupId>,
        /// The client wants to know what it may do with each group.
        include_authorized_operations: bool,
    },
    /// The data plane's, in kafka-protocol's structs: answer with [`Reply::Data`].
    Data(data::Call),
}

/// An answer, in words.
#[derive(Debug, Clone)]
pub enum Reply {
    /// To ApiVersions.
    ApiVersions(ApiVersions),
    /// To FindCoordinator: one entry per key.
    FindCoordinator(Vec<Coordinator>),
    /// To [`Call::Group`].
    Group(request::Reply),
    /// To OffsetFetch: one entry per group.
    OffsetFetch(Vec<request::OffsetFetchReply>),
    /// To DescribeGroups.
    DescribeGroups {
        /// One entry per group asked for.
        groups: Vec<request::DescribeReply>,
        /// Bits of what the client may do, written to every entry without error; `None` where it did
        /// not ask.
        authorized_operations: Option<i32>,
    },
    /// To DeleteGroups.
    DeleteGroups(Vec<(GroupId, ErrorCode)>),
    /// To ConsumerGroupDescribe.
    ConsumerGroupDescribe {
        /// One entry per group asked for.
        groups: Vec<request::ConsumerDescribeReply>,
        /// Bits of what the client may do, written to every entry without error; `None` where it did
        /// not ask.
        authorized_operations: Option<i32>,
    },
    /// To [`Call::Data`].
    Data(data::Reply),
}

/// ApiVersions: a client introduces itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// The version is none of ours (nothing else was read).
    unsupported: bool,
    /// Name and version of the client's software, since version 3.
    pub software: Option<(Arc<str>, Arc<str>)>,
    /// The cluster the client believes to talk to, since version 5.
    pub cluster_id: Option<Arc<str>>,
    /// The node the client believes to talk to, since version 5; −1 for none.
    pub node_id: i32,
}

/// Answer to ApiVersions. Without error it carries the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiVersions {
    /// 0, or why the client is turned away.
    pub error: i16,
}

/// The version is not served.
pub const UNSUPPORTED_VERSION: i16 = 35;
/// A field has a value that it must not have.
pub const INVALID_REQUEST: i16 = 42;
/// The client talks to another node or cluster than it believes (KIP-1242).
pub const REBOOTSTRAP_REQUIRED: i16 = 129;

impl Hello {
    /// What this server answers.
    #[must_use]
    pub fn answer(&self, cluster_id: &str, node_id: i32) -> ApiVersions {
        let error = if self.unsupported {
            UNSUPPORTED_VERSION
        } else if !self.software_is_well_formed()
            || self.cluster_id.is_some() != (self.node_id != -1)
        {
            INVALID_REQUEST
        } else if self
            .cluster_id
            .as_deref()
            .is_some_and(|id| id != cluster_id)
            || self.node_id != -1 && self.node_id != node_id
        {
            REBOOTSTRAP_REQUIRED
        } else {
            0
        };
        ApiVersions { error }
    }

    /// KIP-511: letters and digits, with dots and dashes between them.
    fn software_is_well_formed(&self) -> bool {
        let well_formed = |text: &str| {
            let alphanumeric = |end: Option<char>| end.is_some_and(|c| c.is_ascii_alphanumeric());
            alphanumeric(text.chars().next())
                && alphanumeric(text.chars().next_back())
                && text
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'))
        };
        self.software
            .as_ref()
            .is_none_or(|(name, version)| well_formed(name) && well_formed(version))
    }
}

/// FindCoordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FindCoordinator {
    /// 0 group, 1 transaction, 2 share partition; others are refused with 42.
    pub key_type: i8,
    /// One key before version 4.
    pub keys: Vec<Arc<str>>,
}

/// The answer for one key of FindCoordinator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coordinator {
    /// The key.
    pub key: Arc<str>,
    /// 0, or why there is no coordinator.
    pub error: i16,
    /// What is wrong, in words. Not sent without error.
    pub message: Option<String>,
    /// −1 on error.
    pub node_id: i32,
    /// Empty on error.
    pub host: Arc<str>,
    /// −1 on error.
    pub port: i32,
}

impl Coordinator {
    /// No coordinator for this key.
    #[must_use]
    pub fn refused(key: Arc<str>, error: i16, message: impl Into<String>) -> Self {
        let message = Some(message.into());
        Self {
            key,
            error,
            message,
            node_id: -1,
            host: Arc::default(),
            port: -1,
        }
    }
}

/// What a peer sent that cannot be served, or what cannot be written. In all cases the connection is
/// closed without an answer, as Kafka does it; ApiVersions in an unknown version is no error here
/// but a [`Call`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The frame ends within the header.
    #[error("a frame of {frame_bytes} bytes ends within the request header")]
    Header {
        /// Bytes of the frame.
        frame_bytes: usize,
    },
    /// No such API, or one that is not advertised.
    #[error("unknown API key {api_key} (version {api_version})")]
    UnknownApi {
        /// The key.
        api_key: i16,
        /// The version.
        api_version: i16,
    },
    /// A version outside the range of the API.
    #[error("{api} version {api_version} is not served (versions {min} to {max} are)")]
    UnsupportedVersion {
        /// The API's name.
        api: &'static str,
        /// The version asked for.
        api_version: i16,
        /// Lowest version that is read.
        min: i16,
        /// Highest version.
        max: i16,
    },
    /// The body does not have the API's shape.
    #[error("malformed {api} request, version {api_version}: {refusal}")]
    Malformed {
        /// The API's name.
        api: &'static str,
        /// The version.
        api_version: i16,
        /// What is wrong, and where.
        refusal: Refusal,
    },
    /// The body has the API's shape, but kafka-protocol does not read it.
    #[error("unreadable {api} request, version {api_version}: {reason}")]
    Unreadable {
        /// The API's name.
        api: &'static str,
        /// The version.
        api_version: i16,
        /// kafka-protocol's words.
        reason: String,
    },
    /// A reply cannot be written in the version of its request.
    #[error("no way to write the {api} reply in version {api_version}: {reason}")]
    Unwritable {
        /// The API's name.
        api: &'static str,
        /// The version.
        api_version: i16,
        /// What does not fit.
        reason: String,
    },
}

/// Reads one frame, without its size.
///
/// # Errors
/// Each means that the connection is to be closed without an answer.
pub fn decode(frame: Bytes, peer: &mut Peer) -> Result<(Header, Call), Error> {
    let (header, body_at) = header(&frame, peer)?;
    let (api, api_version) = (header.api, header.api_version);
    if !api.supports(api_version) && api.key == api::API_VERSIONS {
        let unsupported = Hello {
            unsupported: true,
            software: None,
            cluster_id: None,
            node_id: -1,
        };
        return Ok((header, Call::ApiVersions(unsupported)));
    }
    if !api.supports(api_version) || api_version < api.decode_from {
        let (min, max) = (api.decode_from, api.max);
        return Err(Error::UnsupportedVersion {
            api: api.name,
            api_version,
            min,
            max,
        });
    }
    let mut body = frame;
    body.advance(body_at);
    body_of(header, body)
}

fn header(frame: &[u8], peer: &mut Peer) -> Result<(Header, usize), Error> {
    let short = |_| Error::Header {
        frame_bytes: frame.len(),
    };
    let mut reader = Reader::new(frame, false);
    let api_key = reader.i16().map_err(short)?;
    let api_version = reader.i16().map_err(short)?;
    let correlation_id = reader.i32().map_err(short)?;
    let Some(api) = api::by_key(api_key) else {
        return Err(Error::UnknownApi {
            api_key,
            api_version,
        });
    };
    // The client id keeps its classic length in the flexible header too.
    let client_id = reader
        .nullable_string_ref()
        .map_err(short)?
        .unwrap_or_default();
    if peer.client.id.as_bytes() != client_id {
        peer.client.id = client_name(client_id);
    }
    reader.set_flexible(api.is_flexible(api_version));
    reader.tags().map_err(short)?;
    let client = peer.client.clone();
    Ok((
        Header {
            api,
            api_version,
            correlation_id,
            client,
            elements: 0,
            asked: None,
        },
        reader.position(),
    ))
}

/// The client id as text. Ids too long to make a member id of are cut; no client has one.
fn client_name(bytes: &[u8]) -> Arc<str> {
    let text = String::from_utf8_lossy(bytes);
    let mut end = text.len().min(guard::NAME_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    Arc::from(&text[..end])
}

fn body_of(mut header: Header, body: Bytes) -> Result<(Header, Call), Error> {
    let (api, api_version) = (header.api, header.api_version);
    let malformed = |refusal| Error::Malformed {
        api: api.name,
        api_version,
        refusal,
    };
    let program = guard::program(api.shape, api_version);
    let walked = guard::walk(program, &body, guard::ELEMENTS_MAX).map_err(malformed)?;
    header.elements = walked.elements;
    let mut reader = Reader::new(&body, api.is_flexible(api_version));
    let own = match api.key {
        8 => offsets::commit(&mut reader, api_version, &header.client),
        9 => offsets::fetch(&mut reader, api_version, &header.client),
        10 => find_coordinator(&mut reader, api_version),
        11 => groups::join(&mut reader, api_version, &header.client),
        12 => groups::heartbeat(&mut reader, api_version),
        13 => groups::leave(&mut reader, api_version),
        14 => groups::sync(&mut reader, api_version),
        15 => groups::describe(&mut reader, api_version),
        16 => groups::list(&mut reader, api_version),
        api::API_VERSIONS => hello(&mut reader, api_version),
        42 => groups::delete(&mut reader),
        47 => offsets::delete(&mut reader),
        api::CONSUMER_GROUP_HEARTBEAT => {
            groups::consumer_heartbeat(&mut reader, api_version, &header.client)
        }
        69 => groups::consumer_describe(&mut reader),
        _ => {
            let call = data::decode(api, api_version, body, walked.odd, program)?;
            return Ok((header, Call::Data(call)));
        }
    };
    let call = own.map_err(malformed)?;
    if let (1, Call::OffsetFetch(groups)) = (api_version, &call) {
        header.asked = groups
            .first()
            .and_then(|group| group.topics.as_deref())
            .map(Arc::from);
    }
    Ok((header, call))
}

/// Writes one frame, with its size in front.
///
/// # Errors
/// [`Error::Unwritable`] where the version has no room for what the reply says (a string of more than
/// 32,767 bytes, a field the version lacks). Nothing has been written then; the connection is to be
/// closed, as Kafka does.
pub fn encode(header: &Header, reply: &Reply) -> Result<BytesMut, Error> {
    let unwritable = |why: String| unwritable(header, why);
    let (mut writer, version) = begin_reply(header, reply);
    match reply {
        Reply::ApiVersions(reply) => write_api_versions(&mut writer, version, *reply),
        Reply::FindCoordinator(keys) => write_coordinators(&mut writer, version, keys),
        Reply::Group(reply) => groups::write(&mut writer, version, reply),
        Reply::OffsetFetch(groups) => {
            offsets::write_fetch(&mut writer, version, groups, header.asked.as_deref());
        }
        Reply::DescribeGroups {
            groups,
            authorized_operations,
        } => {
            groups::write_describe(&mut writer, version, groups, *authorized_operations);
        }
        Reply::DeleteGroups(groups) => groups::write_delete(&mut writer, version, groups),
        Reply::ConsumerGroupDescribe {
            groups,
            authorized_operations,
        } => {
            groups::write_consumer_describe(&mut writer, version, groups, *authorized_operations);
        }
        Reply::Data(reply) => {
            data::write(&mut writer, header.api, version, reply).map_err(unwritable)?;
        }
    }
    let mut frame = writer.finish().map_err(|why| unwritable(why.to_owned()))?;
    put_size(header, &mut frame, 0)?;
    Ok(frame)
}

/// Writes a reply as parts to be sent one behind the other. The batches of an answer to Fetch are parts of their own,
/// and not copied.
///
/// # Errors
/// As [`encode`].
pub fn encode_parts(header: &Header, reply: &Reply) -> Result<Vec<Bytes>, Error> {
    let fetched = match reply {
        // Other replies are small, and this server names no other nodes.
        Reply::Data(data::Reply::Fetch(fetched)) if fetched.node_endpoints.is_empty() => fetched,
        _ => return Ok(vec![encode(header, reply)?.freeze()]),
    };
    let (mut writer, version) = begin_reply(header, reply);
    let gaps =
        data::write_fetch(&mut writer, fetched, version).map_err(|why| unwritable(header, why))?;
    let finished = writer.finish();
    let mut rest = finished.map_err(|why| unwritable(header, why.to_owned()))?;
    let left_out = gaps.iter().map(|(_, batches)| batches.len()).sum();
    put_size(header, &mut rest, left_out)?;
    let mut parts = Vec::with_capacity(2 * gaps.len() + 1);
    let mut rest = rest.freeze();
    let mut from = 0;
    for (at, batches) in gaps {
        parts.push(rest.split_to(at - from));
        parts.push(batches);
        from = at;
    }
    parts.push(rest);
    Ok(parts)
}

/// The front of a reply, with room for its size, and the version that it is to have.
fn begin_reply(header: &Header, reply: &Reply) -> (Writer, i16) {
    let api = header.api;
    let mut version = header.api_version;
    if matches!(reply, Reply::ApiVersions(_)) && !api.supports(version) {
        // A client that does not know us can read version 0.
        version = 0;
    }
    let mut writer = Writer::new(64, api.is_flexible(version));
    writer.i32(0);
    writer.i32(header.correlation_id);
    if api.reply_header_version(version) == 1 {
        writer.tags();
    }
    (writer, version)
}

fn put_size(header: &Header, frame: &mut BytesMut, left_out: usize) -> Result<(), Error> {
    let size = i32::try_from(frame.len() - 4 + left_out)
        .map_err(|_| unwritable(header, "over 2 GiB".to_owned()))?;
    (&mut frame[..4]).put_i32(size);
    Ok(())
}

fn unwritable(header: &Header, reason: String) -> Error {
    Error::Unwritable {
        api: header.api.name,
        api_version: header.api_version,
        reason,
    }
}

/// About how many bytes a reply will take, without writing it: exact for the data plane, and for groups what grows with
/// their members and offsets.
pub fn reply_bytes(header: &Header, reply: &Reply) -> usize {
    /// A member, an offset or a group, without what clients put into it.
    const ENTRY: usize = 64;
    fn described(groups: &[request::DescribeReply]) -> usize {
        let members = groups.iter().flat_map(|group| &group.members);
        members
            .map(|member| 2 * ENTRY + member.metadata.len() + member.assignment.len())
            .sum()
    }
    match reply {
        Reply::Group(request::Reply::Join(join)) => {
            let members = join.members.iter();
            members.map(|member| ENTRY + member.metadata.len()).sum()
        }
        Reply::Group(request::Reply::Sync(sync)) => sync.assignment.len(),
        Reply::Group(request::Reply::List(list)) => ENTRY * list.groups.len(),
        Reply::OffsetFetch(groups) => {
            let topics = groups.iter().flat_map(|group| &group.topics);
            let partitions = topics.flat_map(|topic| &topic.partitions);
            partitions
                .map(|offset| ENTRY / 2 + offset.metadata.len())
                .sum()
        }
        Reply::DescribeGroups { groups, .. } => described(groups),
        Reply::ConsumerGroupDescribe { groups, .. } => {
            let members = groups.iter().flat_map(|group| &group.members);
            members
                .map(|member| {
                    let both = member.assignment.iter().chain(&member.target_assignment);
                    let partitions = both.map(|topic| ENTRY + 4 * topic.partitions.len());
                    2 * ENTRY + partitions.sum::<usize>()
                })
                .sum()
        }
        Reply::FindCoordinator(keys) => ENTRY * keys.len(),
        Reply::DeleteGroups(groups) => ENTRY * groups.len(),
        Reply::Data(reply) => data::bytes(header.api, header.api_version, reply),
        Reply::ApiVersions(_) | Reply::Group(_) => 0,
    }
}

/// ApiVersions: 3 the client's software (KIP-511), 5 the cluster and node it means (KIP-1242).
fn hello(r: &mut Reader<'_>, version: i16) -> Read<Call> {
    let software = if version >= 3 {
        Some((r.string()?, r.string()?))
    } else {
        None
    };
    let (cluster_id, node_id) = if version >= 5 {
        (r.nullable_string()?, r.i32()?)
    } else {
        (None, -1)
    };
    Ok(Call::ApiVersions(Hello {
        unsupported: false,
        software,
        cluster_id,
        node_id,
    }))
}

/// ApiVersions: 1 throttle time; 3 features; 4 lets a feature begin at 0 (before, clients would choke
/// on it).
fn write_api_versions(w: &mut Writer, version: i16, reply: ApiVersions) {
    let listed = |api: &&Api| match reply.error {
        0 => api.advertised,
        UNSUPPORTED_VERSION => api.key == api::API_VERSIONS,
        _ => false,
    };
    w.i16(reply.error);
    let apis: Vec<&Api> = api::APIS.iter().filter(listed).collect();
    w.items(&apis, |w, api| {
        w.i16(api.key);
        w.i16(api.min);
        w.i16(api.max);
        w.tags();
    });
    if version >= 1 {
        w.i32(0);
    }
    if version >= 3 {
        write_features(w, version, reply.error == 0);
    }
}

fn write_features(w: &mut Writer, version: i16, any: bool) {
    let finalized: Vec<api::Feature> = api::features().filter(|_| any).collect();
    let supported: Vec<api::Feature> = finalized
        .iter()
        .copied()
        .filter(|feature| version >= 4 || feature.min > 0)
        .collect();
    let write_supported = |w: &mut Writer| {
        w.items(&supported, |w, feature| {
            w.string(feature.name);
            w.i16(feature.min);
            w.i16(feature.max);
            w.tags();
        });
    };
    let write_finalized = |w: &mut Writer| {
        w.items(&finalized, |w, feature| {
            w.string(feature.name);
            w.i16(feature.finalized);
            w.i16(feature.finalized);
            w.tags();
        });
    };
    let epoch = |w: &mut Writer| w.i64(0);
    let mut fields: Vec<bytes::Tagged<'_>> = Vec::new();
    if !supported.is_empty() {
        fields.push((0, &write_supported));
    }
    if !finalized.is_empty() {
        fields.push((1, &epoch));
        fields.push((2, &write_finalized));
    }
    w.tagged(&fields);
}

/// FindCoordinator: 1 key type; 4 several keys at once.
fn find_coordinator(r: &mut Reader<'_>, version: i16) -> Read<Call> {
    let single = if version < 4 { Some(r.string()?) } else { None };
    let key_type = if version >= 1 { r.i8()? } else { 0 };
    let keys = match single {
        Some(key) => vec![key],
        None => r.items(1, Reader::string)?,
    };
    Ok(Call::FindCoordinator(FindCoordinator { key_type, keys }))
}

/// FindCoordinator: 1 throttle time and a message; 4 an entry per key.
fn write_coordinators(w: &mut Writer, version: i16, keys: &[Coordinator]) {
    if version >= 1 {
        w.i32(0);
    }
    if version < 4 {
        let Some(found) = keys.first() else {
            return w.fail("no coordinator in the answer");
        };
        w.i16(found.error);
        if version >= 1 {
            // Kafka says so in words.
            let message = if found.error == 0 {
                Some("NONE")
            } else {
                found.message.as_deref()
            };
            w.nullable_string(message);
        }
        w.i32(found.node_id);
        w.string(&found.host);
        w.i32(found.port);
    } else {
        w.items(keys, |w, found| {
            w.string(&found.key);
            w.i32(found.node_id);
            w.string(&found.host);
            w.i32(found.port);
            w.i16(found.error);
            let message = if found.error == 0 {
                Some("")
            } else {
                found.message.as_deref()
            };
            w.nullable_string(message);
            w.tags();
        });
    }
    w.tags();
}

#[cfg(test)]
mod tests;
