//! Filling a state directory from a backup, so that a kill at any moment costs nothing.
//!
//! ```text
//!   restoring/content/     a copy of the backup, compared with its checksums
//!   restoring/plan.json    what goes where; written when the copy is whole and on the disk
//! ```
//!
//! Without a plan nothing was placed: the copy is thrown away. With one, whatever is still in the
//! copy is moved to its place, again and again until nothing is left: each move is a rename that
//! is done or not. The next daemon, restore or rebuild does the one or the other before anything
//! else, so no copy stays behind, and no home is half a backup.

use super::check;
use super::manifest::{Manifest, checksum, things};
use super::parts::{How, Kind, PARTS, Part};
use super::references;
use crate::copy_tree::copy;
use crate::home::Home;
use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, Result, SandboxId, id};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::path::{Path, PathBuf};

const STAGED: &str = "restoring";
const CONTENT: &str = "content";
const PLAN: &str = "plan.json";

/// What a restore brought.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Restored {
    pub sandbox_ids: Vec<SandboxId>,
    /// What was here already and is not the backup's.
    pub stays: Vec<PathBuf>,
}

/// What goes where.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    backup: String,
    restored: Restored,
    /// Paths in the copy and in the state directory, in order.
    moves: Vec<(PathBuf, PathBuf)>,
}

/// Fills an empty state directory from a backup. No daemon may serve it meanwhile. Blocks.
pub fn restore(home: &Home, from: &Path) -> Result<Restored> {
    let manifest = Manifest::read(from)?;
    if let Some(plan) = finish(home)?
        && !manifest.id.is_empty()
        && plan.backup == manifest.id
    {
        return Ok(plan.restored);
    }
    if home.database().exists() || !crate::record::kept(home).is_empty() {
        return Err(not_empty(&format!(
            "{} is not empty: it has a store or workspaces",
            home.path().display()
        )));
    }
    // Before anything is copied.
    plan(home, from, &manifest)?;
    let staged = home.path().join(STAGED);
    match stage(home, from, &manifest, &staged) {
        Ok(plan) => {
            place(home, &staged, &plan)?;
            Ok(plan.restored)
        }
        Err(error) => {
            let _ = std::fs::remove_dir_all(&staged);
            Err(error)
        }
    }
}

/// Finishes a restore that was killed while it put things in place, or undoes one that was killed
/// before. Whoever calls has the state directory for itself. Blocks.
pub fn settle(home: &Home) -> Result<()> {
    finish(home).map(drop)
}

fn finish(home: &Home) -> Result<Option<Plan>> {
    let staged = home.path().join(STAGED);
    if staged.symlink_metadata().is_err() {
        return Ok(None);
    }
    let plan = match std::fs::read(staged.join(PLAN)) {
        Ok(text) => serde_json::from_slice::<Plan>(&text)
            .map_err(|error| Error::internal(format!("{STAGED}/{PLAN}: {error}")))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            tracing::warn!("removing the copy of a restore that had not begun to place anything");
            discard(home, &staged)?;
            return Ok(None);
        }
        Err(error) => return Err(Error::io("finish a restore", &error)),
    };
    tracing::info!(moves = plan.moves.len(), "placing what is restored");
    place(home, &staged, &plan)?;
    Ok(Some(plan))
}

/// Copies a backup beside its place, checks the copy, and writes down what goes where.
fn stage(home: &Home, from: &Path, manifest: &Manifest, staged: &Path) -> Result<Plan> {
    super::make_private(staged)?;
    let content = staged.join(CONTENT);
    copy(from, &content)?;
    let found = match manifest.items.is_empty() {
        true => check::Verified::default(),
        false => check::compare(manifest, &content),
    };
    if let Some(first) = found.problems.first() {
        let more = found.problems.len();
        return Err(Error::conflict(format!(
            "the backup is damaged in {more} places: {}: {}",
            first.path.display(),
            first.what
        ))
        .hint(hint![
            host("motu backup --verify ".to_string() + &from.display().to_string()),
            " names all of them; nothing was restored",
        ]));
    }
    let plan = plan(home, &content, manifest)?;
    let failed = |error| Error::io("restore", &error);
    let dir = File::open(&content).map_err(failed)?;
    rustix::fs::syncfs(&dir).map_err(|errno| failed(errno.into()))?;
    let text =
        serde_json::to_vec(&plan).map_err(|error| Error::internal(format!("restore: {error}")))?;
    crate::lost::write(staged, PLAN, &text).map_err(failed)?;
    Ok(plan)
}

/// Decides where each thing of a backup goes. What is here already and is another thing is a
/// conflict: in its place the backup would be used with it.
fn plan(home: &Home, content: &Path, manifest: &Manifest) -> Result<Plan> {
    let begun = ["audit", "audit.key"]
        .iter()
        .any(|name| home.path().join(name).exists());
    let (mut moves, mut stays) = (Vec::new(), Vec::new());
    for (part, path) in things(content) {
        let to = match begun && is_audit(&path) {
            // A log goes on with its own key: the one of the backup is put beside it.
            true => PathBuf::from(format!("{}.restored", path.display())),
            false => path.clone(),
        };
        if home.path().join(&to).symlink_metadata().is_err() {
            moves.push((path, to));
        } else if part.kind == Kind::Configuration {
            if !is_same(part, content, home.path(), &path)? {
                stays.push(to);
            }
        } else if to != path || !is_same(part, content, home.path(), &path)? {
            return Err(not_empty(&format!(
                "{} is here already, and is not what the backup has",
                home.path().join(&to).display()
            )));
        }
    }
    Ok(Plan {
        backup: manifest.id.clone(),
        restored: Restored {
            sandbox_ids: manifest.workspaces.clone(),
            stays,
        },
        moves,
    })
}

fn is_audit(path: &Path) -> bool {
    path == Path::new("audit") || path == Path::new("audit.key")
}

fn is_same(part: Part, content: &Path, home: &Path, path: &Path) -> Result<bool> {
    let (theirs, ours) = (content.join(path), home.join(path));
    match part.kind {
        // Its name says what is in it.
        Kind::Environment => Ok(true),
        Kind::EnvironmentName => {
            let digest = |path: &Path| Some(references::json(path)?["digest"].clone());
            Ok(digest(&theirs) == digest(&ours))
        }
        _ => Ok(checksum(&theirs)?.0 == checksum(&ours)?.0),
    }
}

fn not_empty(message: &str) -> Error {
    Error::conflict(message).hint(hint![
        "restore into a new state directory: ",
        host("motu --home NEW restore BACKUP")
    ])
}

/// Moves what is still in the copy to its place, and then removes the copy.
fn place(home: &Home, staged: &Path, plan: &Plan) -> Result<()> {
    let content = staged.join(CONTENT);
    for part in PARTS.iter().filter(|part| part.how == How::Each) {
        if content.join(part.path).is_dir() {
            super::make_private(&home.path().join(part.path))?;
        }
    }
    for (from, to) in &plan.moves {
        let (source, target) = (content.join(from), home.path().join(to));
        if source.symlink_metadata().is_err() || target.symlink_metadata().is_ok() {
            continue;
        }
        rename(&source, &target)?;
    }
    let failed = |error| Error::io("restore", &error);
    let dir = File::open(home.path()).map_err(failed)?;
    rustix::fs::syncfs(&dir).map_err(|errno| failed(errno.into()))?;
    discard(home, staged)
}

/// Moves a thing; to another file system (environments may be shared) under another name first.
fn rename(from: &Path, to: &Path) -> Result<()> {
    let failed = |error| Error::io(format_args!("put {} in place", to.display()), &error);
    match std::fs::rename(from, to) {
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
            let mut beside = to.as_os_str().to_os_string();
            beside.push(format!(".{}.new", id::random_name(8)));
            copy(from, Path::new(&beside))?;
            std::fs::rename(&beside, to).map_err(failed)
        }
        other => other.map_err(failed),
    }
}

/// Removes the copy: at once out of sight, so that half of it is never taken for one.
fn discard(home: &Home, staged: &Path) -> Result<()> {
    let trash = home.path().join("trash");
    super::make_private(&trash)?;
    let gone = trash.join(format!("{STAGED}-{}", id::random_name(8)));
    let failed = |error| Error::io("remove the copy of a restore", &error);
    std::fs::rename(staged, &gone).map_err(failed)?;
    std::fs::remove_dir_all(&gone).map_err(failed)
}

#[cfg(test)]
mod tests;
