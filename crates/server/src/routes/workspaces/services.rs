//! Long-running processes of a workspace.

use super::Answer;
use crate::app::App;
use crate::extract::{Id, Json as Body, Named, Params, Upgrade};
use crate::fault::Failure;
use crate::stream::{Inbound, respond};
use crate::websocket;
use axum::Json;
use axum::extract::{Request, State};
use axum::response::Response;
use http::StatusCode;
use motu_api::wire::ServiceLogsQuery;
use motu_core::workspace::{ServiceLogs, ServiceStatus, StartService};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(start, list))
        .routes(routes!(status))
        .routes(routes!(logs))
        .routes(routes!(stop))
        .routes(routes!(follow))
        .routes(routes!(follow_ws))
}

/// Start a service, and wait until it is ready
#[utoipa::path(post, path = "/v1/workspaces/{id}/services", tag = "services",
    operation_id = "start_service", params(("id" = String, Path)), request_body = StartService,
    responses((status = 201, body = ServiceStatus), Failure))]
async fn start(
    State(app): State<App>,
    Id(id): Id,
    Body(request): Body<StartService>,
) -> Answer<(StatusCode, Json<ServiceStatus>)> {
    let status = app.service.start_service(&id, request).await?;
    Ok((StatusCode::CREATED, Json(status)))
}

/// Every service of a workspace, ended ones included
#[utoipa::path(get, path = "/v1/workspaces/{id}/services", tag = "services",
    operation_id = "list_services", params(("id" = String, Path)),
    responses((status = 200, body = Vec<ServiceStatus>), Failure))]
async fn list(State(app): State<App>, Id(id): Id) -> Answer<Json<Vec<ServiceStatus>>> {
    Ok(Json(app.service.list_services(&id).await?))
}

/// One service
#[utoipa::path(get, path = "/v1/workspaces/{id}/services/{name}", tag = "services",
    operation_id = "status_service", params(("id" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ServiceStatus), Failure))]
async fn status(
    State(app): State<App>,
    Id(id): Id,
    Named(name): Named,
) -> Answer<Json<ServiceStatus>> {
    Ok(Json(app.service.status_service(&id, &name).await?))
}

/// The output of a service
#[utoipa::path(get, path = "/v1/workspaces/{id}/services/{name}/logs", tag = "services",
    operation_id = "logs_service",
    params(("id" = String, Path), ("name" = String, Path), ServiceLogsQuery),
    responses((status = 200, body = ServiceLogs), Failure))]
async fn logs(
    State(app): State<App>,
    Id(id): Id,
    Named(name): Named,
    Params(query): Params<ServiceLogsQuery>,
) -> Answer<Json<ServiceLogs>> {
    let logs = app.service.logs_service(&id, &name, query.into()).await?;
    Ok(Json(logs))
}

/// End a service
#[utoipa::path(post, path = "/v1/workspaces/{id}/services/{name}/stop", tag = "services",
    operation_id = "stop_service", params(("id" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = ServiceStatus), Failure))]
async fn stop(
    State(app): State<App>,
    Id(id): Id,
    Named(name): Named,
) -> Answer<Json<ServiceStatus>> {
    Ok(Json(app.service.stop_service(&id, &name).await?))
}

/// Follow the output of a service from now on
///
/// The answer is a live stream of frames that ends with the service. Leaving does not end it.
#[utoipa::path(post, path = "/v1/workspaces/{id}/services/{name}/stream", tag = "services",
    operation_id = "follow_service", params(("id" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = String, content_type = "application/vnd.motu.stream"), Failure))]
async fn follow(
    State(app): State<App>,
    Id(id): Id,
    Named(name): Named,
    request: Request,
) -> Answer<Response> {
    let session = app.service.follow_service(&id, &name).await?;
    Ok(respond(&app, session, Inbound::new(request.into_body())))
}

/// The same over a WebSocket
#[utoipa::path(get, path = "/v1/workspaces/{id}/services/{name}/stream/ws", tag = "services",
    operation_id = "follow_service_ws", params(("id" = String, Path), ("name" = String, Path)),
    responses((status = 101, description = "A stream of frames."), Failure))]
async fn follow_ws(
    State(app): State<App>,
    Id(id): Id,
    Named(name): Named,
    Upgrade(upgrade): Upgrade,
) -> Answer<Response> {
    let session = app.service.follow_service(&id, &name).await?;
    Ok(websocket::serve_attached(&app, upgrade, session))
}
