//! PAX records: what a header has no room for, as `LENGTH key=value` lines before it.

use crate::TarError;
use crate::field::{decimal, text};
use crate::sparse::SparseRecords;

/// Before the name of an extended attribute in a record's key.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
const SPARSE: &[u8] = b"GNU.sparse.";
const NANOS: u32 = 1_000_000_000;

/// Names and values of extended attributes.
pub type Attributes = Vec<(Vec<u8>, Vec<u8>)>;

/// What the records before an entry say of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Records {
    pub path: Option<Vec<u8>>,
    pub link: Option<Vec<u8>>,
    pub size: Option<u64>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    /// Seconds, and nanoseconds after them.
    pub time: Option<(i64, u32)>,
    pub attributes: Attributes,
    pub(crate) sparse: Option<SparseRecords>,
}

impl Records {
    /// All records of one extended header.
    pub fn parse(bytes: &[u8]) -> Result<Records, TarError> {
        let mut records = Records::default();
        records.read(bytes)?;
        Ok(records)
    }

    /// Takes the records of one more extended header. Keys nobody here knows are passed over.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), TarError> {
        let mut rest = bytes;
        // Some writers fill the last block with zeros and count them.
        while !text(rest).is_empty() {
            let (key, value, after) = next(rest).ok_or(TarError::Record)?;
            rest = after;
            match key.strip_prefix(SPARSE) {
                Some(key) => self.sparse.get_or_insert_default().take(key, value)?,
                None => self.take(key, value)?,
            }
        }
        Ok(())
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Result<(), TarError> {
        let id = || Ok(decimal(value)?.min(u64::from(u32::MAX)) as u32);
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link = Some(value.to_vec()),
            b"size" => self.size = Some(decimal(value)?),
            b"uid" => self.uid = Some(id()?),
            b"gid" => self.gid = Some(id()?),
            // A time that cannot be told is not worth a failure.
            b"mtime" => self.time = Some(time(value).unwrap_or_default()),
            other => {
                if let Some(name) = other.strip_prefix(ATTRIBUTE) {
                    self.attributes.push((unescaped(name), value.to_vec()));
                }
            }
        }
        Ok(())
    }

    /// Appends the records of extended attributes.
    pub(crate) fn write_attributes(out: &mut Vec<u8>, attributes: &Attributes) {
        for (name, value) in attributes {
            record(out, &[ATTRIBUTE, &escaped(name)[..]].concat(), value);
        }
    }
}

/// Appends `LENGTH key=value\n`, where the length counts itself.
pub(crate) fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
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
fn next(bytes: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = bytes.iter().take(20).position(|byte| *byte == b' ')?;
    let length = usize::try_from(decimal(bytes.get(..space)?).ok()?).ok()?;
    let (record, rest) = bytes.split_at_checked(length)?;
    let body = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = body.iter().position(|byte| *byte == b'=')?;
    Some((body.get(..equals)?, body.get(equals + 1..)?, rest))
}

/// Seconds and nanoseconds as one decimal number, also before 1970.
pub(crate) fn time_record(seconds: i64, nanos: u32) -> String {
    match (seconds, nanos) {
        (_, 0) => seconds.to_string(),
        (0.., _) => format!("{seconds}.{nanos:09}"),
        // -1 s and 250 ms after it is -0.75 s.
        _ => format!("-{}.{:09}", -(seconds + 1), NANOS - nanos),
    }
}

/// Reads a decimal number of seconds; what is finer than nanoseconds is cut off.
fn time(value: &[u8]) -> Option<(i64, u32)> {
    let text = std::str::from_utf8(value).ok()?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let seconds: i64 = whole.parse().ok()?;
    let digits = part.get(..part.len().min(9))?;
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos: u32 = format!("{digits:0<9}").parse().ok()?;
    match (whole.starts_with('-'), nanos) {
        (false, _) | (true, 0) => Some((seconds, nanos)),
        (true, _) => Some((seconds.checked_sub(1)?, NANOS - nanos)),
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn times_before_1970_and_of_any_precision() {
        assert_eq!(time(b"1700000000.5"), Some((1_700_000_000, 500_000_000)));
        assert_eq!(time(b"5.1234567891234"), Some((5, 123_456_789)));
        assert_eq!(time(b"-0.75"), Some((-1, 250_000_000)));
        assert_eq!(time(b"-3"), Some((-3, 0)));
        assert_eq!(time(b"x"), None);
        assert_eq!(time(b"1.x"), None);
        assert_eq!(time_record(-1, 250_000_000), "-0.750000000");
    }

    #[test]
    fn a_record_must_be_whole() {
        for broken in [
            "99 path=x\n",
            "9 path=x",
            "path=x\n",
            "7 path\n",
            " 9 path=x\n",
        ] {
            let parsed = Records::parse(broken.as_bytes());
            assert_eq!(parsed, Err(TarError::Record), "{broken:?}");
        }
        assert_eq!(Records::parse(b"9 size=x\n"), Err(TarError::RecordNumber));
        assert_eq!(Records::parse(b"\0\0\0"), Ok(Records::default()));
    }

    proptest! {
        #[test]
        fn times_survive(seconds in -9_000_000_000i64..9_000_000_000, nanos in 0..NANOS) {
            prop_assert_eq!(time(time_record(seconds, nanos).as_bytes()), Some((seconds, nanos)));
        }

        #[test]
        fn records_of_every_length_survive(length in 0usize..12_000) {
            let value = vec![b'v'; length];
            let mut bytes = Vec::new();
            record(&mut bytes, b"path", &value);
            prop_assert_eq!(Records::parse(&bytes).unwrap().path, Some(value));
        }

        #[test]
        fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = Records::parse(&noise);
        }
    }
}
