//! The storage and text side of workspaces.
//!
//! A workspace's `/workspace` is an immutable *baseline* tree with what the
//! machine wrote laid over it. This crate owns everything about that which needs
//! no machine:
//!
//! - [`patch`] and [`edit`]: changes written as text, applied all or nothing.
//! - [`diff`]: what differs from the baseline, as a report with patches in it.
//! - [`seed`]: the baseline itself, from a directory or an [`archive`].
//! - [`output`]: what came out of a machine, put on the host.
//! - [`secrets`]: values sealed at rest and taken out of output.
//! - [`snapshots`]: named checkpoints that cost what changed.
//! - [`sync`]: what a later push of a directory has to send.
//!
//! It knows nothing of runtimes, sandboxes or the link's streams. Callers fetch
//! bytes from a machine, hand them in and carry out what comes back.

pub mod archive;
pub mod diff;
pub mod edit;
pub mod output;
pub mod patch;
pub mod path;
pub mod secrets;
pub mod seed;
pub mod snapshots;
pub mod sync;
pub mod tarball;
pub mod tree;

pub use path::{PathError, WorkspacePath};
