//! One typed call: files in, one command, a bounded answer, and an explicit end of its state.

use crate::ask::Ask;
use crate::bounds::Bounds;
use crate::policy::PolicyRef;
use crate::size::Size;
use crate::{ErrorKind, Isolation, Project, Result, SandboxId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Where the files of a call are, and where its command runs.
pub const WORK: &str = "/work";

/// What a model may ask for. Unknown fields are refused, and everything is bounded by a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallRequest {
    /// Who it is for; the gate says, not the caller.
    #[serde(skip)]
    pub owner: String,
    /// What the caller's key allows; the gate says, not the caller.
    #[serde(skip)]
    pub bounds: Bounds,
    /// One of the policy's languages, such as `python`. This or `image`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<String>,
    /// One of the policy's environments, such as `debian:12`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    pub files: Vec<CallFile>,
    /// The program and its arguments. It runs in `/work`.
    pub command: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    pub network: CallNetwork,
    /// Variables of the command by the names of secrets: `{"KEY": {"ref": "openai-api-key"}}`.
    pub secrets: BTreeMap<String, SecretRef>,
    /// What becomes of the machine. It must be said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<CallState>,
    /// Of standard output and of standard error, each.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
    pub limits: CallLimits,
    /// Files of the machine that come back with the answer.
    pub files_out: Vec<String>,
    /// The policy that applies; `none` when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
}

/// A file that a call brings along.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallFile {
    /// In the machine, below `/work`, `/workspace` or `/tmp`; without a `/` at its beginning,
    /// below `/work`.
    pub path: String,
    pub content: String,
    /// `utf-8` (the default) or `base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
    /// Its owner may run it.
    pub executable: bool,
}

/// What a call may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallNetwork {
    pub mode: CallNetworkMode,
    /// Only these, of what the policy allows. Empty: all that it allows.
    pub allow: Vec<CallDestination>,
}

#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CallNetworkMode {
    /// No device.
    #[default]
    None,
    /// What the policy allows.
    Bridge,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallDestination {
    pub host: String,
    pub port: u16,
}

/// A secret by its name. Values are never part of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretRef {
    #[serde(rename = "ref")]
    pub name: String,
}

/// What becomes of a call's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallState {
    pub retention: Retention,
    /// How long what is kept stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Retention {
    /// Everything goes with the answer.
    Destroy,
    /// A workspace stays, stopped: its files.
    Stop,
    /// A workspace stays, paused: its files, memory and processes.
    Cold,
    /// A workspace stays, stopped, with a named snapshot of its files.
    Snapshot,
}

impl Retention {
    pub const NAMES: [&'static str; 4] = ["destroy", "stop", "cold", "snapshot"];

    pub fn as_str(self) -> &'static str {
        match self {
            Retention::Destroy => Self::NAMES[0],
            Retention::Stop => Self::NAMES[1],
            Retention::Cold => Self::NAMES[2],
            Retention::Snapshot => Self::NAMES[3],
        }
    }
}

/// Sizes of the machine; within what the policy allows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CallLimits {
    #[serde(flatten)]
    pub size: Size,
}

/// What came of a call whose command ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CallResult {
    pub sandbox_id: SandboxId,
    /// Missing when the command was ended.
    pub exit_code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub timed_out: bool,
    pub audit_id: String,
    pub retention: Retention,
    /// Some of the output is left out.
    pub truncated: bool,
    pub duration_ms: u64,
    pub runtime: String,
    pub isolation: Isolation,
    pub policy: PolicyRef,
    pub files_out: Vec<OutputFile>,
    /// The name of the snapshot, where one was asked for.
    pub snapshot: Option<String>,
    /// When the state that is kept goes.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// What went wrong, if anything did.
    pub failure: Option<Failure>,
}

/// What would become of a call. Nothing was started for it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CallPlan {
    /// It would run.
    pub allowed: bool,
    /// Everything that was looked at, in order.
    pub checks: Vec<CallCheck>,
    /// Each destination that is asked for.
    pub destinations: Vec<CheckedDestination>,
    pub policy: Option<PolicyRef>,
    /// What it would run in; missing when the request itself is wrong.
    pub environment: Option<String>,
    pub runtime: Option<String>,
    pub isolation: Option<Isolation>,
    pub timeout_seconds: Option<u64>,
    pub max_output_bytes: Option<u64>,
    pub retention: Option<Retention>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CallCheck {
    pub check: String,
    pub allowed: bool,
    /// The class of failure that the call would end in.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<FailureClass>,
    /// The rule of the policy, or the limit, that says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The hint as data, as in an error.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<crate::hint::Next>,
}

/// What the policy says of a destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CheckedDestination {
    pub host: String,
    pub port: u16,
    pub allowed: bool,
    /// The rule that opens it.
    pub rule: Option<String>,
    pub message: String,
}

/// A file that a call gives back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct OutputFile {
    pub path: String,
    pub content: String,
    /// `utf-8` or `base64`.
    pub encoding: String,
    pub bytes: u64,
    /// Why there is no content, if there is none.
    pub error: Option<String>,
}

/// Why a call did not do what it was to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Failure {
    pub class: FailureClass,
    /// A word that stays the same: the kind of the error, or `exit_code`, `timeout`, `cleanup`.
    pub code: String,
    /// Whether and how to try again.
    pub retry: String,
    pub message: String,
}

/// Six ways to fail, which need six different reactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    PolicyDenial,
    ValidationFailure,
    Timeout,
    GuestCommandFailure,
    TransportFailure,
    CleanupFailure,
}

impl FailureClass {
    /// The class of a call that ended in an error.
    pub fn of(kind: ErrorKind) -> FailureClass {
        match kind {
            ErrorKind::Denied => FailureClass::PolicyDenial,
            ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Unsupported => {
                FailureClass::ValidationFailure
            }
            ErrorKind::Timeout => FailureClass::Timeout,
            ErrorKind::Cleanup => FailureClass::CleanupFailure,
            _ => FailureClass::TransportFailure,
        }
    }

    /// What to do about it.
    pub fn retry(self) -> &'static str {
        match self {
            FailureClass::PolicyDenial => {
                "no: ask for less, or ask the operator for another policy"
            }
            FailureClass::ValidationFailure => "no: change the request",
            FailureClass::Timeout => "with a longer timeout_seconds, or less work",
            FailureClass::GuestCommandFailure => "after changing the command or its files",
            FailureClass::TransportFailure => "yes, the same request: nothing was kept of this one",
            FailureClass::CleanupFailure => "no: the command ran; look at what it left behind",
        }
    }
}

impl Ask for CallRequest {
    const LONG: bool = true;

    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn bounded(&mut self, bounds: &Bounds) {
        self.bounds = bounds.clone();
    }

    fn within(&mut self, project: &Project) -> Result<()> {
        let secrets = self.secrets.values_mut();
        project.complete_names(secrets.map(|secret| &mut secret.name));
        Ok(())
    }

    fn environments(&mut self) -> Vec<&mut String> {
        self.image.iter_mut().collect()
    }
}
