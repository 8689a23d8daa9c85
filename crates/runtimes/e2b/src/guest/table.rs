//! The known processes of a machine.

use super::Guest;
use super::ring::Ring;
use crate::record::{Ended, Remembered};
use bytes::Bytes;
use motu_core::limits;
use motu_link::message::{self as link, Failure, Selector};
use motu_peer::answer::Failed;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;

/// Where a process's output goes.
#[derive(Debug)]
pub(super) enum Output {
    /// Directly to its caller.
    Direct,
    /// To files in the machine.
    Spooled,
    /// To a ring buffer here.
    Ring(Ring),
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) pid: u32,
    /// Its description, apart from its end.
    pub(super) about: Remembered,
    pub(super) output: Output,
    pub(super) ended: watch::Sender<Option<Ended>>,
    /// Whether its output is being read now.
    pub(super) heard: watch::Sender<bool>,
}

impl Running {
    pub(super) fn new(about: Remembered, output: Output) -> Arc<Running> {
        Arc::new(Running {
            pid: about.pid,
            ended: watch::Sender::new(about.ended),
            heard: watch::Sender::new(true),
            about,
            output,
        })
    }

    pub(super) fn has_ended(&self) -> Option<Ended> {
        *self.ended.borrow()
    }

    fn described(&self) -> link::Process {
        let ended = self.has_ended();
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let written = match &self.output {
            Output::Ring(ring) => ring.total(),
            _ => 0,
        };
        link::Process {
            pid: self.pid,
            tag: self.about.tag.clone(),
            argv: self.about.argv.iter().map(|word| bytes(word)).collect(),
            pty: self.about.pty,
            started_unix_ms: self.about.started_unix_ms,
            out_total: ended.map_or(written, |ended| ended.out),
            err_total: ended.map_or(0, |ended| ended.err),
            exited: ended.map(exited),
            user: self.about.user.clone(),
            cwd: bytes(&self.about.cwd),
            alive: u32::from(ended.is_none()),
        }
    }
}

/// Converts to the link's message.
pub(super) fn exited(ended: Ended) -> link::Exited {
    link::Exited {
        code: ended.code,
        signal: ended.signal,
        timed_out: ended.timed_out,
        usage: None,
        duration_ms: ended.duration_ms,
        out_total: ended.out,
        err_total: ended.err,
        out_of_memory: false,
    }
}

#[derive(Debug, Default)]
struct Known {
    running: BTreeMap<u32, Arc<Running>>,
    /// Tags of processes being started.
    starting: BTreeSet<String>,
    /// Marks of commands with waiting callers, from before their start to their end.
    calls: BTreeSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    known: Mutex<Known>,
}

/// Releases a tag or mark on drop.
pub(super) struct Reserved<'a> {
    table: &'a Table,
    tag: String,
    mark: String,
    pid: u32,
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut known = self.table.known();
        known.starting.remove(&self.tag);
        known.calls.remove(&self.mark);
        if self.pid > 0 {
            known.running.remove(&self.pid);
        }
    }
}

impl Table {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reserves a tag for a new process, unless a living one has it.
    pub(super) fn reserve(&self, tag: &str) -> Result<Reserved<'_>, Failed> {
        let mut known = self.known();
        let lives = |other: &Arc<Running>| other.about.tag == tag && other.has_ended().is_none();
        let taken = known.starting.contains(tag) || known.running.values().any(lives);
        if !tag.is_empty() && taken {
            let message = format!("a process tagged {tag:?} is running");
            return Err(Failed::new(Failure::Exists, message));
        }
        known.starting.insert(tag.to_string());
        Ok(self.hold(tag, "", 0))
    }

    fn hold(&self, tag: &str, mark: &str, pid: u32) -> Reserved<'_> {
        Reserved {
            table: self,
            tag: tag.to_string(),
            mark: mark.to_string(),
            pid,
        }
    }

    /// Registers the mark of a command with a caller.
    pub(super) fn call(&self, mark: &str) -> Reserved<'_> {
        self.known().calls.insert(mark.to_string());
        self.hold("", mark, 0)
    }

    pub(super) fn is_call(&self, mark: &str) -> bool {
        self.known().calls.contains(mark)
    }

    /// Enters a process for as long as its caller waits.
    pub(super) fn enter(&self, running: Arc<Running>) -> Reserved<'_> {
        let pid = running.pid;
        self.known().running.insert(pid, running);
        self.hold("", "", pid)
    }

    /// Enters a background process. Returns one that is forgotten to make room.
    pub(super) fn keep(&self, running: Arc<Running>) -> Option<Arc<Running>> {
        let mut known = self.known();
        let former = known.running.insert(running.pid, running);
        if former.is_some() || (known.running.len() as u64) <= limits::E2B_PROCESSES.default {
            return former;
        }
        let ended = known
            .running
            .values()
            .filter(|one| one.has_ended().is_some());
        let oldest = ended.min_by_key(|one| one.about.started_unix_ms)?.pid;
        known.running.remove(&oldest)
    }

    pub(super) fn is_full(&self) -> bool {
        let known = self.known();
        let living = known
            .running
            .values()
            .filter(|one| one.has_ended().is_none());
        living.count() as u64 >= limits::E2B_PROCESSES.default
    }

    pub(super) fn forget(&self, pid: u32) {
        self.known().running.remove(&pid);
    }

    /// Finds a process by tag, preferring a living one, or by pid.
    pub(super) fn find(&self, selector: Option<Selector>) -> Result<Arc<Running>, Failed> {
        let wanted = selector.unwrap_or_default();
        let known = self.known();
        let all = known
            .running
            .values()
            .filter(|running| match wanted.tag.is_empty() {
                true => running.pid == wanted.pid,
                false => running.about.tag == wanted.tag,
            });
        let found = all.max_by_key(|one| (one.has_ended().is_none(), one.about.started_unix_ms));
        found
            .cloned()
            .ok_or_else(|| Failed::new(Failure::NotFound, "there is no such process"))
    }

    /// Commands without a terminal whose callers wait.
    pub(super) fn waited_for(&self) -> Vec<Arc<Running>> {
        let known = self.known();
        let direct = |one: &&Arc<Running>| matches!(one.output, Output::Direct) && !one.about.pty;
        known.running.values().filter(direct).cloned().collect()
    }

    pub(super) fn list(&self) -> Vec<link::Process> {
        let known = self.known();
        known.running.values().map(|one| one.described()).collect()
    }
}

impl Guest {
    /// Updates the record of background processes.
    pub(super) fn remember(&self, change: impl FnOnce(&mut Vec<Remembered>)) -> Result<(), Failed> {
        let mut record = self.record();
        change(&mut record.processes);
        let stored = record.store(&self.dir);
        stored.map_err(|error| Failed::new(Failure::Io, error.message))
    }
}
