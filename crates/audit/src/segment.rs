//! The files of a log: names, lines, ends.

use crate::Hash;
use crate::key::PublicKey;
use crate::record::{LINE_BYTES, Record};
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// One file of the log, named by its first sequence number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    pub first: u64,
    pub path: PathBuf,
}

impl Segment {
    pub fn new(dir: &Path, first: u64) -> Segment {
        Segment {
            first,
            path: dir.join(format!("{first:020}.jsonl")),
        }
    }

    /// The segments of a log, oldest first. Files with other names are ignored.
    pub fn list(dir: &Path) -> io::Result<Vec<Segment>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            let digits = name.and_then(|name| name.strip_suffix(".jsonl"));
            let digits = digits.filter(|digits| digits.len() == 20);
            if let Some(first) = digits.and_then(|digits| digits.parse().ok()) {
                found.push(Segment { first, path });
            }
        }
        found.sort_by_key(|segment| segment.first);
        Ok(found)
    }

    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// The lines of a segment without newlines, and the rest after the last newline.
pub fn lines(bytes: &[u8]) -> (Vec<&[u8]>, &[u8]) {
    let mut lines: Vec<&[u8]> = bytes.split(|&byte| byte == b'\n').collect();
    let rest = lines.pop().unwrap_or_default();
    (lines, rest)
}

/// Where a segment can be continued: after its last checkpoint.
#[derive(Clone, Copy, Debug)]
pub struct End {
    pub offset: u64,
    pub seq: u64,
    pub hash: Hash,
    pub sealed: bool,
}

/// The last valid checkpoint of that key.
pub fn end(bytes: &[u8], key: &PublicKey) -> Option<End> {
    let mut until = bytes.len();
    while let Some(last) = bytes[..until].iter().rposition(|&byte| byte == b'\n') {
        let begin = bytes[..last].iter().rposition(|&byte| byte == b'\n');
        let begin = begin.map_or(0, |at| at + 1);
        if let Ok(record) = Record::read(&bytes[begin..last])
            && record.check_signature(key).is_ok()
        {
            return Some(End {
                offset: last as u64 + 1,
                seq: record.seq,
                hash: record.hash,
                sealed: record.is_seal(),
            });
        }
        until = last;
    }
    None
}

/// The file with the last checkpoint, in one of two positions: a crash can damage only the one
/// being written.
pub const HEAD: &str = "head";
pub const HEAD_PLACES: [u64; 2] = [0, 4096];
pub const HEAD_BYTES: usize = 8192;

/// The newest checkpoint in the head file.
pub fn read_head(bytes: &[u8], key: &PublicKey) -> Option<Record> {
    let place = |at: &u64| {
        let place = bytes.get(*at as usize..)?;
        let line = place.split(|&byte| byte == b'\n').next()?;
        let record = Record::read(line).ok()?;
        record.check_signature(key).ok().map(|()| record)
    };
    let found = HEAD_PLACES.iter().filter_map(place);
    found.max_by_key(|record| record.seq)
}

/// The first record of a segment.
pub fn first_record(path: &Path) -> io::Result<Record> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(LINE_BYTES as u64)
        .read_to_end(&mut bytes)?;
    let line = bytes
        .split(|&byte| byte == b'\n')
        .next()
        .unwrap_or_default();
    Record::read(line).map_err(|flaw| io::Error::other(format!("{}: {flaw}", path.display())))
}
