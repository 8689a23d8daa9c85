//! Permission bits as octal text (`"0644"`) in JSON; a number is still understood.

use super::text::{format_mode, parse_mode};
use serde::{Deserialize, Deserializer, Serializer, de};

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Number(u32),
}

pub fn serialize<S: Serializer>(mode: &u32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format_mode(*mode))
}

pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u32, D::Error> {
    match Written::deserialize(deserializer)? {
        Written::Text(text) => parse_mode(&text).map_err(de::Error::custom),
        Written::Number(mode) => Ok(mode),
    }
}

/// Where there may be none.
pub mod maybe {
    use super::{Deserializer, Serializer};

    pub fn serialize<S: Serializer>(mode: &Option<u32>, serializer: S) -> Result<S::Ok, S::Error> {
        match mode {
            Some(mode) => super::serialize(mode, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// A field that is missing is the default of its owner and does not come here.
    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<u32>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}
