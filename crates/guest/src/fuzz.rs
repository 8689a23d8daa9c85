//! Entry points for fuzzers: the parsers of foreign bytes.

use crate::files::sparse;
use crate::files::tar::{BLOCK, Header};

/// A header with the records before it, and the map of a sparse file.
pub fn archive(block: &[u8; BLOCK], records: &[u8]) {
    if let Ok(Some(mut header)) = Header::parse(block) {
        let _ = header.extend(records);
        let mut written = Vec::new();
        header.write(&mut written);
        assert_eq!(written.len() % BLOCK, 0);
    }
    sparse::read(records);
}
