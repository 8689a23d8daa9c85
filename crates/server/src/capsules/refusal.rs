//! Errors of these addresses: what every other address answers, with the code and the status that
//! clients of host agents know them by.

use crate::fault::{Failed, problem};
use axum::body::Body;
use axum::response::Response;
use http::{StatusCode, header};
use motu_core::{Error, ErrorKind};
use serde_json::json;

/// Addresses whose clients read `error.code`.
const FAMILIES: [&str; 3] = ["/v1/capsules", "/v1/snapshots", "/v1/events/stream"];

/// Whether errors of this address have codes.
pub fn answers_for(path: &str) -> bool {
    FAMILIES.iter().any(|family| {
        let rest = path.strip_prefix(family);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    })
}

/// The same answer in the shape of host agents; one that is no error stays as it is.
pub fn coded(mut response: Response) -> Response {
    let Some(Failed(error)) = response.extensions_mut().remove::<Failed>() else {
        return response;
    };
    let (code, status) = code(&error, response.status());
    let problem = serde_json::to_value(problem(error, status)).unwrap_or_default();
    let mut body = problem;
    body["error"]["code"] = json!(code);
    *response.status_mut() = status;
    response.headers_mut().remove(header::CONTENT_LENGTH);
    *response.body_mut() = Body::from(body.to_string());
    response
}

/// The code of an error, and its status. A status that HTTP itself asks for stays.
fn code(error: &Error, status: StatusCode) -> (&'static str, StatusCode) {
    let agent = ("agent_error", StatusCode::BAD_GATEWAY);
    let code = match error.kind {
        ErrorKind::Invalid => "invalid_request",
        ErrorKind::Unauthenticated => "unauthorized",
        ErrorKind::Denied => "forbidden",
        ErrorKind::NotFound => "not_found",
        // Refused because of the state that the capsule is in.
        ErrorKind::Conflict if error.details["state"].is_string() => "invalid_state",
        ErrorKind::Conflict => "conflict",
        ErrorKind::Limit => "limit_reached",
        ErrorKind::Unavailable => "host_unavailable",
        ErrorKind::Unsupported => "unsupported",
        ErrorKind::Internal => "internal_error",
        ErrorKind::Timeout | ErrorKind::Transport | ErrorKind::Cleanup => return agent,
    };
    (code, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_these_addresses_have_codes() {
        for theirs in [
            "/v1/capsules",
            "/v1/capsules/sb-a/exec",
            "/v1/events/stream",
        ] {
            assert!(answers_for(theirs), "{theirs}");
        }
        for other in ["/v1/capsulesx", "/v1/sandboxes/sb-a", "/v1/events"] {
            assert!(!answers_for(other), "{other}");
        }
    }

    #[test]
    fn every_kind_has_a_code_of_its_own_or_is_the_agents() {
        let mut seen = std::collections::BTreeSet::new();
        for kind in ErrorKind::ALL {
            let usual = StatusCode::from_u16(kind.http_status()).unwrap();
            let (code, status) = code(&Error::new(kind, "x"), usual);
            assert!(status.is_client_error() || status.is_server_error());
            assert!(seen.insert(code) || code == "agent_error", "{kind:?}");
        }
        let asleep = Error::conflict("x").details(json!({"state": "paused"}));
        assert_eq!(code(&asleep, StatusCode::CONFLICT).0, "invalid_state");
    }
}
