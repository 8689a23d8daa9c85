//! Answers as responses.

use super::{Answer, whole};
use crate::app::App;
use crate::extract::{AddressParts, Introduced};
use crate::stream::respond_lines;
use crate::wording::worded;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderName, HeaderValue, StatusCode, header};
use motu_api::wire::StepLine;
use motu_core::files::ByteStream;
use motu_core::report::ProgressSink;
use motu_core::verb::{Value, Verb};
use motu_core::{Error, Result};
use motu_gate::Caller;
use std::pin::Pin;
use std::time::Duration;
use tokio::sync::mpsc;

/// Steps waiting for a slow reader; more are not kept.
const STEPS: usize = 64;
/// How long the head of an answer in steps waits for its first line: a call that fails before its
/// first step is answered with the status of its error. A slow one is answered with 200.
const BEGIN: Duration = Duration::from_secs(5);

/// One JSON value with the status of its verb, or no body where there is nothing to say.
pub fn reply<V: Verb<Answer: Value>>(answer: &V::Answer) -> Answer<Response> {
    let status = StatusCode::from_u16(V::status(answer))
        .map_err(|_| Error::internal("a verb has no status"))?;
    Ok(match status {
        StatusCode::NO_CONTENT => status.into_response(),
        status => (status, axum::Json(answer)).into_response(),
    })
}

pub fn content_type(kind: &'static str) -> (HeaderName, HeaderValue) {
    (header::CONTENT_TYPE, HeaderValue::from_static(kind))
}

/// Contents as a body. One that fails at once is a proper failure; later the connection breaks off.
pub async fn download(content: ByteStream) -> Result<Body> {
    let mut content = content.peekable();
    match Pin::new(&mut content).next_if(Result::is_err).await {
        Some(Err(error)) => Err(error),
        _ => Ok(Body::from_stream(content)),
    }
}

pub async fn steps<V: Verb<Extra = ProgressSink, Answer: Value>>(
    State(app): State<App>,
    Introduced(caller): Introduced,
    parts: AddressParts,
    request: Request,
) -> Answer<Response> {
    let call: V = whole(&parts, request).await?;
    let mut lines = step_lines(app, caller, call).peekable();
    let begun = tokio::time::timeout(BEGIN, Pin::new(&mut lines).next_if(Result::is_err)).await;
    if let Ok(Some(Err(error))) = begun {
        return Err(error.into());
    }
    let line = |line: Result<_>| line.unwrap_or_else(|error| StepLine::Error(worded(error)));
    Ok(respond_lines(lines.map(line).boxed()))
}

/// The steps of a call and its outcome. Dropping the stream ends the call.
fn step_lines<V: Verb<Extra = ProgressSink, Answer: Value>>(
    app: App,
    caller: Caller,
    call: V,
) -> BoxStream<'static, Result<StepLine<V::Answer>>> {
    let (sink, steps) = mpsc::channel(STEPS);
    let outcome = async move { app.gate.call(&caller, call, sink).await };
    let outcome = outcome.map(|outcome| outcome.map(StepLine::Result));
    let state = Some((outcome.boxed(), steps));
    stream::unfold(state, async |state| {
        let (mut outcome, mut steps) = state?;
        tokio::select! {
            biased;
            Some(step) = steps.recv() => Some((Ok(StepLine::Progress(step)), Some((outcome, steps)))),
            last = &mut outcome => Some((last, None)),
        }
    })
    .boxed()
}
