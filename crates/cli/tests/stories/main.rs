//! What callers see: the command line, REST, gRPC, MCP, the Python SDK, and the pages that describe
//! them.
//!
//! Most stories run on the `container` runtime or without machines. Each module has its own state
//! directories.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod calls;
mod demo;
mod docs;
mod doctor;
mod events;
mod grpc;
mod guides;
mod hints;
mod keys;
mod mcp;
mod mcp_clients;
mod mcp_config;
mod mcp_wire;
mod provider;
mod python;
mod quoting;
mod service;
mod shapes;
mod stories;
mod stories_processes;
mod stories_terminals;
mod stories_workspaces;
mod stubbed;
mod terminals;
mod verbs;
mod walls;
mod workspaces;
