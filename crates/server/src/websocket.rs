//! Live sessions over WebSockets: the same frames, one per binary message.
//!
//! The first message is the request, as a JSON frame or as plain text.

use crate::app::App;
use crate::extract::parse_json;
use crate::wording::worded;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use motu_api::event::{decode_input, encode_event};
use motu_api::frame::{Decoder, Frame, HEADER_BYTES, Kind, MAX_PAYLOAD};
use motu_core::exec::{ExecEvent, ExecInput, ExecSession};
use motu_core::{Error, Result};
use serde::de::DeserializeOwned;
use std::future::Future;
use tokio::sync::mpsc;

type Sink = SplitSink<WebSocket, Message>;
type Source = SplitStream<WebSocket>;

/// Speaks with a session that the first message asks for.
pub fn serve<T, F, Fut>(app: &App, upgrade: WebSocketUpgrade, open: F) -> Response
where
    T: DeserializeOwned + Send,
    F: FnOnce(T) -> Fut + Send + 'static,
    Fut: Future<Output = Result<ExecSession>> + Send,
{
    accept(app, upgrade, |mut socket| async move {
        match first(&mut socket).await {
            Ok(request) => speak(socket, open(request).await).await,
            Err(error) => speak(socket, Err(error)).await,
        }
    })
}

/// Speaks with a session that is already there.
pub fn serve_attached(app: &App, upgrade: WebSocketUpgrade, session: ExecSession) -> Response {
    accept(app, upgrade, |socket| speak(socket, Ok(session)))
}

/// Takes a connection over, and talks until the talk is done.
pub fn accept<F, Fut>(app: &App, upgrade: WebSocketUpgrade, talk: F) -> Response
where
    F: FnOnce(WebSocket) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let guard = app.activity.enter();
    upgrade
        .max_message_size(HEADER_BYTES + MAX_PAYLOAD)
        .on_upgrade(|socket| async move {
            let _guard = guard;
            talk(socket).await;
        })
}

/// Until the session ends or the other side leaves, which drops the session.
async fn speak(socket: WebSocket, session: Result<ExecSession>) {
    let (mut sink, source) = socket.split();
    let session = match session {
        Ok(session) => session,
        Err(error) => return close(&mut sink, Err(error)).await,
    };
    let ExecSession {
        mut events, input, ..
    } = session;
    let outbound = async {
        while let Some(event) = events.next().await {
            let failed = event.is_err();
            if send(&mut sink, event).await.is_err() || failed {
                return;
            }
        }
    };
    let broke = tokio::select! {
        () = outbound => None,
        broke = inbound(source, input) => broke,
    };
    drop(events);
    match broke {
        Some(error) => close(&mut sink, Err(error)).await,
        None => close(&mut sink, Ok(())).await,
    }
}

async fn close(sink: &mut Sink, outcome: Result<()>) {
    if let Err(error) = outcome {
        let _ = send(sink, Err(error)).await;
    }
    let _ = sink.close().await;
}

async fn send(sink: &mut Sink, event: Result<ExecEvent>) -> std::result::Result<(), axum::Error> {
    let Frame { kind, mut payload } = encode_event(event.map_err(worded));
    while !payload.is_empty() {
        let part = payload.split_to(payload.len().min(MAX_PAYLOAD));
        sink.send(Message::Binary(Frame::new(kind, part).to_bytes()))
            .await?;
    }
    Ok(())
}

/// Passes input on. Returns when the other side is gone (nothing) or wrong (why).
async fn inbound(mut source: Source, input: mpsc::Sender<ExecInput>) -> Option<Error> {
    while let Some(Ok(message)) = source.next().await {
        let frame = match message {
            Message::Binary(bytes) => decode(bytes),
            Message::Text(text) => Ok(Frame::new(Kind::Json, bytes::Bytes::from(text))),
            Message::Close(_) => return None,
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        match frame.and_then(decode_input) {
            // A command that no longer takes input is about to tell its end.
            Ok(item) => drop(input.send(item).await),
            Err(error) => return Some(error),
        }
    }
    None
}

/// A message holds exactly one frame.
fn decode(message: bytes::Bytes) -> Result<Frame> {
    let mut decoder = Decoder::default();
    decoder.push(message);
    match decoder.next_frame()? {
        Some(frame) if decoder.is_at_boundary() => Ok(frame),
        _ => Err(Error::invalid(
            "the message does not hold exactly one frame",
        )),
    }
}

/// The first message, which is the request.
pub async fn first<T: DeserializeOwned>(socket: &mut WebSocket) -> Result<T> {
    while let Some(Ok(message)) = socket.recv().await {
        match message {
            Message::Text(text) => return parse_json(text.as_bytes()),
            Message::Binary(bytes) => return parse_json(&decode(bytes)?.payload),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => break,
        }
    }
    Err(Error::transport(
        "the connection closed before a request came",
    ))
}
