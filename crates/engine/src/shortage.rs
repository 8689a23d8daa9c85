//! The error for a sandbox that is paused for lack of disk space.

use motu_core::hint;
use motu_core::hint::verb;
use motu_core::sandbox::State;
use motu_core::{Error, SandboxId};

/// The answer to a call while the sandbox is paused for lack of disk space.
pub(crate) fn shortage(id: &SandboxId, reason: &str) -> Error {
    Error::limit(format!("{id} is paused: {reason}"))
        .hint(hint![
            "free some space on the host's disk, for example with ",
            verb("prune_environments"),
            "; it goes on by itself"
        ])
        .details(serde_json::json!({ "sandbox_id": id, "state": State::Paused }))
}
