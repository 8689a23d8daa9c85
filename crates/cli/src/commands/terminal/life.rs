//! `motu terminal open`, `list`, `status` and what else makes, changes and ends a session.

use super::{Which, given};
use crate::commands::page::{PageArgs, more};
use crate::commands::shape::Variables;
use crate::failure::Reader;
use crate::show::answer;
use crate::{pull, show, waiting};
use jiff::Timestamp;
use motu_api::Client;
use motu_core::exec::TtySize;
use motu_core::terminal::{
    ConfigureTerminal, OpenTerminal, Terminal, TerminalId, TerminalOpened, TerminalState, Terminals,
};
use motu_core::{Error, ErrorKind, Result, SandboxId};
use std::process::ExitCode;

/// List the sessions: living ones first, then those that have ended
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
}

impl ListArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let all = client.list_terminals(self.page.into()).await?;
        answer(json, &all, |all| rows(all, Timestamp::now()));
        more(json, all.next_cursor.as_deref());
        Ok(ExitCode::SUCCESS)
    }
}

/// Open a session, or find the one with this name
///
/// Without --sandbox it is in the workspace `terminals`, which is made on first use
/// and kept. A session that is there already is given the description, the size and
/// the prompt, and is otherwise left as it is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal open build
  motu terminal open db --sandbox ws-3f9k2m7qx0ab --cwd /srv --size 120x40
  motu terminal open z --shell zsh --user-files
  motu terminal open py --shell 'python3 -q'")]
pub struct OpenArgs {
    #[command(flatten)]
    which: Which,

    /// The sandbox or workspace it is in [default: the workspace `terminals`]
    #[arg(long, value_name = "ID", value_parser = SandboxId::parse, conflicts_with = "host")]
    sandbox: Option<SandboxId>,

    /// The directory it starts in [default: /workspace, or the user's home]
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,

    /// The shell or another program, with its arguments [default: bash]
    #[arg(long, value_name = "COMMAND")]
    shell: Option<String>,

    /// Columns and rows [default: 80x24]
    #[arg(long, value_name = "COLSxROWS", value_parser = given::size)]
    size: Option<TtySize>,

    /// A line for people about what it is for
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    description: Option<String>,

    #[command(flatten)]
    variables: Variables,

    /// The user it runs as
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    /// Let the shell read the user's own files (.bashrc)
    #[arg(long)]
    user_files: bool,

    /// What the prompt looks like, where nothing else can tell
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    prompt_regex: Option<String>,

    /// Silence after which a look is taken at a program without marks [default: 100]
    #[arg(long, value_name = "MS")]
    quiescence_ms: Option<u64>,

    /// On this host itself, with no isolation
    #[arg(long)]
    host: bool,
}

impl OpenArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let words = self.shell.iter().flat_map(|shell| shell.split_whitespace());
        let request = OpenTerminal {
            bounds: motu_core::Bounds::default(),
            session_id: self.which.id.to_string(),
            sandbox_id: self.sandbox,
            host: self.host,
            cwd: self.cwd,
            command: words.map(str::to_string).collect(),
            env: self.variables.read()?,
            user: self.user,
            user_files: self.user_files,
            size: self.size,
            description: self.description,
            prompt_regex: self.prompt_regex,
            quiescence_ms: self.quiescence_ms,
            ..OpenTerminal::default()
        };
        let opened = open(client, request, Reader::of(json)).await?;
        if opened.terminal.terminated && !json {
            return Err(terminated(&self.which.id));
        }
        answer(json, &opened, |opened| {
            let (id, what) = (&opened.terminal.session_id, state(&opened.terminal.state));
            match opened.created {
                true => format!("{} is open: {what}\n", show::safe(id)),
                false => format!("{} was open: {what}\n", show::safe(id)),
            }
        });
        Ok(match opened.terminal.terminated {
            true => ExitCode::from(ErrorKind::Conflict.exit_code()),
            false => ExitCode::SUCCESS,
        })
    }
}

/// Opens a session, after pulling the environment of its place if that is all that is missing.
async fn open(client: &Client, request: OpenTerminal, reader: Reader) -> Result<TerminalOpened> {
    // The first session of a place makes its machine.
    let ask =
        |request| waiting::machine("opening the session", reader, client.open_terminal(request));
    match ask(request.clone()).await {
        Err(error) if pull::would_help(&error) => match error.details["environment"].as_str() {
            Some(environment) => {
                pull::pull(client, environment, reader).await?;
                ask(request).await
            }
            None => Err(error),
        },
        Err(error) => Err(elsewhere(error, &request)),
        opened => opened,
    }
}

/// Says what to do about a directory that is here and not in the machine.
fn elsewhere(error: Error, request: &OpenTerminal) -> Error {
    let cwd = request.cwd.as_deref().filter(|_| !request.host);
    let cwd = cwd.filter(|cwd| error.message.contains(*cwd) && std::path::Path::new(cwd).is_dir());
    match cwd {
        Some(cwd) => error.hint(format!(
            "that directory is the host's, and the session is in a machine: make a workspace from it \
             (`motu workspace create debian:12 --seed-path {cwd}`) and give its id to --sandbox; or open \
             the session on the host itself, without isolation: --host"
        )),
        None => error,
    }
}

/// Show what is known of a session, and what it waits for
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    which: Which,
}

impl StatusArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        answer(json, &client.get_terminal(&self.which.id).await?, facts);
        Ok(ExitCode::SUCCESS)
    }
}

/// Change the description or the prompt of a session
///
/// What is not given stays; an empty text takes it away.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal configure build --description 'the nightly build'
  motu terminal configure router --prompt-regex '^router# $'")]
pub struct ConfigureArgs {
    #[command(flatten)]
    which: Which,

    /// A line for people about what it is for
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    description: Option<String>,

    /// What the prompt looks like, where nothing else can tell
    #[arg(long, value_name = "REGEX", allow_hyphen_values = true)]
    prompt_regex: Option<String>,

    /// Silence after which a look is taken at a program without marks
    #[arg(long, value_name = "MS")]
    quiescence_ms: Option<u64>,
}

impl ConfigureArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let change = ConfigureTerminal {
            description: self.description,
            prompt_regex: self.prompt_regex,
            quiescence_ms: self.quiescence_ms,
            size: None,
        };
        if change.description.is_none()
            && change.prompt_regex.is_none()
            && change.quiescence_ms.is_none()
        {
            return Err(Error::invalid("nothing is to be changed")
                .hint("give --description, --prompt-regex or --quiescence-ms"));
        }
        let terminal = client.configure_terminal(&self.which.id, change).await?;
        answer(json, &terminal, facts);
        Ok(ExitCode::SUCCESS)
    }
}

/// Give the terminal of a session another size
///
/// The text on it is wrapped anew.
#[derive(Debug, clap::Args)]
pub struct ResizeArgs {
    #[command(flatten)]
    which: Which,

    /// Columns and rows
    #[arg(value_name = "COLSxROWS", value_parser = given::size)]
    size: TtySize,
}

impl ResizeArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let change = ConfigureTerminal {
            size: Some(self.size),
            ..ConfigureTerminal::default()
        };
        let terminal = client.configure_terminal(&self.which.id, change).await?;
        answer(json, &terminal, |_| String::new());
        Ok(ExitCode::SUCCESS)
    }
}

/// End a session and everything on its terminal, for good
///
/// Its transcript and its recording stay until a session is opened under its name again.
#[derive(Debug, clap::Args)]
pub struct TerminateArgs {
    #[command(flatten)]
    which: Which,
}

impl TerminateArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let terminal = client.terminate_terminal(&self.which.id).await?;
        answer(json, &terminal, |terminal| {
            let id = show::safe(&terminal.session_id);
            format!("{id} is {}\n", terminal.state.status.as_str())
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// A session that is over for good; what it left can still be read.
pub fn terminated(id: &TerminalId) -> Error {
    Error::conflict(format!("{:?} was terminated", id.as_str())).hint(format!(
        "its transcript stays until `motu terminal open {0:?}` makes a new session of that name",
        id.as_str()
    ))
}

/// `ready: the shell has drawn its prompt`.
pub fn state(state: &TerminalState) -> String {
    format!(
        "{}: {}",
        state.status.as_str(),
        show::safe(&state.state_reason)
    )
}

/// A word of the wire, for people.
fn name(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(name)) => name,
        _ => String::new(),
    }
}

fn facts(terminal: &Terminal) -> String {
    let made_by = show::made_by(&terminal.runtime, terminal.isolation, None);
    let front = match (&terminal.foreground, terminal.pid) {
        (Some(name), Some(pid)) => Some(format!("{name} (process {pid})")),
        (Some(name), None) => Some(name.clone()),
        (None, pid) => pid.map(|pid| format!("process {pid}")),
    };
    show::facts(&[
        ("session", Some(terminal.session_id.clone())),
        ("description", terminal.description.clone()),
        ("state", Some(state(&terminal.state))),
        ("prompt", Some(name(&terminal.state.prompt))),
        ("confidence", Some(name(&terminal.state.confidence))),
        ("exit code", terminal.exit_code.map(|code| code.to_string())),
        ("sandbox", Some(terminal.sandbox_id.to_string())),
        ("runtime", Some(made_by)),
        ("command", Some(terminal.command.join(" "))),
        ("directory", terminal.cwd.clone()),
        ("foreground", front),
        (
            "size",
            Some(format!("{} x {}", terminal.cols, terminal.rows)),
        ),
        ("title", terminal.title.clone()),
        ("prompt regex", terminal.prompt_regex.clone()),
        ("printed", Some(show::bytes(terminal.cursor))),
        ("started", Some(terminal.started_at.to_string())),
        ("active", Some(terminal.last_activity_at.to_string())),
    ])
}

fn rows(terminals: &[Terminal], now: Timestamp) -> String {
    let row = |terminal: &Terminal| {
        let or = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_string());
        vec![
            terminal.session_id.clone(),
            terminal.state.status.as_str().to_string(),
            name(&terminal.state.prompt),
            or(&terminal.foreground),
            terminal.sandbox_id.to_string(),
            format!("{} ({})", terminal.runtime, terminal.isolation),
            format!("{}x{}", terminal.cols, terminal.rows),
            show::ago(terminal.last_activity_at, now),
            terminal.description.clone().unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = terminals.iter().map(row).collect();
    let headings = [
        "ID",
        "STATUS",
        "PROMPT",
        "FOREGROUND",
        "SANDBOX",
        "RUNTIME",
        "SIZE",
        "ACTIVE",
        "DESCRIPTION",
    ];
    show::table(&headings, &rows)
}
