//! One header block in, one header block out.

use crate::field::{checksum, number, octal, put, text};
use crate::records::{Attributes, Records, record, time_record};
use crate::sparse::{Part, SparseRecords, push_old};
use crate::{BLOCK, TarError, padding};

/// The largest number an octal field of twelve bytes holds.
const MAX_OCTAL_SIZE: u64 = 0o77_777_777_777;
/// The largest id an octal field of eight bytes holds.
const MAX_OCTAL_ID: u32 = 0o7_777_777;
/// The longest name a header holds.
const MAX_NAME: usize = 100;
/// The type byte of a pipe.
pub const PIPE: u8 = b'6';

/// What an entry is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Type {
    #[default]
    File,
    HardLink,
    Symlink,
    Directory,
    /// Devices, pipes and everything unknown, with the type byte.
    Other(u8),
    /// Records for the next entry.
    Pax,
    /// Records for all entries.
    PaxGlobal,
    LongName,
    LongLink,
    /// A file with holes in a format whose list of parts is not in the body.
    Sparse,
}

/// One entry's description.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub kind: Type,
    pub mode: u32,
    /// `u32::MAX` where the archive has a larger number.
    pub uid: u32,
    pub gid: u32,
    /// Bytes of the body that follows.
    pub size: u64,
    pub mtime: i64,
    /// Nanoseconds after `mtime`.
    pub nanos: u32,
    /// Extended attributes with their full names.
    pub attributes: Attributes,
    /// The file's size with its holes. Unless `kind` is [`Type::Sparse`], the body is then a map
    /// of the file's written parts and these parts (GNU's format 1.0).
    pub real_size: Option<u64>,
    /// The written parts, where an older format lists them outside the body.
    pub parts: Vec<Part>,
}

impl Header {
    /// What `stat` says of a file, without content.
    pub fn of(path: &[u8], stat: &rustix::fs::Stat, kind: Type) -> Header {
        Header {
            path: path.to_vec(),
            kind,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime: stat.st_mtime,
            nanos: stat.st_mtime_nsec as u32,
            ..Header::default()
        }
    }

    /// Reads a block; `None` is the empty block that ends an archive.
    pub fn parse(block: &[u8; BLOCK]) -> Result<Option<Header>, TarError> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if number(&block[148..156])? != checksum(block) {
            return Err(TarError::Checksum);
        }
        let mut path = text(&block[..MAX_NAME]).to_vec();
        let prefix = text(&block[345..500]);
        // GNU headers have other things where the prefix would be.
        if &block[257..263] == b"ustar\0" && !prefix.is_empty() {
            path = [prefix, b"/", &path].concat();
        }
        let narrow = |field: &[u8]| Ok(number(field)?.min(u64::from(u32::MAX)) as u32);
        let mut header = Header {
            path,
            link: text(&block[157..257]).to_vec(),
            kind: kind(block[156]),
            mode: narrow(&block[100..108])? & 0o7777,
            uid: narrow(&block[108..116])?,
            gid: narrow(&block[116..124])?,
            size: number(&block[124..136])?,
            // A time that cannot be told is not worth a failure.
            mtime: number(&block[136..148]).map_or(0, |time| i64::try_from(time).unwrap_or(0)),
            ..Header::default()
        };
        if header.kind == Type::Sparse {
            header.real_size = Some(number(&block[483..495])?);
            push_old(&mut header.parts, &block[386..482])?;
        }
        Ok(Some(header))
    }

    /// Whether the list of an old sparse file goes on in the block after this one.
    pub fn list_continues(block: &[u8; BLOCK]) -> bool {
        kind(block[156]) == Type::Sparse && block[482] != 0
    }

    /// Appends this header, with an extended one before it when its fields do not fit.
    pub fn write(&self, out: &mut Vec<u8>) {
        let records = self.extended();
        if !records.is_empty() {
            let before = Header {
                path: b"././@PaxHeader".to_vec(),
                kind: Type::Pax,
                mode: 0o644,
                size: records.len() as u64,
                ..Header::default()
            };
            before.write_block(out);
            out.extend_from_slice(&records);
            out.resize(out.len() + padding(records.len() as u64), 0);
        }
        self.write_block(out);
    }

    /// The records for what an old header cannot say.
    fn extended(&self) -> Vec<u8> {
        let mut records = Vec::new();
        let plain = |bytes: &[u8]| bytes.len() <= MAX_NAME && bytes.is_ascii();
        let binary = |bytes: &[u8]| std::str::from_utf8(bytes).is_err();
        if binary(&self.path) || binary(&self.link) {
            record(&mut records, b"hdrcharset", b"BINARY");
        }
        if !plain(&self.path) {
            record(&mut records, b"path", &self.path);
        }
        if !plain(&self.link) {
            record(&mut records, b"linkpath", &self.link);
        }
        let mut decimal = |key: &[u8], value: String| record(&mut records, key, value.as_bytes());
        if self.size > MAX_OCTAL_SIZE {
            decimal(b"size", self.size.to_string());
        }
        if self.uid > MAX_OCTAL_ID {
            decimal(b"uid", self.uid.to_string());
        }
        if self.gid > MAX_OCTAL_ID {
            decimal(b"gid", self.gid.to_string());
        }
        if self.nanos != 0 || self.mtime < 0 || self.mtime as u64 > MAX_OCTAL_SIZE {
            decimal(b"mtime", time_record(self.mtime, self.nanos));
        }
        Records::write_attributes(&mut records, &self.attributes);
        if let Some(size) = self.real_size {
            record(&mut records, b"GNU.sparse.major", b"1");
            record(&mut records, b"GNU.sparse.minor", b"0");
            record(&mut records, b"GNU.sparse.name", &self.path);
            let size = size.to_string();
            record(&mut records, b"GNU.sparse.realsize", size.as_bytes());
        }
        records
    }

    fn write_block(&self, out: &mut Vec<u8>) {
        let mut block = [0u8; BLOCK];
        put(&mut block[..MAX_NAME], &self.path);
        octal(&mut block[100..108], u64::from(self.mode));
        octal(&mut block[108..116], u64::from(self.uid.min(MAX_OCTAL_ID)));
        octal(&mut block[116..124], u64::from(self.gid.min(MAX_OCTAL_ID)));
        octal(&mut block[124..136], self.size.min(MAX_OCTAL_SIZE));
        let time = u64::try_from(self.mtime).unwrap_or(0);
        octal(&mut block[136..148], time.min(MAX_OCTAL_SIZE));
        block[156] = type_byte(self.kind);
        put(&mut block[157..257], &self.link);
        put(&mut block[257..265], b"ustar\x0000");
        let sum = checksum(&block);
        octal(&mut block[148..155], sum);
        block[155] = b' ';
        out.extend_from_slice(&block);
    }

    /// Takes the records over that came before this header.
    pub fn extend(&mut self, records: Records) -> Result<(), TarError> {
        if let Some(path) = records.path {
            self.path = path;
        }
        if let Some(link) = records.link {
            self.link = link;
        }
        self.size = records.size.unwrap_or(self.size);
        self.uid = records.uid.unwrap_or(self.uid);
        self.gid = records.gid.unwrap_or(self.gid);
        if let Some(time) = records.time {
            (self.mtime, self.nanos) = time;
        }
        self.attributes = records.attributes;
        let Some(sparse) = records.sparse.and_then(SparseRecords::finish) else {
            return Ok(());
        };
        if let Some(name) = sparse.name {
            self.path = name;
        }
        self.real_size = Some(sparse.size.ok_or(TarError::NoSize)?);
        if !sparse.mapped {
            self.kind = Type::Sparse;
            self.parts = sparse.parts?;
        }
        Ok(())
    }
}

fn kind(byte: u8) -> Type {
    match byte {
        0 | b'0' | b'7' => Type::File,
        b'1' => Type::HardLink,
        b'2' => Type::Symlink,
        b'5' => Type::Directory,
        b'x' => Type::Pax,
        b'g' => Type::PaxGlobal,
        b'L' => Type::LongName,
        b'K' => Type::LongLink,
        b'S' => Type::Sparse,
        other => Type::Other(other),
    }
}

fn type_byte(kind: Type) -> u8 {
    match kind {
        Type::File => b'0',
        Type::HardLink => b'1',
        Type::Symlink => b'2',
        Type::Directory => b'5',
        Type::Pax => b'x',
        Type::PaxGlobal => b'g',
        Type::LongName => b'L',
        Type::LongLink => b'K',
        Type::Sparse => b'S',
        Type::Other(byte) => byte,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read_back(bytes: &[u8]) -> Header {
        let mut blocks = bytes
            .chunks(BLOCK)
            .map(|block| <[u8; BLOCK]>::try_from(block).unwrap());
        let mut header = Header::parse(&blocks.next().unwrap()).unwrap().unwrap();
        if header.kind == Type::Pax {
            let size = header.size as usize;
            let records = Records::parse(&bytes[BLOCK..BLOCK + size]).unwrap();
            let skip = size.div_ceil(BLOCK);
            header = Header::parse(&blocks.nth(skip).unwrap()).unwrap().unwrap();
            header.extend(records).unwrap();
        }
        header
    }

    proptest! {
        #[test]
        fn headers_survive(
            path in prop::collection::vec(1u8.., 1..300),
            link in prop::collection::vec(1u8.., 0..300),
            mode in 0u32..0o7777,
            uid: u32,
            size: u64,
            mtime in -8_000_000_000_000i64..8_000_000_000_000,
            nanos in 0u32..1_000_000_000,
            attributes in prop::collection::vec((prop::collection::vec(1u8.., 1..20), prop::collection::vec(any::<u8>(), 0..20)), 0..3),
            real_size in prop::option::of(any::<u64>()),
        ) {
            let header = Header { path, link, kind: Type::Symlink, mode, uid, gid: uid / 2, size, mtime, nanos, attributes, real_size, parts: Vec::new() };
            let mut bytes = Vec::new();
            header.write(&mut bytes);
            prop_assert_eq!(read_back(&bytes), header);
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), BLOCK), records in prop::collection::vec(any::<u8>(), 0..200)) {
            let block = <[u8; BLOCK]>::try_from(&noise[..]).unwrap();
            let _ = Header::parse(&block);
            let mut fixed = block;
            let sum = checksum(&fixed);
            octal(&mut fixed[148..156], sum);
            if let Ok(Some(mut header)) = Header::parse(&fixed)
                && let Ok(records) = Records::parse(&records)
            {
                let _ = header.extend(records);
            }
        }
    }
}
