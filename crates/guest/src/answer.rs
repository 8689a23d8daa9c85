//! How a request ends: the guest's only failure type, and the conversion of kernel errors.

use bytes::Bytes;
use motu_link::LinkError;
use motu_link::message::{Failure, Note, Outcome, Said};
use motu_link::mux::Sender;
use prost::Message as _;
use rustix::io::Errno;
use std::fmt;

/// Why a request did not work, as the host will read it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
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

    pub fn invalid(message: impl Into<String>) -> Failed {
        Failed::new(Failure::Invalid, message)
    }

    /// A failed system call on something that can be named.
    pub fn errno(what: impl fmt::Display, errno: Errno) -> Failed {
        Failed::errno_as(kind_of(errno), what, errno)
    }

    /// A failed system call with an explicit kind, where the errno alone is misleading.
    pub fn errno_as(kind: Failure, what: impl fmt::Display, errno: Errno) -> Failed {
        Failed {
            kind,
            message: format!("{what}: {}", reason(errno)),
            errno: errno.raw_os_error(),
        }
    }

    /// The host abandoned the stream or the link is gone.
    pub fn cancelled() -> Failed {
        Failed::new(Failure::Cancelled, "the host went away")
    }

    pub fn outcome(self) -> Outcome {
        Outcome {
            kind: self.kind as i32,
            message: self.message,
            errno: self.errno,
        }
    }
}

impl From<LinkError> for Failed {
    fn from(_: LinkError) -> Failed {
        Failed::cancelled()
    }
}

/// The failure kind of an errno.
pub fn kind_of(errno: Errno) -> Failure {
    match errno {
        Errno::NOENT => Failure::NotFound,
        Errno::EXIST | Errno::NOTEMPTY => Failure::Exists,
        Errno::ACCESS | Errno::PERM | Errno::LOOP | Errno::XDEV | Errno::ROFS => Failure::Denied,
        Errno::NOTDIR | Errno::ISDIR | Errno::INVAL | Errno::NAMETOOLONG => Failure::Invalid,
        Errno::NOSPC | Errno::DQUOT => Failure::NoSpace,
        Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM => Failure::Limit,
        Errno::NOSYS | Errno::OPNOTSUPP => Failure::Unsupported,
        _ => Failure::Io,
    }
}

fn reason(errno: Errno) -> String {
    let text = std::io::Error::from(errno).to_string();
    // The standard library appends the errno; the outcome carries it already.
    let text = text.split(" (os error").next().unwrap_or(&text);
    text.to_lowercase()
}

/// Bytes from a machine, made safe to print: quoted, escaped and cut.
pub struct Quoted<'a>(pub &'a [u8]);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 512;
        let cut = &self.0[..self.0.len().min(SHOWN)];
        let more = if self.0.len() > SHOWN { "…" } else { "" };
        write!(f, "{:?}{more}", String::from_utf8_lossy(cut))
    }
}

/// Sends a note on a stream.
pub async fn note(tx: &Sender, said: Said) -> Result<(), LinkError> {
    tx.message(Bytes::from(Note::from(said).encode_to_vec()))
        .await
}
