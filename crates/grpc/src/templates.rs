//! Templates: saved from sandboxes, and removed.
//!
//! Saving a sandbox creates an environment, and a template that starts from it with the
//! sandbox's size. Both are named after the template, so that both can be removed together.

use crate::agent::Agent;
use crate::wire::{
    CreateSnapshotRequest, CreateSnapshotResponse, DeleteSnapshotRequest, DeleteSnapshotResponse,
    FlattenRootfsRequest, FlattenRootfsResponse,
};
use crate::{ask, names};
use motu_core::sandbox::{AfterCommit, CommitSandbox, Sandbox};
use motu_core::size::Size;
use motu_core::template::{Template, TemplateDefinition};
use motu_core::{Error, ErrorKind, Project, Result, SandboxId, Service, id};

/// The name prefix of environments that belong to such templates.
const SAVED: &str = "snapshot-";

impl Agent {
    /// Saves files, not processes: the machine is stopped cleanly, and the sandbox is destroyed.
    pub async fn save_template(
        self,
        message: CreateSnapshotRequest,
    ) -> Result<CreateSnapshotResponse> {
        let sandbox_id = ask::sandbox(&message.sandbox_id)?;
        let named = names::template(&message.name, &message.team_id, &message.template_id)?;
        let name = named.unwrap_or_else(|| format!("template-{}", id::random_name(8)));
        let size_bytes = self.save(&sandbox_id, &name).await?;
        Ok(CreateSnapshotResponse { name, size_bytes })
    }

    pub async fn flatten(self, message: FlattenRootfsRequest) -> Result<FlattenRootfsResponse> {
        let sandbox_id = ask::sandbox(&message.sandbox_id)?;
        let named = names::template(&message.name, &message.team_id, &message.template_id)?;
        let size_bytes = self.save(&sandbox_id, &named.ok_or_else(unnamed)?).await?;
        Ok(FlattenRootfsResponse { size_bytes })
    }

    /// Creates a template from the disks of a sandbox; returns its size.
    async fn save(&self, id: &SandboxId, name: &str) -> Result<i64> {
        match self.get_template(name).await {
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Ok(_) => {
                return Err(
                    Error::conflict(format!("the template {name} exists already"))
                        .hint("choose another name, or delete that template first"),
                );
            }
            Err(error) => return Err(error),
        }
        let sandbox = self.get_sandbox(id).await?;
        let commit = CommitSandbox {
            name: environment(name),
            then: AfterCommit::Stop,
        };
        let made = self.commit_sandbox(id, commit).await?;
        let (progress, _) = tokio::sync::mpsc::channel(1);
        let definition = definition(&sandbox, made.name.clone());
        if let Err(error) = self.put_template(name, definition, progress).await {
            // Half of a template is none: what was made for it goes, and the sandbox goes on.
            self.remove_environment(&made.name).await?;
            self.start_sandbox(id).await?;
            return Err(error);
        }
        // Destroy the sandbox only now that everything is saved.
        self.destroy_sandbox(id).await?;
        let size = made.size_bytes.unwrap_or(0);
        Ok(i64::try_from(size).unwrap_or(i64::MAX))
    }

    pub async fn delete_template(
        self,
        message: DeleteSnapshotRequest,
    ) -> Result<DeleteSnapshotResponse> {
        let named = names::template(&message.name, &message.team_id, &message.template_id)?;
        let name = named.ok_or_else(unnamed)?;
        let gone = self.remove_template(&name).await?;
        if self.saved(&gone) {
            self.remove_environment(&gone.definition.environment)
                .await?;
        }
        Ok(DeleteSnapshotResponse {})
    }

    /// Whether the environment of a template was made for it alone.
    fn saved(&self, template: &Template) -> bool {
        let project = Project::of_owner(&self.owner()).map(|project| format!("{project}--"));
        let short = |name: &str| match &project {
            Some(project) => name
                .strip_prefix(project.as_str())
                .unwrap_or(name)
                .to_string(),
            None => name.to_string(),
        };
        short(&template.definition.environment) == environment(&short(&template.name))
    }
}

fn environment(template: &str) -> String {
    format!("{SAVED}{template}:1")
}

/// The definition of a template whose machines are like the sandbox.
fn definition(sandbox: &Sandbox, environment: String) -> TemplateDefinition {
    let disk = sandbox.limits.iter().find(|one| one.name == "disk_mib");
    TemplateDefinition {
        environment,
        size: Size {
            vcpu_count: Some(sandbox.vcpu_count),
            mem_mib: Some(sandbox.mem_mib),
            disk_mib: disk.map(|disk| disk.value),
        },
        ..TemplateDefinition::default()
    }
}

fn unnamed() -> Error {
    Error::invalid("no template is named")
        .hint("set name, or team_id and template_id; the configured environment stays")
}
