//! What time it is for a server: the wall clock at its start, plus the time since. Clocks are read elsewhere.

use std::sync::atomic::{AtomicI64, Ordering};

use crate::group::types::Millis;

/// The rule of the server's one clock. A jump of the wall clock evicts nobody and expires nothing, because the wall clock
/// counts at the start only; and no moment is before one that the log has stored.
#[derive(Debug)]
pub struct ServerTime {
    /// Unix milliseconds that the start stands for; only ever raised.
    origin_ms: AtomicI64,
}

impl ServerTime {
    /// A clock that starts when the wall clock says `wall`.
    #[must_use]
    pub fn start(wall: Millis) -> Self {
        Self {
            // Stamps must not be negative, which means "unknown" in records.
            origin_ms: AtomicI64::new(wall.0.max(0)),
        }
    }

    /// The time `uptime_ms` after the start, in unix milliseconds that never go back.
    pub fn at(&self, uptime_ms: i64) -> Millis {
        Millis(self.origin_ms.load(Ordering::Relaxed)).plus(uptime_ms)
    }

    /// Makes sure that from `uptime_ms` on it is never earlier than `stored`, the newest stamp found in the log.
    pub fn raise(&self, stored: Millis, uptime_ms: i64) {
        let origin_ms = stored.0.saturating_sub(uptime_ms);
        self.origin_ms.fetch_max(origin_ms, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stored_stamp_from_the_future_raises_the_clock() {
        let time = ServerTime::start(Millis(1_000));
        time.raise(Millis(9_000), 10);
        assert_eq!(time.at(10), Millis(9_000));
        time.raise(Millis(0), 20);
        assert_eq!(time.at(20), Millis(9_010), "the clock is never lowered");
    }
}
