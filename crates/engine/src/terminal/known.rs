//! A session's row, shared by its task and everyone else.

use crate::owned::{Keeper, Owned};
use crate::store::{Store, TerminalRow};
use motu_core::terminal::TerminalId;
use motu_core::{Error, Result, SandboxId};
use std::sync::Arc;

/// The store of sessions.
#[derive(Debug)]
struct Sessions(Store);

impl Keeper<TerminalRow> for Sessions {
    type Along = ();

    async fn keep(&self, row: &TerminalRow, (): ()) -> Result<()> {
        self.0.put_terminal(row).await
    }
}

/// The row of a session, with or without a task.
#[derive(Debug)]
pub struct Known(Arc<Owned<TerminalRow, Sessions>>);

impl Known {
    pub fn new(row: TerminalRow, store: &Store) -> Arc<Known> {
        Arc::new(Known(Owned::new(row, Sessions(store.clone()))))
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
