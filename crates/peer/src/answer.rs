//! Outcomes of requests: one error type, and the messages on the link.

use crate::error::{PeerError, Refusal};
use bytes::Bytes;
use motu_link::message::{Entries, Entry, Failure, Note, Outcome, Said};
use motu_link::{LinkError, Sender};
use prost::Message as _;

/// `errno` of a missing file.
const ENOENT: i32 = 2;
/// The maximum size of the entries in one note, so that it fits into one frame.
const PAGE_BYTES: usize = 192 * 1024;

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub kind: Failure,
    pub message: String,
    /// The underlying errno, or 0.
    pub errno: i32,
}

impl Failed {
    pub fn new(kind: Failure, message: impl Into<String>) -> Failed {
        Failed {
            kind,
            message: message.into(),
            errno: match kind {
                Failure::NotFound => ENOENT,
                _ => 0,
            },
        }
    }

    /// A program that cannot be started, because it is missing or for another reason.
    pub fn cannot_run(message: impl Into<String>, missing: bool) -> Failed {
        let errno = if missing { ENOENT } else { 0 };
        Failed {
            errno,
            ..Failed::new(Failure::CannotRun, message)
        }
    }

    pub fn invalid(message: impl Into<String>) -> Failed {
        Failed::new(Failure::Invalid, message)
    }

    /// An operation that machines of the service do not support, and why.
    pub fn unsupported(what: &str, why: &str) -> Failed {
        let message = format!("nobody can {what} in this service's machines: {why}");
        Failed::new(Failure::Unsupported, message)
    }

    pub fn missing(path: &str) -> Failed {
        Failed::new(Failure::NotFound, format!("{path:?}: no such file"))
    }

    pub fn exists(path: &str) -> Failed {
        Failed::new(Failure::Exists, format!("{path:?} exists already"))
    }

    /// A file that is not in the state that its writer expects.
    pub fn replaced(path: &str) -> Failed {
        Failed::new(Failure::Exists, format!("{path:?} is not the file it was"))
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<LinkError> for Failed {
    fn from(_: LinkError) -> Failed {
        Failed::new(Failure::Cancelled, "the host went away")
    }
}

/// Maps errors of a service, except those about a missing file or sandbox.
impl From<PeerError> for Failed {
    fn from(error: PeerError) -> Failed {
        let kind = match &error {
            PeerError::Refused { refusal, .. } => refused(refusal),
            PeerError::TooLong { .. } => Failure::Limit,
            PeerError::Key { .. } => Failure::Denied,
            PeerError::Unreachable { .. }
            | PeerError::Slow { .. }
            | PeerError::Broken { .. }
            | PeerError::Nonsense { .. } => Failure::Cancelled,
        };
        Failed::new(kind, error.to_string())
    }
}

fn refused(refusal: &Refusal) -> Failure {
    match (refusal.status, refusal.code.as_str()) {
        (_, "FILE_NOT_FOUND") => Failure::NotFound,
        (400 | 405 | 422, _) => Failure::Invalid,
        (401 | 403, _) => Failure::Denied,
        (409, _) => Failure::Exists,
        (413 | 429, _) => Failure::Limit,
        (501, _) => Failure::Unsupported,
        // The sandbox or the service is gone.
        (404 | 408 | 410 | 503, _) => Failure::Cancelled,
        _ => Failure::Io,
    }
}

/// Sends a note before the end of a stream.
pub async fn note(tx: &Sender, said: Said) -> Result<(), LinkError> {
    tx.message(Bytes::from(Note::from(said).encode_to_vec()))
        .await
}

/// Sends the description of one file.
pub async fn one(tx: &Sender, entry: Entry) -> Result<(), Failed> {
    let entries = vec![entry];
    let next = Bytes::new();
    Ok(note(tx, Said::Entries(Entries { entries, next })).await?)
}

/// How many of these entries fit into one note; at least one.
pub fn fitting(entries: &[Entry], most: usize) -> usize {
    let mut bytes = 0;
    let fit = entries.iter().take(most).take_while(|entry| {
        bytes += entry.encoded_len() + 8;
        bytes <= PAGE_BYTES
    });
    fit.count().max(1).min(entries.len())
}

/// Sends the outcome and ends the stream.
pub async fn end(tx: &Sender, result: Result<(), Failed>) {
    let outcome = match result {
        Ok(()) => Outcome::ok(),
        Err(failed) => Outcome {
            kind: failed.kind as i32,
            message: failed.message,
            errno: failed.errno,
        },
    };
    // A host that has disconnected needs no outcome.
    let _ = tx.end(Bytes::from(outcome.encode_to_vec())).await;
}
