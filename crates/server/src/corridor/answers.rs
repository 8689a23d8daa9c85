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
use tokio::sync::mpsc;

/// Steps waiting for a slow reader; more are not kept.
const STEPS: usize = 64;

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
    Ok(respond_lines(step_lines(app, caller, call)))
}

/// The steps of a call and its outcome. Dropping the stream ends the call.
fn step_lines<V: Verb<Extra = ProgressSink, Answer: Value>>(
    app: App,
    caller: Caller,
    call: V,
) -> BoxStream<'static, StepLine<V::Answer>> {
    let (sink, steps) = mpsc::channel(STEPS);
    let outcome = async move { app.gate.call(&caller, call, sink).await };
    let outcome = outcome.map(|outcome| match outcome {
        Ok(answer) => StepLine::Result(answer),
        Err(error) => StepLine::Error(worded(error)),
    });
    let state = Some((outcome.boxed(), steps));
    stream::unfold(state, async |state| {
        let (mut outcome, mut steps) = state?;
        tokio::select! {
            biased;
            Some(step) = steps.recv() => Some((StepLine::Progress(step), Some((outcome, steps)))),
            last = &mut outcome => Some((last, None)),
        }
    })
    .boxed()
}
