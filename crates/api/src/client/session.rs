//! Live streams, on the client's side.

use super::{Answer, Body, Call, Client, Connection};
use crate::event::{decode_event, encode_input, json};
use crate::frame::{Decoder, Frame, Headers, Kind};
use crate::wire::STREAM_TYPE;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use http::header;
use http_body::Frame as BodyFrame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use motu_core::exec::{ExecEvent, ExecInput, ExecSession};
use motu_core::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use tokio::sync::{Mutex, Notify, mpsc};

/// Queued inputs; enough to keep the socket busy.
const INPUT_QUEUE: usize = 8;
/// The first frame of a request that a daemon reads at once, together with the request's head.
const ONE_READING: usize = 4096;

impl Client {
    /// Opens a stream whose first frame is the request.
    pub(super) async fn open_with(
        &self,
        target: String,
        request: &impl Serialize,
    ) -> Result<ExecSession> {
        self.duplex(target, Some(json(request))).await
    }

    /// Opens a stream to a running process.
    pub(super) async fn open_attached(&self, call: Call) -> Result<ExecSession> {
        self.duplex(call.target, None).await
    }

    async fn duplex(&self, target: String, first: Option<Bytes>) -> Result<ExecSession> {
        let (opening, input) = Opening::new(first);
        let answered = opening.answered.clone();
        let call = Call::post(target)
            .header(header::ACCEPT, STREAM_TYPE)
            .header(header::CONTENT_TYPE, STREAM_TYPE)
            .opening(opening);
        let answer = self.send(call).await?;
        answered.notify_one();
        let audit_id = answer.audit_id();
        Ok(ExecSession {
            audit_id,
            ..ExecSession::new(events(answer), input)
        })
    }
}

/// A request that opens a stream. Its input follows when the answer has begun: until then it can be
/// sent to another daemon.
#[derive(Clone)]
pub(super) struct Opening {
    first: Option<Frame>,
    inputs: Arc<Mutex<mpsc::Receiver<ExecInput>>>,
    answered: Arc<Notify>,
}

impl Opening {
    /// One with its first frame, and where its input goes.
    pub(super) fn new(first: Option<Bytes>) -> (Opening, mpsc::Sender<ExecInput>) {
        let (input, inputs) = mpsc::channel(INPUT_QUEUE);
        let opening = Opening {
            first: first.map(|payload| Frame::new(Kind::Json, payload)),
            inputs: Arc::new(Mutex::new(inputs)),
            answered: Arc::default(),
        };
        (opening, input)
    }

    /// Whether a daemon takes it in one reading, so that one that had read a part of it only had
    /// not read the request.
    pub(super) fn is_small(&self) -> bool {
        let first = self.first.as_ref();
        first.is_none_or(|frame| frame.payload.len() <= ONE_READING)
    }

    pub(super) fn into_body(self) -> Body {
        let Opening {
            first,
            inputs,
            answered,
        } = self;
        let rest = async move {
            answered.notified().await;
            inputs.lock_owned().await
        };
        let rest = stream::once(rest).flat_map(|inputs| {
            stream::unfold(inputs, async |mut inputs| {
                inputs.recv().await.map(|item| (encode_input(item), inputs))
            })
        });
        frame_body(stream::iter(first).chain(rest).boxed())
    }
}

/// Encodes frames as a request body without copying: header and payload are separate chunks.
fn frame_body(frames: BoxStream<'static, Frame>) -> Body {
    let mut headers = Headers::default();
    let chunks = frames.flat_map(move |Frame { kind, mut payload }| {
        let mut parts = Vec::with_capacity(2);
        loop {
            let part = payload.split_to(payload.len().min(kind.most()));
            parts.push(Ok(BodyFrame::data(headers.next(kind, part.len()))));
            parts.push(Ok(BodyFrame::data(part)));
            if payload.is_empty() {
                return stream::iter(parts);
            }
        }
    });
    BodyExt::boxed_unsync(StreamBody::new(chunks))
}

/// The answer's body and its decoder.
struct Reading {
    body: Incoming,
    decoder: Decoder,
    client: Client,
    _connection: Connection,
}

/// The events of an answer. A truncated stream ends with an error.
fn events(answer: Answer) -> BoxStream<'static, Result<ExecEvent>> {
    let reading = Reading {
        body: answer.response.into_body(),
        decoder: Decoder::default(),
        client: answer.client,
        _connection: answer.connection,
    };
    stream::unfold(Some(reading), async |reading| {
        let mut reading = reading?;
        match reading.next().await {
            Some(Ok(event)) => Some((Ok(event), Some(reading))),
            Some(Err(error)) => Some((Err(error), None)),
            None => None,
        }
    })
    .boxed()
}

impl Reading {
    async fn next(&mut self) -> Option<Result<ExecEvent>> {
        loop {
            match self.decoder.next_frame() {
                Ok(Some(frame)) => return Some(decode_event(frame)),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
            let next = async { Ok(self.body.frame().await) };
            let next = match self.client.unless_silent(next).await {
                Ok(next) => next,
                Err(error) => return Some(Err(error)),
            };
            match next {
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.decoder.push(data);
                    }
                }
                Some(Err(error)) => return Some(Err(super::broken(&error))),
                None if self.decoder.is_at_boundary() => return None,
                None => return Some(Err(Error::transport("the stream ends inside a frame"))),
            }
        }
    }
}

/// Decodes a body of one JSON value per line.
pub(super) fn lines<T: DeserializeOwned + Send + 'static>(
    answer: Answer,
) -> BoxStream<'static, Result<T>> {
    let state = (answer.into_stream(), Vec::new());
    stream::unfold(state, async |(mut chunks, mut buffer)| {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let value = serde_json::from_slice(&line).map_err(|error| {
                    Error::transport(format!("a line of the answer cannot be read: {error}"))
                });
                return Some((value, (chunks, buffer)));
            }
            match chunks.next().await? {
                Ok(chunk) => buffer.extend_from_slice(&chunk),
                Err(error) => return Some((Err(error), (chunks, buffer))),
            }
        }
    })
    .boxed()
}
