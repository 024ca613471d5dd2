//! Patterns that come, go and are shared.

use std::sync::Arc;

use super::world::*;
use crate::group::record::{Record, RegexValue};
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

fn commit(member_id: &str, epoch: i32, topic: &str) -> Request {
    Request::OffsetCommit(OffsetCommit {
        group_id: "g".into(),
        client: client(),
        member_id: member_id.into(),
        generation_or_epoch: epoch,
        group_instance_id: None,
        retention_time_ms: None,
        consumer_errors: true,
        topics: vec![CommitTopic {
            topic: TopicRef::Name(topic.into()),
            partitions: vec![CommitPartition {
                index: 0,
                offset: 1,
                leader_epoch: -1,
                metadata: "".into(),
            }],
        }],
    })
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
fn offsets_that_a_pattern_matches_are_kept_before_it_is_resolved() {
    let settings = GroupConfig {
        offsets_retention_ms: 1_000,
        offsets_retention_check_interval_ms: 5_000,
        ..config()
    };
    let mut world = World::new(settings, &[("a1", 1), ("b1", 1)]);
    world.beat(by_pattern("[ab].*", joining("a", &[])));
    world.advance(1_000);
    let a = world.beat(beating("a", 1));
    for topic in ["a1", "b1"] {
        let committed = world.ask(commit("a", a.member_epoch, topic));
        let Reply::OffsetCommit(reply) = committed else {
            panic!("{committed:?}");
        };
        assert_eq!(reply.topics[0].partitions[0].1, ErrorCode::None);
    }
    // The old pattern is forgotten, the new one not resolved, when offsets are looked through: each of its heartbeats
    // puts that off.
    world.advance(3_999);
    world.beat(by_pattern("a.*", beating("a", a.member_epoch)));
    world.now = world.now.plus(2);
    world.beat(beating("a", a.member_epoch));
    assert!(
        world
            .live
            .state
            .consumer("g")
            .unwrap()
            .resolved("a.*")
            .is_none()
    );
    world.advance(0);
    let expired = world.records.iter().filter_map(|record| match record {
        Record::OffsetCommit {
            topic, value: None, ..
        } => Some(&**topic),
        _ => None,
    });
    assert_eq!(expired.collect::<Vec<_>>(), ["b1"]);
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
