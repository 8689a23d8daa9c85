//! The SSH wire encoding: integers, strings and mpints, read from untrusted bytes.

/// Reads from the front; `None` if there are too few bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }

    pub(super) fn flag(&mut self) -> Option<bool> {
        self.byte().map(|byte| byte != 0)
    }

    pub(super) fn number(&mut self) -> Option<u32> {
        let bytes = self.take(4)?.first_chunk()?;
        Some(u32::from_be_bytes(*bytes))
    }

    pub(super) fn string(&mut self) -> Option<&'a [u8]> {
        let length = self.number()?;
        self.take(usize::try_from(length).ok()?)
    }

    /// A non-negative mpint without leading zeros.
    pub(super) fn large(&mut self) -> Option<&'a [u8]> {
        let bytes = self.string()?;
        if bytes.first().is_some_and(|first| first & 0x80 != 0) {
            return None;
        }
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        bytes.get(zeros..)
    }

    pub(super) fn is_done(self) -> bool {
        self.0.is_empty()
    }
}

pub(super) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend((bytes.len() as u32).to_be_bytes());
    out.extend_from_slice(bytes);
}

pub(super) fn put_large(out: &mut Vec<u8>, bytes: &[u8]) {
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let bytes = &bytes[zeros..];
    let sign = bytes.first().is_some_and(|first| first & 0x80 != 0);
    out.extend((bytes.len() as u32 + u32::from(sign)).to_be_bytes());
    if sign {
        out.push(0);
    }
    out.extend_from_slice(bytes);
}

/// A number padded to exactly this many bytes; `None` if it is longer.
pub(super) fn padded<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    let mut out = [0; N];
    let start = N.checked_sub(bytes.len())?;
    out[start..].copy_from_slice(bytes);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_what_is_cut_is_not() {
        let mut bytes = Vec::new();
        put_string(&mut bytes, b"ssh");
        put_large(&mut bytes, &[0, 0, 0x80, 1]);
        put_large(&mut bytes, &[]);
        assert_eq!(bytes[7..], [0, 0, 0, 3, 0, 0x80, 1, 0, 0, 0, 0]);
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.string(), Some(&b"ssh"[..]));
        assert_eq!(reader.large(), Some(&[0x80, 1][..]));
        assert_eq!(reader.large(), Some(&[][..]));
        assert!(reader.is_done());
        assert_eq!(reader.byte(), None);
        assert_eq!(Reader::new(&bytes[..6]).string(), None);
        assert_eq!(Reader::new(&[0xff; 8]).string(), None);
        let mut negative = Reader::new(&[0, 0, 0, 1, 0x80]);
        assert_eq!(negative.large(), None);
        assert_eq!(padded::<4>(&[1, 2]), Some([0, 0, 1, 2]));
        assert_eq!(padded::<1>(&[1, 2]), None);
    }
}
