//! The kernel of every machine, and the initial file system around our guest.
//!
//! The kernel is Debian's own for clouds, taken from its package by apt (which
//! checks signatures) and kept by digest. Only the few modules a machine needs
//! to find its disks and ports are kept with it. The kernel inside the package
//! is compressed; unpacked once here, it starts sooner.

use crate::cache::{Shelf, freeze};
use crate::cpio::Archive;
use crate::error::QemuError;
use crate::modules::{Lacking, Modules};
use crate::{lz4, tool};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

const PACKAGE: &str = "linux-image-cloud-amd64";
/// The name under which the kernel in use is found.
const CURRENT: &str = "current-v4";
const KERNEL: &str = "vmlinux";
const MODULES: &str = "modules";
const KEPT_MODULES: &str = "modules-kept";
const NETWORK_MODULES: &str = "modules-network";
/// What an unpacked kernel may weigh.
const MAX_KERNEL: usize = 512 << 20;

/// With what they need themselves; see `modules`.
const WANTED: [&str; 9] = [
    "virtio",
    "virtio_ring",
    "virtio_pci_modern_dev",
    "virtio_pci_legacy_dev",
    "virtio_pci",
    "virtio_blk",
    "virtio_console",
    // Tells QEMU of a kernel that gives up.
    "pvpanic",
    "pvpanic-mmio",
];

/// Further modules, for machines whose disks are kept.
const WANTED_KEPT: [&str; 1] = ["overlay"];

/// Further modules, for machines with a network.
const WANTED_NETWORK: [&str; 3] = ["failover", "net_failover", "virtio_net"];

/// Which modules are where.
const SETS: [(&str, &[&str]); 3] = [
    (MODULES, &WANTED),
    (KEPT_MODULES, &WANTED_KEPT),
    (NETWORK_MODULES, &WANTED_NETWORK),
];

/// What a machine boots.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    pub(crate) image: PathBuf,
    pub(crate) initramfs: PathBuf,
    /// Of the kernel, its modules and the guest.
    pub(crate) digest: String,
}

/// Where kernels and initial file systems are kept.
#[derive(Clone, Debug)]
pub(crate) struct Kernels {
    shelf: Shelf,
    initial: Shelf,
}

impl Kernels {
    pub(crate) fn open(home: &Path) -> Result<Kernels, QemuError> {
        Ok(Kernels {
            shelf: Shelf::open(home, "kernels")?,
            initial: Shelf::open(home, "initramfs")?,
        })
    }

    /// Whether a kernel is there already.
    pub(crate) fn is_ready(&self) -> bool {
        self.shelf.path(CURRENT).join(KERNEL).exists()
    }

    /// The kernel with this guest in its initial file system. Blocks; the first time for long.
    pub(crate) fn get(&self, guest: &[u8]) -> Result<Kernel, QemuError> {
        let current = self.shelf.path(CURRENT);
        if !self.is_ready() {
            self.fetch()?;
        }
        let place = current
            .canonicalize()
            .map_err(QemuError::io("cannot find the kernel"))?;
        let base = place.file_name().unwrap_or_default().to_string_lossy();
        let digest = hex(&Sha256::new()
            .chain_update(base.as_bytes())
            .chain_update(Sha256::digest(guest)));
        let name = format!("{digest}.cpio");
        let initramfs = self.initial.path(&name);
        if !initramfs.exists()
            && let Some(claim) = self.initial.claim(&name)?
        {
            let archive = initial(&place, guest)?;
            let staged = claim.staging.join("cpio");
            write_frozen(&staged, &archive)?;
            claim.publish_file("cpio", &name)?;
        }
        Ok(Kernel {
            image: place.join(KERNEL),
            initramfs,
            digest,
        })
    }

    fn fetch(&self) -> Result<(), QemuError> {
        let Some(claim) = self.shelf.claim(CURRENT)? else {
            return Ok(());
        };
        let scratch = claim.staging.join("scratch");
        std::fs::create_dir(&scratch).map_err(QemuError::io("cannot stage a kernel"))?;
        let package = download(&scratch)?;
        let tree = scratch.join("tree");
        let mut unpack = tool::command("dpkg-deb")?;
        unpack.arg("-x").arg(package).arg(&tree);
        tool::run(unpack)?;
        let digest = arrange(&tree, &claim.staging)?;
        crate::cache::remove(&scratch)?;
        let link = self.shelf.path(".current-new");
        crate::cache::remove(&link)?;
        std::os::unix::fs::symlink(&digest, &link)
            .map_err(QemuError::io("cannot name the kernel"))?;
        let current = self.shelf.path(CURRENT);
        claim.publish(&digest)?;
        std::fs::rename(link, current).map_err(QemuError::io("cannot name the kernel"))
    }
}

/// Downloads the newest kernel package apt knows of.
fn download(scratch: &Path) -> Result<PathBuf, QemuError> {
    let no_kernel = |error: QemuError| match error {
        QemuError::Failed { tail, .. } => QemuError::Kernel { reason: tail },
        other => other,
    };
    let mut options: Vec<String> = vec!["-o".into(), "APT::Sandbox::User=root".into()];
    let name = match concrete(&options) {
        Ok(name) => name,
        Err(_) => {
            // The host has no package lists, or old ones: fetch our own and leave the host's alone.
            for (key, place) in [("Dir::State::lists", "lists"), ("Dir::Cache", "cache")] {
                let place = scratch.join(place);
                std::fs::create_dir_all(place.join("partial"))
                    .map_err(QemuError::io("cannot stage package lists"))?;
                options.extend(["-o".into(), format!("{key}={}", place.display())]);
            }
            let mut update = tool::command("apt-get")?;
            update.args(&options).args(["-qq", "update"]);
            tool::run(update).map_err(no_kernel)?;
            concrete(&options).map_err(no_kernel)?
        }
    };
    let mut download = tool::command("apt-get")?;
    download
        .args(&options)
        .args(["-qq", "download", &name])
        .current_dir(scratch);
    tool::run(download).map_err(no_kernel)?;
    first_with(scratch, |name| name.ends_with(".deb")).ok_or_else(|| QemuError::Kernel {
        reason: format!("apt downloaded nothing for {name}"),
    })
}

/// The package behind the name that always means the newest one.
fn concrete(options: &[String]) -> Result<String, QemuError> {
    let mut ask = tool::command("apt-cache")?;
    ask.args(options).args(["depends", PACKAGE]);
    let said = tool::run(ask)?;
    let found = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| name.starts_with("linux-image-"));
    found.map(str::to_string).ok_or_else(|| QemuError::Kernel {
        reason: format!("apt does not know {PACKAGE}"),
    })
}

/// Puts the kernel and its modules where machines find them; returns their digest.
fn arrange(tree: &Path, staging: &Path) -> Result<String, QemuError> {
    let missing = |what: &str| QemuError::Kernel {
        reason: format!("the package has no {what}"),
    };
    let packed = first_with(&tree.join("boot"), |name| name.starts_with("vmlinuz-"))
        .ok_or_else(|| missing("kernel"))?;
    let packed = std::fs::read(packed).map_err(QemuError::io("cannot read the kernel"))?;
    // A kernel that is packed in another way boots as it is, a little later.
    let image = unpack(&packed).unwrap_or(packed);
    write_frozen(&staging.join(KERNEL), &image)?;
    let mut digest = Sha256::new().chain_update(&image);
    let found = modules_of(&tree.join("lib/modules"));
    let mut loaded = Vec::new();
    for (directory, wanted) in SETS {
        let modules = staging.join(directory);
        std::fs::create_dir(&modules).map_err(QemuError::io("cannot stage a kernel"))?;
        // Those of the first set are there in every machine.
        let order = found
            .in_order(wanted, &loaded)
            .map_err(|error| match error {
                Lacking::Module(name) => missing(&format!("module {name}")),
                Lacking::Reading(error) => QemuError::io("cannot read a module")(error),
            })?;
        for (number, module) in order.iter().enumerate() {
            let name = module
                .file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy();
            write_frozen(
                &modules.join(format!("{number:02}-{name}")),
                &module.content,
            )?;
            digest.update(&module.content);
        }
        if directory == MODULES {
            loaded = order;
        }
    }
    Ok(hex(&digest))
}

/// Every module of a kernel, and the names of those it has built in.
fn modules_of(tree: &Path) -> Modules {
    let mut modules = Modules::default();
    for path in module_files(tree) {
        if let Some(name) = module_name(&path) {
            modules.add(name, path.clone());
        }
    }
    for version in std::fs::read_dir(tree).into_iter().flatten().flatten() {
        if let Ok(list) = std::fs::read_to_string(version.path().join("modules.builtin")) {
            modules.built_in(&list);
        }
    }
    modules
}

/// The ELF image inside a bootable kernel, if it is packed with LZ4.
fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    // Offsets of the boot protocol: sectors before the payload, its place and its length.
    let sectors = usize::from(*packed.get(0x1f1)?) + 1;
    let number = |at: usize| -> Option<usize> {
        let bytes = packed.get(at..at + 4)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    };
    let start = sectors * 512 + number(0x248)?;
    let payload = packed.get(start..start + number(0x24c)?)?;
    // The last four bytes say how large the result is.
    let (stream, size) = payload.split_last_chunk::<4>()?;
    let size = u32::from_le_bytes(*size) as usize;
    let image = lz4::unpack(stream, size.min(MAX_KERNEL)).ok()?;
    (image.len() == size && image.starts_with(b"\x7fELF")).then_some(image)
}

fn initial(kernel: &Path, guest: &[u8]) -> Result<Vec<u8>, QemuError> {
    let mut archive = Archive::default();
    let sets = SETS.map(|(directory, _)| directory);
    for directory in ["dev", "proc", "sys", "root"].into_iter().chain(sets) {
        archive.directory(directory);
    }
    archive.device("dev/console", 5, 1);
    archive.program("init", guest);
    for directory in sets {
        for path in module_files(&kernel.join(directory)) {
            let content = std::fs::read(&path).map_err(QemuError::io("cannot read a module"))?;
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            archive.program(&format!("{directory}/{name}"), &content);
        }
    }
    Ok(archive.finish())
}

/// Every module below a directory, in order.
fn module_files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut rest = vec![directory.to_path_buf()];
    while let Some(directory) = rest.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => rest.push(entry.path()),
                Ok(kind) if kind.is_file() && module_name(&entry.path()).is_some() => {
                    found.push(entry.path());
                }
                _ => {}
            }
        }
    }
    found.sort();
    found
}

/// `virtio` of `virtio.ko` or `virtio.ko.xz`.
fn module_name(path: &Path) -> Option<&str> {
    let name = path.file_name()?.to_str()?;
    let (name, ending) = name.split_once(".ko")?;
    matches!(ending, "" | ".xz" | ".zst" | ".gz").then_some(name)
}

fn first_with(directory: &Path, wanted: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let entries = std::fs::read_dir(directory).ok()?.flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|entry| entry.file_name().to_str().is_some_and(&wanted))
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found.pop()
}

fn write_frozen(path: &Path, content: &[u8]) -> Result<(), QemuError> {
    std::fs::write(path, content).map_err(QemuError::io("cannot write to the cache"))?;
    freeze(path)
}

pub(crate) fn hex(digest: &Sha256) -> String {
    digest
        .clone()
        .finalize()
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}
