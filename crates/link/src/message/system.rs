//! The machine itself: identity, clock, measurements.

use bytes::Bytes;
use prost::Message;
use std::collections::HashMap;

#[derive(Clone, PartialEq, Message)]
pub struct Ping {}

/// A request of so many bytes, which come as data.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Long {
    #[prost(uint64, tag = "1")]
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Pong {
    #[prost(string, tag = "1")]
    pub guest_version: String,
    #[prost(uint64, tag = "2")]
    pub uptime_ms: u64,
    #[prost(uint32, tag = "3")]
    pub link_version: u32,
}

/// Initializes a machine; sent again when a machine is taken from the pool.
#[derive(Clone, PartialEq, Message)]
pub struct Init {
    #[prost(string, tag = "1")]
    pub hostname: String,
    #[prost(string, tag = "2")]
    pub default_user: String,
    #[prost(map = "string, string", tag = "3")]
    pub env: HashMap<String, String>,
    /// 0: do not change the clock.
    #[prost(int64, tag = "4")]
    pub clock_unix_ns: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub entropy: Bytes,
    /// Empty: `/`.
    #[prost(bytes = "bytes", tag = "6")]
    pub default_cwd: Bytes,
    /// File operations are confined to this directory; empty: `/`.
    #[prost(bytes = "bytes", tag = "7")]
    pub file_root: Bytes,
    /// The name server; empty: the machine has no network.
    #[prost(string, tag = "8")]
    pub nameserver: String,
    /// Certificates to trust in addition; empty: none.
    #[prost(bytes = "bytes", tag = "9")]
    pub certificates: Bytes,
    /// Whether the gateway's SSH agent is offered on a socket.
    #[prost(bool, tag = "10")]
    pub agent: bool,
    /// `known_hosts` lines of the hosts that the agent's keys are bound to.
    #[prost(bytes = "bytes", tag = "11")]
    pub known_hosts: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct MetricsRequest {}

#[derive(Clone, PartialEq, Message)]
pub struct Metrics {
    /// CPU time used by the machine since it started.
    #[prost(uint64, tag = "1")]
    pub cpu_us: u64,
    #[prost(uint32, tag = "2")]
    pub cpus: u32,
    #[prost(uint64, tag = "3")]
    pub memory_used_bytes: u64,
    #[prost(uint64, tag = "4")]
    pub memory_total_bytes: u64,
    #[prost(uint64, tag = "5")]
    pub disk_used_bytes: u64,
    #[prost(uint64, tag = "6")]
    pub disk_total_bytes: u64,
    #[prost(uint32, tag = "7")]
    pub processes: u32,
    #[prost(uint64, tag = "8")]
    pub uptime_ms: u64,
    /// The guest's own resident memory.
    #[prost(uint64, tag = "9")]
    pub guest_rss_bytes: u64,
    /// I/O errors of the machine's own file systems; 0 if it uses the host's kernel.
    #[prost(uint64, tag = "10")]
    pub disk_errors: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct SetClock {
    #[prost(int64, tag = "1")]
    pub unix_ns: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Reseed {
    #[prost(bytes = "bytes", tag = "1")]
    pub entropy: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Shutdown {
    /// Time for processes to end after SIGTERM before SIGKILL.
    #[prost(uint64, tag = "1")]
    pub grace_ms: u64,
}
