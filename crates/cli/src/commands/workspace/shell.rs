//! `motu workspace shell`: persistent terminals.

use super::Which;
use crate::commands::shape::Variables;
use crate::show;
use crate::show::answer;
use motu_api::Client;
use motu_core::exec::TtySize;
use motu_core::workspace::{
    OpenShell, ReadShell, SecretEnv, Shell, ShellOutput, SignalShell, WriteShell,
};
use motu_core::{Result, Terminals};
use std::process::ExitCode;

/// Drive persistent terminals in a workspace
///
/// For programs and models; people use `motu workspace attach`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  shell=$(motu workspace shell open $id --id-only)
  motu workspace shell write $id $shell --input 'make test'
  motu workspace shell read $id $shell --plain --wait-for-idle-ms 300
  motu workspace shell close $id $shell")]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Open a shell on a terminal of its own
    Open(OpenArgs),
    /// List the shells of a workspace
    List {
        #[command(flatten)]
        which: Which,
    },
    Read(ReadArgs),
    /// Type into a shell
    Write {
        #[command(flatten)]
        one: One,
        /// What is typed
        #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
        input: String,
        /// Do not press Enter after it
        #[arg(long)]
        no_newline: bool,
    },
    /// Send a signal to what runs in the foreground of a shell
    Signal {
        #[command(flatten)]
        one: One,
        /// A name or a number
        #[arg(long, value_name = "SIGNAL", default_value = "INT")]
        signal: String,
    },
    /// Give the terminal of a shell another size
    Resize {
        #[command(flatten)]
        one: One,
        /// Columns
        #[arg(long, value_name = "N")]
        cols: u16,
        /// Rows
        #[arg(long, value_name = "N")]
        rows: u16,
    },
    /// End a shell and what runs in it
    Close {
        #[command(flatten)]
        one: One,
    },
}

#[derive(Debug, clap::Args)]
struct One {
    #[command(flatten)]
    which: Which,

    /// The shell
    #[arg(value_name = "SHELL")]
    shell: String,
}

#[derive(Debug, clap::Args)]
struct OpenArgs {
    #[command(flatten)]
    which: Which,

    /// The directory it starts in [default: /workspace]
    #[arg(long, alias = "workdir", value_name = "DIR")]
    cwd: Option<String>,

    /// The user it runs as [default: that of the environment]
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    #[command(flatten)]
    variables: Variables,

    /// Columns of its terminal [default: 120]
    #[arg(long, value_name = "N")]
    cols: Option<u16>,

    /// Rows of its terminal [default: 30]
    #[arg(long, value_name = "N")]
    rows: Option<u16>,

    /// Give it a secret of the workspace as a variable; may be given several times
    #[arg(long, value_name = "NAME[=ENV]")]
    secret_env: Vec<SecretEnv>,

    /// Print only its id
    #[arg(long, conflicts_with = "json")]
    id_only: bool,
}

/// Print what a shell has said, from a cursor on
///
/// The cursor to go on from is the last line on standard error.
#[derive(Debug, clap::Args)]
struct ReadArgs {
    #[command(flatten)]
    one: One,

    /// Where to begin: the next cursor of the last read
    #[arg(long, value_name = "N", default_value_t = 0)]
    cursor: u64,

    /// Print at most so many characters [default: 65536]
    #[arg(long, value_name = "N")]
    max_chars: Option<u64>,

    /// Text as a person would see it, without control sequences
    #[arg(long)]
    plain: bool,

    /// Wait until nothing has come for this long
    #[arg(long, value_name = "MS")]
    wait_for_idle_ms: Option<u64>,
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        match self.command {
            Command::Open(args) => args.run(client, json).await?,
            Command::List { which } => {
                answer(json, &client.list_shells(&which.id).await?, |all| rows(all));
            }
            Command::Read(args) => args.run(client, json).await?,
            Command::Write {
                one,
                input,
                no_newline,
            } => {
                let write = WriteShell {
                    input,
                    append_newline: Some(!no_newline),
                };
                let shell = client.write_shell(&one.which.id, &one.shell, write);
                answer(json, &shell.await?, |_| String::new());
            }
            Command::Signal { one, signal } => {
                let shell = client.signal_shell(
                    &one.which.id,
                    &one.shell,
                    SignalShell {
                        signal: signal.to_string(),
                    },
                );
                answer(json, &shell.await?, |_| String::new());
            }
            Command::Resize { one, cols, rows } => {
                let size = TtySize { cols, rows };
                let shell = client.resize_shell(&one.which.id, &one.shell, size);
                answer(json, &shell.await?, |_| String::new());
            }
            Command::Close { one } => {
                let shell = client.close_shell(&one.which.id, &one.shell);
                answer(json, &shell.await?, |shell| {
                    let (id, state) = (show::safe(&shell.shell_id), show::safe(&shell.state));
                    format!("{id} is {state}\n")
                });
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl OpenArgs {
    async fn run(self, client: &Client, json: bool) -> Result<()> {
        let request = OpenShell {
            cwd: self.cwd,
            cols: self.cols,
            rows: self.rows,
            user: self.user,
            env: self.variables.read()?,
            secret_env: self.secret_env,
        };
        let shell = client.open_shell(&self.which.id, request).await?;
        if self.id_only {
            show::print(&format!("{}\n", shell.shell_id));
        } else {
            answer(json, &shell, facts);
        }
        Ok(())
    }
}

impl ReadArgs {
    async fn run(self, client: &Client, json: bool) -> Result<()> {
        let request = ReadShell {
            cursor: self.cursor,
            max_chars: self.max_chars,
            plain: self.plain,
            wait_for_idle_ms: self.wait_for_idle_ms,
        };
        let output = client.read_shell(&self.one.which.id, &self.one.shell, request);
        let output = output.await?;
        match json {
            true => show::json(&output),
            false => told(&output),
        }
        Ok(())
    }
}

fn told(output: &ShellOutput) {
    if output.lost {
        show::note("(older output is no longer kept)\n");
    }
    show::foreign(&output.output);
    if !output.output.is_empty() && !output.output.ends_with('\n') {
        show::note("\n");
    }
    let more = if output.truncated {
        ", there is more"
    } else {
        ""
    };
    show::note(&format!(
        "{}{more}; next cursor: {}\n",
        show::safe(&output.state),
        output.next_cursor
    ));
}

fn facts(shell: &Shell) -> String {
    show::facts(&[
        ("shell", Some(shell.shell_id.clone())),
        ("state", Some(shell.state.clone())),
        ("directory", Some(shell.cwd.clone())),
        (
            "size",
            Some(format!("{} x {}", shell.size.cols, shell.size.rows)),
        ),
        ("pid", shell.pid.map(|pid| pid.to_string())),
        ("exit code", shell.exit_code.map(|code| code.to_string())),
        ("started", Some(shell.started_at.to_string())),
    ])
}

fn rows(shells: &[Shell]) -> String {
    let row = |shell: &Shell| {
        vec![
            shell.shell_id.clone(),
            shell.state.clone(),
            shell.pid.map_or("-".to_string(), |pid| pid.to_string()),
            format!("{}x{}", shell.size.cols, shell.size.rows),
            shell.cwd.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = shells.iter().map(row).collect();
    show::table(&["SHELL", "STATE", "PID", "SIZE", "DIRECTORY"], &rows)
}
