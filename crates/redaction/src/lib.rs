//! Redacts secrets from everything that is shown.
//!
//! ```text
//!   forms     the ways a known value may appear: plain, base64, hex, URL-encoded, reversed, …
//!   eat       how a credential goes on once it is recognised
//!   kinds     well-known credentials, and how each is recognised
//!   patterns  which of them are looked for
//!   index     values and kinds, found by four bytes of their beginning
//!   stream    bytes in, bytes out: holds back only what may be the beginning of something
//! ```
//!
//! A [`Redactor`] knows what to search for, a [`Stream`] redacts one stream. The result does not
//! depend on how a stream is split into chunks. Memory is bounded: at most the longest form of a
//! value, or [`kinds::HOLD_BYTES`], is held back.
//!
//! Redaction is a safety net, not a security boundary: a program that wants to show a value can
//! encode it in a way that is not searched for.

mod eat;
mod forms;
mod index;
pub mod kinds;
mod patterns;
mod stream;

pub use forms::MIN_REDACTED_BYTES;
pub use patterns::{Patterns, UnknownKind};
pub use stream::Stream;

use index::Index;
use std::sync::Arc;

/// A value to redact.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// Names the replacement: `[redacted NAME]`, or `[redacted]` without a name.
    pub name: Option<&'a str>,
    pub value: &'a [u8],
    pub forms: Forms,
}

/// The forms of a value that are searched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forms {
    /// All of them. A value shorter than [`MIN_REDACTED_BYTES`] has none: hiding every `a` would
    /// destroy the output and reveal the value anyway.
    All,
    /// The value itself, of any length.
    Plain,
}

impl std::fmt::Debug for Known<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Known({:?})", self.name)
    }
}

/// Knows what to redact. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Redactor {
    index: Arc<Index>,
}

impl Redactor {
    pub fn new<'a>(known: impl IntoIterator<Item = Known<'a>>, patterns: &Patterns) -> Redactor {
        let index = Arc::new(Index::new(known, patterns));
        Redactor { index }
    }

    /// A redactor that changes nothing.
    pub fn idle() -> Redactor {
        Redactor::new([], &Patterns::none())
    }

    /// Whether it searches for nothing.
    pub fn is_idle(&self) -> bool {
        self.index.is_empty()
    }

    /// Most bytes that a stream holds back.
    pub fn longest(&self) -> usize {
        self.index.longest()
    }

    /// Starts on a stream of bytes.
    pub fn stream(&self) -> Stream {
        Stream::new(self.clone())
    }

    /// Redacts complete bytes.
    pub fn redact(&self, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len());
        let mut stream = self.stream();
        stream.push(bytes, &mut |piece| out.extend_from_slice(piece));
        stream.finish(&mut |piece| out.extend_from_slice(piece));
        out
    }

    /// Redacts a complete text.
    pub fn text(&self, text: &str) -> String {
        match self.is_idle() {
            true => text.to_string(),
            false => String::from_utf8_lossy(&self.redact(text.as_bytes())).into_owned(),
        }
    }

    pub(crate) fn index(&self) -> &Index {
        &self.index
    }
}

#[cfg(test)]
mod tests;
