//! One typed call: files in, one command, a bounded answer, and an explicit end of its state.

use crate::ask::Ask;
use crate::bounds::Bounds;
use crate::policy::PolicyRef;
use crate::size::Size;
use crate::{Error, ErrorKind, Isolation, Project, Result, SandboxId, limits};
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
    /// Set by a face that could not read the request: the call fails with this. So it is recorded
    /// and classified like any other that fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    pub misread: Option<Misread>,
}

/// Why a request cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Misread {
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The field that is wrong, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
    /// It is longer than requests may be.
    pub too_long: bool,
}

impl Misread {
    pub fn error(&self) -> Error {
        let (kind, mut details) = match self.too_long {
            true => {
                let limit = limits::REQUEST_BODY_BYTES.name;
                (ErrorKind::Limit, serde_json::json!({ "limit": limit }))
            }
            false => (ErrorKind::Invalid, serde_json::json!({})),
        };
        if let Some(field) = &self.field {
            details["field"] = field.clone().into();
        }
        let hint = self.hint.as_deref();
        Error::new(kind, &self.message)
            .hint(hint.unwrap_or("docs/calls.md lists the fields"))
            .details(details)
    }
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

/// Where a call's state comes from, and what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CallState {
    pub retention: Retention,
    /// The `sandbox_id` of a call that kept its state: this call goes on with it, and says anew
    /// what becomes of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<SandboxId>,
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
    pub fn of(error: &Error) -> FailureClass {
        match error.kind {
            ErrorKind::Denied | ErrorKind::Unauthenticated => FailureClass::PolicyDenial,
            ErrorKind::Invalid | ErrorKind::NotFound | ErrorKind::Unsupported => {
                FailureClass::ValidationFailure
            }
            ErrorKind::Limit => match error.details["limit"].as_str() {
                Some(name) if name == limits::REQUEST_BODY_BYTES.name => {
                    FailureClass::ValidationFailure
                }
                // A machine that met a limit of its own: what ran in it asked for too much.
                _ if error.details["state"].is_string() => FailureClass::GuestCommandFailure,
                // A quota, or what the host may hold.
                _ => FailureClass::PolicyDenial,
            },
            ErrorKind::Timeout => FailureClass::Timeout,
            ErrorKind::Cleanup => FailureClass::CleanupFailure,
            ErrorKind::Conflict
            | ErrorKind::Unavailable
            | ErrorKind::Transport
            | ErrorKind::Internal => FailureClass::TransportFailure,
        }
    }

    /// What to do about an error of this class.
    fn advice(self, kind: ErrorKind) -> &'static str {
        match (self, kind) {
            (FailureClass::PolicyDenial, ErrorKind::Unauthenticated) => {
                "no: with a key that is good"
            }
            (FailureClass::PolicyDenial, ErrorKind::Limit) => {
                "later, when less is in use, or with a higher limit from the operator"
            }
            (FailureClass::TransportFailure, ErrorKind::Conflict) => {
                "yes, the same request, when what it waits for has ended"
            }
            // Whoever lost the connection does not know how far the call came.
            (FailureClass::TransportFailure, ErrorKind::Transport) => {
                "yes, the same request; if it was to keep its state, look first whether it did"
            }
            (class, _) => class.retry(),
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

    fn misread(error: &Error) -> Option<CallRequest> {
        let read = matches!(error.kind, ErrorKind::Invalid | ErrorKind::Limit);
        read.then(|| CallRequest {
            misread: Some(Misread {
                message: error.message.clone(),
                hint: error.hint.clone(),
                field: error.details["field"].as_str().map(str::to_string),
                too_long: error.kind == ErrorKind::Limit,
            }),
            ..CallRequest::default()
        })
    }

    /// Adds the class of the failure and what to do about it.
    fn failed(error: Error) -> Error {
        let mut details = match error.details.clone() {
            serde_json::Value::Object(details) => details,
            _ => serde_json::Map::new(),
        };
        if details.contains_key("class") {
            return error;
        }
        let class = FailureClass::of(&error);
        let advice = class.advice(error.kind);
        details.insert("class".to_string(), serde_json::json!(class));
        details.insert("retry".to_string(), advice.into());
        error.details(details.into())
    }

    fn sandboxes(&mut self) -> Vec<&mut SandboxId> {
        let from = self.state.as_mut().and_then(|state| state.from.as_mut());
        from.into_iter().collect()
    }

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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_error_has_a_class_and_keeps_what_it_said() {
        for (kind, class) in [
            (ErrorKind::Denied, "policy_denial"),
            (ErrorKind::Unauthenticated, "policy_denial"),
            (ErrorKind::Invalid, "validation_failure"),
            (ErrorKind::Timeout, "timeout"),
            (ErrorKind::Conflict, "transport_failure"),
            (ErrorKind::Transport, "transport_failure"),
            (ErrorKind::Unavailable, "transport_failure"),
            (ErrorKind::Cleanup, "cleanup_failure"),
        ] {
            let error = Error::new(kind, "x").details(json!({"rule": "r"}));
            let classed = CallRequest::failed(error);
            assert_eq!(classed.details["class"], class);
            assert_eq!(classed.details["rule"], "r");
            assert!(classed.details["retry"].is_string());
            assert_eq!(CallRequest::failed(classed.clone()), classed);
        }
    }

    #[test]
    fn a_limit_is_of_the_request_the_machine_or_the_operator() {
        let classed = |details| {
            let error = Error::limit("x").details(details);
            CallRequest::failed(error).details
        };
        let quota = classed(json!({"limit": "quota_sandboxes"}));
        assert_eq!(quota["class"], "policy_denial");
        assert!(
            quota["retry"]
                .as_str()
                .is_some_and(|retry| retry.starts_with("later"))
        );
        let long = classed(json!({"limit": "request_body_bytes"}));
        assert_eq!(long["class"], "validation_failure");
        let full = classed(json!({"sandbox_id": "sb-a", "state": "failed"}));
        assert_eq!(full["class"], "guest_command_failure");
    }

    #[test]
    fn a_request_that_cannot_be_read_is_still_a_call() {
        let wrong = Error::invalid("env is no field").details(json!({"field": "env"}));
        let call = CallRequest::misread(&wrong).expect("a call");
        let sent = serde_json::to_string(&call).expect("JSON");
        let call: CallRequest = serde_json::from_str(&sent).expect("a call");
        let error = call.misread.expect("what was wrong").error();
        assert_eq!(
            (error.kind, error.message.as_str()),
            (ErrorKind::Invalid, "env is no field")
        );
        assert_eq!(error.details["field"], "env");
        assert_eq!(CallRequest::misread(&Error::unavailable("x")), None);
    }
}
