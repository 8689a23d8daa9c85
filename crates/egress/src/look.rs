//! Inspects the bytes of a connection before they are sent.
//!
//! Pure and bounded: untrusted bytes in, facts out. [`flight`] detects the protocol from the first
//! bytes; [`http`] follows the HTTP/1 requests on a connection.

pub mod flight;
pub use motu_border::http;
