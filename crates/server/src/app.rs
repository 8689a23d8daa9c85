//! The routes, the shape of every answer, and the OpenAPI document.

use crate::accept::Activity;
use crate::fault::Fault;
use crate::routes;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http::{HeaderName, HeaderValue, StatusCode};
use motu_api::event::{Control, Event};
use motu_api::wire::{API_HEADER, API_VERSION, ErrorBody, PullLine, VERSION_HEADER, WatchLine};
use motu_core::{Error, Service};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use utoipa::OpenApi;
use utoipa::openapi::RefOr;
use utoipa_axum::router::OpenApiRouter;

/// What every handler has.
#[derive(Clone)]
pub struct App {
    pub service: Arc<dyn Service>,
    pub activity: Activity,
}

impl std::fmt::Debug for App {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("App")
    }
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "motu",
        description = "An isolated machine for every AI agent.\n\nLive streams are sequences of frames: one byte of kind (0 JSON, 1 stdin or stdout, 2 stderr), the length of the payload in four bytes, most significant first, and the payload, at most 1 MiB. JSON frames from the server hold an `Event`, those from the client a `Control`; the first frame of a stream is its request. The same frames travel over WebSockets, one per binary message.",
        license(name = "Apache-2.0", identifier = "Apache-2.0"),
    ),
    components(schemas(ErrorBody, Event, Control, PullLine, WatchLine)),
    tags(
        (name = "service", description = "The daemon itself."),
        (name = "environments", description = "What sandboxes start from."),
        (name = "sandboxes", description = "Isolated machines."),
        (name = "commands", description = "Commands and processes inside a sandbox."),
        (name = "files", description = "Files inside a sandbox."),
        (name = "ports", description = "Ports, sockets and measurements of a sandbox."),
        (name = "workspaces", description = "Sandboxes that are kept, with `/workspace`, a baseline and a history."),
        (name = "workspace content", description = "What is in `/workspace`: pushing, reading, patching, comparing."),
        (name = "snapshots", description = "Named states of `/workspace`."),
        (name = "services", description = "Long-running processes of a workspace."),
        (name = "shells", description = "Persistent terminals of a workspace."),
        (name = "terminals", description = "Sessions on a PTY that know what they wait for."),
    ),
)]
struct Document;

fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::with_openapi(Document::openapi())
        .merge(routes::service::routes())
        .merge(routes::environments::routes())
        .merge(routes::sandboxes::routes())
        .merge(routes::commands::routes())
        .merge(routes::files::routes())
        .merge(routes::ports::routes())
        .merge(routes::workspaces::routes())
        .merge(routes::terminals::routes())
}

/// The OpenAPI document of everything served.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut document = routes().split_for_parts().1;
    for path in document.paths.paths.values_mut() {
        let operations = [
            &mut path.get,
            &mut path.put,
            &mut path.post,
            &mut path.delete,
            &mut path.patch,
        ];
        for operation in operations.into_iter().flatten() {
            for response in operation.responses.responses.values_mut() {
                describe(response);
            }
        }
    }
    document
}

/// OpenAPI wants every response described; a success is described by its type.
fn describe(response: &mut RefOr<utoipa::openapi::Response>) {
    if let RefOr::T(response) = response
        && response.description.is_empty()
    {
        response.description = "Done.".to_string();
    }
}

/// Everything, ready to serve.
pub fn router(app: App) -> Router {
    let (router, _) = routes().split_for_parts();
    router
        .fallback(async || Fault::from(Error::not_found("there is no such address")))
        .method_not_allowed_fallback(async || {
            let error = Error::invalid("this address does not take that method");
            Fault::with_status(error, StatusCode::METHOD_NOT_ALLOWED)
        })
        .layer(from_fn(shape))
        .with_state(app)
}

/// Gives every answer its version, and a handler that panicked a proper one.
async fn shape(request: Request, next: Next) -> Response {
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answer.unwrap_or_else(|_| {
        Fault::from(Error::internal("the call ended in a bug").hint("`daemon.log` says where"))
            .into_response()
    });
    let headers = response.headers_mut();
    headers.insert(
        HeaderName::from_static(API_HEADER),
        HeaderValue::from_static(API_VERSION),
    );
    headers.insert(
        HeaderName::from_static(VERSION_HEADER),
        HeaderValue::from_static(env!("CARGO_PKG_VERSION")),
    );
    response
}
