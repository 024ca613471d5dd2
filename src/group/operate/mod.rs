//! What operators do to groups while they run: reset, kick, drain, pause, resume, rebalance, delete, configure.
//!
//! An action is answered when it is done. Until then it is an [`Operation`]: soft state, of which a group has one at a
//! time, and which a deadline ends in any case. Nothing it does half is recorded: offsets move in one batch.

mod reset;
mod settings;

use super::classic::Phase;
use super::operator::{Action, NotDone, Operate, Operated};
use super::request::{Reply, RequestId};
use super::types::{GroupId, Millis};
use super::{Actions, Coordinator};

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
        let outcome = match request.action {
            Action::Reset(moves) => self.reset(now, &group_id, &moves, request.dry_run, actions),
            Action::Delete => self.delete_by_order(&group_id, request.dry_run, actions),
            Action::Configure(settings) => {
                self.configure_by_order(&group_id, &settings, request.dry_run)
            }
            Action::Kick { .. }
            | Action::Drain { .. }
            | Action::Pause
            | Action::Resume
            | Action::Rebalance => Err(NotDone::conflict(format!(
                "Group {group_id} has no members."
            ))),
        };
        actions.reply(id, &group_id, Reply::Operated(outcome));
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

    /// Whether somebody is in the group.
    pub(super) fn has_members(&self, group_id: &str) -> bool {
        let classic = self.classic.get(group_id);
        classic.is_some_and(|group| group.phase() != Phase::Empty)
            || self
                .state
                .consumer(group_id)
                .is_some_and(|group| !group.is_empty())
    }
}

#[cfg(test)]
mod tests;
