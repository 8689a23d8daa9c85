//! Checks what works on this host, and suggests fixes for the rest.

use crate::launch::LaunchError;
use crate::machine::Maker;
use crate::sys;
use motu_core::report::{Check, Health};
use motu_launch::Mapper;
use motu_local::{Kind, Version, nested};
use motu_packages::Need;
use std::path::Path;

/// What to do where this host is a container that allows no machines in it.
const IN_A_CONTAINER: &str = "this host is itself a container, and may not: start it with `docker run --privileged`, or with \
     `--security-opt seccomp=unconfined --security-opt systempaths=unconfined` for machines as of an ordinary user; \
     in gVisor neither helps. `proot` needs nothing of it, and isolates nothing";

/// What gives an ordinary user's daemon groups of its own: those of their service manager are theirs, those of a login not.
const OWN_GROUPS: &str = "run the daemon as root, or let your service manager start it, which has groups of yours: \
     `systemd-run --user --unit motu -p Delegate=yes -p KillMode=process motu serve`";

/// Every check, most important first.
pub(crate) fn all(maker: &Maker) -> Vec<Check> {
    let mut checks = vec![namespaces(maker), overlay(&maker.home), cgroups(maker)];
    checks.extend([seccomp(), landlock()]);
    checks.push(disk(maker));
    if !maker.host.privileged {
        checks.push(ids(maker));
    }
    checks
}

fn good(name: &str, detail: impl Into<String>) -> Check {
    Check {
        name: name.into(),
        health: Health::Ok,
        detail: detail.into(),
        fix: None,
    }
}

fn bad(name: &str, health: Health, detail: impl Into<String>, fix: &str) -> Check {
    Check {
        name: name.into(),
        health,
        detail: detail.into(),
        fix: Some(fix.into()),
    }
}

/// Creates the namespaces once, as a test.
fn namespaces(maker: &Maker) -> Check {
    let name = "namespaces";
    let how = if maker.host.privileged {
        "user, mount, pid, network, ipc, uts and cgroup namespaces, mapped mounts"
    } else {
        "user, mount, pid, network, ipc, uts and cgroup namespaces, as an ordinary user"
    };
    match maker.probe() {
        Ok(()) => good(name, how),
        Err(error) => bad(
            name,
            Health::Failed,
            error.to_string(),
            fix_for(&error, &maker.home),
        ),
    }
}

fn fix_for(error: &LaunchError, home: &Path) -> &'static str {
    let LaunchError::Step(failure) = error else {
        return "the launcher itself did not run; is /proc mounted, and may memory files be executed?";
    };
    if failure.step.starts_with("take ") && nested::is_on_overlay(home) {
        return nested::VOLUME;
    }
    if failure.step.starts_with("take ") {
        return "mounts with mapped ids need Linux 5.19 and a file system that supports them (ext4, xfs, btrfs)";
    }
    match failure.errno {
        libc::ENOSPC => "raise /proc/sys/user/max_user_namespaces",
        _ if nested::is_container() => IN_A_CONTAINER,
        _ if Path::new("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").exists() => {
            "run the daemon as root, or: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
        }
        _ => {
            "run the daemon as root, or: sysctl kernel.unprivileged_userns_clone=1 and user.max_user_namespaces=65536"
        }
    }
}

fn overlay(home: &Path) -> Check {
    if nested::is_on_overlay(home) {
        let detail = "there is no overlay above an overlay";
        return bad("overlayfs", Health::Failed, detail, nested::VOLUME);
    }
    let known = std::fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.ends_with("\toverlay")) {
        good("overlayfs", "present")
    } else {
        let detail = "the kernel has no overlayfs loaded";
        bad("overlayfs", Health::Failed, detail, "modprobe overlay")
    }
}

fn cgroups(maker: &Maker) -> Check {
    let mut have = Vec::new();
    let mut lack = Vec::new();
    for kind in [Kind::Memory, Kind::Pids, Kind::Cpu, Kind::Freezer] {
        match maker.cgroups.controller(kind) {
            Some(controller) => have.push(match controller.version {
                Version::V1 => format!("{} (v1)", kind.name()),
                Version::V2 => format!("{} (v2)", kind.name()),
            }),
            None => lack.push(kind.name()),
        }
    }
    if lack.is_empty() {
        return good("cgroups", have.join(", "));
    }
    let detail = format!("not enforceable: {}", lack.join(", "));
    let fix = match nested::is_container() {
        true => nested::more(),
        false => OWN_GROUPS,
    };
    bad("cgroups", Health::Degraded, detail, fix)
}

fn seccomp() -> Check {
    if Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        good("seccomp", "filters work")
    } else {
        let fix = "use a kernel with CONFIG_SECCOMP_FILTER";
        bad("seccomp", Health::Failed, "the kernel has no filters", fix)
    }
}

fn landlock() -> Check {
    match sys::landlock_version() {
        Some(version) => good("landlock", format!("version {version}")),
        None => bad(
            "landlock",
            Health::Degraded,
            "the kernel has none; the other walls stand without it",
            "use a kernel with CONFIG_SECURITY_LANDLOCK and lsm=landlock,…",
        ),
    }
}

fn disk(maker: &Maker) -> Check {
    let name = "disk limit";
    if !maker.host.privileged {
        let detail = "an ordinary user's sandboxes write to a plain directory";
        let fix = match nested::is_container() {
            true => nested::more(),
            false => "run the daemon as root",
        };
        return bad(name, Health::Degraded, detail, fix);
    }
    match maker.disks.missing() {
        None => good(name, "ext4 images on loop devices"),
        Some(reason) => bad(
            name,
            Health::Degraded,
            reason,
            &format!("{}; modprobe loop", motu_packages::install(Need::Ext4)),
        ),
    }
}

fn ids(maker: &Maker) -> Check {
    match maker.host.user_map.by {
        Mapper::Single => bad(
            "subordinate ids",
            Health::Degraded,
            "only one user exists inside sandboxes",
            &format!(
                "{}, and give the user ranges in /etc/subuid and /etc/subgid",
                motu_packages::install(Need::IdMap)
            ),
        ),
        _ => good("subordinate ids", "newuidmap and newgidmap"),
    }
}
