//! Trees as tar archives in memory.
//!
//! Only files and directories; anything else in an archive is refused.

use crate::answer::Failed;
use crate::files::{Put, Tree, normal};
use bytes::Bytes;
use motu_link::message::{Failure, FileType, TreeDone};
use std::ffi::OsStr;
use std::io::Read as _;
use std::os::unix::ffi::OsStrExt as _;

/// Packs everything below a directory.
pub fn pack(tree: &Tree, path: &[u8]) -> Result<Bytes, Failed> {
    let base = normal(path).len() + 1;
    let mut archive = tar::Builder::new(Vec::new());
    let page = tree.list(path, u32::MAX, b"", u32::MAX)?;
    for entry in page.entries {
        let name = OsStr::from_bytes(entry.path.get(base..).unwrap_or_default());
        let mut header = tar::Header::new_gnu();
        header.set_mode(entry.mode);
        let content = match entry.kind == FileType::Directory as i32 {
            true => {
                header.set_entry_type(tar::EntryType::Directory);
                Bytes::new()
            }
            false => tree.read(&entry.path)?.1,
        };
        header.set_size(content.len() as u64);
        archive
            .append_data(&mut header, name, &content[..])
            .map_err(broken)?;
    }
    archive.into_inner().map(Bytes::from).map_err(broken)
}

/// Unpacks an archive into a directory.
pub fn unpack(tree: &mut Tree, path: &[u8], archive: &[u8]) -> Result<TreeDone, Failed> {
    tree.mkdir(path, true, 0)?;
    let mut done = TreeDone::default();
    let mut archive = tar::Archive::new(archive);
    for entry in archive.entries().map_err(broken)? {
        let mut entry = entry.map_err(broken)?;
        let inside = normal(&[b"/", &entry.path_bytes()[..]].concat());
        let place = [path, &inside[..]].concat();
        let mode = entry.header().mode().unwrap_or(0);
        match entry.header().entry_type() {
            tar::EntryType::Directory => drop(tree.mkdir(&place, true, mode)?),
            tar::EntryType::Regular => {
                let mut content = Vec::new();
                entry.read_to_end(&mut content).map_err(broken)?;
                done.bytes += content.len() as u64;
                let how = Put {
                    mode,
                    parents: true,
                    ..Put::default()
                };
                tree.put(&place, Bytes::from(content), how)?;
            }
            _ => return Err(Failed::unsupported("unpack links and devices")),
        }
        done.entries += 1;
    }
    Ok(done)
}

fn broken(error: std::io::Error) -> Failed {
    Failed::new(Failure::Invalid, format!("the archive: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_survives_packing() {
        let mut tree = Tree::new();
        let how = Put {
            parents: true,
            ..Put::default()
        };
        tree.put(b"/a/b/c", Bytes::from_static(b"content"), how)
            .unwrap();
        let archive = pack(&tree, b"/a").unwrap();
        let done = unpack(&mut tree, b"/copy/of", &archive).unwrap();
        assert_eq!((done.entries, done.bytes), (2, 7));
        assert_eq!(&tree.read(b"/copy/of/b/c").unwrap().1[..], b"content");
    }
}
