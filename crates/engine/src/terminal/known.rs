//! A session's row, shared by its task and everyone else.

use crate::blocking::blocking;
use crate::owned::{Keeper, Owned};
use crate::store::{Store, TerminalRow};
use jiff::Timestamp;
use motu_core::terminal::TerminalId;
use motu_core::{Error, Result, SandboxId};
use motu_terminal::record::Metadata;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The store of sessions, and the directory of this one.
#[derive(Debug)]
struct Sessions {
    store: Store,
    dir: PathBuf,
}

impl Keeper<TerminalRow> for Sessions {
    type Along = ();

    async fn keep(&self, row: &TerminalRow, (): ()) -> Result<()> {
        self.store.put_terminal(row).await?;
        self.describe(row).await;
        Ok(())
    }
}

impl Sessions {
    /// Writes the metadata beside the transcript: a copy, which nothing of ours reads.
    async fn describe(&self, row: &TerminalRow) {
        let (metadata, dir) = (metadata(row), self.dir.clone());
        let written = blocking(move || match metadata.write(&dir) {
            // It is being opened or forgotten.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            written => written.map_err(|error| Error::io("write", &error)),
        });
        if let Err(error) = written.await {
            let dir = self.dir.display();
            tracing::warn!(%error, %dir, "could not write the metadata of a session");
        }
    }
}

fn metadata(row: &TerminalRow) -> Metadata {
    let ms = |at: Timestamp| u64::try_from(at.as_millisecond()).unwrap_or(0);
    let end = row.end.as_ref();
    Metadata {
        version: Metadata::VERSION,
        session_id: row.session_id.to_string(),
        sandbox_id: row.sandbox_id.to_string(),
        runtime: row.runtime.clone(),
        isolation: row.isolation.to_string(),
        description: row.description.clone(),
        command: row.command.clone(),
        started_unix_ms: ms(row.started_at),
        ended_unix_ms: end.map(|end| ms(end.at)),
        reason: end.map(|end| end.reason.clone()),
        exit_code: end.and_then(|end| end.exit_code),
        terminated: row.terminated,
        cols: row.size.cols,
        rows: row.size.rows,
        cwd: end.and_then(|end| end.cwd.clone()),
    }
}

/// The row of a session, with or without a task.
#[derive(Debug)]
pub struct Known(Arc<Owned<TerminalRow, Sessions>>);

impl Known {
    /// The row of a session whose files are in this directory.
    pub fn new(row: TerminalRow, store: &Store, dir: &Path) -> Arc<Known> {
        let sessions = Sessions {
            store: store.clone(),
            dir: dir.to_path_buf(),
        };
        Arc::new(Known(Owned::new(row, sessions)))
    }

    /// Writes the metadata anew, for a session whose row does not change now.
    pub async fn describe(&self) {
        self.0.keeper().describe(&self.row()).await;
    }

    pub fn row(&self) -> Arc<TerminalRow> {
        self.0.row()
    }

    /// Changes the row for a caller, in the store first.
    pub async fn change(&self, change: impl FnOnce(&mut TerminalRow)) -> Result<()> {
        let changed = self.0.change(|row| {
            change(row);
            Ok(())
        });
        changed.await.map_err(|error| match error.kind {
            motu_core::ErrorKind::Conflict => {
                Error::conflict("the session was forgotten, or opened again, meanwhile")
            }
            _ => error,
        })
    }

    /// Writes down what has happened to the session.
    pub async fn learn(&self, fact: impl FnOnce(&mut TerminalRow)) {
        if let Err(error) = self.0.learn(fact).await {
            let session = self.row().session_id.clone();
            tracing::warn!(%error, %session, "could not store a terminal session");
        }
    }

    /// Gives the row up: its name is another's now.
    pub async fn retire(&self) {
        self.0.retire().await;
    }

    /// Deletes the row.
    pub async fn remove(&self, store: &Store, id: &TerminalId) -> Result<()> {
        self.0.remove(store.delete_terminal(id)).await
    }

    /// The tag of the newest shell in the guest.
    pub fn tag(&self) -> Option<String> {
        let row = self.row();
        row.shell.as_ref().map(|shell| shell.tag.clone())
    }

    /// The sandbox it runs in.
    pub fn place(&self) -> SandboxId {
        self.row().sandbox_id.clone()
    }

    pub fn is_alive(&self) -> bool {
        self.row().is_alive()
    }

    pub fn is_terminated(&self) -> bool {
        self.row().terminated
    }
}
