//! Writing tar archives for a guest, in the words of a workspace.
//!
//! Names and targets are bytes, as on the disk; the format is [`motu_archive`]'s.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{self, Read, Write},
};

use motu_archive::{Header, PIPE, Type, Writer};

const NANOSECONDS: i64 = 1_000_000_000;

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

impl Meta {
    fn header(self, kind: Type, path: &[u8]) -> Header {
        Header {
            path: path.to_vec(),
            kind,
            mode: self.mode & 0o7777,
            uid: self.uid,
            gid: self.gid,
            mtime: self.modified_unix_ns.div_euclid(NANOSECONDS),
            nanos: self.modified_unix_ns.rem_euclid(NANOSECONDS) as u32,
            ..Header::default()
        }
    }

    fn with(self, kind: Type, path: &[u8], attributes: &Attributes) -> Header {
        let own = |(name, value): (&String, &Vec<u8>)| (name.clone().into_bytes(), value.clone());
        Header {
            attributes: attributes.iter().map(own).collect(),
            ..self.header(kind, path)
        }
    }
}

/// A tar archive being written.
#[derive(Debug)]
pub struct TarWriter<W> {
    out: Writer<W>,
}

impl<W: Write> TarWriter<W> {
    pub fn new(out: W) -> Self {
        let out = Writer::new(out);
        Self { out }
    }

    pub fn directory(
        &mut self,
        path: &[u8],
        meta: Meta,
        attributes: &Attributes,
    ) -> io::Result<()> {
        let path = [path, b"/"].concat();
        self.out
            .entry(&meta.with(Type::Directory, &path, attributes))
    }

    pub fn symlink(&mut self, path: &[u8], meta: Meta, target: &[u8]) -> io::Result<()> {
        self.link(meta.header(Type::Symlink, path), target)
    }

    /// A second name for a file written before.
    pub fn hard_link(&mut self, path: &[u8], meta: Meta, target: &[u8]) -> io::Result<()> {
        self.link(meta.header(Type::HardLink, path), target)
    }

    pub fn pipe(&mut self, path: &[u8], meta: Meta) -> io::Result<()> {
        self.out.entry(&meta.header(Type::Other(PIPE), path))
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
        let header = Header {
            size,
            ..meta.with(Type::File, path, attributes)
        };
        self.out.file(&header, contents)
    }

    /// A file of the host as it is: holes are left out.
    pub fn disk_file(
        &mut self,
        path: &[u8],
        meta: Meta,
        attributes: &Attributes,
        file: &File,
    ) -> io::Result<()> {
        self.out
            .disk_file(meta.with(Type::File, path, attributes), file)
    }

    /// Writes the end mark. An archive without it was cut off.
    pub fn finish(self) -> io::Result<W> {
        self.out.finish()
    }

    fn link(&mut self, header: Header, target: &[u8]) -> io::Result<()> {
        self.out.entry(&Header {
            link: target.to_vec(),
            ..header
        })
    }
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
