//! Server assignors: who shall hold which partition, as pure functions of members, topics and the last target.
//!
//! Only the target is computed here. How a member comes to it without two members holding one partition is
//! `reconcile`'s affair, and which targets changed is for the caller to see. As in Kafka 4.4, racks do not matter to
//! the built-in ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fmt;

use super::reconcile::epoch_of;
use super::record::AssignedPartitions;
use super::request::IdPartitions;
use super::types::TopicId;

/// Decides who shall hold what. Kafka calls this a server-side assignor (KIP-848).
///
/// Besides `uniform` and `range`, an embedder may give the coordinator its own.
pub trait Assignor: fmt::Debug + Send + Sync {
    /// The name that members choose it by and that ConsumerGroupDescribe shows.
    fn name(&self) -> &str;

    /// The target of each member, in the order of [`Input::members`].
    ///
    /// Partitions may stay with nobody only where nobody subscribes to their topic. Must depend on nothing but the
    /// input. The coordinator runs [`check`] over the result, so a defect here leaves the group with its last target and
    /// a count in [`Stats`](super::Stats), and does nothing worse.
    ///
    /// # Errors
    /// Whatever keeps it from deciding, in words. The group keeps its last target, and asks again after the interval.
    fn assign(&self, input: &Input<'_>) -> Result<Vec<IdPartitions>, String>;
}

/// What an [`Assignor`] decides upon.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The topics that anybody subscribes to and that exist, ascending by id.
    pub topics: &'a [AssignTopic],
    /// The members, ascending by member id.
    pub members: &'a [AssignMember<'a>],
}

/// A topic to distribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignTopic {
    /// Its id.
    pub id: TopicId,
    /// How many partitions it has.
    pub partitions: u32,
}

/// A member to distribute to.
#[derive(Clone, Copy, Debug)]
pub struct AssignMember<'a> {
    /// The member.
    pub member_id: &'a str,
    /// Set for static members.
    pub instance_id: Option<&'a str>,
    /// The client's rack.
    pub rack_id: Option<&'a str>,
    /// What it subscribes to: positions in [`Input::topics`], ascending. Members that subscribe to the same best share
    /// one slice: comparing those costs nothing.
    pub subscribed: &'a [u32],
    /// Its last target. May name topics that are gone or no longer subscribed, and partitions that others have too.
    pub target: &'a [(TopicId, Vec<i32>)],
    /// What it has by now, each with the epoch since when, ascending. Lags behind the target.
    pub assigned: &'a [AssignedPartitions],
}

/// Kafka's default: equal counts over all topics together, and few moves.
///
/// If all members with a subscription have the same one, counts differ by at most one and no assignment with that
/// property moves fewer partitions. Whoever must give up some gives those that it was promised but has not yet got, then
/// those that came last. New partitions are dealt out in turn, so each topic is spread too (Kafka deals in blocks). If
/// subscriptions differ, no move of a single partition would make the counts more equal.
#[derive(Clone, Copy, Debug, Default)]
pub struct Uniform;

/// Contiguous ranges of each topic, members in the order of static ones by instance id, then the others by member id.
///
/// Topics with as many partitions and the same subscribers are split alike (co-partitioned). Does not look at the last
/// target, yet depends on members and topics alone, so it moves nothing unless these change.
#[derive(Clone, Copy, Debug, Default)]
pub struct Range;

impl Assignor for Uniform {
    fn name(&self) -> &str {
        "uniform"
    }

    fn assign(&self, input: &Input<'_>) -> Result<Vec<IdPartitions>, String> {
        let mut board = Board::new(input);
        board.place_last_targets();
        match common_subscription(input.members) {
            Some(subscribed) => board.share_equally(subscribed),
            None => Mixed::new(&mut board).run(),
        }
        Ok(board.targets())
    }
}

impl Assignor for Range {
    fn name(&self) -> &str {
        "range"
    }

    fn assign(&self, input: &Input<'_>) -> Result<Vec<IdPartitions>, String> {
        let mut board = Board::new(input);
        let mut order: Vec<usize> = (0..input.members.len()).collect();
        // Static members first: `false < true`.
        order.sort_by_key(|&m| {
            let member = &input.members[m];
            (
                member.instance_id.is_none(),
                member.instance_id,
                member.member_id,
            )
        });
        let mut subscribers: Vec<Vec<u32>> = vec![Vec::new(); input.topics.len()];
        for m in order {
            for &t in input.members[m].subscribed {
                // A topic has no use for more subscribers than partitions.
                if subscribers[t as usize].len() < input.topics[t as usize].partitions as usize {
                    subscribers[t as usize].push(m as u32);
                }
            }
        }
        for (t, subscribers) in subscribers.iter().enumerate() {
            let partitions = board.partitions(t);
            let count = subscribers.len();
            if count == 0 {
                continue;
            }
            let (quota, extra) = (partitions.len() / count, partitions.len() % count);
            let mut next = partitions.start;
            for (place, &m) in subscribers.iter().enumerate() {
                let end = next + quota + usize::from(place < extra);
                board.owner[next..end].fill(m);
                next = end;
            }
        }
        Ok(board.targets())
    }
}

/// Whether `targets` may stand for `input`: one per member, subscribed topics and existing partitions only, none twice.
///
/// # Errors
/// The first thing that is wrong, in words.
pub fn check(input: &Input<'_>, targets: &[IdPartitions]) -> Result<(), String> {
    if targets.len() != input.members.len() {
        return Err(format!(
            "{} targets for {} members",
            targets.len(),
            input.members.len()
        ));
    }
    let mut board = Board::new(input);
    for (m, (member, target)) in input.members.iter().zip(targets).enumerate() {
        for (id, partitions) in target {
            let Some(t) = board.topic(*id) else {
                return Err(format!(
                    "{} was given topic {id:?}, which nobody subscribes to",
                    member.member_id
                ));
            };
            if member.subscribed.binary_search(&(t as u32)).is_err() {
                return Err(format!(
                    "{} was given topic {id:?} without subscribing to it",
                    member.member_id
                ));
            }
            for &partition in partitions {
                let Some(slot) = board.slot(t, partition) else {
                    return Err(format!("there is no partition {partition} of topic {id:?}"));
                };
                if board.owner[slot] != NOBODY {
                    return Err(format!(
                        "partition {partition} of topic {id:?} was given out twice"
                    ));
                }
                board.owner[slot] = m as u32;
            }
        }
    }
    Ok(())
}

/// The one subscription of all members that have any; `None` if there are several.
fn common_subscription<'a>(members: &[AssignMember<'a>]) -> Option<&'a [u32]> {
    let mut subscriptions = members
        .iter()
        .map(|member| member.subscribed)
        .filter(|s| !s.is_empty());
    let first = subscriptions.next().unwrap_or_default();
    subscriptions
        .all(|other| std::ptr::eq(first, other) || first == other)
        .then_some(first)
}

const NOBODY: u32 = u32::MAX;

/// All partitions in one row, topic after topic, and who has each.
struct Board<'a> {
    input: &'a Input<'a>,
    /// Where each topic's partitions begin in `owner`; one more entry ends the last.
    base: Vec<usize>,
    /// A position in `input.members`, or [`NOBODY`].
    owner: Vec<u32>,
}

impl<'a> Board<'a> {
    fn new(input: &'a Input<'a>) -> Self {
        let mut base = Vec::with_capacity(input.topics.len() + 1);
        let mut end = 0;
        base.push(end);
        for topic in input.topics {
            end += topic.partitions as usize;
            base.push(end);
        }
        Self {
            input,
            base,
            owner: vec![NOBODY; end],
        }
    }

    fn topic(&self, id: TopicId) -> Option<usize> {
        self.input
            .topics
            .binary_search_by_key(&id, |topic| topic.id)
            .ok()
    }

    /// Where the partitions of a topic stand.
    fn partitions(&self, t: usize) -> std::ops::Range<usize> {
        self.base[t]..self.base[t + 1]
    }

    fn slot(&self, t: usize, partition: i32) -> Option<usize> {
        let slot = self.base[t].checked_add(usize::try_from(partition).ok()?)?;
        (slot < self.base[t + 1]).then_some(slot)
    }

    /// Gives everybody what the last targets say, as far as that is still there and subscribed.
    fn place_last_targets(&mut self) {
        for (m, member) in self.input.members.iter().enumerate() {
            for (id, partitions) in member.target {
                let Some(t) = self.topic(*id) else { continue };
                if member.subscribed.binary_search(&(t as u32)).is_err() {
                    continue;
                }
                for &partition in partitions {
                    if let Some(slot) = self
                        .slot(t, partition)
                        .filter(|&slot| self.owner[slot] == NOBODY)
                    {
                        self.owner[slot] = m as u32;
                    }
                }
            }
        }
    }

    /// Since which epoch a member has a partition; those that it has not got yet come after all others.
    fn had_since(&self, m: u32, t: usize, slot: usize) -> i32 {
        let assigned = self.input.members[m as usize].assigned;
        let partition = i32::try_from(slot - self.base[t]).unwrap_or(i32::MAX);
        epoch_of(assigned, self.input.topics[t].id, partition).unwrap_or(i32::MAX)
    }

    fn loads(&self) -> Vec<u32> {
        let mut loads = vec![0; self.input.members.len()];
        for &m in self.owner.iter().filter(|&&m| m != NOBODY) {
            loads[m as usize] += 1;
        }
        loads
    }

    /// Everybody with a subscription has the same one: give each the same count, moving as little as possible.
    fn share_equally(&mut self, subscribed: &[u32]) {
        let has_subscription = |m: &usize| !self.input.members[*m].subscribed.is_empty();
        let members: Vec<usize> = (0..self.input.members.len())
            .filter(has_subscription)
            .collect();
        if members.is_empty() {
            return;
        }
        let loads = self.loads();
        let total: usize = subscribed
            .iter()
            .map(|&t| self.partitions(t as usize).len())
            .sum();
        let (share, mut extra) = (total / members.len(), total % members.len());

        // Whoever has more than the share already takes an extra one first: each such saves a move, nothing else does.
        let mut quotas = vec![0; loads.len()];
        for rich in [true, false] {
            for &m in members
                .iter()
                .filter(|&&m| (loads[m] as usize > share) == rich)
            {
                quotas[m] = share + usize::from(extra > 0);
                extra = extra.saturating_sub(1);
            }
        }

        // Whoever has more than its quota releases the rest.
        let mut rich: BTreeMap<u32, Vec<(Reverse<i32>, usize)>> = BTreeMap::new();
        for &t in subscribed {
            for slot in self.partitions(t as usize) {
                let m = self.owner[slot];
                if m != NOBODY && loads[m as usize] as usize > quotas[m as usize] {
                    let since = Reverse(self.had_since(m, t as usize, slot));
                    rich.entry(m).or_default().push((since, slot));
                }
            }
        }
        for (m, mut owned) in rich {
            let surplus = owned.len() - quotas[m as usize];
            release(&mut owned, surplus, |slot| self.owner[slot] = NOBODY);
        }

        // Deal what nobody has to those below their quota, in turn.
        let mut needy: VecDeque<(usize, usize)> = members
            .iter()
            .map(|&m| (m, quotas[m].saturating_sub(loads[m] as usize)))
            .filter(|(_, lack)| *lack > 0)
            .collect();
        for &t in subscribed {
            for slot in self.partitions(t as usize) {
                if self.owner[slot] != NOBODY {
                    continue;
                }
                let (m, lack) = needy
                    .pop_front()
                    .expect("the quotas add up to the number of partitions");
                self.owner[slot] = m as u32;
                if lack > 1 {
                    needy.push_back((m, lack - 1));
                }
            }
        }
    }

    /// The board as one target per member: topics ascending by id, partitions ascending, no spare room.
    fn targets(&self) -> Vec<IdPartitions> {
        let mut ends = vec![0usize; self.input.members.len() + 1];
        for &m in self.owner.iter().filter(|&&m| m != NOBODY) {
            ends[m as usize + 1] += 1;
        }
        for m in 1..ends.len() {
            ends[m] += ends[m - 1];
        }
        // A counting sort by member; `ends[m]` starts as m's beginning and comes to be its end.
        let mut sorted = vec![(0u32, 0i32); ends[self.input.members.len()]];
        for t in 0..self.input.topics.len() {
            for (partition, &m) in self.owner[self.partitions(t)].iter().enumerate() {
                if m != NOBODY {
                    sorted[ends[m as usize]] = (t as u32, partition as i32);
                    ends[m as usize] += 1;
                }
            }
        }
        let mut begin = 0;
        (0..self.input.members.len())
            .map(|m| {
                let own = &sorted[begin..ends[m]];
                begin = ends[m];
                let same_topic = |a: &(u32, i32), b: &(u32, i32)| a.0 == b.0;
                let mut target = Vec::with_capacity(own.chunk_by(same_topic).count());
                target.extend(own.chunk_by(same_topic).map(|chunk| {
                    let partitions = chunk.iter().map(|&(_, partition)| partition).collect();
                    (self.input.topics[chunk[0].0 as usize].id, partitions)
                }));
                target
            })
            .collect()
    }
}

/// Gives up `surplus` of what a member owns, the newest first; among those of one epoch evenly spaced, so that no topic
/// goes as a block.
fn release(owned: &mut [(Reverse<i32>, usize)], surplus: usize, mut give_up: impl FnMut(usize)) {
    owned.sort_unstable();
    let mut left = surplus;
    for same_age in owned.chunk_by(|a, b| a.0 == b.0) {
        let (count, here) = (same_age.len(), left.min(same_age.len()));
        for (i, (_, slot)) in same_age.iter().enumerate() {
            if (i + 1) * here / count > i * here / count {
                give_up(*slot);
            }
        }
        left -= here;
    }
}

/// A partition's owner, since when it has it, and where it stands on the board.
type Held = (u32, i32, Reverse<usize>);

/// `uniform` where subscriptions differ.
struct Mixed<'a, 'b> {
    board: &'b mut Board<'a>,
    /// Who had what before anything moved: moving a partition once more costs nothing.
    before: Vec<u32>,
    loads: Vec<u32>,
    /// Subscribers of each topic, ascending.
    subscribers: Vec<Vec<u32>>,
}

impl<'a, 'b> Mixed<'a, 'b> {
    fn new(board: &'b mut Board<'a>) -> Self {
        let mut subscribers = vec![Vec::new(); board.input.topics.len()];
        for (m, member) in board.input.members.iter().enumerate() {
            for &t in member.subscribed {
                subscribers[t as usize].push(m as u32);
            }
        }
        Self {
            before: board.owner.clone(),
            loads: board.loads(),
            board,
            subscribers,
        }
    }

    fn run(&mut self) {
        self.deal_free();
        // A topic needs another look only when a subscriber's load has changed since the last. Each move makes the sum
        // of squared loads smaller, so this ends; since the dealing was greedy, usually in two or three sweeps.
        let mut stale = vec![true; self.subscribers.len()];
        while stale.contains(&true) {
            for t in 0..stale.len() {
                if !std::mem::take(&mut stale[t]) {
                    continue;
                }
                let moved = self.level(t);
                for &m in &moved {
                    for &other in self.board.input.members[m as usize].subscribed {
                        stale[other as usize] |= other as usize != t;
                    }
                }
            }
        }
    }

    /// Gives what nobody has to the least loaded subscriber, topics with the fewest choices first.
    fn deal_free(&mut self) {
        let mut order: Vec<usize> = (0..self.subscribers.len())
            .filter(|&t| !self.subscribers[t].is_empty())
            .collect();
        order.sort_by(|&a, &b| {
            let [(pa, sa), (pb, sb)] = [a, b].map(|t| {
                (
                    self.board.partitions(t).len() as u64,
                    self.subscribers[t].len() as u64,
                )
            });
            // Partitions per subscriber, descending, without dividing: pb/sb against pa/sa.
            (pb * sa).cmp(&(pa * sb)).then(sa.cmp(&sb)).then(a.cmp(&b))
        });
        for t in order {
            let free: Vec<usize> = self
                .board
                .partitions(t)
                .filter(|&slot| self.board.owner[slot] == NOBODY)
                .collect();
            if free.is_empty() {
                continue;
            }
            let mut poorest: BinaryHeap<_> = self.by_load(t).collect();
            for slot in free {
                let Some(mut top) = poorest.peek_mut() else {
                    break;
                };
                let Reverse((load, m)) = *top;
                *top = Reverse((load + 1, m));
                self.loads[m as usize] += 1;
                self.board.owner[slot] = m;
            }
        }
    }

    fn by_load(&self, t: usize) -> impl Iterator<Item = Reverse<(u32, u32)>> {
        self.subscribers[t]
            .iter()
            .map(|&m| Reverse((self.loads[m as usize], m)))
    }

    /// Moves partitions of one topic from its fullest owners to its emptiest subscribers until none of them has two more
    /// than another could have. Returns whose loads changed.
    fn level(&mut self, t: usize) -> Vec<u32> {
        let slots = self.board.partitions(t);
        let owners = self.board.owner[slots.clone()]
            .iter()
            .filter(|&&m| m != NOBODY);
        let most = owners.map(|&m| self.loads[m as usize]).max().unwrap_or(0);
        let least = self.subscribers[t]
            .iter()
            .map(|&m| self.loads[m as usize])
            .min()
            .unwrap_or(0);
        if most < least.saturating_add(2) {
            return Vec::new();
        }

        // Each owner's partitions together; at the end, and so first to go, what it has not had for long.
        let mut held: Vec<Held> = slots
            .filter(|&slot| self.board.owner[slot] != NOBODY)
            .map(|slot| {
                let m = self.board.owner[slot];
                let is_new = self.before[slot] != m;
                let since = if is_new {
                    i32::MAX
                } else {
                    self.board.had_since(m, t, slot)
                };
                (m, since, Reverse(slot))
            })
            .collect();
        held.sort_unstable();
        let mut richest: BinaryHeap<(u32, Reverse<u32>, &[Held])> = held
            .chunk_by(|a, b| a.0 == b.0)
            .map(|own| (self.loads[own[0].0 as usize], Reverse(own[0].0), own))
            .collect();
        let mut poorest: BinaryHeap<_> = self.by_load(t).collect();
        let mut changed = Vec::new();
        // Loads in the heaps may be out of date, but only of members that no longer matter: who gave had the most, so
        // it comes back at most one below the rest of the rich; who got had the least, likewise. Neither can be two
        // away from anybody on the other side again, and the loop has ended before such an entry could mislead it.
        while let (Some((high, Reverse(rich), own)), Some(Reverse((low, poor)))) =
            (richest.pop(), poorest.pop())
        {
            if high < low + 2 {
                break;
            }
            let Some(((_, _, Reverse(slot)), rest)) = own.split_last() else {
                poorest.push(Reverse((low, poor)));
                continue;
            };
            self.board.owner[*slot] = poor;
            self.loads[rich as usize] -= 1;
            self.loads[poor as usize] += 1;
            richest.push((high - 1, Reverse(rich), rest));
            poorest.push(Reverse((low + 1, poor)));
            changed.extend([rich, poor]);
        }
        changed.sort_unstable();
        changed.dedup();
        changed
    }
}

#[cfg(test)]
mod tests;
