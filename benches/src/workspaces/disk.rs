//! A separate disk: ext4 with a journal in a sparse file, as on most hosts.
//!
//! Without a journal ext4 avoids inodes that were freed within the last one to six minutes, and
//! checks each of them for every new file. Earlier deletions would then determine how fast a tree
//! is created, by us and by `cp`.

use super::Fallible;
use crate::motu::Motu;
use crate::rivals::quiet;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const BYTES: u64 = 24 << 30;
/// How long machines may keep using it at the end.
const PATIENCE: Duration = Duration::from_secs(20);

/// Mounted; unmounted and removed on drop.
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

    /// Starts a daemon with its state on this disk, and the environments of another.
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
