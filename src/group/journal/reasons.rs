//! What began a rebalance, as the rest of the core tells it.

use std::sync::Arc;

use crate::group::operator::{MemberRef, Trigger};
use crate::group::stats::Cause;
use crate::group::types::Millis;

/// What began something, first to last. Never empty.
#[derive(Clone, Debug)]
pub(in crate::group) struct Triggers {
    first: Trigger,
    rest: Vec<Trigger>,
}

impl Triggers {
    /// What counts in metrics: the first.
    pub(in crate::group) fn cause(&self) -> Cause {
        self.first.cause
    }

    /// When the first of them happened; `None` if that is only just.
    pub(in crate::group) fn since(&self) -> Option<Millis> {
        let all = std::iter::once(&self.first).chain(&self.rest);
        let told = all.map(|trigger| trigger.at);
        told.filter(|at| *at != Millis::default()).min()
    }

    /// Several; `or` if there are none.
    pub(in crate::group) fn of(triggers: Vec<Trigger>, or: Cause) -> Self {
        let mut triggers = triggers.into_iter();
        Self {
            first: triggers.next().unwrap_or_else(|| Trigger::new(or)),
            rest: triggers.collect(),
        }
    }

    /// Adds what came to it.
    pub(in crate::group) fn and(mut self, trigger: Trigger) -> Self {
        self.rest.push(trigger);
        self
    }

    /// Puts what came before in front.
    pub(in crate::group) fn after(self, mut before: Vec<Trigger>) -> Self {
        let or = self.first.cause;
        before.extend(self);
        Self::of(before, or)
    }
}

impl From<Cause> for Triggers {
    fn from(cause: Cause) -> Self {
        Trigger::new(cause).into()
    }
}

impl From<Trigger> for Triggers {
    fn from(first: Trigger) -> Self {
        Self {
            first,
            rest: Vec::new(),
        }
    }
}

impl IntoIterator for Triggers {
    type Item = Trigger;
    type IntoIter = std::iter::Chain<std::iter::Once<Trigger>, std::vec::IntoIter<Trigger>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::once(self.first).chain(self.rest)
    }
}

impl Trigger {
    /// A trigger of this kind, whose moment is when it is told.
    #[must_use]
    pub fn new(cause: Cause) -> Self {
        Self {
            cause,
            member: None,
            detail: None,
            at: Millis::default(),
        }
    }

    /// It is this member's doing.
    #[must_use]
    pub fn by(mut self, member: MemberRef) -> Self {
        self.member = Some(member);
        self
    }

    /// What else is known of it.
    #[must_use]
    pub fn detail(mut self, detail: Option<Arc<str>>) -> Self {
        self.detail = detail.filter(|detail| !detail.is_empty());
        self
    }

    /// An operator asked for it: who, and what.
    #[must_use]
    pub fn operator(operator: &str, what: &str) -> Self {
        Self::new(Cause::Operator).detail(Some(format!("{operator}: {what}").into()))
    }
}
