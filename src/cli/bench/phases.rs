//! What is measured, phase by phase: what is set up for it, what is asked, and what must have come true in the end.
#![expect(
    clippy::disallowed_methods,
    reason = "latencies are what is measured here"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use kafka_protocol::messages::{
    GroupId, OffsetCommitRequest, OffsetFetchRequest, OffsetFetchResponse, TopicName,
};
use kafka_protocol::protocol::StrBytes;
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::cluster::{Cluster, Lane, Placed};
use super::load::{self, Measured, Plan, Trouble, Work};
use super::members::{Consumer, Member, converge, gather};
use super::report::{Check, PhaseReport};
use super::{Bench, Error};
use crate::client::Client;

/// Connections that wait in JoinGroup at once while groups are made.
const GATHERING: usize = 256;
/// From which version on a fetch names groups.
const FETCH_OF_GROUPS: i16 = 8;

/// A run: what every phase needs.
#[derive(Debug)]
pub(super) struct Run<'a> {
    pub options: &'a Bench,
    pub cluster: Arc<Cluster>,
    pub topic: TopicName,
    /// How many the topic has.
    pub partitions: i32,
    /// In front of every group's name.
    pub prefix: String,
}

impl Run<'_> {
    fn plan(&self, name: &'static str) -> Plan {
        Plan {
            name,
            warmup: Duration::from_secs(self.options.warmup),
            measured: Duration::from_secs(self.options.seconds),
            rate: self.options.rate,
            patience: self.cluster.patience(),
            quiet: self.options.quiet,
        }
    }

    fn say(&self, text: &str) {
        if !self.options.quiet {
            super::say(text);
        }
    }

    async fn groups(&self, kind: &str, count: u32) -> Result<Vec<Placed<GroupId>>, Error> {
        let name = |n| GroupId(StrBytes::from_string(format!("{}-{kind}-{n}", self.prefix)));
        self.cluster.place((0..count).map(name).collect()).await
    }

    async fn lanes<T>(&self, items: Vec<Placed<T>>) -> Result<Vec<Lane<T>>, Error> {
        let (connections, depth) = (self.options.connections, self.options.depth);
        let (connections, depth) = (connections as usize, depth as usize);
        self.cluster.lanes(items, connections, depth).await
    }

    async fn loaded<W: Work>(
        &self,
        name: &'static str,
        lanes: Vec<Lane<W>>,
    ) -> Result<(PhaseReport, Vec<Lane<W>>), Error> {
        let in_flight = lanes.len();
        let (measured, lanes) = load::run(lanes, &self.plan(name)).await?;
        let mut report = PhaseReport::new(name, &measured);
        report.in_flight = in_flight;
        report.rate = self.options.rate;
        let bad: u64 = measured.errors.values().sum();
        report.checks.push(Check::new(
            "every request was answered well",
            bad == 0,
            format!("{bad} were not"),
        ));
        Ok((report, lanes))
    }

    /// Heartbeats of classic groups.
    pub(super) async fn heartbeat(&self) -> Result<PhaseReport, Error> {
        let (count, members) = (self.options.groups, self.options.members);
        self.say(&format!("heartbeat: making {count} groups of {members}"));
        let groups = self.groups("heartbeat", count).await?;
        let mut all = Vec::new();
        for some in groups.chunks((GATHERING / members as usize).max(1)) {
            let mut gathering = JoinSet::new();
            for group in some {
                let cluster = Arc::clone(&self.cluster);
                let members = members.cast_signed();
                let address = group.address.clone();
                let member = Member::new(&group.what, &self.topic, members);
                gathering.spawn(async move {
                    let gathered = gather(&cluster, &address, &member, members).await?;
                    let placed = |(_, what)| Placed {
                        address: address.clone(),
                        what,
                    };
                    Ok::<Vec<_>, Error>(gathered.into_iter().map(placed).collect())
                });
            }
            while let Some(gathered) = gathering.join_next().await {
                all.extend(gathered.map_err(ended)??);
            }
        }
        let lanes = self.lanes(all).await?;
        let (mut report, _) = self.loaded("heartbeat", lanes).await?;
        report.groups = count;
        report.members = members;
        Ok(report)
    }

    /// Heartbeats of groups of the consumer protocol.
    pub(super) async fn consumer_heartbeat(&self) -> Result<PhaseReport, Error> {
        let (count, members) = (self.options.groups, self.options.members);
        self.say(&format!(
            "consumer-heartbeat: making {count} groups of {members}"
        ));
        let groups = self.groups("consumer-heartbeat", count).await?;
        let mut all = Vec::new();
        for some in groups.chunks((GATHERING / members as usize).max(1)) {
            let mut gathering = JoinSet::new();
            for group in some {
                let (cluster, group, topic) = (
                    Arc::clone(&self.cluster),
                    Placed {
                        address: group.address.clone(),
                        what: group.what.clone(),
                    },
                    self.topic.clone(),
                );
                let partitions = self.partitions;
                gathering.spawn(async move {
                    consumers(&cluster, &group, &topic, members, partitions).await
                });
            }
            while let Some(gathered) = gathering.join_next().await {
                let (address, members) = gathered.map_err(ended)??;
                all.extend(members.into_iter().map(|(_, what)| Placed {
                    address: address.clone(),
                    what,
                }));
            }
        }
        let lanes = self.lanes(all).await?;
        let (mut report, _) = self.loaded("consumer-heartbeat", lanes).await?;
        report.groups = count;
        report.members = members;
        Ok(report)
    }

    /// Commits of groups without members, and what was acknowledged last read back.
    pub(super) async fn commit(&self) -> Result<PhaseReport, Error> {
        let count = self.options.groups;
        self.say(&format!("commit: making {count} groups without members"));
        let groups = self.groups("commit", count).await?;
        let items = groups.into_iter().map(|group| Placed {
            address: group.address,
            what: Committer::new(group.what, &self.topic, self.options.partitions),
        });
        let mut lanes = self.lanes(items.collect()).await?;
        for lane in &mut lanes {
            for committer in &mut lane.items {
                let retry = self.cluster.retry("OffsetCommit");
                loop {
                    let code = match committer.once(&lane.client).await {
                        Ok(()) => 0,
                        Err(Trouble::Refused(code)) => code,
                        Err(trouble) => return Err(trouble.of("OffsetCommit")),
                    };
                    if retry.settled(code).await? {
                        break;
                    }
                }
            }
        }
        let (mut report, lanes) = self.loaded("commit", lanes).await?;
        report.groups = count;
        report.partitions = self.options.partitions;
        let mut wrong = Vec::new();
        for lane in &lanes {
            for committer in &lane.items {
                let found = committer.fetch(&self.cluster, &lane.client).await?;
                wrong.extend(committer.differs(&found));
            }
        }
        report.checks.push(Check::new(
            "what was acknowledged last is what is fetched",
            wrong.is_empty(),
            format!(
                "{} groups differ: {}",
                wrong.len(),
                wrong.first().map_or("", String::as_str)
            ),
        ));
        Ok(report)
    }

    /// Rebalances of one classic group: everybody comes with a changed subscription, again and again.
    pub(super) async fn rebalance(&self) -> Result<PhaseReport, Error> {
        let count = self.options.rebalance_members;
        self.say(&format!("rebalance: making a group of {count}"));
        let group = self.one_group("rebalance").await?;
        let partitions = self.partitions;
        let member = Member::new(&group.what, &self.topic, partitions);
        let mut members =
            gather(&self.cluster, &group.address, &member, count.cast_signed()).await?;
        let (mut measured, mut wrong) = (Measured::new(), Vec::new());
        let begun = Instant::now();
        let mut told = begun;
        while !self.over(begun) {
            let (took, after) = self.round(members).await?;
            members = after;
            if begun.elapsed().as_secs() >= self.options.warmup {
                measured.record(took);
            }
            wrong.extend(overlap(
                members.iter().map(|(_, member)| member),
                partitions,
            ));
            self.tell(&mut told, "rebalance", measured.answered);
        }
        measured.seconds = measured.latency.len() as f64 * measured.latency.mean() / 1e9;
        let mut report = PhaseReport::new("rebalance", &measured);
        report.groups = 1;
        report.members = count;
        report.partitions = partitions.cast_unsigned();
        report.checks.push(Check::new(
            "every partition is with exactly one member",
            wrong.is_empty(),
            wrong.first().cloned().unwrap_or_default(),
        ));
        Ok(report)
    }

    /// The time from the last JoinGroup to the last member's assignment.
    async fn round(
        &self,
        members: Vec<(Client, Member)>,
    ) -> Result<(Duration, Vec<(Client, Member)>), Error> {
        let start = Arc::new(Barrier::new(members.len()));
        let mut running = JoinSet::new();
        for (client, mut member) in members {
            let (cluster, start) = (Arc::clone(&self.cluster), Arc::clone(&start));
            running.spawn(async move {
                member.change += 1;
                start.wait().await;
                let mut asked = Instant::now();
                let mut joined = member.join(&cluster, &client).await?;
                while !member.sync(&cluster, &client, &joined).await? {
                    asked = Instant::now();
                    joined = member.join(&cluster, &client).await?;
                }
                Ok::<_, Error>((asked, Instant::now(), client, member))
            });
        }
        let (mut asked_last, mut done_last, mut after) = (None, None, Vec::new());
        while let Some(ran) = running.join_next().await {
            let (asked, done, client, member) = ran.map_err(ended)??;
            asked_last = asked_last.max(Some(asked));
            done_last = done_last.max(Some(done));
            after.push((client, member));
        }
        let took = done_last.zip(asked_last).map(|(done, asked)| done - asked);
        Ok((took.unwrap_or_default(), after))
    }

    /// Rebalances of one group of the consumer protocol: one leaves and another comes, until all agree again.
    pub(super) async fn consumer_rebalance(&self) -> Result<PhaseReport, Error> {
        let count = self.options.rebalance_members;
        self.say(&format!("consumer-rebalance: making a group of {count}"));
        let group = self.one_group("consumer-rebalance").await?;
        let partitions = self.partitions;
        let (_, mut members) =
            consumers(&self.cluster, &group, &self.topic, count, partitions).await?;
        let mut measured = Measured::new();
        let begun = Instant::now();
        let mut told = begun;
        while !self.over(begun) {
            let from = Instant::now();
            let (client, old) = members.remove(0);
            old.leave(&self.cluster, &client).await?;
            let mut new = Consumer::new(&group.what, &self.topic);
            new.join(&self.cluster, &client).await?;
            members.push((client, new));
            members = converge(&self.cluster, members, partitions).await?;
            if begun.elapsed().as_secs() >= self.options.warmup {
                measured.record(from.elapsed());
            }
            self.tell(&mut told, "consumer-rebalance", measured.answered);
        }
        measured.seconds = measured.latency.len() as f64 * measured.latency.mean() / 1e9;
        let mut report = PhaseReport::new("consumer-rebalance", &measured);
        report.groups = 1;
        report.members = count;
        report.partitions = partitions.cast_unsigned();
        // What is not so ends the phase: nothing else counts as agreement.
        report.checks.push(Check::new(
            "every partition is with exactly one member, and all are of one epoch",
            true,
            String::new(),
        ));
        Ok(report)
    }

    async fn one_group(&self, kind: &str) -> Result<Placed<GroupId>, Error> {
        let mut groups = self.groups(kind, 1).await?;
        groups
            .pop()
            .ok_or_else(|| Error::Wrong("FindCoordinator leaves out a group".into()))
    }

    fn over(&self, begun: Instant) -> bool {
        begun.elapsed().as_secs() >= self.options.warmup + self.options.seconds
    }

    fn tell(&self, told: &mut Instant, name: &str, rounds: u64) {
        if told.elapsed() > Duration::from_secs(5) {
            *told = Instant::now();
            self.say(&format!("{name}: {rounds} rounds"));
        }
    }
}

fn ended(e: tokio::task::JoinError) -> Error {
    Error::Wrong(format!("a member ended: {e}"))
}

/// Makes a group of the consumer protocol; its members share connections, because nothing waits in them.
async fn consumers(
    cluster: &Cluster,
    group: &Placed<GroupId>,
    topic: &TopicName,
    members: u32,
    partitions: i32,
) -> Result<(String, Vec<(Client, Consumer)>), Error> {
    let mut all = Vec::new();
    let client = cluster.dial(&group.address).await?;
    for _ in 0..members {
        let mut member = Consumer::new(&group.what, topic);
        member.join(cluster, &client).await?;
        all.push((client.clone(), member));
    }
    let all = converge(cluster, all, partitions).await?;
    Ok((group.address.clone(), all))
}

/// What is wrong with who has what, if anything.
fn overlap<'a>(members: impl Iterator<Item = &'a Member>, partitions: i32) -> Option<String> {
    let (mut generations, mut owned) = (BTreeSet::new(), Vec::<i32>::new());
    for member in members {
        generations.insert(member.generation);
        owned.extend(&member.assignment.partitions);
    }
    owned.sort_unstable();
    if generations.len() != 1 {
        return Some(format!("members of generations {generations:?} at once"));
    }
    let all = owned.iter().copied().eq(0..partitions);
    (!all).then(|| format!("of {partitions} partitions, {owned:?} are assigned"))
}

/// A group without members whose offsets only rise.
#[derive(Debug)]
struct Committer {
    group: GroupId,
    request: OffsetCommitRequest,
    /// How often was committed, and how often that was acknowledged.
    sent: i64,
    acknowledged: i64,
}

impl Committer {
    fn new(group: GroupId, topic: &TopicName, partitions: u32) -> Self {
        let partition = |index: u32| {
            OffsetCommitRequestPartition::default()
                .with_partition_index(index.cast_signed())
                .with_committed_metadata(Some(StrBytes::default()))
        };
        let topic = OffsetCommitRequestTopic::default()
            .with_name(topic.clone())
            .with_partitions((0..partitions).map(partition).collect());
        let request = OffsetCommitRequest::default()
            .with_group_id(group.clone())
            .with_topics(vec![topic]);
        Self {
            group,
            request,
            sent: 0,
            acknowledged: 0,
        }
    }

    /// What the `round`th commit says of a partition: no two say the same.
    fn offset(round: i64, partition: i32) -> i64 {
        round << 20 | i64::from(partition)
    }

    async fn fetch(&self, cluster: &Cluster, client: &Client) -> Result<Vec<(i32, i64)>, Error> {
        let what = "OffsetFetch";
        let version = client
            .version::<OffsetFetchRequest>()
            .map_err(|source| Error::Broken { what, source })?;
        let topic = &self.request.topics[0];
        let indexes: Vec<i32> = topic.partitions.iter().map(|p| p.partition_index).collect();
        let mut request = OffsetFetchRequest::default();
        if version >= FETCH_OF_GROUPS {
            let topic = OffsetFetchRequestTopics::default()
                .with_name(topic.name.clone())
                .with_partition_indexes(indexes);
            request.groups = vec![
                OffsetFetchRequestGroup::default()
                    .with_group_id(self.group.clone())
                    .with_topics(Some(vec![topic])),
            ];
        } else {
            request.group_id = self.group.clone();
            request.topics = Some(vec![
                OffsetFetchRequestTopic::default()
                    .with_name(topic.name.clone())
                    .with_partition_indexes(indexes),
            ]);
        }
        let retry = cluster.retry(what);
        loop {
            let asked = client.send_as(version, &request);
            let (code, found) = offsets(&cluster.answer(what, asked).await?);
            if retry.settled(code).await? {
                return Ok(found);
            }
        }
    }

    /// What was fetched, where it is not what was acknowledged last.
    fn differs(&self, found: &[(i32, i64)]) -> Option<String> {
        let partitions = self.request.topics[0].partitions.iter();
        let wanted = partitions.map(|p| p.partition_index);
        let wanted: Vec<_> = wanted
            .map(|p| (p, Self::offset(self.acknowledged, p)))
            .collect();
        let mut found = found.to_vec();
        found.sort_unstable();
        (found != wanted).then(|| format!("{}: {found:?} for {wanted:?}", *self.group))
    }
}

/// The error code of an answer, and each partition with its offset.
fn offsets(answer: &OffsetFetchResponse) -> (i16, Vec<(i32, i64)>) {
    let mut code = answer.error_code;
    let mut found = Vec::new();
    let mut note = |partition, offset, error| {
        if error != 0 {
            code = error;
        }
        found.push((partition, offset));
    };
    for topic in &answer.topics {
        for p in &topic.partitions {
            note(p.partition_index, p.committed_offset, p.error_code);
        }
    }
    for group in &answer.groups {
        note(-1, -1, group.error_code);
        for topic in &group.topics {
            for p in &topic.partitions {
                note(p.partition_index, p.committed_offset, p.error_code);
            }
        }
    }
    found.retain(|(partition, _)| *partition >= 0);
    (code, found)
}

impl Work for Committer {
    async fn once(&mut self, client: &Client) -> Result<(), Trouble> {
        self.sent += 1;
        for partition in &mut self.request.topics[0].partitions {
            partition.committed_offset = Self::offset(self.sent, partition.partition_index);
        }
        let answer = client.send(&self.request).await?;
        let topic = &self.request.topics[0];
        let told = answer.topics.first();
        let told = told.map_or(&[][..], |topic| &topic.partitions);
        if let Some(code) = told.iter().map(|p| p.error_code).find(|code| *code != 0) {
            return Err(Trouble::Refused(code));
        }
        if told.len() != topic.partitions.len() || answer.topics.len() != 1 {
            return Err(Trouble::Wrong(
                "OffsetCommit does not answer for what was committed".to_owned(),
            ));
        }
        self.acknowledged = self.sent;
        Ok(())
    }
}
