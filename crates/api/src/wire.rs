//! Headers, content types and the lines of streams, shared by client and server.
//!
//! The bodies of calls and answers are types of [`motu_core`].

use motu_core::Error;
use motu_core::exec::ExecRequest;
use motu_core::files::FileChange;
use motu_core::report::ProgressEvent;
use serde::{Deserialize, Serialize};

/// Version of the API; in the path (`/v1`) and in [`API_HEADER`] of every answer.
pub const API_VERSION: &str = "1";
pub const API_HEADER: &str = "motu-api";
/// The version of the program that answered.
pub const VERSION_HEADER: &str = "motu-version";
/// The id of the call in the audit log.
pub const AUDIT_HEADER: &str = "motu-audit-id";
/// On a request: what a caller that passes on what a model says may ask for
/// ([`motu_core::Leave`]). It only takes rights away.
pub const LEAVE_HEADER: &str = "motu-leave";
/// The same id by the name that proxies and log collectors look for; every answer has it.
pub const REQUEST_HEADER: &str = "x-request-id";
/// Requests and marks a stream of frames.
pub const STREAM_TYPE: &str = "application/vnd.motu.stream";
/// The metadata of a file as JSON, beside its content.
pub const ENTRY_HEADER: &str = "motu-entry";
/// One JSON value per line.
pub const LINES_TYPE: &str = "application/x-ndjson";
/// The protocol to which a connection to a port is upgraded: plain bytes.
pub const DIAL_PROTOCOL: &str = "motu-dial";

/// On the answer to an upgrade: an open file comes with the connection, or has to be handed over.
pub const LENT_HEADER: &str = "motu-lent";

/// The value of [`LENT_HEADER`] when a file comes.
pub const LENT: &str = "file";

/// The value of [`LENT_HEADER`] when a file has to be handed over.
pub const WANTED: &str = "wanted";

/// What clients read of the body of an answer that is not a success.
#[derive(Debug, Serialize, Deserialize)]
pub struct ErrorBody {
    pub error: Error,
}

/// The content type of [`Problem`].
pub const PROBLEM_TYPE: &str = "application/problem+json";

/// The body of every answer that is not a success: the error, and beside it the members of RFC 9457
/// for clients that know only those.
#[derive(Debug, Serialize, utoipa::ToSchema)]
// The schema keeps the name that it had before it was a problem: clients were generated from it.
#[schema(as = ErrorBody)]
pub struct Problem {
    pub error: Error,
    /// A stable name of the kind: `/problems/` and `error.kind`. Nothing is served there.
    #[serde(rename = "type")]
    pub reference: String,
    /// The kind in words, the same for every error of this kind.
    pub title: String,
    /// The status of the answer.
    pub status: u16,
    /// What went wrong this time: `error.message`.
    pub detail: String,
    /// The entry of the call in the audit log, where the call is recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
}

/// An exec, and whether it runs on after the answer.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ExecBody {
    #[serde(flatten)]
    pub exec: ExecRequest,
    /// Start the process, answer with its pid, and leave it running.
    #[serde(default)]
    pub background: bool,
}

/// Implemented by hand: [`ExecRequest`] refuses unknown fields and has a flattened part of its own,
/// so a derived implementation would pass it `background` too.
impl<'de> Deserialize<'de> for ExecBody {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<ExecBody, D::Error> {
        use serde::de::Error as _;
        let mut fields = serde_json::Map::deserialize(deserializer)?;
        let background = fields.remove("background").unwrap_or(false.into());
        Ok(ExecBody {
            exec: serde_json::from_value(fields.into()).map_err(D::Error::custom)?,
            background: serde_json::from_value(background).map_err(D::Error::custom)?,
        })
    }
}

/// One line of the answer to a call that tells its steps.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepLine<T> {
    Progress(ProgressEvent),
    /// The last line of a call that worked.
    Result(T),
    /// The last line of a call that failed.
    Error(Error),
}

/// One line of a watch.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WatchLine {
    Change(FileChange),
    /// The watch ends here.
    Error(Error),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exec_body_takes_only_known_fields() {
        let body: ExecBody =
            serde_json::from_str(r#"{"command":["true"],"timeout_seconds":5,"background":true}"#)
                .unwrap();
        assert!(body.background);
        assert_eq!(body.exec.program.timeout_seconds, Some(5));
        for (text, refusal) in [
            (
                r#"{"command":["true"],"colour":1}"#,
                "unknown field `colour`",
            ),
            (r#"{"command":["true"],"background":1}"#, "invalid type"),
            (r#"{"command":"true"}"#, "invalid type"),
        ] {
            let error = serde_json::from_str::<ExecBody>(text).unwrap_err();
            assert!(error.to_string().contains(refusal), "{text}: {error}");
        }
    }
}
