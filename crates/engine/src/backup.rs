//! A copy of a whole state directory, made while machines run.
//!
//! ```text
//!   OUTPUT/
//!     backup.json     what this is; written last
//!     motu.db         the store, as of the beginning
//!     kept/ID/        disks, snapshots and records, each as of the moment it was copied
//!     baselines/ environments/ terminals/ policies/ saved/ secrets/ audit/
//!     config.toml secrets.key audit.key
//! ```
//!
//! A machine that runs is paused while its disks are copied, after everything it has written is
//! in them. The store is copied first: where a record beside the disks is newer than a row, the
//! record counts. Everything is staged under another name beside the output and renamed when it
//! is whole, so nothing that has the name is half a backup.

use crate::blocking::blocking;
use crate::copy_tree::copy;
use crate::engine::Engine;
use crate::home::Home;
use crate::store::{Store, Stored};
use jiff::Timestamp;
use motu_core::hint;
use motu_core::hint::host;
use motu_core::report::Backup;
use motu_core::{Error, Result, SandboxId, id};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

const MANIFEST: &str = "backup.json";
const VERSION: u32 = 1;
/// Files and directories that are copied unchanged if they exist.
const PLAIN: [&str; 7] = [
    "config.toml",
    "secrets.key",
    "audit.key",
    "terminals",
    "policies",
    "saved",
    "secrets",
];

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    motu: String,
    made_at: Timestamp,
    workspaces: Vec<SandboxId>,
}

/// What the copied sandboxes need besides their disks: baselines, roots and environments.
#[derive(Debug, Default)]
struct Needs {
    copied: Vec<SandboxId>,
    baselines: BTreeSet<PathBuf>,
    roots: BTreeSet<PathBuf>,
    digests: BTreeSet<String>,
}

impl Engine {
    pub(crate) async fn back_up(&self, output: &str) -> Result<Backup> {
        let path = PathBuf::from(output);
        self.check_output(&path)?;
        let parent = path.parent().unwrap_or(Path::new("/"));
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let staged = parent.join(format!(".{name}.motu-{}", id::random_name(12)));
        make_private(&staged)?;
        // A made-up sandbox id holds references to the baselines, so none is removed while it is
        // copied.
        let holder = SandboxId::parse(&format!("backup-{}", id::random_name(12)))?;
        let filled = self.fill(&staged, &holder).await;
        self.release(&holder).await?;
        let finished = match filled {
            Ok(copied) => finish(&staged, &path).map(|()| copied),
            Err(error) => Err(error),
        };
        match finished {
            Ok(sandbox_ids) => Ok(Backup {
                output_path: output.to_string(),
                sandbox_ids,
            }),
            Err(error) => {
                let _ = std::fs::remove_dir_all(&staged);
                Err(error)
            }
        }
    }

    fn check_output(&self, path: &Path) -> Result<()> {
        if !path.is_absolute() || path.file_name().is_none() {
            return Err(Error::invalid("output_path is not an absolute path")
                .hint("the daemon has another working directory than its callers"));
        }
        if path.starts_with(self.sandboxes.shared.home.path()) {
            return Err(Error::invalid(
                "a backup cannot be inside the state directory",
            ));
        }
        let empty = std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
        match path.symlink_metadata() {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Ok(found) if found.is_dir() && empty => Ok(()),
            _ => Err(
                Error::conflict(format!("{} exists already", path.display()))
                    .hint("name a directory that does not exist, or an empty one"),
            ),
        }
    }

    async fn fill(&self, staged: &Path, holder: &SandboxId) -> Result<Vec<SandboxId>> {
        self.sandboxes
            .shared
            .store
            .copy_to(staged.join("motu.db"))
            .await?;
        make_private(&staged.join("kept"))?;
        let mut needs = Needs::default();
        for handle in self.sandboxes.table.all() {
            let sandbox = handle.sandbox();
            if sandbox.keep {
                let to = staged.join("kept").join(sandbox.sandbox_id.as_str());
                self.copy_kept(&sandbox.sandbox_id, to, holder, &mut needs)
                    .await?;
            }
        }
        prune(&staged.join("motu.db"), &needs.copied).await?;
        // Taken only now: starting a workspace waits for this lock while it holds the workspace's
        // turn, which `copy_kept` needs too.
        let _environments_stay = self.sandboxes.environments_in_use.read().await;
        let (home, to) = (self.sandboxes.shared.home.clone(), staged.to_path_buf());
        let audit = self.audit.clone();
        blocking(move || {
            copy_needs(&home, &to, &needs)?;
            audit.copy_to(&to.join("audit"))?;
            let manifest = Manifest {
                version: VERSION,
                motu: env!("CARGO_PKG_VERSION").to_string(),
                made_at: Timestamp::now(),
                workspaces: needs.copied.clone(),
            };
            let text = serde_json::to_vec_pretty(&manifest)
                .map_err(|error| Error::internal(format!("backup: {error}")))?;
            crate::lost::write(&to, MANIFEST, &text)
                .map_err(|error| Error::io("finish the backup", &error))?;
            Ok(needs.copied)
        })
        .await
    }

    /// Copies the kept directory of one sandbox, unless the sandbox has been destroyed meanwhile.
    async fn copy_kept(
        &self,
        id: &SandboxId,
        to: PathBuf,
        holder: &SandboxId,
        needs: &mut Needs,
    ) -> Result<()> {
        let room = self.workspaces.rooms.get(id);
        let _turn = match &room {
            Some(room) => Some(room.wait_turn().await),
            None => None,
        };
        let Some(handle) = self.sandboxes.table.get(id) else {
            return Ok(());
        };
        let launch = match handle.launch().await {
            Ok(launch) => launch,
            Err(_) if self.sandboxes.table.get(id).is_none() => return Ok(()),
            Err(error) => return Err(error),
        };
        let Some(kept) = launch.kept else {
            return Ok(());
        };
        if let Some(baseline) = crate::kept::seeded(&kept.baseline) {
            self.sandboxes
                .shared
                .store
                .lease_baseline(&baseline, holder)
                .await?;
        }
        match handle.copy_disks(to.clone()).await {
            Ok(()) => {}
            Err(_) if self.sandboxes.table.get(id).is_none() => {
                let _ = std::fs::remove_dir_all(&to);
                return Ok(());
            }
            Err(error) => return Err(error),
        }
        needs.copied.push(id.clone());
        needs
            .baselines
            .extend(kept.baseline.parent().map(Path::to_path_buf));
        needs
            .roots
            .extend(launch.root.parent().map(Path::to_path_buf));
        needs.digests.insert(handle.sandbox().digest);
        Ok(())
    }

    async fn release(&self, holder: &SandboxId) -> Result<()> {
        for found in self.sandboxes.shared.store.baseline_refs().await? {
            if found.sandbox.as_ref() == Some(holder) {
                self.sandboxes
                    .shared
                    .release_baseline(&found.baseline, holder)
                    .await?;
            }
        }
        Ok(())
    }
}

/// Deletes the rows of sandboxes whose disks were not copied.
async fn prune(database: &Path, copied: &[SandboxId]) -> Result<()> {
    let store = Store::open(database)?;
    for stored in store.all().await? {
        if let Stored::Row(row) = stored
            && !copied.contains(&row.sandbox.sandbox_id)
        {
            store.forget_workspace(&row.sandbox.sandbox_id).await?;
            store.delete(&row.sandbox.sandbox_id).await?;
        }
    }
    store.checkpoint().await?;
    store.close().await;
    Ok(())
}

fn copy_needs(home: &Home, to: &Path, needs: &Needs) -> Result<()> {
    for name in PLAIN {
        let from = home.path().join(name);
        if from.exists() {
            copy(&from, &to.join(name))?;
        }
    }
    let baselines = to.join("baselines");
    make_private(&baselines)?;
    for from in &needs.baselines {
        copy(from, &baselines.join(from.file_name().unwrap_or_default()))?;
    }
    let environments = to.join("environments");
    for part in ["", "blobs", "names"] {
        make_private(&environments.join(part))?;
    }
    for from in needs.roots.iter().filter(|root| root.exists()) {
        let name = from.file_name().unwrap_or_default();
        copy(from, &environments.join("blobs").join(name))?;
    }
    let names = home.path().join("environments/names");
    for entry in std::fs::read_dir(names).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let digest = |digest: &String| !digest.is_empty() && text.contains(digest.as_str());
        if needs.digests.iter().any(digest) {
            copy(
                &entry.path(),
                &environments.join("names").join(entry.file_name()),
            )?;
        }
    }
    Ok(())
}

/// Syncs the file system before the rename: a directory with the final name is always complete.
fn finish(staged: &Path, output: &Path) -> Result<()> {
    let failed = |error| Error::io("finish the backup", &error);
    let dir = File::open(staged).map_err(failed)?;
    rustix::fs::syncfs(&dir).map_err(|errno| failed(errno.into()))?;
    std::fs::rename(staged, output).map_err(failed)?;
    let parent = output.parent().unwrap_or(Path::new("/"));
    File::open(parent)
        .and_then(|parent| parent.sync_all())
        .map_err(failed)
}

fn make_private(dir: &Path) -> Result<()> {
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .map_err(|error| Error::with_file(format_args!("make {}", dir.display()), &error))
}

/// Fills an empty state directory from a backup. No daemon may serve it meanwhile.
pub fn restore(home: &Home, from: &Path) -> Result<Vec<SandboxId>> {
    let manifest = read_manifest(from)?;
    if home.database().exists() || !crate::record::kept(home).is_empty() {
        return Err(Error::conflict(format!(
            "{} is not empty: it has a store or workspaces",
            home.path().display()
        ))
        .hint(hint![
            "restore into a new state directory: ",
            host("motu --home NEW restore BACKUP")
        ]));
    }
    let staged = home.path().join(format!("restore-{}", id::random_name(12)));
    let placed = copy(from, &staged).and_then(|()| place(home, &staged));
    let _ = std::fs::remove_dir_all(&staged);
    placed.map(|()| manifest.workspaces)
}

fn read_manifest(from: &Path) -> Result<Manifest> {
    let path = from.join(MANIFEST);
    let text = std::fs::read(&path).map_err(|error| {
        Error::not_found(format!("{} is not a backup: {error}", from.display()))
            .hint(hint![host("motu backup DIR"), " makes one"])
    })?;
    let manifest: Manifest = serde_json::from_slice(&text)
        .map_err(|error| Error::invalid(format!("{}: {error}", path.display())))?;
    match manifest.version {
        VERSION => Ok(manifest),
        other => Err(Error::unsupported(format!(
            "the backup has version {other}; this motu knows version {VERSION}"
        ))),
    }
}

/// Moves the copied parts into place, the store last: until it is there, no daemon uses the rest.
fn place(home: &Home, staged: &Path) -> Result<()> {
    for part in [
        "environments/blobs",
        "environments/names",
        "baselines",
        "terminals",
        "policies",
        "saved",
        "secrets",
    ] {
        merge(&staged.join(part), &home.path().join(part))?;
    }
    place_audit(home, staged)?;
    for name in ["config.toml", "secrets.key"] {
        let place = home.path().join(name);
        if !place.exists() && staged.join(name).exists() {
            rename(&staged.join(name), &place)?;
        }
    }
    merge(&staged.join("kept"), &home.path().join("kept"))?;
    rename(&staged.join("motu.db"), &home.database())
}

/// Places the audit log together with its key. If this home has a log already, that one continues,
/// and the log of the backup is put beside it as `audit.restored`.
fn place_audit(home: &Home, staged: &Path) -> Result<()> {
    let begun = home.path().join("audit").exists() || home.path().join("audit.key").exists();
    let suffix = if begun { ".restored" } else { "" };
    for name in ["audit", "audit.key"] {
        let from = staged.join(name);
        let to = home.path().join(format!("{name}{suffix}"));
        if from.exists() && !to.exists() {
            rename(&from, &to)?;
        }
    }
    Ok(())
}

/// Moves the entries of one directory to another; existing entries of the same name are kept.
fn merge(from: &Path, to: &Path) -> Result<()> {
    make_private(to)?;
    for entry in std::fs::read_dir(from).into_iter().flatten().flatten() {
        let place = to.join(entry.file_name());
        if place.symlink_metadata().is_err() {
            rename(&entry.path(), &place)?;
        }
    }
    Ok(())
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    std::fs::rename(from, to)
        .map_err(|error| Error::io(format_args!("put {} in place", to.display()), &error))
}
