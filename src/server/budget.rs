//! How many bytes the whole process may hold at once: of requests, and by a second budget of replies.
//!
//! Bytes of requests are charged as they arrive, so a length field alone costs nothing. When the budget is spent,
//! connections stop reading large frames until others have been answered. Large replies wait to be read from a file or
//! written out until others have been taken. One connection at a time may overdraw: without that, many half-read frames
//! could wait for each other for ever, and a reply larger than the budget too.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::broker::Lender;

/// Frames up to this size are not charged: their sum is bounded by the number of connections.
pub(crate) const FREE_BYTES: usize = 4096;
/// The same for replies, which are gathered up to this size.
pub(crate) const FREE_REPLY_BYTES: usize = 64 * 1024;
/// What an element of a request takes once it is decoded, about, beyond its bytes.
const ELEMENT_BYTES: usize = 64;

/// The process-wide allowance for bytes of one kind.
#[derive(Debug)]
pub(crate) struct Budget {
    limit_bytes: usize,
    free_bytes: usize,
    used_bytes: AtomicUsize,
    freed: Notify,
    overdraft: Arc<Semaphore>,
    /// Who had to wait goes on one at a time.
    turn: Arc<Semaphore>,
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
    /// `free_bytes`: what is not charged.
    pub(crate) fn new(limit_bytes: usize, free_bytes: usize) -> Arc<Self> {
        Arc::new(Self {
            limit_bytes,
            free_bytes,
            used_bytes: AtomicUsize::new(0),
            freed: Notify::new(),
            overdraft: Arc::new(Semaphore::new(1)),
            turn: Arc::new(Semaphore::new(1)),
        })
    }

    /// Whether what is large has to wait.
    pub(crate) fn is_spent(&self) -> bool {
        self.used_bytes.load(Ordering::Relaxed) >= self.limit_bytes
    }

    /// Bytes charged now.
    pub(crate) fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// What is left.
    fn left_bytes(&self) -> usize {
        self.limit_bytes.saturating_sub(self.used_bytes())
    }

    /// Waits until something large may go on.
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
        let bytes = if held_bytes <= self.budget.free_bytes {
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

/// A charge for a frame of this size that unfolds into so many elements, if it is large enough to be charged.
pub(crate) fn charge_frame(
    budget: &Arc<Budget>,
    frame_bytes: usize,
    elements: u32,
) -> Option<Charge> {
    let elements = usize::try_from(elements).unwrap_or(usize::MAX);
    let bytes = frame_bytes.saturating_add(elements.saturating_mul(ELEMENT_BYTES));
    (frame_bytes > FREE_BYTES).then(|| {
        let mut charge = Charge::none(budget);
        charge.set(bytes);
        charge
    })
}

/// What one reply holds, from the moment its bytes are read until the client has taken them.
#[derive(Debug)]
pub(crate) struct Loan {
    charge: Charge,
    held_bytes: usize,
    leave: Option<Leave>,
    /// Held until the reply is written: hundreds of large ones that may go on at once would keep every thread from
    /// small ones for seconds.
    turn: Option<OwnedSemaphorePermit>,
}

impl Loan {
    pub(crate) fn none(budget: &Arc<Budget>) -> Self {
        Self {
            charge: Charge::none(budget),
            held_bytes: 0,
            leave: None,
            turn: None,
        }
    }

    /// The reply is written, and only has to be sent.
    pub(crate) fn written(&mut self) {
        self.turn = None;
    }

    /// Counts as holding so many bytes, whatever is left.
    pub(crate) fn set(&mut self, held_bytes: usize) {
        self.held_bytes = held_bytes;
        self.charge.set(held_bytes);
    }

    /// Takes over what another loan holds.
    pub(crate) fn add(&mut self, other: Self) {
        self.set(self.held_bytes + other.held_bytes);
        if self.leave.is_none() {
            self.leave = other.leave;
        }
    }
}

impl Lender for Loan {
    fn is_short(&self) -> bool {
        self.charge.budget.is_spent() && !matches!(self.leave, Some(Leave::Overdraft { .. }))
    }

    async fn ready(&mut self) {
        if self.is_short() {
            let budget = self.charge.budget.clone();
            // Never closed, so a turn always comes.
            self.turn = budget.turn.clone().acquire_owned().await.ok();
            self.leave = Some(budget.admit().await);
        }
    }

    fn lend(&mut self, wanted_bytes: usize) -> usize {
        let free = self
            .charge
            .budget
            .free_bytes
            .saturating_sub(self.held_bytes);
        let lent = wanted_bytes.min(self.charge.budget.left_bytes().max(free));
        self.set(self.held_bytes + lent);
        lent
    }

    fn keep(&mut self, lent_bytes: usize, used_bytes: usize) {
        self.set((self.held_bytes + used_bytes).saturating_sub(lent_bytes));
        if self.held_bytes == 0 {
            self.leave = None;
            self.turn = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_frame_may_overdraw_and_the_others_wait() {
        let budget = Budget::new(10_000, FREE_BYTES);
        let held = charge_frame(&budget, 10_000, 0);
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
        let budget = Budget::new(1, FREE_BYTES);
        assert!(charge_frame(&budget, FREE_BYTES, 0).is_none());
        assert!(!budget.is_spent());
    }

    #[test]
    fn what_a_frame_unfolds_into_counts_too() {
        let budget = Budget::new(1 << 20, FREE_BYTES);
        let held = charge_frame(&budget, 10_000, 1000);
        assert_eq!(budget.used_bytes(), 74_000);
        drop(held);
        assert_eq!(budget.used_bytes(), 0);
    }

    #[tokio::test]
    async fn a_loan_is_what_is_left_and_one_may_overdraw() {
        let budget = Budget::new(1 << 20, FREE_REPLY_BYTES);
        let mut first = Loan::none(&budget);
        first.ready().await;
        assert_eq!(first.lend(900_000), 900_000);
        first.keep(900_000, 800_000);
        let mut second = Loan::none(&budget);
        second.ready().await;
        assert_eq!(second.lend(900_000), (1 << 20) - 800_000);
        let mut third = Loan::none(&budget);
        third.ready().await;
        assert_eq!(third.lend(900_000), FREE_REPLY_BYTES, "it overdraws");
        // One batch goes out whatever its size.
        third.keep(FREE_REPLY_BYTES, 2 << 20);
        third.written();
        let waiting = budget.clone();
        let fourth = tokio::spawn(async move {
            let mut fourth = Loan::none(&waiting);
            fourth.ready().await;
            fourth.lend(100_000)
        });
        tokio::task::yield_now().await;
        assert!(!fourth.is_finished());
        drop((first, second));
        assert!(budget.is_spent(), "by the third alone");
        drop(third);
        assert_eq!(fourth.await.unwrap(), 100_000);
        assert_eq!(budget.used_bytes(), 0);
    }
}
