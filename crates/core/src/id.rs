//! Identifiers, parsed once.

use crate::Error;
use crate::hint;
use crate::hint::verb;
use serde::{Deserialize, Serialize};
use std::fmt;

const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// The name of one sandbox: `sb-` and twelve random characters, or a name the
/// caller chose. It is safe as a file name, a hostname and a cgroup name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[schema(value_type = String, example = "sb-3f9k2m7qx0ab")]
pub struct SandboxId(String);

impl SandboxId {
    /// Characters in the longest id.
    pub const MAX_LEN: usize = 48;

    /// A fresh id.
    pub fn generate() -> SandboxId {
        SandboxId(format!("sb-{}", random_name(12)))
    }

    /// Accepts `[a-z0-9][a-z0-9-]*`, not ending in a dash.
    pub fn parse(text: &str) -> Result<SandboxId, Error> {
        let ok = !text.is_empty()
            && text.len() <= Self::MAX_LEN
            && text
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
            && !text.starts_with('-')
            && !text.ends_with('-');
        if ok {
            Ok(SandboxId(text.to_string()))
        } else {
            Err(
                Error::invalid(format!("{:?} is not a sandbox id", Shown(text))).hint(hint![
                    format!(
                        "ids are 1 to {} characters of a-z, 0-9 and '-'; ",
                        Self::MAX_LEN
                    ),
                    verb("list_sandboxes"),
                    " lists them",
                ]),
            )
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for SandboxId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        SandboxId::parse(&text).map_err(serde::de::Error::custom)
    }
}

/// Foreign text in a message: cut to a length a person reads.
struct Shown<'a>(&'a str);

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&crate::shown::quoted(self.0, 60), f)
    }
}

/// Random lower-case characters for names (five bits each).
pub fn random_name(length: usize) -> String {
    let mut bytes = vec![0u8; length];
    getrandom::fill(&mut bytes).expect("the kernel's random source always answers");
    bytes
        .iter()
        .map(|byte| ALPHABET[(byte & 31) as usize] as char)
        .collect()
}

/// Random digits of base 16, for names whose shape others have laid down.
pub fn random_hex(length: usize) -> String {
    let mut bytes = vec![0u8; length];
    getrandom::fill(&mut bytes).expect("the kernel's random source always answers");
    bytes
        .iter()
        .map(|byte| char::from(b"0123456789abcdef"[(byte & 15) as usize]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn generated_ids_parse() {
        let id = SandboxId::generate();
        assert_eq!(SandboxId::parse(id.as_str()).unwrap(), id);
    }

    proptest! {
        #[test]
        fn an_accepted_id_is_a_plain_file_name(text in ".{0,60}") {
            if let Ok(id) = SandboxId::parse(&text) {
                prop_assert!(!id.as_str().contains(['/', '.', '\0', '\n']));
                prop_assert!(id.as_str().len() <= 48);
            }
        }
    }
}
