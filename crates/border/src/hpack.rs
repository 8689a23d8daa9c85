//! HPACK (RFC 7541), as far as rewriting requests needs it.
//!
//! The decoder is complete, with a bounded table. The encoder uses neither the dynamic table nor
//! Huffman codes, so its output does not depend on the peer's state.

mod huffman;

use std::collections::VecDeque;

/// Largest dynamic table that a sandbox may use, independent of the host's SETTINGS.
pub const TABLE: usize = 64 * 1024;
/// The initial table size.
const FIRST: usize = 4096;
/// Largest header list; each header counts 32 extra bytes.
pub const LIST: usize = 64 * 1024;
const OVERHEAD: usize = 32;

/// Invalid HPACK, or too large.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed;

/// One header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    pub name: Vec<u8>,
    pub value: Vec<u8>,
    /// Never indexed, also not by the next hop.
    pub never: bool,
}

/// One decoded header block.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Table size updates at its beginning.
    pub sizes: Vec<usize>,
    pub headers: Vec<Header>,
}

/// Decodes header blocks of one connection.
#[derive(Debug)]
pub struct Decoder {
    table: VecDeque<(Vec<u8>, Vec<u8>)>,
    size: usize,
    most: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            table: VecDeque::new(),
            size: 0,
            most: FIRST,
        }
    }
}

impl Decoder {
    pub fn decode(&mut self, mut bytes: &[u8]) -> Result<Block, Malformed> {
        let mut block = Block::default();
        let mut total = 0;
        while let Some(first) = bytes.first().copied() {
            let header = if first & 0x80 != 0 {
                let index = number(&mut bytes, 7)?;
                let (name, value) = self.entry(index)?;
                Header {
                    name,
                    value,
                    never: false,
                }
            } else if first & 0x40 != 0 {
                let (name, value) = self.literal(&mut bytes, 6)?;
                self.remember(name.clone(), value.clone());
                Header {
                    name,
                    value,
                    never: false,
                }
            } else if first & 0x20 != 0 {
                let size = number(&mut bytes, 5)?;
                if size > TABLE || !block.headers.is_empty() || block.sizes.len() >= 2 {
                    return Err(Malformed);
                }
                self.most = size;
                self.evict();
                block.sizes.push(size);
                continue;
            } else {
                let (name, value) = self.literal(&mut bytes, 4)?;
                Header {
                    name,
                    value,
                    never: first & 0x10 != 0,
                }
            };
            total += header.name.len() + header.value.len() + OVERHEAD;
            if total > LIST {
                return Err(Malformed);
            }
            block.headers.push(header);
        }
        Ok(block)
    }

    fn literal(&self, bytes: &mut &[u8], bits: u32) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
        let name = match number(bytes, bits)? {
            0 => string(bytes)?,
            index => self.entry(index)?.0,
        };
        Ok((name, string(bytes)?))
    }

    fn entry(&self, index: usize) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
        let index = index.checked_sub(1).ok_or(Malformed)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok((name.as_bytes().to_vec(), value.as_bytes().to_vec()));
        }
        let found = self.table.get(index - STATIC.len());
        found.cloned().ok_or(Malformed)
    }

    fn remember(&mut self, name: Vec<u8>, value: Vec<u8>) {
        self.size += name.len() + value.len() + OVERHEAD;
        self.table.push_front((name, value));
        self.evict();
    }

    fn evict(&mut self) {
        while self.size > self.most {
            let Some((name, value)) = self.table.pop_back() else {
                self.size = 0;
                return;
            };
            self.size -= name.len() + value.len() + OVERHEAD;
        }
    }
}

/// Decodes an integer with a prefix of `bits` bits.
fn number(bytes: &mut &[u8], bits: u32) -> Result<usize, Malformed> {
    let most = (1usize << bits) - 1;
    let mut found = usize::from(take(bytes)?) & most;
    if found < most {
        return Ok(found);
    }
    // Three further bytes hold more than any allowed length or index.
    for shift in [0, 7, 14] {
        let byte = take(bytes)?;
        found += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(found);
        }
    }
    Err(Malformed)
}

fn take(bytes: &mut &[u8]) -> Result<u8, Malformed> {
    let (first, rest) = bytes.split_first().ok_or(Malformed)?;
    *bytes = rest;
    Ok(*first)
}

fn string(bytes: &mut &[u8]) -> Result<Vec<u8>, Malformed> {
    let coded = bytes.first().ok_or(Malformed)? & 0x80 != 0;
    let length = number(bytes, 7)?;
    let (text, rest) = bytes.split_at_checked(length).ok_or(Malformed)?;
    *bytes = rest;
    if coded {
        huffman::decode(text).ok_or(Malformed)
    } else {
        Ok(text.to_vec())
    }
}

/// Encodes a block: table size updates first, then headers without indexing.
pub fn encode(sizes: &[usize], headers: &[Header]) -> Vec<u8> {
    let mut out = Vec::new();
    for size in sizes {
        put(&mut out, *size, 5, 0x20);
    }
    for header in headers {
        out.push(if header.never { 0x10 } else { 0 });
        put(&mut out, header.name.len(), 7, 0);
        out.extend_from_slice(&header.name);
        put(&mut out, header.value.len(), 7, 0);
        out.extend_from_slice(&header.value);
    }
    out
}

fn put(out: &mut Vec<u8>, number: usize, bits: u32, kind: u8) {
    let most = (1usize << bits) - 1;
    if number < most {
        out.push(kind | number as u8);
        return;
    }
    out.push(kind | most as u8);
    let mut rest = number - most;
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// The static table (appendix A).
const STATIC: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests;
