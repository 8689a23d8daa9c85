//! Noticing that changes were lost.
//!
//! ```text
//!   motu.db, meta "changes"    how many transactions have changed the store
//!   motu.db-mark               the same number, written after each commit: of this boot of the
//!                              host, and of those that survive a power cut
//! ```
//!
//! SQLite takes what it can of a write-ahead log and says nothing of the rest. A store that has
//! fewer changes than were counted beside it has lost some: the daemon says so, and keeps the log
//! as it was found in `lost/`.

use super::Work;
use crate::clock::boot_id;
use crate::lost::{Lost, LostKind};
use motu_core::Result;
use rusqlite::{Connection, OptionalExtension, params};
use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// How the name of the file ends that counts beside the database.
pub(crate) const MARK: &str = "-mark";
const CHANGES: &str = "changes";

/// Changes that a daemon had stored and the next one did not find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    pub changes: u64,
}

/// The boot of the host, as one word.
fn boot() -> String {
    match boot_id() {
        "" => "unknown".to_string(),
        id => id.to_string(),
    }
}

/// The count beside the database.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Counted {
    boot: String,
    last: u64,
    /// The last one that was written to survive a power cut.
    durable: u64,
}

impl Counted {
    fn read(path: &Path) -> Option<Counted> {
        let text = std::fs::read_to_string(path).ok()?;
        let mut words = text.split_whitespace();
        Some(Counted {
            boot: words.next()?.to_string(),
            last: words.next()?.parse().ok()?,
            durable: words.next()?.parse().ok()?,
        })
    }

    /// How many changes a store must have.
    fn expected(&self) -> u64 {
        match self.boot == boot() {
            true => self.last,
            // The host was started since: what was not to survive that may be gone.
            false => self.durable,
        }
    }

    fn text(&self) -> String {
        format!("{} {:020} {:020}\n", self.boot, self.last, self.durable)
    }
}

/// What is there before SQLite opens the database.
#[derive(Debug)]
pub(super) struct Before {
    mark: PathBuf,
    counted: Option<Counted>,
    /// A copy of the log that a daemon left which did not end by itself.
    log: Option<PathBuf>,
}

impl Before {
    pub fn look(database: &Path) -> Before {
        let beside = |ending: &str| {
            let mut name = database.as_os_str().to_os_string();
            name.push(ending);
            PathBuf::from(name)
        };
        let (mark, log, copy) = (beside(MARK), beside("-wal"), beside("-wal.found"));
        let counted = Counted::read(&mark);
        let copied = counted.is_some()
            && log.metadata().is_ok_and(|found| found.len() > 0)
            && std::fs::copy(&log, &copy).is_ok();
        Before {
            mark,
            counted,
            log: copied.then_some(copy),
        }
    }

    /// Compares what was counted with what SQLite found.
    pub fn compare(self, connection: &Connection, lost: &Lost) -> Result<(Mark, Option<Loss>)> {
        let query = "SELECT CAST(value AS INTEGER) FROM meta WHERE key = ?1";
        let found: Option<i64> = connection
            .query_row(query, [CHANGES], |row| row.get(0))
            .optional()
            .unwrap_or_default();
        let found = found.unwrap_or(0).unsigned_abs();
        let expected = self.counted.as_ref().map_or(0, Counted::expected);
        let loss = (expected > found).then(|| Loss {
            changes: expected - found,
        });
        if let Some(loss) = &loss {
            self.keep(loss, lost)?;
        }
        if let Some(copy) = &self.log {
            let _ = std::fs::remove_file(copy);
        }
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&self.mark);
        let counted = Counted {
            boot: boot(),
            last: found,
            durable: found,
        };
        let mut mark = Mark {
            file: file.map_err(|error| not_counted(&error)).ok(),
            counted,
        };
        mark.write();
        Ok((mark, loss))
    }

    fn keep(&self, loss: &Loss, lost: &Lost) -> Result<()> {
        let reason = format!(
            "the store had {} changes more when the last daemon ended: its write-ahead log was damaged or lost",
            loss.changes
        );
        tracing::error!(
            changes = loss.changes,
            "the store has lost its last changes"
        );
        let (kind, was_at) = (LostKind::Changes, Path::new("motu.db-wal"));
        match &self.log {
            Some(copy) => lost.put(kind, copy, &reason),
            None => {
                let counted = self.counted.as_ref().map(Counted::text);
                lost.put_bytes(
                    kind,
                    was_at,
                    counted.unwrap_or_default().as_bytes(),
                    &reason,
                )
            }
        }
        .map(drop)
    }
}

fn not_counted(error: &std::io::Error) {
    tracing::warn!(%error, "changes of the store are not counted: their loss would not be noticed");
}

/// The count of a store that is open.
#[derive(Debug)]
pub(super) struct Mark {
    file: Option<File>,
    counted: Counted,
}

impl Mark {
    /// Counts a transaction in the database, as a part of it.
    pub fn count(&self, work: &Work<'_>) -> rusqlite::Result<()> {
        let next = (self.counted.last + 1).to_string();
        work.prepare_cached("INSERT OR REPLACE INTO meta VALUES (?1, ?2)")?
            .execute(params![CHANGES, next])
            .map(drop)
    }

    /// Counts it beside the database, once it is committed.
    pub fn counted(&mut self, durable: bool) {
        self.counted.last += 1;
        if durable {
            self.counted.durable = self.counted.last;
        }
        self.write();
    }

    fn write(&mut self) {
        let Some(file) = &self.file else { return };
        if let Err(error) = file.write_all_at(self.counted.text().as_bytes(), 0) {
            not_counted(&error);
            self.file = None;
        }
    }
}
