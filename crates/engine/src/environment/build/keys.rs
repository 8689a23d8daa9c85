//! What the result of a step depends on, as one hash.

use sha2::{Digest, Sha256};

/// Raised when the same instructions would make something else.
const REVISION: &str = "motu build 1";

/// All that came before a step, and then the step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key(String);

impl Key {
    /// Where a stage begins.
    pub(super) fn begin(parts: &[&[u8]]) -> Key {
        Key(REVISION.to_string()).next(parts)
    }

    /// Each part counts with its length, so that parts cannot run into each other.
    pub(super) fn next(&self, parts: &[&[u8]]) -> Key {
        let mut hash = Sha256::new();
        for part in [self.0.as_bytes()].iter().chain(parts) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Key(hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}
