//! Why a disk could not be read.

use std::{io, path::Path};

use motu_core::{Error, ErrorKind};

#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    #[error("{path} does not exist on the disk")]
    NotFound { path: String },
    #[error("{path} is no directory")]
    NotDirectory { path: String },
    #[error("{path} is no regular file")]
    NotFile { path: String },
    #[error("{path} leads through too many symbolic links")]
    Loop { path: String },
    #[error("the disk is damaged: {reason}")]
    Damaged { reason: String },
    #[error("the disk cannot be read: {reason}")]
    Unsupported { reason: &'static str },
    #[error("{what} is more than {limit}")]
    Limit { what: &'static str, limit: u64 },
    #[error("{program} failed: {output}")]
    Tool {
        program: &'static str,
        output: String,
    },
    #[error("{context}: {source}")]
    Io {
        context: String,
        #[source]
        source: io::Error,
    },
}

impl DiskError {
    pub(crate) fn io(context: &str, path: &Path) -> impl FnOnce(io::Error) -> DiskError {
        let context = format!("{context} {}", path.display());
        move |source| DiskError::Io { context, source }
    }

    pub(crate) fn damaged(reason: impl Into<String>) -> DiskError {
        DiskError::Damaged {
            reason: reason.into(),
        }
    }
}

impl From<DiskError> for Error {
    fn from(error: DiskError) -> Error {
        let message = error.to_string();
        let kind = match error {
            DiskError::NotFound { .. } => ErrorKind::NotFound,
            DiskError::NotDirectory { .. } | DiskError::NotFile { .. } | DiskError::Loop { .. } => {
                ErrorKind::Invalid
            }
            DiskError::Damaged { .. } => ErrorKind::Internal,
            DiskError::Unsupported { .. } => ErrorKind::Unsupported,
            DiskError::Limit { .. } => ErrorKind::Limit,
            DiskError::Tool { .. } => ErrorKind::Unavailable,
            DiskError::Io { context, source } => return Error::io(context, &source),
        };
        Error::new(kind, message)
    }
}
