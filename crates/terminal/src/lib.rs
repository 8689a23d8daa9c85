//! A terminal session without its sandbox: bytes in, screen and facts out.
//!
//! ```text
//!   PTY bytes ─► redact ─► scan ─┬─► ring, transcript, recording
//!                                ├─► screen ─► text, HTML, SVG, PNG
//!                                ├─► osc (marks) ─┐
//!                                └─► plain ─► expect
//!   kernel facts ─────────────────► classify ─► status, prompt, reason, confidence
//!   requests, clock ──────────────► session ─► bytes to write, outcomes
//! ```
//!
//! Nothing here does I/O (but for [`record`], which writes files when told to),
//! waits, or reads a clock: [`session::Session`] is driven by events and says
//! when it wants to be woken.

mod chars;
pub mod classify;
pub mod error;
pub mod expect;
pub mod integration;
pub mod keys;
pub mod limits;
pub mod mouse;
pub mod osc;
pub mod output;
pub mod palette;
pub mod plain;
pub mod record;
pub mod redact;
pub mod render;
pub mod ring;
pub mod scan;
pub mod screen;
pub mod session;
pub mod size;
pub mod style;

pub use classify::{Confidence, KernelFacts, Prompt, State, Status};
pub use error::TerminalError;
pub use osc::{Mark, MarkKind, Nonce};
pub use screen::{Screen, Size, View};
pub use session::{Outcome, Session};
