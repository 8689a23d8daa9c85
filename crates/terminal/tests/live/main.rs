//! The session on real terminals of this machine, driven the way an engine drives it.
#![expect(clippy::unwrap_used, reason = "a test ends where its assumptions do")]

mod local;
mod programs;
mod shells;
