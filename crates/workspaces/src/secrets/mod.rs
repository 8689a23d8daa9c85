//! Secrets of a workspace.
//!
//! Owns keeping values sealed at rest ([`Vault`]). Names are public; values never
//! appear in errors, debug output or files in clear, and are wiped from memory when
//! dropped.

mod vault;

use std::{fmt, io};

use motu_core::{Error, ErrorKind, limits};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

pub use vault::Vault;

/// Longest name.
pub const MAX_NAME_BYTES: usize = limits::SECRET_NAME_CHARS.max as usize;
/// Longest value.
pub const MAX_VALUE_BYTES: usize = limits::SECRET_BYTES.max as usize;
/// Most secrets of one workspace.
pub const MAX_SECRETS: usize = limits::SECRETS.max as usize;
/// All values of one workspace together.
pub const MAX_TOTAL_BYTES: usize = limits::SECRETS_BYTES.max as usize;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    Literal,
    File,
}

/// A named value.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    pub name: String,
    pub source: Source,
    pub value: Zeroizing<String>,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secret")
            .field("name", &self.name)
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

/// The public facts about a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretInfo {
    pub name: String,
    pub source: Source,
}

#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("secret name {name:?} is not accepted: it must match [A-Za-z_][A-Za-z0-9_]{{0,63}}")]
    Name { name: String },
    #[error("secret {name} is given twice")]
    Twice { name: String },
    #[error("the value of secret {name} has a zero byte in it")]
    Zero { name: String },
    #[error("{what} is more than {limit}")]
    Limit { what: &'static str, limit: usize },
    #[error("{what} cannot be opened: it is damaged, or sealed for another place")]
    Sealed { what: String },
    #[error("{file} is not usable: {reason}")]
    Key { file: String, reason: &'static str },
    #[error("{file} is gone, and secrets were sealed with it")]
    Gone { file: String },
    #[error("{file} is another key than the one that secrets here were sealed with")]
    Another { file: String },
    #[error("{context}: {source}")]
    Io {
        context: String,
        #[source]
        source: io::Error,
    },
}

impl From<SecretError> for Error {
    fn from(error: SecretError) -> Error {
        let message = error.to_string();
        let kind = match error {
            SecretError::Gone { .. } | SecretError::Another { .. } => {
                return Error::unavailable(message).hint(
                    "bring secrets.key back from a backup; to give up what was sealed with it, remove secrets.key.id and put 32 random bytes (mode 600) in the place of secrets.key",
                );
            }
            SecretError::Name { .. } | SecretError::Twice { .. } | SecretError::Zero { .. } => {
                ErrorKind::Invalid
            }
            SecretError::Limit { .. } => ErrorKind::Limit,
            SecretError::Sealed { .. } | SecretError::Key { .. } => ErrorKind::Internal,
            SecretError::Io { context, source } => return Error::io(context, &source),
        };
        Error::new(kind, message)
    }
}

/// Checks the secrets of one workspace, all together.
pub fn check(secrets: &[Secret]) -> Result<(), SecretError> {
    let limit = |what, limit| Err(SecretError::Limit { what, limit });
    if secrets.len() > MAX_SECRETS {
        return limit("the number of secrets of a workspace", MAX_SECRETS);
    }
    let mut names = std::collections::BTreeSet::new();
    let mut total = 0;
    for secret in secrets {
        let name = || secret.name.chars().take(MAX_NAME_BYTES).collect();
        let first = secret
            .name
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let rest = secret
            .name
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !first || !rest || secret.name.len() > MAX_NAME_BYTES {
            return Err(SecretError::Name { name: name() });
        }
        if !names.insert(&secret.name) {
            return Err(SecretError::Twice { name: name() });
        }
        // The value becomes an environment variable.
        if secret.value.contains('\0') {
            return Err(SecretError::Zero { name: name() });
        }
        if secret.value.len() > MAX_VALUE_BYTES {
            return limit("the value of a secret in bytes", MAX_VALUE_BYTES);
        }
        total += secret.value.len();
    }
    if total > MAX_TOTAL_BYTES {
        return limit("the values of all secrets in bytes", MAX_TOTAL_BYTES);
    }
    Ok(())
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
