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
/// How long a beginning of [`SLOW_BYTES`] or more is kept back: a secret may be printed slowly.
pub const SLOW_HOLD: Duration = Duration::from_secs(10);
const SLOW_BYTES: usize = 3;

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
    /// The end of the stream that may be the beginning of a secret, and how much of it was shown.
    held: Vec<u8>,
    shown: usize,
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

    /// Watches for it no longer.
    pub fn forget(&mut self, secret: &[u8]) {
        self.secrets.retain(|known| known.bytes != secret);
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
        self.held.extend_from_slice(bytes);
        let mut rest = std::mem::take(&mut self.held);
        let mut shown = std::mem::take(&mut self.shown);
        while let Some((at, len)) = self.first(&rest) {
            sink(&rest[shown.min(at)..at]);
            sink(REDACTED);
            self.found += 1;
            rest.drain(..at + len);
            shown = 0;
        }
        let free = rest.len() - self.unfinished(&rest);
        sink(&rest[shown.min(free)..free]);
        rest.drain(..free);
        self.shown = shown.saturating_sub(free);
        self.held = rest;
        self.held_since = now;
    }

    /// Shows what has been kept back for too long. Returns when to look again. If the rest of the
    /// secret comes after all, that is not shown.
    pub fn tick(&mut self, now: Duration, sink: &mut dyn FnMut(&[u8])) -> Option<Duration> {
        let until = self.held_until()?;
        if now < until {
            return Some(until);
        }
        sink(&self.held[self.shown..]);
        self.shown = self.held.len();
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
        self.held.len() - self.shown
    }

    /// When what is kept back is to be shown. A letter or two may be the beginning of anything; what
    /// looks more like a secret has time to become one.
    pub fn held_until(&self) -> Option<Duration> {
        let hold = match self.held.len() {
            ..SLOW_BYTES => HOLD,
            _ => SLOW_HOLD,
        };
        (self.held() > 0).then_some(self.held_since + hold)
    }

    /// The longest that anything is kept back.
    pub fn longest_hold() -> Duration {
        SLOW_HOLD
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

    #[test]
    fn a_secret_that_is_printed_slowly_does_not_come_through() {
        for pause in [10, 150, 3000] {
            let mut redactor = Redactor::default();
            redactor.watch(b"hunter22", at(0));
            let mut out = Vec::new();
            let mut now = 0;
            for byte in b"it is hunter22, and hunter is not" {
                now += pause;
                redactor.tick(at(now), &mut |bytes| out.extend_from_slice(bytes));
                redactor.push(&[*byte], at(now), &mut |bytes| out.extend_from_slice(bytes));
            }
            redactor.tick(at(now + 60_000), &mut |bytes| out.extend_from_slice(bytes));
            let out = String::from_utf8(out).unwrap();
            assert!(!out.contains("er22"), "{out}");
            assert!(out.contains("[redacted], and"), "{out}");
            assert!(out.ends_with("hunter is not"), "{out}");
        }
    }

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
