//! Running commands: requests, live sessions, results.

use crate::ask::{Ask, Part};
use crate::audit::AuditId;
use crate::program::Program;
use crate::sandbox::{CreateSandbox, Sandbox};
use crate::{Error, Isolation, SandboxId, Signal};
use bytes::Bytes;
use futures_util::stream::BoxStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

pub use crate::program::ExecMode;

/// The size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TtySize {
    pub cols: u16,
    pub rows: u16,
}

/// One command to run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExecRequest {
    #[serde(flatten)]
    pub program: Program,
    /// Run on a terminal of this size.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tty: Option<TtySize>,
    /// No time limit (for terminals and services); excludes `timeout_seconds`.
    pub no_timeout: bool,
    /// A name to find the process again by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// Bytes kept per channel inside the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_ring_bytes: Option<u64>,
}

impl From<Program> for ExecRequest {
    fn from(program: Program) -> ExecRequest {
        ExecRequest {
            program,
            ..ExecRequest::default()
        }
    }
}

/// A one-shot: make a sandbox, run one command, throw the sandbox away.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunRequest {
    pub sandbox: CreateSandbox,
    pub exec: ExecRequest,
}

/// What happens in a live session, in order: `Sandbox` (one-shots only),
/// `Started`, output and gaps, `Exited`.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecEvent {
    Sandbox(Box<Sandbox>),
    Started(Started),
    Stdout(Bytes),
    Stderr(Bytes),
    Gap(Gap),
    Exited(Exited),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Started {
    pub pid: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tag: String,
    /// Byte offset at which the stdout of this session begins.
    pub stdout_from: u64,
    pub stderr_from: u64,
}

/// Output that was no longer kept when this reader asked for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Gap {
    pub channel: Channel,
    pub from: u64,
    pub to: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Channel {
    Stdout,
    Stderr,
}

/// Why a program was not started at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotStarted {
    /// There is no such program.
    NoSuchProgram,
    /// It is no program that this user may run here.
    NotExecutable,
    /// Its working directory is not there, or not for this user.
    NoSuchDirectory,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Exited {
    /// The exit code, or 128 + signal.
    pub exit_code: i32,
    /// Set when nothing ran: the exit code and standard error are then ours, as a shell has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_started: Option<NotStarted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub timed_out: bool,
    /// The memory limit killed something of it.
    pub out_of_memory: bool,
    pub duration_ms: u64,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub user_cpu_us: u64,
    pub system_cpu_us: u64,
    pub max_rss_bytes: u64,
}

/// What a caller may send into a live session.
#[derive(Clone, Debug, PartialEq)]
pub enum ExecInput {
    Stdin(Bytes),
    CloseStdin,
    Resize(TtySize),
    Signal(i32),
}

/// A live session. Dropping it kills what it started when the request said so
/// (one-shots, foreground execs) and leaves attached background processes alone.
pub struct ExecSession {
    pub events: BoxStream<'static, Result<ExecEvent, Error>>,
    /// Bounded: a command that does not read its input holds up its own sender only.
    pub input: mpsc::Sender<ExecInput>,
    /// What the call is named in the audit log.
    pub audit_id: Option<AuditId>,
}

impl ExecSession {
    pub fn new(
        events: BoxStream<'static, Result<ExecEvent, Error>>,
        input: mpsc::Sender<ExecInput>,
    ) -> ExecSession {
        ExecSession {
            events,
            input,
            audit_id: None,
        }
    }
}

impl std::fmt::Debug for ExecSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ExecSession")
    }
}

/// A collected exec. Output that is not UTF-8 is in the `_base64` fields.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ExecResult {
    pub sandbox_id: SandboxId,
    /// Its workspace, which has the same id, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<SandboxId>,
    pub environment: String,
    pub exit_code: i32,
    /// Set when nothing ran: the exit code and standard error are then ours, as a shell has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_started: Option<NotStarted>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr_base64: Option<String>,
    /// Whether output was cut at `max_output_bytes`.
    pub truncated: bool,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    pub timed_out: bool,
    pub out_of_memory: bool,
    pub duration_ms: u64,
    pub runtime: String,
    pub isolation: Isolation,
    /// What its processor runs on (`kvm`, `tcg`), where there is a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    pub network: String,
    /// The limits that nothing enforces on its machine; `limits` of the sandbox says why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_enforced: Vec<String>,
    /// What the call is named in the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audit_id: Option<AuditId>,
}

/// A process by pid or by tag.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    Pid(u32),
    Tag(String),
}

impl Selector {
    /// All digits is a pid, anything else a tag.
    pub fn parse(text: &str) -> Result<Selector, Error> {
        if text.bytes().all(|b| b.is_ascii_digit()) && !text.is_empty() {
            return text
                .parse()
                .map(Selector::Pid)
                .map_err(|_| Error::invalid("that pid is out of range"));
        }
        let valid = (1..=64).contains(&text.len())
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
        if !valid {
            return Err(Error::invalid("not a pid or tag")
                .hint("tags are 1 to 64 characters of a-z, A-Z, 0-9, '.', '_' and '-'"));
        }
        Ok(Selector::Tag(text.to_string()))
    }
}

/// Where an attached reader begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachFrom {
    /// At the oldest byte still kept.
    Oldest,
    /// Only what is new.
    Newest,
    /// Exactly here; what is gone comes back as a gap.
    Offsets { stdout: u64, stderr: u64 },
}

/// A process the service started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Process {
    pub pid: u32,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tag: String,
    pub command: Vec<String>,
    pub tty: bool,
    pub user: String,
    pub workdir: String,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// Living processes of its tree.
    pub alive: u32,
    pub stdout_bytes: u64,
    pub stderr_bytes: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exited: Option<Exited>,
}

/// A process that runs on after the call that started it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Background {
    pub pid: u32,
    pub tag: String,
}

/// Where to begin following a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Attach {
    /// `oldest` (the default) or `newest`, instead of offsets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Byte offset to begin at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_from: Option<u64>,
    /// Byte offset to begin at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_from: Option<u64>,
}

impl Attach {
    /// Everything still kept is the default.
    pub fn begin(&self) -> Result<AttachFrom, Error> {
        match (self.from.as_deref(), self.stdout_from, self.stderr_from) {
            (None | Some("oldest"), None, None) => Ok(AttachFrom::Oldest),
            (Some("newest"), None, None) => Ok(AttachFrom::Newest),
            (None, stdout, stderr) => Ok(AttachFrom::Offsets {
                stdout: stdout.unwrap_or(0),
                stderr: stderr.unwrap_or(0),
            }),
            _ => Err(Error::invalid("these attach parameters do not go together")
                .hint("either from=oldest, or from=newest, or stdout_from and stderr_from")),
        }
    }
}

impl From<AttachFrom> for Attach {
    fn from(begin: AttachFrom) -> Attach {
        let mut attach = Attach::default();
        match begin {
            AttachFrom::Oldest => attach.from = Some("oldest".to_string()),
            AttachFrom::Newest => attach.from = Some("newest".to_string()),
            AttachFrom::Offsets { stdout, stderr } => {
                attach.stdout_from = Some(stdout);
                attach.stderr_from = Some(stderr);
            }
        }
        attach
    }
}

/// A signal for a process, or for everything it started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalProcess {
    /// A name such as `TERM`, or a number as text.
    pub signal: Signal,
    /// Everything the process started, not only its group.
    #[serde(default)]
    pub tree: bool,
}

/// How something is typed into a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessInput {
    /// Close standard input after it.
    pub close: bool,
}

impl Ask for ExecRequest {
    const LONG: bool = true;
}
impl Ask for RunRequest {
    const LONG: bool = true;

    fn belongs_to(&mut self, owner: &str) {
        self.sandbox.belongs_to(owner);
    }

    fn bounded(&mut self, bounds: &crate::Bounds) {
        self.sandbox.bounded(bounds);
    }

    fn within(&mut self, project: &crate::Project) -> crate::Result<()> {
        self.sandbox.within(project)
    }

    fn wants_host(&self) -> bool {
        self.sandbox.wants_host()
    }

    fn environments(&mut self) -> Vec<&mut String> {
        self.sandbox.environments()
    }
}

impl Ask for Attach {}
impl Ask for SignalProcess {}
impl Ask for ProcessInput {}
impl Ask for TtySize {}

impl Part for Selector {
    fn text(part: &Selector) -> String {
        match part {
            Selector::Pid(pid) => pid.to_string(),
            Selector::Tag(tag) => tag.clone(),
        }
    }

    fn read(text: &str) -> crate::Result<Selector> {
        Selector::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attach_begins_where_it_is_told() {
        for begin in [
            AttachFrom::Oldest,
            AttachFrom::Newest,
            AttachFrom::Offsets {
                stdout: 7,
                stderr: 0,
            },
        ] {
            assert_eq!(Attach::from(begin).begin(), Ok(begin));
        }
    }
}
