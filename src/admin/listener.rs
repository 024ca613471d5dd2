//! A listener that bounds how many connections there are and how long each may go without an
//! answer that is not being worked on. HTTP itself is axum's.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Connections at one time. Operators and scrapers are few.
const CONNECTIONS_MAX: usize = 128;
/// A connection that has not been answered for this long is closed.
const UNANSWERED_MAX: Duration = Duration::from_secs(30);

/// Who is connected, for those who answer.
#[derive(Clone, Debug)]
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    worked_on: Arc<AtomicUsize>,
}

/// As long as it lives, its connection may go without an answer.
#[derive(Debug)]
pub(super) struct AtWork(Arc<AtomicUsize>);

impl Peer {
    /// Says that an answer is being worked on and may take minutes.
    pub(super) fn at_work(&self) -> AtWork {
        self.worked_on.fetch_add(1, Ordering::Relaxed);
        AtWork(self.worked_on.clone())
    }
}

impl Drop for AtWork {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Connected<IncomingStream<'_, Bounded>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Bounded>) -> Self {
        Self {
            address: *stream.remote_addr(),
            worked_on: stream.io().worked_on.clone(),
        }
    }
}

/// Accepts while there is room.
pub(super) struct Bounded {
    socket: TcpListener,
    places: Arc<Semaphore>,
    unanswered_max: Duration,
}

impl Bounded {
    pub(super) fn new(socket: TcpListener) -> Self {
        Self {
            socket,
            places: Arc::new(Semaphore::new(CONNECTIONS_MAX)),
            unanswered_max: UNANSWERED_MAX,
        }
    }
}

impl axum::serve::Listener for Bounded {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Connection, SocketAddr) {
        let place = self.places.clone().acquire_owned().await;
        let place = place.expect("the semaphore is never closed");
        // The TcpListener's own implementation waits out errors such as too many open files.
        let (stream, peer) = axum::serve::Listener::accept(&mut self.socket).await;
        let deadline = Box::pin(tokio::time::sleep(self.unanswered_max));
        let patience = self.unanswered_max;
        (
            Connection {
                stream,
                deadline,
                patience,
                worked_on: Arc::default(),
                _place: place,
            },
            peer,
        )
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// A connection with a deadline that only an answer moves.
pub(super) struct Connection {
    stream: TcpStream,
    deadline: Pin<Box<Sleep>>,
    patience: Duration,
    worked_on: Arc<AtomicUsize>,
    _place: OwnedSemaphorePermit,
}

impl Connection {
    fn overdue(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        while self.deadline.as_mut().poll(cx).is_ready() {
            if self.worked_on.load(Ordering::Relaxed) == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.wait_anew();
        }
        Ok(())
    }

    fn wait_anew(&mut self) {
        self.deadline.as_mut().reset(Instant::now() + self.patience);
    }

    fn answered(&mut self, written: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(1..)) = written {
            self.wait_anew();
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.overdue(cx)?;
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.overdue(cx)?;
        let written = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.answered(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.overdue(cx)?;
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.answered(&written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn a_connection_that_dawdles_is_closed_and_gives_up_its_place() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut bounded = Bounded::new(socket);
        bounded.places = Arc::new(Semaphore::new(1));
        bounded.unanswered_max = Duration::from_millis(20);
        let router = axum::Router::new().route("/", axum::routing::get(|| async { "here" }));
        let server = tokio::spawn(async move { axum::serve(bounded, router).await });

        let mut slow = TcpStream::connect(address).await.unwrap();
        slow.write_all(b"GET / HT").await.unwrap();
        let mut rest = Vec::new();
        // Closed or reset, but over; only then is there a place for the next.
        let _ = slow.read_to_end(&mut rest).await;

        let mut next = TcpStream::connect(address).await.unwrap();
        next.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut text = String::new();
        next.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("here"), "{text}");
        server.abort();
    }
    #[tokio::test]
    async fn an_answer_that_is_worked_on_may_take_longer() {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let mut bounded = Bounded::new(socket);
        bounded.unanswered_max = Duration::from_millis(20);
        let slow = |axum::extract::ConnectInfo(peer): axum::extract::ConnectInfo<Peer>| async move {
            let _at_work = peer.at_work();
            tokio::time::sleep(Duration::from_millis(100)).await;
            "there"
        };
        let router = axum::Router::new().route("/", axum::routing::get(slow));
        let service = router.into_make_service_with_connect_info::<Peer>();
        let server = tokio::spawn(async move { axum::serve(bounded, service).await });

        let mut client = TcpStream::connect(address).await.unwrap();
        client
            .write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            .await
            .unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).await.unwrap();
        assert!(text.ends_with("there"), "{text}");
        server.abort();
    }
}
