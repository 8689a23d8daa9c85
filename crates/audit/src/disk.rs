//! Durability of files.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes the entries of a directory durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
