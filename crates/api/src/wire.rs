//! Bodies, queries and headers of the REST calls, shared by both ends.
//!
//! Everything that is not here is a type of [`motu_core`] as it stands.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::Bytes;
use motu_core::exec::{AttachFrom, ExecRequest};
use motu_core::files::{FileChange, GuestPath};
use motu_core::report::{Environment, ProgressEvent};
use motu_core::{Error, SandboxId};
use serde::{Deserialize, Serialize};

/// Version of the API; in the path (`/v1`) and in [`API_HEADER`] of every answer.
pub const API_VERSION: &str = "1";
pub const API_HEADER: &str = "motu-api";
/// The version of the program that answered.
pub const VERSION_HEADER: &str = "motu-version";
/// Asks for, and marks, a stream of frames.
pub const STREAM_TYPE: &str = "application/vnd.motu.stream";
/// The entry of a file, as JSON beside its contents.
pub const ENTRY_HEADER: &str = "motu-entry";
/// One JSON value per line.
pub const LINES_TYPE: &str = "application/x-ndjson";
pub const TAR_TYPE: &str = "application/x-tar";
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

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BackupBody {
    /// A directory on the host that does not exist yet, or is empty.
    pub output_path: String,
}

#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PruneBody {
    /// Also environments that could be used again.
    pub all: bool,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ForkBody {
    /// How many copies; default 1.
    pub count: u64,
}

impl Default for ForkBody {
    fn default() -> ForkBody {
        ForkBody { count: 1 }
    }
}

#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct KeepaliveBody {
    /// A new time to live; the old one again when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
}

/// The sandboxes that had outlived their time and are gone.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Reaped {
    pub sandbox_ids: Vec<SandboxId>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalBody {
    /// A name such as `TERM`, or a number as text.
    pub signal: String,
    /// Everything the process started, not only its group.
    #[serde(default)]
    pub tree: bool,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct MkdirBody {
    #[serde(flatten)]
    pub at: PathBody,
    /// Octal, such as `0755`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChmodBody {
    #[serde(flatten)]
    pub at: PathBody,
    /// Octal, such as `0644`.
    pub mode: String,
}

/// A path, as text or, when it is not UTF-8, as base64.
#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
pub struct PathBody {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_base64: Option<String>,
}

#[derive(Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MoveBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to_base64: Option<String>,
    pub overwrite: bool,
}

/// One line of the answer to a pull.
#[derive(Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PullLine {
    Progress(ProgressEvent),
    /// The last line of a pull that worked.
    Result(Box<Environment>),
    /// The last line of a pull that failed.
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

macro_rules! queries {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::IntoParams)]
        #[into_params(parameter_in = Query)]
        #[serde(deny_unknown_fields, default)]
        pub struct $name {
            $(
                $(#[$field_doc])*
                #[serde(skip_serializing_if = "Option::is_none")]
                #[param(required = false)]
                pub $field: Option<$type>,
            )*
        }
    )*};
}

queries! {
    DoctorQuery {
        /// Also boot a machine with each runtime.
        deep: bool,
    }
    /// A path and nothing else.
    PathQuery {
        /// Absolute, inside the sandbox.
        path: String,
        /// Instead of `path`, when it is not UTF-8.
        path_base64: String,
    }
    StatQuery {
        /// Absolute, inside the sandbox.
        path: String,
        /// Instead of `path`, when it is not UTF-8.
        path_base64: String,
        /// Look at what a link points to.
        follow: bool,
    }
    ListQuery {
        /// Absolute, inside the sandbox.
        path: String,
        /// Instead of `path`, when it is not UTF-8.
        path_base64: String,
        /// Levels to descend; one when missing.
        depth: u32,
        /// `next` of the page before.
        after: String,
        /// Entries in a page.
        limit: u64,
    }
    WriteQuery {
        /// Absolute, inside the sandbox.
        path: String,
        /// Instead of `path`, when it is not UTF-8.
        path_base64: String,
        /// Octal, such as `0644`.
        mode: String,
        /// Owner of a new file.
        user: String,
        append: bool,
        /// Fail when the file is there already.
        create_new: bool,
        /// Fail instead of creating missing parent directories.
        no_parents: bool,
    }
    RemoveQuery {
        /// Absolute, inside the sandbox.
        path: String,
        /// Instead of `path`, when it is not UTF-8.
        path_base64: String,
        recursive: bool,
    }
    WatchQuery {
        /// Absolute, inside the sandbox.
        path: String,
        /// Instead of `path`, when it is not UTF-8.
        path_base64: String,
        recursive: bool,
    }
    GlobQuery {
        /// Such as `/src/**/*.rs`.
        pattern: String,
        limit: u64,
    }
    SignalQuery {
        /// A name such as `TERM`, or a number; `KILL` when missing.
        signal: String,
        /// Everything the process started, not only its group.
        tree: bool,
    }
    AttachQuery {
        /// `oldest` or `newest`, instead of offsets.
        from: String,
        /// Byte offset to begin at.
        stdout_from: u64,
        /// Byte offset to begin at.
        stderr_from: u64,
    }
}

mod terminals;
mod workspaces;
pub use terminals::*;
pub use workspaces::*;

impl AttachQuery {
    /// Everything still kept is the default.
    pub fn begin(&self) -> Result<AttachFrom, Error> {
        match (self.from.as_deref(), self.stdout_from, self.stderr_from) {
            (None | Some("oldest"), None, None) => Ok(AttachFrom::Oldest),
            (Some("newest"), None, None) => Ok(AttachFrom::Newest),
            (None, stdout, stderr) => Ok(AttachFrom::Offsets {
                stdout: stdout.unwrap_or(0),
                stderr: stderr.unwrap_or(0),
            }),
            _ => Err(Error::invalid("these attach parameters do not go together")
                .hint("either from=oldest, or from=newest, or stdout_from and stderr_from")),
        }
    }
}

impl From<AttachFrom> for AttachQuery {
    fn from(begin: AttachFrom) -> AttachQuery {
        let mut query = AttachQuery::default();
        match begin {
            AttachFrom::Oldest => query.from = Some("oldest".to_string()),
            AttachFrom::Newest => query.from = Some("newest".to_string()),
            AttachFrom::Offsets { stdout, stderr } => {
                query.stdout_from = Some(stdout);
                query.stderr_from = Some(stderr);
            }
        }
        query
    }
}

/// The path a caller gave in one of its two forms.
pub fn guest_path(text: Option<&str>, base64: Option<&str>) -> Result<GuestPath, Error> {
    match (text, base64) {
        (Some(text), None) => GuestPath::new(text.as_bytes().to_vec()),
        (None, Some(base64)) => GuestPath::new(decode_base64(base64)?),
        (None, None) => Err(Error::invalid("a path is missing")
            .hint("give `path`, or `path_base64` when it is not UTF-8")),
        (Some(_), Some(_)) => Err(Error::invalid("a path is given twice")),
    }
}

/// A path in the form that carries it: text if it is UTF-8.
pub fn split_path(path: &GuestPath) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(path.as_bytes()) {
        Ok(text) => (Some(text.to_string()), None),
        Err(_) => (None, Some(encode_base64(path.as_bytes()))),
    }
}

/// Base64 that survives in a query: URL-safe or not, padded or not.
pub fn decode_base64(text: &str) -> Result<Bytes, Error> {
    let plain: String = text
        .trim_end_matches('=')
        .chars()
        .map(|c| match c {
            '-' => '+',
            '_' => '/',
            // A plus sign that a query decoder has taken for a space.
            ' ' => '+',
            other => other,
        })
        .collect();
    let bytes = STANDARD_NO_PAD.decode(plain);
    bytes
        .map(Bytes::from)
        .map_err(|_| Error::invalid("the base64 cannot be read"))
}

pub fn encode_base64(bytes: &[u8]) -> String {
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

/// Permission bits in octal.
pub fn parse_mode(text: &str) -> Result<u32, Error> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| Error::invalid("the mode is not octal").hint("such as 0644 or 0755"))
}

pub fn format_mode(mode: u32) -> String {
    format!("{mode:04o}")
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
        assert!(serde_json::from_str::<MkdirBody>(r#"{"path":"/x","colour":1}"#).is_err());
    }

    #[test]
    fn paths_have_two_forms() {
        let odd = GuestPath::new(&b"/a\xff"[..]).unwrap();
        let (text, base64) = split_path(&odd);
        assert_eq!(guest_path(text.as_deref(), base64.as_deref()), Ok(odd));
        assert!(guest_path(None, None).is_err());
        assert_eq!(
            decode_base64("-_8").unwrap(),
            decode_base64("+/8=").unwrap()
        );
        assert_eq!(
            decode_base64(" /8").unwrap(),
            decode_base64("+/8=").unwrap()
        );
    }

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("0644"), Ok(0o644));
        assert_eq!(parse_mode("755"), Ok(0o755));
        assert_eq!(parse_mode(&format_mode(0o1777)), Ok(0o1777));
        for text in ["", "0899", "77777", "-1"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn attach_begins_where_it_is_told() {
        for begin in [
            AttachFrom::Oldest,
            AttachFrom::Newest,
            AttachFrom::Offsets {
                stdout: 7,
                stderr: 0,
            },
        ] {
            assert_eq!(AttachQuery::from(begin).begin(), Ok(begin));
        }
    }
}
