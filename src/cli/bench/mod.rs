//! `convoke bench`: heartbeats, commits and rebalances against any server that speaks the Kafka protocol, so that
//! anybody can compare their own cluster with this one. It checks what it measures: the last acknowledged commit is
//! read back, assignments are disjoint. What it makes it removes.
//!
//! It speaks plain text without a login, and trusts the server as [`crate::client`] does.
#![expect(clippy::disallowed_methods, reason = "a command knows what time it is")]

mod cluster;
mod load;
mod members;
mod phases;
mod report;

use std::io::Write as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{Args, ValueEnum, value_parser};
use kafka_protocol::ResponseError;
use kafka_protocol::messages::{
    ConsumerGroupHeartbeatRequest, HeartbeatRequest, JoinGroupRequest, OffsetCommitRequest,
    OffsetFetchRequest, SyncGroupRequest, TopicName,
};
use kafka_protocol::protocol::StrBytes;

use self::cluster::Cluster;
use self::phases::Run;
use self::report::{PhaseReport, Report, Settings};
use crate::client;

/// What a server answers that will be ready in a moment.
const LOADING: [i16; 3] = [
    ResponseError::CoordinatorLoadInProgress.code(),
    ResponseError::CoordinatorNotAvailable.code(),
    ResponseError::NotCoordinator.code(),
];
const UNSUPPORTED_VERSION: i16 = ResponseError::UnsupportedVersion.code();

/// What to ask, of whom, how fast and how long.
#[derive(Debug, Args)]
pub(super) struct Bench {
    /// A server of the cluster.
    #[arg(long, value_name = "HOST:PORT")]
    bootstrap: String,
    /// What to measure, several with commas between them. [default: all that the server offers]
    #[arg(long, value_enum, value_delimiter = ',', value_name = "PHASE")]
    phases: Vec<Phase>,
    /// How long each phase is measured.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u64).range(1..=86_400))]
    seconds: u64,
    /// How long each phase runs before it is.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = value_parser!(u64).range(0..=3_600))]
    warmup: u64,
    /// Connections of a phase; a rebalance has one for each member.
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u32).range(1..=100_000))]
    connections: u32,
    /// Requests in flight on each connection. A group has one commit in flight, a member one heartbeat.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = value_parser!(u32).range(1..=1_000))]
    depth: u32,
    /// Requests a second, whether or not answers come (an open loop): latencies count from the moment at which a
    /// request was due. Rebalances have no rate. [default: as fast as answers come]
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=10_000_000))]
    rate: Option<u32>,
    /// Groups that send heartbeats, and groups that commit.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = value_parser!(u32).range(1..=1_000_000))]
    groups: u32,
    /// Members of each group that sends heartbeats.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = value_parser!(u32).range(1..=10_000))]
    members: u32,
    /// Partitions of each commit.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = value_parser!(u32).range(1..=10_000))]
    partitions: u32,
    /// Members of the group that rebalances.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = value_parser!(u32).range(1..=10_000))]
    rebalance_members: u32,
    /// A topic that is there, in place of one that is made and removed again. Only group APIs touch it.
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// How long an answer may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = value_parser!(u64).range(1..=3_600))]
    patience: u64,
    /// Report JSON instead of a table.
    #[arg(long)]
    json: bool,
    /// Tell no progress on stderr.
    #[arg(long)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Phase {
    /// Heartbeats of classic groups.
    Heartbeat,
    /// Heartbeats of groups of the consumer protocol (KIP-848).
    ConsumerHeartbeat,
    /// Commits of groups without members.
    Commit,
    /// A classic group whose members all join again: from the last JoinGroup to the last assignment.
    Rebalance,
    /// A group of the consumer protocol in which one member leaves and another comes: until all agree.
    ConsumerRebalance,
}

const PHASES: [Phase; 5] = [
    Phase::Heartbeat,
    Phase::ConsumerHeartbeat,
    Phase::Commit,
    Phase::Rebalance,
    Phase::ConsumerRebalance,
];

/// Why a run is not one.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(super) enum Error {
    #[error("cannot use {address}: {source}; does a Kafka server listen there, without TLS?")]
    Unreachable {
        address: String,
        source: client::Error,
    },
    #[error(
        "the cluster says to dial {address}, and that cannot be used: {source}; its advertised.listeners must name what this machine can reach"
    )]
    Advertised {
        address: String,
        source: client::Error,
    },
    #[error(
        "the server does not offer what {phase} needs: {api}; leave it out of --phases{because}"
    )]
    NotOffered {
        phase: &'static str,
        api: &'static str,
        because: String,
    },
    #[error(
        "the server refuses to make topic {topic}: {code}{message}; make one with {partitions} partitions and name it with --topic"
    )]
    TopicRefused {
        topic: String,
        code: String,
        message: String,
        partitions: i32,
    },
    #[error(
        "topic {topic} has {has} partitions with a leader, and {wanted} are needed; name another, or lower --partitions, --members and --rebalance-members"
    )]
    TooFewPartitions {
        topic: String,
        has: i32,
        wanted: i32,
    },
    #[error("topic {topic} cannot be used: {code}")]
    NoTopic { topic: String, code: String },
    #[error("{what} is refused: {}", text(*code))]
    Refused { what: &'static str, code: i16 },
    #[error("{what}: {source}")]
    Broken {
        what: &'static str,
        source: client::Error,
    },
    #[error("{what}: no answer within {seconds} s (--patience)")]
    Silent { what: &'static str, seconds: u64 },
    #[error("the server is not right: {0}")]
    Wrong(String),
    #[error("{failed} of {checks} checks fail, so the figures mean nothing")]
    Checks { failed: usize, checks: usize },
    #[error("interrupted; what the run had made is removed")]
    Interrupted,
    #[error("cannot run: {0}")]
    System(#[from] std::io::Error),
}

impl Error {
    fn refused(what: &'static str, code: i16) -> Self {
        Self::Refused { what, code }
    }
}

/// An error code as Kafka spells it.
fn text(code: i16) -> String {
    match ResponseError::try_from_code(code) {
        None | Some(ResponseError::Unknown(_)) => format!("error code {code}"),
        Some(known) => {
            let mut name = String::new();
            for c in format!("{known:?}").chars() {
                if c.is_ascii_uppercase() && !name.is_empty() {
                    name.push('_');
                }
                name.push(c.to_ascii_uppercase());
            }
            format!("{name} ({code})")
        }
    }
}

fn say(line: &str) {
    // Nobody has to listen.
    let _ = writeln!(std::io::stderr(), "{line}");
}

impl Bench {
    /// Runs until it is over or interrupted, and prints the report.
    pub(super) fn run(&self) -> Result<(), Error> {
        super::serve::raise_open_files();
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .thread_name("bench")
            .enable_all()
            .build()?;
        let done = runtime.block_on(self.measure());
        runtime.shutdown_background();
        let report = done?;
        let text = if self.json {
            report.json()
        } else {
            report.table()
        };
        // A closed pipe (`| head`) is no failure.
        let _ = std::io::stdout().write_all(text.as_bytes());
        let all = report.phases.iter().flat_map(|phase| &phase.checks);
        let checks = all.clone().count();
        match all.filter(|check| !check.ok).count() {
            0 => Ok(()),
            failed => Err(Error::Checks { failed, checks }),
        }
    }

    async fn measure(&self) -> Result<Report, Error> {
        let patience = Duration::from_secs(self.patience);
        let cluster = Arc::new(Cluster::connect(&self.bootstrap, patience).await?);
        let mut report = Report {
            convoke: env!("CARGO_PKG_VERSION"),
            started_unix_ms: unix_ms(),
            server: cluster.summary().await?,
            settings: Settings {
                seconds: self.seconds,
                warmup_seconds: self.warmup,
                connections: self.connections,
                depth: self.depth,
                topic_partitions: 0,
            },
            phases: Vec::new(),
            notes: Vec::new(),
            ok: false,
        };
        report.server.used = spoken(&cluster);
        let measured = tokio::select! {
            measured = self.all(&cluster, &mut report) => measured,
            _ = tokio::signal::ctrl_c() => Err(Error::Interrupted),
        };
        let mut left = cluster.remove_groups().await;
        left.extend(cluster.remove_topic().await);
        if measured.is_err() {
            left.iter().for_each(|note| say(note));
        }
        measured?;
        report.notes.extend(left);
        let mut checks = report.phases.iter().flat_map(|phase| &phase.checks);
        report.ok = checks.all(|check| check.ok);
        Ok(report)
    }

    async fn all(&self, cluster: &Arc<Cluster>, report: &mut Report) -> Result<(), Error> {
        let chosen = self.chosen(cluster, &mut report.notes)?;
        let unique = format!("{:08x}", members::unique() as u32 ^ (unix_ms() as u32));
        let made = format!("convoke-bench-{unique}");
        let name = self.topic.clone().unwrap_or_else(|| made.clone());
        let topic = TopicName(StrBytes::from_string(name));
        let make = self.topic.is_none();
        let partitions = cluster
            .topic(&topic, make, self.partitions_needed())
            .await?;
        report.settings.topic_partitions = partitions;
        let run = Run {
            options: self,
            cluster: Arc::clone(cluster),
            topic,
            partitions,
            prefix: made,
        };
        for phase in chosen {
            match phase.run(&run).await {
                Ok(measured) => report.phases.push(measured),
                // A server may know the protocol and have it turned off.
                Err(Error::Refused { code, .. })
                    if code == UNSUPPORTED_VERSION && self.phases.is_empty() =>
                {
                    let note = format!("{} left out: the server refuses it", phase.name());
                    report.notes.push(note);
                }
                Err(error) => return Err(error),
            }
            let left = cluster.remove_groups().await;
            report.notes.extend(left);
        }
        Ok(())
    }

    /// Partitions that the topic has to have.
    fn partitions_needed(&self) -> i32 {
        let most = self.partitions.max(self.members);
        most.max(self.rebalance_members).cast_signed()
    }

    /// The phases to run: those that were named, or those that the server can do.
    fn chosen(&self, cluster: &Cluster, notes: &mut Vec<String>) -> Result<Vec<Phase>, Error> {
        let named = !self.phases.is_empty();
        let wanted = if named { &self.phases[..] } else { &PHASES };
        let mut chosen = Vec::new();
        for phase in wanted {
            match phase.missing(cluster) {
                None => chosen.push(*phase),
                Some(api) if named => {
                    return Err(Error::NotOffered {
                        phase: phase.name(),
                        api,
                        because: String::new(),
                    });
                }
                Some(api) => notes.push(format!("{} left out: no {api}", phase.name())),
            }
        }
        Ok(chosen)
    }
}

impl Phase {
    fn name(self) -> &'static str {
        match self {
            Self::Heartbeat => "heartbeat",
            Self::ConsumerHeartbeat => "consumer-heartbeat",
            Self::Commit => "commit",
            Self::Rebalance => "rebalance",
            Self::ConsumerRebalance => "consumer-rebalance",
        }
    }

    /// The first API that it needs and the server does not offer.
    fn missing(self, cluster: &Cluster) -> Option<&'static str> {
        let needed = match self {
            Self::Heartbeat | Self::Rebalance => vec![
                ("JoinGroup", cluster.used::<JoinGroupRequest>()),
                ("SyncGroup", cluster.used::<SyncGroupRequest>()),
                ("Heartbeat", cluster.used::<HeartbeatRequest>()),
            ],
            Self::ConsumerHeartbeat | Self::ConsumerRebalance => vec![(
                "ConsumerGroupHeartbeat",
                cluster.used::<ConsumerGroupHeartbeatRequest>(),
            )],
            Self::Commit => vec![
                ("OffsetCommit", cluster.used::<OffsetCommitRequest>()),
                ("OffsetFetch", cluster.used::<OffsetFetchRequest>()),
            ],
        };
        let mut missing = needed.into_iter().filter(|(_, version)| version.is_none());
        missing.next().map(|(name, _)| name)
    }

    async fn run(self, run: &Run<'_>) -> Result<PhaseReport, Error> {
        match self {
            Self::Heartbeat => run.heartbeat().await,
            Self::ConsumerHeartbeat => run.consumer_heartbeat().await,
            Self::Commit => run.commit().await,
            Self::Rebalance => run.rebalance().await,
            Self::ConsumerRebalance => run.consumer_rebalance().await,
        }
    }
}

/// The version of each API of the load that both sides know.
fn spoken(cluster: &Cluster) -> std::collections::BTreeMap<&'static str, i16> {
    let all = [
        ("JoinGroup", cluster.used::<JoinGroupRequest>()),
        ("SyncGroup", cluster.used::<SyncGroupRequest>()),
        ("Heartbeat", cluster.used::<HeartbeatRequest>()),
        ("OffsetCommit", cluster.used::<OffsetCommitRequest>()),
        ("OffsetFetch", cluster.used::<OffsetFetchRequest>()),
        (
            "ConsumerGroupHeartbeat",
            cluster.used::<ConsumerGroupHeartbeatRequest>(),
        ),
    ];
    let known = all.into_iter();
    known
        .filter_map(|(name, version)| Some((name, version?)))
        .collect()
}

fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_spelled_as_kafka_does() {
        assert_eq!(text(27), "REBALANCE_IN_PROGRESS (27)");
        assert_eq!(text(12_345), "error code 12345");
    }
}
