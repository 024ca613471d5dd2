//! The process that a consumer lives in: it dies and comes back, and it hangs with what it was told unread.

use std::collections::VecDeque;

use super::Hands;
use crate::group::request::Reply;

/// What a process may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It does not run.
    Away,
    /// It has just been started.
    Starts,
    Runs,
}

/// The process.
#[derive(Debug)]
pub(super) struct Process {
    away_until: Option<i64>,
    frozen_until: i64,
    unread: VecDeque<Reply>,
}

impl Process {
    /// One that starts when it is first looked at.
    pub(super) fn new() -> Self {
        Self {
            away_until: Some(0),
            frozen_until: 0,
            unread: VecDeque::new(),
        }
    }

    pub(super) fn is_away(&self) -> bool {
        self.away_until.is_some()
    }

    /// Whether it hangs; it is looked at again when it does not.
    pub(super) fn hangs(&self, h: &mut Hands<'_>) -> bool {
        let hangs = h.now < self.frozen_until && !h.calm;
        if hangs {
            h.wake_by(self.frozen_until);
        }
        hangs
    }

    /// What it may do now; it is looked at again when that changes.
    pub(super) fn turn(&mut self, h: &mut Hands<'_>) -> Turn {
        match self.away_until {
            None => Turn::Runs,
            Some(until) if h.now < until && !h.calm => {
                h.wake_by(until);
                Turn::Away
            }
            Some(_) => {
                self.away_until = None;
                Turn::Starts
            }
        }
    }

    /// It is gone for so long, and its connection with it.
    pub(super) fn die(&mut self, ms: i64, h: &mut Hands<'_>) {
        let until = h.now + ms;
        *self = Self {
            away_until: Some(until),
            ..Self::new()
        };
        h.hang_up = true;
        h.wake_by(until);
    }

    /// It does nothing for so long.
    pub(super) fn hang(&mut self, ms: i64, h: &mut Hands<'_>) {
        self.frozen_until = h.now + ms;
        h.wake_by(self.frozen_until);
    }

    /// A reply has come; gives it back if it can be read now.
    pub(super) fn hear(&mut self, reply: Reply, h: &mut Hands<'_>) -> Option<Reply> {
        if self.hangs(h) {
            self.unread.push_back(reply);
            return None;
        }
        Some(reply).filter(|_| !self.is_away())
    }

    /// What came while it hung.
    pub(super) fn unread(&mut self) -> Option<Reply> {
        self.unread.pop_front()
    }
}
