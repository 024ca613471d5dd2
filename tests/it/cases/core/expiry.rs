//! C39–C42, C51: what is forgotten, and when, in virtual time.

use super::super::words::codes::*;
use super::super::words::subscribes;
use super::{Player, Stage, settle};

const MINUTE_MS: i64 = 60_000;

/// A stage that keeps offsets for this long and looks every second.
fn keeping(minutes: i64) -> Stage {
    Stage::with(|config| {
        config.offsets_retention_ms = minutes * MINUTE_MS;
        config.offsets_retention_check_interval_ms = 1_000;
    })
}

/// Lets time pass while a player heartbeats.
fn live_on(stage: &mut Stage, player: &Player, ms: i64) {
    for _ in 0..ms / 5_000 {
        stage.advance(5_000);
        assert_eq!(player.heartbeat(stage), NONE);
    }
}

#[test]
fn c39_a_quiet_group_keeps_its_offsets_until_it_has_been_empty_long_enough() {
    let mut stage = keeping(1);
    let mut a = [Player::new("g")];
    settle(&mut stage, &mut a);
    assert_eq!(stage.commit(&a[0], "t", &[10]), NONE);
    live_on(&mut stage, &a[0], 3 * MINUTE_MS);
    assert_eq!(a[0].leave(&mut stage), NONE);
    stage.advance(30_000);
    assert_eq!(stage.committed("g", "t", 0), 10);
    stage.advance(60_000);
    assert_eq!(stage.committed("g", "t", 0), -1);
    assert!(stage.group_ids().is_empty());
    stage.check();
}

#[test]
fn c39_offsets_of_assign_mode_count_from_their_last_commit() {
    let mut stage = keeping(1);
    let joinless = Player::new("g");
    assert_eq!(stage.commit(&joinless, "t", &[1, 2]), NONE);
    stage.advance(30_000);
    assert_eq!(stage.commit(&joinless, "t", &[3]), NONE);
    stage.advance(31_000);
    assert_eq!(
        (stage.committed("g", "t", 0), stage.committed("g", "t", 1)),
        (3, -1)
    );
    stage.advance(30_000);
    assert_eq!(stage.committed("g", "t", 0), -1);
    assert!(stage.group_ids().is_empty());
}

#[test]
fn c40_restarts_neither_shorten_nor_extend_the_time_since_a_group_was_empty() {
    for every_minute in [false, true] {
        let mut stage = keeping(10);
        let mut a = [Player::new("g")];
        settle(&mut stage, &mut a);
        assert_eq!(stage.commit(&a[0], "t", &[10]), NONE);
        live_on(&mut stage, &a[0], MINUTE_MS);
        assert_eq!(a[0].leave(&mut stage), NONE);
        for minute in 1..=9 {
            stage.advance(MINUTE_MS);
            if every_minute || minute == 9 {
                stage.crash();
            }
        }
        stage.advance(30_000);
        assert_eq!(stage.committed("g", "t", 0), 10);
        stage.advance(90_000);
        assert_eq!(stage.committed("g", "t", 0), -1);
    }
}

#[test]
fn c41_abandoned_groups_leave_nothing_behind() {
    let mut stage = keeping(1);
    for group in 0..10_000 {
        let mut a = [Player::new(&format!("g{group}"))];
        settle(&mut stage, &mut a);
        assert_eq!(stage.commit(&a[0], "t", &[1, 2, 3]), NONE);
        assert_eq!(a[0].leave(&mut stage), NONE);
    }
    assert_eq!(stage.group_ids().len(), 10_000);
    stage.advance(MINUTE_MS + 1_000);
    assert!(stage.group_ids().is_empty());
    assert_eq!(
        stage.live.snapshot().count(),
        0,
        "nothing is left to be loaded either"
    );
    stage.crash();
    assert!(stage.group_ids().is_empty());
}

#[test]
fn c42_offsets_of_a_topic_that_a_live_group_gave_up_expire() {
    let mut stage = keeping(1);
    let mut a = [Player::new("g")];
    a[0].metadata = subscribes(&["t", "u"]);
    settle(&mut stage, &mut a);
    assert_eq!(stage.commit(&a[0], "t", &[1]), NONE);
    assert_eq!(stage.commit(&a[0], "u", &[2]), NONE);
    a[0].metadata = subscribes(&["t"]);
    settle(&mut stage, &mut a);
    for _ in 0..5 {
        live_on(&mut stage, &a[0], 10_000);
        assert_eq!(stage.commit(&a[0], "t", &[3]), NONE);
    }
    assert_eq!(
        (stage.committed("g", "t", 0), stage.committed("g", "u", 0)),
        (3, 2)
    );
    live_on(&mut stage, &a[0], 15_000);
    assert_eq!(
        (stage.committed("g", "t", 0), stage.committed("g", "u", 0)),
        (3, -1)
    );
    live_on(&mut stage, &a[0], 2 * MINUTE_MS);
    assert_eq!(stage.committed("g", "t", 0), 3, "subscribed");
}

#[test]
fn c42_a_subscription_that_cannot_be_read_keeps_everything() {
    let mut stage = keeping(1);
    let mut players = [Player::new("g"), Player::new("g")];
    players[1].metadata = (&b"\0\0\x7f\xff\xff\xff"[..]).into();
    settle(&mut stage, &mut players);
    assert_eq!(stage.commit(&players[0], "u", &[2]), NONE);
    for _ in 0..20 {
        stage.advance(9_000);
        assert_eq!(players[0].heartbeat(&mut stage), NONE);
        assert_eq!(players[1].heartbeat(&mut stage), NONE);
    }
    assert_eq!(stage.committed("g", "u", 0), 2);
}

#[test]
fn c44_a_deleted_group_stays_deleted() {
    let mut stage = Stage::new();
    let joinless = Player::new("g");
    assert_eq!(stage.commit(&joinless, "t", &[1, 2, 3, 4, 5]), NONE);
    assert_eq!(stage.delete_group("g"), NONE);
    for _ in 0..2 {
        assert!(stage.group_ids().is_empty());
        assert_eq!(stage.describe("g").state, "Dead");
        assert_eq!(stage.committed("g", "t", 4), -1);
        stage.crash();
    }
    stage.crash_on_snapshot();
    assert!(stage.group_ids().is_empty());
    assert_eq!(stage.committed("g", "t", 4), -1);
}

#[test]
fn c51_offsets_of_a_deleted_topic_go_with_it() {
    let mut stage = Stage::new();
    let mut a = [Player::new("g")];
    settle(&mut stage, &mut a);
    assert_eq!(stage.commit(&a[0], "t", &[1_000]), NONE);
    assert_eq!(stage.commit(&a[0], "u", &[7]), NONE);
    stage.delete_topic("t");
    assert_eq!(
        (stage.committed("g", "t", 0), stage.committed("g", "u", 0)),
        (-1, 7)
    );
    stage.crash();
    assert_eq!(
        (stage.committed("g", "t", 0), stage.committed("g", "u", 0)),
        (-1, 7)
    );
}
