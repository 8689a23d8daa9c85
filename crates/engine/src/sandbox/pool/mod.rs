//! The warm pool: machines that are made ahead of time.
//!
//! The operator names kinds in `config.toml`, and templates add theirs while the daemon runs. A few
//! machines of each kind are made ahead, in the background and one at a time. A call that asks for
//! exactly such a machine takes one, with the id it was made under, and its guest is told whom it
//! works for; the machine never comes back. Equal kinds are merged, and their counts added. The
//! pool is refilled only when the caller has its answer: making a machine at once would take the
//! CPUs that the taken one needs. One-shots of the same kind in a row have one machine made for the
//! next, see `spare.rs`. After a crash the next start of the daemon sweeps the pool's
//! directories, which no row mentions.

mod filling;
mod spare;

use self::spare::Spare;
use crate::admission::Admitted;
use crate::driver::{Launch, Origin, Shared};
use crate::guest::Guest;
use motu_core::runtime::{Machine, MachineLimits};
use motu_core::sandbox::CreateSandbox;
use motu_core::template::TemplatePool;
use motu_core::{Accel, Runtime, SandboxId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How long running calls may delay the refilling of the pool.
const REFILL_DELAY: Duration = Duration::from_millis(250);

/// How long a call waits for a machine that is being made, before it has one made for itself.
const COMING: Duration = Duration::from_secs(2);

/// How long a daemon that shuts down waits for the machine it is making.
const LAST_MACHINE: Duration = Duration::from_secs(5);

/// The properties two machines must share to replace each other.
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

/// A kind, and how many machines of it are wanted.
#[derive(Clone, Debug)]
struct Target {
    kind: Kind,
    request: CreateSandbox,
    ready: u64,
    /// The templates that want it; empty if only the operator does.
    templates: Vec<String>,
}

/// Whether one more machine of a kind may be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Free,
    Enough,
    /// The waiting machines use all the memory that the pool may have.
    NoMemory,
}

/// The state of the pools of templates.
#[derive(Debug, Default)]
struct Notes {
    targets: Vec<Target>,
    /// How many machines were taken, by template.
    taken: BTreeMap<String, u64>,
    /// Why there are too few machines, by template.
    problems: BTreeMap<String, String>,
}

/// A machine that is being made. Calls learn of its end by the sender, which is then gone.
#[derive(Debug)]
struct Coming {
    kind: Kind,
    made: watch::Receiver<()>,
    /// A call waits for it: the next ones do not.
    awaited: watch::Sender<bool>,
}

/// What the maker of a machine holds until it is made.
#[derive(Debug)]
struct Announced {
    /// Sends nothing: calls learn of the machine when it is dropped.
    _making: watch::Sender<()>,
    awaited: watch::Receiver<bool>,
}

impl Announced {
    fn is_awaited(&self) -> bool {
        *self.awaited.borrow()
    }

    /// Waits for a while, and returns true if no call asked for the machine meanwhile.
    async fn is_left_alone(&mut self, time: Duration) -> bool {
        let asked = self.awaited.wait_for(|awaited| *awaited);
        tokio::time::timeout(time, asked).await.is_err()
    }
}

/// A machine that has not been used.
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
    /// Notified when a machine was taken or has ended.
    wanted: Arc<Notify>,
    /// The number of calls that wait for a machine, or for the one command it is made for.
    served: Arc<watch::Sender<usize>>,
    /// Held while a machine is made that is not in `ready` yet.
    making: tokio::sync::Mutex<()>,
    /// The daemon is shutting down: no more machines are made.
    closed: AtomicBool,
    /// Counts changes of the wanted kinds.
    changes: AtomicU64,
    notes: Mutex<Notes>,
    spare: Mutex<Spare<Kind>>,
    coming: Mutex<Option<Coming>>,
}

/// A running call that delays refilling, until this is dropped.
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

    fn notes(&self) -> MutexGuard<'_, Notes> {
        lock(&self.notes)
    }

    /// The state of a template's pool.
    pub fn of_template(&self, name: &str) -> TemplatePool {
        let notes = self.notes();
        let mut targets = notes.targets.iter();
        let target = targets.find(|target| target.templates.iter().any(|one| one == name));
        let waits = |kind: &Kind| self.ready().iter().filter(|one| one.kind == *kind).count();
        TemplatePool {
            ready: target.map_or(0, |target| waits(&target.kind) as u64),
            taken: notes.taken.get(name).copied().unwrap_or(0),
            problem: notes.problems.get(name).cloned(),
        }
    }

    pub fn forget_template(&self, name: &str) {
        let mut notes = self.notes();
        notes.taken.remove(name);
        notes.problems.remove(name);
    }

    /// Records why there are too few machines of a kind, or that there are enough.
    fn note(&self, target: &Target, problem: Option<&str>) {
        let mut notes = self.notes();
        for name in &target.templates {
            match problem {
                Some(problem) => drop(notes.problems.insert(name.clone(), problem.to_string())),
                None => drop(notes.problems.remove(name)),
            }
        }
    }

    /// Takes out the machines that are no longer wanted.
    fn take_surplus(&self, targets: &[Target]) -> Vec<Ready> {
        let mut ready = self.ready();
        let (mut kept, mut surplus) = (Vec::new(), Vec::new());
        for found in ready.drain(..) {
            let same = kept.iter().filter(|one: &&Ready| one.kind == found.kind);
            let target = targets.iter().find(|target| target.kind == found.kind);
            match target.is_some_and(|target| (same.count() as u64) < target.ready) {
                true => kept.push(found),
                false => surplus.push(found),
            }
        }
        *ready = kept;
        surplus
    }

    /// Registers a running call, which delays refilling.
    pub fn serve(&self) -> Served {
        self.served.send_modify(|callers| *callers += 1);
        Served(self.served.clone())
    }

    /// Waits until no call is running, but at most `REFILL_DELAY`.
    async fn lull(&self) {
        let mut served = self.served.subscribe();
        let nobody = served.wait_for(|callers| *callers == 0);
        // The machine is made even if calls are still running.
        let _ = tokio::time::timeout(REFILL_DELAY, nobody).await;
    }

    /// A machine for this sandbox, which then takes the machine's id. A call that insists on limits
    /// is never served from the pool: `create` checks whether they can be enforced.
    pub async fn claim(&self, admitted: &mut Admitted) -> Option<Origin> {
        let kind = served_kind(admitted)?;
        let taken = match self.take(&kind) {
            Some(taken) => taken,
            None => {
                self.nearly_made(&kind).await?;
                self.take(&kind)?
            }
        };
        self.wanted.notify_one();
        if let Some(template) = &admitted.sandbox.template {
            let name = template.name.clone();
            *self.notes().taken.entry(name).or_default() += 1;
        }
        admitted.sandbox.sandbox_id = taken.id;
        Some(Origin::Pool(taken.machine, taken.guest))
    }

    fn take(&self, kind: &Kind) -> Option<Ready> {
        let mut ready = self.ready();
        let at = ready.iter().position(|found| found.kind == *kind)?;
        Some(ready.remove(at))
    }

    /// Waits for a machine of this kind that is being made, and for which nobody waits: it is there
    /// sooner than one begun now.
    async fn nearly_made(&self, kind: &Kind) -> Option<()> {
        let mut made = {
            let mut coming = lock(&self.coming);
            let coming = coming.as_mut()?;
            if coming.kind != *kind || coming.awaited.send_replace(true) {
                return None;
            }
            coming.made.clone()
        };
        // The sender sends nothing: it is dropped when the machine is made, or cannot be.
        let _ = tokio::time::timeout(COMING, made.changed()).await;
        Some(())
    }

    /// Tells calls that a machine of this kind is being made, until the result is dropped.
    fn announce(&self, kind: &Kind) -> Announced {
        let (making, made) = watch::channel(());
        let (awaited, asked) = watch::channel(false);
        *lock(&self.coming) = Some(Coming {
            kind: kind.clone(),
            made,
            awaited,
        });
        Announced {
            _making: making,
            awaited: asked,
        }
    }

    /// Notes a one-shot: soon there may be another of its kind.
    pub fn note_one_shot(&self, request: &CreateSandbox, admitted: &Admitted, within: Duration) {
        let runtime = &admitted.runtime;
        // A template says itself how many machines wait for it.
        if within.is_zero() || !runtime.may_wait() || request.root.is_some() {
            return;
        }
        let Some(kind) = served_kind(admitted) else {
            return;
        };
        let request = CreateSandbox {
            environment: request.environment.clone(),
            runtime: Some(runtime.name().to_string()),
            accel: request.accel,
            size: request.size,
            io_mbps: request.io_mbps,
            iops: request.iops,
            ..CreateSandbox::default()
        };
        if lock(&self.spare).asked(kind, request, Instant::now(), within) {
            self.wanted.notify_one();
        }
    }

    /// Digests of environments that waiting machines use.
    pub fn digests(&self) -> Vec<String> {
        self.ready()
            .iter()
            .map(|found| found.digest.clone())
            .collect()
    }

    /// Ends every waiting machine, and the one that is being made. If that takes too long, the next
    /// daemon removes it as a machine without a row.
    pub async fn drain(&self, shared: &Shared) {
        self.closed.store(true, Ordering::SeqCst);
        let _made = tokio::time::timeout(LAST_MACHINE, self.making.lock()).await;
        let all = std::mem::take(&mut *self.ready());
        for found in all {
            end(found, shared).await;
        }
    }
}

/// Whether the caller set a limit that only `create` checks (processes, open files); the other
/// sizes are part of the kind.
fn insists(limits: &MachineLimits) -> bool {
    limits.pids_max.explicit || limits.nofile.explicit
}

/// The kind of a sandbox that the pool may serve: its machines have no network device.
fn served_kind(admitted: &Admitted) -> Option<Kind> {
    let launch = &admitted.launch;
    let own = admitted.named
        || launch.kept.is_some()
        || launch.network.is_some()
        || insists(&launch.limits);
    (!own).then(|| Kind::of(admitted.runtime.as_ref(), launch))
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

async fn end(found: Ready, shared: &Shared) {
    found.guest.close().await;
    let gone = found.runtime.destroy(&found.machine).await;
    if let Err(error) = gone.and_then(|()| shared.trash.discard(&found.machine.dir)) {
        tracing::warn!(id = %found.id, %error, "could not remove a machine of the warm pool completely");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[tokio::test]
    async fn a_machine_that_a_call_waits_for_is_left_as_it_is() {
        let (pool, kind) = (
            Pool::default(),
            Kind {
                runtime: "container".into(),
                root: PathBuf::from("/root"),
                wants_sudo: false,
                sizes: [1; 7],
                accel: Accel::default(),
            },
        );
        let moment = Duration::from_millis(1);
        let mut announced = pool.announce(&kind);
        assert!(announced.is_left_alone(moment).await);
        assert!(!announced.is_awaited());
        let mut waiting = Box::pin(pool.nearly_made(&kind));
        assert!(waiting.as_mut().now_or_never().is_none());
        assert!(announced.is_awaited());
        assert!(!announced.is_left_alone(COMING).await);
        // A second call makes its own.
        assert_eq!(pool.nearly_made(&kind).await, None);
        drop(announced);
        assert_eq!(waiting.await, Some(()));
    }
}
