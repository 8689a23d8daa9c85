//! One line of the log: canonical JSON with its sequence number, the previous hash and its own.

use crate::canonical::canonical;
use crate::hex::{hex, unhex};
use crate::key::{Key, PublicKey};
use crate::{Hash, VERSION};
use ring::digest::{SHA256, digest};
use serde_json::{Map, Value, json};

/// Longest line; a longer one was not written here.
pub const LINE_BYTES: usize = 64 * 1024;
/// The prefix of the data that a checkpoint's signature covers, before its hash.
pub const SIGNED: &[u8] = b"motu audit checkpoint 1\n";

fn sha256(bytes: &[u8]) -> Hash {
    let mut hash = Hash::default();
    hash.copy_from_slice(digest(&SHA256, bytes).as_ref());
    hash
}

/// A line ready to be written.
pub struct Line {
    pub text: Vec<u8>,
    pub hash: Hash,
}

/// Chains a record to the previous one.
pub fn chained(mut fields: Map<String, Value>, seq: u64, prev: &Hash) -> Line {
    place(&mut fields, seq, prev);
    let hash = sha256(&canonical(&Value::Object(fields.clone())));
    fields.insert("hash".to_string(), hex(&hash).into());
    Line {
        text: line(fields),
        hash,
    }
}

/// A checkpoint: signs everything up to here.
pub fn signed(mut fields: Map<String, Value>, seq: u64, prev: &Hash, key: &Key) -> Line {
    place(&mut fields, seq, prev);
    let hash = sha256(&canonical(&Value::Object(fields.clone())));
    fields.insert("hash".to_string(), hex(&hash).into());
    let signature = key.sign(&[SIGNED, &hash].concat());
    fields.insert("signature".to_string(), hex(&signature).into());
    Line {
        text: line(fields),
        hash,
    }
}

fn place(fields: &mut Map<String, Value>, seq: u64, prev: &Hash) {
    fields.insert("v".to_string(), VERSION.into());
    fields.insert("seq".to_string(), seq.into());
    fields.insert("prev".to_string(), hex(prev).into());
}

fn line(fields: Map<String, Value>) -> Vec<u8> {
    let mut text = canonical(&Value::Object(fields));
    text.push(b'\n');
    text
}

/// A parsed, valid line: canonical, with the right hash.
#[derive(Clone, Debug)]
pub struct Record {
    pub value: Value,
    pub seq: u64,
    pub prev: Hash,
    pub hash: Hash,
}

/// The defect of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Flaw {
    #[error("it is not JSON")]
    NotJson,
    #[error("it is not canonical JSON")]
    NotCanonical,
    #[error("it has a version that is not known")]
    Version,
    #[error("a field of the chain is missing")]
    Fields,
    #[error("its content does not have its hash")]
    Hash,
    #[error("its signature is not that of the key")]
    Signature,
    #[error("its root is not that of what it covers")]
    Root,
}

impl Record {
    /// Parses a line without its newline.
    pub fn read(line: &[u8]) -> Result<Record, Flaw> {
        if line.len() > LINE_BYTES {
            return Err(Flaw::NotJson);
        }
        let value: Value = serde_json::from_slice(line).map_err(|_| Flaw::NotJson)?;
        if canonical(&value) != line {
            return Err(Flaw::NotCanonical);
        }
        Record::from_value(value)
    }

    /// Like `read`, for a value taken from a line, as in a receipt.
    pub fn from_value(value: Value) -> Result<Record, Flaw> {
        let Value::Object(mut fields) = value.clone() else {
            return Err(Flaw::Fields);
        };
        if fields.get("v").and_then(Value::as_u64) != Some(VERSION) {
            return Err(Flaw::Version);
        }
        let stated = fields.remove("hash");
        let stated = stated.as_ref().and_then(Value::as_str).and_then(unhex);
        // Only a checkpoint's signature is outside of the hash: in other records the field is
        // hashed.
        if fields.get("type") == Some(&json!("checkpoint")) {
            fields.remove("signature");
        }
        let prev = fields.get("prev").and_then(Value::as_str).and_then(unhex);
        let seq = fields.get("seq").and_then(Value::as_u64);
        let (Some(hash), Some(prev), Some(seq)) = (stated, prev, seq) else {
            return Err(Flaw::Fields);
        };
        if sha256(&canonical(&Value::Object(fields))) != hash {
            return Err(Flaw::Hash);
        }
        Ok(Record {
            value,
            seq,
            prev,
            hash,
        })
    }

    pub fn text(&self, field: &str) -> &str {
        self.value
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    pub fn number(&self, field: &str) -> Option<u64> {
        self.value.get(field).and_then(Value::as_u64)
    }

    pub fn kind(&self) -> &str {
        self.text("type")
    }

    pub fn is_checkpoint(&self) -> bool {
        self.kind() == "checkpoint"
    }

    /// Whether this is the last record of a segment.
    pub fn is_seal(&self) -> bool {
        self.is_checkpoint() && self.value.get("sealed") == Some(&Value::Bool(true))
    }

    /// Verifies a checkpoint's signature.
    pub fn check_signature(&self, key: &PublicKey) -> Result<(), Flaw> {
        let signature: Option<[u8; 64]> = unhex(self.text("signature"));
        let good = signature
            .is_some_and(|signature| key.verifies(&[SIGNED, &self.hash].concat(), &signature));
        match good && self.is_checkpoint() {
            true => Ok(()),
            false => Err(Flaw::Signature),
        }
    }
}
