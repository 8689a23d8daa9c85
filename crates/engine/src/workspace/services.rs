//! Named long-running processes.
//!
//! The guest owns the process and its output; one task here supervises it: notices its end,
//! restarts it if the policy says so, and keeps the store up to date. A restarted daemon finds the
//! process by its tag.

use super::Workspaces;
use super::checks;
use super::probes::{self, Scene};
use super::publish::{self, Published};
use super::room::{Room, in_words};
use super::supervised::{Supervised, last_words, logs, start_of};
use super::watching::Watcher;
use crate::driver::Handle;
use crate::guest::Guest;
use crate::shown::Pace;
use crate::store::ServiceRow;
use jiff::Timestamp;
use motu_core::exec::{AttachFrom, ExecSession, Selector};
use motu_core::hint;
use motu_core::hint::{field, verb};
use motu_core::sandbox::State;
use motu_core::workspace::*;
use motu_core::{Error, ErrorKind, Result, id, limits};
use std::sync::Arc;
use std::time::Duration;

/// A service without a probe has failed to start if it ends with an error within this time.
const AT_ONCE: Duration = Duration::from_millis(250);

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
        let guest = handle.guest().map_err(in_words)?;
        // Held until the name is taken, so that two concurrent starts of one name conflict.
        let naming = room.naming.lock().await;
        self.room_for(&room, &request.service_name).await?;
        let policy = room.row().network_policy;
        let bound = publish::bind(&request.published_ports, policy).await?;
        let published_ports = bound.iter().map(publish::Bound::port).collect();
        let cwd = request.cwd.clone().unwrap_or_else(|| self.workdir(&handle));
        let row = new_row(id, &request, cwd, published_ports);
        let environment = room.secrets.environment(&request.secret_env)?;
        let start = start_of(&self.sandboxes.config, &row, environment)?;
        // Stored before it runs: a restarted daemon finds the process, or learns that it never
        // began.
        self.sandboxes.shared.store.put_service(&row).await?;
        let started = match guest.start_background(start).await {
            Ok(started) => started,
            Err(error) => {
                self.forget_service(&room, &row).await?;
                return Err(in_words(handle.explain_soon(error).await));
            }
        };
        let published = publish::open(bound, &handle);
        let service = Arc::new(Supervised::new(
            row,
            published,
            self.sandboxes.shared.store.clone(),
        ));
        service
            .change(|row| row.status.pid = Some(started.pid))
            .await;
        room.services()
            .insert(request.service_name.clone(), service.clone());
        drop(naming);
        self.watch_over(&service, &room, &handle)?;
        let waiting = self.until_ready(&service, &guest, Duration::from_millis(interval));
        match tokio::time::timeout(Duration::from_secs(patience), waiting).await {
            Ok(ready) => ready?,
            Err(_) => {
                let reason = format!("it was not ready after {patience} s");
                service.end(&reason).await;
                let late = service.failed_to_start(ErrorKind::Timeout, "did not start");
                return Err(late.hint(hint![
                    logs(id, &request.service_name),
                    " shows its output; ",
                    field("ready_timeout_seconds"),
                    " gives it longer",
                ]));
            }
        }
        Ok(service.status())
    }

    /// Removes a service that did not start; an ended one of the same name is restored.
    async fn forget_service(&self, room: &Room, row: &ServiceRow) -> Result<()> {
        let before = room.services().get(&row.status.service_name).cloned();
        match before {
            Some(before) => self.sandboxes.shared.store.put_service(&before.row()).await,
            None => self.sandboxes.shared.store.delete_service(row).await,
        }
    }

    /// Makes room for a service: the name must be free or its service ended, and at the limit the
    /// one that ended first is removed.
    async fn room_for(&self, room: &Room, name: &str) -> Result<()> {
        let most = limits::SERVICES;
        let first_ended = {
            let services = room.services();
            match services.get(name) {
                Some(old) if old.status().state.is_alive() => {
                    return Err(
                        Error::conflict(format!("service {name:?} is running already"))
                            .hint("stop it first, or choose another name"),
                    );
                }
                Some(_) => return Ok(()),
                None if (services.len() as u64) < most.max => return Ok(()),
                None => {}
            }
            let ended = services.values().map(|one| one.row());
            let ended = ended.filter(|row| !row.status.state.is_alive());
            ended.min_by_key(|row| row.status.ended_at)
        };
        let Some(row) = first_ended else {
            return Err(Error::limit(format!(
                "{} services of the workspace are running; that is {}",
                most.max, most.name
            ))
            .hint(hint![
                verb("stop_service").with("id", room.id.as_str()),
                " ends one"
            ]));
        };
        self.sandboxes.shared.store.delete_service(&row).await?;
        room.services().remove(&row.status.service_name);
        Ok(())
    }

    /// Waits for the probe; a service without one is ready when it runs.
    async fn until_ready(
        &self,
        service: &Arc<Supervised>,
        guest: &Guest,
        interval: Duration,
    ) -> Result<()> {
        let row = service.row();
        if let Some(readiness) = &row.status.readiness {
            let scene = Scene {
                guest,
                config: &self.sandboxes.config,
                workdir: &row.status.cwd,
                interval,
                logged: service.logged.subscribe(),
            };
            tokio::select! {
                biased;
                ready = probes::wait(readiness, scene) => ready?,
                () = service.gone() => {}
            }
        } else if row.status.restart == Restart::Never {
            let _ = tokio::time::timeout(AT_ONCE, service.gone()).await;
        }
        let status = service.status();
        if !status.state.is_alive() && status.readiness.is_some() {
            let what = "ended before it was ready";
            return Err(service.failed_to_start(ErrorKind::Unavailable, what));
        }
        if status.state == ServiceState::Failed {
            return Err(service.failed_to_start(ErrorKind::Unavailable, "ended at once"));
        }
        if status.state == ServiceState::Starting {
            service
                .change(|row| {
                    row.status.state = ServiceState::Running;
                    row.status.ready_at = Some(Timestamp::now());
                })
                .await;
        }
        Ok(())
    }

    /// Starts the supervising task.
    fn watch_over(
        &self,
        service: &Arc<Supervised>,
        room: &Arc<Room>,
        handle: &Arc<Handle>,
    ) -> Result<()> {
        let pattern = match &service.status().readiness {
            Some(Readiness::Log { pattern }) => Some(probes::pattern_of(pattern)?),
            _ => None,
        };
        let watcher = Watcher {
            service: service.clone(),
            room: room.clone(),
            handle: handle.clone(),
            config: self.sandboxes.config.clone(),
            pattern,
        };
        tokio::spawn(watcher.run());
        Ok(())
    }

    /// Adopts the services of a previous daemon; running ones are supervised again.
    pub(super) async fn adopt_services(
        &self,
        room: &Arc<Room>,
        handle: &Arc<Handle>,
    ) -> Result<()> {
        for row in self.sandboxes.shared.store.services(&room.id).await? {
            let name = row.status.service_name.clone();
            let alive = row.status.state.is_alive();
            let wanted: Vec<Publish> = row
                .status
                .published_ports
                .iter()
                .map(|port| Publish {
                    guest_port: port.guest_port,
                    host_port: Some(port.host_port),
                })
                .collect();
            let policy = room.row().network_policy;
            let published = match alive && handle.state() == State::Running {
                true => match publish::bind(&wanted, policy).await {
                    Ok(bound) => publish::open(bound, handle),
                    Err(error) => {
                        tracing::warn!(service = name, %error, "could not publish the ports of an adopted service");
                        Published::default()
                    }
                },
                false => Published::default(),
            };
            let service = Arc::new(Supervised::new(
                row,
                published,
                self.sandboxes.shared.store.clone(),
            ));
            room.services().insert(name, service.clone());
            if !alive {
                continue;
            }
            if handle.state() == State::Running {
                service
                    .change(|row| row.status.state = ServiceState::Running)
                    .await;
                self.watch_over(&service, room, handle)?;
            } else {
                let reason = Some("its machine ended".to_string());
                service.close(ServiceState::Stopped, reason, None).await;
            }
        }
        Ok(())
    }

    pub(super) async fn end_service(&self, id: &WorkspaceId, name: &str) -> Result<ServiceStatus> {
        let (room, handle) = self.room(id).await?;
        let service = named(&room, name)?;
        handle.touch();
        service.end("it was stopped").await;
        Ok(service.status())
    }

    /// Ends all services before their machine ends.
    pub(super) async fn quiet(&self, room: &Room, reason: &str) {
        let services: Vec<_> = room.services().values().cloned().collect();
        let ends = services.iter().map(|service| service.end(reason));
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
        let (stdout, stderr, lost) = live.unwrap_or((row.stdout, row.stderr, row.cut));
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
            .attach(Selector::Tag(row.tag), AttachFrom::Newest)
            .await?;
        Ok(ExecSession::new(
            room.secrets.redacted(session.events, Pace::Pipe),
            session.input,
        ))
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
