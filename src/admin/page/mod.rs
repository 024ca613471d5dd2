//! The web page at `/`: its files, compiled into the binary, and how they are served. What it shows
//! it asks of the API under `/v1`. No script stands in the markup, and the policy sent with every
//! file forbids it: what clients call their groups and themselves can never run.

use axum::Router;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

/// Nothing but files of this server, no script or style in the markup, no frames around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
     connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";

/// One file of the page.
struct Asset {
    path: &'static str,
    kind: &'static str,
    body: &'static [u8],
}

macro_rules! assets {
    ($($path:literal $kind:ident $file:literal,)*) => {
        &[$(Asset { path: $path, kind: $kind, body: include_bytes!($file) },)*]
    };
}

const ASSETS: &[Asset] = assets![
    "/" HTML "index.html",
    "/assets/page.css" CSS "page.css",
    "/assets/icon.svg" SVG "icon.svg",
    "/assets/theme.js" SCRIPT "theme.js",
    "/assets/page.js" SCRIPT "page.js",
    "/assets/api.js" SCRIPT "api.js",
    "/assets/dom.js" SCRIPT "dom.js",
    "/assets/format.js" SCRIPT "format.js",
    "/assets/live.js" SCRIPT "live.js",
    "/assets/list.js" SCRIPT "list.js",
    "/assets/group.js" SCRIPT "group.js",
    "/assets/matrix.js" SCRIPT "matrix.js",
    "/assets/timeline.js" SCRIPT "timeline.js",
    "/assets/commits.js" SCRIPT "commits.js",
    "/assets/settings.js" SCRIPT "settings.js",
    "/assets/dialog.js" SCRIPT "dialog.js",
    "/assets/actions.js" SCRIPT "actions.js",
];

impl Asset {
    /// Changes whenever the content does.
    fn tag(&self) -> String {
        format!(
            "\"{:08x}-{:x}\"",
            crc32c::crc32c(self.body),
            self.body.len()
        )
    }

    fn answer(&self, tag: &HeaderValue, asked: &HeaderMap) -> Response {
        let mut response = if is_known(tag, asked) {
            StatusCode::NOT_MODIFIED.into_response()
        } else {
            ([(header::CONTENT_TYPE, self.kind)], self.body).into_response()
        };
        let headers = response.headers_mut();
        headers.insert(header::ETAG, tag.clone());
        for (name, value) in [
            // Kept, but asked for each time: a new server must not meet an old page.
            (header::CACHE_CONTROL, "no-cache"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_FRAME_OPTIONS, "DENY"),
        ] {
            headers.insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

/// Whether the browser has the very content that it asks for.
fn is_known(tag: &HeaderValue, asked: &HeaderMap) -> bool {
    let Ok(tag) = tag.to_str() else { return false };
    let lists = asked.get_all(header::IF_NONE_MATCH).into_iter();
    let mut tags = lists
        .filter_map(|list| list.to_str().ok())
        .flat_map(|list| list.split(','))
        .map(|known| known.trim().trim_start_matches("W/"));
    tags.any(|known| known == tag || known == "*")
}

/// `/` and `/assets/…`, for GET and HEAD.
pub(super) fn routes() -> Router {
    ASSETS.iter().fold(Router::new(), |router, asset| {
        let tag = HeaderValue::try_from(asset.tag()).expect("hexadecimal digits in quotes");
        let answer = move |asked: HeaderMap| async move { asset.answer(&tag, &asked) };
        router.route(asset.path, get(answer))
    })
}

#[cfg(test)]
mod tests;
