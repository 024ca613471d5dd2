//! A shard's part of the group log, in words: records in, positions out. Bytes are `wire`'s, files are `log`'s.

use std::ops::ControlFlow;

use crate::group::record::Record;
use crate::group::types::Millis;
use crate::log::{self, Position, ShardLog, SnapshotWriter};
use crate::wire::records::{BatchError, decode_batch, encode_batch};

/// Records of one frame of a snapshot: little enough to encode between two heartbeats.
const SNAPSHOT_RECORDS: usize = 500;
/// A snapshot is not pushed faster than it is written.
const SNAPSHOT_BACKLOG_BYTES: usize = 4 << 20;
const SNAPSHOT_PAUSE: std::time::Duration = std::time::Duration::from_millis(5);

/// Why records were not taken, or cannot be read back.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The log's reason.
    #[error(transparent)]
    Log(#[from] log::Error),
    /// The records have no bytes, or the bytes are no records.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// The shard is being loaded.
    #[error("the group log is being read again")]
    Away,
    /// The coordinator panicked while it took a record in.
    #[error("the coordinator panicked while it was loaded")]
    Panicked,
}

impl Error {
    /// Whether the log will never take anything again.
    pub(crate) fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Log(log::Error::Failed { .. } | log::Error::Closed)
        )
    }

    /// Whether the same call may work later.
    pub(crate) fn is_full(&self) -> bool {
        matches!(self, Self::Log(log::Error::NoRoom { .. }))
    }
}

/// One partition of the group log, and who writes to it.
#[derive(Debug)]
pub(crate) struct Ledger {
    partition: u16,
    log: ShardLog,
}

impl Ledger {
    pub(crate) fn new(partition: u16, log: ShardLog) -> Self {
        Self { partition, log }
    }

    /// Makes sure that records of about this many bytes can be appended.
    pub(crate) fn reserve(&mut self, bytes: u64) -> Result<(), Error> {
        Ok(self.log.reserve(bytes)?)
    }

    /// Appends records as one batch, and says where it lies and how many bytes it takes.
    pub(crate) fn append(
        &mut self,
        records: &[Record],
        now: Millis,
    ) -> Result<(Position, u64), Error> {
        let batch = encode_batch(records, 0, now)?;
        let bytes = batch.len() as u64;
        Ok((self.log.append(self.partition, batch)?, bytes))
    }

    /// Everything up to here is durable.
    pub(crate) fn durable(&self) -> Position {
        self.log.durable()
    }

    /// Waits until more is durable, or a snapshot is wanted.
    pub(crate) async fn changed(&mut self) -> Result<Position, Error> {
        Ok(self.log.changed().await?)
    }

    /// Whether a snapshot would shorten the log.
    pub(crate) fn wants_snapshot(&self) -> bool {
        self.log.wants_snapshot().is_some()
    }

    /// Begins a snapshot of the state as it is now.
    pub(crate) fn snapshot(&mut self) -> SnapshotWriter {
        self.log.snapshot(self.partition)
    }

    /// Reads everything again. Blocks.
    pub(crate) fn reload(&mut self, mut apply: impl FnMut(&Record)) -> Result<(), Error> {
        let mut trouble = None;
        let read = self
            .log
            .reload(self.partition, &mut |recovered| match apply_batch(
                &recovered.payload,
                &mut apply,
            ) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    trouble = Some(error);
                    ControlFlow::Break(())
                }
            });
        match trouble {
            Some(trouble) => Err(trouble),
            None => Ok(read?),
        }
    }
}

/// Reads the records of one frame.
pub(crate) fn apply_batch(payload: &[u8], apply: &mut impl FnMut(&Record)) -> Result<(), Error> {
    let batch = decode_batch(payload)?;
    if batch.skipped_count > 0 {
        tracing::warn!(
            records = batch.skipped_count,
            "skipped records of types that this version does not know"
        );
    }
    batch.records.iter().for_each(apply);
    Ok(())
}

/// Writes a whole state, in slices, so that nothing else waits for it.
pub(crate) async fn write_snapshot(
    mut writer: SnapshotWriter,
    records: Vec<Record>,
    now: Millis,
) -> Result<(), Error> {
    for slice in records.chunks(SNAPSHOT_RECORDS) {
        writer.push(encode_batch(slice, 0, now)?);
        while writer.backlog_bytes() > SNAPSHOT_BACKLOG_BYTES {
            tokio::time::sleep(SNAPSHOT_PAUSE).await;
        }
        tokio::task::yield_now().await;
    }
    writer.finish();
    Ok(())
}
