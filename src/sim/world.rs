//! One world: its clients, its server, what happens next, and what must be true in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::check::Check;
use super::client::{
    Abandoner, Admin, Asked, Committer, Confused, Consumer, Gossip, Habits, Hands, IdPartition,
    Modern, ModernHabits, Operator, Outstanding, Role, want, wanted,
};
use super::disk::Disk;
use super::frames::{self, Ask, Dialogue, Said, TopicAsk};
use super::net::{ConnId, Event, Net, Weather};
use super::rng::Rng;
use super::server::Server;
use super::trace::Trace;
use super::{Fault, Options};
use crate::desk;
use crate::group::types::{GroupId, TopicName};
use crate::group::{Bounded, GroupConfig};

/// How long after the last fault everything must be well.
const HEALING_MS: i64 = 15 * 60_000;
/// And in how many events.
const HEALING_STEPS: u64 = 60_000;
/// How often the dear checks are made.
const REPLAY_EVERY: u64 = 50;

/// A client and its connection.
#[derive(Debug)]
struct Client {
    role: Role,
    conn: Option<(ConnId, Dialogue)>,
    next_call: u64,
    outstanding: Vec<Outstanding>,
    /// When it is going to look around.
    wake_at: i64,
}

impl Client {
    fn new(role: Role) -> Self {
        Self {
            role,
            conn: None,
            next_call: 0,
            outstanding: Vec::new(),
            wake_at: i64::MAX,
        }
    }

    fn is_on(&self, conn: ConnId) -> bool {
        self.conn.as_ref().is_some_and(|(own, _)| *own == conn)
    }
}

/// The faults of this world, each so many times in a thousand changes of the weather.
#[derive(Clone, Copy, Debug)]
struct Climate {
    crash: u64,
    failed_append: u64,
    full_disk: u64,
    slow_disk: u64,
    cut: u64,
    clock_jump: u64,
    interval_ms: i64,
}

/// One world.
#[derive(Debug)]
pub(super) struct World {
    net: Net,
    server: Server,
    check: Check,
    clients: Vec<Client>,
    gossip: Gossip,
    stamp: i64,
    climate: Climate,
    calm: bool,
    /// Topics come, grow and go.
    changes_topics: bool,
    steps: u64,
    step: u64,
}

impl World {
    pub(super) fn new(options: &Options) -> Self {
        let mut rng = Rng::new(options.seed ^ 0x5eed_0fc0_ffee);
        let rng = &mut rng;
        let config = GroupConfig {
            session_timeout_ms: 6_000..=30_000,
            initial_rebalance_delay_ms: *rng.pick(&[0, 0, 100, 3_000]),
            max_size: *rng.pick(&[usize::MAX, usize::MAX, usize::MAX, 3]),
            offsets_retention_ms: *rng.pick(&[5_000, 60_000, 3_600_000]),
            offsets_retention_check_interval_ms: *rng.pick(&[1_000, 10_000, 60_000]),
            consumer_session_timeout_ms: bounded(8_000),
            consumer_heartbeat_interval_ms: bounded(2_000),
            consumer_assignment_interval_ms: bounded(*rng.pick(&[0, 1_000, 5_000])),
            consumer_max_size: *rng.pick(&[usize::MAX, usize::MAX, usize::MAX, 3]),
            heartbeat_hint: rng.chance(500),
            member_id_wait_ms: *Rng::new(options.seed ^ 0x1d).pick(&[0, 1_000, 5_000, 60_000]),
            ..GroupConfig::default()
        };
        let names: Vec<TopicName> = (0..3).map(|n| Arc::from(format!("t{n}"))).collect();
        let present = &names[..1 + rng.index(3)];
        let mut provide = |name: &TopicName| (name.clone(), rng.between(1, 5) as i32);
        let provided: Vec<(TopicName, i32)> = present.iter().map(&mut provide).collect();
        let drawn = Weather {
            delay_ms_max: *rng.pick(&[2, 20, 200]),
            straggler_per_mille: *rng.pick(&[0, 10, 50]),
            cut_per_mille: *rng.pick(&[0, 5, 30]),
        };
        let weather = if options.faults.contains(&Fault::Network) {
            drawn
        } else {
            Weather::FAIR
        };
        // What does not happen is drawn all the same: the rest of the world stays as it is.
        let of = |fault: Fault, per_mille: u64| {
            if options.faults.contains(&fault) {
                per_mille
            } else {
                0
            }
        };
        let climate = Climate {
            crash: of(Fault::Crashes, *rng.pick(&[0, 50, 200])),
            failed_append: of(Fault::Disk, *rng.pick(&[0, 50, 100])),
            full_disk: of(Fault::Disk, *rng.pick(&[0, 0, 50])),
            slow_disk: of(Fault::Disk, *rng.pick(&[0, 50])),
            cut: of(Fault::Network, *rng.pick(&[0, 100])),
            clock_jump: of(Fault::Clock, *rng.pick(&[0, 300])),
            interval_ms: *rng.pick(&[500, 3_000, 10_000]),
        };
        let (clients, mixed) = Self::people(options, rng, &names);
        let segment_bytes = *rng.pick(&[1_024, 4_096, 16_384]);
        let disk = Disk::new(segment_bytes, *rng.pick(&[300, 2_000, 50_000]));
        let desk = desk::Options {
            patience_ms: *rng.pick(&[500, 5_000]),
            room_bytes: *rng.pick(&[64, 1_024]),
        };
        let server_seed = rng.next();
        let seed = rng.next();
        let trace = Trace::new(options.trace);
        let server = Server::new(config.clone(), &provided, server_seed, desk, disk)
            .expect("an empty disk takes a few topics");
        Self {
            net: Net::new(Rng::new(seed), trace, weather),
            check: Check::new(config, server.topics().clone(), mixed),
            server,
            clients,
            gossip: Gossip::default(),
            stamp: 0,
            climate,
            calm: options.faults.is_empty(),
            changes_topics: options.faults.contains(&Fault::Strangers),
            steps: options.steps,
            step: 0,
        }
    }

    fn people(
        options: &Options,
        rng: &mut Rng,
        topics: &[TopicName],
    ) -> (Vec<Client>, BTreeSet<GroupId>) {
        let mut roles = Vec::new();
        let mut mixed = BTreeSet::new();
        let mishaps = options.faults.contains(&Fault::Mishaps);
        let strangers = options.faults.contains(&Fault::Strangers);
        let drawn = 1 + rng.below(2);
        let group_count = options.groups.unwrap_or(drawn);
        let mut groups: Vec<GroupId> = Vec::new();
        for n in 0..group_count {
            let group_id: GroupId = format!("g{n}").into();
            groups.push(group_id.clone());
            let mixes: [&[&'static str]; 4] = [
                &["range"],
                &["range", "roundrobin"],
                &["cooperative-sticky"],
                &["cooperative-sticky", "range"],
            ];
            let protocols = *rng.pick(&mixes);
            let mishaps_per_mille = Some(*rng.pick(&[0, 20, 100]));
            let mishaps_per_mille = mishaps_per_mille.filter(|_| mishaps).unwrap_or(0);
            let static_per_mille = *rng.pick(&[0, 0, 500, 1000]);
            let uniform = rng.chance(600);
            // Of a thousand consumers of the group, so many speak the consumer protocol.
            let modern_per_mille = *rng.pick(&[0, 0, 1000, 1000, 500]);
            if modern_per_mille == 500 {
                mixed.insert(group_id.clone());
            }
            let consumers = options.consumers.unwrap_or_else(|| 1 + rng.below(4));
            for m in 0..consumers {
                let is_static = rng.chance(static_per_mille);
                let mut wanted: Vec<TopicName> = topics.to_vec();
                if !uniform {
                    rng.shuffle(&mut wanted);
                    wanted.truncate(1 + rng.index(topics.len()));
                }
                if rng.chance(modern_per_mille) {
                    let names_itself = rng.chance(850);
                    let regexes = [None, None, Some("t.*"), Some("t[01]")];
                    let regex = rng.pick(&regexes).filter(|_| names_itself);
                    if regex.is_some() && rng.chance(700) {
                        wanted.clear();
                    }
                    let habits = ModernHabits {
                        group_id: group_id.clone(),
                        instance_id: is_static.then(|| format!("i{m}").into()),
                        topics: wanted,
                        regex,
                        assignor: *rng.pick(&[None, None, Some("range"), Some("uniform")]),
                        rebalance_timeout_ms: *rng.pick(&[3_000, 10_000]),
                        revocation_ms_max: *rng.pick(&[1, 500, 6_000]),
                        names_itself,
                        mishaps_per_mille,
                    };
                    let name = format!("g{n}m{m}");
                    roles.push(Role::Modern(Box::new(Modern::new(&name, habits))));
                    continue;
                }
                let mut protocols = protocols.to_vec();
                if protocols.len() == 2 && rng.chance(500) {
                    // In the middle of a rolling upgrade.
                    protocols.remove(0);
                    if protocols == ["roundrobin"] {
                        protocols = vec!["range"];
                    }
                }
                let habits = Habits {
                    group_id: group_id.clone(),
                    instance_id: is_static.then(|| format!("i{m}").into()),
                    topics: wanted,
                    protocols,
                    session_timeout_ms: rng.between(6_000, 10_000) as i32,
                    rebalance_timeout_ms: *rng.pick(&[0, 3_000, 10_000, 20_000]),
                    two_steps: rng.chance(800),
                    skips: rng.chance(700),
                    work_ms_max: if mishaps {
                        *rng.pick(&[0, 0, 100, 2_000, 12_000])
                    } else {
                        0
                    },
                    mishaps_per_mille,
                };
                roles.push(Role::Consumer(Box::new(Consumer::new(
                    &format!("g{n}c{m}"),
                    habits,
                ))));
            }
            if strangers && modern_per_mille == 0 && rng.chance(300) {
                let name = format!("g{n}abandoner");
                roles.push(Role::Abandoner(Abandoner::new(
                    &name,
                    group_id.clone(),
                    protocols,
                )));
            }
        }
        if strangers {
            groups.push("simple".into());
            let simple: GroupId = if rng.chance(700) {
                "simple".into()
            } else {
                "g0".into()
            };
            roles.push(Role::Committer(Committer::new("committer", simple)));
            if rng.chance(500) {
                roles.push(Role::Confused(Confused::new("confused", groups.clone())));
            }
            if rng.chance(300) {
                roles.push(Role::Operator(Operator::new("operator")));
            }
            if rng.chance(600) {
                // Two who change the same topics get in each other's way.
                let names: &[&str] = if rng.chance(200) {
                    &["admin", "admin2"]
                } else {
                    &["admin"]
                };
                let admin = |name| Role::Admin(Admin::new(name, groups.clone(), topics.to_vec()));
                roles.extend(names.iter().copied().map(admin));
            }
        }
        (roles.into_iter().map(Client::new).collect(), mixed)
    }

    pub(super) fn step_count(&self) -> u64 {
        self.step
    }

    /// The hash, the time that passed, and the story.
    pub(super) fn end(self) -> (u64, i64, Vec<String>) {
        let hash = self.net.trace.hash();
        (hash, self.net.now, self.net.trace.into_story())
    }

    /// Lives through everything.
    pub(super) fn live(&mut self) -> Result<(), String> {
        self.server.start(0, &mut self.net, &mut self.check)?;
        for client in 0..self.clients.len() {
            let ms = self.net.rng.between(0, 2_000);
            self.wake_at(client, ms);
        }
        self.net.after(self.climate.interval_ms, Event::Weather);
        while self.step < self.steps {
            self.one_step()?;
        }
        self.heal()
    }

    fn one_step(&mut self) -> Result<(), String> {
        self.step += 1;
        let Some(event) = self.net.next() else {
            return Err("nothing ever happens again".to_owned());
        };
        self.happen(event)?;
        if self.step.is_multiple_of(REPLAY_EVERY) {
            self.replay()?;
        }
        Ok(())
    }

    fn replay(&mut self) -> Result<(), String> {
        if let Some((coordinator, disk)) = self.server.coordinator() {
            self.check
                .replay(disk.records(), coordinator, &mut self.net.rng)?;
        }
        Ok(())
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        let (net, check) = (&mut self.net, &mut self.check);
        match event {
            Event::Wake(client) => {
                if self.clients[client].wake_at <= net.now {
                    self.clients[client].wake_at = i64::MAX;
                    self.wake(client)?;
                }
            }
            Event::Arrive(conn, call, request) => {
                net.trace.note(conn as u64 ^ call << 32);
                if net.arrive(conn, call, request) {
                    self.server.arrive(conn, net);
                }
            }
            Event::Deliver(conn, call, reply) => {
                if net.is_heard(conn) {
                    self.deliver(conn, call, *reply)?;
                }
            }
            Event::Closed(conn) => self.closed(conn)?,
            Event::Serve => self.server.serve(net, check)?,
            Event::Gone(conn) => net.gone(conn),
            Event::Synced(crash_count) => self.server.synced(crash_count, net, check)?,
            Event::Timer(incarnation) => self.server.timeout(incarnation, net, check)?,
            Event::Loaded(incarnation) => {
                self.server.loaded(incarnation, net, check)?;
                self.replay()?;
            }
            Event::SnapshotDone(crash_count) => {
                self.server.snapshot_done(crash_count, net, check)?;
            }
            Event::Die(crash_count) => {
                if crash_count == self.server.disk.crash_count() {
                    self.crash();
                }
            }
            Event::Restart => self.restart()?,
            Event::Change(conn, call) => self.server.change(conn, call, net, check)?,
            Event::Weather => self.weather()?,
        }
        Ok(())
    }

    /// Something may go wrong.
    fn weather(&mut self) -> Result<(), String> {
        if self.calm {
            return Ok(());
        }
        let climate = self.climate;
        let interval_ms = self.net.rng.between(1, climate.interval_ms);
        self.net.after(interval_ms, Event::Weather);
        if self.net.rng.chance(climate.full_disk) || self.server.disk.is_full() {
            // A full disk lasts until the next change of the weather, or longer.
            let full = !self.server.disk.is_full() || self.net.rng.chance(300);
            self.net.trace.tell(|| format!("disk    full: {full}"));
            self.server.disk.set_full(full);
        }
        if self.net.rng.chance(climate.slow_disk) {
            self.server.sync_ms_max = *self.net.rng.pick(&[0, 10, 100, 3_000]);
        }
        if self.net.rng.chance(climate.failed_append) {
            self.server.disk.fails_next = true;
        }
        if self.net.rng.chance(climate.cut) {
            let client = self.net.rng.index(self.clients.len());
            if let Some((conn, _)) = self.clients[client].conn {
                self.net.cut(conn);
            }
        }
        if self.net.rng.chance(climate.crash) && self.server.is_up() {
            match self.net.rng.below(8) {
                // The process ends as soon as the log notices.
                0 => self.server.disk.fail_syncs(),
                1 => {
                    self.server.stop(&mut self.net, &mut self.check)?;
                    self.restart_later();
                }
                2..=5 => self.server.dies_in_sync = true,
                _ => self.crash(),
            }
        }
        Ok(())
    }

    fn crash(&mut self) {
        self.server.crash(&mut self.net, &mut self.check);
        self.restart_later();
    }

    fn restart_later(&mut self) {
        let ms = *self.net.rng.pick(&[1, 100, 3_000, 20_000]);
        self.net.after(ms, Event::Restart);
    }

    fn restart(&mut self) -> Result<(), String> {
        let jump_ms = if self.net.rng.chance(self.climate.clock_jump) && !self.calm {
            self.net.rng.between(-3_600_000, 60_000)
        } else {
            0
        };
        self.server.start(jump_ms, &mut self.net, &mut self.check)
    }

    fn wake_at(&mut self, client: usize, moment: i64) {
        if moment < self.clients[client].wake_at {
            self.clients[client].wake_at = moment;
            self.net.at(moment, Event::Wake(client));
        }
    }

    fn wake(&mut self, client: usize) -> Result<(), String> {
        let now = self.net.now;
        let patience_ms = self.clients[client].role.patience_ms();
        let oldest = self.clients[client].outstanding.first();
        if oldest.is_some_and(|oldest| now - oldest.since >= patience_ms) {
            self.net
                .trace
                .tell(|| format!("client {client} loses patience"));
            self.hang_up(client)?;
        }
        self.act(client, &mut |role, hands| {
            role.wake(hands);
            Ok(())
        })?;
        if let Some(oldest) = self.clients[client].outstanding.first() {
            self.wake_at(client, oldest.since + patience_ms);
        }
        Ok(())
    }

    /// Lets a client do something, and does what it wants done.
    fn act(
        &mut self,
        client: usize,
        deed: &mut dyn FnMut(&mut Role, &mut Hands<'_>) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut hands = Hands {
            now: self.net.now,
            rng: &mut self.net.rng,
            trace: &mut self.net.trace,
            topics: self.server.topics(),
            gossip: &mut self.gossip,
            stamp: &mut self.stamp,
            calm: self.calm,
            sends: Vec::new(),
            wake_at: None,
            hang_up: false,
        };
        deed(&mut self.clients[client].role, &mut hands)?;
        let Hands {
            sends,
            wake_at,
            hang_up,
            ..
        } = hands;
        if let Some(moment) = wake_at {
            self.wake_at(client, moment);
        }
        let mut unsent = Vec::new();
        for ask in sends {
            let asked = Asked::of(&ask);
            if !self.send(client, ask)? {
                unsent.push(asked);
            }
        }
        self.check_hands(client)?;
        if self.gossip.is_fresh() {
            self.rouse_operator();
        }
        if hang_up {
            self.hang_up(client)?;
        }
        for asked in unsent {
            self.act(client, &mut |role, hands| {
                role.lost(asked, hands);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Somebody has just become a member, which an operator may not like.
    fn rouse_operator(&mut self) {
        let is_operator = |client: &Client| matches!(client.role, Role::Operator(_));
        if let Some(operator) = self.clients.iter().position(is_operator)
            && self.net.rng.chance(100)
        {
            let ms = self.net.rng.between(0, 300);
            self.wake_at(operator, self.net.now + ms);
        }
    }

    /// Sends a request, over a new connection if need be; tells whether that could be done.
    fn send(&mut self, client: usize, ask: Ask) -> Result<bool, String> {
        let state = &mut self.clients[client];
        if state.conn.is_none() && !self.server.is_up() {
            return Ok(false);
        }
        let (conn, dialogue) = state
            .conn
            .get_or_insert_with(|| (self.net.connect(client), Dialogue::new()));
        let conn = *conn;
        let call = state.next_call;
        state.next_call += 1;
        let (name, rng) = (state.role.name(), &mut self.net.rng);
        let asked = Asked::of(&ask);
        let (header, request) = dialogue.ask(name, call as i32, ask, rng, &mut self.net.trace)?;
        state.outstanding.push(Outstanding {
            call,
            asked,
            header,
            since: self.net.now,
        });
        let patience_ms = state.role.patience_ms();
        self.net.send(conn, call, request);
        self.wake_at(client, self.net.now + patience_ms);
        Ok(true)
    }

    fn deliver(&mut self, conn: ConnId, call: u64, said: Said) -> Result<(), String> {
        let client = self.net.client_of(conn);
        let state = &mut self.clients[client];
        if !state.is_on(conn) {
            return Ok(());
        }
        if state.outstanding.first().map(|first| first.call) != Some(call) {
            return Err(format!(
                "connection {conn} answers {call} before {:?}",
                state.outstanding.first()
            ));
        }
        let Outstanding { asked, header, .. } = state.outstanding.remove(0);
        let reply = frames::answer(&header, said, &mut self.net.trace)?;
        self.net.trace.note(client as u64 ^ call << 32);
        let mut reply = Some(reply);
        self.act(client, &mut |role, hands| match reply.take() {
            Some(reply) => role.reply(asked, reply, hands),
            None => Ok(()),
        })
    }

    fn closed(&mut self, conn: ConnId) -> Result<(), String> {
        let client = self.net.client_of(conn);
        if self.clients[client].is_on(conn) {
            self.hang_up(client)?;
        }
        Ok(())
    }

    /// A client gives its connection up.
    fn hang_up(&mut self, client: usize) -> Result<(), String> {
        if let Some((conn, _)) = self.clients[client].conn.take() {
            self.net.close(conn);
        }
        for lost in std::mem::take(&mut self.clients[client].outstanding) {
            self.act(client, &mut |role, hands| {
                role.lost(lost.asked, hands);
                Ok(())
            })?;
        }
        Ok(())
    }

    /// No partition is in two members' hands.
    fn check_hands(&self, client: usize) -> Result<(), String> {
        let group_id = match &self.clients[client].role {
            Role::Consumer(consumer) => consumer.group_id().clone(),
            Role::Modern(consumer) => consumer.group_id().clone(),
            _ => return Ok(()),
        };
        let mut held: BTreeMap<IdPartition, usize> = BTreeMap::new();
        for (index, partition) in self.hands(&group_id) {
            if let Some(holder) = held.insert(partition, index) {
                return Err(format!(
                    "group {group_id}: {partition:?} is in the hands of clients {holder} and {index}"
                ));
            }
        }
        Ok(())
    }

    /// Who holds what, of those whom the group knows as members.
    fn hands(&self, group_id: &GroupId) -> Vec<(usize, IdPartition)> {
        let mut held = Vec::new();
        for (index, client) in self.clients.iter().enumerate() {
            match &client.role {
                Role::Consumer(consumer) if consumer.group_id() == group_id => {
                    let standing = self.check.standing(group_id, consumer.member_id());
                    // An eager member has nothing while it joins; a cooperative one goes on with what it has. A static
                    // one may have slept through generations in which it was kept; what it believes until it syncs is
                    // nobody's fault. Nor is it if a consumer group takes a classic member in again that it had
                    // given up, as Kafka does.
                    let current = standing == Some(consumer.generation());
                    let counts = if consumer.is_static() || self.check.is_mixed(group_id) {
                        current && consumer.is_stable()
                    } else {
                        current || standing.is_some() && consumer.is_cooperative()
                    };
                    if counts {
                        held.extend(consumer.holds().map(|partition| (index, partition)));
                    }
                }
                Role::Modern(consumer)
                    if consumer.group_id() == group_id
                        && self
                            .check
                            .standing(group_id, consumer.member_id())
                            .is_some() =>
                {
                    held.extend(consumer.owned().iter().map(|partition| (index, *partition)));
                }
                _ => {}
            }
        }
        held
    }

    /// The faults end; everything must become well.
    fn heal(&mut self) -> Result<(), String> {
        self.net.trace.tell(|| "        the faults end".to_owned());
        self.calm = true;
        self.server.disk.heal();
        self.server.sync_ms_max = 10;
        self.server.dies_in_sync = false;
        self.net.weather = Weather::FAIR;
        for client in 0..self.clients.len() {
            let now = self.net.now;
            self.wake_at(client, now + 1);
        }
        self.change_topics_last()?;
        let (deadline, last_step) = (self.net.now + HEALING_MS, self.step + HEALING_STEPS);
        let mut trouble = None;
        while self.net.now < deadline && self.step < last_step {
            self.one_step()?;
            if self.step.is_multiple_of(16) {
                trouble = self.unwell();
                if trouble.is_none() {
                    return Ok(());
                }
            }
        }
        Err(format!(
            "{} ms after the last fault not all is well: {}",
            HEALING_MS - (deadline - self.net.now),
            trouble.unwrap_or_default()
        ))
    }

    /// The last that happens is often a change of topics: then nothing later makes up for whoever has missed it.
    fn change_topics_last(&mut self) -> Result<(), String> {
        let rng = &mut self.net.rng;
        let name: TopicName = Arc::from(format!("t{}", rng.below(3)));
        let count = rng.between(1, 3) as i32;
        if !rng.chance(500) || !self.changes_topics {
            return Ok(());
        }
        let ask = match self.server.topics().get(&name) {
            Some(topic) => TopicAsk::Grow(vec![(name, topic.partitions + count)], false),
            None => TopicAsk::Create(vec![want(name, count)], false),
        };
        let admin = Admin::new("last", Vec::new(), Vec::new());
        self.clients.push(Client::new(Role::Admin(admin)));
        self.act(self.clients.len() - 1, &mut |_, hands| {
            hands.change_topics(ask.clone());
            Ok(())
        })
    }

    /// What is not as it should be when nothing goes wrong any more.
    fn unwell(&self) -> Option<String> {
        if !self.server.is_up() {
            return Some("the server is down".to_owned());
        }
        let changes = |client: &Client| {
            let mut asked = client
                .outstanding
                .iter()
                .map(|outstanding| outstanding.asked);
            asked.any(|asked| asked == Asked::Topics)
        };
        if self.server.changes_topics() || self.clients.iter().any(changes) {
            return Some("topics change".to_owned());
        }
        let group_ids = self.clients.iter().filter_map(|client| match &client.role {
            Role::Consumer(consumer) => Some(consumer.group_id()),
            Role::Modern(consumer) => Some(consumer.group_id()),
            _ => None,
        });
        for group_id in group_ids.collect::<BTreeSet<_>>() {
            if let Some(trouble) = self.unwell_group(group_id) {
                return Some(trouble);
            }
        }
        let parked = self.server.parked_count();
        if parked > 0 || self.check.open_count() > 0 {
            return Some(format!("{parked} requests are still parked"));
        }
        None
    }

    /// What is not as it should be in a group.
    fn unwell_group(&self, group_id: &GroupId) -> Option<String> {
        let mut owned: BTreeSet<IdPartition> = BTreeSet::new();
        let mut wished: BTreeSet<IdPartition> = BTreeSet::new();
        let mut count = 0;
        for (index, client) in self.clients.iter().enumerate() {
            let (stable, standing) = match &client.role {
                Role::Consumer(consumer)
                    if consumer.group_id() == group_id && !consumer.gave_up() =>
                {
                    for name in consumer.topics() {
                        if let Some(topic) = self.server.topics().get(name) {
                            wished.extend((0..topic.partitions).map(|index| (topic.id, index)));
                        }
                    }
                    owned.extend(consumer.owned());
                    let standing = self.check.standing(group_id, consumer.member_id());
                    (
                        consumer.is_stable(),
                        standing == Some(consumer.generation()),
                    )
                }
                Role::Modern(consumer)
                    if consumer.group_id() == group_id && !consumer.gave_up() =>
                {
                    wished.extend(wanted(consumer, self.server.topics()));
                    owned.extend(consumer.owned());
                    let standing = self.check.standing(group_id, consumer.member_id());
                    (consumer.is_stable(), standing == Some(consumer.epoch()))
                }
                _ => continue,
            };
            count += 1;
            if !stable || !standing {
                return Some(format!("client {index} of {group_id} is no stable member"));
            }
        }
        if !self.check.is_settled(group_id) || self.check.member_count(group_id) != count {
            return Some(format!("group {group_id} is not settled"));
        }
        let missing = wished.difference(&owned).next().filter(|_| count > 0);
        missing.map(|partition| format!("nobody in {group_id} owns {partition:?}"))
    }
}

fn bounded(value: i32) -> Bounded {
    Bounded {
        default: value,
        bounds: 0..=60_000,
    }
}
