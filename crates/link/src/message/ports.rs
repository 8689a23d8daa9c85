//! Ports and sockets.

use bytes::Bytes;
use prost::Message;

/// A TCP port on the guest's loopback, or a Unix socket.
#[derive(Clone, PartialEq, Message)]
pub struct Dial {
    #[prost(uint32, tag = "1")]
    pub port: u32,
    /// Used when not empty.
    #[prost(bytes = "bytes", tag = "2")]
    pub unix: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Connected {}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ListPorts {}

#[derive(Clone, PartialEq, Message)]
pub struct Port {
    #[prost(uint32, tag = "1")]
    pub port: u32,
    #[prost(string, tag = "2")]
    pub address: String,
    /// 0 when not known.
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    #[prost(string, tag = "4")]
    pub process: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Ports {
    #[prost(message, repeated, tag = "1")]
    pub ports: Vec<Port>,
}
