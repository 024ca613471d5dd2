//! What can go wrong between the rooms and the disk, each with what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A failure of the storage room. Cheap to clone: many may wait for the same sync.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or folder.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The disk is full. Nothing was changed; the same call works again when there is room.
    #[error("no room on the disk of {} for {bytes} more bytes; free some, writing goes on by itself", path.display())]
    NoRoom {
        /// The folder that needs room.
        path: PathBuf,
        /// How much was asked for.
        bytes: u64,
    },
    /// Bytes on the disk are not what was written, in a place that a crash cannot explain.
    #[error("{} is damaged at byte {offset}: {what}; {remedy}", path.display())]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// Where the damage begins.
        offset: u64,
        /// What was found.
        what: String,
        /// What the operator can do.
        remedy: &'static str,
    },
    /// Another process holds the data folder.
    #[error("the data folder {} is in use by another process; stop that one or choose another folder", path.display())]
    InUse {
        /// The folder.
        path: PathBuf,
    },
    /// The folder holds something, but not Convoke's data.
    #[error("{} is not a Convoke data folder ({found}); choose an empty or new folder", path.display())]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// What stands there instead.
        found: String,
    },
    /// The files were written by a newer version.
    #[error("{} has format {found}, this version knows up to {known}; start the version that wrote it, or a newer one", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u32,
        /// The newest format known here.
        known: u32,
    },
    /// The folder was created with another setting that cannot change.
    #[error("{} was created with {key}={stored}, but {asked} is configured; set {key}={stored}, or choose another folder", path.display())]
    Differs {
        /// The folder.
        path: PathBuf,
        /// The setting's name.
        key: &'static str,
        /// What the folder has.
        stored: String,
        /// What was asked for.
        asked: String,
    },
    /// A frame longer than the format can hold.
    #[error("a record of {bytes} bytes is more than the log takes ({bytes_max})")]
    TooLarge {
        /// The payload's length.
        bytes: u64,
        /// The longest payload.
        bytes_max: u64,
    },
    /// An earlier write or sync failed. What was written since the last good sync may be lost, so the log takes nothing more.
    #[error("the log failed and takes nothing more: {reason}; check the disk, then restart")]
    Failed {
        /// The first failure.
        reason: Arc<str>,
    },
    /// The reader asked to stop.
    #[error("reading the log was stopped")]
    Stopped,
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

/// The remedy where acknowledged bytes are damaged.
pub(super) const RESTORE: &str =
    "restore the data folder from a backup, or move it away to start empty";

impl Error {
    /// Wraps what the system said; a full disk becomes [`Error::NoRoom`] when `bytes` were being asked for.
    pub(super) fn io(action: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io {
            action,
            path: path.to_owned(),
            source: Arc::new(source),
        }
    }

    /// As [`Error::io`], for calls that ask the disk for room.
    pub(super) fn room(action: &'static str, path: &Path, bytes: u64, source: io::Error) -> Self {
        if is_full(&source) {
            let path = path.to_owned();
            return Self::NoRoom { path, bytes };
        }
        Self::io(action, path, source)
    }

    /// Whether the disk is full.
    pub(super) fn is_full(&self) -> bool {
        match self {
            Self::NoRoom { .. } => true,
            Self::Io { source, .. } => is_full(source),
            _ => false,
        }
    }

    /// Acknowledged bytes are not what was written.
    pub(super) fn damaged(path: &Path, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            offset,
            what: what.into(),
            remedy: RESTORE,
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}
