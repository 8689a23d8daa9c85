//! Checks a backup against what it says it is.

use super::manifest::{Manifest, checksum, things};
use motu_core::Result;
use serde::Serialize;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a check found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verified {
    pub ok: bool,
    pub items: u64,
    pub bytes: u64,
    pub problems: Vec<Problem>,
}

/// Something that is not as it was when the backup was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub path: PathBuf,
    pub what: String,
}

/// Reads all of a backup and compares it with its manifest. Blocks, for as long as that takes.
pub fn verify(from: &Path) -> Result<Verified> {
    Ok(compare(&Manifest::read(from)?, from))
}

/// Compares what lies in a directory with a manifest: each thing is there, unchanged, has what it
/// needs, and nothing else is there.
pub(super) fn compare(manifest: &Manifest, dir: &Path) -> Verified {
    let mut found = Verified::default();
    let mut problem = |path: &Path, what: String| {
        found.problems.push(Problem {
            path: path.to_path_buf(),
            what,
        });
    };
    let known: BTreeSet<&Path> = manifest
        .items
        .iter()
        .map(|item| item.path.as_path())
        .collect();
    for item in &manifest.items {
        match checksum(&dir.join(&item.path)) {
            Ok((sum, _)) if sum == item.sha256 => {}
            Ok(_) => problem(&item.path, "it is not what was backed up".to_string()),
            Err(error) => problem(&item.path, error.message),
        }
        for need in item
            .needs
            .iter()
            .filter(|need| !known.contains(need.as_path()))
        {
            problem(
                &item.path,
                format!("it needs {}, which is not in it", need.display()),
            );
        }
    }
    match manifest.items.is_empty() {
        true => problem(
            Path::new(super::manifest::MANIFEST),
            "an earlier version made this backup, without checksums".to_string(),
        ),
        false => {
            for (_, path) in things(dir) {
                if !known.contains(path.as_path()) {
                    problem(&path, "it was not backed up".to_string());
                }
            }
        }
    }
    found.items = manifest.items.len() as u64;
    found.bytes = manifest.items.iter().map(|item| item.bytes).sum();
    found.ok = found.problems.is_empty();
    found
}
