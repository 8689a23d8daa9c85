//! Forgets sessions that ended long ago.
//!
//! An ended session stays known with its files. Whenever a session is opened or terminated, and
//! when a daemon starts, the oldest ended ones beyond `terminals_kept` are forgotten, in the
//! background.

use super::Terminals;
use super::owner::{Freshness, Owner};
use super::table::{Entry, Sessions};
use crate::driver::Shared;
use motu_core::Result;
use motu_core::terminal::TerminalId;
use std::sync::Arc;

impl Terminals {
    pub(super) fn forget_sessions(&self) {
        let kept = self.sandboxes.config.terminal.kept;
        if self.sessions.too_old(kept).is_empty() {
            return;
        }
        let (sessions, shared) = (self.sessions.clone(), self.sandboxes.shared.clone());
        tokio::spawn(async move {
            let _one_at_a_time = sessions.forgetting.lock().await;
            for (id, entry) in sessions.too_old(kept) {
                if let Err(error) = forget(&sessions, &shared, &id, &entry).await {
                    tracing::warn!(%error, session = %id, "cannot forget a session");
                }
            }
        });
    }
}

/// Forgets one session, unless it is being opened or ended right now.
async fn forget(
    sessions: &Sessions,
    shared: &Shared,
    id: &TerminalId,
    entry: &Arc<Entry>,
) -> Result<()> {
    let Ok(turn) = entry.turn.try_lock() else {
        return Ok(());
    };
    let Some(known) = entry.known().filter(|known| !known.is_alive()) else {
        return Ok(());
    };
    let forgotten = let_go(shared, id, entry).await;
    if forgotten.is_err() {
        entry.set(known, None);
    }
    drop(turn);
    sessions.leave(id, entry);
    forgotten
}

/// Deletes an ended session and its files. The caller holds its turn.
pub(super) async fn let_go(shared: &Shared, id: &TerminalId, entry: &Arc<Entry>) -> Result<()> {
    let known = entry.known();
    // From here on the session is not found; its name is free once its files are gone.
    if let Some(handle) = entry.forget() {
        // Let pending output be written first: a later write would recreate the files.
        if let Ok(Some(pen)) = handle.ask(Freshness::Any, Owner::forget).await {
            pen.reached().await;
        }
        handle.gone().await;
    }
    // The row is deleted last: after a crash the next daemon still knows the session and forgets
    // it.
    shared.trash.discard(&shared.home.terminal(id))?;
    match known {
        Some(known) => known.remove(&shared.store, id).await,
        None => shared.store.delete_terminal(id).await,
    }
}
