//! A sandbox: how it is asked for and what is known of it.

use crate::ask::Ask;
use crate::bounds::Bounds;
use crate::call::{CallDestination, SecretRef};
use crate::hint::verb;
use crate::page::Page;
use crate::policy::PolicyRef;
use crate::size::Size;
use crate::template::TemplateRef;
use crate::{Accel, Error, Isolation, Project, Result, SandboxId, hint};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a caller asks for. Everything but the environment has a default.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateSandbox {
    /// Who it belongs to; the gate says, not the caller.
    #[serde(skip)]
    pub owner: String,
    /// What the caller's key allows; the gate says, not the caller.
    #[serde(skip)]
    pub bounds: Bounds,
    /// The environment to start from, such as `debian:12`. This or `template`.
    pub environment: String,
    /// The template to start from. What the request says itself wins over what the template says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The template that was filled in.
    #[serde(skip)]
    pub made_from: Option<TemplateRef>,
    /// Of a build: the tree that the environment is becoming.
    #[serde(skip)]
    pub root: Option<StartRoot>,
    /// An id of the caller's own; generated when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    /// `auto` (the default) or a runtime's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The weakest isolation that will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(flatten)]
    pub size: Size,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pids_max: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nofile: Option<u64>,
    /// Megabytes in a second, read and written each; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_mbps: Option<u64>,
    /// Reads in a second, and writes; 0: no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub iops: Option<u64>,
    /// How long it lives; 0: until it is destroyed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
    /// What happens when nobody has used it for `idle_seconds`.
    #[serde(skip_serializing_if = "OnIdle::is_default")]
    pub on_idle: OnIdle,
    /// Outgoing network: the policy `public`, unless `policy` names another.
    pub network: bool,
    /// The policy of its network, which it then has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Of a call, which asks for less than its policy allows.
    #[serde(skip)]
    pub narrowed: Option<Vec<CallDestination>>,
    /// Of a template: the only hosts of its policy that are reached, unless there are none.
    #[serde(skip)]
    pub allowed_hosts: Vec<String>,
    /// Variables that hold placeholders of secrets that are bound to hosts:
    /// `{"KEY": {"ref": "openai-api-key"}}`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_refs: BTreeMap<String, SecretRef>,
    /// Run on the host, with no isolation, if no runtime works.
    pub allow_host_compat: bool,
    /// What a virtual machine's processor runs on.
    pub accel: Accel,
    /// Keep the disks when the machine ends, so that the sandbox can be stopped and started.
    pub keep: bool,
    /// Environment variables of every command.
    pub env: BTreeMap<String, String>,
    /// The user commands run as; the environment's own when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The working directory of commands; the environment's own when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workdir: Option<String>,
    /// Labels of the caller's own. They are shown with the sandbox and change nothing else.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// A tree that is not an environment yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartRoot {
    pub path: std::path::PathBuf,
    /// Of the tree, or empty.
    pub digest: String,
    /// Programs with the setuid bit are to work.
    pub wants_sudo: bool,
}

/// What happens to a sandbox that nobody has used for its `idle_seconds`. A command, a transfer or
/// a connection that goes on counts as use; what runs in the background does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnIdle {
    /// It is destroyed.
    #[default]
    Destroy,
    /// It is paused, and goes on by itself when it is used again.
    Pause,
}

impl std::str::FromStr for OnIdle {
    type Err = Error;

    fn from_str(text: &str) -> Result<OnIdle> {
        match text {
            "destroy" => Ok(OnIdle::Destroy),
            "pause" => Ok(OnIdle::Pause),
            other => Err(Error::invalid(format!(
                "{other:?} is nothing that can happen to an idle sandbox"
            ))
            .hint("one of: destroy, pause")),
        }
    }
}

impl OnIdle {
    pub fn is_default(&self) -> bool {
        *self == OnIdle::default()
    }
}

/// Since when a sandbox is paused, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Paused {
    pub by: PausedBy,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PausedBy {
    /// Somebody asked for it.
    Caller,
    /// Nobody used it, and it was created with `on_idle: pause`. The next use wakes it.
    Idle,
    /// The host has no space on its disk.
    Shortage,
}

/// Where a sandbox is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    Creating,
    Running,
    Paused,
    /// It has no machine now; its disks are kept.
    Stopped,
    /// Its machine ended without being asked to; `reason` says why.
    Failed,
    Destroying,
    Destroyed,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            State::Creating => "creating",
            State::Running => "running",
            State::Paused => "paused",
            State::Stopped => "stopped",
            State::Failed => "failed",
            State::Destroying => "destroying",
            State::Destroyed => "destroyed",
        }
    }
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One limit as it really applies to one sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct AppliedLimit {
    /// A name from the table of limits.
    pub name: String,
    pub value: u64,
    pub enforced: bool,
    /// What enforces it (`cgroup v1 memory`), or why nothing does.
    pub by: String,
}

/// What is known of a sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Sandbox {
    pub sandbox_id: SandboxId,
    /// Who it belongs to: `uid:` and a user of the host. Empty when it is older than owners are.
    #[serde(default)]
    pub owner: String,
    pub state: State,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    pub environment: String,
    /// Digest of the root it started from.
    pub digest: String,
    /// The template it came from, as it was then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<TemplateRef>,
    pub runtime: String,
    pub isolation: Isolation,
    /// What its processor runs on (`kvm`, `tcg`), where there is a choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accelerator: Option<String>,
    /// Its disks outlive its machine.
    #[serde(default)]
    pub keep: bool,
    /// `off`, `egress`, or `host` where nothing isolates.
    pub network: String,
    /// What it may reach; nothing when missing.
    #[serde(default)]
    pub policy: Option<PolicyRef>,
    pub vcpu_count: u64,
    pub mem_mib: u64,
    pub limits: Vec<AppliedLimit>,
    pub user: String,
    pub workdir: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    #[serde(alias = "last_active_at")]
    pub last_activity_at: Timestamp,
    /// Missing when it never expires.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// 0: it lives until it is destroyed.
    pub ttl_seconds: u64,
    pub idle_seconds: u64,
    #[serde(default, skip_serializing_if = "OnIdle::is_default")]
    pub on_idle: OnIdle,
    /// While it is paused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paused: Option<Paused>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl Sandbox {
    /// Refuses what only a running machine does.
    pub fn check_running(&self) -> Result<()> {
        if self.state == State::Running {
            return Ok(());
        }
        let (id, state) = (&self.sandbox_id, self.state);
        let error = match state {
            State::Destroyed => Error::not_found(format!("sandbox {id} was destroyed")),
            _ => Error::conflict(format!("sandbox {id} is {state}")),
        };
        let error = error.details(serde_json::json!({"sandbox_id": id, "state": state}));
        Err(match state {
            State::Paused => error.hint(hint![
                verb("resume_sandbox").with("id", id.as_str()),
                " wakes it"
            ]),
            _ => error,
        })
    }

    /// The names of the limits that nothing enforces.
    pub fn not_enforced(&self) -> Vec<String> {
        let left = self.limits.iter().filter(|limit| !limit.enforced);
        left.map(|limit| limit.name.clone()).collect()
    }

    /// Whether its commands work on the host's own files: nothing isolates them, and they started
    /// from no environment.
    pub fn on_host_files(&self) -> bool {
        self.isolation == Isolation::None && self.digest.is_empty()
    }
}

/// Which sandboxes are listed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ListSandboxes {
    /// Who asks: a project is shown its own. Said by the gate.
    #[serde(skip)]
    pub owner: String,
    /// Also those that are gone, as far as they are remembered.
    pub all: bool,
    /// At most so many (`page_items`), the oldest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    /// The `next_cursor` of the page before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

/// How many live copies are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Fork {
    /// How many copies; default 1.
    pub count: u64,
}

impl Default for Fork {
    fn default() -> Fork {
        Fork { count: 1 }
    }
}

/// The time to live, and how commands start, from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Keepalive {
    /// A new time to live; the old one again when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// How long nobody may use it from now on; as before when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u64>,
    /// What happens then; as before when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_idle: Option<OnIdle>,
    /// Whom commands run as that name nobody; as before when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Variables that every command gets beside those it gets already.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
}

impl Ask for CreateSandbox {
    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn bounded(&mut self, bounds: &Bounds) {
        self.bounds = bounds.clone();
    }

    fn within(&mut self, project: &Project) -> Result<()> {
        if let Some(id) = &mut self.sandbox_id {
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
}

impl Ask for Fork {}
impl Ask for ListSandboxes {
    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn page(&self) -> Page {
        Page {
            owner: self.owner.clone(),
            limit: self.limit,
            cursor: self.cursor.clone(),
        }
    }
}
impl Ask for Keepalive {}
