//! Letting go of sessions that ended long ago.
//!
//! What has ended stays known with its files, but only so many of them: whenever
//! a session is opened or terminated, and when a daemon begins, the oldest beyond
//! `terminals_kept` are forgotten. Nobody waits for that.

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

/// Forgets one, unless somebody is just opening or ending it.
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

/// Takes away what is kept of a session that has ended. Whoever calls this has its turn.
pub(super) async fn let_go(shared: &Shared, id: &TerminalId, entry: &Arc<Entry>) -> Result<()> {
    // From here on it is not found; the name is free once its files are gone.
    if let Some(handle) = entry.forget() {
        // Its last words are written first, lest they are written afterwards.
        if let Ok(Some(pen)) = handle.ask(Freshness::Any, Owner::forget).await {
            pen.reached().await;
        }
        handle.gone().await;
    }
    // The row goes last: what a crash leaves is still known, and forgotten by the next daemon.
    shared.trash.discard(&shared.home.terminal(id))?;
    shared.store.delete_terminal(id).await
}
