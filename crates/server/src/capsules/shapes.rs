//! The shapes of host agents: what comes in, and what is answered.

use jiff::Timestamp;
use motu_core::exec::{ExecRequest, Process, TtySize};
use motu_core::files::{FileEntry, FileType, GuestPath};
use motu_core::limits::{DISK_MIB, TERMINAL_COLS, TERMINAL_ROWS};
use motu_core::sandbox::{Sandbox, State};
use motu_core::template::Template;
use motu_core::{Result, SandboxId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The template that is always there: that of this name, or else the configured environment.
pub const MINIMAL: &str = "minimal";
/// Memory where neither the request nor its template names any.
pub const MEMORY_MIB: u64 = 512;
/// The label of sandboxes that were made here; others are not in the lists.
pub const MADE_HERE: &str = "motu/capsule";

pub fn is_capsule(sandbox: &Sandbox) -> bool {
    sandbox.labels.contains_key(MADE_HERE)
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewCapsule {
    /// A template, or else an environment; default `minimal`.
    pub template: String,
    pub vcpus: Option<u64>,
    /// Default 512.
    pub memory_mb: Option<u64>,
    /// Paused after so much quiet; 0 (the default) is never.
    pub timeout_sec: Option<u64>,
    /// The runtime that makes it; the strongest that works when missing.
    pub runtime: Option<String>,
    /// Labels of the caller's own.
    pub metadata: BTreeMap<String, String>,
}

/// Where a capsule is in its life, in the words of host agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = CapsuleStatus)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Starting,
    Running,
    Paused,
    /// It has no machine; its disks are kept.
    Hibernated,
    /// Its machine ended without being asked to.
    Error,
    Stopping,
    /// It is gone.
    Stopped,
}

impl From<State> for Status {
    fn from(state: State) -> Status {
        match state {
            State::Creating => Status::Starting,
            State::Running => Status::Running,
            State::Paused => Status::Paused,
            State::Stopped => Status::Hibernated,
            State::Failed => Status::Error,
            State::Destroying => Status::Stopping,
            State::Destroyed => Status::Stopped,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Capsule {
    pub id: SandboxId,
    pub status: Status,
    pub template: String,
    /// What makes its machine, and what that isolates by.
    pub runtime: String,
    pub isolation: String,
    pub vcpus: u64,
    pub memory_mb: u64,
    /// What it may write to its disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub disk_size_mb: Option<u64>,
    pub timeout_sec: u64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_active_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_updated: Timestamp,
    /// Labels of the caller's own, `runtime` and `isolation`.
    pub metadata: BTreeMap<String, String>,
}

impl Capsule {
    pub fn of(sandbox: Sandbox) -> Capsule {
        let isolation = sandbox.isolation.to_string();
        let mut metadata = sandbox.labels;
        metadata.remove(MADE_HERE);
        metadata.insert("runtime".to_string(), sandbox.runtime.clone());
        metadata.insert("isolation".to_string(), isolation.clone());
        let disk = sandbox
            .limits
            .iter()
            .find(|limit| limit.name == DISK_MIB.name);
        Capsule {
            id: sandbox.sandbox_id,
            status: sandbox.state.into(),
            runtime: sandbox.runtime,
            isolation,
            disk_size_mb: disk.map(|limit| limit.value),
            template: match sandbox.template {
                Some(template) => template.name,
                None => sandbox.environment,
            },
            vcpus: sandbox.vcpu_count,
            memory_mb: sandbox.mem_mib,
            timeout_sec: sandbox.idle_seconds,
            created_at: sandbox.created_at,
            // Its machine is made with it.
            started_at: sandbox.created_at,
            last_active_at: sandbox.last_activity_at,
            last_updated: sandbox.last_activity_at,
            metadata,
        }
    }
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = CapsuleCommand)]
#[serde(deny_unknown_fields, default)]
pub struct NewCommand {
    pub cmd: String,
    pub args: Vec<String>,
    /// A command in the foreground is killed after so long, which is an error; default 30.
    pub timeout_sec: Option<u64>,
    pub background: bool,
    /// To find it again by, in the background; `proc-` and eight digits when missing.
    pub tag: Option<String>,
    pub envs: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub user: Option<String>,
}

impl NewCommand {
    pub fn request(&self) -> ExecRequest {
        let words = std::iter::once(&self.cmd).chain(&self.args);
        let mut ask = ExecRequest::default();
        ask.program.command = words
            .filter(|word| *word != &self.cmd || !word.is_empty())
            .cloned()
            .collect();
        ask.program.env = self.envs.clone();
        ask.program.workdir = self.cwd.clone();
        ask.program.user = self.user.clone();
        ask.program.timeout_seconds = self.timeout_sec.filter(|_| !self.background);
        ask.tag = self.tag.clone();
        ask
    }
}

/// A program on a terminal.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = CapsuleTerminal)]
#[serde(deny_unknown_fields, default)]
pub struct NewTerminal {
    /// A shell when missing.
    pub cmd: String,
    pub args: Vec<String>,
    /// Default 80.
    pub cols: Option<u16>,
    /// Default 24.
    pub rows: Option<u16>,
    /// To find it again by; `pty-` and eight digits when missing.
    pub tag: Option<String>,
    pub envs: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub user: Option<String>,
    /// How output is sent: as it is, in binary messages, unless it is asked for in JSON.
    pub encoding: Option<Encoding>,
}

/// How the output of a terminal is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = CapsuleEncoding)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Binary messages.
    Binary,
    /// Messages of JSON with `data` in base64, and which bytes of all output they are.
    Base64,
}

/// bash where there is one.
const SHELL: &str = "command -v bash >/dev/null && exec bash; exec sh";

impl NewTerminal {
    pub fn request(mut self) -> ExecRequest {
        if self.cmd.is_empty() && self.args.is_empty() {
            self.cmd = "/bin/sh".to_string();
            self.args = vec!["-c".to_string(), SHELL.to_string()];
        }
        let size = TtySize {
            cols: self.cols.unwrap_or(TERMINAL_COLS.default as u16),
            rows: self.rows.unwrap_or(TERMINAL_ROWS.default as u16),
        };
        let command = NewCommand {
            cmd: self.cmd,
            args: self.args,
            tag: self.tag,
            envs: self.envs,
            cwd: self.cwd,
            user: self.user,
            background: true,
            timeout_sec: None,
        };
        let mut ask = command.request();
        ask.program.stdin = true;
        ask.tty = Some(size);
        ask
    }
}

/// A path in a capsule, and how deep to look.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = CapsulePath)]
#[serde(deny_unknown_fields, default)]
pub struct CapsuleAt {
    pub path: String,
    pub depth: Option<u32>,
}

impl CapsuleAt {
    pub fn path(&self) -> Result<GuestPath> {
        GuestPath::new(self.path.clone().into_bytes())
    }
}

/// Which capsule is saved, and as what: `template-` and eight digits when no name is given.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = SaveCapsule)]
#[serde(deny_unknown_fields, default)]
pub struct NewSnapshot {
    pub sandbox_id: String,
    pub name: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CapsuleResult)]
pub struct Ran {
    pub sandbox_id: SandboxId,
    pub cmd: String,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: i32,
    pub duration_ms: u64,
    /// `base64` when one of the two is no text.
    #[schema(value_type = String)]
    pub encoding: &'static str,
    pub timed_out: bool,
    pub truncated: bool,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CapsuleStarted)]
pub struct Started {
    pub sandbox_id: SandboxId,
    pub cmd: String,
    pub pid: u32,
    pub tag: String,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CapsuleProcess)]
pub struct Running {
    pub pid: u32,
    pub tag: String,
    pub cmd: String,
    pub args: Vec<String>,
}

impl Running {
    pub fn of(process: Process) -> Running {
        let mut words = process.command.into_iter();
        Running {
            pid: process.pid,
            tag: process.tag,
            cmd: words.next().unwrap_or_default(),
            args: words.collect(),
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CapsulePoint)]
pub struct Point {
    pub timestamp_unix: i64,
    pub cpu_pct: f64,
    pub mem_bytes: u64,
    pub disk_bytes: u64,
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CapsuleEntry)]
pub struct Entry {
    pub name: String,
    pub path: String,
    #[serde(rename = "type")]
    pub kind: FileType,
    pub size: u64,
    pub mode: u32,
    pub permissions: String,
    pub owner: String,
    pub group: String,
    /// Seconds since 1970.
    pub modified_at: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
}

impl Entry {
    pub fn of(entry: FileEntry) -> Entry {
        Entry {
            name: entry.name,
            path: entry.path,
            // Host agents know no other kinds; `mode` tells what it is.
            kind: match entry.kind {
                FileType::Other => FileType::File,
                kind => kind,
            },
            size: entry.size_bytes,
            mode: entry.mode,
            permissions: entry.permissions,
            owner: entry.owner,
            group: entry.group,
            modified_at: entry.modified_at.as_second(),
            symlink_target: entry.link_target,
        }
    }
}

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SavedCapsule)]
pub struct Saved {
    pub name: String,
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: &'static str,
    pub vcpus: Option<u64>,
    pub memory_mb: Option<u64>,
    pub size_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub created_at: Option<Timestamp>,
    /// It is the host's, and everybody's.
    pub platform: bool,
    /// It cannot be removed.
    pub protected: bool,
    pub metadata: BTreeMap<String, String>,
}

/// A template that was saved from a sandbox.
pub const SNAPSHOT: &str = "snapshot";
/// A template that was defined.
pub const BASE: &str = "base";

impl Saved {
    pub fn of(template: Template) -> Saved {
        Saved {
            kind: match template.saved {
                Some(_) => SNAPSHOT,
                None => BASE,
            },
            platform: false,
            protected: false,
            metadata: template.definition.labels,
            vcpus: template.definition.size.vcpu_count,
            memory_mb: template.definition.size.mem_mib,
            size_bytes: template.saved.map(|saved| saved.size_bytes),
            created_at: Some(template.created_at),
            name: template.name,
        }
    }

    /// The one that is there without having been made: the configured environment.
    pub fn minimal() -> Saved {
        Saved {
            name: MINIMAL.to_string(),
            kind: BASE,
            vcpus: None,
            memory_mb: Some(MEMORY_MIB),
            size_bytes: None,
            created_at: None,
            platform: true,
            protected: true,
            metadata: BTreeMap::new(),
        }
    }
}

/// A capsule that was saved, and the template it was saved as.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CapsuleSnapshotted)]
pub struct Snapshotted {
    #[serde(flatten)]
    pub capsule: Capsule,
    pub name: String,
    #[serde(rename = "type")]
    #[schema(value_type = String)]
    pub kind: &'static str,
    pub size_bytes: Option<u64>,
    pub platform: bool,
    pub protected: bool,
}

impl Snapshotted {
    pub fn of(sandbox: Sandbox, template: Template) -> Snapshotted {
        let saved = Saved::of(template);
        Snapshotted {
            capsule: Capsule::of(sandbox),
            name: saved.name,
            kind: saved.kind,
            size_bytes: saved.size_bytes,
            platform: saved.platform,
            protected: saved.protected,
        }
    }
}
