//! The durable facts of this room.

use std::collections::BTreeMap;

use uuid::Uuid;

use super::topics::{Refusal, TopicSummary};

/// One durable fact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    Topic {
        id: Uuid,
        name: String,
        partitions: i32,
        internal: bool,
        configs: BTreeMap<String, String>,
    },
    Partitions {
        id: Uuid,
        count: i32,
    },
    TopicConfigs {
        id: Uuid,
        configs: BTreeMap<String, String>,
    },
    Deleted {
        id: Uuid,
    },
    GroupConfigs {
        group: String,
        configs: BTreeMap<String, String>,
    },
    ProducerIds {
        next: i64,
    },
    Start {
        id: Uuid,
        partition: i32,
        offset: i64,
    },
}

impl Entry {
    pub(super) fn topic(summary: &TopicSummary, configs: &BTreeMap<String, String>) -> Self {
        Self::Topic {
            id: summary.id,
            name: summary.name.to_string(),
            partitions: summary.partitions,
            internal: summary.internal,
            configs: configs.clone(),
        }
    }
}

/// The journal.
#[derive(Debug, Default)]
pub(super) struct Journal {}

impl Journal {
    pub(super) fn write(&mut self, entries: &[Entry]) -> Result<(), Refusal> {
        let _ = entries;
        Ok(())
    }
}
