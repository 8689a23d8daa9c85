//! Opening, describing and ending sessions.

use super::{Found, SESSION_ID, Unknown, either, nothing, open, with_session};
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::schema::{Field, flag, integer, map, text};
use crate::tool::{Effect, Tool, run};
use crate::tools::count;
use motu_core::exec::TtySize;
use motu_core::limits;
use motu_core::terminal::{ConfigureTerminal, Status, Terminal, TerminalId};
use motu_core::{Error, Result as Outcome, SandboxId};
use serde_json::{Value, json};

const DESCRIPTION: Field = text("description", limits::TERMINAL_DESCRIPTION_CHARS.max);
const TAG: Field =
    text("tag", limits::TERMINAL_DESCRIPTION_CHARS.max).about("Same as description.");
const PROMPT_REGEX: Field = text("prompt_regex", limits::TERMINAL_PATTERN_BYTES.max)
    .about("What the shell's prompt looks like, where it is not recognised.");
const SHELL_PROMPT_REGEX: Field =
    text("shell_prompt_regex", limits::TERMINAL_PATTERN_BYTES.max).about("Same as prompt_regex.");
const COLS: Field = integer("cols", limits::TERMINAL_COLS.min, limits::TERMINAL_COLS.max);
const ROWS: Field = integer("rows", limits::TERMINAL_ROWS.min, limits::TERMINAL_ROWS.max);

const SESSION: &[(&str, &str)] = &[
    ("session_id", "string"),
    ("status", "string"),
    ("prompt", "string"),
    ("cwd", "string"),
    ("description", "string?"),
    ("shell_prompt_regex", "string?"),
    ("cols", "integer"),
    ("rows", "integer"),
    ("state_reason", "string"),
    ("confidence", "string"),
];

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "create_session",
        verb: "open_terminal",
        about: "Open a session with a name of your choice, or find it again; answers when the shell waits. \
                Needed only to choose one of these.",
        fields: &[
            SESSION_ID,
            text("cwd", limits::PATH_BYTES.max)
                .about("Where the shell starts; default /workspace."),
            text("shell", 4096).about("A program and its arguments; default bash."),
            map("env", 64),
            text("user", 256),
            text("sandbox_id", SandboxId::MAX_LEN as u64)
                .about("A sandbox or workspace that is there."),
            flag("shared").about("Join the session of that name that others use."),
            DESCRIPTION,
            SHELL_PROMPT_REGEX,
            COLS.usually_number(limits::TERMINAL_COLS.default),
            ROWS.usually_number(limits::TERMINAL_ROWS.default),
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
            ("confidence", "string"),
        ],
        effect: Effect::Settles,
        run: run!(create_session),
    },
    Tool {
        name: "get_metadata",
        verb: "get_terminal",
        about: "Show a session: directory, process in front, size, times, where it runs.",
        fields: &[SESSION_ID],
        output: SESSION,
        effect: Effect::Reads,
        run: run!(get_metadata),
    },
    Tool {
        name: "configure_session",
        verb: "configure_terminal",
        about: "Describe a session, or say what its prompt looks like. Also before it is opened.",
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
        verb: "configure_terminal",
        about: "Change the size of a session's screen; text is wrapped anew.",
        fields: &[SESSION_ID, COLS.required(), ROWS.required()],
        output: SESSION,
        effect: Effect::Settles,
        run: run!(resize),
    },
    Tool {
        name: "list_sessions",
        verb: "list_terminals",
        about: "List this server's sessions, living ones first.",
        fields: &[
            integer("limit", 1, MOST_LISTED as u64).usually_number(LISTED as u64),
            text("after", TerminalId::MAX_CHARS as u64).about("next_after of the page before."),
            flag("all").about("Also those of others, by their whole names."),
        ],
        output: &[
            ("count", "integer"),
            ("sessions", "array"),
            ("next_after", "string?"),
        ],
        effect: Effect::Reads,
        run: run!(list_sessions),
    },
    Tool {
        name: "terminate",
        verb: "terminate_terminal",
        about: "End a session and what runs in it, for good. The transcript stays until create_session uses \
                the name again.",
        fields: &[SESSION_ID],
        output: &[
            ("status", "string"),
            ("prompt", "string"),
            ("state_reason", "string"),
            ("confidence", "string"),
        ],
        effect: Effect::Destroys,
        run: run!(terminate),
    },
];

/// Sessions in one answer, if it is not said how many, and at most.
const LISTED: usize = 50;
const MOST_LISTED: usize = 500;

/// A session as a value, with the names both generations of clients know.
pub(super) fn known(call: &Call, terminal: &Terminal) -> Value {
    let mut known = json!(terminal);
    known["session_id"] = json!(call.name_of(&terminal.session_id));
    known["tag"] = json!(terminal.description);
    known["shell_prompt_regex"] = json!(terminal.prompt_regex);
    known
}

fn row(call: &Call, terminal: &Terminal) -> String {
    let mut text = format!(
        "{}: {}",
        call.name_of(&terminal.session_id),
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

fn shown(call: &Call, found: Found<Terminal>) -> Answer {
    match found {
        Found::Done(terminal) => {
            let mut text = row(call, &terminal);
            let state = &terminal.state;
            text.push_str(&format!(
                "[{}: {}]\n",
                state.status.as_str(),
                state.state_reason
            ));
            Answer::new(text, &known(call, &terminal))
        }
        Found::Nothing(answer) => answer,
    }
}

async fn create_session(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    if arguments.flag("shared") {
        call.share(&arguments);
    }
    let id = call.session(&arguments)?;
    let description = either(&arguments, "description", "tag")?;
    let regex = either(&arguments, "prompt_regex", "shell_prompt_regex")?;
    let cwd = arguments.text("cwd");
    let size = arguments.has("cols") || arguments.has("rows");
    let size = size.then(|| TtySize {
        cols: arguments
            .integer("cols")
            .unwrap_or(limits::TERMINAL_COLS.default) as u16,
        rows: arguments
            .integer("rows")
            .unwrap_or(limits::TERMINAL_ROWS.default) as u16,
    });
    let begins_in = cwd.clone();
    let command = arguments.text_or("shell", "");
    let command: Vec<String> = command.split_whitespace().map(String::from).collect();
    let sandbox = arguments.text("sandbox_id");
    let sandbox = sandbox.map(|id| SandboxId::parse(&id)).transpose()?;
    let (env, user) = (arguments.map("env"), arguments.text("user"));
    let opened = open(call, &id, |request| {
        request.command = command;
        request.env = env;
        request.user = user;
        if sandbox.is_some() {
            request.sandbox_id = sandbox;
            request.host = false;
        }
        request.cwd = cwd;
        request.description = description;
        request.prompt_regex = regex;
        request.size = size;
    });
    let mut opened = opened.await?;
    // A new shell has not reported its directory yet; it starts where it was asked to.
    if opened.created && opened.terminal.cwd.is_none() {
        opened.terminal.cwd = begins_in;
    }
    let what = match opened.created {
        true => "opened",
        false => "found",
    };
    let text = format!("{what} {}", row(call, &opened.terminal));
    let mut value = known(call, &opened.terminal);
    value["created"] = opened.created.into();
    Ok(Answer::new(text, &value))
}

async fn get_metadata(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let verb = || call.service().get_terminal(&id);
    Ok(shown(
        call,
        with_session(call, &id, Unknown::Say, verb).await?,
    ))
}

async fn configure_session(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let change = ConfigureTerminal {
        description: either(&arguments, "description", "tag")?,
        prompt_regex: either(&arguments, "prompt_regex", "shell_prompt_regex")?,
        quiescence_ms: arguments.integer("quiescence_ms"),
        size: None,
    };
    let id = call.session(&arguments)?;
    let verb = || call.service().configure_terminal(&id, change.clone());
    match with_session(call, &id, Unknown::Say, verb).await? {
        Found::Nothing(_) => Ok(keep(call, &id, change)?),
        found => Ok(shown(call, found)),
    }
}

/// Keeps the settings of a session that does not exist yet, for when it is opened.
fn keep(call: &Call, id: &TerminalId, change: ConfigureTerminal) -> Outcome<Answer> {
    if let Some(text) = &change.prompt_regex
        && let Err(error) = regex::Regex::new(text)
    {
        return Err(Error::invalid(format!("prompt_regex: {error}")));
    }
    if !call.shared.names.keep(id, change) {
        return Err(
            Error::limit("too many sessions that do not exist have settings")
                .hint("open them first, or give the settings to create_session"),
        );
    }
    Ok(nothing(call, id, KEPT))
}

const KEPT: &str = "no such session_id yet; this is kept, and used when the session is opened";

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
    let id = call.session(&arguments)?;
    let verb = || call.service().configure_terminal(&id, change.clone());
    Ok(shown(
        call,
        with_session(call, &id, Unknown::Say, verb).await?,
    ))
}

async fn list_sessions(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let limit = arguments.integer("limit").unwrap_or(LISTED as u64) as usize;
    let mut all = call
        .service()
        .list_terminals(Default::default())
        .await?
        .sessions;
    let everyone = all.len();
    if !arguments.flag("all") {
        all.retain(|one| call.is_own(&one.session_id));
    }
    let (total, others) = (all.len(), everyone - all.len());
    let after = arguments.text("after");
    let passed = after.and_then(|after| {
        let at = |one: &Terminal| call.name_of(&one.session_id) == after;
        all.iter().position(at)
    });
    let page: Vec<&Terminal> = all
        .iter()
        .skip(passed.map_or(0, |at| at + 1))
        .take(limit.clamp(1, MOST_LISTED))
        .collect();
    let last = page.last().map(|one| call.name_of(&one.session_id));
    let ends = all.last().map(|one| call.name_of(&one.session_id)) == last;
    let next = last.filter(|_| !ends);
    let mut text = count(total as u64, "session") + "\n";
    text.extend(page.iter().map(|one| row(call, one)));
    if let Some(next) = &next {
        text.push_str(&format!(
            "[{} shown; more with after={next:?}]\n",
            page.len()
        ));
    }
    if others > 0 {
        text.push_str(&format!(
            "[{} of others: all=true]\n",
            count(others as u64, "session")
        ));
    }
    let sessions: Vec<Value> = page.iter().map(|one| known(call, one)).collect();
    let value = json!({"count": total, "sessions": sessions, "next_after": next});
    Ok(Answer::new(text, &value))
}

async fn terminate(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = call.session(&arguments)?;
    let verb = || call.service().get_terminal(&id);
    let there = match with_session(call, &id, Unknown::Say, verb).await? {
        Found::Done(terminal) => terminal,
        Found::Nothing(answer) => {
            call.shared.names.forget_settings(&id);
            return Ok(answer);
        }
    };
    if there.state.status != Status::Terminated && !call.may_end(&id) {
        call.approve(&format!(
            "End the terminal session {id} and what runs in it?"
        ))
        .await?;
    }
    let ended = call.service().terminate_terminal(&id).await?;
    Ok(shown(call, Found::Done(ended)))
}
