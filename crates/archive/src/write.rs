//! Writing an archive, entry by entry.

use crate::header::Header;
use crate::{BLOCK, holes, padding, sparse};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt as _, MetadataExt as _};

/// About how much of a file is in memory at a time.
const PIECE: usize = 64 * 1024;

/// An archive being written.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    /// Reused for each header.
    head: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Writer<W> {
        Writer {
            out,
            head: Vec::new(),
        }
    }

    /// An entry without content.
    pub fn entry(&mut self, header: &Header) -> io::Result<()> {
        self.head.clear();
        header.write(&mut self.head);
        self.out.write_all(&self.head)
    }

    /// A file of exactly as many bytes as its header says; a reader that has fewer is an error.
    pub fn file(&mut self, header: &Header, contents: &mut impl Read) -> io::Result<()> {
        self.entry(header)?;
        if io::copy(&mut contents.take(header.size), &mut self.out)? != header.size {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.pad(header.size)
    }

    /// A file of the disk as it is: its size is taken from it, and holes are left out.
    pub fn disk_file(&mut self, header: Header, mut file: &File) -> io::Result<()> {
        let found = file.metadata()?;
        let size = found.len();
        let header = Header { size, ..header };
        let parts = match found.blocks().saturating_mul(512) < size {
            true => holes::parts(file, size)?,
            false => None,
        };
        let Some(parts) = parts else {
            io::Seek::rewind(&mut file)?;
            return self.file(&header, &mut file);
        };
        let map = sparse::write_map(&parts);
        let stored: u64 = parts.iter().map(|(_, length)| length).sum();
        let stored = stored + map.len() as u64;
        self.entry(&Header {
            size: stored,
            real_size: Some(size),
            ..header
        })?;
        self.out.write_all(&map)?;
        let mut piece = vec![0; PIECE];
        for (mut start, mut length) in parts {
            while length > 0 {
                let now = length.min(PIECE as u64) as usize;
                file.read_exact_at(&mut piece[..now], start)?;
                self.out.write_all(&piece[..now])?;
                start += now as u64;
                length -= now as u64;
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

    fn pad(&mut self, size: u64) -> io::Result<()> {
        self.out.write_all(&[0; BLOCK][..padding(size)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Reader, Type};
    use proptest::prelude::*;

    proptest! {
        /// What is written, this crate and another one read the same.
        #[test]
        fn what_is_written_is_read(
            path in "[a-zä]{1,150}",
            target in "[a-z/]{1,150}",
            contents in prop::collection::vec(any::<u8>(), 0..1500),
            value in prop::collection::vec(any::<u8>(), 0..120),
            uid: u32,
            mtime in 0..8_000_000_000_i64,
            nanos in 0..1_000_000_000_u32,
        ) {
            let attributes: Attributes = vec![(b"user.a=%b".to_vec(), value)];
            let head = |kind| Header {
                path: path.clone().into_bytes(), kind, mode: 0o640, uid, gid: 5, mtime, nanos, ..Header::default()
            };
            let file = Header { size: contents.len() as u64, attributes: attributes.clone(), ..head(Type::File) };
            let link = Header { link: target.clone().into_bytes(), ..head(Type::Symlink) };
            let mut tar = Writer::new(Vec::new());
            tar.entry(&head(Type::Directory)).unwrap();
            tar.file(&file, &mut contents.as_slice()).unwrap();
            tar.entry(&link).unwrap();
            let bytes = tar.finish().unwrap();

            let mut ours = Reader::new(bytes.as_slice());
            prop_assert_eq!(ours.next_entry().unwrap().unwrap(), head(Type::Directory));
            prop_assert_eq!(ours.next_entry().unwrap().unwrap(), file);
            let mut read = Vec::new();
            ours.read_to_end(&mut read).unwrap();
            prop_assert_eq!(&read, &contents);
            prop_assert_eq!(ours.next_entry().unwrap().unwrap(), link);
            prop_assert!(ours.next_entry().unwrap().is_none());

            let mut theirs = tar::Archive::new(bytes.as_slice());
            let mut entries = theirs.entries().unwrap();
            for kind in [tar::EntryType::Directory, tar::EntryType::Regular, tar::EntryType::Symlink] {
                let mut entry = entries.next().unwrap().unwrap();
                prop_assert_eq!(entry.header().entry_type(), kind);
                prop_assert_eq!(&*entry.path_bytes(), path.as_bytes());
                if kind == tar::EntryType::Symlink {
                    prop_assert_eq!(&*entry.link_name_bytes().unwrap(), target.as_bytes());
                }
                if kind == tar::EntryType::Regular {
                    let mut read = Vec::new();
                    entry.read_to_end(&mut read).unwrap();
                    prop_assert_eq!(&read, &contents);
                }
            }
            prop_assert!(entries.next().is_none());
        }
    }

    #[test]
    fn a_file_that_is_shorter_than_its_header_is_an_error() {
        let header = Header {
            path: b"a".to_vec(),
            size: 10,
            ..Header::default()
        };
        let error = Writer::new(Vec::new()).file(&header, &mut &b"short"[..]);
        assert_eq!(error.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }
}
