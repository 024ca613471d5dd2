//! Operations into the core, with the simulation's judge looking on.
//!
//! Holds: what `sim/check` holds every world to (see docs/testing.md, "Simulation"): one leader and one assignment per
//! generation, generations and epochs never go back, no partition in two members' hands, what was committed is fetched
//! after any crash, every request is answered at most once, live facts are replayed facts in any order of keys.
//!
//! Input: a byte of settings, then operations: a byte that says which, and bytes for what it needs. Members are named by
//! small numbers, generations mostly by how they stand to the newest one, so that nearly every input goes deep.

use std::collections::BTreeMap;
use std::sync::Arc;

use arbitrary::{Result, Unstructured};
use bytes::Bytes;
use convoke::group::request::{
    CommitPartition, CommitTopic, ConsumerHeartbeat, Describe, FetchTopic, Heartbeat, IdPartitions,
    Join, Leave, LeavingMember, List, OffsetCommit, OffsetDelete, OffsetFetch, Protocol, Reply,
    Request, RequestId, Sync,
};
use convoke::group::subscription::{Assignment, NamePartitions, Subscription};
use convoke::group::types::{
    Client, GroupId, InstanceId, MemberId, Millis, Topic, TopicId, TopicName, TopicRef, Topics,
    TopicsChange,
};
use convoke::group::{Bounded, GroupConfig, Migration};
use convoke::sim::workbench::Workbench;

const START: Millis = Millis(1_700_000_000_000);
/// Operations beyond these are left out: the target looks for depth, not for length.
const OPERATIONS_MAX: usize = 256;
/// Classic members speak to the first two, consumers of the new protocol to the third, both to the last two.
const GROUPS: [&str; 5] = ["c0", "c1", "k0", "m0", "m1"];
const TOPICS: [&str; 4] = ["t0", "t1", "u", "v"];

/// What the callers of one group remember.
#[derive(Default)]
struct Callers {
    ids: Vec<MemberId>,
    /// The newest generation or epoch that each was told.
    generations: BTreeMap<MemberId, i32>,
    newest: i32,
    /// What members of the consumer protocol were told to hold.
    told: BTreeMap<MemberId, IdPartitions>,
}

struct Driver {
    bench: Workbench,
    callers: Vec<Callers>,
    /// Who asked, by request.
    asked: BTreeMap<RequestId, (usize, MemberId)>,
    topics_made: u8,
    /// Whether appends stay unsynced until an operation says otherwise.
    lazy: bool,
}

fn config(settings: u8) -> GroupConfig {
    let bounded = |value| Bounded {
        default: value,
        bounds: 0..=60_000,
    };
    GroupConfig {
        session_timeout_ms: 10..=60_000,
        initial_rebalance_delay_ms: if settings & 1 == 0 { 0 } else { 3_000 },
        max_size: if settings & 2 == 0 { 4 } else { 100 },
        offset_metadata_max_units: 8,
        offsets_retention_ms: 3_600_000,
        offsets_retention_check_interval_ms: 600_000,
        consumer_session_timeout_ms: bounded(10_000),
        consumer_heartbeat_interval_ms: bounded(3_000),
        consumer_assignment_interval_ms: bounded(if settings & 4 == 0 { 0 } else { 1_000 }),
        consumer_max_size: if settings & 2 == 0 { 4 } else { 100 },
        migration: Migration {
            upgrade: settings & 8 == 0,
            downgrade: settings & 16 == 0,
        },
        heartbeat_hint: settings & 32 == 0,
        ..GroupConfig::default()
    }
}

fn topic_id(number: u8) -> TopicId {
    let mut id = [0; 16];
    id[15] = number;
    TopicId(id)
}

impl Driver {
    fn new(settings: u8) -> Self {
        let mut topics = Topics::default();
        for (name, partitions) in [("t0", 1), ("t1", 3)] {
            let id = topic_id(partitions as u8);
            topics.insert(name.into(), Topic { id, partitions });
        }
        let mixed = GROUPS[3..].iter().map(|name| GroupId::from(*name));
        let bench = Workbench::new(config(settings), Arc::new(topics), mixed.collect(), START);
        Self {
            bench: held(bench),
            callers: GROUPS.iter().map(|_| Callers::default()).collect(),
            asked: BTreeMap::new(),
            topics_made: 10,
            lazy: settings & 64 != 0,
        }
    }

    /// A member of a group: one that was told its id, nobody yet, or one that nobody knows.
    fn member(&self, u: &mut Unstructured<'_>, group: usize) -> Result<MemberId> {
        let n: u8 = u.arbitrary()?;
        let ids = &self.callers[group].ids;
        Ok(match n {
            0xff => "stranger".into(),
            0xf0.. => "".into(),
            _ if ids.is_empty() => "".into(),
            _ => ids[usize::from(n) % ids.len()].clone(),
        })
    }

    fn generation(&self, u: &mut Unstructured<'_>, group: usize, member: &str) -> Result<i32> {
        let n: u8 = u.arbitrary()?;
        let callers = &self.callers[group];
        let own = callers.generations.get(member).copied().unwrap_or(-1);
        Ok(match n {
            0..0xa0 => own,
            0xa0..0xd0 => callers.newest,
            0xd0..0xe0 => -1,
            0xe0..0xe8 => callers.newest + 1,
            0xe8..0xf0 => own - 1,
            0xf0 => i32::MAX,
            0xf1 => i32::MIN,
            _ => i32::from(n) - 0xf4,
        })
    }

    /// Partitions of some topics by name, for a subscription or an assignment.
    fn names(&self, u: &mut Unstructured<'_>) -> Result<NamePartitions> {
        let bits: u8 = u.arbitrary()?;
        let of = |(n, name): (usize, &&str)| {
            let partitions = (0..3).filter(|p| bits >> ((n * 3 + p) % 8) & 1 == 1);
            (
                TopicName::from(*name),
                partitions.map(|p| p as i32).collect(),
            )
        };
        Ok(TOPICS[..2].iter().enumerate().map(of).collect())
    }

    fn topics(u: &mut Unstructured<'_>) -> Result<Vec<TopicName>> {
        let bits: u8 = u.arbitrary()?;
        let wanted = TOPICS
            .iter()
            .enumerate()
            .filter(|(n, _)| bits >> n & 1 == 1);
        let mut names: Vec<_> = wanted.map(|(_, name)| TopicName::from(*name)).collect();
        if bits & 0x30 == 0x30 {
            names.push("absent".into());
        }
        if bits & 0xc0 == 0xc0
            && let Some(first) = names.first().cloned()
        {
            names.push(first);
        }
        Ok(names)
    }

    fn subscription(&self, u: &mut Unstructured<'_>) -> Result<Bytes> {
        let kind: u8 = u.arbitrary()?;
        if kind >= 0xe0 {
            let length = usize::from(kind & 0x1f).min(u.len());
            return Ok(Bytes::copy_from_slice(u.bytes(length)?));
        }
        let subscription = Subscription {
            version: i16::from(kind % 5),
            topics: Self::topics(u)?,
            user_data: (kind & 0x40 != 0).then(|| Bytes::from_static(b"x")),
            owned: if kind & 0x20 != 0 {
                self.names(u)?
            } else {
                Vec::new()
            },
            generation: if kind & 0x10 != 0 { 1 } else { -1 },
            rack_id: (kind & 8 != 0).then(|| "r".into()),
        };
        Ok(subscription.to_bytes())
    }

    fn instance(u: &mut Unstructured<'_>) -> Result<Option<InstanceId>> {
        let n: u8 = u.arbitrary()?;
        Ok((n >= 0xa0).then(|| format!("i{}", n & 3).into()))
    }

    fn join(&self, u: &mut Unstructured<'_>, group: usize) -> Result<Request> {
        let flags: u8 = u.arbitrary()?;
        let member_id = self.member(u, group)?;
        let count = usize::from(flags & 3);
        let names: [Arc<str>; 3] = ["range".into(), "cooperative-sticky".into(), "own".into()];
        let first = usize::from(flags >> 2 & 3);
        let mut protocols = Vec::new();
        for n in 0..count {
            protocols.push(Protocol {
                name: names[(first + n) % names.len()].clone(),
                metadata: self.subscription(u)?,
            });
        }
        let times: u8 = u.arbitrary()?;
        Ok(Request::Join(Join {
            group_id: GROUPS[group].into(),
            client: client(),
            session_timeout_ms: [10_000, 10, 60_000, 9, -1, 30_000, 6_000, 10_000]
                [usize::from(times & 7)],
            rebalance_timeout_ms: [20_000, 0, 60_000, -1, i32::MAX, 5_000, 1, 300_000]
                [usize::from(times >> 3 & 7)],
            member_id,
            group_instance_id: Self::instance(u)?,
            protocol_type: match times >> 6 {
                0..=2 => "consumer".into(),
                _ => ["", "connect"][usize::from(flags >> 7)].into(),
            },
            protocols,
            reason: None,
            member_id_required: flags & 0x10 != 0,
            skip_assignment: flags & 0x20 != 0,
        }))
    }

    fn sync(&self, u: &mut Unstructured<'_>, group: usize) -> Result<Request> {
        let flags: u8 = u.arbitrary()?;
        let member_id = self.member(u, group)?;
        let generation = self.generation(u, group, &member_id)?;
        let group_instance_id = Self::instance(u)?;
        let mut assignments = Vec::new();
        for _ in 0..flags & 3 {
            let kind: u8 = u.arbitrary()?;
            let bytes = match kind {
                0xf0.. => Bytes::from_static(b"\0\0junk"),
                _ => Assignment {
                    version: i16::from(kind & 3),
                    partitions: self.names(u)?,
                    user_data: None,
                }
                .to_bytes(),
            };
            assignments.push((self.member(u, group)?, bytes));
        }
        Ok(Request::Sync(Sync {
            group_id: GROUPS[group].into(),
            generation,
            member_id,
            group_instance_id,
            protocol_type: (flags & 4 != 0).then(|| "consumer".into()),
            protocol_name: (flags & 8 != 0).then(|| "range".into()),
            protocol_required: flags & 16 != 0,
            assignments,
        }))
    }

    fn heartbeat(&self, u: &mut Unstructured<'_>, group: usize) -> Result<Request> {
        let member_id = self.member(u, group)?;
        Ok(Request::Heartbeat(Heartbeat {
            group_id: GROUPS[group].into(),
            generation: self.generation(u, group, &member_id)?,
            member_id,
            group_instance_id: Self::instance(u)?,
        }))
    }

    fn leave(&self, u: &mut Unstructured<'_>, group: usize) -> Result<Request> {
        let count: u8 = u.arbitrary()?;
        let mut members = Vec::new();
        for _ in 0..count & 3 {
            members.push(LeavingMember {
                member_id: self.member(u, group)?,
                group_instance_id: Self::instance(u)?,
                reason: None,
            });
        }
        Ok(Request::Leave(Leave {
            group_id: GROUPS[group].into(),
            members,
        }))
    }

    fn topic_ref(&self, u: &mut Unstructured<'_>) -> Result<TopicRef> {
        let n: u8 = u.arbitrary()?;
        let name = TOPICS[usize::from(n) % TOPICS.len()];
        Ok(match n {
            0xf0.. => TopicRef::Id(topic_id(n)),
            0x80.. => match self.bench.topics().get(name) {
                Some(topic) => TopicRef::Id(topic.id),
                None => TopicRef::Name("absent".into()),
            },
            _ => TopicRef::Name(name.into()),
        })
    }

    fn commit(&self, u: &mut Unstructured<'_>, group: usize) -> Result<Request> {
        let flags: u8 = u.arbitrary()?;
        let member_id = self.member(u, group)?;
        let mut topics = Vec::new();
        for _ in 0..flags & 3 {
            let topic = self.topic_ref(u)?;
            let n: u8 = u.arbitrary()?;
            let partition = |index: u8| CommitPartition {
                index: i32::from(index % 5) - 1,
                offset: i64::from(n) - 3,
                leader_epoch: i32::from(n & 3) - 1,
                metadata: ["", "note", "far too long a note", "ü𝄞"][usize::from(n >> 6)].into(),
            };
            topics.push(CommitTopic {
                topic,
                partitions: (0..n >> 2 & 3)
                    .map(|more| partition(n.wrapping_add(more)))
                    .collect(),
            });
        }
        Ok(Request::OffsetCommit(OffsetCommit {
            group_id: GROUPS[group].into(),
            client: client(),
            generation_or_epoch: self.generation(u, group, &member_id)?,
            member_id,
            group_instance_id: Self::instance(u)?,
            retention_time_ms: (flags & 4 != 0).then_some(i64::from(flags >> 4) * 60_000 - 1),
            consumer_errors: flags & 8 != 0,
            topics,
        }))
    }

    fn fetch(&self, u: &mut Unstructured<'_>, group: usize) -> Result<Request> {
        let flags: u8 = u.arbitrary()?;
        let member_id = self.member(u, group)?;
        let mut topics = Vec::new();
        for _ in 0..flags & 3 {
            topics.push(FetchTopic {
                topic: self.topic_ref(u)?,
                partitions: vec![0, i32::from(flags >> 4), 0],
            });
        }
        Ok(Request::OffsetFetch(OffsetFetch {
            group_id: GROUPS[group].into(),
            client: client(),
            member_epoch: self.generation(u, group, &member_id)?,
            member_id: (flags & 4 != 0).then_some(member_id),
            topics: (flags & 8 != 0).then_some(topics),
            by_topic_id: flags & 16 != 0,
            require_stable: flags & 32 != 0,
        }))
    }

    fn modern(&self, u: &mut Unstructured<'_>, group: usize) -> Result<Request> {
        let flags: u8 = u.arbitrary()?;
        let who: u8 = u.arbitrary()?;
        let member_id: MemberId = match who {
            0xf8.. => "".into(),
            0xc0.. => self.member(u, group)?,
            _ => format!("m{}", who & 3).into(),
        };
        let epoch: u8 = u.arbitrary()?;
        let own = self.callers[group].generations.get(&member_id).copied();
        let member_epoch = match epoch {
            0..0xa0 => own.unwrap_or(0),
            0xa0..0xc0 => 0,
            0xc0..0xd0 => -1,
            0xd0..0xe0 => -2,
            0xe0..0xf0 => own.unwrap_or(0) - 1,
            0xf0.. => i32::from(epoch) - 0xf4,
        };
        let joins = member_epoch == 0;
        let owned: u8 = u.arbitrary()?;
        let told = self.callers[group].told.get(&member_id);
        let topic_partitions = match owned {
            0..0x60 if joins => Some(Vec::new()),
            0..0x60 => told.cloned(),
            0x60..0xa0 => None,
            0xa0..0xc0 => Some(Vec::new()),
            0xc0..0xe0 => told.cloned().map(|mut told| {
                told.truncate(1);
                told
            }),
            0xe0.. => Some(vec![(topic_id(owned & 3), vec![0, i32::from(owned & 7)])]),
        };
        let subscribes = joins || flags & 1 != 0;
        let regexes = [
            "t.*",
            "u|v",
            "",
            "(",
            "t[01]",
            "^$",
            "a{1000}{1000}",
            "(?i)T",
        ];
        Ok(Request::ConsumerHeartbeat(ConsumerHeartbeat {
            group_id: GROUPS[group].into(),
            client: client(),
            member_id,
            member_epoch,
            instance_id: Self::instance(u)?,
            rack_id: (flags & 2 != 0).then(|| "r".into()),
            rebalance_timeout_ms: match flags >> 2 & 3 {
                _ if joins => 5_000,
                0 | 1 => -1,
                2 => 20_000,
                _ => 0,
            },
            subscribed_topic_names: if subscribes {
                Some(Self::topics(u)?)
            } else {
                None
            },
            subscribed_topic_regex: (flags & 16 != 0)
                .then(|| regexes[usize::from(owned) % regexes.len()].into()),
            server_assignor: match flags >> 5 {
                1 => Some("range".into()),
                2 => Some("uniform".into()),
                3 => Some("none".into()),
                _ => None,
            },
            topic_partitions,
            member_id_from_client: flags & 0x80 != 0,
        }))
    }

    fn delete_offsets(&self, u: &mut Unstructured<'_>, group: usize) -> Result<Request> {
        let partitions = vec![0, i32::from(u.arbitrary::<u8>()? % 4)];
        let topics = Self::topics(u)?
            .into_iter()
            .map(|topic| (topic, partitions.clone()));
        Ok(Request::OffsetDelete(OffsetDelete {
            group_id: GROUPS[group].into(),
            topics: topics.collect(),
        }))
    }

    fn change_topics(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let n: u8 = u.arbitrary()?;
        let name = TopicName::from(TOPICS[usize::from(n & 3)]);
        let mut topics = Topics::clone(self.bench.topics());
        let mut change = TopicsChange::default();
        let old = topics.get(&name).cloned();
        match (old, n >> 2 & 3) {
            (Some(old), 0) => {
                topics.remove(&name);
                change.deleted.push((name, old.id));
            }
            (Some(old), 1 | 2) if old.partitions < 6 => {
                let partitions = old.partitions + 1;
                topics.insert(name.clone(), Topic { partitions, ..old });
                change.grown.push(name);
            }
            (old, _) => {
                change.deleted.extend(old.map(|old| (name.clone(), old.id)));
                self.topics_made = self.topics_made.wrapping_add(1).max(10);
                let topic = Topic {
                    id: topic_id(self.topics_made),
                    partitions: i32::from(n >> 4 & 3),
                };
                topics.insert(name.clone(), topic);
                change.created.push(name);
            }
        }
        change.topics = Arc::new(topics);
        let replies = held(self.bench.change_topics(change));
        self.hear(replies);
        Ok(())
    }

    fn ask(&mut self, group: usize, request: Request) {
        let who = match &request {
            Request::ConsumerHeartbeat(r) => r.member_id.clone(),
            Request::Join(r) => r.member_id.clone(),
            _ => "".into(),
        };
        let (id, replies) = held(self.bench.ask(request));
        self.asked.insert(id, (group, who));
        self.hear(replies);
        if !self.lazy {
            held(self.bench.sync());
        }
    }

    /// The callers learn what they are told.
    fn hear(&mut self, replies: Vec<(RequestId, Reply)>) {
        for (id, reply) in replies {
            let Some((group, who)) = self.asked.remove(&id) else {
                continue;
            };
            let callers = &mut self.callers[group];
            match reply {
                Reply::Join(reply) if !reply.member_id.is_empty() => {
                    if !callers.ids.contains(&reply.member_id) {
                        callers.ids.push(reply.member_id.clone());
                    }
                    if reply.generation >= 0 {
                        callers.newest = callers.newest.max(reply.generation);
                        callers
                            .generations
                            .insert(reply.member_id, reply.generation);
                    }
                }
                Reply::ConsumerHeartbeat(reply) => {
                    let member_id = reply.member_id.unwrap_or(who);
                    if !callers.ids.contains(&member_id) {
                        callers.ids.push(member_id.clone());
                    }
                    callers.newest = callers.newest.max(reply.member_epoch);
                    if let Some(told) = reply.assignment {
                        callers.told.insert(member_id.clone(), told);
                    }
                    callers.generations.insert(member_id, reply.member_epoch);
                }
                _ => {}
            }
        }
    }

    fn operation(&mut self, u: &mut Unstructured<'_>) -> Result<()> {
        let n: u8 = u.arbitrary()?;
        let group = usize::from(n >> 4) % GROUPS.len();
        let group_id = GroupId::from(GROUPS[group]);
        let modern = group >= 2;
        let request = match n & 15 {
            0 | 1 if group != 2 => self.join(u, group)?,
            0..=2 if modern => self.modern(u, group)?,
            1 | 2 | 9 => self.sync(u, group)?,
            3 => self.heartbeat(u, group)?,
            4 => self.leave(u, group)?,
            5 => self.commit(u, group)?,
            6 => self.fetch(u, group)?,
            7 => self.delete_offsets(u, group)?,
            8 => match u.arbitrary::<u8>()? & 7 {
                0 => Request::List(List::default()),
                1 => Request::Delete { group_id },
                2 => Request::ConsumerDescribe { group_id },
                _ => Request::Describe(Describe {
                    group_id,
                    unknown_is_error: n & 16 != 0,
                }),
            },
            10 | 11 => {
                let how: u8 = u.arbitrary()?;
                let ms = [
                    1, 50, 1_000, 3_000, 5_000, 10_000, 45_000, 600_000, 3_600_000,
                ];
                let ms = ms[usize::from(how & 0x7f) % ms.len()];
                let replies = held(self.bench.pass(ms, how & 0x80 != 0));
                self.hear(replies);
                return Ok(());
            }
            12 => return self.change_topics(u),
            13 => {
                held(self.bench.sync());
                return Ok(());
            }
            14 => {
                let chance: u8 = u.arbitrary()?;
                if chance & 1 == 0 {
                    held(self.bench.crash(chance.into()));
                } else {
                    self.bench.fail_append();
                }
                return Ok(());
            }
            _ if modern => self.modern(u, group)?,
            _ => self.join(u, group)?,
        };
        self.ask(group, request);
        Ok(())
    }
}

fn client() -> Client {
    Client {
        id: "c".into(),
        host: "/127.0.0.1".into(),
    }
}

fn held<T>(verdict: std::result::Result<T, String>) -> T {
    verdict.unwrap_or_else(|text| panic!("{text}"))
}

/// One input.
///
/// # Panics
/// That is how the target fails.
pub fn run(data: &[u8]) {
    let mut u = Unstructured::new(data);
    let mut driver = Driver::new(u.arbitrary().unwrap_or(0));
    for n in 0..OPERATIONS_MAX {
        if u.is_empty() || driver.operation(&mut u).is_err() {
            break;
        }
        // dear: after 8, 16, 32, … operations
        if n >= 8 && n.is_power_of_two() {
            held(driver.bench.replay());
        }
    }
    held(driver.bench.sync());
    held(driver.bench.crash(0));
    held(driver.bench.replay());
    let replies = held(driver.bench.pass(100_000, false));
    driver.hear(replies);
}
