//! Messages between host and guest.
//!
//! A stream begins with one [`Request`] and ends with one [`Outcome`]; between them are data frames
//! and [`Note`]s (guest to host) or [`Control`]s (host to guest). Fields are only ever added: tags
//! are never reused, so a newer host still understands the guests it adopts.
//!
//! Paths are bytes: a guest's file names need not be UTF-8.

mod files;
mod ports;
mod processes;
mod system;
mod workspace;

pub use files::*;
pub use ports::*;
pub use processes::*;
pub use system::*;
pub use workspace::*;

use prost::{Message, Oneof};

/// The first message of a stream.
#[derive(Clone, PartialEq, Message)]
pub struct Request {
    #[prost(
        oneof = "Verb",
        tags = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,30,31,40,41,42,43,44,45,50,51,52,53,54"
    )]
    pub verb: Option<Verb>,
}

/// A request of a host to a guest.
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
    /// Kernel facts about a process's terminal. Note: `TerminalFacts`.
    #[prost(message, tag = "8")]
    LookAtTerminal(Selector),
    /// Signals the foreground process group of a process's terminal.
    #[prost(message, tag = "9")]
    SignalForeground(SignalForeground),

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
    /// A file for the host to read from. Notes: `Entries`, `Lent`; it is over when the file was
    /// taken.
    #[prost(message, tag = "24")]
    LendRead(Read),
    /// A file for the host to write into. Note: `Lent`; then EOF, which puts the file in its place.
    /// Note: `Entries`.
    #[prost(message, tag = "25")]
    LendWrite(Write),
    /// A request for files that is done as a user; the conversation is that of the request.
    #[prost(message, tag = "26")]
    DoneAs(DoneAs),
    /// A request that is too long for a frame: it comes as data, and the conversation is its own.
    #[prost(message, tag = "27")]
    Long(Long),

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

    /// Notes: `Changed`.
    #[prost(message, tag = "50")]
    Changes(Changes),
    /// Data: the bytes.
    #[prost(message, tag = "51")]
    ReadBase(ReadBase),
    /// Data: a tar stream. Note: `Picked`, at its end. Accepts data when it says so.
    #[prost(message, tag = "52")]
    Pick(Pick),
    /// Accepts a tar stream, then EOF. Note: `TreeDone`.
    #[prost(message, tag = "53")]
    Restore(Restore),
    /// Accepts data, then EOF. Note: `Applied`.
    #[prost(message, tag = "54")]
    Apply(Apply),
}

/// A message of the guest before the end of a stream.
#[derive(Clone, PartialEq, Message)]
pub struct Note {
    #[prost(
        oneof = "Said",
        tags = "1,2,3,4,5,10,11,12,13,14,15,20,21,30,31,40,41,42"
    )]
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
    #[prost(message, tag = "5")]
    TerminalFacts(TerminalFacts),
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
    #[prost(message, tag = "15")]
    Lent(Lent),
    #[prost(message, tag = "20")]
    Connected(Connected),
    #[prost(message, tag = "21")]
    Ports(Ports),
    #[prost(message, tag = "30")]
    Pong(Pong),
    #[prost(message, tag = "31")]
    Metrics(Metrics),
    #[prost(message, tag = "40")]
    Changed(Changed),
    #[prost(message, tag = "41")]
    Picked(Picked),
    #[prost(message, tag = "42")]
    Applied(Applied),
}

/// A message of the host to a running stream.
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

/// The result of a stream: success if `kind` is [`Failure::None`].
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
    /// The machine has no such user or group.
    NoUser = 11,
    /// The program's working directory is not there, or cannot be entered.
    NoDirectory = 12,
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
