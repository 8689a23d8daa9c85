//! All sessions, by name.

use super::handle::Handle;
use super::known::Known;
use super::writer::Writer;
use crate::quota::Named;
use motu_core::config::QuotaConfig;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::terminal::TerminalId;
use motu_core::{Error, Result, limits};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::Mutex as Turn;

/// One session, or the reservation for one that is being opened.
#[derive(Debug, Default)]
pub struct Entry {
    known: Mutex<Option<Arc<Known>>>,
    handle: Mutex<Option<Handle>>,
    opening: AtomicBool,
    /// Held while the shell is started or ended.
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

    /// Sets the row and the task.
    pub fn set(&self, known: Arc<Known>, handle: Option<Handle>) {
        *locked(&self.known) = Some(known);
        *locked(&self.handle) = handle;
    }

    /// Undoes an open that failed.
    pub fn unset(&self, known: Option<Arc<Known>>) {
        *locked(&self.known) = known;
        *locked(&self.handle) = None;
    }

    /// Sets a new task, unless the session was forgotten meanwhile.
    pub fn wake(&self, was: &Arc<Known>, task: Handle) -> bool {
        let known = locked(&self.known);
        let still = known.as_ref().is_some_and(|known| Arc::ptr_eq(known, was));
        if still {
            *locked(&self.handle) = Some(task);
        }
        still
    }

    /// Forgets the session; returns its task, if one runs.
    pub fn forget(&self) -> Option<Handle> {
        let mut known = locked(&self.known);
        *known = None;
        locked(&self.handle).take().filter(|task| !task.is_gone())
    }

    fn counts(&self) -> bool {
        let alive = locked(&self.known)
            .as_ref()
            .is_some_and(|known| known.is_alive());
        alive || self.opening.load(Ordering::Relaxed)
    }
}

/// Counts as a living session while it is being opened.
#[derive(Debug)]
pub struct Opening(Arc<Entry>);

impl Drop for Opening {
    fn drop(&mut self) {
        self.0.opening.store(false, Ordering::Relaxed);
    }
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    entries: Mutex<HashMap<TerminalId, Arc<Entry>>>,
    /// Held while the shared workspace of sessions is made.
    pub(super) making: Turn<()>,
    /// Held while old sessions are forgotten.
    pub(super) forgetting: Turn<()>,
    writer: Mutex<Option<Arc<Writer>>>,
}

impl Sessions {
    pub fn get(&self, id: &TerminalId) -> Result<Arc<Entry>> {
        let found = locked(&self.entries).get(id).cloned();
        found
            .filter(|entry| entry.known().is_some())
            .ok_or_else(|| missing(id))
    }

    /// The session with this name; reserves it if there is none.
    pub fn entry(&self, id: &TerminalId) -> Arc<Entry> {
        locked(&self.entries).entry(id.clone()).or_default().clone()
    }

    /// Whether the name still refers to this entry.
    pub fn is(&self, id: &TerminalId, entry: &Arc<Entry>) -> bool {
        locked(&self.entries)
            .get(id)
            .is_some_and(|found| Arc::ptr_eq(found, entry))
    }

    /// Removes an entry that stayed empty.
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

    /// Those whose ids come after a place; all of them where there is none.
    pub fn after(&self, place: Option<&str>) -> Vec<Arc<Entry>> {
        let entries = locked(&self.entries);
        let later = entries
            .iter()
            .filter(|(id, _)| place.is_none_or(|place| id.as_str() > place));
        later.map(|(_, entry)| entry.clone()).collect()
    }

    /// The ended sessions beyond the newest `kept` ones.
    pub fn too_old(&self, kept: u64) -> Vec<(TerminalId, Arc<Entry>)> {
        let ended = |(id, entry): (&TerminalId, &Arc<Entry>)| {
            let row = entry.known().map(|known| known.row())?;
            let at = row.end.as_ref().map_or(row.started_at, |end| end.at);
            (!row.is_alive()).then(|| (at, id.clone(), entry.clone()))
        };
        let mut all: Vec<_> = locked(&self.entries).iter().filter_map(ended).collect();
        all.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        let kept = usize::try_from(kept).unwrap_or(usize::MAX);
        all.truncate(all.len().saturating_sub(kept));
        all.into_iter().map(|(_, id, entry)| (id, entry)).collect()
    }

    /// Reserves a place among the living sessions.
    pub fn admit(
        &self,
        id: &TerminalId,
        entry: &Arc<Entry>,
        quota: &QuotaConfig,
    ) -> Result<Opening> {
        let entries = locked(&self.entries);
        let alive = entries.iter().filter(|(_, entry)| entry.counts());
        Named::Terminals.check(quota, id.as_str(), alive.map(|(id, _)| id.as_str()))?;
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

    /// The thread that records all sessions; started with the first one.
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

pub fn missing(id: &TerminalId) -> Error {
    Error::not_found(format!("there is no terminal session {id}"))
        .hint(hint![verb("list_terminals"), " shows them"])
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, TerminalEnd, TerminalRow};
    use jiff::Timestamp;
    use motu_core::exec::TtySize;
    use motu_core::{ErrorKind, Isolation, SandboxId};

    fn store() -> Store {
        let dir = tempfile::tempdir().unwrap();
        Store::open(&dir.path().join("motu.db")).unwrap()
    }

    /// A session that lives, or ended this many seconds after the epoch.
    fn put(terminals: &Sessions, store: &Store, name: &str, ended: Option<i64>) -> Arc<Entry> {
        let id = TerminalId::parse(name).unwrap();
        let entry = terminals.entry(&id);
        let end = ended.map(|second| TerminalEnd {
            reason: "the shell has ended".to_string(),
            exit_code: Some(0),
            at: Timestamp::from_second(second).unwrap(),
            cursor: 0,
            cwd: None,
        });
        let row = TerminalRow {
            session_id: id,
            sandbox_id: SandboxId::parse("sb-a").unwrap(),
            runtime: "fake".to_string(),
            isolation: Isolation::None,
            command: vec!["bash".to_string()],
            shell: None,
            size: TtySize { cols: 80, rows: 24 },
            started_at: Timestamp::UNIX_EPOCH,
            opened_in: None,
            description: None,
            prompt_regex: None,
            quiescence_ms: 100,
            end,
            terminated: false,
        };
        entry.set(
            Known::new(row, store, std::path::Path::new("nowhere")),
            None,
        );
        entry
    }

    fn too_old(terminals: &Sessions, kept: u64) -> Vec<String> {
        let old = terminals.too_old(kept);
        old.into_iter().map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn the_first_to_end_are_too_old() {
        let terminals = Sessions::default();
        let store = store();
        put(&terminals, &store, "alive", None);
        for (name, second) in [("c", 30), ("a", 10), ("d", 40), ("b", 20)] {
            put(&terminals, &store, name, Some(second));
        }
        assert_eq!(too_old(&terminals, 2), ["a", "b"]);
        assert!(too_old(&terminals, 4).is_empty());
        assert_eq!(too_old(&terminals, 0), ["a", "b", "c", "d"]);
    }

    #[test]
    fn one_session_too_many_is_refused_and_nobody_else_goes() {
        let terminals = Sessions::default();
        let living = limits::TERMINALS.max;
        let store = store();
        put(&terminals, &store, "ended", Some(1));
        for number in 1..living {
            put(&terminals, &store, &format!("s{number}"), None);
        }
        let place = |name: &str| terminals.entry(&TerminalId::parse(name).unwrap());
        let admit = |name: &str| {
            let id = TerminalId::parse(name).unwrap();
            terminals.admit(&id, &place(name), &QuotaConfig::default())
        };
        // The last place is taken by one that is being opened.
        let last = admit("last").unwrap();
        let error = admit("more").unwrap_err();
        assert_eq!(error.kind, ErrorKind::Limit);
        assert_eq!(error.details["limit"], "terminals");
        assert!(error.hint.unwrap().contains("terminate"));
        terminals.leave(&TerminalId::parse("more").unwrap(), &place("more"));
        let alive = terminals.all().iter().filter(|one| one.counts()).count() as u64;
        assert_eq!(alive, living);
        assert!(terminals.get(&TerminalId::parse("ended").unwrap()).is_ok());
        // A session that was not opened, or has ended, makes room.
        drop(last);
        let last = admit("more");
        assert!(last.is_ok());
    }
}
