//! The shapes of host agents: what comes in, and what is answered.

use jiff::Timestamp;
use motu_core::exec::{ExecRequest, Process, TtySize};
use motu_core::files::{FileEntry, FileType, GuestPath};
use motu_core::limits::{TERMINAL_COLS, TERMINAL_ROWS};
use motu_core::sandbox::{Sandbox, State};
use motu_core::template::Template;
use motu_core::{Result, SandboxId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NewCapsule {
    pub template: String,
    pub vcpus: Option<u64>,
    pub memory_mb: Option<u64>,
    /// Paused after so much quiet; 0 is never.
    pub timeout_sec: Option<u64>,
}

#[derive(Debug, Serialize, ToSchema)]
pub struct Capsule {
    pub id: SandboxId,
    pub status: State,
    pub template: String,
    pub vcpus: u64,
    pub memory_mb: u64,
    pub timeout_sec: u64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_active_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_updated: Timestamp,
    #[schema(value_type = BTreeMap<String, String>)]
    pub metadata: BTreeMap<&'static str, String>,
}

impl Capsule {
    pub fn of(sandbox: Sandbox) -> Capsule {
        let metadata = [
            ("runtime", sandbox.runtime.clone()),
            ("isolation", sandbox.isolation.to_string()),
        ];
        Capsule {
            id: sandbox.sandbox_id,
            status: sandbox.state,
            template: match sandbox.template {
                Some(template) => template.name,
                None => sandbox.environment,
            },
            vcpus: sandbox.vcpu_count,
            memory_mb: sandbox.mem_mib,
            timeout_sec: sandbox.idle_seconds,
            created_at: sandbox.created_at,
            last_active_at: sandbox.last_activity_at,
            last_updated: sandbox.last_activity_at,
            metadata: metadata.into(),
        }
    }
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = CapsuleCommand)]
#[serde(deny_unknown_fields, default)]
pub struct NewCommand {
    pub cmd: String,
    pub args: Vec<String>,
    pub timeout_sec: Option<u64>,
    pub background: bool,
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
    pub cmd: String,
    pub args: Vec<String>,
    /// Default 80.
    pub cols: Option<u16>,
    /// Default 24.
    pub rows: Option<u16>,
    /// To find it again by; one is made when missing.
    pub tag: Option<String>,
    pub envs: BTreeMap<String, String>,
    pub cwd: Option<String>,
    pub user: Option<String>,
}

impl NewTerminal {
    pub fn request(self) -> ExecRequest {
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

/// Which capsule is saved, and as what.
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
    #[schema(value_type = String, format = DateTime)]
    pub modified_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub symlink_target: Option<String>,
}

impl Entry {
    pub fn of(entry: FileEntry) -> Entry {
        Entry {
            name: entry.name,
            path: entry.path,
            kind: entry.kind,
            size: entry.size_bytes,
            mode: entry.mode,
            permissions: entry.permissions,
            owner: entry.owner,
            group: entry.group,
            modified_at: entry.modified_at,
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
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
}

impl Saved {
    pub fn of(template: Template) -> Saved {
        Saved {
            kind: "snapshot",
            vcpus: template.definition.size.vcpu_count,
            memory_mb: template.definition.size.mem_mib,
            size_bytes: template.saved.map(|saved| saved.size_bytes),
            created_at: template.created_at,
            name: template.name,
        }
    }
}
