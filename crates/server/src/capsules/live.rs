//! Commands, terminals and processes of a capsule over WebSockets: JSON in text messages, each
//! with a `type`.

use super::shapes::{NewCommand, NewTerminal};
use super::{Answer, Desk, desk, id};
use crate::app::App;
use crate::extract::{Introduced, parse_json};
use crate::websocket::{accept, first};
use crate::wording::worded;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::extract::{Path, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use motu_core::exec::{
    Attach, Channel, ExecEvent, ExecInput, ExecSession, Selector, Started, TtySize,
};
use motu_core::id::random_name;
use motu_core::{Error, Result, SandboxId, Signal, verb};
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::sync::mpsc;

/// How often a terminal that is quiet says that it is there.
const PING: Duration = Duration::from_secs(30);

/// The first message for a command.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Begin {
    Start(NewCommand),
}

/// The first message for a terminal: a new one, or one that is there.
#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Open {
    Start(NewTerminal),
    Connect(Known),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Known {
    tag: String,
}

/// What a client says later. `stop` is for commands, the others are for terminals.
#[derive(Debug, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "snake_case",
    deny_unknown_fields,
    rename_all_fields = "snake_case"
)]
enum Later {
    Stop,
    Input { data: String },
    Resize { cols: u16, rows: u16 },
    Kill,
}

/// How output is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// Two channels of text.
    Command,
    /// One channel of bytes.
    Terminal,
}

/// Runs a command that ends with its caller.
pub async fn exec(
    app: State<App>,
    caller: Introduced,
    Path(one): Path<String>,
    upgrade: WebSocketUpgrade,
) -> Answer<Response> {
    let (id, desk) = (id(&one)?, desk(app, caller));
    let app = desk.app.clone();
    Ok(accept(&app, upgrade, move |mut socket| async move {
        let session = match first(&mut socket).await {
            Ok(Begin::Start(new)) => started(&desk, id, new).await,
            Err(error) => Err(error),
        };
        speak(socket, session, Shape::Command).await;
    }))
}

async fn started(desk: &Desk, id: SandboxId, new: NewCommand) -> Result<ExecSession> {
    if new.background {
        return Err(Error::invalid("a command in the background has no stream")
            .hint("leave `background` out, or start it with POST and follow its process"));
    }
    let mut ask = new.request();
    ask.no_timeout = new.timeout_sec.is_none();
    desk.call(verb::ExecStream { id, ask }).await
}

/// Follows a process from the oldest output that is kept. Leaving ends nothing.
pub async fn process(
    app: State<App>,
    caller: Introduced,
    Path((one, selector)): Path<(String, String)>,
    upgrade: WebSocketUpgrade,
) -> Answer<Response> {
    let (id, selector) = (id(&one)?, Selector::parse(&selector)?);
    let desk = desk(app, caller);
    let session = attached(&desk, id, selector).await?;
    Ok(accept(&desk.app, upgrade, move |socket| {
        speak(socket, Ok(session), Shape::Command)
    }))
}

async fn attached(desk: &Desk, id: SandboxId, selector: Selector) -> Result<ExecSession> {
    let ask = Attach::default();
    desk.call(verb::AttachProcess { id, selector, ask }).await
}

/// A program on a terminal, which goes on without its caller and is found by its tag.
pub async fn pty(
    app: State<App>,
    caller: Introduced,
    Path(one): Path<String>,
    upgrade: WebSocketUpgrade,
) -> Answer<Response> {
    let (id, desk) = (id(&one)?, desk(app, caller));
    let app = desk.app.clone();
    Ok(accept(&app, upgrade, move |mut socket| async move {
        let session = match first(&mut socket).await {
            Ok(open) => opened(&desk, id, open).await,
            Err(error) => Err(error),
        };
        speak(socket, session, Shape::Terminal).await;
    }))
}

async fn opened(desk: &Desk, id: SandboxId, open: Open) -> Result<ExecSession> {
    let tag = match open {
        Open::Connect(known) => known.tag,
        Open::Start(new) => {
            let tag = new.tag.clone();
            let tag = tag.unwrap_or_else(|| format!("pty-{}", random_name(8)));
            let mut ask = new.request();
            ask.tag = Some(tag.clone());
            let id = id.clone();
            desk.call(verb::ExecBackground { id, ask }).await?;
            tag
        }
    };
    attached(desk, id, Selector::parse(&tag)?).await
}

type Sink = SplitSink<WebSocket, Message>;
type Source = SplitStream<WebSocket>;

/// Until the session ends or the other side leaves, which drops the session.
async fn speak(socket: WebSocket, session: Result<ExecSession>, shape: Shape) {
    let (mut sink, source) = socket.split();
    let failed = match session {
        Ok(ExecSession { events, input, .. }) => {
            let mut events = events;
            let outbound = tell(&mut sink, &mut events, shape);
            tokio::select! {
                () = outbound => None,
                wrong = hear(source, input, shape) => wrong,
            }
        }
        Err(error) => Some(error),
    };
    if let Some(error) = failed {
        let _ = send(&mut sink, failure(error)).await;
    }
    let _ = sink.close().await;
}

async fn send(sink: &mut Sink, value: Value) -> std::result::Result<(), axum::Error> {
    sink.send(Message::Text(value.to_string().into())).await
}

fn failure(error: Error) -> Value {
    let error = worded(error);
    json!({"type": "error", "data": error.message, "kind": error.kind, "hint": error.hint, "fatal": true})
}

async fn tell(
    sink: &mut Sink,
    events: &mut futures_util::stream::BoxStream<'static, Result<ExecEvent>>,
    shape: Shape,
) {
    let mut teller = Teller::new(shape);
    let mut pings = tokio::time::interval(PING);
    pings.reset();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            _ = pings.tick(), if shape == Shape::Terminal => {
                if send(sink, json!({"type": "ping"})).await.is_err() {
                    return;
                }
                continue;
            }
        };
        let told = match event {
            None => return,
            Some(Ok(event)) => teller.event(event),
            Some(Err(error)) => {
                let _ = send(sink, failure(error)).await;
                return;
            }
        };
        for value in told {
            if send(sink, value).await.is_err() {
                return;
            }
        }
    }
}

/// Passes on what a client says. Returns when it is gone or done (nothing), or wrong (why).
async fn hear(mut source: Source, input: mpsc::Sender<ExecInput>, shape: Shape) -> Option<Error> {
    while let Some(Ok(message)) = source.next().await {
        let text = match message {
            Message::Text(text) => text,
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return None,
            Message::Binary(_) => {
                return Some(Error::invalid("messages are JSON, as text"));
            }
        };
        match said(text.as_bytes(), shape) {
            Ok(Some(item)) => drop(input.send(item).await),
            Ok(None) => return None,
            Err(error) => return Some(error),
        }
    }
    None
}

/// What a message means: input, or that the caller leaves.
fn said(text: &[u8], shape: Shape) -> Result<Option<ExecInput>> {
    match (parse_json(text)?, shape) {
        (Later::Stop, Shape::Command) => Ok(None),
        (Later::Input { data }, Shape::Terminal) => {
            let bytes = STANDARD
                .decode(data)
                .map_err(|_| Error::invalid("`data` of an input is no base64"))?;
            Ok(Some(ExecInput::Stdin(bytes.into())))
        }
        (Later::Resize { cols, rows }, Shape::Terminal) => {
            Ok(Some(ExecInput::Resize(TtySize { cols, rows })))
        }
        (Later::Kill, Shape::Terminal) => Ok(Some(ExecInput::Signal(Signal::KILL.number()))),
        (_, Shape::Command) => Err(Error::invalid("a command takes `stop` alone")
            .hint("a program that reads what is typed has `pty`")),
        (_, Shape::Terminal) => Err(Error::invalid(
            "a terminal takes `input`, `resize` and `kill`",
        )
        .hint("leaving it ends nothing")),
    }
}

/// Turns events into messages.
#[derive(Debug)]
struct Teller {
    shape: Shape,
    stdout: Text,
    stderr: Text,
}

impl Teller {
    fn new(shape: Shape) -> Teller {
        Teller {
            shape,
            stdout: Text::new("stdout"),
            stderr: Text::new("stderr"),
        }
    }

    fn event(&mut self, event: ExecEvent) -> Vec<Value> {
        match event {
            ExecEvent::Sandbox(_) => Vec::new(),
            ExecEvent::Started(Started { pid, tag, .. }) => vec![match self.shape {
                Shape::Command => json!({"type": "start", "pid": pid}),
                Shape::Terminal => json!({"type": "started", "pid": pid, "tag": tag}),
            }],
            ExecEvent::Stdout(bytes) => match self.shape {
                Shape::Command => self.stdout.piece(&bytes),
                Shape::Terminal => {
                    vec![json!({"type": "output", "data": STANDARD.encode(&bytes)})]
                }
            },
            ExecEvent::Stderr(bytes) => self.stderr.piece(&bytes),
            ExecEvent::Gap(gap) => {
                let channel = match gap.channel {
                    Channel::Stdout => "stdout",
                    Channel::Stderr => "stderr",
                };
                vec![json!({"type": "gap", "channel": channel, "from": gap.from, "to": gap.to})]
            }
            ExecEvent::Exited(exited) => {
                let mut told = self.stdout.rest();
                told.extend(self.stderr.rest());
                told.push(json!({
                    "type": "exit", "exit_code": exited.exit_code, "timed_out": exited.timed_out,
                }));
                told
            }
        }
    }
}

/// One channel, as text. A character that comes in two pieces is told whole; what is no text is
/// told in base64.
#[derive(Debug)]
struct Text {
    channel: &'static str,
    rest: Vec<u8>,
}

impl Text {
    fn new(channel: &'static str) -> Text {
        Text {
            channel,
            rest: Vec::new(),
        }
    }

    fn piece(&mut self, bytes: &[u8]) -> Vec<Value> {
        self.rest.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.rest) {
            Ok(text) => text.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => return self.rest(),
        };
        let rest = self.rest.split_off(whole);
        let told = std::mem::replace(&mut self.rest, rest);
        match String::from_utf8(told) {
            Ok(text) if !text.is_empty() => vec![json!({"type": self.channel, "data": text})],
            _ => Vec::new(),
        }
    }

    /// What is left, which is no text.
    fn rest(&mut self) -> Vec<Value> {
        let rest = std::mem::take(&mut self.rest);
        match rest.is_empty() {
            true => Vec::new(),
            false => vec![json!({
                "type": self.channel, "data": STANDARD.encode(rest), "encoding": "base64",
            })],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_in_two_pieces_is_one() {
        let mut text = Text::new("stdout");
        assert_eq!(
            text.piece(b"a\xc3"),
            [json!({"type": "stdout", "data": "a"})]
        );
        assert_eq!(
            text.piece(b"\xa4"),
            [json!({"type": "stdout", "data": "\u{e4}"})]
        );
        assert_eq!(text.piece(b"\xe2\x82"), [Value::Null; 0]);
        let odd = json!({"type": "stdout", "data": "4oL/", "encoding": "base64"});
        assert_eq!(text.piece(b"\xff"), [odd]);
        assert_eq!(
            text.piece(b"z\xe2"),
            [json!({"type": "stdout", "data": "z"})]
        );
        let left = json!({"type": "stdout", "data": "4g==", "encoding": "base64"});
        assert_eq!(text.rest(), [left]);
    }

    #[test]
    fn what_a_client_says_is_checked() {
        let command = |text: &str| said(text.as_bytes(), Shape::Command);
        let terminal = |text: &str| said(text.as_bytes(), Shape::Terminal);
        assert!(matches!(command(r#"{"type":"stop"}"#), Ok(None)));
        assert!(command(r#"{"type":"input","data":"eA=="}"#).is_err());
        let typed = terminal(r#"{"type":"input","data":"eA=="}"#);
        assert!(matches!(typed, Ok(Some(ExecInput::Stdin(bytes))) if bytes == "x"));
        let sized = terminal(r#"{"type":"resize","cols":80,"rows":24}"#);
        assert!(matches!(sized, Ok(Some(ExecInput::Resize(_)))));
        for wrong in [
            r#"{"type":"stop"}"#,
            r#"{"type":"input","data":"~"}"#,
            r#"{"type":"x"}"#,
            "{",
        ] {
            assert!(terminal(wrong).is_err(), "{wrong}");
        }
    }
}
