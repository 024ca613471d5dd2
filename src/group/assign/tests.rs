use proptest::prelude::*;

use super::*;

/// A group to assign: partition counts of topics, and members with instance id, subscription and last target.
#[derive(Clone, Debug)]
struct World {
    topics: Vec<AssignTopic>,
    members: Vec<(String, Option<String>, Vec<u32>, IdPartitions)>,
}

fn id(t: usize) -> TopicId {
    let mut id = [0; 16];
    id[15] = t as u8 + 1;
    TopicId(id)
}

impl World {
    fn new(partitions: &[u32], subscriptions: &[&[u32]]) -> Self {
        Self {
            topics: partitions
                .iter()
                .enumerate()
                .map(|(t, &partitions)| AssignTopic {
                    id: id(t),
                    partitions,
                })
                .collect(),
            members: subscriptions
                .iter()
                .enumerate()
                .map(|(m, subscribed)| (format!("m{m}"), None, subscribed.to_vec(), Vec::new()))
                .collect(),
        }
    }

    fn with<T>(&self, f: impl FnOnce(&Input<'_>) -> T) -> T {
        let members: Vec<_> = self
            .members
            .iter()
            .map(
                |(member_id, instance_id, subscribed, target)| AssignMember {
                    member_id,
                    instance_id: instance_id.as_deref(),
                    rack_id: None,
                    subscribed,
                    target,
                    assigned: &[],
                },
            )
            .collect();
        f(&Input {
            topics: &self.topics,
            members: &members,
        })
    }

    /// Assigns, checks what must hold whoever assigns, and makes the result the last target.
    fn assign(&mut self, assignor: &dyn Assignor) -> Vec<IdPartitions> {
        let targets = self.with(|input| {
            let targets = assignor.assign(input).unwrap();
            check(input, &targets).unwrap();
            targets
        });
        for (t, topic) in self.topics.iter().enumerate() {
            let given: usize = targets.iter().map(|target| of_topic(target, t).len()).sum();
            let wanted = self.members.iter().any(|m| m.2.contains(&(t as u32)));
            assert_eq!(
                given,
                if wanted { topic.partitions as usize } else { 0 },
                "topic {t} of {targets:?}"
            );
        }
        for target in &targets {
            assert!(target.is_sorted_by(|a, b| a.0 < b.0), "topics ascend");
            assert!(
                target
                    .iter()
                    .all(|(_, p)| !p.is_empty() && p.is_sorted_by(|a, b| a < b)),
                "partitions ascend"
            );
        }
        for (member, target) in self.members.iter_mut().zip(&targets) {
            member.3.clone_from(target);
        }
        targets
    }
}

fn of_topic(target: &IdPartitions, t: usize) -> &[i32] {
    target
        .iter()
        .find(|(topic, _)| *topic == id(t))
        .map_or(&[], |(_, partitions)| partitions)
}

fn load(target: &IdPartitions) -> usize {
    target.iter().map(|(_, partitions)| partitions.len()).sum()
}

fn loads(targets: &[IdPartitions]) -> Vec<usize> {
    targets.iter().map(load).collect()
}

/// Partitions of `after` that the same member had in `before`.
fn kept(before: &[IdPartitions], after: &[IdPartitions]) -> usize {
    let has = |target: &IdPartitions, topic, p| {
        target.iter().any(|(t, ps)| *t == topic && ps.contains(&p))
    };
    before
        .iter()
        .zip(after)
        .map(|(b, a)| {
            a.iter()
                .flat_map(|(t, ps)| ps.iter().map(move |p| (*t, *p)))
                .filter(|(t, p)| has(b, *t, *p))
                .count()
        })
        .sum()
}

/// The most that any assignment with these counts could keep, found by trying all ways to hand out the extra ones.
fn most_kept(held: &[usize], total: usize) -> usize {
    let (share, extra) = (total / held.len(), total % held.len());
    (0u32..1 << held.len())
        .filter(|chosen| chosen.count_ones() as usize == extra)
        .map(|chosen| {
            (0..held.len())
                .map(|m| held[m].min(share + (chosen >> m & 1) as usize))
                .sum()
        })
        .max()
        .unwrap()
}

fn no_single_move_improves(world: &World, targets: &[IdPartitions]) -> Result<(), TestCaseError> {
    for t in 0..world.topics.len() {
        let subscribers = (0..targets.len()).filter(|&m| world.members[m].2.contains(&(t as u32)));
        let least = subscribers.map(|m| load(&targets[m])).min().unwrap_or(0);
        let owners = (0..targets.len()).filter(|&m| !of_topic(&targets[m], t).is_empty());
        let most = owners.map(|m| load(&targets[m])).max().unwrap_or(0);
        prop_assert!(
            most < least + 2,
            "topic {} could move from {} to {}: {:?}",
            t,
            most,
            least,
            targets
        );
    }
    Ok(())
}

/// Topics, members and last targets; with `same`, every member has the first one's subscription. Each partition's last
/// owner is drawn from the members or nobody; owners that do not subscribe make targets that count for nothing.
fn worlds(same: bool) -> impl Strategy<Value = World> {
    (
        proptest::collection::vec(0u32..6, 1..6),
        proptest::collection::vec(
            (
                any::<bool>(),
                proptest::collection::btree_set(0u32..6, 0..6),
            ),
            1..7,
        ),
        proptest::collection::vec(0usize..12, 36),
    )
        .prop_map(move |(partitions, members, owners)| {
            let mut world = World::new(&partitions, &[]);
            for (m, (is_static, subscribed)) in members.iter().enumerate() {
                let subscribed = if same { &members[0].1 } else { subscribed };
                let subscribed = subscribed
                    .iter()
                    .copied()
                    .filter(|&t| (t as usize) < partitions.len())
                    .collect();
                // Instance ids run against member ids.
                let instance_id = is_static.then(|| format!("i{}", 9 - m));
                world
                    .members
                    .push((format!("m{m}"), instance_id, subscribed, Vec::new()));
            }
            let mut owners = owners.into_iter();
            for (t, &count) in partitions.iter().enumerate() {
                for p in 0..count as i32 {
                    let owner = owners.next().and_then(|m| world.members.get_mut(m));
                    let Some((.., target)) = owner else { continue };
                    match target.last_mut().filter(|(topic, _)| *topic == id(t)) {
                        Some((_, partitions)) => partitions.push(p),
                        None => target.push((id(t), vec![p])),
                    }
                }
            }
            world
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn uniform_with_equal_subscriptions_is_even_and_moves_as_little_as_possible(mut world in worlds(true)) {
        let subscribed = world.members[0].2.clone();
        if subscribed.is_empty() {
            return Ok(());
        }
        let before: Vec<IdPartitions> = world.members.iter().map(|m| {
            m.3.iter().filter(|(t, _)| subscribed.iter().any(|s| id(*s as usize) == *t)).cloned().collect()
        }).collect();
        let targets = world.assign(&Uniform);
        let loads = loads(&targets);
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1, "{:?}", targets);
        let total = loads.iter().sum();
        let held: Vec<usize> = before.iter().map(load).collect();
        prop_assert_eq!(kept(&before, &targets), most_kept(&held, total));
    }

    #[test]
    fn uniform_with_mixed_subscriptions_leaves_no_move_that_improves(mut world in worlds(false)) {
        let targets = world.assign(&Uniform);
        no_single_move_improves(&world, &targets)?;
    }

    #[test]
    fn range_is_contiguous_and_shares_out_in_order(mut world in worlds(false)) {
        let targets = world.assign(&Range);
        let mut order: Vec<usize> = (0..world.members.len()).collect();
        order.sort_by_key(|&m| (world.members[m].1.is_none(), world.members[m].1.clone(), m));
        for (t, topic) in world.topics.iter().enumerate() {
            let subscribers: Vec<usize> = order.iter().copied().filter(|&m| world.members[m].2.contains(&(t as u32))).collect();
            let in_order: Vec<i32> = subscribers.iter().flat_map(|&m| of_topic(&targets[m], t).to_vec()).collect();
            if !subscribers.is_empty() {
                prop_assert_eq!(in_order, (0..topic.partitions as i32).collect::<Vec<_>>());
            }
            let counts: Vec<usize> = subscribers.iter().map(|&m| of_topic(&targets[m], t).len()).collect();
            prop_assert!(counts.is_sorted_by(|a, b| a >= b), "the first ones get the extra: {:?}", counts);
            prop_assert!(counts.first().unwrap_or(&0) - counts.last().unwrap_or(&0) <= 1);
        }
    }

    #[test]
    fn nothing_moves_while_nothing_changes(mut world in worlds(false), range in any::<bool>()) {
        let assignor: &dyn Assignor = if range { &Range } else { &Uniform };
        let first = world.assign(assignor);
        prop_assert_eq!(world.assign(assignor), first);
    }

    #[test]
    fn histories_keep_the_property(
        mut world in worlds(true),
        steps in proptest::collection::vec((0u8..4, 0usize..8, 0u32..6), 1..12),
    ) {
        for (step, which, count) in steps {
            let topics = world.topics.len();
            match step {
                0 if world.members.len() < 8 => {
                    let name = format!("n{which}{}", world.members.len());
                    let subscribed = (0..topics as u32).filter(|t| t & count == 0).collect();
                    world.members.push((name, None, subscribed, Vec::new()));
                    world.members.sort_by(|a, b| a.0.cmp(&b.0));
                }
                1 if world.members.len() > 1 => {
                    world.members.remove(which % world.members.len());
                }
                2 => world.topics[which % topics].partitions = count,
                _ => {
                    let member = which % world.members.len();
                    world.members[member].2 = (0..topics as u32).filter(|t| t & count != 0).collect();
                }
            }
            let targets = world.assign(&Uniform);
            no_single_move_improves(&world, &targets)?;
        }
    }
}

#[test]
fn a_second_member_takes_half_and_nothing_else_moves() {
    let mut world = World::new(&[4], &[&[0]]);
    assert_eq!(world.assign(&Uniform), [vec![(id(0), vec![0, 1, 2, 3])]]);
    world.members.push(("m1".into(), None, vec![0], Vec::new()));
    let targets = world.assign(&Uniform);
    assert_eq!(loads(&targets), [2, 2]);
}

#[test]
fn uniform_spreads_each_topic() {
    let mut world = World::new(&[4, 4], &[&[0, 1], &[0, 1]]);
    for target in world.assign(&Uniform) {
        assert_eq!(
            (of_topic(&target, 0).len(), of_topic(&target, 1).len()),
            (2, 2)
        );
    }
    let mut world = World::new(&[4, 4], &[&[0, 1]]);
    world.assign(&Uniform);
    world
        .members
        .push(("m1".into(), None, vec![0, 1], Vec::new()));
    for target in world.assign(&Uniform) {
        assert_eq!(
            (of_topic(&target, 0).len(), of_topic(&target, 1).len()),
            (2, 2)
        );
    }
}

#[test]
fn a_member_without_a_subscription_leaves_the_rest_even() {
    let mut world = World::new(&[5], &[&[0], &[], &[0]]);
    assert_eq!(loads(&world.assign(&Uniform)), [3, 0, 2]);
}

#[test]
fn range_partitions_topics_of_one_size_alike() {
    let mut world = World::new(&[5, 5], &[&[0, 1], &[0, 1], &[0, 1]]);
    for target in world.assign(&Range) {
        assert_eq!(of_topic(&target, 0), of_topic(&target, 1));
    }
}

#[test]
fn range_puts_static_members_first_by_instance_id() {
    let mut world = World::new(&[3], &[&[0], &[0], &[0]]);
    world.members[2].1 = Some("a".into());
    world.members[1].1 = Some("b".into());
    let targets = world.assign(&Range);
    assert_eq!(
        targets.iter().map(|t| of_topic(t, 0)).collect::<Vec<_>>(),
        [&[2], &[1], &[0]]
    );
}

#[test]
fn a_target_held_by_two_goes_to_the_first() {
    let mut world = World::new(&[2], &[&[0], &[0]]);
    for member in &mut world.members {
        // A partition that is gone, a negative one and a strange topic count for nothing.
        member.3 = vec![(id(9), vec![0]), (id(0), vec![1, 1, 7, -1])];
    }
    let targets = world.assign(&Uniform);
    assert_eq!(targets, [vec![(id(0), vec![1])], vec![(id(0), vec![0])]]);
}

#[test]
fn a_chain_of_topics_levels_from_end_to_end() {
    // Topic t has subscribers t and t + 1 only, and all the load starts at one end.
    let chain: Vec<Vec<u32>> = (0..=30u32)
        .map(|m| (m.saturating_sub(1)..=m.min(29)).collect())
        .collect();
    let subscriptions: Vec<&[u32]> = chain.iter().map(Vec::as_slice).collect();
    let mut world = World::new(&[40; 30], &subscriptions);
    for t in 0..30 {
        world.members[t].3 = vec![(id(t), (0..40).collect())];
    }
    world.topics[0].partitions = 2_000;
    let targets = world.assign(&Uniform);
    no_single_move_improves(&world, &targets).unwrap();
}

#[test]
fn check_finds_what_an_assignor_did_wrong() {
    let world = World::new(&[2, 1], &[&[0], &[0]]);
    let refused = |targets: &[IdPartitions]| world.with(|input| check(input, targets).unwrap_err());
    let none = Vec::new;
    assert!(refused(&[none()]).contains("1 targets for 2 members"));
    assert!(refused(&[vec![(id(7), vec![0])], none()]).contains("nobody subscribes"));
    assert!(refused(&[vec![(id(1), vec![0])], none()]).contains("without subscribing"));
    assert!(refused(&[vec![(id(0), vec![2])], none()]).contains("no partition 2"));
    assert!(refused(&[vec![(id(0), vec![-1])], none()]).contains("no partition -1"));
    assert!(refused(&[vec![(id(0), vec![1])], vec![(id(0), vec![0, 1])]]).contains("twice"));
}

#[test]
fn what_came_last_goes_first() {
    let world = World::new(&[6], &[&[0], &[0]]);
    let assigned = [AssignedPartitions {
        topic_id: id(0),
        partitions: vec![(1, 2), (3, 2), (5, 3)],
    }];
    // Promised all six, it has got three of them, one since lately.
    let target = [(id(0), vec![0, 1, 2, 3, 4, 5])];
    let member = |m: usize| AssignMember {
        member_id: &world.members[m].0,
        instance_id: None,
        rack_id: None,
        subscribed: &[0],
        target: if m == 0 { &target } else { &[] },
        assigned: if m == 0 { &assigned } else { &[] },
    };
    let two = Input {
        topics: &world.topics,
        members: &[member(0), member(1)],
    };
    assert_eq!(Uniform.assign(&two).unwrap()[0], [(id(0), vec![1, 3, 5])]);
    let third = AssignMember {
        member_id: "m2",
        ..member(1)
    };
    let three = Input {
        topics: &world.topics,
        members: &[member(0), member(1), third],
    };
    assert_eq!(Uniform.assign(&three).unwrap()[0], [(id(0), vec![1, 3])]);
}
