//! The table of keys: name, type, default, range and meaning of each, once. `Config`, the reading
//! of files, the errors, `convoke config`, docs/operations.md and DescribeConfigs all come from
//! it. Names are Kafka's; keys of our own begin with `convoke.`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::listeners::{Endpoint, HttpListen, ProtocolMap};
use super::value::{
    Kind, LogSync, MigrationPolicy, PrefixCaps, Rule, Storage, TimestampType, Value,
};

/// What is known about one key.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// The property's name.
    pub name: &'static str,
    /// The chapter of the table it stands in.
    pub section: &'static str,
    /// Its type.
    pub kind: Kind,
    /// The default, as text that reads back; empty for "not set".
    pub default: &'static str,
    /// Which values are allowed.
    pub rule: Rule,
    /// What it does, in one or two sentences. Units stand in the name, as in Kafka.
    pub doc: &'static str,
}

/// Finds a key by its exact name.
pub fn key(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}

macro_rules! keys {
    ($($section:literal {
        $($(#[doc = $doc:literal])+ $field:ident: $type:ty = $name:literal, $default:literal, $rule:expr;)+
    })+) => {
        /// Every setting of a server, typed and with plain fields. Made by [`Config::default`],
        /// by [`Config::memory`] or by a [`Loader`](super::Loader); whoever changes fields by hand
        /// calls [`Config::check`] afterwards (`Server` does).
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct Config {
            $($(
                $(#[doc = $doc])+
                #[doc = concat!("\n\nKey `", $name, "`, default `", $default, "`.")]
                pub $field: $type,
            )+)+
        }

        /// Every key, in the order of the documentation.
        pub static KEYS: &[Key] = &[
            $($(Key {
                name: $name,
                section: $section,
                kind: <$type as Value>::KIND,
                default: $default,
                rule: $rule,
                doc: concat!($($doc),+),
            },)+)+
        ];

        impl Default for Config {
            fn default() -> Self {
                Self {
                    $($($field: <$type as Value>::read($default)
                        .expect("a test reads every default of the table"),)+)+
                }
            }
        }

        impl Config {
            /// Sets one field from text. `Err` says what was expected.
            pub(super) fn assign(&mut self, key: &Key, text: &str) -> Result<(), String> {
                match key.name {
                    $($($name => {
                        let value = <$type as Value>::read(text)?;
                        if !value.allowed(key.rule) {
                            return Err(String::new());
                        }
                        self.$field = value;
                    })+)+
                    _ => {}
                }
                Ok(())
            }

            /// The value of a key as text; `None` for a key that is not in the table.
            pub fn value(&self, name: &str) -> Option<String> {
                match name {
                    $($($name => Some(self.$field.show()),)+)+
                    _ => None,
                }
            }

            /// The first key whose value its rule forbids.
            pub(super) fn forbidden(&self) -> Option<&'static Key> {
                $($(if !self.$field.allowed($rule) {
                    return key($name);
                })+)+
                None
            }
        }
    };
}

const ANY: Rule = Rule::Any;
const LISTENER_FORM: Rule = Rule::Form("NAME://HOST:PORT, several with commas between them");
const MAX_I32: i64 = i32::MAX as i64;

const fn from(min: i64) -> Rule {
    Rule::Range(min, i64::MAX)
}

const fn int_from(min: i64) -> Rule {
    Rule::Range(min, MAX_I32)
}

keys! {
    "Where it listens" {
        /// Addresses to listen on. An empty host is every interface; port 0 is any free port. The
        /// default is loopback, because there is neither encryption nor authentication (Kafka's
        /// default is every interface).
        listeners: Vec<Endpoint> = "listeners", "PLAINTEXT://127.0.0.1:9092", LISTENER_FORM;
        /// What clients are told to dial, by listener name. Without an entry it is the listener's own
        /// address. Port 0 stands for the port that was bound.
        advertised_listeners: Vec<Endpoint> = "advertised.listeners", "", LISTENER_FORM;
        /// The protocol each listener speaks. Only PLAINTEXT is served; a name that is absent speaks it.
        listener_security_protocol_map: ProtocolMap = "listener.security.protocol.map", "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL", Rule::Form("NAME:PROTOCOL, several with commas between them");
        /// Names of listeners to leave out, so that a combined broker and controller's file works as
        /// it is.
        controller_listener_names: Vec<String> = "controller.listener.names", "", ANY;
        /// Address of HTTP (health, readiness, metrics, the page and its API), or off.
        http_listen: HttpListen = "convoke.http.listen", "127.0.0.1:9644", Rule::Form("HOST:PORT, or off");
        /// A file with the token that whoever changes something over HTTP has to show. Without one nothing can
        /// be changed over HTTP if convoke.http.listen is beyond loopback.
        http_token_file: Option<PathBuf> = "convoke.http.token.file", "", ANY;
        /// Names by which HTTP may be called, besides addresses and localhost: a browser that was led here by
        /// any other name is refused. *: every name.
        http_hosts: Vec<String> = "convoke.http.hosts", "", ANY;
        /// Groups whose lag is among the metrics: those that are the furthest behind. 0: none.
        metrics_lag_groups_max: i32 = "convoke.metrics.lag.groups.max", "1000", int_from(0);
        /// The id of this node in answers about the cluster. A data folder keeps the id it was made
        /// with.
        node_id: i32 = "node.id", "1", int_from(0);
        /// The rack that Metadata and DescribeCluster name for this node.
        broker_rack: Option<String> = "broker.rack", "", ANY;
    }

    "Where data lies" {
        /// The data folder: groups, offsets and topics. Made if absent; one process at a time.
        data_dir: PathBuf = "convoke.data.dir", "convoke-data", Rule::NotEmpty;
        /// disk keeps everything in the data folder; memory keeps nothing after the process ends.
        storage: Storage = "convoke.storage", "disk", Rule::OneOf(&["disk", "memory"]);
        /// When the group log is synced. always: before the reply, so nothing acknowledged is lost.
        /// interval: every so many milliseconds without replies waiting, so a power cut may lose the last
        /// interval. none: left to the operating system. Topic data has log.flush.interval.messages and
        /// log.flush.interval.ms.
        log_sync: LogSync = "convoke.log.sync", "always", Rule::Form("always, interval:MS (1 to 3600000) or none");
    }

    "Connections and requests" {
        /// Largest request frame. A larger one closes the connection.
        socket_request_max_bytes: i32 = "socket.request.max.bytes", "104857600", int_from(1024);
        /// Bytes of requests that may be in memory at once; further reading waits. -1: no limit
        /// (Kafka's default). Not below socket.request.max.bytes.
        queued_max_request_bytes: i64 = "queued.max.request.bytes", "268435456", Rule::Or(-1, 1024, i64::MAX);
        /// Bytes of replies above 64 KiB that may be in memory at once; further ones wait until others
        /// have been taken, and Fetch answers with less. One reply at a time may go beyond. -1: no limit.
        queued_max_reply_bytes: i64 = "convoke.queued.max.reply.bytes", "268435456", Rule::Or(-1, 65_536, i64::MAX);
        /// A connection without a request for this long is closed. -1: never. Waiting for a reply is
        /// not idling.
        connections_max_idle_ms: i64 = "connections.max.idle.ms", "600000", Rule::Or(-1, 1, i64::MAX);
        /// Connections in total; further ones are closed on arrival. Never more than the limit of open
        /// files (ulimit -n) leaves: a quarter of it, at most 512, is for topics, and 64 are kept back.
        max_connections: i32 = "max.connections", "2147483647", int_from(0);
        /// Connections from one address.
        max_connections_per_ip: i32 = "max.connections.per.ip", "2147483647", int_from(0);
        /// Exceptions to max.connections.per.ip.
        max_connections_per_ip_overrides: BTreeMap<String, i32> = "max.connections.per.ip.overrides", "", Rule::Form("ADDRESS:COUNT, several with commas between them");
        /// Connections the system may hold before they are accepted. Kafka's default is 50, which
        /// makes a crowd that reconnects at once wait.
        socket_listen_backlog_size: i32 = "socket.listen.backlog.size", "1024", Rule::Range(1, 65535);
        /// A request that has begun must have arrived whole after this long, or the connection is closed.
        request_receive_timeout_ms: i64 = "convoke.request.receive.timeout.ms", "60000", Rule::Range(1, 86_400_000);
        /// A reply must have been taken by the client after this long, or the connection is closed.
        response_send_timeout_ms: i64 = "convoke.response.send.timeout.ms", "60000", Rule::Range(1, 86_400_000);
        /// Largest answer to a Fetch. A single larger batch still goes out alone.
        fetch_max_bytes: i32 = "fetch.max.bytes", "57671680", int_from(1024);
        /// Most partitions one answer to DescribeTopicPartitions names.
        max_request_partition_size_limit: i32 = "max.request.partition.size.limit", "2000", int_from(1);
        /// After SIGTERM, how long open connections may take to receive their replies.
        shutdown_grace_ms: i64 = "convoke.shutdown.grace.ms", "10000", Rule::Range(0, 3_600_000);
    }

    "Memory of groups" {
        /// Bytes that all groups together may keep: members with their metadata and assignments,
        /// subscriptions, committed offsets with their notes, ids that were handed out; counted about. -1:
        /// no limit, as in Kafka. What would grow beyond is refused: joining with GROUP_MAX_SIZE_REACHED,
        /// a leader's SyncGroup with COORDINATOR_NOT_AVAILABLE, new offsets with
        /// INVALID_COMMIT_OFFSET_SIZE; whoever keeps to the size it has goes on.
        group_memory_max_bytes: i64 = "convoke.group.memory.max.bytes", "1073741824", Rule::Or(-1, 65_536, i64::MAX);
        /// Most groups; -1 for no limit, as in Kafka. What would make one more is refused: joining with
        /// GROUP_MAX_SIZE_REACHED, a commit with INVALID_COMMIT_OFFSET_SIZE.
        groups_max: i64 = "convoke.groups.max", "-1", Rule::Or(-1, 0, i64::MAX);
        /// Most groups whose ids begin with a prefix; refused likewise.
        groups_prefix_max: PrefixCaps = "convoke.groups.prefix.max", "", Rule::Form("PREFIX:COUNT, several with commas between them");
    }

    "Journal" {
        /// Whether the server keeps a journal of every group: why it rebalanced, who commits, what changed offsets.
        journal_enable: bool = "convoke.journal.enable", "true", ANY;
        /// The most rebalances of one group that are kept; 0: only the one that runs.
        journal_rebalances_max: i32 = "convoke.journal.rebalances.max", "50", Rule::Range(0, 10_000);
        /// The most partition moves of one rebalance that are kept one by one; they are counted in any case.
        journal_moves_max: i32 = "convoke.journal.moves.max", "200", Rule::Range(0, 100_000);
        /// The most changes of offsets by operators, and commits that went back, that are kept of one group.
        journal_audit_max: i32 = "convoke.journal.audit.max", "100", Rule::Range(0, 10_000);
        /// The most that the journals of all groups may take of the memory, about, in equal parts for each of
        /// offsets.topic.num.partitions. The oldest entries go first.
        journal_memory_max_bytes: i64 = "convoke.journal.memory.max.bytes", "67108864", Rule::Range(0, i64::MAX);
        /// So many rebalances of one group within the window are reported as a storm.
        journal_storm_rebalances: i32 = "convoke.journal.storm.rebalances", "10", Rule::Range(2, 1_000);
        /// The window of storms, and of members that come and go.
        journal_storm_window_ms: i64 = "convoke.journal.storm.window.ms", "600000", Rule::Range(1_000, 86_400_000);
        /// Two clients without membership that commit to one partition within this time are reported as a conflict.
        journal_conflict_window_ms: i64 = "convoke.journal.conflict.window.ms", "300000", Rule::Range(1, 86_400_000);
        /// Whether what is finished is also written to journal.jsonl in the data folder, one JSON object a line, and
        /// read from there at start.
        journal_durable: bool = "convoke.journal.durable", "false", ANY;
        /// Size at which that file becomes journal.1.jsonl, in place of the one before.
        journal_file_max_bytes: i64 = "convoke.journal.file.max.bytes", "16777216", Rule::Range(65_536, i64::MAX);
    }

    "Classic groups" {
        /// First rebalance of an empty group waits this long for more members.
        group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms", "3000", int_from(0);
        /// A rebalance waits this long for a member that was told its id and has not joined with it, but no
        /// longer than the session timeout it asked for. The id stays good for that.
        group_member_id_wait_ms: i32 = "convoke.group.member.id.wait.ms", "5000", int_from(0);
        /// Shortest session timeout a member may ask for.
        group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms", "6000", int_from(1);
        /// Longest session timeout a member may ask for.
        group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms", "1800000", int_from(1);
        /// Most members of one group.
        group_max_size: i32 = "group.max.size", "2147483647", int_from(1);
    }

    "Consumer groups (KIP-848)" {
        /// Session timeout of members, unless the group sets consumer.session.timeout.ms.
        group_consumer_session_timeout_ms: i32 = "group.consumer.session.timeout.ms", "45000", int_from(1);
        /// Least session timeout a group may set.
        group_consumer_min_session_timeout_ms: i32 = "group.consumer.min.session.timeout.ms", "45000", int_from(1);
        /// Greatest session timeout a group may set.
        group_consumer_max_session_timeout_ms: i32 = "group.consumer.max.session.timeout.ms", "60000", int_from(1);
        /// Heartbeat interval of members, unless the group sets consumer.heartbeat.interval.ms.
        group_consumer_heartbeat_interval_ms: i32 = "group.consumer.heartbeat.interval.ms", "5000", int_from(1);
        /// Least heartbeat interval a group may set.
        group_consumer_min_heartbeat_interval_ms: i32 = "group.consumer.min.heartbeat.interval.ms", "5000", int_from(1);
        /// Greatest heartbeat interval a group may set.
        group_consumer_max_heartbeat_interval_ms: i32 = "group.consumer.max.heartbeat.interval.ms", "15000", int_from(1);
        /// Least time from one target assignment to the next, unless the group sets
        /// consumer.assignment.interval.ms.
        group_consumer_assignment_interval_ms: i32 = "group.consumer.assignment.interval.ms", "1000", int_from(0);
        /// Least assignment interval a group may set.
        group_consumer_min_assignment_interval_ms: i32 = "group.consumer.min.assignment.interval.ms", "0", int_from(0);
        /// Greatest assignment interval a group may set.
        group_consumer_max_assignment_interval_ms: i32 = "group.consumer.max.assignment.interval.ms", "15000", int_from(0);
        /// Most members of one group.
        group_consumer_max_size: i32 = "group.consumer.max.size", "2147483647", int_from(1);
        /// Assignors on the server; the first is the default.
        group_consumer_assignors: Vec<String> = "group.consumer.assignors", "uniform,range", Rule::SomeOf(&["uniform", "range"]);
        /// Which way a group with members may change between the classic and the consumer protocol.
        group_consumer_migration_policy: MigrationPolicy = "group.consumer.migration.policy", "bidirectional", Rule::OneOf(&["disabled", "upgrade", "downgrade", "bidirectional"]);
        /// Accepted and without effect: subscriptions by regular expression follow every change of
        /// topics within a second.
        group_consumer_regex_refresh_interval_ms: i32 = "group.consumer.regex.refresh.interval.ms", "600000", int_from(10_000);
        /// Asks members to come sooner than the group's heartbeat interval while a change concerns
        /// them, and for some twenty seconds after each, so that rebalances do not wait for them.
        consumer_heartbeat_hint_enable: bool = "convoke.consumer.heartbeat.hint.enable", "true", ANY;
    }

    "Offsets" {
        /// Largest metadata of one committed offset, in UTF-16 units.
        offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes", "4096", int_from(0);
        /// How long committed offsets stay after the group is empty or has given up the topic (KIP-211).
        offsets_retention_minutes: i32 = "offsets.retention.minutes", "10080", int_from(1);
        /// How often expired offsets are looked for.
        offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms", "600000", from(1);
        /// A group request whose records are not durable after this long is answered with an error.
        offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms", "5000", int_from(1);
        /// Coordinators in the process, as Kafka's partitions of __consumer_offsets. A data folder keeps
        /// the number it was made with.
        offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions", "50", Rule::Range(1, 10_000);
        /// Size of one file of the group log.
        offsets_topic_segment_bytes: i32 = "offsets.topic.segment.bytes", "104857600", int_from(65_536);
    }

    "Topics" {
        /// Partitions of a topic that is made without a number.
        num_partitions: i32 = "num.partitions", "1", Rule::Range(1, 10_000);
        /// Whether Metadata for a topic that does not exist makes it.
        auto_create_topics_enable: bool = "auto.create.topics.enable", "true", ANY;
        /// Whether topics may be deleted.
        delete_topic_enable: bool = "delete.topic.enable", "true", ANY;
        /// Largest record batch (topics: max.message.bytes).
        message_max_bytes: i32 = "message.max.bytes", "1048588", int_from(0);
        /// How batches are stored (topics: compression.type). Batches stay as the producer made them.
        compression_type: String = "compression.type", "producer", Rule::OneOf(&["producer"]);
        /// Which time records carry (topics: message.timestamp.type).
        log_message_timestamp_type: TimestampType = "log.message.timestamp.type", "CreateTime", Rule::OneOf(&["CreateTime", "LogAppendTime"]);
        /// How much older than the server's time a record may be (topics: message.timestamp.before.max.ms).
        log_message_timestamp_before_max_ms: i64 = "log.message.timestamp.before.max.ms", "9223372036854775807", from(0);
        /// How much newer than the server's time a record may be (topics: message.timestamp.after.max.ms).
        log_message_timestamp_after_max_ms: i64 = "log.message.timestamp.after.max.ms", "3600000", from(0);
        /// What happens to old records (topics: cleanup.policy). compact is accepted and keeps
        /// everything.
        log_cleanup_policy: Vec<String> = "log.cleanup.policy", "delete", Rule::SomeOf(&["delete", "compact"]);
        /// How long records are kept (topics: retention.ms). -1: for good. Not set:
        /// log.retention.minutes.
        log_retention_ms: Option<i64> = "log.retention.ms", "", Rule::Or(-1, 1, i64::MAX);
        /// The same in minutes. Not set: log.retention.hours.
        log_retention_minutes: Option<i32> = "log.retention.minutes", "", Rule::Or(-1, 1, MAX_I32);
        /// The same in hours.
        log_retention_hours: i32 = "log.retention.hours", "168", Rule::Or(-1, 1, MAX_I32);
        /// How many bytes of each partition are kept (topics: retention.bytes). -1: all.
        log_retention_bytes: i64 = "log.retention.bytes", "-1", from(-1);
        /// How often old segments are looked for.
        log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms", "300000", from(1);
        /// Size of one file of a partition (topics: segment.bytes).
        log_segment_bytes: i32 = "log.segment.bytes", "1073741824", int_from(1_048_576);
        /// A file is closed after this long (topics: segment.ms). Not set: log.roll.hours.
        log_roll_ms: Option<i64> = "log.roll.ms", "", from(1);
        /// The same in hours.
        log_roll_hours: i32 = "log.roll.hours", "168", int_from(1);
        /// A partition's file is synced after this many records (topics: flush.messages).
        log_flush_interval_messages: i64 = "log.flush.interval.messages", "9223372036854775807", from(1);
        /// A partition's file is synced when its oldest unsynced record is this old (topics: flush.ms). Not
        /// set: never by time.
        log_flush_interval_ms: Option<i64> = "log.flush.interval.ms", "", from(0);
        /// How long an idle producer's sequence numbers are remembered.
        producer_id_expiration_ms: i32 = "producer.id.expiration.ms", "86400000", int_from(1);
    }
}

impl Config {
    /// How long records are kept, in milliseconds: the finest unit that is set. −1: for good.
    pub fn retention_ms(&self) -> i64 {
        let scaled = |value: i32, unit: i64| {
            if value < 0 {
                -1
            } else {
                i64::from(value) * unit
            }
        };
        self.log_retention_ms
            .unwrap_or_else(|| match self.log_retention_minutes {
                Some(minutes) => scaled(minutes, 60_000),
                None => scaled(self.log_retention_hours, 3_600_000),
            })
    }

    /// After how long a segment is closed, in milliseconds.
    pub fn roll_ms(&self) -> i64 {
        self.log_roll_ms
            .unwrap_or_else(|| i64::from(self.log_roll_hours) * 3_600_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_keeps_its_rule_and_reads_back() {
        let mut config = Config::default();
        assert!(config.forbidden().is_none());
        for key in KEYS {
            let shown = config.value(key.name).expect("the table holds it");
            assert_eq!(shown, key.default, "{}", key.name);
            assert_eq!(config.assign(key, &shown), Ok(()), "{}", key.name);
        }
        assert_eq!(config, Config::default());
    }

    #[test]
    fn names_are_unique_and_docs_are_sentences() {
        for (at, key) in KEYS.iter().enumerate() {
            assert!(
                KEYS[..at].iter().all(|other| other.name != key.name),
                "{}",
                key.name
            );
            assert!(key.doc.trim().ends_with('.'), "{}", key.name);
        }
    }

    #[test]
    fn the_finest_unit_that_is_set_holds() {
        let mut config = Config::default();
        assert_eq!(config.retention_ms(), 168 * 3_600_000);
        config.log_retention_minutes = Some(-1);
        assert_eq!(config.retention_ms(), -1);
        config.log_retention_ms = Some(5);
        assert_eq!(config.retention_ms(), 5);
        assert_eq!(config.roll_ms(), 168 * 3_600_000);
    }
}
