//! Which runtimes have shown that they work: by making a machine.
//!
//! A runtime's own checks say that everything is there, not that it works. One that fails at the
//! first machine it is to make for this daemon is broken until somebody looks again (`doctor`),
//! its programs change, or a call that names it gets a machine. `auto` goes on without it, and after
//! a minute tries it again where nothing else satisfies a call.

use motu_core::{Error, ErrorKind, Result, Runtime};
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a runtime that failed is passed over where nothing else satisfies a call.
const TRY_AGAIN: Duration = Duration::from_secs(60);

/// What is known of the runtimes of one daemon.
#[derive(Debug, Default)]
pub struct Proofs {
    known: Mutex<Known>,
}

/// Why a runtime is passed over, and since when.
#[derive(Clone, Debug)]
pub(crate) struct Broken {
    pub(crate) error: Error,
    since: Instant,
}

impl Broken {
    /// Whether it may be tried again where there is nothing else: what was wrong may have been the
    /// network or a busy host.
    pub(crate) fn is_old(&self) -> bool {
        self.since.elapsed() >= TRY_AGAIN
    }
}

#[derive(Debug, Default)]
struct Known {
    /// By name: which programs it was, and why it is broken if it is.
    by_runtime: BTreeMap<&'static str, (String, Option<Broken>)>,
    /// How often a runtime turned out to be broken.
    disappointments: u64,
}

impl Proofs {
    /// Takes note of how making a machine went.
    pub(crate) fn note<T>(&self, runtime: &dyn Runtime, made: Result<T>) -> Result<T> {
        let (name, programs) = (runtime.name(), runtime.programs());
        let mut known = self.locked();
        let Known {
            by_runtime,
            disappointments,
        } = &mut *known;
        match &made {
            Ok(_) => drop(by_runtime.insert(name, (programs, None))),
            Err(error) if blames(error) => {
                let proven = by_runtime.get(name);
                let proven = proven.is_some_and(|(of, broken)| *of == programs && broken.is_none());
                if !proven {
                    tracing::warn!(runtime = name, %error, "a runtime failed at its first machine and is passed over");
                    let broken = Broken {
                        error: error.clone(),
                        since: Instant::now(),
                    };
                    by_runtime.insert(name, (programs, Some(broken)));
                    *disappointments += 1;
                }
            }
            Err(_) => {}
        }
        made
    }

    /// Why a runtime is passed over.
    pub(crate) fn broken(&self, runtime: &dyn Runtime) -> Option<Broken> {
        let mut known = self.locked();
        let (programs, broken) = known.by_runtime.get(runtime.name())?;
        let broken = broken.clone()?;
        if *programs == runtime.programs() {
            return Some(broken);
        }
        known.by_runtime.remove(runtime.name());
        None
    }

    /// Lets a runtime try again.
    pub(crate) fn pardon(&self, runtime: &dyn Runtime) {
        if self.broken(runtime).is_some() {
            self.locked().by_runtime.remove(runtime.name());
        }
    }

    /// Makes all failures older.
    #[cfg(test)]
    pub(crate) fn age(&self, by: Duration) {
        for (_, broken) in self.locked().by_runtime.values_mut() {
            if let Some(broken) = broken {
                broken.since = broken.since.checked_sub(by).unwrap_or(broken.since);
            }
        }
    }

    /// Grows whenever a runtime turns out to be broken.
    pub(crate) fn disappointments(&self) -> u64 {
        self.locked().disappointments
    }

    fn locked(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an error says something of the runtime, and not of the request or of the host's room.
pub(crate) fn blames(error: &Error) -> bool {
    match error.kind {
        ErrorKind::Unavailable
        | ErrorKind::Timeout
        | ErrorKind::Transport
        | ErrorKind::Internal => true,
        ErrorKind::Invalid
        | ErrorKind::Unauthenticated
        | ErrorKind::Denied
        | ErrorKind::NotFound
        | ErrorKind::Conflict
        | ErrorKind::Limit
        | ErrorKind::Unsupported
        | ErrorKind::Cleanup => false,
    }
}
