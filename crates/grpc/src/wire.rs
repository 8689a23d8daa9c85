//! Messages and descriptor of `proto/hostagent/v1/hostagent.proto`.
//!
//! Both files are made by the test `proto`, which fails when they are not what the `.proto` says;
//! `MOTU_UPDATE=1` writes them. So no build of motu needs a compiler of protobuf.

#[rustfmt::skip]
mod generated;

pub use generated::*;

/// The compiled `.proto`, for reflection.
pub const DESCRIPTOR: &[u8] = include_bytes!("wire/hostagent.binpb");

/// The name of the service.
pub const SERVICE: &str = "hostagent.v1.HostAgentService";
