//! Keeps secrets out of everything that is stored or shown of a session.
//!
//! Passwords that were sent are searched for in the output before anything else sees it. A long
//! secret is watched for the life of the session; a short one, which would hide ordinary words,
//! only for a while after it was sent. `motu_redaction` does the search; this module handles the
//! timing.

use crate::limits::{SECRET_BYTES, SECRETS, SHORT_SECRET_BYTES};
use motu_redaction::{Forms, Known, Patterns, Redactor as Search, Stream};
use std::time::Duration;
use zeroize::Zeroizing;

/// The replacement of a secret.
pub const REDACTED: &[u8] = b"[redacted]";
/// How long a short secret is watched for.
pub const SHORT_WINDOW: Duration = Duration::from_secs(10);
/// How long the possible start of a secret is held back.
pub const HOLD: Duration = Duration::from_millis(100);
/// The same for a possible well-known credential, if no secret is watched.
pub const CREDENTIAL_HOLD: Duration = Duration::from_millis(500);
/// How long a start of [`SLOW_BYTES`] or more is held back: a secret may be printed slowly.
pub const SLOW_HOLD: Duration = Duration::from_secs(10);
const SLOW_BYTES: usize = 3;

/// Values that must never be shown, by name.
pub type Values = std::sync::Arc<Vec<(String, Zeroizing<String>)>>;

struct Secret {
    bytes: Zeroizing<Vec<u8>>,
    until: Option<Duration>,
}

/// A filter over a byte stream.
pub struct Redactor {
    patterns: Patterns,
    values: Values,
    secrets: Vec<Secret>,
    search: Search,
    stream: Stream,
    held_since: Duration,
}

impl Default for Redactor {
    fn default() -> Redactor {
        Redactor::new(Patterns::none(), Values::default())
    }
}

impl std::fmt::Debug for Redactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Redactor({} secrets)", self.secrets.len())
    }
}

impl Redactor {
    /// A redactor for well-known credentials, values, and secrets added later.
    pub fn new(patterns: Patterns, values: Values) -> Redactor {
        let search = Search::idle();
        let mut redactor = Redactor {
            patterns,
            values,
            secrets: Vec::new(),
            stream: search.stream(),
            search,
            held_since: Duration::ZERO,
        };
        redactor.look_anew();
        redactor
    }

    /// Watches for `secret` from `now` on. False if it is too long or there are too many.
    pub fn watch(&mut self, secret: &[u8], now: Duration) -> bool {
        if secret.is_empty() || secret.len() > SECRET_BYTES {
            return secret.is_empty();
        }
        self.expire(now);
        self.secrets.retain(|known| *known.bytes != secret);
        let free = self.secrets.len() < SECRETS;
        if free {
            let until = (secret.len() < SHORT_SECRET_BYTES).then_some(now + SHORT_WINDOW);
            self.secrets.push(Secret {
                bytes: Zeroizing::new(secret.to_vec()),
                until,
            });
        }
        self.look_anew();
        free
    }

    /// Stops watching for a secret.
    pub fn forget(&mut self, secret: &[u8]) {
        let before = self.secrets.len();
        self.secrets.retain(|known| *known.bytes != secret);
        if self.secrets.len() < before {
            self.look_anew();
        }
    }

    /// How many secrets were replaced.
    pub fn found(&self) -> u64 {
        self.stream.found()
    }

    fn expire(&mut self, now: Duration) {
        let before = self.secrets.len();
        self.secrets
            .retain(|secret| secret.until.is_none_or(|until| now < until));
        if self.secrets.len() < before {
            self.look_anew();
        }
    }

    fn look_anew(&mut self) {
        let known = self.secrets.iter().map(|secret| Known {
            name: None,
            value: &secret.bytes,
            // Encoded forms of a short secret would hide too much.
            forms: match secret.until {
                None => Forms::All,
                Some(_) => Forms::Plain,
            },
        });
        let values = self.values.iter().map(|(name, value)| Known {
            name: Some(name),
            value: value.as_bytes(),
            forms: Forms::All,
        });
        self.search = Search::new(values.chain(known), &self.patterns);
        self.stream.look_for(self.search.clone());
    }

    /// Passes on the next bytes, as far as they may be shown.
    pub fn push(&mut self, bytes: &[u8], now: Duration, sink: &mut dyn FnMut(&[u8])) {
        self.expire(now);
        self.stream.push(bytes, sink);
        self.held_since = now;
    }

    /// Releases bytes that were held for too long. Returns the next check. If the rest of the
    /// secret comes after all, that part is redacted.
    pub fn tick(&mut self, now: Duration, sink: &mut dyn FnMut(&[u8])) -> Option<Duration> {
        let until = self.held_until()?;
        if now < until {
            return Some(until);
        }
        self.stream.lapse(sink);
        None
    }

    /// Redacts text that does not come from the terminal.
    pub fn scrub(&self, text: &str) -> String {
        self.search.text(text)
    }

    /// Bytes held back.
    pub fn held(&self) -> usize {
        self.stream.held()
    }

    /// When held bytes are released. A letter or two may be the start of anything; what looks more
    /// like a secret is held longer.
    pub fn held_until(&self) -> Option<Duration> {
        let hold = match self.stream.waiting() {
            ..SLOW_BYTES => HOLD,
            _ if self.secrets.is_empty() && self.values.is_empty() => CREDENTIAL_HOLD,
            _ => SLOW_HOLD,
        };
        (self.held() > 0).then_some(self.held_since + hold)
    }

    /// The longest that anything is kept back.
    pub fn longest_hold() -> Duration {
        SLOW_HOLD
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
        // The replacement itself is not searched.
        redactor.watch(b"redacted", at(0));
        assert_eq!(redactor.scrub("a hunter22"), "a [redacted]");
        assert_eq!(redactor.scrub("is redacted"), "is [redacted]");
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

    #[test]
    fn well_known_credentials_are_covered_where_that_is_asked_for() {
        let token = format!("npm_{}", "a1".repeat(18));
        let line = format!("token={token}\r\n");
        for (patterns, shown) in [
            (Patterns::none(), line.as_str()),
            (Patterns::all(), "token=npm_[redacted npm-token]\r\n"),
        ] {
            let mut redactor = Redactor::new(patterns, Values::default());
            let mut out = Vec::new();
            redactor.push(line.as_bytes(), at(0), &mut |bytes| {
                out.extend_from_slice(bytes)
            });
            assert_eq!(String::from_utf8_lossy(&out), shown);
        }
        // An incomplete one is shown after a moment.
        let mut redactor = Redactor::new(Patterns::all(), Values::default());
        let mut out = Vec::new();
        redactor.push(b"see npm_abc", at(0), &mut |bytes| {
            out.extend_from_slice(bytes)
        });
        assert_eq!(out, b"see npm_");
        redactor.tick(CREDENTIAL_HOLD, &mut |bytes| out.extend_from_slice(bytes));
        assert_eq!(out, b"see npm_abc");
    }
}
