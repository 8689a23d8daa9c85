//! The Huffman code of HPACK (RFC 7541, appendix B).
//!
//! The code is canonical: codes of one length are consecutive, in the order of their symbols. So
//! the lengths define the code.

/// The code length of each symbol in bits; the last one is EOS.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28,
    28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11,
    10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8,
    15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5,
    6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7,
    7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23,
    23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21,
    23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25,
    26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26,
    28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];
const LONGEST: usize = 30;
const SYMBOLS: usize = LENGTHS.len();
const END: u16 = 256;

/// For each length the first code, how many there are, and where their symbols begin in `order`.
struct Code {
    first: [u32; LONGEST + 1],
    count: [u32; LONGEST + 1],
    start: [u32; LONGEST + 1],
    order: [u16; SYMBOLS],
}

static CODE: Code = code();

const fn code() -> Code {
    let mut made = Code {
        first: [0; LONGEST + 1],
        count: [0; LONGEST + 1],
        start: [0; LONGEST + 1],
        order: [0; SYMBOLS],
    };
    let (mut length, mut next, mut placed) = (1, 0u32, 0usize);
    while length <= LONGEST {
        next <<= 1;
        made.first[length] = next;
        made.start[length] = placed as u32;
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                made.order[placed] = symbol as u16;
                placed += 1;
                next += 1;
            }
            symbol += 1;
        }
        made.count[length] = placed as u32 - made.start[length];
        length += 1;
    }
    made
}

/// Decodes a string; `None` if it is invalid.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(bytes.len() * 8 / 5);
    let (mut bits, mut length) = (0u32, 0usize);
    for byte in bytes {
        for at in (0..8).rev() {
            bits = bits << 1 | u32::from(byte >> at & 1);
            length += 1;
            if length > LONGEST {
                return None;
            }
            let offset = bits.wrapping_sub(CODE.first[length]);
            if offset < CODE.count[length] {
                let symbol = CODE.order[(CODE.start[length] + offset) as usize];
                // EOS must not occur in a string.
                out.push(u8::try_from(symbol).ok().filter(|_| symbol != END)?);
                (bits, length) = (0, 0);
            }
        }
    }
    // The padding must be a prefix of EOS: at most seven bits, all ones.
    (length < 8 && bits == (1 << length) - 1).then_some(out)
}
