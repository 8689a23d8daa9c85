//! Copies of a machine that runs.
//!
//! ```text
//!   meanwhile  copy the memory the machine began from (it cannot change)
//!   paused     save devices │ new disk layers ──► the copies' QEMUs start
//!              add the pages written since
//!   after      the machine goes on; the copies are given its state and go on too
//! ```
//!
//! The machine waits for what it has itself written, and its copies' processes
//! start in that time. Its pages are read through the kernel's view of its
//! process, so QEMU has no part in it.

use crate::arguments::{RAM_FD, disk_path, kept_path};
use crate::blocking::blocking;
use crate::cache;
use crate::disks::{DISKS, disk_file, disk_node};
use crate::error::QemuError;
use crate::kept::{self, Manifest};
use crate::machine::{self, Maker, record_of};
use crate::place::{Place, QMP, Site};
use crate::process::{Launch, Start};
use crate::program::Program;
use crate::qcow2::Below;
use crate::qmp::Qmp;
use crate::ram::{self, PAGE};
use crate::record::{Process, Record, Shape};
use crate::removal::remove;
use crate::throttle::Throttle;
use crate::{restore, state, template};
use motu_boot::Matter;
use motu_core::Error;
use motu_core::runtime::{Machine, MachineSpec};
use serde_json::{Value, json};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Bytes of memory moved at once.
const CHUNK: usize = 256 * PAGE;

/// A machine at one moment: what its copies start with.
#[derive(Debug)]
pub(crate) struct Saved {
    pub(crate) shape: Shape,
    pub(crate) layer: u32,
    /// Names of the disk files below the new layer, one for each disk.
    pub(crate) below: Vec<String>,
    /// Being filled until the state is there.
    pub(crate) ram: File,
    pub(crate) program: Program,
    /// Of kept disks, as they are from this moment on.
    pub(crate) manifest: Option<Manifest>,
}

/// The state of the devices; comes when the memory is whole.
pub(crate) type State = watch::Receiver<Option<Arc<[u8]>>>;

/// A machine that runs or is paused, held while it is copied.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) record: Record,
    pub(crate) process: Process,
    pub(crate) site: Arc<Site>,
    program: Program,
    /// The pid keeps its meaning as long as this is held.
    _pidfd: OwnedFd,
}

impl Source {
    pub(crate) async fn open(maker: &Maker, machine: &Machine) -> Result<Source, QemuError> {
        let record = record_of(machine).ok_or(QemuError::Gone)?;
        let program = maker.program().await?;
        let process = record.process.ok_or(QemuError::Gone)?;
        let pidfd = record.open().ok_or(QemuError::Gone)?;
        let kept = record.kept.as_deref().map(Place::open);
        let site = Arc::new(Site::open(&machine.dir, kept.transpose()?)?);
        Ok(Source {
            record,
            process,
            site,
            program,
            _pidfd: pidfd,
        })
    }

    /// Saves it; `begin` is told as soon as the disks are there.
    pub(crate) async fn save(&self, begin: impl FnOnce(Saved, State)) -> Result<(), QemuError> {
        let made_with = (self.process, self.program.clone());
        save(&self.site, &self.record, made_with, begin).await
    }
}

/// Makes copies of a machine, all or none.
pub(crate) async fn fork(
    maker: &Maker,
    source: &Machine,
    copies: &[MachineSpec],
) -> Result<Vec<Machine>, Error> {
    let source = Source::open(maker, source).await?;
    for copy in copies {
        machine::refuse(copy)?;
        same_shape(&source.record.shape, copy)?;
        same_keeping(&source.record.shape, copy)?;
    }
    let mut starting = JoinSet::new();
    let begin = |saved: Saved, state: State| {
        let saved = Arc::new(saved);
        for (number, spec) in copies.iter().cloned().enumerate() {
            let (saved, site, state) = (saved.clone(), source.site.clone(), state.clone());
            starting.spawn(async move { (number, copy(&saved, &site, &spec, state).await) });
        }
    };
    let saved = source.save(begin).await;
    let mut made: Vec<(usize, Machine)> = Vec::new();
    let mut failed = saved.err().map(Error::from);
    while let Some(done) = starting.join_next().await {
        match done {
            Ok((number, Ok(machine))) => made.push((number, machine)),
            // The first reason is the one that others follow from.
            Ok((_, Err(error))) => failed = failed.or(Some(error.into())),
            Err(error) => failed = failed.or(Some(Error::internal(error.to_string()))),
        }
    }
    if let Some(error) = failed {
        clear(copies).await;
        return Err(error);
    }
    made.sort_by_key(|(number, _)| *number);
    Ok(made.into_iter().map(|(_, machine)| machine).collect())
}

/// Removes whatever there is of copies that were not to be.
pub(crate) async fn clear(copies: &[MachineSpec]) {
    for copy in copies {
        let mut removed = remove(&copy.dir).await;
        if let Some(kept) = &copy.kept {
            removed = removed.and(remove(&kept.dir).await);
        }
        if let Err(left) = removed {
            tracing::warn!(id = %copy.id, %left, "something was left of a failed copy");
        }
    }
}

/// A copy has the size of its source; asking for another one by value is a mistake.
pub(crate) fn same_shape(shape: &Shape, spec: &MachineSpec) -> Result<(), Error> {
    let limits = &spec.limits;
    for (name, ask, have) in [
        ("vcpu_count", limits.vcpu_count, shape.vcpu_count),
        ("mem_mib", limits.mem_mib, shape.mem_mib),
        ("disk_mib", limits.disk_mib, shape.disk_mib),
    ] {
        if ask.value != have {
            return Err(Error::invalid(format!(
                "{name} is {}; a copy has the {have} of its source",
                ask.value
            )));
        }
    }
    Ok(())
}

/// Disks that are kept have copies that are kept, and others have not.
pub(crate) fn same_keeping(shape: &Shape, spec: &MachineSpec) -> Result<(), Error> {
    match (shape.kept, spec.kept.is_some()) {
        (true, false) => Err(Error::invalid(
            "the machine's disks are kept; a copy needs a place for its own",
        )),
        (false, true) => Err(Error::invalid(
            "the machine's disks are not kept; those of a copy cannot be either",
        )),
        _ => Ok(()),
    }
}

/// Saves a machine; `begin` starts its copies as soon as their disks are there.
async fn save(
    site: &Site,
    record: &Record,
    (process, program): (Process, Program),
    begin: impl FnOnce(Saved, State),
) -> Result<(), QemuError> {
    let (place, disks) = (&site.own, site.disks());
    let shape = record.shape;
    let memory = ram::empty(shape.mem_mib << 20)?;
    let filled = memory
        .try_clone()
        .map_err(QemuError::io("cannot share memory"))?;
    let base = tokio::task::spawn_blocking(move || begin_memory(process.pid, &filled));
    let mut qmp = Qmp::connect(&place.socket(QMP)).await?;
    let status = qmp.execute("query-status", json!({})).await?;
    let was_running = status["running"] == Value::Bool(true);
    let below = active_layers(&mut qmp).await?;
    let layer = below.iter().map(|(_, layer)| layer + 1).max().unwrap_or(1);
    let identity = place.identity(shape.accel)?;
    for (disk, old) in &below {
        let (file, new) = (disk_file(disk, *old), disk_file(disk, layer));
        // A fork that failed half way may have left a layer nobody uses.
        cache::remove(&disks.file(&new))?;
        disks.add_layer(disk, layer, &shape, (&file, Below::Qcow2))?;
        disks.give(identity, &[new])?;
    }
    let manifest = match &site.kept {
        None => None,
        // Before the layer is in use: a new layer without content reads like the one below it,
        // and what is below it may go on being written until then.
        Some(kept) => Some(next_layer(kept.path(), layer)?),
    };
    let saved = Saved {
        shape,
        layer,
        below: below
            .iter()
            .map(|(disk, old)| disk_file(disk, *old))
            .collect(),
        ram: memory
            .try_clone()
            .map_err(QemuError::io("cannot share memory"))?,
        program,
        manifest,
    };
    let mut record = record.clone();
    record.layer = layer;
    qmp.execute("stop", json!({})).await?;
    let (ready, state) = watch::channel(None);
    let stopped = async {
        save_disks(disks, &mut qmp, (&below, layer, &shape)).await?;
        record.store(place.path()).map_err(|_| QemuError::Gone)?;
        begin(saved, state);
        let directory = place.path().to_path_buf();
        base.await
            .map_err(|error| QemuError::io("work was interrupted")(error.into()))??;
        blocking(move || {
            add_written(process.pid, &memory)?;
            ram::seal(&memory)?;
            template::read_state(&directory)
        })
        .await
    };
    let stopped = stopped.await;
    if was_running {
        qmp.execute("cont", json!({})).await?;
    }
    // Without it the copies know that there is nothing to wait for.
    ready.send_replace(Some(stopped?.into()));
    Ok(())
}

fn next_layer(kept: &Path, layer: u32) -> Result<Manifest, QemuError> {
    let mut manifest = Manifest::load(kept)?.ok_or(QemuError::Gone)?;
    manifest.layer = layer;
    manifest.store(kept)?;
    Ok(manifest)
}

/// The devices' state and new layers for the disks of a stopped machine.
async fn save_disks(
    disks: &Place,
    qmp: &mut Qmp,
    (below, layer, shape): (&[(&'static str, u32)], u32, &Shape),
) -> Result<(), QemuError> {
    template::save(qmp).await?;
    for (disk, old) in below {
        let snapshot = json!({
            "node-name": disk_node(disk, *old),
            "snapshot-file": disk_path(disk, layer, shape),
            "snapshot-node-name": disk_node(disk, layer),
            "format": "qcow2",
            "mode": "existing",
        });
        qmp.execute("blockdev-snapshot-sync", snapshot).await?;
    }
    // All of them: a fork that was cut off may have left some as they were.
    for name in disks.shared_files(layer)? {
        disks.freeze(&name)?;
    }
    Ok(())
}

/// Which layer each disk writes to now, as QEMU itself sees it.
async fn active_layers(qmp: &mut Qmp) -> Result<Vec<(&'static str, u32)>, QemuError> {
    let answer = qmp.execute("query-block", json!({})).await?;
    let nodes: Vec<&str> = answer
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|device| device["inserted"]["node-name"].as_str())
        .collect();
    DISKS
        .iter()
        .map(|disk| {
            let layer = nodes.iter().find_map(|node| {
                let number = node.strip_prefix(disk)?.strip_prefix('-')?;
                number.parse().ok()
            });
            let layer = layer.ok_or_else(|| QemuError::Guest {
                reason: format!("its disk {disk} is not attached"),
            })?;
            Ok((*disk, layer))
        })
        .collect()
}

/// Copies the memory a machine began from.
fn begin_memory(pid: i32, memory: &File) -> Result<(), QemuError> {
    let began = File::open(format!("/proc/{pid}/fd/{RAM_FD}"))
        .map_err(QemuError::io("cannot reach the machine's memory"))?;
    ram::duplicate(&began, memory)
}

/// Adds the pages a stopped machine has written since it began.
fn add_written(pid: i32, memory: &File) -> Result<(), QemuError> {
    let reading = || QemuError::io("cannot read the machine's memory");
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).map_err(reading())?;
    let pagemap = File::open(format!("/proc/{pid}/pagemap")).map_err(reading())?;
    let mem = File::open(format!("/proc/{pid}/mem")).map_err(reading())?;
    let mut buffer = vec![0u8; CHUNK];
    for area in areas(&maps) {
        let pages = ((area.end - area.start) / PAGE as u64) as usize;
        let mut flags = vec![0u8; pages * 8];
        pagemap
            .read_exact_at(&mut flags, area.start / PAGE as u64 * 8)
            .map_err(reading())?;
        for (first, count) in written(&flags, CHUNK / PAGE) {
            let piece = &mut buffer[..count * PAGE];
            let at = (first * PAGE) as u64;
            mem.read_exact_at(piece, area.start + at)
                .map_err(reading())?;
            memory
                .write_all_at(piece, area.offset + at)
                .map_err(reading())?;
        }
    }
    Ok(())
}

/// A part of the machine's memory in QEMU's address space.
#[derive(Debug, PartialEq, Eq)]
struct Area {
    start: u64,
    end: u64,
    offset: u64,
}

fn areas(maps: &str) -> Vec<Area> {
    let area = |line: &str| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let offset = fields.nth(1)?;
        let name = fields.nth(2)?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        // The state of the devices is in a file of the same name, which is never mapped.
        name.starts_with("/memfd:motu-ram").then_some(Area {
            start: number(start)?,
            end: number(end)?,
            offset: number(offset)?,
        })
    };
    maps.lines().filter_map(area).collect()
}

/// Runs of pages that are the machine's own, at most `limit` pages each.
fn written(flags: &[u8], limit: usize) -> Vec<(usize, usize)> {
    const PRESENT_OR_SWAPPED: u64 = 0b11 << 62;
    const SHARED: u64 = 1 << 61;
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for (page, flags) in flags.chunks_exact(8).enumerate() {
        let flags = u64::from_le_bytes(flags.try_into().unwrap_or_default());
        if flags & PRESENT_OR_SWAPPED == 0 || flags & SHARED != 0 {
            continue;
        }
        match runs.last_mut() {
            Some((first, count)) if *first + *count == page && *count < limit => *count += 1,
            _ => runs.push((page, 1)),
        }
    }
    runs
}

pub(crate) async fn copy(
    saved: &Saved,
    from: &Site,
    spec: &MachineSpec,
    state: State,
) -> Result<Machine, QemuError> {
    let kept = spec.kept.as_ref().map(|kept| Place::claim(&kept.dir));
    let site = Site::open(&spec.dir, kept.transpose()?)?;
    match (&saved.manifest, &site.kept) {
        (Some(manifest), Some(kept)) => {
            kept::copy(from.disks(), kept, manifest)?;
            site.own.show_baseline(&kept_path(kept::BASELINE))?;
        }
        _ => {
            for name in from.own.shared_files(saved.layer)? {
                site.own.link(&from.own.file(&name), &name)?;
            }
            for (disk, below) in DISKS.iter().zip(&saved.below) {
                let below = (below.as_str(), Below::Qcow2);
                site.own.add_layer(disk, saved.layer, &saved.shape, below)?;
            }
        }
    }
    let (reading, writing) = state::pipe()?;
    let launch = Launch {
        program: &saved.program,
        site: &site,
        name: spec.id.as_str(),
        shape: &saved.shape,
        layer: saved.layer,
        throttle: Throttle::of(&spec.limits),
        start: Start::Restore {
            ram: &saved.ram,
            state: &reading,
        },
        leash: None,
        network: None,
    };
    // Whichever fails ends the other: a machine without a state never answers.
    let restored = restore::restore(spec, launch, Matter::News);
    state::fed(restored, feed(state, writing)).await
}

/// Hands the state to a QEMU that waits for it.
async fn feed(mut state: State, to: File) -> Result<(), QemuError> {
    let saved = state.wait_for(Option::is_some).await;
    let saved = saved.map_err(|_| QemuError::Gone)?.clone();
    state::hand_over(std::io::Cursor::new(saved.unwrap_or_default()), to).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn areas_of_the_machine_are_found_among_others() {
        let maps = "\
7f00-7f02 rw-p 00001000 00:01 5 /memfd:motu-ram (deleted)\n\
7f02-7f03 rw-p 00000000 00:00 0 \n\
7f04-7f05 r--p 00000000 08:01 9 /usr/lib/x.so\n";
        let found = areas(maps);
        let wanted = Area {
            start: 0x7f00,
            end: 0x7f02,
            offset: 0x1000,
        };
        assert_eq!(found, [wanted]);
    }

    #[test]
    fn only_private_pages_count_as_written() {
        let own = 1u64 << 63;
        let shared = own | 1 << 61;
        let swapped = 1u64 << 62;
        let pages = [0, own, own, shared, swapped, own, own];
        let flags: Vec<u8> = pages.iter().flat_map(|p: &u64| p.to_le_bytes()).collect();
        assert_eq!(written(&flags, 2), [(1, 2), (4, 2), (6, 1)]);
    }
}
