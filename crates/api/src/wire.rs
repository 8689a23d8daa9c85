//! Headers, content types and the lines of streams, shared by both ends.
//!
//! What calls and answers hold are types of [`motu_core`] as they stand.

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
/// What the call is named in the audit log.
pub const AUDIT_HEADER: &str = "motu-audit-id";
/// Asks for, and marks, a stream of frames.
pub const STREAM_TYPE: &str = "application/vnd.motu.stream";
/// The entry of a file, as JSON beside its contents.
pub const ENTRY_HEADER: &str = "motu-entry";
/// One JSON value per line.
pub const LINES_TYPE: &str = "application/x-ndjson";
/// The protocol a connection to a port is upgraded to: plain bytes.
pub const DIAL_PROTOCOL: &str = "motu-dial";

/// The body of every answer that is not a success.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct ErrorBody {
    pub error: Error,
}

/// An exec, and whether it runs on after the answer.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ExecBody {
    #[serde(flatten)]
    pub exec: ExecRequest,
    /// Start the process, answer with its pid, and leave it running.
    #[serde(default)]
    pub background: bool,
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
        assert_eq!(body.exec.timeout_seconds, Some(5));
        assert!(serde_json::from_str::<ExecBody>(r#"{"command":["true"],"colour":1}"#).is_err());
    }
}
