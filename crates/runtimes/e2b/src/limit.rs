//! How each limit is handled: a machine's size is that of its template.

use crate::wire::Detail;
use motu_core::Error;
use motu_core::hint;
use motu_core::hint::field;
use motu_core::runtime::{Ask, MachineLimits};
use motu_core::sandbox::AppliedLimit;

const UNSAID: &str = "nobody: the service has no such limit, or does not say";
const TEMPLATE: &str = "the service: its template has this";

/// Refuses explicit limits.
pub(crate) fn check(limits: &MachineLimits) -> Result<(), Error> {
    let named = [
        ("vcpu_count", limits.vcpu_count),
        ("mem_mib", limits.mem_mib),
        ("disk_mib", limits.disk_mib),
        ("pids_max", limits.pids_max),
        ("nofile", limits.nofile),
    ];
    let insisted = named.iter().filter(|(_, ask)| ask.explicit);
    let mut refused: Vec<&str> = insisted.map(|(name, _)| *name).collect();
    // I/O limits are refused even as a default.
    refused.extend(limits.io().iter().map(|(name, _)| *name));
    match refused.is_empty() {
        true => Ok(()),
        false => Err(Error::unsupported(format!(
            "the e2b runtime cannot set {}: the size of a machine is that of its template",
            refused.join(", ")
        ))
        .hint(hint![
            "choose a template of that size, leave it out, or choose another ",
            field("runtime")
        ])),
    }
}

/// The known state of each limit of a new machine.
pub(crate) fn report(limits: &MachineLimits, detail: &Detail) -> Vec<AppliedLimit> {
    let rows = [
        ("vcpu_count", limits.vcpu_count, detail.cpu_count),
        ("mem_mib", limits.mem_mib, detail.memory_mb),
        ("disk_mib", limits.disk_mib, detail.disk_mb),
        ("pids_max", limits.pids_max, 0),
        ("nofile", limits.nofile, 0),
    ];
    let one = |(name, ask, said): (&str, Ask, u64)| AppliedLimit {
        name: name.to_string(),
        value: if said > 0 { said } else { ask.value },
        enforced: said > 0,
        by: if said > 0 { TEMPLATE } else { UNSAID }.to_string(),
    };
    rows.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> MachineLimits {
        let ask = Ask {
            value: 7,
            explicit: false,
        };
        MachineLimits {
            vcpu_count: ask,
            mem_mib: ask,
            disk_mib: ask,
            pids_max: ask,
            nofile: ask,
            io_mbps: Ask::NONE,
            iops: Ask::NONE,
        }
    }

    #[test]
    fn what_is_insisted_on_is_refused() {
        assert!(check(&limits()).is_ok());
        let mut wanted = limits();
        wanted.mem_mib.explicit = true;
        assert!(check(&wanted).is_err());
        let mut wanted = limits();
        wanted.iops.value = 100;
        assert!(check(&wanted).is_err());
    }

    #[test]
    fn what_the_service_says_is_said() {
        let detail: Detail = serde_json::from_str(r#"{"memoryMB":512,"cpuCount":2}"#).unwrap();
        let report = report(&limits(), &detail);
        let found = |name: &str| report.iter().find(|limit| limit.name == name).unwrap();
        assert_eq!(
            (found("mem_mib").value, found("mem_mib").enforced),
            (512, true)
        );
        assert_eq!(
            (found("disk_mib").value, found("disk_mib").enforced),
            (7, false)
        );
    }
}
