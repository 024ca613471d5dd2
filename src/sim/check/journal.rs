//! What the journal says, held against the facts: epochs, phases, and moves that add up to who has what.

use std::collections::BTreeMap;

use super::Verdict;
use crate::group::Coordinator;
use crate::group::operator::{Inspected, Rebalance};
use crate::group::types::{GroupId, MemberId, Millis, TopicName};

/// What a member is called across its ids.
type Name = MemberId;
/// Who has which partition.
type Owners = BTreeMap<(TopicName, i32), Name>;

/// What was read of the journals.
#[derive(Debug, Default)]
pub(super) struct Journals(BTreeMap<GroupId, Followed>);

#[derive(Debug, Default)]
struct Followed {
    /// The newest entry that is over.
    number: u64,
    /// As of that entry; `None` if it is not known.
    owners: Option<Owners>,
    /// Every id that was seen.
    names: BTreeMap<MemberId, Name>,
}

impl Journals {
    /// The journals are gone, or what they tell of may be.
    pub(super) fn lose(&mut self) {
        self.0.clear();
    }

    /// Topics went: what was told of them before, or is still to be told of that time, adds up to nothing.
    pub(super) fn topics_went(&mut self) {
        for followed in self.0.values_mut() {
            followed.owners = None;
        }
    }

    /// Reads on in the journal of a group. `adds_up`: whether its moves can be followed.
    pub(super) fn read(
        &mut self,
        now: Millis,
        coordinator: &Coordinator,
        group_id: &GroupId,
        adds_up: bool,
    ) -> Verdict {
        let Some((number, is_over)) = coordinator.newest_rebalance(group_id) else {
            self.0.remove(group_id);
            return Ok(());
        };
        let over = if is_over { number } else { number - 1 };
        let known = self.0.get(group_id).map(|followed| followed.number);
        if known == Some(over) {
            return Ok(());
        }
        if known.is_none() {
            // What it tells of earlier times may not have become durable.
            let followed = self.0.entry(group_id.clone()).or_default();
            followed.number = over;
            return Ok(());
        }
        let Some(inspected) = coordinator.inspected(now, group_id) else {
            return Err("the journal tells of a group that is not there".to_owned());
        };
        let followed = self.0.entry(group_id.clone()).or_default();
        if known.is_some_and(|known| known > over) {
            // It was deleted, and made again.
            *followed = Followed::default();
            followed.number = over;
        }
        for member in &inspected.members {
            let id = member.member.member_id.clone();
            let name = member
                .member
                .instance_id
                .clone()
                .unwrap_or_else(|| id.clone());
            followed.names.insert(id, name);
        }
        let entries = inspected.rebalances.iter().rev();
        let read = followed.number;
        for entry in entries.filter(|e| e.number > read && e.ended_at.is_some()) {
            if entry.number != followed.number + 1 {
                followed.owners = None;
            }
            followed.number = entry.number;
            followed.take(entry);
            check(entry)?;
        }
        if is_over && adds_up {
            followed.compare(&inspected)?;
        }
        Ok(())
    }
}

/// What holds for every entry by itself.
fn check(entry: &Rebalance) -> Verdict {
    let ended_at = entry.ended_at.unwrap_or_default();
    let phases: i64 = entry.phases.iter().map(|(_, ms)| ms).sum();
    if phases != ended_at.since(entry.began_at) {
        return Err(format!("the phases are not the whole: {entry:?}"));
    }
    if entry.triggers.is_empty() || entry.why.is_empty() {
        return Err(format!("nobody knows why: {entry:?}"));
    }
    if entry.outcome == "completed" && entry.to_epoch <= entry.from_epoch {
        return Err(format!("the epoch did not rise: {entry:?}"));
    }
    Ok(())
}

impl Followed {
    fn name(&self, id: &MemberId) -> Name {
        self.names.get(id).unwrap_or(id).clone()
    }

    /// Applies the moves of an entry.
    fn take(&mut self, entry: &Rebalance) {
        let unknown = |to: &MemberId| !self.names.contains_key(to);
        if entry.outcome == "interrupted"
            || entry.moves.len() < entry.moved_count
            || entry
                .moves
                .iter()
                .filter_map(|m| m.to.as_ref())
                .any(unknown)
        {
            self.owners = None;
        }
        let Some(mut owners) = self.owners.take() else {
            return;
        };
        for moved in &entry.moves {
            let place = (moved.topic.clone(), moved.partition);
            match &moved.to {
                Some(to) => owners.insert(place, self.name(to)),
                None => owners.remove(&place),
            };
        }
        self.owners = Some(owners);
    }

    /// After the newest entry: the epoch is the group's, and everybody has what the moves give it.
    fn compare(&mut self, inspected: &Inspected) -> Verdict {
        let Some(entry) = inspected.rebalances.first() else {
            return Ok(());
        };
        if entry.outcome != "completed" {
            return Ok(());
        }
        if entry.to_epoch != inspected.summary.epoch {
            return Err(format!(
                "the journal ends at {}, the group is at {}",
                entry.to_epoch, inspected.summary.epoch
            ));
        }
        let mut has = Owners::new();
        for member in &inspected.members {
            let name = self.name(&member.member.member_id);
            for (topic, partitions) in &member.target {
                for partition in partitions {
                    has.entry((topic.clone(), *partition))
                        .or_insert_with(|| name.clone());
                }
            }
        }
        if entry.stayed_count + entry.moved_count < has.len() {
            return Err(format!("{} partitions are owned: {entry:?}", has.len()));
        }
        let known = self.owners.replace(has.clone());
        match known {
            Some(told) if told != has => Err(format!(
                "the moves do not add up: told {told:?}, has {has:?}, {entry:?}"
            )),
            _ => Ok(()),
        }
    }
}
