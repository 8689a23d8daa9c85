//! The description of a runtime for the suite.

use motu_core::sandbox::CreateSandbox;
use motu_core::{Runtime, SandboxId};
use motu_environments::Environments;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Why a runtime cannot be tested on this host.
#[derive(Clone, Debug)]
pub struct Skip(pub String);

/// Makes the runtime for one life of the daemon, given its state directory.
pub type Make = Box<dyn Fn(&Path) -> Arc<dyn Runtime> + Send + Sync>;
/// Ends a machine from outside, as a crash would.
pub type End = Box<dyn Fn(&SandboxId, &Path) + Send + Sync>;

/// One runtime under test.
pub struct Subject {
    /// The runtime's own name.
    pub name: &'static str,
    /// The base of every request of the suite.
    pub request: CreateSandbox,
    pub make: Make,
    /// Called with the machine's id and directory.
    pub end_machine: End,
    /// A state directory with environments to use; `None`: the test's own.
    pub environments: Option<PathBuf>,
}

impl std::fmt::Debug for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subject").field("name", &self.name).finish()
    }
}

impl Subject {
    /// A subject that needs neither environments nor privileges.
    pub fn new(name: &'static str, make: Make, end_machine: End) -> Subject {
        Subject {
            name,
            request: CreateSandbox {
                environment: "busybox".to_string(),
                runtime: Some(name.to_string()),
                ..CreateSandbox::default()
            },
            make,
            end_machine,
            environments: None,
        }
    }

    pub(crate) fn environments(&self, home: &Path) -> Environments {
        let home = self.environments.as_deref().unwrap_or(home);
        Environments::open(home, motu_environments::Privilege::detect())
            .expect("a test's environments open")
    }
}
