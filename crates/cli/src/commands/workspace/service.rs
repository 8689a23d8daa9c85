//! `motu workspace service`: long-running processes with a name.

use super::Which;
use crate::commands::shape::{Variables, word};
use crate::failure::Reader;
use crate::live;
use crate::show::answer;
use crate::{show, waiting};
use jiff::Timestamp;
use motu_api::Client;
use motu_core::Result;
use motu_core::workspace::{
    LogOptions, Publish, Readiness, Restart, SecretEnv, ServiceLogs, ServiceState, ServiceStatus,
    StartService, Workspaces,
};
use std::process::ExitCode;

/// Run long-running processes with a name in a workspace
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Start(Box<StartArgs>),
    /// List the services of a workspace, ended ones included
    List {
        #[command(flatten)]
        which: Which,
    },
    /// Show one service
    Status(One),
    Logs(LogsArgs),
    /// End a service and everything it started
    Stop(One),
}

#[derive(Debug, clap::Args)]
struct One {
    #[command(flatten)]
    which: Which,

    /// The service
    #[arg(value_name = "SERVICE")]
    service: String,
}

/// Start a service, and wait until it is ready
///
/// Without a --ready option it is ready when it runs. One that does not become ready
/// in time, or ends before, is failed, and that is an error (124 when its time was up).
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace service start ws-3f9k2m7qx0ab web --ready-http 8000 \\
      --publish 8080:8000 -- python3 -m http.server 8000
  motu workspace service start ws-3f9k2m7qx0ab worker --restart on-failure \\
      --ready-log 'listening' --secret-env API_KEY -- ./worker

Ports are published on 127.0.0.1, in workspaces with --network-policy egress+published-ports.")]
struct StartArgs {
    #[command(flatten)]
    one: One,

    /// The directory it starts in [default: /workspace]
    #[arg(long, alias = "workdir", value_name = "DIR")]
    cwd: Option<String>,

    /// The user it runs as [default: that of the environment]
    #[arg(long, value_name = "USER")]
    user: Option<String>,

    #[command(flatten)]
    variables: Variables,

    /// Give it a secret of the workspace as a variable; may be given several times
    #[arg(long, value_name = "NAME[=ENV]", value_parser = word::<SecretEnv>)]
    secret_env: Vec<SecretEnv>,

    /// Publish a port of it on 127.0.0.1; may be given several times
    #[arg(long, value_name = "[HOST:]GUEST", value_parser = word::<Publish>)]
    publish: Vec<Publish>,

    /// When it is started again after it ended: never, on-failure or always
    #[arg(long, value_name = "WHEN", default_value = "never", value_parser = Restart::parse)]
    restart: Restart,

    #[command(flatten)]
    ready: ReadyArgs,

    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND", required = true)]
    command: Vec<String>,
}

/// What shows that a service does its work.
#[derive(Debug, clap::Args)]
struct ReadyArgs {
    /// Ready when this file exists
    #[arg(
        long,
        value_name = "PATH",
        group = "readiness",
        help_heading = "Readiness"
    )]
    ready_file: Option<String>,

    /// Ready when this port takes connections
    #[arg(long, value_name = "PORT", group = "readiness", help_heading = "Readiness", value_parser = Readiness::tcp)]
    ready_tcp: Option<Readiness>,

    /// Ready when a GET on this port is answered with a status below 400
    #[arg(long, value_name = "PORT[/PATH]", group = "readiness", help_heading = "Readiness", value_parser = Readiness::http)]
    ready_http: Option<Readiness>,

    /// Ready when this shell command, inside, exits with 0
    #[arg(
        long,
        value_name = "COMMAND",
        allow_hyphen_values = true,
        group = "readiness",
        help_heading = "Readiness"
    )]
    ready_command: Option<String>,

    /// Ready when a line of its output matches this regular expression
    #[arg(
        long,
        value_name = "REGEX",
        allow_hyphen_values = true,
        group = "readiness",
        help_heading = "Readiness"
    )]
    ready_log: Option<String>,

    /// How long it may take to become ready [default: 30]
    #[arg(long, value_name = "SECONDS", help_heading = "Readiness")]
    ready_timeout_seconds: Option<u64>,

    /// The longest pause between two looks [default: 500]
    #[arg(long, value_name = "MS", help_heading = "Readiness")]
    ready_interval_ms: Option<u64>,
}

/// Show the output of a service
///
/// What it wrote to standard output and standard error goes to ours.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace service logs ws-3f9k2m7qx0ab web --tail-lines 20
  motu workspace service logs ws-3f9k2m7qx0ab web --follow")]
struct LogsArgs {
    #[command(flatten)]
    one: One,

    /// The last so many lines [default: 200]
    #[arg(long, value_name = "N", conflicts_with = "all")]
    tail_lines: Option<u64>,

    /// Everything that is kept
    #[arg(long)]
    all: bool,

    /// Go on with what comes, until the service ends or you press Ctrl-C
    #[arg(short, long, conflicts_with = "json")]
    follow: bool,
}

impl ReadyArgs {
    /// clap lets at most one of them be given.
    fn readiness(&self) -> Option<Readiness> {
        let file = self.ready_file.clone().map(|path| Readiness::File { path });
        let command = self.ready_command.clone();
        let pattern = self.ready_log.clone();
        file.or_else(|| self.ready_tcp.clone())
            .or_else(|| self.ready_http.clone())
            .or_else(|| command.map(|command| Readiness::Command { command }))
            .or_else(|| pattern.map(|pattern| Readiness::Log { pattern }))
    }
}

impl Args {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        match self.command {
            Command::Start(args) => return args.run(client, json).await,
            Command::Logs(args) => return args.run(client, json).await,
            Command::List { which } => {
                answer(json, &client.list_services(&which.id).await?, |all| {
                    rows(all)
                });
            }
            Command::Status(one) => {
                let status = client.status_service(&one.which.id, &one.service);
                answer(json, &status.await?, facts);
            }
            Command::Stop(one) => {
                let status = client.stop_service(&one.which.id, &one.service);
                answer(json, &status.await?, |status| {
                    let name = show::safe(&status.service_name);
                    format!("{name} is {}\n", status.state.as_str())
                });
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl StartArgs {
    async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let request = StartService {
            service_name: self.one.service,
            cwd: self.cwd,
            user: self.user,
            env: self.variables.read()?,
            secret_env: self.secret_env,
            readiness: self.ready.readiness(),
            ready_timeout_seconds: self.ready.ready_timeout_seconds,
            ready_interval_ms: self.ready.ready_interval_ms,
            restart: self.restart,
            published_ports: self.publish,
            command: self.command,
            ..StartService::default()
        };
        let work = client.start_service(&self.one.which.id, request);
        let reader = Reader::of(json);
        let status = waiting::told("waiting until it is ready", reader, work).await?;
        answer(json, &status, facts);
        match status.state {
            ServiceState::Failed => Ok(ExitCode::FAILURE),
            _ => Ok(ExitCode::SUCCESS),
        }
    }
}

impl LogsArgs {
    async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let (id, name) = (&self.one.which.id, &self.one.service);
        let options = LogOptions {
            tail_lines: self.tail_lines,
            all: self.all,
        };
        // Follow first, so that nothing is missed in between; a line may be shown twice.
        let session = match self.follow {
            true => Some(client.follow_service(id, name).await?),
            false => None,
        };
        let logs = client.logs_service(id, name, options).await?;
        if json {
            show::json(&logs);
        } else {
            told(&logs, self.all);
        }
        match session {
            Some(session) => live::watch(session).await,
            None => Ok(ExitCode::SUCCESS),
        }
    }
}

fn told(logs: &ServiceLogs, all: bool) {
    match (logs.truncated, all) {
        (true, true) => show::note("(older output is no longer kept)\n"),
        (true, false) => show::note("(older output is not shown; --all shows all that is kept)\n"),
        (false, _) => {}
    }
    show::foreign(&logs.stdout);
    show::foreign_error(&logs.stderr);
}

fn ports(status: &ServiceStatus) -> Option<String> {
    let one = |port: &motu_core::workspace::PublishedPort| {
        format!("{}:{} -> {}", port.host, port.host_port, port.guest_port)
    };
    let all: Vec<String> = status.published_ports.iter().map(one).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

fn facts(status: &ServiceStatus) -> String {
    let ended = status.exit_code.map(|code| code.to_string());
    show::facts(&[
        ("service", Some(status.service_name.clone())),
        ("state", Some(status.state.as_str().to_string())),
        ("reason", status.reason.clone()),
        ("command", Some(status.command.join(" "))),
        ("directory", Some(status.cwd.clone())),
        ("pid", status.pid.map(|pid| pid.to_string())),
        ("exit code", ended),
        ("ports", ports(status)),
        ("started", Some(status.started_at.to_string())),
        ("ready", status.ready_at.map(|at| at.to_string())),
        ("ended", status.ended_at.map(|at| at.to_string())),
        (
            "restarts",
            (status.restart_count > 0).then(|| status.restart_count.to_string()),
        ),
    ])
}

fn rows(services: &[ServiceStatus]) -> String {
    let now = Timestamp::now();
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_string());
    let row = |status: &ServiceStatus| {
        vec![
            status.service_name.clone(),
            status.state.as_str().to_string(),
            or_dash(status.pid.map(|pid| pid.to_string())),
            or_dash(status.exit_code.map(|code| code.to_string())),
            show::ago(status.ended_at.unwrap_or(status.started_at), now),
            status.restart_count.to_string(),
            or_dash(ports(status)),
            status.command.join(" "),
        ]
    };
    let rows: Vec<Vec<String>> = services.iter().map(row).collect();
    let headings = [
        "SERVICE", "STATE", "PID", "EXIT", "SINCE", "RESTARTS", "PORTS", "COMMAND",
    ];
    show::table(&headings, &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_may_be_written_in_several_ways() {
        for text in ["80", "127.0.0.1:80", "localhost:80"] {
            assert_eq!(Readiness::tcp(text).unwrap(), Readiness::Tcp { port: 80 });
        }
        let up = Readiness::Http {
            port: 80,
            path: Some("/up".to_string()),
        };
        for text in ["80/up", "http://127.0.0.1:80/up", "localhost:80/up"] {
            assert_eq!(Readiness::http(text).unwrap(), up);
        }
        for text in ["", "0", "65536", "example.org:80", "http://"] {
            assert!(Readiness::http(text).is_err(), "{text}");
        }
        assert!(Readiness::tcp("80/up").is_err());
    }
}
