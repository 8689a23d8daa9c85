//! The protocol between the server and its clients.
//!
//! - [`frame`]: the frames of a live stream, and a decoder without copies.
//! - [`event`]: the messages in JSON frames.
//! - [`wire`]: bodies, queries and headers of the REST calls.
//! - [`client`]: a [`motu_core::Service`] over a socket.
//!
//! This crate defines only the encoding of calls, not what they do.

pub mod address;
pub mod client;
pub mod event;
pub mod frame;
pub mod socket;
pub mod wire;

pub use client::{Client, Dial, Duplex};
