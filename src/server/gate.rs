//! The gate: who is connected, how many may be, and the watchman who cuts those that idle, dawdle or are gone.
//!
//! Connections arm no timers of their own. Each says in one word what it is doing and until when; the watchman walks
//! past all of them now and then. Not here: what is said on a connection.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use dashmap::DashMap;
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;

use super::clock::Clock;
use crate::desk::hop::{Holder, Pigeonhole};

/// What a connection is doing, and until when it may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Between requests.
    Idle,
    /// A frame has begun to arrive.
    Receiving,
    /// A request is in service. Never cut for taking long: it may be parked.
    InService,
    /// A reply waits for the client to take it.
    Sending,
    /// Not reading, because the process holds too many request bytes.
    Paused,
    /// Its request will never be answered: idle, and what it sends is thrown away.
    Mute,
}

/// Why the watchman cut a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cut {
    /// Not cut.
    No,
    /// No request for `connections.max.idle.ms`.
    Idle,
    /// A frame did not arrive in time.
    SlowSender,
    /// A reply was not taken in time.
    SlowReader,
    /// The client is gone while its request waits.
    Gone,
    /// The server stops.
    Stopping,
}

/// How long each phase may last, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// `connections.max.idle.ms`; `None` for ever.
    pub(crate) idle_ms: Option<u64>,
    /// From a frame's first byte to its last.
    pub(crate) receive_ms: u64,
    /// Until a reply is taken.
    pub(crate) send_ms: u64,
}

/// How many may be connected.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// `max.connections`.
    pub(crate) total: usize,
    /// `max.connections.per.ip`.
    pub(crate) per_ip: usize,
    /// `max.connections.per.ip.overrides`.
    pub(crate) per_ip_overrides: Vec<(IpAddr, usize)>,
}

/// The part of a connection that its task, the shards and the watchman share.
#[derive(Debug)]
pub(crate) struct Shared {
    /// The task reads by the other half.
    pub(crate) writer: OwnedWriteHalf,
    pub(crate) peer: SocketAddr,
    pigeonhole: Pigeonhole,
    /// Phase in the low 3 bits, deadline in milliseconds since the server's start above them.
    phase: AtomicU64,
    cut: AtomicU8,
    /// How often in a row the watchman found the client gone while a request was in service.
    seen_gone: AtomicU8,
    /// Wakes waits that are not on the pigeonhole.
    pub(crate) wake: Notify,
    gate: Arc<Gate>,
}

const NEVER: u64 = u64::MAX >> 3;

impl Shared {
    /// Says what the connection does from now on.
    pub(crate) fn enter(&self, phase: Phase) {
        let patience = match phase {
            Phase::Idle | Phase::Mute => self.gate.patience.idle_ms,
            Phase::Receiving => Some(self.gate.patience.receive_ms),
            Phase::Sending => Some(self.gate.patience.send_ms),
            Phase::InService | Phase::Paused => None,
        };
        let until = patience.map_or(NEVER, |ms| {
            self.gate.now_ms().saturating_add(ms).min(NEVER - 1)
        });
        self.phase
            .store(until << 3 | phase as u64, Ordering::Relaxed);
    }

    fn phase(&self) -> (u64, u64) {
        let word = self.phase.load(Ordering::Relaxed);
        (word & 7, word >> 3)
    }

    /// Why the connection was cut.
    pub(crate) fn cut_reason(&self) -> Cut {
        match self.cut.load(Ordering::Acquire) {
            1 => Cut::Idle,
            2 => Cut::SlowSender,
            3 => Cut::SlowReader,
            4 => Cut::Gone,
            5 => Cut::Stopping,
            _ => Cut::No,
        }
    }

    /// Ends the connection, whatever it waits for.
    pub(crate) fn cut(&self, why: Cut) {
        if self
            .cut
            .compare_exchange(0, why as u8, Ordering::AcqRel, Ordering::Acquire)
            .is_err()
        {
            return;
        }
        // An error means that the peer was faster.
        let _ = SockRef::from(self.writer.as_ref()).shutdown(std::net::Shutdown::Both);
        self.pigeonhole.cut();
        self.wake.notify_one();
    }

    /// Whether the peer has closed its side and everything it sent has been read.
    fn is_gone(&self) -> bool {
        let mut byte = [std::mem::MaybeUninit::uninit()];
        match SockRef::from(self.writer.as_ref()).peek(&mut byte) {
            Ok(bytes) => bytes == 0,
            Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
}

impl Holder for Shared {
    fn pigeonhole(&self) -> &Pigeonhole {
        &self.pigeonhole
    }
}

/// Everybody who is connected to this server.
#[derive(Debug)]
pub(crate) struct Gate {
    clock: Arc<Clock>,
    patience: Patience,
    limits: Limits,
    /// Milliseconds since start as of the watchman's last round: precise enough for deadlines.
    now_ms: AtomicU64,
    next_id: AtomicU64,
    count: AtomicUsize,
    by_ip: DashMap<IpAddr, usize>,
    present: DashMap<u64, Arc<Shared>>,
    stopping: AtomicBool,
    left: Notify,
}

/// Why a connection is not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// `max.connections` is reached.
    Total,
    /// `max.connections.per.ip` is reached.
    PerIp,
    /// The server stops.
    Stopping,
}

/// A connection's place; given up when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    id: u64,
    pub(crate) shared: Arc<Shared>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let gate = &self.shared.gate;
        gate.present.remove(&self.id);
        gate.leave(self.shared.peer.ip());
    }
}

impl Gate {
    pub(crate) fn new(clock: Arc<Clock>, patience: Patience, limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            clock,
            patience,
            limits,
            now_ms: AtomicU64::new(0),
            next_id: AtomicU64::new(0),
            count: AtomicUsize::new(0),
            by_ip: DashMap::new(),
            present: DashMap::new(),
            stopping: AtomicBool::new(false),
            left: Notify::new(),
        })
    }

    fn now_ms(&self) -> u64 {
        self.now_ms.load(Ordering::Relaxed)
    }

    /// How many are connected.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Whether the server stops: connections end after the reply they owe.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    fn per_ip_limit(&self, ip: IpAddr) -> usize {
        self.limits
            .per_ip_overrides
            .iter()
            .find(|(address, _)| *address == ip)
            .map_or(self.limits.per_ip, |(_, count)| *count)
    }

    /// Lets a connection in, if there is a place for it.
    pub(crate) fn enter(
        self: &Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> Result<(Place, OwnedReadHalf), Refused> {
        if self.is_stopping() {
            return Err(Refused::Stopping);
        }
        // An IPv4 client of a dual-stack listener counts as the IPv4 address it is.
        let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
        if self.count.fetch_add(1, Ordering::Relaxed) >= self.limits.total {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return Err(Refused::Total);
        }
        {
            let mut mine = self.by_ip.entry(peer.ip()).or_insert(0);
            if *mine >= self.per_ip_limit(peer.ip()) {
                drop(mine);
                self.count.fetch_sub(1, Ordering::Relaxed);
                return Err(Refused::PerIp);
            }
            *mine += 1;
        }
        let (reader, writer) = stream.into_split();
        let shared = Arc::new(Shared {
            writer,
            peer,
            pigeonhole: Pigeonhole::default(),
            phase: AtomicU64::new(0),
            cut: AtomicU8::new(0),
            seen_gone: AtomicU8::new(0),
            wake: Notify::new(),
            gate: self.clone(),
        });
        shared.enter(Phase::Idle);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        self.present.insert(id, shared.clone());
        Ok((Place { id, shared }, reader))
    }

    fn leave(&self, ip: IpAddr) {
        self.by_ip.remove_if_mut(&ip, |_, count| {
            *count -= 1;
            *count == 0
        });
        if self.count.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.left.notify_waiters();
        }
    }

    /// The watchman's walk, for ever.
    pub(crate) async fn watch(self: Arc<Self>) {
        // Often enough that the shortest limit is kept within a quarter of itself.
        let shortest_ms = [
            self.patience.idle_ms.unwrap_or(u64::MAX),
            self.patience.receive_ms,
            self.patience.send_ms,
        ]
        .into_iter()
        .min()
        .unwrap_or(u64::MAX);
        let pace = Duration::from_millis((shortest_ms / 4).clamp(10, 1000));
        // Looking for clients that are gone costs a system call each, so not on every round.
        let rounds_per_look = (1000 / pace.as_millis()).max(1);
        let mut ticks = tokio::time::interval(pace);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut round = 0_u128;
        loop {
            ticks.tick().await;
            let now_ms = u64::try_from(self.clock.uptime_ms()).unwrap_or(0);
            self.now_ms.store(now_ms, Ordering::Relaxed);
            round += 1;
            self.round(now_ms, round.is_multiple_of(rounds_per_look));
        }
    }

    fn round(&self, now_ms: u64, look: bool) {
        for entry in &self.present {
            let shared = entry.value();
            let (phase, until_ms) = shared.phase();
            // Whoever reads notices by himself that the client has gone.
            if phase != Phase::InService as u64 {
                shared.seen_gone.store(0, Ordering::Relaxed);
            } else if look {
                Self::look(shared);
            }
            if until_ms > now_ms {
                continue;
            }
            let why = if phase == Phase::Receiving as u64 {
                Cut::SlowSender
            } else if phase == Phase::Sending as u64 {
                Cut::SlowReader
            } else {
                Cut::Idle
            };
            shared.cut(why);
        }
    }

    /// Twice in a row, so that a client that only closed its sending side still gets a reply that is nearly ready.
    fn look(shared: &Shared) {
        if !shared.is_gone() {
            shared.seen_gone.store(0, Ordering::Relaxed);
        } else if shared.seen_gone.fetch_add(1, Ordering::Relaxed) > 0 {
            shared.cut(Cut::Gone);
        }
    }

    /// Lets nobody in any more and sends home who is between requests. Who is in service ends after its reply.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        for entry in &self.present {
            let (phase, _) = entry.value().phase();
            let owed = [Phase::InService, Phase::Sending, Phase::Paused];
            if !owed.iter().any(|owed| phase == *owed as u64) {
                entry.value().cut(Cut::Stopping);
            }
        }
    }

    /// Waits until everybody has left.
    pub(crate) async fn empty(&self) {
        loop {
            let left = self.left.notified();
            if self.count() == 0 {
                return;
            }
            left.await;
        }
    }

    /// Cuts everybody who is still there.
    pub(crate) fn clear(&self) {
        for entry in &self.present {
            entry.value().cut(Cut::Stopping);
        }
    }
}
