//! The words of motu.
//!
//! - [`Service`] is the one list of verbs; every face (command line, REST, …)
//!   translates and calls it.
//! - [`Runtime`] is what makes machines; the engine above it does the rest.
//! - The types here are the vocabulary of both, and of the wire: one name per
//!   idea, validated once, at the edge.
//!
//! This crate does no I/O.

pub mod accel;
pub mod account;
pub mod ask;
pub mod audit;
pub mod bounds;
pub mod build;
pub mod call;
pub mod collect;
pub mod commit;
pub mod config;
pub mod error;
pub mod event;
pub mod exec;
pub mod files;
pub mod form;
pub mod hint;
pub mod id;
pub mod isolation;
pub mod key;
pub mod leave;
pub mod limits;
pub mod lists;
pub mod metrics;
pub mod network;
pub mod noted;
pub mod outcome;
pub mod page;
pub mod policy;
pub mod program;
pub mod project;
pub mod report;
pub mod runtime;
pub mod sandbox;
pub mod scope;
pub mod secret;
pub mod shown;
pub mod signal;
pub mod size;
pub mod sparse;
pub mod template;
pub mod terminal;
pub mod turns;
pub mod verb;
pub mod workspace;

pub use accel::Accel;
pub use bounds::Bounds;
pub use error::{Error, ErrorKind, Result};
pub use id::SandboxId;
pub use isolation::Isolation;
pub use leave::Leave;
pub use page::Page;
pub use program::Program;
pub use project::Project;
pub use runtime::Runtime;
pub use signal::Signal;
pub use size::Size;
pub use terminal::TerminalId;
pub use verb::{Backend, Service, Terminals, Verbs, Workspaces};
