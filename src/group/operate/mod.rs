//! What operators do to groups while they run: reset, kick, drain, pause, resume, rebalance, delete, configure.
//!
//! An action is answered when it is done. Until then it is an [`operation`]: soft state, of which a group has one at a
//! time, and which a deadline ends in any case. What it has in mind stands in [`orders`]: what members must not own for
//! now. Nothing that it does half is recorded: offsets move in one batch, when nobody owns their partitions; a
//! coordinator that is loaded again knows of no operation, and members get back what they had.

mod bans;
mod caps;
mod fence;
mod members;
mod operation;
mod orders;
mod preview;
mod reset;
mod settings;

pub(super) use caps::Counted;
pub use caps::{Caps, GroupCaps};
pub(super) use orders::{Clearing, Orders};

use super::classic::Phase;
use super::operator::{Action, NotDone, Operate, Operated, Setting, Who};
use super::request::{Reply, Request, RequestId};
use super::timers::Timer;
use super::types::{GroupId, Millis};
use super::{Actions, Coordinator};
use operation::Task;

impl Coordinator {
    /// An operator's action.
    pub(super) fn operate(
        &mut self,
        now: Millis,
        id: RequestId,
        request: Operate,
        actions: &mut Actions,
    ) {
        let group_id = request.group_id.clone();
        self.drop_old_fences(now, &group_id);
        match self.act(now, id, request, actions) {
            Ok(None) => self.progress(now, &group_id, actions),
            Ok(Some(done)) => actions.reply(id, &group_id, Reply::Operated(Ok(done))),
            Err(why) => actions.reply(id, &group_id, Reply::Operated(Err(why))),
        }
        self.tidy_orders(&group_id);
    }

    /// `None`: it has begun, and is answered when it is done.
    fn act(
        &mut self,
        now: Millis,
        id: RequestId,
        request: Operate,
        actions: &mut Actions,
    ) -> Result<Option<Operated>, NotDone> {
        let (group_id, dry_run) = (&request.group_id, request.dry_run);
        self.check_free(group_id, &request.action)?;
        if (!dry_run || request.announces) && self.exists(group_id) {
            let action = request.action.name();
            self.journal.operated(group_id, &request.operator, action);
        }
        let task = match &request.action {
            Action::Reset(moves) => match self.reset(now, group_id, moves, dry_run, actions)? {
                Some(done) => return Ok(Some(done)),
                None => Task::Reset(moves.clone()),
            },
            Action::Drain { member } => self.plan_drain(group_id, member)?,
            Action::Pause => {
                if !self.exists(group_id) {
                    return Err(NotDone::no_group(group_id));
                }
                self.check_assignable(group_id)?;
                Task::Pause
            }
            Action::Kick { members, ban_ms } => {
                let what = (&members[..], *ban_ms);
                return self.kick(now, group_id, what, dry_run, actions).map(Some);
            }
            Action::Resume => return self.resume(now, group_id, dry_run, actions).map(Some),
            Action::Rebalance => {
                return self
                    .rebalance_by_order(now, group_id, dry_run, actions)
                    .map(Some);
            }
            Action::Delete => return self.delete_by_order(group_id, dry_run, actions).map(Some),
            Action::Configure(settings) => {
                return self
                    .configure_by_order(group_id, settings, dry_run)
                    .map(Some);
            }
        };
        if dry_run {
            return Ok(Some(Operated {
                members: self.concerned(group_id, &task),
                ..Operated::default()
            }));
        }
        self.start(now, id, group_id, task);
        Ok(None)
    }

    /// One action at a time; but a pause that does not come to its end can be ended, and who is stuck can be kicked.
    fn check_free(&self, group_id: &GroupId, action: &Action) -> Result<(), NotDone> {
        let operation = self
            .orders
            .get(&**group_id)
            .and_then(|orders| orders.operation.as_ref());
        match (action, operation) {
            (_, None) | (Action::Kick { .. } | Action::Configure(_), _) => Ok(()),
            (Action::Resume, Some(operation)) if operation.is_pause() => Ok(()),
            (_, Some(operation)) => Err(NotDone::conflict(format!(
                "Another action on group {group_id} is under way. {} Wait for its end.",
                operation.sentence()
            ))),
        }
    }

    /// Ends a pause.
    fn resume(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        dry_run: bool,
        actions: &mut Actions,
    ) -> Result<Operated, NotDone> {
        if dry_run {
            return Ok(Operated::default());
        }
        let mut own = self.overridden(group_id);
        let was_paused = std::mem::take(&mut own.paused);
        self.set_overrides(group_id, own);
        let orders = self.orders.get_mut(&**group_id);
        let untold = orders.is_some_and(|orders| std::mem::take(&mut orders.pause_changed));
        if was_paused || untold {
            self.tell_members(now, group_id, actions);
        }
        // A pause under way ends with it.
        self.progress(now, group_id, actions);
        if untold {
            self.rearm(group_id);
        }
        Ok(Operated::default())
    }

    /// Assigns anew. Answered when it has begun.
    fn rebalance_by_order(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        dry_run: bool,
        actions: &mut Actions,
    ) -> Result<Operated, NotDone> {
        if !self.exists(group_id) {
            return Err(NotDone::no_group(group_id));
        }
        if !self.has_members(group_id) {
            return Err(NotDone::conflict(format!(
                "Group {group_id} has no members."
            )));
        }
        if !dry_run {
            self.tell_members(now, group_id, actions);
        }
        Ok(Operated::default())
    }

    /// Forgets a group and its offsets.
    fn delete_by_order(
        &mut self,
        group_id: &GroupId,
        dry_run: bool,
        actions: &mut Actions,
    ) -> Result<Operated, NotDone> {
        if !self.exists(group_id) {
            return Err(NotDone::no_group(group_id));
        }
        if self.has_members(group_id) {
            return Err(NotDone::conflict(format!(
                "Group {group_id} has members; stop them before it is deleted."
            )));
        }
        let offsets = self.offsets_that_go(group_id);
        if !dry_run {
            self.erase(group_id, actions);
        }
        Ok(Operated {
            offsets,
            ..Operated::default()
        })
    }

    /// The group of a request, if an action on it is under way.
    pub(super) fn under_orders(&self, request: &Request) -> Option<GroupId> {
        if self.orders.is_empty() {
            return None;
        }
        let group_id = request.group_id()?;
        self.orders.get(&**group_id)?.operation.as_ref()?;
        Some(group_id.clone())
    }

    /// Whether somebody is in the group.
    pub(super) fn has_members(&self, group_id: &str) -> bool {
        let classic = self.classic.get(group_id);
        classic.is_some_and(|group| group.phase() != Phase::Empty)
            || self
                .state
                .consumer(group_id)
                .is_some_and(|group| !group.is_empty())
    }

    /// Points the timer of a group's orders at what it is for, or disarms it.
    fn rearm(&mut self, group_id: &GroupId) {
        let timer = Timer::Operation(group_id.clone());
        let orders = self.orders.get(&**group_id);
        match orders.and_then(|orders| orders.operation.as_ref()) {
            Some(operation) => self.timers.arm(timer, operation.deadline()),
            None => self.timers.cancel(&timer),
        }
    }

    /// What a group has been set by an operator.
    pub(super) fn settings(&self, group_id: &str) -> Vec<(Setting, i64)> {
        let own = self.overridden(group_id);
        let set = Setting::ALL.into_iter();
        set.filter_map(|setting| Some((setting, own.get(setting)?)))
            .collect()
    }

    /// Who is kept out of a group, each with until when.
    pub(super) fn banned(&self, now: Millis, group_id: &str) -> Vec<(Who, Millis)> {
        self.bans(now, group_id)
    }

    /// The action under way, in a sentence.
    pub(super) fn operation_sentence(&self, group_id: &str) -> Option<String> {
        let orders = self.orders.get(group_id)?;
        orders
            .operation
            .as_ref()
            .map(|operation| operation.sentence())
    }
}

#[cfg(test)]
mod tests;
