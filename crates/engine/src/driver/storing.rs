//! How a driver stores what it does: the intent before, the state after.
//!
//! A change that can be taken back is [`Driver::commit`]ted: it is stored, or it has not happened.
//! What is a fact already, a machine that has ended, is published whether it could be stored or not;
//! the intent, or the machine itself, tells the next daemon.

use super::{Driver, Keep};
use crate::lifecycle::Request;
use crate::store::SandboxRow;
use jiff::Timestamp;
use motu_core::sandbox::{Paused, PausedBy, State};
use motu_core::{Error, Result};

impl Driver {
    /// Decides about a request and stores the intent. Returns the next state, or `None` if the
    /// sandbox is in it already.
    pub(super) async fn intend(&mut self, request: Request) -> Result<Option<State>> {
        let next = self.decide(request)?;
        if next.is_some() {
            let before = std::mem::replace(&mut self.row.intent, request.intent());
            if self.keep == Keep::Stored
                && let Err(error) = self.shared.store.intend(&self.row).await
            {
                self.row.intent = before;
                return Err(error);
            }
        }
        Ok(next)
    }

    /// Removes the stored intent after a failed change; the state is unchanged.
    pub(super) async fn give_up(&mut self) {
        self.row.intent = None;
        if self.keep == Keep::Stored
            && let Err(error) = self.shared.store.intend(&self.row).await
        {
            tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not clear the intent of a failed change in the store");
        }
    }

    /// Publishes a state that is not stored.
    pub(super) fn show(&mut self, next: State) {
        let active = self.last_active();
        turn(&mut self.row, next, active);
        self.status.send_replace(self.row.sandbox.clone());
    }

    /// Changes the row, stores it, then publishes it. What could not be stored has not happened: row
    /// and state are what they were, and the caller takes back what it has done to the machine.
    pub(super) async fn commit(
        &mut self,
        next: State,
        change: impl FnOnce(&mut SandboxRow),
    ) -> Result<()> {
        let mut row = self.row.clone();
        row.intent = None;
        change(&mut row);
        turn(&mut row, next, self.last_active());
        if let Err(error) = self.write(&mut row).await {
            // There may be a record of this revision.
            self.row.revision = row.revision;
            return Err(error);
        }
        self.row = row;
        self.unsaved = false;
        self.status.send_replace(self.row.sandbox.clone());
        Ok(())
    }

    /// A state that a machine is in already, and that the stored intent leads to after a restart too:
    /// that it could not be stored changes nothing for anybody.
    pub(super) async fn settle(&mut self, next: State) {
        if let Err(error) = self.become_state(next).await {
            self.not_stored(&error);
        }
    }

    /// Stores and publishes a state that is a fact, whether it could be stored or not.
    pub(super) async fn become_state(&mut self, next: State) -> Result<()> {
        self.row.intent = None;
        let active = self.last_active();
        turn(&mut self.row, next, active);
        let mut row = self.row.clone();
        let written = self.write(&mut row).await;
        self.row.revision = row.revision;
        self.unsaved = written.is_err();
        self.status.send_replace(self.row.sandbox.clone());
        written
    }

    pub(super) fn not_stored(&self, error: &Error) {
        let id = &self.row.sandbox.sandbox_id;
        let state = self.row.sandbox.state;
        tracing::warn!(%id, %error, ?state, "the state of a machine could not be stored; the next daemon finds it out");
    }

    async fn write(&self, row: &mut SandboxRow) -> Result<()> {
        match self.keep {
            Keep::Stored => self.shared.persist(row).await,
            Keep::Transient => Ok(()),
        }
    }
}

pub(super) fn paused_now(by: PausedBy) -> Paused {
    let at = Timestamp::now();
    Paused { by, at }
}

fn turn(row: &mut SandboxRow, next: State, last_active: Timestamp) {
    row.sandbox.state = next;
    if next != State::Paused {
        row.sandbox.paused = None;
    }
    row.sandbox.last_activity_at = last_active;
}
