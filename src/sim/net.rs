//! Time and the network: what will happen when, and the connections between clients and the server. Messages of one
//! connection stay in order; those of different ones overtake each other; a cut loses what is under way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::frames::{Heard, Said, TopicAsk};
use super::rng::Rng;
use super::trace::Trace;
use crate::desk::hop::{Holder, Pigeonhole, ReplyTo};
use crate::desk::line::{Line, Turn};
use crate::group::request::{Reply, Request};
use crate::wire::data;

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
    Arrive(ConnId, Call, Box<Heard>),
    /// A reply reaches its client.
    Deliver(ConnId, Call, Box<Said>),
    /// A client learns that its connection is gone.
    Closed(ConnId),
    /// The server takes what is in its mailbox.
    Serve,
    /// The server notices that a connection is gone.
    Gone(ConnId),
    /// What the log has begun ends.
    Synced(u64),
    /// The server looks at its timers.
    Timer(u64),
    /// The log has been read.
    Loaded(u64),
    /// A snapshot has been written.
    SnapshotDone(u64),
    /// The server dies of a log that has failed.
    Die(u64),
    /// The server starts again.
    Restart,
    /// The data plane takes up a request.
    Change(ConnId, Call),
    /// Something may go wrong.
    Weather,
}

/// The server's end of a connection: where replies from the desk arrive.
#[derive(Debug)]
struct Booth {
    pigeonhole: Pigeonhole,
    conn: ConnId,
    ready: Ready,
}

/// Connections that were woken, in order.
type Ready = Arc<Mutex<Vec<ConnId>>>;

impl Holder for Booth {
    fn pigeonhole(&self) -> &Pigeonhole {
        &self.pigeonhole
    }
}

impl Wake for Booth {
    fn wake(self: Arc<Self>) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.push(self.conn);
    }
}

/// The duty to answer a request, and whose it is.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) conn: ConnId,
    pub(super) call: Call,
    to: ReplyTo,
}

impl Seat {
    /// Answers.
    pub(super) fn send(self, reply: Reply) {
        self.to.send(reply);
    }

    /// There will be no answer.
    pub(super) fn supersede(self) {
        self.to.supersede();
    }
}

/// A change of topics that somebody asks for.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) version: i16,
    pub(super) request: data::Call,
    /// The same in a client's words.
    pub(super) ask: TopicAsk,
}

/// A request whose turn has come.
#[derive(Debug)]
pub(super) enum Taken {
    Group(Seat, Box<Request>),
    Topics(Call, Box<Change>),
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
    line: Line,
    /// The request that is waited for.
    in_service: Option<Call>,
    behind: VecDeque<(Call, Box<Heard>)>,
    booth: Arc<Booth>,
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

impl Weather {
    /// Nothing goes wrong.
    pub(super) const FAIR: Self = Self {
        delay_ms_max: 2,
        straggler_per_mille: 0,
        cut_per_mille: 0,
    };
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
    ready: Ready,
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
            ready: Ready::default(),
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
        let conn = self.connections.len();
        self.connections.push(Connection {
            client,
            served: true,
            server_hears_until: i64::MAX,
            client_hears_until: i64::MAX,
            last_to_server: 0,
            last_to_client: 0,
            line: Line::default(),
            in_service: None,
            behind: VecDeque::new(),
            booth: Arc::new(Booth {
                pigeonhole: Pigeonhole::default(),
                conn,
                ready: self.ready.clone(),
            }),
        });
        conn
    }

    /// Whose connection it is.
    pub(super) fn client_of(&self, conn: ConnId) -> usize {
        self.connections[conn].client
    }

    /// A client sends.
    pub(super) fn send(&mut self, conn: ConnId, call: Call, request: Heard) {
        let delay = self.delay();
        let moment = (self.now + delay).max(self.connections[conn].last_to_server);
        self.connections[conn].last_to_server = moment;
        self.at(moment, Event::Arrive(conn, call, Box::new(request)));
        let cut = self.weather.cut_per_mille;
        if self.rng.chance(cut) {
            self.cut(conn);
        }
    }

    /// A request arrives at the server; tells whether anybody there hears it.
    pub(super) fn arrive(&mut self, conn: ConnId, call: Call, request: Box<Heard>) -> bool {
        let connection = &mut self.connections[conn];
        if !connection.served || self.now > connection.server_hears_until {
            return false;
        }
        connection.behind.push_back((call, request));
        true
    }

    /// The next request of a connection, if its turn has come.
    pub(super) fn take_turn(&mut self, conn: ConnId) -> Option<Taken> {
        let connection = &mut self.connections[conn];
        let behind = &mut connection.behind;
        let Ok::<_, std::convert::Infallible>(next) =
            connection.line.next(|| Ok(behind.pop_front()));
        let (call, heard) = next?;
        connection.in_service = Some(call);
        let waker = Waker::from(connection.booth.clone());
        let waiting = connection
            .booth
            .pigeonhole
            .poll(&Context::from_waker(&waker));
        match (waiting, *heard) {
            (Poll::Pending, Heard::Group(request)) => {
                let to = ReplyTo::holder(connection.booth.clone());
                Some(Taken::Group(Seat { conn, call, to }, Box::new(request)))
            }
            (Poll::Pending, Heard::Topics(version, request, ask)) => Some(Taken::Topics(
                call,
                Box::new(Change {
                    version,
                    request,
                    ask,
                }),
            )),
            // It was cut meanwhile.
            (Poll::Ready(_), _) => None,
        }
    }

    /// Takes up what the desk has put into pigeonholes; gives the connections whose turn has come.
    ///
    /// # Errors
    /// A sentence, if somebody is answered who asked nothing.
    pub(super) fn take_arrivals(&mut self) -> Result<Vec<ConnId>, String> {
        let ready = std::mem::take(&mut *self.ready.lock().unwrap_or_else(PoisonError::into_inner));
        for conn in &ready {
            self.take_arrival(*conn)?;
        }
        Ok(ready)
    }

    fn take_arrival(&mut self, conn: ConnId) -> Result<(), String> {
        let delay = self.delay();
        let connection = &mut self.connections[conn];
        if !connection.served {
            return Ok(());
        }
        let waker = Waker::from(connection.booth.clone());
        let arrived = connection
            .booth
            .pigeonhole
            .poll(&Context::from_waker(&waker));
        let Poll::Ready(arrival) = arrived else {
            return Ok(());
        };
        match Turn::from(arrival) {
            Turn::Answer(reply) => self.answer(conn, delay, Said::Group(reply))?,
            Turn::Mute => connection.behind.clear(),
            Turn::Close => return Err(format!("connection {conn} gets no answer")),
            Turn::Cut => connection.served = false,
        }
        Ok(())
    }

    /// The data plane has answered the request in service.
    ///
    /// # Errors
    /// A sentence, if that is another.
    pub(super) fn answer_topics(
        &mut self,
        conn: ConnId,
        call: Call,
        reply: data::Reply,
    ) -> Result<(), String> {
        let delay = self.delay();
        let connection = &self.connections[conn];
        if !connection.served {
            return Ok(());
        }
        if connection.in_service != Some(call) {
            return Err(format!(
                "connection {conn} is told about {call} and waits for {:?}",
                connection.in_service
            ));
        }
        self.answer(conn, delay, Said::Topics(reply))
    }

    fn answer(&mut self, conn: ConnId, delay: i64, said: Said) -> Result<(), String> {
        let connection = &mut self.connections[conn];
        let Some(call) = connection.in_service.take() else {
            return Err(format!(
                "connection {conn} asked nothing, and is told {said:?}"
            ));
        };
        connection.line.answered();
        let moment = (self.now + delay).max(connection.last_to_client);
        connection.last_to_client = moment;
        self.at(moment, Event::Deliver(conn, call, Box::new(said)));
        if self.rng.chance(self.weather.cut_per_mille) {
            self.cut(conn);
        }
        Ok(())
    }

    /// The server notices that the client is gone.
    pub(super) fn gone(&mut self, conn: ConnId) {
        let connection = &mut self.connections[conn];
        if connection.served {
            connection.behind.clear();
            connection.booth.pigeonhole.cut();
            connection.served = false;
        }
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
        self.leave(conn);
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
        self.leave(conn);
    }

    /// The server will notice that the client is gone: soon, or when its watchman passes.
    fn leave(&mut self, conn: ConnId) {
        let reach = *self.rng.pick(&[100, 20_000]);
        let ms = self.rng.between(0, reach);
        let noticed = self.connections[conn].server_hears_until.saturating_add(ms);
        self.at(noticed, Event::Gone(conn));
    }

    /// The server is gone, and every connection with it.
    pub(super) fn server_died(&mut self) {
        self.ready
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
        let reach = self.weather.delay_ms_max * 2;
        for conn in 0..self.connections.len() {
            if !self.connections[conn].served {
                continue;
            }
            let client = self.rng.between(-1, reach);
            let noticed = self.rng.chance(900);
            let connection = &mut self.connections[conn];
            connection.served = false;
            connection.in_service = None;
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
