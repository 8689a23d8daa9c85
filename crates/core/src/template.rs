//! Templates: machines that are described once, prepared ahead and asked for by name.

use crate::ask::Ask;
use crate::bounds::Bounds;
use crate::call::SecretRef;
use crate::commit::AfterCommit;
use crate::size::Size;
use crate::{Error, Isolation, Project, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What machines of a template are made from. Everything but the environment has a default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TemplateDefinition {
    /// Who it belongs to; the gate says, not the caller.
    #[serde(skip)]
    pub owner: String,
    /// What the caller's key allows; the gate says, not the caller.
    #[serde(skip)]
    pub bounds: Bounds,
    /// The environment to begin with, such as `debian:12`.
    pub environment: String,
    /// Commands for its shell, one step each. What they change is the environment that machines
    /// start from; it is built once.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub setup: Vec<String>,
    /// The policy of the network that the setup has; that of the machines when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_policy: Option<String>,
    /// Environment variables of the setup and of every command.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Variables that hold placeholders of secrets that are bound to hosts:
    /// `{"KEY": {"ref": "openai-api-key"}}`. Values are never part of a template.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_refs: BTreeMap<String, SecretRef>,
    /// The only hosts that its machines reach, of those that `policy` allows: `api.example.com`,
    /// `*.example.com`, an address; each with `:PORT`, or with every port that the policy allows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub allowed_hosts: Vec<String>,
    /// The policy of its network, which it then has; `public` when there are `allowed_hosts`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// A runtime's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<String>,
    /// The weakest isolation that will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(flatten)]
    pub size: Size,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_seconds: Option<u64>,
    /// Machines that wait ready for it. Those with a network cannot wait.
    #[serde(skip_serializing_if = "is_zero")]
    pub pool_size: u64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl TemplateDefinition {
    /// Whether its machines have a network.
    pub fn has_network(&self) -> bool {
        self.policy.is_some() || !self.allowed_hosts.is_empty()
    }

    /// The policy of its network, if it has one.
    pub fn network(&self) -> Option<&str> {
        let usual = self.has_network().then_some(crate::policy::PUBLIC);
        self.policy.as_deref().or(usual)
    }

    /// The parts of the definition that machines are made from, as one text: how many wait and
    /// how the template is labelled changes none of them.
    pub fn essence(&self) -> Result<String> {
        let essential = TemplateDefinition {
            pool_size: 0,
            labels: BTreeMap::new(),
            ..self.clone()
        };
        serde_json::to_string(&essential)
            .map_err(|error| Error::internal(format!("template: {error}")))
    }
}

/// A template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Template {
    pub name: String,
    /// Who it belongs to: `uid:` and a user of the host.
    pub owner: String,
    /// Counts what machines were made from: the definition, and what the setup made of it.
    pub version: u64,
    /// Of the definition, without `pool_size` and `labels`: `sha256:` and 64 digits.
    pub digest: String,
    pub definition: TemplateDefinition,
    /// What the setup made; missing without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built: Option<TemplateBuild>,
    /// What was saved, of a template that is a sandbox as it once was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub saved: Option<SavedTemplate>,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    pub updated_at: Timestamp,
    /// The machines that wait for it.
    #[serde(default)]
    pub pool: TemplatePool,
}

impl Template {
    /// The environment that its machines start from.
    pub fn start(&self) -> &str {
        match &self.built {
            Some(built) => &built.environment,
            None => &self.definition.environment,
        }
    }

    /// What was saved with its memory, if that is what its machines begin with.
    pub fn asleep(&self) -> Option<&SavedTemplate> {
        self.saved.as_ref().filter(|saved| saved.memory)
    }

    /// What a machine of it says about it.
    pub fn reference(&self) -> TemplateRef {
        TemplateRef {
            name: self.name.clone(),
            version: self.version,
            digest: self.digest.clone(),
            labels: self.definition.labels.clone(),
        }
    }
}

/// What the setup of a template made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TemplateBuild {
    /// The environment, by name.
    pub environment: String,
    /// Of its root.
    pub digest: String,
    /// What it takes on the host's disk; missing in those of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size_bytes: Option<u64>,
    #[schema(value_type = String, format = DateTime)]
    pub built_at: Timestamp,
}

/// A sandbox that became a template.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct SavedTemplate {
    /// Machines of the template begin where the sandbox was: with its memory and what ran in it.
    /// Otherwise they begin with its files.
    pub memory: bool,
    /// Its disks were kept, so those of its machines are too.
    pub keep: bool,
    /// What it takes on the host's disk.
    pub size_bytes: u64,
    #[schema(value_type = String, format = DateTime)]
    pub saved_at: Timestamp,
}

/// How a sandbox becomes a template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SaveTemplate {
    /// What the template will be called; no other may have the name.
    pub name: String,
    /// With the memory, or the files alone. When missing: with it, where the runtime can and the
    /// sandbox has a machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<bool>,
    /// What becomes of the sandbox. One that is saved with its memory is not interrupted by `start`.
    #[serde(default)]
    pub then: AfterCommit,
}

/// The machines that wait for a template, as they are now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TemplatePool {
    /// Those that could be taken at once; another pool of the same kind counts too.
    pub ready: u64,
    /// Those that were taken since the daemon began.
    pub taken: u64,
    /// Why there are fewer than there should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Which template a machine came from, as it was then.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct TemplateRef {
    pub name: String,
    pub version: u64,
    pub digest: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// How a template is built again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RebuildTemplate {
    /// Run every step again.
    pub no_cache: bool,
}

impl Ask for TemplateDefinition {
    const LONG: bool = true;

    fn belongs_to(&mut self, owner: &str) {
        self.owner = owner.to_string();
    }

    fn bounded(&mut self, bounds: &Bounds) {
        self.bounds = bounds.clone();
    }

    fn within(&mut self, project: &Project) -> Result<()> {
        let secrets = self.secret_refs.values_mut();
        project.complete_names(secrets.map(|secret| &mut secret.name));
        Ok(())
    }

    fn environments(&mut self) -> Vec<&mut String> {
        vec![&mut self.environment]
    }
}

impl Ask for RebuildTemplate {}

impl Ask for SaveTemplate {
    fn within(&mut self, project: &Project) -> Result<()> {
        project.complete_name(&mut self.name);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition() -> TemplateDefinition {
        TemplateDefinition {
            environment: "debian:12".to_string(),
            env: BTreeMap::from([
                ("A".to_string(), "template".to_string()),
                ("B".to_string(), "template".to_string()),
            ]),
            allowed_hosts: vec!["example.com".to_string()],
            size: Size::of(256, 512),
            ttl_seconds: Some(60),
            isolation: Some(Isolation::Gvisor),
            ..TemplateDefinition::default()
        }
    }

    /// Digests of templates that are stored are made of this text.
    #[test]
    fn the_essence_is_written_as_ever() {
        let text = concat!(
            r#"{"environment":"debian:12","env":{"A":"template","B":"template"},"#,
            r#""allowed_hosts":["example.com"],"isolation":"gvisor","#,
            r#""mem_mib":256,"disk_mib":512,"ttl_seconds":60}"#
        );
        assert_eq!(definition().essence().unwrap(), text);
    }

    #[test]
    fn how_many_wait_and_labels_are_not_of_the_essence() {
        let one = definition();
        let mut other = one.clone();
        other.pool_size = 3;
        other.labels.insert("team".to_string(), "web".to_string());
        assert_eq!(one.essence(), other.essence());
        other.setup.push("true".to_string());
        assert_ne!(one.essence(), other.essence());
    }
}
