//! One machine: made, found, paused, ended.
//!
//! Every machine is a copy of a template. What `create` makes, in this order,
//! is all in the machine's directory: links to what is shared, a disk layer of
//! its own, the record, sockets, the process. The record is there before the
//! process, so a crash at any point leaves enough to sweep.

use crate::Settings;
use crate::accel::Probe;
use crate::asleep::Sleepers;
use crate::blocking::blocking;
use crate::board::Board;
use crate::error::QemuError;
use crate::image::{Image, Images, Journal, SLACK};
use crate::kept::{self, Manifest};
use crate::kernel::{Kernel, Kernels};
use crate::place::{Place, QMP, Site};
use crate::process::{self, Launch, Start};
use crate::program::{Program, Programs};
use crate::qmp::Qmp;
use crate::record::{Record, Shape};
use crate::removal::remove;
use crate::restore::{self, Copy};
use crate::spare::{self, Spare, Spares};
use crate::sys::Leash;
use crate::template::{Kind, Template, Templates};
use crate::throttle::Throttle;
use crate::{cache, guest, state, template};
use motu_core::runtime::{Ask, Ended, Kept, Machine, MachineSpec};
use motu_core::{Accel, Error};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::OnceCell;

/// The least memory the kernel boots in.
pub(crate) const MIN_MEM_MIB: u64 = 128;

/// What makes machines.
#[derive(Debug)]
pub(crate) struct Maker {
    guest: bytes::Bytes,
    pub(crate) board: Board,
    pub(crate) accel: Accel,
    pub(crate) probe: Probe,
    pub(crate) programs: Arc<Programs>,
    pub(crate) kernels: Kernels,
    pub(crate) images: Images,
    pub(crate) templates: Templates,
    pub(crate) sleepers: Sleepers,
    kernel: OnceCell<Kernel>,
    pub(crate) spares: Spares,
    /// One at a time: they are made beside what is wanted now.
    making_spare: tokio::sync::Mutex<()>,
    swept: OnceCell<()>,
    cleaned: AtomicBool,
}

impl Maker {
    pub(crate) fn new(settings: Settings) -> Result<Maker, QemuError> {
        // One of another architecture makes no machines: `check` refuses it.
        let board = Board::of(&settings.guest).unwrap_or(Board::HERE);
        Ok(Maker {
            guest: settings.guest,
            board,
            accel: settings.accel,
            probe: Probe::new(&settings.home),
            programs: Arc::new(Programs::new(settings.config.program.clone(), board)),
            kernels: Kernels::open(&settings.home, &settings.config, board)?,
            images: Images::open(&settings.home)?,
            templates: Templates::open(&settings.home)?,
            sleepers: Sleepers::default(),
            kernel: OnceCell::new(),
            spares: Spares::open(&settings.home, settings.spares)?,
            making_spare: tokio::sync::Mutex::default(),
            swept: OnceCell::new(),
            cleaned: AtomicBool::new(false),
        })
    }

    async fn kernel(&self) -> Result<Kernel, QemuError> {
        let get = || async {
            let (kernels, guest) = (self.kernels.clone(), self.guest.clone());
            blocking(move || kernels.get(&guest)).await
        };
        self.kernel.get_or_try_init(get).await.cloned()
    }

    /// The QEMU of this host.
    pub(crate) async fn program(&self) -> Result<Program, QemuError> {
        let programs = self.programs.clone();
        blocking(move || programs.get()).await
    }

    /// What a call asks for, or else what is configured.
    pub(crate) fn choice(&self, spec: &MachineSpec) -> Accel {
        match spec.accel {
            Accel::Auto => self.accel,
            asked => asked,
        }
    }

    async fn kind(&self, spec: &MachineSpec) -> Result<Kind, QemuError> {
        let accel = self.probe.decide(self.choice(spec)).await?;
        let program = self.program().await?;
        let kernel = self.kernel().await?;
        let (images, path) = (self.images.clone(), spec.root.clone());
        let disk_mib = spec.limits.disk_mib.value;
        let (root, blank) = blocking(move || {
            let root = images.root(&path, Journal::Without)?;
            Ok((root, images.blank(Journal::Without, disk_mib)?))
        })
        .await?;
        Ok(Kind {
            shape: Shape {
                accel,
                mem_mib: spec.limits.mem_mib.value,
                vcpu_count: spec.limits.vcpu_count.value,
                disk_mib,
                root_bytes: root.bytes - SLACK + (disk_mib << 20),
                kept: false,
                network: spec.network.is_some(),
            },
            root: Some(root),
            blank,
            kernel,
            program,
        })
    }

    /// Removes what a daemon that was killed left, once. Nothing of ours is there yet.
    pub(crate) async fn sweep(&self) {
        let sweep = || async {
            self.templates.sweep().await;
            self.spares.sweep();
        };
        self.swept.get_or_init(sweep).await;
    }

    async fn make(self: &Arc<Maker>, spec: &MachineSpec) -> Result<Machine, QemuError> {
        self.sweep().await;
        if let Some(kept) = &spec.kept {
            return self.make_kept(spec, kept).await;
        }
        let kind = self.kind(spec).await?;
        self.clean(&kind);
        if let Some(machine) = self.make_of_spare(spec, &kind).await {
            self.make_ahead(kind);
            return Ok(machine);
        }
        let copy = Copy {
            kind: &kind,
            site: &Site::open(&spec.dir, None)?,
            layer: 1,
        };
        let machine = restore::from_template(&self.templates, spec, copy).await?;
        self.make_ahead(kind);
        Ok(machine)
    }

    /// Once, and beside everything else: what earlier versions have left in the cache.
    fn clean(&self, kind: &Kind) {
        if self.cleaned.swap(true, Ordering::Relaxed) {
            return;
        }
        let (shelf, kind) = (self.templates.shelf().clone(), kind.clone());
        tokio::task::spawn_blocking(move || Templates::remove_stale(&shelf, &kind));
    }

    /// A machine that was made ahead, if there is one and it is as good as it was.
    async fn make_of_spare(&self, spec: &MachineSpec, kind: &Kind) -> Option<Machine> {
        if !Throttle::of(&spec.limits).is_none() || spec.network.is_some() {
            return None;
        }
        let spare = self.spares.take(&kind.key())?;
        match spare.become_machine(&spec.dir).await {
            Ok(record) => Some(restore::made(spec, &kind.shape, record)),
            Err(error) => {
                tracing::warn!(%error, "a spare machine was of no use");
                // It may have taken the directory along.
                let _ = std::fs::create_dir(&spec.dir);
                None
            }
        }
    }

    /// Makes one more of this kind; lets it live when things are quiet.
    fn make_ahead(self: &Arc<Maker>, kind: Kind) {
        let key = kind.key();
        if !self.spares.wants(&key) {
            return;
        }
        let maker = Arc::downgrade(self);
        let made_ahead = async move {
            let Some(held) = maker.upgrade() else { return };
            match held.spare(&key, &kind).await {
                Ok(true) => {}
                // Somebody else was faster, and looks after it.
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(%error, "no machine was made ahead");
                    return;
                }
            }
            drop(held);
            while let Some(left) = maker.upgrade().map(|maker| maker.spares.until_quiet())
                && !left.is_zero()
            {
                tokio::time::sleep(left).await;
            }
            if let Some(maker) = maker.upgrade() {
                maker.settle_spare(&key).await;
            }
            tokio::time::sleep(spare::LIFETIME).await;
            if let Some(maker) = maker.upgrade() {
                maker.spares.expire();
            }
        };
        tokio::spawn(made_ahead);
    }

    /// Starts a process that waits for its state, unless there is a spare.
    async fn spare(&self, key: &str, kind: &Kind) -> Result<bool, QemuError> {
        let _alone = self.making_spare.lock().await;
        if !self.spares.wants(key) {
            return Ok(false);
        }
        let template = self.templates.get(kind).await?;
        let dir = self.spares.place()?;
        match make_spare(key, kind, &template, &dir) {
            Ok(spare) => {
                self.spares.put(spare);
                Ok(true)
            }
            Err(error) => {
                remove(&dir).await?;
                cache::remove(&dir)?;
                Err(error)
            }
        }
    }

    async fn settle_spare(&self, key: &str) {
        let _alone = self.making_spare.lock().await;
        let Some(spare) = self.spares.take_unstarted(key) else {
            return;
        };
        match spare.settle().await {
            Ok(spare) => self.spares.put(spare),
            Err(error) => tracing::warn!(%error, "a spare machine did not come to life"),
        }
    }

    /// A machine whose disks outlive it: its template is saved before disks are mounted.
    async fn make_kept(&self, spec: &MachineSpec, kept: &Kept) -> Result<Machine, QemuError> {
        let accel = self.probe.decide(self.choice(spec)).await?;
        let program = self.program().await?;
        let kernel = self.kernel().await?;
        let images = self.images.clone();
        let (place, root, ask) = (kept.clone(), spec.root.clone(), spec.limits.disk_mib);
        let (disks, manifest, blank) =
            blocking(move || open_kept(&images, &place, &root, ask)).await?;
        let kind = Kind {
            shape: Shape {
                accel,
                mem_mib: spec.limits.mem_mib.value,
                vcpu_count: spec.limits.vcpu_count.value,
                disk_mib: manifest.disk_mib,
                root_bytes: manifest.root_bytes,
                kept: true,
                network: spec.network.is_some(),
            },
            root: None,
            blank,
            kernel,
            program,
        };
        self.clean(&kind);
        let copy = Copy {
            kind: &kind,
            site: &Site::open(&spec.dir, Some(disks))?,
            layer: manifest.layer,
        };
        restore::from_template(&self.templates, spec, copy).await
    }
}

/// Boots a machine from its kernel in an empty directory and ends it; says how long it took to answer.
pub(crate) async fn cold_boot(maker: &Maker, spec: &MachineSpec) -> Result<Duration, QemuError> {
    let kind = maker.kind(spec).await?;
    let booted = template::boot(&kind, &spec.dir).await;
    remove(&spec.dir).await?;
    booted.map(|(_, took)| took)
}

/// Starts a process that waits for the state of a template.
fn make_spare(key: &str, kind: &Kind, template: &Template, dir: &Path) -> Result<Spare, QemuError> {
    let site = Site::open(dir, None)?;
    restore::lay_out(&site.own, kind, template)?;
    let state = template.state()?;
    let (reading, to) = state::pipe()?;
    let leash = Leash::new().map_err(QemuError::io("cannot hold QEMU"))?;
    let launch = Launch {
        program: &kind.program,
        site: &site,
        name: "spare",
        shape: &kind.shape,
        layer: 1,
        throttle: Throttle::default(),
        start: Start::Restore {
            ram: &template.ram,
            state: &reading,
        },
        leash: Some(&leash),
        network: None,
    };
    let (pidfd, _) = process::start(launch)?;
    Ok(Spare::unstarted(
        key.to_string(),
        dir,
        (pidfd, leash),
        (state, to),
    ))
}

/// The kept disks of a machine, its own from now on and made if this is its first start. Blocks.
fn open_kept(
    images: &Images,
    kept: &Kept,
    root: &Path,
    disk_mib: Ask,
) -> Result<(Place, Manifest, Image), QemuError> {
    let disks = Place::claim(&kept.dir)?;
    let Some(manifest) = Manifest::load(&kept.dir)? else {
        let blank = images.blank(Journal::With, disk_mib.value)?;
        let root = images.root(root, Journal::With)?;
        let manifest = kept::begin(&disks, &kept.baseline, [&root, &blank], disk_mib.value)?;
        return Ok((disks, manifest, blank));
    };
    manifest.check(&kept.dir)?;
    manifest.freeze(&disks)?;
    if disk_mib.explicit && disk_mib.value != manifest.disk_mib {
        return Err(QemuError::Invalid(format!(
            "disk_mib is {}; the kept disks have {} and keep it",
            disk_mib.value, manifest.disk_mib
        )));
    }
    let blank = images.blank(Journal::With, manifest.disk_mib)?;
    Ok((disks, manifest, blank))
}

/// Makes a machine, or leaves nothing.
pub(crate) async fn create(maker: &Arc<Maker>, spec: &MachineSpec) -> Result<Machine, Error> {
    refuse(spec)?;
    match maker.make(spec).await {
        Ok(machine) => Ok(machine),
        Err(error) => {
            if let Err(left) = remove(&spec.dir).await {
                tracing::warn!(id = %spec.id, %left, "something was left of a failed create");
            }
            Err(error.into())
        }
    }
}

/// What a virtual machine cannot promise is refused when it was asked for by value.
pub(crate) fn refuse(spec: &MachineSpec) -> Result<(), Error> {
    let limits = &spec.limits;
    if limits.mem_mib.value < MIN_MEM_MIB {
        return Err(Error::invalid(format!(
            "mem_mib is {}; a virtual machine needs at least {MIN_MEM_MIB}",
            limits.mem_mib.value
        )));
    }
    for (name, ask) in [("pids_max", limits.pids_max), ("nofile", limits.nofile)] {
        if ask.explicit {
            return Err(Error::unsupported(format!(
                "the qemu runtime cannot enforce {name}: a virtual machine has a kernel of its own"
            ))
            .hint(format!("leave {name} out, or use the container runtime")));
        }
    }
    Ok(())
}

/// The record of a machine: the one in its directory is the newest.
pub(crate) fn record_of(machine: &Machine) -> Option<Record> {
    Record::load(&machine.dir).or_else(|| serde_json::from_value(machine.record.clone()).ok())
}

pub(crate) fn is_alive(machine: &Machine) -> bool {
    record_of(machine).is_some_and(|record| record.open().is_some())
}

/// Waits for the end of a machine.
pub(crate) async fn ended(machine: &Machine) -> Ended {
    let reason = match record_of(machine).and_then(|record| record.open_ended()) {
        None => "the machine is not there".to_string(),
        Some(pidfd) => match process::wait(pidfd).await {
            Ok(how) => how.unwrap_or_else(|| "QEMU ended".to_string()),
            Err(error) => format!("the machine could not be watched: {error}"),
        },
    };
    Ended { reason }
}

/// Stops or continues a machine's processors.
pub(crate) async fn control(machine: &Machine, command: &str) -> Result<(), QemuError> {
    if !is_alive(machine) {
        return Err(QemuError::Gone);
    }
    let place = Place::open(&machine.dir)?;
    let mut qmp = Qmp::connect(&place.socket(QMP)).await?;
    qmp.execute(command, json!({})).await?;
    Ok(())
}

/// Lets a paused machine go on, at the time it is now.
pub(crate) async fn resume(machine: &Machine) -> Result<(), QemuError> {
    control(machine, "cont").await?;
    let place = Place::open(&machine.dir)?;
    if let Err(error) = guest::set_clock(&place).await {
        tracing::warn!(id = %machine.id, %error, "a machine goes on with the wrong time");
    }
    Ok(())
}
