//! Errors as documents (RFC 9457), and what turns a request into words: whatever is wrong with its path, query or body
//! becomes such a document, too.

use axum::body::to_bytes;
use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, RequestPartsExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;

use crate::group::operator::{NotDone, NotDoneKind};

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

    /// What was asked cannot be meant.
    pub(super) fn invalid(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }

    pub(super) fn not_found(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Not now.
    pub(super) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl From<NotDone> for Problem {
    fn from(not_done: NotDone) -> Self {
        let status = match not_done.kind {
            NotDoneKind::NotFound => StatusCode::NOT_FOUND,
            NotDoneKind::Conflict => StatusCode::CONFLICT,
            NotDoneKind::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            NotDoneKind::Limit => StatusCode::TOO_MANY_REQUESTS,
            NotDoneKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            NotDoneKind::Full => StatusCode::INSUFFICIENT_STORAGE,
        };
        Self::new(status, not_done.message)
    }
}

/// How an error looks.
#[derive(Serialize, utoipa::ToSchema)]
#[schema(as = Problem)]
pub(super) struct Document {
    /// What the status is called.
    title: &'static str,
    /// The status, as in the head of the answer.
    status: u16,
    /// What is wrong here and what to do, in sentences.
    detail: String,
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let document = Document {
            title: self.status.canonical_reason().unwrap_or("Error"),
            status: self.status.as_u16(),
            detail: self.detail,
        };
        let kind = [(header::CONTENT_TYPE, "application/problem+json")];
        let answer = (self.status, kind, Json(&document)).into_response();
        match self.status {
            StatusCode::SERVICE_UNAVAILABLE => {
                ([(header::RETRY_AFTER, "1")], answer).into_response()
            }
            StatusCode::UNAUTHORIZED => {
                ([(header::WWW_AUTHENTICATE, "Bearer")], answer).into_response()
            }
            _ => answer,
        }
    }
}

/// A group id or a topic in the path, decoded.
#[derive(Debug)]
pub(super) struct Name(pub(super) String);

impl<S: Send + Sync> FromRequestParts<S> for Name {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let name = parts.extract::<Path<String>>().await;
        let Path(name) = name.map_err(|e| Problem::new(StatusCode::BAD_REQUEST, e.body_text()))?;
        Ok(Self(name))
    }
}

/// What stands behind the question mark.
#[derive(Debug)]
pub(super) struct Params<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static, S: Send + Sync> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query: Result<Query<T>, QueryRejection> = parts.extract().await;
        let refused = |e: QueryRejection| Problem::new(StatusCode::BAD_REQUEST, e.body_text());
        Ok(Self(query.map_err(refused)?.0))
    }
}

/// What is asked for in a body of JSON.
pub(super) trait Ask: DeserializeOwned {
    /// How long the body may be.
    const BYTES_MAX: usize = 256 << 10;
}

/// A body of JSON. An empty one stands for `{}`.
#[derive(Debug)]
pub(super) struct Body<T>(pub(super) T);

impl<T: Ask, S: Send + Sync> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        if !is_json(request.headers()) {
            return Err(Problem::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "say what the body is: Content-Type: application/json",
            ));
        }
        let too_long = || {
            let detail = format!("the body may have {} bytes", T::BYTES_MAX);
            Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
        };
        let length = request.headers().get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > T::BYTES_MAX as u64) {
            return Err(too_long());
        }
        let bytes = to_bytes(request.into_body(), T::BYTES_MAX).await;
        let bytes = bytes.map_err(|_| too_long())?;
        let text: &[u8] = if bytes.is_empty() { b"{}" } else { &bytes };
        // For a list of values in the right order serde would not mind.
        if text.trim_ascii_start().starts_with(b"[") {
            return Err(Problem::invalid("the body is a list; an object is wanted"));
        }
        serde_json::from_slice(text).map(Self).map_err(|error| {
            let status = match error.classify() {
                Category::Data => StatusCode::UNPROCESSABLE_ENTITY,
                _ => StatusCode::BAD_REQUEST,
            };
            Problem::new(
                status,
                format!("the body is not what is wanted here: {error}"),
            )
        })
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}
