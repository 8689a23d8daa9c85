//! What the daemon remembers across restarts: SQLite, on a thread of its own.
//!
//! WAL with `synchronous=NORMAL`: a commit survives `kill -9` of the daemon. An
//! ordinary sandbox does not survive a power cut, so nothing is lost when its row
//! does not either; what is kept (workspaces) is written with `FULL`. The schema is a list of numbered steps; `user_version` says how
//! many of them a database has taken.

mod baselines;
mod rows;
mod terminals;
mod workspaces;

use motu_core::{Error, ErrorKind, Result};
use rusqlite::Connection;
use std::path::Path;
use std::sync::mpsc;
use tokio::sync::oneshot;

pub use baselines::BaselineRef;
pub use rows::SandboxRow;
pub use terminals::{TerminalEnd, TerminalRow, TerminalShell};
pub use workspaces::{SealedSecret, ServiceRow, WorkspaceRow};

/// Schema steps; only ever appended to.
const MIGRATIONS: &[&str] = &[
    include_str!("0001_sandboxes.sql"),
    include_str!("0002_workspaces.sql"),
    include_str!("0003_terminals.sql"),
    include_str!("0004_baselines.sql"),
];

/// The version of a database with every step taken.
pub const STORE_VERSION: u32 = MIGRATIONS.len() as u32;

/// What an answered transaction survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Durability {
    /// The end of the daemon.
    Process,
    /// The end of the host.
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
}

impl Store {
    /// Opens (or makes) the database and brings its schema up to date.
    pub fn open(path: &Path) -> Result<Store> {
        let mut connection = Connection::open(path).map_err(|error| failed("open", &error))?;
        prepare(&mut connection)?;
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("store".to_string())
            .spawn(move || {
                for job in queue {
                    job(&mut connection);
                }
            })
            .map_err(|error| Error::io("cannot start the store", &error))?;
        Ok(Store { jobs })
    }

    /// Runs one transaction.
    async fn with<T, F>(&self, what: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.transact(what, Durability::Process, work).await
    }

    /// Runs one transaction that, once answered, survives a power cut.
    async fn with_durable<T, F>(&self, what: &'static str, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        self.transact(what, Durability::Host, work).await
    }

    async fn transact<T, F>(&self, what: &'static str, durability: Durability, work: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Transaction<'_>) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |connection| {
            let result = durability.set(connection).and_then(|()| {
                connection
                    .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
                    .and_then(|transaction| {
                        let value = work(&transaction)?;
                        transaction.commit()?;
                        Ok(value)
                    })
            });
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
        connection.busy_timeout(std::time::Duration::from_secs(5))?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        // The daemon's memory budget is small and so is the database.
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
        Some(ErrorCode::DiskFull) => Error::limit(format!("store: {what}: the disk is full"))
            .hint("free some space under MOTU_HOME, for example with `motu env prune`"),
        Some(ErrorCode::ConstraintViolation) => {
            Error::conflict(format!("store: {what}: it exists already"))
        }
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => {
            Error::internal(format!("store: {what}: motu.db is damaged: {error}")).hint(
                "move MOTU_HOME/motu.db away; running sandboxes are then found by their directories and removed",
            )
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
