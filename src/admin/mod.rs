//! HTTP for operators: health, readiness, metrics, and the page. Everything comes in
//! as values and closures; nothing here changes the server. Errors are problem documents
//! (RFC 9457).

mod listener;
mod page;

use std::io;
use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Serialize;
use tokio::net::TcpListener;

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
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// The pages. Later rooms merge their own routes into it.
pub fn router(sources: Sources) -> Router {
    Router::new()
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(sources)
        .merge(page::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(wrong_method)
}

/// Serves the pages until `stop` is done. Connections are few and short-lived: one that has had
/// no answer for half a minute is closed, so that nobody can hold them all.
///
/// # Errors
/// The listener's.
pub async fn serve(
    socket: TcpListener,
    router: Router,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener::Bounded::new(socket), router)
        .with_graceful_shutdown(stop)
        .await
}

#[derive(Serialize)]
struct Health {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

async fn healthz(State(sources): State<Sources>) -> Response {
    match (sources.standing)().failed {
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

async fn readyz(State(sources): State<Sources>) -> Response {
    let standing = (sources.standing)();
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

async fn metrics(State(sources): State<Sources>) -> Response {
    let format = [(
        header::CONTENT_TYPE,
        "text/plain; version=0.0.4; charset=utf-8",
    )];
    (format, (sources.metrics)().await).into_response()
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
        format!("{} is only read, with GET", uri.path()),
    )
}

/// An error as a document (RFC 9457).
#[derive(Debug, Clone)]
pub struct Problem {
    status: StatusCode,
    detail: String,
}

impl Problem {
    /// With the title that belongs to the status, and what is wrong here, in a sentence.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            status,
            detail: detail.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        #[derive(Serialize)]
        struct Document<'a> {
            title: &'a str,
            status: u16,
            detail: &'a str,
        }

        let document = Document {
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: &self.detail,
        };
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        (self.status, kind, Json(document)).into_response()
    }
}

#[cfg(test)]
mod tests;
