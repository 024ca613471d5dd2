//! How many groups there may be.

use axum::Json;
use axum::extract::State;

use super::Api;
use super::actions::Small;
use super::asks::{DryRun, NewCaps};
use super::shapes::Caps;
use crate::admin::problem::{Body, Params, Problem};
use crate::group;

/// Tells how many groups there may be
#[utoipa::path(get, path = "/v1/caps", tag = "groups",
    responses((status = 200, description = "The caps.", body = Caps)))]
pub(super) async fn read_caps(State(api): State<Api>) -> Result<Json<Caps>, Problem> {
    Ok(Json((&api.observer()?.caps()).into()))
}

/// Sets how many groups there may be
///
/// All of the caps: what is absent has no limit. Groups that there are stay. Holds until the server ends; what
/// outlives it stands in the configuration.
#[utoipa::path(put, path = "/v1/caps", tag = "actions", params(DryRun), request_body = NewCaps,
    responses((status = 200, description = "The caps from now on, or as they would be.", body = Caps)))]
pub(super) async fn change_caps(
    State(api): State<Api>,
    _: Small,
    Params(how): Params<DryRun>,
    Body(asked): Body<NewCaps>,
) -> Result<Json<Caps>, Problem> {
    let caps: group::Caps = asked
        .try_into()
        .map_err(|why: String| Problem::invalid(why))?;
    let observer = api.observer()?;
    if how.dry_run {
        return Ok(Json((&caps).into()));
    }
    observer.set_caps(caps).await;
    Ok(Json((&observer.caps()).into()))
}
