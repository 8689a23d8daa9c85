//! Labels that callers give, of sandboxes, workspaces and templates.

use motu_core::limits::{self, Limit};
use motu_core::{Error, Result};
use std::collections::BTreeMap;

/// Refuses a text that is too short or too long.
pub fn within(limit: Limit, length: usize, what: &str) -> Result<()> {
    if (length as u64) < limit.min || length as u64 > limit.max {
        return Err(Error::invalid(format!(
            "{what} has {length} characters; {} allows {} to {}",
            limit.name, limit.min, limit.max
        )));
    }
    Ok(())
}

pub fn labels(labels: &BTreeMap<String, String>) -> Result<()> {
    let most = limits::LABELS;
    if labels.len() as u64 > most.max {
        return Err(Error::limit(format!(
            "there are {} labels; {} allows {}",
            labels.len(),
            most.name,
            most.max
        )));
    }
    for (key, value) in labels {
        label_key(key)?;
        within(
            limits::LABEL_VALUE_CHARS,
            value.chars().count(),
            &format!("the value of label {key:?}"),
        )?;
        if value.chars().any(char::is_control) {
            return Err(Error::invalid(format!(
                "the value of label {key:?} has control characters in it"
            )));
        }
    }
    Ok(())
}

pub fn label_key(key: &str) -> Result<()> {
    within(
        limits::LABEL_KEY_CHARS,
        key.chars().count(),
        "a label's key",
    )?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    if !key.chars().all(plain) {
        return Err(Error::invalid(format!("{key:?} is not the key of a label"))
            .hint("keys are made of a-z, A-Z, 0-9, '.', '_', '-' and '/'"));
    }
    Ok(())
}
