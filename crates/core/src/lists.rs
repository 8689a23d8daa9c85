//! Lists as they travel: an object with a count and what is listed under its name.
//!
//! Every face gives the same one. MCP takes nothing but objects as an answer, and an object can
//! be given more fields later.

use crate::SandboxId;
use crate::exec::Process;
use crate::key::Key;
use crate::policy::PolicySummary;
use crate::report::{Environment, Port};
use crate::sandbox::Sandbox;
use crate::secret::SecretSummary;
use crate::template::Template;
use crate::terminal::Terminal;
use crate::workspace::{ServiceStatus, Shell, Snapshot, Workspace, WorkspaceId, WorkspaceSummary};
use serde::{Deserialize, Serialize};
use std::ops::Deref;

/// Declares lists: `Name of (owner: Id) { items: Item }`, where the owner may be left out.
macro_rules! lists {
    ($($(#[$about:meta])* $list:ident $(of ($owner:ident: $id:ty))? { $items:ident: $item:ty })*) => {$(
        $(#[$about])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
        pub struct $list {
            $(pub $owner: $id,)?
            pub count: u64,
            pub $items: Vec<$item>,
            /// There are more: ask with this as `cursor`.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub next_cursor: Option<String>,
        }

        impl $list {
            pub fn new($($owner: $id,)? $items: Vec<$item>) -> $list {
                $list { $($owner,)? count: $items.len() as u64, $items, next_cursor: None }
            }
        }

        impl Deref for $list {
            type Target = [$item];

            fn deref(&self) -> &[$item] {
                &self.$items
            }
        }

        impl IntoIterator for $list {
            type Item = $item;
            type IntoIter = std::vec::IntoIter<$item>;

            fn into_iter(self) -> Self::IntoIter {
                self.$items.into_iter()
            }
        }

        impl<'a> IntoIterator for &'a $list {
            type Item = &'a $item;
            type IntoIter = std::slice::Iter<'a, $item>;

            fn into_iter(self) -> Self::IntoIter {
                self.$items.iter()
            }
        }
    )*};
}

lists! {
    /// Secrets of calls, by name.
    SecretList { secrets: SecretSummary }
    /// Policies, by name.
    PolicyList { policies: PolicySummary }
    /// Keys, the newest last.
    KeyList { keys: Key }
    EnvironmentList { environments: Environment }
    SandboxList { sandboxes: Sandbox }
    /// Templates, by name.
    TemplateList { templates: Template }
    /// What was destroyed because its time was over.
    Reaped { sandbox_ids: SandboxId }
    ProcessList of (sandbox_id: SandboxId) { processes: Process }
    PortList of (sandbox_id: SandboxId) { ports: Port }
    /// The most recently active first.
    WorkspaceList { workspaces: WorkspaceSummary }
    /// The copies of a workspace.
    WorkspaceCopies { workspaces: Workspace }
    /// The baseline first.
    SnapshotList of (workspace_id: WorkspaceId) { snapshots: Snapshot }
    ServiceList of (workspace_id: WorkspaceId) { services: ServiceStatus }
    ShellList of (workspace_id: WorkspaceId) { shells: Shell }
    /// The living ones first, the most recently active first among them.
    TerminalList { sessions: Terminal }
}
