//! Real programs at a terminal in a sandbox: interpreters, debuggers, editors, pagers, password
//! prompts, and other interactive programs.
//!
//! The environment is built by `tools/programs`. Every test has its own state directory, daemon
//! and machine, and uses them as any client does.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[path = "programs/desk.rs"]
mod desk;
#[path = "programs/manners.rs"]
mod manners;
#[path = "programs/output.rs"]
mod output;
#[path = "programs/pressure.rs"]
mod pressure;
#[path = "programs/previews.rs"]
mod previews;
#[path = "programs/prompts.rs"]
mod prompts;
#[path = "programs/repls.rs"]
mod repls;
#[path = "programs/screens.rs"]
mod screens;
#[path = "programs/situations.rs"]
mod situations;
#[path = "faults/support.rs"]
#[expect(dead_code, reason = "it was made for more than is needed here")]
mod support;
#[path = "faults/traces.rs"]
#[expect(dead_code, reason = "it was made for more than is needed here")]
mod traces;
