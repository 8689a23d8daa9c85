//! gRPC: the host agent's API, events, health and reflection.
//!
//! A message is translated into calls of the service, and their answers into a message. What a
//! call means, allows or costs is not decided here.
//!
//! ```text
//!   HTTP/2 ──► routes ──► service (method, messages) ──► agent (one caller at the gate)
//!                                                          │
//!     sandboxes · commands · processes · terminals · files · templates · metrics
//! ```
//!
//! - [`wire`]: messages and descriptor, generated from `proto/` and checked in; a test compares.
//! - [`listen`]: the address for other hosts, with mutual TLS. Local callers use the daemon's
//!   socket.
//! - `status`: errors as gRPC status codes.

mod agent;
mod ask;
mod commands;
mod events;
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
pub use service::{EVENT_METHODS, METHODS};
pub use status::code;
