//! What a session shows, and has shown.

use super::super::files::download;
use super::Answer;
use crate::app::App;
use crate::extract::{Params, Session};
use crate::fault::Failure;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, header};
use motu_api::wire::{CAST_TYPE, ScreenQuery, ScrollbackQuery, TranscriptQuery};
use motu_core::terminal::{Terminal, TerminalScreen, TerminalScrollback, TerminalTranscript};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(screen))
        .routes(routes!(scrollback, clear))
        .routes(routes!(transcript))
        .routes(routes!(recording))
}

/// The screen as it is now
#[utoipa::path(get, path = "/v1/terminals/{terminal}/screen", tag = "terminals",
    operation_id = "terminal_screen", params(("terminal" = String, Path), ScreenQuery),
    responses((status = 200, body = TerminalScreen), Failure))]
async fn screen(
    State(app): State<App>,
    Session(id): Session,
    Params(query): Params<ScreenQuery>,
) -> Answer<Json<TerminalScreen>> {
    let screen = app.service.terminal_screen(&id, query.format()?).await?;
    Ok(Json(screen))
}

/// The screen and what is above it
#[utoipa::path(get, path = "/v1/terminals/{terminal}/scrollback", tag = "terminals",
    operation_id = "terminal_scrollback", params(("terminal" = String, Path), ScrollbackQuery),
    responses((status = 200, body = TerminalScrollback), Failure))]
async fn scrollback(
    State(app): State<App>,
    Session(id): Session,
    Params(query): Params<ScrollbackQuery>,
) -> Answer<Json<TerminalScrollback>> {
    let rows = app
        .service
        .terminal_scrollback(&id, query.lines(), query.strip_ansi());
    Ok(Json(rows.await?))
}

/// Forget what is above the screen, without typing anything
#[utoipa::path(delete, path = "/v1/terminals/{terminal}/scrollback", tag = "terminals",
    operation_id = "clear_terminal_scrollback", params(("terminal" = String, Path)),
    responses((status = 200, body = Terminal), Failure))]
async fn clear(State(app): State<App>, Session(id): Session) -> Answer<Json<Terminal>> {
    Ok(Json(app.service.clear_terminal_scrollback(&id).await?))
}

/// What was printed, from a place on, and where it is kept
#[utoipa::path(get, path = "/v1/terminals/{terminal}/transcript", tag = "terminals",
    operation_id = "terminal_transcript", params(("terminal" = String, Path), TranscriptQuery),
    responses((status = 200, body = TerminalTranscript), Failure))]
async fn transcript(
    State(app): State<App>,
    Session(id): Session,
    Params(query): Params<TranscriptQuery>,
) -> Answer<Json<TerminalTranscript>> {
    let transcript = app.service.terminal_transcript(&id, query.into()).await?;
    Ok(Json(transcript))
}

/// The recording so far, in asciicast v3
#[utoipa::path(get, path = "/v1/terminals/{terminal}/recording", tag = "terminals",
    operation_id = "terminal_recording", params(("terminal" = String, Path)),
    responses((status = 200, body = Vec<u8>, content_type = "application/x-asciicast"), Failure))]
async fn recording(State(app): State<App>, Session(id): Session) -> Answer<Response> {
    let recording = app.service.terminal_recording(&id).await?;
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(CAST_TYPE));
    Ok(([kind], download(recording).await?).into_response())
}
