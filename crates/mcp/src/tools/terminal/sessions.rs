//! Opening, describing and ending sessions.

use super::{Found, SESSION_ID, Unknown, either, open, with_session};
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::schema::{Field, integer, text};
use crate::tool::{Effect, Tool, run};
use crate::tools::count;
use motu_core::exec::TtySize;
use motu_core::limits;
use motu_core::terminal::{ConfigureTerminal, Status, Terminal};
use motu_core::{Error, Result as Outcome};
use serde_json::{Value, json};

const DESCRIPTION: Field = text("description", 1024);
const TAG: Field = text("tag", 1024).about("Same as description.");
const PROMPT_REGEX: Field = text("prompt_regex", 1024)
    .about("What the shell's prompt looks like, where it is not recognised.");
const SHELL_PROMPT_REGEX: Field = text("shell_prompt_regex", 1024).about("Same as prompt_regex.");
const COLS: Field = integer("cols", 2, 1000);
const ROWS: Field = integer("rows", 1, 1000);

const SESSION: &[(&str, &str)] = &[
    ("session_id", "string"),
    ("status", "string"),
    ("prompt", "string"),
    ("cwd", "string"),
    ("description", "string"),
    ("shell_prompt_regex", "string"),
    ("cols", "integer"),
    ("rows", "integer"),
    ("state_reason", "string"),
];

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "create_session",
        about: "Open a session with a name of your choice, or find it again. Needed only to choose the \
                directory or the size.",
        fields: &[
            SESSION_ID,
            text("cwd", 4096).about("Where the shell starts; default /workspace."),
            DESCRIPTION,
            SHELL_PROMPT_REGEX,
            COLS.usually_number(80),
            ROWS.usually_number(24),
            TAG,
            PROMPT_REGEX,
        ],
        output: &[
            ("session_id", "string"),
            ("created", "boolean"),
            ("status", "string"),
            ("prompt", "string"),
            ("cwd", "string"),
            ("state_reason", "string"),
        ],
        effect: Effect::Settles,
        run: run!(create_session),
    },
    Tool {
        name: "get_metadata",
        about: "Show a session: directory, process in front, size, times, where it runs.",
        fields: &[SESSION_ID],
        output: SESSION,
        effect: Effect::Looks,
        run: run!(get_metadata),
    },
    Tool {
        name: "configure_session",
        about: "Describe a session, or say what its prompt looks like.",
        fields: &[
            SESSION_ID,
            TAG,
            PROMPT_REGEX,
            DESCRIPTION,
            SHELL_PROMPT_REGEX,
            integer(
                "quiescence_ms",
                limits::TERMINAL_QUIESCENCE_MS.min,
                limits::TERMINAL_QUIESCENCE_MS.max,
            )
            .usually_number(limits::TERMINAL_QUIESCENCE_MS.default),
        ],
        output: SESSION,
        effect: Effect::Settles,
        run: run!(configure_session),
    },
    Tool {
        name: "resize",
        about: "Change the size of a session's screen; text is wrapped anew.",
        fields: &[SESSION_ID, COLS.required(), ROWS.required()],
        output: SESSION,
        effect: Effect::Settles,
        run: run!(resize),
    },
    Tool {
        name: "list_sessions",
        about: "List sessions, living ones first, also those of earlier connections.",
        fields: &[],
        output: &[("sessions", "array")],
        effect: Effect::Looks,
        run: run!(list_sessions),
    },
    Tool {
        name: "terminate",
        about: "End a session and what runs in it, for good: its name is not used again. The transcript \
                stays.",
        fields: &[SESSION_ID],
        output: &[
            ("status", "string"),
            ("prompt", "string"),
            ("state_reason", "string"),
        ],
        effect: Effect::Destroys,
        run: run!(terminate),
    },
];

/// A session as a value, with the names both generations of clients know.
fn known(terminal: &Terminal) -> Value {
    let mut known = json!(terminal);
    known["tag"] = json!(terminal.description);
    known["shell_prompt_regex"] = json!(terminal.prompt_regex);
    known
}

fn row(terminal: &Terminal) -> String {
    let mut text = format!(
        "{}: {}",
        terminal.session_id,
        terminal.state.status.as_str()
    );
    if let Some(cwd) = &terminal.cwd {
        text.push_str(&format!(" in {cwd}"));
    }
    if let Some(program) = &terminal.foreground {
        text.push_str(&format!(", {program} in front"));
    }
    text.push_str(&format!(
        ", {}x{}, {} ({} isolation)",
        terminal.cols, terminal.rows, terminal.sandbox_id, terminal.isolation
    ));
    if let Some(description) = &terminal.description {
        text.push_str(&format!(": {description}"));
    }
    text + "\n"
}

fn shown(found: Found<Terminal>) -> Answer {
    match found {
        Found::Done(terminal) => {
            let mut text = row(&terminal);
            let state = &terminal.state;
            text.push_str(&format!(
                "[{}: {}]\n",
                state.status.as_str(),
                state.state_reason
            ));
            Answer::new(text, &known(&terminal))
        }
        Found::Nothing(answer) => answer,
    }
}

async fn create_session(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.terminal()?;
    let description = either(&arguments, "description", "tag")?;
    let regex = either(&arguments, "prompt_regex", "shell_prompt_regex")?;
    let cwd = arguments.text("cwd");
    let size = arguments.has("cols") || arguments.has("rows");
    let size = size.then(|| TtySize {
        cols: arguments.integer("cols").unwrap_or(80) as u16,
        rows: arguments.integer("rows").unwrap_or(24) as u16,
    });
    let begins_in = cwd.clone();
    let opened = open(call, &id, |request| {
        request.cwd = cwd;
        request.description = description;
        request.prompt_regex = regex;
        request.size = size;
    });
    let mut opened = opened.await?;
    // A new shell has not told its directory yet; it begins where it was asked to.
    if opened.created && opened.terminal.cwd.is_none() {
        opened.terminal.cwd = begins_in;
    }
    let what = match (opened.created, opened.terminal.terminated) {
        (true, _) => "opened",
        (false, false) => "found",
        (false, true) => "a name that is not used again:",
    };
    let text = format!("{what} {}", row(&opened.terminal));
    let mut value = known(&opened.terminal);
    value["created"] = opened.created.into();
    Ok(Answer::new(text, &value))
}

async fn get_metadata(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.terminal()?;
    let verb = || call.service().get_terminal(&id);
    Ok(shown(with_session(call, &id, Unknown::Say, verb).await?))
}

async fn configure(
    call: &Call,
    arguments: &Arguments,
    change: ConfigureTerminal,
) -> Result<Answer, Stop> {
    let id = arguments.terminal()?;
    let verb = || call.service().configure_terminal(&id, change.clone());
    Ok(shown(with_session(call, &id, Unknown::Say, verb).await?))
}

async fn configure_session(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let change = ConfigureTerminal {
        description: either(&arguments, "description", "tag")?,
        prompt_regex: either(&arguments, "prompt_regex", "shell_prompt_regex")?,
        quiescence_ms: arguments.integer("quiescence_ms"),
        size: None,
    };
    configure(call, &arguments, change).await
}

async fn resize(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let side = |name| -> Outcome<u16> {
        let number = arguments
            .integer(name)
            .and_then(|number| u16::try_from(number).ok());
        number.ok_or_else(|| Error::invalid(format!("{name} is missing")))
    };
    let size = TtySize {
        cols: side("cols")?,
        rows: side("rows")?,
    };
    let change = ConfigureTerminal {
        size: Some(size),
        ..ConfigureTerminal::default()
    };
    configure(call, &arguments, change).await
}

async fn list_sessions(call: &Call, _: Arguments) -> Result<Answer, Stop> {
    let all = call.service().list_terminals().await?;
    let mut text = count(all.len() as u64, "session") + "\n";
    text.extend(all.iter().map(row));
    let sessions: Vec<Value> = all.iter().map(known).collect();
    Ok(Answer::new(text, &json!({"sessions": sessions})))
}

async fn terminate(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.terminal()?;
    let verb = || call.service().get_terminal(&id);
    let there = match with_session(call, &id, Unknown::Say, verb).await? {
        Found::Done(terminal) => terminal,
        Found::Nothing(answer) => return Ok(answer),
    };
    if there.state.status != Status::Terminated {
        call.approve(&format!(
            "End the terminal session {id} and what runs in it?"
        ))
        .await?;
    }
    let ended = call.service().terminate_terminal(&id).await?;
    Ok(shown(Found::Done(ended)))
}
