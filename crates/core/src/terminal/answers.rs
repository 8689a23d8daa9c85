//! What a terminal answers.

use super::{Confidence, End, Modes, Prompt, ScreenFormat, State, Status};
use crate::exec::TtySize;
use crate::{Isolation, SandboxId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What is known of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Terminal {
    pub session_id: String,
    #[serde(flatten)]
    pub state: TerminalState,
    /// The shell runs.
    pub alive: bool,
    /// It was ended by `terminate`, for good.
    pub terminated: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub sandbox_id: SandboxId,
    pub runtime: String,
    pub isolation: Isolation,
    pub command: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The leader of the foreground process group, in its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub foreground: Option<String>,
    pub cols: u16,
    pub rows: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    pub started_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub last_activity_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_regex: Option<String>,
    pub quiescence_ms: u64,
    /// Bytes printed so far: the cursor of "from now on".
    pub cursor: u64,
}

/// The state, in the words of every answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TerminalState {
    pub status: Status,
    pub prompt: Prompt,
    /// Why, in a few words.
    pub state_reason: String,
    pub confidence: Confidence,
}

impl From<State> for TerminalState {
    fn from(state: State) -> TerminalState {
        TerminalState {
            status: state.status,
            prompt: state.prompt,
            state_reason: state.reason,
            confidence: state.confidence,
        }
    }
}

impl TerminalState {
    /// Of a session that was ended for good.
    pub fn terminated() -> TerminalState {
        TerminalState {
            status: Status::Terminated,
            prompt: Prompt::None,
            state_reason: "the session was terminated".to_string(),
            confidence: Confidence::Certain,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TerminalOpened {
    /// It was not there before.
    pub created: bool,
    #[serde(flatten)]
    pub terminal: Terminal,
}

/// The answer to whatever types or waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TerminalAnswer {
    #[serde(flatten)]
    pub state: TerminalState,
    /// Why it was answered now.
    pub end: End,
    /// The command's own output, or what came since.
    pub output: String,
    pub timed_out: bool,
    pub output_truncated: bool,
    /// Bytes of the output that are not shown.
    pub dropped_bytes: u64,
    /// Where the dropped bytes are: read them with `transcript`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_from: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rest_to: Option<u64>,
    /// Of the command that has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub duration_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// What an `expect` found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<TerminalMatch>,
    /// Where the stream was.
    pub cursor: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TerminalMatch {
    /// Which pattern, from 0.
    pub index: usize,
    pub text: String,
    pub groups: Vec<Option<String>>,
    /// What came before it.
    pub before: String,
    /// Where the next look begins.
    pub next_cursor: String,
}

/// A picture of the screen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TerminalScreen {
    #[serde(flatten)]
    pub state: TerminalState,
    pub format: ScreenFormat,
    /// Base64 for `png`. Row `cursor_y` of `text` is the cursor's.
    pub screen: String,
    pub cursor_x: u16,
    pub cursor_y: u16,
    pub cursor_visible: bool,
    pub cols: u16,
    pub rows: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    pub modes: Modes,
    /// Always true unless the screen model had to begin anew.
    pub vt100_ok: bool,
    pub scrollback_rows: u64,
    pub cursor: u64,
    /// What to do where a picture could not show everything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}

/// The screen and what is above it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TerminalScrollback {
    #[serde(flatten)]
    pub state: TerminalState,
    pub scrollback: String,
    /// Rows returned.
    pub lines: u64,
    /// Rows there are, the screen included.
    pub total_lines: u64,
    pub cols: u16,
    pub rows: u16,
}

/// What was printed, and where it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TerminalTranscript {
    #[serde(flatten)]
    pub state: TerminalState,
    /// The directory on the daemon's host with the raw bytes, the recording and the log.
    pub directory: String,
    /// The newest segment of raw bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transcript: Option<String>,
    /// An asciicast v3 file.
    pub recording: String,
    /// A JSON object per line.
    pub interactions: String,
    /// What the session is, as a JSON object; missing where an older daemon left none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<String>,
    pub text: String,
    pub from: u64,
    pub next_cursor: u64,
    /// The oldest byte that is kept.
    pub oldest: u64,
    pub end: u64,
}

/// The size of somebody's own terminal; without one they only watch.
pub type Seat = Option<TtySize>;
