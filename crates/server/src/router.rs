//! The routes and the shape of every answer.

use crate::activity::Activity;
use crate::app::App;
use crate::capsules;
use crate::corridor;
use crate::extract::Introduced;
use crate::fault::Fault;
use crate::preview;
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::FutureExt;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use motu_api::wire::{API_HEADER, API_VERSION, AUDIT_HEADER, REQUEST_HEADER, VERSION_HEADER};
use motu_core::audit::AuditId;
use motu_core::hint::host;
use motu_core::{Error, hint};
use motu_gate::{Caller, Figures, Gate, Ticket};
use std::panic::AssertUnwindSafe;

/// Everything, ready to serve.
pub fn router(app: App) -> Router {
    corridor::routes()
        .merge(preview::routes())
        .merge(capsules::routes())
        .route("/v1/openapi.json", get(openapi))
        .route("/healthz", get(healthy))
        .route("/readyz", get(ready))
        .route("/metrics", get(measurements))
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
    let with_code = capsules::answers_for(request.uri().path());
    let answer = AssertUnwindSafe(next.run(request)).catch_unwind().await;
    let mut response = answer.unwrap_or_else(|_| {
        Fault::from(Error::internal("the call ended in a bug").hint("`daemon.log` says where"))
            .into_response()
    });
    if with_code {
        response = capsules::coded(response);
    }
    stamp(response.headers_mut(), ticket.read());
    response
}

/// What every answer says: versions, which request it is about, and what the call is named in the
/// audit log where it is recorded.
pub fn stamp(headers: &mut HeaderMap, id: Option<AuditId>) {
    headers.insert(
        HeaderName::from_static(API_HEADER),
        HeaderValue::from_static(API_VERSION),
    );
    headers.insert(
        HeaderName::from_static(VERSION_HEADER),
        HeaderValue::from_static(env!("CARGO_PKG_VERSION")),
    );
    let recorded = id.is_some();
    let id = id.unwrap_or_else(AuditId::generate);
    if let Ok(id) = HeaderValue::try_from(id.as_str()) {
        headers.insert(HeaderName::from_static(REQUEST_HEADER), id.clone());
        if recorded {
            headers.insert(HeaderName::from_static(AUDIT_HEADER), id);
        }
    }
}

/// The daemon answers; that is all it says.
async fn healthy() -> &'static str {
    "ok\n"
}

/// Whether calls can be served, for who sends them here or elsewhere. Why not is in the log: those
/// who ask need no key.
async fn ready(State(app): State<App>) -> Result<&'static str, Fault> {
    match app.gate.ready().await {
        Ok(()) => Ok("ready\n"),
        Err(error) => {
            tracing::warn!(%error, "not ready");
            Err(Error::unavailable("calls cannot be served now")
                .hint(hint!["on the host: ", host("motu doctor")])
                .into())
        }
    }
}

/// The text format of Prometheus.
const MEASUREMENTS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

async fn measurements(
    State(app): State<App>,
    Introduced(caller): Introduced,
) -> Result<Response, Fault> {
    let text = measured(&app.gate, &app.activity, &caller)?;
    Ok(([(http::header::CONTENT_TYPE, MEASUREMENTS)], text).into_response())
}

/// The measurements of this daemon, for a caller who may have them.
pub fn measured(gate: &Gate, activity: &Activity, caller: &Caller) -> motu_core::Result<String> {
    let figures = Figures {
        connections: activity.open() as u64,
        memory_bytes: resident_bytes().unwrap_or_default(),
        ..Figures::default()
    };
    gate.measurements(caller, figures)
}

/// Memory of this process that is in RAM.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split(' ').nth(1)?.parse().ok()?;
    Some(pages * rustix::param::page_size() as u64)
}

/// The document of everything served; a test keeps it true.
async fn openapi() -> Response {
    let kind = [(http::header::CONTENT_TYPE, "application/json")];
    (kind, include_str!("../../../docs/openapi.json")).into_response()
}
