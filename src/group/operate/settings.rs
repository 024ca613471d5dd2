//! What a group sets for itself by an operator's order. The server keeps it with the GROUP configs and tells the
//! coordinator by `configure_group`; here it is checked, and set until then.

use std::ops::RangeInclusive;

use crate::group::Coordinator;
use crate::group::operator::{NotDone, Operated, Setting};
use crate::group::types::GroupId;

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
