//! Commands and processes inside a sandbox.

use super::Answer;
use crate::app::App;
use crate::extract::{Id, Json as Body, Params, Selected, Upgrade, read_json};
use crate::fault::Failure;
use crate::stream::{Inbound, respond, wants_frames};
use crate::websocket;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use motu_api::signal;
use motu_api::wire::{AttachQuery, ExecBody, SignalBody, SignalQuery};
use motu_core::collect::Collector;
use motu_core::exec::{Background, ExecRequest, ExecResult, Process, RunRequest};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(run))
        .routes(routes!(run_ws))
        .routes(routes!(exec))
        .routes(routes!(exec_ws))
        .routes(routes!(list))
        .routes(routes!(kill))
        .routes(routes!(send_signal))
        .routes(routes!(attach, follow))
        .routes(routes!(attach_ws))
}

/// Make a sandbox, run one command, throw the sandbox away
///
/// With `Accept: application/vnd.motu.stream` both bodies are live streams of frames;
/// otherwise the answer comes when the command has ended.
#[utoipa::path(post, path = "/v1/run", tag = "commands", request_body = RunRequest,
    responses((status = 200, body = ExecResult), Failure))]
async fn run(State(app): State<App>, request: Request) -> Answer<Response> {
    if wants_frames(request.headers()) {
        let mut inbound = Inbound::new(request.into_body());
        let session = app.service.run(inbound.request().await?).await?;
        return Ok(respond(&app, session, inbound));
    }
    let request: RunRequest = read_json(request.into_body()).await?;
    let mut collector = Collector::new(request.exec.max_output_bytes)?;
    let session = app.service.run(request).await?;
    collector.add_all(session).await?;
    Ok(Json(collector.finish()?).into_response())
}

/// The same over a WebSocket
///
/// One frame per binary message; the first message is the request.
#[utoipa::path(get, path = "/v1/run/ws", tag = "commands",
    responses((status = 101, description = "A stream of frames."), Failure))]
async fn run_ws(State(app): State<App>, Upgrade(upgrade): Upgrade) -> Response {
    let service = app.service.clone();
    websocket::serve(&app, upgrade, |request: RunRequest| async move {
        service.run(request).await
    })
}

/// Run one command in a sandbox
///
/// With `Accept: application/vnd.motu.stream` both bodies are live streams of frames;
/// with `background` the answer comes as soon as the process runs; otherwise when it has ended.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/exec", tag = "commands",
    params(("id" = String, Path)), request_body = ExecBody,
    responses((status = 200, body = ExecResult), (status = 202, body = Background), Failure))]
async fn exec(State(app): State<App>, Id(id): Id, request: Request) -> Answer<Response> {
    if wants_frames(request.headers()) {
        let mut inbound = Inbound::new(request.into_body());
        let asked: ExecRequest = inbound.request().await?;
        let session = app.service.exec_stream(&id, asked).await?;
        return Ok(respond(&app, session, inbound));
    }
    let body: ExecBody = read_json(request.into_body()).await?;
    if body.background {
        let started = app.service.exec_background(&id, body.exec).await?;
        return Ok((StatusCode::ACCEPTED, Json(started)).into_response());
    }
    Ok(Json(app.service.exec(&id, body.exec).await?).into_response())
}

/// The same over a WebSocket
///
/// One frame per binary message; the first message is the request.
#[utoipa::path(get, path = "/v1/sandboxes/{id}/exec/ws", tag = "commands",
    params(("id" = String, Path)),
    responses((status = 101, description = "A stream of frames."), Failure))]
async fn exec_ws(State(app): State<App>, Id(id): Id, Upgrade(upgrade): Upgrade) -> Response {
    let service = app.service.clone();
    websocket::serve(&app, upgrade, |request: ExecRequest| async move {
        service.exec_stream(&id, request).await
    })
}

/// Processes that were started here
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes", tag = "commands",
    operation_id = "list_processes", params(("id" = String, Path)),
    responses((status = 200, body = Vec<Process>), Failure))]
async fn list(State(app): State<App>, Id(id): Id) -> Answer<Json<Vec<Process>>> {
    Ok(Json(app.service.list_processes(&id).await?))
}

/// End a process
#[utoipa::path(delete, path = "/v1/sandboxes/{id}/processes/{selector}", tag = "commands",
    operation_id = "kill_process",
    params(("id" = String, Path), ("selector" = String, Path, description = "A pid or a tag"), SignalQuery),
    responses((status = 204), Failure))]
async fn kill(
    State(app): State<App>,
    Id(id): Id,
    Selected(process): Selected,
    Params(query): Params<SignalQuery>,
) -> Answer<StatusCode> {
    let number = signal::parse(query.signal.as_deref().unwrap_or("KILL"))?;
    let tree = query.tree.unwrap_or_default();
    app.service
        .signal_process(&id, process, number, tree)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Send a signal to a process
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{selector}/signal", tag = "commands",
    operation_id = "signal_process", request_body = SignalBody,
    params(("id" = String, Path), ("selector" = String, Path, description = "A pid or a tag")),
    responses((status = 204), Failure))]
async fn send_signal(
    State(app): State<App>,
    Id(id): Id,
    Selected(process): Selected,
    Body(body): Body<SignalBody>,
) -> Answer<StatusCode> {
    let number = signal::parse(&body.signal)?;
    app.service
        .signal_process(&id, process, number, body.tree)
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Follow a process, with input
///
/// Both bodies are live streams of frames; the request begins with input, not with a request.
#[utoipa::path(post, path = "/v1/sandboxes/{id}/processes/{selector}/stream", tag = "commands",
    operation_id = "attach",
    params(("id" = String, Path), ("selector" = String, Path, description = "A pid or a tag"), AttachQuery),
    responses((status = 200, body = String, content_type = "application/vnd.motu.stream"), Failure))]
async fn attach(
    State(app): State<App>,
    Id(id): Id,
    Selected(process): Selected,
    Params(query): Params<AttachQuery>,
    request: Request,
) -> Answer<Response> {
    let session = app.service.attach(&id, process, query.begin()?).await?;
    Ok(respond(&app, session, Inbound::new(request.into_body())))
}

/// Follow a process
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{selector}/stream", tag = "commands",
    operation_id = "follow",
    params(("id" = String, Path), ("selector" = String, Path, description = "A pid or a tag"), AttachQuery),
    responses((status = 200, body = String, content_type = "application/vnd.motu.stream"), Failure))]
async fn follow(
    State(app): State<App>,
    Id(id): Id,
    Selected(process): Selected,
    Params(query): Params<AttachQuery>,
) -> Answer<Response> {
    let session = app.service.attach(&id, process, query.begin()?).await?;
    Ok(respond(&app, session, Inbound::none()))
}

/// Follow a process over a WebSocket
#[utoipa::path(get, path = "/v1/sandboxes/{id}/processes/{selector}/stream/ws", tag = "commands",
    params(("id" = String, Path), ("selector" = String, Path, description = "A pid or a tag"), AttachQuery),
    responses((status = 101, description = "A stream of frames."), Failure))]
async fn attach_ws(
    State(app): State<App>,
    Id(id): Id,
    Selected(process): Selected,
    Params(query): Params<AttachQuery>,
    Upgrade(upgrade): Upgrade,
) -> Answer<Response> {
    let session = app.service.attach(&id, process, query.begin()?).await?;
    Ok(websocket::serve_attached(&app, upgrade, session))
}
