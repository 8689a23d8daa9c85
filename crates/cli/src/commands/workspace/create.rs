//! `motu workspace create`.

use super::life;
use crate::commands::given;
use crate::commands::shape::{SizeArgs, word};
use crate::failure::Reader;
use crate::show::answer;
use crate::{pull, show, waiting};
use motu_api::Client;
use motu_core::workspace::{CreateWorkspace, NetworkPolicy, Workspace, WorkspaceId, Workspaces};
use motu_core::{Accel, Isolation, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Make a workspace, and start it
///
/// It lives until `motu workspace delete`, or its time to live. An environment that is
/// not installed is pulled first.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace create debian:12
  motu workspace create debian:12 --seed-path ./project --name fix-login --label team=web
  id=$(motu workspace create debian:12 --seed-path app.tar.gz --id-only)
  pass show api-key | motu workspace create debian:12 --secret-file API_KEY=-

A secret given with --secret is in the list of processes of this host while the command
runs, and in the history of your shell. --secret-file does not show it.")]
pub struct Args {
    /// The environment to start from, such as debian:12 (`motu env list`)
    #[arg(value_name = "ENVIRONMENT", required_unless_present = "template")]
    environment: Option<String>,

    /// Start from a template instead; what is said here wins over what it says (`motu template`)
    #[arg(long, value_name = "NAME", conflicts_with = "environment")]
    template: Option<String>,

    /// An id of your own choice [default: a new one]
    #[arg(long, value_name = "ID", value_parser = WorkspaceId::parse)]
    id: Option<WorkspaceId>,

    /// Begin /workspace as a copy of this directory or .tar, .tar.gz or .tgz archive
    #[arg(long, value_name = "PATH")]
    seed_path: Option<PathBuf>,

    /// A name for people to find it by
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// A label to find it by; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,

    /// What it may reach: off, egress, or egress+published-ports (services on 127.0.0.1 too)
    #[arg(long, value_name = "POLICY", default_value = "off", value_parser = word::<NetworkPolicy>)]
    network_policy: NetworkPolicy,

    /// What it may reach, by the name of a policy, such as packages (`motu policy list`)
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,

    /// Save /workspace before each command, for `motu workspace undo`
    #[arg(long)]
    checkpoint: bool,

    /// Print only its id
    #[arg(long, conflicts_with = "json")]
    id_only: bool,

    /// A secret, by value. Other users of this host can see it in the list of processes
    /// while this command runs: prefer --secret-file
    #[arg(long = "secret", value_name = "NAME=VALUE", help_heading = "Secrets")]
    secrets: Vec<String>,

    /// A secret, from a file, or from standard input with NAME=-; taken exactly as it is,
    /// a newline at its end included
    #[arg(
        long = "secret-file",
        value_name = "NAME=PATH",
        help_heading = "Secrets"
    )]
    secret_files: Vec<String>,

    /// A secret by its name (`motu secret set`). Of one that is bound to hosts the variable holds
    /// a placeholder; any other becomes a secret of the workspace, under the variable's name
    #[arg(
        long = "secret-ref",
        value_name = "VARIABLE=SECRET",
        help_heading = "Secrets"
    )]
    secret_refs: Vec<String>,

    #[command(flatten, next_help_heading = "Sandbox")]
    size: SizeArgs,

    /// Megabytes a second it may read from its disks, and write to them [default: no limit]
    #[arg(long, value_name = "MB", help_heading = "Sandbox")]
    io_mbps: Option<u64>,

    /// Reads a second of its disks, and writes [default: no limit]
    #[arg(long, value_name = "N", help_heading = "Sandbox")]
    iops: Option<u64>,

    /// Delete it after this long; 0: never [default: 0]
    #[arg(long, value_name = "SECONDS", help_heading = "Sandbox")]
    ttl_seconds: Option<u64>,

    /// The runtime that makes it [default: the strongest that works here]
    #[arg(long, value_name = "NAME", help_heading = "Sandbox")]
    runtime: Option<String>,

    /// The weakest isolation that will do: vm, gvisor, container or none
    #[arg(long, value_name = "LEVEL", help_heading = "Sandbox", value_parser = word::<Isolation>)]
    isolation: Option<Isolation>,

    /// What a virtual machine runs on: auto, kvm or tcg (software emulation) [default: auto]
    #[arg(long, value_name = "ACCEL", help_heading = "Sandbox", value_parser = word::<Accel>)]
    accel: Option<Accel>,

    /// Work on this host without isolation if no runtime works
    #[arg(long, help_heading = "Sandbox")]
    allow_host_compat: bool,
}

impl Args {
    fn request(&self) -> Result<CreateWorkspace> {
        Ok(CreateWorkspace {
            environment: self.environment.clone().unwrap_or_default(),
            template: self.template.clone(),
            workspace_id: self.id.clone(),
            seed_path: self
                .seed_path
                .as_deref()
                .map(given::host_path)
                .transpose()?,
            name: self.name.clone(),
            labels: given::labels(&self.labels)?,
            network_policy: self.network_policy,
            policy: self.policy.clone(),
            secrets: given::secrets(&self.secrets, &self.secret_files)?,
            secret_refs: given::secret_refs(&self.secret_refs)?,
            runtime: self.runtime.clone(),
            isolation: self.isolation,
            accel: self.accel.unwrap_or_default(),
            size: self.size.into(),
            io_mbps: self.io_mbps,
            iops: self.iops,
            ttl_seconds: self.ttl_seconds,
            allow_host_compat: self.allow_host_compat,
            checkpoint: self.checkpoint,
            ..CreateWorkspace::default()
        })
    }

    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let workspace = make(client, self.request()?, Reader::of(json)).await?;
        show::warn_if_open(&workspace.runtime, workspace.isolation);
        if self.id_only {
            show::print(&format!("{}\n", workspace.workspace_id));
            return Ok(ExitCode::SUCCESS);
        }
        answer(json, &workspace, life::facts);
        Ok(ExitCode::SUCCESS)
    }
}

/// Makes a workspace, after pulling its environment if that is all that is missing.
async fn make(client: &Client, request: CreateWorkspace, reader: Reader) -> Result<Workspace> {
    let make = |request| {
        let work = client.create_workspace(request);
        waiting::machine("making a workspace", reader, work)
    };
    match make(request.clone()).await {
        Err(error) if pull::would_help(&error) => {
            pull::pull(client, &request.environment, reader).await?;
            make(request).await
        }
        outcome => outcome,
    }
}
