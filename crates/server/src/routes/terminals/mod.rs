//! Terminal sessions: their life.

mod live;
mod looking;
mod typing;

use super::Answer;
use crate::app::App;
use crate::caller::Caller;
use crate::extract::{Json as Body, Session};
use crate::fault::Failure;
use axum::Json;
use axum::extract::State;
use http::StatusCode;
use motu_core::terminal::{ConfigureTerminal, OpenTerminal, Terminal, TerminalOpened};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(open, list))
        .routes(routes!(get, configure, terminate))
        .merge(typing::routes())
        .merge(looking::routes())
        .merge(live::routes())
}

/// Open a session, or find it
///
/// `created` says which; one that is found is given the description, the size and the
/// prompt that are asked for. `host` is for callers of the local socket only.
#[utoipa::path(post, path = "/v1/terminals", tag = "terminals",
    operation_id = "open_terminal", request_body = OpenTerminal,
    responses((status = 200, body = TerminalOpened), (status = 201, body = TerminalOpened), Failure))]
async fn open(
    State(app): State<App>,
    caller: Caller,
    Body(request): Body<OpenTerminal>,
) -> Answer<(StatusCode, Json<TerminalOpened>)> {
    caller.may_open(&request)?;
    let opened = app.service.open_terminal(request).await?;
    let status = match opened.created {
        true => StatusCode::CREATED,
        false => StatusCode::OK,
    };
    Ok((status, Json(opened)))
}

/// Every session: the living ones first, the most recently active first among them
#[utoipa::path(get, path = "/v1/terminals", tag = "terminals",
    operation_id = "list_terminals",
    responses((status = 200, body = Vec<Terminal>), Failure))]
async fn list(State(app): State<App>) -> Answer<Json<Vec<Terminal>>> {
    Ok(Json(app.service.list_terminals().await?))
}

/// One session, and what it waits for
#[utoipa::path(get, path = "/v1/terminals/{terminal}", tag = "terminals",
    operation_id = "get_terminal", params(("terminal" = String, Path)),
    responses((status = 200, body = Terminal), Failure))]
async fn get(State(app): State<App>, Session(id): Session) -> Answer<Json<Terminal>> {
    Ok(Json(app.service.get_terminal(&id).await?))
}

/// Change the description, the prompt, the silence or the size of a session
#[utoipa::path(patch, path = "/v1/terminals/{terminal}", tag = "terminals",
    operation_id = "configure_terminal", params(("terminal" = String, Path)),
    request_body = ConfigureTerminal,
    responses((status = 200, body = Terminal), Failure))]
async fn configure(
    State(app): State<App>,
    Session(id): Session,
    Body(change): Body<ConfigureTerminal>,
) -> Answer<Json<Terminal>> {
    Ok(Json(app.service.configure_terminal(&id, change).await?))
}

/// End a session and everything on its terminal, for good
#[utoipa::path(delete, path = "/v1/terminals/{terminal}", tag = "terminals",
    operation_id = "terminate_terminal", params(("terminal" = String, Path)),
    responses((status = 200, body = Terminal), Failure))]
async fn terminate(State(app): State<App>, Session(id): Session) -> Answer<Json<Terminal>> {
    Ok(Json(app.service.terminate_terminal(&id).await?))
}
