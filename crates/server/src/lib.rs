//! REST, streams and WebSockets over the gate.
//!
//! A request becomes a call of one verb, and its answer a response. What a call
//! means, allows or costs is never decided here.
//!
//! - [`accept`]: taking connections in; [`connection`]: serving one, `authority`: what some of them
//!   call a socket; [`activity`]: whether anybody is there.
//! - [`listen`]: the address for callers of other hosts; [`places`]: how many they may be; [`tls`]:
//!   its certificates and gRPC's; `patience`: bodies that pause; [`vanished`]: callers that are gone
//!   without a word.
//! - `router`: the routes and the shape of every answer; [`app`]: what handlers have.
//! - `corridor`: requests to calls, answers to responses; one way per shape.
//! - `capsules`: sandboxes in the words of host agents.
//! - [`document`]: the OpenAPI document.
//! - `wording`: what hints call things here.
//! - `stream`, `websocket`: live sessions over HTTP bodies and WebSockets.

pub mod accept;
pub mod activity;
pub mod app;
mod authority;
mod capsules;
pub mod connection;
mod corridor;
pub mod document;
mod events;
mod extract;
mod fault;
mod hosts;
pub mod listen;
mod patience;
pub mod places;
mod preview;
mod repeats;
mod router;
mod stream;
pub mod tls;
pub mod vanished;
mod websocket;
mod wording;

pub use accept::{GRACE, Server, serve};
pub use activity::Activity;
pub use document::openapi;
pub use repeats::Repeats;
pub use router::measured;
pub use wording::Routes;
