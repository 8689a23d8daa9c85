//! Shells of a workspace, read by cursor.

use super::{SECRET_ENV, WORKSPACE_ID, line, secret_env};
use crate::answer::Answer;
use crate::arguments::Arguments;
use crate::call::{Call, Stop};
use crate::progress::Seen;
use crate::schema::{Field, flag, flag_on, integer, limited, text};
use crate::tool::{Effect, Tool, run};
use motu_core::limits;
use motu_core::workspace::{OpenShell, ReadShell, Shell, SignalShell, WriteShell};

const SHELL_ID: Field = text("shell_id", 64).required();
const SHELL: &[(&str, &str)] = &[
    ("shell_id", "string"),
    ("state", "string"),
    ("cwd", "string"),
    ("exit_code", "integer"),
];

pub const TOOLS: &[Tool] = &[
    Tool {
        name: "shell_open",
        verb: "open_shell",
        about: "Open a shell on a terminal in a running workspace; it keeps its directory, variables and \
                jobs between calls. Then shell_write, then shell_read.",
        fields: &[
            WORKSPACE_ID,
            text("cwd", limits::PATH_BYTES.max).usually("/workspace"),
            limited("cols", &limits::SHELL_COLS),
            limited("rows", &limits::SHELL_ROWS),
            SECRET_ENV,
        ],
        output: SHELL,
        effect: Effect::Changes,
        run: run!(open),
    },
    Tool {
        name: "shell_read",
        verb: "read_shell",
        about: "Read what a shell printed from `cursor` on; pass next_cursor the next time. Best with \
                {\"plain\": true, \"wait_for_idle_ms\": 300}.",
        fields: &[
            WORKSPACE_ID,
            SHELL_ID,
            integer("cursor", 0, u64::MAX >> 12).usually_number(0),
            limited("max_chars", &limits::SHELL_CHARS),
            flag("plain").about("Without control sequences."),
            integer("wait_for_idle_ms", 0, limits::SHELL_IDLE_MS.max)
                .about("Wait until nothing came for this long."),
        ],
        output: &[
            ("output", "string"),
            ("next_cursor", "integer"),
            ("truncated", "boolean"),
            ("lost", "boolean"),
            ("state", "string"),
        ],
        effect: Effect::Reads,
        run: run!(read),
    },
    Tool {
        name: "shell_write",
        verb: "write_shell",
        about: "Type into a shell. A newline is added unless append_newline is false.",
        fields: &[
            WORKSPACE_ID,
            SHELL_ID,
            text("input", 65_536).required(),
            flag_on("append_newline"),
        ],
        output: SHELL,
        effect: Effect::Runs,
        run: run!(write),
    },
    Tool {
        name: "shell_signal",
        verb: "signal_shell",
        about: "Send a signal to what runs in front of a shell; INT is Ctrl-C.",
        fields: &[
            WORKSPACE_ID,
            SHELL_ID,
            text("signal_name", 16).usually("INT"),
        ],
        output: SHELL,
        effect: Effect::Runs,
        run: run!(signal),
    },
    Tool {
        name: "shell_close",
        verb: "close_shell",
        about: "Close a shell and end what runs in it.",
        fields: &[WORKSPACE_ID, SHELL_ID],
        output: SHELL,
        effect: Effect::Destroys,
        run: run!(close),
    },
];

fn shown(shell: &Shell) -> Answer {
    Answer::new(
        format!("{} is {} in {}", shell.shell_id, shell.state, shell.cwd),
        shell,
    )
}

async fn open(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let request = OpenShell {
        cwd: arguments.text("cwd"),
        cols: arguments.integer("cols").map(|cols| cols as u16),
        rows: arguments.integer("rows").map(|rows| rows as u16),
        secret_env: secret_env(&arguments),
        ..OpenShell::default()
    };
    let id = arguments.workspace()?;
    Ok(shown(&call.service().open_shell(&id, request).await?))
}

async fn read(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let request = ReadShell {
        cursor: arguments.integer("cursor").unwrap_or(0),
        max_chars: arguments.integer("max_chars"),
        plain: arguments.flag("plain"),
        wait_for_idle_ms: arguments.integer("wait_for_idle_ms"),
    };
    let id = arguments.workspace()?;
    let shell = arguments.text_or("shell_id", "");
    let work = call.service().read_shell(&id, &shell, request);
    let output = call.told(&Seen::default(), work).await?;
    let mut text = output.output.clone();
    line(&mut text);
    let more = if output.truncated {
        ", there is more"
    } else {
        ""
    };
    text.push_str(&format!(
        "[{}, next_cursor {}{more}]\n",
        output.state, output.next_cursor
    ));
    Ok(Answer::new(text, &output))
}

async fn write(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let request = WriteShell {
        input: arguments.text_or("input", ""),
        append_newline: arguments.flag_maybe("append_newline"),
    };
    let id = arguments.workspace()?;
    let shell = arguments.text_or("shell_id", "");
    Ok(shown(
        &call.service().write_shell(&id, &shell, request).await?,
    ))
}

async fn signal(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let signal = arguments.text_or("signal_name", "INT");
    let id = arguments.workspace()?;
    let shell = arguments.text_or("shell_id", "");
    Ok(shown(
        &call
            .service()
            .signal_shell(&id, &shell, SignalShell { signal })
            .await?,
    ))
}

async fn close(call: &Call, arguments: Arguments) -> Result<Answer, Stop> {
    let id = arguments.workspace()?;
    let shell = arguments.text_or("shell_id", "");
    let closed = shown(&call.service().close_shell(&id, &shell).await?);
    Ok(closed.with("closed", true))
}
