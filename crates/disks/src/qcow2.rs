//! Disk images: raw, and qcow2 with its backing files.
//!
//! Read-only, and only what QEMU writes for a machine's disk: no compression, encryption, external
//! data or extended entries. The backing file name inside an image is never used to open a file:
//! the caller provides the file.

use std::{cell::RefCell, fs::File, io, os::unix::fs::FileExt as _, path::Path};

use crate::DiskError;

const MAGIC: [u8; 4] = *b"QFI\xfb";
/// Largest first-level table: a disk of 16 TiB with 64 KiB clusters.
const MAX_L1_ENTRIES: u32 = 32 << 10;
/// Longest chain of images.
const MAX_CHAIN: usize = 16;
/// The offset bits of an entry; the other bits are flags.
const OFFSET_MASK: u64 = 0x00ff_ffff_ffff_fe00;
const COMPRESSED: u64 = 1 << 62;
const ALL_ZERO: u64 = 1;
/// An ignorable feature: the image was not closed cleanly.
const FEATURE_DIRTY: u64 = 1;

/// Something with blocks at offsets.
pub trait Blocks {
    fn size(&self) -> u64;
    /// Fills `buffer`; an error beyond the end.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()>;
}

/// A raw disk image.
#[derive(Debug)]
pub struct Raw {
    file: File,
    size: u64,
}

impl Raw {
    pub fn open(path: &Path) -> Result<Raw, DiskError> {
        let open = || {
            let file = File::open(path)?;
            let size = file.metadata()?.len();
            Ok(Raw { file, size })
        };
        open().map_err(DiskError::io("opening", path))
    }
}

impl Blocks for Raw {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Opens a disk, detected by its first bytes. `chain` is the disk itself, then its backing file,
/// and so on; all but the last must be qcow2.
pub fn open_disk(chain: &[&Path]) -> Result<Box<dyn Blocks>, DiskError> {
    let (disk, base) = chain.split_first().ok_or(DiskError::Unsupported {
        reason: "no disk was named",
    })?;
    if chain.len() > MAX_CHAIN {
        return Err(DiskError::Limit {
            what: "the length of a chain of disks",
            limit: MAX_CHAIN as u64,
        });
    }
    let raw = Raw::open(disk)?;
    let mut magic = [0; 4];
    let is_qcow2 = raw.size >= 4 && raw.read_at(0, &mut magic).is_ok() && magic == MAGIC;
    if !is_qcow2 {
        return match base {
            [] => Ok(Box::new(raw)),
            _ => Err(DiskError::Unsupported {
                reason: "a raw disk is not based on another",
            }),
        };
    }
    let base = match base {
        [] => None,
        base => Some(open_disk(base)?),
    };
    Ok(Box::new(Qcow2::new(raw, base)?))
}

/// A qcow2 image.
pub struct Qcow2 {
    file: Raw,
    base: Option<Box<dyn Blocks>>,
    size: u64,
    cluster_bits: u32,
    l1: Vec<u64>,
    /// The second-level table used last, by its offset.
    l2: RefCell<Option<(u64, Vec<u8>)>>,
}

impl std::fmt::Debug for Qcow2 {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Qcow2")
            .field("size", &self.size)
            .field("has_base", &self.base.is_some())
            .finish_non_exhaustive()
    }
}

impl Qcow2 {
    pub fn new(file: Raw, base: Option<Box<dyn Blocks>>) -> Result<Qcow2, DiskError> {
        let damaged = |_| DiskError::damaged("the header of the image is cut off");
        let mut header = [0; 104];
        file.read_at(0, &mut header[..72]).map_err(damaged)?;
        let u32_at = |at: usize, header: &[u8; 104]| {
            u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let u64_at = |at: usize, header: &[u8; 104]| {
            u64::from(u32_at(at, header)) << 32 | u64::from(u32_at(at + 4, header))
        };
        match u32_at(4, &header) {
            2 => {}
            3 => {
                file.read_at(0, &mut header).map_err(damaged)?;
                if u64_at(72, &header) & !FEATURE_DIRTY != 0 {
                    return Err(DiskError::Unsupported {
                        reason: "the image uses features this reader does not know, or is marked corrupt",
                    });
                }
            }
            _ => {
                return Err(DiskError::Unsupported {
                    reason: "the version of the image is not 2 or 3",
                });
            }
        }
        if u32_at(32, &header) != 0 {
            return Err(DiskError::Unsupported {
                reason: "the image is encrypted",
            });
        }
        let cluster_bits = u32_at(20, &header);
        if !(9..=21).contains(&cluster_bits) {
            return Err(DiskError::damaged("the size of a cluster makes no sense"));
        }
        let has_base = u64_at(8, &header) != 0;
        if has_base != base.is_some() {
            return Err(DiskError::Unsupported {
                reason: "the image is based on another disk than was named",
            });
        }
        let l1 = read_l1(&file, u64_at(40, &header), u32_at(36, &header))?;
        Ok(Qcow2 {
            base,
            size: u64_at(24, &header),
            cluster_bits,
            l1,
            l2: RefCell::new(None),
            file,
        })
    }

    /// Where a cluster is in the file: `Some(None)` is zeros, `None` is in the backing file.
    fn cluster(&self, offset: u64) -> io::Result<Option<Option<u64>>> {
        let l2_bits = self.cluster_bits - 3;
        let index = offset >> self.cluster_bits;
        let first = usize::try_from(index >> l2_bits).unwrap_or(usize::MAX);
        let table = match self.l1.get(first) {
            Some(entry) => entry & OFFSET_MASK,
            None => return Err(invalid("the first table of the image is too short")),
        };
        if table == 0 {
            return Ok(None);
        }
        let mut cached = self.l2.borrow_mut();
        if cached.as_ref().is_none_or(|(at, _)| *at != table) {
            let mut bytes = vec![0; 1 << self.cluster_bits];
            self.file.read_at(table, &mut bytes)?;
            *cached = Some((table, bytes));
        }
        let second = usize::try_from(index & ((1 << l2_bits) - 1)).unwrap_or(usize::MAX);
        let entry = cached
            .as_ref()
            .and_then(|(_, bytes)| bytes.get(second * 8..second * 8 + 8))
            .map(|entry| {
                entry
                    .iter()
                    .fold(0, |number, byte| number << 8 | u64::from(*byte))
            })
            .ok_or_else(|| invalid("a table of the image is too short"))?;
        if entry & COMPRESSED != 0 {
            return Err(invalid(
                "the image has compressed clusters, which are not supported",
            ));
        }
        let place = entry & OFFSET_MASK;
        Ok(match (entry & ALL_ZERO != 0, place) {
            (true, _) => Some(None),
            (false, 0) => None,
            (false, place) => Some(Some(place)),
        })
    }
}

fn read_l1(file: &Raw, offset: u64, entries: u32) -> Result<Vec<u64>, DiskError> {
    if entries > MAX_L1_ENTRIES {
        return Err(DiskError::Limit {
            what: "the first table of the image",
            limit: u64::from(MAX_L1_ENTRIES),
        });
    }
    let mut bytes = vec![0; entries as usize * 8];
    file.read_at(offset, &mut bytes)
        .map_err(|_| DiskError::damaged("the first table of the image is cut off"))?;
    let number = |entry: &[u8]| {
        entry
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte))
    };
    Ok(bytes.chunks_exact(8).map(number).collect())
}

impl Blocks for Qcow2 {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_at(&self, mut offset: u64, mut buffer: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buffer.len() as u64);
        if end.is_none_or(|end| end > self.size) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !buffer.is_empty() {
            let within = offset & ((1 << self.cluster_bits) - 1);
            let room = (1_u64 << self.cluster_bits) - within;
            let count = buffer
                .len()
                .min(usize::try_from(room).unwrap_or(usize::MAX));
            let (part, rest) = buffer.split_at_mut(count);
            match self.cluster(offset)? {
                Some(Some(place)) => {
                    let at = place.checked_add(within);
                    let at = at.ok_or_else(|| invalid("a cluster is beyond all files"))?;
                    self.file.read_at(at, part)?;
                }
                Some(None) => part.fill(0),
                None => self.read_base(offset, part)?,
            }
            offset += count as u64;
            buffer = rest;
        }
        Ok(())
    }
}

impl Qcow2 {
    /// The backing file may be smaller; the rest is zeros.
    fn read_base(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        let Some(base) = &self.base else {
            buffer.fill(0);
            return Ok(());
        };
        let there = base.size().saturating_sub(offset);
        let count = buffer
            .len()
            .min(usize::try_from(there).unwrap_or(usize::MAX));
        let (part, beyond) = buffer.split_at_mut(count);
        beyond.fill(0);
        if part.is_empty() {
            return Ok(());
        }
        base.read_at(offset, part)
    }
}

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
