//! Paths, bytes and permission bits as text.

use super::GuestPath;
use crate::Error;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// Base64 that survives in a query: URL-safe or not, padded or not.
pub fn decode_base64(text: &str) -> Result<Bytes, Error> {
    let plain: String = text
        .trim_end_matches('=')
        .chars()
        .map(|c| match c {
            '-' => '+',
            '_' => '/',
            // A plus sign that a query decoder has taken for a space.
            ' ' => '+',
            other => other,
        })
        .collect();
    let bytes = STANDARD_NO_PAD.decode(plain);
    bytes
        .map(Bytes::from)
        .map_err(|_| Error::invalid("the base64 cannot be read"))
}

pub fn encode_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Permission bits in octal.
pub fn parse_mode(text: &str) -> Result<u32, Error> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777)
        .ok_or_else(|| Error::invalid("the mode is not octal").hint("such as 0644 or 0755"))
}

pub fn format_mode(mode: u32) -> String {
    format!("{mode:04o}")
}

/// A path that is not UTF-8 is written as a NUL, which no path contains, and its base64. The
/// edges of the API give it a field of its own instead.
impl Serialize for GuestPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(self.as_bytes()) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => serializer.serialize_str(&format!("\0{}", encode_base64(self.as_bytes()))),
        }
    }
}

impl<'de> Deserialize<'de> for GuestPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<GuestPath, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = match text.strip_prefix('\0') {
            Some(base64) => decode_base64(base64).map_err(de::Error::custom)?,
            None => Bytes::from(text),
        };
        GuestPath::new(bytes).map_err(de::Error::custom)
    }
}

/// Permission bits as a field.
pub mod octal {
    use super::*;

    pub fn serialize<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format_mode(*mode))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse_mode(&text).map_err(de::Error::custom)
    }
}

/// Permission bits as a field that may be missing.
pub mod octal_option {
    use super::*;

    pub fn serialize<S: Serializer>(mode: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        mode.map(format_mode).serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u32>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let mode = text.as_deref().map(parse_mode).transpose();
        mode.map_err(de::Error::custom)
    }
}

/// Bytes as a field that may be missing, in base64.
pub mod base64_option {
    use super::*;

    pub fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let text = bytes.as_ref().map(|bytes| encode_base64(bytes));
        text.serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Bytes>, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?;
        let bytes = text.as_deref().map(decode_base64).transpose();
        bytes.map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal() {
        assert_eq!(parse_mode("0644"), Ok(0o644));
        assert_eq!(parse_mode("755"), Ok(0o755));
        assert_eq!(parse_mode(&format_mode(0o1777)), Ok(0o1777));
        for text in ["", "0899", "77777", "-1"] {
            assert!(parse_mode(text).is_err(), "{text}");
        }
    }

    #[test]
    fn base64_has_many_hands() {
        assert_eq!(
            decode_base64("-_8").unwrap(),
            decode_base64("+/8=").unwrap()
        );
        assert_eq!(
            decode_base64(" /8").unwrap(),
            decode_base64("+/8=").unwrap()
        );
    }

    #[test]
    fn every_path_survives_as_text() {
        for bytes in [&b"/a"[..], b"/a\xff", b"/\xc3\xa9"] {
            let path = GuestPath::new(Bytes::copy_from_slice(bytes)).unwrap();
            let text = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<GuestPath>(&text).unwrap(), path);
        }
        for text in ["\"\"", "\"a\"", "\"\\u0000!!\"", "\"/a\\u0000\""] {
            assert!(serde_json::from_str::<GuestPath>(text).is_err(), "{text}");
        }
    }
}
