//! How many bytes of requests the whole process may hold at once.
//!
//! Bytes are charged as they arrive, so a length field alone costs nothing. When the budget is spent, connections stop
//! reading large frames until others have been answered. One of them at a time may overdraw: without that, many
//! half-read frames could wait for each other for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Frames up to this size are not charged: their sum is bounded by the number of connections.
pub(crate) const FREE_BYTES: usize = 4096;

/// The process-wide allowance for request bytes.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    freed: Notify,
    overdraft: Arc<Semaphore>,
}

/// Leave to read on, until the frame at hand is whole.
#[derive(Debug)]
pub(crate) enum Leave {
    /// There is room.
    Room,
    /// There is none, but this connection may overdraw.
    Overdraft {
        /// Given back when dropped.
        _permit: OwnedSemaphorePermit,
    },
}

impl Budget {
    pub(crate) fn new(limit_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            freed: Notify::new(),
            overdraft: Arc::new(Semaphore::new(1)),
        })
    }

    /// Whether large frames have to wait.
    pub(crate) fn is_spent(&self) -> bool {
        self.used_bytes.load(Ordering::Relaxed) >= self.limit_bytes
    }

    /// Bytes charged now.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Waits until a large frame may be read on.
    pub(crate) async fn admit(&self) -> Leave {
        loop {
            let freed = self.freed.notified();
            if !self.is_spent() {
                return Leave::Room;
            }
            tokio::select! {
                () = freed => {}
                permit = self.overdraft.clone().acquire_owned() => {
                    if let Ok(permit) = permit {
                        return Leave::Overdraft { _permit: permit };
                    }
                }
            }
        }
    }
}

/// Bytes charged to the budget; given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    budget: Arc<Budget>,
    bytes: usize,
}

impl Charge {
    pub(crate) fn none(budget: &Arc<Budget>) -> Self {
        Self {
            budget: budget.clone(),
            bytes: 0,
        }
    }

    /// What is charged now.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges for `held_bytes` instead of what was charged before.
    pub(crate) fn set(&mut self, held_bytes: usize) {
        let bytes = if held_bytes <= FREE_BYTES {
            0
        } else {
            held_bytes
        };
        if bytes > self.bytes {
            self.budget
                .used_bytes
                .fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else if bytes < self.bytes {
            let before = self
                .budget
                .used_bytes
                .fetch_sub(self.bytes - bytes, Ordering::Relaxed);
            if before >= self.budget.limit_bytes {
                self.budget.freed.notify_waiters();
            }
        }
        self.bytes = bytes;
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// A charge for a frame of this size, if it is large enough to be charged.
pub(crate) fn charge_frame(budget: &Arc<Budget>, frame_bytes: usize) -> Option<Charge> {
    (frame_bytes > FREE_BYTES).then(|| {
        let mut charge = Charge::none(budget);
        charge.set(frame_bytes);
        charge
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_frame_may_overdraw_and_the_others_wait() {
        let budget = Budget::new(10_000);
        let held = charge_frame(&budget, 10_000);
        assert!(budget.is_spent());
        let first = budget.admit().await;
        assert!(matches!(first, Leave::Overdraft { .. }));
        let waiting = budget.clone();
        let second = tokio::spawn(async move { waiting.admit().await });
        tokio::task::yield_now().await;
        assert!(!second.is_finished());
        drop(held);
        let second = second.await.unwrap();
        assert!(matches!(second, Leave::Room));
        assert_eq!(budget.used_bytes(), 0);
    }

    #[test]
    fn small_frames_are_free() {
        let budget = Budget::new(1);
        assert!(charge_frame(&budget, FREE_BYTES).is_none());
        assert!(!budget.is_spent());
    }
}
