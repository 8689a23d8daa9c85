//! Errors as answers: the kind decides the status, the body is always the same shape.

use axum::response::{IntoResponse, Response};
use http::StatusCode;
use motu_api::wire::ErrorBody;
use motu_core::Error;
use std::collections::BTreeMap;
use utoipa::openapi::response::{Response as ResponseDoc, ResponseBuilder};
use utoipa::openapi::{Content, Ref, RefOr};

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
        (status, axum::Json(ErrorBody { error: self.error })).into_response()
    }
}

/// The documentation of every failure, for the OpenAPI document.
pub struct Failure;

impl utoipa::IntoResponses for Failure {
    fn responses() -> BTreeMap<String, RefOr<ResponseDoc>> {
        let body = Content::new(Some(Ref::from_schema_name("ErrorBody")));
        let response = ResponseBuilder::new()
            .description("The call failed; `error.kind` says how and decides the status.")
            .content("application/json", body)
            .build();
        BTreeMap::from([("default".to_string(), RefOr::T(response))])
    }
}
