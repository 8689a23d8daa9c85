//! `motu logs`, `attach`, `wait`, `kill` and `top`: what was started in a sandbox and runs on.

use crate::commands::shape::word;
use crate::commands::workspace;
use crate::context::Context;
use crate::detach::{self, Attached, Keys};
use crate::live::{self, Live};
use crate::output::{Output, To};
use crate::show;
use crate::show::answer;
use crate::wording::Commands;
use futures_util::StreamExt;
use jiff::Timestamp;
use motu_api::Client;
use motu_core::Signal;
use motu_core::exec::{
    AttachFrom, Channel, ExecEvent, ExecSession, Process, Selector, SignalProcess,
};
use motu_core::{Error, Result, SandboxId, Service, Workspaces as _};
use serde::Serialize;
use std::process::ExitCode;

/// A process of a sandbox.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// The sandbox
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    /// Its pid or its tag (`motu top ID`) [default: the only one]
    #[arg(value_name = "PROCESS", value_parser = selector)]
    process: Option<Selector>,
}

fn selector(text: &str) -> std::result::Result<Selector, String> {
    Selector::parse(text).map_err(|error| match &error.clone().worded(&Commands).hint {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    })
}

impl Which {
    /// The process that is meant, as it is now.
    async fn find(&self, client: &Client) -> Result<Process> {
        let processes = client.list_processes(&self.id).await?.processes;
        let found = match &self.process {
            Some(Selector::Pid(pid)) => processes.into_iter().find(|process| process.pid == *pid),
            // A tag may be reused: take the newest.
            Some(Selector::Tag(tag)) => processes.into_iter().rfind(|process| process.tag == *tag),
            None => Some(only(processes, &self.id)?),
        };
        found.ok_or_else(|| {
            Error::not_found(format!("{} has no such process", self.id))
                .hint(format!("`motu top {}` lists them", self.id))
        })
    }
}

/// The one that runs, or the only one there was.
fn only(mut processes: Vec<Process>, id: &SandboxId) -> Result<Process> {
    if processes.iter().any(|process| process.exited.is_none()) {
        processes.retain(|process| process.exited.is_none());
    }
    match processes.len() {
        1 => Ok(processes.remove(0)),
        0 => Err(
            Error::not_found(format!("nothing was started in {id} that is still known"))
                .hint(format!("`motu exec -d {id} -- COMMAND` starts something")),
        ),
        many => Err(
            Error::invalid(format!("{many} processes could be meant")).hint(format!(
                "name one by pid or tag: `motu top {id}` lists them"
            )),
        ),
    }
}

/// Show what a process has written
///
/// What the machine still keeps of it: the newest part, 1 MiB a channel unless more
/// was asked for when it was started. Of a workspace in which nothing was left running:
/// the commands that it has run, with their output.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu logs sb-3f9k2m7qx0ab web
  motu logs -f sb-3f9k2m7qx0ab 17
  motu logs --json sb-3f9k2m7qx0ab web")]
pub struct LogsArgs {
    #[command(flatten)]
    which: Which,

    /// Go on showing what comes, until the process ends or Ctrl-C
    #[arg(short, long, conflicts_with = "json")]
    follow: bool,

    /// Print one JSON value with the output and how it ended
    #[arg(long)]
    pub json: bool,
}

/// What a process has written, for programs.
#[derive(Debug, Default, Serialize)]
struct Logs {
    process: Option<Process>,
    stdout: String,
    stderr: String,
    /// Bytes that were no longer kept.
    lost_bytes: u64,
}

impl LogsArgs {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let id = &self.which.id;
        let process = match self.which.find(&client).await {
            // What has ended is in the history of a workspace.
            Err(error) if self.which.process.is_none() && !self.follow => {
                let Ok(log) = client.logs_workspace(id).await else {
                    return Err(error);
                };
                answer(self.json, &log, workspace::exec::log);
                return Ok(ExitCode::SUCCESS);
            }
            found => found?,
        };
        let session = client
            .attach(id, &Selector::Pid(process.pid), AttachFrom::Oldest.into())
            .await?;
        if self.follow {
            return live::watch(session).await;
        }
        if !self.json {
            return so_far(session, &process).await;
        }
        let mut logs = Logs::default();
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let mut end = End::of(&process);
        let mut events = session.events;
        while !end.reached() {
            let Some(event) = events.next().await else {
                break;
            };
            let event = event?;
            end.saw(&event);
            match event {
                ExecEvent::Stdout(bytes) => stdout.extend_from_slice(&bytes),
                ExecEvent::Stderr(bytes) => stderr.extend_from_slice(&bytes),
                ExecEvent::Gap(gap) => logs.lost_bytes += gap.to - gap.from,
                _ => {}
            }
        }
        logs.stdout = String::from_utf8_lossy(&stdout).into_owned();
        logs.stderr = String::from_utf8_lossy(&stderr).into_owned();
        logs.process = Some(process);
        show::json(&logs);
        Ok(ExitCode::SUCCESS)
    }
}

/// Where reading stops: at what had been written when we asked.
struct End {
    stdout: u64,
    stderr: u64,
    exited: bool,
}

impl End {
    fn of(process: &Process) -> End {
        End {
            stdout: process.stdout_bytes,
            stderr: process.stderr_bytes,
            exited: false,
        }
    }

    fn saw(&mut self, event: &ExecEvent) {
        let less = |left: &mut u64, bytes: u64| *left = left.saturating_sub(bytes);
        match event {
            ExecEvent::Started(started) => {
                less(&mut self.stdout, started.stdout_from);
                less(&mut self.stderr, started.stderr_from);
            }
            ExecEvent::Stdout(bytes) => less(&mut self.stdout, bytes.len() as u64),
            ExecEvent::Stderr(bytes) => less(&mut self.stderr, bytes.len() as u64),
            ExecEvent::Gap(gap) => match gap.channel {
                Channel::Stdout => less(&mut self.stdout, gap.to - gap.from),
                Channel::Stderr => less(&mut self.stderr, gap.to - gap.from),
            },
            ExecEvent::Exited(_) => self.exited = true,
            ExecEvent::Sandbox(_) => {}
        }
    }

    fn reached(&self) -> bool {
        self.exited || (self.stdout == 0 && self.stderr == 0)
    }
}

async fn so_far(session: ExecSession, process: &Process) -> Result<ExitCode> {
    let mut end = End::of(process);
    let mut output = Output::default();
    let mut events = session.events;
    while !end.reached() {
        let Some(event) = events.next().await else {
            break;
        };
        let event = event?;
        end.saw(&event);
        let written = match event {
            ExecEvent::Stdout(bytes) => output.write(To::Stdout, bytes).await,
            ExecEvent::Stderr(bytes) => output.write(To::Stderr, bytes).await,
            _ => Ok(()),
        };
        if let Err(broken) = written {
            return live::unread(broken);
        }
    }
    match output.finish().await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(broken) => live::unread(broken),
    }
}

/// Join a process that runs: its output here, our input and signals there
///
/// The way back to a command whose connection was lost. The exit code is the command's.
/// A process on a terminal is left with the detach keys; any other with a third Ctrl-C
/// (the first is passed on, the second kills it).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu attach sb-3f9k2m7qx0ab
  motu attach sb-3f9k2m7qx0ab build
  motu attach --from-start sb-3f9k2m7qx0ab 17")]
pub struct AttachArgs {
    #[command(flatten)]
    which: Which,

    /// Begin with all output that is still kept
    #[arg(long)]
    from_start: bool,

    /// Pass standard input on
    #[arg(short = 'i', long)]
    stdin: bool,

    /// Keys that leave a process on a terminal running
    #[arg(long, value_name = "KEYS", default_value = "ctrl-p,ctrl-q", value_parser = word::<Keys>)]
    detach_keys: Keys,
}

impl AttachArgs {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let process = self.which.find(&client).await?;
        let id = &self.which.id;
        let from = match self.from_start || process.exited.is_some() {
            true => AttachFrom::Oldest,
            false => AttachFrom::Newest,
        };
        let session = client
            .attach(id, &Selector::Pid(process.pid), from.into())
            .await?;
        if !process.tty {
            let live = Live {
                stdin: self.stdin,
                tty: false,
                back: Some(id.clone()),
            };
            return live::follow(session, live).await;
        }
        match detach::attach(session, self.detach_keys).await? {
            Attached::Ended(exited) => Ok(live::exit_code(exited.exit_code, exited.timed_out)),
            Attached::Left => {
                show::note(&format!(
                    "left {0}; `motu attach {id} {0}` comes back\n",
                    process.pid
                ));
                Ok(ExitCode::SUCCESS)
            }
        }
    }
}

/// Wait until a process has ended
///
/// The exit code is the command's.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu wait sb-3f9k2m7qx0ab build
  motu wait --json sb-3f9k2m7qx0ab 17")]
pub struct WaitArgs {
    #[command(flatten)]
    which: Which,

    /// Print how it ended as JSON
    #[arg(long)]
    pub json: bool,
}

impl WaitArgs {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let process = self.which.find(&client).await?;
        let exited = match process.exited {
            Some(exited) => exited,
            None => {
                let process = Selector::Pid(process.pid);
                let session = client
                    .attach(&self.which.id, &process, AttachFrom::Newest.into())
                    .await?;
                ended(session).await?
            }
        };
        if self.json {
            show::json(&exited);
        }
        Ok(live::exit_code(exited.exit_code, exited.timed_out))
    }
}

async fn ended(mut session: ExecSession) -> Result<motu_core::exec::Exited> {
    while let Some(event) = session.events.next().await {
        if let ExecEvent::Exited(exited) = event? {
            return Ok(exited);
        }
    }
    Err(Error::transport("the session ended before the process did"))
}

/// Send a signal to a process
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu kill sb-3f9k2m7qx0ab web
  motu kill --signal HUP sb-3f9k2m7qx0ab 17
  motu kill --tree sb-3f9k2m7qx0ab build")]
pub struct KillArgs {
    #[command(flatten)]
    which: Which,

    /// The signal, by name or number
    #[arg(short, long, value_name = "SIGNAL", default_value = "KILL")]
    signal: String,

    /// To everything it has started too, wherever that has gone
    #[arg(long)]
    tree: bool,

    /// Print the process as JSON
    #[arg(long)]
    pub json: bool,
}

impl KillArgs {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client();
        let signal = Signal::try_from(self.signal.clone())?;
        let process = self.which.find(&client).await?;
        let selector = Selector::Pid(process.pid);
        client
            .signal_process(
                &self.which.id,
                &selector,
                SignalProcess {
                    signal,
                    tree: self.tree,
                },
            )
            .await?;
        answer(self.json, &process, |process| format!("{}\n", process.pid));
        Ok(ExitCode::SUCCESS)
    }
}

/// List the processes that were started in a sandbox
#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// The sandbox
    #[arg(value_name = "ID", value_parser = SandboxId::parse)]
    id: SandboxId,

    /// Print everything that is known of them as JSON
    #[arg(long)]
    pub json: bool,
}

impl TopArgs {
    pub async fn run(self, context: &Context) -> Result<ExitCode> {
        let processes = context.client().list_processes(&self.id).await?;
        answer(self.json, &processes, |processes| table(processes));
        Ok(ExitCode::SUCCESS)
    }
}

fn table(processes: &[Process]) -> String {
    let now = Timestamp::now().as_millisecond();
    let row = |process: &Process| {
        let started = process.started_at.as_millisecond();
        let state = match &process.exited {
            None => "running".to_string(),
            Some(exited) => format!("exited {}", exited.exit_code),
        };
        vec![
            process.pid.to_string(),
            dash(&process.tag),
            process.user.clone(),
            state,
            show::seconds((now - started).max(0) / 1000),
            show::bytes(process.stdout_bytes + process.stderr_bytes),
            process.command.join(" "),
        ]
    };
    let rows: Vec<Vec<String>> = processes.iter().map(row).collect();
    show::table(
        &["PID", "TAG", "USER", "STATE", "AGE", "OUTPUT", "COMMAND"],
        &rows,
    )
}

fn dash(text: &str) -> String {
    match text {
        "" => "-".to_string(),
        text => text.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::exec::Exited;

    fn process(pid: u32, ended: bool) -> Process {
        Process {
            pid,
            tag: String::new(),
            command: vec!["true".to_string()],
            tty: false,
            user: "root".to_string(),
            workdir: "/".to_string(),
            started_at: Timestamp::UNIX_EPOCH,
            alive: u32::from(!ended),
            stdout_bytes: 0,
            stderr_bytes: 0,
            exited: ended.then(Exited::default),
        }
    }

    #[test]
    fn the_one_that_runs_is_meant() {
        let id = SandboxId::parse("a").unwrap();
        let pid = |processes| only(processes, &id).map(|process| process.pid);
        assert_eq!(pid(vec![process(1, true), process(2, false)]), Ok(2));
        assert_eq!(pid(vec![process(1, true)]), Ok(1));
        assert!(pid(vec![process(1, false), process(2, false)]).is_err());
        assert!(pid(vec![]).is_err());
    }
}
