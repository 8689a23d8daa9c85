//! Maintains the images of kept disks.
//!
//! Space that a machine has freed is returned to the host when its image is trimmed: periodically
//! while it runs, and when it is stopped. The mount option `discard` would do it at once, but then
//! blocks freed in a transaction that was not committed would read as zeros after a crash.
//!
//! The image of a running machine is found by its loop device. Mounting that device again gives
//! another handle on the same file system, which is closed at the end.

use crate::mount::{Life, mount_ext4, mount_image};
use crate::sys;
use motu_core::Error;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Unused allocated space in an image that is tolerated before it is trimmed.
const SLACK: u64 = 64 << 20;
/// The unit of `st_blocks`.
const UNIT: u64 = 512;
/// How long the kernel may take to release an image.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);

/// The loop device of an image, such as `loop3`.
fn device_of(image: &Path) -> Option<String> {
    let image = image.canonicalize().ok()?;
    let devices = std::fs::read_dir("/sys/block").ok()?.flatten();
    devices
        .filter(|entry| {
            let backing = std::fs::read(entry.path().join("loop/backing_file"));
            backing.is_ok_and(|path| path.trim_ascii_end() == image.as_os_str().as_encoded_bytes())
        })
        .find_map(|entry| entry.file_name().into_string().ok())
}

/// The number of I/O errors of a mounted image's file system; 0 if it is not mounted.
pub fn errors(image: &Path) -> u64 {
    let count = device_of(image).and_then(|device| {
        let file = format!("/sys/fs/ext4/{device}/errors_count");
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    });
    count.unwrap_or(0)
}

/// Flushes a mounted image to the host's disk, or `dir` if there is no image.
pub fn flush(image: &Path, dir: &Path) -> Result<(), Error> {
    flush_mounted(image, dir).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Error::unavailable("the machine ended before everything was on its disk")
        }
        _ => Error::io("the machine's disk", &error),
    })
}

fn flush_mounted(image: &Path, dir: &Path) -> io::Result<()> {
    match device_of(image) {
        Some(device) => {
            let mount = mount_ext4(&format!("/dev/{device}"), Life::Kept)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let top = rustix::fs::openat(&mount, c".", flags, Mode::empty())?;
            rustix::fs::syncfs(top)?;
            match device_of(image) == Some(device) {
                true => Ok(()),
                // The machine has ended, and the loop device belongs to another image.
                false => Err(io::ErrorKind::NotFound.into()),
            }
        }
        None if image.exists() => Err(io::ErrorKind::NotFound.into()),
        None => Ok(rustix::fs::syncfs(File::open(dir)?)?),
    }
}

/// Keeps a mounted image mounted until the result is dropped: the last process of its machine need
/// not wait for the unmounting. `None` if it is not mounted.
pub fn hold(image: &Path) -> Option<OwnedFd> {
    let device = device_of(image)?;
    let mount = mount_ext4(&format!("/dev/{device}"), Life::Kept).ok()?;
    // Loop devices are reused.
    (device_of(image)? == device).then_some(mount)
}

/// Returns unused space of an image to the host; returns the number of bytes.
pub fn trim(image: &Path) -> io::Result<u64> {
    let file = File::options().read(true).write(true).open(image)?;
    let allocated = || -> io::Result<u64> { Ok(image.metadata()?.blocks() * UNIT) };
    let before = allocated()?;
    if before <= SLACK {
        return Ok(0);
    }
    let mount = match device_of(image) {
        Some(device) => mount_ext4(&format!("/dev/{device}"), Life::Kept)?,
        None => {
            // It is about to be mounted: try another time.
            rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
            mount_image(&file, Life::Kept)?
        }
    };
    // Loop devices are reused: check that this one still belonged to the image after it was
    // mounted.
    if device_of(image).is_some() && before > used(&mount)? + SLACK {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::openat(&mount, c".", flags, Mode::empty())?;
        sys::trim_ext4(top.as_fd())?;
    }
    drop((mount, file));
    Ok(before.saturating_sub(allocated()?))
}

/// Like [`trim`], for an image whose machine has ended; waits until it may be mounted again.
pub fn trim_at_rest(image: &Path) -> io::Result<u64> {
    let trimmed = trim(image);
    let end = Instant::now() + PATIENCE;
    let file = File::open(image)?;
    while device_of(image).is_some()
        || rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_err()
    {
        if Instant::now() > end {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        std::thread::sleep(LOOK);
    }
    trimmed
}

/// The space used by the files and the file system itself.
fn used(mount: &OwnedFd) -> io::Result<u64> {
    let found = rustix::fs::fstatvfs(mount)?;
    Ok(found.f_blocks.saturating_sub(found.f_bfree) * found.f_frsize)
}
