//! Which tools a client sees.

use crate::schema::Field;
use crate::tool::Tool;
use crate::tools;
use motu_core::{Error, Result};
use std::str::FromStr;

/// A choice of tools. A profile narrows what a model sees, never how it works.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Profile {
    /// One tool: one command in a machine of its own.
    VmRun,
    /// The tools of one persistent workspace; the place to begin.
    WorkspaceCore,
    /// Every tool but those of terminals.
    #[default]
    WorkspaceFull,
    /// Terminal sessions.
    Terminal,
    /// One tool: one typed call, bounded by a policy.
    AgentTool,
    /// Every tool there is.
    All,
}

const CORE: &[&str] = &[
    "vm_run",
    "workspace_create",
    "workspace_list",
    "workspace_update",
    "workspace_status",
    "workspace_sync_push",
    "workspace_exec",
    "workspace_logs",
    "workspace_file_list",
    "workspace_file_read",
    "workspace_file_write",
    "workspace_patch_apply",
    "workspace_diff",
    "workspace_export",
    "workspace_reset",
    "workspace_delete",
];

impl Profile {
    pub const ALL: [Profile; 6] = [
        Profile::VmRun,
        Profile::WorkspaceCore,
        Profile::WorkspaceFull,
        Profile::Terminal,
        Profile::AgentTool,
        Profile::All,
    ];
    pub const NAMES: [&'static str; 6] = [
        "vm-run",
        "workspace-core",
        "workspace-full",
        "terminal",
        "agent-tool",
        "all",
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Profile::VmRun => Self::NAMES[0],
            Profile::WorkspaceCore => Self::NAMES[1],
            Profile::WorkspaceFull => Self::NAMES[2],
            Profile::Terminal => Self::NAMES[3],
            Profile::AgentTool => Self::NAMES[4],
            Profile::All => Self::NAMES[5],
        }
    }

    /// Its tools, in the order a client lists them.
    pub(crate) fn tools(self) -> Vec<&'static Tool> {
        match self {
            Profile::VmRun => tools::machines()
                .filter(|tool| tool.name == "vm_run")
                .collect(),
            Profile::WorkspaceCore => tools::machines()
                .filter(|tool| CORE.contains(&tool.name))
                .collect(),
            Profile::WorkspaceFull => tools::machines().collect(),
            Profile::Terminal => tools::terminals().collect(),
            Profile::AgentTool => tools::calls().collect(),
            Profile::All => tools::machines()
                .chain(tools::calls())
                .chain(tools::terminals())
                .collect(),
        }
    }

    /// Whether it has the tools of workspaces.
    pub(crate) fn has_workspaces(self) -> bool {
        self.has_services() || self == Profile::WorkspaceCore
    }

    /// Whether it has the tools of services, and what else belongs to a whole workspace.
    pub(crate) fn has_services(self) -> bool {
        matches!(self, Profile::WorkspaceFull | Profile::All)
    }

    /// Whether it has the tools of terminals.
    pub fn has_terminals(self) -> bool {
        matches!(self, Profile::Terminal | Profile::All)
    }

    /// The fields of a tool that this profile shows.
    pub(crate) fn fields(self, tool: &Tool) -> Vec<Field> {
        let hidden: &[&str] = match (self, tool.name) {
            (Profile::WorkspaceCore, "workspace_create") => &[
                "network_policy",
                "policy",
                "secrets",
                "secret_refs",
                "checkpoint",
            ],
            (Profile::WorkspaceCore, "workspace_exec") => &["secret_env", "checkpoint"],
            _ => &[],
        };
        let shown = tool.fields.iter();
        shown
            .filter(|field| !hidden.contains(&field.name))
            .copied()
            .collect()
    }

    /// What a client may tell its model about the whole server.
    pub(crate) fn instructions(self) -> String {
        match self {
            Profile::VmRun => MACHINES.to_string(),
            Profile::WorkspaceCore | Profile::WorkspaceFull => WORKSPACES.to_string(),
            Profile::Terminal => TERMINALS.to_string(),
            Profile::AgentTool => CALLS.to_string(),
            Profile::All => format!(
                "{WORKSPACES} {TERMINALS} create_session with sandbox_id opens a session in a \
                 workspace."
            ),
        }
    }
}

const MACHINES: &str = "Runs commands in isolated, disposable Linux machines. They have no network unless \
     asked for and see nothing of the host.";
const CALLS: &str = "Runs one command in an isolated, disposable Linux machine, with files in and files out. What it \
     may use and reach is fixed by the operator; a failure says whether to try again.";
const WORKSPACES: &str = "Isolated Linux machines. vm_run is for one command. For anything longer make a \
     workspace: workspace_create, then workspace_exec and workspace_file_* on its workspace_id, \
     workspace_diff to see what changed, workspace_export to bring results to the host. A workspace \
     outlives this connection: find it again with workspace_list. Machines have no network unless they \
     were made with one. A result that was cut names a motu:// resource with the rest.";
const TERMINALS: &str = "Terminal sessions on a real PTY in an isolated Linux machine. A session_id is a name of \
     your choice; sessions outlive this connection. run a command and read exit_code and output; status \
     says what is needed next: ready (a command), repl (a statement), password (send_password), confirm \
     (send_input), pager or editor (get_screen, send_keys), running (poll_output, expect, or send_control \
     c).";

impl FromStr for Profile {
    type Err = Error;

    fn from_str(text: &str) -> Result<Profile> {
        let found = Profile::ALL.into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| {
            Error::invalid(format!("there is no profile {text:?}"))
                .hint(format!("one of: {}", Profile::NAMES.join(", ")))
        })
    }
}
