//! Patterns that come, go and are shared.

use std::sync::Arc;

use super::world::*;
use crate::group::record::RegexValue;
use crate::group::request::*;
use crate::group::types::*;
use crate::group::*;

fn by_pattern(pattern: &str, request: ConsumerHeartbeat) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        subscribed_topic_regex: Some(pattern.into()),
        ..request
    }
}

/// From a pattern to names.
fn to_names(names: &[&str], request: ConsumerHeartbeat) -> ConsumerHeartbeat {
    ConsumerHeartbeat {
        subscribed_topic_names: Some(names.iter().map(|name| TopicName::from(*name)).collect()),
        ..by_pattern("", request)
    }
}

fn epoch(world: &World, group_id: &str) -> i32 {
    world.live.state.consumer(group_id).unwrap().epoch()
}

#[test]
fn a_pattern_follows_topics_from_its_first_heartbeat_on() {
    let mut world = World::new(config(), &[("a1", 1)]);
    world.beat(by_pattern("a.*", joining("a", &[])));
    world.advance(0);
    assert_eq!(epoch(&world, "g"), 2, "resolved");
    world.create("a2", 1);
    world.advance(1_000);
    assert_eq!(epoch(&world, "g"), 3, "nobody had to come for it");
}

#[test]
fn a_pattern_that_one_group_gives_up_is_followed_for_another() {
    let mut world = World::new(config(), &[("a1", 1), ("b1", 1)]);
    world.beat(by_pattern("a.*", joining("a", &[])));
    world.beat(ConsumerHeartbeat {
        group_id: "h".into(),
        ..by_pattern("a.*", joining("b", &[]))
    });
    world.advance(2_000);
    world.beat(to_names(&["b1"], beating("a", 1)));
    let before = epoch(&world, "h");
    world.create("a2", 1);
    world.advance(1_000);
    assert_eq!(epoch(&world, "h"), before + 1);
}

#[test]
fn what_only_a_pattern_matched_is_free_once_it_is_given_up() {
    let mut world = World::new(config(), &[("a1", 1), ("b1", 1)]);
    let delete = |world: &mut World| {
        let reply = world.ask(Request::OffsetDelete(OffsetDelete {
            group_id: "g".into(),
            topics: vec![("a1".into(), vec![0])],
        }));
        match reply {
            Reply::OffsetDelete(reply) => reply.topics[0].partitions[0].1,
            other => panic!("{other:?}"),
        }
    };
    world.beat(by_pattern("a.*", joining("a", &[])));
    world.advance(0);
    assert_eq!(delete(&mut world), ErrorCode::GroupSubscribedToTopic);
    world.beat(to_names(&["b1"], beating("a", 1)));
    assert_eq!(delete(&mut world), ErrorCode::None);
}

#[test]
fn topics_of_a_pattern_are_found_in_whatever_order_they_were_recorded() {
    let mut loaded = Coordinator::new(config(), Arc::default(), 1);
    let topics = ["c", "a", "d", "b"].map(TopicName::from);
    loaded.apply(&Record::ConsumerGroupRegularExpression {
        group_id: "g".into(),
        regex: ".".into(),
        value: Some(RegexValue {
            topics: topics.to_vec(),
            version: 1,
            timestamp: START,
        }),
    });
    let group = loaded.state.consumer("g").unwrap();
    for topic in topics {
        assert!(group.subscribes(&topic), "{topic}");
    }
}
