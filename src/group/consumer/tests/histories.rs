//! Random histories: members of both protocols come, change, dawdle, vanish; topics come, grow and go; answers get
//! lost; the process dies. After every step no partition is held twice and no epoch has gone back; quiet histories end
//! with every partition owned once.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use proptest::prelude::*;

use super::world::*;
use crate::group::request::*;
use crate::group::subscription::{Assignment, Subscription};
use crate::group::types::*;
use crate::group::*;

const NAMES: [&str; 4] = ["a1", "a2", "b1", "b2"];
const PATTERNS: [&str; 3] = ["a.*", ".*2", "b1|b2"];

type Partitions = BTreeSet<(TopicId, i32)>;

/// What a client subscribes to.
#[derive(Clone, Debug, PartialEq)]
struct Wish {
    names: Vec<&'static str>,
    pattern: &'static str,
}

impl Wish {
    fn drawn(number: u16) -> Self {
        let names = NAMES
            .iter()
            .enumerate()
            .filter(|(i, _)| number >> i & 1 == 1);
        Self {
            names: names.map(|(_, name)| *name).collect(),
            pattern: if number & 64 == 0 {
                ""
            } else {
                PATTERNS[usize::from(number >> 4) % 3]
            },
        }
    }

    fn matches(&self, name: &str) -> bool {
        self.names.contains(&name)
            || (!self.pattern.is_empty()
                && pattern::Pattern::new(self.pattern).unwrap().matches(name))
    }
}

/// A consumer of either protocol.
#[derive(Clone, Debug)]
struct Consumer {
    member_id: String,
    instance_id: Option<String>,
    wish: Wish,
    /// The wish, or what is owned, has changed since the server last heard of it.
    news: bool,
    /// Epoch or generation; 0 before it is known.
    epoch: i32,
    /// What it works on.
    hands: Partitions,
    /// What it was told last.
    told: Partitions,
    classic: Option<Classic>,
}

/// Where a classic consumer stands. It is an eager one: it lets go of everything before it joins.
#[derive(Clone, Debug, PartialEq)]
enum Classic {
    MustJoin,
    Joining(u64),
    MustSync(Vec<JoinedMember>),
    Syncing(u64),
    Settled,
}

struct History {
    world: World,
    consumers: Vec<Consumer>,
    made: u32,
    /// The newest epochs that were seen, of the group and of members.
    group_epoch: i32,
    member_epochs: BTreeMap<MemberId, i32>,
}

fn partitions(list: &[(TopicId, Vec<i32>)]) -> Partitions {
    list.iter()
        .flat_map(|(topic, ps)| ps.iter().map(|p| (*topic, *p)))
        .collect()
}

fn list(partitions: &Partitions) -> IdPartitions {
    let mut all: BTreeMap<TopicId, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        all.entry(*topic).or_default().push(*partition);
    }
    all.into_iter().collect()
}

impl History {
    fn new(heartbeat_hint: bool) -> Self {
        let mut quick = config();
        quick.heartbeat_hint = heartbeat_hint;
        quick.consumer_session_timeout_ms.default = 8_000;
        let world = World::new(quick, &[("a1", 3), ("b1", 2)]);
        Self {
            world,
            consumers: Vec::new(),
            made: 0,
            group_epoch: 0,
            member_epochs: BTreeMap::new(),
        }
    }

    fn add(&mut self, number: u16, classic: bool) {
        if self.consumers.len() >= 6 {
            return;
        }
        self.made += 1;
        let instance = number.is_multiple_of(3).then(|| format!("i{}", self.made));
        let mut wish = Wish::drawn(number);
        if classic {
            wish.pattern = "";
        }
        self.consumers.push(Consumer {
            member_id: if classic {
                String::new()
            } else {
                format!("m{}", self.made)
            },
            instance_id: instance,
            wish,
            news: true,
            epoch: 0,
            hands: Partitions::new(),
            told: Partitions::new(),
            classic: classic.then_some(Classic::MustJoin),
        });
    }

    /// The consumer gives up all it had and starts anew.
    fn start_over(consumer: &mut Consumer) {
        consumer.epoch = 0;
        consumer.hands.clear();
        consumer.told.clear();
        consumer.news = true;
    }

    /// One exchange with the server. With `answered` off, the answer gets lost.
    fn beat(&mut self, i: usize, answered: bool) {
        self.exchange(i, answered);
        self.check();
    }

    fn exchange(&mut self, i: usize, answered: bool) {
        if self.consumers[i].classic.is_some() {
            return self.beat_classic(i);
        }
        let c = &self.consumers[i];
        let joins = c.epoch == 0;
        let tells = joins || c.news;
        let request = ConsumerHeartbeat {
            group_id: "g".into(),
            client: client(),
            member_id: c.member_id.as_str().into(),
            member_epoch: c.epoch,
            instance_id: c.instance_id.as_deref().map(InstanceId::from),
            rack_id: None,
            rebalance_timeout_ms: if tells { 5_000 } else { -1 },
            subscribed_topic_names: tells
                .then(|| c.wish.names.iter().map(|n| TopicName::from(*n)).collect()),
            subscribed_topic_regex: tells.then(|| c.wish.pattern.into()),
            server_assignor: None,
            topic_partitions: tells.then(|| list(&c.hands)),
            member_id_from_client: true,
        };
        let reply = self.world.beat(request);
        let c = &mut self.consumers[i];
        if !answered {
            c.news = true;
            return;
        }
        match reply.error {
            ErrorCode::None => {
                c.epoch = reply.member_epoch;
                c.news = false;
                if let Some(assignment) = reply.assignment {
                    c.told = partitions(&assignment);
                    c.news |= !c.told.is_subset(&c.hands);
                    c.hands.extend(c.told.iter().copied());
                }
            }
            ErrorCode::FencedMemberEpoch | ErrorCode::UnknownMemberId => Self::start_over(c),
            // The whole group went: nobody kept it alive.
            ErrorCode::GroupIdNotFound => Self::start_over(c),
            ErrorCode::FencedInstanceId | ErrorCode::UnreleasedInstanceId => {
                self.consumers.remove(i);
            }
            other => panic!("{other:?}: {:?}", reply.message),
        }
    }

    fn beat_classic(&mut self, i: usize) {
        let c = &mut self.consumers[i];
        let id = c.member_id.clone();
        match c.classic.clone().expect("a classic consumer") {
            Classic::MustJoin => {
                c.hands.clear();
                let mut join = classic_join(&id, &c.wish.names);
                join.group_instance_id = c.instance_id.as_deref().map(InstanceId::from);
                c.classic = Some(Classic::Joining(self.world.send(Request::Join(join))));
            }
            Classic::MustSync(members) => {
                let assignments = assign(&self.world.topics, &members);
                let mut sync = classic_sync(&id, c.epoch, assignments);
                sync.group_instance_id = c.instance_id.as_deref().map(InstanceId::from);
                c.classic = Some(Classic::Syncing(self.world.send(Request::Sync(sync))));
            }
            Classic::Settled => {
                if c.news {
                    c.news = false;
                    c.classic = Some(Classic::MustJoin);
                    return self.beat_classic(i);
                }
                let mut heartbeat = classic_heartbeat(&id, c.epoch);
                heartbeat.group_instance_id = c.instance_id.as_deref().map(InstanceId::from);
                let reply = self.world.ask(Request::Heartbeat(heartbeat));
                let Reply::Heartbeat(error) = reply else {
                    panic!("{reply:?}")
                };
                self.heard_classic(i, error);
            }
            Classic::Joining(_) | Classic::Syncing(_) => {}
        }
        self.collect();
    }

    /// Takes in an error code of a classic call; tells whether there was none.
    fn heard_classic(&mut self, i: usize, error: ErrorCode) -> bool {
        let c = &mut self.consumers[i];
        match error {
            ErrorCode::None => return true,
            ErrorCode::RebalanceInProgress => {}
            ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId => c.member_id.clear(),
            ErrorCode::IllegalGeneration => {}
            other => panic!("{other:?} for {c:?}"),
        }
        Self::start_over(c);
        c.news = false;
        c.classic = Some(Classic::MustJoin);
        false
    }

    /// Delivers answers that parked requests got meanwhile.
    fn collect(&mut self) {
        for i in 0..self.consumers.len() {
            let (id, joining) = match self.consumers[i].classic {
                Some(Classic::Joining(id)) => (id, true),
                Some(Classic::Syncing(id)) => (id, false),
                _ => continue,
            };
            let Some(reply) = self.world.answer(id) else {
                continue;
            };
            match reply {
                Reply::Join(reply) if joining => {
                    if self.heard_classic(i, reply.error) {
                        let c = &mut self.consumers[i];
                        c.member_id = reply.member_id.to_string();
                        c.epoch = reply.generation;
                        c.classic = Some(Classic::MustSync(reply.members));
                    }
                }
                Reply::Sync(reply) => {
                    if self.heard_classic(i, reply.error) {
                        let c = &mut self.consumers[i];
                        let named = Assignment::parse(&reply.assignment)
                            .map_or_else(Vec::new, |a| a.partitions);
                        let here = named
                            .iter()
                            .filter_map(|(name, ps)| Some((self.world.topics.get(name)?.id, ps)));
                        c.told = here
                            .flat_map(|(id, ps)| ps.iter().map(move |p| (id, *p)))
                            .collect();
                        c.hands.clone_from(&c.told);
                        c.classic = Some(Classic::Settled);
                    }
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn leave(&mut self, i: usize) {
        let c = self.consumers.remove(i);
        if c.classic.is_some() || c.epoch == 0 {
            let leave = Leave {
                group_id: "g".into(),
                members: vec![LeavingMember {
                    member_id: c.member_id.as_str().into(),
                    group_instance_id: c.instance_id.as_deref().map(InstanceId::from),
                    reason: None,
                }],
            };
            self.world.ask(Request::Leave(leave));
        } else {
            let request = ConsumerHeartbeat {
                instance_id: c.instance_id.as_deref().map(InstanceId::from),
                ..beating(&c.member_id, -1)
            };
            self.world.beat(request);
        }
        self.collect();
    }

    /// A static consumer goes for a while and comes back, under a new id.
    fn bounce(&mut self, i: usize, as_classic: bool) {
        let c = &mut self.consumers[i];
        if c.instance_id.is_none() || c.classic.is_some() || c.epoch == 0 {
            return;
        }
        let request = ConsumerHeartbeat {
            instance_id: c.instance_id.as_deref().map(InstanceId::from),
            ..beating(&c.member_id, -2)
        };
        self.made += 1;
        c.member_id = if as_classic {
            String::new()
        } else {
            format!("m{}", self.made)
        };
        c.classic = as_classic.then_some(Classic::MustJoin);
        if as_classic {
            c.wish.pattern = "";
        }
        Self::start_over(c);
        c.news = !as_classic;
        self.world.beat(request);
    }

    fn let_go(&mut self, i: usize) {
        let c = &mut self.consumers[i];
        if c.classic.is_none() && !c.hands.is_subset(&c.told) {
            c.hands = c.hands.intersection(&c.told).copied().collect();
            c.news = true;
        }
    }

    fn step(&mut self, what: u8, which: u8, number: u16) {
        let count = self.consumers.len();
        let i = if count == 0 {
            0
        } else {
            usize::from(which) % count
        };
        let name = NAMES[usize::from(which) % NAMES.len()];
        match what {
            0..=5 => self.add(number, number & 256 != 0),
            _ if what < 60 && count == 0 => {}
            6..=24 => self.beat(i, true),
            25..=29 => self.beat(i, number & 3 != 0),
            30..=39 => self.let_go(i),
            40..=42 => self.leave(i),
            43..=44 => {
                self.consumers.remove(i);
            }
            45..=47 => self.bounce(i, number & 7 == 0),
            48..=51 => {
                let mut wish = Wish::drawn(number);
                if self.consumers[i].classic.is_some() {
                    wish.pattern = "";
                }
                self.consumers[i].wish = wish;
                self.consumers[i].news = true;
            }
            52..=59 => {
                for i in (0..count).rev() {
                    self.beat(i, true);
                }
            }
            60..=62 if self.world.topics.get(name).is_none() => {
                self.world.create(name, i32::from(number % 4));
            }
            60..=62 => {
                let more = self.world.topics.get(name).unwrap().partitions + i32::from(number % 3);
                self.world.grow(name, more.min(6));
            }
            63 => self.world.delete(name),
            64..=75 => self.world.advance(i64::from(number % 2_000)),
            76 => self.world.advance(i64::from(number % 12_000)),
            _ => {
                self.world.restart();
                // Whoever was parked hears nothing and asks again.
                for c in &mut self.consumers {
                    if matches!(c.classic, Some(Classic::Joining(_) | Classic::Syncing(_))) {
                        c.classic = Some(Classic::MustJoin);
                        c.hands.clear();
                    }
                }
            }
        }
        if (60..=63).contains(&what) {
            // The leader of a classic group sees for itself that topics have changed.
            for c in self.consumers.iter_mut().filter(|c| c.classic.is_some()) {
                c.news = true;
            }
        }
        self.collect();
        self.check();
    }

    /// What must be true after every step.
    fn check(&mut self) {
        let described = self.world.describe();
        if described.error != ErrorCode::None {
            // A classic group: no epochs, and its partitions are the leader's affair.
            self.member_epochs.clear();
            self.group_epoch = 0;
            return;
        }
        assert!(
            described.group_epoch >= self.group_epoch,
            "the group epoch never goes back"
        );
        assert!(described.assignment_epoch <= described.group_epoch);
        self.group_epoch = described.group_epoch;
        let mut held = Partitions::new();
        let mut targets = Partitions::new();
        let group = self.world.live.state.consumer("g").unwrap();
        let mut epochs = BTreeMap::new();
        for (member_id, member) in group.members() {
            let current = member.current();
            let mut mine = Partitions::new();
            for list in [&current.assigned, &current.pending_revocation] {
                for topic in list {
                    mine.extend(topic.partitions.iter().map(|(p, _)| (topic.topic_id, *p)));
                }
            }
            for partition in &mine {
                assert!(
                    held.insert(*partition),
                    "{partition:?} is held twice: {described:?}"
                );
            }
            for partition in partitions(member.target()) {
                assert!(targets.insert(partition), "{partition:?} is promised twice");
            }
            assert!(
                current.member_epoch <= described.assignment_epoch,
                "{described:?}"
            );
            if current.member_epoch > 0 {
                let before = self.member_epochs.get(member_id).copied().unwrap_or(0);
                assert!(
                    current.member_epoch >= before,
                    "{member_id} went back from {before}"
                );
            }
            epochs.insert(member_id.clone(), current.member_epoch);
            let client = self.consumers.iter().find(|c| *c.member_id == **member_id);
            if let Some(client) = client.filter(|c| c.epoch > 0) {
                // What is left of a topic that is gone is nobody's concern.
                let topics = &self.world.topics;
                let mut hands = client
                    .hands
                    .iter()
                    .filter(|(topic, _)| topics.name_of(*topic).is_some());
                assert!(
                    hands.all(|partition| mine.contains(partition)),
                    "{client:?} works on what is not its own: {described:?}"
                );
            }
        }
        self.member_epochs = epochs;
    }

    /// Nobody does anything but what clients do by themselves, until all has settled.
    fn quiet(&mut self) {
        for _ in 0..40 {
            for i in (0..self.consumers.len()).rev() {
                self.let_go(i);
                self.beat(i, true);
            }
            self.collect();
            self.check();
            self.world.advance(700);
        }
        let mut owned: BTreeMap<(TopicId, i32), usize> = BTreeMap::new();
        for c in &self.consumers {
            assert!(
                c.hands == c.told && c.classic.as_ref().is_none_or(|s| *s == Classic::Settled),
                "{c:?}"
            );
            for partition in &c.hands {
                *owned.entry(*partition).or_insert(0) += 1;
            }
        }
        let wanted: BTreeSet<(TopicId, i32)> = self
            .world
            .topics
            .iter()
            .filter(|(name, _)| self.consumers.iter().any(|c| c.wish.matches(name)))
            .flat_map(|(_, topic)| (0..topic.partitions).map(|p| (topic.id, p)))
            .collect();
        let described = self.world.describe();
        assert_eq!(
            owned.keys().copied().collect::<BTreeSet<_>>(),
            wanted,
            "{:#?} {described:#?}",
            self.consumers
        );
        assert!(
            owned.values().all(|owners| *owners == 1),
            "{:#?}",
            self.consumers
        );
        if described.error == ErrorCode::None && !self.consumers.is_empty() {
            assert_eq!(described.state, "Stable", "{described:#?}");
            self.no_move_improves();
        }
    }

    /// The property of `uniform`.
    fn no_move_improves(&self) {
        for (name, topic) in self.world.topics.iter() {
            let subscribers = self.consumers.iter().filter(|c| c.wish.matches(name));
            let least = subscribers.map(|c| c.hands.len()).min().unwrap_or(0);
            let owners = self
                .consumers
                .iter()
                .filter(|c| c.hands.iter().any(|(t, _)| *t == topic.id));
            let most = owners.map(|c| c.hands.len()).max().unwrap_or(0);
            assert!(most < least + 2, "{name} could move: {:#?}", self.consumers);
        }
    }
}

/// What a classic leader does: each partition to some member that subscribes to its topic.
fn assign(topics: &Topics, members: &[JoinedMember]) -> Vec<(MemberId, Bytes)> {
    let subscriptions: Vec<Subscription> = members
        .iter()
        .map(|m| Subscription::parse(&m.metadata).unwrap())
        .collect();
    let mut parts = vec![BTreeMap::<TopicName, Vec<i32>>::new(); members.len()];
    for (name, topic) in topics.iter() {
        let subscribers: Vec<usize> = (0..members.len())
            .filter(|m| subscriptions[*m].topics.contains(name))
            .collect();
        for partition in 0..topic.partitions {
            if let Some(m) = subscribers.get(partition as usize % subscribers.len().max(1)) {
                parts[*m].entry(name.clone()).or_default().push(partition);
            }
        }
    }
    let bytes = |part: BTreeMap<TopicName, Vec<i32>>| {
        Assignment {
            version: 1,
            partitions: part.into_iter().collect(),
            user_data: None,
        }
        .to_bytes()
    };
    members
        .iter()
        .zip(parts)
        .map(|(m, part)| (m.member_id.clone(), bytes(part)))
        .collect()
}

fn run(steps: &[(u8, u8, u16)]) {
    let mut history = History::new(steps.len().is_multiple_of(2));
    for (what, which, number) in steps {
        history.step(*what, *which, *number);
    }
    history.quiet();
}

proptest! {
    // The ordinary run is the same each time; `PROPTEST_CASES` takes it further along the same road.
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        rng_seed: proptest::test_runner::RngSeed::Fixed(848),
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_history_gives_a_partition_to_two(
        steps in proptest::collection::vec((0u8..79, any::<u8>(), any::<u16>()), 1..80),
    ) {
        run(&steps);
    }
}

/// A topic grows, and before anybody has the new partition the last member of the consumer protocol is replaced by a
/// classic one: no leader is there to notice.
#[test]
fn a_group_that_turns_classic_before_all_is_assigned_gathers_anew() {
    run(&[
        (0, 0, 2538),
        (6, 0, 0),
        (6, 0, 0),
        (6, 0, 0),
        (60, 0, 0),
        (6, 0, 0),
        (6, 0, 0),
        (0, 0, 18364),
        (60, 0, 0),
        (6, 30, 0),
        (6, 29, 0),
        (6, 126, 0),
        (6, 20, 0),
        (0, 0, 18948),
        (6, 79, 0),
        (52, 0, 0),
        (40, 29, 0),
        (77, 0, 0),
    ]);
}
