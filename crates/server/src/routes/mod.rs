//! The handlers, by family. Each calls one verb.

pub mod commands;
pub mod environments;
pub mod files;
pub mod ports;
pub mod sandboxes;
pub mod service;
pub mod terminals;
pub mod workspaces;

use crate::fault::Fault;

/// What a handler gives.
type Answer<T> = Result<T, Fault>;
