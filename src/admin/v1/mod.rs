//! The API under `/v1`: groups, their offsets, topics and lag as JSON, and every action an operator has. What is
//! answered stands in `shapes`, what is asked in `asks`; `openapi` lists every endpoint once, for the router and for the
//! document alike.

mod actions;
mod asks;
mod caps;
mod events;
mod groups;
mod offsets;
mod openapi;
mod shapes;
mod topics;

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use self::events::Events;
use super::Looking;
use super::lag::{Survey, Surveyor};
use super::problem::Problem;
use crate::server::Observer;

/// Actions that may run at one time: each holds one of the few connections there are.
const ACTIONS_MAX: u32 = 32;

/// What every endpoint has.
#[derive(Clone, Debug)]
pub(super) struct Api(Arc<Inside>);

#[derive(Debug)]
struct Inside {
    looking: Looking,
    surveyor: Surveyor,
    events: Events,
    actions: Arc<Semaphore>,
}

impl Api {
    /// Events end when `stopped` is true.
    pub(super) fn new(looking: Looking, stopped: watch::Receiver<bool>) -> Self {
        Self(Arc::new(Inside {
            looking,
            surveyor: Surveyor::default(),
            events: Events::new(stopped),
            actions: Arc::new(Semaphore::new(ACTIONS_MAX as usize)),
        }))
    }

    /// The running server.
    fn observer(&self) -> Result<&Observer, Problem> {
        let opening = || Problem::unavailable("the server opens its folders; try again");
        self.0.looking.get().ok_or_else(opening)
    }

    /// The running server, once every group is loaded: an answer about all groups must not miss some of them.
    fn ready(&self) -> Result<&Observer, Problem> {
        let observer = self.observer()?;
        if observer.readiness().loading > 0 {
            return Err(Problem::unavailable(
                "groups are being loaded; /readyz tells how far it has come",
            ));
        }
        Ok(observer)
    }

    /// How far all groups are behind.
    pub(super) async fn survey(&self) -> Result<Arc<Survey>, Problem> {
        let observer = self.observer()?;
        Ok(self.0.surveyor.survey(observer).await)
    }

    /// A turn to act. One with a large body counts for several.
    fn turn(&self, weight: u32) -> Result<OwnedSemaphorePermit, Problem> {
        let turn = self.0.actions.clone().try_acquire_many_owned(weight);
        turn.map_err(|_| {
            Problem::new(
                axum::http::StatusCode::TOO_MANY_REQUESTS,
                format!("{ACTIONS_MAX} actions run already; wait until some have ended"),
            )
        })
    }
}

/// The API and the document that describes it.
pub(super) fn routes() -> Router<Api> {
    openapi::routes().route("/openapi.json", get(openapi::document))
}
