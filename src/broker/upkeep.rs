//! What is done without being asked: retention, `flush.ms`, forgetting silent producers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::topics::Topic;
use super::{Broker, Shared};

/// How often `flush.ms` is looked at.
const FLUSH_CHECK_MS: u64 = 1000;

/// Starts the upkeep on the runtime this is called in, if any; it ends when the broker is gone.
pub(super) fn start(shared: &Arc<Shared>) {
    if let Ok(runtime) = tokio::runtime::Handle::try_current() {
        runtime.spawn(run(Arc::downgrade(shared)));
    }
}

async fn run(broker: Weak<Shared>) {
    let mut since_retention_ms = 0;
    loop {
        let Some(interval_ms) = broker
            .upgrade()
            .map(|shared| shared.options.retention_check_interval_ms.max(1))
        else {
            return;
        };
        let nap_ms = interval_ms.min(FLUSH_CHECK_MS);
        tokio::time::sleep(Duration::from_millis(nap_ms)).await;
        since_retention_ms += nap_ms;
        let Some(shared) = broker.upgrade() else {
            return;
        };
        let retain = since_retention_ms >= interval_ms;
        if retain {
            since_retention_ms = 0;
        }
        let round = move || {
            shared.flush_due();
            if retain {
                shared.retain();
            }
        };
        // A round that panicked has logged it; the next one may do better.
        let _ = tokio::task::spawn_blocking(round).await;
    }
}

impl Broker {
    /// One round of retention now: drops the segments that `retention.ms` and `retention.bytes` no longer keep. It runs
    /// by itself every `log.retention.check.interval.ms`.
    pub async fn retain(&self) {
        let shared = Arc::clone(&self.shared);
        let _ = self.change(move || shared.retain()).await;
    }
}

impl Shared {
    fn all_topics(&self) -> Vec<Arc<Topic>> {
        self.topics().iter().cloned().collect()
    }

    fn retain(&self) {
        let now_ms = (self.options.clock)();
        let producers_before_ms = now_ms.saturating_sub(self.options.producer_id_expiration_ms);
        for topic in self.all_topics() {
            for (partition, index) in topic.partitions.iter().zip(0..) {
                match partition.retain(&topic.config, now_ms, producers_before_ms) {
                    Ok(0) => {}
                    Ok(segments) => tracing::debug!(
                        topic = topic.name(),
                        partition = index,
                        segments,
                        "retention dropped segments"
                    ),
                    Err(error) => {
                        let index: i32 = index;
                        tracing::error!(topic = topic.name(), partition = index, %error, "retention failed; the next round tries again");
                    }
                }
            }
        }
    }

    /// Syncs the partitions whose oldest unsynced record is as old as `flush.ms`.
    fn flush_due(&self) {
        let now_ms = (self.options.clock)();
        for topic in self
            .all_topics()
            .into_iter()
            .filter(|topic| topic.config.flush_ms < i64::MAX)
        {
            for partition in &topic.partitions {
                if partition.flush_is_due(&topic.config, now_ms) {
                    partition.flush();
                }
            }
        }
    }
}
