//! Reports each idle pause of a sandbox once.

use jiff::Timestamp;
use motu_core::SandboxId;
use motu_core::sandbox::{PausedBy, Sandbox};
use std::collections::BTreeMap;
use std::sync::Mutex;

/// The idle pauses that were already reported. After a restart of the daemon, pauses that still
/// last are reported again.
#[derive(Debug, Default)]
pub struct Naps(Mutex<BTreeMap<String, BTreeMap<SandboxId, Timestamp>>>);

impl Naps {
    /// The ids of sandboxes whose pause was not reported to this caller yet.
    pub fn news(&self, caller: &str, all: &[Sandbox]) -> Vec<String> {
        let asleep = all.iter().filter_map(|sandbox| {
            let paused = sandbox
                .paused
                .filter(|paused| paused.by == PausedBy::Idle)?;
            Some((sandbox.sandbox_id.clone(), paused.at))
        });
        let asleep: BTreeMap<SandboxId, Timestamp> = asleep.collect();
        let mut told = self
            .0
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let before = told.insert(caller.to_string(), asleep.clone());
        let before = before.unwrap_or_default();
        let news = asleep.into_iter();
        news.filter(|(id, at)| before.get(id) != Some(at))
            .map(|(id, _)| id.to_string())
            .collect()
    }
}
