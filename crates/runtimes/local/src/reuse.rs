//! Disks of machines that are gone, emptied for the next machines.
//!
//! Making a disk fills a loop device and mounts it, and throwing one away writes it out and frees
//! its blocks one by one, which together take longer than all the rest of a small machine's life. A
//! machine that wrote little leaves a disk that is emptied in no time: its two trees are removed,
//! and the same file system is mounted anew for the next machine. What the next one can read is what
//! ext4 shows of files that were deleted: nothing.
//!
//! A disk is given up instead if much is on it or was ever written to it, if something on it cannot
//! be removed or is still open somewhere, or if ext4 has met an error on it.

use crate::mount::{Life, layers, mount_ext4};
use rustix::fs::{fstat, fstatvfs};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;

/// The most that is removed: more takes longer than a new disk. Directories may be as deep, each an
/// open file of the daemon's while it is removed, and as full of names as their bytes allow.
const FILES: u64 = 64;
const BYTES: u64 = 2 << 20;
/// The most that machines have written to it, in all, in KiB. What they deleted keeps its place in
/// the disk's image, and so on the host.
const WRITTEN_KIB: u64 = 64 << 10;
/// The major number of loop devices.
const LOOP: u32 = 7;

/// The same disk as a new one, which has so many files; `None` if a new one is better. No machine may
/// use the disk any more.
pub(crate) fn emptied(disk: &OwnedFd, new: u64) -> io::Result<Option<OwnedFd>> {
    if !has_little(disk.as_fd())? {
        return Ok(None);
    }
    let device = device(disk.as_fd())?;
    // The file system stays, so this is since it was made.
    if count(&device, "session_write_kbytes")? > WRITTEN_KIB {
        return Ok(None);
    }
    for tree in ["upper", "work"] {
        std::fs::remove_dir_all(format!("/proc/self/fd/{}/{tree}", disk.as_raw_fd()))?;
    }
    if count(&device, "errors_count")? > 0 {
        return Ok(None);
    }
    let mount = mount_ext4(&format!("/dev/{device}"), Life::Machine)?;
    layers(&mount)?;
    // What somebody outside still has open keeps its place, and may grow.
    Ok((files(&mount)? == new).then_some(mount))
}

/// How many files are on a disk.
pub(crate) fn files(disk: impl AsFd) -> io::Result<u64> {
    let found = fstatvfs(disk)?;
    Ok(found.f_files.saturating_sub(found.f_ffree))
}

fn has_little(disk: BorrowedFd<'_>) -> io::Result<bool> {
    let found = fstatvfs(disk)?;
    let blocks = found.f_blocks.saturating_sub(found.f_bfree);
    Ok(files(disk)? <= FILES && blocks.saturating_mul(found.f_frsize) <= BYTES)
}

/// The name of a mounted file system's loop device.
fn device(disk: BorrowedFd<'_>) -> io::Result<String> {
    let number = fstat(disk)?.st_dev;
    let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
    let link = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}"))?;
    let name = link.file_name().and_then(|name| name.to_str());
    match name {
        Some(name) if major == LOOP => Ok(name.to_string()),
        _ => Err(io::ErrorKind::Unsupported.into()),
    }
}

/// What ext4 counts of a mounted file system.
fn count(device: &str, what: &str) -> io::Result<u64> {
    let count = Path::new("/sys/fs/ext4").join(device).join(what);
    let count = std::fs::read_to_string(count)?;
    count.trim().parse().map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use crate::disk::Disks;
    use rustix::fs::{CWD, Mode, OFlags};
    use std::fs;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::fs::MetadataExt;

    const MIB: u64 = 64;

    fn below(disk: &OwnedFd, path: &str) -> String {
        format!("/proc/self/fd/{}/{path}", disk.as_raw_fd())
    }

    /// Disks in a directory of their own; `None` where none can be made.
    fn disks() -> Option<(tempfile::TempDir, Disks)> {
        let dir = tempfile::tempdir().unwrap();
        let disks = Disks::new(dir.path().to_path_buf(), MIB);
        match disks.missing() {
            Some(reason) => {
                eprintln!("skipped: {reason}");
                None
            }
            None if !rustix::process::geteuid().is_root() => {
                eprintln!("skipped: only root mounts disks");
                None
            }
            None => Some((dir, disks)),
        }
    }

    fn give_back(disks: &Disks, machine: &str) {
        if let Some(disk) = disks.recalled(machine) {
            disks.returned(disk);
        }
    }

    fn device(disk: &OwnedFd) -> u64 {
        fs::metadata(below(disk, ".")).unwrap().dev()
    }

    #[test]
    fn a_disk_that_was_hardly_used_is_the_next_ones() {
        let Some((_dir, disks)) = disks() else { return };
        let first = disks.lend(MIB, "one").unwrap();
        let place = device(&first);
        fs::create_dir_all(below(&first, "upper/etc/deep")).unwrap();
        fs::write(below(&first, "upper/etc/deep/secret"), "of the first").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", below(&first, "upper/link")).unwrap();
        let mode = Mode::from_raw_mode(0);
        let whiteout = below(&first, "upper/whiteout");
        rustix::fs::mknodat(
            CWD,
            &whiteout,
            rustix::fs::FileType::CharacterDevice,
            mode,
            0,
        )
        .unwrap();
        drop(first);
        give_back(&disks, "one");
        let second = disks.lend(MIB, "two").unwrap();
        assert_eq!(device(&second), place, "the same disk");
        for tree in ["upper", "work"] {
            let entries = fs::read_dir(below(&second, tree)).unwrap().count();
            assert_eq!(entries, 0, "{tree} is empty");
        }
        assert!(fs::metadata("/etc/passwd").unwrap().len() > 0);
        // Nothing is left of the first in what is free, either.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(&second, ".", flags, Mode::empty()).unwrap();
        let found = rustix::fs::fstatvfs(&top).unwrap();
        assert!(found.f_files - found.f_ffree < 20);
    }

    #[test]
    fn disks_that_only_a_rush_needs_are_given_up_after_it() {
        let Some((_dir, disks)) = disks() else { return };
        let names: Vec<String> = (0..20).map(|number| number.to_string()).collect();
        for name in &names {
            drop(disks.lend(MIB, name).unwrap());
        }
        for name in &names {
            give_back(&disks, name);
        }
        assert_eq!(disks.waiting(), names.len());
        assert!(disks.begin_thinning());
        assert!(!disks.begin_thinning(), "once");
        disks.thin();
        assert!(!disks.begin_thinning());
        assert_eq!(disks.waiting(), 16);
    }

    #[test]
    fn a_disk_with_much_on_it_is_given_up() {
        let Some((_dir, disks)) = disks() else { return };
        let full = disks.lend(MIB, "one").unwrap();
        fs::write(below(&full, "upper/large"), vec![1; 16 << 20]).unwrap();
        let crowded = disks.lend(MIB, "two").unwrap();
        for number in 0..300 {
            fs::write(below(&crowded, &format!("upper/{number}")), "").unwrap();
        }
        drop((full, crowded));
        give_back(&disks, "one");
        give_back(&disks, "two");
        assert_eq!(disks.waiting(), 0);
    }

    #[test]
    fn a_disk_that_much_was_written_to_is_given_up_though_it_is_empty_again() {
        let Some((_dir, disks)) = disks() else { return };
        let mut again = 0;
        for number in 0..8 {
            let name = number.to_string();
            let disk = disks.lend(MIB, &name).unwrap();
            let file = below(&disk, "upper/large");
            let large = fs::File::create(&file).unwrap();
            std::io::Write::write_all(&mut &large, &vec![1; 32 << 20]).unwrap();
            large.sync_all().unwrap();
            fs::remove_file(file).unwrap();
            drop((large, disk));
            give_back(&disks, &name);
            again += disks.waiting();
        }
        // After the first time it may be used again, and after the second it may not.
        assert!((1..8).contains(&again), "{again} of 8");
    }

    #[test]
    fn a_disk_on_which_somebody_has_a_file_open_is_given_up() {
        let Some((_dir, disks)) = disks() else { return };
        let disk = disks.lend(MIB, "one").unwrap();
        let open = fs::File::create(below(&disk, "upper/open")).unwrap();
        drop(disk);
        give_back(&disks, "one");
        assert_eq!(disks.waiting(), 0);
        drop(open);
    }

    #[test]
    fn a_disk_with_something_that_cannot_be_removed_is_given_up() {
        let Some((_dir, disks)) = disks() else { return };
        let disk = disks.lend(MIB, "one").unwrap();
        fs::write(below(&disk, "upper/immutable"), "").unwrap();
        let file = fs::File::open(below(&disk, "upper/immutable")).unwrap();
        rustix::fs::ioctl_setflags(&file, rustix::fs::IFlags::IMMUTABLE).unwrap();
        drop((file, disk));
        give_back(&disks, "one");
        assert_eq!(disks.waiting(), 0);
    }

    #[test]
    fn a_disk_that_failed_is_given_up() {
        let Some((_dir, disks)) = disks() else { return };
        let disk = disks.lend(MIB, "one").unwrap();
        let name = super::device(std::os::fd::AsFd::as_fd(&disk)).unwrap();
        fs::write(format!("/sys/fs/ext4/{name}/trigger_fs_error"), "a test").unwrap();
        drop(disk);
        give_back(&disks, "one");
        assert_eq!(disks.waiting(), 0);
    }

    #[test]
    fn a_disk_of_a_machine_that_ended_by_itself_is_freed_at_once() {
        let Some((_dir, disks)) = disks() else { return };
        drop(disks.lend(MIB, "one").unwrap());
        drop(disks.recalled("one"));
        give_back(&disks, "one");
        assert_eq!(disks.waiting(), 0);
    }
}
