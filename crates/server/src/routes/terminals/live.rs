//! A session, live.

use super::Answer;
use crate::app::App;
use crate::extract::{Params, Session, Upgrade};
use crate::fault::Failure;
use crate::stream::{Inbound, respond};
use crate::websocket;
use axum::extract::{Request, State};
use axum::response::Response;
use motu_api::wire::SeatQuery;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(attach))
        .routes(routes!(attach_ws))
}

/// A session, live
///
/// Both bodies are live streams of frames; the screen as it is now comes first. Leaving
/// does not end the session. Without a size the caller watches, and may not type.
#[utoipa::path(post, path = "/v1/terminals/{terminal}/stream", tag = "terminals",
    operation_id = "attach_terminal", params(("terminal" = String, Path), SeatQuery),
    responses((status = 200, body = String, content_type = "application/vnd.motu.stream"), Failure))]
async fn attach(
    State(app): State<App>,
    Session(id): Session,
    Params(query): Params<SeatQuery>,
    request: Request,
) -> Answer<Response> {
    let session = app.service.attach_terminal(&id, query.seat()?).await?;
    Ok(respond(&app, session, Inbound::new(request.into_body())))
}

/// The same over a WebSocket
#[utoipa::path(get, path = "/v1/terminals/{terminal}/stream/ws", tag = "terminals",
    operation_id = "attach_terminal_ws", params(("terminal" = String, Path), SeatQuery),
    responses((status = 101, description = "A stream of frames."), Failure))]
async fn attach_ws(
    State(app): State<App>,
    Session(id): Session,
    Params(query): Params<SeatQuery>,
    Upgrade(upgrade): Upgrade,
) -> Answer<Response> {
    let session = app.service.attach_terminal(&id, query.seat()?).await?;
    Ok(websocket::serve_attached(&app, upgrade, session))
}
