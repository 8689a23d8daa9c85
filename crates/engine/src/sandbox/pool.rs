//! The warm pool: machines that are made ahead of time.
//!
//! The operator names kinds in `config.toml`, and templates add theirs while the daemon runs. A few
//! machines of each kind are made ahead, in the background and one at a time. A call that asks for
//! exactly such a machine takes one, with the id it was made under, and its guest is told whom it
//! works for; the machine never comes back. Equal kinds are merged, and their counts added. The
//! pool is refilled only when the caller has its answer: making a machine at once would take the
//! CPUs that the taken one needs. After a crash the next start of the daemon sweeps the pool's
//! directories, which no row mentions.

use super::{Sandboxes, fill};
use crate::admission::Admitted;
use crate::driver::{Launch, Origin, Shared, identity};
use crate::guest::Guest;
use bytes::Bytes;
use futures_util::StreamExt;
use motu_core::runtime::{Machine, MachineLimits};
use motu_core::sandbox::CreateSandbox;
use motu_core::template::TemplatePool;
use motu_core::{Accel, Result, Runtime, SandboxId};
use motu_link::message as link;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// How long the first command of a waiting machine may take.
const WARM_TIME: Duration = Duration::from_secs(10);
/// How long to wait before a kind that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// How long running calls may delay the refilling of the pool.
const REFILL_DELAY: Duration = Duration::from_millis(250);

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
    pub fn claim(&self, admitted: &mut Admitted) -> Option<Origin> {
        let launch = &admitted.launch;
        if admitted.named || launch.kept.is_some() || insists(&launch.limits) {
            return None;
        }
        // Machines of the pool have no network device.
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
        if let Some(template) = &admitted.sandbox.template {
            let name = template.name.clone();
            *self.notes().taken.entry(name).or_default() += 1;
        }
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

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs a first command in a waiting machine, which fills its caches and makes the caller's first
/// command faster. An environment without a shell is no error.
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
        // A command that cannot be started is no reason to reject the machine.
        let Ok(mut session) = guest.start(first).await else {
            continue;
        };
        while let Some(Ok(_)) = session.events.next().await {}
    }
    Ok(())
}

/// Adds a kind to the wanted ones, or raises the count of an equal kind.
fn add(targets: &mut Vec<Target>, target: Target) {
    match targets.iter_mut().find(|known| known.kind == target.kind) {
        Some(known) => {
            known.ready += target.ready;
            known.templates.extend(target.templates);
        }
        None => targets.push(target),
    }
}

async fn end(found: Ready, shared: &Shared) {
    found.guest.close().await;
    let gone = found.runtime.destroy(&found.machine).await;
    if let Err(error) = gone.and_then(|()| shared.trash.discard(&found.machine.dir)) {
        tracing::warn!(id = %found.id, %error, "could not remove a machine of the warm pool completely");
    }
}

impl Sandboxes {
    /// Keeps the pool full for as long as the engine lives.
    pub(crate) fn fill_pool(self: Arc<Self>) {
        let wanted = self.pool.wanted.clone();
        let engine = Arc::downgrade(&self);
        drop(self);
        tokio::spawn(async move {
            loop {
                let filled = match engine.upgrade() {
                    Some(engine) => engine.fill_once().await,
                    None => return,
                };
                // A kind that cannot be made now may be possible later, for example after its
                // environment is pulled.
                match filled {
                    true => wanted.notified().await,
                    false => {
                        let _ = tokio::time::timeout(RETRY, wanted.notified()).await;
                    }
                }
            }
        });
    }

    /// Called when the wanted kinds have changed: ends surplus machines and starts refilling.
    pub(crate) async fn settle_pool(&self) {
        self.pool.changes.fetch_add(1, Ordering::SeqCst);
        self.pool.wanted.notify_one();
        self.targets().await;
    }

    /// The wanted kinds, without those that admission refuses. Ends machines of other kinds, unless
    /// something was refused: they may belong to that.
    async fn targets(&self) -> (Vec<Target>, bool) {
        let mut whole = true;
        let mut targets: Vec<Target> = Vec::new();
        for (request, ready) in self.kinds() {
            let template = request.made_from.as_ref().map(|from| from.name.clone());
            match self.target(request, ready).await {
                Ok(target) => add(&mut targets, target),
                Err(error) => {
                    tracing::warn!(template, %error, "the warm pool is not full");
                    if let Some(name) = template {
                        self.pool.notes().problems.insert(name, error.message);
                    }
                    whole = false;
                }
            }
        }
        let _nothing_is_made = self.pool.making.lock().await;
        self.pool.notes().targets.clone_from(&targets);
        let surplus = match whole {
            true => self.pool.take_surplus(&targets),
            false => Vec::new(),
        };
        for found in surplus {
            end(found, &self.shared).await;
        }
        (targets, whole)
    }

    /// The requests and counts of all wanted kinds: the operator's and the templates'.
    fn kinds(&self) -> Vec<(CreateSandbox, u64)> {
        let operators = self.config.pool.iter().map(|wanted| {
            let request = CreateSandbox {
                environment: wanted.environment.clone(),
                runtime: wanted.runtime.clone(),
                accel: wanted.accel,
                size: wanted.size,
                ..CreateSandbox::default()
            };
            (request, wanted.ready)
        });
        let templates = self.templates.list().into_iter();
        let templates = templates.filter(|template| template.definition.pool_size > 0);
        let templates = templates.map(|template| {
            let mut request = CreateSandbox::default();
            fill::from_template(&template, &mut request);
            (request, template.definition.pool_size)
        });
        operators.chain(templates).collect()
    }

    async fn target(&self, request: CreateSandbox, ready: u64) -> Result<Target> {
        let templates = request.made_from.iter().map(|from| from.name.clone());
        let templates = templates.collect();
        let admitted = self.gate().admit(request.clone()).await?;
        Ok(Target {
            kind: Kind::of(admitted.runtime.as_ref(), &admitted.launch),
            request,
            ready,
            templates,
        })
    }

    /// Makes the missing machines; returns false if one could not be made.
    async fn fill_once(self: Arc<Self>) -> bool {
        let changes = self.pool.changes.load(Ordering::SeqCst);
        let (targets, mut filled) = self.targets().await;
        for target in targets {
            for _ in 0..=target.ready {
                self.pool.lull().await;
                match self.add_ready(&target, changes).await {
                    Ok(Space::Free) => {}
                    Ok(Space::Enough) => {
                        self.pool.note(&target, None);
                        break;
                    }
                    Ok(Space::NoMemory) => {
                        let most = self.config.pool_mem_mib;
                        let problem = format!(
                            "all machines that wait may have {most} MiB together (pool_mem_mib)"
                        );
                        self.pool.note(&target, Some(&problem));
                        break;
                    }
                    Err(error) => {
                        let environment = &target.request.environment;
                        tracing::warn!(environment, %error, "the warm pool is not full");
                        self.pool.note(&target, Some(&error.message));
                        filled = false;
                        break;
                    }
                }
            }
        }
        filled
    }

    /// Makes one more machine of a kind, if there is room and the wanted kinds have not changed.
    async fn add_ready(&self, target: &Target, changes: u64) -> Result<Space> {
        let _environments_stay = self.environments_in_use.read().await;
        let _making = self.pool.making.lock().await;
        let changed = self.pool.changes.load(Ordering::SeqCst) != changes;
        if changed || self.pool.closed.load(Ordering::SeqCst) {
            return Ok(Space::Enough);
        }
        let admitted = self.gate().admit(target.request.clone()).await?;
        let kind = Kind::of(admitted.runtime.as_ref(), &admitted.launch);
        match self.space_in_pool(&kind, target.ready) {
            Space::Free => {}
            other => return Ok(other),
        }
        let id = admitted.sandbox.sandbox_id.clone();
        let dir = self
            .shared
            .home
            .make_machine(admitted.runtime.name(), &id)?;
        let spec = admitted
            .launch
            .spec(id.clone(), dir.clone(), &self.shared.gateways, None);
        let made = admitted.runtime.create(&spec).await;
        let made = self.shared.proofs.note(admitted.runtime.as_ref(), made);
        let machine = match made {
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
        Ok(Space::Free)
    }

    fn space_in_pool(&self, kind: &Kind, wanted: u64) -> Space {
        let ready = self.pool.ready();
        let same = ready.iter().filter(|found| found.kind == *kind).count() as u64;
        let used: u64 = ready.iter().map(|found| found.kind.mem_mib()).sum();
        match used + kind.mem_mib() <= self.config.pool_mem_mib {
            _ if same >= wanted => Space::Enough,
            true => Space::Free,
            false => Space::NoMemory,
        }
    }

    /// Removes a machine from the pool when it ends while waiting.
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
