//! What clients and server say to each other, as bytes: a client writes a request in a version that can carry it, the
//! server reads it with the code that ships, and the other way with the reply. What a version has no room for is lost on
//! the way, as it is for a real client; nothing else may be.

mod replies;
mod requests;
mod topics;

use std::ops::RangeInclusive;

use bytes::Bytes;

use super::rng::Rng;
use super::trace::Trace;
use crate::group::request::{Reply, Request};
use crate::wire::api::{self, Api};
use crate::wire::bytes::Writer;
use crate::wire::{self, Call, Header, Peer, data};

pub(super) use topics::{TopicAnswer, TopicAsk, Wanted};

/// Where clients live, as the server writes it.
pub(super) const HOST: &str = "/127.0.0.1";

/// What a client says.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    /// To a group's coordinator.
    Group(Request),
    /// To the data plane.
    Topics(TopicAsk),
}

/// What a server hears.
#[derive(Debug)]
pub(super) enum Heard {
    Group(Request),
    /// In a version, and what that is in a client's words.
    Topics(i16, data::Call, TopicAsk),
}

/// What a server says.
#[derive(Debug)]
pub(super) enum Said {
    Group(Reply),
    Topics(data::Reply),
}

/// What a client hears.
#[derive(Debug)]
pub(super) enum Answer {
    Group(Reply),
    Topics(Vec<TopicAnswer>),
}

/// One connection's dialogue.
#[derive(Debug)]
pub(super) struct Dialogue(Peer);

impl Dialogue {
    pub(super) fn new() -> Self {
        Self(Peer::new(HOST))
    }

    /// A request on its way to the server: what the server reads, and what it needs to answer.
    ///
    /// # Errors
    /// A sentence, if it does not read what the client wrote.
    pub(super) fn ask(
        &mut self,
        name: &str,
        correlation_id: i32,
        mut ask: Ask,
        rng: &mut Rng,
        trace: &mut Trace,
    ) -> Result<(Header, Heard), String> {
        let (api, version) = pick_version(&ask, rng)?;
        if let Ask::Group(request) = &mut ask {
            requests::simplify(request, version);
        }
        let frame = request_frame(api, version, correlation_id, name, &ask)
            .map_err(|why| format!("a client cannot write {ask:?} in version {version}: {why}"))?;
        trace.note_bytes(&frame);
        let (header, call) = wire::decode(frame, &mut self.0)
            .map_err(|e| format!("the server refuses {ask:?}: {e}"))?;
        let heard = hear(call, version)?;
        let is_right = match (&heard, &ask) {
            (Heard::Group(read), Ask::Group(written)) => read == written,
            (Heard::Topics(_, _, read), Ask::Topics(written)) => read == written,
            _ => false,
        };
        if (header.api.key, header.api_version, header.correlation_id)
            != (api.key, version, correlation_id)
            || !is_right
        {
            return Err(format!(
                "{} version {version}: the client wrote {ask:?}, the server reads {heard:?}",
                api.name
            ));
        }
        Ok((header, heard))
    }
}

/// A reply on its way to the client: what the client reads.
///
/// # Errors
/// A sentence, if that is not what the server wrote.
pub(super) fn answer(header: &Header, said: Said, trace: &mut Trace) -> Result<Answer, String> {
    match said {
        Said::Group(reply) => answer_group(header, reply, trace).map(Answer::Group),
        Said::Topics(reply) => answer_topics(header, reply, trace).map(Answer::Topics),
    }
}

fn answer_group(header: &Header, reply: Reply, trace: &mut Trace) -> Result<Reply, String> {
    let (api, version) = (header.api, header.api_version);
    let kind = std::mem::discriminant(&reply);
    let frame =
        wire::encode(header, &wire::Reply::Group(reply.clone())).map_err(|e| e.to_string())?;
    trace.note_bytes(&frame);
    let read = replies::read(&frame, api, version, header.correlation_id)
        .map_err(|why| format!("a client cannot read {reply:?} in version {version}: {why}"))?;
    if std::mem::discriminant(&read) != kind {
        return Err(format!(
            "the server wrote {reply:?}, the client reads {read:?}"
        ));
    }
    let mut written = reply;
    replies::simplify(&mut written, version);
    // An error of the whole group has no place in the first version; it is written to each partition.
    let spread =
        matches!(&written, Reply::OffsetFetch(reply) if version == 1 && reply.error.code() != 0);
    if read != written && !spread {
        return Err(format!(
            "{} version {version}: the server wrote {written:?}, the client reads {read:?}",
            api.name
        ));
    }
    Ok(read)
}

fn answer_topics(
    header: &Header,
    reply: data::Reply,
    trace: &mut Trace,
) -> Result<Vec<TopicAnswer>, String> {
    let (api, version) = (header.api, header.api_version);
    let mut written =
        TopicAnswer::all_of(&reply).ok_or_else(|| format!("of no change of topics: {reply:?}"))?;
    let frame = wire::encode(header, &wire::Reply::Data(reply)).map_err(|e| e.to_string())?;
    trace.note_bytes(&frame);
    let read = replies::read_body(&frame, api, version, header.correlation_id, |r| {
        topics::read(r, api.key, version)
    })
    .map_err(|why| format!("a client cannot read {written:?} in version {version}: {why}"))?;
    topics::simplify(&mut written, api.key, version);
    if read != written {
        return Err(format!(
            "{} version {version}: the server wrote {written:?}, the client reads {read:?}",
            api.name
        ));
    }
    Ok(read)
}

fn pick_version(ask: &Ask, rng: &mut Rng) -> Result<(&'static Api, i16), String> {
    let (key, able): (i16, RangeInclusive<i16>) = match ask {
        Ask::Group(request) => requests::versions(request),
        Ask::Topics(ask) => (ask.key(), topics::versions(ask)),
    };
    let api = api::by_key(key).ok_or_else(|| format!("API {key} is not advertised"))?;
    let (low, high) = (*able.start().max(&api.min), *able.end().min(&api.max));
    if low > high {
        return Err(format!("no version of {} carries {ask:?}", api.name));
    }
    Ok((api, rng.between(low.into(), high.into()) as i16))
}

fn request_frame(
    api: &Api,
    version: i16,
    correlation_id: i32,
    name: &str,
    ask: &Ask,
) -> Result<Bytes, &'static str> {
    let mut w = Writer::new(128, false);
    w.i16(api.key);
    w.i16(version);
    w.i32(correlation_id);
    w.nullable_string(Some(name));
    w.set_flexible(api.is_flexible(version));
    w.tags();
    match ask {
        Ask::Group(request) => requests::write(&mut w, version, request),
        Ask::Topics(ask) => topics::write(&mut w, version, ask),
    }
    w.finish().map(bytes::BytesMut::freeze)
}

/// What the server has read.
fn hear(call: Call, version: i16) -> Result<Heard, String> {
    match call {
        Call::Data(call) => match TopicAsk::of(&call, version) {
            Some(ask) => Ok(Heard::Topics(version, call, ask)),
            None => Err(format!("a change of topics is read as {call:?}")),
        },
        call => single(call).map(Heard::Group),
    }
}

/// The one request of a frame.
fn single(call: Call) -> Result<Request, String> {
    fn one<T>(mut all: Vec<T>) -> Result<T, String> {
        match (all.pop(), all.is_empty()) {
            (Some(one), true) => Ok(one),
            _ => Err("a frame about one group is read as one about several".to_owned()),
        }
    }
    match call {
        Call::Group(request) => Ok(request),
        Call::OffsetFetch(groups) => one(groups).map(Request::OffsetFetch),
        Call::DescribeGroups { groups, .. } => one(groups).map(Request::Describe),
        Call::DeleteGroups(groups) => one(groups).map(|group_id| Request::Delete { group_id }),
        Call::ConsumerGroupDescribe { group_ids, .. } => {
            one(group_ids).map(|group_id| Request::ConsumerDescribe { group_id })
        }
        other => Err(format!("a request of a group is read as {other:?}")),
    }
}
