//! Members of groups, as a client library would be one: they join, take what they are given, and say that they live.
//! Each is driven by the phases; nothing here measures.
#![expect(clippy::disallowed_methods, reason = "a command knows what time it is")]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, GroupId, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::task::JoinSet;
use uuid::Uuid;

use super::Error;
use super::cluster::{Cluster, Protocol};
use super::load::{Trouble, Work};
use crate::client::Client;

const MEMBER_ID_REQUIRED: i16 = ResponseError::MemberIdRequired.code();
const REBALANCE_IN_PROGRESS: i16 = ResponseError::RebalanceInProgress.code();

/// Long enough for a slow open loop over many members, short enough that what a killed run leaves goes away.
const SESSION_MS: i32 = 300_000;
const REBALANCE_MS: i32 = 60_000;
/// From which version on JoinGroup has a rebalance timeout and SyncGroup the protocol's name.
const JOIN_REBALANCE_WORD: i16 = 1;
const SYNC_PROTOCOL_WORD: i16 = 5;
/// How often a member looks whether others have come, and one of the consumer protocol what it is to do.
const LOOK: Duration = Duration::from_millis(20);
const BEAT: Duration = Duration::from_millis(10);

/// What a classic member is told by the leader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Assignment {
    pub partitions: Vec<i32>,
    /// How many members the group has.
    pub members: i32,
}

impl Assignment {
    /// As clients write it, with the number of members where they put what only they understand.
    fn encode(&self, topic: &TopicName) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_i16(0);
        bytes.put_i32(1);
        put_text(&mut bytes, topic);
        bytes.put_i32(i32::try_from(self.partitions.len()).unwrap_or(i32::MAX));
        self.partitions.iter().for_each(|p| bytes.put_i32(*p));
        bytes.put_i32(4);
        bytes.put_i32(self.members);
        bytes.freeze()
    }

    /// `None` if it is not what [`encode`](Self::encode) has written for this topic.
    fn decode(mut bytes: Bytes, topic: &TopicName) -> Option<Self> {
        let head = 2 + 4 + 2 + topic.len();
        if bytes.len() < head + 4 {
            return None;
        }
        bytes.advance(head);
        let count = usize::try_from(bytes.get_i32()).ok()?;
        if bytes.len() != count.checked_mul(4)?.checked_add(8)? {
            return None;
        }
        let partitions = (0..count).map(|_| bytes.get_i32()).collect();
        bytes.advance(4);
        let found = Self {
            partitions,
            members: bytes.get_i32(),
        };
        Some(found)
    }
}

fn put_text(bytes: &mut BytesMut, text: &str) {
    bytes.put_i16(i16::try_from(text.len()).unwrap_or(i16::MAX));
    bytes.put_slice(text.as_bytes());
}

/// A member of a classic group, with a connection of its own where JoinGroup is asked: it waits there for the others.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub group: GroupId,
    pub topic: TopicName,
    /// Partitions to deal out, when this member leads.
    pub partitions: i32,
    pub id: StrBytes,
    pub generation: i32,
    /// Rises with every subscription, so that a join is one.
    pub change: i32,
    pub assignment: Assignment,
}

impl Member {
    pub(super) fn new(group: &GroupId, topic: &TopicName, partitions: i32) -> Self {
        Self {
            group: group.clone(),
            topic: topic.clone(),
            partitions,
            id: StrBytes::default(),
            generation: -1,
            change: 0,
            assignment: Assignment::default(),
        }
    }

    fn subscription(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_i16(0);
        bytes.put_i32(1);
        put_text(&mut bytes, &self.topic);
        bytes.put_i32(4);
        bytes.put_i32(self.change);
        bytes.freeze()
    }

    /// One JoinGroup, and another if the server wants the member to come with the id that it gave.
    pub(super) async fn join(
        &mut self,
        cluster: &Cluster,
        client: &Client,
    ) -> Result<JoinGroupResponse, Error> {
        let retry = cluster.retry("JoinGroup");
        let joined = loop {
            let mut answer = self.ask_to_join(cluster, client).await?;
            if answer.error_code == MEMBER_ID_REQUIRED {
                self.id = answer.member_id.clone();
                answer = self.ask_to_join(cluster, client).await?;
            }
            if retry.settled(answer.error_code).await? {
                break answer;
            }
        };
        if self.generation < 0 {
            cluster.joined(&self.group, Protocol::Classic, &joined.member_id);
        }
        self.id = joined.member_id.clone();
        self.generation = joined.generation_id;
        Ok(joined)
    }

    async fn ask_to_join(
        &self,
        cluster: &Cluster,
        client: &Client,
    ) -> Result<JoinGroupResponse, Error> {
        let protocol = JoinGroupRequestProtocol::default()
            .with_name(StrBytes::from_static_str("range"))
            .with_metadata(self.subscription());
        let mut request = JoinGroupRequest::default()
            .with_group_id(self.group.clone())
            .with_session_timeout_ms(SESSION_MS)
            .with_member_id(self.id.clone())
            .with_protocol_type(StrBytes::from_static_str("consumer"))
            .with_protocols(vec![protocol]);
        if matches!(client.version::<JoinGroupRequest>(), Ok(v) if v >= JOIN_REBALANCE_WORD) {
            request.rebalance_timeout_ms = REBALANCE_MS;
        }
        cluster.answer("JoinGroup", client.send(&request)).await
    }

    /// SyncGroup; the leader brings what it deals out. `false` if the group gathers anew.
    pub(super) async fn sync(
        &mut self,
        cluster: &Cluster,
        client: &Client,
        joined: &JoinGroupResponse,
    ) -> Result<bool, Error> {
        let mut request = SyncGroupRequest::default()
            .with_group_id(self.group.clone())
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone());
        if matches!(client.version::<SyncGroupRequest>(), Ok(v) if v >= SYNC_PROTOCOL_WORD) {
            request.protocol_type = Some(StrBytes::from_static_str("consumer"));
            request.protocol_name = Some(StrBytes::from_static_str("range"));
        }
        if joined.leader == self.id {
            request.assignments = self.deal(joined);
        }
        let answer = cluster.answer("SyncGroup", client.send(&request)).await?;
        match answer.error_code {
            0 => {
                let given = Assignment::decode(answer.assignment, &self.topic);
                self.assignment = given
                    .ok_or_else(|| Error::Wrong("SyncGroup gives what no leader dealt".into()))?;
                Ok(true)
            }
            REBALANCE_IN_PROGRESS => Ok(false),
            code => Err(Error::refused("SyncGroup", code)),
        }
    }

    /// Every partition to one member, in turn.
    fn deal(&self, joined: &JoinGroupResponse) -> Vec<SyncGroupRequestAssignment> {
        let count = i32::try_from(joined.members.len())
            .unwrap_or(i32::MAX)
            .max(1);
        let members = (0..).zip(&joined.members);
        let one = |(at, member): (
            i32,
            &kafka_protocol::messages::join_group_response::JoinGroupResponseMember,
        )| {
            let partitions = (at..self.partitions).step_by(usize::try_from(count).unwrap_or(1));
            let assignment = Assignment {
                partitions: partitions.collect(),
                members: count,
            };
            SyncGroupRequestAssignment::default()
                .with_member_id(member.member_id.clone())
                .with_assignment(assignment.encode(&self.topic))
        };
        members.map(one).collect()
    }

    /// Joins and synchronises until the group has this many members.
    async fn settle(
        &mut self,
        cluster: &Cluster,
        client: &Client,
        members: i32,
    ) -> Result<(), Error> {
        loop {
            let joined = self.join(cluster, client).await?;
            if !self.sync(cluster, client, &joined).await? {
                continue;
            }
            if self.assignment.members == members {
                return Ok(());
            }
            loop {
                tokio::time::sleep(LOOK).await;
                match cluster.answer("Heartbeat", self.beat(client)).await? {
                    0 => {}
                    REBALANCE_IN_PROGRESS => break,
                    code => return Err(Error::refused("Heartbeat", code)),
                }
            }
        }
    }

    async fn beat(&self, client: &Client) -> Result<i16, crate::client::Error> {
        let request = HeartbeatRequest::default()
            .with_group_id(self.group.clone())
            .with_generation_id(self.generation)
            .with_member_id(self.id.clone());
        Ok(client.send(&request).await?.error_code)
    }
}

impl Work for Member {
    async fn once(&mut self, client: &Client) -> Result<(), Trouble> {
        match self.beat(client).await? {
            0 => Ok(()),
            code => Err(Trouble::Refused(code)),
        }
    }
}

/// Makes a classic group of this many members, a connection each, and waits until all are synchronised.
pub(super) async fn gather(
    cluster: &std::sync::Arc<Cluster>,
    address: &str,
    member: &Member,
    members: i32,
) -> Result<Vec<(Client, Member)>, Error> {
    let mut joining = JoinSet::new();
    for _ in 0..members {
        let client = cluster.dial(address).await?;
        let (cluster, mut member) = (cluster.clone(), member.clone());
        joining.spawn(async move {
            member.settle(&cluster, &client, members).await?;
            Ok::<_, Error>((client, member))
        });
    }
    let mut all = Vec::new();
    while let Some(done) = joining.join_next().await {
        all.push(done.map_err(|e| Error::Wrong(format!("a member ended: {e}")))??);
    }
    Ok(all)
}

/// A member of a consumer group (KIP-848).
#[derive(Clone, Debug)]
pub(super) struct Consumer {
    pub group: GroupId,
    pub topic: TopicName,
    pub id: StrBytes,
    pub epoch: i32,
    topic_id: Uuid,
    pub owned: BTreeSet<i32>,
    /// What is owned has changed, and the server has not been told.
    unsaid: bool,
}

impl Consumer {
    pub(super) fn new(group: &GroupId, topic: &TopicName) -> Self {
        Self {
            group: group.clone(),
            topic: topic.clone(),
            id: StrBytes::from_string(Uuid::from_u128(unique()).to_string()),
            epoch: 0,
            topic_id: Uuid::nil(),
            owned: BTreeSet::new(),
            unsaid: true,
        }
    }

    /// One heartbeat that says what there is to say. Gives the error code; `Ok(0)` may bring another assignment.
    pub(super) async fn beat(&mut self, client: &Client) -> Result<i16, crate::client::Error> {
        let mut request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(self.group.clone())
            .with_member_id(self.id.clone())
            .with_member_epoch(self.epoch);
        if self.epoch == 0 {
            request.rebalance_timeout_ms = REBALANCE_MS;
            request.subscribed_topic_names = Some(vec![self.topic.clone()]);
        }
        if self.unsaid || self.epoch == 0 {
            let owned = TopicPartitions::default()
                .with_topic_id(self.topic_id)
                .with_partitions(self.owned.iter().copied().collect());
            let some = (!self.owned.is_empty()).then_some(owned);
            request.topic_partitions = Some(some.into_iter().collect());
        }
        let answer = client.send(&request).await?;
        if answer.error_code != 0 {
            return Ok(answer.error_code);
        }
        self.epoch = answer.member_epoch;
        self.unsaid = false;
        if let Some(assignment) = answer.assignment {
            let given = assignment.topic_partitions;
            self.topic_id = given.first().map_or(self.topic_id, |topic| topic.topic_id);
            let owned = given.iter().flat_map(|topic| &topic.partitions).copied();
            let owned: BTreeSet<i32> = owned.collect();
            self.unsaid = owned != self.owned;
            self.owned = owned;
        }
        Ok(0)
    }

    /// Joins and is remembered.
    pub(super) async fn join(&mut self, cluster: &Cluster, client: &Client) -> Result<(), Error> {
        cluster.joined(&self.group, Protocol::Consumer, &self.id);
        let what = "ConsumerGroupHeartbeat";
        let retry = cluster.retry(what);
        while !retry
            .settled(cluster.answer(what, self.beat(client)).await?)
            .await?
        {}
        Ok(())
    }

    pub(super) async fn leave(&self, cluster: &Cluster, client: &Client) -> Result<(), Error> {
        let request = ConsumerGroupHeartbeatRequest::default()
            .with_group_id(self.group.clone())
            .with_member_id(self.id.clone())
            .with_member_epoch(-1);
        let what = "ConsumerGroupHeartbeat";
        let answer = cluster.answer(what, client.send(&request)).await?;
        if answer.error_code != 0 {
            return Err(Error::refused(what, answer.error_code));
        }
        cluster.left(&self.group, &self.id);
        Ok(())
    }
}

impl Work for Consumer {
    async fn once(&mut self, client: &Client) -> Result<(), Trouble> {
        match self.beat(client).await? {
            0 => Ok(()),
            code => Err(Trouble::Refused(code)),
        }
    }
}

/// Lets the members of one consumer group send heartbeats until all agree: one epoch, every partition with exactly one
/// of them, and nothing left to be told.
pub(super) async fn converge(
    cluster: &Cluster,
    mut members: Vec<(Client, Consumer)>,
    partitions: i32,
) -> Result<Vec<(Client, Consumer)>, Error> {
    let begun = Instant::now();
    loop {
        let mut beating = JoinSet::new();
        for (client, mut member) in members.drain(..) {
            beating.spawn(async move {
                let code = member.beat(&client).await;
                (code, client, member)
            });
        }
        while let Some(beaten) = beating.join_next().await {
            let (code, client, member) =
                beaten.map_err(|e| Error::Wrong(format!("a member ended: {e}")))?;
            let what = "ConsumerGroupHeartbeat";
            match cluster.answer(what, async { code }).await? {
                0 => members.push((client, member)),
                code => return Err(Error::refused(what, code)),
            }
        }
        if agreed(members.iter().map(|(_, member)| member), partitions) {
            return Ok(members);
        }
        if begun.elapsed() > cluster.patience() {
            return Err(Error::Silent {
                what: "agreement in a consumer group",
                seconds: cluster.patience().as_secs(),
            });
        }
        tokio::time::sleep(BEAT).await;
    }
}

fn agreed<'a>(members: impl Iterator<Item = &'a Consumer>, partitions: i32) -> bool {
    let (mut epochs, mut owned) = (BTreeSet::new(), Vec::<i32>::new());
    for member in members {
        if member.unsaid {
            return false;
        }
        epochs.insert(member.epoch);
        owned.extend(&member.owned);
    }
    owned.sort_unstable();
    epochs.len() == 1 && owned.iter().copied().eq(0..partitions)
}

/// A number that no other member has: the run's own clock and a count.
pub(super) fn unique() -> u128 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(1);
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let nanos = since.map_or(0, |since| since.as_nanos());
    (nanos << 48)
        ^ (u128::from(std::process::id()) << 24)
        ^ u128::from(COUNT.fetch_add(1, Ordering::Relaxed))
}
