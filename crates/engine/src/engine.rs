//! The engine: the table of live sandboxes and how they come into it.

use crate::admission::{Admitted, Gate};
use crate::choose::Runtimes;
use crate::driver::{Bounds, Driver, Handle, Keep, Origin, Shared, Table};
use crate::egress::Gateways;
use crate::home::Home;
use crate::kept::Baselines;
use crate::pool::Pool;
use crate::quota::Claim;
use crate::store::{SandboxRow, Store};
use crate::terminal::Terminals;
use crate::trash::Trash;
use crate::workspace::Rooms;
use motu_core::config::Config;
use motu_core::report::ProgressEvent;
use motu_core::runtime::Kept;
use motu_core::sandbox::{CreateSandbox, Sandbox, State};
use motu_core::{Error, Result, Runtime, SandboxId};
use motu_environments::Environments;
use motu_redaction::{Patterns, Redactor};
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{RwLock, oneshot};

/// What an engine is made of.
#[derive(Debug)]
pub struct Setup {
    pub home: Home,
    pub runtimes: Vec<Arc<dyn Runtime>>,
    pub environments: Environments,
    /// The program of gateways, which is told to be one by [`crate::GATEWAY`]; without one no
    /// sandbox has a network.
    pub gateway: Option<PathBuf>,
}

/// The one implementation of the service.
#[derive(Debug)]
pub struct Engine {
    pub(crate) shared: Arc<Shared>,
    pub(crate) table: Arc<Table>,
    pub(crate) config: Config,
    pub(crate) runtimes: Runtimes,
    pub(crate) environments: Environments,
    /// Held for reading while a sandbox takes an environment, for writing while environments are removed.
    pub(crate) environments_in_use: RwLock<()>,
    pub(crate) pool: Pool,
    pub(crate) workspaces: Rooms,
    pub(crate) terminals: Arc<Terminals>,
    pub(crate) audit: Arc<motu_audit::Log>,
    /// Well-known credentials that are taken out of what is shown.
    pub(crate) patterns: Patterns,
    /// Takes them out of what commands of plain sandboxes show, if the operator wants that.
    pub(crate) commands: Redactor,
}

impl Engine {
    /// Opens a state directory: reads the store, adopts what runs, cleans up what a crash left.
    pub async fn open(setup: Setup) -> Result<Arc<Engine>> {
        let config = setup.home.config()?;
        let patterns = crate::shown::patterns(&config.redaction)?;
        let commands = match config.redaction.commands {
            true => Redactor::new([], &patterns),
            false => Redactor::idle(),
        };
        crate::recover::check(&setup.home)?;
        let store = Store::open(&setup.home.database())?;
        let table = Arc::new(Table::default());
        let audit = motu_audit::Log::open(setup.home.path(), (&config.audit).into());
        let engine = Arc::new(Engine {
            shared: Arc::new(Shared {
                trash: Trash::open(setup.home.path())?,
                baselines: Baselines::open(&setup.home)?,
                gateways: Gateways::open(&setup.home, setup.gateway)?,
                home: setup.home,
                store,
                bounds: (&config).into(),
                table: Arc::downgrade(&table),
            }),
            table,
            config,
            runtimes: Runtimes::new(setup.runtimes),
            environments: setup.environments,
            environments_in_use: RwLock::new(()),
            pool: Pool::default(),
            workspaces: Rooms::default(),
            terminals: Arc::default(),
            audit: Arc::new(audit),
            patterns,
            commands,
        });
        engine.adopt().await?;
        engine.adopt_workspaces().await?;
        engine.adopt_terminals().await?;
        engine.shared.store.checkpoint().await?;
        engine.clone().fill_pool();
        engine.watch_space();
        Ok(engine)
    }

    /// Lets runtimes let go of what they made from environments that are gone. What is left of it
    /// is only space, and goes the next time.
    pub(crate) async fn tell_of_removal(&self) {
        for runtime in self.runtimes.all() {
            if let Err(error) = runtime.environments_removed().await {
                tracing::warn!(runtime = runtime.name(), %error, "something of a removed environment is left");
            }
        }
    }

    /// Lets go of what no caller knows of: machines that wait ready. Sandboxes stay.
    pub async fn close(&self) {
        self.pool.drain(&self.shared).await;
        if let Err(error) = self.shared.store.checkpoint().await {
            tracing::warn!(%error, "the store's log is not written back");
        }
        if let Err(error) = self.audit.flush().await {
            tracing::warn!(%error, "the audit log may miss the last reads");
        }
    }

    /// How many sandboxes there is something to look after for.
    pub fn live(&self) -> usize {
        let all = self.table.all();
        all.iter()
            .filter(|handle| handle.state() != State::Stopped)
            .count()
    }

    /// Where calls are recorded: by whoever stands before this engine.
    pub fn audit(&self) -> Arc<motu_audit::Log> {
        self.audit.clone()
    }

    pub fn config(&self) -> &Config {
        &self.config
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

    /// Makes a sandbox and returns its handle once its guest answers.
    pub(crate) async fn make(
        &self,
        request: CreateSandbox,
        keep: Keep,
    ) -> Result<(Sandbox, Arc<Handle>)> {
        let _served = self.pool.serve();
        let _environments_stay = self.environments_in_use.read().await;
        let mut admitted = self.gate().admit(request).await?;
        if admitted.sandbox.keep {
            let id = admitted.sandbox.sandbox_id.clone();
            let owner = crate::kept::owner(&admitted.launch.root, &admitted.sandbox.user);
            self.unused(&id).await?;
            admitted.launch.kept = Some(Kept {
                baseline: self.shared.baselines.empty(owner)?,
                dir: self.shared.home.make_disks(&id)?,
            });
        }
        let origin = self.pool.claim(&mut admitted);
        self.start(admitted, keep, origin.unwrap_or(Origin::New(None)))
            .await
    }

    /// Enters a sandbox and starts its driver.
    pub(crate) async fn start(
        &self,
        admitted: Admitted,
        keep: Keep,
        origin: Origin,
    ) -> Result<(Sandbox, Arc<Handle>)> {
        let (handle, answered) = self.enter(admitted, keep, origin)?;
        let sandbox = answered
            .await
            .map_err(|_| Error::internal("the sandbox's driver stopped"))??;
        Ok((sandbox, handle))
    }

    pub(crate) fn enter(
        &self,
        admitted: Admitted,
        keep: Keep,
        origin: Origin,
    ) -> Result<(Arc<Handle>, oneshot::Receiver<Result<Sandbox>>)> {
        let row = SandboxRow {
            sandbox: admitted.sandbox,
            machine: None,
            launch: Some(admitted.launch),
            revision: 0,
        };
        let id = row.sandbox.sandbox_id.clone();
        let claim = Claim::of(&row.sandbox, row.launch.as_ref());
        let (driver, handle) =
            Driver::new(self.shared.clone(), admitted.runtime.clone(), keep, row);
        self.table
            .enter(&id, handle.clone(), claim, Some(self.bounds()))?;
        let (answer, answered) = oneshot::channel();
        tokio::spawn(driver.create(origin, answer));
        Ok((handle, answered))
    }

    /// Makes sure that an id is nobody's before anything is put under it.
    pub(crate) async fn unused(&self, id: &SandboxId) -> Result<()> {
        let taken = self.table.get(id).is_some() || self.shared.home.kept(id).exists();
        if taken {
            return Err(Error::conflict(format!("{id} exists already"))
                .hint("choose another id, or leave it out"));
        }
        Ok(())
    }

    /// The live sandbox of that name, or why there is none.
    pub(crate) async fn handle(&self, id: &SandboxId) -> Result<Arc<Handle>> {
        if let Some(handle) = self.table.get(id) {
            handle.beyond().settled().await;
            return Ok(handle);
        }
        match self.shared.store.get(id).await? {
            Some(row) => Err(crate::driver::refused(
                &row.sandbox,
                crate::lifecycle::Refusal::Destroyed,
            )),
            None => {
                Err(Error::not_found(format!("there is no sandbox {id}"))
                    .hint("`motu ps` lists them"))
            }
        }
    }
}

/// A step of an environment's pull, in the service's words.
pub(crate) fn progress_event(event: motu_environments::ProgressEvent) -> ProgressEvent {
    ProgressEvent {
        stage: event.stage,
        message: event.message,
        done: event.done,
        total: event.total,
    }
}
