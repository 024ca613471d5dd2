//! One socket: frames in, one request in service at a time, replies out in order.
//!
//! As Kafka mutes a channel while its request is in service, nothing more is read until the reply is ready; requests
//! that came with one read are served from the buffer, and their replies leave with one write. Commits among them are
//! handed in together, so that one sync of the log does for all. What a request means is `route`'s affair.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::net::tcp::OwnedReadHalf;

use super::budget::{self, Charge, Leave, Loan};
use super::frames::{BadFrame, FrameBuffer, key_of};
use super::gate::{Cut, Phase, Place, Shared};
use super::route::{Door, Outcome, Step};
use super::{House, quiet::Quiet};
use crate::broker::Lender;
use crate::desk::hop::{Arrival, Holder};
use crate::desk::line::{Line, Turn};
use crate::wire;

/// One read takes this much at most; small frames need no buffer of their own.
const CHUNK_BYTES: usize = 64 * 1024;
/// Replies are gathered up to about this size before they are written.
const WRITE_BYTES: usize = 64 * 1024;
/// Parts of a reply that one system call takes, at most.
const PARTS_AT_ONCE: usize = 64;
/// Commits of one connection that are in service together, at most.
const RUN_MAX: usize = 64;
/// The API key of OffsetCommit.
const OFFSET_COMMIT: i16 = 8;

thread_local! {
    /// Idle connections hold no buffer: a read goes here first.
    static CHUNK: RefCell<Box<[u8]>> = RefCell::new(vec![0; CHUNK_BYTES].into_boxed_slice());
}

/// Why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum End {
    /// The client closed it.
    #[error("closed by the client")]
    Closed,
    /// The socket failed.
    #[error("socket error: {0}")]
    Socket(#[from] io::Error),
    /// The bytes are not frames.
    #[error("{0}")]
    BadFrame(BadFrame),
    /// A frame is no request that we serve, or a reply cannot be written.
    #[error("{0}")]
    Wire(#[from] wire::Error),
    /// The watchman cut it.
    #[error("{}", why_cut(*.0))]
    Cut(Cut),
    /// The server could not answer.
    #[error("{0}")]
    Unanswered(&'static str),
}

fn why_cut(cut: Cut) -> &'static str {
    match cut {
        Cut::No | Cut::Gone => "the client is gone",
        Cut::Idle => "no request for connections.max.idle.ms",
        Cut::SlowSender => "a request did not arrive within convoke.request.receive.timeout.ms",
        Cut::SlowReader => "a reply was not taken within convoke.response.send.timeout.ms",
        Cut::Stopping => "the server stops",
    }
}

impl From<BadFrame> for End {
    fn from(bad: BadFrame) -> Self {
        Self::BadFrame(bad)
    }
}

impl End {
    /// The label of the metric; `None` for ends that are nobody's fault.
    fn label(&self) -> Option<&'static str> {
        match self {
            Self::Closed | Self::Socket(_) => None,
            Self::BadFrame(BadFrame::Tls) => Some("tls"),
            Self::BadFrame(BadFrame::Http) => Some("http"),
            Self::BadFrame(_) => Some("bad_frame"),
            Self::Wire(wire::Error::UnknownApi { .. } | wire::Error::UnsupportedVersion { .. }) => {
                Some("unsupported")
            }
            Self::Wire(wire::Error::Unwritable { .. }) => Some("unwritable"),
            Self::Wire(_) => Some("malformed"),
            Self::Cut(Cut::Idle) => Some("idle"),
            Self::Cut(Cut::SlowSender) => Some("slow_sender"),
            Self::Cut(Cut::SlowReader) => Some("slow_reader"),
            Self::Cut(_) => None,
            Self::Unanswered(_) => Some("unanswered"),
        }
    }

    /// Whether an operator or the client's author wants to read of it.
    fn is_worth_a_line(&self) -> bool {
        !matches!(self.label(), None | Some("idle"))
    }
}

/// The address as Kafka describes members with: Java's text of it, a slash in front, IPv6 without abbreviation.
fn host_text(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(v4) => format!("/{v4}"),
        IpAddr::V6(v6) => {
            let groups: Vec<String> = v6.segments().iter().map(|s| format!("{s:x}")).collect();
            format!("/{}", groups.join(":"))
        }
    }
}

/// Serves one connection until it ends, and says so where it matters.
pub(crate) async fn run(
    house: Arc<House>,
    door: Arc<Door>,
    place: Place,
    reader: OwnedReadHalf,
    lines: Arc<Quiet>,
) {
    let peer = place.shared.peer;
    let mut connection = Connection {
        peer: wire::Peer::new(host_text(peer.ip())),
        input: FrameBuffer::new(house.frame_bytes_max),
        first: None,
        line: Line::default(),
        receiving: false,
        held: Charge::none(&house.budget),
        output: BytesMut::new(),
        loan: Loan::none(&house.replies),
        shared: place.shared.clone(),
        reader,
        house,
        door,
    };
    let Err(mut end) = connection.serve().await;
    if matches!(end, End::BadFrame(_) | End::Wire(_) | End::Unanswered(_)) {
        // What was asked before the frame that ends it has its answer.
        Box::pin(connection.say_the_last()).await;
    }
    let cut = place.shared.cut_reason();
    if cut != Cut::No {
        end = End::Cut(cut);
    }
    let client_id = connection.peer.client().id.clone();
    let house = connection.house.clone();
    drop(connection);
    drop(place);
    if let Some(label) = end.label() {
        house.metrics.connection_closed(label);
    }
    if end.is_worth_a_line() {
        lines.say(|unsaid| {
            tracing::warn!(%peer, client_id = &*client_id, unsaid, "closed a connection: {end}");
        });
    } else {
        tracing::debug!(%peer, client_id = &*client_id, "connection ended: {end}");
    }
}

/// Its future lives as long as the connection, and most of them are idle: what is needed while requests are in service
/// is in a box that lives as long as they are.
struct Connection {
    peer: wire::Peer,
    input: FrameBuffer,
    /// A whole frame that the last read gave.
    first: Option<Bytes>,
    line: Line,
    /// The frame that is arriving has its deadline.
    receiving: bool,
    /// What the buffer holds is charged here.
    held: Charge,
    output: BytesMut,
    /// What the output holds is charged here.
    loan: Loan,
    shared: Arc<Shared>,
    reader: OwnedReadHalf,
    house: Arc<House>,
    door: Arc<Door>,
}

/// A request in service.
struct InService {
    header: wire::Header,
    started_us: u64,
    step: Step,
}

enum Never {}

const LOST: &str = "its request failed inside the coordinator";

impl Connection {
    async fn serve(&mut self) -> Result<Never, End> {
        loop {
            if let Some(frame) = self.next_frame()? {
                Box::pin(self.serve_frames(frame)).await?;
            }
            self.flush().await?;
            if self.house.gate.is_stopping() {
                return Err(End::Cut(Cut::Stopping));
            }
            self.read().await?;
        }
    }

    /// Serves a frame and those that came with it.
    async fn serve_frames(&mut self, first: Bytes) -> Result<(), End> {
        let mut next = Some(first);
        while let Some(frame) = next {
            self.shared.enter(Phase::InService);
            if key_of(&frame) == Some(OFFSET_COMMIT) && self.input.next_key() == Some(OFFSET_COMMIT)
            {
                self.serve_run(frame).await?;
            } else {
                self.serve_one(frame).await?;
            }
            if self.output.len() >= WRITE_BYTES {
                self.flush().await?;
            }
            next = self.next_frame()?;
        }
        Ok(())
    }

    async fn serve_one(&mut self, frame: Bytes) -> Result<(), End> {
        let InService {
            header,
            started_us,
            step,
        } = self.begin(frame)?;
        let outcome = match step {
            Step::Reply(reply) => Outcome::Reply(reply),
            Step::Parked => match self.arrival().await?.into() {
                Turn::Answer(reply) => Outcome::Reply(wire::Reply::Group(reply)),
                Turn::Mute => return Err(self.stay_mute().await),
                Turn::Close => Outcome::Close(LOST),
                Turn::Cut => return Err(End::Cut(Cut::Gone)),
            },
            Step::Later(later) => self.later(later).await?,
        };
        match outcome {
            Outcome::Reply(reply) => self.answer(&header, started_us, &reply).await,
            Outcome::Fetched(reply, mut loan) => {
                let reply = wire::Reply::Data(reply);
                let parts = wire::encode_parts(&header, &reply)?;
                self.house
                    .metrics
                    .answered(&header, started_us, Some(&reply));
                drop(reply);
                self.line.answered();
                loan.written();
                self.loan.add(loan);
                self.send_parts(parts).await
            }
            Outcome::Silence => {
                self.house.metrics.answered(&header, started_us, None);
                self.line.answered();
                Ok(())
            }
            Outcome::Close(why) => Err(End::Unanswered(why)),
        }
    }

    /// Serves commits that came one behind the other.
    async fn serve_run(&mut self, first: Bytes) -> Result<(), End> {
        let (mut commits, mut headers) = (Vec::new(), Vec::new());
        let mut next = Some(first);
        let mut broken = None;
        while let Some(frame) = next {
            let started_us = self.house.metrics.now_us();
            let frame_bytes = frame.len();
            match wire::decode(frame, &mut self.peer) {
                Ok((header, wire::Call::Group(commit))) => {
                    let budget = &self.house.budget;
                    let charge = budget::charge_frame(budget, frame_bytes, header.elements);
                    commits.push((commit, charge));
                    headers.push((header, started_us));
                }
                // Those in front of it are served first.
                Ok(_) => {
                    broken = Some(End::Unanswered(LOST));
                    break;
                }
                Err(error) => {
                    broken = Some(End::Wire(error));
                    break;
                }
            }
            next = None;
            if headers.len() < RUN_MAX && self.input.next_key() == Some(OFFSET_COMMIT) {
                let input = &mut self.input;
                next = self.line.join(|| input.next())?;
                self.held.set(self.input.len());
            }
        }
        if !commits.is_empty() {
            let replies = self.house.route.commit_all(commits);
            let shared = self.shared.clone();
            self.flush().await?;
            self.shared.enter(Phase::InService);
            let replies = tokio::select! {
                replies = replies => replies.ok_or(End::Unanswered(LOST))?,
                () = shared.wake.notified() => return Err(End::Cut(Cut::Gone)),
            };
            for ((header, started_us), reply) in headers.into_iter().zip(replies) {
                let reply = wire::Reply::Group(reply);
                self.answer(&header, started_us, &reply).await?;
            }
        }
        match broken {
            Some(end) => Err(end),
            None => Ok(()),
        }
    }

    fn next_frame(&mut self) -> Result<Option<Bytes>, End> {
        let (first, input) = (&mut self.first, &mut self.input);
        let frame = self.line.next(|| match first.take() {
            Some(frame) => Ok(Some(frame)),
            None => input.next(),
        })?;
        if frame.is_some() {
            self.receiving = false;
            self.held.set(self.input.len());
        }
        Ok(frame)
    }

    /// Decodes a frame and sets its request going. In one piece, so that no call is kept across a wait.
    fn begin(&mut self, frame: Bytes) -> Result<InService, End> {
        let started_us = self.house.metrics.now_us();
        let frame_bytes = frame.len();
        let (header, call) = wire::decode(frame, &mut self.peer)?;
        let charge = budget::charge_frame(&self.house.budget, frame_bytes, header.elements);
        let step = self
            .house
            .route
            .begin(&self.door, &header, call, &self.shared, charge);
        Ok(InService {
            header,
            started_us,
            step,
        })
    }

    /// Writes a reply, once there is room for it.
    async fn answer(
        &mut self,
        header: &wire::Header,
        started_us: u64,
        reply: &wire::Reply,
    ) -> Result<(), End> {
        if self.loan.is_short() && wire::reply_bytes(header, reply) > budget::FREE_REPLY_BYTES {
            // What waits must not itself be what others wait for.
            self.flush().await?;
            self.shared.enter(Phase::Paused);
            tokio::select! {
                () = self.loan.ready() => {}
                () = self.shared.wake.notified() => return Err(End::Cut(Cut::Gone)),
            }
        }
        self.write(header, started_us, reply)?;
        self.loan.written();
        if self.output.len() > budget::FREE_REPLY_BYTES {
            self.loan.set(self.output.len());
        }
        Ok(())
    }

    fn write(
        &mut self,
        header: &wire::Header,
        started_us: u64,
        reply: &wire::Reply,
    ) -> Result<(), End> {
        let frame = wire::encode(header, reply)?;
        self.house.metrics.answered(header, started_us, Some(reply));
        self.line.answered();
        if self.output.is_empty() {
            self.output = frame;
        } else {
            self.output.extend_from_slice(&frame);
        }
        Ok(())
    }

    /// Waits for a shard. Replies that are ready leave first, unless this one is only a moment away.
    async fn arrival(&mut self) -> Result<Arrival, End> {
        if !self.output.is_empty() {
            let mut yielded = false;
            let soon = poll_fn(|cx| match self.shared.pigeonhole().poll(cx) {
                Poll::Ready(arrival) => Poll::Ready(Some(arrival)),
                Poll::Pending if yielded => Poll::Ready(None),
                Poll::Pending => {
                    yielded = true;
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
            })
            .await;
            if let Some(arrival) = soon {
                return Ok(arrival);
            }
            self.flush().await?;
            self.shared.enter(Phase::InService);
        }
        Ok(self.shared.pigeonhole().arrival().await)
    }

    /// Throws away what comes until the client goes or has been idle for too long.
    async fn stay_mute(&mut self) -> End {
        self.shared.enter(Phase::Mute);
        self.input = FrameBuffer::new(0);
        loop {
            let reader = &mut self.reader;
            let read = poll_fn(|cx| {
                CHUNK.with_borrow_mut(|chunk| {
                    let mut chunk = ReadBuf::new(chunk);
                    let read = Pin::new(&mut *reader).poll_read(cx, &mut chunk);
                    read.map_ok(|()| chunk.filled().len())
                })
            });
            match read.await {
                Ok(0) => return End::Closed,
                Ok(_) => {}
                Err(error) => return error.into(),
            }
        }
    }

    async fn later(
        &mut self,
        mut later: Pin<Box<dyn Future<Output = Outcome> + Send>>,
    ) -> Result<Outcome, End> {
        let ready = poll_fn(|cx| match later.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => Poll::Ready(None),
        });
        if let Some(outcome) = ready.await {
            return Ok(outcome);
        }
        self.flush().await?;
        self.shared.enter(Phase::InService);
        tokio::select! {
            outcome = later => Ok(outcome),
            () = self.shared.wake.notified() => Err(End::Cut(Cut::Gone)),
        }
    }

    /// Reads until there is at least one more byte.
    async fn read(&mut self) -> Result<(), End> {
        let _leave = if self.may_read_on() {
            Leave::Room
        } else {
            Box::pin(self.admit()).await
        };
        if self.input.is_empty() {
            self.shared.enter(Phase::Idle);
        } else if !self.receiving {
            // Once per frame: the time until it must be whole does not begin anew with each of its bytes.
            self.shared.enter(Phase::Receiving);
            self.receiving = true;
        }
        // A spent budget leaves room for small requests: a heartbeat must not wait for an upload.
        let chunk_bytes = if self.house.budget.is_spent() {
            budget::FREE_BYTES
        } else {
            CHUNK_BYTES
        };
        let mut read_bytes = 0;
        if let Some(room) = self.input.room(CHUNK_BYTES) {
            read_bytes = self.reader.read_buf(room).await?;
            if read_bytes == 0 {
                return Err(End::Closed);
            }
        } else {
            let (reader, input) = (&mut self.reader, &mut self.input);
            self.first = poll_fn(|cx| {
                CHUNK.with_borrow_mut(|chunk| {
                    let mut chunk = ReadBuf::new(&mut chunk[..chunk_bytes]);
                    match Pin::new(&mut *reader).poll_read(cx, &mut chunk) {
                        Poll::Pending => Poll::Pending,
                        Poll::Ready(Err(error)) => Poll::Ready(Err(End::Socket(error))),
                        Poll::Ready(Ok(())) if chunk.filled().is_empty() => {
                            Poll::Ready(Err(End::Closed))
                        }
                        Poll::Ready(Ok(())) => {
                            read_bytes = chunk.filled().len();
                            Poll::Ready(input.push(chunk.filled()).map_err(End::BadFrame))
                        }
                    }
                })
            })
            .await?;
        }
        self.house
            .metrics
            .received_bytes
            .increment(read_bytes as u64);
        self.held.set(self.input.len());
        Ok(())
    }

    fn may_read_on(&self) -> bool {
        self.input.len() <= budget::FREE_BYTES || !self.house.budget.is_spent()
    }

    /// Waits for leave to read on in the middle of a large frame.
    async fn admit(&mut self) -> Leave {
        self.shared.enter(Phase::Paused);
        self.receiving = false;
        tokio::select! {
            leave = self.house.budget.admit() => leave,
            () = self.shared.wake.notified() => Leave::Room,
        }
    }

    /// Writes all replies that are ready, unless the client does not take them.
    async fn say_the_last(&mut self) {
        let shared = self.shared.clone();
        tokio::select! {
            _ = self.flush() => {}
            () = shared.wake.notified() => {}
        }
    }

    /// Sends a reply in parts, behind those that are ready: together with them if it is small.
    async fn send_parts(&mut self, parts: Vec<Bytes>) -> Result<(), End> {
        let bytes: usize = parts.iter().map(Bytes::len).sum();
        if bytes < WRITE_BYTES {
            parts
                .iter()
                .for_each(|part| self.output.extend_from_slice(part));
            return Ok(());
        }
        let ready = std::mem::take(&mut self.output).freeze();
        let mut parts: VecDeque<Bytes> = [ready].into_iter().chain(parts).collect();
        parts.retain(|part| !part.is_empty());
        let mut sent_bytes = 0;
        while !parts.is_empty() {
            let slices: Vec<IoSlice<'_>> = parts
                .iter()
                .take(PARTS_AT_ONCE)
                .map(|part| IoSlice::new(part))
                .collect();
            match self.shared.writer.try_write_vectored(&slices) {
                Ok(mut sent) => {
                    sent_bytes += sent;
                    while let Some(part) = parts.front_mut() {
                        if sent < part.len() {
                            part.advance(sent);
                            break;
                        }
                        sent -= part.len();
                        parts.pop_front();
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.shared.enter(Phase::Sending);
                    self.shared.writer.writable().await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.house.metrics.sent_bytes.increment(sent_bytes as u64);
        self.loan = Loan::none(&self.house.replies);
        Ok(())
    }

    /// Writes all replies that are ready.
    async fn flush(&mut self) -> Result<(), End> {
        let mut written = 0;
        while written < self.output.len() {
            match self.shared.writer.try_write(&self.output[written..]) {
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.shared.enter(Phase::Sending);
                    Box::pin(self.shared.writer.writable()).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        if written > 0 {
            self.house.metrics.sent_bytes.increment(written as u64);
        }
        self.output = BytesMut::new();
        self.loan = Loan::none(&self.house.replies);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_takes_little() {
        type Run<F> = fn(Arc<House>, Arc<Door>, Place, OwnedReadHalf, Arc<Quiet>) -> F;
        fn size_of_run<F>(_: Run<F>) -> usize {
            size_of::<F>()
        }
        let bytes = size_of_run(run);
        assert!(bytes <= 640, "{bytes} bytes for each connection");
    }
}
