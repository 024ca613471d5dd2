//! The way of a reply back from a shard to the connection that waits for it.
//!
//! A connection has one request in service, so it owns one pigeonhole for its whole life and a hop costs no
//! allocation. Requests that are split over several groups gather their parts in one of their own.

use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::group::request::Reply;

/// How waiting for a reply ends.
#[derive(Debug)]
pub enum Arrival {
    /// With the reply.
    Reply(Reply),
    /// The shard let the request fall without an answer: the connection has to close.
    Lost,
    /// Never: the member asked again elsewhere, and Kafka leaves the first connection open and mute.
    Superseded,
    /// The connection was cut while it waited.
    Cut,
}

#[derive(Debug, Default)]
struct Inside {
    arrival: Option<Arrival>,
    waker: Option<Waker>,
}

/// Where one connection waits for one reply at a time.
#[derive(Debug, Default)]
pub struct Pigeonhole {
    inside: Mutex<Inside>,
}

impl Pigeonhole {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        // Nothing can panic while the lock is held, and the contents stay whole if it did.
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, arrival: Arrival) {
        let mut inside = self.lock();
        // A cut is final: it outlives the reply that comes after it.
        if matches!(inside.arrival, Some(Arrival::Cut)) {
            return;
        }
        inside.arrival = Some(arrival);
        let waker = inside.waker.take();
        drop(inside);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ends the waiting, now and later.
    pub fn cut(&self) {
        self.put(Arrival::Cut);
    }

    /// Takes what has arrived.
    pub fn poll(&self, cx: &Context<'_>) -> Poll<Arrival> {
        let mut inside = self.lock();
        match inside.arrival.take() {
            Some(Arrival::Cut) => {
                inside.arrival = Some(Arrival::Cut);
                Poll::Ready(Arrival::Cut)
            }
            Some(arrival) => Poll::Ready(arrival),
            None => {
                match &mut inside.waker {
                    Some(waker) => waker.clone_from(cx.waker()),
                    waker @ None => *waker = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    /// Waits for the reply.
    pub async fn arrival(&self) -> Arrival {
        poll_fn(|cx| self.poll(cx)).await
    }
}

/// Who holds a pigeonhole: the connection's shared part.
pub trait Holder: Send + Sync {
    /// The pigeonhole.
    fn pigeonhole(&self) -> &Pigeonhole;
}

impl std::fmt::Debug for dyn Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Holder")
    }
}

#[derive(Debug)]
enum Target {
    One(Arc<dyn Holder>),
    Part(Arc<Gather>, usize),
}

impl Target {
    fn put(self, arrival: Arrival) {
        match self {
            Self::One(holder) => holder.pigeonhole().put(arrival),
            Self::Part(gather, index) => gather.put(index, arrival),
        }
    }
}

/// The duty to answer one request. Dropped without an answer, it closes the connection.
#[derive(Debug)]
pub struct ReplyTo(Option<Target>);

impl ReplyTo {
    /// Answers into the holder's pigeonhole.
    pub fn holder(holder: Arc<dyn Holder>) -> Self {
        Self(Some(Target::One(holder)))
    }

    /// Answers.
    pub fn send(mut self, reply: Reply) {
        if let Some(target) = self.0.take() {
            target.put(Arrival::Reply(reply));
        }
    }

    /// Leaves the connection open and mute: its member asked again elsewhere, and Kafka never answers the first.
    pub fn supersede(mut self) {
        match self.0.take() {
            Some(one @ Target::One(_)) => one.put(Arrival::Superseded),
            Some(part) => part.put(Arrival::Lost),
            None => {}
        }
    }
}

impl Drop for ReplyTo {
    fn drop(&mut self) {
        if let Some(target) = self.0.take() {
            target.put(Arrival::Lost);
        }
    }
}

#[derive(Debug)]
struct Parts {
    replies: Vec<Option<Reply>>,
    missing: usize,
    lost: bool,
    waker: Option<Waker>,
}

/// Where the parts of a split request come together.
#[derive(Debug)]
pub struct Gather {
    parts: Mutex<Parts>,
}

impl Gather {
    /// Room for `count` parts.
    pub fn new(count: usize) -> Arc<Self> {
        let mut replies = Vec::new();
        replies.resize_with(count, || None);
        Arc::new(Self {
            parts: Mutex::new(Parts {
                replies,
                missing: count,
                lost: false,
                waker: None,
            }),
        })
    }

    /// The duty to bring part `index`. Once per part.
    pub fn part(self: &Arc<Self>, index: usize) -> ReplyTo {
        ReplyTo(Some(Target::Part(self.clone(), index)))
    }

    fn lock(&self) -> MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, index: usize, arrival: Arrival) {
        let mut parts = self.lock();
        match arrival {
            Arrival::Reply(reply) => {
                if let Some(place) = parts.replies.get_mut(index) {
                    *place = Some(reply);
                }
            }
            Arrival::Lost | Arrival::Superseded | Arrival::Cut => parts.lost = true,
        }
        parts.missing = parts.missing.saturating_sub(1);
        if parts.missing == 0
            && let Some(waker) = parts.waker.take()
        {
            drop(parts);
            waker.wake();
        }
    }

    /// Waits for all parts and gives them in order; `None` if one was lost.
    pub async fn all(&self) -> Option<Vec<Reply>> {
        poll_fn(|cx| {
            let mut parts = self.lock();
            if parts.missing == 0 {
                return Poll::Ready(());
            }
            parts.waker = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
        let mut parts = self.lock();
        if parts.lost {
            return None;
        }
        std::mem::take(&mut parts.replies).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::request::ErrorCode;

    #[derive(Default)]
    struct Held(Pigeonhole);

    impl Holder for Held {
        fn pigeonhole(&self) -> &Pigeonhole {
            &self.0
        }
    }

    fn beat() -> Reply {
        Reply::Heartbeat(ErrorCode::None)
    }

    #[tokio::test]
    async fn a_pigeonhole_serves_one_request_after_the_other() {
        let held = Arc::new(Held::default());
        for _ in 0..3 {
            let to = ReplyTo::holder(held.clone());
            let send = tokio::spawn(async move { to.send(beat()) });
            assert!(matches!(held.0.arrival().await, Arrival::Reply(_)));
            send.await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_dropped_duty_is_a_lost_reply_and_a_superseded_one_says_so() {
        let held = Arc::new(Held::default());
        drop(ReplyTo::holder(held.clone()));
        assert!(matches!(held.0.arrival().await, Arrival::Lost));
        ReplyTo::holder(held.clone()).supersede();
        assert!(matches!(held.0.arrival().await, Arrival::Superseded));
        held.0.cut();
        assert!(matches!(held.0.arrival().await, Arrival::Cut));
        ReplyTo::holder(held.clone()).send(beat());
        assert!(
            matches!(held.0.arrival().await, Arrival::Cut),
            "a cut is final"
        );
    }

    #[tokio::test]
    async fn parts_come_back_in_their_order() {
        let gather = Gather::new(2);
        let (first, second) = (gather.part(0), gather.part(1));
        second.send(Reply::Heartbeat(ErrorCode::RebalanceInProgress));
        first.send(beat());
        let all = gather.all().await.unwrap();
        assert_eq!(all[0], beat());
        let gather = Gather::new(1);
        drop(gather.part(0));
        assert!(gather.all().await.is_none());
    }
}
