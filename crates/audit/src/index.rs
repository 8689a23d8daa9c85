//! Where the calls of a segment are, and what each is about, so that a list reads only the lines
//! that it shows.
//!
//! The index of the active segment is in memory, once somebody has asked for it; that of a sealed
//! one is a file beside it (`.index`), which is made again where it is missing, damaged or not of
//! this segment. It proves nothing and is not copied: whoever reads a line by it checks the line.
//! Names are kept as hashes of few bits, so an index may offer a call that was not wanted, and never
//! withholds one that was.

use crate::segment::{Segment, lines};
use serde_json::{Map, Value};
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

/// How a file of an index begins: this, the length of its segment, how many of its calls changed
/// something and how many failed, and the sum of that.
const MAGIC: &[u8; 16] = b"motu-call-index1";
const HEAD_BYTES: usize = 16 + 8 + 4 + 4 + SUM_BYTES;
const SUM_BYTES: usize = 8;
const ENTRY_BYTES: usize = 28;
/// Most bytes read of one segment or index; none written here is longer.
pub const SEGMENT_BYTES: u64 = 64 * 1024 * 1024;

const READS: u32 = 1;
const FAILED: u32 = 2;

/// One call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    offset: u32,
    length: u32,
    /// After the first of its segment.
    seq: u32,
    id: u32,
    sandbox: u32,
    verb: u16,
    project: u16,
    flags: u32,
}

/// The calls of one segment, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    entries: Vec<Entry>,
}

/// What a reader looks for.
#[derive(Clone, Debug, Default)]
pub struct Want {
    before: Option<u64>,
    id: Option<u32>,
    sandbox: Option<u32>,
    verb: Option<u16>,
    project: Option<u16>,
    failed: bool,
    changes: bool,
}

impl Want {
    /// Only calls before this one.
    pub fn before(mut self, seq: Option<u64>) -> Want {
        self.before = seq;
        self
    }

    pub fn id(mut self, id: &str) -> Want {
        self.id = Some(hash(id));
        self
    }

    pub fn sandbox(mut self, id: Option<&str>) -> Want {
        self.sandbox = id.map(hash);
        self
    }

    pub fn verb(mut self, verb: Option<&str>) -> Want {
        self.verb = verb.map(short);
        self
    }

    pub fn project(mut self, project: Option<&str>) -> Want {
        self.project = project.map(short);
        self
    }

    pub fn failed(mut self, failed: bool) -> Want {
        self.failed = failed;
        self
    }

    /// Only calls that changed something.
    pub fn changes(mut self, changes: bool) -> Want {
        self.changes = changes;
        self
    }

    fn may_be(&self, first: u64, entry: &Entry) -> bool {
        let is = |wanted: Option<u32>, found| wanted.is_none_or(|wanted| wanted == found);
        let named = |wanted: Option<u16>, found| wanted.is_none_or(|wanted| wanted == found);
        let seq = first + u64::from(entry.seq);
        self.before.is_none_or(|before| seq < before)
            && is(self.id, entry.id)
            && is(self.sandbox, entry.sandbox)
            && named(self.verb, entry.verb)
            && named(self.project, entry.project)
            && (!self.failed || entry.flags & FAILED != 0)
            && (!self.changes || entry.flags & READS == 0)
    }
}

/// Notices damage: the multiplication of FNV-1a, by words. It need not withstand anybody.
fn sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, word: &[u8]| {
        let mut whole = [0; 8];
        whole[..word.len()].copy_from_slice(word);
        let mixed = (sum ^ u64::from_le_bytes(whole)).wrapping_mul(0x0100_0000_01b3);
        mixed ^ mixed >> 29
    };
    bytes.chunks(8).fold(0xcbf2_9ce4_8422_2325, step)
}

/// FNV-1a: the same in every version, for it is stored.
fn hash(text: &str) -> u32 {
    let step = |sum: u32, byte: u8| (sum ^ u32::from(byte)).wrapping_mul(16_777_619);
    text.bytes().fold(2_166_136_261, step)
}

fn short(text: &str) -> u16 {
    let sum = hash(text);
    (sum >> 16) as u16 ^ sum as u16
}

impl Entry {
    /// Of a record's fields, if it is a call.
    fn of(fields: &Map<String, Value>) -> Option<Entry> {
        let text = |name: &str| fields.get(name).and_then(Value::as_str).unwrap_or_default();
        if text("type") != "call" {
            return None;
        }
        let who = fields
            .get("caller")
            .and_then(|caller| caller["who"].as_str());
        let project = who.and_then(|who| who.strip_prefix("key:")?.rsplit_once('@'));
        let ended_well = matches!(text("outcome"), "ok" | "open");
        let reads = text("effect") == "reads";
        Some(Entry {
            id: hash(text("id")),
            sandbox: hash(text("sandbox_id")),
            verb: short(text("verb")),
            project: project.map_or(0, |(_, project)| short(project)),
            flags: if reads { READS } else { 0 } | if ended_well { 0 } else { FAILED },
            ..Entry::default()
        })
    }

    fn numbers(&self) -> [u32; 7] {
        let names = u32::from(self.verb) << 16 | u32::from(self.project);
        [
            self.offset,
            self.length,
            self.seq,
            self.id,
            self.sandbox,
            names,
            self.flags,
        ]
    }

    fn of_numbers([offset, length, seq, id, sandbox, names, flags]: [u32; 7]) -> Entry {
        Entry {
            offset,
            length,
            seq,
            id,
            sandbox,
            verb: (names >> 16) as u16,
            project: names as u16,
            flags,
        }
    }
}

/// What the head of a stored index says.
#[derive(Clone, Copy, Debug)]
struct Head {
    changes: u32,
    failed: u32,
}

impl Head {
    /// The head of the index of a segment of this length, if it is whole.
    fn parse(bytes: &[u8; HEAD_BYTES], length: u64) -> Option<Head> {
        let (content, stated) = bytes.split_at(HEAD_BYTES - SUM_BYTES);
        if sum(content).to_le_bytes() != *stated {
            return None;
        }
        let rest = content.strip_prefix(MAGIC)?;
        let (changes, failed) = rest
            .strip_prefix(&length.to_le_bytes())?
            .split_first_chunk::<4>()?;
        Some(Head {
            changes: u32::from_le_bytes(*changes),
            failed: u32::from_le_bytes(failed.try_into().ok()?),
        })
    }

    fn may_have(self, want: &Want) -> bool {
        !((want.changes && self.changes == 0) || (want.failed && self.failed == 0))
    }
}

impl Index {
    /// Of the bytes of a segment. Lines that are no records are passed over.
    pub fn of_bytes(first: u64, bytes: &[u8]) -> Index {
        let mut index = Index::default();
        let mut offset = 0;
        for line in lines(bytes).0 {
            if let Ok(Value::Object(fields)) = serde_json::from_slice(line)
                && let Some(seq) = fields.get("seq").and_then(Value::as_u64)
            {
                index.add(first, seq, &fields, offset, line.len());
            }
            offset += line.len() as u64 + 1;
        }
        index
    }

    /// Adds a record that stands in its segment from an offset, without its newline.
    pub fn add(
        &mut self,
        first: u64,
        seq: u64,
        fields: &Map<String, Value>,
        offset: u64,
        length: usize,
    ) {
        let number = |number: u64| u32::try_from(number).ok();
        if let Some(entry) = Entry::of(fields)
            && let Some(offset) = number(offset)
            && let Some(length) = number(length as u64)
            && let Some(seq) = seq.checked_sub(first).and_then(number)
        {
            self.entries.push(Entry {
                offset,
                length,
                seq,
                ..entry
            });
        }
    }

    /// Of a sealed segment: as it is stored, or made again and stored. Nothing if it has nothing of
    /// what is wanted.
    fn of_segment(segment: &Segment, want: &Want) -> io::Result<Index> {
        let path = segment.path.with_extension("index");
        let length = segment.path.metadata()?.len();
        if let Ok(stored) = Index::stored(&path, length, want)
            && let Some(index) = stored
        {
            return Ok(index);
        }
        let index = Index::of_bytes(segment.first, &read(&segment.path)?);
        if let Err(error) = index.store(&path, length) {
            tracing::debug!(%error, "the index of a segment of the audit log could not be stored");
        }
        Ok(index)
    }

    /// Stores the index of a segment of this length. It need not survive a power cut.
    pub fn store(&self, path: &Path, length: u64) -> io::Result<()> {
        let new = path.with_extension("index-new");
        let mut file = File::options();
        let file = file.write(true).create(true).truncate(true).mode(0o600);
        file.open(&new)?.write_all_at(&self.to_bytes(length), 0)?;
        std::fs::rename(new, path)
    }

    /// Reads a stored index; no more of it than its head where that says that nothing is wanted.
    fn stored(path: &Path, length: u64, want: &Want) -> io::Result<Option<Index>> {
        let file = File::open(path)?;
        let mut head = [0; HEAD_BYTES];
        file.read_exact_at(&mut head, 0)?;
        match Head::parse(&head, length) {
            None => Ok(None),
            Some(head) if !head.may_have(want) => Ok(Some(Index::default())),
            Some(_) => Ok(Index::parse(&read(path)?, length)),
        }
    }

    fn to_bytes(&self, length: u64) -> Vec<u8> {
        let count = |is: fn(&&Entry) -> bool| {
            let count = self.entries.iter().filter(is).count();
            u32::try_from(count).unwrap_or(u32::MAX)
        };
        let mut bytes = MAGIC.to_vec();
        bytes.extend(length.to_le_bytes());
        bytes.extend(count(|entry| entry.flags & READS == 0).to_le_bytes());
        bytes.extend(count(|entry| entry.flags & FAILED != 0).to_le_bytes());
        bytes.extend(sum(&bytes).to_le_bytes());
        for number in self.entries.iter().flat_map(Entry::numbers) {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(sum(&bytes).to_le_bytes());
        bytes
    }

    /// The index of a segment of this length, if these bytes are one and whole.
    fn parse(bytes: &[u8], length: u64) -> Option<Index> {
        let until = bytes.len().checked_sub(SUM_BYTES)?;
        let (content, stated) = bytes.split_at(until);
        if sum(content).to_le_bytes() != *stated {
            return None;
        }
        let (head, entries) = content.split_first_chunk()?;
        Head::parse(head, length)?;
        let entries = entries.chunks_exact(ENTRY_BYTES).map(|entry| {
            let number = |at: usize| {
                let bytes = &entry[at * 4..at * 4 + 4];
                u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
            };
            Entry::of_numbers(std::array::from_fn(number))
        });
        Some(Index {
            entries: entries.collect(),
        })
    }

    fn may_have(&self, first: u64, want: &Want) -> bool {
        self.entries.iter().any(|entry| want.may_be(first, entry))
    }
}

/// The calls of a log at one moment.
#[derive(Debug, Default)]
pub struct Calls {
    pub sealed: Vec<Segment>,
    /// The active segment: it may grow, and its index does not.
    pub last: Option<(Segment, Index)>,
}

impl Calls {
    /// Of a directory that is not being written.
    pub fn of_dir(dir: &Path) -> io::Result<Calls> {
        let mut sealed = Segment::list(dir)?;
        let last = match sealed.pop() {
            Some(last) => {
                let index = Index::of_bytes(last.first, &read(&last.path)?);
                Some((last, index))
            }
            None => None,
        };
        Ok(Calls { sealed, last })
    }

    /// Visits lines that may be wanted, without their newlines, from the newest to the oldest, until
    /// `see` returns false.
    pub fn each_back(&self, want: &Want, mut see: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        let mut line = Vec::new();
        self.segments_back(want, |segment, index| {
            let mut file = None;
            let wanted = index.entries.iter().rev();
            for entry in wanted.filter(|entry| want.may_be(segment.first, entry)) {
                let file = match &file {
                    Some(file) => file,
                    None => match File::open(&segment.path) {
                        // Its time was over meanwhile.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
                        opened => file.insert(opened?),
                    },
                };
                line.resize(entry.length as usize, 0);
                file.read_exact_at(&mut line, u64::from(entry.offset))?;
                if !see(&line) {
                    return Ok(false);
                }
            }
            Ok(true)
        })
    }

    /// Visits the bytes of segments that may have what is wanted, from the newest to the oldest,
    /// until `see` returns false.
    pub fn bytes_back(&self, want: &Want, mut see: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
        self.segments_back(want, |segment, index| {
            Ok(!index.may_have(segment.first, want) || see(&read(&segment.path)?))
        })
    }

    fn segments_back(
        &self,
        want: &Want,
        mut see: impl FnMut(&Segment, &Index) -> io::Result<bool>,
    ) -> io::Result<()> {
        if let Some((segment, index)) = &self.last
            && !see(segment, index)?
        {
            return Ok(());
        }
        for segment in self.sealed.iter().rev() {
            if want.before.is_some_and(|before| segment.first >= before) {
                continue;
            }
            let index = match Index::of_segment(segment, want) {
                // Its time was over meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                index => index?,
            };
            if !see(segment, &index)? {
                return Ok(());
            }
        }
        Ok(())
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(SEGMENT_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn line(seq: u64, fields: Value) -> (Map<String, Value>, Vec<u8>) {
        let Value::Object(mut fields) = fields else {
            panic!("an object");
        };
        fields.insert("seq".to_string(), seq.into());
        let mut text = serde_json::to_vec(&fields).unwrap();
        text.push(b'\n');
        (fields, text)
    }

    #[test]
    fn an_index_is_the_same_whether_it_grew_or_was_read_again() {
        let records = [
            json!({"type": "segment"}),
            json!({"type": "call", "id": "a", "verb": "exec", "effect": "runs", "outcome": "ok",
                "caller": {"who": "key:k@acme"}}),
            json!({"type": "checkpoint"}),
            json!({"type": "call", "id": "b", "verb": "version", "effect": "reads",
                "outcome": "denied", "sandbox_id": "sb-a", "caller": {"who": "uid:0"}}),
        ];
        let (mut grown, mut bytes) = (Index::default(), Vec::new());
        for (at, record) in records.into_iter().enumerate() {
            let (fields, text) = line(7 + at as u64, record);
            grown.add(
                7,
                7 + at as u64,
                &fields,
                bytes.len() as u64,
                text.len() - 1,
            );
            bytes.extend(text);
        }
        let read = Index::of_bytes(7, &bytes);
        assert_eq!(read, grown);
        assert_eq!(read.entries.len(), 2);
        let may = |want: Want| {
            let those = read.entries.iter().filter(|entry| want.may_be(7, entry));
            those.map(|entry| entry.seq).collect::<Vec<_>>()
        };
        assert_eq!(may(Want::default()), [1, 3]);
        assert_eq!(may(Want::default().changes(true)), [1]);
        assert_eq!(may(Want::default().failed(true)), [3]);
        assert_eq!(may(Want::default().project(Some("acme"))), [1]);
        assert_eq!(may(Want::default().before(Some(10))), [1]);
        assert_eq!(may(Want::default().id("b")), [3]);
        assert_eq!(may(Want::default().sandbox(Some("sb-a"))), [3]);
        assert_eq!(may(Want::default().verb(Some("exec"))), [1]);
    }

    proptest! {
        /// Bytes of anybody are an index, or none, and never of another segment.
        #[test]
        fn a_stored_index_is_whole_or_not_used(
            numbers in prop::collection::vec(any::<[u32; 7]>(), 0..6),
            length in any::<u64>(),
            at in any::<prop::sample::Index>(),
            bit in 0..8u8,
        ) {
            let entries = numbers.into_iter().map(Entry::of_numbers).collect();
            let index = Index { entries };
            let bytes = index.to_bytes(length);
            prop_assert_eq!(Index::parse(&bytes, length), Some(index));
            prop_assert_eq!(Index::parse(&bytes, length ^ 1), None);
            let mut damaged = bytes.clone();
            damaged[at.index(bytes.len())] ^= 1 << bit;
            prop_assert_eq!(Index::parse(&damaged, length), None);
            prop_assert_eq!(Index::parse(&bytes[..at.index(bytes.len())], length), None);
        }
    }
}
