//! Errors of calls to the service.

use motu_core::hint;
use motu_core::hint::{Hint, verb};
use motu_core::{Error, ErrorKind, limits};
use std::time::Duration;

/// The maximum number of characters of foreign text in messages.
const SHOWN: usize = 200;

/// The content of an error answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    /// The `code` of the answer, if it has one.
    pub code: String,
    pub said: String,
}

/// Why there is no usable answer.
#[derive(Debug, thiserror::Error)]
pub enum PeerError {
    #[error("the key in {path}: {reason}")]
    Key { path: String, reason: String },
    #[error("the service at {address} cannot be reached: {reason}")]
    Unreachable { address: String, reason: String },
    #[error("the service did not {what} within {} s", .patience.as_secs())]
    Slow {
        what: &'static str,
        patience: Duration,
    },
    #[error("the connection broke while the service was to {what}: {reason}")]
    Broken { what: &'static str, reason: String },
    #[error("the service was to {what}, and its answer is longer than http_answer_bytes ({})", limits::HTTP_ANSWER_BYTES.default)]
    TooLong { what: &'static str },
    #[error("the service was to {what}, and its answer makes no sense: {said}")]
    Nonsense { what: &'static str, said: String },
    #[error("the service was to {what}, and answers {}: {}", .refusal.status, .refusal.said)]
    Refused {
        what: &'static str,
        refusal: Refusal,
    },
}

impl PeerError {
    pub fn nonsense(what: &'static str, said: impl AsRef<[u8]>) -> PeerError {
        let said = quoted(said.as_ref());
        PeerError::Nonsense { what, said }
    }

    /// The status of an error answer.
    pub fn status(&self) -> Option<u16> {
        match self {
            PeerError::Refused { refusal, .. } => Some(refusal.status),
            _ => None,
        }
    }

    /// Whether it is unknown if the call took effect.
    pub fn is_unknown(&self) -> bool {
        matches!(
            self,
            PeerError::Slow { .. } | PeerError::Broken { .. } | PeerError::TooLong { .. }
        ) || matches!(self, PeerError::Nonsense { .. })
    }

    pub fn kind(&self) -> ErrorKind {
        match self {
            PeerError::Key { .. } | PeerError::Unreachable { .. } => ErrorKind::Unavailable,
            PeerError::Slow { .. } => ErrorKind::Timeout,
            PeerError::Broken { .. } | PeerError::Nonsense { .. } => ErrorKind::Transport,
            PeerError::TooLong { .. } => ErrorKind::Limit,
            PeerError::Refused { refusal, .. } => match refusal.status {
                400 | 405 | 422 => ErrorKind::Invalid,
                401 | 403 => ErrorKind::Denied,
                404 | 410 => ErrorKind::NotFound,
                408 => ErrorKind::Timeout,
                409 => ErrorKind::Conflict,
                413 | 429 => ErrorKind::Limit,
                501 => ErrorKind::Unsupported,
                _ => ErrorKind::Unavailable,
            },
        }
    }
}

impl From<PeerError> for Error {
    fn from(error: PeerError) -> Error {
        let hint: Option<Hint> = match &error {
            PeerError::Key { .. } => Some("key_file in config.toml names the file".into()),
            PeerError::Unreachable { .. } => Some(hint![
                "is it running, and is its address in config.toml right? ",
                verb("doctor"),
                " looks"
            ]),
            PeerError::Refused { refusal, .. } if refusal.status == 401 => {
                Some("key_file in config.toml names the file with the service's key".into())
            }
            PeerError::TooLong { .. } => Some("ask for less at a time".into()),
            _ => None,
        };
        let plain = Error::new(error.kind(), error.to_string());
        match hint {
            Some(hint) => plain.hint(hint),
            None => plain,
        }
    }
}

/// Foreign text, truncated and on one line.
pub fn quoted(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN * 4)]);
    let cut: String = text.trim().chars().take(SHOWN).collect();
    match cut.is_empty() {
        true => "nothing".to_string(),
        false => cut
            .chars()
            .map(|c| if c.is_control() { ' ' } else { c })
            .collect(),
    }
}
