//! Dormant sandboxes: what a daemon reads of them when it starts, and their rows by id.

use super::Store;
use super::reading::{lossy, parsed};
use super::rows::{SandboxRow, Stored, decode};
use super::workspaces::{WorkspaceRow, other_row};
use crate::dormant::{Dormant, LaunchBrief, SandboxBrief};
use motu_core::sandbox::{Sandbox, State};
use motu_core::workspace::{WorkspaceId, WorkspaceSummary};
use motu_core::{Isolation, Result, SandboxId};
use rusqlite::{Row, params};
use serde::Deserialize;
use std::collections::{BTreeMap, HashSet};

/// What is found beside the store.
#[derive(Debug, Default)]
pub struct Beside {
    /// Ids with kept disks.
    pub kept: HashSet<String>,
    /// Ids with the directory of a machine.
    pub machines: HashSet<String>,
    /// The store has lost nothing: what it says of a stopped sandbox needs no second look.
    pub trusted: bool,
}

/// All sandboxes of a store, as a daemon that starts needs them.
#[derive(Debug, Default)]
pub struct Survey {
    /// Stopped ones that nothing has to be done for.
    pub dormant: Vec<DormantRow>,
    /// All others, but for tombstones of which nothing is left.
    pub rows: Vec<Stored>,
}

/// A dormant sandbox.
#[derive(Debug)]
pub struct DormantRow {
    pub id: SandboxId,
    pub dormant: Dormant,
    /// The seeded baseline it has.
    pub baseline: Option<String>,
}

/// The summary of a workspace, from its sandbox and its own row.
#[derive(Debug, Deserialize)]
struct SummaryBrief {
    environment: String,
    runtime: String,
    isolation: Isolation,
    state: State,
    created_at: jiff::Timestamp,
    last_activity_at: jiff::Timestamp,
    expires_at: Option<jiff::Timestamp>,
}

/// The part of a workspace's row that finds it.
#[derive(Debug, Deserialize)]
pub struct Called {
    pub workspace_id: WorkspaceId,
    pub name: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

impl Store {
    /// Reads all sandboxes. Of dormant ones, only as much as is kept in memory.
    pub async fn survey(&self, beside: Beside) -> Result<Survey> {
        let base = self.base.clone();
        self.with("list", move |transaction| {
            let mut query = transaction.prepare(
                "SELECT sandbox_id, sandbox, machine, launch, revision, rowid AS rowid_of_it, state
                 FROM sandboxes",
            )?;
            let mut rows = query.query([])?;
            let (mut survey, mut spoiled) = (Survey::default(), Vec::new());
            while let Some(row) = rows.next()? {
                let (id, state) = (lossy(row, 0), lossy(row, 6));
                let kept = beside.kept.contains(&id);
                if state == State::Destroyed.as_str() && !kept {
                    continue;
                }
                let quiet = beside.trusted && kept && !beside.machines.contains(&id);
                if quiet
                    && state == State::Stopped.as_str()
                    && let Some(dormant_row) = dormant_row(row, &id)
                {
                    survey.dormant.push(dormant_row);
                    continue;
                }
                survey.rows.push(match decode(&base, row) {
                    Ok(found) => Stored::Row(Box::new(found)),
                    Err(error) => {
                        spoiled.extend(transaction.set_aside("sandboxes", row, &error));
                        Stored::Unreadable {
                            id,
                            error: super::json::damaged(&error),
                        }
                    }
                });
            }
            drop(rows);
            transaction.drop_rows("sandboxes", spoiled)?;
            Ok(survey)
        })
        .await
    }

    /// The stored sandboxes with these ids. One that is not there, or cannot be read, is left out.
    pub async fn sandboxes_of(&self, ids: Vec<SandboxId>) -> Result<Vec<Sandbox>> {
        let base = self.base.clone();
        self.with("list", move |transaction| {
            let mut query = transaction.prepare_cached(
                "SELECT sandbox_id, sandbox, machine, launch, revision
                 FROM sandboxes WHERE sandbox_id = ?1",
            )?;
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                let mut rows = query.query(params![id.as_str()])?;
                if let Some(row) = rows.next()? {
                    let row: rusqlite::Result<SandboxRow> = decode(&base, row);
                    found.extend(row.ok().map(|row| row.sandbox));
                }
            }
            Ok(found)
        })
        .await
    }

    /// Summaries of dormant workspaces. One that is not there, or cannot be read, is left out.
    pub async fn summaries(&self, ids: Vec<WorkspaceId>) -> Result<Vec<WorkspaceSummary>> {
        self.with("list", move |transaction| {
            let mut query = transaction.prepare_cached(
                "SELECT s.sandbox, w.workspace,
                   (SELECT max(sequence) FROM commands WHERE workspace_id = ?1),
                   (SELECT count(*) FROM services WHERE workspace_id = ?1)
                 FROM sandboxes s JOIN workspaces w ON w.workspace_id = s.sandbox_id
                 WHERE s.sandbox_id = ?1",
            )?;
            let mut found = Vec::with_capacity(ids.len());
            for id in ids {
                let mut rows = query.query(params![id.as_str()])?;
                if let Some(row) = rows.next()? {
                    found.extend(summary(row).ok());
                }
            }
            Ok(found)
        })
        .await
    }

    /// What all workspaces are called.
    pub async fn called(&self) -> Result<Vec<Called>> {
        self.with("list", |transaction| {
            let mut query = transaction
                .prepare("SELECT workspace_id, workspace, rowid AS rowid_of_it FROM workspaces")?;
            transaction.each("workspaces", query.query([])?, |row| {
                let (id, called): (String, Called) = (row.get(0)?, parsed(row, 1)?);
                match called.workspace_id.as_str() == id {
                    true => Ok(called),
                    false => Err(other_row()),
                }
            })
        })
        .await
    }

    /// The row of one workspace.
    pub async fn workspace(&self, id: &WorkspaceId) -> Result<Option<WorkspaceRow>> {
        let key = id.to_string();
        self.with("get", move |transaction| {
            let mut query = transaction.prepare_cached(
                "SELECT workspace_id, workspace, rowid AS rowid_of_it FROM workspaces
                 WHERE workspace_id = ?1",
            )?;
            let rows = query.query(params![key])?;
            transaction.one("workspaces", rows, super::workspaces::read)
        })
        .await
    }
}

/// The row of a dormant sandbox, if it is one: all of what is looked at is whole.
fn dormant_row(row: &Row<'_>, id: &str) -> Option<DormantRow> {
    let machine: Option<String> = row.get(2).ok()?;
    let sandbox: SandboxBrief = parsed(row, 1).ok()?;
    let launch: LaunchBrief = parsed(row, 3).ok()?;
    if machine.is_some() || sandbox.sandbox_id != id {
        return None;
    }
    let baseline = crate::kept::seeded(launch.baseline()?);
    Some(DormantRow {
        id: SandboxId::parse(id).ok()?,
        dormant: Dormant::of_brief(sandbox, &launch)?,
        baseline,
    })
}

fn summary(row: &Row<'_>) -> rusqlite::Result<WorkspaceSummary> {
    let sandbox: SummaryBrief = parsed(row, 0)?;
    let called: Called = parsed(row, 1)?;
    let commands: Option<i64> = row.get(2)?;
    let services: i64 = row.get(3)?;
    Ok(WorkspaceSummary {
        workspace_id: called.workspace_id,
        name: called.name,
        labels: called.labels,
        environment: sandbox.environment,
        runtime: sandbox.runtime,
        isolation: sandbox.isolation,
        state: sandbox.state,
        created_at: sandbox.created_at,
        last_activity_at: sandbox.last_activity_at,
        expires_at: sandbox.expires_at,
        command_count: commands.unwrap_or(0).unsigned_abs(),
        service_count: services.unsigned_abs(),
        running_service_count: 0,
    })
}
