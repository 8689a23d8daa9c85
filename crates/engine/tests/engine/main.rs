//! The engine with runtimes that make no machines.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod engine;
mod passed_over;
