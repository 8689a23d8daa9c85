//! Chooses the sandbox of a session.

use super::Terminals;
use crate::driver::{self, Whereabouts};
use motu_core::leave::Named;
use motu_core::sandbox::State;
use motu_core::terminal::{DEFAULT_PLACE, OpenTerminal, TerminalId};
use motu_core::workspace::CreateWorkspace;
use motu_core::{Error, ErrorKind, Isolation, Project, Result, SandboxId, Workspaces as _};
use std::sync::Arc;

/// The workspace of sessions on the host itself.
const HOST_PLACE: &str = "terminals-host";
const HOST_RUNTIME: &str = "host";

/// The workspace of sessions that say nothing: each project has its own.
fn default_place(owner: &str) -> Result<SandboxId> {
    match Project::of_owner(owner) {
        Some(project) => SandboxId::parse(&project.complete(DEFAULT_PLACE)),
        None => SandboxId::parse(DEFAULT_PLACE),
    }
}

impl Terminals {
    /// The sandbox for a session, running.
    pub(super) async fn terminal_place(
        &self,
        request: &OpenTerminal,
        before: Option<&SandboxId>,
    ) -> Result<Arc<driver::Handle>> {
        if let Some(id) = &request.sandbox_id {
            if request.host {
                return Err(Error::invalid("both sandbox_id and host are given"));
            }
            return self.running(id).await;
        }
        if request.host {
            return self.host_place(&request.owner).await;
        }
        // A reopened session returns to its sandbox, if that still exists.
        if let Some(id) = before.filter(|id| self.sandboxes.table.has(id)) {
            return self.running(id).await;
        }
        self.shared_place(CreateWorkspace {
            owner: request.owner.clone(),
            bounds: request.bounds.clone(),
            environment: self.sandboxes.config.terminal.environment.clone(),
            workspace_id: Some(default_place(&request.owner)?),
            ..CreateWorkspace::default()
        })
        .await
    }

    /// Whether sessions on the host itself are allowed now.
    fn host_allowed(&self) -> Result<()> {
        if self.sandboxes.config.terminal.host {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::Denied,
            "sessions on the host itself are not allowed",
        )
        .hint(
            "leave host out for a session in a sandbox; the owner of this daemon can allow it \
             with `host = true` under [terminal] in config.toml",
        ))
    }

    /// What stands around a session or a sandbox. The place on the host outlives the daemon that
    /// allowed it, so it is asked at each use whether this one does.
    pub(crate) fn walls(&self, named: Named<'_>) -> Result<Option<Isolation>> {
        let (place, of_session) = match named {
            Named::Sandbox(id) => (id.clone(), None),
            Named::Terminal(name) => {
                let entry = TerminalId::parse(name).and_then(|id| self.sessions.get(&id));
                let Some(known) = entry.ok().and_then(|entry| entry.known()) else {
                    return Ok(None);
                };
                let row = known.row();
                (row.sandbox_id.clone(), Some(row.isolation))
            }
        };
        if place.as_str() == HOST_PLACE {
            self.host_allowed()?;
        }
        let isolation = match self.sandboxes.table.find(&place) {
            Whereabouts::Awake(handle) => Some(handle.sandbox().isolation),
            Whereabouts::Dormant => self
                .sandboxes
                .table
                .dormant(&place)
                .map(|one| one.kind.isolation),
            Whereabouts::Nowhere => None,
        };
        Ok(isolation.or(of_session))
    }

    async fn host_place(&self, owner: &str) -> Result<Arc<driver::Handle>> {
        self.host_allowed()?;
        self.shared_place(CreateWorkspace {
            owner: owner.to_string(),
            environment: self.sandboxes.config.terminal.environment.clone(),
            workspace_id: Some(SandboxId::parse(HOST_PLACE)?),
            runtime: Some(HOST_RUNTIME.to_string()),
            allow_host_compat: true,
            ..CreateWorkspace::default()
        })
        .await
    }

    /// A shared workspace for sessions, made on first use.
    async fn shared_place(&self, workspace: CreateWorkspace) -> Result<Arc<driver::Handle>> {
        // Serialize first uses, so that only one makes it.
        let _one_at_a_time = self.sessions.making.lock().await;
        let id = workspace.workspace_id.clone();
        let id = id.ok_or_else(|| Error::internal("a place without a name"))?;
        if !self.sandboxes.table.has(&id) {
            self.workspaces.create_workspace(workspace).await?;
        }
        self.running(&id).await
    }

    /// An existing sandbox; a stopped workspace is started.
    async fn running(&self, id: &SandboxId) -> Result<Arc<driver::Handle>> {
        let handle = self.sandboxes.handle(id).await?;
        if handle.state() == State::Stopped && self.workspaces.not_a_workspace(id).is_err() {
            self.workspaces.start_workspace(id).await?;
        }
        // Fails with the reason if the sandbox cannot be used.
        handle.wake().await?;
        Ok(handle)
    }
}
