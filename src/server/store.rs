//! The data folder and the group log in it, from opening to closing.

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use super::Error;
use super::metrics::Metrics;
use crate::config::{Config, LogSync, Storage};
use crate::log::fs::Fs;
use crate::log::{
    self, Folder, FolderOptions, GroupLog, Identity, LogOptions, Recovery, SyncMode, SyncSample,
};

/// A store that is held and not yet read.
#[derive(Debug)]
pub(crate) enum Opening {
    /// Nothing to read.
    Memory(Identity),
    /// A folder, and what is in its group log.
    Disk(Arc<Folder>, Box<Recovery>),
}

impl Opening {
    /// Takes the data folder. Quick: what is in it is read later.
    pub(crate) async fn open(
        config: &Config,
        fs: Arc<dyn Fs>,
        shard_count: u16,
        metrics: &Arc<Metrics>,
    ) -> Result<Self, Error> {
        if config.storage == Storage::Memory {
            return Ok(Self::Memory(Identity::draw(config.node_id)));
        }
        let options = FolderOptions {
            partition_count: shard_count,
            node_id: config.node_id,
        };
        let (path, log_options) = (config.data_dir.clone(), log_options(config, metrics));
        let opened = tokio::task::spawn_blocking(move || {
            let folder = Arc::new(Folder::open(fs, &path, options)?);
            let recovery = Recovery::open(folder.clone(), log_options)?;
            Ok::<_, log::Error>(Self::Disk(folder, Box::new(recovery)))
        });
        match opened.await {
            Ok(opened) => Ok(opened?),
            Err(panicked) => Err(Error::Ended(panicked.to_string())),
        }
    }

    /// Who the server is.
    pub(crate) fn identity(&self) -> &Identity {
        match self {
            Self::Memory(identity) => identity,
            Self::Disk(folder, _) => folder.identity(),
        }
    }

    /// The data folder; `None` for memory.
    pub(crate) fn folder(&self) -> Option<&Path> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(folder, _) => Some(folder.path()),
        }
    }

    /// Where topic data goes; `None` for memory.
    pub(crate) fn topics_dir(&self) -> Option<PathBuf> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(folder, _) => Some(folder.topics_dir()),
        }
    }
}

fn log_options(config: &Config, metrics: &Arc<Metrics>) -> LogOptions {
    let metrics = metrics.clone();
    LogOptions {
        sync: match config.log_sync {
            LogSync::Always => SyncMode::Always,
            LogSync::Interval { interval_ms } => {
                SyncMode::Interval(Duration::from_millis(u64::from(interval_ms)))
            }
            LogSync::None => SyncMode::Never,
        },
        segment_bytes: u64::try_from(config.offsets_topic_segment_bytes).unwrap_or(64 << 20),
        on_sync: Some(Arc::new(move |sample: SyncSample| {
            metrics.log_sync_seconds.record(sample.took);
            metrics.log_batch_bytes.record(sample.bytes as f64);
            metrics.log_batch_frames.record(sample.frames as f64);
        })),
        ..LogOptions::default()
    }
}

/// The group log, once it has been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    log: Arc<OnceLock<GroupLog>>,
}

impl Store {
    /// Puts the log in its place. Once.
    pub(crate) fn put(&self, log: GroupLog) -> &GroupLog {
        self.log.get_or_init(|| log)
    }

    /// The log, if it has been read.
    pub(crate) fn log(&self) -> Option<&GroupLog> {
        self.log.get()
    }

    /// Makes the group log durable and lets the folder go.
    pub(crate) async fn close(self) -> Result<(), Error> {
        let closed = tokio::task::spawn_blocking(move || match self.log.get() {
            Some(log) => log.close(),
            None => Ok(()),
        });
        match closed.await {
            Ok(closed) => Ok(closed?),
            Err(panicked) => Err(Error::Ended(panicked.to_string())),
        }
    }
}
