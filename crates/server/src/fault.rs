//! Errors as answers: the kind decides the status, the body is always the same shape.
//!
//! The body is a problem of RFC 9457 with the error itself as one more member. Whatever answers a
//! request with an error does it through [`Fault`], so that no answer has another shape.

use crate::wording::worded;
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use motu_api::address::segment;
use motu_api::wire::{PROBLEM_TYPE, Problem};
use motu_core::verb::{GetAudit, Verb as _};
use motu_core::{Error, ErrorKind};

/// What a handler fails with.
#[derive(Debug)]
pub struct Fault {
    error: Error,
    /// A status that HTTP itself asks for, instead of that of the kind.
    status: Option<StatusCode>,
}

impl Fault {
    pub fn with_status(error: Error, status: StatusCode) -> Fault {
        Fault {
            error,
            status: Some(status),
        }
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault {
            error,
            status: None,
        }
    }
}

impl IntoResponse for Fault {
    fn into_response(self) -> Response {
        let status = self.status.unwrap_or_else(|| {
            StatusCode::from_u16(self.error.kind.http_status())
                .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        });
        let error = worded(self.error);
        let body = axum::Json(problem(error.clone(), status));
        let mut response = (status, body).into_response();
        response.extensions_mut().insert(Failed(error));
        let kind = HeaderValue::from_static(PROBLEM_TYPE);
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// The error behind an answer, in words of HTTP, for addresses that answer in another shape.
#[derive(Clone, Debug)]
pub struct Failed(pub Error);

pub fn problem(error: Error, status: StatusCode) -> Problem {
    Problem {
        reference: format!("/problems/{}", error.kind.as_str()),
        title: title(error.kind).to_string(),
        status: status.as_u16(),
        detail: error.message.clone(),
        instance: instance(&error),
        error,
    }
}

/// The entry of the failed call in the audit log. The gate notes its id in the errors of calls that
/// it records; other requests have no entry.
fn instance(error: &Error) -> Option<String> {
    let id = error.details.get("audit_id")?.as_str()?;
    Some(GetAudit::INFO.path.replace("{audit}", &segment(id)))
}

/// A kind in words. Clients may compare them, so they never change.
fn title(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Invalid => "The request is wrong",
        ErrorKind::Unauthenticated => "The caller is not known",
        ErrorKind::Denied => "The call is not allowed",
        ErrorKind::NotFound => "There is no such thing",
        ErrorKind::Conflict => "The state does not allow this",
        ErrorKind::Limit => "A limit was reached",
        ErrorKind::Timeout => "It took too long",
        ErrorKind::Unavailable => "Something needed is not available",
        ErrorKind::Unsupported => "This is not supported",
        ErrorKind::Transport => "A connection broke",
        ErrorKind::Cleanup => "Done, but something was left behind",
        ErrorKind::Internal => "There is a bug",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_the_entry_of_its_call_in_the_audit_log() {
        let told = |error: Error| problem(error, StatusCode::CONFLICT).instance;
        let recorded = Error::conflict("x").details(serde_json::json!({"audit_id": "run_1"}));
        assert_eq!(told(recorded).as_deref(), Some("/v1/audit/entries/run_1"));
        assert_eq!(told(Error::conflict("not recorded")), None);
    }
}
