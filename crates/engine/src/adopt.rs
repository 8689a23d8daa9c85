//! Coming back: after a crash of the daemon, an upgrade, a reboot of the host.
//!
//! Rows say what was acknowledged, directories say what may exist. A row whose
//! machine lives is adopted as it is; a row whose machine is gone has failed,
//! with a reason, or is stopped if its disks are kept; what was half made or half
//! destroyed is finished off; a directory without a row was never acknowledged and
//! goes away.

use crate::driver::{Driver, Keep};
use crate::engine::Engine;
use crate::store::SandboxRow;
use motu_core::sandbox::State;
use motu_core::{Result, Runtime, SandboxId};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

impl Engine {
    pub(crate) async fn adopt(&self) -> Result<()> {
        let rows = self.shared.store.all().await?;
        let known: HashSet<SandboxId> = rows
            .iter()
            .filter(|row| stays(row.sandbox.state))
            .map(|row| row.sandbox.sandbox_id.clone())
            .collect();
        let in_use: HashSet<PathBuf> = rows
            .iter()
            .filter(|row| stays(row.sandbox.state))
            .filter_map(|row| row.launch.as_ref()?.kept.as_ref())
            .map(|kept| kept.dir.clone())
            .collect();
        let baselines: HashMap<SandboxId, String> = rows
            .iter()
            .filter(|row| stays(row.sandbox.state))
            .filter_map(|row| Some((row.sandbox.sandbox_id.clone(), row.baseline()?)))
            .collect();
        for row in rows {
            let Some(runtime) = self.runtimes.named(&row.sandbox.runtime).cloned() else {
                tracing::warn!(id = %row.sandbox.sandbox_id, runtime = row.sandbox.runtime, "its runtime is not in this build");
                continue;
            };
            match row.sandbox.state {
                State::Destroyed => {}
                State::Creating => self.undo_create(runtime, row).await?,
                State::Destroying => self.finish_destroy(runtime, row).await?,
                State::Running | State::Paused | State::Stopped | State::Failed => {
                    self.take_over(runtime, row).await?
                }
            }
        }
        self.settle_baselines(&baselines).await?;
        self.sweep_kept(&known, &in_use);
        for runtime in self.runtimes.all() {
            self.sweep_strays(runtime, &known).await;
        }
        Ok(())
    }

    /// The create was never answered: nobody knows of it.
    async fn undo_create(&self, runtime: Arc<dyn Runtime>, row: SandboxRow) -> Result<()> {
        let id = &row.sandbox.sandbox_id;
        self.remove_machine(&runtime, id).await;
        self.shared.store.forget_workspace(id).await?;
        self.shared.store.delete(id).await
    }

    async fn finish_destroy(&self, runtime: Arc<dyn Runtime>, mut row: SandboxRow) -> Result<()> {
        if let Some(machine) = &row.machine
            && let Err(error) = runtime.destroy(machine).await
        {
            tracing::warn!(id = %row.sandbox.sandbox_id, %error, "cannot finish a destroy");
        }
        self.remove_machine(&runtime, &row.sandbox.sandbox_id).await;
        row.sandbox.state = State::Destroyed;
        row.launch = None;
        self.shared
            .store
            .forget_workspace(&row.sandbox.sandbox_id)
            .await?;
        self.shared.store.update(&row).await
    }

    async fn take_over(&self, runtime: Arc<dyn Runtime>, mut row: SandboxRow) -> Result<()> {
        let alive = match &row.machine {
            Some(machine) => runtime.alive(machine).await,
            None => false,
        };
        if !alive && matches!(row.sandbox.state, State::Running | State::Paused) {
            row.sandbox.state = match row.sandbox.keep {
                true => State::Stopped,
                false => State::Failed,
            };
            row.sandbox.reason = Some(
                "its machine was gone when the daemon came back (was the host restarted?)"
                    .to_string(),
            );
            self.shared.store.update(&row).await?;
            if let Some(machine) = &row.machine
                && let Err(error) = runtime.destroy(machine).await
            {
                tracing::warn!(id = %row.sandbox.sandbox_id, %error, "something of a lost machine is left");
            }
        }
        if !alive {
            self.remove_machine(&runtime, &row.sandbox.sandbox_id).await;
            row.machine = None;
        }
        if row.sandbox.state == State::Running
            && let Some(machine) = &row.machine
            && let Err(error) = runtime.reclaim(machine).await
        {
            tracing::warn!(id = %row.sandbox.sandbox_id, %error, "a machine may stand still");
        }
        let id = row.sandbox.sandbox_id.clone();
        let (driver, handle) = Driver::new(self.shared.clone(), runtime, Keep::Stored, row);
        let driving = driver.adopt();
        // What is alive is alive, whatever the limit says now.
        self.table.enter(&id, handle, usize::MAX)?;
        tokio::spawn(driving);
        Ok(())
    }

    /// Directories of machines that no row knows.
    async fn sweep_strays(&self, runtime: &Arc<dyn Runtime>, known: &HashSet<SandboxId>) {
        let Ok(entries) = std::fs::read_dir(self.shared.home.machines(runtime.name())) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            match name.to_str().map(SandboxId::parse) {
                Some(Ok(id)) if !known.contains(&id) => self.remove_machine(runtime, &id).await,
                Some(Ok(_)) => {}
                _ => tracing::warn!(?name, "an unknown entry among the machines was left alone"),
            }
        }
    }

    /// Disks that no sandbox has.
    fn sweep_kept(&self, known: &HashSet<SandboxId>, in_use: &HashSet<PathBuf>) {
        let trash = &self.shared.trash;
        let discard = |path: &Path| {
            if let Err(error) = trash.discard(path) {
                tracing::warn!(path = %path.display(), %error, "cannot clean up what nobody keeps");
            }
        };
        for (name, path) in entries(&self.shared.home.path().join("kept")) {
            if !SandboxId::parse(&name).is_ok_and(|id| known.contains(&id)) {
                discard(&path);
                continue;
            }
            for (name, path) in entries(&path) {
                if name.starts_with("disks-") && !in_use.contains(&path) {
                    discard(&path);
                }
            }
        }
    }

    /// Lets go of baselines whose workspace is gone or never came to be, and of what was half
    /// made. One that no reference names is left alone.
    async fn settle_baselines(&self, needed: &HashMap<SandboxId, String>) -> Result<()> {
        let shared = &self.shared;
        for (id, baseline) in needed {
            shared.store.lease_baseline(baseline, id).await?;
        }
        for found in shared.store.baseline_refs().await? {
            match &found.sandbox {
                Some(id) if needed.get(id) == Some(&found.baseline) => {}
                Some(id) => shared.release_baseline(&found.baseline, id).await?,
                None => shared.remove_baseline(&found.baseline).await?,
            }
        }
        for name in shared.baselines.seeded() {
            if !needed.values().any(|baseline| *baseline == name) {
                tracing::warn!(name, "a baseline that no workspace has was left alone");
            }
        }
        for name in shared.baselines.staged() {
            tracing::info!(name, "removing a baseline that was never finished");
            shared.baselines.discard(&shared.trash, &name)?;
        }
        Ok(())
    }

    async fn remove_machine(&self, runtime: &Arc<dyn Runtime>, id: &SandboxId) {
        let dir = self.shared.home.machine(runtime.name(), id);
        let swept = runtime.sweep(id, &dir).await;
        if let Err(error) = swept.and_then(|()| self.shared.trash.discard(&dir)) {
            tracing::warn!(%id, %error, "cannot clean up after a machine");
        }
    }
}

/// Whether a row in this state is taken over; others are undone or finished off.
fn stays(state: State) -> bool {
    match state {
        State::Running | State::Paused | State::Stopped | State::Failed => true,
        State::Creating | State::Destroying | State::Destroyed => false,
    }
}

/// Names and paths in a directory that may be missing.
fn entries(dir: &Path) -> Vec<(String, PathBuf)> {
    let found = std::fs::read_dir(dir).into_iter().flatten().flatten();
    found
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, entry.path())))
        .collect()
}
