//! What can go wrong between the rooms and the disk, each with what to do about it.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A failure of the storage room. Cheap to clone: many may wait for the same sync.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The system refused an operation.
    #[error("cannot {action} {}: {source}; check the disk, and who may write there", path.display())]
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
    #[error("a record of {bytes} bytes is more than the log takes ({bytes_max}); make it smaller")]
    TooLarge {
        /// The payload's length.
        bytes: u64,
        /// The longest payload.
        bytes_max: u64,
    },
    /// An earlier write or sync failed. What was written since the last good sync may be lost, so the log takes nothing more.
    #[error("the log failed and takes nothing more until a restart: {reason}")]
    Failed {
        /// The first failure.
        reason: Arc<str>,
    },
    /// The reader asked to stop.
    #[error("reading the log was stopped; open it again to read it")]
    Stopped,
    /// The log was closed.
    #[error("the log is closed; open it again to write")]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_error_says_what_happened_where_and_what_to_do() {
        let path = || PathBuf::from("/data/convoke");
        let worn_out = || io::Error::other("the disk is worn out");
        let all = [
            Error::io("write", &path(), worn_out()),
            Error::room("write", &path(), 7, io::ErrorKind::StorageFull.into()),
            Error::damaged(&path(), 64, "its header is not what was written"),
            Error::InUse { path: path() },
            Error::NotOurs {
                path: path(),
                found: "it holds thesis.txt".to_owned(),
            },
            Error::Newer {
                path: path(),
                found: 2,
                known: 1,
            },
            Error::Differs {
                path: path(),
                key: "node.id",
                stored: "1".to_owned(),
                asked: "7".to_owned(),
            },
            Error::TooLarge {
                bytes: 9,
                bytes_max: 8,
            },
            Error::Failed {
                reason: Error::io("sync", &path(), worn_out()).to_string().into(),
            },
            Error::Stopped,
            Error::Closed,
        ];
        for error in all {
            let (what, to_do) = match &error {
                Error::Io { .. } => ("write /data/convoke: the disk is worn out", "check"),
                Error::NoRoom { .. } => ("of /data/convoke for 7 more bytes", "free some"),
                Error::Damaged { .. } => ("/data/convoke is damaged at byte 64", "backup"),
                Error::InUse { .. } => ("/data/convoke is in use", "choose another"),
                Error::NotOurs { .. } => ("it holds thesis.txt", "choose an empty"),
                Error::Newer { .. } => ("has format 2", "start the version that wrote it"),
                Error::Differs { .. } => ("node.id=1, but 7", "set node.id=1"),
                Error::TooLarge { .. } => ("9 bytes", "make it smaller"),
                Error::Failed { .. } => ("sync /data/convoke", "restart"),
                Error::Stopped => ("stopped", "open it again"),
                Error::Closed => ("closed", "open it again"),
            };
            let text = error.to_string();
            assert!(text.contains(what) && text.contains(to_do), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
    }

    #[test]
    fn a_full_disk_is_known_by_whichever_call_it_comes() {
        let path = Path::new("/data");
        let full = || io::Error::from(io::ErrorKind::QuotaExceeded);
        assert!(Error::room("write", path, 1, full()).is_full());
        assert!(Error::io("rename", path, full()).is_full());
        assert!(!Error::room("write", path, 1, io::Error::other("worn out")).is_full());
        assert!(!Error::Closed.is_full());
    }
}
