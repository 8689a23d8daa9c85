//! The table of started processes, living and ended. It bounds their number and finds them by pid
//! or tag; it never touches the processes themselves.

use super::record::{Process, Shims};
use crate::answer::{Failed, Quoted};
use crate::lock::locked;
use motu_link::message::{Failure, Selector};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Processes that may live at once.
pub const MAX_LIVING: usize = 1024;
/// Records of ended processes that are kept.
pub const MAX_ENDED: usize = 256;
/// Total output kept of ended processes.
pub const MAX_ENDED_BYTES: u64 = 64 * 1024 * 1024;
/// Exits remembered while a process is being started.
const MAX_EARLY: usize = 4096;
/// The longest tag.
const MAX_TAG: usize = 64;

/// The process table; oldest first.
#[derive(Debug, Default)]
pub struct Table {
    inner: Mutex<Inner>,
    pub shims: Arc<Shims>,
}

#[derive(Debug, Default)]
struct Inner {
    processes: Vec<Arc<Process>>,
    /// Tags reserved by processes that are being started.
    starting: Vec<String>,
    /// Children that exited while a process was being started, and whether by a signal: one of them
    /// may be the shim of a process that is not in the table yet.
    early: HashMap<i32, bool>,
}

/// A reserved place for a process that is being started.
#[derive(Debug)]
pub struct Reservation<'a> {
    table: &'a Table,
    tag: String,
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        let mut inner = locked(&self.table.inner);
        if let Some(at) = inner.starting.iter().position(|tag| *tag == self.tag) {
            inner.starting.swap_remove(at);
        }
        if inner.starting.is_empty() {
            inner.early.clear();
        }
    }
}

impl Table {
    /// Reserves a place and a tag for one more process.
    pub fn reserve(&self, tag: &str) -> Result<Reservation<'_>, Failed> {
        check_tag(tag)?;
        let mut inner = locked(&self.inner);
        let living = inner
            .processes
            .iter()
            .filter(|process| !process.has_exited());
        if living.count() + inner.starting.len() >= MAX_LIVING {
            let message = format!("{MAX_LIVING} processes are running already");
            return Err(Failed::new(Failure::Limit, message));
        }
        let taken = |process: &Arc<Process>| !process.has_exited() && process.facts.tag == tag;
        if !tag.is_empty()
            && (inner.starting.iter().any(|starting| starting == tag)
                || inner.processes.iter().any(taken))
        {
            let message = format!(
                "a running process is already tagged {}",
                Quoted(tag.as_bytes())
            );
            return Err(Failed::new(Failure::Exists, message));
        }
        inner.starting.push(tag.to_string());
        Ok(Reservation {
            table: self,
            tag: tag.to_string(),
        })
    }

    pub fn insert(&self, reservation: Reservation<'_>, process: Arc<Process>) {
        let early = {
            let mut inner = locked(&self.inner);
            inner.processes.push(process.clone());
            inner.early.remove(&process.facts.shim)
        };
        drop(reservation);
        if let Some(killed) = early {
            process.set_shim_gone(killed);
        }
        self.prune();
    }

    /// Registers a new shim: an earlier exit with the same pid was another process.
    pub fn forked(&self, shim: i32) {
        self.shims.add(shim);
        locked(&self.inner).early.remove(&shim);
    }

    /// Records the exit of a child that belongs to no process in the table.
    pub fn ended_unknown(&self, pid: i32, killed: bool) {
        let mut inner = locked(&self.inner);
        if !inner.starting.is_empty() && inner.early.len() < MAX_EARLY {
            inner.early.insert(pid, killed);
        }
    }

    /// Drops the oldest ended records beyond the limits.
    pub fn prune(&self) {
        let mut inner = locked(&self.inner);
        let ended: Vec<_> = inner
            .processes
            .iter()
            .filter(|process| process.is_silent() && !process.may_live())
            .collect();
        let mut excess = ended.len().saturating_sub(MAX_ENDED);
        let mut bytes: u64 = ended.iter().map(|process| process.kept()).sum();
        inner.processes.retain(|process| {
            if !process.is_silent()
                || process.may_live()
                || (excess == 0 && bytes <= MAX_ENDED_BYTES)
            {
                return true;
            }
            excess = excess.saturating_sub(1);
            bytes = bytes.saturating_sub(process.kept());
            false
        });
    }

    /// Finds a process; a living one before an ended one, a younger before an older.
    pub fn find(&self, selector: Option<&Selector>) -> Result<Arc<Process>, Failed> {
        let Some(selector) =
            selector.filter(|selector| selector.pid != 0 || !selector.tag.is_empty())
        else {
            return Err(Failed::invalid("no process named"));
        };
        let matches = |process: &&Arc<Process>| match selector.tag.is_empty() {
            _ if process.is_forgotten() && !process.may_live() => false,
            true => process.facts.pid == selector.pid,
            false => process.facts.tag == selector.tag,
        };
        let inner = locked(&self.inner);
        let mut found = inner.processes.iter().rev().filter(matches).peekable();
        let youngest = found.peek().map(|process| Arc::clone(process));
        found
            .find(|process| !process.has_exited())
            .cloned()
            .or(youngest)
            .ok_or_else(|| {
                let what = match selector.tag.is_empty() {
                    true => format!("no process with pid {}", selector.pid),
                    false => format!("no process tagged {}", Quoted(selector.tag.as_bytes())),
                };
                Failed::new(Failure::NotFound, what)
            })
    }

    pub fn remove(&self, process: &Arc<Process>) {
        locked(&self.inner)
            .processes
            .retain(|known| !Arc::ptr_eq(known, process));
    }

    pub fn all(&self) -> Vec<Arc<Process>> {
        locked(&self.inner).processes.clone()
    }
}

fn check_tag(tag: &str) -> Result<(), Failed> {
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    if tag.len() > MAX_TAG || !tag.bytes().all(fine) {
        let message = format!(
            "tag {} is not 1 to {MAX_TAG} of A-Z a-z 0-9 . _ -",
            Quoted(tag.as_bytes())
        );
        return Err(Failed::invalid(message));
    }
    Ok(())
}
