//! Moving committed offsets: what is asked for, what comes of it, and the records that do it.

use std::collections::BTreeSet;

use super::operation::Task;
use super::orders::Partitions;
use crate::group::operator::{Aim, AuditEntry, Move, NotDone, OffsetChange, Operated};
use crate::group::record::{OffsetValue, Record};
use crate::group::types::{GroupId, Millis};
use crate::group::{Actions, Coordinator};

/// One offset as it will be.
#[derive(Debug)]
pub(super) struct Planned {
    change: OffsetChange,
    value: Option<OffsetValue>,
}

impl Coordinator {
    /// Moves the offsets of a group without members, or tells what a move would do. `None`: members must let go first.
    pub(super) fn reset(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        moves: &[Move],
        dry_run: bool,
        actions: &mut Actions,
    ) -> Result<Option<Operated>, NotDone> {
        self.check_moves(group_id, moves)?;
        let is_running = self.has_members(group_id);
        if is_running {
            self.check_assignable(group_id)?;
            if !dry_run {
                return Ok(None);
            }
        }
        let (planned, notes) = self.plan_moves(now, group_id, moves);
        let mut offsets: Vec<_> = planned.iter().map(|plan| plan.change.clone()).collect();
        let mut members = Vec::new();
        if is_running {
            members = self.concerned(group_id, &Task::Reset(moves.to_vec()));
            for change in &mut offsets {
                let partition = (change.topic.clone(), change.partition);
                let owner = members.iter().find(|m| m.gives_up.contains(&partition));
                change.held_by = owner.map(|owner| owner.member.member_id.clone());
            }
        }
        if !dry_run {
            self.move_offsets(now, group_id, planned, actions);
        }
        Ok(Some(Operated {
            offsets,
            members,
            notes,
            ..Operated::default()
        }))
    }

    /// What can be wrong with moves whatever the group is doing.
    pub(super) fn check_moves(&self, group_id: &GroupId, moves: &[Move]) -> Result<(), NotDone> {
        if moves.is_empty() {
            return Err(NotDone::invalid(
                "No partition was named whose offset is to be moved.",
            ));
        }
        let makes = moves.iter().all(|m| matches!(m.to, Aim::Exact { .. }));
        if !makes && !self.exists(group_id) {
            return Err(NotDone::no_group(group_id));
        }
        let mut seen = BTreeSet::new();
        for Move {
            topic,
            partition,
            to,
        } in moves
        {
            let wrong = |what: &str| {
                Err(NotDone::invalid(format!(
                    "{topic} partition {partition}: {what}."
                )))
            };
            if !seen.insert((topic, *partition)) {
                return wrong("it is named twice");
            }
            match to {
                Aim::Exact { offset, .. } if *offset < 0 => {
                    return wrong("the offset must be 0 or more");
                }
                Aim::Exact { metadata, .. }
                    if metadata.encode_utf16().count() > self.config.offset_metadata_max_units =>
                {
                    return wrong("the note is longer than offset.metadata.max.bytes");
                }
                Aim::Shift { low, high, .. } if low > high || *low < 0 => {
                    return wrong("its bounds are no bounds");
                }
                // What is no longer there can still be forgotten.
                Aim::Forget => continue,
                Aim::Exact { .. } | Aim::Shift { .. } => {}
            }
            match self.topics.get(topic) {
                None => return wrong("there is no such topic"),
                Some(there) if !(0..there.partitions).contains(partition) => {
                    return wrong("there is no such partition");
                }
                Some(_) => {}
            }
        }
        Ok(())
    }

    /// What would become of the offsets if they were moved now. What cannot be moved is left out, with a note.
    pub(super) fn plan_moves(
        &self,
        now: Millis,
        group_id: &GroupId,
        moves: &[Move],
    ) -> (Vec<Planned>, Vec<String>) {
        let offsets = self.state.group(group_id).map(|entry| &entry.offsets);
        let moved = Box::new(self.moved(now, group_id));
        let (mut planned, mut notes) = (Vec::with_capacity(moves.len()), Vec::new());
        for Move {
            topic,
            partition,
            to,
        } in moves
        {
            let committed = offsets.and_then(|offsets| offsets.get(topic, *partition));
            let known = self.topics.entry(topic);
            let there = known.filter(|(_, known)| (0..known.partitions).contains(partition));
            let value = |offset, leader_epoch, metadata| OffsetValue {
                offset,
                leader_epoch,
                metadata,
                commit_timestamp: now,
                expire_timestamp: None,
                topic_id: there.map_or_else(Default::default, |(_, topic)| topic.id),
                moved: Some(moved.clone()),
            };
            let value = match (to, committed) {
                (Aim::Forget, None) => continue,
                (Aim::Forget, Some(_)) => None,
                _ if there.is_none() => {
                    notes.push(format!(
                        "{topic} partition {partition} was deleted meanwhile; nothing was moved there."
                    ));
                    continue;
                }
                (
                    Aim::Exact {
                        offset,
                        leader_epoch,
                        metadata,
                    },
                    _,
                ) => Some(value(*offset, (*leader_epoch).max(-1), metadata.clone())),
                (Aim::Shift { by, low, high }, Some(before)) => {
                    let offset = before.offset.saturating_add(*by).clamp(*low, *high);
                    Some(value(offset, -1, "".into()))
                }
                (Aim::Shift { .. }, None) => {
                    notes.push(format!(
                        "{topic} partition {partition} has no committed offset that could be shifted."
                    ));
                    continue;
                }
            };
            planned.push(Planned {
                change: OffsetChange {
                    topic: known.map_or_else(|| topic.clone(), |(name, _)| name.clone()),
                    partition: *partition,
                    from: committed.map(|value| value.offset),
                    to: value.as_ref().map(|value| value.offset),
                    held_by: None,
                },
                value,
            });
        }
        (planned, notes)
    }

    /// Writes down who moved an offset.
    fn audit_move(&mut self, now: Millis, group_id: &GroupId, change: &OffsetChange) {
        if change.from == change.to {
            return;
        }
        let operator = self.journal.operator(group_id);
        let entry = AuditEntry {
            at: now,
            topic: change.topic.clone(),
            partition: change.partition,
            from: change.from,
            to: change.to,
            who: operator.map_or_else(|| "an operator".into(), |(operator, _)| operator.clone()),
            how: "reset",
        };
        self.audit(group_id, entry);
    }

    /// Moves offsets, in the batch at hand.
    pub(super) fn move_offsets(
        &mut self,
        now: Millis,
        group_id: &GroupId,
        planned: Vec<Planned>,
        actions: &mut Actions,
    ) -> Vec<OffsetChange> {
        let moved = self.moved(now, group_id);
        let mut fenced = Partitions::new();
        let mut changes = Vec::with_capacity(planned.len());
        for Planned { change, value } in planned {
            let of_topic = fenced.entry(change.topic.clone()).or_default();
            of_topic.insert(change.partition);
            self.emit(
                Record::OffsetCommit {
                    group_id: group_id.clone(),
                    topic: change.topic.clone(),
                    partition: change.partition,
                    value,
                },
                actions,
            );
            self.audit_move(now, group_id, &change);
            changes.push(change);
        }
        self.keep_without_offsets(group_id, actions);
        self.put_fence(group_id, fenced, moved);
        changes
    }

    /// The offsets that go when a group is deleted.
    pub(super) fn offsets_that_go(&self, group_id: &str) -> Vec<OffsetChange> {
        let entry = self.state.group(group_id);
        let offsets = entry.into_iter().flat_map(|entry| entry.offsets.iter());
        offsets
            .map(|(topic, partition, value)| OffsetChange {
                topic: topic.clone(),
                partition,
                from: Some(value.offset),
                to: None,
                held_by: None,
            })
            .collect()
    }
}
