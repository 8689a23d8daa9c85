//! gRPC over the gate: the host agent's API, health and reflection.
//!
//! A message becomes calls of verbs, and their answers a message. What a call means, allows or
//! costs is never decided here.
//!
//! ```text
//!   HTTP/2 ──► routes ──► service (method, messages) ──► agent (one caller at the gate)
//!                                                          │
//!     sandboxes · commands · processes · terminals · files · templates · metrics
//! ```
//!
//! - [`wire`]: messages and descriptor, made from `proto/` and checked in; a test compares.
//! - [`listen`]: the address for callers of other hosts, with mutual TLS. Local callers come
//!   through the daemon's own socket.
//! - `status`: errors as codes of gRPC.

mod agent;
mod ask;
mod commands;
mod files;
pub mod listen;
mod metrics;
mod names;
mod naps;
mod processes;
mod routes;
mod sandboxes;
mod service;
mod status;
mod templates;
mod terminals;
pub mod wire;

pub use routes::{Settings, routes};
pub use service::METHODS;
pub use status::code;
