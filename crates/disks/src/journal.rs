//! A disk with its journal replayed.
//!
//! A machine that was killed leaves its last writes in the journal, which the kernel replays at the
//! next mount. Here nothing is written: blocks in the journal are read from there. This is our own
//! implementation because a journal is circular: it starts anywhere and wraps around, and a block
//! that was revoked must not be restored from an earlier transaction.
//!
//! The journal is untrusted like all data of a guest: it is followed as long as its checksums are
//! right, as in the kernel, and never beyond its length.

use std::{collections::HashMap, io, rc::Rc};

use crate::{
    Blocks,
    inodes::{Inodes, u32_at},
};

const MAGIC: u32 = 0xc03b_3998;
const DESCRIPTOR: u32 = 1;
const COMMIT: u32 = 2;
const SUPERBLOCK: u32 = 4;
const REVOKE: u32 = 5;
/// Journal features: revocations, 64-bit, checksums v3. Others change the format.
const HAS_64_BITS: u32 = 2;
const HAS_SUMS: u32 = 0x10;
const KNOWN_FEATURES: u32 = 1 | HAS_64_BITS | HAS_SUMS;
const TAG_ESCAPED: u32 = 1;
const TAG_SAME_UUID: u32 = 2;
const TAG_LAST: u32 = 8;
/// The longest journal: 1 GiB in blocks of 1 KiB.
const MAX_BLOCKS: usize = 1 << 20;
/// The position of the superblock, and its flags about the journal.
const SUPER_AT: u64 = 1024;
const SUPER_BYTES: usize = 1024;
const HAS_JOURNAL: u32 = 0x4;
const NEEDS_RECOVERY: u32 = 0x4;
const HAS_METADATA_SUMS: u32 = 0x400;

/// Whether a file system's journal has nothing to replay.
pub(crate) fn is_closed(disk: &Rc<dyn Blocks>) -> bool {
    let mut features = [0; 4];
    let read = disk.read_at(SUPER_AT + 96, &mut features);
    read.is_ok() && u32::from_le_bytes(features) & NEEDS_RECOVERY == 0
}

/// A disk with its journal laid over it.
pub(crate) struct Replayed {
    disk: Rc<dyn Blocks>,
    block: u64,
    /// Where the newest content of a block is, and whether its magic number is escaped.
    newer: HashMap<u64, (u64, bool)>,
    superblock: [u8; SUPER_BYTES],
}

impl Replayed {
    /// `None` if there is nothing to replay, or the journal's format is not supported.
    pub fn new(disk: &Rc<dyn Blocks>) -> Option<Replayed> {
        let mut superblock = [0; SUPER_BYTES];
        disk.read_at(SUPER_AT, &mut superblock).ok()?;
        if is_closed(disk) || u32_at(&superblock, 92)? & HAS_JOURNAL == 0 {
            return None;
        }
        let inodes = Inodes::new(Rc::clone(disk))?;
        let journal = Journal::open(&inodes, u32_at(&superblock, 224)?)?;
        let mut replayed = Replayed {
            disk: Rc::clone(disk),
            block: inodes.block,
            newer: journal.newer(),
            superblock,
        };
        replayed.close().ok()?;
        Some(replayed)
    }

    /// Makes the superblock look like that of a cleanly unmounted file system without a journal.
    fn close(&mut self) -> io::Result<()> {
        let mut bytes = [0; SUPER_BYTES];
        self.read_mapped(SUPER_AT, &mut bytes)?;
        for (at, flag) in [(92, HAS_JOURNAL), (96, NEEDS_RECOVERY)] {
            let value = u32_at(&bytes, at).unwrap_or(0) & !flag;
            bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
        }
        if u32_at(&bytes, 100).unwrap_or(0) & HAS_METADATA_SUMS != 0 {
            let sum = crc32c(u32::MAX, &bytes[..SUPER_BYTES - 4]);
            bytes[SUPER_BYTES - 4..].copy_from_slice(&sum.to_le_bytes());
        }
        self.superblock = bytes;
        Ok(())
    }

    fn read_mapped(&self, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            let (number, within) = (offset / self.block, offset % self.block);
            let mut length = self.block - within;
            let newer = self.newer.get(&number);
            // Read everything up to the next journaled block at once.
            while newer.is_none()
                && length < buffer.len() as u64
                && !self.newer.contains_key(&((offset + length) / self.block))
            {
                length += self.block;
            }
            let length = usize::try_from(length)
                .unwrap_or(usize::MAX)
                .min(buffer.len());
            let (now, rest) = buffer.split_at_mut(length);
            match newer {
                None => self.disk.read_at(offset, now)?,
                Some((place, escaped)) => {
                    self.disk.read_at(place * self.block + within, now)?;
                    if *escaped {
                        lay(now, offset, &MAGIC.to_be_bytes(), number * self.block);
                    }
                }
            }
            offset += length as u64;
            buffer = rest;
        }
        Ok(())
    }
}

impl Blocks for Replayed {
    fn size(&self) -> u64 {
        self.disk.size()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.read_mapped(offset, buffer)?;
        lay(buffer, offset, &self.superblock, SUPER_AT);
        Ok(())
    }
}

/// Copies the overlap of `bytes` at `place` into a buffer at `offset`.
fn lay(buffer: &mut [u8], offset: u64, bytes: &[u8], place: u64) {
    let from = place.max(offset);
    let to = (place + bytes.len() as u64).min(offset + buffer.len() as u64);
    if from < to {
        let (into, of) = ((from - offset) as usize, (from - place) as usize);
        let length = (to - from) as usize;
        buffer[into..into + length].copy_from_slice(&bytes[of..of + length]);
    }
}

struct Journal<'a> {
    inodes: &'a Inodes,
    /// The disk block of each journal block.
    blocks: Vec<u64>,
    uuid: [u8; 16],
    wide: bool,
    sums: bool,
    /// The first block after the journal's own superblock.
    first: u32,
    /// The first block and transaction; 0 is an empty journal.
    start: u32,
    sequence: u32,
}

/// One committed transaction.
#[derive(Default)]
struct Transaction {
    /// A block of the file system, where its content is, and whether it is escaped.
    written: Vec<(u64, u64, bool)>,
    revoked: Vec<u64>,
}

impl<'a> Journal<'a> {
    fn open(inodes: &'a Inodes, inode: u32) -> Option<Journal<'a>> {
        let inode = inodes.inode(inode)?;
        let mut blocks = inodes.blocks(&inode, MAX_BLOCKS)?;
        let bytes = inodes.read_block(*blocks.first()?)?;
        let field = |at: usize| be32(&bytes, at);
        let features = field(40)?;
        if field(0)? != MAGIC
            || field(4)? != SUPERBLOCK
            || u64::from(field(12)?) != inodes.block
            || features & !KNOWN_FEATURES != 0
        {
            return None;
        }
        let (length, first, start) = (field(16)?, field(20)?, field(28)?);
        let length = usize::try_from(length).ok()?;
        if length > blocks.len() || first == 0 || first as usize >= length {
            return None;
        }
        if start != 0 && !(first as usize..length).contains(&(start as usize)) {
            return None;
        }
        blocks.truncate(length);
        Some(Journal {
            inodes,
            blocks,
            uuid: bytes.get(48..64)?.try_into().ok()?,
            wide: features & HAS_64_BITS != 0,
            sums: features & HAS_SUMS != 0,
            first,
            start,
            sequence: field(24)?,
        })
    }

    /// Where the newest content of each block is. A revoked block is read from the disk, unless it
    /// was written again later.
    fn newer(&self) -> HashMap<u64, (u64, bool)> {
        let transactions = self.transactions();
        let mut revoked = HashMap::new();
        for (at, transaction) in transactions.iter().enumerate() {
            for block in &transaction.revoked {
                revoked.insert(*block, at);
            }
        }
        let mut newer = HashMap::new();
        for (at, transaction) in transactions.iter().enumerate() {
            for (block, place, escaped) in &transaction.written {
                if revoked.get(block).is_none_or(|since| *since < at) {
                    newer.insert(*block, (*place, *escaped));
                }
            }
        }
        newer
    }

    /// The committed transactions in order.
    fn transactions(&self) -> Vec<Transaction> {
        let mut all = Vec::new();
        if self.start == 0 {
            return all;
        }
        let mut current = Transaction::default();
        let (mut at, mut sequence) = (self.start, self.sequence);
        // Blocks left to read: a journal is traversed only once.
        let mut left = self.blocks.len();
        while left > 0 {
            left -= 1;
            let Some(block) = self.block(at) else { break };
            at = self.after(at);
            if be32(&block, 0) != Some(MAGIC) || be32(&block, 8) != Some(sequence) {
                break;
            }
            let read = match be32(&block, 4) {
                Some(DESCRIPTOR) => self.descriptor(&block, sequence, &mut at, &mut current),
                Some(REVOKE) => self.revocation(&block, &mut current),
                Some(COMMIT) if self.commit_is_whole(&block) => {
                    all.push(std::mem::take(&mut current));
                    sequence = sequence.wrapping_add(1);
                    Some(0)
                }
                _ => None,
            };
            let Some(passed) = read else { break };
            left = left.saturating_sub(passed);
        }
        all
    }

    fn block(&self, at: u32) -> Option<Vec<u8>> {
        self.inodes.read_block(*self.blocks.get(at as usize)?)
    }

    fn after(&self, at: u32) -> u32 {
        match at as usize + 1 < self.blocks.len() {
            true => at + 1,
            false => self.first,
        }
    }

    /// Reads the blocks after a descriptor; returns their number.
    fn descriptor(
        &self,
        block: &[u8],
        sequence: u32,
        at: &mut u32,
        into: &mut Transaction,
    ) -> Option<usize> {
        let end = match self.sums {
            true => self.tail_is_right(block)?,
            false => block.len(),
        };
        let (mut from, mut passed) = (12, 0);
        loop {
            let tag = Tag::read(block.get(from..end)?, self.wide, self.sums)?;
            from += tag.length;
            let place = *self.blocks.get(*at as usize)?;
            if self.sums {
                let content = self.block(*at)?;
                let sum = crc32c(self.seed(), &sequence.to_be_bytes());
                if crc32c(sum, &content) != tag.sum {
                    return None;
                }
            }
            *at = self.after(*at);
            passed += 1;
            into.written.push((tag.block, place, tag.escaped));
            if tag.last {
                return Some(passed);
            }
            if passed > self.blocks.len() {
                return None;
            }
        }
    }

    fn revocation(&self, block: &[u8], into: &mut Transaction) -> Option<usize> {
        if self.sums {
            self.tail_is_right(block)?;
        }
        let used = usize::try_from(be32(block, 12)?).ok()?;
        let width = if self.wide { 8 } else { 4 };
        for number in block.get(16..used)?.chunks_exact(width) {
            let number = number
                .iter()
                .fold(0, |all, byte| all << 8 | u64::from(*byte));
            into.revoked.push(number);
        }
        Some(0)
    }

    fn seed(&self) -> u32 {
        crc32c(u32::MAX, &self.uuid)
    }

    /// Checks the checksum at the end of a block, computed with zeros in its place.
    fn tail_is_right(&self, block: &[u8]) -> Option<usize> {
        let end = block.len().checked_sub(4)?;
        let sum = crc32c(crc32c(self.seed(), block.get(..end)?), &[0; 4]);
        (be32(block, end)? == sum).then_some(end)
    }

    fn commit_is_whole(&self, block: &[u8]) -> bool {
        let (Some(before), Some(after)) = (block.get(..16), block.get(20..)) else {
            return false;
        };
        let sum = crc32c(crc32c(crc32c(self.seed(), before), &[0; 4]), after);
        !self.sums || be32(block, 16) == Some(sum)
    }
}

/// One block announced by a descriptor.
struct Tag {
    block: u64,
    escaped: bool,
    last: bool,
    sum: u32,
    /// The length of the tag.
    length: usize,
}

impl Tag {
    fn read(bytes: &[u8], wide: bool, sums: bool) -> Option<Tag> {
        let low = u64::from(be32(bytes, 0)?);
        // With checksums there are four 32-bit fields; without them the flags have 16 bits.
        let (flags, high, sum, length) = match (sums, wide) {
            (true, _) => (be32(bytes, 4)?, be32(bytes, 8)?, be32(bytes, 12)?, 16),
            (false, true) => (be32(bytes, 4)? & 0xffff, be32(bytes, 8)?, 0, 12),
            (false, false) => (be32(bytes, 4)? & 0xffff, 0, 0, 8),
        };
        let high = if wide { u64::from(high) } else { 0 };
        let uuid = if flags & TAG_SAME_UUID == 0 { 16 } else { 0 };
        Some(Tag {
            block: low | high << 32,
            escaped: flags & TAG_ESCAPED != 0,
            last: flags & TAG_LAST != 0,
            sum,
            length: length + uuid,
        })
    }
}

fn be32(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// CRC-32C, continued from `sum` and without the final inversion.
fn crc32c(sum: u32, bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    bytes.iter().fold(sum, |sum, byte| {
        TABLE[((sum ^ u32::from(*byte)) & 0xff) as usize] ^ (sum >> 8)
    })
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = match value & 1 {
                1 => (value >> 1) ^ 0x82f6_3b78,
                _ => value >> 1,
            };
            bit += 1;
        }
        table[index] = value;
        index += 1;
    }
    table
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
