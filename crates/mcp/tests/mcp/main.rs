//! The MCP server, over HTTP and over a pipe in memory, before a service that records its calls.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod http;
mod stub;
mod tools;
