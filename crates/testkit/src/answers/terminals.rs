//! Terminals: `missing` is not there, `over` was terminated, `old` was there before.

use super::{MOMENT, made};
use motu_core::hint::verb;
use motu_core::terminal::{
    Confidence, End, Modes, OpenTerminal, Prompt, ScreenFormat, State, Status, Terminal,
    TerminalAnswer, TerminalId, TerminalOpened, TerminalScreen, TerminalState,
};
use motu_core::{Error, Result, hint};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

pub fn ready() -> TerminalState {
    let why = "the shell has drawn its prompt";
    State::new(Status::Ready, Prompt::Shell, Confidence::Certain, why).into()
}

/// A value of a session in this state, from the rest of what would be sent of it.
pub fn in_state<T: DeserializeOwned>(state: &TerminalState, mut rest: Value) -> T {
    let mut sent = json!(state);
    let fields = rest.as_object_mut().unwrap();
    sent.as_object_mut().unwrap().append(fields);
    made(sent)
}

pub fn terminal(id: &TerminalId) -> Terminal {
    let over = id.as_str() == "over";
    let state = if over {
        TerminalState::terminated()
    } else {
        ready()
    };
    let rest = json!({
        "session_id": id, "alive": !over, "terminated": over, "exit_code": over.then_some(137),
        "sandbox_id": "terminals", "runtime": "stub", "isolation": "none",
        "command": ["bash"], "cwd": "/workspace", "pid": 42, "foreground": "bash",
        "cols": 80, "rows": 24, "title": "a \u{1b}title", "description": "the build",
        "started_at": MOMENT, "last_activity_at": MOMENT, "quiescence_ms": 100, "cursor": 12,
    });
    in_state(&state, rest)
}

/// The session, if it is there.
pub fn known(id: &TerminalId) -> Result<Terminal> {
    match id.as_str() {
        "missing" => Err(Error::not_found("there is no session \"missing\"")
            .hint(hint![verb("list_terminals"), " shows them"])),
        _ => Ok(terminal(id)),
    }
}

pub fn opened(ask: &OpenTerminal) -> Result<TerminalOpened> {
    Ok(TerminalOpened {
        created: ask.session_id != "old",
        terminal: terminal(&TerminalId::parse(&ask.session_id)?),
    })
}

pub fn answer(end: End, output: &str) -> TerminalAnswer {
    let rest = json!({
        "end": end, "output": output, "timed_out": end == End::TimedOut,
        "output_truncated": false, "dropped_bytes": 0, "duration_ms": 3, "cwd": "/workspace",
        "cursor": 99,
    });
    in_state(&ready(), rest)
}

pub fn screen(format: ScreenFormat, screen: &str) -> TerminalScreen {
    let rest = json!({
        "format": format, "screen": screen, "cursor_x": 2, "cursor_y": 2, "cursor_visible": true,
        "cols": 80, "rows": 24, "modes": Modes::default(), "vt100_ok": true,
        "scrollback_rows": 7, "cursor": 12,
    });
    in_state(&ready(), rest)
}
