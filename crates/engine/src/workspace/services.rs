//! Named long-running processes.
//!
//! The guest owns the process and its output; one task here supervises it: notices its end,
//! restarts it if the policy says so, and keeps the store up to date. A restarted daemon finds the
//! process by its tag.

use super::Workspaces;
use super::beginning::{Beginning, watch_over};
use super::checks;
use super::probes;
use super::publish;
use super::room::{Room, in_words};
use super::supervised::{Supervised, last_words, start_of};
use crate::driver::Handle;
use crate::owned::to_the_end;
use crate::shown::Pace;
use crate::store::ServiceRow;
use jiff::Timestamp;
use motu_core::exec::{AttachFrom, ExecSession, Selector};
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{Error, Result, id, limits};
use std::sync::Arc;

/// The service of that name.
pub fn named(room: &Room, name: &str) -> Result<Arc<Supervised>> {
    let found = room.services().get(name).cloned();
    found.ok_or_else(|| {
        Error::not_found(format!("workspace {} has no service {name:?}", room.id))
            .hint(hint![verb("list_services"), " shows them"])
    })
}

impl Workspaces {
    pub(super) async fn new_service(
        &self,
        id: &WorkspaceId,
        request: StartService,
    ) -> Result<ServiceStatus> {
        checks::service_name(&request.service_name)?;
        if let Some(readiness) = &request.readiness {
            probes::check(readiness)?;
        }
        let patience = limits::READY_TIMEOUT_SECONDS.resolve(request.ready_timeout_seconds)?;
        let interval = limits::READY_INTERVAL_MS.resolve(request.ready_interval_ms)?;
        let (room, handle) = self.room(id).await?;
        // Held until the name is taken, so that two concurrent starts of one name conflict, and
        // while the machine is replaced.
        let naming = room.naming.clone().lock_owned().await;
        handle.guest().map_err(in_words)?;
        let before = self.room_for(&room, &request.service_name).await?;
        let policy = room.row().network_policy;
        let bound = publish::bind(&request.published_ports, policy).await?;
        let published_ports = bound.iter().map(publish::Bound::port).collect();
        let cwd = request.cwd.clone().unwrap_or_else(|| self.workdir(&handle));
        let row = ServiceRow {
            ready_timeout_seconds: Some(patience),
            ready_interval_ms: Some(interval),
            ..new_row(id, &request, cwd, published_ports)
        };
        let environment = room.secrets.environment(&request.secret_env)?;
        let start = start_of(&self.sandboxes.config, &row, environment)?;
        let beginning = Beginning {
            service: Supervised::new(row, self.sandboxes.shared.store.clone()),
            before,
            start,
            bound,
            room,
            handle,
            config: self.sandboxes.config.clone(),
            store: self.sandboxes.shared.store.clone(),
            naming,
        };
        // What has begun is finished when the caller has gone: no process is without a service.
        let (service, readying) = to_the_end(beginning.begin()).await?;
        to_the_end(readying.run()).await?;
        Ok(service.status())
    }

    /// Makes room for a service: the name must be free or its service ended, and at the limit the
    /// one that ended first is removed. Returns the ended one that has the name.
    async fn room_for(&self, room: &Room, name: &str) -> Result<Option<Arc<Supervised>>> {
        let most = limits::SERVICES;
        let first_ended = {
            let services = room.services();
            match services.get(name) {
                Some(old) if old.is_alive() => {
                    return Err(
                        Error::conflict(format!("service {name:?} is running already"))
                            .hint("stop it first, or choose another name"),
                    );
                }
                Some(old) => return Ok(Some(old.clone())),
                None if (services.len() as u64) < most.max => return Ok(None),
                None => {}
            }
            let ended = services.values().filter(|one| !one.is_alive());
            ended.min_by_key(|one| one.row().status.ended_at).cloned()
        };
        let Some(oldest) = first_ended else {
            return Err(Error::limit(format!(
                "{} services of the workspace are running; that is {}",
                most.max, most.name
            ))
            .hint(hint![
                verb("stop_service").with("id", room.id.as_str()),
                " ends one"
            ]));
        };
        let row = oldest.row();
        let deleting = self.sandboxes.shared.store.delete_service(&row);
        oldest.row.remove(deleting).await?;
        room.services().remove(&row.status.service_name);
        Ok(None)
    }

    /// Adopts the services of a previous daemon. Those whose machine lives are supervised again, and
    /// waited for if they were not ready.
    pub(super) async fn adopt_services(
        &self,
        room: &Arc<Room>,
        handle: &Arc<Handle>,
    ) -> Result<()> {
        let lives = matches!(handle.state(), State::Running | State::Paused);
        for row in self.sandboxes.shared.store.services(&room.id).await? {
            let name = row.status.service_name.clone();
            let (state, ports) = (row.status.state, row.status.published_ports.clone());
            let store = self.sandboxes.shared.store.clone();
            let service = Arc::new(Supervised::new(row, store));
            room.services().insert(name, service.clone());
            if !state.is_alive() {
                continue;
            }
            if !lives {
                let reason = Some("its machine ended".to_string());
                service.close(ServiceState::Stopped, reason, None).await;
                continue;
            }
            service.ports.open_again(ports, handle).await;
            let config = &self.sandboxes.config;
            let readying = watch_over(&service, room, handle, config)?;
            if service.row().status.ready_at.is_none() {
                tokio::spawn(readying.go_on());
            }
        }
        Ok(())
    }

    pub(super) async fn end_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus> {
        let (room, handle) = self.room(id).await?;
        let service = named(&room, name)?;
        handle.touch();
        service.end(ServiceState::Stopped, "it was stopped").await?;
        Ok(service.status())
    }

    /// Ends all services before their machine ends. Those of a machine that is paused end with it.
    pub(super) async fn quiet(&self, room: &Room, handle: &Handle, reason: &str) {
        let services: Vec<_> = room.services().values().cloned().collect();
        let ends = services.iter().map(|service| async move {
            match handle.state() {
                // The machine ends whatever a service does.
                State::Running => drop(service.end(ServiceState::Stopped, reason).await),
                _ => service.ask_to_end(ServiceState::Stopped, reason),
            }
        });
        futures_util::future::join_all(ends).await;
    }

    pub(super) async fn service_logs(
        &self,
        id: &WorkspaceId,
        name: &str,
        options: LogOptions,
    ) -> Result<ServiceLogs> {
        let lines = limits::SERVICE_TAIL_LINES.resolve(options.tail_lines)?;
        let lines = if options.all {
            usize::MAX
        } else {
            lines as usize
        };
        let (room, handle) = self.room(id).await?;
        let row = named(&room, name)?.row();
        let live = match handle.guest() {
            Ok(guest) => last_words(&guest, &row.tag, usize::MAX).await.ok(),
            Err(_) => None,
        };
        let (stdout, stderr, lost) =
            live.unwrap_or_else(|| (row.stdout.clone(), row.stderr.clone(), row.cut));
        let (stdout, stdout_cut) = tail(&room.secrets.redact(&stdout), lines);
        let (stderr, stderr_cut) = tail(&room.secrets.redact(&stderr), lines);
        Ok(ServiceLogs {
            workspace_id: id.clone(),
            service_name: name.to_string(),
            stdout,
            stderr,
            truncated: lost || stdout_cut || stderr_cut,
        })
    }

    pub(super) async fn service_output(&self, id: &WorkspaceId, name: &str) -> Result<ExecSession> {
        let (room, handle) = self.room(id).await?;
        let row = named(&room, name)?.row();
        let guest = handle.guest().map_err(in_words)?;
        let session = guest
            .attach(Selector::Tag(row.tag.clone()), AttachFrom::Newest)
            .await?;
        Ok(ExecSession::new(
            room.secrets.redacted(session.events, Pace::Pipe),
            session.input,
        ))
    }
}

/// Forgets all services, whose rows are removed: nothing is stored of them any more.
pub(super) async fn forget_services(room: &Room) {
    let services = std::mem::take(&mut *room.services());
    for service in services.into_values() {
        service.row.retire().await;
    }
}

fn new_row(
    id: &WorkspaceId,
    request: &StartService,
    cwd: String,
    published_ports: Vec<PublishedPort>,
) -> ServiceRow {
    ServiceRow {
        tag: format!("service-{}", id::random_name(12)),
        status: ServiceStatus {
            workspace_id: id.clone(),
            service_name: request.service_name.clone(),
            state: ServiceState::Starting,
            reason: None,
            command: request.command.clone(),
            cwd,
            pid: None,
            exit_code: None,
            started_at: Timestamp::now(),
            ready_at: None,
            ended_at: None,
            readiness: request.readiness.clone(),
            restart: request.restart,
            restart_count: 0,
            published_ports,
        },
        mode: request.mode,
        user: request.user.clone(),
        env: request.env.clone(),
        secret_env: request.secret_env.clone(),
        stdout: String::new(),
        stderr: String::new(),
        cut: false,
        ready_timeout_seconds: None,
        ready_interval_ms: None,
    }
}

/// The last lines of a text, and whether something is missing before them.
fn tail(text: &str, lines: usize) -> (String, bool) {
    let all: Vec<&str> = text.split_inclusive('\n').collect();
    let from = all.len().saturating_sub(lines);
    (all[from..].concat(), from > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_whole_lines() {
        assert_eq!(tail("a\nb\nc", 2), ("b\nc".to_string(), true));
        assert_eq!(tail("a\n", 5), ("a\n".to_string(), false));
        assert_eq!(tail("", 5), (String::new(), false));
    }
}
