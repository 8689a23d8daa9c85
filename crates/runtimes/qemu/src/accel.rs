//! Which accelerator a machine runs on, and whether KVM is what it says.
//!
//! A `/dev/kvm` that opens proves nothing: in nested clouds it is common that
//! virtual machines can be made and an ordinary kernel dies in them. So a few
//! instructions are run in a real virtual machine.
//!
//! That KVM works is written down for this boot of the host and this very device. That it does
//! not is believed for a minute and never written down: whoever loads a module, joins a group or
//! changes a mode is heard without a new boot.

use crate::error::QemuError;
use crate::sys::{jail, kvm};
use motu_core::Accel;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const FILE: &str = "probe.json";
/// What the kernel shows for a group outside of this user namespace.
const NOBODY: u32 = 65_534;
/// How long the trials may take before KVM counts as broken.
const PATIENCE: Duration = Duration::from_secs(3);
/// How long KVM that does not work is taken at its word.
const DOUBT: Duration = Duration::from_secs(60);
/// Trials before KVM counts as slow: a host that does something else may be slow once.
const TRIALS: usize = 3;

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
}

/// The device's node, as far as it decides who may use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) inode: u64,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Node {
    /// Of the host's `/dev/kvm`, if there is one.
    pub(crate) fn find() -> Option<Node> {
        let found = std::fs::metadata(kvm::DEVICE).ok()?;
        Some(Node {
            inode: found.ino(),
            mode: found.mode() & 0o7777,
            uid: found.uid(),
            gid: found.gid(),
        })
    }

    /// The group with which a QEMU that is nobody's may use this node: `own`, or the node's.
    pub(crate) fn group(self, own: u32) -> Result<u32, String> {
        match self {
            Node { mode, .. } if mode & 0o006 == 0o006 => Ok(own),
            // A group that is not known here is shown as nobody's.
            Node { mode, gid, .. } if mode & 0o060 == 0o060 && ![0, NOBODY].contains(&gid) => {
                Ok(gid)
            }
            _ => Err(format!(
                "{} is root's alone, and no private node can be made here",
                kvm::DEVICE
            )),
        }
    }
}

/// Whom QEMU runs as, seen from the daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Runner {
    /// The daemon's own user.
    Daemon,
    /// Nobody's user, with a node of its own.
    Jailed,
    /// Nobody's user, with the host's node.
    Nobody,
}

impl Runner {
    fn here() -> Runner {
        match (rustix::process::geteuid().is_root(), jail::makes_nodes()) {
            (false, _) => Runner::Daemon,
            (true, true) => Runner::Jailed,
            (true, false) => Runner::Nobody,
        }
    }

    /// Whether QEMU may use what the daemon can open.
    fn may_use(self, node: Node) -> Result<(), String> {
        match self {
            Runner::Daemon | Runner::Jailed => Ok(()),
            Runner::Nobody => node.group(u32::MAX).map(drop),
        }
    }
}

/// What was learnt about KVM here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    boot_id: String,
    /// What was asked; another one is asked again.
    #[serde(default)]
    node: Option<Node>,
    /// Why it does not work; `None` if it does.
    pub(crate) broken: Option<String>,
}

impl Verdict {
    /// Whether it is still about this boot and this device.
    fn holds(&self, boot_id: &str, node: Option<Node>) -> bool {
        self.boot_id == boot_id && self.node == node
    }

    /// Whether it may be written down.
    fn is_to_keep(&self) -> bool {
        self.broken.is_none() && self.node.is_some()
    }
}

/// Asks and remembers.
#[derive(Clone, Debug)]
pub(crate) struct Probe {
    file: PathBuf,
    /// What was found last, and when.
    last: Arc<Mutex<Option<(Instant, Verdict)>>>,
}

impl Probe {
    pub(crate) fn new(home: &Path) -> Probe {
        Probe {
            file: home.join("cache").join(FILE),
            last: Arc::default(),
        }
    }

    /// Whether KVM works on this boot of this host.
    pub(crate) async fn kvm(&self) -> Verdict {
        let node = Node::find();
        if let Some(known) = self.known(node) {
            return known;
        }
        let trial = tokio::task::spawn_blocking(move || try_out(node, Runner::here(), kvm::trial));
        let broken = match tokio::time::timeout(PATIENCE, trial).await {
            Ok(Ok(result)) => result.err(),
            Ok(Err(_)) | Err(_) => Some("a trial machine never came back".to_string()),
        };
        let verdict = Verdict {
            boot_id: boot_id(),
            node,
            broken,
        };
        if verdict.is_to_keep()
            && let Err(error) = self.remember(&verdict)
        {
            tracing::debug!(%error, "the state of KVM will be asked again");
        }
        *self.last() = Some((Instant::now(), verdict.clone()));
        verdict
    }

    fn known(&self, node: Option<Node>) -> Option<Verdict> {
        let boot_id = boot_id();
        if let Some((when, verdict)) = &*self.last()
            && (verdict.broken.is_none() || when.elapsed() < DOUBT)
            && verdict.holds(&boot_id, node)
        {
            return Some(verdict.clone());
        }
        let verdict: Verdict = serde_json::from_slice(&std::fs::read(&self.file).ok()?).ok()?;
        // Versions before this one have written failures down, too.
        (verdict.is_to_keep() && verdict.holds(&boot_id, node)).then_some(verdict)
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Verdict)>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Tries KVM as QEMU will use it. Of several trials the best one counts; what is not slow but
/// wrong is not tried again.
fn try_out(
    node: Option<Node>,
    runner: Runner,
    mut trial: impl FnMut() -> Result<(), kvm::Fault>,
) -> Result<(), String> {
    if let Some(node) = node {
        runner.may_use(node)?;
    }
    let mut fault = None;
    for _ in 0..TRIALS {
        match trial() {
            Ok(()) => return Ok(()),
            Err(slow @ kvm::Fault::Slow(_)) => fault = Some(slow),
            Err(other) => return Err(other.to_string()),
        }
    }
    fault.map_or(Ok(()), |fault| Err(fault.to_string()))
}

/// Different after every boot of the host.
pub(crate) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map_or_else(|_| String::new(), |id| id.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kvm::Fault;

    const NODE: Node = Node {
        inode: 5,
        mode: 0o660,
        uid: 0,
        gid: 104,
    };

    fn verdict(broken: Option<&str>) -> Verdict {
        Verdict {
            boot_id: boot_id(),
            node: Node::find(),
            broken: broken.map(str::to_string),
        }
    }

    #[test]
    fn a_verdict_holds_for_one_boot_and_one_device() {
        let known = Verdict {
            boot_id: "one".into(),
            node: Some(NODE),
            broken: None,
        };
        assert!(known.holds("one", Some(NODE)));
        let others = [
            ("another", Some(NODE)),
            ("one", None),
            ("one", Some(Node { inode: 6, ..NODE })),
            (
                "one",
                Some(Node {
                    mode: 0o666,
                    ..NODE
                }),
            ),
            ("one", Some(Node { uid: 1, ..NODE })),
            ("one", Some(Node { gid: 0, ..NODE })),
        ];
        for (boot_id, node) in others {
            assert!(!known.holds(boot_id, node), "{boot_id} {node:?}");
        }
    }

    #[tokio::test]
    async fn only_success_is_written_down() {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(home.path().join("cache")).unwrap();
        let probe = Probe::new(home.path());
        let found = probe.kvm().await;
        // This daemon does not ask twice, whatever the answer was.
        assert_eq!(probe.known(Node::find()), Some(found.clone()));
        let written = home.path().join("cache").join(FILE);
        assert_eq!(written.exists(), found.broken.is_none());
        // What an older version wrote down of a failure counts for nothing.
        let next = Probe::new(home.path());
        next.remember(&verdict(Some("EACCES"))).unwrap();
        assert_eq!(next.known(Node::find()), None);
        if Node::find().is_some() {
            next.remember(&verdict(None)).unwrap();
            assert_eq!(next.known(Node::find()), Some(verdict(None)));
        }
    }

    #[test]
    fn a_node_is_used_as_whoever_qemu_is() {
        let node = |mode, gid| Node { mode, gid, ..NODE };
        let table = [
            (node(0o666, 0), Ok(7)),
            (node(0o660, 104), Ok(104)),
            (node(0o660, 0), Err(())),
            (node(0o600, 104), Err(())),
            (node(0o640, 104), Err(())),
        ];
        for (node, wanted) in table {
            assert_eq!(node.group(7).map_err(drop), wanted, "{node:?}");
            let expected = wanted.is_ok();
            assert_eq!(Runner::Nobody.may_use(node).is_ok(), expected, "{node:?}");
            assert!(Runner::Jailed.may_use(node).is_ok());
            assert!(Runner::Daemon.may_use(node).is_ok());
        }
    }

    #[test]
    fn the_best_of_three_trials_counts() {
        let slow = || Err(Fault::Slow(Duration::from_millis(900)));
        let run = |answers: Vec<Result<(), Fault>>| {
            let mut answers = answers.into_iter();
            let mut count = 0;
            let verdict = try_out(Some(NODE), Runner::Jailed, || {
                count += 1;
                answers.next().unwrap()
            });
            (verdict.is_ok(), count)
        };
        assert_eq!(run(vec![Ok(())]), (true, 1));
        assert_eq!(run(vec![slow(), slow(), Ok(())]), (true, 3));
        assert_eq!(run(vec![slow(), slow(), slow()]), (false, 3));
        let wrong = Fault::Wrong("it ended".into());
        assert_eq!(run(vec![slow(), Err(wrong)]), (false, 2));
        // What QEMU could not use is not tried at all.
        let closed = Node {
            mode: 0o600,
            ..NODE
        };
        let never = || unreachable!("root's own view says nothing of QEMU's");
        assert!(try_out(Some(closed), Runner::Nobody, never).is_err());
    }
}
