//! Terminal sessions.
//!
//! A tool that types or waits opens a session it does not know, unless sessions are
//! explicit; a tool that looks never does. A session that is unknown or was ended is an
//! answer with a status, not an error: what to do next is in `state_reason`.

mod looking;
mod sessions;
mod typing;

use crate::Place;
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::progress::Seen;
use crate::schema::{Field, text};
use crate::tool::Tool;
use crate::tools::environment::installed;
use motu_core::hint;
use motu_core::hint::{field, host, verb};
use motu_core::terminal::{OpenTerminal, TerminalId, TerminalOpened};
use motu_core::{Error, ErrorKind, Result};
use serde_json::json;

pub const TABLES: &[&[Tool]] = &[typing::TOOLS, looking::TOOLS, sessions::TOOLS];

const SESSION_ID: Field = text("session_id", TerminalId::MAX_CHARS as u64).required();

/// What a call may do about a session that is not there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unknown {
    /// Opened, unless sessions are explicit.
    Open,
    /// Said.
    Say,
}

/// What came of a verb on a session.
enum Found<T> {
    Done(T),
    /// There is no such session; this is the answer.
    Nothing(Answer),
}

/// Does something with a session.
async fn with_session<T, F>(
    call: &Call,
    id: &TerminalId,
    unknown: Unknown,
    verb: impl Fn() -> F,
) -> std::result::Result<Found<T>, Stop>
where
    F: Future<Output = Result<T>>,
{
    match verb().await {
        Err(error) if error.kind == ErrorKind::NotFound => {
            if unknown == Unknown::Say || call.shared.options.explicit_sessions {
                return Ok(Found::Nothing(nothing(call, id)));
            }
            open(call, id, |_| {}).await?;
            Ok(Found::Done(verb().await?))
        }
        outcome => Ok(Found::Done(outcome?)),
    }
}

/// Opens a session where this server puts them.
async fn open(
    call: &Call,
    id: &TerminalId,
    fill: impl FnOnce(&mut OpenTerminal),
) -> Result<TerminalOpened> {
    let mut request = OpenTerminal {
        session_id: id.as_str().to_string(),
        ..OpenTerminal::default()
    };
    match &call.shared.options.place {
        Place::Usual => {}
        Place::In(sandbox) => request.sandbox_id = Some(sandbox.clone()),
        Place::Host => request.host = true,
    }
    fill(&mut request);
    if request.host && request.cwd.is_none() {
        request.cwd = match call.root().await {
            Some(root) => Some(root),
            None => here(),
        };
    }
    let seen = Seen::default();
    match call.service().open_terminal(request.clone()).await {
        Err(error) => match missing_environment(&error) {
            Some(name) => {
                let verb = || call.service().open_terminal(request.clone());
                call.told(&seen, installed(call, &seen, &name, verb)).await
            }
            None => Err(elsewhere(error, &request)),
        },
        opened => opened,
    }
}

/// Says what to do about a directory that is on the host and not in the machine.
fn elsewhere(error: Error, request: &OpenTerminal) -> Error {
    let cwd = request.cwd.as_deref().filter(|_| !request.host);
    let cwd = cwd.filter(|cwd| error.message.contains(*cwd) && std::path::Path::new(cwd).is_dir());
    match cwd {
        Some(cwd) => error.hint(hint![
            "that directory is the host's, and the session is in a machine: make a workspace from it (",
            verb("create_workspace").with("seed_path", cwd),
            ") and give its id as ",
            field("sandbox_id"),
            "; or open sessions on the host itself, without isolation: ",
            host("motu mcp serve --host"),
        ]),
        None => error,
    }
}

/// The environment that only has to be installed.
fn missing_environment(error: &Error) -> Option<String> {
    let known = error.kind == ErrorKind::NotFound && error.details["installed"] == false;
    let name = error.details["environment"].as_str();
    name.filter(|_| known).map(str::to_string)
}

/// Where this server was started.
fn here() -> Option<String> {
    let here = std::env::current_dir().ok()?;
    Some(here.to_string_lossy().into_owned())
}

/// The answer for a session that is not there.
fn nothing(call: &Call, id: &TerminalId) -> Answer {
    let reason = match call.shared.options.explicit_sessions {
        true => "no such session_id; call create_session(session_id, cwd) first",
        false => "no such session_id; run or create_session opens it",
    };
    let known = json!({
        "session_id": call.name_of(id.as_str()), "session_exists": false,
        "status": "unknown", "prompt": "unknown", "state_reason": reason,
        "output": "", "timed_out": false, "output_truncated": false, "dropped_bytes": 0,
    });
    Answer::new(format!("[unknown: {reason}]"), &known)
}

/// A text under one of two names, of which one is older.
fn either(arguments: &Arguments, name: &str, older: &str) -> Result<Option<String>> {
    match (arguments.text(name), arguments.text(older)) {
        (Some(one), Some(other)) if one != other => Err(Error::invalid(format!(
            "{name} and {older} are two names of one field, and differ"
        ))),
        (one, other) => Ok(one.or(other)),
    }
}
