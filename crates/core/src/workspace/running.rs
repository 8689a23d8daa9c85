//! What runs in a workspace for longer than a call: services and shells.

use super::{Readiness, SecretEnv, WorkspaceId};
use crate::ask::Ask;
use crate::exec::{ExecMode, TtySize};
use crate::limits;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// When a service that ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Restart {
    #[default]
    Never,
    OnFailure,
    Always,
}

impl Restart {
    pub const NAMES: [&'static str; 3] = ["never", "on-failure", "always"];

    pub fn parse(text: &str) -> Result<Restart, crate::Error> {
        match text {
            "never" => Ok(Restart::Never),
            "on-failure" | "on_failure" => Ok(Restart::OnFailure),
            "always" => Ok(Restart::Always),
            other => Err(
                crate::Error::invalid(format!("there is no restart policy {other:?}"))
                    .hint(format!("one of: {}", Restart::NAMES.join(", "))),
            ),
        }
    }
}

/// A port of the guest, and where it is reached on 127.0.0.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Publish {
    pub guest_port: u16,
    /// Chosen by the host when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_port: Option<u16>,
}

impl std::str::FromStr for Publish {
    type Err = crate::Error;

    /// `GUEST` or `HOST:GUEST`.
    fn from_str(text: &str) -> Result<Publish, crate::Error> {
        let bad = || {
            crate::Error::invalid(format!("{:?} is not a port to publish", text.chars().take(40).collect::<String>()))
                .hint("write GUEST_PORT or HOST_PORT:GUEST_PORT; guest ports are 1 to 65535, host ports 1024 to 65535")
        };
        let port = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0);
        let (host, guest) = match text.split_once(':') {
            Some((host, guest)) => (Some(port(host).ok_or_else(bad)?), guest),
            None => (None, text),
        };
        Ok(Publish {
            guest_port: port(guest).ok_or_else(bad)?,
            host_port: host,
        })
    }
}

/// A long-running process with a name.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StartService {
    pub service_name: String,
    pub command: Vec<String>,
    pub mode: ExecMode,
    /// Default `/workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Name or number of the user it runs as; default: that of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub env: BTreeMap<String, String>,
    pub secret_env: Vec<SecretEnv>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    /// Default 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_timeout_seconds: Option<u64>,
    /// The longest pause between two probes; default 500.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready_interval_ms: Option<u64>,
    pub restart: Restart,
    pub published_ports: Vec<Publish>,
}

/// Where a service is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ServiceState {
    Starting,
    Running,
    /// Ended as it was asked to.
    Stopped,
    /// Ended by itself with exit code 0.
    Exited,
    /// Ended by itself otherwise, or never became ready.
    Failed,
}

impl ServiceState {
    pub fn as_str(self) -> &'static str {
        match self {
            ServiceState::Starting => "starting",
            ServiceState::Running => "running",
            ServiceState::Stopped => "stopped",
            ServiceState::Exited => "exited",
            ServiceState::Failed => "failed",
        }
    }

    pub fn is_alive(self) -> bool {
        matches!(self, ServiceState::Starting | ServiceState::Running)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PublishedPort {
    pub guest_port: u16,
    pub host: String,
    pub host_port: u16,
}

/// What is known of a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServiceStatus {
    pub workspace_id: WorkspaceId,
    pub service_name: String,
    pub state: ServiceState,
    /// Why it ended, or is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub command: Vec<String>,
    pub cwd: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ready_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub ended_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    pub restart: Restart,
    pub restart_count: u64,
    pub published_ports: Vec<PublishedPort>,
}

/// Which part of a service's output.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LogOptions {
    /// The last so many lines; default 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tail_lines: Option<u64>,
    /// Everything that is kept.
    pub all: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ServiceLogs {
    pub workspace_id: WorkspaceId,
    pub service_name: String,
    pub stdout: String,
    pub stderr: String,
    /// Older output is not here.
    pub truncated: bool,
}

/// A persistent terminal.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OpenShell {
    /// Default `/workspace`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Default 120.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// Default 30.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
    /// Name or number of the user it runs as; default: that of the environment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    pub env: BTreeMap<String, String>,
    pub secret_env: Vec<SecretEnv>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Shell {
    pub workspace_id: WorkspaceId,
    pub shell_id: String,
    /// `running`, `closed` or `ended`.
    pub state: String,
    pub cwd: String,
    pub size: TtySize,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
}

#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadShell {
    /// Where to begin: `next_cursor` of the last read.
    pub cursor: u64,
    /// Default 65536.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_chars: Option<u64>,
    /// Text as a person would see it, without control sequences.
    pub plain: bool,
    /// Answer when nothing has come for this long.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wait_for_idle_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ShellOutput {
    pub workspace_id: WorkspaceId,
    pub shell_id: String,
    pub state: String,
    pub cursor: u64,
    pub next_cursor: u64,
    pub output: String,
    /// There is more; read on from `next_cursor`.
    pub truncated: bool,
    /// Output before `cursor` was no longer kept.
    pub lost: bool,
    pub plain: bool,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WriteShell {
    pub input: String,
    /// Default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub append_newline: Option<bool>,
}

/// A signal for what runs in the foreground of a shell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignalShell {
    /// A name such as `INT` (the default), or a number as text.
    pub signal: String,
}

impl Default for SignalShell {
    fn default() -> SignalShell {
        SignalShell {
            signal: "INT".to_string(),
        }
    }
}

/// The size of the terminal of whoever sits down at a shell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AttachShell {
    /// Columns of the caller's terminal; default 120.
    pub cols: u16,
    /// Rows of the caller's terminal; default 30.
    pub rows: u16,
}

impl Default for AttachShell {
    fn default() -> AttachShell {
        AttachShell {
            cols: limits::SHELL_COLS.default as u16,
            rows: limits::SHELL_ROWS.default as u16,
        }
    }
}

impl From<TtySize> for AttachShell {
    fn from(TtySize { cols, rows }: TtySize) -> AttachShell {
        AttachShell { cols, rows }
    }
}

impl From<AttachShell> for TtySize {
    fn from(AttachShell { cols, rows }: AttachShell) -> TtySize {
        TtySize { cols, rows }
    }
}

impl Ask for StartService {
    const LONG: bool = true;

    /// A published port is one of the host's own.
    fn host_paths(&self) -> Vec<&'static str> {
        match self.published_ports.is_empty() {
            true => Vec::new(),
            false => vec!["published_ports"],
        }
    }
}
impl Ask for LogOptions {}
impl Ask for OpenShell {}
impl Ask for ReadShell {}
impl Ask for WriteShell {}
impl Ask for SignalShell {}
impl Ask for AttachShell {}
