//! What the operator allows to a caller that passes on what somebody else says: a model.
//!
//! Such a caller has the operator's rights, and its arguments are not the operator's. It says so of
//! itself with every call; the gate then holds it to what it was started with.

use crate::SandboxId;
use serde::{Deserialize, Serialize};

/// What may be asked for beside what is walled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Leave {
    /// Machines that isolate nothing, and sessions on the host itself.
    pub unwalled: bool,
    /// Directories of the host; paths at or below them may be named.
    pub directories: Vec<String>,
    /// What is said comes from callers with keys of their own: what is fetched for them is not on the
    /// operator's account.
    pub for_others: bool,
}

impl Leave {
    /// As one line.
    pub fn written(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// What a caller said. What cannot be read allows nothing.
    pub fn read(text: &[u8]) -> Leave {
        serde_json::from_slice(text).unwrap_or_default()
    }
}

/// What happens at a path of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Reads,
    Writes,
}

/// A path of the host that a request names.
#[derive(Debug)]
pub struct HostPath<'a> {
    /// As in [`crate::verb::Ask::host_paths`].
    pub field: &'static str,
    pub path: &'a mut String,
    pub access: Access,
}

impl<'a> HostPath<'a> {
    pub fn reads(field: &'static str, path: &'a mut String) -> HostPath<'a> {
        let access = Access::Reads;
        HostPath {
            field,
            path,
            access,
        }
    }

    pub fn writes(field: &'static str, path: &'a mut String) -> HostPath<'a> {
        let access = Access::Writes;
        HostPath {
            field,
            path,
            access,
        }
    }
}

/// What a call is made of, by its name.
#[derive(Clone, Copy, Debug)]
pub enum Named<'a> {
    Sandbox(&'a SandboxId),
    /// A terminal session.
    Terminal(&'a str),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_allows_nothing() {
        let leave = Leave {
            unwalled: true,
            directories: vec!["/srv/größe \"x\"\n".to_string()],
            for_others: true,
        };
        assert_eq!(Leave::read(leave.written().as_bytes()), leave);
        let broken = [
            "",
            "yes",
            "{\"unwalled\":1}",
            "{\"unwalled\":true,\"everything\":true}",
        ];
        for text in broken {
            assert_eq!(Leave::read(text.as_bytes()), Leave::default(), "{text}");
        }
    }
}
