//! What this server knows of terminal sessions by the names that its clients use.
//!
//! Sessions live in the daemon; here is only what makes a name mean one: which names are shared with
//! others, which sessions this server has used, and settings of sessions that are still to be opened.

use motu_core::TerminalId;
use motu_core::terminal::{ConfigureTerminal, OpenTerminal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Names of each kind that are remembered.
const MOST: usize = 1024;

#[derive(Default)]
pub(crate) struct Names(Mutex<Known>);

#[derive(Default)]
struct Known {
    /// Names that a client asked to share with others.
    shared: BTreeSet<String>,
    /// Sessions that this server has used.
    used: BTreeSet<TerminalId>,
    /// Those that it has opened.
    opened: BTreeSet<TerminalId>,
    /// Settings of sessions that do not exist yet.
    settings: BTreeMap<TerminalId, ConfigureTerminal>,
}

impl Names {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_shared(&self, name: &str) -> bool {
        self.known().shared.contains(name)
    }

    /// Shares a name; a client that asks for too many gets its own.
    pub fn share(&self, name: String) {
        put(&mut self.known().shared, name);
    }

    /// Says whether this is the first use of a session.
    pub fn is_new(&self, id: &TerminalId) -> bool {
        put(&mut self.known().used, id.clone())
    }

    /// The session was opened, or found, with its settings.
    pub fn opened(&self, id: &TerminalId, created: bool) {
        let mut known = self.known();
        known.settings.remove(id);
        put(&mut known.used, id.clone());
        if created {
            put(&mut known.opened, id.clone());
        }
    }

    pub fn has_opened(&self, id: &TerminalId) -> bool {
        self.known().opened.contains(id)
    }

    /// Keeps settings for a session that is still to be opened; false if there are too many.
    pub fn keep(&self, id: &TerminalId, change: ConfigureTerminal) -> bool {
        let mut known = self.known();
        if known.settings.len() >= MOST && !known.settings.contains_key(id) {
            return false;
        }
        let kept = known.settings.entry(id.clone()).or_default();
        kept.description = change.description.or(kept.description.take());
        kept.prompt_regex = change.prompt_regex.or(kept.prompt_regex.take());
        kept.quiescence_ms = change.quiescence_ms.or(kept.quiescence_ms);
        true
    }

    pub fn settings(&self, id: &TerminalId) -> ConfigureTerminal {
        self.known().settings.get(id).cloned().unwrap_or_default()
    }

    pub fn forget_settings(&self, id: &TerminalId) {
        self.known().settings.remove(id);
    }

    /// Adds the settings that were kept to a request that does not say otherwise.
    pub fn complete(&self, id: &TerminalId, request: &mut OpenTerminal) {
        let kept = self.settings(id);
        let take = |asked: &mut Option<String>, kept: Option<String>| {
            *asked = asked.take().or(kept);
        };
        take(&mut request.description, kept.description);
        take(&mut request.prompt_regex, kept.prompt_regex);
        request.quiescence_ms = request.quiescence_ms.or(kept.quiescence_ms);
    }
}

/// Adds a value while there is room; false if it was there.
fn put<T: Ord>(set: &mut BTreeSet<T>, value: T) -> bool {
    if set.len() >= MOST && !set.contains(&value) {
        // Nothing is said to be known that cannot be remembered.
        return true;
    }
    set.insert(value)
}
