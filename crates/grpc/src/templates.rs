//! Templates: saved from sandboxes, and removed.

use crate::agent::Agent;
use crate::wire::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    FlattenRootfsRequest, FlattenRootfsResponse,
};
use crate::{ask, names};
use motu_core::commit::AfterCommit;
use motu_core::template::SaveTemplate;
use motu_core::{Error, Result, SandboxId, Service, id};

impl Agent {
    /// Saves a sandbox with its memory where the runtime can, and destroys it.
    pub async fn save_sandbox(
        self,
        message: CreateSnapshotRequest,
    ) -> Result<CreateSnapshotResponse> {
        let sandbox_id = ask::sandbox(&message.sandbox_id)?;
        let named = names::template(&message.name, &message.team_id, &message.template_id)?;
        let name = named.unwrap_or_else(|| format!("template-{}", id::random_hex(8)));
        let size_bytes = self.save(&sandbox_id, &name, None).await?;
        Ok(CreateSnapshotResponse { name, size_bytes })
    }

    /// Saves the files of a sandbox, and destroys it.
    pub async fn flatten(self, message: FlattenRootfsRequest) -> Result<FlattenRootfsResponse> {
        let sandbox_id = ask::sandbox(&message.sandbox_id)?;
        let named = names::template(&message.name, &message.team_id, &message.template_id)?;
        let name = named.ok_or_else(unnamed)?;
        let size_bytes = self.save(&sandbox_id, &name, Some(false)).await?;
        Ok(FlattenRootfsResponse { size_bytes })
    }

    /// Makes a template of a sandbox, which ends with that; returns its size.
    async fn save(&self, id: &SandboxId, name: &str, memory: Option<bool>) -> Result<i64> {
        let ask = SaveTemplate {
            name: name.to_string(),
            memory,
            then: AfterCommit::Destroy,
        };
        let saved = self.save_template(id, ask).await?.saved;
        let size = saved.map_or(0, |saved| saved.size_bytes);
        Ok(i64::try_from(size).unwrap_or(i64::MAX))
    }

    pub async fn delete_template(
        self,
        message: DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse> {
        let named = names::template(&message.name, &message.team_id, &message.template_id)?;
        let name = named.ok_or_else(unnamed)?;
        self.remove_template(&name).await?;
        Ok(DeleteSnapshotResponse {})
    }
}

fn unnamed() -> Error {
    Error::invalid("no template is named")
        .hint("set name, or team_id and template_id; the configured environment stays")
}
