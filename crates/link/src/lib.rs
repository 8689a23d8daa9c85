//! The protocol between a host and its guest.
//!
//! One duplex byte stream (a Unix socket, a virtio-serial port) carries many
//! independent streams:
//!
//! ```text
//!   hello  ->  synchronised  ->  frames: OPEN, DATA, MESSAGE, EOF, END, RESET, CREDIT
//! ```
//!
//! - [`hello`] finds the start of a conversation even when stale bytes of an
//!   older one are still in the pipe, and agrees on a version.
//! - [`frame`] is the only parser of foreign bytes; it never panics and never
//!   allocates more than one bounded frame.
//! - [`mux`] turns frames into streams with credit, so that an unread stream
//!   blocks only itself.
//! - [`message`] has the messages on a stream.
//!
//! This crate decides nothing about processes, files or policy.

pub mod frame;
pub mod hello;
pub mod message;
pub mod mux;
pub mod network;

pub use frame::{Frame, FrameError, Kind};
pub use mux::{Event, Incoming, Link, LinkError, Receiver, Sender, Stream};

/// The version of the link spoken by this build.
pub const LINK_VERSION: u32 = 1;
/// The oldest version this build still understands.
pub const LINK_VERSION_MIN: u32 = 1;
