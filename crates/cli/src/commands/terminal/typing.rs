//! `motu terminal run`, `send`, `expect` and what else types into a session or waits for it.

use super::life::{state, terminated};
use super::{Which, given};
use crate::commands::given as files;
use crate::{show, terminal};
use motu_api::Client;
use motu_core::terminal::{
    End, ExpectInTerminal, PollTerminal, RunInTerminal, SendToTerminal, SignalTerminal, Status,
    TerminalAnswer, TerminalId, TerminalPassword, Terminals, Wait,
};
use motu_core::{Error, ErrorKind, Result, limits};
use std::io::{BufRead, IsTerminal};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// The command has not ended: something waits for an answer.
pub const ASKS: u8 = 123;

#[derive(Debug, clap::Args)]
struct WaitArgs {
    /// How long to wait, in seconds or with a unit (500ms, 2m); what runs goes on
    #[arg(long, value_name = "TIME", value_parser = given::time)]
    timeout: Option<Duration>,

    /// Keep colours and other control sequences in the output
    #[arg(long)]
    raw_output: bool,

    /// Bytes of output; the middle is left out when there is more [default: 16384]
    #[arg(long, value_name = "N")]
    max_output_bytes: Option<u64>,
}

impl WaitArgs {
    fn wait(&self) -> Wait {
        Wait {
            timeout: self.timeout.map(|time| time.as_secs_f64()),
            strip_ansi: self.raw_output.then_some(false),
            max_output_bytes: self.max_output_bytes,
        }
    }
}

/// Run a command line in a session
///
/// Prints what it printed and exits with its exit code: 124 when it has not ended in
/// time and runs on, 123 when it asks for something first (`motu terminal status` says
/// what). The words are joined with spaces and are for the shell of the session, so
/// what it should see as one word must be quoted twice.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal run build make test
  motu terminal run build --timeout 2m -- 'cd src && make -j4'
  motu terminal run --json build 'exit 3'")]
pub struct RunArgs {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    wait: WaitArgs,

    /// Type it even if a program that reads nothing, or asks for a secret, is in front
    #[arg(long)]
    force: bool,

    /// The command line
    #[arg(
        value_name = "COMMAND",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    command: Vec<String>,
}

impl RunArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let id = &self.which.id;
        let run = RunInTerminal {
            command: self.command.join(" "),
            force: self.force,
            wait: self.wait.wait(),
        };
        let answer = client.run_in_terminal(id, run).await?;
        let code = match (answer.end, answer.exit_code) {
            (End::TimedOut, _) => ExitCode::from(ErrorKind::Timeout.exit_code()),
            (End::WaitsForInput, _) if asks(answer.state.status) => ExitCode::from(ASKS),
            (_, Some(code)) => crate::live::exit_code(code, false),
            (End::SessionEnded, None) => ExitCode::from(ErrorKind::Unavailable.exit_code()),
            (_, None) => ExitCode::SUCCESS,
        };
        told(id, &answer, json, code)
    }
}

/// Type text into a session, paste it, or press keys
///
/// Nothing is added to the text: --enter presses Enter after it. Prints what came back.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal send db 'select 1;' --enter
  motu terminal send build --keys Up Up Enter
  motu terminal send build --control c
  motu terminal send notes --paste-file draft.md")]
pub struct SendArgs {
    #[command(flatten)]
    which: Which,

    /// What is typed
    #[arg(value_name = "TEXT", required_unless_present_any = ["keys", "control", "paste_file"], conflicts_with_all = ["keys", "control", "paste_file"], allow_hyphen_values = true)]
    text: Option<String>,

    /// Press Enter after the text
    #[arg(long, requires = "text")]
    enter: bool,

    /// Keys by name: Up, F5, Tab, Enter, Ctrl-C, Alt-x
    #[arg(long, value_name = "KEY", num_args = 1.., conflicts_with_all = ["control", "paste_file"])]
    keys: Option<Vec<String>>,

    /// A letter with Ctrl, or [ for Escape
    #[arg(long, value_name = "LETTER", conflicts_with = "paste_file")]
    control: Option<String>,

    /// The text of a file as one paste; - is standard input
    #[arg(long, value_name = "FILE")]
    paste_file: Option<PathBuf>,

    #[command(flatten)]
    wait: WaitArgs,
}

impl SendArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let enter = if self.enter { "\r" } else { "" };
        let paste = self.paste_file.as_deref();
        let paste = paste.map(|path| files::read(path, &limits::REQUEST_BODY_BYTES));
        let send = SendToTerminal {
            text: self.text.map(|text| text + enter),
            paste: paste.transpose()?,
            keys: self.keys,
            control: self.control,
            wait: self.wait.wait(),
        };
        let answer = client.send_to_terminal(&self.which.id, send).await?;
        told(&self.which.id, &answer, json, ExitCode::SUCCESS)
    }
}

/// Type a secret where the program does not show it
///
/// It is read from standard input, which does not show it either if it is a terminal,
/// up to the end of the line. It is refused where it would be shown, and kept out of the
/// screen, the transcript, the recording and every log.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal password build
  pass show build | motu terminal password build")]
pub struct PasswordArgs {
    #[command(flatten)]
    which: Which,

    /// Send it even where it may be shown
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    wait: WaitArgs,
}

impl PasswordArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let password = TerminalPassword {
            password: secret()?,
            force: self.force,
            wait: self.wait.wait(),
        };
        let id = &self.which.id;
        let answer = client.send_terminal_password(id, password).await?;
        told(id, &answer, json, ExitCode::SUCCESS)
    }
}

/// One line of standard input, without showing it.
fn secret() -> Result<String> {
    let asked = std::io::stdin().is_terminal();
    let hidden = asked.then(terminal::Hidden::enter).transpose()?;
    if asked {
        show::note("password: ");
    }
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line);
    if hidden.is_some() {
        show::note("\n");
    }
    read.map_err(|error| Error::io("read the password", &error))?;
    Ok(line.trim_end_matches(['\n', '\r']).to_string())
}

/// Send a signal to what runs in the foreground of a session
#[derive(Debug, clap::Args)]
pub struct SignalArgs {
    #[command(flatten)]
    which: Which,

    /// A name or a number
    #[arg(value_name = "SIGNAL", default_value = "INT")]
    signal: String,

    #[command(flatten)]
    wait: WaitArgs,
}

impl SignalArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let signal = SignalTerminal {
            signal: self.signal,
            wait: self.wait.wait(),
        };
        let answer = client.signal_terminal(&self.which.id, signal).await?;
        told(&self.which.id, &answer, json, ExitCode::SUCCESS)
    }
}

/// Print what a session has printed since the last look
///
/// Waits a moment for output if there is none.
#[derive(Debug, clap::Args)]
pub struct PollArgs {
    #[command(flatten)]
    which: Which,

    #[command(flatten)]
    wait: WaitArgs,
}

impl PollArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let poll = PollTerminal {
            wait: self.wait.wait(),
        };
        let answer = client.poll_terminal(&self.which.id, poll).await?;
        told(&self.which.id, &answer, json, ExitCode::SUCCESS)
    }
}

/// Wait until a session prints one of several patterns
///
/// Looks at what is on the screen and at what comes; what was typed is itself no match. Prints what was
/// printed up to the end of the match; exits with 124 when none comes in time.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu terminal expect server 'listening on port (\\d+)' 'address in use'
  motu terminal expect ssh --prompt --timeout 1m
  motu terminal expect build --literal '[done]'")]
pub struct ExpectArgs {
    #[command(flatten)]
    which: Which,

    /// Regular expressions; the first to match wins
    #[arg(
        value_name = "PATTERN",
        required_unless_present = "prompt",
        conflicts_with = "prompt"
    )]
    patterns: Vec<String>,

    /// Until a shell waits for a command
    #[arg(long, conflicts_with_all = ["literal", "from", "raw", "echo"])]
    prompt: bool,

    /// Take the patterns as they are written
    #[arg(long)]
    literal: bool,

    /// Where to begin: `next_cursor` of another answer
    #[arg(long, value_name = "CURSOR")]
    from: Option<String>,

    /// Match the bytes as they came, control sequences included
    #[arg(long)]
    raw: bool,

    /// Let the echo of what was typed match
    #[arg(long)]
    echo: bool,

    #[command(flatten)]
    wait: WaitArgs,
}

impl ExpectArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let id = &self.which.id;
        let wait = self.wait.wait();
        let answer = if self.prompt {
            client.expect_terminal_prompt(id, wait).await?
        } else {
            let expect = ExpectInTerminal {
                patterns: self.patterns,
                literal: self.literal,
                from: self.from,
                raw: self.raw,
                echo: self.echo,
                wait,
            };
            client.expect_in_terminal(id, expect).await?
        };
        let code = match answer.end {
            End::TimedOut => ExitCode::from(ErrorKind::Timeout.exit_code()),
            End::SessionEnded => ExitCode::from(ErrorKind::Unavailable.exit_code()),
            _ => ExitCode::SUCCESS,
        };
        let code = told(id, &answer, json, code)?;
        if let (Some(found), false) = (&answer.found, json) {
            show::note(&format!(
                "pattern {}; next cursor: {}\n",
                found.index,
                show::safe(&found.next_cursor)
            ));
        }
        Ok(code)
    }
}

/// Whether a program, and not a shell or an interpreter, wants something.
fn asks(status: Status) -> bool {
    status.wants_input() && !matches!(status, Status::Ready | Status::Repl)
}

/// Shows an answer: output to standard output, what a person should know besides to the other. Gives
/// `done` as the exit code, unless the session is over for good.
fn told(id: &TerminalId, answer: &TerminalAnswer, json: bool, done: ExitCode) -> Result<ExitCode> {
    let over = answer.state.status == Status::Terminated;
    if json {
        show::json(answer);
        return Ok(match over {
            true => ExitCode::from(ErrorKind::Conflict.exit_code()),
            false => done,
        });
    }
    if over {
        return Err(terminated(id));
    }
    show::foreign(&answer.output);
    if !answer.output.is_empty() && !answer.output.ends_with('\n') {
        show::note("\n");
    }
    for warning in &answer.warnings {
        show::note(&format!("motu: {}\n", show::safe(warning)));
    }
    if let (Some(from), Some(to)) = (answer.rest_from, answer.rest_to) {
        let dropped = show::bytes(answer.dropped_bytes);
        let count = to.saturating_sub(from);
        show::note(&format!(
            "motu: {dropped} left out; `motu terminal transcript {} --from {from} --max-bytes {count}` has them\n",
            quoted(id)
        ));
    }
    let state = state(&answer.state);
    match answer.end {
        End::SessionEnded => show::note("motu: the session has ended\n"),
        End::TimedOut if answer.state.status == Status::Running => {
            show::note(&format!("motu: {state}\n"));
        }
        _ if asks(answer.state.status) => show::note(&format!("motu: {state}\n")),
        _ => {}
    }
    Ok(done)
}

/// A session's name as a person would type it.
pub fn quoted(id: &TerminalId) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./=:,@%+".contains(c);
    match id.as_str().chars().all(plain) {
        true => id.to_string(),
        false => format!("'{}'", id.as_str().replace('\'', r"'\''")),
    }
}
