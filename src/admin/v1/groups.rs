//! What there is to know about groups. Reads only.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::Api;
use super::asks::ListGroups;
use super::shapes::{
    self, Audit, Commits, Counts, GroupList, Inspected, Lag, LagList, LagRow, Rebalances, Settings,
    Summary,
};
use crate::admin::lag::{self, CommitLag};
use crate::admin::problem::{Name, Params, Problem};
use crate::group::operator;
use crate::group::types::GroupId;

/// Rows of a page, if nothing is said.
pub(super) const LIMIT: u32 = 1000;
/// Rows of a page at most.
pub(super) const LIMIT_MAX: u32 = 10_000;

pub(super) fn limit(asked: Option<u32>) -> Result<usize, Problem> {
    let limit = asked.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        let detail = format!("limit is 1 to {LIMIT_MAX}, not {limit}");
        return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
    }
    Ok(limit as usize)
}

/// Lists groups
///
/// By id, a page at a time, each with its state and how far it is behind.
#[utoipa::path(get, path = "/v1/groups", tag = "groups", params(ListGroups),
    responses((status = 200, description = "A page of groups.", body = GroupList)))]
pub(super) async fn list_groups(
    State(api): State<Api>,
    Params(asked): Params<ListGroups>,
) -> Result<Json<GroupList>, Problem> {
    let limit = limit(asked.limit)?;
    let observer = api.ready()?;
    let fits = |summary: &operator::Summary| {
        let like = |asked: &Option<String>, is: &str| {
            asked
                .as_ref()
                .is_none_or(|asked| asked.eq_ignore_ascii_case(is))
        };
        let prefix = asked.prefix.as_deref().unwrap_or_default();
        summary.group_id.starts_with(prefix)
            && like(&asked.state, summary.state)
            && like(&asked.kind, summary.kind)
    };
    let mut summaries = observer.summaries().await;
    summaries.retain(fits);
    let counts = Counts {
        groups: summaries.len(),
        members: summaries.iter().map(|summary| summary.member_count).sum(),
        stormy: summaries.iter().filter(|summary| summary.is_stormy).count(),
    };
    let after = asked.after.as_deref();
    let from = after.map_or(0, |after| {
        summaries.partition_point(|summary| *summary.group_id <= *after)
    });
    let rest = &summaries[from..];
    let page = &rest[..rest.len().min(limit)];
    let more = page.len() < rest.len();
    let next = page
        .last()
        .filter(|_| more)
        .map(|last| last.group_id.to_string());
    let survey = api.survey().await?;
    let row = |summary: &operator::Summary| {
        let lag = survey.groups.get(&summary.group_id).map(Lag::from);
        Summary::new(summary, lag)
    };
    Ok(Json(GroupList {
        groups: page.iter().map(row).collect(),
        next,
        counts,
    }))
}

async fn inspect(api: &Api, group_id: &str) -> Result<Box<operator::Inspected>, Problem> {
    Ok(api.observer()?.inspect(group_id.into()).await?)
}

/// How far each commit is behind. The commits were read before.
async fn lags(api: &Api, inspected: &operator::Inspected) -> Result<Vec<CommitLag>, Problem> {
    let broker = api.observer()?.broker();
    Ok(lag::of_commits(broker, &inspected.commits).await)
}

/// Tells everything about a group
///
/// Members and what they own, commits and who made them, rebalances and why, what was changed by whom.
#[utoipa::path(get, path = "/v1/groups/{group_id}", tag = "groups",
    params(("group_id" = String, Path, description = "The group.")),
    responses((status = 200, description = "Everything about the group.", body = Inspected)))]
pub(super) async fn describe_group(
    State(api): State<Api>,
    Name(group_id): Name,
) -> Result<Json<Inspected>, Problem> {
    let inspected = inspect(&api, &group_id).await?;
    let lags = lags(&api, &inspected).await?;
    Ok(Json(Inspected::new(&inspected, &lags)))
}

/// Lists a group's rebalances
///
/// Newest first, each with what began it, what moved, how long it took and why, in one sentence.
#[utoipa::path(get, path = "/v1/groups/{group_id}/rebalances", tag = "groups",
    params(("group_id" = String, Path, description = "The group.")),
    responses((status = 200, description = "The rebalances that the journal keeps.", body = Rebalances)))]
pub(super) async fn list_rebalances(
    State(api): State<Api>,
    Name(group_id): Name,
) -> Result<Json<Rebalances>, Problem> {
    let inspected = inspect(&api, &group_id).await?;
    Ok(Json(Rebalances {
        rebalances: shapes::rebalances(&inspected),
        storm: inspected.storm.clone(),
    }))
}

/// Lists a group's commits
///
/// Each committed offset with who committed it and when, who fetched it, who owns the partition, and the lag.
#[utoipa::path(get, path = "/v1/groups/{group_id}/commits", tag = "groups",
    params(("group_id" = String, Path, description = "The group.")),
    responses((status = 200, description = "The committed offsets.", body = Commits)))]
pub(super) async fn list_commits(
    State(api): State<Api>,
    Name(group_id): Name,
) -> Result<Json<Commits>, Problem> {
    let inspected = inspect(&api, &group_id).await?;
    let lags = lags(&api, &inspected).await?;
    let commits = shapes::commits(&inspected, &lags);
    Ok(Json(Commits { commits }))
}

/// Lists changes of a group's offsets
///
/// Those that an operator made and those that went back, newest first.
#[utoipa::path(get, path = "/v1/groups/{group_id}/audit", tag = "groups",
    params(("group_id" = String, Path, description = "The group.")),
    responses((status = 200, description = "The changes that the trail keeps.", body = Audit)))]
pub(super) async fn list_audit(
    State(api): State<Api>,
    Name(group_id): Name,
) -> Result<Json<Audit>, Problem> {
    let inspected = inspect(&api, &group_id).await?;
    let audit = shapes::audit(&inspected);
    Ok(Json(Audit { audit }))
}

/// Tells what a group sets for itself
#[utoipa::path(get, path = "/v1/groups/{group_id}/settings", tag = "groups",
    params(("group_id" = String, Path, description = "The group.")),
    responses((status = 200, description = "The group's settings.", body = Settings)))]
pub(super) async fn read_settings(
    State(api): State<Api>,
    Name(group_id): Name,
) -> Result<Json<Settings>, Problem> {
    let inspected = inspect(&api, &group_id).await?;
    Ok(Json(Settings::new(&inspected.settings)))
}

/// Tells how far every group is behind
///
/// One cheap call for all groups. Ends of partitions are read after the offsets they are compared with, so lag is
/// never negative.
#[utoipa::path(get, path = "/v1/lag", tag = "groups",
    responses((status = 200, description = "The lag of every group that has committed anything.", body = LagList)))]
pub(super) async fn list_lag(State(api): State<Api>) -> Result<Json<LagList>, Problem> {
    api.ready()?;
    let survey = api.survey().await?;
    let row = |(group_id, lag): (&GroupId, &lag::GroupLag)| LagRow {
        group_id: group_id.to_string(),
        records: lag.records,
        ms: lag.ms,
        partitions: lag.partitions,
    };
    Ok(Json(LagList {
        groups: survey.groups.iter().map(row).collect(),
    }))
}
