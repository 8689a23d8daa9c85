//! Trees as tar archives in memory.
//!
//! Only files and directories; anything else in an archive is refused.

use crate::answer::Failed;
use crate::files::{Put, Tree, normal};
use bytes::Bytes;
use motu_archive::{Header, Reader, Type, Writer};
use motu_link::message::{Failure, FileType, TreeDone};
use std::io::Read as _;

/// Packs everything below a directory.
pub fn pack(tree: &Tree, path: &[u8]) -> Result<Bytes, Failed> {
    let base = normal(path).len() + 1;
    let mut archive = Writer::new(Vec::new());
    let page = tree.list(path, u32::MAX, b"", u32::MAX)?;
    for entry in page.entries {
        let (kind, content) = match entry.kind == FileType::Directory as i32 {
            true => (Type::Directory, Bytes::new()),
            false => (Type::File, tree.read(&entry.path)?.1),
        };
        let header = Header {
            path: entry.path.get(base..).unwrap_or_default().to_vec(),
            kind,
            mode: entry.mode,
            size: content.len() as u64,
            ..Header::default()
        };
        archive.file(&header, &mut &content[..]).map_err(broken)?;
    }
    archive.finish().map(Bytes::from).map_err(broken)
}

/// Unpacks an archive into a directory.
pub fn unpack(tree: &mut Tree, path: &[u8], archive: &[u8]) -> Result<TreeDone, Failed> {
    tree.mkdir(path, true, 0)?;
    let mut done = TreeDone::default();
    let mut archive = Reader::new(archive);
    while let Some(Header {
        path: name,
        kind,
        mode,
        ..
    }) = archive.next_entry().map_err(broken)?
    {
        let inside = normal(&[b"/", &name[..]].concat());
        let place = [path, &inside[..]].concat();
        match kind {
            Type::Directory => drop(tree.mkdir(&place, true, mode)?),
            Type::File => {
                let mut content = Vec::new();
                archive.read_to_end(&mut content).map_err(broken)?;
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
