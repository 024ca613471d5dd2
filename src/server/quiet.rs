//! Log lines that strangers can cause: one a second at most, with the number of those left unsaid.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::clock::Clock;

/// Says at most one line a second.
#[derive(Debug)]
pub(crate) struct Quiet {
    clock: Arc<Clock>,
    next_ms: AtomicI64,
    unsaid: AtomicU64,
}

impl Quiet {
    pub(crate) fn new(clock: Arc<Clock>) -> Arc<Self> {
        Arc::new(Self {
            clock,
            next_ms: AtomicI64::new(i64::MIN),
            unsaid: AtomicU64::new(0),
        })
    }

    /// Calls `line` with the number of lines left unsaid before, or leaves this one unsaid too.
    pub(crate) fn say(&self, line: impl FnOnce(u64)) {
        let now_ms = self.clock.uptime_ms();
        let next_ms = self.next_ms.load(Ordering::Relaxed);
        let mine = now_ms >= next_ms
            && self
                .next_ms
                .compare_exchange(next_ms, now_ms + 1000, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if mine {
            line(self.unsaid.swap(0, Ordering::Relaxed));
        } else {
            self.unsaid.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_says_one_line_and_counts_the_rest() {
        let quiet = Quiet::new(Arc::new(Clock::start()));
        let mut said = 0;
        for _ in 0..50 {
            quiet.say(|unsaid| {
                said += 1;
                assert_eq!(unsaid, 0);
            });
        }
        assert_eq!(said, 1);
        assert_eq!(quiet.unsaid.load(Ordering::Relaxed), 49);
    }
}
