//! Rows of the store.

use super::ages::nanoseconds;
use super::json::{damaged, damaged_json, to_json};
use super::reading::{lossy, misunderstood, parsed};
use super::{Store, WorkspaceRecord};
use crate::launch::Launch;
use crate::lifecycle::Intent;
use crate::paths::{Base, LAUNCH, MACHINE};
use motu_core::runtime::Machine;
use motu_core::sandbox::{Sandbox, State};
use motu_core::{Error, Result, SandboxId};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Number of destroyed sandboxes that are remembered.
const TOMBSTONES: u32 = 1000;

/// One stored sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxRow {
    pub sandbox: Sandbox,
    /// The change that is being made to its machine.
    pub intent: Option<Intent>,
    pub machine: Option<Machine>,
    /// What its machine is made from, while it may be needed again.
    pub launch: Option<Launch>,
    /// Incremented by each change.
    pub revision: u64,
}

/// A row, or an error if it cannot be parsed.
#[derive(Clone, Debug, PartialEq)]
pub enum Stored {
    Row(Box<SandboxRow>),
    Unreadable { id: String, error: Error },
}

/// A row as it is stored: paths are relative to the state directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RowJson {
    sandbox: Intended,
    machine: Option<Value>,
    launch: Option<Value>,
    revision: u64,
}

/// A sandbox with its intent, which is not part of the API.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Intended {
    #[serde(flatten)]
    sandbox: Sandbox,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    intent: Option<Intent>,
}

impl SandboxRow {
    pub fn to_json(&self, base: &Base) -> Result<RowJson> {
        let value = |value: serde_json::Result<Value>, fields| {
            let value = value.map_err(|error| Error::internal(format!("store: {error}")))?;
            Ok::<Value, Error>(base.stored(value, fields))
        };
        let machine = self.machine.as_ref().map(serde_json::to_value);
        let launch = self.launch.as_ref().map(serde_json::to_value);
        Ok(RowJson {
            sandbox: Intended {
                sandbox: self.sandbox.clone(),
                intent: self.intent,
            },
            machine: machine.map(|json| value(json, MACHINE)).transpose()?,
            launch: launch.map(|json| value(json, LAUNCH)).transpose()?,
            revision: self.revision,
        })
    }

    pub fn from_json(json: Value, base: &Base) -> Result<SandboxRow> {
        let json: RowJson = from_value(json)?;
        let machine = json.machine.map(|value| base.loaded(value, MACHINE));
        let launch = json.launch.map(|value| base.loaded(value, LAUNCH));
        Ok(SandboxRow {
            sandbox: json.sandbox.sandbox,
            intent: json.sandbox.intent,
            machine: machine.map(from_value).transpose()?,
            launch: launch.map(from_value).transpose()?,
            revision: json.revision,
        })
    }

    /// The seeded baseline of the sandbox, which is removed with its last user.
    pub fn baseline(&self) -> Option<String> {
        let kept = self.launch.as_ref()?.kept.as_ref()?;
        crate::kept::seeded(&kept.baseline)
    }
}

impl Store {
    /// Inserts a sandbox before anything is made for it; an id in use is a conflict.
    pub async fn insert(&self, row: &SandboxRow) -> Result<()> {
        let (sandbox, machine, launch, _) = self.encode(row)?;
        let key = row.sandbox.sandbox_id.to_string();
        let (state, runtime) = (row.sandbox.state.as_str(), row.sandbox.runtime.clone());
        let (baseline, revision) = (row.baseline(), row.revision as i64);
        let (age, owner) = (
            nanoseconds(row.sandbox.created_at),
            row.sandbox.owner.clone(),
        );
        let inserted = self.transact("insert", durability(row), move |transaction| {
            if let Some(baseline) = baseline
                && !super::baselines::refer(transaction, &baseline, &key)?
            {
                return Ok(false);
            }
            // A tombstone does not reserve its name.
            transaction.execute(
                "DELETE FROM sandboxes WHERE sandbox_id = ?1 AND state = 'destroyed'",
                params![key],
            )?;
            transaction.execute(
                "INSERT INTO sandboxes VALUES (?1, ?2, ?3, ?4, ?5, unixepoch(), ?6, ?7, ?8, ?9)",
                params![
                    key, state, runtime, sandbox, machine, launch, revision, age, owner
                ],
            )?;
            Ok(true)
        });
        match inserted.await? {
            true => Ok(()),
            false => Err(Error::conflict(
                "the workspace whose files it was to begin with was deleted meanwhile",
            )),
        }
    }

    /// Stores a sandbox's new state.
    pub async fn update(&self, row: &SandboxRow) -> Result<()> {
        let (sandbox, machine, launch, _) = self.encode(row)?;
        let key = row.sandbox.sandbox_id.to_string();
        let (state, revision) = (row.sandbox.state, row.revision as i64);
        let now = row.sandbox.clone();
        self.transact("update", durability(row), move |transaction| {
            // What it is from now on is written over whatever is there.
            let was: Option<String> = transaction
                .prepare_cached("SELECT state FROM sandboxes WHERE sandbox_id = ?1")?
                .query_row(params![key], |row| Ok(lossy(row, 0)))
                .optional()?;
            if let Some(was) = was {
                super::events::changed(transaction, &was, &now)?;
            }
            transaction.execute(
                "UPDATE sandboxes SET state = ?2, sandbox = ?3, machine = ?4, launch = ?5, updated_unix = unixepoch(), revision = ?6 WHERE sandbox_id = ?1",
                params![key, state.as_str(), sandbox, machine, launch, revision],
            )?;
            if state == State::Destroyed {
                transaction.execute(
                    "DELETE FROM sandboxes WHERE state = 'destroyed' AND sandbox_id NOT IN
                     (SELECT sandbox_id FROM sandboxes WHERE state = 'destroyed' ORDER BY updated_unix DESC LIMIT ?1)",
                    params![TOMBSTONES],
                )?;
            }
            Ok(())
        })
        .await
    }

    /// Stores or clears an intent. It survives a crash of the daemon; a power cut would end the
    /// machine too.
    pub async fn intend(&self, row: &SandboxRow) -> Result<()> {
        let (sandbox, _, _, _) = self.encode(row)?;
        let key = row.sandbox.sandbox_id.to_string();
        self.with("intend", move |transaction| {
            transaction.execute(
                "UPDATE sandboxes SET sandbox = ?2 WHERE sandbox_id = ?1",
                params![key, sandbox],
            )?;
            Ok(())
        })
        .await
    }

    /// Deletes a sandbox whose creation failed.
    pub async fn delete(&self, id: &SandboxId) -> Result<()> {
        let key = id.to_string();
        self.with("delete", move |transaction| {
            transaction.execute("DELETE FROM sandboxes WHERE sandbox_id = ?1", params![key])?;
            Ok(())
        })
        .await
    }

    /// The remembered sandbox of that name.
    pub async fn get(&self, id: &SandboxId) -> Result<Option<SandboxRow>> {
        let (key, base) = (id.to_string(), self.base.clone());
        let found = self.with("get", move |transaction| {
            let mut query = transaction.prepare_cached(
                "SELECT sandbox_id, sandbox, machine, launch, revision
                 FROM sandboxes WHERE sandbox_id = ?1",
            )?;
            let mut rows = query.query(params![key])?;
            Ok(rows.next()?.map(|row| decode(&base, row)))
        });
        found.await?.transpose().map_err(|error| damaged(&error))
    }

    /// All stored sandboxes, tombstones included. A row that cannot be parsed is returned as an
    /// error.
    pub async fn all(&self) -> Result<Vec<Stored>> {
        let base = self.base.clone();
        self.with("list", move |transaction| {
            let mut query = transaction.prepare(
                "SELECT sandbox_id, sandbox, machine, launch, revision, rowid AS rowid_of_it
                 FROM sandboxes",
            )?;
            let mut rows = query.query([])?;
            let (mut all, mut spoiled) = (Vec::new(), Vec::new());
            while let Some(row) = rows.next()? {
                all.push(match decode(&base, row) {
                    Ok(found) => Stored::Row(Box::new(found)),
                    Err(error) => {
                        spoiled.extend(transaction.set_aside("sandboxes", row, &error));
                        Stored::Unreadable {
                            id: lossy(row, 0),
                            error: damaged(&error),
                        }
                    }
                });
            }
            drop(rows);
            transaction.drop_rows("sandboxes", spoiled)?;
            Ok(all)
        })
        .await
    }

    /// Restores the rows of a kept sandbox from the records beside its disks.
    pub async fn restore(
        &self,
        row: &SandboxRow,
        workspace: Option<&WorkspaceRecord>,
    ) -> Result<()> {
        let (sandbox, machine, launch, revision) = self.encode(row)?;
        let key = row.sandbox.sandbox_id.to_string();
        let (state, runtime) = (row.sandbox.state.as_str(), row.sandbox.runtime.clone());
        let (age, owner) = (
            nanoseconds(row.sandbox.created_at),
            row.sandbox.owner.clone(),
        );
        let baseline = row.baseline();
        let workspace = workspace.cloned();
        let json = workspace.as_ref().map(|found| to_json(&found.workspace));
        let json = json.transpose()?;
        self.with_durable("restore", move |transaction| {
            transaction.execute(
                "INSERT OR REPLACE INTO sandboxes VALUES (?1, ?2, ?3, ?4, ?5, unixepoch(), ?6, ?7, ?8, ?9)",
                params![
                    key, state, runtime, sandbox, machine, launch, revision, age, owner
                ],
            )?;
            if let Some(baseline) = baseline {
                transaction.execute(
                    "INSERT OR IGNORE INTO baseline_refs VALUES (?1, ?2)",
                    params![baseline, key],
                )?;
            }
            match (json, workspace) {
                (Some(json), Some(found)) => {
                    super::workspaces::put(transaction, &key, &json, found.secrets)
                }
                _ => Ok(()),
            }
        })
        .await
    }

    fn encode(&self, row: &SandboxRow) -> Result<Columns> {
        let json = row.to_json(&self.base)?;
        let text = |value: Option<Value>| value.map(|value| value.to_string());
        Ok((
            to_json(&json.sandbox)?,
            text(json.machine),
            text(json.launch),
            json.revision as i64,
        ))
    }
}

/// Reads a row of an id, a sandbox, its machine and its launch as JSON, and a revision.
pub(super) fn decode(base: &Base, row: &Row<'_>) -> rusqlite::Result<SandboxRow> {
    let parse = |at: usize| match row.get_ref(at)? {
        ValueRef::Null => Ok(None),
        _ => parsed::<Value>(row, at).map(Some),
    };
    let id: String = row.get(0)?;
    let json = serde_json::json!({
        "sandbox": parse(1)?,
        "machine": parse(2)?,
        "launch": parse(3)?,
        "revision": row.get::<_, i64>(4)?.max(0),
    });
    let found = SandboxRow::from_json(json, base).map_err(|error| misunderstood(1, error))?;
    match found.sandbox.sandbox_id.as_str() == id {
        true => Ok(found),
        // Changes of it would be written nowhere.
        false => Err(misunderstood(
            0,
            Error::internal("it is not the row of its sandbox"),
        )),
    }
}

fn from_value<T: serde::de::DeserializeOwned>(value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| damaged_json(&error))
}

/// Rewrites rows of earlier versions, which have absolute paths.
pub(super) fn make_relative(connection: &mut Connection, base: &Base) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    let mut rows: Vec<(String, Option<String>, Option<String>)> = Vec::new();
    {
        let mut query = transaction.prepare("SELECT sandbox_id, machine, launch FROM sandboxes")?;
        let found = query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        rows.extend(found.filter_map(rusqlite::Result::ok));
    }
    for (id, machine, launch) in rows {
        for (column, text, fields) in [("machine", machine, MACHINE), ("launch", launch, LAUNCH)] {
            let Some(Ok(value)) = text.as_deref().map(serde_json::from_str::<Value>) else {
                continue;
            };
            let stored = base.stored(value.clone(), fields);
            if stored != value {
                let update = format!("UPDATE sandboxes SET {column} = ?2 WHERE sandbox_id = ?1");
                transaction.execute(&update, params![id, stored.to_string()])?;
            }
        }
    }
    transaction.commit()
}

/// A sandbox, its machine and its launch, as JSON; the row's revision.
type Columns = (String, Option<String>, Option<String>, i64);

/// Rows of kept sandboxes must survive a power cut.
fn durability(row: &SandboxRow) -> super::Durability {
    match row.sandbox.keep {
        true => super::Durability::Host,
        false => super::Durability::Process,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(path: &std::path::Path, id: &str, sandbox: &str, machine: &str) {
        let connection = Connection::open(path).unwrap();
        let insert = "INSERT INTO sandboxes VALUES (?1, 'stopped', 'container', ?2, ?3, 0, NULL, 0, NULL, '')";
        let done = connection.execute(insert, params![id, sandbox, machine]);
        assert_eq!(done, Ok(1));
    }

    #[tokio::test]
    async fn a_row_that_cannot_be_read_costs_itself() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("motu.db");
        let store = Store::open(&path).unwrap();
        raw(&path, "sb-broken", "{\"sandbox_id\": ", "null");
        let all = store.all().await.unwrap();
        assert_eq!(all.len(), 1);
        assert!(matches!(&all[0], Stored::Unreadable { id, .. } if id == "sb-broken"));
    }

    #[tokio::test]
    async fn absolute_paths_of_earlier_versions_become_relative() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("motu.db");
        Store::open(&path).unwrap().close().await;
        let machine = r#"{"dir":"/gone/machines/container/ws-1","record":{"kept":"/gone/kept/ws-1/disks-1"}}"#;
        raw(&path, "ws-1", "{}", machine);
        super::super::not_upgraded(&path);
        Store::open(&path).unwrap().close().await;
        let connection = Connection::open(&path).unwrap();
        let query = "SELECT machine FROM sandboxes";
        let found: String = connection.query_row(query, [], |row| row.get(0)).unwrap();
        let found: Value = serde_json::from_str(&found).unwrap();
        assert_eq!(found["dir"], "machines/container/ws-1");
        assert_eq!(found["record"]["kept"], "kept/ws-1/disks-1");
    }
}
