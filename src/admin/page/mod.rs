//! The web page at `/`: its routes and assets, all of them in the binary. What it shows it asks of the API under `/v1`.

use axum::Router;
use axum::response::Html;
use axum::routing::get;

/// The page and what it loads.
pub(super) fn routes() -> Router {
    Router::new().route("/", get(index))
}

async fn index() -> Html<&'static str> {
    Html(concat!(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Convoke</title>",
        "<style>body{font:16px/1.5 system-ui,sans-serif;max-width:40em;margin:4em auto;padding:0 1em}</style>",
        "<h1>Convoke ",
        env!("CARGO_PKG_VERSION"),
        "</h1><ul>",
        "<li><a href=/healthz>/healthz</a>: the process works",
        "<li><a href=/readyz>/readyz</a>: everything is loaded and clients are served",
        "<li><a href=/metrics>/metrics</a>: for Prometheus",
        "</ul>"
    ))
}
