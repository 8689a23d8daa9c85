//! The checks, grouped by what they look at. Each says in its name what is true.

pub mod exec;
pub mod files;
pub mod keeping;
pub mod lifecycle;
pub mod pause;
pub mod processes;
pub mod refusals;
pub mod restart;
pub mod terminals;
pub mod workspaces;
