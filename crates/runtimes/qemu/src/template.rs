//! Saved machines that new ones start from.
//!
//! The first machine of a kind (environment, size, kernel, guest, QEMU) is
//! booted in the foreground, stopped as soon as its guest answers, and kept:
//! memory, state of the devices, and what its disks had become. Every machine
//! of that kind, the first included, is then a copy. A template that is cut
//! short, altered or of another version is refused and made again.
//!
//! ```text
//!   templates/KEY/   manifest.json  state  ram  root-0.qcow2  work-0.qcow2
//! ```

use crate::accel::Accelerator;
use crate::arguments::{self, Origin};
use crate::blocking::blocking;
use crate::cache::{self, Claim, Shelf};
use crate::disks::{DISKS, disk_file};
use crate::error::QemuError;
use crate::image::Image;
use crate::kernel::Kernel;
use crate::place::{BASE, BLANK, Place, QMP, STATE, Site};
use crate::process::{self, Failed, Launch, Messages, Start};
use crate::program::Program;
use crate::qcow2::Below;
use crate::qmp::Qmp;
use crate::record::Shape;
use crate::throttle::Throttle;
use crate::{guest, identity, ram, removal, tool};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

const VERSION: u32 = 2;
const MANIFEST: &str = "manifest.json";
const RAM: &str = "ram";
/// The directory of the machine that becomes the template, while it runs.
const SEED: &str = "seed";
/// How long a machine may take to boot, on a slow and busy host.
const BOOT_TIME: Duration = Duration::from_secs(120);
/// The most a machine's devices may have to say.
const MAX_STATE: u64 = 64 << 20;
/// How long a machine rests before it is saved: what its kernel has put off is done once
/// and not in every copy.
const REST: Duration = Duration::from_millis(300);
/// How old a machine under KVM is before it is saved: KVM takes a time-stamp counter that is
/// written again within a second for a correction of the first one, and a copy of a younger
/// machine would begin late.
pub(crate) const KVM_AGE: Duration = Duration::from_secs(3);
/// Templates whose memory is kept at hand.
const AT_HAND: usize = 4;

/// What a template is made of; its digest is the template's name.
#[derive(Clone, Debug)]
pub(crate) struct Kind {
    pub(crate) shape: Shape,
    /// The environment; machines whose disks are kept find theirs later.
    pub(crate) root: Option<Image>,
    pub(crate) blank: Image,
    pub(crate) kernel: Kernel,
    pub(crate) program: Program,
}

impl Kind {
    pub(crate) fn key(&self) -> String {
        let mut digest = Sha256::new();
        let mut add = |text: &str| digest.update(format!("{}:{text}\n", text.len()));
        add(&VERSION.to_string());
        add(self.root.as_ref().map_or("kept", |root| &root.digest));
        add(&self.blank.digest);
        add(&self.kernel.digest);
        add(&format!("{:?}", self.shape));
        add(&identity::file_identity(&self.program.path));
        let build = self.program.build("");
        for origin in [Origin::Boot, Origin::Restore] {
            for argument in arguments::arguments(build, &self.shape, 0, origin) {
                add(&argument);
            }
        }
        add(identity::processor_identity(self.shape.accel));
        crate::kernel::hex(&digest)
    }

    /// What all templates of this motu on this host have in common. One with another base
    /// can never be used again.
    fn base(&self) -> String {
        let digest = Sha256::new()
            .chain_update(VERSION.to_le_bytes())
            .chain_update(&self.kernel.digest)
            .chain_update(identity::file_identity(&self.program.path));
        crate::kernel::hex(&digest)
    }
}

/// A template ready for use.
#[derive(Debug)]
pub(crate) struct Template {
    pub(crate) ram: File,
    /// Sealed; opened anew for each machine, which reads it from the start.
    state: File,
    dir: PathBuf,
}

impl Template {
    pub(crate) fn state(&self) -> Result<File, QemuError> {
        reopen(&self.state)
    }

    /// The disk layer machines of this template begin above.
    pub(crate) fn layer(&self, disk: &str) -> PathBuf {
        self.dir.join(disk_file(disk, 0))
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    key: String,
    base: String,
    ram_bytes: u64,
    ram_sum: String,
    /// SHA-256 of the small files.
    files: BTreeMap<String, String>,
}

type Slot = Arc<tokio::sync::Mutex<Option<Arc<Template>>>>;

/// All templates of one home.
#[derive(Debug)]
pub(crate) struct Templates {
    shelf: Shelf,
    /// The most recently used first.
    slots: Mutex<Vec<(String, Slot)>>,
}

impl Templates {
    pub(crate) fn open(home: &Path) -> Result<Templates, QemuError> {
        Ok(Templates {
            shelf: Shelf::open(home, "templates")?,
            slots: Mutex::default(),
        })
    }

    /// Ends what a daemon that died left half made.
    pub(crate) async fn sweep(&self) {
        for leftover in self.shelf.leftovers() {
            let swept = removal::remove(&leftover.join(SEED)).await;
            if let Err(error) = swept.and_then(|()| cache::remove(&leftover)) {
                tracing::warn!(%error, "a half-made template was left behind");
            }
        }
    }

    /// Removes what no kind of machine can be made from any more. Blocks.
    pub(crate) fn remove_stale(shelf: &Shelf, kind: &Kind) {
        let base = kind.base();
        for name in shelf.names() {
            let text = std::fs::read(shelf.path(&name).join(MANIFEST)).unwrap_or_default();
            let manifest = serde_json::from_slice::<Manifest>(&text);
            if manifest.is_ok_and(|manifest| manifest.base == base) {
                continue;
            }
            tracing::info!(%name, "removing a template of another version");
            if let Err(error) = shelf.discard(&name) {
                tracing::warn!(%error, "a template of another version was left behind");
            }
        }
    }

    /// Lets go of those that are at hand; the next machine looks on the shelf.
    pub(crate) fn forget(&self) {
        self.slots
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clear();
    }

    pub(crate) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    /// The template of a kind; boots a machine if there is none yet.
    pub(crate) async fn get(&self, kind: &Kind) -> Result<Arc<Template>, QemuError> {
        let key = kind.key();
        let slot = self.slot(&key);
        let mut slot = slot.lock().await;
        if let Some(template) = &*slot {
            return Ok(template.clone());
        }
        let template = match self.load(&key).await {
            Ok(Some(template)) => template,
            Ok(None) => self.make(&key, kind).await?,
            Err(error @ QemuError::Damaged { .. }) => {
                tracing::warn!(%key, %error, "a template is made again");
                let (shelf, name) = (self.shelf.clone(), key.clone());
                blocking(move || shelf.discard(&name)).await?;
                self.make(&key, kind).await?
            }
            Err(error) => return Err(error),
        };
        let template = Arc::new(template);
        *slot = Some(template.clone());
        Ok(template)
    }

    /// Another template of a kind, in place of one that no machine came of. If somebody else has
    /// made another already, it is that one.
    pub(crate) async fn instead_of(
        &self,
        kind: &Kind,
        failed: &Arc<Template>,
    ) -> Result<Arc<Template>, QemuError> {
        let key = kind.key();
        let slot = self.slot(&key);
        let mut slot = slot.lock().await;
        match &*slot {
            Some(other) if !Arc::ptr_eq(other, failed) => return Ok(other.clone()),
            _ => *slot = None,
        }
        let (shelf, name) = (self.shelf.clone(), key.clone());
        blocking(move || shelf.discard(&name)).await?;
        let template = Arc::new(self.make(&key, kind).await?);
        *slot = Some(template.clone());
        Ok(template)
    }

    fn slot(&self, key: &str) -> Slot {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let found = slots.iter().position(|(name, _)| name == key);
        let entry = match found {
            Some(at) => slots.remove(at),
            None => (key.to_string(), Slot::default()),
        };
        let slot = entry.1.clone();
        slots.insert(0, entry);
        // Machines hold the memory they need themselves.
        slots.truncate(AT_HAND);
        slot
    }

    async fn load(&self, key: &str) -> Result<Option<Template>, QemuError> {
        let dir = self.shelf.path(key);
        if !dir.exists() {
            return Ok(None);
        }
        let key = key.to_string();
        blocking(move || load(&dir, &key)).await.map(Some)
    }

    async fn make(&self, key: &str, kind: &Kind) -> Result<Template, QemuError> {
        let (shelf, name) = (self.shelf.clone(), key.to_string());
        let claim = blocking(move || shelf.claim(&name)).await?;
        if let Some(claim) = claim {
            let seed = claim.staging.join(SEED);
            let built = build(&claim, key, kind).await;
            // Whatever happened, the machine it was made from ends.
            removal::remove(&seed).await?;
            built?;
            cache::remove(&seed)?;
            claim.publish(key)?;
        }
        let made = self.load(key).await?;
        made.ok_or_else(|| damaged("it is gone"))
    }
}

async fn build(claim: &Claim, key: &str, kind: &Kind) -> Result<(), QemuError> {
    let staging = claim.staging.clone();
    let seed = staging.join(SEED);
    std::fs::create_dir(&seed).map_err(QemuError::io("cannot stage a template"))?;
    let begun = Instant::now();
    let (memory, _) = boot(kind, &seed).await?;
    let place = Place::open(&seed)?;
    if !kind.shape.kept {
        let link = guest::greet(&place).await?;
        guest::prepare(&link).await;
        link.close();
    }
    tokio::time::sleep(rest(&kind.shape, begun.elapsed())).await;
    stop_and_save(&place).await?;
    let (key, base) = (key.to_string(), kind.base());
    blocking(move || keep(&staging, &seed, (key, base), &memory)).await
}

/// How long a machine of this age stands by before it is saved.
fn rest(shape: &Shape, age: Duration) -> Duration {
    let settle = match shape.kept {
        true => Duration::ZERO,
        false => REST,
    };
    match shape.accel {
        Accelerator::Tcg => settle,
        Accelerator::Kvm => settle.max(KVM_AGE.saturating_sub(age)),
    }
}

/// Boots a machine in an empty directory until somebody in it answers; returns its
/// memory and how long it took from the start of QEMU.
pub(crate) async fn boot(kind: &Kind, dir: &Path) -> Result<(File, Duration), QemuError> {
    // The disks of a seed are its own even where those of its copies are kept.
    let disks = kind.shape.kept.then(|| Place::open(dir)).transpose()?;
    let site = Site::open(dir, disks)?;
    let place = &site.own;
    let root = kind.root.as_ref().unwrap_or(&kind.blank);
    place.link(&root.path, BASE)?;
    place.link(&kind.blank.path, BLANK)?;
    place.link(&kind.kernel.image, arguments::KERNEL)?;
    place.link(&kind.kernel.initramfs, arguments::INITRAMFS)?;
    for (disk, base) in DISKS.iter().zip([BASE, BLANK]) {
        place.add_layer(disk, 0, &kind.shape, (base, Below::Raw))?;
    }
    if kind.shape.kept {
        place.show_baseline(BLANK)?;
    }
    let memory = ram::empty(kind.shape.mem_mib << 20)?;
    let launch = Launch {
        program: &kind.program,
        site: &site,
        name: "template",
        shape: &kind.shape,
        layer: 0,
        throttle: Throttle::default(),
        start: Start::Boot { ram: &memory },
        leash: None,
        network: None,
    };
    let begun = Instant::now();
    let (pidfd, messages) = process::start(launch)?;
    let answer = async {
        match kind.shape.kept {
            true => guest::listens(place, BOOT_TIME).await,
            false => {
                let greeted = guest::greet_within(place, BOOT_TIME).await;
                greeted.map(|link| link.close())
            }
        }
    };
    let answered = process::while_it_lives(&pidfd, answer);
    match tokio::time::timeout(BOOT_TIME, answered).await {
        Ok(Ok(())) => Ok((memory, begun.elapsed())),
        Ok(Err(Failed::Work(error))) => Err(error),
        Ok(Err(Failed::Ended(how))) => Err(did_not_boot(place, messages, &how)),
        Err(_) => Err(did_not_boot(place, messages, "it took too long")),
    }
}

/// Stops the machine and writes the state of its devices to a file beside it.
pub(crate) async fn stop_and_save(place: &Place) -> Result<(), QemuError> {
    let mut qmp = Qmp::connect(&place.socket(QMP)).await?;
    qmp.execute("stop", json!({})).await?;
    save(&mut qmp).await
}

/// Writes the state of a stopped machine's devices, all but its memory.
pub(crate) async fn save(qmp: &mut Qmp) -> Result<(), QemuError> {
    // The command is named after its first user; it has nothing to do with Xen here.
    let arguments = json!({ "filename": STATE, "live": false });
    qmp.execute("xen-save-devices-state", arguments).await?;
    Ok(())
}

/// The state a machine's QEMU has saved.
pub(crate) fn read_state(place: &Path) -> Result<Vec<u8>, QemuError> {
    let reading = || QemuError::io("cannot read a machine's state");
    let file = File::open(place.join(STATE)).map_err(reading())?;
    let mut bytes = Vec::new();
    file.take(MAX_STATE)
        .read_to_end(&mut bytes)
        .map_err(reading())?;
    Ok(bytes)
}

fn did_not_boot(place: &Place, mut messages: Messages, why: &str) -> QemuError {
    let console = std::fs::read(place.file(arguments::CONSOLE)).unwrap_or_default();
    let console = tool::tail(&String::from_utf8_lossy(&console));
    QemuError::Boot {
        reason: format!("{why}; QEMU: {}; console: {console}", messages.text()),
    }
}

/// Moves what is worth keeping out of the seed, memory and manifest included.
fn keep(
    staging: &Path,
    seed: &Path,
    (key, base): (String, String),
    memory: &File,
) -> Result<(), QemuError> {
    let keeping = || QemuError::io("cannot keep a template");
    let mut files = BTreeMap::new();
    let disks = DISKS.map(|disk| disk_file(disk, 0));
    for name in disks.iter().map(String::as_str).chain([STATE]) {
        let kept = staging.join(name);
        // A copy: the seed's own file is still open in its QEMU.
        std::fs::copy(seed.join(name), &kept).map_err(keeping())?;
        cache::freeze(&kept)?;
        files.insert(name.to_string(), sha256(&kept).map_err(keeping())?);
    }
    let kept = File::create(staging.join(RAM)).map_err(keeping())?;
    let ram_bytes = memory.metadata().map_err(keeping())?.len();
    kept.set_len(ram_bytes).map_err(keeping())?;
    let manifest = Manifest {
        version: VERSION,
        key,
        base,
        ram_bytes,
        ram_sum: ram::copy(memory, &kept)?.text(),
        files,
    };
    let text = serde_json::to_vec_pretty(&manifest).unwrap_or_default();
    std::fs::write(staging.join(MANIFEST), text).map_err(keeping())
}

/// Reads a template and believes nothing it cannot check.
fn load(dir: &Path, key: &str) -> Result<Template, QemuError> {
    let reading = || {
        |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => damaged("a part of it is missing"),
            _ => QemuError::io("cannot read a template")(error),
        }
    };
    let text = std::fs::read(dir.join(MANIFEST)).map_err(reading())?;
    let manifest: Manifest =
        serde_json::from_slice(&text).map_err(|_| damaged("its manifest is unreadable"))?;
    if manifest.version != VERSION || manifest.key != key {
        return Err(damaged("it is of another version"));
    }
    for (name, digest) in &manifest.files {
        if sha256(&dir.join(name)).map_err(reading())? != *digest {
            return Err(damaged(&format!("{name} is not what was saved")));
        }
    }
    let kept = File::open(dir.join(RAM)).map_err(reading())?;
    if kept.metadata().map_err(reading())?.len() != manifest.ram_bytes {
        return Err(damaged("its memory has another size"));
    }
    let memory = ram::empty(manifest.ram_bytes)?;
    if ram::copy(&kept, &memory)?.text() != manifest.ram_sum {
        return Err(damaged("its memory is not what was saved"));
    }
    ram::seal(&memory)?;
    let state = std::fs::read(dir.join(STATE)).map_err(reading())?;
    Ok(Template {
        ram: memory,
        state: sealed(&state)?,
        dir: dir.to_path_buf(),
    })
}

fn sealed(content: &[u8]) -> Result<File, QemuError> {
    use std::os::unix::fs::FileExt;
    let file = ram::empty(content.len() as u64)?;
    file.write_all_at(content, 0)
        .map_err(QemuError::io("cannot keep a machine's state"))?;
    ram::seal(&file)?;
    Ok(file)
}

fn sha256(path: &Path) -> std::io::Result<String> {
    let digest = Sha256::digest(std::fs::read(path)?);
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn damaged(reason: &str) -> QemuError {
    QemuError::Damaged {
        reason: reason.to_string(),
    }
}

/// Opens a file once more: a new descriptor has an offset of its own.
fn reopen(file: &File) -> Result<File, QemuError> {
    File::open(format!("/proc/self/fd/{}", file.as_raw_fd()))
        .map_err(QemuError::io("cannot open a machine's state"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_young_is_saved_under_kvm() {
        let shape = |accel, kept| Shape {
            accel,
            mem_mib: 256,
            vcpu_count: 1,
            disk_mib: 64,
            root_bytes: 1 << 30,
            kept,
            network: false,
        };
        let (ms, tcg, kvm) = (Duration::from_millis, Accelerator::Tcg, Accelerator::Kvm);
        let table = [
            (shape(tcg, false), ms(500), REST),
            (shape(tcg, true), ms(500), Duration::ZERO),
            (shape(kvm, false), ms(500), ms(2500)),
            (shape(kvm, true), ms(500), ms(2500)),
            (shape(kvm, false), ms(2900), REST),
            (shape(kvm, false), ms(9000), REST),
            (shape(kvm, true), ms(9000), Duration::ZERO),
        ];
        for (shape, age, wanted) in table {
            assert_eq!(rest(&shape, age), wanted, "{shape:?} at {age:?}");
        }
    }
}
