//! Which directories of an ext4 file system are opaque.
//!
//! Owns the one question the ext4 reader has no answer to: whether a directory has
//! the attribute by which an overlay covers those below it. It reads inodes and
//! directories itself, only as far as that needs. A file system it does not know
//! well enough, or that was not closed (its journal may hold newer attributes), has
//! no answer.

use std::{
    collections::{HashMap, HashSet},
    rc::Rc,
};

use crate::Blocks;

const ROOT_INODE: u32 = 2;
const EXTENTS_FLAG: u32 = 0x0008_0000;
const EXTENT_MAGIC: u16 = 0xf30a;
const ATTRIBUTE_MAGIC: u32 = 0xea02_0000;
const ATTRIBUTE_NAME: &[u8] = b"overlay.opaque";
/// `user.` and `trusted.`.
const ATTRIBUTE_SPACES: [u8; 2] = [1, 4];
/// Features that change where things are (64-bit is understood).
const UNKNOWN_FEATURES: u32 = 0x10 | 0x400 | 0x1000 | 0x8000 | 0x1_0000;
const NEEDS_RECOVERY: u32 = 0x4;
const IS_64_BIT: u32 = 0x80;
/// Deepest tree of extents, as in the kernel.
const MAX_EXTENT_DEPTH: u16 = 5;
/// Most blocks of one directory.
const MAX_DIRECTORY_BLOCKS: usize = 16 << 10;

pub(crate) struct OpaqueReader {
    disk: Rc<dyn Blocks>,
    block: u64,
    inode_size: u64,
    inodes: u32,
    inodes_per_group: u32,
    descriptors: u64,
    descriptor_size: u64,
    /// The directory looked at last: its inode, and what is in it.
    last: Option<(u32, HashMap<Vec<u8>, u32>)>,
}

impl OpaqueReader {
    /// `None` if the file system cannot be asked.
    pub fn new(disk: Rc<dyn Blocks>) -> Option<OpaqueReader> {
        let mut block = [0; 1024];
        disk.read_at(1024, &mut block).ok()?;
        let features = u32_at(&block, 96)?;
        if features & (UNKNOWN_FEATURES | NEEDS_RECOVERY) != 0 {
            return None;
        }
        let shift = u32_at(&block, 24).filter(|shift| *shift <= 6)?;
        let size = 1024_u64 << shift;
        let wide = features & IS_64_BIT != 0;
        let descriptor_size = match wide {
            true => u64::from(u16_at(&block, 254)?).max(32),
            false => 32,
        };
        let inode_size = u64::from(u16_at(&block, 88)?);
        let inodes_per_group = u32_at(&block, 40)?;
        if !(128..=size).contains(&inode_size) || inodes_per_group == 0 {
            return None;
        }
        Some(OpaqueReader {
            disk,
            block: size,
            inode_size,
            inodes: u32_at(&block, 0)?,
            inodes_per_group,
            descriptors: (u64::from(u32_at(&block, 20)?) + 1) * size,
            descriptor_size,
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
        let inode = self.inode(number)?;
        Some(self.inside(&inode).unwrap_or(false) || self.outside(&inode).unwrap_or(false))
    }

    fn inode(&self, number: u32) -> Option<Vec<u8>> {
        let index = number.checked_sub(1).filter(|_| number <= self.inodes)?;
        let (group, index) = (index / self.inodes_per_group, index % self.inodes_per_group);
        let mut descriptor = [0; 64];
        let size = usize::try_from(self.descriptor_size.min(64)).ok()?;
        let at = self.descriptors + u64::from(group) * self.descriptor_size;
        self.disk.read_at(at, &mut descriptor[..size]).ok()?;
        let high = u64::from(u32_at(&descriptor, 40)?);
        let table = u64::from(u32_at(&descriptor, 8)?) | high << 32;
        let at = table.checked_mul(self.block)?;
        let at = at.checked_add(u64::from(index) * self.inode_size)?;
        let mut inode = vec![0; usize::try_from(self.inode_size).ok()?];
        self.disk.read_at(at, &mut inode).ok()?;
        Some(inode)
    }

    fn read_block(&self, number: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.block).ok()?];
        self.disk
            .read_at(number.checked_mul(self.block)?, &mut bytes)
            .ok()?;
        Some(bytes)
    }

    /// The names in a directory. Its index looks like empty entries to who reads
    /// all blocks in turn.
    fn directory(&self, number: u32) -> Option<HashMap<Vec<u8>, u32>> {
        let inode = self.inode(number)?;
        if u32_at(&inode, 32)? & EXTENTS_FLAG == 0 {
            return None;
        }
        let mut blocks = Vec::new();
        self.extents(
            inode.get(40..100)?,
            MAX_EXTENT_DEPTH,
            &mut blocks,
            &mut HashSet::new(),
        )?;
        let mut names = HashMap::new();
        for block in blocks {
            let bytes = self.read_block(block)?;
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

    fn extents(
        &self,
        node: &[u8],
        depth_left: u16,
        blocks: &mut Vec<u64>,
        seen: &mut HashSet<u64>,
    ) -> Option<()> {
        let (count, depth) = (u16_at(node, 2)?, u16_at(node, 6)?);
        if u16_at(node, 0)? != EXTENT_MAGIC || depth > depth_left {
            return None;
        }
        for entry in node.get(12..)?.chunks_exact(12).take(usize::from(count)) {
            if depth > 0 {
                let below = u64::from(u32_at(entry, 4)?) | u64::from(u16_at(entry, 8)?) << 32;
                if !seen.insert(below) {
                    return None;
                }
                let node = self.read_block(below)?;
                self.extents(&node, depth - 1, blocks, seen)?;
                continue;
            }
            let start = u64::from(u32_at(entry, 8)?) | u64::from(u16_at(entry, 6)?) << 32;
            let length = u16_at(entry, 4)?;
            // Longer ones were never written to.
            if length > 0x8000 || blocks.len() + usize::from(length) > MAX_DIRECTORY_BLOCKS {
                return None;
            }
            blocks.extend((0..u64::from(length)).map(|block| start + block));
        }
        Some(())
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
        let block = self.read_block(number)?;
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

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
