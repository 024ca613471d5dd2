//! Every endpoint once: the router and the document (OpenAPI 3.1) are made of the same list, so that neither has what the
//! other lacks.

use std::sync::OnceLock;

use axum::Router;
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post, put};
use serde_json::{Map, Value, json};
use utoipa::OpenApi;

use super::Api;
use super::actions::*;
use super::caps::*;
use super::events::*;
use super::groups::*;
use super::offsets::*;
use super::topics::*;
use crate::admin::problem::Document;

/// What is to be said about an endpoint beyond what stands at its function.
struct Endpoint {
    method: &'static str,
    path: &'static str,
    /// The errors it answers, besides those that every endpoint answers.
    errors: &'static [u16],
}

macro_rules! endpoints {
    ($($method:ident $path:literal $handler:ident [$($error:literal)*];)+) => {
        /// The routes of the API.
        pub(super) fn routes() -> Router<Api> {
            Router::new()$(.route($path, $method($handler)))+
        }

        static ENDPOINTS: &[Endpoint] = &[
            $(Endpoint { method: stringify!($method), path: $path, errors: &[$($error),*] },)+
        ];

        #[derive(OpenApi)]
        #[openapi(paths($($handler),+), components(schemas(Document)))]
        struct Described;
    };
}

endpoints! {
    get "/v1/groups" list_groups [400 503];
    get "/v1/groups/{group_id}" describe_group [400 404 503];
    get "/v1/groups/{group_id}/rebalances" list_rebalances [400 404 503];
    get "/v1/groups/{group_id}/commits" list_commits [400 404 503];
    get "/v1/groups/{group_id}/audit" list_audit [400 404 503];
    get "/v1/groups/{group_id}/offsets" backup_offsets [400 404 503];
    put "/v1/groups/{group_id}/offsets" restore_offsets [400 401 403 404 409 413 415 422 429 503 507];
    post "/v1/groups/{group_id}/reset" reset_offsets [400 401 403 404 409 413 415 422 429 503 507];
    post "/v1/groups/{group_id}/clone" clone_group [400 401 403 404 409 413 415 422 429 503 507];
    post "/v1/groups/{group_id}/kick" kick_members [400 401 403 404 409 413 415 422 429 503 507];
    post "/v1/groups/{group_id}/drain" drain_member [400 401 403 404 409 413 415 422 429 503 507];
    post "/v1/groups/{group_id}/pause" pause_group [400 401 403 404 409 413 415 422 429 503 507];
    post "/v1/groups/{group_id}/resume" resume_group [400 401 403 404 409 413 415 422 429 503 507];
    post "/v1/groups/{group_id}/rebalance" rebalance_group [400 401 403 404 409 413 415 422 429 503 507];
    post "/v1/groups/{group_id}/preview" preview_assignment [400 401 403 404 409 413 415 422 429 503];
    delete "/v1/groups/{group_id}" delete_group [400 401 403 404 409 422 429 503 507];
    get "/v1/groups/{group_id}/settings" read_settings [400 404 503];
    put "/v1/groups/{group_id}/settings" change_settings [400 401 403 404 409 413 415 422 429 503 507];
    get "/v1/caps" read_caps [503];
    put "/v1/caps" change_caps [400 401 403 413 415 422 429 503];
    get "/v1/lag" list_lag [503];
    get "/v1/topics" list_topics [400 503];
    get "/v1/topics/{topic}" describe_topic [400 404 503];
    get "/v1/events" listen [429 503];
}

/// Errors that every endpoint answers.
const EVERYWHERE: &[u16] = &[405, 421];

/// What each error means, with an example.
fn error(status: u16) -> (&'static str, &'static str) {
    match status {
        400 => (
            "What stands in the path, the query or the body cannot be read.",
            "limit is 1 to 10000, not 0",
        ),
        401 => (
            "The server has a token, and the request does not show it.",
            "whoever changes something shows the server's token: Authorization: Bearer TOKEN",
        ),
        403 => (
            "The request comes from another site's page, or HTTP is open to the network without a token.",
            "another site's page must not change anything here",
        ),
        404 => (
            "There is no such group, member or topic.",
            "There is no group orders.",
        ),
        405 => (
            "The path does not know this method.",
            "/v1/lag does not know this method; see /openapi.json",
        ),
        409 => (
            "The group is not in a state in which this can be right.",
            "The group has members; stop them first.",
        ),
        413 => ("The body is too long.", "the body may have 262144 bytes"),
        415 => (
            "The body is not said to be JSON.",
            "say what the body is: Content-Type: application/json",
        ),
        421 => (
            "The server was called by a name that it does not go by.",
            "this server is not known as \"evil.example\": use its address or localhost, or add the name to convoke.http.hosts",
        ),
        422 => (
            "The request can be read, but cannot be meant.",
            "offset 500 does not exist: partition 0 of orders reaches from 0 to 220",
        ),
        429 => (
            "A limit is reached.",
            "32 actions run already; wait until some have ended",
        ),
        503 => (
            "Not now: groups are being loaded, or the server stops. Try again.",
            "groups are being loaded; /readyz tells how far it has come",
        ),
        507 => (
            "The disk is full. Nothing was changed.",
            "The disk is full.",
        ),
        _ => ("An error.", ""),
    }
}

fn reason(status: u16) -> &'static str {
    let status = axum::http::StatusCode::from_u16(status);
    status
        .ok()
        .and_then(|status| status.canonical_reason())
        .unwrap_or("Error")
}

fn response(status: u16) -> Value {
    let (description, detail) = error(status);
    json!({
        "description": description,
        "content": {"application/problem+json": {
            "schema": {"$ref": "#/components/schemas/Problem"},
            "example": {"title": reason(status), "status": status, "detail": detail}
        }}
    })
}

/// The document.
fn describe() -> Value {
    let mut document = serde_json::to_value(Described::openapi()).unwrap_or_default();
    document["openapi"] = "3.1.0".into();
    document["info"] = json!({
        "title": "Convoke",
        "version": env!("CARGO_PKG_VERSION"),
        "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        "description": "Groups, offsets, lag and topics of a Convoke server, and every action on groups that run. Times are unix milliseconds. Errors are problem documents (RFC 9457)."
    });
    document["servers"] = json!([{"url": "/"}]);
    document["tags"] = json!([
        {"name": "groups", "description": "What there is to know about groups."},
        {"name": "offsets", "description": "Moving, keeping and copying committed offsets."},
        {"name": "actions", "description": "What operators do to groups. Each is answered when it is done."},
        {"name": "topics", "description": "Topics and who consumes them."}
    ]);
    let statuses = ENDPOINTS.iter().flat_map(|endpoint| endpoint.errors);
    let responses: Map<String, Value> = statuses
        .chain(EVERYWHERE)
        .map(|status| (status.to_string(), response(*status)))
        .collect();
    document["components"]["responses"] = responses.into();
    document["components"]["securitySchemes"] = json!({
        "token": {"type": "http", "scheme": "bearer", "description": "The token of --http-token-file. Needed for all that changes something, where there is one."}
    });
    for endpoint in ENDPOINTS {
        let operation = &mut document["paths"][endpoint.path][endpoint.method];
        for status in endpoint.errors.iter().chain(EVERYWHERE) {
            operation["responses"][status.to_string()] =
                json!({"$ref": format!("#/components/responses/{status}")});
        }
        if endpoint.method != "get" {
            operation["security"] = json!([{}, {"token": []}]);
        }
    }
    document
}

/// The document that describes the API.
pub(super) async fn document() -> Response {
    static TEXT: OnceLock<String> = OnceLock::new();
    let text: &'static str = TEXT.get_or_init(|| describe().to_string());
    ([(header::CONTENT_TYPE, "application/json")], text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_is_in_the_document_and_nothing_else() {
        let document = describe();
        let mut described = Vec::new();
        for (path, methods) in document["paths"].as_object().unwrap() {
            for method in methods.as_object().unwrap().keys() {
                described.push((method.clone(), path.clone()));
            }
        }
        let listed = ENDPOINTS.iter();
        let mut listed: Vec<_> = listed
            .map(|endpoint| (endpoint.method.to_owned(), endpoint.path.to_owned()))
            .collect();
        described.sort();
        listed.sort();
        assert_eq!(described, listed);
    }

    #[test]
    fn every_endpoint_says_what_it_does_answers_and_refuses() {
        let document = describe();
        for endpoint in ENDPOINTS {
            let operation = &document["paths"][endpoint.path][endpoint.method];
            let name = format!("{} {}", endpoint.method, endpoint.path);
            assert!(operation["summary"].is_string(), "{name}");
            assert!(operation["operationId"].is_string(), "{name}");
            let responses = operation["responses"].as_object().unwrap();
            assert!(responses.contains_key("200"), "{name}");
            for status in endpoint.errors {
                assert!(
                    responses.contains_key(&status.to_string()),
                    "{name} {status}"
                );
                assert_ne!(error(*status).0, "An error.", "{status}");
            }
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                assert!(parameter["description"].is_string(), "{name} {parameter}");
            }
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(value: &Value, document: &Value) {
            match value {
                Value::Object(fields) => {
                    if let Some(Value::String(reference)) = fields.get("$ref") {
                        let pointer = reference.strip_prefix('#').unwrap();
                        assert!(document.pointer(pointer).is_some(), "{reference}");
                    }
                    fields.values().for_each(|field| walk(field, document));
                }
                Value::Array(items) => items.iter().for_each(|item| walk(item, document)),
                _ => {}
            }
        }
        let document = describe();
        walk(&document, &document);
    }
}
