//! The server's one clock. Not here: timers, which are tokio's, and the coordinators' deadlines, which are theirs.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the one place of the shell that reads the clocks"
)]

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::group::types::Millis;

/// Wall clock at start plus monotonic time since: a jump of the wall clock evicts nobody and expires nothing.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    /// Unix milliseconds that `started` stands for; only ever raised.
    origin_ms: AtomicI64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        // A wall clock before 1970 counts as 1970: stamps must not be negative, which means "unknown" in records.
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            started: Instant::now(),
            origin_ms: AtomicI64::new(i64::try_from(wall.as_millis()).unwrap_or(i64::MAX / 2)),
        }
    }

    /// The time now, in unix milliseconds that never go back.
    pub(crate) fn now(&self) -> Millis {
        Millis(self.origin_ms.load(Ordering::Relaxed)).plus(self.uptime_ms())
    }

    /// Makes sure that no later [`Clock::now`] is before `stored`, the newest stamp found in the log.
    pub(crate) fn raise(&self, stored: Millis) {
        let origin = stored.0.saturating_sub(self.uptime_ms());
        self.origin_ms.fetch_max(origin, Ordering::Relaxed);
    }

    /// Milliseconds since the start.
    pub(crate) fn uptime_ms(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX / 2)
    }

    /// The monotonic moment at which [`Clock::now`] will be `when`; this moment if that is past.
    pub(crate) fn instant_of(&self, when: Millis) -> Instant {
        let wait_ms = u64::try_from(when.since(self.now())).unwrap_or(0);
        // Half a year ahead is as good as never, and always representable.
        Instant::now() + Duration::from_millis(wait_ms.min(180 * 24 * 3600 * 1000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_stamp_from_the_future_raises_the_clock() {
        let clock = Clock::start();
        let ahead = clock.now().plus(3_600_000);
        clock.raise(ahead);
        assert!(clock.now() >= ahead);
        clock.raise(Millis(0));
        assert!(clock.now() >= ahead, "the clock is never lowered");
    }
}
