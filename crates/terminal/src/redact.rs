//! Keeps secrets out of everything that is kept or shown.
//!
//! What was sent as a password is looked for in the output before anything else
//! sees it. A long secret is watched for as long as the session lives; a short
//! one, which would hide ordinary words, only for a while after it was sent.

use crate::limits::{SECRET_BYTES, SECRETS, SHORT_SECRET_BYTES};
use std::time::Duration;

/// What stands in place of a secret.
pub const REDACTED: &[u8] = b"[redacted]";
/// How long a short secret is watched for.
pub const SHORT_WINDOW: Duration = Duration::from_secs(10);
/// How long the beginning of what may be a secret is kept back before it is shown after all.
pub const HOLD: Duration = Duration::from_millis(100);

struct Secret {
    bytes: Vec<u8>,
    until: Option<Duration>,
}

impl Drop for Secret {
    fn drop(&mut self) {
        // The value should not outlive its use in memory that is handed on.
        self.bytes.fill(0);
        std::hint::black_box(&self.bytes);
    }
}

/// A filter over a byte stream.
#[derive(Default)]
pub struct Redactor {
    secrets: Vec<Secret>,
    held: Vec<u8>,
    held_since: Duration,
    found: u64,
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

impl Redactor {
    /// Watches for `secret` from `now` on. False when it is too long or there are too many.
    pub fn watch(&mut self, secret: &[u8], now: Duration) -> bool {
        if secret.is_empty() || secret.len() > SECRET_BYTES {
            return secret.is_empty();
        }
        self.expire(now);
        self.secrets.retain(|known| known.bytes != secret);
        if self.secrets.len() >= SECRETS {
            return false;
        }
        let until = (secret.len() < SHORT_SECRET_BYTES).then_some(now + SHORT_WINDOW);
        self.secrets.push(Secret {
            bytes: secret.to_vec(),
            until,
        });
        true
    }

    /// How often a secret was found and replaced.
    pub fn found(&self) -> u64 {
        self.found
    }

    fn expire(&mut self, now: Duration) {
        self.secrets
            .retain(|secret| secret.until.is_none_or(|until| now < until));
    }

    /// The next bytes, as far as they may be shown.
    pub fn push(&mut self, bytes: &[u8], now: Duration, sink: &mut dyn FnMut(&[u8])) {
        self.expire(now);
        if self.secrets.is_empty() && self.held.is_empty() {
            sink(bytes);
            return;
        }
        if self.held.is_empty() {
            self.held_since = now;
        }
        self.held.extend_from_slice(bytes);
        let mut rest = std::mem::take(&mut self.held);
        while let Some((at, len)) = self.first(&rest) {
            sink(&rest[..at]);
            sink(REDACTED);
            self.found += 1;
            rest.drain(..at + len);
            self.held_since = now;
        }
        let keep = self.unfinished(&rest);
        sink(&rest[..rest.len() - keep]);
        if keep < rest.len() {
            self.held_since = now;
        }
        rest.drain(..rest.len() - keep);
        self.held = rest;
    }

    /// Shows what has been kept back for too long. Returns when to look again.
    pub fn tick(&mut self, now: Duration, sink: &mut dyn FnMut(&[u8])) -> Option<Duration> {
        if self.held.is_empty() {
            return None;
        }
        if now < self.held_since + HOLD {
            return Some(self.held_since + HOLD);
        }
        sink(&std::mem::take(&mut self.held));
        None
    }

    /// Text with the secrets taken out, for what does not come from the terminal.
    pub fn scrub(&self, text: &str) -> String {
        let mut bytes = text.as_bytes().to_vec();
        while let Some((at, len)) = self.first(&bytes) {
            bytes.splice(at..at + len, REDACTED.iter().copied());
            if self.first(REDACTED).is_some() {
                // A secret that is part of the replacement would be found for ever.
                return String::from_utf8_lossy(REDACTED).into_owned();
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Bytes that are kept back.
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// When what is kept back is to be shown.
    pub fn held_until(&self) -> Option<Duration> {
        (!self.held.is_empty()).then_some(self.held_since + HOLD)
    }

    /// The first and longest occurrence.
    fn first(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        self.secrets
            .iter()
            .filter_map(|secret| {
                let at = memchr::memmem::find(bytes, &secret.bytes)?;
                Some((at, secret.bytes.len()))
            })
            .min_by_key(|&(at, len)| (at, usize::MAX - len))
    }

    /// Bytes at the end that may be the beginning of a secret.
    fn unfinished(&self, bytes: &[u8]) -> usize {
        let longest = |secret: &Secret| {
            (1..secret.bytes.len().min(bytes.len() + 1))
                .rev()
                .find(|&len| bytes.ends_with(&secret.bytes[..len]))
                .unwrap_or(0)
        };
        self.secrets.iter().map(longest).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn a_secret_never_comes_through_at_any_cut() {
        let stream = b"login: hunter22\r\nhunter2 is not it, hunter22hunter22";
        for cut in 0..stream.len() {
            let mut redactor = Redactor::default();
            assert!(redactor.watch(b"hunter22", at(0)));
            let mut out = Vec::new();
            for part in [&stream[..cut], &stream[cut..]] {
                redactor.push(part, at(1), &mut |bytes| out.extend_from_slice(bytes));
            }
            redactor.tick(at(1000), &mut |bytes| out.extend_from_slice(bytes));
            assert_eq!(
                String::from_utf8_lossy(&out),
                "login: [redacted]\r\nhunter2 is not it, [redacted][redacted]",
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn text_of_ours_is_scrubbed_too() {
        let mut redactor = Redactor::default();
        redactor.watch(b"hunter22", at(0));
        assert_eq!(
            redactor.scrub("mysql -phunter22 -x"),
            "mysql -p[redacted] -x"
        );
        redactor.watch(b"redacted", at(0));
        assert_eq!(redactor.scrub("a hunter22"), "[redacted]");
    }

    #[test]
    fn what_only_looks_like_a_beginning_is_shown_after_a_moment() {
        let mut redactor = Redactor::default();
        redactor.watch(b"secret-value", at(0));
        let mut out = Vec::new();
        redactor.push(b"prompt s", at(5), &mut |bytes| {
            out.extend_from_slice(bytes)
        });
        assert_eq!(out, b"prompt ");
        assert_eq!(
            redactor.tick(at(50), &mut |_| unreachable!()),
            Some(at(105))
        );
        assert_eq!(
            redactor.tick(at(105), &mut |bytes| out.extend_from_slice(bytes)),
            None
        );
        assert_eq!(out, b"prompt s");
    }

    #[test]
    fn a_short_secret_is_only_watched_for_a_while() {
        let mut redactor = Redactor::default();
        redactor.watch(b"1234", at(0));
        let mut out = Vec::new();
        redactor.push(b"1234 ", at(10), &mut |bytes| out.extend_from_slice(bytes));
        redactor.push(b"1234 ", at(10_001), &mut |bytes| {
            out.extend_from_slice(bytes)
        });
        assert_eq!(out, b"[redacted] 1234 ");
    }
}
