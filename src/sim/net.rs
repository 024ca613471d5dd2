//! Time and the network: what will happen when, and the connections between clients and the server. Messages of one
//! connection stay in order; those of different ones overtake each other; a cut loses what is under way.

use std::collections::{BTreeMap, VecDeque};

use super::rng::Rng;
use super::trace::Trace;
use crate::group::request::{Reply, Request};

/// Names a connection for good.
pub(super) type ConnId = usize;
/// Names a request of one connection.
pub(super) type Call = u64;

/// Something that will happen.
#[derive(Debug)]
pub(super) enum Event {
    /// A client looks around.
    Wake(usize),
    /// A request reaches the server.
    Arrive(ConnId, Call, Box<Request>),
    /// A reply reaches its client.
    Deliver(ConnId, Call, Box<Reply>),
    /// A client learns that its connection is gone.
    Closed(ConnId),
    /// The server takes what is in its mailbox.
    Serve,
    /// A sync ends.
    Synced(u64, u64),
    /// The server looks at its timers.
    Timer(u64),
    /// The log has been read.
    Loaded(u64),
    /// A snapshot has been written.
    SnapshotDone(u64),
    /// The server starts again.
    Restart,
    /// Topics have changed; the server hears of it.
    TopicsChanged,
    /// Something may go wrong.
    Weather,
}

/// One connection.
#[derive(Debug)]
struct Connection {
    client: usize,
    /// The server serves it.
    served: bool,
    /// Requests that arrive later are lost.
    server_hears_until: i64,
    /// Replies that arrive later are lost.
    client_hears_until: i64,
    last_to_server: i64,
    last_to_client: i64,
    /// The request in service; the server takes one at a time.
    in_service: Option<Call>,
    behind: VecDeque<(Call, Box<Request>)>,
}

/// How bad the network is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    pub(super) delay_ms_max: i64,
    /// Of a thousand messages, so many are much delayed.
    pub(super) straggler_per_mille: u64,
    /// Of a thousand messages, so many cut their connection.
    pub(super) cut_per_mille: u64,
}

/// Everything between the clients and the server.
#[derive(Debug)]
pub(super) struct Net {
    pub(super) now: i64,
    pub(super) rng: Rng,
    pub(super) trace: Trace,
    pub(super) weather: Weather,
    queue: BTreeMap<(i64, u64), Event>,
    sequence: u64,
    connections: Vec<Connection>,
}

impl Net {
    pub(super) fn new(rng: Rng, trace: Trace, weather: Weather) -> Self {
        Self {
            now: 0,
            rng,
            trace,
            weather,
            queue: BTreeMap::new(),
            sequence: 0,
            connections: Vec::new(),
        }
    }

    /// Something will happen in `ms` milliseconds.
    pub(super) fn after(&mut self, ms: i64, event: Event) {
        self.at(self.now + ms.max(0), event);
    }

    /// Something will happen at a moment.
    pub(super) fn at(&mut self, moment: i64, event: Event) {
        self.sequence += 1;
        self.queue
            .insert((moment.max(self.now), self.sequence), event);
    }

    /// Goes on to the next event.
    pub(super) fn next(&mut self) -> Option<Event> {
        let ((moment, _), event) = self.queue.pop_first()?;
        self.now = moment;
        self.trace.at(moment);
        Some(event)
    }

    fn delay(&mut self) -> i64 {
        let weather = self.weather;
        if self.rng.chance(weather.straggler_per_mille) {
            self.rng.between(0, weather.delay_ms_max * 20)
        } else {
            self.rng.between(0, weather.delay_ms_max)
        }
    }

    /// Opens a connection.
    pub(super) fn connect(&mut self, client: usize) -> ConnId {
        self.connections.push(Connection {
            client,
            served: true,
            server_hears_until: i64::MAX,
            client_hears_until: i64::MAX,
            last_to_server: 0,
            last_to_client: 0,
            in_service: None,
            behind: VecDeque::new(),
        });
        self.connections.len() - 1
    }

    /// Whose connection it is.
    pub(super) fn client_of(&self, conn: ConnId) -> usize {
        self.connections[conn].client
    }

    /// A client sends.
    pub(super) fn send(&mut self, conn: ConnId, call: Call, request: Request) {
        let delay = self.delay();
        let moment = (self.now + delay).max(self.connections[conn].last_to_server);
        self.connections[conn].last_to_server = moment;
        self.at(moment, Event::Arrive(conn, call, Box::new(request)));
        let cut = self.weather.cut_per_mille;
        if self.rng.chance(cut) {
            self.cut(conn);
        }
    }

    /// A request arrives: to be served now, later, or never.
    pub(super) fn arrive(
        &mut self,
        conn: ConnId,
        call: Call,
        request: Box<Request>,
    ) -> Option<Box<Request>> {
        let now = self.now;
        let connection = &mut self.connections[conn];
        if !connection.served || now > connection.server_hears_until {
            return None;
        }
        if connection.in_service.is_some() {
            connection.behind.push_back((call, request));
            return None;
        }
        connection.in_service = Some(call);
        Some(request)
    }

    /// The server answers, if the connection is still there; gives the request behind, if there is one.
    ///
    /// # Errors
    /// A sentence, if that request was not in service.
    pub(super) fn answer(
        &mut self,
        conn: ConnId,
        call: Call,
        reply: Reply,
    ) -> Result<Option<(Call, Box<Request>)>, String> {
        let delay = self.delay();
        let connection = &mut self.connections[conn];
        if !connection.served {
            return Ok(None);
        }
        if connection.in_service != Some(call) {
            return Err(format!(
                "connection {conn} serves {:?}, but {call} is answered: {reply:?}",
                connection.in_service
            ));
        }
        let moment = (self.now + delay).max(connection.last_to_client);
        connection.last_to_client = moment;
        let next = connection.behind.pop_front();
        connection.in_service = next.as_ref().map(|(call, _)| *call);
        self.at(moment, Event::Deliver(conn, call, Box::new(reply)));
        let cut = self.weather.cut_per_mille;
        if self.rng.chance(cut) {
            self.cut(conn);
        }
        Ok(next)
    }

    /// Whether a reply that arrives now is heard.
    pub(super) fn is_heard(&self, conn: ConnId) -> bool {
        self.now <= self.connections[conn].client_hears_until
    }

    /// The connection breaks; what is under way may still arrive, or not. The client learns of it soon, or only when it
    /// loses patience.
    pub(super) fn cut(&mut self, conn: ConnId) {
        let now = self.now;
        let reach = self.weather.delay_ms_max * 2;
        let (server, client) = (self.rng.between(-1, reach), self.rng.between(-1, reach));
        let noticed = self.rng.chance(700);
        let connection = &mut self.connections[conn];
        if connection.client_hears_until != i64::MAX {
            return;
        }
        connection.server_hears_until = now + server;
        connection.client_hears_until = now + client;
        if noticed {
            self.at(now + client, Event::Closed(conn));
        }
        self.trace
            .tell(|| format!("        connection {conn} is cut"));
    }

    /// The client closes the connection: it hears no more, and the server forgets whom to answer.
    pub(super) fn close(&mut self, conn: ConnId) {
        let now = self.now;
        let reach = self.weather.delay_ms_max;
        let server = self.rng.between(0, reach);
        let connection = &mut self.connections[conn];
        connection.client_hears_until = now - 1;
        connection.server_hears_until = connection.server_hears_until.min(now + server);
    }

    /// The server is gone, and every connection with it.
    pub(super) fn server_died(&mut self) {
        let reach = self.weather.delay_ms_max * 2;
        for conn in 0..self.connections.len() {
            if !self.connections[conn].served {
                continue;
            }
            let client = self.rng.between(-1, reach);
            let noticed = self.rng.chance(900);
            let connection = &mut self.connections[conn];
            connection.served = false;
            connection.behind.clear();
            if connection.client_hears_until == i64::MAX {
                connection.client_hears_until = self.now + client;
                if noticed {
                    self.at(self.now + client, Event::Closed(conn));
                }
            }
        }
    }
}
