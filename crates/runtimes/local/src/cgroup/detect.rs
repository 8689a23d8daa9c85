//! Detects which controllers this process may use, and where.
//!
//! Reads `/proc/self/mountinfo` and `/proc/self/cgroup`; writes nothing.

use super::throughput::{Io, MISSING, NO_ROOT};
use super::{Controller, Kind, Version};
use std::path::{Path, PathBuf};

/// The controllers we can use, and the name of our group in each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchies {
    pub controllers: Vec<Controller>,
    /// The I/O controller, or why there is none.
    pub io: Result<Io, &'static str>,
    pub group: String,
}

/// One mounted hierarchy: where, which part of it, with what options.
#[derive(Debug)]
struct Mounted {
    point: PathBuf,
    root: String,
    version: Version,
    options: Vec<String>,
}

/// One hierarchy that this process is in.
#[derive(Debug)]
struct Own {
    controllers: Vec<String>,
    path: String,
}

impl Hierarchies {
    /// Detects on the running system.
    pub fn detect(group: &str) -> Hierarchies {
        let mountinfo = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Hierarchies {
            controllers: find(&mountinfo, &own, Path::new("/")),
            io: find_io(&mountinfo, &own, Path::new("/")),
            group: group.to_string(),
        }
    }
}

/// Finds the controllers; `root` is put before every mount point.
fn find(mountinfo: &str, own: &str, root: &Path) -> Vec<Controller> {
    let (mounts, own) = parse(mountinfo, own, root);
    Kind::ALL
        .into_iter()
        .filter_map(|kind| v1(kind, &mounts, &own).or_else(|| v2(kind, &mounts, &own)))
        .collect()
}

/// Finds the I/O controller.
fn find_io(mountinfo: &str, own: &str, root: &Path) -> Result<Io, &'static str> {
    let (mounts, own) = parse(mountinfo, own, root);
    let old = |m: &&Mounted| m.version == Version::V1 && m.options.iter().any(|o| o == "blkio");
    if let (Some(mount), Some(own)) = (
        mounts.iter().find(old),
        own.iter()
            .find(|o| o.controllers.iter().any(|c| c == "blkio")),
    ) {
        let base = place(mount, &own.path);
        if !writable(&base.join("tasks")) {
            return Err(MISSING);
        }
        let root = mount.point.clone();
        if mount.root != "/" || !writable(&root.join("blkio.throttle.write_bps_device")) {
            return Err(NO_ROOT);
        }
        let version = Version::V1;
        return Ok(Io {
            version,
            base,
            root,
        });
    }
    let mount = mounts.iter().find(|m| m.version == Version::V2);
    let own = own.iter().find(|o| o.controllers == [""]);
    let (Some(mount), Some(own)) = (mount, own) else {
        return Err(MISSING);
    };
    let base = v2_base(mount, &place(mount, &own.path)).ok_or(MISSING)?;
    let offered = std::fs::read_to_string(base.join("cgroup.controllers"));
    match offered.is_ok_and(|list| list.split_whitespace().any(|name| name == "io")) {
        true => Ok(Io {
            version: Version::V2,
            base,
            root: mount.point.clone(),
        }),
        false => Err(MISSING),
    }
}

fn parse(mountinfo: &str, own: &str, root: &Path) -> (Vec<Mounted>, Vec<Own>) {
    let mounts = mountinfo.lines().filter_map(|l| parse_mount(l, root));
    let own = own.lines().filter_map(parse_own);
    (mounts.collect(), own.collect())
}

fn parse_mount(line: &str, root: &Path) -> Option<Mounted> {
    let (before, after) = line.split_once(" - ")?;
    let fields: Vec<&str> = before.split(' ').collect();
    let mut after = after.split(' ');
    let version = match after.next()? {
        "cgroup" => Version::V1,
        "cgroup2" => Version::V2,
        _ => return None,
    };
    let options = after.nth(1).unwrap_or_default();
    Some(Mounted {
        root: fields.get(3)?.to_string(),
        point: root.join(fields.get(4)?.trim_start_matches('/')),
        version,
        options: options.split(',').map(str::to_string).collect(),
    })
}

fn parse_own(line: &str) -> Option<Own> {
    let mut fields = line.splitn(3, ':');
    let _ = fields.next()?;
    Some(Own {
        controllers: fields.next()?.split(',').map(str::to_string).collect(),
        path: fields.next()?.to_string(),
    })
}

/// The directory of a cgroup below a mount that shows only the subtree `mount.root`.
fn place(mount: &Mounted, path: &str) -> PathBuf {
    let below = path
        .strip_prefix(mount.root.trim_end_matches('/'))
        .unwrap_or("");
    mount.point.join(below.trim_start_matches('/'))
}

fn v1(kind: Kind, mounts: &[Mounted], own: &[Own]) -> Option<Controller> {
    let name = kind.name();
    let mount = mounts
        .iter()
        .find(|m| m.version == Version::V1 && m.options.iter().any(|o| o == name))?;
    let own = own
        .iter()
        .find(|o| o.controllers.iter().any(|c| c == name))?;
    let base = place(mount, &own.path);
    writable(&base.join("tasks")).then_some(Controller {
        kind,
        version: Version::V1,
        base,
    })
}

fn v2(kind: Kind, mounts: &[Mounted], own: &[Own]) -> Option<Controller> {
    let mount = mounts.iter().find(|m| m.version == Version::V2)?;
    let own = own.iter().find(|o| o.controllers == [""])?;
    let base = v2_base(mount, &place(mount, &own.path))?;
    let has = match kind {
        // v2 has freezing in every cgroup but the root.
        Kind::Freezer => true,
        _ => std::fs::read_to_string(base.join("cgroup.controllers"))
            .is_ok_and(|list| list.split_whitespace().any(|name| name == kind.name())),
    };
    has.then_some(Controller {
        kind,
        version: Version::V2,
        base,
    })
}

/// The nearest ancestor cgroup that we may use. On v2 a cgroup with processes of its own cannot
/// have controlled children, except the root.
fn v2_base(mount: &Mounted, own: &Path) -> Option<PathBuf> {
    if mount.root == "/" && writable(&mount.point.join("cgroup.subtree_control")) {
        return Some(mount.point.clone());
    }
    own.ancestors()
        .take_while(|dir| dir.starts_with(&mount.point))
        .find(|dir| {
            writable(&dir.join("cgroup.procs"))
                && writable(&dir.join("cgroup.subtree_control"))
                && std::fs::read_to_string(dir.join("cgroup.procs"))
                    .is_ok_and(|procs| procs.trim().is_empty())
        })
        .map(Path::to_path_buf)
}

fn writable(file: &Path) -> bool {
    rustix::fs::access(file, rustix::fs::Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use motu_core::runtime::{Ask, MachineLimits};
    use std::fs;

    fn ask(value: u64) -> Ask {
        Ask {
            value,
            explicit: true,
        }
    }

    fn limits() -> MachineLimits {
        MachineLimits {
            vcpu_count: ask(2),
            mem_mib: ask(64),
            disk_mib: ask(100),
            pids_max: ask(50),
            nofile: ask(100),
            io_mbps: Ask::NONE,
            iops: Ask::NONE,
        }
    }

    const V2_MOUNT: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n";

    fn cgroup(dir: &Path, controllers: &str, procs: &str) {
        fs::create_dir_all(dir).unwrap();
        fs::write(dir.join("cgroup.controllers"), controllers).unwrap();
        fs::write(dir.join("cgroup.subtree_control"), "").unwrap();
        fs::write(dir.join("cgroup.procs"), procs).unwrap();
    }

    #[test]
    fn version_2_limits_are_written_below_our_own_group() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().join("sys/fs/cgroup");
        cgroup(&top, "cpu memory pids", "1\n");
        let hierarchies = Hierarchies {
            controllers: find(V2_MOUNT, "0::/user.slice\n", root.path()),
            io: find_io(V2_MOUNT, "0::/user.slice\n", root.path()),
            group: "motu-00000000".into(),
        };
        assert_eq!(hierarchies.controllers.len(), 4);
        assert_eq!(hierarchies.io, Err(MISSING));

        let made = hierarchies.make("sb-1", &limits()).unwrap();
        let dir = top.join("motu-00000000/sb-1");
        assert_eq!(made.dirs, std::slice::from_ref(&dir));
        assert_eq!(made.entries, [dir.join("cgroup.procs")]);
        let read = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
        assert_eq!(read("memory.max"), (64 << 20).to_string());
        assert_eq!(read("memory.swap.max"), "0");
        assert_eq!(read("pids.max"), "50");
        assert_eq!(read("cpu.max"), "200000 100000");
        assert!(made.limits.iter().all(|l| l.enforced), "{:?}", made.limits);
    }

    /// What two first machines at once leave to the second one, and a daemon that ended in between to the next.
    #[test]
    fn a_group_without_its_controllers_gets_them_with_the_next_machine() {
        let root = tempfile::tempdir().unwrap();
        let top = root.path().join("sys/fs/cgroup");
        cgroup(&top, "cpu memory pids", "1\n");
        let group = top.join("motu-1");
        cgroup(&group, "", "");
        let hierarchies = Hierarchies {
            controllers: find(V2_MOUNT, "0::/\n", root.path()),
            io: Err(MISSING),
            group: "motu-1".into(),
        };
        hierarchies.make("sb-1", &limits()).unwrap();
        let file = |dir: &Path| dir.join("cgroup.subtree_control");
        for dir in [&top, &group] {
            // Each word is a write of its own, and a plain file keeps the last one.
            let written = fs::read_to_string(file(dir)).unwrap();
            assert!(written.starts_with('+'), "{}: {written:?}", dir.display());
            fs::write(file(dir), "cpu memory pids\n").unwrap();
        }
        // What is enabled is not asked for again: a parent with processes of its own would refuse it.
        hierarchies.make("sb-2", &limits()).unwrap();
        for dir in [&top, &group] {
            let kept = fs::read_to_string(file(dir)).unwrap();
            assert_eq!(kept, "cpu memory pids\n");
        }
    }

    #[test]
    fn a_limit_stands_only_while_the_process_is_in_its_group() {
        let one = |kind, version| Controller {
            kind,
            version,
            base: "/x".into(),
        };
        let hierarchies = Hierarchies {
            controllers: vec![one(Kind::Memory, Version::V1), one(Kind::Pids, Version::V2)],
            io: Err(MISSING),
            group: "motu-1".into(),
        };
        let inside = |own: &str, limit: &str| hierarchies.is_inside(own, "sb-1", limit);
        let whole = "4:memory:/a/motu-1/sb-1\n0::/motu-1/sb-1\n";
        for limit in ["mem_mib", "pids_max", "vcpu_count", "disk_mib"] {
            assert!(inside(whole, limit), "{limit}");
        }
        let moved = "4:memory:/\n0::/motu-1/sb-1 (deleted)\n";
        assert!(!inside(moved, "mem_mib") && !inside(moved, "pids_max"));
        assert!(inside(moved, "disk_mib"));
        assert!(!inside("4:memory:/motu-1/sb-11\n", "mem_mib"));
        let own = std::process::id() as i32;
        let limit = motu_core::sandbox::AppliedLimit {
            name: "mem_mib".into(),
            value: 64,
            enforced: true,
            by: "memory (v1)".into(),
        };
        let standing = hierarchies.standing("sb-1", own, std::slice::from_ref(&limit));
        assert!(!standing[0].enforced, "{standing:?}");
        // Of a process that is gone nothing is said.
        let gone = hierarchies.standing("sb-1", -1, std::slice::from_ref(&limit));
        assert_eq!(gone, [limit]);
    }

    #[test]
    fn a_user_gets_the_nearest_delegated_cgroup_without_processes() {
        let root = tempfile::tempdir().unwrap();
        let top = root
            .path()
            .join("sys/fs/cgroup/user.slice/user@1000.service");
        cgroup(&top, "memory pids", "");
        cgroup(&top.join("app.slice"), "memory pids", "");
        cgroup(&top.join("app.slice/motu.service"), "", "77\n");
        let own = "0::/user.slice/user@1000.service/app.slice/motu.service\n";
        let found = find(V2_MOUNT, own, root.path());
        let kinds: Vec<Kind> = found.iter().map(|c| c.kind).collect();
        assert_eq!(kinds, [Kind::Memory, Kind::Pids, Kind::Freezer]);
        assert_eq!(found[0].base, top.join("app.slice"));

        let hierarchies = Hierarchies {
            controllers: found,
            io: Err(MISSING),
            group: "motu-1".into(),
        };
        let error = hierarchies.judge(&limits()).unwrap_err();
        assert!(
            error.message.contains("vcpu_count cannot be enforced"),
            "{error}"
        );
        let mut limits = limits();
        limits.vcpu_count.explicit = false;
        let applied = hierarchies.judge(&limits).unwrap();
        assert!(
            applied
                .iter()
                .any(|l| l.name == "vcpu_count" && !l.enforced)
        );
    }

    #[test]
    fn version_1_goes_below_the_own_cgroup_of_each_controller() {
        let root = tempfile::tempdir().unwrap();
        let mounts = "\
            31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
            32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n";
        for dir in ["memory/a/b", "cpu,cpuacct"] {
            let dir = root.path().join("sys/fs/cgroup").join(dir);
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("tasks"), "").unwrap();
        }
        let own = "4:memory:/a/b\n3:cpu,cpuacct:/\n";
        let found = find(mounts, own, root.path());
        assert_eq!(find_io(mounts, own, root.path()), Err(MISSING));
        let bases: Vec<_> = found.iter().map(|c| (c.kind, c.base.clone())).collect();
        let top = root.path().join("sys/fs/cgroup");
        assert_eq!(
            bases,
            [
                (Kind::Memory, top.join("memory/a/b")),
                (Kind::Cpu, top.join("cpu,cpuacct/")),
                (Kind::Account, top.join("cpu,cpuacct/")),
            ]
        );
        // Co-mounted controllers share one group.
        let hierarchies = Hierarchies {
            controllers: found,
            io: Err(MISSING),
            group: "motu-1".into(),
        };
        assert_eq!(hierarchies.dirs("sb-1").len(), 2);
    }
}
