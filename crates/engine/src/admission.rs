//! Turns a request into a checked specification.
//!
//! Everything a caller sends is validated here, once, before anything is
//! written or made.

use crate::blocking::blocking;
use crate::border::Bindings;
use crate::choose::{Demand, Runtimes};
use crate::home::Home;
use crate::launch::{Launch, Network, expiry};
use bytes::Bytes;
use jiff::Timestamp;
use motu_core::config::Config;
use motu_core::exec::{ExecMode, ExecRequest};
use motu_core::hint;
use motu_core::hint::{Hint, field, setting, verb};
use motu_core::limits::{self, Limit};
use motu_core::runtime::{Ask, MachineLimits};
use motu_core::sandbox::{CreateSandbox, Sandbox, StartRoot, State};
use motu_core::size::Size;
use motu_core::{Accel, Error, ErrorKind, Program, Result, Runtime, SandboxId, policy};
use motu_environments::{EnvironmentError, Environments};
use motu_link::message as link;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// A sandbox that may be made.
#[derive(Debug)]
pub struct Admitted {
    pub runtime: Arc<dyn Runtime>,
    pub sandbox: Sandbox,
    pub launch: Launch,
    /// True when the caller chose the id, false when it was generated.
    pub named: bool,
}

/// Everything admission reads to decide about a request.
#[derive(Debug)]
pub struct Gate<'a> {
    pub home: &'a Home,
    pub config: &'a Config,
    pub runtimes: &'a Runtimes,
    pub environments: &'a Environments,
}

impl Gate<'_> {
    /// Checks a request against limits, policy and what is installed.
    pub async fn admit(&self, request: CreateSandbox) -> Result<Admitted> {
        let limits = self.limits(&request)?;
        let ttl_seconds = self.number(
            limits::TTL_SECONDS,
            request.ttl_seconds,
            self.config.defaults.ttl_seconds,
        )?;
        let idle_seconds = self.number(
            limits::IDLE_SECONDS,
            request.idle_seconds,
            self.config.defaults.idle_seconds,
        )?;
        check_env(&request.env)?;
        crate::labels::labels(&request.labels)?;
        if request.template.is_some() {
            return Err(Error::internal("a template was not filled in"));
        }
        if let Some(workdir) = &request.workdir {
            check_workdir(workdir)?;
        }
        let demand = Demand {
            runtime: request.runtime.as_deref().unwrap_or(&self.config.runtime),
            floor: self
                .config
                .min_isolation
                .max(request.isolation.unwrap_or(motu_core::Isolation::None)),
            allow_host_compat: request.allow_host_compat,
            accel: self.accel(request.accel),
            setuid: match &request.root {
                Some(root) => root.wants_sudo,
                None => self.wants_setuid(&request.environment).await,
            },
        };
        let runtime = self.runtimes.choose(demand).await?;
        let runtime = match self.installable(runtime.as_ref(), &request).await {
            Ok(()) => runtime,
            Err(error) => {
                let host = self.runtimes.without_environment(demand).await;
                host.ok_or(error)?
            }
        };
        if request.keep && !runtime.capabilities().keep {
            return Err(runtime.cannot("keep its disks").hint(hint![
                "leave ",
                field("keep"),
                " out, or choose another ",
                field("runtime")
            ]));
        }
        crate::launch::check_on_idle(runtime.as_ref(), idle_seconds, request.on_idle)?;
        let network = self.network(&request, runtime.as_ref()).await?;
        let refs = &request.secret_refs;
        let border =
            crate::border::bind(self.home, refs, network.as_ref().map(|own| &own.rules)).await?;
        self.check_disk()?;
        let root = match request.root {
            Some(root) => Root::of(root),
            None => self.root(&runtime, &request.environment).await?,
        };
        let mut env = root.env;
        env.extend(request.env);
        env.extend(border.iter().flat_map(Bindings::variables));
        let now = Timestamp::now();
        let sandbox = Sandbox {
            sandbox_id: request
                .sandbox_id
                .clone()
                .unwrap_or_else(SandboxId::generate),
            owner: request.owner,
            state: State::Creating,
            reason: None,
            environment: request.environment,
            digest: root.digest,
            template: request.made_from,
            runtime: runtime.name().to_string(),
            isolation: runtime.isolation(),
            accelerator: None,
            keep: request.keep,
            network: match &network {
                Some(_) => "egress",
                None => without_network(runtime.as_ref()),
            }
            .to_string(),
            policy: network.as_ref().map(|network| network.policy.clone()),
            vcpu_count: limits.vcpu_count.value,
            mem_mib: limits.mem_mib.value,
            limits: Vec::new(),
            user: request.user.unwrap_or(root.user),
            workdir: request.workdir.unwrap_or(root.workdir),
            created_at: now,
            last_activity_at: now,
            expires_at: expiry(ttl_seconds),
            ttl_seconds,
            idle_seconds,
            on_idle: request.on_idle,
            paused: None,
            labels: request.labels,
        };
        Ok(Admitted {
            named: request.sandbox_id.is_some(),
            launch: Launch {
                environment: sandbox.environment.clone(),
                root: root.path,
                wants_sudo: root.wants_sudo,
                limits,
                env,
                accel: self.accel(request.accel),
                kept: None,
                deadline: None,
                network,
                border,
            },
            runtime,
            sandbox,
        })
    }

    /// The network of the sandbox, by the policy that the request names.
    async fn network(
        &self,
        request: &CreateSandbox,
        runtime: &dyn Runtime,
    ) -> Result<Option<Network>> {
        let name = match (&request.policy, request.network) {
            (Some(name), _) => name.clone(),
            (None, true) => policy::PUBLIC.to_string(),
            (None, false) => return Ok(None),
        };
        request.bounds.allow_policy(&name)?;
        let shelf = self.home.policies();
        let known = blocking(move || shelf.get(&name)).await?;
        let rules = match &request.narrowed {
            Some(wanted) => motu_policy::narrow(&known, wanted)?,
            None if request.allowed_hosts.is_empty() => known.rules.clone(),
            None => motu_policy::only(&known, &request.allowed_hosts)?,
        };
        // A policy that opens nothing needs no device.
        if rules.allow.is_empty() {
            return Ok(None);
        }
        if !runtime.capabilities().network {
            return Err(match runtime.isolation() {
                _ if runtime.elsewhere() => runtime
                    .cannot("enforce a policy: its machines are elsewhere")
                    .hint(hint![
                        "leave ",
                        field("network"),
                        " and ",
                        field("policy"),
                        " out, or choose another ",
                        field("runtime")
                    ]),
                motu_core::Isolation::None => Error::unsupported(
                    "what runs on the host itself has the host's network; no policy holds there",
                )
                .hint(hint![
                    "leave ",
                    field("network"),
                    " and ",
                    field("policy"),
                    " out, or use a runtime that isolates"
                ]),
                _ => runtime
                    .cannot("have a network")
                    .hint(hint!["choose another ", field("runtime")]),
            });
        }
        Ok(Some(Network {
            policy: known.reference(),
            rules,
        }))
    }

    /// Fails where the environment is not installed and cannot be: before anything is fetched, with
    /// what an administrator can do about it.
    async fn installable(&self, runtime: &dyn Runtime, request: &CreateSandbox) -> Result<()> {
        let name = &request.environment;
        let needed = request.root.is_none() && runtime.capabilities().uses_environment;
        if !needed || name.is_empty() {
            return Ok(());
        }
        let resolved = self.environments.resolve(name).await;
        if !matches!(resolved, Err(EnvironmentError::NotInstalled { .. })) {
            return Ok(());
        }
        match self.environments.check() {
            Err(error @ EnvironmentError::NoIdMap(_)) => {
                let error = environment_error(error);
                let message = format!("{name} is not installed, and cannot be: {}", error.message);
                Err(Error { message, ..error })
            }
            _ => Ok(()),
        }
    }

    /// Whether an environment needs setuid programs (sudo). One that is not installed is reported
    /// later.
    async fn wants_setuid(&self, name: &str) -> bool {
        let found = self.environments.resolve(name).await;
        found.is_ok_and(|found| found.wants_sudo)
    }

    /// The accelerator of the request; `Auto` means the operator's setting.
    fn accel(&self, asked: Accel) -> Accel {
        match asked {
            Accel::Auto => self.config.accel,
            other => other,
        }
    }

    fn number(&self, limit: Limit, asked: Option<u64>, configured: u64) -> Result<u64> {
        limit.resolve(Some(asked.unwrap_or(configured)))
    }

    fn limits(&self, request: &CreateSandbox) -> Result<MachineLimits> {
        let defaults = &self.config.defaults;
        // What the caller's key allows bounds the host's defaults too.
        let usual = Size {
            vcpu_count: Some(defaults.vcpu_count),
            mem_mib: Some(defaults.mem_mib),
            disk_mib: Some(defaults.disk_mib),
        };
        let size = request.bounds.size(request.size, usual)?;
        let ask = |limit: Limit, asked: Option<u64>, configured: u64| -> Result<Ask> {
            Ok(Ask {
                value: self.number(limit, asked, configured)?,
                explicit: asked.is_some(),
            })
        };
        let part = |limit: Limit, asked: Option<u64>, allowed: Option<u64>| -> Result<Ask> {
            Ok(Ask {
                value: limit.resolve(allowed)?,
                explicit: asked.is_some(),
            })
        };
        let asked = request.size;
        Ok(MachineLimits {
            vcpu_count: part(limits::VCPU_COUNT, asked.vcpu_count, size.vcpu_count)?,
            mem_mib: part(limits::MEM_MIB, asked.mem_mib, size.mem_mib)?,
            disk_mib: part(limits::DISK_MIB, asked.disk_mib, size.disk_mib)?,
            pids_max: ask(limits::PIDS_MAX, request.pids_max, defaults.pids_max)?,
            nofile: ask(limits::NOFILE, request.nofile, defaults.nofile)?,
            io_mbps: ask(limits::IO_MBPS, request.io_mbps, defaults.io_mbps)?,
            iops: ask(limits::IOPS, request.iops, defaults.iops)?,
        })
    }

    pub(crate) fn check_disk(&self) -> Result<()> {
        let needed = self.config.min_free_disk_mib * 1024 * 1024;
        let free = self.home.free_bytes()?;
        if free >= needed {
            return Ok(());
        }
        Err(Error::limit(format!(
            "only {} MiB are free under {}; min_free_disk_mib is {}",
            free / 1024 / 1024,
            self.home.path().display(),
            self.config.min_free_disk_mib
        ))
        .hint(hint![
            "free some space, for example with ",
            verb("prune_environments"),
            ", or lower ",
            setting("min_free_disk_mib")
        ]))
    }

    async fn root(&self, runtime: &Arc<dyn Runtime>, name: &str) -> Result<Root> {
        if name.is_empty() {
            return Err(Error::invalid("no environment is named")
                .hint(hint![verb("list_environments"), " shows them"]));
        }
        if !runtime.capabilities().uses_environment {
            return Ok(Root::none());
        }
        let found = self
            .environments
            .resolve(name)
            .await
            .map_err(environment_error)?;
        Ok(Root {
            digest: found.digest,
            path: found.root,
            user: found.default_user,
            workdir: found.default_workdir,
            wants_sudo: found.wants_sudo,
            env: found.env.into_iter().collect(),
        })
    }
}

/// What a sandbox without a gateway can reach. A runtime without isolation shares the host's
/// network; for a machine on a remote provider the answer is unknown.
fn without_network(runtime: &dyn Runtime) -> &'static str {
    if runtime.elsewhere() {
        return "unknown";
    }
    let host = runtime.isolation() == motu_core::Isolation::None;
    match host && !crate::choose::TEST_ONLY.contains(&runtime.name()) {
        true => "host",
        false => "off",
    }
}

/// What a sandbox inherits from its environment.
struct Root {
    digest: String,
    path: PathBuf,
    user: String,
    workdir: String,
    wants_sudo: bool,
    env: BTreeMap<String, String>,
}

impl Root {
    /// The root of a build step: a tree without image settings, so each has its default.
    fn of(root: StartRoot) -> Root {
        Root {
            digest: root.digest,
            path: root.path,
            user: "root".to_string(),
            workdir: "/".to_string(),
            wants_sudo: root.wants_sudo,
            env: BTreeMap::new(),
        }
    }

    /// For runtimes that do not start from an environment.
    fn none() -> Root {
        Root {
            digest: String::new(),
            path: PathBuf::new(),
            user: String::new(),
            // Empty: the runtime decides.
            workdir: String::new(),
            wants_sudo: false,
            env: BTreeMap::new(),
        }
    }
}

/// Converts an error of the environment store to the service's `Error`.
pub fn environment_error(error: EnvironmentError) -> Error {
    use EnvironmentError as From;
    let kind = match &error {
        From::InvalidName { .. } => ErrorKind::Invalid,
        From::Unknown { .. } | From::NotInstalled { .. } => ErrorKind::NotFound,
        From::ToolMissing { .. } | From::NoIdMap { .. } | From::BuildFailed { .. } => {
            ErrorKind::Unavailable
        }
        From::TimedOut { .. } | From::Stalled { .. } => ErrorKind::Timeout,
        From::Cancelled { .. } | From::InUse { .. } | From::NameTaken { .. } => ErrorKind::Conflict,
        From::NoSpace { .. } | From::TooLarge { .. } => ErrorKind::Limit,
        From::Refused { .. } | From::AuthRequired { .. } | From::OutOfReach { .. } => {
            ErrorKind::Denied
        }
        From::Registry { status: 404, .. } => ErrorKind::NotFound,
        From::Registry {
            status: 401 | 403, ..
        } => ErrorKind::Denied,
        From::Registry { status: 429, .. } => ErrorKind::Limit,
        From::Registry { .. } | From::Unreachable { .. } => ErrorKind::Unavailable,
        From::Malformed { .. } => ErrorKind::Invalid,
        From::NoPlatform { .. } => ErrorKind::Unsupported,
        From::DigestMismatch { .. } => ErrorKind::Transport,
        _ => ErrorKind::Internal,
    };
    let details = match &error {
        From::NotInstalled { name } => {
            serde_json::json!({ "environment": name, "installed": false })
        }
        From::Unknown { name, suggestions } => {
            serde_json::json!({ "environment": name, "suggestions": suggestions })
        }
        From::BuildFailed { tail_of_log, .. } => serde_json::json!({ "log": tail_of_log }),
        From::Registry {
            registry, status, ..
        } => serde_json::json!({ "registry": registry, "status": status }),
        From::AuthRequired { registry, .. } | From::Unreachable { registry, .. } => {
            serde_json::json!({ "registry": registry })
        }
        _ => serde_json::Value::Null,
    };
    let hint = environment_hint(&error);
    let error = Error::new(kind, error.to_string()).details(details);
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// The hint for an environment's error: the verb that helps, or the error's own hint.
fn environment_hint(error: &EnvironmentError) -> Option<Hint> {
    use EnvironmentError as From;
    let pull = |name: &str| verb("pull_environment").with("name", name);
    Some(match error {
        From::InvalidName { .. } => hint![
            "use a name that ",
            verb("list_environments"),
            " shows, an image such as docker.io/library/python:3.12, or oci:, docker-archive:, tar: or \
             dir: before an absolute path",
        ],
        From::Unknown { suggestions, .. } if suggestions.is_empty() => {
            let list = verb("list_environments");
            match error.pullable() {
                Some(image) => hint![list, ", or ", pull(&image)],
                None => list.into(),
            }
        }
        From::NotInstalled { name } => pull(name).into(),
        From::NoSpace { .. } => verb("prune_environments").into(),
        _ => error.hint()?.into(),
    })
}

pub(crate) fn check_env(env: &BTreeMap<String, String>) -> Result<()> {
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return Err(Error::invalid(format!(
                "{:?} is not an environment variable",
                name.chars().take(60).collect::<String>()
            ))
            .hint("names have no '=' and neither part has a NUL byte"));
        }
    }
    Ok(())
}

fn check_workdir(workdir: &str) -> Result<()> {
    motu_core::files::GuestPath::new(Bytes::copy_from_slice(workdir.as_bytes()))
        .map(drop)
        .map_err(|error| Error {
            message: format!("workdir: {}", error.message),
            ..error
        })
}

/// Refuses what the kernel would: one argument or variable that is too long for it.
fn check_each(program: &Program) -> Result<()> {
    let limit = &limits::ARGUMENT_BYTES;
    let arguments: Vec<usize> = match program.mode {
        ExecMode::Argv => program.command.iter().map(String::len).collect(),
        // The shell gets the script and its quoted words as one argument.
        ExecMode::Shell => vec![program.command.iter().map(|word| word.len() + 3).sum()],
    };
    let variables = program
        .env
        .iter()
        .map(|(name, value)| name.len() + 1 + value.len());
    match arguments
        .into_iter()
        .chain(variables)
        .find(|size| *size as u64 > limit.max)
    {
        None => Ok(()),
        Some(size) => Err(Error::limit(format!(
            "one argument or variable is {size} bytes; {} is {}",
            limit.name, limit.max
        ))
        .hint("give it to the command on standard input, or write it to a file in the sandbox")
        .details(serde_json::json!({"limit": limit.name, "max": limit.max}))),
    }
}

/// How a command is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// The caller waits; the command ends with the call.
    Foreground,
    /// The command outlives the call.
    Background,
}

/// Checks a command and turns it into what the guest understands.
pub fn command(config: &Config, request: ExecRequest, follow: Follow) -> Result<link::Start> {
    let program = request.program;
    if program.command.is_empty() || program.command[0].is_empty() {
        return Err(
            Error::invalid("no command is given").hint(hint!["give it as ", field("command")])
        );
    }
    check_env(&program.env)?;
    let argv_bytes: usize = program.command.iter().map(|word| word.len() + 1).sum();
    let env_bytes: usize = program.env.iter().map(|(k, v)| k.len() + v.len() + 2).sum();
    let size = (argv_bytes + env_bytes) as u64;
    if size > limits::ARGV_BYTES.max {
        return Err(Error::limit(format!(
            "command and environment are {size} bytes; argv_bytes is {}",
            limits::ARGV_BYTES.max
        ))
        .hint("write large data to a file in the sandbox and pass its path"));
    }
    check_each(&program)?;
    let input = program.input()?;
    if program.command.iter().any(|word| word.contains('\0')) {
        return Err(Error::invalid("the command contains a NUL byte"));
    }
    if let Some(workdir) = &program.workdir {
        check_workdir(workdir)?;
    }
    if let Some(tag) = &request.tag
        && !matches!(
            motu_core::exec::Selector::parse(tag)?,
            motu_core::exec::Selector::Tag(_)
        )
    {
        return Err(Error::invalid("a tag cannot be all digits").hint("digits alone select by pid"));
    }
    let ring = limits::OUTPUT_RING_BYTES.resolve(request.output_ring_bytes)?;
    Ok(link::Start {
        argv: program.command.into_iter().map(Bytes::from).collect(),
        shell: program.mode == ExecMode::Shell,
        cwd: program.workdir.map(Bytes::from).unwrap_or_default(),
        env: program.env.into_iter().collect(),
        user: program.user.unwrap_or_default(),
        pty: request.tty.map(|size| link::PtySize {
            cols: size.cols.into(),
            rows: size.rows.into(),
        }),
        stdin: program.stdin,
        input,
        tag: request.tag.unwrap_or_default(),
        timeout_ms: timeout_ms(config, program.timeout_seconds, request.no_timeout, follow)?,
        ring_bytes: ring as u32,
        follow: follow == Follow::Foreground,
        lossless: follow == Follow::Foreground,
        kill_on_reset: follow == Follow::Foreground,
        clear_env: false,
        forget: follow == Follow::Foreground,
    })
}

fn timeout_ms(config: &Config, asked: Option<u64>, none: bool, follow: Follow) -> Result<u64> {
    if none && asked.is_some() {
        return Err(Error::invalid(
            "both no_timeout and timeout_seconds are set",
        ));
    }
    // A background process runs until it ends, unless the caller says otherwise.
    if none || (follow == Follow::Background && asked.is_none()) {
        return Ok(0);
    }
    let seconds =
        limits::TIMEOUT_SECONDS.resolve(Some(asked.unwrap_or(config.defaults.timeout_seconds)))?;
    Ok(seconds * 1000)
}
