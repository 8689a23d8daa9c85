//! Commands in a workspace, and their history.

use super::Answer;
use crate::app::App;
use crate::extract::{Id, Upgrade, read_json};
use crate::fault::Failure;
use crate::stream::{Inbound, respond, wants_frames};
use crate::websocket;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use motu_core::exec::ExecResult;
use motu_core::workspace::{CommandLog, WorkspaceExec};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(exec))
        .routes(routes!(exec_ws))
        .routes(routes!(logs))
}

/// Run one command in a workspace, in `/workspace`
///
/// With `Accept: application/vnd.motu.stream` both bodies are live streams of frames, and
/// the command ends when the stream is closed; otherwise the answer comes when it has ended.
#[utoipa::path(post, path = "/v1/workspaces/{id}/exec", tag = "workspaces",
    operation_id = "exec_workspace", params(("id" = String, Path)), request_body = WorkspaceExec,
    responses((status = 200, body = ExecResult), Failure))]
async fn exec(State(app): State<App>, Id(id): Id, request: Request) -> Answer<Response> {
    if wants_frames(request.headers()) {
        let mut inbound = Inbound::new(request.into_body());
        let asked: WorkspaceExec = inbound.request().await?;
        let session = app.service.exec_workspace_stream(&id, asked).await?;
        return Ok(respond(&app, session, inbound));
    }
    let asked: WorkspaceExec = read_json(request.into_body()).await?;
    Ok(Json(app.service.exec_workspace(&id, asked).await?).into_response())
}

/// The same over a WebSocket
///
/// One frame per binary message; the first message is the request.
#[utoipa::path(get, path = "/v1/workspaces/{id}/exec/ws", tag = "workspaces",
    operation_id = "exec_workspace_ws", params(("id" = String, Path)),
    responses((status = 101, description = "A stream of frames."), Failure))]
async fn exec_ws(State(app): State<App>, Id(id): Id, Upgrade(upgrade): Upgrade) -> Response {
    let service = app.service.clone();
    websocket::serve(&app, upgrade, |request: WorkspaceExec| async move {
        service.exec_workspace_stream(&id, request).await
    })
}

/// The commands a workspace has run, oldest first
#[utoipa::path(get, path = "/v1/workspaces/{id}/logs", tag = "workspaces",
    operation_id = "logs_workspace", params(("id" = String, Path)),
    responses((status = 200, body = CommandLog), Failure))]
async fn logs(State(app): State<App>, Id(id): Id) -> Answer<Json<CommandLog>> {
    Ok(Json(app.service.logs_workspace(&id).await?))
}
