//! Kafka's keys that Convoke does not honour: other names for our own keys, those that are read
//! over with a warning, and those that are refused because leaving them out would break a promise.

/// What is done with a key that is Kafka's but not in our table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// Another name for this key.
    Alias(&'static str),
    /// Read over, with a warning that gives the reason.
    Ignored(&'static str),
    /// Refused, with what to do instead.
    Refused(&'static str),
}

use Foreign::{Alias, Ignored, Refused};

const ONE_NODE: &str = "Convoke runs as one node and keeps one copy";
const THREADS: &str = "threads follow the number of cores";
const BUFFERS: &str = "the system's socket buffers are used";
const NO_TLS: &str = "this version speaks PLAINTEXT only; remove the key, and keep the port on loopback or a private network or put a TLS proxy in front";
const NO_AUTH: &str = "this version knows neither users nor permissions; remove the key, and keep the port on loopback or a private network";
const NO_PLUGIN: &str = "Java classes cannot be loaded; remove the key";
const NO_SHARE: &str = "share groups are not served by this version";
const NO_STREAMS: &str = "streams groups are not served by this version";
const NO_TXN: &str = "transactions are not served by this version";
const NO_TIER: &str = "there is no tiered storage";
const NO_CLEANER: &str = "compacted topics keep everything";
const NO_QUOTA: &str = "quotas are not served by this version";
const METRICS: &str = "metrics are served over HTTP at /metrics";
const PURGATORY: &str = "waiting requests are dropped as soon as they are answered";

/// Whole names, in alphabetical order.
#[rustfmt::skip]
pub static FOREIGN: &[(&str, Foreign)] = &[
    ("alter.config.policy.class.name", Refused(NO_PLUGIN)),
    ("authorizer.class.name", Refused(NO_AUTH)),
    ("auto.leader.rebalance.enable", Ignored(ONE_NODE)),
    ("background.threads", Ignored(THREADS)),
    ("broker.heartbeat.interval.ms", Ignored(ONE_NODE)),
    ("broker.id", Alias("node.id")),
    ("broker.id.generation.enable", Ignored("node.id has a default")),
    ("broker.session.timeout.ms", Ignored(ONE_NODE)),
    ("client.quota.callback.class", Refused(NO_PLUGIN)),
    ("compression.gzip.level", Ignored("batches stay as the producer made them")),
    ("compression.lz4.level", Ignored("batches stay as the producer made them")),
    ("compression.zstd.level", Ignored("batches stay as the producer made them")),
    ("config.providers", Refused("values are taken as they stand; write them into the file")),
    ("connection.failed.authentication.delay.ms", Ignored("there is no authentication")),
    ("connections.max.reauth.ms", Refused(NO_AUTH)),
    ("cordoned.log.dirs", Refused("there is one data folder")),
    ("create.topic.policy.class.name", Refused(NO_PLUGIN)),
    ("default.replication.factor", Ignored(ONE_NODE)),
    ("delete.records.purgatory.purge.interval.requests", Ignored(PURGATORY)),
    ("early.start.listeners", Ignored("all listeners open at the same time")),
    ("fetch.purgatory.purge.interval.requests", Ignored(PURGATORY)),
    ("follower.fetch.last.tiered.offset.enable", Ignored(ONE_NODE)),
    ("group.consumer.assignor.offload.enable", Ignored("it has no effect in Kafka 4.4 either")),
    ("group.coordinator.append.linger.ms", Ignored("whatever is queued when a sync begins goes into it")),
    ("group.coordinator.background.threads", Ignored(THREADS)),
    ("group.coordinator.cached.buffer.max.bytes", Ignored("buffers are not kept")),
    ("group.coordinator.new.enable", Ignored("there is one coordinator")),
    ("group.coordinator.rebalance.protocols", Ignored("every protocol that is served is on, as in Kafka's default")),
    ("group.coordinator.threads", Ignored(THREADS)),
    ("initial.broker.registration.timeout.ms", Ignored(ONE_NODE)),
    ("inter.broker.listener.name", Ignored(ONE_NODE)),
    ("inter.broker.protocol.version", Ignored(ONE_NODE)),
    ("leader.imbalance.check.interval.seconds", Ignored(ONE_NODE)),
    ("leader.imbalance.per.broker.percentage", Ignored(ONE_NODE)),
    ("log.dir", Alias("convoke.data.dir")),
    ("log.dir.failure.timeout.ms", Ignored("a failed sync stops the process")),
    ("log.dirs", Alias("convoke.data.dir")),
    ("log.flush.offset.checkpoint.interval.ms", Ignored("there are no checkpoint files")),
    ("log.flush.scheduler.interval.ms", Ignored("a partition syncs when it is due")),
    ("log.flush.start.offset.checkpoint.interval.ms", Ignored("there are no checkpoint files")),
    ("log.index.interval.bytes", Ignored("indexes are kept in memory")),
    ("log.index.size.max.bytes", Ignored("indexes are kept in memory")),
    ("log.initial.task.delay.ms", Ignored("retention runs by log.retention.check.interval.ms")),
    ("log.message.downconversion.enable", Ignored("records are never converted")),
    ("log.message.format.version", Ignored("record batches are of version 2")),
    ("log.preallocate", Ignored("files grow as they are written")),
    ("log.roll.jitter.hours", Ignored("files are closed without jitter")),
    ("log.roll.jitter.ms", Ignored("files are closed without jitter")),
    ("log.segment.delete.delay.ms", Ignored("old files are removed at once")),
    ("max.connection.creation.rate", Ignored(NO_QUOTA)),
    ("max.decompressed.message.bytes", Ignored("Produce does not decompress")),
    ("max.incremental.fetch.session.cache.slots", Ignored("there are no fetch sessions to cache")),
    ("metric.reporters", Ignored(METRICS)),
    ("min.insync.replicas", Ignored(ONE_NODE)),
    ("num.io.threads", Ignored(THREADS)),
    ("num.network.threads", Ignored(THREADS)),
    ("num.recovery.threads.per.data.dir", Ignored(THREADS)),
    ("num.replica.alter.log.dirs.threads", Ignored(ONE_NODE)),
    ("num.replica.fetchers", Ignored(ONE_NODE)),
    ("offsets.load.buffer.size", Ignored("the group log is read in pieces of its own")),
    ("offsets.topic.compression.codec", Ignored("the group log is not compressed")),
    ("offsets.topic.replication.factor", Ignored(ONE_NODE)),
    ("principal.builder.class", Refused(NO_PLUGIN)),
    ("process.roles", Ignored(ONE_NODE)),
    ("producer.id.expiration.check.interval.ms", Ignored("idle producers are looked for with retention")),
    ("producer.purgatory.purge.interval.requests", Ignored(PURGATORY)),
    ("queued.max.requests", Ignored("requests in memory are limited by queued.max.request.bytes")),
    ("request.timeout.ms", Ignored(ONE_NODE)),
    ("reserved.broker.max.id", Ignored(ONE_NODE)),
    ("security.inter.broker.protocol", Ignored(ONE_NODE)),
    ("security.providers", Refused(NO_PLUGIN)),
    ("server.max.startup.time.ms", Ignored("progress of a start is shown at /readyz")),
    ("socket.connection.setup.timeout.max.ms", Ignored(ONE_NODE)),
    ("socket.connection.setup.timeout.ms", Ignored(ONE_NODE)),
    ("socket.receive.buffer.bytes", Ignored(BUFFERS)),
    ("socket.send.buffer.bytes", Ignored(BUFFERS)),
    ("super.users", Refused(NO_AUTH)),
    ("telemetry.max.bytes", Ignored("clients are not asked for telemetry")),
    ("unclean.leader.election.enable", Ignored(ONE_NODE)),
    ("unclean.leader.election.interval.ms", Ignored(ONE_NODE)),
    ("unstable.api.versions.enable", Ignored("no unstable versions are served")),
    ("unstable.feature.versions.enable", Ignored("no unstable versions are served")),
];

/// Families of names, by how they begin.
#[rustfmt::skip]
pub static FAMILIES: &[(&str, Foreign)] = &[
    ("add.partitions.to.txn.", Ignored(NO_TXN)),
    ("alter.log.dirs.", Ignored(ONE_NODE)),
    ("confluent.", Ignored("Convoke follows Apache Kafka")),
    ("controlled.shutdown.", Ignored(ONE_NODE)),
    ("controller.", Ignored(ONE_NODE)),
    ("delegation.token.", Refused(NO_AUTH)),
    ("errors.deadletterqueue.", Ignored(NO_SHARE)),
    ("group.share.", Ignored(NO_SHARE)),
    ("group.streams.", Ignored(NO_STREAMS)),
    ("internal.", Ignored(ONE_NODE)),
    ("kafka.metrics.", Ignored(METRICS)),
    ("listener.name.", Refused(NO_TLS)),
    ("log.cleaner.", Ignored(NO_CLEANER)),
    ("log.local.retention.", Ignored(NO_TIER)),
    ("log.remote.", Ignored(NO_TIER)),
    ("metadata.", Ignored(ONE_NODE)),
    ("metrics.", Ignored(METRICS)),
    ("quota.window.", Ignored(NO_QUOTA)),
    ("remote.", Ignored(NO_TIER)),
    ("replica.", Ignored(ONE_NODE)),
    ("replication.quota.", Ignored(ONE_NODE)),
    ("sasl.", Refused(NO_AUTH)),
    ("share.", Ignored(NO_SHARE)),
    ("ssl.", Refused(NO_TLS)),
    ("transaction.", Ignored(NO_TXN)),
    ("transactional.", Ignored(NO_TXN)),
    ("zookeeper.", Refused("Convoke needs no ZooKeeper and joins no cluster; remove the key")),
];

/// Looks a name up. Whole names come before families.
pub(super) fn foreign(name: &str) -> Option<Foreign> {
    let whole = FOREIGN.iter().find(|(known, _)| *known == name);
    let family = || FAMILIES.iter().find(|(prefix, _)| name.starts_with(prefix));
    whole.or_else(family).map(|(_, foreign)| *foreign)
}

#[cfg(test)]
mod tests {
    use super::super::KEYS;
    use super::*;

    #[test]
    fn the_lists_are_sorted_and_beside_the_table() {
        assert!(FOREIGN.is_sorted_by(|a, b| a.0 < b.0));
        assert!(FAMILIES.is_sorted_by(|a, b| a.0 < b.0));
        for (name, _) in FOREIGN {
            assert!(KEYS.iter().all(|key| key.name != *name), "{name}");
        }
    }

    #[test]
    fn aliases_lead_to_keys() {
        for (name, foreign) in FOREIGN {
            if let Alias(to) = foreign {
                assert!(super::super::key(to).is_some(), "{name}");
            }
        }
    }
}
