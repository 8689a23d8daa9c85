//! REST, streams and WebSockets over [`motu_core::Service`].
//!
//! Handlers translate a request, call one verb and translate its answer. What
//! a call means, allows or costs is never decided here.
//!
//! - [`accept`]: connections, and whether anybody is there.
//! - [`app`]: the routes, the shape of every answer, the OpenAPI document.
//! - `caller`: who may name paths of the host.
//! - `routes`: one file per family of verbs.
//! - `stream`, `websocket`: live sessions over HTTP bodies and WebSockets.

pub mod accept;
pub mod app;
mod caller;
mod extract;
mod fault;
mod routes;
mod stream;
mod websocket;

pub use accept::{Activity, Server, serve};
pub use app::openapi;
