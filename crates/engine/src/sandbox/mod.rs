//! Sandboxes: the table of the live ones, how they come into it, and what they share.
//!
//! ```text
//!   mod         making one: admission, a machine from the pool or a new one, its driver
//!   one_shot    a machine for one command; leaving is its end, which nobody waits for
//!   fork        copies of a running one
//!   pool        machines that wait ready
//!   waking      the next use of a dormant one
//!   adopt       what a former daemon left running; reconcile settles what it left undone
//!   templates   the templates there are; fill is what one adds to a request
//!   installed   environments that may have to be pulled first
//!   listed      lists of them, whole or in pages
//!   space       the disk they share, while it fills
//!   history     what they used, over time
//!   vault       secrets by name, on their way to sandboxes and gateways
//!   decisions   what gateways let through and refused
//! ```

mod adopt;
mod decisions;
pub(crate) mod fill;
mod fork;
mod history;
mod installed;
mod leaving;
mod listed;
mod one_shot;
mod pool;
mod reconcile;
mod space;
mod templates;
mod vault;
mod waking;

pub(crate) use installed::{account, progress_event};

use crate::admission::{Admitted, Gate};
use crate::blocking::blocking;
use crate::choose::Runtimes;
use crate::driver::{Bounds, Driver, Handle, Keep, Origin, Shared, Table};
use crate::quota::Claim;
use crate::store::SandboxRow;
use leaving::Leaving;
use motu_core::config::Config;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::runtime::Kept;
use motu_core::sandbox::{CreateSandbox, Sandbox, State};
use motu_core::{Error, ErrorKind, Result, Runtime, SandboxId, audit};
use motu_environments::Environments;
use motu_redaction::{Patterns, Redactor};
use pool::Pool;
use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use templates::TemplateTable;
use tokio::sync::{RwLock, oneshot};

/// How often what found no place waits for one-shots that are leaving.
const TRIES: usize = 2;

/// All sandboxes.
#[derive(Debug)]
pub struct Sandboxes {
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: Arc<Table>,
    pub(crate) config: Config,
    pub(crate) runtimes: Runtimes,
    pub(crate) environments: Environments,
    /// Held for reading while a sandbox takes an environment, for writing while environments are removed.
    pub(crate) environments_in_use: RwLock<()>,
    pub(crate) pool: Pool,
    pub(crate) leaving: Arc<Leaving>,
    /// Held while a dormant sandbox gets a driver.
    waking: tokio::sync::Mutex<()>,
    pub(crate) templates: TemplateTable,
    /// Held while a secret is counted and kept.
    secrets: Arc<tokio::sync::Mutex<()>>,
    /// Patterns of well-known credentials that are redacted from output.
    pub(crate) patterns: Patterns,
    /// Redacts these patterns in commands of plain sandboxes, if the operator enables it.
    pub(crate) commands: Redactor,
}

impl Sandboxes {
    pub fn new(
        (shared, table): (Arc<Shared>, Arc<Table>),
        config: Config,
        (runtimes, environments): (Vec<Arc<dyn Runtime>>, Environments),
        patterns: Patterns,
    ) -> Sandboxes {
        let commands = match config.redaction.commands {
            true => Redactor::new([], &patterns),
            false => Redactor::idle(),
        };
        let runtimes = Runtimes::new(runtimes, shared.proofs.clone());
        let templates = TemplateTable::new(config.quota.clone());
        Sandboxes {
            shared,
            table,
            config,
            runtimes,
            environments,
            environments_in_use: RwLock::new(()),
            pool: Pool::default(),
            leaving: Arc::default(),
            waking: tokio::sync::Mutex::default(),
            templates,
            secrets: Arc::default(),
            patterns,
            commands,
        }
    }

    /// How many sandboxes are not stopped.
    pub fn live(&self) -> usize {
        let all = self.table.awake();
        all.iter()
            .filter(|handle| handle.state() != State::Stopped)
            .count()
    }

    /// Lets runtimes delete what they derived from removed environments. A failure only costs space
    /// until the next time.
    pub(crate) async fn tell_of_removal(&self) {
        for runtime in self.runtimes.all() {
            if let Err(error) = runtime.environments_removed().await {
                tracing::warn!(runtime = runtime.name(), %error, "could not remove a runtime's files of a removed environment");
            }
        }
    }

    pub(crate) fn gate(&self) -> Gate<'_> {
        Gate {
            home: &self.shared.home,
            config: &self.config,
            runtimes: &self.runtimes,
            environments: &self.environments,
        }
    }

    /// How many sandboxes there may be, and of one owner.
    pub(crate) fn bounds(&self) -> Bounds<'_> {
        Bounds {
            sandboxes: self.config.max_sandboxes as usize,
            quota: &self.config.quota,
        }
    }

    /// Does something that takes a machine of a runtime. Where the choice is ours (`auto`) and a
    /// runtime turns out not to work, it is done again with the next one that satisfies the call.
    pub(crate) async fn with_next<T, W: Future<Output = Result<T>>>(
        &self,
        asked: Option<&str>,
        work: impl Fn() -> W,
    ) -> Result<T> {
        let auto = asked.unwrap_or(&self.config.runtime) == "auto";
        loop {
            let before = self.shared.proofs.disappointments();
            match work().await {
                Err(error)
                    if auto
                        && crate::proof::blames(&error)
                        && self.shared.proofs.disappointments() > before => {}
                done => return done,
            }
        }
    }

    /// Makes a sandbox and returns its handle once its guest answers.
    pub(crate) async fn make(
        &self,
        request: CreateSandbox,
        keep: Keep,
    ) -> Result<(Sandbox, Arc<Handle>)> {
        let asked = request.runtime.clone();
        let work = || self.make_once(request.clone(), keep);
        self.with_next(asked.as_deref(), work).await
    }

    async fn make_once(
        &self,
        request: CreateSandbox,
        keep: Keep,
    ) -> Result<(Sandbox, Arc<Handle>)> {
        let _served = self.pool.serve();
        let _waiting = self.leaving.wait_for_machine();
        let _environments_stay = self.environments_in_use.read().await;
        let mut admitted = self.gate().admit(request.clone()).await?;
        if admitted.sandbox.keep {
            let id = admitted.sandbox.sandbox_id.clone();
            let owner = crate::kept::owner(&admitted.launch.root, &admitted.sandbox.user);
            self.unused(&id).await?;
            admitted.launch.kept = Some(Kept {
                baseline: self.shared.baselines.empty(owner)?,
                dir: self.shared.home.make_disks(&id)?,
            });
        }
        if let Some(from) = self.asleep(&request) {
            // Disks that are kept are never without a row, not even a one-shot's.
            let keep = match admitted.sandbox.keep {
                true => Keep::Stored,
                false => keep,
            };
            self.room(&admitted).await;
            return self.start(admitted, keep, Origin::Saved(from)).await;
        }
        if keep == Keep::Transient {
            let within = self.spare_time();
            self.pool.note_one_shot(&request, &admitted, within);
        }
        self.room(&admitted).await;
        let origin = self.pool.claim(&mut admitted).await;
        self.start(admitted, keep, origin.unwrap_or(Origin::New(None)))
            .await
    }

    /// Where the machine is that a request's template was saved with.
    fn asleep(&self, request: &CreateSandbox) -> Option<PathBuf> {
        let from = request.made_from.as_ref()?;
        let template = self.templates.get(&from.name).ok()?;
        let saved = template
            .asleep()
            .filter(|_| template.version == from.version)?;
        Some(self.shared.home.saved_machine(&template.name, saved))
    }

    /// Waits for one-shots that are leaving if this sandbox needs their place. Before a machine of the
    /// pool is taken for it: [`Sandboxes::placed`] comes after, and would have wasted it.
    pub(crate) async fn room(&self, admitted: &Admitted) {
        if self.leaving.any() {
            let claim = Claim::of(&admitted.sandbox, Some(&admitted.launch));
            if self.table.could_enter(&claim, self.bounds()).is_err() {
                self.leaving.gone().await;
            }
        }
    }

    /// Enters a sandbox and starts its driver.
    pub(crate) async fn start(
        &self,
        admitted: Admitted,
        keep: Keep,
        origin: Origin,
    ) -> Result<(Sandbox, Arc<Handle>)> {
        let (handle, answered) = self.enter(admitted, keep, origin).await?;
        let sandbox = answered
            .await
            .map_err(|_| Error::internal("the sandbox's driver stopped"))??;
        Ok((sandbox, handle))
    }

    /// Does what needs a place. One-shots that are leaving have been answered: while any have the
    /// places, it waits for their end and tries again.
    pub(crate) async fn placed<T>(&self, mut place: impl FnMut() -> Result<T>) -> Result<T> {
        for _ in 0..TRIES {
            match place() {
                Err(error)
                    if matches!(error.kind, ErrorKind::Limit | ErrorKind::Conflict)
                        && self.leaving.any() =>
                {
                    self.leaving.gone().await;
                }
                done => return done,
            }
        }
        place()
    }

    pub(crate) async fn enter(
        &self,
        admitted: Admitted,
        keep: Keep,
        origin: Origin,
    ) -> Result<(Arc<Handle>, oneshot::Receiver<Result<Sandbox>>)> {
        let row = SandboxRow {
            sandbox: admitted.sandbox,
            intent: None,
            machine: None,
            launch: Some(admitted.launch),
            revision: 0,
        };
        let id = row.sandbox.sandbox_id.clone();
        let claim = Claim::of(&row.sandbox, row.launch.as_ref());
        let made_from = row.sandbox.template.as_ref().map(|from| from.name.clone());
        let (driver, handle) =
            Driver::new(self.shared.clone(), admitted.runtime.clone(), keep, row);
        let template = made_from.filter(|_| !matches!(origin, Origin::Copy { .. }));
        let enter = || {
            let (handle, claim) = (handle.clone(), claim.clone());
            self.table.enter(&id, handle, claim, self.bounds())
        };
        let place = || match &template {
            // It is not removed between the look at it and this.
            Some(name) => self.templates.while_there(name, enter),
            None => enter(),
        };
        self.placed(place).await?;
        let (answer, answered) = oneshot::channel();
        // Only making it is done for the call; the driver goes on.
        tokio::spawn(driver.create(origin, answer, audit::current()));
        Ok((handle, answered))
    }

    /// Checks that an id is unused before anything is stored under it.
    pub(crate) async fn unused(&self, id: &SandboxId) -> Result<()> {
        let taken = self.table.has(id) || self.shared.home.kept(id).exists();
        if taken {
            return Err(Error::conflict(format!("{id} exists already"))
                .hint("choose another id, or leave it out"));
        }
        Ok(())
    }

    /// The live sandbox with this id, or an error that says why there is none.
    pub(crate) async fn handle(&self, id: &SandboxId) -> Result<Arc<Handle>> {
        if let Some(handle) = self.get(id).await? {
            handle.beyond().settled().await;
            return Ok(handle);
        }
        match self.shared.store.get(id).await? {
            Some(row) => Err(crate::driver::refused(
                &row.sandbox,
                crate::lifecycle::Refusal::Destroyed,
            )),
            None => Err(Error::not_found(format!("there is no sandbox {id}"))
                .hint(hint![verb("list_sandboxes"), " lists them"])),
        }
    }

    /// Reads a policy.
    pub(crate) async fn policy(&self, name: &str) -> Result<motu_policy::Known> {
        let (shelf, name) = (self.shared.home.policies(), name.to_string());
        blocking(move || shelf.get(&name)).await
    }

    /// A sandbox that came from a template, if there is one.
    pub(crate) fn user_of(&self, template: &str) -> Option<SandboxId> {
        let all = self
            .table
            .awake()
            .into_iter()
            .map(|handle| handle.sandbox());
        let mut users = all.filter(|sandbox| {
            let from = sandbox.template.as_ref();
            from.is_some_and(|from| from.name == template)
        });
        let awake = users.next().map(|sandbox| sandbox.sandbox_id);
        awake.or_else(|| self.table.dormant_user_of(template))
    }

    /// Digests of environments that sandboxes, the pool or templates use.
    pub(crate) fn digests_in_use(&self) -> HashSet<String> {
        let sandboxes = self.table.awake();
        let digests = sandboxes.iter().map(|handle| handle.sandbox().digest);
        let digests = digests.chain(self.table.dormant_digests());
        let digests = digests.chain(self.pool.digests());
        let digests = digests.chain(self.templates.digests());
        digests.filter(|digest| !digest.is_empty()).collect()
    }
}
