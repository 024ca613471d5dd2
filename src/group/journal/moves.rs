//! Which partitions moved from whom to whom.

use std::collections::BTreeMap;

use crate::group::operator::PartitionMove;
use crate::group::subscription::NamePartitions;
use crate::group::types::{InstanceId, MemberId, TopicName};

/// What moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::group) struct Moves {
    /// By topic and partition; at most as many as were asked for.
    pub(in crate::group) moves: Vec<PartitionMove>,
    pub(in crate::group) moved_count: usize,
    /// Those of them that somebody got.
    pub(in crate::group) gained_count: usize,
    pub(in crate::group) stayed_count: usize,
}

/// A member and what it has.
#[derive(Clone, Debug)]
pub(in crate::group) struct Side {
    pub(in crate::group) member_id: MemberId,
    pub(in crate::group) instance_id: Option<InstanceId>,
    pub(in crate::group) partitions: NamePartitions,
}

/// A member that is gone, with what it had.
pub(in crate::group) type Lost = Side;

/// Compares who had what with who has what. A static member under a new id is who it was. A partition that several
/// have, as a client's assignor may do it, counts as the first one's.
pub(in crate::group) fn diff(before: &[Side], after: &[Side], moves_max: usize) -> Moves {
    let mut topics: BTreeMap<&TopicName, u32> = BTreeMap::new();
    let mut names: BTreeMap<&str, u32> = BTreeMap::new();
    for side in before.iter().chain(after) {
        let next = names.len() as u32;
        names.entry(name_of(side)).or_insert(next);
        for (topic, _) in &side.partitions {
            topics.insert(topic, 0);
        }
    }
    for (place, (_, number)) in topics.iter_mut().enumerate() {
        *number = place as u32;
    }
    let (old, new) = (rows(before, &topics, &names), rows(after, &topics, &names));
    let by_number: Vec<&TopicName> = topics.keys().copied().collect();

    let mut found = Moves::default();
    let mut add = |(topic, partition): (u32, i32), from: Option<&Row>, to: Option<&Row>| {
        if from.map(|row| row.name) == to.map(|row| row.name) {
            found.stayed_count += 1;
            return;
        }
        found.moved_count += 1;
        found.gained_count += usize::from(to.is_some());
        if found.moves.len() < moves_max {
            found.moves.push(PartitionMove {
                topic: by_number[topic as usize].clone(),
                partition,
                from: from.map(|row| before[row.side].member_id.clone()),
                to: to.map(|row| after[row.side].member_id.clone()),
            });
        }
    };
    let (mut old, mut new) = (old.iter().peekable(), new.iter().peekable());
    loop {
        let place = match (old.peek(), new.peek()) {
            (None, None) => break,
            (Some(a), None) => a.place,
            (None, Some(b)) => b.place,
            (Some(a), Some(b)) => a.place.min(b.place),
        };
        let from = old.next_if(|row| row.place == place);
        let to = new.next_if(|row| row.place == place);
        add(place, from, to);
    }
    found
}

/// By what a member is known across generations.
fn name_of(side: &Side) -> &str {
    side.instance_id.as_deref().unwrap_or(&side.member_id)
}

/// One partition of one member.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    /// Number of the topic, and partition.
    place: (u32, i32),
    /// Where its member stands in the list.
    side: usize,
    /// Number of the member's name.
    name: u32,
}

fn rows(
    sides: &[Side],
    topics: &BTreeMap<&TopicName, u32>,
    names: &BTreeMap<&str, u32>,
) -> Vec<Row> {
    let mut rows = Vec::new();
    for (place, side) in sides.iter().enumerate() {
        let name = names.get(name_of(side)).copied().unwrap_or_default();
        for (topic, partitions) in &side.partitions {
            let topic = topics.get(topic).copied().unwrap_or_default();
            rows.extend(partitions.iter().map(|partition| Row {
                place: (topic, *partition),
                side: place,
                name,
            }));
        }
    }
    rows.sort_unstable();
    rows.dedup_by_key(|row| row.place);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(member_id: &str, instance_id: Option<&str>, partitions: &[i32]) -> Side {
        Side {
            member_id: member_id.into(),
            instance_id: instance_id.map(Into::into),
            partitions: vec![("t".into(), partitions.to_vec())],
        }
    }

    fn told(moves: &Moves) -> Vec<(i32, Option<&str>, Option<&str>)> {
        let each = moves.moves.iter();
        each.map(|m| (m.partition, m.from.as_deref(), m.to.as_deref()))
            .collect()
    }

    #[test]
    fn what_moved_and_what_stayed_is_everything() {
        let before = [side("a", None, &[2, 0, 1]), side("b", None, &[3])];
        let after = [side("a", None, &[0]), side("c", None, &[1, 3, 4])];
        let moves = diff(&before, &after, 9);
        assert_eq!(
            told(&moves),
            [
                (1, Some("a"), Some("c")),
                (2, Some("a"), None),
                (3, Some("b"), Some("c")),
                (4, None, Some("c")),
            ]
        );
        assert_eq!((moves.moved_count, moves.stayed_count), (4, 1));
    }

    #[test]
    fn a_static_member_under_a_new_id_keeps_what_it_has() {
        let before = [side("i-1", Some("i"), &[0, 1])];
        let after = [side("i-2", Some("i"), &[0, 1])];
        assert_eq!(diff(&before, &after, 9).stayed_count, 2);
    }

    #[test]
    fn moves_are_counted_beyond_what_is_kept() {
        let after = [side("a", None, &[0, 1, 2])];
        let moves = diff(&[], &after, 2);
        assert_eq!((moves.moves.len(), moves.moved_count), (2, 3));
    }

    #[test]
    fn a_partition_that_two_have_counts_once() {
        let after = [side("a", None, &[0]), side("b", None, &[0])];
        let moves = diff(&[], &after, 9);
        assert_eq!(told(&moves), [(0, None, Some("a"))]);
    }
}
