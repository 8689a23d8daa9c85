//! Which directories of an ext4 file system are opaque.
//!
//! Owns the one question the ext4 reader has no answer to: whether a directory has
//! the attribute by which an overlay covers those below it. It reads inodes and
//! directories itself, only as far as that needs. A file system it does not know
//! well enough, or whose journal could not be followed, has no answer.

use std::{collections::HashMap, rc::Rc};

use crate::{
    Blocks,
    inodes::{Inodes, u16_at, u32_at},
};

const ROOT_INODE: u32 = 2;
const ATTRIBUTE_MAGIC: u32 = 0xea02_0000;
const ATTRIBUTE_NAME: &[u8] = b"overlay.opaque";
/// `user.` and `trusted.`.
const ATTRIBUTE_SPACES: [u8; 2] = [1, 4];
/// Most blocks of one directory.
const MAX_DIRECTORY_BLOCKS: usize = 16 << 10;

pub(crate) struct OpaqueReader {
    inodes: Inodes,
    /// The directory looked at last: its inode, and what is in it.
    last: Option<(u32, HashMap<Vec<u8>, u32>)>,
}

impl OpaqueReader {
    /// `None` if the file system cannot be asked.
    pub fn new(disk: Rc<dyn Blocks>) -> Option<OpaqueReader> {
        Some(OpaqueReader {
            inodes: Inodes::new(disk)?,
            last: None,
        })
    }

    /// Whether the directory at an absolute path is opaque; `None` if the disk
    /// makes no sense.
    pub fn is_opaque(&mut self, path: &[u8]) -> Option<bool> {
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
        let inode = self.inodes.inode(number)?;
        Some(self.inside(&inode).unwrap_or(false) || self.outside(&inode).unwrap_or(false))
    }

    /// The names in a directory. Its index looks like empty entries to who reads
    /// all blocks in turn.
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
    fn inside(&self, inode: &[u8]) -> Option<bool> {
        let start = 128 + usize::from(u16_at(inode, 128)?);
        if u32_at(inode, start)? != ATTRIBUTE_MAGIC {
            return Some(false);
        }
        let entries = inode.get(start + 4..)?;
        has_attribute(entries, entries)
    }

    /// Attributes in a block of their own.
    fn outside(&self, inode: &[u8]) -> Option<bool> {
        let number = u64::from(u32_at(inode, 104)?) | u64::from(u16_at(inode, 118)?) << 32;
        if number == 0 {
            return Some(false);
        }
        let block = self.inodes.read_block(number)?;
        if u32_at(&block, 0)? != ATTRIBUTE_MAGIC {
            return Some(false);
        }
        has_attribute(block.get(32..)?, &block)
    }
}

/// Looks through a list of attributes whose values are offsets into `values`.
fn has_attribute(mut entries: &[u8], values: &[u8]) -> Option<bool> {
    while entries.len() >= 16 && entries[..4] != [0; 4] {
        let length = usize::from(entries[0]);
        let name = entries.get(16..16 + length)?;
        if name == ATTRIBUTE_NAME && ATTRIBUTE_SPACES.contains(&entries[1]) {
            let at = usize::from(u16_at(entries, 2)?);
            let size = usize::try_from(u32_at(entries, 8)?).ok()?;
            return Some(size == 1 && values.get(at) == Some(&b'y'));
        }
        entries = entries.get(16 + length.next_multiple_of(4)..)?;
    }
    Some(false)
}
