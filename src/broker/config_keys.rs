//! The configs a topic has: names, types, defaults, bounds, and the typed values the partitions obey.
//! How they are altered and described is `configs`.

use std::collections::BTreeMap;

/// The type of a config's value, as DescribeConfigs tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigKind {
    /// `true` or `false`.
    Boolean,
    /// Text.
    String,
    /// 32 bits.
    Int,
    /// 16 bits.
    Short,
    /// 64 bits.
    Long,
    /// A fraction.
    Double,
    /// Texts with commas between.
    List,
    /// A Java class name.
    Class,
    /// Never shown.
    Password,
}

impl ConfigKind {
    /// The number on the wire.
    pub(super) fn code(self) -> i8 {
        match self {
            Self::Boolean => 1,
            Self::String => 2,
            Self::Int => 3,
            Self::Short => 4,
            Self::Long => 5,
            Self::Double => 6,
            Self::List => 7,
            Self::Class => 8,
            Self::Password => 9,
        }
    }

    /// Kafka's name of the type, used in its error messages.
    fn name(self) -> &'static str {
        match self {
            Self::Boolean => "BOOLEAN",
            Self::String => "STRING",
            Self::Int => "INT",
            Self::Short => "SHORT",
            Self::Long => "LONG",
            Self::Double => "DOUBLE",
            Self::List => "LIST",
            Self::Class => "CLASS",
            Self::Password => "PASSWORD",
        }
    }

    /// Reads an integer of this type.
    ///
    /// # Errors
    /// Kafka's sentence about the value.
    pub(super) fn integer(self, name: &str, value: &str) -> Result<i64, String> {
        let number: Option<i64> = value.trim().parse().ok().filter(|number: &i64| match self {
            Self::Int => i32::try_from(*number).is_ok(),
            Self::Short => i16::try_from(*number).is_ok(),
            _ => true,
        });
        number.ok_or_else(|| {
            invalid(
                name,
                value,
                &format!("Not a number of type {}", self.name()),
            )
        })
    }
}

/// What a value must be beyond its type.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Check {
    Any,
    AtLeast(i64),
    Between(i64, i64),
    Fraction,
    OneOf(&'static [&'static str]),
    Replicas,
    /// Only this value works here; the sentence says why.
    Only(&'static str, &'static str),
}

/// One config of a topic.
#[derive(Clone, Copy, Debug)]
pub struct TopicConfigKey {
    /// The topic's key.
    pub name: &'static str,
    /// The type.
    pub kind: ConfigKind,
    /// Kafka's default.
    pub default: &'static str,
    /// The broker's setting behind the default, if there is one.
    pub broker_key: Option<&'static str>,
    /// Whether setting it changes what the broker does. The others are checked, kept and shown.
    pub honoured: bool,
    /// What it does.
    pub doc: &'static str,
    check: Check,
}

const TIERED: &str = "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.";
const DLQ: &str = "Dead-letter queues of share groups are not offered by this broker.";
const MAX: &str = "9223372036854775807";

macro_rules! keys {
    ($($name:literal $kind:ident $default:expr, $broker:expr, $check:expr, $honoured:literal, $doc:literal;)*) => {
        &[$(TopicConfigKey {
            name: $name, kind: ConfigKind::$kind, default: $default, broker_key: $broker,
            honoured: $honoured, doc: $doc, check: $check,
        }),*]
    };
}

use Check::{Any, AtLeast, Between, Fraction, OneOf, Only, Replicas};

/// Every topic config of Kafka 4.4, in order of name.
const KEYS: &[TopicConfigKey] = keys! {
    "cleanup.policy" List "delete", Some("log.cleanup.policy"), OneOf(&["compact", "delete"]), true,
        "Which old records go: `delete` drops segments by time and size; `compact` is kept and shown, requires keys, and keeps everything.";
    "compression.gzip.level" Int "-1", Some("compression.gzip.level"), Between(-1, 9), false,
        "Batches are stored as the producer compressed them; kept and shown only.";
    "compression.lz4.level" Int "9", Some("compression.lz4.level"), Between(1, 17), false,
        "Batches are stored as the producer compressed them; kept and shown only.";
    "compression.type" String "producer", Some("compression.type"),
        OneOf(&["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]), false,
        "Batches are stored as the producer compressed them; kept and shown only.";
    "compression.zstd.level" Int "3", Some("compression.zstd.level"), Between(-131_072, 22), false,
        "Batches are stored as the producer compressed them; kept and shown only.";
    "delete.retention.ms" Long "86400000", Some("log.cleaner.delete.retention.ms"), AtLeast(0), false,
        "For compaction, which keeps everything here; kept and shown only.";
    "errors.deadletterqueue.group.enable" Boolean "false", None, Only("false", DLQ), false,
        "Dead-letter queues are not offered.";
    "file.delete.delay.ms" Long "60000", Some("log.segment.delete.delay.ms"), AtLeast(0), false,
        "Files are removed at once; kept and shown only.";
    "flush.messages" Long MAX, Some("log.flush.interval.messages"), AtLeast(1), true,
        "Sync the partition's file whenever this many records were appended since the last sync.";
    "flush.ms" Long MAX, None, AtLeast(0), true,
        "Sync the partition's file when its oldest unsynced record is this old, in milliseconds.";
    "follower.replication.throttled.replicas" List "", None, Replicas, false,
        "There are no followers; kept and shown only.";
    "index.interval.bytes" Int "4096", Some("log.index.interval.bytes"), AtLeast(0), false,
        "The index has its own interval; kept and shown only.";
    "leader.replication.throttled.replicas" List "", None, Replicas, false,
        "There are no followers; kept and shown only.";
    "local.retention.bytes" Long "-2", Some("log.local.retention.bytes"), AtLeast(-2), false,
        "There is no tiered storage; kept and shown only.";
    "local.retention.ms" Long "-2", Some("log.local.retention.ms"), AtLeast(-2), false,
        "There is no tiered storage; kept and shown only.";
    "max.compaction.lag.ms" Long MAX, Some("log.cleaner.max.compaction.lag.ms"), AtLeast(1), false,
        "For compaction, which keeps everything here; kept and shown only.";
    "max.decompressed.message.bytes" Int "2147483639", Some("max.decompressed.message.bytes"), AtLeast(0), false,
        "Records are not decompressed when produced; kept and shown only.";
    "max.message.bytes" Int "1048588", Some("message.max.bytes"), AtLeast(0), true,
        "The largest record batch accepted, as the producer compressed it.";
    "message.timestamp.after.max.ms" Long "3600000", Some("log.message.timestamp.after.max.ms"), AtLeast(0), true,
        "How far a record's CreateTime may lie in the future.";
    "message.timestamp.before.max.ms" Long MAX, Some("log.message.timestamp.before.max.ms"), AtLeast(0), true,
        "How far a record's CreateTime may lie in the past.";
    "message.timestamp.type" String "CreateTime", Some("log.message.timestamp.type"),
        OneOf(&["CreateTime", "LogAppendTime"]), true,
        "Whose clock stamps records: the producer's or the broker's.";
    "min.cleanable.dirty.ratio" Double "0.5", Some("log.cleaner.min.cleanable.ratio"), Fraction, false,
        "For compaction, which keeps everything here; kept and shown only.";
    "min.compaction.lag.ms" Long "0", Some("log.cleaner.min.compaction.lag.ms"), AtLeast(0), false,
        "For compaction, which keeps everything here; kept and shown only.";
    "min.insync.replicas" Int "1", Some("min.insync.replicas"), AtLeast(1), false,
        "There is one replica, and no more can be asked for; kept and shown only.";
    "preallocate" Boolean "false", Some("log.preallocate"), Any, false,
        "Files grow as needed; kept and shown only.";
    "remote.copy.lag.bytes" Long "-1", Some("log.remote.copy.lag.bytes"), AtLeast(-1), false,
        "There is no tiered storage; kept and shown only.";
    "remote.copy.lag.ms" Long "0", Some("log.remote.copy.lag.ms"), AtLeast(-2), false,
        "There is no tiered storage; kept and shown only.";
    "remote.log.copy.disable" Boolean "false", None, Any, false,
        "There is no tiered storage; kept and shown only.";
    "remote.log.delete.on.disable" Boolean "false", None, Any, false,
        "There is no tiered storage; kept and shown only.";
    "remote.storage.enable" Boolean "false", None, Only("false", TIERED), false,
        "There is no tiered storage.";
    "retention.bytes" Long "-1", Some("log.retention.bytes"), AtLeast(-1), true,
        "How many bytes a partition keeps before its oldest segments go; -1 is no limit.";
    "retention.ms" Long "604800000", Some("log.retention.ms"), AtLeast(-1), true,
        "How long a segment is kept after its newest record, in milliseconds; -1 is for ever.";
    "segment.bytes" Int "1073741824", Some("log.segment.bytes"), AtLeast(1_048_576), true,
        "The size at which a segment is closed and a new one begun; retention works by whole segments.";
    "segment.index.bytes" Int "10485760", Some("log.index.size.max.bytes"), AtLeast(4), false,
        "The index grows as needed; kept and shown only.";
    "segment.jitter.ms" Long "0", Some("log.roll.jitter.ms"), AtLeast(0), false,
        "Segments are closed without jitter; kept and shown only.";
    "segment.ms" Long "604800000", Some("log.roll.ms"), AtLeast(1), true,
        "The age at which a segment is closed although it is not full, in milliseconds.";
    "unclean.leader.election.enable" Boolean "false", Some("unclean.leader.election.enable"), Any, false,
        "There is one replica, always in sync; kept and shown only.";
};

/// Kafka's internal override of `segment.bytes` without its lower bound; settable, never listed.
pub(super) const SEGMENT_BYTES_INTERNAL: TopicConfigKey = TopicConfigKey {
    name: "internal.segment.bytes",
    kind: ConfigKind::Int,
    default: "",
    broker_key: None,
    honoured: true,
    doc: "As segment.bytes, without its lower bound.",
    check: AtLeast(1),
};

/// Every config a topic has, in order of name.
pub fn topic_config_keys() -> &'static [TopicConfigKey] {
    KEYS
}

/// The key of that name, internal ones included.
pub(super) fn find(name: &str) -> Option<&'static TopicConfigKey> {
    if name == SEGMENT_BYTES_INTERNAL.name {
        return Some(&SEGMENT_BYTES_INTERNAL);
    }
    KEYS.binary_search_by(|key| key.name.cmp(name))
        .ok()
        .map(|at| &KEYS[at])
}

/// Kafka's sentence about a value it cannot take.
pub(super) fn invalid(name: &str, value: &str, why: &str) -> String {
    format!("Invalid value {value} for configuration {name}: {why}")
}

/// The items of a list value: trimmed, empty ones dropped.
pub(super) fn items(value: &str) -> impl Iterator<Item = &str> {
    value
        .split(',')
        .map(str::trim)
        .filter(|item| !item.is_empty())
}

impl TopicConfigKey {
    /// Checks a value.
    ///
    /// # Errors
    /// Kafka's sentence about the value.
    pub fn check(&self, value: &str) -> Result<(), String> {
        let name = self.name;
        match self.kind {
            ConfigKind::Boolean
                if !matches!(value.trim().to_ascii_lowercase().as_str(), "true" | "false") =>
            {
                return Err(invalid(
                    name,
                    value,
                    "Expected value to be either true or false",
                ));
            }
            ConfigKind::Int | ConfigKind::Long | ConfigKind::Short => {
                return self.check_integer(value);
            }
            ConfigKind::Double => return self.check_fraction(value),
            _ => {}
        }
        match self.check {
            OneOf(allowed) => {
                let list = self.kind == ConfigKind::List;
                let known = |item: &str| allowed.contains(&item);
                let wrong = if list {
                    items(value).find(|item| !known(item))
                } else {
                    Some(value).filter(|v| !known(v))
                };
                match wrong {
                    Some(wrong) => Err(invalid(
                        name,
                        wrong,
                        &format!("String must be one of: {}", allowed.join(", ")),
                    )),
                    None => Ok(()),
                }
            }
            Replicas if value.trim() != "*" && !items(value).all(is_replica) => Err(invalid(
                name,
                &format!("[{value}]"),
                &format!(
                    "{name} must be the literal '*' or a list of replicas in the following format: \
                     [partitionId]:[brokerId],[partitionId]:[brokerId],..."
                ),
            )),
            Only(only, why) if !value.trim().eq_ignore_ascii_case(only) => Err(why.to_owned()),
            _ => Ok(()),
        }
    }

    fn check_integer(&self, value: &str) -> Result<(), String> {
        let number = self.kind.integer(self.name, value)?;
        let (min, max) = match self.check {
            AtLeast(min) => (min, i64::MAX),
            Between(min, max) => (min, max),
            _ => (i64::MIN, i64::MAX),
        };
        if number < min {
            return Err(invalid(
                self.name,
                value,
                &format!("Value must be at least {min}"),
            ));
        }
        if number > max {
            return Err(invalid(
                self.name,
                value,
                &format!("Value must be no more than {max}"),
            ));
        }
        Ok(())
    }

    fn check_fraction(&self, value: &str) -> Result<(), String> {
        match value.trim().parse::<f64>() {
            Err(_) => Err(invalid(self.name, value, "Not a number of type DOUBLE")),
            Ok(number) if number > 1.0 => {
                Err(invalid(self.name, value, "Value must be no more than 1"))
            }
            Ok(number) if number < 0.0 => {
                Err(invalid(self.name, value, "Value must be at least 0"))
            }
            Ok(_) => Ok(()),
        }
    }
}

fn is_replica(item: &str) -> bool {
    item.split_once(':').is_some_and(|(partition, broker)| {
        partition.parse::<u32>().is_ok() && broker.parse::<u32>().is_ok()
    })
}

/// What a topic's partitions obey.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicConfig {
    pub(super) deletes: bool,
    pub(super) compacts: bool,
    pub(super) retention_ms: i64,
    pub(super) retention_bytes: i64,
    pub(super) segment_bytes: u64,
    pub(super) segment_ms: i64,
    pub(super) message_bytes_max: usize,
    pub(super) append_time: bool,
    pub(super) before_max_ms: i64,
    pub(super) after_max_ms: i64,
    pub(super) flush_messages: u64,
    pub(super) flush_ms: i64,
}

impl TopicConfig {
    /// The values in force: overrides, else the broker's defaults, else Kafka's. All were checked when they were set.
    pub(super) fn new(
        overrides: &BTreeMap<String, String>,
        defaults: &BTreeMap<String, String>,
    ) -> Self {
        let text = |name: &str| effective(name, overrides, defaults);
        let long = |name: &str| text(name).trim().parse::<i64>().unwrap_or(i64::MAX);
        let policies = text("cleanup.policy");
        let internal = overrides
            .get(SEGMENT_BYTES_INTERNAL.name)
            .or_else(|| defaults.get(SEGMENT_BYTES_INTERNAL.name));
        let segment_bytes = internal.and_then(|value| value.trim().parse().ok());
        Self {
            deletes: items(policies).any(|policy| policy == "delete"),
            compacts: items(policies).any(|policy| policy == "compact"),
            retention_ms: long("retention.ms"),
            retention_bytes: long("retention.bytes"),
            segment_bytes: segment_bytes.unwrap_or_else(|| long("segment.bytes").cast_unsigned()),
            segment_ms: long("segment.ms"),
            message_bytes_max: usize::try_from(long("max.message.bytes")).unwrap_or(0),
            append_time: text("message.timestamp.type") == "LogAppendTime",
            before_max_ms: long("message.timestamp.before.max.ms"),
            after_max_ms: long("message.timestamp.after.max.ms"),
            flush_messages: long("flush.messages").cast_unsigned(),
            flush_ms: long("flush.ms"),
        }
    }
}

/// The value of one key: override, else the broker's default, else Kafka's.
pub(super) fn effective<'a>(
    name: &str,
    overrides: &'a BTreeMap<String, String>,
    defaults: &'a BTreeMap<String, String>,
) -> &'a str {
    let value = overrides
        .get(name)
        .or_else(|| defaults.get(name))
        .map(String::as_str);
    value.unwrap_or_else(|| find(name).map_or("", |key| key.default))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_in_order_and_their_defaults_pass_their_own_checks() {
        assert!(KEYS.is_sorted_by(|a, b| a.name < b.name));
        for key in KEYS {
            assert_eq!(key.check(key.default), Ok(()), "{}", key.name);
        }
    }

    #[test]
    fn refusals_read_as_kafkas_do() {
        let check = |name: &str, value: &str| find(name).expect("known").check(value).unwrap_err();
        assert_eq!(
            check("retention.ms", "abc"),
            "Invalid value abc for configuration retention.ms: Not a number of type LONG"
        );
        assert_eq!(
            check("retention.ms", "-2"),
            "Invalid value -2 for configuration retention.ms: Value must be at least -1"
        );
        assert_eq!(
            check("cleanup.policy", "delete,foo"),
            "Invalid value foo for configuration cleanup.policy: String must be one of: compact, delete"
        );
        assert_eq!(
            check("preallocate", "foo"),
            "Invalid value foo for configuration preallocate: Expected value to be either true or false"
        );
        assert_eq!(check("remote.storage.enable", "true"), TIERED);
    }

    #[test]
    fn an_override_beats_the_brokers_default_which_beats_kafkas() {
        let defaults = BTreeMap::from([("retention.ms".to_owned(), "5".to_owned())]);
        let none = BTreeMap::new();
        let own = BTreeMap::from([("retention.ms".to_owned(), "7".to_owned())]);
        assert_eq!(TopicConfig::new(&none, &none).retention_ms, 604_800_000);
        assert_eq!(TopicConfig::new(&none, &defaults).retention_ms, 5);
        assert_eq!(TopicConfig::new(&own, &defaults).retention_ms, 7);
    }
}
