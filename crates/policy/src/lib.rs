//! Policies: what sandboxes may reach and what calls may request.
//!
//! ```text
//!   NAME.toml ──► file    parsed, every field checked  ──► Known: rules for the gateway,
//!                                                          limits for calls, a hash
//!   shelf     finds policies: built in, or files of the operator
//!   explain   may this be reached, by which rule, and why (pure)
//! ```
//!
//! A call names a policy; it cannot add destinations.

mod explain;
mod file;
mod shelf;

pub use explain::{explain, narrow, only};
pub use file::{Known, parse};
pub use shelf::Shelf;
