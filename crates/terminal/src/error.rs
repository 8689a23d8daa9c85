//! Errors of requests.

/// Why a session refused a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TerminalError {
    #[error("the session has ended")]
    Ended,
    #[error("{what} is {len} bytes; the limit is {limit}")]
    TooLong {
        what: &'static str,
        len: usize,
        limit: usize,
    },
    #[error("{count} requests are waiting on this session already")]
    TooManyWaiters { count: usize },
    #[error("another `run` is in progress")]
    Busy,
    #[error("a {status} is in front, not a shell prompt")]
    NotAtPrompt { status: &'static str },
    #[error("a program asks for a secret and would take the command for it")]
    AsksForSecret,
    #[error("not a key: {key}")]
    UnknownKey { key: String },
    #[error("{what}")]
    NoMouse { what: &'static str },
    #[error("column {column}, row {row} is not on the screen")]
    OffScreen { column: u16, row: u16 },
    #[error("pattern {index}: {reason}")]
    BadPattern { index: usize, reason: String },
    #[error("no pattern to wait for")]
    NoPattern,
    #[error("{reason}")]
    EchoOn { reason: &'static str },
}

impl From<TerminalError> for motu_core::Error {
    fn from(error: TerminalError) -> motu_core::Error {
        use motu_core::hint::{field, verb};
        use motu_core::{Error, ErrorKind, hint};
        let message = error.to_string();
        match error {
            TerminalError::Ended => Error::conflict(message)
                .hint(hint!["open it again under its name (", verb("open_terminal"), "), or use another session; its transcript and recording are still there"]),
            TerminalError::TooLong { .. } => {
                Error::limit(message).hint("send it in several parts, or write a file")
            }
            TerminalError::TooManyWaiters { .. } => {
                Error::limit(message).hint("let some of them end first")
            }
            TerminalError::Busy => Error::conflict(message)
                .hint("poll for it, interrupt it with Ctrl-C, or use another session"),
            TerminalError::NotAtPrompt { .. } => Error::conflict(message)
                .hint("look at the screen; answer the program with send_input, or leave it first"),
            TerminalError::AsksForSecret => Error::conflict(message).hint(hint![
                "type the secret (", verb("send_terminal_password"), "), or leave the program: Ctrl-C, an empty line or Ctrl-D; ",
                field("force"), " types the command all the same"
            ]),
            TerminalError::UnknownKey { .. } => Error::invalid(message)
                .hint("names are Enter, Tab, Esc, Up, PageDown, F5, Ctrl-C, Alt-x, Shift-Tab, and of the mouse Click:COLUMN,ROW, ScrollDown:COLUMN,ROW"),
            TerminalError::NoMouse { .. } => {
                Error::conflict(message).hint("use its keys; `get_screen` says in `modes` whether a program listens to the mouse")
            }
            TerminalError::OffScreen { .. } => {
                Error::invalid(message).hint("both count from zero, as cursor_x and cursor_y of get_screen do")
            }
            TerminalError::BadPattern { .. } | TerminalError::NoPattern => Error::invalid(message),
            TerminalError::EchoOn { .. } => Error::new(ErrorKind::Denied, message)
                .hint("wait until the program asks for the password, or force it"),
        }
    }
}
