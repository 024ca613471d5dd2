//! A shard's part of the group log, in words: records in, positions out. Bytes are `wire`'s, files are `log`'s.

use std::sync::{Arc, Mutex, PoisonError};

use crate::group::record::Record;
use crate::log;

/// The whole state of a coordinator at one position.
#[derive(Debug)]
pub(crate) struct Snapshot {
    /// Records up to this position are in it.
    pub(crate) covers: u64,
    pub(crate) records: Vec<Record>,
}

/// One partition of the group log.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    partition: u16,
    memory: Arc<Mutex<Vec<Record>>>,
}

impl Ledger {
    pub(crate) fn memory(partition: u16) -> Self {
        Self {
            partition,
            memory: Arc::default(),
        }
    }

    pub(crate) fn partition(&self) -> u16 {
        self.partition
    }

    pub(crate) fn reserve(&self, _bytes: u64) -> Result<(), log::Error> {
        Ok(())
    }

    pub(crate) fn append(&self, records: &[Record]) -> Result<u64, log::Error> {
        let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.extend_from_slice(records);
        Ok(memory.len() as u64)
    }

    pub(crate) fn durable(&self) -> u64 {
        self.memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len() as u64
            + 1
    }

    pub(crate) async fn durable_past(&self, _position: u64) -> Result<u64, log::Error> {
        Ok(self.durable())
    }

    pub(crate) fn is_dead(&self) -> bool {
        false
    }

    pub(crate) fn wants_snapshot(&self) -> bool {
        false
    }

    pub(crate) fn write_snapshot(&self, _snapshot: Snapshot) -> Result<(), log::Error> {
        Ok(())
    }

    pub(crate) fn load(&self, mut apply: impl FnMut(&Record)) -> Result<(), log::Error> {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.iter().for_each(&mut apply);
        Ok(())
    }
}
