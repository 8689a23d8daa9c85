//! The routes and the shape of every answer.

use crate::app::App;
use crate::corridor;
use crate::fault::Fault;
use crate::preview;
use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::FutureExt;
use http::{HeaderName, HeaderValue, StatusCode};
use motu_api::wire::{API_HEADER, API_VERSION, AUDIT_HEADER, VERSION_HEADER};
use motu_core::Error;
use motu_gate::Ticket;
use std::panic::AssertUnwindSafe;

/// Everything, ready to serve.
pub fn router(app: App) -> Router {
    corridor::routes()
        .merge(preview::routes())
        .route("/v1/openapi.json", get(openapi))
        .fallback(async || Fault::from(Error::not_found("there is no such address")))
        .method_not_allowed_fallback(async || {
            let error = Error::invalid("this address does not take that method");
            Fault::with_status(error, StatusCode::METHOD_NOT_ALLOWED)
        })
        .layer(from_fn(shape))
        .with_state(app)
}

/// Gives every answer its version and the name of its call in the audit log, and a handler that
/// panicked a proper one.
async fn shape(mut request: Request, next: Next) -> Response {
    let ticket = Ticket::default();
    request.extensions_mut().insert(ticket.clone());
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
    let id = ticket.read();
    if let Some(id) = id.and_then(|id| HeaderValue::try_from(id.as_str()).ok()) {
        headers.insert(HeaderName::from_static(AUDIT_HEADER), id);
    }
    response
}

/// The document of everything served; a test keeps it true.
async fn openapi() -> Response {
    let kind = [(http::header::CONTENT_TYPE, "application/json")];
    (kind, include_str!("../../../docs/openapi.json")).into_response()
}
