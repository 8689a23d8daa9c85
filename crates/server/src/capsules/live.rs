//! Commands, terminals and processes of a capsule over WebSockets: JSON in text messages, each
//! with a `type`.

use super::shapes::{NewCommand, NewTerminal};
use super::telling::{Shape, Teller};
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
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use motu_core::exec::{Attach, ExecEvent, ExecInput, ExecSession, Selector, TtySize};
use motu_core::id::random_name;
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
    /// The byte of its output to go on at: `to` of the last message that came.
    stdout_from: Option<u64>,
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
        let session = match first(&mut socket).await {
            Ok(open) => opened(&desk, id, open).await,
            Err(error) => Err(error),
        };
        speak(socket, session, Shape::Terminal).await;
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
            let tag = tag.unwrap_or_else(|| format!("pty-{}", random_name(8)));
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

#[cfg(test)]
mod tests {
    use super::*;

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
