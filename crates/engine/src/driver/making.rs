//! Makes the machine of a sandbox.

use super::handle::Prepare;
use super::{Driver, Keep, Launch};
use crate::admission::check_env;
use crate::guest::Guest;
use crate::outside::Outside;
use motu_core::audit::{self, AuditId};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::runtime::{Machine, MachineSpec};
use motu_core::sandbox::{Sandbox, State};
use motu_core::{Error, ErrorKind, Result};
use motu_link::message as link;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::oneshot;

/// How long a new guest may take to accept its identity.
const INIT_TIMEOUT: Duration = Duration::from_secs(30);
/// Entropy for a virtual machine from the pool, whose random state others may share.
const ENTROPY_BYTES: usize = 64;

/// Where a sandbox's first machine comes from.
pub enum Origin {
    /// A new machine, prepared before it may be used.
    New(Option<Prepare>),
    /// A machine from the pool, whose guest answers already.
    Pool(Machine, Arc<Guest>),
    /// A machine that was saved with its memory in this directory.
    Saved(PathBuf),
    /// A fork of another sandbox's machine, handed over when it exists.
    Copy {
        /// Signalled when the fork's row is stored: its machine is made only after that.
        written: oneshot::Sender<()>,
        machine: oneshot::Receiver<Machine>,
    },
}

impl Driver {
    /// Makes the machine, answers the caller, and looks after it until its end.
    pub async fn create(
        mut self,
        origin: Origin,
        answer: oneshot::Sender<Result<Sandbox>>,
        call: Option<AuditId>,
    ) {
        let id = self.row.sandbox.sandbox_id.clone();
        match audit::on_behalf(call, self.make(origin)).await {
            Ok(()) => {
                if answer.send(Ok(self.row.sandbox.clone())).is_ok() {
                    self.drive().await;
                } else {
                    // The create was never acknowledged, so no client knows this sandbox: remove
                    // it.
                    self.destroy().await;
                    self.leave();
                }
            }
            Err(error) => {
                tracing::debug!(%id, %error, "create failed");
                self.unmake().await;
                self.leave();
                let _ = answer.send(Err(error));
            }
        }
    }

    /// Reconnects to the machine of a sandbox that a previous daemon made, and finishes what that
    /// daemon had begun with it.
    pub async fn find_again(&mut self) {
        if let Some(machine) = self.row.machine.clone()
            && matches!(self.row.sandbox.state, State::Running | State::Paused)
        {
            self.connect(machine);
            if self.row.sandbox.state == State::Paused {
                self.excuse();
            }
        }
        if self.row.machine.is_none() && self.inside.expired() {
            // Nobody has to wonder what became of its machine.
            self.row.sandbox.reason = Some(crate::lifecycle::OUTLIVED.to_string());
        }
        if let Err(error) = self.finish().await {
            tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not finish a change that the previous daemon began");
        }
    }

    /// Takes over a sandbox of a previous daemon. It can be used before the returned task runs.
    pub fn adopt(mut self) -> impl Future<Output = ()> {
        let bound = self
            .row
            .launch
            .as_ref()
            .is_some_and(|own| own.border.is_some());
        if bound {
            self.inside.beyond.forget();
        }
        async move {
            // Send the stored rules again: the previous daemon may have died before the gateway got
            // them.
            if let Err(error) = self.enforce().await {
                tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "could not send the network rules to the gateway of an adopted sandbox");
            }
            self.inside.beyond.settle();
            self.lease();
            self.look().await;
            self.drive().await;
        }
    }

    fn connect(&mut self, machine: Machine) -> Arc<Guest> {
        let launch = self.row.launch.as_ref();
        let kept = launch.and_then(|launch| launch.kept.clone());
        let bounds = self.shared.bounds;
        let guest = Guest::keeping(self.runtime.clone(), machine, bounds, kept.clone());
        *self.inside.guest() = Some(guest.clone());
        *self.inside.disk() = kept.map(|kept| (self.runtime.clone(), kept));
        guest
    }

    async fn make(&mut self, origin: Origin) -> Result<()> {
        if self.keep == Keep::Stored {
            self.shared.store.insert(&self.row).await?;
        }
        match origin {
            Origin::New(prepare) => self.bring_up(prepare).await?,
            Origin::Pool(machine, guest) => {
                *self.inside.guest() = Some(guest.clone());
                self.own(machine, guest, true).await?;
            }
            Origin::Saved(from) => {
                let spec = self.spec().await?;
                let machine = self.runtime.restore(&from, &spec).await?;
                let guest = self.connect(machine.clone());
                self.own(machine, guest, false).await?;
            }
            Origin::Copy { written, machine } => {
                let _ = written.send(());
                let machine = machine
                    .await
                    .map_err(|_| Error::internal("the copy was never made"))?;
                let guest = self.connect(machine.clone());
                self.own(machine, guest, false).await?;
            }
        }
        self.commit(State::Running, |_| ()).await
    }

    /// Makes a machine and initializes its guest; the caller changes the state.
    pub(super) async fn bring_up(&mut self, prepare: Option<Prepare>) -> Result<()> {
        let spec = self.spec().await?;
        let made = self.make_machine(&spec).await;
        let guest = self.shared.proofs.note(self.runtime.as_ref(), made)?;
        match prepare {
            Some(prepare) => prepare(guest).await,
            None => Ok(()),
        }
    }

    async fn make_machine(&mut self, spec: &MachineSpec) -> Result<Arc<Guest>> {
        let machine = self.runtime.create(spec).await?;
        let guest = self.connect(machine.clone());
        self.own(machine, guest.clone(), false).await?;
        Ok(guest)
    }

    /// The runtime's specification of the machine, with an empty directory.
    async fn spec(&self) -> Result<MachineSpec> {
        let id = &self.row.sandbox.sandbox_id;
        let dir = self.shared.make_machine(self.runtime.name(), id)?;
        let launch = self.launch()?;
        let border = crate::border::values(&self.shared.home, launch.border.as_ref()).await?;
        if let Some(border) = &border {
            self.inside.beyond.learn(border);
        }
        Ok(launch.spec(id.clone(), dir, &self.shared.gateways, border))
    }

    pub(super) fn launch(&self) -> Result<Launch> {
        let launch = self.row.launch.clone();
        launch.ok_or_else(|| Error::internal("it is not known what the machine is made from"))
    }

    /// Stores a machine as this sandbox's and initializes its guest.
    async fn own(&mut self, machine: Machine, guest: Arc<Guest>, used_before: bool) -> Result<()> {
        self.row.sandbox.limits = machine.limits.clone();
        self.row.sandbox.accelerator = machine.accelerator.clone();
        self.row.machine = Some(machine.clone());
        self.lease();
        let around = self.runtime.surroundings(&machine);
        let moved = self.row.sandbox.keep && around.workdir.is_some();
        if self.row.sandbox.workdir.is_empty() || moved {
            self.row.sandbox.workdir = around.workdir.unwrap_or_else(|| "/".to_string());
        }
        // A virtual machine from the pool has an old clock and perhaps shared randomness: renew both.
        let renew = used_before && machine.accelerator.is_some();
        let (sandbox, launch) = (self.row.sandbox.clone(), self.launch()?);
        self.introduce(&guest, &machine, (&sandbox, &launch), renew)
            .await
    }

    /// Tells a guest how its machine is called and how commands start in it.
    pub(super) async fn introduce(
        &self,
        guest: &Guest,
        machine: &Machine,
        (sandbox, launch): (&Sandbox, &Launch),
        renew: bool,
    ) -> Result<()> {
        let around = self.runtime.surroundings(machine);
        let outside = match sandbox.policy {
            Some(_) => Outside::of_host(&self.shared.home, launch.border.clone()).await?,
            None => Outside::default(),
        };
        let variables = around.env.into_iter().chain(outside.variables());
        let init = guest.init(link::Init {
            default_user: sandbox.user.clone(),
            env: variables.chain(launch.env.clone()).collect(),
            default_cwd: bytes::Bytes::copy_from_slice(sandbox.workdir.as_bytes()),
            nameserver: outside.nameserver,
            certificates: outside.certificates,
            agent: outside.agent,
            known_hosts: outside.known_hosts,
            ..identity(sandbox.sandbox_id.as_str(), renew)?
        });
        tokio::time::timeout(INIT_TIMEOUT, init)
            .await
            .map_err(|_| Error::new(ErrorKind::Timeout, "the guest did not come up in 30 s"))?
    }

    /// Changes how commands start that do not say it themselves. The guest checks it first; whoever
    /// asked stores it. Returns the user and what the machine is made from then.
    pub(super) async fn start_otherwise(
        &self,
        user: Option<String>,
        env: BTreeMap<String, String>,
    ) -> Result<(String, Option<Launch>)> {
        let mut sandbox = self.row.sandbox.clone();
        if user.is_none() && env.is_empty() {
            return Ok((sandbox.user, self.row.launch.clone()));
        }
        check_env(&env)?;
        let mut launch = self.launch()?;
        sandbox.user = user.unwrap_or(sandbox.user);
        launch.env.extend(env);
        if let (State::Running, Some(machine)) = (sandbox.state, &self.row.machine) {
            let guest = self
                .inside
                .guest()
                .clone()
                .ok_or_else(|| Error::internal("a running sandbox has no guest"))?;
            self.introduce(&guest, machine, (&sandbox, &launch), false)
                .await?;
        } else if sandbox.state != State::Stopped {
            return Err(Error::conflict(format!(
                "{} is {}: how its commands start cannot be changed now",
                sandbox.sandbox_id, sandbox.state
            ))
            .hint(hint![verb("resume_sandbox"), " it first"]));
        }
        Ok((sandbox.user, Some(launch)))
    }

    /// Takes back a change of how commands start that could not be stored.
    pub(super) async fn start_as_before(&self) {
        let guest = self.inside.guest().clone();
        let (Some(guest), Some(machine), Ok(launch)) = (guest, &self.row.machine, self.launch())
        else {
            return;
        };
        if self.row.sandbox.state != State::Running {
            return;
        }
        let back = self.introduce(&guest, machine, (&self.row.sandbox, &launch), false);
        if let Err(error) = back.await {
            tracing::warn!(id = %self.row.sandbox.sandbox_id, %error, "commands may start as in a change that could not be stored");
        }
    }

    /// Removes every trace of a machine whose creation failed.
    async fn unmake(&mut self) {
        let id = self.row.sandbox.sandbox_id.clone();
        self.discard_machine().await;
        let (home, trash) = (&self.shared.home, &self.shared.trash);
        if let Err(error) = home.discard_kept(trash, self.runtime.as_ref(), &id).await {
            tracing::warn!(%id, %error, "could not remove the disks of a failed create");
        }
        if self.keep == Keep::Stored
            && let Err(error) = self.shared.store.delete(&id).await
        {
            tracing::warn!(%id, %error, "could not delete the row of a failed create");
        }
        if let Some(baseline) = self.row.baseline()
            && let Err(error) = self.shared.release_baseline(&baseline, &id).await
        {
            tracing::warn!(%id, %error, "could not release the baseline of a failed create");
        }
    }

    /// Removes the machine and its directory.
    pub(super) async fn discard_machine(&mut self) {
        let id = self.row.sandbox.sandbox_id.clone();
        let dir = self.shared.home.machine(self.runtime.name(), &id);
        self.shared.leases.clear(&id);
        self.release_guest().await;
        let swept = match self.row.machine.take() {
            Some(machine) => self.runtime.destroy(&machine).await,
            None => self.runtime.sweep(&id, &dir).await,
        };
        if let Err(error) = swept.and_then(|()| self.shared.trash.discard(&dir)) {
            tracing::warn!(%id, %error, "could not remove a failed machine completely");
        }
        self.shared.gateways.end(&id).await;
    }
}

/// The guest's `Init`: a hostname, and a new clock and entropy for a machine that needs them.
pub(crate) fn identity(name: &str, renew: bool) -> Result<link::Init> {
    Ok(link::Init {
        hostname: name.to_string(),
        clock_unix_ns: if renew { now_ns() } else { 0 },
        entropy: if renew {
            entropy()?
        } else {
            bytes::Bytes::new()
        },
        ..link::Init::default()
    })
}

fn now_ns() -> i64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    now.unwrap_or_default().as_nanos() as i64
}

fn entropy() -> Result<bytes::Bytes> {
    let mut bytes = vec![0u8; ENTROPY_BYTES];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::internal(format!("no random numbers: {error}")))?;
    Ok(bytes.into())
}
