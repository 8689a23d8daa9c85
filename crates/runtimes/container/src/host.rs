//! The privileges and features of this host, detected once.
//!
//! Reads a few files; changes nothing but this process's own limit of open files.

use motu_launch::{IdMap, IdRange, Mapper};
use motu_local::hidden;

/// Kernel settings that are made read-only.
const READ_ONLY: [&str; 2] = ["/proc/sys", "/proc/sysrq-trigger"];

/// Facts that do not change while the daemon runs.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    /// Root with the capabilities that mounts and id maps need.
    pub(crate) privileged: bool,
    /// Major and minor version of the kernel.
    pub(crate) kernel: (u32, u32),
    /// The most open files a process of ours may have.
    pub(crate) nofile_max: u64,
    /// The id map of an unprivileged user's machines.
    pub(crate) user_map: IdMap,
    /// The existing paths of [`hidden::OF_PROC`], and whether each is a directory.
    pub(crate) masked: Vec<(&'static str, bool)>,
    /// The existing paths of [`READ_ONLY`].
    pub(crate) read_only: Vec<&'static str>,
}

impl Host {
    pub(crate) fn detect() -> Host {
        let uname = rustix::system::uname();
        Host {
            privileged: privileged(),
            kernel: parse_version(&uname.release().to_string_lossy()),
            nofile_max: most_open_files(),
            user_map: user_map(),
            // A machine's /proc and /sys come from the same kernel: checking once saves each
            // machine a dozen failing calls.
            masked: hidden::OF_PROC
                .iter()
                .filter_map(|path| Some((*path, std::fs::metadata(path).ok()?.is_dir())))
                .collect(),
            read_only: READ_ONLY
                .iter()
                .copied()
                .filter(|path| std::path::Path::new(path).exists())
                .collect(),
        }
    }

    /// Whether overlayfs accepts detached mounts as layers (Linux 6.15).
    pub(crate) fn takes_detached_layers(&self) -> bool {
        self.kernel >= (6, 15)
    }
}

/// The hard limit of open files, which machines inherit and cannot raise. If it is below a
/// machine's default, it is raised, if this process may.
fn most_open_files() -> u64 {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let now = getrlimit(Resource::Nofile);
    let usual = motu_core::limits::NOFILE.default;
    match now.maximum {
        None => u64::MAX,
        Some(hard) if hard >= usual => hard,
        Some(hard) => {
            let raised = Rlimit {
                maximum: Some(usual),
                ..now
            };
            setrlimit(Resource::Nofile, raised).map_or(hard, |()| usual)
        }
    }
}

/// Root of a rootless engine's container has them over what is its own only.
fn privileged() -> bool {
    use rustix::thread::{CapabilitySet, capabilities};
    let needed = CapabilitySet::SYS_ADMIN
        | CapabilitySet::SETUID
        | CapabilitySet::SETGID
        | CapabilitySet::DAC_OVERRIDE;
    rustix::process::geteuid().is_root()
        && !motu_local::nested::is_rootless()
        && capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

fn parse_version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// Maps the own id to 0 and subordinate ids, if there are any, above it.
fn user_map() -> IdMap {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = user_name(&passwd, uid);
    let subordinate = |file: &str| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        subordinate_ids(&text, name.as_deref(), uid)
    };
    let helpers = ["newuidmap", "newgidmap"]
        .iter()
        .all(|program| std::path::Path::new("/usr/bin").join(program).exists());
    match (subordinate("/etc/subuid"), subordinate("/etc/subgid")) {
        (Some(uids), Some(gids)) if helpers => IdMap {
            uids: vec![one(uid), uids],
            gids: vec![one(gid), gids],
            by: Mapper::Helpers,
        },
        _ => IdMap {
            uids: vec![one(uid)],
            gids: vec![one(gid)],
            by: Mapper::Single,
        },
    }
}

fn one(id: u32) -> IdRange {
    IdRange {
        inside: 0,
        outside: id,
        count: 1,
    }
}

fn user_name(passwd: &str, uid: u32) -> Option<String> {
    passwd.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        (fields.get(2)?.parse::<u32>().ok()? == uid).then(|| fields[0].to_string())
    })
}

/// The first subordinate range of a user, by name or number, mapped from id 1.
fn subordinate_ids(text: &str, name: Option<&str>, uid: u32) -> Option<IdRange> {
    text.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let owner = fields.next()?;
        let first: u32 = fields.next()?.parse().ok()?;
        let count: u32 = fields.next()?.parse().ok()?;
        let ours = Some(owner) == name || owner.parse() == Ok(uid);
        (ours && count > 0).then_some(IdRange {
            inside: 1,
            outside: first,
            count: count.min(crate::slots::SIZE - 1),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subordinate_ids_are_found_by_name_or_number() {
        let text = "# comment\nann:100000:65536\n1001:300000:10\nbroken:x:y\n";
        let ann = subordinate_ids(text, Some("ann"), 5).unwrap();
        assert_eq!((ann.inside, ann.outside, ann.count), (1, 100_000, 65_535));
        let bob = subordinate_ids(text, Some("bob"), 1001).unwrap();
        assert_eq!((bob.outside, bob.count), (300_000, 10));
        assert!(subordinate_ids(text, Some("broken"), 7).is_none());
        assert!(subordinate_ids(text, None, 7).is_none());
    }

    #[test]
    fn users_are_found_by_number() {
        let passwd = "root:x:0:0::/root:/bin/sh\nann:x:1000:1000::/:/bin/sh\n";
        assert_eq!(user_name(passwd, 1000).as_deref(), Some("ann"));
        assert_eq!(user_name(passwd, 1), None);
    }

    #[test]
    fn kernel_versions_parse() {
        assert_eq!(parse_version("6.18.44-fc-v310"), (6, 18));
        assert_eq!(parse_version("5.10.0"), (5, 10));
        assert_eq!(parse_version("strange"), (0, 0));
    }
}
