//! State that outlives a connection: settings, the process table, the users' cache.

use crate::agent::Agent;
use crate::flush::Flush;
use crate::lent::Lent;
use crate::lock::locked;
use crate::place::Root;
use crate::running::Table;
use crate::sides::Workspace;
use crate::sys::Restrict;
use crate::users::Users;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::sync::{Notify, watch};

/// Settings of `Init`; replaced as a whole, so that a request sees one version.
#[derive(Clone, Debug)]
pub struct Settings {
    pub default_user: String,
    pub default_cwd: Vec<u8>,
    pub env: BTreeMap<String, String>,
    pub root: Arc<Root>,
}

/// The guest's whole state.
#[derive(Debug)]
pub struct Guest {
    pub started: Instant,
    pub pid1: bool,
    /// Whether `/` belongs to the machine, so that the guest may write system files.
    pub own_root: bool,
    pub restrict: Option<Restrict>,
    pub processes: Table,
    pub users: Users,
    pub agent: Agent,
    pub lent: Lent,
    /// `/workspace` and its baseline, if there is one.
    pub workspace: Option<Arc<Workspace>>,
    settings: Mutex<Arc<Settings>>,
    over: watch::Sender<bool>,
    /// Notified when a process is started.
    pub started_one: Notify,
    /// Notified when a stream has ended.
    pub rested: Notify,
}

impl Guest {
    pub fn new(
        pid1: bool,
        restrict: Option<Restrict>,
        workspace: Option<Workspace>,
    ) -> Result<Guest, Errno> {
        let settings = Settings {
            default_user: String::new(),
            default_cwd: Vec::new(),
            env: BTreeMap::new(),
            root: Arc::new(Root::open(b"/")?),
        };
        Ok(Guest {
            started: Instant::now(),
            pid1,
            own_root: false,
            restrict,
            processes: Table::default(),
            users: Users::default(),
            agent: Agent::default(),
            lent: Lent::default(),
            workspace: workspace.map(Arc::new),
            settings: Mutex::new(Arc::new(settings)),
            over: watch::Sender::new(false),
            started_one: Notify::new(),
            rested: Notify::new(),
        })
    }

    /// How acknowledged file changes are flushed to the host's disk.
    pub fn flush(&self) -> Flush {
        Flush::new(self.workspace.clone())
    }

    pub fn settings(&self) -> Arc<Settings> {
        locked(&self.settings).clone()
    }

    pub fn set_settings(&self, settings: Settings) {
        *locked(&self.settings) = Arc::new(settings);
    }

    /// Ends the serving loop.
    pub fn finish(&self) {
        self.over.send_replace(true);
    }

    /// Waits for [`Guest::finish`].
    pub async fn over(&self) {
        // `self` holds the sender, so waiting cannot fail.
        let _ = self.over.subscribe().wait_for(|over| *over).await;
    }
}
