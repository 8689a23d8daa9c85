//! What the service tells about itself, its host and its machines.

use crate::ask::Ask;
use crate::leave::HostPath;
use crate::{Error, Isolation, Project, Result};
use serde::{Deserialize, Serialize};

/// One measurement of a sandbox, taken now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Metrics {
    pub cpu_us: u64,
    pub cpus: u32,
    pub memory_used_bytes: u64,
    pub memory_total_bytes: u64,
    pub disk_used_bytes: u64,
    pub disk_total_bytes: u64,
    pub processes: u32,
    pub uptime_ms: u64,
    pub guest_rss_bytes: u64,
}

/// A TCP port something in a sandbox listens on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Port {
    pub port: u32,
    pub address: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<String>,
}

/// How one check of `motu doctor` came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    Ok,
    /// Works, with less than there could be.
    Degraded,
    Failed,
}

/// One check: what was looked at, what was found, and what would help.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Check {
    pub name: String,
    pub health: Health,
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

/// A runtime as it is on this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct RuntimeReport {
    pub name: String,
    pub isolation: Isolation,
    pub works: bool,
    /// Its machines run on an emulated processor: chosen only when nothing faster will do.
    pub emulated: bool,
    /// Why it does not, or what it found.
    pub detail: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
    pub checks: Vec<Check>,
    pub capabilities: Vec<String>,
}

/// The whole answer of `motu doctor`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Doctor {
    pub healthy: bool,
    pub version: String,
    pub link_version: u32,
    pub store_version: u32,
    pub home: String,
    pub privilege: String,
    /// What `auto` would choose, if anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<String>,
    pub runtimes: Vec<RuntimeReport>,
    pub host: Vec<Check>,
}

/// What a daemon is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Version {
    pub version: String,
    pub api_version: String,
    pub pid: u32,
    pub home: String,
}

/// A step of a long call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ProgressEvent {
    pub stage: String,
    pub message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
}

/// An environment, installed or only known by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Environment {
    pub name: String,
    /// Whose it is, such as `project:acme`; missing where it is the host's, which every project may
    /// start from.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub owner: String,
    pub description: String,
    pub installed: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_at: Option<String>,
    pub architecture: String,
    pub default_user: String,
    pub default_workdir: String,
    pub source: String,
    pub packages: Vec<String>,
    /// Of the image it was unpacked from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub manifest_digest: Option<String>,
    /// Of the image, from the lowest to the highest.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<EnvironmentLayer>,
    /// What the image runs before `cmd`, or with it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entrypoint: Vec<String>,
    /// What the image runs when nothing else is asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cmd: Vec<String>,
    /// In the answer to a build: what it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<crate::build::BuildReport>,
}

/// What a caller reads about an environment that is not there for it.
pub fn no_environment(name: &str) -> Error {
    Error::not_found(format!("there is no environment {name}")).hint(crate::hint![
        crate::hint::verb("list_environments"),
        " shows them"
    ])
}

/// The environment that a call failed for, where it is known and only not installed: pulling it is
/// all that is missing.
pub fn not_installed(error: &Error) -> Option<&str> {
    let known = error.kind == crate::ErrorKind::NotFound && error.details["installed"] == false;
    known.then(|| error.details["environment"].as_str().unwrap_or_default())
}

/// One layer of the image an environment was unpacked from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct EnvironmentLayer {
    /// Of the layer as it was received.
    pub digest: String,
    pub size_bytes: u64,
}

/// What a backup holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Backup {
    pub output_path: String,
    /// The workspaces and kept sandboxes that are in it.
    pub sandbox_ids: Vec<crate::SandboxId>,
}

/// What a prune removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Pruned {
    pub removed: Vec<String>,
    pub freed_bytes: u64,
    /// Kept because sandboxes still use them.
    pub in_use: Vec<String>,
}

/// How closely the host is looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Examine {
    /// Also boot a machine with each runtime.
    pub deep: bool,
}

/// Where everything that is kept is copied to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackUp {
    /// A directory on the host that does not exist yet, or is empty.
    pub output_path: String,
}

/// Which environments go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Prune {
    /// Also environments that could be used again.
    pub all: bool,
}

/// Another name for an environment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TagAs {
    /// Whose it will be; the gate says, not the caller.
    #[serde(skip)]
    pub owner: String,
    /// A word, such as `mine:1`, that is not the name of anything yet.
    pub name: String,
}

/// What an archive becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ImportAs {
    /// Whose it will be; the gate says, not the caller.
    #[serde(skip)]
    pub owner: String,
    /// A word, such as `mine:1`; the name in the archive when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

impl Ask for ImportAs {
    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn within(&mut self, project: &Project) -> Result<()> {
        match &mut self.name {
            Some(name) => project.complete_name(name),
            // The name in the archive could be that of anything.
            None => {
                return Err(
                    Error::invalid("the environment has no name").hint(crate::hint![
                        "say ",
                        crate::hint::field("name"),
                        ": what is in a project gets no name of an archive"
                    ]),
                );
            }
        }
        Ok(())
    }
}
impl Ask for Examine {}
impl Ask for Prune {}
impl Ask for TagAs {
    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn within(&mut self, project: &Project) -> Result<()> {
        project.complete_name(&mut self.name);
        Ok(())
    }
}

impl Ask for BackUp {
    fn host_paths(&self) -> Vec<&'static str> {
        vec!["output_path"]
    }

    fn places(&mut self) -> Vec<HostPath<'_>> {
        vec![HostPath::writes("output_path", &mut self.output_path)]
    }
}

/// Where the steps of a long call are reported. Never waited for: a slow reader misses steps, not the call.
pub type ProgressSink = tokio::sync::mpsc::Sender<ProgressEvent>;
