//! The cache key of a build step: one hash of everything its result depends on.

use sha2::{Digest, Sha256};

/// Raised when the same instructions produce a different result.
const REVISION: &str = "motu build 1";

/// A running hash over all steps up to and including this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key(String);

impl Key {
    /// The key at the start of a stage.
    pub(super) fn begin(parts: &[&[u8]]) -> Key {
        Key(REVISION.to_string()).next(parts)
    }

    /// Each part is hashed with its length, so that two parts cannot be confused with one.
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
