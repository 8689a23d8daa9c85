//! Isolated machines.

use super::Answer;
use crate::app::App;
use crate::extract::{Id, Json as Body};
use crate::fault::Failure;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use motu_api::wire::{ForkBody, KeepaliveBody, Reaped};
use motu_core::sandbox::{CreateSandbox, Sandbox};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(get, destroy))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(stop))
        .routes(routes!(start))
        .routes(routes!(fork))
        .routes(routes!(keepalive))
        .routes(routes!(reap))
        .routes(routes!(plan))
}

/// Make a sandbox
#[utoipa::path(post, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "create_sandbox",
    request_body = CreateSandbox,
    responses((status = 201, body = Sandbox), Failure))]
async fn create(
    State(app): State<App>,
    Body(request): Body<CreateSandbox>,
) -> Answer<(StatusCode, Json<Sandbox>)> {
    let sandbox = app.service.create_sandbox(request).await?;
    Ok((StatusCode::CREATED, Json(sandbox)))
}

/// Every sandbox
#[utoipa::path(get, path = "/v1/sandboxes", tag = "sandboxes", operation_id = "list_sandboxes",
    responses((status = 200, body = Vec<Sandbox>), Failure))]
async fn list(State(app): State<App>) -> Answer<Json<Vec<Sandbox>>> {
    Ok(Json(app.service.list_sandboxes().await?))
}

/// One sandbox
#[utoipa::path(get, path = "/v1/sandboxes/{id}", tag = "sandboxes", operation_id = "get_sandbox",
    params(("id" = String, Path)),
    responses((status = 200, body = Sandbox), Failure))]
async fn get(State(app): State<App>, Id(id): Id) -> Answer<Json<Sandbox>> {
    Ok(Json(app.service.get_sandbox(&id).await?))
}

/// Destroy a sandbox and everything in it
#[utoipa::path(delete, path = "/v1/sandboxes/{id}", tag = "sandboxes",
    operation_id = "destroy_sandbox", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox), Failure))]
async fn destroy(State(app): State<App>, Id(id): Id) -> Answer<Json<Sandbox>> {
    Ok(Json(app.service.destroy_sandbox(&id).await?))
}

/// Stop the clock of a sandbox
#[utoipa::path(post, path = "/v1/sandboxes/{id}/pause", tag = "sandboxes",
    operation_id = "pause_sandbox", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox), Failure))]
async fn pause(State(app): State<App>, Id(id): Id) -> Answer<Json<Sandbox>> {
    Ok(Json(app.service.pause_sandbox(&id).await?))
}

/// Let a paused sandbox go on
#[utoipa::path(post, path = "/v1/sandboxes/{id}/resume", tag = "sandboxes",
    operation_id = "resume_sandbox", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox), Failure))]
async fn resume(State(app): State<App>, Id(id): Id) -> Answer<Json<Sandbox>> {
    Ok(Json(app.service.resume_sandbox(&id).await?))
}

/// End the machine of a kept sandbox; its disks stay
#[utoipa::path(post, path = "/v1/sandboxes/{id}/stop", tag = "sandboxes",
    operation_id = "stop_sandbox", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox), Failure))]
async fn stop(State(app): State<App>, Id(id): Id) -> Answer<Json<Sandbox>> {
    Ok(Json(app.service.stop_sandbox(&id).await?))
}

/// Make a machine for a stopped sandbox, with the disks it had
#[utoipa::path(post, path = "/v1/sandboxes/{id}/start", tag = "sandboxes",
    operation_id = "start_sandbox", params(("id" = String, Path)),
    responses((status = 200, body = Sandbox), Failure))]
async fn start(State(app): State<App>, Id(id): Id) -> Answer<Json<Sandbox>> {
    Ok(Json(app.service.start_sandbox(&id).await?))
}

/// Live copies of a running or paused sandbox
#[utoipa::path(post, path = "/v1/sandboxes/{id}/fork", tag = "sandboxes",
    operation_id = "fork_sandbox", params(("id" = String, Path)), request_body = ForkBody,
    responses((status = 201, body = Vec<Sandbox>), Failure))]
async fn fork(
    State(app): State<App>,
    Id(id): Id,
    Body(body): Body<ForkBody>,
) -> Answer<(StatusCode, Json<Vec<Sandbox>>)> {
    let copies = app.service.fork_sandbox(&id, body.count).await?;
    Ok((StatusCode::CREATED, Json(copies)))
}

/// Start the time to live again
#[utoipa::path(post, path = "/v1/sandboxes/{id}/keepalive", tag = "sandboxes",
    operation_id = "keepalive", params(("id" = String, Path)), request_body = KeepaliveBody,
    responses((status = 200, body = Sandbox), Failure))]
async fn keepalive(
    State(app): State<App>,
    Id(id): Id,
    Body(body): Body<KeepaliveBody>,
) -> Answer<Json<Sandbox>> {
    Ok(Json(app.service.keepalive(&id, body.ttl_seconds).await?))
}

/// Destroy every sandbox that has outlived its time
#[utoipa::path(post, path = "/v1/sandboxes/reap", tag = "sandboxes", operation_id = "reap_expired",
    responses((status = 200, body = Reaped), Failure))]
async fn reap(State(app): State<App>) -> Answer<Json<Reaped>> {
    let sandbox_ids = app.service.reap_expired().await?;
    Ok(Json(Reaped { sandbox_ids }))
}

/// The steps that making this sandbox would take, for people
#[utoipa::path(post, path = "/v1/plan", tag = "sandboxes", request_body = CreateSandbox,
    responses((status = 200, body = String, content_type = "text/plain"), Failure))]
async fn plan(State(app): State<App>, Body(request): Body<CreateSandbox>) -> Answer<String> {
    Ok(app.service.plan(request).await?)
}
