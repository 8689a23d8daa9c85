//! The running commands, each with a waiting caller.

use super::{Guest, NO_CALL};
use bytes::Bytes;
use motu_link::message::{self as link, Failure, Selector, Start};
use motu_peer::answer::Failed;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{SystemTime, UNIX_EPOCH};
use tokio::sync::Notify;

/// Signals that mean termination: HUP, INT, QUIT, KILL, TERM.
const ENDING: [i32; 5] = [1, 2, 3, 9, 15];

/// One command. The pid is our own number: services have none.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) pid: u32,
    pub(super) tag: String,
    argv: Vec<Bytes>,
    cwd: String,
    pub(super) started_unix_ms: u64,
    pub(super) out: AtomicU64,
    pub(super) err: AtomicU64,
    pub(super) end: Notify,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    last: AtomicU32,
    running: Mutex<BTreeMap<u32, Arc<Running>>>,
}

/// Removes a command from the table when its call ends.
pub(super) struct Entered<'a> {
    table: &'a Table,
    pub(super) running: Arc<Running>,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        self.table.running().remove(&self.running.pid);
    }
}

impl Table {
    fn running(&self) -> MutexGuard<'_, BTreeMap<u32, Arc<Running>>> {
        self.running
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Enters a command, unless its tag is in use.
    pub(super) fn enter(&self, start: &Start, cwd: &str) -> Result<Entered<'_>, Failed> {
        let mut all = self.running();
        let taken = |other: &Arc<Running>| other.tag == start.tag;
        if !start.tag.is_empty() && all.values().any(taken) {
            let message = format!("a process tagged {:?} is running", start.tag);
            return Err(Failed::new(Failure::Exists, message));
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let running = Arc::new(Running {
            pid: self.last.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            tag: start.tag.clone(),
            argv: start.argv.clone(),
            cwd: cwd.to_string(),
            started_unix_ms: now.map_or(0, |since| since.as_millis() as u64),
            out: AtomicU64::new(0),
            err: AtomicU64::new(0),
            end: Notify::new(),
        });
        all.insert(running.pid, running.clone());
        let table = self;
        Ok(Entered { table, running })
    }

    pub(super) fn find(&self, selector: Option<Selector>) -> Result<Arc<Running>, Failed> {
        let wanted = selector.unwrap_or_default();
        let all = self.running();
        let found = all.values().find(|running| match wanted.tag.is_empty() {
            true => running.pid == wanted.pid,
            false => running.tag == wanted.tag,
        });
        found
            .cloned()
            .ok_or_else(|| Failed::new(Failure::NotFound, "there is no such process"))
    }

    pub(super) fn list(&self) -> Vec<link::Process> {
        let all = self.running();
        let described = all.values().map(|running| link::Process {
            pid: running.pid,
            tag: running.tag.clone(),
            argv: running.argv.clone(),
            pty: false,
            started_unix_ms: running.started_unix_ms,
            exited: None,
            out_total: running.out.load(Ordering::Relaxed),
            err_total: running.err.load(Ordering::Relaxed),
            user: String::new(),
            cwd: Bytes::copy_from_slice(running.cwd.as_bytes()),
            alive: 1,
        });
        described.collect()
    }
}

impl Guest {
    /// The protocol has no signals; a command can only be ended by dropping its call.
    pub(super) fn signal(&self, signal: link::Signal) -> Result<(), Failed> {
        let running = self.table.find(signal.process)?;
        self.end_by(&running, signal.signal)
    }

    pub(super) fn end_by(&self, running: &Running, signal: i32) -> Result<(), Failed> {
        if !ENDING.contains(&signal) {
            return Err(Failed::unsupported("send that signal", NO_CALL));
        }
        if !self.offer.has("cancel") {
            let why = "the service does not offer the extension `cancel`";
            return Err(Failed::unsupported("end a command", why));
        }
        running.end.notify_one();
        Ok(())
    }
}
