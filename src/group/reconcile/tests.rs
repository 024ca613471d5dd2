use std::collections::{BTreeSet, VecDeque};

use super::*;

const T: TopicId = TopicId([1; 16]);
const U: TopicId = TopicId([2; 16]);

fn ids(partitions: &[i32]) -> IdPartitions {
    if partitions.is_empty() {
        Vec::new()
    } else {
        vec![(T, partitions.to_vec())]
    }
}

fn value(
    epoch: i32,
    state: MemberState,
    assigned: &[i32],
    pending: &[i32],
) -> CurrentAssignmentValue {
    CurrentAssignmentValue {
        member_epoch: epoch,
        previous_member_epoch: epoch - 1,
        state,
        assigned: with_epoch(&ids(assigned), epoch),
        pending_revocation: with_epoch(&ids(pending), epoch),
    }
}

/// Takes a step; what others hold is listed.
fn step(
    current: &CurrentAssignmentValue,
    (target_epoch, target): (i32, &[i32]),
    owned: Option<&[i32]>,
    others: &[i32],
) -> Outcome {
    Step {
        current,
        target_epoch,
        target: &ids(target),
        owned: owned.map(ids).as_deref(),
        subscription_changed: false,
    }
    .take(|_| true, |_, partition| others.contains(&partition))
}

fn next(outcome: Outcome) -> CurrentAssignmentValue {
    match outcome {
        Outcome::Next(next) => next,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_member_at_its_target_stays() {
    let current = value(2, MemberState::Stable, &[0, 1], &[]);
    assert_eq!(step(&current, (2, &[0, 1]), None, &[]), Outcome::Unchanged);
}

#[test]
fn revocation_comes_first_and_leaves_the_epoch() {
    let current = value(2, MemberState::Stable, &[0, 1], &[]);
    let revoking = next(step(&current, (3, &[1, 2]), None, &[]));
    assert_eq!(
        revoking,
        value(2, MemberState::UnrevokedPartitions, &[1], &[0])
    );
    for owned in [None, Some(&[0, 1][..]), Some(&[0])] {
        assert_eq!(
            step(&revoking, (3, &[1, 2]), owned, &[]),
            Outcome::Unchanged,
            "{owned:?}"
        );
    }
    let done = next(step(&revoking, (3, &[1, 2]), Some(&[1]), &[]));
    assert_eq!((done.member_epoch, done.previous_member_epoch), (3, 2));
    assert_eq!(done.state, MemberState::Stable);
    assert_eq!(
        pairs(&done.assigned).collect::<Vec<_>>(),
        [(T, 1, 2), (T, 2, 3)],
        "kept ones keep their epoch"
    );
}

#[test]
fn what_the_member_does_not_own_needs_no_revocation() {
    let current = value(2, MemberState::Stable, &[0, 1], &[]);
    let moved = next(step(&current, (3, &[1]), Some(&[1]), &[]));
    assert_eq!((moved.member_epoch, moved.state), (3, MemberState::Stable));
    assert!(moved.pending_revocation.is_empty());
}

#[test]
fn partitions_of_others_are_waited_for() {
    let current = value(2, MemberState::Stable, &[], &[]);
    let waiting = next(step(&current, (3, &[0, 1]), None, &[1]));
    assert_eq!(
        (waiting.member_epoch, waiting.state),
        (3, MemberState::UnreleasedPartitions)
    );
    assert_eq!(without_epochs(&waiting.assigned), ids(&[0]));
    assert_eq!(step(&waiting, (3, &[0, 1]), None, &[1]), Outcome::Unchanged);
    let done = next(step(&waiting, (3, &[0, 1]), None, &[]));
    assert_eq!(
        (done.member_epoch, done.previous_member_epoch, done.state),
        (3, 2, MemberState::Stable)
    );
}

#[test]
fn a_newer_target_may_give_back_what_was_being_revoked() {
    let revoking = value(2, MemberState::UnrevokedPartitions, &[1], &[0]);
    assert_eq!(step(&revoking, (4, &[0, 1]), None, &[]), Outcome::Unchanged);
    let done = next(step(&revoking, (4, &[0, 1]), Some(&[1]), &[]));
    assert_eq!(
        pairs(&done.assigned).collect::<Vec<_>>(),
        [(T, 0, 4), (T, 1, 2)]
    );
}

#[test]
fn an_unknown_state_is_left_only_empty_handed() {
    let current = value(2, MemberState::Unknown, &[0], &[1]);
    assert_eq!(step(&current, (2, &[0]), None, &[]), Outcome::Fence);
    assert_eq!(step(&current, (2, &[0]), Some(&[0]), &[]), Outcome::Fence);
    let done = next(step(&current, (2, &[0, 1]), Some(&[]), &[]));
    assert_eq!(
        (done.state, without_epochs(&done.assigned)),
        (MemberState::Stable, ids(&[0, 1]))
    );
}

#[test]
fn unsubscribing_takes_partitions_before_any_new_target() {
    let mut current = value(2, MemberState::Stable, &[0], &[]);
    current.assigned.push(AssignedPartitions {
        topic_id: U,
        partitions: vec![(5, 2)],
    });
    let target = without_epochs(&current.assigned);
    let unsubscribe = |owned: Option<&[(TopicId, Vec<i32>)]>, current: &CurrentAssignmentValue| {
        Step {
            current,
            target_epoch: 2,
            target: &target,
            owned,
            subscription_changed: true,
        }
        .take(|topic| topic != U, |_, _| false)
    };
    let revoking = next(unsubscribe(None, &current));
    assert_eq!(
        (revoking.member_epoch, revoking.state),
        (2, MemberState::UnrevokedPartitions)
    );
    assert_eq!(without_epochs(&revoking.assigned), ids(&[0]));
    assert_eq!(without_epochs(&revoking.pending_revocation), [(U, vec![5])]);

    let dropped = next(unsubscribe(Some(&ids(&[0])), &current));
    assert_eq!(
        (dropped.member_epoch, dropped.state),
        (2, MemberState::Stable)
    );
    assert!(dropped.pending_revocation.is_empty());

    // While something else is being revoked, it comes on top; once nothing of it is owned, the member moves on.
    let mut busy = current.clone();
    busy.state = MemberState::UnrevokedPartitions;
    busy.pending_revocation = with_epoch(&ids(&[7]), 2);
    let busier = next(unsubscribe(Some(&ids(&[7])), &busy));
    assert_eq!(
        without_epochs(&busier.pending_revocation),
        [(T, vec![7]), (U, vec![5])]
    );
    let through = next(unsubscribe(Some(&ids(&[0])), &busy));
    assert_eq!(
        (through.state, without_epochs(&through.assigned)),
        (MemberState::Stable, ids(&[0]))
    );
    // What it has given back is free, even if something else must go now.
    let other = next(unsubscribe(Some(&[(U, vec![5])]), &busy));
    assert_eq!(
        (other.member_epoch, other.state),
        (2, MemberState::UnrevokedPartitions)
    );
    assert_eq!(without_epochs(&other.pending_revocation), [(U, vec![5])]);
}

#[test]
fn lists_from_outside_become_tidy() {
    let mut list = vec![(U, vec![3, 1, 3]), (T, vec![]), (U, vec![2])];
    tidy_ids(&mut list);
    assert_eq!(list, [(U, vec![1, 2, 3])]);
}

#[test]
fn a_late_record_releases_only_what_is_still_its_members() {
    let (a, b): (MemberId, MemberId) = ("a".into(), "b".into());
    let (had, has) = (
        value(1, MemberState::Stable, &[0], &[]),
        value(2, MemberState::Stable, &[0], &[]),
    );
    let mut holders = Holders::default();
    holders.change(&a, None, Some(&had));
    holders.change(&b, None, Some(&has));
    holders.change(&a, Some(&had), None);
    assert!(holders.held_by_other("a", T, 0) && !holders.held_by_other("b", T, 0));
    holders.change(&b, Some(&has), None);
    assert_eq!(holders, Holders::default());
}

/// A small world that is walked through completely: every order of heartbeats (whose answers may get lost), of clients
/// doing what they were told, of new targets, of members leaving and joining.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct World {
    epoch: i32,
    targets: Vec<Vec<i32>>,
    members: Vec<Option<Node>>,
}

/// One member: what the server keeps and what its client knows.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    epoch: i32,
    previous: i32,
    state: u8,
    assigned: Vec<(i32, i32)>,
    pending: Vec<(i32, i32)>,
    /// What the client holds; only what it was told to hold, or had and has not yet given back.
    hands: BTreeSet<i32>,
    /// The last assignment it heard of.
    told: BTreeSet<i32>,
    /// The epoch it heard of.
    heard: i32,
}

const STATES: [MemberState; 3] = [
    MemberState::Stable,
    MemberState::UnrevokedPartitions,
    MemberState::UnreleasedPartitions,
];

fn listed(partitions: &[(i32, i32)]) -> Vec<AssignedPartitions> {
    let mut list = vec![AssignedPartitions {
        topic_id: T,
        partitions: partitions.to_vec(),
    }];
    tidy(&mut list);
    list
}

impl Node {
    fn new() -> Self {
        Self {
            epoch: 0,
            previous: 0,
            state: 0,
            assigned: Vec::new(),
            pending: Vec::new(),
            hands: BTreeSet::new(),
            told: BTreeSet::new(),
            heard: 0,
        }
    }

    fn value(&self) -> CurrentAssignmentValue {
        CurrentAssignmentValue {
            member_epoch: self.epoch,
            previous_member_epoch: self.previous,
            state: STATES[usize::from(self.state)],
            assigned: listed(&self.assigned),
            pending_revocation: listed(&self.pending),
        }
    }

    fn set(&mut self, value: &CurrentAssignmentValue) {
        self.epoch = value.member_epoch;
        self.previous = value.previous_member_epoch;
        self.state = STATES.iter().position(|s| *s == value.state).unwrap() as u8;
        self.assigned = of_topic(&value.assigned, T).to_vec();
        self.pending = of_topic(&value.pending_revocation, T).to_vec();
    }
}

impl World {
    fn holders(&self) -> Holders {
        let mut holders = Holders::default();
        for (m, node) in self.members.iter().enumerate() {
            if let Some(node) = node {
                for partition in held(&node.value()) {
                    assert!(
                        !holders.held_by_other(&name(m), partition.0, partition.1),
                        "held twice: {self:?}"
                    );
                }
                holders.change(&name(m), None, Some(&node.value()));
            }
        }
        holders
    }

    fn check(&self) {
        self.holders();
        let mut seen = BTreeSet::new();
        for node in self.members.iter().flatten() {
            assert!(node.epoch <= self.epoch, "ahead of the target: {self:?}");
            for partition in &node.hands {
                assert!(seen.insert(*partition), "in two hands: {self:?}");
            }
        }
    }

    /// A heartbeat that says what the client holds (or not), answered unless the answer gets lost.
    fn heartbeat(&mut self, m: usize, says: bool, answered: bool) {
        let holders = self.holders();
        let (epoch, target) = (self.epoch, ids(&self.targets[m]));
        let Some(node) = &mut self.members[m] else {
            return;
        };
        let owned = ids(&node.hands.iter().copied().collect::<Vec<_>>());
        let joining = node.heard == 0;
        let current = node.value();
        if !joining && node.heard < node.epoch {
            // A lost answer: only with the previous epoch, and saying what is owned (semantics 3.3).
            if node.heard != node.previous || !says || !is_subset(&owned, &current.assigned) {
                *node = Node::new();
                return;
            }
        }
        let outcome = Step {
            current: &current,
            target_epoch: epoch,
            target: &target,
            owned: (says || joining).then_some(&*owned),
            subscription_changed: false,
        }
        .take(
            |_| true,
            |topic, partition| holders.held_by_other(&name(m), topic, partition),
        );
        let mut full = says || joining;
        if let Outcome::Next(next) = outcome {
            assert!(
                next.member_epoch >= current.member_epoch,
                "epochs never go back"
            );
            full |= !same_partitions(&next.assigned, &current.assigned);
            node.set(&next);
        }
        if answered {
            node.heard = node.epoch;
            if full {
                node.told = node.assigned.iter().map(|(p, _)| *p).collect();
                // New ones at once; old ones until the application has let go.
                node.hands.extend(&node.told);
            }
        }
    }

    /// The client has let go of what it no longer has.
    fn let_go(&mut self, m: usize) {
        if let Some(node) = &mut self.members[m] {
            node.hands = node.hands.intersection(&node.told).copied().collect();
        }
    }

    fn successors(&self, targets: &[Vec<Vec<i32>>]) -> Vec<Self> {
        let mut all = Vec::new();
        let mut push = |step: &dyn Fn(&mut Self)| {
            let mut next = self.clone();
            step(&mut next);
            if next != *self {
                next.check();
                all.push(next);
            }
        };
        for m in 0..self.members.len() {
            for (says, answered) in [(false, true), (true, true), (false, false), (true, false)] {
                push(&|world| world.heartbeat(m, says, answered));
            }
            push(&|world| world.let_go(m));
            push(&|world| world.members[m] = None);
            if self.members[m].is_none() {
                push(&|world| world.members[m] = Some(Node::new()));
            }
        }
        if let Some(targets) = targets.get(self.epoch as usize - 1) {
            push(&|world| {
                world.epoch += 1;
                world.targets.clone_from(targets);
            });
        }
        all
    }

    /// Nothing more happens but heartbeats: everybody comes to its target.
    fn settles(mut self) {
        let start = self.clone();
        for _ in 0..3 * self.members.len() + 3 {
            let before = self.clone();
            for m in 0..self.members.len() {
                self.heartbeat(m, true, true);
                self.let_go(m);
            }
            self.check();
            if self == before {
                break;
            }
        }
        for (m, node) in self.members.iter().enumerate() {
            let Some(node) = node else { continue };
            let target: BTreeSet<i32> = self.targets[m].iter().copied().collect();
            assert!(
                node.state == 0 && node.epoch == self.epoch && node.hands == target,
                "{start:?} ended as {self:?}"
            );
        }
    }
}

fn name(m: usize) -> MemberId {
    ["a", "b", "c"][m].into()
}

/// Walks through everything that can happen within `depth` steps.
fn walk(members: usize, targets: &[Vec<Vec<i32>>], depth: usize) -> usize {
    let start = World {
        epoch: 1,
        targets: targets[0].clone(),
        members: vec![Some(Node::new()); members],
    };
    let mut seen = BTreeSet::from([start.clone()]);
    let mut queue = VecDeque::from([(start, 0)]);
    while let Some((world, steps)) = queue.pop_front() {
        world.clone().settles();
        if steps == depth {
            continue;
        }
        for next in world.successors(&targets[1..]) {
            if !seen.contains(&next) {
                seen.insert(next.clone());
                queue.push_back((next, steps + 1));
            }
        }
    }
    seen.len()
}

#[test]
fn two_members_swapping_partitions_never_share_one() {
    let targets = [
        vec![vec![0, 1], vec![]],
        vec![vec![1], vec![0]],
        vec![vec![0], vec![1]],
    ];
    assert!(
        walk(2, &targets, usize::MAX) > 1_000,
        "everything that can happen at all"
    );
}

#[test]
fn three_members_passing_partitions_round_never_share_one() {
    let targets = [
        vec![vec![0, 1], vec![2, 3], vec![]],
        vec![vec![2], vec![0, 3], vec![1]],
        vec![vec![1, 3], vec![2], vec![0]],
    ];
    assert!(walk(3, &targets, 6) > 5_000);
}
