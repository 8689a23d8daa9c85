//! The engine: executes what callers ask for.
//!
//! ```text
//!   verbs ──► Engine
//!               ├─ Terminals ──┐
//!               ├─ Calls ──────┤   each part knows those to its right
//!               ├─ Workspaces ─┤
//!               ├─ Templates ──┤
//!               └─ Environments┴─► Sandboxes (table)
//!                                      │ handle      ┌────────────────────────┐
//!                                      ├────────────►│ driver: one task owns  │──► Runtime (make,
//!                                      │◄────────────┤ one sandbox            │    pause, destroy)
//!                                      │ watch       └───────────┬────────────┘
//!                                      │                         │ state changes, written before
//!                                      │ commands, files, ports  │ they are acted on
//!                                      └──► guest (over link)    └──► store
//! ```
//!
//! - [`lifecycle`] is pure: may this happen now, has it happened already, or
//!   why not.
//! - `driver` is the only place that changes a sandbox's state.
//! - `guest` speaks to the program inside the machine; it never touches state.
//! - [`store`] remembers sandboxes across restarts.
//! - `service` has the verbs that belong to no single part.

mod absent;
mod admission;
mod audit;
pub mod backup;
mod beyond;
mod blocking;
mod border;
mod call;
mod choose;
mod clock;
mod copy_tree;
mod directory;
mod doctor;
mod dormant;
mod driver;
mod egress;
mod engine;
mod environment;
pub mod events;
mod found;
mod guest;
mod home;
mod kept;
mod keys;
mod labels;
mod launch;
mod lease;
pub mod lifecycle;
mod lost;
mod outside;
mod owned;
mod paths;
mod pipe;
mod proof;
mod quota;
mod record;
pub mod recover;
mod register;
mod rings;
mod sandbox;
mod secrets;
mod service;
mod shortage;
mod shown;
pub mod store;
mod sys;
mod template;
mod terminal;
mod titles;
mod trash;
mod workspace;

pub use directory::OwnDirectory;
pub use engine::{Engine, Setup};
pub use lease::{KEEPER, keep};

/// The hidden argument that makes the executable run as a gateway.
pub const GATEWAY: &str = "__gateway";

pub use home::Home;
