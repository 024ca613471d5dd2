//! HTTP for operators: health, readiness, metrics, the API under `/v1`, and the page that speaks to it. Who may do what
//! is held in `guard`; what is done to groups is the server's affair. Errors are problem documents (RFC 9457).

mod guard;
mod lag;
mod listener;
mod page;
mod problem;
mod v1;

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;
use tokio::sync::watch;

use self::listener::Peer;
use self::v1::Api;
use crate::server::Observer;

pub use guard::{Door, Token, TokenError};
pub use problem::Problem;

/// The server to look into: none while it opens its folders.
pub type Looking = Arc<OnceLock<Observer>>;

/// What the server is up to, as `/readyz` tells it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Standing {
    /// Clients are served.
    pub ready: bool,
    /// In a word: `loading`, `serving`, `degraded` (some shards stay closed), `stopping` or
    /// `failed`.
    pub phase: &'static str,
    /// The shards.
    pub shards: Shards,
    /// The group log's share that has been read.
    pub log: Progress,
    /// Coordinators that failed on a fact that cannot be, and were loaded again.
    pub reloads: u64,
    /// Why the server as a whole cannot go on.
    pub failed: Option<String>,
}

/// Shards by what they are up to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Shards {
    /// All of them.
    pub total: usize,
    /// Those that serve.
    pub loaded: usize,
    /// Those that stay closed until the next start.
    pub closed: Vec<ClosedShard>,
}

/// A shard that could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClosedShard {
    /// Its number, as Kafka numbers partitions of `__consumer_offsets`.
    pub shard: u16,
    /// Why.
    pub reason: String,
}

/// Bytes read and to be read. Both are 0 before the size is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

/// A text that takes a moment to make.
pub type Text = Pin<Box<dyn Future<Output = String> + Send>>;

/// What the pages are made of.
#[derive(Clone)]
pub struct Sources {
    /// Renders the metrics in Prometheus' text format.
    pub metrics: Arc<dyn Fn() -> Text + Send + Sync>,
    /// Says how things stand.
    pub standing: Arc<dyn Fn() -> Standing + Send + Sync>,
    /// The server that the API speaks for.
    pub looking: Looking,
    /// Who may come in.
    pub door: Door,
    /// Groups whose lag is among the metrics, at most.
    pub lag_groups_max: usize,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// The routes, without who may come in and without the end.
fn routes(sources: Sources, stopped: watch::Receiver<bool>) -> Router {
    let api = Api::new(sources.looking.clone(), stopped);
    let door = Arc::new(sources.door.clone());
    let board = Board {
        sources: Arc::new(sources),
        api: api.clone(),
    };
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(board)
        .merge(page::routes())
        .merge(v1::routes().with_state(api))
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(door, guard::guard))
}

/// Serves HTTP until `stop` is done. Connections are few, and one that has had no answer for half a minute while none is
/// being worked on is closed, so that nobody can hold them all.
///
/// # Errors
/// The listener's.
pub async fn serve(
    socket: TcpListener,
    sources: Sources,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let (stopped, seen) = watch::channel(false);
    let service = routes(sources, seen).into_make_service_with_connect_info::<Peer>();
    let stop = async move {
        stop.await;
        // Whoever listens to events would hold up the end.
        stopped.send_replace(true);
    };
    axum::serve(listener::Bounded::new(socket), service)
        .with_graceful_shutdown(stop)
        .await
}

/// What the noticeboard is made of.
#[derive(Clone)]
struct Board {
    sources: Arc<Sources>,
    api: Api,
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

async fn healthz(State(board): State<Board>) -> Response {
    match (board.sources.standing)().failed {
        None => Json(Health {
            status: "ok",
            reason: None,
        })
        .into_response(),
        reason => (
            StatusCode::SERVICE_UNAVAILABLE,
            Json(Health {
                status: "failed",
                reason,
            }),
        )
            .into_response(),
    }
}

async fn readyz(State(board): State<Board>) -> Response {
    let standing = (board.sources.standing)();
    let status = if standing.ready {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    };
    (
        status,
        [(header::CACHE_CONTROL, "no-store")],
        Json(standing),
    )
        .into_response()
}

async fn metrics(State(board): State<Board>) -> Response {
    let format = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    let mut text = (board.sources.metrics)().await;
    let groups_max = board.sources.lag_groups_max;
    if groups_max > 0
        && let Ok(survey) = board.api.survey().await
    {
        text += &lag::metrics(&survey, groups_max);
    }
    (format, text).into_response()
}

async fn not_found(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        format!("there is no page {}; see /", uri.path()),
    )
}

async fn wrong_method(uri: Uri) -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        format!(
            "{} does not know this method; see /openapi.json",
            uri.path()
        ),
    )
}

#[cfg(test)]
mod tests;
