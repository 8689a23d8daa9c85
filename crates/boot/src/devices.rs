//! Loads kernel modules and waits for their devices, by events instead of sleeps.

use crate::{BootError, LINK_PORT, NEWS_PORT, TURN_PORT, sys};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Loads every module in the directory, in the order of the file names.
pub(crate) fn load_modules(directory: &Path) -> Result<(), BootError> {
    let listed = std::fs::read_dir(directory).and_then(|entries| {
        entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<Vec<PathBuf>, _>>()
    });
    let mut modules = listed.map_err(BootError::step("list the kernel modules"))?;
    modules.sort();
    for path in modules {
        let packed = path.extension().is_some_and(|ending| ending != "ko");
        let loaded = File::open(&path).and_then(|file| sys::load_module(&file, packed));
        loaded.map_err(|error| BootError::Module {
            module: path.display().to_string(),
            error,
        })?;
    }
    Ok(())
}

/// Lets every user ping; the gateway's rules decide about it.
pub(crate) fn let_everybody_ping() {
    // A kernel without this setting lets only root ping.
    let _ = std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 2147483647");
}

/// Disables automatic IPv6 addresses, router discovery and duplicate address detection: the device
/// has exactly the address it is given. Returns whether the kernel has IPv6.
pub(crate) fn settle_v6() -> bool {
    let settings = Path::new("/proc/sys/net/ipv6/conf").join(motu_link::network::DEVICE);
    let set = |(name, value)| std::fs::write(settings.join(name), value).is_ok();
    [
        ("addr_gen_mode", "1"),
        ("accept_dad", "0"),
        ("accept_ra", "0"),
        ("router_solicitations", "0"),
        ("disable_ipv6", "0"),
    ]
    .into_iter()
    .all(set)
}

/// Frees the memory of the modules' files in the initramfs.
pub(crate) fn forget(directories: &[&str]) {
    // If this fails, it only costs memory.
    for directory in directories {
        let _ = std::fs::remove_dir_all(directory);
    }
    let _ = std::fs::remove_file("/init");
}

/// Waits until the machine's disks and ports exist.
pub(crate) fn wait_for(dev: &Path, disks: &[&str], patience: Duration) -> Result<(), BootError> {
    let watching = BootError::step::<rustix::io::Errno>("watch for devices");
    let watch = inotify::init(inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC)
        .and_then(|watch| {
            inotify::add_watch(&watch, dev, inotify::WatchFlags::CREATE).map(|_| watch)
        })
        .map_err(watching)?;
    let deadline = Instant::now() + patience;
    // Watch before the check, so that no device is missed.
    while let Some(device) = missing(dev, disks) {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut watched = [PollFd::new(&watch, PollFlags::IN)];
        match poll(&mut watched, Some(&left)) {
            Ok(0) => return Err(BootError::Missing { device }),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(BootError::step("watch for devices")(error)),
        }
        let mut names = [0u8; 4096];
        while rustix::io::read(&watch, &mut names).is_ok_and(|got| got > 0) {}
    }
    Ok(())
}

/// Disables background work of the kernel that helps large machines but costs small ones, which may
/// be one of many forks that each repeat it. Settings that a kernel lacks are skipped.
pub(crate) fn calm_down(disks: &[&str]) {
    for disk in disks {
        // Disable writeback throttling and the I/O scheduler in the guest: the host schedules I/O.
        let queue = Path::new("/sys/block").join(disk).join("queue");
        let _ = std::fs::write(queue.join("wbt_lat_usec"), "0");
        let _ = std::fs::write(queue.join("scheduler"), "none");
    }
    let settings = Path::new("/proc/sys/vm");
    let _ = std::fs::write(settings.join("compaction_proactiveness"), "0");
    let _ = std::fs::write(settings.join("stat_interval"), "60");
}

/// The first device that does not exist yet.
fn missing(dev: &Path, disks: &[&str]) -> Option<String> {
    for disk in disks {
        if !dev.join(disk).exists() {
            return Some(format!("the disk {disk}"));
        }
    }
    let ports = [LINK_PORT, TURN_PORT, NEWS_PORT];
    let port = ports
        .into_iter()
        .find(|port| find_port(dev, *port).is_none())?;
    Some(format!("the serial port {port}"))
}

/// The device of a virtio serial port: the controller's number is not always 0.
pub fn find_port(dev: &Path, number: u32) -> Option<PathBuf> {
    let entries = std::fs::read_dir(dev).ok()?;
    let found = entries.flatten().find(|entry| {
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix("vport"));
        rest.and_then(|rest| rest.split_once('p'))
            .is_some_and(|(controller, port)| {
                controller.parse::<u32>().is_ok() && port.parse() == Ok(number)
            })
    })?;
    Some(found.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_found_whatever_their_controller() {
        let dev = tempfile::tempdir().unwrap();
        for name in ["vport", "vportxp1", "vport2p11", "vport3p1", "tty1"] {
            std::fs::write(dev.path().join(name), "").unwrap();
        }
        let found = find_port(dev.path(), 1).unwrap();
        assert_eq!(found, dev.path().join("vport3p1"));
        assert_eq!(find_port(dev.path(), 2), None);
    }

    #[test]
    fn a_device_that_appears_late_is_seen() {
        let dev = tempfile::tempdir().unwrap();
        let place = dev.path().to_path_buf();
        let late = std::thread::spawn(move || {
            for name in ["vda", "vdb", "vport0p1", "vport0p2", "vport0p3"] {
                std::fs::write(place.join(name), "").unwrap();
            }
        });
        wait_for(dev.path(), &["vda", "vdb"], Duration::from_secs(20)).unwrap();
        late.join().unwrap();
        std::fs::remove_file(dev.path().join("vdb")).unwrap();
        let error = wait_for(dev.path(), &["vda", "vdb"], Duration::from_millis(1)).unwrap_err();
        assert!(error.to_string().contains("vdb"), "{error}");
    }
}
