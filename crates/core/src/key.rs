//! Keys: how callers of other hosts say who they are.
//!
//! A key is `motu_`, its public id, `_` and 256 random bits. The host keeps the SHA-256 of the
//! whole and compares that; what was shown once cannot be shown again.

use crate::ask::{Ask, Part};
use crate::bounds::Bounds;
use crate::hint;
use crate::hint::verb;
use crate::project::Project;
use crate::{Error, ErrorKind, Result};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What every key begins with.
pub const PREFIX: &str = "motu_";
/// Characters of the public part.
const ID_CHARS: usize = 12;
/// Hexadecimal digits of the secret part.
const SECRET_CHARS: usize = 64;

/// The public part of a key, by which it is found.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[schema(value_type = String, example = "3f9k2m7qx0ab")]
pub struct KeyId(String);

impl KeyId {
    pub fn generate() -> KeyId {
        KeyId(crate::id::random_name(ID_CHARS))
    }

    pub fn parse(text: &str) -> Result<KeyId> {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        match text.len() == ID_CHARS && text.bytes().all(plain) {
            true => Ok(KeyId(text.to_string())),
            // A whole key may have been given: nothing of it is repeated.
            false => Err(Error::invalid("that is not the id of a key").hint(hint![
                format!("ids have {ID_CHARS} characters; "),
                verb("list_keys"),
                " shows them"
            ])),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for KeyId {
    fn deserialize<D: serde::Deserializer<'de>>(
        deserializer: D,
    ) -> std::result::Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        KeyId::parse(&text).map_err(serde::de::Error::custom)
    }
}

impl Part for KeyId {
    const FORM: &'static str = crate::form::KEY_ID;

    fn text(part: &KeyId) -> String {
        part.to_string()
    }

    fn read(text: &str) -> Result<KeyId> {
        KeyId::parse(text)
    }
}

/// A whole key for this id.
pub fn generate(id: &KeyId) -> String {
    let mut random = [0u8; SECRET_CHARS / 2];
    getrandom::fill(&mut random).expect("the kernel's random source always answers");
    let digits: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}{id}_{digits}")
}

/// The id that a whole key says it has, if it looks like a key.
pub fn id_of(key: &str) -> Option<KeyId> {
    let (id, secret) = key.strip_prefix(PREFIX)?.split_once('_')?;
    (secret.len() == SECRET_CHARS).then(|| KeyId::parse(id).ok())?
}

/// Whether there is a whole key somewhere in a text.
pub fn is_in(text: &[u8]) -> bool {
    const LENGTH: usize = PREFIX.len() + ID_CHARS + 1 + SECRET_CHARS;
    let mut rest = text.windows(LENGTH);
    rest.any(|part| {
        part.starts_with(PREFIX.as_bytes())
            && std::str::from_utf8(part).is_ok_and(|part| id_of(part).is_some())
    })
}

/// What one key may do: everything, a family of verbs, one verb, or whatever only looks.
/// [`crate::scope`] reads it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope(pub(crate) String);

impl Scope {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// What a new key is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CreateKey {
    /// Whose things it sees and makes; `default` when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// For people: what it is for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it may do: `*`, `read`, `metrics`, `sandboxes:*`, `sandboxes:fork_sandbox`; `*` when empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// How long it is good for; until it is revoked when missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_seconds: Option<u64>,
    /// Calls that it may make in a minute; 0 (the default) is any number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_minute: Option<u64>,
    /// What the machines made with it may be.
    #[serde(skip_serializing_if = "Bounds::none")]
    pub bounds: Bounds,
}

/// What may be said of a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Key {
    pub key_id: KeyId,
    #[schema(value_type = String)]
    pub project: Project,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[schema(value_type = Vec<String>)]
    pub scopes: Vec<Scope>,
    /// 0 is any number.
    #[serde(default)]
    pub calls_per_minute: u64,
    /// What the machines made with it may be.
    #[serde(default, skip_serializing_if = "Bounds::none")]
    pub bounds: Bounds,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// Missing when it never expires.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<Timestamp>,
    /// About when it was used last; written down now and then.
    #[schema(value_type = Option<String>, format = DateTime)]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used_at: Option<Timestamp>,
}

/// A new key, with what callers send. It is shown this once.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct KeyCreated {
    #[serde(flatten)]
    pub about: Key,
    /// The key itself.
    pub key: String,
}

impl fmt::Debug for KeyCreated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key itself never reaches a log.
        write!(f, "KeyCreated({:?})", self.about)
    }
}

impl Ask for CreateKey {}

/// What whoever sends no good key is told.
pub fn unknown() -> Error {
    Error::new(ErrorKind::Unauthenticated, "the key is missing or not good").hint(hint![
        "send `Authorization: Bearer motu_…`; whoever runs this host makes keys with ",
        verb("create_key")
    ])
}

/// What the sender of a good key is told whose time is over.
pub fn expired(at: Timestamp) -> Error {
    Error::new(
        ErrorKind::Unauthenticated,
        format!("the key has expired at {at}"),
    )
    .hint(hint![
        "whoever runs this host makes another with ",
        verb("create_key")
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_says_its_id_and_nothing_else_is_one() {
        let id = KeyId::generate();
        let key = generate(&id);
        assert_eq!(id_of(&key), Some(id));
        assert_ne!(generate(&KeyId::generate()), key);
        for wrong in [
            "",
            "motu_",
            "motu_abc_def",
            &key[1..],
            &key[..key.len() - 1],
        ] {
            assert_eq!(id_of(wrong), None, "{wrong}");
            assert!(!is_in(wrong.as_bytes()), "{wrong}");
        }
        for around in [
            key.clone(),
            format!("Bearer {key}"),
            format!("\u{e9}={key};"),
        ] {
            assert!(is_in(around.as_bytes()), "{around}");
        }
        let error = KeyId::parse(&key).unwrap_err();
        assert!(!error.to_string().contains(&key), "{error}");
    }
}
