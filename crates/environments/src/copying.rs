//! From a tar stream of a builder into a tree, entry by entry.

use std::{
    collections::BTreeMap,
    io::{self, Read, Write},
};

use crate::{
    error::EnvironmentError,
    layer::{
        archive::{Archive, Entry},
        entry::EntryKind,
    },
    tree::{Captured, TreeWriter, Verdict, refused},
};

/// Largest file whose contents are also handed to the caller.
const MAX_CAPTURED_BYTES: u64 = 64 << 20;

/// Copies a tar stream into `tree`. `judge` sees each normalised path and
/// whether it is a directory.
pub(crate) fn copy_tar<R: Read, W: Write>(
    source: R,
    tree: &mut TreeWriter<W>,
    judge: impl Fn(&[u8], bool) -> Verdict,
) -> Result<Captured, EnvironmentError> {
    let mut archive = Archive::new(source);
    let mut captured = Captured::new();
    while let Some(entry) = archive.next_entry().map_err(read_error)? {
        let path = normalise(&entry.path)?;
        if path.is_empty() {
            continue;
        }
        let verdict = judge(&path, entry.kind == EntryKind::Directory);
        if matches!(verdict, Verdict::KeepAndCapture | Verdict::DropAndCapture) {
            let contents = capture(&entry, &mut archive, &path)?;
            if verdict == Verdict::KeepAndCapture {
                let size = contents.len() as u64;
                let contents = (size, contents.as_slice());
                tree.file_with(&path, entry.meta, BTreeMap::new(), contents)?;
            }
            captured.insert(path, contents);
        } else if verdict == Verdict::Keep {
            copy_entry(entry, &mut archive, &path, tree)?;
        }
    }
    // A producer that pads its stream must not die of a closed pipe.
    archive.drain().map_err(read_error)?;
    Ok(captured)
}

fn copy_entry<W: Write>(
    entry: Entry,
    contents: &mut impl Read,
    path: &[u8],
    tree: &mut TreeWriter<W>,
) -> Result<(), EnvironmentError> {
    match entry.kind {
        EntryKind::Directory => tree.directory(path, entry.meta),
        EntryKind::Symlink => tree.symlink(path, entry.meta, &entry.link),
        EntryKind::HardLink => tree.hard_link(path, &normalise(&entry.link)?),
        EntryKind::File => {
            tree.file_with(path, entry.meta, entry.attributes, (entry.size, contents))
        }
        EntryKind::Device => Err(refused(path, "device outside /dev")),
        EntryKind::Pipe | EntryKind::Other => {
            Err(refused(path, "neither file, directory nor link"))
        }
    }
}

fn capture(
    entry: &Entry,
    contents: &mut impl Read,
    path: &[u8],
) -> Result<Vec<u8>, EnvironmentError> {
    if entry.kind != EntryKind::File {
        return Err(refused(path, "expected a regular file"));
    }
    if entry.size > MAX_CAPTURED_BYTES {
        return Err(refused(path, "too large for what it is"));
    }
    let mut captured = Vec::new();
    contents.read_to_end(&mut captured).map_err(read_error)?;
    Ok(captured)
}

/// Strips `./` and trailing slashes; refuses what could leave the tree.
fn normalise(path: &[u8]) -> Result<Vec<u8>, EnvironmentError> {
    if path.first() == Some(&b'/') {
        return Err(refused(path, "absolute path"));
    }
    let mut clean: Vec<u8> = Vec::with_capacity(path.len());
    for part in path.split(|b| *b == b'/') {
        match part {
            b"" | b"." => continue,
            b".." => return Err(refused(path, "path with ..")),
            part if part.contains(&0) => return Err(refused(path, "path with a zero byte")),
            part => {
                if !clean.is_empty() {
                    clean.push(b'/');
                }
                clean.extend_from_slice(part);
            }
        }
    }
    Ok(clean)
}

fn read_error(source: io::Error) -> EnvironmentError {
    EnvironmentError::io("reading the packed root filesystem", source)
}

#[cfg(test)]
#[path = "copying_tests.rs"]
mod tests;
