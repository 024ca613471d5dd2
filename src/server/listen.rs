//! Sockets that listen, and the loops that accept from them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::gate::Refused;
use super::quiet::Quiet;
use super::route::Door;
use super::{Error, House, connection};
use crate::broker;
use crate::config;

/// How long accepting rests when the process has no file descriptor left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// A bound listener and what clients are told of it.
#[derive(Debug)]
pub(crate) struct Listening {
    pub(crate) socket: TcpListener,
    pub(crate) local: SocketAddr,
    pub(crate) door: Arc<Door>,
}

/// Binds every listener.
pub(crate) async fn bind_all(
    listeners: &[config::Listener],
    backlog: u32,
) -> Result<Vec<Listening>, Error> {
    let mut bound = Vec::new();
    for listener in listeners {
        bound.push(bind(listener, listeners, backlog).await?);
    }
    Ok(bound)
}

async fn bind(
    listener: &config::Listener,
    all: &[config::Listener],
    backlog: u32,
) -> Result<Listening, Error> {
    let failed = |source| Error::Listen {
        listener: listener.name.clone(),
        address: listener.bind.to_string(),
        source,
    };
    let address = &listener.bind;
    let socket = if address.host.is_empty() {
        // Both families by one socket; where there is no IPv6, IPv4 alone.
        let any = SocketAddr::from(([0_u16; 8], address.port));
        let any4 = SocketAddr::from(([0_u8; 4], address.port));
        open(any, false, backlog)
            .or_else(|_| open(any4, false, backlog))
            .map_err(failed)?
    } else {
        let resolved = tokio::net::lookup_host((address.host.as_str(), address.port)).await;
        let resolved = resolved.map_err(failed)?.next().ok_or_else(|| {
            failed(io::Error::new(
                io::ErrorKind::AddrNotAvailable,
                "the name has no address",
            ))
        })?;
        // KIP-797: the IPv4 side of the same port may have a listener of its own.
        let shared = all.iter().any(|other| {
            other.bind.port == address.port
                && other
                    .bind
                    .host
                    .parse::<IpAddr>()
                    .is_ok_and(|ip| ip.is_ipv4())
        });
        open(resolved, shared, backlog).map_err(failed)?
    };
    let local = socket.local_addr().map_err(failed)?;
    let told = &listener.advertised;
    let port = if told.port == 0 {
        local.port()
    } else {
        told.port
    };
    let door = Door {
        name: listener.name.clone(),
        host: told.host.as_str().into(),
        port: i32::from(port),
        listener: broker::Listener {
            host: told.host.clone().into(),
            port: i32::from(port),
        },
    };
    Ok(Listening {
        socket,
        local,
        door: Arc::new(door),
    })
}

fn open(address: SocketAddr, only_v6: bool, backlog: u32) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    // A restart must not wait for the last connections of its forerunner to be forgotten.
    #[cfg(unix)]
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(i32::try_from(backlog).unwrap_or(i32::MAX))?;
    TcpListener::from_std(socket.into())
}

/// Accepts until told to stop.
pub(crate) async fn accept(
    house: Arc<House>,
    listening: Listening,
    lines: Arc<Quiet>,
    mut stop: watch::Receiver<bool>,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listening.socket.accept() => accepted,
            _ = stop.wait_for(|stop| *stop) => return,
        };
        match accepted {
            Ok((stream, peer)) => {
                // Small frames both ways: waiting for more to send would cost a round trip.
                let _ = stream.set_nodelay(true);
                match house.gate.enter(stream, peer) {
                    Ok((place, reader)) => {
                        house.metrics.connections_accepted.increment(1);
                        let (house, door) = (house.clone(), listening.door.clone());
                        tokio::spawn(connection::run(house, door, place, reader, lines.clone()));
                    }
                    Err(refused) => turn_away(&house, &lines, peer, refused),
                }
            }
            Err(error) if is_the_peers(&error) => {}
            Err(error) => {
                lines.say(|unsaid| {
                    tracing::warn!(
                        unsaid,
                        "cannot accept: {error}; raise the limit of open files (ulimit -n), or lower max.connections"
                    );
                });
                tokio::time::sleep(EXHAUSTED_PAUSE).await;
            }
        }
    }
}

fn is_the_peers(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

fn turn_away(house: &House, lines: &Quiet, peer: SocketAddr, refused: Refused) {
    let (reason, why) = match refused {
        Refused::Total => (
            "max_connections",
            "max.connections is reached, or what the limit of open files (ulimit -n) leaves for connections",
        ),
        Refused::PerIp => (
            "max_connections_per_ip",
            "max.connections.per.ip is reached for its address",
        ),
        Refused::Stopping => return,
    };
    house
        .metrics
        .connections_refused
        .get(&[reason])
        .increment(1);
    lines.say(|unsaid| tracing::warn!(%peer, unsaid, "turned a connection away: {why}"));
}
