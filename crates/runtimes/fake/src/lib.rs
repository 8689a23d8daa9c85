//! A runtime for tests: everything above runtimes runs unchanged against it.
//!
//! ```text
//!   Fake (holds machines, turns the knobs)
//!     └─ Machine ── link, the real protocol over memory
//!          ├─ files     an in-memory tree
//!          └─ process   a few commands, run by an interpreter
//! ```
//!
//! A machine is a set of tasks on the fake's own thread, so it outlives the engine that made it, as
//! a real machine outlives its daemon. It never touches the host: no process, no file, no socket.
//!
//! [`program`] lists the supported commands; watches, links and terminals are answered with
//! `Unsupported`.

mod answer;
mod archive;
mod fake;
mod file_verbs;
mod files;
mod follow;
mod machine;
mod pattern;
mod process;
pub mod program;
mod script;
mod serve;
mod start;

pub use fake::{Counts, Fake, Play, Stall};
