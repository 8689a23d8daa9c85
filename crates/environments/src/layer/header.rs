//! The numbers and texts of a header.

use std::io;

pub(super) const BLOCK: usize = 512;

/// A number of a header: octal text, or binary when the first bit is set.
pub(super) fn number(field: &[u8]) -> io::Result<u64> {
    let wrong = || invalid("number in a header is not a number");
    if field[0] & 0x80 != 0 {
        if field[0] & 0x40 != 0 {
            return Err(wrong());
        }
        return field[1..]
            .iter()
            .try_fold(u64::from(field[0] & 0x3f), |number, byte| {
                number.checked_mul(256)?.checked_add(u64::from(*byte))
            })
            .ok_or_else(wrong);
    }
    let text = std::str::from_utf8(until_zero(field)).map_err(|_| wrong())?;
    match text.trim() {
        "" => Ok(0),
        digits => u64::from_str_radix(digits, 8).map_err(|_| wrong()),
    }
}

pub(super) fn until_zero(bytes: &[u8]) -> &[u8] {
    bytes.split(|byte| *byte == 0).next().unwrap_or_default()
}

pub(super) fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}
