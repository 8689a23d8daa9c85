//! Builds the plan of a machine. Pure: it looks at nothing and changes nothing.

use crate::host::Host;
use crate::slots;
use motu_core::runtime::MachineSpec;
use motu_launch::{Disk, IdMap, IdRange, Inner, Mapper, Namespaces, Outer, Plan, RestrictSpec};
use std::path::{Path, PathBuf};

/// The machine's writes, when they are not on a disk of their own.
pub(crate) const DIRECTORY: &str = "disk";
/// Everything in `/dev`, shared memory included.
const DEV_MIB: u32 = 64;
/// The group that owns terminals on every distribution.
const TTY_GROUP: u32 = 5;

/// Files and directories of the kernel that tell about the host or act on it.
const MASKED: [&str; 15] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/firmware",
    "/sys/fs/cgroup",
    "/sys/kernel/debug",
    "/sys/kernel/security",
    "/sys/kernel/tracing",
];
/// Settings of the kernel that may be read.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// Capabilities by number; all of them count only inside the machine's user namespace.
mod cap {
    pub(super) const CHOWN: u32 = 0;
    pub(super) const DAC_OVERRIDE: u32 = 1;
    pub(super) const DAC_READ_SEARCH: u32 = 2;
    pub(super) const FOWNER: u32 = 3;
    pub(super) const FSETID: u32 = 4;
    pub(super) const KILL: u32 = 5;
    pub(super) const SETGID: u32 = 6;
    pub(super) const SETUID: u32 = 7;
    pub(super) const SETPCAP: u32 = 8;
    pub(super) const NET_BIND_SERVICE: u32 = 10;
    pub(super) const SYS_CHROOT: u32 = 18;
    pub(super) const SYS_PTRACE: u32 = 19;
    pub(super) const SYS_ADMIN: u32 = 21;
    pub(super) const AUDIT_WRITE: u32 = 29;
    pub(super) const SETFCAP: u32 = 31;
}

/// What a command run as root may do.
const COMMAND_CAPS: u64 = bits(&[
    cap::CHOWN,
    cap::DAC_OVERRIDE,
    cap::FOWNER,
    cap::FSETID,
    cap::KILL,
    cap::SETGID,
    cap::SETUID,
    cap::SETPCAP,
    cap::NET_BIND_SERVICE,
    cap::SYS_CHROOT,
    cap::AUDIT_WRITE,
    cap::SETFCAP,
]);
/// What the guest needs beyond: the hostname and restrictions without
/// `no_new_privs` (SYS_ADMIN), whose port is it (SYS_PTRACE), any file (DAC_READ_SEARCH).
const GUEST_CAPS: u64 =
    COMMAND_CAPS | bits(&[cap::DAC_READ_SEARCH, cap::SYS_PTRACE, cap::SYS_ADMIN]);

const fn bits(caps: &[u32]) -> u64 {
    let mut bits = 0;
    let mut at = 0;
    while at < caps.len() {
        bits |= 1 << caps[at];
        at += 1;
    }
    bits
}

/// What was decided before the plan is made.
#[derive(Debug)]
pub(crate) struct Decided {
    /// The first host id of the machine's own range; `None` for an ordinary user.
    pub(crate) first_id: Option<u32>,
    pub(crate) cgroup_entries: Vec<PathBuf>,
    pub(crate) disk: Disk,
    pub(crate) nofile: u64,
    pub(crate) filter: Vec<u8>,
}

/// The plan of a machine.
pub(crate) fn plan(host: &Host, spec: &MachineSpec, decided: Decided) -> Plan {
    let nofile = decided.nofile;
    let filter = decided.filter.clone();
    let map = match decided.first_id {
        Some(first) => own_range(first),
        None => host.user_map.clone(),
    };
    let mut plan = Plan {
        dir: spec.dir.clone(),
        outer: Vec::new(),
        inner: vec![
            Inner::BecomeRoot {
                groups: map.by != Mapper::Single,
            },
            Inner::PrivateMounts,
        ],
        restrict: RestrictSpec {
            keep_caps: COMMAND_CAPS,
            no_new_privs: !spec.wants_sudo,
            landlock: true,
            nofile: Some((nofile, nofile)),
        },
    };
    if decided.first_id.is_none() {
        plan.inner.push(Inner::MakeRoot {
            lower: spec.root.clone(),
            disk: spec.dir.join(DIRECTORY),
            allow_setuid: spec.wants_sudo,
        });
    }
    let tty_group = (map.by != Mapper::Single).then_some(TTY_GROUP);
    plan.outer = outer(host, spec, decided, map);
    plan.inner.extend(inner(&spec.hostname, tty_group, filter));
    plan
}

fn outer(host: &Host, spec: &MachineSpec, decided: Decided, map: IdMap) -> Vec<Outer> {
    let mut steps: Vec<Outer> = decided
        .cgroup_entries
        .into_iter()
        .map(|file| Outer::EnterCgroup { file })
        .collect();
    steps.push(Outer::Listen);
    let Some(id) = decided.first_id else {
        steps.push(Outer::Clone(Namespaces::Machine));
        steps.push(Outer::MapIds(map));
        steps.push(Outer::Release);
        return steps;
    };
    steps.push(Outer::StartClocks);
    if !host.takes_detached_layers() {
        steps.push(Outer::HideMounts);
    }
    steps.extend([
        Outer::Clone(Namespaces::Machine),
        Outer::MapIds(map),
        Outer::TakeLower {
            root: spec.root.clone(),
        },
        Outer::TakeDisk(decided.disk),
    ]);
    if !host.takes_detached_layers() {
        steps.push(Outer::AttachLayers);
    }
    steps.extend([
        Outer::ActAs { id },
        Outer::MakeRoot {
            allow_setuid: spec.wants_sudo,
        },
        Outer::Release,
    ]);
    steps
}

fn inner(hostname: &str, tty_group: Option<u32>, filter: Vec<u8>) -> Vec<Inner> {
    let mut steps = vec![
        Inner::EnterRoot,
        Inner::MountProc,
        Inner::MountSys,
        Inner::MountDev {
            size_mib: DEV_MIB,
            tty_group,
        },
        Inner::LeaveHost,
    ];
    steps.extend(MASKED.map(|path| Inner::Mask { path: path.into() }));
    steps.extend(READ_ONLY.map(|path| Inner::ReadOnly { path: path.into() }));
    steps.extend([
        Inner::Hostname {
            name: hostname.to_string(),
        },
        Inner::Loopback,
        Inner::Keyring,
        Inner::NoCoreDumps,
        Inner::Capabilities { keep: GUEST_CAPS },
        Inner::Seccomp { filter },
    ]);
    steps
}

/// The map of a machine that has a whole range of host ids to itself.
fn own_range(first: u32) -> IdMap {
    let range = IdRange {
        inside: 0,
        outside: first,
        count: slots::SIZE,
    };
    IdMap {
        uids: vec![range],
        gids: vec![range],
        by: Mapper::Direct,
    }
}

/// The plan that removes what an ordinary user's machine left in its directory.
pub(crate) fn removal(host: &Host, dir: &Path) -> Plan {
    Plan {
        dir: dir.to_path_buf(),
        outer: vec![
            Outer::Clone(Namespaces::User),
            Outer::MapIds(host.user_map.clone()),
            Outer::Release,
        ],
        inner: vec![
            Inner::BecomeRoot {
                groups: host.user_map.by != Mapper::Single,
            },
            Inner::RemoveContents,
        ],
        restrict: RestrictSpec::default(),
    }
}

/// The plan that tries what a machine needs and leaves nothing.
pub(crate) fn probe(host: &Host, dir: &Path) -> Plan {
    let map = if host.privileged {
        own_range(slots::Slots::first_id(0))
    } else {
        host.user_map.clone()
    };
    let groups = map.by != Mapper::Single;
    let mut outer = vec![Outer::Clone(Namespaces::Machine), Outer::MapIds(map)];
    if host.privileged {
        outer.push(Outer::TakeLower {
            root: dir.to_path_buf(),
        });
    }
    outer.push(Outer::Release);
    Plan {
        dir: dir.to_path_buf(),
        outer,
        inner: vec![Inner::BecomeRoot { groups }, Inner::PrivateMounts],
        restrict: RestrictSpec::default(),
    }
}
