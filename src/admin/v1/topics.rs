//! Topics, how far their partitions reach, and who consumes them. Reads only.

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;

use super::Api;
use super::asks::ListTopics;
use super::groups::limit;
use super::shapes::{Partition, Topic, TopicGroup, TopicList};
use crate::admin::lag::Survey;
use crate::admin::problem::{Name, Params, Problem};
use crate::broker::{Broker, TopicSummary};
use crate::group::types::GroupId;

/// Lists topics
///
/// By name, a page at a time, each with its partitions and the groups that have committed offsets of it.
#[utoipa::path(get, path = "/v1/topics", tag = "topics", params(ListTopics),
    responses((status = 200, description = "A page of topics.", body = TopicList)))]
pub(super) async fn list_topics(
    State(api): State<Api>,
    Params(asked): Params<ListTopics>,
) -> Result<Json<TopicList>, Problem> {
    let limit = limit(asked.limit)?;
    let observer = api.ready()?;
    let survey = api.survey().await?;
    let image = observer.broker().topics();
    let prefix = asked.prefix.as_deref().unwrap_or_default();
    let after = asked.after.as_deref();
    let mut rest = image.iter().filter(|topic| {
        topic.name.starts_with(prefix) && after.is_none_or(|after| *topic.name > *after)
    });
    let shape = |topic| shape(observer.broker(), &survey, topic);
    let topics: Vec<Topic> = rest.by_ref().take(limit).map(shape).collect();
    let more = rest.next().is_some();
    let next = topics
        .last()
        .filter(|_| more)
        .map(|last| last.topic.clone());
    Ok(Json(TopicList { topics, next }))
}

/// Tells about a topic
///
/// Its partitions with their first offset and their end, and the groups that have committed offsets of it.
#[utoipa::path(get, path = "/v1/topics/{topic}", tag = "topics",
    params(("topic" = String, Path, description = "The topic.")),
    responses((status = 200, description = "The topic.", body = Topic)))]
pub(super) async fn describe_topic(
    State(api): State<Api>,
    Name(name): Name,
) -> Result<Json<Topic>, Problem> {
    let observer = api.ready()?;
    let survey = api.survey().await?;
    let image = observer.broker().topics();
    let Some(topic) = image.get(&name) else {
        return Err(Problem::not_found(format!("there is no topic {name}")));
    };
    Ok(Json(shape(observer.broker(), &survey, topic)))
}

fn shape(broker: &Broker, survey: &Survey, topic: &TopicSummary) -> Topic {
    let partitions = (0..topic.partitions).map(|partition| {
        // The group log's stand-in reaches nowhere.
        let bounds = broker.bounds(&topic.name, partition).unwrap_or_default();
        Partition {
            partition,
            start_offset: bounds.log_start,
            end_offset: bounds.end,
        }
    });
    let groups: Option<&BTreeSet<GroupId>> = survey.topics.get(&topic.name);
    let group = |group_id: &GroupId| TopicGroup {
        group_id: group_id.to_string(),
    };
    Topic {
        topic: topic.name.to_string(),
        topic_id: topic.id.to_string(),
        is_internal: topic.internal,
        partitions: partitions.collect(),
        groups: groups.into_iter().flatten().map(group).collect(),
    }
}
