//! Errors as answers: the kind decides the status, the body is always the same shape.

use crate::wording::worded;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use motu_api::wire::ErrorBody;
use motu_core::Error;

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
        (status, axum::Json(ErrorBody { error })).into_response()
    }
}
