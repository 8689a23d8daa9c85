//! Removing images and templates: they are made again by the first machine that needs them.
//!
//! Machines, running or kept, have links of their own to what they use, so nothing is taken from
//! them. Kernels are small and stay.

use crate::blocking::blocking;
use crate::error::QemuError;
use crate::machine::Maker;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;

/// Says how many bytes were freed: what no machine has a link to.
pub(crate) async fn all(maker: &Arc<Maker>) -> Result<u64, QemuError> {
    let maker = maker.clone();
    blocking(move || {
        // They hold what is about to go.
        maker.spares.clear();
        maker.templates.forget();
        let mut freed = 0;
        for shelf in [maker.images.shelf(), maker.templates.shelf()] {
            for name in shelf.names() {
                freed += own_bytes(&shelf.path(&name));
                shelf.discard(&name)?;
            }
        }
        Ok(freed)
    })
    .await
}

/// What is on the disk for this path and those below it alone.
fn own_bytes(path: &Path) -> u64 {
    let Ok(found) = path.symlink_metadata() else {
        return 0;
    };
    if found.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        return entries.map(|entry| own_bytes(&entry.path())).sum();
    }
    match found.nlink() {
        1 => found.blocks() * 512,
        _ => 0,
    }
}
