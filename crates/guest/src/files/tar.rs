//! The tar format: one header block in, one header block out. Pure; it opens
//! nothing and trusts nothing.
//!
//! A parser of its own because archives arrive in pieces from a peer that may
//! stop at any byte: nothing may wait for more, and no size in a header may
//! decide how much memory is used.

use std::fmt::Write as _;

/// The unit of the format.
pub const BLOCK: usize = 512;
/// The largest number an octal field of twelve bytes holds.
const MAX_OCTAL_SIZE: u64 = 0o77_777_777_777;
/// The same for the eight-byte fields of ids.
const MAX_OCTAL_ID: u32 = 0o7_777_777;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
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
    Sparse,
}

/// One entry's description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    pub path: Vec<u8>,
    pub link: Vec<u8>,
    pub kind: Type,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub size: u64,
    pub mtime: i64,
}

/// Why a block is not a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TarError {
    #[error("a header's checksum is wrong")]
    Checksum,
    #[error("a header's number is malformed")]
    Number,
    #[error("an extended header is malformed")]
    Extended,
}

/// The bytes of padding after a body.
pub fn padding(size: u64) -> usize {
    ((BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64) as usize
}

impl Header {
    /// Reads a block; `None` is the empty block that ends an archive.
    pub fn parse(block: &[u8; BLOCK]) -> Result<Option<Header>, TarError> {
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        if number(&block[148..156])? != checksum(block) {
            return Err(TarError::Checksum);
        }
        let mut path = text(&block[..100]).to_vec();
        let ustar = &block[257..263] == b"ustar\0";
        let prefix = text(&block[345..500]);
        if ustar && !prefix.is_empty() {
            path = [prefix, b"/", &path].concat();
        }
        let narrow = |field: &[u8]| Ok(number(field)?.min(u64::from(u32::MAX)) as u32);
        Ok(Some(Header {
            path,
            link: text(&block[157..257]).to_vec(),
            kind: kind(block[156]),
            mode: narrow(&block[100..108])? & 0o7777,
            uid: narrow(&block[108..116])?,
            gid: narrow(&block[116..124])?,
            size: number(&block[124..136])?,
            mtime: number(&block[136..148]).map_or(0, |time| i64::try_from(time).unwrap_or(0)),
        }))
    }

    /// Appends this header, with an extended one before it when its fields do not fit.
    pub fn write(&self, out: &mut Vec<u8>) {
        let records = self.extended();
        if !records.is_empty() {
            let before = Header {
                path: b"././@PaxHeader".to_vec(),
                link: Vec::new(),
                kind: Type::Pax,
                mode: 0o644,
                uid: 0,
                gid: 0,
                size: records.len() as u64,
                mtime: 0,
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
        let plain = |bytes: &[u8]| bytes.len() <= 100 && bytes.is_ascii();
        let binary = |bytes: &[u8]| std::str::from_utf8(bytes).is_err();
        if binary(&self.path) || binary(&self.link) {
            record(&mut records, "hdrcharset", b"BINARY");
        }
        if !plain(&self.path) {
            record(&mut records, "path", &self.path);
        }
        if !plain(&self.link) {
            record(&mut records, "linkpath", &self.link);
        }
        if self.size > MAX_OCTAL_SIZE {
            record(&mut records, "size", self.size.to_string().as_bytes());
        }
        if self.uid > MAX_OCTAL_ID {
            record(&mut records, "uid", self.uid.to_string().as_bytes());
        }
        if self.gid > MAX_OCTAL_ID {
            record(&mut records, "gid", self.gid.to_string().as_bytes());
        }
        if self.mtime < 0 || self.mtime as u64 > MAX_OCTAL_SIZE {
            record(&mut records, "mtime", self.mtime.to_string().as_bytes());
        }
        records
    }

    fn write_block(&self, out: &mut Vec<u8>) {
        let mut block = [0u8; BLOCK];
        put(&mut block[..100], &self.path);
        octal(&mut block[100..108], u64::from(self.mode));
        octal(&mut block[108..116], u64::from(self.uid.min(MAX_OCTAL_ID)));
        octal(&mut block[116..124], u64::from(self.gid.min(MAX_OCTAL_ID)));
        octal(&mut block[124..136], self.size.min(MAX_OCTAL_SIZE));
        octal(
            &mut block[136..148],
            u64::try_from(self.mtime).unwrap_or(0).min(MAX_OCTAL_SIZE),
        );
        block[156] = type_byte(self.kind);
        put(&mut block[157..257], &self.link);
        put(&mut block[257..265], b"ustar\x0000");
        let sum = checksum(&block);
        octal(&mut block[148..155], sum);
        block[155] = b' ';
        out.extend_from_slice(&block);
    }

    /// Takes the records of an extended header over.
    pub fn extend(&mut self, records: &[u8]) -> Result<(), TarError> {
        let mut rest = records;
        while !rest.is_empty() {
            let (key, value, after) = next_record(rest).ok_or(TarError::Extended)?;
            rest = after;
            let digits = || std::str::from_utf8(value).map_err(|_| TarError::Extended);
            let number = || digits()?.parse::<u64>().map_err(|_| TarError::Extended);
            match key {
                b"path" => self.path = value.to_vec(),
                b"linkpath" => self.link = value.to_vec(),
                b"size" => self.size = number()?,
                b"uid" => self.uid = number()?.min(u64::from(u32::MAX)) as u32,
                b"gid" => self.gid = number()?.min(u64::from(u32::MAX)) as u32,
                b"mtime" => {
                    // Whole seconds are all that is kept.
                    let seconds = digits()?.split('.').next().unwrap_or_default();
                    self.mtime = seconds.parse().map_err(|_| TarError::Extended)?;
                }
                other if other.starts_with(b"GNU.sparse.") => self.kind = Type::Sparse,
                _ => {}
            }
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

/// A field up to its first zero byte.
fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// An octal number, or a binary one marked by its highest bit.
fn number(field: &[u8]) -> Result<u64, TarError> {
    if let Some((first, rest)) = field.split_first()
        && first & 0x80 != 0
    {
        let mut value = u64::from(first & 0x7f);
        for byte in rest {
            value = value.checked_mul(256).ok_or(TarError::Number)? | u64::from(*byte);
        }
        return Ok(value);
    }
    let digits = text(field).trim_ascii();
    digits.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'7' => value
            .checked_mul(8)
            .map(|value| value | u64::from(byte - b'0'))
            .ok_or(TarError::Number),
        _ => Err(TarError::Number),
    })
}

fn checksum(block: &[u8; BLOCK]) -> u64 {
    let counted = |(at, byte): (usize, &u8)| {
        if (148..156).contains(&at) {
            32
        } else {
            u64::from(*byte)
        }
    };
    block.iter().enumerate().map(counted).sum()
}

fn put(field: &mut [u8], bytes: &[u8]) {
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from;
    }
}

fn octal(field: &mut [u8], value: u64) {
    let width = field.len() - 1;
    put(field, format!("{value:0width$o}").as_bytes());
}

/// Appends `LENGTH key=value\n`, where the length counts itself.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + rest.to_string().len();
    if rest + length.to_string().len() > length {
        length += 1;
    }
    let mut head = String::new();
    // Writing to a string cannot fail.
    let _ = write!(head, "{length} {key}=");
    out.extend_from_slice(head.as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

/// Splits the first record off: key, value and the rest.
fn next_record(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = std::str::from_utf8(bytes.get(..space)?)
        .ok()?
        .parse()
        .ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some((body.get(..equals)?, body.get(equals + 1..)?, rest))
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
            let records = bytes[BLOCK..BLOCK + size].to_vec();
            let skip = size.div_ceil(BLOCK);
            header = Header::parse(&blocks.nth(skip).unwrap()).unwrap().unwrap();
            header.extend(&records).unwrap();
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
            mtime: i64,
        ) {
            let header = Header { path, link, kind: Type::Symlink, mode, uid, gid: uid / 2, size, mtime };
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
            if let Ok(Some(mut header)) = Header::parse(&fixed) {
                let _ = header.extend(&records);
            }
            let _ = next_record(&records);
        }
    }
}
