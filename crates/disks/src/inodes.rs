//! Inodes of an ext4 file system and their blocks, only as far as the journal and attributes need
//! them.

use std::{collections::HashSet, rc::Rc};

use crate::Blocks;

const EXTENTS_FLAG: u32 = 0x0008_0000;
const EXTENT_MAGIC: u16 = 0xf30a;
/// Features that change the layout (64-bit is supported).
const UNKNOWN_FEATURES: u32 = 0x10 | 0x400 | 0x1000 | 0x8000 | 0x1_0000;
const IS_64_BIT: u32 = 0x80;
/// Deepest tree of extents, as in the kernel.
const MAX_EXTENT_DEPTH: u16 = 5;

#[derive(Clone)]
pub(crate) struct Inodes {
    pub disk: Rc<dyn Blocks>,
    pub block: u64,
    inode_size: u64,
    inodes: u32,
    inodes_per_group: u32,
    descriptors: u64,
    descriptor_size: u64,
}

impl Inodes {
    /// `None` if the layout is not supported.
    pub fn new(disk: Rc<dyn Blocks>) -> Option<Inodes> {
        let mut block = [0; 1024];
        disk.read_at(1024, &mut block).ok()?;
        let features = u32_at(&block, 96)?;
        if features & UNKNOWN_FEATURES != 0 {
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
        Some(Inodes {
            disk,
            block: size,
            inode_size,
            inodes: u32_at(&block, 0)?,
            inodes_per_group,
            descriptors: (u64::from(u32_at(&block, 20)?) + 1) * size,
            descriptor_size,
        })
    }

    pub fn inode(&self, number: u32) -> Option<Vec<u8>> {
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

    pub fn read_block(&self, number: u64) -> Option<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.block).ok()?];
        self.disk
            .read_at(number.checked_mul(self.block)?, &mut bytes)
            .ok()?;
        Some(bytes)
    }

    /// The blocks of an inode in order, if there are at most `most`.
    pub fn blocks(&self, inode: &[u8], most: usize) -> Option<Vec<u64>> {
        if u32_at(inode, 32)? & EXTENTS_FLAG == 0 {
            return None;
        }
        let mut blocks = Vec::new();
        let node = inode.get(40..100)?;
        let mut found = Found {
            blocks: &mut blocks,
            most,
            seen: HashSet::new(),
        };
        self.extents(node, MAX_EXTENT_DEPTH, &mut found)?;
        Some(blocks)
    }

    fn extents(&self, node: &[u8], depth_left: u16, found: &mut Found<'_>) -> Option<()> {
        let (count, depth) = (u16_at(node, 2)?, u16_at(node, 6)?);
        if u16_at(node, 0)? != EXTENT_MAGIC || depth > depth_left {
            return None;
        }
        for entry in node.get(12..)?.chunks_exact(12).take(usize::from(count)) {
            if depth > 0 {
                let below = u64::from(u32_at(entry, 4)?) | u64::from(u16_at(entry, 8)?) << 32;
                if !found.seen.insert(below) {
                    return None;
                }
                let node = self.read_block(below)?;
                self.extents(&node, depth - 1, found)?;
                continue;
            }
            let start = u64::from(u32_at(entry, 8)?) | u64::from(u16_at(entry, 6)?) << 32;
            let length = u16_at(entry, 4)?;
            // A longer length marks an unwritten extent.
            if length > 0x8000 || found.blocks.len() + usize::from(length) > found.most {
                return None;
            }
            found
                .blocks
                .extend((0..u64::from(length)).map(|block| start + block));
        }
        Some(())
    }
}

/// The state of a walk over extents.
struct Found<'a> {
    blocks: &'a mut Vec<u64>,
    most: usize,
    seen: HashSet<u64>,
}

pub(crate) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes([bytes[0], bytes[1]]))
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}
