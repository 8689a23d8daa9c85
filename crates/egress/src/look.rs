//! What the bytes of a connection say before they leave.
//!
//! Pure and bounded: bytes of a stranger in, facts out. [`flight`] tells what a connection is from
//! its first bytes; [`http`] follows the requests of HTTP/1 on it, one after the other.

pub mod flight;
pub use motu_border::http;
