//! Members that are kept out for a while. Soft state: after a restart everybody may come.
//!
//! Whoever may not join is told COORDINATOR_LOAD_IN_PROGRESS: Java, librdkafka and franz-go wait and ask again, with
//! either protocol, so that a member comes back by itself when its time is over. GROUP_MAX_SIZE_REACHED would end
//! librdkafka and Java for good.

use crate::group::Coordinator;
use crate::group::operator::Who;
use crate::group::types::{Client, GroupId, InstanceId, Millis};

/// The most bans of one group.
const BANS_MAX: usize = 1_000;

/// One of them.
#[derive(Debug)]
pub(super) struct Ban {
    who: Who,
    /// A dynamic classic member comes back under another id: it is known by its client id and address.
    client: Option<Client>,
    until: Millis,
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

    /// Who is kept out of a group, each with until when.
    pub(in crate::group) fn bans(&self, now: Millis, group_id: &str) -> Vec<(Who, Millis)> {
        let bans = self.orders.get(group_id).map(|orders| &orders.bans);
        let standing = bans.into_iter().flatten().filter(|ban| ban.until > now);
        standing.map(|ban| (ban.who.clone(), ban.until)).collect()
    }
}
