//! The errors of this crate.
//!
//! Owns one enum and the next step each of its variants suggests. It never
//! decides how an error is shown or which exit code it has.

use std::{io, path::Path};

use motu_packages::ids::NoRange;
use thiserror::Error;

use crate::reference::Origin;

/// Why an operation on environments failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnvironmentError {
    #[error("environment name {name:?} is not valid")]
    InvalidName { name: String },
    #[error("environment {name:?} is unknown")]
    Unknown {
        name: String,
        /// Known names that are spelled alike, best first.
        suggestions: Vec<String>,
    },
    #[error("environment {name:?} is not installed")]
    NotInstalled { name: String },
    #[error("program {tool:?} is not installed on this host")]
    ToolMissing { tool: String, hint: String },
    #[error(transparent)]
    NoIdMap(#[from] NoRange),
    #[error(
        "build of environment {name:?} failed at stage {stage}: {}",
        last_line(tail_of_log)
    )]
    BuildFailed {
        name: String,
        stage: String,
        /// The last lines the builder printed.
        tail_of_log: String,
    },
    #[error("build of environment {name:?} did not end within {seconds} s")]
    TimedOut { name: String, seconds: u64 },
    #[error("build of environment {name:?} was cancelled")]
    Cancelled { name: String },
    #[error("no space left while {context}")]
    NoSpace { context: String },
    #[error("environment {name:?} is in use by a sandbox or a build")]
    InUse { name: String, digest: String },
    #[error("{name:?} is the name of another environment, or of where one comes from")]
    NameTaken { name: String },
    #[error("stored environment {digest} is corrupt: {reason}")]
    Corrupt { digest: String, reason: String },
    #[error("root filesystem holds {path:?}, which is refused: {reason}")]
    Refused { path: String, reason: &'static str },
    #[error("root filesystem exceeds the limit of {limit} {what}")]
    TooLarge { what: &'static str, limit: u64 },
    #[error("registry {registry} cannot be reached: {reason}")]
    Unreachable { registry: String, reason: String },
    #[error("registry {registry} leads to {place}, which callers with keys may not reach")]
    OutOfReach { registry: String, place: String },
    #[error("registry {registry} sent nothing for {seconds} s")]
    Stalled { registry: String, seconds: u64 },
    #[error("registry {registry} gives {repository} only to those who log in")]
    AuthRequired {
        registry: String,
        repository: String,
    },
    #[error("registry {registry} answered {status} for {what}{}", detail(message))]
    Registry {
        registry: String,
        status: u16,
        what: String,
        /// The registry's own message, possibly empty.
        message: String,
    },
    #[error("{what} has digest {found} instead of {expected}")]
    DigestMismatch {
        what: String,
        expected: String,
        found: String,
    },
    #[error("{what} is malformed: {reason}")]
    Malformed { what: String, reason: String },
    #[error("{name} has no image for {wanted}")]
    NoPlatform {
        name: String,
        wanted: String,
        available: Vec<String>,
    },
    #[error("failed {context}: {source}")]
    Io {
        context: String,
        #[source]
        source: io::Error,
    },
}

impl EnvironmentError {
    /// The next step for the reader, except asking for another environment: callers know how to
    /// phrase that.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown { suggestions, .. } => suggestions
                .first()
                .map(|first| format!("did you mean {first}?")),
            Self::ToolMissing { hint, .. } => Some(hint.clone()),
            Self::NoIdMap(lacking) => Some(lacking.fix()),
            Self::InUse { .. } => {
                Some("destroy the sandboxes that use it first, or wait for the build".to_owned())
            }
            Self::NameTaken { .. } => Some("choose another word, such as mine:1".to_owned()),
            Self::Corrupt { .. } => Some("pull it again to rebuild it".to_owned()),
            Self::AuthRequired { registry, .. } => Some(format!(
                "docker login {registry}, or check the spelling: some registries say this of \
                 what they do not have"
            )),
            Self::OutOfReach { place, .. } => Some(format!(
                "whoever runs this host can allow it: \"{place}\" in `allow` of [registries] in \
                 config.toml"
            )),
            Self::Registry { status: 404, .. } => {
                Some("check the spelling of repository and tag".to_owned())
            }
            Self::Registry { status: 429, .. } => {
                Some("wait a while, or docker login for a higher limit".to_owned())
            }
            Self::NoPlatform { available, .. } if !available.is_empty() => {
                Some(format!("it has {}", available.join(", ")))
            }
            Self::Unreachable { .. } | Self::Stalled { .. } => {
                Some("check the network; a pull goes on where it stopped".to_owned())
            }
            Self::InvalidName { .. }
            | Self::NotInstalled { .. }
            | Self::NoSpace { .. }
            | Self::BuildFailed { .. }
            | Self::TimedOut { .. }
            | Self::Cancelled { .. }
            | Self::Refused { .. }
            | Self::TooLarge { .. }
            | Self::Registry { .. }
            | Self::DigestMismatch { .. }
            | Self::Malformed { .. }
            | Self::NoPlatform { .. }
            | Self::Io { .. } => None,
        }
    }

    /// The name under which a missing environment could be pulled: an unknown word may be an image.
    pub fn pullable(&self) -> Option<String> {
        match self {
            Self::NotInstalled { name } => Some(name.clone()),
            Self::Unknown { name, suggestions } if suggestions.is_empty() => {
                Origin::parse(name).map(|origin| origin.name())
            }
            _ => None,
        }
    }

    pub(crate) fn io(context: impl Into<String>, source: io::Error) -> Self {
        let context = context.into();
        if source.kind() == io::ErrorKind::StorageFull {
            return Self::NoSpace { context };
        }
        Self::Io { context, source }
    }
}

/// Attaches the path an I/O error is about.
pub(crate) trait IoContext<T> {
    fn at(self, doing: &str, path: &Path) -> Result<T, EnvironmentError>;
}

impl<T, E: Into<io::Error>> IoContext<T> for Result<T, E> {
    fn at(self, doing: &str, path: &Path) -> Result<T, EnvironmentError> {
        self.map_err(|error| {
            EnvironmentError::io(format!("{doing} {}", path.display()), error.into())
        })
    }
}

fn detail(message: &str) -> String {
    match message {
        "" => String::new(),
        message => format!(": {message}"),
    }
}

fn last_line(log: &str) -> &str {
    log.lines().next_back().unwrap_or("no output")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_its_own_error() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = EnvironmentError::io("writing x", full);
        assert!(matches!(error, EnvironmentError::NoSpace { .. }), "{error}");
    }

    #[test]
    fn the_message_of_a_failed_build_ends_with_its_last_line() {
        let error = EnvironmentError::BuildFailed {
            name: "debian:12".into(),
            stage: "download".into(),
            tail_of_log: "I: one\nE: two".into(),
        };
        assert_eq!(
            error.to_string(),
            "build of environment \"debian:12\" failed at stage download: E: two"
        );
    }
}
