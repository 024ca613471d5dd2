//! C01–C18: the rebalance engine of classic groups, over the wire. What takes time is in `core`.

use bytes::Bytes;

use super::words::codes::*;
use super::words::{Outcome, code, subscribes};

/// B has a reserved id and is waited for; A and C have joined.
macro_rules! a_and_c_wait_for_b {
    ($world:ident => $group:ident, $b:ident, $joins:ident) => {
        let $group = $world.group();
        let [a] = $group.stable(["a"]).await;
        let $b = $group.member("b").await.session_ms(1_500);
        $b.knock().await;
        let c = $group.member("c").await;
        let c_joins = c.joining();
        $group.until("PreparingRebalance").await;
        let $joins = [a.joining(), c_joins];
        $group.look_around().await;
    };
}

#[tokio::test]
async fn c01_a_pending_member_that_leaves_is_waited_for_no_longer() {
    let world = world!();
    a_and_c_wait_for_b!(world => group, b, joins);
    let left = group.leave(&[(&b.id(), None)]).await;
    assert_eq!(
        (left.error(), code(left.members[0].error_code)),
        (NONE, NONE)
    );
    for join in joins {
        let join = join.reply().await;
        assert_eq!((join.error(), join.generation_id), (NONE, 2));
    }
    assert_eq!(group.describe().await.members.len(), 2);
}

#[tokio::test]
async fn c01_a_pending_member_that_never_comes_is_waited_for_its_session_timeout() {
    let world = world!();
    a_and_c_wait_for_b!(world => group, b, joins);
    // The rebalance timeout is a minute, longer than this test waits.
    for join in joins {
        let join = join.reply().await;
        assert_eq!((join.error(), join.generation_id), (NONE, 2));
    }
    assert_eq!(b.heartbeat().await, UNKNOWN_MEMBER_ID);
    assert_eq!(b.join_once().await.error(), UNKNOWN_MEMBER_ID);
}

#[tokio::test]
async fn c02_a_dropped_first_id_holds_the_group_up_no_longer_than_its_session() {
    let world = world!();
    let group = world.group();
    let [a] = group.stable(["a"]).await;
    let x1 = group.member("x").await.session_ms(1_500);
    x1.knock().await;
    let x2 = x1.as_it_is().known_as("").session_ms(60_000);
    x2.knock().await;
    assert_ne!(x1.id(), x2.id());
    let x2_joins = x2.joining();
    assert_eq!(a.notice().await, REBALANCE_IN_PROGRESS);
    let join = a.join().await;
    assert_eq!((join.error(), join.generation_id), (NONE, 2));
    assert_eq!(x2_joins.reply().await.generation_id, 2);
    group.sync(&[&a, &x2]).await;
    let mut ids = [a.id(), x2.id()];
    ids.sort();
    assert_eq!(group.member_ids().await, ids);
}

#[tokio::test]
async fn c03_a_member_that_leaves_while_joins_are_collected_frees_the_others() {
    let world = world!();
    let group = world.group();
    let [a, b] = group.stable(["a", "b"]).await;
    let c = group.member("c").await;
    let c_joins = c.joining();
    group.until("PreparingRebalance").await;
    let a_joins = a.joining();
    group.look_around().await;
    assert!(!a_joins.is_answered() && !c_joins.is_answered());
    assert_eq!(
        group.leave(&[(&b.id(), None)]).await.members[0].error_code,
        0
    );
    let generation = a_joins.reply().await.generation_id;
    assert_eq!(generation, b.generation() + 1);
    assert_eq!(c_joins.reply().await.generation_id, generation);
}

#[tokio::test]
async fn c03_a_member_that_expires_while_joins_are_collected_frees_the_others() {
    let world = world!();
    let group = world.group();
    let a = group.member("a").await;
    let b = group.member("b").await.session_ms(1_500);
    group.settle(&[&a, &b]).await;
    let c = group.member("c").await;
    let c_joins = c.joining();
    assert_eq!(a.notice().await, REBALANCE_IN_PROGRESS);
    let generation = a.join().await.generation_id;
    assert_eq!(generation, b.generation() + 1);
    assert_eq!(c_joins.reply().await.generation_id, generation);
    assert_eq!(b.heartbeat().await, UNKNOWN_MEMBER_ID);
}

#[tokio::test]
async fn c04_a_member_that_never_syncs_is_removed() {
    let world = world!();
    let group = world.group();
    let a = group.member("a").await.rebalance_ms(2_000);
    let b = group.member("b").await.rebalance_ms(2_000);
    group.join_all(&[&a, &b]).await;
    assert_eq!(a.assign(&[(a.id(), a.share())]).await.error(), NONE);
    assert_eq!(b.notice().await, UNKNOWN_MEMBER_ID);
    assert_eq!(a.heartbeat().await, REBALANCE_IN_PROGRESS);
    assert_eq!(a.join().await.generation_id, b.generation() + 1);
    assert_eq!(group.member_ids().await, [a.id()]);
}

#[tokio::test]
async fn c04_a_leader_that_never_syncs_is_replaced() {
    let world = world!();
    let group = world.group();
    let a = group.member("a").await.rebalance_ms(2_000);
    let b = group.member("b").await.rebalance_ms(2_000);
    group.join_all(&[&a, &b]).await;
    assert!(a.leads());
    assert_eq!(b.sync().await.error(), REBALANCE_IN_PROGRESS);
    let join = b.join().await;
    assert_eq!(
        (join.error(), join.generation_id),
        (NONE, a.generation() + 1)
    );
    assert!(b.leads());
    assert_eq!(a.heartbeat().await, UNKNOWN_MEMBER_ID);
}

#[tokio::test]
async fn c05_heartbeats_between_join_and_sync_keep_the_session() {
    let world = world!();
    let group = world.group();
    let a = group.member("a").await.session_ms(1_500);
    let b = group.member("b").await.session_ms(1_500);
    group.join_all(&[&a, &b]).await;
    assert_eq!(group.state().await, "CompletingRebalance");
    let mut sessions = std::pin::pin!(async {
        world.session_passes(1_500).await;
        world.session_passes(1_500).await;
    });
    loop {
        tokio::select! {
            biased;
            () = &mut sessions => break,
            codes = async { (a.heartbeat().await, b.heartbeat().await) } => assert_eq!(codes, (NONE, NONE)),
        }
    }
    group.sync(&[&a, &b]).await;
    assert_eq!(group.state().await, "Stable");
}

#[tokio::test]
async fn c05_heartbeats_while_joins_are_collected_keep_the_session() {
    let world = world!();
    let group = world.group();
    let a = group.member("a").await.session_ms(1_500);
    let b = group.member("b").await.session_ms(1_500);
    group.settle(&[&a, &b]).await;
    let c = group.member("c").await;
    let c_joins = c.joining();
    group.until("PreparingRebalance").await;
    let mut sessions = std::pin::pin!(async {
        world.session_passes(1_500).await;
        world.session_passes(1_500).await;
    });
    loop {
        tokio::select! {
            biased;
            () = &mut sessions => break,
            codes = async { (a.heartbeat().await, b.heartbeat().await) } => {
                assert_eq!(codes, (REBALANCE_IN_PROGRESS, REBALANCE_IN_PROGRESS));
            }
        }
    }
    let (a, b) = tokio::join!(a.join(), b.join());
    assert_eq!(
        (a.error(), b.error(), c_joins.reply().await.error()),
        (NONE, NONE, NONE)
    );
    assert_eq!(group.describe().await.members.len(), 3);
}

#[tokio::test]
async fn c06_ghosts_of_closed_connections_vanish_with_their_session() {
    let world = world!();
    let group = world.group();
    let [a] = group.stable(["a"]).await;
    for ghosts in 1..=10 {
        let ghost = group
            .member("ghost")
            .await
            .join_version(3)
            .session_ms(1_500);
        let joins = ghost.joining();
        group.until_members(1 + ghosts).await;
        joins.abandon();
    }
    // However many there are, the first join of A ends the rebalance, and one session later they are gone.
    let join = a.join().await;
    assert_eq!((join.error(), join.members.len()), (NONE, 11));
    group.until_members(1).await;
    assert_eq!(group.member_ids().await, [a.id()]);
}

#[tokio::test]
async fn c08_a_join_without_protocol_type_or_protocols_leaves_nothing_behind() {
    let world = world!();
    for (protocol_type, protocols) in [("", &[("range", &b""[..])][..]), ("consumer", &[])] {
        for version in [3, 4, 9] {
            let group = world.group();
            let broken = group
                .member("broken")
                .await
                .follows(protocol_type, protocols);
            let refused = broken.join_version(version).join().await;
            assert_eq!(refused.error(), INCONSISTENT_GROUP_PROTOCOL);
            assert_eq!(refused.member_id.as_str(), "");
            let healthy = group.member("healthy").await;
            let join = healthy.join().await;
            assert_eq!((join.error(), join.generation_id), (NONE, 1));
            assert_eq!((join.members.len(), healthy.leads()), (1, true));
        }
    }
}

#[tokio::test]
async fn c09_another_application_with_the_same_group_id_disturbs_nobody() {
    let world = world!();
    let group = world.group();
    let [a, b] = group.stable(["a", "b"]).await;
    let before = group.describe().await;
    let connect = group
        .member("x")
        .await
        .follows("connect", &[("default", b"x")]);
    let streams = group
        .member("y")
        .await
        .follows("consumer", &[("stream", b"y")]);
    for _ in 0..50 {
        assert_eq!(connect.join().await.error(), INCONSISTENT_GROUP_PROTOCOL);
        assert_eq!(streams.join().await.error(), INCONSISTENT_GROUP_PROTOCOL);
    }
    assert_eq!((a.heartbeat().await, b.heartbeat().await), (NONE, NONE));
    assert_eq!(group.describe().await, before);
    // No reservation either: a rebalance waits for A and B alone.
    group.rebalance(&[&a, &b]).await;
    assert!(a.leads());
}

#[tokio::test]
async fn c10_version_0_has_its_session_timeout_to_rejoin() {
    let world = world!();
    let group = world.group();
    let a = group.member("a").await.join_version(0).rebalance_ms(0);
    a.settle().await;
    let b = group.member("b").await.join_version(0).rebalance_ms(0);
    let b_joins = b.joining();
    group.until("PreparingRebalance").await;
    group.look_around().await;
    assert_eq!(a.heartbeat().await, REBALANCE_IN_PROGRESS);
    assert_eq!(a.join().await.error(), NONE);
    assert_eq!(b_joins.reply().await.error(), NONE);
    group.sync(&[&a, &b]).await;
}

#[tokio::test]
async fn c10_a_rebalance_timeout_that_is_none_counts_as_the_session_timeout() {
    let world = world!();
    if !world.is_ours() {
        // Kafka's rebalance ends at once and throws A out.
        return;
    }
    for none in [-1, 0] {
        let group = world.group();
        let a = group.member("a").await.rebalance_ms(none);
        a.settle().await;
        let b = group.member("b").await.rebalance_ms(none);
        let b_joins = b.joining();
        group.until("PreparingRebalance").await;
        group.look_around().await;
        assert_eq!(a.notice().await, REBALANCE_IN_PROGRESS);
        assert_eq!(a.join().await.error(), NONE);
        assert_eq!(b_joins.reply().await.error(), NONE);
        group.sync(&[&a, &b]).await;
    }
}

#[tokio::test]
async fn c11_without_delay_a_single_member_is_answered_at_once() {
    let world = world!();
    let group = world.group();
    let a = group.member("a").await;
    let join = a.join().await;
    assert_eq!(
        (join.error(), join.generation_id, join.members.len()),
        (NONE, 1, 1)
    );
}

#[tokio::test]
async fn c12_a_connection_with_a_parked_request_is_not_idle() {
    let world = world!("connections.max.idle.ms" = "1000");
    if !world.is_ours() {
        // Kafka closes it.
        return;
    }
    let group = world.group();
    let [a] = group.stable(["a"]).await;
    let b = group.member("b").await;
    let b_joins = b.joining();
    group.until("PreparingRebalance").await;
    for _ in 0..2 {
        // Two connections opened after B's last word are idle, one after the other, until the server closes them.
        world.idle_connection_closes().await;
    }
    assert!(!b_joins.is_answered());
    let a = a.on(world.connect().await);
    assert_eq!(a.join().await.error(), NONE);
    assert_eq!(b_joins.reply().await.error(), NONE);
}

#[tokio::test]
async fn c15_only_the_surplus_is_refused() {
    let world = world!("group.max.size" = "3");
    let group = world.group();
    let [a, b] = group.stable(["a", "b"]).await;
    let e = group.member("e").await;
    e.knock().await;
    // E is waited for while C joins; its session ends that.
    let c = group.member("c").await;
    let c_joins = c.joining();
    group.until_members(3).await;
    let joins = [a.joining(), b.joining()];
    let d = group.member("d").await;
    group.look_around().await;
    assert_eq!(d.join().await.error(), GROUP_MAX_SIZE_REACHED);
    assert_eq!(e.join().await.error(), GROUP_MAX_SIZE_REACHED);
    for join in joins.into_iter().chain([c_joins]) {
        assert_eq!(join.reply().await.error(), NONE);
    }
    group.sync(&[&a, &b, &c]).await;
    assert_eq!(d.join().await.error(), GROUP_MAX_SIZE_REACHED);
    let mut ids = [a.id(), b.id(), c.id()];
    ids.sort();
    assert_eq!(group.member_ids().await, ids);
    for member in [&a, &b, &c] {
        assert_eq!(member.heartbeat().await, NONE);
    }
}

#[tokio::test]
async fn c17_a_member_that_missed_a_generation_is_fenced() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group();
    // An assignor sees the older generation in the metadata: the bytes must arrive as they are.
    let old_owner = [&subscribes(&["t"])[..], b"generation N"].concat();
    let a = group
        .member("a")
        .await
        .follows("consumer", &[("range", &old_owner)]);
    let b = group.member("b").await;
    let c = group.member("c").await;
    group.settle(&[&b, &a, &c]).await;
    let a_in_n = a.as_it_is();

    group.join_all_again(&[&b, &a, &c]).await;
    let a_in_n1 = a.as_it_is();
    assert_eq!(b.assign(&[]).await.error(), NONE);
    assert_eq!(c.sync().await.error(), NONE);

    let c_joins = c.clone().subscribed(&["t", "u"]).joining();
    group.until("PreparingRebalance").await;
    assert_eq!(a_in_n1.sync().await.error(), REBALANCE_IN_PROGRESS);
    let (b_join, a_join) = tokio::join!(b.join(), a.join());
    assert_eq!(
        (c_joins.reply().await.error(), a_join.error()),
        (NONE, NONE)
    );
    let metadata_of_a = b_join
        .members
        .iter()
        .find(|m| m.member_id.as_str() == a.id());
    assert_eq!(metadata_of_a.unwrap().metadata, old_owner);

    assert_eq!(a_in_n1.sync().await.error(), ILLEGAL_GENERATION);
    assert_eq!(a_in_n.heartbeat().await, ILLEGAL_GENERATION);
    assert_eq!(a_in_n.commit(&topic, 0, 5).await, ILLEGAL_GENERATION);
    assert_eq!(group.committed(&topic, 0).await, -1);
}

#[tokio::test]
async fn c18_every_member_gets_the_bytes_that_the_leader_sent_for_it() {
    let world = world!();
    let group = world.group();
    let [a, b, c] = group.stable(["a", "b", "c"]).await;
    let nothing = Bytes::from_static(&[0, 0, 0, 0, 0, 0, 255, 255, 255, 255]);
    group.join_all_again(&[&a, &b, &c]).await;
    let shares = [
        (a.id(), Bytes::from("p0")),
        (b.id(), Bytes::from("p1")),
        (c.id(), nothing.clone()),
    ];
    a.assign(&shares).await;
    for version in 0..=5 {
        for (member, share) in [(&a, "p0".as_bytes()), (&b, b"p1"), (&c, &nothing)] {
            let mut request = member.sync_request(&[]);
            if version < 5 {
                (request.protocol_type, request.protocol_name) = (None, None);
            }
            if version < 3 {
                request.group_instance_id = None;
            }
            let sync = member.send(version, &request).await.unwrap();
            assert_eq!((sync.error(), &sync.assignment[..]), (NONE, share));
        }
    }

    // C is forgotten: zero bytes, as Kafka has it, and never null (which would not decode).
    group.join_all_again(&[&a, &b, &c]).await;
    a.assign(&shares[..2]).await;
    let sync = c.sync().await;
    assert_eq!((sync.error(), &sync.assignment[..]), (NONE, &b""[..]));
}
