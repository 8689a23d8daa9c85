//! Why a snapshot could not be made, read or removed.

use std::{io, path::Path};

use motu_core::{Error, ErrorKind};

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error("snapshot name {name:?} is not accepted: {reason}")]
    Name { name: String, reason: &'static str },
    #[error("snapshot {name:?} exists already")]
    Exists { name: String },
    #[error("there is no snapshot {name:?}")]
    NotFound { name: String },
    #[error("{file} is damaged: {reason}")]
    Damaged { file: String, reason: &'static str },
    #[error("{file} has format version {found}; this build reads up to {newest}")]
    Version {
        file: String,
        found: u32,
        newest: u32,
    },
    #[error("{path} changed while the snapshot was taken")]
    Changed { path: String },
    #[error("the archive for the snapshot is not what was asked for: {reason}")]
    Archive { reason: String },
    #[error("{what} is more than {limit}")]
    Limit { what: &'static str, limit: u64 },
    #[error("{context}: {source}")]
    Io {
        context: String,
        #[source]
        source: io::Error,
    },
}

impl SnapshotError {
    pub(super) fn io(context: &str, path: &Path) -> impl FnOnce(io::Error) -> SnapshotError {
        let context = format!("{context} {}", path.display());
        move |source| SnapshotError::Io { context, source }
    }

    pub(super) fn archive(reason: impl Into<String>) -> SnapshotError {
        SnapshotError::Archive {
            reason: reason.into(),
        }
    }
}

impl From<SnapshotError> for Error {
    fn from(error: SnapshotError) -> Error {
        let message = error.to_string();
        let kind = match error {
            SnapshotError::Io { context, source } => return Error::io(context, &source),
            SnapshotError::Name { .. } => ErrorKind::Invalid,
            SnapshotError::Exists { .. } => ErrorKind::Conflict,
            SnapshotError::NotFound { .. } => ErrorKind::NotFound,
            SnapshotError::Damaged { .. } => {
                return Error::internal(message)
                    .hint("the disk under MOTU_HOME lost data; other snapshots may be whole");
            }
            SnapshotError::Version { .. } => ErrorKind::Unsupported,
            SnapshotError::Changed { .. } => {
                return Error::conflict(message)
                    .hint("stop what writes to /workspace, or take the snapshot again");
            }
            SnapshotError::Archive { .. } => ErrorKind::Transport,
            SnapshotError::Limit { .. } => ErrorKind::Limit,
        };
        Error::new(kind, message)
    }
}
