//! The enabled kinds of credentials, and how often they were found.

use crate::kinds::{ROWS, names};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An unknown name of a kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind of credential {0:?}")]
pub struct UnknownKind(pub String);

/// The enabled kinds, and counts of matches. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub struct Patterns {
    on: [bool; ROWS.len()],
    counts: Arc<Counts>,
}

#[derive(Debug)]
struct Counts {
    rows: [AtomicU64; ROWS.len()],
    known: AtomicU64,
}

impl Patterns {
    fn new(on: bool) -> Patterns {
        Patterns {
            on: [on; ROWS.len()],
            counts: Arc::new(Counts {
                rows: std::array::from_fn(|_| AtomicU64::new(0)),
                known: AtomicU64::new(0),
            }),
        }
    }

    pub fn none() -> Patterns {
        Patterns::new(false)
    }

    pub fn all() -> Patterns {
        Patterns::new(true)
    }

    /// All kinds but these.
    pub fn without<S: AsRef<str>>(off: &[S]) -> Result<Patterns, UnknownKind> {
        let mut patterns = Patterns::all();
        for name in off {
            let name = name.as_ref();
            if !names().any(|known| known == name) {
                return Err(UnknownKind(name.chars().take(64).collect()));
            }
            for (row, on) in ROWS.iter().zip(&mut patterns.on) {
                *on &= row.kind != name;
            }
        }
        Ok(patterns)
    }

    /// No kinds, with the counts shared.
    #[must_use]
    pub fn values_only(&self) -> Patterns {
        Patterns {
            on: [false; ROWS.len()],
            counts: self.counts.clone(),
        }
    }

    /// The enabled rows, as indices of [`ROWS`].
    pub(crate) fn rows(&self) -> impl Iterator<Item = usize> {
        (0..ROWS.len()).filter(|row| self.on[*row])
    }

    pub(crate) fn count(&self, row: Option<usize>) {
        let count = match row {
            Some(row) => &self.counts.rows[row],
            None => &self.counts.known,
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of enabled kinds.
    pub fn kinds(&self) -> usize {
        names().filter(|name| self.has(name)).count()
    }

    fn has(&self, name: &str) -> bool {
        ROWS.iter()
            .zip(self.on)
            .any(|(row, on)| on && row.kind == name)
    }

    /// How many known values were redacted.
    pub fn values_found(&self) -> u64 {
        self.counts.known.load(Ordering::Relaxed)
    }

    /// How many credentials were redacted, by kind; only kinds with matches.
    pub fn found(&self) -> Vec<(&'static str, u64)> {
        let count = |name: &'static str| {
            let rows = ROWS.iter().zip(&self.counts.rows);
            let rows = rows.filter(|(row, _)| row.kind == name);
            (
                name,
                rows.map(|(_, count)| count.load(Ordering::Relaxed)).sum(),
            )
        };
        names().map(count).filter(|(_, count)| *count > 0).collect()
    }
}
