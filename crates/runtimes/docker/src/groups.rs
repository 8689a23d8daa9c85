//! The limits that the kernel enforces: the cgroups that an engine has put a machine into.
//!
//! An engine may ignore a limit without reporting it (rootless Podman does, with cgroup v1). Limits
//! that are reported as enforced were read back from the kernel.

use std::path::{Path, PathBuf};

/// Deeper than any cgroup hierarchy.
const DEPTH: usize = 32;

/// The cgroups of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    memory: Option<Place>,
    pids: Option<Place>,
    cpu: Option<Place>,
}

/// One cgroup, and the mount point of its hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    top: PathBuf,
    dir: PathBuf,
    unified: bool,
}

impl Groups {
    pub(crate) fn of(pid: i32) -> Groups {
        let text = |path: String| std::fs::read_to_string(path).unwrap_or_default();
        let memberships = text(format!("/proc/{pid}/cgroup"));
        Groups::parse(&memberships, &text("/proc/self/mountinfo".into()))
    }

    fn parse(memberships: &str, mounts: &str) -> Groups {
        let find = |controller| {
            let (path, unified) = membership(memberships, controller)?;
            // Groups above the visible part of the hierarchy cannot be read.
            if path.split('/').any(|part| part == "..") {
                return None;
            }
            let (top, root) = mount(mounts, (!unified).then_some(controller))?;
            let below = Path::new(path).strip_prefix(root).ok()?;
            let dir = top.join(below);
            Some(Place { top, dir, unified })
        };
        Groups {
            memory: find("memory"),
            pids: find("pids"),
            cpu: find("cpu"),
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> Option<u64> {
        self.memory.as_ref()?.least(|dir, unified| {
            let file = if unified {
                "memory.max"
            } else {
                "memory.limit_in_bytes"
            };
            number(&dir.join(file))
        })
    }

    pub(crate) fn pids(&self) -> Option<u64> {
        self.pids
            .as_ref()?
            .least(|dir, _| number(&dir.join("pids.max")))
    }

    /// Thousandths of a CPU.
    pub(crate) fn cpu(&self) -> Option<u64> {
        self.cpu.as_ref()?.least(|dir, unified| {
            let (quota, period) = if unified {
                let text = std::fs::read_to_string(dir.join("cpu.max")).ok()?;
                let mut words = text.split_whitespace().map(str::parse::<u64>);
                (words.next()?.ok()?, words.next()?.ok()?)
            } else {
                let quota = number(&dir.join("cpu.cfs_quota_us"))?;
                (quota, number(&dir.join("cpu.cfs_period_us"))?)
            };
            quota.checked_mul(1000)?.checked_div(period)
        })
    }

    /// The file that counts kills by the memory limit.
    pub(crate) fn killed(&self) -> Option<PathBuf> {
        let memory = self.memory.as_ref()?;
        let name = if memory.unified {
            "memory.events"
        } else {
            "memory.oom_control"
        };
        Some(memory.dir.join(name))
    }
}

impl Place {
    /// The smallest limit of the group and its ancestors.
    fn least(&self, limit: impl Fn(&Path, bool) -> Option<u64>) -> Option<u64> {
        let above = self.dir.ancestors().take(DEPTH);
        let inside = above.take_while(|dir| dir.starts_with(&self.top));
        inside.filter_map(|dir| limit(dir, self.unified)).min()
    }
}

/// How many processes a memory limit has killed, by that file.
pub(crate) fn kills(file: &Path) -> u64 {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let count = text
        .lines()
        .find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok());
    count.unwrap_or(0)
}

fn number(file: &Path) -> Option<u64> {
    std::fs::read_to_string(file).ok()?.trim().parse().ok()
}

/// A process's group for a controller, and whether it is in the v2 hierarchy.
fn membership<'a>(memberships: &'a str, controller: &str) -> Option<(&'a str, bool)> {
    let mut unified = None;
    for line in memberships.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(_), Some(names), Some(path)) = (parts.next(), parts.next(), parts.next()) else {
            continue;
        };
        if names.split(',').any(|name| name == controller) {
            return Some((path, false));
        }
        if names.is_empty() {
            unified = Some((path, true));
        }
    }
    unified
}

/// The mount point of a hierarchy and its root group; v2 without a controller.
fn mount<'a>(mounts: &'a str, controller: Option<&str>) -> Option<(PathBuf, &'a str)> {
    mounts.lines().find_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let mut place = place.split(' ').skip(3);
        let (root, top) = (place.next()?, place.next()?);
        let mut kind = kind.split(' ');
        let (name, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
        let fits = match controller {
            None => name == "cgroup2",
            Some(wanted) => name == "cgroup" && options.split(',').any(|option| option == wanted),
        };
        fits.then(|| (PathBuf::from(top), root))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIXED: &str = "31 23 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                         32 23 0:28 / /sys/fs/cgroup/unified rw shared:4 - cgroup2 cgroup2 rw\n";

    #[test]
    fn groups_are_found_in_both_versions() {
        let groups = Groups::parse("4:memory:/docker/abc\n0::/docker/abc\n", MIXED);
        let memory = groups.memory.clone().unwrap();
        assert_eq!(memory.dir, Path::new("/sys/fs/cgroup/memory/docker/abc"));
        let pids = groups.pids.clone().unwrap();
        assert_eq!(pids.dir, Path::new("/sys/fs/cgroup/unified/docker/abc"));
        assert!(groups.killed().unwrap().ends_with("memory.oom_control"));
    }

    #[test]
    fn what_cannot_be_seen_is_not_known() {
        assert_eq!(Groups::parse("nonsense\n:\n::", ""), Groups::default());
        let outside = Groups::parse("4:memory:/../other\n", MIXED);
        assert_eq!(outside.memory, None);
        assert_eq!(outside.memory(), None);
    }

    #[test]
    fn the_smallest_limit_above_a_group_holds() {
        let top = tempfile::tempdir().unwrap();
        let dir = top.path().join("a/b");
        std::fs::create_dir_all(&dir).unwrap();
        let place = Place {
            top: top.path().to_path_buf(),
            dir: dir.clone(),
            unified: true,
        };
        let groups = Groups {
            memory: Some(place.clone()),
            pids: None,
            cpu: Some(place),
        };
        std::fs::write(dir.join("memory.max"), "max\n").unwrap();
        assert_eq!(groups.memory(), None);
        std::fs::write(top.path().join("a/memory.max"), "4096\n").unwrap();
        std::fs::write(top.path().join("a/cpu.max"), "150000 100000\n").unwrap();
        assert_eq!((groups.memory(), groups.cpu()), (Some(4096), Some(1500)));
        std::fs::write(dir.join("memory.events"), "oom 3\noom_kill 2\n").unwrap();
        assert_eq!(kills(&groups.killed().unwrap()), 2);
    }
}
