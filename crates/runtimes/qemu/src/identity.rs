//! What tells one program, or one processor, from the next.

use crate::accel::Accelerator;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Tells one version of a program from the next without running it.
pub(crate) fn file_identity(path: &Path) -> String {
    let found = path
        .canonicalize()
        .and_then(|path: PathBuf| Ok((path.metadata()?, path)));
    found.map_or_else(
        |_| String::new(),
        |(found, path)| {
            let (size, time) = (found.len(), found.mtime());
            format!("{} {size} {time} {}", path.display(), found.mtime_nsec())
        },
    )
}

/// With KVM a saved machine has seen the host's own processor.
pub(crate) fn processor_identity(accel: Accelerator) -> String {
    if accel == Accelerator::Tcg {
        return String::new();
    }
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let facts = ["model name", "stepping", "microcode", "flags"];
    text.lines()
        .take_while(|line| !line.is_empty())
        .filter(|line| facts.iter().any(|fact| line.starts_with(fact)))
        .collect()
}
