//! Secrets at the border: placeholders that a sandbox sends to a bound host are replaced by values.
//!
//! ```text
//!   sandbox ──TLS──► guest side │ requests: judged, rewritten │ host side ──TLS──► host
//!            ◄──────            │ answers: passed as they are │           ◄──────
//! ```
//!
//! No I/O: bytes in, bytes out, everything bounded. The driver of a [`session::Session`] owns the
//! sockets, and decides about each request through a [`Gate`].

pub mod agent;
pub mod authority;
pub mod h1;
pub mod h2;
pub mod hpack;
pub mod http;
mod place;
mod secret;
pub mod session;
mod sigv4;
mod swap;

pub use place::{Gate, Out, Place, Refusal};
pub use secret::{PLACEHOLDER, Secret, Value, placeholder};
