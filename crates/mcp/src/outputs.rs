//! The whole of outputs that were cut, for a while.
//!
//! A machine that is thrown away takes its output with it, so the part that did not fit an
//! answer is kept here: bounded, the oldest goes first, gone with this process.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes kept of one channel of one command.
pub const KEPT_PER_CHANNEL: usize = KEPT / 4;
/// Bytes kept of all commands.
const KEPT: usize = motu_core::limits::MCP_OUTPUTS_BYTES.default as usize;

/// A bounded shelf of outputs.
#[derive(Debug, Default)]
pub struct Outputs(Mutex<Shelf>);

#[derive(Debug, Default)]
struct Shelf {
    bytes: usize,
    kept: VecDeque<(String, Arc<str>)>,
}

impl Outputs {
    /// Keeps a text and answers with its handle, which nobody can guess.
    pub fn keep(&self, text: String) -> String {
        let handle = format!("o-{}", motu_core::id::random_name(16));
        let mut shelf = self.shelf();
        shelf.bytes += text.len();
        shelf.kept.push_back((handle.clone(), text.into()));
        while shelf.bytes > KEPT && shelf.kept.len() > 1 {
            if let Some((_, oldest)) = shelf.kept.pop_front() {
                shelf.bytes -= oldest.len();
            }
        }
        handle
    }

    pub fn find(&self, handle: &str) -> Option<Arc<str>> {
        let shelf = self.shelf();
        let found = shelf.kept.iter().find(|(name, _)| name == handle);
        found.map(|(_, text)| text.clone())
    }

    /// Handles and sizes, the newest first.
    pub fn list(&self) -> Vec<(String, usize)> {
        let shelf = self.shelf();
        let all = shelf.kept.iter().rev();
        all.map(|(name, text)| (name.clone(), text.len())).collect()
    }

    fn shelf(&self) -> std::sync::MutexGuard<'_, Shelf> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_goes_first() {
        let outputs = Outputs::default();
        let first = outputs.keep("a".repeat(KEPT / 2));
        let second = outputs.keep("b".repeat(KEPT / 2));
        assert!(outputs.find(&first).is_some());
        let third = outputs.keep("c".to_string());
        assert!(outputs.find(&first).is_none());
        assert!(outputs.find(&second).is_some());
        assert_eq!(outputs.find(&third).as_deref(), Some("c"));
        assert_eq!(outputs.list()[0], (third, 1));
    }
}
