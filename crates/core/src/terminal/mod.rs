//! A terminal: a shell on a PTY in a sandbox, with a screen, a transcript and
//! an answer to the question what it waits for.
//!
//! A session is named by its caller and lives in the daemon: it outlives every
//! connection and every daemon, as long as its machine does.

mod answers;
mod requests;
mod state;

pub use crate::verb::Terminals;
pub use answers::*;
pub use requests::*;
pub use state::*;

use crate::ask::Part;
use crate::{Error, Project, Result};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The workspace that sessions without a place of their own share; made on first use and kept.
pub const DEFAULT_PLACE: &str = "terminals";

/// The environment of that workspace.
pub const DEFAULT_ENVIRONMENT: &str = "debian:12";

/// A session's name: 1 to 128 printable characters, chosen by the caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TerminalId(String);

impl TerminalId {
    pub const MAX_CHARS: usize = 128;

    pub fn parse(text: &str) -> Result<TerminalId> {
        let chars = text.chars().count();
        let printable = text
            .chars()
            .all(|c| !c.is_control() && c != '\u{2028}' && c != '\u{2029}');
        if chars == 0 || chars > TerminalId::MAX_CHARS || !printable {
            return Err(Error::invalid("that is not a session_id")
                .hint("1 to 128 printable characters, such as `build` or `db shell`"));
        }
        Ok(TerminalId(text.to_string()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TerminalId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for TerminalId {
    type Error = Error;

    fn try_from(text: String) -> Result<TerminalId> {
        TerminalId::parse(&text)
    }
}

impl From<TerminalId> for String {
    fn from(id: TerminalId) -> String {
        id.0
    }
}

impl Part for TerminalId {
    const FORM: &'static str = crate::form::TERMINAL_ID;

    fn text(part: &TerminalId) -> String {
        part.to_string()
    }

    fn read(text: &str) -> Result<TerminalId> {
        TerminalId::parse(text)
    }

    fn within(part: &mut TerminalId, _: &str, project: &Project) -> Result<()> {
        *part = TerminalId::parse(&project.complete(part.as_str()))?;
        Ok(())
    }
}
