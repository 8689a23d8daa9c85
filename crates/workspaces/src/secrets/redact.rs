//! Taking secret values out of what is shown.
//!
//! A [`Stream`] holds back only what could be the beginning of a value: plain
//! output passes at once, a prompt is never stuck, and nothing waits for more than
//! the longest value. Cost is linear in the output. Overlapping values are covered
//! whole. Values shorter than [`MIN_REDACTED_BYTES`] bytes are left alone: hiding
//! every `a` would destroy the output and tell the value anyway.

use std::{ops::Range, sync::Arc};

use aho_corasick::{AhoCorasick, MatchKind};
use zeroize::Zeroizing;

use super::forms::forms;
use super::{Secret, SecretError};

/// Longer forms are searched one by one: the common automaton would be huge, and
/// there are few of them.
const MAX_COMMON_BYTES: usize = 256;

/// Knows what to take out. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Redactor {
    patterns: Option<Arc<Patterns>>,
}

struct Patterns {
    /// Finds the first `common` forms.
    search: AhoCorasick,
    common: usize,
    forms: Vec<Form>,
    /// Bytes that begin a form.
    starts: [bool; 256],
}

impl std::fmt::Debug for Patterns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} forms", self.forms.len())
    }
}

/// One way a value may appear.
struct Form {
    bytes: Zeroizing<Vec<u8>>,
    /// For each length of a beginning, the longest shorter beginning it ends in.
    borders: Vec<u32>,
    marker: Vec<u8>,
}

impl Redactor {
    pub fn new(secrets: &[Secret]) -> Result<Redactor, SecretError> {
        let all = secrets.iter().flat_map(|secret| {
            let marker = format!("[redacted {}]", secret.name).into_bytes();
            let forms = forms(&secret.value).into_iter();
            forms.map(move |bytes| Form {
                borders: borders(&bytes),
                bytes,
                marker: marker.clone(),
            })
        });
        let is_long = |form: &Form| form.bytes.len() > MAX_COMMON_BYTES;
        let mut forms: Vec<Form> = all.collect();
        forms.sort_by_key(is_long);
        let common = forms.partition_point(|form| !is_long(form));
        if forms.is_empty() {
            return Ok(Redactor { patterns: None });
        }
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(forms[..common].iter().map(|form| form.bytes.as_slice()))
            .map_err(|_| SecretError::Limit {
                what: "the size of all forms of all secrets",
                limit: super::MAX_TOTAL_BYTES,
            })?;
        let mut starts = [false; 256];
        for first in forms.iter().filter_map(|form| form.bytes.first()) {
            starts[usize::from(*first)] = true;
        }
        Ok(Redactor {
            patterns: Some(Arc::new(Patterns {
                search,
                common,
                forms,
                starts,
            })),
        })
    }

    /// Starts on a stream of bytes.
    pub fn stream(&self) -> Stream {
        Stream {
            patterns: self.patterns.clone(),
            held: Zeroizing::new(Vec::new()),
            covered: 0,
        }
    }

    /// Redacts bytes that are whole.
    pub fn redact(&self, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.stream();
        let mut out = stream.push(bytes);
        out.extend(stream.finish());
        out
    }
}

/// One stream being redacted.
#[derive(Debug)]
pub struct Stream {
    patterns: Option<Arc<Patterns>>,
    /// The beginning of what may become a value.
    held: Zeroizing<Vec<u8>>,
    /// So much of it is part of a value for which a marker was given out.
    covered: usize,
}

impl Stream {
    /// Takes bytes, gives those that can be shown now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Some(patterns) = self.patterns.clone() else {
            return bytes.to_vec();
        };
        self.held.extend_from_slice(bytes);
        let keep = self.held.len() - patterns.begun(&self.held);
        self.release(&patterns, keep)
    }

    /// Ends the stream, gives what was held back.
    pub fn finish(mut self) -> Vec<u8> {
        match self.patterns.take() {
            Some(patterns) => {
                let all = self.held.len();
                self.release(&patterns, all)
            }
            None => Vec::new(),
        }
    }

    /// Gives out everything before `end`, redacted.
    fn release(&mut self, patterns: &Patterns, end: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(end);
        let mut at = 0;
        let mut covered = 0;
        for (range, marker) in patterns.ranges(&self.held, self.covered) {
            // What begins in the part that is kept is found again, and whole.
            if range.start >= end && marker.is_some() {
                continue;
            }
            out.extend_from_slice(&self.held[at..range.start.min(end)]);
            out.extend_from_slice(marker.unwrap_or_default());
            at = range.end.min(end);
            covered = range.end.saturating_sub(end);
        }
        out.extend_from_slice(&self.held[at..end]);
        self.held = Zeroizing::new(self.held.split_off(end));
        self.covered = covered;
        out
    }
}

impl Patterns {
    /// What to cover, in order and apart from each other. The first `covered` bytes
    /// have their marker already; everything else comes with one.
    fn ranges(&self, text: &[u8], covered: usize) -> Vec<(Range<usize>, Option<&[u8]>)> {
        let mut found: Vec<(Range<usize>, Option<&[u8]>)> = self
            .search
            .find_overlapping_iter(text)
            .map(|found| {
                let form = &self.forms[found.pattern().as_usize()];
                (found.range(), Some(form.marker.as_slice()))
            })
            .collect();
        for form in &self.forms[self.common..] {
            let ends = form.ends(text).into_iter();
            found.extend(
                ends.map(|end| (end - form.bytes.len()..end, Some(form.marker.as_slice()))),
            );
        }
        if covered > 0 {
            found.push((0..covered, None));
        }
        // The one already marked first, then the longest of those that begin together.
        found.sort_by_key(|(range, marker)| {
            (range.start, marker.is_some(), std::cmp::Reverse(range.end))
        });
        let mut apart: Vec<(Range<usize>, Option<&[u8]>)> = Vec::new();
        for (range, marker) in found {
            match apart.last_mut() {
                Some((last, _)) if range.start < last.end => last.end = last.end.max(range.end),
                _ => apart.push((range, marker)),
            }
        }
        apart
    }

    /// How many of the last bytes are the beginning of a form.
    fn begun(&self, text: &[u8]) -> usize {
        let forms = self.forms.iter();
        let longest = forms.map(|form| form.bytes.len()).max().unwrap_or(0);
        let tail = &text[text.len().saturating_sub(longest.saturating_sub(1))..];
        let Some(first) = tail.iter().position(|byte| self.starts[usize::from(*byte)]) else {
            return 0;
        };
        let tail = &tail[first..];
        let forms = self.forms.iter();
        forms.map(|form| form.begun(tail)).max().unwrap_or(0)
    }
}

impl Form {
    /// The longest end of `tail` that this form begins with, but not all of it.
    fn begun(&self, tail: &[u8]) -> usize {
        let tail = &tail[tail.len().saturating_sub(self.bytes.len() - 1)..];
        tail.iter()
            .fold(0, |matched, byte| self.advance(matched, *byte))
    }

    /// Where the form ends in `text`, each time.
    fn ends(&self, text: &[u8]) -> Vec<usize> {
        let mut ends = Vec::new();
        let mut matched = 0;
        for (at, byte) in text.iter().enumerate() {
            matched = self.advance(matched, *byte);
            if matched == self.bytes.len() {
                ends.push(at + 1);
            }
        }
        ends
    }

    /// How much of the form the text ends in after one more byte.
    fn advance(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.bytes.get(matched) != Some(&byte) {
            matched = self.borders[matched] as usize;
        }
        matched + usize::from(self.bytes[matched] == byte)
    }
}

fn borders(bytes: &[u8]) -> Vec<u32> {
    let mut borders = vec![0_u32; bytes.len() + 1];
    let mut matched = 0;
    for (at, byte) in bytes.iter().enumerate().skip(1) {
        while matched > 0 && bytes[matched] != *byte {
            matched = borders[matched] as usize;
        }
        if bytes[matched] == *byte {
            matched += 1;
        }
        // A value is far shorter than four billion bytes.
        borders[at + 1] = matched as u32;
    }
    borders
}
