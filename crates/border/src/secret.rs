//! A secret that is bound to hosts, as the border knows it.

use ring::rand::{SecureRandom, SystemRandom};
use serde::{Deserialize, Serialize};
use std::fmt;
use zeroize::Zeroizing;

/// The prefix of every placeholder, by which people and programs recognize it.
pub const PLACEHOLDER: &str = "motu_placeholder_";

/// Text that is never printed, and zeroized on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct Value(Zeroizing<String>);

impl Value {
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Value(…)")
    }
}

impl Serialize for Value {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from).map(Self::new)
    }
}

/// One secret, for the hosts it is bound to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Secret {
    /// Its name, which is not confidential.
    pub name: String,
    /// The text that the sandbox has in its place.
    pub placeholder: String,
    pub value: Value,
    /// Whether placeholders in request bodies are replaced too.
    #[serde(default)]
    pub body: bool,
    /// An AWS secret access key. It is never sent: requests signed with the placeholder are signed
    /// again with it.
    #[serde(default)]
    pub aws: bool,
}

/// A new placeholder; `None` if there is no randomness.
pub fn placeholder() -> Option<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).ok()?;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Some(format!("{PLACEHOLDER}{hex}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_differ_and_values_are_not_printed() {
        let first = placeholder().unwrap();
        assert!(first.starts_with(PLACEHOLDER) && first.len() == PLACEHOLDER.len() + 32);
        assert_ne!(Some(first), placeholder());
        let secret = Secret {
            name: "key".to_owned(),
            placeholder: "p".to_owned(),
            value: Value::new("hunter2"),
            body: false,
            aws: false,
        };
        assert!(!format!("{secret:?}").contains("hunter2"));
    }
}
