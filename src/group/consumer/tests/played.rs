//! What a play against Apache Kafka brought up (`tests/scripts/differential`).

use super::world::*;
use crate::group::request::*;
use crate::group::subscription::Assignment;

#[test]
fn naming_the_assignor_in_use_changes_nothing() {
    let mut world = World::new(config(), &[("t", 4)]);
    world.beat(joining("a", &["t"]));
    let naming = |member_id: &str, epoch, name: &str| ConsumerHeartbeat {
        server_assignor: Some(name.into()),
        ..beating(member_id, epoch)
    };
    let named = config().assignors[0].name().to_owned();
    assert_eq!(world.beat(naming("a", 2, &named)).member_epoch, 2);
    assert_eq!(world.describe().group_epoch, 2);
    let other = config().assignors[1].name().to_owned();
    world.beat(naming("a", 2, &other));
    assert_eq!(world.describe().group_epoch, 3);
}

#[test]
fn among_assignors_named_equally_often_the_last_by_name_counts() {
    let mut world = World::new(config(), &[("t", 4)]);
    world.beat(joining("a", &["t"]));
    for (member_id, name) in [("b", "range"), ("c", "uniform")] {
        world.beat(ConsumerHeartbeat {
            server_assignor: Some(name.into()),
            ..joining(member_id, &["t"])
        });
    }
    let described = world.describe();
    assert_eq!(&*described.assignor_name, "uniform");
    world.beat(ConsumerHeartbeat {
        server_assignor: Some("range".into()),
        ..beating("b", 2)
    });
    assert_eq!(
        world.describe().group_epoch,
        described.group_epoch,
        "saying it again changes nothing"
    );
}

#[test]
fn a_static_member_turns_classic_under_its_own_id() {
    let mut world = World::new(config(), &[("t", 2)]);
    let request = ConsumerHeartbeat {
        instance_id: Some("i".into()),
        ..joining("a", &["t"])
    };
    world.beat(request);
    let mut join = classic_join("a", &["t"]);
    join.group_instance_id = Some("i".into());
    let a = world.join(join);
    assert_eq!((a.error, a.generation), (ErrorCode::None, 2));
    assert_eq!(
        world.describe().error,
        ErrorCode::GroupIdNotFound,
        "nobody speaks the consumer protocol any more"
    );
}

#[test]
fn a_classic_join_of_a_stranger_is_refused_before_its_subscription_is_read() {
    let mut world = World::new(config(), &[("t", 4)]);
    world.beat(joining("a", &["t"]));
    let mut join = classic_join("a", &["t"]);
    join.group_instance_id = Some("unknown".into());
    for protocol in &mut join.protocols {
        protocol.metadata = Default::default();
    }
    assert_eq!(world.join(join).error, ErrorCode::UnknownMemberId);
}

#[test]
fn a_whole_classic_group_goes_over_without_a_new_epoch() {
    let mut world = World::new(config(), &[("t", 1)]);
    let mut join = classic_join("", &["t"]);
    join.group_instance_id = Some("i".into());
    let a = world.join(join);
    let assignment = Assignment {
        version: 1,
        partitions: vec![("t".into(), vec![0])],
        user_data: None,
    };
    world.sync(classic_sync(
        &a.member_id,
        1,
        vec![(a.member_id.clone(), assignment.to_bytes())],
    ));
    let b = world.beat(ConsumerHeartbeat {
        instance_id: Some("i".into()),
        ..joining("b", &["t"])
    });
    assert_eq!((b.member_epoch, count(&b.assignment)), (1, Some(1)));
    world.restart();
    world.beat(beating("b", 1));
    assert_eq!(world.describe().group_epoch, 1, "its topics are known");
    world.grow("t", 2);
    world.beat(beating("b", 1));
    assert_eq!(world.describe().group_epoch, 2);
}
