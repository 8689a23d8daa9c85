//! One stream: bytes in, bytes out.

use crate::Redactor;
use crate::eat::Eat;
use crate::index::{Found, Match, Text};
use zeroize::Zeroizing;

/// Bytes scanned at once.
const PIECE_BYTES: usize = 64 * 1024;
/// Minimum bytes appended to held ones.
const STEP_BYTES: usize = 4096;

/// One stream being redacted. It holds back only what may begin a match.
#[derive(Debug)]
pub struct Stream {
    redactor: Redactor,
    held: Zeroizing<Vec<u8>>,
    /// The last byte before the held ones.
    before: Option<u8>,
    /// How many held bytes belong to a match whose marker was written.
    covered: usize,
    /// How many held bytes were already shown, because of a timeout.
    shown: usize,
    /// What covers the bytes after the held ones.
    eating: Vec<Eat>,
    found: u64,
}

/// Where bytes go that can be shown.
pub type Sink<'a> = &'a mut dyn FnMut(&[u8]);

impl Stream {
    pub(crate) fn new(redactor: Redactor) -> Stream {
        Stream {
            redactor,
            held: Zeroizing::new(Vec::new()),
            before: None,
            covered: 0,
            shown: 0,
            eating: Vec::new(),
            found: 0,
        }
    }

    /// Searches for something else from here on, also in held bytes.
    pub fn look_for(&mut self, redactor: Redactor) {
        self.redactor = redactor;
    }

    /// How many matches were covered.
    pub fn found(&self) -> u64 {
        self.found
    }

    /// Bytes held back and not shown.
    pub fn held(&self) -> usize {
        self.held.len() - self.shown.max(self.covered)
    }

    /// Bytes kept, shown or not, until it is decided what they begin.
    pub fn waiting(&self) -> usize {
        self.held.len()
    }

    /// Takes bytes; passes on those that can be shown now.
    pub fn push(&mut self, mut bytes: &[u8], sink: Sink<'_>) {
        if self.redactor.is_idle() && self.held.is_empty() {
            return sink(bytes);
        }
        while !bytes.is_empty() {
            let most = match self.held.is_empty() {
                true => PIECE_BYTES,
                false => STEP_BYTES.max(self.redactor.longest()),
            };
            let (piece, rest) = bytes.split_at(bytes.len().min(most));
            self.piece(piece, false, sink);
            bytes = rest;
        }
    }

    /// Shows held bytes. If they turn out to begin a match, the rest of it is covered all the same.
    /// A match that is complete if nothing more comes is covered now.
    pub fn lapse(&mut self, sink: Sink<'_>) {
        let found = self.redactor.index().scan(Text {
            bytes: &self.held,
            before: self.before,
            whole: true,
        });
        if !found.matches.is_empty() {
            return self.piece(&[], true, sink);
        }
        let from = self.shown.max(self.covered);
        if from < self.held.len() {
            sink(&self.held[from..]);
        }
        self.shown = self.held.len();
    }

    /// Ends the stream and passes on held bytes.
    pub fn finish(mut self, sink: Sink<'_>) {
        self.piece(&[], true, sink);
    }

    fn piece(&mut self, piece: &[u8], whole: bool, sink: Sink<'_>) {
        // Copy only what must be joined with held bytes.
        let mut held = std::mem::take(&mut self.held);
        let joined = match held.is_empty() {
            true => piece,
            false => {
                held.extend_from_slice(piece);
                &held
            }
        };
        let new = joined.len() - piece.len();
        self.eat_on(piece, new);
        let found = self.redactor.index().scan(Text {
            bytes: joined,
            before: self.before,
            whole,
        });
        let end = self.release(joined, found, sink);
        let kept = Zeroizing::new(joined[end..].to_vec());
        self.before = end
            .checked_sub(1)
            .map_or(self.before, |last| Some(joined[last]));
        self.held = kept;
    }

    /// Continues to cover a match of the previous piece.
    fn eat_on(&mut self, piece: &[u8], new: usize) {
        let mut reached = 0;
        self.eating.retain_mut(|eat| {
            let stop = piece.iter().position(|byte| !eat.takes(*byte));
            reached = reached.max(stop.unwrap_or(piece.len()));
            stop.is_none()
        });
        if reached > 0 {
            self.covered = self.covered.max(new + reached);
        }
    }

    /// Passes on everything before the first undecided position; returns that position.
    fn release(&mut self, text: &[u8], mut found: Found, sink: Sink<'_>) -> usize {
        let mut end = found.open;
        // A match recognized by something before `end` must be recognized again later, or be
        // covered now.
        while let Some(cut) = found
            .matches
            .iter()
            .find(|one| one.seen < end && one.from >= end)
        {
            end = cut.seen;
        }
        // Later bytes may be shown already and still be needed for recognition.
        let later = found.matches.iter().filter(|one| one.from >= end);
        let show = later.map(|one| one.from).fold(found.hidden, usize::min);
        found.matches.retain(|one| one.from < end);
        // Of matches that begin together the longest determines the marker; their continuation does
        // not count, because it may not be known yet.
        found
            .matches
            .sort_by_key(|one| (one.from, std::cmp::Reverse(one.to)));
        for one in &mut found.matches {
            self.eat_from(one, text);
        }
        let mut covered = self.covered;
        let mut at = self.shown;
        for one in &found.matches {
            if one.from >= covered {
                give(text, at.max(covered)..one.from, sink);
                sink(self.redactor.index().marker(one.marker));
                self.redactor.index().count(one.marker);
                self.found += 1;
            }
            covered = covered.max(one.to);
            at = at.max(covered);
        }
        let show = show.max(end);
        give(text, at.max(covered)..show, sink);
        self.covered = covered.saturating_sub(end);
        self.shown = at.max(show).saturating_sub(end);
        end
    }

    /// Extends a match as far as it goes; at the end of the text it continues in the next piece.
    fn eat_from(&mut self, one: &mut Match, text: &[u8]) {
        let Some(mut eat) = one.eat else { return };
        let rest = &text[one.to..];
        match rest.iter().position(|byte| !eat.takes(*byte)) {
            Some(stop) => one.to += stop,
            None => {
                one.to = text.len();
                self.eating.push(eat);
            }
        }
    }
}

fn give(text: &[u8], range: std::ops::Range<usize>, sink: Sink<'_>) {
    if range.start < range.end {
        sink(&text[range]);
    }
}
