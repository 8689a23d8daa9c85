//! The wire between the server and its clients.
//!
//! - [`frame`]: the frames of a live stream, and a decoder that copies nothing.
//! - [`event`]: what the JSON frames say.
//! - [`wire`]: bodies, queries and headers of the REST calls.
//! - [`client`]: a [`motu_core::Service`] at the other end of a socket.
//!
//! Nothing here decides what a call does; both ends agree here on how it looks.

pub mod address;
pub mod client;
pub mod event;
pub mod frame;
pub mod socket;
pub mod wire;

pub use client::{Client, Dial};
