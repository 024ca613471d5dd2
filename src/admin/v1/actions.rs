//! What operators do to groups. Each action can be a dry run; it is answered when it is done.

use std::sync::Arc;

use axum::Json;
use axum::extract::{ConnectInfo, FromRequestParts, State};
use axum::http::request::Parts;
use tokio::sync::OwnedSemaphorePermit;

use super::Api;
use super::asks::{Drain, DryRun, Kick, NewSettings, Plain, Preview};
use super::shapes::{Operated, Previewed, Settings};
use crate::admin::listener::{AtWork, Peer};
use crate::admin::problem::{Body, Name, Params, Problem};
use crate::group::operator::{Action, Operate, Supposition, Who};

/// A turn to act, taken before a body is read: so many bodies there may be at most.
pub(super) struct Turn<const WEIGHT: u32> {
    peer: Peer,
    turn: OwnedSemaphorePermit,
}

/// The turn of an action whose body is small.
pub(super) type Small = Turn<1>;
/// The turn of an action whose body may hold all offsets of a large group.
pub(super) type Large = Turn<8>;

impl<const WEIGHT: u32> FromRequestParts<Api> for Turn<WEIGHT> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, Problem> {
        let turn = api.turn(WEIGHT)?;
        let peer = parts.extensions.get::<ConnectInfo<Peer>>();
        let ConnectInfo(peer) = peer.cloned().expect("the server tells who is connected");
        Ok(Self { peer, turn })
    }
}

impl<const WEIGHT: u32> Turn<WEIGHT> {
    /// For the audit trail.
    fn operator(&self) -> Arc<str> {
        format!("http:{}", self.peer.address.ip()).into()
    }

    /// The same once the body has become words: it counts as one.
    fn without_body(mut self) -> Self {
        drop(self.turn.split(self.turn.num_permits().saturating_sub(1)));
        self
    }

    /// As long as this lives, the connection waits for its answer.
    fn at_work(&self) -> AtWork {
        self.peer.at_work()
    }
}

/// Acts, with notes that belong to how the action came about.
pub(super) async fn act<const WEIGHT: u32>(
    api: &Api,
    turn: Turn<WEIGHT>,
    group_id: &str,
    action: Action,
    dry_run: bool,
    notes: Vec<String>,
) -> Result<Json<Operated>, Problem> {
    let turn = turn.without_body();
    let _at_work = turn.at_work();
    let operate = Operate {
        group_id: group_id.into(),
        operator: turn.operator(),
        action,
        dry_run,
        announces: false,
    };
    let operated = api.observer()?.operate(operate).await?;
    Ok(Json(Operated::new(&operated, dry_run, notes)))
}

/// Removes members
///
/// By member id, group instance id or client id, and keeps them out for a while.
#[utoipa::path(post, path = "/v1/groups/{group_id}/kick", tag = "actions",
    params(("group_id" = String, Path, description = "The group.")), request_body = Kick,
    responses((status = 200, description = "What was done.", body = Operated)))]
pub(super) async fn kick_members(
    State(api): State<Api>,
    turn: Small,
    Name(group_id): Name,
    Body(kick): Body<Kick>,
) -> Result<Json<Operated>, Problem> {
    if kick.members.is_empty() {
        return Err(Problem::invalid("members: name at least one"));
    }
    if kick.ban_ms < 0 {
        return Err(Problem::invalid("ban_ms is 0 or more"));
    }
    let members = kick.members.into_iter().map(Who::from).collect();
    let ban_ms = kick.ban_ms;
    let action = Action::Kick { members, ban_ms };
    act(&api, turn, &group_id, action, kick.dry_run, Vec::new()).await
}

/// Drains a member
///
/// Assigns it nothing, and lets it go when it has given up all it had.
#[utoipa::path(post, path = "/v1/groups/{group_id}/drain", tag = "actions",
    params(("group_id" = String, Path, description = "The group.")), request_body = Drain,
    responses((status = 200, description = "What was done.", body = Operated)))]
pub(super) async fn drain_member(
    State(api): State<Api>,
    turn: Small,
    Name(group_id): Name,
    Body(drain): Body<Drain>,
) -> Result<Json<Operated>, Problem> {
    let member = drain.member.into();
    let action = Action::Drain { member };
    act(&api, turn, &group_id, action, drain.dry_run, Vec::new()).await
}

/// Pauses a group
///
/// Its members stay and own nothing until it is resumed, and after a restart of the server, too.
#[utoipa::path(post, path = "/v1/groups/{group_id}/pause", tag = "actions",
    params(("group_id" = String, Path, description = "The group.")), request_body = Plain,
    responses((status = 200, description = "What was done.", body = Operated)))]
pub(super) async fn pause_group(
    State(api): State<Api>,
    turn: Small,
    Name(group_id): Name,
    Body(plain): Body<Plain>,
) -> Result<Json<Operated>, Problem> {
    act(
        &api,
        turn,
        &group_id,
        Action::Pause,
        plain.dry_run,
        Vec::new(),
    )
    .await
}

/// Ends a group's pause
#[utoipa::path(post, path = "/v1/groups/{group_id}/resume", tag = "actions",
    params(("group_id" = String, Path, description = "The group.")), request_body = Plain,
    responses((status = 200, description = "What was done.", body = Operated)))]
pub(super) async fn resume_group(
    State(api): State<Api>,
    turn: Small,
    Name(group_id): Name,
    Body(plain): Body<Plain>,
) -> Result<Json<Operated>, Problem> {
    act(
        &api,
        turn,
        &group_id,
        Action::Resume,
        plain.dry_run,
        Vec::new(),
    )
    .await
}

/// Makes a group rebalance
#[utoipa::path(post, path = "/v1/groups/{group_id}/rebalance", tag = "actions",
    params(("group_id" = String, Path, description = "The group.")), request_body = Plain,
    responses((status = 200, description = "What was done.", body = Operated)))]
pub(super) async fn rebalance_group(
    State(api): State<Api>,
    turn: Small,
    Name(group_id): Name,
    Body(plain): Body<Plain>,
) -> Result<Json<Operated>, Problem> {
    act(
        &api,
        turn,
        &group_id,
        Action::Rebalance,
        plain.dry_run,
        Vec::new(),
    )
    .await
}

/// Deletes a group and its offsets
///
/// Refused while it has members.
#[utoipa::path(delete, path = "/v1/groups/{group_id}", tag = "actions",
    params(("group_id" = String, Path, description = "The group."), DryRun),
    responses((status = 200, description = "What was done.", body = Operated)))]
pub(super) async fn delete_group(
    State(api): State<Api>,
    turn: Small,
    Name(group_id): Name,
    Params(asked): Params<DryRun>,
) -> Result<Json<Operated>, Problem> {
    act(
        &api,
        turn,
        &group_id,
        Action::Delete,
        asked.dry_run,
        Vec::new(),
    )
    .await
}

/// Sets what stands over the server's settings for a group
///
/// Answers how the settings are afterwards, or would be.
#[utoipa::path(put, path = "/v1/groups/{group_id}/settings", tag = "actions",
    params(("group_id" = String, Path, description = "The group."), DryRun), request_body = NewSettings,
    responses((status = 200, description = "The group's settings.", body = Settings)))]
pub(super) async fn change_settings(
    State(api): State<Api>,
    turn: Small,
    Name(group_id): Name,
    Params(how): Params<DryRun>,
    Body(asked): Body<NewSettings>,
) -> Result<Json<Settings>, Problem> {
    let given = asked.given();
    if !given.is_empty() {
        let action = Action::Configure(given.clone());
        let _ = act(&api, turn, &group_id, action, how.dry_run, Vec::new()).await?;
    }
    let inspected = api.observer()?.inspect(group_id.as_str().into()).await?;
    let mut settings = inspected.settings;
    if how.dry_run {
        settings.retain(|(setting, _)| given.iter().all(|(other, _)| other != setting));
        settings.extend(
            given
                .iter()
                .filter_map(|(setting, value)| Some((*setting, (*value)?))),
        );
    }
    Ok(Json(Settings::new(&settings)))
}

/// Tells which partitions would move
///
/// If members came or went, topics grew, or another assignor were used. Changes nothing.
#[utoipa::path(post, path = "/v1/groups/{group_id}/preview", tag = "actions",
    params(("group_id" = String, Path, description = "The group.")), request_body = Preview,
    responses((status = 200, description = "What would move.", body = Previewed)))]
pub(super) async fn preview_assignment(
    State(api): State<Api>,
    _: Small,
    Name(group_id): Name,
    Body(preview): Body<Preview>,
) -> Result<Json<Previewed>, Problem> {
    let change = Supposition::try_from(preview).map_err(Problem::invalid)?;
    let previewed = api.observer()?.preview(group_id.into(), change).await?;
    Ok(Json((&*previewed).into()))
}
