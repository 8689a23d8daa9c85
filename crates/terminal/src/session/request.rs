//! Requests to a session, and their outcome.

pub use motu_core::terminal::End;

use crate::classify::State;
use crate::expect::{Cursor, Found, Pattern};
use crate::output::{DEFAULT_BUDGET, Excerpt};
use std::time::Duration;

/// Identifies a request until its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub(super) u64);

/// How output is returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// Bytes of text; the middle is cut if there is more.
    pub budget: usize,
    /// Raw, with escapes and control characters.
    pub raw: bool,
}

impl Default for Shape {
    fn default() -> Shape {
        Shape {
            budget: DEFAULT_BUDGET,
            raw: false,
        }
    }
}

/// Run a command line.
#[derive(Clone, Debug)]
pub struct Run {
    pub command: String,
    pub timeout: Duration,
    pub shape: Shape,
    /// Type it even if a program that does not read is in the foreground.
    pub force: bool,
}

impl Run {
    pub fn new(command: impl Into<String>, timeout: Duration) -> Run {
        Run {
            command: command.into(),
            timeout,
            shape: Shape::default(),
            force: false,
        }
    }
}

/// Input to type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Unchanged.
    Text(String),
    /// As a bracketed paste, if the program asked for it.
    Paste(String),
    /// Names of keys.
    Keys(Vec<String>),
    /// The key of `send_control`.
    Control(String),
}

/// Type something and wait for the effect.
#[derive(Clone, Debug)]
pub struct Send {
    pub input: Input,
    pub timeout: Duration,
    pub shape: Shape,
}

impl Send {
    pub fn text(text: impl Into<String>, timeout: Duration) -> Send {
        Send {
            input: Input::Text(text.into()),
            timeout,
            shape: Shape::default(),
        }
    }
}

/// Type a secret.
#[derive(Clone)]
pub struct SendPassword {
    pub password: String,
    pub timeout: Duration,
    /// Send it even if it may be displayed.
    pub force: bool,
}

impl std::fmt::Debug for SendPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SendPassword(..)")
    }
}

/// Wait for output.
#[derive(Clone, Copy, Debug)]
pub struct Poll {
    pub timeout: Duration,
    pub shape: Shape,
}

/// Wait for one of several patterns.
#[derive(Clone, Debug)]
pub struct Expect {
    pub patterns: Vec<Pattern>,
    pub timeout: Duration,
    /// Where to begin; by default with the text on the screen.
    pub from: Option<Cursor>,
    pub raw: bool,
    /// Also match the echo of typed input.
    pub echo: bool,
    pub shape: Shape,
}

/// The answer to a request.
#[derive(Clone, Debug)]
pub struct Outcome {
    pub end: End,
    pub state: State,
    /// The command's own output, or what came since the request.
    pub output: Excerpt,
    /// The exit code, when a command has ended.
    pub exit_code: Option<i32>,
    /// Duration of the command, or of the wait.
    pub duration: Duration,
    pub cwd: Option<String>,
    pub found: Option<Found>,
    /// The stream position of the answer.
    pub cursor: u64,
    /// Hints for the caller.
    pub warnings: Vec<&'static str>,
}

impl Outcome {
    pub fn timed_out(&self) -> bool {
        self.end == End::TimedOut
    }
}
