//! What groups weigh, and what happens at the limit.

use super::*;

/// A world in which groups may keep so many bytes.
fn limited(bytes: usize) -> World {
    World::new(GroupConfig {
        memory_bytes_max: bytes,
        offsets_retention_ms: 60_000,
        ..no_delay()
    })
}

fn used(world: &World) -> usize {
    world.live.config.memory.bytes()
}

fn join_with(member_id: &str, metadata_bytes: usize) -> Join {
    Join {
        protocols: vec![Protocol {
            name: "range".into(),
            metadata: vec![7; metadata_bytes].into(),
        }],
        ..join(member_id)
    }
}

fn consumer_join(member_id: &str, names: usize) -> Request {
    Request::ConsumerHeartbeat(ConsumerHeartbeat {
        group_id: "consumers".into(),
        client: join("").client,
        member_id: member_id.into(),
        member_epoch: 0,
        instance_id: None,
        rack_id: None,
        rebalance_timeout_ms: 30_000,
        subscribed_topic_names: Some((0..names).map(|n| format!("topic-{n}").into()).collect()),
        subscribed_topic_regex: None,
        server_assignor: None,
        topic_partitions: Some(Vec::new()),
        member_id_from_client: true,
    })
}

fn consumer_error(reply: Reply) -> ErrorCode {
    match reply {
        Reply::ConsumerHeartbeat(reply) => reply.error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn whatever_comes_and_goes_leaves_no_weight_behind() {
    let mut world = limited(usize::MAX);
    let (a, b) = two(&mut world);
    assert!(used(&world) > 2_000);
    world.ask(Request::Join(Join {
        group_id: "ids".into(),
        member_id_required: true,
        ..join("")
    }));
    world.ask(consumer_join("m", 10));
    for (member_id, offset) in [("", 7), (&*a, 8), (&*b, 9)] {
        world.ask(commit(
            member_id,
            if member_id.is_empty() { -1 } else { 2 },
            offset,
        ));
    }
    let before = used(&world);
    world.restart();
    assert!(
        used(&world) <= before,
        "a restart forgets ids that were handed out"
    );
    world.advance(120_000);
    world.advance(1_300_000);
    assert_eq!(
        used(&world),
        0,
        "everybody's session and every offset is over"
    );
}

#[test]
fn beyond_the_limit_joins_are_refused_and_members_go_on() {
    let mut world = limited(200_000);
    let first = joined(world.ask(Request::Join(join_with("", 100_000))));
    world.ask(sync(
        &first.member_id,
        first.generation,
        &[(&first.member_id, "A")],
    ));
    let held = used(&world);
    let refused = joined(world.ask(Request::Join(join_with("", 100_000))));
    assert_eq!(refused.error, ErrorCode::GroupMaxSizeReached);
    let other = Join {
        group_id: "other".into(),
        ..join_with("", 100_000)
    };
    let refused = joined(world.ask(Request::Join(other)));
    assert_eq!(
        refused.error,
        ErrorCode::GroupMaxSizeReached,
        "all groups together"
    );
    assert_eq!(used(&world), held, "a refusal keeps nothing");
    assert_eq!(
        world.ask(heartbeat(&first.member_id, first.generation)),
        Reply::Heartbeat(ErrorCode::None)
    );
    let same = joined(world.ask(Request::Join(join_with(&first.member_id, 100_000))));
    assert_eq!(same.error, ErrorCode::None, "as large as before");
    let larger = joined(world.ask(Request::Join(join_with(&first.member_id, 250_000))));
    assert_eq!(larger.error, ErrorCode::GroupMaxSizeReached);
}

#[test]
fn at_the_limit_whoever_keeps_to_its_size_goes_on() {
    let mut world = limited(usize::MAX);
    let first = joined(world.ask(Request::Join(join_with("", 1_000))));
    world.ask(sync(
        &first.member_id,
        first.generation,
        &[(&first.member_id, "A")],
    ));
    assert_eq!(
        commit_error(world.ask(commit(&first.member_id, first.generation, 1))),
        ErrorCode::None
    );
    assert_eq!(
        consumer_error(world.ask(consumer_join("m", 3))),
        ErrorCode::None
    );
    world.live.config.memory_bytes_max = 0;

    let again = joined(world.ask(Request::Join(join_with(&first.member_id, 1_000))));
    assert_eq!(again.error, ErrorCode::None);
    let synced = world.ask(sync(
        &first.member_id,
        again.generation,
        &[(&first.member_id, "B")],
    ));
    assert!(matches!(synced, Reply::Sync(reply) if reply.error == ErrorCode::None));
    assert_eq!(
        commit_error(world.ask(commit(&first.member_id, again.generation, 2))),
        ErrorCode::None
    );
    assert_eq!(
        consumer_error(world.ask(consumer_join("m", 3))),
        ErrorCode::None
    );

    let larger = world.ask(sync(
        &first.member_id,
        again.generation,
        &[(&first.member_id, "more than it had before")],
    ));
    assert!(
        matches!(larger, Reply::Sync(reply) if reply.error == ErrorCode::CoordinatorNotAvailable)
    );
    let Request::OffsetCommit(mut new) = commit("", -1, 3) else {
        unreachable!()
    };
    new.group_id = "other".into();
    let refused = world.ask(Request::OffsetCommit(new));
    assert_eq!(commit_error(refused), ErrorCode::InvalidCommitOffsetSize);
    let refused = consumer_error(world.ask(consumer_join("n", 3)));
    assert_eq!(refused, ErrorCode::GroupMaxSizeReached);
}
