//! The group log without its threads: whoever holds it says when they would have done something. Everything else is the
//! log that ships. For simulation, on a disk such as [`FaultFs`](super::fault_fs::FaultFs), with `retry` zero in its
//! options: then no clock has a say.

use std::fmt;
use std::sync::{Arc, mpsc};

use super::committer::{Committer, Work};
use super::error::Error;
use super::group::{GroupLog, Position};
use super::queue::Disk;
use super::segments::Segments;
use super::snapshot::{Message, Scribe};

/// See the module.
pub struct ByHand {
    log: GroupLog,
    disk: Arc<Disk>,
    committer: Committer,
    /// What the committer has begun.
    begun: Option<Work>,
    closed: bool,
    scribe: Scribe,
    messages: mpsc::Receiver<Message>,
}

impl fmt::Debug for ByHand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ByHand")
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

impl ByHand {
    pub(super) fn new(
        disk: Arc<Disk>,
        segments: Segments,
        messages: mpsc::Receiver<Message>,
    ) -> Self {
        disk.stock_up();
        Self {
            log: GroupLog::disk(disk.clone(), Vec::new()),
            committer: Committer::new(disk.clone(), segments),
            begun: None,
            closed: false,
            scribe: Scribe::new(disk.clone()),
            disk,
            messages,
        }
    }

    /// The log as shards see it.
    pub fn log(&self) -> &GroupLog {
        &self.log
    }

    /// The position of the last append.
    pub fn last(&self) -> Position {
        Position(self.disk.lock().next_lsn - 1)
    }

    /// The committer takes a piece of work, if there is one and it has none; tells whether it took one.
    pub fn begin(&mut self) -> bool {
        if self.begun.is_some() || self.closed {
            return false;
        }
        self.begun = self.committer.look(&mut self.disk.lock());
        self.closed = matches!(self.begun, Some(Work::Close));
        self.begun.is_some()
    }

    /// The committer ends what it has begun: writes and syncs what was queued then, or drops segments.
    ///
    /// # Errors
    /// The log has failed, and says so to everybody.
    pub fn end(&mut self) -> Result<(), Error> {
        let Some(work) = self.begun.take() else {
            return Ok(());
        };
        let done = self.committer.step(work);
        if let Err(error) = &done {
            self.disk.fail(error);
        }
        done
    }

    /// The committer does all that there is to do.
    ///
    /// # Errors
    /// As [`ByHand::end`].
    pub fn flush(&mut self) -> Result<(), Error> {
        self.end()?;
        while self.begin() {
            self.end()?;
        }
        Ok(())
    }

    /// The snapshots that were asked for are written.
    ///
    /// # Errors
    /// As [`ByHand::end`].
    pub fn write_snapshots(&mut self) -> Result<(), Error> {
        while let Ok(message) = self.messages.try_recv() {
            // A snapshot that is whole waits for what it has seen to be durable.
            self.flush()?;
            self.scribe.take(message);
        }
        self.flush()
    }
}
