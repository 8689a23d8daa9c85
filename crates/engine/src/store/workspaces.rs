//! Rows of workspaces and of what belongs to them.

use super::Store;
use motu_core::{Result, SandboxId};
use rusqlite::params;

/// Everything that belongs to a workspace.
const TABLES: [&str; 5] = ["workspaces", "secrets", "commands", "services", "shells"];

impl Store {
    /// Forgets all that belongs to a workspace; nothing, for other sandboxes.
    pub async fn forget_workspace(&self, id: &SandboxId) -> Result<()> {
        let key = id.to_string();
        self.with_durable("forget", move |transaction| {
            for table in TABLES {
                let statement = format!("DELETE FROM {table} WHERE workspace_id = ?1");
                transaction.execute(&statement, params![key])?;
            }
            Ok(())
        })
        .await
    }
}
