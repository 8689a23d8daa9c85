//! The tar format: one header block in, one header block out. Pure; it opens
//! nothing and trusts nothing.
//!
//! A parser of its own because archives arrive in pieces from a peer that may
//! stop at any byte: nothing may wait for more, and no size in a header may
//! decide how much memory is used.

/// The unit of the format.
pub const BLOCK: usize = 512;
/// The largest number an octal field of twelve bytes holds.
const MAX_OCTAL_SIZE: u64 = 0o77_777_777_777;
/// The largest id an octal field of eight bytes holds.
const MAX_OCTAL_ID: u32 = 0o7_777_777;
/// Before the name of an extended attribute in a record's key.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

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

/// Names and values of extended attributes.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

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
    /// Nanoseconds after `mtime`.
    pub nanos: u32,
    /// Extended attributes with their full names.
    pub attributes: Attributes,
    /// The file's size when the body is a map of its written parts and these parts (GNU's format 1.0).
    pub real_size: Option<u64>,
}

/// The records of a sparse file's format that were seen.
#[derive(Default)]
struct SparseRecords {
    major: Option<u64>,
    minor: Option<u64>,
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
    /// What `stat` says of a file, without content.
    pub fn of(path: &[u8], stat: &rustix::fs::Stat, kind: Type) -> Header {
        Header {
            path: path.to_vec(),
            link: Vec::new(),
            kind,
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            size: 0,
            mtime: stat.st_mtime,
            nanos: stat.st_mtime_nsec as u32,
            attributes: Vec::new(),
            real_size: None,
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
            nanos: 0,
            attributes: Vec::new(),
            real_size: None,
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
                nanos: 0,
                attributes: Vec::new(),
                real_size: None,
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
            record(&mut records, b"hdrcharset", b"BINARY");
        }
        if !plain(&self.path) {
            record(&mut records, b"path", &self.path);
        }
        if !plain(&self.link) {
            record(&mut records, b"linkpath", &self.link);
        }
        if self.size > MAX_OCTAL_SIZE {
            record(&mut records, b"size", self.size.to_string().as_bytes());
        }
        if self.uid > MAX_OCTAL_ID {
            record(&mut records, b"uid", self.uid.to_string().as_bytes());
        }
        if self.gid > MAX_OCTAL_ID {
            record(&mut records, b"gid", self.gid.to_string().as_bytes());
        }
        if self.nanos != 0 {
            let time = decimal_time(self.mtime, self.nanos);
            record(&mut records, b"mtime", time.as_bytes());
        } else if self.mtime < 0 || self.mtime as u64 > MAX_OCTAL_SIZE {
            record(&mut records, b"mtime", self.mtime.to_string().as_bytes());
        }
        for (name, value) in &self.attributes {
            let key = [ATTRIBUTE, &escaped(name)[..]].concat();
            record(&mut records, &key, value);
        }
        if let Some(size) = self.real_size {
            record(&mut records, b"GNU.sparse.major", b"1");
            record(&mut records, b"GNU.sparse.minor", b"0");
            record(&mut records, b"GNU.sparse.name", &self.path);
            record(
                &mut records,
                b"GNU.sparse.realsize",
                size.to_string().as_bytes(),
            );
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
        let mut sparse = None::<SparseRecords>;
        let mut name = None;
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
                b"mtime" => (self.mtime, self.nanos) = parse_time(digits()?)?,
                b"GNU.sparse.major" => sparse.get_or_insert_default().major = Some(number()?),
                b"GNU.sparse.minor" => sparse.get_or_insert_default().minor = Some(number()?),
                b"GNU.sparse.name" => name = Some(value.to_vec()),
                b"GNU.sparse.realsize" => self.real_size = Some(number()?),
                other if other.starts_with(b"GNU.sparse.") => {
                    sparse.get_or_insert_default();
                }
                other => {
                    if let Some(name) = other.strip_prefix(ATTRIBUTE) {
                        self.attributes.push((unescaped(name), value.to_vec()));
                    }
                }
            }
        }
        match sparse {
            // Older formats keep the map elsewhere.
            Some(seen) if (seen.major, seen.minor) != (Some(1), Some(0)) => {
                self.kind = Type::Sparse;
            }
            Some(_) if self.real_size.is_none() => return Err(TarError::Extended),
            Some(_) => self.path = name.ok_or(TarError::Extended)?,
            None => self.real_size = None,
        }
        Ok(())
    }
}

/// Seconds and nanoseconds as one decimal number, also before 1970.
fn decimal_time(seconds: i64, nanos: u32) -> String {
    if seconds >= 0 {
        return format!("{seconds}.{nanos:09}");
    }
    // -1 s and 250 ms after it is -0.75 s.
    let (whole, part) = (-(seconds + 1), 1_000_000_000 - nanos);
    format!("-{whole}.{part:09}")
}

fn parse_time(text: &str) -> Result<(i64, u32), TarError> {
    let wrong = |_| TarError::Extended;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().map_err(wrong)?;
    // Finer than nanoseconds is of no use to anybody.
    let digits = part.get(..part.len().min(9)).ok_or(TarError::Extended)?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(TarError::Extended);
    }
    let nanos: u32 = format!("{digits:0<9}").parse().map_err(wrong)?;
    match (whole.starts_with('-'), nanos) {
        (false, _) | (true, 0) => Ok((seconds, nanos)),
        (true, _) => Ok((
            seconds.checked_sub(1).ok_or(TarError::Extended)?,
            1_000_000_000 - nanos,
        )),
    }
}

/// An attribute's name as a key: the two bytes that would be misread are escaped as GNU tar does.
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    for byte in name {
        match byte {
            b'=' => out.extend_from_slice(b"%3D"),
            b'%' => out.extend_from_slice(b"%25"),
            other => out.push(*other),
        }
    }
    out
}

fn unescaped(key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(key.len());
    let mut rest = key;
    while let Some((byte, after)) = rest.split_first() {
        let (meant, after) = match (byte, after) {
            (b'%', [b'3', b'D', after @ ..]) => (b'=', after),
            (b'%', [b'2', b'5', after @ ..]) => (b'%', after),
            (byte, after) => (*byte, after),
        };
        out.push(meant);
        rest = after;
    }
    out
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
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest + rest.to_string().len();
    if rest + length.to_string().len() > length {
        length += 1;
    }
    out.extend_from_slice(format!("{length} ").as_bytes());
    out.extend_from_slice(key);
    out.push(b'=');
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
            mtime in -8_000_000_000_000i64..8_000_000_000_000,
            nanos in 0u32..1_000_000_000,
            attributes in prop::collection::vec((prop::collection::vec(1u8.., 1..20), prop::collection::vec(any::<u8>(), 0..20)), 0..3),
            real_size in prop::option::of(any::<u64>()),
        ) {
            let header = Header { path, link, kind: Type::Symlink, mode, uid, gid: uid / 2, size, mtime, nanos, attributes, real_size };
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
