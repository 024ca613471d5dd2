//! What a group sets for itself by an operator's order. The server keeps it with the GROUP configs and tells the
//! coordinator by `configure_group`; here it is checked, and set until then.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use crate::group::Coordinator;
use crate::group::operator::{NotDone, Operated, Setting};
use crate::group::timers::Timer;
use crate::group::types::{GroupId, Millis, TopicName};

impl Setting {
    /// Every setting.
    pub const ALL: [Self; 3] = [Self::OffsetsRetentionMs, Self::MembersMax, Self::OffsetsMax];

    /// The GROUP config that it is.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::OffsetsRetentionMs => "convoke.offsets.retention.ms",
            Self::MembersMax => "convoke.group.max.members",
            Self::OffsetsMax => "convoke.group.max.offsets",
        }
    }

    /// The values that make sense.
    #[must_use]
    pub const fn bounds(self) -> RangeInclusive<i64> {
        match self {
            Self::OffsetsRetentionMs => -1..=i64::MAX,
            Self::MembersMax | Self::OffsetsMax => 1..=i32::MAX as i64,
        }
    }
}

impl Coordinator {
    /// Members must own more, or less, than they have been told: the group has been paused by its settings, or is so no
    /// longer. Its timer tells them.
    pub(in crate::group) fn must_tell_members(&mut self, group_id: &GroupId) {
        let orders = self.orders.entry(group_id.clone()).or_default();
        orders.pause_changed = true;
        self.timers
            .arm(Timer::Operation(group_id.clone()), Millis::default());
    }

    /// Whether the target of a consumer group lists every partition that its members subscribe to.
    pub(in crate::group) fn target_is_whole(&self, group_id: &str) -> bool {
        let Some(group) = self.state.consumer(group_id) else {
            return true;
        };
        if group.awaits_target() {
            // It will be.
            return true;
        }
        let resolved = group.regexes().flat_map(|(_, regex)| &regex.topics);
        let names: BTreeSet<&TopicName> = group.names().chain(resolved).collect();
        let topics = names.into_iter().filter_map(|name| self.topics.get(name));
        let wanted: usize = topics
            .map(|topic| usize::try_from(topic.partitions).unwrap_or(0))
            .sum();
        let members = group.members().flat_map(|(_, member)| member.target());
        let listed: usize = members.map(|(_, partitions)| partitions.len()).sum();
        listed >= wanted
    }

    /// The most members of a group: its own limit, where that is lower.
    pub(in crate::group) fn members_max(&self, group_id: &str, limit: usize) -> usize {
        let own = self.overrides.get(group_id).and_then(|own| own.members_max);
        own.and_then(|own| usize::try_from(own).ok())
            .map_or(limit, |own| own.min(limit))
    }

    /// How many more partitions a group may keep an offset for; `None` for no limit.
    pub(in crate::group) fn offsets_left(&self, group_id: &str) -> Option<usize> {
        let own = self.overrides.get(group_id)?.offsets_max?;
        let offsets = self.state.group(group_id).map(|entry| &entry.offsets);
        let count: usize = offsets
            .into_iter()
            .flat_map(|offsets| offsets.topics())
            .map(|(_, of_it)| of_it.len())
            .sum();
        Some(usize::try_from(own).unwrap_or(0).saturating_sub(count))
    }

    /// How long a group's offsets are kept; `None` for ever.
    pub(in crate::group) fn retention_ms(&self, group_id: &str) -> Option<i64> {
        let own = self
            .overrides
            .get(group_id)
            .and_then(|own| own.offsets_retention_ms);
        Some(own.unwrap_or(self.config.offsets_retention_ms)).filter(|ms| *ms >= 0)
    }

    /// A group need not exist to be configured.
    pub(super) fn configure_by_order(
        &mut self,
        group_id: &GroupId,
        settings: &[(Setting, Option<i64>)],
        dry_run: bool,
    ) -> Result<Operated, NotDone> {
        if group_id.is_empty() {
            return Err(NotDone::invalid("A group without an id has no settings."));
        }
        let mut overrides = self.overridden(group_id);
        for (setting, value) in settings {
            if let Some(value) = value
                && !setting.bounds().contains(value)
            {
                return Err(NotDone::invalid(format!(
                    "{} must be from {} to {}.",
                    setting.key(),
                    setting.bounds().start(),
                    setting.bounds().end()
                )));
            }
            overrides.set(*setting, *value);
        }
        if !dry_run {
            self.configure_group(group_id, overrides);
        }
        Ok(Operated::default())
    }
}
