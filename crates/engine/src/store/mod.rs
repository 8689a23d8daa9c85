//! The store: SQLite, on a thread of its own.
//!
//! WAL with `synchronous=NORMAL`: a commit survives `kill -9` of the daemon. An ordinary sandbox
//! does not survive a power cut, so neither need its row; kept ones (workspaces) are written with
//! `FULL`. The WAL is checkpointed when it is large, when a daemon starts and when it ends:
//! everything acknowledged before that is in `motu.db` itself. The schema is a list of numbered
//! steps; `user_version` is the number of steps a database has taken.
//!
//! Transactions are counted, in the database and beside it: a log that was damaged or lost is
//! noticed, and said ([`mark`]). A row that cannot be read costs itself ([`reading`]). What must
//! not go back to an earlier state has a file of its own, in [`crate::register`].

mod ages;
mod baselines;
mod dormant;
mod events;
mod former;
mod json;
mod mark;
mod reading;
mod rows;
mod salvage;
mod terminals;
mod workspaces;

use crate::found;
use crate::lost::Lost;
use mark::Mark;
use motu_core::hint;
use motu_core::hint::{host, verb};
use motu_core::{Error, ErrorKind, Result, audit, limits};
use rusqlite::Connection;
use rusqlite::config::DbConfig;
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use tokio::sync::{oneshot, watch};

pub use crate::paths::Base;
pub use baselines::BaselineRef;
pub use dormant::{Beside, Called, DormantRow, Survey};
pub use events::Page;
pub use mark::Loss;
pub(crate) use mark::MARK;
pub use rows::{SandboxRow, Stored};
pub use salvage::Salvaged;
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

/// The key of the version that all rows were brought to.
const UPGRADED: &str = "upgraded";

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

/// What the store's thread works with.
struct Desk {
    connection: Connection,
    mark: Mark,
    lost: Lost,
}

type Job = Box<dyn FnOnce(&mut Desk) + Send>;

/// A handle to the store's thread. The thread ends with the last handle.
#[derive(Clone, Debug)]
pub struct Store {
    jobs: mpsc::Sender<Job>,
    base: Base,
    /// The number of the last event.
    news: Arc<watch::Sender<u64>>,
    /// How many events are kept.
    kept: Arc<AtomicU64>,
    /// What an earlier daemon had stored and this one did not find.
    loss: Option<Loss>,
}

/// A transaction, and the events that are written in it.
pub(crate) struct Work<'a> {
    transaction: rusqlite::Transaction<'a>,
    told: Cell<u64>,
    kept: u64,
    /// Where rows go that cannot be read.
    lost: &'a Lost,
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
        let home = path.parent().unwrap_or(Path::new("/"));
        let (base, lost) = (Base::new(home), Lost::at(home));
        // Before SQLite takes what it can of the log, and forgets the rest.
        let before = mark::Before::look(path);
        let mut connection = Connection::open(path).map_err(|error| failed("open", &error))?;
        prepare(&mut connection)?;
        upgrade(&mut connection, &base).map_err(|error| failed("migrate", &error))?;
        let (mark, loss) = before.compare(&connection, &lost)?;
        let mut desk = Desk {
            connection,
            mark,
            lost,
        };
        let (jobs, queue) = mpsc::channel::<Job>();
        std::thread::Builder::new()
            .name("store".to_string())
            .spawn(move || {
                for job in queue {
                    job(&mut desk);
                }
            })
            .map_err(|error| Error::io("cannot start the store", &error))?;
        Ok(Store {
            jobs,
            base,
            news: Arc::new(watch::Sender::new(0)),
            kept: Arc::new(AtomicU64::new(limits::EVENTS_KEPT.default)),
            loss,
        })
    }

    /// What an earlier daemon had stored and is not there, if that is so.
    pub fn loss(&self) -> Option<&Loss> {
        self.loss.as_ref()
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
            let connection = only_look(path)?;
            connection.query_row("SELECT count(*) FROM sqlite_master", [], |row| row.get(0))
        };
        match tables() {
            Ok(0) => found::Store::Empty,
            Ok(_) => found::Store::Readable,
            Err(_) => found::Store::Unreadable,
        }
    }

    /// Whether a daemon can go on with a database: every page can be read, and its schema is one of
    /// ours. It is looked at on a copy, and is not changed. Slow.
    pub async fn is_whole(path: &Path) -> bool {
        let check = || -> rusqlite::Result<String> {
            let connection = only_look(path)?;
            connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))
        };
        if !check().is_ok_and(|said| said == "ok") {
            return false;
        }
        let Ok(place) = tempfile::tempdir_in(path.parent().unwrap_or(Path::new("/"))) else {
            return true;
        };
        // As it lies there, with its header: SQLite would write another one.
        let copy = place.path().join("motu.db");
        let beside = |database: &Path| {
            let mut log = database.as_os_str().to_os_string();
            log.push("-wal");
            std::path::PathBuf::from(log)
        };
        let _ = std::fs::copy(beside(path), beside(&copy));
        if std::fs::copy(path, &copy).is_err() {
            return true;
        }
        match Store::open(&copy) {
            Ok(store) => {
                let read = store.read_all().await;
                store.close().await;
                read.is_ok() && columns(&copy).is_ok_and(|found| Ok(found) == columns_of_new())
            }
            // A newer one's is none of ours to make again.
            Err(error) => error.kind == ErrorKind::Unsupported,
        }
    }

    /// Reads what a daemon reads when it starts.
    async fn read_all(&self) -> Result<()> {
        self.all().await?;
        self.workspaces().await?;
        self.terminals().await?;
        self.baseline_refs().await?;
        self.tombstones(None, None).await?;
        self.events(None, 0, usize::MAX >> 1).await.map(drop)
    }

    /// Writes the WAL back into the database file, which then has everything.
    pub async fn checkpoint(&self) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        let job: Job = Box::new(move |desk| {
            let checkpoint = "PRAGMA wal_checkpoint(TRUNCATE)";
            let done = desk.connection.query_row(checkpoint, [], |_| Ok(()));
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
        let job: Job = Box::new(move |desk| {
            // If the final checkpoint fails, the data is still in the WAL.
            let memory = Connection::open_in_memory();
            if let Ok(memory) = memory {
                drop(std::mem::replace(&mut desk.connection, memory));
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
        let job: Job = Box::new(move |desk| {
            let path = path.to_string_lossy();
            let done = desk.connection.execute("VACUUM INTO ?1", [path.as_ref()]);
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
            let query = "SELECT key, value, rowid AS rowid_of_it FROM meta WHERE key = ?1";
            let mut query = transaction.prepare_cached(query)?;
            transaction.one("meta", query.query([key])?, |row| row.get(1))
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
        let job: Job = Box::new(move |desk| {
            let work = |transaction: &Work<'_>| audit::on_behalf_of(call, || work(transaction));
            let result = run(desk, durability, kept, work);
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

/// Runs one transaction, and counts it if it has changed anything. Gives the number of the last
/// event that was written in it.
fn run<T>(
    desk: &mut Desk,
    durability: Durability,
    kept: u64,
    work: impl FnOnce(&Work<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<(T, u64)> {
    let Desk {
        connection,
        mark,
        lost,
    } = desk;
    durability.set(connection)?;
    let behavior = rusqlite::TransactionBehavior::Immediate;
    let before = connection.total_changes();
    let work_on = Work {
        transaction: connection.transaction_with_behavior(behavior)?,
        told: Cell::new(0),
        kept,
        lost,
    };
    let value = work(&work_on)?;
    let changed = work_on.total_changes() != before;
    if changed {
        mark.count(&work_on)?;
    }
    let told = work_on.told.get();
    work_on.transaction.commit()?;
    if changed {
        mark.counted(durability == Durability::Host);
    }
    Ok((value, told))
}

/// Every column of every table, with its type.
fn columns(path: &Path) -> rusqlite::Result<Vec<(String, String, String)>> {
    columns_in(&only_look(path)?)
}

fn columns_of_new() -> rusqlite::Result<Vec<(String, String, String)>> {
    let connection = Connection::open_in_memory()?;
    for step in MIGRATIONS {
        connection.execute_batch(step)?;
    }
    columns_in(&connection)
}

fn columns_in(connection: &Connection) -> rusqlite::Result<Vec<(String, String, String)>> {
    let query = "SELECT m.name, c.name, c.type FROM sqlite_master m, pragma_table_info(m.name) c
         WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite_%' ORDER BY m.name, c.cid";
    let mut query = connection.prepare(query)?;
    let rows = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    rows.collect()
}

/// Opens a database and leaves its log where it is: SQLite would write it back and remove it when
/// it is closed, with whatever it could not read of it.
fn only_look(path: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open(path)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    connection.busy_timeout(BUSY)?;
    Ok(connection)
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

/// Brings rows of earlier versions up to date. Once for a version of the store: it looks at every
/// row, and older builds do not write to a newer store.
fn upgrade(connection: &mut Connection, base: &Base) -> rusqlite::Result<()> {
    let query = "SELECT 1 FROM meta WHERE key = ?1 AND value = ?2";
    let version = STORE_VERSION.to_string();
    let done = connection.prepare(query)?.exists([UPGRADED, &version])?;
    if done {
        return Ok(());
    }
    rows::make_relative(connection, base)?;
    ages::fill(connection)?;
    let note = "INSERT OR REPLACE INTO meta VALUES (?1, ?2)";
    connection.execute(note, [UPGRADED, &version]).map(drop)
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
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => made_again(Error::internal(
            format!("store: {what}: motu.db is damaged: {error}"),
        )),
        _ => made_again(Error::internal(format!("store: {what}: {error}"))),
    }
}

fn made_again(error: Error) -> Error {
    error.hint(hint![
        "if motu.db is damaged, ",
        host("motu recover --rebuild"),
        " sets it aside and makes a new one of what is beside the disks",
    ])
}

#[cfg(test)]
mod damage_tests;

/// Makes a store one whose rows an earlier version has written.
#[cfg(test)]
fn not_upgraded(path: &Path) {
    let connection = Connection::open(path).expect("it was just made");
    let forget = "DELETE FROM meta WHERE key = ?1";
    connection.execute(forget, [UPGRADED]).expect("it is there");
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
