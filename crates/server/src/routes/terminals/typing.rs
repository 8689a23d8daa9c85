//! Typing into a session, and waiting for it.
//!
//! A caller that goes away ends the wait with its connection; what runs in the
//! session goes on.

use super::Answer;
use crate::app::App;
use crate::extract::{Json as Body, Long, Session};
use crate::fault::Failure;
use axum::Json;
use axum::extract::State;
use motu_core::terminal::{
    ExpectInTerminal, PollTerminal, RunInTerminal, SendToTerminal, SignalTerminal, TerminalAnswer,
    TerminalPassword, Wait,
};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

pub fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(run))
        .routes(routes!(send))
        .routes(routes!(password))
        .routes(routes!(signal))
        .routes(routes!(poll))
        .routes(routes!(expect))
        .routes(routes!(expect_prompt))
}

/// Run a command line, and wait until it has ended or wants something
#[utoipa::path(post, path = "/v1/terminals/{terminal}/run", tag = "terminals",
    operation_id = "run_in_terminal", params(("terminal" = String, Path)),
    request_body = RunInTerminal,
    responses((status = 200, body = TerminalAnswer), Failure))]
async fn run(
    State(app): State<App>,
    Session(id): Session,
    Long(run): Long<RunInTerminal>,
) -> Answer<Json<TerminalAnswer>> {
    Ok(Json(app.service.run_in_terminal(&id, run).await?))
}

/// Type text, paste it, or press keys
#[utoipa::path(post, path = "/v1/terminals/{terminal}/input", tag = "terminals",
    operation_id = "send_to_terminal", params(("terminal" = String, Path)),
    request_body = SendToTerminal,
    responses((status = 200, body = TerminalAnswer), Failure))]
async fn send(
    State(app): State<App>,
    Session(id): Session,
    Long(send): Long<SendToTerminal>,
) -> Answer<Json<TerminalAnswer>> {
    Ok(Json(app.service.send_to_terminal(&id, send).await?))
}

/// Type a secret where the program does not show it
#[utoipa::path(post, path = "/v1/terminals/{terminal}/password", tag = "terminals",
    operation_id = "send_terminal_password", params(("terminal" = String, Path)),
    request_body = TerminalPassword,
    responses((status = 200, body = TerminalAnswer), Failure))]
async fn password(
    State(app): State<App>,
    Session(id): Session,
    Body(password): Body<TerminalPassword>,
) -> Answer<Json<TerminalAnswer>> {
    let answer = app.service.send_terminal_password(&id, password).await?;
    Ok(Json(answer))
}

/// Send a signal to what runs in the foreground
#[utoipa::path(post, path = "/v1/terminals/{terminal}/signal", tag = "terminals",
    operation_id = "signal_terminal", params(("terminal" = String, Path)),
    request_body = SignalTerminal,
    responses((status = 200, body = TerminalAnswer), Failure))]
async fn signal(
    State(app): State<App>,
    Session(id): Session,
    Body(signal): Body<SignalTerminal>,
) -> Answer<Json<TerminalAnswer>> {
    Ok(Json(app.service.signal_terminal(&id, signal).await?))
}

/// Wait for output without typing anything
#[utoipa::path(post, path = "/v1/terminals/{terminal}/poll", tag = "terminals",
    operation_id = "poll_terminal", params(("terminal" = String, Path)),
    request_body = PollTerminal,
    responses((status = 200, body = TerminalAnswer), Failure))]
async fn poll(
    State(app): State<App>,
    Session(id): Session,
    Body(poll): Body<PollTerminal>,
) -> Answer<Json<TerminalAnswer>> {
    Ok(Json(app.service.poll_terminal(&id, poll).await?))
}

/// Wait until one of several patterns is printed
#[utoipa::path(post, path = "/v1/terminals/{terminal}/expect", tag = "terminals",
    operation_id = "expect_in_terminal", params(("terminal" = String, Path)),
    request_body = ExpectInTerminal,
    responses((status = 200, body = TerminalAnswer), Failure))]
async fn expect(
    State(app): State<App>,
    Session(id): Session,
    Body(expect): Body<ExpectInTerminal>,
) -> Answer<Json<TerminalAnswer>> {
    Ok(Json(app.service.expect_in_terminal(&id, expect).await?))
}

/// Wait until a shell waits for a command
#[utoipa::path(post, path = "/v1/terminals/{terminal}/expect-prompt", tag = "terminals",
    operation_id = "expect_terminal_prompt", params(("terminal" = String, Path)),
    request_body = Wait,
    responses((status = 200, body = TerminalAnswer), Failure))]
async fn expect_prompt(
    State(app): State<App>,
    Session(id): Session,
    Body(wait): Body<Wait>,
) -> Answer<Json<TerminalAnswer>> {
    Ok(Json(app.service.expect_terminal_prompt(&id, wait).await?))
}
