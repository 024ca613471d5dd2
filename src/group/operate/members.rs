//! Actions on single members: who is meant, kick, drain.

use std::collections::BTreeSet;

use super::operation::Task;
use crate::group::journal::Triggers;
use crate::group::operator::{MemberChange, MemberRef, NotDone, NotDoneKind, Operated, Who};
use crate::group::stats::Cause;
use crate::group::types::{Client, GroupId, MemberId, Millis};
use crate::group::{Actions, Coordinator};

impl Coordinator {
    /// The members that are meant.
    ///
    /// # Errors
    /// There is no such member.
    pub(super) fn who(&self, group_id: &str, who: &Who) -> Result<Vec<MemberRef>, NotDone> {
        let is_meant = |member: &MemberRef| match who {
            Who::Member(id) => member.member_id == *id,
            Who::Instance(id) => member.instance_id.as_ref() == Some(id),
            Who::Client(id) => member.client_id == *id,
        };
        let members = self.member_refs(group_id);
        let meant: Vec<MemberRef> = members.into_iter().filter(is_meant).collect();
        if meant.is_empty() {
            let (what, name) = match who {
                Who::Member(id) => ("member", id),
                Who::Instance(id) => ("member with group instance id", id),
                Who::Client(id) => ("member with client id", id),
            };
            return Err(NotDone {
                kind: NotDoneKind::NotFound,
                message: format!("Group {group_id} has no {what} {name}."),
            });
        }
        Ok(meant)
    }

    pub(super) fn member_refs(&self, group_id: &str) -> Vec<MemberRef> {
        if let Some(group) = self.state.consumer(group_id) {
            let members = group.members();
            return members
                .map(|(member_id, member)| member.member_ref(member_id))
                .collect();
        }
        let group = self.classic.get(group_id);
        let members = group.into_iter().flat_map(|group| {
            let ids = group.members().map(|(member_id, _)| member_id);
            ids.map(move |member_id| group.member_ref(member_id))
        });
        members.collect()
    }

    /// Removes members, and keeps them out for a while. What they had is free at once, as after a session timeout.
    pub(super) fn kick(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        (members, ban_ms): (&[Who], i64),
        dry_run: bool,
        actions: &mut Actions,
    ) -> Result<Operated, NotDone> {
        if members.is_empty() {
            return Err(NotDone::invalid("No member was named."));
        }
        if ban_ms < 0 {
            return Err(NotDone::invalid("A ban must be 0 ms or more."));
        }
        if !self.exists(group_id) {
            return Err(NotDone::no_group(group_id));
        }
        let mut meant = Vec::new();
        for who in members {
            meant.push((who, self.who(group_id, who)?));
        }
        let ids: BTreeSet<MemberId> = meant
            .iter()
            .flat_map(|(_, members)| members.iter().map(|member| member.member_id.clone()))
            .collect();
        let mut done = Operated::default();
        for (member, owned) in self.owned(group_id) {
            if ids.contains(&member.member_id) {
                let each = owned.into_iter();
                let gives_up = each
                    .flat_map(|(topic, of_it)| of_it.into_iter().map(move |p| (topic.clone(), p)))
                    .collect();
                done.members.push(MemberChange {
                    member,
                    change: "removed",
                    gives_up,
                });
            }
        }
        let is_classic = self.state.consumer(group_id).is_none();
        let by_address = |who: &Who, member: &MemberRef| {
            let anonymous = matches!(who, Who::Member(_)) && member.instance_id.is_none();
            (anonymous && ban_ms > 0).then(|| Client {
                id: member.client_id.clone(),
                host: member.client_host.clone(),
            })
        };
        let mut bans = Vec::new();
        for (who, members) in &meant {
            let client = members.first().and_then(|member| by_address(who, member));
            if let Some(client) = &client {
                done.notes.push(format!(
                    "A dynamic member may come back under another id: until the ban ends, nobody new with client id {:?} joins from {}.",
                    client.id, client.host
                ));
            }
            bans.push(((*who).clone(), client));
        }
        if ban_ms == 0 {
            done.notes
                .push("Without a ban, a running member joins again at once.".to_owned());
        }
        if dry_run {
            return Ok(done);
        }
        if ban_ms > 0 {
            for (who, client) in bans {
                self.ban(now, group_id, who, client, ban_ms);
            }
        }
        let ids: Vec<MemberId> = ids.into_iter().collect();
        if !is_classic {
            let why = self.journal.by_operator(group_id).detail;
            self.remove_members(now, group_id, &ids, Cause::Operator, why, actions);
        } else if let Some(mut group) = self.classic.remove(&**group_id) {
            let mut why = Vec::new();
            for member_id in &ids {
                let trigger = self.journal.by_operator(group_id);
                why.push(trigger.by(group.member_ref(member_id)));
                self.expel(group_id, &mut group, member_id, actions);
            }
            let why = Triggers::of(why, Cause::Operator);
            self.rebalance(now, group_id, &mut group, why, actions);
            self.keep(group_id.clone(), group);
        }
        Ok(done)
    }

    /// The members that are to be drained, as a task.
    pub(super) fn plan_drain(&self, group_id: &GroupId, who: &Who) -> Result<Task, NotDone> {
        if !self.exists(group_id) {
            return Err(NotDone::no_group(group_id));
        }
        let members = self.who(group_id, who)?;
        self.check_assignable(group_id)?;
        let ids = members.into_iter().map(|member| member.member_id);
        Ok(Task::Drain(ids.collect()))
    }
}
