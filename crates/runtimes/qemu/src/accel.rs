//! Which accelerator a machine runs on, and whether KVM is what it says.
//!
//! A `/dev/kvm` that opens proves nothing: in nested clouds it is common that
//! virtual machines can be made and an ordinary kernel dies in them. So a few
//! instructions are run in a real virtual machine, and the answer is kept for
//! this boot of the host.

use crate::error::QemuError;
use crate::sys::kvm;
use motu_core::Accel;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

const FILE: &str = "probe.json";
/// How long the trial may take before KVM counts as broken.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a machine runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Accelerator {
    Kvm,
    Tcg,
}

impl Accelerator {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Accelerator::Kvm => "kvm",
            Accelerator::Tcg => "tcg",
        }
    }

    /// The processor a machine sees. Under emulation: what common programs are
    /// compiled for (x86-64-v2) and a random source, and nothing slower than that.
    pub(crate) fn cpu(self) -> &'static str {
        match self {
            Accelerator::Kvm => "host",
            Accelerator::Tcg => "qemu64,+ssse3,+sse4.1,+sse4.2,+popcnt,+cx16,+rdrand",
        }
    }
}

/// What was learnt about KVM here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    boot_id: String,
    /// Why it does not work; `None` if it does.
    pub(crate) broken: Option<String>,
}

/// Asks and remembers.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    file: PathBuf,
}

impl Probe {
    pub(crate) fn new(home: &Path) -> Probe {
        Probe {
            file: home.join("cache").join(FILE),
        }
    }

    /// Whether KVM works on this boot of this host.
    pub(crate) async fn kvm(&self) -> Verdict {
        if let Some(known) = self.known() {
            return known;
        }
        let trial = tokio::task::spawn_blocking(kvm::trial);
        let broken = match tokio::time::timeout(PATIENCE, trial).await {
            Ok(Ok(result)) => result.err(),
            Ok(Err(_)) | Err(_) => Some("a trial machine never came back".to_string()),
        };
        let verdict = Verdict {
            boot_id: boot_id(),
            broken,
        };
        if let Err(error) = self.remember(&verdict) {
            tracing::debug!(%error, "the state of KVM will be asked again");
        }
        verdict
    }

    fn known(&self) -> Option<Verdict> {
        let verdict: Verdict = serde_json::from_slice(&std::fs::read(&self.file).ok()?).ok()?;
        // A device that came or went since is asked again.
        let absent = verdict.broken.as_deref() == Some(kvm::ABSENT);
        let current = verdict.boot_id == boot_id() && absent != Path::new(kvm::DEVICE).exists();
        current.then_some(verdict)
    }

    fn remember(&self, verdict: &Verdict) -> std::io::Result<()> {
        let staged = self.file.with_extension("json.new");
        std::fs::write(&staged, serde_json::to_vec(verdict)?)?;
        std::fs::rename(staged, &self.file)
    }

    /// The accelerator for a choice, or why it cannot be had.
    pub(crate) async fn decide(&self, choice: Accel) -> Result<Accelerator, QemuError> {
        match choice {
            Accel::Tcg => Ok(Accelerator::Tcg),
            Accel::Auto => Ok(match self.kvm().await.broken {
                None => Accelerator::Kvm,
                Some(_) => Accelerator::Tcg,
            }),
            Accel::Kvm => match self.kvm().await.broken {
                None => Ok(Accelerator::Kvm),
                Some(reason) => Err(QemuError::Kvm { reason }),
            },
        }
    }
}

/// Different after every boot of the host.
pub(crate) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map_or_else(|_| String::new(), |id| id.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_verdict_holds_for_one_boot() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("cache")).unwrap();
        let probe = Probe::new(home.path());
        let first = probe.kvm().await;
        assert_eq!(probe.known(), Some(first.clone()));
        let stale = Verdict {
            boot_id: "another".into(),
            ..first
        };
        probe.remember(&stale).unwrap();
        assert_eq!(probe.known(), None);
    }
}
