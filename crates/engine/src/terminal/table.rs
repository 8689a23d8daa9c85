//! All sessions, by name.

use super::handle::{Handle, Known};
use super::writer::Writer;
use motu_core::terminal::TerminalId;
use motu_core::{Error, Result, limits};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Mutex as Turn;

/// One session, or the place for one that is being opened.
#[derive(Debug, Default)]
pub struct Entry {
    known: Mutex<Option<Arc<Known>>>,
    handle: Mutex<Option<Handle>>,
    opening: AtomicBool,
    /// Held by whoever starts or ends the shell.
    pub turn: Turn<()>,
}

impl Entry {
    pub fn known(&self) -> Option<Arc<Known>> {
        locked(&self.known).clone()
    }

    pub fn handle(&self) -> Option<Handle> {
        locked(&self.handle)
            .clone()
            .filter(|handle| !handle.is_gone())
    }

    /// Has a task from now on.
    pub fn set(&self, known: Arc<Known>, handle: Option<Handle>) {
        *locked(&self.known) = Some(known);
        *locked(&self.handle) = handle;
    }

    /// It was not opened after all.
    pub fn unset(&self, known: Option<Arc<Known>>) {
        *locked(&self.known) = known;
        *locked(&self.handle) = None;
    }

    fn counts(&self) -> bool {
        let alive = locked(&self.known)
            .as_ref()
            .is_some_and(|known| known.is_alive());
        alive || self.opening.load(Ordering::Relaxed)
    }
}

/// A place among the living, while a session is being opened.
#[derive(Debug)]
pub struct Opening(Arc<Entry>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.store(false, Ordering::Relaxed);
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Terminals {
    entries: Mutex<HashMap<TerminalId, Arc<Entry>>>,
    /// Held while a place for sessions is made.
    pub(super) making: Turn<()>,
    writer: Mutex<Option<Arc<Writer>>>,
}

impl Terminals {
    pub fn get(&self, id: &TerminalId) -> Result<Arc<Entry>> {
        let found = locked(&self.entries).get(id).cloned();
        found
            .filter(|entry| entry.known().is_some())
            .ok_or_else(|| {
                Error::not_found(format!("there is no terminal session {id}"))
                    .hint("`motu terminal list` shows them")
            })
    }

    /// The session of that name, or a place for it.
    pub fn entry(&self, id: &TerminalId) -> Arc<Entry> {
        locked(&self.entries).entry(id.clone()).or_default().clone()
    }

    /// Whether that name still means this one.
    pub fn is(&self, id: &TerminalId, entry: &Arc<Entry>) -> bool {
        locked(&self.entries)
            .get(id)
            .is_some_and(|found| Arc::ptr_eq(found, entry))
    }

    /// Takes a place out that nothing was put into.
    pub fn leave(&self, id: &TerminalId, entry: &Arc<Entry>) {
        let mut entries = locked(&self.entries);
        let mine = entries
            .get(id)
            .is_some_and(|found| Arc::ptr_eq(found, entry));
        if mine && entry.known().is_none() {
            entries.remove(id);
        }
    }

    pub fn all(&self) -> Vec<Arc<Entry>> {
        locked(&self.entries).values().cloned().collect()
    }

    /// Counts one more among the living, if there is room.
    pub fn admit(&self, entry: &Arc<Entry>) -> Result<Opening> {
        let entries = locked(&self.entries);
        let living = entries.values().filter(|entry| entry.counts()).count() as u64;
        if living >= limits::TERMINALS.max {
            return Err(Error::limit(format!(
                "{living} terminal sessions are alive; that is {}",
                limits::TERMINALS.name
            ))
            .hint("terminate some (`list_sessions`, `terminate`), or use one that is there")
            .details(serde_json::json!({
                "limit": limits::TERMINALS.name, "max": limits::TERMINALS.max,
            })));
        }
        entry.opening.store(true, Ordering::Relaxed);
        Ok(Opening(entry.clone()))
    }

    /// The thread that records all of them; started with the first.
    pub fn writer(&self) -> Result<Arc<Writer>> {
        let mut writer = locked(&self.writer);
        if let Some(writer) = writer.as_ref() {
            return Ok(writer.clone());
        }
        let started = Writer::start()?;
        *writer = Some(started.clone());
        Ok(started)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}
