//! Which replies wait for the log, and for how long: the order of effects. Not here: the log.

use std::collections::VecDeque;

use hashbrown::HashMap;

use crate::group::After;
use crate::group::record::Record;
use crate::group::request::Reply;
use crate::group::types::{GroupId, Millis};

#[derive(Debug)]
struct Held<T, P> {
    /// Leaves when the log is durable up to here.
    until: P,
    since: Millis,
    to: T,
    reply: Reply,
}

/// Replies that wait for the log, and what they wait for.
#[derive(Debug)]
pub(super) struct Order<T, P> {
    /// In the order in which they were given.
    held: VecDeque<Held<T, P>>,
    /// Where each group's newest record lies that is not durable yet.
    dirty: HashMap<GroupId, P>,
    /// The same by position, to clear `dirty` by.
    unconfirmed: VecDeque<(P, Vec<GroupId>)>,
}

impl<T, P: Copy + Ord> Order<T, P> {
    pub(super) fn new() -> Self {
        Self {
            held: VecDeque::new(),
            dirty: HashMap::new(),
            unconfirmed: VecDeque::new(),
        }
    }

    /// Whether everything that was appended is durable.
    pub(super) fn is_settled(&self) -> bool {
        self.unconfirmed.is_empty()
    }

    /// Since when the oldest reply waits.
    pub(super) fn oldest(&self) -> Option<Millis> {
        self.held.front().map(|held| held.since)
    }

    /// These records are in the log, and durable with it up to `position`.
    pub(super) fn appended(&mut self, position: P, records: impl Iterator<Item = Record>) {
        let mut groups: Vec<GroupId> = Vec::new();
        for record in records {
            let group_id = record.group_id();
            if groups.last() != Some(group_id) {
                self.dirty.insert(group_id.clone(), position);
                groups.push(group_id.clone());
            }
        }
        self.unconfirmed.push_back((position, groups));
    }

    /// Gives a reply back if it could have seen nothing that is not durable, and keeps it otherwise.
    pub(super) fn pass(
        &mut self,
        now: Millis,
        to: T,
        reply: Reply,
        after: &After,
    ) -> Option<(T, Reply)> {
        let until = match after {
            After::Group(_) if self.dirty.is_empty() => None,
            After::Group(group_id) => self.dirty.get(group_id).copied(),
            After::Shard => self.unconfirmed.back().map(|(position, _)| *position),
        };
        let Some(until) = until else {
            return Some((to, reply));
        };
        self.held.push_back(Held {
            until,
            since: now,
            to,
            reply,
        });
        None
    }

    /// The log is durable up to here. What may leave goes to `leave`, in order, with how long it has waited.
    pub(super) fn confirm(
        &mut self,
        now: Millis,
        durable: P,
        mut leave: impl FnMut(T, Reply, i64),
    ) {
        let mut moved = false;
        while self
            .unconfirmed
            .front()
            .is_some_and(|(position, _)| *position <= durable)
        {
            let Some((position, groups)) = self.unconfirmed.pop_front() else {
                break;
            };
            moved = true;
            for group_id in groups {
                // A later record keeps the group dirty.
                if self.dirty.get(&group_id) == Some(&position) {
                    self.dirty.remove(&group_id);
                }
            }
        }
        if !moved {
            return;
        }
        // A reply may wait for an older position than the one before it: all that are due leave, in order.
        for held in std::mem::take(&mut self.held) {
            if held.until <= durable {
                leave(held.to, held.reply, now.since(held.since));
            } else {
                self.held.push_back(held);
            }
        }
    }

    /// The oldest reply, if it has waited for `patience_ms`.
    pub(super) fn overdue(&mut self, now: Millis, patience_ms: i64) -> Option<(T, Reply)> {
        let since = self.oldest()?;
        if now.since(since) < patience_ms {
            return None;
        }
        self.held.pop_front().map(|held| (held.to, held.reply))
    }

    /// Nothing more will become durable. Gives everything that waits.
    pub(super) fn give_up(&mut self) -> impl Iterator<Item = (T, Reply)> + '_ {
        self.unconfirmed.clear();
        self.dirty.clear();
        self.held.drain(..).map(|held| (held.to, held.reply))
    }
}
