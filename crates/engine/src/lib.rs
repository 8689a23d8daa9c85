//! The engine: the one implementation of [`motu_core::Service`].
//!
//! ```text
//!   Service verbs
//!        │
//!   ┌────▼─────┐   handle    ┌────────────────────────┐
//!   │ Engine   ├────────────►│ driver: one task owns  │──► Runtime (make, pause, destroy)
//!   │ (table)  │◄────────────┤ one sandbox            │
//!   └────┬─────┘   watch     └───────────┬────────────┘
//!        │                               │ state changes, written before they are acted on
//!        │ commands, files, ports     ┌──▼───┐
//!        └──────► guest (over link)   │ store│
//!                                     └──────┘
//! ```
//!
//! - [`lifecycle`] is pure: may this happen now, has it happened already, or
//!   why not.
//! - `driver` is the only place that changes a sandbox's state.
//! - `guest` speaks to the program inside the machine; it never touches state.
//! - [`store`] remembers sandboxes across restarts.

mod absent;
mod admission;
mod adopt;
mod archives;
mod audit;
pub mod backup;
mod beyond;
mod blocking;
mod border;
mod build;
mod call;
mod choose;
mod clock;
mod copy_tree;
mod decisions;
mod doctor;
mod driver;
mod egress;
mod engine;
mod fork;
mod found;
mod guest;
mod handed;
mod home;
mod kept;
mod launch;
pub mod lifecycle;
mod lost;
mod one_shot;
mod outside;
mod paths;
mod pipe;
mod pool;
mod quota;
mod reconcile;
mod record;
pub mod recover;
mod resolve;
mod secrets;
mod service;
mod shortage;
mod shown;
mod space;
pub mod store;
mod sys;
mod terminal;
mod trash;
mod workspace;

pub use engine::{Engine, Setup};

/// The hidden argument by which a program is told to be a gateway.
pub const GATEWAY: &str = "__gateway";

pub use home::Home;
