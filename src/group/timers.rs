//! Deadlines with typed names, ordered. No callbacks: the coordinator asks what is due and looks the names up.

use std::collections::BTreeMap;

use hashbrown::HashMap;

use super::types::{GroupId, MemberId, Millis};

/// What a deadline is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Timer {
    /// When a member has been silent for too long. Lazy: see [`super::classic`].
    Session(GroupId, MemberId),
    /// When a member id that was handed out is waited for no longer, then when it is good no longer.
    PendingMember(GroupId, MemberId),
    /// When the join phase of a classic group ends, whoever is missing.
    Join(GroupId),
    /// When the members of a classic group must all have synced.
    Sync(GroupId),
    /// When a member of a consumer group must have given back what it was asked for.
    Revocation(GroupId, MemberId),
    /// When a classic member of a consumer group must have rejoined.
    MemberJoin(GroupId, MemberId),
    /// When a classic member of a consumer group must have synced.
    MemberSync(GroupId, MemberId),
    /// When a consumer group that owes its members a target computes it.
    Assign(GroupId),
    /// When a consumer group's patterns are resolved.
    Resolve(GroupId),
    /// When an operator's action has taken too long, or members must be told of a pause.
    Operation(GroupId),
    /// When somebody who is kept out of a group is told so.
    Refusal(GroupId),
    /// When offsets are next looked through for those whose time is over.
    OffsetExpiry,
}

/// All deadlines of a coordinator.
#[derive(Debug, Default)]
pub(super) struct Timers {
    /// The number keeps timers of one moment apart, in the order they were armed.
    by_deadline: BTreeMap<(Millis, u64), Timer>,
    armed: HashMap<Timer, (Millis, u64)>,
    sequence: u64,
}

impl Timers {
    /// Arms a timer, or moves it.
    pub(super) fn arm(&mut self, timer: Timer, deadline: Millis) {
        self.sequence += 1;
        let key = (deadline, self.sequence);
        if let Some(old) = self.armed.insert(timer.clone(), key) {
            self.by_deadline.remove(&old);
        }
        self.by_deadline.insert(key, timer);
    }

    /// Disarms a timer; nothing happens if it is not armed.
    pub(super) fn cancel(&mut self, timer: &Timer) {
        if let Some(key) = self.armed.remove(timer) {
            self.by_deadline.remove(&key);
        }
    }

    /// Whether a timer is armed.
    pub(super) fn is_armed(&self, timer: &Timer) -> bool {
        self.armed.contains_key(timer)
    }

    /// What is armed, by deadline.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Timer> {
        self.by_deadline.values()
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Millis> {
        self.by_deadline
            .first_key_value()
            .map(|((deadline, _), _)| *deadline)
    }

    /// Takes out the earliest timer whose deadline has come.
    pub(super) fn pop_due(&mut self, now: Millis) -> Option<Timer> {
        let entry = self.by_deadline.first_entry()?;
        if entry.key().0 > now {
            return None;
        }
        let timer = entry.remove();
        self.armed.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_come_out_by_deadline_then_by_arming() {
        let mut timers = Timers::default();
        timers.arm(Timer::Join("b".into()), Millis(5));
        timers.arm(Timer::Join("a".into()), Millis(5));
        timers.arm(Timer::Sync("a".into()), Millis(3));
        assert_eq!(timers.next(), Some(Millis(3)));
        assert_eq!(timers.pop_due(Millis(2)), None);
        assert_eq!(timers.pop_due(Millis(5)), Some(Timer::Sync("a".into())));
        assert_eq!(timers.pop_due(Millis(5)), Some(Timer::Join("b".into())));
        assert_eq!(timers.pop_due(Millis(5)), Some(Timer::Join("a".into())));
        assert_eq!(timers.next(), None);
    }

    #[test]
    fn arming_again_moves_and_cancelling_forgets() {
        let mut timers = Timers::default();
        timers.arm(Timer::OffsetExpiry, Millis(1));
        timers.arm(Timer::OffsetExpiry, Millis(9));
        assert_eq!(timers.pop_due(Millis(8)), None);
        timers.cancel(&Timer::OffsetExpiry);
        timers.cancel(&Timer::OffsetExpiry);
        assert_eq!(timers.next(), None);
    }
}
