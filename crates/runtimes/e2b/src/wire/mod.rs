//! The E2B API, as typed calls.
//!
//! ```text
//!   control    the REST API: make, find, pause, end
//!   envd       the agent in a machine: Connect calls with JSON, and files
//!   envelope   messages of a stream; event: what those of processes say
//!   file       what the agent says of files
//! ```

pub(crate) mod control;
pub(crate) mod envd;
pub mod envelope;
pub mod event;
pub(crate) mod file;

pub(crate) use control::{Control, Detail, Made, Order, Standing};
pub(crate) use envd::{Envd, Events, Run};
pub(crate) use file::FileInfo;
