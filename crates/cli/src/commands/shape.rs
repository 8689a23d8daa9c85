//! Arguments that several commands share: of a sandbox, and of a command in one.

use crate::terminal;
use motu_core::exec::ExecRequest;
use motu_core::sandbox::CreateSandbox;
use motu_core::{Accel, Error, Isolation, Result};
use std::collections::BTreeMap;

/// How a sandbox is made.
#[derive(Debug, clap::Args)]
pub struct SandboxArgs {
    /// The environment to start from, such as debian:12 (`motu env list`)
    #[arg(value_name = "ENVIRONMENT")]
    environment: String,

    /// CPUs it may use [default: 1]
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    vcpu_count: Option<u64>,

    /// Memory it may use [default: 1024]
    #[arg(long, value_name = "MIB", help_heading = "Sandbox")]
    mem_mib: Option<u64>,

    /// What it may write to its disk [default: 10240]
    #[arg(long, value_name = "MIB", help_heading = "Sandbox")]
    disk_mib: Option<u64>,

    /// Processes and threads it may have [default: 1024]
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    pids_max: Option<u64>,

    /// Megabytes a second it may read from its disks, and write to them [default: no limit]
    #[arg(long, value_name = "MB", help_heading = "Sandbox")]
    io_mbps: Option<u64>,

    /// Reads a second of its disks, and writes [default: no limit]
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    iops: Option<u64>,

    /// How long it lives at most [default: 600]
    #[arg(long, value_name = "SECONDS", help_heading = "Sandbox")]
    ttl_seconds: Option<u64>,

    /// Give it outgoing network
    #[arg(long, help_heading = "Sandbox")]
    network: bool,

    /// The runtime that makes it [default: the strongest that works here]
    #[arg(long, value_name = "NAME", help_heading = "Sandbox")]
    runtime: Option<String>,

    /// The weakest isolation that will do: vm, gvisor, container or none
    #[arg(long, value_name = "LEVEL", help_heading = "Sandbox", value_parser = word::<Isolation>)]
    isolation: Option<Isolation>,

    /// What a virtual machine runs on: auto, kvm or tcg (software emulation) [default: auto]
    #[arg(long, value_name = "ACCEL", help_heading = "Sandbox", value_parser = word::<Accel>)]
    accel: Option<Accel>,

    /// Run on this host without isolation if no runtime works
    #[arg(long, help_heading = "Sandbox")]
    allow_host_compat: bool,
}

impl SandboxArgs {
    pub fn request(&self) -> CreateSandbox {
        CreateSandbox {
            environment: self.environment.clone(),
            runtime: self.runtime.clone(),
            isolation: self.isolation,
            vcpu_count: self.vcpu_count,
            mem_mib: self.mem_mib,
            disk_mib: self.disk_mib,
            pids_max: self.pids_max,
            io_mbps: self.io_mbps,
            iops: self.iops,
            ttl_seconds: self.ttl_seconds,
            network: self.network,
            accel: self.accel.unwrap_or_default(),
            allow_host_compat: self.allow_host_compat,
            ..CreateSandbox::default()
        }
    }
}

/// A command and how it runs.
#[derive(Debug, clap::Args)]
pub struct CommandArgs {
    /// Stop the command and all it started after this long [default: 30; none with --tty]
    #[arg(long, value_name = "SECONDS", help_heading = "Command")]
    timeout_seconds: Option<u64>,

    /// Set a variable; KEY alone takes its value from here
    #[arg(long, value_name = "KEY[=VALUE]", help_heading = "Command")]
    env: Vec<String>,

    /// The directory it starts in
    #[arg(long, value_name = "DIR", help_heading = "Command")]
    workdir: Option<String>,

    /// The user it runs as
    #[arg(long, value_name = "USER", help_heading = "Command")]
    user: Option<String>,

    /// Pass standard input on
    #[arg(short = 'i', long, help_heading = "Command")]
    stdin: bool,

    /// Give it a terminal, which is this one; implies --stdin
    #[arg(short, long, help_heading = "Command")]
    tty: bool,

    /// The program and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

impl CommandArgs {
    pub fn tty(&self) -> bool {
        self.tty
    }

    pub fn stdin(&self) -> bool {
        self.stdin || self.tty
    }

    pub fn request(&self) -> Result<ExecRequest> {
        let mut request = ExecRequest {
            command: self.command.clone(),
            workdir: self.workdir.clone(),
            env: variables(&self.env)?,
            user: self.user.clone(),
            stdin: self.stdin(),
            timeout_seconds: self.timeout_seconds,
            no_timeout: self.tty && self.timeout_seconds.is_none(),
            ..ExecRequest::default()
        };
        if self.tty {
            request.tty = Some(terminal::size()?);
            if let Ok(kind) = std::env::var("TERM") {
                request.env.entry("TERM".to_string()).or_insert(kind);
            }
        }
        Ok(request)
    }
}

/// Reads a word of the command line; what would help is part of the message.
pub fn word<T: std::str::FromStr<Err = Error>>(text: &str) -> std::result::Result<T, String> {
    text.parse().map_err(|error: Error| match &error.hint {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    })
}

/// The variables of `--env`.
pub fn variables(settings: &[String]) -> Result<BTreeMap<String, String>> {
    let one = |setting: &String| match setting.split_once('=') {
        Some((name, value)) => Ok((name.to_string(), value.to_string())),
        None => match std::env::var(setting) {
            Ok(value) => Ok((setting.clone(), value)),
            Err(_) => Err(
                Error::invalid(format!("--env {setting}: it is not set here"))
                    .hint(format!("give a value: --env {setting}=VALUE")),
            ),
        },
    };
    settings.iter().map(one).collect()
}
