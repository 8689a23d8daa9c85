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

const NOT_OPENED: &str = "no such session_id; call create_session(session_id, cwd) first";
const ENDED_BEFORE: &str = "the session of that name ended with an earlier server, and its transcript is kept; \
                            call create_session(session_id, cwd) first";

/// Whether all there is of a session is what an earlier server of the same name has left: it has ended,
/// and this server has not used it yet.
async fn is_left_over(call: &Call, id: &TerminalId) -> Result<bool> {
    if !call.has_own_name(id) || !call.shared.names.is_new(id) {
        return Ok(false);
    }
    match call.service().get_terminal(id).await {
        Ok(session) => Ok(!session.alive),
        Err(error) if error.kind == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
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
    let explicit = call.shared.options.explicit_sessions;
    if unknown == Unknown::Open && is_left_over(call, id).await? {
        if explicit {
            return Ok(Found::Nothing(nothing(call, id, ENDED_BEFORE)));
        }
        open(call, id, |_| {}).await?;
    }
    match verb().await {
        Err(error) if error.kind == ErrorKind::NotFound => {
            if unknown == Unknown::Say || explicit {
                let reason = match explicit {
                    true => NOT_OPENED,
                    false => "no such session_id; run or create_session opens it",
                };
                return Ok(Found::Nothing(nothing(call, id, reason)));
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
    call.shared.names.complete(id, &mut request);
    if request.host && request.cwd.is_none() {
        request.cwd = match call.root().await {
            Some(root) => Some(root),
            None => here(),
        };
    }
    let opened = open_as(call, request).await?;
    call.shared.names.opened(id, opened.created);
    Ok(opened)
}

/// Opens a session, in an environment that is installed if that is all that is missing.
async fn open_as(call: &Call, request: OpenTerminal) -> Result<TerminalOpened> {
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
fn nothing(call: &Call, id: &TerminalId, reason: &str) -> Answer {
    let kept = call.shared.names.settings(id);
    let known = json!({
        "session_id": call.name_of(id.as_str()), "session_exists": false,
        "status": "unknown", "prompt": "unknown", "state_reason": reason,
        "output": "", "timed_out": false, "output_truncated": false, "dropped_bytes": 0,
        "description": kept.description, "tag": kept.description, "quiescence_ms": kept.quiescence_ms,
        "prompt_regex": kept.prompt_regex, "shell_prompt_regex": kept.prompt_regex,
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
