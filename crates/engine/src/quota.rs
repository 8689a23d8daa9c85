//! Quotas of one owner. Pure: whoever keeps what is counted checks under its lock, so that two
//! concurrent requests cannot both take the last place.

use crate::launch::Launch;
use motu_core::config::QuotaConfig;
use motu_core::hint;
use motu_core::hint::{Verb, verb};
use motu_core::limits::{self, Limit};
use motu_core::project;
use motu_core::sandbox::Sandbox;
use motu_core::{Error, Project, Result};

/// The owner of a sandbox and the resources it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub owner: String,
    pub vcpus: u64,
    pub mem_mib: u64,
    pub disk_mib: u64,
}

impl Claim {
    pub fn of(sandbox: &Sandbox, launch: Option<&Launch>) -> Claim {
        Claim {
            owner: sandbox.owner.clone(),
            vcpus: sandbox.vcpu_count,
            mem_mib: sandbox.mem_mib,
            disk_mib: launch.map_or(0, |launch| launch.limits.disk_mib.value),
        }
    }
}

/// The resources an owner uses. A stopped sandbox counts only with its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub sandboxes: u64,
    pub vcpus: u64,
    pub mem_mib: u64,
    pub disk_mib: u64,
}

impl Used {
    /// Adds a sandbox, with or without a machine.
    pub fn add(&mut self, claim: &Claim, has_machine: bool) {
        if has_machine {
            self.sandboxes += 1;
            self.vcpus = self.vcpus.saturating_add(claim.vcpus);
            self.mem_mib = self.mem_mib.saturating_add(claim.mem_mib);
        }
        self.disk_mib = self.disk_mib.saturating_add(claim.disk_mib);
    }
}

/// Checks usage against the quota of its owner.
pub fn check(quota: &QuotaConfig, owner: &str, then: &Used) -> Result<()> {
    let quota = quota.of_owner(owner);
    for (limit, most, would, what) in [
        (
            limits::QUOTA_SANDBOXES,
            quota.sandboxes,
            then.sandboxes,
            "live sandboxes",
        ),
        (limits::QUOTA_VCPUS, quota.vcpus, then.vcpus, "CPUs"),
        (
            limits::QUOTA_MEM_MIB,
            quota.mem_mib,
            then.mem_mib,
            "MiB of memory",
        ),
        (
            limits::QUOTA_DISK_MIB,
            quota.disk_mib,
            then.disk_mib,
            "MiB of disks",
        ),
    ] {
        if most > 0 && would > most {
            let ways = [verb("list_sandboxes"), verb("destroy_sandbox")];
            return Err(over(&limit, owner, (most, would), what, ways));
        }
    }
    Ok(())
}

/// Things that a project has by their names, which say whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    Templates,
    Terminals,
    Secrets,
}

impl Named {
    fn quota(self, quota: &QuotaConfig) -> (Limit, u64) {
        match self {
            Named::Templates => (limits::QUOTA_TEMPLATES, quota.templates),
            Named::Terminals => (limits::QUOTA_TERMINALS, quota.terminals),
            Named::Secrets => (limits::QUOTA_SECRETS, quota.secrets),
        }
    }

    /// What they are called, and the verbs that list and remove them.
    fn words(self) -> (&'static str, [Verb; 2]) {
        match self {
            Named::Templates => (
                "templates",
                [verb("list_templates"), verb("remove_template")],
            ),
            Named::Terminals => (
                "living terminal sessions",
                [verb("list_terminals"), verb("terminate_terminal")],
            ),
            Named::Secrets => ("secrets", [verb("list_secrets"), verb("remove_secret")]),
        }
    }

    /// Whether a name may be taken beside those that are there. One that is there already, or that
    /// is no project's, may.
    pub fn check<'a>(
        self,
        quota: &QuotaConfig,
        name: &str,
        there: impl Iterator<Item = &'a str>,
    ) -> Result<()> {
        let Some(own) = project::of_name(name) else {
            return Ok(());
        };
        let (limit, most) = self.quota(quota.of(own));
        if most == 0 {
            return Ok(());
        }
        let mut would = 1;
        for one in there {
            if one == name {
                return Ok(());
            }
            would += u64::from(project::of_name(one) == Some(own));
        }
        let (what, ways) = self.words();
        match would > most {
            true => Err(over(&limit, own, (most, would), what, ways)),
            false => Ok(()),
        }
    }
}

/// Whether an owner may have one more environment beside as many as these, unless it has it already.
pub fn check_environments(
    quota: &QuotaConfig,
    owner: &str,
    has_it: bool,
    there: usize,
) -> Result<()> {
    let Some(project) = Project::of_owner(owner) else {
        return Ok(());
    };
    let most = quota.of(project.as_str()).environments;
    let would = there as u64 + 1;
    if has_it || most == 0 || would <= most {
        return Ok(());
    }
    let ways = [verb("list_environments"), verb("remove_environment")];
    let numbers = (most, would);
    let limit = limits::QUOTA_ENVIRONMENTS;
    Err(over(
        &limit,
        project.as_str(),
        numbers,
        "environments",
        ways,
    ))
}

fn over(
    limit: &Limit,
    owner: &str,
    (most, would): (u64, u64),
    what: &str,
    [list, remove]: [Verb; 2],
) -> Error {
    let name = limit.name;
    Error::limit(format!(
        "{owner} would have {would} {what}; {name} is {most}"
    ))
    .hint(hint![
        "remove some of yours (",
        list,
        ", ",
        remove,
        format!("), or ask the operator to raise {name} ([quota] in config.toml)"),
    ])
    .details(serde_json::json!({
        "code": "quota", "limit": name, "owner": owner, "max": most, "value": would,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quota_is_kept_and_none_is_there_unless_asked_for() {
        let claim = Claim {
            owner: "uid:7".to_string(),
            vcpus: 2,
            mem_mib: 100,
            disk_mib: 1000,
        };
        let mut used = Used::default();
        used.add(&claim, true);
        used.add(&claim, false);
        assert_eq!(
            (used.sandboxes, used.vcpus, used.mem_mib, used.disk_mib),
            (1, 2, 100, 2000)
        );
        assert_eq!(check(&QuotaConfig::default(), "uid:7", &used), Ok(()));
        for (quota, name) in [
            (
                QuotaConfig {
                    sandboxes: 1,
                    mem_mib: 99,
                    ..QuotaConfig::default()
                },
                "quota_mem_mib",
            ),
            (
                QuotaConfig {
                    vcpus: 1,
                    ..QuotaConfig::default()
                },
                "quota_vcpus",
            ),
            (
                QuotaConfig {
                    disk_mib: 1999,
                    ..QuotaConfig::default()
                },
                "quota_disk_mib",
            ),
        ] {
            let error = check(&quota, "uid:7", &used).unwrap_err();
            assert_eq!(error.details["limit"], name);
            assert_eq!(error.details["code"], "quota");
            assert!(error.hint.is_some_and(|hint| hint.contains(name)));
        }
    }

    #[test]
    fn names_count_for_their_project_alone() {
        let quota = QuotaConfig {
            templates: 2,
            environments: 1,
            ..QuotaConfig::default()
        };
        let there = ["acme--a", "acme--b", "other--a", "plain"];
        let check = |name: &str| Named::Templates.check(&quota, name, there.into_iter());
        let error = check("acme--c").unwrap_err();
        assert_eq!(error.kind, motu_core::ErrorKind::Limit);
        assert_eq!(error.details["limit"], "quota_templates");
        assert_eq!(
            (&error.details["max"], &error.details["value"]),
            (&2.into(), &3.into())
        );
        assert!(
            error
                .hint
                .is_some_and(|hint| hint.contains("remove_template"))
        );
        // One that is there is replaced; others have their own, and the host has no quota.
        for fine in ["acme--b", "other--b", "more"] {
            assert_eq!(check(fine), Ok(()), "{fine}");
        }
    }

    #[test]
    fn environments_count_for_their_owner() {
        let quota = QuotaConfig {
            environments: 1,
            ..QuotaConfig::default()
        };
        let check =
            |owner: &str, has_it, there| check_environments(&quota, owner, has_it, there).is_ok();
        assert!(check("project:acme", false, 0) && check("project:acme", true, 1));
        assert!(check("", false, 7) && check("uid:0", false, 7));
        assert!(!check("project:acme", false, 1));
    }
}
