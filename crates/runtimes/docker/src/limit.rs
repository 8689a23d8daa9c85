//! How each limit is enforced, in the machine's own numbers.

use crate::groups::Groups;
use crate::prepare;
use motu_core::Error;
use motu_core::hint;
use motu_core::hint::{field, verb};
use motu_core::runtime::{Ask, MachineLimits};
use motu_core::sandbox::AppliedLimit;

const MIB: u64 = 1 << 20;
const ENGINE: &str = "cgroup of the engine";

/// Reads back what the kernel enforces. An explicit limit that is not enforced is refused.
pub(crate) fn verified(
    limits: &MachineLimits,
    groups: &Groups,
    gvisor: bool,
    files: u64,
) -> Result<Vec<AppliedLimit>, Error> {
    let host = prepare::host_limits(limits, gvisor);
    let within = |found: Option<u64>, most: u64| found.is_some_and(|found| found <= most);
    let memory = within(groups.memory(), host.mem_mib.value.saturating_mul(MIB));
    let cpu = within(groups.cpu(), host.vcpu_count.value.saturating_mul(1000));
    // For the host the tasks of a machine in gVisor are gVisor's own, several for each.
    let tasks = !gvisor && within(groups.pids(), host.pids_max.value);
    let own_memory = match gvisor {
        true => format!("{ENGINE}, with room for gVisor itself"),
        false => ENGINE.to_string(),
    };
    let files = AppliedLimit {
        name: "nofile".into(),
        value: limits.nofile.value.min(files),
        enforced: true,
        by: "rlimit".into(),
    };
    Ok(vec![
        judged("vcpu_count", limits.vcpu_count, cpu, ENGINE)?,
        judged("mem_mib", limits.mem_mib, memory, &own_memory)?,
        prepare::disk(limits),
        judged("pids_max", limits.pids_max, tasks, ENGINE)?,
        files,
    ])
}

/// The limits as the kernel has them now. A group that is gone, or that somebody has opened, keeps
/// nothing.
pub(crate) fn standing(limits: &[AppliedLimit], groups: &Groups) -> Vec<AppliedLimit> {
    let mut limits = limits.to_vec();
    if *groups == Groups::default() {
        // The process has ended; that is seen elsewhere.
        return limits;
    }
    for limit in limits.iter_mut().filter(|limit| limit.enforced) {
        let (found, most) = match &*limit.name {
            "mem_mib" => (groups.memory(), prepare::most_memory(limit.value)),
            "pids_max" => (groups.pids(), limit.value),
            "vcpu_count" => (groups.cpu(), limit.value.saturating_mul(1000)),
            _ => continue,
        };
        if found.is_none_or(|found| found > most) {
            limit.enforced = false;
            limit.by =
                "nobody: its control group was taken away from outside; make it again".into();
        }
    }
    limits
}

/// Refuses an explicit number of open files that the engine cannot provide.
pub(crate) fn refuse_files(limits: &MachineLimits, most: u64) -> Result<(), Error> {
    if !limits.nofile.explicit || limits.nofile.value <= most {
        return Ok(());
    }
    Err(Error::unsupported(format!(
        "nofile is {}: container engines of this host can give {most}",
        limits.nofile.value
    ))
    .hint("ask for fewer open files, or raise the host's limit (`ulimit -Hn`)"))
}

fn judged(name: &str, ask: Ask, enforced: bool, by: &str) -> Result<AppliedLimit, Error> {
    if !enforced && ask.explicit {
        return Err(Error::unsupported(format!(
            "{name} cannot be enforced: the engine did not set it"
        ))
        .hint(hint![
            "leave the limit out, or choose another ",
            field("runtime"),
            "; ",
            verb("doctor"),
            " says more"
        ]));
    }
    Ok(AppliedLimit {
        name: name.into(),
        value: ask.value,
        enforced,
        by: match enforced {
            true => by.into(),
            false => "nothing: the engine did not set it".into(),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_set_is_reported_or_refused() {
        let ask = |value| Ask {
            value,
            explicit: false,
        };
        let mut limits = MachineLimits {
            vcpu_count: ask(1),
            mem_mib: ask(64),
            disk_mib: ask(64),
            pids_max: ask(64),
            nofile: ask(4096),
            io_mbps: Ask::NONE,
            iops: Ask::NONE,
        };
        let applied = verified(&limits, &Groups::default(), false, 1024).unwrap();
        let find = |name: &str| applied.iter().find(|limit| limit.name == name).unwrap();
        assert!(!find("mem_mib").enforced && !find("disk_mib").enforced);
        assert_eq!(find("nofile").value, 1024);
        limits.mem_mib.explicit = true;
        let error = verified(&limits, &Groups::default(), false, 1024).unwrap_err();
        assert!(error.message.contains("mem_mib"), "{error}");
        limits.nofile.explicit = true;
        assert!(refuse_files(&limits, 4096).is_ok());
        assert!(refuse_files(&limits, 4095).is_err());
    }
}
