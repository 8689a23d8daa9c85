//! What host and guest say on a stream.
//!
//! A stream begins with one [`Request`] and ends with one [`Outcome`]; between
//! them go data frames and [`Note`]s (guest to host) or [`Control`]s (host to
//! guest). Fields are only ever added: tags are never reused, so a newer host
//! still understands the guests it adopts.
//!
//! Paths are bytes: a guest's file names need not be UTF-8.

use bytes::Bytes;
use prost::{Message, Oneof};
use std::collections::HashMap;

/// The first message of a stream.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(
        oneof = "Verb",
        tags = "1,2,3,4,5,6,7,10,11,12,13,14,15,16,17,18,19,20,21,22,23,30,31,40,41,42,43,44,45"
    )]
    pub verb: Option<Verb>,
}

/// One thing a host may ask of a guest.
#[derive(Clone, PartialEq, Oneof)]
pub enum Verb {
    /// Notes: `Started`, `Gap`, `Exited`; data: out and err; accepts data in and controls.
    #[prost(message, tag = "1")]
    Start(Start),
    /// Same conversation as `Start`, for a process that exists.
    #[prost(message, tag = "2")]
    Attach(Attach),
    /// Note: `Processes`.
    #[prost(message, tag = "3")]
    ListProcesses(ListProcesses),
    #[prost(message, tag = "4")]
    Signal(Signal),
    /// Accepts data in, then EOF.
    #[prost(message, tag = "5")]
    Input(Input),
    #[prost(message, tag = "6")]
    Resize(Resize),
    /// Drops the record (ring, exit code) of an ended process.
    #[prost(message, tag = "7")]
    Forget(Selector),

    /// Note: `Entries` with one entry.
    #[prost(message, tag = "10")]
    Stat(Stat),
    /// Note: `Entries`, paged.
    #[prost(message, tag = "11")]
    List(List),
    /// Note: `Entries` (the file), then data in.
    #[prost(message, tag = "12")]
    Read(Read),
    /// Accepts data, then EOF. Note: `Entries` with the written file.
    #[prost(message, tag = "13")]
    Write(Write),
    /// Note: `Entries` with the directory.
    #[prost(message, tag = "14")]
    Mkdir(Mkdir),
    #[prost(message, tag = "15")]
    Remove(Remove),
    /// Note: `Entries` with the new place.
    #[prost(message, tag = "16")]
    Move(Move),
    /// Note: `Entries`.
    #[prost(message, tag = "17")]
    Chmod(Chmod),
    /// Note: `Entries`.
    #[prost(message, tag = "18")]
    Glob(Glob),
    /// Note: `Watching`, then `Change` notes until reset.
    #[prost(message, tag = "19")]
    Watch(Watch),
    /// Data: a tar stream of a tree.
    #[prost(message, tag = "20")]
    TreeOut(TreeOut),
    /// Accepts a tar stream, then EOF. Note: `TreeDone`.
    #[prost(message, tag = "21")]
    TreeIn(TreeIn),
    /// Note: `Digest`.
    #[prost(message, tag = "22")]
    Hash(Hash),
    #[prost(message, tag = "23")]
    Symlink(Symlink),

    /// Note: `Connected`; then data both ways (channel in: to the port, out: from it).
    #[prost(message, tag = "30")]
    Dial(Dial),
    /// Note: `Ports`.
    #[prost(message, tag = "31")]
    ListPorts(ListPorts),

    /// Note: `Pong`.
    #[prost(message, tag = "40")]
    Ping(Ping),
    #[prost(message, tag = "41")]
    Init(Init),
    /// Note: `Metrics`.
    #[prost(message, tag = "42")]
    Metrics(MetricsRequest),
    #[prost(message, tag = "43")]
    SetClock(SetClock),
    #[prost(message, tag = "44")]
    Reseed(Reseed),
    #[prost(message, tag = "45")]
    Shutdown(Shutdown),
}

/// Something a guest says before the end of a stream.
#[derive(Clone, PartialEq, Message)]
pub struct Note {
    #[prost(oneof = "Said", tags = "1,2,3,4,10,11,12,13,14,20,21,30,31")]
    pub said: Option<Said>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Said {
    #[prost(message, tag = "1")]
    Started(Started),
    #[prost(message, tag = "2")]
    Gap(Gap),
    #[prost(message, tag = "3")]
    Exited(Exited),
    #[prost(message, tag = "4")]
    Processes(Processes),
    #[prost(message, tag = "10")]
    Entries(Entries),
    #[prost(message, tag = "11")]
    Watching(Watching),
    #[prost(message, tag = "12")]
    Change(Change),
    #[prost(message, tag = "13")]
    TreeDone(TreeDone),
    #[prost(message, tag = "14")]
    Digest(Digest),
    #[prost(message, tag = "20")]
    Connected(Connected),
    #[prost(message, tag = "21")]
    Ports(Ports),
    #[prost(message, tag = "30")]
    Pong(Pong),
    #[prost(message, tag = "31")]
    Metrics(Metrics),
}

/// Something a host says to a running stream.
#[derive(Clone, PartialEq, Message)]
pub struct Control {
    #[prost(oneof = "Do", tags = "1,2")]
    pub what: Option<Do>,
}

#[derive(Clone, PartialEq, Oneof)]
pub enum Do {
    #[prost(message, tag = "1")]
    Resize(PtySize),
    #[prost(message, tag = "2")]
    Signal(SignalNumber),
}

/// The guest's last word: success when `kind` is [`Failure::None`].
#[derive(Clone, PartialEq, Message)]
pub struct Outcome {
    #[prost(enumeration = "Failure", tag = "1")]
    pub kind: i32,
    #[prost(string, tag = "2")]
    pub message: String,
    /// The errno behind it, or 0.
    #[prost(int32, tag = "3")]
    pub errno: i32,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Failure {
    None = 0,
    Invalid = 1,
    NotFound = 2,
    Exists = 3,
    Denied = 4,
    Limit = 5,
    Unsupported = 6,
    NoSpace = 7,
    Io = 8,
    /// The program to run could not be started (missing, not executable).
    CannotRun = 9,
    Cancelled = 10,
}

// ── processes ───────────────────────────────────────────────────────────

#[derive(Clone, PartialEq, Message)]
pub struct Start {
    /// Program and arguments. With `shell`, `argv[0]` is a script for `/bin/sh -c` and the rest are `$0…`-style
    /// arguments appended, quoted, to it.
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
    /// A name to find it again by; must be unused among living processes. Empty: none.
    #[prost(string, tag = "8")]
    pub tag: String,
    /// 0: no limit.
    #[prost(uint64, tag = "9")]
    pub timeout_ms: u64,
    /// Output bytes kept per channel; 0: the default.
    #[prost(uint32, tag = "10")]
    pub ring_bytes: u32,
    /// Send output on this stream and end it with `Exited`; otherwise the stream ends after `Started`.
    #[prost(bool, tag = "11")]
    pub follow: bool,
    /// While a follower reads slowly, hold the process back instead of losing output. Also holds for a while after
    /// the follower's link breaks, so that a host that comes back misses nothing.
    #[prost(bool, tag = "12")]
    pub lossless: bool,
    /// Kill the tree when the stream is reset by the host (not when the link breaks).
    #[prost(bool, tag = "13")]
    pub kill_on_reset: bool,
    /// Start with exactly `env`, without the machine's default environment.
    #[prost(bool, tag = "14")]
    pub clear_env: bool,
    /// Drop the record as soon as its exit has been delivered to a follower.
    #[prost(bool, tag = "15")]
    pub forget: bool,
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
    /// Continue each channel at this byte; what is older than the ring comes back as a `Gap`.
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
    /// Start at the next byte to be written: only news.
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
    /// Reach every descendant, daemons included, instead of the process group.
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

// ── files ───────────────────────────────────────────────────────────────

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum FileType {
    Other = 0,
    File = 1,
    Directory = 2,
    Symlink = 3,
}

#[derive(Clone, PartialEq, Message)]
pub struct Entry {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(enumeration = "FileType", tag = "2")]
    pub kind: i32,
    #[prost(uint64, tag = "3")]
    pub size: u64,
    /// Permission bits, without the type.
    #[prost(uint32, tag = "4")]
    pub mode: u32,
    #[prost(uint32, tag = "5")]
    pub uid: u32,
    #[prost(uint32, tag = "6")]
    pub gid: u32,
    #[prost(string, tag = "7")]
    pub owner: String,
    #[prost(string, tag = "8")]
    pub group: String,
    #[prost(int64, tag = "9")]
    pub modified_unix_ms: i64,
    #[prost(bytes = "bytes", tag = "10")]
    pub symlink_target: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Entries {
    #[prost(message, repeated, tag = "1")]
    pub entries: Vec<Entry>,
    /// Where the next page begins; empty on the last one.
    #[prost(bytes = "bytes", tag = "2")]
    pub next: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Stat {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Describe what a symlink points to.
    #[prost(bool, tag = "2")]
    pub follow: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct List {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// 1: the directory's own entries; 0 counts as 1.
    #[prost(uint32, tag = "2")]
    pub depth: u32,
    /// `next` of the previous page.
    #[prost(bytes = "bytes", tag = "3")]
    pub after: Bytes,
    /// 0: the default page size.
    #[prost(uint32, tag = "4")]
    pub limit: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Read {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(uint64, tag = "2")]
    pub offset: u64,
    /// 0: to the end.
    #[prost(uint64, tag = "3")]
    pub length: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Write {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Permission bits of a new file; 0: 0644. A replaced file keeps its own.
    #[prost(uint32, tag = "2")]
    pub mode: u32,
    /// Create missing parent directories.
    #[prost(bool, tag = "3")]
    pub parents: bool,
    /// Owner of what is created; empty: the default user.
    #[prost(string, tag = "4")]
    pub user: String,
    /// Add to the end instead of replacing the whole file atomically.
    #[prost(bool, tag = "5")]
    pub append: bool,
    /// Fail with `Exists` when the file is there.
    #[prost(bool, tag = "6")]
    pub create_new: bool,
    /// Flush to disk before answering.
    #[prost(bool, tag = "7")]
    pub sync: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Mkdir {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(bool, tag = "2")]
    pub parents: bool,
    /// 0: 0755.
    #[prost(uint32, tag = "3")]
    pub mode: u32,
    #[prost(string, tag = "4")]
    pub user: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Remove {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(bool, tag = "2")]
    pub recursive: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Move {
    #[prost(bytes = "bytes", tag = "1")]
    pub from: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub to: Bytes,
    #[prost(bool, tag = "3")]
    pub overwrite: bool,
}

#[derive(Clone, PartialEq, Message)]
pub struct Chmod {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(uint32, tag = "2")]
    pub mode: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Symlink {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub target: Bytes,
    #[prost(string, tag = "3")]
    pub user: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Glob {
    /// An absolute pattern: `*`, `?`, `[…]`, `**`, `{a,b}`.
    #[prost(bytes = "bytes", tag = "1")]
    pub pattern: Bytes,
    /// 0: the default page size; more matches than that set `Entries.next` to the last one.
    #[prost(uint32, tag = "2")]
    pub limit: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Watch {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    #[prost(bool, tag = "2")]
    pub recursive: bool,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct Watching {}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ChangeKind {
    /// The queue overflowed: list again.
    Lost = 0,
    Created = 1,
    Modified = 2,
    Removed = 3,
    Renamed = 4,
    Attributes = 5,
}

#[derive(Clone, PartialEq, Message)]
pub struct Change {
    #[prost(enumeration = "ChangeKind", tag = "1")]
    pub kind: i32,
    #[prost(bytes = "bytes", tag = "2")]
    pub path: Bytes,
    /// The old path of a rename.
    #[prost(bytes = "bytes", tag = "3")]
    pub from: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct TreeOut {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct TreeIn {
    /// The directory to unpack into; created when missing.
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
    /// Owner of everything unpacked; empty: the default user. `archive` keeps the archive's own ids.
    #[prost(string, tag = "2")]
    pub user: String,
    /// 0: the default limits.
    #[prost(uint64, tag = "3")]
    pub max_bytes: u64,
    #[prost(uint64, tag = "4")]
    pub max_entries: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub struct TreeDone {
    #[prost(uint64, tag = "1")]
    pub entries: u64,
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}

#[derive(Clone, PartialEq, Message)]
pub struct Hash {
    #[prost(bytes = "bytes", tag = "1")]
    pub path: Bytes,
}

#[derive(Clone, PartialEq, Message)]
pub struct Digest {
    #[prost(bytes = "bytes", tag = "1")]
    pub sha256: Bytes,
    #[prost(uint64, tag = "2")]
    pub size: u64,
}

// ── ports ───────────────────────────────────────────────────────────────

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

// ── system ──────────────────────────────────────────────────────────────

#[derive(Clone, PartialEq, Message)]
pub struct Ping {}

#[derive(Clone, PartialEq, Message)]
pub struct Pong {
    #[prost(string, tag = "1")]
    pub guest_version: String,
    #[prost(uint64, tag = "2")]
    pub uptime_ms: u64,
    #[prost(uint32, tag = "3")]
    pub link_version: u32,
}

/// Gives a machine its identity; may be sent again when a machine changes hands.
#[derive(Clone, PartialEq, Message)]
pub struct Init {
    #[prost(string, tag = "1")]
    pub hostname: String,
    #[prost(string, tag = "2")]
    pub default_user: String,
    #[prost(map = "string, string", tag = "3")]
    pub env: HashMap<String, String>,
    /// 0: leave the clock alone.
    #[prost(int64, tag = "4")]
    pub clock_unix_ns: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub entropy: Bytes,
    /// Empty: `/`.
    #[prost(bytes = "bytes", tag = "6")]
    pub default_cwd: Bytes,
    /// Files may be used only below this directory; empty: `/`.
    #[prost(bytes = "bytes", tag = "7")]
    pub file_root: Bytes,
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

impl From<Verb> for Request {
    fn from(verb: Verb) -> Request {
        Request { verb: Some(verb) }
    }
}

impl From<Said> for Note {
    fn from(said: Said) -> Note {
        Note { said: Some(said) }
    }
}

impl From<Do> for Control {
    fn from(what: Do) -> Control {
        Control { what: Some(what) }
    }
}

impl Outcome {
    /// The outcome of a request that worked.
    pub fn ok() -> Outcome {
        Outcome::default()
    }

    /// The outcome of a request that did not.
    pub fn failed(kind: Failure, message: impl Into<String>) -> Outcome {
        Outcome {
            kind: kind as i32,
            message: message.into(),
            errno: 0,
        }
    }
}
