//! How long the server assignors take, and what a target costs in memory: `cargo bench --bench assign`.
//!
//! Three sizes of each shape, each four times the work of the one before, so that growth shows: the last column divides
//! by n log n, n being members + partitions + subscriptions, and should stay about even. No test asserts any of it.

#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]

use std::time::{Duration, Instant};

use convoke::group::assign::{AssignMember, AssignTopic, Assignor, Input, Range, Uniform};
use convoke::group::request::IdPartitions;
use convoke::group::types::TopicId;

struct Case {
    topics: Vec<AssignTopic>,
    member_ids: Vec<String>,
    subscriptions: Vec<Vec<u32>>,
    targets: Vec<IdPartitions>,
}

impl Case {
    /// With `mixed`, every second member lacks one topic, each a different one.
    fn new(members: usize, topics: usize, partitions: u32, mixed: bool) -> Self {
        let mut case = Self {
            topics: (0..topics as u128)
                .map(|t| AssignTopic {
                    id: TopicId((t + 1).to_be_bytes()),
                    partitions,
                })
                .collect(),
            member_ids: Vec::new(),
            subscriptions: vec![(0..topics as u32).collect()],
            targets: Vec::new(),
        };
        if mixed {
            case.subscriptions.extend(
                (0..topics as u32)
                    .map(|lacking| (0..topics as u32).filter(|t| *t != lacking).collect()),
            );
        }
        (0..members).for_each(|_| case.add_member());
        case
    }

    fn add_member(&mut self) {
        self.member_ids
            .push(format!("member-{:08}", self.member_ids.len()));
        self.targets.push(Vec::new());
    }

    fn subscription(&self, m: usize) -> &[u32] {
        let others = self.subscriptions.len() - 1;
        &self.subscriptions[if others == 0 || m.is_multiple_of(2) {
            0
        } else {
            1 + m / 2 % others
        }]
    }

    fn assign(&mut self, assignor: &dyn Assignor) -> Duration {
        let members: Vec<_> = (0..self.member_ids.len())
            .map(|m| AssignMember {
                member_id: &self.member_ids[m],
                instance_id: None,
                rack_id: None,
                subscribed: self.subscription(m),
                target: &self.targets[m],
                assigned: &[],
            })
            .collect();
        let input = Input {
            topics: &self.topics,
            members: &members,
        };
        let begin = Instant::now();
        let targets = assignor
            .assign(&input)
            .expect("the built-in assignors never fail");
        let took = begin.elapsed();
        self.targets = targets;
        took
    }

    fn size(&self) -> f64 {
        let subscriptions: usize = (0..self.member_ids.len())
            .map(|m| self.subscription(m).len())
            .sum();
        let partitions: u32 = self.topics.iter().map(|t| t.partitions).sum();
        (self.member_ids.len() + subscriptions + partitions as usize) as f64
    }

    /// Bytes on the heap of all targets, by member.
    fn bytes_per_member(&self) -> usize {
        let bytes = |target: &IdPartitions| {
            let partitions: usize = target
                .iter()
                .map(|(_, partitions)| partitions.capacity() * 4)
                .sum();
            size_of::<IdPartitions>()
                + target.capacity() * size_of::<(TopicId, Vec<i32>)>()
                + partitions
        };
        self.targets.iter().map(bytes).sum::<usize>() / self.targets.len()
    }
}

fn main() {
    // Under `cargo test` this only shows that it runs.
    let whole = std::env::args().any(|arg| arg == "--bench");
    let shapes: &[(usize, usize, u32)] = if whole {
        &[
            (2_500, 50, 50),
            (5_000, 70, 70),
            (10_000, 100, 100),
            (250, 500, 5),
            (500, 700, 7),
            (1_000, 1_000, 10),
            (2_500, 100, 2_500),
            (5_000, 100, 5_000),
            (10_000, 100, 10_000),
        ]
    } else {
        &[(10, 10, 10)]
    };
    println!(
        "members × topics × partitions   assignor         first ms   +1 member ms   moved   bytes/member   ns/(n log n)"
    );
    for &(members, topics, partitions) in shapes {
        for (label, assignor, mixed) in [
            ("uniform", &Uniform as &dyn Assignor, false),
            ("uniform, mixed", &Uniform, true),
            ("range", &Range, false),
        ] {
            let mut case = Case::new(members, topics, partitions, mixed);
            let first = case.assign(assignor);
            let before = case.targets.clone();
            case.add_member();
            let more = case.assign(assignor);
            let moved: usize = before
                .iter()
                .zip(&case.targets)
                .map(|(b, a)| moved(b, a))
                .sum();
            let n = case.size();
            println!(
                "{:<31} {label:<15} {:>9.2} {:>14.2} {moved:>7} {:>14} {:>14.2}",
                format!("{members} × {topics} × {partitions}"),
                first.as_secs_f64() * 1e3,
                more.as_secs_f64() * 1e3,
                case.bytes_per_member(),
                first.as_secs_f64() * 1e9 / (n * n.log2()),
            );
        }
    }
}

/// Partitions that a member had and has no more.
fn moved(before: &IdPartitions, after: &IdPartitions) -> usize {
    before
        .iter()
        .map(|(topic, partitions)| {
            let now = after
                .iter()
                .find(|(id, _)| id == topic)
                .map_or(&[][..], |(_, p)| p);
            partitions
                .iter()
                .filter(|p| now.binary_search(p).is_err())
                .count()
        })
        .sum()
}
