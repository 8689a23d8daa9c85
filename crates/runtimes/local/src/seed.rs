//! Copies the seed of a workspace into its upper layer.

use motu_launch::seeded::{self, Notes};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Fills an unused upper layer with the seed, if that is small. If it cannot be done, the seed
/// stays in the lower layer, with the restrictions of overlayfs on renames.
pub fn own_seed(dir: impl AsFd, name: &str, baseline: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
    let lower = File::open(baseline)?;
    if let Err(error) = seeded::own(&lower, &upper, Notes::User) {
        tracing::warn!(%error, baseline = %baseline.display(), "copying the seed failed");
    }
    Ok(())
}
