//! From the settings to what each room is told of them.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use super::descriptors::Descriptors;
use super::gate::{Limits, Patience};
use crate::broker::{
    BrokerConfig, BrokerOptions, Clock, ConfigKind, GroupConfigKey, Storage, topic_config_keys,
};
use crate::config::{Config, KEYS, Kind, MigrationPolicy};
use crate::group::assign::{Assignor, Range, Uniform};
use crate::group::operator::Setting;
use crate::group::{
    Bounded, Caps, GroupCaps, GroupConfig, GroupOverrides, JournalConfig, Migration,
};
use crate::log::Identity;

/// The GROUP config of a paused group.
pub(super) const PAUSED: &str = "convoke.group.paused";

fn size(value: i32) -> usize {
    usize::try_from(value).unwrap_or(0)
}

/// What coordinators are told: all the same, by clones, so that they share the count of their memory.
pub(super) fn group(config: &Config) -> GroupConfig {
    GroupConfig {
        session_timeout_ms: config.group_min_session_timeout_ms
            ..=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms: i64::from(config.group_initial_rebalance_delay_ms),
        member_id_wait_ms: i64::from(config.group_member_id_wait_ms),
        max_size: size(config.group_max_size),
        offset_metadata_max_units: size(config.offset_metadata_max_bytes),
        offsets_retention_ms: i64::from(config.offsets_retention_minutes) * 60_000,
        offsets_retention_check_interval_ms: config.offsets_retention_check_interval_ms,
        consumer_session_timeout_ms: Bounded {
            default: config.group_consumer_session_timeout_ms,
            bounds: config.group_consumer_min_session_timeout_ms
                ..=config.group_consumer_max_session_timeout_ms,
        },
        consumer_heartbeat_interval_ms: Bounded {
            default: config.group_consumer_heartbeat_interval_ms,
            bounds: config.group_consumer_min_heartbeat_interval_ms
                ..=config.group_consumer_max_heartbeat_interval_ms,
        },
        consumer_assignment_interval_ms: Bounded {
            default: config.group_consumer_assignment_interval_ms,
            bounds: config.group_consumer_min_assignment_interval_ms
                ..=config.group_consumer_max_assignment_interval_ms,
        },
        consumer_max_size: size(config.group_consumer_max_size),
        assignors: assignors(&config.group_consumer_assignors),
        migration: migration(config.group_consumer_migration_policy),
        heartbeat_hint: config.consumer_heartbeat_hint_enable,
        // Negative: no limit.
        caps: Arc::new(GroupCaps::new(caps(config))),
        memory_bytes_max: usize::try_from(config.group_memory_max_bytes).unwrap_or(usize::MAX),
        journal: journal(config),
        memory: Arc::default(),
    }
}

/// How many groups there may be.
fn caps(config: &Config) -> Caps {
    let prefixes = config.groups_prefix_max.0.iter();
    Caps {
        groups_max: usize::try_from(config.groups_max).ok(),
        prefixes: prefixes
            .map(|(prefix, max)| (Arc::from(prefix.as_str()), size(*max)))
            .collect(),
    }
}

/// How one coordinator's journal is kept.
fn journal(config: &Config) -> JournalConfig {
    let shards = usize::try_from(config.offsets_topic_num_partitions).unwrap_or(1);
    let bytes_max = usize::try_from(config.journal_memory_max_bytes).unwrap_or(0);
    JournalConfig {
        enable: config.journal_enable,
        rebalances_max: size(config.journal_rebalances_max),
        moves_max: size(config.journal_moves_max),
        audit_max: size(config.journal_audit_max),
        bytes_max: bytes_max / shards.max(1),
        storm_rebalances: size(config.journal_storm_rebalances),
        storm_window_ms: config.journal_storm_window_ms,
        conflict_window_ms: config.journal_conflict_window_ms,
        tell: true,
    }
}

/// The server assignors by their names, which the settings have checked.
fn assignors(names: &[String]) -> Vec<Arc<dyn Assignor>> {
    let all: [Arc<dyn Assignor>; 2] = [Arc::new(Uniform), Arc::new(Range)];
    let named = names
        .iter()
        .filter_map(|name| all.iter().find(|a| a.name() == name));
    named.cloned().collect()
}

fn migration(policy: MigrationPolicy) -> Migration {
    let both = policy == MigrationPolicy::Bidirectional;
    Migration {
        upgrade: both || policy == MigrationPolicy::Upgrade,
        downgrade: both || policy == MigrationPolicy::Downgrade,
    }
}

/// How long connections may take.
pub(super) fn patience(config: &Config) -> Patience {
    let ms = |value: i64| u64::try_from(value).unwrap_or(0);
    Patience {
        // Negative: for ever.
        idle_ms: u64::try_from(config.connections_max_idle_ms).ok(),
        receive_ms: ms(config.request_receive_timeout_ms),
        send_ms: ms(config.response_send_timeout_ms),
    }
}

/// How many connections there may be.
pub(super) fn limits(config: &Config, descriptors: &Descriptors) -> Limits {
    let overrides = config.max_connections_per_ip_overrides.iter();
    Limits {
        total: size(config.max_connections).min(descriptors.connections),
        per_ip: size(config.max_connections_per_ip),
        per_ip_overrides: overrides
            .filter_map(|(host, limit)| Some((host.parse::<IpAddr>().ok()?, size(*limit))))
            .collect(),
    }
}

/// What the data plane is told. `topics_dir`: where its files go; `None` for memory.
pub(super) fn broker(
    config: &Config,
    identity: &Identity,
    topics_dir: Option<PathBuf>,
    clock: Clock,
) -> BrokerOptions {
    let retention_check_ms = config.log_retention_check_interval_ms;
    BrokerOptions {
        storage: topics_dir.map_or(Storage::Memory, Storage::Dir),
        node_id: identity.node_id,
        cluster_id: identity.cluster_id.clone(),
        rack: config.broker_rack.clone(),
        offsets_topic_partitions: config.offsets_topic_num_partitions,
        num_partitions: config.num_partitions,
        auto_create_topics: config.auto_create_topics_enable,
        topic_defaults: topic_defaults(config),
        broker_configs: broker_configs(config),
        group_configs: group_configs(config),
        retention_check_interval_ms: u64::try_from(retention_check_ms).unwrap_or(300_000),
        producer_id_expiration_ms: i64::from(config.producer_id_expiration_ms),
        fetch_bytes_max: size(config.fetch_max_bytes),
        delete_topics: config.delete_topic_enable,
        described_partitions_max: config.max_request_partition_size_limit,
        clock,
        ..BrokerOptions::default()
    }
}

/// Defaults of topics that differ from Kafka's, by the topic's key.
fn topic_defaults(config: &Config) -> BTreeMap<String, String> {
    let mut defaults = BTreeMap::new();
    for key in topic_config_keys() {
        let value = match key.name {
            // Kafka lets three keys of different units stand behind these.
            "retention.ms" => Some(config.retention_ms().to_string()),
            "segment.ms" => Some(config.roll_ms().to_string()),
            "flush.ms" => config.log_flush_interval_ms.map(|ms| ms.to_string()),
            _ => key.broker_key.and_then(|name| config.value(name)),
        };
        if let Some(value) = value.filter(|value| value != key.default) {
            defaults.insert(key.name.to_owned(), value);
        }
    }
    defaults
}

fn kind(kind: Kind) -> ConfigKind {
    match kind {
        Kind::Boolean => ConfigKind::Boolean,
        Kind::String => ConfigKind::String,
        Kind::Int => ConfigKind::Int,
        Kind::Long => ConfigKind::Long,
        Kind::List => ConfigKind::List,
    }
}

fn broker_configs(config: &Config) -> Vec<BrokerConfig> {
    let shown = KEYS.iter().map(|key| {
        let value = config.value(key.name).unwrap_or_default();
        BrokerConfig {
            name: key.name.to_owned(),
            is_default: value == key.default,
            // Empty stands for "not set".
            value: Some(value).filter(|value| !value.is_empty()),
            kind: kind(key.kind),
            sensitive: false,
            doc: key.about().to_owned(),
        }
    });
    shown.collect()
}

/// What one group sets for itself, which the data plane has checked.
pub(super) fn overrides(configs: &BTreeMap<String, String>) -> GroupOverrides {
    let ms = |name: &str| configs.get(name)?.trim().parse().ok();
    let own = |setting: Setting| configs.get(setting.key())?.trim().parse().ok();
    let paused = configs.get(PAUSED).map(|value| value.trim());
    GroupOverrides {
        session_timeout_ms: ms("consumer.session.timeout.ms"),
        heartbeat_interval_ms: ms("consumer.heartbeat.interval.ms"),
        assignment_interval_ms: ms("consumer.assignment.interval.ms"),
        offsets_retention_ms: own(Setting::OffsetsRetentionMs),
        members_max: own(Setting::MembersMax),
        offsets_max: own(Setting::OffsetsMax),
        paused: paused.is_some_and(|value| value.eq_ignore_ascii_case("true")),
    }
}

/// What may be set per group: the consumer protocol's timings, and what operators limit.
fn group_configs(config: &Config) -> Vec<GroupConfigKey> {
    let int =
        |name: &str, default: i32, range: (i32, i32), broker: &str, doc: &str| GroupConfigKey {
            name: name.to_owned(),
            kind: ConfigKind::Int,
            default: default.to_string(),
            built_in: KEYS
                .iter()
                .find(|key| key.name == broker)
                .map_or_else(String::new, |key| key.default.to_owned()),
            min: i64::from(range.0),
            max: i64::from(range.1),
            broker_key: Some(broker.to_owned()),
            exceeds: None,
            doc: doc.to_owned(),
        };
    let mut session = int(
        "consumer.session.timeout.ms",
        config.group_consumer_session_timeout_ms,
        (
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        ),
        "group.consumer.session.timeout.ms",
        "Milliseconds without a heartbeat after which a member is gone.",
    );
    session.exceeds = Some("consumer.heartbeat.interval.ms".to_owned());
    vec![
        session,
        int(
            "consumer.heartbeat.interval.ms",
            config.group_consumer_heartbeat_interval_ms,
            (
                config.group_consumer_min_heartbeat_interval_ms,
                config.group_consumer_max_heartbeat_interval_ms,
            ),
            "group.consumer.heartbeat.interval.ms",
            "Milliseconds between the heartbeats of a member.",
        ),
        int(
            "consumer.assignment.interval.ms",
            config.group_consumer_assignment_interval_ms,
            (
                config.group_consumer_min_assignment_interval_ms,
                config.group_consumer_max_assignment_interval_ms,
            ),
            "group.consumer.assignment.interval.ms",
            "Least milliseconds from one target assignment to the next.",
        ),
        own(
            Setting::OffsetsRetentionMs,
            i64::from(config.offsets_retention_minutes) * 60_000,
            "Milliseconds that offsets are kept without members; -1 for ever.",
        ),
        own(
            Setting::MembersMax,
            i64::from(i32::MAX),
            "Most members of the group; the broker's limits hold besides.",
        ),
        own(
            Setting::OffsetsMax,
            i64::from(i32::MAX),
            "Most partitions for which the group keeps a committed offset.",
        ),
        GroupConfigKey {
            name: PAUSED.to_owned(),
            kind: ConfigKind::Boolean,
            default: "false".to_owned(),
            built_in: "false".to_owned(),
            min: 0,
            max: 0,
            broker_key: None,
            exceeds: None,
            doc: "Whether the members own nothing until this is false again.".to_owned(),
        },
    ]
}

/// A setting that only this server knows.
fn own(setting: Setting, default: i64, doc: &str) -> GroupConfigKey {
    GroupConfigKey {
        name: setting.key().to_owned(),
        kind: ConfigKind::Long,
        default: default.to_string(),
        built_in: default.to_string(),
        min: *setting.bounds().start(),
        max: *setting.bounds().end(),
        broker_key: None,
        exceeds: None,
        doc: doc.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_inherit_only_what_differs_from_kafka() {
        assert_eq!(topic_defaults(&Config::default()), BTreeMap::new());
        let config = Config {
            log_retention_hours: 1,
            ..Config::default()
        };
        let defaults = topic_defaults(&config);
        assert_eq!(
            defaults.get("retention.ms").map(String::as_str),
            Some("3600000")
        );
        assert_eq!(defaults.len(), 1);
    }

    #[test]
    fn every_setting_is_shown_as_a_broker_config() {
        let shown = broker_configs(&Config::default());
        assert_eq!(shown.len(), KEYS.len());
        assert!(shown.iter().all(|config| config.is_default), "{shown:?}");
    }
}
