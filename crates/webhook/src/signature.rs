//! The signature of what is sent: HMAC-SHA-256 over id, time and body.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use motu_core::{Error, Result, limits};
use ring::hmac;
use std::fmt;
use std::io::Read as _;
use std::path::Path;

/// How secrets in base64 begin.
const ENCODED: &str = "whsec_";

/// What signs. Never shown.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Reads a secret from its file: one line of text, or `whsec_` and base64.
    pub fn read(path: &Path) -> Result<Secret> {
        let wrong = |why: String| {
            Error::invalid(format!(
                "config.toml: [webhook] secret_file {}: {why}",
                path.display()
            ))
            .hint("a file with one line of at least 16 random characters that this daemon may read")
        };
        let file = std::fs::File::open(path).map_err(|error| wrong(error.to_string()))?;
        let limit = limits::WEBHOOK_SECRET_BYTES;
        let mut bytes = Vec::new();
        file.take(limit.max + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| wrong(error.to_string()))?;
        Secret::parse(&bytes).map_err(|why| wrong(why.to_string()))
    }

    fn parse(bytes: &[u8]) -> std::result::Result<Secret, &'static str> {
        let limit = limits::WEBHOOK_SECRET_BYTES;
        if bytes.len() as u64 > limit.max {
            return Err("longer than webhook_secret_bytes");
        }
        let text = bytes.trim_ascii();
        let secret = match text.strip_prefix(ENCODED.as_bytes()) {
            Some(encoded) => STANDARD
                .decode(encoded)
                .map_err(|_| "what follows whsec_ is not base64")?,
            None => text.to_vec(),
        };
        if (secret.len() as u64) < limit.min {
            return Err("shorter than 16 bytes, which could be guessed");
        }
        Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, &secret)))
    }
}

/// The header that proves a message: `v1,` and base64.
pub fn sign(secret: &Secret, id: &str, time: &str, body: &[u8]) -> String {
    let mut message = format!("{id}.{time}.").into_bytes();
    message.extend_from_slice(body);
    let tag = hmac::sign(&secret.0, &message);
    format!("v1,{}", STANDARD.encode(tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_that_of_the_specification() {
        // The example of the specification, computed with `openssl dgst -mac hmac`.
        let secret = Secret::parse(b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").unwrap();
        let body = br#"{"test": 2432232314}"#;
        let signed = sign(&secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", body);
        assert_eq!(signed, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_long_enough_to_be_one() {
        for wrong in [
            "",
            "short",
            "whsec_!!!!",
            "whsec_c2hvcnQ=",
            &"x".repeat(5000),
        ] {
            assert!(Secret::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
        assert!(Secret::parse(b"0123456789abcdef\n").is_ok());
        let shown = format!("{:?}", Secret::parse(b"0123456789abcdef").unwrap());
        assert!(!shown.contains("0123"), "{shown}");
    }
}
