//! Members that are kept out for a while. Soft state: after a restart everybody may come.
//!
//! Whoever may not join is told COORDINATOR_LOAD_IN_PROGRESS: Java, librdkafka and franz-go wait and ask again, with
//! either protocol, so that a member comes back by itself when its time is over. GROUP_MAX_SIZE_REACHED would end
//! librdkafka and Java for good. They are told late: a Java member of the consumer protocol that is refused when it joins asks
//! again at once, thousands of times a second, and heeds no throttle time there.

use crate::group::operator::Who;
use crate::group::request::{Reply, RequestId};
use crate::group::timers::Timer;
use crate::group::types::{Client, GroupId, InstanceId, Millis};
use crate::group::{Actions, Coordinator};

/// The most bans of one group.
const BANS_MAX: usize = 1_000;
/// How long a refusal is held back: so often somebody who is kept out asks. Below any client's request timeout.
const HELD_BACK_MS: i64 = 1_000;

/// A refusal that is held back.
#[derive(Debug)]
pub(super) struct Late {
    due: Millis,
    id: RequestId,
    reply: Reply,
}

/// One of them.
#[derive(Debug)]
pub(super) struct Ban {
    who: Who,
    /// A dynamic classic member comes back under another id, and so does franz-go's of the consumer protocol: it is known
    /// by its client id and address.
    client: Option<Client>,
    until: Millis,
}

impl Late {
    /// Says so now.
    pub(super) fn say(self, group_id: &GroupId, actions: &mut Actions) {
        actions.reply(self.id, group_id, self.reply);
    }
}

impl Coordinator {
    pub(super) fn ban(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        who: Who,
        client: Option<Client>,
        ban_ms: i64,
    ) {
        let orders = self.orders.entry(group_id.clone()).or_default();
        orders.bans.retain(|ban| ban.until > now && ban.who != who);
        if orders.bans.len() == BANS_MAX {
            orders.bans.remove(0);
        }
        orders.bans.push(Ban {
            who,
            client,
            until: now.plus(ban_ms),
        });
    }

    /// Until when somebody who is no member must not become one.
    pub(in crate::group) fn banned_until(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        member_id: &str,
        instance_id: Option<&InstanceId>,
        client: &Client,
    ) -> Option<Millis> {
        let orders = self.orders.get_mut(group_id)?;
        if orders.bans.is_empty() {
            return None;
        }
        orders.bans.retain(|ban| ban.until > now);
        let hits = |ban: &&Ban| {
            let by_name = match &ban.who {
                Who::Member(id) => **id == *member_id,
                Who::Instance(id) => instance_id == Some(id),
                Who::Client(id) => *id == client.id,
            };
            by_name || ban.client.as_ref() == Some(client)
        };
        let until = orders.bans.iter().filter(hits).map(|ban| ban.until).max();
        self.tidy_orders(group_id);
        until
    }

    /// Refuses somebody who may not join yet, after a while.
    pub(in crate::group) fn refuse_late(
        &mut self,
        now: Millis,
        id: RequestId,
        group_id: &GroupId,
        reply: Reply,
    ) {
        let orders = self.orders.entry(group_id.clone()).or_default();
        let ends = orders.bans.iter().map(|ban| ban.until);
        let due = ends.fold(now.plus(HELD_BACK_MS), Millis::min);
        orders.late.push(Late { due, id, reply });
        self.arm_late(group_id);
    }

    fn arm_late(&mut self, group_id: &GroupId) {
        let orders = self.orders.get(&**group_id);
        let late = orders.into_iter().flat_map(|orders| &orders.late);
        if let Some(due) = late.map(|late| late.due).min() {
            self.timers.arm(Timer::Refusal(group_id.clone()), due);
        }
    }

    /// Refusals have been held back for long enough.
    pub(in crate::group) fn refusals_due(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        actions: &mut Actions,
    ) {
        let Some(orders) = self.orders.get_mut(group_id) else {
            return;
        };
        for late in orders.late.extract_if(.., |late| late.due <= now) {
            late.say(group_id, actions);
        }
        self.arm_late(group_id);
        self.tidy_orders(group_id);
    }

    /// Who is kept out of a group, each with until when.
    pub(in crate::group) fn bans(&self, now: Millis, group_id: &str) -> Vec<(Who, Millis)> {
        let bans = self.orders.get(group_id).map(|orders| &orders.bans);
        let standing = bans.into_iter().flatten().filter(|ban| ban.until > now);
        standing.map(|ban| (ban.who.clone(), ban.until)).collect()
    }
}
