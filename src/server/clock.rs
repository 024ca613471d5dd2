//! The server's one clock. Not here: timers, which are tokio's, and the coordinators' deadlines, which are theirs.
#![expect(
    clippy::disallowed_methods,
    reason = "this is the one place of the shell that reads the clocks"
)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use crate::desk::time::ServerTime;
use crate::group::types::Millis;

/// [`ServerTime`] by the clocks of this machine; the monotonic one is tokio's, which a test can stop and move.
#[derive(Debug)]
pub(crate) struct Clock {
    started: Instant,
    time: ServerTime,
}

impl Clock {
    pub(crate) fn start() -> Self {
        // A wall clock before 1970 counts as 1970.
        let wall = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let wall = Millis(i64::try_from(wall.as_millis()).unwrap_or(i64::MAX / 2));
        Self {
            started: Instant::now(),
            time: ServerTime::start(wall),
        }
    }

    /// The time now, in unix milliseconds that never go back.
    pub(crate) fn now(&self) -> Millis {
        self.time.at(self.uptime_ms())
    }

    /// Makes sure that no later [`Clock::now`] is before `stored`, the newest stamp found in the log.
    pub(crate) fn raise(&self, stored: Millis) {
        self.time.raise(stored, self.uptime_ms());
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
