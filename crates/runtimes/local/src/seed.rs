//! The seed of a workspace, in the layer that its machine writes to.

use motu_launch::seeded::{self, Notes};
use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Fills an upper layer that is not in use yet with the seed, if that is small. Where it cannot
/// be done the seed stays below, with what that means for renames.
pub fn own_seed(dir: impl AsFd, name: &str, baseline: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = rustix::fs::openat(&dir, name, flags, Mode::empty())?;
    let lower = File::open(baseline)?;
    if let Err(error) = seeded::own(&lower, &upper, Notes::User) {
        tracing::warn!(%error, baseline = %baseline.display(), "the seed is not copied");
    }
    Ok(())
}
