//! Every limit of a session, with its name. Guest bytes are hostile: nothing here grows without one.

use motu_core::limits;

/// The narrowest screen: below this the screen model does not terminate on wide characters.
pub const MIN_COLS: u16 = limits::TERMINAL_COLS.min as u16;
/// The widest screen.
pub const MAX_COLS: u16 = limits::TERMINAL_COLS.max as u16;
/// The lowest screen.
pub const MIN_ROWS: u16 = limits::TERMINAL_ROWS.min as u16;
/// The highest screen.
pub const MAX_ROWS: u16 = limits::TERMINAL_ROWS.max as u16;
/// Rows of scrollback kept.
pub const SCROLLBACK_ROWS: usize = limits::TERMINAL_SCROLLBACK_LINES.max as usize;
/// Bytes of scrollback kept, however wide its rows are.
pub const SCROLLBACK_BYTES: usize = 16 * 1024 * 1024;
/// The longest operating system command (title, mark, directory, hyperlink) that is understood.
pub const OSC_BYTES: usize = 2048;
/// The longest operating system command that reaches the screen; it keeps up to 4096 old titles.
pub const SCREEN_OSC_BYTES: usize = 512;
/// Combining characters kept per cell.
pub const COMBINING_PER_CELL: usize = 8;
/// Answers of the screen to queries that nobody has taken yet.
pub const REPLY_BYTES: usize = 4096;
/// The longest window title.
pub const TITLE_BYTES: usize = 512;
/// Finished commands remembered with their offsets.
pub const COMMANDS_KEPT: usize = 256;
/// Recent output kept in memory for cursors; older output is in the transcript.
pub const RING_BYTES: usize = 256 * 1024;
/// The beginning of the current command's output, kept although the ring has gone on.
pub const COMMAND_HEAD_BYTES: usize = 32 * 1024;
/// Plain text an `expect` looks back over; a match cannot be longer.
pub const EXPECT_WINDOW_BYTES: usize = 16 * 1024;
/// Patterns of one `expect`.
pub const EXPECT_PATTERNS: usize = limits::TERMINAL_PATTERNS.max as usize;
/// The longest pattern.
pub const PATTERN_BYTES: usize = limits::TERMINAL_PATTERN_BYTES.max as usize;
/// The memory a compiled pattern may take.
pub const PATTERN_PROGRAM_BYTES: usize = 1024 * 1024;
/// Plain characters after which an echo that has not come is no longer waited for.
pub const ECHO_SEARCH_CHARS: usize = 8192;
/// The longest text whose echo is looked for.
pub const ECHO_BYTES: usize = 16 * 1024;
/// Secrets a session watches for in its output.
pub const SECRETS: usize = 32;
/// The longest secret.
pub const SECRET_BYTES: usize = limits::TERMINAL_PASSWORD_BYTES.max as usize;
/// Secrets shorter than this are only watched for during their window.
pub const SHORT_SECRET_BYTES: usize = 6;
/// Nested shells that are known by their marks.
pub const NESTED_SHELLS: usize = 8;
/// Output held back while a nested shell is being integrated.
pub const HELD_BYTES: usize = 64 * 1024;
/// Requests waiting on one session.
pub const WAITERS: usize = limits::TERMINAL_WAITERS.max as usize;
/// The longest input of one request.
pub const INPUT_BYTES: usize = limits::TERMINAL_INPUT_BYTES.max as usize;
/// The longest line a program in canonical mode can read; the kernel drops the rest.
pub const CANONICAL_LINE_BYTES: usize = 4095;
/// Largest font file that is read.
pub const FONT_BYTES: u64 = 32 * 1024 * 1024;
/// Font files that are examined.
pub const FONT_FILES: usize = 400;
/// Font files kept in memory after letters of them were drawn.
pub const FONTS_KEPT_BYTES: usize = 64 * 1024 * 1024;
/// Different glyphs in one picture; further ones are drawn as frames.
pub const GLYPHS_PER_PICTURE: usize = 4096;
