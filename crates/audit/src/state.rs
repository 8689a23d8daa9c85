//! State shared by the writer thread and its callers.

use motu_core::config::AuditConfig;
use motu_core::{Error, ErrorKind, Result};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::broadcast;

/// Entries buffered for a slow follower.
const FOLLOW: usize = 1024;

/// A recorded call: its sequence number and line.
pub type News = (u64, Arc<[u8]>);

/// Size and age limits of a log.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    pub segment_bytes: u64,
    pub max_bytes: u64,
    pub keep_seconds: i64,
}

impl From<&AuditConfig> for Settings {
    fn from(config: &AuditConfig) -> Settings {
        Settings {
            segment_bytes: 4 * 1024 * 1024,
            max_bytes: config.max_mib * 1024 * 1024,
            keep_seconds: config.keep_days as i64 * 24 * 3600,
        }
    }
}

/// Whether entries can be written.
#[derive(Clone, Debug)]
pub enum State {
    Ready,
    /// Only the preallocated space is left.
    Full(Error),
    Broken(Error),
}

/// State of the writer that callers can read.
#[derive(Debug)]
pub struct Shared {
    state: Mutex<State>,
    missed: AtomicU64,
    followers: broadcast::Sender<News>,
}

impl Shared {
    pub fn new() -> Shared {
        Shared {
            state: Mutex::new(State::Ready),
            missed: AtomicU64::new(0),
            followers: broadcast::Sender::new(FOLLOW),
        }
    }

    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn state(&self) -> State {
        self.lock().clone()
    }

    pub fn check(&self) -> Result<()> {
        match self.state() {
            State::Ready => Ok(()),
            State::Full(error) | State::Broken(error) => Err(error),
        }
    }

    /// Stops all writing: the contents of the disk are unknown after an error.
    pub fn broke(&self, doing: &str, error: &io::Error) -> Error {
        tracing::error!(%error, doing, "the audit log is broken");
        let error = refusal(&format!("{doing}: {error}"));
        *self.lock() = State::Broken(error.clone());
        error
    }

    pub fn has_room(&self, made: io::Result<()>) {
        let mut state = self.lock();
        match (&*state, made) {
            (State::Broken(_), _) => {}
            (_, Ok(())) => *state = State::Ready,
            (_, Err(error)) => {
                tracing::error!(%error, "allocating space for the audit log failed");
                *state = State::Full(Error::io("make room in the audit log", &error));
            }
        }
    }

    pub fn miss(&self, count: u64) {
        self.missed.fetch_add(count, Ordering::Relaxed);
    }

    pub fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }

    pub fn recovered(&self, count: u64) {
        self.missed.fetch_sub(count, Ordering::Relaxed);
    }

    pub fn follow(&self) -> broadcast::Receiver<News> {
        self.followers.subscribe()
    }

    pub fn is_followed(&self) -> bool {
        self.followers.receiver_count() > 0
    }

    pub fn tell(&self, calls: Vec<(u64, Vec<u8>)>) {
        for (seq, text) in calls {
            let _ = self.followers.send((seq, text.into()));
        }
    }
}

/// The error for changes while the log cannot be written.
pub fn refusal(reason: &str) -> Error {
    Error::new(
        ErrorKind::Unavailable,
        format!("the audit log cannot be written: {reason}"),
    )
    .hint("docs/audit.md says what to do; until then only reads are answered")
}
