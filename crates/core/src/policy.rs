//! Policies: what sandboxes may reach and what calls may ask for, by name.

use crate::ask::Ask;
use crate::bounds::Bounds;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The policy that opens the public internet: `--network` and `egress` mean this one.
pub const PUBLIC: &str = "public";
/// The policy that opens nothing: of every call that names no other.
pub const NONE: &str = "none";

/// Which policy applied, exactly.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PolicyRef {
    pub name: String,
    /// Of its text: `sha256:` and 64 digits.
    pub hash: String,
}

impl std::fmt::Display for PolicyRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name)
    }
}

/// A policy in a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PolicySummary {
    pub name: String,
    pub hash: String,
    /// `shipped` with motu, or a `file` of the operator's.
    pub source: String,
    pub description: String,
    /// What it opens, by name.
    pub capabilities: Vec<String>,
    /// Why it cannot be used; missing when it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A policy, as it is understood.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Policy {
    pub name: String,
    pub hash: String,
    pub source: String,
    pub description: String,
    /// Destinations that sandboxes may reach; all others are refused.
    pub allow: Vec<PolicyAllow>,
    /// Of a sandbox's network.
    pub network: NetworkBounds,
    /// Of calls.
    pub call: CallBounds,
    /// Its text.
    pub text: String,
}

/// One capability: destinations that go together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PolicyAllow {
    pub capability: String,
    /// A name, `*.suffix`, an address, a network, or `*` for everything public.
    pub hosts: Vec<String>,
    /// Empty: every port.
    pub ports: Vec<String>,
    pub protocol: String,
    /// What is neither HTTP nor TLS with a name may pass too.
    pub opaque: bool,
    /// The names may lead to private addresses.
    pub private: bool,
    /// The names may lead to addresses of IPv6.
    #[serde(default)]
    pub ipv6: bool,
}

/// How much a sandbox's network may carry; 0 is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct NetworkBounds {
    pub connections: u64,
    pub connects_per_second: u64,
    pub bytes_per_second: u64,
    pub bytes: u64,
}

/// What a call may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct CallBounds {
    /// Files that a call brings along.
    pub files: u64,
    pub file_bytes: u64,
    pub all_files_bytes: u64,
    /// Of standard output and of standard error, each.
    pub max_output_bytes: u64,
    /// Of a call that says nothing.
    pub timeout_seconds: u64,
    /// The most that a call may ask for.
    pub max_timeout_seconds: u64,
    /// Files that a call gives back.
    pub output_files: u64,
    pub output_file_bytes: u64,
    /// How long a state that is kept stays, of a call that says nothing.
    pub ttl_seconds: u64,
    pub max_ttl_seconds: u64,
    pub max_vcpu_count: u64,
    pub max_mem_mib: u64,
    pub max_disk_mib: u64,
    /// What may happen to the state: of `destroy`, `stop`, `cold`, `snapshot`.
    pub retention: Vec<String>,
    /// Environments by language.
    pub languages: BTreeMap<String, String>,
    /// Environments that a call may name itself.
    pub images: Vec<String>,
    /// Secrets that a call may refer to.
    pub secrets: Vec<String>,
    /// The weakest isolation that will do.
    pub min_isolation: crate::Isolation,
}

/// The text of a policy that is not in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckPolicy {
    /// TOML.
    pub text: String,
}

/// A destination that is asked about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExplainPolicy {
    /// A name or an address.
    pub host: String,
    pub port: u16,
    /// `tcp`, `udp` or `icmp`.
    pub protocol: String,
}

impl Default for ExplainPolicy {
    fn default() -> ExplainPolicy {
        ExplainPolicy {
            host: String::new(),
            port: 443,
            protocol: "tcp".to_string(),
        }
    }
}

/// Whether a destination may be reached, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Explained {
    pub policy: PolicyRef,
    pub host: String,
    pub port: u16,
    pub protocol: String,
    pub allowed: bool,
    /// The rule that decided, if one did.
    pub rule: Option<String>,
    /// A word that stays the same, such as `no_rule`.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// Another policy for a sandbox that is there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetPolicy {
    /// What the caller's key allows; the gate says, not the caller.
    #[serde(skip)]
    pub bounds: Bounds,
    pub policy: String,
}

/// Which decisions about a sandbox's traffic are read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadDecisions {
    /// Go on with those to come, until the sandbox is gone or nobody listens.
    pub follow: bool,
    /// Begin at this byte of all of them: where an earlier reading ended. Beyond the end, only
    /// those to come.
    pub from: u64,
}

impl Ask for CheckPolicy {
    const LONG: bool = true;
}
impl Ask for ExplainPolicy {}
impl Ask for SetPolicy {
    fn bounded(&mut self, bounds: &Bounds) {
        self.bounds = bounds.clone();
    }
}
impl Ask for ReadDecisions {}
