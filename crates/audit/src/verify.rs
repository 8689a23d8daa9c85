//! Verifies a log: all records are unchanged, in order and complete.

use crate::hex::{hex, unhex};
use crate::key::PublicKey;
use crate::record::{Flaw, Record};
use crate::segment::{lines, read_head};
use crate::view::View;
use crate::{Hash, tree};
use motu_core::audit::{AuditProblem, AuditVerified};

/// Reported problems; the first ones explain what happened.
const MOST: usize = 100;

/// What a verifier knows about the log from elsewhere.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    /// The key that must have signed it. Without it the log is only checked for consistency.
    pub key: Option<PublicKey>,
    /// A hash that must be in it.
    pub hash: Option<Hash>,
}

impl Expected {
    /// Parses a caller's input.
    pub fn parse(key: Option<&str>, hash: Option<&str>) -> motu_core::Result<Expected> {
        let hash = hash.map(|text| {
            unhex(text)
                .ok_or_else(|| motu_core::Error::invalid("a hash is 64 characters of 0-9 and a-f"))
        });
        Ok(Expected {
            key: key.map(PublicKey::parse).transpose()?,
            hash: hash.transpose()?,
        })
    }
}

/// Checks all of it.
pub fn verify(view: &View, expected: &Expected) -> AuditVerified {
    let mut check = Check::new(expected.clone());
    let last = view.last.as_ref().map(|(first, ..)| *first);
    let read = view.each(|first, name, bytes| {
        check.segment(first, name, bytes, Some(first) == last);
        true
    });
    if let Err(error) = read {
        check.at(format!("a segment cannot be read: {error}"));
    }
    check.finish(&view.head)
}

struct Check {
    expected: Expected,
    found: AuditVerified,
    segment: String,
    line: u64,
    seq: Option<u64>,
    /// Sequence number and hash of the previous record; `None` after an unreadable one.
    before: Option<(u64, Hash)>,
    /// Hashes since the last checkpoint, and the sequence number of the first.
    open: Vec<Hash>,
    open_from: u64,
    /// The predecessor named by the first record.
    beginning: Option<(u64, Hash)>,
    removed: Vec<(u64, String)>,
    seen_expected: bool,
    /// Checkpoints that the head may refer to.
    checkpoints: Vec<(u64, Hash)>,
}

impl Check {
    fn new(expected: Expected) -> Check {
        Check {
            seen_expected: expected.hash.is_none(),
            expected,
            found: AuditVerified::default(),
            segment: String::new(),
            line: 0,
            seq: None,
            before: None,
            open: Vec::new(),
            open_from: 0,
            beginning: None,
            removed: Vec::new(),
            checkpoints: Vec::new(),
        }
    }

    fn at(&mut self, message: impl Into<String>) {
        if self.found.problems.len() < MOST {
            self.found.problems.push(AuditProblem {
                segment: self.segment.clone(),
                line: self.line,
                seq: self.seq,
                message: message.into(),
            });
        }
    }

    fn segment(&mut self, first: u64, name: &str, bytes: &[u8], is_last: bool) {
        self.found.segments += 1;
        (self.segment, self.line, self.seq) = (name.to_string(), 0, None);
        let (lines, rest) = lines(bytes);
        let mut sealed = false;
        for (index, line) in lines.iter().enumerate() {
            self.line = index as u64 + 1;
            self.seq = None;
            if sealed {
                self.at("there is more after the end of the segment");
            }
            match Record::read(line) {
                Ok(record) => {
                    if index == 0 {
                        self.header(&record, first);
                    }
                    sealed = record.is_seal();
                    self.record(record);
                }
                Err(flaw) => {
                    self.at(format!("this is not what was written: {flaw}"));
                    self.before = None;
                }
            }
        }
        (self.line, self.seq) = (lines.len() as u64 + 1, None);
        if lines.is_empty() {
            self.at("the segment is empty");
        }
        if !self.open.is_empty() {
            self.at("the last entries have no checkpoint");
            self.open.clear();
        }
        if !is_last && !sealed {
            self.at("the segment does not come to its end");
        }
        // Preallocated zeros are allowed only at the end of the active segment.
        if rest.iter().any(|&byte| byte != 0) {
            self.at("there is something after the last record");
        } else if !rest.is_empty() && (!is_last || sealed) {
            self.at("there are zeros after the end of the segment");
        }
    }

    fn header(&mut self, record: &Record, first: u64) {
        self.seq = Some(record.seq);
        if record.kind() != "segment" || record.seq != first {
            self.at("the segment does not begin with its first record");
        }
        let key = PublicKey::parse(record.text("public_key")).ok();
        match (key, self.expected.key) {
            (Some(key), Some(expected)) if key == expected => {}
            (Some(key), None) => self.expected.key = Some(key),
            (Some(_), Some(_)) => self.at("the segment is of another key"),
            (None, _) => self.at("the segment does not name its key"),
        }
    }

    fn record(&mut self, record: Record) {
        self.seq = Some(record.seq);
        self.found.records += 1;
        match self.before {
            Some((seq, hash)) => {
                if record.seq != seq + 1 {
                    self.at(format!(
                        "{} follows {seq}: entries are missing or moved",
                        record.seq
                    ));
                }
                if record.prev != hash {
                    self.at("the chain is broken: the entry before is another one");
                }
            }
            // After an unreadable record, which was reported.
            None if self.beginning.is_some() => {}
            None => {
                self.beginning = Some((record.seq, record.prev));
                self.found.first_seq = record.seq;
            }
        }
        self.before = Some((record.seq, record.hash));
        self.found.last_seq = record.seq;
        self.seen_expected |= self.expected.hash == Some(record.hash);
        match record.kind() {
            "checkpoint" => self.checkpoint(&record),
            kind => {
                match kind {
                    "call" => self.found.calls += 1,
                    "note" => self.note(&record),
                    "segment" => {}
                    _ => self.at("the entry is of no kind that is known"),
                }
                if self.open.is_empty() {
                    self.open_from = record.seq;
                }
                self.open.push(record.hash);
            }
        }
    }

    fn note(&mut self, record: &Record) {
        let facts = &record.value["facts"];
        let number = |name: &str| facts[name].as_u64().unwrap_or(0);
        match record.text("note") {
            "removed" => {
                let hash = facts["hash"].as_str().unwrap_or_default();
                self.removed.push((number("through"), hash.to_string()));
            }
            "end_lost" => self.at(format!(
                "when the daemon started, the log ended at {} and had been at {}",
                number("found"),
                number("expected")
            )),
            "head_lost" => self.at("when the daemon started, the head of the log was gone"),
            "missed" => self.at(format!("{} calls were not recorded", number("calls"))),
            // Crashes before an acknowledgement, and starts.
            "torn_tail" | "opened" => {}
            _ => self.at("the note is none that is known"),
        }
    }

    fn checkpoint(&mut self, record: &Record) {
        self.found.checkpoints += 1;
        let covers = (record.number("first"), record.number("count"));
        let open = std::mem::take(&mut self.open);
        let rooted = hex(&tree::root(&open)) == record.text("root");
        if open.is_empty() || covers != (Some(self.open_from), Some(open.len() as u64)) || !rooted {
            self.at(Flaw::Root.to_string());
        }
        match self.expected.key.map(|key| record.check_signature(&key)) {
            Some(Ok(())) => {
                self.found.head = hex(&record.hash);
                self.checkpoints.push((record.seq, record.hash));
            }
            _ => self.at(Flaw::Signature.to_string()),
        }
    }

    fn finish(mut self, head: &[u8]) -> AuditVerified {
        (self.segment, self.line, self.seq) = (String::new(), 0, None);
        if self.found.records == 0 {
            self.at("there is no log");
        }
        if let Some((first, prev)) = self.beginning
            && (first != 1 || prev != Hash::default())
        {
            let gone = (first.saturating_sub(1), hex(&prev));
            match self.removed.contains(&gone) {
                true => self.found.removed_through = gone.0,
                false => self.at("the beginning is missing, and no note says that it was removed"),
            }
        }
        self.check_head(head);
        if !self.seen_expected {
            self.at("the hash that is expected is not in the log");
        }
        self.found.public_key = self
            .expected
            .key
            .map(|key| key.to_string())
            .unwrap_or_default();
        self.found.ok = self.found.problems.is_empty();
        self.found
    }

    /// The head must be the last checkpoint, or an earlier existing one.
    fn check_head(&mut self, head: &[u8]) {
        let Some(key) = self.expected.key else {
            return;
        };
        match read_head(head, &key) {
            None => self.at("the head of the log is missing"),
            Some(head) if self.checkpoints.contains(&(head.seq, head.hash)) => {}
            Some(head) => self.at(format!(
                "the log ends at {}; it had been written and signed until {}",
                self.found.last_seq, head.seq
            )),
        }
    }
}
