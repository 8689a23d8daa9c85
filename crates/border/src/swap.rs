//! Replaces placeholders by values, encoded for their context.

use crate::place::Refusal;
use crate::secret::{PLACEHOLDER, Secret};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use memchr::memmem;
use zeroize::Zeroizing;

/// How a value is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Writing {
    /// Unchanged.
    Plain,
    /// Percent-encoded, for a query or a form.
    Percent,
    /// Escaped for a JSON string.
    Json,
}

/// Replaces placeholders, and records the secrets used.
#[derive(Debug)]
pub(crate) struct Swap<'a> {
    secrets: &'a [Secret],
    /// Only secrets that may be put into bodies.
    pub(crate) bodies: bool,
    pub(crate) used: Vec<String>,
}

impl<'a> Swap<'a> {
    pub(crate) fn new(secrets: &'a [Secret]) -> Self {
        Self {
            secrets,
            bodies: false,
            used: Vec::new(),
        }
    }

    /// The bytes with values inserted; `None` if there is no placeholder.
    pub(crate) fn bytes(
        &mut self,
        bytes: &[u8],
        writing: Writing,
        most: usize,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Refusal> {
        if memmem::find(bytes, PLACEHOLDER.as_bytes()).is_none() {
            return Ok(None);
        }
        let mut text: Option<Zeroizing<Vec<u8>>> = None;
        for secret in self.secrets {
            let fits = !secret.aws && (!self.bodies || secret.body);
            if !fits || secret.placeholder.is_empty() {
                continue;
            }
            let now: &[u8] = text.as_deref().map_or(bytes, Vec::as_slice);
            let finder = memmem::Finder::new(&secret.placeholder);
            let found = finder.find_iter(now).count();
            if found == 0 {
                continue;
            }
            let value = written(secret.value.as_str(), writing);
            if now.len().saturating_add(found.saturating_mul(value.len())) > most {
                return Err(Refusal::TooLarge);
            }
            let mut next = Zeroizing::new(Vec::with_capacity(now.len() + found * value.len()));
            let mut from = 0;
            for at in finder.find_iter(now) {
                next.extend_from_slice(&now[from..at]);
                next.extend_from_slice(&value);
                from = at + secret.placeholder.len();
            }
            next.extend_from_slice(&now[from..]);
            text = Some(next);
            if !self.used.contains(&secret.name) {
                self.used.push(secret.name.clone());
            }
        }
        Ok(text)
    }

    /// A header's value. `Basic` credentials are decoded first.
    pub(crate) fn header(
        &mut self,
        value: &[u8],
        most: usize,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Refusal> {
        if let Some(replaced) = self.bytes(value, Writing::Plain, most)? {
            return Ok(Some(replaced));
        }
        let Some((scheme, login)) = value.split_first_chunk::<6>() else {
            return Ok(None);
        };
        if !scheme.eq_ignore_ascii_case(b"basic ") {
            return Ok(None);
        }
        let login = login.trim_ascii();
        let decoded = STANDARD
            .decode(login)
            .or_else(|_| STANDARD_NO_PAD.decode(login));
        let Ok(decoded) = decoded.map(Zeroizing::new) else {
            return Ok(None);
        };
        let replaced = self.bytes(&decoded, Writing::Plain, most / 2)?;
        Ok(replaced.map(|login| {
            let mut text = Zeroizing::new(scheme.to_vec());
            text.extend_from_slice(Zeroizing::new(STANDARD.encode(&*login)).as_bytes());
            text
        }))
    }

    /// The target of a request: only its query is rewritten.
    pub(crate) fn target(
        &mut self,
        target: &[u8],
        most: usize,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, Refusal> {
        let Some(at) = memchr::memchr(b'?', target) else {
            return Ok(None);
        };
        let (path, query) = target.split_at(at);
        let replaced = self.bytes(query, Writing::Percent, most)?;
        Ok(replaced.map(|query| {
            let mut whole = Zeroizing::new(path.to_vec());
            whole.extend_from_slice(&query);
            whole
        }))
    }
}

/// Encodes a value for its context.
fn written(value: &str, writing: Writing) -> Zeroizing<Vec<u8>> {
    let mut out = Zeroizing::new(Vec::with_capacity(value.len()));
    for byte in value.bytes() {
        match writing {
            Writing::Plain => out.push(byte),
            Writing::Percent if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) => {
                out.push(byte);
            }
            Writing::Percent => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
            Writing::Json if matches!(byte, b'"' | b'\\') => out.extend([b'\\', byte]),
            Writing::Json if byte < b' ' => {
                out.extend_from_slice(format!("\\u{byte:04x}").as_bytes());
            }
            Writing::Json => out.push(byte),
        }
    }
    out
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::secret::Value;

    pub(crate) const PLACE: &str = "motu_placeholder_00112233445566778899aabbccddeeff";

    pub(crate) fn secret(value: &str) -> Secret {
        Secret {
            name: "key".to_owned(),
            placeholder: PLACE.to_owned(),
            value: Value::new(value),
            body: false,
            aws: false,
        }
    }

    #[test]
    fn values_are_written_as_their_place_wants_them() {
        let secrets = [secret("a\"b&c d")];
        let mut swap = Swap::new(&secrets);
        let all = |swap: &mut Swap<'_>, writing| {
            let text = format!("x={PLACE}&y={PLACE}");
            let found = swap.bytes(text.as_bytes(), writing, 1000).unwrap().unwrap();
            String::from_utf8(found.to_vec()).unwrap()
        };
        assert_eq!(all(&mut swap, Writing::Plain), "x=a\"b&c d&y=a\"b&c d");
        assert_eq!(
            all(&mut swap, Writing::Percent),
            "x=a%22b%26c%20d&y=a%22b%26c%20d"
        );
        assert_eq!(all(&mut swap, Writing::Json), "x=a\\\"b&c d&y=a\\\"b&c d");
        assert_eq!(swap.used, ["key"]);
        let path = format!("/{PLACE}/x");
        assert_eq!(swap.target(path.as_bytes(), 1000).unwrap(), None);
    }

    #[test]
    fn basic_is_looked_into() {
        let secrets = [secret("hunter2")];
        let mut swap = Swap::new(&secrets);
        let given = format!("Basic {}", STANDARD.encode(format!("me:{PLACE}")));
        let found = swap.header(given.as_bytes(), 1000).unwrap().unwrap();
        let wanted = format!("Basic {}", STANDARD.encode("me:hunter2"));
        assert_eq!(*found, wanted.into_bytes());
        assert_eq!(swap.header(b"Basic !!!", 1000).unwrap(), None);
        assert_eq!(swap.header(b"Basi", 1000).unwrap(), None);
    }

    #[test]
    fn growth_is_bounded() {
        let secrets = [secret(&"x".repeat(1000))];
        let text = PLACE.repeat(100);
        let grown = Swap::new(&secrets).bytes(text.as_bytes(), Writing::Plain, 50_000);
        assert_eq!(grown, Err(Refusal::TooLarge));
    }

    #[test]
    fn a_key_of_aws_is_never_sent() {
        let secrets = [Secret {
            aws: true,
            ..secret("hunter2")
        }];
        let found = Swap::new(&secrets).header(PLACE.as_bytes(), 1000);
        assert_eq!(found.unwrap(), None);
    }
}
