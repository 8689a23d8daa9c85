//! What can be asked of a terminal.

use crate::ask::Ask;
use crate::bounds::Bounds;
use crate::exec::TtySize;
use crate::{Error, Project, Result, SandboxId, limits};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Opens a session, or finds it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct OpenTerminal {
    /// Who the sandbox belongs to that may be made for it; the gate says, not the caller.
    #[serde(skip)]
    pub owner: String,
    /// What the caller's key allows; the gate says, not the caller.
    #[serde(skip)]
    pub bounds: Bounds,
    pub session_id: String,
    /// A sandbox or workspace that is there; default: the workspace `terminals`, made on first use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sandbox_id: Option<SandboxId>,
    /// It is a shell of this workspace, which it belongs to.
    #[serde(skip)]
    pub of_workspace: bool,
    /// On the host itself, with no isolation. Only where the daemon's owner asks for it.
    pub host: bool,
    /// Where the shell starts; default `/workspace` where there is one, else the user's home.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// The shell, or any other program with its arguments; default `bash`.
    pub command: Vec<String>,
    pub env: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Let the shell read the user's own files (`.bashrc`).
    pub user_files: bool,
    /// Default 80 x 24.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<TtySize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// What the shell's prompt looks like, where nothing else can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_regex: Option<String>,
    /// Silence, in ms, after which a look is taken at a program without marks; default 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiescence_ms: Option<u64>,
}

/// Changes what is known of a session. What is missing stays; an empty text takes it away.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ConfigureTerminal {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_regex: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quiescence_ms: Option<u64>,
    /// A new size; the text is wrapped anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<TtySize>,
}

/// How long a request waits and how its output comes back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Wait {
    /// In seconds; the default depends on the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<f64>,
    /// Text without control sequences, as a person would see it; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strip_ansi: Option<bool>,
    /// Bytes of text; the middle is left out when there is more. Default 16384.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_output_bytes: Option<u64>,
}

impl Wait {
    /// Seconds as a checked time.
    pub fn timeout(&self, default: f64) -> Result<Duration> {
        let max = limits::TERMINAL_TIMEOUT_SECONDS.max as f64;
        let seconds = self.timeout.unwrap_or(default);
        if !seconds.is_finite() || seconds < 0.0 || seconds > max {
            return Err(
                Error::invalid(format!("timeout is {seconds} seconds")).hint(format!(
                    "0 to {max} seconds; a shorter wait loses nothing, what runs goes on"
                )),
            );
        }
        Ok(Duration::from_secs_f64(seconds))
    }
}

/// A command line for the shell, or a line for the program in front.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunInTerminal {
    pub command: String,
    /// Type it even if a program that reads nothing, or asks for a secret, is in front.
    pub force: bool,
    #[serde(flatten)]
    pub wait: Wait,
}

impl RunInTerminal {
    pub const TIMEOUT: f64 = 30.0;
}

/// What is typed; exactly one of the first four.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SendToTerminal {
    /// As it is, without a newline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// As one paste, in brackets where the program asks for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paste: Option<String>,
    /// Names of keys: `Up`, `F5`, `Ctrl-C`, `Alt-x`, `Enter`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keys: Option<Vec<String>>,
    /// A letter to be typed with Ctrl, or `[`/`esc` for Escape.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<String>,
    #[serde(flatten)]
    pub wait: Wait,
}

impl SendToTerminal {
    pub const TIMEOUT: f64 = 30.0;
    pub const CONTROL_TIMEOUT: f64 = 5.0;
}

/// A secret, typed where the program does not show it.
#[derive(Clone, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TerminalPassword {
    pub password: String,
    /// Send it even where it may be shown.
    pub force: bool,
    #[serde(flatten)]
    pub wait: Wait,
}

impl TerminalPassword {
    pub const TIMEOUT: f64 = 30.0;
}

impl std::fmt::Debug for TerminalPassword {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TerminalPassword(..)")
    }
}

/// A signal for the foreground process group.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SignalTerminal {
    /// `TERM`, `SIGTERM` or a number.
    pub signal: String,
    /// How long to wait for what it does; default 1.
    #[serde(flatten)]
    pub wait: Wait,
}

impl SignalTerminal {
    pub const TIMEOUT: f64 = 1.0;
}

/// Wait for output without typing anything.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct PollTerminal {
    #[serde(flatten)]
    pub wait: Wait,
}

impl PollTerminal {
    pub const TIMEOUT: f64 = 0.1;
}

/// Wait for text.
#[derive(Clone, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ExpectInTerminal {
    /// Regular expressions; the first to match in the stream wins.
    pub patterns: Vec<String>,
    /// Take the patterns as they are written.
    pub literal: bool,
    /// Where to begin: `next_cursor` of another answer. Default: with what is on the screen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Match the bytes as they came, escapes included.
    pub raw: bool,
    /// Let the echo of what was typed match.
    pub echo: bool,
    #[serde(flatten)]
    pub wait: Wait,
}

impl ExpectInTerminal {
    pub const TIMEOUT: f64 = 30.0;
}

/// How a screen is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ScreenFormat {
    #[default]
    Text,
    /// Text with escapes for colours and attributes.
    Ansi,
    Html,
    Svg,
    /// A picture, as base64.
    Png,
}

impl ScreenFormat {
    pub const NAMES: [&'static str; 5] = ["text", "ansi", "html", "svg", "png"];
}

impl std::str::FromStr for ScreenFormat {
    type Err = Error;

    fn from_str(text: &str) -> Result<ScreenFormat> {
        Ok(match text {
            "text" => ScreenFormat::Text,
            "ansi" => ScreenFormat::Ansi,
            "html" => ScreenFormat::Html,
            "svg" => ScreenFormat::Svg,
            "png" => ScreenFormat::Png,
            other => {
                return Err(Error::invalid(format!("there is no format {other:?}"))
                    .hint(format!("one of: {}", ScreenFormat::NAMES.join(", "))));
            }
        })
    }
}

/// Which part of the stream that a session printed.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadTranscript {
    /// Where to begin, in bytes; default: the last `max_bytes`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<u64>,
    /// Default 16384; 0 asks for the paths alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
    /// Text without control sequences; default true.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strip_ansi: Option<bool>,
}

/// How the screen is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadScreen {
    /// `text` (the default), `ansi`, `html`, `svg` or `png`.
    pub format: ScreenFormat,
}

impl From<ScreenFormat> for ReadScreen {
    fn from(format: ScreenFormat) -> ReadScreen {
        ReadScreen { format }
    }
}

/// How much of the screen and what is above it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReadScrollback {
    /// Rows, the last ones; default 200, 0 for all.
    pub lines: u64,
    /// Text without colours and attributes; default true.
    pub strip_ansi: bool,
}

impl Default for ReadScrollback {
    fn default() -> ReadScrollback {
        ReadScrollback {
            lines: limits::TERMINAL_SCROLLBACK_LINES.default,
            strip_ansi: true,
        }
    }
}

/// Who sits down at a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TakeSeat {
    /// Columns of the caller's terminal. Without a size the caller only watches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cols: Option<u16>,
    /// Rows of the caller's terminal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<u16>,
}

impl TakeSeat {
    /// The size, or that the caller only watches.
    pub fn seat(&self) -> Result<Option<TtySize>> {
        match (self.cols, self.rows) {
            (Some(cols), Some(rows)) => Ok(Some(TtySize { cols, rows })),
            (None, None) => Ok(None),
            _ => Err(Error::invalid("half of a size is given")
                .hint("give `cols` and `rows`, or neither to only watch")),
        }
    }
}

impl From<Option<TtySize>> for TakeSeat {
    fn from(seat: Option<TtySize>) -> TakeSeat {
        TakeSeat {
            cols: seat.map(|size| size.cols),
            rows: seat.map(|size| size.rows),
        }
    }
}

impl Ask for OpenTerminal {
    fn wants_host(&self) -> bool {
        self.host
    }

    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn bounded(&mut self, bounds: &Bounds) {
        self.bounds = bounds.clone();
    }

    fn within(&mut self, project: &Project) -> Result<()> {
        project.complete_name(&mut self.session_id);
        Ok(())
    }

    fn sandboxes(&mut self) -> Vec<&mut SandboxId> {
        self.sandbox_id.iter_mut().collect()
    }

    fn terminal(&self) -> Option<&str> {
        Some(&self.session_id)
    }
}

impl Ask for RunInTerminal {
    const LONG: bool = true;
}

impl Ask for SendToTerminal {
    const LONG: bool = true;
}

impl Ask for ConfigureTerminal {}
impl Ask for TerminalPassword {}
impl Ask for SignalTerminal {}
impl Ask for PollTerminal {}
impl Ask for ExpectInTerminal {}
impl Ask for Wait {}
impl Ask for ReadScreen {}
impl Ask for ReadScrollback {}
impl Ask for ReadTranscript {}
impl Ask for TakeSeat {}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::de::DeserializeOwned;

    /// What a request says of a field that nobody knows.
    fn refusal<T: DeserializeOwned>() -> String {
        let read = serde_json::from_str::<T>(r#"{"timeout": 1, "colour": 1}"#);
        read.err().map_or(String::new(), |error| error.to_string())
    }

    #[test]
    fn unknown_fields_are_refused_by_name() {
        let refusals = [
            refusal::<RunInTerminal>(),
            refusal::<SendToTerminal>(),
            refusal::<TerminalPassword>(),
            refusal::<SignalTerminal>(),
            refusal::<PollTerminal>(),
            refusal::<ExpectInTerminal>(),
            refusal::<Wait>(),
        ];
        for refusal in refusals {
            assert!(refusal.contains("unknown field `colour`"), "{refusal:?}");
        }
    }

    #[test]
    fn a_seat_has_a_whole_size_or_none() {
        let seat = Some(TtySize { cols: 9, rows: 3 });
        assert_eq!(TakeSeat::from(seat).seat(), Ok(seat));
        assert_eq!(TakeSeat::from(None).seat(), Ok(None));
        let half = TakeSeat {
            cols: Some(9),
            rows: None,
        };
        assert!(half.seat().is_err());
    }

    #[test]
    fn the_wait_stands_beside_the_rest() {
        let text = r#"{"command": "make", "timeout": 5, "strip_ansi": false}"#;
        let run: RunInTerminal = serde_json::from_str(text).unwrap();
        assert_eq!(run.wait.timeout, Some(5.0));
        assert_eq!(run.wait.strip_ansi, Some(false));
        let written = serde_json::to_value(&run).unwrap();
        assert_eq!(written["timeout"], 5.0);
    }
}
