//! A small Kafka client: connect, negotiate versions, send, match replies.
//!
//! One [`Client`] is one connection. Requests and replies are kafka-protocol's structs; nothing here knows what they
//! mean, retries, or looks for another broker. Tests and the gateway build on it.
//!
//! It **trusts its peer**: kafka-protocol reserves memory by the counts a reply declares, so a hostile server can
//! make the process run out of it. The size of a reply is bounded ([`Options::frame_bytes_max`]), its inner counts
//! are not. Point it only at servers you run.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::messages::{ApiVersionsRequest, RequestHeader, ResponseHeader};
use kafka_protocol::protocol::{
    Decodable, Encodable, HeaderVersion, Request, StrBytes, VersionRange,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpStream, ToSocketAddrs};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// Kafka's code for a version that the server does not have.
const UNSUPPORTED_VERSION: i16 = 35;
/// The newest ApiVersions request that is tried; every server answers it, if only with a refusal (KIP-511).
const API_VERSIONS: i16 = 3;
/// Frames that may wait for the socket before [`Client::send`] waits itself.
const QUEUED_FRAMES_MAX: usize = 64;
/// A reply's memory is reserved in steps of this size as its bytes arrive, never by its announced length.
const READ_STEP_BYTES: usize = 64 * 1024;

/// What can go wrong on a connection.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No connection, or it broke.
    #[error("connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection before it answered. Kafka does so on requests that it cannot read and on
    /// versions that it does not have.
    #[error("the server closed the connection before answering")]
    Closed,
    /// The server announced a reply larger than [`Options::frame_bytes_max`], or a negative size.
    #[error("the server announced a reply of {announced} bytes; at most {max} are taken")]
    FrameSize {
        /// The announced length.
        announced: i32,
        /// The limit.
        max: usize,
    },
    /// The server answered another request than the oldest one that waits.
    #[error("the server answered request {got} where {want:?} was due")]
    Correlation {
        /// The correlation id of the reply.
        got: i32,
        /// The oldest one that waits.
        want: Option<i32>,
    },
    /// No version of this API is known on both sides.
    #[error("API {key}: the server has {theirs:?}, this client {ours}")]
    Unsupported {
        /// The API key.
        key: i16,
        /// What the server offers, if it offers the API at all.
        theirs: Option<(i16, i16)>,
        /// What kafka-protocol can encode.
        ours: VersionRange,
    },
    /// The request cannot be written in this version, or is too large for a frame.
    #[error("API {key} version {version}: the request cannot be encoded: {cause}")]
    Encode {
        /// The API key.
        key: i16,
        /// The version.
        version: i16,
        /// Why.
        cause: Cause,
    },
    /// The reply is not what the schema says.
    #[error("API {key} version {version}: the reply cannot be decoded: {cause}")]
    Decode {
        /// The API key.
        key: i16,
        /// The version.
        version: i16,
        /// Why.
        cause: Cause,
    },
    /// The server refused to tell its versions.
    #[error("the server refused ApiVersions with error code {0}")]
    ApiVersions(i16),
}

/// The reason that kafka-protocol gives.
pub type Cause = Box<dyn std::error::Error + Send + Sync>;

/// How to connect.
#[derive(Clone, Debug)]
pub struct Options {
    /// Sent in every request header.
    pub client_id: String,
    /// The largest reply that is taken, in bytes.
    pub frame_bytes_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            client_id: "convoke".to_owned(),
            frame_bytes_max: 100 * 1024 * 1024,
        }
    }
}

/// One connection to a Kafka server. Clones share it; when the last one is dropped it closes, with whatever waits.
///
/// Requests may be sent while others wait: a server answers a connection in order, one request at a time. There are
/// no timeouts inside. Dropping a [`send`](Self::send) half-way is safe: its reply is thrown away when it comes.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    client_id: StrBytes,
    versions: BTreeMap<i16, (i16, i16)>,
    next_correlation_id: AtomicI32,
    frames: mpsc::Sender<Frame>,
    tasks: [AbortHandle; 2],
}

impl Drop for Shared {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// A frame on its way out, and who waits for the reply.
#[derive(Debug)]
struct Frame {
    bytes: Bytes,
    waiter: Waiter,
}

#[derive(Debug)]
struct Waiter {
    correlation_id: i32,
    reply: oneshot::Sender<Result<Bytes, Error>>,
}

impl Client {
    /// Connects with default [`Options`] and negotiates versions.
    ///
    /// # Errors
    /// As [`connect_with`](Self::connect_with).
    pub async fn connect(addr: impl ToSocketAddrs) -> Result<Self, Error> {
        Self::connect_with(addr, Options::default()).await
    }

    /// Connects and asks the server for its versions.
    ///
    /// # Errors
    /// [`Error::Io`] and [`Error::Closed`] if there is no Kafka server there; [`Error::ApiVersions`] if it refuses.
    pub async fn connect_with(addr: impl ToSocketAddrs, options: Options) -> Result<Self, Error> {
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let (reader, writer) = stream.into_split();
        let (frames, queue) = mpsc::channel(QUEUED_FRAMES_MAX);
        let waiting = Arc::new(Waiting::default());
        let tasks = [
            tokio::spawn(write_frames(writer, queue, waiting.clone())).abort_handle(),
            tokio::spawn(read_replies(reader, waiting, options.frame_bytes_max)).abort_handle(),
        ];
        let mut shared = Shared {
            client_id: StrBytes::from_string(options.client_id),
            versions: BTreeMap::new(),
            next_correlation_id: AtomicI32::new(0),
            frames,
            tasks,
        };
        shared.versions = shared.api_versions().await?;
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// The versions of an API that the server offers, first and last.
    #[must_use]
    pub fn offered(&self, key: i16) -> Option<(i16, i16)> {
        self.shared.versions.get(&key).copied()
    }

    /// Every API that the server offers, with its first and last version.
    pub fn apis(&self) -> impl Iterator<Item = (i16, (i16, i16))> {
        self.shared
            .versions
            .iter()
            .map(|(key, range)| (*key, *range))
    }

    /// The newest version of a request that both sides know.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if there is none.
    pub fn version<R: Request>(&self) -> Result<i16, Error> {
        let theirs = self.offered(R::KEY);
        let common = theirs.map(|(min, max)| R::VERSIONS.intersect(&VersionRange { min, max }));
        match common {
            Some(range) if !range.is_empty() => Ok(range.max),
            _ => Err(Error::Unsupported {
                key: R::KEY,
                theirs,
                ours: R::VERSIONS,
            }),
        }
    }

    /// Sends a request in the newest version that both sides know, and waits for the reply.
    ///
    /// # Errors
    /// Any but [`Error::ApiVersions`]. Error codes inside the reply are the caller's.
    pub async fn send<R: Request>(&self, request: &R) -> Result<R::Response, Error> {
        self.send_as(self.version::<R>()?, request).await
    }

    /// Sends a request in this version, whether or not the server offers it, and waits for the reply.
    ///
    /// # Errors
    /// Any but [`Error::Unsupported`] and [`Error::ApiVersions`].
    pub async fn send_as<R: Request>(
        &self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Error> {
        self.shared.send(version, request).await
    }

    /// Sends a body that the caller has encoded, and gives back the reply after its header. `flexible`: whether this
    /// version of the API has tagged fields, in its body and in its headers.
    ///
    /// # Errors
    /// As [`send_as`](Self::send_as).
    pub async fn exchange(
        &self,
        key: i16,
        version: i16,
        flexible: bool,
        body: &[u8],
    ) -> Result<Bytes, Error> {
        let headers = if flexible { (2, 1) } else { (1, 0) };
        self.shared.exchange(key, version, headers, body).await
    }
}

impl Shared {
    async fn api_versions(&self) -> Result<BTreeMap<i16, (i16, i16)>, Error> {
        let request = ApiVersionsRequest::default()
            .with_client_software_name(StrBytes::from_static_str("convoke"))
            .with_client_software_version(StrBytes::from_static_str(env!("CARGO_PKG_VERSION")));
        let key = ApiVersionsRequest::KEY;
        let mut body = encode(key, API_VERSIONS, &request)?;
        let mut version = API_VERSIONS;
        let reply = loop {
            let mut bytes = self
                .exchange(key, version, header_versions(version), &body)
                .await?;
            // KIP-511: a server that is older than the request answers in version 0.
            if version > 0 && bytes.starts_with(&UNSUPPORTED_VERSION.to_be_bytes()) {
                version = 0;
                body = Bytes::new();
                continue;
            }
            break decode::<ApiVersionsRequest>(version, &mut bytes)?;
        };
        if reply.error_code != 0 {
            return Err(Error::ApiVersions(reply.error_code));
        }
        let ranges = reply.api_keys.iter();
        Ok(ranges
            .map(|api| (api.api_key, (api.min_version, api.max_version)))
            .collect())
    }

    async fn send<R: Request>(&self, version: i16, request: &R) -> Result<R::Response, Error> {
        let body = encode(R::KEY, version, request)?;
        let headers = (
            R::header_version(version),
            R::Response::header_version(version),
        );
        let mut reply = self.exchange(R::KEY, version, headers, &body).await?;
        decode::<R>(version, &mut reply)
    }

    /// One request and its reply. `headers`: the versions of the request's and the reply's header.
    async fn exchange(
        &self,
        key: i16,
        version: i16,
        headers: (i16, i16),
        body: &[u8],
    ) -> Result<Bytes, Error> {
        // Correlation ids may wrap; only those in flight must differ.
        let correlation_id = self.next_correlation_id.fetch_add(1, Ordering::Relaxed);
        let header = RequestHeader::default()
            .with_request_api_key(key)
            .with_request_api_version(version)
            .with_correlation_id(correlation_id)
            .with_client_id(Some(self.client_id.clone()));
        let refused = |cause| Error::Encode {
            key,
            version,
            cause,
        };
        let mut bytes = BytesMut::with_capacity(body.len() + self.client_id.len() + 16);
        bytes.put_i32(0);
        header
            .encode(&mut bytes, headers.0)
            .map_err(|e| refused(e.into()))?;
        bytes.put_slice(body);
        let len = i32::try_from(bytes.len() - 4).map_err(|e| refused(e.into()))?;
        bytes[..4].copy_from_slice(&len.to_be_bytes());

        let (reply, answered) = oneshot::channel();
        let frame = Frame {
            bytes: bytes.freeze(),
            waiter: Waiter {
                correlation_id,
                reply,
            },
        };
        self.frames.send(frame).await.map_err(|_| Error::Closed)?;
        let mut payload = answered.await.map_err(|_| Error::Closed)??;
        ResponseHeader::decode(&mut payload, headers.1).map_err(|e| Error::Decode {
            key,
            version,
            cause: e.into(),
        })?;
        Ok(payload)
    }
}

/// The versions of the request's and the reply's header of ApiVersions: the reply's is always 0 (KIP-511).
fn header_versions(version: i16) -> (i16, i16) {
    (ApiVersionsRequest::header_version(version), 0)
}

fn encode<R: Encodable>(key: i16, version: i16, request: &R) -> Result<Bytes, Error> {
    let mut body = BytesMut::new();
    request
        .encode(&mut body, version)
        .map_err(|e| Error::Encode {
            key,
            version,
            cause: e.into(),
        })?;
    Ok(body.freeze())
}

fn decode<R: Request>(version: i16, reply: &mut Bytes) -> Result<R::Response, Error> {
    R::Response::decode(reply, version).map_err(|e| Error::Decode {
        key: R::KEY,
        version,
        cause: e.into(),
    })
}

/// Who waits for a reply, oldest first, until the connection is over.
#[derive(Debug, Default)]
struct Waiting {
    /// `None` once the connection is over.
    queue: Mutex<Open>,
}

#[derive(Debug, Default)]
struct Open {
    waiters: VecDeque<Waiter>,
    over: bool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Open> {
        // Nothing that holds the lock can panic half-way.
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a waiter; `false` if the connection is over (the waiter then learns it by its dropped channel).
    fn push(&self, waiter: Waiter) -> bool {
        let mut open = self.lock();
        if !open.over {
            open.waiters.push_back(waiter);
        }
        !open.over
    }

    /// Hands a reply to the oldest waiter.
    fn answer(&self, payload: Bytes) -> Result<(), Error> {
        // The id stays in front: kafka-protocol counts it to the header.
        let got = (&*payload).get_i32();
        let mut open = self.lock();
        let want = open.waiters.front().map(|waiter| waiter.correlation_id);
        if want != Some(got) {
            return Err(Error::Correlation { got, want });
        }
        if let Some(waiter) = open.waiters.pop_front() {
            // A caller that has gone away does not want it.
            let _ = waiter.reply.send(Ok(payload));
        }
        Ok(())
    }

    /// Ends the connection: the oldest waiter learns why, the others that it is closed.
    fn end(&self, why: Error) {
        let mut open = self.lock();
        open.over = true;
        if let Some(waiter) = open.waiters.pop_front() {
            let _ = waiter.reply.send(Err(why));
        }
        open.waiters.clear();
    }
}

async fn write_frames(
    mut writer: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Frame>,
    waiting: Arc<Waiting>,
) {
    while let Some(frame) = queue.recv().await {
        // The waiter goes in first: the reply may be here before the write returns.
        if !waiting.push(frame.waiter) {
            return;
        }
        if let Err(e) = writer.write_all(&frame.bytes).await {
            waiting.end(e.into());
            return;
        }
    }
}

async fn read_replies(mut reader: OwnedReadHalf, waiting: Arc<Waiting>, frame_bytes_max: usize) {
    let why = loop {
        let answered = match read_frame(&mut reader, frame_bytes_max).await {
            Ok(payload) => waiting.answer(payload),
            Err(e) => Err(e),
        };
        if let Err(e) = answered {
            break e;
        }
    };
    waiting.end(why);
}

async fn read_frame(reader: &mut OwnedReadHalf, max: usize) -> Result<Bytes, Error> {
    let announced = match reader.read_i32().await {
        Ok(len) => len,
        Err(e) => return Err(closed(e)),
    };
    let len = match usize::try_from(announced) {
        // At least a correlation id.
        Ok(len) if (4..=max).contains(&len) => len,
        _ => return Err(Error::FrameSize { announced, max }),
    };
    let mut payload = BytesMut::with_capacity(len.min(READ_STEP_BYTES));
    while payload.len() < len {
        let rest = len - payload.len();
        payload.reserve(rest.min(READ_STEP_BYTES));
        if reader.take(rest as u64).read_buf(&mut payload).await? == 0 {
            return Err(Error::Closed);
        }
    }
    Ok(payload.freeze())
}

/// A connection that ends between frames is closed; anything else is broken.
fn closed(e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => Error::Closed,
        _ => Error::Io(e),
    }
}

#[cfg(test)]
mod tests {
    use kafka_protocol::messages::api_versions_response::ApiVersion;
    use kafka_protocol::messages::{ApiVersionsResponse, HeartbeatRequest, HeartbeatResponse};
    use tokio::net::TcpListener;

    use super::*;

    /// Reads one request frame; gives its correlation id.
    async fn request(stream: &mut TcpStream) -> i32 {
        let len = stream.read_i32().await.unwrap();
        let mut frame = vec![0; usize::try_from(len).unwrap()];
        stream.read_exact(&mut frame).await.unwrap();
        i32::from_be_bytes(frame[4..8].try_into().unwrap())
    }

    async fn reply(stream: &mut TcpStream, correlation_id: i32, body: &[u8]) {
        let mut frame = BytesMut::new();
        frame.put_i32(i32::try_from(body.len() + 4).unwrap());
        frame.put_i32(correlation_id);
        frame.put_slice(body);
        stream.write_all(&frame).await.unwrap();
    }

    /// A server that knows Heartbeat 0–1 and ApiVersions 0 only, and a client connected to it.
    async fn pair(options: Options) -> (TcpStream, Client) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let addr = listener.local_addr().unwrap();
        let serve = async {
            let mut stream = listener.accept().await.unwrap().0;
            let id = request(&mut stream).await;
            reply(&mut stream, id, &[0, 35, 0, 0, 0, 0]).await;
            let id = request(&mut stream).await;
            let heartbeat = ApiVersion::default().with_api_key(12).with_max_version(1);
            let versions = ApiVersionsResponse::default().with_api_keys(vec![heartbeat]);
            reply(&mut stream, id, &encode(18, 0, &versions).unwrap()).await;
            stream
        };
        let (stream, client) = tokio::join!(serve, Client::connect_with(addr, options));
        (stream, client.unwrap())
    }

    #[tokio::test]
    async fn an_older_server_is_asked_again_in_version_0() {
        let (_stream, client) = pair(Options::default()).await;
        assert_eq!(client.version::<HeartbeatRequest>().unwrap(), 1);
        let refused = client.version::<ApiVersionsRequest>();
        assert!(matches!(
            refused,
            Err(Error::Unsupported {
                key: 18,
                theirs: None,
                ..
            })
        ));
    }

    #[tokio::test]
    async fn replies_find_their_requests_though_some_callers_went_away() {
        let (mut stream, client) = pair(Options::default()).await;
        let beat = HeartbeatRequest::default();
        {
            let mut gone = std::pin::pin!(client.send(&beat));
            tokio::select! {
                biased;
                _ = &mut gone => unreachable!("nobody answers yet"),
                id = request(&mut stream) => reply(&mut stream, id, &[0, 0, 0, 0, 0, 1]).await,
            }
        }
        let answer = async {
            let ids = [request(&mut stream).await, request(&mut stream).await];
            for (id, code) in ids.into_iter().zip([2, 3]) {
                reply(&mut stream, id, &[0, 0, 0, 0, 0, code]).await;
            }
        };
        let code = |reply: Result<HeartbeatResponse, Error>| reply.unwrap().error_code;
        let (first, second, ()) = tokio::join!(client.send(&beat), client.send(&beat), answer);
        assert_eq!((code(first), code(second)), (2, 3));
    }

    #[tokio::test]
    async fn a_closed_connection_is_told_to_all_who_wait_and_come_later() {
        let (mut stream, client) = pair(Options::default()).await;
        let beat = HeartbeatRequest::default();
        let close = async {
            request(&mut stream).await;
            request(&mut stream).await;
            drop(stream);
        };
        let (first, second, ()) = tokio::join!(client.send(&beat), client.send(&beat), close);
        assert!(matches!(
            (first, second),
            (Err(Error::Closed), Err(Error::Closed))
        ));
        assert!(client.send(&beat).await.is_err());
    }

    #[tokio::test]
    async fn a_reply_larger_than_the_limit_or_for_nobody_ends_the_connection() {
        let options = Options {
            frame_bytes_max: 1000,
            ..Options::default()
        };
        let (mut stream, client) = pair(options.clone()).await;
        let beat = HeartbeatRequest::default();
        let announce = async {
            request(&mut stream).await;
            stream.write_all(&1001_i32.to_be_bytes()).await.unwrap();
        };
        let (answer, ()) = tokio::join!(client.send(&beat), announce);
        assert!(matches!(
            answer,
            Err(Error::FrameSize {
                announced: 1001,
                max: 1000
            })
        ));

        let (mut stream, client) = pair(options).await;
        let answer_another = async {
            let id = request(&mut stream).await;
            reply(&mut stream, id + 7, &[0, 0, 0, 0, 0, 0]).await;
        };
        let (answer, ()) = tokio::join!(client.send(&beat), answer_another);
        assert!(matches!(answer, Err(Error::Correlation { .. })));
    }

    #[tokio::test]
    async fn dropping_the_client_closes_the_connection() {
        let (mut stream, client) = pair(Options::default()).await;
        drop(client);
        assert_eq!(stream.read(&mut [0]).await.unwrap(), 0);
    }
}
