//! The simulated server: the coordinator, the desk and the log that ship, with a task, a clock and threads that are played.
//!
//! One shard. Requests gather in its mailbox and are handed in as one batch; the log's committer and the writer of
//! snapshots work for as long as chance has it; a crash ends everything at any moment. Beside it the data plane changes
//! topics, and puts what it announces into the mailbox.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;

use super::check::{Cause, Check};
use super::disk::Disk;
use super::frames::TopicAnswer;
use super::net::{Call, Change, ConnId, Event, Net, Seat, Taken};
use super::plane::Plane;
use crate::desk::image::Image;
use crate::desk::time::ServerTime;
use crate::desk::{Called, Desk, Options, Shell, Trouble};
use crate::group::record::Record;
use crate::group::refusal::revoke;
use crate::group::request::{ErrorCode, Reply, Request, RequestId};
use crate::group::types::{Millis, TopicName, Topics, TopicsChange};
use crate::group::{Actions, Coordinator, GroupConfig};

/// When a world begins, in Unix milliseconds.
const BEGINNING: i64 = 1_700_000_000_000;

/// Something for the shard.
#[derive(Debug)]
enum Letter {
    Ask(Seat, Box<Request>),
    Topics(Arc<TopicsChange>),
}

/// The server and its disk.
#[derive(Debug)]
pub(super) struct Server {
    config: GroupConfig,
    seed: u64,
    options: Options,
    pub(super) disk: Disk,
    desk: Desk<Seat, u64>,
    is_up: bool,
    /// Counts starts and loads, so that what was meant for an earlier one is told apart.
    incarnation: u64,
    time: ServerTime,
    /// In the world's time.
    started_at: i64,
    /// The wall clock minus the world's time.
    wall_ahead_ms: i64,
    mailbox: VecDeque<Letter>,
    /// The data plane, while the process runs.
    plane: Option<Plane>,
    /// Counts the ids of topics.
    topic_ids: Arc<AtomicU64>,
    image: Image,
    /// Changes of topics that are asked for, by who asked.
    changes: BTreeMap<(ConnId, Call), Box<Change>>,
    /// Who is called what at the desk.
    ids: BTreeMap<(ConnId, Call), RequestId>,
    timer_at: Option<i64>,
    /// How long a sync takes at most.
    pub(super) sync_ms_max: i64,
    /// It is going to die in the middle of the next sync.
    pub(super) dies_in_sync: bool,
}

/// What surrounds the desk.
struct Hall<'a> {
    disk: &'a mut Disk,
    net: &'a mut Net,
    check: &'a mut Check,
    time: &'a ServerTime,
    uptime_ms: i64,
    /// The log is being read again.
    away: bool,
    ids: &'a mut BTreeMap<(ConnId, Call), RequestId>,
    topics: Arc<Topics>,
    asked: Option<(RequestId, Request)>,
    bytes: Bytes,
    snapshot_begun: bool,
    verdict: Result<(), String>,
}

impl Hall<'_> {
    /// Keeps the first thing that does not hold.
    fn judge(&mut self, verdict: Result<(), String>) {
        if self.verdict.is_ok() {
            self.verdict = verdict;
        }
    }
}

impl Shell for Hall<'_> {
    type To = Seat;
    type Position = u64;
    type Error = Trouble;

    fn now(&self) -> Millis {
        self.time.at(self.uptime_ms)
    }

    fn raise_clock(&mut self, stored: Millis) {
        self.time.raise(stored, self.uptime_ms);
    }

    fn reserve(&mut self, bytes: u64) -> bool {
        self.disk.reserve(bytes)
    }

    fn append(&mut self, records: &[Record], now: Millis) -> Result<(u64, u64), Trouble> {
        let (position, bytes) = self.disk.append(records, now)?;
        self.net.trace.note_bytes(&bytes);
        self.net.trace.tell(|| {
            let (count, size) = (records.len(), bytes.len());
            format!("log     {position}: {count} records, {size} bytes")
        });
        self.bytes = bytes;
        Ok((position, self.bytes.len() as u64))
    }

    fn durable(&self) -> Option<u64> {
        self.disk.durable().filter(|_| !self.away)
    }

    fn wants_snapshot(&self) -> bool {
        self.disk.wants_snapshot()
    }

    fn snapshot(&mut self, records: Vec<Record>, now: Millis) {
        self.net
            .trace
            .tell(|| format!("log     begins a snapshot of {}", self.disk.last()));
        self.disk.begin_snapshot(records, now);
        self.snapshot_begun = true;
    }

    fn send(&mut self, to: Seat, reply: Reply) {
        if let Some(id) = self.ids.remove(&(to.conn, to.call)) {
            let durable = self.disk.durable().unwrap_or(0);
            let verdict = self.check.leaves(id, durable);
            self.judge(verdict);
        }
        to.send(reply);
    }

    fn supersede(&mut self, to: Seat) {
        self.ids.remove(&(to.conn, to.call));
        to.supersede();
    }

    fn revoke(&mut self, to: Seat, reply: Reply, error: ErrorCode) {
        // It tells of nothing any more.
        self.ids.remove(&(to.conn, to.call));
        to.send(revoke(reply, error));
    }

    fn loads(&mut self, now: Millis, coordinator: &mut Coordinator) {
        let last = self.disk.last();
        self.net
            .trace
            .tell(|| format!("server  loaded up to {last}"));
        let verdict = self.check.recovered(now, last, coordinator, &self.topics);
        self.judge(verdict);
    }

    fn takes(&mut self, id: RequestId, to: &Seat, request: &Request) {
        self.ids.insert((to.conn, to.call), id);
        self.net
            .trace
            .tell(|| format!("server  {} takes {}", id.0, brief(&format!("{request:?}"))));
        self.asked = Some((id, request.clone()));
    }

    fn took(
        &mut self,
        now: Millis,
        coordinator: &mut Coordinator,
        called: Called<'_>,
        actions: &Actions,
    ) {
        tell(actions, self.net);
        let asked = self.asked.take();
        let cause = match (&called, &asked) {
            (Called::Request(_), Some((id, request))) => Cause::Request(*id, request),
            (Called::Topics(change), _) => Cause::Topics(change),
            (Called::Loaded, _) => Cause::Loaded,
            (Called::Timeout | Called::Request(_), _) => Cause::Timeout,
        };
        let position = self.disk.last() + 1;
        let verdict = self
            .check
            .observe(now, coordinator, cause, actions, position);
        self.judge(verdict);
    }

    fn appended(&mut self, coordinator: &Coordinator) {
        let verdict = self.check.appended(&self.bytes, coordinator);
        self.judge(verdict);
    }
}

impl Server {
    /// One that is down, with these topics on its disk.
    ///
    /// # Errors
    /// A sentence, if they cannot be made.
    pub(super) fn new(
        config: GroupConfig,
        topics: &[(TopicName, i32)],
        seed: u64,
        options: Options,
        mut disk: Disk,
    ) -> Result<Self, String> {
        let topic_ids = Arc::new(AtomicU64::new(0));
        let folder = disk.open_folder()?;
        let plane = Plane::open(disk.fs(), folder, &topic_ids)?;
        plane.provide(topics)?;
        let image = Image::of(&plane.topics());
        Ok(Self {
            config,
            seed,
            disk,
            desk: Desk::new(options, image.topics().clone()),
            options,
            plane: None,
            topic_ids,
            image,
            changes: BTreeMap::new(),
            is_up: false,
            incarnation: 0,
            time: ServerTime::start(Millis(BEGINNING)),
            started_at: 0,
            wall_ahead_ms: BEGINNING,
            mailbox: VecDeque::new(),
            ids: BTreeMap::new(),
            timer_at: None,
            sync_ms_max: 10,
            dies_in_sync: false,
        })
    }

    /// All topics, as the data plane has announced them.
    pub(super) fn topics(&self) -> &Arc<Topics> {
        self.image.topics()
    }

    /// Whether a change of topics is on its way through the server.
    pub(super) fn changes_topics(&self) -> bool {
        let told = |letter: &Letter| matches!(letter, Letter::Topics(_));
        !self.changes.is_empty() || self.mailbox.iter().any(told)
    }

    /// Whether clients can connect.
    pub(super) fn is_up(&self) -> bool {
        self.is_up
    }

    /// How many requests are parked.
    pub(super) fn parked_count(&self) -> usize {
        self.desk.parked_count()
    }

    /// The coordinator, while it serves, and its disk.
    pub(super) fn coordinator(&mut self) -> Option<(&mut Coordinator, &Disk)> {
        Some((self.desk.coordinator()?, &self.disk))
    }

    /// Lets the desk do something.
    fn at_desk<T>(
        &mut self,
        net: &mut Net,
        check: &mut Check,
        deed: impl FnOnce(&mut Desk<Seat, u64>, &mut Hall<'_>, Millis) -> T,
    ) -> Result<T, String> {
        let mut hall = Hall {
            disk: &mut self.disk,
            check,
            time: &self.time,
            uptime_ms: net.now - self.started_at,
            net,
            away: self.desk.is_loading(),
            ids: &mut self.ids,
            topics: self.desk.known_topics().clone(),
            asked: None,
            bytes: Bytes::new(),
            snapshot_begun: false,
            verdict: Ok(()),
        };
        let now = hall.now();
        let done = deed(&mut self.desk, &mut hall, now);
        let (begun, verdict) = (hall.snapshot_begun, hall.verdict);
        if begun {
            let ms = net.rng.between(1, 200);
            net.after(ms, Event::SnapshotDone(self.disk.crash_count()));
        }
        verdict.map(|()| done)
    }

    /// Starts, with a wall clock that may have jumped meanwhile.
    pub(super) fn start(
        &mut self,
        jump_ms: i64,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        let folder = self.disk.open_folder()?;
        let plane = Plane::open(self.disk.fs(), folder, &self.topic_ids)?;
        check.topic_rules.found(&plane.topics())?;
        self.image = Image::of(&plane.topics());
        self.plane = Some(plane);
        self.is_up = true;
        self.wall_ahead_ms += jump_ms;
        self.started_at = net.now;
        self.time = ServerTime::start(Millis(net.now + self.wall_ahead_ms));
        self.desk = Desk::new(self.options, self.image.topics().clone());
        self.load(net, check);
        Ok(())
    }

    fn load(&mut self, net: &mut Net, check: &mut Check) {
        self.incarnation += 1;
        self.timer_at = None;
        check.unloaded();
        let ms = net.rng.between(0, 30);
        net.after(ms, Event::Loaded(self.incarnation));
    }

    /// The log has been read.
    pub(super) fn loaded(
        &mut self,
        incarnation: u64,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        if incarnation != self.incarnation || !self.desk.is_loading() {
            return Ok(());
        }
        let seed = self.seed ^ self.incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let topics = self.desk.known_topics().clone();
        let mut coordinator = Box::new(Coordinator::new(self.config.clone(), topics, seed));
        let mut apply = |record: &Record| coordinator.apply(record);
        if !self.disk.is_open() {
            self.disk.start(&mut apply)?;
        } else if let Err(trouble) = self.disk.reload(&mut apply)? {
            return self.trouble(trouble, net, check);
        }
        self.at_desk(net, check, |desk, hall, _| desk.loaded(hall, coordinator))?;
        self.finish(net, check)
    }

    /// Dies. The disk keeps what it can.
    pub(super) fn crash(&mut self, net: &mut Net, check: &mut Check) {
        net.trace.tell(|| "server  crashes".to_owned());
        self.is_up = false;
        self.incarnation += 1;
        self.timer_at = None;
        self.mailbox.clear();
        self.ids.clear();
        self.desk = Desk::new(self.options, self.desk.known_topics().clone());
        let plane = self.plane.take();
        let changes = std::mem::take(&mut self.changes).into_values();
        self.disk.crash(&mut net.rng, || {
            // Whoever has asked for something is not told of it any more, but it may have been done.
            for change in changes {
                check.topic_rules.doubts(&change.ask);
                if let Some(plane) = &plane {
                    let _ = plane.answer(change.request, change.version);
                }
            }
        });
        net.server_died();
        check.died();
    }

    /// Stops in good order.
    pub(super) fn stop(&mut self, net: &mut Net, check: &mut Check) -> Result<(), String> {
        net.trace.tell(|| "server  stops".to_owned());
        self.at_desk(net, check, |desk, hall, _| desk.stop(hall))?;
        self.finish(net, check)?;
        if self.disk.flush().is_ok() {
            self.at_desk(net, check, |desk, hall, _| {
                if let Some(durable) = hall.durable() {
                    desk.confirm(hall, durable);
                }
            })?;
            self.settle(net)?;
            if let Some(plane) = &self.plane {
                plane.close()?;
            }
            let _ = self.disk.close();
        }
        self.crash(net, check);
        Ok(())
    }

    /// A request arrives.
    pub(super) fn arrive(&mut self, conn: ConnId, net: &mut Net) {
        match net.take_turn(conn) {
            Some(Taken::Group(seat, request)) => self.post(Letter::Ask(seat, request), 2, net),
            Some(Taken::Topics(call, change)) => {
                self.changes.insert((conn, call), change);
                let ms = net.rng.between(0, 20);
                net.after(ms, Event::Change(conn, call));
            }
            None => {}
        }
    }

    /// Puts a letter into the mailbox, which is emptied so soon.
    fn post(&mut self, letter: Letter, ms_max: i64, net: &mut Net) {
        if self.mailbox.is_empty() {
            let ms = net.rng.between(0, ms_max);
            net.after(ms, Event::Serve);
        }
        self.mailbox.push_back(letter);
    }

    /// Takes what is in the mailbox.
    pub(super) fn serve(&mut self, net: &mut Net, check: &mut Check) -> Result<(), String> {
        for letter in std::mem::take(&mut self.mailbox) {
            self.at_desk(net, check, |desk, hall, now| match letter {
                Letter::Ask(seat, request) => desk.ask(hall, now, *request, seat, 0),
                Letter::Topics(change) => desk.topics(hall, now, change),
            })?;
        }
        self.finish(net, check)
    }

    /// The data plane takes up a change of topics: it is made, announced and then answered.
    pub(super) fn change(
        &mut self,
        conn: ConnId,
        call: Call,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        let (Some(change), Some(plane)) = (self.changes.remove(&(conn, call)), &self.plane) else {
            return Ok(());
        };
        let (reply, announced) = plane.answer(change.request, change.version)?;
        let answers = TopicAnswer::all_of(&reply).unwrap_or_default();
        net.trace.tell(|| {
            format!(
                "topics  {:?}: {}",
                change.ask,
                brief(&format!("{answers:?}"))
            )
        });
        let may_refuse = self.disk.may_refuse();
        check
            .topic_rules
            .answered(&change.ask, &answers, &announced, may_refuse)?;
        for change in announced {
            let change = Arc::new(self.image.take(&change));
            self.post(Letter::Topics(change), 20, net);
        }
        net.answer_topics(conn, call, reply)?;
        self.arrive(conn, net);
        Ok(())
    }

    /// Looks at the timers.
    pub(super) fn timeout(
        &mut self,
        incarnation: u64,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        if incarnation != self.incarnation || self.timer_at.is_none_or(|at| at > net.now) {
            return Ok(());
        }
        self.timer_at = None;
        net.trace.tell(|| "server  looks at its timers".to_owned());
        self.at_desk(net, check, |desk, hall, now| desk.timeout(hall, now))?;
        self.finish(net, check)
    }

    /// Ends a batch.
    fn finish(&mut self, net: &mut Net, check: &mut Check) -> Result<(), String> {
        match self.at_desk(net, check, |desk, hall, now| desk.finish(hall, now))? {
            Ok(()) => self.settle(net),
            Err(trouble) => self.trouble(trouble, net, check),
        }
    }

    /// The log took nothing: the coordinator goes, and whoever waits is told to try again.
    fn trouble(
        &mut self,
        trouble: Trouble,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        net.trace
            .tell(|| format!("server  the log took nothing: {trouble:?}"));
        self.at_desk(net, check, |desk, hall, _| desk.trouble(hall, trouble))?;
        if trouble == Trouble::Final {
            check.unloaded();
            net.after(1, Event::Die(self.disk.crash_count()));
        } else {
            self.load(net, check);
        }
        self.settle(net)
    }

    /// What follows from whatever happened: replies leave, requests behind them are taken, the log has work.
    fn settle(&mut self, net: &mut Net) -> Result<(), String> {
        for conn in net.take_arrivals()? {
            self.arrive(conn, net);
        }
        if self.disk.begin() {
            let ms = net.rng.between(0, self.sync_ms_max);
            if std::mem::take(&mut self.dies_in_sync) {
                let ms = net.rng.between(0, ms);
                net.after(ms, Event::Die(self.disk.crash_count()));
            }
            net.after(ms, Event::Synced(self.disk.crash_count()));
        }
        let uptime_ms = net.now - self.started_at;
        let due = self.desk.next_due();
        let due = due.map(|due| net.now + due.since(self.time.at(uptime_ms)).max(0));
        if due != self.timer_at {
            self.timer_at = due;
            if let Some(due) = due {
                net.at(due, Event::Timer(self.incarnation));
            }
        }
        Ok(())
    }

    /// What the log had begun has ended.
    pub(super) fn synced(
        &mut self,
        crash_count: u64,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        // A sync outlives a coordinator that was dropped, but not the process.
        if crash_count != self.disk.crash_count() {
            return Ok(());
        }
        let ended = self.disk.end();
        self.log_did(ended, net, check)
    }

    /// A snapshot has been written.
    pub(super) fn snapshot_done(
        &mut self,
        crash_count: u64,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        if crash_count != self.disk.crash_count() {
            return Ok(());
        }
        let written = self.disk.write_snapshot();
        self.desk.snapshot_ended();
        self.log_did(written, net, check)
    }

    /// The log did something: more may be durable, or nothing ever again.
    fn log_did(
        &mut self,
        done: Result<(), Trouble>,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        if let Err(trouble) = done {
            return self.trouble(trouble, net, check);
        }
        self.at_desk(net, check, |desk, hall, _| {
            if let Some(durable) = hall.durable() {
                desk.confirm(hall, durable);
            }
        })?;
        self.settle(net)
    }
}

/// What a call did, for the story.
fn tell(actions: &Actions, net: &mut Net) {
    for record in &actions.records {
        net.trace
            .tell(|| format!("          records {}", brief(&format!("{record:?}"))));
    }
    for answer in &actions.replies {
        net.trace.tell(|| {
            let text = format!("{:?}", answer.reply);
            format!("          answers {}: {}", answer.id.0, brief(&text))
        });
    }
    for id in &actions.superseded {
        net.trace.tell(|| format!("          supersedes {}", id.0));
    }
}

/// The beginning of a text.
fn brief(text: &str) -> String {
    text.chars().take(400).collect()
}
