//! Records of kept sandboxes and workspaces, stored beside their disks.
//!
//! ```text
//!   kept/ID/sandbox.json     the sandbox's row
//!   kept/ID/workspace.json   the workspace's row and its sealed secrets
//! ```
//!
//! A record is on disk before anything is acknowledged, and its paths are relative to the state
//! directory. With the records a store that is lost, or has lost its latest changes, is rebuilt.

use crate::found::{Says, Witness};
use crate::home::Home;
use crate::lost;
use crate::store::{SandboxRow, WorkspaceRecord};
use motu_core::{Error, Result, SandboxId};
use serde::{Deserialize, Serialize};
use std::path::Path;

const SANDBOX: &str = "sandbox.json";
const WORKSPACE: &str = "workspace.json";
const VERSION: u32 = 1;

/// The contents of a record's file.
#[derive(Debug, Serialize, Deserialize)]
struct Versioned<T> {
    version: u32,
    #[serde(flatten)]
    record: T,
}

/// The result of reading a record.
#[derive(Clone, Debug, PartialEq)]
pub enum Found<T> {
    None,
    Unreadable(String),
    Record(T),
}

impl<T> Found<T> {
    pub fn into_record(self) -> Option<T> {
        match self {
            Found::Record(record) => Some(record),
            Found::None | Found::Unreadable(_) => None,
        }
    }
}

impl Found<SandboxRow> {
    pub fn witness(&self) -> Witness {
        match self {
            Found::None => Witness::Silent,
            Found::Unreadable(_) => Witness::Unreadable,
            Found::Record(row) => Witness::Says(says(row)),
        }
    }
}

/// The facts a row states, for [`crate::found`].
pub fn says(row: &SandboxRow) -> Says {
    Says {
        state: row.sandbox.state,
        created_at: row.sandbox.created_at,
        revision: row.revision,
    }
}

/// Writes a kept sandbox's record. Blocks.
pub fn write_sandbox(home: &Home, row: &SandboxRow) -> Result<()> {
    let record = row.to_json(&home.base())?;
    write(&home.kept(&row.sandbox.sandbox_id), SANDBOX, record)
}

/// Writes a workspace's record. Blocks.
pub fn write_workspace(home: &Home, record: &WorkspaceRecord) -> Result<()> {
    write(
        &home.kept(&record.workspace.workspace_id),
        WORKSPACE,
        record,
    )
}

fn write(dir: &Path, name: &str, record: impl Serialize) -> Result<()> {
    let version = VERSION;
    let text = serde_json::to_vec(&Versioned { version, record })
        .map_err(|error| Error::internal(format!("{name}: {error}")))?;
    lost::write(dir, name, &text)
        .map_err(|error| Error::io(format_args!("write {name} beside the disks"), &error))
}

/// Reads a sandbox's record from a directory: its own, or one in `lost/`.
pub fn read_sandbox(home: &Home, dir: &Path) -> Found<SandboxRow> {
    match read::<serde_json::Value>(dir, SANDBOX) {
        Found::Record(value) => match SandboxRow::from_json(value, &home.base()) {
            Ok(row) => Found::Record(row),
            Err(error) => Found::Unreadable(error.message),
        },
        Found::None => Found::None,
        Found::Unreadable(reason) => Found::Unreadable(reason),
    }
}

pub fn read_workspace(dir: &Path) -> Found<WorkspaceRecord> {
    read(dir, WORKSPACE)
}

fn read<T: serde::de::DeserializeOwned>(dir: &Path, name: &str) -> Found<T> {
    let text = match std::fs::read(dir.join(name)) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Found::None,
        Err(error) => return Found::Unreadable(format!("{name}: {error}")),
    };
    match serde_json::from_slice::<Versioned<T>>(&text) {
        Ok(found) if found.version == VERSION => Found::Record(found.record),
        Ok(found) => Found::Unreadable(format!("{name} has version {}", found.version)),
        Err(error) => Found::Unreadable(format!("{name}: {error}")),
    }
}

/// Names in `kept/` that are ids, with their directories.
pub fn kept(home: &Home) -> Vec<(SandboxId, std::path::PathBuf)> {
    let dir = home.path().join("kept");
    let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<_> = found
        .filter_map(|entry| {
            let id = SandboxId::parse(entry.file_name().to_str()?).ok()?;
            Some((id, entry.path()))
        })
        .collect();
    all.sort();
    all
}

/// Whether a kept directory holds no data: no disks, no snapshots, no sandbox record. A workspace's
/// record alone was left by a create that got no further.
pub fn is_empty(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().all(|entry| {
        let name = entry.file_name();
        let record = name
            .to_string_lossy()
            .trim_start_matches('.')
            .starts_with(WORKSPACE);
        record || has_no_files(&entry.path())
    })
}

/// Whether a tree has nothing but directories.
pub fn has_no_files(dir: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return false;
    };
    entries.flatten().all(|entry| {
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_dir && has_no_files(&entry.path())
    })
}
