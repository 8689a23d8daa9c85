//! Secrets by name, for typed calls and for the border of sandboxes. Their values are never part of an answer.

use crate::ask::Ask;
use crate::leave::HostPath;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Where a secret's value is. Exactly one of the four.
#[derive(Clone, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SetSecret {
    /// The value itself; it is kept sealed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// A file on the daemon's host whose UTF-8 content is the value; it is read once, now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// A variable of the daemon, read whenever the secret is needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variable: Option<String>,
    /// A program and its arguments, run on the daemon's host whenever the secret is needed; what
    /// it prints, without the last line's end, is the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// The hosts it is bound to, such as `api.example.com` or `*.example.com`. A bound secret is
    /// never inside of a sandbox: a placeholder is, and the gateway puts the value in its place in
    /// requests to these hosts. Not with `rotate`, which leaves it bound as it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Placeholders in bodies of requests are replaced too.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub body: bool,
    /// It is a secret access key of AWS: requests that were signed with the placeholder are signed
    /// again with it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub aws: bool,
    /// It is a private key of SSH in OpenSSH's format, without a passphrase. Sandboxes that refer to
    /// it have an agent, which signs logins at these hosts and nothing else. By `value` or `path`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ssh: bool,
    /// With `ssh`: lines of a `known_hosts` file, with at least one key of each host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub known_hosts: Option<String>,
    /// The secret must be there already.
    pub rotate: bool,
}

impl std::fmt::Debug for SetSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The value never reaches a log.
        write!(f, "SetSecret(rotate: {})", self.rotate)
    }
}

/// What may be said of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SecretSummary {
    pub name: String,
    /// `sealed`, `variable` or `command`.
    pub source_kind: String,
    /// The hosts it is bound to; empty for one that is handed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// Placeholders in bodies of requests are replaced too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub body: bool,
    /// A secret access key of AWS.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub aws: bool,
    /// The type of a private key of SSH, such as `ssh-ed25519`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_type: Option<String>,
    /// The fingerprint of its public key, as `ssh-keygen -l` prints it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// When its value was given last.
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
}

impl Ask for SetSecret {
    fn host_paths(&self) -> Vec<&'static str> {
        let given = [
            (self.path.is_some(), "path"),
            (self.variable.is_some(), "variable"),
            (self.command.is_some(), "command"),
        ];
        let given = given.into_iter().filter(|(given, _)| *given);
        given.map(|(_, name)| name).collect()
    }

    fn places(&mut self) -> Vec<HostPath<'_>> {
        let path = self.path.iter_mut();
        path.map(|path| HostPath::reads("path", path)).collect()
    }
}
