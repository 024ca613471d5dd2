//! C19–C24: static members (KIP-345, KIP-814), over the wire.

use kafka_protocol::messages::{GroupId, LeaveGroupRequest};

use super::words::codes::*;
use super::words::{Outcome, code, s, subscribes};

#[tokio::test]
async fn c19_the_newest_process_owns_an_instance_id() {
    let world = world!();
    let topic = world.topic(1).await;
    let group = world.group();
    let d = group.member("d").await;
    let i1 = group.static_member("i1").await;
    group.settle(&[&d, &i1]).await;
    let generation = d.generation();

    // A rebalance is open, and the join of the first process is parked.
    let first = i1.as_it_is();
    let first_joins = i1.subscribed(&["t", "u"]).joining();
    group.until("PreparingRebalance").await;
    group.look_around().await;
    let second = first.restarted(world.connect().await);
    let second_joins = second.joining();
    let fenced = first_joins.reply().await;
    assert_eq!(fenced.error(), FENCED_INSTANCE_ID);
    assert_eq!(fenced.member_id.as_str(), first.id());
    let third = first.restarted(world.connect().await);
    let third_joins = third.joining();
    let fenced = second_joins.reply().await;
    assert_eq!(fenced.error(), FENCED_INSTANCE_ID);
    let second = second.known_as(&fenced.member_id);

    assert_eq!(d.join().await.error(), NONE);
    assert_eq!(third_joins.reply().await.error(), NONE);
    group.sync(&[&d, &third]).await;
    let mut ids = [d.id(), third.id()];
    ids.sort();
    assert_eq!(group.member_ids().await, ids);
    for old in [first, second.of_generation(generation + 1)] {
        assert_eq!(old.heartbeat().await, FENCED_INSTANCE_ID);
        assert_eq!(old.sync().await.error(), FENCED_INSTANCE_ID);
        assert_eq!(old.commit(&topic, 0, 1).await, FENCED_INSTANCE_ID);
        assert_eq!(old.join().await.error(), FENCED_INSTANCE_ID);
    }
    assert_eq!(third.heartbeat().await, NONE);
}

#[tokio::test]
async fn c19_a_parked_sync_of_a_replaced_process_is_fenced() {
    let world = world!();
    let group = world.group();
    let d = group.member("d").await;
    let i1 = group.static_member("i1").await;
    group.join_all(&[&d, &i1]).await;
    let syncs = i1.syncing();
    group.look_around().await;
    assert!(!syncs.is_answered());
    let second = i1.restarted(world.connect().await);
    let second_joins = second.joining();
    assert_eq!(syncs.reply().await.error(), FENCED_INSTANCE_ID);
    assert_eq!(d.notice().await, REBALANCE_IN_PROGRESS);
    assert_eq!(d.join().await.error(), NONE);
    assert_eq!(second_joins.reply().await.error(), NONE);
}

#[tokio::test]
async fn c20_a_replaced_static_id_survives_a_crash() {
    let mut world = world!(durable);
    let (group_id, m1, m2) = {
        let group = world.group();
        let m1 = group.static_member("i1").await;
        m1.settle().await;
        let m2 = m1.restarted(world.connect().await);
        let join = m2.join().await;
        assert_eq!((join.error(), join.generation_id), (NONE, m1.generation()));
        assert_ne!(m1.id(), m2.id());
        (group.id().to_owned(), m1, m2)
    };
    world.restart().await;
    let group = world.group_named(&group_id);
    assert_eq!(group.member_ids().await, [m2.id()]);
    assert_eq!(m2.on(world.connect().await).heartbeat().await, NONE);
    assert_eq!(
        m1.on(world.connect().await).heartbeat().await,
        FENCED_INSTANCE_ID
    );
}

#[tokio::test]
async fn c21_the_rebalance_timeout_drops_no_static_member() {
    let world = world!();
    let group = world.group();
    let i1 = group.static_member("i1").await.rebalance_ms(2_000);
    let i2 = group.static_member("i2").await.rebalance_ms(2_000);
    let i3 = group.static_member("i3").await.rebalance_ms(2_000);
    let i3 = i3.subscribed(&["of i3"]);
    group.settle(&[&i1, &i2, &i3]).await;

    let d = group.member("d").await.rebalance_ms(2_000);
    let d_joins = d.joining();
    group.until("PreparingRebalance").await;
    let i2_join = i2.join().await;
    let d_join = d_joins.reply().await;
    assert_eq!((i2_join.error(), d_join.error()), (NONE, NONE));
    assert!(i2.leads() || d.leads());
    let members = if i2.leads() {
        i2_join.members
    } else {
        d_join.members
    };
    let mut names: Vec<_> = members
        .iter()
        .map(|m| m.group_instance_id.as_ref().map_or("d", |id| id.as_str()))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["d", "i1", "i2", "i3"]);
    let of_i3 = members
        .iter()
        .find(|m| m.member_id.as_str() == i3.id())
        .unwrap();
    assert_eq!(of_i3.metadata, subscribes(&["of i3"]));
    assert_eq!(i3.heartbeat().await, ILLEGAL_GENERATION);
    let i3_join = i3.join().await;
    assert_eq!(
        (i3_join.error(), i3_join.generation_id),
        (NONE, i2.generation())
    );
}

#[tokio::test]
async fn c22_a_new_session_timeout_of_a_static_member_takes_effect() {
    let world = world!();
    let group = world.group();
    let i1 = group.static_member("i1").await;
    i1.settle().await;
    let again = i1.restarted(world.connect().await).session_ms(1_500);
    assert_eq!(again.join().await.generation_id, i1.generation());
    // As every client does before it falls silent. Kafka still counts the old timeout until then.
    assert_eq!(again.heartbeat().await, NONE);
    group.until("Empty").await;
}

#[tokio::test]
async fn c22_a_new_rebalance_timeout_of_a_static_member_takes_effect() {
    let world = world!();
    let group = world.group();
    let i1 = group.static_member("i1").await;
    i1.settle().await;
    let again = i1.restarted(world.connect().await).rebalance_ms(2_000);
    assert_eq!(again.join().await.generation_id, i1.generation());
    let d = group.member("d").await.rebalance_ms(2_000);
    let join = d.join().await;
    assert_eq!(
        (join.error(), join.generation_id),
        (NONE, i1.generation() + 1)
    );
}

#[tokio::test]
async fn c23_a_static_leader_comes_back_without_a_rebalance() {
    let world = world!();
    let group = world.group();
    let i1 = group.static_member("i1").await;
    let i2 = group.static_member("i2").await;
    group.settle(&[&i1, &i2]).await;
    let (generation, share) = (i1.generation(), i1.share());

    let v9 = i1.restarted(world.connect().await).join_version(9);
    let join = v9.join().await;
    assert_eq!((join.error(), join.generation_id), (NONE, generation));
    assert_eq!(join.leader, join.member_id);
    assert!(join.skip_assignment);
    assert_eq!(join.members.len(), 2);
    let sync = v9.sync().await;
    assert_eq!((sync.error(), &sync.assignment), (NONE, &share));

    let v8 = i1.restarted(world.connect().await).join_version(8);
    let join = v8.join().await;
    assert_eq!((join.error(), join.generation_id), (NONE, generation));
    assert_eq!(join.leader.as_str(), v9.id());
    assert_ne!(join.member_id.as_str(), v9.id());
    assert!(join.members.is_empty() && !join.skip_assignment);
    let sync = v8.sync().await;
    assert_eq!((sync.error(), &sync.assignment), (NONE, &share));
    assert_eq!(i2.heartbeat().await, NONE);
}

#[tokio::test]
async fn c24_members_are_removed_by_instance_id_and_by_member_id() {
    let world = world!();
    let group = world.group();
    let i2 = group.static_member("i2").await;
    let i1 = group.static_member("i1").await;
    let d1 = group.member("d1").await;
    group.settle(&[&i2, &i1, &d1]).await;

    let who = [("", Some("i1")), (&d1.id(), None), ("", Some("unknown"))];
    let left = group.leave(&who).await;
    assert_eq!(left.error(), NONE);
    for ((id, instance), member) in who.iter().zip(&left.members) {
        assert_eq!(member.member_id.as_str(), *id);
        assert_eq!(member.group_instance_id.as_deref(), *instance);
    }
    let outcomes: Vec<_> = left.members.iter().map(|m| code(m.error_code)).collect();
    assert_eq!(outcomes, [NONE, NONE, UNKNOWN_MEMBER_ID]);

    // One rebalance for the batch.
    assert_eq!(i2.notice().await, REBALANCE_IN_PROGRESS);
    assert_eq!(i2.join().await.generation_id, d1.generation() + 1);
    let left = group.leave(&[("wrong", Some("i2"))]).await;
    assert_eq!(
        (left.error(), code(left.members[0].error_code)),
        (NONE, FENCED_INSTANCE_ID)
    );
}

#[tokio::test]
async fn c24_before_version_3_the_outcome_of_a_leave_is_at_the_top() {
    let world = world!();
    let group = world.group();
    for version in 0..=2 {
        let d = group.member("d").await;
        d.settle().await;
        let leave = |id: &str| {
            LeaveGroupRequest::default()
                .with_group_id(GroupId(s(group.id())))
                .with_member_id(s(id))
        };
        let unknown = group.send(version, &leave("unknown")).await.unwrap();
        assert_eq!(unknown.error(), UNKNOWN_MEMBER_ID);
        let left = group.send(version, &leave(&d.id())).await.unwrap();
        assert_eq!((left.error(), left.members.len()), (NONE, 0));
        assert_eq!(d.heartbeat().await, UNKNOWN_MEMBER_ID);
    }
}

#[tokio::test]
async fn c24_nobody_can_leave_an_unknown_group() {
    let world = world!();
    let left = world.group().leave(&[("m", None), ("", Some("i"))]).await;
    assert_eq!(left.error(), NONE);
    let outcomes: Vec<_> = left.members.iter().map(|m| code(m.error_code)).collect();
    assert_eq!(outcomes, [UNKNOWN_MEMBER_ID, UNKNOWN_MEMBER_ID]);
}
