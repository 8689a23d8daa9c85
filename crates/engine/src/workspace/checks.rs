//! Validates callers' input before anything is made of it.

pub use crate::labels::{label_key, labels};

use crate::labels::within;
use motu_core::files::GuestPath;
use motu_core::limits;
use motu_core::{Error, Result};
use motu_workspaces::{PathError, WorkspacePath};
use std::path::{Path, PathBuf};

/// Checks a display name: one line, not empty.
pub fn name(text: &str) -> Result<String> {
    let text = text.trim();
    within(limits::NAME_CHARS, text.chars().count(), "the name")?;
    if text.chars().any(char::is_control) {
        return Err(Error::invalid("the name has control characters in it"));
    }
    Ok(text.to_string())
}

/// Checks a service's name, which is also its tag.
pub fn service_name(text: &str) -> Result<()> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    let ok =
        (1..=48).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with(['.', '-']);
    if ok {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{:?} is not the name of a service",
        text.chars().take(60).collect::<String>()
    ))
    .hint("names are 1 to 48 characters of a-z, A-Z, 0-9, '.', '_' and '-'"))
}

/// A path at or below `/workspace`; relative ones begin there. `None` is `/workspace` itself.
pub fn inside(path: &str) -> Result<Option<WorkspacePath>> {
    match WorkspacePath::parse(path.as_bytes()) {
        Ok(path) => Ok(Some(path)),
        Err(PathError::Empty) if !path.is_empty() => Ok(None),
        Err(error) => Err(Error::invalid(format!(
            "{:?} is not a path in /workspace: {error}",
            path.chars().take(200).collect::<String>()
        ))
        .hint("paths are relative to /workspace, or begin with /workspace/")),
    }
}

/// A path of one file or directory below `/workspace`; not `/workspace` itself.
pub fn below(path: &str) -> Result<WorkspacePath> {
    inside(path)?.ok_or_else(|| Error::invalid("the path is /workspace itself"))
}

/// The path in the machine, where `/workspace` is at `root`.
pub fn in_machine(root: &str, path: Option<&WorkspacePath>) -> Result<GuestPath> {
    let mut whole = root.trim_end_matches('/').as_bytes().to_vec();
    if let Some(path) = path {
        whole.push(b'/');
        whole.extend_from_slice(path.as_bytes());
    }
    GuestPath::new(whole)
}

/// A path on the daemon's host: absolute, so that it means the same to caller and daemon.
pub fn on_host(path: &str, what: &str) -> Result<PathBuf> {
    let path = Path::new(path);
    if !path.is_absolute() {
        return Err(Error::invalid(format!("{what} is not an absolute path"))
            .hint("the daemon has another working directory than its callers"));
    }
    Ok(path.to_path_buf())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn limits_are_the_last_allowed_value() {
        assert!(name(&"n".repeat(120)).is_ok());
        assert!(name(&"n".repeat(121)).is_err());
        assert!(name("  ").is_err());
        assert!(name("two\nlines").is_err());
        let label = |key: String, value: String| labels(&BTreeMap::from([(key, value)]));
        assert!(label("k".repeat(63), "v".repeat(255)).is_ok());
        assert!(label("k".repeat(64), String::new()).is_err());
        assert!(label("k".into(), "v".repeat(256)).is_err());
        assert!(label("a b".into(), String::new()).is_err());
        let many = (0..33).map(|n| (format!("k{n}"), String::new())).collect();
        assert!(labels(&many).is_err());
    }

    #[test]
    fn paths_stay_inside() {
        assert_eq!(inside("/workspace").unwrap(), None);
        assert!(inside("").is_err());
        assert!(inside("/etc/passwd").is_err());
        assert!(inside("a/../../b").is_err());
        let path = in_machine("/workspace", inside("src/x").unwrap().as_ref()).unwrap();
        assert_eq!(&path.as_bytes()[..], b"/workspace/src/x");
        assert!(below("/workspace/").is_err());
    }
}
