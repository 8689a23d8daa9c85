//! Writing tar archives for a guest.
//!
//! Owns the format as our guest and every other unpacker reads it: ustar, with
//! PAX records for what does not fit (long names, times to the nanosecond,
//! attributes, holes). Names and targets are bytes, as on the disk.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Seek as _, Write},
    os::unix::fs::MetadataExt as _,
};

use rustix::{fs::SeekFrom, io::Errno};

const BLOCK: usize = 512;
const ATTRIBUTE_PREFIX: &str = "SCHILY.xattr.";
const NANOSECONDS: i64 = 1_000_000_000;
/// The most written parts of one file, as in the guest.
const MAX_PARTS: usize = 4096;
/// Largest numbers of the octal fields.
const MAX_ID: u32 = 0o7_777_777;
const MAX_SIZE: u64 = 0o77_777_777_777;

/// User attributes of a file.
pub type Attributes = BTreeMap<String, Vec<u8>>;

/// Permissions, owner and time of one entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub modified_unix_ns: i64,
}

/// A tar archive being written.
#[derive(Debug)]
pub struct TarWriter<W> {
    out: W,
}

impl<W: Write> TarWriter<W> {
    pub fn new(out: W) -> Self {
        Self { out }
    }

    pub fn directory(
        &mut self,
        path: &[u8],
        meta: Meta,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let path = [path, b"/"].concat();
        self.header(b'5', &path, b"", meta, (0, attributes))
    }

    pub fn symlink(&mut self, path: &[u8], meta: Meta, target: &[u8]) -> io::Result<()> {
        self.header(b'2', path, target, meta, (0, &Attributes::new()))
    }

    /// A second name for a file written before.
    pub fn hard_link(&mut self, path: &[u8], meta: Meta, target: &[u8]) -> io::Result<()> {
        self.header(b'1', path, target, meta, (0, &Attributes::new()))
    }

    pub fn pipe(&mut self, path: &[u8], meta: Meta) -> io::Result<()> {
        self.header(b'6', path, b"", meta, (0, &Attributes::new()))
    }

    /// A file of exactly `size` bytes; a reader that has fewer is an error.
    pub fn file(
        &mut self,
        path: &[u8],
        meta: Meta,
        attributes: &Attributes,
        size: u64,
        contents: &mut impl Read,
    ) -> io::Result<()> {
        self.header(b'0', path, b"", meta, (size, attributes))?;
        if io::copy(&mut contents.take(size), &mut self.out)? != size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pad(size)
    }

    /// A file of the host as it is: holes are left out.
    pub fn disk_file(
        &mut self,
        path: &[u8],
        meta: Meta,
        attributes: &Attributes,
        file: &File,
    ) -> io::Result<()> {
        let found = file.metadata()?;
        let size = found.len();
        let parts = match found.blocks().saturating_mul(512) < size {
            true => written_parts(file, size)?,
            false => None,
        };
        let mut file = file;
        let Some(parts) = parts else {
            return self.file(path, meta, attributes, size, &mut file);
        };
        let map = map_of(&parts);
        let stored: u64 = parts.iter().map(|(_, length)| length).sum();
        let stored = stored + map.len() as u64;
        let mut records = records(path, b"", meta, stored, attributes);
        for (key, value) in [("major", b"1"), ("minor", b"0")] {
            record(&mut records, &format!("GNU.sparse.{key}"), value);
        }
        record(&mut records, "GNU.sparse.name", path);
        record(
            &mut records,
            "GNU.sparse.realsize",
            size.to_string().as_bytes(),
        );
        self.extended(&records, meta)?;
        self.out.write_all(&block(b'0', path, b"", meta, stored))?;
        self.out.write_all(&map)?;
        for (start, length) in parts {
            file.seek(io::SeekFrom::Start(start))?;
            if io::copy(&mut file.take(length), &mut self.out)? != length {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        self.pad(stored)
    }

    /// Writes the end mark. An archive without it was cut off.
    pub fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()?;
        Ok(self.out)
    }

    fn header(
        &mut self,
        kind: u8,
        path: &[u8],
        link: &[u8],
        meta: Meta,
        (size, attributes): (u64, &Attributes),
    ) -> io::Result<()> {
        let records = records(path, link, meta, size, attributes);
        if !records.is_empty() {
            self.extended(&records, meta)?;
        }
        self.out.write_all(&block(kind, path, link, meta, size))
    }

    fn extended(&mut self, records: &[u8], meta: Meta) -> io::Result<()> {
        let block = block(b'x', b"PaxHeader", b"", meta, records.len() as u64);
        self.out.write_all(&block)?;
        self.out.write_all(records)?;
        self.pad(records.len() as u64)
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let padding = (size.wrapping_neg() % BLOCK as u64) as usize;
        self.out.write_all(&[0; BLOCK][..padding])
    }
}

/// The written parts of a file, each where and how long; `None` when that is all of it.
fn written_parts(file: &File, size: u64) -> io::Result<Option<Vec<(u64, u64)>>> {
    let mut parts = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.min(size),
            Err(Errno::NXIO) => break,
            // A file system that knows of no holes.
            Err(Errno::INVAL | Errno::OPNOTSUPP) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        // Beyond the most parts the rest is one, holes included.
        at = match rustix::fs::seek(file, SeekFrom::Hole(start)) {
            Ok(end) if parts.len() + 1 < MAX_PARTS && end > start => end.min(size),
            _ => size,
        };
        if at > start {
            parts.push((start, at - start));
        }
    }
    rustix::fs::seek(file, SeekFrom::Start(0))?;
    Ok((parts != [(0, size)]).then_some(parts))
}

/// The map of a file's parts, as GNU tar's format 1.0 begins a body.
fn map_of(parts: &[(u64, u64)]) -> Vec<u8> {
    let mut map = format!("{}\n", parts.len());
    for (start, length) in parts {
        map.push_str(&format!("{start}\n{length}\n"));
    }
    let mut map = map.into_bytes();
    map.resize(map.len().next_multiple_of(BLOCK), 0);
    map
}

/// What the header has no room for.
fn records(path: &[u8], link: &[u8], meta: Meta, size: u64, attributes: &Attributes) -> Vec<u8> {
    let mut out = Vec::new();
    if path.len() > 100 {
        record(&mut out, "path", path);
    }
    if link.len() > 100 {
        record(&mut out, "linkpath", link);
    }
    let seconds = meta.modified_unix_ns.div_euclid(NANOSECONDS);
    let nanoseconds = meta.modified_unix_ns.rem_euclid(NANOSECONDS);
    if nanoseconds != 0 || seconds < 0 {
        // A negative time counts from its number towards zero.
        let text = match meta.modified_unix_ns {
            time @ 0.. => format!("{}.{:09}", time / NANOSECONDS, time % NANOSECONDS),
            time => {
                let time = time.unsigned_abs();
                let unit = NANOSECONDS.unsigned_abs();
                format!("-{}.{:09}", time / unit, time % unit)
            }
        };
        record(&mut out, "mtime", text.as_bytes());
    }
    if size > MAX_SIZE {
        record(&mut out, "size", size.to_string().as_bytes());
    }
    for (key, id) in [("uid", meta.uid), ("gid", meta.gid)] {
        if id > MAX_ID {
            record(&mut out, key, id.to_string().as_bytes());
        }
    }
    for (name, value) in attributes {
        // As GNU tar does: a key ends at the first of them.
        let name = name.replace('%', "%25").replace('=', "%3D");
        record(&mut out, &format!("{ATTRIBUTE_PREFIX}{name}"), value);
    }
    out
}

/// One record; its length counts its own digits.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let bare = key.len() + value.len() + 3;
    let mut length = bare;
    while length != bare + length.to_string().len() {
        length = bare + length.to_string().len();
    }
    out.extend(format!("{length} {key}=").as_bytes());
    out.extend(value);
    out.push(b'\n');
}

fn block(kind: u8, path: &[u8], link: &[u8], meta: Meta, size: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, text: &[u8]| block[at..at + text.len()].copy_from_slice(text);
    put(0, &path[..path.len().min(100)]);
    put(100, format!("{:07o}", meta.mode & 0o7777).as_bytes());
    put(108, format!("{:07o}", meta.uid.min(MAX_ID)).as_bytes());
    put(116, format!("{:07o}", meta.gid.min(MAX_ID)).as_bytes());
    put(124, format!("{:011o}", size.min(MAX_SIZE)).as_bytes());
    let seconds = meta.modified_unix_ns.div_euclid(NANOSECONDS).max(0);
    put(136, format!("{seconds:011o}").as_bytes());
    put(148, b"        ");
    put(156, &[kind]);
    put(157, &link[..link.len().min(100)]);
    put(257, b"ustar\x0000");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use motu_environments::archive::{Archive, EntryKind};
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(
            path in "[a-z]{1,150}",
            target in "[a-z/]{1,150}",
            contents in prop::collection::vec(any::<u8>(), 0..1500),
            value in prop::collection::vec(any::<u8>(), 0..120),
            id in any::<u32>().prop_filter("an id", |id| *id != u32::MAX),
            // The reader takes no time beyond the header's range.
            time in 0..8_000_000_000_000_000_000_i64,
        ) {
            let meta = Meta { mode: 0o640, uid: id, gid: 5, modified_unix_ns: time };
            let attributes = Attributes::from([("user.a=%b".to_owned(), value)]);
            let mut tar = TarWriter::new(Vec::new());
            tar.directory(path.as_bytes(), meta, &attributes).unwrap();
            tar.file(path.as_bytes(), meta, &attributes, contents.len() as u64, &mut contents.as_slice()).unwrap();
            tar.symlink(path.as_bytes(), meta, target.as_bytes()).unwrap();
            tar.hard_link(path.as_bytes(), meta, target.as_bytes()).unwrap();
            let bytes = tar.finish().unwrap();
            let mut archive = Archive::new(bytes.as_slice());
            for kind in [EntryKind::Directory, EntryKind::File, EntryKind::Symlink, EntryKind::HardLink] {
                let entry = archive.next_entry().unwrap().unwrap();
                prop_assert_eq!(entry.kind, kind);
                prop_assert_eq!(entry.meta.uid, u64::from(id));
                prop_assert_eq!(entry.meta.mtime, time as u64 / 1_000_000_000);
                prop_assert_eq!(u64::from(entry.mtime_nanos), time as u64 % 1_000_000_000);
                let slash = if kind == EntryKind::Directory { "/" } else { "" };
                prop_assert_eq!(entry.path, [path.as_bytes(), slash.as_bytes()].concat());
                if matches!(kind, EntryKind::Symlink | EntryKind::HardLink) {
                    prop_assert_eq!(entry.link, target.as_bytes());
                } else {
                    prop_assert_eq!(entry.attributes, attributes.clone());
                }
                if kind == EntryKind::File {
                    let mut read = Vec::new();
                    archive.read_to_end(&mut read).unwrap();
                    prop_assert_eq!(&read, &contents);
                }
            }
            prop_assert!(archive.next_entry().unwrap().is_none());
        }
    }
}
