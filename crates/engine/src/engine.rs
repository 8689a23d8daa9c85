//! The engine: its parts, put together.

use crate::call::Calls;
use crate::driver::{Handle, Shared, Table};
use crate::egress::Gateways;
use crate::environment::Environments;
use crate::events::Events;
use crate::found;
use crate::home::Home;
use crate::kept::Baselines;
use crate::keys::Keys;
use crate::lease::Leases;
use crate::record;
use crate::sandbox::Sandboxes;
use crate::store::Store;
use crate::template::Templates;
use crate::terminal::Terminals;
use crate::trash::Trash;
use crate::workspace::Workspaces;
use motu_core::config::Config;
use motu_core::hint;
use motu_core::hint::host;
use motu_core::{Error, Result, Runtime, SandboxId};
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// What an engine is made of.
#[derive(Debug)]
pub struct Setup {
    pub home: Home,
    pub runtimes: Vec<Arc<dyn Runtime>>,
    pub environments: motu_environments::Environments,
    /// The executable of gateways, started with [`crate::GATEWAY`]; without one no sandbox has a
    /// network.
    pub gateway: Option<PathBuf>,
}

/// Executes what callers ask for. Each part knows only those above it.
#[derive(Debug)]
pub struct Engine {
    pub(crate) sandboxes: Arc<Sandboxes>,
    pub(crate) environments: Arc<Environments>,
    pub(crate) templates: Arc<Templates>,
    pub(crate) workspaces: Arc<Workspaces>,
    pub(crate) terminals: Terminals,
    pub(crate) calls: Calls,
    pub(crate) audit: Arc<motu_audit::Log>,
    pub(crate) keys: Arc<Keys>,
    pub(crate) events: Events,
}

impl Engine {
    /// A live sandbox that is no workspace.
    pub(crate) async fn plain(&self, id: &SandboxId) -> Result<Arc<Handle>> {
        if self.workspaces.rooms.has(id) {
            return Err(Error::conflict(format!("{id} is a workspace")).hint(
                "environments and templates are made of plain sandboxes; a workspace has snapshots",
            ));
        }
        self.sandboxes.handle(id).await
    }

    /// Opens a state directory: reads the store, adopts what runs, cleans up what a crash left.
    pub async fn open(setup: Setup) -> Result<Arc<Engine>> {
        setup
            .environments
            .read_older_by(motu_core::project::of_older);
        let config = setup.home.config()?;
        let patterns = crate::shown::patterns(&config.redaction)?;
        check_store(&setup.home)?;
        let store = Store::open(&setup.home.database())?;
        let keys = Keys::open(&setup.home, store.clone()).await?;
        let events = Events::open(store.clone(), config.events.kept).await?;
        let table = Arc::new(Table::default());
        let audit = motu_audit::Log::open(setup.home.path(), (&config.audit).into());
        let shared = Arc::new(Shared {
            trash: Trash::open(setup.home.path())?,
            baselines: Baselines::open(&setup.home)?,
            leases: Leases::open(&setup.home, setup.gateway.clone()),
            gateways: Gateways::open(&setup.home, setup.gateway)?,
            home: setup.home,
            store,
            proofs: Arc::default(),
            bounds: (&config).into(),
            table: Arc::downgrade(&table),
            dormant_after: Duration::from_secs(config.dormant_seconds),
            dormancy: OnceLock::new(),
        });
        let sandboxes = Arc::new(Sandboxes::new(
            (shared, table),
            config,
            (setup.runtimes, setup.environments),
            patterns,
        ));
        let environments = Arc::new(Environments::new(sandboxes.clone()));
        let templates = Templates::new(sandboxes.clone(), environments.clone());
        let templates = Arc::new(templates);
        let workspaces = Arc::new(Workspaces::new(sandboxes.clone(), templates.clone()));
        let engine = Arc::new(Engine {
            environments,
            templates,
            terminals: Terminals::new(sandboxes.clone(), workspaces.clone()),
            calls: Calls::new(sandboxes.clone(), workspaces.clone()),
            workspaces,
            sandboxes,
            audit: Arc::new(audit),
            keys,
            events,
        });
        let workspaces: Weak<Workspaces> = Arc::downgrade(&engine.workspaces);
        let _ = engine.sandboxes.shared.dormancy.set(workspaces);
        // Before what this daemon finds and finishes.
        engine.events.started().await;
        engine.sandboxes.adopt().await?;
        engine.workspaces.adopt().await?;
        engine.terminals.adopt().await?;
        engine.templates.adopt().await?;
        engine.sandboxes.shared.store.checkpoint().await?;
        engine.sandboxes.clone().fill_pool();
        engine.sandboxes.watch_space();
        engine.sandboxes.watch_usage();
        Ok(engine)
    }

    /// Ends the machines of the pool, which no caller knows. Sandboxes stay.
    pub async fn close(&self) {
        self.keys.note().await;
        let pool = self.sandboxes.pool.drain(&self.sandboxes.shared);
        tokio::join!(pool, self.sandboxes.leaving.gone());
        if let Err(error) = self.sandboxes.shared.store.checkpoint().await {
            tracing::warn!(%error, "could not write the store's WAL back");
        }
        if let Err(error) = self.audit.flush().await {
            tracing::warn!(%error, "the audit log may miss the last reads");
        }
    }

    /// What happens on this host.
    pub fn events(&self) -> &Events {
        &self.events
    }

    /// How many sandboxes are not stopped.
    pub fn live(&self) -> usize {
        self.sandboxes.live()
    }

    /// The audit log, which the faces write to.
    pub fn audit(&self) -> Arc<motu_audit::Log> {
        self.audit.clone()
    }

    /// Who knows the keys of callers.
    pub fn keys(&self) -> Arc<dyn motu_core::scope::Keyring> {
        self.keys.clone()
    }

    pub fn config(&self) -> &Config {
        &self.sandboxes.config
    }
}

impl motu_core::Backend for Engine {
    fn service(&self) -> &dyn motu_core::Service {
        self
    }

    fn workspaces(&self) -> &dyn motu_core::Workspaces {
        &*self.workspaces
    }

    fn terminals(&self) -> &dyn motu_core::Terminals {
        &self.terminals
    }
}

/// Refuses to start with an empty or damaged store if data is kept already.
fn check_store(home: &Home) -> Result<()> {
    let kept = record::kept(home).len() + crate::kept::Baselines::open(home)?.seeded().len();
    found::may_begin(Store::look(&home.database()), kept).map_err(|what| {
        Error::unavailable(format!(
            "the store {} {what}, and there are disks beside it",
            home.database().display()
        ))
        .hint(hint![
            "put motu.db back if you have it; else ",
            host("motu recover --rebuild"),
            " makes it again from the records beside the disks",
        ])
    })
}
