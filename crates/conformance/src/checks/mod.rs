//! The checks, grouped by subject. The name of each states what is true.

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
