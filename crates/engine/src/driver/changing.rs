//! Changes of a sandbox between its creation and its end.

use super::handle::{Prepare, held, paused_by, refused};
use super::looking::EGRESS;
use super::storing::paused_now;
use super::{Driver, Keep, Launch, set_deadline};
use crate::launch::{check_on_idle, expiry};
use crate::lifecycle::{self, Intent, Recovery, Refusal, Request};
use crate::store::SandboxRow;
use motu_core::hint;
use motu_core::hint::{field, verb};
use motu_core::runtime::{Ended, Kept, Machine, MachineSpec};
use motu_core::sandbox::{Keepalive, PausedBy, Sandbox, State};
use motu_core::{Error, Result, SandboxId, limits};
use std::path::Path;
use std::time::Duration;

/// How long the processes of a machine may take to end when it is stopped.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// Why a sandbox that is being reset has no machine.
pub(crate) const BEING_RESET: &str = "it was being reset";
/// How long the whole of an orderly stop may take before the machine is simply ended.
const STOP_TIME: Duration = Duration::from_secs(20);

impl Driver {
    pub(super) async fn pause(&mut self) -> Result<Sandbox> {
        if paused_by(&self.row.sandbox).is_some_and(|by| by != PausedBy::Caller) {
            // A caller's pause replaces the host's or the idle one: the sandbox is not resumed
            // automatically.
            self.commit(State::Paused, |row| {
                row.sandbox.reason = None;
                row.sandbox.paused = Some(paused_now(PausedBy::Caller));
            })
            .await?;
        }
        self.stand_still_for(Request::Pause, PausedBy::Caller, None)
            .await?;
        Ok(self.row.sandbox.clone())
    }

    /// Pauses an idle sandbox.
    pub(super) async fn nap(&mut self) {
        let (id, used) = (
            self.row.sandbox.sandbox_id.clone(),
            self.inside.last_used_ms(),
        );
        if let Err(error) = self
            .stand_still_for(Request::Nap, PausedBy::Idle, None)
            .await
        {
            tracing::warn!(%id, %error, "could not pause an idle sandbox");
            // Count the failure as use: the next attempt comes after another idle period.
            self.inside.touch();
        }
        // A call that arrived during the pause saw the state `running` and waits for the guest:
        // resume.
        if self.inside.last_used_ms() > used
            && let Err(error) = self.wake().await
        {
            tracing::warn!(%id, %error, "could not resume a sandbox that was paused while idle");
        }
    }

    /// Resumes a sandbox that was paused because it was idle.
    pub(super) async fn wake(&mut self) -> Result<()> {
        if paused_by(&self.row.sandbox) == Some(PausedBy::Idle) {
            self.resume().await?;
        }
        Ok(())
    }

    /// Pauses the machine, if it is running.
    async fn stand_still_for(
        &mut self,
        request: Request,
        by: PausedBy,
        reason: Option<&str>,
    ) -> Result<()> {
        let Some(machine) = self.row.machine.clone() else {
            return self.decide(request).map(drop);
        };
        match self.intend(request).await {
            Ok(None) => return Ok(()),
            Ok(Some(_)) => {}
            // Nothing can be stored any more on a disk that is full. After a crash a machine that
            // is held goes on in any case, until it is held again.
            Err(error) if request == Request::Hold => self.not_stored(&error),
            Err(error) => return Err(error),
        }
        self.excuse();
        if let Err(error) = self.runtime.pause(&machine).await {
            self.expect_answers();
            self.give_up().await;
            return Err(error);
        }
        self.row.sandbox.reason = reason.map(String::from);
        self.row.sandbox.paused = Some(paused_now(by));
        self.settle(State::Paused).await;
        Ok(())
    }

    /// Pauses a running machine with a reason; does nothing where machines cannot be paused.
    pub(super) async fn hold(&mut self, reason: String) -> Result<()> {
        let can = self.runtime.capabilities().pause && self.row.machine.is_some();
        if can && matches!(self.decide(Request::Hold), Ok(Some(_))) {
            let by = PausedBy::Shortage;
            self.stand_still_for(Request::Hold, by, Some(&reason))
                .await?;
            if let Some(guest) = self.inside.guest().as_ref() {
                guest.starve(&reason);
            }
        }
        Ok(())
    }

    pub(super) async fn let_go(&mut self) -> Result<()> {
        match held(&self.row.sandbox) {
            true => self.go_on().await,
            false => Ok(()),
        }
    }

    /// Resumes the machine, if it is paused.
    async fn go_on(&mut self) -> Result<()> {
        let Some(machine) = self.row.machine.clone() else {
            return self.decide(Request::Resume).map(drop);
        };
        let Some(next) = self.intend(Request::Resume).await? else {
            return Ok(());
        };
        if let Err(error) = self.runtime.resume(&machine).await {
            self.give_up().await;
            return Err(error);
        }
        self.expect_answers();
        self.row.sandbox.reason = None;
        self.settle(next).await;
        Ok(())
    }

    pub(super) async fn resume(&mut self) -> Result<Sandbox> {
        if held(&self.row.sandbox) {
            return Err(refused(&self.row.sandbox, Refusal::Paused));
        }
        self.go_on().await?;
        Ok(self.row.sandbox.clone())
    }

    /// Stops the silence timeout of the guest, which is about to be paused.
    pub(super) fn excuse(&self) {
        if let Some(guest) = self.inside.guest().as_ref() {
            guest.hold();
        }
    }

    fn expect_answers(&self) {
        if let Some(guest) = self.inside.guest().as_ref() {
            guest.let_go();
        }
    }

    /// Ends the machine in an orderly way; what it wrote is on its disks.
    pub(super) async fn stop(&mut self) -> Result<Sandbox> {
        self.must_be_kept("stopped")?;
        if let Some(next) = self.intend(Request::Stop).await? {
            self.end_machine().await?;
            self.tend().await;
            self.row.sandbox.reason = None;
            self.settle(next).await;
        }
        Ok(self.row.sandbox.clone())
    }

    /// Finishes a change that a previous daemon began on a machine that is still running.
    pub(super) async fn finish(&mut self) -> Result<()> {
        let Some(intent) = self.row.intent else {
            return Ok(());
        };
        let stops = lifecycle::recover(self.row.sandbox.state, Some(intent)) == Recovery::Stop;
        match self.decide(Request::Stop)?.filter(|_| stops) {
            Some(next) => {
                self.end_machine().await?;
                self.row.sandbox.reason =
                    (intent == Intent::Recreating).then(|| BEING_RESET.to_string());
                self.become_state(next).await
            }
            None => {
                self.row.intent = None;
                Ok(())
            }
        }
    }

    /// Lets the runtime release unused space of the disks of a machine that has ended.
    async fn tend(&self) {
        let launch = self.row.launch.as_ref();
        if let Some(kept) = launch.and_then(|launch| launch.kept.as_ref())
            && let Err(error) = self.runtime.tend(kept, true).await
        {
            tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not return a disk's unused space to the host");
        }
    }

    pub(super) async fn start(&mut self) -> Result<Sandbox> {
        self.must_be_kept("started")?;
        if let Some(next) = self.intend(Request::Start).await? {
            self.start_on(None, None).await?;
            if let Err(error) = self.commit(next, renewed).await {
                // Nobody knows of this machine after a restart, so nobody may use it now.
                if let Err(left) = self.end_machine().await {
                    tracing::warn!(id = %self.row.sandbox.sandbox_id, error = %left, "could not end a machine whose start could not be stored");
                }
                self.give_up().await;
                return Err(error);
            }
        }
        Ok(self.row.sandbox.clone())
    }

    /// Replaces the machine by one on other disks; the old disks are deleted when it runs.
    pub(super) async fn recreate(&mut self, kept: Kept, prepare: Prepare) -> Result<Sandbox> {
        self.must_be_kept("made again")?;
        let Some(next) = self.intend(Request::Recreate).await? else {
            return Ok(self.row.sandbox.clone());
        };
        if self.decide(Request::Stop)?.is_some() {
            self.abandon_machine().await?;
            // Callers whose commands ended with the old machine see this as the reason.
            self.row.sandbox.reason = Some(BEING_RESET.to_string());
            // It is not stored: a daemon that comes back knows by the intent what was going on.
            self.show(State::Stopped);
        }
        let before = self.row.launch.clone();
        let old = before.as_ref().and_then(|launch| launch.kept.clone());
        if let Err(error) = self.start_on(Some(kept.clone()), Some(prepare)).await {
            if let Err(unstored) = self.become_state(State::Stopped).await {
                tracing::warn!(id = %self.row.sandbox.sandbox_id, error = %unstored, "could not store that a reset failed");
            }
            self.tend().await;
            return Err(error);
        }
        if let Err(error) = self.commit(next, renewed).await {
            self.take_back(before, &kept).await;
            return Err(error);
        }
        if let Some(old) = old {
            self.throw_away(&old.dir).await;
        }
        Ok(self.row.sandbox.clone())
    }

    /// Returns to the disks before a reset that could not be stored. What is written to the new ones
    /// would be lost with the next start of the daemon, so their machine ends before anybody has it.
    async fn take_back(&mut self, before: Option<Launch>, new: &Kept) {
        self.discard_machine().await;
        self.return_to(before);
        match self.become_state(State::Stopped).await {
            Ok(()) => self.throw_away(&new.dir).await,
            // What is stored may name either: both stay, and the next daemon sets one aside.
            Err(error) => {
                tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not store that a reset failed: its new disks stay");
            }
        }
        self.tend().await;
    }

    /// What a machine is to be made from is again what it was.
    fn return_to(&mut self, before: Option<Launch>) {
        let kept = before.as_ref().and_then(|launch| launch.kept.clone());
        *self.inside.disk() = kept.map(|kept| (self.runtime.clone(), kept));
        self.row.launch = before;
        self.watch_again = true;
    }

    /// Makes a machine for a stopped sandbox, or leaves it stopped as it was.
    async fn start_on(&mut self, kept: Option<Kept>, prepare: Option<Prepare>) -> Result<()> {
        let before = self.row.launch.clone();
        if let (Some(kept), Some(launch)) = (kept.clone(), self.row.launch.as_mut()) {
            launch.kept = Some(kept);
        }
        let up = self.try_start(kept.is_none(), prepare).await;
        if up.is_err() {
            self.discard_machine().await;
            self.return_to(before);
            self.give_up().await;
            if let Some(kept) = kept {
                self.throw_away(&kept.dir).await;
            }
        }
        self.watch_again = true;
        up
    }

    async fn try_start(&mut self, on_own_disks: bool, prepare: Option<Prepare>) -> Result<()> {
        self.check_root()?;
        if on_own_disks {
            self.check_disks()?;
        }
        // The directory of a machine that ended uncleanly would be in the way.
        self.discard_machine().await;
        self.bring_up(prepare).await
    }

    /// Deletes disks that no machine will start from again.
    async fn throw_away(&self, disks: &std::path::Path) {
        let ready = self.runtime.discard(disks).await;
        if let Err(error) = ready.and_then(|()| self.shared.trash.discard(disks)) {
            tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not remove old disks");
        }
    }

    fn check_root(&self) -> Result<()> {
        let root = &self.launch()?.root;
        if root.as_os_str().is_empty() || root.exists() {
            return Ok(());
        }
        let name = &self.row.sandbox.environment;
        Err(Error::not_found(format!(
            "the environment {name} ({}) it was made from is gone",
            self.row.sandbox.digest
        ))
        .hint(hint![
            verb("pull_environment").with("name", name.as_str()),
            " brings it back"
        ]))
    }

    /// Fails if the disks have vanished: making blank ones in their place would hide the loss.
    fn check_disks(&self) -> Result<()> {
        let launch = self.launch()?;
        let Some(kept) = launch.kept else {
            return Ok(());
        };
        if self.runtime.has_disks(&kept) {
            return Ok(());
        }
        let id = &self.row.sandbox.sandbox_id;
        Err(Error::not_found(format!(
            "the disks of {id} are gone: {} does not have them",
            kept.dir.display()
        ))
        .hint(hint![
            "put them back (from a backup), or begin again: ",
            verb("reset_workspace").with("id", id.as_str())
        ]))
    }

    fn must_be_kept(&self, what: &str) -> Result<()> {
        if self.row.sandbox.keep {
            return Ok(());
        }
        let id = &self.row.sandbox.sandbox_id;
        Err(Error::conflict(format!(
            "sandbox {id} cannot be {what}: its disks go with its machine"
        ))
        .hint(hint![
            "create it with ",
            field("keep").is(true).of("create_sandbox"),
            ", or use a workspace"
        ]))
    }

    /// Asks the guest to end everything and write it out, then ends the machine.
    async fn end_machine(&mut self) -> Result<()> {
        let machine = self.row.machine.clone();
        if self.row.sandbox.state == State::Paused
            && let Some(machine) = &machine
        {
            if let Err(error) = self.runtime.resume(machine).await {
                self.give_up().await;
                return Err(error);
            }
            self.expect_answers();
        }
        let guest = self.inside.guest().clone();
        if let Some(guest) = guest {
            guest.goes(match self.row.intent {
                Some(Intent::Recreating) => "reset",
                _ => "stopped",
            });
            let asked = tokio::time::timeout(STOP_TIME, guest.shutdown(STOP_GRACE)).await;
            if !matches!(asked, Ok(Ok(()))) {
                tracing::warn!(id = %self.row.sandbox.sandbox_id, ?asked, "the guest did not shut down in order");
            }
        }
        self.release().await;
        self.row.machine = None;
        self.watch_again = true;
        Ok(())
    }

    /// Ends the machine, whose disks are to be replaced.
    async fn abandon_machine(&mut self) -> Result<()> {
        let Some(machine) = self.row.machine.clone() else {
            return self.end_machine().await;
        };
        let guest = self.inside.guest().clone();
        if let Some(guest) = &guest {
            guest.goes("reset");
        }
        match self.runtime.abandon(&machine).await {
            Ok(true) => {}
            Ok(false) => return self.end_machine().await,
            Err(error) => {
                if let Some(guest) = &guest {
                    guest.stays();
                }
                self.give_up().await;
                return Err(error);
            }
        }
        self.discard_directory(&machine);
        self.release_rest().await;
        self.row.machine = None;
        self.watch_again = true;
        Ok(())
    }

    /// Forks the machine. The driver takes no other request meanwhile.
    pub(super) async fn fork(&mut self, copies: &[MachineSpec]) -> Result<Vec<Machine>> {
        if !self.runtime.capabilities().fork {
            return Err(self.runtime.cannot("fork").hint(hint![
                "virtual machines can: create it with ",
                field("runtime").is("qemu").of("create_sandbox")
            ]));
        }
        let (Some(next), Some(machine)) = (self.decide(Request::Fork)?, self.row.machine.clone())
        else {
            return Err(refused(&self.row.sandbox, Refusal::OutOfOrder));
        };
        self.intend(Request::Fork).await?;
        self.excuse();
        let copies = self.runtime.fork(&machine, copies).await;
        if next == State::Running {
            self.expect_answers();
        }
        self.give_up().await;
        copies
    }

    /// Writes the machine with its memory into an empty directory. To the machine that is a fork
    /// whose copy comes later.
    pub(super) async fn save(&mut self, to: &Path) -> Result<()> {
        let (Some(next), Some(machine)) = (self.decide(Request::Fork)?, self.row.machine.clone())
        else {
            return Err(refused(&self.row.sandbox, Refusal::OutOfOrder));
        };
        self.intend(Request::Fork).await?;
        self.excuse();
        let saved = self.runtime.save(&machine, to).await;
        if next == State::Running {
            self.expect_answers();
        }
        self.give_up().await;
        saved
    }

    pub(super) async fn keepalive(&mut self, ask: Keepalive) -> Result<Sandbox> {
        let next = self.decide(Request::Keepalive)?;
        let now = &self.row.sandbox;
        let ttl = match ask.ttl_seconds {
            Some(asked) => limits::TTL_SECONDS.resolve(Some(asked))?,
            // Also that of a sandbox that never ends.
            None => now.ttl_seconds,
        };
        let idle = limits::IDLE_SECONDS.resolve(ask.idle_seconds.or(Some(now.idle_seconds)))?;
        let on_idle = ask.on_idle.unwrap_or(now.on_idle);
        if ask.on_idle.is_some() {
            check_on_idle(self.runtime.as_ref(), idle, on_idle)?;
        }
        let (user, launch) = self.start_otherwise(ask.user, ask.env).await?;
        let next = next.unwrap_or(self.row.sandbox.state);
        let stored = self.commit(next, |row| {
            row.sandbox.user = user;
            row.launch = launch;
            let sandbox = &mut row.sandbox;
            (sandbox.ttl_seconds, sandbox.idle_seconds) = (ttl, idle);
            sandbox.on_idle = on_idle;
            sandbox.expires_at = expiry(ttl);
            set_deadline(row);
        });
        if let Err(error) = stored.await {
            self.start_as_before().await;
            return Err(error);
        }
        let deadline = set_deadline(&mut self.row);
        self.inside.set_deadline(deadline.as_ref());
        self.lease();
        self.inside.touch();
        Ok(self.row.sandbox.clone())
    }

    pub(super) async fn machine_ended(&mut self, ended: Ended) {
        let request = match self.row.sandbox.keep {
            true => Request::KeptMachineEnded,
            false => Request::MachineEnded,
        };
        if let Ok(Some(next)) = self.decide(request) {
            self.row.sandbox.reason = Some(ended.reason);
            if let Err(error) = self.become_state(next).await {
                tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not store the end of a machine");
            }
            self.release().await;
            if next == State::Stopped {
                self.row.machine = None;
            }
        }
    }

    /// Ends everything the sandbox has. It does not stop at an error: the next start of the daemon
    /// finds leftovers by their directory.
    pub(super) async fn destroy(&mut self) {
        if let Ok(Some(next)) = self.decide(Request::Destroy) {
            if let Err(error) = self.become_state(next).await {
                tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not store the state `destroying`");
            }
            self.release().await;
            self.discard_disks().await;
        }
        if let Err(error) = self.become_state(State::Destroyed).await {
            tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not store the state `destroyed`");
        }
    }

    async fn discard_disks(&mut self) {
        let id: SandboxId = self.row.sandbox.sandbox_id.clone();
        let baseline = self.row.baseline();
        self.row.launch = None;
        if !self.row.sandbox.keep {
            return;
        }
        let forgotten = self.shared.store.forget_workspace(&id).await;
        let (home, trash) = (&self.shared.home, &self.shared.trash);
        let gone = home.discard_kept(trash, self.runtime.as_ref(), &id).await;
        let released = match baseline {
            Some(baseline) => self.shared.release_baseline(&baseline, &id).await,
            None => Ok(()),
        };
        if let Err(error) = forgotten.and(gone).and(released) {
            tracing::warn!(%id, %error, "could not remove the kept directory of a destroyed sandbox");
        }
    }

    pub(super) async fn release_guest(&mut self) {
        let guest = self.inside.guest().take();
        if let Some(guest) = guest {
            guest.close().await;
        }
    }

    pub(super) async fn release(&mut self) {
        if let Some(machine) = &self.row.machine {
            match self.runtime.destroy(machine).await {
                Ok(()) => self.discard_directory(machine),
                Err(error) => self.note_remains(&error),
            }
        }
        self.release_rest().await;
    }

    fn discard_directory(&self, machine: &Machine) {
        if let Err(error) = self.shared.trash.discard(&machine.dir) {
            self.note_remains(&error);
        }
    }

    fn note_remains(&self, error: &Error) {
        tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not remove the machine of a destroyed sandbox completely");
    }

    /// Ends what the sandbox has beside its machine.
    async fn release_rest(&mut self) {
        let id: SandboxId = self.row.sandbox.sandbox_id.clone();
        self.shared.leases.clear(&id);
        let gateways = self.shared.gateways.clone();
        match self.keep {
            Keep::Stored => gateways.end(&id).await,
            // A one-shot does not wait for its gateway, which ends by itself: the kernel takes 20
            // ms to remove its device.
            Keep::Transient => drop(tokio::spawn(async move { gateways.end(&id).await })),
        }
        // After the machine's end, so that calls in progress see why they ended.
        self.release_guest().await;
    }
}

/// What a sandbox whose machine is a new one says of it.
fn renewed(row: &mut SandboxRow) {
    row.sandbox.reason = None;
    if row
        .launch
        .as_ref()
        .is_some_and(|launch| launch.network.is_some())
    {
        row.sandbox.network = EGRESS.to_string();
    }
}
