//! Attributes in an ext4 file system: opaque markers, and attributes of files.
//!
//! Reads what the ext4 library does not provide: whether a directory has overlayfs's opaque
//! attribute, and the attributes of a file. It parses inodes and directories itself, only as far as
//! needed. For an unsupported file system, or one whose journal could not be replayed, there is no
//! answer.

use std::{
    collections::{BTreeMap, HashMap},
    rc::Rc,
};

use crate::{
    Blocks,
    inodes::{Inodes, u16_at, u32_at},
};

const ROOT_INODE: u32 = 2;
const ATTRIBUTE_MAGIC: u32 = 0xea02_0000;
const ATTRIBUTE_NAME: &[u8] = b"overlay.opaque";
/// The namespaces `user.` and `trusted.`.
const ATTRIBUTE_SPACES: [u8; 2] = [1, 4];
/// Attribute namespaces that are read.
const PREFIXES: [(u8, &str); 3] = [(1, "user."), (4, "trusted."), (6, "security.")];
/// Most blocks of one directory.
const MAX_DIRECTORY_BLOCKS: usize = 16 << 10;

pub(crate) struct OpaqueReader {
    inodes: Inodes,
    /// The directory read last: its inode and entries.
    last: Option<(u32, HashMap<Vec<u8>, u32>)>,
}

impl OpaqueReader {
    /// `None` if the file system is not supported.
    pub fn new(disk: Rc<dyn Blocks>) -> Option<OpaqueReader> {
        Some(OpaqueReader {
            inodes: Inodes::new(disk)?,
            last: None,
        })
    }

    /// Whether the directory at an absolute path is opaque; `None` if the disk is damaged.
    pub fn is_opaque(&mut self, path: &[u8]) -> Option<bool> {
        let inode = self.find(path)?;
        let is_mark = |found: Vec<Attribute>| {
            found.iter().any(|(space, name, value)| {
                name == ATTRIBUTE_NAME && ATTRIBUTE_SPACES.contains(space) && value == b"y"
            })
        };
        let inside = self.inside(&inode).is_some_and(is_mark);
        Some(inside || self.outside(&inode).is_some_and(is_mark))
    }

    /// All attributes of the file at an absolute path, by their full names.
    pub fn attributes(&mut self, path: &[u8]) -> Option<BTreeMap<String, Vec<u8>>> {
        let inode = self.find(path)?;
        let all = [self.inside(&inode)?, self.outside(&inode)?].concat();
        let named = all.into_iter().filter_map(|(space, name, value)| {
            let (_, prefix) = PREFIXES.iter().find(|(number, _)| *number == space)?;
            let name = String::from_utf8(name).ok()?;
            Some((format!("{prefix}{name}"), value))
        });
        Some(named.collect())
    }

    fn find(&mut self, path: &[u8]) -> Option<Vec<u8>> {
        let mut number = ROOT_INODE;
        for name in path
            .split(|byte| *byte == b'/')
            .filter(|name| !name.is_empty())
        {
            if self.last.as_ref().is_none_or(|(last, _)| *last != number) {
                let names = self.directory(number)?;
                self.last = Some((number, names));
            }
            let (_, names) = self.last.as_ref()?;
            number = *names.get(name)?;
        }
        self.inodes.inode(number)
    }

    /// The entries of a directory. Its hash index looks like empty entries when all blocks are read
    /// in turn.
    fn directory(&self, number: u32) -> Option<HashMap<Vec<u8>, u32>> {
        let inode = self.inodes.inode(number)?;
        let blocks = self.inodes.blocks(&inode, MAX_DIRECTORY_BLOCKS)?;
        let mut names = HashMap::new();
        for block in blocks {
            let bytes = self.inodes.read_block(block)?;
            let mut rest = bytes.as_slice();
            while rest.len() >= 8 {
                let length = usize::from(u16_at(rest, 4)?);
                if length < 8 || length > rest.len() {
                    return None;
                }
                let (entry, after) = rest.split_at(length);
                let name = entry.get(8..8 + usize::from(entry[6]))?;
                let child = u32_at(entry, 0)?;
                if child != 0 && !matches!(name, b"" | b"." | b"..") {
                    names.insert(name.to_vec(), child);
                }
                rest = after;
            }
        }
        Some(names)
    }

    /// Attributes at the end of the inode.
    fn inside(&self, inode: &[u8]) -> Option<Vec<Attribute>> {
        // Small inodes have no room for attributes.
        if inode.len() <= 128 {
            return Some(Vec::new());
        }
        let start = 128 + usize::from(u16_at(inode, 128)?);
        if u32_at(inode, start) != Some(ATTRIBUTE_MAGIC) {
            return Some(Vec::new());
        }
        let entries = inode.get(start + 4..)?;
        list(entries, entries)
    }

    /// Attributes in a block of their own.
    fn outside(&self, inode: &[u8]) -> Option<Vec<Attribute>> {
        let number = u64::from(u32_at(inode, 104)?) | u64::from(u16_at(inode, 118)?) << 32;
        if number == 0 {
            return Some(Vec::new());
        }
        let block = self.inodes.read_block(number)?;
        if u32_at(&block, 0)? != ATTRIBUTE_MAGIC {
            return Some(Vec::new());
        }
        list(block.get(32..)?, &block)
    }
}

/// The namespace, the name in it, and the value.
type Attribute = (u8, Vec<u8>, Vec<u8>);

/// Parses a list of attributes whose values are offsets into `values`. A value in an inode of its
/// own is larger than any that matters here, and is skipped.
fn list(mut entries: &[u8], values: &[u8]) -> Option<Vec<Attribute>> {
    let mut found = Vec::new();
    while entries.len() >= 16 && entries[..4] != [0; 4] {
        let length = usize::from(entries[0]);
        let name = entries.get(16..16 + length)?;
        let at = usize::from(u16_at(entries, 2)?);
        let size = usize::try_from(u32_at(entries, 8)?).ok()?;
        if u32_at(entries, 4)? == 0 {
            let value = values.get(at..at.checked_add(size)?)?;
            found.push((entries[1], name.to_vec(), value.to_vec()));
        }
        entries = entries.get(16 + length.next_multiple_of(4)..)?;
    }
    Some(found)
}
