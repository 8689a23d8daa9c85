//! The record of one started process: identity, output and end.
//!
//! The record outlives connections and the process itself. Its output pumps, its supervisor and the
//! reaper change it; everyone reads it.

use super::input::Stdin;
use super::ring::{Found, Ring};
use crate::lock::locked;
use bytes::Bytes;
use motu_link::message::{Exited, Process as Described, Usage};
use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::io::unix::AsyncFd;
use tokio::sync::{Notify, watch};

/// How long a lossless follower holds the output after its link broke.
pub const LINGER: Duration = Duration::from_secs(30);
/// How much of a long command line a listing shows.
const MAX_SHOWN_ARGV: usize = 4096;

/// One output channel.
#[derive(Debug)]
pub struct Channel {
    inner: Mutex<Output>,
    /// Wakes the pump when a follower has made room.
    pub room: Notify,
}

#[derive(Debug)]
struct Output {
    ring: Ring,
    /// The offset at which the program's own output ends, once known. Its descendants may write
    /// more.
    settled: Option<u64>,
    eof: bool,
}

/// How the program ended.
#[derive(Clone, Copy, Debug)]
pub struct Exit {
    /// The raw wait status.
    pub status: i32,
    pub usage: Option<Usage>,
    pub after: Duration,
    pub out_of_memory: bool,
}

#[derive(Debug, Default)]
struct State {
    exit: Option<Exit>,
    timed_out: bool,
    /// The shim has ended, so the tree is empty, unless the shim was killed.
    shim_gone: bool,
    shim_killed: bool,
    forgotten: bool,
}

/// What is known when a process starts.
#[derive(Debug)]
pub struct Facts {
    pub pid: u32,
    pub shim: i32,
    pub tag: String,
    pub argv: Vec<Bytes>,
    pub user: String,
    pub cwd: Bytes,
    pub pty: bool,
    pub started_unix_ms: u64,
    pub ring_bytes: usize,
    /// The count of memory kills when it started.
    pub memory_kills: u64,
    /// The shims of all processes.
    pub shims: Arc<Shims>,
}

/// The living shims. Every other child of the guest was orphaned by a killed shim.
#[derive(Debug, Default)]
pub struct Shims(Mutex<BTreeSet<i32>>);

impl Shims {
    pub fn add(&self, pid: i32) {
        locked(&self.0).insert(pid);
    }

    pub fn remove(&self, pid: i32) {
        locked(&self.0).remove(&pid);
    }

    pub fn contains(&self, pid: i32) -> bool {
        locked(&self.0).contains(&pid)
    }
}

/// A started process.
#[derive(Debug)]
pub struct Process {
    pub facts: Facts,
    pub started: Instant,
    pub out: Channel,
    pub err: Channel,
    pub stdin: Stdin,
    /// The terminal's master side, while it is open.
    terminal: Mutex<Option<Arc<AsyncFd<OwnedFd>>>>,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    ended: watch::Sender<bool>,
}

impl Channel {
    fn new(capacity: usize, used: bool) -> Channel {
        let settled = (!used).then_some(0);
        Channel {
            inner: Mutex::new(Output {
                ring: Ring::new(capacity),
                settled,
                eof: !used,
            }),
            room: Notify::new(),
        }
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Ring) -> T) -> T {
        look(&mut locked(&self.inner).ring)
    }

    pub fn end(&self) -> u64 {
        self.with(|ring| ring.end())
    }

    pub fn read(&self, cursor: u64, limit: usize) -> Found {
        self.with(|ring| ring.read(cursor, limit))
    }

    /// Whether a follower at `cursor` has received all output of the program.
    pub fn is_drained(&self, cursor: u64) -> bool {
        let inner = locked(&self.inner);
        inner.settled.is_some_and(|at| cursor >= at)
    }

    pub fn is_settled(&self) -> bool {
        locked(&self.inner).settled.is_some()
    }

    pub fn settle(&self, at: u64) {
        locked(&self.inner).settled.get_or_insert(at);
    }

    pub fn finish(&self) {
        let mut inner = locked(&self.inner);
        inner.eof = true;
        let end = inner.ring.end();
        inner.settled.get_or_insert(end);
        inner.ring.settle();
    }

    fn is_eof(&self) -> bool {
        locked(&self.inner).eof
    }
}

impl Process {
    pub fn new(facts: Facts, stdin: Stdin, terminal: Option<Arc<AsyncFd<OwnedFd>>>) -> Process {
        Process {
            started: Instant::now(),
            out: Channel::new(facts.ring_bytes, true),
            err: Channel::new(facts.ring_bytes, !facts.pty),
            stdin,
            terminal: Mutex::new(terminal),
            state: Mutex::new(State::default()),
            changed: watch::Sender::new(()),
            ended: watch::Sender::new(false),
            facts,
        }
    }

    /// Wakes everybody who waits for something to change.
    pub fn announce(&self) {
        self.changed.send_replace(());
    }

    pub fn changes(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    /// Waits for the program's own end.
    pub async fn exit(&self) {
        // `self` holds the sender, so waiting cannot fail.
        let _ = self.ended.subscribe().wait_for(|ended| *ended).await;
    }

    pub fn terminal(&self) -> Option<Arc<AsyncFd<OwnedFd>>> {
        locked(&self.terminal).clone()
    }

    pub fn close_terminal(&self) {
        locked(&self.terminal).take();
    }

    pub fn is_running(&self) -> bool {
        !*self.ended.borrow()
    }

    /// Records how the program ended; the first report counts.
    pub fn set_exit(&self, exit: Exit) {
        locked(&self.state).exit.get_or_insert(exit);
        self.ended.send_replace(true);
        self.announce();
    }

    pub fn has_exited(&self) -> bool {
        locked(&self.state).exit.is_some()
    }

    pub fn set_timed_out(&self) {
        locked(&self.state).timed_out = true;
    }

    pub fn set_shim_gone(&self, killed: bool) {
        let mut state = locked(&self.state);
        state.shim_gone = true;
        state.shim_killed = killed;
        drop(state);
        self.stdin.close_now();
        self.announce();
    }

    pub fn set_forgotten(&self) {
        locked(&self.state).forgotten = true;
    }

    pub fn is_forgotten(&self) -> bool {
        locked(&self.state).forgotten
    }

    /// Whether the program or any descendant of it may be alive.
    pub fn may_live(&self) -> bool {
        let state = locked(&self.state);
        !state.shim_gone || (state.shim_killed && state.exit.is_none())
    }

    /// Whether the shim has been reaped.
    pub fn shim_is_gone(&self) -> bool {
        locked(&self.state).shim_gone
    }

    /// Whether the shim was killed before its children, which must then be found another way.
    pub fn lost_its_shim(&self) -> bool {
        locked(&self.state).shim_killed
    }

    /// Whether the program has exited and all output pipes are closed.
    pub fn is_silent(&self) -> bool {
        self.has_exited() && self.out.is_eof() && self.err.is_eof()
    }

    /// Bytes of output kept.
    pub fn kept(&self) -> u64 {
        self.out.with(|ring| ring.kept()) + self.err.with(|ring| ring.kept())
    }

    /// The exit as the host receives it, with the totals of a follower or of the rings.
    pub fn exited(&self, out_total: u64, err_total: u64) -> Option<Exited> {
        let state = locked(&self.state);
        let exit = state.exit?;
        let signal = exit.status & 0x7f;
        let code = if signal != 0 {
            128 + signal
        } else {
            (exit.status >> 8) & 0xff
        };
        let (code, signal) = if state.timed_out {
            (137, 9)
        } else {
            (code, signal)
        };
        Some(Exited {
            code,
            signal,
            timed_out: state.timed_out,
            usage: exit.usage,
            duration_ms: exit.after.as_millis() as u64,
            out_total,
            err_total,
            out_of_memory: exit.out_of_memory,
        })
    }

    pub fn describe(&self, alive: u32) -> Described {
        let (out_total, err_total) = (self.out.end(), self.err.end());
        let mut shown = 0;
        let argv = self.facts.argv.iter().take_while(|argument| {
            shown += argument.len() + 1;
            shown <= MAX_SHOWN_ARGV
        });
        Described {
            pid: self.facts.pid,
            tag: self.facts.tag.clone(),
            argv: argv.cloned().collect(),
            pty: self.facts.pty,
            started_unix_ms: self.facts.started_unix_ms,
            exited: self.exited(out_total, err_total),
            out_total,
            err_total,
            user: self.facts.user.clone(),
            cwd: self.facts.cwd.clone(),
            alive,
        }
    }
}
