//! Sandboxes that are kept: their life and their commands.

mod commands;
mod content;
mod services;
mod shells;
mod snapshots;

use super::Answer;
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Id, Json as Body, Long};
use crate::fault::Failure;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use motu_api::wire::ResetBody;
use motu_core::workspace::{
    CreateWorkspace, ForkWorkspace, UpdateWorkspace, Workspace, WorkspaceSummary,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(status, update, delete))
        .routes(routes!(stop))
        .routes(routes!(start))
        .routes(routes!(reset))
        .routes(routes!(fork))
        .merge(commands::routes())
        .merge(content::routes())
        .merge(snapshots::routes())
        .merge(services::routes())
        .merge(shells::routes())
}

/// Make a workspace, and start it
///
/// `seed_path` and the `path` of a secret are paths of the host: only callers of the
/// local socket may give them.
#[utoipa::path(post, path = "/v1/workspaces", tag = "workspaces",
    operation_id = "create_workspace", request_body = CreateWorkspace,
    responses((status = 201, body = Workspace), Failure))]
async fn create(
    State(app): State<App>,
    caller: Caller,
    Long(request): Long<CreateWorkspace>,
) -> Answer<(StatusCode, Json<Workspace>)> {
    caller.may_create(&request)?;
    let workspace = app.service.create_workspace(request).await?;
    Ok((StatusCode::CREATED, Json(workspace)))
}

/// Every workspace, the most recently active first
#[utoipa::path(get, path = "/v1/workspaces", tag = "workspaces",
    operation_id = "list_workspaces",
    responses((status = 200, body = Vec<WorkspaceSummary>), Failure))]
async fn list(State(app): State<App>) -> Answer<Json<Vec<WorkspaceSummary>>> {
    Ok(Json(app.service.list_workspaces().await?))
}

/// One workspace
#[utoipa::path(get, path = "/v1/workspaces/{id}", tag = "workspaces",
    operation_id = "status_workspace", params(("id" = String, Path)),
    responses((status = 200, body = Workspace), Failure))]
async fn status(State(app): State<App>, Id(id): Id) -> Answer<Json<Workspace>> {
    Ok(Json(app.service.status_workspace(&id).await?))
}

/// Change the name and the labels of a workspace, and nothing else
#[utoipa::path(patch, path = "/v1/workspaces/{id}", tag = "workspaces",
    operation_id = "update_workspace", params(("id" = String, Path)),
    request_body = UpdateWorkspace,
    responses((status = 200, body = Workspace), Failure))]
async fn update(
    State(app): State<App>,
    Id(id): Id,
    Body(update): Body<UpdateWorkspace>,
) -> Answer<Json<Workspace>> {
    Ok(Json(app.service.update_workspace(&id, update).await?))
}

/// Delete a workspace, with its snapshots, secrets and history
#[utoipa::path(delete, path = "/v1/workspaces/{id}", tag = "workspaces",
    operation_id = "delete_workspace", params(("id" = String, Path)),
    responses((status = 200, body = Workspace), Failure))]
async fn delete(State(app): State<App>, Id(id): Id) -> Answer<Json<Workspace>> {
    Ok(Json(app.service.delete_workspace(&id).await?))
}

/// End the machine of a workspace; everything it keeps stays
#[utoipa::path(post, path = "/v1/workspaces/{id}/stop", tag = "workspaces",
    operation_id = "stop_workspace", params(("id" = String, Path)),
    responses((status = 200, body = Workspace), Failure))]
async fn stop(State(app): State<App>, Id(id): Id) -> Answer<Json<Workspace>> {
    Ok(Json(app.service.stop_workspace(&id).await?))
}

/// Start a stopped workspace with the disks it had
#[utoipa::path(post, path = "/v1/workspaces/{id}/start", tag = "workspaces",
    operation_id = "start_workspace", params(("id" = String, Path)),
    responses((status = 200, body = Workspace), Failure))]
async fn start(State(app): State<App>, Id(id): Id) -> Answer<Json<Workspace>> {
    Ok(Json(app.service.start_workspace(&id).await?))
}

/// Make the whole machine anew, with `/workspace` as a snapshot has it
#[utoipa::path(post, path = "/v1/workspaces/{id}/reset", tag = "workspaces",
    operation_id = "reset_workspace", params(("id" = String, Path)), request_body = ResetBody,
    responses((status = 200, body = Workspace), Failure))]
async fn reset(
    State(app): State<App>,
    Id(id): Id,
    Body(body): Body<ResetBody>,
) -> Answer<Json<Workspace>> {
    Ok(Json(
        app.service.reset_workspace(&id, &body.snapshot).await?,
    ))
}

/// Copies of a workspace, all or none
#[utoipa::path(post, path = "/v1/workspaces/{id}/fork", tag = "workspaces",
    operation_id = "fork_workspace", params(("id" = String, Path)), request_body = ForkWorkspace,
    responses((status = 201, body = Vec<Workspace>), Failure))]
async fn fork(
    State(app): State<App>,
    Id(id): Id,
    Body(fork): Body<ForkWorkspace>,
) -> Answer<(StatusCode, Json<Vec<Workspace>>)> {
    let copies = app.service.fork_workspace(&id, fork).await?;
    Ok((StatusCode::CREATED, Json(copies)))
}
