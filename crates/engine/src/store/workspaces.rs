//! Rows of workspaces and their tables.

use super::Store;
use super::json::to_json;
use super::reading::{misunderstood, parsed};
use jiff::Timestamp;
use motu_core::event::EventKind;
use motu_core::exec::ExecMode;
use motu_core::sandbox::State;
use motu_core::workspace::{
    CommandRecord, NetworkPolicy, SecretEnv, SecretInfo, ServiceStatus, WorkspaceId, WorkspaceSeed,
};
use motu_core::{Error, Result, SandboxId, limits};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// All tables with rows of a workspace.
const TABLES: [&str; 5] = ["workspaces", "secrets", "commands", "services", "shells"];
/// Tables that a reset clears.
const HISTORY: [&str; 3] = ["commands", "services", "shells"];

/// The stored part of a workspace that is not in its sandbox.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceRow {
    pub workspace_id: WorkspaceId,
    pub name: Option<String>,
    pub labels: BTreeMap<String, String>,
    pub network_policy: NetworkPolicy,
    pub seed: WorkspaceSeed,
    pub secrets: Vec<SecretInfo>,
    pub reset_count: u64,
    pub last_reset_at: Option<Timestamp>,
    pub created_at: Timestamp,
    /// Incremented by each change; the record beside its disks has the same number.
    #[serde(default)]
    pub revision: u64,
    /// Save `/workspace` before each command.
    #[serde(default)]
    pub checkpoint: bool,
}

/// A secret as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedSecret {
    pub name: String,
    pub source_kind: String,
    pub sealed: Vec<u8>,
}

/// A stored service; secrets are referred to by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceRow {
    pub status: ServiceStatus,
    /// The tag of its process in the guest.
    pub tag: String,
    pub mode: ExecMode,
    #[serde(default)]
    pub user: Option<String>,
    pub env: BTreeMap<String, String>,
    pub secret_env: Vec<SecretEnv>,
    /// The end of its output, once it has ended.
    pub stdout: String,
    pub stderr: String,
    /// The output was longer than that.
    pub cut: bool,
    /// How long it may take to become ready, and how often that is looked at.
    #[serde(default)]
    pub ready_timeout_seconds: Option<u64>,
    #[serde(default)]
    pub ready_interval_ms: Option<u64>,
}

/// Writes a workspace and its secrets, replacing existing rows.
pub(super) fn put(
    transaction: &Transaction<'_>,
    key: &str,
    workspace: &str,
    secrets: Vec<SealedSecret>,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT OR REPLACE INTO workspaces VALUES (?1, ?2)",
        params![key, workspace],
    )?;
    for secret in secrets {
        transaction.execute(
            "INSERT OR REPLACE INTO secrets VALUES (?1, ?2, ?3, ?4)",
            params![key, secret.name, secret.source_kind, secret.sealed],
        )?;
    }
    Ok(())
}

/// The contents of `workspace.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkspaceRecord {
    pub workspace: WorkspaceRow,
    pub secrets: Vec<SealedSecret>,
}

/// Reads the id of a workspace and its row.
pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<WorkspaceRow> {
    let (id, found): (String, WorkspaceRow) = (row.get(0)?, parsed(row, 1)?);
    match found.workspace_id.as_str() == id {
        true => Ok(found),
        false => Err(other_row()),
    }
}

/// The error of a row that says another id: changes of it would be written nowhere.
pub(super) fn other_row() -> rusqlite::Error {
    misunderstood(0, Error::internal("it is not the row of its workspace"))
}

impl Store {
    /// Stores a workspace and its secrets, before anything is made for it.
    pub async fn insert_workspace(
        &self,
        row: &WorkspaceRow,
        secrets: Vec<SealedSecret>,
    ) -> Result<()> {
        let (key, json) = (row.workspace_id.to_string(), to_json(row)?);
        self.with_durable("insert", move |transaction| {
            transaction.execute("INSERT INTO workspaces VALUES (?1, ?2)", params![key, json])?;
            for secret in secrets {
                transaction.execute(
                    "INSERT INTO secrets VALUES (?1, ?2, ?3, ?4)",
                    params![key, secret.name, secret.source_kind, secret.sealed],
                )?;
            }
            Ok(())
        })
        .await
    }

    /// Restores a workspace's row from the record beside its disks.
    pub async fn put_workspace(&self, record: &WorkspaceRecord) -> Result<()> {
        let key = record.workspace.workspace_id.to_string();
        let (json, secrets) = (to_json(&record.workspace)?, record.secrets.clone());
        self.with_durable("restore", move |transaction| {
            put(transaction, &key, &json, secrets)
        })
        .await
    }

    pub async fn update_workspace(&self, row: &WorkspaceRow) -> Result<()> {
        let (key, json) = (row.workspace_id.to_string(), to_json(row)?);
        self.with_durable("update", move |transaction| {
            transaction.execute(
                "UPDATE workspaces SET workspace = ?2 WHERE workspace_id = ?1",
                params![key, json],
            )?;
            Ok(())
        })
        .await
    }

    /// Stores a workspace after a reset, and clears its history.
    pub async fn reset_workspace(&self, row: &WorkspaceRow) -> Result<()> {
        let (key, json) = (row.workspace_id.to_string(), to_json(row)?);
        self.with_durable("reset", move |transaction| {
            transaction.execute(
                "UPDATE workspaces SET workspace = ?2 WHERE workspace_id = ?1",
                params![key, json],
            )?;
            for table in HISTORY {
                let statement = format!("DELETE FROM {table} WHERE workspace_id = ?1");
                transaction.execute(&statement, params![key])?;
            }
            super::events::of_workspace(transaction, EventKind::WorkspaceReset, &key, None)
        })
        .await
    }

    pub async fn workspaces(&self) -> Result<Vec<WorkspaceRow>> {
        self.with("list", |transaction| {
            let mut query = transaction.prepare_cached(
                "SELECT workspace_id, workspace, rowid AS rowid_of_it FROM workspaces",
            )?;
            transaction.each("workspaces", query.query([])?, read)
        })
        .await
    }

    pub async fn secrets(&self, id: &WorkspaceId) -> Result<Vec<SealedSecret>> {
        let key = id.to_string();
        self.with("secrets", move |transaction| {
            let mut query = transaction.prepare_cached(
                "SELECT name, source_kind, sealed, rowid AS rowid_of_it
                 FROM secrets WHERE workspace_id = ?1 ORDER BY name",
            )?;
            transaction.each("secrets", query.query(params![key])?, |row| {
                Ok(SealedSecret {
                    name: row.get(0)?,
                    source_kind: row.get(1)?,
                    sealed: row.get(2)?,
                })
            })
        })
        .await
    }

    /// Adds a command to the history and numbers it; the oldest are removed.
    pub async fn begin_command(
        &self,
        id: &WorkspaceId,
        mut record: CommandRecord,
    ) -> Result<CommandRecord> {
        let key = id.to_string();
        let keep = limits::HISTORY_COMMANDS.max as i64;
        let sequence: i64 = {
            let key = key.clone();
            self.with("history", move |transaction| {
                let last: Option<i64> = transaction.query_row(
                    "SELECT max(sequence) FROM commands WHERE workspace_id = ?1",
                    params![key],
                    |row| row.get(0),
                )?;
                let next = last.unwrap_or(0) + 1;
                // Reserve the number first; the record, which contains it, is written next.
                transaction.execute(
                    "INSERT INTO commands VALUES (?1, ?2, '')",
                    params![key, next],
                )?;
                transaction.execute(
                    "DELETE FROM commands WHERE workspace_id = ?1 AND sequence <= ?2",
                    params![key, next - keep],
                )?;
                Ok(next)
            })
            .await?
        };
        record.sequence = sequence as u64;
        self.write_command(id, &record).await?;
        Ok(record)
    }

    pub async fn write_command(&self, id: &WorkspaceId, record: &CommandRecord) -> Result<()> {
        let (key, json, sequence) = (id.to_string(), to_json(record)?, record.sequence as i64);
        self.with("history", move |transaction| {
            transaction.execute(
                "UPDATE commands SET command = ?3 WHERE workspace_id = ?1 AND sequence = ?2",
                params![key, sequence, json],
            )?;
            Ok(())
        })
        .await
    }

    /// The history, oldest first.
    pub async fn commands(&self, id: &WorkspaceId) -> Result<Vec<CommandRecord>> {
        self.of_one(
            "commands",
            "SELECT command, rowid AS rowid_of_it FROM commands
             WHERE workspace_id = ?1 AND command <> '' ORDER BY sequence",
            id,
        )
        .await
    }

    /// How many commands a workspace has run since its creation or last reset.
    pub async fn command_count(&self, id: &WorkspaceId) -> Result<u64> {
        let key = id.to_string();
        self.with("history", move |transaction| {
            let last: Option<Option<i64>> = transaction
                .query_row(
                    "SELECT max(sequence) FROM commands WHERE workspace_id = ?1",
                    params![key],
                    |row| row.get(0),
                )
                .optional()?;
            Ok(last.flatten().unwrap_or(0) as u64)
        })
        .await
    }

    /// Stores a service; false if its workspace is gone, and its rows with it.
    pub async fn put_service(&self, service: &ServiceRow) -> Result<bool> {
        let key = service.status.workspace_id.to_string();
        let (name, json) = (service.status.service_name.clone(), to_json(service)?);
        self.with("service", move |transaction| {
            let stored = transaction.execute(
                "INSERT OR REPLACE INTO services SELECT ?1, ?2, ?3
                 WHERE EXISTS (SELECT 1 FROM workspaces WHERE workspace_id = ?1)",
                params![key, name, json],
            )?;
            Ok(stored > 0)
        })
        .await
    }

    pub async fn delete_service(&self, service: &ServiceRow) -> Result<()> {
        let key = service.status.workspace_id.to_string();
        let name = service.status.service_name.clone();
        self.with("service", move |transaction| {
            transaction.execute(
                "DELETE FROM services WHERE workspace_id = ?1 AND name = ?2",
                params![key, name],
            )?;
            Ok(())
        })
        .await
    }

    pub async fn services(&self, id: &WorkspaceId) -> Result<Vec<ServiceRow>> {
        self.of_one(
            "services",
            "SELECT service, rowid AS rowid_of_it FROM services WHERE workspace_id = ?1 ORDER BY name",
            id,
        )
        .await
    }

    /// Deletes all rows of a workspace; no effect for other sandboxes.
    pub async fn forget_workspace(&self, id: &SandboxId) -> Result<()> {
        let key = id.to_string();
        self.with_durable("forget", move |transaction| {
            // One whose creation is undone never was.
            let state = Some(State::Destroying);
            super::events::of_workspace(transaction, EventKind::WorkspaceDeleted, &key, state)?;
            for table in TABLES {
                let statement = format!("DELETE FROM {table} WHERE workspace_id = ?1");
                transaction.execute(&statement, params![key])?;
            }
            Ok(())
        })
        .await
    }

    /// The rows of one workspace in one of its tables, each JSON in the first column.
    async fn of_one<T: DeserializeOwned + Send + 'static>(
        &self,
        table: &'static str,
        query: &'static str,
        id: &WorkspaceId,
    ) -> Result<Vec<T>> {
        let key = id.to_string();
        self.with("list", move |transaction| {
            let mut query = transaction.prepare_cached(query)?;
            transaction.each(table, query.query(params![key])?, |row| parsed(row, 0))
        })
        .await
    }
}
