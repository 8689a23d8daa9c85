//! A machine saved with its memory, in a directory that its owner keeps.
//!
//! ```text
//!   DIR/   saved.json  state  ram  disks/
//! ```
//!
//! It is what a copy starts with ([`fork`]), on the disk instead of in memory: it outlives the
//! machine, the daemon and the host's boot. Nothing in it is ever changed, and machines made of it
//! have links to its disks, so it may be removed while they run.
//!
//! What is saved goes on only in a machine of the same build: accelerator, size, and under KVM the
//! processor. Of another version of QEMU nobody knows before it is tried.

use crate::accel::Accelerator;
use crate::asleep::{DISKS, MANIFEST, Manifest, RAM, VERSION, sum, unusable};
use crate::blocking::blocking;
use crate::cache;
use crate::error::QemuError;
use crate::fork::{self, Saved};
use crate::machine::{self, Maker};
use crate::place::{Place, STATE, Site};
use crate::record::{Process, Shape};
use crate::template::KVM_AGE;
use crate::{identity, ram};
use motu_core::Error;
use motu_core::runtime::{Machine, MachineSpec};
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::sync::watch;

/// Writes a machine as it is into an empty directory. It goes on as it was.
pub(crate) async fn save(maker: &Maker, source: &Machine, dir: &Path) -> Result<(), Error> {
    let source = fork::Source::open(maker, source).await?;
    if source.record.shape.accel == Accelerator::Kvm {
        // See KVM_AGE: a copy of a younger machine would begin late.
        tokio::time::sleep(KVM_AGE.saturating_sub(age(source.process))).await;
    }
    let mut moment = None;
    source
        .save(|saved, state| moment = Some((saved, state)))
        .await?;
    let (saved, state) = moment.ok_or(QemuError::Gone)?;
    let state = state.borrow().clone().ok_or(QemuError::Gone)?;
    let (dir, site) = (dir.to_path_buf(), source.site.clone());
    blocking(move || keep(&dir, site.disks(), &saved, &state)).await?;
    Ok(())
}

/// How long a process has run.
fn age(process: Process) -> Duration {
    const TICKS: f64 = 100.0;
    let uptime = std::fs::read_to_string("/proc/uptime").unwrap_or_default();
    let now: f64 = uptime
        .split_whitespace()
        .next()
        .and_then(|seconds| seconds.parse().ok())
        .unwrap_or(0.0);
    let age = now - process.start_time as f64 / TICKS;
    Duration::try_from_secs_f64(age).unwrap_or_default()
}

/// Writes what a copy would start with. The manifest is written last.
fn keep(dir: &Path, disks: &Place, saved: &Saved, state: &[u8]) -> Result<(), QemuError> {
    let keeping = || QemuError::io("cannot save the machine");
    let below = dir.join(DISKS);
    std::fs::create_dir(&below).map_err(keeping())?;
    let place = Place::open(&below)?;
    for name in disks.shared_files(saved.layer)? {
        place.link(&disks.file(&name), &name)?;
        // QEMU may not have flushed what it wrote to it.
        sync(&place.file(&name)).map_err(keeping())?;
    }
    let ram = File::create(dir.join(RAM)).map_err(keeping())?;
    let ram_bytes = saved.ram.metadata().map_err(keeping())?.len();
    ram.set_len(ram_bytes).map_err(keeping())?;
    let ram_sum = ram::copy(&saved.ram, &ram)?.text();
    std::fs::write(dir.join(STATE), state).map_err(keeping())?;
    let manifest = Manifest {
        version: VERSION,
        shape: saved.shape,
        layer: saved.layer,
        below: saved.below.clone(),
        kept: saved.manifest.clone(),
        qemu: saved.program.version.to_string(),
        processor: identity::processor_identity(saved.shape.accel).to_string(),
        ram_bytes,
        ram_sum,
        state_sum: sum(state),
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|error| keeping()(error.into()))?;
    std::fs::write(dir.join(MANIFEST), text).map_err(keeping())?;
    for name in [RAM, STATE, MANIFEST] {
        cache::freeze(&dir.join(name))?;
        sync(&dir.join(name)).map_err(keeping())?;
    }
    sync(&below).map_err(keeping())?;
    sync(dir).map_err(keeping())
}

fn sync(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

/// Makes a machine of a saved one, or leaves nothing.
pub(crate) async fn restore(
    maker: &Maker,
    dir: &Path,
    spec: &MachineSpec,
) -> Result<Machine, Error> {
    machine::refuse(spec)?;
    maker.sweep().await;
    let woken = wake(maker, dir, spec).await;
    if woken.is_err() {
        fork::clear(std::slice::from_ref(spec)).await;
    }
    woken
}

async fn wake(maker: &Maker, dir: &Path, spec: &MachineSpec) -> Result<Machine, Error> {
    let asleep = maker.sleepers.get(dir).await?;
    let manifest = &asleep.manifest;
    let shape = manifest.shape;
    fork::same_shape(&shape, spec)?;
    fork::same_keeping(&shape, spec)?;
    same_network(&shape, spec)?;
    let accel = maker.probe.decide(maker.choice(spec)).await?;
    same_host(manifest, accel, identity::processor_identity(accel))?;
    let program = maker.program().await?;
    let qemu = program.version.to_string();
    let saved = Saved {
        shape,
        layer: manifest.layer,
        below: manifest.below.clone(),
        ram: asleep
            .ram
            .try_clone()
            .map_err(QemuError::io("cannot share memory"))?,
        program,
        manifest: manifest.kept.clone(),
    };
    let disks = dir.join(DISKS);
    let kept = shape.kept.then(|| Place::open(&disks)).transpose()?;
    let from = Site::open(&disks, kept)?;
    let (_whole, state) = watch::channel(Some(asleep.state.clone()));
    let made = fork::copy(&saved, &from, spec, state).await;
    made.map_err(|error| failed(error, &manifest.qemu, &qemu).into())
}

/// Says what may be the cause when a saved machine does not come to life.
fn failed(error: QemuError, then: &str, now: &str) -> QemuError {
    if !error.may_be_the_templates() {
        return error;
    }
    match then == now {
        true => unusable(&error.to_string()),
        false => unusable(&format!(
            "it was saved in QEMU {then}, and this is {now}: {error}"
        )),
    }
}

/// A saved machine has its network device, or has none, for good.
fn same_network(shape: &Shape, spec: &MachineSpec) -> Result<(), Error> {
    match (shape.network, spec.network.is_some()) {
        (true, false) => Err(Error::invalid(
            "the machine was saved with a network; one made of it has a network too",
        )
        .hint("give a policy, or save one that has no network")),
        (false, true) => Err(Error::invalid(
            "the machine was saved without a network; one made of it cannot have one",
        )
        .hint("leave the network out, or save one that has a network")),
        _ => Ok(()),
    }
}

fn same_host(manifest: &Manifest, accel: Accelerator, processor: &str) -> Result<(), QemuError> {
    let then = manifest.shape.accel;
    if then != accel {
        return Err(unusable(&format!(
            "it ran on {}, and machines here run on {}",
            then.name(),
            accel.name()
        )));
    }
    match manifest.processor == processor {
        true => Ok(()),
        false => Err(unusable(
            "it ran on another processor, or under another kernel of the host",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_saved_machine_wakes_on_the_host_it_knows() {
        use Accelerator::{Kvm, Tcg};
        let table = [
            (Manifest::sample(Tcg, ""), Tcg, "", true),
            (Manifest::sample(Kvm, "a"), Kvm, "a", true),
            (Manifest::sample(Kvm, "a"), Kvm, "b", false),
            (Manifest::sample(Kvm, "a"), Tcg, "", false),
            (Manifest::sample(Tcg, ""), Kvm, "a", false),
        ];
        for (manifest, accel, processor, wakes) in table {
            let found = same_host(&manifest, accel, processor);
            assert_eq!(found.is_ok(), wakes, "{manifest:?} on {accel:?}");
        }
    }

    #[test]
    fn another_qemu_is_named_when_a_machine_does_not_wake() {
        let silent = || QemuError::Silent {
            reason: "nobody".into(),
        };
        let told = failed(silent(), "7.2.0", "9.1.0").to_string();
        assert!(told.contains("7.2.0") && told.contains("9.1.0"), "{told}");
        assert!(
            !failed(silent(), "7.2.0", "7.2.0")
                .to_string()
                .contains("7.2.0")
        );
        assert!(matches!(failed(QemuError::Gone, "1", "2"), QemuError::Gone));
    }
}
