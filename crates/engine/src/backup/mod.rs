//! A copy of a whole state directory, made while machines run.
//!
//! ```text
//!   OUTPUT/
//!     backup.json     what is in it, with checksums; written last
//!     motu.db         the store, as of the beginning
//!     kept/ID/        disks, snapshots and records, each as of the moment it was copied
//!     environments/ baselines/ templates/ saved/     what the above and each other need
//!     keys/ policies/ secrets/ terminals/ egress/ audit/
//!     config.toml secrets.key audit.key
//! ```
//!
//! What is in it follows from a walk ([`parts`], [`references`]): everything that is kept, what
//! that refers to, and every environment that cannot be pulled again. What is not in it is said.
//!
//! A machine that runs is paused while its disks are copied, after everything it has written is
//! in them. The store is copied first: where a record beside the disks is newer than a row, the
//! record counts. Everything is staged under another name beside the output and renamed when it
//! is whole, so nothing that has the name is half a backup.

mod check;
mod manifest;
mod parts;
mod references;
mod restore;

use crate::blocking::blocking;
use crate::copy_tree::copy;
use crate::engine::Engine;
use crate::home::Home;
use crate::register::Register;
use crate::store::{MARK, Store, Stored};
use jiff::Timestamp;
use manifest::{Manifest, VERSION};
use motu_core::report::Backup;
use motu_core::{Error, Result, SandboxId, id};
use parts::{How, PARTS, is_whole};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

pub use check::{Problem, Verified, verify};
pub use manifest::{Item, LeftOut, Manifest as Listing};
pub use parts::Kind;
pub use restore::{Restored, restore, settle};

/// What a backup holds, as it says itself. Blocks.
pub fn list(from: &Path) -> Result<Listing> {
    Manifest::read(from)
}

/// What the copied sandboxes need besides their disks: baselines, roots and environments.
#[derive(Debug, Default)]
struct Needs {
    copied: Vec<SandboxId>,
    baselines: BTreeSet<PathBuf>,
    roots: BTreeSet<PathBuf>,
    digests: BTreeSet<String>,
    /// Names of environments that templates start from.
    environments: BTreeSet<String>,
    left_out: Vec<LeftOut>,
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
        let all = self.sandboxes.table.all();
        for sandbox in self.sandboxes.described(all).await? {
            if sandbox.keep {
                let to = staged.join("kept").join(sandbox.sandbox_id.as_str());
                self.copy_kept(&sandbox.sandbox_id, to, holder, &mut needs)
                    .await?;
            }
        }
        prune(&staged.join("motu.db"), &needs.copied).await?;
        self.copy_templates(staged, &mut needs).await?;
        // Taken only now: starting a workspace waits for this lock while it holds the workspace's
        // turn, which `copy_kept` needs too.
        let _environments_stay = self.sandboxes.environments_in_use.read().await;
        let catalog = self.sandboxes.environments.catalog().iter();
        let catalog: BTreeSet<String> = catalog.map(|entry| entry.name.clone()).collect();
        let (home, to) = (self.sandboxes.shared.home.clone(), staged.to_path_buf());
        let audit = self.audit.clone();
        blocking(move || {
            copy_environments(&home, &to, &mut needs, &catalog)?;
            copy_plain(&home, &to, &mut needs)?;
            audit.copy_to(&to.join("audit"))?;
            let items = manifest::describe(&to)?;
            let manifest = Manifest {
                version: VERSION,
                id: id::random_name(20),
                motu: env!("CARGO_PKG_VERSION").to_string(),
                made_at: Timestamp::now(),
                workspaces: needs.copied.clone(),
                items,
                left_out: needs.left_out,
            };
            manifest.write(&to)?;
            Ok(needs.copied)
        })
        .await
    }

    /// Copies each template with the machine that was saved for it, while nobody changes it.
    async fn copy_templates(&self, staged: &Path, needs: &mut Needs) -> Result<()> {
        let (templates, saved) = (staged.join("templates"), staged.join("saved"));
        make_private(&templates)?;
        make_private(&saved)?;
        let home = &self.sandboxes.shared.home;
        for name in Register::templates(home).names()? {
            let _turn = self.sandboxes.templates.turn(&name).await;
            let file = format!("{name}.json");
            let from = home.path().join("templates").join(&file);
            let Some(template) = references::json(&from) else {
                // Removed meanwhile, or nothing that a template can be read from.
                needs.left_out.push(LeftOut::new(
                    format!("template {name}"),
                    "its record cannot be read",
                ));
                continue;
            };
            needs
                .environments
                .extend(references::environments_of(&template));
            let memory = references::memory_of(&template);
            let (base, to, templates) = (
                home.path().to_path_buf(),
                staged.to_path_buf(),
                templates.clone(),
            );
            blocking(move || {
                if let Some(memory) = memory {
                    copy(&base.join(&memory), &to.join(&memory))?;
                }
                copy(&from, &templates.join(file))
            })
            .await?;
        }
        Ok(())
    }

    /// Copies the kept directory of one sandbox, unless the sandbox has been destroyed meanwhile.
    async fn copy_kept(
        &self,
        id: &SandboxId,
        to: PathBuf,
        holder: &SandboxId,
        needs: &mut Needs,
    ) -> Result<()> {
        let room = self.workspaces.known(id).await?;
        let _turn = match &room {
            Some(room) => Some(room.wait_turn().await),
            None => None,
        };
        let Some(handle) = self.sandboxes.get(id).await? else {
            return Ok(());
        };
        let launch = match handle.launch().await {
            Ok(launch) => launch,
            Err(_) if !self.sandboxes.table.has(id) => return Ok(()),
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
            Err(_) if !self.sandboxes.table.has(id) => {
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
    let mut mark = database.as_os_str().to_os_string();
    mark.push(MARK);
    let _ = std::fs::remove_file(mark);
    Ok(())
}

/// Copies the environments that something refers to, and those that cannot be pulled again.
fn copy_environments(
    home: &Home,
    to: &Path,
    needs: &mut Needs,
    catalog: &BTreeSet<String>,
) -> Result<()> {
    let baselines = to.join("baselines");
    make_private(&baselines)?;
    for from in &needs.baselines {
        copy(from, &baselines.join(from.file_name().unwrap_or_default()))?;
    }
    let environments = to.join("environments");
    for part in ["", "blobs", "names"] {
        make_private(&environments.join(part))?;
    }
    // A sandbox goes on with the root it has, wherever that is.
    for from in needs.roots.iter().filter(|root| root.exists()) {
        let name = from.file_name().unwrap_or_default();
        copy(from, &environments.join("blobs").join(name))?;
    }
    let mut found = BTreeSet::new();
    for name in references::names(home.path()) {
        let asked = needs.environments.iter();
        let asked: Vec<&String> = asked
            .filter(|asked| references::is_meant(&name.name, asked))
            .collect();
        found.extend(asked.iter().map(|asked| (*asked).clone()));
        let needed = !asked.is_empty() || needs.digests.contains(&name.digest);
        let elsewhere = catalog.contains(&name.name) || motu_environments::is_pulled(&name.name);
        let what = || format!("environment {}", name.name);
        if !needed && elsewhere {
            let why = "it can be pulled again, and nothing here needs it";
            needs.left_out.push(LeftOut::new(what(), why));
            continue;
        }
        let file = Path::new("environments/names").join(&name.file);
        match copy_environment(home, to, &name.digest, &file) {
            Err(error) if needed => return Err(error),
            Err(error) => needs.left_out.push(LeftOut::new(what(), error.message)),
            Ok(()) => {}
        }
    }
    for missing in needs.environments.difference(&found) {
        let why = "a template starts from it, and it is not installed here";
        needs
            .left_out
            .push(LeftOut::new(format!("environment {missing}"), why));
    }
    Ok(())
}

/// Copies the files of an environment, if they are not there yet, and then its name.
fn copy_environment(home: &Home, to: &Path, digest: &str, file: &Path) -> Result<()> {
    let blob = references::blob(digest);
    if !to.join(&blob).exists()
        && let Err(error) = copy(&home.path().join(&blob), &to.join(&blob))
    {
        let _ = std::fs::remove_dir_all(to.join(&blob));
        return Err(error);
    }
    copy(&home.path().join(file), &to.join(file))
}

/// Copies what nothing refers to and is kept all the same; says what is left behind.
fn copy_plain(home: &Home, to: &Path, needs: &mut Needs) -> Result<()> {
    for part in PARTS.iter().filter(|part| !part.referred) {
        let from = home.path().join(part.path);
        match part.how {
            How::Whole if from.exists() => copy(&from, &to.join(part.path))?,
            How::Whole => {}
            How::Each => {
                make_private(&to.join(part.path))?;
                for entry in std::fs::read_dir(&from).into_iter().flatten().flatten() {
                    let name = entry.file_name();
                    if !is_whole(&name.to_string_lossy()) {
                        continue;
                    }
                    let place = to.join(part.path).join(&name);
                    match copy(&entry.path(), &place) {
                        Err(error) if entry.path().exists() => return Err(error),
                        // A session, or a decision, that was forgotten meanwhile.
                        Err(_) => drop(std::fs::remove_dir_all(&place)),
                        Ok(()) => {}
                    }
                }
            }
        }
    }
    for entry in std::fs::read_dir(home.path())
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name().to_string_lossy().into_owned();
        if let Some(why) = parts::why_not(&name) {
            needs.left_out.push(LeftOut::new(name, why));
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
