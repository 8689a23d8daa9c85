//! `motu workspace list`, `status`, `update`, `stop`, `start`, `reset`, `undo`, `fork`, `delete`.

use super::Which;
use crate::commands::given;
use crate::commands::page::{PageArgs, more};
use crate::failure::Reader;
use crate::show::answer;
use crate::{show, waiting};
use jiff::Timestamp;
use motu_api::Client;
use motu_core::workspace::{
    BASELINE, ForkWorkspace, ResetTo, Undo, Undone, UpdateWorkspace, Workspace, WorkspaceSummary,
    Workspaces,
};
use motu_core::{Error, Result};
use std::collections::BTreeMap;
use std::process::ExitCode;

/// List workspaces, the most recently active first
#[derive(Debug, clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    page: PageArgs,
}

impl ListArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let all = client.list_workspaces(self.page.into()).await?;
        answer(json, &all, |all| rows(all, Timestamp::now()));
        more(json, all.next_cursor.as_deref());
        Ok(ExitCode::SUCCESS)
    }
}

/// Show one workspace
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    which: Which,
}

impl StatusArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let workspace = client.status_workspace(&self.which.id).await?;
        answer(json, &workspace, facts);
        Ok(ExitCode::SUCCESS)
    }
}

/// Change the name and the labels of a workspace, and nothing else
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace update ws-3f9k2m7qx0ab --name fix-login --label state=review
  motu workspace update ws-3f9k2m7qx0ab --clear-name --clear-label state")]
pub struct UpdateArgs {
    #[command(flatten)]
    which: Which,

    /// A new name
    #[arg(long, value_name = "NAME", conflicts_with = "clear_name")]
    name: Option<String>,

    /// Take its name away
    #[arg(long)]
    clear_name: bool,

    /// Add a label, or change it; may be given several times
    #[arg(long = "label", value_name = "KEY=VALUE")]
    labels: Vec<String>,

    /// Take a label away; may be given several times
    #[arg(long = "clear-label", value_name = "KEY")]
    clear_labels: Vec<String>,
}

impl UpdateArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let nothing = self.name.is_none() && !self.clear_name;
        if nothing && self.labels.is_empty() && self.clear_labels.is_empty() {
            return Err(Error::invalid("nothing is to be changed")
                .hint("give --name, --clear-name, --label or --clear-label"));
        }
        let update = UpdateWorkspace {
            name: self.name,
            clear_name: self.clear_name,
            labels: given::labels(&self.labels)?,
            clear_labels: self.clear_labels,
        };
        let workspace = client.update_workspace(&self.which.id, update).await?;
        answer(json, &workspace, facts);
        Ok(ExitCode::SUCCESS)
    }
}

/// End the machine of a workspace; everything it keeps stays
///
/// Its /workspace, root, snapshots, secrets and history are there again after
/// `motu workspace start`. Commands, services and shells that run end.
#[derive(Debug, clap::Args)]
pub struct StopArgs {
    #[command(flatten)]
    which: Which,
}

impl StopArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let work = client.stop_workspace(&self.which.id);
        let workspace = waiting::told("stopping", Reader::of(json), work).await?;
        answer(json, &workspace, state);
        Ok(ExitCode::SUCCESS)
    }
}

/// Start a stopped workspace with the disks it had
#[derive(Debug, clap::Args)]
pub struct StartArgs {
    #[command(flatten)]
    which: Which,
}

impl StartArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let work = client.start_workspace(&self.which.id);
        let workspace = waiting::machine("starting", Reader::of(json), work).await?;
        answer(json, &workspace, state);
        Ok(ExitCode::SUCCESS)
    }
}

/// Make the whole machine anew, with /workspace as a snapshot has it
///
/// Everything outside /workspace is as the environment has it again. The history of
/// commands, the services and the shells are gone; snapshots and secrets stay.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace reset ws-3f9k2m7qx0ab
  motu workspace reset ws-3f9k2m7qx0ab --snapshot before-upgrade")]
pub struct ResetArgs {
    #[command(flatten)]
    which: Which,

    /// The snapshot, or baseline: the state it was created in
    #[arg(long, value_name = "NAME|baseline", default_value = BASELINE)]
    snapshot: String,
}

impl ResetArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let work = client.reset_workspace(&self.which.id, ResetTo::snapshot(&self.snapshot));
        let workspace = waiting::machine("resetting", Reader::of(json), work).await?;
        answer(json, &workspace, |workspace| {
            format!(
                "{} is {}, reset to {}\n",
                workspace.workspace_id,
                workspace.state,
                show::safe(&self.snapshot)
            )
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// Take the last commands back that ran with a checkpoint
///
/// /workspace is again as it was before the last of them, or before the last N. The
/// machine, its services and its shells go on; what was done outside /workspace stays,
/// and so does the history. A program that has a file open keeps the one it opened.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  motu workspace create debian:12 --id try --checkpoint
  motu workspace exec try -- rm -rf src
  motu workspace undo try
  motu workspace undo try 3")]
pub struct UndoArgs {
    #[command(flatten)]
    which: Which,

    /// How many commands
    #[arg(value_name = "N", default_value_t = 1)]
    steps: u64,
}

impl UndoArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let ask = Undo { steps: self.steps };
        let work = client.undo_workspace(&self.which.id, ask);
        let done = waiting::told("going back", Reader::of(json), work).await?;
        answer(json, &done, undone);
        Ok(ExitCode::SUCCESS)
    }
}

fn undone(undone: &Undone) -> String {
    // The earliest command that was undone.
    let before = match undone.commands.last() {
        Some(command) => format!("`{}`", show::safe(&show::words(command))),
        None => show::count(undone.steps, "command", "commands"),
    };
    format!(
        "{} is as it was before {before}: {} put back, {} removed\n{} can be taken back\n",
        undone.workspace_id,
        show::count(undone.restored_count, "path", "paths"),
        undone.removed_count,
        show::count(undone.checkpoint_count, "more command", "more commands"),
    )
}

/// Copy a workspace
///
/// Prints the ids of the copies, one a line. Each has a /workspace of its own that
/// begins as this one is now, and its own machine.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  for id in $(motu workspace fork ws-3f9k2m7qx0ab -n 3); do
    motu workspace exec $id -- ./try
  done")]
pub struct ForkArgs {
    #[command(flatten)]
    which: Which,

    /// How many copies [default: 1]
    #[arg(short = 'n', long = "count", value_name = "N")]
    count: Option<u64>,

    /// Names of the copies begin with this
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
}

impl ForkArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let fork = ForkWorkspace {
            count: self.count,
            name: self.name,
        };
        let work = client.fork_workspace(&self.which.id, fork);
        let copies = waiting::told("copying", Reader::of(json), work).await?;
        answer(json, &copies, |copies| {
            let lines = copies.iter().map(|copy| format!("{}\n", copy.workspace_id));
            lines.collect()
        });
        Ok(ExitCode::SUCCESS)
    }
}

/// Delete a workspace, with its snapshots, secrets and history
///
/// Asks nothing, and cannot be undone.
#[derive(Debug, clap::Args)]
pub struct DeleteArgs {
    #[command(flatten)]
    which: Which,
}

impl DeleteArgs {
    pub async fn run(self, client: &Client, json: bool) -> Result<ExitCode> {
        let work = client.delete_workspace(&self.which.id);
        let workspace = waiting::told("deleting", Reader::of(json), work).await?;
        answer(json, &workspace, |workspace| {
            format!("{}\n", workspace.workspace_id)
        });
        Ok(ExitCode::SUCCESS)
    }
}

fn state(workspace: &Workspace) -> String {
    format!("{} is {}\n", workspace.workspace_id, workspace.state)
}

fn labels(labels: &BTreeMap<String, String>) -> Option<String> {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    (!pairs.is_empty()).then(|| pairs.join(" "))
}

/// What is known of a workspace, a line each.
pub fn facts(workspace: &Workspace) -> String {
    let seed = &workspace.workspace_seed;
    let seeded = match &seed.seed_path {
        Some(path) => format!("{} {path}, {}", seed.mode, show::entries(seed.entry_count)),
        None => seed.mode.clone(),
    };
    let state = match &workspace.reason {
        Some(reason) => format!("{}: {reason}", workspace.state),
        None => workspace.state.to_string(),
    };
    let secrets: Vec<&str> = workspace
        .secrets
        .iter()
        .map(|secret| secret.name.as_str())
        .collect();
    let services = format!(
        "{}, {} running",
        workspace.service_count, workspace.running_service_count
    );
    let made_by = show::made_by(
        &workspace.runtime,
        workspace.isolation,
        workspace.accelerator.as_deref(),
    );
    let warning = workspace
        .host_compat
        .then(|| "this host itself, with no isolation".to_string());
    show::facts(&[
        ("workspace", Some(workspace.workspace_id.to_string())),
        ("name", workspace.name.clone()),
        ("labels", labels(&workspace.labels)),
        ("state", Some(state)),
        ("environment", Some(workspace.environment.clone())),
        ("runtime", Some(made_by)),
        ("host compat", warning),
        ("network", Some(network(workspace))),
        (
            "size",
            Some(format!(
                "{} CPU, {} MiB",
                workspace.vcpu_count, workspace.mem_mib
            )),
        ),
        ("seed", Some(seeded)),
        ("secrets", (!secrets.is_empty()).then(|| secrets.join(" "))),
        ("created", Some(workspace.created_at.to_string())),
        ("active", Some(workspace.last_activity_at.to_string())),
        ("expires", workspace.expires_at.map(|at| at.to_string())),
        (
            "resets",
            (workspace.reset_count > 0).then(|| workspace.reset_count.to_string()),
        ),
        ("commands", Some(workspace.command_count.to_string())),
        ("services", Some(services)),
        ("shells", Some(workspace.shell_count.to_string())),
        ("snapshots", Some(workspace.snapshot_count.to_string())),
        ("checkpoints", checkpoints(workspace)),
    ])
}

fn checkpoints(workspace: &Workspace) -> Option<String> {
    match (workspace.checkpoint, workspace.checkpoint_count) {
        (true, count) => Some(format!("{count}, one before each command")),
        (false, 0) => None,
        (false, count) => Some(count.to_string()),
    }
}

fn rows(workspaces: &[WorkspaceSummary], now: Timestamp) -> String {
    let row = |workspace: &WorkspaceSummary| {
        vec![
            workspace.workspace_id.to_string(),
            workspace.name.clone().unwrap_or_else(|| "-".to_string()),
            workspace.state.to_string(),
            workspace.environment.clone(),
            format!("{} ({})", workspace.runtime, workspace.isolation),
            workspace.command_count.to_string(),
            format!(
                "{}/{}",
                workspace.running_service_count, workspace.service_count
            ),
            show::ago(workspace.last_activity_at, now),
            labels(&workspace.labels).unwrap_or_default(),
        ]
    };
    let rows: Vec<Vec<String>> = workspaces.iter().map(row).collect();
    let headings = [
        "ID",
        "NAME",
        "STATE",
        "ENVIRONMENT",
        "RUNTIME",
        "COMMANDS",
        "SERVICES",
        "ACTIVE",
        "LABELS",
    ];
    show::table(&headings, &rows)
}

/// What it may reach.
fn network(workspace: &Workspace) -> String {
    match &workspace.policy {
        Some(policy) => format!("{} (policy {policy})", workspace.network_policy),
        None => workspace.network_policy.to_string(),
    }
}
