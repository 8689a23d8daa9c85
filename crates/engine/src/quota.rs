//! Quotas of one owner. Pure: the table checks them under its lock, so that two concurrent requests
//! cannot both take the last place.

use crate::launch::Launch;
use motu_core::config::QuotaConfig;
use motu_core::hint;
use motu_core::hint::verb;
use motu_core::limits::{self, Limit};
use motu_core::sandbox::Sandbox;
use motu_core::{Error, Result};

/// The owner of a sandbox and the resources it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    pub owner: String,
    pub mem_mib: u64,
    pub disk_mib: u64,
}

impl Claim {
    pub fn of(sandbox: &Sandbox, launch: Option<&Launch>) -> Claim {
        Claim {
            owner: sandbox.owner.clone(),
            mem_mib: sandbox.mem_mib,
            disk_mib: launch.map_or(0, |launch| launch.limits.disk_mib.value),
        }
    }
}

/// The resources an owner uses. A stopped sandbox counts only with its disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    pub sandboxes: u64,
    pub mem_mib: u64,
    pub disk_mib: u64,
}

impl Used {
    /// Adds a sandbox, with or without a machine.
    pub fn add(&mut self, claim: &Claim, has_machine: bool) {
        if has_machine {
            self.sandboxes += 1;
            self.mem_mib = self.mem_mib.saturating_add(claim.mem_mib);
        }
        self.disk_mib = self.disk_mib.saturating_add(claim.disk_mib);
    }
}

/// Checks usage against a quota.
pub fn check(quota: &QuotaConfig, owner: &str, then: &Used) -> Result<()> {
    for (limit, most, would, what) in [
        (
            limits::QUOTA_SANDBOXES,
            quota.sandboxes,
            then.sandboxes,
            "live sandboxes",
        ),
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
            return Err(over(&limit, owner, most, would, what));
        }
    }
    Ok(())
}

fn over(limit: &Limit, owner: &str, most: u64, would: u64, what: &str) -> Error {
    let name = limit.name;
    Error::limit(format!(
        "{owner} would have {would} {what}; {name} is {most}"
    ))
    .hint(hint![
        "remove some of yours (",
        verb("list_sandboxes"),
        ", ",
        verb("destroy_sandbox"),
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
            mem_mib: 100,
            disk_mib: 1000,
        };
        let mut used = Used::default();
        used.add(&claim, true);
        used.add(&claim, false);
        assert_eq!(
            (used.sandboxes, used.mem_mib, used.disk_mib),
            (1, 100, 2000)
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
}
