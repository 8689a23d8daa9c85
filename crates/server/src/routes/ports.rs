//! Ports, sockets and measurements of a sandbox.

use super::Answer;
use crate::app::App;
use crate::extract::{Id, Params, PortNumber};
use crate::fault::Failure;
use axum::Json;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use motu_api::wire::{DIAL_PROTOCOL, PathQuery, guest_path};
use motu_core::report::{Metrics, Port};
use motu_core::runtime::Connection;
use motu_core::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(dial))
        .routes(routes!(dial_unix))
        .routes(routes!(metrics))
}

/// TCP ports something listens on
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports", tag = "ports", operation_id = "list_ports",
    params(("id" = String, Path)),
    responses((status = 200, body = Vec<Port>), Failure))]
async fn list(State(app): State<App>, Id(id): Id) -> Answer<Json<Vec<Port>>> {
    Ok(Json(app.service.list_ports(&id).await?))
}

/// Connect to a TCP port
///
/// With `Upgrade: motu-dial` the connection becomes plain bytes to and from the port.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/ports/{port}/dial", tag = "ports",
    params(("id" = String, Path), ("port" = u16, Path)),
    responses((status = 101, description = "Plain bytes."), Failure))]
async fn dial(
    State(app): State<App>,
    Id(id): Id,
    PortNumber(port): PortNumber,
    mut request: Request,
) -> Answer<Response> {
    let upgrade = upgrade(&mut request)?;
    let connection = app.service.dial(&id, port).await?;
    Ok(splice(&app, upgrade, connection))
}

/// Connect to a Unix socket
///
/// With `Upgrade: motu-dial` the connection becomes plain bytes to and from the socket.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/sockets/dial", tag = "ports",
    params(("id" = String, Path), PathQuery),
    responses((status = 101, description = "Plain bytes."), Failure))]
async fn dial_unix(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<PathQuery>,
    mut request: Request,
) -> Answer<Response> {
    let upgrade = upgrade(&mut request)?;
    let path = guest_path(query.path.as_deref(), query.path_base64.as_deref())?;
    let connection = app.service.dial_unix(&id, path).await?;
    Ok(splice(&app, upgrade, connection))
}

/// The right to take the connection over, if the caller offers it.
fn upgrade(request: &mut Request) -> Result<OnUpgrade> {
    let offered = |headers: &HeaderMap| {
        let protocol = headers.get(header::UPGRADE);
        protocol.is_some_and(|value| value == DIAL_PROTOCOL)
    };
    let wanted = offered(request.headers());
    let upgrade = request.extensions_mut().remove::<OnUpgrade>();
    upgrade.filter(|_| wanted).ok_or_else(|| {
        Error::invalid("this address takes only upgraded connections").hint(format!(
            "send `Connection: upgrade` and `Upgrade: {DIAL_PROTOCOL}`"
        ))
    })
}

/// Joins the caller's connection with the one inside, until both have ended.
fn splice(app: &App, upgrade: OnUpgrade, inside: Connection) -> Response {
    let guard = app.activity.enter();
    tokio::spawn(async move {
        let _guard = guard;
        let Ok(upgraded) = upgrade.await else { return };
        let mut outside = TokioIo::new(upgraded);
        let mut inside = tokio::io::join(inside.read, inside.write);
        let _ = tokio::io::copy_bidirectional(&mut outside, &mut inside).await;
    });
    let headers = [
        (header::CONNECTION, HeaderValue::from_static("upgrade")),
        (header::UPGRADE, HeaderValue::from_static(DIAL_PROTOCOL)),
    ];
    (StatusCode::SWITCHING_PROTOCOLS, headers, Body::empty()).into_response()
}

/// What a sandbox uses right now
#[utoipa::path(get, path = "/v1/sandboxes/{id}/metrics", tag = "ports",
    params(("id" = String, Path)),
    responses((status = 200, body = Metrics), Failure))]
async fn metrics(State(app): State<App>, Id(id): Id) -> Answer<Json<Metrics>> {
    Ok(Json(app.service.metrics(&id).await?))
}
