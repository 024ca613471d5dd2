//! C02, C06, C07, C11, C14–C16, C21, C22, C77: members in virtual time.

use bytes::Bytes;

use super::super::words::codes::*;
use super::super::words::subscribes;
use super::{Player, Stage, settle, sync_all};

/// Lets time pass in steps, with a heartbeat of each player at each.
fn live_on(stage: &mut Stage, players: &[Player], ms: i64, step_ms: i64) {
    for _ in 0..ms / step_ms {
        stage.advance(step_ms);
        for player in players {
            assert_eq!(player.heartbeat(stage), NONE);
        }
    }
}

#[test]
fn c02_an_id_that_nobody_uses_holds_the_group_up_for_seconds_only() {
    let mut stage = Stage::new();
    let mut players = vec![Player::new("g")];
    settle(&mut stage, &mut players);
    let (mut x1, mut x2) = (Player::new("g"), Player::new("g"));
    (x1.session_timeout_ms, x2.session_timeout_ms) = (45_000, 45_000);
    x1.knock(&mut stage);
    stage.advance(1_000);
    x2.knock(&mut stage);
    let joins = [players[0].join(&mut stage), x2.join(&mut stage)];
    // Five seconds after X1 was told its id.
    stage.advance(3_999);
    assert_eq!(joins.map(|join| stage.reply(join)), [None, None]);
    stage.advance(1);
    players.push(x2);
    for (player, join) in players.iter_mut().zip(joins) {
        assert_eq!(player.joined(&mut stage, join).generation, 2);
    }
    sync_all(&mut stage, &players);
    assert_eq!(stage.member_count("g"), 2);
    // Whoever is slow to come is not turned away, but has another rebalance.
    live_on(&mut stage, &players, 30_000, 5_000);
    let x1_joins = x1.join(&mut stage);
    for player in &players {
        player.join(&mut stage);
    }
    assert_eq!(x1.joined(&mut stage, x1_joins).generation, 3);
    // Nor is an id good for longer than the session it asked for.
    let mut x3 = Player::new("g");
    x3.knock(&mut stage);
    stage.advance(10_000);
    let join = x3.join(&mut stage);
    assert_eq!(x3.joined(&mut stage, join).error, UNKNOWN_MEMBER_ID);
}

#[test]
fn c06_ghosts_of_a_long_rebalance_are_removed_after_five_minutes() {
    let mut stage = Stage::new();
    let mut a = [Player::new("g")];
    a[0].rebalance_timeout_ms = 30 * 60_000;
    settle(&mut stage, &mut a);
    for _ in 0..50 {
        // Nobody waits at the other end any more.
        Player::new("g").join(&mut stage);
    }
    assert_eq!(stage.member_count("g"), 51);
    for _ in 0..59 {
        stage.advance(5_000);
        assert_eq!(a[0].heartbeat(&mut stage), REBALANCE_IN_PROGRESS);
    }
    assert_eq!(stage.member_count("g"), 51);
    stage.advance(5_000);
    assert_eq!(stage.member_count("g"), 1);
    let join = a[0].join(&mut stage);
    assert_eq!(a[0].joined(&mut stage, join).members.len(), 1);
}

#[test]
fn c07_the_timer_of_a_member_that_is_gone_does_nothing() {
    let mut stage = Stage::new();
    let mut players = vec![Player::new("g"), Player::new("g"), Player::new("g")];
    for player in &mut players {
        (player.session_timeout_ms, player.rebalance_timeout_ms) = (30_000, 10_000);
    }
    settle(&mut stage, &mut players);
    let c = players.pop().unwrap();
    let mut d = c.clone();
    d.member_id = "".into();
    let d_joins = d.join(&mut stage);
    let joins = [players[0].join(&mut stage), players[1].join(&mut stage)];
    stage.advance(9_999);
    assert!(stage.reply(d_joins).is_none());
    stage.advance(1);
    d.joined(&mut stage, d_joins);
    players[0].joined(&mut stage, joins[0]);
    players[1].joined(&mut stage, joins[1]);
    players.push(d);
    sync_all(&mut stage, &players);
    assert_eq!(players[0].generation, c.generation + 1);
    // Two session timeouts on, nobody has heard of another generation.
    live_on(&mut stage, &players, 60_000, 5_000);
    assert_eq!(stage.member_count("g"), 3);
    assert_eq!(c.heartbeat(&mut stage), UNKNOWN_MEMBER_ID);
}

#[test]
fn c11_the_first_members_of_a_group_gather_in_one_generation() {
    let mut stage = Stage::with(|config| config.initial_rebalance_delay_ms = 3_000);
    let mut players = vec![Player::new("g"); 10];
    let joins: Vec<_> = players
        .iter()
        .map(|player| {
            stage.advance(200);
            player.join(&mut stage)
        })
        .collect();
    // The first came 1.8 s ago; members came since, so its 3 s are followed by 3 more.
    stage.advance(1_200 + 2_999);
    assert!(
        joins
            .iter()
            .all(|join| !stage.replies.contains_key(&join.0))
    );
    stage.advance(1);
    for (player, join) in players.iter_mut().zip(joins) {
        let reply = player.joined(&mut stage, join);
        assert_eq!((reply.error, reply.generation), (NONE, 1));
    }
    sync_all(&mut stage, &players);

    // An eleventh waits for the others to rejoin, and for nothing else.
    let mut eleventh = Player::new("g");
    let late = eleventh.join(&mut stage);
    let joins: Vec<_> = players
        .iter()
        .map(|player| player.join(&mut stage))
        .collect();
    assert_eq!(eleventh.joined(&mut stage, late).generation, 2);
    for (player, join) in players.iter_mut().zip(joins) {
        assert_eq!(player.joined(&mut stage, join).generation, 2);
    }
}

#[test]
fn c11_the_initial_delay_ends_with_the_rebalance_timeout() {
    let mut stage = Stage::with(|config| config.initial_rebalance_delay_ms = 3_000);
    let mut first = Player::new("g");
    first.rebalance_timeout_ms = 10_000;
    let join = first.join(&mut stage);
    // One more every second, without end.
    for _ in 0..9 {
        stage.advance(1_000);
        Player {
            rebalance_timeout_ms: 10_000,
            ..Player::new("g")
        }
        .join(&mut stage);
    }
    stage.advance(999);
    assert!(!stage.replies.contains_key(&join.0));
    stage.advance(1);
    assert_eq!(first.joined(&mut stage, join).members.len(), 10);
}

#[test]
fn c14_seven_thousand_members_become_stable_in_one_generation() {
    let mut stage = Stage::with(|config| config.initial_rebalance_delay_ms = 3_000);
    let mut bystander = [Player::new("other")];
    let alone = bystander[0].join(&mut stage);
    stage.advance(3_000);
    bystander[0].joined(&mut stage, alone);
    sync_all(&mut stage, &bystander);

    let mut players = vec![Player::new("big"); 7_000];
    let joins: Vec<_> = players
        .iter()
        .map(|player| player.join(&mut stage))
        .collect();
    stage.advance(6_000);
    for (player, join) in players.iter_mut().zip(joins) {
        let reply = player.joined(&mut stage, join);
        assert_eq!(reply.members.len(), if player.leads { 7_000 } else { 0 });
    }
    assert_eq!(bystander[0].heartbeat(&mut stage), NONE);
    sync_all(&mut stage, &players);
    let described = stage.describe("big");
    assert_eq!(
        (described.state, described.members.len()),
        ("Stable", 7_000)
    );
    stage.crash();
    assert_eq!(players[0].heartbeat(&mut stage), NONE);
    assert_eq!(players[6_999].heartbeat(&mut stage), NONE);
    assert_eq!(stage.member_count("big"), 7_000);
}

#[test]
fn c15_a_smaller_limit_after_a_restart_refuses_the_last_who_rejoins() {
    let mut stage = Stage::with(|config| config.max_size = 3);
    let mut players = vec![Player::new("g"), Player::new("g"), Player::new("g")];
    settle(&mut stage, &mut players);
    stage.crash_into(|config| config.max_size = 2);
    for player in &players {
        assert_eq!(player.heartbeat(&mut stage), REBALANCE_IN_PROGRESS);
    }
    let joins: Vec<_> = players
        .iter()
        .map(|player| player.join(&mut stage))
        .collect();
    let outcomes: Vec<_> = players
        .iter_mut()
        .zip(joins)
        .map(|(player, join)| player.joined(&mut stage, join).error)
        .collect();
    assert_eq!(outcomes, [NONE, NONE, GROUP_MAX_SIZE_REACHED]);
    players.pop();
    sync_all(&mut stage, &players);
    assert_eq!(stage.member_count("g"), 2);
}

#[test]
fn c16_a_hundred_members_that_notice_one_after_another_fold_into_few_generations() {
    let mut stage = Stage::new();
    let mut players = vec![Player::new("g"); 100];
    settle(&mut stage, &mut players);
    let before = players[0].generation;
    let newest = subscribes(&["t", "new"]);
    let mut joins = Vec::new();
    // A member notices the new topic every 100 ms; every second all heartbeat, and those who must rejoin.
    for tick in 0..100 {
        stage.advance(100);
        players[tick].metadata = newest.clone();
        if joins.iter().all(|(index, _)| *index != tick) {
            joins.push((tick, players[tick].join(&mut stage)));
        }
        if tick % 10 != 9 {
            continue;
        }
        for (index, player) in players.iter().enumerate() {
            let waits = joins.iter().any(|(joining, _)| *joining == index);
            if !waits && player.heartbeat(&mut stage) == REBALANCE_IN_PROGRESS {
                joins.push((index, player.join(&mut stage)));
            }
        }
        for (index, join) in joins.drain(..) {
            assert_eq!(players[index].joined(&mut stage, join).error, NONE);
        }
        sync_all(&mut stage, &players);
    }
    assert_eq!(players[0].generation, before + 10);
    let described = stage.describe("g");
    assert!(
        described
            .members
            .iter()
            .all(|member| member.metadata == newest)
    );
}

#[test]
fn c21_a_rebalance_that_no_static_member_joins_ends_with_their_sessions() {
    let mut stage = Stage::new();
    let mut players = vec![
        Player::of_instance("g", "i1"),
        Player::of_instance("g", "i2"),
    ];
    for player in &mut players {
        (player.session_timeout_ms, player.rebalance_timeout_ms) = (60_000, 5_000);
    }
    settle(&mut stage, &mut players);
    let mut d = Player::new("g");
    d.rebalance_timeout_ms = 5_000;
    d.join(&mut stage);
    stage.advance(1_000);
    let members = stage.describe("g").members;
    let d_id = members
        .iter()
        .find(|m| m.group_instance_id.is_none())
        .unwrap();
    d.member_id = d_id.member_id.clone();
    assert_eq!(d.leave(&mut stage), NONE);
    for _ in 0..10 {
        stage.advance(5_000);
        assert_eq!(stage.describe("g").state, "PreparingRebalance");
        assert_eq!(stage.member_count("g"), 2);
    }
    stage.advance(10_000);
    assert_eq!(stage.describe("g").state, "Empty");
}

#[test]
fn c22_new_timeouts_of_a_static_member_count_after_a_crash_too() {
    let mut stage = Stage::new();
    let mut old = Player::of_instance("g", "i1");
    (old.session_timeout_ms, old.rebalance_timeout_ms) = (60_000, 300_000);
    settle(&mut stage, std::slice::from_mut(&mut old));
    let mut new = Player::of_instance("g", "i1");
    (new.session_timeout_ms, new.rebalance_timeout_ms) = (10_000, 20_000);
    let join = new.join(&mut stage);
    assert_eq!(new.joined(&mut stage, join).generation, old.generation);
    stage.crash();
    assert_eq!(new.heartbeat(&mut stage), NONE);
    let mut d = Player::new("g");
    d.rebalance_timeout_ms = 1_000;
    let join = d.join(&mut stage);
    for _ in 0..3 {
        stage.advance(5_000);
        assert_eq!(new.heartbeat(&mut stage), REBALANCE_IN_PROGRESS);
    }
    stage.advance(5_000);
    assert_eq!(d.joined(&mut stage, join).error, NONE);
    stage.advance(10_000);
    assert_eq!(new.heartbeat(&mut stage), UNKNOWN_MEMBER_ID);
}

#[test]
fn c77_a_wall_clock_that_is_set_back_before_a_restart_changes_nothing() {
    let mut stage = Stage::with(|config| {
        config.offsets_retention_ms = 120_000;
        config.offsets_retention_check_interval_ms = 1_000;
    });
    let mut players = vec![Player::new("g"), Player::new("g")];
    settle(&mut stage, &mut players);
    assert_eq!(stage.commit(&Player::new("joinless"), "t", &[1]), NONE);
    stage.advance(5_000);
    // While the server runs its clock is monotonic; only a start reads the wall clock.
    stage.now.0 -= 3_600_000;
    stage.crash();
    live_on(&mut stage, &players, 60_000, 5_000);
    assert_eq!(stage.member_count("g"), 2);
    settle(&mut stage, &mut players);
    assert_eq!(stage.committed("joinless", "t", 0), 1);
    stage.advance(60_000);
    assert_eq!(stage.committed("joinless", "t", 0), -1);
    assert_eq!(stage.member_count("g"), 0);
}

#[test]
fn c13_a_large_assignment_survives_a_crash() {
    let mut stage = Stage::with(|config| config.initial_rebalance_delay_ms = 3_000);
    let mut players = vec![Player::new("g"); 300];
    for (index, player) in players.iter_mut().enumerate() {
        player.metadata = Bytes::from(vec![u8::try_from(index % 251).unwrap(); 10_000]);
    }
    let joins: Vec<_> = players
        .iter()
        .map(|player| player.join(&mut stage))
        .collect();
    stage.advance(6_000);
    for (player, join) in players.iter_mut().zip(joins) {
        assert_eq!(player.joined(&mut stage, join).error, NONE);
    }
    let leader = players.iter().find(|player| player.leads).unwrap();
    let share = |player: &Player| Bytes::from(player.member_id.repeat(250));
    let shares = players
        .iter()
        .map(|p| (p.member_id.clone(), share(p)))
        .collect();
    let waits = leader.assign(&mut stage, shares);
    assert_eq!(leader.synced(&mut stage, waits).error, NONE);
    stage.crash();
    for player in &players {
        assert_eq!(player.heartbeat(&mut stage), NONE);
        let waits = player.assign(&mut stage, Vec::new());
        assert_eq!(player.synced(&mut stage, waits).assignment, share(player));
    }
}
