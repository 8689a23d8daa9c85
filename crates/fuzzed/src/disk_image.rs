//! A disk may hold anything: whatever is read from it comes with an end, and
//! without a panic.

use motu_disks::{Ext4Layer, Merged, open_disk};
use rustix::fs::{MemfdFlags, memfd_create};
use std::io::Write as _;
use std::os::fd::AsRawFd as _;
use std::path::Path;

pub fn disk_image(data: &[u8]) {
    // In memory and without a name: calls at the same time do not meet, and the kernel removes it
    // even after a crash.
    let Ok(fd) = memfd_create("disk", MemfdFlags::CLOEXEC) else {
        return;
    };
    let mut file = std::fs::File::from(fd);
    if file.write_all(data).is_err() {
        return;
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    if let Ok(disk) = open_disk(&[Path::new(&path)]) {
        let mut block = [0; 4096];
        for at in (0..disk.size().min(1 << 20)).step_by(4096) {
            let _ = disk.read_at(at, &mut block);
        }
        if let Ok(layer) = Ext4Layer::upper(disk, b"") {
            let mut view = Merged::new(vec![Box::new(layer)]);
            if let Ok(listing) = view.list(b"/", true, 100) {
                for entry in listing.entries {
                    let _ = view.read(entry.path.as_bytes(), 1000);
                }
            }
        }
    }
}
