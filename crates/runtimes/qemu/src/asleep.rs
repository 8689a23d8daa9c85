//! What is in the directory of a saved machine, read and checked; [`saved`](crate::saved) writes it
//! and makes machines of it.

use crate::blocking::blocking;
use crate::error::QemuError;
use crate::kept;
use crate::place::STATE;
use crate::ram;
use crate::record::Shape;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub(crate) const VERSION: u32 = 1;
pub(crate) const MANIFEST: &str = "saved.json";
pub(crate) const RAM: &str = "ram";
pub(crate) const DISKS: &str = "disks";
/// Saved machines whose memory is kept at hand.
const AT_HAND: usize = 2;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub(crate) version: u32,
    pub(crate) shape: Shape,
    /// The generation of the disks that a machine of it writes to; those below it are here.
    pub(crate) layer: u32,
    pub(crate) below: Vec<String>,
    /// Of kept disks.
    pub(crate) kept: Option<kept::Manifest>,
    /// The version of the QEMU it ran in.
    pub(crate) qemu: String,
    /// Of the host's processor, where the machine has seen it.
    pub(crate) processor: String,
    pub(crate) ram_bytes: u64,
    pub(crate) ram_sum: String,
    pub(crate) state_sum: String,
}

/// A saved machine, read and checked.
#[derive(Debug)]
pub(crate) struct Asleep {
    pub(crate) manifest: Manifest,
    pub(crate) ram: File,
    pub(crate) state: Arc<[u8]>,
}

/// Saved machines that were used lately, the last one first.
#[derive(Debug, Default)]
pub(crate) struct Sleepers {
    known: tokio::sync::Mutex<Vec<(PathBuf, Arc<Asleep>)>>,
}

impl Sleepers {
    pub(crate) async fn get(&self, dir: &Path) -> Result<Arc<Asleep>, QemuError> {
        // Held while one is read: whoever else wants it needs the same bytes.
        let mut known = self.known.lock().await;
        known.retain(|(at, _)| at.exists());
        let found = known.iter().position(|(at, _)| at == dir);
        let entry = match found {
            Some(at) => known.remove(at),
            None => {
                let from = dir.to_path_buf();
                let read = blocking(move || load(&from)).await?;
                (dir.to_path_buf(), Arc::new(read))
            }
        };
        let asleep = entry.1.clone();
        known.insert(0, entry);
        known.truncate(AT_HAND);
        Ok(asleep)
    }
}

pub(crate) fn sum(bytes: &[u8]) -> String {
    crate::kernel::hex(&Sha256::new().chain_update(bytes))
}

/// Reads a saved machine and believes nothing it cannot check.
fn load(dir: &Path) -> Result<Asleep, QemuError> {
    let reading = || {
        |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => unusable("a part of it is missing"),
            _ => QemuError::io("cannot read the saved machine")(error),
        }
    };
    let text = std::fs::read(dir.join(MANIFEST)).map_err(reading())?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|_| unusable("saved.json is unreadable"))?;
    if manifest.version != VERSION {
        return Err(unusable("it is of another version of motu"));
    }
    let state = std::fs::read(dir.join(STATE)).map_err(reading())?;
    if sum(&state) != manifest.state_sum {
        return Err(unusable("the state of its devices is not what was saved"));
    }
    for name in &manifest.below {
        if !dir.join(DISKS).join(name).is_file() {
            return Err(unusable("a disk of it is missing"));
        }
    }
    let kept = File::open(dir.join(RAM)).map_err(reading())?;
    if kept.metadata().map_err(reading())?.len() != manifest.ram_bytes {
        return Err(unusable("its memory has another size"));
    }
    let memory = ram::empty(manifest.ram_bytes)?;
    if ram::copy(&kept, &memory)?.text() != manifest.ram_sum {
        return Err(unusable("its memory is not what was saved"));
    }
    ram::seal(&memory)?;
    Ok(Asleep {
        manifest,
        ram: memory,
        state: state.into(),
    })
}

pub(crate) fn unusable(reason: &str) -> QemuError {
    QemuError::Saved {
        reason: reason.to_string(),
    }
}

#[cfg(test)]
impl Manifest {
    pub(crate) fn sample(accel: crate::accel::Accelerator, processor: &str) -> Manifest {
        Manifest {
            version: VERSION,
            shape: Shape {
                accel,
                mem_mib: 256,
                vcpu_count: 1,
                disk_mib: 64,
                root_bytes: 1 << 30,
                kept: false,
                network: false,
            },
            layer: 2,
            below: vec![],
            kept: None,
            qemu: "7.2.0".into(),
            processor: processor.into(),
            ram_bytes: 0,
            ram_sum: String::new(),
            state_sum: String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accel::Accelerator;

    #[test]
    fn what_is_no_saved_machine_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let reason = |dir: &Path| load(dir).unwrap_err().to_string();
        assert!(reason(dir.path()).contains("missing"));
        std::fs::write(dir.path().join(MANIFEST), "{").unwrap();
        assert!(reason(dir.path()).contains("unreadable"));
        let mut other = Manifest::sample(Accelerator::Tcg, "");
        other.version = 9;
        let text = serde_json::to_vec(&other).unwrap();
        std::fs::write(dir.path().join(MANIFEST), text).unwrap();
        assert!(reason(dir.path()).contains("another version"));
    }
}
