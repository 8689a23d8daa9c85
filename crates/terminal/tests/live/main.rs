//! The session on real terminals, driven like by an engine.
#![expect(clippy::unwrap_used, reason = "a test ends where its assumptions do")]

mod local;
mod programs;
mod shells;
mod unmarked;
