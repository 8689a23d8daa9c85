//! A disk of our own: ext4 with a journal in a sparse file, as nearly every host has one.
//!
//! Without a journal ext4 keeps away from inodes that were freed within the last minute, or
//! the last six, and looks at each of them again for every file it makes. What was deleted
//! before would then decide how fast a tree is made, by us and by `cp` alike.

use super::Fallible;
use crate::motu::Motu;
use crate::rivals::quiet;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const BYTES: u64 = 24 << 30;
/// How long the last machines may hold on to it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Mounted, and gone with this value.
pub struct Disk {
    image: PathBuf,
    at: PathBuf,
}

impl Disk {
    pub fn make(place: &Path) -> Fallible<Disk> {
        let disk = Disk {
            image: place.join("bench-disk.img"),
            at: place.join("bench-disk"),
        };
        std::fs::create_dir_all(&disk.at)?;
        std::fs::File::create(&disk.image)?.set_len(BYTES)?;
        let mut make = Command::new("mke2fs");
        make.args(["-q", "-F", "-t", "ext4", "-m", "0"])
            .arg(&disk.image);
        quiet(make)?;
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&disk.image).arg(&disk.at);
        quiet(mount)?;
        Ok(disk)
    }

    /// A daemon whose state is on this disk, with the environments of another.
    pub fn serve(&self, other: &Motu) -> Fallible<Motu> {
        let home = self.at.join("home");
        std::fs::DirBuilder::new().mode(0o700).create(&home)?;
        let environments = other.home.join("environments");
        std::os::unix::fs::symlink(environments, home.join("environments"))?;
        Motu::serve(&other.binary, &home)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let begun = Instant::now();
        let mut unmount = Command::new("umount");
        unmount.arg(&self.at);
        while !unmount.output().is_ok_and(|done| done.status.success()) {
            if begun.elapsed() > PATIENCE {
                println!("{} is still mounted", self.at.display());
                return;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = std::fs::remove_file(&self.image);
        let _ = std::fs::remove_dir(&self.at);
    }
}
