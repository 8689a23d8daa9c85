//! Arguments that several commands share: of a sandbox, and of a command in one.

use super::given::{labels, read, secret_refs};
use crate::terminal;
use crate::wording::Commands;
use motu_core::exec::ExecRequest;
use motu_core::sandbox::CreateSandbox;
use motu_core::{Accel, Error, Isolation, Program, Result, Size, limits};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// How a sandbox is made.
#[derive(Debug, clap::Args)]
pub struct SandboxArgs {
    /// The environment to start from, such as debian:12 (`motu env list`)
    #[arg(value_name = "ENVIRONMENT", required_unless_present = "template")]
    environment: Option<String>,

    /// Start from a template instead; what is said here wins over what it says (`motu template`)
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with = "environment",
        help_heading = "Sandbox"
    )]
    template: Option<String>,

    #[command(flatten, next_help_heading = "Sandbox")]
    size: SizeArgs,

    /// Processes and threads it may have [default: 1024]
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    pids_max: Option<u64>,

    /// Megabytes a second it may read from its disks, and write to them [default: no limit]
    #[arg(long, value_name = "MB", help_heading = "Sandbox")]
    io_mbps: Option<u64>,

    /// Reads a second of its disks, and writes [default: no limit]
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    iops: Option<u64>,

    /// How long it lives at most; 0: until it is destroyed [default: 600]
    #[arg(long, value_name = "SECONDS", help_heading = "Sandbox")]
    ttl_seconds: Option<u64>,

    /// Give it outgoing network: the public internet, unless --policy says otherwise
    #[arg(long, help_heading = "Sandbox")]
    network: bool,

    /// Give it the network that a policy allows, such as packages (`motu policy list`)
    #[arg(long, value_name = "NAME", help_heading = "Sandbox")]
    policy: Option<String>,

    /// Set a variable to the placeholder of a secret that is bound to hosts (`motu secret set`)
    #[arg(
        long = "secret-ref",
        value_name = "VARIABLE=SECRET",
        help_heading = "Sandbox"
    )]
    secret_refs: Vec<String>,

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

    /// A label, which is shown with the sandbox; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE", help_heading = "Sandbox")]
    labels: Vec<String>,
}

impl SandboxArgs {
    pub fn request(&self) -> Result<CreateSandbox> {
        Ok(CreateSandbox {
            environment: self.environment.clone().unwrap_or_default(),
            template: self.template.clone(),
            runtime: self.runtime.clone(),
            isolation: self.isolation,
            size: self.size.into(),
            pids_max: self.pids_max,
            io_mbps: self.io_mbps,
            iops: self.iops,
            ttl_seconds: self.ttl_seconds,
            network: self.network,
            policy: self.policy.clone(),
            secret_refs: secret_refs(&self.secret_refs)?,
            accel: self.accel.unwrap_or_default(),
            allow_host_compat: self.allow_host_compat,
            labels: labels(&self.labels)?,
            ..CreateSandbox::default()
        })
    }
}

/// A command and how it runs.
#[derive(Debug, clap::Args)]
pub struct CommandArgs {
    /// Stop the command and all it started after this long [default: 30; none with --tty]
    #[arg(long, value_name = "SECONDS", help_heading = "Command")]
    timeout_seconds: Option<u64>,

    #[command(flatten, next_help_heading = "Command")]
    variables: Variables,

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
            program: Program {
                command: self.command.clone(),
                workdir: self.workdir.clone(),
                env: self.variables.read()?,
                user: self.user.clone(),
                stdin: self.stdin(),
                timeout_seconds: self.timeout_seconds,
                ..Program::default()
            },
            no_timeout: self.tty && self.timeout_seconds.is_none(),
            ..ExecRequest::default()
        };
        if self.tty {
            request.tty = Some(terminal::size()?);
            if let Ok(kind) = std::env::var("TERM") {
                request
                    .program
                    .env
                    .entry("TERM".to_string())
                    .or_insert(kind);
            }
        }
        Ok(request)
    }
}

/// Reads a word of the command line; what would help is part of the message.
pub fn word<T: std::str::FromStr<Err = Error>>(text: &str) -> std::result::Result<T, String> {
    text.parse()
        .map_err(|error: Error| match &error.clone().worded(&Commands).hint {
            Some(hint) => format!("{error} ({hint})"),
            None => error.to_string(),
        })
}

/// How large a machine is.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct SizeArgs {
    /// CPUs it may use [default: 1]
    #[arg(long, visible_alias = "cpus", value_name = "N")]
    vcpu_count: Option<u64>,

    /// Memory it may use [default: 1024]
    #[arg(long, visible_alias = "memory", value_name = "MIB")]
    mem_mib: Option<u64>,

    /// What it may write to its disk [default: 10240]
    #[arg(long, visible_alias = "disk", value_name = "MIB")]
    disk_mib: Option<u64>,
}

impl From<SizeArgs> for Size {
    fn from(given: SizeArgs) -> Size {
        Size {
            vcpu_count: given.vcpu_count,
            mem_mib: given.mem_mib,
            disk_mib: given.disk_mib,
        }
    }
}

/// The variables of a command.
#[derive(Debug, clap::Args)]
pub struct Variables {
    /// Set a variable; KEY alone takes its value from here
    #[arg(short, long, value_name = "KEY[=VALUE]")]
    env: Vec<String>,

    /// Set the variables in a file: KEY=VALUE or KEY, one a line; # begins a comment
    #[arg(long, value_name = "PATH")]
    env_file: Vec<PathBuf>,
}

impl Variables {
    /// Those of files first; what is set on the command line wins.
    pub fn read(&self) -> Result<BTreeMap<String, String>> {
        let mut all = BTreeMap::new();
        for path in &self.env_file {
            let text = read(path, &limits::ENV_FILE_BYTES)?;
            for (number, line) in text.lines().enumerate() {
                let line = line.trim_start();
                if !line.is_empty() && !line.starts_with('#') {
                    let place = format!("{}, line {}", path.display(), number + 1);
                    all.extend([variable(line, &place, "")?]);
                }
            }
        }
        for setting in &self.env {
            let place = format!("--env {setting}");
            all.extend([variable(setting, &place, "--env ")?]);
        }
        Ok(all)
    }
}

/// One setting, where it stands, and what is written before it there.
fn variable(setting: &str, place: &str, flag: &str) -> Result<(String, String)> {
    match setting.split_once('=') {
        Some(("", _)) => Err(Error::invalid(format!("{place}: the name is empty"))),
        Some((name, value)) => Ok((name.to_string(), value.to_string())),
        None => match std::env::var(setting) {
            Ok(value) => Ok((setting.to_string(), value)),
            Err(_) => Err(Error::invalid(format!("{place}: it is not set here"))
                .hint(format!("give a value: {flag}{setting}=VALUE"))),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_come_from_files_and_from_the_command_line() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("env");
        std::fs::write(&file, "A=1\n# B=2\n\n  C=x=y\nD=\n").unwrap();
        let mut variables = Variables {
            env: vec!["A=3".to_string()],
            env_file: vec![file.clone()],
        };
        let read = variables.read().unwrap();
        let read: Vec<_> = read.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        assert_eq!(read, [("A", "3"), ("C", "x=y"), ("D", "")]);
        std::fs::write(&file, "A=1\n=2\n").unwrap();
        let error = variables.read().unwrap_err();
        assert!(
            error.message.ends_with("line 2: the name is empty"),
            "{error}"
        );
        variables.env_file = vec![dir.path().join("none")];
        assert_eq!(
            variables.read().unwrap_err().kind,
            motu_core::ErrorKind::NotFound
        );
    }
}
