//! Live sessions over HTTP bodies: frames in, frames out, both at once.
//!
//! Large pieces of output are never copied here: they leave as they came, and
//! the connection gathers them with their headers into one write. Small ones
//! that are there already are put together, because a chunk of HTTP per piece
//! would cost more than the copy. The next event is asked for only when the
//! connection has room, so a slow reader slows its own command.

use crate::app::App;
use crate::extract::parse_json;
use crate::wording::worded;
use axum::body::{Body, BodyDataStream};
use axum::response::{IntoResponse, Response};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use http::{HeaderMap, HeaderValue, header};
use http_body::Frame as Chunk;
use motu_api::event::{decode_input, encode_event};
use motu_api::frame::{Decoder, Frame, HEADER_BYTES, Kind, MAX_PAYLOAD, header};
use motu_api::wire::{LINES_TYPE, STREAM_TYPE};
use motu_core::exec::{ExecEvent, ExecInput, ExecSession};
use motu_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// A payload of this size is not copied.
const LARGE: usize = 16 * 1024;
/// Copied payloads leave together when they have grown to this.
const BATCH: usize = 64 * 1024;
/// How long a client may go on sending after its session has ended.
const LAST_WORDS: Duration = Duration::from_secs(5);

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
    async fn pump(&mut self, input: mpsc::Sender<ExecInput>) -> Result<()> {
        while let Some(frame) = self.next().await? {
            if input.send(decode_input(frame)?).await.is_err() {
                return Ok(());
            }
        }
        let _ = input.send(ExecInput::CloseStdin).await;
        Ok(())
    }

    /// Reads what nobody wants any more. A connection that is closed on a client that still sends
    /// is a broken one to it, and the end of the answer is lost.
    async fn drain(mut self) {
        let rest = async { while let Some(Ok(_)) = self.body.next().await {} };
        let _ = tokio::time::timeout(LAST_WORDS, rest).await;
    }
}

/// Answers with the events of a session while its input is read.
pub fn respond(app: &App, session: ExecSession, mut inbound: Inbound) -> Response {
    let ExecSession { events, input, .. } = session;
    let (broke, fault) = oneshot::channel();
    let (over, ended) = oneshot::channel();
    let guard = app.activity.enter();
    let task = tokio::spawn(async move {
        tokio::select! {
            pumped = inbound.pump(input) => if let Err(error) = pumped {
                let _ = broke.send(error);
            },
            Ok(()) = ended => {}
        }
        drop(guard);
        inbound.drain().await;
    });
    let body = Outbound {
        events: Some(events),
        fault: Some(fault),
        batch: BytesMut::new(),
        payload: None,
        rest: None,
        pump: Pump {
            task: task.abort_handle(),
            over: Some(over),
        },
    };
    let kind = (header::CONTENT_TYPE, HeaderValue::from_static(STREAM_TYPE));
    ([kind], Body::new(body)).into_response()
}

/// The task that passes input on. It ends with a session that is given up, and reads on for a while
/// after one that has come to its end.
struct Pump {
    task: tokio::task::AbortHandle,
    over: Option<oneshot::Sender<()>>,
}

impl Pump {
    fn end(&mut self) {
        if let Some(over) = self.over.take() {
            let _ = over.send(());
        }
    }
}

impl Drop for Pump {
    fn drop(&mut self) {
        if self.over.is_some() {
            self.task.abort();
        }
    }
}

/// A response body of frames. Dropping it, as a closed connection does, drops the session.
struct Outbound {
    events: Option<BoxStream<'static, Result<ExecEvent>>>,
    /// What was wrong with the input.
    fault: Option<oneshot::Receiver<Error>>,
    /// Headers and small payloads, waiting to leave together.
    batch: BytesMut,
    /// The large payload whose header is at the end of the batch.
    payload: Option<Bytes>,
    /// What did not fit into the frame before.
    rest: Option<(Kind, Bytes)>,
    pump: Pump,
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

    /// Fills the batch until there is enough of it, or nothing more is there.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.payload.is_none() && self.batch.len() < BATCH {
            if let Some((kind, payload)) = self.rest.take() {
                self.add(kind, payload);
                continue;
            }
            let event = match self.poll_event(cx) {
                Poll::Ready(Some(event)) => event,
                Poll::Ready(None) => {
                    // A stream that has ended must not be asked again.
                    self.events = None;
                    self.fault = None;
                    self.pump.end();
                    break;
                }
                Poll::Pending if self.batch.is_empty() => return Poll::Pending,
                Poll::Pending => break,
            };
            if event.is_err() {
                self.events = None;
                self.fault = None;
                self.pump.end();
            }
            let Frame { kind, payload } = encode_event(event.map_err(worded));
            self.add(kind, payload);
        }
        Poll::Ready(())
    }

    /// Puts a frame into the batch: all of it, or its header if it is large.
    fn add(&mut self, kind: Kind, mut payload: Bytes) {
        if payload.is_empty() {
            return;
        }
        if payload.len() > MAX_PAYLOAD {
            self.rest = Some((kind, payload.split_off(MAX_PAYLOAD)));
        }
        let large = payload.len() >= LARGE;
        let copied = if large { 0 } else { payload.len() };
        if self.batch.capacity() - self.batch.len() < HEADER_BYTES + copied {
            self.batch
                .reserve(if self.batch.is_empty() && copied < 512 {
                    1024
                } else {
                    BATCH + LARGE + HEADER_BYTES
                });
        }
        self.batch.extend_from_slice(&header(kind, payload.len()));
        if large {
            self.payload = Some(payload);
        } else {
            self.batch.extend_from_slice(&payload);
        }
    }
}

impl http_body::Body for Outbound {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<std::result::Result<Chunk<Bytes>, Self::Error>>> {
        if self.batch.is_empty() && self.payload.is_none() {
            match self.poll_fill(cx) {
                Poll::Ready(()) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        let chunk = match self.batch.is_empty() {
            true => self.payload.take(),
            false => Some(self.batch.split().freeze()),
        };
        Poll::Ready(chunk.map(|chunk| Ok(Chunk::data(chunk))))
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
