//! The machine's view of its limits: control groups, memory, ping.
//!
//! A container shares its host's kernel, whose files describe the host. These mounts show the
//! machine's own limits to programs that size themselves by them (`free`, Node.js, Java, Go). Each
//! step is best effort: a kernel that refuses costs the machine a view, not its start.

use crate::plan::ControlGroups;
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use rustix::mount::{
    MountFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind, mount_remount, move_mount,
    open_tree,
};
use std::ffi::CString;
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};

const CGROUP: &str = "/sys/fs/cgroup";
const MEMINFO: &str = "/proc/meminfo";
/// The temporary path of the file that covers [`MEMINFO`]; unlinked right after.
const STAGED: &str = "/dev/.meminfo";
/// What C libraries count processors by.
const ONLINE: &str = "/sys/devices/system/cpu/online";
const STAGED_ONLINE: &str = "/dev/.online";
const PING_GROUPS: &str = "/proc/sys/net/ipv4/ping_group_range";

/// Mount flags of all kernel file systems.
pub(crate) const QUIET: MountFlags = MountFlags::NOSUID
    .union(MountFlags::NODEV)
    .union(MountFlags::NOEXEC);

/// Covers a directory with an empty one that has only `paths` of it, and whatever is mounted there.
/// What is not named is not shown, whatever else a kernel has there.
pub(crate) fn only(top: &str, paths: &[String]) -> io::Result<()> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    // Taken first: afterwards they are covered.
    let mut shown = Vec::with_capacity(paths.len());
    for path in paths {
        match open_tree(CWD, path.as_str(), flags) {
            Ok(tree) => shown.push((path, tree)),
            Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let options = c"size=64k,nr_inodes=64,mode=0755";
    mount("tmpfs", top, "tmpfs", QUIET, options)?;
    for (path, tree) in shown {
        std::fs::create_dir_all(path)?;
        move_mount(
            &tree,
            "",
            CWD,
            path.as_str(),
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        )?;
    }
    Ok(mount_remount(top, QUIET | MountFlags::RDONLY, options)?)
}

/// Mounts the machine's own groups, and no others, read-only. In a cgroup namespace their roots are
/// the machine's groups; a controller without one would show the host's.
pub(crate) fn control_groups(groups: &ControlGroups) -> io::Result<()> {
    let flags = QUIET | MountFlags::RDONLY;
    if groups.old.is_empty() {
        if groups.unified {
            let _ = mount("cgroup2", CGROUP, "cgroup2", flags, c"");
        }
        return Ok(());
    }
    let top = c"size=64k,nr_inodes=32,mode=0755";
    if mount("tmpfs", CGROUP, "tmpfs", QUIET, top).is_err() {
        return Ok(());
    }
    let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for wanted in &groups.old {
        // Controllers that share a hierarchy can only be mounted together.
        let Some(together) = hierarchy(&own, wanted) else {
            continue;
        };
        let at = format!("{CGROUP}/{together}");
        if rustix::fs::mkdirat(CWD, &at, Mode::from_raw_mode(0o755)).is_err() {
            continue;
        }
        let options = CString::new(together)?;
        let _ = mount("cgroup", &at, "cgroup", flags, options.as_c_str());
        for name in together.split(',').filter(|name| *name != together) {
            let _ = symlink(together, format!("{CGROUP}/{name}"));
        }
    }
    Ok(mount_remount(CGROUP, flags, top)?)
}

/// The controllers in one hierarchy with `wanted`, as `/proc/self/cgroup` names them.
fn hierarchy<'t>(own: &'t str, wanted: &str) -> Option<&'t str> {
    own.lines()
        .filter_map(|line| line.split(':').nth(1))
        .find(|together| together.split(',').any(|name| name == wanted))
}

/// Covers `/proc/meminfo` with a file that the guest keeps up to date.
pub(crate) fn memory(kib: u64) -> io::Result<()> {
    let line = |name: &str, kib: u64| format!("{name:<16}{kib:>8} kB\n");
    let text = ["MemTotal:", "MemFree:", "MemAvailable:"].map(|name| line(name, kib));
    cover(MEMINFO, STAGED, &text.concat())
}

/// Covers the kernel's list of processors. Must run before the rest of `/sys` is hidden, with which it is kept.
pub(crate) fn processors(which: &[u16]) -> io::Result<()> {
    cover(ONLINE, STAGED_ONLINE, &format!("{}\n", list(which)))
}

/// Covers a file of the kernel's with a plain one.
fn cover(file: &str, staged: &str, text: &str) -> io::Result<()> {
    use std::io::Write as _;
    let mut options = std::fs::File::options();
    let mut plain = options
        .write(true)
        .create_new(true)
        .mode(0o444)
        .open(staged)?;
    plain.write_all(text.as_bytes())?;
    let _ = mount_bind(staged, file);
    std::fs::remove_file(staged)
}

/// The kernel's form of a list of processors: `0-2,5`.
fn list(which: &[u16]) -> String {
    let runs = which.chunk_by(|one, next| one.checked_add(1) == Some(*next));
    let texts = runs.map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    texts.collect::<Vec<_>>().join(",")
}

/// Allows ping sockets for all groups. Must run before `/proc/sys` becomes read-only.
pub(crate) fn allow_ping(last_group: u32) -> io::Result<()> {
    let _ = std::fs::write(PING_GROUPS, format!("0 {last_group}"));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_listed_as_the_kernel_does() {
        assert_eq!(list(&[0]), "0");
        assert_eq!(list(&[0, 1, 2, 5]), "0-2,5");
        assert_eq!(list(&[3, 7, 8]), "3,7-8");
    }

    #[test]
    fn controllers_that_share_a_hierarchy_are_found_together() {
        let own = "4:memory:/a\n2:cpu,cpuacct:/a\n1:name=systemd:/\n0::/a\n";
        assert_eq!(hierarchy(own, "memory"), Some("memory"));
        assert_eq!(hierarchy(own, "cpu"), Some("cpu,cpuacct"));
        assert_eq!(hierarchy(own, "pids"), None);
    }
}
