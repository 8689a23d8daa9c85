//! What is in `/workspace`.

use super::Answer;
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Id, Json as Body, Long, Params};
use crate::fault::Failure;
use axum::Json;
use axum::extract::State;
use motu_api::wire::{DiffQuery, EditBody, ExportBody, FileTextQuery, PatchBody, PathListQuery};
use motu_core::workspace::{
    DiffReport, ExportOptions, Exported, FileText, FileWritten, PatchReport, PathList, SyncPush,
    SyncReport, WriteText,
};
use motu_core::{Error, Result};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(push))
        .routes(routes!(list))
        .routes(routes!(read, write))
        .routes(routes!(export))
        .routes(routes!(patch))
        .routes(routes!(edit))
        .routes(routes!(diff))
}

/// A path that has no default.
pub fn required(path: Option<String>) -> Result<String> {
    path.ok_or_else(|| Error::invalid("a path is missing").hint("give `path`"))
}

/// Bring later content of the host into a running workspace
///
/// `source_path` is a path of the host: only callers of the local socket may give it.
#[utoipa::path(post, path = "/v1/workspaces/{id}/sync/push", tag = "workspace content",
    operation_id = "push_workspace_sync", params(("id" = String, Path)), request_body = SyncPush,
    responses((status = 200, body = SyncReport), Failure))]
async fn push(
    State(app): State<App>,
    Id(id): Id,
    caller: Caller,
    Body(push): Body<SyncPush>,
) -> Answer<Json<SyncReport>> {
    caller.may_name_host_path("source_path")?;
    Ok(Json(app.service.push_workspace_sync(&id, push).await?))
}

/// What is at a path, without what is in the files
#[utoipa::path(get, path = "/v1/workspaces/{id}/files", tag = "workspace content",
    operation_id = "list_workspace_files", params(("id" = String, Path), PathListQuery),
    responses((status = 200, body = PathList), Failure))]
async fn list(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<PathListQuery>,
) -> Answer<Json<PathList>> {
    let recursive = query.recursive.unwrap_or_default();
    let path = query.path();
    Ok(Json(
        app.service
            .list_workspace_files(&id, path, recursive)
            .await?,
    ))
}

/// A text file, up to a budget
#[utoipa::path(get, path = "/v1/workspaces/{id}/files/text", tag = "workspace content",
    operation_id = "read_workspace_file", params(("id" = String, Path), FileTextQuery),
    responses((status = 200, body = FileText), Failure))]
async fn read(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<FileTextQuery>,
) -> Answer<Json<FileText>> {
    let path = required(query.path)?;
    let text = app
        .service
        .read_workspace_file(&id, &path, query.max_bytes)
        .await?;
    Ok(Json(text))
}

/// Create or replace a text file, and the directories above it
#[utoipa::path(put, path = "/v1/workspaces/{id}/files/text", tag = "workspace content",
    operation_id = "write_workspace_file", params(("id" = String, Path)), request_body = WriteText,
    responses((status = 200, body = FileWritten), Failure))]
async fn write(
    State(app): State<App>,
    Id(id): Id,
    Long(write): Long<WriteText>,
) -> Answer<Json<FileWritten>> {
    Ok(Json(app.service.write_workspace_file(&id, write).await?))
}

/// Copy a file or a tree to the host
///
/// `output_path` is a path of the host: only callers of the local socket may give it.
#[utoipa::path(post, path = "/v1/workspaces/{id}/export", tag = "workspace content",
    operation_id = "export_workspace", params(("id" = String, Path)), request_body = ExportBody,
    responses((status = 200, body = Exported), Failure))]
async fn export(
    State(app): State<App>,
    Id(id): Id,
    caller: Caller,
    Body(body): Body<ExportBody>,
) -> Answer<Json<Exported>> {
    caller.may_name_host_path("output_path")?;
    let options = ExportOptions {
        force: body.force,
        max_bytes: body.max_bytes,
    };
    let exported = app
        .service
        .export_workspace(&id, &body.path, &body.output_path, options)
        .await?;
    Ok(Json(exported))
}

/// Apply one unified patch: all of it, or none
#[utoipa::path(post, path = "/v1/workspaces/{id}/patch", tag = "workspace content",
    operation_id = "apply_workspace_patch", params(("id" = String, Path)),
    request_body = PatchBody,
    responses((status = 200, body = PatchReport), Failure))]
async fn patch(
    State(app): State<App>,
    Id(id): Id,
    Long(body): Long<PatchBody>,
) -> Answer<Json<PatchReport>> {
    let report = app.service.apply_workspace_patch(&id, &body.patch).await?;
    Ok(Json(report))
}

/// Replace exact texts in files: all of them, or none
#[utoipa::path(post, path = "/v1/workspaces/{id}/edit", tag = "workspace content",
    operation_id = "edit_workspace", params(("id" = String, Path)), request_body = EditBody,
    responses((status = 200, body = PatchReport), Failure))]
async fn edit(
    State(app): State<App>,
    Id(id): Id,
    Long(body): Long<EditBody>,
) -> Answer<Json<PatchReport>> {
    Ok(Json(app.service.edit_workspace(&id, body.edits).await?))
}

/// What changed since the baseline
#[utoipa::path(get, path = "/v1/workspaces/{id}/diff", tag = "workspace content",
    operation_id = "diff_workspace", params(("id" = String, Path), DiffQuery),
    responses((status = 200, body = DiffReport), Failure))]
async fn diff(
    State(app): State<App>,
    Id(id): Id,
    Params(query): Params<DiffQuery>,
) -> Answer<Json<DiffReport>> {
    Ok(Json(app.service.diff_workspace(&id, query.into()).await?))
}
