//! What makes files stay.

use std::fs::File;
use std::io;
use std::path::Path;

/// Makes names in a directory durable.
pub fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
