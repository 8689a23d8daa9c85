//! Live sessions over WebSockets: the same frames as over HTTP, one per binary message, or the plain
//! bytes of a session (`?mode=raw`).
//!
//! ```text
//!            frames                                raw
//!   ──►  the request as text or a frame        the request as text
//!   ──►  frames: input, controls               binary: input; text: controls
//!   ◄──  frames: events, output, errors        binary: output of both channels as it comes
//!   ◄──  close                                 close, whose reason says how it ended
//! ```
//!
//! A session that was there before has no request.

use crate::app::App;
use crate::extract::parse_json;
use crate::wording::worded;
use axum::extract::ws::{CloseFrame, Message, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{BoxStream, SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use motu_api::event::{decode_input, encode_event};
use motu_api::frame::{Decoder, Frame, HEADER_BYTES, Kind, MAX_MESSAGE, MAX_PAYLOAD};
use motu_core::exec::{ExecEvent, ExecInput, ExecSession, Exited};
use motu_core::{Error, Result, limits};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::future::Future;
use std::time::Duration;
use tokio::sync::mpsc;

/// Silence after which a ping is sent, so that whatever is between the two ends keeps the
/// connection, and the kernel notices when the other one is gone.
pub const PING: Duration = Duration::from_secs(30);
/// How long the other side may take to answer the close, and go on sending until it does. A socket
/// that is closed on bytes that nobody has read breaks, and the end of the session is lost.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// The longest reason of a close: what a control frame holds, without the code.
const REASON_BYTES: usize = 123;

type Sink = SplitSink<WebSocket, Message>;
type Source = SplitStream<WebSocket>;
type Sent = std::result::Result<(), axum::Error>;

/// What messages hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Frames, which tell everything.
    Frames,
    /// Plain bytes, for clients that only want to type and read.
    Raw,
}

impl Mode {
    /// Takes the mode out of a query. The rest is the request's.
    pub fn read(query: &str) -> Result<(Mode, String)> {
        let (modes, rest): (Vec<&str>, Vec<&str>) = query
            .split('&')
            .filter(|pair| !pair.is_empty())
            .partition(|pair| pair.split('=').next() == Some("mode"));
        let mode = match modes[..] {
            [] | ["mode=frames"] => Mode::Frames,
            ["mode=raw"] => Mode::Raw,
            _ => {
                return Err(Error::invalid("there is no such mode of a WebSocket")
                    .hint("`mode=frames`, which is the default, or `mode=raw`"));
            }
        };
        Ok((mode, rest.join("&")))
    }
}

/// Speaks with a session that the first message asks for.
pub fn serve<T, F, Fut>(app: &App, upgrade: WebSocketUpgrade, mode: Mode, open: F) -> Response
where
    T: DeserializeOwned + Send,
    F: FnOnce(T) -> Fut + Send + 'static,
    Fut: Future<Output = Result<ExecSession>> + Send,
{
    // The request may be longer than what follows it. What is somewhat too long is read, so that its
    // sender is told; the rest of what is much too long is not.
    let longest = HEADER_BYTES + 2 * MAX_MESSAGE;
    talk_over(app, upgrade, longest, move |mut socket| async move {
        match first(&mut socket).await {
            Ok(request) => speak(socket, open(request).await, mode).await,
            Err(error) => speak(socket, Err(error), mode).await,
        }
    })
}

/// Speaks with a session that is already there.
pub fn serve_attached(
    app: &App,
    upgrade: WebSocketUpgrade,
    mode: Mode,
    session: ExecSession,
) -> Response {
    accept(app, upgrade, move |socket| speak(socket, Ok(session), mode))
}

/// Takes a connection over, and talks until the talk is done.
pub fn accept<F, Fut>(app: &App, upgrade: WebSocketUpgrade, talk: F) -> Response
where
    F: FnOnce(WebSocket) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    talk_over(app, upgrade, HEADER_BYTES + MAX_PAYLOAD, talk)
}

fn talk_over<F, Fut>(app: &App, upgrade: WebSocketUpgrade, longest: usize, talk: F) -> Response
where
    F: FnOnce(WebSocket) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let guard = app.activity.enter();
    upgrade
        .max_message_size(longest)
        .max_frame_size(longest)
        .on_upgrade(|socket| async move {
            let _guard = guard;
            talk(socket).await;
        })
}

/// How a talk ends.
enum End {
    /// The session has told everything; how its command ended, if it said so.
    Told(Option<Exited>, Lost),
    Failed(Error),
    /// The other side is gone.
    Left,
}

/// Bytes of output that were gone before they could be told.
type Lost = u64;

/// Until the session ends or the other side leaves, which drops the session.
async fn speak(socket: WebSocket, session: Result<ExecSession>, mode: Mode) {
    let (mut sink, mut source) = socket.split();
    let end = match session {
        Err(error) => End::Failed(error),
        Ok(ExecSession {
            mut events, input, ..
        }) => {
            tokio::select! {
                end = outbound(&mut sink, &mut events, mode) => end,
                end = inbound(&mut source, input, mode) => end,
            }
        }
    };
    if matches!(end, End::Left) {
        // Whoever says goodbye gets an answer.
        let _ = sink.close().await;
        return;
    }
    close(&mut sink, end, mode).await;
    let answered = async { while let Some(Ok(_)) = source.next().await {} };
    let _ = tokio::time::timeout(LAST_WORDS, answered).await;
}

async fn outbound(
    sink: &mut Sink,
    events: &mut BoxStream<'static, Result<ExecEvent>>,
    mode: Mode,
) -> End {
    let (mut ended, mut lost) = (None, 0);
    loop {
        let event = tokio::select! {
            biased;
            event = events.next() => event,
            () = tokio::time::sleep(PING) => match sink.send(Message::Ping(Bytes::new())).await {
                Ok(()) => continue,
                Err(_) => return End::Left,
            },
        };
        let event = match event {
            None => return End::Told(ended, lost),
            Some(Err(error)) => return End::Failed(error),
            Some(Ok(event)) => event,
        };
        match &event {
            ExecEvent::Exited(exited) => ended = Some(exited.clone()),
            ExecEvent::Gap(gap) => lost += gap.to.saturating_sub(gap.from),
            _ => {}
        }
        let sent = match mode {
            Mode::Frames => send(sink, Ok(event)).await,
            Mode::Raw => send_raw(sink, event).await,
        };
        if sent.is_err() {
            return End::Left;
        }
    }
}

/// Says how it ended, in the last frame or in the reason of the close.
async fn close(sink: &mut Sink, end: End, mode: Mode) {
    let reason = match (end, mode) {
        (End::Failed(error), Mode::Frames) => {
            let _ = send(sink, Err(error)).await;
            None
        }
        (_, Mode::Frames) => None,
        (End::Told(Some(exited), lost), Mode::Raw) => {
            Some((close_code::NORMAL, ended(&exited, lost)))
        }
        (End::Failed(error), Mode::Raw) => Some((close_code::ERROR, failed(error))),
        (_, Mode::Raw) => {
            let error = Error::transport("the session ended before its command did");
            Some((close_code::ERROR, failed(error)))
        }
    };
    let frame = reason.map(|(code, reason)| CloseFrame {
        code,
        reason: reason.into(),
    });
    let _ = sink.send(Message::Close(frame)).await;
    let _ = sink.close().await;
}

/// How a command ended, as the reason of a close.
fn ended(exited: &Exited, lost: Lost) -> String {
    let mut reason = json!({"exit_code": exited.exit_code});
    if exited.timed_out {
        reason["timed_out"] = json!(true);
    }
    if lost > 0 {
        reason["lost_bytes"] = json!(lost);
    }
    reason.to_string()
}

/// What went wrong, as the reason of a close, with as much of the message as there is room for.
fn failed(error: Error) -> String {
    let mut message = worded(error.clone()).message;
    loop {
        let reason: Value = json!({"error": {"kind": error.kind, "message": message}});
        let reason = reason.to_string();
        if reason.len() <= REASON_BYTES || message.pop().is_none() {
            return reason;
        }
    }
}

async fn send(sink: &mut Sink, event: Result<ExecEvent>) -> Sent {
    let Frame { kind, mut payload } = encode_event(event.map_err(worded));
    while !payload.is_empty() {
        let part = payload.split_to(payload.len().min(MAX_PAYLOAD));
        sink.send(Message::Binary(Frame::new(kind, part).to_bytes()))
            .await?;
    }
    Ok(())
}

/// Sends output as it is. What else happens is not told, or is in the close.
async fn send_raw(sink: &mut Sink, event: ExecEvent) -> Sent {
    let (ExecEvent::Stdout(mut payload) | ExecEvent::Stderr(mut payload)) = event else {
        return Ok(());
    };
    while !payload.is_empty() {
        let part = payload.split_to(payload.len().min(MAX_PAYLOAD));
        sink.send(Message::Binary(part)).await?;
    }
    Ok(())
}

/// Passes input on. Returns when the other side is gone or wrong.
async fn inbound(source: &mut Source, input: mpsc::Sender<ExecInput>, mode: Mode) -> End {
    while let Some(Ok(message)) = source.next().await {
        let frame = match message {
            Message::Binary(bytes) if mode == Mode::Raw => Ok(Frame::new(Kind::Data, bytes)),
            Message::Binary(bytes) => decode(bytes),
            Message::Text(text) => Ok(Frame::new(Kind::Json, Bytes::from(text))),
            Message::Close(_) => return End::Left,
            Message::Ping(_) | Message::Pong(_) => continue,
        };
        match frame.and_then(decode_input) {
            // A command that no longer takes input is about to tell its end.
            Ok(item) => drop(input.send(item).await),
            Err(error) => return End::Failed(error),
        }
    }
    End::Left
}

/// A message holds exactly one frame.
fn decode(message: Bytes) -> Result<Frame> {
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
    while let Some(message) = socket.recv().await {
        let message = message.map_err(|error| {
            Error::transport(format!(
                "the connection broke before a request came: {error}"
            ))
        })?;
        match message {
            Message::Text(text) => return asked(text.as_bytes()),
            Message::Binary(bytes) => return asked(&decode(bytes)?.payload),
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Close(_) => break,
        }
    }
    Err(Error::transport(
        "the connection closed before a request came",
    ))
}

/// A request, if it is not too long.
fn asked<T: DeserializeOwned>(text: &[u8]) -> Result<T> {
    let limit = &limits::REQUEST_BODY_BYTES;
    match text.len() > MAX_MESSAGE {
        false => parse_json(text),
        true => Err(
            Error::limit(format!("the request is longer than {MAX_MESSAGE} bytes"))
                .details(json!({"limit": limit.name, "max": limit.max})),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mode_is_taken_out_of_the_query() {
        let read = |query: &str| Mode::read(query).map_err(|error| error.kind);
        assert_eq!(read(""), Ok((Mode::Frames, String::new())));
        assert_eq!(read("a=1&b"), Ok((Mode::Frames, "a=1&b".to_string())));
        assert_eq!(
            read("a=1&mode=raw&b=2"),
            Ok((Mode::Raw, "a=1&b=2".to_string()))
        );
        for wrong in ["mode", "mode=", "mode=text", "mode=raw&mode=frames"] {
            assert_eq!(read(wrong), Err(motu_core::ErrorKind::Invalid), "{wrong}");
        }
    }

    #[test]
    fn a_reason_fits_into_a_close() {
        let exited = Exited {
            exit_code: -2_147_483_648,
            timed_out: true,
            ..Exited::default()
        };
        assert!(ended(&exited, u64::MAX).len() <= REASON_BYTES);
        let reason = failed(Error::not_found("\u{1}\u{e4}\"".repeat(100)));
        assert!(reason.len() <= REASON_BYTES, "{reason}");
        let reason: Value = serde_json::from_str(&reason).unwrap();
        assert_eq!(reason["error"]["kind"], "not_found");
    }
}
