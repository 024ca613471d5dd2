//! How a program says what server it wants.

use std::path::Path;
use std::sync::Arc;

use super::{BlockingServer, Error, Server, start};
use crate::config::{Config, Storage};
use crate::log::fs::{Fs, RealFs};

/// Settings of a server that is about to start.
///
/// Without a word it is what the command line starts without arguments; [`memory`](Self::memory) makes it a test
/// double.
#[derive(Clone, Debug)]
#[must_use]
pub struct Builder {
    config: Config,
    fs: Arc<dyn Fs>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            config: Config::default(),
            fs: RealFs::shared(),
        }
    }
}

impl Builder {
    /// Keeps everything in memory, listens on a free port of loopback, and lets new groups rebalance without delay.
    pub fn memory(mut self) -> Self {
        self.config = Config::memory();
        self
    }

    /// Keeps everything in this folder.
    pub fn data(mut self, folder: impl AsRef<Path>) -> Self {
        folder.as_ref().clone_into(&mut self.config.data_dir);
        self.config.storage = Storage::Disk;
        self
    }

    /// Takes all settings from here instead.
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Keeps the group log in this file system instead of the machine's, so that a test can make the disk fail. Topic
    /// data stays where the settings say.
    pub fn file_system(mut self, fs: Arc<dyn Fs>) -> Self {
        self.fs = fs;
        self
    }

    /// Changes single settings.
    pub fn with(mut self, change: impl FnOnce(&mut Config)) -> Self {
        change(&mut self.config);
        self
    }

    /// Starts inside the current tokio runtime. Clients may connect when this returns.
    ///
    /// # Errors
    /// Each variant of [`Error`] names what stands in the way.
    pub async fn start(self) -> Result<Server, Error> {
        start::start(self.config, self.fs).await
    }

    /// Starts with threads of its own, for programs without a runtime, and waits until it is ready.
    ///
    /// # Errors
    /// As [`start`](Self::start); [`Error::Threads`] if the system gives none.
    pub fn start_blocking(self) -> Result<BlockingServer, Error> {
        BlockingServer::start(self)
    }
}
