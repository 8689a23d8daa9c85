//! The fields of a header and of a record: text and numbers.

use crate::{BLOCK, TarError};

/// A field up to its first zero byte.
pub(crate) fn text(field: &[u8]) -> &[u8] {
    field.split(|byte| *byte == 0).next().unwrap_or_default()
}

/// An octal number, or a binary one marked by its highest bit. A negative one is none.
pub(crate) fn number(field: &[u8]) -> Result<u64, TarError> {
    let wrong = TarError::HeaderNumber;
    if let Some((first, rest)) = field.split_first()
        && first & 0x80 != 0
    {
        if first & 0x40 != 0 {
            return Err(wrong);
        }
        return rest
            .iter()
            .try_fold(u64::from(first & 0x3f), |value, byte| {
                value.checked_mul(256)?.checked_add(u64::from(*byte))
            })
            .ok_or(wrong);
    }
    let digits = text(field).trim_ascii();
    let value = digits.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'7' => value.checked_mul(8)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    });
    value.ok_or(wrong)
}

pub(crate) fn checksum(block: &[u8; BLOCK]) -> u64 {
    let counted = |(at, byte): (usize, &u8)| match at {
        148..156 => u64::from(b' '),
        _ => u64::from(*byte),
    };
    block.iter().enumerate().map(counted).sum()
}

pub(crate) fn put(field: &mut [u8], bytes: &[u8]) {
    for (to, from) in field.iter_mut().zip(bytes) {
        *to = *from;
    }
}

pub(crate) fn octal(field: &mut [u8], value: u64) {
    let width = field.len() - 1;
    put(field, format!("{value:0width$o}").as_bytes());
}

/// A number of plain digits.
pub(crate) fn decimal(digits: &[u8]) -> Result<u64, TarError> {
    let wrong = TarError::RecordNumber;
    if digits.is_empty() {
        return Err(wrong);
    }
    let value = digits.iter().try_fold(0u64, |value, byte| match byte {
        b'0'..=b'9' => value.checked_mul(10)?.checked_add(u64::from(byte - b'0')),
        _ => None,
    });
    value.ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_octal_or_binary() {
        assert_eq!(number(b"0000644\0"), Ok(0o644));
        assert_eq!(number(b"  644   "), Ok(0o644));
        assert_eq!(number(b"\0\0\0\0\0\0\0\0"), Ok(0));
        assert_eq!(number(&[0x80, 0, 0, 0, 0, 0, 1, 2]), Ok(258));
        assert!(number(&[0xff; 8]).is_err());
        assert!(number(&[0xbf; 12]).is_err());
        assert!(number(b"12a4567\0").is_err());
        assert!(number(b"7777777777777777777777777").is_err());
    }
}
