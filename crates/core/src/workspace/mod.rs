//! A workspace: a sandbox that is kept.
//!
//! It has `/workspace` with an immutable baseline, snapshots, services, shells,
//! secrets and history. Its id is also the id of its sandbox.

mod content;
mod readiness;
mod running;

pub use crate::verb::Workspaces;
pub use content::*;
pub use readiness::Readiness;
pub use running::*;

use crate::ask::Ask;
use crate::bounds::Bounds;
use crate::call::{CallDestination, SecretRef};
use crate::leave::HostPath;
use crate::policy::PolicyRef;
use crate::program::Program;
use crate::size::Size;
use crate::{Accel, Error, Isolation, Project, SandboxId, sandbox::State};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A workspace's name; also its sandbox's.
pub type WorkspaceId = SandboxId;

/// Where the kept files of a workspace are, inside its machine.
pub const WORKSPACE: &str = "/workspace";

/// The name of the state a workspace was created in.
pub const BASELINE: &str = "baseline";

/// What a workspace may reach, and who may reach it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
pub enum NetworkPolicy {
    /// Nothing in, nothing out.
    #[default]
    #[serde(rename = "off")]
    Off,
    #[serde(rename = "egress")]
    Egress,
    /// Also: services may publish ports on 127.0.0.1.
    #[serde(rename = "egress+published-ports")]
    EgressPublishedPorts,
}

impl NetworkPolicy {
    pub const NAMES: [&'static str; 3] = ["off", "egress", "egress+published-ports"];

    pub fn as_str(self) -> &'static str {
        match self {
            NetworkPolicy::Off => Self::NAMES[0],
            NetworkPolicy::Egress => Self::NAMES[1],
            NetworkPolicy::EgressPublishedPorts => Self::NAMES[2],
        }
    }
}

impl std::fmt::Display for NetworkPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for NetworkPolicy {
    type Err = Error;

    fn from_str(text: &str) -> Result<NetworkPolicy, Error> {
        match text {
            "off" => Ok(NetworkPolicy::Off),
            "egress" => Ok(NetworkPolicy::Egress),
            "egress+published-ports" => Ok(NetworkPolicy::EgressPublishedPorts),
            other => Err(
                Error::invalid(format!("there is no network policy {other:?}"))
                    .hint(format!("one of: {}", NetworkPolicy::NAMES.join(", "))),
            ),
        }
    }
}

/// A secret a caller hands over. Exactly one of `value` and `path`.
#[derive(Clone, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SecretSource {
    pub name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// A file on the daemon's host whose UTF-8 content is the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
}

impl std::fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The value never reaches a log.
        write!(f, "SecretSource({:?})", self.name)
    }
}

/// What may be said of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SecretInfo {
    pub name: String,
    /// `literal` or `file`.
    pub source_kind: String,
}

/// What a caller asks for. Everything but the environment has a default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateWorkspace {
    /// Who it belongs to; the gate says, not the caller.
    #[serde(skip)]
    pub owner: String,
    /// What the caller's key allows; the gate says, not the caller.
    #[serde(skip)]
    pub bounds: Bounds,
    /// The environment to start from. This or `template`.
    pub environment: String,
    /// The template to start from. What the request says itself wins over what the template says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The template that was filled in.
    #[serde(skip)]
    pub made_from: Option<crate::template::TemplateRef>,
    /// Of a template: variables of every command.
    #[serde(skip)]
    pub env: BTreeMap<String, String>,
    /// An id of the caller's own; generated when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workspace_id: Option<WorkspaceId>,
    /// A directory or a .tar/.tar.gz/.tgz archive on the daemon's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed_path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub network_policy: NetworkPolicy,
    /// The policy of its network; `public` when missing and there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Of a call, which asks for less than its policy allows.
    #[serde(skip)]
    pub narrowed: Option<Vec<CallDestination>>,
    /// Of a template: the only hosts of its policy that are reached, unless there are none.
    #[serde(skip)]
    pub allowed_hosts: Vec<String>,
    pub secrets: Vec<SecretSource>,
    /// Secrets by name: `{"KEY": {"ref": "openai-api-key"}}`. Of one that is bound to hosts the
    /// variable `KEY` holds a placeholder; any other becomes a secret of the workspace, named `KEY`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_refs: BTreeMap<String, SecretRef>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    pub accel: Accel,
    #[serde(flatten)]
    pub size: Size,
    /// Megabytes in a second, read and written each; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_mbps: Option<u64>,
    /// Reads in a second, and writes; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// Delete the workspace after this; 0 (the default): never.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// Work on the host itself, with no isolation, if no runtime works.
    pub allow_host_compat: bool,
    /// Save `/workspace` before each command, for `undo`; a command may say otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub checkpoint: bool,
}

/// How `/workspace` began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkspaceSeed {
    /// `empty`, `directory`, `tar_archive` or `fork`.
    pub mode: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed_path: Option<String>,
    pub destination: String,
    pub entry_count: u64,
    pub bytes_written: u64,
}

/// What is known of a workspace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Workspace {
    pub workspace_id: WorkspaceId,
    pub name: Option<String>,
    pub labels: BTreeMap<String, String>,
    /// `running`, `paused`, `stopped`, `failed`, …
    pub state: State,
    /// Why it is in that state, when nobody asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub environment: String,
    pub digest: String,
    /// The template it came from, as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<crate::template::TemplateRef>,
    pub runtime: String,
    pub isolation: Isolation,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Runs on the host itself, with no isolation.
    pub host_compat: bool,
    pub network_policy: NetworkPolicy,
    /// What it may reach; nothing when missing.
    #[serde(default)]
    pub policy: Option<PolicyRef>,
    pub vcpu_count: u64,
    pub mem_mib: u64,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_activity_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    pub workspace_path: String,
    pub workspace_seed: WorkspaceSeed,
    pub secrets: Vec<SecretInfo>,
    pub reset_count: u64,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_reset_at: Option<Timestamp>,
    pub command_count: u64,
    pub service_count: u64,
    pub running_service_count: u64,
    pub shell_count: u64,
    /// Named snapshots, the baseline not counted.
    pub snapshot_count: u64,
    /// `/workspace` is saved before each command.
    #[serde(default)]
    pub checkpoint: bool,
    /// How many commands `undo` can take back.
    #[serde(default)]
    pub checkpoint_count: u64,
}

/// One row of a listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct WorkspaceSummary {
    pub workspace_id: WorkspaceId,
    pub name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub environment: String,
    pub runtime: String,
    pub isolation: Isolation,
    pub state: State,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_activity_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    pub command_count: u64,
    pub service_count: u64,
    pub running_service_count: u64,
}

impl From<&Workspace> for WorkspaceSummary {
    fn from(workspace: &Workspace) -> WorkspaceSummary {
        WorkspaceSummary {
            workspace_id: workspace.workspace_id.clone(),
            name: workspace.name.clone(),
            labels: workspace.labels.clone(),
            environment: workspace.environment.clone(),
            runtime: workspace.runtime.clone(),
            isolation: workspace.isolation,
            state: workspace.state,
            created_at: workspace.created_at,
            last_activity_at: workspace.last_activity_at,
            expires_at: workspace.expires_at,
            command_count: workspace.command_count,
            service_count: workspace.service_count,
            running_service_count: workspace.running_service_count,
        }
    }
}

/// Changes what people find a workspace by, and nothing else.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct UpdateWorkspace {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    pub clear_name: bool,
    /// Added to the labels there are; equal keys are replaced.
    pub labels: BTreeMap<String, String>,
    /// Keys to remove.
    pub clear_labels: Vec<String>,
}

/// Live or saved copies of a workspace.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkWorkspace {
    /// How many; default 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// Names of the copies begin with this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A persisted secret and the variable it is given as.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretEnv {
    pub secret: String,
    /// The variable's name; the secret's own when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
}

impl std::str::FromStr for SecretEnv {
    type Err = Error;

    /// `SECRET` or `SECRET=VARIABLE`.
    fn from_str(text: &str) -> Result<SecretEnv, Error> {
        let (secret, variable) = match text.split_once('=') {
            Some((secret, variable)) => (secret, Some(variable.to_string())),
            None => (text, None),
        };
        if secret.is_empty() || variable.as_deref() == Some("") {
            return Err(Error::invalid(
                "a secret mapping is SECRET or SECRET=VARIABLE",
            ));
        }
        Ok(SecretEnv {
            secret: secret.to_string(),
            variable,
        })
    }
}

/// A command in a workspace. It runs in `/workspace` unless told otherwise.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct WorkspaceExec {
    #[serde(flatten)]
    pub program: Program,
    pub secret_env: Vec<SecretEnv>,
    /// Save `/workspace` first, for `undo`; default: what the workspace was created with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<bool>,
}

impl From<Program> for WorkspaceExec {
    fn from(program: Program) -> WorkspaceExec {
        WorkspaceExec {
            program,
            ..WorkspaceExec::default()
        }
    }
}

/// One command of a workspace's history. Output is cut, and secrets are redacted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CommandRecord {
    /// Counts from 1 since the creation or the last reset.
    pub sequence: u64,
    pub command: Vec<String>,
    pub workdir: String,
    /// Missing while it runs, and when its end was never seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// `running`, `exited`, `timed_out`, `cancelled`, `lost`; `background` for one that nobody
    /// waited for.
    pub status: String,
    pub stdout: String,
    pub stderr: String,
    pub truncated: bool,
    pub duration_ms: u64,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    /// The state that was saved before it, for `undo`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<String>,
}

/// How far `/workspace` goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Undo {
    /// How many commands with a checkpoint are taken back; default 1.
    pub steps: u64,
}

impl Default for Undo {
    fn default() -> Undo {
        Undo { steps: 1 }
    }
}

/// What an `undo` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Undone {
    pub workspace_id: WorkspaceId,
    pub steps: u64,
    /// The commands that were taken back, the last one first, as far as the history knows them.
    pub commands: Vec<Vec<String>>,
    /// Paths that were put back, and paths that were removed with all below them.
    pub restored_count: u64,
    pub removed_count: u64,
    /// How many more commands can be taken back.
    pub checkpoint_count: u64,
}

/// A page of history, oldest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CommandLog {
    pub workspace_id: WorkspaceId,
    pub count: u64,
    pub entries: Vec<CommandRecord>,
}

impl Ask for CreateWorkspace {
    const LONG: bool = true;

    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn bounded(&mut self, bounds: &Bounds) {
        self.bounds = bounds.clone();
    }

    fn within(&mut self, project: &Project) -> Result<(), Error> {
        if let Some(id) = &mut self.workspace_id {
            project.complete_id(id)?;
        }
        project.complete_names(&mut self.template);
        let secrets = self.secret_refs.values_mut();
        project.complete_names(secrets.map(|secret| &mut secret.name));
        Ok(())
    }

    fn wants_host(&self) -> bool {
        self.allow_host_compat
    }

    fn environments(&mut self) -> Vec<&mut String> {
        vec![&mut self.environment]
    }

    fn host_paths(&self) -> Vec<&'static str> {
        let seed = self.seed_path.is_some().then_some("seed_path");
        let secret = self.secrets.iter().any(|secret| secret.path.is_some());
        seed.into_iter()
            .chain(secret.then_some("secrets.path"))
            .collect()
    }

    fn places(&mut self) -> Vec<HostPath<'_>> {
        let seed = self.seed_path.iter_mut();
        let seed = seed.map(|path| HostPath::reads("seed_path", path));
        let secrets = self.secrets.iter_mut();
        let secrets = secrets.filter_map(|secret| secret.path.as_mut());
        seed.chain(secrets.map(|path| HostPath::reads("secrets.path", path)))
            .collect()
    }
}

impl Ask for UpdateWorkspace {}
impl Ask for ForkWorkspace {}
impl Ask for WorkspaceExec {
    const LONG: bool = true;
}
impl Ask for Undo {}
