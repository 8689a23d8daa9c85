//! What a terminal waits for, and why a request was answered.

use serde::{Deserialize, Serialize};

/// What input is likely needed next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// A program works; it asks for nothing.
    Running,
    /// A shell waits for a command.
    Ready,
    /// An interpreter or debugger waits for a statement.
    Repl,
    /// Something waits for a secret.
    Password,
    /// Something asks and waits for the answer: a yes or no, a choice, a name.
    Confirm,
    /// A full-screen editor or other full-screen program has the screen.
    Editor,
    /// A pager shows text.
    Pager,
    Unknown,
    /// The shell has ended.
    Eof,
    /// The session was terminated.
    Terminated,
}

impl Status {
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Ready => "ready",
            Status::Repl => "repl",
            Status::Password => "password",
            Status::Confirm => "confirm",
            Status::Editor => "editor",
            Status::Pager => "pager",
            Status::Unknown => "unknown",
            Status::Eof => "eof",
            Status::Terminated => "terminated",
        }
    }

    /// Whether something waits for the caller.
    pub fn wants_input(self) -> bool {
        matches!(
            self,
            Status::Ready
                | Status::Repl
                | Status::Password
                | Status::Confirm
                | Status::Editor
                | Status::Pager
        )
    }
}

/// Whose prompt it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Prompt {
    Shell,
    Python,
    Pdb,
    Ipython,
    Node,
    Ruby,
    Psql,
    Mysql,
    Sqlite,
    Redis,
    Gdb,
    Lldb,
    Lua,
    R,
    Julia,
    Php,
    Perl,
    Ghci,
    Scala,
    Java,
    Erlang,
    Elixir,
    Mongo,
    Bc,
    /// Another interpreter.
    Other,
    None,
    Unknown,
}

/// How sure the answer is.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Confidence {
    /// From text alone.
    Low,
    /// The kernel and the screen agree.
    Medium,
    /// The kernel says so.
    High,
    /// The shell said so, signed.
    Certain,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct State {
    pub status: Status,
    pub prompt: Prompt,
    /// Why, in a few words.
    pub reason: String,
    pub confidence: Confidence,
}

impl State {
    pub fn new(
        status: Status,
        prompt: Prompt,
        confidence: Confidence,
        reason: impl Into<String>,
    ) -> State {
        State {
            status,
            prompt,
            reason: reason.into(),
            confidence,
        }
    }
}

/// Why a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The command has ended: the shell said so, and has drawn its prompt.
    CommandEnded,
    /// Something waits for input; `state` says what.
    WaitsForInput,
    /// Nothing more came for a while.
    Quiet,
    /// A pattern matched.
    Matched,
    /// The time was up; what runs goes on.
    TimedOut,
    /// The shell has ended.
    SessionEnded,
    /// Nobody waits any more.
    Cancelled,
}

/// Modes that change what input means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Modes {
    pub alternate_screen: bool,
    pub app_cursor: bool,
    pub app_keypad: bool,
    pub bracketed_paste: bool,
    pub mouse: bool,
    pub sgr_mouse: bool,
    pub focus: bool,
}
