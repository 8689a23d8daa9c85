//! Maps errors to gRPC status codes: the kind decides the code, the message includes the hint.

use motu_core::{Error, ErrorKind};
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

/// Longer messages are truncated: they are sent in a header, which clients limit.
const MESSAGE_CHARS: usize = 2000;
/// The error as JSON is omitted if it is longer than this.
const WHOLE_BYTES: usize = 4096;
/// The trailer with the complete error as JSON.
const WHOLE: &str = "motu-error-bin";

/// The code of each kind of error. `docs/grpc.md` has the same table.
pub fn code(kind: ErrorKind) -> Code {
    match kind {
        ErrorKind::Invalid => Code::InvalidArgument,
        ErrorKind::Unauthenticated => Code::Unauthenticated,
        ErrorKind::Denied => Code::PermissionDenied,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::Conflict => Code::FailedPrecondition,
        ErrorKind::Limit => Code::ResourceExhausted,
        ErrorKind::Timeout => Code::DeadlineExceeded,
        ErrorKind::Unavailable => Code::Unavailable,
        ErrorKind::Unsupported => Code::Unimplemented,
        // Not UNAVAILABLE, which clients retry automatically: the command may have run.
        ErrorKind::Transport => Code::Aborted,
        ErrorKind::Cleanup | ErrorKind::Internal => Code::Internal,
    }
}

/// The status of an error: the message with its hint, and the complete error as JSON.
pub fn status(error: &Error) -> Status {
    let error = error.clone().shown();
    let message = match &error.hint {
        Some(hint) => format!("{}; {hint}", error.message),
        None => error.message.clone(),
    };
    let message: String = message.chars().take(MESSAGE_CHARS).collect();
    let mut status = Status::new(code(error.kind), message);
    let whole = serde_json::to_vec(&error).unwrap_or_default();
    if whole.len() <= WHOLE_BYTES {
        let whole = MetadataValue::from_bytes(&whole);
        status.metadata_mut().insert_bin(WHOLE, whole);
    }
    status
}

/// Converts a failure of the client's stream to an error of the call that reads it.
pub fn broken(status: &Status) -> Error {
    match status.code() {
        Code::OutOfRange | Code::ResourceExhausted => {
            let limit = motu_core::limits::GRPC_MESSAGE_BYTES;
            Error::limit(format!(
                "a message is longer than {} bytes ({})",
                limit.max, limit.name
            ))
            .hint("send the content in smaller pieces")
        }
        Code::InvalidArgument => {
            Error::invalid(format!("a message cannot be read: {}", status.message()))
        }
        _ => Error::transport(format!("the request broke off: {}", status.message())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_a_code_that_is_not_ok() {
        for kind in ErrorKind::ALL {
            assert_ne!(code(kind), Code::Ok, "{kind:?}");
        }
    }

    #[test]
    fn a_status_names_the_cause_and_the_next_step() {
        let error = Error::not_found("there is no sandbox sb-x").hint("ListSandboxes has them");
        let status = status(&error);
        assert_eq!(status.code(), Code::NotFound);
        assert_eq!(
            status.message(),
            "there is no sandbox sb-x; ListSandboxes has them"
        );
        let whole = status.metadata().get_bin(WHOLE).expect("it is short");
        let whole = whole.to_bytes().expect("what was put in");
        assert_eq!(
            serde_json::from_slice::<Error>(&whole).expect("JSON"),
            error
        );
    }

    #[test]
    fn a_status_quotes_no_credential() {
        let token = "ghp_0123456789abcdefABCDEF0123456789abcd";
        let error = Error::not_found(format!("there is no sandbox {token}"));
        let status = status(&error.hint(format!("make {token}")));
        let whole = status.metadata().get_bin(WHOLE).expect("it is short");
        let whole = whole.to_bytes().expect("what was put in");
        let said = format!("{} {}", status.message(), String::from_utf8_lossy(&whole));
        assert!(!said.contains("0123456789"), "{said}");
    }

    #[test]
    fn a_long_error_fits_into_headers() {
        let status = status(&Error::internal("x".repeat(100_000)));
        assert_eq!(status.message().len(), MESSAGE_CHARS);
        assert!(status.metadata().is_empty());
    }
}
