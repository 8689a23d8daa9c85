//! Hosts that are containers themselves, and file systems that containers have.

use rustix::thread::{CapabilitySet, capability_is_in_bounding_set};
use std::path::Path;

/// `OVERLAYFS_SUPER_MAGIC` of linux/magic.h.
const OVERLAYFS: u64 = 0x794c_7630;

/// What to do where the state directory is on overlayfs.
pub const VOLUME: &str = "the state directory is on overlayfs, as the root of a container is, and cannot hold machines: put it on a \
     volume (docker run -v motu:/var/lib/motu)";

/// Whether this host is a container of somebody's: nobody in it can come to what root may. Files such
/// as `/.dockerenv` say less: an image of a container may have become the disk of a whole host.
pub fn is_container() -> bool {
    is_rootless() || capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).is_ok_and(|is| !is)
}

/// Whether root here is an ordinary user of the host, as in a container of a rootless engine: it may have every capability
/// (`podman run --privileged`), and none of them holds for what the host owns, such as devices, control groups and disks.
pub fn is_rootless() -> bool {
    std::fs::read_to_string("/proc/self/uid_map").is_ok_and(|map| !is_every_id(&map))
}

/// Whether a map is that of a host, on which every id is itself.
fn is_every_id(map: &str) -> bool {
    map.split_whitespace().eq(["0", "0", "4294967295"])
}

/// What gives a host that is a container more of what root may.
pub fn more() -> &'static str {
    match is_rootless() {
        true => {
            "this host is itself a container, and its root is an ordinary user of the host, also with `--privileged`: start it \
             with an engine that root runs (`sudo podman run --privileged`)"
        }
        false => "this host is itself a container: start it with `docker run --privileged`",
    }
}

/// Whether files below `path` are on overlayfs, which takes no further overlay above it.
pub fn is_on_overlay(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 == OVERLAYFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_host_has_every_id() {
        assert!(is_every_id("         0          0 4294967295\n"));
        assert!(!is_every_id("0 1000 1\n1 100000 65536\n"));
        assert!(!is_every_id("0 100000 4294967295\n"));
        assert!(!is_every_id(""));
    }

    #[test]
    fn proc_is_no_overlay() {
        assert!(!is_on_overlay(Path::new("/proc")));
        assert!(!is_on_overlay(Path::new("/proc/no/such/place")));
    }
}
