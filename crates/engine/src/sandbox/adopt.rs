//! Adopts sandboxes after a crash of the daemon, an upgrade or a reboot of the host.
//!
//! Rows and the records beside the disks say what was acknowledged; directories say what may exist
//! ([`crate::reconcile`]). A row whose machine lives is adopted; if the machine is gone, the
//! sandbox has failed, with a reason, or is stopped if its disks are kept. Half-made and
//! half-destroyed sandboxes are removed. A machine without a row is a one-shot's or the pool's and
//! ends with its daemon. All other unknown data is set aside.

use super::Sandboxes;
use super::reconcile::{Known, without_machine};
use crate::absent::Absent;
use crate::driver::{BEING_RESET, Driver, Keep};
use crate::lifecycle::{self, Intent, Recovery};
use crate::lost::{Lost, LostKind};
use crate::quota::Claim;
use crate::store::SandboxRow;
use motu_core::runtime::Machine;
use motu_core::sandbox::State;
use motu_core::{Result, Runtime, SandboxId};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const GONE: &str = "its machine was gone when the daemon came back (was the host restarted?)";

impl Sandboxes {
    pub(crate) async fn adopt(&self) -> Result<()> {
        let (mut rows, dormant) = self.reconcile().await?;
        self.let_go_of_others(&mut rows).await?;
        let stay: Vec<&SandboxRow> = rows
            .iter()
            .map(|known| &known.row)
            .filter(|row| stays(row.sandbox.state))
            .collect();
        // Dormant ones have no machine.
        let known: HashSet<SandboxId> = stay
            .iter()
            .map(|row| row.sandbox.sandbox_id.clone())
            .collect();
        let mut baselines: HashMap<SandboxId, String> = stay
            .iter()
            .filter_map(|row| Some((row.sandbox.sandbox_id.clone(), row.baseline()?)))
            .collect();
        for known in rows {
            self.adopt_one(known).await?;
        }
        let dormant = dormant.into_iter().map(|one| {
            baselines.extend(one.baseline.map(|baseline| (one.id.clone(), baseline)));
            (one.id, one.dormant)
        });
        self.table.lay_down(dormant);
        self.settle_here().await?;
        self.settle_baselines(&baselines).await?;
        for runtime in self.runtimes.all() {
            self.sweep_strays(runtime, &known).await;
        }
        Ok(())
    }

    /// Takes over one sandbox, or finishes what a former daemon had begun with it.
    pub(super) async fn adopt_one(&self, known: Known) -> Result<()> {
        let Known { row, recorded } = known;
        let runtime = self.runtimes.named(&row.sandbox.runtime).cloned();
        let runtime = match (runtime, stays(row.sandbox.state)) {
            (Some(runtime), _) => runtime,
            (None, true) => return self.show_unavailable(row).await,
            (None, false) => Arc::new(Absent::new(&row.sandbox.runtime)),
        };
        match row.sandbox.state {
            State::Destroyed => Ok(()),
            State::Creating => self.undo_create(runtime, row).await,
            State::Destroying => self.finish_destroy(runtime, row).await,
            State::Running | State::Paused | State::Stopped | State::Failed => {
                self.take_over(runtime, row, recorded).await
            }
        }
    }

    pub(crate) fn lost(&self) -> Lost {
        Lost::of(&self.shared.home)
    }

    /// Undoes a create that was never acknowledged: no client knows the sandbox.
    async fn undo_create(&self, runtime: Arc<dyn Runtime>, row: SandboxRow) -> Result<()> {
        let id = &row.sandbox.sandbox_id;
        self.remove_machine(&runtime, id).await;
        self.remove_disks(&runtime, id).await;
        self.shared.store.forget_workspace(id).await?;
        self.shared.store.delete(id).await
    }

    async fn finish_destroy(&self, runtime: Arc<dyn Runtime>, mut row: SandboxRow) -> Result<()> {
        if let Some(machine) = &row.machine
            && let Err(error) = runtime.destroy(machine).await
        {
            tracing::warn!(id = %row.sandbox.sandbox_id, %error, "could not finish an interrupted destroy");
        }
        self.remove_machine(&runtime, &row.sandbox.sandbox_id).await;
        self.remove_disks(&runtime, &row.sandbox.sandbox_id).await;
        row.sandbox.state = State::Destroyed;
        row.launch = None;
        self.shared
            .store
            .forget_workspace(&row.sandbox.sandbox_id)
            .await?;
        self.shared.store.update(&row).await
    }

    async fn take_over(
        &self,
        runtime: Arc<dyn Runtime>,
        mut row: SandboxRow,
        mut recorded: bool,
    ) -> Result<()> {
        let alive = match &row.machine {
            // A machine whose directory is gone cannot be reached, so it counts as ended.
            Some(machine) => machine.dir.exists() && runtime.alive(machine).await,
            None => false,
        };
        if !alive && matches!(row.sandbox.state, State::Running | State::Paused) {
            ended(&mut row);
            self.shared.persist(&mut row).await?;
            recorded = true;
            if let Some(machine) = &row.machine
                && let Err(error) = runtime.destroy(machine).await
            {
                tracing::warn!(id = %row.sandbox.sandbox_id, %error, "could not remove the remains of a machine that has ended");
            }
        }
        if !alive {
            self.remove_machine(&runtime, &row.sandbox.sandbox_id).await;
            row.machine = None;
            row.intent = None;
        }
        if let Some(machine) = row.machine.clone()
            && self.settle(&runtime, &machine, &mut row).await
        {
            self.shared.persist(&mut row).await?;
            recorded = true;
        }
        if row.sandbox.keep && !recorded {
            // Older versions kept no records, or the daemon died before it wrote the last one.
            self.shared.persist(&mut row).await?;
        }
        self.look_after(runtime, row).await
    }

    /// Brings a machine that survived its daemon to the state that [`lifecycle::recover`] asks for,
    /// before it can be used. One that is to stop is ended by its driver, which asks the guest
    /// first. Returns whether the row has changed.
    async fn settle(
        &self,
        runtime: &Arc<dyn Runtime>,
        machine: &Machine,
        row: &mut SandboxRow,
    ) -> bool {
        let (state, intent) = (row.sandbox.state, row.intent);
        let recovery = lifecycle::recover(state, intent);
        let settled = match (recovery, state) {
            (Recovery::Pause, State::Running) => runtime.pause(machine).await,
            (Recovery::Run, State::Paused) => runtime.resume(machine).await,
            (Recovery::Run | Recovery::Stop, State::Running) => runtime.reclaim(machine).await,
            _ => Ok(()),
        };
        if let Err(error) = &settled {
            tracing::warn!(id = %row.sandbox.sandbox_id, %error, ?state, ?intent, "could not pause or resume an adopted machine");
        }
        if recovery == Recovery::Stop {
            return false;
        }
        row.intent = None;
        match (recovery, settled) {
            (Recovery::Pause, Ok(())) => row.sandbox.state = State::Paused,
            (Recovery::Run, Ok(())) => {
                row.sandbox.state = State::Running;
                row.sandbox.reason = None;
            }
            _ => {}
        }
        row.sandbox.state != state || intent.is_some()
    }

    /// Adopts a sandbox whose runtime is not in this build, with its name, disks and history. Its
    /// row is not changed: a build with the runtime finds it as it was.
    async fn show_unavailable(&self, mut row: SandboxRow) -> Result<()> {
        let name = row.sandbox.runtime.clone();
        tracing::warn!(id = %row.sandbox.sandbox_id, runtime = name, "the sandbox's runtime is not in this build");
        without_machine(&mut row, &Absent::reason(&name));
        row.machine = None;
        self.look_after(Arc::new(Absent::new(&name)), row).await
    }

    async fn look_after(&self, runtime: Arc<dyn Runtime>, row: SandboxRow) -> Result<()> {
        let id = row.sandbox.sandbox_id.clone();
        let claim = Claim::of(&row.sandbox, row.launch.as_ref());
        let (mut driver, handle) = Driver::new(self.shared.clone(), runtime, Keep::Stored, row);
        driver.find_again().await;
        let driving = driver.adopt();
        self.table.enter_again(&id, handle, claim)?;
        tokio::spawn(driving);
        Ok(())
    }

    /// Removes machines without a row: one-shots and the pool's, which end with their daemon.
    async fn sweep_strays(&self, runtime: &Arc<dyn Runtime>, known: &HashSet<SandboxId>) {
        let Ok(entries) = std::fs::read_dir(self.shared.home.machines(runtime.name())) else {
            return;
        };
        for entry in entries.flatten() {
            let name = entry.file_name();
            match name.to_str().map(SandboxId::parse) {
                Some(Ok(id)) if !known.contains(&id) => {
                    tracing::info!(%id, runtime = runtime.name(), "removing a machine without a row (one-shot or warm pool)");
                    self.remove_machine(runtime, &id).await;
                }
                Some(Ok(_)) => {}
                _ => tracing::warn!(?name, "an unknown entry among the machines was left alone"),
            }
        }
    }

    /// Releases baselines whose workspace is gone, and removes half-made ones. A baseline without
    /// any reference is set aside.
    async fn settle_baselines(&self, needed: &HashMap<SandboxId, String>) -> Result<()> {
        let shared = &self.shared;
        let references = shared.store.baseline_refs().await?;
        let held: HashSet<(&str, &SandboxId)> = references
            .iter()
            .filter_map(|found| Some((found.baseline.as_str(), found.sandbox.as_ref()?)))
            .collect();
        for (id, baseline) in needed {
            // Rows that are older than references have none.
            if !held.contains(&(baseline.as_str(), id)) {
                shared.store.lease_baseline(baseline, id).await?;
            }
        }
        let in_use: HashSet<&str> = needed.values().map(String::as_str).collect();
        for found in &references {
            match &found.sandbox {
                Some(id) if needed.get(id) == Some(&found.baseline) => {}
                Some(id) => shared.release_baseline(&found.baseline, id).await?,
                // A mark that the lease above has taken away, or one of a removal that was cut off.
                None if in_use.contains(found.baseline.as_str()) => {}
                None => shared.remove_baseline(&found.baseline).await?,
            }
        }
        for name in shared.baselines.seeded() {
            if !in_use.contains(name.as_str()) {
                let path = shared.home.baselines().join(name);
                self.lost().put(
                    LostKind::Baseline,
                    &path,
                    "no workspace is known to have it",
                )?;
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
            tracing::warn!(%id, %error, "could not remove a machine completely");
        }
        self.shared.gateways.end(id).await;
    }

    async fn remove_disks(&self, runtime: &Arc<dyn Runtime>, id: &SandboxId) {
        let (home, trash) = (&self.shared.home, &self.shared.trash);
        if let Err(error) = home.discard_kept(trash, runtime.as_ref(), id).await {
            tracing::warn!(%id, %error, "could not remove unused disks");
        }
    }
}

/// Marks a sandbox whose machine is gone: stopped, if that had been asked for, else ended
/// unexpectedly.
fn ended(row: &mut SandboxRow) {
    let intent = row.intent.take();
    without_machine(row, GONE);
    let asked = lifecycle::recover(row.sandbox.state, intent) == Recovery::Stop;
    if asked && row.sandbox.keep {
        let reset = intent == Some(Intent::Recreating);
        row.sandbox.reason = reset.then(|| BEING_RESET.to_string());
    }
}

/// Whether a row in this state is adopted; others are removed.
fn stays(state: State) -> bool {
    match state {
        State::Running | State::Paused | State::Stopped | State::Failed => true,
        State::Creating | State::Destroying | State::Destroyed => false,
    }
}
