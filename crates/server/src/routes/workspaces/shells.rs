//! Persistent terminals of a workspace.

use super::Answer;
use crate::app::App;
use crate::extract::{Id, Json as Body, Params, ShellId, Upgrade};
use crate::fault::Failure;
use crate::stream::{Inbound, respond};
use crate::websocket;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use motu_api::wire::{ShellOutputQuery, ShellSignalBody, TtySizeQuery};
use motu_core::exec::TtySize;
use motu_core::workspace::{OpenShell, Shell, ShellOutput, WriteShell};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(open, list))
        .routes(routes!(close))
        .routes(routes!(read))
        .routes(routes!(write))
        .routes(routes!(signal))
        .routes(routes!(resize))
        .routes(routes!(attach))
        .routes(routes!(attach_ws))
}

/// Open a shell on a terminal of its own
#[utoipa::path(post, path = "/v1/workspaces/{id}/shells", tag = "shells",
    operation_id = "open_shell", params(("id" = String, Path)), request_body = OpenShell,
    responses((status = 201, body = Shell), Failure))]
async fn open(
    State(app): State<App>,
    Id(id): Id,
    Body(request): Body<OpenShell>,
) -> Answer<(StatusCode, Json<Shell>)> {
    let shell = app.service.open_shell(&id, request).await?;
    Ok((StatusCode::CREATED, Json(shell)))
}

/// The shells of a workspace
#[utoipa::path(get, path = "/v1/workspaces/{id}/shells", tag = "shells",
    operation_id = "list_shells", params(("id" = String, Path)),
    responses((status = 200, body = Vec<Shell>), Failure))]
async fn list(State(app): State<App>, Id(id): Id) -> Answer<Json<Vec<Shell>>> {
    Ok(Json(app.service.list_shells(&id).await?))
}

/// Read what a shell has said, from a cursor on
#[utoipa::path(get, path = "/v1/workspaces/{id}/shells/{shell}/output", tag = "shells",
    operation_id = "read_shell",
    params(("id" = String, Path), ("shell" = String, Path), ShellOutputQuery),
    responses((status = 200, body = ShellOutput), Failure))]
async fn read(
    State(app): State<App>,
    Id(id): Id,
    ShellId(shell): ShellId,
    Params(query): Params<ShellOutputQuery>,
) -> Answer<Json<ShellOutput>> {
    let output = app.service.read_shell(&id, &shell, query.into()).await?;
    Ok(Json(output))
}

/// Type into a shell
#[utoipa::path(post, path = "/v1/workspaces/{id}/shells/{shell}/input", tag = "shells",
    operation_id = "write_shell", params(("id" = String, Path), ("shell" = String, Path)),
    request_body = WriteShell,
    responses((status = 200, body = Shell), Failure))]
async fn write(
    State(app): State<App>,
    Id(id): Id,
    ShellId(shell): ShellId,
    Body(request): Body<WriteShell>,
) -> Answer<Json<Shell>> {
    Ok(Json(app.service.write_shell(&id, &shell, request).await?))
}

/// Send a signal to what runs in the foreground of a shell
#[utoipa::path(post, path = "/v1/workspaces/{id}/shells/{shell}/signal", tag = "shells",
    operation_id = "signal_shell", params(("id" = String, Path), ("shell" = String, Path)),
    request_body = ShellSignalBody,
    responses((status = 200, body = Shell), Failure))]
async fn signal(
    State(app): State<App>,
    Id(id): Id,
    ShellId(shell): ShellId,
    Body(body): Body<ShellSignalBody>,
) -> Answer<Json<Shell>> {
    let shell = app.service.signal_shell(&id, &shell, &body.signal).await?;
    Ok(Json(shell))
}

/// Give a shell's terminal another size
#[utoipa::path(post, path = "/v1/workspaces/{id}/shells/{shell}/resize", tag = "shells",
    operation_id = "resize_shell", params(("id" = String, Path), ("shell" = String, Path)),
    request_body = TtySize,
    responses((status = 200, body = Shell), Failure))]
async fn resize(
    State(app): State<App>,
    Id(id): Id,
    ShellId(shell): ShellId,
    Body(size): Body<TtySize>,
) -> Answer<Json<Shell>> {
    Ok(Json(app.service.resize_shell(&id, &shell, size).await?))
}

/// End a shell and what runs in it
#[utoipa::path(delete, path = "/v1/workspaces/{id}/shells/{shell}", tag = "shells",
    operation_id = "close_shell", params(("id" = String, Path), ("shell" = String, Path)),
    responses((status = 200, body = Shell), Failure))]
async fn close(State(app): State<App>, Id(id): Id, ShellId(shell): ShellId) -> Answer<Json<Shell>> {
    Ok(Json(app.service.close_shell(&id, &shell).await?))
}

/// A shell, live
///
/// Both bodies are live streams of frames; the screen as it is now comes first. Leaving
/// does not end the shell.
#[utoipa::path(post, path = "/v1/workspaces/{id}/shells/{shell}/stream", tag = "shells",
    operation_id = "attach_shell",
    params(("id" = String, Path), ("shell" = String, Path), TtySizeQuery),
    responses((status = 200, body = String, content_type = "application/vnd.motu.stream"), Failure))]
async fn attach(
    State(app): State<App>,
    Id(id): Id,
    ShellId(shell): ShellId,
    Params(query): Params<TtySizeQuery>,
    request: Request,
) -> Answer<Response> {
    let session = app.service.attach_shell(&id, &shell, query.into()).await?;
    Ok(respond(&app, session, Inbound::new(request.into_body())))
}

/// The same over a WebSocket
#[utoipa::path(get, path = "/v1/workspaces/{id}/shells/{shell}/stream/ws", tag = "shells",
    operation_id = "attach_shell_ws",
    params(("id" = String, Path), ("shell" = String, Path), TtySizeQuery),
    responses((status = 101, description = "A stream of frames."), Failure))]
async fn attach_ws(
    State(app): State<App>,
    Id(id): Id,
    ShellId(shell): ShellId,
    Params(query): Params<TtySizeQuery>,
    Upgrade(upgrade): Upgrade,
) -> Answer<Response> {
    let session = app.service.attach_shell(&id, &shell, query.into()).await?;
    Ok(websocket::serve_attached(&app, upgrade, session))
}
