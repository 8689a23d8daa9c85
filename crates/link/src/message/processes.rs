//! Processes: start, follow, signal.

use bytes::Bytes;
use prost::Message;
use std::collections::HashMap;

#[derive(Clone, PartialEq, Message)]
pub struct Start {
    /// Program and arguments. With `shell`, `argv[0]` is a script for `/bin/sh -c`, and the other
    /// arguments are appended to it, quoted.
    #[prost(bytes = "bytes", repeated, tag = "1")]
    pub argv: Vec<Bytes>,
    #[prost(bool, tag = "2")]
    pub shell: bool,
    /// Empty: the default working directory.
    #[prost(bytes = "bytes", tag = "3")]
    pub cwd: Bytes,
    /// Added to (and overriding) the default environment.
    #[prost(map = "string, string", tag = "4")]
    pub env: HashMap<String, String>,
    /// Empty: the default user. A name, a uid, or `uid:gid`.
    #[prost(string, tag = "5")]
    pub user: String,
    #[prost(message, optional, tag = "6")]
    pub pty: Option<PtySize>,
    /// Keep standard input open for data; otherwise it is empty.
    #[prost(bool, tag = "7")]
    pub stdin: bool,
    /// A name to find the process by; must be unused among living processes. Empty: none.
    #[prost(string, tag = "8")]
    pub tag: String,
    /// 0: no limit.
    #[prost(uint64, tag = "9")]
    pub timeout_ms: u64,
    /// Output bytes kept per channel; 0: the default.
    #[prost(uint32, tag = "10")]
    pub ring_bytes: u32,
    /// Send output on this stream and end it with `Exited`; otherwise the stream ends after
    /// `Started`.
    #[prost(bool, tag = "11")]
    pub follow: bool,
    /// Block the process while a follower reads slowly, instead of losing output. This also lasts
    /// for a while after the follower's link breaks, so that a host that reconnects misses nothing.
    #[prost(bool, tag = "12")]
    pub lossless: bool,
    /// Kill the tree when the host resets the stream (not when the link breaks).
    #[prost(bool, tag = "13")]
    pub kill_on_reset: bool,
    /// Use exactly `env`, without the machine's default environment.
    #[prost(bool, tag = "14")]
    pub clear_env: bool,
    /// Drop the record as soon as its exit has been delivered to a follower.
    #[prost(bool, tag = "15")]
    pub forget: bool,
    /// What standard input holds; it ends after that.
    #[prost(bytes = "bytes", tag = "16")]
    pub input: Bytes,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct PtySize {
    #[prost(uint32, tag = "1")]
    pub cols: u32,
    #[prost(uint32, tag = "2")]
    pub rows: u32,
}

/// A process by pid or by tag; a tag wins when both are set.
#[derive(Clone, PartialEq, Message)]
pub struct Selector {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(string, tag = "2")]
    pub tag: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Attach {
    #[prost(message, optional, tag = "1")]
    pub process: Option<Selector>,
    /// Continue each channel at this byte; output older than the ring is reported as a `Gap`.
    #[prost(uint64, tag = "2")]
    pub out_from: u64,
    #[prost(uint64, tag = "3")]
    pub err_from: u64,
    /// Start at the oldest byte still kept instead.
    #[prost(bool, tag = "4")]
    pub from_oldest: bool,
    #[prost(bool, tag = "5")]
    pub lossless: bool,
    #[prost(bool, tag = "6")]
    pub kill_on_reset: bool,
    #[prost(bool, tag = "7")]
    pub forget: bool,
    /// Start at the next byte to be written: only new output.
    #[prost(bool, tag = "8")]
    pub from_newest: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Started {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(string, tag = "2")]
    pub tag: String,
    /// Where the data of each channel on this stream begins.
    #[prost(uint64, tag = "3")]
    pub out_from: u64,
    #[prost(uint64, tag = "4")]
    pub err_from: u64,
    #[prost(uint64, tag = "5")]
    pub started_unix_ms: u64,
}

/// Output that was dropped before it could be sent on this stream.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Gap {
    #[prost(uint32, tag = "1")]
    pub channel: u32,
    #[prost(uint64, tag = "2")]
    pub from: u64,
    #[prost(uint64, tag = "3")]
    pub to: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Exited {
    /// The exit code, or 128 + signal.
    #[prost(int32, tag = "1")]
    pub code: i32,
    /// The signal that ended it, or 0.
    #[prost(int32, tag = "2")]
    pub signal: i32,
    #[prost(bool, tag = "3")]
    pub timed_out: bool,
    #[prost(message, optional, tag = "4")]
    pub usage: Option<Usage>,
    #[prost(uint64, tag = "5")]
    pub duration_ms: u64,
    /// Total bytes ever written per channel.
    #[prost(uint64, tag = "6")]
    pub out_total: u64,
    #[prost(uint64, tag = "7")]
    pub err_total: u64,
    /// Whether the kernel's memory limit killed something of this tree.
    #[prost(bool, tag = "8")]
    pub out_of_memory: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Usage {
    #[prost(uint64, tag = "1")]
    pub user_us: u64,
    #[prost(uint64, tag = "2")]
    pub system_us: u64,
    #[prost(uint64, tag = "3")]
    pub max_rss_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct ListProcesses {}

#[derive(Clone, PartialEq, Message)]
pub struct Processes {
    #[prost(message, repeated, tag = "1")]
    pub processes: Vec<Process>,
}

/// A process the host started, alive or ended but not yet forgotten.
#[derive(Clone, PartialEq, Message)]
pub struct Process {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    #[prost(string, tag = "2")]
    pub tag: String,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub argv: Vec<Bytes>,
    #[prost(bool, tag = "4")]
    pub pty: bool,
    #[prost(uint64, tag = "5")]
    pub started_unix_ms: u64,
    #[prost(message, optional, tag = "6")]
    pub exited: Option<Exited>,
    #[prost(uint64, tag = "7")]
    pub out_total: u64,
    #[prost(uint64, tag = "8")]
    pub err_total: u64,
    #[prost(string, tag = "9")]
    pub user: String,
    #[prost(bytes = "bytes", tag = "10")]
    pub cwd: Bytes,
    /// Living processes of its tree, itself included.
    #[prost(uint32, tag = "11")]
    pub alive: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Signal {
    #[prost(message, optional, tag = "1")]
    pub process: Option<Selector>,
    #[prost(int32, tag = "2")]
    pub signal: i32,
    /// Signal every descendant, daemons included, instead of the process group.
    #[prost(bool, tag = "3")]
    pub tree: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct SignalNumber {
    #[prost(int32, tag = "1")]
    pub signal: i32,
    #[prost(bool, tag = "2")]
    pub tree: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Input {
    #[prost(message, optional, tag = "1")]
    pub process: Option<Selector>,
    /// Close standard input after the data.
    #[prost(bool, tag = "2")]
    pub close: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resize {
    #[prost(message, optional, tag = "1")]
    pub process: Option<Selector>,
    #[prost(message, optional, tag = "2")]
    pub size: Option<PtySize>,
}

#[derive(Clone, PartialEq, Message)]
pub struct SignalForeground {
    #[prost(message, optional, tag = "1")]
    pub process: Option<Selector>,
    #[prost(int32, tag = "2")]
    pub signal: i32,
}

/// The kernel's view of a terminal.
#[derive(Clone, PartialEq, Message)]
pub struct TerminalFacts {
    /// The foreground process group, its leader first; empty where it is not known.
    #[prost(message, repeated, tag = "1")]
    pub foreground: Vec<TerminalProcess>,
    /// The process started on the terminal leads the foreground group.
    #[prost(bool, tag = "2")]
    pub shell_in_front: bool,
    /// `ECHO` of the terminal.
    #[prost(bool, tag = "3")]
    pub echo: bool,
    /// `ICANON` of the terminal.
    #[prost(bool, tag = "4")]
    pub canonical: bool,
    /// Typed input that is not read yet.
    #[prost(uint32, optional, tag = "5")]
    pub unread_input: Option<u32>,
    /// Bytes of output written before this answer, sent or not.
    #[prost(uint64, optional, tag = "6")]
    pub output_bytes: Option<u64>,
    /// The process's working directory; empty if unknown.
    #[prost(bytes = "bytes", tag = "7")]
    pub cwd: Bytes,
    /// Bytes of input the terminal had received before this look began.
    #[prost(uint64, optional, tag = "8")]
    pub input_bytes: Option<u64>,
    /// The working directory of the foreground group's leader; empty if unknown.
    #[prost(bytes = "bytes", tag = "9")]
    pub front_cwd: Bytes,
    /// Programs that pass the keys on to a terminal of their own (sudo, script, tmux), outermost
    /// first. `foreground` and the settings are then those of the innermost terminal.
    #[prost(bytes = "bytes", repeated, tag = "10")]
    pub carriers: Vec<Bytes>,
}

/// A process of the foreground group.
#[derive(Clone, PartialEq, Message)]
pub struct TerminalProcess {
    #[prost(uint32, tag = "1")]
    pub pid: u32,
    /// The kernel's name (`comm`).
    #[prost(bytes = "bytes", tag = "2")]
    pub name: Bytes,
    #[prost(bytes = "bytes", repeated, tag = "3")]
    pub argv: Vec<Bytes>,
    /// Whether it is blocked waiting for the terminal; missing if unknown.
    #[prost(bool, optional, tag = "4")]
    pub reads_tty: Option<bool>,
}
