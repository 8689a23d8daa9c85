//! How each limit is handled.

use crate::wire::{Offer, Spawn};
use motu_core::Error;
use motu_core::hint;
use motu_core::hint::field;
use motu_core::runtime::{Ask, MachineLimits};
use motu_core::sandbox::AppliedLimit;

const PASSED: &str = "passed on; the service does not say whether it keeps it";
const UNSAID: &str = "nobody: the provider protocol has no such limit";

/// Refuses explicit limits that cannot be passed on.
pub(crate) fn check(limits: &MachineLimits) -> Result<(), Error> {
    let named = [("pids_max", limits.pids_max), ("nofile", limits.nofile)];
    let insisted = named.iter().filter(|(_, ask)| ask.explicit);
    let mut refused: Vec<&str> = insisted.map(|(name, _)| *name).collect();
    // I/O limits are refused even as a default.
    refused.extend(limits.io().iter().map(|(name, _)| *name));
    match refused.is_empty() {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "the http runtime cannot limit {}: the provider protocol has no such limit",
            refused.join(", ")
        ))
        .hint(hint!["leave it out, or choose another ", field("runtime")])),
    }
}

/// Adds the limits that the protocol has fields for. A service that reports its limits gets only
/// the explicit ones: for the rest it uses and reports its own defaults.
pub(crate) fn ask(limits: &MachineLimits, offer: &Offer, spawn: &mut Spawn) {
    let wanted = |ask: Ask| (ask.explicit || !offer.has("limits")).then_some(ask.value);
    spawn.memory_mb = wanted(limits.mem_mib);
    spawn.vcpus = wanted(limits.vcpu_count);
    spawn.disk_size_mb = wanted(limits.disk_mib);
}

/// The known state of each limit of a new machine.
pub(crate) fn report(limits: &MachineLimits, said: &[AppliedLimit]) -> Vec<AppliedLimit> {
    let rows = [
        ("vcpu_count", limits.vcpu_count, PASSED),
        ("mem_mib", limits.mem_mib, PASSED),
        ("disk_mib", limits.disk_mib, PASSED),
        ("pids_max", limits.pids_max, UNSAID),
        ("nofile", limits.nofile, UNSAID),
    ];
    let one =
        |(name, ask, by): (&str, Ask, &str)| match said.iter().find(|limit| limit.name == name) {
            Some(found) => AppliedLimit {
                by: format!("the service: {}", short(&found.by)),
                ..found.clone()
            },
            None => AppliedLimit {
                name: name.to_string(),
                value: ask.value,
                enforced: false,
                by: by.to_string(),
            },
        };
    rows.into_iter().map(one).collect()
}

/// Foreign text, sanitized and cut.
fn short(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(explicit: bool) -> MachineLimits {
        let ask = Ask { value: 7, explicit };
        MachineLimits {
            vcpu_count: ask,
            mem_mib: ask,
            disk_mib: ask,
            pids_max: Ask {
                value: 7,
                explicit: false,
            },
            nofile: Ask {
                value: 7,
                explicit: false,
            },
            io_mbps: Ask::NONE,
            iops: Ask::NONE,
        }
    }

    #[test]
    fn what_cannot_be_passed_on_is_refused_when_it_is_insisted_on() {
        assert!(check(&limits(true)).is_ok());
        let mut wanted = limits(false);
        wanted.pids_max.explicit = true;
        assert!(check(&wanted).is_err());
        let mut wanted = limits(false);
        wanted.iops.value = 100;
        assert!(check(&wanted).is_err());
    }

    #[test]
    fn what_is_not_said_is_not_enforced() {
        let said = AppliedLimit {
            name: "mem_mib".into(),
            value: 64,
            enforced: true,
            by: "cgroup".into(),
        };
        let report = report(&limits(true), &[said]);
        let found = |name: &str| report.iter().find(|limit| limit.name == name).unwrap();
        assert!(found("mem_mib").enforced);
        assert_eq!(found("mem_mib").value, 64);
        assert!(!found("vcpu_count").enforced);
        assert!(!found("nofile").enforced);
    }

    #[test]
    fn a_service_with_defaults_of_its_own_keeps_them() {
        let tells = Offer {
            extensions: vec!["limits".into()],
            ..Offer::default()
        };
        let mut spawn = Spawn::default();
        ask(&limits(false), &tells, &mut spawn);
        assert_eq!(spawn.memory_mb, None);
        ask(&limits(true), &tells, &mut spawn);
        assert_eq!(spawn.memory_mb, Some(7));
        ask(&limits(false), &Offer::default(), &mut spawn);
        assert_eq!(spawn.disk_size_mb, Some(7));
    }
}
