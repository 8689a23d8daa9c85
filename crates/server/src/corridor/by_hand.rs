//! Addresses that serve more than one verb: commands, live or collected or left running; and one
//! verb with two ways to answer.

use super::answers::{content_type, reply};
use super::{Answer, bytes, from_address, open, value, with_ask};
use crate::app::App;
use crate::events::{self as sse, Ids};
use crate::extract::{self, AddressParts, Introduced, Params};
use crate::stream::wants_frames;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use axum::{Json, Router};
use http::StatusCode;
use motu_api::wire::ExecBody;
use motu_core::Signal;
use motu_core::collect::Collector;
use motu_core::exec::{ExecSession, RunRequest, SignalProcess};
use motu_core::verb::{
    Exec, ExecBackground, ExecStream, ExecWorkspace, ExecWorkspaceStream, Info, ReadDecisions,
    ReadEvents, Run, SignalOne, Value, Verb,
};
use serde::Deserialize;

/// Ends a process; the same as a signal, which is `KILL` unless another is asked for.
pub const KILL_PATH: &str = "/v1/sandboxes/{id}/processes/{selector}";

pub fn routes() -> Router<App> {
    Router::new()
        .route(Run::INFO.path, post(run))
        .route(Exec::INFO.path, post(exec))
        .route(
            ExecWorkspace::INFO.path,
            post(either::<ExecWorkspace, ExecWorkspaceStream>),
        )
        .route(ReadDecisions::INFO.path, get(decisions))
        .route(ReadEvents::INFO.path, get(events))
        .route(KILL_PATH, delete(kill))
}

/// Whether the verb's own address is served here.
pub fn serves(info: &Info) -> bool {
    let here = [
        &Run::INFO,
        &Exec::INFO,
        &ExecStream::INFO,
        &ExecWorkspace::INFO,
        &ExecWorkspaceStream::INFO,
        &ReadDecisions::INFO,
        &ReadEvents::INFO,
    ];
    here.iter().any(|verb| verb.name == info.name)
}

/// Live for who asks for frames, collected for everybody else.
async fn either<V, L>(
    app: State<App>,
    caller: Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response>
where
    V: Verb<Extra = (), Answer: Value>,
    L: Verb<Extra = (), Answer = ExecSession>,
{
    match wants_frames(request.headers()) {
        true => open::<L>(app, caller, parts, request).await,
        false => value::<V>(app, caller, parts, request).await,
    }
}

async fn run(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    if wants_frames(request.headers()) {
        return open::<Run>(State(app), Introduced(caller), parts, request).await;
    }
    let ask: RunRequest = extract::read_long_json(request.into_body()).await?;
    let mut collector = Collector::new(ask.exec.program.max_output_bytes)?;
    let session = app.gate.call(&caller, Run { ask }, ()).await?;
    collector.add_all(session).await?;
    Ok(Json(collector.finish()?).into_response())
}

async fn exec(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    if wants_frames(request.headers()) {
        return open::<ExecStream>(State(app), Introduced(caller), parts, request).await;
    }
    let body: ExecBody = extract::read_long_json(request.into_body()).await?;
    if body.background {
        let call: ExecBackground = with_ask(&parts, body.exec)?;
        return reply::<ExecBackground>(&app.gate.call(&caller, call, ()).await?);
    }
    let call: Exec = with_ask(&parts, body.exec)?;
    reply::<Exec>(&app.gate.call(&caller, call, ()).await?)
}

/// Decisions as lines, or as events that go on where a client has stopped listening.
async fn decisions(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let mut call: ReadDecisions = from_address(&parts, request.uri().query())?;
    if !sse::wants_events(request.headers()) {
        if !call.ask.follow {
            return bytes::<ReadDecisions>(State(app), Introduced(caller), parts, request).await;
        }
        // Nothing may be decided for long: the answer begins before the first line is there.
        let lines = app.gate.call(&caller, call, ()).await?;
        let kind = content_type(ReadDecisions::INFO.content);
        let response = ([kind], Body::from_stream(lines)).into_response();
        return Ok(app.body_while_serving(response));
    }
    // Who listens for events wants those to come.
    call.ask.follow = true;
    if let Some(last) = sse::last_id(request.headers())? {
        call.ask.from = last;
    }
    let from = call.ask.from;
    let lines = app.gate.call(&caller, call, ()).await?;
    // Its last event says that the sandbox is gone, which a server that leaves must not say.
    Ok(app.body_while_serving(sse::respond(lines, Ids::Bytes(from))))
}

/// What happened, as lines, or as events that go on where a client has stopped listening.
async fn events(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let mut call: ReadEvents = from_address(&parts, request.uri().query())?;
    let as_events = sse::wants_events(request.headers());
    if as_events {
        // Who listens for events wants those to come.
        call.ask.follow = true;
        // What a client has seen since it was told to begin somewhere comes first.
        call.ask.after = sse::last_id(request.headers())?.or(call.ask.after);
    }
    let lines = app.gate.call(&caller, call, ()).await?;
    let kind = content_type(ReadEvents::INFO.content);
    match as_events {
        true => Ok(sse::respond(lines, Ids::Sequence)),
        false => Ok(([kind], Body::from_stream(lines)).into_response()),
    }
}

/// How a process is ended.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Kill {
    signal: Option<Signal>,
    tree: bool,
}

async fn kill(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    Params(kill): Params<Kill>,
) -> Answer<StatusCode> {
    let ask = SignalProcess {
        signal: kill.signal.unwrap_or(Signal::KILL),
        tree: kill.tree,
    };
    let call: SignalOne = with_ask(&parts, ask)?;
    app.gate.call(&caller, call, ()).await?;
    Ok(StatusCode::NO_CONTENT)
}
