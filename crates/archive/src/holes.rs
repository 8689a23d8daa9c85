//! Where an open file has data, as the kernel tells it.

use crate::sparse::{MAX_PARTS, Part};
use rustix::fs::SeekFrom;
use rustix::io::Errno;
use std::os::fd::AsFd;

/// The written parts of a file of this size; `None` when it has no holes. Moves the file's
/// position.
pub fn parts(file: impl AsFd, size: u64) -> Result<Option<Vec<Part>>, Errno> {
    let file = file.as_fd();
    let mut found = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            Err(Errno::NXIO) => break,
            // A file system that knows of no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno),
        };
        if start >= size {
            break;
        }
        let end = match found.len() + 1 < MAX_PARTS {
            true => rustix::fs::seek(file, SeekFrom::Hole(start))?.min(size),
            false => size,
        };
        // A file that changes meanwhile: the rest is taken as it is.
        let end = if end > start { end } else { size };
        found.push((start, end - start));
        at = end;
    }
    let whole = matches!(found[..], [(0, length)] if length == size);
    Ok((!whole && size > 0).then_some(found))
}
