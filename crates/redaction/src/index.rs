//! An index of everything that is searched for, by the first four bytes.
//!
//! A sequence that begins with four given bytes has three of them at an even position, so only
//! every second position is checked. A filter of one bit per hash excludes nearly all of these; it
//! fits into the L1 cache. The few remaining positions are checked with a second filter over all
//! four bytes, and then looked up exactly.

use crate::eat::Eat;
use crate::forms::forms;
use crate::kinds::{HOLD_BYTES, ROWS, Verdict};
use crate::patterns::Patterns;
use crate::{Forms, Known};
use zeroize::Zeroizing;

/// Bytes used to find beginnings.
const GRAM: usize = 4;
/// Bits of the filter, as a power of two.
const FILTER_BITS: u32 = 17;
const FILTER_WORDS: usize = 1 << (FILTER_BITS - 5);

/// One bit per hash.
type Filter = [u32; FILTER_WORDS];

/// Everything that one redactor looks for.
pub struct Index {
    forms: Vec<Form>,
    /// Forms shorter than a gram.
    short: Vec<u32>,
    /// By three of the first four bytes.
    coarse: Box<Filter>,
    /// By the first four bytes.
    fine: Box<Filter>,
    /// Sorted by their first bytes.
    targets: Vec<(u32, Target)>,
    /// The first one, two and three bytes of forms, for the end of a text.
    starts: [Vec<u32>; GRAM - 1],
    /// Markers of rows, then of forms.
    markers: Vec<Vec<u8>>,
    patterns: Patterns,
    longest: usize,
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{} forms, {} kinds",
            self.forms.len(),
            self.patterns.kinds()
        )
    }
}

/// What may begin with certain bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Target {
    Form(u32),
    Row { row: u16, beginning: u16 },
}

/// One form of a value.
struct Form {
    bytes: Zeroizing<Vec<u8>>,
    /// KMP failure function: for each prefix length, the longest proper border.
    borders: Vec<u32>,
    marker: usize,
}

/// A range to cover.
#[derive(Clone, Debug)]
pub struct Match {
    /// Where it was recognized: at its first byte, or at a name before it.
    pub seen: usize,
    pub from: usize,
    pub to: usize,
    pub eat: Option<Eat>,
    pub marker: usize,
}

/// The result of a scan.
#[derive(Debug, Default)]
pub struct Found {
    pub matches: Vec<Match>,
    /// From here on a match may have begun.
    pub open: usize,
    /// From here on bytes may have to be covered.
    pub hidden: usize,
}

/// A piece of a stream.
#[derive(Clone, Copy, Debug)]
pub struct Text<'a> {
    pub bytes: &'a [u8],
    /// The byte before it.
    pub before: Option<u8>,
    /// Nothing follows.
    pub whole: bool,
}

impl Found {
    /// Records a possible match that was seen at `open` and would be covered from `hidden` on.
    fn waits(&mut self, open: usize, hidden: usize) {
        self.open = self.open.min(open);
        self.hidden = self.hidden.min(hidden);
    }
}

impl Index {
    pub fn new<'a>(known: impl IntoIterator<Item = Known<'a>>, patterns: &Patterns) -> Index {
        let mut index = Index {
            forms: Vec::new(),
            short: Vec::new(),
            coarse: Box::new([0; FILTER_WORDS]),
            fine: Box::new([0; FILTER_WORDS]),
            targets: Vec::new(),
            starts: Default::default(),
            markers: ROWS
                .iter()
                .map(|row| format!("[redacted {}]", row.kind).into_bytes())
                .collect(),
            patterns: patterns.clone(),
            longest: 0,
        };
        for value in known {
            index.add_value(&value);
        }
        for row in patterns.rows() {
            index.add_row(row);
        }
        for starts in &mut index.starts {
            starts.sort_unstable();
            starts.dedup();
        }
        index.targets.sort_unstable();
        index
    }

    fn add_value(&mut self, value: &Known<'_>) {
        let marker = self.markers.len();
        self.markers.push(match value.name {
            Some(name) => format!("[redacted {name}]").into_bytes(),
            None => b"[redacted]".to_vec(),
        });
        let all = match value.forms {
            Forms::All => forms(value.value),
            Forms::Plain if value.value.is_empty() => Vec::new(),
            Forms::Plain => vec![Zeroizing::new(value.value.to_vec())],
        };
        for bytes in all {
            self.longest = self.longest.max(bytes.len());
            let number = self.forms.len() as u32;
            match bytes.first_chunk::<GRAM>() {
                Some(gram) => {
                    self.add_target(*gram, Target::Form(number));
                    for (count, starts) in self.starts.iter_mut().enumerate() {
                        starts.push(packed(&gram[..=count]));
                    }
                }
                None => self.short.push(number),
            }
            self.forms.push(Form {
                borders: borders(&bytes),
                bytes,
                marker,
            });
        }
    }

    fn add_row(&mut self, row: usize) {
        self.longest = self.longest.max(HOLD_BYTES);
        for (number, beginning) in ROWS[row].beginnings.iter().enumerate() {
            let target = Target::Row {
                row: row as u16,
                beginning: number as u16,
            };
            match *beginning.as_bytes() {
                [a, b, c, d, ..] => self.add_target([a, b, c, d], target),
                // Three bytes, followed by any printable one.
                [a, b, c] => (b'!'..=b'~').for_each(|d| self.add_target([a, b, c, d], target)),
                _ => {}
            }
        }
    }

    fn add_target(&mut self, gram: [u8; GRAM], target: Target) {
        let gram = u32::from_le_bytes(gram);
        enter(&mut self.fine, hash(gram));
        enter(&mut self.coarse, hash_of_three(gram));
        enter(&mut self.coarse, hash_of_three(gram >> 8));
        self.targets.push((gram, target));
    }

    pub fn is_empty(&self) -> bool {
        self.targets.is_empty() && self.short.is_empty()
    }

    pub fn longest(&self) -> usize {
        self.longest
    }

    pub fn marker(&self, marker: usize) -> &[u8] {
        &self.markers[marker]
    }

    /// Counts a covered match.
    pub fn count(&self, marker: usize) {
        self.patterns.count((marker < ROWS.len()).then_some(marker));
    }

    /// All matches of a text, and possible beginnings at its end.
    pub fn scan(&self, text: Text<'_>) -> Found {
        let mut scan = Scan {
            index: self,
            text,
            busy: Vec::new(),
            found: Found {
                matches: Vec::new(),
                open: text.bytes.len(),
                hidden: text.bytes.len(),
            },
        };
        for form in &self.short {
            scan.form(*form, 0);
        }
        self.candidates(text.bytes, |at, gram| scan.look(at, gram));
        if !text.whole {
            scan.tail();
        }
        scan.found
    }

    /// All positions where something may begin, in order.
    fn candidates(&self, bytes: &[u8], mut look: impl FnMut(usize, u32)) {
        const STEP: usize = 16;
        let mut both = |at: usize| {
            for at in at.saturating_sub(1)..=at {
                let Some(gram) = bytes[at..].first_chunk::<GRAM>() else {
                    return;
                };
                let gram = u32::from_le_bytes(*gram);
                if asks(&self.fine, hash(gram)) != 0 {
                    look(at, gram);
                }
            }
        };
        let mut at = 0;
        // Eight positions at a time, from four overlapping words.
        while let Some(window) = bytes[at..].first_chunk::<{ STEP + 2 }>() {
            let word =
                |from: usize| u64::from_le_bytes(std::array::from_fn(|place| window[from + place]));
            let words = [word(0), word(2), word(8), word(10)];
            let hits: [u32; STEP / 2] = std::array::from_fn(|place| {
                // The last position of a word lacks a byte: use the next word.
                let (half, place) = (place / 4 * 2, place % 4);
                let three = match place {
                    3 => words[half + 1] >> 32,
                    _ => words[half] >> (16 * place),
                };
                asks(&self.coarse, hash_of_three(three as u32))
            });
            if hits.iter().fold(0, |all, hit| all | hit) != 0 {
                for (place, hit) in hits.into_iter().enumerate() {
                    if hit != 0 {
                        both(at + 2 * place);
                    }
                }
            }
            at += STEP;
        }
        while at < bytes.len() {
            both(at);
            at += 2;
        }
    }
}

/// The state of scanning one text.
struct Scan<'a> {
    index: &'a Index,
    text: Text<'a>,
    /// Forms that were followed beyond the current position, and how far.
    busy: Vec<(u32, usize)>,
    found: Found,
}

impl Scan<'_> {
    fn look(&mut self, at: usize, gram: u32) {
        let targets = &self.index.targets;
        let first = targets.partition_point(|(other, _)| *other < gram);
        for (other, target) in &targets[first..] {
            match target {
                _ if *other != gram => return,
                Target::Form(form) => self.form(*form, at),
                Target::Row { row, beginning } => {
                    self.row(usize::from(*row), usize::from(*beginning), at);
                }
            }
        }
    }

    fn row(&mut self, number: usize, beginning: usize, at: usize) {
        let row = &ROWS[number];
        if !row.before.allows(self.byte_before(at)) {
            return;
        }
        let rest = &self.text.bytes[at..];
        match row.judge(row.beginnings[beginning], rest, self.text.whole) {
            Verdict::No => {}
            Verdict::More { safe } => self.found.waits(at, at + safe),
            Verdict::Yes { from, to, eat } => self.found.matches.push(Match {
                seen: at,
                from: at + from,
                to: at + to,
                eat,
                marker: number,
            }),
        }
    }

    fn byte_before(&self, at: usize) -> Option<u8> {
        match at.checked_sub(1) {
            Some(before) => self.text.bytes.get(before).copied(),
            None => self.text.before,
        }
    }

    /// Follows a form from a position in linear time: no position is read twice for the same form.
    fn form(&mut self, number: u32, at: usize) {
        let known = self.busy.iter_mut().find(|(form, _)| *form == number);
        if known.as_ref().is_some_and(|(_, until)| at < *until) {
            return;
        }
        let form = &self.index.forms[number as usize];
        let bytes = self.text.bytes;
        let mut matched = 0;
        let mut until = bytes.len();
        for (place, byte) in bytes.iter().enumerate().skip(at) {
            matched = form.advance(matched, *byte);
            if matched == form.bytes.len() {
                self.found.matches.push(Match {
                    seen: place + 1 - matched,
                    from: place + 1 - matched,
                    to: place + 1,
                    eat: None,
                    marker: form.marker,
                });
            } else if matched < GRAM && place >= at + GRAM - 1 && form.bytes.len() >= GRAM {
                // Shorter prefixes are found again by the filter.
                until = place + 1 - matched;
                break;
            }
        }
        if until == bytes.len() && !self.text.whole {
            let begun = match matched {
                whole if whole == form.bytes.len() => form.borders[whole] as usize,
                part => part,
            };
            let from = bytes.len() - begun;
            self.found.waits(from, from);
        }
        match known {
            Some(known) => known.1 = until,
            None => self.busy.push((number, until)),
        }
    }

    /// Checks whether the last bytes may begin something, too few for the filter.
    fn tail(&mut self) {
        let bytes = self.text.bytes;
        for count in (1..GRAM).rev().filter(|count| *count <= bytes.len()) {
            let at = bytes.len() - count;
            let tail = &bytes[at..];
            let form = self.index.starts[count - 1].binary_search(&packed(tail));
            if form.is_ok() {
                self.found.waits(at, at);
            }
            if self.begins_row(tail, at) {
                self.found.waits(at, bytes.len());
            }
        }
    }

    fn begins_row(&self, tail: &[u8], at: usize) -> bool {
        let before = self.byte_before(at);
        self.index.patterns.rows().any(|row| {
            let row = &ROWS[row];
            let begins = |beginning: &&str| beginning.as_bytes().starts_with(tail);
            row.before.allows(before) && row.beginnings.iter().any(begins)
        })
    }
}

impl Form {
    /// The length of the form's prefix that the text ends in after one more byte.
    fn advance(&self, mut matched: usize, byte: u8) -> usize {
        while matched > 0 && self.bytes.get(matched) != Some(&byte) {
            matched = self.borders[matched] as usize;
        }
        matched + usize::from(self.bytes[matched] == byte)
    }
}

const SPREAD: u32 = 0x9E37_79B1;

#[inline(always)]
fn hash(gram: u32) -> usize {
    (gram.wrapping_mul(SPREAD) >> (32 - FILTER_BITS)) as usize
}

/// A hash of the lower three bytes: the multiplication shifts the fourth out.
#[inline(always)]
fn hash_of_three(gram: u32) -> usize {
    (gram.wrapping_mul(SPREAD << 8) >> (32 - FILTER_BITS)) as usize
}

fn enter(filter: &mut Filter, hash: usize) {
    filter[hash >> 5] |= 1 << (hash & 31);
}

#[inline(always)]
fn asks(filter: &Filter, hash: usize) -> u32 {
    (filter[hash >> 5] >> (hash & 31)) & 1
}

/// Up to four bytes as a number.
fn packed(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |all, byte| (all << 8) | u32::from(*byte))
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
