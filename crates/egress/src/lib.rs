//! The network gateway of a sandbox.
//!
//! ```text
//!   sandbox ──Ethernet frames──► gateway (one confined process) ──host sockets──► network
//!                                   │  rules: what may be reached   (pure)
//!                                   │  judge: one question, one verdict (pure)
//!                                   └► decisions: one JSON line each
//! ```
//!
//! The gateway runs outside the guest: nothing a guest does to itself changes what it may reach.

pub mod address;
pub mod border;
pub mod dns;
pub mod gateway;
pub mod host;
pub mod judge;
pub mod look;
pub mod proxy;
pub mod rules;
