//! Random lives of a group under an operator's hands. Every reset moves to offsets of its own era, and members only read
//! on from what was committed: so an offset tells what it is based on, and an old one that wins is seen at once.

use std::collections::BTreeMap;

use super::clients::{Member, PARTITIONS, Speaks};
use super::{World, to};
use crate::group::GroupConfig;
use crate::group::operator::{Action, NotDoneKind, Operated, Who};
use crate::group::types::MemberId;

const ERA: i64 = 1_000_000;

struct Rng(u64);

impl Rng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % n
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

enum Order {
    Reset,
    Drain(MemberId),
    Pause,
}

struct Life {
    world: World,
    rng: Rng,
    members: Vec<Member>,
    era: i64,
    /// The era of each partition's committed offset, as operators were told.
    told: BTreeMap<i32, i64>,
    running: Option<(u64, Order)>,
    paused: bool,
    drained: Vec<MemberId>,
    resets: u32,
    mixed: bool,
}

impl Life {
    fn new(seed: u64, members: Vec<Member>) -> Self {
        let config = GroupConfig {
            initial_rebalance_delay_ms: 0,
            ..GroupConfig::default()
        };
        let speaks = |s| members.iter().any(|member: &Member| member.speaks == s);
        let mixed =
            speaks(Speaks::Consumer) && !members.iter().all(|m| m.speaks == Speaks::Consumer);
        Self {
            world: World::with(config),
            rng: Rng(seed),
            members,
            era: 0,
            told: BTreeMap::new(),
            running: None,
            paused: false,
            drained: Vec::new(),
            resets: 0,
            mixed,
        }
    }

    fn step(&mut self) {
        let place = self.rng.below(self.members.len() as u64) as usize;
        let member = &mut self.members[place];
        let what = self.rng.below(100);
        if std::env::var("OPERATE_SEED").is_ok() {
            eprintln!(
                "{} {what} {member:?}\n    {:?} {:?}",
                self.world.now.0,
                self.world.here(),
                self.told
            );
        }
        match what {
            0..60 => member.turn(&mut self.world),
            60..70 => member.read(),
            70..80 => member.commit_all(&mut self.world),
            80..84 => member.commit_old(&mut self.world),
            84..86 if self.rng.chance(30) => member.leave(&mut self.world),
            86 if self.rng.chance(20) => member.die(),
            87 if self.rng.chance(20) => self.restart(),
            88..92 => self.order(),
            _ => {
                let ms = [10, 100, 1_000, 3_000][self.rng.below(4) as usize];
                self.world.advance(ms);
            }
        }
        self.look();
    }

    fn restart(&mut self) {
        self.world.restart();
        self.running = None;
        self.drained.clear();
        // Whether it is to be paused outlives the process, by the settings.
        self.paused = false;
        self.members.iter_mut().for_each(Member::hang_up);
    }

    fn order(&mut self) {
        let place = self.rng.below(self.members.len() as u64) as usize;
        let member_id = self.members[place].member_id.clone();
        match self.rng.below(10) {
            0..5 => {
                self.era += 1;
                let mut moves = Vec::new();
                for partition in 0..PARTITIONS {
                    if self.rng.chance(50) {
                        moves.push(to(partition, self.era * ERA));
                    }
                }
                self.begin(Action::Reset(moves), Order::Reset);
            }
            5 => self.begin(Action::Pause, Order::Pause),
            6 => {
                self.paused = false;
                let _ = self.world.operate(Action::Resume);
            }
            7 => {
                let who = Who::Member(member_id.clone());
                self.begin(Action::Drain { member: who }, Order::Drain(member_id));
            }
            8 => {
                let members = vec![Who::Member(member_id)];
                let ban_ms = self.rng.below(2) as i64 * 3_000;
                let _ = self.world.operate(Action::Kick { members, ban_ms });
            }
            _ => {
                let _ = self.world.operate(Action::Rebalance);
            }
        }
    }

    fn begin(&mut self, action: Action, order: Order) {
        if std::env::var("OPERATE_SEED").is_ok() {
            eprintln!("{action:?}");
        }
        let id = self.world.begin(action);
        if self.running.is_none() {
            self.running = Some((id, order));
            return;
        }
        match self.world.outcome(id) {
            Some(Err(why)) if why.kind == NotDoneKind::Conflict => {}
            Some(Err(why)) if why.kind == NotDoneKind::Invalid => {}
            Some(Err(why)) if why.kind == NotDoneKind::NotFound => {}
            other => panic!("two actions at once: {other:?}"),
        }
    }

    fn done(&mut self, order: Order, operated: &Operated) {
        match order {
            Order::Reset => {
                self.resets += 1;
                for change in &operated.offsets {
                    self.told.insert(change.partition, change.to.unwrap() / ERA);
                }
            }
            Order::Pause => self.paused = true,
            Order::Drain(member_id) => self.drained.push(member_id),
        }
    }

    /// What must hold after every step.
    fn look(&mut self) {
        if let Some((id, _)) = self.running
            && let Some(outcome) = self.world.outcome(id)
            && let Some((_, order)) = self.running.take()
            && let Ok(operated) = outcome
        {
            self.done(order, &operated);
        }
        for partition in 0..PARTITIONS {
            let era = self.world.committed("t", partition).max(0) / ERA;
            let told = self.told.get(&partition).copied().unwrap_or(0);
            assert_eq!(era, told, "partition {partition} is of another era");
        }
        let here = self.world.here();
        self.drained.retain(|id| here.iter().any(|(m, _)| m == id));
        let mut owners = BTreeMap::new();
        for member in &self.members {
            // Whoever is no member, or of another generation, will hear of it.
            let current = (member.member_id.clone(), member.epoch);
            if !here.contains(&current) {
                continue;
            }
            let owned = member.partitions();
            if self.paused {
                assert!(
                    owned.is_empty(),
                    "{} owns something in a paused group",
                    member.name
                );
            }
            if self.drained.contains(&member.member_id) {
                assert!(owned.is_empty(), "{} was drained", member.name);
            }
            for partition in owned {
                // Whoever has not seen the last classic assignment keeps what it had when the group goes over to the
                // other protocol, as in Kafka.
                if self.mixed {
                    continue;
                }
                let other = owners.insert(partition, member.name);
                assert_eq!(other, None, "{partition} has two owners");
            }
        }
    }

    /// Nothing happens any more but members' turns: everything must come to its end.
    fn calm(&mut self) {
        for round in 0..400 {
            for place in 0..self.members.len() {
                self.members[place].turn(&mut self.world);
                self.look();
            }
            self.world.advance(1_000);
            self.look();
            if round > 100
                && self.running.is_none()
                && self.members.iter().all(Member::is_settled)
                && self.all_owned()
            {
                return;
            }
        }
        assert!(self.running.is_none(), "an action without an end");
        assert!(
            self.members.iter().all(Member::is_settled),
            "{:?}",
            self.members
        );
        panic!(
            "partitions without an owner: {:?}\n{:#?}",
            self.members,
            self.world.live.classic.get("g")
        );
    }

    fn all_owned(&self) -> bool {
        let owned: usize = self.members.iter().map(|member| member.owned.len()).sum();
        let idle = self
            .members
            .iter()
            .all(|m| self.drained.contains(&m.member_id));
        owned == PARTITIONS as usize || idle || self.world.live.is_paused("g")
    }
}

fn live(what: &str, members: impl Fn() -> Vec<Member>) {
    let mut resets = 0;
    let seeds = match std::env::var("OPERATE_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
    {
        Some(seed) => seed..=seed,
        None => 1..=20,
    };
    for seed in seeds {
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut life = Life::new(seed, members());
            for _ in 0..600 {
                life.step();
            }
            life.calm();
            life.resets
        }));
        match run {
            Ok(done) => resets += done,
            Err(why) => {
                eprintln!("{what}: OPERATE_SEED={seed}");
                std::panic::resume_unwind(why);
            }
        }
    }
    assert!(
        resets > 0 || std::env::var("OPERATE_SEED").is_ok(),
        "{what}: nothing was ever reset"
    );
}

#[test]
fn eager_members_never_resurrect_an_offset() {
    live("eager", || {
        vec![
            Member::new("a", Speaks::Eager),
            Member::new("b", Speaks::Eager),
            Member::fixed("c", Speaks::Eager),
        ]
    });
}

#[test]
fn cooperative_members_never_resurrect_an_offset() {
    live("cooperative", || {
        vec![
            Member::new("a", Speaks::Cooperative),
            Member::new("b", Speaks::Cooperative),
            Member::fixed("c", Speaks::Cooperative),
        ]
    });
}

#[test]
fn members_of_consumer_groups_never_resurrect_an_offset() {
    live("consumer", || {
        vec![
            Member::new("a", Speaks::Consumer),
            Member::new("b", Speaks::Consumer),
            Member::fixed("c", Speaks::Consumer),
        ]
    });
}

#[test]
fn groups_that_change_their_protocol_never_resurrect_an_offset() {
    live("mixed", || {
        vec![
            Member::new("a", Speaks::Cooperative),
            Member::new("b", Speaks::Cooperative),
            Member::new("c", Speaks::Consumer),
        ]
    });
}
