//! The cache key of a build step: one hash of everything its result depends on.

use ring::hmac;

/// Raised when the same instructions produce a different result.
const REVISION: &str = "motu build 2";

/// A running hash over all steps up to and including this one. It is made with a secret of the cache:
/// it depends on values of secrets, and says nothing about them.
#[derive(Clone, Debug)]
pub(super) struct Key {
    secret: hmac::Key,
    text: String,
}

impl Key {
    /// The key at the start of a stage.
    pub(super) fn begin(secret: &[u8], owner: &str, parts: &[&[u8]]) -> Key {
        let begin = Key {
            secret: hmac::Key::new(hmac::HMAC_SHA256, secret),
            text: REVISION.to_string(),
        };
        begin.next(&[owner.as_bytes()]).next(parts)
    }

    /// Each part is hashed with its length, so that two parts cannot be confused with one.
    pub(super) fn next(&self, parts: &[&[u8]]) -> Key {
        let mut hash = hmac::Context::with_key(&self.secret);
        for part in [self.text.as_bytes()].iter().chain(parts) {
            hash.update(&(part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        let sum = hash.sign();
        Key {
            secret: self.secret.clone(),
            text: sum
                .as_ref()
                .iter()
                .map(|byte| format!("{byte:02x}"))
                .collect(),
        }
    }

    pub(super) fn as_str(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_caches_and_parts_make_keys() {
        let key = |secret: &[u8], owner: &str, parts: &[&[u8]]| {
            Key::begin(secret, owner, parts).as_str().to_string()
        };
        let all = [
            key(b"one", "project:acme", &[b"ab", b"c"]),
            key(b"one", "project:acme", &[b"a", b"bc"]),
            key(b"one", "project:beta", &[b"ab", b"c"]),
            key(b"two", "project:acme", &[b"ab", b"c"]),
            key(b"one", "project:acmeab", &[b"c"]),
        ];
        let mut different = all.to_vec();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), all.len());
        assert_eq!(key(b"one", "project:acme", &[b"ab", b"c"]), all[0]);
    }
}
