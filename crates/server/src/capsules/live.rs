//! Commands, terminals and processes of a capsule over WebSockets: JSON in text messages, each
//! with a `type`. What is typed into a terminal, and what it prints, are binary messages.

use super::shapes::{Encoding, NewCommand, NewTerminal};
use super::telling::{Said, Shape, Teller};
use super::{Answer, Desk, desk, id};
use crate::app::App;
use crate::extract::{At, Introduced, Params, Upgrade, parse_json};
use crate::websocket::{PING, accept, first};
use crate::wording::worded;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use motu_core::exec::{Attach, ExecEvent, ExecInput, ExecSession, Selector, TtySize};
use motu_core::id::random_hex;
use motu_core::{Error, Result, SandboxId, Signal, verb};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;

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
    /// The byte of its output to go on at: `to` of the last message that came, or `from` of
    /// `started` and the bytes that came since.
    stdout_from: Option<u64>,
    encoding: Option<Encoding>,
}

impl Open {
    /// How output is told to this client.
    fn shape(&self) -> Shape {
        let (Open::Start(NewTerminal { encoding, .. }) | Open::Connect(Known { encoding, .. })) =
            self;
        match encoding {
            Some(Encoding::Base64) => Shape::Encoded,
            Some(Encoding::Binary) | None => Shape::Terminal,
        }
    }
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
    Input {
        data: String,
    },
    Resize {
        cols: u16,
        rows: u16,
    },
    Kill,
    /// The answer to `ping`.
    Pong,
}

/// What a message of a client comes to.
#[derive(Debug, PartialEq)]
enum Meant {
    Input(ExecInput),
    Nothing,
    Leave,
}

/// Runs a command that ends with its caller.
pub async fn exec(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    Upgrade(upgrade): Upgrade,
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

/// Follows a process from the oldest output that is kept, or from where its caller has been. Leaving
/// ends nothing.
pub async fn process(
    app: State<App>,
    caller: Introduced,
    At((one, selector)): At<(String, String)>,
    Params(from): Params<Attach>,
    Upgrade(upgrade): Upgrade,
) -> Answer<Response> {
    let (id, selector) = (id(&one)?, Selector::parse(&selector)?);
    let desk = desk(app, caller);
    let session = attached(&desk, id, selector, from).await?;
    Ok(accept(&desk.app, upgrade, move |socket| {
        speak(socket, Ok(session), Shape::Command)
    }))
}

async fn attached(
    desk: &Desk,
    id: SandboxId,
    selector: Selector,
    ask: Attach,
) -> Result<ExecSession> {
    let call = verb::AttachProcess { id, selector, ask };
    let mut session = desk.call(call).await?;
    session.events = desk.app.while_serving(session.events);
    Ok(session)
}

/// A program on a terminal, which goes on without its caller and is found by its tag.
pub async fn pty(
    app: State<App>,
    caller: Introduced,
    At(one): At<String>,
    Upgrade(upgrade): Upgrade,
) -> Answer<Response> {
    let (id, desk) = (id(&one)?, desk(app, caller));
    let app = desk.app.clone();
    Ok(accept(&app, upgrade, move |mut socket| async move {
        let (session, shape) = match first::<Open>(&mut socket).await {
            Ok(open) => {
                let shape = open.shape();
                (opened(&desk, id, open).await, shape)
            }
            Err(error) => (Err(error), Shape::Terminal),
        };
        speak(socket, session, shape).await;
    }))
}

async fn opened(desk: &Desk, id: SandboxId, open: Open) -> Result<ExecSession> {
    let mut from = Attach::default();
    let tag = match open {
        Open::Connect(known) => {
            from.stdout_from = known.stdout_from;
            known.tag
        }
        Open::Start(new) => {
            let tag = new.tag.clone();
            let tag = tag.unwrap_or_else(|| format!("pty-{}", random_hex(8)));
            let mut ask = new.request();
            ask.tag = Some(tag.clone());
            let id = id.clone();
            desk.call(verb::ExecBackground { id, ask }).await?;
            tag
        }
    };
    attached(desk, id, Selector::parse(&tag)?, from).await
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
            _ = pings.tick(), if shape.is_terminal() => {
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
        for said in told {
            let sent = match said {
                Said::Json(value) => send(sink, value).await,
                Said::Output(bytes) => sink.send(Message::Binary(bytes)).await,
            };
            if sent.is_err() {
                return;
            }
        }
    }
}

/// Passes on what a client says. Returns when it is gone or done (nothing), or wrong (why).
async fn hear(mut source: Source, input: mpsc::Sender<ExecInput>, shape: Shape) -> Option<Error> {
    while let Some(Ok(message)) = source.next().await {
        let meant = match message {
            Message::Text(text) => said(text.as_bytes(), shape),
            Message::Binary(bytes) => typed(bytes, shape),
            Message::Ping(_) | Message::Pong(_) => continue,
            Message::Close(_) => return None,
        };
        match meant {
            Ok(Meant::Input(item)) => drop(input.send(item).await),
            Ok(Meant::Nothing) => {}
            Ok(Meant::Leave) => return None,
            Err(error) => return Some(error),
        }
    }
    None
}

/// A binary message: what is typed, as it is.
fn typed(bytes: Bytes, shape: Shape) -> Result<Meant> {
    match shape.is_terminal() {
        true => Ok(Meant::Input(ExecInput::Stdin(bytes))),
        false => Err(no_input()),
    }
}

fn no_input() -> Error {
    Error::invalid("a command takes `stop` alone")
        .hint("a program that reads what is typed has `pty`")
}

/// What a message of text means.
fn said(text: &[u8], shape: Shape) -> Result<Meant> {
    let input = match (parse_json(text)?, shape.is_terminal()) {
        (Later::Pong, _) => return Ok(Meant::Nothing),
        (Later::Stop, false) => return Ok(Meant::Leave),
        (Later::Input { data }, true) => {
            let bytes = STANDARD
                .decode(data)
                .map_err(|_| Error::invalid("`data` of an input is no base64"))?;
            ExecInput::Stdin(bytes.into())
        }
        (Later::Resize { cols, rows }, true) => ExecInput::Resize(TtySize { cols, rows }),
        (Later::Kill, true) => ExecInput::Signal(Signal::KILL.number()),
        (_, false) => return Err(no_input()),
        (_, true) => {
            let error = Error::invalid("a terminal takes `input`, `resize` and `kill`");
            return Err(error.hint("leaving it ends nothing"));
        }
    };
    Ok(Meant::Input(input))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_says_is_checked() {
        let command = |text: &str| said(text.as_bytes(), Shape::Command);
        let terminal = |text: &str| said(text.as_bytes(), Shape::Terminal);
        let input = |text: &'static str| Ok(Meant::Input(ExecInput::Stdin(text.into())));
        assert_eq!(command(r#"{"type":"stop"}"#), Ok(Meant::Leave));
        assert!(command(r#"{"type":"input","data":"eA=="}"#).is_err());
        assert!(typed("x".into(), Shape::Command).is_err());
        assert_eq!(terminal(r#"{"type":"input","data":"eA=="}"#), input("x"));
        // As it is, whatever it looks like.
        let kill = r#"{"type":"kill"}"#;
        assert_eq!(typed(kill.into(), Shape::Terminal), input(kill));
        assert_eq!(terminal(r#"{"type":"pong"}"#), Ok(Meant::Nothing));
        let sized = terminal(r#"{"type":"resize","cols":80,"rows":24}"#);
        assert!(matches!(sized, Ok(Meant::Input(ExecInput::Resize(_)))));
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
