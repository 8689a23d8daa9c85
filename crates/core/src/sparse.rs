//! Writing a file without the zeros in it.
//!
//! What a machine sends may be mostly nothing: a file of 3 GiB without one written block costs
//! its machine nothing, and must not cost the host 3 GiB.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Zeros are looked for in pieces of a block of the file system.
const BLOCK: usize = 4096;
const ZEROS: [u8; BLOCK] = [0; BLOCK];

/// Writes to a file that is empty, leaving runs of zeros out as holes. The file has its whole
/// size after [`SparseWriter::finish`].
#[derive(Debug)]
pub struct SparseWriter<'a> {
    file: &'a File,
    at: u64,
    /// Where the last bytes that were written end.
    end: u64,
}

impl<'a> SparseWriter<'a> {
    pub fn new(file: &'a File) -> SparseWriter<'a> {
        SparseWriter {
            file,
            at: 0,
            end: 0,
        }
    }

    /// Gives the file its size, which is returned: it may end in a hole.
    pub fn finish(self) -> io::Result<u64> {
        if self.end < self.at {
            self.file.set_len(self.at)?;
        }
        Ok(self.at)
    }
}

impl Write for SparseWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut from = 0;
        while from < bytes.len() {
            let (length, zeros) = run(&bytes[from..], self.at);
            if !zeros {
                self.file
                    .write_all_at(&bytes[from..from + length], self.at)?;
                self.end = self.at + length as u64;
            }
            self.at += length as u64;
            from += length;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// How long the run of blocks is that are all zeros, or all are not, and which of the two.
fn run(bytes: &[u8], at: u64) -> (usize, bool) {
    let first = BLOCK - (at % BLOCK as u64) as usize;
    let mut end = first.min(bytes.len());
    let zeros = is_zero(&bytes[..end]);
    while end < bytes.len() {
        let next = (end + BLOCK).min(bytes.len());
        if is_zero(&bytes[end..next]) != zeros {
            break;
        }
        end = next;
    }
    (end, zeros)
}

fn is_zero(bytes: &[u8]) -> bool {
    // Never longer than a block.
    bytes == &ZEROS[..bytes.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn what_is_written_is_read_and_zeros_cost_nothing() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut whole = vec![0u8; 5_000_000];
        whole[1_000_000] = 7;
        whole[4_095_999..4_100_001].fill(9);
        let mut sparse = SparseWriter::new(file.as_file());
        let mut rest = &whole[..];
        for length in [1, 4095, 4096, 100_000, 65_537, 12_345].iter().cycle() {
            let now = (*length).min(rest.len());
            sparse.write_all(&rest[..now]).unwrap();
            rest = &rest[now..];
            if rest.is_empty() {
                break;
            }
        }
        assert_eq!(sparse.finish().unwrap(), whole.len() as u64);
        assert!(std::fs::read(file.path()).unwrap() == whole);
        let blocks = file.as_file().metadata().unwrap().blocks();
        assert!(blocks * 512 < 100_000, "{blocks} blocks");
    }
}
