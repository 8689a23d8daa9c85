//! Archives that come back to a machine may say anything: a header is read or
//! refused, and a map of parts that is read is written the same.
#![no_main]

use libfuzzer_sys::fuzz_target;

const BLOCK: usize = 512;
const CHECKSUM: std::ops::Range<usize> = 148..156;

fuzz_target!(|data: &[u8]| {
    let Some((block, records)) = data.split_first_chunk::<BLOCK>() else {
        motu_guest::fuzz::archive(&[1; BLOCK], data);
        return;
    };
    // With a sum that is right, or nothing would get further than it.
    let mut block = *block;
    block[CHECKSUM].fill(b' ');
    let sum: u64 = block.iter().map(|byte| u64::from(*byte)).sum();
    block[CHECKSUM].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    motu_guest::fuzz::archive(&block, records);
});
