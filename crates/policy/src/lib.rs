//! Policies: what sandboxes may reach and what calls may ask for.
//!
//! ```text
//!   NAME.toml ──► file    read, every field checked   ──► Known: rules for the gateway,
//!                                                          bounds for calls, a hash
//!   shelf     where they are: shipped with motu, or files of the operator's
//!   explain   may this be reached, by which rule, and why (pure)
//! ```
//!
//! A call names a policy; it never brings destinations of its own.

mod explain;
mod file;
mod shelf;

pub use explain::{explain, narrow, only};
pub use file::{Known, parse};
pub use shelf::Shelf;
