//! Named states of `/workspace`, and the disk of a stopped workspace.

use super::Answer;
use super::content::required;
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Id, Json as Body, Named, Params};
use crate::fault::Failure;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use motu_api::wire::{
    DiskExportBody, FileTextQuery, PathListQuery, SnapshotBody, SnapshotDiffQuery,
};
use motu_core::Error;
use motu_core::workspace::{
    DiffOptions, DiffReport, DiskExported, ExportOptions, FileText, PathList, Snapshot,
    SnapshotList,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(create, list))
        .routes(routes!(delete))
        .routes(routes!(diff))
        .routes(routes!(export_disk))
        .routes(routes!(list_disk))
        .routes(routes!(read_disk))
}

/// Save `/workspace` as it is now under a name
#[utoipa::path(post, path = "/v1/workspaces/{id}/snapshots", tag = "snapshots",
    operation_id = "create_snapshot", params(("id" = String, Path)), request_body = SnapshotBody,
    responses((status = 201, body = Snapshot), Failure))]
async fn create(
    State(app): State<App>,
    Id(id): Id,
    Body(body): Body<SnapshotBody>,
) -> Answer<(StatusCode, Json<Snapshot>)> {
    let snapshot = app
        .service
        .create_snapshot(&id, &body.snapshot_name)
        .await?;
    Ok((StatusCode::CREATED, Json(snapshot)))
}

/// The baseline and every named snapshot
#[utoipa::path(get, path = "/v1/workspaces/{id}/snapshots", tag = "snapshots",
    operation_id = "list_snapshots", params(("id" = String, Path)),
    responses((status = 200, body = SnapshotList), Failure))]
async fn list(State(app): State<App>, Id(id): Id) -> Answer<Json<SnapshotList>> {
    Ok(Json(app.service.list_snapshots(&id).await?))
}

/// Delete a named snapshot
#[utoipa::path(delete, path = "/v1/workspaces/{id}/snapshots/{name}", tag = "snapshots",
    operation_id = "delete_snapshot", params(("id" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Snapshot), Failure))]
async fn delete(State(app): State<App>, Id(id): Id, Named(name): Named) -> Answer<Json<Snapshot>> {
    Ok(Json(app.service.delete_snapshot(&id, &name).await?))
}

/// What changed between two snapshots
#[utoipa::path(get, path = "/v1/workspaces/{id}/snapshots/{name}/diff", tag = "snapshots",
    operation_id = "diff_snapshots",
    params(("id" = String, Path), ("name" = String, Path, description = "The earlier one"), SnapshotDiffQuery),
    responses((status = 200, body = DiffReport), Failure))]
async fn diff(
    State(app): State<App>,
    Id(id): Id,
    Named(from): Named,
    Params(query): Params<SnapshotDiffQuery>,
) -> Answer<Json<DiffReport>> {
    let to = query
        .to
        .ok_or_else(|| Error::invalid("the later snapshot is missing").hint("give `to`"))?;
    let max_bytes = query.max_bytes;
    let report = app
        .service
        .diff_snapshots(&id, &from, &to, DiffOptions { max_bytes })
        .await?;
    Ok(Json(report))
}

/// Write the root of a stopped workspace to the host as a file system in a file
///
/// `output_path` is a path of the host: only callers of the local socket may give it.
#[utoipa::path(post, path = "/v1/workspaces/{id}/disk/export", tag = "snapshots",
    operation_id = "export_workspace_disk", params(("id" = String, Path)),
    request_body = DiskExportBody,
    responses((status = 200, body = DiskExported), Failure))]
async fn export_disk(
    State(app): State<App>,
    Id(id): Id,
    caller: Caller,
    Body(body): Body<DiskExportBody>,
) -> Answer<Json<DiskExported>> {
    caller.may_name_host_path("output_path")?;
    let options = ExportOptions {
        force: body.force,
        max_bytes: body.max_bytes,
    };
    let exported = app
        .service
        .export_workspace_disk(&id, &body.output_path, options)
        .await?;
    Ok(Json(exported))
}

/// What is at a path of the root of a stopped workspace
#[utoipa::path(get, path = "/v1/workspaces/{id}/disk/files", tag = "snapshots",
    operation_id = "list_workspace_disk", params(("id" = String, Path), PathListQuery),
    responses((status = 200, body = PathList), Failure))]
async fn list_disk(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<PathListQuery>,
) -> Answer<Json<PathList>> {
    let recursive = query.recursive.unwrap_or_default();
    let path = query.path();
    Ok(Json(
        app.service
            .list_workspace_disk(&id, path, recursive)
            .await?,
    ))
}

/// A text file of the root of a stopped workspace, up to a budget
#[utoipa::path(get, path = "/v1/workspaces/{id}/disk/files/text", tag = "snapshots",
    operation_id = "read_workspace_disk", params(("id" = String, Path), FileTextQuery),
    responses((status = 200, body = FileText), Failure))]
async fn read_disk(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<FileTextQuery>,
) -> Answer<Json<FileText>> {
    let path = required(query.path)?;
    let text = app
        .service
        .read_workspace_disk(&id, &path, query.max_bytes)
        .await?;
    Ok(Json(text))
}
