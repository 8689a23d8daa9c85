//! Keeping the pool full, in the background.

use super::{Announced, Kind, Ready, Space, Target, end, lock};
use crate::driver::identity;
use crate::guest::Guest;
use crate::sandbox::{Sandboxes, fill};
use bytes::Bytes;
use futures_util::StreamExt;
use motu_core::Result;
use motu_core::sandbox::CreateSandbox;
use motu_link::message as link;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// How long the first command of a waiting machine may take.
const WARM_TIME: Duration = Duration::from_secs(10);
/// How long to wait before a kind that could not be made is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// How long a new machine is left alone before its first command: calls in quick succession take
/// it at once, and their processors are theirs.
const CALM: Duration = Duration::from_millis(25);

/// Runs first commands in a waiting machine, which fills its caches and makes the caller's first
/// command faster; a call that is already there takes the machine as it is. An environment without
/// a shell is no error.
async fn warm(found: &Ready, announced: &mut Announced) -> Result<()> {
    let guest = &found.guest;
    let owns_kernel = found.machine.accelerator.is_some();
    let init = link::Init {
        default_user: "0".into(),
        ..identity(found.id.as_str(), owns_kernel)?
    };
    guest.init(init).await?;
    if !announced.is_left_alone(CALM).await {
        return Ok(());
    }
    for shell in [true, false] {
        if announced.is_awaited() {
            break;
        }
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

impl Sandboxes {
    /// Keeps the pool full for as long as the engine lives.
    pub(crate) fn fill_pool(self: Arc<Self>) {
        let wanted = self.pool.wanted.clone();
        let engine = Arc::downgrade(&self);
        drop(self);
        tokio::spawn(async move {
            loop {
                let again = match engine.upgrade() {
                    Some(engine) => engine.fill_once().await,
                    None => return,
                };
                match again {
                    None => wanted.notified().await,
                    Some(again) => {
                        let _ = tokio::time::timeout_at(again, wanted.notified()).await;
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
        self.add_spare(&mut targets).await;
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

    /// Adds the spare's kind, unless machines of it wait already.
    async fn add_spare(&self, targets: &mut Vec<Target>) {
        let wanted = lock(&self.pool.spare).wanted(Instant::now(), self.spare_time());
        let Some(request) = wanted else { return };
        match self.target(request, 1).await {
            Ok(target) if targets.iter().any(|known| known.kind == target.kind) => {}
            Ok(target) => targets.push(target),
            Err(error) => {
                tracing::debug!(%error, "no spare machine is made");
                lock(&self.pool.spare).forget();
            }
        }
    }

    /// Ends the spare machine: nobody asked for it, so it must not stand in the way of anything.
    pub(crate) async fn end_spare(&self) {
        let wanted = lock(&self.pool.spare).wanted(Instant::now(), self.spare_time());
        if wanted.is_some() {
            lock(&self.pool.spare).forget();
            self.settle_pool().await;
        }
    }

    pub(crate) fn spare_time(&self) -> Duration {
        Duration::from_secs(self.config.spare_seconds)
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

    /// Makes the missing machines, and says when to look again: a kind that cannot be made now may
    /// be possible later, for example after its environment is pulled; a spare is kept for a while.
    async fn fill_once(self: Arc<Self>) -> Option<Instant> {
        let retry = (!self.fill().await).then(|| Instant::now() + RETRY);
        let until = lock(&self.pool.spare).look_again(Instant::now(), self.spare_time());
        retry.into_iter().chain(until).min()
    }

    /// Returns false if a machine could not be made.
    async fn fill(&self) -> bool {
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
        let mut announced = self.pool.announce(&kind);
        let id = admitted.sandbox.sandbox_id.clone();
        let dir = self.shared.make_machine(admitted.runtime.name(), &id)?;
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
        if let Err(error) = warm(&found, &mut announced).await {
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
