//! C45, C49: random histories. What is live is what is stored, whatever compaction leaves of it.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::discriminant;

use convoke::group::record::Record;
use convoke::group::request::{OffsetDelete, Request};

use super::super::words::subscribes;
use super::{Player, Stage, Waits};

/// A small generator (xorshift): its seed is the case.
struct Dice(u64);

impl Dice {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

/// A member in a random history, and what it waits for.
struct Actor {
    player: Player,
    join: Option<Waits>,
    syncs: Vec<Waits>,
}

const GROUPS: [&str; 3] = ["one", "two", "three"];

/// Plays some random steps.
fn play(stage: &mut Stage, dice: &mut Dice, actors: &mut Vec<Actor>, steps: usize) {
    for _ in 0..steps {
        let group = GROUPS[dice.below(GROUPS.len())];
        match dice.below(20) {
            0..=2 if actors.len() < 12 => {
                let mut player = Player::new(group);
                if dice.below(3) == 0 {
                    player.instance_id = Some(format!("i{}", dice.below(3)).into());
                }
                if dice.below(5) == 0 {
                    player.protocol_type = "connect".into();
                }
                actors.push(Actor {
                    player,
                    join: None,
                    syncs: Vec::new(),
                });
            }
            3 => {
                stage.delete_group(group);
            }
            4 => {
                let topics = vec![("t".into(), vec![0, 1]), ("u".into(), vec![0])];
                stage.send(Request::OffsetDelete(OffsetDelete {
                    group_id: group.into(),
                    topics,
                }));
            }
            5..=6 => {
                let topic = ["t", "u"][dice.below(2)];
                let offset = dice.below(1_000) as i64;
                stage.commit(&Player::new(group), topic, &[offset, offset + 1]);
            }
            7 => {
                let ms = [10, 3_000, 11_000, 60_000][dice.below(4)];
                stage.advance(ms);
            }
            _ if actors.is_empty() => {}
            step => {
                let index = dice.below(actors.len());
                act(stage, dice, &mut actors[index], step);
                if step == 8 {
                    actors.swap_remove(index);
                }
            }
        }
    }
}

/// One step of one actor.
fn act(stage: &mut Stage, dice: &mut Dice, actor: &mut Actor, step: usize) {
    actor
        .syncs
        .retain(|sync| !stage.replies.contains_key(&sync.0));
    if let Some(join) = actor
        .join
        .take_if(|join| stage.replies.contains_key(&join.0))
    {
        actor.player.joined(stage, join);
    }
    let player = &mut actor.player;
    match step {
        8 => {
            player.leave(stage);
        }
        9..=12 => {
            if dice.below(3) == 0 {
                player.metadata = subscribes([&["t"][..], &["u"], &["t", "u"]][dice.below(3)]);
            }
            actor.join = Some(player.join(stage));
        }
        13..=15 => {
            let share = vec![(player.member_id.clone(), "share".into())];
            actor.syncs.push(player.assign(stage, share));
        }
        16..=17 => {
            player.heartbeat(stage);
        }
        _ => {
            let offset = dice.below(1_000) as i64;
            stage.commit(player, "t", &[offset]);
        }
    }
}

/// Which records replace each other: Kafka's key.
fn key(record: &Record) -> String {
    match record {
        Record::OffsetCommit {
            group_id,
            topic,
            partition,
            ..
        } => {
            format!("offset {group_id} {topic} {partition}")
        }
        other => format!("{:?} {}", discriminant(other), other.group_id()),
    }
}

/// Whether a record takes something away.
fn is_tombstone(record: &Record) -> bool {
    matches!(
        record,
        Record::OffsetCommit { value: None, .. } | Record::GroupMetadata { value: None, .. }
    )
}

/// Drops some records that a later one replaces, and some tombstones that are the last of their key and nothing
/// before which is left.
fn compact(log: &[Record], dice: &mut Dice) -> Vec<Record> {
    let mut last = BTreeMap::new();
    for (index, record) in log.iter().enumerate() {
        last.insert(key(record), index);
    }
    let mut left = BTreeSet::new();
    let mut kept = Vec::new();
    for (index, record) in log.iter().enumerate() {
        let key = key(record);
        let replaced = last[&key] != index;
        let droppable = replaced || (is_tombstone(record) && !left.contains(&key));
        if droppable && dice.below(3) > 0 {
            continue;
        }
        left.insert(key);
        kept.push(record.clone());
    }
    kept
}

#[test]
fn c45_any_compaction_of_any_history_loads_to_the_same_facts() {
    for seed in 1..=40 {
        let mut dice = Dice::new(seed);
        let mut stage = keeping();
        let mut actors = Vec::new();
        play(&mut stage, &mut dice, &mut actors, 400);
        stage.check();
        for _ in 0..5 {
            let mut loaded = keeping();
            loaded.now = stage.now;
            for record in compact(&stage.log, &mut dice) {
                loaded.live.apply(&record);
            }
            assert_eq!(facts(&loaded), facts(&stage), "seed {seed}");
        }
    }
}

#[test]
fn c49_what_is_fetched_before_a_crash_is_fetched_after_it() {
    for seed in 1..=40 {
        let mut dice = Dice::new(1_000 + seed);
        let mut stage = keeping();
        let mut actors = Vec::new();
        for round in 0..6 {
            play(&mut stage, &mut dice, &mut actors, 60);
            let before = all_offsets(&mut stage);
            match round % 2 {
                0 => stage.crash(),
                _ => stage.crash_on_snapshot(),
            }
            assert_eq!(all_offsets(&mut stage), before, "seed {seed}");
            // Their connections are gone, and what they waited for with them.
            actors.clear();
        }
    }
}

/// Every fact, by key. (The newest stamp of all, which the clock starts from, may be compacted away.)
fn facts(stage: &Stage) -> BTreeMap<String, Record> {
    let records = stage.live.snapshot();
    records.map(|record| (key(&record), record)).collect()
}

fn keeping() -> Stage {
    Stage::with(|config| {
        config.offsets_retention_ms = 120_000;
        config.offsets_retention_check_interval_ms = 5_000;
    })
}

fn all_offsets(stage: &mut Stage) -> Vec<i64> {
    let mut offsets = Vec::new();
    for group in GROUPS {
        for topic in ["t", "u"] {
            for partition in 0..3 {
                offsets.push(stage.committed(group, topic, partition));
            }
        }
    }
    offsets
}
