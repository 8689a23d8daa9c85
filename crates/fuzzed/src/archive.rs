//! Archives may say anything: a header is read or refused, what is read is written again, and
//! whole archives never make the reader panic or keep more than it may.

use motu_archive::sparse::{MAX_PARTS, MapReader, check, write_map};
use motu_archive::{BLOCK, Header, Reader, Records};
use std::io::Read as _;

const CHECKSUM: std::ops::Range<usize> = 148..156;

pub fn archive(data: &[u8]) {
    map(data);
    let Some((block, rest)) = data.split_first_chunk::<BLOCK>() else {
        return;
    };
    // With a sum that is right, or nothing would get further than it.
    let mut block = *block;
    block[CHECKSUM].fill(b' ');
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    header(&block, rest);
    let whole = [&block[..], rest].concat();
    let mut archive = Reader::new(&whole[..]);
    while let Ok(Some(_)) = archive.next_entry() {
        let _ = archive.by_ref().take(1 << 20).read_to_end(&mut Vec::new());
    }
}

fn header(block: &[u8; BLOCK], records: &[u8]) {
    if let Ok(Some(mut header)) = Header::parse(block)
        && let Ok(records) = Records::parse(records)
        && header.extend(records).is_ok()
    {
        let mut written = Vec::new();
        header.write(&mut written);
        assert_eq!(written.len() % BLOCK, 0);
    }
}

/// A map that is read is written the same.
fn map(data: &[u8]) {
    if let Ok(Some(parts)) = MapReader::new(MAX_PARTS).block(data) {
        let _ = check(&parts, u64::MAX);
        let again = MapReader::new(MAX_PARTS).block(&write_map(&parts));
        assert_eq!(again, Ok(Some(parts)));
    }
}
