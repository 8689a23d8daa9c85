//! `[quota]`: what one owner may have and do, and `[quota.projects.NAME]` for one project.

use crate::limits::{self, Limit};
use crate::{Error, Project};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What one owner may have and do; 0 is any number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct QuotaConfig {
    /// Sandboxes that have a machine.
    pub sandboxes: u64,
    /// Calls that change or run something.
    pub calls_per_minute: u64,
    /// CPUs of all of them.
    pub vcpus: u64,
    /// Memory of all of them.
    pub mem_mib: u64,
    /// Disks of all of them, stopped ones included: what they may grow to.
    pub disk_mib: u64,
    /// Templates of a project.
    pub templates: u64,
    /// Terminal sessions of a project that are alive.
    pub terminals: u64,
    /// Environments that a project has made.
    pub environments: u64,
    /// Secrets of a project.
    pub secrets: u64,
    /// The quotas of single projects, which replace these as a whole.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub projects: BTreeMap<String, QuotaConfig>,
}

impl Default for QuotaConfig {
    fn default() -> QuotaConfig {
        QuotaConfig {
            sandboxes: limits::QUOTA_SANDBOXES.default,
            calls_per_minute: limits::QUOTA_CALLS_PER_MINUTE.default,
            vcpus: limits::QUOTA_VCPUS.default,
            mem_mib: limits::QUOTA_MEM_MIB.default,
            disk_mib: limits::QUOTA_DISK_MIB.default,
            templates: limits::QUOTA_TEMPLATES.default,
            terminals: limits::QUOTA_TERMINALS.default,
            environments: limits::QUOTA_ENVIRONMENTS.default,
            secrets: limits::QUOTA_SECRETS.default,
            projects: BTreeMap::new(),
        }
    }
}

impl QuotaConfig {
    /// The quotas of a project.
    pub fn of(&self, project: &str) -> &QuotaConfig {
        self.projects.get(project).unwrap_or(self)
    }

    /// The quotas of an owner: a project, or a user of the host.
    pub fn of_owner(&self, owner: &str) -> &QuotaConfig {
        match Project::of_owner(owner) {
            Some(project) => self.of(project.as_str()),
            None => self,
        }
    }

    /// Each number with its limit; those of single projects are not among them.
    pub fn parts(&self) -> [(Limit, u64); 9] {
        [
            (limits::QUOTA_SANDBOXES, self.sandboxes),
            (limits::QUOTA_CALLS_PER_MINUTE, self.calls_per_minute),
            (limits::QUOTA_VCPUS, self.vcpus),
            (limits::QUOTA_MEM_MIB, self.mem_mib),
            (limits::QUOTA_DISK_MIB, self.disk_mib),
            (limits::QUOTA_TEMPLATES, self.templates),
            (limits::QUOTA_TERMINALS, self.terminals),
            (limits::QUOTA_ENVIRONMENTS, self.environments),
            (limits::QUOTA_SECRETS, self.secrets),
        ]
    }

    pub(super) fn check(&self) -> Result<(), Error> {
        for (limit, value) in self.parts() {
            limit.resolve(Some(value))?;
        }
        for (name, own) in &self.projects {
            let part = |error: Error| Error {
                message: format!("[quota.projects.{name}]: {}", error.message),
                ..error
            };
            Project::parse(name).map_err(part)?;
            if !own.projects.is_empty() {
                return Err(part(Error::invalid("a project has no projects")));
            }
            own.check().map_err(part)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn a_project_may_have_quotas_of_its_own() {
        let text = "[quota]\nsandboxes = 3\nmem_mib = 4096\n\
                    [quota.projects.acme]\nsandboxes = 50\nvcpus = 8\n";
        let quota = Config::parse(text).unwrap().quota;
        let acme = quota.of_owner("project:acme");
        assert_eq!((acme.sandboxes, acme.vcpus, acme.mem_mib), (50, 8, 0));
        for other in ["project:beta", "uid:0", "acme"] {
            assert_eq!(quota.of_owner(other).sandboxes, 3, "{other}");
        }
        assert_eq!(quota.of("acme").sandboxes, 50);
    }

    #[test]
    fn quotas_that_mean_nothing_are_refused() {
        for (text, part) in [
            ("[quota.projects.\"A b\"]\nsandboxes = 1\n", "A b"),
            (
                "[quota.projects.acme.projects.beta]\nsandboxes = 1\n",
                "acme",
            ),
            ("[quota.projects.acme]\nsandboxes = 10001\n", "acme"),
            ("[quota]\nvcpus = 1000001\n", "vcpus"),
            ("[quota.projects.acme]\nplanes = 1\n", "planes"),
        ] {
            let error = Config::parse(text).unwrap_err();
            assert!(error.message.contains(part), "{text}: {error}");
        }
    }
}
