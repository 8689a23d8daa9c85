//! Creates, finds, pauses and destroys sandboxes.

use crate::agent::Agent;
use crate::wire::{
    CreateSandboxRequest, CreateSandboxResponse, DestroySandboxRequest, DestroySandboxResponse,
    ListSandboxesRequest, ListSandboxesResponse, PauseSandboxRequest, PauseSandboxResponse,
    PingSandboxRequest, PingSandboxResponse, ResumeSandboxRequest, ResumeSandboxResponse,
    SandboxInfo, TerminateRequest, TerminateResponse,
};
use crate::{ask, names};
use motu_core::report::not_installed;
use motu_core::sandbox::{CreateSandbox, Keepalive, ListSandboxes, OnIdle, Sandbox, State};
use motu_core::size::Size;
use motu_core::template::Template;
use motu_core::{Error, ErrorKind, Result, SandboxId, Service, Workspaces};
use tokio::sync::mpsc;

/// Default sizes of a sandbox from an environment; a template has its own.
const VCPUS: u64 = 1;
const MEMORY_MIB: u64 = 512;
const DISK_MIB: u64 = 5120;

impl Agent {
    pub async fn create_sandbox_by_message(
        self,
        message: CreateSandboxRequest,
    ) -> Result<CreateSandboxResponse> {
        let request = self.wanted(message).await?;
        let sandbox = match self.made(&request).await {
            Err(error) if error.kind == ErrorKind::Conflict => {
                self.made_before(&request, error).await?
            }
            made => made?,
        };
        Ok(CreateSandboxResponse {
            sandbox_id: sandbox.sandbox_id.to_string(),
            status: sandbox.state.to_string(),
            host_ip: String::new(),
        })
    }

    /// Creates a sandbox, after pulling its environment if that is all that is missing.
    async fn made(&self, request: &CreateSandbox) -> Result<Sandbox> {
        let outcome = self.create_sandbox(request.clone()).await;
        let missing = outcome.as_ref().err().and_then(not_installed);
        let Some(missing) = missing else {
            return outcome;
        };
        let name = match missing.is_empty() {
            true => request.environment.as_str(),
            false => missing,
        };
        // The contract has no place for the steps: they are dropped as they come.
        let (steps, mut told) = mpsc::channel(1);
        let listening = async { while told.recv().await.is_some() {} };
        tokio::join!(self.pull_environment(name, steps), listening).0?;
        self.create_sandbox(request.clone()).await
    }

    /// Converts the message to a request of the service.
    async fn wanted(&self, message: CreateSandboxRequest) -> Result<CreateSandbox> {
        let (idle_seconds, on_idle) = idling(message.timeout_sec)?;
        let id = ask::word(message.sandbox_id);
        let mut request = CreateSandbox {
            sandbox_id: id.as_deref().map(SandboxId::parse).transpose()?,
            size: Size {
                vcpu_count: ask::number("vcpus", message.vcpus)?,
                mem_mib: ask::number("memory_mb", message.memory_mb)?,
                disk_mib: ask::number("disk_size_mb", message.disk_size_mb)?,
            },
            policy: self.config.policy.clone(),
            // It lives until it is destroyed.
            ttl_seconds: Some(0),
            idle_seconds,
            on_idle,
            // Its disks are kept, so that templates can be made from it.
            keep: true,
            env: message.default_env.into_iter().collect(),
            user: ask::word(message.default_user),
            ..CreateSandbox::default()
        };
        let named = names::template(&message.template, &message.team_id, &message.template_id)?;
        let template = match &named {
            Some(name) => self.known_template(name).await?,
            None => None,
        };
        match template {
            Some(template) => {
                // One that was saved with its memory goes on with the disks that it has.
                request.keep = template.asleep().is_none_or(|saved| saved.keep);
                request.template = Some(template.name);
            }
            None => {
                request.environment = named.unwrap_or_else(|| self.config.environment.clone());
                request.size.vcpu_count.get_or_insert(VCPUS);
                request.size.mem_mib.get_or_insert(MEMORY_MIB);
                request.size.disk_mib.get_or_insert(DISK_MIB);
            }
        }
        Ok(request)
    }

    /// The template of this name. Templates take precedence over environments; a name from UUIDs
    /// can only be a template.
    async fn known_template(&self, name: &str) -> Result<Option<Template>> {
        match self.get_template(name).await {
            Ok(template) => Ok(Some(template)),
            Err(error) if names::uuids(name).is_some() => Err(error),
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Invalid) => {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The sandbox that an earlier identical request created; otherwise the error.
    async fn made_before(&self, request: &CreateSandbox, refusal: Error) -> Result<Sandbox> {
        let Some(id) = &request.sandbox_id else {
            return Err(refusal);
        };
        let found = self.get_sandbox(id).await?;
        if matches!(found.state, State::Destroying | State::Destroyed) {
            return Err(refusal);
        }
        if let Some(field) = difference(&found, request, &self.owner()) {
            return Err(
                Error::conflict(format!("{id} exists already, with another {field}"))
                    .hint("choose another sandbox_id, or destroy that sandbox first"),
            );
        }
        // Wait if it is still being created.
        self.keepalive(id, Keepalive::default()).await
    }

    pub async fn destroy(self, message: DestroySandboxRequest) -> Result<DestroySandboxResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        self.destroy_sandbox(&id).await?;
        Ok(DestroySandboxResponse {})
    }

    pub async fn pause(self, message: PauseSandboxRequest) -> Result<PauseSandboxResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        self.pause_sandbox(&id).await?;
        Ok(PauseSandboxResponse {})
    }

    pub async fn resume(self, message: ResumeSandboxRequest) -> Result<ResumeSandboxResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        let (idle_seconds, on_idle) = idling(message.timeout_sec)?;
        let from_now_on = Keepalive {
            ttl_seconds: None,
            // 0 is no pause at all, also for one that had been paused when it was idle.
            idle_seconds: Some(idle_seconds.unwrap_or(0)),
            on_idle: Some(on_idle),
            user: ask::word(message.default_user),
            env: message.default_env.into_iter().collect(),
        };
        self.resume_sandbox(&id).await?;
        let sandbox = self.keepalive(&id, from_now_on).await?;
        Ok(ResumeSandboxResponse {
            sandbox_id: sandbox.sandbox_id.to_string(),
            status: sandbox.state.to_string(),
            host_ip: String::new(),
        })
    }

    pub async fn list(self, message: ListSandboxesRequest) -> Result<ListSandboxesResponse> {
        let ask = ListSandboxes {
            limit: ask::number("limit", message.limit)?,
            cursor: ask::word(message.cursor),
            ..ListSandboxes::default()
        };
        let whole = ask == ListSandboxes::default();
        let all = self.list_sandboxes(ask).await?;
        Ok(ListSandboxesResponse {
            // A pause is news once, for whoever looks at all of them.
            auto_paused_sandbox_ids: match whole {
                true => self.naps.news(&self.owner(), &all),
                false => Vec::new(),
            },
            next_cursor: all.next_cursor.clone().unwrap_or_default(),
            sandboxes: all.sandboxes.into_iter().map(info).collect(),
        })
    }

    pub async fn ping(self, message: PingSandboxRequest) -> Result<PingSandboxResponse> {
        let id = ask::sandbox(&message.sandbox_id)?;
        // One that is paused has no activity to count, and is not woken by this.
        self.get_sandbox(&id).await?.check_running()?;
        self.keepalive(&id, Keepalive::default()).await?;
        Ok(PingSandboxResponse {})
    }

    /// Destroys the caller's sandboxes and stops the daemon. Workspaces and the sandboxes of others
    /// stay: the next daemon adopts them.
    pub async fn terminate(self, _: TerminateRequest) -> Result<TerminateResponse> {
        if !self.speaks_for_the_host() {
            let error = Error::new(ErrorKind::Denied, "this caller may not end the daemon");
            return Err(error.hint("the operator of the host may"));
        }
        let all = self.list_sandboxes(ListSandboxes::default()).await?;
        let (owner, kept) = (
            self.owner(),
            self.list_workspaces(Default::default()).await?.workspaces,
        );
        let own = |sandbox: &Sandbox| {
            let kept = kept
                .iter()
                .any(|one| one.workspace_id == sandbox.sandbox_id);
            sandbox.owner == owner && !kept
        };
        for sandbox in all.sandboxes.into_iter().filter(own) {
            match self.destroy_sandbox(&sandbox.sandbox_id).await {
                Err(error) if error.kind != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // The same as `motu serve --stop`: calls that are being served, this one too, are finished.
        rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::TERM)
            .map_err(|errno| Error::io("stop the daemon", &errno.into()))?;
        Ok(TerminateResponse {})
    }
}

/// What a time of inactivity means: a pause after so many seconds, or none at all.
fn idling(timeout_sec: i32) -> Result<(Option<u64>, OnIdle)> {
    let idle_seconds = ask::number("timeout_sec", timeout_sec)?;
    let on_idle = idle_seconds.map_or(OnIdle::Destroy, |_| OnIdle::Pause);
    Ok((idle_seconds, on_idle))
}

/// The first field in which a sandbox differs from a request. Variables are not compared: a record
/// does not show them.
fn difference(found: &Sandbox, request: &CreateSandbox, owner: &str) -> Option<&'static str> {
    let from = match &request.template {
        Some(name) => found.template.as_ref().map(|template| &template.name) == Some(name),
        None => found.template.is_none() && found.environment == request.environment,
    };
    let disk = found.limits.iter().find(|limit| limit.name == "disk_mib");
    let wants = |asked: Option<u64>, has: u64| asked.is_none_or(|asked| asked == has);
    let same = [
        ("owner", found.owner == owner),
        ("template", from),
        ("vcpus", wants(request.size.vcpu_count, found.vcpu_count)),
        ("memory_mb", wants(request.size.mem_mib, found.mem_mib)),
        (
            "disk_size_mb",
            disk.is_none_or(|disk| wants(request.size.disk_mib, disk.value)),
        ),
        (
            "timeout_sec",
            found.on_idle == request.on_idle && wants(request.idle_seconds, found.idle_seconds),
        ),
        (
            "default_user",
            request.user.as_ref().is_none_or(|user| *user == found.user),
        ),
    ];
    same.into_iter()
        .find(|(_, same)| !same)
        .map(|(name, _)| name)
}

fn info(sandbox: Sandbox) -> SandboxInfo {
    let template = match sandbox.template {
        Some(template) => template.name,
        None => sandbox.environment,
    };
    let (team_id, template_id) = names::uuids(&template).unwrap_or_default();
    let small = |number: u64| i32::try_from(number).unwrap_or(i32::MAX);
    SandboxInfo {
        sandbox_id: sandbox.sandbox_id.to_string(),
        status: sandbox.state.to_string(),
        template,
        vcpus: small(sandbox.vcpu_count),
        memory_mb: small(sandbox.mem_mib),
        host_ip: String::new(),
        created_at_unix: sandbox.created_at.as_second(),
        last_active_at_unix: sandbox.last_activity_at.as_second(),
        timeout_sec: match sandbox.on_idle {
            OnIdle::Pause => small(sandbox.idle_seconds),
            OnIdle::Destroy => 0,
        },
        team_id,
        template_id,
    }
}
