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
    capability_is_in_bounding_set(CapabilitySet::SYS_ADMIN).is_ok_and(|is| !is)
}

/// Whether files below `path` are on overlayfs, which takes no further overlay above it.
pub fn is_on_overlay(path: &Path) -> bool {
    rustix::fs::statfs(path).is_ok_and(|found| found.f_type as u64 == OVERLAYFS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_no_overlay() {
        assert!(!is_on_overlay(Path::new("/proc")));
        assert!(!is_on_overlay(Path::new("/proc/no/such/place")));
    }
}
