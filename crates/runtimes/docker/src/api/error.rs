//! Why a call of the engine failed.

use motu_core::hint;
use motu_core::hint::verb;
use motu_core::{Error, ErrorKind};
use std::path::PathBuf;
use std::time::Duration;

/// How much of an engine's message is quoted.
const SAID_CHARS: usize = 400;

#[derive(Debug, thiserror::Error)]
pub(crate) enum ApiError {
    #[error("the container engine at {socket} cannot be reached: {error}", socket = socket.display())]
    Unreachable {
        socket: PathBuf,
        error: std::io::Error,
    },
    #[error("the container engine did not {what} within {seconds} s", seconds = patience.as_secs_f32())]
    Slow {
        what: &'static str,
        patience: Duration,
    },
    #[error("the connection to the container engine broke while it was to {what}: {reason}")]
    Broken { what: &'static str, reason: String },
    #[error("the container engine's answer is longer than {most} bytes (it was to {what})")]
    TooLong { what: &'static str, most: usize },
    #[error("the container engine answered with nonsense when it was to {what}: {said}")]
    Nonsense { what: &'static str, said: String },
    #[error("the container engine could not {what} ({status}): {said}")]
    Refused {
        what: &'static str,
        status: u16,
        said: String,
    },
}

impl ApiError {
    /// The engine does not know the object.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, ApiError::Refused { status: 404, .. })
    }

    /// The object is in use, or the engine is working on it.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, ApiError::Refused { status: 409, .. })
    }
}

impl From<ApiError> for Error {
    fn from(error: ApiError) -> Error {
        let message = error.to_string();
        match error {
            ApiError::Unreachable { error, .. } => {
                let hint = match error.kind() {
                    std::io::ErrorKind::PermissionDenied => FORBIDDEN,
                    _ => ABSENT,
                };
                Error::unavailable(message).hint(hint)
            }
            ApiError::Slow { .. } => Error::new(ErrorKind::Timeout, message)
                .hint("is the engine stuck? `docker ps` or `podman ps` would say"),
            ApiError::Broken { .. } => Error::transport(message).hint("was the engine ended?"),
            ApiError::TooLong { .. } => Error::limit(message),
            ApiError::Nonsense { .. } => {
                Error::transport(message).hint("is this socket really that of Docker or Podman?")
            }
            ApiError::Refused { status: 404, .. } => Error::not_found(message),
            ApiError::Refused { status: 409, .. } => Error::conflict(message),
            ApiError::Refused { .. } => Error::unavailable(message).hint(hint![
                verb("doctor"),
                " says what the engine can do; its own log says more"
            ]),
        }
    }
}

/// The hint if nothing listens.
pub(crate) const ABSENT: &str = "start Docker (`systemctl start docker`) or Podman's service (`systemctl start podman.socket`, \
     or with --user your own); `[docker] socket` in config.toml names another socket";
/// The hint if the socket is not accessible.
pub(crate) const FORBIDDEN: &str = "the socket is not yours to use: join its group (usually `docker`), or start an engine of your own \
     (`systemctl --user start podman.socket`)";

/// An engine's message for quoting: one line, bounded.
pub(crate) fn quoted(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut short: String = plain.take(SAID_CHARS + 1).collect();
    if short.chars().count() > SAID_CHARS {
        short.pop();
        short.push('…');
    }
    short.trim().to_string()
}
