//! Real programs at a terminal in a sandbox: interpreters, debuggers, editors, pagers, password
//! prompts, and other interactive programs.
//!
//! The environment is built by `tools/programs`. Every test has its own state directory, daemon
//! and machine, and uses them as any client does.

mod desk;
mod manners;
mod output;
mod pressure;
mod previews;
mod prompts;
mod repls;
mod screens;
mod situations;
