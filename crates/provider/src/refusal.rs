//! Errors in the format of the protocol: by status.
//!
//! | status | meaning for the caller |
//! |---|---|
//! | 404 | the sandbox does not exist |
//! | 410 | the sandbox was destroyed |
//! | 408 | the command timed out |
//! | 429 | a limit |
//! | 503 | motu, or something it needs, is not available |
//! | others | this request failed |
//!
//! A missing file must not look like a missing sandbox: it is 422.

use crate::Provider;
use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use motu_core::sandbox;
use motu_core::{Error, ErrorKind, Result, SandboxId, Service};
use serde_json::json;
use std::sync::Arc;

pub(crate) type Shared = State<Arc<Provider>>;
pub(crate) type Answer<T> = std::result::Result<T, Refusal>;

#[derive(Debug)]
pub(crate) struct Refusal {
    status: StatusCode,
    code: &'static str,
    message: String,
}

impl Refusal {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Refusal {
        Refusal {
            status,
            code,
            message: message.into(),
        }
    }

    pub fn unauthorized() -> Refusal {
        let message = "the header X-API-Key must hold the key of this provider";
        Refusal::new(StatusCode::UNAUTHORIZED, "UNAUTHORIZED", message)
    }

    pub fn timed_out(seconds: u64) -> Refusal {
        let message = format!("the command was ended after {seconds} s");
        Refusal::new(StatusCode::REQUEST_TIMEOUT, "TIMEOUT", message)
    }

    /// The error of a call that named a sandbox: its meaning depends on whether the sandbox still
    /// exists.
    pub async fn about(service: &dyn Service, id: &SandboxId, error: Error) -> Refusal {
        if !matches!(error.kind, ErrorKind::NotFound | ErrorKind::Conflict) {
            return error.into();
        }
        match service.get_sandbox(id).await {
            Ok(found)
                if matches!(
                    found.state,
                    sandbox::State::Destroying | sandbox::State::Destroyed
                ) =>
            {
                Refusal::new(StatusCode::GONE, "DESTROYED", error.message)
            }
            Ok(_) if error.kind == ErrorKind::NotFound => Refusal::new(
                StatusCode::UNPROCESSABLE_ENTITY,
                "FILE_NOT_FOUND",
                error.message,
            ),
            Ok(_) | Err(_) => error.into(),
        }
    }
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        let (status, code) = match error.kind {
            ErrorKind::Invalid | ErrorKind::Unsupported => (StatusCode::BAD_REQUEST, "BAD_REQUEST"),
            ErrorKind::Denied => (StatusCode::FORBIDDEN, "DENIED"),
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "NOT_FOUND"),
            ErrorKind::Conflict => (StatusCode::CONFLICT, "CONFLICT"),
            ErrorKind::Limit => (StatusCode::TOO_MANY_REQUESTS, "RESOURCE_LIMIT"),
            ErrorKind::Timeout => (StatusCode::REQUEST_TIMEOUT, "TIMEOUT"),
            ErrorKind::Unavailable | ErrorKind::Transport => {
                (StatusCode::SERVICE_UNAVAILABLE, "UNAVAILABLE")
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL_ERROR"),
        };
        let message = match error.hint {
            Some(hint) => format!("{} ({hint})", error.message),
            None => error.message,
        };
        Refusal::new(status, code, message)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let message = motu_core::shown::text(&self.message);
        let body = json!({ "code": self.code, "message": message });
        (self.status, Json(body)).into_response()
    }
}

/// Converts the error of a call about a sandbox, if there is one.
pub(crate) async fn told<T>(provider: &Provider, id: &SandboxId, outcome: Result<T>) -> Answer<T> {
    match outcome {
        Ok(found) => Ok(found),
        Err(error) => Err(Refusal::about(&*provider.service, id, error).await),
    }
}

pub(crate) async fn settled(
    provider: &Provider,
    id: &SandboxId,
    outcome: Result<()>,
) -> Answer<StatusCode> {
    told(provider, id, outcome)
        .await
        .map(|()| StatusCode::NO_CONTENT)
}
