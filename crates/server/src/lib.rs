//! REST, streams and WebSockets over the gate.
//!
//! A request becomes a call of one verb, and its answer a response. What a call
//! means, allows or costs is never decided here.
//!
//! - [`accept`]: connections, and whether anybody is there.
//! - [`app`]: the routes and the shape of every answer.
//! - `corridor`: requests to calls, answers to responses; one way per shape.
//! - [`document`]: the OpenAPI document.
//! - `stream`, `websocket`: live sessions over HTTP bodies and WebSockets.

pub mod accept;
pub mod app;
mod corridor;
pub mod document;
mod extract;
mod fault;
mod stream;
mod websocket;

pub use accept::{Activity, Server, serve};
pub use document::openapi;
