//! C65–C71: the consumer protocol (KIP-848) over the wire, call by call.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::sync::Mutex;

use bytes::Bytes;
use convoke::client::Client;
use convoke::group::subscription::{Assignment, Subscription};
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse, GroupId, TopicName,
};
use kafka_protocol::protocol::Request;
use uuid::Uuid;

use super::group::{Group, codes};
use super::words::codes::*;
use super::words::{ErrorCode, Outcome, code, s};
use super::world::{World, within};

/// Partitions, as (topic id, partition).
type Partitions = BTreeSet<(Uuid, i32)>;

/// One member that speaks the consumer protocol, on one connection.
struct Consumer {
    client: Client,
    group_id: String,
    member_id: String,
    topics: Vec<String>,
    instance_id: Option<String>,
    rebalance_timeout_ms: i32,
    told: Mutex<Told>,
}

/// What it was told.
#[derive(Default)]
struct Told {
    epoch: i32,
    /// What the server last assigned.
    granted: Partitions,
    /// What it may still work on: what it was granted and has not confirmed to be without.
    holds: Partitions,
}

/// Skips the case where the server does not offer the consumer protocol.
macro_rules! offered {
    ($world:ident) => {
        let key = ConsumerGroupHeartbeatRequest::KEY;
        if $world.connect().await.offered(key).is_none() {
            eprintln!("not offered");
            return;
        }
    };
}

impl Consumer {
    async fn new(world: &World, group: &Group<'_>, topics: &[&str]) -> Self {
        Self {
            client: world.connect().await,
            group_id: group.id().to_owned(),
            member_id: world.name("member"),
            topics: topics.iter().map(|topic| (*topic).to_owned()).collect(),
            instance_id: None,
            rebalance_timeout_ms: 60_000,
            told: Mutex::default(),
        }
    }

    fn epoch(&self) -> i32 {
        self.told.lock().unwrap().epoch
    }

    fn granted(&self) -> Partitions {
        self.told.lock().unwrap().granted.clone()
    }

    fn holds(&self) -> Partitions {
        self.told.lock().unwrap().holds.clone()
    }

    /// A heartbeat that says nothing new.
    fn request(&self) -> ConsumerGroupHeartbeatRequest {
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(GroupId(s(&self.group_id)))
            .with_member_id(s(&self.member_id))
            .with_instance_id(self.instance_id.as_deref().map(s))
            .with_member_epoch(self.epoch())
            .with_rebalance_timeout_ms(-1)
    }

    /// A heartbeat that joins.
    fn join_request(&self) -> ConsumerGroupHeartbeatRequest {
        let topics = self.topics.iter().map(|topic| TopicName(s(topic)));
        self.request()
            .with_member_epoch(0)
            .with_rebalance_timeout_ms(self.rebalance_timeout_ms)
            .with_subscribed_topic_names(Some(topics.collect()))
            .with_topic_partitions(Some(Vec::new()))
    }

    async fn send(&self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse {
        let reply = within("a heartbeat", self.client.send_as(1, &request))
            .await
            .unwrap();
        if reply.error_code != 0 {
            return reply;
        }
        let mut told = self.told.lock().unwrap();
        told.epoch = reply.member_epoch;
        if let Some(confirmed) = &request.topic_partitions {
            let each = confirmed.iter();
            told.holds = each
                .flat_map(|t| t.partitions.iter().map(|p| (t.topic_id, *p)))
                .collect();
        }
        if let Some(assignment) = &reply.assignment {
            let each = assignment.topic_partitions.iter();
            told.granted = each
                .flat_map(|t| t.partitions.iter().map(|p| (t.topic_id, *p)))
                .collect();
            let granted = told.granted.clone();
            told.holds.extend(granted);
        }
        reply
    }

    async fn join(&self) -> ErrorCode {
        code(self.send(self.join_request()).await.error_code)
    }

    /// Heartbeats without saying what it holds.
    async fn beat(&self) -> ErrorCode {
        code(self.send(self.request()).await.error_code)
    }

    /// Heartbeats and says that it holds what it was granted, no more.
    async fn confirm(&self) -> ErrorCode {
        let mut owned: Vec<TopicPartitions> = Vec::new();
        for (topic_id, partition) in self.granted() {
            if owned.last().is_none_or(|last| last.topic_id != topic_id) {
                owned.push(TopicPartitions::default().with_topic_id(topic_id));
            }
            owned.last_mut().unwrap().partitions.push(partition);
        }
        code(
            self.send(self.request().with_topic_partitions(Some(owned)))
                .await
                .error_code,
        )
    }

    /// Heartbeats until it was granted this.
    async fn until_granted(&self, wanted: &Partitions) {
        within(wanted, async {
            while self.granted() != *wanted {
                assert_eq!(self.beat().await, NONE);
                assert_eq!(self.confirm().await, NONE);
            }
        })
        .await;
    }

    /// Commits one offset with this member epoch.
    async fn commit(&self, offsets: &[(&str, i32, i64)], epoch: i32) -> Vec<ErrorCode> {
        let commit = super::group::commit_request(&self.group_id, offsets)
            .with_member_id(s(&self.member_id))
            .with_generation_id_or_member_epoch(epoch);
        codes(
            &within("a commit", self.client.send_as(9, &commit))
                .await
                .unwrap(),
        )
    }

    async fn leave(&self) -> ErrorCode {
        code(
            self.send(self.request().with_member_epoch(-1))
                .await
                .error_code,
        )
    }
}

fn all_of(topics: &[(Uuid, i32)]) -> Partitions {
    let each = topics.iter();
    each.flat_map(|(id, count)| (0..*count).map(|partition| (*id, partition)))
        .collect()
}

/// Heartbeats of all in turn until they share `wanted`; nobody ever holds what another holds.
async fn share(members: &[&Consumer], wanted: &Partitions) {
    within("a shared topic", async {
        loop {
            for member in members {
                assert_eq!(member.beat().await, NONE);
                nobody_overlaps(members);
                assert_eq!(member.confirm().await, NONE);
                nobody_overlaps(members);
            }
            let union: Partitions = members.iter().flat_map(|m| m.granted()).collect();
            let counts: Vec<_> = members.iter().map(|m| m.granted().len()).collect();
            let even = counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1;
            if union == *wanted && even {
                return;
            }
        }
    })
    .await;
}

fn nobody_overlaps(members: &[&Consumer]) {
    let mut held = Partitions::new();
    for member in members {
        for partition in member.holds() {
            assert!(held.insert(partition), "{partition:?} is in two hands");
        }
    }
}

#[tokio::test]
async fn c65_a_partition_is_given_only_after_its_owner_let_go() {
    let world = world!();
    offered!(world);
    let name = world.name("topic");
    let id = world.create_topic(&name, 2).await;
    let both = all_of(&[(id, 2)]);
    let group = world.group();
    let a = Consumer::new(&world, &group, &[&name]).await;
    let b = Consumer::new(&world, &group, &[&name]).await;
    assert_eq!(a.join().await, NONE);
    a.until_granted(&both).await;
    assert_eq!(b.join().await, NONE);
    // A learns what it must give back, and says nothing yet.
    within("a smaller assignment", async {
        while a.granted().len() != 1 {
            assert_eq!((a.beat().await, b.beat().await), (NONE, NONE));
        }
    })
    .await;
    for _ in 0..5 {
        assert_eq!(
            (b.beat().await, b.confirm().await, a.beat().await),
            (NONE, NONE, NONE)
        );
        assert!(b.granted().is_empty());
    }
    assert_eq!(a.confirm().await, NONE);
    share(&[&a, &b], &both).await;
}

#[tokio::test]
async fn c65_a_partition_that_goes_back_before_it_was_let_go_is_never_in_two_hands() {
    let world = world!();
    offered!(world);
    let name = world.name("topic");
    let id = world.create_topic(&name, 4).await;
    let all = all_of(&[(id, 4)]);
    let group = world.group();
    let a = Consumer::new(&world, &group, &[&name]).await;
    assert_eq!(a.join().await, NONE);
    a.until_granted(&all).await;
    let b = Consumer::new(&world, &group, &[&name]).await;
    assert_eq!(b.join().await, NONE);
    within("a smaller assignment", async {
        while a.granted().len() == 4 {
            assert_eq!((a.beat().await, b.beat().await), (NONE, NONE));
        }
    })
    .await;
    assert_eq!(b.leave().await, NONE);
    let c = Consumer::new(&world, &group, &[&name]).await;
    assert_eq!(c.join().await, NONE);
    share(&[&a, &c], &all).await;
    assert_eq!(c.leave().await, NONE);
    a.until_granted(&all).await;
}

#[tokio::test]
async fn c65_an_owner_that_never_lets_go_is_fenced_at_its_rebalance_timeout() {
    let world = world!();
    offered!(world);
    let name = world.name("topic");
    let id = world.create_topic(&name, 2).await;
    let both = all_of(&[(id, 2)]);
    let group = world.group();
    let mut a = Consumer::new(&world, &group, &[&name]).await;
    a.rebalance_timeout_ms = 1_500;
    let b = Consumer::new(&world, &group, &[&name]).await;
    assert_eq!(a.join().await, NONE);
    a.until_granted(&both).await;
    assert_eq!(b.join().await, NONE);
    // Heartbeats that never say what it holds confirm nothing.
    within("the rebalance timeout", async {
        while a.beat().await != UNKNOWN_MEMBER_ID {
            assert_eq!(b.beat().await, NONE);
        }
    })
    .await;
    b.until_granted(&both).await;
}

#[tokio::test]
async fn c66_a_member_that_joins_again_gets_what_it_has() {
    let world = world!();
    offered!(world);
    let name = world.name("topic");
    let id = world.create_topic(&name, 3).await;
    let all = all_of(&[(id, 3)]);
    let group = world.group();
    let m = Consumer::new(&world, &group, &[&name]).await;
    // The first reply is lost.
    let lost = within("a join", m.client.send_as(1, &m.join_request()))
        .await
        .unwrap();
    assert_eq!(code(lost.error_code), NONE);
    assert_eq!(m.join().await, NONE);
    assert_eq!(m.epoch(), lost.member_epoch);
    m.until_granted(&all).await;
    let epoch = m.epoch();
    let again = m.send(m.join_request()).await;
    assert_eq!((code(again.error_code), again.member_epoch), (NONE, epoch));
    assert_eq!(m.granted(), all);
    assert_eq!(m.confirm().await, NONE);
}

#[tokio::test]
async fn c66_an_instance_id_in_use_is_not_released() {
    let world = world!();
    offered!(world);
    let name = world.name("topic");
    let id = world.create_topic(&name, 3).await;
    let all = all_of(&[(id, 3)]);
    let group = world.group();
    let mut first = Consumer::new(&world, &group, &[&name]).await;
    first.instance_id = Some("i1".to_owned());
    assert_eq!(first.join().await, NONE);
    first.until_granted(&all).await;
    let mut second = Consumer::new(&world, &group, &[&name]).await;
    second.instance_id = Some("i1".to_owned());
    let refused = second.send(second.join_request()).await;
    assert_eq!(code(refused.error_code), UNRELEASED_INSTANCE_ID);
    assert_eq!(first.confirm().await, NONE);
    assert_eq!(first.granted(), all);
    // It goes for a while, and its place is taken.
    let away = first.send(first.request().with_member_epoch(-2)).await;
    assert_eq!((code(away.error_code), away.member_epoch), (NONE, -2));
    assert_eq!(second.join().await, NONE);
    second.until_granted(&all).await;
}

#[tokio::test]
async fn c67_commits_with_the_epoch_before_count_where_the_partition_was_owned_then() {
    let world = world!();
    offered!(world);
    let (t, u, v) = (world.name("t"), world.name("u"), world.name("v"));
    let t_id = world.create_topic(&t, 1).await;
    let u_id = world.create_topic(&u, 1).await;
    world.create_topic(&v, 1).await;
    let group = world.group();
    let a = Consumer::new(&world, &group, &[&t]).await;
    assert_eq!(a.join().await, NONE);
    a.until_granted(&all_of(&[(t_id, 1)])).await;
    let before = a.epoch();
    let topics = vec![TopicName(s(&t)), TopicName(s(&u))];
    let changed = a
        .send(a.request().with_subscribed_topic_names(Some(topics)))
        .await;
    assert_eq!(code(changed.error_code), NONE);
    a.until_granted(&all_of(&[(t_id, 1), (u_id, 1)])).await;
    let now = a.epoch();
    assert!(now > before);

    assert_eq!(a.commit(&[(&t, 0, 1)], before).await, [NONE]);
    assert_eq!(a.commit(&[(&t, 0, 2), (&u, 0, 2)], now).await, [NONE, NONE]);
    assert_eq!(a.commit(&[(&u, 0, 3)], before).await, [STALE_MEMBER_EPOCH]);
    assert_eq!(a.commit(&[(&v, 0, 3)], before).await, [STALE_MEMBER_EPOCH]);
    assert_eq!(a.commit(&[(&t, 0, 3)], now + 1).await, [STALE_MEMBER_EPOCH]);
    assert_eq!(group.committed(&t, 0).await, 2);
    assert_eq!(group.committed(&u, 0).await, 2);
}

#[tokio::test]
async fn c68_regular_expressions_follow_the_topics() {
    let world = world!();
    offered!(world);
    let prefix = world.name("rx");
    let name = |suffix: &str| format!("{prefix}-{suffix}");
    let a1 = world.create_topic(&name("a1"), 1).await;
    let a2 = world.create_topic(&name("a2"), 1).await;
    let b1 = world.create_topic(&name("b1"), 1).await;
    let group = world.group();
    let m = Consumer::new(&world, &group, &[]).await;
    let regex = |pattern: &str| Some(s(pattern));
    let join = m
        .join_request()
        .with_subscribed_topic_names(None)
        .with_subscribed_topic_regex(regex(&name("a.*")));
    assert_eq!(code(m.send(join).await.error_code), NONE);
    m.until_granted(&all_of(&[(a1, 1), (a2, 1)])).await;
    world.delete_topic(&name("a1")).await;
    m.until_granted(&all_of(&[(a2, 1)])).await;
    let a3 = world.create_topic(&name("a3"), 1).await;
    m.until_granted(&all_of(&[(a2, 1), (a3, 1)])).await;

    // Names instead of the pattern, both, and another pattern.
    let b1_name = || Some(vec![TopicName(s(&name("b1")))]);
    let change = m.request().with_subscribed_topic_names(b1_name());
    let change = change.with_subscribed_topic_regex(regex(""));
    assert_eq!(code(m.send(change).await.error_code), NONE);
    m.until_granted(&all_of(&[(b1, 1)])).await;
    let change = m.request().with_subscribed_topic_regex(regex(&name("a2")));
    assert_eq!(code(m.send(change).await.error_code), NONE);
    m.until_granted(&all_of(&[(a2, 1), (b1, 1)])).await;
    let broken = m
        .send(m.request().with_subscribed_topic_regex(regex("a(")))
        .await;
    assert_eq!(code(broken.error_code), INVALID_REGULAR_EXPRESSION);
}

#[tokio::test]
async fn c69_topics_that_come_while_members_heartbeat_are_assigned() {
    let world = world!();
    offered!(world);
    let (t1, t2) = (world.name("t1"), world.name("t2"));
    let first = world.create_topic(&t1, 2).await;
    let group = world.group();
    let a = Consumer::new(&world, &group, &[&t1, &t2]).await;
    let b = Consumer::new(&world, &group, &[&t1, &t2]).await;
    assert_eq!(a.join().await, NONE);
    assert_eq!(b.join().await, NONE);
    share(&[&a, &b], &all_of(&[(first, 2)])).await;
    for round in 0..3 {
        // No reply is lost: whoever misses one is fenced.
        let created = Cell::new(None);
        let creation = async { created.set(Some(world.create_topic(&t2, 2).await)) };
        let beats = async {
            while created.get().is_none() {
                assert_eq!((a.beat().await, b.confirm().await), (NONE, NONE));
            }
        };
        tokio::join!(creation, beats);
        let second = created.get().unwrap();
        if round == 2 {
            share(&[&a, &b], &all_of(&[(first, 2), (second, 2)])).await;
        } else {
            world.delete_topic(&t2).await;
        }
    }
}

#[tokio::test]
async fn c70_a_joining_heartbeat_must_be_complete() {
    let world = world!();
    offered!(world);
    let topic = world.topic(1).await;
    let group = world.group();
    let m = Consumer::new(&world, &group, &[&topic]).await;
    let owned = TopicPartitions::default().with_partitions(vec![0]);
    let right = || m.join_request();
    let broken = [
        right().with_topic_partitions(None),
        right().with_topic_partitions(Some(vec![owned])),
        right().with_rebalance_timeout_ms(-1),
        right().with_subscribed_topic_names(None),
        right().with_instance_id(Some(s(""))),
        right().with_member_epoch(-3),
        right().with_member_id(s("")),
        right().with_group_id(GroupId(s(""))),
        right().with_rack_id(Some(s(""))),
    ];
    for request in broken {
        let refused = m.send(request.clone()).await;
        assert_eq!(code(refused.error_code), INVALID_REQUEST, "{request:?}");
    }
    let refused = m
        .send(right().with_server_assignor(Some(s("nobody's"))))
        .await;
    assert_eq!(code(refused.error_code), UNSUPPORTED_ASSIGNOR);
    assert!(world.group_ids().await.is_empty());
    assert_eq!(m.join().await, NONE);
    assert_eq!(world.group_ids().await, [group.id()]);
}

/// The bytes of an assignment of these partitions.
fn assigned(topic: &str, partitions: &[i32]) -> Bytes {
    let assignment = Assignment {
        version: 1,
        partitions: vec![(topic.into(), partitions.to_vec())],
        user_data: None,
    };
    assignment.to_bytes()
}

#[tokio::test]
async fn c71_a_classic_group_with_a_member_that_has_not_synced_is_upgraded() {
    let world = world!();
    offered!(world);
    let name = world.name("topic");
    let id = world.create_topic(&name, 4).await;
    let group = world.group();
    let a = group.member("a").await.subscribed(&[&name]);
    let b = group.member("b").await.subscribed(&[&name]);
    group.join_all(&[&a, &b]).await;
    let shares = [(a.id(), assigned(&name, &[0, 1]))];
    assert_eq!(a.assign(&shares).await.error(), NONE);
    assert_eq!(group.state().await, "Stable");

    let c = Consumer::new(&world, &group, &[&name]).await;
    assert_eq!(c.join().await, NONE);
    // What A owns is not given away; B counts as owning nothing.
    let taken = all_of(&[(id, 2)]);
    for _ in 0..5 {
        assert_eq!((c.beat().await, c.confirm().await), (NONE, NONE));
        assert!(c.granted().is_disjoint(&taken));
    }
    assert_eq!(a.heartbeat().await, REBALANCE_IN_PROGRESS);
    let groups = world.list_as(5).await;
    assert_eq!(groups[0].group_type.as_str(), "consumer");
    let join = a.join().await;
    assert_eq!((join.error(), join.leader.as_str()), (NONE, ""));
    assert_eq!(a.sync().await.error(), NONE);
}

#[tokio::test]
async fn c71_a_classic_group_that_cannot_be_read_is_left_alone() {
    let world = world!();
    offered!(world);
    let topic = world.topic(2).await;
    let odd = Subscription {
        version: 1,
        topics: vec![(&*topic).into()],
        user_data: None,
        owned: Vec::new(),
        generation: -1,
        rack_id: None,
    };
    let cut = odd.to_bytes().slice(..3);
    for (protocol_type, metadata) in [("consumer", &cut[..]), ("connect", b"x")] {
        let group = world.group();
        let old = group
            .member("old")
            .await
            .follows(protocol_type, &[("range", metadata)]);
        old.settle().await;
        let before = group.describe().await;
        let c = Consumer::new(&world, &group, &[&topic]).await;
        assert_eq!(c.join().await, GROUP_ID_NOT_FOUND);
        assert_eq!(group.describe().await, before);
        assert_eq!(old.heartbeat().await, NONE);
    }
}
