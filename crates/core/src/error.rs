//! The error at the border.
//!
//! Inside, every operation has its own enum. At the border there is one type
//! whose `kind` alone decides the exit code, the HTTP status and whatever else
//! a face needs. A command that exits non-zero is a result, not an error.

use crate::hint::{Hint, Next, Wording, say, verb};
use crate::shown;
use serde::{Deserialize, Serialize};

/// The result of a verb.
pub type Result<T> = std::result::Result<T, Error>;

/// What went wrong, for a program to decide on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorKind {
    /// The request itself is wrong; sending it again cannot help.
    Invalid,
    /// Nobody knows who asks: the key is missing or not good.
    Unauthenticated,
    /// A policy or permission forbids it.
    Denied,
    /// The named thing does not exist.
    NotFound,
    /// It exists already, or is in a state that does not allow this.
    Conflict,
    /// A documented limit was reached.
    Limit,
    /// It took longer than it was allowed to.
    Timeout,
    /// Something this needs is not there now (a runtime, a tool, the daemon).
    Unavailable,
    /// This build or runtime cannot do it at all.
    Unsupported,
    /// The connection to a machine or peer broke.
    Transport,
    /// The work was done, but something was left behind.
    Cleanup,
    /// A bug.
    Internal,
}

impl ErrorKind {
    /// Every kind, for documentation and tests.
    pub const ALL: [ErrorKind; 12] = [
        ErrorKind::Invalid,
        ErrorKind::Unauthenticated,
        ErrorKind::Denied,
        ErrorKind::NotFound,
        ErrorKind::Conflict,
        ErrorKind::Limit,
        ErrorKind::Timeout,
        ErrorKind::Unavailable,
        ErrorKind::Unsupported,
        ErrorKind::Transport,
        ErrorKind::Cleanup,
        ErrorKind::Internal,
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::Invalid => "invalid",
            ErrorKind::Unauthenticated => "unauthenticated",
            ErrorKind::Denied => "denied",
            ErrorKind::NotFound => "not_found",
            ErrorKind::Conflict => "conflict",
            ErrorKind::Limit => "limit",
            ErrorKind::Timeout => "timeout",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Transport => "transport",
            ErrorKind::Cleanup => "cleanup",
            ErrorKind::Internal => "internal",
        }
    }

    /// The exit code of the command line. Codes below 100 belong to the commands people run.
    pub fn exit_code(self) -> u8 {
        match self {
            ErrorKind::Invalid => 102,
            ErrorKind::Unauthenticated => 112,
            ErrorKind::Denied => 103,
            ErrorKind::NotFound => 104,
            ErrorKind::Conflict => 105,
            ErrorKind::Limit => 106,
            ErrorKind::Timeout => 124,
            ErrorKind::Unavailable => 107,
            ErrorKind::Unsupported => 108,
            ErrorKind::Transport => 109,
            ErrorKind::Cleanup => 110,
            ErrorKind::Internal => 111,
        }
    }

    /// The HTTP status.
    pub fn http_status(self) -> u16 {
        match self {
            ErrorKind::Invalid => 400,
            ErrorKind::Unauthenticated => 401,
            ErrorKind::Denied => 403,
            ErrorKind::NotFound => 404,
            ErrorKind::Conflict => 409,
            ErrorKind::Limit => 429,
            ErrorKind::Timeout => 504,
            ErrorKind::Unavailable => 503,
            ErrorKind::Unsupported => 501,
            ErrorKind::Transport => 502,
            ErrorKind::Cleanup | ErrorKind::Internal => 500,
        }
    }
}

/// An error as every face reports it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, thiserror::Error, utoipa::ToSchema)]
#[error("{message}")]
pub struct Error {
    pub kind: ErrorKind,
    /// A lower-case fragment that can follow "failed: ".
    pub message: String,
    /// The next step in words, if one is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The hint as data, if it names more than words: verbs, fields, commands of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<Next>,
    /// Facts for a program: ids, limits, names.
    #[serde(default, skip_serializing_if = "serde_json::Value::is_null")]
    pub details: serde_json::Value,
}

impl Error {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Error {
        Error {
            kind,
            message: message.into(),
            hint: None,
            next: Vec::new(),
            details: serde_json::Value::Null,
        }
    }

    /// Says what to do next: words, or a `hint![…]` of words and steps.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<Hint>) -> Error {
        let hint = hint.into();
        self.hint = Some(hint.to_string());
        self.next = hint.into_next();
        self
    }

    /// With the hint of another error.
    #[must_use]
    pub fn hint_of(mut self, other: &Error) -> Error {
        self.hint = other.hint.clone();
        self.next = other.next.clone();
        self
    }

    /// As a face tells it: with its hint in the words of the face, and without what a caller may
    /// not be shown. Every error passes here on its way out.
    #[must_use]
    pub fn worded(mut self, wording: &impl Wording) -> Error {
        if !self.next.is_empty()
            && let Some(hint) = say(&self.next, wording)
        {
            self.hint = Some(hint);
        }
        self.shown()
    }

    /// Without what looks like a credential, wherever it quotes its caller.
    #[must_use]
    pub fn shown(mut self) -> Error {
        self.message = shown::text(&self.message);
        self.hint = self.hint.as_deref().map(shown::text);
        self.next.iter_mut().for_each(shown::step);
        shown::value(&mut self.details);
        self
    }

    #[must_use]
    pub fn details(mut self, details: serde_json::Value) -> Error {
        self.details = details;
        self
    }

    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, message)
    }

    pub fn not_found(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::NotFound, message)
    }

    pub fn conflict(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Conflict, message)
    }

    pub fn limit(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Limit, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unavailable, message)
    }

    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Unsupported, message)
    }

    pub fn transport(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Transport, message)
    }

    pub fn internal(message: impl Into<String>) -> Error {
        Error::new(ErrorKind::Internal, message)
    }

    /// A failure with a file that the caller named: what is wrong with the name is no bug of ours.
    pub fn with_file(context: impl std::fmt::Display, error: &std::io::Error) -> Error {
        use std::io::ErrorKind as Io;
        match error.kind() {
            Io::NotFound => Error::not_found(format!("{context}: no such file")),
            Io::IsADirectory => {
                Error::invalid(format!("{context}: it is a directory")).hint("name a file")
            }
            Io::NotADirectory => {
                Error::invalid(format!("{context}: a part of the path is not a directory"))
            }
            Io::AlreadyExists => Error::conflict(format!("{context}: it is there already")),
            Io::InvalidInput | Io::InvalidFilename | Io::InvalidData => {
                Error::invalid(format!("{context}: {error}"))
            }
            _ => Error::io(context, error),
        }
    }

    /// An I/O failure in `context`; a full disk is a limit, not a bug.
    pub fn io(context: impl std::fmt::Display, error: &std::io::Error) -> Error {
        use std::io::ErrorKind as Io;
        match error.kind() {
            Io::StorageFull | Io::QuotaExceeded => {
                Error::limit(format!("{context}: the disk is full")).hint(crate::hint![
                    "free some space under MOTU_HOME, for example with ",
                    verb("prune_environments"),
                ])
            }
            Io::PermissionDenied => {
                Error::new(ErrorKind::Denied, format!("{context}: permission denied"))
            }
            _ => Error::internal(format!("{context}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_name_is_not_a_bug() {
        let dir = tempfile::tempdir().unwrap();
        let kind = |path: &std::path::Path| {
            let error = std::fs::read(path).unwrap_err();
            Error::with_file("read it", &error).kind
        };
        assert_eq!(kind(&dir.path().join("none")), ErrorKind::NotFound);
        assert_eq!(kind(dir.path()), ErrorKind::Invalid);
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert_eq!(kind(&dir.path().join("file/below")), ErrorKind::Invalid);
    }

    #[test]
    fn exit_codes_are_distinct_and_out_of_the_way() {
        let mut codes: Vec<u8> = ErrorKind::ALL.iter().map(|kind| kind.exit_code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
        assert!(codes.iter().all(|&code| (100..126).contains(&code)));
    }

    #[test]
    fn names_on_the_wire_are_the_names_in_code() {
        for kind in ErrorKind::ALL {
            assert_eq!(
                serde_json::to_value(kind).unwrap(),
                serde_json::Value::from(kind.as_str())
            );
        }
    }
}
