//! Machines that wait ready.
//!
//! The operator names kinds in `config.toml`. For each a few machines are made
//! ahead, in the background and one at a time; a call that asks for exactly such a
//! machine takes one, with the id it was made under, and its guest is told whom it
//! works for. A machine that was taken never comes back. The next one is made when
//! the caller has what it came for: made at once, it would take the processors that
//! the taken one is to answer with. The daemon's crash leaves directories that no
//! row knows, which the next start sweeps.

use super::Sandboxes;
use crate::admission::Admitted;
use crate::driver::{Launch, Origin, Shared, identity};
use crate::guest::Guest;
use bytes::Bytes;
use futures_util::StreamExt;
use motu_core::config::PoolKind;
use motu_core::runtime::{Machine, MachineLimits};
use motu_core::sandbox::CreateSandbox;
use motu_core::{Accel, Result, Runtime, SandboxId};
use motu_link::message as link;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long the first command of a waiting machine may take.
const WARM_TIME: Duration = Duration::from_secs(10);
/// How long a kind that could not be made is left alone.
const RETRY: Duration = Duration::from_secs(30);

/// How long callers who are being served may hold up the making of machines.
const CALLERS_FIRST: Duration = Duration::from_millis(250);

/// How long a daemon that leaves waits for the machine it is making.
const LAST_MACHINE: Duration = Duration::from_secs(5);

/// What two machines must have in common to stand for each other.
#[derive(Clone, Debug, PartialEq)]
struct Kind {
    runtime: String,
    root: PathBuf,
    wants_sudo: bool,
    sizes: [u64; 7],
    accel: Accel,
}

impl Kind {
    fn of(runtime: &dyn Runtime, launch: &Launch) -> Kind {
        let MachineLimits {
            vcpu_count,
            mem_mib,
            disk_mib,
            pids_max,
            nofile,
            io_mbps,
            iops,
        } = launch.limits;
        Kind {
            runtime: runtime.name().to_string(),
            root: launch.root.clone(),
            wants_sudo: launch.wants_sudo,
            sizes: [
                vcpu_count, mem_mib, disk_mib, pids_max, nofile, io_mbps, iops,
            ]
            .map(|ask| ask.value),
            accel: launch.accel,
        }
    }

    fn mem_mib(&self) -> u64 {
        self.sizes[1]
    }
}

/// A machine nobody has used.
#[derive(Debug)]
struct Ready {
    kind: Kind,
    digest: String,
    id: SandboxId,
    machine: Machine,
    guest: Arc<Guest>,
    runtime: Arc<dyn Runtime>,
}

#[derive(Debug, Default)]
pub struct Pool {
    ready: Arc<Mutex<Vec<Ready>>>,
    /// Something was taken, or ended.
    wanted: Arc<Notify>,
    /// Callers who wait for a machine, or for the one command it is there for.
    served: Arc<watch::Sender<usize>>,
    /// Held while a machine is made that nobody could find yet.
    making: tokio::sync::Mutex<()>,
    /// The daemon leaves: no more machines are made.
    closed: AtomicBool,
}

/// A caller who is being served, for as long as this lives.
#[derive(Debug)]
pub struct Served(Arc<watch::Sender<usize>>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.send_modify(|callers| *callers -= 1);
    }
}

impl Pool {
    fn ready(&self) -> MutexGuard<'_, Vec<Ready>> {
        lock(&self.ready)
    }

    /// Counts a caller among those that machines are not to be made beside.
    pub fn serve(&self) -> Served {
        self.served.send_modify(|callers| *callers += 1);
        Served(self.served.clone())
    }

    /// Waits until nobody is being served; those who take their time are not waited for.
    async fn lull(&self) {
        let mut served = self.served.subscribe();
        let nobody = served.wait_for(|callers| *callers == 0);
        // Late or not, the machine is made.
        let _ = tokio::time::timeout(CALLERS_FIRST, nobody).await;
    }

    /// A machine for this sandbox, which then has the machine's id. Limits that a caller
    /// insists on are looked at by `create`, so such a call is never served from here.
    pub fn claim(&self, admitted: &mut Admitted) -> Option<Origin> {
        let launch = &admitted.launch;
        if admitted.named || launch.kept.is_some() || insists(&launch.limits) {
            return None;
        }
        // What waits has no network device.
        if launch.network.is_some() {
            return None;
        }
        let kind = Kind::of(admitted.runtime.as_ref(), &admitted.launch);
        let taken = {
            let mut ready = self.ready();
            let at = ready.iter().position(|found| found.kind == kind)?;
            ready.remove(at)
        };
        self.wanted.notify_one();
        admitted.sandbox.sandbox_id = taken.id;
        Some(Origin::Pool(taken.machine, taken.guest))
    }

    /// Digests of environments that waiting machines use.
    pub fn digests(&self) -> Vec<String> {
        self.ready()
            .iter()
            .map(|found| found.digest.clone())
            .collect()
    }

    /// Ends every waiting machine, and the one that is being made. One that takes too long is left
    /// to the next daemon, which removes what nobody has.
    pub async fn drain(&self, shared: &Shared) {
        self.closed.store(true, Ordering::SeqCst);
        let _made = tokio::time::timeout(LAST_MACHINE, self.making.lock()).await;
        let all = std::mem::take(&mut *self.ready());
        for found in all {
            end(found, shared).await;
        }
    }
}

/// Sizes the caller named are checked for being enforceable; those are fine, the others have no size in a pool.
fn insists(limits: &MachineLimits) -> bool {
    limits.pids_max.explicit || limits.nofile.explicit
}

fn lock(ready: &Mutex<Vec<Ready>>) -> MutexGuard<'_, Vec<Ready>> {
    ready
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Lets a machine do once what its caller will ask for first: what it has run before, it
/// runs faster. An environment without a shell is as good as any other.
async fn warm(found: &Ready) -> Result<()> {
    let guest = &found.guest;
    let owns_kernel = found.machine.accelerator.is_some();
    let init = link::Init {
        default_user: "0".into(),
        ..identity(found.id.as_str(), owns_kernel)?
    };
    guest.init(init).await?;
    for shell in [true, false] {
        let first = link::Start {
            argv: vec![Bytes::from_static(b"true")],
            shell,
            user: "root".into(),
            cwd: Bytes::from_static(b"/"),
            follow: true,
            forget: true,
            timeout_ms: WARM_TIME.as_millis() as u64,
            ..link::Start::default()
        };
        // What cannot be started here is no reason not to wait.
        let Ok(mut session) = guest.start(first).await else {
            continue;
        };
        while let Some(Ok(_)) = session.events.next().await {}
    }
    Ok(())
}

async fn end(found: Ready, shared: &Shared) {
    found.guest.close().await;
    let gone = found.runtime.destroy(&found.machine).await;
    if let Err(error) = gone.and_then(|()| shared.trash.discard(&found.machine.dir)) {
        tracing::warn!(id = %found.id, %error, "something of a waiting machine was left behind");
    }
}

impl Sandboxes {
    /// Keeps the pool full for as long as the engine lives.
    pub(crate) fn fill_pool(self: Arc<Self>) {
        if self.config.pool.is_empty() {
            return;
        }
        let wanted = self.pool.wanted.clone();
        let engine = Arc::downgrade(&self);
        drop(self);
        tokio::spawn(async move {
            loop {
                let filled = match engine.upgrade() {
                    Some(engine) => engine.fill_once().await,
                    None => return,
                };
                // A kind that cannot be made now may be possible later (an environment is pulled).
                match filled {
                    true => wanted.notified().await,
                    false => {
                        let _ = tokio::time::timeout(RETRY, wanted.notified()).await;
                    }
                }
            }
        });
    }

    /// Makes what is missing; false if something could not be made.
    async fn fill_once(self: Arc<Self>) -> bool {
        let mut filled = true;
        for kind in self.config.pool.clone() {
            for _ in 0..kind.ready {
                self.pool.lull().await;
                match self.add_ready(&kind).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        tracing::warn!(environment = kind.environment, %error, "the warm pool is not full");
                        filled = false;
                        break;
                    }
                }
            }
        }
        filled
    }

    /// Makes one more machine of a kind; false if there are enough.
    async fn add_ready(&self, wanted: &PoolKind) -> Result<bool> {
        let _environments_stay = self.environments_in_use.read().await;
        let _making = self.pool.making.lock().await;
        if self.pool.closed.load(Ordering::SeqCst) {
            return Ok(false);
        }
        let request = CreateSandbox {
            environment: wanted.environment.clone(),
            runtime: wanted.runtime.clone(),
            accel: wanted.accel,
            vcpu_count: wanted.vcpu_count,
            mem_mib: wanted.mem_mib,
            disk_mib: wanted.disk_mib,
            ..CreateSandbox::default()
        };
        let admitted = self.gate().admit(request).await?;
        let kind = Kind::of(admitted.runtime.as_ref(), &admitted.launch);
        if !self.has_room(&kind, wanted.ready) {
            return Ok(false);
        }
        let id = admitted.sandbox.sandbox_id.clone();
        let dir = self
            .shared
            .home
            .make_machine(admitted.runtime.name(), &id)?;
        let spec = admitted
            .launch
            .spec(id.clone(), dir.clone(), &self.shared.gateways, None);
        let machine = match admitted.runtime.create(&spec).await {
            Ok(machine) => machine,
            Err(error) => {
                self.shared.trash.discard(&dir)?;
                return Err(error);
            }
        };
        let guest = Guest::new(
            admitted.runtime.clone(),
            machine.clone(),
            self.shared.bounds,
        );
        let found = Ready {
            kind,
            digest: admitted.sandbox.digest,
            id,
            machine,
            guest,
            runtime: admitted.runtime,
        };
        if let Err(error) = warm(&found).await {
            end(found, &self.shared).await;
            return Err(error);
        }
        self.watch_ready(&found);
        self.pool.ready().push(found);
        Ok(true)
    }

    fn has_room(&self, kind: &Kind, wanted: u64) -> bool {
        let ready = self.pool.ready();
        let same = ready.iter().filter(|found| found.kind == *kind).count() as u64;
        let used: u64 = ready.iter().map(|found| found.kind.mem_mib()).sum();
        same < wanted && used + kind.mem_mib() <= self.config.pool_mem_mib
    }

    /// A machine that ends while it waits leaves the pool.
    fn watch_ready(&self, found: &Ready) {
        let (runtime, machine) = (found.runtime.clone(), found.machine.clone());
        let ready: Weak<Mutex<Vec<Ready>>> = Arc::downgrade(&self.pool.ready);
        let (shared, wanted) = (self.shared.clone(), self.pool.wanted.clone());
        tokio::spawn(async move {
            runtime.ended(&machine).await;
            let Some(ready) = ready.upgrade() else { return };
            let gone = {
                let mut ready = lock(&ready);
                let at = ready.iter().position(|found| found.id == machine.id);
                at.map(|at| ready.remove(at))
            };
            if let Some(gone) = gone {
                end(gone, &shared).await;
                wanted.notify_one();
            }
        });
    }
}
