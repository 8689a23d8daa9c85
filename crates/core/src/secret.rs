//! Secrets by name, for typed calls. Their values are never part of an answer.

use crate::ask::Ask;
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
}
