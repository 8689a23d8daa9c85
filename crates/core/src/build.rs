//! Building environments from others.

use crate::ask::Ask;
use crate::bounds::Bounds;
use crate::size::Size;
use crate::{Project, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What is built: the instructions of a Dockerfile, or an environment and commands to run in it.
#[derive(Clone, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BuildRequest {
    /// Who the machines of the build belong to; the gate says, not the caller.
    #[serde(skip)]
    pub owner: String,
    /// What the caller's key allows; the gate says, not the caller.
    #[serde(skip)]
    pub bounds: Bounds,
    /// What the result is called: a word, such as `mine:1`. It may mean something else before.
    /// A name is made of the digest when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The text of a Dockerfile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile: Option<String>,
    /// What the Dockerfile is called in messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dockerfile_name: Option<String>,
    /// Instead of a Dockerfile: the environment to begin with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// With `from`: commands for its shell, one step each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub run: Vec<String>,
    /// The files that `COPY` and `ADD` take, as `send_build_context` answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_id: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub build_args: BTreeMap<String, String>,
    /// Values for `RUN --mount=type=secret`, by id. They are in no layer and no output; keys of the
    /// cache depend on them by a hash that nobody can repeat without a key of the host.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secrets: BTreeMap<String, String>,
    /// The stage to build; the last one when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Run every step again.
    pub no_cache: bool,
    /// The policy of the network that `RUN` has; none when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// Of a template: its name.
    #[serde(skip)]
    pub made_for: Option<String>,
    /// Of a template: the only hosts of the policy that are reached, unless there are none.
    #[serde(skip)]
    pub allowed_hosts: Vec<String>,
    /// Of a template: variables of every `RUN`, which are not part of the result.
    #[serde(skip)]
    pub env: BTreeMap<String, String>,
    /// Of a template: who commands of the result run as, and where.
    #[serde(skip)]
    pub default_user: Option<String>,
    #[serde(skip)]
    pub default_workdir: Option<String>,
    /// What makes the machines; `container` when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    #[serde(flatten)]
    pub size: Size,
    /// How long one step may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
}

impl std::fmt::Debug for BuildRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets and arguments never reach a log.
        write!(f, "BuildRequest(name: {:?})", self.name)
    }
}

impl Ask for BuildRequest {
    const LONG: bool = true;

    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn bounded(&mut self, bounds: &Bounds) {
        self.bounds = bounds.clone();
    }

    fn within(&mut self, project: &Project) -> Result<()> {
        project.complete_names(&mut self.name);
        Ok(())
    }

    fn environments(&mut self) -> Vec<&mut String> {
        self.from.iter_mut().collect()
    }
}

/// Files that wait for a build. They are gone after it, or after an hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BuildContext {
    pub context_id: String,
    pub bytes: u64,
}

/// What a build did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct BuildReport {
    /// Steps of all stages that were needed.
    pub steps: u64,
    /// Those whose result was there already.
    pub cached: u64,
    pub duration_ms: u64,
}
