//! Builds the plan of a machine. Pure: no I/O.

use crate::host::Host;
use crate::{kept, slots};
use motu_core::runtime::MachineSpec;
use motu_launch::{
    ControlGroups, Disk, IdMap, IdRange, Inner, Mapper, Namespaces, Outer, Plan, RestrictSpec,
};
use motu_local::hidden;
use std::path::{Path, PathBuf};

/// The directory of the machine's writes, if they are not on a separate disk.
pub(crate) const DIRECTORY: &str = "disk";
/// The size limit of `/dev`, shared memory included.
const DEV_MIB: u32 = 64;
/// At most this fraction of the machine's memory (1/2): the OOM killer cannot free files in a
/// tmpfs.
const DEV_SHARE: u64 = 2;
/// The group of terminals (`tty`) on all distributions.
const TTY_GROUP: u32 = 5;

/// Capability numbers; all apply only inside the machine's user namespace.
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

/// Capabilities of a command run as root.
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
/// Additional capabilities of the guest: hostname and restrictions without `no_new_privs`
/// (SYS_ADMIN), owners of ports (SYS_PTRACE), access to any file (DAC_READ_SEARCH).
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

/// Decisions made before the plan.
#[derive(Debug)]
pub(crate) struct Decided {
    /// The first host id of the machine's range; `None` for an unprivileged user.
    pub(crate) first_id: Option<u32>,
    pub(crate) cgroup_entries: Vec<PathBuf>,
    pub(crate) cgroups: ControlGroups,
    /// Whether the machine's memory is limited.
    pub(crate) bounded_memory: bool,
    /// The processors that the machine is shown; empty: all of them.
    pub(crate) processors: Vec<u16>,
    pub(crate) disk: Disk,
    pub(crate) nofile: u64,
    pub(crate) filter: Vec<u8>,
}

/// The plan of a machine.
pub(crate) fn plan(host: &Host, spec: &MachineSpec, decided: Decided) -> Plan {
    let nofile = decided.nofile;
    let filter = decided.filter.clone();
    let views = views(spec, &decided);
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
    if let (None, Disk::Directory(disk)) = (decided.first_id, &decided.disk) {
        let (disk, allow_setuid) = (spec.dir.join(disk), spec.wants_sudo);
        plan.inner.push(Inner::MakeRoot {
            lower: spec.root.clone(),
            disk: disk.clone(),
            allow_setuid,
            thrown_away: is_thrown_away(spec),
        });
        plan.inner
            .extend(spec.kept.iter().map(|kept| Inner::MakeWorkspace {
                baseline: kept.baseline.clone(),
                disk: disk.clone(),
                allow_setuid,
            }));
    }
    let last_group = map.gids.iter().map(|range| range.inside + range.count - 1);
    let last_group = last_group.max().unwrap_or(0);
    let tty_group = (map.by != Mapper::Single).then_some(TTY_GROUP);
    plan.outer = outer(host, spec, decided, map);
    let mut steps = inner(host, spec, tty_group, filter);
    // After `/dev`, which the views need, and before `/proc/sys` becomes read-only.
    let at = steps.iter().position(|step| *step == Inner::LeaveHost);
    let views = views.into_iter().chain([Inner::AllowPing { last_group }]);
    let at = at.unwrap_or(steps.len());
    steps.splice(at..at, views);
    plan.inner.extend(steps);
    plan
}

/// Steps that show the machine its own limits.
fn views(spec: &MachineSpec, decided: &Decided) -> Vec<Inner> {
    let mut views = Vec::new();
    if decided.cgroups != ControlGroups::default() {
        views.push(Inner::MountCgroups(decided.cgroups.clone()));
    }
    if decided.bounded_memory {
        let kib = spec.limits.mem_mib.value * 1024;
        views.push(Inner::ShowMemory { kib });
    }
    if !decided.processors.is_empty() {
        let which = decided.processors.clone();
        views.push(Inner::ShowProcessors { which });
    }
    views
}

/// Whether what is written is never flushed. Where the disk's speed is limited, `fsync` must wait
/// for the disk: flushing is what the limit slows down.
fn is_thrown_away(spec: &MachineSpec) -> bool {
    spec.kept.is_none() && spec.limits.io().is_empty()
}

fn outer(host: &Host, spec: &MachineSpec, decided: Decided, map: IdMap) -> Vec<Outer> {
    let mut steps: Vec<Outer> = decided
        .cgroup_entries
        .into_iter()
        .map(|file| Outer::EnterCgroup { file })
        .collect();
    steps.push(Outer::Listen);
    if let (Some(kept), Disk::Directory(_)) = (&spec.kept, &decided.disk) {
        let file = kept::lock_file(&kept.dir);
        steps.push(Outer::Lock { file });
    }
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
    steps.extend(spec.kept.iter().map(|kept| Outer::TakeBaseline {
        baseline: kept.baseline.clone(),
    }));
    if !host.takes_detached_layers() {
        steps.push(Outer::AttachLayers);
    }
    steps.extend([
        Outer::ActAs { id },
        Outer::MakeRoot {
            allow_setuid: spec.wants_sudo,
            thrown_away: is_thrown_away(spec),
        },
    ]);
    if spec.kept.is_some() {
        steps.push(Outer::MakeWorkspace {
            allow_setuid: spec.wants_sudo,
        });
    }
    steps.push(Outer::Release);
    steps
}

fn inner(host: &Host, spec: &MachineSpec, tty_group: Option<u32>, filter: Vec<u8>) -> Vec<Inner> {
    let mut steps = vec![Inner::EnterRoot];
    steps.extend(spec.kept.iter().map(|_| Inner::MountWorkspace));
    steps.extend([
        Inner::MountProc,
        Inner::MountSys,
        Inner::MountDev {
            size_mib: dev_mib(spec),
            tty_group,
        },
        Inner::LeaveHost,
        Inner::ShowOnly {
            top: "/sys".into(),
            paths: hidden::SHOWN_OF_SYS.map(String::from).into(),
        },
    ]);
    steps.extend(host.masked.iter().map(|(path, directory)| Inner::Mask {
        path: path.to_string(),
        directory: *directory,
    }));
    steps.extend(host.read_only.iter().map(|path| Inner::ReadOnly {
        path: path.to_string(),
    }));
    steps.extend([
        Inner::Hostname {
            name: spec.hostname.clone(),
        },
        Inner::Loopback,
        Inner::Keyring,
        Inner::NoCoreDumps,
        Inner::Capabilities { keep: GUEST_CAPS },
        Inner::Seccomp { filter },
    ]);
    steps
}

fn dev_mib(spec: &MachineSpec) -> u32 {
    let share = spec.limits.mem_mib.value / DEV_SHARE;
    u32::try_from(share).map_or(DEV_MIB, |share| share.min(DEV_MIB))
}

/// The id map of a machine with its own range of host ids.
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

/// The plan that removes the files of an unprivileged user's machine.
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

/// The plan that tests the host's features and leaves nothing.
pub(crate) fn probe(host: &Host, dir: &Path) -> Plan {
    let map = if host.privileged {
        own_range(slots::Slots::first_id(0))
    } else {
        host.user_map.clone()
    };
    let groups = map.by != Mapper::Single;
    let mut outer = Vec::new();
    if host.privileged {
        outer.push(Outer::StartClocks);
    }
    outer.extend([Outer::Clone(Namespaces::Machine), Outer::MapIds(map)]);
    if host.privileged {
        outer.push(Outer::TakeLower {
            root: dir.to_path_buf(),
        });
    }
    outer.push(Outer::Release);
    Plan {
        dir: dir.to_path_buf(),
        outer,
        // A container's engine may hide parts of /proc, and then nobody in it mounts one of their own.
        inner: vec![
            Inner::BecomeRoot { groups },
            Inner::PrivateMounts,
            Inner::MountProc,
        ],
        restrict: RestrictSpec::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::SandboxId;
    use motu_core::runtime::{Ask, Kept, MachineLimits};

    fn host(privileged: bool, kernel: (u32, u32)) -> Host {
        let one = |outside| {
            vec![IdRange {
                inside: 0,
                outside,
                count: 1,
            }]
        };
        Host {
            privileged,
            kernel,
            nofile_max: 4096,
            user_map: IdMap {
                uids: one(1000),
                gids: one(1000),
                by: Mapper::Single,
            },
            masked: vec![("/proc/kcore", false), ("/proc/bus", true)],
            read_only: vec!["/proc/sys"],
        }
    }

    fn text(host: &Host, wants_sudo: bool) -> String {
        text_of(host, wants_sudo, None)
    }

    fn text_of(host: &Host, wants_sudo: bool, kept: Option<Kept>) -> String {
        let ask = |value| Ask {
            value,
            explicit: false,
        };
        let spec = MachineSpec {
            id: SandboxId::parse("sb-1").unwrap(),
            dir: "/home/machines/sb-1".into(),
            environment: "test".into(),
            root: "/home/environments/debian/root".into(),
            hostname: "sb-1".into(),
            wants_sudo,
            limits: MachineLimits {
                vcpu_count: ask(1),
                mem_mib: ask(1024),
                disk_mib: ask(1024),
                pids_max: ask(1024),
                nofile: ask(1024),
                io_mbps: Ask::NONE,
                iops: Ask::NONE,
            },
            accel: motu_core::Accel::Auto,
            kept,
            network: None,
        };
        let decided = Decided {
            first_id: host.privileged.then_some(0x2000_0000),
            cgroup_entries: vec!["/cg/memory/motu-0/sb-1/tasks".into()],
            cgroups: ControlGroups {
                old: vec!["memory".into()],
                unified: false,
            },
            bounded_memory: true,
            processors: vec![1],
            disk: if host.privileged {
                Disk::Mounted
            } else {
                Disk::Directory(DIRECTORY.into())
            },
            nofile: 1024,
            filter: vec![0; 80],
        };
        plan(host, &spec, decided).to_string()
    }

    #[test]
    fn the_plan_of_root_reads_from_top_to_bottom() {
        insta::assert_snapshot!(text(&host(true, (6, 18)), false));
    }

    #[test]
    fn older_kernels_attach_the_layers_out_of_sight() {
        let text = text(&host(true, (6, 1)), true);
        let lines: Vec<&str> = text.lines().collect();
        let at = |line: &str| lines.iter().position(|l| l.contains(line)).unwrap();
        assert!(at("private view of the mounts") < at("start pid 1"));
        assert!(
            at("attach the layers")
                < at("make the root overlay (setuid programs work), never flushed")
        );
        assert!(!text.contains("no new privileges"), "{text}");
    }

    #[test]
    fn the_plan_of_an_ordinary_user_needs_no_privilege() {
        insta::assert_snapshot!(text(&host(false, (6, 18)), false));
    }

    #[test]
    fn a_kept_machine_has_a_workspace_on_its_baseline() {
        let kept = Kept {
            dir: "/home/kept/ws-1".into(),
            baseline: "/home/baselines/1".into(),
        };
        for privileged in [true, false] {
            let host = host(privileged, (6, 1));
            let text = text_of(&host, false, Some(kept.clone()));
            let lines: Vec<&str> = text.lines().collect();
            let at = |line: &str| lines.iter().position(|l| l.contains(line)).unwrap();
            assert!(
                at("/home/baselines/1") < at("pivot into the root"),
                "{text}"
            );
            assert!(at("overlay of /workspace") < at("pivot into the root"));
            assert!(at("pivot into the root") < at("mount /workspace"));
            assert_eq!(text.contains("lock /home/kept/ws-1/lock"), !privileged);
        }
    }

    #[test]
    fn commands_have_no_capability_that_reaches_far() {
        for far in [cap::SYS_ADMIN, cap::SYS_PTRACE, cap::DAC_READ_SEARCH] {
            assert_eq!(COMMAND_CAPS & (1 << far), 0);
        }
        assert_eq!(COMMAND_CAPS & !GUEST_CAPS, 0);
    }
}
