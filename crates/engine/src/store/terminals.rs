//! Rows of terminal sessions.

use super::Store;
use super::json::to_json;
use super::reading::parsed;
use jiff::Timestamp;
use motu_core::exec::TtySize;
use motu_core::terminal::TerminalId;
use motu_core::{Isolation, Result, SandboxId};
use rusqlite::params;
use serde::{Deserialize, Serialize};

/// One stored session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TerminalRow {
    pub session_id: TerminalId,
    pub sandbox_id: SandboxId,
    pub runtime: String,
    pub isolation: Isolation,
    pub command: Vec<String>,
    /// The newest shell; `None` once it is known to be gone.
    pub shell: Option<TerminalShell>,
    pub size: TtySize,
    pub started_at: Timestamp,
    /// For a workspace's shell: the directory it was opened in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub opened_in: Option<String>,
    pub description: Option<String>,
    pub prompt_regex: Option<String>,
    pub quiescence_ms: u64,
    /// Set when the shell has ended.
    pub end: Option<TerminalEnd>,
    /// The session was terminated for good.
    pub terminated: bool,
}

/// A shell in its machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TerminalShell {
    /// The tag of its process in the guest.
    pub tag: String,
    /// The word that signs its marks; `None` for a program without marks.
    pub nonce: Option<String>,
}

/// How a shell ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TerminalEnd {
    pub reason: String,
    pub exit_code: Option<i32>,
    pub at: Timestamp,
    /// The stream position of the end.
    pub cursor: u64,
    pub cwd: Option<String>,
}

impl TerminalRow {
    /// Whether the shell still runs, as far as is known.
    pub fn is_alive(&self) -> bool {
        self.end.is_none() && !self.terminated
    }
}

impl Store {
    /// Stores a session, before anything is done about it.
    pub async fn put_terminal(&self, row: &TerminalRow) -> Result<()> {
        let (key, json) = (row.session_id.to_string(), to_json(row)?);
        self.with("terminal", move |transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO terminals VALUES (?1, ?2)",
                params![key, json],
            )?;
            Ok(())
        })
        .await
    }

    pub async fn delete_terminal(&self, id: &TerminalId) -> Result<()> {
        let key = id.to_string();
        self.with("terminal", move |transaction| {
            transaction.execute("DELETE FROM terminals WHERE session_id = ?1", params![key])?;
            Ok(())
        })
        .await
    }

    /// The sessions that are shells of a workspace.
    pub async fn shells(&self, id: &SandboxId) -> Result<Vec<TerminalRow>> {
        let key = id.to_string();
        self.with("shells", move |transaction| {
            // SQLite refuses the whole query for one row that is no JSON.
            let mut query = transaction.prepare_cached(
                "SELECT terminal, rowid AS rowid_of_it FROM terminals
                 WHERE CASE WHEN json_valid(terminal)
                 THEN json_extract(terminal, '$.sandbox_id') = ?1
                 AND json_extract(terminal, '$.opened_in') IS NOT NULL END",
            )?;
            transaction.each("terminals", query.query(params![key])?, |row| {
                parsed(row, 0)
            })
        })
        .await
    }

    pub async fn terminals(&self) -> Result<Vec<TerminalRow>> {
        self.with("terminals", |transaction| {
            let query = "SELECT terminal, rowid AS rowid_of_it FROM terminals";
            let mut query = transaction.prepare_cached(query)?;
            transaction.each("terminals", query.query([])?, |row| parsed(row, 0))
        })
        .await
    }
}
