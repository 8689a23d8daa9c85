//! The guest as its host sees it: the built program, driven over a real link.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod acting;
mod files;
mod following;
mod input;
mod listing;
mod machine;
mod processes;
#[path = "../support/mod.rs"]
mod support;
mod trees;
mod watching;
mod workspace;
mod workspace_apply;
mod workspace_files;
