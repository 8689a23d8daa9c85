//! Templates: saved from sandboxes, and removed.

use crate::agent::Agent;
use crate::names;
use crate::wire::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    FlattenRootfsRequest, FlattenRootfsResponse,
};
use motu_core::hint::verb;
use motu_core::{Error, Result, Service, hint};

impl Agent {
    pub async fn save_template(self, _: CreateSnapshotRequest) -> Result<CreateSnapshotResponse> {
        Err(unsaved())
    }

    pub async fn flatten(self, _: FlattenRootfsRequest) -> Result<FlattenRootfsResponse> {
        Err(unsaved())
    }

    pub async fn delete_template(
        self,
        message: DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse> {
        let named = names::template(&message.name, &message.team_id, &message.template_id)?;
        let name = named.ok_or_else(|| {
            Error::invalid("no template is named")
                .hint("set name, or team_id and template_id; the configured environment stays")
        })?;
        self.remove_template(&name).await?;
        Ok(DeleteSnapshotResponse {})
    }
}

fn unsaved() -> Error {
    Error::unsupported("sandboxes cannot be saved as templates yet")
        .hint(hint!["describe the template: ", verb("put_template")])
}
