//! Rows of the store.

use super::Store;
use crate::driver::Launch;
use motu_core::runtime::Machine;
use motu_core::sandbox::{Sandbox, State};
use motu_core::{Error, Result, SandboxId};
use rusqlite::params;

/// Destroyed sandboxes that are still remembered by name.
const TOMBSTONES: u32 = 1000;

/// One remembered sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxRow {
    pub sandbox: Sandbox,
    pub machine: Option<Machine>,
    /// What its machine is made from, while that may be needed again.
    pub launch: Option<Launch>,
}

impl SandboxRow {
    /// The baseline that goes when nobody needs it, if the sandbox has one.
    pub fn baseline(&self) -> Option<String> {
        let kept = self.launch.as_ref()?.kept.as_ref()?;
        crate::kept::seeded(&kept.baseline)
    }
}

pub(super) fn to_json<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|error| Error::internal(format!("store: {error}")))
}

impl Store {
    /// Remembers a sandbox before anything is made for it; an id in use is a conflict.
    pub async fn insert(&self, row: &SandboxRow) -> Result<()> {
        let sandbox = to_json(&row.sandbox)?;
        let machine = row.machine.as_ref().map(to_json).transpose()?;
        let launch = row.launch.as_ref().map(to_json).transpose()?;
        let key = row.sandbox.sandbox_id.to_string();
        let (state, runtime) = (row.sandbox.state.as_str(), row.sandbox.runtime.clone());
        let baseline = row.baseline();
        let inserted = self.transact("insert", durability(row), move |transaction| {
            if let Some(baseline) = baseline
                && !super::baselines::refer(transaction, &baseline, &key)?
            {
                return Ok(false);
            }
            // A tombstone does not keep its name.
            transaction.execute(
                "DELETE FROM sandboxes WHERE sandbox_id = ?1 AND state = 'destroyed'",
                params![key],
            )?;
            transaction.execute(
                "INSERT INTO sandboxes VALUES (?1, ?2, ?3, ?4, ?5, unixepoch(), ?6)",
                params![key, state, runtime, sandbox, machine, launch],
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

    /// Writes a sandbox's new state.
    pub async fn update(&self, row: &SandboxRow) -> Result<()> {
        let sandbox = to_json(&row.sandbox)?;
        let machine = row.machine.as_ref().map(to_json).transpose()?;
        let launch = row.launch.as_ref().map(to_json).transpose()?;
        let key = row.sandbox.sandbox_id.to_string();
        let state = row.sandbox.state;
        self.transact("update", durability(row), move |transaction| {
            transaction.execute(
                "UPDATE sandboxes SET state = ?2, sandbox = ?3, machine = ?4, launch = ?5, updated_unix = unixepoch() WHERE sandbox_id = ?1",
                params![key, state.as_str(), sandbox, machine, launch],
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

    /// Forgets a sandbox that never came to be.
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
        let key = id.to_string();
        let found = self
            .with("get", move |transaction| {
                let mut query = transaction.prepare_cached(
                    "SELECT sandbox, machine, launch FROM sandboxes WHERE sandbox_id = ?1",
                )?;
                let mut rows = query.query(params![key])?;
                rows.next()?
                    .map(|row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
                    .transpose()
            })
            .await?;
        found.map(decode).transpose()
    }

    /// Every remembered sandbox, tombstones included.
    pub async fn all(&self) -> Result<Vec<SandboxRow>> {
        let rows: Vec<Columns> = self
            .with("list", |transaction| {
                let mut query =
                    transaction.prepare("SELECT sandbox, machine, launch FROM sandboxes")?;
                let rows =
                    query.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
                rows.collect()
            })
            .await?;
        rows.into_iter().map(decode).collect()
    }
}

/// A sandbox, its machine and its launch, as JSON.
type Columns = (String, Option<String>, Option<String>);

fn decode((sandbox, machine, launch): Columns) -> Result<SandboxRow> {
    Ok(SandboxRow {
        sandbox: from_json(&sandbox)?,
        machine: machine.as_deref().map(from_json).transpose()?,
        launch: launch.as_deref().map(from_json).transpose()?,
    })
}

pub(super) fn from_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text)
        .map_err(|error| Error::internal(format!("store: a row is damaged: {error}")))
}

/// A kept sandbox outlives the host's own restarts.
fn durability(row: &SandboxRow) -> super::Durability {
    match row.sandbox.keep {
        true => super::Durability::Host,
        false => super::Durability::Process,
    }
}
