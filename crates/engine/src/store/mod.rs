//! The store: SQLite, on a thread of its own.
//!
//! WAL with `synchronous=NORMAL`: a commit survives `kill -9` of the daemon. An ordinary sandbox
//! does not survive a power cut, so neither need its row; kept ones (workspaces) are written with
//! `FULL`. The WAL is checkpointed when it is large, when a daemon starts and when it ends:
//! everything acknowledged before that is in `motu.db` itself. The schema is a list of numbered
//! steps; `user_version` is the number of steps a database has taken.

mod ages;
mod baselines;
mod events;
mod json;
mod keys;
mod rows;
mod templates;
mod terminals;
mod workspaces;

use crate::found;
use motu_core::hint;
use motu_core::hint::{host, verb};
use motu_core::{Error, ErrorKind, Result, audit, limits};
use rusqlite::{Connection, OptionalExtension};
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use tokio::sync::{oneshot, watch};

pub use crate::paths::Base;
pub use baselines::BaselineRef;
pub use events::Page;
pub use keys::KeyHash;
pub use rows::{SandboxRow, Stored};
pub use terminals::{TerminalEnd, TerminalRow, TerminalShell};
pub use workspaces::{SealedSecret, ServiceRow, WorkspaceRecord, WorkspaceRow};

/// Schema steps; only ever appended to.
const MIGRATIONS: &[&str] = &[
    include_str!("0001_sandboxes.sql"),
    include_str!("0002_workspaces.sql"),
    include_str!("0003_terminals.sql"),
    include_str!("0004_baselines.sql"),
    include_str!("0005_revisions.sql"),
    include_str!("0006_templates.sql"),
    include_str!("0007_keys.sql"),
    include_str!("0008_events.sql"),
    include_str!("0009_ages.sql"),
    include_str!("0010_event_projects.sql"),
];

/// How long to wait while another process locks the database.
const BUSY: std::time::Duration = std::time::Duration::from_secs(5);
/// WAL pages (of 4 KiB) after which SQLite checkpoints.
const LOG_PAGES: u32 = 256;

/// The schema version after all steps.
pub const STORE_VERSION: u32 = MIGRATIONS.len() as u32;

/// What a committed transaction survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// A crash of the daemon.
    Process,
    /// A power cut of the host.
    Host,
}

impl Durability {
    fn set(self, connection: &Connection) -> rusqlite::Result<()> {
        let level = match self {
            Durability::Process => "NORMAL",
            Durability::Host => "FULL",
        };
        connection.pragma_update(None, "synchronous", level)
    }
}

type Job = Box<dyn FnOnce(&mut Connection) + Send>;

/// A handle to the store's thread. The thread ends with the last handle.
#[derive(Clone, Debug)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
    base: Base,
    /// The number of the last event.
    news: Arc<watch::Sender<u64>>,
    /// How many events are kept.
    kept: Arc<AtomicU64>,
}

/// A transaction, and the events that are written in it.
pub(crate) struct Work<'a> {
    transaction: rusqlite::Transaction<'a>,
    told: Cell<u64>,
    kept: u64,
}

impl Work<'_> {
    /// Notes an event, which readers hear of when the transaction is through.
    fn told(&self, sequence: u64) {
        self.told.set(sequence);
    }

    fn kept(&self) -> u64 {
        self.kept
    }
}

impl<'a> std::ops::Deref for Work<'a> {
    type Target = rusqlite::Transaction<'a>;

    fn deref(&self) -> &rusqlite::Transaction<'a> {
        &self.transaction
    }
}

impl Store {
    /// Opens (or makes) the database of a state directory and brings its schema up to date.
    pub fn open(path: &Path) -> Result<Store> {
        let mut connection = Connection::open(path).map_err(|error| failed("open", &error))?;
        let base = Base::new(path.parent().unwrap_or(Path::new("/")));
        prepare(&mut connection)?;
        rows::make_relative(&mut connection, &base).map_err(|error| failed("migrate", &error))?;
        ages::fill(&mut connection).map_err(|error| failed("migrate", &error))?;
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("store".to_string())
            .spawn(move || {
                for job in queue {
                    job(&mut connection);
                }
            })
            .map_err(|error| Error::io("cannot start the store", &error))?;
        Ok(Store {
            jobs,
            base,
            news: Arc::new(watch::Sender::new(0)),
            kept: Arc::new(AtomicU64::new(limits::EVENTS_KEPT.default)),
        })
    }

    /// Checks a database without changing it.
    pub fn look(path: &Path) -> found::Store {
        match path.metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return found::Store::Absent;
            }
            Err(_) => return found::Store::Unreadable,
            Ok(file) if file.len() == 0 => return found::Store::Empty,
            Ok(_) => {}
        }
        let tables = || -> rusqlite::Result<i64> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(BUSY)?;
            connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
        };
        match tables() {
            Ok(0) => found::Store::Empty,
            Ok(_) => found::Store::Readable,
            Err(_) => found::Store::Unreadable,
        }
    }

    /// Whether every page of a database can be read. Slow.
    pub fn is_whole(path: &Path) -> bool {
        let check = || -> rusqlite::Result<String> {
            let connection = Connection::open(path)?;
            connection.busy_timeout(BUSY)?;
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))
        };
        check().is_ok_and(|said| said == "ok")
    }

    /// Writes the WAL back into the database file, which then has everything.
    pub async fn checkpoint(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let done = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
            let _ = answer.send(done.map_err(|error| failed("checkpoint", &error)));
        });
        self.jobs
            .send(job)
            .map_err(|_| Error::internal("the store has stopped"))?;
        answered
            .await
            .map_err(|_| Error::internal("the store has stopped"))?
    }

    /// Ends the store's thread; calls on other handles fail.
    pub async fn close(self) {
        let (ended, wait) = oneshot::channel::<()>();
        let job: Job = Box::new(move |connection| {
            // If the final checkpoint fails, the data is still in the WAL.
            let memory = Connection::open_in_memory();
            if let Ok(memory) = memory {
                drop(std::mem::replace(connection, memory));
            }
            drop(ended);
        });
        if self.jobs.send(job).is_ok() {
            let _ = wait.await;
        }
    }

    /// Copies the database as it is now into a new file.
    pub async fn copy_to(&self, path: std::path::PathBuf) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let path = path.to_string_lossy();
            let done = connection.execute("VACUUM INTO ?1", [path.as_ref()]);
            let _ = answer.send(done.map(drop).map_err(|error| failed("copy", &error)));
        });
        self.jobs
            .send(job)
            .map_err(|_| Error::internal("the store has stopped"))?;
        answered
            .await
            .map_err(|_| Error::internal("the store has stopped"))?
    }

    /// A fact about the store itself.
    pub async fn meta(&self, key: &'static str) -> Result<Option<String>> {
        self.with("meta", move |transaction| {
            let query = "SELECT value FROM meta WHERE key = ?1";
            transaction
                .query_row(query, [key], |row| row.get(0))
                .optional()
        })
        .await
    }

    pub async fn set_meta(&self, key: &'static str, value: String) -> Result<()> {
        self.with_durable("meta", move |transaction| {
            transaction.execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", [key, &value])?;
            Ok(())
        })
        .await
    }

    /// Like [`Store::set_meta`], but what is set last may be lost in a power cut.
    pub async fn note_meta(&self, key: &'static str, value: String) -> Result<()> {
        self.with("meta", move |transaction| {
            transaction.execute("INSERT OR REPLACE INTO meta VALUES (?1, ?2)", [key, &value])?;
            Ok(())
        })
        .await
    }

    /// Runs one transaction.
    async fn with<T, F>(&self, what: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Work<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.transact(what, Durability::Process, work).await
    }

    /// Runs one transaction that, once answered, survives a power cut.
    async fn with_durable<T, F>(&self, what: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Work<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.transact(what, Durability::Host, work).await
    }

    async fn transact<T, F>(&self, what: &'static str, durability: Durability, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Work<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let (news, kept) = (self.news.clone(), self.kept.load(Ordering::Relaxed));
        // The work is done on another thread, on behalf of the same call.
        let call = audit::current();
        let job: Job = Box::new(move |connection| {
            let result = durability.set(connection).and_then(|()| {
                connection
                    .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
                    .and_then(|transaction| {
                        let transaction = Work {
                            transaction,
                            told: Cell::new(0),
                            kept,
                        };
                        let value = audit::on_behalf_of(call, || work(&transaction))?;
                        transaction.transaction.commit()?;
                        Ok((value, transaction.told.get()))
                    })
            });
            if let Ok((_, told @ 1..)) = result {
                news.send_replace(told);
            }
            let result = result.map(|(value, _)| value);
            let _ = answer.send(result.map_err(|error| failed(what, &error)));
        });
        self.jobs
            .send(job)
            .map_err(|_| Error::internal("the store has stopped"))?;
        answered
            .await
            .map_err(|_| Error::internal("the store has stopped"))?
    }
}

fn prepare(connection: &mut Connection) -> Result<()> {
    let setup = |connection: &mut Connection| -> rusqlite::Result<u32> {
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES)?;
        // A small page cache: the daemon's memory budget is small, and so is the database.
        connection.pragma_update(None, "cache_size", -512)?;
        connection.pragma_query_value(None, "user_version", |row| row.get(0))
    };
    let version = setup(connection).map_err(|error| failed("open", &error))?;
    if version > STORE_VERSION {
        return Err(Error::unsupported(format!(
            "the store has version {version}; this build knows up to {STORE_VERSION}"
        ))
        .hint("use the newer motu that wrote it, or another MOTU_HOME"));
    }
    for (number, step) in MIGRATIONS.iter().enumerate().skip(version as usize) {
        let take = |connection: &mut Connection| -> rusqlite::Result<()> {
            let transaction = connection.transaction()?;
            transaction.execute_batch(step)?;
            transaction.pragma_update(None, "user_version", number as u32 + 1)?;
            transaction.commit()
        };
        take(connection).map_err(|error| failed("migrate", &error))?;
    }
    Ok(())
}

fn failed(what: &str, error: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            Error::limit(format!("store: {what}: the disk is full")).hint(hint![
                "free some space under MOTU_HOME, for example with ",
                verb("prune_environments")
            ])
        }
        Some(ErrorCode::ConstraintViolation) => {
            Error::conflict(format!("store: {what}: it exists already"))
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Error::internal(format!("store: {what}: motu.db is damaged: {error}")).hint(hint![
                host("motu recover --rebuild"),
                " sets it aside and makes a new one of what is beside the disks",
            ])
        }
        _ => Error::new(ErrorKind::Internal, format!("store: {what}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_database_from_the_future_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("motu.db");
        Connection::open(&path)
            .unwrap()
            .pragma_update(None, "user_version", 99)
            .unwrap();
        let error = Store::open(&path).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported);
    }

    #[tokio::test]
    async fn a_file_that_is_no_database_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("motu.db");
        std::fs::write(&path, vec![7u8; 8192]).unwrap();
        let error = Store::open(&path).unwrap_err();
        assert!(error.message.contains("damaged"), "{error}");
    }
}
