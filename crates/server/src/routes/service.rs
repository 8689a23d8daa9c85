//! The daemon itself.

use super::Answer;
use crate::app::{App, openapi as document};
use crate::extract::{Json as Body, Params};
use crate::fault::Failure;
use axum::Json;
use axum::extract::State;
use motu_api::wire::{BackupBody, DoctorQuery};
use motu_core::report::{Backup, Doctor, Version};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(version))
        .routes(routes!(doctor))
        .routes(routes!(backup))
        .routes(routes!(openapi))
}

/// What this daemon is
#[utoipa::path(get, path = "/v1/version", tag = "service",
    responses((status = 200, body = Version), Failure))]
async fn version(State(app): State<App>) -> Answer<Json<Version>> {
    Ok(Json(app.service.version().await?))
}

/// What works on this host, and what would help
#[utoipa::path(get, path = "/v1/doctor", tag = "service", params(DoctorQuery),
    responses((status = 200, body = Doctor), Failure))]
async fn doctor(
    State(app): State<App>,
    Params(query): Params<DoctorQuery>,
) -> Answer<Json<Doctor>> {
    let deep = query.deep.unwrap_or_default();
    Ok(Json(app.service.doctor(deep).await?))
}

/// Copy everything that is kept to a directory on the host
///
/// Machines run on, each paused while its disks are copied.
#[utoipa::path(post, path = "/v1/backup", tag = "service", request_body = BackupBody,
    responses((status = 200, body = Backup), Failure))]
async fn backup(
    State(app): State<App>,
    Body(BackupBody { output_path }): Body<BackupBody>,
) -> Answer<Json<Backup>> {
    Ok(Json(app.service.backup(&output_path).await?))
}

/// This document
#[utoipa::path(get, path = "/v1/openapi.json", tag = "service",
    responses((status = 200, body = serde_json::Value), Failure))]
async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(document())
}
