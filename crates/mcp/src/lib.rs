//! The MCP server: the verbs of motu as tools for a model.
//!
//! ```text
//!   stdio ┐                                  ┌ tools/*     one table per group
//!   http  ┴─► handler (rmcp) ─► Call ─► Tool ┤ resources   what is too long for an answer
//!                                            └ approve     questions to a person
//! ```
//!
//! A tool is a row of a table: its name, what a model is told of it, the fields it
//! takes and the function that calls the service. A profile picks rows and may leave
//! fields out. Nothing is decided here that the service decides; what is ours is how
//! much is said, how it is cut, and who is asked first.
//!
//! No state hangs on a connection: ids are in arguments. The one thing that lives in
//! this process alone is the rest of a long output of a machine that is gone.

mod address;
mod answer;
mod approve;
mod arguments;
mod call;
#[cfg(test)]
mod conformance;
mod cut;
mod handler;
mod http;
mod lines;
mod names;
mod origin;
mod outputs;
mod profile;
mod progress;
mod resources;
mod schema;
mod stdio;
mod tool;
mod tools;
mod unanswered;
mod watch;
mod wording;

pub use approve::Approvals;
pub use handler::Server;
pub use http::{Http, MAX_TOKEN_BYTES};
pub use origin::Origin;
pub use profile::Profile;
pub use wording::Tools;

use motu_core::{Leave, SandboxId, Verbs};
use std::sync::Arc;

/// How much text one answer may have, unless it is told otherwise.
pub(crate) const OUTPUT_BUDGET: usize = motu_core::limits::MCP_OUTPUT_BYTES.default as usize;

/// Where terminal sessions are opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// In the kept workspace `terminals`, made on first use.
    #[default]
    Usual,
    /// In a sandbox or workspace that is there.
    In(SandboxId),
    /// On the host, with no isolation.
    Host,
}

/// What the text of a result is; the structured part is always there too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Text {
    /// JSON for a client whose revision of the protocol has text alone, a few words for a model
    /// for the others.
    #[default]
    Auto,
    /// Words for a model. They take fewer tokens than the same as JSON.
    Plain,
    /// The structured part as JSON, for programs that read the text alone.
    Json,
}

impl std::str::FromStr for Text {
    type Err = motu_core::Error;

    fn from_str(text: &str) -> motu_core::Result<Text> {
        match text {
            "auto" => Ok(Text::Auto),
            "plain" => Ok(Text::Plain),
            "json" => Ok(Text::Json),
            other => Err(
                motu_core::Error::invalid(format!("there is no kind of text {other:?}"))
                    .hint("one of: auto, plain, json"),
            ),
        }
    }
}

/// What a server is told when it is started.
#[derive(Clone)]
pub struct Options {
    pub profile: Profile,
    pub approvals: Approvals,
    pub place: Place,
    pub text: Text,
    /// Sessions are opened by `create_session` alone.
    pub explicit_sessions: bool,
    /// The policy of typed calls; `none` when missing.
    pub policy: Option<String>,
    /// Names of sessions are this server's own, told apart by this word; `None` shares them with
    /// every other client.
    pub scope: Option<String>,
    /// What the operator allows beside what is walled; the service is held to it too.
    pub leave: Leave,
    /// Whether listing resources may ask the service now; asking might start a daemon.
    pub awake: Arc<dyn Fn() -> bool + Send + Sync>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            profile: Profile::WorkspaceFull,
            approvals: Approvals::Always,
            place: Place::Usual,
            text: Text::Auto,
            policy: None,
            explicit_sessions: false,
            scope: None,
            leave: Leave::default(),
            awake: Arc::new(|| true),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("profile", &self.profile)
            .field("approvals", &self.approvals)
            .field("place", &self.place)
            .field("explicit_sessions", &self.explicit_sessions)
            .finish_non_exhaustive()
    }
}

/// What every call of one server shares.
pub(crate) struct Shared {
    pub service: Arc<dyn Verbs>,
    pub options: Options,
    pub outputs: outputs::Outputs,
    pub seal: approve::Seal,
    /// Whether a person has said that machines may be made without isolation.
    pub unwalled: std::sync::atomic::AtomicBool,
    pub names: names::Names,
    /// What must still be done when a call or the server ends.
    pub chores: tokio_util::task::TaskTracker,
}

impl Shared {
    /// The name of a session of this server's own.
    pub fn own_name<'a>(&self, id: &'a str) -> Option<&'a str> {
        let scope = self.options.scope.as_deref()?;
        id.strip_suffix(scope)?.strip_suffix('@')
    }
}
