//! What is known of a dormant sandbox without asking the store: as little as lists, quotas, names
//! and the audit log need. Most of it is the same for many, and is kept once.

use crate::launch::Launch;
use crate::quota::{Claim, Used};
use jiff::Timestamp;
use motu_core::Isolation;
use motu_core::audit::Facts;
use motu_core::sandbox::Sandbox;
use motu_core::template::TemplateRef;
use serde::Deserialize;
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A stopped sandbox without a driver: it is made again from its row by the next use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dormant {
    pub kind: Arc<Kind>,
    pub created_at: Timestamp,
}

/// What dormant sandboxes may have in common.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    pub owner: String,
    pub runtime: String,
    pub isolation: Isolation,
    pub environment: String,
    pub digest: String,
    pub network: String,
    /// The hash of its policy.
    pub policy: Option<String>,
    /// The name of its template.
    pub template: Option<String>,
    vcpus: u64,
    mem_mib: u64,
    disk_mib: u64,
}

/// As much of a stored sandbox as is read of dormant ones. Everything else is passed over.
#[derive(Debug, Deserialize)]
pub(crate) struct SandboxBrief {
    pub sandbox_id: String,
    #[serde(default)]
    owner: String,
    environment: String,
    digest: String,
    template: Option<TemplateRef>,
    runtime: String,
    isolation: Isolation,
    #[serde(default)]
    keep: bool,
    network: String,
    policy: Option<PolicyBrief>,
    vcpu_count: u64,
    mem_mib: u64,
    created_at: Timestamp,
    expires_at: Option<Timestamp>,
    idle_seconds: u64,
    intent: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct PolicyBrief {
    hash: String,
}

/// As much of how it is launched.
#[derive(Debug, Deserialize)]
pub(crate) struct LaunchBrief {
    limits: LimitsBrief,
    kept: Option<KeptBrief>,
}

#[derive(Debug, Deserialize)]
struct KeptBrief {
    baseline: PathBuf,
}

impl LaunchBrief {
    /// The tree that its `/workspace` began as, if its disks are kept.
    pub(crate) fn baseline(&self) -> Option<&Path> {
        Some(&self.kept.as_ref()?.baseline)
    }
}

#[derive(Debug, Deserialize)]
struct LimitsBrief {
    disk_mib: ValueBrief,
}

#[derive(Debug, Deserialize)]
struct ValueBrief {
    value: u64,
}

impl Dormant {
    /// A stopped sandbox, as it is stored.
    pub(crate) fn of(sandbox: &Sandbox, launch: Option<&Launch>) -> Dormant {
        let claim = Claim::of(sandbox, launch);
        let policy = sandbox.policy.as_ref().map(|policy| policy.hash.clone());
        let template = sandbox.template.as_ref().map(|from| from.name.clone());
        Dormant {
            created_at: sandbox.created_at,
            kind: Arc::new(Kind {
                owner: claim.owner,
                runtime: sandbox.runtime.clone(),
                isolation: sandbox.isolation,
                environment: sandbox.environment.clone(),
                digest: sandbox.digest.clone(),
                network: sandbox.network.clone(),
                policy,
                template,
                vcpus: claim.vcpus,
                mem_mib: claim.mem_mib,
                disk_mib: claim.disk_mib,
            }),
        }
    }

    /// The same from what is stored, if it may be dormant: nothing is to be finished, and no clock ends it.
    pub(crate) fn of_brief(sandbox: SandboxBrief, launch: &LaunchBrief) -> Option<Dormant> {
        let clock = sandbox.expires_at.is_some() || sandbox.idle_seconds > 0;
        if !sandbox.keep || clock || sandbox.intent.is_some() {
            return None;
        }
        Some(Dormant {
            created_at: sandbox.created_at,
            kind: Arc::new(Kind {
                owner: sandbox.owner,
                runtime: sandbox.runtime,
                isolation: sandbox.isolation,
                environment: sandbox.environment,
                digest: sandbox.digest,
                network: sandbox.network,
                policy: sandbox.policy.map(|policy| policy.hash),
                template: sandbox.template.map(|from| from.name),
                vcpus: sandbox.vcpu_count,
                mem_mib: sandbox.mem_mib,
                disk_mib: launch.limits.disk_mib.value,
            }),
        })
    }

    /// What the audit log says of it.
    pub(crate) fn facts(&self, facts: &mut Facts) {
        let kind = &self.kind;
        facts.policy = kind.policy.clone();
        facts.runtime = Some(kind.runtime.clone());
        facts.isolation = Some(kind.isolation);
        facts.environment = Some(kind.environment.clone());
        facts.digest = Some(kind.digest.clone()).filter(|digest| !digest.is_empty());
        facts.network = Some(kind.network.clone());
    }
}

/// How many there are of each kind.
#[derive(Debug, Default)]
pub(crate) struct Counted {
    kinds: HashMap<Arc<Kind>, u64>,
}

impl Counted {
    /// Counts one, and lets it share what others have too.
    pub fn add(&mut self, dormant: Dormant) -> Dormant {
        let Dormant { kind, created_at } = dormant;
        let kind = match self.kinds.get_key_value(&kind) {
            Some((shared, _)) => shared.clone(),
            None => kind,
        };
        *self.kinds.entry(kind.clone()).or_default() += 1;
        Dormant { kind, created_at }
    }

    pub fn remove(&mut self, dormant: &Dormant) {
        if let Some(count) = self.kinds.get_mut(&dormant.kind) {
            *count -= 1;
            if *count == 0 {
                self.kinds.remove(&dormant.kind);
            }
        }
    }

    /// What those of an owner take.
    pub fn used_by(&self, owner: &str) -> Used {
        let mut used = Used::default();
        for (kind, count) in self.kinds.iter().filter(|(kind, _)| kind.owner == owner) {
            let claim = Claim {
                owner: String::new(),
                vcpus: kind.vcpus,
                mem_mib: kind.mem_mib,
                disk_mib: kind.disk_mib.saturating_mul(*count),
            };
            used.add(&claim, false);
        }
        used
    }

    pub fn by_runtime(&self) -> BTreeMap<String, u64> {
        let mut census = BTreeMap::new();
        for (kind, count) in &self.kinds {
            *census.entry(kind.runtime.clone()).or_default() += count;
        }
        census
    }

    pub fn digests(&self) -> Vec<String> {
        self.kinds.keys().map(|kind| kind.digest.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dormant(owner: &str, disk_mib: u64) -> Dormant {
        Dormant {
            created_at: Timestamp::UNIX_EPOCH,
            kind: Arc::new(Kind {
                owner: owner.to_string(),
                runtime: "container".to_string(),
                isolation: Isolation::Container,
                environment: "busybox".to_string(),
                digest: "sha256:1".to_string(),
                network: "off".to_string(),
                policy: None,
                template: None,
                vcpus: 2,
                mem_mib: 512,
                disk_mib,
            }),
        }
    }

    #[test]
    fn those_dormant_row_share_what_they_have_in_common_and_take_their_disks() {
        let mut counted = Counted::default();
        let first = counted.add(dormant("project:a", 10));
        let second = counted.add(dormant("project:a", 10));
        let other = counted.add(dormant("project:b", 7));
        assert!(Arc::ptr_eq(&first.kind, &second.kind));
        let used = counted.used_by("project:a");
        assert_eq!((used.disk_mib, used.sandboxes, used.vcpus), (20, 0, 0));
        assert_eq!(counted.used_by("project:b").disk_mib, 7);
        assert_eq!(counted.by_runtime()["container"], 3);
        counted.remove(&other);
        counted.remove(&first);
        assert_eq!(counted.used_by("project:b"), Used::default());
        assert_eq!(counted.used_by("project:a").disk_mib, 10);
        counted.remove(&second);
        assert!(counted.kinds.is_empty());
    }
}
