//! Unpacks the compressed part of a kernel image.
//!
//! Kernels carry the old stream format of LZ4: a magic number, then blocks,
//! each behind its length. This is the only thing here that reads them, and it
//! never writes more than the caller allows.

/// The first bytes of a stream.
const MAGIC: [u8; 4] = [0x02, 0x21, 0x4c, 0x18];
/// The most a block may hold when unpacked.
const BLOCK: usize = 8 << 20;

/// Why a stream could not be unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lz4Error {
    #[error("it is not an LZ4 stream")]
    Foreign,
    #[error("the LZ4 stream is damaged")]
    Damaged,
    #[error("the LZ4 stream is larger than expected")]
    TooLarge,
}

/// Unpacks a whole stream of at most `limit` bytes.
pub fn unpack(stream: &[u8], limit: usize) -> Result<Vec<u8>, Lz4Error> {
    let mut rest = stream.strip_prefix(&MAGIC).ok_or(Lz4Error::Foreign)?;
    let mut out = Vec::new();
    while !rest.is_empty() {
        let (length, after) = rest.split_first_chunk::<4>().ok_or(Lz4Error::Damaged)?;
        let length = u32::from_le_bytes(*length) as usize;
        let (block, after) = after.split_at_checked(length).ok_or(Lz4Error::Damaged)?;
        unpack_block(block, &mut out, limit)?;
        rest = after;
    }
    Ok(out)
}

fn unpack_block(block: &[u8], out: &mut Vec<u8>, limit: usize) -> Result<(), Lz4Error> {
    let start = out.len();
    let mut rest = block;
    while let Some((&token, after)) = rest.split_first() {
        rest = after;
        let literals = length(token >> 4, &mut rest)?;
        let (copied, after) = rest.split_at_checked(literals).ok_or(Lz4Error::Damaged)?;
        let room = limit.min(start + BLOCK);
        if out.len() + copied.len() > room {
            return Err(Lz4Error::TooLarge);
        }
        out.extend_from_slice(copied);
        rest = after;
        if rest.is_empty() {
            // The last sequence of a block has no match.
            return Ok(());
        }
        let (offset, after) = rest.split_first_chunk::<2>().ok_or(Lz4Error::Damaged)?;
        rest = after;
        let offset = usize::from(u16::from_le_bytes(*offset));
        let matched = length(token & 15, &mut rest)? + 4;
        if out.len() + matched > room {
            return Err(Lz4Error::TooLarge);
        }
        repeat(out, start, offset, matched)?;
    }
    Ok(())
}

/// A length that does not fit the token's four bits continues in the bytes after it.
fn length(nibble: u8, rest: &mut &[u8]) -> Result<usize, Lz4Error> {
    let mut total = usize::from(nibble);
    if nibble < 15 {
        return Ok(total);
    }
    loop {
        let (&more, after) = rest.split_first().ok_or(Lz4Error::Damaged)?;
        *rest = after;
        total += usize::from(more);
        if total > BLOCK {
            return Err(Lz4Error::Damaged);
        }
        if more < 255 {
            return Ok(total);
        }
    }
}

/// Copies from what this block has already given; source and target may overlap.
fn repeat(out: &mut Vec<u8>, start: usize, offset: usize, matched: usize) -> Result<(), Lz4Error> {
    let have = out.len() - start;
    if offset == 0 || offset > have {
        return Err(Lz4Error::Damaged);
    }
    let from = out.len() - offset;
    if offset >= matched {
        out.extend_from_within(from..from + matched);
        return Ok(());
    }
    for at in from..from + matched {
        out.push(out[at]);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stream(block: &[u8]) -> Vec<u8> {
        let mut stream = MAGIC.to_vec();
        stream.extend((block.len() as u32).to_le_bytes());
        stream.extend(block);
        stream
    }

    #[test]
    fn literals_and_overlapping_matches() {
        // "ab", then ten bytes from two back, then "!".
        let block = [0x26, b'a', b'b', 2, 0, 0x10, b'!'];
        assert_eq!(unpack(&stream(&block), 100).unwrap(), b"abababababab!");
        assert_eq!(unpack(&stream(&block), 12), Err(Lz4Error::TooLarge));
    }

    #[test]
    fn long_lengths_continue() {
        let mut block = vec![0xf0, 255, 10];
        block.extend([7u8; 15 + 255 + 10]);
        assert_eq!(unpack(&stream(&block), 1000).unwrap(), [7u8; 280]);
    }

    #[test]
    fn what_is_not_there_is_not_copied() {
        assert_eq!(
            unpack(&stream(&[0x10, b'a', 9, 0, 0x00]), 100),
            Err(Lz4Error::Damaged)
        );
        assert_eq!(unpack(b"\x28\xb5\x2f\xfd", 100), Err(Lz4Error::Foreign));
    }

    proptest! {
        #[test]
        fn foreign_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(out) = unpack(&stream(&bytes), 10_000) {
                prop_assert!(out.len() <= 10_000);
            }
        }
    }
}
