//! The model server: the coordinator that ships, under the rules of `server/shard.rs`, on a disk that may fail.
//!
//! One shard. It takes what is queued, hands each request in, appends what the whole batch wants recorded as one frame,
//! and lets replies go when what they could have seen is durable. If the log refuses, the coordinator is dropped and
//! loaded again.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::check::{Cause, Check};
use super::disk::Disk;
use super::net::{Call, ConnId, Event, Net};
use crate::group::record::Record;
use crate::group::refusal::{Parkable, refuse, revoke};
use crate::group::request::{ErrorCode, Reply, Request, RequestId};
use crate::group::types::{GroupId, Millis, Topics, TopicsChange};
use crate::group::{Actions, After, Coordinator, GroupConfig};
use crate::wire::records::encode_batch;

/// How long work that found the disk full waits before it tries again.
const FULL_DISK_PAUSE_MS: i64 = 1000;
/// Records of one slice of a snapshot.
const SNAPSHOT_SLICE: usize = 4;

/// Who waits for a reply.
#[derive(Clone, Copy, Debug)]
struct To {
    conn: ConnId,
    call: Call,
}

#[derive(Debug)]
struct Held {
    until: u64,
    id: RequestId,
    to: To,
    reply: Reply,
}

#[derive(Debug)]
enum Life {
    Down,
    Loading,
    Serving(Box<Coordinator>),
}

/// The server and its disk.
#[derive(Debug)]
pub(super) struct Server {
    config: GroupConfig,
    seed: u64,
    pub(super) disk: Disk,
    /// Counts starts and loads, so that what was meant for an earlier one is told apart.
    incarnation: u64,
    life: Life,
    /// Server time minus world time.
    skew_ms: i64,
    topics: Arc<Topics>,
    mailbox: VecDeque<(To, Box<Request>)>,
    next_id: u64,
    waiting: BTreeMap<RequestId, (To, Parkable)>,
    records: Vec<Record>,
    outgoing: Vec<(RequestId, To, Reply, After)>,
    held: VecDeque<Held>,
    dirty: BTreeMap<GroupId, u64>,
    unconfirmed: VecDeque<(u64, Vec<GroupId>)>,
    postponed: VecDeque<Arc<TopicsChange>>,
    not_before: Option<i64>,
    timer_at: Option<i64>,
    snapshot: Option<(u64, Vec<bytes::Bytes>)>,
    /// A snapshot is taken when the log has so many frames.
    snapshot_frames: usize,
    /// How long a sync takes at most.
    pub(super) sync_ms_max: i64,
}

impl Server {
    pub(super) fn new(
        config: GroupConfig,
        topics: Arc<Topics>,
        seed: u64,
        snapshot_frames: usize,
        start: i64,
    ) -> Self {
        Self {
            config,
            seed,
            disk: Disk::default(),
            incarnation: 0,
            life: Life::Down,
            skew_ms: start,
            topics,
            mailbox: VecDeque::new(),
            next_id: 0,
            waiting: BTreeMap::new(),
            records: Vec::new(),
            outgoing: Vec::new(),
            held: VecDeque::new(),
            dirty: BTreeMap::new(),
            unconfirmed: VecDeque::new(),
            postponed: VecDeque::new(),
            not_before: None,
            timer_at: None,
            snapshot: None,
            snapshot_frames,
            sync_ms_max: 10,
        }
    }

    /// The server's clock.
    fn clock(&self, net: &Net) -> Millis {
        Millis(net.now + self.skew_ms)
    }

    /// Whether clients can connect.
    pub(super) fn is_up(&self) -> bool {
        !matches!(self.life, Life::Down)
    }

    /// Learns of topics while it is down.
    pub(super) fn know_topics(&mut self, topics: Arc<Topics>) {
        self.topics = topics;
    }

    /// How many requests are parked.
    pub(super) fn parked_count(&self) -> usize {
        self.waiting.len()
    }

    /// Starts, with a wall clock that may have jumped meanwhile.
    pub(super) fn start(
        &mut self,
        jump_ms: i64,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        self.skew_ms += jump_ms;
        self.load(net, check)?;
        Ok(())
    }

    fn load(&mut self, net: &mut Net, check: &mut Check) -> Result<(), String> {
        self.incarnation += 1;
        self.life = Life::Loading;
        self.timer_at = None;
        self.not_before = None;
        self.snapshot = None;
        check.unloaded();
        let ms = net.rng.between(0, 30);
        net.after(ms, Event::Loaded(self.incarnation));
        Ok(())
    }

    /// The log has been read.
    pub(super) fn loaded(
        &mut self,
        incarnation: u64,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        if incarnation != self.incarnation {
            return Ok(());
        }
        let seed = self.seed ^ self.incarnation.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut coordinator = Box::new(Coordinator::new(
            self.config.clone(),
            self.topics.clone(),
            seed,
        ));
        let last = self.disk.load(&mut |record| coordinator.apply(record))?;
        if self.unconfirmed.is_empty() {
            // A process that has just started syncs what it found before it builds upon it.
            self.disk.settle();
        }
        let newest = coordinator.newest_timestamp();
        let behind = newest.since(self.clock(net));
        self.skew_ms += behind;
        let now = self.clock(net);
        net.trace.tell(|| format!("server  loaded up to {last}"));
        check.recovered(now, last, &mut coordinator, &self.topics)?;
        let mut actions = Actions::default();
        coordinator.loaded(now, &mut actions);
        check.observe(
            now,
            &mut coordinator,
            Cause::Loaded,
            &actions,
            self.disk.last() + 1,
        )?;
        self.life = Life::Serving(coordinator);
        self.take(actions);
        self.finish(net, check)
    }

    /// Dies. The disk keeps what it can.
    pub(super) fn crash(&mut self, net: &mut Net, check: &mut Check) {
        net.trace.tell(|| "server  crashes".to_owned());
        self.life = Life::Down;
        self.incarnation += 1;
        self.timer_at = None;
        self.snapshot = None;
        self.mailbox.clear();
        self.waiting.clear();
        self.records.clear();
        self.outgoing.clear();
        self.held.clear();
        self.dirty.clear();
        self.unconfirmed.clear();
        self.postponed.clear();
        self.disk.crash(&mut net.rng);
        net.server_died();
        check.unloaded();
    }

    /// A request arrives.
    pub(super) fn arrive(
        &mut self,
        conn: ConnId,
        call: Call,
        request: Box<Request>,
        net: &mut Net,
    ) {
        if self.mailbox.is_empty() {
            let ms = net.rng.between(0, 2);
            net.after(ms, Event::Serve);
        }
        self.mailbox.push_back((To { conn, call }, request));
    }

    /// Takes what is in the mailbox.
    pub(super) fn serve(&mut self, net: &mut Net, check: &mut Check) -> Result<(), String> {
        let now = self.clock(net);
        for (to, request) in std::mem::take(&mut self.mailbox) {
            self.ask(now, to, *request, net, check)?;
        }
        self.finish(net, check)
    }

    fn ask(
        &mut self,
        now: Millis,
        to: To,
        request: Request,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        let refused = match &self.life {
            Life::Serving(_) if request.may_write() && self.disk.full => {
                Some(ErrorCode::CoordinatorNotAvailable)
            }
            Life::Serving(_) => None,
            Life::Loading => Some(ErrorCode::CoordinatorLoadInProgress),
            Life::Down => return Ok(()),
        };
        if let Some(error) = refused {
            return self.send(to, refuse(&request, error), net);
        }
        let Life::Serving(coordinator) = &mut self.life else {
            return Ok(());
        };
        let id = RequestId(self.next_id);
        self.next_id += 1;
        self.waiting.insert(id, (to, Parkable::of(&request)));
        let mut actions = Actions::default();
        let copy = request.clone();
        coordinator.handle(now, id, request, &mut actions);
        net.trace
            .tell(|| format!("server  {} takes {}", id.0, brief(&format!("{copy:?}"))));
        tell(&actions, net);
        let cause = Cause::Request(id, &copy);
        check.observe(now, coordinator, cause, &actions, self.disk.last() + 1)?;
        self.take(actions);
        Ok(())
    }

    /// Topics have changed.
    pub(super) fn topics_changed(
        &mut self,
        change: Arc<TopicsChange>,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        self.topics = change.topics.clone();
        let ready = matches!(self.life, Life::Serving(_)) && self.postponed.is_empty();
        if !ready || self.disk.full {
            if self.is_up() {
                self.postponed.push_back(change);
                self.arm(net);
            }
            return Ok(());
        }
        let now = self.clock(net);
        self.hand_topics(now, &change, net, check)?;
        self.finish(net, check)
    }

    fn hand_topics(
        &mut self,
        now: Millis,
        change: &Arc<TopicsChange>,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        if let Life::Serving(coordinator) = &mut self.life {
            let mut actions = Actions::default();
            coordinator.handle_topics(now, (**change).clone(), &mut actions);
            tell(&actions, net);
            let position = self.disk.last() + 1;
            check.observe(now, coordinator, Cause::Topics(change), &actions, position)?;
            self.take(actions);
        }
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
        let now = self.clock(net);
        if self.disk.full {
            self.not_before = Some(net.now + FULL_DISK_PAUSE_MS);
            return self.finish(net, check);
        }
        self.not_before = None;
        while let Some(change) = self.postponed.pop_front() {
            self.hand_topics(now, &change, net, check)?;
        }
        if let Life::Serving(coordinator) = &mut self.life {
            let mut actions = Actions::default();
            coordinator.handle_timeout(now, &mut actions);
            net.trace.tell(|| "server  looks at its timers".to_owned());
            tell(&actions, net);
            check.observe(
                now,
                coordinator,
                Cause::Timeout,
                &actions,
                self.disk.last() + 1,
            )?;
            self.take(actions);
        }
        self.finish(net, check)
    }

    /// Pairs replies with who waits for them.
    fn take(&mut self, actions: Actions) {
        self.records.extend(actions.records);
        for id in actions.superseded {
            self.waiting.remove(&id);
        }
        for answer in actions.replies {
            if let Some((to, _)) = self.waiting.remove(&answer.id) {
                self.outgoing
                    .push((answer.id, to, answer.reply, answer.after));
            }
        }
    }

    /// Appends what was recorded, and lets replies go or holds them until that is durable.
    fn finish(&mut self, net: &mut Net, check: &mut Check) -> Result<(), String> {
        if !self.records.is_empty() {
            let now = self.clock(net);
            match self.disk.append(&self.records, now) {
                Ok((position, bytes)) => {
                    net.trace.note_bytes(&bytes);
                    net.trace.tell(|| {
                        format!(
                            "log     {position}: {} records, {} bytes",
                            self.records.len(),
                            bytes.len()
                        )
                    });
                    let mut groups: Vec<GroupId> = Vec::new();
                    for record in self.records.drain(..) {
                        let group_id = record.group_id();
                        if groups.last() != Some(group_id) {
                            self.dirty.insert(group_id.clone(), position);
                            groups.push(group_id.clone());
                        }
                    }
                    self.unconfirmed.push_back((position, groups));
                    if let Life::Serving(coordinator) = &self.life {
                        check.appended(&bytes, coordinator)?;
                    }
                }
                Err(_) => return self.trouble(net, check),
            }
        }
        for (id, to, reply, after) in std::mem::take(&mut self.outgoing) {
            let until = match &after {
                After::Group(group_id) => self.dirty.get(group_id).copied(),
                After::Shard => self.unconfirmed.back().map(|(position, _)| *position),
            };
            match until {
                None => {
                    check.leaves(id, self.disk.durable())?;
                    self.send(to, reply, net)?;
                }
                Some(until) => self.held.push_back(Held {
                    until,
                    id,
                    to,
                    reply,
                }),
            }
        }
        if let Some(covers) = self.disk.begin_sync() {
            let ms = net.rng.between(0, self.sync_ms_max);
            net.after(ms, Event::Synced(self.disk.crash_count(), covers));
        }
        self.begin_snapshot(net);
        self.arm(net);
        Ok(())
    }

    /// The log took nothing: the coordinator goes, and whoever waits is told to try again.
    fn trouble(&mut self, net: &mut Net, check: &mut Check) -> Result<(), String> {
        let error = ErrorCode::CoordinatorNotAvailable;
        net.trace
            .tell(|| "server  the log took nothing: loading again".to_owned());
        self.records.clear();
        for (_, to, reply, _) in std::mem::take(&mut self.outgoing) {
            self.send(to, revoke(reply, error), net)?;
        }
        for (_, (to, parkable)) in std::mem::take(&mut self.waiting) {
            if let Some(reply) = parkable.refuse(error) {
                self.send(to, reply, net)?;
            }
        }
        self.load(net, check)
    }

    fn send(&mut self, to: To, reply: Reply, net: &mut Net) -> Result<(), String> {
        if let Some((call, request)) = net.answer(to.conn, to.call, reply)? {
            self.arrive(to.conn, call, request, net);
        }
        Ok(())
    }

    /// A sync has ended.
    pub(super) fn synced(
        &mut self,
        crash_count: u64,
        covers: u64,
        net: &mut Net,
        check: &mut Check,
    ) -> Result<(), String> {
        // A sync outlives a coordinator that was dropped, but not the process.
        if crash_count != self.disk.crash_count() {
            return Ok(());
        }
        self.disk.end_sync(covers);
        let durable = self.disk.durable();
        while self
            .unconfirmed
            .front()
            .is_some_and(|(position, _)| *position <= durable)
        {
            let Some((position, groups)) = self.unconfirmed.pop_front() else {
                break;
            };
            for group_id in groups {
                if self.dirty.get(&group_id) == Some(&position) {
                    self.dirty.remove(&group_id);
                }
            }
        }
        for held in std::mem::take(&mut self.held) {
            if held.until <= durable {
                check.leaves(held.id, durable)?;
                self.send(held.to, held.reply, net)?;
            } else {
                self.held.push_back(held);
            }
        }
        self.finish(net, check)
    }

    fn begin_snapshot(&mut self, net: &mut Net) {
        let Life::Serving(coordinator) = &self.life else {
            return;
        };
        if self.snapshot.is_some() || self.disk.frame_count() < self.snapshot_frames {
            return;
        }
        let now = self.clock(net);
        let records: Vec<_> = coordinator.snapshot().collect();
        let slices = records.chunks(SNAPSHOT_SLICE).map(|slice| {
            encode_batch(slice, 0, now).expect("what came from a log can be written to one")
        });
        self.snapshot = Some((self.disk.last(), slices.collect()));
        let ms = net.rng.between(1, 200);
        net.after(ms, Event::SnapshotDone(self.incarnation));
    }

    /// A snapshot has been written.
    pub(super) fn snapshot_done(&mut self, incarnation: u64, net: &mut Net) {
        if incarnation != self.incarnation {
            return;
        }
        if let Some((position, slices)) = self.snapshot.take() {
            if position > self.disk.durable() {
                // It counts once the frames it stands for are durable; here it is just tried again later.
                return;
            }
            net.trace.tell(|| format!("log     snapshot of {position}"));
            self.disk.keep_snapshot(position, slices);
        }
    }

    fn arm(&mut self, net: &mut Net) {
        let Life::Serving(coordinator) = &self.life else {
            return;
        };
        let due = if self.postponed.is_empty() {
            coordinator.poll_timeout().map(|due| due.0 - self.skew_ms)
        } else {
            Some(net.now)
        };
        let due = due.map(|due| self.not_before.map_or(due, |pause| pause.max(due)));
        if due != self.timer_at {
            self.timer_at = due;
            if let Some(due) = due {
                net.at(due, Event::Timer(self.incarnation));
            }
        }
    }

    /// The coordinator, while it serves, and its disk.
    pub(super) fn coordinator(&mut self) -> Option<(&mut Coordinator, &Disk)> {
        match &mut self.life {
            Life::Serving(coordinator) => Some((coordinator, &self.disk)),
            _ => None,
        }
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
