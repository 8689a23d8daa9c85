//! The runtimes that take the suite.

use crate::subject::{Skip, Subject};
use motu_fake::Fake;
use std::sync::Arc;

/// Machines in memory.
pub fn fake() -> Result<Subject, Skip> {
    // One fake for all lives of the daemon: its machines outlive them.
    let fake = Fake::new();
    let runtime = fake.clone();
    Ok(Subject::new(
        "fake",
        Box::new(move |_| runtime.clone() as Arc<dyn motu_core::Runtime>),
        Box::new(move |id, _| assert!(fake.kill(id), "there is a machine to kill")),
    ))
}
