//! What a runtime really gives.

use crate::Error;
use serde::{Deserialize, Serialize};

/// The wall between a sandbox and its host, weakest first.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// No wall: the command runs on the host.
    None,
    /// Namespaces, cgroups, seccomp; the host's kernel is shared.
    Container,
    /// A kernel in user space between the sandbox and the host's.
    Gvisor,
    /// A virtual machine with its own kernel.
    Vm,
}

impl Isolation {
    /// The strongest first.
    pub const ALL: [Isolation; 4] = [
        Isolation::Vm,
        Isolation::Gvisor,
        Isolation::Container,
        Isolation::None,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Isolation::None => "none",
            Isolation::Container => "container",
            Isolation::Gvisor => "gvisor",
            Isolation::Vm => "vm",
        }
    }
}

impl std::fmt::Display for Isolation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

impl std::str::FromStr for Isolation {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Isolation::ALL
            .into_iter()
            .find(|isolation| isolation.as_str() == text)
            .ok_or_else(|| {
                Error::invalid("unknown isolation").hint("one of: vm, gvisor, container, none")
            })
    }
}
