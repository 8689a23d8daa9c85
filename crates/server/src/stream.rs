//! Live sessions over HTTP bodies: frames in, frames out, both at once.
//!
//! Output is never copied here: header and payload leave as separate chunks and
//! the connection gathers them into one write. The next event is asked for only
//! when the connection has room, so a slow reader slows its own command.

use crate::app::App;
use crate::extract::parse_json;
use axum::body::{Body, BodyDataStream};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, header};
use http_body::Frame as Chunk;
use motu_api::event::{decode_input, encode_event};
use motu_api::frame::{Decoder, Frame, Headers, Kind, MAX_PAYLOAD};
use motu_api::wire::{LINES_TYPE, STREAM_TYPE};
use motu_core::exec::{ExecEvent, ExecInput, ExecSession};
use motu_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::sync::{mpsc, oneshot};

/// Whether the caller asked for frames instead of one JSON answer.
pub fn wants_frames(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    accept.is_some_and(|value| value.as_bytes().starts_with(STREAM_TYPE.as_bytes()))
}

/// The frames of a request.
pub struct Inbound {
    body: BodyDataStream,
    decoder: Decoder,
}

impl Inbound {
    pub fn new(body: Body) -> Inbound {
        Inbound {
            body: body.into_data_stream(),
            decoder: Decoder::default(),
        }
    }

    /// A request without input: nothing comes, and nothing ends either.
    pub fn none() -> Inbound {
        Inbound::new(Body::from_stream(futures_util::stream::pending::<
            Result<Bytes>,
        >()))
    }

    /// The first frame, which says what is asked for.
    pub async fn request<T: DeserializeOwned>(&mut self) -> Result<T> {
        match self.next().await? {
            Some(frame) if frame.kind == Kind::Json => parse_json(&frame.payload),
            _ => Err(Error::invalid("the stream does not begin with a request")
                .hint("the first frame is of kind 0 and holds the request as JSON")),
        }
    }

    async fn next(&mut self) -> Result<Option<Frame>> {
        loop {
            if let Some(frame) = self.decoder.next_frame()? {
                return Ok(Some(frame));
            }
            match self.body.next().await {
                Some(Ok(bytes)) => self.decoder.push(bytes),
                Some(Err(error)) => {
                    return Err(Error::transport(format!("the request broke off: {error}")));
                }
                None if self.decoder.is_at_boundary() => return Ok(None),
                None => return Err(Error::invalid("the request ends inside a frame")),
            }
        }
    }

    /// Passes input on until there is no more; the end of the request closes standard input.
    async fn pump(mut self, input: mpsc::Sender<ExecInput>) -> Result<()> {
        while let Some(frame) = self.next().await? {
            if input.send(decode_input(frame)?).await.is_err() {
                return Ok(());
            }
        }
        let _ = input.send(ExecInput::CloseStdin).await;
        Ok(())
    }
}

/// Answers with the events of a session while its input is read.
pub fn respond(app: &App, session: ExecSession, inbound: Inbound) -> Response {
    let ExecSession { events, input } = session;
    let (broke, fault) = oneshot::channel();
    let guard = app.activity.enter();
    let pump = tokio::spawn(async move {
        let _guard = guard;
        if let Err(error) = inbound.pump(input).await {
            let _ = broke.send(error);
        }
    });
    let body = Outbound {
        events: Some(events),
        fault: Some(fault),
        headers: Headers::default(),
        payload: None,
        rest: None,
        _pump: AbortOnDrop(pump.abort_handle()),
    };
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(STREAM_TYPE));
    ([kind], Body::new(body)).into_response()
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A response body of frames. Dropping it, as a closed connection does, drops the session.
struct Outbound {
    events: Option<BoxStream<'static, Result<ExecEvent>>>,
    /// What was wrong with the input.
    fault: Option<oneshot::Receiver<Error>>,
    headers: Headers,
    /// The payload whose header has left.
    payload: Option<Bytes>,
    /// What did not fit into the frame before.
    rest: Option<(Kind, Bytes)>,
    _pump: AbortOnDrop,
}

impl Outbound {
    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<ExecEvent>>> {
        if let Some(fault) = &mut self.fault
            && let Poll::Ready(broke) = Pin::new(fault).poll(cx)
        {
            self.fault = None;
            if let Ok(error) = broke {
                return Poll::Ready(Some(Err(error)));
            }
        }
        match &mut self.events {
            Some(events) => events.poll_next_unpin(cx),
            None => Poll::Ready(None),
        }
    }

    /// Starts a frame with as much as fits, and gives its header.
    fn begin(&mut self, kind: Kind, mut payload: Bytes) -> Bytes {
        if payload.len() > MAX_PAYLOAD {
            self.rest = Some((kind, payload.split_off(MAX_PAYLOAD)));
        }
        let header = self.headers.next(kind, payload.len());
        self.payload = Some(payload);
        header
    }
}

impl http_body::Body for Outbound {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Chunk<Bytes>, Self::Error>>> {
        if let Some(payload) = self.payload.take() {
            return Poll::Ready(Some(Ok(Chunk::data(payload))));
        }
        if let Some((kind, payload)) = self.rest.take() {
            let header = self.begin(kind, payload);
            return Poll::Ready(Some(Ok(Chunk::data(header))));
        }
        loop {
            let event = match self.poll_event(cx) {
                Poll::Ready(Some(event)) => event,
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            };
            if event.is_err() {
                self.events = None;
                self.fault = None;
            }
            let Frame { kind, payload } = encode_event(event);
            if !payload.is_empty() {
                let header = self.begin(kind, payload);
                return Poll::Ready(Some(Ok(Chunk::data(header))));
            }
        }
    }
}

/// Answers with one JSON value per line.
pub fn respond_lines<T: Serialize + Send + 'static>(values: BoxStream<'static, T>) -> Response {
    let lines = values.map(|value| {
        let mut line = serde_json::to_vec(&value)?;
        line.push(b'\n');
        Ok::<_, serde_json::Error>(Bytes::from(line))
    });
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(LINES_TYPE));
    ([kind], Body::from_stream(lines)).into_response()
}
