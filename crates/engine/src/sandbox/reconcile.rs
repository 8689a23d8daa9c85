//! Reconciles the store with the disks at the start of the daemon.
//!
//! The rules are in [`crate::found`]; this module gathers their facts and executes their verdicts.
//! Every removal and everything that is set aside is logged.

use super::Sandboxes;
use crate::found::{self, Verdict, Witness};
use crate::home::Home;
use crate::lost::LostKind;
use crate::record::{self, Found};
use crate::store::{Beside, DormantRow, SandboxRow, Stored};
use motu_core::sandbox::State;
use motu_core::{Error, Result, SandboxId};
use std::collections::{BTreeMap, HashSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The key under which the store remembers the location of its state directory.
const PLACE: &str = "place";

/// A row that store and disks agree on.
#[derive(Clone, Debug)]
pub struct Known {
    pub row: SandboxRow,
    /// The record beside the disks is up to date.
    pub recorded: bool,
}

/// A row whose disks are gone: its removal had begun when the daemon ended, even if the row does
/// not say so, so it is marked as `destroying`.
fn ending(mut known: Known) -> Known {
    let state = &mut known.row.sandbox.state;
    if matches!(
        state,
        State::Running | State::Paused | State::Stopped | State::Failed
    ) {
        *state = State::Destroying;
    }
    known
}

impl Sandboxes {
    /// All known sandboxes, each by the newest of its row and record, and those that are dormant: of
    /// these row and record are compared when they are woken.
    pub(crate) async fn reconcile(&self) -> Result<(Vec<Known>, Vec<DormantRow>)> {
        let kept = record::kept(&self.shared.home);
        let survey = self.shared.store.survey(self.beside(&kept)).await?;
        let dormant: HashSet<&SandboxId> = survey.dormant.iter().map(|one| &one.id).collect();
        let mut rows: BTreeMap<SandboxId, Known> = BTreeMap::new();
        let mut unreadable = Vec::new();
        for stored in survey.rows {
            match stored {
                Stored::Row(row) => {
                    let recorded = false;
                    let known = Known {
                        row: *row,
                        recorded,
                    };
                    rows.insert(known.row.sandbox.sandbox_id.clone(), known);
                }
                Stored::Unreadable { id, error } => {
                    tracing::error!(id, %error, "a row of the store is unreadable");
                    unreadable.extend(SandboxId::parse(&id).ok());
                }
            }
        }
        for (id, dir) in kept.into_iter().filter(|(id, _)| !dormant.contains(id)) {
            let known = rows.remove(&id);
            let witness = match &known {
                Some(known) => Witness::Says(record::says(&known.row)),
                None if unreadable.contains(&id) => Witness::Unreadable,
                None => Witness::Silent,
            };
            if let Some(known) = self.reconcile_kept(&id, &dir, known, witness).await? {
                rows.insert(id, known);
            }
        }
        self.clear_staging();
        Ok((rows.into_values().collect(), survey.dormant))
    }

    /// What lies beside the store. Where the store has lost changes, nothing is taken as it says.
    fn beside(&self, kept: &[(SandboxId, PathBuf)]) -> Beside {
        let ids = kept.iter().map(|(id, _)| id.to_string()).collect();
        let runtimes = self.shared.home.path().join("machines");
        let runtimes = std::fs::read_dir(runtimes).into_iter().flatten().flatten();
        let machines = runtimes.flat_map(|runtime| std::fs::read_dir(runtime.path()));
        let machines = machines.flatten().flatten();
        Beside {
            kept: ids,
            machines: machines
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect(),
            trusted: self.shared.store.loss().is_none(),
        }
    }

    /// Decides about one kept directory; returns the sandbox's row afterwards.
    pub(super) async fn reconcile_kept(
        &self,
        id: &SandboxId,
        dir: &Path,
        known: Option<Known>,
        row: Witness,
    ) -> Result<Option<Known>> {
        let beside = record::read_sandbox(&self.shared.home, dir);
        let witness = beside.witness();
        if let Found::Unreadable(reason) = &beside {
            tracing::error!(%id, reason, "the record beside its disks is unreadable");
        }
        match found::kept(row, witness, record::is_empty(dir)) {
            Verdict::UseRow => {
                let Some(known) = known else { return Ok(None) };
                let recorded = witness == row;
                self.clear_disks(&known.row, dir, witness).await?;
                Ok(Some(Known { recorded, ..known }))
            }
            Verdict::UseRecord => {
                let Some(row) = beside.into_record() else {
                    return Ok(known);
                };
                let workspace = record::read_workspace(dir).into_record();
                tracing::warn!(%id, "restoring the row from the record beside the disks");
                self.shared.store.restore(&row, workspace.as_ref()).await?;
                self.clear_disks(&row, dir, witness).await?;
                let recorded = true;
                Ok(Some(Known { row, recorded }))
            }
            Verdict::Remove(why) => {
                tracing::info!(%id, why, "removing a kept directory");
                let runtime = known
                    .as_ref()
                    .map(|known| known.row.sandbox.runtime.clone());
                let runtime = runtime.or_else(|| Some(beside.into_record()?.sandbox.runtime));
                self.remove_kept(id, runtime.as_deref()).await;
                Ok(known.map(ending))
            }
            Verdict::SetAside(why) => {
                self.lost().put(LostKind::Kept, dir, why)?;
                Ok(known)
            }
            Verdict::LeaveAlone(why) => {
                tracing::error!(%id, why, "leaving a kept directory in place, unused");
                Ok(known)
            }
        }
    }

    async fn remove_kept(&self, id: &SandboxId, runtime: Option<&str>) {
        let (home, trash) = (&self.shared.home, &self.shared.trash);
        let runtime = runtime.and_then(|name| self.runtimes.named(name));
        let removed = match runtime {
            Some(runtime) => home.discard_kept(trash, runtime.as_ref(), id).await,
            None => trash.discard(&home.kept(id)),
        };
        if let Err(error) = removed {
            tracing::warn!(%id, %error, "could not remove a kept directory");
        }
    }

    /// Removes or sets aside disks that are not in use: left by a reset, finished or interrupted.
    async fn clear_disks(&self, row: &SandboxRow, dir: &Path, record: Witness) -> Result<()> {
        let launch = row.launch.as_ref();
        let Some(kept) = launch.and_then(|launch| launch.kept.as_ref()) else {
            return Ok(());
        };
        let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
        for entry in found {
            let name = entry.file_name();
            let path = entry.path();
            if !name.as_encoded_bytes().starts_with(b"disks-") || path == kept.dir {
                continue;
            }
            match found::spare_disks(row.revision, record) {
                Verdict::SetAside(why) if !record::has_no_files(&path) => {
                    self.lost().put(LostKind::Disks, &path, why)?;
                }
                _ => {
                    tracing::info!(path = %path.display(), "removing unused disks");
                    if let Some(runtime) = self.runtimes.named(&row.sandbox.runtime) {
                        runtime.discard(&path).await?;
                    }
                    self.shared.trash.discard(&path)?;
                }
            }
        }
        Ok(())
    }

    /// Removes temporary copies in `aside/` that a crash left.
    fn clear_staging(&self) {
        let aside = self.shared.home.path().join("aside");
        let found = std::fs::read_dir(aside).into_iter().flatten().flatten();
        for entry in found {
            tracing::info!(path = %entry.path().display(), "removing the temporary files of an interrupted copy");
            if let Err(error) = self.shared.trash.discard(&entry.path()) {
                tracing::warn!(%error, "could not remove the temporary files of an interrupted copy");
            }
        }
    }

    /// Drops machines that belong to another state directory, if this one is a copy of it made
    /// since the host's last boot. The machines are not touched; the copies of their directories
    /// are set aside.
    pub(crate) async fn let_go_of_others(&self, rows: &mut [Known]) -> Result<()> {
        let here = place(&self.shared.home)?;
        let before = self.shared.store.meta(PLACE).await?;
        if before.is_none_or(|before| !is_copy(&before, &here)) {
            return Ok(());
        }
        tracing::warn!(
            "this state directory is a copy of another one: ignoring the other one's machines"
        );
        for known in rows {
            known.row.machine = None;
        }
        let machines = self.shared.home.path().join("machines");
        if machines.exists() {
            let why = "they are copied from another state directory, which has their machines";
            self.lost().put(LostKind::Machines, &machines, why)?;
        }
        Ok(())
    }
}

impl Sandboxes {
    /// Remembers the location of the state directory, once no row refers to another one's machines.
    pub(crate) async fn settle_here(&self) -> Result<()> {
        let here = place(&self.shared.home)?;
        self.shared.store.set_meta(PLACE, here).await
    }
}

/// Identifies a state directory: boot id, device and inode.
fn place(home: &Home) -> Result<String> {
    let found = std::fs::metadata(home.path())
        .map_err(|error| Error::io("look at the state directory", &error))?;
    let boot = crate::clock::boot_id();
    Ok(format!("{boot} {} {}", found.dev(), found.ino()))
}

/// Whether the state directory is a copy: another directory than before, in the same boot. After a
/// reboot no machine runs any more, and device numbers may change.
fn is_copy(before: &str, here: &str) -> bool {
    let boot = |place: &str| place.split(' ').next().map(str::to_string);
    before != here && boot(before) == boot(here)
}

/// Marks a sandbox as without a machine, with the reason.
pub(crate) fn without_machine(row: &mut SandboxRow, reason: &str) {
    row.sandbox.state = match row.sandbox.keep {
        true => State::Stopped,
        false => State::Failed,
    };
    row.sandbox.reason = Some(reason.to_string());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_is_another_directory_of_the_same_boot() {
        assert!(!is_copy("boot 1 2", "boot 1 2"));
        assert!(is_copy("boot 1 2", "boot 1 3"));
        assert!(is_copy("boot 1 2", "boot 2 2"));
        assert!(!is_copy("boot 1 2", "later 2 2"));
    }
}
