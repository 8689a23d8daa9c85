//! The result of a request to a fake guest.

use bytes::Bytes;
use motu_link::message::{Failure, Note, Outcome, Said};
use motu_link::{LinkError, Sender};
use prost::Message as _;

/// `errno` of a file that is not there.
pub const ENOENT: i32 = 2;

/// Why a request did not work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    pub kind: Failure,
    pub message: String,
    pub errno: i32,
}

impl Failed {
    pub fn new(kind: Failure, message: impl Into<String>) -> Failed {
        Failed {
            kind,
            message: message.into(),
            errno: 0,
        }
    }

    pub fn unsupported(what: &str) -> Failed {
        Failed::new(
            Failure::Unsupported,
            format!("a fake machine cannot {what}"),
        )
    }

    pub fn missing(path: &[u8]) -> Failed {
        Failed {
            errno: ENOENT,
            ..Failed::new(
                Failure::NotFound,
                format!("{:?}: no such file", String::from_utf8_lossy(path)),
            )
        }
    }
}

impl From<LinkError> for Failed {
    fn from(_: LinkError) -> Failed {
        Failed::new(Failure::Cancelled, "the host went away")
    }
}

/// Sends a note on a stream.
pub async fn note(tx: &Sender, said: Said) -> Result<(), LinkError> {
    tx.message(Bytes::from(Note::from(said).encode_to_vec()))
        .await
}

/// Ends a stream with its outcome.
pub async fn end(tx: &Sender, result: Result<(), Failed>) {
    let outcome = match result {
        Ok(()) => Outcome::ok(),
        Err(failed) => Outcome {
            kind: failed.kind as i32,
            message: failed.message,
            errno: failed.errno,
        },
    };
    // Fails only if the host has gone.
    let _ = tx.end(Bytes::from(outcome.encode_to_vec())).await;
}
